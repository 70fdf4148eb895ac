/* SPDX-License-Identifier: MIT */
/*
 * An eventfd that blocks is made not to block, and is cached, beside a call that is about to use
 * it: the call finds the count.
 */
#include "caller.h"

#include <fcntl.h>
#include <poll.h>

static const uint64_t one = 1;

struct user {
	struct gate gate;
	int ep, efd;
	bool right;
};

static void polls(struct thread *t)
{
	struct user *u = t->arg;
	struct pollfd p = {.fd = u->efd, .events = POLLIN};

	gate_arm(&u->gate, "eventfd_touch");
	u->right = pollux_poll(&p, 1, 1000) == 1;
}

static void reads(struct thread *t)
{
	struct user *u = t->arg;
	uint64_t value = 0;

	gate_arm(&u->gate, "eventfd_touch");
	u->right = pollux_read(u->efd, &value, sizeof(value)) == sizeof(value) && value == 1;
}

static void writes(struct thread *t)
{
	struct user *u = t->arg;
	struct epoll_event ev;
	uint64_t value = 0;

	gate_arm(&u->gate, "eventfd_touch");
	u->right = pollux_write(u->efd, &one, sizeof(one)) == sizeof(one) &&
		   pollux_read(u->efd, &value, sizeof(value)) == sizeof(value) && value == 2 &&
		   pollux_epoll_wait(u->ep, &ev, 1, 0) == 0;
}

static void adds(struct thread *t)
{
	struct user *u = t->arg;
	struct epoll_event ev = {.events = EPOLLIN};

	gate_arm(&u->gate, "eventfd_touch");
	u->right = pollux_epoll_ctl(u->ep, EPOLL_CTL_ADD, u->efd, &ev) == 0 &&
		   pollux_epoll_wait(u->ep, &ev, 1, 1000) == 1;
}

static void run(void (*use)(struct thread *))
{
	struct user u = {.ep = pollux_epoll_create1(EPOLL_CLOEXEC),
			 .efd = pollux_eventfd(0, EFD_CLOEXEC)};
	struct thread t;

#if defined(__SANITIZE_THREAD__)
	print_message("skipped: one that blocks is the kernel's under ThreadSanitizer\n");
	skip();
#endif
	torture_begin();
	points_delay(false);
	thread_start(&t, use, &u);
	assert_true(gate_reached(&u.gate));
	assert_int_equal(pollux_fcntl(u.efd, F_SETFL, O_RDWR | O_NONBLOCK), 0);
	assert_int_equal(pollux_write(u.efd, &one, sizeof(one)), sizeof(one));
	gate_open(&u.gate);
	torture_end(&t, 1);
	assert_true(u.right);
	assert_int_equal(pollux_fd_served(u.efd), 1);
	pollux_close(u.efd);
	pollux_close(u.ep);
}

static void a_poll(void **state)
{
	(void)state;
	run(polls);
}

static void a_read(void **state)
{
	(void)state;
	run(reads);
}

static void a_write(void **state)
{
	(void)state;
	run(writes);
}

static void an_add(void **state)
{
	(void)state;
	run(adds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_poll),
		TEST(a_read),
		TEST(a_write),
		TEST(an_add),
	};

	return RUN(tests);
}
