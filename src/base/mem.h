/* SPDX-License-Identifier: MIT */
/*
 * Memory for everything in the libraries. It is not the C library's: a signal handler that
 * has interrupted malloc may close, poll or fork, and those must not call malloc. (A
 * thread inside here holds a lock, and is inside in the sense of inside.h.)
 *
 * Sanitizer builds and fault injection use the C library, which knows what was freed.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"

#define PLX_MEM_OF_LIBC (PLX_ASAN || PLX_TSAN || PLX_FAULTS)

/*
 * Memory aligned to cache lines, zeroed or not; NULL when there is none. By these names for notes
 * that may be done without: plx_zalloc and plx_free are the same, and counted below.
 */
void *plx_mem_get(size_t size);
void *plx_mem_get_zero(size_t size);
void plx_mem_put(void *p);

/*
 * What all memory of the engine comes from: pages, zeroed, so many bytes of them (a multiple of
 * PLX_PAGE) and so aligned; NULL if there are none. PLX_HUGE: huge pages, if there are.
 */
#define PLX_PAGE 4096
#define PLX_HUGE (2ul << 20)
void *plx_pages_map(size_t bytes, size_t align);
/* All that one call has returned. */
void plx_pages_unmap(void *p, size_t bytes);
/* From this, from now on: 0 or -EBUSY. */
struct pollux_memory;
int plx_pages_from(const struct pollux_memory *m);

/*
 * Memory beside the drop-in's variables (src/preload/near.c), for its first objects: each fork of
 * each program has to copy a mapping more without. A library has none, and maps all of its memory.
 */
#define PLX_MEM_NEAR (9 * 65536)
extern char plx_mem_near[] __attribute__((weak, visibility("hidden")));
#define PLX_SLAB_NEAR (64 * 1024)
extern char plx_slab_near[] __attribute__((weak, visibility("hidden")));

#if PLX_MEM_OF_LIBC
/* Around fork, in the thread that forks; they nest. libc's calls them, unless they are known. */
extern bool plx_mem_forks_known;
void plx_mem_before_fork(void);
void plx_mem_after_fork(void);
#else
#define plx_mem_before_fork() ((void)0)
#define plx_mem_after_fork() ((void)0)
#endif

#if PLX_FAULTS
void *plx_zalloc(size_t size);
void plx_free(void *p);
/*
 * For tests: after n more successful allocations one fails
 * (then all succeed again); negative: never. plx_mem_live() counts what has
 * been allocated and not yet freed, plx_mem_calls() all allocations so far.
 */
void plx_mem_fail_after(long n);
long plx_mem_live(void);
long plx_mem_calls(void);
#else
#define plx_zalloc plx_mem_get_zero
#define plx_free plx_mem_put
#endif
