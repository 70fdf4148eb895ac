/* SPDX-License-Identifier: MIT */
/*
 * Until something is cached a process is as if it had been started by itself: its calls are its
 * own, and so are its handlers. Then it is prepared beside whatever its threads do. No rule says
 * so.
 */
#include "confine.h"
#include "waiting.h"

#include <linux/aio_abi.h>
#include <linux/close_range.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/timerfd.h>

#define ROUNDS 40
#define TURNS 300
/* By now there are handlers that the program has not installed. */
#define PREPARED 100

/* Eventfds and timers as well; else epolls only, since the first eventfd prepares the process. */
static bool all_cold(void)
{
	const char *adopt = getenv("POLLUX_ADOPT");

	return !under_pollux() || !adopt || strstr(adopt, "hot");
}

static const int epoll_calls[] = {
	SYS_read,
	SYS_write,
	SYS_close,
	SYS_epoll_ctl,
	SYS_epoll_create1,
	SYS_epoll_pwait,
	SYS_epoll_pwait2,
	SYS_socketpair,
	SYS_fcntl,
	SYS_dup,
	SYS_ppoll,
	SYS_pselect6,
	SYS_rt_sigaction,
	SYS_rt_sigreturn,
	SYS_exit_group,
	SYS_eventfd2,
	SYS_timerfd_create,
	SYS_timerfd_settime,
	SYS_timerfd_gettime,
#ifdef SYS_epoll_wait
	SYS_epoll_wait,
	SYS_poll,
	SYS_select,
#endif
};

static void handler(int sig)
{
	(void)sig;
}

static bool use(int ep, int fd, int peer, size_t n)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 5};
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct timespec now = {0};
	uint64_t v = 1;
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0 && epoll_wait(ep, &ev, 1, 0) == 0 &&
	       write(peer, &v, n) == (ssize_t)n && epoll_wait(ep, &ev, 1, -1) == 1 &&
	       ev.data.u64 == 5 && epoll_pwait(ep, &ev, 1, 10, NULL) == 1 && poll(&p, 1, -1) == 1 &&
	       ppoll(&p, 1, &now, NULL) == 1 && select(fd + 1, &set, NULL, NULL, NULL) == 1 &&
	       read(fd, &v, n) == (ssize_t)n && epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev) == 0 &&
	       epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL) == 0;
}

static int makes_its_own_calls(void *arg)
{
	struct itimerspec at = {.it_value.tv_sec = 100};
	int ep, again, s[2], efd, timer;
	bool all = all_cold();

	(void)arg;
	if (!confine(epoll_calls, sizeof(epoll_calls) / sizeof(epoll_calls[0]),
		     SECCOMP_RET_KILL_PROCESS, CONFINE_UNSEEN))
		return EXIT_SKIPPED;
	ep = epoll_create1(EPOLL_CLOEXEC);
	again = fcntl(ep, F_DUPFD_CLOEXEC, 0);
	if (ep < 0 || again < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, s) ||
	    !use(ep, s[0], s[1], 1))
		return 1;
	if (signal(SIGUSR1, handler) == SIG_ERR || signal(SIGUSR1, SIG_DFL) != handler)
		return 2;
	if (!all)
		return 0;
	efd = eventfd(0, EFD_NONBLOCK);
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	if (efd < 0 || timer < 0 || !use(again, efd, efd, 8) || !use(ep, efd, efd, 8))
		return 3;
	for (int i = 0; i < 30; i++)
		if (timerfd_settime(timer, 0, &at, NULL) || eventfd_write(efd, 1))
			return 4;
	return close(dup(efd)) || close(efd) || close(timer) || close(again) || close(ep) ? 5 : 0;
}

