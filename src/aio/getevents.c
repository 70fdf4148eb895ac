/* SPDX-License-Identifier: MIT */
/*
 * io_getevents and io_pgetevents: taking what is there.
 *
 * Nothing is pending in a context of ours, so who finds too little would wait for what others
 * submit. He takes what there is (AIO-GET-09), makes the context the kernel's, and waits for the
 * rest in the kernel's own call (plx_aio_get_rest): signals, masks, time-outs, wakes and what
 * io_destroy does to those who wait are the kernel's.
 *
 * If the kernel has no context to give, or a slow file keeps somebody inside, the wait is one by
 * the clock: a nap, and another look.
 */
#include <errno.h>
#include <signal.h>

#include "aio/ring.h"
#include "base/clock.h"
#include "base/delay.h"
#include "base/inside.h"
#include "base/sys.h"
#include "base/wiped.h"
#include "cache/posix.h"
#include "cache/uaccess.h"

#define NAP_NS 1000000

/* As the kernel reckons: no validation, but no overflow of the seconds either. */
static int64_t total_ns(const struct timespec *ts)
{
	if (ts->tv_sec >= INT64_MAX / PLX_NSEC)
		return INT64_MAX;
	return (int64_t)((uint64_t)ts->tv_sec * PLX_NSEC + (uint64_t)ts->tv_nsec);
}

/* --- taking ----------------------------------------------------------------------------------- */

/*
 * Before the lock is taken: until memory for n events is there, which may take as long as it likes
 * (userfaultfd, a file that is mapped), or never be. Others go on meanwhile, as the kernel's
 * submitters do; it may have gone again when events are stored, and then they wait.
 */
static void wait_for_memory(struct io_event *events, long n)
{
	(void)plx_probe_write(events, (size_t)n * sizeof(*events));
}

/* kioctx.lock held. Up to n events to the program, or -EFAULT and none of them is taken. */
static long take(struct plx_kioctx *k, struct io_event *events, long n)
{
	struct plx_aio_ring *ring = k->ring;
	uint32_t head = plx_ring_head(k), used = plx_ring_shown(k, head);
	uint32_t m = n < used ? (uint32_t)n : used;
	uint32_t run = k->nr - head < m ? k->nr - head : m;

	if (plx_unlikely(head != k->head))
		plx_store(&k->watched, true);
	if (!m)
		return 0;
	if (run == 1 ? plx_copy_out32(events, &ring->events[head])
		     : plx_copy_out(events, &ring->events[head], run * sizeof(*events)))
		return -EFAULT;
	if (run < m && plx_copy_out(events + run, ring->events, (m - run) * sizeof(*events)))
		return -EFAULT;
	head = head + m >= k->nr ? head + m - k->nr : head + m;
	plx_store(&k->head, head);
	plx_store_rel(&ring->head, head);
	return m;
}

/* For what the program's ring says to be there. */
static void wait_for_most(aio_context_t ctx, uint64_t header, const struct plx_aio_want *w)
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
	wait_for_memory(w->events, w->nr < used ? w->nr : used);
}

/*
 * The usual call: what it asks for is in the ring. One lock and one RCU section, without
 * being counted as inside: who closes a context takes the lock afterwards, and so waits for those
 * who hold it and have found it open. Returns 0 if it is not so simple.
 */
