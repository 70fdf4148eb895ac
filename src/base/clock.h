/* SPDX-License-Identifier: MIT */
#ifndef PLX_BASE_CLOCK_H
#define PLX_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define PLX_NSEC 1000000000ll

/* CLOCK_MONOTONIC in nanoseconds; without a system call, safe from signal handlers. */
static inline int64_t plx_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * PLX_NSEC + ts.tv_nsec;
}

#endif
