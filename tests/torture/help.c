/* SPDX-License-Identifier: MIT */
/*
 * A write that has returned is visible, wherever another producer of the same item
 * may stand (EP-RDY-18), and nobody makes an event out of nothing on the way.
 */
#include "torture.h"

static const char *const producer_points[] = {"push_before_link", "push_before_pushed"};

struct one {
	struct pollux_ep *ep;
	struct pollux_efd *e;
	struct obj *o;
};

static struct one one_new(bool counter, uint32_t mode)
{
	struct one x = {.ep = ep_new()};

	if (counter)
		x.e = efd_new(0, 0);
	else
		x.o = obj_new(0);
	ep_add(x.ep, counter ? pollux_efd_file(x.e) : &x.o->file, 0, EPOLLIN | mode, 'a');
	return x;
}

static void one_fire(struct one *x)
{
	if (x->e)
		efd_add(x->e, 1);
	else
		obj_fire(x->o, EPOLLIN, EPOLLIN);
}

static void one_put(struct one *x)
{
	ep_put(x->ep);
	if (x->e)
		efd_put(x->e);
	else
		obj_put(x->o);
}

static void one_producer_stopped(void **state)
{
	static const uint32_t mode[] = {0, EPOLLET, EPOLLONESHOT};

	(void)state;
	torture_begin();
	points_delay(false);
	for (int p = 0; p < 2; p++) {
		for (int m = 0; m < 3; m++) {
			for (int counter = 0; counter < 2; counter++) {
				struct one x = one_new(counter, mode[m]);
				unsigned long helps = points_passed("help_before_slot");
				struct stopped s;

				stopped_start(&s, producer_points[p], x.e, x.o);
				assert_int_equal(pollux_file_poll(pollux_ep_file(x.ep), UINT32_MAX),
						 p ? EPOLLIN | EPOLLRDNORM : 0);
				one_fire(&x);
				assert_int_equal(points_passed("help_before_slot"), helps + 1);
				assert_true(pollux_file_poll(pollux_ep_file(x.ep), UINT32_MAX));
				assert_one(x.ep, EPOLLIN, 'a');
				if (m == 0)
					assert_one(x.ep, EPOLLIN, 'a');
				else
					assert_none(x.ep);
				stopped_go(&s);
				if (m == 0)
					assert_one(x.ep, EPOLLIN, 'a');
				else if (m == 1 && p == 0)
					/* The second of two edges. */
					assert_one(x.ep, EPOLLIN, 'a');
				assert_order(x.ep, 8, m == 0 ? "a" : "");
				/* All is as it was: one edge, one event. */
				ep_mod(x.ep, x.e ? pollux_efd_file(x.e) : &x.o->file, 0,
				       EPOLLIN | EPOLLET, 'b');
				assert_one(x.ep, EPOLLIN, 'b');
				for (int i = 0; i < 3; i++) {
					one_fire(&x);
					assert_one(x.ep, EPOLLIN, 'b');
					assert_none(x.ep);
				}
				one_put(&x);
			}
		}
	}
}

static void a_sleeper_is_woken_by_the_second_producer(void **state)
{
	struct one x = one_new(true, EPOLLET);
	struct waiter *w = waiter_new(x.ep, 1);
	struct stopped s;

	(void)state;
	torture_begin();
	points_delay(false);
	stopped_start(&s, "push_before_link", x.e, NULL);
	waiter_stays(w);
	one_fire(&x);
	waiter_gets(w, 'a');
	stopped_go(&s);
	one_put(&x);
}

/* One slot, several items: none is forgotten, and none is made up (third item). */
static void several_producers_stopped(void **state)
{
	(void)state;
	torture_begin();
	points_delay(false);
	for (int room = 1; room <= 8; room += 7) {
		struct pollux_ep *ep = ep_new();
		struct pollux_efd *e[4];
		struct stopped s[4];
		int got[4] = {0};

		for (int i = 0; i < 4; i++) {
			e[i] = efd_new(0, 0);
			ep_add(ep, pollux_efd_file(e[i]), 0, EPOLLIN | EPOLLET, i);
			stopped_start(&s[i], "push_before_link", e[i], NULL);
		}
		assert_none(ep);
		efd_add(e[0], 1);
		efd_add(e[2], 1);
		efd_add(e[3], 1);
		for (int turn = 0; turn < 6; turn++) {
			struct epoll_event ev[8];
			int n = pollux_ep_wait(ep, ev, room, 0);

			for (int i = 0; i < n; i++)
				got[ev[i].data.u64]++;
		}
		/* The write to item 1 has not returned and nobody else has written to it. */
		assert_int_equal(got[0], 1);
		assert_int_equal(got[1], 0);
		assert_int_equal(got[2], 1);
		assert_int_equal(got[3], 1);
		for (int i = 0; i < 4; i++)
			stopped_go(&s[i]);
		for (int turn = 0; turn < 6; turn++) {
			struct epoll_event ev[8];
			int n = pollux_ep_wait(ep, ev, room, 0);

			for (int i = 0; i < n; i++)
				got[ev[i].data.u64]++;
		}
		assert_int_equal(got[1], 1);
		for (int i = 0; i < 4; i++) {
			assert_true(got[i] <= 2);
			efd_put(e[i]);
		}
		ep_put(ep);
	}
}

/* The file is watched by each thread's own epoll, so every wake marks the items of all. */
struct own {
	struct pollux_efd *e;
	struct pollux_ep *ep;
	unsigned long turns;
};

static void own_main(struct thread *t)
{
	struct own *o = t->arg;
	struct epoll_event ev;

	for (; !stopping(); o->turns++) {
		if (pollux_efd_write(o->e, 1, 0) != 0)
			broken("a write of 1 fits");
		if (pollux_ep_wait(o->ep, &ev, 1, 0) != 1)
			broken("a returned write was not visible in turn %lu", o->turns);
	}
}

static void random_producers(void **state)
{
	struct pollux_efd *e = efd_new(0, 0);
	unsigned long helps = points_passed("help_before_slot");
	struct own o[4];
	struct thread t[4];
	unsigned long turns = 0;

	(void)state;
	torture_begin();
	for (int i = 0; i < 4; i++) {
		o[i] = (struct own){.e = e, .ep = ep_new()};
		ep_add(o[i].ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, i);
	}
	for (int i = 0; i < 4; i++)
		thread_start(&t[i], own_main, &o[i]);
	torture_sleep_until(points_passed("help_before_slot") > helps);
	torture_end(t, 4);
	for (int i = 0; i < 4; i++) {
		turns += o[i].turns;
		ep_put(o[i].ep);
	}
	helps = points_passed("help_before_slot") - helps;
	print_message("%lu writes, %lu helped\n", turns, helps);
	assert_true(helps > 0);
	efd_put(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_producer_stopped),
		TEST(a_sleeper_is_woken_by_the_second_producer),
		TEST(several_producers_stopped),
		TEST(random_producers),
	};

	return RUN(tests);
}
