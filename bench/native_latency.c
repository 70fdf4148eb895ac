/* SPDX-License-Identifier: MIT */
/* The delivery of an event through Pollux's own functions, without descriptors. */
#include "latency.h"

#include <pollux/epoll.h>
#include <pollux/eventfd.h>

static struct pollux_ep *ep;
static struct pollux_efd *efd;

static void latency_write(void)
{
	if (pollux_efd_write(efd, 1, 0))
		bench_die("a counter is full");
}

static void latency_wait(bool sleep)
{
	struct epoll_event ev;

	while (pollux_ep_wait(ep, &ev, 1, sleep ? POLLUX_FOREVER : 0) != 1)
		;
}

static void latency_read(void)
{
	uint64_t v;

	if (pollux_efd_read(efd, &v, 0) || v != 1)
		bench_die("the counter held something else than what was written");
}

int main(int argc, char **argv)
{
	struct epoll_event ev = {.events = EPOLLIN};

	latency_options(argc, argv);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	if (pollux_ep_new(&ep, NULL) || pollux_efd_new(&efd, 0, 0) ||
	    pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(efd), 0, &ev))
		bench_die("out of memory");
	latency_run();
	printf("program=native_latency preload=0 native=1 ");
	latency_print();
	return 0;
}
