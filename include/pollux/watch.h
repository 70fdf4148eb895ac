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
 * key: what the wake has named, or 0. A wake is a hint: pollux_file_poll decides. Called by whoever
 * wakes f, within that call, with all locks that this one holds, and in a signal handler if the
 * wake is made there; in several threads at a time. It does what a signal handler may do, wakes of
 * other files for one, and must not sleep, add or remove watches or registrations, or drop what may
 * be the last reference. It may take a lock that a poll may take (file.h), if nobody wakes f with
 * that held, or in a signal handler.
 */
typedef void (*pollux_watch_fn)(struct pollux_watch *w, struct pollux_file *f, uint32_t key);

/*
 * Has fn called with each wake of f that names some of events, EPOLLERR or EPOLLHUP, or nothing,
 * until the watch is removed. Flags such as EPOLLET mean nothing, exclusive watchers of epolls lose
 * nothing, and what becomes ready by time alone (`due` of a file) calls nobody. The watch has a
 * reference on the file.
 *
 * Returns what of these is true now: nothing lies between the first call that fn may get and the
 * state that this tells. Or -EBADF (the last reference on f has been dropped); of the file of an
 * epoll, -EOPNOTSUPP (it has had a descriptor, of which it does not tell) or -EOWNERDEAD (fork.h).
 *
 * Any thread; where the program may call a poll of f, not from signal handlers or an operation of a
 * file. What was done before a pollux_file_wake happens before the calls that it makes.
 */
int pollux_watch_add(struct pollux_watch *w, struct pollux_file *f, uint32_t events,
		     pollux_watch_fn fn);

/*
 * Removes the watch, and drops its reference. From its return on no call of fn begins. Returns 1 if
 * fn is being called; who gets that may ask again. 0: it is not, and what the calls have done
 * happens before. Does not sleep.
 *
 * Wakes may still look at the watch itself. So its memory must stay, and it cannot be added again,
 * before a grace period is over: after pollux_watch_del_sync or pollux_synchronize, or in the free
 * operation of a file whose last reference is dropped after the removal.
 *
 * Any thread, one at a time for a watch; where a put of the last reference may be called.
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
