/* SPDX-License-Identifier: MIT */
/*
 * open, open64, openat, openat64 and their _2 forms, opendir (fopen: stdio.c)
 *
 *   .../fdinfo/N     may show the kernel's idea of N: N escapes first
 *   N                the same, where the folder of the process, or the one named, is fdinfo
 *   .../fdinfo       N is not known yet: everything escapes, adoption ends
 *
 * Whose folder that is, if it is one of /proc at all, is not asked.
 */
#include "preload/preload.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define FDINFO "fdinfo"

/* The program's string, up to the size of buf; its length, or -1. */
static long path_in(char *buf, size_t size, const char *path)
{
	size_t n = 0;

	while (n < size) {
		/* What follows the end of the string may not be mapped. */
		size_t page = 4096 - ((uintptr_t)(path + n) & 4095);
		size_t m = page < 64 ? page : 64 - ((uintptr_t)(path + n) & 63);
		char *end;

		if (m > size - n)
			m = size - n;
		if (plx_copy_in(buf + n, path + n, m))
			return -1;
		end = memchr(buf + n, 0, m);
		if (end)
			return end - buf;
		n += m;
	}
	return -1;
}

/* Behind the last part of the path that is called fdinfo, or NULL. */
static const char *behind_fdinfo(const char *path)
{
	const char *end = NULL;

	for (const char *at = path; (at = strstr(at, FDINFO));) {
		bool begins = at == path || at[-1] == '/';

		at += strlen(FDINFO);
		if (begins && (*at == '/' || !*at))
			end = at;
	}
	return end;
}

void plx_path_check_slow(const char *path)
{
	int saved = errno;
	char buf[512];
	const char *info, *number;
	size_t digits;

	if (path_in(buf, sizeof(buf), path) <= 0)
		return;
	info = behind_fdinfo(buf);
	number = info ? info : buf;
	/* Perhaps written at length. */
	number += *number == '/' && !info ? 0 : strspn(number, "./");
	digits = strspn(number, "0123456789");
	if (digits && !number[digits])
		plx_escape_if_ours((int)strtol(number, NULL, 10), PLX_OUT_FDINFO);
	else if (info)
		/* Any of them may be looked up in it, now and later. */
		plx_stop_adopting(PLX_OUT_FDINFO);
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
	DIR *d;

	plx_path_check(path);
	d = plx_real.opendir(path);
	if (d)
		plx_given(dirfd(d));
	return d;
}
