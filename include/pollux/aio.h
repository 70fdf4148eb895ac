/* SPDX-License-Identifier: MIT */
/*
 * pollux/aio.h - Linux AIO: io_setup and its family
 *
 * Each function behaves as the system call of the same name without the prefix (rules
 * AIO-*; io_setup(2), io_submit(2), io_getevents(2), io_cancel(2), io_destroy(2)): its
 * result, or -1 and errno. The functions of libaio return a negative errno instead;
 * the drop-in offers those.
 *
 * A context is the address of a ring of completions in memory, in the layout of the
 * kernel, so that a program may take events from it by itself: each completion is there as
 * soon as the kernel's would be.
 *
 * Buffered reads, writes and fsyncs of regular files and block devices are done within
 * pollux_io_submit. Everything else, and a wait for events that are not there, makes the context
 * the kernel's, at the same address; the number in the ring's header may be another then.
 *
 * Contexts belong to the process: the child of a fork has none of them. A context that was
 * not made by pollux_io_setup is passed on to the kernel. Safe from any thread; not from
 * signal handlers. No limit on the number of events is applied besides that of one context
 * (AIO-SETUP-02): aio-max-nr counts only what the kernel's own contexts need.
 *
 * A context that is not one comes out as EINVAL, and a bad pointer as EFAULT, if
 * pollux_guard_faults (posix.h) has been called; without it, memory that cannot be read
 * faults. struct iocb and struct io_event are those of <linux/aio_abi.h> or of <libaio.h>, which
 * are the same; the two headers cannot be included together, so the program includes the one that
 * it uses, before or after this. A context is an unsigned long, which aio_context_t is as well.
 */
#ifndef POLLUX_AIO_H
#define POLLUX_AIO_H

/* sigset_t. */
#include <sys/epoll.h>

struct iocb;
struct io_event;
struct timespec;

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * Makes a context for at least nr_events requests at a time. *ctx must be 0 before.
 * EFAULT, EINVAL (*ctx not 0; nr_events 0 or above 4194304), EAGAIN, ENOMEM (AIO-SETUP).
 */
int pollux_io_setup(unsigned int nr_events, unsigned long *ctx);

/*
 * Cancels what can be cancelled, waits for the rest, and takes the context away. No buffer is
 * touched after it returned (AIO-DESTROY). EINVAL: no such context.
 */
int pollux_io_destroy(unsigned long ctx);

/*
 * Hands in nr requests, in order. Returns how many were accepted: fewer than nr if one was
 * refused, and the error if that was the first (AIO-SUBMIT, AIO-OP, AIO-POLL).
 */
int pollux_io_submit(unsigned long ctx, long nr, struct iocb **iocbs);

/*
 * Takes at least min_nr and at most nr events, waiting for up to timeout (NULL: without limit;
 * not validated, AIO-GET-05). Returns their number; EINTR if a handler ran and there is none.
 */
int pollux_io_getevents(unsigned long ctx, long min_nr, long nr, struct io_event *events,
			struct timespec *timeout);

/* The same with a signal mask for the time of the call, or NULL (AIO-PGET). */
int pollux_io_pgetevents(unsigned long ctx, long min_nr, long nr, struct io_event *events,
			 struct timespec *timeout, const sigset_t *sigmask);

/*
 * Asks for the end of a request. Never 0: EINPROGRESS if it was cancelled and its event comes
 * through the ring, EINVAL if there is nothing to cancel (AIO-CANCEL). result is not used.
 */
int pollux_io_cancel(unsigned long ctx, struct iocb *iocb, struct io_event *result);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
