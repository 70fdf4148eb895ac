/* SPDX-License-Identifier: MIT */
/*
 * What the tests of epoll_ctl watch and who waits for it.
 *
 * A subject is a file that one write makes readable. The eventfd is the kind
 * that Pollux serves in process, pipe and socket are the kernel's: a claim that
 * holds for all files is proved on each kind. KIND_TESTS makes one test
 * function per kind from a function that takes the kind.
 */
#ifndef TESTS_CONFORMANCE_SUBJECT_H
#define TESTS_CONFORMANCE_SUBJECT_H

#include "harness.h"
#include <linux/capability.h>
#include <sched.h>
#include <sys/socket.h>

#define JOIN_MS 20000
#define QUIET_MS 15

enum kind { KIND_EVENTFD, KIND_PIPE, KIND_SOCKET };

struct subject {
	enum kind kind;
	int fd;	  /* the watched end */
	int peer; /* written to make fd readable; fd itself for an eventfd */
};

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

static inline struct subject subject_new(enum kind kind)
{
	struct subject s = {.kind = kind};
	int p[2];

	switch (kind) {
	case KIND_EVENTFD:
		s.fd = s.peer = efd_new(0, EFD_NONBLOCK);
		break;
	case KIND_PIPE:
		assert_ok(pipe2(p, O_NONBLOCK));
		s.fd = p[0];
		s.peer = p[1];
		break;
	case KIND_SOCKET:
		assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p));
		s.fd = p[0];
		s.peer = p[1];
		break;
	}
	return s;
}

/* One write: fd becomes or stays readable, and there is an edge. */
static inline void subject_fill(const struct subject *s)
{
	if (s->kind == KIND_EVENTFD)
		efd_add(s->peer, 1);
	else
		assert_int_equal(assert_ok(write(s->peer, "x", 1)), 1);
}

static inline struct subject subject_ready(enum kind kind)
{
	struct subject s = subject_new(kind);

	subject_fill(&s);
	return s;
}

/* Reads all there is: fd is no longer readable. */
static inline void subject_drain(const struct subject *s)
{
	char buf[64];

	while (read(s->fd, buf, sizeof(buf)) > 0)
		;
	assert_int_equal(errno, EAGAIN);
}

static inline void subject_close(const struct subject *s)
{
	assert_ok(close(s->fd));
	if (s->peer != s->fd)
		assert_ok(close(s->peer));
}

static inline int epoll_new(void)
{
	return (int)assert_ok(epoll_create1(EPOLL_CLOEXEC));
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
 * A thread that sleeps in one epoll_wait, or in poll on the epoll. It lives on
 * the heap because a failed test leaves it asleep behind itself.
 */
struct waiter {
	struct test_thread t;
	int ep;
	int max;
	bool polls;
	int n;
	int err;
	short revents;
	struct epoll_event ev[8];
};

static inline void *waiter_main(void *arg)
{
	struct waiter *w = arg;

	if (w->polls) {
		struct pollfd p = {.fd = w->ep, .events = POLLIN};

		w->n = poll(&p, 1, -1);
		w->revents = p.revents;
	} else {
		w->n = epoll_wait(w->ep, w->ev, w->max, -1);
	}
	w->err = errno;
	return NULL;
}

static inline struct waiter *waiter_begin(int ep, int max, bool polls)
{
	struct waiter *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->ep = ep;
	w->max = max;
	w->polls = polls;
	thread_start(&w->t, waiter_main, w);
	assert_true(thread_asleep(&w->t));
	return w;
}

static inline struct waiter *waiter_new(int ep)
{
	return waiter_begin(ep, 8, false);
}

static inline struct waiter *poller_new(int ep)
{
	return waiter_begin(ep, 8, true);
}

/* True when the waiter goes on sleeping. */
static inline bool waiter_sleeps(struct waiter *w)
{
	sleep_ms(QUIET_MS);
	return thread_asleep(&w->t);
}

static inline void waiter_join(struct waiter *w)
{
	assert_true(thread_join(&w->t, JOIN_MS));
}

/* Waits for the end of the wait, which must have got exactly this one event. */
static inline void waiter_got(struct waiter *w, uint32_t events, uint64_t data)
{
	waiter_join(w);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->ev[0].events, events);
	assert_int_equal(w->ev[0].data.u64, data);
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
		uint64_t one = 1;
		size_t len = r->s.kind == KIND_EVENTFD ? sizeof(one) : 1;

		while ((go = __atomic_load_n(&r->go, __ATOMIC_ACQUIRE)) == round)
			sched_yield();
		if (go < 0)
			return NULL;
		round = go;
		if (write(r->s.peer, &one, len) != (ssize_t)len)
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
	assert_true(thread_join(&r->t, JOIN_MS));
	assert_int_equal(r->failed, 0);
	subject_close(&r->s);
	free(r);
}

/*
 * Runs fn in a forked child and returns its exit status, or -1 when a signal
 * ended it. child_check is the child's assert.
 */
static inline int in_child(int (*fn)(void *), void *arg)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(50);
		_exit(fn(arg));
	}
	assert_true(pid > 0);
	while (waitpid(pid, &status, 0) == -1)
		assert_int_equal(errno, EINTR);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define child_check(cond)                                                                          \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			int e_ = errno;                                                            \
			dprintf(STDERR_FILENO, "%s:%d: child: %s (errno %d)\n", __FILE__,          \
				__LINE__, #cond, e_);                                              \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)

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

/* A number that is not open and stays so as long as nothing is opened. */
static inline int fd_closed(void)
{
	int fd = (int)assert_ok(open("/dev/null", O_RDONLY | O_CLOEXEC));

	assert_ok(close(fd));
	return fd;
}

#endif
