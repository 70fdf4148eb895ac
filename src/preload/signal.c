/* SPDX-License-Identifier: MIT */
/*
 * sigaction, signal (bsd_signal, ssignal), sysv_signal, sigset, sigignore, siginterrupt
 *
 * For SIGSEGV and SIGBUS only; other signals pass. Once there is something to serve,
 * the kernel's action for these two is our handler, so that a bad pointer of the
 * program comes out as EFAULT. What the program installed is kept here and is what it
 * sees; the kernel's action carries the program's mask and flags, so that a signal
 * which is not ours runs the program's handler under the conditions it asked for.
 *
 * A program that ignores the signal gets just that, because the setting is inherited
 * by programs it starts; bad pointers then end it.
 */
#include "preload/preload.h"

#include <signal.h>
#include <string.h>

#include "base/sys.h"

#define RESTORER 0x04000000
#define KNOWN_FLAGS                                                                                \
	(SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER |         \
	 (int)SA_RESETHAND | RESTORER | 0x800)

struct guard {
	/* The program's action is versions[version % 2]; a change writes the other one first. */
	struct sigaction versions[2];
	uint32_t version;
	uint32_t on;
	uint32_t interrupts;
};

static struct guard guard_segv, guard_bus;
static uint32_t guard_lock;

static void fault(int sig, siginfo_t *info, void *context);

static struct guard *guard_of(int sig)
{
	return sig == SIGSEGV ? &guard_segv : sig == SIGBUS ? &guard_bus : NULL;
}

/* Holders have every signal blocked: a handler never waits for its own thread. */
static void lock(uint64_t *mask)
{
	uint64_t all = ~0ull;

	plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &all, mask, sizeof(all));
	while (plx_xchg(&guard_lock, 1))
		plx_sys0(SYS_sched_yield);
}

static void unlock(const uint64_t *mask)
{
	plx_store_rel(&guard_lock, 0);
	plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, mask, NULL, sizeof(*mask));
}

static void program_action(struct guard *g, struct sigaction *act)
{
	uint32_t v;

	do {
		v = plx_load_acq(&g->version);
		*act = g->versions[v % 2];
		plx_mb();
	} while (v != plx_load(&g->version));
}

static void set_program_action(struct guard *g, const struct sigaction *act)
{
	g->versions[(g->version + 1) % 2] = *act;
	plx_store_rel(&g->version, g->version + 1);
}

/* Locked. What the program wants becomes what the kernel does. */
static int install(int sig, struct guard *g, const struct sigaction *want)
{
	struct sigaction kernel = *want, now, keep = *want;

	if (want->sa_handler != SIG_IGN) {
		kernel.sa_sigaction = fault;
		if (want->sa_handler == SIG_DFL) {
			sigemptyset(&kernel.sa_mask);
			kernel.sa_flags = SA_SIGINFO | SA_ONSTACK;
		} else {
			kernel.sa_flags = (want->sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO;
		}
	}
	/* The handler must not find the old action once the kernel has the new one. */
	keep.sa_flags &= KNOWN_FLAGS;
	sigdelset(&keep.sa_mask, SIGKILL);
	sigdelset(&keep.sa_mask, SIGSTOP);
	set_program_action(g, &keep);
	if (plx_real.sigaction(sig, &kernel, NULL))
		return -errno;
	if (!(keep.sa_flags & RESTORER) && plx_real.sigaction(sig, NULL, &now) == 0) {
		/* Of libc's making, and visible to the program. */
		keep.sa_flags |= now.sa_flags & RESTORER;
		keep.sa_restorer = now.sa_restorer;
		set_program_action(g, &keep);
	}
	return 0;
}

static void guard_one(int sig)
{
	struct guard *g = guard_of(sig);
	struct sigaction act;

	if (g->on || plx_real.sigaction(sig, NULL, &act))
		return;
	if (install(sig, g, &act) == 0) {
		/* As found; installing has added libc's marks. */
		set_program_action(g, &act);
		g->on = 1;
	}
}

void plx_guard_install(void)
{
	uint64_t mask;

	lock(&mask);
	guard_one(SIGSEGV);
	guard_one(SIGBUS);
	unlock(&mask);
}

void plx_guard_after_fork(bool cleared)
{
	plx_store_rel(&guard_lock, 0);
	if (cleared) {
		guard_segv.on = guard_bus.on = 0;
		if (plx_load(&plx_active))
			plx_guard_install();
	}
}

static int guard_sigaction(int sig, struct guard *g, const struct sigaction *act,
			   struct sigaction *old)
{
	struct sigaction was, want;
	uint64_t mask;
	int r = 0;

	if (act)
		want = *act;
	if (plx_vfork_child()) {
		/* Its signals are its own; ours must not change. */
		r = plx_real.sigaction(sig, act ? &want : NULL, &was);
		if (r == 0 && old) {
			if (was.sa_sigaction == fault)
				program_action(g, &was);
			*old = was;
		}
		return r;
	}
	lock(&mask);
	if (!g->on) {
		r = plx_real.sigaction(sig, act ? &want : NULL, &was);
		if (r)
			r = -errno;
	} else {
		was = g->versions[g->version % 2];
		if (act)
			r = install(sig, g, &want);
	}
	unlock(&mask);
	if (r == 0 && old)
		*old = was;
	return plx_result(r);
}

/* The default for this signal: as if the handler had never been there. */
static void die(int sig, siginfo_t *info)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};

	plx_real.sigaction(sig, &dfl, NULL);
	/* A fault repeats by itself; a signal that was sent has to be sent again. */
	if (info->si_code <= 0)
		plx_sys4(SYS_rt_tgsigqueueinfo, plx_sys0(SYS_getpid), plx_sys0(SYS_gettid), sig,
			 info);
}

