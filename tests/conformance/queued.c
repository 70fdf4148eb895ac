/* SPDX-License-Identifier: MIT */
/*
 * Signals that come wherever in a call a process is: each is handled once, those of one number in
 * the order in which they were sent, and at the limit of queued signals as well.
 */
#include "harness.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define ROUNDS 400
#define NUMBERS 3
#define EACH 3
#define LONG_MS 10000

/* Of both processes. */
static volatile struct shared {
	int ready, stop, handled;
	/* Of each number, what came last; and what came out of turn. */
	int last[NUMBERS], wrong;
} * shared;

static int number(int i)
{
	return SIGRTMIN + i;
}

static void handler(int sig, siginfo_t *info, void *context)
{
	int i = sig - SIGRTMIN, value = info->si_value.sival_int;

	(void)context;
	if (info->si_code == SI_QUEUE) {
		if (value != shared->last[i] + 1)
			shared->wrong++;
		shared->last[i] = value;
	}
	shared->handled++;
}

/* Makes calls until it is to stop. */
static void victim(int sig, int limit)
{
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct epoll_event ev = {.events = EPOLLIN};
	int fd = eventfd(0, EFD_NONBLOCK), ep = epoll_create1(0);
	struct rlimit lim;
	uint64_t v = 1;

	if (limit >= 0) {
		getrlimit(RLIMIT_SIGPENDING, &lim);
		lim.rlim_cur = (rlim_t)limit;
		setrlimit(RLIMIT_SIGPENDING, &lim);
	}
	if (sig)
		sigaction(sig, &sa, NULL);
	for (int i = 0; !sig && i < NUMBERS; i++)
		sigaction(number(i), &sa, NULL);
	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) || (under_pollux() && !fd_served(fd)))
		_exit(1);
	shared->ready = 1;
	while (!shared->stop)
		if (write(fd, &v, sizeof(v)) != sizeof(v) || epoll_wait(ep, &ev, 1, 0) != 1 ||
		    epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev) || read(fd, &v, sizeof(v)) != sizeof(v) ||
		    v != 1)
			_exit(2);
	_exit(0);
}

static pid_t victim_start(int sig, int limit)
{
	pid_t pid;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_true(shared != MAP_FAILED);
	pid = fork();
	assert_ok(pid);
	if (!pid)
		victim(sig, limit);
	while (!shared->ready)
		assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	return pid;
}

/* Whatever has become of it. */
static int victim_end(pid_t pid)
{
	int status;

	shared->stop = 1;
	for (int i = 0; i < LONG_MS; i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
		usleep(1000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return status;
}

static bool handled_soon(int n)
{
	for (int i = 0; i < LONG_MS * 10 && shared->handled < n; i++)
		usleep(100);
	return shared->handled == n;
}

/* To the one thread of pid. (What is sent to the process as a whole has a queue of its own.) */
static void queue(pid_t pid, int sig, int value)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	info.si_signo = sig;
	info.si_code = SI_QUEUE;
	info.si_value.sival_int = value;
	assert_ok(syscall(SYS_rt_tgsigqueueinfo, pid, pid, sig, &info));
}

/* It is stopped somewhere, and goes on with all of them pending. */
static void SIGNAL_queued_ones_come_in_their_order(void **state)
{
	pid_t pid = victim_start(0, -1);
	int status, value = 0;
	bool all = true;

	(void)state;
	for (int round = 0; round < ROUNDS && all && !shared->wrong; round++) {
		usleep(100 + round % 7);
		assert_ok(kill(pid, SIGSTOP));
		assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
		assert_true(WIFSTOPPED(status));
		for (int n = 0; n < EACH; n++) {
			value++;
			for (int i = 0; i < NUMBERS; i++)
				queue(pid, number(i), value);
		}
		assert_ok(kill(pid, SIGCONT));
		all = handled_soon(value * NUMBERS);
	}
	assert_int_equal(victim_end(pid), 0);
	assert_true(all);
	assert_int_equal(shared->wrong, 0);
	assert_int_equal(shared->handled, ROUNDS * EACH * NUMBERS);
}

static void at_the_limit(int sig, int limit)
{
	pid_t pid = victim_start(sig, limit);
	bool all = true;
	int sent = 0;

	while (sent < ROUNDS && all) {
		usleep(50 + sent % 7);
		assert_ok(kill(pid, sig));
		all = handled_soon(++sent);
	}
	usleep(50000);
	assert_int_equal(victim_end(pid), 0);
	assert_int_equal(shared->handled, sent);
	assert_int_equal(sent, ROUNDS);
}

/* The kernel has no room for more than the number. */
static void SIGNAL_each_once_at_the_limit(void **state)
{
	(void)state;
	at_the_limit(SIGUSR1, 0);
}

static void SIGNAL_each_that_queues_once_at_the_limit(void **state)
{
	(void)state;
	at_the_limit(SIGRTMIN, 0);
}

int main(void)
{
	static const struct CMUnitTest queued[] = {
		cmocka_unit_test(SIGNAL_queued_ones_come_in_their_order),
		cmocka_unit_test(SIGNAL_each_once_at_the_limit),
		cmocka_unit_test(SIGNAL_each_that_queues_once_at_the_limit),
	};

	NEEDS_HANDLERS_IN_PLACE();
	return run_group(queued);
}
