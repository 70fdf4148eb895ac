/* SPDX-License-Identifier: MIT */
/*
 * What the tests of epolls share: files that one write makes readable, interest sets of them, the
 * entries through which a program waits, threads that wait, children, and what holds others up.
 *
 * The same claim is checked on several kinds of file, through several entries and on several shapes
 * of set, because an implementation in user space serves some files itself and leaves others to the
 * kernel, and the waits over both are where the two have to agree.
 *
 * Only the main thread of the main process may fail a test; functions used in other threads or in
 * children return what happened instead.
 */
#ifndef TESTS_CONFORMANCE_WAITING_H
#define TESTS_CONFORMANCE_WAITING_H

#include "harness.h"

#include <limits.h>
#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#define COUNT_MAX 0xfffffffffffffffeull

/* --- files ---------------------------------------------------------------------------------- */

/* The eventfd is the kind that Pollux serves in process, pipe and socket are the kernel's. */
enum kind { KIND_EVENTFD, KIND_PIPE, KIND_SOCKET };

struct subject {
	enum kind kind;
	int fd;	  /* the watched end */
	int peer; /* written to make fd readable; fd itself for an eventfd */
};

static inline struct subject subject_new(enum kind kind)
{
	struct subject s = {.kind = kind};
	int p[2];

	switch (kind) {
	case KIND_PIPE:
		assert_ok(pipe2(p, O_NONBLOCK | O_CLOEXEC));
		break;
	case KIND_SOCKET:
		assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, p));
		break;
	default:
		p[0] = p[1] = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);
	}
	s.fd = p[0];
	s.peer = p[1];
	return s;
}

/* One successful write that makes a file of this kind readable, through descriptor via. */
static inline bool kind_write(enum kind kind, int via)
{
	uint64_t one = 1;
	size_t n = kind == KIND_EVENTFD ? sizeof(one) : 1;

	return write(via, &one, n) == (ssize_t)n;
}

static inline bool subject_poke(const struct subject *s)
{
	return kind_write(s->kind, s->peer);
}

/* One write: fd becomes or stays readable, and there is an edge. */
static inline void subject_fill(const struct subject *s)
{
	assert_true(subject_poke(s));
}

static inline struct subject subject_ready(enum kind kind)
{
	struct subject s = subject_new(kind);

	subject_fill(&s);
	return s;
}

/*
 * Wakes whoever watches s and leaves it as it was, which must not be readable:
 * an eventfd takes a 0, a pipe wakes its pollers even for a write that fails.
 */
static inline bool subject_poke_in_vain(const struct subject *s)
{
	uint64_t zero = 0;
	const void *bad = (const void *)8;

	if (s->kind == KIND_EVENTFD)
		return write(s->peer, &zero, sizeof(zero)) == (ssize_t)sizeof(zero);
	__asm__("" : "+r"(bad));
	return write(s->peer, bad, 1) == -1 && errno == EFAULT;
}

/* Takes one unit of what a write put in; false when there is none. */
static inline bool subject_take(const struct subject *s)
{
	uint64_t v;

	return read(s->fd, &v, s->kind == KIND_EVENTFD ? sizeof(v) : 1) > 0;
}

/* Reads through descriptor fd until nothing is left. */
static inline void drain_fd(int fd)
{
	char buf[4096];

	while (read(fd, buf, sizeof(buf)) > 0)
		;
}

static inline void subject_drain(const struct subject *s)
{
	drain_fd(s->fd);
}

/* What the test has closed is -1. */
static inline void subject_close(struct subject *s)
{
	if (s->fd >= 0)
		assert_ok(close(s->fd));
	if (s->kind != KIND_EVENTFD && s->peer >= 0)
		assert_ok(close(s->peer));
	s->fd = s->peer = -1;
}

/*
 * close of a number on which another thread sleeps. The thread sanitizer takes
 * it for a mistake; where it is the subject of a test, it must not see it.
 */
static inline int close_in_use(int fd)
{
#ifdef __SANITIZE_THREAD__
	return (int)syscall(SYS_close, fd);
#else
	return close(fd);
#endif
}

/* Whether the kernel cuts a single piece of readv to what it transfers before it judges it. */
static inline bool long_piece_is_cut(void)
{
	static char byte;
	const struct iovec iov = {.iov_base = &byte, .iov_len = (size_t)1 << 62};
	int fd = (int)assert_ok(open("/dev/null", O_RDONLY | O_CLOEXEC));
	bool cut = readv(fd, &iov, 1) == 0;

	assert_ok(close(fd));
	return cut;
}

