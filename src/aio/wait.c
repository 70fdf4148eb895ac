/* SPDX-License-Identifier: MIT */
/*
 * Threads that wait for events.
 *
 * A waiter that needs more events than there are takes none of them until they are all there
 * (or its wait ends): others may need fewer (AIO-GET-09). So it only listens. It sleeps in the
 * kernel's own call on the twin, so that signals, masks and time-outs are the kernel's, but with
 * room for events at an address that nobody can write to: whatever comes to the twin ends the
 * sleep with EFAULT, and stays where it is (AIO-GET-08). Events are taken from the twin under
 * kioctx.lock only, and nobody ever has one in hand that he will not keep.
 *
 * No wake is lost. A waiter is in the list before it lets go of the lock under which it has
 * emptied the twin, and sleeps for a single event. What comes to the twin after that ends its
 * sleep. What is in our own ring does not; so whoever gives up the lock makes sure that a bell is
 * in the twin, or on its way there, while our ring has what some waiter needs, or the context is
 * dead (plx_aio_due). Whoever removes the bell is under the same rule. A waiter that has been
 * woken by a bell that was for others must not sleep on the twin before they have heard it: the
 * bell would wake it again at once. It sleeps by the clock meanwhile, and not for long. The model
 * is tests/model/aio_wait.pml.
 *
 * A handler may leave the sleep for good, by siglongjmp, and then the stack is not ours any
 * more. So what is in the list is in memory of its own, and the thread's note says which waiter
 * it has, for the next call that waits and for the end of the thread. A handler may also
 * destroy the context, or fork: for the kernel the call that it has interrupted is over.
 *
 * A signal that comes together with an event that is not enough ends the call all the same: it is
 * kept until the next sleep, or told by the count of handlers that the drop-in keeps.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>

#include "aio/ring.h"
#include "base/clock.h"
#include "base/delay.h"
#include "base/inside.h"
#include "base/key.h"
#include "base/mem.h"
#include "base/sleep.h"
#include "base/sys.h"
#include "posix/posix.h"

/* No address of a program's, on any machine that we know. */
#define NOWHERE (-4096l)
/* How long a waiter stays away from the twin. */
#define AWAY_NS 100000
#define NAP_NS 1000000

struct plx_aio_waiter {
	struct plx_aio_waiter *next;
	struct plx_aio_waiter **at;
	struct plx_kioctx *k;
	int64_t need;
	/* What the note said before: of a sleep that a handler of this thread has interrupted. */
	struct plx_aio_waiter *outer;
	/* Where on the stack the call is. */
	void *frame;
};

/* The innermost wait of this thread, and memory for the next. */
static __thread struct plx_aio_waiter *note, *spare;
static PLX_START_PAGE struct plx_key wait_key;

/* What the kernel's sixth argument points to. */
struct sigarg {
	const uint64_t *mask;
	size_t size;
};

bool plx_aio_due(struct plx_kioctx *k)
{
	const struct plx_aio_waiter *w = k->waiters;
	bool due;

	if (plx_likely(!w) || k->bell)
		return false;
	due = plx_aio_dead(k);
	for (uint32_t used = plx_ring_used(k); w && !due; w = w->next)
		due = w->need <= used;
	k->bell = due;
	return due;
}

/* kioctx.lock held. */
static void unlist(struct plx_aio_waiter *me)
{
	if (!me->at)
		return;
	*me->at = me->next;
	if (me->next)
		me->next->at = me->at;
	me->at = NULL;
}

static void list(struct plx_aio_waiter *me, int64_t need)
{
	struct plx_kioctx *k = me->k;

	me->need = need;
	if (me->at)
		return;
	me->next = k->waiters;
	if (me->next)
		me->next->at = &me->next;
	me->at = &k->waiters;
	k->waiters = me;
}

/* --- the note ------------------------------------------------------------------------------- */

/* The waiter, and the call inside the context with it. */
static void leave(struct plx_aio_waiter *w)
{
	struct plx_kioctx *k = w->k;
	bool ring;

	w->k = NULL;
	plx_lock(&k->lock, PLX_RANK_AIO);
	unlist(w);
	ring = plx_aio_due(k);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	if (ring)
		plx_aio_ring_bell(k);
	plx_aio_put(k, 0);
}

/* The innermost wait was left by a jump. */
static void drop(void)
{
	struct plx_aio_waiter *w = note;

	if (w->k && !plx_aio_inherited(w->k))
		leave(w);
	note = w->outer;
	plx_free(w);
}

void plx_aio_wait_forsake(struct plx_kioctx *k)
{
	for (struct plx_aio_waiter *w = note; w; w = w->outer)
		if (w->k == k)
			leave(w);
}

void plx_aio_wait_check(void *frame)
{
	stack_t stack;

	/* In a handler the waits are those that it has interrupted. */
	if (plx_likely(!note) || (char *)frame < (char *)note->frame ||
	    plx_sys2(SYS_sigaltstack, NULL, &stack) < 0 || (stack.ss_flags & SS_ONSTACK))
		return;
	while (note && (char *)frame >= (char *)note->frame)
		drop();
}

