/* SPDX-License-Identifier: MIT */
/* EP-ADD: EPOLL_CTL_ADD. */
#include "waiting.h"

#include <sys/stat.h>

/* Whether a line of the epoll's fdinfo shows this interest for this number. */
static bool info_shows(int ep, int tfd, uint32_t events)
{
	char want[64], info[INFO_MAX];

	snprintf(want, sizeof(want), "tfd: %8d events: %8x ", tfd, events);
	info_read(ep, info);
	return strstr(info, want) != NULL;
}

/* The flags, which are not poll bits. */
#define FLAGS ((uint32_t)(EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE | EPOLLWAKEUP))

static void EP_ADD_01_interest_is_stored_as_given(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new();

	for (int i = 0; i < 32; i++) {
		uint32_t bit = (uint32_t)1 << i;

		/* EP-WKU-01 lets this one be dropped. */
		if (bit == EPOLLWAKEUP)
			continue;
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, bit, 1));
		assert_true(info_shows(ep, s.fd, bit | EPOLLERR | EPOLLHUP));
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	}
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, ~FLAGS, 1));
	assert_true(info_shows(ep, s.fd, ~FLAGS));
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_ADD_01_interest_is_stored_as_given)

/* What a file that is ready reports of a mask: what it is, as far as asked for. */
static void EP_ADD_01_unknown_bits_are_not_reported(enum kind kind)
{
	struct subject s = subject_ready(kind);
	struct pollfd p = {.fd = s.fd, .events = -1};
	int ep = ep_new();
	uint32_t state;

	assert_int_equal(poll(&p, 1, 0), 1);
	state = (uint32_t)p.revents;
	for (int i = 0; i < 32; i++) {
		uint32_t bit = (uint32_t)1 << i;

		if (bit & FLAGS)
			continue;
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | bit, 1));
		assert_true(ep_one(ep, (EPOLLIN | bit) & state, 1));
		assert_ok(raw_ctl(ep, EPOLL_CTL_MOD, s.fd, bit, 1));
		if (bit & state)
			assert_true(ep_one(ep, bit, 1));
		else
			assert_int_equal(ep_count(ep), 0);
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	}
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, ~FLAGS, 1));
	assert_true(ep_one(ep, state, 1));
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_ADD_01_unknown_bits_are_not_reported)

static void EP_ADD_01_data_is_opaque(enum kind kind)
{
	static const uint64_t values[] = {0,
					  1,
					  UINT32_MAX,
					  (uint64_t)UINT32_MAX + 1,
					  INT64_MAX,
					  (uint64_t)1 << 63,
					  UINT64_MAX - 1,
					  UINT64_MAX,
					  0xdeadbeefcafef00d};
	struct subject s = subject_ready(kind), other = subject_ready(KIND_PIPE);
	int ep = ep_new();

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct epoll_event ev[4];

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, values[i]));
		assert_true(ep_one(ep, EPOLLIN, values[i]));
		/* Several items may carry the same. */
		assert_ok(raw_ctl(ep, EPOLL_CTL_ADD, other.fd, EPOLLIN, values[i]));
		assert_int_equal(ep_poll(ep, ev, 4), 2);
		assert_int_equal(ev[0].data.u64, values[i]);
		assert_int_equal(ev[1].data.u64, values[i]);
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, other.fd, 0, 0));
	}
	close(ep);
	subject_close(&s);
	subject_close(&other);
}
KIND_TESTS(EP_ADD_01_data_is_opaque)

static void EP_ADD_02_empty_interest_reports_nothing_else(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, 0, 1));
	assert_int_equal(ep_count(ep), 0);
	subject_fill(&s);
	assert_int_equal(ep_count(ep), 0);
	subject_drain(&s);
	assert_int_equal(ep_count(ep), 0);
	/* It is an item all the same. */
	assert_errno(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1), EEXIST);
	subject_fill(&s);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, 2));
	assert_true(ep_one(ep, EPOLLIN, 2));
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_ADD_02_empty_interest_reports_nothing_else)

