/* SPDX-License-Identifier: MIT */
/*
 * The first in-process item comes to an epoll while threads wait on it: the doorbell that is made
 * for it is nobody's event, whoever takes it out of the kernel.
 */
#include "torture.h"

#include <sys/eventfd.h>

#include <pollux/posix.h>

struct caller {
	struct thread t;
	struct gate g;
	const char *point;
	int ep, timeout;
	struct epoll_event ev[4];
	int n;
};

static void caller_main(struct thread *t)
{
	struct caller *w = t->arg;

	gate_arm(&w->g, w->point);
	w->n = pollux_epoll_wait(w->ep, w->ev, 4, w->timeout);
}

static void caller_start(struct caller *w)
{
	thread_start(&w->t, caller_main, w);
	assert_true(gate_reached(&w->g));
}

static void caller_got(struct caller *w, uint64_t data)
{
	gate_open(&w->g);
	thread_join(&w->t);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->ev[0].data.u64, data);
}

static void add(int ep, int fd, uint64_t data)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = data};

	assert_int_equal(pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
}

/* One that only looks stands before the kernel; another is about to sleep, and is rung for. */
static void a_look_that_finds_the_bell(void **state)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC), efd = pollux_eventfd(0, EFD_NONBLOCK);
	struct caller looks = {.point = "wait_look", .ep = ep, .timeout = 0};
	struct caller sleeps = {.point = "wait_before_kernel", .ep = ep, .timeout = SOON_MS};
	const uint64_t one = 1;

	(void)state;
	points_delay(false);
	caller_start(&looks);
	add(ep, efd, 7);
	caller_start(&sleeps);
	assert_int_equal(pollux_write(efd, &one, sizeof(one)), sizeof(one));
	caller_got(&looks, 7);
	caller_got(&sleeps, 7);
	pollux_close(ep);
	pollux_close(efd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_look_that_finds_the_bell),
	};

	return RUN(tests);
}
