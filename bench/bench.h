/* SPDX-License-Identifier: MIT */
/*
 * What the stock benchmark programs share. They call libc alone, so that the
 * same binary runs on the kernel and under the drop-in library.
 *
 * Each program prints one line of key=value pairs on standard output and exits
 * with 0 when its own bookkeeping came out right, 1 when a result was wrong or a
 * call failed, 2 on a usage error and 3 when it did not end in time.
 */
#ifndef POLLUX_BENCH_H
#define POLLUX_BENCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BENCH_WATCHDOG_SECONDS 110

static inline void bench_die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
static inline void bench_die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	/* Other threads may be asleep for good once the run is broken. */
	fflush(stderr);
	_exit(1);
}

static inline void bench_usage_error(void) __attribute__((noreturn));
static inline void bench_usage_error(void)
{
	fprintf(stderr, "Try '%s --help'.\n", program_invocation_short_name);
	exit(2);
}

static inline uint64_t bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* CPU time of all threads of this process so far, in nanoseconds. */
static inline uint64_t bench_cpu(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline double bench_seconds(uint64_t from, uint64_t to)
{
	double s = (double)(to - from) / 1e9;

	return s > 0 ? s : 1e-9;
}

/* A decimal count between min and max; `what` names it in the message. */
static inline uint64_t bench_number(const char *text, const char *what, uint64_t min, uint64_t max)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || v < min || v > max) {
		fprintf(stderr,
			"%s: %s must be a number from %" PRIu64 " to %" PRIu64 ", not '%s'\n",
			program_invocation_short_name, what, min, max, text);
		bench_usage_error();
	}
	return v;
}

static inline void bench_watchdog_fired(int sig)
{
	static const char text[] = "the run did not end in time: an event was lost, or the machine "
				   "is far too busy\n";
	ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);

	(void)sig;
	(void)ignored;
	_exit(3);
}

static inline void bench_watchdog(unsigned int seconds)
{
	struct sigaction sa;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = bench_watchdog_fired;
	sigaction(SIGALRM, &sa, NULL);
	alarm(seconds);
}

/* Prints "preload=X served=Y": whether the drop-in is there and serves this fd. */
static inline void bench_print_served(int fd)
{
	int (*fd_served)(int);

	*(void **)&fd_served = dlsym(RTLD_DEFAULT, "pollux_fd_served");
	printf("preload=%d served=%d ", fd_served != NULL, fd_served && fd_served(fd) == 1);
}

/* As many descriptors as this user may have; a privileged user may raise the hard limit too. */
static inline uint64_t bench_raise_nofile(uint64_t want)
{
	struct rlimit rl;
	FILE *f;
	unsigned long long nr_open = 0;

	if (getrlimit(RLIMIT_NOFILE, &rl))
		bench_die("getrlimit: %s", strerror(errno));
	if (rl.rlim_cur >= want)
		return rl.rlim_cur;
	if (rl.rlim_max < want) {
		f = fopen("/proc/sys/fs/nr_open", "re");
		if (f) {
			if (fscanf(f, "%llu", &nr_open) != 1)
				nr_open = 0;
			fclose(f);
		}
		if (nr_open > rl.rlim_max) {
			struct rlimit up = {.rlim_cur = nr_open, .rlim_max = nr_open};

			if (!setrlimit(RLIMIT_NOFILE, &up))
				return nr_open;
		}
	}
	rl.rlim_cur = rl.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &rl))
		bench_die("setrlimit: %s", strerror(errno));
	return rl.rlim_cur;
}

static inline void bench_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("isb" ::: "memory");
#else
	atomic_signal_fence(memory_order_seq_cst);
#endif
}

/*
 * The start of a measured run: every worker reports at the first barrier, the
 * main thread then takes the time, and the second barrier lets them go. With
 * one barrier alone the workers could run before the clock is read.
 */
struct bench_gate {
	pthread_barrier_t arrived;
	pthread_barrier_t go;
};

static inline void bench_gate_init(struct bench_gate *gate, unsigned int workers)
{
	if (pthread_barrier_init(&gate->arrived, NULL, workers + 1) ||
	    pthread_barrier_init(&gate->go, NULL, workers + 1))
		bench_die("cannot make a barrier for %u threads", workers);
}

static inline void bench_gate_enter(struct bench_gate *gate)
{
	pthread_barrier_wait(&gate->arrived);
	pthread_barrier_wait(&gate->go);
}

static inline uint64_t bench_gate_open(struct bench_gate *gate)
{
	uint64_t start;

	pthread_barrier_wait(&gate->arrived);
	start = bench_now();
	pthread_barrier_wait(&gate->go);
	return start;
}

static inline pthread_t bench_thread(void *(*fn)(void *), void *arg)
{
	pthread_t t;
	pthread_attr_t attr;
	int rc;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 * 1024);
	rc = pthread_create(&t, &attr, fn, arg);
	if (rc)
		bench_die("cannot start a thread: %s", strerror(rc));
	pthread_attr_destroy(&attr);
	return t;
}

static inline int bench_eventfd(unsigned int value, int flags)
{
	int fd = eventfd(value, flags);

	if (fd < 0)
		bench_die("eventfd: %s", strerror(errno));
	return fd;
}

static inline int bench_epoll(void)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	if (fd < 0)
		bench_die("epoll_create1: %s", strerror(errno));
	return fd;
}

static inline void bench_ctl(int ep, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data = {.u64 = data}};

	if (epoll_ctl(ep, op, fd, &ev))
		bench_die("epoll_ctl %s: %s",
			  op == EPOLL_CTL_ADD	? "ADD"
			  : op == EPOLL_CTL_DEL ? "DEL"
						: "MOD",
			  strerror(errno));
}

static inline int bench_wait(int ep, struct epoll_event *evs, int max, int timeout)
{
	int n;

	do
		n = epoll_wait(ep, evs, max, timeout);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		bench_die("epoll_wait: %s", strerror(errno));
	return n;
}

#endif
