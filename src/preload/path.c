/* SPDX-License-Identifier: MIT */
/*
 * open, open64, openat, openat64 and their _2 forms, opendir (fopen: stdio.c)
 *
 * A file whose name is a number may be that of a descriptor in a folder fdinfo of /proc, by
 * whatever path, and shows the kernel's idea of it: what is at that number escapes first. (A link
 * to such a file has another name: docs/compatibility.md.)
 */
#include "preload/preload.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>

int plx_path_number(const char *path)
{
	enum { NOTHING, NUMBER, NAME } part = NOTHING;
	char piece[64];
	int n = 0;

	for (;;) {
		/* What follows the end of the string may not be mapped. */
		size_t m = sizeof(piece) - ((uintptr_t)path & (sizeof(piece) - 1));

		if (plx_copy_in(piece, path, m))
			return -1;
		for (size_t i = 0; i < m; i++) {
			char c = piece[i];

			if (!c)
				return part == NUMBER ? n : -1;
			if (c == '/') {
				part = NOTHING;
				n = 0;
			} else if (c >= '0' && c <= '9' && part != NAME && n < INT_MAX / 10 - 1 &&
				   !(part == NUMBER && n == 0)) {
				part = NUMBER;
				n = n * 10 + c - '0';
			} else {
				part = NAME;
			}
		}
		path += m;
	}
}

void plx_path_check_slow(const char *path)
{
	int saved = errno, fd = plx_path_number(path);

	if (fd >= 0)
		plx_escape_if_ours(fd, PLX_OUT_FDINFO);
	errno = saved;
}

#define OPENS(c_name, name, params, args)                                                          \
	PLX_EXPORT int c_name params __asm__(#name);                                               \
	PLX_EXPORT int c_name params                                                               \
	{                                                                                          \
		plx_path_check(path);                                                              \
		return plx_given(plx_real.name args);                                              \
	}
OPENS(plx_open, open, (const char *path, int flags, unsigned int mode), (path, flags, mode))
OPENS(plx_openat, openat, (int dir, const char *path, int flags, unsigned int mode),
      (dir, path, flags, mode))
OPENS(__open_2, __open_2, (const char *path, int flags), (path, flags))
OPENS(__openat_2, __openat_2, (int dir, const char *path, int flags), (dir, path, flags))
PLX_ALIAS(__open64_2, __open_2);
PLX_ALIAS(__openat64_2, __openat_2);

#define OPEN_ALIAS(c_name, name, target)                                                           \
	PLX_EXPORT extern __typeof__(plx_##target) c_name __asm__(name)                            \
		__attribute__((alias(#target)))
OPEN_ALIAS(plx_open64, "open64", open);
OPEN_ALIAS(plx_open_, "__open", open);
OPEN_ALIAS(plx_open64_, "__open64", open);
OPEN_ALIAS(plx_openat64, "openat64", openat);

PLX_EXPORT DIR *opendir(const char *path)
{
	DIR *d = plx_real.opendir(path);

	if (d)
		plx_given(dirfd(d));
	return d;
}
