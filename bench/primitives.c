/* SPDX-License-Identifier: MIT */
/*
 * What the machine takes for the steps that everything else is made of (docs/cost-model.md):
 * instructions on a line of one's own and on one that other CPUs want as well, and the way of a
 * line from one CPU to another.
 */
#include "histogram.h"

#include <linux/futex.h>
#include <math.h>
#include <sys/syscall.h>

#define ROUNDS 101
/* A round is short beside a time slice, so that most are measured without a break. */
#define ROUND_NS 50000
/* Fewer than that many rounds say nothing. */
#define ROUNDS_LEAST 5
#define SECONDS 2
/* Steps of a rival between two looks. */
#define RIVAL_OPS 100
#define LINES 1024
#define MAX_CPUS 1024
#define MAX_PAIRS 24

static struct {
	const char *what;
	unsigned int threads;
} opt = {.what = "add", .threads = 2};

struct line {
	_Atomic uint64_t word;
	struct line *next;
} __attribute__((aligned(128)));

static struct line shared_line, lines[LINES];
/* The order of the lines, at random, or the CPU would fetch them ahead. */
static unsigned int order[LINES];
static _Atomic uint32_t futex_word;
static int cpus[MAX_CPUS];
static unsigned int n_cpus;
static _Atomic int stop;

/* One step, done n times. */

static void op_add(struct line *l, unsigned int n)
{
	while (n--)
		atomic_fetch_add_explicit(&l->word, 1, memory_order_seq_cst);
}

static void op_cas(struct line *l, unsigned int n)
{
	uint64_t seen = atomic_load_explicit(&l->word, memory_order_relaxed);

	/* As in a loop that must succeed: what counts is each success. */
	while (n--)
		while (!atomic_compare_exchange_strong(&l->word, &seen, seen + 1))
			;
}

static void op_swap(struct line *l, unsigned int n)
{
	while (n--)
		atomic_exchange_explicit(&l->word, n, memory_order_seq_cst);
}

static void op_store(struct line *l, unsigned int n)
{
	while (n--)
		atomic_store_explicit(&l->word, n, memory_order_relaxed);
}

static void op_load(struct line *l, unsigned int n)
{
	while (n--)
		(void)atomic_load_explicit(&l->word, memory_order_relaxed);
}

static void op_fence(struct line *l, unsigned int n)
{
	while (n--) {
		atomic_store_explicit(&l->word, n, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst);
	}
}

static void op_clock(struct line *l, unsigned int n)
{
	(void)l;
	while (n--)
		(void)bench_now();
}

static void op_syscall(struct line *l, unsigned int n)
{
	(void)l;
	while (n--)
		syscall(SYS_getppid);
}

static void op_futex(struct line *l, unsigned int n)
{
	(void)l;
	while (n--)
		syscall(SYS_futex, &futex_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static const struct op {
	const char *name;
	void (*run)(struct line *l, unsigned int n);
	/* Other CPUs can be in its way. */
	bool line;
} ops[] = {
	{"add", op_add, true},	    {"cas", op_cas, true},	    {"swap", op_swap, true},
	{"store", op_store, true},  {"load", op_load, true},	    {"fence", op_fence, true},
	{"clock", op_clock, false}, {"syscall", op_syscall, false}, {"futex-wake", op_futex, false},
};

static double median_of(double *v, size_t n)
{
	struct samples s;
	double m;

	/* In thousandths of a nanosecond. */
	samples_init(&s, n);
	for (size_t i = 0; i < n; i++)
		samples_add(&s, (uint64_t)(v[i] * 1000));
	samples_sort(&s);
	m = (double)samples_quantile(&s, 0.5) / 1000;
	free(s.v);
	return m;
}

static _Atomic uint64_t rivals_did __attribute__((aligned(64)));
static _Atomic unsigned int rivals_at_work;

static long switches(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_THREAD, &u))
		bench_die("getrusage: %s", strerror(errno));
	return u.ru_nvcsw + u.ru_nivcsw;
}

