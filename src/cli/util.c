/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void cli_error(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fputs("pollux: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

int cli_try_help(const char *subcommand, int status)
{
	fprintf(stderr, "Try 'pollux %s%s--help'.\n", subcommand ? subcommand : "",
		subcommand ? " " : "");
	return status;
}

void *cli_alloc(size_t size)
{
	void *p = calloc(1, size);

	if (!p) {
		cli_error("out of memory");
		exit(CLI_FAILED);
	}
	return p;
}

char *cli_strdup(const char *s)
{
	size_t size = strlen(s) + 1;

	return memcpy(cli_alloc(size), s, size);
}

char *cli_format(const char *fmt, ...)
{
	va_list ap;
	char *text;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0) {
		cli_error("out of memory");
		exit(CLI_FAILED);
	}
	return text;
}

double cli_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}
