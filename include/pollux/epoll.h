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
 * How the threads that wait in an epoll sleep. The default is a futex and CLOCK_MONOTONIC.
 *
 * size       sizeof(struct pollux_host). flags: none are defined, 0.
 * look_ns    so long a wait looks for events before it calls park, in nanoseconds of
 *            CLOCK_MONOTONIC; 0: not at all. Negative: the engine decides by what has paid, and may
 *            yield the processor.
 * park       sleeps until the bell is rung (pollux_bell_rung), or deadline (nanoseconds of now();
 *            negative: none) has passed, or a signal handler ran. Returns 0, -ETIMEDOUT or -EINTR.
 *            Returning 0 early is allowed; sleeping on after the bell was rung is not. A rung bell
 *            may be unrung again by another waiter, who then has taken what it was rung for: a
 *            thread that slept through that sleeps on. The bell is one word for each epoll, which
 *            may be slept on as a whole (futex). Called with no lock of the engine held; it may
 *            return on another thread than it was called in.
 * unpark_one wakes one thread that is in park for this epoll, if there is one. Called after the
 *            bell has been rung, from any thread and from signal handlers, with the locks held that
 *            whoever wakes has: it must not take a lock, allocate, or sleep.
 * now        the clock, in nanoseconds. Called like unpark_one as well.
 * released   the last call with this arg: the epoll has gone, and nobody is in a call of its host
 *            or will make one. Called where the free operation of a file would be (file.h).
 *            Optional: without it, the last pollux_file_put of the epoll's file waits until nobody
 *            is in a call of the host, and nobody makes one after it has returned; it must not be
 *            called in a signal handler or an operation of a file then.
 * arg        is given to all of them, and must stay valid until then.
 */
#define POLLUX_BELL_MASK 0xffu

static inline int pollux_bell_rung(const uint32_t *bell)
{
	return (__atomic_load_n(bell, __ATOMIC_ACQUIRE) & POLLUX_BELL_MASK) != 0;
}

struct pollux_host {
	uint32_t size;
	uint32_t flags;
	int64_t look_ns;
	int (*park)(void *arg, uint32_t *bell, int64_t deadline);
	void (*unpark_one)(void *arg, uint32_t *bell);
	int64_t (*now)(void *arg);
	void (*released)(void *arg);
	void *arg;
};

/* What an epoll is made with. size: sizeof(struct pollux_ep_attr). flags: those below, or 0. */
struct pollux_ep_attr {
	uint32_t size;
	uint32_t flags;
	/* Copied; NULL: the default. */
	const struct pollux_host *host;
};

/*
 * The events that a wait returns are a batch of the thread that it returns to. The batch ends when
 * that thread waits in this epoll again, calls pollux_ep_batch_end, or ends, and with the epoll's
 * last reference. Free operations, pollux_call, pollux_synchronize and pollux_barrier wait for the
 * batches that may have an event of what was removed before: so an object of which an event is out
 * is not freed while a thread is at it. A fibre that moves to another thread ends its batch before.
 */
#define POLLUX_EP_BATCHES 1u

/*
 * Makes an epoll, with one reference, which belongs to the caller. attr NULL: all defaults. Returns
 * 0 and stores it in *out, or -ENOMEM, -EINVAL (a size that is too small, an unknown flag, a host
 * without park, unpark_one or now), -E2BIG (attr or its host has fields that this version does not
 * know, and that are not 0). Any thread; not from signal handlers.
 */
int pollux_ep_new(struct pollux_ep **out, const struct pollux_ep_attr *attr);

/*
 * One more reference, for whoever holds one: any thread, signal handlers too. And one less: the
 * last one destroys the epoll, which takes its registrations with it; the files stay. They are
 * those of its file. A wait has one of its own while it sleeps. Not from a signal handler, if it
 * may be the last.
 */
void pollux_ep_get(struct pollux_ep *ep);
void pollux_ep_put(struct pollux_ep *ep);

/* The epoll as a file: readable when an item is ready (EP-POLL-01). No reference is taken. */
struct pollux_file *pollux_ep_file(struct pollux_ep *ep);

/* The epoll that f is the file of, or NULL. No reference is taken. */
struct pollux_ep *pollux_ep_of(struct pollux_file *f);

