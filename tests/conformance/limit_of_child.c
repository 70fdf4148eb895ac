/* SPDX-License-Identifier: MIT */
/*
 * The soft limit of descriptors of a process that is started while another thread makes and ends
 * objects is the program's.
 */
#include "harness.h"

#include <sys/resource.h>

#define SOFT 100
#define CHILDREN 3000

static int stop;

static void *busy(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		int ep = epoll_create1(EPOLL_CLOEXEC), fd = efd_new(0, EFD_NONBLOCK);

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
		close(fd);
		close(ep);
	}
	return NULL;
}

static volatile rlim_t seen;

static int look(void *unused)
{
	struct rlimit lim;

	(void)unused;
	seen = syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &lim) ? 0 : lim.rlim_cur;
	return 0;
}

static char stack[65536] __attribute__((aligned(16)));

static void raw_main(void)
{
	look(NULL);
	syscall(SYS_exit, 0);
}

/* One that shares the memory. */
static pid_t child_new(bool raw, int flags)
{
	void **top = (void **)(stack + sizeof(stack));

	if (!raw)
		return clone(look, top, flags, NULL);
	/* It returns from the call to what is on its stack. */
	top -= 2;
	*top = (void *)raw_main;
	return (pid_t)syscall(SYS_clone, (long)flags, top, 0L, 0L, 0L);
}

/* How many had another limit. */
static int odd_ones(bool raw, int flags)
{
	int odd = 0;

	for (int i = 0; i < CHILDREN; i++) {
		pid_t pid = (pid_t)assert_ok(child_new(raw, flags | CLONE_VM | SIGCHLD));

		assert_int_equal(waitpid(pid, NULL, 0), pid);
		odd += seen != SOFT;
	}
	return odd;
}

struct how {
	bool raw;
	int flags;
};

static void limit_of_child(void **state)
{
	const struct how *how = *state;
	struct rlimit lim;
	struct test_thread t;

#ifndef __x86_64__
	if (how->raw)
		SKIP("it would return into its parent's frame");
#endif

	if (SANITIZED)
		SKIP("a sanitizer's run-time does not bear such a child");
	assert_ok(getrlimit(RLIMIT_NOFILE, &lim));
	if (lim.rlim_max < 2 * SOFT)
		SKIP("the hard limit is too low");
	lim.rlim_cur = SOFT;
	assert_ok(setrlimit(RLIMIT_NOFILE, &lim));
	stop = 0;
	thread_start(&t, busy, NULL);
	assert_int_equal(odd_ones(how->raw, how->flags), 0);
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	assert_true(thread_join(&t, 10000));
}

int main(void)
{
	/* Without CLONE_FILES adoption ends. */
	static struct how called = {false, CLONE_FILES}, raw = {true, CLONE_FILES}, own;
	const struct CMUnitTest tests[] = {
		{"LIMIT_of_a_child_in_the_same_memory", limit_of_child, NULL, NULL, &called},
		{"LIMIT_of_a_child_in_the_same_memory_raw", limit_of_child, NULL, NULL, &raw},
		{"LIMIT_of_a_child_with_a_table_of_its_own", limit_of_child, NULL, NULL, &own},
	};

	return run_group(tests);
}
