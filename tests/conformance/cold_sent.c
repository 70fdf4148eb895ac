/* SPDX-License-Identifier: MIT */
/*
 * A descriptor that is sent while nothing has been adopted yet: its receiver, in the same process,
 * uses it before the sender has returned from its call.
 */
#include "waiting.h"

#include <sched.h>

static int fd, sockets[2];
static int returned, over;

static void *sends(void *unused)
{
	const struct sched_param none = {.sched_priority = 0};
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
			      .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS}};
	char byte = 1;
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};

	(void)unused;
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	/* Whom it wakes goes first. */
	pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
	sendmsg(sockets[0], &m, 0);
	__atomic_store_n(&returned, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void *busy(void *unused)
{
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
		;
	return unused;
}

static int receive(void)
{
	char room[CMSG_SPACE(sizeof(int))], byte;
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = room,
			   .msg_controllen = sizeof(room)};
	int got;

	assert_int_equal(assert_ok(recvmsg(sockets[1], &m, 0)), 1);
	assert_non_null(CMSG_FIRSTHDR(&m));
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(got));
	return got;
}

static void ESCAPE_a_received_number_shows_what_is_written(void **state)
{
	struct test_thread sender, other[2];
	struct epoll_event ev;
	int ep = ep_new(), got;
	cpu_set_t one, all;

	(void)state;
	assert_ok(sched_getaffinity(0, sizeof(all), &all));
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	assert_ok(sched_setaffinity(0, sizeof(one), &one));
	assert_ok(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets));
	fd = efd_new(0, EFD_NONBLOCK);
	ep_add(ep, fd, EPOLLIN, 1);
	thread_start(&sender, sends, NULL);
	got = receive();
	/* While these run the sender does not. */
	thread_start(&other[0], busy, NULL);
	thread_start(&other[1], busy, NULL);
	/* Until it is hot, and longer; a wait without time prepares as well. */
	for (int i = 0; i < 300; i++) {
		efd_add(fd, 1);
		assert_int_equal(epoll_wait(ep, &ev, 1, i % 50 ? 0 : SOON_MS), 1);
	}
	assert_int_equal(efd_take(got), 300);
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	assert_true(thread_join(&sender, SOON_MS));
	assert_true(__atomic_load_n(&returned, __ATOMIC_ACQUIRE));
	assert_true(thread_join(&other[0], SOON_MS));
	assert_true(thread_join(&other[1], SOON_MS));
	assert_ok(sched_setaffinity(0, sizeof(all), &all));
	close(got);
	close(fd);
	close(ep);
	close(sockets[0]);
	close(sockets[1]);
}

int main(void)
{
	const struct CMUnitTest cold_sent[] = {
		cmocka_unit_test(ESCAPE_a_received_number_shows_what_is_written),
	};

	return run_group(cold_sent);
}