/* A number that is not open and stays so as long as nothing is opened. */
static inline int fd_closed(void)
{
	int fd = (int)assert_ok(open("/dev/null", O_RDONLY | O_CLOEXEC));

	assert_ok(close(fd));
	return fd;
}

static inline int dup_of(int fd)
{
	return (int)assert_ok(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

/* --- epolls --------------------------------------------------------------------------------- */

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

#define INFO_MAX 8192

/* What fdinfo says of the number. */
static inline void info_read(int fd, char *buf)
{
	char path[64];
	size_t len = 0;
	ssize_t n;
	int f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = assert_ok(open(path, O_RDONLY | O_CLOEXEC));
	while ((n = read(f, buf + len, INFO_MAX - 1 - len)) > 0)
		len += (size_t)n;
	assert_int_equal(n, 0);
	buf[len] = '\0';
	assert_ok(close(f));
}

static inline int info_items(const char *info)
{
	int n = strncmp(info, "tfd:", 4) == 0;

	while ((info = strstr(info, "\ntfd:")) != NULL) {
		n++;
		info++;
	}
	return n;
}

/* epoll_ctl through libc's syscall(), an entry of equal rank. */
static inline int raw_ctl(int ep, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev;

	memset(&ev, 0, sizeof(ev));
	ev.events = events;
	ev.data.u64 = data;
	return (int)syscall(SYS_epoll_ctl, ep, op, fd, &ev);
}

/*
 * Collects with timeout 0 and compares the data of the events, in order, with
 * the n given numbers.
 */
static inline bool ep_order(int ep, int n, ...)
{
	struct epoll_event ev[64];
	int got = ep_poll(ep, ev, 64);
	bool same = got == n;
	va_list ap;

	va_start(ap, n);
	for (int i = 0; same && i < n; i++)
		same = ev[i].data.u64 == (uint64_t)va_arg(ap, int);
	va_end(ap);
	if (!same) {
		print_error("expected %d events, got %d:", n, got);
		for (int i = 0; i < got; i++)
			print_error(" %llu", (unsigned long long)ev[i].data.u64);
		print_error("\n");
	}
	return same;
}

/* Like ep_order, whatever the order; the numbers must differ and be below 64. */
static inline bool ep_set(int ep, int n, ...)
{
	struct epoll_event ev[64];
	int got = ep_poll(ep, ev, 64);
	uint64_t want = 0, have = 0;
	va_list ap;

	va_start(ap, n);
	for (int i = 0; i < n; i++)
		want |= (uint64_t)1 << va_arg(ap, int);
	va_end(ap);
	for (int i = 0; i < got; i++)
		have |= ev[i].data.u64 < 64 ? (uint64_t)1 << ev[i].data.u64 : 0;
	if (got != n || have != want)
		print_error("expected %d events %#llx, got %d: %#llx\n", n,
			    (unsigned long long)want, got, (unsigned long long)have);
	return got == n && have == want;
}

/*
 * An escape has written the count of fd to the kernel's object, which may report an edge once more
 * that was collected before (docs/compatibility.md). Takes that event, if there is one, and asserts
 * that there is no other. On the plain kernel there is none.
 */
static inline void ep_take_repeat(int ep, int fd, uint64_t data)
{
	struct epoll_event ev[2];
	int n = ep_poll(ep, ev, 2);

	assert_uint_in_range(n, 0, edge_may_repeat(fd));
	if (n == 1) {
		assert_int_equal(ev[0].events, EPOLLIN);
		assert_int_equal(ev[0].data.u64, data);
	}
	assert_int_equal(ep_count(ep), 0);
}

/* The same where one event has to come, with other data: which of the two is first is open. */
static inline bool ep_one_and_repeat(int ep, uint64_t want, int fd, uint64_t data)
{
	struct epoll_event ev[3];
	int n = ep_poll(ep, ev, 3);

	if (n == 2 && edge_may_repeat(fd))
		return (ev[0].data.u64 == want && ev[1].data.u64 == data) ||
		       (ev[0].data.u64 == data && ev[1].data.u64 == want);
	return n == 1 && ev[0].data.u64 == want;
}

/* One collection of at most max events must deliver these letters in this order. */
#define assert_order(ep, max, want) order_check(ep, max, want, __FILE__, __LINE__)
static inline void order_check(int ep, int max, const char *want, const char *file, int line)
{
	struct epoll_event ev[16];
	char got[17] = "";
	int n = epoll_wait(ep, ev, max, 0);

	for (int i = 0; i < n; i++)
		got[i] = (char)ev[i].data.u64;
	if (n < 0 || strcmp(got, want) != 0) {
		print_error("%s:%d: collected %d \"%s\", expected \"%s\"\n", file, line, n, got,
			    want);
		fail();
	}
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

/* --- threads that wait ---------------------------------------------------------------------- */

/* A thread that makes one wait on an epoll, or polls it, and tells what came of it. */
struct waiter {
	struct test_thread t;
	enum entry how;
	int ep;
	int max;
	int ms;
	const sigset_t *mask;
	bool polls;
	int n;
	int err;
	short revents;
	int64_t ns;
	struct epoll_event ev[8];
};

static inline void *waiter_main(void *arg)
{
	struct waiter *w = arg;
	int64_t start = now_ns();

	errno = 0;
	if (w->polls) {
		struct pollfd p = {.fd = w->ep, .events = POLLIN};

		w->n = poll(&p, 1, w->ms);
		w->revents = p.revents;
	} else {
		w->n = wait_by(w->how, w->ep, w->ev, w->max, w->ms, w->mask);
	}
	w->err = errno;
	w->ns = now_ns() - start;
	return NULL;
}

static inline void waiter_start(struct waiter *w, enum entry how, int ep, int ms,
				const sigset_t *mask)
{
	*w = (struct waiter){.how = how, .ep = ep, .max = 8, .ms = ms, .mask = mask};
	thread_start(&w->t, waiter_main, w);
}

/* Starts the wait and returns when the thread sleeps in it. */
static inline void waiter_sleep(struct waiter *w, enum entry how, int ep, int ms,
				const sigset_t *mask)
{
	waiter_start(w, how, ep, ms, mask);
	assert_true(thread_asleep(&w->t));
}

/*
 * These live on the heap: one that a failed test leaves behind must not write into the stack of the
 * next test.
 */
static inline struct waiter *waiter_begin(int ep, int max, int ms, enum entry how)
{
	struct waiter *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	*w = (struct waiter){.how = how, .ep = ep, .max = max, .ms = ms};
	thread_start(&w->t, waiter_main, w);
	return w;
}

/* Begins a wait without limit and returns when the thread sleeps in it. */
static inline struct waiter *waiter_new(int ep, int max)
{
	struct waiter *w = waiter_begin(ep, max, -1, BY_WAIT);

	assert_true(thread_asleep(&w->t));
	return w;
}

static inline struct waiter *poller_new(int ep)
{
	struct waiter *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	*w = (struct waiter){.ep = ep, .ms = -1, .polls = true};
	thread_start(&w->t, waiter_main, w);
	assert_true(thread_asleep(&w->t));
	return w;
}

/* True when the waiter goes on sleeping. */
static inline bool waiter_sleeps(struct waiter *w)
{
	sleep_ms(QUIET_MS);
	return thread_asleep(&w->t);
}

/*
 * SIGALRM every so many microseconds, with 0 no more. One alone may come before the wait that it is
 * to interrupt.
 */
static inline void alarms_every(int usec)
{
	const struct itimerval it = {{0, usec}, {0, usec}};

	assert_ok(setitimer(ITIMER_REAL, &it, NULL));
}

static inline void waiter_join(struct waiter *w)
{
	assert_true(thread_join(&w->t, SOON_MS));
}

/* The wait ended with exactly one event, with this data. */
static inline void waiter_collected(struct waiter *w, uint64_t data)
{
	waiter_join(w);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->ev[0].data.u64, data);
}

/* The same for one on the heap, which goes. */
static inline void waiter_gets(struct waiter *w, uint64_t data)
{
	waiter_collected(w, data);
	free(w);
}

static inline void waiter_got(struct waiter *w, uint32_t events, uint64_t data)
{
	waiter_collected(w, data);
	assert_int_equal(w->ev[0].events, events);
	free(w);
}

static inline void poller_got_in(struct waiter *w)
{
	waiter_join(w);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->revents, POLLIN);
	free(w);
}

/* Ends a wait that nothing ended, by an item of its own that is ready. */
static inline void waiter_stop(struct waiter *w)
{
	int e = efd_new(1, EFD_NONBLOCK);

	assert_ok(ep_ctl(w->ep, EPOLL_CTL_ADD, e, EPOLLIN, UINT64_MAX));
	waiter_join(w);
	assert_int_equal(w->n, 1);
	if (!w->polls)
		assert_int_equal(w->ev[0].data.u64, UINT64_MAX);
	assert_ok(ep_ctl(w->ep, EPOLL_CTL_DEL, e, 0, 0));
	close(e);
	free(w);
}

/* Index of a waiter that has ended, or -1 if none ends within ms. */
static inline int waiters_first_done(struct waiter **w, int n, int ms)
{
	int64_t end = now_ms() + ms;

	do {
		for (int i = 0; i < n; i++)
			if (w[i] != NULL && thread_done(&w[i]->t))
				return i;
		sleep_ms(1);
	} while (now_ms() < end);
	return -1;
}

/* None of them ends for a while, and all of them sleep. */
static inline void waiters_stay(struct waiter **w, int n)
{
	sleep_ms(QUIET_MS);
	for (int i = 0; i < n; i++) {
		if (w[i] == NULL)
			continue;
		assert_false(thread_done(&w[i]->t));
		assert_true(thread_asleep(&w[i]->t));
	}
}

/* Ends all waiters of ep with a level-triggered item that stays ready. */
static inline void waiters_release(int ep, struct waiter **w, int n)
{
	int fd = efd_new(1, 0);

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 'Z'));
	for (int i = 0; i < n; i++) {
		if (w[i] == NULL)
			continue;
		waiter_gets(w[i], 'Z');
		w[i] = NULL;
	}
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, fd, 0, 0));
	close(fd);
}

