/* SPDX-License-Identifier: MIT */
/* EP-MOD: EPOLL_CTL_MOD. */
#include "waiting.h"

static void EP_MOD_01_queued_event_has_new_data(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int ep = ep_new();

	for (int et = 0; et < 2; et++) {
		uint32_t mask = EPOLLIN | (et ? (uint32_t)EPOLLET : 0);

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, mask, 1));
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, mask, UINT64_MAX));
		assert_true(ep_one(ep, EPOLLIN, UINT64_MAX));
		subject_fill(&s);
		assert_ok(raw_ctl(ep, EPOLL_CTL_MOD, s.fd, mask, 0));
		assert_true(ep_one(ep, EPOLLIN, 0));
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	}
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_MOD_01_queued_event_has_new_data)

static void EP_MOD_01_queued_event_has_new_mask(void **state)
{
	struct subject u = subject_ready(KIND_SOCKET), p = subject_ready(KIND_PIPE);
	int ep = ep_new(), e = efd_new(1, EFD_NONBLOCK);

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, e, EPOLLIN | EPOLLOUT, 2));
	assert_true(ep_one(ep, EPOLLIN | EPOLLOUT, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, e, EPOLLOUT, 3));
	assert_true(ep_one(ep, EPOLLOUT, 3));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, e, 0, 0));

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, u.fd, EPOLLIN, 4));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, u.fd, EPOLLOUT, 5));
	assert_true(ep_one(ep, EPOLLOUT, 5));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, u.fd, 0, 0));

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p.fd, EPOLLIN, 6));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, p.fd, EPOLLRDNORM, 7));
	assert_true(ep_one(ep, EPOLLRDNORM, 7));
	close(ep);
	close(e);
	subject_close(&u);
	subject_close(&p);
}

static void EP_MOD_01_mode_is_replaced(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	/* LT, queued, becomes ET: once and no more. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLET, 2));
	assert_true(ep_one(ep, EPOLLIN, 2));
	assert_int_equal(ep_count(ep), 0);
	/* ET, collected, becomes LT: again and again. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, 3));
	for (int i = 0; i < 3; i++)
		assert_true(ep_one(ep, EPOLLIN, 3));
	/* ONESHOT and back before it was delivered. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLONESHOT, 4));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, 5));
	for (int i = 0; i < 3; i++)
		assert_true(ep_one(ep, EPOLLIN, 5));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLONESHOT, 6));
	assert_true(ep_one(ep, EPOLLIN, 6));
	assert_int_equal(ep_count(ep), 0);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_MOD_01_mode_is_replaced)

static void EP_MOD_01_err_and_hup_are_added(void **state)
{
	struct subject r = subject_new(KIND_PIPE), w = subject_new(KIND_PIPE);
	struct subject u = subject_new(KIND_SOCKET);
	int ep = ep_new();

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, r.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, w.peer, EPOLLOUT, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, u.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, r.fd, 0, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, w.peer, 0, 3));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, u.fd, 0, 4));
	assert_int_equal(ep_count(ep), 0);
	close(r.peer);
	assert_true(ep_one(ep, EPOLLHUP, 2));
	close(r.fd);
	close(w.fd);
	assert_true(ep_one(ep, EPOLLERR, 3));
	close(w.peer);
	close(u.peer);
	assert_true(ep_one(ep, EPOLLHUP, 4));
	close(u.fd);
	close(ep);
}

static void EP_MOD_02_same_mask_reports_again(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 1));
	assert_true(ep_one(ep, EPOLLIN, 1));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ep_count(ep), 0);
		assert_ok(i & 1 ? raw_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLET, 1)
				: ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLET, 1));
		assert_true(ep_one(ep, EPOLLIN, 1));
	}
	/* Not when there is nothing to report. */
	subject_drain(&s);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLET, 1));
	assert_int_equal(ep_count(ep), 0);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLPRI | EPOLLET, 1));
	assert_int_equal(ep_count(ep), 0);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_MOD_02_same_mask_reports_again)

