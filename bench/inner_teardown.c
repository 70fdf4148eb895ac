/* SPDX-License-Identifier: MIT */
/*
 * The registration storm over the algorithms of history/teardown.c: each thread makes a file that
 * is ready, adds it to its own epoll and closes it, over and over. This is the program of the
 * kernel's table of 2019 with nothing but the engine in it.
 */
#include "storm.h"

#include "history/teardown.h"
#include "rcu/rcu.h"

#define MAX_THREADS 1024

static struct {
	unsigned int threads;
	uint64_t events;
	unsigned int algorithm;
} opt = {.threads = 10, .events = 100000, .algorithm = 2};

static const struct teardown_algorithm *const all[] = {&teardown_mutex, &teardown_refcount,
						       &teardown_pollux};
static const struct teardown_algorithm *algorithm;

static void *storm(void *arg)
{
	struct teardown_ep *ep = algorithm->ep_make();
	uint64_t got[4];

	(void)arg;
	if (!ep)
		bench_die("out of memory");
	bench_gate_enter(&storm_gate);
	for (uint64_t i = 0; i < opt.events; i++) {
		struct teardown_file *f = algorithm->file_make(1);

		if (!f || algorithm->add(ep, f, i))
			bench_die("out of memory");
		if (i % STORM_CHECK_EVERY == 0 &&
		    (algorithm->collect(ep, got, 4) != 1 || got[0] != i))
			bench_die("the watch just added did not report its file");
		algorithm->file_close(f);
	}
	if (algorithm->collect(ep, got, 4))
		bench_die("a closed file is still being watched");
	algorithm->ep_close(ep);
	return NULL;
}

static const char about[] = "Each thread loops: make a file, add it to its own epoll, close it.";

static const struct bench_option options[] = {
	{"algorithm", "how", .choice = &opt.algorithm, .value = "mutex|refcount|pollux"},
	{"threads", "threads", .count = &opt.threads, .min = 1, .max = MAX_THREADS},
	{"events", "loops of each thread", .number = &opt.events, .min = 1, .max = UINT32_MAX},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	struct storm s;

	bench_options(argc, argv, about, options);
	algorithm = all[opt.algorithm];
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	plx_rcu_begin();
	s = storm_run(storm, opt.threads, opt.events);
	if (algorithm->watches() != 0)
		bench_die("%ld watches are left after the end", algorithm->watches());
	printf("program=inner_teardown preload=0 native=%d algorithm=%s threads=%u ",
	       algorithm == &teardown_pollux, algorithm->name, opt.threads);
	storm_print(&s);
	return 0;
}
