/* SPDX-License-Identifier: MIT */
#include "ready.h"

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/atomic.h"

/*
 * Locks of the kernel spin with preemption off. Here the holder may be preempted, so a
 * waiter gives way after a while; that is kinder to them than bare spinning would be.
 */
#define SPINS 200
#define SLEEP_NS 20000

/* Ends the overflow list and the stack; NULL means not linked. */
static struct ready_item end_mark;
#define END (&end_mark)
#define LINK_END (&end_mark.link)
/* No collection is under way. */
static struct ready_item off_mark;
#define OFF (&off_mark)

struct ready_list {
	/* The lock has a line of its own, as in the kernel's layout. */
	uint32_t lock __attribute__((aligned(64)));
	struct ready_link head __attribute__((aligned(64)));
	struct ready_item *overflow;
	pthread_mutex_t mutex;
};

#if READY_STOPS
void (*ready_stop_hook)(enum ready_place place);
#endif

static struct ready_item *item_of(struct ready_link *link)
{
	return plx_container_of(link, struct ready_item, link);
}

static void pause_some(unsigned int *spins)
{
	if (++*spins % SPINS != 0) {
		plx_cpu_relax();
		return;
	}
#if READY_STOPS
	const struct timespec ts = {.tv_nsec = SLEEP_NS};

	nanosleep(&ts, NULL);
#else
	sched_yield();
#endif
}

/* --- the list of those that have a lock --------------------------------------------------------
 */

static struct ready_list *list_make(void)
{
	struct ready_list *l = aligned_alloc(64, sizeof(*l));
	pthread_mutexattr_t attr;

	if (!l)
		return NULL;
	l->lock = 0;
	l->head.next = l->head.prev = &l->head;
	l->overflow = OFF;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&l->mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	return l;
}

static void list_drop(struct ready_list *l)
{
	pthread_mutex_destroy(&l->mutex);
	free(l);
}

static bool list_any(struct ready_list *l)
{
	return plx_load_acq(&l->head.next) != &l->head;
}

static void link_between(struct ready_link *link, struct ready_link *prev, struct ready_link *next)
{
	plx_store(&link->next, next);
	link->prev = prev;
	plx_store(&prev->next, link);
	next->prev = link;
}

static void link_take_off(struct ready_link *link)
{
	plx_store(&link->prev->next, link->next);
	link->next->prev = link->prev;
	plx_store_rel(&link->next, NULL);
}

/* With the lock held for writing, or by the collector while the overflow list is on. */
static void append(struct ready_list *l, struct ready_item *item)
{
	ready_stop(READY_IN_EVENT);
	link_between(&item->link, l->head.prev, &l->head);
}

/* Lock held for writing: all goes to the collector, arrivals to the overflow list. */
static void splice(struct ready_list *l, struct ready_link *all)
{
	if (l->head.next == &l->head) {
		all->next = all->prev = all;
	} else {
		*all = l->head;
		all->next->prev = all;
		all->prev->next = all;
		plx_store(&l->head.next, &l->head);
		l->head.prev = &l->head;
	}
	plx_store(&l->overflow, END);
}

static unsigned int look_at(struct ready_list *l, struct ready_link *all, struct ready_item **out,
			    unsigned int max)
{
	unsigned int n = 0;

	ready_stop(READY_IN_COLLECT);
	while (all->next != all && n < max) {
		struct ready_item *item = item_of(all->next);

		link_take_off(&item->link);
		if (plx_load_acq(&item->count) == 0)
			continue;
		out[n++] = item;
		/* Producers are diverted, so the list is the collector's own here. */
		link_between(&item->link, l->head.prev, &l->head);
	}
	return n;
}

/* Lock held for writing. What was not looked at goes in front, then arrivals, newest last. */
static void unsplice(struct ready_list *l, struct ready_link *rest)
{
	struct ready_item *item = l->overflow, *next;

	plx_store(&l->overflow, OFF);
	for (; item != END; item = next) {
		next = item->overflow;
		plx_store(&item->overflow, NULL);
		if (!item->link.next)
			link_between(&item->link, &l->head, l->head.next);
	}
	if (rest->next == rest)
		return;
	rest->prev->next = l->head.next;
	l->head.next->prev = rest->prev;
	rest->next->prev = &l->head;
	plx_store(&l->head.next, rest->next);
}

static void take_off(struct ready_item *item)
{
	if (item->link.next)
		link_take_off(&item->link);
}

/* Lock held. */
static void event_locked(struct ready_list *l, struct ready_item *item)
{
	if (l->overflow != OFF) {
		if (!item->overflow) {
			item->overflow = l->overflow;
			plx_store(&l->overflow, item);
		}
	} else if (!item->link.next) {
		append(l, item);
	}
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
	event_locked(l, item);
	spin_unlock(l);
}

static unsigned int spin_collect(struct ready_list *l, struct ready_item **out, unsigned int max)
{
	struct ready_link all;
	unsigned int n;

	spin_lock(l);
	splice(l, &all);
	spin_unlock(l);
	n = look_at(l, &all, out, max);
	spin_lock(l);
	unsplice(l, &all);
	spin_unlock(l);
	return n;
}

