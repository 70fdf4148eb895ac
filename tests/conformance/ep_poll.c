/* SPDX-License-Identifier: MIT */
/* The readiness of the epoll fd itself, for poll, select and outer epolls. */
#include "waiting.h"

#include <sched.h>

static int poll_now(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	int n = poll(&p, 1, 0);

	assert_int_equal(n, p.revents != 0);
	return p.revents;
}

static int ppoll_now(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	struct timespec zero = {0};
	int n = ppoll(&p, 1, &zero, NULL);

	assert_int_equal(n, p.revents != 0);
	return p.revents;
}

static int raw_ppoll_now(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	struct timespec zero = {0};
	int n = (int)syscall(SYS_ppoll, &p, 1, &zero, NULL, (size_t)8);

	assert_int_equal(n, p.revents != 0);
	return p.revents;
}

/* The sets in which fd is ready: 1 readable, 2 writable, 4 exceptional. */
static int select_now(int fd)
{
	struct timeval zero = {0};
	fd_set r, w, x;
	int n;

	FD_ZERO(&r);
	FD_SET(fd, &r);
	w = x = r;
	n = select(fd + 1, &r, &w, &x, &zero);
	assert_int_equal(n, !!FD_ISSET(fd, &r) + !!FD_ISSET(fd, &w) + !!FD_ISSET(fd, &x));
	return (FD_ISSET(fd, &r) ? 1 : 0) + (FD_ISSET(fd, &w) ? 2 : 0) + (FD_ISSET(fd, &x) ? 4 : 0);
}

static int pselect_now(int fd)
{
	struct timespec zero = {0};
	fd_set r, w, x;
	int n;

	FD_ZERO(&r);
	FD_SET(fd, &r);
	w = x = r;
	n = pselect(fd + 1, &r, &w, &x, &zero, NULL);
	assert_int_equal(n, !!FD_ISSET(fd, &r) + !!FD_ISSET(fd, &w) + !!FD_ISSET(fd, &x));
	return (FD_ISSET(fd, &r) ? 1 : 0) + (FD_ISSET(fd, &w) ? 2 : 0) + (FD_ISSET(fd, &x) ? 4 : 0);
}

#define ANY                                                                                        \
	(POLLIN | POLLPRI | POLLOUT | POLLRDNORM | POLLRDBAND | POLLWRNORM | POLLWRBAND | POLLRDHUP)

static void assert_readable(int ep, bool readable)
{
	int want = readable ? POLLIN | POLLRDNORM : 0;

	assert_int_equal(poll_now(ep, ANY), want);
	assert_int_equal(ppoll_now(ep, ANY), want);
	assert_int_equal(raw_ppoll_now(ep, ANY), want);
	assert_int_equal(poll_now(ep, POLLIN), want & POLLIN);
	assert_int_equal(poll_now(ep, POLLOUT | POLLPRI), 0);
	assert_int_equal(select_now(ep), readable);
	assert_int_equal(pselect_now(ep), readable);
}

static void EP_POLL_01_readable_if_an_item_is_really_ready(enum set set)
{
	static const uint32_t modes[] = {0, EPOLLET, EPOLLONESHOT};

	for (size_t m = 0; m < 3; m++) {
		struct subject s[3];
		int ep = ep_new();

		assert_readable(ep, false);
		set_new(set, s, 3, ep, EPOLLIN | modes[m]);
		assert_readable(ep, false);
		subject_fill(&s[1]);
		assert_readable(ep, true);
		subject_drain(&s[1]);
		assert_readable(ep, false);
		subject_fill(&s[2]);
		assert_readable(ep, true);
		subject_fill(&s[0]);
		subject_drain(&s[2]);
		assert_readable(ep, true);
		subject_drain(&s[0]);
		assert_readable(ep, false);
		set_close(s, 3);
		close(ep);
	}
}
EACH_SET(EP_POLL_01_readable_if_an_item_is_really_ready)

