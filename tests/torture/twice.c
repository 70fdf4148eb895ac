/* SPDX-License-Identifier: MIT */
/*
 * A wait that has looked at our side finds the same items at the kernel's, where they have gone in
 * between: it reports each of them once, and all that the kernel has besides.
 */
#include "cache/posix.h"

#include "caller.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

#include <pollux/posix.h>

#define FILES 3
#define PIPE 100

struct world {
	int ep, efd[FILES], p[2];
};

/* All of it is ready, and stays so. */
static struct world world_new(int files)
{
	struct world w = {.ep = pollux_epoll_create1(EPOLL_CLOEXEC)};

	assert_int_equal(pipe2(w.p, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(write(w.p[1], "", 1), 1);
	add(w.ep, w.p[0], PIPE);
	for (int i = 0; i < FILES; i++) {
		w.efd[i] = i < files ? pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
		if (i >= files)
			continue;
		add(w.ep, w.efd[i], i);
		assert_int_equal(pollux_write(w.efd[i], &(uint64_t){1}, 8), 8);
	}
	assert_int_equal(pollux_fd_served(w.ep), 1);
	return w;
}

static void world_end(struct world *w)
{
	for (int i = 0; i < FILES; i++)
		if (w->efd[i] >= 0)
			pollux_close(w->efd[i]);
	pollux_close(w->ep);
	close(w->p[0]);
	close(w->p[1]);
}

/* The kernel fills the whole of it, so that our side is asked first the next time. */
static void fill(int ep)
{
	struct epoll_event ev = {0};

	if (pollux_epoll_wait(ep, &ev, 1, 0) != 1)
		broken("nothing is ready");
}

struct act {
	struct gate gate;
	int ep, n;
	struct epoll_event ev[FILES + 3];
};

static void waits(struct thread *t)
{
	struct act *a = t->arg;

	gate_arm(&a->gate, "wait_before_kernel");
	a->n = pollux_epoll_wait(a->ep, a->ev, FILES + 3, 0);
}

static void leaves(struct thread *t)
{
	struct act *a = t->arg;

	gate_arm(&a->gate, "flush_written");
	pollux_escape(a->ep);
}

static void assert_both(const struct act *a)
{
	assert_int_equal(a->n, 2);
	assert_int_not_equal(a->ev[0].data.u64, a->ev[1].data.u64);
}

/* The kernel's side has both, and it is left out there what has been seen on ours. */
static void assert_once(struct world *w, struct act *a)
{
	assert_both(a);
	a->n = pollux_epoll_wait(w->ep, a->ev, FILES + 3, 0);
	assert_both(a);
}

static void waiter_start(struct thread *t, struct world *w, struct act *a)
{
	torture_begin();
	points_delay(false);
	*w = world_new(1);
	fill(w->ep);
	*a = (struct act){.ep = w->ep};
	thread_start(t, waits, a);
	assert_true(gate_reached(&a->gate));
}

static void a_fork_between_the_looks(void **state)
{
	struct thread t;
	struct world w;
	struct act a;
	int status;
	pid_t pid;

	(void)state;
	waiter_start(&t, &w, &a);
	pid = pollux_fork();
	if (pid == 0)
		_exit(0);
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	gate_open(&a.gate);
	torture_end(&t, 1);
	assert_once(&w, &a);
	world_end(&w);
}

/* The kernel has the count, and the eviction has not said yet that it has. */
static void a_look_during_an_eviction(void **state)
{
	struct thread t[2];
	struct act a, b;
	struct world w;

	(void)state;
	waiter_start(&t[0], &w, &a);
	b = (struct act){.ep = w.ep};
	thread_start(&t[1], leaves, &b);
	assert_true(gate_reached(&b.gate));
	gate_open(&a.gate);
	thread_join(&t[0]);
	gate_open(&b.gate);
	torture_end(&t[1], 1);
	assert_once(&w, &a);
	world_end(&w);
}

/* What has not moved is asked for as ever. */
static void two_looks_at_rest(void **state)
{
	struct thread t;
	struct world w;
	struct act a;

	(void)state;
	waiter_start(&t, &w, &a);
	gate_open(&a.gate);
	torture_end(&t, 1);
	assert_int_equal(a.n, 2);
	assert_int_equal(a.ev[0].data.u64, 0);
	assert_int_equal(a.ev[1].data.u64, PIPE);
	world_end(&w);
}

struct race {
	struct meet m;
	struct world w;
	int gone;
	unsigned long waits;
};

static void look(struct race *r)
{
	struct epoll_event ev[2 * (FILES + 1)];
	bool seen[FILES] = {0}, pipe = false;
	int n;

	fill(r->w.ep);
	n = pollux_epoll_wait(r->w.ep, ev, 2 * (FILES + 1), 0);
	for (int i = 0; i < n; i++) {
		bool *s = ev[i].data.u64 == PIPE ? &pipe : &seen[ev[i].data.u64 % FILES];

		if (*s)
			broken("%d is reported twice", (int)ev[i].data.u64);
		*s = true;
	}
	for (int i = 0; i < FILES; i++)
		if (!seen[i])
			broken("%d is not reported", i);
	if (!pipe)
		broken("the pipe is not reported");
	atomic_add(&r->waits, 1);
}

static void looks(struct thread *t)
{
	struct race *r = t->arg;

	while (meet(&r->m)) {
		do
			look(r);
		while (!atomic_get(&r->gone) && !stopping());
		look(r);
		if (!meet(&r->m))
			break;
	}
}

static void looks_beside_evictions(void **state)
{
	struct race r = {.m.n = 2};
	unsigned long rounds = 0, flushed = points_passed("flush_written");
	int64_t start = now_ns();
	struct thread t;

	(void)state;
	torture_begin();
	thread_start(&t, looks, &r);
	for (; torture_until(start, rounds > 50); rounds++) {
		r.w = world_new(FILES);
		atomic_set(&r.gone, 0);
		if (!meet(&r.m))
			break;
		pollux_escape(r.w.ep);
		atomic_set(&r.gone, 1);
		if (!meet(&r.m))
			break;
		world_end(&r.w);
	}
	torture_end(&t, 1);
	flushed = points_passed("flush_written") - flushed;
	print_message("%lu rounds, %lu waits, %lu flushes\n", rounds, r.waits, flushed);
	assert_true(flushed >= rounds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(two_looks_at_rest),
		TEST(a_fork_between_the_looks),
		TEST(a_look_during_an_eviction),
		TEST(looks_beside_evictions),
	};

	return RUN(tests);
}
