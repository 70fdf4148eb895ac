/* SPDX-License-Identifier: MIT */
/* Order, fairness, and events that cannot be stored. */
#include "epoll/engine.h"

#include "native.h"

#define N 5

static void set_new(struct pollux_ep *ep, struct obj **o, uint32_t mask, uint32_t events)
{
	for (int i = 0; i < N; i++) {
		o[i] = obj_new(mask);
		ep_add(ep, &o[i]->file, 0, events, 'a' + i);
	}
}

static void set_put(struct obj **o)
{
	for (int i = 0; i < N; i++)
		obj_put(o[i]);
}

static void fire(struct obj **o, const char *order)
{
	for (; *order; order++)
		obj_fire(o[*order - 'a'], EPOLLIN, EPOLLIN);
}

static void EP_ORD_01_first_in_first_out(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[N];

	(void)state;
	set_new(ep, o, 0, EPOLLIN | EPOLLET);
	fire(o, "dbeca");
	assert_order(ep, 8, "dbeca");
	ep_put(ep);
	set_put(o);
}

static void EP_ORD_02_a_further_edge_does_not_move_an_item(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[N];

	(void)state;
	set_new(ep, o, 0, EPOLLIN | EPOLLET);
	fire(o, "cabcccab");
	assert_order(ep, 8, "cab");
	ep_put(ep);
	set_put(o);
}

static void EP_ORD_03_the_rest_stays_in_front(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[N];

	(void)state;
	set_new(ep, o, 0, EPOLLIN | EPOLLET);
	fire(o, "ecabd");
	assert_order(ep, 2, "ec");
	fire(o, "e");
	assert_order(ep, 2, "ab");
	assert_order(ep, 8, "de");
	ep_put(ep);
	set_put(o);
}

static void EP_ORD_04_levels_go_round(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[N];

	(void)state;
	set_new(ep, o, EPOLLIN, EPOLLIN);
	for (int i = 0; i < 3; i++) {
		assert_order(ep, 2, "ab");
		assert_order(ep, 2, "cd");
		assert_order(ep, 2, "ea");
		assert_order(ep, 2, "bc");
		assert_order(ep, 2, "de");
	}
	ep_put(ep);
	set_put(o);
}

static void EP_ORD_06_what_is_not_ready_takes_no_place(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[N];

	(void)state;
	for (int lt = 0; lt < 2; lt++) {
		set_new(ep, o, 0, EPOLLIN | (lt ? 0 : EPOLLET));
		fire(o, "abcde");
		obj_set(o[0], 0);
		obj_set(o[2], EPOLLOUT);
		assert_order(ep, 2, "bd");
		obj_set(o[1], 0);
		obj_set(o[3], 0);
		assert_order(ep, 2, "e");
		/* Dropped: that it is ready again is not known before the next edge. */
		obj_set(o[4], 0);
		obj_set(o[0], EPOLLIN);
		assert_none(ep);
		set_put(o);
	}
	ep_put(ep);
}

static void EP_ORD_07_new_ones_queue_behind_delivered_levels(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[N];

	(void)state;
	set_new(ep, o, 0, EPOLLIN);
	fire(o, "ab");
	assert_order(ep, 8, "ab");
	fire(o, "dc");
	assert_order(ep, 8, "abdc");
	ep_put(ep);
	set_put(o);
}

static void EP_ORD_08_edges_that_did_not_fit_need_no_new_edge(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[N];

	(void)state;
	set_new(ep, o, 0, EPOLLIN | EPOLLET);
	fire(o, "abcde");
	for (int i = 0; i < N; i++) {
		char want[2] = {(char)('a' + i), 0};

		assert_order(ep, 1, want);
	}
	assert_none(ep);
	ep_put(ep);
	set_put(o);
}

/* --- storing ------------------------------------------------------------------------- */

static void EP_ARG_01_room_for_at_least_one(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);
	struct epoll_event ev;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	assert_int_equal(pollux_ep_wait(ep, &ev, 0, 0), -EINVAL);
	assert_int_equal(pollux_ep_wait(ep, &ev, -1, 0), -EINVAL);
	assert_int_equal(pollux_ep_wait(ep, &ev, INT32_MIN, POLLUX_FOREVER), -EINVAL);
	assert_one(ep, EPOLLIN, 'a');
	ep_put(ep);
	obj_put(o);
}

static void EP_ARG_05_entries_beyond_the_count_stay(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[N];
	struct epoll_event ev[N];

	(void)state;
	set_new(ep, o, EPOLLIN, EPOLLIN);
	memset(ev, 0xa5, sizeof(ev));
	assert_int_equal(pollux_ep_wait(ep, ev, 3, 0), 3);
	for (size_t i = 3 * sizeof(ev[0]); i < sizeof(ev); i++)
		assert_int_equal(((unsigned char *)ev)[i], 0xa5);
	ep_put(ep);
	set_put(o);
}

/* Stores so many events and fails at the next. */
struct sink {
	int room;
	int n;
	char got[N + 1];
};

static int sink(void *arg, uint32_t events, uint64_t data)
{
	struct sink *s = arg;

	assert_int_equal(events, EPOLLIN);
	if (s->n == s->room)
		return -EFAULT;
	s->got[s->n++] = (char)data;
	s->got[s->n] = 0;
	return 0;
}

static void fault(struct pollux_ep *ep, int max, int room, int want, const char *order)
{
	struct sink s = {.room = room};

	assert_int_equal(plx_ep_harvest(ep, sink, &s, max), want);
	assert_string_equal(s.got, order);
}

static void EP_ARG_03_nothing_stored_nothing_lost(void **state)
{
	static const uint32_t mode[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};

	(void)state;
	for (int m = 0; m < 4; m++) {
		struct pollux_ep *ep = ep_new();
		struct obj *o[N];

		set_new(ep, o, EPOLLIN, EPOLLIN | mode[m]);
		for (int i = 0; i < 3; i++)
			fault(ep, N, 0, -EFAULT, "");
		assert_order(ep, 8, "abcde");
		assert_order(ep, 8, mode[m] ? "" : "abcde");
		ep_put(ep);
		set_put(o);
	}
}

static void EP_ARG_04_what_could_not_be_stored_comes_first(void **state)
{
	static const uint32_t mode[] = {0, EPOLLET, EPOLLONESHOT};

	(void)state;
	for (int m = 0; m < 3; m++) {
		struct pollux_ep *ep = ep_new();
		struct obj *o[N];

		set_new(ep, o, EPOLLIN, EPOLLIN | mode[m]);
		fault(ep, N, 2, 2, "ab");
		fault(ep, N, 0, -EFAULT, "");
		assert_order(ep, 8, mode[m] ? "cde" : "cdeab");
		ep_put(ep);
		set_put(o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(EP_ORD_01_first_in_first_out),
		TEST(EP_ORD_02_a_further_edge_does_not_move_an_item),
		TEST(EP_ORD_03_the_rest_stays_in_front),
		TEST(EP_ORD_04_levels_go_round),
		TEST(EP_ORD_06_what_is_not_ready_takes_no_place),
		TEST(EP_ORD_07_new_ones_queue_behind_delivered_levels),
		TEST(EP_ORD_08_edges_that_did_not_fit_need_no_new_edge),
		TEST(EP_ARG_01_room_for_at_least_one),
		TEST(EP_ARG_03_nothing_stored_nothing_lost),
		TEST(EP_ARG_04_what_could_not_be_stored_comes_first),
		TEST(EP_ARG_05_entries_beyond_the_count_stay),
	};

	return RUN(tests);
}
