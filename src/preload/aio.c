/* SPDX-License-Identifier: MIT */
/*
 * Linux AIO: the system calls, as they come through syscall() and from libaio's functions
 * (libaio.c).
 *
 * A context that is not ours is the kernel's: what the table does not know goes there, with
 * the descriptors that its requests name.
 *
 * A thread that may be cancelled at any instruction is not while it is in a call of ours, which
 * would leave locks behind; it is in the kernel's. These calls are no cancellation points.
 */
#include "preload/preload.h"

#include <string.h>
#include <sys/mman.h>

#include "aio/aio.h"
#include "base/inside.h"
#include "base/sys.h"

/*
 * From here to the end of the block a thread that may be cancelled at any instruction is not: it
 * would leave locks behind. (Where there is one thread there is nobody who could cancel it.)
 */
#define NOT_CANCELLED() __attribute__((cleanup(put_on), unused)) const int cancel_type_ = put_off()

static void put_on(const int *type)
{
	if (plx_unlikely(*type != PTHREAD_CANCEL_DEFERRED))
		plx_real.pthread_setcanceltype(*type, NULL);
}

static int put_off(void)
{
	int type = PTHREAD_CANCEL_DEFERRED;

	if (!__libc_single_threaded)
		plx_real.pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
	return type;
}

/* The first context makes the guard stand; before it, no address can be one of ours. */
static long setup(unsigned int nr_events, aio_context_t *ctx)
{
	if (plx_vfork_child())
		return PLX_PASS;
	plx_start();
	if ((plx_px_no_adopt & PLX_ADOPT_AIO) || !plx_prepare())
		return PLX_PASS;
	return plx_aio_setup(nr_events, ctx);
}

static long submit(aio_context_t ctx, struct plx_aio_batch *b)
{
	NOT_CANCELLED();
	return plx_aio_submit(ctx, b);
}

static long getevents(aio_context_t ctx, struct plx_aio_want *w)
{
	NOT_CANCELLED();
	return plx_aio_getevents(ctx, w);
}

long plx_aio_call_submit(aio_context_t ctx, long nr, struct iocb **iocbs)
{
	struct plx_aio_batch b = {.nr = nr, .user = iocbs};
	long r = submit(ctx, &b);

	if (plx_likely(r != PLX_PASS))
		return r;
	if (!plx_any()) {
		/* Nobody answers a fault yet: what it names is not looked at. */
		if (plx_cold_any() && !plx_vfork_child())
			plx_cold_end_all(NULL);
		return plx_sys3(SYS_io_submit, ctx, nr, iocbs);
	}
	return plx_aio_submit_rest(ctx, &b);
}

static long get(aio_context_t ctx, struct plx_aio_want *w)
{
	long r = getevents(ctx, w);

	return plx_likely(r != PLX_PASS) ? r : plx_aio_get_rest(ctx, w);
}

long plx_aio_call_getevents(aio_context_t ctx, long min_nr, long nr, struct io_event *events,
			    const struct timespec *timeout)
{
	return get(ctx, &(struct plx_aio_want){
				.min = min_nr, .nr = nr, .events = events, .timeout = timeout});
}

/* Those that do not sleep. */
static long serve(long nr, long a, long b, long c)
{
	NOT_CANCELLED();
	switch (nr) {
	case SYS_io_setup:
		return setup((unsigned int)a, (aio_context_t *)b);
	case SYS_io_destroy:
		return plx_aio_destroy((aio_context_t)a);
	default:
		return plx_aio_cancel((aio_context_t)a, (struct iocb *)b, (struct io_event *)c);
	}
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
	case SYS_io_pgetevents:
		return get((aio_context_t)a,
			   &(struct plx_aio_want){.min = b,
						  .nr = c,
						  .events = (struct io_event *)d,
						  .timeout = (const struct timespec *)e,
						  .pget = true,
						  .sig = (const void *)f});
	default:
		r = serve(nr, a, b, c);
		return r == PLX_PASS ? plx_sys6(nr, a, b, c, d, e, f) : r;
	}
}

/* --- mremap: a ring that moves takes its context along (AIO-RING-09) -------------------------- */

PLX_EXPORT void *plx_mremap(void *old, size_t old_size, size_t size, int flags,
			    void *to) __asm__("mremap");
PLX_EXPORT void *plx_mremap(void *old, size_t old_size, size_t size, int flags, void *to)
{
	NOT_CANCELLED();
	PLX_INSIDE();
	void *token = plx_aio_mremap_begin(old, old_size, flags);
	void *r = plx_real.mremap(old, old_size, size, flags, to);

	if (plx_unlikely(plx_load(&plx_uring_followed)))
		plx_urings_unmapped(old, old_size);
	plx_aio_mremap_end(token, r);
	return r;
}
