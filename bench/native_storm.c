/* SPDX-License-Identifier: MIT */
/*
 * The registration storm of storm.c through Pollux's own functions, where no
 * object needs a descriptor: make a counter, add it to the thread's epoll, close.
 */
#include "bench.h"

#include <pollux/epoll.h>
#include <pollux/eventfd.h>

#define CHECK_EVERY 1024

static struct {
	unsigned int threads;
	uint64_t events;
} opt = {.threads = 1, .events = 200000};

static struct bench_gate gate;

static void *storm(void *arg)
{
	struct epoll_event got[4];
	struct pollux_ep *ep;
	int rc = pollux_ep_new(&ep, NULL, NULL);

	(void)arg;
	if (rc)
		bench_die("pollux_ep_new: %s", strerror(-rc));
	bench_gate_enter(&gate);
	for (uint64_t i = 0; i < opt.events; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data = {.u64 = i}};
		struct pollux_eventfd *e;

		rc = pollux_efd_new(&e, 1, 0);
		if (rc)
			bench_die("pollux_efd_new: %s", strerror(-rc));
		rc = pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(e), 0, &ev);
		if (rc)
			bench_die("pollux_ep_ctl ADD: %s", strerror(-rc));
		if (i % CHECK_EVERY == 0 &&
		    (pollux_ep_wait(ep, got, 4, 0) != 1 || got[0].data.u64 != i))
			bench_die("the watch just added did not report its object");
		/* The last reference: the object leaves the epoll. */
		pollux_file_put(pollux_efd_file(e));
	}
	if (pollux_ep_wait(ep, got, 4, 0) != 0)
		bench_die("a closed object is still being watched");
	pollux_file_put(pollux_ep_file(ep));
	return NULL;
}

static void usage(void)
{
	printf("Usage: native_storm [OPTION]...\n"
	       "Each thread loops: make a counter, add it to its own epoll, close it, through\n"
	       "Pollux's own functions.\n\n"
	       "  --threads N   threads (default 1)\n"
	       "  --events N    loops of each thread (default 200000)\n"
	       "  --help        this text\n");
}

static void parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{"threads", required_argument, NULL, 't'},
		{"events", required_argument, NULL, 'n'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 't':
			opt.threads = (unsigned int)bench_number(optarg, "--threads", 1, 4096);
			break;
		case 'n':
			opt.events = bench_number(optarg, "--events", 1, UINT32_MAX);
			break;
		case 'h':
			usage();
			exit(0);
		default:
			bench_usage_error();
		}
	}
	if (optind != argc) {
		fprintf(stderr, "native_storm: unexpected argument '%s'\n", argv[optind]);
		bench_usage_error();
	}
}

int main(int argc, char **argv)
{
	pthread_t *threads;
	uint64_t start, end, cpu, loops;
	double seconds;

	parse(argc, argv);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	threads = calloc(opt.threads, sizeof(*threads));
	if (!threads)
		bench_die("out of memory");
	bench_gate_init(&gate, opt.threads);
	for (unsigned int i = 0; i < opt.threads; i++)
		threads[i] = bench_thread(storm, NULL);
	cpu = bench_cpu();
	start = bench_gate_open(&gate);
	for (unsigned int i = 0; i < opt.threads; i++)
		pthread_join(threads[i], NULL);
	end = bench_now();
	cpu = bench_cpu() - cpu;
	if (pollux_ep_watches() != 0)
		bench_die("%ld watches are left after the end", pollux_ep_watches());

	seconds = bench_seconds(start, end);
	loops = opt.threads * opt.events;
	printf("program=native_storm preload=0 served=0 native=1 threads=%u kind=eventfd "
	       "events=%" PRIu64 " seconds=%.6f rate=%.1f ns_per_loop=%.1f cpu_ns_per_loop=%.1f "
	       "ok=1\n",
	       opt.threads, loops, seconds, (double)loops / seconds, seconds * 1e9 / (double)loops,
	       (double)cpu / (double)loops);
	free(threads);
	return 0;
}
