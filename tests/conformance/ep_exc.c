/* SPDX-License-Identifier: MIT */
/* EP-EXC: EPOLLEXCLUSIVE. */
#include "waiting.h"

#define EXC ((uint32_t)EPOLLEXCLUSIVE)
#define ET ((uint32_t)EPOLLET)

/* A new epoll with an exclusive item for the subject. */
static int exc_new(const struct subject *s, uint32_t events, uint64_t data)
{
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s->fd, events | EXC, data));
	return ep;
}

static void EP_EXC_01_allowed_sets(enum kind kind)
{
	static const uint32_t bits[] = {EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP, ET, EPOLLWAKEUP};
	struct subject s = subject_new(kind);
	int ep = ep_new();

	for (int set = 0; set < 64; set++) {
		uint32_t events = EXC;

		for (int i = 0; i < 6; i++)
			events |= set & (1 << i) ? bits[i] : 0;
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, events, (uint64_t)set));
		assert_errno(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, events, 0), EEXIST);
		subject_fill(&s);
		if (events & EPOLLIN)
			assert_int_equal(ep_count(ep), 1);
		else if (!(events & EPOLLOUT))
			assert_int_equal(ep_count(ep), 0);
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
		subject_drain(&s);
	}
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_EXC_01_allowed_sets)

static void EP_EXC_01_alone_reports_err_and_hup_only(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int ep = exc_new(&s, 0, 1);

	assert_int_equal(ep_count(ep), 0);
	subject_fill(&s);
	subject_drain(&s);
	assert_int_equal(ep_count(ep), 0);
	if (s.peer != s.fd) {
		close(s.peer);
		s.peer = -1;
		assert_true(ep_one(ep, EPOLLHUP, 1));
	}
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_EXC_01_alone_reports_err_and_hup_only)

static void EP_EXC_01_level_and_edge(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int lt = exc_new(&s, EPOLLIN, 1), et = exc_new(&s, EPOLLIN | ET, 2);

	for (int i = 0; i < 3; i++)
		assert_true(ep_one(lt, EPOLLIN, 1));
	assert_true(ep_one(et, EPOLLIN, 2));
	assert_int_equal(ep_count(et), 0);
	subject_fill(&s);
	assert_true(ep_one(et, EPOLLIN, 2));
	assert_int_equal(ep_count(et), 0);
	subject_drain(&s);
	assert_int_equal(ep_count(lt), 0);
	close(lt);
	close(et);
	subject_close(&s);
}
KIND_TESTS(EP_EXC_01_level_and_edge)

/* All in one epoll, as dups: the ready list shows the order of the callbacks. */
static void EP_EXC_02_plain_newest_first_then_exclusive_oldest_first(enum kind kind)
{
	static const bool exclusive[] = {true, false, true, false, false, true};
	struct subject s = subject_new(kind);
	int ep = ep_new(), d[6];

	for (int i = 0; i < 6; i++) {
		d[i] = assert_ok(dup(s.fd));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, d[i], EPOLLIN | ET | (exclusive[i] ? EXC : 0),
				 (uint64_t)i));
	}
	for (int round = 0; round < 3; round++) {
		subject_fill(&s);
		assert_true(ep_order(ep, 6, 4, 3, 1, 0, 2, 5));
		assert_int_equal(ep_count(ep), 0);
	}
	/* DEL and ADD go to the end of the one line and the front of the other. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, d[0], 0, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, d[1], 0, 0));
	subject_drain(&s);
	assert_int_equal(ep_count(ep), 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, d[0], EPOLLIN | ET | EXC, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, d[1], EPOLLIN | ET, 1));
	subject_fill(&s);
	assert_true(ep_order(ep, 6, 1, 4, 3, 2, 5, 0));
	for (int i = 0; i < 6; i++)
		close(d[i]);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_EXC_02_plain_newest_first_then_exclusive_oldest_first)

static void EP_EXC_03_stops_at_the_first_success(enum kind kind)
{
	struct subject s = subject_new(kind);
	int before = exc_new(&s, EPOLLIN | ET, 1), hit = exc_new(&s, EPOLLIN | ET, 2);
	int after = exc_new(&s, EPOLLIN | ET, 3), last = exc_new(&s, EPOLLIN, 4);
	int plain = ep_new();
	struct waiter *w;

	assert_ok(ep_ctl(plain, EPOLL_CTL_ADD, s.fd, EPOLLIN | ET, 5));
	w = waiter_new(hit, 8);
	subject_fill(&s);
	waiter_got(w, EPOLLIN, 2);
	/* In line before it, and those that are not in line. */
	assert_true(ep_one(before, EPOLLIN, 1));
	assert_true(ep_one(plain, EPOLLIN, 5));
	/* Behind it nobody was told, level triggered or not. */
	assert_int_equal(ep_count(after), 0);
	assert_int_equal(ep_count(last), 0);
	assert_int_equal(ep_count(hit), 0);
	/* The next one finds nobody asleep and goes through. */
	subject_fill(&s);
	assert_true(ep_one(before, EPOLLIN, 1));
	assert_true(ep_one(hit, EPOLLIN, 2));
	assert_true(ep_one(after, EPOLLIN, 3));
	assert_true(ep_one(last, EPOLLIN, 4));
	assert_true(ep_one(plain, EPOLLIN, 5));
	close(before);
	close(hit);
	close(after);
	close(last);
	close(plain);
	subject_close(&s);
}
KIND_TESTS(EP_EXC_03_stops_at_the_first_success)

