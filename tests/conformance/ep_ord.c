/* SPDX-License-Identifier: MIT */
/* Order and fairness: the order in which ready items are delivered. */
#include "waiting.h"

#define N 5

static const uint32_t modes[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
#define MODES (sizeof(modes) / sizeof(modes[0]))

static void EP_ORD_01_items_come_in_the_order_they_became_ready(enum set set)
{
	static const char *const orders[] = {"abcde", "edcba", "dbeac", "bdace"};

	NEEDS_ONE_ORDER(set == SET_MIXED);
	for (size_t m = 0; m < MODES; m++) {
		for (size_t o = 0; o < 4; o++) {
			struct subject s[N];
			int ep = ep_new();

			set_new(set, s, N, ep, EPOLLIN | modes[m]);
			set_fire(s, orders[o]);
			assert_order(ep, 8, orders[o]);
			set_close(s, N);
			close(ep);
		}
	}
}
EACH_SET(EP_ORD_01_items_come_in_the_order_they_became_ready)

static void EP_ORD_01_items_ready_at_ADD_come_in_the_order_of_ADD(enum set set)
{
	struct subject s[N];
	int ep = ep_new();

	NEEDS_ONE_ORDER(set == SET_MIXED);
	for (int i = 0; i < N; i++) {
		s[i] = subject_new(set_kind(set, i));
		subject_fill(&s[i]);
	}
	for (int i = N - 1; i >= 0; i--)
		assert_ok(
			ep_ctl(ep, EPOLL_CTL_ADD, s[i].fd, EPOLLIN | EPOLLET, (uint64_t)('a' + i)));
	assert_order(ep, 8, "edcba");
	set_close(s, N);
	close(ep);
}
EACH_SET(EP_ORD_01_items_ready_at_ADD_come_in_the_order_of_ADD)

static void EP_ORD_01_every_way_of_waiting_keeps_the_order(enum set set)
{
	struct subject s[N];
	int ep = ep_new();

	NEEDS_ONE_ORDER(set == SET_MIXED);
	set_new(set, s, N, ep, EPOLLIN | EPOLLET);
	for (enum entry how = BY_WAIT; how < ENTRIES; how++) {
		struct epoll_event ev[8];
		char got[9] = "";
		int n;

		set_fire(s, "cebda");
		n = wait_by(how, ep, ev, 8, 0, NULL);
		assert_int_equal(n, N);
		for (int i = 0; i < n; i++)
			got[i] = (char)ev[i].data.u64;
		assert_string_equal(got, "cebda");
	}
	set_close(s, N);
	close(ep);
}
EACH_SET(EP_ORD_01_every_way_of_waiting_keeps_the_order)

static void EP_ORD_02_a_further_edge_does_not_move_an_item(enum set set)
{
	for (size_t m = 0; m < MODES; m++) {
		struct subject s[N];
		int ep = ep_new();

		NEEDS_ONE_ORDER(set == SET_MIXED);
		set_new(set, s, N, ep, EPOLLIN | modes[m]);
		set_fire(s, "bcabbadc");
		assert_order(ep, 8, "bcad");
		set_close(s, N);
		close(ep);
	}
}
EACH_SET(EP_ORD_02_a_further_edge_does_not_move_an_item)

static void EP_ORD_02_drained_and_fired_again_keeps_its_place(enum set set)
{
	struct subject s[N];
	int ep = ep_new();

	NEEDS_ONE_ORDER(set == SET_MIXED);
	set_new(set, s, N, ep, EPOLLIN | EPOLLET);
	set_fire(s, "abc");
	subject_drain(&s[0]);
	subject_fill(&s[0]);
	assert_order(ep, 8, "abc");
	set_close(s, N);
	close(ep);
}
EACH_SET(EP_ORD_02_drained_and_fired_again_keeps_its_place)

static void EP_ORD_03_small_maxevents_takes_the_first_and_keeps_the_rest(enum set set)
{
	struct subject s[N];
	int ep = ep_new();

	NEEDS_ONE_ORDER(set == SET_MIXED);
	set_new(set, s, N, ep, EPOLLIN);
	set_fire(s, "cadbe");
	assert_order(ep, 2, "ca");
	assert_order(ep, 8, "dbeca");
	set_close(s, N);
	close(ep);

	ep = ep_new();
	set_new(set, s, N, ep, EPOLLIN | EPOLLONESHOT);
	set_fire(s, "cadbe");
	assert_order(ep, 2, "ca");
	assert_order(ep, 2, "db");
	assert_order(ep, 2, "e");
	assert_order(ep, 2, "");
	set_close(s, N);
	close(ep);
}
EACH_SET(EP_ORD_03_small_maxevents_takes_the_first_and_keeps_the_rest)

static void EP_ORD_04_level_items_walk_round_robin(enum set set)
{
	struct subject s[N];
	int ep = ep_new();
	int share[N] = {0};

	NEEDS_ONE_ORDER(set == SET_MIXED);
	set_new(set, s, N, ep, EPOLLIN);
	set_fire(s, "abcde");
	assert_order(ep, 2, "ab");
	assert_order(ep, 2, "cd");
	assert_order(ep, 2, "ea");
	assert_order(ep, 2, "bc");
	assert_order(ep, 2, "de");
	assert_order(ep, 1, "a");
	assert_order(ep, 3, "bcd");
	assert_order(ep, 4, "eabc");
	for (int i = 0; i < 100; i++) {
		struct epoll_event ev[3];

		assert_int_equal(epoll_wait(ep, ev, 3, 0), 3);
		for (int k = 0; k < 3; k++)
			share[ev[k].data.u64 - 'a']++;
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(share[i], 60);
	set_close(s, N);
	close(ep);
}
EACH_SET(EP_ORD_04_level_items_walk_round_robin)

/* However many are always ready, and whoever serves them: each gets its turn. */
static void EP_ORD_04_nothing_starves(enum set set)
{
	for (int max = 1; max <= 3; max++) {
		struct subject s[N];
		int ep = ep_new();
		int last[N] = {0};

		set_new(set, s, N, ep, EPOLLIN);
		set_fire(s, "abcde");
		for (int turn = 1; turn <= 60; turn++) {
			struct epoll_event ev[3];
			int n = epoll_wait(ep, ev, max, 0);

			assert_uint_in_range(n, 1, max);
			for (int i = 0; i < n; i++)
				last[ev[i].data.u64 - 'a'] = turn;
			for (int i = 0; i < N; i++)
				assert_uint_in_range(turn - last[i], 0, 2 * N);
		}
		set_close(s, N);
		close(ep);
	}
}
EACH_SET(EP_ORD_04_nothing_starves)

static void EP_ORD_05_untouched_come_before_delivered(enum set set)
{
	struct subject s[N];
	int ep = ep_new();

	NEEDS_ONE_ORDER(set == SET_MIXED);
	set_new(set, s, N, ep, EPOLLIN);
	set_fire(s, "ebadc");
	assert_order(ep, 3, "eba");
	assert_order(ep, 1, "d");
	assert_order(ep, 8, "cebad");
	assert_order(ep, 8, "cebad");
	set_close(s, N);
	close(ep);
}
EACH_SET(EP_ORD_05_untouched_come_before_delivered)

struct collect {
	struct test_thread t;
	int ep;
	int max;
	struct epoll_event *ev;
	int n;
};

static void *collect_main(void *arg)
{
	struct collect *c = arg;

	c->n = epoll_wait(c->ep, c->ev, c->max, 0);
	return NULL;
}

/*
 * The collector is held up while it stores its second event: what becomes ready
 * then is set aside, and what was already listed keeps its place.
 */
static void EP_ORD_05_arrivals_during_a_collection_come_between(enum set set)
{
	struct subject s[7];
	struct collect c = {.max = 2};
	struct trap trap = {0};

	NEEDS_ONE_ORDER(set == SET_MIXED);
	if (!trap_new(&trap, 1))
		SKIP("no userfaultfd for this user");
	c.ep = ep_new();
	c.ev = trap.ev;
	set_new(set, s, 7, c.ep, EPOLLIN);
	set_fire(s, "abcd");
	thread_start(&c.t, collect_main, &c);
	trap_wait(&trap);
	set_fire(s, "gfcge");
	trap_open(&trap);
	assert_true(thread_join(&c.t, SOON_MS));
	assert_int_equal(c.n, 2);
	assert_int_equal(trap.ev[0].data.u64, 'a');
	assert_int_equal(trap.ev[1].data.u64, 'b');
	assert_order(c.ep, 8, "cdgfeab");
	set_close(s, 7);
	close(c.ep);
	trap_free(&trap);
}
EACH_SET(EP_ORD_05_arrivals_during_a_collection_come_between)

static void EP_ORD_06_items_not_ready_use_up_no_room(enum set set)
{
	for (size_t m = 0; m < MODES; m++) {
		struct subject s[N];
		int ep = ep_new();

		set_new(set, s, N, ep, EPOLLIN | modes[m]);
		set_fire(s, "abcde");
		subject_drain(&s[0]);
		subject_drain(&s[1]);
		subject_drain(&s[3]);
		assert_order(ep, 1, "c");
		assert_order(ep, 1, "e");
		subject_drain(&s[2]);
		subject_drain(&s[4]);
		assert_order(ep, 8, "");
		set_close(s, N);
		close(ep);
	}
}
EACH_SET(EP_ORD_06_items_not_ready_use_up_no_room)

static void EP_ORD_06_a_dropped_item_enters_anew_at_the_tail(enum set set)
{
	struct subject s[N];
	int ep = ep_new();

	set_new(set, s, N, ep, EPOLLIN);
	set_fire(s, "ab");
	subject_drain(&s[0]);
	assert_order(ep, 8, "b");
	set_fire(s, "ca");
	assert_order(ep, 8, "bca");
	set_close(s, N);
	close(ep);
}
EACH_SET(EP_ORD_06_a_dropped_item_enters_anew_at_the_tail)

static void EP_ORD_07_newcomers_queue_behind_requeued_level_items(enum set set)
{
	struct subject s[N];
	int ep = ep_new();

	NEEDS_ONE_ORDER(set == SET_MIXED);
	set_new(set, s, N, ep, EPOLLIN);
	set_fire(s, "ab");
	assert_order(ep, 8, "ab");
	set_fire(s, "dc");
	assert_order(ep, 8, "abdc");
	assert_order(ep, 1, "a");
	set_fire(s, "e");
	assert_order(ep, 8, "bdcae");
	set_close(s, N);
	close(ep);
}
EACH_SET(EP_ORD_07_newcomers_queue_behind_requeued_level_items)

static void EP_ORD_08_edge_items_left_over_need_no_new_edge(enum set set)
{
	struct subject s[N];
	int ep = ep_new();

	set_new(set, s, N, ep, EPOLLIN | EPOLLET);
	set_fire(s, "bdace");
	if (set == SET_MIXED && under_pollux()) {
		/* The order over both sides is not kept (NEEDS_ONE_ORDER); the rest is. */
		struct epoll_event ev[5];
		uint32_t seen = 0;

		assert_int_equal(ep_poll(ep, ev, 2), 2);
		assert_int_equal(ep_poll(ep, ev + 2, 1), 1);
		assert_int_equal(ep_poll(ep, ev + 3, 2), 2);
		for (int i = 0; i < N; i++)
			seen |= 1u << (ev[i].data.u64 - 'a');
		assert_int_equal(seen, (1u << N) - 1);
	} else {
		assert_order(ep, 2, "bd");
		assert_order(ep, 1, "a");
		assert_order(ep, 2, "ce");
	}
	assert_order(ep, 8, "");
	set_close(s, N);
	close(ep);
}
EACH_SET(EP_ORD_08_edge_items_left_over_need_no_new_edge)

/* One set with items of all modes: only the level ones come back. */
static void EP_ORD_08_level_and_edge_items_share_one_order(enum set set)
{
	struct subject s[6];
	int ep = ep_new();

	NEEDS_ONE_ORDER(set == SET_MIXED);
	set_new(set, s, 6, ep, EPOLLIN);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[0].fd, EPOLLIN | EPOLLET, 'a'));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[3].fd, EPOLLIN | EPOLLET, 'd'));
	set_fire(s, "fedcba");
	assert_order(ep, 4, "fedc");
	assert_order(ep, 4, "bafe");
	assert_order(ep, 4, "cbfe");
	set_fire(s, "da");
	assert_order(ep, 8, "cbfeda");
	set_close(s, 6);
	close(ep);
}
EACH_SET(EP_ORD_08_level_and_edge_items_share_one_order)

