/* SPDX-License-Identifier: MIT */
/*
 * Calls that hold the soft limit of descriptors, as they start something or set it, never meet one
 * that has been raised for a descriptor of ours: not either when one follows another without a gap.
 */
#include "posix/front.h"

#include "torture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <pollux/posix.h>

#define SOFT 500
#define HOLDERS 3
/* A hold that is older is not waited for. */
#define HELD_NS 20000000

static struct rlimit program;

static rlim_t soft(void)
{
	struct rlimit now;

	check(getrlimit(RLIMIT_NOFILE, &now) == 0);
	return now.rlim_cur;
}

struct world {
	unsigned long raised, looks, sets;
	/* How many hold it at this moment, and how often another did when one began. */
	int holds;
	unsigned long overlaps;
	int ns;
};

struct part {
	struct world *w;
	int i;
};

/* One that lasts, as the start of a process does. */
static void holder(struct thread *t)
{
	struct part *p = t->arg;
	uint32_t r = p->i + 3;

	while (!stopping()) {
		int64_t begun = now_ns(), until;

		plx_px_limit_hold();
		if (atomic_add(&p->w->holds, 1))
			atomic_add(&p->w->overlaps, 1);
		until = now_ns() + p->w->ns / 2 + rnd(&r) % p->w->ns;
		do {
			rlim_t is = soft();

			if (is != program.rlim_cur && now_ns() - begun < HELD_NS)
				broken("a call meets a limit of %lu", (unsigned long)is);
			atomic_add(&p->w->looks, 1);
			sched_yield();
		} while (now_ns() < until && !stopping());
		atomic_add(&p->w->holds, -1);
		plx_px_limit_let_go();
	}
}

static void raiser(struct thread *t)
{
	struct part *p = t->arg;
	struct rlimit was;

	while (!stopping()) {
		plx_limit_raise(&was);
		check(soft() == program.rlim_max);
		sched_yield();
		plx_limit_restore(&was);
		check(was.rlim_cur <= SOFT);
		atomic_add(&p->w->raised, 1);
		sched_yield();
	}
}

static bool met(const struct world *w)
{
	return atomic_get(&w->raised) > 5 && atomic_get(&w->overlaps) > 20;
}

/* Each lasts long enough for the next to begin. */
static void held_all_the_time(void **state)
{
	struct world w = {.ns = 8000000};
	struct part p[HOLDERS + 1];
	struct thread t[HOLDERS + 1];

	(void)state;
	torture_begin();
	points_delay(false);
	for (int i = 0; i <= HOLDERS; i++) {
		p[i] = (struct part){.w = &w, .i = i};
		thread_start(&t[i], i < HOLDERS ? holder : raiser, &p[i]);
	}
	torture_sleep_until(met(&w));
	torture_end(t, HOLDERS + 1);
	print_message("%lu raised, %lu looks, %lu overlaps\n", w.raised, w.looks, w.overlaps);
	assert_true(met(&w));
	assert_int_equal(soft(), SOFT);
}

/* What is set between two that raise it stays. */
static void set_beside_two_who_raise_it(void **state)
{
	struct world w = {0};
	struct part p = {.w = &w};
	struct thread t[2];
	int64_t start = now_ns();

	(void)state;
	torture_begin();
	for (int i = 0; i < 2; i++)
		thread_start(&t[i], raiser, &p);
	for (; torture_until(start, w.sets > 100 && atomic_get(&w.raised) > 100); w.sets++) {
		struct rlimit lim = program;
		int64_t begun = now_ns();
		rlim_t is;

		lim.rlim_cur = SOFT - w.sets % 4;
		plx_px_limit_hold();
		check(setrlimit(RLIMIT_NOFILE, &lim) == 0);
		plx_px_limit_let_go();
		plx_px_limit_hold();
		is = soft();
		plx_px_limit_let_go();
		check(is == lim.rlim_cur || now_ns() - begun >= HELD_NS);
	}
	torture_end(t, 2);
	print_message("%lu raised, %lu set\n", w.raised, w.sets);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &program), 0);
}

/* --- who asks ---------------------------------------------------------------------------- */

static void holds_for_long(struct thread *t)
{
	plx_px_limit_hold();
	atomic_set((int *)t->arg, 1);
	while (!stopping())
		sleep_ms(1);
	plx_px_limit_let_go();
}

/* Who only asks for it is not one whom others wait for, beside another who holds it for long. */
static void asking_is_no_hold(void **state)
{
	int64_t least = INT64_MAX;
	struct thread t;
	int held = 0;

	(void)state;
	torture_begin();
	points_delay(false);
	thread_start(&t, holds_for_long, &held);
	assert_true(await(atomic_get(&held)));
	sleep_ms(2 * HELD_NS / 1000000);
	for (int i = 0; i < 20; i++) {
		struct rlimit lim;
		int64_t start;

		assert_true(plx_limit_get(&lim));
		start = now_ns();
		plx_limit_raise(&lim);
		if (now_ns() - start < least)
			least = now_ns() - start;
		plx_limit_restore(&lim);
	}
	torture_end(&t, 1);
	assert_true(least < HELD_NS / 2);
}

/* --- a fork within the end of such a call ------------------------------------------------ */

static struct {
	struct gate gate;
	pid_t child;
} forks;

static void forks_here(int signo)
{
	int saved = errno;

	(void)signo;
	forks.child = fork();
	if (forks.child == 0)
		plx_limit_after_fork_child();
	gate_open(&forks.gate);
	errno = saved;
}

static void holds_once(struct thread *t)
{
	(void)t;
	gate_arm(&forks.gate, "limit_let_go");
	plx_px_limit_hold();
	plx_px_limit_let_go();
	/* ThreadSanitizer runs handlers later. */
	while (forks.child == -1)
		sleep_ms(1);
	if (forks.child == 0) {
		struct part p = {.w = &(struct world){0}};
		struct thread raises;
		int64_t begun = now_ns();

		plx_px_limit_hold();
		thread_start(&raises, raiser, &p);
		while (now_ns() - begun < HELD_NS / 2)
			if (soft() != program.rlim_cur)
				_exit(1);
		_exit(0);
	}
}

/* A handler forks: the child counts right, and its own calls are waited for. */
static void a_fork_while_it_ends(void **state)
{
	struct thread t;
	int status;

	(void)state;
	torture_begin();
	points_delay(false);
	forks.child = -1;
	signal(SIGUSR1, forks_here);
	start_to_gate(&t, holds_once, NULL, &forks.gate);
	assert_int_equal(pthread_kill(t.id, SIGUSR1), 0);
	sleep_ms(50);
	gate_open(&forks.gate);
	thread_join(&t);
	assert_true(forks.child > 0);
	assert_int_equal(waitpid(forks.child, &status, 0), forks.child);
	assert_int_equal(status, 0);
	torture_end(NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(held_all_the_time),
		TEST(set_beside_two_who_raise_it),
		TEST(asking_is_no_hold),
		TEST(a_fork_while_it_ends),
	};

	if (getrlimit(RLIMIT_NOFILE, &program) || program.rlim_max <= SOFT)
		return 77;
	program.rlim_cur = SOFT;
	if (setrlimit(RLIMIT_NOFILE, &program))
		return 1;
	return RUN(tests);
}
