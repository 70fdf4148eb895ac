/* SPDX-License-Identifier: MIT */
/*
 * How an epoll's list of ready items was kept before, and by whom it was proposed:
 *
 *   spinlock  one lock around the list; an event takes it even if its item is queued. The
 *             kernel until 5.0, and again from 6.18 on.
 *   pi        the same with a lock that lends its holder the priority of who waits, which
 *             is what becomes of the spinlock in a real-time kernel.
 *   rwlock    producers share a reader's lock and append by exchanging the tail; the
 *             collector takes the writer's. The kernel from 5.1 to 6.17 (2018). Who waits
 *             for readers does not know whom to lend a priority.
 *   lockfree  producers push to a stack without a lock; an item that is to be taken out costs
 *             a walk over all. Proposed in 2025, taken and given back.
 *
 * They are written from their descriptions. What is around them is the kernel's scheme and
 * the same for all: one collector at a time; while it works, arrivals go to an overflow list;
 * afterwards the list is what was not looked at, then the arrivals, then what was delivered
 * (level-triggered items leave when a later collection finds them not ready).
 *
 * Compiled with READY_STOPS, the code calls ready_stop_hook at places of interest, and who waits
 * for a lock sleeps between two tries instead of spinning: a thread of high priority that span
 * would keep the holder from ever running.
 */
#ifndef BENCH_HISTORY_READY_H
#define BENCH_HISTORY_READY_H

#include <stdbool.h>
#include <stdint.h>

struct ready_link {
	/* NULL: not linked. */
	struct ready_link *next;
	struct ready_link *prev;
};

struct ready_item {
	struct ready_link link;
	/* The same for the overflow list. */
	struct ready_item *overflow;
	uint32_t queued;
	/* What the file counts: ready while it is not 0. */
	uint64_t count __attribute__((aligned(64)));
};

struct ready_list;

struct ready_algorithm {
	const char *name;
	/* NULL: out of memory. */
	struct ready_list *(*make)(void);
	void (*drop)(struct ready_list *l);
	/* A producer: the item's file has an event. */
	void (*event)(struct ready_list *l, struct ready_item *item);
	/* The one collector: takes up to max items that are ready. */
	unsigned int (*collect)(struct ready_list *l, struct ready_item **out, unsigned int max);
	/* True if a collection would look at something. */
	bool (*any)(struct ready_list *l);
	/* In the collector's place: takes the item off, of which nobody tells any more. */
	void (*remove)(struct ready_list *l, struct ready_item *item);
};

extern const struct ready_algorithm ready_spinlock, ready_pi, ready_rwlock, ready_lockfree;

#define READY_NAMES "spinlock|pi|rwlock|lockfree"
/* NULL: there is none of that name. */
const struct ready_algorithm *ready_algorithm_named(const char *name);

enum ready_place {
	/* A producer that has begun to queue an item. */
	READY_IN_EVENT,
	/* The collector, between taking the list and giving it back. */
	READY_IN_COLLECT,
};

#if READY_STOPS
extern void (*ready_stop_hook)(enum ready_place place);

static inline void ready_stop(enum ready_place place)
{
	if (ready_stop_hook)
		ready_stop_hook(place);
}
#else
static inline void ready_stop(enum ready_place place)
{
	(void)place;
}
#endif

#endif
