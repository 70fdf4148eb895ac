/* SPDX-License-Identifier: MIT */
#include "base/delay.h"

#if PLX_DELAYS
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/sys.h"

static uint32_t threads_seen;

static uint32_t delay_random(void)
{
	static __thread uint32_t state;
	uint32_t x = state;

	if (!x) {
		const char *seed = secure_getenv("POLLUX_DELAY_SEED");

		x = (seed ? (uint32_t)strtoul(seed, NULL, 0) : 1u) * 2654435761u +
		    plx_xadd(&threads_seen, 1) * 40503u + 1u;
	}
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	state = x;
	return x;
}

void plx_delay(const char *point)
{
	static const char *shared = (const char *)1;
	const char *only = plx_load(&shared);
	uint32_t r;

	if (only == (const char *)1) {
		only = secure_getenv("POLLUX_DELAY");
		plx_store(&shared, only);
	}
	if (only && strcmp(only, point) != 0)
		return;
	r = delay_random();
	if ((r & 63) == 0) {
		plx_sys0(SYS_sched_yield);
	} else if ((r & 15) == 1) {
		for (uint32_t i = (r >> 8) & 255; i; i--)
			plx_cpu_relax();
	}
}
#endif