static int run_child(int (*fn)(void *), void *arg)
{
	pid_t pid = (pid_t)assert_ok(fork());
	int status;

	if (pid == 0) {
		/* That of the tests' own frame. */
		signal(SIGSEGV, SIG_DFL);
		alarm(60);
		_exit(fn(arg));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void COLD_no_other_call(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP("a sanitizer makes calls of its own");
	assert_child(run_child(makes_its_own_calls, NULL), "no filters for this user");
}

/* A line of /proc/self/status. */
static uint64_t status_of(const char *name)
{
	char text[4096] = "", *at;
	int fd = open("/proc/self/status", O_RDONLY);

	if (read(fd, text, sizeof(text) - 1) < 0)
		return 0;
	close(fd);
	at = strstr(text, name);
	return at ? strtoull(at + strlen(name), NULL, 16) : 0;
}

static int descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += own_call(SYS_fcntl, fd, F_GETFD, 0) >= 0;
	return n;
}

static int has_its_own_handlers(void *arg)
{
	uint64_t caught = status_of("SigCgt:");
	int before = descriptors(), ep = epoll_create1(0), s[2], efd;
	uintptr_t action[4] = {0};
	void *bad = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)arg;
	signal(SIGUSR1, handler);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s) || !use(ep, s[0], s[1], 1))
		return 1;
	efd = all_cold() ? eventfd(0, EFD_NONBLOCK) : open("/dev/null", O_RDWR);
	if (all_cold() && (!use(ep, efd, efd, 8) || write(efd, bad, 8) != -1 || errno != EFAULT))
		return 2;
	if (epoll_ctl(ep, EPOLL_CTL_ADD, s[0], bad) != -1 || errno != EFAULT ||
	    write(s[1], "", 1) != 1 ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, s[0], &(struct epoll_event){1, {0}}) ||
	    epoll_wait(ep, bad, 1, 0) != -1 || errno != EFAULT || poll(bad, 1, 0) != -1 ||
	    errno != EFAULT || select(9, bad, NULL, NULL, NULL) != -1 || errno != EFAULT)
		return 3;
	if (status_of("SigCgt:") != (caught | 1ull << (SIGUSR1 - 1)))
		return 4;
	if (own_call(SYS_rt_sigaction, SIGUSR1, 0, 0) != -EINVAL)
		return 5;
	if (own_call6(SYS_rt_sigaction, SIGUSR1, 0, (long)action, 8, 0, 0) ||
	    action[0] != (uintptr_t)handler)
		return 6;
	return descriptors() == before + 4 ? 0 : 7;
}

static void COLD_no_handler_and_no_descriptor(void **state)
{
	(void)state;
	if (SANITIZED == 2)
		SKIP("ThreadSanitizer has a handler of its own before each");
	assert_int_equal(run_child(has_its_own_handlers, NULL), 0);
}

/* --- prepared beside threads that are in the middle of calls ---------------------------------- */

struct racer {
	int fd, ep, answer;
	int way;
};

static void *answers(void *arg)
{
	const struct racer *r = arg;
	struct pollfd p = {.fd = r->fd, .events = POLLIN};
	struct epoll_event ev;
	fd_set set;
	uint64_t v;
	int n;

	for (;;) {
		switch (r->way % 3) {
		case 0:
			n = poll(&p, 1, -1);
			break;
		case 1:
			FD_ZERO(&set);
			FD_SET(r->fd, &set);
			n = select(r->fd + 1, &set, NULL, NULL, NULL);
			break;
		default:
			n = epoll_wait(r->ep, &ev, 1, -1);
			if (n == 1 && ev.data.u64 != 9)
				return arg;
		}
		if (n != 1 || read(r->fd, &v, sizeof(v)) != sizeof(v) || v != 1)
			return arg;
		if (eventfd_write(r->answer, 1))
			return arg;
	}
}

