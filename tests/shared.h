/* SPDX-License-Identifier: MIT */
/* What the tests of every folder share: time, chance, children, and what others are about. */
#ifndef TESTS_SHARED_H
#define TESTS_SHARED_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "unit.h"

/*
 * What has to come comes before that, however busy the machine is. What hangs is ended by the
 * watchdog of the conformance tests or by the suite, which go by the load.
 */
#define SOON_MS 300000
#define QUIET_MS 30

static inline int64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static inline int64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline int64_t now_ms(void)
{
	return now_ns() / 1000000;
}

/* What the calling thread has computed. */
static inline int64_t cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static inline void sleep_ms(int ms)
{
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000l};

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR)
		;
}

/* The next of a row of random numbers that *s has begun. */
static inline uint32_t rnd(uint32_t *s)
{
	uint32_t x = *s ? *s : 2463534242u;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return *s = x;
}

static inline bool readable_within(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

/* --- children ------------------------------------------------------------------------------- */

static inline int child_wait(pid_t pid)
{
	int status = -1;
	pid_t r;

	assert_true(pid > 0);
	do {
		r = waitpid(pid, &status, 0);
	} while (r == -1 && errno == EINTR);
	assert_int_equal(r, pid);
	return status;
}

/* Asserts that the child exits with 0; it has printed where it went wrong. */
static inline void child_passes(pid_t pid)
{
	int status = child_wait(pid);

	if (status != 0)
		print_error("child: %s %d\n", WIFSIGNALED(status) ? "signal" : "exit code",
			    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	assert_int_equal(status, 0);
}

/* --- what others are about ------------------------------------------------------------------ */

/* The files that tell it: of a thread of this process, and of the first thread of another. */
#define OF_THREAD "/proc/self/task/%d/status"
#define OF_PROCESS "/proc/%d/status"

/* The letter of a state, and how often there has been a sleep; 0 if it is gone. */
static inline char task_state(const char *file, pid_t id, unsigned long *sleeps)
{
	char path[64], text[4096], state = 0, *p;
	ssize_t n = -1;
	int fd;

	snprintf(path, sizeof(path), file, (int)id);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd != -1) {
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	if (n <= 0)
		return 0;
	text[n] = '\0';
	p = strstr(text, "\nvoluntary_ctxt_switches:");
	if (p == NULL || sscanf(p, "\nvoluntary_ctxt_switches: %lu", sleeps) != 1)
		return 0;
	p = strstr(text, "\nState:");
	return p != NULL && sscanf(p, "\nState: %c", &state) == 1 ? state : 0;
}

/*
 * Waits until it sleeps in a system call, and returns whether it does; once *done is set it does
 * not. It can sleep for an instant on a lock on its way: two looks, a millisecond apart, must find
 * the same sleep.
 */
static inline bool task_asleep(const char *file, pid_t id, const int *done)
{
	unsigned long sleeps = 0, seen = 0;
	int64_t end = now_ms() + SOON_MS;
	bool slept = false;

	do {
		char state = task_state(file, id, &sleeps);

		if (!state || state == 'Z' || (done && __atomic_load_n(done, __ATOMIC_ACQUIRE)))
			return false;
		if (state == 'S' && slept && sleeps == seen)
			return true;
		slept = state == 'S';
		seen = sleeps;
		sleep_ms(1);
	} while (now_ms() < end);
	return false;
}

#endif
