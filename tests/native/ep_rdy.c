/* SPDX-License-Identifier: MIT */
/* Readiness: which wakes queue an item, and what is reported of it. */
#include "epoll/engine.h"

#include "native.h"

static void EP_RDY_02_the_key_is_compared_with_the_interest(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	static const uint32_t bits[] = {EPOLLIN,     EPOLLPRI,	  EPOLLOUT,
					EPOLLRDNORM, EPOLLRDBAND, EPOLLWRNORM,
					EPOLLWRBAND, EPOLLMSG,	  EPOLLRDHUP};

	(void)state;
	ep_add(ep, &o->file, 0, 0, 'a');
	for (int i = 0; i < 9; i++) {
		for (int k = 0; k < 9; k++) {
			obj_set(o, 0);
			ep_mod(ep, &o->file, 0, bits[i] | EPOLLET, 'a');
			obj_fire(o, bits[i], bits[k]);
			assert_order(ep, 8, i == k ? "a" : "");
			pollux_file_wake(&o->file, bits[k] | EPOLLMSG | EPOLLPRI);
			assert_order(ep, 8,
				     i == k || bits[i] == EPOLLMSG || bits[i] == EPOLLPRI ? "a"
											  : "");
			pollux_file_wake(&o->file, bits[k] | EPOLLERR);
			assert_order(ep, 8, "a");
			pollux_file_wake(&o->file, EPOLLHUP);
			assert_order(ep, 8, "a");
		}
	}
	ep_put(ep);
	obj_put(o);
}

static void EP_RDY_02_key_0_passes_every_filter(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLOUT | EPOLLET, 'a');
	ep_add(ep, &o->file, 1, EPOLLET, 'b');
	obj_fire(o, EPOLLOUT | EPOLLHUP, 0);
	assert_order(ep, 8, "ba");
	ep_put(ep);
	obj_put(o);
}

static void EP_RDY_03_the_state_is_reported_and_not_the_key(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLET, 'a');
	obj_fire(o, EPOLLOUT | EPOLLRDBAND, EPOLLIN | EPOLLPRI);
	assert_one(ep, EPOLLOUT, 'a');
	obj_fire(o, 0, EPOLLIN);
	assert_none(ep);
	/* A bit that is true and does not stand in the key is no reason to be queued. */
	obj_fire(o, EPOLLIN, EPOLLRDBAND);
	assert_none(ep);
	ep_put(ep);
	obj_put(o);
}

static void EP_RDY_04_disabled_items_ignore_all(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);
	int polls;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLONESHOT, 'a');
	assert_one(ep, EPOLLIN, 'a');
	polls = o->polls;
	obj_fire(o, EPOLLIN | EPOLLERR | EPOLLHUP, EPOLLERR | EPOLLHUP);
	obj_fire(o, EPOLLIN | EPOLLERR | EPOLLHUP, 0);
	assert_none(ep);
	assert_int_equal(o->polls, polls);
	ep_put(ep);
	obj_put(o);
}

static void EP_RDY_05_a_queued_item_is_not_queued_again(void **state)
{
	struct pollux_ep *ep = ep_new(), *up = ep_new();
	struct obj *a = obj_new(0), *b = obj_new(0);

	(void)state;
	ep_add(up, pollux_ep_file(ep), 0, EPOLLIN | EPOLLET, 'e');
	ep_add(ep, &a->file, 0, EPOLLIN | EPOLLET, 'a');
	ep_add(ep, &b->file, 0, EPOLLIN | EPOLLET, 'b');
	obj_fire(a, EPOLLIN, EPOLLIN);
	assert_one(up, EPOLLIN, 'e');
	obj_fire(b, EPOLLIN, EPOLLIN);
	assert_one(up, EPOLLIN, 'e');
	for (int i = 0; i < 5; i++) {
		obj_fire(a, EPOLLIN, EPOLLIN);
		/* The epoll above hears of each. */
		assert_one(up, EPOLLIN, 'e');
	}
	assert_order(ep, 8, "ab");
	assert_none(ep);
	ep_put(up);
	ep_put(ep);
	obj_put(a);
	obj_put(b);
}

static void EP_RDY_05_an_edge_of_a_queued_item_wakes_one_more_sleeper(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w;

	(void)state;
	/* On the list and not ready: the next edge must find a sleeper none the less. */
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	obj_fire(o, EPOLLIN, EPOLLIN);
	obj_set(o, 0);
	w = waiter_new(ep, 1);
	obj_fire(o, 0, EPOLLIN);
	waiter_stays(w);
	obj_fire(o, EPOLLIN, EPOLLIN);
	waiter_gets(w, 'a');
	ep_put(ep);
	obj_put(o);
}

static void EP_RDY_06_each_wake_is_an_edge(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pollux_efd *e = efd_new(0, 0);

	(void)state;
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'a');
	for (int i = 0; i < 4; i++) {
		efd_add(e, 1);
		assert_one(ep, EPOLLIN, 'a');
		assert_none(ep);
		efd_add(e, 0);
		assert_one(ep, EPOLLIN, 'a');
		assert_none(ep);
	}
	ep_put(ep);
	efd_put(e);
}