/* Each turn is answered before the next: a wake that is lost is the end. */
static int prepares(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 9};
	int ep = epoll_create1(0), answer, round = *(int *)arg;
	struct racer r[3];
	pthread_t t;
	uint64_t v;

	signal(SIGUSR1, handler);
	for (int i = 0; i < 3; i++)
		r[i].ep = epoll_create1(0);
	/* Every second time the epolls are those of another process as well. */
	if (round % 2 == 0) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		if (waitpid(pid, NULL, 0) != pid)
			return 1;
	}
	answer = eventfd(0, EFD_NONBLOCK);
	if (epoll_ctl(ep, EPOLL_CTL_ADD, answer, &ev))
		return 1;
	for (int i = 0; i < 3; i++) {
		r[i].fd = eventfd(0, EFD_NONBLOCK);
		r[i].answer = answer;
		r[i].way = i;
		if (epoll_ctl(r[i].ep, EPOLL_CTL_ADD, r[i].fd, &ev) ||
		    pthread_create(&t, NULL, answers, &r[i]))
			return 2;
	}
	for (int turn = 0; turn < TURNS; turn++) {
		int n = turn % 7 == round % 7 ? 3 : 1;

		for (int i = 0; i < n; i++)
			if (eventfd_write(r[(turn + i) % 3].fd, 1))
				return 3;
		for (int sum = 0; sum < n; sum += (int)v) {
			if (epoll_wait(ep, &ev, 1, SOON_MS) != 1 || ev.data.u64 != 9)
				return 4;
			if (read(answer, &v, sizeof(v)) != sizeof(v))
				return 5;
		}
		if (turn % 16 == round % 16) {
			/* What is beside it. */
			int other = eventfd(1, EFD_NONBLOCK), again = dup(ep);

			if (epoll_ctl(again, EPOLL_CTL_ADD, other, &(struct epoll_event){0}) ||
			    epoll_ctl(again, EPOLL_CTL_DEL, other, NULL) || close(other) ||
			    close(again) || signal(SIGUSR1, handler) != handler || raise(SIGUSR1))
				return 6;
		}
	}
	return status_of("SigCgt:") >> (SIGSEGV - 1) & 1 ? PREPARED : 0;
}

static void COLD_prepared_beside_calls(void **state)
{
	int prepared = 0;

	(void)state;
	if (SANITIZED)
		SKIP("the child of several threads may find a sanitizer's own locks taken");
	for (int i = 0; i < ROUNDS; i++) {
		int r = run_child(prepares, &i);

		assert_true(r == 0 || (under_pollux() && r == PREPARED));
		prepared += r == PREPARED;
	}
	assert_true(prepared || !under_pollux());
}

static void *answers_for_a_while(void *arg)
{
	const struct racer *r = arg;
	struct epoll_event ev;
	uint64_t v;

	for (int i = 0; i < TURNS;) {
		if (epoll_wait(r->ep, &ev, 1, -1) != 1)
			return arg;
		/* Both may have been woken. */
		if (read(r->fd, &v, sizeof(v)) != sizeof(v))
			continue;
		i++;
		if (eventfd_write(r->answer, 1))
			return arg;
	}
	return NULL;
}

/*
 * Of two threads in one epoll the last to sleep is the first to be woken, so one of them sleeps all
 * the time. When the other is gone it is woken.
 */
static int sleeps_meanwhile(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	int ep = epoll_create1(0), answer = eventfd(0, EFD_NONBLOCK);
	struct racer r = {.fd = eventfd(0, EFD_NONBLOCK), .ep = epoll_create1(0), .answer = answer};
	pthread_t t[2];
	uint64_t v;

	(void)arg;
	if (epoll_ctl(ep, EPOLL_CTL_ADD, answer, &ev) || epoll_ctl(r.ep, EPOLL_CTL_ADD, r.fd, &ev))
		return 1;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&t[i], NULL, answers_for_a_while, &r))
			return 2;
	sleep_ms(20);
	for (int turn = 0; turn < 2 * TURNS; turn++)
		if (eventfd_write(r.fd, 1) || epoll_wait(ep, &ev, 1, SOON_MS) != 1 ||
		    read(answer, &v, sizeof(v)) != sizeof(v) || v != 1)
			return 3;
	for (int i = 0; i < 2; i++)
		if (pthread_join(t[i], NULL))
			return 4;
	return 0;
}

static void COLD_woken_who_has_slept_since_before(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP("the child of several threads may find a sanitizer's own locks taken");
	assert_int_equal(run_child(sleeps_meanwhile, NULL), 0);
}

/* The process is prepared with this, if it was not: fd is written to often, and waited for. */
static bool heats(int ep, int fd)
{
	struct epoll_event ev;
	uint64_t v;

	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < TURNS; i++)
			if (eventfd_write(fd, 1))
				return false;
		if (epoll_wait(ep, &ev, 1, 0) != 1 || read(fd, &v, sizeof(v)) != sizeof(v) ||
		    v != TURNS || epoll_wait(ep, &ev, 1, 0) != 0)
			return false;
	}
	return true;
}

/* Nobody is told of the filter. */
static bool refuse_unseen(int nr)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = f};

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !own_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program);
}

