/* SPDX-License-Identifier: MIT */
/*
 * Which watches of a set are taken out and put back, a batch at a time: every so many, from another
 * one on each time; or at random, each batch in an order of its own. Equal steps are what a
 * processor foresees, and leave neighbours in memory, or in a list, neighbours in time.
 */
#ifndef POLLUX_BENCH_PICKS_H
#define POLLUX_BENCH_PICKS_H

#include "bench.h"

struct picks {
	uint64_t total, batch, stride;
	bool random;
	uint64_t seed;
	/* The batch is what it begins with. */
	unsigned int *w;
};

static inline void picks_init(struct picks *p, uint64_t total, bool random)
{
	p->total = total;
	p->batch = total < BENCH_GROUP ? total : BENCH_GROUP;
	p->stride = total / p->batch;
	p->random = random;
	p->seed = BENCH_SEED;
	p->w = malloc(total * sizeof(*p->w));
	if (!p->w)
		bench_die("out of memory");
	for (uint64_t i = 0; i < total; i++)
		p->w[i] = (unsigned int)i;
}

static inline void picks_next(struct picks *p, uint64_t offset)
{
	for (uint64_t i = 0; i < p->batch; i++) {
		uint64_t j = i * p->stride + offset % p->stride;

		if (p->random) {
			unsigned int w = p->w[i];

			j = i + bench_random(&p->seed) % (p->total - i);
			p->w[i] = p->w[j];
			p->w[j] = w;
		} else {
			p->w[i] = (unsigned int)j;
		}
	}
}

#endif