/* A plain item with a sleeping waiter is no success that would end the search. */
static void EP_EXC_03_plain_items_do_not_stop_it(enum kind kind)
{
	struct subject s = subject_new(kind);
	int exc = exc_new(&s, EPOLLIN | ET, 1), plain[3];
	struct waiter *w[3], *x = waiter_new(exc, 8);

	for (int i = 0; i < 3; i++) {
		plain[i] = ep_new();
		assert_ok(ep_ctl(plain[i], EPOLL_CTL_ADD, s.fd, EPOLLIN | ET, 2));
		w[i] = waiter_new(plain[i], 8);
	}
	subject_fill(&s);
	for (int i = 0; i < 3; i++) {
		waiter_got(w[i], EPOLLIN, 2);
		close(plain[i]);
	}
	waiter_got(x, EPOLLIN, 1);
	close(exc);
	subject_close(&s);
}
KIND_TESTS(EP_EXC_03_plain_items_do_not_stop_it)

/* The exclusive items are in epolls that hold files of another kind as well. */
static void EP_EXC_03_on_mixed_sets(void **state)
{
	static const enum kind kinds[][2] = {
		{KIND_EVENTFD, KIND_PIPE}, {KIND_EVENTFD, KIND_SOCKET}, {KIND_PIPE, KIND_EVENTFD}};

	(void)state;
	for (size_t k = 0; k < 3; k++) {
		struct subject s = subject_new(kinds[k][0]), b = subject_new(kinds[k][1]);
		int ep[3];
		struct waiter *w[2];

		for (int i = 0; i < 3; i++) {
			ep[i] = exc_new(&s, EPOLLIN | ET, (uint64_t)i);
			assert_ok(ep_ctl(ep[i], EPOLL_CTL_ADD, b.fd, EPOLLIN | ET | EXC, 9));
		}
		w[0] = waiter_new(ep[1], 8);
		w[1] = waiter_new(ep[2], 8);
		subject_fill(&s);
		waiter_got(w[0], EPOLLIN, 1);
		assert_true(waiter_sleeps(w[1]));
		assert_true(ep_one(ep[0], EPOLLIN, 0));
		subject_fill(&b);
		waiter_got(w[1], EPOLLIN, 9);
		assert_true(ep_one(ep[0], EPOLLIN, 9));
		assert_true(ep_one(ep[1], EPOLLIN, 9));
		assert_int_equal(ep_count(ep[2]), 0);
		for (int i = 0; i < 3; i++)
			close(ep[i]);
		subject_close(&s);
		subject_close(&b);
	}
}

