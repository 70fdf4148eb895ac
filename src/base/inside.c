/* SPDX-License-Identifier: MIT */
#include "base/inside.h"

#include "base/lock.h"

__thread struct plx_inside plx_inside;
__thread struct plx_hold *plx_holds;
bool (*plx_signal_deliver)(void);

uint32_t plx_signals_wait;

/* What the program's mask is while plx_signals_block has another. */
static __thread struct {
	sigset_t old;
	bool on;
} masked;

void plx_signals_block(struct plx_masked *m)
{
	sigset_t all;

	m->outer = false;
	m->blocked = !plx_inside.depth || !plx_load(&plx_signals_wait);
	if (!m->blocked)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &m->old);
	/* Of two the outer one has found the program's. */
	if (!masked.on) {
		masked.old = m->old;
		masked.on = true;
		m->outer = true;
	}
}

PLX_CHILD_CODE void plx_signals_unblock(const struct plx_masked *m)
{
	if (!m->blocked)
		return;
	if (m->outer)
		masked.on = false;
	pthread_sigmask(SIG_SETMASK, &m->old, NULL);
}

static bool ends_by_default(int sig)
{
	struct sigaction sa;

	switch (sig) {
	case SIGCHLD:
	case SIGCONT:
	case SIGTSTP:
	case SIGTTIN:
	case SIGTTOU:
	case SIGURG:
	case SIGWINCH:
		return false;
	default:
		return sigaction(sig, NULL, &sa) == 0 && !(sa.sa_flags & SA_SIGINFO) &&
		       sa.sa_handler == SIG_DFL;
	}
}

void plx_signals_end(void)
{
	sigset_t pending, end;

	if (!masked.on || sigpending(&pending))
		return;
	sigemptyset(&end);
	for (int sig = 1; sig < NSIG; sig++)
		if (sigismember(&pending, sig) == 1 && !sigismember(&masked.old, sig) &&
		    ends_by_default(sig))
			sigaddset(&end, sig);
	pthread_sigmask(SIG_UNBLOCK, &end, NULL);
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
