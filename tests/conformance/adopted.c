/* SPDX-License-Identifier: MIT */
/*
 * An eventfd that has been written to often enough to be cached by now: the calls on it, and what
 * leads out of the cache.
 */
#include "hot.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* The first page is nobody's. */
static void *volatile nowhere;

/* fd holds 5, and if it is cached the kernel does not know of them. */
static void add_five(int fd)
{
	efd_add(fd, 5);
	assert_int_equal(in_kernel(fd), under_pollux() ? 0 : 5);
}

static void EFD_04_one_that_is_hot(void **state)
{
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t v;

	(void)state;
	ep_add(ep, fd, EPOLLIN, 7);
	assert_errno(write(fd, nowhere, sizeof(v)), EFAULT);
	heat(ep, fd);
	assert_int_equal(ep_count(ep), 0);
	for (int i = 0; i < 3; i++) {
		add_five(fd);
		assert_true(ep_one(ep, EPOLLIN, 7));
		assert_int_equal(poll(&p, 1, 0), 1);
		assert_errno(write(fd, nowhere, sizeof(v)), EFAULT);
		assert_errno(write(fd, &v, 7), EINVAL);
		assert_int_equal(efd_take(fd), 5);
		assert_int_equal(ep_count(ep), 0);
		assert_int_equal(poll(&p, 1, 0), 0);
		assert_errno(read(fd, &v, sizeof(v)), EAGAIN);
	}
	close(fd);
	close(ep);
}

static void EFD_12_edges_of_one_that_is_hot(void **state)
{
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	ep_add(ep, fd, EPOLLIN | EPOLLET, 7);
	heat(ep, fd);
	(void)ep_count(ep);
	for (int i = 0; i < 3; i++) {
		add_five(fd);
		assert_true(ep_one(ep, EPOLLIN, 7));
		assert_int_equal(ep_count(ep), 0);
		efd_add(fd, 1);
		assert_true(ep_one(ep, EPOLLIN, 7));
		assert_int_equal(efd_take(fd), 6);
		assert_int_equal(ep_count(ep), 0);
	}
	close(fd);
	close(ep);
}

/* It is registered when it is hot, or not at all. */
static void EFD_12_hot_without_an_epoll(void **state)
{
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK);
	struct pollfd p = {.fd = fd, .events = POLLIN};

	(void)state;
	heat(ep, fd);
	add_five(fd);
	assert_int_equal(poll(&p, 1, 0), 1);
	ep_add(ep, fd, EPOLLIN, 7);
	assert_true(ep_one(ep, EPOLLIN, 7));
	assert_int_equal(efd_take(fd), 5);
	assert_int_equal(ep_count(ep), 0);
	add_five(fd);
	assert_true(ep_one(ep, EPOLLIN, 7));
	close(fd);
	close(ep);
}

static void EFD_13_sleepers_of_one_that_becomes_hot(void **state)
{
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK);
	struct waiter *w;

	(void)state;
	ep_add(ep, fd, EPOLLIN, 7);
	w = waiter_new(ep, 8);
	heat(ep, fd);
	efd_add(fd, 1);
	waiter_got(w, EPOLLIN, 7);
	assert_int_equal(efd_take(fd), 1);
	for (int i = 0; i < 3; i++) {
		w = waiter_new(ep, 8);
		efd_add(fd, 1);
		waiter_got(w, EPOLLIN, 7);
		assert_int_equal(efd_take(fd), 1);
	}
	close(fd);
	close(ep);
}

enum way { FORK, DUP, VECTOR, BLOCKS, OTHER_EPOLL, ONCE, OWNER, FDINFO, WAYS };

