/* SPDX-License-Identifier: MIT */
/*
 * Timers beside threads that come to wait, sleep, and leave with other events: whatever has expired
 * is reported, without anybody who wakes for it.
 */
#include "torture.h"

#include <pollux/timer.h>
#include <sys/eventfd.h>

#define WAITERS 3
#define TIMERS 4

struct shared {
	struct pollux_ep *ep, *inner;
	struct pollux_timer *t[TIMERS];
	/* What the setter waits for. */
	uint32_t got[TIMERS];
	struct obj *o;
	unsigned long events, rounds;
};

static void waits(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t seed = (uint32_t)t->tid;
	struct epoll_event ev[2];

	while (!stopping()) {
		int64_t ns = rnd(&seed) % 3 ? POLLUX_FOREVER : (int64_t)(rnd(&seed) % 200000);
		int n = pollux_ep_wait(s->ep, ev, 1 + (int)(rnd(&seed) % 2), ns);

		if (n == -ESHUTDOWN)
			return;
		check(n >= 0);
		atomic_add(&s->events, n);
		for (int i = 0; i < n; i++) {
			struct epoll_event *e = &ev[i], in;
			uint64_t times;

			if (e->data.u64 == 'o')
				continue;
			if (e->data.u64 == 'i') {
				if (pollux_ep_wait(s->inner, &in, 1, 0) != 1)
					continue;
				e = &in;
			}
			/* Level-triggered: another may have been quicker. */
			if (pollux_timer_read(s->t[e->data.u64], &times) == 0)
				atomic_set(&s->got[e->data.u64], 1);
		}
		for (uint32_t k = rnd(&seed) % 2000; k; k--)
			__asm__ __volatile__("");
	}
}

static void fires(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t seed = (uint32_t)t->tid;

	while (!stopping()) {
		obj_fire(s->o, EPOLLIN, EPOLLIN);
		for (uint32_t k = rnd(&seed) % 20000; k; k--)
			__asm__ __volatile__("");
	}
}

/* One at a time, so that no other makes up for it. */
static void sets(struct shared *s, uint32_t *seed)
{
	uint32_t i = rnd(seed) % TIMERS;
	int64_t end = now_ns() + SOON_MS * 1000000ll;

	atomic_set(&s->got[i], 0);
	if (rnd(seed) % 2)
		check(pollux_timer_set(s->t[i], now_ns() + 1000000000000ll, 0) == 0);
	check(pollux_timer_set(s->t[i], now_ns() + rnd(seed) % 100000, 0) == 0);
	if (rnd(seed) % 4 == 0)
		check(pollux_timer_set(s->t[i], now_ns() + rnd(seed) % 100000, 0) == 0);
	while (!atomic_get(&s->got[i]) && now_ns() < end && !stopping())
		sched_yield();
	check(atomic_get(&s->got[i]));
	s->rounds++;
}

static void beside_waits(bool fds, bool events)
{
	struct shared s = {.ep = ep_new(), .inner = ep_new(), .o = obj_new(0)};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 'o'};
	unsigned long passed = points_passed("due_kept");
	int fd = eventfd(0, EFD_CLOEXEC);
	struct thread t[WAITERS], f;
	int64_t start = now_ns();
	uint32_t seed = 11;

	torture_begin();
	if (fds)
		check(pollux_ep_ctl_fd(s.ep, EPOLL_CTL_ADD, fd, &ev) == 0);
	for (int i = 0; i < TIMERS; i++) {
		check(pollux_timer_new(&s.t[i], NULL) == 0);
		/* The last one is nested. */
		ep_add(i == TIMERS - 1 ? s.inner : s.ep, pollux_timer_file(s.t[i]), 0, EPOLLIN, i);
	}
	ep_add(s.ep, pollux_ep_file(s.inner), 0, EPOLLIN, 'i');
	ep_add(s.ep, &s.o->file, 0, EPOLLIN | EPOLLET, 'o');
	for (int i = 0; i < WAITERS; i++)
		thread_start(&t[i], waits, &s);
	if (events)
		thread_start(&f, fires, &s);
	while (torture_part_until(start, 3, s.rounds > 20 && points_passed("due_kept") > passed))
		sets(&s, &seed);
	atomic_set(&torture_stop, 1);
	pollux_ep_shutdown(s.ep);
	torture_end(t, WAITERS);
	if (events)
		thread_join(&f);
	printf("%lu timers, %lu events, %lu times kept\n", s.rounds, s.events,
	       points_passed("due_kept") - passed);
	for (int i = 0; i < TIMERS; i++)
		pollux_file_put(pollux_timer_file(s.t[i]));
	obj_put(s.o);
	ep_put(s.ep);
	ep_put(s.inner);
	close(fd);
}

