/* SPDX-License-Identifier: MIT */
/*
 * While an object is on its way to the kernel, and its count may be on both sides, nobody ends its
 * number, changes its registration, waits on the set or becomes another program: all that wait.
 */
#include "posix/posix.h"

#include "torture.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <pollux/posix.h>

#include "preload/preload.h"

#define SETS 3

/* One object with two numbers, in a set by the first of them. */
struct world {
	int ep, fd, other;
};

struct act {
	struct world *w;
	struct gate gate;
	/* What leaves. */
	int leaves;
	int r, done;
	struct epoll_event ev;
};

static struct world world_new(uint64_t count)
{
	struct world w = {
		.ep = pollux_epoll_create1(EPOLL_CLOEXEC),
		.fd = pollux_eventfd(count, EFD_NONBLOCK),
	};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 1};

	w.other = pollux_dup(w.fd);
	assert_int_equal(pollux_fd_served(w.fd), 1);
	assert_int_equal(pollux_fd_served(w.ep), 1);
	assert_int_equal(pollux_epoll_ctl(w.ep, EPOLL_CTL_ADD, w.fd, &ev), 0);
	return w;
}

/* Its other number keeps the item (EP-KEY-02). */
static int still_watched(struct world *w, uint64_t data)
{
	struct epoll_event ev = {0};
	uint64_t one = 1;

	return pollux_write(w->other, &one, sizeof(one)) == sizeof(one) &&
	       pollux_epoll_wait(w->ep, &ev, 1, 0) == 1 && ev.data.u64 == data;
}

static void leaver(struct thread *t)
{
	struct act *a = t->arg;

	gate_arm(&a->gate, "spill_moving");
	pollux_escape(a->leaves);
}

/* As the drop-in's close decides. */
static int close_as_dropin(int fd)
{
	return plx_may_end(fd) ? pollux_close(fd) : close(fd);
}

static void done(struct act *a, int r)
{
	a->r = r;
	atomic_set(&a->done, 1);
}

static void closes(struct thread *t)
{
	struct act *a = t->arg;

	done(a, close_as_dropin(a->w->fd));
}

static void closes_a_range(struct thread *t)
{
	struct act *a = t->arg;

	done(a, (int)plx_px_close_range((unsigned int)a->w->fd, (unsigned int)a->w->fd, 0));
}

static void replaces(struct thread *t)
{
	struct act *a = t->arg;

	done(a, pollux_dup2(a->w->ep, a->w->fd));
}

static void modifies(struct thread *t)
{
	struct act *a = t->arg;
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 2};

	done(a, pollux_epoll_ctl(a->w->ep, EPOLL_CTL_MOD, a->w->fd, &ev));
}

static void deletes(struct thread *t)
{
	struct act *a = t->arg;

	done(a, pollux_epoll_ctl(a->w->ep, EPOLL_CTL_DEL, a->w->fd, NULL));
}

static void waits(struct thread *t)
{
	struct act *a = t->arg;

	done(a, pollux_epoll_wait(a->w->ep, &a->ev, 1, 0));
}

static void polls(struct thread *t)
{
	struct act *a = t->arg;
	struct pollfd p = {.fd = a->w->ep, .events = POLLIN};

	done(a, pollux_poll(&p, 1, 0));
}

static void executes(struct thread *t)
{
	struct act *a = t->arg;

	plx_px_escape_inherited(PLX_OUT_EXEC);
	done(a, 0);
}

/* Returns what fn did when it was let go on. */
static int meets_the_move(struct world *w, int leaves, void (*fn)(struct thread *))
{
	struct act a = {.w = w, .leaves = leaves};
	struct thread t[2];

	torture_begin();
	points_delay(false);
	thread_start(&t[0], leaver, &a);
	assert_true(gate_reached(&a.gate));
	/* The kernel has the count by then, but nobody is to know. */
	assert_true(plx_fd_ours(w->fd));
	thread_start(&t[1], fn, &a);
	sleep_ms(30);
	assert_false(atomic_get(&a.done));
	gate_open(&a.gate);
	torture_end(t, 2);
	assert_true(a.done);
	return a.r;
}

static void world_end(struct world *w)
{
	pollux_close(w->other);
	pollux_close(w->ep);
}