/*
 * EPOLL_CTL_ADD, MOD or DEL of file f. The pair (f, key) names the registration,
 * as the pair (file, descriptor) does in the kernel (EP-KEY-01); key may be any
 * number, 0 if a file is added only once. ev is copied; ignored for DEL.
 *
 * Returns 0 or, in this order (EP-CTL-05..11): -EFAULT (ev is NULL), -EINVAL (f is ep itself;
 * misuse of EPOLLEXCLUSIVE), -ELOOP, -EOPNOTSUPP (pollux_ep_ctl_fd), -EEXIST, -ENOENT, -EINVAL (MOD
 * of an exclusive item, unknown op), -ENOSPC (watch limit), -ENOMEM, -EINVAL (reverse path limits).
 * An epoll whose pollux_ep_fd has been asked for takes a descriptor with the first file that has a
 * due operation, as other epolls have: before -ENOMEM also -EMFILE or -ENFILE. Before all others
 * -EOWNERDEAD, if ep or an epoll that f is of is from before a fork (fork.h).
 *
 * Any thread; not from signal handlers. The caller holds references on both.
 */
int pollux_ep_ctl(struct pollux_ep *ep, int op, struct pollux_file *f, int key,
		  const struct epoll_event *ev);

/*
 * EPOLL_CTL_DEL, and whether an event of the registration may be in somebody's hands. Returns 0 if
 * no wait has reported one since it was added or last modified, and none will; 1 if one has;
 * -ENOENT if there is no such registration; -EOWNERDEAD (fork.h). It is gone in the first two
 * cases.
 *
 * So of an operation that waits with EPOLLONESHOT exactly one side has it in the end: whoever
 * removes it with result 0, or whoever gets its event. Without EPOLLONESHOT 1 says no more than
 * that threads which wait in this epoll may be handling an event, or will when their wait returns.
 * With POLLUX_EP_BATCHES one can know when they are done with it: pollux_synchronize has returned,
 * or a pollux_call from after the removal is made.
 *
 * Any thread; not from signal handlers. The caller holds references on both. What was done before
 * the ADD happens before what follows a result of 0.
 */
int pollux_ep_del(struct pollux_ep *ep, struct pollux_file *f, int key);

/*
 * Waits until at least one event can be delivered and stores up to max of them.
 * timeout_ns: 0 never sleeps, negative waits without limit. Returns the number
 * stored, 0 at the deadline, -EINTR after a signal handler ran with nothing to
 * deliver (EP-SIG-01/02), -EINVAL if max <= 0 (EP-ARG-01), -ESHUTDOWN after pollux_ep_shutdown,
 * -EOWNERDEAD if the epoll is of before a fork that has made this process (fork.h), -ENOMEM in an
 * epoll with POLLUX_EP_BATCHES if the thread has batches of 14 others.
 *
 * The caller holds a reference on the epoll when it calls. While it waits the call has one of its
 * own: if all others are dropped, it goes on, and the epoll is destroyed when it returns.
 *
 * Any number of threads may wait. An item is reported at most once a call. It is no cancellation
 * point. Not from signal handlers.
 *
 * Memory order: what a thread did before the pollux_file_wake, or the ADD or MOD, that made an
 * event happens before what follows the wait that reports it. ThreadSanitizer is told so.
 */
int pollux_ep_wait(struct pollux_ep *ep, struct epoll_event *ev, int max, int64_t timeout_ns);

/*
 * The calling thread has done with the events of its last wait in this epoll; before it sleeps for
 * something else, for example. What it did with them happens before the free operations that waited
 * for the batch. Without POLLUX_EP_BATCHES, or a batch, nothing happens. Cannot fail. Any thread
 * that holds a reference on the epoll, not signal handlers. It may wait as a put may, and call free
 * operations, if pollux_reclaim_mode has set a bound.
 */
void pollux_ep_batch_end(struct pollux_ep *ep);

/*
 * The same up to a time of the host's clock, in nanoseconds (of CLOCK_MONOTONIC, by default). A
 * deadline that has passed never sleeps; a negative one waits without limit.
 */
int pollux_ep_wait_until(struct pollux_ep *ep, struct epoll_event *ev, int max, int64_t deadline);

