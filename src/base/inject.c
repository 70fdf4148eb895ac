/* SPDX-License-Identifier: MIT */
#include "base/inject.h"

#ifdef PLX_INJECT
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

#define TEXT(x) #x
#define NAME(x) TEXT(x)
#define ONE_IN 100

static char chosen[64];
static uint32_t one_in;

/* At the start: programs replace their environment, or write their titles over it. */
__attribute__((constructor(101))) static void choose(void)
{
	const char *name =
		strcmp(NAME(PLX_INJECT), "any") ? NAME(PLX_INJECT) : secure_getenv("POLLUX_INJECT");
	const char *colon = name ? strchr(name, ':') : NULL;

	if (!name || strlen(name) >= sizeof(chosen))
		return;
	strcpy(chosen, name);
	one_in = colon ? (uint32_t)strtoul(colon + 1, NULL, 10) : ONE_IN;
}

bool plx_inject(const char *fault)
{
	static uint32_t calls;
	size_t n = strlen(fault);

	if (!one_in || strncmp(chosen, fault, n) || (chosen[n] && chosen[n] != ':'))
		return false;
	return plx_xadd(&calls, 1) % one_in == one_in - 1;
}
#endif
