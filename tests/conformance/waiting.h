/* SPDX-License-Identifier: MIT */
/*
 * What the tests of waiting, order and escape share: sets of things that become
 * ready, threads that wait on an epoll, and children that are awaited.
 *
 * Each claim runs on a set of eventfds alone, of pipes alone, of sockets alone
 * and on a mixed set, because a mixed wait has two sides that must look like
 * one.
 */
#ifndef TESTS_CONFORMANCE_WAITING_H
#define TESTS_CONFORMANCE_WAITING_H

#include "harness.h"

#include <linux/aio_abi.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define SOON_MS 15000
#define QUIET_MS 30
#define COUNT_MAX 0xfffffffffffffffeull

/*
 * A kernel file does not tell when it became ready, so in a mixed set Pollux keeps the
 * order of the in-process files and that of the kernel's, not one order over both. This
 * is the one known deviation of mixed sets (README, Limits); claims about a common order
 * or a common lock of collections are not made there.
 */
#define NEEDS_ONE_ORDER(set)                                                                       \
	do {                                                                                       \
		if ((set) == SET_MIXED && under_pollux())                                          \
			SKIP("known deviation: no common order of in-process and kernel files");   \
	} while (0)

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

struct subject {
	int rd;
	int wr;
	bool counter;
};

static inline struct subject subject_new(enum set set, int i)
{
	struct subject s = {0};
	int fd[2];

	if (set == SET_MIXED)
		set = i % 2 == 0 ? SET_EVENTFD : i % 4 == 1 ? SET_PIPE : SET_SOCKET;
	switch (set) {
	case SET_PIPE:
		assert_ok(pipe2(fd, O_NONBLOCK | O_CLOEXEC));
		break;
	case SET_SOCKET:
		assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd));
		break;
	default:
		fd[0] = fd[1] = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);
		s.counter = true;
		break;
	}
	s.rd = fd[0];
	s.wr = fd[1];
	return s;
}

/* Makes the subject readable; every call is an edge. */
static inline void subject_fire(const struct subject *s)
{
	char c = 'x';

	if (s->counter)
		efd_add(s->wr, 1);
	else
		assert_int_equal(assert_ok(write(s->wr, &c, 1)), 1);
}

/* Takes one unit of what fire put in; false when there is none. */
static inline bool subject_take(const struct subject *s)
{
	uint64_t v;
	ssize_t n = read(s->rd, &v, s->counter ? sizeof(v) : 1);

	return n > 0;
}

static inline void subject_drain(const struct subject *s)
{
	while (subject_take(s))
		;
}

static inline void subject_close(struct subject *s)
{
	close(s->rd);
	if (s->wr != s->rd)
		close(s->wr);
	s->rd = s->wr = -1;
}

/* Items of a set carry the letters a, b, c, ... as their data. */
static inline void set_new(enum set set, struct subject *s, int n, int ep, uint32_t events)
{
	for (int i = 0; i < n; i++) {
		s[i] = subject_new(set, i);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[i].rd, events, (uint64_t)('a' + i)));
	}
}

static inline void set_fire(struct subject *s, const char *order)
{
	for (; *order != '\0'; order++)
		subject_fire(&s[*order - 'a']);
}

static inline void set_close(struct subject *s, int n)
{
	for (int i = 0; i < n; i++)
		subject_close(&s[i]);
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

enum how { HOW_WAIT, HOW_PWAIT, HOW_PWAIT2, HOW_SYSCALL, HOWS };

/* timeout_ms is -1 or a number of milliseconds. */
static inline int how_wait(enum how how, int ep, struct epoll_event *ev, int max, int timeout_ms)
{
	struct timespec ts = {.tv_sec = timeout_ms / 1000,
			      .tv_nsec = (long)(timeout_ms % 1000) * 1000000};

	switch (how) {
	case HOW_PWAIT:
		return epoll_pwait(ep, ev, max, timeout_ms, NULL);
	case HOW_PWAIT2:
		return epoll_pwait2(ep, ev, max, timeout_ms < 0 ? NULL : &ts, NULL);
	case HOW_SYSCALL:
		return (int)syscall(SYS_epoll_pwait, ep, ev, max, timeout_ms, NULL, (size_t)8);
	default:
		return epoll_wait(ep, ev, max, timeout_ms);
	}
}

struct waiter {
	struct test_thread t;
	int ep;
	int max;
	int timeout;
	enum how how;
	int n;
	int err;
	struct epoll_event ev[8];
};

static inline void *waiter_main(void *arg)
{
	struct waiter *w = arg;

	w->n = how_wait(w->how, w->ep, w->ev, w->max, w->timeout);
	w->err = errno;
	return NULL;
}

/*
 * Waiters live on the heap: one that a failed test leaves behind must not write
 * into the stack of the next test.
 */
static inline struct waiter *waiter_begin(int ep, int max, int timeout, enum how how)
{
	struct waiter *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->ep = ep;
	w->max = max;
	w->timeout = timeout;
	w->how = how;
	thread_start(&w->t, waiter_main, w);
	return w;
}

/* Begins a wait without limit and returns when the thread sleeps in it. */
static inline struct waiter *waiter_new(int ep, int max)
{
	struct waiter *w = waiter_begin(ep, max, -1, HOW_WAIT);

	assert_true(thread_asleep(&w->t));
	return w;
}

static inline void waiter_join(struct waiter *w)
{
	assert_true(thread_join(&w->t, SOON_MS));
}

/* The waiter ends soon with exactly one event, of this item. */
static inline void waiter_gets(struct waiter *w, uint64_t data)
{
	waiter_join(w);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->ev[0].data.u64, data);
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

static inline int ep_new(void)
{
	return (int)assert_ok(epoll_create1(EPOLL_CLOEXEC));
}

/*
 * A child that waits for ever, because the test that should wake it has failed,
 * would keep the output of the tests open: an alarm ends it.
 */
static inline pid_t fork_bounded(void)
{
	pid_t pid = fork();

	if (pid == 0)
		alarm(30);
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

/* Waits until the only thread of another process sleeps in a system call. */
static inline bool child_asleep(pid_t pid)
{
	char path[64], buf[4096], *p;
	unsigned long sw, seen = 0;
	bool slept = false;
	int64_t end = now_ms() + SOON_MS;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	do {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd == -1 ? -1 : read(fd, buf, sizeof(buf) - 1);
		char c = 0;

		if (fd != -1)
			close(fd);
		if (n <= 0)
			return false;
		buf[n] = '\0';
		p = strstr(buf, "\nState:");
		if (p == NULL || sscanf(p, "\nState: %c", &c) != 1 || c == 'Z')
			return false;
		p = strstr(buf, "\nvoluntary_ctxt_switches:");
		if (p == NULL || sscanf(p, "\nvoluntary_ctxt_switches: %lu", &sw) != 1)
			return false;
		if (c == 'S' && slept && sw == seen)
			return true;
		slept = c == 'S';
		seen = sw;
		sleep_ms(1);
	} while (now_ms() < end);
	return false;
}

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

	if (syscall(SYS_io_setup, 1, &ctx) == -1)
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

#endif
