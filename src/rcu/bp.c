/* SPDX-License-Identifier: MIT */
/*
 * liburcu's urcu-bp.c, and what needs its variables. That file is LGPL-2.1-or-later, and so is what
 * is compiled from this one (docs/liburcu.md).
 *
 * Left out of it:
 *
 *   call_rcu, defer_rcu  threads of their own, and more locks (the empty headers beside this file
 *   and polls            stand in for liburcu's)
 *   synchronize_rcu      sleeps with all signals blocked
 *   the constructor      would register each process for membarrier when it is loaded. That is done
 *                        by plx_rcu_begin, when something is made
 *   the destructor       other threads may still be here
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define urcu_bp_read_lock plx_urcu_read_lock
#define urcu_bp_read_unlock plx_urcu_read_unlock
#define urcu_bp_read_ongoing plx_urcu_read_ongoing

#include "base/mem.h"
#include "rcu/bp.h"

#include <urcu/flavor.h>

#undef DEFINE_RCU_FLAVOR
#define DEFINE_RCU_FLAVOR(x) struct plx_urcu_no_flavor

/* What is not called is not in the object, if it is declared so before. */
#define urcu_bp_synchronize_rcu plx_urcu_synchronize_rcu
#define urcu_bp_register_thread plx_urcu_register_thread
#define urcu_bp_before_fork plx_urcu_bp_before_fork
#define urcu_bp_after_fork_parent plx_urcu_bp_after_fork_parent
#define urcu_bp_after_fork_child plx_urcu_bp_after_fork_child
#define urcu_bp_dereference_sym plx_urcu_dereference_sym
#define urcu_bp_set_pointer_sym plx_urcu_set_pointer_sym
#define urcu_bp_xchg_pointer_sym plx_urcu_xchg_pointer_sym
#define urcu_bp_cmpxchg_pointer_sym plx_urcu_cmpxchg_pointer_sym
#define UNUSED static __attribute__((unused))
UNUSED void urcu_bp_synchronize_rcu(void);
UNUSED void urcu_bp_register_thread(void);
UNUSED void urcu_bp_before_fork(void);
UNUSED void urcu_bp_after_fork_parent(void);
UNUSED void urcu_bp_after_fork_child(void);
UNUSED void *urcu_bp_dereference_sym(void *p);
UNUSED void *urcu_bp_set_pointer_sym(void **p, void *v);
UNUSED void *urcu_bp_xchg_pointer_sym(void **p, void *v);
UNUSED void *urcu_bp_cmpxchg_pointer_sym(void **p, void *old, void *_new);
/* Called by the destructor of newer versions. */
UNUSED void urcu_call_rcu_exit(void);
UNUSED void urcu_call_rcu_exit(void)
{
}

/* To membarrier, the only call that is made. The program's errno stays. */
UNUSED long plx_urcu_no_syscall(long nr, ...)
{
	(void)nr;
	return -1;
}
#define syscall plx_urcu_no_syscall

/*
 * Memory comes from where all of ours does: a program, and the drop-in, may have functions of
 * these names. Chunks do not grow, as what a program has given cannot; the next one is larger.
 */
#define WHOLE_PAGES(length) (((length) + PLX_PAGE - 1) & ~(size_t)(PLX_PAGE - 1))
static inline void *plx_urcu_memory(size_t length)
{
	void *p = plx_pages_map(WHOLE_PAGES(length), PLX_PAGE);

	return p ? p : MAP_FAILED;
}
#define mmap(at, length, prot, flags, fd, offset) plx_urcu_memory(length)
#define mremap(at, length, now, flags)                                                             \
	((void)(at), (void)(length), (void)(now), (void)(flags), MAP_FAILED)
/* By a thread that ends before plx_urcu_init, when no other is there. */
#define munmap(at, length) plx_pages_unmap(at, WHOLE_PAGES(length))

#define constructor unused
#define destructor unused
#define __constructor__ __unused__
#define __destructor__ __unused__

#pragma GCC visibility push(hidden)
#include <urcu-bp.c>
#pragma GCC visibility pop

void plx_urcu_init(void)
{
	static int done;

	/* One reference for good: the key and the memory of readers stay. */
	if (!__atomic_exchange_n(&done, 1, __ATOMIC_SEQ_CST))
		_urcu_bp_init();
}

bool plx_urcu_nobody(void)
{
	struct urcu_bp_reader *me = URCU_TLS(urcu_bp_reader);
	bool nobody;

	if (pthread_mutex_trylock(&rcu_registry_lock))
		return false;
	nobody = cds_list_empty(&registry) ||
		 (me && registry.next == &me->node && registry.prev == &me->node &&
		  !(me->ctr & URCU_BP_GP_CTR_NEST_MASK));
	mutex_unlock(&rcu_registry_lock);
	return nobody;
}

enum plx_urcu_seen plx_urcu_look(const unsigned long **who)
{
	enum plx_urcu_seen seen = PLX_URCU_NONE;
	struct urcu_bp_reader *r;

	if (pthread_mutex_trylock(&rcu_registry_lock))
		return PLX_URCU_BUSY;
	cds_list_for_each_entry (r, &registry, node) {
		unsigned long ctr = CMM_LOAD_SHARED(r->ctr);

		if (!(ctr & URCU_BP_GP_CTR_NEST_MASK))
			continue;
		seen = PLX_URCU_CURRENT;
		if ((ctr ^ urcu_bp_gp.ctr) & URCU_BP_GP_CTR_PHASE) {
			seen = PLX_URCU_OLD;
			*who = &r->ctr;
			break;
		}
	}
	mutex_unlock(&rcu_registry_lock);
	return seen;
}

bool plx_urcu_is_old(const unsigned long *who)
{
	unsigned long ctr = CMM_LOAD_SHARED(*who);

	return (ctr & URCU_BP_GP_CTR_NEST_MASK) && ((ctr ^ urcu_bp_gp.ctr) & URCU_BP_GP_CTR_PHASE);
}

void plx_urcu_flip(void)
{
	cmm_smp_mb();
	CMM_STORE_SHARED(urcu_bp_gp.ctr, urcu_bp_gp.ctr ^ URCU_BP_GP_CTR_PHASE);
	cmm_smp_mb();
}

void plx_urcu_before_fork(void)
{
	mutex_lock(&init_lock);
	mutex_lock(&rcu_registry_lock);
}

void plx_urcu_after_fork_parent(void)
{
	mutex_unlock(&rcu_registry_lock);
	mutex_unlock(&init_lock);
}

void plx_urcu_after_fork_child(void)
{
	urcu_bp_prune_registry();
	mutex_unlock(&rcu_registry_lock);
	mutex_unlock(&init_lock);
}
