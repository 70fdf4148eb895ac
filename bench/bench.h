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

#include "options.h"

#define BENCH_WATCHDOG_SECONDS 110

static inline void bench_die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
static inline void bench_die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	bench_say(fmt, ap);
	va_end(ap);
	/* Other threads may be asleep for good once the run is broken. */
	fflush(stderr);
	_exit(1);
}

/* The status that says that this cannot be measured here, and the line that says why. */
#define BENCH_SKIPPED 77

static inline void bench_skip(const char *why) __attribute__((noreturn));
static inline void bench_skip(const char *why)
{
	printf("skip=%s\n", why);
	exit(BENCH_SKIPPED);
}

static inline uint64_t bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* What reading the clock adds to each time that is taken: where nobody was in between. */
static inline uint64_t bench_clock_cost(void)
{
	uint64_t least = UINT64_MAX;

	for (int k = 0; k < 32; k++) {
		uint64_t start = bench_now(), took;

		for (int i = 0; i < 31; i++)
			bench_now();
		took = (bench_now() - start) / 32;
		least = took < least ? took : least;
	}
	return least;
}

/* The time since then without the cost of the clock. */
static inline uint64_t bench_since(uint64_t start, uint64_t clock)
{
	uint64_t took = bench_now() - start;

	return took > clock ? took - clock : 0;
}

/*
 * The time of an operation that is done many times: the median over groups of a thousand, so
 * that those do not count in which the machine did something else.
 */
#define BENCH_GROUP 1000

struct bench_groups {
	/* Another size of a group; 0: that. */
	uint64_t least;
	double *ns;
	size_t n;
	uint64_t time;
	uint64_t operations;
};

/* So many operations took so long. */
static inline void bench_groups_add(struct bench_groups *g, uint64_t time, uint64_t operations)
{
	g->time += time;
	g->operations += operations;
	if (g->operations < (g->least ? g->least : BENCH_GROUP))
		return;
	if (!(g->n & (g->n - 1)))
		g->ns = realloc(g->ns, (g->n ? 2 * g->n : 1) * sizeof(*g->ns));
	if (!g->ns)
		bench_die("out of memory");
	g->ns[g->n++] = (double)g->time / (double)g->operations;
	g->time = g->operations = 0;
}

static inline int bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Frees the groups. 0 if there is none. */
static inline double bench_groups_median(struct bench_groups *g)
{
	double v = 0;

	if (g->n) {
		qsort(g->ns, g->n, sizeof(*g->ns), bench_compare);
		v = g->ns[g->n / 2];
	}
	free(g->ns);
	return v;
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

/* -1: the drop-in is not there; otherwise whether it serves this fd. */
static inline int bench_served(int fd)
{
	int (*fd_served)(int);

	*(void **)&fd_served = dlsym(RTLD_DEFAULT, "pollux_fd_served");
	return fd_served ? fd_served(fd) == 1 : -1;
}

/* Prints "preload=X served=Y". */
static inline void bench_print_served(int fd)
{
	int served = bench_served(fd);

	printf("preload=%d served=%d ", served >= 0, served == 1);
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

/* The first CPUs that this process may use. */
static inline unsigned int bench_cpus(int *cpus, unsigned int max)
{
	cpu_set_t set;
	unsigned int n = 0;

	if (sched_getaffinity(0, sizeof(set), &set))
		bench_die("sched_getaffinity: %s", strerror(errno));
	for (int cpu = 0; cpu < CPU_SETSIZE && n < max; cpu++)
		if (CPU_ISSET(cpu, &set))
			cpus[n++] = cpu;
	return n;
}

/* The calling thread runs there alone. */
static inline void bench_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set))
		bench_die("cannot be bound to CPU %d", cpu);
}

#define BENCH_SEED 88172645463325252u

/* The next of a row that is the same in every run. */
static inline uint64_t bench_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* 0 to n - 1 in an order that has no pattern. */
static inline void bench_shuffle(unsigned int *order, unsigned int n)
{
	uint64_t random = BENCH_SEED;

	for (unsigned int i = 0; i < n; i++) {
		unsigned int j = (unsigned int)(bench_random(&random) % (i + 1));

		order[i] = order[j];
		order[j] = i;
	}
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
