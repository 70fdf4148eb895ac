/* SPDX-License-Identifier: MIT */
/*
 * Shared ground of the conformance tests.
 *
 * One binary per family of rules. Every test function is named after the rule
 * it proves (EP_CTL_01_event_is_read_first proves EP-CTL-01), because the rule
 * coverage report is made from these names. The same binary runs on the plain
 * kernel and under `pollux run`; POLLUX_EXPECT=1 in the environment makes it
 * refuse to run when the drop-in is not mapped, so that a preload which failed
 * to load cannot pass as a success.
 */
#ifndef TESTS_CONFORMANCE_HARNESS_H
#define TESTS_CONFORMANCE_HARNESS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdbool.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "../shared.h"

/* Whether these tests, and the drop-in with them, are built with a sanitizer. */
#if defined(__SANITIZE_THREAD__)
#define SANITIZED 2
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* The exit status of what cannot be tested here: of a program, or of a child that makes the test.
 */
#define EXIT_SKIPPED 77

/*
 * In the main of a program whose tests need handlers to run where the signal comes in: this
 * sanitizer holds them back and runs them where it likes, inside calls of ours as well.
 */
#if SANITIZED == 2
#define NEEDS_HANDLERS_IN_PLACE()                                                                  \
	do {                                                                                       \
		fprintf(stderr, "ThreadSanitizer runs signal handlers at places of its own\n");    \
		return EXIT_SKIPPED;                                                               \
	} while (0)
#else
#define NEEDS_HANDLERS_IN_PLACE() ((void)0)
#endif

/* Asserts that the call returns -1 and sets errno to want. */
#define assert_errno(call, want)                                                                   \
	do {                                                                                       \
		errno = 0;                                                                         \
		long long r_ = (long long)(call);                                                  \
		int e_ = errno;                                                                    \
		if (r_ != -1 || e_ != (want)) {                                                    \
			print_error("%s: returned %lld, errno %d (%s), expected -1 and %d\n",      \
				    #call, r_, e_, strerror(e_), (want));                          \
			fail();                                                                    \
		}                                                                                  \
	} while (0)

/* Asserts that the call does not return -1 and yields its result. */
#define assert_ok(call)                                                                            \
	({                                                                                         \
		errno = 0;                                                                         \
		long long r_ = (long long)(call);                                                  \
		if (r_ == -1) {                                                                    \
			print_error("%s: failed, errno %d (%s)\n", #call, errno, strerror(errno)); \
			fail();                                                                    \
		}                                                                                  \
		r_;                                                                                \
	})

/* epoll_ctl with the event given in line; returns what epoll_ctl returns. */
int ep_ctl(int ep, int op, int fd, uint32_t events, uint64_t data);
/* epoll_wait with timeout 0 into ev[0..max-1]. */
int ep_poll(int ep, struct epoll_event *ev, int max);
/* Number of events ready now (up to 64); they are collected. */
int ep_count(int ep);
/* True when exactly one event is ready, with these bits and this data. */
bool ep_one(int ep, uint32_t events, uint64_t data);

int efd_new(unsigned int init, int flags);
void efd_add(int fd, uint64_t v);
uint64_t efd_take(int fd);

/* A socket that listens on the loopback address, and one that waits to be accepted there. */
void tcp_waiting(int *listener, int *client);

/*
 * A thread whose sleep can be observed. thread_start returns when the thread
 * has begun; thread_asleep waits until the kernel shows it sleeping
 * in a system call and returns whether it does; thread_done polls without
 * blocking; thread_join waits up to ms milliseconds and returns false if the
 * thread did not end.
 */
struct test_thread {
	pthread_t id;
	pid_t tid;
	int done;
	void *(*fn)(void *);
	void *arg;
	void *ret;
};
void thread_start(struct test_thread *t, void *(*fn)(void *), void *arg);
bool thread_asleep(struct test_thread *t);
bool thread_done(struct test_thread *t);
bool thread_join(struct test_thread *t, int ms);

/* True when the drop-in is mapped into this process. */
bool under_pollux(void);
/* True when fd is served in process at this moment (false on the plain kernel). */
bool fd_served(int fd);
/*
 * True when an edge of this eventfd that was collected may be reported once more: it was served in
 * process, and its count has been written to the kernel's object. Never on the plain kernel.
 */
bool edge_may_repeat(int fd);

#define SKIP(...)                                                                                  \
	do {                                                                                       \
		print_message("skipped: " __VA_ARGS__);                                            \
		print_message("\n");                                                               \
		skip();                                                                            \
	} while (0)

/* A child has made the test, or could not, for this reason. */
#define assert_child(status, ...)                                                                  \
	do {                                                                                       \
		int ended_ = (status);                                                             \
                                                                                                   \
		if (ended_ == EXIT_SKIPPED)                                                        \
			SKIP(__VA_ARGS__);                                                         \
		assert_int_equal(ended_, 0);                                                       \
	} while (0)

/* Runs a group: checks POLLUX_EXPECT, arms a watchdog (60 s a test), runs it. */
#define run_group(tests) harness_run(#tests, tests, sizeof(tests) / sizeof((tests)[0]))
int harness_run(const char *name, const struct CMUnitTest *tests, size_t n);

/* Threads of this one do not go before it when they are woken. */
static inline void on_one_cpu(cpu_set_t *old)
{
	struct sched_param none = {0};
	cpu_set_t one;
	int cpu = sched_getcpu();

	assert_ok(sched_getaffinity(0, sizeof(*old), old));
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_ok(sched_setaffinity(0, sizeof(one), &one));
	assert_ok(sched_setscheduler(0, SCHED_BATCH, &none));
}

static inline void on_any_cpu(const cpu_set_t *old)
{
	struct sched_param none = {0};

	assert_ok(sched_setaffinity(0, sizeof(*old), old));
	assert_ok(sched_setscheduler(0, SCHED_OTHER, &none));
}

/* A system call past libc, by an instruction of the program's own: its result, or -errno. */
static inline long own_call6(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long fourth __asm__("r10") = d;
	register long fifth __asm__("r8") = e;
	register long sixth __asm__("r9") = f;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
			 : "rcx", "r11", "memory");
	return r;
#else
	register long r __asm__("x0") = a;
	register long second __asm__("x1") = b;
	register long third __asm__("x2") = c;
	register long fourth __asm__("x3") = d;
	register long fifth __asm__("x4") = e;
	register long sixth __asm__("x5") = f;
	register long nr __asm__("x8") = number;

	__asm__ volatile("svc #0"
			 : "+r"(r)
			 : "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth), "r"(nr)
			 : "memory");
	return r;
#endif
}

static inline long own_call(long number, long a, long b, long c)
{
	return own_call6(number, a, b, c, 0, 0, 0);
}

static inline long own_close(int fd)
{
	return own_call(SYS_close, fd, 0, 0);
}

#endif
