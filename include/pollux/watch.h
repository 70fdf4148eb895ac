/* SPDX-License-Identifier: MIT */
/*
 * pollux/watch.h - a function that is called with each wake of a file
 *
 * For what waits by means of its own: the queue of a scheduler, a bridge to another loop, one
 * operation that waits for one file.
 *
 *	ready = pollux_watch_add(&op->watch, &s->file, EPOLLIN, op_woken);
 *	...
 *	pollux_watch_del_sync(&op->watch);
 */
#ifndef POLLUX_WATCH_H
#define POLLUX_WATCH_H

#include <stdint.h>

#include <pollux/file.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Embed it anywhere, with any contents; what is in it belongs to the library. */
struct pollux_watch {
	uint64_t opaque[8];
};

/*
 * key: what the wake has named of the watch's events, EPOLLERR and EPOLLHUP, and maybe more, or 0
 * if it did not say. A wake is a hint: pollux_file_poll decides. Called by whoever wakes f, within
 * that call, with all locks that this one holds, and in a signal handler if the wake is made there.
 * So it does what a signal handler may do, wakes of other files for one, and must not sleep, add or
 * remove watches or registrations, or drop what may be the last reference. It may take a lock that
 * a poll may take (file.h), if nobody wakes f with that held, or in a signal handler. Several
 * threads may be in it at a time.
 */
typedef void (*pollux_watch_fn)(struct pollux_watch *w, struct pollux_file *f, uint32_t key);

/*
 * Has fn called with each wake of f that names some of events, EPOLLERR or EPOLLHUP, or nothing,
 * until the watch is removed. Flags such as EPOLLET mean nothing. Watches are called before the
 * exclusive ones of epolls, and take nothing from anybody. The watch has a reference on the file.
 *
 * Returns what of these is true now, 0 or more: nothing lies between the first call that fn may get
 * and the state that this tells. Or
 *   -EBADF       the last reference on f has been dropped
 *   -EOPNOTSUPP  f is the file of an epoll that has had a descriptor, of which it does not tell
 *   -EOWNERDEAD  f is the file of an epoll of before a fork that has made this process (fork.h)
 *
 * What becomes ready by time alone (`due` of a file's operations) calls nobody. Any thread; where a
 * poll of f may be called by the program, not from signal handlers or an operation of a file. What
 * was done before a pollux_file_wake happens before the calls that it makes.
 */
int pollux_watch_add(struct pollux_watch *w, struct pollux_file *f, uint32_t events,
		     pollux_watch_fn fn);

/*
 * Removes the watch, and drops its reference. From its return on no call of fn begins. Returns 0 if
 * fn is not being called either, or 1 if it is; who gets 1 may ask again. What the calls have done
 * happens before a return of 0. Does not sleep.
 *
 * Wakes may still look at the watch itself. So its memory must stay, and it cannot be added again,
 * before a grace period is over: after pollux_watch_del_sync or pollux_synchronize, or in the free
 * operation of a file whose last reference is dropped after the removal.
 *
 * Any thread, one at a time for a watch; where a put of the last reference may be called, as this
 * may be one.
 */
int pollux_watch_del(struct pollux_watch *w);

/*
 * The same, if that has not been done, and waits until fn is not being called and nobody looks at
 * the watch. Sleeps. Where pollux_synchronize may be called: so not in a call of fn, which ends the
 * program.
 */
void pollux_watch_del_sync(struct pollux_watch *w);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
