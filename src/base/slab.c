/* SPDX-License-Identifier: MIT */
#include "base/slab.h"

#include <string.h>

#include "base/delay.h"
#include "base/inside.h"
#include "base/lock.h"
#include "base/atomic.h"
#include "base/key.h"
#include "base/mem.h"
#include "base/sanitizer.h"
#include "base/wiped.h"

#if !PLX_MEM_OF_LIBC
#define PACK 64
#define CHUNK (256 * 1024)

/*
 * A set that is larger than what the TLB reaches misses it at every step, and on a virtual
 * machine such a miss costs as much as one of the cache. From here on chunks are huge pages;
 * one that is partly used does not count for much by then.
 */
#define HUGE_FROM (32ul << 20)

/*
 * Free objects come in packs, chained through their own memory, so that the depot gives
 * and takes a pack by changing one pointer. The first object of a pack in the depot knows
 * the next pack and how many there are in its own.
 */
struct free_object {
	struct free_object *next;
	struct free_object *next_pack;
	uint32_t n;
};

/* depot_lock: what no thread keeps, and memory that was never used (its order: base/wiped.h). */
static struct free_object *depot;
static char *fresh;
static size_t fresh_left;
static bool begun;

/*
 * What a thread keeps: a pack that it takes from and gives to, and a full one, so that a
 * thread that goes to and fro over the edge of a pack does not meet the others each time.
 * n is full at first: then the first free finds its way to cache_start, too.
 */
static __thread struct {
	struct free_object *first;
	struct free_object *spare;
	uint32_t n;
	bool started;
} cache = {.n = PACK};
static PLX_START_PAGE struct plx_key cache_key;

static void depot_put(struct free_object *first, uint32_t n)
{
	if (!first)
		return;
	first->n = n;
	plx_lock(&plx_wiped.depot_lock, PLX_RANK_SLAB);
	first->next_pack = depot;
	plx_store_rel(&depot, first);
	plx_unlock(&plx_wiped.depot_lock, PLX_RANK_SLAB);
}

static void cache_exit(void *p)
{
	uint32_t depth = plx_inside_begin();

	(void)p;
	depot_put(cache.first, cache.n);
	depot_put(cache.spare, PACK);
	cache.first = cache.spare = NULL;
	cache.n = PACK;
	cache.started = false;
	plx_inside_end(&depth);
}

PLX_START_CODE void plx_slab_init(void)
{
	(void)plx_key(&cache_key, cache_exit);
}

/* From now on the end of the thread gives back what it keeps. */
static bool cache_start(void)
{
	if (plx_likely(cache.started))
		return true;
	if (pthread_setspecific(plx_key(&cache_key, cache_exit), &cache))
		return false;
	cache.n = 0;
	cache.started = true;
	return true;
}

/* depot_lock held. */
static void fresh_chunk(void)
{
	static size_t taken;
	size_t size = PLX_HUGE;
	char *chunk = taken < HUGE_FROM ? NULL : plx_pages_map(PLX_HUGE, PLX_HUGE);

	if (!taken && plx_slab_near) {
		size = PLX_SLAB_NEAR;
		chunk = plx_slab_near;
	} else if (!chunk) {
		size = CHUNK;
		chunk = plx_pages_map(size, PLX_PAGE);
	}
	if (!chunk)
		return;
	taken += size;
	plx_store_rel(&fresh, chunk);
	plx_store_rel(&fresh_left, size);
}

/* A pack of n objects that were never used, which begin at `at`. */
static struct free_object *pack_make(char *at, uint32_t n)
{
	struct free_object *next = NULL;

	for (uint32_t i = n; i-- > 0;) {
		struct free_object *f = (struct free_object *)(at + i * PLX_SLAB_OBJECT);

		f->next = next;
		next = f;
	}
	next->n = n;
	return next;
}

static struct free_object *depot_get(void)
{
	struct free_object *f;
	char *at = NULL;
	uint32_t n = 0;

	plx_lock(&plx_wiped.depot_lock, PLX_RANK_SLAB);
	f = depot;
	if (f) {
		plx_store(&depot, f->next_pack);
	} else {
		if (!fresh_left)
			fresh_chunk();
		if (fresh_left) {
			/* The first one is no larger than a page. */
			size_t size = begun ? PACK * PLX_SLAB_OBJECT : PLX_PAGE;

			if (size > fresh_left)
				size = fresh_left;
			at = fresh;
			n = (uint32_t)(size / PLX_SLAB_OBJECT);
			begun = true;
			plx_store(&fresh_left, fresh_left - size);
			PLX_DELAY(slab_fresh);
			plx_store_rel(&fresh, at + size);
		}
	}
	plx_unlock(&plx_wiped.depot_lock, PLX_RANK_SLAB);
	return at ? pack_make(at, n) : f;
}

/* The cache is empty. */
static __attribute__((noinline)) struct free_object *cache_refill(void)
{
	struct free_object *f = cache.spare;
	uint32_t n = PACK;

	if (f) {
		cache.spare = NULL;
	} else {
		f = depot_get();
		if (!f)
			return NULL;
		n = f->n;
	}
	if (!cache_start()) {
		depot_put(f->next, n - 1);
		return f;
	}
	cache.first = f->next;
	cache.n = n - 1;
	return f;
}

/* The pack in use is full. */
static __attribute__((noinline)) void cache_full(struct free_object *f)
{
	if (!cache.started) {
		f->next = NULL;
		if (!cache_start()) {
			depot_put(f, 1);
			return;
		}
	} else {
		depot_put(cache.spare, PACK);
		cache.spare = cache.first;
		f->next = NULL;
	}
	cache.first = f;
	cache.n = 1;
}

void *plx_slab_alloc(void)
{
	struct free_object *f = cache.first;

	if (plx_likely(f != NULL)) {
		cache.first = f->next;
		cache.n--;
		/* The next one may have left the caches since it was used. */
		plx_prefetch_write(cache.first);
		plx_prefetch_write((const void *)((uintptr_t)cache.first + PLX_SLAB_OBJECT / 2));
	} else {
		f = cache_refill();
	}
	return f ? plx_clear(f, PLX_SLAB_OBJECT) : NULL;
}

void plx_slab_free(void *p)
{
	struct free_object *f = p;

	if (plx_unlikely(!f))
		return;
	if (plx_unlikely(cache.n == PACK)) {
		cache_full(f);
		return;
	}
	f->next = cache.first;
	cache.first = f;
	cache.n++;
}
#endif
