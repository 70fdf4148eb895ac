/* SPDX-License-Identifier: MIT */
/*
 * The program names the number of a doorbell: to each call it is a number that nobody has, and the
 * epoll is the kernel's from then on. A call that fails for another reason takes nothing out.
 */
#include "cache/epoll.h"

#include "native.h"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <pollux/posix.h>

static int add(int ep, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

static struct plx_epoll *epoll_of(int ep)
{
	return plx_file_epoll(plx_table_peek(ep));
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

static long by_dup2(int fd)
{
	return pollux_dup2(2, fd) == fd ? pollux_close(fd) : -2;
}

static long by_close(int fd)
{
	return pollux_close(fd);
}

static long by_close_range(int fd)
{
	return plx_px_close_range((unsigned int)fd, (unsigned int)fd, 0);
}

static long by_dup(int fd)
{
	return pollux_dup(fd);
}

static long by_dup_to(int fd)
{
	return pollux_dup2(fd, 2);
}

static long by_read(int fd)
{
	uint64_t v;

	return pollux_read(fd, &v, sizeof(v));
}

static long by_write(int fd)
{
	uint64_t v = 1;

	return pollux_write(fd, &v, sizeof(v));
}

static long by_fcntl(int fd)
{
	return pollux_fcntl(fd, F_GETFL, 0);
}

static long by_wait(int fd)
{
	struct epoll_event ev;

	return pollux_epoll_wait(fd, &ev, 1, 0);
}

static long by_add(int fd)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	long r = add(ep, fd, EPOLLIN, 1);
	int saved = errno;

	pollux_close(ep);
	errno = saved;
	return r;
}

static long by_poll(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int r = pollux_poll(&p, 1, 0);

	errno = EBADF;
	return r == 1 && p.revents == POLLNVAL ? -1 : -2;
}

static void a_doorbell_that_is_named(void **state)
{
	static const struct {
		long (*call)(int fd);
		long result;
	} ways[] = {{by_dup2, 0},    {by_close, -1}, {by_close_range, 0}, {by_dup, -1},
		    {by_dup_to, -1}, {by_read, -1},  {by_write, -1},	  {by_fcntl, -1},
		    {by_wait, -1},   {by_add, -1},   {by_poll, -1}};

	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		int ep = pollux_epoll_create1(EPOLL_CLOEXEC), efd = pollux_eventfd(0, EFD_NONBLOCK);
		struct plx_epoll *pe = epoll_of(ep);
		struct epoll_event ev[4];
		uint64_t one = 1;
		int number;

		assert_int_equal(add(ep, efd, EPOLLIN, 7), 0);
		/* The first sleep makes it. */
		assert_int_equal(pollux_epoll_wait(ep, ev, 4, 1), 0);
		number = pe->doorbell;
		assert_true(number >= plx_fd_high() && number < 1024);
		assert_wakes(ep, efd, 7);
		assert_int_equal(pollux_write(efd, &one, sizeof(one)), sizeof(one));
		errno = 0;
		assert_int_equal(ways[i].call(number), ways[i].result);
		if (ways[i].result < 0)
			assert_int_equal(errno, EBADF);
		assert_int_equal(pe->doorbell, -1);
		assert_int_equal(fcntl(number, F_GETFD), -1);
		assert_false(plx_fd_ours(number));
		assert_int_equal(pollux_fd_served(ep), 0);
		/* The kernel has what was written. */
		assert_int_equal(pollux_read(efd, &one, sizeof(one)), sizeof(one));
		assert_int_equal(one, 1);
		assert_wakes(ep, efd, 7);
		pollux_close(efd);
		pollux_close(ep);
	}
}

/* What a program registers with the doorbells' own data is told from them: the epoll has none. */
static void data_like_the_doorbells(void **state)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC), efd = pollux_eventfd(0, EFD_NONBLOCK);
	struct epoll_event ev[4];

	(void)state;
	assert_int_equal(add(ep, efd, EPOLLIN, 7), 0);
	assert_int_equal(pollux_epoll_wait(ep, ev, 4, 1), 0);
	assert_int_equal(pollux_close(efd), 0);
	efd = pollux_eventfd(0, EFD_NONBLOCK);
	assert_int_equal(add(ep, efd, EPOLLIN, plx_bell_marker), 0);
	assert_int_equal(epoll_of(ep)->doorbell, -1);
	assert_wakes(ep, efd, plx_bell_marker);
	pollux_close(efd);
	pollux_close(ep);
}

/* Nothing is written back for a dup2 that fails. */
static void a_dup2_that_fails(void **state)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC), efd = pollux_eventfd(0, EFD_NONBLOCK);
	int none = dup(2);
	uint64_t one = 1;
	struct epoll_event ev[4];

	(void)state;
	assert_true(none >= 0);
	assert_int_equal(close(none), 0);
	assert_int_equal(add(ep, efd, EPOLLIN | EPOLLET, 7), 0);
	assert_int_equal(pollux_write(efd, &one, sizeof(one)), sizeof(one));
	assert_int_equal(pollux_epoll_wait(ep, ev, 4, 0), 1);
	assert_int_equal(pollux_dup2(none, ep), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(pollux_dup2(none, efd), -1);
	assert_int_equal(pollux_dup2(ep, -1), -1);
	assert_int_equal(pollux_dup2(efd, -1), -1);
	assert_int_equal(pollux_dup3(efd, ep, O_NONBLOCK), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(pollux_dup2(ep, ep), ep);
	assert_int_equal(pollux_fd_served(ep), 1);
	assert_int_equal(pollux_fd_served(efd), 1);
	assert_int_equal(pollux_epoll_wait(ep, ev, 4, 0), 0);
	pollux_close(efd);
	pollux_close(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_doorbell_that_is_named),
		TEST(data_like_the_doorbells),
		TEST(a_dup2_that_fails),
	};

	reach_all_numbers();
	return RUN(tests);
}