/*
 * The same with a signal mask for the time of the call, as epoll_pwait(2) (EP-SIG-06); mask NULL:
 * as without. The mask is set and the sleep begun in one step, so a signal that is blocked before
 * the call and not in `mask` ends the sleep whenever it comes. If the call returns -EINTR the
 * handler has run, under `mask`. If it returns anything else, what was blocked before is pending
 * still: events go before signals, and a call that does not sleep handles none. (Unless the handler
 * has shut the epoll down: that is said first.)
 *
 * Only the kernel can do that. The first sleep with a mask therefore takes two descriptors, as the
 * first descriptor does (pollux_ep_ctl_fd), and can fail with its errors -EMFILE, -ENFILE and
 * -ENOMEM, and with -EOPNOTSUPP if the epoll has a host of its own: that one's park decides about
 * signals. The file of the epoll can still be watched.
 */
int pollux_ep_pwait(struct pollux_ep *ep, struct epoll_event *ev, int max, int64_t timeout_ns,
		    const sigset_t *mask);
int pollux_ep_pwait_until(struct pollux_ep *ep, struct epoll_event *ev, int max, int64_t deadline,
			  const sigset_t *mask);

/*
 * The same as pollux_ep_pwait_until, but each event is handed to fn before it is taken off, for who
 * stores it where that can fail. fn returns 0 if it has taken the event, or a negative number: then
 * the event stays as if there had been no room for it, and the wait ends. Returns how many were
 * taken, or if the first was not, what fn returned; also -EOPNOTSUPP if the epoll has had a
 * descriptor or pollux_ep_fd: the kernel takes its events off before anybody has seen them. For the
 * same reason an epoll in which it has slept since the first mask gets none.
 *
 * fn is called with the epoll's mutex held: the rules for a file's poll hold (file.h).
 */
typedef int (*pollux_event_fn)(void *arg, uint32_t events, uint64_t data);
int pollux_ep_collect(struct pollux_ep *ep, pollux_event_fn fn, void *arg, int max,
		      int64_t deadline, const sigset_t *mask);

/*
 * Ends all waits of the epoll, those that sleep and those that come later: they return -ESHUTDOWN,
 * also if there are events. Nothing else changes; registrations stay, and its file can be polled.
 * It cannot be undone. Cannot fail. Any thread that keeps the epoll valid for the call, signal
 * handlers too. What the caller did before happens before what follows these waits.
 */
void pollux_ep_shutdown(struct pollux_ep *ep);

/*
 * Calls fn for each registration, in the order of the ADDs, until one returns other than 0, which
 * is the result; else 0, or -EOWNERDEAD (fork.h). ev: what is wanted now (a one-shot event that was
 * delivered leaves EPOLLONESHOT alone) and the data. Registrations of files that are being closed
 * are left out. fn is called with the epoll's mutex held: the rules for a file's poll hold
 * (file.h). f is valid for the call; fn may take a reference with pollux_file_tryget. Any thread;
 * not from signal handlers.
 */
typedef int (*pollux_ep_item_fn)(void *arg, struct pollux_file *f, int key,
				 const struct epoll_event *ev);
int pollux_ep_for_each(struct pollux_ep *ep, pollux_ep_item_fn fn, void *arg);

/*
 * items        registrations that there are
 * queued       those on the ready list: a wait would ask them whether they are ready
 * sleepers     threads that wait and have found nothing
 * events       that waits have reported so far
 * collections  waits that had something to look at
 */
struct pollux_ep_stat {
	uint64_t items;
	uint64_t queued;
	uint64_t sleepers;
	uint64_t events;
	uint64_t collections;
};

/*
 * What the epoll is at, for people to look at: the numbers are of one moment but for sleepers.
 * size: sizeof(struct pollux_ep_stat); what the library does not know is 0. Takes time in
 * proportion to the ready list. Returns 0, or -EOWNERDEAD (fork.h). Any thread; not from signal
 * handlers.
 */
int pollux_ep_stat(struct pollux_ep *ep, struct pollux_ep_stat *st, size_t size);

