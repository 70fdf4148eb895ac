/* SPDX-License-Identifier: MIT */
/*
 * How long a waiter spins before it sleeps: as short ones have hit, and as sleeps have shown.
 */
#include "native.h"

#include "base/clock.h"
#include "base/spin.h"

/* A spin that waits for a wake, and one that does not. */
#define LONG_NS 40000
#define SHORT_NS 4000
#define LATE_NS 15000
#define ENOUGH 64
/* A preempted thread proves nothing: once in so many times it is not. */
#define TRIES 200

static struct plx_yields yields;

static bool at_once(void *arg)
{
	(void)arg;
	return true;
}

static bool never(void *arg)
{
	(void)arg;
	return false;
}

static bool later(void *arg)
{
	return plx_now_ns() >= *(int64_t *)arg;
}

static bool spin(struct plx_spin_state *s, bool (*done)(void *arg), void *arg)
{
	return plx_spin(&yields, s, done, arg);
}

static bool spin_late(struct plx_spin_state *s)
{
	int64_t then = plx_now_ns() + LATE_NS;

	return spin(s, later, &then);
}

/* What a spin takes in which nothing comes. */
static int64_t miss(struct plx_spin_state *s)
{
	int64_t begin = plx_now_ns();

	assert_false(spin(s, never, NULL));
	return plx_now_ns() - begin;
}

static void hit(struct plx_spin_state *s, int n)
{
	for (int i = 0; i < n; i++)
		assert_true(spin(s, at_once, NULL));
}

static void needs_two_cpus(void)
{
	struct plx_spin_state s = {0};

	if (!spin(&s, at_once, NULL)) {
		print_message("skipped: nobody spins on one CPU\n");
		skip();
	}
}

/* What a miss takes at least, if that comes after so many hits and a miss (0: it is the first). */
static int64_t least_miss(int hits)
{
	int64_t least = INT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		struct plx_spin_state s = {0};
		int64_t took;

		hit(&s, hits);
		if (hits)
			miss(&s);
		took = miss(&s);
		if (took < least)
			least = took;
	}
	return least;
}

static void test_first_ones_are_short(void **state)
{
	(void)state;
	needs_two_cpus();
	assert_uint_in_range(least_miss(0), SHORT_NS, LONG_NS - 1);
}

static void test_after_many_hits_one_lasts_as_long_as_a_wake(void **state)
{
	struct plx_spin_state s = {0};

	(void)state;
	needs_two_cpus();
	hit(&s, ENOUGH);
	assert_true(miss(&s) >= LONG_NS);
}

/* A miss of a long one is not counted: the next sleep has its spin, a short one. */
static void test_after_that_it_takes_many_again(void **state)
{
	(void)state;
	needs_two_cpus();
	assert_uint_in_range(least_miss(ENOUGH), SHORT_NS, LONG_NS - 1);
}

/* Who always comes so late is not spun for for ever. */
static void test_late_hits_are_not_trusted(void **state)
{
	struct plx_spin_state s = {0};
	int late = 0;

	(void)state;
	needs_two_cpus();
	hit(&s, 4 * ENOUGH);
	/* Of those that a preempted thread makes look early there are few in a row. */
	while (late < TRIES && spin_late(&s))
		late++;
	assert_uint_in_range(late, 1, TRIES - 1);
}

static void test_a_long_try_that_hits_is_followed_by_another(void **state)
{
	struct plx_spin_state s = {0};

	(void)state;
	needs_two_cpus();
	for (int i = 0; i < TRIES * TRIES; i++) {
		if (!spin_late(&s))
			continue;
		/* Only a long one can: or the thread was preempted in a short one. */
		if (miss(&s) >= LONG_NS)
			return;
		s = (struct plx_spin_state){0};
	}
	fail_msg("no long spin after one that hit late");
}

/* Whether there would be a spin before the next sleep; the look counts as a sleep without one. */
static bool would_spin(struct plx_spin_state *s)
{
	enum plx_spin_how how = plx_spin_how(&yields, s);

	plx_spin_not(how);
	return how != PLX_SPIN_NOT;
}

/* Misses until the next sleeps go without a spin; the first of them has begun. */
static void give_up(struct plx_spin_state *s)
{
	for (int misses = 0; misses < 4;) {
		if (would_spin(s)) {
			miss(s);
			misses++;
		}
	}
	assert_false(would_spin(s));
}

static void test_a_sleep_that_would_have_been_a_hit_ends_the_pause(void **state)
{
	(void)state;
	needs_two_cpus();
	for (int i = 0; i < TRIES; i++) {
		struct plx_spin_state s = {0};
		uint32_t since;

		give_up(&s);
		since = plx_spin_sleeps(&s);
		assert_int_not_equal(since, 0);
		plx_spin_note_waker(&s);
		/* From another CPU. */
		s.waker_cpu = 0;
		plx_spin_slept(&s, since);
		if (would_spin(&s))
			return;
	}
	fail_msg("no spin after a sleep that ended at once");
}

/* The spin was there, and has missed. */
static void test_a_sleep_after_a_spin_shows_nothing(void **state)
{
	struct plx_spin_state s = {0};

	(void)state;
	needs_two_cpus();
	miss(&s);
	assert_int_equal(plx_spin_sleeps(&s), 0);
	plx_spin_note_waker(&s);
	plx_spin_slept(&s, 0);
	assert_false(would_spin(&s));
}

static void test_one_that_was_rung_for_later_or_before_does_not(void **state)
{
	struct plx_spin_state s = {0};
	uint32_t since;
	int64_t end;

	(void)state;
	needs_two_cpus();
	give_up(&s);
	since = plx_spin_sleeps(&s);
	end = plx_now_ns() + LONG_NS;
	while (plx_now_ns() < end)
		;
	plx_spin_note_waker(&s);
	s.waker_cpu = 0;
	plx_spin_slept(&s, since);
	assert_false(would_spin(&s));
	end = plx_now_ns() + LONG_NS;
	while (plx_now_ns() < end)
		;
	plx_spin_slept(&s, plx_spin_sleeps(&s));
	assert_false(would_spin(&s));
}

static void *nothing(void *arg)
{
	pause();
	return arg;
}

/* A process of one thread spins for nobody. */
static int second_thread(void **state)
{
	pthread_t t;

	(void)state;
	return pthread_create(&t, NULL, nothing, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_ones_are_short),
		cmocka_unit_test(test_after_many_hits_one_lasts_as_long_as_a_wake),
		cmocka_unit_test(test_after_that_it_takes_many_again),
		cmocka_unit_test(test_late_hits_are_not_trusted),
		cmocka_unit_test(test_a_long_try_that_hits_is_followed_by_another),
		cmocka_unit_test(test_a_sleep_that_would_have_been_a_hit_ends_the_pause),
		cmocka_unit_test(test_a_sleep_after_a_spin_shows_nothing),
		cmocka_unit_test(test_one_that_was_rung_for_later_or_before_does_not),
	};

	return cmocka_run_group_tests(tests, second_thread, NULL);
}