/* What the item reports does not matter, only that it reports something. */
static void EP_POLL_01_never_writable_or_hung_up(void **state)
{
	int ep = ep_new(), outer = ep_new(), efd = efd_new(0, EFD_NONBLOCK), p[2];

	(void)state;
	assert_ok(pipe(p));
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, ANY | EPOLLERR | EPOLLHUP, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLOUT, 2));
	assert_readable(ep, true);
	assert_true(ep_one(outer, EPOLLIN | EPOLLRDNORM, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, efd, 0, 0));
	assert_readable(ep, false);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p[0], 0, 3));
	assert_readable(ep, false);
	close(p[1]);
	assert_true(ep_one(ep, EPOLLHUP, 3));
	assert_readable(ep, true);
	assert_true(ep_one(outer, EPOLLIN | EPOLLRDNORM, 1));
	close(p[0]);
	assert_readable(ep, false);
	assert_int_equal(ep_count(outer), 0);
	close(efd);
	close(outer);
	close(ep);
}

/* One poll over an epoll, the eventfd in it, and kernel files beside them. */
static void EP_POLL_01_in_a_mixed_poll_set(void **state)
{
	int ep = ep_new(), empty = ep_new(), efd = efd_new(0, EFD_NONBLOCK), p[2];
	struct pollfd f[5];

	(void)state;
	assert_ok(pipe(p));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN, 1));
	f[0] = (struct pollfd){.fd = ep, .events = POLLIN};
	f[1] = (struct pollfd){.fd = efd, .events = POLLIN | POLLOUT};
	f[2] = (struct pollfd){.fd = p[0], .events = POLLIN};
	f[3] = (struct pollfd){.fd = empty, .events = POLLIN};
	f[4] = (struct pollfd){.fd = -1, .events = POLLIN};
	assert_int_equal(poll(f, 5, -1), 1);
	assert_int_equal(f[1].revents, POLLOUT);
	efd_add(efd, 1);
	assert_int_equal(poll(f, 5, -1), 2);
	assert_int_equal(f[0].revents, POLLIN);
	assert_int_equal(f[1].revents, POLLIN | POLLOUT);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(poll(f, 5, -1), 3);
	assert_int_equal(f[2].revents, POLLIN);
	assert_int_equal(f[3].revents, 0);
	assert_int_equal(f[4].revents, 0);
	close(efd);
	close(p[0]);
	close(p[1]);
	close(ep);
	close(empty);
}

static void EP_POLL_02_polling_consumes_nothing(enum set set)
{
	static const uint32_t modes[] = {EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT, 0};

	for (size_t m = 0; m < 4; m++) {
		struct subject s[3];
		int ep = ep_new(), outer = ep_new();

		set_new(set, s, 3, ep, EPOLLIN | modes[m]);
		assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 'o'));
		set_fire(s, "bca");
		for (int i = 0; i < 3; i++) {
			assert_readable(ep, true);
			assert_order(outer, 4, "o");
		}
		assert_order(ep, 8, "bca");
		assert_order(ep, 8, modes[m] != 0 ? "" : "bca");
		assert_readable(ep, modes[m] == 0);
		set_close(s, 3);
		close(outer);
		close(ep);
	}
}
EACH_SET(EP_POLL_02_polling_consumes_nothing)

/*
 * A dropped item enters anew at the tail, one that was never looked at keeps
 * its place: the order afterwards shows where the scan ended.
 */
static void EP_POLL_03_items_not_ready_are_dropped_up_to_the_first_ready(enum set set)
{
	struct subject s[4];
	int ep = ep_new();

	NEEDS_ONE_ORDER(set == SET_MIXED);
	set_new(set, s, 4, ep, EPOLLIN | EPOLLET);
	set_fire(s, "abcd");
	subject_drain(&s[0]);
	subject_drain(&s[1]);
	assert_int_equal(poll_now(ep, POLLIN), POLLIN);
	set_fire(s, "ba");
	assert_order(ep, 8, "cdba");

	set_fire(s, "abcd");
	subject_drain(&s[1]);
	assert_int_equal(poll_now(ep, POLLIN), POLLIN);
	set_fire(s, "b");
	assert_order(ep, 8, "abcd");

	set_fire(s, "abcd");
	for (int i = 0; i < 4; i++)
		subject_drain(&s[i]);
	assert_int_equal(poll_now(ep, POLLIN), 0);
	set_fire(s, "dcba");
	assert_order(ep, 8, "dcba");
	set_close(s, 4);
	close(ep);
}
EACH_SET(EP_POLL_03_items_not_ready_are_dropped_up_to_the_first_ready)

