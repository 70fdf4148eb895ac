/* SPDX-License-Identifier: MIT */
/* A call is made once, when nobody can look any more at what was taken out of reach before. */
#include "native.h"

#include <pollux/read.h>

#define MANY 1000

static int called;

static void call(void *arg)
{
	__atomic_fetch_add((int *)arg, 1, __ATOMIC_SEQ_CST);
}

struct section {
	struct thread t;
	int in, leave;
};

static void reads(struct thread *t)
{
	struct section *s = t->arg;

	pollux_read_lock();
	__atomic_store_n(&s->in, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&s->leave, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	pollux_read_unlock();
}

static void it_waits_for_sections(void **state)
{
	struct section s = {.in = 0};

	(void)state;
	called = 0;
	thread_start(&s.t, reads, &s);
	while (!__atomic_load_n(&s.in, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	for (int i = 0; i < MANY; i++)
		assert_int_equal(pollux_call(call, &called), 0);
	(void)pollux_reclaim(0);
	(void)pollux_reclaim(0);
	assert_int_equal(called, 0);
	__atomic_store_n(&s.leave, 1, __ATOMIC_SEQ_CST);
	thread_join(&s.t);
	pollux_barrier();
	assert_int_equal(called, MANY);
	pollux_barrier();
	assert_int_equal(called, MANY);
}

static void it_may_be_asked_for_in_a_section(void **state)
{
	(void)state;
	called = 0;
	pollux_read_lock();
	for (int i = 0; i < MANY; i++)
		assert_int_equal(pollux_call(call, &called), 0);
	assert_int_equal(called, 0);
	pollux_read_unlock();
	pollux_barrier();
	assert_int_equal(called, MANY);
}

/* Nobody asks for them: later ones bring the earlier ones. */
static void it_is_made_in_later_ones(void **state)
{
	(void)state;
	called = 0;
	for (int i = 0; i < MANY; i++)
		assert_int_equal(pollux_call(call, &called), 0);
	assert_true(called > 0);
	pollux_barrier();
	assert_int_equal(called, MANY);
}

static void chain(void *arg)
{
	int *left = arg;

	called++;
	if (--*left > 0)
		assert_int_equal(pollux_call(chain, left), 0);
}

static void a_call_may_ask_for_another(void **state)
{
	int left = MANY;

	(void)state;
	called = 0;
	assert_int_equal(pollux_call(chain, &left), 0);
	pollux_quiesce();
	assert_int_equal(called, MANY);
}

static void asks(struct thread *t)
{
	(void)t;
	assert_int_equal(pollux_call(call, &called), 0);
}

static void those_of_ended_threads_are_made(void **state)
{
	struct thread t;

	(void)state;
	called = 0;
	for (int i = 0; i < 10; i++) {
		thread_start(&t, asks, NULL);
		thread_join(&t);
	}
	pollux_barrier();
	assert_int_equal(called, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(it_waits_for_sections),	       TEST(it_may_be_asked_for_in_a_section),
		TEST(it_is_made_in_later_ones),	       TEST(a_call_may_ask_for_another),
		TEST(those_of_ended_threads_are_made),
	};

	return RUN(tests);
}