static void EP_ORD_08_level_edge_and_oneshot_items_share_one_order(enum set set)
{
	struct subject s[6];
	int ep = ep_new();

	/* A file of a one-shot item is the kernel's. */
	NEEDS_ONE_ORDER(set == SET_MIXED || set == SET_EVENTFD);
	set_new(set, s, 6, ep, EPOLLIN);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[0].fd, EPOLLIN | EPOLLET, 'a'));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[3].fd, EPOLLIN | EPOLLET, 'd'));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[4].fd, EPOLLIN | EPOLLONESHOT, 'e'));
	set_fire(s, "fedcba");
	assert_order(ep, 4, "fedc");
	assert_order(ep, 4, "bafc");
	assert_order(ep, 4, "bfc");
	set_fire(s, "da");
	assert_order(ep, 8, "bfcda");
	set_close(s, 6);
	close(ep);
}
EACH_SET(EP_ORD_08_level_edge_and_oneshot_items_share_one_order)

int main(void)
{
	const struct CMUnitTest ep_ord[] = {
		TEST_EACH_SET(EP_ORD_01_items_come_in_the_order_they_became_ready),
		TEST_EACH_SET(EP_ORD_01_items_ready_at_ADD_come_in_the_order_of_ADD),
		TEST_EACH_SET(EP_ORD_01_every_way_of_waiting_keeps_the_order),
		TEST_EACH_SET(EP_ORD_02_a_further_edge_does_not_move_an_item),
		TEST_EACH_SET(EP_ORD_02_drained_and_fired_again_keeps_its_place),
		TEST_EACH_SET(EP_ORD_03_small_maxevents_takes_the_first_and_keeps_the_rest),
		TEST_EACH_SET(EP_ORD_04_level_items_walk_round_robin),
		TEST_EACH_SET(EP_ORD_04_nothing_starves),
		TEST_EACH_SET(EP_ORD_05_untouched_come_before_delivered),
		TEST_EACH_SET(EP_ORD_05_arrivals_during_a_collection_come_between),
		TEST_EACH_SET(EP_ORD_06_items_not_ready_use_up_no_room),
		TEST_EACH_SET(EP_ORD_06_a_dropped_item_enters_anew_at_the_tail),
		TEST_EACH_SET(EP_ORD_07_newcomers_queue_behind_requeued_level_items),
		TEST_EACH_SET(EP_ORD_08_edge_items_left_over_need_no_new_edge),
		TEST_EACH_SET(EP_ORD_08_level_and_edge_items_share_one_order),
		TEST_EACH_SET(EP_ORD_08_level_edge_and_oneshot_items_share_one_order),
	};

	return run_group(ep_ord);
}
