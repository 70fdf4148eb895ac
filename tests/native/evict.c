/* SPDX-License-Identifier: MIT */
/*
 * The program puts descriptors of its own at the numbers of ours.
 */
#include "posix/front.h"

#include "native.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <pollux/posix.h>

#define ROUNDS 8

static int add(int ep, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

static struct plx_front *front_of(int ep)
{
	return plx_file_front(plx_table_peek(ep));
}

struct waiter_of {
	struct thread t;
	int ep;
	int n;
	struct epoll_event ev[4];
};

static void wait_for_one(struct thread *t)
{
	struct waiter_of *w = t->arg;

	w->n = pollux_epoll_wait(w->ep, w->ev, 4, SOON_MS);
}

/* A sleeper is woken by a write, and is told of that and of nothing else. */
static void assert_wakes(int ep, int efd, uint64_t data)
{
	struct waiter_of w = {.ep = ep};
	uint64_t one = 1;

	thread_start(&w.t, wait_for_one, &w);
	assert_true(thread_asleep(&w.t));
	assert_int_equal(pollux_write(efd, &one, sizeof(one)), sizeof(one));
	thread_join(&w.t);
	assert_int_equal(w.n, 1);
	assert_int_equal(w.ev[0].data.u64, data);
	assert_int_equal(pollux_read(efd, &one, sizeof(one)), sizeof(one));
}

/* The doorbell rings from its new number, with its old marker and with a new one. */
static void doorbell_that_had_to_move(void **state)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC), efd = pollux_eventfd(0, EFD_NONBLOCK);
	struct epoll_event ev[4];
	struct plx_front *fr;
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(add(ep, efd, EPOLLIN, 7), 0);
	/* The first sleep makes it. */
	assert_int_equal(pollux_epoll_wait(ep, ev, 4, 1), 0);
	fr = front_of(ep);
	for (int i = 0; i < ROUNDS; i++) {
		int number = fr->doorbell;
		uint64_t marker = fr->marker;

		assert_int_equal(pollux_dup2(p[0], number), number);
		assert_int_not_equal(fr->doorbell, number);
		assert_wakes(ep, efd, 7);
		/* The number is the program's, and so is the data that was the marker. */
		assert_int_equal(add(ep, number, EPOLLIN, marker), 0);
		assert_int_not_equal(fr->marker, marker);
		assert_wakes(ep, efd, 7);
		assert_int_equal(write(p[1], "x", 1), 1);
		assert_int_equal(pollux_epoll_wait(ep, ev, 4, 0), 1);
		assert_int_equal(read(p[0], &(char){0}, 1), 1);
		assert_int_equal(pollux_epoll_ctl(ep, EPOLL_CTL_DEL, number, NULL), 0);
		assert_int_equal(pollux_close(number), 0);
	}
	/* What is left in the kernel is the one doorbell: it goes with the set. */
	pollux_escape(ep);
	assert_int_equal(epoll_ctl(fr->kfd, EPOLL_CTL_DEL, fr->doorbell, NULL), -1);
	pollux_close(efd);
	pollux_close(ep);
	close(p[0]);
	close(p[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(doorbell_that_had_to_move),
	};

	reach_all_numbers();
	return RUN(tests);
}