static void EP_MOD_02_ready_item_goes_to_the_tail(enum kind kind)
{
	struct subject s[3];
	int ep = ep_new();

	for (int i = 0; i < 3; i++) {
		s[i] = subject_ready(kind);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[i].fd, EPOLLIN | EPOLLET, (uint64_t)i));
	}
	assert_true(ep_order(ep, 3, 0, 1, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[1].fd, EPOLLIN | EPOLLET, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[0].fd, EPOLLIN | EPOLLET, 0));
	subject_fill(&s[2]);
	assert_true(ep_order(ep, 3, 1, 0, 2));
	for (int i = 0; i < 3; i++)
		subject_close(&s[i]);
	close(ep);
}
KIND_TESTS(EP_MOD_02_ready_item_goes_to_the_tail)

/*
 * The item was ready but not asked for it; its MOD ends one wait. bystander
 * decides how the waiters sleep.
 */
static void mod_wakes_one_waiter(enum kind kind, enum kind bystander)
{
	static const uint32_t modes[] = {EPOLLET, EPOLLONESHOT};

	for (size_t m = 0; m < 2; m++) {
		struct subject s = subject_ready(kind), b = subject_new(bystander);
		int ep = ep_new();
		struct waiter *w[2];

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.fd, EPOLLIN, 9));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLPRI | modes[m], 1));
		for (int i = 0; i < 2; i++)
			w[i] = waiter_new(ep, 8);
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLPRI | modes[m], 2));
		assert_true(waiter_sleeps(w[1]));
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | modes[m], 3));
		waiter_got(w[1], EPOLLIN, 3);
		assert_true(waiter_sleeps(w[0]));
		assert_ok(raw_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | modes[m], 4));
		waiter_got(w[0], EPOLLIN, 4);
		close(ep);
		subject_close(&s);
		subject_close(&b);
	}
}

static void EP_MOD_02_wakes_one_waiter(enum kind kind)
{
	mod_wakes_one_waiter(kind, kind);
}
KIND_TESTS(EP_MOD_02_wakes_one_waiter)

static void EP_MOD_02_wakes_one_waiter_of_a_mixed_set(void **state)
{
	(void)state;
	mod_wakes_one_waiter(KIND_EVENTFD, KIND_PIPE);
	mod_wakes_one_waiter(KIND_EVENTFD, KIND_SOCKET);
	mod_wakes_one_waiter(KIND_PIPE, KIND_EVENTFD);
	mod_wakes_one_waiter(KIND_SOCKET, KIND_EVENTFD);
}

static void EP_MOD_02_wakes_the_pollers(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int ep = ep_new(), outer = ep_new();
	struct waiter *p, *w;

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 1));
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN | EPOLLET, 5));
	if (kind == KIND_EVENTFD)
		ep_take_repeat(ep, s.fd, 1);
	assert_int_equal(ep_count(outer), 0);
	p = poller_new(ep);
	w = waiter_new(outer, 8);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLET, 2));
	poller_got_in(p);
	waiter_got(w, EPOLLIN, 5);
	assert_true(ep_one(ep, EPOLLIN, 2));
	close(ep);
	close(outer);
	subject_close(&s);
}
KIND_TESTS(EP_MOD_02_wakes_the_pollers)

static void EP_MOD_02_eventfd_in_and_out(void **state)
{
	int ep = ep_new(), e = efd_new(0, EFD_NONBLOCK);
	struct waiter *w;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN | EPOLLET, 1));
	w = waiter_new(ep, 8);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, e, EPOLLIN | EPOLLOUT | EPOLLET, 2));
	waiter_got(w, EPOLLOUT, 2);
	efd_add(e, UINT64_MAX - 1);
	assert_true(ep_one(ep, EPOLLIN, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, e, EPOLLOUT, 3));
	assert_int_equal(ep_count(ep), 0);
	efd_take(e);
	assert_true(ep_one(ep, EPOLLOUT, 3));
	close(ep);
	close(e);
}

