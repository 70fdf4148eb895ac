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
 * aio_read, aio_write, lio_listio and their 64 forms
 *                              the descriptors named escape: libc reads and writes by itself
 */
#include "preload/preload.h"

#include <aio.h>
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

/* leaves: what is done before the call. */
#define LEAVES(leaves, ret, name, params, args)                                                    \
	PLX_EXPORT ret name params                                                                 \
	{                                                                                          \
		leaves;                                                                            \
		return plx_real.name args;                                                         \
	}

LEAVES(plx_escape_if_ours(fd, PLX_OUT_STDIO), FILE *, fdopen, (int fd, const char *mode),
       (fd, mode))
FILE *_IO_fdopen(int fd, const char *mode);
PLX_ALIAS(_IO_fdopen, fdopen);

PLX_EXPORT FILE *fopen(const char *path, const char *mode)
{
	plx_path_check(path);
	return plx_stream_begins(plx_real.fopen(path, mode));
}
PLX_ALIAS(fopen64, fopen);
FILE *_IO_fopen(const char *path, const char *mode);
PLX_ALIAS(_IO_fopen, fopen);

PLX_EXPORT FILE *freopen(const char *path, const char *mode, FILE *f)
{
	stream_leaves(f);
	if (path)
		plx_path_check(path);
	return plx_stream_begins(plx_real.freopen(path, mode, f));
}
PLX_ALIAS(freopen64, freopen);

LEAVES(stream_leaves(f), int, fclose, (FILE * f), (f))
int _IO_fclose(FILE *f);
PLX_ALIAS(_IO_fclose, fclose);

LEAVES(stream_leaves(f), int, pclose, (FILE * f), (f))

/* NULL is an error that it tells, whatever its header says. */
PLX_EXPORT int plx_closedir(DIR *d) __asm__("closedir");
PLX_EXPORT int plx_closedir(DIR *d)
{
	if (d && plx_any())
		plx_escape_if_ours(dirfd(d), PLX_OUT_STDIO);
	return plx_real.closedir(d);
}

LEAVES(if (f) stream_leaves(f), int, endmntent, (FILE * f), (f))

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

LEAVES(plx_escape_if_ours(q, PLX_OUT_STDIO), int, mq_close, (mqd_t q), (q))
LEAVES(plx_escape_if_ours(fd, PLX_OUT_STDIO), int, vdprintf, (int fd, const char *fmt, va_list ap),
       (fd, fmt, ap))
LEAVES(plx_escape_if_ours(fd, PLX_OUT_STDIO), int, __vdprintf_chk,
       (int fd, int flag, const char *fmt, va_list ap), (fd, flag, fmt, ap))

PLX_EXPORT int dprintf(int fd, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = vdprintf(fd, fmt, ap);
	va_end(ap);
	return r;
}

PLX_EXPORT int __dprintf_chk(int fd, int flag, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = __vdprintf_chk(fd, flag, fmt, ap);
	va_end(ap);
	return r;
}

LEAVES(plx_escape_if_ours(cb->aio_fildes, PLX_OUT_AIO), int, aio_read, (struct aiocb * cb), (cb))
int plx_aio_read64(struct aiocb *) __asm__("aio_read64");
PLX_ALIAS(plx_aio_read64, aio_read);

LEAVES(plx_escape_if_ours(cb->aio_fildes, PLX_OUT_AIO), int, aio_write, (struct aiocb * cb), (cb))
int plx_aio_write64(struct aiocb *) __asm__("aio_write64");
PLX_ALIAS(plx_aio_write64, aio_write);

PLX_EXPORT int lio_listio(int mode, struct aiocb *const list[restrict], int n,
			  struct sigevent *restrict sig)
{
	for (int i = 0; i < n; i++)
		if (list[i])
			plx_escape_if_ours(list[i]->aio_fildes, PLX_OUT_AIO);
	return plx_real.lio_listio(mode, list, n, sig);
}
int plx_lio_listio64(int, struct aiocb *const[restrict], int,
		     struct sigevent *restrict) __asm__("lio_listio64");
PLX_ALIAS(plx_lio_listio64, lio_listio);
