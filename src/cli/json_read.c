/* SPDX-License-Identifier: MIT */
#include "cli.h"
#include "json_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Deeper than any file of results; a bound, since the reader calls itself. */
#define MAX_DEPTH 64

struct reader {
	const char *at;
	const char *wrong;
	int depth;
};

static struct json_value *read_value(struct reader *r);

static struct json_value *fail(struct reader *r, const char *wrong)
{
	if (!r->wrong)
		r->wrong = wrong;
	return NULL;
}

static void skip_blanks(struct reader *r)
{
	r->at += strspn(r->at, " \t\r\n");
}

static bool take(struct reader *r, char c)
{
	if (*r->at != c)
		return false;
	r->at++;
	return true;
}

static struct json_value *new_value(enum json_type type)
{
	struct json_value *v = cli_alloc(sizeof(*v));

	v->type = type;
	return v;
}

/* Four hexadecimal digits, or -1. */
static long read_hex(struct reader *r)
{
	char digits[5] = "";
	char *end;
	long v;

	strncpy(digits, r->at, 4);
	v = strtol(digits, &end, 16);
	if (end != digits + 4 || digits[0] == '-' || digits[0] == '+' || digits[0] == ' ')
		return -1;
	r->at += 4;
	return v;
}

static char *put_utf8(char *to, unsigned long c)
{
	if (c < 0x80) {
		*to++ = (char)c;
	} else if (c < 0x800) {
		*to++ = (char)(0xc0 | c >> 6);
		*to++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*to++ = (char)(0xe0 | c >> 12);
		*to++ = (char)(0x80 | (c >> 6 & 0x3f));
		*to++ = (char)(0x80 | (c & 0x3f));
	} else {
		*to++ = (char)(0xf0 | c >> 18);
		*to++ = (char)(0x80 | (c >> 12 & 0x3f));
		*to++ = (char)(0x80 | (c >> 6 & 0x3f));
		*to++ = (char)(0x80 | (c & 0x3f));
	}
	return to;
}

/* The escape after a backslash; NULL if it is none. No escape is shorter than what it stands for,
 * so that the text fits into the room that its source takes. */
static char *read_escape(struct reader *r, char *to)
{
	static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
	const char *p;
	long c, low;

	if (*r->at && (p = strchr(letters, *r->at))) {
		r->at++;
		*to++ = meant[p - letters];
		return to;
	}
	if (!take(r, 'u') || (c = read_hex(r)) <= 0)
		return NULL;
	if (c >= 0xd800 && c < 0xdc00) {
		if (!take(r, '\\') || !take(r, 'u'))
			return NULL;
		low = read_hex(r);
		if (low < 0xdc00 || low > 0xdfff)
			return NULL;
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	} else if (c >= 0xdc00 && c < 0xe000) {
		return NULL;
	}
	return put_utf8(to, (unsigned long)c);
}

/* Up to the quotation mark that ends it: one that an escape stands before does not. */
static size_t source_length(const char *p)
{
	const char *start = p;

	while (*p && *p != '"' && *p != '\n')
		p += *p == '\\' && p[1] ? 2 : 1;
	return (size_t)(p - start);
}

static char *read_string(struct reader *r)
{
	char *text, *to;

	if (!take(r, '"')) {
		fail(r, "a string is expected");
		return NULL;
	}
	to = text = cli_alloc(source_length(r->at) + 1);
	for (;;) {
		size_t plain = strcspn(r->at, "\"\\\n");

		if (r->at[plain] == '\n' || !r->at[plain]) {
			free(text);
			fail(r, "a string does not end");
			return NULL;
		}
		memcpy(to, r->at, plain);
		to += plain;
		r->at += plain;
		if (take(r, '"'))
			break;
		r->at++;
		if (!(to = read_escape(r, to))) {
			free(text);
			fail(r, "a string has a wrong escape");
			return NULL;
		}
	}
	*to = '\0';
	return text;
}

static struct json_value *read_number(struct reader *r)
{
	size_t len = strspn(r->at, "+-.0123456789eE");
	struct json_value *v;
	char *end;
	double d = strtod(r->at, &end);

	if (!len || end != r->at + len)
		return fail(r, "a value is expected");
	v = new_value(JSON_NUMBER);
	v->number = d;
	r->at = end;
	return v;
}

static struct json_value *read_word(struct reader *r, const char *word, enum json_type type,
				    bool boolean)
{
	struct json_value *v;

	if (strncmp(r->at, word, strlen(word)))
		return fail(r, "a value is expected");
	r->at += strlen(word);
	v = new_value(type);
	v->boolean = boolean;
	return v;
}

