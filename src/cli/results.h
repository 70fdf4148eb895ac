/* SPDX-License-Identifier: MIT */
/* The results of `pollux bench` as its JSON file has them: what reports and comparisons read. */
#ifndef POLLUX_RESULTS_H
#define POLLUX_RESULTS_H

#include "cli.h"
#include "json_read.h"
#include "stats.h"

#define RESULTS_SIDES 8
/* Of the interval that is shown with a median. */
#define RESULTS_LEVEL 0.95

/* What makes a run noisy. Every page that says "noisy" says these as well. */
#define NOISY_RATIO_SPREAD 0.5
#define NOISY_SIDE_SPREAD 0.5
#define NOISY_OTHERS 0.10
#define NOISY_STEAL 0.02
#define NOISY_LOAD_PER_CPU 0.5
#define NOISY_RESULTS 0.25

struct values {
	size_t n;
	double *v;
	double median, min, max;
};

struct result_metric {
	const char *name;
	const char *title;
	const char *unit;
	/* More of it is better. */
	bool more;
	struct values sides[RESULTS_SIDES];
	/* How much better the last side is than each of the others, pair by pair. */
	struct values ratios[RESULTS_SIDES - 1];
	struct interval intervals[RESULTS_SIDES - 1];
};

struct result {
	const char *bench;
	const char *label;
	/* NULL if it was measured. */
	const char *skipped;
	/* What else has to be known of it, or NULL. */
	const char *remark;
	size_t failed, not_served;
	size_t n_sides;
	const char *side_names[RESULTS_SIDES];
	const char *side_keys[RESULTS_SIDES];
	/* As it could be given to a shell. */
	char *commands[RESULTS_SIDES];
	/* What a program of it did in all, such as rounds; NAN if unknown. */
	double events;
	/* Shares of the machine's CPU time while it was measured; NAN if unknown. */
	double others, steal;
	size_t n_metrics;
	struct result_metric *metrics;
	/*
	 * The label taken apart: results of a bench whose labels differ in their first number alone
	 * are points of one line. `family` is the label without the number, `x_name` what it
	 * counts.
	 */
	double x;
	char *family;
	char *x_name;
};

/* The results of one bench: a part of the array. */
struct bench_results {
	const char *name;
	const char *title;
	/* Measures it again. */
	const char *command;
	size_t first, n;
};

struct results {
	struct json_value *root;
	const char *version;
	const char *command;
	const char *cpu, *arch, *kernel, *start, *end;
	double cpus, memory_kb, load_start, load_end, others, steal;
	double pairs;
	bool quick;
	size_t n;
	struct result *list;
	size_t n_benches;
	struct bench_results *benches;
};

/* NULL if the file cannot be read or is none of ours; that has been said then. */
struct results *results_read(const char *path);
void results_free(struct results *r);

/* The ratios of its pairs lie far apart. */
bool results_ratio_noisy(const struct values *ratio);
/* What is compared with varies by itself. */
bool results_side_noisy(const struct values *side);
/* Neither; of all the metrics and sides of a result. */
bool results_noisy(const struct result *r);

/* Calls `say`, unless NULL, with each reason to call the whole run noisy, and counts them. */
size_t results_disturbances(const struct results *r, void (*say)(void *arg, const char *text),
			    void *arg);

/* "1.23 M/s", "98.1 ns", "128 B": three digits or so, with the unit. */
void results_format(char *text, size_t size, double v, const char *unit);
/* The smallest and the largest, in the unit in which that shows the median. */
void results_format_range(char *text, size_t size, const struct values *v, const char *unit);

/* src/cli/report.c: the page, the Markdown file and the JSON file; the latter is there already. */
int report_write(const char *folder);

/* Subcommands of bench. */
int cmd_bench_compare(int argc, char **argv);
int cmd_bench_report(int argc, char **argv);

#endif
