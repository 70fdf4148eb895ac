/* SPDX-License-Identifier: MIT */
/*
 * How many watches there are, and the limit of that (EP-ADD-07). What descriptors are watched by
 * the kernel counts.
 *
 * Every ADD and every removal counts, in all threads, so the count is not one word that all of them
 * write. Each thread counts for itself until a limit is set; then all change one word, which is
 * compared in the same step. What a thread counts while the first limit is being set is not known
 * to that.
 *
 *   thread.n    written by its thread
 *   threads, ended, before   watches_lock
 *   since       atomic; what has been counted from the first limit on, or by threads without a n
 */
#include "epoll/engine.h"

#include "base/inside.h"
#include "base/key.h"

enum { NEW, KNOWN, ENDED };

struct thread {
	struct thread *next;
	long n;
	int state;
};

static plx_lock_t watches_lock;
static struct thread *threads;
/* By threads that have ended. */
static long ended;
static __thread struct thread me;
static PLX_START_PAGE struct plx_key watches_key;

static uint32_t limited;
static long max_watches = -1;
static long before;
static long since;

static void thread_exit(void *p)
{
	uint32_t depth = plx_inside_begin();
	struct thread **at = &threads;

	plx_lock(&watches_lock, PLX_RANK_WATCHES);
	while (*at != p)
		at = &(*at)->next;
	*at = me.next;
	ended += me.n;
	plx_unlock(&watches_lock, PLX_RANK_WATCHES);
	/* A destructor of the program's may remove watches after this one. */
	me.state = ENDED;
	plx_inside_end(&depth);
}

static __attribute__((noinline)) bool thread_begin(void)
{
	if (me.state == ENDED || pthread_setspecific(plx_key(&watches_key, thread_exit), &me))
		return false;
	plx_lock(&watches_lock, PLX_RANK_WATCHES);
	me.next = threads;
	threads = &me;
	plx_unlock(&watches_lock, PLX_RANK_WATCHES);
	me.state = KNOWN;
	return true;
}

static void count(long n)
{
	if (plx_unlikely(plx_load(&limited)) ||
	    (plx_unlikely(me.state != KNOWN) && !thread_begin()))
		plx_xadd(&since, n);
	else
		plx_store(&me.n, me.n + n);
}

static __attribute__((noinline)) bool charge_limited(void)
{
	long now = plx_load(&since), max;

	do {
		max = plx_load(&max_watches);
		if (max >= 0 && plx_load(&before) + now >= max)
			return false;
	} while (!plx_cas(&since, &now, now + 1));
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

/* watches_lock held. */
static long sum(void)
{
	long n = ended;

	for (struct thread *t = threads; t; t = t->next)
		n += plx_load(&t->n);
	return n;
}

void pollux_ep_set_max_watches(long max)
{
	plx_lock(&watches_lock, PLX_RANK_WATCHES);
	plx_store(&max_watches, max);
	if (max >= 0)
		plx_store(&limited, 1);
	plx_store(&before, sum());
	plx_unlock(&watches_lock, PLX_RANK_WATCHES);
}

long pollux_ep_watches(void)
{
	long n;

	plx_lock(&watches_lock, PLX_RANK_WATCHES);
	n = sum() + plx_load(&since);
	plx_unlock(&watches_lock, PLX_RANK_WATCHES);
	return n;
}

/* What the parent watches is not the child's. */
PLX_CHILD_CODE void plx_watches_after_fork_child(void)
{
	plx_lock_reset(&watches_lock);
	/* A page that is not written to is not copied. */
	if (!threads && !ended && !before && !since)
		return;
	threads = me.state == KNOWN ? &me : NULL;
	me.next = NULL;
	me.n = ended = before = since = 0;
}
