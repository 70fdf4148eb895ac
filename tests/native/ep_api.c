/* SPDX-License-Identifier: MIT */
/* What the API of an epoll has besides that of the kernel's. */
#include "native.h"

static void a_counter_is_found_by_its_file(void **state)
{
	struct pollux_efd *e = efd_new(0, 0);
	struct obj *o = obj_new(0);
	struct pollux_ep *ep = ep_new();

	(void)state;
	assert_ptr_equal(pollux_efd_of(pollux_efd_file(e)), e);
	assert_null(pollux_efd_of(&o->file));
	assert_null(pollux_efd_of(pollux_ep_file(ep)));
	ep_put(ep);
	obj_put(o);
	efd_put(e);
}

static void an_epoll_is_found_by_its_file(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	assert_ptr_equal(pollux_ep_of(pollux_ep_file(ep)), ep);
	assert_null(pollux_ep_of(&o->file));
	pollux_ep_get(ep);
	pollux_ep_put(ep);
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	assert_int_equal(pollux_ep_watches(), 1);
	/* The last one takes the registrations along. */
	pollux_ep_put(ep);
	assert_int_equal(pollux_ep_watches(), 0);
	obj_put(o);
}

static void EP_CTL_01_no_event_is_a_fault(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	assert_int_equal(pollux_ep_ctl(ep, EPOLL_CTL_ADD, &o->file, 0, NULL), -EFAULT);
	/* Before anything else is looked at. */
	assert_int_equal(pollux_ep_ctl(ep, EPOLL_CTL_MOD, pollux_ep_file(ep), 0, NULL), -EFAULT);
	assert_int_equal(pollux_ep_ctl(ep, EPOLL_CTL_DEL, &o->file, 0, NULL), -ENOENT);
	obj_put(o);
	ep_put(ep);
}

static void a_wait_up_to_a_deadline(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct epoll_event ev;
	int64_t start = now_ns();

	(void)state;
	/* Passed: nothing sleeps. */
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, 0), 0);
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, start), 0);
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, start + 30000000), 0);
	assert_true(now_ns() >= start + 30000000);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	obj_fire(o, EPOLLIN, EPOLLIN);
	/* What is there comes in any case. */
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, 0), 1);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, POLLUX_FOREVER), 1);
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 0, 0), -EINVAL);
	obj_put(o);
	ep_put(ep);
}

static void removal_tells_whether_an_event_was_given(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);
	static const uint32_t modes[] = {0, EPOLLET, EPOLLONESHOT};

	(void)state;
	assert_int_equal(pollux_ep_del(ep, &o->file, 0), -ENOENT);
	for (int m = 0; m < 3; m++) {
		/* On the ready list, and not taken from there. */
		ep_add(ep, &o->file, 0, EPOLLIN | modes[m], 'a');
		assert_int_equal(pollux_ep_del(ep, &o->file, 0), 0);
		assert_none(ep);
		ep_add(ep, &o->file, 0, EPOLLIN | modes[m], 'a');
		assert_one(ep, EPOLLIN, 'a');
		assert_int_equal(pollux_ep_del(ep, &o->file, 0), 1);
		assert_none(ep);
		assert_int_equal(pollux_ep_del(ep, &o->file, 0), -ENOENT);
		/* It is another operation after each MOD. */
		ep_add(ep, &o->file, 0, EPOLLIN | modes[m], 'a');
		assert_one(ep, EPOLLIN, 'a');
		ep_mod(ep, &o->file, 0, EPOLLIN | modes[m], 'b');
		assert_int_equal(pollux_ep_del(ep, &o->file, 0), 0);
	}
	obj_put(o);
	ep_put(ep);
}

struct seen {
	struct pollux_file *file[8];
	int key[8];
	uint32_t events[8];
	uint64_t data[8];
	int n, stop;
};

