/* SPDX-License-Identifier: MIT */
/*
 * An eventfd that has left user space, and that an epoll watches beside others which have not:
 * every wait reports it, however many waits before have found the others alone (EP-RDY-01).
 */
#include "waiting.h"

#include <sys/socket.h>

enum { OTHER = 1, LEFT };

/* --- ways out --------------------------------------------------------------------------- */

static void by_second_epoll(int efd)
{
	struct epoll_event ev = {.events = EPOLLIN};

	assert_ok(epoll_ctl(assert_ok(epoll_create1(0)), EPOLL_CTL_ADD, efd, &ev));
}

static void by_dup(int efd)
{
	assert_ok(dup(efd));
}

static void by_owner(int efd)
{
	assert_ok(fcntl(efd, F_SETOWN, getpid()));
}

static void by_message(int efd)
{
	char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {&byte, 1};
	struct msghdr m = {.msg_iov = &part,
			   .msg_iovlen = 1,
			   .msg_control = room,
			   .msg_controllen = sizeof(room)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int pair[2];

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(efd));
	memcpy(CMSG_DATA(c), &efd, sizeof(efd));
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	assert_int_equal(sendmsg(pair[0], &m, 0), 1);
}

/* ---------------------------------------------------------------------------------------- */

static uint64_t reported(int ep)
{
	struct epoll_event ev[4];
	int n = assert_ok(epoll_wait(ep, ev, 4, 0));
	uint64_t all = 0;

	for (int i = 0; i < n; i++)
		all |= 1ull << ev[i].data.u64;
	return all;
}

static void watched(int ep, int efd, uint64_t data)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = data};

	assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, efd, &ev));
}

/* before: the waits of the time in which nothing has left yet. */
static void left(void (*leave)(int efd), int flags, int before, bool close_it)
{
	int ep = assert_ok(epoll_create1(0));
	int other = assert_ok(eventfd(0, EFD_NONBLOCK)), efd = assert_ok(eventfd(0, flags));

	/* Not by its initial value, which the kernel has. */
	assert_ok(eventfd_write(other, 1));
	watched(ep, other, OTHER);
	watched(ep, efd, LEFT);
	for (int i = 0; i < before; i++)
		assert_int_equal(reported(ep), 1 << OTHER);
	leave(efd);
	if (close_it) {
		int again = assert_ok(dup(efd));

		assert_ok(close(efd));
		efd = again;
	}
	for (int i = 0; i < 100; i++)
		assert_int_equal(reported(ep), 1 << OTHER);
	for (int i = 0; i < 3; i++) {
		assert_ok(eventfd_write(efd, 1));
		assert_int_equal(reported(ep), 1 << OTHER | 1 << LEFT);
		assert_ok(eventfd_read(efd, &(eventfd_t){0}));
		assert_int_equal(reported(ep), 1 << OTHER);
	}
	assert_ok(eventfd_write(efd, 1));
	assert_int_equal(reported(ep), 1 << OTHER | 1 << LEFT);
	assert_ok(close(efd));
	assert_ok(close(other));
	assert_ok(close(ep));
}

static void each_way(void (*leave)(int efd))
{
	for (int before = 0; before <= 100; before += 100) {
		left(leave, EFD_NONBLOCK, before, false);
		left(leave, EFD_NONBLOCK, before, true);
		left(leave, 0, before, false);
		left(leave, 0, before, true);
	}
}

static void EP_RDY_01_reported_after_a_second_epoll(void **state)
{
	(void)state;
	each_way(by_second_epoll);
}

static void EP_RDY_01_reported_after_a_dup(void **state)
{
	(void)state;
	each_way(by_dup);
}

static void EP_RDY_01_reported_after_an_owner(void **state)
{
	(void)state;
	each_way(by_owner);
}

static void EP_RDY_01_reported_after_a_message(void **state)
{
	(void)state;
	each_way(by_message);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(EP_RDY_01_reported_after_a_second_epoll),
		cmocka_unit_test(EP_RDY_01_reported_after_a_dup),
		cmocka_unit_test(EP_RDY_01_reported_after_an_owner),
		cmocka_unit_test(EP_RDY_01_reported_after_a_message),
	};

	return run_group(tests);
}