/* It is out of the cache then. */
static void go(enum way way, int ep, int fd)
{
	uint64_t v = 1;
	struct iovec iov = {&v, sizeof(v)};
	char path[64];
	FILE *f;
	int other;
	pid_t pid;

	switch (way) {
	case FORK:
		pid = assert_ok(fork());
		if (pid == 0)
			_exit(efd_take(fd) == 5 && write(fd, &v, sizeof(v)) == sizeof(v) ? 0 : 1);
		assert_int_equal(child_end(pid), 0);
		efd_add(fd, 4);
		break;
	case DUP:
		other = assert_ok(dup(fd));
		assert_int_equal(in_kernel(other), 5);
		close(other);
		break;
	case VECTOR:
		assert_int_equal(readv(fd, &iov, 1), sizeof(v));
		assert_int_equal(v, 5);
		assert_int_equal(writev(fd, &iov, 1), sizeof(v));
		break;
	case BLOCKS:
		assert_ok(fcntl(fd, F_SETFL, 0));
		break;
	case OTHER_EPOLL:
		other = ep_new();
		ep_add(other, fd, EPOLLIN, 8);
		assert_true(ep_one(other, EPOLLIN, 8));
		close(other);
		break;
	case ONCE:
		ep_mod(ep, fd, EPOLLIN | EPOLLONESHOT, 7);
		break;
	case OWNER:
		assert_ok(fcntl(fd, F_SETOWN, getpid()));
		break;
	default:
		snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
		f = fopen(path, "re");
		assert_non_null(f);
		fclose(f);
	}
}

static void EFD_19_out_of_the_cache(void **state)
{
	(void)state;
	for (enum way way = 0; way < WAYS; way++) {
		int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK);

		ep_add(ep, fd, EPOLLIN, 7);
		heat(ep, fd);
		add_five(fd);
		go(way, ep, fd);
		assert_int_equal(in_kernel(fd), 5);
		assert_true(ep_one(ep, EPOLLIN, 7));
		assert_int_equal(efd_take(fd), 5);
		assert_int_equal(ep_count(ep), 0);
		close(fd);
		close(ep);
	}
}

/* --- an epoll that is the kernel's, and has no number that we know ------------------------------
 */

static int kept_by_dup2(int ep)
{
	return assert_ok(dup2(ep, 200));
}

static int kept_by_message(int ep)
{
	char byte = 0;
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS,
			      .cmsg_len = CMSG_LEN(sizeof(ep))}};
	struct iovec part = {&byte, 1};
	struct msghdr m = {.msg_iov = &part,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};
	int pair[2];

	memcpy(CMSG_DATA(&control.head), &ep, sizeof(ep));
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	assert_int_equal(sendmsg(pair[0], &m, 0), 1);
	assert_int_equal(recvmsg(pair[1], &m, 0), 1);
	memcpy(&ep, CMSG_DATA(&control.head), sizeof(ep));
	assert_ok(close(pair[0]));
	assert_ok(close(pair[1]));
	return ep;
}

static int kept_by_epoll(int ep)
{
	int outer = ep_new();

	/* It goes with the last number. */
	ep_add(outer, kept_by_dup2(ep), EPOLLIN, 7);
	return outer;
}

static void EP_FD_11_by_other_numbers(void **state)
{
	int (*const ways[])(int ep) = {kept_by_dup2, kept_by_message, kept_by_epoll};
	int hot_ep = ep_new(), hot = efd_new(0, EFD_NONBLOCK);

	(void)state;
	ep_add(hot_ep, hot, EPOLLIN, 7);
	heat(hot_ep, hot);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK), kept;
		struct epoll_event ev;

		ep_add(ep, fd, EPOLLIN, 7);
		kept = ways[i](ep);
		assert_ok(close(ep));
		for (int k = 0; k < OFTEN; k++)
			efd_add(fd, 1);
		assert_int_equal(epoll_wait(kept, &ev, 1, 0), 1);
		assert_int_equal(ev.data.u64, 7);
		assert_int_equal(efd_take(fd), OFTEN);
		assert_int_equal(epoll_wait(kept, &ev, 1, 0), 0);
		efd_add(fd, 1);
		assert_int_equal(epoll_wait(kept, &ev, 1, 0), 1);
		assert_ok(close(kept));
		assert_ok(close(fd));
	}
	assert_ok(close(200));
	assert_ok(close(hot));
	assert_ok(close(hot_ep));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(EFD_04_one_that_is_hot),
		cmocka_unit_test(EFD_12_edges_of_one_that_is_hot),
		cmocka_unit_test(EFD_12_hot_without_an_epoll),
		cmocka_unit_test(EFD_13_sleepers_of_one_that_becomes_hot),
		cmocka_unit_test(EFD_19_out_of_the_cache),
		cmocka_unit_test(EP_FD_11_by_other_numbers),
	};

	return run_group(tests);
}
