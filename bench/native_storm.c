/* SPDX-License-Identifier: MIT */
/*
 * The registration storm of storm.c through Pollux's own functions, where no
 * object needs a descriptor: make a counter, add it to the thread's epoll, close.
 */
#include "storm.h"

#include <pollux/epoll.h>
#include <pollux/eventfd.h>

static struct {
	unsigned int threads;
	uint64_t events;
} opt = {.threads = 1, .events = 200000};

static void *storm(void *arg)
{
	struct epoll_event got[4];
	struct pollux_ep *ep;
	int rc = pollux_ep_new(&ep, NULL);

	(void)arg;
	if (rc)
		bench_die("pollux_ep_new: %s", strerror(-rc));
	bench_gate_enter(&storm_gate);
	for (uint64_t i = 0; i < opt.events; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data = {.u64 = i}};
		struct pollux_efd *e;

		rc = pollux_efd_new(&e, 1, 0);
		if (rc)
			bench_die("pollux_efd_new: %s", strerror(-rc));
		rc = pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(e), 0, &ev);
		if (rc)
			bench_die("pollux_ep_ctl ADD: %s", strerror(-rc));
		if (i % STORM_CHECK_EVERY == 0 &&
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

static const char about[] =
	"Each thread loops: make a counter, add it to its own epoll, close it, through Pollux's\n"
	"own functions.";

static const struct bench_option options[] = {
	{"threads", "threads", .count = &opt.threads, .min = 1, .max = 4096},
	{"events", "loops of each thread", .number = &opt.events, .min = 1, .max = UINT32_MAX},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	struct storm s;

	bench_options(argc, argv, about, options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	s = storm_run(storm, opt.threads, opt.events);
	if (pollux_ep_watches() != 0)
		bench_die("%ld watches are left after the end", pollux_ep_watches());
	printf("program=native_storm preload=0 served=0 native=1 threads=%u kind=eventfd ",
	       opt.threads);
	storm_print(&s);
	return 0;
}
