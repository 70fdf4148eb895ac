/* SPDX-License-Identifier: MIT */
/* EPOLLEXCLUSIVE: who is told, in which order, and who counts as woken. */
#include "native.h"

#include <sched.h>
#include <semaphore.h>

#define N 4

struct set {
	struct obj *o;
	struct pollux_ep *ep[N];
};

/* N epolls that watch one object; letters say whether each does so exclusively. */
static struct set set_new(const char *how, uint32_t events)
{
	struct set s = {.o = obj_new(0)};

	for (int i = 0; i < N; i++) {
		s.ep[i] = ep_new();
		ep_add(s.ep[i], &s.o->file, 0,
		       events | EPOLLET | (how[i] == 'x' ? EPOLLEXCLUSIVE : 0), 'a' + i);
	}
	return s;
}

static void set_put(struct set *s)
{
	for (int i = 0; i < N; i++)
		ep_put(s->ep[i]);
	obj_put(s->o);
}

/* Which of the epolls have the event, as a string; they are collected. */
static void set_told(struct set *s, const char *want)
{
	char got[N + 1] = "";

	for (int i = 0; i < N; i++) {
		struct epoll_event ev;

		got[i] = pollux_ep_wait(s->ep[i], &ev, 1, 0) == 1 ? '1' : '0';
	}
	assert_string_equal(got, want);
}

static void EP_EXC_02_exclusive_ones_come_last_and_oldest_first(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	static const char kind[] = "x.x..x";

	(void)state;
	for (int i = 0; i < 6; i++)
		ep_add(ep, &o->file, i, EPOLLIN | EPOLLET | (kind[i] == 'x' ? EPOLLEXCLUSIVE : 0),
		       'a' + i);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_order(ep, 8, "edbacf");
	ep_put(ep);
	obj_put(o);
}

static void EP_EXC_03_the_first_success_ends_the_search(void **state)
{
	struct set s = set_new("xx.x", EPOLLIN);
	struct waiter *w = waiter_new(s.ep[1], 1);

	(void)state;
	obj_fire(s.o, EPOLLIN, EPOLLIN);
	waiter_gets(w, 'b');
	set_told(&s, "1010");
	set_put(&s);
}

