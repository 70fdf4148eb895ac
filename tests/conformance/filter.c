/* SPDX-License-Identifier: MIT */
/*
 * A program refuses itself all system calls but those that it makes. It has many epolls and
 * eventfds by then, uses and closes them, and makes others: it is not ended for a call that it does
 * not make. No rule says so.
 */
#include "confine.h"
#include "waiting.h"

#include <sys/time.h>

#define PAIRS 400

static const int allowed[] = {
	SYS_read,	   SYS_write,	     SYS_close,
	SYS_epoll_pwait,   SYS_epoll_ctl,    SYS_exit,
	SYS_exit_group,	   SYS_rt_sigreturn, SYS_rt_sigprocmask,
	SYS_rt_sigaction,  SYS_futex,	     SYS_mmap,
	SYS_munmap,	   SYS_brk,	     SYS_mprotect,
	SYS_madvise,	   SYS_eventfd2,     SYS_epoll_create1,
	SYS_clock_gettime, SYS_clone,	     SYS_set_robust_list,
	SYS_getrandom,	   SYS_rseq,	     435 /* clone3 */,
	SYS_ppoll,	   SYS_pselect6,
#ifdef SYS_epoll_wait
	SYS_epoll_wait,	   SYS_poll,	     SYS_select,
#endif
};
#define ALLOWED (sizeof(allowed) / sizeof(allowed[0]))

static void *nothing(void *arg)
{
	return arg;
}

struct how {
	bool by_seccomp, threads;
};

static int uses_and_closes(void *arg)
{
	static int ep[PAIRS], efd[PAIRS];
	const struct how *how = arg;
	struct epoll_event ev = {.events = EPOLLIN};
	uint64_t value = 1;

	for (int i = 0; i < PAIRS; i++) {
		ep[i] = epoll_create1(0);
		efd[i] = eventfd(0, EFD_NONBLOCK);
		if (epoll_ctl(ep[i], EPOLL_CTL_ADD, efd[i], &ev))
			return 1;
	}
	if (!confine(allowed, ALLOWED, SECCOMP_RET_KILL_PROCESS,
		     how->by_seccomp ? CONFINE_BY_SECCOMP : CONFINE_BY_PRCTL))
		return 2;
	for (int i = 0; i < PAIRS; i++)
		if (write(efd[i], &value, sizeof(value)) != sizeof(value) ||
		    epoll_wait(ep[i], &ev, 1, 0) != 1 ||
		    read(efd[i], &value, sizeof(value)) != sizeof(value))
			return 3;
	for (int i = 0; i < 4; i++) {
		struct pollfd p[] = {{.fd = efd[i], .events = POLLIN},
				     {.fd = efd[i + 1], .events = POLLOUT}};
		struct timespec now = {0};
		struct timeval soon = {0};
		fd_set set;

		FD_ZERO(&set);
		FD_SET(efd[i], &set);
		if (poll(p, 2, 0) != 1 || ppoll(p, 2, &now, NULL) != 1 || poll(p, 1, 1) != 0 ||
		    select(efd[i] + 1, NULL, &set, NULL, &soon) != 1 ||
		    pselect(efd[i] + 1, NULL, &set, NULL, &now, NULL) != 1)
			return 7;
	}
	for (int i = 0; how->threads && i < 40; i++) {
		pthread_t t;

		if (pthread_create(&t, NULL, nothing, NULL))
			return 4;
		pthread_join(t, NULL);
	}
	for (int i = 0; i < PAIRS; i++)
		if (close(ep[i]) || close(efd[i]))
			return 5;
	for (int i = 0; i < PAIRS; i++)
		if (close(eventfd(0, 0)) || close(epoll_create1(0)))
			return 6;
	return 0;
}

static void check_filter(struct how how)
{
	if (SANITIZED)
		SKIP("the run-time makes calls of its own");
	assert_int_equal(child_status(uses_and_closes, &how), 0);
}

