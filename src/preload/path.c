/* SPDX-License-Identifier: MIT */
/*
 * open, open64, openat, openat64 and their _2 forms, opendir (fopen: stdio.c)
 *
 *   /proc/<this process>/fdinfo/N     shows the kernel's idea of N: N escapes first
 *   /proc/<this process>/fdinfo       N is not known yet: everything escapes, adoption ends
 *
 * The kernel says which file a path means: it may be relative, or go through links. It is
 * asked about paths that have "fdinfo" in them, and about relative ones that are a mere
 * number, which may mean a file of a directory fdinfo.
 */
#include "preload/preload.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/inside.h"
#include "base/sys.h"

#define FDINFO "/fdinfo"

/* path as the kernel shows it: resolved, below some mount of /proc. */
static void proc_path(const char *path)
{
	const char *info = strstr(path, FDINFO), *id = info, *end;
	long pid, n;

	if (!info)
		return;
	end = info + strlen(FDINFO);
	if (*end && *end != '/')
		return;
	/* The number before it is a thread's, then below its process, or a process's. */
	while (id > path && id[-1] != '/')
		id--;
	pid = strtol(id, NULL, 10);
	if (pid <= 0 || plx_sys3(SYS_tgkill, plx_sys0(SYS_getpid), pid, 0) < 0)
		return;
	if (!*end) {
		/* Any of them may be looked up in it, now and later. */
		plx_stop_adopting(PLX_OUT_FDINFO);
		return;
	}
	n = strtol(end + 1, NULL, 10);
	if (n >= 0 && n <= 0x7fffffff)
		plx_escape_if_ours((int)n, PLX_OUT_FDINFO);
}

static __attribute__((noinline)) void resolve(int dir, const char *path)
{
	char name[32], real[512];
	struct statfs fs;
	long fd, n = -1;

	fd = plx_sys4(SYS_openat, dir, path, O_PATH | O_CLOEXEC, 0);
	if (fd < 0)
		return;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", (int)fd);
	if (plx_sys2(SYS_fstatfs, fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC)
		n = plx_sys4(SYS_readlinkat, AT_FDCWD, name, real, sizeof(real) - 1);
	plx_sys1(SYS_close, fd);
	if (n > 0) {
		real[n] = 0;
		proc_path(real);
	}
}

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

/* A relative path of nothing but a number, perhaps written at length. */
static bool is_number(const char *path)
{
	size_t dots, digits;

	/* Most have a letter there. */
	if (path[0] != '.' && (path[0] < '0' || path[0] > '9'))
		return false;
	dots = strspn(path, "./");
	digits = strspn(path + dots, "0123456789");
	return digits && !path[dots + digits];
}

void plx_path_check_slow(int dir, const char *path)
{
	PLX_INSIDE();
	int saved = errno;
	char buf[512];
	long n = path_in(buf, sizeof(buf), path);
	const char *fd;

	if (n <= 0)
		return;
	fd = strstr(buf, "fd");
	if (is_number(buf) || (fd && strstr(fd, &FDINFO[1])))
		resolve(dir, path);
	errno = saved;
}

PLX_EXPORT int plx_open(const char *path, int flags, unsigned int mode) __asm__("open");
PLX_EXPORT int plx_open(const char *path, int flags, unsigned int mode)
{
	plx_path_check(AT_FDCWD, path);
	return plx_given(plx_real.open(path, flags, mode));
}

PLX_EXPORT int plx_openat(int dir, const char *path, int flags,
			  unsigned int mode) __asm__("openat");
PLX_EXPORT int plx_openat(int dir, const char *path, int flags, unsigned int mode)
{
	plx_path_check(dir, path);
	return plx_given(plx_real.openat(dir, path, flags, mode));
}

#define OPEN_ALIAS(c_name, name, target)                                                           \
	PLX_EXPORT extern __typeof__(plx_##target) c_name __asm__(name)                            \
		__attribute__((alias(#target)))
OPEN_ALIAS(plx_open64, "open64", open);
OPEN_ALIAS(plx_open_, "__open", open);
OPEN_ALIAS(plx_open64_, "__open64", open);
OPEN_ALIAS(plx_openat64, "openat64", openat);

PLX_EXPORT int __open_2(const char *path, int flags)
{
	plx_path_check(AT_FDCWD, path);
	return plx_given(plx_real.__open_2(path, flags));
}
PLX_ALIAS(__open64_2, __open_2);

PLX_EXPORT int __openat_2(int dir, const char *path, int flags)
{
	plx_path_check(dir, path);
	return plx_given(plx_real.__openat_2(dir, path, flags));
}
PLX_ALIAS(__openat64_2, __openat_2);

PLX_EXPORT DIR *opendir(const char *path)
{
	DIR *d;

	plx_path_check(AT_FDCWD, path);
	d = plx_real.opendir(path);
	if (d)
		plx_given(dirfd(d));
	return d;
}
