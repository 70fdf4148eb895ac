/* SPDX-License-Identifier: MIT */
/* Concurrency: epoll_wait beside epoll_ctl, close, fork and other waits. */
#include "waiting.h"

#include <sched.h>

static void EP_WAIT_01_ADD_during_a_wait_takes_effect(enum set set)
{
	for (enum entry how = BY_WAIT; how < ENTRIES; how++) {
		struct subject s[2] = {subject_new(set_kind(set, 0)),
				       subject_new(set_kind(set, 1))};
		int ep = ep_new();
		struct waiter *w;

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[0].fd, EPOLLIN, 'a'));
		w = waiter_begin(ep, 4, -1, how);
		assert_true(thread_asleep(&w->t));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[1].fd, EPOLLIN, 'b'));
		waiters_stay(&w, 1);
		subject_fill(&s[1]);
		waiter_gets(w, 'b');
		set_close(s, 2);
		close(ep);
	}
}
EACH_SET(EP_WAIT_01_ADD_during_a_wait_takes_effect)

static void EP_WAIT_01_MOD_during_a_wait_takes_effect(enum set set)
{
	struct subject s[2];
	int ep = ep_new();
	struct waiter *w;

	set_new(set, s, 2, ep, 0);
	w = waiter_new(ep, 4);
	subject_fill(&s[1]);
	waiters_stay(&w, 1);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[1].fd, EPOLLIN, 'm'));
	waiter_gets(w, 'm');

	/* A mask taken away during the wait is gone for the next edge. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[0].fd, EPOLLIN | EPOLLET, 'a'));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s[1].fd, 0, 0));
	w = waiter_new(ep, 4);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[0].fd, 0, 'a'));
	subject_fill(&s[0]);
	waiters_stay(&w, 1);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[0].fd, EPOLLIN, 'n'));
	waiter_gets(w, 'n');
	set_close(s, 2);
	close(ep);
}
EACH_SET(EP_WAIT_01_MOD_during_a_wait_takes_effect)

static void EP_WAIT_01_DEL_of_the_only_item_leaves_the_waiter_asleep(enum set set)
{
	struct subject s[2];
	int ep = ep_new();
	struct waiter *w;

	set_new(set, s, 1, ep, EPOLLIN);
	s[1] = subject_new(set_kind(set, 1));
	w = waiter_new(ep, 4);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s[0].fd, 0, 0));
	waiters_stay(&w, 1);
	subject_fill(&s[0]);
	waiters_stay(&w, 1);
	subject_fill(&s[1]);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[1].fd, EPOLLIN, 'b'));
	waiter_gets(w, 'b');
	set_close(s, 2);
	close(ep);
}
EACH_SET(EP_WAIT_01_DEL_of_the_only_item_leaves_the_waiter_asleep)

struct eater {
	struct test_thread t;
	int ep;
	int *eaten;
	int bad;
};

/* Counts what it collects until the item with data 'q' tells it to end. */
static void *eater_main(void *arg)
{
	struct eater *e = arg;
	struct epoll_event ev[4];

	for (;;) {
		int n = epoll_wait(e->ep, ev, 4, -1);

		if (n < 1) {
			e->bad++;
			return NULL;
		}
		for (int i = 0; i < n; i++) {
			if (ev[i].data.u64 == 'q')
				return NULL;
			__atomic_add_fetch(&e->eaten[ev[i].data.u64 - 'a'], 1, __ATOMIC_SEQ_CST);
		}
	}
}

static bool eaten_reaches(int *eaten, int want)
{
	int64_t end = now_ms() + SOON_MS;

	while (__atomic_load_n(eaten, __ATOMIC_SEQ_CST) < want) {
		if (now_ms() >= end)
			return false;
		sched_yield();
	}
	return __atomic_load_n(eaten, __ATOMIC_SEQ_CST) == want;
}

/*
 * Every edge is made after the delivery of the one before, so none of them may
 * fall together and each must be counted exactly once.
 */