static void EP_POLL_03_whatever_the_poll_asks_for(enum set set)
{
	struct subject s[2];
	int ep = ep_new(), outer = ep_new();
	struct timeval none = {0, 0};
	fd_set out;

	NEEDS_ONE_ORDER(set == SET_MIXED);
	set_new(set, s, 2, ep, EPOLLIN | EPOLLET);
	for (int how = 0; how < 5; how++) {
		set_fire(s, "ab");
		subject_drain(&s[0]);
		switch (how) {
		case 0:
			assert_int_equal(poll_now(ep, 0), 0);
			break;
		case 1:
			assert_int_equal(poll_now(ep, POLLOUT), 0);
			break;
		case 2:
			FD_ZERO(&out);
			FD_SET(ep, &out);
			assert_int_equal(select(ep + 1, NULL, &out, NULL, &none), 0);
			break;
		case 3:
			assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLOUT, 'o'));
			break;
		default:
			assert_ok(ep_ctl(outer, EPOLL_CTL_MOD, ep, EPOLLPRI, 'o'));
			break;
		}
		/* a was off the list, and comes behind b. */
		set_fire(s, "a");
		assert_order(ep, 8, "ba");
		subject_drain(&s[0]);
		subject_drain(&s[1]);
	}
	set_close(s, 2);
	close(outer);
	close(ep);
}
EACH_SET(EP_POLL_03_whatever_the_poll_asks_for)

enum poll_how { POLL_POLL, POLL_PPOLL, POLL_SELECT, POLL_PSELECT, POLL_HOWS };

struct poller {
	struct test_thread t;
	int fd;
	enum poll_how how;
	int n;
	int revents;
};

static void *poller_main(void *arg)
{
	struct poller *p = arg;
	struct pollfd pfd = {.fd = p->fd, .events = POLLIN};
	fd_set r;

	FD_ZERO(&r);
	FD_SET(p->fd, &r);
	switch (p->how) {
	case POLL_PPOLL:
		p->n = ppoll(&pfd, 1, NULL, NULL);
		p->revents = pfd.revents;
		break;
	case POLL_SELECT:
		p->n = select(p->fd + 1, &r, NULL, NULL, NULL);
		p->revents = FD_ISSET(p->fd, &r) ? POLLIN : 0;
		break;
	case POLL_PSELECT:
		p->n = pselect(p->fd + 1, &r, NULL, NULL, NULL, NULL);
		p->revents = FD_ISSET(p->fd, &r) ? POLLIN : 0;
		break;
	default:
		p->n = poll(&pfd, 1, -1);
		p->revents = pfd.revents;
		break;
	}
	return NULL;
}

static struct poller *pollers_new(int fd)
{
	struct poller *p = calloc(POLL_HOWS, sizeof(*p));

	assert_non_null(p);
	for (int i = 0; i < POLL_HOWS; i++) {
		p[i].fd = fd;
		p[i].how = (enum poll_how)i;
		thread_start(&p[i].t, poller_main, &p[i]);
		assert_true(thread_asleep(&p[i].t));
	}
	return p;
}

static void pollers_end(struct poller *p)
{
	for (int i = 0; i < POLL_HOWS; i++) {
		assert_true(thread_join(&p[i].t, SOON_MS));
		assert_int_equal(p[i].n, 1);
		assert_int_equal(p[i].revents, POLLIN);
	}
	free(p);
}

