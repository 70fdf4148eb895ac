/* SPDX-License-Identifier: MIT */
/* Several waiters on one epoll: who is woken, and that no wake is lost. */
#include "waiting.h"

#include <sched.h>

#define W 4

static void waiters_begin(struct waiter **w, int n, int ep, int max)
{
	for (int i = 0; i < n; i++)
		w[i] = waiter_new(ep, max);
}

static void EP_WAKE_01_one_edge_wakes_at_most_one_waiter(enum set set)
{
	struct subject s[W];
	struct waiter *w[W];
	int ep = ep_new();

	set_new(set, s, W, ep, EPOLLIN | EPOLLET);
	waiters_begin(w, W, ep, 1);
	for (int i = 0; i < W; i++) {
		int who;

		subject_fill(&s[i]);
		who = waiters_first_done(w, W, SOON_MS);
		assert_int_not_equal(who, -1);
		waiter_gets(w[who], (uint64_t)('a' + i));
		w[who] = NULL;
		waiters_stay(w, W);
	}
	set_close(s, W);
	close(ep);
}
EACH_SET(EP_WAKE_01_one_edge_wakes_at_most_one_waiter)

static void EP_WAKE_01_every_way_of_waiting_is_one_queue(enum set set)
{
	struct subject s[ENTRIES];
	struct waiter *w[ENTRIES];
	int ep = ep_new();

	set_new(set, s, ENTRIES, ep, EPOLLIN | EPOLLET);
	for (int i = 0; i < ENTRIES; i++) {
		w[i] = waiter_begin(ep, 1, -1, (enum entry)i);
		assert_true(thread_asleep(&w[i]->t));
	}
	for (int i = 0; i < ENTRIES; i++) {
		subject_fill(&s[i]);
		waiter_gets(w[ENTRIES - 1 - i], (uint64_t)('a' + i));
		w[ENTRIES - 1 - i] = NULL;
		waiters_stay(w, ENTRIES);
	}
	set_close(s, ENTRIES);
	close(ep);
}
EACH_SET(EP_WAKE_01_every_way_of_waiting_is_one_queue)

static void EP_WAKE_02_the_last_to_sleep_is_woken_first(enum set set)
{
	for (int round = 0; round < 3; round++) {
		struct subject s[W];
		struct waiter *w[W];
		int ep = ep_new();

		set_new(set, s, W, ep, EPOLLIN | EPOLLET);
		waiters_begin(w, W, ep, 4);
		for (int i = 0; i < W; i++) {
			subject_fill(&s[i]);
			waiter_gets(w[W - 1 - i], (uint64_t)('a' + i));
		}
		set_close(s, W);
		close(ep);
	}
}
EACH_SET(EP_WAKE_02_the_last_to_sleep_is_woken_first)

/* One write, three edges: three of the four waiters end, with one edge each. */
static void EP_WAKE_03_three_edges_of_one_write_wake_three(enum set set)
{
	struct subject s = subject_new(set_kind(set, 0));
	int dup1 = (int)assert_ok(dup(s.fd)), dup2 = (int)assert_ok(dup(s.fd));
	struct waiter *w[W];
	int ep = ep_new(), ended = 0;
	unsigned int seen = 0;

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, dup1, EPOLLIN | EPOLLET, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, dup2, EPOLLIN | EPOLLET, 2));
	waiters_begin(w, W, ep, 1);
	subject_fill(&s);
	while (ended < 3) {
		int who = waiters_first_done(w, W, SOON_MS);

		assert_int_not_equal(who, -1);
		waiter_join(w[who]);
		assert_int_equal(w[who]->n, 1);
		seen |= 1u << w[who]->ev[0].data.u64;
		free(w[who]);
		w[who] = NULL;
		ended++;
	}
	assert_int_equal(seen, 7);
	waiters_stay(w, W);
	waiters_release(ep, w, W);
	subject_close(&s);
	close(dup1);
	close(dup2);
	close(ep);
}
EACH_SET(EP_WAKE_03_three_edges_of_one_write_wake_three)

