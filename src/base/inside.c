/* SPDX-License-Identifier: MIT */
#include "base/inside.h"

__thread struct plx_inside plx_inside;
bool (*plx_signal_deliver)(void);

bool plx_inside_left(void)
{
	return !plx_inside.depth && plx_signal_deliver && plx_signal_deliver();
}

struct plx_outside plx_outside_begin(void)
{
	struct plx_outside o = {.depth = plx_inside.depth};

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
}
