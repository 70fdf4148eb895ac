/* SPDX-License-Identifier: MIT */
/*
 * The descriptor API when memory or descriptors run out: a call works, perhaps with
 * the kernel's help, or says ENOMEM or EMFILE; nothing is half registered, no event is
 * lost or made up, nothing is left behind.
 *
 * Every run is a process of its own, so that each of them also meets what is set up
 * once a process.
 */
#include "cache/evict.h"
#include "cache/table.h"

#include "native/native.h"

#include <dirent.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <pollux/posix.h>

#include "base/mem.h"

/* A run in which the failing allocation was reached, and one in which it was not. */
#define RUN_INJECTED 0
#define RUN_CLEAN 10
#define RUN_FAILED 1
#define RUN_SECONDS 120

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			check_failed(#cond, __LINE__);                                             \
	} while (0)

static long fail_at;

__attribute__((noreturn)) static void check_failed(const char *what, int line)
{
	int err = errno;

	plx_mem_fail_after(-1);
	fprintf(stderr, "posix.c:%d: %s is not so (allocation %ld, errno %d)\n", line, what,
		fail_at, err);
	_exit(RUN_FAILED);
}

/* --- the failing allocation ------------------------------------------------------------- */

static long calls_before;

static void arm(void)
{
	calls_before = plx_mem_calls();
	errno = 0;
	plx_mem_fail_after(fail_at);
}

/* Keeps errno. True if an allocation has failed since arm(). */
static bool disarm(void)
{
	plx_mem_fail_after(-1);
	return plx_mem_calls() - calls_before > fail_at;
}

static int run_status(bool injected)
{
	return injected ? RUN_INJECTED : RUN_CLEAN;
}

static bool out_of_something(void)
{
	return errno == ENOMEM || errno == EMFILE;
}

static int open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	CHECK(dir != NULL);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* What a scenario may keep for the life of the process: descriptors, and objects, their notes too.
 */
static int fds_before;
static long live_before;

static void ledger_open(void)
{
	pollux_quiesce();
	fds_before = open_fds();
	live_before = plx_mem_live();
}

static void ledger_close(int fds, int objects)
{
	pollux_quiesce();
	if (open_fds() != fds_before + fds || plx_mem_live() != live_before + objects)
		fprintf(stderr, "%d descriptors more and %ld objects, allowed: %d and %d\n",
			open_fds() - fds_before, plx_mem_live() - live_before, fds, objects);
	CHECK(open_fds() == fds_before + fds);
	CHECK(plx_mem_live() == live_before + objects);
}

/* --- small tools ------------------------------------------------------------------------ */

static int add(int ep, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

static int mod(int ep, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return pollux_epoll_ctl(ep, EPOLL_CTL_MOD, fd, &ev);
}

static int del(int ep, int fd)
{
	return pollux_epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL);
}

static void put(int fd, uint64_t value)
{
	CHECK(pollux_write(fd, &value, sizeof(value)) == sizeof(value));
}

static uint64_t take(int fd)
{
	uint64_t value = 0;

	return pollux_read(fd, &value, sizeof(value)) == sizeof(value) ? value : 0;
}

