/* SPDX-License-Identifier: MIT */
/* ADD, MOD, DEL: order of the checks, and what each of them changes. */
#include "native.h"

static void EP_CTL_05_an_epoll_does_not_watch_itself(void **state)
{
	struct pollux_ep *ep = ep_new();
	static const int ops[] = {EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, 77};

	(void)state;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		assert_int_equal(ep_ctl(ep, ops[i], pollux_ep_file(ep), 0, EPOLLIN, 0), -EINVAL);
	ep_put(ep);
}

static void EP_CTL_06_exclusive_takes_few_bits(void **state)
{
	struct pollux_ep *ep = ep_new(), *other = ep_new();
	struct obj *o = obj_new(0);
	uint32_t good =
		EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;

	(void)state;
	for (int bit = 0; bit < 32; bit++) {
		uint32_t events = EPOLLEXCLUSIVE | 1u << bit;
		int want = events & ~good ? -EINVAL : 0;

		assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, &o->file, bit, events, 0), want);
	}
	assert_int_equal(
		ep_ctl(ep, EPOLL_CTL_ADD, pollux_ep_file(other), 0, EPOLLIN | EPOLLEXCLUSIVE, 0),
		-EINVAL);
	ep_put(ep);
	ep_put(other);
	obj_put(o);
}

static void EP_CTL_07_exclusive_is_judged_before_the_lookup(void **state)
{
	struct pollux_ep *ep = ep_new(), *up = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_MOD, &o->file, 0, EPOLLIN | EPOLLEXCLUSIVE, 0),
			 -EINVAL);
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, &o->file, 0, EPOLLPRI | EPOLLEXCLUSIVE, 0),
			 -EINVAL);
	ep_add(up, pollux_ep_file(ep), 0, EPOLLIN, 'e');
	assert_int_equal(
		ep_ctl(ep, EPOLL_CTL_ADD, pollux_ep_file(up), 0, EPOLLIN | EPOLLEXCLUSIVE, 0),
		-EINVAL);
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, pollux_ep_file(up), 0, EPOLLIN, 0), -ELOOP);
	ep_put(ep);
	ep_put(up);
	obj_put(o);
}

static void EP_CTL_09_lookup_errors(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	static const int unknown[] = {0, -1, 4, 1000};

	(void)state;
	assert_int_equal(ep_del(ep, &o->file, 0), -ENOENT);
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_MOD, &o->file, 0, EPOLLIN, 0), -ENOENT);
	for (int i = 0; i < 4; i++)
		assert_int_equal(ep_ctl(ep, unknown[i], &o->file, 0, EPOLLIN, 0), -EINVAL);
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, &o->file, 0, EPOLLIN, 0), -EEXIST);
	for (int i = 0; i < 4; i++)
		assert_int_equal(ep_ctl(ep, unknown[i], &o->file, 0, EPOLLIN, 0), -EINVAL);
	assert_int_equal(ep_del(ep, &o->file, 1), -ENOENT);
	assert_int_equal(ep_del(ep, &o->file, 0), 0);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLEXCLUSIVE, 'a');
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_MOD, &o->file, 0, EPOLLIN, 0), -EINVAL);
	ep_put(ep);
	obj_put(o);
}

static void EP_CTL_10_watch_limit_comes_last_and_leaves_nothing(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	pollux_ep_set_max_watches(2);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	ep_add(ep, &o->file, 1, EPOLLIN | EPOLLET, 'b');
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, &o->file, 2, EPOLLIN, 'c'), -ENOSPC);
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, &o->file, 1, EPOLLIN, 'c'), -EEXIST);
	assert_int_equal(pollux_ep_watches(), 2);
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_MOD, &o->file, 2, EPOLLIN, 'c'), -ENOENT);
	assert_order(ep, 8, "ab");
	assert_int_equal(ep_del(ep, &o->file, 0), 0);
	ep_add(ep, &o->file, 2, EPOLLIN | EPOLLET, 'c');
	assert_order(ep, 8, "c");
	pollux_ep_set_max_watches(-1);
	ep_put(ep);
	obj_put(o);
}

