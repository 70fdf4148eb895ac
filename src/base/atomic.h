/* SPDX-License-Identifier: MIT */
/*
 * Atomic accesses, named for what the engine needs of them.
 *
 * Shared words are plain integers or pointers in the structures (public headers
 * must stay usable from C++), and every shared access goes through these macros.
 *
 * plx_mb() is a full barrier: it also orders an earlier store before a later
 * load. plx_mb_after_rmw() gives the same after one of the read-modify-write
 * operations below; on x86 the locked instruction has already done the work.
 * ThreadSanitizer does not understand stand-alone fences, so under it they are
 * emitted as plain instructions; happens-before edges come from the words.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#if defined(__has_feature)
#define PLX_BUILT_FOR(sanitizer) __has_feature(sanitizer)
#else
#define PLX_BUILT_FOR(sanitizer) 0
#endif
#if defined(__SANITIZE_THREAD__) || PLX_BUILT_FOR(thread_sanitizer)
#define PLX_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__) || PLX_BUILT_FOR(address_sanitizer)
#define PLX_ASAN 1
#endif

#define plx_load(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define plx_load_acq(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define plx_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define plx_store_rel(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define plx_xchg(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define plx_xadd(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define plx_or(p, v) __atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST)
#define plx_and(p, v) __atomic_fetch_and((p), (v), __ATOMIC_SEQ_CST)
/* Compare and swap; on failure *(old) receives the value found. */
#define plx_cas(p, old, new)                                                                       \
	__atomic_compare_exchange_n((p), (old), (new), false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE)

static inline void plx_mb(void)
{
#if defined(__x86_64__)
	__asm__ __volatile__("lock; addl $0, -4(%%rsp)" ::: "memory", "cc");
#elif defined(__aarch64__)
	__asm__ __volatile__("dmb ish" ::: "memory");
#else
	__sync_synchronize();
#endif
}

static inline void plx_mb_after_rmw(void)
{
#if defined(__x86_64__)
	__asm__ __volatile__("" ::: "memory");
#else
	plx_mb();
#endif
}

static inline void plx_cpu_relax(void)
{
#if defined(__x86_64__)
	__asm__ __volatile__("pause" ::: "memory");
#elif defined(__aarch64__)
	__asm__ __volatile__("yield" ::: "memory");
#else
	__asm__ __volatile__("" ::: "memory");
#endif
}

/*
 * The line of p is going to be written: it comes as this CPU's own, instead of a copy that others
 * would have to be asked for again. The builtin makes that of it only for CPUs that are said to
 * know the instruction; those that do not know it do nothing.
 */
static inline void plx_prefetch_write(const void *p)
{
#if defined(__x86_64__)
	__asm__("prefetchw %0" : : "m"(*(const char *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

#define plx_likely(x) __builtin_expect(!!(x), 1)
#define plx_unlikely(x) __builtin_expect(!!(x), 0)

#define plx_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))
