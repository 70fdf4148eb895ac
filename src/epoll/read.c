/* SPDX-License-Identifier: MIT */
/*
 * Read sections of the program: the engine's own, by which also the free operations of its files
 * wait for them.
 */
#include <pollux/read.h>

#include "epoll/engine.h"

#include "base/sanitizer.h"

char plx_read_sections;

void pollux_read_lock(void)
{
	plx_engine_begin();
	plx_rcu_read_lock();
}

void pollux_read_unlock(void)
{
	plx_tsan_before(&plx_read_sections);
	plx_rcu_read_unlock();
}

void pollux_synchronize(void)
{
	uint64_t note;

	plx_engine_begin();
	PLX_INVARIANT(!plx_rcu_inside(), "pollux_synchronize is not called in a read section");
	PLX_INVARIANT(!plx_batch_inside(), "pollux_synchronize is not called in a batch");
	note = plx_batch_note();
	for (int tries = 0; !plx_batch_over(note); tries++)
		plx_await_step(tries);
	plx_rcu_synchronize();
	plx_tsan_after(&plx_read_sections);
}
