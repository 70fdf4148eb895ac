/* SPDX-License-Identifier: MIT */
/*
 * Threads drop last references and ask for calls, reclaim, change the mode and make barriers: after
 * a barrier all that its thread has asked for has been called, and each once.
 */
#include "torture.h"

#include <pollux/read.h>

#define PUTTERS 3

struct putter {
	unsigned long asked, done;
};

struct target {
	struct pollux_file file;
	struct putter *p;
	int ended;
};

static unsigned long barriers, total, reclaims;
static int put_all;

static uint32_t target_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	(void)wanted;
	return 0;
}

static void target_free(struct pollux_file *f)
{
	struct target *x = (struct target *)f;

	if (atomic_add(&x->ended, 1) != 0)
		broken("a file is freed twice");
	atomic_add(&x->p->done, 1);
	free(x);
}

static void call(void *arg)
{
	struct target *x = arg;

	target_free(&x->file);
}

static const struct pollux_file_ops target_ops = {
	.size = sizeof(target_ops),
	.poll = target_poll,
	.free = target_free,
};

static void ask(struct putter *p, bool calls)
{
	struct target *x = calloc(1, sizeof(*x));

	x->p = p;
	p->asked++;
	pollux_file_init(&x->file, &target_ops);
	if (calls)
		check(pollux_call(call, x) == 0);
	else
		pollux_file_put(&x->file);
}

static void puts_and_barriers(struct thread *t)
{
	uint32_t seed = (uint32_t)t->tid;
	struct putter p = {0, 0};

	(void)pollux_reclaim(0);
	while (!stopping()) {
		for (uint32_t n = rnd(&seed) % 200; n; n--)
			ask(&p, rnd(&seed) % 2);
		pollux_barrier();
		if (atomic_get(&p.done) != p.asked) {
			broken("%lu asked for, %lu done after a barrier", p.asked, p.done);
			break;
		}
		atomic_add(&barriers, 1);
	}
	pollux_barrier();
	check(p.done == p.asked);
	atomic_add(&total, p.asked);
	atomic_add(&put_all, 1);
}

static void reclaims_and_changes(struct thread *t)
{
	uint32_t seed = (uint32_t)t->tid;

	while (atomic_get(&put_all) < PUTTERS && !atomic_get(&torture_failed)) {
		pollux_read_lock();
		for (uint32_t n = rnd(&seed) % 4; n; n--)
			sched_yield();
		pollux_read_unlock();
		(void)pollux_reclaim(rnd(&seed) % 2 ? 0 : now_ns() + 10000);
		check(pollux_reclaim_mode(rnd(&seed) % 2, rnd(&seed) % 2 * 4096) == 0);
		atomic_add(&reclaims, 1);
	}
}

static void after_a_barrier_all_is_done(void **state)
{
	struct thread t[PUTTERS + 1];
	int64_t start = now_ns();

	(void)state;
	torture_begin();
	for (int i = 0; i < PUTTERS; i++)
		thread_start(&t[i], puts_and_barriers, NULL);
	thread_start(&t[PUTTERS], reclaims_and_changes, NULL);
	while (torture_until(start, atomic_get(&barriers) > 50 && atomic_get(&reclaims) > 50))
		sleep_ms(5);
	torture_end(t, PUTTERS + 1);
	assert_int_equal(pollux_reclaim_mode(POLLUX_RECLAIM_ANYWHERE, 0), 0);
	printf("%lu barriers, %lu ended, %lu reclaims; %lu takings, %lu runs\n", barriers, total,
	       reclaims, points_passed("reclaim_taken"), points_passed("reclaim_run"));
	assert_true(barriers > 50 && reclaims > 50 && points_passed("reclaim_run"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(after_a_barrier_all_is_done),
	};

	return RUN(tests);
}
