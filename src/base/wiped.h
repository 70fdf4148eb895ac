/* SPDX-License-Identifier: MIT */
/*
 * What the child of a fork finds zero, whatever has made it: libc's fork, _Fork, clone, or one in a
 * signal handler. These pages are wiped by the kernel (rcu/bp.c), from the moment on in which
 * something is made. Before that nothing of this is used.
 *
 * The locks of all that is not an object's are here. In the child they are free, also if one was
 * held by a thread that is not there, in the middle of a change. So what they protect is whole
 * after each store: a list is linked before its head is moved, and a reserve becomes smaller before
 * its beginning moves. What such a thread had in hand is lost to the child.
 */
#pragma once

#include "base/lock.h"

/* Readers whose counters are here; the same of a chunk (rcu/bp.c). */
#define PLX_READERS 64

struct plx_wiped {
	/* epoll/fork.c: which process this is; 0: a child that has done nothing yet. */
	uint8_t born;
	plx_lock_t mem_lock __attribute__((aligned(64)));
	plx_lock_t depot_lock __attribute__((aligned(64)));
	/* rcu/rcu.c */
	plx_lock_t gp_lock __attribute__((aligned(64)));
	plx_lock_t orphan_lock __attribute__((aligned(64)));
	/* epoll/ */
	plx_lock_t forget_lock;
	plx_lock_t topology_lock __attribute__((aligned(64)));
	/* epoll/reclaim.c */
	plx_lock_t reclaim_lock __attribute__((aligned(64)));
	uint32_t reclaimers;
	struct plx_run *runs;
	long bytes_in_runs;
	/* epoll/thread.c: who is there, and how many watches by those who are not. */
	plx_lock_t threads_lock __attribute__((aligned(64)));
	struct plx_thread *threads;
	long ended, before;
	/* Atomic; counted from the first limit on. */
	long since __attribute__((aligned(64)));
	/* aio/: the table of contexts, the arena of rings, a context that is kept aside. */
	uint64_t aio_root[5] __attribute__((aligned(64)));
	uint64_t aio_arena[20];
	unsigned long aio_aside;
	/* Handovers that have begun, and that are over: in between both sides count the context. */
	uint32_t aio_moves_begun, aio_moves_over;
	/* base/spin.c */
	uint32_t spinners __attribute__((aligned(64)));
	/* Of threads: how deep in sections they are. */
	struct {
		unsigned long ctr;
	} __attribute__((aligned(128))) readers[PLX_READERS];
} __attribute__((aligned(4096)));

extern struct plx_wiped plx_wiped __attribute__((visibility("hidden")));