static void EP_RDY_07_several_edges_are_one_event(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pollux_efd *e = efd_new(0, 0);

	(void)state;
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'a');
	for (int i = 0; i < 100; i++)
		efd_add(e, 1);
	assert_one(ep, EPOLLIN, 'a');
	assert_none(ep);
	assert_int_equal(efd_take(e), 100);
	/* The quiet time is over with the collection. */
	efd_add(e, 1);
	assert_one(ep, EPOLLIN, 'a');
	ep_put(ep);
	efd_put(e);
}

static void EP_RDY_09_a_stale_edge_is_dropped(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pollux_efd *e = efd_new(0, 0);

	(void)state;
	for (int lt = 0; lt < 2; lt++) {
		ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | (lt ? 0 : EPOLLET), 'a');
		for (int i = 0; i < 3; i++) {
			efd_add(e, 1);
			efd_add(e, 1);
			assert_int_equal(efd_take(e), 2);
			assert_none(ep);
			efd_add(e, 1);
			assert_one(ep, EPOLLIN, 'a');
			assert_int_equal(efd_take(e), 1);
			assert_none(ep);
		}
		assert_int_equal(ep_del(ep, pollux_efd_file(e), 0), 0);
	}
	ep_put(ep);
	efd_put(e);
}

static void EP_RDY_10_an_edge_reports_what_is_true_then(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 'a');
	obj_fire(o, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP, EPOLLOUT);
	assert_one(ep, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP, 'a');
	ep_put(ep);
	obj_put(o);
}

static void EP_RDY_11_taking_a_part_makes_no_edge(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pollux_efd *e = efd_new(3, POLLUX_EFD_SEMAPHORE);

	(void)state;
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'a');
	assert_one(ep, EPOLLIN, 'a');
	assert_int_equal(efd_take(e), 1);
	assert_none(ep);
	assert_int_equal(pollux_efd_count(e), 2);
	ep_put(ep);
	efd_put(e);
}

static void EP_RDY_12_error_and_hangup_need_no_interest(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	obj_fire(o, EPOLLERR, EPOLLERR);
	assert_one(ep, EPOLLERR, 'a');
	obj_fire(o, EPOLLHUP | EPOLLOUT, EPOLLHUP);
	assert_one(ep, EPOLLHUP, 'a');
	ep_put(ep);
	obj_put(o);
}

static void EP_RDY_13_but_the_key_has_to_pass(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, 0, 'a');
	obj_fire(o, EPOLLIN | EPOLLERR, EPOLLIN);
	assert_none(ep);
	pollux_file_wake(&o->file, EPOLLERR | EPOLLIN);
	assert_one(ep, EPOLLERR, 'a');
	ep_put(ep);
	obj_put(o);
}

static void EP_RDY_14_oneshot_is_reported_once(void **state)
{
	static const uint32_t mode[] = {EPOLLONESHOT, EPOLLONESHOT | EPOLLET};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct pollux_ep *ep = ep_new();
		struct obj *o = obj_new(0);

		ep_add(ep, &o->file, 0, EPOLLIN | mode[i], 'a');
		obj_fire(o, EPOLLIN, EPOLLIN);
		obj_fire(o, EPOLLIN, EPOLLIN);
		assert_one(ep, EPOLLIN, 'a');
		for (int k = 0; k < 3; k++) {
			obj_fire(o, EPOLLIN | EPOLLHUP, k ? EPOLLHUP : 0);
			assert_none(ep);
		}
		ep_put(ep);
		obj_put(o);
	}
}

static void EP_RDY_15_a_collection_without_event_does_not_disarm(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLONESHOT, 'a');
	obj_fire(o, EPOLLOUT, EPOLLIN);
	assert_none(ep);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_one(ep, EPOLLIN, 'a');
	assert_none(ep);
	ep_put(ep);
	obj_put(o);
}

static void EP_RDY_16_flag_bits_are_never_reported(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(UINT32_MAX);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET | EPOLLONESHOT | EPOLLWAKEUP, 'a');
	assert_one(ep, EPOLLIN | EPOLLERR | EPOLLHUP, 'a');
	assert_none(ep);
	ep_add(ep, &o->file, 1, EPOLLRDNORM | EPOLLRDBAND | EPOLLPRI | EPOLLET, 'b');
	assert_one(ep, EPOLLRDNORM | EPOLLRDBAND | EPOLLPRI | EPOLLERR | EPOLLHUP, 'b');
	assert_int_equal(ep_del(ep, &o->file, 0), 0);
	assert_int_equal(ep_del(ep, &o->file, 1), 0);
	ep_add(ep, &o->file, 2, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 'c');
	assert_one(ep, EPOLLIN | EPOLLERR | EPOLLHUP, 'c');
	ep_put(ep);
	obj_put(o);
}