/* An eventfd: writes wake with key IN, reads with key OUT. */
static void EP_EXC_04_key_must_fit_the_interest(void **state)
{
	struct subject s = subject_new(KIND_EVENTFD);
	int none = exc_new(&s, ET, 1), out = exc_new(&s, EPOLLOUT | ET, 2);
	int in = exc_new(&s, EPOLLIN | ET, 3), both = exc_new(&s, EPOLLIN | EPOLLOUT | ET, 4);
	struct waiter *wn, *wo, *wi, *wb;

	(void)state;
	assert_true(ep_one(out, EPOLLOUT, 2));
	assert_true(ep_one(both, EPOLLOUT, 4));
	wn = waiter_new(none, 8);
	wo = waiter_new(out, 8);
	wi = waiter_new(in, 8);
	wb = waiter_new(both, 8);
	/* IN passes over the first two and ends at the third. */
	subject_fill(&s);
	waiter_got(wi, EPOLLIN, 3);
	assert_true(waiter_sleeps(wn));
	assert_true(waiter_sleeps(wo));
	assert_true(waiter_sleeps(wb));
	/* Nobody sleeps in the third any more: IN comes to the fourth. */
	subject_fill(&s);
	waiter_got(wb, EPOLLIN | EPOLLOUT, 4);
	assert_true(ep_one(in, EPOLLIN, 3));
	assert_true(waiter_sleeps(wo));
	/* OUT ends at the second. */
	wb = waiter_new(both, 8);
	efd_take(s.fd);
	waiter_got(wo, EPOLLOUT, 2);
	assert_true(waiter_sleeps(wb));
	assert_true(waiter_sleeps(wn));
	assert_int_equal(ep_count(in), 0);
	subject_fill(&s);
	waiter_got(wb, EPOLLIN | EPOLLOUT, 4);
	waiter_stop(wn);
	close(none);
	close(out);
	close(in);
	close(both);
	subject_close(&s);
}

static void EP_EXC_04_waiter_must_be_asleep_on_it(enum kind kind)
{
	struct subject s = subject_new(kind), other = subject_new(kind);
	int a = exc_new(&s, EPOLLIN | ET, 1), b = exc_new(&s, EPOLLIN | ET, 2);
	struct waiter *w;

	/* A thread that has slept there before does not count. */
	assert_ok(ep_ctl(a, EPOLL_CTL_ADD, other.fd, EPOLLIN | ET, 3));
	w = waiter_new(a, 8);
	subject_fill(&other);
	waiter_got(w, EPOLLIN, 3);
	w = waiter_new(b, 8);
	subject_fill(&s);
	waiter_got(w, EPOLLIN, 2);
	assert_true(ep_one(a, EPOLLIN, 1));
	close(a);
	close(b);
	subject_close(&s);
	subject_close(&other);
}
KIND_TESTS(EP_EXC_04_waiter_must_be_asleep_on_it)

/* One that something else has woken does not count either, though it may not have run yet. */
static void EP_EXC_04_waiter_must_not_be_woken_already(enum kind kind)
{
	for (int other_kind = KIND_EVENTFD; other_kind <= KIND_SOCKET; other_kind++) {
		struct subject s = subject_new(kind), other = subject_new(other_kind);
		int a = exc_new(&s, EPOLLIN | ET, 1), b = exc_new(&s, EPOLLIN | ET, 2);
		struct waiter *wa, *wb;

		assert_ok(ep_ctl(a, EPOLL_CTL_ADD, other.fd, EPOLLIN | ET, 3));
		wa = waiter_new(a, 1);
		wb = waiter_new(b, 8);
		subject_fill(&other);
		subject_fill(&s);
		waiter_got(wa, EPOLLIN, 3);
		waiter_got(wb, EPOLLIN, 2);
		assert_true(ep_one(a, EPOLLIN, 1));
		close(a);
		close(b);
		subject_close(&s);
		subject_close(&other);
	}
}
KIND_TESTS(EP_EXC_04_waiter_must_not_be_woken_already)

/* A change of the pipe's size wakes with no key at all. */
static void EP_EXC_04_key_without_in_and_out(void **state)
{
	struct subject p = subject_new(KIND_PIPE);
	int a = ep_new(), b = ep_new();
	struct waiter *wa, *wb;

	(void)state;
	assert_ok(ep_ctl(a, EPOLL_CTL_ADD, p.peer, EPOLLOUT | ET | EXC, 1));
	assert_ok(ep_ctl(b, EPOLL_CTL_ADD, p.peer, EPOLLOUT | ET | EXC, 2));
	assert_true(ep_one(a, EPOLLOUT, 1));
	assert_true(ep_one(b, EPOLLOUT, 2));
	wa = waiter_new(a, 8);
	wb = waiter_new(b, 8);
	assert_ok(fcntl(p.fd, F_SETPIPE_SZ, 8192));
	waiter_got(wa, EPOLLOUT, 1);
	assert_true(waiter_sleeps(wb));
	assert_int_equal(ep_count(b), 0);
	waiter_stop(wb);
	close(a);
	close(b);
	subject_close(&p);
}

