/* SPDX-License-Identifier: MIT */
/*
 * Eventfds that have been written to often enough to be cached.
 */
#ifndef TESTS_HOT_H
#define TESTS_HOT_H

#include "waiting.h"

#include <fcntl.h>

/* More than make one hot, if they are made at once. */
#define OFTEN 1000

/* Nobody else has written to fd. A wait lets its epoll know of what is cached. */
static inline void heat(int ep, int fd)
{
	struct epoll_event ev;

	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < OFTEN; k++)
			efd_add(fd, 1);
		assert_int_equal(efd_take(fd), OFTEN);
		assert_ok(epoll_wait(ep, &ev, 1, 0));
	}
}

static inline void one_is_hot(int *ep, int *fd)
{
	*ep = ep_new();
	*fd = efd_new(0, EFD_NONBLOCK);
	ep_add(*ep, *fd, EPOLLIN, 1);
	heat(*ep, *fd);
}

/* What the kernel has of the count, as nobody is told who looks by a function of libc's. */
static inline long in_kernel(int fd)
{
	char path[64], text[512] = "";
	const char *at;
	long f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = own_call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC);
	assert_true(f >= 0);
	assert_true(own_call(SYS_read, f, (long)text, sizeof(text) - 1) > 0);
	assert_int_equal(own_call(SYS_close, f, 0, 0), 0);
	at = strstr(text, "eventfd-count:");
	assert_non_null(at);
	return strtol(at + strlen("eventfd-count:"), NULL, 16);
}

#endif