static void EP_WAKE_03_a_burst_of_edges_wakes_as_many(enum set set)
{
	struct subject s[W];
	struct waiter *w[W];
	int ep = ep_new();
	unsigned int seen = 0;

	set_new(set, s, W, ep, EPOLLIN | EPOLLET);
	waiters_begin(w, W, ep, 1);
	set_fire(s, "abcd");
	for (int i = 0; i < W; i++) {
		waiter_join(w[i]);
		assert_int_equal(w[i]->n, 1);
		seen |= 1u << (w[i]->ev[0].data.u64 - 'a');
		free(w[i]);
	}
	assert_int_equal(seen, 15);
	set_close(s, W);
	close(ep);
}
EACH_SET(EP_WAKE_03_a_burst_of_edges_wakes_as_many)

/* Priority 0 is the ordinary one. */
static bool place(pid_t tid, const cpu_set_t *cpus, int prio)
{
	struct sched_param p = {.sched_priority = prio};

	return sched_setaffinity(tid, sizeof(*cpus), cpus) == 0 &&
	       sched_setscheduler(tid, prio > 0 ? SCHED_FIFO : SCHED_OTHER, &p) == 0;
}

/*
 * On one CPU with fixed priorities the order of events is certain: both waiters
 * are woken, both events are taken back before either runs, then the newer one
 * runs and sleeps again, then the older one, which is the newest from then on.
 */
static void EP_WAKE_04_who_finds_nothing_sleeps_again_as_the_newest(enum set set)
{
	struct subject s[2];
	struct waiter *w[2];
	cpu_set_t old, one;
	int ep = ep_new(), cpu = 0;
	bool placed, slept = false, ended = false, stayed = false;

	assert_ok(sched_getaffinity(0, sizeof(old), &old));
	while (!CPU_ISSET(cpu, &old))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	set_new(set, s, 2, ep, EPOLLIN | EPOLLET);
	waiters_begin(w, 2, ep, 1);
	placed = place(w[0]->t.tid, &one, 5) && place(w[1]->t.tid, &one, 10) && place(0, &one, 20);
	if (placed) {
		set_fire(s, "ab");
		subject_drain(&s[0]);
		subject_drain(&s[1]);
		slept = thread_asleep(&w[0]->t) && thread_asleep(&w[1]->t);
		set_fire(s, "a");
		ended = thread_join(&w[0]->t, SOON_MS);
		stayed = thread_asleep(&w[1]->t);
	}
	/* A test that fails must not leave its priority to the next one. */
	place(0, &old, 0);
	if (!placed) {
		waiters_release(ep, w, 2);
		set_close(s, 2);
		close(ep);
		SKIP("no real-time priority for this user");
	}
	assert_true(slept);
	assert_true(ended);
	assert_true(stayed);
	assert_int_equal(w[0]->n, 1);
	assert_int_equal(w[0]->ev[0].data.u64, 'a');
	free(w[0]);
	set_fire(s, "b");
	waiter_gets(w[1], 'b');
	set_close(s, 2);
	close(ep);
}
EACH_SET(EP_WAKE_04_who_finds_nothing_sleeps_again_as_the_newest)

static void EP_WAKE_05_a_level_item_wakes_all_one_after_the_other(enum set set)
{
	for (int max = 1; max <= 4; max += 3) {
		struct subject s[2];
		struct waiter *w[8];
		int ep = ep_new();

		set_new(set, s, 2, ep, EPOLLIN);
		waiters_begin(w, 8, ep, max);
		subject_fill(&s[max == 1]);
		for (int i = 0; i < 8; i++)
			waiter_gets(w[i], max == 1 ? 'b' : 'a');
		set_close(s, 2);
		close(ep);
	}
}
EACH_SET(EP_WAKE_05_a_level_item_wakes_all_one_after_the_other)

