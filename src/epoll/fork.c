/* SPDX-License-Identifier: MIT */
/*
 * Forks beside threads that use the engine. What is not an object's is whole in the child, and its
 * locks are free (base/wiped.h). The others protect epolls and the watchers of files, of which the
 * child has none.
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
 * own. The child finds plx_wiped.born 0, which is not that of any file, and takes a number when it
 * first needs one: `numbers` is greater than that of any process before, since it has moved before
 * the number was there to be seen (tests/model/born.pml).
 */
#include "epoll/engine.h"

#include <pollux/fork.h>

static uint32_t numbers;

uint8_t plx_born_slow(void)
{
	uint8_t none = 0, next;

	plx_rcu_begin();
	next = plx_xadd(&numbers, 1) % UINT8_MAX + 1;
	PLX_DELAY(born_number);
	return plx_cas(&plx_wiped.born, &none, next) ? next : none;
}

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
	plx_store_rel(&f->born, plx_born());
}

int plx_file_own_slow(struct pollux_file *f)
{
	if (f->kind == PLX_KIND_EPOLL)
		return -EOWNERDEAD;
	plx_lock(&plx_wiped.forget_lock, PLX_RANK_FILE);
	if (plx_file_stale(f))
		forget(f);
	plx_unlock(&plx_wiped.forget_lock, PLX_RANK_FILE);
	return 0;
}

void pollux_before_fork(void)
{
}

void pollux_after_fork_parent(void)
{
}

void pollux_after_fork_child(void)
{
	plx_wipe_by_hand();
}
