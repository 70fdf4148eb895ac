/* SPDX-License-Identifier: MIT */
/*
 * The public face of AIO: errno exists here and not below.
 */
#include <errno.h>
#include <pollux/aio.h>

#include "aio/aio.h"
#include "base/sys.h"
#include "cache/posix.h"

/* r, unless the context is not ours: then what the kernel makes of it. */
#define API_RETURN(r, kernel_call)                                                                 \
	do {                                                                                       \
		long r_ = (r);                                                                     \
		return plx_result(r_ == PLX_PASS ? (kernel_call) : r_);                            \
	} while (0)

int pollux_io_setup(unsigned int nr_events, aio_context_t *ctx)
{
	API_RETURN(plx_aio_setup(nr_events, ctx), plx_sys2(SYS_io_setup, nr_events, ctx));
}

int pollux_io_destroy(aio_context_t ctx)
{
	API_RETURN(plx_aio_destroy(ctx), plx_sys1(SYS_io_destroy, ctx));
}

int pollux_io_submit(aio_context_t ctx, long nr, struct iocb **iocbs)
{
	struct plx_aio_batch b = {.nr = nr, .user = iocbs};

	API_RETURN(plx_aio_submit(ctx, &b), plx_aio_submit_rest(ctx, &b));
}

int pollux_io_getevents(aio_context_t ctx, long min_nr, long nr, struct io_event *events,
			struct timespec *timeout)
{
	struct plx_aio_want w = {.min = min_nr, .nr = nr, .events = events, .timeout = timeout};

	API_RETURN(plx_aio_getevents(ctx, &w), plx_aio_get_rest(ctx, &w));
}

int pollux_io_pgetevents(aio_context_t ctx, long min_nr, long nr, struct io_event *events,
			 struct timespec *timeout, const sigset_t *sigmask)
{
	struct {
		const sigset_t *mask;
		size_t size;
	} sig = {.mask = sigmask, .size = 8};
	struct plx_aio_want w = {.min = min_nr,
				 .nr = nr,
				 .events = events,
				 .timeout = timeout,
				 .pget = true,
				 .sig = &sig};

	API_RETURN(plx_aio_getevents(ctx, &w), plx_aio_get_rest(ctx, &w));
}

int pollux_io_cancel(aio_context_t ctx, struct iocb *iocb, struct io_event *result)
{
	API_RETURN(plx_aio_cancel(ctx, iocb, result), plx_sys3(SYS_io_cancel, ctx, iocb, result));
}