/* A wake in the middle of a collection, from the place where events are stored. */
struct meanwhile {
	struct obj *fire[4];
	int nfire;
	int n;
	struct epoll_event ev[8];
};

static int meanwhile_sink(void *arg, uint32_t events, uint64_t data)
{
	struct meanwhile *m = arg;

	m->ev[m->n].events = events;
	m->ev[m->n++].data.u64 = data;
	for (int i = 0; i < m->nfire; i++)
		pollux_file_wake(&m->fire[i]->file, EPOLLIN);
	m->nfire = 0;
	return 0;
}

static void EP_RDY_17_wakes_during_a_collection_are_set_aside(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[4];
	struct meanwhile m = {.nfire = 4};

	(void)state;
	for (int i = 0; i < 4; i++) {
		o[i] = obj_new(EPOLLIN);
		ep_add(ep, &o[i]->file, 0, EPOLLIN | (i == 1 ? 0 : EPOLLET), 'a' + i);
	}
	assert_order(ep, 8, "abcd");
	/* b, being level-triggered, is still there. Now a is collected and the others fire. */
	assert_order(ep, 8, "b");
	pollux_file_wake(&o[0]->file, EPOLLIN);
	m.fire[0] = o[3];
	m.fire[1] = o[0];
	m.fire[2] = o[1];
	m.fire[3] = o[2];
	assert_int_equal(plx_ep_harvest(ep, meanwhile_sink, &m, 1), 1);
	assert_int_equal(m.ev[0].data.u64, 'b');
	assert_order(ep, 8, "adcb");
	for (int i = 0; i < 4; i++)
		obj_put(o[i]);
	ep_put(ep);
}

struct writer {
	struct pollux_efd *e;
	struct pollux_ep *ep;
	int turns;
	int missed;
};

/* Two threads, each of which must at once find what it has written itself. */
static void writer_main(struct thread *t)
{
	struct writer *w = t->arg;

	for (int i = 0; i < w->turns; i++) {
		struct epoll_event ev;

		(void)pollux_efd_write(w->e, 1, 0);
		if (pollux_ep_wait(w->ep, &ev, 1, 0) != 1)
			w->missed++;
	}
}

static void EP_RDY_18_a_returned_write_is_visible(void **state)
{
	struct pollux_efd *e = efd_new(0, 0);
	struct writer w[2];
	struct thread t[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		w[i] = (struct writer){.e = e, .ep = ep_new(), .turns = 100000};
		ep_add(w[i].ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'a');
	}
	for (int i = 0; i < 2; i++)
		thread_start(&t[i], writer_main, &w[i]);
	for (int i = 0; i < 2; i++) {
		thread_join(&t[i]);
		assert_int_equal(w[i].missed, 0);
		ep_put(w[i].ep);
	}
	efd_put(e);
}

static void EP_RDY_19_newest_registration_first(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	for (int i = 0; i < 6; i++)
		ep_add(ep, &o->file, i, EPOLLIN | EPOLLET, 'a' + i);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_order(ep, 8, "fedcba");
	/* The one that holds the file's own mark, and one in the middle, leave. */
	assert_int_equal(ep_del(ep, &o->file, 0), 0);
	assert_int_equal(ep_del(ep, &o->file, 3), 0);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_order(ep, 8, "fecb");
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'A');
	assert_order(ep, 8, "A");
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_order(ep, 8, "Afecb");
	ep_put(ep);
	obj_put(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(EP_RDY_02_the_key_is_compared_with_the_interest),
		TEST(EP_RDY_02_key_0_passes_every_filter),
		TEST(EP_RDY_03_the_state_is_reported_and_not_the_key),
		TEST(EP_RDY_04_disabled_items_ignore_all),
		TEST(EP_RDY_05_a_queued_item_is_not_queued_again),
		TEST(EP_RDY_05_an_edge_of_a_queued_item_wakes_one_more_sleeper),
		TEST(EP_RDY_06_each_wake_is_an_edge),
		TEST(EP_RDY_07_several_edges_are_one_event),
		TEST(EP_RDY_09_a_stale_edge_is_dropped),
		TEST(EP_RDY_10_an_edge_reports_what_is_true_then),
		TEST(EP_RDY_11_taking_a_part_makes_no_edge),
		TEST(EP_RDY_12_error_and_hangup_need_no_interest),
		TEST(EP_RDY_13_but_the_key_has_to_pass),
		TEST(EP_RDY_14_oneshot_is_reported_once),
		TEST(EP_RDY_15_a_collection_without_event_does_not_disarm),
		TEST(EP_RDY_16_flag_bits_are_never_reported),
		TEST(EP_RDY_17_wakes_during_a_collection_are_set_aside),
		TEST(EP_RDY_18_a_returned_write_is_visible),
		TEST(EP_RDY_19_newest_registration_first),
	};

	return RUN(tests);
}