static void thread_exit(void *p)
{
	PLX_INSIDE();
	(void)p;
	while (note)
		drop();
	plx_free(spare);
	spare = NULL;
}

PLX_START_CODE void plx_aio_wait_init(void)
{
	(void)plx_key(&wait_key, thread_exit);
}

static void thread_begin(void)
{
	static __thread bool begun;

	if (plx_likely(begun))
		return;
	begun = pthread_setspecific(plx_key(&wait_key, thread_exit), &note) == 0;
}

/* The caller's own call inside k is the waiter's from here to the end. NULL without memory. */
static struct plx_aio_waiter *waiter_new(struct plx_kioctx *k, void *frame)
{
	struct plx_aio_waiter *me = spare;

	thread_begin();
	spare = NULL;
	if (!me)
		me = plx_zalloc(sizeof(*me));
	if (!me)
		return NULL;
	*me = (struct plx_aio_waiter){.k = k, .outer = note, .frame = frame};
	note = me;
	return me;
}

static void waiter_end(struct plx_aio_waiter *me)
{
	note = me->outer;
	if (spare)
		plx_free(me);
	else
		spare = me;
}

/* --- sleeping ------------------------------------------------------------------------------- */

bool plx_aio_let_signals_in(const struct plx_aio_want *w, int64_t ns)
{
	struct timespec ts = {.tv_sec = 0, .tv_nsec = ns};
	uint32_t handlers = plx_inside.handlers;
	PLX_OUTSIDE(sleep);

	if (sleep.interrupted && !w->masked)
		return true;
	if (plx_sys6(SYS_ppoll, 0, 0, (long)&ts, w->masked ? (long)&w->mask : 0, sizeof(w->mask),
		     0) == -EINTR)
		return true;
	/* One may have run before the system call. */
	return !w->masked && plx_inside.handlers != handlers;
}

/*
 * What the mask blocks comes when the call is over, and the wait may be several sleeps: their own
 * masks would let it in between, and take a handler of it for what ends the wait. One that runs
 * here has come before the call. Faults must come: a bad address is answered by them.
 */
static void hold_off(struct plx_aio_want *w)
{
	uint64_t most = w->mask & ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1)), was;
	PLX_OUTSIDE(begin);

	(void)begin;
	plx_sys4(SYS_rt_sigprocmask, SIG_BLOCK, &most, &was, sizeof(was));
	w->held_off = most & ~was;
}

/* Outside, where what is kept has run: with that the thread has a mask of ours (signal.c). */
void plx_aio_let_back(const struct plx_aio_want *w)
{
	PLX_OUTSIDE(end);

	(void)end;
	plx_sys4(SYS_rt_sigprocmask, SIG_UNBLOCK, &w->held_off, NULL, sizeof(w->held_off));
}

/* By the clock, for up to ns. What ends the wait, or 0. */
static long nap(const struct plx_aio_want *w, int64_t left, int64_t ns)
{
	if (left == 0)
		return -ETIME;
	return plx_aio_let_signals_in(w, left < 0 || left > ns ? ns : left) ? -EINTR : 0;
}

static int64_t time_left(int64_t deadline)
{
	int64_t now;

	if (!deadline)
		return -1;
	now = plx_now_ns();
	return now < deadline ? deadline - now : 0;
}

/* Events of the twin that are not in our ring; without kioctx.lock, about so many. */
static uint32_t with_twin(const struct plx_kioctx *k)
{
	const struct plx_aio_ring *t = (struct plx_aio_ring *)plx_load_acq(&k->twin);

	if (!t)
		return 0;
	return (plx_load_acq(&t->tail) + k->twin_nr - plx_load(&t->head)) % k->twin_nr;
}

/* kioctx.lock held. Whether need events are there; else none is left with the twin. */
static bool there(struct plx_kioctx *k, int64_t need)
{
	if (plx_ring_used(k) + (int64_t)with_twin(k) - k->bell >= need)
		return true;
	plx_aio_twin_drain(k);
	return plx_ring_used(k) >= need;
}

/* One look, of a call that has got events already and is to end if it is over. */
struct look {
	long got;
	long r;
	bool first;
	bool over;
	bool done;
	/* Nothing that is there would end a sleep on the twin. */
	bool quiet;
};

/* Takes what is to be taken, and says in the list what is still needed. */
static void look(struct plx_kioctx *k, const struct plx_aio_want *w, struct look *l,
		 struct plx_aio_waiter *me)
{
	long used = (long)plx_ring_used(k) + with_twin(k), room = w->nr - l->got;
	bool ring;

	plx_aio_wait_for_memory(w->user + l->got, room < used ? room : used);
	plx_lock(&k->lock, PLX_RANK_AIO);
	l->r = 0;
	l->done = l->over || !w->timeout || plx_aio_dead(k);
	/* At first it takes what there is (AIO-GET-02). */
	if (l->first || l->done || there(k, w->min - l->got)) {
		l->r = plx_aio_take(k, w->user + l->got, w->nr - l->got);
		l->got += l->r > 0 ? l->r : 0;
		l->done |= l->r < 0 || l->got >= w->min;
	}
	l->first = false;
	if (me && l->done)
		unlist(me);
	else if (me)
		list(me, w->min - l->got);
	ring = plx_aio_due(k);
	l->quiet = !k->bell && !with_twin(k);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	if (ring)
		plx_aio_ring_bell(k);
}

