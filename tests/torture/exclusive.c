/* SPDX-License-Identifier: MIT */
/*
 * A wake that goes to one of several exclusive watches is not spent on one that is being removed:
 * who sleeps in the epoll that it was in has come there later, for something else. Nor on a sleeper
 * who leaves with something else, or with nothing.
 */
#include "torture.h"

#include <signal.h>
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

static void sleeps(struct thread *t)
{
	struct world *w = t->arg;

	w->result = pollux_epoll_wait(w->from, &w->ev, 1, -1);
	if (w->result < 0)
		w->result = -errno;
}

static void nothing(int number)
{
	(void)number;
}

/* The waker has counted a sleeper, who leaves before it is rung for. */
static void sleeper_leaves(bool signal)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, .data.u64 = DATA};
	struct sigaction sa = {.sa_handler = nothing};
	struct world w = {.point = "bell_before_begun"}, leaves = {0};
	struct thread t[2], sleeper;
	int p[2];

	torture_begin();
	points_delay(false);
	sigaction(SIGUSR1, &sa, NULL);
	assert_int_equal(pipe(p), 0);
	w.fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	w.from = leaves.from = pollux_epoll_create1(EPOLL_CLOEXEC);
	w.to = pollux_epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(pollux_epoll_ctl(w.from, EPOLL_CTL_ADD, w.fd, &ev), 0);
	assert_int_equal(pollux_epoll_ctl(w.to, EPOLL_CTL_ADD, w.fd, &ev), 0);
	ev = (struct epoll_event){.events = EPOLLIN, .data.u64 = DATA + 1};
	assert_int_equal(pollux_epoll_ctl(w.from, EPOLL_CTL_ADD, p[0], &ev), 0);
	thread_start(&t[0], waits, &w);
	assert_true(thread_asleep(&t[0]));
	thread_start(&sleeper, sleeps, &leaves);
	assert_true(thread_asleep(&sleeper));
	thread_start(&t[1], writes, &w);
	assert_true(gate_reached(&w.gate));
	if (signal)
		pthread_kill(sleeper.id, SIGUSR1);
	else
		assert_int_equal(write(p[1], "", 1), 1);
	thread_join(&sleeper);
	assert_int_equal(leaves.result, signal ? -EINTR : 1);
	assert_true(signal || leaves.ev.data.u64 == DATA + 1);
	gate_open(&w.gate);
	assert_true(await(thread_done(&t[1]) && thread_done(&t[0])));
	torture_end(t, 2);
	assert_true(w.wrote);
	assert_int_equal(w.result, 1);
	assert_int_equal(w.ev.data.u64, DATA);
	/* It is on both lists. */
	close(p[0]);
	close(p[1]);
	assert_int_equal(pollux_epoll_wait(w.from, &w.ev, 1, 0), 1);
	assert_int_equal(w.ev.data.u64, DATA);
	assert_int_equal(pollux_epoll_wait(w.to, &w.ev, 1, 0), 0);
	pollux_close(w.from);
	pollux_close(w.to);
	pollux_close(w.fd);
}

static void sleeper_leaves_with_something_else(void **state)
{
	(void)state;
	sleeper_leaves(false);
}

static void sleeper_leaves_by_a_signal(void **state)
{
	(void)state;
	sleeper_leaves(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(removed_before_it_is_queued),
		TEST(removed_when_it_has_been_queued),
		TEST(sleeper_leaves_with_something_else),
		TEST(sleeper_leaves_by_a_signal),
	};

	return RUN(tests);
}
