/* SPDX-License-Identifier: MIT */
/*
 * What it costs to come from the address of an AIO context to the context, and to leave
 * it again, by the list and the radix tree of old and by the table of the library.
 *
 * The contexts have no rings of their own, for 100,000 of those would need more mappings
 * than a process may have: their addresses are pages of one mapping, where headers stand
 * as they do in rings.
 */
#include "aio/aio.h"

#include "bench.h"

#include <sys/mman.h>

#include "base/mem.h"
#include "history/aio_lookup.h"
#include "rcu/rcu.h"

#define PAGE 4096ul
#define MAGIC PLX_AIO_MAGIC
/* How many come and go before the measurement. */
#define SAMPLE 64
#define SHUFFLE 65536
#define MAX_CONTEXTS 1000000

struct algorithm {
	const char *name;
	void *(*get)(unsigned long user_id);
	void (*put)(void *c);
	bool (*add)(void *c);
	void (*del)(void *c);
	void *(*make)(unsigned long user_id);
};

static void *get_list(unsigned long user_id)
{
	return list_get(user_id);
}

static void *get_radix(unsigned long user_id)
{
	return radix_get(user_id);
}

static void *get_table(unsigned long user_id)
{
	return plx_aio_get(user_id, 0);
}

static void put_old(void *c)
{
	old_put(c);
}

static void put_table(void *c)
{
	plx_aio_put(c, 0);
}

static bool add_list(void *c)
{
	return list_add(c);
}

static bool add_radix(void *c)
{
	return radix_add(c);
}

static bool add_table(void *c)
{
	return plx_aio_table_add(c, UINT64_MAX) == 0;
}

static void del_list(void *c)
{
	list_del(c);
}

static void del_radix(void *c)
{
	radix_del(c);
}

static void del_table(void *c)
{
	if (!plx_aio_table_del(c))
		bench_die("a context was not in the table");
}

static void *make_old(unsigned long user_id)
{
	struct old_context *c = plx_zalloc(sizeof(*c));

	if (c)
		c->user_id = user_id;
	return c;
}

static void *make_table(unsigned long user_id)
{
	struct plx_kioctx *k = plx_zalloc(sizeof(*k));

	if (k) {
		k->user_id = user_id;
		k->ring = (struct plx_aio_ring *)user_id;
		k->nr_events = 1;
	}
	return k;
}

static const struct algorithm algorithms[] = {
	{"list", get_list, put_old, add_list, del_list, make_old},
	{"radix", get_radix, put_old, add_radix, del_radix, make_old},
	{"table", get_table, put_table, add_table, del_table, make_table},
};

static struct {
	unsigned int algorithm;
	const struct algorithm *how;
	uint64_t contexts, milliseconds;
} opt = {.algorithm = 2, .contexts = 512, .milliseconds = 100};

static void **contexts;
static unsigned long base;

static unsigned long address(uint64_t i)
{
	return base + i * PAGE;
}

static void add(uint64_t i)
{
	((uint32_t *)address(i))[4] = MAGIC;
	contexts[i] = opt.how->make(address(i));
	if (!contexts[i] || !opt.how->add(contexts[i]))
		bench_die("out of memory");
}

static void expect(uint64_t i, const void *want)
{
	void *c = opt.how->get(address(i));

	if (c != want)
		bench_die("looking for context %" PRIu64 " finds %s", i, c ? "another" : "nothing");
	if (c)
		opt.how->put(c);
}

/* Contexts come and go; what is there is found and nothing else. */
static void fill(void)
{
	uint64_t n = opt.contexts, few = n < SAMPLE ? n : SAMPLE;

	for (uint64_t i = 0; i < few; i++)
		add(i);
	for (uint64_t i = 0; i < few; i++) {
		expect(i, contexts[i]);
		opt.how->del(contexts[i]);
		expect(i, NULL);
		expect((i + 1) % n, i + 1 < few ? contexts[(i + 1) % n] : NULL);
		/* A call could still hold the memory of one that is gone; here is none. */
		plx_free(contexts[i]);
	}
	for (uint64_t i = 0; i < n; i++)
		add(i);
	for (uint64_t i = 0; i < few; i++)
		expect(i * n / few, contexts[i * n / few]);
	/* Pages that belong to no context: the one behind, and one in another world. */
	expect(n, NULL);
	expect(n + (1ul << 20), NULL);
}

/* n lookups, of addresses in turn or of the first one again and again. */
static void lookups(const unsigned long *at, size_t n, bool again)
{
	for (size_t i = 0; i < n; i++) {
		unsigned long user_id = at[again ? 0 : i];
		void *c = opt.how->get(user_id);

		/* Every call looks at the ring of its context next. */
		if (!c || ((volatile uint32_t *)user_id)[4] != MAGIC)
			bench_die("a context is not found");
		opt.how->put(c);
	}
}

/* Nanoseconds of one, over the time that is given for it. */
static double measure(const unsigned long *at, size_t n, bool again)
{
	uint64_t start = bench_now(), now = start, done = 0, took;
	size_t i = 0, batch = 8;

	/* As many between two looks at the clock as last for much longer than these. */
	for (; batch < n; batch *= 2) {
		lookups(at, batch, again);
		took = bench_now() - now;
		if (took > 20000)
			break;
		now += took;
	}
	start = bench_now();
	do {
		lookups(at + i, batch, again);
		done += batch;
		i += again ? 1 : batch;
		if (i + (again ? 1 : batch) > n)
			i = 0;
		now = bench_now();
	} while (now - start < opt.milliseconds * 1000000);
	return (double)(now - start) / (double)done;
}

static const char about[] = "The cost of finding an AIO context by its address, and of leaving it.";

static const struct bench_option options[] = {
	{"algorithm", "how", .choice = &opt.algorithm, .value = "list|radix|table"},
	{"contexts", "contexts that there are", .number = &opt.contexts, .min = 1,
	 .max = MAX_CONTEXTS},
	{"milliseconds", "time of each of the two measurements", .number = &opt.milliseconds,
	 .min = 1, .max = 100000},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	static unsigned long any[SHUFFLE];
	uint64_t random = BENCH_SEED;
	double again_ns, any_ns;
	void *p;

	bench_options(argc, argv, about, options);
	opt.how = &algorithms[opt.algorithm];
	plx_rcu_begin();
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	/* The pages behind are those of no context. */
	p = mmap(NULL, (opt.contexts + (1ul << 20) + 1) * PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	contexts = calloc(opt.contexts, sizeof(*contexts));
	if (p == MAP_FAILED || !contexts)
		bench_die("out of memory");
	base = (unsigned long)p;
	fill();

	for (size_t i = 0; i < SHUFFLE; i++)
		any[i] = address(bench_random(&random) % opt.contexts);
	again_ns = measure(any, SHUFFLE, true);
	any_ns = measure(any, SHUFFLE, false);

	printf("program=inner_aio_lookup preload=0 native=%d algorithm=%s contexts=%" PRIu64
	       " ns=%.2f any_ns=%.2f ok=1\n",
	       opt.how == &algorithms[2], opt.how->name, opt.contexts, again_ns, any_ns);
	return 0;
}
