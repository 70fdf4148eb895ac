/* SPDX-License-Identifier: MIT */
/*
 * A wait leaves writers alone for a moment if they flood the reader, and in no other case.
 */
#include "native.h"

#include "base/clock.h"
#include "base/flood.h"

#define PAUSE_NS 1000
#define MANY (PLX_FLOOD_WRITES * 4)

/* As in flood.c. Of 64 reads there one looks. */
#define LOOKS 4
#define LOOK_NS 250
#define MANY_SEEN (64 * 64)

/* An eventfd tells a sum. */
static void test_one_large_write_is_no_flood(void **state)
{
	struct pollux_efd *e = efd_new(0, 0);

	(void)state;
	for (int i = 0; i < 1000; i++) {
		efd_add(e, 1000);
		assert_int_equal(efd_take(e), 1000);
		assert_false(plx_flooded);
	}
	efd_put(e);
}

struct run {
	uint64_t word;
	bool over, flooded;
	/* How often the reader has seen writes without end itself. */
	unsigned int seen;
};

/* Not by writes: what delays and sanitizers make of these is slower than the looks. */
static void *writes(void *arg)
{
	struct run *r = arg;

	while (!__atomic_load_n(&r->over, __ATOMIC_ACQUIRE))
		__atomic_fetch_add(&r->word, 1, __ATOMIC_RELAXED);
	return NULL;
}

static bool grows(const uint64_t *word)
{
	uint64_t last = __atomic_load_n(word, __ATOMIC_RELAXED), now;

	for (int i = 0; i < LOOKS; i++, last = now) {
		int64_t end = plx_now_ns() + LOOK_NS;

		while (plx_now_ns() < end)
			;
		now = __atomic_load_n(word, __ATOMIC_RELAXED);
		if (now == last)
			return false;
	}
	return true;
}

static void *reads(void *arg)
{
	struct run *r = arg;
	int64_t end = plx_now_ns() + SOON_MS * 1000000ll;

	while (!plx_flooded && plx_now_ns() < end && r->seen < MANY_SEEN) {
		plx_flood_sum(MANY, &r->word);
		r->seen += grows(&r->word);
	}
	__atomic_store_n(&r->over, true, __ATOMIC_RELEASE);
	r->flooded = plx_flooded;
	return NULL;
}

/*
 * The two sides on one CPU each: left to the scheduler, they share one for as long as two others
 * have the other. On one nothing comes while the reader looks.
 */
static bool floods(struct run *r)
{
	cpu_set_t may;
	pthread_t t[2];
	int n = 0;

	assert_int_equal(sched_getaffinity(0, sizeof(may), &may), 0);
	if (CPU_COUNT(&may) < 2) {
		print_message("skipped: one CPU\n");
		skip();
	}
	for (int cpu = 0; n < 2; cpu++) {
		if (CPU_ISSET(cpu, &may)) {
			t[n] = thread_bound(cpu, n ? reads : writes, r);
			n++;
		}
	}
	pthread_join(t[1], NULL);
	pthread_join(t[0], NULL);
	return r->flooded;
}

static void test_writes_without_end_are(void **state)
{
	struct run r = {.word = 0};

	(void)state;
	if (!floods(&r) && r.seen < MANY_SEEN) {
		/* An emulated one, where a write takes longer, or each runs when the other does
		 * not. */
		print_message("skipped: this machine has written between all looks %u times\n",
			      r.seen);
		skip();
	}
	assert_true(r.flooded);
}

static void test_a_semaphore_has_none(void **state)
{
	struct pollux_efd *e = efd_new(0, POLLUX_EFD_SEMAPHORE);

	(void)state;
	for (int i = 0; i < MANY; i++)
		efd_add(e, 1);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(efd_take(e), 1);
		assert_false(plx_flooded);
	}
	efd_put(e);
}

static void test_one_wait_that_may_sleep_is_held_up(void **state)
{
	struct obj *o = obj_new(EPOLLIN);
	struct pollux_ep *ep = ep_new();
	struct epoll_event ev;
	int64_t begin;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	plx_flooded = true;
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, 0), 1);
	assert_true(plx_flooded);
	begin = plx_now_ns();
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), 1);
	assert_true(plx_now_ns() - begin >= PAUSE_NS);
	assert_false(plx_flooded);
	obj_put(o);
	ep_put(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_large_write_is_no_flood),
		cmocka_unit_test(test_writes_without_end_are),
		cmocka_unit_test(test_a_semaphore_has_none),
		cmocka_unit_test(test_one_wait_that_may_sleep_is_held_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