static void EP_WAKE_05_what_is_left_over_goes_to_the_next_waiter(enum set set)
{
	struct subject s[3];
	struct waiter *w[3];
	int ep = ep_new();
	unsigned int seen = 0;

	/* The level item keeps the list non-empty, the edges must still all arrive. */
	set_new(set, s, 3, ep, EPOLLIN | EPOLLET);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[0].fd, EPOLLIN, 'a'));
	waiters_begin(w, 3, ep, 1);
	set_fire(s, "cba");
	for (int i = 0; i < 3; i++) {
		waiter_join(w[i]);
		assert_int_equal(w[i]->n, 1);
		seen |= 1u << (w[i]->ev[0].data.u64 - 'a');
		free(w[i]);
	}
	assert_int_equal(seen, 7);
	assert_order(ep, 8, "a");
	set_close(s, 3);
	close(ep);
}
EACH_SET(EP_WAKE_05_what_is_left_over_goes_to_the_next_waiter)

static void one_event_for_one_waiter(enum set set, uint32_t mode)
{
	struct subject s[2];
	struct waiter *w[W];
	int ep = ep_new();

	set_new(set, s, 2, ep, EPOLLIN | mode);
	waiters_begin(w, W, ep, 4);
	for (int i = 0; i < 2; i++) {
		int who;

		subject_fill(&s[i]);
		who = waiters_first_done(w, W, SOON_MS);
		assert_int_not_equal(who, -1);
		waiter_gets(w[who], (uint64_t)('a' + i));
		w[who] = NULL;
		waiters_stay(w, W);
	}
	waiters_release(ep, w, W);
	set_close(s, 2);
	close(ep);
}

static void EP_WAKE_06_an_edge_is_for_exactly_one_waiter(enum set set)
{
	one_event_for_one_waiter(set, EPOLLET);
}
EACH_SET(EP_WAKE_06_an_edge_is_for_exactly_one_waiter)

static void EP_WAKE_06_a_oneshot_is_for_exactly_one_waiter(enum set set)
{
	one_event_for_one_waiter(set, EPOLLONESHOT);
}
EACH_SET(EP_WAKE_06_a_oneshot_is_for_exactly_one_waiter)

struct drainer {
	struct test_thread t;
	int ep;
	struct subject *s;
	int bad;
};

/* Waits until it is the one that takes the data. */
static void *drainer_main(void *arg)
{
	struct drainer *d = arg;
	struct epoll_event ev;

	for (;;) {
		int n = epoll_wait(d->ep, &ev, 1, -1);

		if (n != 1 || ev.events != EPOLLIN) {
			d->bad++;
			return NULL;
		}
		if (subject_take(&d->s[ev.data.u64 - 'a']))
			return NULL;
	}
}

static void EP_WAKE_07_after_a_drain_the_others_go_on_sleeping(enum set set)
{
	struct subject s[2];
	struct drainer *d = calloc(W, sizeof(*d));
	int ep = ep_new();
	int ended[W] = {0};

	set_new(set, s, 2, ep, EPOLLIN);
	for (int i = 0; i < W; i++) {
		d[i].ep = ep;
		d[i].s = s;
		thread_start(&d[i].t, drainer_main, &d[i]);
		assert_true(thread_asleep(&d[i].t));
	}
	for (int round = 0; round < W; round++) {
		int64_t end = now_ms() + SOON_MS;
		int who = -1, count = 0;

		subject_fill(&s[round % 2]);
		while (who == -1 && now_ms() < end) {
			for (int i = 0; i < W; i++)
				if (!ended[i] && thread_done(&d[i].t))
					who = i;
			sleep_ms(1);
		}
		assert_int_not_equal(who, -1);
		assert_true(thread_join(&d[who].t, SOON_MS));
		assert_int_equal(d[who].bad, 0);
		ended[who] = 1;
		sleep_ms(QUIET_MS);
		for (int i = 0; i < W; i++) {
			count += thread_done(&d[i].t);
			assert_true(ended[i] || thread_asleep(&d[i].t));
		}
		assert_int_equal(count, round + 1);
	}
	free(d);
	set_close(s, 2);
	close(ep);
}
EACH_SET(EP_WAKE_07_after_a_drain_the_others_go_on_sleeping)

