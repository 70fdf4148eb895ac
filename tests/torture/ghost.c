/* SPDX-License-Identifier: MIT */
/*
 * An object leaves for the kernel while threads that wait for it are cancelled: the leaving
 * is not held up by a thread that took an event with it into its end.
 */
#include "posix/front.h"

#include "torture.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <pollux/posix.h>

/*
 * Who waits in vain for somebody who is gone naps ten thousand times. So it is naps that are
 * counted, of which a spill needs few: a slow machine cannot make it more of them.
 */
#define HELD_UP 9000

struct shared {
	struct meet m;
	int ep, efd;
	int quit;
	unsigned long rounds, slow;
	long longest;
};

static void *sleeper(void *arg)
{
	struct shared *s = arg;
	struct epoll_event ev;

	pollux_epoll_wait(s->ep, &ev, 1, SOON_MS);
	return NULL;
}

/* How often this thread has gone to sleep. */
static long sleeps(void)
{
	struct rusage u = {.ru_nvcsw = 0};

	getrusage(RUSAGE_THREAD, &u);
	return u.ru_nvcsw;
}

static void leaver(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = 5;

	for (;;) {
		long start;

		if (!meet(&s->m) || atomic_get(&s->quit))
			return;
		for (uint32_t i = rnd(&r) % 2000; i; i--)
			__asm__ __volatile__("");
		start = sleeps();
		pollux_escape(s->efd);
		start = sleeps() - start;
		s->longest = start > s->longest ? start : s->longest;
		s->slow += start > HELD_UP;
		if (!meet(&s->m))
			return;
	}
}

static void sleepers_that_are_cancelled(void **state)
{
	struct shared s = {.m.n = 2};
	int64_t begin = now_ns();
	struct thread t;
	uint32_t r = 7;

	(void)state;
	torture_begin();
	points_delay(false);
	thread_start(&t, leaver, &s);
	for (; torture_until(begin, s.rounds > 100); s.rounds++) {
		struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
		struct plx_front *fr;
		struct pollux_file *f;
		pthread_t id;

		s.ep = pollux_epoll_create1(EPOLL_CLOEXEC);
		s.efd = pollux_eventfd(1, EFD_NONBLOCK);
		assert_int_equal(pollux_epoll_ctl(s.ep, EPOLL_CTL_ADD, s.efd, &ev), 0);
		f = plx_table_get(s.efd);
		/* Its edge is collected: on leaving it makes one that nobody is to see. */
		assert_int_equal(pollux_epoll_wait(s.ep, &ev, 1, 0), 1);
		assert_int_equal(pthread_create(&id, NULL, sleeper, &s), 0);
		for (uint32_t i = rnd(&r) % 3; i; i--)
			sleep_ms(1);
		if (!meet(&s.m))
			break;
		/* The edge is about to wake the sleeper, which is to be cancelled on its way. */
		fr = plx_file_front(plx_table_peek(s.ep));
		while (!plx_load_acq(&fr->nghosts) && !plx_load_acq(&plx_file_efd(f)->spilled))
			;
		for (uint32_t i = rnd(&r) % 20000; i; i--)
			__asm__ __volatile__("");
		pthread_cancel(id);
		if (!meet(&s.m))
			break;
		pthread_join(id, NULL);
		pollux_file_put(f);
		pollux_close(s.ep);
		pollux_close(s.efd);
	}
	atomic_set(&s.quit, 1);
	if (!stopping())
		(void)meet(&s.m);
	torture_end(&t, 1);
	print_message("%lu rounds, %lu held up, %ld naps at most\n", s.rounds, s.slow, s.longest);
	assert_int_equal(s.slow, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(sleepers_that_are_cancelled),
	};

	return RUN(tests);
}
