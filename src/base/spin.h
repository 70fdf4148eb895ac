/* SPDX-License-Identifier: MIT */
/*
 * A short spin before a sleep.
 *
 * Spinning pays only while the thread that is waited for runs on another CPU. That
 * is not knowable, but whether it paid lately is: after each failure the next
 * sleeps go without a spin, twice as many each time, up to 63. No more than
 * CPUs - 1 threads of the process spin at a time.
 */
#ifndef PLX_BASE_SPIN_H
#define PLX_BASE_SPIN_H

#include "base/atomic.h"

/* 0 switches spinning off (POLLUX_SPIN=0). */
extern int plx_spin_enabled;

/*
 * state belongs to the object that is waited for, 0 at first; several threads may
 * share it. Returns whether done(arg) became true.
 */
bool plx_spin(uint32_t *state, bool (*done)(void *arg), void *arg);

#endif