static void pollers_stay(struct poller *p)
{
	sleep_ms(QUIET_MS);
	for (int i = 0; i < POLL_HOWS; i++)
		assert_true(thread_asleep(&p[i].t));
}

static void EP_POLL_04_a_callback_wakes_all_sleeping_pollers(enum set set)
{
	static const uint32_t modes[] = {0, EPOLLET, EPOLLONESHOT};

	for (size_t m = 0; m < 3; m++) {
		struct subject s[2];
		int ep = ep_new(), outer = ep_new();
		struct poller *p;
		struct waiter *w;

		set_new(set, s, 2, ep, EPOLLIN | modes[m]);
		assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 'o'));
		p = pollers_new(ep);
		w = waiter_new(outer, 4);
		subject_fill(&s[m % 2]);
		waiter_gets(w, 'o');
		pollers_end(p);
		assert_order(ep, 4, m % 2 == 0 ? "a" : "b");
		set_close(s, 2);
		close(outer);
		close(ep);
	}
}
EACH_SET(EP_POLL_04_a_callback_wakes_all_sleeping_pollers)

static void EP_POLL_04_ADD_and_MOD_wake_sleeping_pollers(enum set set)
{
	struct subject s[2] = {subject_new(set_kind(set, 0)), subject_new(set_kind(set, 1))};
	int ep = ep_new();
	struct poller *p;

	p = pollers_new(ep);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[1].fd, EPOLLIN, 'b'));
	pollers_stay(p);
	subject_fill(&s[0]);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[0].fd, EPOLLIN, 'a'));
	pollers_end(p);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[0].fd, 0, 'a'));
	assert_readable(ep, false);
	p = pollers_new(ep);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[0].fd, EPOLLIN, 'a'));
	pollers_end(p);
	set_close(s, 2);
	close(ep);
}
EACH_SET(EP_POLL_04_ADD_and_MOD_wake_sleeping_pollers)

/* An epoll beside a kernel file in one sleeping poll: either one ends it. */
struct mixed_poll {
	struct test_thread t;
	struct pollfd f[3];
	int n;
};

static void *mixed_poll_main(void *arg)
{
	struct mixed_poll *m = arg;

	m->n = poll(m->f, 3, -1);
	return NULL;
}

static void EP_POLL_04_a_sleeping_mixed_poll_is_woken_from_each_side(void **state)
{
	(void)state;
	for (int side = 0; side < 3; side++) {
		struct mixed_poll *m = calloc(1, sizeof(*m));
		int ep = ep_new(), in = efd_new(0, EFD_NONBLOCK), efd = efd_new(0, 0), p[2];

		assert_ok(pipe(p));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, in, EPOLLIN, 1));
		m->f[0] = (struct pollfd){.fd = ep, .events = POLLIN};
		m->f[1] = (struct pollfd){.fd = efd, .events = POLLIN};
		m->f[2] = (struct pollfd){.fd = p[0], .events = POLLIN};
		thread_start(&m->t, mixed_poll_main, m);
		assert_true(thread_asleep(&m->t));
		if (side == 0)
			efd_add(in, 1);
		else if (side == 1)
			efd_add(efd, 1);
		else
			assert_int_equal(write(p[1], "x", 1), 1);
		assert_true(thread_join(&m->t, SOON_MS));
		assert_int_equal(m->n, 1);
		for (int i = 0; i < 3; i++)
			assert_int_equal(m->f[i].revents, i == side ? POLLIN : 0);
		close(p[0]);
		close(p[1]);
		close(in);
		close(efd);
		close(ep);
		free(m);
	}
}