static int make_ep(void)
{
	int fd = pollux_epoll_create1(EPOLL_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

static int make_efd(unsigned int value)
{
	int fd = pollux_eventfd(value, EFD_NONBLOCK | EFD_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

/*
 * The data of everything that two looks without sleeping find, as a set of bits. Each
 * side may have been given the first look, so both looks together see both.
 */
static uint64_t look(int ep)
{
	struct epoll_event ev[16];
	uint64_t seen = 0;

	for (int i = 0; i < 2; i++) {
		int n = pollux_epoll_wait(ep, ev, 16, 0);

		CHECK(n >= 0);
		for (int k = 0; k < n; k++)
			seen |= 1ull << ev[k].data.u64;
	}
	return seen;
}

/* An epoll, an eventfd and a pipe that were made in whatever way work together. */
static void use(int ep, int efd)
{
	int p[2];

	while (take(efd))
		;
	CHECK(pipe2(p, O_CLOEXEC) == 0);
	CHECK(add(ep, efd, EPOLLIN, 1) == 0);
	CHECK(add(ep, p[0], EPOLLIN, 2) == 0);
	CHECK(add(ep, efd, EPOLLIN, 1) < 0 && errno == EEXIST);
	CHECK(look(ep) == 0);
	put(efd, 5);
	CHECK(look(ep) == 1 << 1);
	CHECK(write(p[1], "x", 1) == 1);
	CHECK(look(ep) == (1 << 1 | 1 << 2));
	CHECK(take(efd) == 5);
	CHECK(look(ep) == 1 << 2);
	CHECK(mod(ep, efd, EPOLLIN | EPOLLET, 3) == 0);
	put(efd, 1);
	CHECK(look(ep) == (1 << 2 | 1 << 3));
	CHECK(look(ep) == 1 << 2);
	CHECK(del(ep, efd) == 0);
	CHECK(del(ep, efd) < 0 && errno == ENOENT);
	CHECK(del(ep, p[0]) == 0);
	CHECK(look(ep) == 0);
	CHECK(take(efd) == 1);
	close(p[0]);
	close(p[1]);
}

static void use_new(void)
{
	int ep = make_ep(), efd = make_efd(0);

	CHECK(pollux_fd_served(ep) == 1 && pollux_fd_served(efd) == 1);
	use(ep, efd);
	CHECK(pollux_close(ep) == 0);
	CHECK(pollux_close(efd) == 0);
}

/* --- a thread that writes when the main thread sleeps ------------------------------------- */

struct waker {
	pthread_t thread;
	pid_t main;
	int fd;
};

static bool sleeps(pid_t tid)
{
	char path[64], line[512], *paren;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	f = fopen(path, "re");
	/*
	 * The first sleep may have the last number for a moment: it is not asleep yet
	 * (docs/compatibility.md).
	 */
	if (!f && errno == EMFILE)
		return false;
	CHECK(f != NULL);
	CHECK(fgets(line, sizeof(line), f) != NULL);
	fclose(f);
	paren = strrchr(line, ')');
	return paren && paren[2] == 'S';
}

static void *waker_run(void *arg)
{
	struct waker *w = arg;

	while (!sleeps(w->main))
		usleep(1000);
	put(w->fd, 7);
	return NULL;
}

static void waker_start(struct waker *w, int fd)
{
	w->main = getpid();
	w->fd = fd;
	CHECK(pthread_create(&w->thread, NULL, waker_run, w) == 0);
}

/* The main thread sleeps here if it has not before, so the thread always ends. */
static void waker_end(struct waker *w)
{
	CHECK(pthread_join(w->thread, NULL) == 0);
}

/* --- scenarios: one call each with a failing allocation ------------------------------------ */

static int in_epoll_create(void)
{
	bool injected;
	int ep;

	ledger_open();
	arm();
	ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	injected = disarm();
	if (ep < 0) {
		CHECK(injected && out_of_something());
	} else {
		int efd = make_efd(0);

		use(ep, efd);
		CHECK(pollux_close(ep) == 0);
		CHECK(pollux_close(efd) == 0);
	}
	use_new();
	ledger_close(0, 0);
	return run_status(injected);
}

static int in_eventfd(void)
{
	bool injected;
	int efd, ep;

	ledger_open();
	arm();
	/* Without memory it is the kernel's. */
	efd = pollux_eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
	injected = disarm();
	CHECK(efd >= 0 && pollux_fd_served(efd) == !injected);
	ep = make_ep();
	CHECK(take(efd) == 3);
	CHECK(take(efd) == 0 && errno == EAGAIN);
	CHECK(add(ep, efd, EPOLLIN, 4) == 0);
	CHECK(look(ep) == 0);
	put(efd, 2);
	CHECK(look(ep) == 1 << 4);
	CHECK(pollux_close(efd) == 0);
	CHECK(pollux_close(ep) == 0);
	use_new();
	ledger_close(0, 0);
	return run_status(injected);
}

/*
 * ADD of an eventfd: first: to an epoll that has watched none so far. (One that is registered for
 * more than its count is the kernel's, and needs nothing.)
 */
static int add_with(uint32_t mode, bool first)
{
	int ep, efd, other, p[2], r;
	bool injected;

	use_new();
	ledger_open();
	ep = make_ep();
	efd = make_efd(0);
	other = make_efd(0);
	CHECK(pipe2(p, O_CLOEXEC) == 0);
	if (!first)
		CHECK(add(ep, other, EPOLLIN, 2) == 0);
	arm();
	r = add(ep, efd, EPOLLIN | mode, 1);
	injected = disarm();
	if (r < 0) {
		CHECK(injected && out_of_something());
		CHECK(mod(ep, efd, EPOLLIN, 1) < 0 && errno == ENOENT);
		CHECK(del(ep, efd) < 0 && errno == ENOENT);
		put(efd, 1);
		CHECK(look(ep) == 0);
		CHECK(take(efd) == 1);
		CHECK(add(ep, efd, EPOLLIN | mode, 1) == 0);
	}
	if (first)
		CHECK(add(ep, other, EPOLLIN, 2) == 0);
	/* One of the two may be the kernel's now: both are heard of, with and without sleep. */
	put(efd, 1);
	CHECK(look(ep) == 1 << 1);
	CHECK(take(efd) == 1);
	put(other, 1);
	CHECK(look(ep) == 1 << 2);
	put(efd, 1);
	CHECK(look(ep) == (1 << 1 | 1 << 2));
	CHECK(take(efd) == 1 && take(other) == 1);
	CHECK(add(ep, efd, EPOLLIN | mode, 1) < 0 && errno == EEXIST);
	CHECK(look(ep) == 0);
	CHECK(add(ep, p[0], EPOLLIN, 3) == 0);
	CHECK(write(p[1], "x", 1) == 1);
	CHECK(look(ep) == 1 << 3);
	CHECK(del(ep, p[0]) == 0 && del(ep, efd) == 0 && del(ep, other) == 0);
	close(p[0]);
	close(p[1]);
	use(ep, efd);
	CHECK(pollux_close(ep) == 0);
	CHECK(pollux_close(efd) == 0);
	CHECK(pollux_close(other) == 0);
	ledger_close(0, 0);
	use_new();
	ledger_close(0, 0);
	return run_status(injected);
}

static int in_first_add(void)
{
	return add_with(0, true);
}

static int in_first_add_edge(void)
{
	return add_with(EPOLLET, true);
}

static int in_add(void)
{
	return add_with(0, false);
}

/* A wait that looks, and one that sleeps and is woken. */
static int in_wait(void)
{
	struct epoll_event ev[64];
	struct waker waker;
	int ep, efd, p[2], n;
	bool injected;

	use_new();
	ledger_open();
	ep = make_ep();
	efd = make_efd(1);
	CHECK(pipe2(p, O_CLOEXEC) == 0);
	CHECK(add(ep, efd, EPOLLIN, 1) == 0 && add(ep, p[0], EPOLLIN, 2) == 0);
	arm();
	n = pollux_epoll_wait(ep, ev, 64, 0);
	injected = disarm();
	CHECK(n == 1 || (injected && n < 0 && out_of_something()));
	CHECK(look(ep) == 1 << 1);
	CHECK(take(efd) == 1);
	waker_start(&waker, efd);
	arm();
	n = pollux_epoll_wait(ep, ev, 64, -1);
	injected |= disarm();
	CHECK((n == 1 && ev[0].data.u64 == 1) || (injected && n < 0 && out_of_something()));
	waker_end(&waker);
	CHECK(take(efd) == 7);
	use_new();
	CHECK(pollux_close(ep) == 0);
	CHECK(pollux_close(efd) == 0);
	close(p[0]);
	close(p[1]);
	ledger_close(0, 0);
	return run_status(injected);
}

/* More than a poll counts its caller at. */
#define POLLED 40
#define COUNTED 32

static int in_poll(void)
{
	struct pollfd pfd[POLLED + 1];
	struct waker waker;
	int efd[POLLED], p[2], served = 0;

	use_new();
	ledger_open();
	CHECK(pipe2(p, O_CLOEXEC) == 0);
	for (int i = 0; i < POLLED; i++) {
		efd[i] = make_efd(0);
		pfd[i] = (struct pollfd){.fd = efd[i], .events = POLLIN};
	}
	pfd[POLLED] = (struct pollfd){.fd = p[0], .events = POLLIN};
	waker_start(&waker, efd[POLLED - 1]);
	arm();
	/* It takes no memory: the others are the kernel's. */
	CHECK(pollux_poll(pfd, POLLED + 1, -1) == 1);
	CHECK(!disarm());
	CHECK(pfd[0].revents == 0 && pfd[POLLED - 1].revents == POLLIN && pfd[POLLED].revents == 0);
	for (int i = 0; i < POLLED; i++)
		served += pollux_fd_served(efd[i]);
	CHECK(served == COUNTED);
	waker_end(&waker);
	CHECK(take(efd[POLLED - 1]) == 7);
	CHECK(pollux_poll(pfd, POLLED + 1, 1) == 0);
	CHECK(write(p[1], "x", 1) == 1);
	CHECK(pollux_poll(pfd, POLLED + 1, -1) == 1);
	CHECK(pfd[0].revents == 0 && pfd[POLLED].revents == POLLIN);
	close(p[0]);
	close(p[1]);
	for (int i = 0; i < POLLED; i++)
		CHECK(pollux_close(efd[i]) == 0);
	use_new();
	ledger_close(0, 0);
	return run_status(false);
}

static int in_select(void)
{
	int efd[POLLED], last, served = 0;
	struct waker waker;
	fd_set rd, wr;

	use_new();
	ledger_open();
	FD_ZERO(&rd);
	for (int i = 0; i < POLLED; i++) {
		last = efd[i] = make_efd(0);
		FD_SET(last, &rd);
	}
	waker_start(&waker, last);
	arm();
	CHECK(pollux_select(last + 1, &rd, NULL, NULL, NULL) == 1);
	CHECK(!disarm());
	CHECK(FD_ISSET(last, &rd) && !FD_ISSET(efd[0], &rd));
	for (int i = 0; i < POLLED; i++)
		served += pollux_fd_served(efd[i]);
	CHECK(served == 0);
	waker_end(&waker);
	CHECK(take(last) == 7);
	FD_ZERO(&rd);
	FD_ZERO(&wr);
	FD_SET(last, &rd);
	FD_SET(last, &wr);
	CHECK(pollux_select(last + 1, &rd, &wr, NULL, NULL) == 1);
	CHECK(!FD_ISSET(last, &rd) && FD_ISSET(last, &wr));
	for (int i = 0; i < POLLED; i++)
		FD_SET(efd[i], &rd);
	CHECK(pollux_select(last + 1, &rd, NULL, NULL, &(struct timeval){.tv_usec = 1000}) == 0);
	for (int i = 0; i < POLLED; i++)
		CHECK(pollux_close(efd[i]) == 0);
	use_new();
	ledger_close(0, 0);
	return run_status(false);
}

static int in_dup(void)
{
	int ep, efd, e2, e3, p2;
	bool injected;

	use_new();
	ledger_open();
	ep = make_ep();
	efd = make_efd(0);
	CHECK(add(ep, efd, EPOLLIN, 1) == 0);
	arm();
	e2 = pollux_dup(efd);
	injected = disarm();
	CHECK(e2 >= 0 || (injected && out_of_something()));
	arm();
	e3 = pollux_fcntl(efd, F_DUPFD_CLOEXEC, 900);
	injected |= disarm();
	CHECK(e3 >= 900 || (injected && out_of_something()));
	arm();
	p2 = pollux_dup(ep);
	injected |= disarm();
	CHECK(p2 >= 0 || (injected && out_of_something()));
	for (int i = 0; i < 2; i++) {
		int e = i ? e3 : e2;

		if (e < 0)
			continue;
		put(e, 2);
		CHECK(look(ep) == 1 << 1);
		if (p2 >= 0)
			CHECK(look(p2) == 1 << 1);
		CHECK(take(efd) == 2);
	}
	if (e2 >= 0)
		CHECK(pollux_close(e2) == 0);
	if (p2 >= 0)
		CHECK(pollux_close(p2) == 0);
	if (e3 >= 0)
		CHECK(pollux_close(e3) == 0);
	CHECK(del(ep, efd) == 0);
	use(ep, efd);
	CHECK(pollux_close(ep) == 0);
	CHECK(pollux_close(efd) == 0);
	ledger_close(0, 0);
	return run_status(injected);
}

/* read: of an empty counter; write: to a full one, until a read makes room. */
/*
 * An epoll with everything that a way out has to carry over: a counter that is ready
 * (1), an edge that has been collected (2), an edge that has not (3), one that is
 * armed (4), a oneshot that is spent (5), and pipes: an edge that has not been
 * collected (6), one that is (7).
 */
#define WORLD_EFDS 5
#define WORLD_READY (1 << 1 | 1 << 3 | 1 << 6)
#define WORLD_AFTER (1 << 1)

struct world {
	int ep;
	int e[WORLD_EFDS];
	int p[2][2];
};

static void world_make(struct world *w)
{
	static const uint32_t mode[WORLD_EFDS] = {0, EPOLLET, EPOLLET, EPOLLET, EPOLLONESHOT};

	w->ep = make_ep();
	for (int i = 0; i < 2; i++)
		CHECK(pipe2(w->p[i], O_CLOEXEC) == 0);
	for (int i = 0; i < WORLD_EFDS; i++) {
		w->e[i] = make_efd(0);
		CHECK(add(w->ep, w->e[i], EPOLLIN | mode[i], i + 1) == 0);
	}
	for (int i = 0; i < 2; i++)
		CHECK(add(w->ep, w->p[i][0], EPOLLIN | EPOLLET, 6 + i) == 0);
	put(w->e[1], 12);
	put(w->e[4], 15);
	CHECK(write(w->p[1][1], "x", 1) == 1);
	CHECK(look(w->ep) == (1 << 2 | 1 << 5 | 1 << 7));
	CHECK(look(w->ep) == 0);
	put(w->e[0], 11);
	put(w->e[2], 13);
	CHECK(write(w->p[0][1], "x", 1) == 1);
}

/*
 * Nothing is lost and nothing made up, whoever serves it now. An edge that has been collected may
 * come once more if its object is the kernel's.
 */
static void world_check(struct world *w)
{
	uint64_t again = pollux_fd_served(w->e[1]) ? 0 : 1 << 2;

	CHECK((look(w->ep) & ~again) == WORLD_READY);
	CHECK(look(w->ep) == WORLD_AFTER);
	CHECK(take(w->e[0]) == 11);
	CHECK(look(w->ep) == 0);
	put(w->e[3], 14);
	CHECK(look(w->ep) == 1 << 4);
	put(w->e[1], 1);
	CHECK(look(w->ep) == 1 << 2);
	put(w->e[4], 1);
	CHECK(look(w->ep) == 0);
	CHECK(mod(w->ep, w->e[4], EPOLLIN | EPOLLONESHOT, 5) == 0);
	CHECK(look(w->ep) == 1 << 5);
	CHECK(take(w->e[1]) == 13 && take(w->e[2]) == 13 && take(w->e[3]) == 14);
	CHECK(take(w->e[4]) == 16);
	CHECK(write(w->p[1][1], "x", 1) == 1);
	CHECK(look(w->ep) == 1 << 7);
	CHECK(look(w->ep) == 0);
	for (int i = 0; i < WORLD_EFDS; i++)
		CHECK(del(w->ep, w->e[i]) == 0);
}

static void world_end(struct world *w)
{
	CHECK(pollux_close(w->ep) == 0);
	for (int i = 0; i < WORLD_EFDS; i++)
		CHECK(pollux_close(w->e[i]) == 0);
	for (int i = 0; i < 2; i++) {
		close(w->p[i][0]);
		close(w->p[i][1]);
	}
}

static int escape_with(void (*way_out)(struct world *w))
{
	struct world w;
	bool injected;

	use_new();
	ledger_open();
	world_make(&w);
	arm();
	way_out(&w);
	injected = disarm();
	world_check(&w);
	world_end(&w);
	ledger_close(0, 0);
	use_new();
	ledger_close(0, 0);
	return run_status(injected);
}

static void escape_counters(struct world *w)
{
	for (int i = 0; i < WORLD_EFDS; i++) {
		pollux_escape(w->e[i]);
		CHECK(pollux_fd_served(w->e[i]) == 0);
	}
	CHECK(pollux_fd_served(w->ep) == 1);
}

static void escape_epoll(struct world *w)
{
	pollux_escape(w->ep);
	CHECK(pollux_fd_served(w->ep) == 0);
}

static void escape_everything(struct world *w)
{
	pollux_escape(-1);
	CHECK(pollux_fd_served(w->ep) == 0 && pollux_fd_served(w->e[0]) == 0);
}

static void escape_by_poll(struct world *w)
{
	struct pollfd p = {.fd = w->ep, .events = POLLIN};

	int r = pollux_poll(&p, 1, 0);

	/* Without memory it says so, as poll does. */
	if (r < 0) {
		CHECK(errno == ENOMEM);
		r = pollux_poll(&p, 1, 0);
	}
	CHECK(r == 1 && p.revents == POLLIN);
	CHECK(pollux_fd_served(w->ep) == 0);
}

/* The child sees the same counters, and what it writes is heard here. */
static void escape_by_fork(struct world *w)
{
	pid_t pid = pollux_fork();
	int status;

	CHECK(pid >= 0);
	if (pid == 0) {
		put(w->e[3], 3);
		_exit(take(w->e[3]) == 3 ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	/* The child's write has made an edge of its own. */
	CHECK(mod(w->ep, w->e[3], EPOLLIN | EPOLLET, 4) == 0);
}

static int in_escape(void)
{
	return escape_with(escape_counters);
}

static int in_escape_epoll(void)
{
	return escape_with(escape_epoll);
}

static int in_escape_all(void)
{
	return escape_with(escape_everything);
}

static int in_poll_of_epoll(void)
{
	return escape_with(escape_by_poll);
}

static int in_fork(void)
{
	return escape_with(escape_by_fork);
}

/* --- running them ------------------------------------------------------------------------- */

static void on_alarm(int sig)
{
	(void)sig;
}

/* The exit status of fn in a process of its own; with a sanitizer, its leaks count. */
static int in_child(int (*fn)(void))
{
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS};
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct sigaction sa = {.sa_handler = on_alarm};
		struct rlimit lim;

		sigaction(SIGALRM, &sa, NULL);
		/* cmocka's handlers would go on with the next test here. */
		for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
			signal(faults[i], SIG_DFL);
		status = fn();
		fflush(NULL);
		/* A leak checker at exit needs descriptors, too. */
		getrlimit(RLIMIT_NOFILE, &lim);
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
		exit(status);
	}
	for (int ms = 0; waitpid(pid, &status, WNOHANG) == 0; ms++) {
		if (ms > RUN_SECONDS * 1000) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			fail_msg("does not end (allocation %ld)", fail_at);
		}
		usleep(1000);
	}
	if (!WIFEXITED(status))
		fail_msg("killed by signal %d (allocation %ld)", WTERMSIG(status), fail_at);
	return WEXITSTATUS(status);
}

/* at_least: allocations that the call is known to need; without them nothing was tested. */
static void each_allocation(int (*fn)(void), long at_least)
{
	int status = RUN_INJECTED;

	for (fail_at = 0; status == RUN_INJECTED; fail_at++) {
		assert_true(fail_at < 100);
		status = in_child(fn);
	}
	assert_int_equal(status, RUN_CLEAN);
	assert_true(fail_at - 1 >= at_least);
	fail_at = 0;
}

#define SCENARIO(name, at_least)                                                                   \
	static void oom_##name(void **state)                                                       \
	{                                                                                          \
		(void)state;                                                                       \
		each_allocation(in_##name, at_least);                                              \
	}

/* What needs no memory at all. */
#define WITHOUT_MEMORY(name)                                                                       \
	static void oom_##name(void **state)                                                       \
	{                                                                                          \
		(void)state;                                                                       \
		fail_at = 0;                                                                       \
		assert_int_equal(in_child(in_##name), RUN_CLEAN);                                  \
	}

SCENARIO(epoll_create, 2)
SCENARIO(eventfd, 1)
SCENARIO(first_add, 1)
SCENARIO(first_add_edge, 1)
SCENARIO(add, 1)
SCENARIO(wait, 1)
SCENARIO(poll, 0)
WITHOUT_MEMORY(select)
SCENARIO(dup, 0)
WITHOUT_MEMORY(escape)
WITHOUT_MEMORY(escape_epoll)
WITHOUT_MEMORY(escape_all)
SCENARIO(poll_of_epoll, 0)
WITHOUT_MEMORY(fork)

/* --- descriptors run out ------------------------------------------------------------------ */

#define SMALL_LIMIT 200

/* Nothing above the soft limit, either. */
static void hard_limit(void)
{
	struct rlimit lim = {.rlim_cur = SMALL_LIMIT, .rlim_max = SMALL_LIMIT};

	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
}

/* What a leak checker at exit opens, which cannot raise a hard limit. */
static void give_back_some(void)
{
	for (int i = 1; i <= 16; i++)
		close(SMALL_LIMIT - i);
}

/* Leaves exactly `left` numbers below a lowered soft limit, the highest ones. */
static void fill(int left)
{
	struct rlimit lim;
	int fd;

	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0);
	CHECK(lim.rlim_max >= SMALL_LIMIT);
	lim.rlim_cur = SMALL_LIMIT;
	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	while ((fd = fcntl(2, F_DUPFD_CLOEXEC, 0)) >= 0)
		;
	CHECK(errno == EMFILE);
	for (int i = 1; i <= left; i++)
		CHECK(close(SMALL_LIMIT - i) == 0);
}

/* The same calls on both sides. */
struct side {
	int (*epoll_create1)(int);
	int (*eventfd)(unsigned int, int);
	int (*dup)(int);
	int (*fcntl)(int, int, long);
	int (*epoll_ctl)(int, int, int, struct epoll_event *);
	int (*epoll_wait)(int, struct epoll_event *, int, int);
	int (*poll)(struct pollfd *, nfds_t, int);
	int (*close)(int);
};

static int libc_fcntl(int fd, int cmd, long arg)
{
	return fcntl(fd, cmd, arg);
}

static const struct side libc_side = {
	.epoll_create1 = epoll_create1,
	.eventfd = eventfd,
	.dup = dup,
	.fcntl = libc_fcntl,
	.epoll_ctl = epoll_ctl,
	.epoll_wait = epoll_wait,
	.poll = poll,
	.close = close,
};

static const struct side pollux_side = {
	.epoll_create1 = pollux_epoll_create1,
	.eventfd = pollux_eventfd,
	.dup = pollux_dup,
	.fcntl = pollux_fcntl,
	.epoll_ctl = pollux_epoll_ctl,
	.epoll_wait = pollux_epoll_wait,
	.poll = pollux_poll,
	.close = pollux_close,
};

#define LOG_SIZE 256

struct log {
	int n;
	int result[LOG_SIZE];
};

static struct log *logs;
static const struct side *side;
static struct log *side_log;
static int numbers_left;
static bool warm;

static int noted(int r)
{
	CHECK(side_log->n < LOG_SIZE);
	side_log->result[side_log->n++] = r < 0 ? -errno : r;
	return r;
}

static void each_call_in_turn(int ep, int efd)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT, .data.u64 = 5};
	struct pollfd p = {.fd = efd, .events = POLLIN};

	for (int kind = 0; kind < 5; kind++) {
		int fd[8], n = 0;

		for (; n < 8; n++) {
			if (kind == 0)
				fd[n] = side->eventfd(0, n & 1 ? EFD_CLOEXEC : 0);
			else if (kind == 1)
				fd[n] = side->epoll_create1(EPOLL_CLOEXEC);
			else if (kind == 2)
				fd[n] = side->dup(efd);
			else if (kind == 3)
				fd[n] = side->fcntl(ep, F_DUPFD, 100);
			else
				fd[n] = n & 1 ? side->epoll_create1(0) : side->eventfd(1, 0);
			if (noted(fd[n]) < 0)
				break;
		}
		CHECK(n == numbers_left);
		noted(side->epoll_ctl(ep, EPOLL_CTL_ADD, efd, &ev));
		noted(side->epoll_wait(ep, &ev, 1, 0));
		noted(side->poll(&p, 1, 1));
		noted(side->epoll_ctl(ep, EPOLL_CTL_DEL, efd, &ev));
		while (n)
			noted(side->close(fd[--n]));
	}
}

static int one_side(void)
{
	int ep, efd;

	ep = side->epoll_create1(0);
	efd = side->eventfd(0, EFD_NONBLOCK);
	if (warm) {
		struct epoll_event ev = {.events = EPOLLIN};

		CHECK(side->epoll_ctl(ep, EPOLL_CTL_ADD, efd, &ev) == 0);
		CHECK(side->epoll_ctl(ep, EPOLL_CTL_DEL, efd, &ev) == 0);
	}
	fill(numbers_left);
	each_call_in_turn(ep, efd);
	return 0;
}

static void same_as_libc(void)
{
	for (int i = 0; i < 2; i++) {
		side = i ? &pollux_side : &libc_side;
		side_log = &logs[i];
		memset(side_log, 0, sizeof(*side_log));
		assert_int_equal(in_child(one_side), 0);
	}
	assert_true(logs[0].n >= 5 * (5 + 2 * numbers_left));
	assert_int_equal(logs[0].n, logs[1].n);
	assert_memory_equal(logs[0].result, logs[1].result, logs[0].n * sizeof(int));
}

static void limit_is_where_the_kernel_has_it(void **state)
{
	(void)state;
	logs = mmap(NULL, 2 * sizeof(*logs), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		    0);
	assert_true(logs != MAP_FAILED);
	for (int i = 0; i < 8; i++) {
		warm = i & 4;
		numbers_left = i & 3;
		same_as_libc();
	}
	munmap(logs, 2 * sizeof(*logs));
}

/* Nothing of ours exists yet when the numbers run out: what the process needs, too. */
static int first_eventfd_of_all(void)
{
	int fd[4], n = 0;

	fill(numbers_left);
	while ((fd[n] = pollux_eventfd(9, EFD_NONBLOCK)) >= 0) {
		CHECK(fd[n] == SMALL_LIMIT - numbers_left + n);
		CHECK(take(fd[n]) == 9);
		n++;
	}
	CHECK(errno == EMFILE && n == numbers_left);
	while (n)
		CHECK(pollux_close(fd[--n]) == 0);
	return 0;
}

static void first_eventfd(void **state)
{
	(void)state;
	for (numbers_left = 0; numbers_left < 4; numbers_left++)
		assert_int_equal(in_child(first_eventfd_of_all), 0);
}

static int add_with_few(void)
{
	struct epoll_event ev[4];
	struct waker waker;
	int ep = make_ep(), efd = make_efd(0), other = make_efd(0);

	fill(numbers_left);
	CHECK(add(ep, efd, EPOLLIN, 1) == 0);
	CHECK(add(ep, other, EPOLLIN, 2) == 0);
	CHECK(look(ep) == 0);
	put(efd, 1);
	CHECK(look(ep) == 1 << 1);
	put(other, 1);
	CHECK(look(ep) == (1 << 1 | 1 << 2));
	CHECK(take(efd) == 1 && take(other) == 1);
	if (numbers_left) {
		/* Room for the thread's look at /proc. */
		for (int i = 0; i < 2; i++) {
			waker_start(&waker, i ? efd : other);
			CHECK(pollux_epoll_wait(ep, ev, 4, -1) == 1);
			CHECK(ev[0].data.u64 == (i ? 1u : 2u));
			waker_end(&waker);
			CHECK(take(i ? efd : other) == 7);
		}
	}
	CHECK(pollux_close(efd) == 0);
	CHECK(pollux_close(other) == 0);
	CHECK(pollux_close(ep) == 0);
	return 0;
}

static void adding_with_few_descriptors(void **state)
{
	(void)state;
	for (numbers_left = 0; numbers_left < 4; numbers_left++)
		assert_int_equal(in_child(add_with_few), 0);
}

/* No number at all, below the hard limit neither. */
static int add_with_none(void)
{
	int ep, efd;

	hard_limit();
	ep = make_ep();
	efd = make_efd(0);
	fill(0);
	CHECK(add(ep, efd, EPOLLIN, 1) == 0);
	put(efd, 1);
	CHECK(look(ep) == 1 << 1);
	CHECK(take(efd) == 1);
	CHECK(look(ep) == 0);
	give_back_some();
	return 0;
}

static void adding_with_no_descriptor_at_all(void **state)
{
	(void)state;
	assert_int_equal(in_child(add_with_none), 0);
}

static void *put_soon(void *arg)
{
	usleep(20000);
	put(*(int *)arg, 7);
	return NULL;
}

/* One that sleeps is woken, and one that nobody wakes comes back in time. */
static void sleep_twice(int ep, int efd)
{
	struct timespec begin, end;
	struct epoll_event ev[4];
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, put_soon, &efd) == 0);
	CHECK(pollux_epoll_wait(ep, ev, 4, -1) == 1 && ev[0].data.u64 == 1);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(take(efd) == 7);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	CHECK(pollux_epoll_wait(ep, ev, 4, 30) == 0);
	clock_gettime(CLOCK_MONOTONIC, &end);
	CHECK((end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec >= 30000000);
}

/* What the first sleep would need is not to be had, in all or in part. */
static int sleep_with_few(void)
{
	int ep, efd;

	hard_limit();
	ep = make_ep();
	efd = make_efd(0);
	CHECK(add(ep, efd, EPOLLIN, 1) == 0);
	fill(numbers_left);
	CHECK(pollux_fd_served(ep) == 1 && pollux_fd_served(efd) == 1);
	sleep_twice(ep, efd);
	CHECK(pollux_fd_served(ep) == 0 && pollux_fd_served(efd) == 0);
	for (int i = 1; i <= numbers_left; i++)
		CHECK(fcntl(SMALL_LIMIT - i, F_GETFD) < 0);
	give_back_some();
	return 0;
}

static void sleeping_with_few_descriptors(void **state)
{
	(void)state;
	for (numbers_left = 0; numbers_left < 2; numbers_left++)
		assert_int_equal(in_child(sleep_with_few), 0);
}

/* The limit has been lowered past us: there is no doorbell, and what is watched is the kernel's. */
static int sleep_beyond_limit(void)
{
	const struct rlimit lim = {.rlim_cur = SMALL_LIMIT / 2, .rlim_max = SMALL_LIMIT / 2};
	int ep, efd, other;

	hard_limit();
	ep = make_ep();
	efd = make_efd(0);
	other = make_efd(0);
	CHECK(add(ep, efd, EPOLLIN, 1) == 0 && add(ep, other, EPOLLIN, 2) == 0);
	fill(0);
	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	CHECK(pollux_fd_served(ep) == 1 && pollux_fd_served(efd) == 1);
	sleep_twice(ep, efd);
	CHECK(pollux_fd_served(ep) == 0 && pollux_fd_served(efd) == 0);
	for (int i = 1; i <= 16; i++)
		close(SMALL_LIMIT / 2 - i);
	return 0;
}

static void sleeping_beyond_the_limit(void **state)
{
	(void)state;
	assert_int_equal(in_child(sleep_beyond_limit), 0);
}

/* Of descriptors of our own, as where the limit of watches has been reached. */
static void refuse_registrations(int first, int last)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_ctl, 0, 6),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, EPOLL_CTL_ADD, 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (unsigned int)first, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, (unsigned int)last, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(code) / sizeof(code[0]), code};

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static int sleep_without_doorbell(void)
{
	int ep = make_ep(), efd = make_efd(0);

	refuse_registrations(plx_fd_high(), INT_MAX);
	CHECK(add(ep, efd, EPOLLIN, 1) == 0);
	CHECK(pollux_fd_served(ep) == 1 && pollux_fd_served(efd) == 1);
	sleep_twice(ep, efd);
	CHECK(pollux_fd_served(ep) == 0 && pollux_fd_served(efd) == 0);
	CHECK(pollux_close(ep) == 0 && pollux_close(efd) == 0);
	return 0;
}

