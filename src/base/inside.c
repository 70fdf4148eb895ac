/* SPDX-License-Identifier: MIT */
#include "base/inside.h"

#include "base/lock.h"

__thread struct plx_inside plx_inside;
__thread struct plx_hold *plx_holds;
bool (*plx_signal_deliver)(void);

uint32_t plx_signals_wait;

void plx_signals_block(struct plx_masked *m)
{
	sigset_t all;

	m->blocked = !plx_inside.depth || !plx_load(&plx_signals_wait);
	if (!m->blocked)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &m->old);
}

PLX_CHILD_CODE void plx_signals_unblock(const struct plx_masked *m)
{
	if (m->blocked)
		pthread_sigmask(SIG_SETMASK, &m->old, NULL);
}

bool plx_inside_left(void)
{
	return !plx_inside.depth && plx_signal_deliver && plx_signal_deliver();
}

struct plx_outside plx_outside_begin(void)
{
	struct plx_outside o = {.depth = plx_inside.depth, .holds = plx_holds};

	plx_holds = NULL;
	plx_compiler_barrier();
	plx_inside.depth = 0;
	plx_compiler_barrier();
	if (plx_inside.waits)
		o.interrupted = plx_inside_left();
	return o;
}

void plx_outside_end(struct plx_outside *o)
{
	plx_inside.depth = o->depth;
	plx_compiler_barrier();
	plx_holds = o->holds;
}
