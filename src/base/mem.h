/* SPDX-License-Identifier: MIT */
/*
 * Memory for the engine: the C library's, with one seam. Every allocation goes
 * through plx_zalloc, so that the fault tests can make the n-th one fail.
 */
#ifndef PLX_BASE_MEM_H
#define PLX_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

/*
 * Zeroed memory, aligned to 16 bytes, and from PLX_MEM_LINES bytes on to cache
 * lines; NULL when there is none.
 */
#define PLX_MEM_LINES 256
void *plx_zalloc(size_t size);
void plx_free(void *p);

/*
 * Fault injection, for tests: after n more successful allocations one fails
 * (then all succeed again); negative: never. plx_mem_live() counts what has
 * been allocated and not yet freed, plx_mem_calls() all allocations so far.
 */
void plx_mem_fail_after(long n);
long plx_mem_live(void);
long plx_mem_calls(void);

#endif
