/* SPDX-License-Identifier: MIT */
/*
 * What a benchmark program takes, as a table. What stands in an option's place before the command
 * line is read is its default, which the help shows.
 */
#ifndef POLLUX_BENCH_OPTIONS_H
#define POLLUX_BENCH_OPTIONS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_MAX_OPTIONS 16

struct bench_option {
	/* NULL ends the table. */
	const char *name;
	/* For --help; may have several lines. */
	const char *help;
	/* Where the value goes, one of these. A flag takes none. */
	bool *flag;
	uint64_t *number;
	unsigned int *count;
	/* Which of the words of `value` it is, and the word itself. */
	unsigned int *choice;
	const char **text;
	/* Of a number or a count. */
	uint64_t min, max;
	/* What the help calls the value; if it has a '|', nothing but one of these words. */
	const char *value;
	/* More lines of the help. */
	void (*list)(void);
};

static inline void bench_try_help(void) __attribute__((noreturn));
static inline void bench_try_help(void)
{
	fprintf(stderr, "Try '%s --help'.\n", program_invocation_short_name);
	exit(2);
}

static inline void bench_say(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));
static inline void bench_say(const char *fmt, va_list ap)
{
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

static inline void bench_usage_error(const char *fmt, ...)
	__attribute__((noreturn, format(printf, 1, 2)));
static inline void bench_usage_error(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	bench_say(fmt, ap);
	va_end(ap);
	bench_try_help();
}

static inline uint64_t bench_option_number(const struct bench_option *o, const char *text)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || v < o->min || v > o->max)
		bench_usage_error("--%s is a number from %" PRIu64 " to %" PRIu64 ", not '%s'",
				  o->name, o->min, o->max, text);
	return v;
}

/* The word at that place in "a|b|c", NULL behind the last. */
static inline const char *bench_option_word(const char *words, unsigned int index, size_t *len)
{
	for (; index; index--) {
		words = strchr(words, '|');
		if (!words) {
			*len = 0;
			return NULL;
		}
		words++;
	}
	*len = strcspn(words, "|");
	return words;
}

static inline unsigned int bench_option_choice(const struct bench_option *o, const char *text)
{
	const char *word;
	size_t len;

	for (unsigned int i = 0; (word = bench_option_word(o->value, i, &len)); i++)
		if (strlen(text) == len && !strncmp(text, word, len))
			return i;
	bench_usage_error("--%s is one of %s, not '%s'", o->name, o->value, text);
}

static inline void bench_option_take(const struct bench_option *o, const char *text)
{
	unsigned int choice = 0;

	if (o->flag)
		*o->flag = true;
	if (o->number)
		*o->number = bench_option_number(o, text);
	if (o->count)
		*o->count = (unsigned int)bench_option_number(o, text);
	if (o->value && strchr(o->value, '|'))
		choice = bench_option_choice(o, text);
	if (o->choice)
		*o->choice = choice;
	if (o->text)
		*o->text = text;
}

static inline const char *bench_option_value(const struct bench_option *o)
{
	return o->value ? o->value : o->number || o->count ? "N" : "";
}

static inline void bench_option_default(const struct bench_option *o)
{
	if (o->number && *o->number)
		printf(" (default %" PRIu64 ")", *o->number);
	if (o->count && *o->count)
		printf(" (default %u)", *o->count);
	if (o->text && *o->text)
		printf(" (default %s)", *o->text);
	if (o->choice) {
		size_t len;
		const char *word = bench_option_word(o->value, *o->choice, &len);

		printf(" (default %.*s)", (int)len, word);
	}
}

static inline void bench_help(const char *about, const struct bench_option *options)
{
	int width = (int)strlen("help");

	for (const struct bench_option *o = options; o->name; o++) {
		int w = (int)(strlen(o->name) + 1 + strlen(bench_option_value(o)));

		/* A longer one has a line of its own. */
		if (w > width && w < 24)
			width = w;
	}
	printf("Usage: %s [OPTION]...\n%s\n\n", program_invocation_short_name, about);
	for (const struct bench_option *o = options; o->name; o++) {
		int at = printf("  --%s %s", o->name, bench_option_value(o));

		if (at > width + 4) {
			putchar('\n');
			at = 0;
		}
		printf("%*s", width + 6 - at, "");
		for (const char *p = o->help; *p; p++) {
			putchar(*p);
			if (*p == '\n')
				printf("%*s", width + 6, "");
		}
		bench_option_default(o);
		putchar('\n');
		if (o->list)
			o->list();
	}
	printf("  --%-*s  this text\n", width, "help");
}

/* Reads the command line; ends the program after --help and where something is wrong with it. */
static inline void bench_options(int argc, char **argv, const char *about,
				 const struct bench_option *options)
{
	struct option longs[BENCH_MAX_OPTIONS + 2] = {{"help", no_argument, NULL, 'h'}};
	int c, n = 0;

	for (; options[n].name && n < BENCH_MAX_OPTIONS; n++)
		longs[n + 1] = (struct option){options[n].name,
					       options[n].flag ? no_argument : required_argument,
					       NULL, 256 + n};
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'h') {
			bench_help(about, options);
			exit(0);
		}
		/* getopt_long has said what is wrong. */
		if (c < 256)
			bench_try_help();
		bench_option_take(&options[c - 256], optarg);
	}
	if (optind != argc)
		bench_usage_error("unexpected argument '%s'", argv[optind]);
}

#endif