static void no_edge_twice(enum set set, uint32_t mode)
{
	enum { ROUNDS = 400, THREADS = 4, ITEMS = 3 };
	struct subject s[ITEMS];
	struct eater *e = calloc(THREADS, sizeof(*e));
	int *eaten = calloc(ITEMS, sizeof(*eaten));
	int ep = ep_new(), quit = efd_new(1, EFD_NONBLOCK);

	set_new(set, s, ITEMS, ep, EPOLLIN | mode);
	for (int i = 0; i < THREADS; i++) {
		e[i].ep = ep;
		e[i].eaten = eaten;
		thread_start(&e[i].t, eater_main, &e[i]);
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < ITEMS; i++) {
			subject_fill(&s[i]);
			if ((mode & EPOLLONESHOT) && round > 0)
				assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[i].fd, EPOLLIN | mode,
						 (uint64_t)('a' + i)));
		}
		for (int i = 0; i < ITEMS; i++) {
			assert_true(eaten_reaches(&eaten[i], round + 1));
			subject_drain(&s[i]);
		}
	}
	sleep_ms(QUIET_MS);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, quit, EPOLLIN, 'q'));
	for (int i = 0; i < THREADS; i++) {
		assert_true(thread_join(&e[i].t, SOON_MS));
		assert_int_equal(e[i].bad, 0);
	}
	for (int i = 0; i < ITEMS; i++)
		assert_int_equal(eaten[i], ROUNDS);
	free(e);
	free(eaten);
	close(quit);
	set_close(s, ITEMS);
	close(ep);
}

static void EP_WAIT_02_no_two_threads_get_the_same_edge(enum set set)
{
	no_edge_twice(set, EPOLLET);
}
EACH_SET(EP_WAIT_02_no_two_threads_get_the_same_edge)

static void EP_WAIT_02_no_two_threads_get_the_same_oneshot(enum set set)
{
	no_edge_twice(set, EPOLLONESHOT);
}
EACH_SET(EP_WAIT_02_no_two_threads_get_the_same_oneshot)

struct collect {
	struct test_thread t;
	int ep;
	int max;
	struct epoll_event *ev;
	int n;
};

static void *collect_main(void *arg)
{
	struct collect *c = arg;

	c->n = epoll_wait(c->ep, c->ev, c->max, -1);
	return NULL;
}

struct action {
	struct test_thread t;
	int ep;
	const struct subject *s;
	int r;
};

static void *fire_main(void *arg)
{
	struct action *a = arg;
	uint64_t one = 1;

	a->r = write(a->s->peer, &one, a->s->kind == KIND_EVENTFD ? 8 : 1) > 0;
	return NULL;
}

static void *del_main(void *arg)
{
	struct action *a = arg;

	a->r = epoll_ctl(a->ep, EPOLL_CTL_DEL, a->s->fd, NULL);
	return NULL;
}

static void EP_WAIT_03_signalling_does_not_wait_for_a_stuck_collection(enum set set)
{
	struct subject s[3];
	struct collect *c;
	struct action *a;
	struct trap trap = {0};

	NEEDS_ONE_ORDER(set == SET_MIXED);
	c = calloc(1, sizeof(*c));
	a = calloc(1, sizeof(*a));
	if (!trap_new(&trap, 0)) {
		free(a);
		free(c);
		SKIP("no userfaultfd for this user");
	}
	c->ep = ep_new();
	c->ev = trap.ev;
	c->max = 1;
	set_new(set, s, 3, c->ep, EPOLLIN | EPOLLET);
	set_fire(s, "a");
	thread_start(&c->t, collect_main, c);
	trap_wait(&trap);
	for (int i = 0; i < 3; i++) {
		a->s = &s[i];
		thread_start(&a->t, fire_main, a);
		assert_true(thread_join(&a->t, SOON_MS));
		assert_int_equal(a->r, 1);
	}
	assert_false(thread_done(&c->t));
	trap_open(&trap);
	assert_true(thread_join(&c->t, SOON_MS));
	assert_int_equal(c->n, 1);
	assert_int_equal(trap.ev[0].data.u64, 'a');
	/* The second edge of a came after it was taken: it is a new one. */
	assert_order(c->ep, 4, "abc");
	assert_order(c->ep, 4, "");
	set_close(s, 3);
	close(c->ep);
	trap_free(&trap);
	free(a);
	free(c);
}
EACH_SET(EP_WAIT_03_signalling_does_not_wait_for_a_stuck_collection)

