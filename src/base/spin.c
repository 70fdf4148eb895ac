/* SPDX-License-Identifier: MIT */
#include "base/spin.h"

#include <sched.h>

/* About two microseconds: a little less than what a sleep and a wake cost. */
#define SPIN_ROUNDS 200
#define SPIN_MAX_LOG 6

int plx_spin_enabled = 1;

static uint32_t spinners;
static int32_t spin_cpus;

static int32_t spin_count_cpus(void)
{
	cpu_set_t set;
	int32_t n = 1;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		n = CPU_COUNT(&set);
	plx_store(&spin_cpus, n);
	return n;
}

/* The low byte of *state is the exponent, above it stand the sleeps still to skip. */
bool plx_spin(uint32_t *state, bool (*done)(void *arg), void *arg)
{
	uint32_t s = plx_load(state);
	uint32_t log = s & 255;
	int32_t cpus = plx_load(&spin_cpus);
	bool hit = false;

	if (!plx_spin_enabled)
		return false;
	if (s >> 8) {
		plx_store(state, s - 256);
		return false;
	}
	if (!cpus)
		cpus = spin_count_cpus();
	if ((int32_t)plx_xadd(&spinners, 1) < cpus - 1) {
		for (int i = 0; i < SPIN_ROUNDS && !hit; i++) {
			plx_cpu_relax();
			hit = done(arg);
		}
		log = hit ? 0 : log < SPIN_MAX_LOG ? log + 1 : log;
		plx_store(state, log | (((1u << log) - 1) << 8));
	}
	plx_xadd(&spinners, (uint32_t)-1);
	return hit;
}
