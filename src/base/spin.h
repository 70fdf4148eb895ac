/* SPDX-License-Identifier: MIT */
/*
 * A short spin before a sleep.
 *
 * Spinning pays only while the thread that is waited for runs on another CPU. That
 * is not knowable, but whether it paid lately is: after each failure the next
 * sleeps go without a spin, twice as many each time, up to 63 and then a longer try. No more
 * threads of the process spin at a time than there are CPUs.
 */
#ifndef PLX_BASE_SPIN_H
#define PLX_BASE_SPIN_H

#include "base/atomic.h"

/* 0 switches spinning off (POLLUX_SPIN=0). */
extern int plx_spin_enabled;

/*
 * state and waker_cpu belong to the object that is waited for, 0 at first; several
 * threads may share them. Returns whether done(arg) became true.
 */
bool plx_spin(uint32_t *state, const int32_t *waker_cpu, bool (*done)(void *arg), void *arg);

/*
 * Whoever wakes a sleeper says from which CPU. If that is the waiter's own, the two
 * share it, and a spin would only keep the other from running.
 */
void plx_spin_note_waker(int32_t *waker_cpu);

#endif