static void EP_CTL_13_ctl_works_while_others_sleep(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w = waiter_new(ep, 1);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	ep_mod(ep, &o->file, 0, EPOLLOUT, 'b');
	assert_int_equal(ep_del(ep, &o->file, 0), 0);
	waiter_stays(w);
	waiters_release(ep, &w, 1);
	ep_put(ep);
	obj_put(o);
}

/* --- ADD --- */

static void EP_ADD_01_error_and_hangup_are_always_wanted(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLERR | EPOLLHUP | EPOLLIN | EPOLLPRI);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLPRI, 'a');
	assert_one(ep, EPOLLERR | EPOLLHUP | EPOLLPRI, 'a');
	ep_put(ep);
	obj_put(o);
}

static void EP_ADD_02_no_interest_reports_error_and_hangup(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN | EPOLLOUT);

	(void)state;
	ep_add(ep, &o->file, 0, 0, 'a');
	assert_none(ep);
	obj_fire(o, EPOLLIN | EPOLLOUT | EPOLLHUP, EPOLLHUP);
	assert_one(ep, EPOLLHUP, 'a');
	obj_fire(o, EPOLLIN | EPOLLERR, EPOLLERR);
	assert_one(ep, EPOLLERR, 'a');
	ep_put(ep);
	obj_put(o);
}

static void EP_ADD_03_ready_at_add_is_queued_and_wakes(void **state)
{
	static const uint32_t mode[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct pollux_ep *ep = ep_new(), *up = ep_new();
		struct obj *o = obj_new(EPOLLIN);
		struct waiter *w = waiter_new(ep, 4), *poller;

		ep_add(up, pollux_ep_file(ep), 0, EPOLLIN | EPOLLET, 'e');
		poller = waiter_new(up, 4);
		ep_add(ep, &o->file, 0, EPOLLIN | mode[i], 'a');
		waiter_gets(w, 'a');
		/* The epoll above heard of it too; what it finds depends on who was first. */
		ep_mod(ep, &o->file, 0, EPOLLIN | mode[i], 'a');
		waiter_gets(poller, 'e');
		ep_put(up);
		ep_put(ep);
		obj_put(o);
	}
}

static void EP_ADD_05_add_counts_as_an_edge(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	assert_one(ep, EPOLLIN, 'a');
	assert_none(ep);
	ep_put(ep);
	obj_put(o);
}

static void EP_ADD_09_one_file_under_several_keys(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	ep_add(ep, &o->file, -5, EPOLLOUT | EPOLLET, 'b');
	ep_add(ep, &o->file, INT32_MAX, EPOLLIN | EPOLLOUT, 'c');
	obj_fire(o, EPOLLOUT, EPOLLOUT);
	assert_order(ep, 8, "cb");
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_order(ep, 8, "ca");
	obj_fire(o, EPOLLIN | EPOLLOUT, 0);
	assert_order(ep, 8, "cba");
	ep_put(ep);
	obj_put(o);
}

static void EP_ADD_10_an_item_keeps_no_reference(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);
	int released = 0, freed = 0;

	(void)state;
	o->released = &released;
	o->freed = &freed;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	ep_add(ep, &o->file, 1, EPOLLIN, 'b');
	obj_put(o);
	assert_int_equal(released, 1);
	assert_none(ep);
	assert_int_equal(pollux_ep_watches(), 0);
	pollux_quiesce();
	assert_int_equal(released, 1);
	assert_int_equal(freed, 1);
	ep_put(ep);
}

/* --- MOD --- */

static void EP_MOD_01_a_queued_event_gets_the_new_mask_and_data(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN | EPOLLOUT | EPOLLRDHUP);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	ep_mod(ep, &o->file, 0, EPOLLOUT | EPOLLRDHUP | EPOLLET, 'b');
	assert_one(ep, EPOLLOUT | EPOLLRDHUP, 'b');
	assert_none(ep);
	ep_put(ep);
	obj_put(o);
}

static void EP_MOD_02_mod_reports_again(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);
	struct waiter *w;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	assert_one(ep, EPOLLIN, 'a');
	assert_none(ep);
	w = waiter_new(ep, 4);
	ep_mod(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	waiter_gets(w, 'a');
	assert_none(ep);
	ep_put(ep);
	obj_put(o);
}