/*
 * Only rounds count in which this CPU was ours, and those of that many rivals theirs. NAN: on a
 * busy machine there may be too few.
 */
static double time_op(const struct op *op, unsigned int rivals)
{
	double v[ROUNDS];
	unsigned int n = 0, ops = 10;
	uint64_t begin = bench_now(), start, ns;

	do {
		ops *= 2;
		start = bench_now();
		op->run(&shared_line, ops);
	} while (bench_now() - start < ROUND_NS);
	while (n < ROUNDS && bench_now() - begin < SECONDS * 1000000000ull) {
		uint64_t did = atomic_load(&rivals_did);
		long before = switches();

		start = bench_now();
		op->run(&shared_line, ops);
		ns = bench_now() - start;
		if (switches() == before && atomic_load(&rivals_did) - did >= 5 * rivals)
			v[n++] = (double)ns / ops;
	}
	return n < ROUNDS_LEAST ? NAN : median_of(v, n);
}

struct rival {
	const struct op *op;
	int cpu;
};

static void *rival(void *arg)
{
	struct rival *r = arg;

	bench_pin(r->cpu);
	atomic_fetch_add(&rivals_at_work, 1);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		/* Who only reads is disturbed by writers alone. */
		if (r->op->run == op_load)
			op_store(&shared_line, RIVAL_OPS);
		else
			r->op->run(&shared_line, RIVAL_OPS);
		atomic_fetch_add_explicit(&rivals_did, 1, memory_order_relaxed);
	}
	return NULL;
}

static void measure_op(const struct op *op)
{
	unsigned int n = opt.threads < n_cpus ? opt.threads : n_cpus;
	struct rival rivals[MAX_CPUS];
	pthread_t t[MAX_CPUS];
	double contended;

	bench_pin(cpus[0]);
	printf("threads=%u ns=%.3f ", op->line ? n : 1, time_op(op, 0));
	if (!op->line || n < 2)
		return;
	for (unsigned int i = 1; i < n; i++) {
		rivals[i] = (struct rival){op, cpus[i]};
		t[i] = bench_thread(rival, &rivals[i]);
	}
	while (atomic_load(&rivals_at_work) < n - 1)
		sched_yield();
	contended = time_op(op, n - 1);
	if (isfinite(contended))
		printf("contended_ns=%.3f ", contended);
	atomic_store(&stop, 1);
	for (unsigned int i = 1; i < n; i++)
		pthread_join(t[i], NULL);
}

/*
 * The other side of the two experiments with lines: it has turn 1, we have turn 0. The turns
 * themselves are on a line of their own.
 */
static struct line turn;
static bool ping;

static void await_turn(uint64_t mine)
{
	unsigned int spins = 0;

	while (atomic_load_explicit(&turn.word, memory_order_acquire) != mine &&
	       !atomic_load_explicit(&stop, memory_order_relaxed))
		if (++spins % 100000 == 0)
			sched_yield();
}

static void *other_side(void *arg)
{
	bench_pin(*(int *)arg);
	for (;;) {
		await_turn(1);
		if (atomic_load(&stop))
			return NULL;
		if (!ping)
			for (unsigned int i = 0; i < LINES; i++)
				atomic_fetch_add(&lines[i].word, 1);
		atomic_store_explicit(&turn.word, 0, memory_order_release);
	}
}

static double hand_over(void)
{
	enum { TRIPS = 50 };
	uint64_t start = bench_now();

	for (unsigned int i = 0; i < TRIPS; i++) {
		atomic_store_explicit(&turn.word, 1, memory_order_release);
		await_turn(0);
	}
	return (double)(bench_now() - start) / TRIPS / 2;
}

