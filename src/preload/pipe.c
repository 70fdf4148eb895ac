/* SPDX-License-Identifier: MIT */
/*
 * pipe, __pipe, pipe2          a candidate for adoption (posix/pipe.c), once there is an
 *                              epoll or an eventfd of ours; with POLLUX_ADOPT=pipe adopted
 * aio_read, aio_write, lio_listio and their 64 forms
 *                              the descriptors named escape: libc reads and writes by itself
 */
#include "preload/preload.h"

#include <aio.h>
#include <fcntl.h>

long plx_pipe_made(int *fds, int flags)
{
	bool at_once = plx_px_adopt & PLX_ADOPT_PIPE;

	if (plx_vfork_child())
		return PLX_PASS;
	if (!plx_load_acq(&plx_active) && !(at_once && plx_activate()))
		return PLX_PASS;
	return plx_px_pipe2(fds, flags, at_once);
}

PLX_EXPORT int pipe2(int fds[2], int flags)
{
	int saved = errno;
	long r = plx_pipe_made(fds, flags);

	if (r != PLX_PASS)
		return plx_result_saved(r, saved);
	errno = saved;
	r = plx_real.pipe2(fds, flags);
	if (r == 0) {
		plx_given(fds[0]);
		plx_given(fds[1]);
	}
	return r;
}

PLX_EXPORT int pipe(int fds[2])
{
	return pipe2(fds, 0);
}
int __pipe(int fds[2]);
PLX_ALIAS(__pipe, pipe);

PLX_EXPORT int aio_read(struct aiocb *cb)
{
	plx_escape_if_ours(cb->aio_fildes, PLX_OUT_AIO);
	return plx_real.aio_read(cb);
}
int plx_aio_read64(struct aiocb *) __asm__("aio_read64");
PLX_ALIAS(plx_aio_read64, aio_read);

PLX_EXPORT int aio_write(struct aiocb *cb)
{
	plx_escape_if_ours(cb->aio_fildes, PLX_OUT_AIO);
	return plx_real.aio_write(cb);
}
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
