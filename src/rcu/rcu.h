/* SPDX-License-Identifier: MIT */
/*
 * RCU over liburcu's bulletproof flavour (rcu/bp.h): readers need no registration and cost
 * about a nanosecond where the kernel offers membarrier.
 *
 * Retired objects wait in batches of the retiring thread, which are released after a grace period
 * for all of them, made by this thread or by another. plx_retire only stores; the rest is done by
 * plx_retire_flush_if_full, which callers place where no lock is held and no reader section is
 * open. It does not wait for readers: what cannot be released yet is tried by later calls. Who has
 * to wait (plx_rcu_synchronize) polls, and no signal is blocked for it. No thread of our own is
 * ever needed.
 */
#pragma once

#include "base/atomic.h"
#include "base/sanitizer.h"
#include "rcu/bp.h"

#if PLX_TSAN
/*
 * liburcu is not instrumented, so ThreadSanitizer is told what a grace period
 * means: all that was done before it happens before what follows it, for every
 * reader, and readers that ended happen before its end.
 */
extern char plx_rcu_token_reader, plx_rcu_token_writer;
#endif

static inline void plx_rcu_read_lock(void)
{
	_urcu_bp_read_lock();
#if PLX_TSAN
	__tsan_acquire(&plx_rcu_token_writer);
#endif
}

static inline void plx_rcu_read_unlock(void)
{
#if PLX_TSAN
	__tsan_release(&plx_rcu_token_reader);
#endif
	_urcu_bp_read_unlock();
}

/* Whether the calling thread is within a section. */
static inline bool plx_rcu_inside(void)
{
	return _urcu_bp_read_ongoing();
}

/* Whether the calling thread has been in a section before: then entering one calls nothing. */
static inline bool plx_rcu_known(void)
{
	return URCU_TLS(urcu_bp_reader) != NULL;
}

/*
 * Something is made that is not the kernel's: from now on the process is registered for
 * membarrier, and children find wiped what is to be (base/wiped.h). A process that makes nothing
 * shall find that as if we were not there.
 */
extern uint32_t plx_rcu_begun;
void plx_rcu_begin_slow(void);
static inline void plx_rcu_begin(void)
{
	if (plx_unlikely(!plx_load(&plx_rcu_begun)))
		plx_rcu_begin_slow();
}

/*
 * The process is about to refuse itself system calls: from now on neither grace periods nor what
 * is called after them makes any.
 */
void plx_rcu_confine(void);

/* Waits until every reader section that is open now has ended. */
void plx_rcu_synchronize(void);

/*
 * The same without waiting: a note of what is out of reach by now, and whether every section that
 * may have found it has ended. The latter does for that what it can.
 */
uint64_t plx_rcu_note(void);
bool plx_rcu_try(uint64_t note);

/*
 * Makes the key by which ends of threads are heard of. Called early, so that its number
 * is low: libc allocates for the others.
 */
void plx_retire_init(void);

/*
 * Calls fn(obj) after a grace period; may be called inside a reader section. fn may be called by
 * another thread, with no lock held, and must not wait for readers.
 */
void plx_retire(void *obj, void (*fn)(void *obj));

/* True when a batch of the calling thread is full. */
bool plx_retire_full(void);
/* Then: releases what can be, and makes a grace period if that is worth it and nobody is in the
 * way. */
void plx_retire_full_flush(void);

static inline void plx_retire_flush_if_full(void)
{
	if (plx_unlikely(plx_retire_full()))
		plx_retire_full_flush();
}

/*
 * For who makes objects, where nothing is held: if very many wait to be released, waits until they
 * can be. Who only removes is never held up.
 */
void plx_retire_throttle(void);

/* Waits for grace periods, and releases everything of the calling thread and of ended threads. */
void plx_retire_drain(void);
