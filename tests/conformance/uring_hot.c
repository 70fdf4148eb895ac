/* SPDX-License-Identifier: MIT */
/*
 * Rings of io_uring that are there before anything is cached. What a ring has registered may
 * become hot; what a ring has been asked past us, or of another kind, is seen by the kernel.
 */
#include "hot.h"
#include "uring.h"

#include <poll.h>

static const struct epoll_event level = {.events = EPOLLIN, .data.u64 = 7};

/* The counts are the process's, if it caches anything. */
static void assert_cached(int fd, bool is)
{
	efd_add(fd, 5);
	assert_int_equal(in_kernel(fd), under_pollux() && is ? 0 : 5);
	assert_int_equal(efd_take(fd), 5);
}

static void RING_registers_what_becomes_hot(void **state)
{
	URING(u, 0);
	struct subject pipe = subject_new(KIND_PIPE), socket = subject_new(KIND_SOCKET);
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK);
	struct epoll_event ev[] = {level, {.events = EPOLLIN, .data.u64 = 8}, level};

	(void)state;
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, pipe.fd, &ev[1]), 0);
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, fd, &ev[0]), 0);
	heat(ep, fd);
	assert_cached(fd, true);
	for (int i = 0; i < 100; i++) {
		efd_add(fd, 1);
		assert_true(ep_one(ep, EPOLLIN, 7));
		subject_fill(&pipe);
		assert_true(ep_set(ep, 2, 7, 8));
		assert_int_equal(efd_take(fd), 1);
		assert_true(ep_one(ep, EPOLLIN, 8));
		subject_drain(&pipe);
		assert_int_equal(ep_count(ep), 0);
	}
	/* As loops do it all the time. */
	ev[2].data.u64 = 9;
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, socket.fd, &ev[2]), 0);
	ev[0].data.u64 = 10;
	assert_int_equal(one(&u, ep, EPOLL_CTL_MOD, fd, &ev[0]), 0);
	subject_fill(&socket);
	assert_true(ep_one(ep, EPOLLIN, 9));
	efd_add(fd, 1);
	assert_true(ep_set(ep, 2, 9, 10));
	assert_int_equal(efd_take(fd), 1);
	assert_cached(fd, true);
	assert_int_equal(one(&u, ep, EPOLL_CTL_DEL, fd, NULL), 0);
	efd_add(fd, 1);
	assert_true(ep_one(ep, EPOLLIN, 9));
	subject_close(&socket);
	subject_close(&pipe);
	close(fd);
	close(ep);
	uring_closed(&u);
}

/* The ring, which it is readable by, has an event in time. */
static bool ends_in_time(struct uring *u)
{
	struct pollfd p = {.fd = u->fd, .events = POLLIN};

	return poll(&p, 1, 5000) == 1;
}

/* Written to often, fd is told to who waits for it by the ring. */
static int told(struct uring *u, int ep, int fd)
{
	struct io_uring_sqe *s;
	int result[1] = {1};

	s = request(u, IORING_OP_POLL_ADD, 0);
	s->fd = fd;
	s->poll32_events = POLLIN;
	hand_over(u);
	/* Not by a wait for fd, which has nothing. */
	heat(ep, efd_new(0, EFD_NONBLOCK));
	for (int i = 0; i < OFTEN; i++)
		efd_add(fd, 0);
	efd_add(fd, 3);
	if (!ends_in_time(u))
		return 2;
	results(u, result);
	return !(result[0] == POLLIN && efd_take(fd) == 3);
}

static int polls(void *unused)
{
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK);
	struct epoll_event ev = level;
	struct uring u;

	(void)unused;
	if (!uring_made(&u, 0))
		return EXIT_SKIPPED;
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, fd, &ev), 0);
	return told(&u, ep, fd);
}

/* The ring is used so before there is anything to cache. */
static int polls_past_libc(void *unused)
{
	struct epoll_event ev = level;
	int ep, fd, result[1];
	struct uring u;

	(void)unused;
	if (!uring_made(&u, 0))
		return EXIT_SKIPPED;
	u.own = true;
	request(&u, IORING_OP_NOP, 0);
	submit(&u, result);
	ep = ep_new();
	fd = efd_new(0, EFD_NONBLOCK);
	assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
	return told(&u, ep, fd);
}

/* In the place, and with the number, of one that made registrations. */
static int polls_by_another(void *unused)
{
	struct epoll_event ev = level;
	struct uring first, u;
	int ep, fd;

	(void)unused;
	if (!uring_made(&first, 0))
		return EXIT_SKIPPED;
	uring_closed(&first);
	assert_true(uring_made_by(&u, 0, true));
	assert_int_equal(u.fd, first.fd);
	ep = ep_new();
	fd = efd_new(0, EFD_NONBLOCK);
	assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
	return told(&u, ep, fd);
}

static int polls_in_a_child(void *ring)
{
	return told(ring, ep_new(), efd_new(0, EFD_NONBLOCK));
}

/* Each in a child, since it is for good. */
static void assert_told(int (*fn)(void *), struct uring *u)
{
	assert_child(child_status(fn, u), "no io_uring for this user");
}

static void RING_is_asked_for_another_thing(void **state)
{
	(void)state;
	assert_told(polls, NULL);
}

static void RING_is_asked_past_libc(void **state)
{
	(void)state;
	assert_told(polls_past_libc, NULL);
}

static void RING_past_libc_in_place_of_another(void **state)
{
	(void)state;
	assert_told(polls_by_another, NULL);
}

static void RING_of_the_parent(void **state)
{
	URING(u, 0);

	(void)state;
	assert_told(polls_in_a_child, &u);
	uring_closed(&u);
}

int main(void)
{
	const struct CMUnitTest uring_hot[] = {
		/* First: from a process that has made nothing which may be cached. */
		cmocka_unit_test(RING_is_asked_past_libc),
		cmocka_unit_test(RING_past_libc_in_place_of_another),
		cmocka_unit_test(RING_registers_what_becomes_hot),
		cmocka_unit_test(RING_is_asked_for_another_thing),
		cmocka_unit_test(RING_of_the_parent),
	};

	return run_group(uring_hot);
}