static void EP_ADD_02_empty_interest_reports_err_and_hup(void **state)
{
	struct subject r = subject_new(KIND_PIPE), w = subject_new(KIND_PIPE);
	struct subject u = subject_new(KIND_SOCKET);
	int ep = ep_new(), e = efd_new(1, EFD_NONBLOCK);

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, r.fd, 0, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, w.peer, 0, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, u.fd, EPOLLET, 3));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, 0, 4));
	assert_int_equal(ep_count(ep), 0);
	assert_ok(close(r.peer));
	assert_true(ep_one(ep, EPOLLHUP, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, r.fd, 0, 0));
	assert_ok(close(w.fd));
	assert_true(ep_one(ep, EPOLLERR, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, w.peer, 0, 0));
	assert_ok(close(u.peer));
	assert_true(ep_one(ep, EPOLLHUP, 3));
	assert_int_equal(ep_count(ep), 0);
	close(r.fd);
	close(w.peer);
	close(u.fd);
	close(e);
	close(ep);
}

/* The three modes; each queues a file that is ready at ADD. */
static const uint32_t modes[] = {0, EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
#define MODES (sizeof(modes) / sizeof(modes[0]))

static void EP_ADD_03_ready_file_goes_to_the_tail(enum kind kind)
{
	struct subject s[4];
	int ep = ep_new();

	for (int i = 0; i < 4; i++)
		s[i] = subject_ready(kind);
	for (size_t m = 0; m < MODES; m++) {
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[2].fd, EPOLLIN | modes[m], 2));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[0].fd, EPOLLIN | modes[m], 0));
		assert_ok(raw_ctl(ep, EPOLL_CTL_ADD, s[3].fd, EPOLLIN | modes[m], 3));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[1].fd, EPOLLIN | modes[m], 1));
		assert_true(ep_order(ep, 4, 2, 0, 3, 1));
		for (int i = 0; i < 4; i++)
			assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s[i].fd, 0, 0));
	}
	for (int i = 0; i < 4; i++)
		subject_close(&s[i]);
	close(ep);
}
KIND_TESTS(EP_ADD_03_ready_file_goes_to_the_tail)

static void EP_ADD_03_ready_mixed_set(void **state)
{
	struct subject e = subject_ready(KIND_EVENTFD), p = subject_ready(KIND_PIPE);
	struct subject u = subject_ready(KIND_SOCKET), quiet = subject_new(KIND_EVENTFD);

	(void)state;
	for (size_t m = 0; m < MODES; m++) {
		int ep = ep_new();

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p.fd, EPOLLIN | modes[m], 1));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, quiet.fd, EPOLLIN | modes[m], 2));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e.fd, EPOLLIN | modes[m], 3));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, u.fd, EPOLLIN | modes[m], 4));
		assert_true(ep_set(ep, 3, 1, 3, 4));
		if (modes[m] == 0)
			assert_true(ep_set(ep, 3, 1, 3, 4));
		else
			assert_int_equal(ep_count(ep), 0);
		close(ep);
	}
	subject_close(&e);
	subject_close(&p);
	subject_close(&u);
	subject_close(&quiet);
}

/* The waiters sleep on a set that holds bystander, which decides how they do. */
static void add_wakes_one_waiter(enum kind kind, enum kind bystander, uint32_t mode)
{
	struct subject s = subject_ready(kind), b = subject_new(bystander);
	int ep = ep_new();
	struct waiter *w[2];

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.fd, EPOLLIN, 9));
	for (int i = 0; i < 2; i++)
		w[i] = waiter_new(ep, 8);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | mode, 1));
	waiter_got(w[1], EPOLLIN, 1);
	assert_true(waiter_sleeps(w[0]));
	assert_int_equal(ep_count(ep), 0);
	waiter_stop(w[0]);
	close(ep);
	subject_close(&s);
	subject_close(&b);
}

