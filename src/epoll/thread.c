/* SPDX-License-Identifier: MIT */
/*
 * What the engine keeps of each thread: its batches, and the watches that it has counted.
 *
 *   threads, thread.next  threads_lock
 *
 * Batches: the events of a thread's last wait in an epoll with POLLUX_EP_BATCHES. What frees
 * objects waits for those that may have events of them.
 *
 *   clock         atomic; only grows
 *   batches       atomic; set before the first batch is opened, for good
 *   batch.ep      set by the thread, cleared by it or by the end of the epoll
 *   batch.opened  0, or the clock when it was opened; likewise
 *
 * Argument. A collection opens its batch with the epoll's mutex held, in which it looks at the
 * items. Who takes an item out holds it, too, and notes the clock afterwards, which moves by that.
 * If the collection was first, it has loaded no more than the note, and whoever looks at all
 * batches after the note finds it open, and no younger than the note, or it has ended. If it was
 * second, it has no event of the item. A batch that is opened after the note is younger, and nobody
 * waits for it. The model is tests/model/batch.pml. For descriptors of the kernel its mutex takes
 * the place of ours, and the batch is opened before the kernel is asked (wait/wait.c).
 *
 * Watches: how many there are, and the limit of that (EP-ADD-07). What descriptors are watched by
 * the kernel counts.
 *
 * Every ADD and every removal counts, in all threads, so the count is not one word that all of them
 * write. Each thread counts for itself until a limit is set; then all change one word, which is
 * compared in the same step. What a thread counts while the first limit is being set is not known
 * to that.
 *
 * The child of a fork has no batches, and has counted nothing: the list is empty there, and the
 * thread that forked finds that it is not known.
 *
 *   thread.n       written by its thread
 *   ended, before  threads_lock
 *   since          atomic; what has been counted from the first limit on, or where there is no n
 */
#include "epoll/engine.h"

#include <limits.h>

#include "base/inside.h"
#include "base/key.h"

#define BATCHES 14

struct plx_thread {
	struct plx_thread *next;
	long n;
	/* It is on the list of this process (engine.h). */
	uint8_t born;
	/* How often its destructor has run. */
	int ends;
	struct plx_batch b[BATCHES];
};

static __thread struct plx_thread me;
static PLX_START_PAGE struct plx_key thread_key;

static uint64_t batch_clock = 1;
static uint32_t batches;

static uint32_t limited;
static long max_watches = -1;

static inline bool known(void)
{
	return plx_likely(me.born && me.born == plx_load(&plx_wiped.born));
}

static void thread_exit(void *p)
{
	uint32_t depth = plx_inside_begin();
	struct plx_thread **at = &plx_wiped.threads;

	plx_tsan_before(&plx_read_sections);
	plx_lock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
	while (*at && *at != p)
		at = &(*at)->next;
	/* In the child of a fork it may not be there. */
	if (*at) {
		*at = me.next;
		plx_wiped.ended += me.n;
	}
	plx_unlock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
	/* A destructor of the program's may remove watches after this one. */
	me = (struct plx_thread){.ends = me.ends + 1};
	plx_inside_end(&depth);
}

static __attribute__((noinline)) bool thread_begin(void)
{
	/* In the last round of destructors nobody would take it off the list. */
	if (me.ends >= PTHREAD_DESTRUCTOR_ITERATIONS ||
	    pthread_setspecific(plx_key(&thread_key, thread_exit), &me))
		return false;
	/* What it was at, and has counted, in the parent is not the child's. */
	me = (struct plx_thread){.born = plx_born(), .ends = me.ends};
	plx_lock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
	me.next = plx_wiped.threads;
	plx_wiped.threads = &me;
	plx_unlock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
	return true;
}

/* --- batches --------------------------------------------------------------------------- */

#define EACH_BATCH(b, t) for (struct plx_batch *b = (t)->b; b < (t)->b + BATCHES; b++)

static void batch_close(struct plx_batch *b)
{
	plx_tsan_before(&plx_read_sections);
	PLX_DELAY(batch_before_close);
	plx_store_rel(&b->opened, 0);
	plx_store_rel(&b->ep, NULL);
}

