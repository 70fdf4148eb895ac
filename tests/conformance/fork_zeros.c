/* SPDX-License-Identifier: MIT */
/*
 * A child that has its parent's memory, and nothing but zeros for its thread-local one: calls that
 * succeed need no more. (Chromium makes one such for its sandbox.)
 */
#include "hot.h"

#include <sched.h>

enum { STACK = 65536, ZEROS = 16384 };

static int ep, hot, pipes[2];
static char zeros[ZEROS] __attribute__((aligned(64)));

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

static int has_a_child(void *before)
{
	const int flags = CLONE_VM | CLONE_VFORK | CLONE_FS | CLONE_SETTLS | SIGCHLD;
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	uint64_t v = 0;
	char c = 'c';
	int status;
	pid_t pid;

	if (!*(bool *)before)
		one_is_hot(&ep, &hot);
	else
		hot = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (stack == MAP_FAILED || pipe2(pipes, O_CLOEXEC))
		return 10;
	errno = 0;
	pid = clone(main_of_child, stack + STACK, flags, NULL, NULL, zeros + ZEROS / 2, NULL);
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
	for (int before = 0; before < 2; before++) {
		bool cold = before;

		assert_child(child_status(has_a_child, &cold), "no such clone");
	}
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
	const int flags = CLONE_VM | CLONE_VFORK | CLONE_FS | CLONE_SETTLS | SIGCHLD;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *two =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static char stack[STACK] __attribute__((aligned(16)));
	int status;
	pid_t pid;

	(void)unused;
	if (two == MAP_FAILED || munmap(two + page, page))
		return 10;
	pid = clone(ends, stack + STACK, flags, NULL, NULL, two + page - 1, NULL);
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