/* Elements or members up to the closing bracket. */
static struct json_value *read_list(struct reader *r, enum json_type type)
{
	char close = type == JSON_ARRAY ? ']' : '}';
	struct json_value *list = new_value(type), **end = &list->first;

	r->at++;
	skip_blanks(r);
	if (take(r, close))
		return list;
	for (;;) {
		char *key = NULL;

		skip_blanks(r);
		if (type == JSON_OBJECT) {
			key = read_string(r);
			skip_blanks(r);
			if (!key || !take(r, ':')) {
				free(key);
				fail(r, "a member needs a name and a colon");
				break;
			}
		}
		*end = read_value(r);
		if (!*end) {
			free(key);
			break;
		}
		(*end)->key = key;
		end = &(*end)->next;
		skip_blanks(r);
		if (take(r, close))
			return list;
		if (!take(r, ',')) {
			fail(r, "a comma or a closing bracket is missing");
			break;
		}
	}
	json_free(list);
	return NULL;
}

static struct json_value *read_value(struct reader *r)
{
	struct json_value *v = NULL;

	skip_blanks(r);
	if (++r->depth > MAX_DEPTH)
		return fail(r, "brackets are nested too deeply");
	switch (*r->at) {
	case '{':
		v = read_list(r, JSON_OBJECT);
		break;
	case '[':
		v = read_list(r, JSON_ARRAY);
		break;
	case '"': {
		char *text = read_string(r);

		if (text) {
			v = new_value(JSON_STRING);
			v->string = text;
		}
		break;
	}
	case 't':
		v = read_word(r, "true", JSON_BOOL, true);
		break;
	case 'f':
		v = read_word(r, "false", JSON_BOOL, false);
		break;
	case 'n':
		v = read_word(r, "null", JSON_NULL, false);
		break;
	default:
		v = read_number(r);
	}
	r->depth--;
	return v;
}

static char *read_all(const char *path)
{
	FILE *f = fopen(path, "re");
	size_t size = 0, room = 1 << 16, n;
	char *text;

	if (!f)
		return NULL;
	text = cli_alloc(room);
	while ((n = fread(text + size, 1, room - size - 1, f)) > 0) {
		size += n;
		if (size + 1 < room)
			continue;
		room *= 2;
		text = realloc(text, room);
		if (!text) {
			cli_error("out of memory");
			exit(CLI_FAILED);
		}
	}
	if (ferror(f)) {
		int e = errno;

		free(text);
		text = NULL;
		errno = e;
	} else {
		text[size] = '\0';
	}
	fclose(f);
	return text;
}

struct json_value *json_read_file(const char *path, char *why, size_t size)
{
	char *text = read_all(path);
	struct reader r = {.at = text};
	struct json_value *v;
	unsigned long line = 1;

	if (!text) {
		snprintf(why, size, "%s", strerror(errno));
		return NULL;
	}
	v = read_value(&r);
	skip_blanks(&r);
	if (v && *r.at) {
		fail(&r, "something follows the end");
		json_free(v);
		v = NULL;
	}
	if (!v) {
		for (const char *p = text; p < r.at && *p; p++)
			line += *p == '\n';
		snprintf(why, size, "no JSON: line %lu: %s", line, r.wrong);
	}
	free(text);
	return v;
}

void json_free(struct json_value *v)
{
	while (v) {
		struct json_value *next = v->next;

		json_free(v->first);
		free(v->key);
		free(v->string);
		free(v);
		v = next;
	}
}

const struct json_value *json_member(const struct json_value *v, const char *key)
{
	if (v && v->type == JSON_OBJECT)
		for (v = v->first; v; v = v->next)
			if (!strcmp(v->key, key))
				return v;
	return NULL;
}

const char *json_text(const struct json_value *v, const char *key, const char *otherwise)
{
	v = json_member(v, key);
	return v && v->type == JSON_STRING ? v->string : otherwise;
}

double json_value_number(const struct json_value *v, const char *key)
{
	v = json_member(v, key);
	return v && v->type == JSON_NUMBER ? v->number : NAN;
}

bool json_truth(const struct json_value *v, const char *key)
{
	v = json_member(v, key);
	return v && v->type == JSON_BOOL && v->boolean;
}

size_t json_count(const struct json_value *v)
{
	size_t n = 0;

	if (v && (v->type == JSON_ARRAY || v->type == JSON_OBJECT))
		for (v = v->first; v; v = v->next)
			n++;
	return n;
}
