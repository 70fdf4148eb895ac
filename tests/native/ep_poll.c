/* SPDX-License-Identifier: MIT */
/* The epoll as a file, keys, and the life of watched files. */
#include "native.h"

#define READABLE (EPOLLIN | EPOLLRDNORM)

static uint32_t ep_mask(struct pollux_ep *ep)
{
	return pollux_file_poll(pollux_ep_file(ep), UINT32_MAX);
}

static void EP_POLL_01_readable_when_an_item_is_ready(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	assert_int_equal(ep_mask(ep), 0);
	ep_add(ep, &o->file, 0, EPOLLOUT, 'a');
	assert_int_equal(ep_mask(ep), 0);
	obj_fire(o, EPOLLOUT | EPOLLERR | EPOLLHUP, EPOLLOUT);
	assert_int_equal(ep_mask(ep), READABLE);
	/* Asked again at each poll: readiness that went without a wake is seen. */
	obj_set(o, EPOLLIN);
	assert_int_equal(ep_mask(ep), 0);
	ep_put(ep);
	obj_put(o);
}

static void EP_POLL_02_polling_consumes_nothing(void **state)
{
	static const uint32_t mode[] = {0, EPOLLET, EPOLLONESHOT};

	(void)state;
	for (int m = 0; m < 3; m++) {
		struct pollux_ep *ep = ep_new();
		struct obj *o = obj_new(EPOLLIN);

		ep_add(ep, &o->file, 0, EPOLLIN | mode[m], 'a');
		for (int i = 0; i < 4; i++)
			assert_int_equal(ep_mask(ep), READABLE);
		assert_one(ep, EPOLLIN, 'a');
		assert_int_equal(ep_mask(ep), mode[m] ? 0 : READABLE);
		ep_put(ep);
		obj_put(o);
	}
}

static void EP_POLL_03_polling_drops_stale_items_up_to_a_ready_one(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[4];

	(void)state;
	for (int i = 0; i < 4; i++) {
		o[i] = obj_new(EPOLLIN);
		ep_add(ep, &o[i]->file, 0, EPOLLIN | EPOLLET, 'a' + i);
	}
	obj_set(o[0], 0);
	obj_set(o[1], 0);
	obj_set(o[3], 0);
	assert_int_equal(ep_mask(ep), READABLE);
	/* a and b are off the list, d behind c is not. */
	for (int i = 0; i < 4; i++)
		obj_set(o[i], EPOLLIN);
	assert_order(ep, 8, "cd");
	for (int i = 0; i < 4; i++)
		obj_put(o[i]);
	ep_put(ep);
}

static void EP_POLL_03_whatever_the_poll_asks_for(void **state)
{
	struct pollux_ep *ep = ep_new(), *up = ep_new();
	struct obj *o = obj_new(EPOLLIN), *p = obj_new(EPOLLIN);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	ep_add(ep, &p->file, 0, EPOLLIN | EPOLLET, 'b');
	for (int i = 0; i < 4; i++) {
		obj_set(o, 0);
		if (i < 2)
			pollux_file_poll(pollux_ep_file(ep), i ? EPOLLOUT : 0);
		else if (i == 2)
			ep_add(up, pollux_ep_file(ep), 0, EPOLLOUT, 'u');
		else
			ep_mod(up, pollux_ep_file(ep), 0, EPOLLPRI, 'u');
		/* a was off the list, and comes behind b. */
		obj_fire(o, EPOLLIN, EPOLLIN);
		assert_order(ep, 8, "ba");
		obj_fire(o, EPOLLIN, EPOLLIN);
		obj_fire(p, EPOLLIN, EPOLLIN);
	}
	ep_put(up);
	ep_put(ep);
	obj_put(o);
	obj_put(p);
}

static void EP_POLL_04_watchers_hear_of_wake_add_and_mod(void **state)
{
	struct pollux_ep *ep = ep_new(), *up = ep_new();
	struct obj *o = obj_new(0), *p = obj_new(EPOLLIN);
	struct waiter *w;

	(void)state;
	ep_add(up, pollux_ep_file(ep), 0, EPOLLIN | EPOLLET, 'e');
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	w = waiter_new(up, 1);
	obj_fire(o, EPOLLIN, EPOLLIN);
	waiter_gets(w, 'e');
	w = waiter_new(up, 1);
	ep_add(ep, &p->file, 0, EPOLLIN | EPOLLET, 'b');
	waiter_gets(w, 'e');
	assert_order(ep, 8, "ab");
	w = waiter_new(up, 1);
	ep_mod(ep, &p->file, 0, EPOLLIN | EPOLLET, 'c');
	waiter_gets(w, 'e');
	ep_put(up);
	ep_put(ep);
	obj_put(o);
	obj_put(p);
}

