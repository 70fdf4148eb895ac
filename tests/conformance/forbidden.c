/* SPDX-License-Identifier: MIT */
/*
 * What a process forbids itself by prctl, or its filter answers, concerns the calls that it makes,
 * and no others.
 */
#include "confine.h"
#include "hot.h"

#include <link.h>
#include <poll.h>
#include <ucontext.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

static int ep, fd;

/* Without what the harness would do about an error. */
static bool works(void)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t one = 1, v;
	struct epoll_event ev;

	for (int i = 0; i < OFTEN; i++) {
		if (write(fd, &one, sizeof(one)) != sizeof(one) ||
		    epoll_wait(ep, &ev, 1, 10) != 1 || poll(&p, 1, 10) != 1 ||
		    read(fd, &v, sizeof(v)) != sizeof(v) || v != 1)
			return false;
		if (i % 100 == 0 && (epoll_wait(ep, &ev, 1, 1) || poll(&p, 1, 1)))
			return false;
	}
	return true;
}

/* Each in a child, since it is for good. */
static int without_a_time_stamp(void *before)
{
	if (!*(bool *)before)
		one_is_hot(&ep, &fd);
	if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV))
		return EXIT_SKIPPED;
	if (*(bool *)before)
		one_is_hot(&ep, &fd);
	return !works();
}

static uintptr_t text, text_size;

static int look_for_libc(struct dl_phdr_info *o, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	for (int i = 0; strstr(o->dlpi_name, "libc.so") && i < o->dlpi_phnum; i++) {
		if (o->dlpi_phdr[i].p_type == PT_LOAD && (o->dlpi_phdr[i].p_flags & PF_X)) {
			text = o->dlpi_addr + o->dlpi_phdr[i].p_vaddr;
			text_size = o->dlpi_phdr[i].p_memsz;
		}
	}
	return 0;
}

static int by_libc_alone(void *unused)
{
	static volatile char selector;
	bool right;

	(void)unused;
	one_is_hot(&ep, &fd);
	dl_iterate_phdr(look_for_libc, NULL);
	if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, text, text_size, &selector))
		return EXIT_SKIPPED;
	selector = 1;
	right = works();
	selector = 0;
	return !right;
}

/* One that nobody has seen, as the parent's is kept over exec. */
static int with_few_sleeps(void *unused)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ppoll, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(f) / sizeof(f[0]), .filter = f};

	(void)unused;
#ifndef SYS_poll
	/* libc's poll is ppoll here. */
	return EXIT_SKIPPED;
#endif
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    own_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program))
		return EXIT_SKIPPED;
	one_is_hot(&ep, &fd);
	return !works();
}

static void assert_works(int (*fn)(void *), bool before)
{
	if (SANITIZED)
		SKIP("the run-time makes calls of its own");
	assert_child(child_status(fn, &before), "not for this user, or not here");
}

static void FORBID_the_time_stamp_counter(void **state)
{
	(void)state;
	assert_works(without_a_time_stamp, false);
}

static void FORBID_the_time_stamp_counter_first(void **state)
{
	(void)state;
	assert_works(without_a_time_stamp, true);
}

static void FORBID_calls_past_libc(void **state)
{
	(void)state;
	assert_works(by_libc_alone, false);
}

static void FORBID_sleeps_of_another_kind(void **state)
{
	(void)state;
	assert_works(with_few_sleeps, false);
}

int main(void)
{
	const struct CMUnitTest forbidden[] = {
		cmocka_unit_test(FORBID_the_time_stamp_counter),
		cmocka_unit_test(FORBID_the_time_stamp_counter_first),
		cmocka_unit_test(FORBID_calls_past_libc),
		cmocka_unit_test(FORBID_sleeps_of_another_kind),
	};

	return run_group(forbidden);
}
