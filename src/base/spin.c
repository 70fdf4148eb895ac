/* SPDX-License-Identifier: MIT */
#include "base/spin.h"

#include <sched.h>
#include <unistd.h>

#include "base/clock.h"

/*
 * Once both sides spin, an answer takes about a microsecond. To get there, one of them
 * has to outlast the other's wake from a sleep, so now and then a spin is long.
 */
#define SPIN_NS 4000
#define SPIN_PROBE_NS 40000
#define SPIN_ROUNDS_PER_LOOK 16
#define SPIN_MAX_LOG 6

int plx_spin_enabled = 1;

static uint32_t spinners;
static int32_t spin_cpus;

/* Of the process: the calling thread alone may be bound to one. */
static int32_t spin_count_cpus(void)
{
	cpu_set_t set;
	int32_t n = 1;

	if (sched_getaffinity(getpid(), sizeof(set), &set) == 0)
		n = CPU_COUNT(&set);
	plx_store(&spin_cpus, n);
	return n;
}

/* The low byte of *state is the exponent, above it stand the sleeps still to skip. */
void plx_spin_note_waker(int32_t *waker_cpu)
{
	plx_store(waker_cpu, sched_getcpu() + 1);
}

bool plx_spin(uint32_t *state, const int32_t *waker_cpu, bool (*done)(void *arg), void *arg)
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
	if (plx_load(waker_cpu) == sched_getcpu() + 1)
		return false;
	if (cpus > 1 && (int32_t)plx_xadd(&spinners, 1) < cpus) {
		int64_t end = plx_now_ns() + (log < SPIN_MAX_LOG ? SPIN_NS : SPIN_PROBE_NS);

		do {
			for (int i = 0; i < SPIN_ROUNDS_PER_LOOK && !hit; i++) {
				plx_cpu_relax();
				hit = done(arg);
			}
		} while (!hit && plx_now_ns() < end);
		log = hit ? 0 : log < SPIN_MAX_LOG ? log + 1 : log;
		plx_store(state, log | (((1u << log) - 1) << 8));
	}
	if (cpus > 1)
		plx_xadd(&spinners, (uint32_t)-1);
	return hit;
}
