/* SPDX-License-Identifier: MIT */
/*
 * The table of contexts, indexed by the id in the ring's header.
 *
 * A lookup reads the id at the address that it was given, which may be any address at all,
 * looks into the table and compares: the slot's context must be the one of that very
 * address. So garbage finds nothing, and an address that was used again finds its new
 * context only.
 *
 * Why a lookup is safe: the table and the contexts are released a grace period after they
 * were replaced or taken out, and a lookup is one RCU section. A context is entered by an
 * addition to its state; whoever finds DEAD in what the addition returns takes it back and
 * has found nothing of ours, but perhaps a context of the kernel's, which is asked. The destroyer
 * sets DEAD first and then waits until nobody is inside (context.c), so after that nobody touches
 * the context but for such a take-back, which the grace period covers. Model:
 * tests/model/aio_table.pml. A context that is handed over to the kernel is DEAD, too. Who finds it
 * MOVING takes back what it has added and sleeps until it is one thing or the other (handover.c,
 * model: tests/model/handover.pml).
 *
 * All of it hangs on what is wiped in the child of a fork (base/wiped.h): the child has no
 * contexts (AIO-CTX-02), whatever made it, and finds the lock free.
 */
#include <errno.h>
#include <linux/futex.h>
#include <string.h>

#include "aio/aio.h"
#include "base/bug.h"
#include "base/delay.h"
#include "base/inside.h"
#include "base/mem.h"
#include "base/sanitizer.h"
#include "base/sys.h"
#include "base/wiped.h"
#include "cache/posix.h"
#include "cache/uaccess.h"
#include "rcu/rcu.h"

struct table {
	uint32_t nr;
	struct plx_kioctx *slot[];
};

struct root {
	struct table *table;
	plx_lock_t lock;
	/* No slot below it is free. */
	uint32_t lowest;
	/* Contexts in the table, and that were ever made. */
	uint32_t count, serial;
	/* Sum of nr_events over all contexts. */
	uint64_t used;
	/* The rings of all contexts in the table are inherited by children: there has been a fork.
	 */
	bool inherited;
};

_Static_assert(sizeof(struct root) <= sizeof(plx_wiped.aio_root), "it has a place there");
#define ROOT ((struct root *)plx_wiped.aio_root)

/* In an RCU section. */
static struct plx_kioctx *slot(struct root *r, uint32_t id)
{
	struct plx_kioctx *k;
	struct table *t = plx_load_acq(&r->table);

	PLX_DELAY(aio_lookup_table);
	if (!t || id >= t->nr)
		return NULL;
	k = plx_load_acq(&t->slot[id]);
	PLX_DELAY(aio_lookup_slot);
	return k;
}

struct plx_kioctx *plx_aio_peek(aio_context_t ctx, uint64_t header)
{
	/* The id is the first of the header's words; both machines are little-endian. */
	struct plx_kioctx *k = slot(ROOT, (uint32_t)header);

	return k && plx_load(&k->user_id) == ctx ? k : NULL;
}

bool plx_aio_header(aio_context_t ctx, uint64_t *header)
{
	struct root *r = ROOT;

	/* Nothing is looked up where all are the kernel's: behind a filter, perhaps (seccomp). */
	return plx_load_acq(&r->count) && plx_load_user64(header, (void *)ctx) == 0;
}

#define MOVING_NS 1000000

/* Until it is not moving any more: what moves is not there afterwards, perhaps, to wake anybody. */
static void wait_moved(const uint32_t *moves, uint32_t moving)
{
	struct timespec soon = {.tv_nsec = MOVING_NS};

	plx_sys4(SYS_futex, moves, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, moving, &soon);
}

/*
 * In an RCU section, which is over then: k, if the call is inside, or NULL. *again: it was moving,
 * and has to be looked for once more.
 */
static struct plx_kioctx *enter(struct plx_kioctx *k, uint32_t slots, bool *again)
{
	uint64_t state = k ? plx_xadd(&k->state, PLX_AIO_CALL + slots) : 0;
	uint32_t moves;

	*again = false;
	if (plx_likely(!(state & PLX_AIO_CLOSED))) {
		plx_rcu_read_unlock();
		return k;
	}
	plx_aio_put(k, slots);
	/* Its partner: the release of the state by which it was marked, behind that of moves. */
	moves = plx_load_acq(&k->moves);
	plx_rcu_read_unlock();
	if (state & PLX_AIO_DEAD)
		return NULL;
	PLX_DELAY(aio_moving);
	if (moves & 1)
		wait_moved(&k->moves, moves);
	*again = true;
	return NULL;
}

