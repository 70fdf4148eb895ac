/* SPDX-License-Identifier: MIT */
/*
 * Memory of rings. A program sees its ring under an address of its own, which is mapped when
 * the context is made and unmapped when it is destroyed. Behind it are pages of an arena,
 * which is mapped once and where we see the same ring: making a second mapping of pages
 * that are there takes half the time of making new ones, and what the program does to its
 * mapping (moves it, unmaps it, makes it read-only) is nothing to us.
 *
 *   field of arena     protected by
 *   all                arena.lock
 *
 * The child of a fork inherits the program's mappings of rings, as on the kernel (AIO-RING-10), and
 * nothing else: it may be one that its parent does not trust. The arena is not inherited, and
 * pages that a child may still see, since a process was forked while a ring was there, are never
 * another ring's. The arena's own state is wiped in the child (base/wiped.h).
 *
 * A second mapping is as the first, which is not inherited. To make it so takes a system call for
 * each ring, which a process that never forks is spared: it is done when the first fork comes, for
 * the rings that are there, and from then on for each that is made (table.c).
 */
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "aio/aio.h"
#include "base/mem.h"
#include "base/sanitizer.h"
#include "base/sys.h"
#include "base/wiped.h"
#include "cache/posix.h"

/* What is mapped begins and ends with pages, which are larger than 4 KiB on some kernels. */
#define PAGE ((size_t)getpagesize())
#define CHUNK (1ul << 20)
/* Rings of more pages than this are rare, and go back to the kernel. */
#define KEPT_PAGES 16

/* Pages that no context has, described outside of them: a child may still write there. */
struct vacant {
	struct vacant *next;
	void *pages;
};

struct arena {
	plx_lock_t lock;
	struct vacant *vacant[KEPT_PAGES + 1];
	/* The part of the newest chunk that was never used. */
	char *fresh;
	size_t left;
};

_Static_assert(sizeof(struct arena) <= sizeof(plx_wiped.aio_arena), "it has a place there");

static bool mapped(long p)
{
	return p > 0 || p < -4095;
}

/* Not for children. */
static void *map_shared(size_t size)
{
	long p = plx_sys6(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			  0);

	if (!mapped(p))
		return NULL;
	if (plx_sys3(SYS_madvise, p, size, MADV_DONTFORK) == 0)
		return (void *)p;
	plx_sys2(SYS_munmap, p, size);
	return NULL;
}

/* arena.lock held. */
static struct vacant *take_vacant(struct arena *a, size_t pages)
{
	struct vacant *v = a->vacant[pages];

	if (v)
		a->vacant[pages] = v->next;
	return v;
}

/* arena.lock held. */
static char *take_fresh(struct arena *a, size_t size)
{
	char *p;

	if (a->left < size) {
		/* What is left of the old chunk stays unused: it is less than a large ring. */
		a->fresh = map_shared(CHUNK);
		a->left = a->fresh ? CHUNK : 0;
		if (!a->fresh)
			return NULL;
	}
	p = a->fresh;
	a->fresh += size;
	a->left -= size;
	return p;
}

static struct plx_aio_ring *pages_get(size_t size)
{
	struct arena *a = (struct arena *)plx_wiped.aio_arena;
	struct vacant *v;
	void *p;

	if (size > KEPT_PAGES * PAGE)
		return map_shared(size);
	plx_lock(&a->lock, PLX_RANK_AIO_ARENA);
	v = take_vacant(a, size / PAGE);
	p = v ? NULL : take_fresh(a, size);
	plx_unlock(&a->lock, PLX_RANK_AIO_ARENA);
	if (v) {
		p = v->pages;
		plx_free(v);
		plx_clear(p, size);
	}
	return p;
}

static void pages_put(struct plx_aio_ring *ring, size_t size, uint32_t forks)
{
	struct arena *a = (struct arena *)plx_wiped.aio_arena;
	struct vacant *v = NULL;

	if (size <= KEPT_PAGES * PAGE && plx_load(&plx_px_forks) == forks)
		v = plx_zalloc(sizeof(*v));
	if (!v) {
		plx_sys2(SYS_munmap, ring, size);
		return;
	}
	v->pages = ring;
	plx_lock(&a->lock, PLX_RANK_AIO_ARENA);
	v->next = a->vacant[size / PAGE];
	a->vacant[size / PAGE] = v;
	plx_unlock(&a->lock, PLX_RANK_AIO_ARENA);
}

bool plx_aio_ring_map(struct plx_kioctx *k)
{
	long p;

	/* Before the program has them, so that a fork that comes after this is seen. */
	k->forks = plx_load_acq(&plx_px_forks);
	k->ring = pages_get(k->size);
	if (!k->ring)
		return false;
	/* An old size of 0: another mapping of the same pages. */
	p = plx_sys4(SYS_mremap, k->ring, 0, k->size, MREMAP_MAYMOVE);
	if (!mapped(p)) {
		pages_put(k->ring, k->size, k->forks);
		return false;
	}
	k->user_id = (unsigned long)p;
	return true;
}

bool plx_aio_ring_inherit(const struct plx_kioctx *k)
{
	return plx_sys3(SYS_madvise, k->user_id, k->size, MADV_DOFORK) == 0;
}

void plx_aio_ring_unmap(struct plx_kioctx *k, bool user)
{
	if (user)
		plx_sys2(SYS_munmap, k->user_id, k->size);
	pages_put(k->ring, k->size, k->forks);
}
