/* SPDX-License-Identifier: MIT */
#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <pollux/memory.h>

#include "base/delay.h"
#include "base/lock.h"
#include "base/sanitizer.h"
#include "base/sys.h"
#include "base/wiped.h"

/* Set before anything is taken, if at all. */
static struct pollux_memory program;
static bool taken;

int plx_pages_from(const struct pollux_memory *m)
{
	if (plx_load(&taken))
		return -EBUSY;
	program = *m;
	return 0;
}

static void pages_take(void)
{
	if (plx_unlikely(!plx_load(&taken)))
		plx_store(&taken, true);
}

void *plx_pages_map(size_t bytes, size_t align)
{
	/* What more may be needed so that a part is aligned. */
	size_t more = align > PLX_PAGE ? align : 0;
	uintptr_t start;
	long p;

	pages_take();
	if (program.map) {
		start = (uintptr_t)program.map(program.arg, bytes, align);
	} else {
		p = plx_sys6(SYS_mmap, 0, bytes + more, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p < 0 && p > -4096)
			return NULL;
		start = ((uintptr_t)p + align - 1) & ~(align - 1);
		if (start != (uintptr_t)p)
			plx_sys2(SYS_munmap, p, start - (uintptr_t)p);
		if (start + bytes != (uintptr_t)p + bytes + more)
			plx_sys2(SYS_munmap, start + bytes, (uintptr_t)p + more - start);
		/* A kernel without huge pages says no, and that is all. */
		if (align >= PLX_HUGE)
			plx_sys3(SYS_madvise, start, bytes, MADV_HUGEPAGE);
	}
	if (start)
		plx_lsan_root((void *)start, bytes);
	return (void *)start;
}

void plx_pages_unmap(void *p, size_t bytes)
{
	plx_lsan_root_gone(p, bytes);
	if (program.map)
		program.unmap(program.arg, p, bytes);
	else
		plx_sys2(SYS_munmap, p, bytes);
}

#if PLX_MEM_OF_LIBC
/* The allocator of a sanitizer is not made whole in the child of a fork; the lock keeps us out. */
static __thread uint32_t forks;
PLX_START_PAGE bool plx_mem_forks_known;

void plx_mem_before_fork(void)
{
	if (!forks++)
		plx_lock(&plx_wiped.mem_lock, PLX_RANK_MEM);
}

void plx_mem_after_fork(void)
{
	if (!--forks)
		plx_unlock(&plx_wiped.mem_lock, PLX_RANK_MEM);
}

__attribute__((constructor)) static void fork_register(void)
{
	if (!plx_mem_forks_known)
		pthread_atfork(plx_mem_before_fork, plx_mem_after_fork, plx_mem_after_fork);
}

void *plx_mem_get(size_t size)
{
	void *p;

	if (size >= PTRDIFF_MAX)
		return NULL;
	pages_take();
	plx_lock(&plx_wiped.mem_lock, PLX_RANK_MEM);
	p = aligned_alloc(64, (size + 63) & ~(size_t)63);
	plx_unlock(&plx_wiped.mem_lock, PLX_RANK_MEM);
	return p;
}

void *plx_mem_get_zero(size_t size)
{
	void *p = plx_mem_get(size);

	return p ? memset(p, 0, size) : NULL;
}

void plx_mem_put(void *p)
{
	plx_lock(&plx_wiped.mem_lock, PLX_RANK_MEM);
	free(p);
	plx_unlock(&plx_wiped.mem_lock, PLX_RANK_MEM);
}
#else
/*
 * Blocks are aligned to their size, so that an address tells where its block begins; the
 * block's first line tells the size of the objects in it. What is larger than half a
 * block has blocks of its own, which go back to the system.
 */
#define BLOCK 65536
#define HEAD 64
#define ARENA (16 * BLOCK)
_Static_assert(PLX_MEM_NEAR % BLOCK == 0 && PLX_MEM_NEAR >= 2 * BLOCK,
	       "blocks and what aligns them");

static const uint32_t classes[] = {64, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192, 32704};
#define CLASSES (sizeof(classes) / sizeof(classes[0]))

struct block {
	uint32_t class;
	/* Of one that is larger than all classes: its whole length. */
	size_t length;
};

struct free_object {
	struct free_object *next;
};

/*
 * What each fork has to copy is little: one object is cut off a block at a time, so that pages
 * without objects are not touched, and the drop-in has the first blocks beside its variables.
 */
static struct free_object *free_objects[CLASSES];
/* What was never used of the class's youngest block begins here; NULL or the block's end: nothing.
 */
