/* SPDX-License-Identifier: MIT */
/*
 * What a waiter does before it sleeps when its waker shares the CPU: it yields, and stops
 * yielding while that costs more than it brings.
 */
#include "native.h"

#include <sched.h>

#include "base/clock.h"
#include "base/spin.h"

#define MS 1000000ll
#define LONG_NS (5 * MS)
/* The shortest pause after a yield that was not worth its time, in times that it took. */
#define PAUSE_TIMES 4
/* What an event may take before anything was measured, and at most. */
#define EVENT_NS 10000
#define EVENT_MAX_NS 500000
#define TRIES 200
#define ENOUGH 20

struct looks {
	int calls;
	bool busy;
	bool found;
};

/* Looks like a yield during which somebody computed. */
static bool look(void *arg)
{
	struct looks *l = arg;
	int64_t end = plx_now_ns() + LONG_NS;

	l->calls++;
	while (l->busy && plx_now_ns() < end)
		;
	return l->found;
}

/* Each spin stands for itself: nothing is skipped because of those before. */
static bool spin_once(struct plx_yields *y, bool (*done)(void *), void *arg)
{
	struct plx_spin_state s = {0};

	plx_spin_note_waker(&s);
	return plx_spin(y, &s, done, arg);
}

/* The test in a thread of its own, which stays on one CPU. */
static void on_one_cpu(void *(*fn)(void *), void *arg)
{
	pthread_join(thread_bound(sched_getcpu(), fn, arg), NULL);
}

static struct {
	bool asked, answered, over;
} pair;

static void *partner(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&pair.over, __ATOMIC_ACQUIRE)) {
		if (__atomic_exchange_n(&pair.asked, false, __ATOMIC_ACQ_REL))
			__atomic_store_n(&pair.answered, true, __ATOMIC_RELEASE);
		sched_yield();
	}
	return NULL;
}

static bool answered(void *arg)
{
	(void)arg;
	return __atomic_load_n(&pair.answered, __ATOMIC_ACQUIRE);
}