static void EP_WAKE_08_ADD_of_a_ready_file_wakes_one(enum set set)
{
	struct subject s[3];
	struct waiter *w[W];
	int ep = ep_new();

	for (int i = 0; i < 3; i++) {
		s[i] = subject_new(set_kind(set, i));
		subject_fill(&s[i]);
	}
	waiters_begin(w, W, ep, 4);
	for (int i = 0; i < 3; i++) {
		int who;

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[i].fd,
				 EPOLLIN | (i == 2 ? EPOLLONESHOT : EPOLLET), (uint64_t)i));
		who = waiters_first_done(w, W, SOON_MS);
		assert_int_equal(who, W - 1 - i);
		waiter_gets(w[who], (uint64_t)i);
		w[who] = NULL;
		waiters_stay(w, W);
	}
	waiters_release(ep, w, W);
	set_close(s, 3);
	close(ep);
}
EACH_SET(EP_WAKE_08_ADD_of_a_ready_file_wakes_one)

static void EP_WAKE_08_MOD_that_makes_ready_wakes_one(enum set set)
{
	struct subject s[3];
	struct waiter *w[W];
	int ep = ep_new();

	set_new(set, s, 3, ep, 0);
	set_fire(s, "abc");
	waiters_begin(w, W, ep, 4);
	for (int i = 0; i < 3; i++) {
		int who;

		assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[i].fd,
				 EPOLLIN | (i == 2 ? EPOLLONESHOT : EPOLLET), (uint64_t)i));
		who = waiters_first_done(w, W, SOON_MS);
		assert_int_equal(who, W - 1 - i);
		waiter_gets(w[who], (uint64_t)i);
		w[who] = NULL;
		waiters_stay(w, W);
	}
	waiters_release(ep, w, W);
	set_close(s, 3);
	close(ep);
}
EACH_SET(EP_WAKE_08_MOD_that_makes_ready_wakes_one)

/*
 * The newest waiter leaves by its deadline at about the moment of the edge.
 * Whichever comes first, one of the two waiters gets the event.
 */
static void EP_WAKE_09_no_wake_is_lost_to_a_deadline(enum set set)
{
	struct subject s[3];
	struct waiter *old = NULL;
	int ep = ep_new();

	set_new(set, s, 3, ep, EPOLLIN | EPOLLET);
	for (int round = 0; round < 120; round++) {
		struct timespec pause = {.tv_nsec = 1600000 + round % 40 * 20000};
		struct subject *now = &s[round % 3];
		struct waiter *brief;

		if (old == NULL)
			old = waiter_new(ep, 4);
		brief = waiter_begin(ep, 4, 2, (enum entry)(round % ENTRIES));
		nanosleep(&pause, NULL);
		subject_fill(now);
		waiter_join(brief);
		if (brief->n == 0) {
			waiter_gets(old, (uint64_t)('a' + round % 3));
			old = NULL;
		} else {
			assert_int_equal(brief->n, 1);
			assert_int_equal(brief->ev[0].data.u64, 'a' + round % 3);
			assert_false(thread_done(&old->t));
		}
		free(brief);
		subject_drain(now);
		/* The edge was for one: there is nothing left of it. */
		assert_order(ep, 4, "");
	}
	if (old != NULL)
		waiters_release(ep, &old, 1);
	set_close(s, 3);
	close(ep);
}
EACH_SET(EP_WAKE_09_no_wake_is_lost_to_a_deadline)

static void on_signal(int sig)
{
	(void)sig;
}

