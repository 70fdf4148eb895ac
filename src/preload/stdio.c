/* SPDX-License-Identifier: MIT */
/*
 * fdopen                       the descriptor escapes: the stream works inside libc
 * fclose, freopen, freopen64,  close a number inside libc. That of a stream is not ours,
 * pclose                       unless it was closed and given out again behind the
 *                              stream's back; then it escapes, and is closed like any other
 * endmntent, closedir,         the same for streams of mounts, folders, trees and queues
 * fts_close, mq_close
 * dprintf, vdprintf, ...       the descriptor escapes
 * fopen, fopen64               paths, see path.c
 */
#include "preload/preload.h"

#include <fcntl.h>
#include <mntent.h>
#include <stdarg.h>
#include <stdio.h>

/* A stream has been made, or not. */
FILE *plx_stream_begins(FILE *f)
{
	if (f)
		(void)plx_given(fileno(f));
	return f;
}

/* It is about to give up its number. */
static void stream_leaves(FILE *f)
{
	int saved = errno;

	if (plx_any())
		plx_escape_if_ours(fileno(f), PLX_OUT_STDIO);
	errno = saved;
}

PLX_EXPORT FILE *fdopen(int fd, const char *mode)
{
	plx_escape_if_ours(fd, PLX_OUT_STDIO);
	return plx_real.fdopen(fd, mode);
}
FILE *_IO_fdopen(int fd, const char *mode);
PLX_ALIAS(_IO_fdopen, fdopen);

PLX_EXPORT FILE *fopen(const char *path, const char *mode)
{
	plx_path_check(AT_FDCWD, path);
	return plx_stream_begins(plx_real.fopen(path, mode));
}
PLX_ALIAS(fopen64, fopen);
FILE *_IO_fopen(const char *path, const char *mode);
PLX_ALIAS(_IO_fopen, fopen);

PLX_EXPORT FILE *freopen(const char *path, const char *mode, FILE *f)
{
	stream_leaves(f);
	if (path)
		plx_path_check(AT_FDCWD, path);
	return plx_stream_begins(plx_real.freopen(path, mode, f));
}
PLX_ALIAS(freopen64, freopen);

PLX_EXPORT int fclose(FILE *f)
{
	stream_leaves(f);
	return plx_real.fclose(f);
}
int _IO_fclose(FILE *f);
PLX_ALIAS(_IO_fclose, fclose);

PLX_EXPORT int pclose(FILE *f)
{
	stream_leaves(f);
	return plx_real.pclose(f);
}

/* NULL is an error that it tells, whatever its header says. */
PLX_EXPORT int plx_closedir(DIR *d) __asm__("closedir");
PLX_EXPORT int plx_closedir(DIR *d)
{
	if (d && plx_any())
		plx_escape_if_ours(dirfd(d), PLX_OUT_STDIO);
	return plx_real.closedir(d);
}

PLX_EXPORT int endmntent(FILE *f)
{
	if (f)
		stream_leaves(f);
	return plx_real.endmntent(f);
}

PLX_EXPORT int fts_close(FTS *f)
{
	if (!(f->fts_options & FTS_NOCHDIR))
		plx_escape_if_ours(f->fts_rfd, PLX_OUT_STDIO);
	return plx_real.fts_close(f);
}
/* The other structure has the number at the same place. */
_Static_assert(offsetof(FTS, fts_rfd) == offsetof(FTS64, fts_rfd), "");
int plx_fts64_close(FTS *f) __asm__("fts64_close");
PLX_ALIAS(plx_fts64_close, fts_close);

PLX_EXPORT int mq_close(mqd_t q)
{
	plx_escape_if_ours(q, PLX_OUT_STDIO);
	return plx_real.mq_close(q);
}

PLX_EXPORT int vdprintf(int fd, const char *fmt, va_list ap)
{
	plx_escape_if_ours(fd, PLX_OUT_STDIO);
	return plx_real.vdprintf(fd, fmt, ap);
}

PLX_EXPORT int dprintf(int fd, const char *fmt, ...)
{
	va_list ap;
	int r;

	plx_escape_if_ours(fd, PLX_OUT_STDIO);
	va_start(ap, fmt);
	r = plx_real.vdprintf(fd, fmt, ap);
	va_end(ap);
	return r;
}

PLX_EXPORT int __vdprintf_chk(int fd, int flag, const char *fmt, va_list ap)
{
	plx_escape_if_ours(fd, PLX_OUT_STDIO);
	return plx_real.__vdprintf_chk(fd, flag, fmt, ap);
}

PLX_EXPORT int __dprintf_chk(int fd, int flag, const char *fmt, ...)
{
	va_list ap;
	int r;

	plx_escape_if_ours(fd, PLX_OUT_STDIO);
	va_start(ap, fmt);
	r = plx_real.__vdprintf_chk(fd, flag, fmt, ap);
	va_end(ap);
	return r;
}
