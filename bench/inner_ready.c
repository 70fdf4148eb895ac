/* SPDX-License-Identifier: MIT */
/*
 * The ready lists of history/ready.c beside the engine's own: N threads each count up a file
 * of their own and tell, one thread collects and reads, which is the program of the kernel's
 * epoll benchmark (events per millisecond, 2018) without the kernel around it. Or N items are
 * queued, and taken off the list again in random order; of the engine that is the whole of
 * EPOLL_CTL_DEL, since it has no removal without one.
 */
#include "bench.h"

#include <linux/futex.h>
#include <pollux/epoll.h>
#include <pollux/eventfd.h>
#include <sys/syscall.h>

#include "base/atomic.h"
#include "history/ready.h"

#define MAX_THREADS 1024
#define BATCH 64

static struct {
	const char *algorithm;
	unsigned int threads;
	unsigned int removals;
	uint64_t events;
} opt = {.algorithm = "pollux", .threads = 8, .events = 200000};

static struct bench_gate gate;
static const struct ready_algorithm *algorithm;
static struct ready_list *list;
static struct ready_item *items;
static uint32_t asleep __attribute__((aligned(64)));
static struct pollux_ep *ep;
static struct pollux_efd **efds;

/* Pairs with the collector, which announces itself and then looks at the list again. */
static void wake_collector(void)
{
	plx_mb();
	if (plx_load(&asleep) && plx_xchg(&asleep, 0))
		syscall(SYS_futex, &asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *produce_history(void *arg)
{
	struct ready_item *item = arg;

	bench_gate_enter(&gate);
	for (uint64_t i = 0; i < opt.events; i++) {
		(void)__atomic_fetch_add(&item->count, 1, __ATOMIC_RELEASE);
		algorithm->event(list, item);
		wake_collector();
	}
	return NULL;
}

static uint64_t collect_history(uint64_t want)
{
	struct ready_item *got[BATCH];
	uint64_t sum = 0;

	while (sum < want) {
		unsigned int n = algorithm->collect(list, got, BATCH);

		for (unsigned int i = 0; i < n; i++)
			sum += plx_xchg(&got[i]->count, 0);
		if (n || sum >= want)
			continue;
		plx_store(&asleep, 1);
		plx_mb();
		if (!algorithm->any(list))
			syscall(SYS_futex, &asleep, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
		plx_store(&asleep, 0);
	}
	return sum;
}

static void *produce_pollux(void *arg)
{
	struct pollux_efd *e = arg;

	bench_gate_enter(&gate);
	for (uint64_t i = 0; i < opt.events; i++)
		if (pollux_efd_write(e, 1, 0))
			bench_die("a counter is full");
	return NULL;
}

static uint64_t collect_pollux(uint64_t want)
{
	struct epoll_event got[BATCH];
	uint64_t sum = 0, v;

	while (sum < want) {
		int n = pollux_ep_wait(ep, got, BATCH, POLLUX_FOREVER);

		for (int i = 0; i < n; i++)
			if (pollux_efd_read(got[i].data.ptr, &v, 0) == 0)
				sum += v;
	}
	return sum;
}

static void make_history(unsigned int n)
{
	list = algorithm->make();
	items = aligned_alloc(64, n * sizeof(*items));
	if (!list || !items)
		bench_die("out of memory");
	memset(items, 0, n * sizeof(*items));
}

static void add_pollux(unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data = {.ptr = efds[i]}};

		if (pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(efds[i]), 0, &ev))
			bench_die("pollux_ep_ctl failed");
	}
}

static void make_pollux(unsigned int n)
{
	efds = calloc(n, sizeof(*efds));
	if (!efds || pollux_ep_new(&ep, NULL))
		bench_die("out of memory");
	for (unsigned int i = 0; i < n; i++)
		if (pollux_efd_new(&efds[i], 0, 0))
			bench_die("out of memory");
	add_pollux(n);
}