static void EP_POLL_05_an_outer_edge_for_every_accepted_callback(enum set set)
{
	static const uint32_t modes[] = {0, EPOLLET, EPOLLONESHOT};

	for (size_t m = 0; m < 3; m++) {
		struct subject s[2];
		int ep = ep_new(), outer = ep_new();

		set_new(set, s, 2, ep, EPOLLIN | modes[m]);
		assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN | EPOLLET, 'o'));
		assert_order(outer, 4, "");
		subject_fill(&s[0]);
		assert_order(outer, 4, "o");
		assert_order(outer, 4, "");
		/* The inner item is queued already; the outer gets its edge all the same. */
		subject_fill(&s[0]);
		assert_order(outer, 4, "o");
		subject_fill(&s[1]);
		subject_fill(&s[0]);
		assert_order(outer, 4, "o");
		assert_order(outer, 4, "");
		/* Delivery puts level items back, which is no edge. */
		assert_order(ep, 4, "ab");
		assert_order(outer, 4, "");
		set_close(s, 2);
		close(outer);
		close(ep);
	}
}
EACH_SET(EP_POLL_05_an_outer_edge_for_every_accepted_callback)

static void EP_POLL_05_a_filtered_callback_makes_no_outer_edge(enum set set)
{
	struct subject s = subject_new(set_kind(set, 0));
	int ep = ep_new(), outer = ep_new();

	/* None of the three is ever PRI, and the wake of a write does not name it. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLPRI | EPOLLET, 'a'));
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN | EPOLLET, 'o'));
	assert_order(outer, 4, "");
	subject_fill(&s);
	assert_order(outer, 4, "");
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLONESHOT, 'a'));
	assert_order(outer, 4, "o");
	assert_order(ep, 4, "a");
	/* Disarmed: no callback is accepted any more. */
	subject_fill(&s);
	assert_order(outer, 4, "");
	assert_readable(ep, false);
	subject_close(&s);
	close(outer);
	close(ep);
}
EACH_SET(EP_POLL_05_a_filtered_callback_makes_no_outer_edge)

static void EP_POLL_06_an_outer_level_item_follows_the_inner(enum set set)
{
	struct subject s[2];
	int ep = ep_new(), outer = ep_new();

	set_new(set, s, 2, ep, EPOLLIN);
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 'o'));
	assert_order(outer, 4, "");
	set_fire(s, "ab");
	assert_order(outer, 4, "o");
	assert_order(ep, 4, "ab");
	assert_order(outer, 4, "o");
	subject_drain(&s[0]);
	assert_order(outer, 4, "o");
	subject_drain(&s[1]);
	assert_order(outer, 4, "");
	subject_fill(&s[1]);
	assert_order(outer, 4, "o");
	set_close(s, 2);
	assert_order(outer, 4, "");
	close(outer);
	close(ep);
}
EACH_SET(EP_POLL_06_an_outer_level_item_follows_the_inner)

static void EP_POLL_06_a_collected_edge_ends_the_outer_level(enum set set)
{
	struct subject s[2];
	int ep = ep_new(), outer = ep_new();

	set_new(set, s, 2, ep, EPOLLIN | EPOLLET);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[1].fd, EPOLLIN | EPOLLONESHOT, 'b'));
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 'o'));
	set_fire(s, "ab");
	assert_order(outer, 4, "o");
	assert_order(outer, 4, "o");
	assert_order(ep, 1, "a");
	assert_order(outer, 4, "o");
	assert_order(ep, 4, "b");
	assert_order(outer, 4, "");
	assert_readable(ep, false);
	set_close(s, 2);
	close(outer);
	close(ep);
}
EACH_SET(EP_POLL_06_a_collected_edge_ends_the_outer_level)

static void EP_POLL_07_an_outer_OUT_item_never_fires(enum set set)
{
	struct subject s[2];
	int ep = ep_new(), outer = ep_new();

	set_new(set, s, 2, ep, EPOLLIN | EPOLLOUT);
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLOUT, 'o'));
	assert_order(outer, 4, "");
	set_fire(s, "ab");
	assert_order(outer, 4, "");
	assert_int_equal(poll_now(ep, POLLOUT), 0);
	set_close(s, 2);
	close(outer);
	close(ep);
}
EACH_SET(EP_POLL_07_an_outer_OUT_item_never_fires)

