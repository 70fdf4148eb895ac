/* SPDX-License-Identifier: MIT */
/*
 * Registration storm. Each thread makes an object, adds it to its own epoll and
 * closes it, over and over; the close alone must take the watch away.
 */
#include "storm.h"

static struct {
	unsigned int threads;
	uint64_t events;
	/* Or else eventfds. */
	unsigned int tcp;
} opt = {.threads = 1, .events = 200000};

static void *storm(void *arg)
{
	int ep = bench_epoll();

	(void)arg;
	bench_gate_enter(&storm_gate);
	storm_loops(ep, opt.events, opt.tcp);
	close(ep);
	return NULL;
}

static const char about[] = "Each thread loops: make an object, add it to its own epoll, close it.";

static const struct bench_option options[] = {
	{"threads", "threads", .count = &opt.threads, .min = 1, .max = 4096},
	{"events", "loops of each thread", .number = &opt.events, .min = 1, .max = UINT32_MAX},
	{"kind", "what is made", .choice = &opt.tcp, .value = "eventfd|tcp"},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	struct storm s;

	bench_options(argc, argv, about, options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	bench_raise_nofile(2 * (uint64_t)opt.threads + 64);
	s = storm_run(storm, opt.threads, opt.events);
	printf("program=storm ");
	bench_print_served(bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	printf("threads=%u kind=%s ", opt.threads, opt.tcp ? "tcp" : "eventfd");
	storm_print(&s);
	return 0;
}