static void EP_EXC_04_what_counts_as_a_success(void **state)
{
	/* Interest of the first, key of the wake, whether the second is told as well. */
	static const struct {
		uint32_t events, key;
		bool on;
	} t[] = {
		{EPOLLIN, EPOLLIN, false},
		{EPOLLIN, EPOLLIN | EPOLLPRI, false},
		{EPOLLIN, 0, false},
		{EPOLLIN, EPOLLERR, false},
		{EPOLLIN, EPOLLIN | EPOLLOUT, true},
		{EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLOUT, true},
		{EPOLLIN | EPOLLOUT, EPOLLOUT, false},
		{EPOLLIN, EPOLLOUT | EPOLLERR, true},
		{EPOLLOUT, EPOLLIN | EPOLLHUP, true},
		{EPOLLOUT, EPOLLOUT, false},
		{EPOLLOUT, EPOLLIN, true},
		{0, EPOLLHUP, false},
		{0, 0, false},
		{0, EPOLLIN | EPOLLHUP, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct set s = set_new("xxxx", EPOLLIN | EPOLLOUT);
		struct waiter *w;

		/* In front of the others stands one with the interest in question. */
		for (int k = 0; k < N; k++)
			assert_int_equal(ep_del(s.ep[k], &s.o->file, 0), 0);
		ep_add(s.ep[0], &s.o->file, 0, t[i].events | EPOLLET | EPOLLEXCLUSIVE, 'a');
		ep_add(s.ep[1], &s.o->file, 0, EPOLLIN | EPOLLOUT | EPOLLET | EPOLLEXCLUSIVE, 'b');
		w = waiter_new(s.ep[0], 1);
		obj_fire(s.o, EPOLLIN | EPOLLOUT | EPOLLHUP, t[i].key);
		if (t[i].key && !(t[i].key & (t[i].events | EPOLLERR | EPOLLHUP))) {
			waiter_stays(w);
			waiters_release(s.ep[0], &w, 1);
		} else {
			waiter_gets(w, 'a');
		}
		assert_order(s.ep[1], 4, t[i].on ? "b" : "");
		set_put(&s);
	}
}

/* A host whose clock stands still and whose sleepers do not get to run. */
struct still {
	uint32_t parked, rung;
	sem_t go;
};

static int still_park(void *host, uint32_t *bell, int64_t deadline)
{
	struct still *h = host;

	(void)bell;
	(void)deadline;
	__atomic_fetch_add(&h->parked, 1, __ATOMIC_SEQ_CST);
	while (sem_wait(&h->go) != 0)
		;
	return 0;
}

static void still_unpark(void *host, uint32_t *bell)
{
	(void)bell;
	__atomic_fetch_add(&((struct still *)host)->rung, 1, __ATOMIC_SEQ_CST);
}

static int64_t still_now(void *host)
{
	(void)host;
	return 0;
}

/* The one who has been woken has not run yet, and the epoll is too busy to wake another. */
static void EP_EXC_04_a_sleeper_of_a_busy_epoll_is_a_success(void **state)
{
	struct still h = {.parked = 0};
	const struct pollux_host host = {
		.size = sizeof(host),
		.park = still_park,
		.unpark_one = still_unpark,
		.now = still_now,
		.arg = &h,
	};
	const struct pollux_ep_attr attr = {.size = sizeof(attr), .host = &host};
	struct pollux_ep *busy, *next = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w[2];
	int first;

	(void)state;
	sem_init(&h.go, 0, 0);
	assert_int_equal(pollux_ep_new(&busy, &attr), 0);
	ep_add(busy, &o->file, 0, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 'a');
	ep_add(next, &o->file, 0, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 'b');
	for (int i = 0; i < 2; i++)
		w[i] = waiter_begin(busy, 1, POLLUX_FOREVER);
	while (__atomic_load_n(&h.parked, __ATOMIC_SEQ_CST) < 2)
		sched_yield();
	for (int i = 0; i < 2; i++)
		obj_fire(o, EPOLLIN, EPOLLIN);
	assert_int_equal(h.rung, 1);
	assert_none(next);
	for (int i = 0; i < 2; i++)
		sem_post(&h.go);
	first = waiters_first(w, 2);
	assert_int_equal(w[first]->n, 1);
	free(w[first]);
	obj_fire(o, EPOLLIN, EPOLLIN);
	sem_post(&h.go);
	waiter_gets(w[!first], 'a');
	ep_put(busy);
	ep_put(next);
	obj_put(o);
	sem_destroy(&h.go);
}

static void EP_EXC_05_without_sleepers_all_are_told(void **state)
{
	struct set s = set_new("xxxx", EPOLLIN);

	(void)state;
	obj_fire(s.o, EPOLLIN, EPOLLIN);
	set_told(&s, "1111");
	set_put(&s);
}

static void EP_EXC_06_one_wake_wakes_the_epoll_that_was_added_first(void **state)
{
	struct set s = set_new("xxxx", EPOLLIN);
	struct waiter *w[N];

	(void)state;
	for (int i = 0; i < N; i++)
		w[i] = waiter_new(s.ep[i], 1);
	for (int i = 0; i < N; i++) {
		obj_fire(s.o, EPOLLIN, EPOLLIN);
		waiter_gets(w[i], 'a' + i);
		for (int k = i + 1; k < N; k++)
			assert_false(thread_done(&w[k]->t));
		if (i + 1 < N)
			waiter_stays(w[i + 1]);
	}
	set_put(&s);
}

static void EP_EXC_07_a_watcher_of_the_epoll_does_not_count(void **state)
{
	struct set s = set_new("xxxx", EPOLLIN);
	struct pollux_ep *up = ep_new();
	struct waiter *w;

	(void)state;
	ep_add(up, pollux_ep_file(s.ep[0]), 0, EPOLLIN, 'e');
	w = waiter_new(up, 1);
	obj_fire(s.o, EPOLLIN, EPOLLIN);
	waiter_gets(w, 'e');
	set_told(&s, "1111");
	ep_put(up);
	set_put(&s);
}

static void EP_EXC_08_a_wake_for_all_tells_all(void **state)
{
	struct set s = set_new("xxxx", EPOLLIN);
	struct waiter *w = waiter_new(s.ep[0], 1);

	(void)state;
	obj_set(s.o, EPOLLIN);
	pollux_file_wake_all(&s.o->file, EPOLLIN);
	waiter_gets(w, 'a');
	set_told(&s, "0111");
	set_put(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(EP_EXC_02_exclusive_ones_come_last_and_oldest_first),
		TEST(EP_EXC_03_the_first_success_ends_the_search),
		TEST(EP_EXC_04_what_counts_as_a_success),
		TEST(EP_EXC_04_a_sleeper_of_a_busy_epoll_is_a_success),
		TEST(EP_EXC_05_without_sleepers_all_are_told),
		TEST(EP_EXC_06_one_wake_wakes_the_epoll_that_was_added_first),
		TEST(EP_EXC_07_a_watcher_of_the_epoll_does_not_count),
		TEST(EP_EXC_08_a_wake_for_all_tells_all),
	};

	return RUN(tests);
}
