/* SPDX-License-Identifier: MIT */
/*
 * What the tests of readiness, keys, timeouts and signals are run on.
 *
 * The same claim is checked on several kinds of file (struct sub), through
 * several entries into the system (enum entry) and on several shapes of
 * interest set (struct wset), because an implementation in user space serves
 * some files itself and leaves others to the kernel, and the waits over both
 * are where the two have to agree.
 *
 * Only the main thread of the main process may fail a test; functions used in
 * other threads or in children return what happened instead.
 */
#ifndef TESTS_CONFORMANCE_WAITS_H
#define TESTS_CONFORMANCE_WAITS_H

#include "harness.h"
#include <limits.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define JOIN_MS 20000

/* One readable file and the end through which it becomes readable. */
enum sub_kind { SUB_EVENTFD, SUB_PIPE, SUB_SOCKET, SUB_KINDS };

struct sub {
	enum sub_kind kind;
	int fd;
	int peer;
};

static inline struct sub sub_open(enum sub_kind kind)
{
	struct sub s = {.kind = kind, .fd = -1, .peer = -1};
	int p[2];

	switch (kind) {
	case SUB_PIPE:
		assert_ok(pipe2(p, O_NONBLOCK | O_CLOEXEC));
		s.fd = p[0];
		s.peer = p[1];
		break;
	case SUB_SOCKET:
		assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, p));
		s.fd = p[0];
		s.peer = p[1];
		break;
	default:
		s.fd = (int)assert_ok(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	}
	return s;
}

/* One successful write that makes a file of this kind readable, through descriptor via. */
static inline bool sub_write(enum sub_kind kind, int via)
{
	uint64_t one = 1;

	if (kind == SUB_EVENTFD)
		return write(via, &one, sizeof(one)) == (ssize_t)sizeof(one);
	return write(via, "x", 1) == 1;
}

static inline bool sub_poke(const struct sub *s)
{
	return sub_write(s->kind, s->kind == SUB_EVENTFD ? s->fd : s->peer);
}

static inline void sub_signal(const struct sub *s)
{
	assert_true(sub_poke(s));
}

/*
 * Wakes whoever watches s and leaves it as it was, which must not be readable:
 * an eventfd takes a 0, a pipe wakes its pollers even for a write that fails.
 */
static inline bool sub_poke_in_vain(const struct sub *s)
{
	uint64_t zero = 0;
	const void *bad = (const void *)8;

	if (s->kind == SUB_EVENTFD)
		return write(s->fd, &zero, sizeof(zero)) == (ssize_t)sizeof(zero);
	__asm__("" : "+r"(bad));
	return write(s->peer, bad, 1) == -1 && errno == EFAULT;
}

/* Reads through descriptor fd until nothing is left. */
static inline void drain_fd(int fd)
{
	char buf[4096];

	while (read(fd, buf, sizeof(buf)) > 0)
		;
}

static inline void sub_drain(const struct sub *s)
{
	drain_fd(s->fd);
}

static inline void sub_close(struct sub *s)
{
	if (s->fd >= 0)
		close(s->fd);
	if (s->peer >= 0)
		close(s->peer);
	s->fd = s->peer = -1;
}

static inline int ep_new(void)
{
	return (int)assert_ok(epoll_create1(EPOLL_CLOEXEC));
}

static inline void ep_add(int ep, int fd, uint32_t events, uint64_t data)
{
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, events, data));
}

static inline void ep_mod(int ep, int fd, uint32_t events, uint64_t data)
{
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, fd, events, data));
}

static inline void ep_del(int ep, int fd)
{
	assert_ok(epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL));
}