static void a_close(void **state)
{
	struct world w = world_new(0);

	(void)state;
	assert_int_equal(meets_the_move(&w, w.fd, closes), 0);
	assert_true(fcntl(w.fd, F_GETFD) < 0);
	assert_true(still_watched(&w, 1));
	world_end(&w);
}

static void a_close_range(void **state)
{
	struct world w = world_new(0);

	(void)state;
	assert_int_equal(meets_the_move(&w, w.fd, closes_a_range), 0);
	assert_true(fcntl(w.fd, F_GETFD) < 0);
	assert_true(still_watched(&w, 1));
	world_end(&w);
}

static void a_dup2(void **state)
{
	struct world w = world_new(0);

	(void)state;
	assert_int_equal(meets_the_move(&w, w.fd, replaces), w.fd);
	assert_true(still_watched(&w, 1));
	pollux_close(w.fd);
	world_end(&w);
}

static void a_mod(void **state)
{
	struct world w = world_new(0);

	(void)state;
	assert_int_equal(meets_the_move(&w, w.fd, modifies), 0);
	assert_true(still_watched(&w, 2));
	pollux_close(w.fd);
	world_end(&w);
}

static void a_del(void **state)
{
	struct world w = world_new(0);

	(void)state;
	assert_int_equal(meets_the_move(&w, w.fd, deletes), 0);
	assert_false(still_watched(&w, 1));
	pollux_close(w.fd);
	world_end(&w);
}

/* The set itself leaves, so that the kernel is asked. */
static void a_wait(void **state)
{
	struct world w = world_new(1);

	(void)state;
	assert_int_equal(meets_the_move(&w, w.ep, waits), 1);
	pollux_close(w.fd);
	world_end(&w);
}

static void a_poll(void **state)
{
	struct world w = world_new(1);

	(void)state;
	assert_int_equal(meets_the_move(&w, w.ep, polls), 1);
	pollux_close(w.fd);
	world_end(&w);
}

static void an_exec(void **state)
{
	struct world w = world_new(0);

	(void)state;
	assert_int_equal(meets_the_move(&w, w.fd, executes), 0);
	assert_true(still_watched(&w, 1));
	pollux_close(w.fd);
	world_end(&w);
}

/* The same at random: sets that leave, while their numbers are closed. */
struct race {
	struct meet m;
	struct world w[SETS];
	uint32_t how;
	unsigned long waited;
};

static void race_closer(struct thread *t)
{
	struct race *r = t->arg;

	while (meet(&r->m)) {
		for (int i = 0; i < SETS; i++) {
			struct world *w = &r->w[i];

			if (plx_fd_ours(w->fd) && plx_table_moving())
				atomic_add(&r->waited, 1);
			if (r->how & (1u << i)) {
				check(close_as_dropin(w->fd) == 0);
			} else {
				check(pollux_dup2(w->ep, w->fd) == w->fd);
				check(close_as_dropin(w->fd) == 0);
			}
		}
		if (!meet(&r->m))
			break;
	}
}

static void closes_beside_moves(void **state)
{
	struct race r = {.m.n = 2};
	unsigned long rounds = 0;
	int64_t start = now_ns();
	struct thread t;
	uint32_t random = 9;

	(void)state;
	torture_begin();
	thread_start(&t, race_closer, &r);
	for (; torture_until(start, rounds > 50 && atomic_get(&r.waited)); rounds++) {
		for (int i = 0; i < SETS; i++)
			r.w[i] = world_new(0);
		r.how = rnd(&random);
		if (!meet(&r.m))
			break;
		pollux_escape(-1);
		if (!meet(&r.m))
			break;
		for (int i = 0; i < SETS; i++) {
			if (!still_watched(&r.w[i], 1))
				broken("an item has gone that another number keeps");
			world_end(&r.w[i]);
		}
	}
	torture_end(&t, 1);
	print_message("%lu rounds, %lu numbers on their way\n", rounds, r.waited);
	assert_true(r.waited > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_close), TEST(a_close_range), TEST(a_dup2),
		TEST(a_mod),   TEST(a_del),	    TEST(a_wait),
		TEST(a_poll),  TEST(an_exec),	    TEST(closes_beside_moves),
	};

	return RUN(tests);
}
