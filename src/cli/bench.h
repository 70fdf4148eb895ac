/* SPDX-License-Identifier: MIT */
/* What a file of scenarios needs of `pollux bench`. */
#ifndef POLLUX_CLI_BENCH_H
#define POLLUX_CLI_BENCH_H

#include "cli.h"

enum unit {
	UNIT_RATE,
	UNIT_SECONDS,
	UNIT_PERCENT,
	UNIT_NS,
	UNIT_US,
	UNIT_BYTES,
	UNIT_COUNT,
};

struct metric {
	/* In the result line of the program. */
	const char *key;
	const char *title;
	enum unit unit;
};

/* Most benches have two sides. The last one of a bench is what the others are compared with. */
enum side {
	SIDE_KERNEL,
	SIDE_POLLUX,
	MAX_SIDES = 5,
};

/* What is run in turn. */
struct sides {
	size_t n;
	/* As shown, and as in the JSON file. */
	const char *names[MAX_SIDES];
	const char *keys[MAX_SIDES];
};

extern const struct sides bench_kernel_and_pollux;

/* One row. */
struct config;

/* `label` is the row's from now on. native: the last side calls Pollux's own functions. */
struct config *bench_row(const char *suite, char *label, const struct sides *sides, bool native,
			 const struct metric *metrics, size_t n);
/* What is run for a side; `words` are the arguments, separated by single blanks. */
void bench_row_command(struct config *c, size_t side, const char *program, const char *words);
/* The same under `pollux run`. */
void bench_row_served(struct config *c, size_t side, const char *program, const char *words);

/* What was asked for; 0: nothing. */
bool bench_quick(void);
unsigned long bench_events(void);
const unsigned int *bench_threads(void);

/* bench_delays.c */
void bench_add_removal(void);
void bench_add_inversion(void);
void bench_add_latency(void);
void bench_add_primitives(void);
void bench_add_cost(void);
void bench_add_calls(void);

#endif