static int heats_without(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 9};
	int ep = epoll_create1(0), fd;

	if (!refuse_unseen(*(int *)arg))
		return EXIT_SKIPPED;
	fd = eventfd(0, EFD_NONBLOCK);
	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) || !heats(ep, fd);
}

static void COLD_not_prepared_without_what_it_takes(void **state)
{
	int calls[] = {SYS_mmap, SYS_rt_sigprocmask, SYS_membarrier, SYS_openat};

	(void)state;
	if (SANITIZED)
		SKIP("a sanitizer makes calls of its own");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		assert_child(run_child(heats_without, &calls[i]), "no filters for this user");
	}
}

struct closed_wait {
	int ep, tid;
	bool polls, woken;
};

static void *waits_once(void *arg)
{
	struct closed_wait *w = arg;
	struct pollfd p = {.fd = w->ep, .events = POLLIN};
	struct epoll_event ev;

	__atomic_store_n(&w->tid, own_call(SYS_gettid, 0, 0, 0), __ATOMIC_RELEASE);
	if (w->polls)
		w->woken = poll(&p, 1, SOON_MS) == 1;
	else
		w->woken = epoll_wait(w->ep, &ev, 1, SOON_MS) == 1 && ev.data.u64 == 9;
	return NULL;
}

/* The wait keeps the epoll open, and with it the registration. */
static int epoll_closed_beside_a_wait(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 9};
	int ep = epoll_create1(0), hot = eventfd(0, EFD_NONBLOCK), fd = eventfd(0, EFD_NONBLOCK);
	struct closed_wait w = {.ep = epoll_create1(0), .polls = *(bool *)arg};
	pthread_t t;
	uint64_t v;

	if (epoll_ctl(w.ep, EPOLL_CTL_ADD, fd, &ev) || epoll_ctl(ep, EPOLL_CTL_ADD, hot, &ev))
		return 1;
	for (int i = 0; i < 5; i++)
		if (eventfd_write(fd, 1))
			return 2;
	if (read(fd, &v, sizeof(v)) != sizeof(v) || pthread_create(&t, NULL, waits_once, &w))
		return 3;
	while (!__atomic_load_n(&w.tid, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	if (!task_asleep(OF_THREAD, w.tid, NULL) || close(w.ep) || !heats(ep, hot))
		return 4;
	if (eventfd_write(fd, 1) || pthread_join(t, NULL) || !w.woken)
		return 5;
	return 0;
}

static void COLD_epoll_closed_beside_a_wait(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP("the child of several threads may find a sanitizer's own locks taken");
	for (int i = 0; i < 2; i++)
		assert_int_equal(run_child(epoll_closed_beside_a_wait, &(bool){i}), 0);
}

/*
 * ep watches a file that has no number any more, under that which fd has now; the epoll that
 * watched fd is closed.
 */
static int number_of_another_file(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 5};
	int ep = epoll_create1(0), closed = epoll_create1(0), hot_ep = epoll_create1(0);
	int hot = eventfd(0, EFD_NONBLOCK), s[2], kept, fd;
	uint64_t v;

	(void)arg;
	if (epoll_ctl(hot_ep, EPOLL_CTL_ADD, hot, &ev) || socketpair(AF_UNIX, SOCK_STREAM, 0, s) ||
	    epoll_ctl(ep, EPOLL_CTL_ADD, s[0], &ev))
		return 1;
	kept = dup(s[0]);
	close(s[0]);
	fd = eventfd(0, EFD_NONBLOCK);
	if (fd != s[0] || epoll_ctl(closed, EPOLL_CTL_ADD, fd, &ev) || close(closed))
		return 2;
	for (int turn = 0; turn < 3; turn++) {
		if (!heats(hot_ep, hot))
			return 3;
		for (int i = 0; i < TURNS; i++)
			if (eventfd_write(fd, 1))
				return 4;
		if (epoll_wait(ep, &ev, 1, 0) != 0 || read(fd, &v, sizeof(v)) != sizeof(v) ||
		    v != TURNS)
			return 5;
		if (write(s[1], "", 1) != 1 || epoll_wait(ep, &ev, 1, 0) != 1 || ev.data.u64 != 5 ||
		    read(kept, &v, 1) != 1)
			return 6;
	}
	return 0;
}