static void EP_ADD_03_ready_file_wakes_one_waiter(enum kind kind)
{
	for (size_t m = 1; m < MODES; m++)
		add_wakes_one_waiter(kind, kind, modes[m]);
}
KIND_TESTS(EP_ADD_03_ready_file_wakes_one_waiter)

static void EP_ADD_03_ready_file_wakes_one_waiter_of_a_mixed_set(void **state)
{
	(void)state;
	for (size_t m = 1; m < MODES; m++) {
		add_wakes_one_waiter(KIND_EVENTFD, KIND_PIPE, modes[m]);
		add_wakes_one_waiter(KIND_EVENTFD, KIND_SOCKET, modes[m]);
		add_wakes_one_waiter(KIND_PIPE, KIND_EVENTFD, modes[m]);
		add_wakes_one_waiter(KIND_SOCKET, KIND_EVENTFD, modes[m]);
	}
}

/* From an empty set, where an implementation may sleep in another way still. */
static void EP_ADD_03_ready_file_wakes_a_waiter_of_an_empty_set(enum kind kind)
{
	for (size_t m = 0; m < MODES; m++) {
		struct subject s = subject_ready(kind);
		int ep = ep_new();
		struct waiter *w = waiter_new(ep, 8);

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | modes[m], 1));
		waiter_got(w, EPOLLIN, 1);
		close(ep);
		subject_close(&s);
	}
}
KIND_TESTS(EP_ADD_03_ready_file_wakes_a_waiter_of_an_empty_set)

static void EP_ADD_03_file_that_is_not_ready_wakes_nobody(enum kind kind)
{
	struct subject s = subject_new(kind), t = subject_ready(kind);
	int ep = ep_new();
	struct waiter *w = waiter_new(ep, 8), *p = poller_new(ep);

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, t.fd, EPOLLPRI, 2));
	assert_true(waiter_sleeps(w));
	assert_true(waiter_sleeps(p));
	subject_fill(&s);
	waiter_got(w, EPOLLIN, 1);
	poller_got_in(p);
	close(ep);
	subject_close(&s);
	subject_close(&t);
}
KIND_TESTS(EP_ADD_03_file_that_is_not_ready_wakes_nobody)

static void EP_ADD_03_ready_file_wakes_the_pollers(enum kind kind)
{
	for (size_t m = 0; m < MODES; m++) {
		struct subject s = subject_ready(kind), t = subject_ready(kind);
		int ep = ep_new(), outer = ep_new();
		struct waiter *p, *w;

		assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN | EPOLLET, 5));
		p = poller_new(ep);
		w = waiter_new(outer, 8);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | modes[m], 1));
		poller_got_in(p);
		waiter_got(w, EPOLLIN, 5);
		/* Each ADD that queues is an edge of the epoll. */
		assert_int_equal(ep_count(outer), 0);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, t.fd, EPOLLIN | modes[m], 2));
		assert_true(ep_one(outer, EPOLLIN, 5));
		assert_true(ep_order(ep, 2, 1, 2));
		close(ep);
		close(outer);
		subject_close(&s);
		subject_close(&t);
	}
}
KIND_TESTS(EP_ADD_03_ready_file_wakes_the_pollers)

static void EP_ADD_03_writable_eventfd_is_ready(void **state)
{
	int ep = ep_new(), e = efd_new(0, EFD_NONBLOCK);
	struct waiter *w;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN | EPOLLOUT | EPOLLET, 1));
	assert_true(ep_one(ep, EPOLLOUT, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, e, 0, 0));
	efd_add(e, UINT64_MAX - 1);
	w = waiter_new(ep, 8);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLOUT, 2));
	assert_true(waiter_sleeps(w));
	assert_int_equal(efd_take(e), UINT64_MAX - 1);
	waiter_got(w, EPOLLOUT, 2);
	close(ep);
	close(e);
}

