/* SPDX-License-Identifier: MIT */
/*
 * The clock, by the kernel's own entry: the function that the kernel maps into every process.
 *
 * Not by the name clock_gettime: a program may have a function of that name that tells another
 * time, and so may a library that is preloaded for that purpose. Time-outs of the kernel take no
 * notice of it, so neither do ours. The entry is found when it is first wanted, by reading memory
 * alone; where there is none it is the system call.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/atomic.h"

#define PLX_NSEC 1000000000ll

typedef int plx_clock_entry(clockid_t clock, struct timespec *ts);

/* NULL before the first use. */
extern plx_clock_entry *plx_clock_found;
plx_clock_entry *plx_clock_find(void);

/* As clock_gettime, for a clock that there is. Also for signal handlers; errno is not touched. */
static inline void plx_clock(clockid_t clock, struct timespec *ts)
{
	plx_clock_entry *entry = plx_load(&plx_clock_found);

	if (plx_unlikely(!entry))
		entry = plx_clock_find();
	entry(clock, ts);
}

static inline struct timespec plx_timespec_ms(int ms)
{
	return (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l};
}

static inline struct timespec plx_timespec_ns(int64_t ns)
{
	return (struct timespec){.tv_sec = ns / PLX_NSEC, .tv_nsec = ns % PLX_NSEC};
}

/* One that the kernel refuses. */
static inline bool plx_timespec_bad(const struct timespec *ts)
{
	return ts->tv_sec < 0 || (unsigned long)ts->tv_nsec >= PLX_NSEC;
}

/* CLOCK_MONOTONIC in nanoseconds. */
static inline int64_t plx_now_ns(void)
{
	struct timespec ts;

	plx_clock(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * PLX_NSEC + ts.tv_nsec;
}

/* What is left up to a time of that clock. */
static inline struct timespec plx_time_left(int64_t deadline)
{
	int64_t left = deadline - plx_now_ns();

	return plx_timespec_ns(left > 0 ? left : 0);
}
