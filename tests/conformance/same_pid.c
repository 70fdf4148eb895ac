/* SPDX-License-Identifier: MIT */
/*
 * The first child in a new space of process numbers may have the number of its parent. It is
 * another process all the same.
 */
#include "harness.h"

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                 \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

static int child_end(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs what in a process whose number is 1, and that of its next child, too. */
static void in_the_first_process(int (*what)(void))
{
	pid_t outer;

	if (SANITIZED == 2)
		SKIP("ThreadSanitizer has a vfork of its own, and no two threads with one number");
	outer = fork();
	if (outer == 0) {
		pid_t first;

		if (unshare(CLONE_NEWPID))
			_exit(EXIT_SKIPPED);
		first = fork();
		if (first == 0)
			_exit(getpid() == 1 ? what() : 78);
		_exit(first < 0 ? 79 : child_end(first));
	}
	assert_true(outer > 0);
	assert_child(child_end(outer), "no new space of process numbers for this user");
}

static volatile int made;

static int make_in_the_child_of_a_vfork(void)
{
	uint64_t one = 1;
	pid_t pid;

	CHECK(close(eventfd(0, EFD_NONBLOCK)) == 0);
	CHECK(unshare(CLONE_NEWPID) == 0);
	pid = vfork();
	if (pid == 0) {
		made = eventfd(0, EFD_NONBLOCK);
		_exit(getpid());
	}
	CHECK(pid > 0 && child_end(pid) == 1 && made >= 0);
	CHECK(write(made, &one, sizeof(one)) == -1 && errno == EBADF);
	return 0;
}

/* What the child of a vfork makes is not its parent's. */
static void ESCAPE_child_of_a_vfork_with_the_number_of_its_parent(void **state)
{
	(void)state;
	in_the_first_process(make_in_the_child_of_a_vfork);
}

static int unshare_in_the_child_of_a_vfork(void)
{
	uint64_t v;
	pid_t pid;
	int e;

	CHECK(close(eventfd(0, EFD_NONBLOCK)) == 0);
	pid = vfork();
	if (pid == 0)
		_exit(unshare(CLONE_NEWPID) != 0);
	CHECK(pid > 0 && child_end(pid) == 0);
	e = eventfd(5, EFD_NONBLOCK);
	CHECK(e >= 0 && (!under_pollux() || fd_served(e)));
	CHECK(read(e, &v, sizeof(v)) == sizeof(v) && v == 5);
	return 0;
}

/* Its parent is served as before. */
static void ESCAPE_child_of_a_vfork_that_goes_to_another_space(void **state)
{
	(void)state;
	in_the_first_process(unshare_in_the_child_of_a_vfork);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ESCAPE_child_of_a_vfork_with_the_number_of_its_parent),
		cmocka_unit_test(ESCAPE_child_of_a_vfork_that_goes_to_another_space),
	};

	return run_group(tests);
}
