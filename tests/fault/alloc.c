/* SPDX-License-Identifier: MIT */
/*
 * Each allocation fails in turn: -ENOMEM comes out, nothing is half made, nothing is
 * left behind, and the same call works afterwards.
 */
#include "epoll/engine.h"

#include "native/native.h"

#include <pollux/poll.h>
#include <pollux/read.h>
#include <pollux/timer.h>

#include "base/mem.h"

static int live_before(void **state)
{
	long *live = malloc(sizeof(*live));

	pollux_quiesce();
	*live = plx_mem_live();
	*state = live;
	return 0;
}

static int live_after(void **state)
{
	long *live = *state;
	bool same;

	pollux_quiesce();
	same = plx_mem_live() == *live && pollux_ep_watches() == 0;
	if (!same)
		print_error("%ld objects live, %ld before\n", plx_mem_live(), *live);
	free(live);
	return same ? 0 : -1;
}

static void the_seam_is_there(void **state)
{
	long calls = plx_mem_calls();
	void *p;

	(void)state;
	plx_mem_fail_after(1);
	p = plx_zalloc(16);
	assert_non_null(p);
	assert_null(plx_zalloc(16));
	plx_free(p);
	p = plx_zalloc(16);
	assert_non_null(p);
	plx_free(p);
	assert_int_equal(plx_mem_calls(), calls + 3);
	plx_mem_fail_after(-1);
}

static void making_an_epoll(void **state)
{
	struct pollux_ep *ep = NULL;

	(void)state;
	plx_mem_fail_after(0);
	assert_int_equal(pollux_ep_new(&ep, NULL), -ENOMEM);
	assert_null(ep);
	assert_int_equal(pollux_ep_new(&ep, NULL), 0);
	ep_put(ep);
}

static void making_a_counter(void **state)
{
	struct pollux_efd *e = NULL;

	(void)state;
	plx_mem_fail_after(0);
	assert_int_equal(pollux_efd_new(&e, 3, POLLUX_EFD_SEMAPHORE), -ENOMEM);
	assert_null(e);
	assert_int_equal(pollux_efd_new(&e, 3, POLLUX_EFD_SEMAPHORE), 0);
	efd_put(e);
}

/* The order of the errors stands, and nothing is registered or charged. */
static void adding_an_item(void **state)
{
	static const uint32_t mode[] = {0, EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE};

	(void)state;
	for (int m = 0; m < 4; m++) {
		struct pollux_ep *ep = ep_new();
		struct pollux_efd *e = efd_new(1, 0);
		struct pollux_file *f = pollux_efd_file(e);

		plx_mem_fail_after(0);
		assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, f, 0, EPOLLIN | mode[m], 'a'), -ENOMEM);
		assert_int_equal(pollux_ep_watches(), 0);
		assert_none(ep);
		assert_int_equal(ep_ctl(ep, EPOLL_CTL_MOD, f, 0, EPOLLIN, 'a'), -ENOENT);
		assert_int_equal(ep_del(ep, f, 0), -ENOENT);
		efd_add(e, 1);
		assert_none(ep);
		/* The file has kept its first, fast place for the next one. */
		ep_add(ep, f, 0, EPOLLIN | mode[m], 'a');
		assert_one(ep, EPOLLIN, 'a');
		if (m != 3) {
			ep_mod(ep, f, 0, EPOLLIN | EPOLLET, 'b');
			assert_one(ep, EPOLLIN, 'b');
		}
		efd_add(e, 1);
		assert_one(ep, EPOLLIN, m == 3 ? 'a' : 'b');
		plx_mem_fail_after(0);
		assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, f, 0, EPOLLIN, 'a'), -EEXIST);
		pollux_ep_set_max_watches(1);
		assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, f, 1, EPOLLIN, 'a'), -ENOSPC);
		pollux_ep_set_max_watches(-1);
		assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, f, 1, EPOLLIN, 'a'), -ENOMEM);
		ep_put(ep);
		efd_put(e);
	}
}

static void adding_an_epoll(void **state)
{
	struct pollux_ep *up = ep_new(), *ep = ep_new();
	struct pollux_efd *e = efd_new(1, 0);

	(void)state;
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN, 'a');
	plx_mem_fail_after(0);
	assert_int_equal(ep_ctl(up, EPOLL_CTL_ADD, pollux_ep_file(ep), 0, EPOLLIN, 'e'), -ENOMEM);
	assert_none(up);
	assert_int_equal(pollux_ep_watches(), 1);
	/* No link has been left that would make a loop of this. */
	ep_add(ep, pollux_ep_file(up), 0, EPOLLIN, 'u');
	assert_int_equal(ep_del(ep, pollux_ep_file(up), 0), 0);
	ep_add(up, pollux_ep_file(ep), 0, EPOLLIN, 'e');
	assert_one(up, EPOLLIN, 'e');
	ep_put(up);
	ep_put(ep);
	efd_put(e);
}

