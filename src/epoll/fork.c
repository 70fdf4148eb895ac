/* SPDX-License-Identifier: MIT */
/*
 * Forks beside threads that use the engine. The locks of the allocators and of the registry of
 * readers are held over it, so that the child finds what they protect whole. The others protect
 * epolls and the watchers of files, of which the child has none.
 *
 *   An epoll from before is not used: what would take its mutex returns -EOWNERDEAD, and its last
 *   reference frees nothing. Wakers may push its items: that takes no lock, and nobody collects.
 *
 *   A file is whole but for its list of watchers. That is dropped before it is changed for the
 * first time, with the lock and the mark. What was on it is for epolls that are not used, or
 * threads that are not there; wakers that have found an item are done with the mark after a grace
 * period.
 *
 * Each file says by `born` in which process it has been made, or its list was dropped. It is a
 * byte: after 255 forks in a line, in none of which the file was touched, a child takes it for its
 * own.
 *
 * The drop-in has hooks of its own, which do this as well, and so does pollux_fork when something
 * of the POSIX layer exists; then these do nothing (plx_engine_fork_done).
 */
#include "epoll/engine.h"

#include <pthread.h>

#include <pollux/fork.h>

#include "base/inside.h"

PLX_START_PAGE bool plx_engine_fork_known;
__thread bool plx_engine_fork_done;

/* Of the thread that forks, which has the locks; and how many hooks it has run that go together. */
static struct plx_masked fork_masked;
static __thread uint32_t fork_depth;

PLX_FORK_DATA uint8_t plx_born = 1;
static plx_lock_t forget_lock;

static void forget(struct pollux_file *f)
{
	uint64_t w;

	plx_store(&f->watches, NULL);
	plx_store(&f->index, NULL);
	plx_lock_reset(&f->lock);
	PLX_DELAY(forget_before_grace);
	plx_rcu_synchronize();
	w = plx_load(&f->word);
	while (!plx_cas(&f->word, &w, (w & ~(PLX_QUIET | PLX_QUEUED)) + PLX_EPOCH_ONE))
		;
	f->node.next = NULL;
	plx_store(&f->node.pushed, (uint32_t)-1);
	plx_store(&f->node.pops, 0);
	plx_store(&f->flags, 0);
	plx_store_rel(&f->born, plx_born);
}

int plx_file_own_slow(struct pollux_file *f)
{
	if (f->kind == PLX_KIND_EPOLL)
		return -EOWNERDEAD;
	plx_lock(&forget_lock, PLX_RANK_FILE);
	if (plx_file_stale(f))
		forget(f);
	plx_unlock(&forget_lock, PLX_RANK_FILE);
	return 0;
}

PLX_CHILD_CODE void plx_engine_after_fork_child(void)
{
	plx_store(&plx_born, plx_born % UINT8_MAX + 1);
	plx_lock_reset(&forget_lock);
	plx_lock_reset(&plx_topology_lock);
	plx_threads_after_fork_child();
	plx_spin_after_fork_child();
	plx_retire_after_fork_child();
	plx_reclaim_after_fork_child();
}

void pollux_before_fork(void)
{
	struct plx_masked masked;

	if (plx_engine_fork_done || fork_depth++)
		return;
	plx_inside.depth++;
	plx_signals_block(&masked);
	plx_rcu_before_fork();
	fork_masked = masked;
}

static void fork_end(void)
{
	struct plx_masked masked = fork_masked;
	uint32_t depth = plx_inside.depth - 1;

	plx_signals_unblock(&masked);
	plx_inside_end(&depth);
}

void pollux_after_fork_parent(void)
{
	if (!fork_depth || --fork_depth)
		return;
	plx_rcu_after_fork_parent();
	fork_end();
}

void pollux_after_fork_child(void)
{
	if (!fork_depth || --fork_depth)
		return;
	plx_rcu_after_fork_child();
	plx_engine_after_fork_child();
	fork_end();
}

/*
 * Not when the first object is made: another thread may be about to fork then. For the same reason
 * the hooks do not ask whether there is one.
 */
__attribute__((constructor)) static PLX_START_CODE void fork_register(void)
{
	if (!plx_engine_fork_known)
		pthread_atfork(pollux_before_fork, pollux_after_fork_parent,
			       pollux_after_fork_child);
}
