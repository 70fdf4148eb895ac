/* SPDX-License-Identifier: MIT */
/*
 * Shared ground of the torture tests. Each file has one claim; each test says at
 * its end how often it met the race that it is about, and fails if it never did.
 *
 * POLLUX_TORTURE_SECONDS is the time for one test of the random kind (default 1,
 * 20 in long runs).
 */
#ifndef TESTS_TORTURE_H
#define TESTS_TORTURE_H

#include "native/native.h"
#include "points.h"

#include <sched.h>

#define MAX_THREADS 16

static int torture_stop;
static int torture_failed;

/* From any thread: the test fails, and all threads stop. */
#define broken(...)                                                                                \
	do {                                                                                       \
		if (!__atomic_exchange_n(&torture_failed, 1, __ATOMIC_SEQ_CST)) {                  \
			fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                            \
			fprintf(stderr, __VA_ARGS__);                                              \
			fputc('\n', stderr);                                                       \
		}                                                                                  \
		__atomic_store_n(&torture_stop, 1, __ATOMIC_SEQ_CST);                              \
	} while (0)

#define check(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			broken("%s", #cond);                                                       \
	} while (0)

static inline bool stopping(void)
{
	return __atomic_load_n(&torture_stop, __ATOMIC_SEQ_CST);
}

static inline int64_t torture_ns(void)
{
	const char *s = getenv("POLLUX_TORTURE_SECONDS");

	if (s)
		return (int64_t)(strtod(s, NULL) * 1e9);
	return getenv("POLLUX_TEST_LONG") ? 20000000000ll : 1000000000ll;
}

/* Until the time is over or a thread has found something broken. */
static inline bool torture_goes_on(int64_t start)
{
	return !stopping() && now_ns() - start < torture_ns();
}

/* What a test waits for in vain: the machine is broken, or the race cannot be met. */
#define TORTURE_AT_MOST (240 * 1000000000ll)

/*
 * For one of several parts of the time; for longer, within bounds, if the race has not been
 * met by then, however busy the machine is.
 */
static inline bool torture_part_until(int64_t start, int parts, bool met)
{
	return !stopping() && now_ns() - start < (met ? torture_ns() / parts : TORTURE_AT_MOST);
}

static inline bool torture_until(int64_t start, bool met)
{
	return torture_part_until(start, 1, met);
}

/* More sleeps than any thread takes on its way to a wait. */
#define STEPS 10

/*
 * Waits until it sleeps over and over, as one does that waits in steps (plx_await_step,
 * wait_moved), and returns whether it does. thread_asleep would wait for two looks at one sleep,
 * which is shorter than the time between them.
 */
static inline bool thread_in_steps(struct thread *t)
{
	unsigned long sleeps = 0;
	int64_t end = now_ms() + SOON_MS;

	while (!thread_done(t) && now_ms() < end) {
		if (task_state(OF_THREAD, t->tid, &sleeps) && sleeps >= STEPS)
			return true;
		sleep_ms(1);
	}
	return false;
}

/* The thread, or another, comes to the gate. */
static inline void start_to_gate(struct thread *t, void (*run)(struct thread *), void *arg,
				 struct gate *g)
{
	thread_start(t, run, arg);
	assert_true(gate_reached(g));
}

/* Sleeps while other threads do it. */
#define torture_sleep_until(met)                                                                   \
	do {                                                                                       \
		int64_t start_ = now_ns();                                                         \
		while (torture_until(start_, met))                                                 \
			sleep_ms(5);                                                               \
	} while (0)

static inline void torture_begin(void)
{
	torture_stop = torture_failed = 0;
	points_delay(true);
}

static inline void torture_end(struct thread *t, int n)
{
	__atomic_store_n(&torture_stop, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < n; i++)
		thread_join(&t[i]);
	assert_false(torture_failed);
}

/* Waits, bounded, until the condition holds. */
#define await(cond)                                                                                \
	({                                                                                         \
		int64_t end_ = now_ns() + SOON_MS * 1000000ll;                                     \
		bool met_ = (cond);                                                                \
		while (!met_ && now_ns() < end_) {                                                 \
			sched_yield();                                                             \
			met_ = (cond);                                                             \
		}                                                                                  \
		met_;                                                                              \
	})

/* Threads that meet, spinning; the n-th to come lets all go. */
struct meet {
	uint32_t n, in, round;
};

static inline bool meet(struct meet *m)
{
	uint32_t round = __atomic_load_n(&m->round, __ATOMIC_SEQ_CST);

	if (__atomic_add_fetch(&m->in, 1, __ATOMIC_SEQ_CST) == m->n) {
		__atomic_store_n(&m->in, 0, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&m->round, 1, __ATOMIC_SEQ_CST);
		return true;
	}
	for (int i = 0; __atomic_load_n(&m->round, __ATOMIC_SEQ_CST) == round; i++) {
		if (i > 200)
			sched_yield();
		if (stopping())
			return false;
	}
	return true;
}

#define atomic_add(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define atomic_get(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define atomic_set(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)

/* A thread that writes once and may be stopped on its way. */
struct stopped {
	struct thread t;
	struct gate g;
	const char *point;
	struct pollux_efd *e;
	struct obj *o;
};

static void stopped_main(struct thread *t)
{
	struct stopped *s = t->arg;

	gate_arm(&s->g, s->point);
	if (s->e)
		(void)pollux_efd_write(s->e, 1, 0);
	else
		obj_fire(s->o, EPOLLIN, EPOLLIN);
}

/* Returns when the thread stands at the point. */
static inline void stopped_start(struct stopped *s, const char *point, struct pollux_efd *e,
				 struct obj *o)
{
	s->point = point;
	s->e = e;
	s->o = o;
	/* What the gate said of an earlier thread must not be taken for this one. */
	s->g = (struct gate){0};
	thread_start(&s->t, stopped_main, s);
	assert_true(gate_reached(&s->g));
}

static inline void stopped_go(struct stopped *s)
{
	gate_open(&s->g);
	thread_join(&s->t);
}

#endif