static void FILTER_by_prctl(void **state)
{
	(void)state;
	check_filter((struct how){0});
}

static void FILTER_by_seccomp(void **state)
{
	(void)state;
	check_filter((struct how){.by_seccomp = true});
}

static void FILTER_and_threads_after_it(void **state)
{
	(void)state;
	check_filter((struct how){.threads = true});
}

static volatile int forks;

/* Once: on a busy machine the handler takes longer, and the program is to go on as well. */
static int alarm_soon(void)
{
	struct itimerval soon = {.it_value = {0, 500}};

	return setitimer(ITIMER_REAL, &soon, NULL);
}

static void by_handler(int sig)
{
	int saved = errno, st;
	pid_t pid = fork();

	(void)sig;
	if (pid == 0)
		_exit(0);
	while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
		;
	forks++;
	alarm_soon();
	errno = saved;
}

/* By a filter that forbids nothing: a handler may come anywhere. */
static int forks_in_handlers(void *arg)
{
	struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {.len = 1, .filter = &all};
	struct sigaction sa = {.sa_handler = by_handler, .sa_flags = SA_RESTART};
	struct epoll_event ev = {.events = EPOLLIN};
	int ep = epoll_create1(0), efd = eventfd(0, EFD_NONBLOCK), other = eventfd(0, 0);

	(void)arg;
	if (epoll_ctl(ep, EPOLL_CTL_ADD, efd, &ev) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) || sigaction(SIGALRM, &sa, NULL) ||
	    alarm_soon())
		return 1;
	while (forks < 40) {
		int new = epoll_create1(0);

		if (epoll_wait(ep, &ev, 1, 0) || dup2(efd, other) != other || close(new))
			return 2;
	}
	return 0;
}

static void FILTER_and_handlers_that_fork(void **state)
{
	(void)state;
	assert_int_equal(child_status(forks_in_handlers, NULL), 0);
}

/* What a program does that allows itself one call more than these, and how it ends. */
static const int always[] = {SYS_read, SYS_write, SYS_close, SYS_exit_group, SYS_rt_sigreturn};
#define ALWAYS (sizeof(always) / sizeof(always[0]))

/* What libc's fork makes besides. Since 2.41 it blocks all signals around the call. */
static const int by_fork[] = {
	SYS_set_robust_list,
	SYS_gettid,
#if __GLIBC_PREREQ(2, 41)
	SYS_rt_sigprocmask,
#endif
};
#define BY_FORK (sizeof(by_fork) / sizeof(by_fork[0]))

enum only {
	ONLY_EPOLL_PWAIT,
	ONLY_EPOLL_CTL,
	ONLY_DUP,
	ONLY_DUP3,
	ONLY_SIGACTION,
	ONLY_EVENTFD,
	ONLY_CLONE,
	ONLY_FAULT,
	ONLY_RESETHAND,
#ifdef SYS_epoll_wait
	ONLY_EPOLL_WAIT,
	ONLY_DUP2,
#endif
	ONLY_CALLS
};

static const int only_calls[ONLY_CALLS] = {
	SYS_epoll_pwait, SYS_epoll_ctl, SYS_dup,  SYS_dup3,   SYS_rt_sigaction,
	SYS_eventfd2,	 SYS_clone,	SYS_read, SYS_tgkill,
#ifdef SYS_epoll_wait
	SYS_epoll_wait,	 SYS_dup2,
#endif
};

static void not_called(int sig)
{
	(void)sig;
}