static int see(void *arg, struct pollux_file *f, int key, const struct epoll_event *ev)
{
	struct seen *s = arg;

	assert_true(s->n < 8);
	s->file[s->n] = f;
	s->key[s->n] = key;
	s->events[s->n] = ev->events;
	s->data[s->n] = ev->data.u64;
	s->n++;
	return s->n == s->stop ? 42 : 0;
}

static void registrations_are_listed(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0), *p = obj_new(EPOLLIN);
	struct seen s = {.stop = 0};

	(void)state;
	assert_int_equal(pollux_ep_for_each(ep, see, &s), 0);
	assert_int_equal(s.n, 0);
	ep_add(ep, &o->file, 3, EPOLLIN | EPOLLET, 'a');
	ep_add(ep, &p->file, 0, EPOLLIN | EPOLLONESHOT, 'b');
	ep_add(ep, &o->file, 4, EPOLLOUT, 'c');
	assert_one(ep, EPOLLIN, 'b');
	assert_int_equal(pollux_ep_for_each(ep, see, &s), 0);
	assert_int_equal(s.n, 3);
	assert_ptr_equal(s.file[0], &o->file);
	assert_ptr_equal(s.file[1], &p->file);
	assert_int_equal(s.key[0], 3);
	assert_int_equal(s.key[2], 4);
	assert_int_equal(s.events[0], EPOLLIN | EPOLLET | EPOLLERR | EPOLLHUP);
	assert_int_equal(s.events[1], EPOLLONESHOT);
	assert_int_equal(s.data[2], 'c');
	s = (struct seen){.stop = 2};
	assert_int_equal(pollux_ep_for_each(ep, see, &s), 42);
	assert_int_equal(s.n, 2);
	obj_put(o);
	s = (struct seen){.stop = 0};
	assert_int_equal(pollux_ep_for_each(ep, see, &s), 0);
	assert_int_equal(s.n, 1);
	obj_put(p);
	ep_put(ep);
}

static void an_epoll_says_what_it_is_at(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN), *p = obj_new(0);
	struct pollux_ep_stat st;
	struct {
		struct pollux_ep_stat st;
		uint64_t newer;
	} longer;
	struct waiter *w;

	(void)state;
	memset(&st, 0xff, sizeof(st));
	assert_int_equal(pollux_ep_stat(ep, &st, sizeof(st)), 0);
	assert_int_equal(st.items + st.queued + st.sleepers + st.events + st.collections, 0);
	ep_add(ep, &p->file, 0, EPOLLIN, 'b');
	w = waiter_new(ep, 1);
	pollux_ep_stat(ep, &st, sizeof(st));
	assert_int_equal(st.sleepers, 1);
	assert_int_equal(st.items, 1);
	assert_int_equal(st.queued, 0);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	waiter_gets(w, 'a');
	obj_fire(p, EPOLLIN, EPOLLIN);
	longer.newer = 1;
	pollux_ep_stat(ep, &longer.st, sizeof(longer));
	assert_int_equal(longer.newer, 0);
	assert_int_equal(longer.st.items, 2);
	assert_int_equal(longer.st.queued, 1);
	assert_int_equal(longer.st.sleepers, 0);
	assert_int_equal(longer.st.events, 1);
	assert_true(longer.st.collections >= 1);
	/* Of an older program. */
	memset(&st, 0xff, sizeof(st));
	pollux_ep_stat(ep, &st, sizeof(uint64_t));
	assert_int_equal(st.items, 2);
	assert_true(st.queued == UINT64_MAX);
	/* It takes nothing away. */
	assert_one(ep, EPOLLIN, 'b');
	obj_put(o);
	obj_put(p);
	ep_put(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_counter_is_found_by_its_file),
		TEST(an_epoll_is_found_by_its_file),
		TEST(EP_CTL_01_no_event_is_a_fault),
		TEST(a_wait_up_to_a_deadline),
		TEST(removal_tells_whether_an_event_was_given),
		TEST(registrations_are_listed),
		TEST(an_epoll_says_what_it_is_at),
	};

	return RUN(tests);
}
