/* SPDX-License-Identifier: MIT */
/*
 * pollux/timer.h - the timer of timerfd_create(2), as an object
 *
 * It differs in one thing: an edge-triggered watch hears of each expiration of a periodic timer.
 * That of a timerfd does not, if the one before has not been read (TFD-15).
 *
 * It is readable while there are expirations that have not been read. Nothing runs when one comes:
 * waits and polls that have the timer's file end at that time, as with any file that has a due
 * operation (file.h).
 *
 *	pollux_timer_new(&t, NULL);
 *	pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_timer_file(t), 0, &ev);
 *	pollux_timer_set(t, now + 1000000, 0);
 */
#ifndef POLLUX_TIMER_H
#define POLLUX_TIMER_H

#include <stdint.h>

#include <pollux/epoll.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct pollux_timer;

/*
 * Makes a timer that is not set, with one reference, which belongs to the caller and is dropped by
 * pollux_file_put of its file. clock: a host, of which the timer uses now and arg, which must stay
 * valid until it has gone; NULL: CLOCK_MONOTONIC. Epolls that have the timer must go by the same
 * clock, or they look at it at the wrong time. Returns 0, -ENOMEM, or -EINVAL or -E2BIG for a host
 * as pollux_ep_new does. Any thread; not from signal handlers.
 */
int pollux_timer_new(struct pollux_timer **out, const struct pollux_host *clock);

/* Its file. No reference is taken. */
struct pollux_file *pollux_timer_file(struct pollux_timer *t);

/*
 * Sets it: the first expiration is at deadline, a time of the clock in nanoseconds, and the others
 * follow each interval nanoseconds; with interval 0 there is but one. A deadline that has passed
 * expires at once, with all that are due since; a negative one unsets the timer. What has not been
 * read of before is gone, as with timerfd_settime(2). Sleeps that have begun end earlier, if need
 * be. Returns 0, or -EINVAL if interval is negative.
 *
 * Where pollux_file_wake may be called (in an operation of another file, too), but not from signal
 * handlers. What was done before happens before what follows the wait that reports an expiration.
 */
int pollux_timer_set(struct pollux_timer *t, int64_t deadline, int64_t interval);

/*
 * Takes the expirations that there have been since it was set or last read. Returns 0 and stores
 * their number in *expirations, or -EAGAIN if there are none. Never sleeps. As pollux_timer_set.
 */
int pollux_timer_read(struct pollux_timer *t, uint64_t *expirations);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