static void on_a_futex(void **state)
{
	(void)state;
	beside_waits(false, true);
}

static void on_a_futex_alone(void **state)
{
	(void)state;
	beside_waits(false, false);
}

static void in_the_kernel(void **state)
{
	(void)state;
	beside_waits(true, true);
}

/* A time that comes between the two looks of a poll is not lost. */
struct looker {
	struct gate g;
	struct pollux_ep *ep;
	const char *point;
	int n;
};

static void looks(struct thread *t)
{
	struct looker *a = t->arg;
	struct epoll_event ev;

	gate_arm(&a->g, a->point);
	a->n = pollux_ep_wait(a->ep, &ev, 1, POLLUX_FOREVER);
}

static void a_time_that_comes_within_a_poll(void **state)
{
	static const char *const points[] = {"due_before_poll", "due_after_poll"};

	(void)state;
	points_delay(false);
	for (int i = 0; i < 2; i++) {
		struct looker a = {.ep = ep_new(), .point = points[i]};
		struct pollux_timer *timer;
		struct thread t;

		assert_int_equal(pollux_timer_new(&timer, NULL), 0);
		ep_add(a.ep, pollux_timer_file(timer), 0, EPOLLIN, 't');
		/* It is on the ready list by this, and polled by the wait. */
		assert_int_equal(pollux_timer_set(timer, now_ns() + 50000000, 0), 0);
		start_to_gate(&t, looks, &a, &a.g);
		sleep_ms(60);
		gate_open(&a.g);
		thread_join(&t);
		assert_int_equal(a.n, 1);
		pollux_file_put(pollux_timer_file(timer));
		ep_put(a.ep);
	}
}

/* Between its look at the time and its sleep the one, when it becomes earlier. */
struct sleeper {
	struct thread t;
	struct gate g;
	struct pollux_ep *ep;
	struct epoll_event ev;
	int n;
};

static void sleeps(struct thread *t)
{
	struct sleeper *s = t->arg;

	gate_arm(&s->g, "due_kept");
	s->n = pollux_ep_wait(s->ep, &s->ev, 1, POLLUX_FOREVER);
}

static void a_time_that_becomes_earlier_before_the_sleep(void **state)
{
	struct sleeper s = {.ep = ep_new()};
	struct pollux_timer *t;

	(void)state;
	points_delay(false);
	assert_int_equal(pollux_timer_new(&t, NULL), 0);
	ep_add(s.ep, pollux_timer_file(t), 0, EPOLLIN, 't');
	assert_int_equal(pollux_timer_set(t, now_ns() + 1000000000000ll, 0), 0);
	start_to_gate(&s.t, sleeps, &s, &s.g);
	assert_int_equal(pollux_timer_set(t, now_ns() + 1000000, 0), 0);
	gate_open(&s.g);
	thread_join(&s.t);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.ev.data.u64, 't');
	pollux_file_put(pollux_timer_file(t));
	ep_put(s.ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_time_that_comes_within_a_poll),
		TEST(a_time_that_becomes_earlier_before_the_sleep),
		TEST(on_a_futex_alone),
		TEST(on_a_futex),
		TEST(in_the_kernel),
	};

	return RUN(tests);
}
