/* SPDX-License-Identifier: MIT */
/*
 * A wait leaves writers alone for a moment if they flood the reader, and in no other case.
 */
#include "native.h"

#include <pollux/pipe.h>

#include "base/clock.h"
#include "base/flood.h"

#define PAUSE_NS 1000
#define MANY (PLX_FLOOD_WRITES * 4)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW 1
#else
#define SLOW 0
#endif

/* An eventfd tells a sum. */
static void test_one_large_write_is_no_flood(void **state)
{
	struct pollux_eventfd *e = efd_new(0, 0);

	(void)state;
	for (int i = 0; i < 1000; i++) {
		efd_add(e, 1000);
		assert_int_equal(efd_take(e), 1000);
		assert_false(plx_flooded);
	}
	efd_put(e);
}

/* A pipe tells how many they were, and not when. */
static void test_what_a_pipe_had_is_none(void **state)
{
	struct pollux_pipe *p = NULL;
	char bytes[MANY];

	(void)state;
	assert_int_equal(pollux_pipe_new(&p, 0), 0);
	for (int i = 0; i < 100; i++) {
		for (int k = 0; k < MANY; k++)
			assert_int_equal(pollux_pipe_write(p, "x", 1, 0), 1);
		assert_int_equal(pollux_pipe_read(p, bytes, sizeof(bytes), 0), MANY);
		assert_false(plx_flooded);
	}
	pollux_file_put(pollux_pipe_read_end(p));
	pollux_file_put(pollux_pipe_write_end(p));
}

static struct {
	uint64_t word;
	bool over;
} writer;

/* Not by writes: what delays and sanitizers make of these is slower than the looks. */
static void *writes(void *arg)
{
	while (!__atomic_load_n(&writer.over, __ATOMIC_ACQUIRE))
		__atomic_fetch_add(&writer.word, 1, __ATOMIC_RELAXED);
	return arg;
}

static void test_writes_without_end_are(void **state)
{
	int64_t end = plx_now_ns() + SOON_MS * 1000000ll;
	pthread_t t;

	(void)state;
	assert_int_equal(pthread_create(&t, NULL, writes, NULL), 0);
	/* On one CPU they do not grow while this thread looks. */
	while (!plx_flooded && plx_now_ns() < end)
		plx_flood_sum(MANY, &writer.word);
	__atomic_store_n(&writer.over, true, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		assert_true(plx_flooded);
	plx_flooded = false;
}

static void test_a_semaphore_has_none(void **state)
{
	struct pollux_eventfd *e = efd_new(0, POLLUX_EFD_SEMAPHORE);

	(void)state;
	for (int i = 0; i < MANY; i++)
		efd_add(e, 1);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(efd_take(e), 1);
		assert_false(plx_flooded);
	}
	efd_put(e);
}

static struct {
	struct pollux_pipe *p;
	bool over;
} flood;

static void *writes_bytes(void *arg)
{
	while (!__atomic_load_n(&flood.over, __ATOMIC_ACQUIRE))
		(void)pollux_pipe_write(flood.p, "x", 1, 0);
	return arg;
}

static void test_bytes_without_end_are(void **state)
{
	int64_t end = plx_now_ns() + SOON_MS * 1000000ll;
	char bytes[MANY];
	pthread_t t;

	(void)state;
	/* What sanitizers make of a write is slower than the looks. */
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2 || SLOW)
		skip();
	assert_int_equal(pollux_pipe_new(&flood.p, 0), 0);
	assert_int_equal(pthread_create(&t, NULL, writes_bytes, NULL), 0);
	while (!plx_flooded && plx_now_ns() < end)
		(void)pollux_pipe_read(flood.p, bytes, sizeof(bytes), 0);
	__atomic_store_n(&flood.over, true, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	assert_true(plx_flooded);
	plx_flooded = false;
	pollux_file_put(pollux_pipe_read_end(flood.p));
	pollux_file_put(pollux_pipe_write_end(flood.p));
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
		cmocka_unit_test(test_what_a_pipe_had_is_none),
		cmocka_unit_test(test_writes_without_end_are),
		cmocka_unit_test(test_a_semaphore_has_none),
		cmocka_unit_test(test_bytes_without_end_are),
		cmocka_unit_test(test_one_wait_that_may_sleep_is_held_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