static void EP_EXC_05_without_waiters_all_are_queued(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep[8];

	for (int i = 0; i < 8; i++)
		ep[i] = exc_new(&s, EPOLLIN | (i & 1 ? ET : 0), (uint64_t)i);
	for (int round = 0; round < 3; round++) {
		subject_fill(&s);
		for (int i = 0; i < 8; i++)
			assert_true(ep_one(ep[i], EPOLLIN, (uint64_t)i));
		for (int i = 1; i < 8; i += 2)
			assert_int_equal(ep_count(ep[i]), 0);
	}
	subject_drain(&s);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(ep_count(ep[i]), 0);
		close(ep[i]);
	}
	subject_close(&s);
}
KIND_TESTS(EP_EXC_05_without_waiters_all_are_queued)

static void EP_EXC_05_only_the_last_has_a_waiter(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep[6];
	struct waiter *w;

	for (int i = 0; i < 6; i++)
		ep[i] = exc_new(&s, EPOLLIN | ET, (uint64_t)i);
	w = waiter_new(ep[5], 8);
	subject_fill(&s);
	waiter_got(w, EPOLLIN, 5);
	for (int i = 0; i < 5; i++)
		assert_true(ep_one(ep[i], EPOLLIN, (uint64_t)i));
	assert_int_equal(ep_count(ep[5]), 0);
	for (int i = 0; i < 6; i++)
		close(ep[i]);
	subject_close(&s);
}
KIND_TESTS(EP_EXC_05_only_the_last_has_a_waiter)

static void EP_EXC_06_one_write_wakes_one(enum kind kind)
{
	for (int et = 0; et < 2; et++) {
		struct subject s = subject_new(kind);
		struct waiter *w[4];
		int ep[4];

		for (int i = 0; i < 4; i++)
			ep[i] = exc_new(&s, EPOLLIN | (et ? ET : 0), (uint64_t)i);
		/* The waiters go to sleep in another order than that of ADD. */
		for (int i = 0; i < 4; i++)
			w[(i + 2) % 4] = waiter_new(ep[(i + 2) % 4], 8);
		for (int i = 0; i < 4; i++) {
			subject_fill(&s);
			waiter_got(w[i], EPOLLIN, (uint64_t)i);
			for (int j = i + 1; j < 4; j++)
				assert_true(waiter_sleeps(w[j]));
			if (i < 3)
				assert_int_equal(ep_count(ep[3]), 0);
		}
		for (int i = 0; i < 4; i++)
			close(ep[i]);
		subject_close(&s);
	}
}
KIND_TESTS(EP_EXC_06_one_write_wakes_one)

/* While the first epoll has a sleeper left, it is always the first. */
static void EP_EXC_06_first_epoll_has_several_waiters(enum kind kind)
{
	struct subject s = subject_new(kind);
	int a = exc_new(&s, EPOLLIN | ET, 1), b = exc_new(&s, EPOLLIN | ET, 2);
	struct waiter *w[3];

	w[0] = waiter_new(a, 8);
	w[1] = waiter_new(a, 8);
	w[2] = waiter_new(b, 8);
	subject_fill(&s);
	waiter_got(w[1], EPOLLIN, 1);
	assert_true(waiter_sleeps(w[0]));
	assert_true(waiter_sleeps(w[2]));
	subject_fill(&s);
	waiter_got(w[0], EPOLLIN, 1);
	assert_true(waiter_sleeps(w[2]));
	assert_int_equal(ep_count(b), 0);
	subject_fill(&s);
	waiter_got(w[2], EPOLLIN, 2);
	assert_true(ep_one(a, EPOLLIN, 1));
	close(a);
	close(b);
	subject_close(&s);
}
KIND_TESTS(EP_EXC_06_first_epoll_has_several_waiters)

