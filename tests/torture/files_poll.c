/* SPDX-License-Identifier: MIT */
/*
 * Polls that sleep beside wakes: none is lost, and nobody rings for a call that has returned.
 */
#include "torture.h"

#include <pollux/poll.h>
#include <sys/eventfd.h>

#define OBJECTS 3

struct shared {
	struct obj *o[OBJECTS];
	int fd;
	bool hosted;
	/* When a single one of them ends. */
	int64_t until;
	unsigned long polls, timed_out;
};

static unsigned long parks;

/* It lives for one call of the consumer. */
struct call_host {
	struct pollux_host host;
	uint32_t alive;
};

static int park(void *arg, uint32_t *bell, int64_t deadline)
{
	(void)arg;
	atomic_add(&parks, 1);
	while (!pollux_bell_rung(bell)) {
		if (deadline >= 0 && now_ns() >= deadline)
			return -ETIMEDOUT;
		sched_yield();
	}
	return 0;
}

static void unpark(void *arg, uint32_t *bell)
{
	(void)bell;
	check(atomic_get((uint32_t *)arg) == 1);
}

static int64_t clock_now(void *arg)
{
	(void)arg;
	return now_ns();
}

/* One object at a time, so that the next wake does not make up for one that is lost. */
static void produces(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t seed = (uint32_t)t->tid;

	while (!stopping()) {
		struct obj *o = s->o[rnd(&seed) % OBJECTS];

		obj_fire(o, EPOLLIN, EPOLLIN);
		/* And some in vain. */
		for (uint32_t k = rnd(&seed) % 3; k; k--)
			pollux_file_wake(&s->o[rnd(&seed) % OBJECTS]->file, 0);
		while (atomic_get(&o->mask) && !stopping())
			sched_yield();
		for (uint32_t k = rnd(&seed) % 2000; k; k--)
			__asm__ __volatile__("");
	}
}

static int polls(struct shared *s, int64_t deadline)
{
	struct call_host h = {.host = {.size = sizeof(h.host),
				       .park = park,
				       .unpark_one = unpark,
				       .now = clock_now,
				       .arg = &h.alive},
			      .alive = 1};
	struct pollux_pollfile v[OBJECTS + 1] = {0};
	size_t n = OBJECTS;
	int r, ready = 0;

	for (int i = 0; i < OBJECTS; i++)
		v[i] = (struct pollux_pollfile){.file = &s->o[i]->file, .events = EPOLLIN};
	if (s->fd >= 0)
		v[n++] = (struct pollux_pollfile){.fd = s->fd, .events = EPOLLIN};
	r = pollux_files_poll(v, n, deadline, NULL, s->hosted ? &h.host : NULL);
	/* It is gone from here on; whoever calls it fails. */
	atomic_set(&h.alive, 0);
	for (size_t i = 0; i < n; i++)
		ready += v[i].revents != 0;
	check(r == ready);
	for (int i = 0; i < OBJECTS; i++)
		if (v[i].revents)
			obj_set(s->o[i], 0);
	return r;
}

static void beside_wakes(bool hosted, bool fds)
{
	struct shared s = {.hosted = hosted, .fd = fds ? eventfd(0, EFD_CLOEXEC) : -1};
	unsigned long rung = points_passed("files_before_ring");
	struct thread t;
	int64_t start = now_ns();
	uint32_t seed = 5;

	for (int i = 0; i < OBJECTS; i++)
		s.o[i] = obj_new(0);
	torture_begin();
	thread_start(&t, produces, &s);
	while (torture_part_until(start, 3,
				  s.polls > 50 && points_passed("files_before_ring") > rung + 20)) {
		bool ends = rnd(&seed) % 4 == 0;
		int n = polls(&s, now_ns() + (ends ? rnd(&seed) % 50000 : 30000000000ll));

		check(n > 0 || (ends && n == 0));
		s.timed_out += n == 0;
		s.polls++;
	}
	torture_end(&t, 1);
	printf("%lu polls, %lu timed out, %lu rings\n", s.polls, s.timed_out,
	       points_passed("files_before_ring") - rung);
	for (int i = 0; i < OBJECTS; i++)
		obj_put(s.o[i]);
	if (fds)
		close(s.fd);
}

