/* SPDX-License-Identifier: MIT */
/*
 * The first in-process item comes to an epoll while threads wait on it: the doorbell that is made
 * for it is nobody's event, whoever takes it out of the kernel. Nor does whoever takes it later
 * keep it from those that it was rung for.
 */
#include "caller.h"

/* One that only looks stands before the kernel; another is about to sleep, and is rung for. */
static void a_look_that_finds_the_bell(void **state)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC), efd = pollux_eventfd(0, EFD_NONBLOCK);
	struct caller looks = {.point = "wait_look", .ep = ep, .max = 4};
	struct caller sleeps = {
		.point = "wait_before_kernel", .ep = ep, .max = 4, .timeout = SOON_MS};
	const uint64_t one = 1;

	(void)state;
	points_delay(false);
	caller_start(&looks);
	add(ep, efd, 7);
	caller_start(&sleeps);
	assert_int_equal(pollux_write(efd, &one, sizeof(one)), sizeof(one));
	caller_got(&looks, 7);
	caller_got(&sleeps, 7);
	pollux_close(ep);
	pollux_close(efd);
}

/*
 * One that has a single place left stands before the kernel, with what it has from our side;
 * another is about to sleep, and is rung for. The first takes nothing but the ring.
 */
static void a_last_place_for_the_bell(void **state)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	int first = pollux_eventfd(0, EFD_NONBLOCK), second = pollux_eventfd(0, EFD_NONBLOCK);
	struct caller looks = {.point = "wait_before_kernel", .ep = ep, .max = 2};
	struct caller sleeps = {.point = "wait_before_sleep", .ep = ep, .max = 4, .timeout = -1};
	const uint64_t one = 1;
	struct epoll_event ev;
	int p[2];

	(void)state;
	points_delay(false);
	assert_int_equal(pipe(p), 0);
	add(ep, p[0], 1);
	add_as(ep, first, EPOLLIN | EPOLLET, 2);
	add_as(ep, second, EPOLLIN | EPOLLET, 3);
	/* The kernel fills the whole of a wait, and so comes second in the next. */
	assert_int_equal(write(p[1], "", 1), 1);
	assert_int_equal(pollux_epoll_wait(ep, &ev, 1, 0), 1);
	assert_int_equal(read(p[0], &ev, 1), 1);
	assert_int_equal(pollux_write(first, &one, sizeof(one)), sizeof(one));
	caller_start(&looks);
	caller_start(&sleeps);
	assert_int_equal(pollux_write(second, &one, sizeof(one)), sizeof(one));
	caller_got(&looks, 2);
	gate_open(&sleeps.g);
	assert_true(await(thread_done(&sleeps.t)));
	caller_got(&sleeps, 3);
	pollux_close(ep);
	pollux_close(first);
	pollux_close(second);
	close(p[0]);
	close(p[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_look_that_finds_the_bell),
		TEST(a_last_place_for_the_bell),
	};

	return RUN(tests);
}
