/* SPDX-License-Identifier: MIT */
/*
 * io_getevents and io_pgetevents: their arguments, and taking what is there. Those who find too
 * little wait in wait.c.
 */
#include <errno.h>
#include <string.h>

#include "aio/ring.h"
#include "base/clock.h"
#include "base/delay.h"
#include "base/inside.h"
#include "base/sys.h"
#include "posix/posix.h"
#include "posix/uaccess.h"

/* What the kernel's sixth argument points to. */
struct sigarg {
	const uint64_t *mask;
	size_t size;
};

/* As the kernel reckons: no validation, but no overflow of the seconds either. */
static int64_t total_ns(const struct timespec *ts)
{
	if (ts->tv_sec >= INT64_MAX / PLX_NSEC)
		return INT64_MAX;
	return (int64_t)((uint64_t)ts->tv_sec * PLX_NSEC + (uint64_t)ts->tv_nsec);
}

void plx_aio_wait_for_memory(const struct io_event *user, long n)
{
	const uintptr_t page = 4096;
	uintptr_t p = (uintptr_t)user, end = p + (uintptr_t)n * sizeof(*user);
	uint64_t any;

	while (p < end && plx_load_user64(&any, (const void *)p) == 0)
		p = (p | (page - 1)) + 1;
}

long plx_aio_take(struct plx_kioctx *k, struct io_event *user, long n)
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

/* The arguments that come before the context; 0 or the error. */
static int want_in(struct plx_aio_want *w, long min, long nr, struct io_event *user,
		   const struct timespec *timeout)
{
	struct timespec ts;

	w->min = min;
	w->nr = nr;
	w->user = user;
	w->pget = false;
	w->masked = false;
	w->held_off = 0;
	w->timeout = -1;
	if (timeout) {
		if (plx_copy_in(&ts, timeout, sizeof(ts)))
			return -EFAULT;
		w->timeout = total_ns(&ts);
	}
	return 0;
}

/* For what the program's ring says to be there. */
static void wait_for_memory(aio_context_t ctx, uint64_t header, const struct plx_aio_want *w)
{
	/* Not a ring by now, perhaps. */
	uintptr_t at = ctx + offsetof(struct plx_aio_ring, head);
	uint32_t nr = header >> 32, head, tail, used;
	uint64_t places;

	if (plx_load_user64(&places, (const void *)at))
		return;
	head = (uint32_t)places;
	tail = places >> 32;
	used = tail >= head ? tail - head : tail + nr - head;
	plx_aio_wait_for_memory(w->user, w->nr < used ? w->nr : used);
}

/*
 * The usual call: what it asks for is in the ring. One lock and one RCU section, without
 * being counted as inside: destroy takes the lock once after it has set DEAD, and so waits
 * for those who hold it and have not seen DEAD. Returns 0 if it is not so simple.
 */
static long take_at_once(aio_context_t ctx, const struct plx_aio_want *w)
{
	struct plx_kioctx *k;
	uint64_t header;
	long r = 0;

	if (w->min < 0 || w->nr < 1 || w->min > w->nr || !plx_aio_header(ctx, &header))
		return 0;
	wait_for_memory(ctx, header, w);
	plx_rcu_read_lock();
	k = plx_aio_peek(ctx, header);
	if (k) {
		/* Not even a look at the ring without it: its pages may be another's by now. */
		plx_lock(&k->lock, PLX_RANK_AIO);
		if (!plx_aio_dead(k) && !k->waiters && plx_ring_used(k) >= (w->min ? w->min : 1))
			r = plx_aio_take(k, w->user, w->nr);
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
	struct plx_aio_want w;
	long bad, r;

	bad = want_in(&w, min_nr, nr, events, timeout);
	if (!bad) {
		r = take_at_once(ctx, &w);
		if (r)
			return r;
	}
	plx_aio_wait_check(__builtin_frame_address(0));
	k = plx_aio_get(ctx, 0);
	if (!k)
		return PLX_PASS;
	r = bad;
	if (!r)
		r = min_nr < 0 || min_nr > nr ? -EINVAL : plx_aio_wait(&k, &w, &slept);
	if (k)
		plx_aio_put(k, 0);
	return r;
}

static int mask_in(struct plx_aio_want *w, const void *user)
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
	struct plx_kioctx *k;
	bool slept = false;
	struct plx_aio_want w;
	long r;

	plx_aio_wait_check(__builtin_frame_address(0));
	k = plx_aio_get(ctx, 0);
	if (!k)
		return PLX_PASS;
	r = want_in(&w, min_nr, nr, events, timeout);
	w.pget = true;
	if (!r)
		r = mask_in(&w, sig);
	if (!r)
		r = min_nr < 0 || min_nr > nr ? -EINVAL : plx_aio_wait(&k, &w, &slept);
	/* Before the handlers, which may destroy the context, or be left by a jump. */
	if (k)
		plx_aio_put(k, 0);
	/* A sleep has let them run; a call that did not sleep does it here. */
	if (w.masked && !slept && plx_aio_let_signals_in(&w, 0) && r == 0)
		r = -EINTR;
	if (w.held_off)
		plx_aio_let_back(&w);
	return r;
}
