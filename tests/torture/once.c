/* SPDX-License-Identifier: MIT */
/*
 * An edge is one event and not two, an item comes at most once in a collection, and
 * a one-shot item is reported exactly once for each time it is armed.
 */
#include "torture.h"

#define ITEMS 6

struct shared {
	struct pollux_ep *ep;
	struct pollux_efd *e[ITEMS];
	unsigned long writes[ITEMS];
	unsigned long events[ITEMS];
	unsigned long armed[ITEMS];
	int is_armed[ITEMS];
};

static void writer(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;

	while (!stopping()) {
		int i = rnd(&r) % ITEMS;

		/* Counted first: an event may come before the write returns. */
		atomic_add(&s->writes[i], 1);
		if (pollux_efd_write(s->e[i], 1, 0) != 0)
			broken("a write of 1 fits");
	}
}

static void collector(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;
	struct epoll_event ev[ITEMS];

	while (!stopping()) {
		int n = pollux_ep_wait(s->ep, ev, 1 + rnd(&r) % ITEMS, 1000000);
		unsigned int seen = 0;

		for (int k = 0; k < n; k++) {
			unsigned int i = ev[k].data.u32;
			unsigned long got = atomic_add(&s->events[i], 1) + 1;

			if (seen & 1u << i)
				broken("item %u twice in one collection", i);
			seen |= 1u << i;
			if (got > atomic_get(&s->writes[i]))
				broken("item %u: %lu events of fewer writes", i, got);
		}
	}
}

static void edges(struct shared *s, int writers, int collectors)
{
	struct thread t[MAX_THREADS];
	unsigned long helps = points_passed("help_before_slot");
	unsigned long writes = 0, events = 0;
	struct epoll_event ev[ITEMS];

	torture_begin();
	for (int i = 0; i < writers; i++)
		thread_start(&t[i], writer, s);
	for (int i = writers; i < writers + collectors; i++)
		thread_start(&t[i], collector, s);
	torture_sleep_until(points_passed("help_before_slot") > helps || writers == 1);
	torture_end(t, writers + collectors);
	/* The last edge of each is still there or has been delivered: nothing hides. */
	for (int n; (n = pollux_ep_wait(s->ep, ev, ITEMS, 0)) > 0;)
		for (int k = 0; k < n; k++)
			s->events[ev[k].data.u32]++;
	for (int i = 0; i < ITEMS; i++) {
		writes += s->writes[i];
		events += s->events[i];
		assert_true(s->events[i] <= s->writes[i]);
		assert_true(!s->writes[i] || s->events[i]);
	}
	helps = points_passed("help_before_slot") - helps;
	print_message("%lu writes, %lu events, %lu helped\n", writes, events, helps);
	assert_true(events > 0);
	if (writers > 1)
		assert_true(helps > 0);
}

static void shared_new(struct shared *s, uint32_t mode, bool secondary)
{
	memset(s, 0, sizeof(*s));
	s->ep = ep_new();
	for (int i = 0; i < ITEMS; i++) {
		s->e[i] = efd_new(0, 0);
		if (secondary) {
			struct pollux_ep *first = ep_new();

			ep_add(first, pollux_efd_file(s->e[i]), 0, EPOLLIN, 0);
			ep_add(s->ep, pollux_efd_file(s->e[i]), 0, EPOLLIN | mode, i);
			ep_put(first);
		} else {
			ep_add(s->ep, pollux_efd_file(s->e[i]), 0, EPOLLIN | mode, i);
		}
	}
}

static void shared_put(struct shared *s)
{
	ep_put(s->ep);
	for (int i = 0; i < ITEMS; i++)
		efd_put(s->e[i]);
}

static void one_collector_primary(void **state)
{
	struct shared s;

	(void)state;
	shared_new(&s, EPOLLET, false);
	edges(&s, 3, 1);
	shared_put(&s);
}

static void several_collectors_secondary(void **state)
{
	struct shared s;

	(void)state;
	shared_new(&s, EPOLLET, true);
	edges(&s, 3, 2);
	shared_put(&s);
}

/* --- one-shot -------------------------------------------------------------------------- */

static void oneshot_collector(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;
	struct epoll_event ev[ITEMS];

	while (!stopping()) {
		int n = pollux_ep_wait(s->ep, ev, 1 + rnd(&r) % ITEMS, 1000000);

		for (int k = 0; k < n; k++) {
			int i = ev[k].data.u32;

			if (!__atomic_exchange_n(&s->is_armed[i], 0, __ATOMIC_SEQ_CST))
				broken("item %d reported while it was not armed", i);
			atomic_add(&s->events[i], 1);
			atomic_set(&s->is_armed[i], 1);
			atomic_add(&s->armed[i], 1);
			if (ep_ctl(s->ep, EPOLL_CTL_MOD, pollux_efd_file(s->e[i]), 0,
				   EPOLLIN | EPOLLONESHOT | (rnd(&r) & 1 ? EPOLLET : 0), i) != 0)
				broken("MOD of a registered item");
		}
	}
}

static bool all_written(const struct shared *s)
{
	for (int i = 0; i < ITEMS; i++)
		if (!atomic_get(&s->writes[i]))
			return false;
	return true;
}

static void oneshot(void **state)
{
	struct shared s;
	struct thread t[5];
	struct epoll_event ev[ITEMS];
	unsigned long events = 0;
	int n;

	(void)state;
	torture_begin();
	shared_new(&s, EPOLLONESHOT, false);
	for (int i = 0; i < ITEMS; i++)
		s.is_armed[i] = 1;
	for (int i = 0; i < 5; i++)
		thread_start(&t[i], i < 2 ? writer : oneshot_collector, &s);
	torture_sleep_until(atomic_get(&s.events[0]) > 100 && all_written(&s));
	torture_end(t, 5);
	/* All are armed now and nothing has been read: all are there, once. */
	n = pollux_ep_wait(s.ep, ev, ITEMS, 0);
	assert_int_equal(n, ITEMS);
	assert_none(s.ep);
	for (int i = 0; i < ITEMS; i++) {
		events += s.events[i];
		assert_int_equal(s.events[i], s.armed[i]);
	}
	print_message("%lu events\n", events);
	assert_true(events > 100);
	shared_put(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_collector_primary),
		TEST(several_collectors_secondary),
		TEST(oneshot),
	};

	return RUN(tests);
}
