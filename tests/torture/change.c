/* SPDX-License-Identifier: MIT */
/*
 * A change that races with ADD or MOD is seen by one of the two: by the wake, which
 * finds the new item or the new interest, or by the poll of the call.
 */
#include "torture.h"

enum what { ADD, MOD, REARM, ADD_SECOND, WHATS };

struct shared {
	struct meet m;
	struct pollux_ep *ep, *other;
	struct pollux_efd *e;
	struct obj *o;
	enum what what;
	unsigned long queued_by_ctl, rounds;
	int quit;
};

static struct pollux_file *shared_file(struct shared *s)
{
	return s->e ? pollux_efd_file(s->e) : &s->o->file;
}

static void waker(struct thread *t)
{
	struct shared *s = t->arg;

	for (;;) {
		if (!meet(&s->m) || atomic_get(&s->quit))
			return;
		if (s->e)
			(void)pollux_efd_write(s->e, 1, 0);
		else
			obj_fire(s->o, EPOLLIN, EPOLLIN);
		if (!meet(&s->m))
			return;
	}
}

static void run(bool counter, enum what what)
{
	struct shared s = {.m.n = 2, .ep = ep_new(), .other = ep_new(), .what = what};
	int64_t start = now_ns();
	struct thread t;

	torture_begin();
	if (counter)
		s.e = efd_new(0, 0);
	else
		s.o = obj_new(0);
	if (what == ADD_SECOND)
		ep_add(s.other, shared_file(&s), 0, EPOLLIN, 'o');
	if (what == MOD || what == REARM)
		ep_add(s.ep, shared_file(&s), 0, EPOLLET, 'a');
	thread_start(&t, waker, &s);
	while (torture_part_until(start, 4, s.rounds > 50 && s.queued_by_ctl > 0)) {
		uint32_t mode = s.rounds & 1 ? EPOLLET : 0;
		struct epoll_event ev = {0};
		unsigned long pushes = points_passed("push_before_pushed");
		uint64_t v;

		if (!meet(&s.m))
			break;
		if (ep_ctl(s.ep, what == ADD || what == ADD_SECOND ? EPOLL_CTL_ADD : EPOLL_CTL_MOD,
			   shared_file(&s), 0, EPOLLIN | (what == REARM ? EPOLLONESHOT : mode),
			   'a') != 0)
			broken("ctl failed");
		s.queued_by_ctl += points_passed("push_before_pushed") != pushes;
		if (!meet(&s.m))
			break;
		/* Both have returned. */
		if (pollux_ep_wait(s.ep, &ev, 1, 0) != 1 || ev.events != EPOLLIN)
			broken("round %lu: the change was lost", s.rounds);
		if (what == ADD || what == ADD_SECOND)
			(void)ep_del(s.ep, shared_file(&s), 0);
		else if (what == MOD)
			(void)ep_ctl(s.ep, EPOLL_CTL_MOD, shared_file(&s), 0, EPOLLET, 'a');
		if (s.e)
			(void)pollux_efd_read(s.e, &v, 0);
		else
			obj_set(s.o, 0);
		if (pollux_ep_wait(s.ep, &ev, 1, 0) != 0)
			broken("round %lu: an event without reason", s.rounds);
		s.rounds++;
	}
	atomic_set(&s.quit, 1);
	(void)meet(&s.m);
	torture_end(&t, 1);
	print_message("%s %d: %lu rounds, in %lu something was pushed during the call\n",
		      counter ? "counter" : "object", what, s.rounds, s.queued_by_ctl);
	assert_true(s.rounds > 50);
	assert_true(s.queued_by_ctl > 0);
	ep_put(s.ep);
	ep_put(s.other);
	pollux_file_put(shared_file(&s));
}

static void counters(void **state)
{
	(void)state;
	for (int what = 0; what < WHATS; what++)
		run(true, what);
}

static void objects(void **state)
{
	(void)state;
	for (int what = 0; what < WHATS; what++)
		run(false, what);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(counters),
		TEST(objects),
	};

	return RUN(tests);
}