static void EP_WAKE_09_no_wake_is_lost_to_a_signal(enum set set)
{
	struct sigaction sa = {.sa_handler = on_signal}, before;
	struct subject s[3];
	struct waiter *old = NULL;
	int ep = ep_new();

	assert_ok(sigaction(SIGUSR1, &sa, &before));
	set_new(set, s, 3, ep, EPOLLIN | EPOLLET);
	for (int round = 0; round < 120; round++) {
		struct subject *now = &s[round % 3];
		struct waiter *brief;

		if (old == NULL)
			old = waiter_new(ep, 4);
		brief = waiter_new(ep, 4);
		if (round % 2 == 0)
			pthread_kill(brief->t.id, SIGUSR1);
		subject_fill(now);
		if (round % 2 == 1)
			pthread_kill(brief->t.id, SIGUSR1);
		waiter_join(brief);
		if (brief->n == -1) {
			assert_int_equal(brief->err, EINTR);
			waiter_gets(old, (uint64_t)('a' + round % 3));
			old = NULL;
		} else {
			assert_int_equal(brief->n, 1);
			assert_int_equal(brief->ev[0].data.u64, 'a' + round % 3);
			assert_false(thread_done(&old->t));
		}
		free(brief);
		subject_drain(now);
		assert_order(ep, 4, "");
	}
	if (old != NULL)
		waiters_release(ep, &old, 1);
	assert_ok(sigaction(SIGUSR1, &before, NULL));
	set_close(s, 3);
	close(ep);
}
EACH_SET(EP_WAKE_09_no_wake_is_lost_to_a_signal)

struct poller {
	struct test_thread t;
	int fd;
	bool select;
	int n;
	short revents;
};

static void *poller_main(void *arg)
{
	struct poller *p = arg;
	struct pollfd pfd = {.fd = p->fd, .events = POLLIN};

	if (p->select) {
		fd_set r;

		FD_ZERO(&r);
		FD_SET(p->fd, &r);
		p->n = select(p->fd + 1, &r, NULL, NULL, NULL);
		p->revents = FD_ISSET(p->fd, &r) ? POLLIN : 0;
		return NULL;
	}
	p->n = poll(&pfd, 1, -1);
	p->revents = pfd.revents;
	return NULL;
}

static void EP_WAKE_10_pollers_are_told_besides_the_waiter(enum set set)
{
	struct subject s[2];
	struct poller *p = calloc(2, sizeof(*p));
	struct waiter *in, *out;
	int ep = ep_new(), outer = ep_new();

	set_new(set, s, 2, ep, EPOLLIN);
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN, 'o'));
	in = waiter_new(ep, 4);
	out = waiter_new(outer, 4);
	for (int i = 0; i < 2; i++) {
		p[i].fd = ep;
		p[i].select = i == 1;
		thread_start(&p[i].t, poller_main, &p[i]);
		assert_true(thread_asleep(&p[i].t));
	}
	subject_fill(&s[1]);
	waiter_gets(in, 'b');
	waiter_gets(out, 'o');
	for (int i = 0; i < 2; i++) {
		assert_true(thread_join(&p[i].t, SOON_MS));
		assert_int_equal(p[i].n, 1);
		assert_int_equal(p[i].revents, POLLIN);
	}
	free(p);
	set_close(s, 2);
	close(outer);
	close(ep);
}
EACH_SET(EP_WAKE_10_pollers_are_told_besides_the_waiter)

/* The outer edge stands although a waiter of the inner has taken the event. */
static void EP_WAKE_10_a_waiter_does_not_replace_the_outer(enum set set)
{
	struct subject s[2];
	struct waiter *in;
	int ep = ep_new(), outer = ep_new();

	set_new(set, s, 2, ep, EPOLLIN);
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, ep, EPOLLIN | EPOLLET, 'o'));
	in = waiter_new(ep, 4);
	subject_fill(&s[0]);
	waiter_gets(in, 'a');
	assert_order(outer, 4, "o");
	assert_order(outer, 4, "");
	set_close(s, 2);
	close(outer);
	close(ep);
}
EACH_SET(EP_WAKE_10_a_waiter_does_not_replace_the_outer)

static void EP_WAKE_11_an_empty_set_sleeps_until_the_deadline(void **state)
{
	(void)state;
	for (enum entry how = BY_WAIT; how < ENTRIES; how++) {
		struct epoll_event ev;
		int ep = ep_new();
		int64_t from = now_ms();

		assert_int_equal(wait_by(how, ep, &ev, 1, 40, NULL), 0);
		/* Both readings are cut down to whole milliseconds. */
		assert_true(now_ms() - from >= 39);
		close(ep);
	}
}