static void EP_POLL_07_RDNORM_is_state_but_not_in_the_wake(enum set set)
{
	struct subject s[2];
	int ep = ep_new(), both = ep_new(), norm = ep_new(), late = ep_new();

	set_new(set, s, 2, ep, EPOLLIN);
	assert_ok(ep_ctl(both, EPOLL_CTL_ADD, ep, EPOLLIN | EPOLLRDNORM, 'o'));
	assert_ok(ep_ctl(norm, EPOLL_CTL_ADD, ep, EPOLLRDNORM, 'o'));
	subject_fill(&s[1]);
	assert_true(ep_one(both, EPOLLIN | EPOLLRDNORM, 'o'));
	/* The wake names IN alone, which this item has not asked for. */
	assert_order(norm, 4, "");
	assert_ok(ep_ctl(late, EPOLL_CTL_ADD, ep, EPOLLRDNORM, 'o'));
	assert_true(ep_one(late, EPOLLRDNORM, 'o'));
	assert_ok(ep_ctl(norm, EPOLL_CTL_MOD, ep, EPOLLRDNORM, 'o'));
	assert_true(ep_one(norm, EPOLLRDNORM, 'o'));
	assert_int_equal(poll_now(ep, POLLRDNORM), POLLRDNORM);
	set_close(s, 2);
	close(both);
	close(norm);
	close(late);
	close(ep);
}
EACH_SET(EP_POLL_07_RDNORM_is_state_but_not_in_the_wake)

static void EP_POLL_08_select_has_it_in_the_readable_set_only(enum set set)
{
	struct subject s[2];
	int ep = ep_new();

	set_new(set, s, 2, ep, EPOLLIN | EPOLLOUT | EPOLLET);
	/* Whatever is ready at ADD is collected first. */
	ep_count(ep);
	assert_int_equal(select_now(ep), 0);
	assert_int_equal(pselect_now(ep), 0);
	subject_fill(&s[1]);
	assert_int_equal(select_now(ep), 1);
	assert_int_equal(pselect_now(ep), 1);
	set_close(s, 2);
	close(ep);
}
EACH_SET(EP_POLL_08_select_has_it_in_the_readable_set_only)

static void EP_POLL_08_select_over_a_mixed_set(void **state)
{
	int ep = ep_new(), in = efd_new(0, EFD_NONBLOCK), efd = efd_new(0, 0), p[2], max;
	fd_set r, w;

	(void)state;
	assert_ok(pipe(p));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, in, EPOLLIN, 1));
	max = p[1] > efd ? p[1] : efd;
	efd_add(in, 1);
	assert_int_equal(write(p[1], "x", 1), 1);
	FD_ZERO(&r);
	FD_SET(ep, &r);
	FD_SET(efd, &r);
	FD_SET(p[0], &r);
	FD_ZERO(&w);
	FD_SET(efd, &w);
	FD_SET(ep, &w);
	FD_SET(p[1], &w);
	assert_int_equal(select(max + 1, &r, &w, NULL, NULL), 4);
	assert_true(FD_ISSET(ep, &r) && !FD_ISSET(efd, &r) && FD_ISSET(p[0], &r));
	assert_true(!FD_ISSET(ep, &w) && FD_ISSET(efd, &w) && FD_ISSET(p[1], &w));
	close(p[0]);
	close(p[1]);
	close(in);
	close(efd);
	close(ep);
}

#define LEVELS 5

static void EP_POLL_09_a_chain_of_five_is_readable_at_every_level(enum set set)
{
	struct subject s = subject_new(set_kind(set, 0));
	int ep[LEVELS];

	ep[0] = ep_new();
	assert_ok(ep_ctl(ep[0], EPOLL_CTL_ADD, s.fd, EPOLLIN, 'a'));
	for (int i = 1; i < LEVELS; i++) {
		ep[i] = ep_new();
		assert_ok(ep_ctl(ep[i], EPOLL_CTL_ADD, ep[i - 1], EPOLLIN, (uint64_t)('a' + i)));
	}
	for (int i = 0; i < LEVELS; i++)
		assert_readable(ep[i], false);
	subject_fill(&s);
	for (int i = LEVELS - 1; i >= 0; i--) {
		char want[2] = {(char)('a' + i), 0};

		assert_readable(ep[i], true);
		assert_order(ep[i], 4, want);
	}
	subject_drain(&s);
	for (int i = LEVELS - 1; i >= 0; i--) {
		assert_readable(ep[i], false);
		assert_order(ep[i], 4, "");
	}
	for (int i = 0; i < LEVELS; i++)
		close(ep[i]);
	subject_close(&s);
}
EACH_SET(EP_POLL_09_a_chain_of_five_is_readable_at_every_level)

