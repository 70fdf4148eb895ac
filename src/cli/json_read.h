/* SPDX-License-Identifier: MIT */
/* Reading JSON into a tree, for the results that `pollux bench --json` has written. */
#ifndef POLLUX_JSON_READ_H
#define POLLUX_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>

enum json_type {
	JSON_NULL,
	JSON_BOOL,
	JSON_NUMBER,
	JSON_STRING,
	JSON_ARRAY,
	JSON_OBJECT,
};

struct json_value {
	enum json_type type;
	/* Of a member of an object. */
	char *key;
	bool boolean;
	double number;
	char *string;
	/* Elements or members, in order. */
	struct json_value *first;
	struct json_value *next;
};

/* The file as a tree. On failure NULL, and `why` says what is wrong with it. */
struct json_value *json_read_file(const char *path, char *why, size_t size);
void json_free(struct json_value *v);

/* All of these take NULL and values of any type. */
const struct json_value *json_member(const struct json_value *v, const char *key);
const char *json_text(const struct json_value *v, const char *key, const char *otherwise);
/* NAN if there is no such number. */
double json_value_number(const struct json_value *v, const char *key);
bool json_truth(const struct json_value *v, const char *key);
size_t json_count(const struct json_value *v);

#endif
