/* SPDX-License-Identifier: MIT */
/* What `pollux doctor` has found, a fact a line. */
#ifndef POLLUX_DOCTOR_H
#define POLLUX_DOCTOR_H

#include "cli.h"

enum state {
	STATE_OK,
	/* Works, but something is missing or unusual. */
	STATE_NOTE,
	/* Programs cannot run on Pollux. */
	STATE_FAIL,
};

/* The name is copied; the meaning stays where it is. */
void doctor_add(const char *name, enum state state, const char *meaning, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* explain.c: runs a program and says what Pollux has served of it. */
void doctor_program(char **argv, bool json);

#endif
