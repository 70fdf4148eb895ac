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
 * has found nothing. The destroyer sets DEAD first and then waits until nobody is inside
 * (context.c), so after that nobody touches the context but for such a take-back, which
 * the grace period covers. Model: tests/model/aio_table.pml. A context that is handed over to
 * the kernel is DEAD, too (handover.c, model: tests/model/handover.pml).
 *
 * All of it hangs on one page that is wiped in the child of a fork: the child has no
 * contexts (AIO-CTX-02), whatever made it, and finds the lock free.
 */
#include <errno.h>
#include <string.h>

#include "aio/aio.h"
#include "base/bug.h"
#include "base/delay.h"
#include "base/mem.h"
#include "base/sanitizer.h"
#include "base/rcu.h"
#include "posix/uaccess.h"

struct table {
	uint32_t nr;
	struct plx_kioctx *slot[];
};

struct root {
	struct table *table;
	plx_lock_t lock;
	/* See make in handover.c. */
	plx_lock_t ids;
	/* No slot below it is free. */
	uint32_t lowest;
	/* Which process this is, counted over its ancestors. */
	uint32_t birth;
	/* Sum of nr_events over all contexts. */
	uint64_t used;
};

static struct root *root;
static uint32_t births;

static void retire_free(void *p)
{
	plx_free(p);
}

struct plx_kioctx *plx_aio_slot(uint64_t header)
{
	struct root *r = plx_load_acq(&root);
	struct plx_kioctx *k;
	struct table *t;
	/* The id is the first of the header's words; both machines are little-endian. */
	uint32_t id = (uint32_t)header;

	t = plx_load_acq(&r->table);
	PLX_DELAY(aio_lookup_table);
	if (!t || id >= t->nr)
		return NULL;
	k = plx_load_acq(&t->slot[id]);
	PLX_DELAY(aio_lookup_slot);
	return k;
}

struct plx_kioctx *plx_aio_peek(aio_context_t ctx, uint64_t header)
{
	struct plx_kioctx *k = plx_aio_slot(header);

	return k && plx_load(&k->user_id) == ctx ? k : NULL;
}

bool plx_aio_header(aio_context_t ctx, uint64_t *header)
{
	struct root *r = plx_load_acq(&root);

	return r && plx_load(&r->table) && plx_load_user64(header, (void *)ctx) == 0;
}

struct plx_kioctx *plx_aio_get(aio_context_t ctx, uint32_t slots)
{
	struct plx_kioctx *k;
	uint64_t header;
	bool again;

	do {
		if (!plx_aio_header(ctx, &header))
			return NULL;
		again = false;
		plx_rcu_read_lock();
		k = plx_aio_peek(ctx, header);
		if (k && plx_load(&k->given)) {
			k = NULL;
		} else if (k &&
			   plx_unlikely(plx_xadd(&k->state, PLX_AIO_CALL + slots) & PLX_AIO_DEAD)) {
			plx_aio_put(k, slots);
			plx_aio_moved(k);
			/* It could not be moved. */
			again = !plx_aio_dead(k);
			k = NULL;
		}
		plx_rcu_read_unlock();
	} while (plx_unlikely(again));
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
	if (old)
		plx_copy(t->slot, old->slot, old->nr * sizeof(t->slot[0]));
	PLX_DELAY(aio_grow_publish);
	plx_store_rel(&r->table, t);
	if (old)
		plx_retire(old, retire_free);
	return 0;
}

int plx_aio_table_add(struct plx_kioctx *k, uint64_t limit)
{
	struct root *r = plx_aio_wiped_page((void **)&root);
	uint32_t i;
	int err = 0;

	if (!r)
		return -ENOMEM;
	plx_lock(&r->lock, PLX_RANK_AIO_TABLE);
	if (r->used + k->nr_events > limit)
		err = -EAGAIN;
	i = r->lowest;
	while (!err && r->table && i < r->table->nr && r->table->slot[i])
		i++;
	if (!err && (!r->table || i == r->table->nr))
		err = grow(r);
	if (!r->birth)
		r->birth = ++births;
	if (!err) {
		k->birth = r->birth;
		k->id = i;
		k->ring->id = i;
		r->used += k->nr_events;
		r->lowest = i + 1;
		plx_store_rel(&r->table->slot[i], k);
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
	if (k->id < r->lowest)
		r->lowest = k->id;
}

bool plx_aio_table_given_below(uint32_t id)
{
	struct root *r = plx_load_acq(&root);
	bool all = true;

	plx_lock(&r->lock, PLX_RANK_AIO_TABLE);
	for (uint32_t i = 0; all && i < id; i++)
		all = r->table->slot[i] && plx_load(&r->table->slot[i]->given);
	plx_unlock(&r->lock, PLX_RANK_AIO_TABLE);
	return all;
}

plx_lock_t *plx_aio_table_ids(void)
{
	return &plx_load_acq(&root)->ids;
}

void plx_aio_table_give(struct plx_kioctx *k, uint32_t id)
{
	struct root *r = plx_load_acq(&root);
	bool there;

	plx_lock(&r->lock, PLX_RANK_AIO_TABLE);
	there = r->table->slot[id] == k;
	if (there)
		take_out(r, k);
	plx_unlock(&r->lock, PLX_RANK_AIO_TABLE);
	if (!there)
		return;
	plx_retire(k, retire_free);
	plx_retire_flush_if_full();
}

bool plx_aio_table_del(struct plx_kioctx *k)
{
	struct root *r = plx_load_acq(&root);
	bool mine;

	plx_lock(&r->lock, PLX_RANK_AIO_TABLE);
	mine = !(plx_or(&k->state, PLX_AIO_DEAD) & PLX_AIO_DEAD);
	if (mine)
		take_out(r, k);
	plx_unlock(&r->lock, PLX_RANK_AIO_TABLE);
	return mine;
}

bool plx_aio_inherited(const struct plx_kioctx *k)
{
	return plx_load(&plx_load_acq(&root)->birth) != k->birth;
}

void plx_aio_table_moved(struct plx_kioctx *k, unsigned long user_id)
{
	struct root *r = plx_load_acq(&root);

	plx_lock(&r->lock, PLX_RANK_AIO_TABLE);
	plx_store_rel(&k->user_id, user_id);
	plx_unlock(&r->lock, PLX_RANK_AIO_TABLE);
}
