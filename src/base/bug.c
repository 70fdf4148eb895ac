/* SPDX-License-Identifier: MIT */
#include "base/bug.h"

#include <stdio.h>

#include "base/sys.h"

void plx_bug(const char *what, const char *file, int line)
{
	char buf[512];
	int n = snprintf(buf, sizeof(buf), "pollux: broken invariant: %s (%s:%d)\n", what, file,
			 line);

	if (n > 0)
		plx_sys3(SYS_write, 2, (long)buf, n < (int)sizeof(buf) ? n : (int)sizeof(buf) - 1);
	abort();
}
