/* SPDX-License-Identifier: MIT */
/*
 * libaio's functions, all of its symbol versions (rules LAIO-*): a negative errno is their
 * result, and errno stays as it was. The functions have names of their own here, since two
 * of them may stand for one name of libaio's; the versions are the nodes of preload.map.
 */
#include "preload/preload.h"

#include "aio/aio.h"

/* libaio's own types, without its header, whose struct iocb is the kernel's in other words. */
typedef struct plx_aio_ring *io_context_t;
typedef void (*callback_t)(io_context_t, struct iocb *, long, long);

/* One system call. */
#define AIO(nr, a, b, c, d, e, f)                                                                  \
	((int)plx_aio_call((nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f)))
#define VERSIONED(function, name) __asm__(".symver " #function ", " name)

#define LIBAIO(name, version, params, result)                                                      \
	PLX_EXPORT int plx_##name params                                                           \
	{                                                                                          \
		return (int)(result);                                                              \
	}                                                                                          \
	VERSIONED(plx_##name, version)

LIBAIO(io_setup, "io_setup@@LIBAIO_0.4", (int nr_events, io_context_t *ctx),
       AIO(SYS_io_setup, nr_events, ctx, 0, 0, 0, 0));
LIBAIO(io_destroy, "io_destroy@@LIBAIO_0.4", (io_context_t ctx),
       AIO(SYS_io_destroy, ctx, 0, 0, 0, 0, 0));
LIBAIO(io_queue_release, "io_queue_release@@LIBAIO_0.1", (io_context_t ctx),
       AIO(SYS_io_destroy, ctx, 0, 0, 0, 0, 0));
LIBAIO(io_submit, "io_submit@@LIBAIO_0.1", (io_context_t ctx, long nr, struct iocb **iocbs),
       plx_aio_call_submit((aio_context_t)ctx, nr, iocbs));
LIBAIO(io_cancel, "io_cancel@@LIBAIO_0.4",
       (io_context_t ctx, struct iocb *iocb, struct io_event *result),
       AIO(SYS_io_cancel, ctx, iocb, result, 0, 0, 0));
LIBAIO(io_cancel_0_1, "io_cancel@LIBAIO_0.1", (io_context_t ctx, struct iocb *iocb),
       plx_io_cancel(ctx, iocb, &(struct io_event){0}));

/*
 * LAIO-06 and 07: an empty ring and a zero time-out are answered without a call, whatever
 * the other arguments are; LAIO-08: so a bad context faults here.
 */
static bool nothing_there(io_context_t ctx, const struct timespec *timeout)
{
	return ctx && plx_load(&ctx->magic) == PLX_AIO_MAGIC && timeout && timeout->tv_sec == 0 &&
	       timeout->tv_nsec == 0 && plx_load(&ctx->head) == plx_load_acq(&ctx->tail);
}

PLX_EXPORT int plx_io_getevents(io_context_t ctx, long min_nr, long nr, struct io_event *events,
				struct timespec *timeout)
{
	if (nothing_there(ctx, timeout))
		return 0;
	return (int)plx_aio_call_getevents((aio_context_t)ctx, min_nr, nr, events, timeout);
}
VERSIONED(plx_io_getevents, "io_getevents@@LIBAIO_0.4");

PLX_EXPORT int plx_io_getevents_0_1(io_context_t ctx, long nr, struct io_event *events,
				    const struct timespec *timeout)
{
	struct timespec ts;

	if (timeout)
		ts = *timeout;
	return plx_io_getevents(ctx, 1, nr, events, timeout ? &ts : NULL);
}
VERSIONED(plx_io_getevents_0_1, "io_getevents@LIBAIO_0.1");

PLX_EXPORT int plx_io_pgetevents(io_context_t ctx, long min_nr, long nr, struct io_event *events,
				 struct timespec *timeout, sigset_t *mask)
{
	struct {
		sigset_t *mask;
		size_t size;
	} sig = {.mask = mask, .size = 8};

	if (nothing_there(ctx, timeout))
		return 0;
	return AIO(SYS_io_pgetevents, ctx, min_nr, nr, events, timeout, &sig);
}
VERSIONED(plx_io_pgetevents, "io_pgetevents@@LIBAIO_0.5");

PLX_EXPORT int plx_io_queue_init(int max, io_context_t *ctx)
{
	if (max <= 0)
		return -EINVAL;
	*ctx = NULL;
	return plx_io_setup(max, ctx);
}
VERSIONED(plx_io_queue_init, "io_queue_init@@LIBAIO_0.1");

PLX_EXPORT int plx_io_queue_run(io_context_t ctx)
{
	struct timespec none = {0};
	struct io_event ev;
	int r;

	while ((r = plx_io_getevents(ctx, 0, 1, &ev, &none)) == 1) {
		callback_t callback = (callback_t)(uintptr_t)ev.data;

		callback(ctx, (struct iocb *)(uintptr_t)ev.obj, ev.res, ev.res2);
	}
	return r;
}
VERSIONED(plx_io_queue_run, "io_queue_run@@LIBAIO_0.1");

PLX_EXPORT int plx_io_queue_wait(io_context_t ctx, struct timespec *timeout)
{
	return plx_io_getevents(ctx, 0, 0, NULL, timeout);
}
VERSIONED(plx_io_queue_wait, "io_queue_wait@@LIBAIO_0.4");

PLX_EXPORT int plx_io_queue_wait_0_1(io_context_t ctx, const struct timespec *timeout)
{
	struct timespec ts;

	if (timeout)
		ts = *timeout;
	return plx_io_queue_wait(ctx, timeout ? &ts : NULL);
}
VERSIONED(plx_io_queue_wait_0_1, "io_queue_wait@LIBAIO_0.1");
