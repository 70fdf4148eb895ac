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
 * the grace period covers. Model: tests/model/aio_table.pml.
 *
 * All of it hangs on one page that is wiped in the child of a fork: the child has no
 * contexts (AIO-CTX-02), whatever made it, and finds the lock free.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "aio/aio.h"
#include "base/bug.h"
#include "base/delay.h"
#include "base/mem.h"
#include "base/rcu.h"
#include "base/sys.h"
#include "posix/uaccess.h"

struct table {
	uint32_t nr;
	struct plx_kioctx *slot[];
};

struct root {
	struct table *table;
	plx_lock_t lock;
	/* No slot below it is free. */
	uint32_t lowest;
	/* Sum of nr_events over all contexts. */
	uint64_t used;
};

#define ROOT_SIZE 4096

static struct root *root;

#if defined(__SANITIZE_ADDRESS__)
/* What hangs on a page that no allocator knows is not lost. */
void __lsan_register_root_region(const void *p, size_t size);
#define root_known(r) __lsan_register_root_region((r), ROOT_SIZE)
#else
#define root_known(r) ((void)(r))
#endif

static struct root *root_get(void)
{
	struct root *r = plx_load_acq(&root), *none = NULL;
	long p;

	if (plx_likely(r != NULL))
		return r;
	p = plx_sys6(SYS_mmap, 0, ROOT_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	if (p < 0 && p > -4096)
		return NULL;
	r = (struct root *)p;
	if (plx_sys3(SYS_madvise, r, ROOT_SIZE, MADV_WIPEONFORK) < 0) {
		plx_sys2(SYS_munmap, r, ROOT_SIZE);
		return NULL;
	}
	if (plx_cas(&root, &none, r)) {
		root_known(r);
		return r;
	}
	plx_sys2(SYS_munmap, r, ROOT_SIZE);
	return none;
}

struct plx_kioctx *plx_aio_peek(aio_context_t ctx, uint64_t header)
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

	if (!plx_aio_header(ctx, &header))
		return NULL;
	plx_rcu_read_lock();
	k = plx_aio_peek(ctx, header);
	if (k && plx_unlikely(plx_xadd(&k->state, PLX_AIO_CALL + slots) & PLX_AIO_DEAD)) {
		plx_aio_put(k, slots);
		k = NULL;
	}
	plx_rcu_read_unlock();
	return k;
}

static void retire_free(void *p)
{
	plx_free(p);
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
		memcpy(t->slot, old->slot, old->nr * sizeof(t->slot[0]));
	PLX_DELAY(aio_grow_publish);
	plx_store_rel(&r->table, t);
	if (old)
		plx_retire(old, retire_free);
	return 0;
}

int plx_aio_table_add(struct plx_kioctx *k, uint64_t limit)
{
	struct root *r = root_get();
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
	if (!err) {
		k->id = i;
		plx_aio_ring(k)->id = i;
		r->used += k->nr_events;
		r->lowest = i + 1;
		plx_store_rel(&r->table->slot[i], k);
	}
	plx_unlock(&r->lock, PLX_RANK_AIO_TABLE);
	return err;
}

bool plx_aio_table_del(struct plx_kioctx *k)
{
	struct root *r = plx_load_acq(&root);
	bool mine;

	plx_lock(&r->lock, PLX_RANK_AIO_TABLE);
	mine = !(plx_or(&k->state, PLX_AIO_DEAD) & PLX_AIO_DEAD);
	if (mine) {
		PLX_INVARIANT(r->table->slot[k->id] == k, "a live context is in the table");
		plx_store_rel(&r->table->slot[k->id], NULL);
		r->used -= k->nr_events;
		if (k->id < r->lowest)
			r->lowest = k->id;
	}
	plx_unlock(&r->lock, PLX_RANK_AIO_TABLE);
	return mine;
}

void plx_aio_table_moved(struct plx_kioctx *k, unsigned long user_id)
{
	struct root *r = plx_load_acq(&root);

	plx_lock(&r->lock, PLX_RANK_AIO_TABLE);
	plx_store_rel(&k->user_id, user_id);
	plx_unlock(&r->lock, PLX_RANK_AIO_TABLE);
}