static void EP_MOD_03_queued_item_keeps_its_place(enum kind kind)
{
	struct subject s[3];
	int ep = ep_new();

	for (int et = 0; et < 2; et++) {
		uint32_t mask = EPOLLIN | (et ? (uint32_t)EPOLLET : 0);

		for (int i = 0; i < 3; i++) {
			s[i] = subject_ready(kind);
			assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[i].fd, mask, (uint64_t)i));
		}
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[0].fd, mask, 10));
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[1].fd, mask, 11));
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[0].fd, mask, 20));
		assert_true(ep_order(ep, 3, 20, 11, 2));
		/* The same for items that a callback has queued. */
		for (int i = 0; i < 3; i++) {
			subject_drain(&s[i]);
			assert_int_equal(ep_count(ep), 2 - i > 0 && !et ? 2 - i : 0);
		}
		for (int i = 2; i >= 0; i--)
			subject_fill(&s[i]);
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[2].fd, mask, 2));
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[1].fd, mask, 1));
		assert_true(ep_order(ep, 3, 2, 1, 20));
		for (int i = 0; i < 3; i++)
			subject_close(&s[i]);
	}
	close(ep);
}
KIND_TESTS(EP_MOD_03_queued_item_keeps_its_place)

/* A waiter cannot sleep beside a queued item; an outer ET item tells it. */
static void EP_MOD_03_mod_of_a_queued_item_wakes_nobody(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int ep = ep_new(), outer = ep_new();
	struct waiter *w;

	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN | EPOLLET, 5));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 1));
	assert_true(ep_one(outer, EPOLLIN, 5));
	w = waiter_new(outer, 8);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLET, 3));
	assert_true(waiter_sleeps(w));
	assert_true(ep_one(ep, EPOLLIN, 3));
	/* Off the list now, so the next MOD is an edge. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLET, 4));
	waiter_got(w, EPOLLIN, 5);
	close(ep);
	close(outer);
	subject_close(&s);
}
KIND_TESTS(EP_MOD_03_mod_of_a_queued_item_wakes_nobody)

static void EP_MOD_04_masked_item_is_not_reported(enum kind kind)
{
	static const uint32_t masks[] = {0, EPOLLPRI, EPOLLET, EPOLLONESHOT};
	struct subject s = subject_ready(kind);
	int ep = ep_new();

	for (size_t i = 0; i < 4; i++) {
		struct pollfd p = {.fd = ep, .events = POLLIN};

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, masks[i], 2));
		if (i % 2)
			assert_int_equal(poll(&p, 1, 0), 0);
		assert_int_equal(ep_count(ep), 0);
		/* Dropped: an edge that the mask does not ask for queues nothing. */
		subject_fill(&s);
		assert_int_equal(ep_count(ep), 0);
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, 3));
		assert_true(ep_one(ep, EPOLLIN, 3));
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	}
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_MOD_04_masked_item_is_not_reported)

