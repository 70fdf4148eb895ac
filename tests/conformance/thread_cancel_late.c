/* SPDX-License-Identifier: MIT */
/*
 * A thread whose cancellation has begun while it sleeps, and whose signal comes later, is cancelled
 * in the call that it slept in, or after it has enabled cancellation again: never in between.
 */
#include "waiting.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* By which glibc cancels. */
#define SIGCANCEL 32

static int ep, fd, ends[2];
static int sleeps, disabled, wrong;
static bool polls;
/* 0: not yet; -1: there is none. */
static int listener;

static void *sleeps_and_reads(void *unused)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct epoll_event ev;
	char byte = 0;

	__atomic_store_n(&sleeps, 1, __ATOMIC_RELEASE);
	if (polls)
		poll(&p, 1, -1);
	else
		epoll_wait(ep, &ev, 1, -1);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	__atomic_store_n(&disabled, 1, __ATOMIC_RELEASE);
	/* It sleeps when the signal comes. */
	(void)!read(ends[0], &byte, 1);
	__atomic_store_n(&disabled, 0, __ATOMIC_RELEASE);
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	pthread_testcancel();
	return unused;
}

static void cleanup(void *unused)
{
	(void)unused;
	wrong = __atomic_load_n(&disabled, __ATOMIC_ACQUIRE);
}

static void *thread_main(void *unused)
{
	void *r;

	pthread_cleanup_push(cleanup, NULL);
	r = sleeps_and_reads(unused);
	pthread_cleanup_pop(0);
	return r;
}

/* Past libc, as a filter of the process's own ends adoption. Of this thread alone. */
static int hold_cancellation(void)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_tgkill, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIGCANCEL, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(f) / sizeof(f[0]), .filter = f};

	if (own_call6(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0))
		return -1;
	return (int)own_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
			     (long)&program);
}

static void *cancels(void *thread)
{
	int l = hold_cancellation();

	__atomic_store_n(&listener, l < 0 ? -1 : l, __ATOMIC_RELEASE);
	if (l >= 0)
		pthread_cancel(*(pthread_t *)thread);
	return NULL;
}

/* The signal is about to be sent: first the thread is woken. Then it goes on. */
static bool sends_later(void)
{
	struct seccomp_notif_resp go_on = {.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
	struct seccomp_notif n = {0};

	if (own_call(SYS_ioctl, listener, SECCOMP_IOCTL_NOTIF_RECV, (long)&n))
		return false;
	go_on.id = n.id;
	efd_add(fd, 1);
	/* Where it waits for the signal it does not come so far. */
	for (int ms = 0; ms < 50 && !__atomic_load_n(&disabled, __ATOMIC_ACQUIRE); ms++)
		usleep(1000);
	usleep(10000);
	if (own_call(SYS_ioctl, listener, SECCOMP_IOCTL_NOTIF_SEND, (long)&go_on))
		return false;
	usleep(20000);
	return write(ends[1], "", 1) == 1;
}

/* In a child. */
static int is_cancelled(void *by_poll)
{
	struct epoll_event ev;
	pthread_t t, by;
	void *r;

	polls = *(bool *)by_poll;
	ep = ep_new();
	fd = efd_new(0, EFD_NONBLOCK);
	assert_ok(pipe2(ends, O_CLOEXEC));
	ep_add(ep, fd, EPOLLIN, 1);
	/* It may be cached by then. */
	for (int i = 0; i < 1000; i++) {
		efd_add(fd, 1);
		epoll_wait(ep, &ev, 1, 0);
		efd_take(fd);
	}
	assert_int_equal(pthread_create(&t, NULL, thread_main, NULL), 0);
	while (!__atomic_load_n(&sleeps, __ATOMIC_ACQUIRE))
		usleep(1000);
	usleep(20000);
	assert_int_equal(pthread_create(&by, NULL, cancels, &t), 0);
	while (!__atomic_load_n(&listener, __ATOMIC_ACQUIRE))
		usleep(1000);
	if (listener < 0)
		return EXIT_SKIPPED;
	if (!sends_later())
		return 2;
	if (pthread_join(by, NULL) || pthread_join(t, &r) || r != PTHREAD_CANCELED)
		return 3;
	return wrong ? 4 : 0;
}

static void assert_cancelled(bool by_poll)
{
	if (SANITIZED)
		SKIP("the run-time makes calls of its own");
	assert_child(child_status(is_cancelled, &by_poll), "no filter for this user");
}

static void CANCEL_begins_in_a_wait(void **state)
{
	(void)state;
	assert_cancelled(false);
}

static void CANCEL_begins_in_a_poll(void **state)
{
	(void)state;
	assert_cancelled(true);
}

int main(void)
{
	const struct CMUnitTest thread_cancel_late[] = {
		cmocka_unit_test(CANCEL_begins_in_a_wait),
		cmocka_unit_test(CANCEL_begins_in_a_poll),
	};

	return run_group(thread_cancel_late);
}
