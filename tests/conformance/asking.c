/* SPDX-License-Identifier: MIT */
/*
 * A program that asks which filters of system calls the kernel would take has set none (QEMU asks
 * when it starts): what it has goes on as before, and so does what it makes later. No rule says so.
 */
#include "waiting.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

/* An eventfd in an epoll that is served. */
struct pair {
	int ep, efd;
};

static void made(struct pair *p)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 7};

	p->ep = assert_ok(epoll_create1(0));
	p->efd = assert_ok(eventfd(0, EFD_NONBLOCK));
	assert_ok(epoll_ctl(p->ep, EPOLL_CTL_ADD, p->efd, &ev));
	assert_int_equal(fd_served(p->efd), under_pollux());
}

static void goes_on(struct pair *p)
{
	struct epoll_event ev;

	assert_int_equal(fd_served(p->efd), under_pollux());
	assert_ok(eventfd_write(p->efd, 1));
	assert_int_equal(epoll_wait(p->ep, &ev, 1, 0), 1);
	assert_int_equal(ev.data.u64, 7);
	assert_ok(close(p->efd));
	assert_ok(close(p->ep));
}

static void ASKING_seccomp(void **state)
{
	uint32_t action = SECCOMP_RET_ERRNO;
	struct seccomp_notif_sizes sizes;
	struct pair before, after;

	(void)state;
	made(&before);
	if (prctl(PR_GET_SECCOMP) == -1)
		SKIP("the kernel has no seccomp");
	assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(
		syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL), -1);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1u << 30, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_ok((int)syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
	assert_ok((int)syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes));
	made(&after);
	goes_on(&before);
	goes_on(&after);
}

/* Nor has one whose request is none. */
static void ASKING_for_what_there_is_not(void **state)
{
	struct pair before, after;

	(void)state;
	made(&before);
	assert_int_equal(prctl(PR_SET_SECCOMP, 77, NULL, 0, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(syscall(SYS_prctl, PR_SET_SECCOMP, 77, NULL, 0, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(syscall(SYS_seccomp, 77, 0, NULL), -1);
	assert_int_equal(errno, EINVAL);
	made(&after);
	goes_on(&before);
	goes_on(&after);
}

/* One that is set ends it, by each of the two ways. */
static void ASKING_and_then_setting(void **state)
{
	struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog filter = {.len = 1, .filter = code};

	(void)state;
	for (int way = 0; way < 2; way++) {
		pid_t pid = (pid_t)assert_ok(fork());

		if (pid == 0) {
			int efd;

			if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
				_exit(1);
			(void)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL);
			efd = eventfd(3, EFD_NONBLOCK);
			if (fd_served(efd) != under_pollux())
				_exit(2);
			if (way ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter)
				: prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
				_exit(EXIT_SKIPPED);
			if (fd_served(efd) || fd_served(eventfd(0, EFD_NONBLOCK)))
				_exit(3);
			_exit(0);
		}
		assert_child(child_end(pid), "the kernel takes no filter");
	}
}

int main(void)
{
	const struct CMUnitTest asking[] = {
		cmocka_unit_test(ASKING_seccomp),
		cmocka_unit_test(ASKING_for_what_there_is_not),
		cmocka_unit_test(ASKING_and_then_setting),
	};

	return run_group(asking);
}
