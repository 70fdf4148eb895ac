/* SPDX-License-Identifier: MIT */
/*
 * aio_read, aio_write, lio_listio and their 64 forms
 *                              the descriptors named escape: libc reads and writes by itself
 */
#include "preload/preload.h"

#include <aio.h>

#define REQUEST(name)                                                                              \
	PLX_EXPORT int name(struct aiocb *cb)                                                      \
	{                                                                                          \
		plx_escape_if_ours(cb->aio_fildes, PLX_OUT_AIO);                                   \
		return plx_real.name(cb);                                                          \
	}
REQUEST(aio_read)
REQUEST(aio_write)
int plx_aio_read64(struct aiocb *) __asm__("aio_read64");
PLX_ALIAS(plx_aio_read64, aio_read);

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