static void EP_MOD_03_a_queued_item_keeps_its_place(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[3];

	(void)state;
	for (int i = 0; i < 3; i++) {
		o[i] = obj_new(EPOLLIN);
		ep_add(ep, &o[i]->file, 0, EPOLLIN | EPOLLET, 'a' + i);
	}
	ep_mod(ep, &o[0]->file, 0, EPOLLIN | EPOLLET, 'A');
	assert_order(ep, 8, "Abc");
	for (int i = 0; i < 3; i++)
		obj_put(o[i]);
	ep_put(ep);
}

static void EP_MOD_04_mod_away_drops_the_event(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	ep_mod(ep, &o->file, 0, EPOLLOUT | EPOLLET, 'a');
	assert_none(ep);
	/* Dropped for good: the old mask does not find it queued still. */
	obj_set(o, 0);
	ep_mod(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	obj_set(o, EPOLLIN);
	assert_none(ep);
	ep_put(ep);
	obj_put(o);
}

static void EP_MOD_05_mod_rearms_oneshot(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLONESHOT, 'a');
	assert_one(ep, EPOLLIN, 'a');
	obj_fire(o, EPOLLIN, EPOLLIN);
	obj_fire(o, EPOLLIN | EPOLLHUP, 0);
	assert_none(ep);
	ep_mod(ep, &o->file, 0, EPOLLIN | EPOLLONESHOT, 'b');
	assert_one(ep, EPOLLIN | EPOLLHUP, 'b');
	assert_none(ep);
	obj_set(o, 0);
	ep_mod(ep, &o->file, 0, EPOLLIN | EPOLLONESHOT, 'c');
	assert_none(ep);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_one(ep, EPOLLIN, 'c');
	ep_put(ep);
	obj_put(o);
}

static void EP_MOD_06_the_place_among_the_watchers_is_that_of_add(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	ep_add(ep, &o->file, 1, EPOLLIN | EPOLLET, 'b');
	ep_mod(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_order(ep, 8, "ba");
	ep_put(ep);
	obj_put(o);
}

/* --- DEL --- */

static void EP_DEL_01_a_deleted_item_is_never_reported(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);
	int polls;

	(void)state;
	for (int primary = 0; primary < 2; primary++) {
		ep_add(ep, &o->file, 0, EPOLLIN, 'a');
		ep_add(ep, &o->file, 1, EPOLLIN | EPOLLET, 'b');
		assert_int_equal(ep_del(ep, &o->file, primary), 0);
		polls = o->polls;
		assert_order(ep, 8, primary ? "a" : "b");
		assert_true(o->polls - polls <= 2);
		assert_int_equal(ep_del(ep, &o->file, !primary), 0);
		polls = o->polls;
		obj_fire(o, EPOLLIN, EPOLLIN);
		assert_none(ep);
		assert_int_equal(o->polls, polls);
	}
	ep_put(ep);
	obj_put(o);
}

static void EP_DEL_03_del_and_add_go_to_the_tail(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[3];

	(void)state;
	for (int i = 0; i < 3; i++) {
		o[i] = obj_new(EPOLLIN);
		ep_add(ep, &o[i]->file, 0, EPOLLIN | EPOLLET, 'a' + i);
	}
	assert_int_equal(ep_del(ep, &o[0]->file, 0), 0);
	ep_add(ep, &o[0]->file, 0, EPOLLIN | EPOLLET, 'a');
	assert_order(ep, 8, "bca");
	for (int i = 0; i < 3; i++)
		obj_put(o[i]);
	ep_put(ep);
}

static void EP_DEL_04_del_wakes_nobody(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	w = waiter_new(ep, 4);
	obj_set(o, EPOLLIN);
	assert_int_equal(ep_del(ep, &o->file, 0), 0);
	waiter_stays(w);
	waiters_release(ep, &w, 1);
	ep_put(ep);
	obj_put(o);
}

