/* SPDX-License-Identifier: MIT */
/*
 * timerfd_create                     adopted
 * timerfd_settime, timerfd_gettime   if the descriptor is ours
 */
#include "preload/preload.h"

#include <sys/timerfd.h>

PLX_EXPORT int timerfd_create(int clock, int flags)
{
	if (plx_may_adopt()) {
		int saved = errno;
		long r = plx_px_timerfd_create(clock, flags);

		if (r != PLX_PASS)
			return plx_result_saved(r, saved);
		errno = saved;
	}
	return plx_given(plx_real.timerfd_create(clock, flags));
}

static __attribute__((noinline)) int set_ours(int fd, int flags, const struct itimerspec *value,
					      struct itimerspec *old)
{
	long r = PLX_PASS;

	if (!plx_vfork_child()) {
		r = plx_px_timerfd_settime(fd, flags, value, old);
		plx_bell_take(fd);
	}
	return r == PLX_PASS ? plx_real.timerfd_settime(fd, flags, value, old) : plx_result(r);
}

PLX_EXPORT int timerfd_settime(int fd, int flags, const struct itimerspec *value,
			       struct itimerspec *old)
{
	return plx_fd_ours(fd) ? set_ours(fd, flags, value, old)
			       : plx_real.timerfd_settime(fd, flags, value, old);
}

PLX_EXPORT int timerfd_gettime(int fd, struct itimerspec *value)
{
	long r = PLX_PASS;

	if (plx_ours(fd)) {
		r = plx_px_timerfd_gettime(fd, value);
		plx_bell_take(fd);
	}
	return r == PLX_PASS ? plx_real.timerfd_gettime(fd, value) : plx_result(r);
}
