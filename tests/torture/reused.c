/* SPDX-License-Identifier: MIT */
/*
 * The number of an epoll means another epoll by the time that a wait comes to the kernel with it:
 * the wait is one of the other then, and what it gives out are the program's events.
 */
#include "caller.h"

#include <ctype.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <pollux/posix.h>

#define DATA 7

struct wait {
	struct gate gate;
	const char *point;
	int ep, timeout, result, done;
	struct epoll_event ev;
};

static void waits(struct thread *t)
{
	struct wait *w = t->arg;

	if (w->point)
		gate_arm(&w->gate, w->point);
	w->result = pollux_epoll_wait(w->ep, &w->ev, 1, w->timeout);
	atomic_set(&w->done, 1);
}

/* An epoll with an eventfd, at the number of one that was closed. */
static void another_at(int ep, int *fd)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = DATA};

	assert_int_equal(pollux_close(ep), 0);
	assert_int_equal(pollux_epoll_create1(EPOLL_CLOEXEC), ep);
	*fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_int_equal(pollux_epoll_ctl(ep, EPOLL_CTL_ADD, *fd, &ev), 0);
	/* Somebody may be about to sleep there, who has not been seen to. */
	assert_false(pollux_fd_served(*fd));
}

static void one_takes_the_ring_of_another(void **state)
{
	struct wait first = {.point = "wait_before_sleep", .timeout = -1}, second = {.timeout = -1};
	struct epoll_event ev;
	uint64_t one = 1;
	struct thread t[2];
	int fd;

	(void)state;
	torture_begin();
	points_delay(false);
	first.ep = second.ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	thread_start(&t[0], waits, &first);
	assert_true(gate_reached(&first.gate));
	another_at(first.ep, &fd);
	thread_start(&t[1], waits, &second);
	assert_true(await(in_the_kernel(&t[1])) && thread_asleep(&t[1]));
	gate_open(&first.gate);
	assert_true(await(in_the_kernel(&t[0])) && thread_asleep(&t[0]));
	/* One each: who sleeps in the kernel, and last, is woken first. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pollux_write(fd, &one, sizeof(one)), sizeof(one));
		assert_true(await(atomic_get(&first.done) + atomic_get(&second.done) > i));
	}
	torture_end(t, 2);
	assert_int_equal(first.result, 1);
	assert_int_equal(first.ev.data.u64, DATA);
	assert_int_equal(second.result, 1);
	assert_int_equal(second.ev.data.u64, DATA);
	assert_int_equal(pollux_epoll_wait(first.ep, &ev, 1, 0), 0);
	pollux_close(first.ep);
	pollux_close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_takes_the_ring_of_another),
	};

	return RUN(tests);
}
