/* SPDX-License-Identifier: MIT */
/*
 * A child that has its parent's memory, and nothing but zeros for its thread-local one: calls that
 * succeed need no more. (Chromium makes one such for its sandbox.)
 */
#include "hot.h"

#include <sched.h>

static int ep, hot, pipes[2];
static char zeros[16384] __attribute__((aligned(64)));

/* No cancellation points, where libc looks. Its descriptors are its own. */
static int main_of_child(void *unused)
{
	uint64_t v = 1;

	(void)unused;
	if (syscall(SYS_chdir, "/") || chdir("/"))
		_exit(1);
	if (syscall(SYS_write, hot, &v, sizeof(v)) != sizeof(v))
		_exit(2);
	if (dup2(pipes[0], hot) != hot || syscall(SYS_close, pipes[1]))
		_exit(3);
	_exit(0);
}

static pid_t child_with(int (*fn)(void *), char *tls)
{
	static char stack[65536] __attribute__((aligned(64)));

	return clone(fn, stack + sizeof(stack),
		     CLONE_VM | CLONE_VFORK | CLONE_FS | CLONE_SETTLS | SIGCHLD, NULL, NULL, tls,
		     NULL);
}

static int has_a_child(void *cold)
{
	uint64_t v = 0;
	char c = 'c';
	int status;
	pid_t pid;

	if (!*(bool *)cold)
		one_is_hot(&ep, &hot);
	else
		hot = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (pipe2(pipes, O_CLOEXEC))
		return 10;
	errno = 0;
	pid = child_with(main_of_child, zeros + sizeof(zeros) / 2);
	if (pid < 0 || errno || waitpid(pid, &status, 0) != pid)
		return 11;
	if (status)
		return 12;
	if (read(hot, &v, sizeof(v)) != sizeof(v) || v != 1)
		return 13;
	return write(pipes[1], &c, 1) != 1 || read(pipes[0], &c, 1) != 1;
}

static void ESCAPE_clone_with_zeros(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP("the run-time looks into thread-local memory");
	assert_child(child_status(has_a_child, &(bool){false}), "no such clone");
	assert_child(child_status(has_a_child, &(bool){true}), "no such clone");
}

static int ends(void *unused)
{
	(void)unused;
	own_call(SYS_exit_group, 0, 0, 0);
	return 1;
}

/* What a call is given ends where memory does: that is for the kernel to say. */
static int at_the_end(void *unused)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *two =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t pid;

	(void)unused;
	if (two == MAP_FAILED || munmap(two + page, page))
		return 10;
	pid = child_with(ends, two + page - 1);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		return 11;
	if (syscall(SYS_clone3, two + page - 63, 64) != -1)
		return 12;
	return errno == ENOSYS ? EXIT_SKIPPED : errno != EFAULT;
}

static void ESCAPE_clone_at_the_end_of_memory(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP("the run-time looks into thread-local memory");
	assert_child(child_status(at_the_end, NULL), "no such clone");
}

int main(void)
{
	const struct CMUnitTest fork_zeros[] = {
		cmocka_unit_test(ESCAPE_clone_with_zeros),
		cmocka_unit_test(ESCAPE_clone_at_the_end_of_memory),
	};

	return run_group(fork_zeros);
}
