/* SPDX-License-Identifier: MIT */
/*
 * timerfd_create                     adopted
 * timerfd_settime, timerfd_gettime   if the descriptor is ours
 */
#include "preload/preload.h"

#include <sys/timerfd.h>

PLX_EXPORT int timerfd_create(int clock, int flags)
{
	struct plx_cold_since since = plx_cold_since();
	int fd;

	if (plx_may_adopt())
		PLX_SERVED(plx_px_timerfd_create(clock, flags));
	fd = plx_given(plx_real.timerfd_create(clock, flags));
	if (clock != CLOCK_MONOTONIC)
		return fd;
	return plx_note_made(fd, PLX_COLD_TIMER | (flags & TFD_NONBLOCK ? 0 : PLX_COLD_BLOCKS),
			     since);
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

static int set(int r, int fd)
{
	if (r == 0)
		plx_cold_used(fd);
	return r;
}

static __attribute__((noinline)) int set_cold(int fd, int flags, const struct itimerspec *value,
					      struct itimerspec *old)
{
	if (!plx_vfork_child())
		PLX_COLD_CHANGES(set(plx_real.timerfd_settime(fd, flags, value, old), fd));
	return plx_fd_ours(fd) ? set_ours(fd, flags, value, old)
			       : plx_real.timerfd_settime(fd, flags, value, old);
}

PLX_EXPORT int timerfd_settime(int fd, int flags, const struct itimerspec *value,
			       struct itimerspec *old)
{
	if (plx_cold_noted(fd))
		return set_cold(fd, flags, value, old);
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
