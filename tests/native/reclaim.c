/* SPDX-License-Identifier: MIT */
/* Free operations run where the mode says, and no more waits for them than the bound says. */
#include "native.h"

#include <pollux/read.h>

#define OBJECTS 2000
#define LARGE 4096

static int freed, asked, outside;

struct large {
	struct pollux_file file;
	char memory[LARGE - sizeof(struct pollux_file)];
};

static uint32_t large_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	return wanted & EPOLLIN;
}

static void large_free(struct pollux_file *f)
{
	__atomic_fetch_add(&freed, 1, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&asked, __ATOMIC_SEQ_CST))
		outside++;
	free(f);
}

static const struct pollux_file_ops large_ops = {
	.size = sizeof(large_ops),
	.poll = large_poll,
	.free = large_free,
	.bytes = LARGE,
};

static struct pollux_file *large_new(void)
{
	struct large *l = malloc(sizeof(*l));

	assert_non_null(l);
	pollux_file_init(&l->file, &large_ops);
	return &l->file;
}

static int mode_again(void **state)
{
	pollux_barrier();
	assert_int_equal(pollux_reclaim_mode(POLLUX_RECLAIM_ANYWHERE, 0), 0);
	return quiesce(state);
}

static void call(void *arg)
{
	__atomic_fetch_add((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static void asked_is_only_where_it_is_asked(void **state)
{
	struct pollux_ep *ep = ep_new();
	int called = 0;

	(void)state;
	freed = outside = asked = 0;
	assert_int_equal(pollux_reclaim_mode(POLLUX_RECLAIM_ASKED, 0), 0);
	for (int i = 0; i < OBJECTS; i++) {
		struct pollux_file *f = large_new();

		ep_add(ep, f, 0, EPOLLIN, 'a');
		assert_one(ep, EPOLLIN, 'a');
		pollux_file_put(f);
		assert_int_equal(pollux_call(call, &called), 0);
	}
	pollux_quiesce();
	pollux_synchronize();
	assert_int_equal(freed + called, 0);
	__atomic_store_n(&asked, 1, __ATOMIC_SEQ_CST);
	assert_int_equal(pollux_reclaim(-1), 0);
	assert_int_equal(freed, OBJECTS);
	assert_int_equal(called, OBJECTS);
	pollux_file_put(large_new());
	pollux_barrier();
	assert_int_equal(freed, OBJECTS + 1);
	assert_int_equal(outside, 0);
	ep_put(ep);
}

static void anywhere_is_within_puts(void **state)
{
	(void)state;
	freed = 0;
	for (int i = 0; i < OBJECTS; i++)
		pollux_file_put(large_new());
	assert_true(freed > OBJECTS / 2);
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

static void section_start(struct section *s)
{
	*s = (struct section){0};
	thread_start(&s->t, reads, s);
	while (!__atomic_load_n(&s->in, __ATOMIC_SEQ_CST))
		sleep_ms(1);
}

static void section_end(struct section *s)
{
	__atomic_store_n(&s->leave, 1, __ATOMIC_SEQ_CST);
	thread_join(&s->t);
}

static void a_deadline_ends_a_reclaim(void **state)
{
	struct section s;
	int64_t start;
	int called = 0;

	(void)state;
	freed = 0;
	section_start(&s);
	pollux_file_put(large_new());
	assert_true(pollux_reclaim(0) == LARGE);
	start = now_ns();
	assert_true(pollux_reclaim(start + 20000000) == LARGE);
	assert_true(now_ns() - start >= 20000000);
	assert_int_equal(pollux_call(call, &called), 0);
	pollux_file_put(large_new());
	assert_true(pollux_reclaim(0) == 2 * LARGE + 128);
	assert_int_equal(freed + called, 0);
	section_end(&s);
	assert_true(pollux_reclaim(-1) == 0);
	assert_int_equal(freed, 2);
	assert_int_equal(called, 1);
}

struct putter {
	struct thread t;
	int n, done;
};

static void puts_many(struct thread *t)
{
	struct putter *p = t->arg;

	for (int i = 0; i < p->n; i++) {
		pollux_file_put(large_new());
		__atomic_fetch_add(&p->done, 1, __ATOMIC_SEQ_CST);
	}
}

static void a_put_above_the_bound_waits_for_a_section(void **state)
{
	struct putter p = {.n = 20};
	struct section s;

	(void)state;
	freed = 0;
	assert_int_equal(pollux_reclaim_mode(POLLUX_RECLAIM_ANYWHERE, 10 * LARGE), 0);
	section_start(&s);
	thread_start(&p.t, puts_many, &p);
	while (__atomic_load_n(&p.done, __ATOMIC_SEQ_CST) < 10)
		sleep_ms(1);
	sleep_ms(QUIET_MS);
	assert_int_equal(__atomic_load_n(&p.done, __ATOMIC_SEQ_CST), 10);
	assert_int_equal(freed, 0);
	section_end(&s);
	thread_join(&p.t);
	assert_true(freed >= 10);
}

static void a_call_above_the_bound_waits(void **state)
{
	int called = 0;

	(void)state;
	assert_int_equal(pollux_reclaim_mode(POLLUX_RECLAIM_ANYWHERE, 1), 0);
	assert_int_equal(pollux_call(call, &called), 0);
	assert_int_equal(called, 1);
}

/* It would hang otherwise: nobody else ends these. */
static void no_put_waits_for_its_own_caller(void **state)
{
	struct pollux_ep_attr attr = {.size = sizeof(attr), .flags = POLLUX_EP_BATCHES};
	struct pollux_ep *ep;
	struct pollux_file *f = large_new();

	(void)state;
	freed = 0;
	assert_int_equal(pollux_reclaim_mode(POLLUX_RECLAIM_ANYWHERE, LARGE), 0);
	assert_int_equal(pollux_ep_new(&ep, &attr), 0);
	ep_add(ep, f, 0, EPOLLIN, 'a');
	assert_one(ep, EPOLLIN, 'a');
	pollux_file_put(f);
	for (int i = 0; i < 4; i++)
		pollux_file_put(large_new());
	assert_int_equal(freed, 0);
	pollux_ep_batch_end(ep);
	assert_true(freed >= 4);
	ep_put(ep);
}

static void asked_waits_for_who_reclaims(void **state)
{
	struct putter p = {.n = 200};

	(void)state;
	freed = 0;
	assert_int_equal(pollux_reclaim_mode(POLLUX_RECLAIM_ASKED, 10 * LARGE), 0);
	(void)pollux_reclaim(-1);
	/* Who does so itself does not wait. */
	for (int i = 0; i < 20; i++)
		pollux_file_put(large_new());
	assert_int_equal(freed, 0);
	(void)pollux_reclaim(-1);
	thread_start(&p.t, puts_many, &p);
	while (__atomic_load_n(&p.done, __ATOMIC_SEQ_CST) < 10)
		sleep_ms(1);
	sleep_ms(QUIET_MS);
	assert_int_equal(__atomic_load_n(&p.done, __ATOMIC_SEQ_CST), 10);
	while (!thread_done(&p.t)) {
		assert_true(pollux_reclaim(-1) <= 11 * LARGE);
		sleep_ms(1);
	}
	thread_join(&p.t);
}

static void puts_again(void *arg)
{
	int *left = arg;

	if ((*left)-- > 0) {
		pollux_file_put(large_new());
		(void)pollux_call(puts_again, left);
	}
}

static void a_free_may_put_above_the_bound(void **state)
{
	int left = 50;

	(void)state;
	freed = 0;
	assert_int_equal(pollux_reclaim_mode(POLLUX_RECLAIM_ANYWHERE, 1), 0);
	assert_int_equal(pollux_call(puts_again, &left), 0);
	pollux_quiesce();
	assert_int_equal(freed, 50);
}

static void *puts_one(void *arg)
{
	pollux_file_put(large_new());
	return arg;
}

/* However few each of them puts. */
static void what_short_threads_put_is_freed(void **state)
{
	pthread_t t;

	(void)state;
	freed = 0;
	for (int i = 0; i < 500; i++) {
		assert_int_equal(pthread_create(&t, NULL, puts_one, NULL), 0);
		pthread_join(t, NULL);
	}
	assert_true(freed > 300);
}

static int in_free, leave_free;

static void slow_free(struct pollux_file *f)
{
	__atomic_store_n(&in_free, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&leave_free, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	free(f);
}

static const struct pollux_file_ops slow_ops = {
	.size = sizeof(slow_ops),
	.poll = large_poll,
	.free = slow_free,
	.bytes = LARGE,
};

static void reclaims_slowly(struct thread *t)
{
	struct pollux_file *slow = malloc(sizeof(*slow));

	(void)t;
	assert_non_null(slow);
	pollux_file_init(slow, &slow_ops);
	pollux_file_put(slow);
	for (int i = 0; i < 20; i++)
		pollux_file_put(large_new());
	pollux_quiesce();
}

/* What another thread is about to free is not there in a child, and does not count there. */
static void a_child_has_the_whole_bound(void **state)
{
	struct thread t;
	pid_t pid;

	(void)state;
	in_free = leave_free = 0;
	thread_start(&t, reclaims_slowly, NULL);
	while (!__atomic_load_n(&in_free, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	assert_int_equal(pollux_reclaim_mode(POLLUX_RECLAIM_ANYWHERE, 10 * LARGE), 0);
	pid = fork();
	if (pid == 0) {
		alarm(SOON_MS / 1000);
		for (int i = 0; i < 30; i++)
			pollux_file_put(large_new());
		_exit(pollux_reclaim(-1) != 0);
	}
	child_passes(pid);
	__atomic_store_n(&leave_free, 1, __ATOMIC_SEQ_CST);
	thread_join(&t);
}

static void other_modes_are_refused(void **state)
{
	(void)state;
	assert_int_equal(pollux_reclaim_mode(2, 0), -EINVAL);
	assert_int_equal(pollux_reclaim_mode(-1, 0), -EINVAL);
}

#define IN_MODE(fn) cmocka_unit_test_teardown(fn, mode_again)

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: in this process nobody has reclaimed, so a put has nobody to wait for. */
		IN_MODE(anywhere_is_within_puts),
		IN_MODE(asked_is_only_where_it_is_asked),
		IN_MODE(a_deadline_ends_a_reclaim),
		IN_MODE(a_put_above_the_bound_waits_for_a_section),
		IN_MODE(a_call_above_the_bound_waits),
		IN_MODE(no_put_waits_for_its_own_caller),
		IN_MODE(asked_waits_for_who_reclaims),
		IN_MODE(a_free_may_put_above_the_bound),
		IN_MODE(what_short_threads_put_is_freed),
		IN_MODE(a_child_has_the_whole_bound),
		IN_MODE(other_modes_are_refused),
	};

	return RUN(tests);
}