static void EP_MOD_04_masked_item_is_dropped_at_the_next_collection(enum kind kind)
{
	struct subject a = subject_ready(kind), b = subject_ready(kind);
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.fd, EPOLLIN, 2));
	/* Off and on again between two collections: it never left its place. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, a.fd, 0, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, a.fd, EPOLLIN, 1));
	assert_true(ep_order(ep, 2, 1, 2));
	/* With a collection in between it comes back as the last. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, a.fd, 0, 1));
	assert_true(ep_order(ep, 1, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, a.fd, EPOLLIN, 1));
	assert_true(ep_order(ep, 2, 2, 1));
	close(ep);
	subject_close(&a);
	subject_close(&b);
}
KIND_TESTS(EP_MOD_04_masked_item_is_dropped_at_the_next_collection)

static void EP_MOD_04_masked_item_does_not_end_a_wait(void **state)
{
	struct subject e = subject_ready(KIND_EVENTFD), p = subject_ready(KIND_PIPE);
	int ep = ep_new();
	struct epoll_event ev;
	struct waiter *w;
	int64_t begin;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p.fd, EPOLLIN, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, e.fd, 0, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, p.fd, 0, 2));
	begin = now_ms();
	assert_int_equal(epoll_wait(ep, &ev, 1, 20), 0);
	assert_true(now_ms() - begin >= 20);
	w = waiter_new(ep, 8);
	subject_fill(&e);
	subject_fill(&p);
	assert_true(waiter_sleeps(w));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, p.fd, EPOLLIN, 3));
	waiter_got(w, EPOLLIN, 3);
	w = NULL;
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, e.fd, EPOLLIN, 4));
	assert_true(ep_set(ep, 2, 3, 4));
	close(ep);
	subject_close(&e);
	subject_close(&p);
}

static void EP_MOD_05_only_mod_rearms_oneshot(enum kind kind)
{
	static const uint32_t modes[] = {EPOLLONESHOT, EPOLLONESHOT | EPOLLET};

	for (size_t m = 0; m < 2; m++) {
		struct subject s = subject_ready(kind);
		int ep = ep_new(), d;

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | modes[m], 1));
		assert_true(ep_one(ep, EPOLLIN, 1));
		subject_fill(&s);
		assert_int_equal(ep_count(ep), 0);
		subject_drain(&s);
		subject_fill(&s);
		assert_int_equal(ep_count(ep), 0);
		assert_errno(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 9), EEXIST);
		assert_int_equal(ep_count(ep), 0);
		/* A dup's item is another one. */
		d = assert_ok(dup(s.fd));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, d, EPOLLIN | EPOLLONESHOT, 8));
		assert_true(ep_one(ep, EPOLLIN, 8));
		assert_ok(close(d));
		/* Ready at the MOD: queued at once, for one delivery. */
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | modes[m], 2));
		assert_true(ep_one(ep, EPOLLIN, 2));
		assert_int_equal(ep_count(ep), 0);
		/* Not ready at the MOD: armed for the next. */
		subject_drain(&s);
		assert_ok(raw_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | modes[m], 3));
		assert_int_equal(ep_count(ep), 0);
		subject_fill(&s);
		assert_true(ep_one(ep, EPOLLIN, 3));
		assert_int_equal(ep_count(ep), 0);
		close(ep);
		subject_close(&s);
	}
}
KIND_TESTS(EP_MOD_05_only_mod_rearms_oneshot)

static void EP_MOD_05_hangup_does_not_rearm(void **state)
{
	struct subject p = subject_ready(KIND_PIPE), u = subject_ready(KIND_SOCKET);
	int ep = ep_new();

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p.fd, EPOLLIN | EPOLLONESHOT, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, u.fd, EPOLLIN | EPOLLONESHOT, 2));
	assert_true(ep_order(ep, 2, 1, 2));
	close(p.peer);
	close(u.peer);
	assert_int_equal(ep_count(ep), 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, p.fd, EPOLLONESHOT, 3));
	assert_true(ep_one(ep, EPOLLHUP, 3));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, u.fd, EPOLLONESHOT, 4));
	assert_true(ep_one(ep, EPOLLHUP, 4));
	assert_int_equal(ep_count(ep), 0);
	close(p.fd);
	close(u.fd);
	close(ep);
}