static void EP_WAIT_03_ctl_and_wait_wait_for_a_stuck_collection(enum set set)
{
	struct subject s[3];
	struct collect *c;
	struct action *a;
	struct trap trap = {0};
	struct epoll_event second = {0};

	NEEDS_ONE_ORDER(set == SET_MIXED);
	c = calloc(2, sizeof(*c));
	a = calloc(1, sizeof(*a));
	if (!trap_new(&trap, 0)) {
		free(a);
		free(c);
		SKIP("no userfaultfd for this user");
	}
	c[0].ep = c[1].ep = a->ep = ep_new();
	c[0].ev = trap.ev;
	c[1].ev = &second;
	c[0].max = c[1].max = 1;
	set_new(set, s, 3, a->ep, EPOLLIN | EPOLLET);
	set_fire(s, "abc");
	a->s = &s[1];
	thread_start(&c[0].t, collect_main, &c[0]);
	trap_wait(&trap);
	thread_start(&a->t, del_main, a);
	sleep_ms(QUIET_MS);
	thread_start(&c[1].t, collect_main, &c[1]);
	sleep_ms(QUIET_MS);
	assert_false(thread_done(&a->t));
	assert_false(thread_done(&c[1].t));
	trap_open(&trap);
	assert_true(thread_join(&c[0].t, SOON_MS));
	assert_true(thread_join(&a->t, SOON_MS));
	assert_true(thread_join(&c[1].t, SOON_MS));
	assert_int_equal(c[0].n, 1);
	assert_int_equal(trap.ev[0].data.u64, 'a');
	assert_int_equal(a->r, 0);
	assert_int_equal(c[1].n, 1);
	/* DEL of b and the second collection race for the lock. */
	if (second.data.u64 == 'b') {
		assert_order(a->ep, 4, "c");
	} else {
		assert_int_equal(second.data.u64, 'c');
		assert_order(a->ep, 4, "");
	}
	set_close(s, 3);
	close(a->ep);
	trap_free(&trap);
	free(a);
	free(c);
}
EACH_SET(EP_WAIT_03_ctl_and_wait_wait_for_a_stuck_collection)

static void EP_WAIT_04_close_of_the_epoll_does_not_end_a_wait(enum set set)
{
	for (enum entry how = BY_WAIT; how < ENTRIES; how++) {
		struct subject s[2];
		int ep = ep_new();
		struct waiter *w[2];

		set_new(set, s, 2, ep, EPOLLIN | EPOLLET);
		for (int i = 0; i < 2; i++) {
			w[i] = waiter_begin(ep, 4, -1, how);
			assert_true(thread_asleep(&w[i]->t));
		}
		assert_ok(close(ep));
		waiters_stay(w, 2);
		subject_fill(&s[0]);
		waiter_gets(w[1], 'a');
		waiters_stay(w, 1);
		subject_fill(&s[1]);
		waiter_gets(w[0], 'b');
		/* The epoll went with its last wait: these edges go nowhere. */
		set_fire(s, "ab");
		set_close(s, 2);
	}
}
EACH_SET(EP_WAIT_04_close_of_the_epoll_does_not_end_a_wait)

