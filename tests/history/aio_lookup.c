/* SPDX-License-Identifier: MIT */
/*
 * The list and the radix tree of bench/history/aio_lookup.c, each by the same tests: what is there
 * is found and nothing else, and a call is never inside of a context that is gone.
 */
#include "torture/torture.h"

#include "history/aio_lookup.h"
#include "rcu/rcu.h"

#define N 300
#define READERS 3
#define DEAD (1ull << 63)
#define GONE 1ul

static const struct way {
	struct old_context *(*get)(unsigned long user_id);
	bool (*add)(struct old_context *c);
	void (*del)(struct old_context *c);
} list = {list_get, list_add, list_del}, radix = {radix_get, radix_add, radix_del};

static const struct way *way;
static struct old_context contexts[N];

static int choose(void **state)
{
	way = *state;
	torture_stop = torture_failed = 0;
	points_delay(false);
	memset(contexts, 0, sizeof(contexts));
	return 0;
}

/* Pages side by side, and some far away, for which the tree has to grow. */
static unsigned long address(unsigned int i)
{
	return i % 10 ? 0x7f0000000000ul + i * 4096ul : (i + 1ul) << (12 + i % 36);
}

static bool finds(unsigned int i, const struct old_context *want)
{
	struct old_context *c = way->get(address(i));

	if (c)
		old_put(c);
	return c == want;
}

static void what_is_there_is_found(void **state)
{
	bool there[N] = {false};
	uint32_t seed = 7;

	(void)state;
	for (unsigned int i = 0; i < N; i++) {
		contexts[i].user_id = address(i);
		assert_true(finds(i, NULL));
	}
	for (unsigned int step = 0; step < 20000; step++) {
		unsigned int i = rnd(&seed) % N, other = rnd(&seed) % N;

		if (there[i]) {
			way->del(&contexts[i]);
			assert_true(contexts[i].state == DEAD);
		} else {
			contexts[i].state = 0;
			assert_true(way->add(&contexts[i]));
		}
		there[i] = !there[i];
		assert_true(finds(i, there[i] ? &contexts[i] : NULL));
		assert_true(finds(other, there[other] ? &contexts[other] : NULL));
		/* Beside every page there is one that belongs to nobody. */
		assert_null(way->get(address(i) + (1ul << 46)));
		/* Nor is it found by what stands further down on its own page. */
		assert_null(way->get(address(i) + 16));
	}
	for (unsigned int i = 0; i < N; i++)
		if (there[i])
			way->del(&contexts[i]);
}

static void a_call_inside_is_counted(void **state)
{
	struct old_context *c = &contexts[1];

	(void)state;
	c->user_id = address(1);
	assert_true(way->add(c));
	assert_ptr_equal(way->get(address(1)), c);
	assert_ptr_equal(way->get(address(1)), c);
	way->del(c);
	assert_null(way->get(address(1)));
	assert_true(c->state & DEAD);
	assert_true((c->state & ~DEAD) != 0);
	old_put(c);
	assert_true((c->state & ~DEAD) != 0);
	old_put(c);
	assert_true(c->state == DEAD);
}

static uint64_t met;

static void look_up(struct thread *t)
{
	uint32_t seed = (uint32_t)(uintptr_t)t->arg + 1;

	while (!stopping()) {
		unsigned int i = rnd(&seed) % N;
		struct old_context *c = way->get(address(i));

		if (!c)
			continue;
		check(__atomic_load_n(&c->user_id, __ATOMIC_SEQ_CST) == address(i));
		if (rnd(&seed) % 16 == 0)
			sched_yield();
		/* It may be taken away while the call is inside, but not made anew. */
		check(__atomic_load_n(&c->user_id, __ATOMIC_SEQ_CST) == address(i));
		if (__atomic_load_n(&c->state, __ATOMIC_SEQ_CST) & DEAD)
			__atomic_fetch_add(&met, 1, __ATOMIC_RELAXED);
		old_put(c);
	}
}

static void a_call_is_never_inside_of_what_is_gone(void **state)
{
	struct thread t[READERS];
	uint32_t seed = 99;
	int64_t start;

	(void)state;
	torture_begin();
	met = 0;
	for (unsigned int i = 0; i < N; i++) {
		contexts[i].user_id = address(i);
		assert_true(way->add(&contexts[i]));
	}
	for (int k = 0; k < READERS; k++)
		thread_start(&t[k], look_up, (void *)(uintptr_t)k);
	start = now_ns();
	while (torture_until(start, __atomic_load_n(&met, __ATOMIC_RELAXED) > 3)) {
		struct old_context *c = &contexts[rnd(&seed) % N];
		unsigned long user_id = c->user_id;

		way->del(c);
		plx_rcu_synchronize();
		/* Nobody can enter any more; who is inside leaves. */
		while (__atomic_load_n(&c->state, __ATOMIC_SEQ_CST) != DEAD && !stopping())
			sched_yield();
		/* Its memory is somebody else's for a while, who would see a late call come in. */
		__atomic_store_n(&c->user_id, GONE, __ATOMIC_SEQ_CST);
		__atomic_store_n(&c->state, 0, __ATOMIC_SEQ_CST);
		for (int k = 0; k < 3; k++)
			sched_yield();
		check(__atomic_load_n(&c->state, __ATOMIC_SEQ_CST) == 0);
		__atomic_store_n(&c->user_id, user_id, __ATOMIC_SEQ_CST);
		check(way->add(c));
	}
	torture_end(t, READERS);
	assert_true(met > 0);
	for (unsigned int i = 0; i < N; i++)
		way->del(&contexts[i]);
}

#define EACH(test)                                                                                 \
	{#test ", list", test, choose, NULL, (void *)&list},                                       \
	{                                                                                          \
#test ", radix tree", test, choose, NULL, (void *)&radix                           \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		EACH(what_is_there_is_found),
		EACH(a_call_inside_is_counted),
		EACH(a_call_is_never_inside_of_what_is_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
