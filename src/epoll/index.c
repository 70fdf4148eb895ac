/* SPDX-License-Identifier: MIT */
/*
 * The index of a file with many watches.
 *
 * A file mostly has one watch or a few, and a lookup walks its list. But a program may watch one
 * file from many epolls, or under many keys from one; a walk then costs a cache miss for each of
 * them. From PLX_INDEX_FROM items on a table from (epoll, key) to item stands beside the list. It
 * is made by the lookup that walked too far, is kept by link and unlink, and goes when few items
 * are left. If there is no memory for it, walking goes on: the list is always complete.
 *
 * file.lock protects all of it; without the lock one may only ask whether there is an index.
 * What a lookup finds stays valid as what a walk finds does: items of an epoll are linked and
 * unlinked by holders of its mutex alone.
 */
#include "epoll/engine.h"

#define INDEX_FIRST 64
#define INDEX_GOES_AT 2

/* Open addressing; half of it stays free. */
struct plx_index {
	uint32_t size;
	uint32_t used;
	struct plx_epitem *slot[];
};

static uint32_t home(const struct plx_index *x, const struct pollux_ep *ep, int key)
{
	uint64_t h = ((uint64_t)(uintptr_t)ep >> 6) * 0x9e3779b97f4a7c15ull;

	h = (h ^ (h >> 29) ^ (uint32_t)key) * 0xbf58476d1ce4e5b9ull;
	return (uint32_t)((h >> 32) * x->size >> 32);
}

static uint32_t home_of(const struct plx_index *x, const struct plx_epitem *item)
{
	return home(x, item->ep, item->key);
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

static void put(struct plx_index *x, struct plx_epitem *item)
{
	uint32_t i = home_of(x, item);

	while (x->slot[i])
		i = next(x, i);
	x->slot[i] = item;
	x->used++;
}

static struct plx_index *index_new(uint32_t size)
{
	struct plx_index *x = plx_zalloc(sizeof(*x) + size * sizeof(x->slot[0]));

	if (x)
		x->size = size;
	return x;
}

/* Twice as large, in place of x, which is freed; NULL: there is no memory. */
static struct plx_index *grown(struct plx_index *x)
{
	struct plx_index *more = index_new(2 * x->size);

	for (uint32_t i = 0; more && i < x->size; i++)
		if (x->slot[i])
			put(more, x->slot[i]);
	plx_free(x);
	return more;
}

/* x with the item; NULL: there is no memory, and x is freed. */
static struct plx_index *with(struct plx_index *x, struct plx_epitem *item)
{
	if (x->used >= x->size / 2)
		x = grown(x);
	if (x)
		put(x, item);
	return x;
}

void plx_index_make(struct pollux_file *f)
{
	struct plx_index *x;

	plx_lock(&f->lock, PLX_RANK_FILE);
	x = f->index ? NULL : index_new(INDEX_FIRST);
	if (x) {
		for (struct plx_watch *w = f->watches; w && x; w = w->next)
			if (plx_watch_is_item(w))
				x = with(x, plx_watch_item(w));
		/*
		 * The walk held no lock: it may have met items that are unlinked now. An index of
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

void plx_index_drop(struct pollux_file *f)
{
	plx_free(f->index);
	plx_store(&f->index, NULL);
}

void plx_index_link(struct pollux_file *f, struct plx_epitem *item)
{
	plx_store(&f->index, with(f->index, item));
}

void plx_index_unlink(struct pollux_file *f, struct plx_epitem *item)
{
	struct plx_index *x = f->index;
	uint32_t hole = home_of(x, item), i;

	while (x->slot[hole] != item)
		hole = next(x, hole);
	/* What probed past the hole moves into it, so that no search ends there too early. */
	for (i = next(x, hole); x->slot[i]; i = next(x, i)) {
		if (behind(x, i, home_of(x, x->slot[i])) >= behind(x, i, hole)) {
			x->slot[hole] = x->slot[i];
			hole = i;
		}
	}
	x->slot[hole] = NULL;
	if (--x->used <= INDEX_GOES_AT)
		plx_index_drop(f);
}

bool plx_index_find(struct pollux_file *f, struct pollux_ep *ep, int key, struct plx_epitem **found)
{
	const struct plx_index *x;

	plx_lock(&f->lock, PLX_RANK_FILE);
	x = f->index;
	for (uint32_t i = x ? home(x, ep, key) : 0; x && x->slot[i]; i = next(x, i)) {
		if (x->slot[i]->ep == ep && x->slot[i]->key == key) {
			*found = x->slot[i];
			break;
		}
	}
	plx_unlock(&f->lock, PLX_RANK_FILE);
	return x != NULL;
}