static void EP_WAIT_04_a_closed_epoll_still_times_out(enum set set)
{
	struct subject s[2];
	int ep = ep_new();
	struct waiter *w;

	set_new(set, s, 2, ep, EPOLLIN);
	w = waiter_begin(ep, 4, 300, BY_WAIT);
	/* On a slow machine the wait may be over by now; the result is the same. */
	thread_asleep(&w->t);
	assert_ok(close(ep));
	waiter_join(w);
	assert_int_equal(w->n, 0);
	free(w);
	set_close(s, 2);
}
EACH_SET(EP_WAIT_04_a_closed_epoll_still_times_out)

static void EP_WAIT_05_the_number_is_free_and_the_wait_stays_on_the_old_epoll(enum set set)
{
	struct subject s[2], other = subject_new(set_kind(set, 0));
	int ep = ep_new(), again;
	struct waiter *w, *new_w;

	set_new(set, s, 2, ep, EPOLLIN);
	w = waiter_new(ep, 4);
	assert_ok(close(ep));
	again = ep_new();
	assert_int_equal(again, ep);
	assert_ok(ep_ctl(again, EPOLL_CTL_ADD, other.fd, EPOLLIN, 'o'));
	new_w = waiter_new(again, 4);
	subject_fill(&other);
	waiter_gets(new_w, 'o');
	waiters_stay(&w, 1);
	assert_errno(ep_ctl(again, EPOLL_CTL_DEL, s[0].fd, 0, 0), ENOENT);
	subject_fill(&s[1]);
	waiter_gets(w, 'b');
	assert_order(again, 4, "o");
	subject_close(&other);
	set_close(s, 2);
	close(again);
}
EACH_SET(EP_WAIT_05_the_number_is_free_and_the_wait_stays_on_the_old_epoll)

static void EP_WAIT_05_the_number_may_become_an_eventfd(enum set set)
{
	struct subject s[2];
	int ep = ep_new(), fd;
	struct waiter *w;

	set_new(set, s, 2, ep, EPOLLIN);
	w = waiter_new(ep, 4);
	assert_ok(close(ep));
	fd = efd_new(0, EFD_NONBLOCK);
	assert_int_equal(fd, ep);
	efd_add(fd, 7);
	assert_int_equal(efd_take(fd), 7);
	waiters_stay(&w, 1);
	subject_fill(&s[0]);
	waiter_gets(w, 'a');
	close(fd);
	set_close(s, 2);
}
EACH_SET(EP_WAIT_05_the_number_may_become_an_eventfd)

static void EP_WAIT_06_close_of_a_watched_file_leaves_the_waiter_asleep(enum set set)
{
	struct subject s[3];
	int ep = ep_new();
	struct waiter *w;

	set_new(set, s, 3, ep, EPOLLIN);
	w = waiter_new(ep, 4);
	/* The watched end goes first: the other end going would be an event. */
	assert_ok(close(s[0].fd));
	waiters_stay(&w, 1);
	subject_close(&s[1]);
	waiters_stay(&w, 1);
	subject_fill(&s[2]);
	waiter_gets(w, 'c');
	assert_order(ep, 4, "c");
	if (s[0].kind != KIND_EVENTFD)
		close(s[0].peer);
	subject_close(&s[2]);
	close(ep);
}
EACH_SET(EP_WAIT_06_close_of_a_watched_file_leaves_the_waiter_asleep)

static void EP_WAIT_06_close_of_all_watched_files_leaves_the_waiter_asleep(enum set set)
{
	struct subject s[2], late = subject_new(set_kind(set, 0));
	int ep = ep_new();
	struct waiter *w;

	set_new(set, s, 2, ep, EPOLLIN);
	w = waiter_new(ep, 4);
	set_close(s, 2);
	waiters_stay(&w, 1);
	subject_fill(&late);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, late.fd, EPOLLIN, 'l'));
	waiter_gets(w, 'l');
	subject_close(&late);
	close(ep);
}
EACH_SET(EP_WAIT_06_close_of_all_watched_files_leaves_the_waiter_asleep)

