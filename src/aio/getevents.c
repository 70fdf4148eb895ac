/* SPDX-License-Identifier: MIT */
/*
 * Taking events, and sleeping for them.
 *
 * A thread that finds too few announces itself as a sleeper under kioctx.lock and then
 * sleeps in the kernel's own call on the twin, for one event at a time and with the
 * time that is left. Whoever puts an event into our own ring under the same lock sees it
 * and rings the bell; events of the twin wake it by themselves. So a sleeper misses
 * nothing: what came before it announced itself it has seen, what comes after rings.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "aio/ring.h"
#include "base/clock.h"
#include "base/delay.h"
#include "base/inside.h"
#include "base/sys.h"
#include "posix/posix.h"
#include "posix/uaccess.h"

#define NAP 1000000

/* What the kernel's sixth argument points to. */
struct sigarg {
	const uint64_t *mask;
	size_t size;
};

/* What a call was asked for. */
struct want {
	long min, nr;
	struct io_event *user;
	/* In nanoseconds; negative: without limit (AIO-GET-05). */
	int64_t timeout;
	/* io_pgetevents: the mask for the call, or none. */
	bool pget;
	bool masked;
	uint64_t mask;
};

/* As the kernel reckons: no validation, but no overflow of the seconds either. */
static int64_t total_ns(const struct timespec *ts)
{
	if (ts->tv_sec >= INT64_MAX / PLX_NSEC)
		return INT64_MAX;
	return (int64_t)((uint64_t)ts->tv_sec * PLX_NSEC + (uint64_t)ts->tv_nsec);
}

/* kioctx.lock held. Up to n events to the program, or -EFAULT and none of them is taken. */
static long take(struct plx_kioctx *k, struct io_event *user, long n)
{
	struct plx_aio_ring *ring = k->ring;
	uint32_t head = plx_ring_head(k), used = plx_ring_between(k, head, k->tail);
	uint32_t m = n < used ? (uint32_t)n : used;
	uint32_t run = k->nr - head < m ? k->nr - head : m;
	long more = 0;

	if (run == 1 ? plx_copy_out32(user, &ring->events[head])
		     : plx_copy_out(user, &ring->events[head], run * sizeof(*user)))
		return -EFAULT;
	if (run < m && plx_copy_out(user + run, ring->events, (m - run) * sizeof(*user)))
		return -EFAULT;
	if (m < n)
		more = plx_aio_twin_take(k, user + m, n - m);
	if (more < 0)
		return more;
	if (m) {
		head = head + m >= k->nr ? head + m - k->nr : head + m;
		plx_store_rel(&ring->head, head);
	}
	return m + more;
}

enum next {
	DONE,
	SLEEP,
	/* There is no twin to sleep on yet. */
	NEED_TWIN,
};

static bool dead(const struct plx_kioctx *k)
{
	return plx_load(&k->state) & PLX_AIO_DEAD;
}

/* kioctx.lock held. Somebody sleeps, and there is a reason to wake him. */
static bool bell_due(const struct plx_kioctx *k)
{
	return k->sleepers && (plx_ring_used(k) || dead(k));
}

/* Takes what is there; announces the thread as a sleeper if that is too little. */
static long take_or_announce(struct plx_kioctx *k, const struct want *w, long got, enum next *next)
{
	bool more;
	long r;

	plx_lock(&k->lock, PLX_RANK_AIO);
	r = take(k, w->user + got, w->nr - got);
	*next = DONE;
	if (r >= 0 && got + r < w->min && w->timeout != 0) {
		if (dead(k)) {
			/* The destroyer rings for those who were announced before this. */
			r = r ? r : -EINVAL;
		} else {
			*next = plx_load(&k->twin) ? SLEEP : NEED_TWIN;
			k->sleepers += *next == SLEEP;
		}
	}
	more = bell_due(k);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	if (more)
		plx_aio_ring_bell(k);
	return r;
}

/* Sleeps once, as announced. The number of events got, or what ended the sleep (-ETIME). */
static long sleep_once(struct plx_kioctx *k, const struct want *w, long got, int64_t left)
{
	struct timespec ts = {.tv_sec = left / PLX_NSEC, .tv_nsec = left % PLX_NSEC};
	struct sigarg sig = {.mask = &w->mask, .size = sizeof(w->mask)};
	long room = w->nr - got < PLX_AIO_BATCH ? w->nr - got : PLX_AIO_BATCH;
	struct io_event ev[PLX_AIO_BATCH];
	bool more;
	long r;

	PLX_DELAY(aio_sleep);
	{
		PLX_OUTSIDE(sleep);
		/* A signal that came since the call began and has waited interrupts it. */
		bool over = sleep.interrupted && !w->masked;

		if (over)
			ts = (struct timespec){0};
		/* The call that the program made: a stop without a handler ends the one only. */
		r = plx_sys6(w->pget ? SYS_io_pgetevents : SYS_io_getevents, k->twin, 1, room,
			     (long)ev, left < 0 && !over ? 0 : (long)&ts,
			     w->masked ? (long)&sig : 0);
		if (r == 0 && over)
			r = -EINTR;
	}
	PLX_DELAY(aio_woken);
	plx_lock(&k->lock, PLX_RANK_AIO);
	k->sleepers--;
	r = r > 0 ? plx_aio_twin_sort(k, w->user + got, ev, r) : r == 0 ? -ETIME : r;
	more = bell_due(k);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	/* The bell that this thread took may have been for more than it will take. */
	if (more)
		plx_aio_ring_bell(k);
	return r;
}

/*
 * Handlers of signals that the mask lets in run, as at the end of the kernel's call; true
 * if one did. Sleeps for up to ns.
 */