static void fault(int sig, siginfo_t *info, void *context)
{
	struct guard *g = guard_of(sig);
	struct sigaction act;

	if (plx_uaccess_fixup(context))
		return;
	program_action(g, &act);
	if (act.sa_handler == SIG_DFL || (act.sa_handler == SIG_IGN && info->si_code > 0)) {
		die(sig, info);
		return;
	}
	if (act.sa_handler == SIG_IGN)
		return;
	if (act.sa_flags & (int)SA_RESETHAND) {
		int saved = errno;
		struct sigaction dfl = act;
		uint64_t mask;

		dfl.sa_handler = SIG_DFL;
		lock(&mask);
		install(sig, g, &dfl);
		unlock(&mask);
		errno = saved;
	}
	act.sa_sigaction(sig, info, context);
}

PLX_EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct guard *g = guard_of(sig);

	return g ? guard_sigaction(sig, g, act, old) : plx_real.sigaction(sig, act, old);
}
PLX_ALIAS(__sigaction, sigaction);

static sighandler_t set_handler(int sig, struct guard *g, sighandler_t h, int flags, bool self)
{
	struct sigaction act = {.sa_handler = h, .sa_flags = flags}, old;

	if (h == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	sigemptyset(&act.sa_mask);
	if (self)
		sigaddset(&act.sa_mask, sig);
	return guard_sigaction(sig, g, &act, &old) ? SIG_ERR : old.sa_handler;
}

PLX_EXPORT sighandler_t signal(int sig, sighandler_t h)
{
	struct guard *g = guard_of(sig);

	if (!g)
		return plx_real.signal(sig, h);
	return set_handler(sig, g, h, plx_load(&g->interrupts) ? 0 : SA_RESTART, true);
}
sighandler_t bsd_signal(int sig, sighandler_t h);
PLX_ALIAS(bsd_signal, signal);
PLX_ALIAS(ssignal, signal);

PLX_EXPORT sighandler_t sysv_signal(int sig, sighandler_t h)
{
	struct guard *g = guard_of(sig);

	if (!g)
		return plx_real.sysv_signal(sig, h);
	return set_handler(sig, g, h, (int)SA_RESETHAND | SA_NODEFER, false);
}
PLX_ALIAS(__sysv_signal, sysv_signal);

PLX_EXPORT sighandler_t sigset(int sig, sighandler_t h)
{
	struct guard *g = guard_of(sig);
	sighandler_t before;
	struct sigaction act;
	sigset_t set, was;

	if (!g || h == SIG_ERR)
		return plx_real.sigset(sig, h);
	sigemptyset(&set);
	sigaddset(&set, sig);
	if ((uintptr_t)h == 2) {
		/* SIG_HOLD */
		if (sigprocmask(SIG_BLOCK, &set, &was) || guard_sigaction(sig, g, NULL, &act))
			return SIG_ERR;
		return sigismember(&was, sig) ? h : act.sa_handler;
	}
	before = set_handler(sig, g, h, 0, false);
	if (before == SIG_ERR || sigprocmask(SIG_UNBLOCK, &set, &was))
		return SIG_ERR;
	return sigismember(&was, sig) ? (sighandler_t)2 : before;
}

PLX_EXPORT int sigignore(int sig)
{
	struct guard *g = guard_of(sig);

	if (!g)
		return plx_real.sigignore(sig);
	return set_handler(sig, g, SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}

PLX_EXPORT int siginterrupt(int sig, int on)
{
	struct guard *g = guard_of(sig);
	struct sigaction act;

	if (!g)
		return plx_real.siginterrupt(sig, on);
	if (guard_sigaction(sig, g, NULL, &act))
		return -1;
	plx_store(&g->interrupts, on != 0);
	act.sa_flags = on ? act.sa_flags & ~SA_RESTART : act.sa_flags | SA_RESTART;
	return guard_sigaction(sig, g, &act, NULL);
}

struct kernel_sigaction {
	void (*handler)(int, siginfo_t *, void *);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

long plx_guard_raw_sigaction(int sig, const void *user_act, void *user_old, size_t size)
{
	struct kernel_sigaction in, out = {0};
	struct sigaction act, old;
	struct guard *g = guard_of(sig);
	int saved = errno;

	if (!g || size != sizeof(in.mask) || plx_vfork_child() ||
	    (user_act && plx_copy_in(&in, user_act, sizeof(in))))
		return PLX_PASS;
	if (user_act) {
		memset(&act, 0, sizeof(act));
		act.sa_sigaction = in.handler;
		act.sa_flags = (int)in.flags;
		act.sa_restorer = in.restorer;
		memcpy(&act.sa_mask, &in.mask, sizeof(in.mask));
	}
	if (guard_sigaction(sig, g, user_act ? &act : NULL, &old)) {
		int err = errno;

		errno = saved;
		return -err;
	}
	out.handler = old.sa_sigaction;
	out.flags = (unsigned int)old.sa_flags;
	out.restorer = old.sa_restorer;
	memcpy(&out.mask, &old.sa_mask, sizeof(out.mask));
	return user_old && plx_copy_out(user_old, &out, sizeof(out)) ? -EFAULT : 0;
}
