/* SPDX-License-Identifier: MIT */
/*
 * eventfd                      adopted
 * eventfd_read, eventfd_write  if the descriptor is ours
 */
#include "preload/preload.h"

PLX_EXPORT int eventfd(unsigned int init, int flags)
{
	struct plx_cold_since since = plx_cold_since();
	uint32_t kind = PLX_COLD_EVENTFD | (flags & EFD_NONBLOCK ? 0 : PLX_COLD_BLOCKS);
	int fd;

	if (plx_may_adopt())
		PLX_SERVED(plx_px_eventfd(init, flags));
	fd = plx_given(plx_real.eventfd(init, flags));
	return flags & EFD_SEMAPHORE ? fd : plx_note_made(fd, kind, since);
}

PLX_EXPORT int eventfd_read(int fd, eventfd_t *value)
{
	if (plx_cold_noted(fd) || plx_ours(fd))
		return read(fd, value, sizeof(*value)) == sizeof(*value) ? 0 : -1;
	return plx_real.eventfd_read(fd, value);
}

PLX_EXPORT int eventfd_write(int fd, eventfd_t value)
{
	if (plx_cold_noted(fd) || plx_ours(fd))
		return write(fd, &value, sizeof(value)) == sizeof(value) ? 0 : -1;
	return plx_real.eventfd_write(fd, value);
}
