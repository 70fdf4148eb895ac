/* SPDX-License-Identifier: MIT */
/*
 * Watches are added and removed beside wakes: no call begins after the removal, none goes on when
 * that has said so, and from the ADD on each wake calls.
 */
#include "torture.h"

#include <pollux/read.h>
#include <pollux/watch.h>

#define WAKERS 3
#define FILES 2

enum state { OUT, IN, LEFT, IDLE };

struct target {
	struct pollux_watch w;
	struct pollux_file *file;
	enum state state;
	int inside;
	unsigned long calls;
};

static struct obj *files[FILES];

static void target_call(struct pollux_watch *w, struct pollux_file *f, uint32_t key)
{
	struct target *x = pollux_container_of(w, struct target, w);

	(void)key;
	atomic_add(&x->inside, 1);
	if (f != x->file)
		broken("a watch is called with another file than its own");
	if (atomic_get(&x->state) == IDLE || atomic_get(&x->state) == OUT)
		broken("a watch is called that is not being called");
	atomic_add(&x->calls, 1);
	atomic_add(&x->inside, -1);
}

static void wakes(struct thread *t)
{
	uint32_t seed = (uint32_t)t->tid;

	while (!stopping())
		pollux_file_wake(&files[rnd(&seed) % FILES]->file, EPOLLIN);
}

static struct target *target_new(int file)
{
	struct target *x = calloc(1, sizeof(*x));

	if (!x)
		abort();
	x->file = &files[file]->file;
	return x;
}

static void target_add(struct target *x)
{
	unsigned long before = x->calls;

	atomic_set(&x->state, IN);
	check(pollux_watch_add(&x->w, x->file, EPOLLIN, target_call) == 0);
	/* This thread's own wake is one of those that call. */
	pollux_file_wake(x->file, EPOLLIN);
	check(atomic_get(&x->calls) > before);
}

struct tally {
	unsigned long rounds, busy, calls;
};

/* Removed by asking; freed, or added to the other file, after a grace period. */
static void by_asking(struct target *x, struct tally *n)
{
	int r = pollux_watch_del(&x->w);

	n->busy += r;
	while (r && !stopping())
		r = pollux_watch_del(&x->w);
	atomic_set(&x->state, IDLE);
	check(atomic_get(&x->inside) == 0);
	pollux_synchronize();
}

static void run_target(struct target *x, uint32_t *seed, struct tally *n)
{
	for (uint32_t k = rnd(seed) % 3000; k; k--)
		__asm__ __volatile__("");
	if (rnd(seed) % 2) {
		by_asking(x, n);
	} else {
		pollux_watch_del_sync(&x->w);
		check(atomic_get(&x->inside) == 0);
	}
	atomic_set(&x->state, OUT);
	n->calls += x->calls;
	x->calls = 0;
	n->rounds++;
}

static void beside_wakes(void **state)
{
	struct thread t[WAKERS];
	struct tally n = {0};
	int64_t start = now_ns();
	uint32_t seed = 7;

	(void)state;
	for (int i = 0; i < FILES; i++)
		files[i] = obj_new(0);
	torture_begin();
	for (int i = 0; i < WAKERS; i++)
		thread_start(&t[i], wakes, NULL);
	while (torture_until(start, n.rounds > 50 && n.busy > 5)) {
		struct target *x = target_new(0);

		target_add(x);
		run_target(x, &seed, &n);
		if (rnd(&seed) % 2) {
			x->file = &files[1]->file;
			target_add(x);
			run_target(x, &seed, &n);
		}
		memset(x, 0xff, sizeof(*x));
		free(x);
	}
	torture_end(t, WAKERS);
	printf("%lu watches, %lu calls, %lu removed in one\n", n.rounds, n.calls, n.busy);
	for (int i = 0; i < FILES; i++)
		obj_put(files[i]);
}

/* A waker stops at the point; del says so, or the call that it is about to make does not come. */
static void stopped_at(const char *point, bool counted)
{
	struct stopped s;
	struct target *x;

	files[0] = obj_new(0);
	x = target_new(0);
	torture_stop = torture_failed = 0;
	points_delay(false);
	x->state = IN;
	assert_int_equal(pollux_watch_add(&x->w, x->file, EPOLLIN, target_call), 0);
	stopped_start(&s, point, NULL, files[0]);
	assert_int_equal(pollux_watch_del(&x->w), counted);
	x->state = counted ? LEFT : IDLE;
	stopped_go(&s);
	assert_false(torture_failed);
	assert_int_equal(pollux_watch_del(&x->w), 0);
	assert_int_equal(x->calls, counted);
	pollux_watch_del_sync(&x->w);
	free(x);
	obj_put(files[0]);
}

static void who_stands_before_its_count_does_not_call(void **state)
{
	(void)state;
	stopped_at("watch_before_count", false);
}

static void who_has_counted_is_told_of(void **state)
{
	(void)state;
	stopped_at("watch_before_call", true);
	stopped_at("watch_after_call", true);
}

static void removes(struct thread *t)
{
	pollux_watch_del_sync(t->arg);
}

/* Sleeps: the other one stands on the watch, and will look at it. */
static void del_sync_waits_for_who_stands_on_it(void **state)
{
	static const char *const points[] = {"watch_before_count", "watch_before_call",
					     "watch_after_call"};

	(void)state;
	torture_stop = torture_failed = 0;
	points_delay(false);
	for (int i = 0; i < 3; i++) {
		struct stopped s;
		struct target *x;
		struct thread t;

		files[0] = obj_new(0);
		x = target_new(0);
		x->state = IN;
		assert_int_equal(pollux_watch_add(&x->w, x->file, EPOLLIN, target_call), 0);
		stopped_start(&s, points[i], NULL, files[0]);
		thread_start(&t, removes, &x->w);
		sleep_ms(QUIET_MS);
		assert_false(thread_done(&t));
		stopped_go(&s);
		thread_join(&t);
		assert_int_equal(x->calls, i != 0);
		memset(x, 0xff, sizeof(*x));
		free(x);
		obj_put(files[0]);
	}
	assert_false(torture_failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_stands_before_its_count_does_not_call),
		TEST(who_has_counted_is_told_of),
		TEST(del_sync_waits_for_who_stands_on_it),
		TEST(beside_wakes),
	};

	return RUN(tests);
}