static void spin_remove(struct ready_list *l, struct ready_item *item)
{
	spin_lock(l);
	take_off(item);
	spin_unlock(l);
}

const struct ready_algorithm ready_spinlock = {"spinlock",   list_make, list_drop,  spin_event,
					       spin_collect, list_any,	spin_remove};

/* --- a lock with priority inheritance ----------------------------------------------------------
 */

static void pi_event(struct ready_list *l, struct ready_item *item)
{
	pthread_mutex_lock(&l->mutex);
	event_locked(l, item);
	pthread_mutex_unlock(&l->mutex);
}

static unsigned int pi_collect(struct ready_list *l, struct ready_item **out, unsigned int max)
{
	struct ready_link all;
	unsigned int n;

	pthread_mutex_lock(&l->mutex);
	splice(l, &all);
	pthread_mutex_unlock(&l->mutex);
	n = look_at(l, &all, out, max);
	pthread_mutex_lock(&l->mutex);
	unsplice(l, &all);
	pthread_mutex_unlock(&l->mutex);
	return n;
}

static void pi_remove(struct ready_list *l, struct ready_item *item)
{
	pthread_mutex_lock(&l->mutex);
	take_off(item);
	pthread_mutex_unlock(&l->mutex);
}

const struct ready_algorithm ready_pi = {"pi",	     list_make, list_drop, pi_event,
					 pi_collect, list_any,	pi_remove};

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
	struct ready_link *none = NULL, *before;

	/* Another producer of the same item may be at it. */
	if (!plx_cas(&item->link.next, &none, &l->head))
		return;
	before = plx_xchg(&l->head.prev, &item->link);
	ready_stop(READY_IN_EVENT);
	item->link.prev = before;
	plx_store_rel(&before->next, &item->link);
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
	} else if (!plx_load(&item->link.next)) {
		append_shared(l, item);
	}
	read_unlock(l);
}

static unsigned int rw_collect(struct ready_list *l, struct ready_item **out, unsigned int max)
{
	struct ready_link all;
	unsigned int n;

	write_lock(l);
	splice(l, &all);
	write_unlock(l);
	n = look_at(l, &all, out, max);
	write_lock(l);
	unsplice(l, &all);
	write_unlock(l);
	return n;
}

static void rw_remove(struct ready_list *l, struct ready_item *item)
{
	write_lock(l);
	take_off(item);
	write_unlock(l);
}

const struct ready_algorithm ready_rwlock = {"rwlock",	 list_make, list_drop, rw_event,
					     rw_collect, list_any,  rw_remove};

/* --- a stack without a lock --------------------------------------------------------------------
 */

static struct ready_list *free_make(void)
{
	struct ready_list *l = list_make();

	if (l)
		l->head.next = LINK_END;
	return l;
}

static bool free_any(struct ready_list *l)
{
	return plx_load_acq(&l->head.next) != LINK_END;
}

/* A chain, newest first; its items are marked. */
static void free_push(struct ready_list *l, struct ready_link *first, struct ready_link *last)
{
	struct ready_link *head = plx_load(&l->head.next);

	do
		plx_store(&last->next, head);
	while (!plx_cas(&l->head.next, &head, first));
}

static void free_event(struct ready_list *l, struct ready_item *item)
{
	if (plx_load(&item->queued) || plx_xchg(&item->queued, 1))
		return;
	ready_stop(READY_IN_EVENT);
	free_push(l, &item->link, &item->link);
}

static unsigned int free_collect(struct ready_list *l, struct ready_item **out, unsigned int max)
{
	struct ready_link *link = plx_xchg(&l->head.next, LINK_END), *all = LINK_END, *next;
	unsigned int n = 0;

	ready_stop(READY_IN_COLLECT);
	for (; link != LINK_END; link = next) {
		next = plx_load(&link->next);
		plx_store(&link->next, all);
		all = link;
	}
	for (; all != LINK_END; all = next) {
		struct ready_item *item = item_of(all);

		next = plx_load(&all->next);
		if (n == max) {
			free_push(l, all, all);
			continue;
		}
		/* Cleared before the look: an event after it queues the item again. */
		(void)plx_xchg(&item->queued, 0);
		if (plx_load_acq(&item->count))
			out[n++] = item;
	}
	/* Behind what was not looked at, or that would never have its turn. */
	for (unsigned int i = 0; i < n; i++)
		free_event(l, out[i]);
	return n;
}

static void free_remove(struct ready_list *l, struct ready_item *item)
{
	struct ready_link *all = plx_xchg(&l->head.next, LINK_END), **at = &all, *last = NULL;

	while (*at != LINK_END) {
		if (*at == &item->link) {
			*at = plx_load(&item->link.next);
		} else {
			last = *at;
			at = &last->next;
		}
	}
	if (last)
		free_push(l, all, last);
	plx_store_rel(&item->queued, 0);
}

const struct ready_algorithm ready_lockfree = {"lockfree",   free_make, list_drop,  free_event,
					       free_collect, free_any,	free_remove};

const struct ready_algorithm *ready_algorithm_named(const char *name)
{
	static const struct ready_algorithm *const all[] = {&ready_spinlock, &ready_pi,
							    &ready_rwlock, &ready_lockfree};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strcmp(all[i]->name, name))
			return all[i];
	return NULL;
}