#define RACES 2000
#define RACE_MS 1500

static void EP_ADD_04_change_during_add_is_not_lost(enum kind kind)
{
	struct race *r = race_new(kind);
	int64_t end = now_ms() + RACE_MS;
	int ep = ep_new();

	for (int i = 1; i <= RACES && (i == 1 || now_ms() < end); i++) {
		/* ET: nothing but ADD or the callback can report it. */
		race_go(r, i);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, r->s.fd, EPOLLIN | EPOLLET, (uint64_t)i));
		race_wait(r, i);
		assert_true(ep_one(ep, EPOLLIN, (uint64_t)i));
		assert_int_equal(ep_count(ep), 0);
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, r->s.fd, 0, 0));
		subject_drain(&r->s);
	}
	race_end(r);
	close(ep);
}
KIND_TESTS(EP_ADD_04_change_during_add_is_not_lost)

/* The same, and the one who must learn of it sleeps. */
static void add_races_with_sleeper(enum kind kind, enum kind bystander)
{
	struct race *r = race_new(kind);
	struct subject b = subject_new(bystander);
	int64_t end = now_ms() + RACE_MS / 2;
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.fd, EPOLLIN, UINT64_MAX));
	for (int i = 1; i <= 200 && (i == 1 || now_ms() < end); i++) {
		struct waiter *w = waiter_new(ep, 8);

		race_go(r, i);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, r->s.fd, EPOLLIN | EPOLLET, (uint64_t)i));
		race_wait(r, i);
		waiter_got(w, EPOLLIN, (uint64_t)i);
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, r->s.fd, 0, 0));
		subject_drain(&r->s);
	}
	race_end(r);
	close(ep);
	subject_close(&b);
}

static void EP_ADD_04_change_during_add_wakes(enum kind kind)
{
	add_races_with_sleeper(kind, kind);
}
KIND_TESTS(EP_ADD_04_change_during_add_wakes)

static void EP_ADD_04_change_during_add_wakes_on_a_mixed_set(void **state)
{
	(void)state;
	add_races_with_sleeper(KIND_EVENTFD, KIND_PIPE);
	add_races_with_sleeper(KIND_PIPE, KIND_EVENTFD);
}

static void EP_ADD_05_pending_data_is_one_edge(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int ep = ep_new();

	for (int i = 0; i < 3; i++) {
		subject_fill(&s);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, (uint64_t)i));
		assert_true(ep_one(ep, EPOLLIN, (uint64_t)i));
		assert_int_equal(ep_count(ep), 0);
		subject_fill(&s);
		assert_true(ep_one(ep, EPOLLIN, (uint64_t)i));
		assert_int_equal(ep_count(ep), 0);
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	}
	/* Data that are gone before the wait leave no event. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 9));
	subject_drain(&s);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_ADD_05_pending_data_is_one_edge)

static void EP_ADD_06_file_with_two_queues_is_one_item(void **state)
{
	char dir[] = "/tmp/ep_add.XXXXXX", path[64], buf[4096];
	int ep = ep_new(), e = efd_new(0, EFD_NONBLOCK), fd;

	(void)state;
	memset(buf, 'x', sizeof(buf));
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/fifo", dir);
	assert_ok(mkfifo(path, 0600));
	fd = assert_ok(open(path, O_RDWR | O_NONBLOCK));
	unlink(path);
	rmdir(dir);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN | EPOLLET, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLOUT | EPOLLET, 1));
	assert_errno(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1), EEXIST);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	/* The queue of readers. */
	assert_int_equal(assert_ok(write(fd, "x", 1)), 1);
	assert_true(ep_one(ep, EPOLLIN | EPOLLOUT, 1));
	assert_int_equal(ep_count(ep), 0);
	while (write(fd, buf, sizeof(buf)) > 0 || write(fd, buf, 1) > 0)
		;
	assert_int_equal(errno, EAGAIN);
	assert_true(ep_one(ep, EPOLLIN, 1));
	/* The queue of writers. */
	while (read(fd, buf, sizeof(buf)) > 0)
		;
	assert_int_equal(errno, EAGAIN);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	assert_int_equal(ep_count(ep), 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, fd, 0, 0));
	assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, fd, 0, 0), ENOENT);
	assert_int_equal(assert_ok(write(fd, "x", 1)), 1);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
	close(e);
	close(fd);
}