static bool let_signals_in(const struct want *w, int64_t ns)
{
	struct timespec ts = {.tv_sec = 0, .tv_nsec = ns};
	PLX_OUTSIDE(sleep);

	if (sleep.interrupted && !w->masked)
		return true;
	return plx_sys6(SYS_ppoll, 0, 0, (long)&ts, w->masked ? (long)&w->mask : 0, sizeof(w->mask),
			0) == -EINTR;
}

static int64_t time_left(int64_t deadline)
{
	int64_t now;

	if (!deadline)
		return -1;
	now = plx_now_ns();
	return now < deadline ? deadline - now : 0;
}

/*
 * Without a twin there is nothing to sleep on: the machine's limit of AIO events is used
 * up, perhaps by others. A millisecond's sleep then, as often as needed. 0 or what ends it.
 */
static long nap(const struct plx_kioctx *k, const struct want *w, int64_t left)
{
	if (dead(k))
		return -EINVAL;
	if (left == 0)
		return -ETIME;
	return let_signals_in(w, left < 0 || left > NAP ? NAP : left) ? -EINTR : 0;
}

static long get(struct plx_kioctx *k, const struct want *w, bool *slept)
{
	int64_t deadline = 0;
	enum next next;
	long got = 0, r;

	for (;;) {
		r = take_or_announce(k, w, got, &next);
		if (r < 0)
			break;
		got += r;
		if (next == DONE)
			break;
		if (w->timeout > 0 && !deadline &&
		    __builtin_add_overflow(plx_now_ns(), w->timeout, &deadline))
			deadline = INT64_MAX;
		if (next == NEED_TWIN) {
			if (plx_aio_twin_make(k) == 0)
				continue;
			r = nap(k, w, time_left(deadline));
		} else {
			r = sleep_once(k, w, got, time_left(deadline));
			*slept = true;
			got += r > 0 ? r : 0;
		}
		if (r == -ETIME) {
			/* What came to our ring at the last moment. */
			struct want last = *w;

			last.timeout = 0;
			r = take_or_announce(k, &last, got, &next);
			got += r > 0 ? r : 0;
			break;
		}
		if (r < 0)
			break;
	}
	return got || r > 0 ? got : r;
}

/* The arguments that come before the context; 0 or the error. */
static int want_in(struct want *w, long min, long nr, struct io_event *user,
		   const struct timespec *timeout)
{
	struct timespec ts;

	w->min = min;
	w->nr = nr;
	w->user = user;
	w->pget = false;
	w->masked = false;
	w->timeout = -1;
	if (timeout) {
		if (plx_copy_in(&ts, timeout, sizeof(ts)))
			return -EFAULT;
		w->timeout = total_ns(&ts);
	}
	return 0;
}

/*
 * The usual call: what it asks for is in the ring. One lock and one RCU section, without
 * being counted as inside: destroy takes the lock once after it has set DEAD, and so waits
 * for those who hold it and have not seen DEAD. Returns 0 if it is not so simple.
 */
static long take_at_once(aio_context_t ctx, const struct want *w)
{
	struct plx_kioctx *k;
	uint64_t header;
	long r = 0;

	if (w->min < 0 || w->nr < 1 || w->min > w->nr || !plx_aio_header(ctx, &header))
		return 0;
	plx_rcu_read_lock();
	k = plx_aio_peek(ctx, header);
	if (k) {
		/* Not even a look at the ring without it: its pages may be another's by now. */
		plx_lock(&k->lock, PLX_RANK_AIO);
		if (!dead(k) && !k->sleepers && plx_ring_used(k) >= (w->min ? w->min : 1))
			r = take(k, w->user, w->nr);
		plx_unlock(&k->lock, PLX_RANK_AIO);
	}
	plx_rcu_read_unlock();
	return r;
}

long plx_aio_getevents(aio_context_t ctx, long min_nr, long nr, struct io_event *events,
		       const struct timespec *timeout)
{
	PLX_INSIDE();
	struct plx_kioctx *k;
	bool slept = false;
	struct want w;
	long bad, r;

	bad = want_in(&w, min_nr, nr, events, timeout);
	if (!bad) {
		r = take_at_once(ctx, &w);
		if (r)
			return r;
	}
	k = plx_aio_get(ctx, 0);
	if (!k)
		return PLX_PASS;
	r = bad;
	if (!r)
		r = min_nr < 0 || min_nr > nr ? -EINVAL : get(k, &w, &slept);
	plx_aio_put(k, 0);
	return r;
}

static int mask_in(struct want *w, const void *user)
{
	struct sigarg sig;

	if (!user)
		return 0;
	if (plx_copy_in(&sig, user, sizeof(sig)))
		return -EFAULT;
	if (!sig.mask)
		return 0;
	if (sig.size != sizeof(w->mask))
		return -EINVAL;
	if (plx_copy_in(&w->mask, sig.mask, sizeof(w->mask)))
		return -EFAULT;
	w->masked = true;
	return 0;
}

long plx_aio_pgetevents(aio_context_t ctx, long min_nr, long nr, struct io_event *events,
			const struct timespec *timeout, const void *sig)
{
	PLX_INSIDE();
	struct plx_kioctx *k = plx_aio_get(ctx, 0);
	bool slept = false;
	struct want w;
	long r;

	if (!k)
		return PLX_PASS;
	r = want_in(&w, min_nr, nr, events, timeout);
	w.pget = true;
	if (!r)
		r = mask_in(&w, sig);
	if (!r) {
		r = min_nr < 0 || min_nr > nr ? -EINVAL : get(k, &w, &slept);
		/* A sleep has let the handlers run; a call that did not sleep does it here. */
		if (w.masked && !slept && let_signals_in(&w, 0) && r == 0)
			r = -EINTR;
	}
	plx_aio_put(k, 0);
	return r;
}
