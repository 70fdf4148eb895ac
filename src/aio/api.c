/* SPDX-License-Identifier: MIT */
/*
 * The public face of AIO: errno exists here and not below.
 */
#include <errno.h>
#include <pollux/aio.h>

#include "aio/aio.h"
#include "base/sys.h"
#include "posix/posix.h"

static int api_result(long r)
{
	if (r >= 0)
		return (int)r;
	errno = (int)-r;
	return -1;
}

/* r, unless the context is not ours: then what the kernel makes of it. */
#define API_RETURN(r, kernel_call)                                                                 \
	do {                                                                                       \
		long r_ = (r);                                                                     \
		return api_result(r_ == PLX_PASS ? (kernel_call) : r_);                            \
	} while (0)

int pollux_io_setup(unsigned int nr_events, aio_context_t *ctx)
{
	return api_result(plx_aio_setup(nr_events, ctx));
}

int pollux_io_destroy(aio_context_t ctx)
{
	API_RETURN(plx_aio_destroy(ctx), plx_sys1(SYS_io_destroy, ctx));
}

int pollux_io_submit(aio_context_t ctx, long nr, struct iocb **iocbs)
{
	long r = plx_aio_submit(ctx, nr, iocbs), visible;

	if (r == PLX_PASS) {
		visible = plx_px_escape_iocbs(nr, (void *const *)iocbs);
		r = plx_sys3(SYS_io_submit, ctx, visible, iocbs);
		if (r == 0 && visible == 0 && nr > 0)
			r = -EBADF;
	}
	return api_result(r);
}

int pollux_io_getevents(aio_context_t ctx, long min_nr, long nr, struct io_event *events,
			struct timespec *timeout)
{
	API_RETURN(
		plx_aio_getevents(ctx, min_nr, nr, events, timeout),
		plx_sys6(SYS_io_getevents, (long)ctx, min_nr, nr, (long)events, (long)timeout, 0));
}

int pollux_io_pgetevents(aio_context_t ctx, long min_nr, long nr, struct io_event *events,
			 struct timespec *timeout, const sigset_t *sigmask)
{
	struct {
		const sigset_t *mask;
		size_t size;
	} sig = {.mask = sigmask, .size = 8};

	API_RETURN(plx_aio_pgetevents(ctx, min_nr, nr, events, timeout, &sig),
		   plx_sys6(SYS_io_pgetevents, (long)ctx, min_nr, nr, (long)events, (long)timeout,
			    (long)&sig));
}

int pollux_io_cancel(aio_context_t ctx, struct iocb *iocb, struct io_event *result)
{
	API_RETURN(plx_aio_cancel(ctx, iocb, result), plx_sys3(SYS_io_cancel, ctx, iocb, result));
}