/* The child ends with the data of the one event it gets, or with 1. */
static pid_t waiting_child(int ep)
{
	struct epoll_event ev[4];
	pid_t pid = fork_bounded();

	if (pid != 0)
		return pid;
	if (epoll_wait(ep, ev, 4, -1) != 1 || ev[0].events != EPOLLIN)
		_exit(1);
	_exit((int)ev[0].data.u64);
}

static void EP_WAIT_07_a_child_waits_on_the_shared_epoll(enum set set)
{
	struct subject s[2];
	int ep = ep_new();
	pid_t pid;

	set_new(set, s, 2, ep, EPOLLIN | EPOLLET);
	pid = waiting_child(ep);
	assert_true(pid > 0);
	assert_true(child_asleep(pid));
	subject_fill(&s[1]);
	assert_int_equal(child_end(pid), 'b');
	/* The child took the edge for both. */
	assert_order(ep, 4, "");
	/* MOD in this process is what the child reports. */
	pid = waiting_child(ep);
	assert_true(pid > 0);
	assert_true(child_asleep(pid));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s[1].fd, EPOLLIN | EPOLLET, 'm'));
	assert_int_equal(child_end(pid), 'm');
	set_close(s, 2);
	close(ep);
}
EACH_SET(EP_WAIT_07_a_child_waits_on_the_shared_epoll)

static void EP_WAIT_07_waiters_of_two_processes_are_one_queue(enum set set)
{
	struct subject s[3];
	int ep = ep_new();
	struct waiter *w, *last;
	pid_t pid;

	set_new(set, s, 3, ep, EPOLLIN | EPOLLET);
	w = waiter_new(ep, 4);
	pid = waiting_child(ep);
	assert_true(pid > 0);
	assert_true(child_asleep(pid));
	last = waiter_new(ep, 4);
	subject_fill(&s[0]);
	waiter_gets(last, 'a');
	subject_fill(&s[1]);
	assert_int_equal(child_end(pid), 'b');
	waiters_stay(&w, 1);
	subject_fill(&s[2]);
	waiter_gets(w, 'c');
	set_close(s, 3);
	close(ep);
}
EACH_SET(EP_WAIT_07_waiters_of_two_processes_are_one_queue)

int main(void)
{
	const struct CMUnitTest ep_wait[] = {
		TEST_EACH_SET(EP_WAIT_01_ADD_during_a_wait_takes_effect),
		TEST_EACH_SET(EP_WAIT_01_MOD_during_a_wait_takes_effect),
		TEST_EACH_SET(EP_WAIT_01_DEL_of_the_only_item_leaves_the_waiter_asleep),
		TEST_EACH_SET(EP_WAIT_02_no_two_threads_get_the_same_edge),
		TEST_EACH_SET(EP_WAIT_02_no_two_threads_get_the_same_oneshot),
		TEST_EACH_SET(EP_WAIT_03_signalling_does_not_wait_for_a_stuck_collection),
		TEST_EACH_SET(EP_WAIT_03_ctl_and_wait_wait_for_a_stuck_collection),
		TEST_EACH_SET(EP_WAIT_04_close_of_the_epoll_does_not_end_a_wait),
		TEST_EACH_SET(EP_WAIT_04_a_closed_epoll_still_times_out),
		TEST_EACH_SET(EP_WAIT_05_the_number_is_free_and_the_wait_stays_on_the_old_epoll),
		TEST_EACH_SET(EP_WAIT_05_the_number_may_become_an_eventfd),
		TEST_EACH_SET(EP_WAIT_06_close_of_a_watched_file_leaves_the_waiter_asleep),
		TEST_EACH_SET(EP_WAIT_06_close_of_all_watched_files_leaves_the_waiter_asleep),
		TEST_EACH_SET(EP_WAIT_07_a_child_waits_on_the_shared_epoll),
		TEST_EACH_SET(EP_WAIT_07_waiters_of_two_processes_are_one_queue),
	};

	return run_group(ep_wait);
}
