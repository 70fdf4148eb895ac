/* SPDX-License-Identifier: MIT */
/*
 * A thread that is cancelled in a wait of the shared library, which does not load libgcc_s itself,
 * runs its handlers, and leaves no lock behind.
 */
#include "unit.h"

#include <pollux/epoll.h>
#include <pollux/posix.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int ep, cleaned;
static sem_t begun;

static void clean(void *arg)
{
	cleaned += arg == &cleaned;
}

static void *waits(void *arg)
{
	struct epoll_event ev;

	pthread_cleanup_push(clean, &cleaned);
	sem_post(&begun);
	while (pollux_epoll_wait(ep, &ev, 1, -1) != 1)
		;
	pthread_cleanup_pop(0);
	return arg;
}

static void its_handlers_run_and_the_epoll_works(void **state)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int fd = pollux_eventfd(0, EFD_NONBLOCK);
	pthread_t t;
	uint64_t one = 1;
	void *result;

	(void)state;
	ep = pollux_epoll_create1(0);
	assert_int_equal(pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
	assert_int_equal(sem_init(&begun, 0, 0), 0);
	assert_int_equal(pthread_create(&t, NULL, waits, NULL), 0);
	assert_int_equal(sem_wait(&begun), 0);
	assert_int_equal(pthread_cancel(t), 0);
	assert_int_equal(pthread_join(t, &result), 0);
	assert_ptr_equal(result, PTHREAD_CANCELED);
	assert_int_equal(cleaned, 1);
	assert_int_equal(pollux_epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev), 0);
	assert_int_equal(pollux_write(fd, &one, sizeof(one)), sizeof(one));
	assert_int_equal(pollux_epoll_wait(ep, &ev, 1, -1), 1);
	pollux_close(fd);
	pollux_close(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(its_handlers_run_and_the_epoll_works),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