static unsigned int *shuffled(unsigned int n)
{
	unsigned int *order = calloc(n, sizeof(*order));

	if (!order)
		bench_die("out of memory");
	bench_shuffle(order, n);
	return order;
}

static uint64_t remove_history(const unsigned int *order)
{
	uint64_t start;

	for (unsigned int i = 0; i < opt.removals; i++) {
		items[i].count = 1;
		algorithm->event(list, &items[i]);
	}
	start = bench_now();
	for (unsigned int i = 0; i < opt.removals; i++)
		algorithm->remove(list, &items[order[i]]);
	return bench_now() - start;
}

static uint64_t remove_pollux(const unsigned int *order)
{
	uint64_t start;

	for (unsigned int i = 0; i < opt.removals; i++)
		if (pollux_efd_write(efds[i], 1, 0))
			bench_die("a counter is full");
	start = bench_now();
	for (unsigned int i = 0; i < opt.removals; i++)
		if (pollux_ep_ctl(ep, EPOLL_CTL_DEL, pollux_efd_file(efds[order[i]]), 0, NULL))
			bench_die("a registration is gone");
	return bench_now() - start;
}

static int measure_removals(void)
{
	unsigned int *order = shuffled(opt.removals);
	struct ready_item *left;
	struct epoll_event ev;
	uint64_t ns;

	if (algorithm) {
		make_history(opt.removals);
		ns = remove_history(order);
		if (algorithm->any(list) || algorithm->collect(list, &left, 1))
			bench_die("something is left on the list");
	} else {
		make_pollux(opt.removals);
		/* The first removals of a thread make what the others find. */
		(void)remove_pollux(order);
		add_pollux(opt.removals);
		ns = remove_pollux(order);
		if (pollux_ep_wait(ep, &ev, 1, 0))
			bench_die("something is left on the list");
	}
	printf("program=inner_ready preload=0 native=%d algorithm=%s removals=%u ns=%.2f ok=1\n",
	       !algorithm, opt.algorithm, opt.removals, (double)ns / opt.removals);
	free(order);
	return 0;
}

static const char about[] =
	"Threads count up files of their own and tell, one thread collects and reads.";

static const struct bench_option options[] = {
	{"algorithm", "the ready list", .text = &opt.algorithm, .value = READY_NAMES "|pollux"},
	{"threads", "threads that tell", .count = &opt.threads, .min = 1, .max = MAX_THREADS},
	{"events", "events of each", .number = &opt.events, .min = 1, .max = 1u << 30},
	{"removals", "instead: queue N items and take each off again", .count = &opt.removals,
	 .min = 1, .max = 1u << 20},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	uint64_t want, got, start;
	pthread_t *t;
	double s;

	bench_options(argc, argv, about, options);
	algorithm = ready_algorithm_named(opt.algorithm);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	if (opt.removals)
		return measure_removals();
	want = opt.threads * opt.events;
	t = calloc(opt.threads, sizeof(*t));
	if (!t)
		bench_die("out of memory");
	if (algorithm)
		make_history(opt.threads);
	else
		make_pollux(opt.threads);
	bench_gate_init(&gate, opt.threads);
	for (unsigned int i = 0; i < opt.threads; i++)
		t[i] = algorithm ? bench_thread(produce_history, &items[i])
				 : bench_thread(produce_pollux, efds[i]);
	start = bench_gate_open(&gate);
	got = algorithm ? collect_history(want) : collect_pollux(want);
	s = bench_seconds(start, bench_now());
	for (unsigned int i = 0; i < opt.threads; i++)
		pthread_join(t[i], NULL);
	if (got != want)
		bench_die("%" PRIu64 " events of %" PRIu64 " were read", got, want);
	printf("program=inner_ready preload=0 native=%d algorithm=%s threads=%u events=%" PRIu64
	       " seconds=%.6f rate=%.0f ok=1\n",
	       !algorithm, opt.algorithm, opt.threads, want, s, (double)want / s);
	return 0;
}
