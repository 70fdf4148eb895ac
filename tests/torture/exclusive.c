/* SPDX-License-Identifier: MIT */
/*
 * A wake that goes to one of several exclusive watches is not spent on one that is being removed:
 * who sleeps in the epoll that it was in has come there later, for something else.
 */
#include "torture.h"

#include <sys/eventfd.h>

#include <pollux/posix.h>

#define DATA 7

struct world {
	struct gate gate;
	const char *point;
	int fd, from, to, wrote, result;
	struct epoll_event ev;
};

static void writes(struct thread *t)
{
	struct world *w = t->arg;
	uint64_t one = 1;

	gate_arm(&w->gate, w->point);
	w->wrote = pollux_write(w->fd, &one, sizeof(one)) == sizeof(one);
}

static void waits(struct thread *t)
{
	struct world *w = t->arg;

	w->result = pollux_epoll_wait(w->to, &w->ev, 1, -1);
}

static void removes_and_waits(struct thread *t)
{
	struct world *w = t->arg;
	struct epoll_event ev;

	check(pollux_epoll_ctl(w->from, EPOLL_CTL_DEL, w->fd, NULL) == 0);
	(void)pollux_epoll_wait(w->from, &ev, 1, -1);
}

static void removed_at(const char *point)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.u64 = DATA};
	int other = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct world w = {.point = point};
	struct thread t[3];
	uint64_t one = 1;

	torture_begin();
	points_delay(false);
	w.fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	w.from = pollux_epoll_create1(EPOLL_CLOEXEC);
	w.to = pollux_epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(pollux_epoll_ctl(w.from, EPOLL_CTL_ADD, w.fd, &ev), 0);
	assert_int_equal(pollux_epoll_ctl(w.to, EPOLL_CTL_ADD, w.fd, &ev), 0);
	ev.events = EPOLLIN;
	assert_int_equal(pollux_epoll_ctl(w.from, EPOLL_CTL_ADD, other, &ev), 0);
	thread_start(&t[0], waits, &w);
	assert_true(thread_asleep(&t[0]));
	thread_start(&t[1], writes, &w);
	assert_true(gate_reached(&w.gate));
	thread_start(&t[2], removes_and_waits, &w);
	assert_true(thread_asleep(&t[2]));
	gate_open(&w.gate);
	assert_true(await(thread_done(&t[1]) && thread_done(&t[0])));
	assert_int_equal(pollux_write(other, &one, sizeof(one)), sizeof(one));
	torture_end(t, 3);
	assert_true(w.wrote);
	assert_int_equal(w.result, 1);
	assert_int_equal(w.ev.data.u64, DATA);
	pollux_close(w.from);
	pollux_close(w.to);
	pollux_close(w.fd);
	pollux_close(other);
}

static void removed_before_it_is_queued(void **state)
{
	(void)state;
	removed_at("queue_before_mark");
}

static void removed_when_it_has_been_queued(void **state)
{
	(void)state;
	removed_at("wake_before_tell");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(removed_before_it_is_queued),
		TEST(removed_when_it_has_been_queued),
	};

	return RUN(tests);
}
