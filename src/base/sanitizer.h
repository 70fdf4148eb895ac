/* SPDX-License-Identifier: MIT */
/*
 * What the run-time of a sanitizer has to be told, or not to see, where the program has one and we
 * were built without.
 *
 * LeakSanitizer has to know the memory of our own allocators: what it does not look through it
 * takes for not there.
 *
 * ThreadSanitizer hears of a program's calls by standing in front of libc, and
 *
 *   - takes a write to an eventfd for something that happens before the read of it, and
 *     a change of an epoll for what happens before a wait on it. It does not see those that we
 *     answer ourselves.
 *   - looks into our calls of memset, and not at the locks and barriers that order
 *     them. It is not told of those: within a fork, for one, it must not be called.
 *
 * In a build for ThreadSanitizer it sees all by itself. There all this is as if it were not here,
 * or it would hide what our own barriers lack.
 */
#pragma once

#include <stddef.h>
#include <string.h>

#include "base/atomic.h"

#define PLX_RUNTIME __attribute__((weak, visibility("default")))

/* Of LeakSanitizer: what hangs on memory that no allocator knows is not lost. */
PLX_RUNTIME void __lsan_register_root_region(const void *p, size_t size);
PLX_RUNTIME void __lsan_unregister_root_region(const void *p, size_t size);

static inline void plx_lsan_root(const void *p, size_t size)
{
	if (plx_unlikely(__lsan_register_root_region != NULL))
		__lsan_register_root_region(p, size);
}

/* The same p and size. */
static inline void plx_lsan_root_gone(const void *p, size_t size)
{
	if (plx_unlikely(__lsan_unregister_root_region != NULL))
		__lsan_unregister_root_region(p, size);
}

PLX_RUNTIME void __tsan_acquire(void *addr);
PLX_RUNTIME void __tsan_release(void *addr);

/* Whether the program has the run-time, and we were built without. */
static inline bool plx_tsan_here(void)
{
#if PLX_TSAN
	return false;
#else
	return __tsan_release != NULL;
#endif
}

/* What the calling thread has done happens before... */
static inline void plx_tsan_before(void *obj)
{
	if (plx_unlikely(plx_tsan_here()))
		__tsan_release(obj);
}

/* ...what it does after this. */
static inline void plx_tsan_after(void *obj)
{
	if (plx_unlikely(plx_tsan_here()))
		__tsan_acquire(obj);
}

/* memset, which no run-time looks into, of memory that threads hand to each other. */
static inline void *plx_clear(void *dst, size_t n)
{
	volatile char *d = dst;

	if (plx_likely(!plx_tsan_here()))
		return memset(dst, 0, n);
	while (n--)
		*d++ = 0;
	return dst;
}
