/* SPDX-License-Identifier: MIT */
/* Statistics of few and noisy samples: medians, and how far they can be trusted. */
#ifndef POLLUX_STATS_H
#define POLLUX_STATS_H

#include <stdbool.h>
#include <stddef.h>

struct interval {
	double low;
	double high;
};

/* Sorts the values; NAN if there are none. */
double stats_median(double *v, size_t n);

/*
 * Where the median would lie if the samples were drawn again, by percentile bootstrap: medians
 * of `n` values drawn from the `n` with replacement. `level` is the share of them inside. The
 * random numbers are always the same, so that a report can be made again.
 */
struct interval stats_median_interval(const double *v, size_t n, double level);

/* The same for the median of `b` divided by that of `a`. */
struct interval stats_quotient_interval(const double *a, size_t n, const double *b, size_t m,
					double level);

#endif
