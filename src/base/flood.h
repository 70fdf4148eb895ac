/* SPDX-License-Identifier: MIT */
/*
 * A flood: writers that do not wait for their reader, and write faster than it reads.
 *
 * A reader that comes at once after each look finds a few writes at a time, and each look takes the
 * line that the writers write to away from them. The quicker it is, the slower they are: 8 threads
 * that write to eventfds, and a ninth that waits and reads, made 35 to 220 million writes a second
 * on two CPUs, as the run had it. So in the wait that follows a read of many writes the line is
 * left to the writers for a microsecond, about what the wait takes if it is the kernel's. Then they
 * make 130 to 230 million.
 *
 * An eventfd tells a sum, which may be one write: whether it grows all the time is looked at
 * before, and where it does not, only once in up to 64 such reads. A wait without a sleep is not
 * held up.
 *
 * All functions: any thread, signal handlers too.
 */
#pragma once

#include "base/atomic.h"

/* So many writes that a read finds together are many. */
#define PLX_FLOOD_WRITES 16

/* The calling thread is to leave the writers alone in its next wait. */
extern __thread bool plx_flooded;

void plx_flood_look(const uint64_t *word);
/* A read has found the sum n in *word, which still has to be readable. */
static inline void plx_flood_sum(uint64_t n, const uint64_t *word)
{
	if (n >= PLX_FLOOD_WRITES)
		plx_flood_look(word);
}

/* At the beginning of a wait that may sleep. */
void plx_flood_pause(void);
static inline void plx_flood_wait(void)
{
	if (plx_unlikely(plx_flooded))
		plx_flood_pause();
}
