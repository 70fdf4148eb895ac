/* SPDX-License-Identifier: MIT */
/* After a barrier every free operation and call of before has returned, whoever has asked for it.
 */
#include "native.h"

#include <pollux/read.h>

static int freed, stop, begun;

static void puts_some(struct thread *t)
{
	for (int i = 0; i < 10; i++) {
		struct obj *o = obj_new(0);

		o->freed = &freed;
		obj_put(o);
	}
	__atomic_store_n((int *)t->arg, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST))
		sleep_ms(1);
}

/* The threads are still there, and call nothing themselves. */
static void what_other_threads_have_put_is_freed(void **state)
{
	struct thread t[4];
	int has[4] = {0};

	(void)state;
	freed = stop = 0;
	for (int i = 0; i < 4; i++) {
		thread_start(&t[i], puts_some, &has[i]);
		while (!__atomic_load_n(&has[i], __ATOMIC_SEQ_CST))
			sleep_ms(1);
	}
	pollux_barrier();
	assert_int_equal(freed, 40);
	__atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 4; i++)
		thread_join(&t[i]);
}

static void blocks(void *arg)
{
	(void)arg;
	__atomic_store_n(&begun, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	__atomic_fetch_add(&freed, 1, __ATOMIC_SEQ_CST);
}

static void reclaims(struct thread *t)
{
	(void)t;
	assert_int_equal(pollux_call(blocks, NULL), 0);
	(void)pollux_reclaim(-1);
}

static void barriers(struct thread *t)
{
	pollux_barrier();
	*(int *)t->arg = __atomic_load_n(&freed, __ATOMIC_SEQ_CST);
}

static void a_call_at_work_is_waited_for(void **state)
{
	struct thread t, b;
	int seen = -1;

	(void)state;
	freed = stop = begun = 0;
	thread_start(&t, reclaims, NULL);
	while (!__atomic_load_n(&begun, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	thread_start(&b, barriers, &seen);
	sleep_ms(QUIET_MS);
	assert_false(thread_done(&b));
	__atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
	thread_join(&b);
	assert_int_equal(seen, 1);
	thread_join(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_other_threads_have_put_is_freed),
		TEST(a_call_at_work_is_waited_for),
	};

	return RUN(tests);
}
