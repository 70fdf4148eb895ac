/* SPDX-License-Identifier: MIT */
/*
 * Memory that another thread provides when it is asked for (userfaultfd): whoever waits for it in a
 * call holds nobody up who has other things to do first.
 */
#include "harness.h"
#include "waiting.h"

#include <spawn.h>

/* Where the drop-in has descriptors of its own, if it has any. */
#define HIGH_NUMBER 4000

struct writer {
	struct test_thread t;
	const void *buf;
	int fd;
	ssize_t n;
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
	int status;

	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void starts_a_program(void)
{
	char *const argv[] = {"true", NULL};
	int status;
	pid_t pid;

	assert_int_equal(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void takes_a_high_number(void)
{
	int null = (int)assert_ok(open("/dev/null", O_RDONLY | O_CLOEXEC));

	for (int fd = HIGH_NUMBER; fd < HIGH_NUMBER + 4; fd++) {
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
	beside_a_write(takes_a_high_number);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(MEMORY_fork_beside_a_write_that_waits_for_it),
		cmocka_unit_test(MEMORY_program_started_beside_a_write_that_waits_for_it),
		cmocka_unit_test(MEMORY_numbers_beside_a_write_that_waits_for_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