static void EP_MOD_06_place_among_the_callbacks_stays(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new(), b = assert_ok(dup(s.fd)), c = assert_ok(dup(s.fd));

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b, EPOLLIN | EPOLLET, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, c, EPOLLIN | EPOLLET, 3));
	subject_fill(&s);
	assert_true(ep_order(ep, 3, 3, 2, 1));
	subject_drain(&s);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLET, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, b, EPOLLIN, 2));
	subject_fill(&s);
	assert_true(ep_order(ep, 3, 3, 2, 1));
	/* DEL and ADD, on the other hand, make a new callback. */
	subject_drain(&s);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 1));
	assert_int_equal(ep_count(ep), 0);
	subject_fill(&s);
	assert_true(ep_order(ep, 3, 1, 3, 2));
	close(b);
	close(c);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_MOD_06_place_among_the_callbacks_stays)

/* Exclusive callbacks stand in a line of their own, oldest first. */
static void EP_MOD_06_exclusive_is_not_turned_on_or_off(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new(), d = assert_ok(dup(s.fd));

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, d, EPOLLIN | EPOLLET, 2));
	assert_errno(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLET, 3), EINVAL);
	assert_errno(ep_ctl(ep, EPOLL_CTL_MOD, d, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 4), EINVAL);
	subject_fill(&s);
	assert_true(ep_order(ep, 2, 2, 1));
	subject_drain(&s);
	/* ET was kept by both. */
	assert_int_equal(ep_count(ep), 0);
	assert_errno(raw_ctl(ep, EPOLL_CTL_MOD, s.fd, 0, 3), EINVAL);
	subject_fill(&s);
	assert_true(ep_order(ep, 2, 2, 1));
	close(d);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_MOD_06_exclusive_is_not_turned_on_or_off)

#define RACE_MS 1500

/* The mask begins to ask for IN just when IN comes. */
static void EP_MOD_07_change_during_mod_is_not_lost(enum kind kind)
{
	struct race *r = race_new(kind);
	int64_t end = now_ms() + RACE_MS;
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, r->s.fd, EPOLLET, 0));
	for (int i = 1; i <= 2000 && (i == 1 || now_ms() < end); i++) {
		race_go(r, i);
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, r->s.fd, EPOLLIN | EPOLLET, (uint64_t)i));
		race_wait(r, i);
		assert_true(ep_one(ep, EPOLLIN, (uint64_t)i));
		assert_int_equal(ep_count(ep), 0);
		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, r->s.fd, EPOLLET, 0));
		subject_drain(&r->s);
		assert_int_equal(ep_count(ep), 0);
	}
	race_end(r);
	close(ep);
}
KIND_TESTS(EP_MOD_07_change_during_mod_is_not_lost)

/*
 * The usual use of ONESHOT: two threads wait, take what there is and re-arm,
 * while the writer does not wait for them. What is written last must be seen.
 */
struct rearm {
	int ep;
	struct subject s;
	struct subject stop;
	uint64_t taken;
	int wrong;
};

static void *rearm_main(void *arg)
{
	struct rearm *r = arg;

	for (;;) {
		struct epoll_event ev;
		char buf[512];
		uint64_t v;
		ssize_t n;

		if (epoll_wait(r->ep, &ev, 1, -1) != 1) {
			__atomic_add_fetch(&r->wrong, 1, __ATOMIC_RELAXED);
			return NULL;
		}
		if (ev.data.u64 == 2)
			return NULL;
		/* One read only: what is left must be reported after the MOD. */
		if (r->s.kind == KIND_EVENTFD) {
			n = read(r->s.fd, &v, sizeof(v));
			v = n == (ssize_t)sizeof(v) ? v : 0;
		} else {
			n = read(r->s.fd, buf, 3);
			v = n > 0 ? (uint64_t)n : 0;
		}
		__atomic_add_fetch(&r->taken, v, __ATOMIC_ACQ_REL);
		if (ep_ctl(r->ep, EPOLL_CTL_MOD, r->s.fd, EPOLLIN | EPOLLONESHOT, 1) != 0)
			__atomic_add_fetch(&r->wrong, 1, __ATOMIC_RELAXED);
	}
}