static void EP_POLL_05_each_wake_is_an_edge_for_the_outer(void **state)
{
	struct pollux_ep *ep = ep_new(), *up = ep_new();
	struct pollux_efd *e = efd_new(0, 0);

	(void)state;
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN, 'a');
	/* Writes before the epoll was watched have made the file quiet. */
	efd_add(e, 1);
	efd_add(e, 1);
	efd_add(e, 1);
	ep_add(up, pollux_ep_file(ep), 0, EPOLLIN | EPOLLET, 'e');
	assert_one(up, EPOLLIN, 'e');
	for (int i = 0; i < 4; i++) {
		assert_none(up);
		efd_add(e, 1);
		assert_one(up, EPOLLIN, 'e');
	}
	/* Delivery of the inner queues its level again: no edge. */
	assert_one(ep, EPOLLIN, 'a');
	assert_none(up);
	efd_add(e, 1);
	assert_one(up, EPOLLIN, 'e');
	ep_put(up);
	/* Nobody watches any more. */
	for (int i = 0; i < 4; i++)
		efd_add(e, 1);
	assert_one(ep, EPOLLIN, 'a');
	ep_put(ep);
	efd_put(e);
}

static void EP_POLL_06_the_outer_level_is_that_of_the_inner(void **state)
{
	struct pollux_ep *ep = ep_new(), *up = ep_new();
	struct obj *lt = obj_new(0), *et = obj_new(0);

	(void)state;
	ep_add(up, pollux_ep_file(ep), 0, EPOLLIN, 'e');
	ep_add(ep, &lt->file, 0, EPOLLIN, 'l');
	ep_add(ep, &et->file, 0, EPOLLIN | EPOLLET, 't');
	obj_fire(lt, EPOLLIN, EPOLLIN);
	for (int i = 0; i < 3; i++)
		assert_one(up, EPOLLIN, 'e');
	assert_one(ep, EPOLLIN, 'l');
	assert_one(up, EPOLLIN, 'e');
	obj_set(lt, 0);
	assert_none(up);
	obj_fire(et, EPOLLIN, EPOLLIN);
	assert_one(up, EPOLLIN, 'e');
	assert_one(up, EPOLLIN, 'e');
	assert_one(ep, EPOLLIN, 't');
	assert_none(up);
	obj_fire(et, EPOLLIN, EPOLLIN);
	assert_one(up, EPOLLIN, 'e');
	ep_put(up);
	ep_put(ep);
	obj_put(lt);
	obj_put(et);
}

static void EP_POLL_07_what_an_outer_item_can_ask_for(void **state)
{
	struct pollux_ep *ep = ep_new(), *up = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLOUT | EPOLLET, 'a');
	ep_add(up, pollux_ep_file(ep), 0, EPOLLOUT | EPOLLPRI, 'o');
	ep_add(up, pollux_ep_file(ep), 1, EPOLLIN | EPOLLRDNORM, 'b');
	ep_add(up, pollux_ep_file(ep), 2, EPOLLRDNORM, 'r');
	obj_fire(o, EPOLLIN | EPOLLOUT | EPOLLHUP, EPOLLIN);
	assert_one(up, READABLE, 'b');
	ep_mod(up, pollux_ep_file(ep), 2, EPOLLRDNORM | EPOLLET, 'r');
	assert_int_equal(ep_del(up, pollux_ep_file(ep), 1), 0);
	assert_one(up, EPOLLRDNORM, 'r');
	ep_put(up);
	ep_put(ep);
	obj_put(o);
}

static void EP_POLL_09_a_chain_of_five(void **state)
{
	struct pollux_ep *ep[5];
	struct pollux_efd *e = efd_new(0, 0);
	struct waiter *w;

	(void)state;
	for (int i = 0; i < 5; i++) {
		ep[i] = ep_new();
		ep_add(ep[i], i ? pollux_ep_file(ep[i - 1]) : pollux_efd_file(e), 0, EPOLLIN,
		       'a' + i);
	}
	for (int turn = 0; turn < 3; turn++) {
		w = waiter_new(ep[4], 1);
		efd_add(e, 1);
		waiter_gets(w, 'e');
		for (int i = 0; i < 5; i++)
			assert_one(ep[i], EPOLLIN, 'a' + i);
		assert_int_equal(efd_take(e), 1);
		for (int i = 4; i >= 0; i--)
			assert_none(ep[i]);
	}
	for (int i = 0; i < 5; i++)
		ep_put(ep[i]);
	efd_put(e);
}

/* --- keys and lives --------------------------------------------------------------------- */

static void EP_KEY_01_the_pair_of_file_and_key_names_an_item(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0), *p = obj_new(0);

	(void)state;
	/* Equal data makes no equal items (the pair does). */
	ep_add(ep, &o->file, 7, EPOLLIN | EPOLLET, 'x');
	ep_add(ep, &p->file, 7, EPOLLIN | EPOLLET, 'x');
	ep_add(ep, &p->file, 8, EPOLLIN | EPOLLET, 'x');
	obj_fire(o, EPOLLIN, EPOLLIN);
	obj_fire(p, EPOLLIN, EPOLLIN);
	assert_order(ep, 8, "xxx");
	ep_mod(ep, &p->file, 7, EPOLLIN | EPOLLET, 'y');
	assert_order(ep, 8, "y");
	assert_int_equal(ep_del(ep, &p->file, 7), 0);
	assert_int_equal(ep_del(ep, &p->file, 7), -ENOENT);
	obj_fire(o, EPOLLIN, EPOLLIN);
	obj_fire(p, EPOLLIN, EPOLLIN);
	assert_order(ep, 8, "xx");
	ep_put(ep);
	obj_put(o);
	obj_put(p);
}

