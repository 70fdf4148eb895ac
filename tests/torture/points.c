/* SPDX-License-Identifier: MIT */
#include "points.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POINTS_MAX 128

void plx_delay(const char *point);

static int points_random = 1;

static struct {
	const char *name;
	unsigned long passed;
} points[POINTS_MAX];

static __thread struct gate *my_gate;
static struct gate *any_gate;
static __thread uint32_t my_random;
static uint32_t threads_seen;

static void nap(long ns)
{
	struct timespec ts = {0, ns};

	nanosleep(&ts, NULL);
}

/* Called from signal handlers too: entries are claimed by compare-and-swap and never change. */
static unsigned long *points_slot(const char *point)
{
	for (int i = 0; i < POINTS_MAX; i++) {
		const char *name = __atomic_load_n(&points[i].name, __ATOMIC_ACQUIRE);

		if (!name && __atomic_compare_exchange_n(&points[i].name, &name, point, false,
							 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			name = point;
		if (name == point || strcmp(name, point) == 0)
			return &points[i].passed;
	}
	abort();
}

void points_delay(bool on)
{
	__atomic_store_n(&points_random, on, __ATOMIC_RELAXED);
}

unsigned long points_passed(const char *point)
{
	return __atomic_load_n(points_slot(point), __ATOMIC_RELAXED);
}

void gate_arm(struct gate *g, const char *point)
{
	g->point = point;
	__atomic_store_n(&g->reached, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&g->open, 0, __ATOMIC_RELAXED);
	my_gate = g;
}

void gate_arm_any(struct gate *g, const char *point)
{
	g->point = point;
	__atomic_store_n(&g->reached, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&g->open, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&any_gate, g, __ATOMIC_RELEASE);
}

void gate_disarm_any(void)
{
	__atomic_store_n(&any_gate, NULL, __ATOMIC_RELEASE);
}

bool gate_reached(struct gate *g)
{
	for (int i = 0; i < 200000; i++) {
		if (__atomic_load_n(&g->reached, __ATOMIC_ACQUIRE))
			return true;
		nap(100000);
	}
	return false;
}

void gate_open(struct gate *g)
{
	__atomic_store_n(&g->open, 1, __ATOMIC_RELEASE);
}

static uint32_t next_random(void)
{
	uint32_t x = my_random;

	if (!x) {
		const char *seed = getenv("POLLUX_DELAY_SEED");

		x = (seed ? (uint32_t)strtoul(seed, NULL, 0) : 1u) * 2654435761u +
		    __atomic_fetch_add(&threads_seen, 1, __ATOMIC_RELAXED) * 40503u + 1u;
	}
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	my_random = x;
	return x;
}

/* The gate that the calling thread has come to, if there is one. */
static struct gate *gate_here(const char *point)
{
	struct gate *g = my_gate;

	if (g && strcmp(g->point, point) == 0) {
		my_gate = NULL;
		return g;
	}
	g = __atomic_load_n(&any_gate, __ATOMIC_ACQUIRE);
	if (g && strcmp(g->point, point) == 0 &&
	    __atomic_compare_exchange_n(&any_gate, &g, NULL, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE))
		return g;
	return NULL;
}

void plx_delay(const char *point)
{
	struct gate *g = gate_here(point);
	uint32_t r;

	__atomic_fetch_add(points_slot(point), 1, __ATOMIC_RELAXED);
	if (g) {
		__atomic_store_n(&g->reached, 1, __ATOMIC_RELEASE);
		while (!__atomic_load_n(&g->open, __ATOMIC_ACQUIRE))
			nap(50000);
		return;
	}
	if (!__atomic_load_n(&points_random, __ATOMIC_RELAXED))
		return;
	r = next_random();
	if ((r & 31) == 0)
		sched_yield();
	else if ((r & 4095) == 1)
		nap((r >> 12) & 65535);
	else if ((r & 15) == 2)
		for (uint32_t i = (r >> 8) & 255; i; i--)
			__asm__ __volatile__("" ::: "memory");
}