/*
 * A thread that fills a subject when told to, as near as it can be to what the
 * main thread does then.
 */
struct race {
	struct test_thread t;
	struct subject s;
	int go;
	int done;
	int failed;
};

static inline void *race_main(void *arg)
{
	struct race *r = arg;
	int round = 0;

	for (;;) {
		int go;

		while ((go = __atomic_load_n(&r->go, __ATOMIC_ACQUIRE)) == round)
			sched_yield();
		if (go < 0)
			return NULL;
		round = go;
		if (!subject_poke(&r->s))
			r->failed++;
		__atomic_store_n(&r->done, round, __ATOMIC_RELEASE);
	}
}

static inline struct race *race_new(enum kind kind)
{
	struct race *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->s = subject_new(kind);
	thread_start(&r->t, race_main, r);
	return r;
}

/* Tells the thread to fill and comes back after a delay that varies by round. */
static inline void race_go(struct race *r, int round)
{
	__atomic_store_n(&r->go, round, __ATOMIC_RELEASE);
	for (volatile int i = 0; i < (round * 7) % 1024; i++)
		;
}

static inline void race_wait(struct race *r, int round)
{
	while (__atomic_load_n(&r->done, __ATOMIC_ACQUIRE) != round)
		sched_yield();
}

static inline void race_end(struct race *r)
{
	__atomic_store_n(&r->go, -1, __ATOMIC_RELEASE);
	assert_true(thread_join(&r->t, SOON_MS));
	assert_int_equal(r->failed, 0);
	subject_close(&r->s);
	free(r);
}