static inline int dup_of(int fd)
{
	return (int)assert_ok(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

static inline int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* The entries through which a program can wait. */
enum entry {
	BY_WAIT,
	BY_PWAIT,
	BY_PWAIT2,
	BY_RAW_WAIT,
	BY_RAW_PWAIT,
	BY_RAW_PWAIT2,
	ENTRIES,
};

static inline bool entry_takes_mask(enum entry e)
{
	return e != BY_WAIT && e != BY_RAW_WAIT;
}

static inline int wait_by(enum entry e, int ep, struct epoll_event *ev, int max, int ms,
			  const sigset_t *mask)
{
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
	struct timespec *tsp = ms < 0 ? NULL : &ts;

	/* Wrong arguments are part of the tests: the compiler is not to judge them. */
	__asm__("" : "+r"(ev), "+r"(max));
	switch (e) {
	case BY_WAIT:
		return epoll_wait(ep, ev, max, ms);
	case BY_PWAIT:
		return epoll_pwait(ep, ev, max, ms, mask);
	case BY_PWAIT2:
		return epoll_pwait2(ep, ev, max, tsp, mask);
	case BY_RAW_WAIT:
#ifdef SYS_epoll_wait
		return (int)syscall(SYS_epoll_wait, ep, ev, max, ms);
#else
		return (int)syscall(SYS_epoll_pwait, ep, ev, max, ms, NULL, 8L);
#endif
	case BY_RAW_PWAIT:
		return (int)syscall(SYS_epoll_pwait, ep, ev, max, ms, mask, 8L);
	default:
		return (int)syscall(SYS_epoll_pwait2, ep, ev, max, tsp, mask, 8L);
	}
}

/* The shapes of interest set on which a wait is tried. */
/*
 * In a mixed set Pollux keeps the order of the in-process files and that of the kernel's
 * files, not one order over both (README, Limits): no claims about it are made there.
 */
#define NO_COMMON_ORDER(set) (((set) == SET_MIXED || (set) == SET_NESTED_MIXED) && under_pollux())
#define SKIP_WITHOUT_COMMON_ORDER(set)                                                             \
	do {                                                                                       \
		if (NO_COMMON_ORDER(set)) {                                                        \
			print_message("skipped: known deviation: no common order of in-process "   \
				      "and kernel files\n");                                       \
			skip();                                                                    \
		}                                                                                  \
	} while (0)

enum wset_kind { SET_EVENTFD, SET_PIPE, SET_MIXED, SET_NESTED, SET_NESTED_MIXED, SET_KINDS };

struct wset {
	int ep;
	int inner;
	int nsub;
	struct sub sub[3];
	uint64_t data[3]; /* what ep reports when sub[i] is ready */
};

#define WSET_INNER 100

static inline void wset_put(struct wset *w, int in, enum sub_kind kind, uint32_t events)
{
	int i = w->nsub++;

	w->sub[i] = sub_open(kind);
	w->data[i] = in == w->ep ? (uint64_t)i + 1 : WSET_INNER;
	ep_add(in, w->sub[i].fd, events, (uint64_t)i + 1);
}

/* flags (EPOLLET, EPOLLONESHOT) go to every item of the set, the nested link included. */
static inline struct wset wset_open(enum wset_kind kind, uint32_t flags)
{
	struct wset w = {.ep = ep_new(), .inner = -1};
	uint32_t events = EPOLLIN | flags;

	switch (kind) {
	case SET_EVENTFD:
		wset_put(&w, w.ep, SUB_EVENTFD, events);
		break;
	case SET_PIPE:
		wset_put(&w, w.ep, SUB_PIPE, events);
		break;
	case SET_MIXED:
		wset_put(&w, w.ep, SUB_EVENTFD, events);
		wset_put(&w, w.ep, SUB_PIPE, events);
		break;
	case SET_NESTED:
		w.inner = ep_new();
		ep_add(w.ep, w.inner, events, WSET_INNER);
		wset_put(&w, w.inner, SUB_EVENTFD, events);
		break;
	default:
		w.inner = ep_new();
		ep_add(w.ep, w.inner, events, WSET_INNER);
		wset_put(&w, w.inner, SUB_EVENTFD, events);
		wset_put(&w, w.inner, SUB_PIPE, events);
		wset_put(&w, w.ep, SUB_EVENTFD, events);
	}
	return w;
}

static inline void wset_close(struct wset *w)
{
	for (int i = 0; i < w->nsub; i++)
		sub_close(&w->sub[i]);
	if (w->inner >= 0)
		close(w->inner);
	close(w->ep);
}

/* A thread that makes one wait and tells what it returned and how long it took. */
struct waiter {
	struct test_thread t;
	enum entry how;
	int ep;
	int ms;
	const sigset_t *mask;
	int ret;
	int err;
	int64_t ns;
	struct epoll_event ev[8];
};

static inline void *waiter_main(void *arg)
{
	struct waiter *w = arg;
	int64_t start = now_ns();

	errno = 0;
	w->ret = wait_by(w->how, w->ep, w->ev, 8, w->ms, w->mask);
	w->err = errno;
	w->ns = now_ns() - start;
	return NULL;
}

static inline void waiter_start(struct waiter *w, enum entry how, int ep, int ms,
				const sigset_t *mask)
{
	memset(w, 0, sizeof(*w));
	w->how = how;
	w->ep = ep;
	w->ms = ms;
	w->mask = mask;
	thread_start(&w->t, waiter_main, w);
}

/* Starts the wait and returns when the thread sleeps in it. */
static inline void waiter_sleep(struct waiter *w, enum entry how, int ep, int ms,
				const sigset_t *mask)
{
	waiter_start(w, how, ep, ms, mask);
	assert_true(thread_asleep(&w->t));
}

static inline void waiter_join(struct waiter *w)
{
	assert_true(thread_join(&w->t, JOIN_MS));
}

/* The wait ended with exactly one event, with this data. */
static inline void waiter_got(struct waiter *w, uint64_t data)
{
	waiter_join(w);
	assert_int_equal(w->ret, 1);
	assert_int_equal(w->ev[0].data.u64, data);
}

/*
 * Forks a child that runs fn and exits with its result. A child that hangs is
 * ended by its alarm; one whose parent is gone ends too.
 */
static inline pid_t child_start(int (*fn)(void *), void *arg)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGALRM, SIG_DFL);
		alarm(30);
		_exit(fn(arg));
	}
	assert_true(pid > 0);
	return pid;
}