/* The first is gone: its place in line is gone with it. */
static void EP_EXC_06_after_del_and_close_of_the_first(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep[4];
	struct waiter *w[4];

	for (int i = 0; i < 4; i++) {
		ep[i] = exc_new(&s, EPOLLIN | ET, (uint64_t)i);
		w[i] = waiter_new(ep[i], 8);
	}
	assert_ok(ep_ctl(ep[0], EPOLL_CTL_DEL, s.fd, 0, 0));
	subject_fill(&s);
	waiter_got(w[1], EPOLLIN, 1);
	assert_true(waiter_sleeps(w[0]));
	assert_true(waiter_sleeps(w[2]));
	assert_ok(close(ep[1]));
	assert_ok(ep_ctl(ep[2], EPOLL_CTL_DEL, s.fd, 0, 0));
	subject_fill(&s);
	waiter_got(w[3], EPOLLIN, 3);
	assert_true(waiter_sleeps(w[2]));
	waiter_stop(w[0]);
	waiter_stop(w[2]);
	close(ep[0]);
	close(ep[2]);
	close(ep[3]);
	subject_close(&s);
}
KIND_TESTS(EP_EXC_06_after_del_and_close_of_the_first)

static void EP_EXC_07_pollers_are_told_but_do_not_count(enum kind kind)
{
	struct subject s = subject_new(kind);
	int polled = exc_new(&s, EPOLLIN | ET, 1), inner = exc_new(&s, EPOLLIN | ET, 2);
	int waited = exc_new(&s, EPOLLIN | ET, 3), after = exc_new(&s, EPOLLIN | ET, 4);
	int outer = ep_new();
	struct waiter *p, *o, *w;

	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, inner, EPOLLIN | ET, 5));
	p = poller_new(polled);
	o = waiter_new(outer, 8);
	w = waiter_new(waited, 8);
	subject_fill(&s);
	poller_got_in(p);
	waiter_got(o, EPOLLIN, 5);
	waiter_got(w, EPOLLIN, 3);
	assert_int_equal(ep_count(after), 0);
	assert_true(ep_one(polled, EPOLLIN, 1));
	assert_true(ep_one(inner, EPOLLIN, 2));
	close(polled);
	close(inner);
	close(waited);
	close(after);
	close(outer);
	subject_close(&s);
}
KIND_TESTS(EP_EXC_07_pollers_are_told_but_do_not_count)

/* A poller beside a waiter on one epoll: both are told, and it is a success. */
static void EP_EXC_07_poller_beside_a_waiter(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = exc_new(&s, EPOLLIN, 1), after = exc_new(&s, EPOLLIN, 2);
	struct waiter *p = poller_new(ep), *w = waiter_new(ep, 8);

	subject_fill(&s);
	poller_got_in(p);
	waiter_got(w, EPOLLIN, 1);
	assert_int_equal(ep_count(after), 0);
	close(ep);
	close(after);
	subject_close(&s);
}
KIND_TESTS(EP_EXC_07_poller_beside_a_waiter)

enum ending { CLOSE_PIPE, CLOSE_SOCKET, SHUTDOWN_SOCKET };

static void wake_for_all(enum ending how)
{
	struct subject s = subject_new(how == CLOSE_PIPE ? KIND_PIPE : KIND_SOCKET);
	const uint32_t want = how == CLOSE_PIPE	    ? EPOLLHUP
			      : how == CLOSE_SOCKET ? EPOLLIN | EPOLLHUP
						    : EPOLLIN;
	int quiet = efd_new(0, EFD_NONBLOCK);
	struct waiter *w[4];
	int ep[5];

	for (int i = 0; i < 5; i++) {
		ep[i] = exc_new(&s, EPOLLIN | (i & 1 ? ET : 0), (uint64_t)i);
		/* Half of them are mixed sets. */
		if (i & 2)
			assert_ok(ep_ctl(ep[i], EPOLL_CTL_ADD, quiet, EPOLLIN | EXC, 9));
	}
	for (int i = 0; i < 4; i++)
		w[i] = waiter_new(ep[i], 8);
	if (how == SHUTDOWN_SOCKET)
		assert_ok(shutdown(s.peer, SHUT_WR));
	else
		assert_ok(close(s.peer));
	for (int i = 0; i < 4; i++)
		waiter_got(w[i], want, (uint64_t)i);
	assert_true(ep_one(ep[4], want, 4));
	for (int i = 0; i < 5; i++)
		close(ep[i]);
	close(quiet);
	close(s.fd);
	if (how == SHUTDOWN_SOCKET)
		close(s.peer);
}

