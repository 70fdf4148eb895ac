/* SPDX-License-Identifier: MIT */
/*
 * pollux/epoll.h - epoll over pollux_file objects, without descriptors
 *
 * The semantics are those of epoll(7), rule by rule; the objects are yours. An
 * epoll made here is itself a pollux_file, so it can be watched by another one.
 */
#ifndef POLLUX_EPOLL_H
#define POLLUX_EPOLL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>

#include <pollux/file.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct pollux_ep;

/* An infinite wait. */
#define POLLUX_FOREVER (-1)

/*
 * How a host sleeps and wakes. Give NULL to pollux_ep_new for the default, a
 * futex and CLOCK_MONOTONIC.
 *
 * park       sleeps until the bell is rung (pollux_bell_rung), or deadline
 *            (nanoseconds of now(); negative: none) has passed, or a signal
 *            handler ran. Returns 0, -ETIMEDOUT or -EINTR. Returning 0 early is
 *            allowed; sleeping on after the bell was rung is not.
 * unpark_one wakes one thread that is in park for this epoll. Called after the
 *            bell has been rung, from any thread and from signal handlers: it
 *            must not take a lock or allocate.
 * now        the clock in nanoseconds.
 */
#define POLLUX_BELL_MASK 0xffu

static inline int pollux_bell_rung(const uint32_t *bell)
{
	return (__atomic_load_n(bell, __ATOMIC_ACQUIRE) & POLLUX_BELL_MASK) != 0;
}

struct pollux_host_ops {
	int (*park)(void *host, uint32_t *bell, int64_t deadline);
	void (*unpark_one)(void *host, uint32_t *bell);
	int64_t (*now)(void *host);
};

/*
 * Makes an epoll. Returns 0 and stores it in *out, or -ENOMEM. It is destroyed
 * by dropping the last reference of its file: pollux_file_put(pollux_ep_file(ep)).
 */
int pollux_ep_new(struct pollux_ep **out, const struct pollux_host_ops *ops, void *host);

/* The epoll as a file: readable when an item is ready (EP-POLL-01). */
struct pollux_file *pollux_ep_file(struct pollux_ep *ep);

/*
 * EPOLL_CTL_ADD, MOD or DEL of file f. The pair (f, key) names the registration,
 * as the pair (file, descriptor) does in the kernel (EP-KEY-01); key may be any
 * number, 0 if a file is added only once. ev is copied; ignored for DEL.
 *
 * Returns 0 or, in this order (EP-CTL-05..11): -EINVAL (f is ep itself; misuse of
 * EPOLLEXCLUSIVE), -ELOOP, -EEXIST, -ENOENT, -EINVAL (MOD of an exclusive item,
 * unknown op), -ENOSPC (watch limit), -ENOMEM, -EINVAL (reverse path limits).
 *
 * Any thread; not from signal handlers. The caller holds references on both.
 */
int pollux_ep_ctl(struct pollux_ep *ep, int op, struct pollux_file *f, int key,
		  const struct epoll_event *ev);

/*
 * Waits until at least one event can be delivered and stores up to max of them.
 * timeout_ns: 0 never sleeps, negative waits without limit. Returns the number
 * stored, 0 at the deadline, -EINTR after a signal handler ran with nothing to
 * deliver (EP-SIG-01/02), -EINVAL if max <= 0 (EP-ARG-01).
 *
 * The caller holds a reference on the epoll when it calls. While it waits the call has one of its
 * own: if all others are dropped, it goes on, and the epoll is destroyed when it returns.
 *
 * Any number of threads may wait. An item is reported at most once a call.
 */
int pollux_ep_wait(struct pollux_ep *ep, struct epoll_event *ev, int max, int64_t timeout_ns);

/*
 * Limit of registrations over all epolls of the process (EP-ADD-07); negative:
 * none. The default is none; the POSIX layer sets the kernel's limit.
 */
void pollux_ep_set_max_watches(long max);

/* Registrations that exist now, over all epolls. Waits for a grace period. */
long pollux_ep_watches(void);

/*
 * Releases memory that this thread's DELs and closes left waiting for a grace
 * period. Never needed for correctness; a thread that goes idle for long may
 * call it. Sleeps for a grace period. Not from signal handlers.
 */
void pollux_quiesce(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
