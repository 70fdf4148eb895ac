/* SPDX-License-Identifier: MIT */
/*
 * setrlimit, prlimit and their 64 forms: poll has to know of a limit that comes down. These and
 * getrlimit meet no limit that we have raised.
 */
#include "preload/preload.h"

#include <sys/syscall.h>

#include "base/sys.h"

/*
 * The headers declare these with an enumeration in place of the number.
 *
 * A sanitizer sets another limit before its shadow memory is there, when nothing that is
 * instrumented can run.
 */
PLX_EXPORT int plx_setrlimit(int what, const struct rlimit *lim) __asm__("setrlimit");
PLX_EXPORT __attribute__((no_sanitize("address", "thread"))) int
plx_setrlimit(int what, const struct rlimit *lim)
{
	bool held;
	long r;

	if (what != RLIMIT_NOFILE) {
		r = plx_sys4(SYS_prlimit64, 0, what, lim, NULL);
		return plx_likely(r == 0) ? 0 : plx_result(r);
	}
	held = plx_start_begin();
	r = plx_real.setrlimit(what, lim);
	plx_start_end(held);
	return (int)r;
}
PLX_EXPORT int plx_setrlimit64(int, const struct rlimit *) __asm__("setrlimit64")
	__attribute__((alias("setrlimit")));

PLX_EXPORT int plx_getrlimit(int what, struct rlimit *lim) __asm__("getrlimit");
PLX_EXPORT __attribute__((no_sanitize("address", "thread"))) int plx_getrlimit(int what,
									       struct rlimit *lim)
{
	bool held = false;
	long r;

	if (what == RLIMIT_NOFILE)
		held = plx_start_begin();
	r = plx_sys4(SYS_prlimit64, 0, what, NULL, lim);
	if (what == RLIMIT_NOFILE)
		plx_start_end(held);
	return plx_likely(r == 0) ? 0 : (int)plx_result(r);
}
PLX_EXPORT int plx_getrlimit64(int, struct rlimit *) __asm__("getrlimit64")
	__attribute__((alias("getrlimit")));

PLX_EXPORT int plx_prlimit(pid_t pid, int what, const struct rlimit *lim,
			   struct rlimit *old) __asm__("prlimit");
PLX_EXPORT int plx_prlimit(pid_t pid, int what, const struct rlimit *lim, struct rlimit *old)
{
	bool held;
	int r;

	held = plx_start_begin();
	r = plx_real.prlimit(pid, what, lim, old);
	plx_start_end(held);
	return r;
}
PLX_EXPORT int plx_prlimit64(pid_t, int, const struct rlimit *,
			     struct rlimit *) __asm__("prlimit64")
	__attribute__((alias("prlimit")));
