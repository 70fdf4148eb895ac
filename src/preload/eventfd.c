/* SPDX-License-Identifier: MIT */
/*
 * eventfd                      adopted
 * eventfd_read, eventfd_write  if the descriptor is ours
 */
#include "preload/preload.h"

PLX_EXPORT int eventfd(unsigned int init, int flags)
{
	uint32_t forks = plx_load(&plx_px_forks);
	uint32_t kind = PLX_COLD_EVENTFD | (flags & EFD_NONBLOCK ? 0 : PLX_COLD_BLOCKS);
	int fd;

	if (plx_may_adopt())
		PLX_SERVED(plx_px_eventfd(init, flags));
	fd = plx_given(plx_real.eventfd(init, flags));
	return flags & EFD_SEMAPHORE ? fd : plx_note_made(fd, kind, forks);
}

/* libc takes fewer bytes for a failure, without an errno. */
static int whole(long r)
{
	return plx_result(r) == sizeof(eventfd_t) ? 0 : -1;
}

PLX_EXPORT int eventfd_read(int fd, eventfd_t *value)
{
	if (plx_cold_noted(fd))
		return read(fd, value, sizeof(*value)) == sizeof(*value) ? 0 : -1;
	if (plx_ours(fd)) {
		long r;

		plx_cancel_point();
		r = plx_px_read(fd, value, sizeof(*value));
		if (r != PLX_PASS)
			return whole(r);
	}
	return plx_real.eventfd_read(fd, value);
}

PLX_EXPORT int eventfd_write(int fd, eventfd_t value)
{
	if (plx_cold_noted(fd))
		return write(fd, &value, sizeof(value)) == sizeof(value) ? 0 : -1;
	if (plx_ours(fd)) {
		long r;

		plx_cancel_point();
		r = plx_px_write(fd, &value, sizeof(value));
		if (r != PLX_PASS)
			return whole(r);
	}
	return plx_real.eventfd_write(fd, value);
}
