/* SPDX-License-Identifier: MIT */
/*
 * Between the files of `pollux bench`: bench_rows.c (what is measured), bench.c (options, running),
 * bench_result.c (what comes of it, on the terminal), bench_json.c (the same in a file).
 */
#ifndef POLLUX_CLI_BENCH_RUN_H
#define POLLUX_CLI_BENCH_RUN_H

#include "bench.h"
#include "results.h"

#define MAX_PAIRS 1000
#define MAX_METRICS 5
#define MAX_LIST 32
#define MAX_SUITES 32

struct sample {
	bool done;
	bool ok;
	bool served;
	double seconds;
	double value[MAX_METRICS];
	char *line;
	char *failure;
};

struct config {
	const char *suite;
	char *label;
	struct metric metrics[MAX_METRICS];
	size_t n_metrics;
	const struct sides *sides;
	char **argv[MAX_SIDES];
	/* Why it cannot be measured here; NULL if it can. */
	char *skipped;
	/* The Pollux side calls the library itself instead of being served by the drop-in. */
	bool native;
	/* CPU time of the machine while this was measured. */
	struct cpu_time cpu_time;
	struct sample *samples[MAX_SIDES];
};

struct summary {
	double median[MAX_SIDES];
	/* Of the last side to each of the others. */
	struct {
		double median, min, max;
		/* Of the median, by bootstrap. */
		struct interval in;
		bool noisy;
	} ratio[MAX_SIDES - 1];
};

struct bench_options {
	unsigned int threads[MAX_LIST];
	size_t n_threads;
	unsigned long events;
	unsigned int pairs;
	bool quick;
	bool native;
	/* Less than 0: what is usual. */
	int warm_up;
	const char *json;
	const char *report;
};
extern struct bench_options bench_opt;

static inline const char *plural(unsigned long n)
{
	return n == 1 ? "" : "s";
}

/* --- bench_rows.c ---------------------------------------------------------------------- */

/* A bench: what makes its rows, and "NAME: what it is about". */
struct suite {
	const char *name;
	void (*add)(void);
	const char *title;
};
extern const struct suite bench_suites[];
extern const size_t bench_n_suites;

/* The rows, in the order in which they are run. */
extern struct config *bench_configs;
extern size_t bench_n_configs;

/* Makes the rows of those that are wanted. self: this command. */
void bench_add(const bool *wanted, const char *self);
void bench_free(void);
/* The title without the name in front. */
const char *bench_about(const struct suite *suite);

/* The side that is Pollux. */
static inline size_t bench_ours(const struct config *c)
{
	return c->sides->n - 1;
}

/* --- bench_result.c -------------------------------------------------------------------- */

/* The number after "key=" in a line of such pairs; NAN if there is none. */
double bench_line_value(const char *line, const char *key);
struct summary bench_summarize(const struct config *c, size_t metric);
/* Of seconds: what the last side takes more or less than the other, in percent. */
double bench_difference(double ratio);
size_t bench_count_failed(const struct config *c);
size_t bench_count_unserved(const struct config *c);
/*
 * Where fewer descriptors are permitted than there are watches, each of them has several, which
 * costs more than one. NULL if that was not so.
 */
char *bench_describe_descriptors(const struct config *c);
void bench_print_heads(const struct sides *sides);
void bench_print_config(const struct config *c);
/* How the cost of ADD and DEL grew from the smallest to the largest set. */
void bench_print_growth(void);

/* --- bench_json.c ---------------------------------------------------------------------- */

void bench_write_json(FILE *f, const char *command, const struct machine *before,
		      const struct machine *after);

#endif
