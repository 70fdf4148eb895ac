/* SPDX-License-Identifier: MIT */
/*
 * The ready lists of bench/history must be right, or the comparison with them is unfair: each
 * event is reported, once for all that came before the collection, in the order of arrival;
 * nobody starves; what was removed does not come back.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "history/ready.h"
#include "base/atomic.h"
#include "../unit.h"

#define ITEMS 16
#define PRODUCERS 4
#define EACH 50000
#define SECONDS 1

struct fixture {
	const struct ready_algorithm *a;
	struct ready_list *l;
	struct ready_item *items;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->a = ready_algorithm_named(*state);
	f->l = f->a->make();
	f->items = aligned_alloc(64, ITEMS * sizeof(*f->items));
	memset(f->items, 0, ITEMS * sizeof(*f->items));
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	f->a->drop(f->l);
	free(f->items);
	free(f);
	return 0;
}

static void tell(struct fixture *f, unsigned int i)
{
	(void)plx_xadd(&f->items[i].count, 1);
	f->a->event(f->l, &f->items[i]);
}

/* Collects and reads: the items' numbers go to `got`. */
static unsigned int read_all(struct fixture *f, unsigned int *got, unsigned int max)
{
	struct ready_item *out[ITEMS];
	unsigned int n = f->a->collect(f->l, out, max);

	for (unsigned int i = 0; i < n; i++) {
		got[i] = (unsigned int)(out[i] - f->items);
		(void)plx_xchg(&out[i]->count, 0);
	}
	return n;
}

static void test_order(void **state)
{
	struct fixture *f = *state;
	unsigned int got[ITEMS];

	assert_false(f->a->any(f->l));
	assert_int_equal(read_all(f, got, ITEMS), 0);
	for (unsigned int i = 0; i < ITEMS; i++)
		tell(f, i * 5 % ITEMS);
	assert_true(f->a->any(f->l));
	assert_int_equal(read_all(f, got, ITEMS), ITEMS);
	for (unsigned int i = 0; i < ITEMS; i++)
		assert_int_equal(got[i], i * 5 % ITEMS);
	/* They are still listed, but found not ready. */
	assert_int_equal(read_all(f, got, ITEMS), 0);
	assert_false(f->a->any(f->l));
}

static void test_coalesce(void **state)
{
	struct fixture *f = *state;
	unsigned int got[ITEMS];

	tell(f, 3);
	tell(f, 3);
	assert_int_equal(read_all(f, got, ITEMS), 1);
	assert_int_equal(got[0], 3);
	assert_int_equal(read_all(f, got, ITEMS), 0);
	tell(f, 3);
	assert_int_equal(read_all(f, got, ITEMS), 1);
}

/* Level-triggered: reported as long as it is ready. */
static void test_level(void **state)
{
	struct fixture *f = *state;
	struct ready_item *out[ITEMS];

	tell(f, 1);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(f->a->collect(f->l, out, ITEMS), 1);
		assert_ptr_equal(out[0], &f->items[1]);
	}
	f->items[1].count = 0;
	assert_int_equal(f->a->collect(f->l, out, ITEMS), 0);
	assert_false(f->a->any(f->l));
}

/* All are ready all the time, three are taken at a time: each has its turn. */
static void test_turns(void **state)
{
	struct fixture *f = *state;
	struct ready_item *out[ITEMS];
	unsigned int turns[ITEMS] = {0};

	for (unsigned int i = 0; i < ITEMS; i++)
		tell(f, i);
	for (unsigned int k = 0; k < ITEMS; k++) {
		assert_int_equal(f->a->collect(f->l, out, 3), 3);
		for (unsigned int i = 0; i < 3; i++)
			turns[out[i] - f->items]++;
	}
	for (unsigned int i = 0; i < ITEMS; i++)
		assert_int_equal(turns[i], 3);
}

static void test_remove(void **state)
{
	struct fixture *f = *state;

	for (unsigned int gone = 0; gone < ITEMS; gone++) {
		unsigned int got[ITEMS], n;

		for (unsigned int i = 0; i < ITEMS; i++)
			tell(f, i);
		f->a->remove(f->l, &f->items[gone]);
		n = read_all(f, got, ITEMS);
		assert_int_equal(n, ITEMS - 1);
		for (unsigned int i = 0; i < n; i++)
			assert_int_equal(got[i], i < gone ? i : i + 1);
		assert_int_equal(read_all(f, got, ITEMS), 0);
		f->items[gone].count = 0;
		/* Twice does no harm, and it may be queued again. */
		f->a->remove(f->l, &f->items[gone]);
		tell(f, gone);
		assert_int_equal(read_all(f, got, ITEMS), 1);
		assert_int_equal(got[0], gone);
		f->a->remove(f->l, &f->items[gone]);
	}
	assert_false(f->a->any(f->l));
}

static struct fixture *told_in_collect;

static void tell_two(enum ready_place place)
{
	struct fixture *f = told_in_collect;

	if (place != READY_IN_COLLECT || !f)
		return;
	told_in_collect = NULL;
	tell(f, 5);
	tell(f, 7);
	tell(f, 5);
	tell(f, 2);
}

