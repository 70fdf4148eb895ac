/* SPDX-License-Identifier: MIT */
/*
 * Time-outs that are written back.
 */
#ifndef PLX_CACHE_TIMELEFT_H
#define PLX_CACHE_TIMELEFT_H

#include <stdbool.h>
#include <sys/time.h>
#include <time.h>

/* deadline = now + ts */
void plx_deadline_set(struct timespec *deadline, const struct timespec *ts);
/* The time-out of libc's select as ts and as a deadline; true if it is one that is refused. */
bool plx_timeval_start(const struct timeval *tv, struct timespec *ts, struct timespec *deadline);
/* Stores what is left until deadline, unless the process wants its time-outs untouched. */
void plx_timeval_left(const struct timespec *deadline, struct timeval *user);
void plx_timespec_left(const struct timespec *deadline, struct timespec *user);

#endif
