/* SPDX-License-Identifier: MIT */
#include "base/stats.h"

#include "base/lock.h"

/* Threads count each in a block of its own, as far as there are blocks. */
#define BLOCKS 16

static struct {
	uint64_t n[PLX_STATS] __attribute__((aligned(64)));
} blocks[BLOCKS];
static uint64_t longest;
/* What the parent had counted when it forked this process. */
static PLX_LARGE uint64_t before[PLX_STATS];

/* Never written once threads run, and among others that hardly are. */
PLX_START_PAGE uint32_t plx_stats_wanted;

void plx_stat_add(enum plx_stat what, uint64_t n)
{
	static uint32_t threads;
	static __thread uint32_t block;

	if (plx_unlikely(!block))
		block = plx_xadd(&threads, 1) % BLOCKS + 1;
	/* Released: whoever reads the count finds in the table what was counted. */
	__atomic_fetch_add(&blocks[block - 1].n[what], n, __ATOMIC_RELEASE);
}

void plx_stat_turn(uint64_t n)
{
	uint64_t most = plx_load(&longest);

	plx_stat_add(PLX_STAT_TURNS, 1);
	plx_stat_add(PLX_STAT_COLLECTED, n);
	while (most < n && !plx_cas(&longest, &most, n))
		;
}

PLX_CHILD_CODE uint64_t plx_stat_sum(enum plx_stat what)
{
	uint64_t sum = 0;

	for (int i = 0; i < BLOCKS; i++)
		sum += plx_load_acq(&blocks[i].n[what]);
	return sum;
}

uint64_t plx_stat_longest(void)
{
	return plx_load(&longest);
}

unsigned long long plx_stat_own(enum plx_stat what)
{
	return plx_stat_sum(what) - before[what];
}

void plx_stat_after_fork_child(void)
{
	for (int i = 0; i < PLX_STATS; i++)
		before[i] = plx_stat_sum(i);
	longest = 0;
}
