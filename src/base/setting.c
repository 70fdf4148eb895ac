/* SPDX-License-Identifier: MIT */
#include "base/setting.h"

#include <stdbool.h>
#include <elf.h>
#include <stddef.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/sys.h"

/* By characters in the code: a string would be another page. */
static inline bool is_ours(const char *s)
{
	return s[0] == 'P' && s[1] == 'O' && s[2] == 'L' && s[3] == 'L' && s[4] == 'U' &&
	       s[5] == 'X' && s[6] == '_';
}

PLX_START_CODE const char *plx_setting(const char *name)
{
	for (char **e = environ; e && *e; e++) {
		const char *s = *e, *n = name;

		if (!is_ours(s))
			continue;
		s += sizeof("POLLUX_") - 1;
		while (*n && *s == *n) {
			s++;
			n++;
		}
		/* Asked last: mostly there is no such variable. */
		if (!*n && *s == '=')
			return plx_auxv(AT_SECURE) ? NULL : s + 1;
	}
	return NULL;
}
