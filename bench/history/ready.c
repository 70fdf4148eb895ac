/* SPDX-License-Identifier: MIT */
#include "ready.h"

#include <sched.h>
#include <stdlib.h>

#include "base/atomic.h"

/*
 * Locks of the kernel spin with preemption off. Here the holder may be preempted, so a
 * waiter gives way after a while; that is kinder to them than bare spinning would be.
 */
#define SPINS 200

/* Ends a chain; NULL means not linked. */
static struct ready_item end_mark;
#define END (&end_mark)
/* No collection is under way. */
static struct ready_item off_mark;
#define OFF (&off_mark)

struct ready_list {
	/* The lock has a line of its own, as in the kernel's layout. */
	uint32_t lock __attribute__((aligned(64)));
	struct ready_item *head __attribute__((aligned(64)));
	struct ready_item *tail;
	struct ready_item *overflow;
};

static void pause_some(unsigned int *spins)
{
	if (++*spins % SPINS == 0)
		sched_yield();
	else
		plx_cpu_relax();
}

static struct ready_list *list_make(void)
{
	struct ready_list *l = aligned_alloc(64, sizeof(*l));

	if (!l)
		return NULL;
	l->lock = 0;
	l->head = END;
	l->tail = NULL;
	l->overflow = OFF;
	return l;
}

static bool list_any(struct ready_list *l)
{
	return plx_load_acq(&l->head) != END;
}

/* With the lock held for writing, or by the collector while the overflow list is on. */
static void append(struct ready_list *l, struct ready_item *item)
{
	item->next = END;
	if (l->head == END)
		plx_store(&l->head, item);
	else
		plx_store(&l->tail->next, item);
	l->tail = item;
}

/* --- the collection, the same for both locks ------------------------------------------------ */

/* Lock held for writing. */
static struct ready_item *splice(struct ready_list *l)
{
	struct ready_item *all = l->head;

	l->head = END;
	l->tail = NULL;
	l->overflow = END;
	return all;
}

static unsigned int look_at(struct ready_list *l, struct ready_item **all, struct ready_item **out,
			    unsigned int max)
{
	unsigned int n = 0;

	while (*all != END && n < max) {
		struct ready_item *item = *all;

		*all = item->next;
		plx_store_rel(&item->next, NULL);
		if (plx_load_acq(&item->count) == 0)
			continue;
		out[n++] = item;
		/* Producers are diverted, so the list is the collector's own here. */
		append(l, item);
	}
	return n;
}

/* Lock held for writing. rest: what was not looked at stays in front. */
static void unsplice(struct ready_list *l, struct ready_item *rest)
{
	struct ready_item *item = l->overflow, *next;

	l->overflow = OFF;
	for (; item != END; item = next) {
		next = item->overflow;
		item->overflow = NULL;
		if (!item->next)
			append(l, item);
	}
	if (rest == END)
		return;
	for (item = rest; item->next != END; item = item->next)
		;
	if (l->head == END)
		l->tail = item;
	item->next = l->head;
	l->head = rest;
}

/* --- spinlock ----------------------------------------------------------------------------------
 */

static void spin_lock(struct ready_list *l)
{
	unsigned int spins = 0;

	while (plx_load(&l->lock) || __atomic_exchange_n(&l->lock, 1, __ATOMIC_ACQUIRE))
		pause_some(&spins);
}

static void spin_unlock(struct ready_list *l)
{
	plx_store_rel(&l->lock, 0);
}

static void spin_event(struct ready_list *l, struct ready_item *item)
{
	spin_lock(l);
	if (l->overflow != OFF) {
		if (!item->overflow) {
			item->overflow = l->overflow;
			l->overflow = item;
		}
	} else if (!item->next) {
		append(l, item);
	}
	spin_unlock(l);
}

static unsigned int spin_collect(struct ready_list *l, struct ready_item **out, unsigned int max)
{
	struct ready_item *all;
	unsigned int n;

	spin_lock(l);
	all = splice(l);
	spin_unlock(l);
	n = look_at(l, &all, out, max);
	spin_lock(l);
	unsplice(l, all);
	spin_unlock(l);
	return n;
}

