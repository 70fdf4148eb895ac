/* SPDX-License-Identifier: MIT */
#include "cli.h"
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Enough for the outermost of them to be more than one in the tails of a 99.9 % interval. */
#define RESAMPLES 10000

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double middle(const double *sorted, size_t n)
{
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double stats_median(double *v, size_t n)
{
	if (!n)
		return NAN;
	qsort(v, n, sizeof(*v), compare);
	return middle(v, n);
}

/* Marsaglia's xorshift: good enough to pick samples, and the same everywhere. */
static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static double *sorted_copy(const double *v, size_t n)
{
	double *copy = cli_alloc((n + 1) * sizeof(*copy));

	memcpy(copy, v, n * sizeof(*copy));
	qsort(copy, n, sizeof(*copy), compare);
	return copy;
}

/* How often each of the sorted values was drawn says where the middle lies, without a sort. */
static double resampled_median(const double *sorted, unsigned int *drawn, size_t n, uint64_t *state)
{
	size_t seen = 0, lower = (n - 1) / 2, upper = n / 2, i = 0;
	double a;

	memset(drawn, 0, n * sizeof(*drawn));
	for (size_t k = 0; k < n; k++)
		drawn[(next_random(state) >> 11) % n]++;
	while (seen + drawn[i] <= lower)
		seen += drawn[i++];
	a = sorted[i];
	while (seen + drawn[i] <= upper)
		seen += drawn[i++];
	return (a + sorted[i]) / 2;
}

static struct interval percentiles(double *v, double level)
{
	size_t cut = (size_t)((1 - level) / 2 * RESAMPLES);

	qsort(v, RESAMPLES, sizeof(*v), compare);
	return (struct interval){v[cut], v[RESAMPLES - 1 - cut]};
}

struct interval stats_quotient_interval(const double *a, size_t n, const double *b, size_t m,
					double level)
{
	struct interval in = {NAN, NAN};
	uint64_t state = 88172645463325252u;
	unsigned int *drawn;
	double *sa, *sb, *q;

	if (!n || !m)
		return in;
	sa = sorted_copy(a, n);
	sb = sorted_copy(b, m);
	drawn = cli_alloc((n > m ? n : m) * sizeof(*drawn));
	q = cli_alloc(RESAMPLES * sizeof(*q));
	for (size_t i = 0; i < RESAMPLES; i++) {
		double of_a = resampled_median(sa, drawn, n, &state);

		q[i] = resampled_median(sb, drawn, m, &state) / of_a;
	}
	in = percentiles(q, level);
	free(sa);
	free(sb);
	free(drawn);
	free(q);
	return in;
}

struct interval stats_median_interval(const double *v, size_t n, double level)
{
	const double one = 1;

	return stats_quotient_interval(&one, 1, v, n, level);
}
