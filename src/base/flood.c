/* SPDX-License-Identifier: MIT */
#include "base/flood.h"

#include "base/clock.h"
#include "base/spin.h"
#include "base/threads.h"

#define FLOOD_NS 1000
#define FLOOD_ROUNDS_PER_LOOK 8
/* Looks at a sum, so far apart that who writes one by one has not written before each. */
#define FLOOD_LOOKS 4
#define FLOOD_LOOK_NS 250
/* So many reads that find many are believed after the looks. */
#define FLOOD_BELIEVED 64
#define FLOOD_SKIP_LOG_MAX 6

__thread bool plx_flooded;

static __thread struct {
	uint32_t believed;
	/* Reads until the next looks, and the exponent of that. */
	uint32_t skip;
	uint32_t skip_log;
} sums;

static void leave_alone(int64_t ns)
{
	int64_t end = plx_now_ns() + ns;

	do {
		for (int i = 0; i < FLOOD_ROUNDS_PER_LOOK; i++)
			plx_cpu_relax();
	} while (plx_now_ns() < end);
}

/* Whether there has been a write between each two of some looks. */
static bool grows(const uint64_t *word)
{
	uint64_t last = plx_load(word);

	for (int i = 0; i < FLOOD_LOOKS; i++) {
		uint64_t now;

		leave_alone(FLOOD_LOOK_NS);
		now = plx_load(word);
		if (now == last)
			return false;
		last = now;
	}
	return true;
}

void plx_flood_look(const uint64_t *word)
{
	uint32_t skip = sums.skip;

	if (!plx_spin_enabled || plx_single_threaded() || plx_spin_cpus() < 2)
		return;
	/* A handler may come in between. */
	if (skip) {
		sums.skip = skip - 1;
		return;
	}
	if (!sums.believed) {
		if (!grows(word)) {
			sums.skip = 1u << sums.skip_log;
			sums.skip_log += sums.skip_log < FLOOD_SKIP_LOG_MAX;
			return;
		}
		sums.skip_log = 0;
		sums.believed = FLOOD_BELIEVED;
	} else {
		sums.believed--;
	}
	plx_flooded = true;
}

void plx_flood_pause(void)
{
	plx_flooded = false;
	leave_alone(FLOOD_NS);
}
