/* SPDX-License-Identifier: MIT */
/*
 * The ring of completions. It is the program's memory as much as ours: the program may
 * take events by moving head, and write nonsense to any word (AIO-RING-06, 08). So its nr
 * and tail are kept elsewhere, and what the ring has is taken modulo nr. We see it through a
 * mapping of our own (arena.c), so it is always there for us.
 */
#pragma once

#include "aio/aio.h"

static inline uint32_t plx_ring_next(const struct plx_kioctx *k, uint32_t i)
{
	return i + 1 == k->nr ? 0 : i + 1;
}

/* Acquires what the program did before it moved head. */
static inline uint32_t plx_ring_head(const struct plx_kioctx *k)
{
	uint32_t head = plx_load_acq(&k->ring->head);

	return plx_likely(head < k->nr) ? head : head % k->nr;
}

static inline uint32_t plx_ring_between(const struct plx_kioctx *k, uint32_t head, uint32_t tail)
{
	return tail >= head ? tail - head : tail + k->nr - head;
}

/* Events in the ring. Without the lock: at least those that were there. */
static inline uint32_t plx_ring_used(const struct plx_kioctx *k)
{
	uint32_t tail = plx_load_acq(&k->tail);

	return plx_ring_between(k, plx_ring_head(k), tail);
}

/* What getevents finds, by the tail that the ring has: the program may have set it (as head). */
static inline uint32_t plx_ring_shown(const struct plx_kioctx *k, uint32_t head)
{
	uint32_t tail = plx_load_acq(&k->ring->tail);

	return plx_ring_between(k, head, plx_likely(tail < k->nr) ? tail : tail % k->nr);
}

/*
 * kioctx.lock held: an event whose slot was spoken for. The event is visible before the
 * tail (release), for readers that take it by themselves.
 */
static inline void plx_ring_post(struct plx_kioctx *k, const struct io_event *ev)
{
	uint32_t next = plx_ring_next(k, k->tail);

	k->ring->events[k->tail] = *ev;
	plx_store_rel(&k->tail, next);
	plx_store_rel(&k->ring->tail, next);
}