struct plx_batch *plx_batch_of(const struct pollux_ep *ep)
{
	struct plx_batch *free = NULL;

	if (!known() && !thread_begin())
		return NULL;
	if (plx_unlikely(!plx_load(&batches)))
		plx_store(&batches, 1);
	EACH_BATCH (b, &me) {
		if (plx_load(&b->ep) == ep)
			return b;
		if (!free && !plx_load(&b->ep))
			free = b;
	}
	return free;
}

void plx_batch_open(struct plx_batch *b, struct pollux_ep *ep)
{
	if (b->opened)
		return;
	plx_store(&b->ep, ep);
	plx_store(&b->opened, plx_load(&batch_clock));
	PLX_DELAY(batch_opened);
}

void plx_batch_end(const struct pollux_ep *ep)
{
	EACH_BATCH (b, &me)
		if (plx_load(&b->ep) == ep)
			batch_close(b);
}

void pollux_ep_batch_end(struct pollux_ep *ep)
{
	plx_batch_end(ep);
	plx_reclaim_room();
}

bool plx_batch_inside(void)
{
	EACH_BATCH (b, &me)
		if (plx_load(&b->opened))
			return known();
	return false;
}

uint64_t plx_batch_note(void)
{
	return plx_xadd(&batch_clock, 1);
}

bool plx_batch_over(uint64_t note)
{
	bool over = true;

	if (plx_likely(!plx_load(&batches)))
		return true;
	plx_lock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
	for (struct plx_thread *t = plx_wiped.threads; over && t; t = t->next) {
		EACH_BATCH (b, t) {
			uint64_t opened = plx_load_acq(&b->opened);

			over = over && (!opened || opened > note);
		}
	}
	plx_unlock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
	return over;
}

int plx_batches_open(const struct pollux_ep *ep)
{
	int n = 0;

	if (!plx_glance(&plx_wiped.threads_lock))
		return -1;
	for (struct plx_thread *t = plx_wiped.threads; t; t = t->next)
		EACH_BATCH (b, t)
			n += plx_load(&b->ep) == ep;
	plx_glance_end(&plx_wiped.threads_lock);
	return n;
}

void plx_batches_forget(const struct pollux_ep *ep)
{
	plx_lock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
	for (struct plx_thread *t = plx_wiped.threads; t; t = t->next)
		EACH_BATCH (b, t)
			if (plx_load(&b->ep) == ep)
				batch_close(b);
	plx_unlock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
}

/* --- watches --------------------------------------------------------------------------- */

static void count(long n)
{
	if (plx_unlikely(plx_load(&limited)) || (!known() && (me.ends || !thread_begin())))
		plx_xadd(&plx_wiped.since, n);
	else
		plx_store(&me.n, me.n + n);
}

static __attribute__((noinline)) bool charge_limited(void)
{
	long now = plx_load(&plx_wiped.since), max;

	do {
		max = plx_load(&max_watches);
		if (max >= 0 && plx_load(&plx_wiped.before) + now >= max)
			return false;
	} while (!plx_cas(&plx_wiped.since, &now, now + 1));
	return true;
}

bool plx_watches_charge(const struct pollux_ep *ep)
{
	if (ep->owner)
		return true;
	if (plx_unlikely(plx_load(&limited)))
		return charge_limited();
	count(1);
	return true;
}

void plx_watches_uncharge(const struct pollux_ep *ep)
{
	if (!ep->owner)
		count(-1);
}

/* threads_lock held. */
static long sum(void)
{
	long n = plx_wiped.ended;

	for (struct plx_thread *t = plx_wiped.threads; t; t = t->next)
		n += plx_load(&t->n);
	return n;
}

void pollux_ep_set_max_watches(long max)
{
	plx_rcu_begin();
	plx_lock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
	plx_store(&max_watches, max);
	if (max >= 0)
		plx_store(&limited, 1);
	plx_store(&plx_wiped.before, sum());
	plx_unlock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
}

long pollux_ep_watches(void)
{
	long n;

	plx_rcu_begin();
	plx_lock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
	n = sum() + plx_load(&plx_wiped.since);
	plx_unlock(&plx_wiped.threads_lock, PLX_RANK_THREADS);
	return n;
}