static void EP_POLL_09_sleepers_at_every_level_are_woken(enum set set)
{
	struct subject s = subject_new(set_kind(set, 0));
	struct waiter *w[LEVELS];
	int ep[LEVELS];

	ep[0] = ep_new();
	assert_ok(ep_ctl(ep[0], EPOLL_CTL_ADD, s.fd, EPOLLIN, 'a'));
	for (int i = 1; i < LEVELS; i++) {
		ep[i] = ep_new();
		assert_ok(ep_ctl(ep[i], EPOLL_CTL_ADD, ep[i - 1], EPOLLIN, (uint64_t)('a' + i)));
	}
	for (int i = 0; i < LEVELS; i++)
		w[i] = waiter_new(ep[i], 4);
	subject_fill(&s);
	for (int i = 0; i < LEVELS; i++)
		waiter_gets(w[i], (uint64_t)('a' + i));
	for (int i = 0; i < LEVELS; i++)
		close(ep[i]);
	subject_close(&s);
}
EACH_SET(EP_POLL_09_sleepers_at_every_level_are_woken)

static void EP_POLL_10_close_does_not_end_a_sleeping_poll(enum set set)
{
	struct subject s[2];
	struct poller *p = calloc(1, sizeof(*p));
	int ep = ep_new();

	set_new(set, s, 2, ep, EPOLLIN);
	p->fd = ep;
	thread_start(&p->t, poller_main, p);
	assert_true(thread_asleep(&p->t));
	assert_ok(close(ep));
	sleep_ms(QUIET_MS);
	assert_true(thread_asleep(&p->t));
	/* The wake makes it look again, and the number is closed by now. */
	subject_fill(&s[1]);
	assert_true(thread_join(&p->t, SOON_MS));
	assert_int_equal(p->n, 1);
	assert_int_equal(p->revents, POLLNVAL);
	free(p);
	set_close(s, 2);
}
EACH_SET(EP_POLL_10_close_does_not_end_a_sleeping_poll)

static void EP_POLL_10_a_destroyed_epoll_leaves_its_watchers(enum set set)
{
	struct subject s[2], late = subject_new(set_kind(set, 0));
	int ep = ep_new(), outer = ep_new();
	struct waiter *w;

	set_new(set, s, 2, ep, EPOLLIN);
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 'o'));
	w = waiter_new(outer, 4);
	assert_ok(close(ep));
	waiters_stay(&w, 1);
	set_fire(s, "ab");
	waiters_stay(&w, 1);
	subject_fill(&late);
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, late.fd, EPOLLIN, 'l'));
	waiter_gets(w, 'l');
	assert_order(outer, 4, "l");
	subject_close(&late);
	set_close(s, 2);
	close(outer);
}
EACH_SET(EP_POLL_10_a_destroyed_epoll_leaves_its_watchers)

struct far_writer {
	struct test_thread t;
	const struct subject *s;
	int go;
	int wrote;
};

static void *far_writer_main(void *arg)
{
	struct far_writer *f = arg;
	uint64_t one = 1;

	for (int i = 1; i <= 300; i++) {
		while (__atomic_load_n(&f->go, __ATOMIC_ACQUIRE) < i)
			sched_yield();
		if (write(f->s->peer, &one, f->s->kind == KIND_EVENTFD ? 8 : 1) <= 0)
			return f;
		__atomic_store_n(&f->wrote, i, __ATOMIC_RELEASE);
	}
	return NULL;
}

