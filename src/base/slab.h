/* SPDX-License-Identifier: MIT */
/*
 * Objects of two cache lines.
 *
 * Items and eventfds are written by producers on one CPU and by consumers on another;
 * two of them in one cache line cost more than everything else together. These
 * objects are aligned to their size, without a header, and come from what the calling
 * thread keeps. Memory once taken stays with the process and is used again.
 */
#pragma once

#include <stddef.h>

#include "base/mem.h"

#define PLX_SLAB_OBJECT 128

#if PLX_MEM_OF_LIBC
#define plx_slab_alloc() plx_zalloc(PLX_SLAB_OBJECT)
#define plx_slab_free plx_free
#define plx_slab_init() ((void)0)
#else
/* Zeroed; NULL when there is no memory. */
void *plx_slab_alloc(void);
void plx_slab_free(void *p);

/* See plx_retire_init. */
void plx_slab_init(void);
#endif
