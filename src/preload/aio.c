/* SPDX-License-Identifier: MIT */
/*
 * Linux AIO: the system calls, as they come through syscall() and from libaio's functions
 * (libaio.c).
 *
 * A context that is not ours is the kernel's: what the table does not know goes there, with
 * the descriptors that its requests name.
 */
#include "preload/preload.h"

#include <string.h>
#include <sys/mman.h>

#include "aio/aio.h"
#include "base/inside.h"
#include "base/sys.h"

/* The first context makes the guard stand; before it, no address can be one of ours. */
static long setup(unsigned int nr_events, aio_context_t *ctx)
{
	if (plx_vfork_child())
		return PLX_PASS;
	plx_start();
	if ((plx_px_no_adopt & PLX_ADOPT_AIO) || !plx_be_active())
		return PLX_PASS;
	return plx_aio_setup(nr_events, ctx);
}

long plx_aio_call_submit(aio_context_t ctx, long nr, struct iocb **iocbs)
{
	long r = plx_aio_submit(ctx, nr, iocbs), visible;

	if (plx_likely(r != PLX_PASS))
		return r;
	if (!plx_any())
		return plx_sys3(SYS_io_submit, ctx, nr, iocbs);
	visible = plx_px_escape_iocbs(nr, (void *const *)iocbs);
	r = plx_sys3(SYS_io_submit, ctx, visible, iocbs);
	/* A descriptor that does not exist for the program; a bad context comes first. */
	return r == 0 && visible == 0 && nr > 0 ? -EBADF : r;
}

long plx_aio_call_getevents(aio_context_t ctx, long min_nr, long nr, struct io_event *events,
			    const struct timespec *timeout)
{
	long r = plx_aio_getevents(ctx, min_nr, nr, events, timeout);

	if (plx_likely(r != PLX_PASS))
		return r;
	return plx_sys6(SYS_io_getevents, (long)ctx, min_nr, nr, (long)events, (long)timeout, 0);
}

long plx_aio_call(long nr, long a, long b, long c, long d, long e, long f)
{
	long r;

	switch (nr) {
	case SYS_io_submit:
		return plx_aio_call_submit((aio_context_t)a, b, (struct iocb **)c);
	case SYS_io_getevents:
		return plx_aio_call_getevents((aio_context_t)a, b, c, (struct io_event *)d,
					      (const struct timespec *)e);
	case SYS_io_setup:
		r = setup((unsigned int)a, (aio_context_t *)b);
		break;
	case SYS_io_destroy:
		r = plx_aio_destroy((aio_context_t)a);
		break;
	case SYS_io_cancel:
		r = plx_aio_cancel((aio_context_t)a, (struct iocb *)b, (struct io_event *)c);
		break;
	default:
		r = plx_aio_pgetevents((aio_context_t)a, b, c, (struct io_event *)d,
				       (const struct timespec *)e, (const void *)f);
	}
	return r == PLX_PASS ? plx_sys6(nr, a, b, c, d, e, f) : r;
}

/* --- mremap: a ring that moves takes its context along (AIO-RING-09) -------------------------- */

PLX_EXPORT void *plx_mremap(void *old, size_t old_size, size_t size, int flags,
			    void *to) __asm__("mremap");
PLX_EXPORT void *plx_mremap(void *old, size_t old_size, size_t size, int flags, void *to)
{
	PLX_INSIDE();
	void *token = plx_aio_mremap_begin(old, old_size, flags);
	void *r = plx_real.mremap(old, old_size, size, flags, to);

	plx_aio_mremap_end(token, r);
	return r;
}
