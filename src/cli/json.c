/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <math.h>

void json_start(struct json *j, FILE *f)
{
	j->f = f;
	j->depth = 0;
	j->first[0] = true;
}

static void quote(FILE *f, const char *s)
{
	fputc('"', f);
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			fprintf(f, "\\%c", c);
		else if (c == '\n')
			fputs("\\n", f);
		else if (c < 0x20 || c >= 0x7f)
			/* Bytes outside ASCII are taken as Latin-1, so the file is valid. */
			fprintf(f, "\\u%04x", c);
		else
			fputc(c, f);
	}
	fputc('"', f);
}

static void begin_value(struct json *j, const char *key)
{
	if (j->depth) {
		if (!j->first[j->depth])
			fputc(',', j->f);
		fprintf(j->f, "\n%*s", 2 * j->depth, "");
	}
	j->first[j->depth] = false;
	if (key) {
		quote(j->f, key);
		fputs(": ", j->f);
	}
}

void json_open(struct json *j, const char *key, char bracket)
{
	begin_value(j, key);
	fputc(bracket, j->f);
	j->first[++j->depth] = true;
}

void json_close(struct json *j, char bracket)
{
	bool empty = j->first[j->depth--];

	if (!empty)
		fprintf(j->f, "\n%*s", 2 * j->depth, "");
	fputc(bracket, j->f);
	if (!j->depth)
		fputc('\n', j->f);
}

void json_string(struct json *j, const char *key, const char *value)
{
	begin_value(j, key);
	quote(j->f, value);
}

void json_number(struct json *j, const char *key, double value)
{
	begin_value(j, key);
	if (isfinite(value))
		fprintf(j->f, "%.10g", value);
	else
		fputs("null", j->f);
}

void json_integer(struct json *j, const char *key, long long value)
{
	begin_value(j, key);
	fprintf(j->f, "%lld", value);
}

void json_bool(struct json *j, const char *key, bool value)
{
	begin_value(j, key);
	fputs(value ? "true" : "false", j->f);
}
