/* SPDX-License-Identifier: MIT */
/*
 * Time-outs that the kernel writes back: those of select, and of the bare system
 * calls ppoll and pselect6.
 */
#include "cache/timeleft.h"

#include <limits.h>
#include <sys/personality.h>

#include "base/clock.h"
#include "base/sys.h"
#include "cache/uaccess.h"

void plx_deadline_set(struct timespec *deadline, const struct timespec *ts)
{
	plx_clock(CLOCK_MONOTONIC, deadline);
	deadline->tv_nsec += ts->tv_nsec;
	if (deadline->tv_nsec >= PLX_NSEC) {
		deadline->tv_nsec -= PLX_NSEC;
		deadline->tv_sec++;
	}
	if (__builtin_add_overflow(deadline->tv_sec, ts->tv_sec, &deadline->tv_sec))
		deadline->tv_sec = LONG_MAX;
}

/* Microseconds beyond a second count as seconds. */
bool plx_timeval_start(const struct timeval *tv, struct timespec *ts, struct timespec *deadline)
{
	/* libc keeps so much of them, and its sum has an upper end. */
	int usec = (int)tv->tv_usec;

	if (tv->tv_sec < 0 || usec < 0)
		return true;
	ts->tv_nsec = usec % 1000000 * 1000l;
	if (__builtin_add_overflow(tv->tv_sec, usec / 1000000, &ts->tv_sec))
		*ts = (struct timespec){.tv_sec = LONG_MAX, .tv_nsec = PLX_NSEC - 1};
	plx_deadline_set(deadline, ts);
	return false;
}

/* False if the process has asked for time-outs that stay as they are. */
static bool left(const struct timespec *deadline, struct timespec *ts)
{
	struct timespec now;

	if (plx_sys1(SYS_personality, 0xffffffff) & STICKY_TIMEOUTS)
		return false;
	plx_clock(CLOCK_MONOTONIC, &now);
	ts->tv_sec = deadline->tv_sec - now.tv_sec;
	ts->tv_nsec = deadline->tv_nsec - now.tv_nsec;
	if (ts->tv_nsec < 0) {
		ts->tv_nsec += PLX_NSEC;
		ts->tv_sec--;
	}
	if (ts->tv_sec < 0)
		ts->tv_sec = ts->tv_nsec = 0;
	return true;
}

void plx_timeval_left(const struct timespec *deadline, struct timeval *user)
{
	struct timespec ts;

	if (left(deadline, &ts)) {
		struct timeval tv = {.tv_sec = ts.tv_sec, .tv_usec = ts.tv_nsec / 1000};

		/* A time-out in read-only memory is no error. */
		(void)plx_copy_out(user, &tv, sizeof(tv));
	}
}

void plx_timespec_left(const struct timespec *deadline, struct timespec *user)
{
	struct timespec ts;

	if (left(deadline, &ts))
		(void)plx_copy_out(user, &ts, sizeof(ts));
}