static void called(void *arg)
{
	(*(int *)arg)++;
}

static void asking_for_a_call(void **state)
{
	int n = 0;

	(void)state;
	plx_mem_fail_after(0);
	assert_int_equal(pollux_call(called, &n), -ENOMEM);
	pollux_barrier();
	assert_int_equal(n, 0);
	assert_int_equal(pollux_call(called, &n), 0);
	pollux_barrier();
	assert_int_equal(n, 1);
}

/* Neither the end of a batch nor what waits for it needs any. */
static void batches_need_none(void **state)
{
	struct pollux_ep_attr attr = {.size = sizeof(attr), .flags = POLLUX_EP_BATCHES};
	struct pollux_ep *ep = NULL;
	struct obj *o = obj_new(EPOLLIN);
	int freed = 0;
	long calls;

	(void)state;
	o->freed = &freed;
	assert_int_equal(pollux_ep_new(&ep, &attr), 0);
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	/* Notes of what was removed before. */
	pollux_quiesce();
	calls = plx_mem_calls();
	assert_one(ep, EPOLLIN, 'a');
	obj_put(o);
	pollux_ep_batch_end(ep);
	pollux_barrier();
	assert_int_equal(freed, 1);
	assert_int_equal(plx_mem_calls(), calls);
	ep_put(ep);
}

/* What needs no memory does not fail. */
static void the_rest_allocates_nothing(void **state)
{
	struct pollux_ep *up = ep_new(), *ep = ep_new();
	struct pollux_efd *e = efd_new(0, 0);
	long calls;
	uint64_t v;

	(void)state;
	ep_add(up, pollux_ep_file(ep), 0, EPOLLIN, 'e');
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN, 'a');
	ep_add(ep, pollux_efd_file(e), 1, EPOLLIN, 'b');
	calls = plx_mem_calls();
	plx_mem_fail_after(0);
	for (int i = 0; i < 10; i++) {
		efd_add(e, 1ull << (i * 6));
		assert_order(ep, 8, "ba");
		assert_one(up, EPOLLIN, 'e');
		ep_mod(ep, pollux_efd_file(e), 1, EPOLLIN | EPOLLET, 'b');
		ep_mod(ep, pollux_efd_file(e), 1, EPOLLIN, 'b');
		assert_int_equal(pollux_efd_read(e, &v, 0), 0);
		assert_none(ep);
		pollux_efd_signal(e);
		(void)efd_take(e);
		assert_none(up);
	}
	assert_int_equal(ep_del(ep, pollux_efd_file(e), 0), 0);
	ep_put(up);
	efd_put(e);
	ep_put(ep);
	assert_int_equal(plx_mem_calls(), calls);
	plx_mem_fail_after(-1);
}

/* A whole life, and in each run one allocation later fails. */
static int life(void)
{
	struct pollux_ep *ep[3] = {NULL};
	struct pollux_efd *e[4] = {NULL};
	struct epoll_event ev[4];
	int failed = 0;

	for (int i = 0; i < 3; i++)
		failed += pollux_ep_new(&ep[i], NULL) != 0;
	for (int i = 0; i < 4; i++)
		failed += pollux_efd_new(&e[i], i, 0) != 0;
	for (int i = 0; i < 3; i++)
		for (int k = 0; ep[i] && k < 4; k++)
			if (e[k])
				failed += ep_ctl(ep[i], EPOLL_CTL_ADD, pollux_efd_file(e[k]), 0,
						 EPOLLIN | (k & 1 ? EPOLLET : 0), k) != 0;
	for (int i = 0; i < 2; i++)
		if (ep[i] && ep[i + 1])
			failed += ep_ctl(ep[i], EPOLL_CTL_ADD, pollux_ep_file(ep[i + 1]), 0,
					 EPOLLIN, 9) != 0;
	for (int k = 0; k < 4; k++)
		if (e[k])
			efd_add(e[k], 1);
	for (int i = 0; i < 3; i++)
		if (ep[i])
			assert_true(pollux_ep_wait(ep[i], ev, 4, 0) > 0);
	for (int k = 0; k < 2; k++)
		if (e[k])
			efd_put(e[k]);
	for (int i = 0; i < 3; i++)
		if (ep[i])
			ep_put(ep[i]);
	for (int k = 2; k < 4; k++)
		if (e[k])
			efd_put(e[k]);
	return failed;
}

