/* SPDX-License-Identifier: MIT */
/*
 * Memory that another thread provides when it is asked for (userfaultfd): whoever waits for it in a
 * call holds nobody up who has other things to do first.
 */
#include "harness.h"
#include "waiting.h"

#include <spawn.h>
#include <sys/timerfd.h>

/* Where the drop-in has descriptors of its own, if it has any. */
#define HIGH_NUMBER 700
#define HIGHER_NUMBER 1020
/* Enough for an eventfd to be cached, and for a timer to be put off. */
#define WRITES 1000
/* More than one batch of what is to be released. */
#define OBJECTS 40

struct writer {
	struct test_thread t;
	const void *buf;
	int fd;
	ssize_t n;
};

struct looker {
	struct test_thread t;
	struct epoll_event *ev;
	int ep;
	int n;
};

static void *writer_main(void *arg)
{
	struct writer *w = arg;

	w->n = write(w->fd, w->buf, 8);
	return NULL;
}

static void forks(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	child_passes(pid);
}

static void starts_a_program(void)
{
	char *const argv[] = {"true", NULL};
	pid_t pid;

	assert_int_equal(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ), 0);
	child_passes(pid);
}

static void takes_high_numbers(void)
{
	int null = (int)assert_ok(open("/dev/null", O_RDONLY | O_CLOEXEC));

	for (int fd = HIGH_NUMBER; fd < HIGHER_NUMBER; fd++) {
		if (dup2(null, fd) == -1) {
			assert_int_equal(errno, EBADF);
			break;
		}
		close(fd);
	}
	close(null);
}

static void beside_a_write(void (*does)(void))
{
	struct writer w = {.fd = efd_new(0, EFD_NONBLOCK)};
	struct trap trap = {0};

	if (!trap_new(&trap, 0)) {
		close(w.fd);
		SKIP("no userfaultfd for this user");
	}
	w.buf = trap.ev;
	thread_start(&w.t, writer_main, &w);
	trap_wait(&trap);
	does();
	assert_false(thread_done(&w.t));
	trap_open(&trap);
	assert_true(thread_join(&w.t, SOON_MS));
	/* The page is one of zeroes. */
	assert_int_equal(w.n, 8);
	assert_errno(read(w.fd, &(uint64_t){0}, 8), EAGAIN);
	trap_free(&trap);
	close(w.fd);
}

static void MEMORY_fork_beside_a_write_that_waits_for_it(void **state)
{
	(void)state;
	beside_a_write(forks);
}

static void MEMORY_program_started_beside_a_write_that_waits_for_it(void **state)
{
	(void)state;
	beside_a_write(starts_a_program);
}

static void MEMORY_numbers_beside_a_write_that_waits_for_it(void **state)
{
	(void)state;
	beside_a_write(takes_high_numbers);
}

/* An epoll that has slept, with an eventfd that has been written to for long, and a timer. */
static int busy_epoll(int *efd)
{
	struct epoll_event ev;
	int ep = ep_new();

	*efd = efd_new(0, EFD_NONBLOCK);
	ep_add(ep, *efd, EPOLLIN, 1);
	assert_int_equal(epoll_wait(ep, &ev, 1, 1), 0);
	for (int i = 0; i < WRITES; i++) {
		efd_add(*efd, 1);
		assert_true(ep_one(ep, EPOLLIN, 1));
		assert_int_equal(efd_take(*efd), 1);
	}
	assert_int_equal(epoll_wait(ep, &ev, 1, 1), 0);
	return ep;
}

static void *looker_main(void *arg)
{
	struct looker *l = arg;

	l->n = epoll_wait(l->ep, l->ev, 1, 0);
	return NULL;
}

/* does: while the kernel waits for memory to store an event of another epoll in. */
static void beside_a_look(void (*does)(void))
{
	struct looker l = {.ep = ep_new()};
	int efd, busy = busy_epoll(&efd), ready = efd_new(1, 0);
	struct trap trap = {0};

	ep_add(l.ep, ready, EPOLLIN, 7);
	if (trap_new(&trap, 0)) {
		l.ev = trap.ev;
		thread_start(&l.t, looker_main, &l);
		trap_wait(&trap);
		does();
		assert_false(thread_done(&l.t));
		trap_open(&trap);
		assert_true(thread_join(&l.t, SOON_MS));
		assert_int_equal(l.n, 1);
		assert_int_equal(l.ev[0].data.u64, 7);
		efd_add(efd, 1);
		assert_true(ep_one(busy, EPOLLIN, 1));
	}
	close(ready);
	close(efd);
	close(busy);
	close(l.ep);
	if (!trap.base)
		SKIP("no userfaultfd for this user");
	trap_free(&trap);
}

static void MEMORY_fork_beside_a_look_that_waits_for_it(void **state)
{
	(void)state;
	beside_a_look(forks);
}

static void MEMORY_program_started_beside_a_look_that_waits_for_it(void **state)
{
	(void)state;
	beside_a_look(starts_a_program);
}

static void MEMORY_numbers_beside_a_look_that_waits_for_it(void **state)
{
	(void)state;
	beside_a_look(takes_high_numbers);
}

/* A timer is set to later and later times, in an epoll that has had none. */
static void sets_a_timer(void)
{
	int ep = ep_new();
	int tfd = (int)assert_ok(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));

	ep_add(ep, tfd, EPOLLIN, 1);
	for (int i = 0; i < WRITES; i++) {
		struct itimerspec in = {.it_value.tv_sec = 1000 + i};

		assert_ok(timerfd_settime(tfd, 0, &in, NULL));
	}
	close(tfd);
	close(ep);
}

static void MEMORY_timer_beside_a_look_that_waits_for_it(void **state)
{
	(void)state;
	beside_a_look(sets_a_timer);
}

static void opens_and_closes(void)
{
	for (int i = 0; i < OBJECTS; i++) {
		int efd, ep = busy_epoll(&efd);

		close(efd);
		close(ep);
	}
}

static void MEMORY_closes_beside_a_look_that_waits_for_it(void **state)
{
	(void)state;
	beside_a_look(opens_and_closes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(MEMORY_fork_beside_a_write_that_waits_for_it),
		cmocka_unit_test(MEMORY_program_started_beside_a_write_that_waits_for_it),
		cmocka_unit_test(MEMORY_numbers_beside_a_write_that_waits_for_it),
		cmocka_unit_test(MEMORY_fork_beside_a_look_that_waits_for_it),
		cmocka_unit_test(MEMORY_program_started_beside_a_look_that_waits_for_it),
		cmocka_unit_test(MEMORY_numbers_beside_a_look_that_waits_for_it),
		cmocka_unit_test(MEMORY_timer_beside_a_look_that_waits_for_it),
		cmocka_unit_test(MEMORY_closes_beside_a_look_that_waits_for_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
