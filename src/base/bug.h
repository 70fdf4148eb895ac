/* SPDX-License-Identifier: MIT */
/*
 * States that cannot be: the process ends with the name of the broken invariant.
 */
#pragma once

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"

/* Prints "pollux: broken invariant: WHAT (FILE:LINE)" and aborts. */
__attribute__((noreturn, cold)) void plx_bug(const char *what, const char *file, int line);

#define PLX_BUG(what) plx_bug((what), __FILE__, __LINE__)
#define PLX_INVARIANT(cond, what)                                                                  \
	do {                                                                                       \
		if (plx_unlikely(!(cond)))                                                         \
			PLX_BUG(what);                                                             \
	} while (0)
