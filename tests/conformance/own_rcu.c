/* SPDX-License-Identifier: MIT */
/*
 * A program that uses liburcu's bp flavour itself may close, and fork, within its own sections, and
 * hold liburcu's locks over a fork. No rule says so.
 */
#include "waiting.h"

#include <urcu/urcu-bp.h>

#define ROUNDS 400

static uint32_t over;

static void *reader_and_writer(void *arg)
{
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		urcu_bp_read_lock();
		usleep(50);
		urcu_bp_read_unlock();
		urcu_bp_synchronize_rcu();
	}
	return arg;
}

static int closes_in_sections(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int ep = epoll_create1(0);
	pthread_t t;

	(void)arg;
	alarm(SOON_MS / 1000);
	if (pthread_create(&t, NULL, reader_and_writer, NULL))
		return 1;
	for (int i = 0; i < ROUNDS; i++) {
		int fd;

		urcu_bp_read_lock();
		fd = eventfd(1, EFD_NONBLOCK);
		if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) || epoll_wait(ep, &ev, 1, 0) != 1 ||
		    close(fd))
			return 2;
		urcu_bp_read_unlock();
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	pthread_join(t, NULL);
	return 0;
}

static void OWN_RCU_closes_in_sections(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP("the child of several threads may find a sanitizer's own locks taken");
	assert_int_equal(child_status(closes_in_sections, NULL), 0);
}

static int forks_with_its_locks(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int ep = epoll_create1(0);

	(void)arg;
	alarm(SOON_MS / 1000);
	if (pthread_atfork(urcu_bp_before_fork, urcu_bp_after_fork_parent,
			   urcu_bp_after_fork_child))
		return 1;
	for (int i = 0; i < 20; i++) {
		int fd = eventfd(1, EFD_NONBLOCK), status;
		pid_t pid;

		if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev))
			return 2;
		pid = fork();
		if (pid == 0) {
			urcu_bp_synchronize_rcu();
			_exit(epoll_wait(ep, &ev, 1, 0) != 1);
		}
		if (waitpid(pid, &status, 0) != pid || status)
			return 3;
		if (close(fd))
			return 4;
	}
	return 0;
}

static void OWN_RCU_forks_with_its_locks(void **state)
{
	(void)state;
	assert_int_equal(child_status(forks_with_its_locks, NULL), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(OWN_RCU_closes_in_sections),
		cmocka_unit_test(OWN_RCU_forks_with_its_locks),
	};

	return run_group(tests);
}
