/* SPDX-License-Identifier: MIT */
/*
 * What a program does with what we serve. Objects are counted always, as the ways out go by that
 * (cache/escape.c); the rest only if somebody wants to know: else each place costs a look at a word
 * that nobody writes.
 */
#pragma once

#include "base/atomic.h"

enum plx_stat {
	/* Always. */
	PLX_COUNT_EPOLLS,
	PLX_COUNT_EVENTFDS,
	/* That are made to block, and do not count as eventfds yet. */
	PLX_COUNT_BLOCKING,
	/* How often one has become CACHED, and COLD again. */
	PLX_COUNT_CACHED,
	PLX_COUNT_COOLED,
	PLX_COUNT_TIMERS,
	PLX_COUNT_AIO,
	PLX_COUNT_AIO_GIVEN,
	PLX_COUNT_SLEEPS,
	PLX_COUNT_EVICTED,
	/* Calls answered in process, and system calls that were made for them. */
	PLX_STAT_READS,
	PLX_STAT_WRITES,
	PLX_STAT_CTLS,
	PLX_STAT_WAITS,
	PLX_STAT_POLLS,
	PLX_STAT_MADE,
	/* Writes to eventfds: to those that are not cached, through the kernel; counts flushed. */
	PLX_STAT_COLD,
	PLX_STAT_THROUGH,
	PLX_STAT_FLUSHED,
	/* Calls on epolls of ours that were the kernel's alone. */
	PLX_STAT_KERNEL_CTLS,
	PLX_STAT_KERNEL_WAITS,
	/* Items put on a ready list, those that were there, those given out, in how many turns. */
	PLX_STAT_QUEUED,
	PLX_STAT_STAYED,
	PLX_STAT_COLLECTED,
	PLX_STAT_TURNS,
	/* Sleepers rung for, and sleeps that ended without an event. */
	PLX_STAT_RINGS,
	PLX_STAT_IDLE,
	/* Requests of AIO by who did them. */
	PLX_STAT_AIO_INLINE,
	PLX_STAT_AIO_KERNEL,
	/* Settings of timers that the kernel was not told, and its expiries that came too early. */
	PLX_STAT_TIMER_KEPT,
	PLX_STAT_TIMER_EARLY,
	PLX_STATS,
};

extern uint32_t plx_stats_wanted;

void plx_stat_add(enum plx_stat what, uint64_t n);
/* One turn of a collection has given out n. */
void plx_stat_turn(uint64_t n);
uint64_t plx_stat_sum(enum plx_stat what);
uint64_t plx_stat_longest(void);
/* In the child of a fork: what the parent has counted is not the child's. */
void plx_stat_after_fork_child(void);
/* Without what it was then. */
unsigned long long plx_stat_own(enum plx_stat what);

static inline void plx_stat(enum plx_stat what)
{
	if (plx_unlikely(plx_load(&plx_stats_wanted)))
		plx_stat_add(what, 1);
}
