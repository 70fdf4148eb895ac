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

bool plx_inject(const char *fault)
{
	static uint32_t calls;
	static uint32_t one_in;
	static const char *chosen;
	const char *name = plx_load_acq(&chosen);
	size_t n = strlen(fault);

	if (!name) {
		const char *colon;

		name = strcmp(NAME(PLX_INJECT), "any") ? NAME(PLX_INJECT) : getenv("POLLUX_INJECT");
		name = name ? name : "";
		colon = strchr(name, ':');
		plx_store(&one_in, colon ? (uint32_t)strtoul(colon + 1, NULL, 10) : ONE_IN);
		plx_store_rel(&chosen, name);
	}
	if (strncmp(name, fault, n) || (name[n] && name[n] != ':') || !plx_load(&one_in))
		return false;
	return plx_xadd(&calls, 1) % plx_load(&one_in) == plx_load(&one_in) - 1;
}
#endif