static void each_allocation_in_turn(void **state)
{
	long live, calls, n = 0;

	(void)state;
	calls = plx_mem_calls();
	assert_int_equal(life(), 0);
	calls = plx_mem_calls() - calls;
	/* The last are of the epolls that have others: room for the times of these. */
	assert_int_equal(calls, 3 + 4 + 12 + 2 + 2);
	pollux_quiesce();
	live = plx_mem_live();
	for (n = 0; n < calls; n++) {
		plx_mem_fail_after(n);
		assert_int_equal(life(), 1);
		assert_int_equal(pollux_ep_watches(), 0);
		pollux_quiesce();
		assert_int_equal(plx_mem_live(), live);
	}
	plx_mem_fail_after(n);
	assert_int_equal(life(), 0);
	plx_mem_fail_after(-1);
}

/* The table of a file with many watches is made or grows later, when there is memory. */
static void the_table_of_a_file(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pollux_efd *e = efd_new(1, 0);
	struct pollux_file *f = pollux_efd_file(e);
	int n = 0;

	(void)state;
	while (n <= PLX_INDEX_FROM)
		ep_add(ep, f, n++, EPOLLIN, 'a');
	plx_mem_fail_after(0);
	ep_add(ep, f, n++, EPOLLIN, 'a');
	assert_null(f->index);
	while (!f->index)
		ep_add(ep, f, n++, EPOLLIN, 'a');
	/* Each second allocation of an ADD can only be the table's. */
	while (f->index && n < 1000) {
		plx_mem_fail_after(1);
		ep_add(ep, f, n++, EPOLLIN, 'a');
		plx_mem_fail_after(-1);
	}
	assert_null(f->index);
	for (int k = 0; k < n; k++)
		assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, f, k, EPOLLIN, 'a'), -EEXIST);
	assert_non_null(f->index);
	for (int k = 0; k < n; k++)
		assert_int_equal(ep_del(ep, f, k), 0);
	ep_put(ep);
	efd_put(e);
}

static void adding_a_timer(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pollux_timer *t[20] = {0};

	(void)state;
	plx_mem_fail_after(0);
	assert_int_equal(pollux_timer_new(&t[0], NULL), -ENOMEM);
	plx_mem_fail_after(-1);
	for (int i = 0; i < 20; i++) {
		struct pollux_file *f;

		assert_int_equal(pollux_timer_new(&t[i], NULL), 0);
		f = pollux_timer_file(t[i]);
		/* Of the item, and of the place for its time, if there is none left. */
		plx_mem_fail_after(0);
		assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, f, 0, EPOLLIN, 'a'), -ENOMEM);
		plx_mem_fail_after(1);
		if (i == 0 || i == 8 || i == 16)
			assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, f, 0, EPOLLIN, 'a'), -ENOMEM);
		plx_mem_fail_after(-1);
		ep_add(ep, f, 0, EPOLLIN, 'a');
		assert_int_equal(pollux_timer_set(t[i], now_ns() + 1000000000000ll * (i + 1), 0),
				 0);
		assert_none(ep);
	}
	for (int i = 0; i < 20; i++)
		pollux_file_put(pollux_timer_file(t[i]));
	ep_put(ep);
}

static void polling_files(void **state)
{
	struct pollux_efd *e = efd_new(0, 0);
	struct pollux_pollfile v = {.file = pollux_efd_file(e), .events = EPOLLIN};

	(void)state;
	plx_mem_fail_after(0);
	assert_int_equal(pollux_files_poll(&v, 1, POLLUX_FOREVER, NULL, NULL), -ENOMEM);
	plx_mem_fail_after(0);
	assert_int_equal(pollux_files_poll(&v, 1, 0, NULL, NULL), 0);
	plx_mem_fail_after(-1);
	assert_int_equal(pollux_files_poll(&v, 1, now_ns() + 1000, NULL, NULL), 0);
	assert_null(v.file->watches);
	efd_put(e);
}

#define LEAKLESS(fn) cmocka_unit_test_setup_teardown(fn, live_before, live_after)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LEAKLESS(the_seam_is_there),	   LEAKLESS(making_an_epoll),
		LEAKLESS(making_a_counter),	   LEAKLESS(adding_an_item),
		LEAKLESS(adding_an_epoll),	   LEAKLESS(the_rest_allocates_nothing),
		LEAKLESS(each_allocation_in_turn), LEAKLESS(the_table_of_a_file),
		LEAKLESS(polling_files),	   LEAKLESS(adding_a_timer),
		LEAKLESS(asking_for_a_call),	   LEAKLESS(batches_need_none),
	};

	return RUN(tests);
}