/*
 * Writes what the epoll is at to fd, as text for people: its state, who sleeps, each registration
 * (what it wants, its data, whether it is queued and has been reported), and what of the process
 * waits to be freed. The text may change with any version. From a debugger, too:
 *
 *	call (int)pollux_ep_dump(ep, 2)
 *
 * It calls no operation of a file, allocates nothing, waits for no lock, and leaves errno as it is.
 * If a thread is just looking at or changing the registrations, they are left out, and that is
 * said. It writes with the epoll's mutex held, so whoever reads the other end of a pipe must not
 * need this epoll. Returns 0, or what write(2) fails with, negative. Any thread that keeps the
 * epoll valid for the call, signal handlers, operations of files, and the child of a fork, too.
 */
int pollux_ep_dump(struct pollux_ep *ep, int fd);

/*
 * EPOLL_CTL_ADD, MOD or DEL of a descriptor of the kernel, as epoll_ctl(2) with its masks and
 * errors: from now on a wait is for it, too. The first one takes two descriptors, close-on-exec,
 * which are the epoll's own; however many files there are, no more are needed. An epoll without any
 * has none.
 *
 * A wait then looks at both sides. With room for two or more events each side that has some gets at
 * least one in each wait, and with room for one they take turns. Fewer events than there is room
 * for mean that there are no more of them, but for two places that a wake and a file that is not
 * ready any more may have taken.
 *
 * As with epoll_ctl(2) a registration ends by itself with the last descriptor of its file, and not
 * before.
 *
 * Returns 0 or, before what epoll_ctl(2) says:
 *   -EOPNOTSUPP  the epoll has a host of its own, or pollux_ep_collect has slept in it since the
 *                first mask, or its file is watched: a watch of that would not hear of descriptors.
 *                (For the same reason pollux_ep_ctl does not add the file of an epoll that has had
 *                a descriptor. Nest it by that of pollux_ep_fd.)
 *   -EOWNERDEAD  the epoll is of before a fork that has made this process (fork.h)
 *   -EMFILE, -ENFILE, -ENOMEM  for the first one
 *   -EINVAL      ev->data is the one number of 2^64, random, by which the epoll knows its own event
 *
 * pollux_file_poll of its file, pollux_ep_for_each and pollux_ep_stat tell of files alone. A sleep
 * that a shutdown ends takes with it what it has of descriptors. Any thread; not from signal
 * handlers.
 */
int pollux_ep_ctl_fd(struct pollux_ep *ep, int op, int fd, const struct epoll_event *ev);

/*
 * A descriptor that is readable while an event waits, of a file or of a descriptor, for loops that
 * wait for descriptors: poll(2), epoll(7), and what is built on them. When it is readable, wait
 * with time-out 0. It is the epoll's own, the same each time, and ends with it: neither close it,
 * nor use it for anything else.
 *
 * From the first call on a wake that finds the ready list empty makes a system call, whether
 * anybody sleeps or not; pollux_ep_stat counts one sleeper more. After a wait that leaves nothing
 * ready the descriptor is not readable; it may become so once in vain, for an event that a wait has
 * taken while it was told, or for a file that is not ready any more. A wait ends that. After
 * pollux_ep_shutdown it is readable for good.
 *
 * If files have a due operation, as timers have, a descriptor more is taken, which is set with a
 * system call whenever the first of their times changes.
 *
 * Returns the descriptor, or -EOPNOTSUPP, -EOWNERDEAD, -EMFILE, -ENFILE or -ENOMEM as
 * pollux_ep_ctl_fd. Any thread; not from signal handlers.
 */
int pollux_ep_fd(struct pollux_ep *ep);

/*
 * Limit of registrations over all epolls of the native API (EP-ADD-07); negative: none, which is
 * the default. It is exact for what is added after it has been set.
 */
void pollux_ep_set_max_watches(long max);

/* Registrations that exist now, over these epolls. */
long pollux_ep_watches(void);

/*
 * Releases memory that this thread's DELs and closes left waiting for a grace
 * period, and calls what is due, of all threads, unless the mode is POLLUX_RECLAIM_ASKED. Never
 * needed for correctness; a thread that goes idle for long may call it. Sleeps for read sections
 * and wakes, not for batches. Not from signal handlers.
 */
void pollux_quiesce(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
