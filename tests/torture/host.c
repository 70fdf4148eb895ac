/* SPDX-License-Identifier: MIT */
/*
 * A host is not called after its end: after `released`, or after the last put has returned where
 * there is none, however late a waker comes to its unpark.
 */
#include "torture.h"

#include <linux/futex.h>

#define ALIVE 0x616c6976u

struct host {
	uint32_t alive;
};

static unsigned long parks, unparks, ends;

static void look(struct host *h)
{
	if (__atomic_load_n(&h->alive, __ATOMIC_SEQ_CST) != ALIVE)
		broken("a host is called that is gone");
}

static void host_end(struct host *h)
{
	look(h);
	__atomic_store_n(&h->alive, 0, __ATOMIC_SEQ_CST);
	atomic_add(&ends, 1);
	/* The sanitizers see to the rest. */
	free(h);
}

static int host_park(void *arg, uint32_t *bell, int64_t deadline)
{
	struct timespec ts = {.tv_nsec = 1000000};
	uint32_t seen = __atomic_load_n(bell, __ATOMIC_ACQUIRE);

	(void)deadline;
	look(arg);
	atomic_add(&parks, 1);
	if (!(seen & POLLUX_BELL_MASK))
		syscall(SYS_futex, bell, FUTEX_WAIT_PRIVATE, seen, &ts, NULL, 0);
	look(arg);
	return 0;
}

static void host_unpark(void *arg, uint32_t *bell)
{
	look(arg);
	atomic_add(&unparks, 1);
	syscall(SYS_futex, bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	look(arg);
}

static int64_t host_now(void *arg)
{
	look(arg);
	return now_ns();
}

static void host_released(void *arg)
{
	host_end(arg);
}

static struct host *host_make(struct pollux_ep **ep, bool told)
{
	struct host *h = calloc(1, sizeof(*h));
	struct pollux_host host = {
		.size = sizeof(host),
		.park = host_park,
		.unpark_one = host_unpark,
		.now = host_now,
		.released = told ? host_released : NULL,
		.arg = h,
	};
	const struct pollux_ep_attr attr = {.size = sizeof(attr), .host = &host};

	assert_non_null(h);
	h->alive = ALIVE;
	assert_int_equal(pollux_ep_new(ep, &attr), 0);
	return h;
}

struct waker {
	struct thread t;
	struct gate g;
	struct obj *o;
};

static void late_waker(struct thread *t)
{
	struct waker *w = t->arg;

	gate_arm(&w->g, "bell_before_unpark");
	obj_fire(w->o, EPOLLIN, EPOLLIN);
}

struct putter {
	struct thread t;
	struct pollux_ep *ep;
};

static void putter(struct thread *t)
{
	struct putter *p = t->arg;

	ep_put(p->ep);
}

/* false: it came while the sleeper was between two parks, and has rung for nobody. */
static bool late_round(bool told)
{
	struct pollux_ep *ep;
	struct host *h = host_make(&ep, told);
	struct obj *o = obj_new(0);
	struct waiter *sleeps;
	struct waker late = {.o = o};
	struct putter puts = {.ep = ep};
	unsigned long before = atomic_get(&ends), rung = atomic_get(&unparks), ended;
	unsigned long parked = atomic_get(&parks);
	bool done;

	points_delay(false);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	sleeps = waiter_begin(ep, 1, POLLUX_FOREVER);
	/* Between two milliseconds it wants a CPU, which a busy machine may not have for it. */
	assert_true(await(atomic_get(&parks) > parked));
	thread_start(&late.t, late_waker, &late);
	assert_true(await(atomic_get(&late.g.reached) || thread_done(&late.t)));
	/* The event is pushed, so the sleeper finds it when its millisecond is over. */
	waiter_gets(sleeps, 'a');
	if (!atomic_get(&late.g.reached)) {
		thread_join(&late.t);
		ep_put(ep);
		if (!told)
			host_end(h);
		obj_put(o);
		pollux_quiesce();
		return false;
	}
	thread_start(&puts.t, putter, &puts);
	if (told)
		thread_join(&puts.t);
	else
		sleep_ms(QUIET_MS);
	done = thread_done(&puts.t);
	ended = atomic_get(&ends) - before;
	gate_open(&late.g);
	thread_join(&late.t);
	assert_int_equal(done, told);
	assert_int_equal(ended, 0);
	assert_int_equal(atomic_get(&unparks), rung + 1);
	if (!told) {
		thread_join(&puts.t);
		host_end(h);
	}
	obj_put(o);
	pollux_quiesce();
	assert_int_equal(atomic_get(&ends), before + 1);
	assert_false(torture_failed);
	return true;
}

static void a_waker_that_comes_late(bool told)
{
	int64_t start = now_ns();
	bool met = false;

	while (!met && torture_until(start, met))
		met = late_round(told);
	assert_true(met);
}

static void a_late_waker_meets_a_host_that_is_told(void **state)
{
	(void)state;
	a_waker_that_comes_late(true);
}

static void a_late_waker_holds_up_the_last_put_of_one_that_is_not(void **state)
{
	(void)state;
	a_waker_that_comes_late(false);
}

struct storm {
	struct obj *o;
	struct pollux_ep *ep;
};

static void storm_waker(struct thread *t)
{
	struct storm *s = t->arg;

	while (!stopping())
		obj_fire(s->o, EPOLLIN, EPOLLIN);
}

static void storm_waiter(struct thread *t)
{
	struct storm *s = t->arg;
	struct epoll_event ev;

	for (int i = 0; i < 4; i++)
		pollux_ep_wait(s->ep, &ev, 1, 2000000);
	ep_put(s->ep);
}

static void hosts_come_and_go_beside_wakers(void **state)
{
	struct storm s = {.o = obj_new(0)};
	struct thread wakers[2];
	unsigned long rounds = 0, rung = atomic_get(&unparks);
	int64_t start = now_ns();

	(void)state;
	torture_begin();
	for (int i = 0; i < 2; i++)
		thread_start(&wakers[i], storm_waker, &s);
	while (torture_until(start, rounds > 20 && atomic_get(&unparks) > rung + 20)) {
		bool told = rounds++ % 2;
		struct host *h = host_make(&s.ep, told);
		struct thread waiters[2];

		ep_add(s.ep, &s.o->file, 0, EPOLLIN | EPOLLET, 'a');
		for (int i = 0; i < 2; i++) {
			pollux_file_get(pollux_ep_file(s.ep));
			thread_start(&waiters[i], storm_waiter, &s);
		}
		ep_put(s.ep);
		for (int i = 0; i < 2; i++)
			thread_join(&waiters[i]);
		if (!told)
			host_end(h);
	}
	torture_end(wakers, 2);
	printf("%lu hosts, %lu calls of unpark_one\n", rounds, atomic_get(&unparks) - rung);
	obj_put(s.o);
	pollux_quiesce();
	assert_false(torture_failed);
	assert_true(atomic_get(&unparks) > rung);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_late_waker_meets_a_host_that_is_told),
		TEST(a_late_waker_holds_up_the_last_put_of_one_that_is_not),
		TEST(hosts_come_and_go_beside_wakers),
	};

	return RUN(tests);
}