/* The second registration of a file takes the fast way when the first has gone. */
static void EP_DEL_01_the_next_registration_stands_alone(void **state)
{
	struct pollux_ep *one = ep_new(), *two = ep_new();
	struct pollux_efd *e = efd_new(0, 0);

	(void)state;
	for (int i = 0; i < 3; i++) {
		ep_add(one, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'a');
		ep_add(two, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'b');
		efd_add(e, 1);
		assert_int_equal(ep_del(one, pollux_efd_file(e), 0), 0);
		assert_none(one);
		assert_one(two, EPOLLIN, 'b');
		ep_add(one, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'c');
		assert_one(one, EPOLLIN, 'c');
		for (int k = 0; k < 3; k++) {
			efd_add(e, 1);
			assert_one(one, EPOLLIN, 'c');
			assert_one(two, EPOLLIN, 'b');
		}
		assert_int_equal(ep_del(two, pollux_efd_file(e), 0), 0);
		efd_add(e, 1);
		assert_one(one, EPOLLIN, 'c');
		assert_none(two);
		assert_int_equal(ep_del(one, pollux_efd_file(e), 0), 0);
		assert_int_equal(efd_take(e), 5);
	}
	ep_put(one);
	ep_put(two);
	efd_put(e);
}

static void EP_WKU_02_wakeup_changes_nothing(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN | EPOLLWAKEUP);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLWAKEUP, 'a');
	assert_one(ep, EPOLLIN, 'a');
	ep_put(ep);
	obj_put(o);
}

/* --- the limit, with threads --- */

#define HOARDERS 3
#define LIMIT 150

struct hoarder {
	pthread_t thread;
	pthread_barrier_t *step;
	struct pollux_ep *ep;
	struct obj *o;
	long added;
};

/* Has added and removed, so it has counted, and stays there while others add. */
static void *hoard(void *arg)
{
	struct hoarder *h = arg;

	ep_add(h->ep, &h->o->file, 0, EPOLLIN, 0);
	assert_int_equal(ep_del(h->ep, &h->o->file, 0), 0);
	pthread_barrier_wait(h->step);
	pthread_barrier_wait(h->step);
	/* The limit is used up: nothing is left for this thread either. */
	assert_int_equal(ep_ctl(h->ep, EPOLL_CTL_ADD, &h->o->file, 0, EPOLLIN, 0), -ENOSPC);
	pthread_barrier_wait(h->step);
	return NULL;
}

static void EP_ADD_07_the_limit_is_exact_whoever_has_counted(void **state)
{
	struct hoarder h[HOARDERS];
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	pthread_barrier_t step;

	(void)state;
	pollux_ep_set_max_watches(LIMIT);
	pthread_barrier_init(&step, NULL, HOARDERS + 1);
	for (int i = 0; i < HOARDERS; i++) {
		h[i] = (struct hoarder){.step = &step, .ep = ep_new(), .o = obj_new(0)};
		assert_int_equal(pthread_create(&h[i].thread, NULL, hoard, &h[i]), 0);
	}
	pthread_barrier_wait(&step);
	for (int key = 0; key < LIMIT; key++)
		ep_add(ep, &o->file, key, EPOLLIN, 0);
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, &o->file, LIMIT, EPOLLIN, 0), -ENOSPC);
	assert_int_equal(pollux_ep_watches(), LIMIT);
	pthread_barrier_wait(&step);
	pthread_barrier_wait(&step);
	assert_int_equal(ep_del(ep, &o->file, 0), 0);
	ep_add(ep, &o->file, 0, EPOLLIN, 0);
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, &o->file, LIMIT, EPOLLIN, 0), -ENOSPC);
	/* A limit below what there is refuses, and takes nothing away. */
	pollux_ep_set_max_watches(10);
	assert_int_equal(pollux_ep_watches(), LIMIT);
	assert_int_equal(ep_del(ep, &o->file, 0), 0);
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, &o->file, 0, EPOLLIN, 0), -ENOSPC);
	pollux_ep_set_max_watches(-1);
	for (int i = 0; i < HOARDERS; i++) {
		pthread_join(h[i].thread, NULL);
		ep_put(h[i].ep);
		obj_put(h[i].o);
	}
	pthread_barrier_destroy(&step);
	ep_put(ep);
	obj_put(o);
}

#define CROWD 4
#define CROWD_LIMIT 100
#define CROWD_ROUNDS 300
static long crowd_now, crowd_most;

