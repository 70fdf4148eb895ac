/* SPDX-License-Identifier: MIT */
/*
 * libc's fork beside threads that use the engine. The locks of the allocators and of the registry
 * of readers are held over it, so that the child finds what they protect whole; the others protect
 * nothing that the child could use but what it makes itself, and are free there. Objects of before
 * the fork may have locks of their own that are held by nobody: the child uses new ones only.
 *
 * The drop-in has hooks of its own, which do this as well, and so does pollux_fork when something
 * of the POSIX layer exists; then these do nothing (plx_engine_fork_done).
 */
#include "epoll/engine.h"

#include <pthread.h>

#include "base/inside.h"

PLX_START_PAGE bool plx_engine_fork_known;
__thread bool plx_engine_fork_done;

/* Of the thread that forks, which has the locks. */
static struct plx_masked fork_masked;
static __thread bool fork_held;

uint32_t plx_engine_forks;

PLX_CHILD_CODE void plx_engine_after_fork_child(void)
{
	plx_store(&plx_engine_forks, plx_engine_forks + 1);
	plx_lock_reset(&plx_topology_lock);
	plx_watches_after_fork_child();
	plx_spin_after_fork_child();
	plx_retire_after_fork_child();
	plx_reclaim_after_fork_child();
}

static void fork_prepare(void)
{
	struct plx_masked masked;

	if (plx_engine_fork_done)
		return;
	plx_inside.depth++;
	plx_signals_block(&masked);
	plx_rcu_before_fork();
	fork_masked = masked;
	fork_held = true;
}

static void fork_parent(void)
{
	struct plx_masked masked = fork_masked;
	uint32_t depth = plx_inside.depth - 1;

	if (!fork_held)
		return;
	fork_held = false;
	plx_rcu_after_fork_parent();
	plx_signals_unblock(&masked);
	plx_inside_end(&depth);
}

static void fork_child(void)
{
	struct plx_masked masked = fork_masked;
	uint32_t depth = plx_inside.depth - 1;

	if (!fork_held)
		return;
	fork_held = false;
	plx_rcu_after_fork_child();
	plx_engine_after_fork_child();
	plx_signals_unblock(&masked);
	plx_inside_end(&depth);
}

/*
 * Not when the first object is made: another thread may be about to fork then. For the same reason
 * the hooks do not ask whether there is one.
 */
__attribute__((constructor)) static PLX_START_CODE void fork_register(void)
{
	if (!plx_engine_fork_known)
		pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void plx_engine_begin_slow(void)
{
	plx_rcu_begin();
}
