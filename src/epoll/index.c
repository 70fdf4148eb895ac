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
 * What is waited for here is memory, so an index of few items is a row, one cache line, that has
 * them in the order of the list. A lookup finds there who is before the item, too, so that both
 * are fetched at once, and nobody needs pprev: the item that was first is not touched when another
 * is put before it, nor the one behind an item that goes. While a file has a row, pprev of its
 * items means nothing; who ends the row writes it (row_end). Pollers are in no row: a file that
 * has one has a table, or none. A row that is full becomes a table, and never again a row.
 *
 * file.lock protects all of it; without the lock one may only ask whether there is an index.
 * What a lookup finds stays valid as what a walk finds does: items of an epoll are linked and
 * unlinked by holders of its mutex alone.
 */
#include "epoll/engine.h"

#include <string.h>

#define INDEX_BYTES 64
#define INDEX_GOES_AT 2
#define ROW 7

/*
 * A slot is the item's address with 22 bits of its hash where the address has none: a search
 * touches the item that it finds and hardly any other. Where an address has more bits, there is no
 * index. A row fills its first slots; a larger one is a table with open addressing, never full.
 */
struct plx_index {
	uint32_t size;
	uint32_t used;
	uint64_t slot[];
};

_Static_assert(sizeof(struct plx_index) + ROW * sizeof(uint64_t) == INDEX_BYTES, "a row is a line");

#define SLOT_ITEM 0x0000ffffffffffc0ull
#define SLOT_HASH_LOW 0x3full
#define HASH_BITS 22

static struct plx_epitem *slot_item(uint64_t slot)
{
	return (struct plx_epitem *)(uintptr_t)(slot & SLOT_ITEM);
}

static uint64_t hash(const struct pollux_ep *ep, int key)
{
	uint64_t h = ((uint64_t)(uintptr_t)ep >> 6) * 0x9e3779b97f4a7c15ull;

	return ((h ^ (h >> 29) ^ (uint32_t)key) * 0xbf58476d1ce4e5b9ull) >> (64 - HASH_BITS);
}

/* What a slot has of a hash, and back. */
static uint64_t slot_bits(uint64_t h)
{
	return (h >> 6 << 48) | (h & SLOT_HASH_LOW);
}

static uint64_t slot_hash(uint64_t slot)
{
	return (slot >> 48 << 6) | (slot & SLOT_HASH_LOW);
}

static uint64_t slot_of(struct plx_epitem *item)
{
	return (uintptr_t)item | slot_bits(hash(item->ep, item->key));
}

static bool is_row(const struct plx_index *x)
{
	return x->size == ROW;
}