static int makes_one_call(void *arg)
{
	const enum only *only = arg;
	struct sigaction act = {.sa_handler = not_called, .sa_flags = (int)SA_RESETHAND}, was;
	int allowed[ALWAYS + 1 + BY_FORK], null = open("/dev/null", O_RDONLY);
	int ep = epoll_create1(0), efd = eventfd(0, EFD_NONBLOCK);
	struct epoll_event ev = {.events = EPOLLIN};
	pid_t self = getpid(), pid;
	uint64_t value = 1;

	if (epoll_ctl(ep, EPOLL_CTL_ADD, efd, &ev) || write(efd, &value, sizeof(value)) != 8 ||
	    sigaction(SIGUSR2, &act, NULL) || signal(SIGSEGV, SIG_DFL) == SIG_ERR)
		return 1;
	memcpy(allowed, always, sizeof(always));
	allowed[ALWAYS] = only_calls[*only];
	memcpy(allowed + ALWAYS + 1, by_fork, sizeof(by_fork));
	if (!confine(allowed, ALWAYS + 1 + (*only == ONLY_CLONE ? BY_FORK : 0),
		     SECCOMP_RET_KILL_PROCESS, CONFINE_BY_PRCTL))
		return 2;
	switch (*only) {
	case ONLY_EPOLL_PWAIT:
		_exit(epoll_pwait(ep, &ev, 1, 0, NULL) != 1);
	case ONLY_EPOLL_CTL:
		_exit(epoll_ctl(ep, EPOLL_CTL_DEL, efd, &ev) != 0);
	case ONLY_DUP:
		_exit(dup(ep) < 0);
	case ONLY_DUP3:
		_exit(dup3(null, ep, O_CLOEXEC) != ep);
	case ONLY_SIGACTION:
		act.sa_handler = SIG_IGN;
		_exit(sigaction(SIGUSR2, &act, &was) || was.sa_handler != not_called);
	case ONLY_EVENTFD:
		_exit(eventfd(0, EFD_NONBLOCK) < 0);
	case ONLY_CLONE:
		pid = fork();
		_exit(pid < 0);
	case ONLY_FAULT:
		*(volatile int *)8 = 0;
		_exit(1);
	case ONLY_RESETHAND:
		_exit((int)syscall(SYS_tgkill, self, self, SIGUSR2) != 0);
#ifdef SYS_epoll_wait
	case ONLY_EPOLL_WAIT:
		_exit(epoll_wait(ep, &ev, 1, 0) != 1);
	case ONLY_DUP2:
		_exit(dup2(null, efd) != efd || dup2(null, ep) != ep);
#endif
	default:
		_exit(3);
	}
}

static void FILTER_that_knows_one_call(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP("the run-time makes calls of its own");
	for (enum only only = 0; only < ONLY_CALLS; only++) {
		int status = child_wait(child_start(makes_one_call, &only));

		if (WIFSIGNALED(status))
			assert_int_equal(WTERMSIG(status), only == ONLY_FAULT ? SIGSEGV : 0);
		else
			assert_int_equal(WEXITSTATUS(status), 0);
	}
}

/* closefrom is not this call alone: without it libc goes through /proc. */
static int closes_without_the_call(void *arg)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = f};
	int null = open("/dev/null", O_RDONLY), efd = -1, ep = -1;

	if (arg) {
		efd = eventfd(1, EFD_NONBLOCK);
		ep = epoll_create1(0);
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		return 1;
	closefrom(null);
	return fcntl(null, F_GETFD) != -1 || fcntl(efd, F_GETFD) != -1 || fcntl(ep, F_GETFD) != -1
		       ? 2
		       : 0;
}

static void FILTER_of_close_range_and_closefrom(void **state)
{
	/* With something of ours, and without. */
	assert_int_equal(child_status(closes_without_the_call, state), 0);
	assert_int_equal(child_status(closes_without_the_call, NULL), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(FILTER_by_prctl),
		cmocka_unit_test(FILTER_by_seccomp),
		cmocka_unit_test(FILTER_and_threads_after_it),
		cmocka_unit_test(FILTER_and_handlers_that_fork),
		cmocka_unit_test(FILTER_of_close_range_and_closefrom),
		cmocka_unit_test(FILTER_that_knows_one_call),
	};

	return run_group(tests);
}
