/* SPDX-License-Identifier: MIT */
/*
 * The ready lists of history/ready.c beside the engine's own: N threads each count up a file
 * of their own and tell, one thread collects and reads, which is the program of the kernel's
 * epoll benchmark (events per millisecond, 2018) without the kernel around it.
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
	uint64_t events;
} opt = {.algorithm = "pollux", .threads = 8, .events = 200000};

static struct bench_gate gate;
static const struct ready_algorithm *algorithm;
static struct ready_list *list;
static struct ready_item *items;
static uint32_t asleep __attribute__((aligned(64)));
static struct pollux_ep *ep;
static struct pollux_eventfd **efds;

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
	struct pollux_eventfd *e = arg;

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

static void make_history(void)
{
	list = algorithm->make();
	items = aligned_alloc(64, opt.threads * sizeof(*items));
	if (!list || !items)
		bench_die("out of memory");
	memset(items, 0, opt.threads * sizeof(*items));
}

static void make_pollux(void)
{
	efds = calloc(opt.threads, sizeof(*efds));
	if (!efds || pollux_ep_new(&ep, NULL, NULL))
		bench_die("out of memory");
	for (unsigned int i = 0; i < opt.threads; i++) {
		struct epoll_event ev = {.events = EPOLLIN};

		if (pollux_efd_new(&efds[i], 0, 0))
			bench_die("out of memory");
		ev.data.ptr = efds[i];
		if (pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(efds[i]), 0, &ev))
			bench_die("pollux_ep_ctl failed");
	}
}

static void usage(void)
{
	printf("Usage: inner_ready [OPTION]...\n"
	       "Threads count up files of their own and tell, one thread collects and reads.\n\n"
	       "  --algorithm NAME  spinlock, rwlock, lockfree or pollux (default pollux)\n"
	       "  --threads N       threads that tell (default 8)\n"
	       "  --events N        events of each (default 200000)\n"
	       "  --help            this text\n");
}

static void read_options(int argc, char **argv)
{
	static const struct option longs[] = {
		{"algorithm", required_argument, NULL, 'a'},
		{"threads", required_argument, NULL, 't'},
		{"events", required_argument, NULL, 'e'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static const struct ready_algorithm *const all[] = {&ready_spinlock, &ready_rwlock,
							    &ready_lockfree};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'a':
			opt.algorithm = optarg;
			break;
		case 't':
			opt.threads = bench_number(optarg, "--threads", 1, MAX_THREADS);
			break;
		case 'e':
			opt.events = bench_number(optarg, "--events", 1, 1u << 30);
			break;
		case 'h':
			usage();
			exit(0);
		default:
			bench_usage_error();
		}
	}
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i]->name, opt.algorithm))
			algorithm = all[i];
	if (!algorithm && strcmp(opt.algorithm, "pollux")) {
		fprintf(stderr, "inner_ready: no algorithm is called '%s'\n", opt.algorithm);
		bench_usage_error();
	}
}

int main(int argc, char **argv)
{
	uint64_t want, got, start;
	pthread_t *t;
	double s;

	read_options(argc, argv);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	want = opt.threads * opt.events;
	t = calloc(opt.threads, sizeof(*t));
	if (!t)
		bench_die("out of memory");
	if (algorithm)
		make_history();
	else
		make_pollux();
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