static void EP_ADD_07_watch_limit_is_enospc(void **state)
{
	(void)state;
	print_message("skipped: lowering max_user_watches would disturb the machine\n");
	skip();
}

static void EP_ADD_09_dups_are_items_of_their_own(enum kind kind)
{
	struct subject s = subject_new(kind);
	int a = s.fd, b = assert_ok(dup(a)), c = assert_ok(fcntl(a, F_DUPFD_CLOEXEC, 70));
	int ep = ep_new();
	struct epoll_event ev[4];

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b, EPOLLIN | EPOLLET, 2));
	assert_ok(raw_ctl(ep, EPOLL_CTL_ADD, c, EPOLLIN | EPOLLONESHOT, 3));
	assert_errno(ep_ctl(ep, EPOLL_CTL_ADD, b, EPOLLIN, 4), EEXIST);
	subject_fill(&s);
	assert_true(ep_set(ep, 3, 1, 2, 3));
	/* LT stays, ET and ONESHOT are silent. */
	assert_true(ep_one(ep, EPOLLIN, 1));
	subject_fill(&s);
	assert_true(ep_set(ep, 2, 1, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, c, EPOLLIN | EPOLLONESHOT, 5));
	assert_true(ep_set(ep, 2, 1, 5));
	/* DEL of one of them and a mask of its own. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, a, 0, 0));
	assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, a, 0, 0), ENOENT);
	assert_int_equal(ep_count(ep), 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, c, 0, 6));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, b, EPOLLIN, 7));
	assert_int_equal(ep_poll(ep, ev, 4), 1);
	assert_int_equal(ev[0].data.u64, 7);
	/* Closing one number leaves the items of the others. */
	assert_ok(close(c));
	assert_true(ep_one(ep, EPOLLIN, 7));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, b, EPOLLIN, 8));
	assert_true(ep_one(ep, EPOLLIN, 8));
	close(b);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_ADD_09_dups_are_items_of_their_own)

static void EP_ADD_09_dup_made_before_the_first_add(enum kind kind)
{
	struct subject s = subject_new(kind);
	int d = assert_ok(dup(s.fd)), ep = ep_new();

	assert_ok(close(s.fd));
	if (s.peer == s.fd)
		s.peer = d;
	s.fd = d;
	subject_fill(&s);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, d, EPOLLIN, 1));
	assert_true(ep_one(ep, EPOLLIN, 1));
	subject_drain(&s);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_ADD_09_dup_made_before_the_first_add)

static void EP_ADD_10_item_does_not_keep_the_file(void **state)
{
	struct subject p = subject_new(KIND_PIPE), u = subject_new(KIND_SOCKET);
	int ep = ep_new();
	char c;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p.peer, EPOLLOUT, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, u.fd, EPOLLOUT, 2));
	assert_ok(close(p.peer));
	assert_ok(close(u.fd));
	/* The other end sees that the file is gone. */
	assert_int_equal(read(p.fd, &c, 1), 0);
	assert_int_equal(read(u.peer, &c, 1), 0);
	assert_int_equal(ep_count(ep), 0);
	close(p.fd);
	close(u.peer);
	close(ep);
}