static void EP_KEY_06_the_last_reference_takes_the_items_with_it(void **state)
{
	struct pollux_ep *ep[3];
	struct obj *o = obj_new(EPOLLIN);
	int released = 0, freed = 0;

	(void)state;
	o->released = &released;
	o->freed = &freed;
	pollux_file_get(&o->file);
	for (int i = 0; i < 3; i++) {
		ep[i] = ep_new();
		ep_add(ep[i], &o->file, 0, EPOLLIN, 'a');
		ep_add(ep[i], &o->file, 1, EPOLLIN | EPOLLET, 'b');
	}
	obj_put(o);
	assert_int_equal(released, 0);
	assert_order(ep[0], 8, "ab");
	assert_true(pollux_file_tryget(&o->file));
	obj_put(o);
	obj_put(o);
	assert_int_equal(released, 1);
	assert_int_equal(pollux_ep_watches(), 0);
	for (int i = 0; i < 3; i++) {
		assert_none(ep[i]);
		assert_int_equal(ep_mask(ep[i]), 0);
		ep_put(ep[i]);
	}
	pollux_quiesce();
	assert_int_equal(freed, 1);
}

static void EP_KEY_10_automatic_removal_makes_no_event(void **state)
{
	struct pollux_ep *ep = ep_new(), *up = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w, *v;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	ep_add(up, pollux_ep_file(ep), 0, EPOLLIN | EPOLLET, 'e');
	w = waiter_new(ep, 1);
	v = waiter_new(up, 1);
	obj_put(o);
	waiter_stays(w);
	waiter_stays(v);
	waiters_release(up, &v, 1);
	waiters_release(ep, &w, 1);
	ep_put(up);
	ep_put(ep);
}

static void EP_KEY_11_a_closed_epoll_leaves_its_watchers(void **state)
{
	struct pollux_ep *ep = ep_new(), *up = ep_new();
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	ep_add(up, pollux_ep_file(ep), 0, EPOLLIN, 'e');
	assert_one(up, EPOLLIN, 'e');
	ep_put(ep);
	assert_none(up);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_none(up);
	assert_int_equal(pollux_ep_watches(), 0);
	ep_put(up);
	obj_put(o);
}

/* More items than one round of the release takes. */
static void EP_FD_11_closing_an_epoll_removes_its_items(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[200];

	(void)state;
	for (int i = 0; i < 200; i++) {
		o[i] = obj_new(EPOLLIN);
		ep_add(ep, &o[i]->file, 0, EPOLLIN | (i & 1 ? EPOLLET : 0), 'a');
	}
	pollux_file_get(pollux_ep_file(ep));
	ep_put(ep);
	assert_int_equal(pollux_ep_watches(), 200);
	ep_put(ep);
	assert_int_equal(pollux_ep_watches(), 0);
	for (int i = 0; i < 200; i++) {
		obj_fire(o[i], EPOLLIN, EPOLLIN);
		obj_put(o[i]);
	}
}

/* A file without a free operation belongs to its owner again when it has been quiesced. */
static void EP_ADD_10_a_static_object_can_be_watched(void **state)
{
	static const struct pollux_file_ops ops = {.size = sizeof(ops), .poll = obj_poll};
	static struct obj o;
	struct pollux_ep *ep = ep_new();

	(void)state;
	for (int i = 0; i < 3; i++) {
		memset(&o, 0, sizeof(o));
		pollux_file_init(&o.file, &ops);
		ep_add(ep, &o.file, 0, EPOLLIN, 'a');
		obj_fire(&o, EPOLLIN, EPOLLIN);
		assert_one(ep, EPOLLIN, 'a');
		pollux_file_put(&o.file);
		assert_none(ep);
		pollux_quiesce();
	}
	ep_put(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(EP_POLL_01_readable_when_an_item_is_ready),
		TEST(EP_POLL_02_polling_consumes_nothing),
		TEST(EP_POLL_03_polling_drops_stale_items_up_to_a_ready_one),
		TEST(EP_POLL_03_whatever_the_poll_asks_for),
		TEST(EP_POLL_04_watchers_hear_of_wake_add_and_mod),
		TEST(EP_POLL_05_each_wake_is_an_edge_for_the_outer),
		TEST(EP_POLL_06_the_outer_level_is_that_of_the_inner),
		TEST(EP_POLL_07_what_an_outer_item_can_ask_for),
		TEST(EP_POLL_09_a_chain_of_five),
		TEST(EP_KEY_01_the_pair_of_file_and_key_names_an_item),
		TEST(EP_KEY_06_the_last_reference_takes_the_items_with_it),
		TEST(EP_KEY_10_automatic_removal_makes_no_event),
		TEST(EP_KEY_11_a_closed_epoll_leaves_its_watchers),
		TEST(EP_FD_11_closing_an_epoll_removes_its_items),
		TEST(EP_ADD_10_a_static_object_can_be_watched),
	};

	return RUN(tests);
}