static void on_a_futex(void **state)
{
	(void)state;
	beside_wakes(false, false);
}

static void in_the_kernel(void **state)
{
	(void)state;
	beside_wakes(false, true);
}

static void in_a_host(void **state)
{
	(void)state;
	beside_wakes(true, false);
}

static void ends_and_closes(struct thread *t)
{
	struct shared *s = t->arg;

	(void)polls(s, s->until);
}

/* false: the poll ended before it could be rung for. */
static bool who_rings_round(void)
{
	struct shared s = {.fd = -1, .hosted = true, .until = now_ns() + 100000000};
	struct stopped w = {.point = "files_before_ring"};
	unsigned long parked = atomic_get(&parks);
	struct thread t;
	bool met;

	for (int i = 0; i < OBJECTS; i++)
		s.o[i] = obj_new(0);
	w.o = s.o[0];
	thread_start(&t, ends_and_closes, &s);
	assert_true(await(atomic_get(&parks) > parked || thread_done(&t)));
	thread_start(&w.t, stopped_main, &w);
	assert_true(await(atomic_get(&w.g.reached) || thread_done(&w.t)));
	met = atomic_get(&w.g.reached);
	if (met) {
		while (now_ns() < s.until + 20000000)
			sleep_ms(1);
		assert_false(thread_done(&t));
	}
	stopped_go(&w);
	thread_join(&t);
	assert_false(torture_failed);
	for (int i = 0; i < OBJECTS; i++)
		obj_put(s.o[i]);
	return met;
}

/* A thread that is stopped before it rings holds up the end, or is too late and does not ring. */
static void who_rings_is_waited_for(void **state)
{
	int64_t start = now_ns();
	bool met = false;

	(void)state;
	torture_stop = torture_failed = 0;
	points_delay(false);
	/* What begins the engine is not what is tested. */
	ep_put(ep_new());
	while (!met && torture_until(start, met))
		met = who_rings_round();
	assert_true(met);
}

/* One who is stopped before it rings keeps nobody asleep: the next rings, too. */
static void stopped_ring(bool fds)
{
	struct shared s = {.fd = fds ? eventfd(0, EFD_CLOEXEC) : -1, .until = -1};
	unsigned long ended = points_passed("files_before_end");
	struct stopped w = {0};
	struct thread t;

	torture_stop = torture_failed = 0;
	points_delay(false);
	for (int i = 0; i < OBJECTS; i++)
		s.o[i] = obj_new(0);
	thread_start(&t, ends_and_closes, &s);
	assert_true(thread_asleep(&t));
	stopped_start(&w, "files_before_ring", NULL, s.o[0]);
	assert_true(thread_asleep(&t));
	obj_fire(s.o[1], EPOLLIN, EPOLLIN);
	assert_true(await(points_passed("files_before_end") > ended));
	/* A doorbell and a host are waited for. */
	if (!fds)
		assert_true(await(thread_done(&t)));
	stopped_go(&w);
	thread_join(&t);
	assert_false(torture_failed);
	for (int i = 0; i < OBJECTS; i++)
		obj_put(s.o[i]);
	if (fds)
		close(s.fd);
}

static void stopped_ring_at_a_futex(void **state)
{
	(void)state;
	stopped_ring(false);
}

static void stopped_ring_in_the_kernel(void **state)
{
	(void)state;
	stopped_ring(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_rings_is_waited_for),
		TEST(stopped_ring_at_a_futex),
		TEST(stopped_ring_in_the_kernel),
		TEST(on_a_futex),
		TEST(in_the_kernel),
		TEST(in_a_host),
	};

	return RUN(tests);
}