static void EP_WAKE_11_an_empty_set_sleeps_until_a_signal(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;

	(void)state;
	assert_ok(sigaction(SIGUSR1, &sa, &before));
	for (enum entry how = BY_WAIT; how < ENTRIES; how++) {
		int ep = ep_new();
		struct waiter *w = waiter_begin(ep, 1, -1, how);

		assert_true(thread_asleep(&w->t));
		waiters_stay(&w, 1);
		pthread_kill(w->t.id, SIGUSR1);
		waiter_join(w);
		assert_int_equal(w->n, -1);
		assert_int_equal(w->err, EINTR);
		free(w);
		close(ep);
	}
	assert_ok(sigaction(SIGUSR1, &before, NULL));
}

static void EP_WAKE_11_an_empty_set_sleeps_until_a_ready_ADD(enum set set)
{
	for (enum entry how = BY_WAIT; how < ENTRIES; how++) {
		struct subject s[2] = {subject_new(set_kind(set, 0)),
				       subject_new(set_kind(set, 1))};
		int ep = ep_new();
		struct waiter *w = waiter_begin(ep, 1, -1, how);

		assert_true(thread_asleep(&w->t));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[0].fd, EPOLLIN, 'a'));
		waiters_stay(&w, 1);
		subject_fill(&s[1]);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[1].fd, EPOLLIN, 'b'));
		waiter_gets(w, 'b');
		set_close(s, 2);
		close(ep);
	}
}
EACH_SET(EP_WAKE_11_an_empty_set_sleeps_until_a_ready_ADD)

int main(void)
{
	const struct CMUnitTest ep_wake[] = {
		TEST_EACH_SET(EP_WAKE_01_one_edge_wakes_at_most_one_waiter),
		TEST_EACH_SET(EP_WAKE_01_every_way_of_waiting_is_one_queue),
		TEST_EACH_SET(EP_WAKE_02_the_last_to_sleep_is_woken_first),
		TEST_EACH_SET(EP_WAKE_03_three_edges_of_one_write_wake_three),
		TEST_EACH_SET(EP_WAKE_03_a_burst_of_edges_wakes_as_many),
		TEST_EACH_SET(EP_WAKE_04_who_finds_nothing_sleeps_again_as_the_newest),
		TEST_EACH_SET(EP_WAKE_05_a_level_item_wakes_all_one_after_the_other),
		TEST_EACH_SET(EP_WAKE_05_what_is_left_over_goes_to_the_next_waiter),
		TEST_EACH_SET(EP_WAKE_06_an_edge_is_for_exactly_one_waiter),
		TEST_EACH_SET(EP_WAKE_06_a_oneshot_is_for_exactly_one_waiter),
		TEST_EACH_SET(EP_WAKE_07_after_a_drain_the_others_go_on_sleeping),
		TEST_EACH_SET(EP_WAKE_08_ADD_of_a_ready_file_wakes_one),
		TEST_EACH_SET(EP_WAKE_08_MOD_that_makes_ready_wakes_one),
		TEST_EACH_SET(EP_WAKE_09_no_wake_is_lost_to_a_deadline),
		TEST_EACH_SET(EP_WAKE_09_no_wake_is_lost_to_a_signal),
		TEST_EACH_SET(EP_WAKE_10_pollers_are_told_besides_the_waiter),
		TEST_EACH_SET(EP_WAKE_10_a_waiter_does_not_replace_the_outer),
		cmocka_unit_test(EP_WAKE_11_an_empty_set_sleeps_until_the_deadline),
		cmocka_unit_test(EP_WAKE_11_an_empty_set_sleeps_until_a_signal),
		TEST_EACH_SET(EP_WAKE_11_an_empty_set_sleeps_until_a_ready_ADD),
	};

	return run_group(ep_wake);
}
