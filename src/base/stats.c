/* SPDX-License-Identifier: MIT */
#include "base/stats.h"

#include <string.h>

#include "base/lock.h"

/* Threads count in different lines, most of the time. */
#define BLOCKS 16

struct block {
	uint64_t n[PLX_STATS];
} __attribute__((aligned(64)));

static PLX_LARGE struct block blocks[BLOCKS];
static uint64_t longest;

/* Never written once threads run, and among others that hardly are. */
PLX_START_PAGE uint32_t plx_stats_wanted;

void plx_stat_add(enum plx_stat what, uint64_t n)
{
	static __thread char here;
	uintptr_t at = (uintptr_t)&here;

	__atomic_fetch_add(&blocks[(at >> 12 ^ at >> 16 ^ at >> 21) % BLOCKS].n[what], n,
			   __ATOMIC_RELAXED);
}

void plx_stat_turn(uint64_t n)
{
	uint64_t most = plx_load(&longest);

	plx_stat_add(PLX_STAT_TURNS, 1);
	plx_stat_add(PLX_STAT_COLLECTED, n);
	while (most < n && !plx_cas(&longest, &most, n))
		;
}

uint64_t plx_stat_sum(enum plx_stat what)
{
	uint64_t sum = 0;

	for (int i = 0; i < BLOCKS; i++)
		sum += plx_load(&blocks[i].n[what]);
	return sum;
}

uint64_t plx_stat_longest(void)
{
	return plx_load(&longest);
}

void plx_stat_reset(void)
{
	memset(blocks, 0, sizeof(blocks));
	longest = 0;
}