static void rearm_loop(enum kind kind, enum kind stop)
{
	struct rearm *r = calloc(1, sizeof(*r));
	struct test_thread *t = calloc(2, sizeof(*t));
	int64_t end;

	assert_non_null(r);
	assert_non_null(t);
	r->ep = ep_new();
	r->s = subject_new(kind);
	r->stop = subject_new(stop);
	assert_ok(ep_ctl(r->ep, EPOLL_CTL_ADD, r->s.fd, EPOLLIN | EPOLLONESHOT, 1));
	assert_ok(ep_ctl(r->ep, EPOLL_CTL_ADD, r->stop.fd, EPOLLIN, 2));
	for (int i = 0; i < 2; i++)
		thread_start(&t[i], rearm_main, r);
	for (uint64_t sent = 1; sent <= 2000; sent++) {
		subject_fill(&r->s);
		/* Now and then let them go to sleep. */
		if (sent % 16 != 0)
			continue;
		end = now_ms() + SOON_MS;
		while (__atomic_load_n(&r->taken, __ATOMIC_ACQUIRE) != sent) {
			if (now_ms() > end) {
				print_error("%llu of %llu taken\n", (unsigned long long)r->taken,
					    (unsigned long long)sent);
				fail();
			}
			sched_yield();
		}
	}
	subject_fill(&r->stop);
	for (int i = 0; i < 2; i++)
		assert_true(thread_join(&t[i], SOON_MS));
	assert_int_equal(r->wrong, 0);
	close(r->ep);
	subject_close(&r->s);
	subject_close(&r->stop);
	free(r);
	free(t);
}

static void EP_MOD_07_rearm_loop_loses_nothing(enum kind kind)
{
	rearm_loop(kind, kind);
}
KIND_TESTS(EP_MOD_07_rearm_loop_loses_nothing)

static void EP_MOD_07_rearm_loop_on_a_mixed_set(void **state)
{
	(void)state;
	rearm_loop(KIND_EVENTFD, KIND_PIPE);
	rearm_loop(KIND_PIPE, KIND_EVENTFD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		kind_unit_tests(EP_MOD_01_queued_event_has_new_data),
		cmocka_unit_test(EP_MOD_01_queued_event_has_new_mask),
		kind_unit_tests(EP_MOD_01_mode_is_replaced),
		cmocka_unit_test(EP_MOD_01_err_and_hup_are_added),
		kind_unit_tests(EP_MOD_02_same_mask_reports_again),
		kind_unit_tests(EP_MOD_02_ready_item_goes_to_the_tail),
		kind_unit_tests(EP_MOD_02_wakes_one_waiter),
		cmocka_unit_test(EP_MOD_02_wakes_one_waiter_of_a_mixed_set),
		kind_unit_tests(EP_MOD_02_wakes_the_pollers),
		cmocka_unit_test(EP_MOD_02_eventfd_in_and_out),
		kind_unit_tests(EP_MOD_03_queued_item_keeps_its_place),
		kind_unit_tests(EP_MOD_03_mod_of_a_queued_item_wakes_nobody),
		kind_unit_tests(EP_MOD_04_masked_item_is_not_reported),
		kind_unit_tests(EP_MOD_04_masked_item_is_dropped_at_the_next_collection),
		cmocka_unit_test(EP_MOD_04_masked_item_does_not_end_a_wait),
		kind_unit_tests(EP_MOD_05_only_mod_rearms_oneshot),
		cmocka_unit_test(EP_MOD_05_hangup_does_not_rearm),
		kind_unit_tests(EP_MOD_06_place_among_the_callbacks_stays),
		kind_unit_tests(EP_MOD_06_exclusive_is_not_turned_on_or_off),
		kind_unit_tests(EP_MOD_07_change_during_mod_is_not_lost),
		kind_unit_tests(EP_MOD_07_rearm_loop_loses_nothing),
		cmocka_unit_test(EP_MOD_07_rearm_loop_on_a_mixed_set),
	};

	return run_group(tests);
}
