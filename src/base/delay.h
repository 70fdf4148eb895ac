/* SPDX-License-Identifier: MIT */
/*
 * Named race points. PLX_DELAY(point) marks a place between two steps of a
 * lock-free protocol. Torture builds stop there for a random while, so that
 * interleavings which are rare in nature happen thousands of times a second.
 * POLLUX_DELAY_SEED makes a run's choices repeatable per thread; POLLUX_DELAY
 * names the one point to stretch (default: all of them).
 */
#pragma once

#if PLX_DELAYS
void plx_delay(const char *point);
#define PLX_DELAY(point) plx_delay(#point)
#else
#define PLX_DELAY(point) ((void)0)
#endif
