/* SPDX-License-Identifier: MIT */
/*
 * How an epoll's list of ready items was kept before, and by whom it was proposed:
 *
 *   spinlock  one lock around the list; an event takes it even if its item is queued. The
 *             kernel until 5.0, and again from 6.18 on.
 *   rwlock    producers share a reader's lock and append by exchanging the tail; the
 *             collector takes the writer's. The kernel from 5.1 to 6.17 (2018).
 *   lockfree  producers push to a stack without a lock; an item that is to be taken out costs
 *             a walk over all. Proposed in 2025, taken and given back.
 *
 * They are written from their descriptions. What is around them is the kernel's scheme and
 * the same for all: one collector at a time; while it works, arrivals go to an overflow list;
 * level-triggered items that were delivered go back to the tail, and leave the list when a
 * later collection finds them not ready.
 */
#ifndef BENCH_HISTORY_READY_H
#define BENCH_HISTORY_READY_H

#include <stdbool.h>
#include <stdint.h>

struct ready_item {
	/* NULL: not linked. The tail's next is the list's own mark. */
	struct ready_item *next;
	/* The same for the overflow list. */
	struct ready_item *overflow;
	uint32_t queued;
	/* What the file counts: ready while it is not 0. */
	uint64_t count __attribute__((aligned(64)));
};

struct ready_list;

struct ready_algorithm {
	const char *name;
	struct ready_list *(*make)(void);
	/* A producer: the item's file has an event. */
	void (*event)(struct ready_list *l, struct ready_item *item);
	/* The one collector: takes up to max items that are ready. */
	unsigned int (*collect)(struct ready_list *l, struct ready_item **out, unsigned int max);
	/* True if a collection would look at something. */
	bool (*any)(struct ready_list *l);
};

extern const struct ready_algorithm ready_spinlock, ready_rwlock, ready_lockfree;

#endif