static void COLD_number_of_another_file(void **state)
{
	(void)state;
	assert_int_equal(run_child(number_of_another_file, NULL), 0);
}

/* None of these closes the epoll. */
static bool closes_nothing(int way, int ep)
{
	switch (way) {
	case 0:
		return close_range(ep, ep, CLOSE_RANGE_CLOEXEC) == 0;
	case 1:
		return close_range(ep, ep, 1u << 31) < 0 && errno == EINVAL;
	case 2:
		return dup2(-1, ep) < 0 && errno == EBADF;
	case 3:
		return dup3(1000000, ep, O_CLOEXEC) < 0 && errno == EBADF;
	case 4:
		return dup2(ep, ep) == ep;
	default:
		return dup3(STDOUT_FILENO, ep, 1) < 0 && errno == EINVAL;
	}
}

static int epoll_that_stays(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 5};
	int ep = epoll_create1(0), hot_ep = epoll_create1(0);
	int fd = eventfd(0, EFD_NONBLOCK), hot = eventfd(0, EFD_NONBLOCK);
	uint64_t v;

	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) || epoll_ctl(hot_ep, EPOLL_CTL_ADD, hot, &ev) ||
	    !closes_nothing(*(int *)arg, ep))
		return 1;
	for (int turn = 0; turn < 3; turn++) {
		if (!heats(hot_ep, hot))
			return 2;
		for (int i = 0; i < TURNS; i++)
			if (eventfd_write(fd, 1))
				return 3;
		if (epoll_wait(ep, &ev, 1, 0) != 1 || read(fd, &v, sizeof(v)) != sizeof(v))
			return 4;
	}
	return 0;
}

static void COLD_epoll_that_stays(void **state)
{
	(void)state;
	for (int way = 0; way < 6; way++)
		assert_int_equal(run_child(epoll_that_stays, &way), 0);
}

/*
 * An epoll that another one watches loses the number by which it does, and goes on by a duplicate.
 * raw: closed past libc.
 */
static int nested_by_a_closed_number(void *arg)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 5};
	int ep = epoll_create1(0), number = dup(ep), outer = epoll_create1(0), fd;
	uint64_t v;

	if (epoll_ctl(outer, EPOLL_CTL_ADD, number, &ev) ||
	    (*(bool *)arg ? syscall(SYS_close, number) : close(number)))
		return 1;
	fd = eventfd(0, EFD_NONBLOCK);
	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev))
		return 2;
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < TURNS; i++)
			if (eventfd_write(fd, 1) || epoll_wait(ep, &ev, 1, 0) != 1 ||
			    read(fd, &v, sizeof(v)) != sizeof(v))
				return 3;
		if (epoll_wait(outer, &ev, 1, 0) != 0 || eventfd_write(fd, 1) ||
		    epoll_wait(outer, &ev, 1, 0) != 1 || read(fd, &v, sizeof(v)) != sizeof(v))
			return 4;
	}
	return 0;
}

static void COLD_nested_by_a_number_that_is_closed(void **state)
{
	(void)state;
	for (int raw = 0; raw < 2; raw++)
		assert_int_equal(run_child(nested_by_a_closed_number, &(bool){raw}), 0);
}

/* A program that contains liburing makes and maps its ring by instructions. */
static int ring_by_instruction(void *arg)
{
	struct io_uring_params par = {0};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 9};
	int ep = epoll_create1(0), ring = (int)own_call(SYS_io_uring_setup, 2, (long)&par, 0), fd;

	(void)arg;
	if (ring < 0)
		return EXIT_SKIPPED;
	if (mmap(NULL, par.sq_off.array + par.sq_entries * sizeof(int), PROT_READ, MAP_SHARED, ring,
		 IORING_OFF_SQ_RING) == MAP_FAILED)
		return 1;
	fd = eventfd(0, EFD_NONBLOCK);
	if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) || !heats(ep, fd))
		return 2;
	return fd_served(fd) ? 3 : 0;
}

static void COLD_no_descriptor_is_cached_beside_a_ring(void **state)
{
	int r = run_child(ring_by_instruction, NULL);

	(void)state;
	if (r == EXIT_SKIPPED)
		skip();
	assert_int_equal(r, 0);
}

