/* SPDX-License-Identifier: MIT */
/*
 * Several signals that the mask of a wait lets in at once: the wait has all of them handled, in the
 * kernel's order, before it returns (EP-SIG-06).
 */
#include "harness.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>

enum wait { EPOLL_PWAIT, PPOLL, PSELECT, WAITS };

static volatile sig_atomic_t handled[16][2];
static volatile sig_atomic_t nhandled;

static void note_signal(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (nhandled < 16) {
		handled[nhandled][0] = sig;
		handled[nhandled][1] = info->si_value.sival_int;
	}
	nhandled++;
}

static void queue(int sig, int value)
{
	union sigval v = {.sival_int = value};

	assert_int_equal(pthread_sigqueue(pthread_self(), sig, v), 0);
}

static int wait_open(enum wait how, int fd, int ep)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct timespec ten = {.tv_sec = 10};
	struct epoll_event ev;
	sigset_t none;
	fd_set set;

	sigemptyset(&none);
	FD_ZERO(&set);
	FD_SET(fd, &set);
	if (how == EPOLL_PWAIT)
		return epoll_pwait(ep, &ev, 1, 10000, &none);
	return how == PPOLL ? ppoll(&p, 1, &ten, &none)
			    : pselect(fd + 1, &set, NULL, NULL, &ten, &none);
}

/* Sends by send() what each wait is to let in; the handlers are to be those of expected. */
static void all_at_once(void (*send)(void), const int (*expected)[2], int n)
{
	int fd = eventfd(0, EFD_NONBLOCK), ep = epoll_create1(0);
	struct sigaction sa = {.sa_sigaction = note_signal, .sa_flags = SA_SIGINFO};
	const int sigs[] = {SIGUSR1, SIGUSR2, SIGRTMIN, SIGRTMIN + 1};
	struct epoll_event ev = {.events = EPOLLIN};
	struct sigaction old[4];
	sigset_t set, was;

	assert_ok(fd);
	assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
	sigemptyset(&set);
	for (int i = 0; i < 4; i++) {
		assert_ok(sigaction(sigs[i], &sa, &old[i]));
		sigaddset(&set, sigs[i]);
	}
	assert_ok(pthread_sigmask(SIG_BLOCK, &set, &was));
	for (int how = 0; how < WAITS; how++) {
		sigset_t left;

		nhandled = 0;
		send();
		assert_errno(wait_open(how, fd, ep), EINTR);
		assert_ok(sigpending(&left));
		for (int i = 0; i < 4; i++)
			assert_int_equal(sigismember(&left, sigs[i]), 0);
		assert_int_equal(nhandled, n);
		for (int i = 0; i < n; i++) {
			assert_int_equal(handled[i][0], expected[i][0]);
			assert_int_equal(handled[i][1], expected[i][1]);
		}
	}
	assert_ok(pthread_sigmask(SIG_SETMASK, &was, NULL));
	for (int i = 0; i < 4; i++)
		assert_ok(sigaction(sigs[i], &old[i], NULL));
	assert_ok(close(ep));
	assert_ok(close(fd));
}

static void two(void)
{
	raise(SIGUSR1);
	raise(SIGUSR2);
}

/* Both handlers run in the wait, the last one first. */
static void EP_SIG_06_all_pending_signals_are_handled_in_the_wait(void **state)
{
	const int expected[][2] = {{SIGUSR2, 0}, {SIGUSR1, 0}};

	(void)state;
	all_at_once(two, expected, 2);
}

static void queued(void)
{
	raise(SIGUSR1);
	for (int i = 1; i < 4; i++)
		queue(SIGRTMIN, i);
}

/* Of one that queues all that there are, in their order. */
static void EP_SIG_06_queued_signals_are_handled_in_their_order(void **state)
{
	const int expected[][2] = {{SIGRTMIN, 1}, {SIGRTMIN, 2}, {SIGRTMIN, 3}, {SIGUSR1, 0}};

	(void)state;
	all_at_once(queued, expected, 4);
}

int main(void)
{
	static const struct CMUnitTest handlers[] = {
		cmocka_unit_test(EP_SIG_06_all_pending_signals_are_handled_in_the_wait),
		cmocka_unit_test(EP_SIG_06_queued_signals_are_handled_in_their_order),
	};

	NEEDS_HANDLERS_IN_PLACE();
	return run_group(handlers);
}