/* --- children ------------------------------------------------------------------------------- */

/*
 * A child that waits for ever, because the test that should wake it has failed,
 * would keep the output of the tests open: an alarm ends it.
 */
static inline pid_t fork_bounded(void)
{
	pid_t pid = fork();

	if (pid == 0)
		alarm(SOON_MS / 1000);
	return pid;
}

/* Exit status of a child, 128 + signal, or -1 (and killed) if it does not end soon. */
static inline int child_end(pid_t pid)
{
	int64_t end = now_ms() + SOON_MS;
	int st = 0;
	pid_t r;

	while ((r = waitpid(pid, &st, WNOHANG)) == 0 && now_ms() < end)
		sleep_ms(1);
	if (r == 0) {
		kill(pid, SIGKILL);
		waitpid(pid, &st, 0);
		return -1;
	}
	if (r != pid)
		return -1;
	return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

/* Forks a child that runs fn and exits with its result; one whose parent is gone ends, too. */
static inline pid_t child_start(int (*fn)(void *), void *arg)
{
	pid_t pid = fork_bounded();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGALRM, SIG_DFL);
		_exit(fn(arg));
	}
	assert_true(pid > 0);
	return pid;
}

/* The same to its end, as child_end says it. */
static inline int child_status(int (*fn)(void *), void *arg)
{
	return child_end(child_start(fn, arg));
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

/* Waits until the only thread of another process sleeps in a system call. */
static inline bool child_asleep(pid_t pid)
{
	return task_asleep(OF_PROCESS, pid, NULL);
}

/* Waits up to ms milliseconds until the main thread of the process is in this state. */
static inline bool process_reaches(pid_t pid, char state, int ms)
{
	int64_t end = now_ms() + ms;
	unsigned long sleeps;

	while (task_state(OF_PROCESS, pid, &sleeps) != state) {
		if (now_ms() > end)
			return false;
		sleep_ms(1);
	}
	return true;
}

/* --- claims on every kind of file ----------------------------------------------------------- */

/* One test function per kind from a function that takes the kind. */
#define KIND_TESTS(fn)                                                                             \
	static void fn##_eventfd(void **state)                                                     \
	{                                                                                          \
		(void)state;                                                                       \
		fn(KIND_EVENTFD);                                                                  \
	}                                                                                          \
	static void fn##_pipe(void **state)                                                        \
	{                                                                                          \
		(void)state;                                                                       \
		fn(KIND_PIPE);                                                                     \
	}                                                                                          \
	static void fn##_socket(void **state)                                                      \
	{                                                                                          \
		(void)state;                                                                       \
		fn(KIND_SOCKET);                                                                   \
	}

#define kind_unit_tests(fn)                                                                        \
	cmocka_unit_test(fn##_eventfd), cmocka_unit_test(fn##_pipe), cmocka_unit_test(fn##_socket)

/* The order of a set with two sides is not kept, a known deviation (docs/compatibility.md). */
#define NEEDS_ONE_ORDER(mixed)                                                                     \
	do {                                                                                       \
		if ((mixed) && under_pollux())                                                     \
			SKIP("known deviation: no common order of in-process and kernel files");   \
	} while (0)

/* --- sets of letters ------------------------------------------------------------------------ */

enum set { SET_EVENTFD, SET_PIPE, SET_SOCKET, SET_MIXED };

/* Makes four test functions of a claim that takes the kind of set. */
#define EACH_SET(name)                                                                             \
	static void name##_eventfd(void **state)                                                   \
	{                                                                                          \
		(void)state;                                                                       \
		name(SET_EVENTFD);                                                                 \
	}                                                                                          \
	static void name##_pipe(void **state)                                                      \
	{                                                                                          \
		(void)state;                                                                       \
		name(SET_PIPE);                                                                    \
	}                                                                                          \
	static void name##_socket(void **state)                                                    \
	{                                                                                          \
		(void)state;                                                                       \
		name(SET_SOCKET);                                                                  \
	}                                                                                          \
	static void name##_mixed(void **state)                                                     \
	{                                                                                          \
		(void)state;                                                                       \
		name(SET_MIXED);                                                                   \
	}

#define TEST_EACH_SET(name)                                                                        \
	cmocka_unit_test(name##_eventfd), cmocka_unit_test(name##_pipe),                           \
		cmocka_unit_test(name##_socket), cmocka_unit_test(name##_mixed)

/* The kind of the i-th file of a set. */
static inline enum kind set_kind(enum set set, int i)
{
	static const enum kind mixed[] = {KIND_EVENTFD, KIND_PIPE, KIND_EVENTFD, KIND_SOCKET};

	switch (set) {
	case SET_MIXED:
		return mixed[i % 4];
	case SET_PIPE:
		return KIND_PIPE;
	case SET_SOCKET:
		return KIND_SOCKET;
	default:
		return KIND_EVENTFD;
	}
}

/* Items of a set carry the letters a, b, c, ... as their data. */
static inline void set_new(enum set set, struct subject *s, int n, int ep, uint32_t events)
{
	for (int i = 0; i < n; i++) {
		s[i] = subject_new(set_kind(set, i));
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[i].fd, events, (uint64_t)('a' + i)));
	}
}

static inline void set_fire(struct subject *s, const char *order)
{
	for (; *order != '\0'; order++)
		subject_fill(&s[*order - 'a']);
}

static inline void set_close(struct subject *s, int n)
{
	for (int i = 0; i < n; i++)
		subject_close(&s[i]);
}

/* --- shapes of sets, nested ones among them ------------------------------------------------- */

enum wset_kind { WSET_EVENTFD, WSET_PIPE, WSET_MIXED, WSET_NESTED, WSET_NESTED_MIXED, WSET_KINDS };

struct wset {
	int ep;
	int inner;
	int nsub;
	struct subject sub[3];
	uint64_t data[3]; /* what ep reports when sub[i] is ready */
};

/* In-process files and the kernel's. */
#define WSET_TWO_SIDES(set) ((set) == WSET_MIXED || (set) == WSET_NESTED_MIXED)

#define WSET_INNER 100

static inline void wset_put(struct wset *w, int in, enum kind kind, uint32_t events)
{
	int i = w->nsub++;

	w->sub[i] = subject_new(kind);
	w->data[i] = in == w->ep ? (uint64_t)i + 1 : WSET_INNER;
	ep_add(in, w->sub[i].fd, events, (uint64_t)i + 1);
}

/* flags (EPOLLET, EPOLLONESHOT) go to every item of the set, the nested link included. */
static inline struct wset wset_open(enum wset_kind kind, uint32_t flags)
{
	struct wset w = {.ep = ep_new(), .inner = -1};
	uint32_t events = EPOLLIN | flags;

	switch (kind) {
	case WSET_EVENTFD:
		wset_put(&w, w.ep, KIND_EVENTFD, events);
		break;
	case WSET_PIPE:
		wset_put(&w, w.ep, KIND_PIPE, events);
		break;
	case WSET_MIXED:
		wset_put(&w, w.ep, KIND_EVENTFD, events);
		wset_put(&w, w.ep, KIND_PIPE, events);
		break;
	case WSET_NESTED:
		w.inner = ep_new();
		ep_add(w.ep, w.inner, events, WSET_INNER);
		wset_put(&w, w.inner, KIND_EVENTFD, events);
		break;
	default:
		w.inner = ep_new();
		ep_add(w.ep, w.inner, events, WSET_INNER);
		wset_put(&w, w.inner, KIND_EVENTFD, events);
		wset_put(&w, w.inner, KIND_PIPE, events);
		wset_put(&w, w.ep, KIND_EVENTFD, events);
	}
	return w;
}

static inline void wset_close(struct wset *w)
{
	for (int i = 0; i < w->nsub; i++)
		subject_close(&w->sub[i]);
	if (w->inner >= 0)
		close(w->inner);
	close(w->ep);
}

/* Entries of the test table: one claim on every kind of file, or on every shape of set. */
static const enum kind each_kind[] = {KIND_EVENTFD, KIND_PIPE, KIND_SOCKET};
static const enum wset_kind set_kinds[] = {WSET_EVENTFD, WSET_PIPE, WSET_MIXED, WSET_NESTED,
					   WSET_NESTED_MIXED};

#define KIND_OF(state) (*(const enum kind *)*(state))
#define WSET_OF(state) (*(const enum wset_kind *)*(state))

#define VARIANT(fn, suffix, what)                                                                  \
	{                                                                                          \
		.name = #fn suffix, .test_func = fn, .initial_state = (void *)(uintptr_t)(what)    \
	}

#define EACH_KIND(fn)                                                                              \
	VARIANT(fn, "_eventfd", &each_kind[0]), VARIANT(fn, "_pipe", &each_kind[1]),               \
		VARIANT(fn, "_socket", &each_kind[2])

#define EACH_FLAT_WSET(fn)                                                                         \
	VARIANT(fn, "_eventfd", &set_kinds[0]), VARIANT(fn, "_pipe", &set_kinds[1]),               \
		VARIANT(fn, "_mixed", &set_kinds[2])

#define EACH_WSET(fn)                                                                              \
	VARIANT(fn, "_eventfd", &set_kinds[0]), VARIANT(fn, "_pipe", &set_kinds[1]),               \
		VARIANT(fn, "_mixed", &set_kinds[2]), VARIANT(fn, "_nested", &set_kinds[3]),       \
		VARIANT(fn, "_nested_mixed", &set_kinds[4])

/* --- what holds others up ------------------------------------------------------------------- */

/*
 * A buffer that holds up whoever stores to it: room events fit before a page
 * that is missing until trap_open.
 */
struct trap {
	int uffd;
	char *base;
	size_t page;
	struct epoll_event *ev;
};

/* False when the kernel offers no userfaultfd to this user. */
static inline bool trap_new(struct trap *t, int room)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};

	t->page = (size_t)sysconf(_SC_PAGESIZE);
	t->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (t->uffd == -1)
		return false;
	if (ioctl(t->uffd, UFFDIO_API, &api) == -1) {
		close(t->uffd);
		return false;
	}
	t->base =
		mmap(NULL, 2 * t->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(t->base != MAP_FAILED);
	memset(t->base, 0, t->page);
	reg.range.start = (uintptr_t)t->base + t->page;
	reg.range.len = t->page;
	assert_ok(ioctl(t->uffd, UFFDIO_REGISTER, &reg));
	t->ev = (void *)(t->base + t->page - (size_t)room * sizeof(struct epoll_event));
	return true;
}

/* Returns when a thread is held up. */
static inline void trap_wait(struct trap *t)
{
	struct pollfd p = {.fd = t->uffd, .events = POLLIN};
	struct uffd_msg msg;

	assert_int_equal(poll(&p, 1, SOON_MS), 1);
	assert_int_equal(assert_ok(read(t->uffd, &msg, sizeof(msg))), sizeof(msg));
	assert_int_equal(msg.event, UFFD_EVENT_PAGEFAULT);
}

static inline void trap_open(struct trap *t)
{
	struct uffdio_zeropage z = {
		.range = {.start = (uintptr_t)t->base + t->page, .len = t->page}};

	assert_ok(ioctl(t->uffd, UFFDIO_ZEROPAGE, &z));
}

static inline void trap_free(struct trap *t)
{
	close(t->uffd);
	munmap(t->base, 2 * t->page);
}

/*
 * io_setup where EAGAIN can only come from others, and passes: on the kernel aio-max-nr counts the
 * contexts of all processes, other tests that run at this moment included. For children as well.
 */
static inline int aio_setup_in_turn(unsigned int nr, aio_context_t *ctx)
{
	int64_t end = now_ms() + SOON_MS;
	int r;

	while ((r = (int)syscall(SYS_io_setup, nr, ctx)) == -1 && errno == EAGAIN && now_ms() < end)
		sleep_ms(1);
	return r;
}

/*
 * Lets the kernel signal an eventfd once: a kernel AIO read which names it as
 * RESFD, through raw system calls. Returns false when there is no kernel AIO.
 */
static inline bool resfd_signal(int efd)
{
	aio_context_t ctx = 0;
	struct iocb cb, *list[1] = {&cb};
	struct io_event done;
	char byte = 0;
	int file, r;

	if (aio_setup_in_turn(1, &ctx) == -1)
		return false;
	file = (int)syscall(SYS_memfd_create, "resfd", 1u);
	assert_int_not_equal(file, -1);
	assert_int_equal(assert_ok(write(file, "x", 1)), 1);
	memset(&cb, 0, sizeof(cb));
	cb.aio_lio_opcode = IOCB_CMD_PREAD;
	cb.aio_fildes = (uint32_t)file;
	cb.aio_buf = (uintptr_t)&byte;
	cb.aio_nbytes = 1;
	cb.aio_flags = IOCB_FLAG_RESFD;
	cb.aio_resfd = (uint32_t)efd;
	r = (int)syscall(SYS_io_submit, ctx, 1L, list);
	assert_int_equal(r, 1);
	assert_int_equal(syscall(SYS_io_getevents, ctx, 1L, 1L, &done, NULL), 1);
	assert_int_equal(done.res, 1);
	assert_ok(syscall(SYS_io_destroy, ctx));
	close(file);
	return true;
}

/*
 * The effective capabilities of the calling thread, as a set of bits. Setting
 * keeps the permitted ones, so a capability that is put down can be taken up
 * again.
 */
static inline uint64_t cap_get(void)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2];

	memset(d, 0, sizeof(d));
	assert_ok(syscall(SYS_capget, &h, d));
	return (uint64_t)d[1].effective << 32 | d[0].effective;
}

static inline void cap_set(uint64_t effective)
{
	struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[2];

	memset(d, 0, sizeof(d));
	assert_ok(syscall(SYS_capget, &h, d));
	d[0].effective = (uint32_t)effective;
	d[1].effective = (uint32_t)(effective >> 32);
	assert_ok(syscall(SYS_capset, &h, d));
}

#endif
