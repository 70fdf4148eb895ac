/* SPDX-License-Identifier: MIT */
/*
 * An item that stays ready is found by every collection, however many collect at the
 * same time; and a small buffer starves nobody.
 */
#include "torture.h"

#define ITEMS 7

struct shared {
	struct pollux_ep *ep, *up;
	struct obj *o[ITEMS];
	unsigned long waits, fires;
};

static void collector(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;
	struct epoll_event ev[ITEMS];

	for (unsigned long n = 0; !stopping(); n = atomic_add(&s->waits, 1)) {
		struct pollux_ep *ep = s->up && rnd(&r) & 1 ? s->up : s->ep;

		if (pollux_ep_wait(ep, ev, 1 + rnd(&r) % ITEMS, 0) < 1)
			broken("wait %lu found nothing although items are ready", n);
		if (!pollux_file_poll(pollux_ep_file(ep), UINT32_MAX))
			broken("poll %lu found nothing although items are ready", n);
	}
}

static void waker(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;

	for (; !stopping(); atomic_add(&s->fires, 1))
		pollux_file_wake(&s->o[rnd(&r) % ITEMS]->file, EPOLLIN);
}

static void run(bool nested, int ready)
{
	struct shared s = {.ep = ep_new(), .up = nested ? ep_new() : NULL};
	struct thread t[4];

	torture_begin();
	for (int i = 0; i < ITEMS; i++) {
		s.o[i] = obj_new(i < ready ? EPOLLIN : 0);
		ep_add(s.ep, &s.o[i]->file, 0, EPOLLIN, i);
	}
	if (nested)
		ep_add(s.up, pollux_ep_file(s.ep), 0, EPOLLIN, 'e');
	for (int i = 0; i < 4; i++)
		thread_start(&t[i], i ? collector : waker, &s);
	torture_sleep_until(atomic_get(&s.waits) > 100 && atomic_get(&s.fires) > 100);
	torture_end(t, 4);
	print_message("%lu collections, %lu wakes\n", s.waits, s.fires);
	assert_true(s.waits > 100 && s.fires > 100);
	ep_put(s.ep);
	if (nested)
		ep_put(s.up);
	for (int i = 0; i < ITEMS; i++)
		obj_put(s.o[i]);
}

static void always_found(void **state)
{
	(void)state;
	run(false, 1);
}

static void always_found_through_another_epoll(void **state)
{
	(void)state;
	run(true, 2);
}

static void nobody_starves(void **state)
{
	(void)state;
	torture_begin();
	for (int max = 1; max <= ITEMS; max++) {
		struct pollux_ep *ep = ep_new();
		struct obj *o[ITEMS];
		struct epoll_event ev[ITEMS];

		for (int i = 0; i < ITEMS; i++) {
			o[i] = obj_new(EPOLLIN);
			ep_add(ep, &o[i]->file, 0, EPOLLIN, i);
		}
		for (int turn = 0; turn < 20; turn++) {
			unsigned int seen = 0;

			for (int k = 0; k < (ITEMS + max - 1) / max; k++) {
				int n = pollux_ep_wait(ep, ev, max, 0);

				assert_int_equal(n, max);
				for (int i = 0; i < n; i++)
					seen |= 1u << ev[i].data.u32;
			}
			assert_int_equal(seen, (1u << ITEMS) - 1);
		}
		ep_put(ep);
		for (int i = 0; i < ITEMS; i++)
			obj_put(o[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(always_found),
		TEST(always_found_through_another_epoll),
		TEST(nobody_starves),
	};

	return RUN(tests);
}
