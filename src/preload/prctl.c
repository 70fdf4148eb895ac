/* SPDX-License-Identifier: MIT */
/*
 * prctl   PR_SET_SECCOMP: everything escapes and adoption ends, as the filter knows nothing of the
 *         calls that we would make; not if there is none: so programs ask
 *
 * This file is also a part of the library for programs that only start others (src/starter).
 */
#include "preload/preload.h"

#include <stdarg.h>
#include <sys/prctl.h>

PLX_EXPORT int prctl(int op, ...)
{
	long a, b, c, d;
	va_list ap;

	va_start(ap, op);
	a = va_arg(ap, long);
	b = va_arg(ap, long);
	c = va_arg(ap, long);
	d = va_arg(ap, long);
	va_end(ap);
	if (op == PR_SET_SECCOMP)
		plx_sandbox((unsigned long)a, (const void *)b);
	return plx_real.prctl(op, a, b, c, d);
}