static void EP_ADD_10_close_without_del_leaves_nothing(enum kind kind)
{
	int ep = ep_new(), first = fd_closed();

	for (int i = 0; i < 3000; i++) {
		struct subject s = subject_ready(kind);

		assert_int_equal(s.fd, first);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | modes[i % 4], (uint64_t)i));
		if (i % 3 == 0)
			assert_true(ep_one(ep, EPOLLIN, (uint64_t)i));
		subject_close(&s);
		if (i % 5 == 0)
			assert_int_equal(ep_count(ep), 0);
	}
	assert_int_equal(ep_count(ep), 0);
	assert_int_equal(fd_closed(), first);
	close(ep);
}
KIND_TESTS(EP_ADD_10_close_without_del_leaves_nothing)

/* The charge of an item (EP-ADD-08) would show as ENOSPC if it were kept. */
static void EP_ADD_08_many_items_come_and_go(enum kind kind)
{
	enum { MANY = 300 };
	struct subject s = subject_new(kind);
	int d[MANY];

	for (int i = 0; i < MANY; i++)
		d[i] = assert_ok(dup(s.fd));
	for (int round = 0; round < 30; round++) {
		int ep = ep_new();

		for (int i = 0; i < MANY; i++)
			assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, d[i], EPOLLIN | EPOLLET, (uint64_t)i));
		if (round % 2 == 0) {
			for (int i = 0; i < MANY; i++)
				assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, d[i], 0, 0));
			subject_fill(&s);
			assert_int_equal(ep_count(ep), 0);
		} else {
			struct epoll_event ev[MANY + 1];

			subject_fill(&s);
			assert_int_equal(epoll_wait(ep, ev, MANY + 1, 0), MANY);
			assert_int_equal(epoll_wait(ep, ev, MANY + 1, 0), 0);
		}
		close(ep);
	}
	for (int i = 0; i < MANY; i++)
		close(d[i]);
	subject_close(&s);
}
KIND_TESTS(EP_ADD_08_many_items_come_and_go)

int main(void)
{
	const struct CMUnitTest tests[] = {
		kind_unit_tests(EP_ADD_01_interest_is_stored_as_given),
		kind_unit_tests(EP_ADD_01_unknown_bits_are_not_reported),
		kind_unit_tests(EP_ADD_01_data_is_opaque),
		kind_unit_tests(EP_ADD_02_empty_interest_reports_nothing_else),
		cmocka_unit_test(EP_ADD_02_empty_interest_reports_err_and_hup),
		kind_unit_tests(EP_ADD_03_ready_file_goes_to_the_tail),
		cmocka_unit_test(EP_ADD_03_ready_mixed_set),
		kind_unit_tests(EP_ADD_03_ready_file_wakes_one_waiter),
		cmocka_unit_test(EP_ADD_03_ready_file_wakes_one_waiter_of_a_mixed_set),
		kind_unit_tests(EP_ADD_03_ready_file_wakes_a_waiter_of_an_empty_set),
		kind_unit_tests(EP_ADD_03_file_that_is_not_ready_wakes_nobody),
		kind_unit_tests(EP_ADD_03_ready_file_wakes_the_pollers),
		cmocka_unit_test(EP_ADD_03_writable_eventfd_is_ready),
		kind_unit_tests(EP_ADD_04_change_during_add_is_not_lost),
		kind_unit_tests(EP_ADD_04_change_during_add_wakes),
		cmocka_unit_test(EP_ADD_04_change_during_add_wakes_on_a_mixed_set),
		kind_unit_tests(EP_ADD_05_pending_data_is_one_edge),
		cmocka_unit_test(EP_ADD_06_file_with_two_queues_is_one_item),
		cmocka_unit_test(EP_ADD_07_watch_limit_is_enospc),
		kind_unit_tests(EP_ADD_08_many_items_come_and_go),
		kind_unit_tests(EP_ADD_09_dups_are_items_of_their_own),
		kind_unit_tests(EP_ADD_09_dup_made_before_the_first_add),
		cmocka_unit_test(EP_ADD_10_item_does_not_keep_the_file),
		kind_unit_tests(EP_ADD_10_close_without_del_leaves_nothing),
	};

	return run_group(tests);
}