/* When the write of another thread has returned, the outermost level has the edge. */
static void EP_POLL_11_a_wake_has_passed_all_levels_when_write_returns(enum set set)
{
	struct subject s = subject_new(set_kind(set, 0));
	struct far_writer *f = calloc(1, sizeof(*f));
	int ep[LEVELS];

	ep[0] = ep_new();
	assert_ok(ep_ctl(ep[0], EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 'a'));
	for (int i = 1; i < LEVELS; i++) {
		ep[i] = ep_new();
		assert_ok(ep_ctl(ep[i], EPOLL_CTL_ADD, ep[i - 1], EPOLLIN | EPOLLET,
				 (uint64_t)('a' + i)));
	}
	f->s = &s;
	thread_start(&f->t, far_writer_main, f);
	for (int i = 1; i <= 300; i++) {
		__atomic_store_n(&f->go, i, __ATOMIC_RELEASE);
		while (__atomic_load_n(&f->wrote, __ATOMIC_ACQUIRE) < i) {
			assert_true(!thread_done(&f->t) ||
				    __atomic_load_n(&f->wrote, __ATOMIC_ACQUIRE) >= i);
			sched_yield();
		}
		assert_order(ep[LEVELS - 1], 4, "e");
		assert_order(ep[LEVELS - 1], 4, "");
		assert_order(ep[0], 4, "a");
		subject_drain(&s);
	}
	assert_true(thread_join(&f->t, SOON_MS));
	assert_null(f->t.ret);
	free(f);
	for (int i = 0; i < LEVELS; i++)
		close(ep[i]);
	subject_close(&s);
}
EACH_SET(EP_POLL_11_a_wake_has_passed_all_levels_when_write_returns)

int main(void)
{
	const struct CMUnitTest ep_poll_rules[] = {
		TEST_EACH_SET(EP_POLL_01_readable_if_an_item_is_really_ready),
		cmocka_unit_test(EP_POLL_01_never_writable_or_hung_up),
		cmocka_unit_test(EP_POLL_01_in_a_mixed_poll_set),
		TEST_EACH_SET(EP_POLL_02_polling_consumes_nothing),
		TEST_EACH_SET(EP_POLL_03_items_not_ready_are_dropped_up_to_the_first_ready),
		TEST_EACH_SET(EP_POLL_03_whatever_the_poll_asks_for),
		TEST_EACH_SET(EP_POLL_04_a_callback_wakes_all_sleeping_pollers),
		TEST_EACH_SET(EP_POLL_04_ADD_and_MOD_wake_sleeping_pollers),
		cmocka_unit_test(EP_POLL_04_a_sleeping_mixed_poll_is_woken_from_each_side),
		TEST_EACH_SET(EP_POLL_05_an_outer_edge_for_every_accepted_callback),
		TEST_EACH_SET(EP_POLL_05_a_filtered_callback_makes_no_outer_edge),
		TEST_EACH_SET(EP_POLL_06_an_outer_level_item_follows_the_inner),
		TEST_EACH_SET(EP_POLL_06_a_collected_edge_ends_the_outer_level),
		TEST_EACH_SET(EP_POLL_07_an_outer_OUT_item_never_fires),
		TEST_EACH_SET(EP_POLL_07_RDNORM_is_state_but_not_in_the_wake),
		TEST_EACH_SET(EP_POLL_08_select_has_it_in_the_readable_set_only),
		cmocka_unit_test(EP_POLL_08_select_over_a_mixed_set),
		TEST_EACH_SET(EP_POLL_09_a_chain_of_five_is_readable_at_every_level),
		TEST_EACH_SET(EP_POLL_09_sleepers_at_every_level_are_woken),
		TEST_EACH_SET(EP_POLL_10_close_does_not_end_a_sleeping_poll),
		TEST_EACH_SET(EP_POLL_10_a_destroyed_epoll_leaves_its_watchers),
		TEST_EACH_SET(EP_POLL_11_a_wake_has_passed_all_levels_when_write_returns),
	};

	return run_group(ep_poll_rules);
}