static void sleeping_without_doorbell(void **state)
{
	(void)state;
	assert_int_equal(in_child(sleep_without_doorbell), 0);
}

static void (*leave_by)(struct world *w);

static bool limit_is_hard;

static int leave_with_none(void)
{
	struct world w;

	if (limit_is_hard)
		hard_limit();
	world_make(&w);
	fill(0);
	leave_by(&w);
	/* The limit and the numbers are as they were. */
	CHECK(fcntl(2, F_DUPFD, 0) < 0 && errno == EMFILE);
	world_check(&w);
	world_end(&w);
	return 0;
}

static void leaving_with_no_descriptor(void **state)
{
	static void (*const ways[])(struct world *) = {
		escape_counters, escape_epoll, escape_everything, escape_by_poll, escape_by_fork};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(ways) / sizeof(ways[0]); i++) {
		leave_by = ways[i / 2];
		limit_is_hard = i % 2;
		assert_int_equal(in_child(leave_with_none), 0);
	}
}

/* poll needs no descriptor in the kernel, so it needs none here. */
static int poll_with_none(void)
{
	struct pollfd p[2];
	int efd, other;

	if (limit_is_hard)
		hard_limit();
	efd = make_efd(0);
	other = make_efd(0);
	p[0] = (struct pollfd){.fd = efd, .events = POLLIN};
	p[1] = (struct pollfd){.fd = other, .events = POLLIN};
	fill(0);
	CHECK(pollux_poll(p, 2, 5) == 0);
	put(other, 1);
	CHECK(pollux_poll(p, 2, -1) == 1 && p[0].revents == 0 && p[1].revents == POLLIN);
	CHECK(take(other) == 1);
	CHECK(pollux_poll(p, 2, 5) == 0);
	give_back_some();
	return 0;
}