/* So many answers one after the other do not come from being preempted now and then. */
static void *ask(void *arg)
{
	int64_t end = plx_now_ns() + SOON_MS * MS;
	struct plx_yields y = {0};
	int *in_a_row = arg;
	pthread_t t;

	/* It inherits the one CPU. */
	if (pthread_create(&t, NULL, partner, NULL))
		return NULL;
	while (*in_a_row < ENOUGH && plx_now_ns() < end) {
		__atomic_store_n(&pair.answered, false, __ATOMIC_RELEASE);
		__atomic_store_n(&pair.asked, true, __ATOMIC_RELEASE);
		++*in_a_row;
		if (!spin_once(&y, answered, NULL)) {
			*in_a_row = 0;
			/* No pause is waited for. */
			y = (struct plx_yields){0};
		}
	}
	__atomic_store_n(&pair.over, true, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	return NULL;
}

static void test_partner_on_the_same_cpu_answers(void **state)
{
	int in_a_row = 0;

	(void)state;
	on_one_cpu(ask, &in_a_row);
	assert_int_equal(in_a_row, ENOUGH);
}

enum outcome { UNCLEAR, YIELDED, PAUSED };

struct verdict {
	/* Whether there is something after the long yield, and how many events then. */
	bool found;
	int events;
	/* Of a pause before, if there was one: events in it; 0: none. */
	int slept;
	/* What an event may take then. */
	int64_t bearable;
	enum outcome outcome;
};

/* Until yields go on; a time before which they did not, or 0 if they never do. */
static int64_t wait_for_the_end_of_a_pause(struct plx_yields *y)
{
	struct looks l = {0};
	int64_t end = plx_now_ns() + SOON_MS * MS;
	int64_t now;

	do {
		struct timespec ts = {.tv_nsec = MS};

		nanosleep(&ts, NULL);
		now = plx_now_ns();
		spin_once(y, look, &l);
	} while (!l.calls && now < end);
	return l.calls ? now : 0;
}

/*
 * One long yield, and what the next spin does. UNCLEAR: the machine was so slow that it
 * proves nothing.
 */
static void *judge(void *arg)
{
	struct verdict *v = arg;
	struct plx_yields y = {0};
	struct looks l = {.busy = true}, next = {0};
	int64_t start = plx_now_ns();
	int64_t took;

	if (v->slept) {
		if (spin_once(&y, look, &l) || l.calls != 1)
			return NULL;
		plx_spin_brought(&y, v->slept);
		start = wait_for_the_end_of_a_pause(&y);
		if (!start)
			return NULL;
		l.calls = 0;
	}
	l.found = v->found;
	if (spin_once(&y, look, &l) != v->found || l.calls != 1)
		return NULL;
	plx_spin_brought(&y, v->events);
	took = plx_now_ns() - start;
	/* Of the pause alone: the windows have measured nothing. */
	y.way_ns[0] = y.way_ns[1] = 0;
	y.window = 0;
	spin_once(&y, look, &next);
	if (!next.calls)
		v->outcome = PAUSED;
	else if (plx_now_ns() - start < PAUSE_TIMES * LONG_NS)
		v->outcome = YIELDED;
	/* How long it was allowed to take depends on what it took. */
	if (v->bearable && v->outcome == PAUSED && took > v->bearable * v->events)
		v->outcome = UNCLEAR;
	return NULL;
}

static enum outcome verdict(struct verdict v)
{
	for (int i = 0; i < TRIES && v.outcome == UNCLEAR; i++)
		on_one_cpu(judge, &v);
	return v.outcome;
}

static void test_long_yield_is_followed_by_a_pause(void **state)
{
	(void)state;
	assert_int_equal(verdict((struct verdict){.found = false}), PAUSED);
}

static void test_long_yield_for_one_event_too(void **state)
{
	(void)state;
	assert_int_equal(verdict((struct verdict){.found = true, .events = 1}), PAUSED);
}

static void test_long_yield_for_many_events_is_none(void **state)
{
	struct verdict v = {.found = true, .events = 2000, .bearable = EVENT_NS};

	(void)state;
	assert_int_equal(verdict(v), YIELDED);
}

/* A hundred of them in the pause, of 20 ms at least: 200 us for each. */
static void test_long_yields_are_borne_where_sleeps_are_no_better(void **state)
{
	struct verdict v = {.found = true, .events = 100, .slept = 100, .bearable = 20 * EVENT_NS};

	(void)state;
	assert_int_equal(verdict(v), YIELDED);
}

/* However slow sleeps were. */
static void test_long_yields_are_not_borne_beyond_a_bound(void **state)
{
	struct verdict v = {.found = true, .events = 5, .slept = 1};

	(void)state;
	assert_true(LONG_NS > 5 * EVENT_MAX_NS);
	assert_int_equal(verdict(v), PAUSED);
}

struct pauses {
	bool clear;
	int64_t ns[2];
};

static void *pause_twice(void *arg)
{
	struct pauses *p = arg;
	struct plx_yields y = {0};

	for (int i = 0; i < 2; i++) {
		struct looks l = {.busy = true};
		int64_t start = plx_now_ns();

		spin_once(&y, look, &l);
		p->clear = l.calls == 1 && wait_for_the_end_of_a_pause(&y);
		if (!p->clear)
			return NULL;
		p->ns[i] = plx_now_ns() - start;
	}
	return NULL;
}

/* Nothing that the machine does besides can make a pause shorter. */
static void test_pause_after_pause_is_longer(void **state)
{
	struct pauses p = {.clear = false};

	(void)state;
	for (int i = 0; i < TRIES && !p.clear; i++)
		on_one_cpu(pause_twice, &p);
	assert_true(p.clear);
	assert_true(p.ns[0] >= PAUSE_TIMES * LONG_NS);
	assert_true(p.ns[1] >= 2 * PAUSE_TIMES * LONG_NS);
}

/* An object that has events all the time: what one takes if the waiter yields, and if it sleeps. */
struct busy {
	int64_t yield_ns, sleep_ns;
	/* The most sleeps without a yield between them. */
	int in_a_row;
};

/* None is long. */
#define SLOW_NS 30000
#define QUICK_NS 5000
/* Looks at the other way take 10 ms. */
#define MORE_THAN_A_LOOK_MS 25
/* Each takes half a second. */
#define BUSY_TRIES 20

static void pass(int64_t ns)
{
	int64_t end = plx_now_ns() + ns;

	while (plx_now_ns() < end)
		;
}

static bool answer_to_yield(void *arg)
{
	struct busy *b = arg;

	pass(b->yield_ns);
	return true;
}

static void *be_busy(void *arg)
{
	struct busy *b = arg;
	struct plx_yields y = {0};
	int64_t end = plx_now_ns() + 500 * MS;

	for (int sleeps = 0; plx_now_ns() < end;) {
		uint32_t yielded = y.way_ns[0];

		if (spin_once(&y, answer_to_yield, b)) {
			sleeps = 0;
		} else {
			pass(b->sleep_ns);
			b->in_a_row = ++sleeps > b->in_a_row ? sleeps : b->in_a_row;
		}
		plx_spin_brought(&y, 1);
		/* One that was preempted is no long one here. */
		if (y.paused)
			y.way_ns[0] = yielded;
		y.pause_end = y.paused = 0;
	}
	return NULL;
}

static void test_yields_that_make_events_slow_end(void **state)
{
	struct busy b = {.yield_ns = SLOW_NS, .sleep_ns = QUICK_NS};

	(void)state;
	/* A machine that is so slow that few events come measures nothing. */
	for (int i = 0; i < BUSY_TRIES && b.in_a_row < MORE_THAN_A_LOOK_MS * MS / QUICK_NS; i++)
		on_one_cpu(be_busy, &b);
	assert_true(b.in_a_row >= MORE_THAN_A_LOOK_MS * MS / QUICK_NS);
}

static void test_yields_that_make_events_quick_go_on(void **state)
{
	struct busy b = {.yield_ns = QUICK_NS, .sleep_ns = SLOW_NS};

	(void)state;
	/* Nor does one that stands still in the windows of yields. */
	for (int i = 0; i < BUSY_TRIES; i++) {
		b.in_a_row = 0;
		on_one_cpu(be_busy, &b);
		if (b.in_a_row < MORE_THAN_A_LOOK_MS * MS / SLOW_NS)
			return;
	}
	fail();
}

struct policy {
	struct looks looks;
	bool permitted;
};

static void *spin_in_real_time(void *arg)
{
	struct policy *p = arg;
	struct plx_yields y = {0};
	struct sched_param param = {.sched_priority = 1};

	p->permitted = sched_setscheduler(0, SCHED_FIFO, &param) == 0;
	if (p->permitted)
		spin_once(&y, look, &p->looks);
	return NULL;
}

static void test_real_time_thread_does_not_yield(void **state)
{
	struct policy p = {.permitted = false};

	(void)state;
	on_one_cpu(spin_in_real_time, &p);
	if (!p.permitted) {
		print_message("skipped: no real-time priority for this user\n");
		skip();
	}
	assert_int_equal(p.looks.calls, 0);
}

static void test_switched_off(void **state)
{
	struct looks l = {.found = true};
	struct plx_yields y = {0};

	(void)state;
	plx_spin_enabled = 0;
	assert_false(spin_once(&y, look, &l));
	plx_spin_enabled = 1;
	assert_int_equal(l.calls, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_partner_on_the_same_cpu_answers),
		cmocka_unit_test(test_long_yield_is_followed_by_a_pause),
		cmocka_unit_test(test_long_yield_for_one_event_too),
		cmocka_unit_test(test_long_yield_for_many_events_is_none),
		cmocka_unit_test(test_long_yields_are_borne_where_sleeps_are_no_better),
		cmocka_unit_test(test_long_yields_are_not_borne_beyond_a_bound),
		cmocka_unit_test(test_pause_after_pause_is_longer),
		cmocka_unit_test(test_yields_that_make_events_slow_end),
		cmocka_unit_test(test_yields_that_make_events_quick_go_on),
		cmocka_unit_test(test_real_time_thread_does_not_yield),
		cmocka_unit_test(test_switched_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