static inline int child_wait(pid_t pid)
{
	int status = -1;
	pid_t r;

	do {
		r = waitpid(pid, &status, 0);
	} while (r == -1 && errno == EINTR);
	assert_int_equal(r, pid);
	return status;
}

/* Asserts that the child exits with 0; child_check has printed where it went wrong. */
static inline void child_passes(pid_t pid)
{
	int status = child_wait(pid);

	if (status != 0)
		print_error("child: %s %d\n", WIFSIGNALED(status) ? "signal" : "exit code",
			    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	assert_int_equal(status, 0);
}

#define CHILD_FAILED 99

/* In a child: say what is wrong and leave. */
#define child_check(cond)                                                                          \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			dprintf(2, "child: %s:%d: %s (errno %d)\n", __FILE__, __LINE__, #cond,     \
				errno);                                                            \
			_exit(CHILD_FAILED);                                                       \
		}                                                                                  \
	} while (0)

/* Waits up to ms milliseconds until the main thread of the process is in this state. */
static inline bool process_reaches(pid_t pid, char state, int ms)
{
	char path[64], line[512];
	int64_t end = now_ms() + ms;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	do {
		FILE *f = fopen(path, "re");
		char *p = NULL;

		if (f == NULL)
			return false;
		if (fgets(line, sizeof(line), f) != NULL)
			p = strrchr(line, ')');
		fclose(f);
		if (p != NULL && p[1] == ' ' && p[2] == state)
			return true;
		sleep_ms(1);
	} while (now_ms() < end);
	return false;
}

/* Entries of the test table: one claim on every kind of file, or on every shape of set. */
static const enum sub_kind sub_kinds[] = {SUB_EVENTFD, SUB_PIPE, SUB_SOCKET};
static const enum wset_kind set_kinds[] = {SET_EVENTFD, SET_PIPE, SET_MIXED, SET_NESTED,
					   SET_NESTED_MIXED};

#define SUB_OF(state) (*(const enum sub_kind *)*(state))
#define SET_OF(state) (*(const enum wset_kind *)*(state))

#define VARIANT(fn, suffix, what)                                                                  \
	{                                                                                          \
		.name = #fn suffix, .test_func = fn, .initial_state = (void *)(uintptr_t)(what)    \
	}

#define EACH_SUB(fn)                                                                               \
	VARIANT(fn, "_eventfd", &sub_kinds[0]), VARIANT(fn, "_pipe", &sub_kinds[1]),               \
		VARIANT(fn, "_socket", &sub_kinds[2])

#define EACH_FLAT_SET(fn)                                                                          \
	VARIANT(fn, "_eventfd", &set_kinds[0]), VARIANT(fn, "_pipe", &set_kinds[1]),               \
		VARIANT(fn, "_mixed", &set_kinds[2])

#define EACH_SET(fn)                                                                               \
	VARIANT(fn, "_eventfd", &set_kinds[0]), VARIANT(fn, "_pipe", &set_kinds[1]),               \
		VARIANT(fn, "_mixed", &set_kinds[2]), VARIANT(fn, "_nested", &set_kinds[3]),       \
		VARIANT(fn, "_nested_mixed", &set_kinds[4])

#endif