static void EP_EXC_08_close_and_shutdown_are_for_all(void **state)
{
	(void)state;
	wake_for_all(CLOSE_PIPE);
	wake_for_all(CLOSE_SOCKET);
	wake_for_all(SHUTDOWN_SOCKET);
}

struct reader {
	struct test_thread t;
	int fd;
	ssize_t n;
};

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	char c;

	r->n = read(r->fd, &c, 1);
	return NULL;
}

static struct reader *reader_new(int fd)
{
	struct reader *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->fd = fd;
	thread_start(&r->t, reader_main, r);
	assert_true(thread_asleep(&r->t));
	return r;
}

static void reader_got(struct reader *r)
{
	assert_true(thread_join(&r->t, SOON_MS));
	assert_int_equal(r->n, 1);
	free(r);
}

static bool reader_sleeps(struct reader *r)
{
	sleep_ms(QUIET_MS);
	return thread_asleep(&r->t);
}

/* A blocking pipe. */
static struct subject blocking_pipe(void)
{
	struct subject p = {.kind = KIND_PIPE};
	int fd[2];

	assert_ok(pipe2(fd, 0));
	p.fd = fd[0];
	p.peer = fd[1];
	return p;
}

static void EP_EXC_09_reader_is_before_the_item(void **state)
{
	struct subject p = blocking_pipe();
	struct reader *r = reader_new(p.fd);
	int ep = exc_new(&p, EPOLLIN | ET, 1);
	struct waiter *w = waiter_new(ep, 8);

	(void)state;
	subject_fill(&p);
	reader_got(r);
	assert_true(waiter_sleeps(w));
	/* What the reader leaves is for the next in line. */
	r = reader_new(p.fd);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, p.fd, 0, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p.fd, EPOLLIN | ET | EXC, 2));
	assert_int_equal(write(p.peer, "xy", 2), 2);
	reader_got(r);
	waiter_got(w, EPOLLIN, 2);
	close(ep);
	subject_close(&p);
}

static void EP_EXC_09_item_is_before_the_reader(void **state)
{
	struct subject p = blocking_pipe();
	int ep = exc_new(&p, EPOLLIN | ET, 1);
	struct waiter *w = waiter_new(ep, 8);
	struct reader *r = reader_new(p.fd);

	(void)state;
	subject_fill(&p);
	waiter_got(w, EPOLLIN, 1);
	assert_true(reader_sleeps(r));
	/* Nobody sleeps in the epoll now, so the next write reaches the reader. */
	subject_fill(&p);
	reader_got(r);
	close(ep);
	subject_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		kind_unit_tests(EP_EXC_01_allowed_sets),
		kind_unit_tests(EP_EXC_01_alone_reports_err_and_hup_only),
		kind_unit_tests(EP_EXC_01_level_and_edge),
		kind_unit_tests(EP_EXC_02_plain_newest_first_then_exclusive_oldest_first),
		kind_unit_tests(EP_EXC_03_stops_at_the_first_success),
		kind_unit_tests(EP_EXC_03_plain_items_do_not_stop_it),
		cmocka_unit_test(EP_EXC_03_on_mixed_sets),
		cmocka_unit_test(EP_EXC_04_key_must_fit_the_interest),
		kind_unit_tests(EP_EXC_04_waiter_must_be_asleep_on_it),
		kind_unit_tests(EP_EXC_04_waiter_must_not_be_woken_already),
		cmocka_unit_test(EP_EXC_04_key_without_in_and_out),
		kind_unit_tests(EP_EXC_05_without_waiters_all_are_queued),
		kind_unit_tests(EP_EXC_05_only_the_last_has_a_waiter),
		kind_unit_tests(EP_EXC_06_one_write_wakes_one),
		kind_unit_tests(EP_EXC_06_first_epoll_has_several_waiters),
		kind_unit_tests(EP_EXC_06_after_del_and_close_of_the_first),
		kind_unit_tests(EP_EXC_07_pollers_are_told_but_do_not_count),
		kind_unit_tests(EP_EXC_07_poller_beside_a_waiter),
		cmocka_unit_test(EP_EXC_08_close_and_shutdown_are_for_all),
		cmocka_unit_test(EP_EXC_09_reader_is_before_the_item),
		cmocka_unit_test(EP_EXC_09_item_is_before_the_reader),
	};

	return run_group(tests);
}