const struct ready_algorithm ready_spinlock = {"spinlock", list_make, spin_event, spin_collect,
					       list_any};

/* --- reader/writer lock, the tail exchanged ----------------------------------------------------
 */

#define WRITER 0x80000000u

static void read_lock(struct ready_list *l)
{
	unsigned int spins = 0;

	while (__atomic_fetch_add(&l->lock, 1, __ATOMIC_ACQUIRE) & WRITER) {
		(void)__atomic_fetch_sub(&l->lock, 1, __ATOMIC_RELAXED);
		while (plx_load(&l->lock) & WRITER)
			pause_some(&spins);
	}
}

static void read_unlock(struct ready_list *l)
{
	(void)__atomic_fetch_sub(&l->lock, 1, __ATOMIC_RELEASE);
}

static void write_lock(struct ready_list *l)
{
	unsigned int spins = 0;

	/* There is one writer. */
	(void)__atomic_fetch_or(&l->lock, WRITER, __ATOMIC_ACQUIRE);
	while (plx_load_acq(&l->lock) != WRITER)
		pause_some(&spins);
}

static void write_unlock(struct ready_list *l)
{
	(void)__atomic_fetch_and(&l->lock, ~WRITER, __ATOMIC_RELEASE);
}

/* Readers append beside each other: the exchange of the tail orders them. */
static void append_shared(struct ready_list *l, struct ready_item *item)
{
	struct ready_item *none = NULL, *before;

	/* Another producer of the same item may be at it. */
	if (!plx_cas(&item->next, &none, END))
		return;
	before = plx_xchg(&l->tail, item);
	plx_store_rel(before ? &before->next : &l->head, item);
}

static void overflow_shared(struct ready_list *l, struct ready_item *item)
{
	struct ready_item *none = NULL, *first;

	if (!plx_cas(&item->overflow, &none, END))
		return;
	first = plx_xchg(&l->overflow, item);
	plx_store(&item->overflow, first);
}

static void rw_event(struct ready_list *l, struct ready_item *item)
{
	read_lock(l);
	if (plx_load(&l->overflow) != OFF) {
		if (!plx_load(&item->overflow))
			overflow_shared(l, item);
	} else if (!plx_load(&item->next)) {
		append_shared(l, item);
	}
	read_unlock(l);
}

static unsigned int rw_collect(struct ready_list *l, struct ready_item **out, unsigned int max)
{
	struct ready_item *all;
	unsigned int n;

	write_lock(l);
	all = splice(l);
	write_unlock(l);
	n = look_at(l, &all, out, max);
	write_lock(l);
	unsplice(l, all);
	write_unlock(l);
	return n;
}

const struct ready_algorithm ready_rwlock = {"rwlock", list_make, rw_event, rw_collect, list_any};

/* --- a stack without a lock ----------------------------------------------------------------------
 */

static void free_event(struct ready_list *l, struct ready_item *item)
{
	struct ready_item *head;

	if (plx_load(&item->queued) || plx_xchg(&item->queued, 1))
		return;
	head = plx_load(&l->head);
	do
		plx_store(&item->next, head);
	while (!plx_cas(&l->head, &head, item));
}

static unsigned int free_collect(struct ready_list *l, struct ready_item **out, unsigned int max)
{
	struct ready_item *item = plx_xchg(&l->head, END), *all = END, *next;
	unsigned int n = 0;

	for (; item != END; item = next) {
		next = plx_load(&item->next);
		plx_store(&item->next, all);
		all = item;
	}
	while (all != END) {
		item = all;
		all = plx_load(&item->next);
		if (n == max) {
			plx_store(&item->queued, 0);
			free_event(l, item);
			continue;
		}
		/* Cleared before the look: an event after it queues the item again. */
		(void)plx_xchg(&item->queued, 0);
		if (plx_load_acq(&item->count) == 0)
			continue;
		out[n++] = item;
		free_event(l, item);
	}
	return n;
}

const struct ready_algorithm ready_lockfree = {"lockfree", list_make, free_event, free_collect,
					       list_any};