static void polling_with_no_descriptor(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		limit_is_hard = i;
		assert_int_equal(in_child(poll_with_none), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(oom_epoll_create),
		cmocka_unit_test(oom_eventfd),
		cmocka_unit_test(oom_first_add),
		cmocka_unit_test(oom_first_add_edge),
		cmocka_unit_test(oom_add),
		cmocka_unit_test(oom_wait),
		cmocka_unit_test(oom_poll),
		cmocka_unit_test(oom_select),
		cmocka_unit_test(oom_dup),
		cmocka_unit_test(oom_escape),
		cmocka_unit_test(oom_escape_epoll),
		cmocka_unit_test(oom_escape_all),
		cmocka_unit_test(oom_poll_of_epoll),
		cmocka_unit_test(oom_fork),
		cmocka_unit_test(limit_is_where_the_kernel_has_it),
		cmocka_unit_test(first_eventfd),
		cmocka_unit_test(adding_with_few_descriptors),
		cmocka_unit_test(adding_with_no_descriptor_at_all),
		cmocka_unit_test(sleeping_with_few_descriptors),
		cmocka_unit_test(sleeping_beyond_the_limit),
		cmocka_unit_test(sleeping_without_doorbell),
		cmocka_unit_test(leaving_with_no_descriptor),
		cmocka_unit_test(polling_with_no_descriptor),
	};

	return RUN(tests);
}
