/* SPDX-License-Identifier: MIT */
/*
 * open, open64, openat, openat64 and their _2 forms, opendir (fopen: stdio.c)
 *
 *   /proc/<this process>/fdinfo/N     shows the kernel's idea of N: N escapes first
 *   /proc/<this process>/fdinfo       N is not known yet: everything escapes
 *   /sys/fs/cgroup/.../cgroup.event_control
 *                                     is written the number of an eventfd as text, some
 *                                     time: adoption ends
 *
 * Only absolute paths are recognised.
 */
#include "preload/preload.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/sys.h"

#define LOOK 6

/* Whether the first part of a path below /proc/ is this process. */
static bool own_process(const char *part)
{
	char *end;
	long id;

	if (strncmp(part, "self/", 5) == 0 || strncmp(part, "thread-self/", 12) == 0)
		return true;
	id = strtol(part, &end, 10);
	return end != part && *end == '/' && plx_sys3(SYS_tgkill, plx_sys0(SYS_getpid), id, 0) == 0;
}

static void proc_path(const char *path)
{
	const char *info = strstr(path, "/fdinfo");
	const char *name;
	char *end;
	long fd;

	if (!info || !own_process(path))
		return;
	name = info + strlen("/fdinfo");
	name += strspn(name, "/");
	if (!*name) {
		plx_px_escape_all(PLX_OUT_FDINFO);
		return;
	}
	fd = strtol(name, &end, 10);
	if (end != name && fd >= 0 && fd <= 0x7fffffff)
		plx_escape_if_ours(fd, PLX_OUT_FDINFO);
}

void plx_path_check_slow(const char *path)
{
	static const char suffix[] = "/cgroup.event_control";
	int saved = errno;
	char buf[512];
	size_t n = LOOK;

	if (plx_copy_in(buf, path, LOOK))
		return;
	if (memcmp(buf, "/proc/", LOOK) && memcmp(buf, "/sys/f", LOOK))
		return;
	/* One at a time: what follows the end of the string may not be mapped. */
	for (; n < sizeof(buf); n++) {
		if (plx_copy_in(buf + n, path + n, 1))
			return;
		if (!buf[n])
			break;
	}
	if (n == sizeof(buf))
		return;
	if (buf[1] == 'p')
		proc_path(buf + LOOK);
	else if (n >= sizeof(suffix) && strcmp(buf + n + 1 - sizeof(suffix), suffix) == 0)
		plx_stop_adopting(PLX_OUT_SYSCALL);
	errno = saved;
}

PLX_EXPORT int plx_open(const char *path, int flags, unsigned int mode) __asm__("open");
PLX_EXPORT int plx_open(const char *path, int flags, unsigned int mode)
{
	plx_path_check(path);
	return plx_real.open(path, flags, mode);
}

PLX_EXPORT int plx_openat(int dir, const char *path, int flags,
			  unsigned int mode) __asm__("openat");
PLX_EXPORT int plx_openat(int dir, const char *path, int flags, unsigned int mode)
{
	plx_path_check(path);
	return plx_real.openat(dir, path, flags, mode);
}

#define OPEN_ALIAS(c_name, name, target)                                                           \
	PLX_EXPORT extern __typeof__(plx_##target) c_name __asm__(name)                            \
		__attribute__((alias(#target)))
OPEN_ALIAS(plx_open64, "open64", open);
OPEN_ALIAS(plx_open_, "__open", open);
OPEN_ALIAS(plx_open64_, "__open64", open);
OPEN_ALIAS(plx_openat64, "openat64", openat);

PLX_EXPORT int __open_2(const char *path, int flags);
PLX_EXPORT int __open_2(const char *path, int flags)
{
	plx_path_check(path);
	return plx_real.__open_2(path, flags);
}
PLX_ALIAS(__open64_2, __open_2);

PLX_EXPORT int __openat_2(int dir, const char *path, int flags);
PLX_EXPORT int __openat_2(int dir, const char *path, int flags)
{
	plx_path_check(path);
	return plx_real.__openat_2(dir, path, flags);
}
PLX_ALIAS(__openat64_2, __openat_2);

PLX_EXPORT DIR *opendir(const char *path)
{
	plx_path_check(path);
	return plx_real.opendir(path);
}
