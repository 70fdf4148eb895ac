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
	int status;

	if (SANITIZED == 2)
		SKIP("ThreadSanitizer has a vfork of its own, and no two threads with one number");
	outer = fork();
	if (outer == 0) {
		pid_t first;

		if (unshare(CLONE_NEWPID))
			_exit(77);
		first = fork();
		if (first == 0)
			_exit(getpid() == 1 ? what() : 78);
		_exit(first < 0 ? 79 : child_end(first));
	}
	assert_true(outer > 0);
	status = child_end(outer);
	if (status == 77)
		SKIP("no new space of process numbers for this user");
	assert_int_equal(status, 0);
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

static int full[2];

static void *write_more(void *unused)
{
	char c = 'x';

	(void)unused;
	return (void *)(intptr_t)write(full[1], &c, 1);
}

static int fork_beside_a_write_without_a_number(void)
{
	struct test_thread t;
	int go[2], got = 0;
	struct pollfd p = {.events = POLLIN};
	char buf[4096];
	pid_t pid;

	CHECK(pipe(full) == 0 && pipe(go) == 0);
	p.fd = full[0];
	CHECK(fcntl(full[1], F_SETPIPE_SZ, 4096) == 4096);
	CHECK(write(full[1], buf, sizeof(buf)) == sizeof(buf));
	thread_start(&t, write_more, NULL);
	/* /proc knows it by another number. */
	sleep_ms(200);
	close(full[1]);
	CHECK(unshare(CLONE_NEWPID) == 0);
	pid = fork();
	if (pid == 0) {
		char c;

		close(go[1]);
		close(full[0]);
		_exit(read(go[0], &c, 1) != 0);
	}
	CHECK(pid > 0);
	for (int n; got < 4097 && (n = (int)read(full[0], buf, sizeof(buf))) > 0;)
		got += n;
	CHECK(got == 4097 && thread_join(&t, 10000) && t.ret == (void *)1);
	/* The last writer has gone. */
	CHECK(poll(&p, 1, 10000) == 1 && p.revents == POLLHUP);
	close(go[1]);
	CHECK(child_end(pid) == 0);
	return 0;
}

/* What its parent keeps for a call that sleeps is not the child's. */
static void ESCAPE_child_of_a_fork_with_the_number_of_its_parent(void **state)
{
	(void)state;
	in_the_first_process(fork_beside_a_write_without_a_number);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ESCAPE_child_of_a_vfork_with_the_number_of_its_parent),
		cmocka_unit_test(ESCAPE_child_of_a_vfork_that_goes_to_another_space),
		cmocka_unit_test(ESCAPE_child_of_a_fork_with_the_number_of_its_parent),
	};

	return run_group(tests);
}
