/* SPDX-License-Identifier: MIT */
/*
 * A wake that goes to one of several exclusive watches is not spent on one that is being removed:
 * who sleeps in the epoll that it was in has come there later, for something else.
 */
#include "torture.h"

#define DATA 7

struct world {
	struct gate gate;
	const char *point;
	struct pollux_efd *e;
	struct pollux_ep *from, *to;
	int wrote, result;
	struct epoll_event ev;
};

static struct pollux_efd *efd_of_none(void)
{
	struct pollux_efd *e;

	assert_int_equal(pollux_efd_new(&e, 0, 0), 0);
	return e;
}

static void writes(struct thread *t)
{
	struct world *w = t->arg;

	gate_arm(&w->gate, w->point);
	w->wrote = pollux_efd_write(w->e, 1, 0) == 0;
}

static void waits(struct thread *t)
{
	struct world *w = t->arg;

	w->result = pollux_ep_wait(w->to, &w->ev, 1, -1);
}

static void removes_and_waits(struct thread *t)
{
	struct world *w = t->arg;
	struct epoll_event ev;

	check(ep_ctl(w->from, EPOLL_CTL_DEL, pollux_efd_file(w->e), 0, 0, 0) == 0);
	(void)pollux_ep_wait(w->from, &ev, 1, -1);
}

static void exclusive_begin(struct world *w)
{
	torture_begin();
	points_delay(false);
	w->e = efd_of_none();
	w->from = ep_new();
	w->to = ep_new();
	for (int i = 0; i < 2; i++)
		assert_int_equal(ep_ctl(i ? w->to : w->from, EPOLL_CTL_ADD, pollux_efd_file(w->e),
					0, EPOLLIN | EPOLLEXCLUSIVE, DATA),
				 0);
}

static void exclusive_end(struct world *w, struct pollux_efd *other)
{
	ep_put(w->from);
	ep_put(w->to);
	pollux_file_put(pollux_efd_file(w->e));
	pollux_file_put(pollux_efd_file(other));
}

static void removed_at(const char *point)
{
	struct pollux_efd *other = efd_of_none();
	struct world w = {.point = point};
	struct thread t[3];

	exclusive_begin(&w);
	assert_int_equal(ep_ctl(w.from, EPOLL_CTL_ADD, pollux_efd_file(other), 1, EPOLLIN, DATA),
			 0);
	thread_start(&t[0], waits, &w);
	assert_true(thread_asleep(&t[0]));
	thread_start(&t[1], writes, &w);
	assert_true(gate_reached(&w.gate));
	thread_start(&t[2], removes_and_waits, &w);
	assert_true(thread_asleep(&t[2]));
	gate_open(&w.gate);
	assert_true(await(thread_done(&t[1]) && thread_done(&t[0])));
	assert_int_equal(pollux_efd_write(other, 1, 0), 0);
	torture_end(t, 3);
	assert_true(w.wrote);
	assert_int_equal(w.result, 1);
	assert_int_equal(w.ev.data.u64, DATA);
	exclusive_end(&w, other);
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