/* --- adoption ends beside it ------------------------------------------------------------------ */

enum { END_RING, END_OWN_TABLE, END_FILTER, END_RING_THEN_AIO, ENDS };

static const int heater_calls[] = {
	SYS_read,	  SYS_write,	 SYS_close,	      SYS_epoll_pwait,
	SYS_futex,	  SYS_nanosleep, SYS_clock_nanosleep, SYS_rt_sigprocmask,
	SYS_rt_sigreturn, SYS_madvise,	 SYS_munmap,	      SYS_exit,
	SYS_exit_group,
#ifdef SYS_epoll_wait
	SYS_epoll_wait,
#endif
};

static bool ends_adoption(int how)
{
	/* One with flags is for more than registrations. */
	struct io_uring_params par = {.flags = IORING_SETUP_CLAMP};
	aio_context_t ctx = 0;

	switch (how) {
	case END_RING:
		return syscall(SYS_io_uring_setup, 2, &par) >= 0;
	case END_OWN_TABLE:
		return unshare(CLONE_FILES) == 0;
	case END_FILTER:
		return confine(heater_calls, sizeof(heater_calls) / sizeof(heater_calls[0]),
			       SECCOMP_RET_KILL_PROCESS, CONFINE_ALL);
	default:
		return syscall(SYS_io_uring_setup, 2, &par) >= 0 &&
		       syscall(SYS_io_setup, 1, &ctx) == 0;
	}
}

struct heater {
	int ep, fd;
	bool begun;
};

static void *heats_in_thread(void *arg)
{
	struct heater *h = arg;

	__atomic_store_n(&h->begun, true, __ATOMIC_RELEASE);
	return heats(h->ep, h->fd) && heats(h->ep, h->fd) ? NULL : arg;
}

struct ending {
	int how, delay_us;
};

/* From then on the kernel has all counts, whoever looks. */
static int ends_beside(void *arg)
{
	const struct ending *end = arg;
	struct epoll_event ev = {.events = EPOLLIN};
	struct heater h = {.ep = epoll_create1(0), .fd = eventfd(0, EFD_NONBLOCK)};
	const struct timespec delay = {.tv_nsec = end->delay_us * 1000l};
	pthread_t t;
	uint64_t v;
	void *r;

	if (epoll_ctl(h.ep, EPOLL_CTL_ADD, h.fd, &ev) ||
	    pthread_create(&t, NULL, heats_in_thread, &h))
		return 1;
	while (!__atomic_load_n(&h.begun, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	nanosleep(&delay, NULL);
	if (!ends_adoption(end->how))
		return EXIT_SKIPPED;
	if (pthread_join(t, &r) || r || !heats(h.ep, h.fd))
		return 2;
	return eventfd_write(h.fd, 1) || own_call(SYS_read, h.fd, (long)&v, sizeof(v)) != 8 ||
	       v != 1;
}

static void COLD_adoption_ends_beside_it(void **state)
{
	int n = 0;

	(void)state;
	if (SANITIZED)
		SKIP("the child of several threads may find a sanitizer's own locks taken");
	for (int i = 0; i < ENDS * ROUNDS / 4; i++) {
		struct ending end = {.how = i % ENDS, .delay_us = i * 7919 % 3000};
		int r = run_child(ends_beside, &end);

		assert_true(r == 0 || r == EXIT_SKIPPED);
		n += r == 0;
	}
	if (!n)
		SKIP("no rings, no tables and no filters for this user");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(COLD_no_other_call),
		cmocka_unit_test(COLD_no_handler_and_no_descriptor),
		cmocka_unit_test(COLD_prepared_beside_calls),
		cmocka_unit_test(COLD_woken_who_has_slept_since_before),
		cmocka_unit_test(COLD_not_prepared_without_what_it_takes),
		cmocka_unit_test(COLD_epoll_closed_beside_a_wait),
		cmocka_unit_test(COLD_number_of_another_file),
		cmocka_unit_test(COLD_epoll_that_stays),
		cmocka_unit_test(COLD_nested_by_a_number_that_is_closed),
		cmocka_unit_test(COLD_no_descriptor_is_cached_beside_a_ring),
		cmocka_unit_test(COLD_adoption_ends_beside_it),
	};

	return run_group(tests);
}
