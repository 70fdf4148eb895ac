/* SPDX-License-Identifier: MIT */
/*
 * Operations wait with one-shot events, and are cancelled while others wake and collect them. Each
 * has exactly one owner in the end: who has removed it with result 0, or who has got its event.
 */
#include "torture.h"

#define OPS 64

struct op {
	struct obj *o;
	int owners;
};

struct shared {
	struct pollux_ep *ep;
	struct op op[OPS];
	unsigned long got, cancelled, late;
};

static void own(struct op *op)
{
	if (atomic_add(&op->owners, 1) != 0)
		broken("an operation has two owners");
}

static void collects(struct thread *t)
{
	struct shared *s = t->arg;
	struct epoll_event ev[4];
	int n;

	while ((n = pollux_ep_wait(s->ep, ev, 4, POLLUX_FOREVER)) >= 0) {
		for (int i = 0; i < n; i++) {
			own(ev[i].data.ptr);
			atomic_add(&s->got, 1);
		}
	}
	check(n == -ESHUTDOWN);
}

static void wakes(struct thread *t)
{
	struct shared *s = t->arg;

	for (int i = 0; i < OPS; i++)
		obj_fire(s->op[i].o, EPOLLIN, EPOLLIN);
}

static void cancels(struct thread *t)
{
	struct shared *s = t->arg;

	for (int i = 0; i < OPS; i++) {
		struct op *op = &s->op[i];
		int r = pollux_ep_del(s->ep, &op->o->file, 0);

		check(r == 0 || r == 1);
		if (r == 0) {
			own(op);
			atomic_add(&s->cancelled, 1);
		} else {
			atomic_add(&s->late, 1);
		}
	}
}

static void an_operation_has_one_owner(void **state)
{
	unsigned long got = 0, cancelled = 0;
	int64_t start = now_ns();

	(void)state;
	torture_begin();
	while (torture_until(start, got && cancelled)) {
		struct shared s = {.ep = ep_new()};
		struct thread t[4];

		for (int i = 0; i < OPS; i++) {
			struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT,
						 .data.ptr = &s.op[i]};

			s.op[i].o = obj_new(0);
			assert_int_equal(
				pollux_ep_ctl(s.ep, EPOLL_CTL_ADD, &s.op[i].o->file, 0, &ev), 0);
		}
		thread_start(&t[0], collects, &s);
		thread_start(&t[1], collects, &s);
		thread_start(&t[2], wakes, &s);
		thread_start(&t[3], cancels, &s);
		thread_join(&t[2]);
		thread_join(&t[3]);
		pollux_ep_shutdown(s.ep);
		thread_join(&t[0]);
		thread_join(&t[1]);
		check(s.got == s.late && s.got + s.cancelled == OPS);
		for (int i = 0; i < OPS; i++) {
			check(s.op[i].owners == 1);
			obj_put(s.op[i].o);
		}
		ep_put(s.ep);
		got += s.got;
		cancelled += s.cancelled;
	}
	printf("%lu events, %lu operations cancelled before\n", got, cancelled);
	assert_false(torture_failed);
	assert_true(got && cancelled);
}

/* --- armed again beside it ------------------------------------------------------------- */

struct again {
	struct meet m;
	struct pollux_ep *ep;
	struct obj *o;
	int armed, quit;
};

static void arms(struct thread *t)
{
	struct again *a = t->arg;
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT};

	while (meet(&a->m) && !atomic_get(&a->quit)) {
		a->armed = pollux_ep_ctl(a->ep, EPOLL_CTL_MOD, &a->o->file, 0, &ev);
		if (!meet(&a->m))
			return;
	}
}

/* Nothing is ready when it is armed, so the event that was reported is not of that. */
static void what_is_armed_again_is_the_removers(void **state)
{
	struct again a = {.m.n = 2, .ep = ep_new(), .o = obj_new(0)};
	unsigned long armed = 0, not_there = 0;
	int64_t start = now_ns();
	struct thread t;

	(void)state;
	torture_begin();
	thread_start(&t, arms, &a);
	while (torture_until(start, armed && not_there)) {
		struct epoll_event ev;
		int r;

		ep_add(a.ep, &a.o->file, 0, EPOLLIN | EPOLLONESHOT, 0);
		obj_fire(a.o, EPOLLIN, EPOLLIN);
		check(pollux_ep_wait(a.ep, &ev, 1, 0) == 1);
		obj_set(a.o, 0);
		if (!meet(&a.m))
			break;
		r = pollux_ep_del(a.ep, &a.o->file, 0);
		if (!meet(&a.m))
			break;
		check(r == 1 ? a.armed == -ENOENT : r == 0 && a.armed == 0);
		armed += r == 0;
		not_there += r == 1;
	}
	atomic_set(&a.quit, 1);
	(void)meet(&a.m);
	torture_end(&t, 1);
	printf("%lu armed and removed, %lu removed before\n", armed, not_there);
	assert_true(armed && not_there);
	ep_put(a.ep);
	obj_put(a.o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_operation_has_one_owner),
		TEST(what_is_armed_again_is_the_removers),
	};

	return RUN(tests);
}