static char *uncut[CLASSES];
/* Blocks that were never used, and how many. */
static char *arena;
static uint32_t arena_left;

/* mem_lock held. (The order of stores here and below: base/wiped.h.) */
static bool arena_new(void)
{
	static bool near_is_used;
	uint32_t blocks = ARENA / BLOCK;

	if (!plx_mem_near || near_is_used) {
		arena = plx_pages_map(ARENA, BLOCK);
	} else {
		near_is_used = true;
		blocks = PLX_MEM_NEAR / BLOCK - 1;
		plx_store_rel(&arena, plx_mem_near + (-(uintptr_t)plx_mem_near & (BLOCK - 1)));
	}
	if (arena)
		plx_store_rel(&arena_left, blocks);
	return arena;
}

/* mem_lock held: a fresh block for the class. */
static bool block_new(uint32_t class)
{
	struct block *b;

	if (!arena_left && !arena_new())
		return false;
	b = (struct block *)arena;
	plx_store(&arena_left, arena_left - 1);
	PLX_DELAY(mem_block);
	plx_store_rel(&arena, arena + BLOCK);
	b->class = class;
	plx_store_rel(&uncut[class], (char *)b + HEAD);
	return true;
}

/* mem_lock held: an object that was never used, so that it is zero. */
static void *mem_cut(uint32_t class)
{
	size_t size = classes[class];
	/* Of the block that it is in, or at the end of. */
	uintptr_t end = ((uintptr_t)uncut[class] + BLOCK - 1) & ~(uintptr_t)(BLOCK - 1);
	char *p;

	if ((uintptr_t)uncut[class] + size > end && !block_new(class))
		return NULL;
	p = uncut[class];
	plx_store(&uncut[class], p + size);
	return p;
}

static void *mem_get_large(size_t size)
{
	size_t length = (size + HEAD + BLOCK - 1) & ~(size_t)(BLOCK - 1);
	struct block *b = length > size ? plx_pages_map(length, BLOCK) : NULL;

	if (!b)
		return NULL;
	b->class = CLASSES;
	b->length = length;
	return (char *)b + HEAD;
}

/* *used: it may be other than zero. */
static void *mem_get(size_t size, bool *used)
{
	struct free_object *f;
	uint32_t class = 0;
	void *p;

	while (class < CLASSES && classes[class] < size)
		class ++;
	*used = false;
	if (class == CLASSES)
		return mem_get_large(size);
	plx_lock(&plx_wiped.mem_lock, PLX_RANK_MEM);
	f = free_objects[class];
	if (f) {
		plx_store(&free_objects[class], f->next);
		*used = true;
	}
	p = f ? f : mem_cut(class);
	plx_unlock(&plx_wiped.mem_lock, PLX_RANK_MEM);
	return p;
}

void *plx_mem_get(size_t size)
{
	bool used;

	return mem_get(size, &used);
}

void *plx_mem_get_zero(size_t size)
{
	bool used;
	void *p = mem_get(size, &used);

	/* A page that is not written need not be copied by a fork. */
	return p && used ? plx_clear(p, size) : p;
}

void plx_mem_put(void *p)
{
	struct block *b = (struct block *)((uintptr_t)p & ~(uintptr_t)(BLOCK - 1));
	struct free_object *f = p;

	if (!p)
		return;
	if (b->class == CLASSES) {
		plx_pages_unmap(b, b->length);
		return;
	}
	plx_lock(&plx_wiped.mem_lock, PLX_RANK_MEM);
	f->next = free_objects[b->class];
	plx_store_rel(&free_objects[b->class], f);
	plx_unlock(&plx_wiped.mem_lock, PLX_RANK_MEM);
}
#endif

#if PLX_FAULTS
static long fail_after = -1;
static long live;
static long calls;

static bool mem_fault(void)
{
	long n = plx_load(&fail_after);

	__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	if (n < 0)
		return false;
	plx_store(&fail_after, n - 1);
	return n == 0;
}

void *plx_zalloc(size_t size)
{
	void *p = mem_fault() ? NULL : plx_mem_get_zero(size);

	if (p)
		__atomic_fetch_add(&live, 1, __ATOMIC_RELAXED);
	return p;
}

void plx_free(void *p)
{
	if (p)
		__atomic_fetch_sub(&live, 1, __ATOMIC_RELAXED);
	plx_mem_put(p);
}

void plx_mem_fail_after(long n)
{
	plx_store(&fail_after, n);
}

long plx_mem_live(void)
{
	return plx_load(&live);
}

long plx_mem_calls(void)
{
	return plx_load(&calls);
}
#endif
