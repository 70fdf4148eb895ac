/* SPDX-License-Identifier: MIT */
/*
 * The index of a file with many watches.
 *
 * A file mostly has one watch or a few, and a lookup walks its list. But a program may
 * watch one file from many epolls, or under many descriptors from one; a walk then costs
 * a cache miss for each of them. From PLX_INDEX_FROM items on, fewer in a large epoll, a table
 * from (epoll, key) to item stands beside the list. It is made by the lookup that walked too
 * far, is kept by link and unlink, and goes when few items are left. If there is no memory for
 * it, walking goes on: the list is always complete.
 *
 * file.lock protects all of it; without the lock one may only ask whether there is an index.
 * What a lookup finds stays valid as what a walk finds does: items of an epoll are linked and
 * unlinked by holders of its mutex alone.
 */
#include "epoll/engine.h"

#define INDEX_BYTES 128
#define INDEX_GOES_AT 2

/*
 * Open addressing; never full. The hashes stand behind the slots: a search touches the item that
 * it finds and no other, and there is no cache miss for those that it passes.
 */
struct plx_index {
	uint32_t size;
	uint32_t used;
	struct plx_epitem *slot[];
};

#define SLOT_BYTES (sizeof(struct plx_epitem *) + sizeof(uint32_t))

static uint32_t *hashes(const struct plx_index *x)
{
	return (uint32_t *)(x->slot + x->size);
}

static uint32_t hash(const struct pollux_ep *ep, int key)
{
	uint64_t h = ((uint64_t)(uintptr_t)ep >> 6) * 0x9e3779b97f4a7c15ull;

	return (uint32_t)(((h ^ (h >> 29) ^ (uint32_t)key) * 0xbf58476d1ce4e5b9ull) >> 32);
}

static uint32_t home(const struct plx_index *x, uint32_t h)
{
	return (uint32_t)(((uint64_t)h * x->size) >> 32);
}

static uint32_t next(const struct plx_index *x, uint32_t i)
{
	return i + 1 == x->size ? 0 : i + 1;
}

/* How far slot i is behind slot from, going round. */
static uint32_t behind(const struct plx_index *x, uint32_t i, uint32_t from)
{
	return i >= from ? i - from : i + x->size - from;
}

static void put(struct plx_index *x, uint32_t h, struct plx_epitem *item)
{
	uint32_t i = home(x, h);

	while (x->slot[i])
		i = next(x, i);
	x->slot[i] = item;
	hashes(x)[i] = h;
	x->used++;
}

static struct plx_index *index_new(size_t bytes)
{
	struct plx_index *x = plx_zalloc(bytes);

	if (x)
		x->size = (uint32_t)((bytes - sizeof(*x)) / SLOT_BYTES);
	return x;
}

/* One more fits only if a quarter stays free. */
static bool crowded(const struct plx_index *x)
{
	return x->used >= x->size - x->size / 4;
}

/* A table with room for one more in place of x, which is freed; NULL: there is no memory. */
static struct plx_index *grown(struct plx_index *x)
{
	struct plx_index *more = index_new(2 * (sizeof(*x) + x->size * SLOT_BYTES));

	for (uint32_t i = 0; more && i < x->size; i++)
		if (x->slot[i])
			put(more, hashes(x)[i], x->slot[i]);
	plx_free(x);
	return more;
}

void plx_index_make(struct pollux_file *f)
{
	struct plx_index *x;

	plx_lock(&f->lock, PLX_RANK_FILE);
	x = f->index ? NULL : index_new(INDEX_BYTES);
	if (x) {
		for (struct plx_watch *w = f->watches; w && x; w = w->next) {
			struct plx_epitem *item = plx_watch_item(w);

			if (!plx_watch_is_item(w))
				continue;
			if (crowded(x))
				x = grown(x);
			if (x)
				put(x, hash(item->ep, item->key), item);
		}
		/*
		 * The walk held no lock: it may have met items that are unlinked now. A table of
		 * few would stay, for it goes with the removal of an item.
		 */
		if (x && x->used <= INDEX_GOES_AT) {
			plx_free(x);
			x = NULL;
		}
		plx_store(&f->index, x);
	}
	plx_unlock(&f->lock, PLX_RANK_FILE);
}

void plx_index_add(struct pollux_file *f, struct plx_epitem *item)
{
	if (crowded(f->index))
		plx_store(&f->index, grown(f->index));
	if (f->index)
		put(f->index, hash(item->ep, item->key), item);
}

void plx_index_remove(struct pollux_file *f, const struct plx_epitem *item)
{
	struct plx_index *x = f->index;
	uint32_t hole = home(x, hash(item->ep, item->key)), i;

	while (x->slot[hole] != item)
		hole = next(x, hole);
	/* What probed past the hole moves into it, so that no search ends there too early. */
	for (i = next(x, hole); x->slot[i]; i = next(x, i)) {
		uint32_t h = hashes(x)[i];

		if (behind(x, i, home(x, h)) >= behind(x, i, hole)) {
			x->slot[hole] = x->slot[i];
			hashes(x)[hole] = h;
			hole = i;
		}
	}
	x->slot[hole] = NULL;
	if (--x->used <= INDEX_GOES_AT)
		plx_index_drop(f);
}

void plx_index_drop(struct pollux_file *f)
{
	plx_free(f->index);
	plx_store(&f->index, NULL);
}

bool plx_index_find(struct pollux_file *f, struct pollux_ep *ep, int key, struct plx_epitem **found)
{
	struct plx_epitem *item = NULL;
	const struct plx_index *x;

	plx_lock(&f->lock, PLX_RANK_FILE);
	x = f->index;
	if (x) {
		uint32_t h = hash(ep, key), i = home(x, h);

		while ((item = x->slot[i]) &&
		       (hashes(x)[i] != h || item->ep != ep || item->key != key))
			i = next(x, i);
	}
	plx_unlock(&f->lock, PLX_RANK_FILE);
	*found = item;
	return x != NULL;
}