/* Up to the limit and down again, counted: before ADD is called, after DEL has returned. */
static void *crowd(void *arg)
{
	struct hoarder *h = arg;
	int64_t end = now_ns() + SOON_MS * 1000000ll;

	pthread_barrier_wait(h->step);
	for (int round = 0; round < CROWD_ROUNDS && now_ns() < end;) {
		int n = 0;

		while (n < CROWD_LIMIT &&
		       ep_ctl(h->ep, EPOLL_CTL_ADD, &h->o->file, n, EPOLLIN, 0) == 0) {
			long now = __atomic_add_fetch(&crowd_now, 1, __ATOMIC_SEQ_CST);
			long most = __atomic_load_n(&crowd_most, __ATOMIC_SEQ_CST);

			while (now > most &&
			       !__atomic_compare_exchange_n(&crowd_most, &most, now, false,
							    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
				;
			n++;
		}
		h->added += n;
		/* Another one may have it all, and be preempted. */
		if (!n)
			sched_yield();
		round += n > 0;
		while (n > 0) {
			__atomic_sub_fetch(&crowd_now, 1, __ATOMIC_SEQ_CST);
			assert_int_equal(ep_del(h->ep, &h->o->file, --n), 0);
		}
	}
	return NULL;
}

static void EP_ADD_07_threads_that_reach_the_limit_together_do_not_exceed_it(void **state)
{
	struct hoarder h[CROWD];
	pthread_barrier_t step;

	(void)state;
	crowd_now = crowd_most = 0;
	pthread_barrier_init(&step, NULL, CROWD);
	for (int i = 0; i < CROWD; i++)
		h[i] = (struct hoarder){.step = &step, .ep = ep_new(), .o = obj_new(0)};
	pollux_ep_set_max_watches(CROWD_LIMIT);
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(pthread_create(&h[i].thread, NULL, crowd, &h[i]), 0);
	for (int i = 0; i < CROWD; i++)
		pthread_join(h[i].thread, NULL);
	assert_true(crowd_most <= CROWD_LIMIT);
	assert_int_equal(crowd_now, 0);
	assert_int_equal(pollux_ep_watches(), 0);
	pollux_ep_set_max_watches(-1);
	for (int i = 0; i < CROWD; i++) {
		assert_true(h[i].added > 0);
		ep_put(h[i].ep);
		obj_put(h[i].o);
	}
	pthread_barrier_destroy(&step);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(EP_CTL_05_an_epoll_does_not_watch_itself),
		TEST(EP_CTL_06_exclusive_takes_few_bits),
		TEST(EP_CTL_07_exclusive_is_judged_before_the_lookup),
		TEST(EP_CTL_09_lookup_errors),
		TEST(EP_CTL_10_watch_limit_comes_last_and_leaves_nothing),
		TEST(EP_CTL_13_ctl_works_while_others_sleep),
		TEST(EP_ADD_07_the_limit_is_exact_whoever_has_counted),
		TEST(EP_ADD_07_threads_that_reach_the_limit_together_do_not_exceed_it),
		TEST(EP_ADD_01_error_and_hangup_are_always_wanted),
		TEST(EP_ADD_02_no_interest_reports_error_and_hangup),
		TEST(EP_ADD_03_ready_at_add_is_queued_and_wakes),
		TEST(EP_ADD_05_add_counts_as_an_edge),
		TEST(EP_ADD_09_one_file_under_several_keys),
		TEST(EP_ADD_10_an_item_keeps_no_reference),
		TEST(EP_MOD_01_a_queued_event_gets_the_new_mask_and_data),
		TEST(EP_MOD_02_mod_reports_again),
		TEST(EP_MOD_03_a_queued_item_keeps_its_place),
		TEST(EP_MOD_04_mod_away_drops_the_event),
		TEST(EP_MOD_05_mod_rearms_oneshot),
		TEST(EP_MOD_06_the_place_among_the_watchers_is_that_of_add),
		TEST(EP_DEL_01_a_deleted_item_is_never_reported),
		TEST(EP_DEL_01_the_next_registration_stands_alone),
		TEST(EP_DEL_03_del_and_add_go_to_the_tail),
		TEST(EP_DEL_04_del_wakes_nobody),
		TEST(EP_WKU_02_wakeup_changes_nothing),
	};

	return RUN(tests);
}