static long take_at_once(aio_context_t ctx, uint64_t header, const struct plx_aio_want *w)
{
	struct plx_kioctx *k;
	long r = 0;

	if (w->min < 0 || w->nr < 1 || w->min > w->nr)
		return 0;
	wait_for_most(ctx, header, w);
	plx_rcu_read_lock();
	k = plx_aio_peek(ctx, header);
	if (k) {
		/* Not even a look at the ring without it: its pages may be another's by now. */
		plx_lock(&k->lock, PLX_RANK_AIO);
		if (!plx_aio_closed(k) &&
		    plx_ring_shown(k, plx_ring_head(k)) >= (w->min ? w->min : 1))
			r = take(k, w->events, w->nr);
		plx_unlock(&k->lock, PLX_RANK_AIO);
	}
	plx_rcu_read_unlock();
	return r;
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* What a call has found in its arguments, and until when it waits. */
struct wait {
	/* In nanoseconds; negative: without limit (AIO-GET-05). */
	int64_t timeout;
	int64_t deadline;
	/* NULL: none. */
	const uint64_t *mask;
};

static int64_t time_left(const struct wait *t)
{
	int64_t now;

	if (t->timeout < 0)
		return -1;
	if (!t->deadline)
		return t->timeout;
	now = plx_now_ns();
	return now < t->deadline ? t->deadline - now : 0;
}

/*
 * Sleeps for ns. Handlers of signals that the mask lets in run, as at the end of the kernel's call;
 * true if one did.
 */
static bool let_signals_in(const struct wait *t, int64_t ns)
{
	struct timespec ts = {.tv_sec = 0, .tv_nsec = ns};
	uint32_t handlers = plx_inside.handlers;
	PLX_OUTSIDE(sleep);

	if (sleep.interrupted && !t->mask)
		return true;
	if (plx_sys6(SYS_ppoll, 0, 0, (long)&ts, (long)t->mask, sizeof(*t->mask), 0) == -EINTR)
		return true;
	/* One may have run before the system call. */
	return !t->mask && plx_inside.handlers != handlers;
}

/* False: the wait is over, in time or since a handler has run. */
static bool nap(struct wait *t, struct plx_aio_want *w, bool *interrupted)
{
	int64_t left;

	if (t->timeout > 0 && !t->deadline &&
	    __builtin_add_overflow(plx_now_ns(), t->timeout, &t->deadline))
		t->deadline = INT64_MAX;
	left = time_left(t);
	if (left)
		*interrupted = let_signals_in(t, left < 0 || left > NAP_NS ? NAP_NS : left);
	left = time_left(t);
	if (left >= 0) {
		w->left = plx_timespec_ns(left);
		w->timeout = &w->left;
	}
	return left && !*interrupted;
}

/* Takes what there is. True: it is enough, or an error, or nobody waits for more. */
static bool look(struct plx_kioctx *k, struct plx_aio_want *w, const struct wait *t, long *r)
{
	long used = (long)plx_ring_used(k), room = w->nr - w->got;

	wait_for_memory(w->events + w->got, room < used ? room : used);
	plx_lock(&k->lock, PLX_RANK_AIO);
	*r = take(k, w->events + w->got, room);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	if (*r > 0)
		w->got += *r;
	return *r < 0 || w->got >= w->min || !t->timeout;
}

/* Also PLX_PASS: the rest is the kernel's. */
static long wait_for_events(aio_context_t ctx, struct plx_aio_want *w, struct wait *t,
			    struct plx_kioctx *k)
{
	enum plx_aio_hand hand = PLX_AIO_STAYS;
	bool done, interrupted = false, again = false;
	uint32_t serial = k->serial, moves;
	long r;

	for (;;) {
		done = look(k, w, t, &r);
		if (!done)
			hand = plx_aio_hand_over(k, false);
		if (!done && hand == PLX_AIO_GIVEN)
			return PLX_PASS;
		/* While the call is inside nobody begins. Partner: plx_aio_hand_over. */
		moves = plx_load_acq(&plx_wiped.aio_moves_begun);
		plx_aio_put(k, 0);
		if (done)
			break;
		/*
		 * Nothing is held: a handler may do what it likes, and need not come back. Who is
		 * busy with it may be about to be done.
		 */
		if ((hand != PLX_AIO_BUSY || again) && !nap(t, w, &interrupted))
			t->timeout = 0;
		again = true;
		k = plx_aio_get(ctx, 0);
		if (k && k->serial == serial)
			continue;
		if (!k && interrupted)
			break;
		if (!k && plx_load_acq(&plx_wiped.aio_moves_begun) != moves)
			return PLX_PASS;
		/* It was destroyed, and what is there now is another one. */
		if (k)
			plx_aio_put(k, 0);
		return w->got ? w->got : -EINVAL;
	}
	if (!w->got && r == 0 && interrupted)
		r = -EINTR;
	return w->got ? w->got : r;
}

/* --- the calls -------------------------------------------------------------------------------- */

/* The arguments that come before the context; 0 or the error. */
static int timeout_in(struct plx_aio_want *w, struct wait *t)
{
	t->timeout = -1;
	if (!w->timeout)
		return 0;
	if (plx_copy_in(&w->left, w->timeout, sizeof(w->left)))
		return -EFAULT;
	t->timeout = total_ns(&w->left);
	return 0;
}

static int mask_in(struct plx_aio_want *w)
{
	struct plx_aio_sig sig;

	if (!w->sig)
		return 0;
	if (plx_copy_in(&sig, w->sig, sizeof(sig)))
		return -EFAULT;
	w->own_sig.size = sig.size;
	w->sig = &w->own_sig;
	if (!sig.mask)
		return 0;
	if (sig.size != sizeof(w->mask))
		return -EINVAL;
	if (plx_copy_in(&w->mask, sig.mask, sizeof(w->mask)))
		return -EFAULT;
	w->own_sig.mask = &w->mask;
	return 0;
}

long plx_aio_getevents(aio_context_t ctx, struct plx_aio_want *w)
{
	PLX_INSIDE();
	struct wait t = {0};
	struct plx_kioctx *k;
	uint64_t header;
	long r;
	int bad;

	/* Nothing is copied where all are the kernel's: nobody may answer a fault. */
	if (!plx_aio_header(ctx, &header))
		return PLX_PASS;
	bad = timeout_in(w, &t);
	if (plx_likely(!bad && !w->pget)) {
		r = take_at_once(ctx, header, w);
		if (plx_likely(r))
			return r;
	}
	k = plx_aio_get(ctx, 0);
	if (!k)
		return PLX_PASS;
	r = bad;
	if (!r && w->pget)
		r = mask_in(w);
	t.mask = w->own_sig.mask;
	if (!r && (w->min < 0 || w->min > w->nr))
		r = -EINVAL;
	if (r) {
		plx_aio_put(k, 0);
	} else {
		if (w->timeout)
			w->timeout = &w->left;
		r = wait_for_events(ctx, w, &t, k);
	}
	/* A call that did not sleep does it here; the kernel does it at the end of its own. */
	if (t.mask && r != PLX_PASS && let_signals_in(&t, 0) && r == 0)
		r = -EINTR;
	return r;
}

long plx_aio_get_rest(aio_context_t ctx, struct plx_aio_want *w)
{
	long r = plx_sys6(w->pget ? SYS_io_pgetevents : SYS_io_getevents, (long)ctx,
			  w->min - w->got, w->nr - w->got, (long)(w->events + w->got),
			  (long)w->timeout, w->pget ? (long)w->sig : 0);

	if (r < 0)
		return w->got ? w->got : r;
	return w->got + r;
}