struct plx_kioctx *plx_aio_get(aio_context_t ctx, uint32_t slots)
{
	struct plx_kioctx *k;
	uint64_t header;
	bool again;

	do {
		if (!plx_aio_header(ctx, &header))
			return NULL;
		plx_rcu_read_lock();
		k = enter(plx_aio_peek(ctx, header), slots, &again);
	} while (plx_unlikely(again));
	return k;
}

struct plx_kioctx *plx_aio_get_id(uint32_t id, bool *beyond)
{
	struct root *r = ROOT;
	struct plx_kioctx *k;
	struct table *t;
	bool again;

	do {
		plx_rcu_read_lock();
		t = plx_load_acq(&r->table);
		*beyond = !t || id >= t->nr;
		k = enter(*beyond ? NULL : slot(r, id), 0, &again);
	} while (again);
	return k;
}

/* root.lock held. Replaces the table by one that is four times as large. */
static int grow(struct root *r)
{
	struct table *old = r->table;
	uint32_t nr = (old ? old->nr : 4) * 4;
	struct table *t = plx_zalloc(sizeof(*t) + nr * sizeof(t->slot[0]));

	if (!t)
		return -ENOMEM;
	t->nr = nr;
	for (uint32_t i = 0; old && i < old->nr; i++)
		plx_store(&t->slot[i], plx_load(&old->slot[i]));
	PLX_DELAY(aio_grow_publish);
	plx_store_rel(&r->table, t);
	if (old)
		plx_retire(old, plx_free);
	return 0;
}

int plx_aio_table_add(struct plx_kioctx *k, uint64_t limit)
{
	struct root *r = ROOT;
	uint32_t i;
	int err = 0;

	plx_lock(&r->lock, PLX_RANK_AIO_TABLE);
	if (r->used + k->nr_events > limit)
		err = -EAGAIN;
	/* Forks are heard of in the drop-in alone. */
	if (!err && plx_unlikely(r->inherited || !plx_px_fork_known) && !plx_aio_ring_inherit(k))
		err = -ENOMEM;
	i = r->lowest;
	while (!err && r->table && i < r->table->nr && r->table->slot[i])
		i++;
	if (!err && (!r->table || i == r->table->nr))
		err = grow(r);
	if (!err) {
		k->id = i;
		k->ring->id = i;
		k->serial = r->serial++;
		r->used += k->nr_events;
		r->lowest = i + 1;
		plx_store_rel(&r->table->slot[i], k);
		plx_store_rel(&r->count, r->count + 1);
	}
	plx_unlock(&r->lock, PLX_RANK_AIO_TABLE);
	return err;
}

/* root.lock held. */
static void take_out(struct root *r, struct plx_kioctx *k)
{
	PLX_INVARIANT(r->table->slot[k->id] == k, "a live context is in the table");
	plx_store_rel(&r->table->slot[k->id], NULL);
	r->used -= k->nr_events;
	plx_store_rel(&r->count, r->count - 1);
	if (k->id < r->lowest)
		r->lowest = k->id;
}

bool plx_aio_table_del(struct plx_kioctx *k)
{
	struct root *r = ROOT;
	bool mine;

	plx_lock(&r->lock, PLX_RANK_AIO_TABLE);
	mine = !(plx_or(&k->state, PLX_AIO_DEAD) & PLX_AIO_DEAD);
	if (mine)
		take_out(r, k);
	plx_unlock(&r->lock, PLX_RANK_AIO_TABLE);
	return mine;
}

void plx_aio_before_fork(void)
{
	struct root *r = ROOT;

	if (!plx_load(&r->count))
		return;
	PLX_INSIDE();
	plx_lock(&r->lock, PLX_RANK_AIO_TABLE);
	for (uint32_t i = 0; !r->inherited && r->table && i < r->table->nr; i++)
		if (r->table->slot[i])
			(void)plx_aio_ring_inherit(r->table->slot[i]);
	r->inherited = true;
	plx_unlock(&r->lock, PLX_RANK_AIO_TABLE);
}

void plx_aio_table_moved(struct plx_kioctx *k, unsigned long user_id)
{
	struct root *r = ROOT;

	plx_lock(&r->lock, PLX_RANK_AIO_TABLE);
	plx_store_rel(&k->user_id, user_id);
	plx_unlock(&r->lock, PLX_RANK_AIO_TABLE);
}
