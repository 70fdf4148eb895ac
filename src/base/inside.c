/* SPDX-License-Identifier: MIT */
#include "base/inside.h"

#include "base/lock.h"
#include "base/sys.h"

__thread struct plx_inside plx_inside;
__thread uint64_t plx_signals_held;
__thread struct plx_hold *plx_holds;
bool (*plx_signal_deliver)(void);

uint32_t plx_signals_wait;

void plx_signals_block(struct plx_masked *m)
{
	/* Not the two by which libc changes the users of all threads and cancels one. */
	const uint64_t all = ~(3ull << 31);

	m->blocked = !plx_inside.depth || !plx_load(&plx_signals_wait);
	if (!m->blocked)
		return;
	plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &m->old, sizeof(all));
	m->held = plx_signals_held;
	plx_signals_held |= all & ~m->old;
}

PLX_CHILD_CODE void plx_signals_unblock(const struct plx_masked *m)
{
	if (!m->blocked)
		return;
	plx_signals_held = m->held;
	plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &m->old, NULL, sizeof(m->old));
}

/* What the kernel does without a handler: for all others it is the end. */
#define GOES_ON                                                                                    \
	(1ull << (SIGCHLD - 1) | 1ull << (SIGCONT - 1) | 1ull << (SIGSTOP - 1) |                   \
	 1ull << (SIGTSTP - 1) | 1ull << (SIGTTIN - 1) | 1ull << (SIGTTOU - 1) |                   \
	 1ull << (SIGURG - 1) | 1ull << (SIGWINCH - 1))

void plx_signals_let_end(void)
{
	uint64_t pending;

	if (!plx_signals_held || plx_sys2(SYS_rt_sigpending, &pending, sizeof(pending)))
		return;
	pending &= plx_signals_held & ~GOES_ON;
	for (int sig = 1; pending; sig++, pending >>= 1) {
		/* As the kernel has it: the handler first, and room for the rest. */
		uintptr_t act[8];
		uint64_t this = 1ull << (sig - 1);

		if (!(pending & 1) || plx_sys4(SYS_rt_sigaction, sig, NULL, act, sizeof(this)) ||
		    act[0] != (uintptr_t)SIG_DFL)
			continue;
		plx_sys4(SYS_rt_sigprocmask, SIG_UNBLOCK, &this, NULL, sizeof(this));
	}
}

bool plx_inside_left(void)
{
	bool (*deliver)(void) = plx_load(&plx_signal_deliver);

	return !plx_inside.depth && deliver && deliver();
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
