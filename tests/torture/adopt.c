/* SPDX-License-Identifier: MIT */
/*
 * Adoption of an eventfd that is hot (src/cache/adopt.c): beside the first registration, others
 * that come and go, waits that sleep since before, and polls, no wait sleeps beside a count and
 * nothing is lost.
 */
#include "cache/eventfd.h"

#include "torture.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <pollux/posix.h>

/* Of each writer; they are hot before that. */
#define WRITES 150
#define WRITERS 2
#define WAITERS 2
#define PIPE 9

struct world {
	int fd, ep, p[2];
	bool edge, late, comes_and_goes;
	/* By writes that have begun; by reads. */
	unsigned long written, got;
	int writing;
};

static void writer(struct thread *t)
{
	struct world *w = t->arg;
	const uint64_t one = 1;
	uint32_t r = (uint32_t)(uintptr_t)t ^ (uint32_t)now_ns();

	for (int i = 0; i < WRITES && !stopping(); i++) {
		check(pollux_write(w->fd, &one, sizeof(one)) == sizeof(one));
		atomic_add(&w->written, 1);
		if (rnd(&r) % 16 == 0)
			sched_yield();
	}
	atomic_add(&w->writing, -1);
}

static bool done(struct world *w)
{
	return stopping() ||
	       (!atomic_get(&w->writing) && atomic_get(&w->got) >= WRITERS * (unsigned long)WRITES);
}

static void take(struct world *w)
{
	uint64_t v;

	if (pollux_read(w->fd, &v, sizeof(v)) == sizeof(v))
		atomic_add(&w->got, v);
	else
		check(errno == EAGAIN);
}

static void waiter(struct thread *t)
{
	struct world *w = t->arg;
	uint32_t r = (uint32_t)(uintptr_t)t ^ (uint32_t)now_ns();
	struct epoll_event ev;

	while (!done(w)) {
		struct pollfd p[] = {{.fd = w->fd, .events = POLLIN},
				     {.fd = w->p[0], .events = POLLIN}};
		int n;

		if (!w->edge && rnd(&r) % 4 == 0)
			n = pollux_poll(p, 2, -1);
		else
			n = pollux_epoll_wait(w->ep, &ev, 1, rnd(&r) % 4 ? -1 : 0);
		check(n >= 0);
		if (n > 0)
			take(w);
	}
}

static void add(struct world *w)
{
	struct epoll_event ev = {.events = EPOLLIN | (w->edge ? EPOLLET : 0), .data.u64 = 1};

	check(pollux_epoll_ctl(w->ep, EPOLL_CTL_ADD, w->fd, &ev) == 0);
}

/* Whoever sleeps finds that it is over. */
static void end(struct world *w)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = PIPE};

	check(pollux_epoll_ctl(w->ep, EPOLL_CTL_ADD, w->p[0], &ev) == 0);
	check(write(w->p[1], "", 1) == 1);
}

static void one_round(unsigned long round, uint32_t *r)
{
	struct world w = {.fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
			  .ep = pollux_epoll_create1(EPOLL_CLOEXEC),
			  .edge = round % 2,
			  .late = round / 2 % 2,
			  .comes_and_goes = round / 4 % 2,
			  .writing = WRITERS};
	struct thread t[WRITERS + WAITERS];
	unsigned long at = rnd(r) % (WRITERS * WRITES);
	int n = 0;

	assert_int_equal(pipe2(w.p, O_CLOEXEC), 0);
	if (!w.late)
		add(&w);
	for (int i = 0; i < WAITERS; i++)
		thread_start(&t[n++], waiter, &w);
	for (int i = 0; i < WRITERS; i++)
		thread_start(&t[n++], writer, &w);
	while (!stopping() && atomic_get(&w.written) < at && atomic_get(&w.writing))
		sched_yield();
	if (w.late)
		add(&w);
	if (w.comes_and_goes) {
		check(pollux_epoll_ctl(w.ep, EPOLL_CTL_DEL, w.fd, NULL) == 0);
		sched_yield();
		add(&w);
	}
	while (!done(&w)) {
		unsigned long got = atomic_get(&w.got), written = atomic_get(&w.written);

		if (!await(done(&w) || atomic_get(&w.got) != got ||
			   atomic_get(&w.written) != written)) {
			broken("%lu of %lu have been read", got, written);
			_exit(1);
		}
	}
	end(&w);
	for (int i = 0; i < n; i++)
		thread_join(&t[i]);
	pollux_close(w.ep);
	pollux_close(w.fd);
	close(w.p[0]);
	close(w.p[1]);
}

static void adoption_loses_nothing(void **state)
{
	unsigned long adopted = points_passed("adopted"), begun = points_passed("epoll_begun");
	unsigned long left = points_passed("kernel_left"), rounds = 0;
	int64_t start = now_ns();
	uint32_t r = (uint32_t)start;

	(void)state;
	plx_adopts = PLX_ADOPTS_HOT;
	plx_hot_ns = INT64_MAX >> 16;
	torture_begin();
	for (; torture_until(start, points_passed("adopted") > adopted); rounds++)
		one_round(rounds, &r);
	torture_end(NULL, 0);
	print_message("%lu rounds, %lu adoptions, %lu epolls made ready, %lu not asked any more\n",
		      rounds, points_passed("adopted") - adopted,
		      points_passed("epoll_begun") - begun, points_passed("kernel_left") - left);
	assert_true(points_passed("adopted") > adopted);
	assert_true(points_passed("epoll_begun") > begun);
}

int main(void)
{
	const struct CMUnitTest tests[] = {TEST(adoption_loses_nothing)};

	plx_px_init();
	return RUN(tests);
}
