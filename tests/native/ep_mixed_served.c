/* SPDX-License-Identifier: MIT */
/* A descriptor of the POSIX layer in an epoll of the native API. */
#include "native.h"

#include <sys/eventfd.h>

#include <pollux/posix.h>

/* What is served in the process under a number is the kernel's from then on. */
static void a_descriptor_that_is_served_joins_as_the_kernels(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 's'};
	struct pollux_ep *ep = ep_new();
	int fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	uint64_t v = 1;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(pollux_fd_served(fd), 1);
	assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd, &ev), 0);
	assert_int_equal(pollux_fd_served(fd), 0);
	assert_none(ep);
	assert_int_equal(pollux_write(fd, &v, sizeof(v)), sizeof(v));
	assert_order(ep, 8, "s");
	assert_int_equal(pollux_read(fd, &v, sizeof(v)), sizeof(v));
	assert_none(ep);
	assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_DEL, fd, NULL), 0);
	pollux_close(fd);
	ep_put(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_descriptor_that_is_served_joins_as_the_kernels),
	};

	return RUN(tests);
}
