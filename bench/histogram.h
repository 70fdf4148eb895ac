/* SPDX-License-Identifier: MIT */
/*
 * Samples of a duration in nanoseconds: exact percentiles, and a histogram with four classes
 * to the octave for the result line, as histogram=FROM:COUNT,FROM:COUNT,... without empty ones.
 */
#ifndef POLLUX_BENCH_HISTOGRAM_H
#define POLLUX_BENCH_HISTOGRAM_H

#include "bench.h"

struct samples {
	uint64_t *v;
	size_t n;
	size_t room;
};

static inline void samples_init(struct samples *s, size_t room)
{
	s->v = calloc(room, sizeof(*s->v));
	s->n = 0;
	s->room = room;
	if (!s->v)
		bench_die("out of memory");
	/* The page faults come now and not between two samples. */
	memset(s->v, 1, room * sizeof(*s->v));
}

static inline void samples_add(struct samples *s, uint64_t ns)
{
	if (s->n < s->room)
		s->v[s->n++] = ns;
}

static inline int samples_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static inline void samples_sort(struct samples *s)
{
	if (!s->n)
		bench_die("nothing was sampled");
	qsort(s->v, s->n, sizeof(*s->v), samples_compare);
}

/* Sorted: the smallest value that `share` of the samples do not exceed. */
static inline uint64_t samples_quantile(const struct samples *s, double share)
{
	size_t i = 0;

	while (i < s->n - 1 && (double)(i + 1) < share * (double)s->n)
		i++;
	return s->v[i];
}

/* Where the class of that value begins. */
static inline uint64_t histogram_from(uint64_t ns)
{
	unsigned int e;

	if (ns < 8)
		return ns;
	e = 63 - (unsigned int)__builtin_clzll(ns);
	return ns >> (e - 2) << (e - 2);
}

/* Sorted. */
static inline void samples_print(const struct samples *s)
{
	printf("histogram=");
	for (size_t i = 0; i < s->n;) {
		uint64_t from = histogram_from(s->v[i]);
		size_t first = i;

		while (i < s->n && histogram_from(s->v[i]) == from)
			i++;
		printf("%s%" PRIu64 ":%zu", first ? "," : "", from, i - first);
	}
	putchar(' ');
}

#endif