/* A wait that sleeps, for a handler that ends it. */
struct asleep {
	struct plx_kioctx *k;
	const struct plx_aio_want *w;
	struct look *l;
	struct plx_aio_waiter *me;
};

/*
 * A handler of the program is about to run, which ends the wait: what there is has been stored by
 * then (AIO-GET-07). The handler's own mask must not keep off what answers a bad address.
 */
static void store_first(void *p)
{
	const struct asleep *a = p;
	uint64_t faults = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1), was;

	plx_sys4(SYS_rt_sigprocmask, SIG_UNBLOCK, &faults, &was, sizeof(was));
	a->l->over = true;
	look(a->k, a->w, a->l, a->me);
	plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &was, NULL, sizeof(was));
}

/*
 * The sleep itself. A signal that came since the call began and has waited interrupts it, and so
 * does one whose handler runs before the system call. (With a mask of the call's own that is for
 * those that it lets in; they come within the system call if they are blocked otherwise.)
 */
static long sleep_outside(struct asleep *it, struct plx_sleep *s, long nr)
{
	const struct plx_aio_want *w = it->w;
	const long *a = s->args;
	struct timespec none = {0};
	long r;

	if (!w->masked && plx_load(&plx_sleeps_seen)) {
		PLX_HOLD_PUSH(store_first, it);
		r = plx_sleep_uncut(s, nr);
		PLX_HOLD_POP(false);
		return plx_sleep_is_over(r) ? -EINTR : r;
	}

	PLX_OUTSIDE(sleep);

	if (!sleep.interrupted || w->masked)
		return plx_sys6(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	plx_sys6(nr, a[0], a[1], a[2], a[3], (long)&none, a[5]);
	return -EINTR;
}

/* On the twin. 0: something is there. Else what ends the wait. */
static long sleep_on_twin(struct asleep *it, int64_t left)
{
	const struct plx_aio_want *w = it->w;
	struct timespec ts = {.tv_sec = left / PLX_NSEC, .tv_nsec = left % PLX_NSEC};
	struct sigarg sig = {.mask = &w->mask, .size = sizeof(w->mask)};
	struct plx_sleep s = {.args = {(long)it->k->twin, 1, 1, NOWHERE, left < 0 ? 0 : (long)&ts,
				       w->masked ? (long)&sig : 0}};
	uint32_t handlers = plx_inside.handlers;
	long r;

	PLX_DELAY(aio_sleep);
	/* The call that the program made: a stop without a handler ends the one only. */
	r = sleep_outside(it, &s, w->pget ? SYS_io_pgetevents : SYS_io_getevents);
	PLX_DELAY(aio_woken);
	if (r == 0)
		return -ETIME;
	if (r != -EFAULT)
		return r;
	return plx_inside.handlers != handlers ? -EINTR : 0;
}

long plx_aio_wait(struct plx_kioctx **ctx, struct plx_aio_want *w, bool *slept)
{
	struct plx_kioctx *k = *ctx;
	struct plx_aio_waiter *me = NULL;
	struct look l = {.first = true};
	int64_t deadline = 0;
	bool listens = false;
	long over = 0;

	for (;;) {
		look(k, w, &l, listens ? me : NULL);
		if (l.done)
			break;
		if (w->timeout > 0 && !deadline &&
		    __builtin_add_overflow(plx_now_ns(), w->timeout, &deadline))
			deadline = INT64_MAX;
		if (listens && l.quiet) {
			struct asleep it = {.k = k, .w = w, .l = &l, .me = me};

			over = sleep_on_twin(&it, time_left(deadline));
			*slept = true;
		} else if (listens) {
			over = nap(w, time_left(deadline), AWAY_NS);
		} else {
			/* First: a handler in a nap may destroy the context, too. */
			if (!me)
				me = waiter_new(k, __builtin_frame_address(0));
			listens = me && plx_aio_twin_make(k) == 0;
			/* Else memory, or the machine's limit of AIO, is used up. */
			if (!listens)
				over = nap(w, time_left(deadline), NAP_NS);
			else if (w->masked)
				hold_off(w);
		}
		l.over |= over != 0;
		if ((me && !me->k) || plx_aio_inherited(k)) {
			/* Destroyed by a handler, or this is the child of a handler's fork. */
			*ctx = NULL;
			if (me)
				waiter_end(me);
			return l.got ? l.got : -EINTR;
		}
		/* All that there was before the handler has been taken. */
		if (l.done)
			break;
	}
	if (me)
		waiter_end(me);
	if (l.got || l.r < 0)
		return l.got ? l.got : l.r;
	if (plx_aio_dead(k))
		return -EINVAL;
	return over == -ETIME ? 0 : over;
}
