/* SPDX-License-Identifier: MIT */
/*
 * A thread that sleeps until something is ready takes no more system calls for it than the
 * kernel needs: one for the sleep, and one for the read if the program makes it. No rule says so;
 * who waits in this way, as runtimes do whose loops are woken by an eventfd, would pay for each
 * one more.
 *
 * The parent counts. What is looked at now and then, and not each time, is allowed for.
 */
#include "waiting.h"

#include <sys/ptrace.h>
#include <sys/timerfd.h>

#define ROUNDS 100
#define WARM_UP 20

enum how {
	WAIT,
	WAIT_MIXED,
	WAIT_EDGE,
	WAIT_TIMED,
	WAIT_PIPE,
	WAIT_TIMER,
	POLL,
	POLL_MIXED,
	POLL_MANY,
	SELECT,
	READ
};

/* Of all ways. */
struct way {
	enum how how;
	/* System calls of the kernel's for a round. */
	int calls;
};

static int efd, ep, pipe_fd[2], timer;
static int written, heard;

static bool make_ready(enum how how)
{
	struct itimerspec soon = {.it_value.tv_nsec = 100000};

	if (how == WAIT_TIMER)
		return timerfd_settime(timer, 0, &soon, NULL) == 0;
	return kind_write(how == WAIT_PIPE ? KIND_PIPE : KIND_EVENTFD,
			  how == WAIT_PIPE ? pipe_fd[1] : efd);
}

static void *writer(void *arg)
{
	const enum how *how = arg;

	for (int i = 0; i < WARM_UP + ROUNDS; i++) {
		/* It goes to sleep meanwhile; where it does not it takes no more. */
		sleep_ms(1);
		__atomic_store_n(&written, i + 1, __ATOMIC_SEQ_CST);
		if (!make_ready(*how))
			_exit(3);
		while (__atomic_load_n(&heard, __ATOMIC_SEQ_CST) != i + 1)
			sleep_ms(1);
	}
	return NULL;
}

static bool hear(enum how how)
{
	struct pollfd p[12] = {{.fd = efd, .events = POLLIN}, {.fd = pipe_fd[0], .events = POLLIN}};
	struct epoll_event ev[8];
	uint64_t v;
	fd_set set;
	int n = 1;

	switch (how) {
	case POLL:
		n = poll(p, 1, -1);
		break;
	case POLL_MIXED:
		n = poll(p, 2, SOON_MS);
		break;
	case POLL_MANY:
		for (int i = 2; i < 12; i++)
			p[i].fd = -1;
		n = poll(p, 12, -1);
		break;
	case SELECT:
		FD_ZERO(&set);
		FD_SET(efd, &set);
		FD_SET(pipe_fd[0], &set);
		n = select((efd > pipe_fd[0] ? efd : pipe_fd[0]) + 1, &set, NULL, NULL, NULL);
		break;
	case READ:
		break;
	default:
		n = epoll_wait(ep, ev, 8, how == WAIT_TIMED ? SOON_MS : -1);
	}
	if (how == WAIT_PIPE)
		return n == 1 && read(pipe_fd[0], &v, sizeof(v)) == 1;
	return n == 1 && (how == WAIT_EDGE ||
			  read(how == WAIT_TIMER ? timer : efd, &v, sizeof(v)) == sizeof(v));
}

static void child(enum how how)
{
	bool mixed = how >= WAIT_MIXED && how <= WAIT_TIMER;
	pthread_t t;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	efd = eventfd(0, 0);
	timer = timerfd_create(CLOCK_MONOTONIC, 0);
	ep = epoll_create1(0);
	if (efd < 0 || timer < 0 || ep < 0 || pipe(pipe_fd) ||
	    ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN | (how == WAIT_EDGE ? EPOLLET : 0), 1) ||
	    (mixed && ep_ctl(ep, EPOLL_CTL_ADD, pipe_fd[0], EPOLLIN, 2)) ||
	    (how == WAIT_TIMER && ep_ctl(ep, EPOLL_CTL_ADD, timer, EPOLLIN, 3)) ||
	    ptrace(PTRACE_TRACEME, 0, NULL, NULL) || pthread_create(&t, NULL, writer, &how))
		_exit(2);
	for (int i = 0; i < WARM_UP + ROUNDS; i++) {
		if (i == WARM_UP)
			raise(SIGSTOP);
		if (!hear(how) || __atomic_load_n(&written, __ATOMIC_SEQ_CST) != i + 1)
			_exit(4);
		__atomic_store_n(&heard, i + 1, __ATOMIC_SEQ_CST);
	}
	raise(SIGSTOP);
	pthread_join(t, NULL);
	_exit(0);
}

/* The system calls of the child's first thread from one stop to the next. */
static int count_calls(pid_t pid)
{
	int status, stops = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	assert_ok(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(long)PTRACE_O_TRACESYSGOOD));
	for (int sig = 0;;) {
		assert_ok(ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(long)sig));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSTOPPED(status));
		sig = 0;
		if (WSTOPSIG(status) == (SIGTRAP | 0x80))
			stops++;
		else if (WSTOPSIG(status) == SIGSTOP)
			return stops / 2;
		else
			sig = WSTOPSIG(status);
	}
}

static void a_sleep_and_its_wake_take_no_more_calls(void **state)
{
	const struct way *w = *state;
	pid_t pid;
	int n;

	if (SANITIZED)
		SKIP("a sanitizer makes system calls of its own");
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		child(w->how);
	n = count_calls(pid);
	assert_ok(ptrace(PTRACE_DETACH, pid, NULL, NULL));
	child_passes(pid);
	print_message("%.2f system calls a round\n", (double)n / ROUNDS);
	/* Now and then one more look; and the way to the stop. */
	assert_uint_in_range(n, 1, w->calls * ROUNDS + ROUNDS / 4 + 4);
}

int main(void)
{
	static const struct way way[] = {
		{WAIT, 2},	{WAIT_MIXED, 2}, {WAIT_EDGE, 1}, {WAIT_TIMED, 2},
		{WAIT_PIPE, 2}, {WAIT_TIMER, 2}, {POLL, 2},	 {POLL_MIXED, 2},
		{POLL_MANY, 2}, {SELECT, 2},	 {READ, 1},
	};
#define WAY(suffix, i) VARIANT(a_sleep_and_its_wake_take_no_more_calls, suffix, &way[i])
	const struct CMUnitTest tests[] = {
		WAY("_wait", WAIT),	      WAY("_wait_mixed", WAIT_MIXED),
		WAY("_wait_edge", WAIT_EDGE), WAY("_wait_timed", WAIT_TIMED),
		WAY("_wait_pipe", WAIT_PIPE), WAY("_wait_timer", WAIT_TIMER),
		WAY("_poll", POLL),	      WAY("_poll_mixed", POLL_MIXED),
		WAY("_poll_many", POLL_MANY), WAY("_select", SELECT),
		WAY("_read", READ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