/* All lines have been written by the other CPU; each is fetched. */
static double fetch(void)
{
	uint64_t start, sum = 0;

	atomic_store_explicit(&turn.word, 1, memory_order_release);
	await_turn(0);
	start = bench_now();
	if (!strcmp(opt.what, "fetch")) {
		struct line *l = &lines[order[0]];

		/* Where the next line is stands in this one, so they come one by one. */
		for (unsigned int i = 0; i < LINES; i++)
			l = l->next;
		sum = (uint64_t)(uintptr_t)l;
	} else if (!strcmp(opt.what, "fetch-many")) {
		for (unsigned int i = 0; i < LINES; i++)
			sum += atomic_load_explicit(&lines[order[i]].word, memory_order_relaxed);
	} else {
		for (unsigned int i = 0; i < LINES; i++)
			sum += atomic_fetch_add(&lines[order[i]].word, 1);
	}
	__asm__ __volatile__("" : : "r"(sum));
	return (double)(bench_now() - start) / LINES;
}

static double time_pair(int a, int b)
{
	double v[ROUNDS];
	pthread_t t;

	bench_pin(a);
	atomic_store(&stop, 0);
	atomic_store(&turn.word, 0);
	t = bench_thread(other_side, &b);
	for (int i = 0; i < ROUNDS; i++)
		v[i] = ping ? hand_over() : fetch();
	atomic_store(&stop, 1);
	pthread_join(t, NULL);
	return median_of(v, ROUNDS);
}

static void shuffle(void)
{
	bench_shuffle(order, LINES);
	for (unsigned int i = 0; i < LINES; i++)
		lines[order[i]].next = &lines[order[(i + 1) % LINES]];
}

/* Of pairs of CPUs, since not all are equally near to each other. */
static void measure_lines(void)
{
	double v[MAX_PAIRS], least, most;
	unsigned int n = 0;

	ping = !strcmp(opt.what, "hand-over");
	shuffle();
	if (n_cpus < 2)
		bench_skip("there is one CPU");
	for (unsigned int k = 1; k < n_cpus && n < MAX_PAIRS; k++)
		if (n_cpus <= MAX_PAIRS || k % (n_cpus / MAX_PAIRS) == 0)
			v[n++] = time_pair(cpus[0], cpus[k]);
	least = most = v[0];
	for (unsigned int i = 1; i < n; i++) {
		least = v[i] < least ? v[i] : least;
		most = v[i] > most ? v[i] : most;
	}
	printf("program=primitives preload=0 native=1 what=%s cpu_pairs=%u ns=%.3f least_ns=%.3f "
	       "most_ns=%.3f ok=1\n",
	       opt.what, n, median_of(v, n), least, most);
}

static const char about[] = "What a step takes on this machine.";

static const struct bench_option options[] = {
	{"what",
	 "add, cas, swap, store, load, fence: on one line, alone and with\n"
	 "other CPUs at it; hand-over: of a line to a CPU that waits for it;\n"
	 "fetch, fetch-many, fetch-add: lines that another CPU has written;\n"
	 "clock, syscall, futex-wake",
	 .text = &opt.what, .value = "STEP"},
	{"threads", "CPUs at the line", .count = &opt.threads, .min = 1, .max = MAX_CPUS},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	static const char *const line_steps[] = {"hand-over", "fetch", "fetch-many", "fetch-add"};

	bench_options(argc, argv, about, options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	n_cpus = bench_cpus(cpus, MAX_CPUS);
	for (size_t i = 0; i < sizeof(line_steps) / sizeof(line_steps[0]); i++) {
		if (!strcmp(opt.what, line_steps[i])) {
			measure_lines();
			return 0;
		}
	}
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (!strcmp(opt.what, ops[i].name)) {
			printf("program=primitives preload=0 native=1 what=%s ", opt.what);
			measure_op(&ops[i]);
			printf("ok=1\n");
			return 0;
		}
	}
	bench_usage_error("there is no step '%s'", opt.what);
}
