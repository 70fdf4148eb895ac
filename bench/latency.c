/* SPDX-License-Identifier: MIT */
/* The delivery of an event through an eventfd and an epoll. */
#include "latency.h"

static int epoll_fd;
static int event_fd;

static void latency_write(void)
{
	static const uint64_t one = 1;

	if (write(event_fd, &one, sizeof(one)) != sizeof(one))
		bench_die("write to an eventfd: %s", strerror(errno));
}

static void latency_wait(bool sleep)
{
	struct epoll_event ev;

	while (!bench_wait(epoll_fd, &ev, 1, sleep ? -1 : 0))
		;
}

static void latency_read(void)
{
	uint64_t v;

	if (read(event_fd, &v, sizeof(v)) != sizeof(v) || v != 1)
		bench_die("the eventfd held something else than what was written");
}

int main(int argc, char **argv)
{
	latency_options(argc, argv);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	epoll_fd = bench_epoll();
	event_fd = bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	bench_ctl(epoll_fd, EPOLL_CTL_ADD, event_fd, EPOLLIN, 0);
	latency_run();
	printf("program=latency ");
	bench_print_served(event_fd);
	latency_print();
	return 0;
}