/* Arrivals while a collection is under way: behind what is left, in front of what was taken. */
static void test_arrivals(void **state)
{
	struct fixture *f = *state;
	struct ready_item *out[ITEMS];
	static const unsigned int begin[] = {1, 2, 3, 4};
	unsigned int got[ITEMS], n;

	for (unsigned int i = 0; i < 4; i++)
		tell(f, begin[i]);
	ready_stop_hook = tell_two;
	told_in_collect = f;
	n = f->a->collect(f->l, out, 3);
	ready_stop_hook = NULL;
	assert_int_equal(n, 3);
	for (unsigned int i = 0; i < n; i++)
		assert_ptr_equal(out[i], &f->items[i + 1]);
	n = read_all(f, got, ITEMS);
	assert_int_equal(n, 6);
	if (f->a == &ready_lockfree) {
		/* Arrivals are not told from the rest there, and come first. */
		static const unsigned int order[] = {5, 7, 4, 1, 2, 3};

		assert_memory_equal(got, order, sizeof(order));
	} else {
		static const unsigned int order[] = {4, 5, 7, 1, 2, 3};

		assert_memory_equal(got, order, sizeof(order));
	}
	/* Of an empty list: nothing was taken, all are arrivals. */
	assert_int_equal(read_all(f, got, ITEMS), 0);
	ready_stop_hook = tell_two;
	told_in_collect = f;
	n = f->a->collect(f->l, out, 3);
	ready_stop_hook = NULL;
	assert_int_equal(n, 0);
	n = read_all(f, got, ITEMS);
	assert_int_equal(n, 3);
	assert_int_equal(got[0], 5);
	assert_int_equal(got[1], 7);
	assert_int_equal(got[2], 2);
}

struct producer {
	struct fixture *f;
	unsigned int first, n;
	/*
	 * Nobody else tells of its items: each event is waited for, so that a lost one is
	 * noticed, until the list is empty, so that the next meets a collection of nothing.
	 */
	bool alone;
	uint64_t told;
};

static uint32_t finished;

static bool over(const struct timespec *start)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec - start->tv_sec >= SECONDS;
}

static void give_way(unsigned int *spins)
{
	if (++*spins % 100)
		plx_cpu_relax();
	else
		sched_yield();
}

static void *produce(void *arg)
{
	struct producer *p = arg;
	struct timespec start;
	unsigned int spins = 0;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (p->told < EACH && !over(&start)) {
		unsigned int k = p->first + (unsigned int)p->told % p->n;

		if (p->alone && (plx_load_acq(&p->f->items[k].count) || p->f->a->any(p->f->l))) {
			give_way(&spins);
			continue;
		}
		tell(p->f, k);
		p->told++;
	}
	(void)plx_xadd(&finished, 1);
	return NULL;
}

/* Several threads tell, each of its own items or all of the same ones: nothing is lost. */
static void conserve(struct fixture *f, bool shared)
{
	struct producer p[PRODUCERS];
	struct ready_item *out[ITEMS];
	pthread_t t[PRODUCERS];
	uint64_t sum = 0, told = 0;
	unsigned int n, spins = 0;
	bool last;

	plx_store(&finished, 0);
	for (unsigned int i = 0; i < PRODUCERS; i++) {
		p[i] = (struct producer){f, shared ? 0 : i * (ITEMS / PRODUCERS),
					 shared ? 2 : ITEMS / PRODUCERS, !shared, 0};
		assert_int_equal(pthread_create(&t[i], NULL, produce, &p[i]), 0);
	}
	do {
		last = plx_load_acq(&finished) == PRODUCERS;
		n = f->a->collect(f->l, out, 5);
		for (unsigned int i = 0; i < n; i++)
			sum += plx_xchg(&out[i]->count, 0);
		if (!n)
			give_way(&spins);
	} while (n || !last);
	for (unsigned int i = 0; i < PRODUCERS; i++) {
		pthread_join(t[i], NULL);
		told += p[i].told;
	}
	assert_int_equal(sum, told);
	assert_false(f->a->any(f->l));
}

static void test_conserve_own(void **state)
{
	conserve(*state, false);
}

static void test_conserve_shared(void **state)
{
	conserve(*state, true);
}

#define TESTS_OF(name)                                                                             \
	{name ": order of arrival", test_order, setup, teardown, name},                            \
		{name ": events of one item coalesce", test_coalesce, setup, teardown, name},      \
		{name ": ready items are reported again", test_level, setup, teardown, name},      \
		{name ": every item has its turn", test_turns, setup, teardown, name},             \
		{name ": arrivals during a collection", test_arrivals, setup, teardown, name},     \
		{name ": what is removed is gone", test_remove, setup, teardown, name},            \
		{name ": threads with items of their own", test_conserve_own, setup, teardown,     \
		 name},                                                                            \
	{                                                                                          \
		name ": threads with the same items", test_conserve_shared, setup, teardown, name  \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_OF("spinlock"),
		TESTS_OF("pi"),
		TESTS_OF("rwlock"),
		TESTS_OF("lockfree"),
	};

	return cmocka_run_group_tests_name("history_ready", tests, NULL, NULL);
}