static uint32_t home(const struct plx_index *x, uint64_t h)
{
	return (uint32_t)((h * x->size) >> HASH_BITS);
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

static void table_put(struct plx_index *x, uint64_t slot)
{
	uint32_t i = home(x, slot_hash(slot));

	while (x->slot[i])
		i = next(x, i);
	x->slot[i] = slot;
	x->used++;
}

static struct plx_index *index_new(size_t bytes)
{
	struct plx_index *x = plx_zalloc(bytes);

	if (x)
		x->size = (uint32_t)((bytes - sizeof(*x)) / sizeof(x->slot[0]));
	return x;
}

/* A quarter of a table stays free. */
static bool crowded(const struct plx_index *x)
{
	return x->used >= (is_row(x) ? ROW : x->size - x->size / 4);
}

/* A table with room for one more in place of x, which is freed; NULL: there is no memory. */
static struct plx_index *grown(struct plx_index *x)
{
	struct plx_index *more = index_new(2 * (sizeof(*x) + x->size * sizeof(x->slot[0])));
	uint32_t end = is_row(x) ? x->used : x->size;

	for (uint32_t i = 0; more && i < end; i++)
		if (x->slot[i])
			table_put(more, x->slot[i]);
	plx_free(x);
	return more;
}

/* From now on each item knows by itself what is before it. */
static void row_end(struct pollux_file *f, const struct plx_index *x)
{
	struct plx_watch **at = &f->watches;

	for (uint32_t i = 0; i < x->used; i++) {
		struct plx_watch *w = &slot_item(x->slot[i])->w;

		w->pprev = at;
		at = &w->next;
	}
	if (f->watches)
		f->watches->pprev = at;
}

static bool slot_fits(const struct plx_epitem *item)
{
	return !((uintptr_t)item & ~SLOT_ITEM);
}

/* x, not crowded, with the item at its end, if it is a row; or NULL, and x is freed. */
static struct plx_index *with(struct plx_index *x, struct plx_epitem *item)
{
	if (plx_unlikely(!slot_fits(item))) {
		plx_free(x);
		return NULL;
	}
	if (is_row(x))
		x->slot[x->used++] = slot_of(item);
	else
		table_put(x, slot_of(item));
	return x;
}

void plx_index_make(struct pollux_file *f)
{
	struct plx_index *x;

	plx_lock(&f->lock, PLX_RANK_FILE);
	x = f->index ? NULL : index_new(INDEX_BYTES);
	if (x) {
		for (struct plx_watch *w = f->watches; w && x; w = w->next) {
			struct plx_epitem *item = plx_watch_is_item(w) ? plx_watch_item(w) : NULL;

			if (item ? crowded(x) : is_row(x))
				x = grown(x);
			if (x && item)
				x = with(x, item);
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

void plx_index_drop(struct pollux_file *f)
{
	if (is_row(f->index))
		row_end(f, f->index);
	plx_free(f->index);
	plx_store(&f->index, NULL);
}

static void row_link(struct pollux_file *f, struct plx_index *x, struct plx_watch *w)
{
	struct plx_watch **at = &f->watches;
	uint32_t i = 0;

	if (w->place == PLX_WATCH_EXCLUSIVE) {
		i = x->used;
		at = &slot_item(x->slot[i - 1])->w.next;
		w->next = NULL;
	} else {
		memmove(x->slot + 1, x->slot, x->used * sizeof(x->slot[0]));
		w->next = &slot_item(x->slot[1])->w;
	}
	x->slot[i] = slot_of(plx_watch_item(w));
	x->used++;
	plx_store_rel(at, w);
}

void plx_index_link(struct pollux_file *f, struct plx_watch *w)
{
	struct plx_epitem *item = plx_watch_is_item(w) ? plx_watch_item(w) : NULL;
	struct plx_index *x = f->index;

	if (item ? !slot_fits(item) : is_row(x)) {
		plx_index_drop(f);
		item = NULL;
	}
	if (item && crowded(x)) {
		if (is_row(x))
			row_end(f, x);
		x = grown(x);
		plx_store(&f->index, x);
	}
	if (item && x && is_row(x)) {
		row_link(f, x, w);
		return;
	}
	if (item && x)
		table_put(x, slot_of(item));
	plx_list_link(f, w);
}

static void row_unlink(struct pollux_file *f, struct plx_index *x, struct plx_epitem *item)
{
	struct plx_watch **at = &f->watches;
	uint32_t i = 0;

	while (slot_item(x->slot[i]) != item)
		i++;
	if (i)
		at = &slot_item(x->slot[i - 1])->w.next;
	/* item->w.next stays: a waker that stands on it walks on from it. */
	plx_store_rel(at, item->w.next);
	x->used--;
	memmove(x->slot + i, x->slot + i + 1, (x->used - i) * sizeof(x->slot[0]));
}

static void table_take(struct plx_index *x, const struct plx_epitem *item)
{
	uint32_t hole = home(x, hash(item->ep, item->key)), i;

	while (slot_item(x->slot[hole]) != item)
		hole = next(x, hole);
	/* What probed past the hole moves into it, so that no search ends there too early. */
	for (i = next(x, hole); x->slot[i]; i = next(x, i)) {
		if (behind(x, i, home(x, slot_hash(x->slot[i]))) >= behind(x, i, hole)) {
			x->slot[hole] = x->slot[i];
			hole = i;
		}
	}
	x->slot[hole] = 0;
	x->used--;
}

void plx_index_unlink(struct pollux_file *f, struct plx_epitem *item)
{
	struct plx_index *x = f->index;

	if (is_row(x)) {
		row_unlink(f, x, item);
	} else {
		table_take(x, item);
		plx_list_unlink(f, &item->w);
	}
	if (x->used <= INDEX_GOES_AT)
		plx_index_drop(f);
}

static bool slot_is(uint64_t slot, uint64_t bits, const struct pollux_ep *ep, int key)
{
	const struct plx_epitem *item = slot_item(slot);

	return (slot & ~SLOT_ITEM) == bits && item->ep == ep && item->key == key;
}

static struct plx_epitem *row_find(const struct plx_index *x, const struct pollux_ep *ep, int key)
{
	uint64_t bits = slot_bits(hash(ep, key));

	for (uint32_t i = 0; i < x->used; i++) {
		if ((x->slot[i] & ~SLOT_ITEM) != bits)
			continue;
		/* In case it is to be unlinked. */
		if (i)
			plx_prefetch_write(slot_item(x->slot[i - 1]));
		if (slot_is(x->slot[i], bits, ep, key))
			return slot_item(x->slot[i]);
	}
	return NULL;
}

static struct plx_epitem *table_find(const struct plx_index *x, const struct pollux_ep *ep, int key)
{
	uint64_t h = hash(ep, key), bits = slot_bits(h);

	for (uint32_t i = home(x, h); x->slot[i]; i = next(x, i))
		if (slot_is(x->slot[i], bits, ep, key))
			return slot_item(x->slot[i]);
	return NULL;
}

bool plx_index_find(struct pollux_file *f, struct pollux_ep *ep, int key, struct plx_epitem **found)
{
	const struct plx_index *x;

	plx_lock(&f->lock, PLX_RANK_FILE);
	x = f->index;
	if (x)
		*found = is_row(x) ? row_find(x, ep, key) : table_find(x, ep, key);
	plx_unlock(&f->lock, PLX_RANK_FILE);
	return x != NULL;
}
