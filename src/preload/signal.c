/* SPDX-License-Identifier: MIT */
/*
 * sigaction, signal (bsd_signal, ssignal), sysv_signal, sigset, sigignore, siginterrupt
 *
 * Once there is something to serve, the kernel's action for a signal that the program
 * handles is a function of ours. What the program installed is kept here and is what it
 * sees; the kernel's action carries the program's mask and flags, so that its handler
 * runs under the conditions it asked for. Ours stands in between for two reasons:
 *
 *   SIGSEGV, SIGBUS    a bad pointer of the program comes out as EFAULT. These two are
 *                      caught without a handler of the program, too. A program that
 *                      ignores them gets just that, because the setting is inherited by
 *                      programs it starts; bad pointers then end it.
 *   all that can wait  a handler does not run in the middle of a call of ours (inside.h)
 *
 * Statistics that somebody wants are printed on SIGUSR2, too, where the program has no
 * handler for it, and at once.
 *
 * Keeping a signal. The handler finds its thread inside, keeps the siginfo, and returns
 * with all signals blocked for which there are handlers, by changing the mask that its
 * return restores. So mostly one signal of a thread is kept at a time and others wait in the
 * kernel; more, if the kernel has begun the handlers of several at once. The thread leaves, sends
 * itself a carrier, a signal of the same number, and unblocks: the kernel runs the program's
 * handler with mask, stack and flags as usual, and the kept siginfo takes the carrier's place.
 * Others of the same number may have become pending meanwhile and come before the carrier: then
 * each takes the siginfo of the one that has been kept longest, and is kept itself, so that the
 * order stays (real-time signals queue). To send one again would not do: it would be the last of
 * its queue. Thus while something is kept a carrier of its number is pending, and nothing
 * hangs on the frame that sent it: a handler may leave it by siglongjmp.
 *
 *   kept      those that wait, the oldest first; several may have one number
 *   carriers  numbers of which a carrier is pending, as far as is known: one each. Of a signal that
 *             does not queue it may have been merged with one that was pending; whatever comes then
 *             is all that there was
 *   bare      those of them without a mark: at the limit of queued signals (RLIMIT_SIGPENDING) the
 *             kernel drops what a signal carries, or takes a real-time signal only if it carries
 *             nothing. What comes with nothing is the carrier then. It, too, may have been merged
 *
 * All three are changed with all signals blocked that may be kept.
 *
 * Faults run at once: they belong to the instruction. So does a SIGABRT of abort. In a sandbox
 * that the process has put on itself, all do: its filter may not know our calls. Nothing is ours
 * any more by then, so the process does as the child of a vfork does: all that it calls is libc's.
 * Under ThreadSanitizer all run at once, too: it runs handlers where it likes, outside of signal
 * frames.
 */
#include "preload/preload.h"

#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "base/inside.h"
#include "base/sanitizer.h"
#include "base/sleep.h"
#include "base/stats.h"
#include "base/sys.h"

#define RESTORER 0x04000000
#define KNOWN_FLAGS                                                                                \
	(SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER |         \
	 (int)SA_RESETHAND | RESTORER | 0x800)

#if PLX_TSAN
#define TSAN 1
#else
#define TSAN 0
#endif

#define SIGNALS 65
/* From here on several signals of one number are pending at a time. */
#define QUEUEING 32
#define BIT(sig) (1ull << ((sig)-1))
/* libc's own; it does not let anybody have them. */
#define LIBC_SIGNALS (BIT(32) | BIT(33))
#define UNCATCHABLE (BIT(SIGKILL) | BIT(SIGSTOP))
#define FAULTS (BIT(SIGSEGV) | BIT(SIGBUS) | BIT(SIGILL) | BIT(SIGFPE) | BIT(SIGTRAP) | BIT(SIGSYS))
#define MAY_WAIT ~(LIBC_SIGNALS | UNCATCHABLE | FAULTS)

/* A struct sigaction as the kernel has it. */
struct action {
	void (*handler)(int, siginfo_t *, void *);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

struct guard {
	/* The program's action is versions[version % 2]; a change writes the other one first. */
	struct action versions[2];
	uint32_t version;
	uint32_t on;
	uint32_t interrupts;
	/* Moves when the signal loses its handler: what was kept for that is void. */
	uint32_t losses;
};

static PLX_LARGE struct guard guards[SIGNALS];
static plx_lock_t guard_lock;

/*
 * A fork beside other threads holds it, or its child would have the half of a change that one of
 * them was making, and our function in the kernel without the program's in the table.
 */
static PLX_FORK_PAGE bool guard_forks;
/* Ours stand before the program's handlers, or are about to. */
static uint32_t guarding;
/* Signals for which the program has a handler. */
static uint64_t handled;
static bool keep_none;

/* As many numbers as can be expected at one instruction; beyond that they are sent again. */
#define KEPT 4

/* Signals that wait until their thread has left a call of ours. */
static __thread struct kept {
	siginfo_t info;
	int sig;
	uint32_t losses;
} kept[KEPT];
static __thread int nkept;
static __thread uint64_t carriers, bare;
static __thread pid_t kept_process;
/* What the thread's mask goes back to, while plx_inside.waits. */
static __thread uint64_t kept_mask;

/* A signal is kept, and blocked until the handler that it has interrupted returns. */
static __thread bool comes_later;

static void fault(int sig, siginfo_t *info, void *context);
static void caught(int sig, siginfo_t *info, void *context);
static void statistics(int sig, siginfo_t *info, void *context);
static bool deliver(void);

static struct guard *guard_of(int sig)
{
	if (sig <= 0 || sig >= SIGNALS || (BIT(sig) & (UNCATCHABLE | LIBC_SIGNALS)))
		return NULL;
	return &guards[sig];
}

static bool is_memory(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS;
}

static bool is_handler(const struct sigaction *act)
{
	return act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN;
}

/* No handler comes to a holder: it never waits for its own thread. */
struct held {
	uint64_t blocked, before;
	uint32_t depth;
};

static PLX_FORK_PAGE struct held guard_fork;

static struct held lock(void)
{
	uint64_t block = plx_load(&plx_signals_wait) ? ~MAY_WAIT | BIT(SIGABRT) : ~0ull;
	struct held h = {.depth = plx_inside_begin()};

	plx_sys4(SYS_rt_sigprocmask, SIG_BLOCK, &block, &h.blocked, sizeof(block));
	h.blocked = block & ~h.blocked;
	h.before = plx_signals_held;
	plx_signals_held |= h.blocked;
	plx_pi_lock(&guard_lock);
	return h;
}

static void unlock(struct held h)
{
	plx_pi_unlock(&guard_lock);
	plx_signals_held = h.before;
	plx_sys4(SYS_rt_sigprocmask, SIG_UNBLOCK, &h.blocked, NULL, sizeof(h.blocked));
	plx_inside_end(&h.depth);
}

/* The signals in a set of libc's. */
static uint64_t *bits(sigset_t *set)
{
	return (uint64_t *)set;
}

static struct action action_of(struct guard *g)
{
	struct action a;
	uint32_t v;

	do {
		v = plx_load_acq(&g->version);
		a = g->versions[v % 2];
		plx_mb();
	} while (v != plx_load(&g->version));
	return a;
}

static struct action to_action(const struct sigaction *act)
{
	return (struct action){
		.handler = act->sa_sigaction,
		.flags = (unsigned int)act->sa_flags,
		.restorer = act->sa_restorer,
		.mask = *(const uint64_t *)&act->sa_mask,
	};
}

static struct sigaction from_action(const struct action *a)
{
	struct sigaction act = {
		.sa_sigaction = a->handler,
		.sa_flags = (int)a->flags,
		.sa_restorer = a->restorer,
	};

	*bits(&act.sa_mask) = a->mask;
	return act;
}

static struct sigaction program_action(struct guard *g)
{
	struct action a = action_of(g);

	return from_action(&a);
}

static void set_program_action(struct guard *g, const struct action *act)
{
	g->versions[(g->version + 1) % 2] = *act;
	plx_store_rel(&g->version, g->version + 1);
}

/* Who asks: libc's functions give every action their own restorer, a bare call as it is. */
enum caller {
	BY_LIBC,
	BY_ITSELF,
};

/* Locked. What the program wants becomes what the kernel does. */
static int install(int sig, struct guard *g, const struct sigaction *want, enum caller by)
{
	struct sigaction kernel = *want;
	struct action keep = to_action(want);

	if (is_handler(want)) {
		kernel.sa_sigaction = is_memory(sig) ? fault : caught;
		kernel.sa_flags = (want->sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO;
	} else if (want->sa_handler == SIG_DFL && is_memory(sig)) {
		kernel.sa_sigaction = fault;
		sigemptyset(&kernel.sa_mask);
		kernel.sa_flags = SA_SIGINFO | SA_ONSTACK;
	} else if (want->sa_handler == SIG_DFL && sig == SIGUSR2 && plx_stats_wanted) {
		kernel.sa_sigaction = statistics;
		sigemptyset(&kernel.sa_mask);
		kernel.sa_flags = SA_SIGINFO | SA_RESTART;
	}
	/*
	 * What is kept while a fault is answered would be kept with the mask of that: the thread's
	 * own would be lost (keep).
	 */
	if (kernel.sa_sigaction == fault || kernel.sa_sigaction == statistics)
		*bits(&kernel.sa_mask) |= MAY_WAIT;
	if (is_handler(want)) {
		(void)plx_or(&handled, BIT(sig));
	} else {
		plx_store(&g->losses, g->losses + 1);
		(void)plx_and(&handled, ~BIT(sig));
	}
	/* The handler must not find the old action once the kernel has the new one. */
	keep.flags &= KNOWN_FLAGS;
	keep.mask &= ~UNCATCHABLE;
	set_program_action(g, &keep);
	if (plx_real.sigaction(sig, &kernel, NULL))
		return -errno;
	/* What libc has made of an action without a restorer is visible to the program. */
	if (by == BY_LIBC && !plx_real.sigaction(sig, NULL, &kernel)) {
		keep.flags |= kernel.sa_flags & RESTORER;
		keep.restorer = kernel.sa_restorer;
		set_program_action(g, &keep);
	}
	return 0;
}

static bool guard_one(int sig)
{
	struct guard *g = guard_of(sig);
	struct sigaction act;

	if (!g->on && !plx_real.sigaction(sig, NULL, &act))
		g->on = install(sig, g, &act, BY_ITSELF) == 0;
	return g->on;
}

void plx_guard_install(void)
{
	struct held h = lock();

	plx_store(&guarding, 1);
	plx_store(&plx_signal_deliver, deliver);
	for (int sig = 1; sig < SIGNALS; sig++)
		if (guard_of(sig))
			guard_one(sig);
	plx_store(&plx_signals_wait, !keep_none && !TSAN);
	plx_store(&plx_sleeps_seen, !keep_none && !TSAN && !plx_tsan_here());
	unlock(h);
}

void plx_guard_statistics(void)
{
	struct held h = lock();

	guard_one(SIGUSR2);
	unlock(h);
}

void plx_guard_before_fork(void)
{
	/* Before that nothing changes but what the kernel has. */
	if (plx_load(&plx_px_begun) != PLX_BEGUN || plx_px_alone())
		return;
	guard_fork = lock();
	guard_forks = true;
}

PLX_CHILD_CODE void plx_guard_fork_done(void)
{
	if (!guard_forks)
		return;
	guard_forks = false;
	unlock(guard_fork);
}

PLX_CHILD_CODE void plx_guard_after_fork(bool cleared)
{
	plx_guard_fork_done();
	/* A page that is not written need not be copied. */
	if (plx_load(&guard_lock))
		plx_store_rel(&guard_lock, 0);
	/* Pending signals stay with the parent, and so does one that it keeps. */
	if (plx_unlikely(nkept || carriers) && kept_process != plx_sys0(SYS_getpid)) {
		nkept = 0;
		carriers = bare = 0;
	}
	if (!cleared)
		return;
	for (int sig = 1; sig < SIGNALS; sig++)
		guards[sig].on = 0;
	if (plx_stats_wanted)
		plx_guard_statistics();
	if (plx_load(&plx_active))
		plx_guard_install();
}

/* Locked. What ours would do by calls that the program does not make, the kernel does. */
static void give_back(int sig, struct guard *g)
{
	struct sigaction act = program_action(g);

	if (g->on &&
	    ((is_memory(sig) && act.sa_handler == SIG_DFL) || (act.sa_flags & (int)SA_RESETHAND)))
		plx_real.sigaction(sig, &act, NULL);
}

/* The process is about to put itself into a sandbox. */
void plx_guard_keep_none(void)
{
	struct held h = lock();

	for (int sig = 1; sig < SIGNALS; sig++)
		if (guard_of(sig))
			give_back(sig, guard_of(sig));
	keep_none = true;
	(void)plx_or(&plx_used, PLX_USED_VFORK);
	plx_store(&plx_sleeps_seen, 0);
	plx_store(&plx_signals_wait, 0);
	unlock(h);
}

PLX_CHILD_CODE bool plx_guard_keeps_none(void)
{
	return keep_none;
}

/*
 * The program's own call, while none of its handlers has one of ours before it. Its action is found
 * by who puts them there: that waits for the end of this.
 */
#define UNGUARDED(g, call)                                                                         \
	while (!plx_load_acq(&guarding) && !plx_load(&(g)->on)) {                                  \
		{                                                                                  \
			PLX_COLD_CALL(.what = PLX_COLD_CHANGE);                                    \
			if (plx_load_acq(&plx_cold) < PLX_COLD_PREPARING)                          \
				return (call);                                                     \
		}                                                                                  \
		plx_cold_await();                                                                  \
	}

static int guard_action(int sig, const struct sigaction *act, struct sigaction *old, enum caller by)
{
	struct guard *g = guard_of(sig);
	struct sigaction was, want;
	struct held h;
	int r = 0;

	if (!g)
		return plx_real.sigaction(sig, act, old);
	UNGUARDED(g, plx_real.sigaction(sig, act, old));
	if (act)
		want = *act;
	if (keep_none || plx_vfork_child_only()) {
		/* Its signals are its own; ours must not change. In a sandbox none are needed. */
		r = plx_real.sigaction(sig, act ? &want : NULL, &was);
		if (r == 0 && old) {
			if (was.sa_sigaction == fault || was.sa_sigaction == caught ||
			    was.sa_sigaction == statistics)
				was = program_action(g);
			*old = was;
		}
		return r;
	}
	h = lock();
	if (!guard_one(sig))
		r = -errno;
	was = program_action(g);
	if (r == 0 && act)
		r = install(sig, g, &want, by);
	unlock(h);
	if (r == 0 && old)
		*old = was;
	return plx_result(r);
}

static long send_self(int sig, siginfo_t *info)
{
	return plx_sys4(SYS_rt_tgsigqueueinfo, plx_sys0(SYS_getpid), plx_sys0(SYS_gettid), sig,
			info);
}

static bool is_default(const struct action *act)
{
	return (uintptr_t)act->handler == (uintptr_t)SIG_DFL;
}

static bool is_ignored(const struct action *act)
{
	return (uintptr_t)act->handler == (uintptr_t)SIG_IGN;
}

/* The default for this signal: as if the handler had never been there. */
static __attribute__((noinline)) void die(int sig, siginfo_t *info)
{
	struct sigaction dfl = {.sa_handler = SIG_DFL};

	plx_real.sigaction(sig, &dfl, NULL);
	/* A fault repeats by itself; a signal that was sent has to be sent again. */
	if (info->si_code <= 0)
		send_self(sig, info);
}

/* As the kernel would have it for the program's handler. */
static void set_mask_of(int sig, const struct action *act, ucontext_t *context)
{
	uint64_t mask =
		*bits(&context->uc_sigmask) | act->mask | (act->flags & SA_NODEFER ? 0 : BIT(sig));

	plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

static bool is_entry(uintptr_t pc)
{
	return pc == (uintptr_t)caught || pc == (uintptr_t)fault || pc == (uintptr_t)statistics;
}

/* What the thread sleeps in is over before the handler begins. */
static void leave_sleep(int sig, const struct action *act, void *context)
{
	void *first = plx_sleep_context(context, is_entry);

	if (plx_inside.depth || !plx_load(&plx_sleeps_seen) ||
	    plx_sleep_interrupted(first) != PLX_SIGNAL_RUNS) {
		plx_sleep_forget();
		return;
	}
	plx_sleep_aside(first);
	if (plx_unlikely(comes_later)) {
		comes_later = false;
		set_mask_of(sig, act, context);
	}
}

/* It has been called: the default is next. */
static __attribute__((noinline)) void reset(int sig, struct guard *g)
{
	int saved = errno;
	struct sigaction dfl = program_action(g);
	struct held h;

	dfl.sa_handler = SIG_DFL;
	h = lock();
	install(sig, g, &dfl, BY_ITSELF);
	unlock(h);
	errno = saved;
}

/*
 * The program may have given its handlers little more than the kernel's own frame takes, on an
 * alternate stack: what is below this, and in those who call it, is small.
 */
static void run_handler(int sig, struct guard *g, const struct action *act, siginfo_t *info,
			void *context)
{
	leave_sleep(sig, act, context);
	if (act->flags & (int)SA_RESETHAND)
		reset(sig, g);
	plx_inside.handlers++;
	act->handler(sig, info, context);
}

static void fault(int sig, siginfo_t *info, void *context)
{
	struct guard *g = guard_of(sig);
	struct action act;

	if (plx_uaccess_fixup(context))
		return;
	act = action_of(g);
	if (is_default(&act) || (is_ignored(&act) && info->si_code > 0)) {
		die(sig, info);
		return;
	}
	if (is_ignored(&act))
		return;
	set_mask_of(sig, &act, context);
	run_handler(sig, g, &act, info, context);
}

static void statistics(int sig, siginfo_t *info, void *context)
{
	struct action act = action_of(guard_of(sig));
	int saved = errno;

	(void)context;
	if (is_default(&act))
		plx_px_stats_print(true);
	else if (!is_ignored(&act))
		/* It has changed since the kernel looked, which will look again. */
		send_self(sig, info);
	errno = saved;
}

/* --- keeping a signal -------------------------------------------------------------------- */

static bool is_carrier(const siginfo_t *info)
{
	return info->si_code == SI_QUEUE && info->si_value.sival_ptr == &kept;
}

/* What the kernel says of a signal of which it knows nothing. */
static bool is_bare(const siginfo_t *info)
{
	return info->si_code == SI_USER && !info->si_pid && !info->si_uid;
}

static uint64_t block(uint64_t set)
{
	uint64_t was;

	plx_sys4(SYS_rt_sigprocmask, SIG_BLOCK, &set, &was, sizeof(set));
	return was;
}

static void set_mask(uint64_t mask)
{
	plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

/* Those that may be kept. */
static uint64_t that_wait(int sig)
{
	return (plx_load(&handled) & MAY_WAIT) | BIT(sig);
}

/* The oldest of that number, or -1. */
static int kept_first(int sig)
{
	for (int i = 0; i < nkept; i++)
		if (kept[i].sig == sig)
			return i;
	return -1;
}

static void kept_drop(int i)
{
	nkept--;
	for (; i < nkept; i++)
		kept[i] = kept[i + 1];
}

static void kept_add(int sig, const struct guard *g, const siginfo_t *info)
{
	struct kept *k = &kept[nkept++];

	k->info = *info;
	k->sig = sig;
	k->losses = plx_load(&g->losses);
	kept_process = plx_sys0(SYS_getpid);
}

/* There is one kept of that number. */
static bool send_carrier(int sig)
{
	siginfo_t info;
	long r;

	if (carriers & BIT(sig))
		return true;
	memset(&info, 0, sizeof(info));
	info.si_signo = sig;
	info.si_code = SI_QUEUE;
	info.si_value.sival_ptr = &kept;
	r = send_self(sig, &info);
	if (r == -EAGAIN) {
		memset(&info, 0, sizeof(info));
		info.si_signo = sig;
		r = send_self(sig, &info);
		if (r == 0)
			bare |= BIT(sig);
	}
	if (r == 0)
		carriers |= BIT(sig);
	return r == 0;
}

/* A signal of that number has come. True if it is a carrier. */
static bool came(int sig, const siginfo_t *info)
{
	uint64_t this = BIT(sig);
	bool carrier = is_carrier(info) ||
		       ((carriers & this) && is_bare(info) && (sig < QUEUEING || (bare & this)));

	if (carrier || sig < QUEUEING || (bare & this)) {
		carriers &= ~this;
		bare &= ~this;
	}
	return carrier;
}

/* Puts it by. Without room it goes back to the queue, or another one that does not queue. */
static void put_by(int sig, const struct guard *g, siginfo_t *info)
{
	if (came(sig, info))
		return;
	for (int i = 0; nkept == KEPT && sig >= QUEUEING && i < KEPT; i++) {
		struct kept other = kept[i];

		if (other.sig < QUEUEING) {
			kept_drop(i);
			send_self(other.sig, &other.info);
		}
	}
	if (nkept < KEPT)
		kept_add(sig, g, info);
	else
		send_self(sig, info);
}

/* The thread is inside: the signal waits, and so do all others from the return on. */
static void keep(int sig, struct guard *g, siginfo_t *info, ucontext_t *context)
{
	uint64_t all = that_wait(sig);

	/* One that came before has been kept, with a mask of no use; none comes from here on. */
	block(all);
	put_by(sig, g, info);
	kept_mask = *bits(&context->uc_sigmask);
	*bits(&context->uc_sigmask) |= all;
	/* Blocked only until a handler of libc's returns, which this one has interrupted. */
	kept_mask &= ~LIBC_SIGNALS;
	plx_inside.waits = 1;
}

/* The signal has interrupted another handler, before what that one had interrupted was over. */
static void come_later(int sig, struct guard *g, siginfo_t *info, ucontext_t *context)
{
	block(that_wait(sig));
	put_by(sig, g, info);
	if (kept_first(sig) >= 0)
		send_carrier(sig);
	*bits(&context->uc_sigmask) |= BIT(sig);
	comes_later = true;
}

/* By the thread itself, which does not go on: or by another, by pthread_kill, who is not told
 * apart. */
static bool is_abort(int sig, const siginfo_t *info)
{
	return sig == SIGABRT && info->si_code == SI_TKILL && info->si_pid == plx_sys0(SYS_getpid);
}

/* Whether the signal has to wait for the thread, and does. */
static bool waits(int sig, struct guard *g, siginfo_t *info, void *context)
{
	enum plx_sleep_signal now;

	if (!(BIT(sig) & MAY_WAIT) || !plx_load(&plx_signals_wait) || is_abort(sig, info))
		return false;
	now = plx_inside.depth ? PLX_SIGNAL_IS_KEPT
			       : plx_sleep_interrupted(plx_sleep_context(context, is_entry));
	if (now == PLX_SIGNAL_IS_KEPT)
		keep(sig, g, info, context);
	else if (now == PLX_SIGNAL_COMES_LATER)
		come_later(sig, g, info, context);
	return now != PLX_SIGNAL_RUNS;
}

/* Which siginfo the handler gets: *info, or the one that is kept longest; false if none. */
static bool take_turn(int sig, struct guard *g, const siginfo_t *info, siginfo_t *first)
{
	uint64_t mask = block(that_wait(sig));
	bool carrier = came(sig, info), turn = !carrier;
	int i;

	*first = *info;
	while ((i = kept_first(sig)) >= 0 && kept[i].losses != plx_load(&g->losses))
		kept_drop(i);
	if (i >= 0) {
		turn = true;
		*first = kept[i].info;
		kept_drop(i);
		if (!carrier)
			kept_add(sig, g, info);
		if (kept_first(sig) >= 0)
			send_carrier(sig);
	}
	set_mask(mask);
	return turn;
}

static __attribute__((noinline)) bool context_here(ucontext_t *context)
{
	return getcontext(context) == 0;
}

/*
 * No carrier can be had: the handler is called as a function. Returns what the thread's mask is
 * after it, which the handler may have changed.
 */
static __attribute__((noinline)) uint64_t run_here(int i, uint64_t mask)
{
	int sig = kept[i].sig;
	struct guard *g = guard_of(sig);
	siginfo_t info = kept[i].info;
	struct action act = action_of(g);
	ucontext_t context;

	kept_drop(i);
	if (is_default(&act) || is_ignored(&act) || !context_here(&context))
		return mask;
	*bits(&context.uc_sigmask) = mask;
	set_mask(act.mask | mask | BIT(sig));
	run_handler(sig, g, &act, &info, &context);
	return *bits(&context.uc_sigmask);
}

/*
 * Carriers for all that is kept. A carrier that is not pending any more has been taken by somebody
 * else (sigwait). mask is the thread's otherwise.
 */
static void send_carriers(uint64_t mask)
{
	uint64_t all = that_wait(kept[0].sig), pending;

	block(all);
	if (carriers && plx_sys2(SYS_rt_sigpending, &pending, sizeof(pending)) == 0) {
		carriers &= pending;
		bare &= pending;
	}
	for (int i = 0; i < nkept;) {
		if (send_carrier(kept[i].sig)) {
			i++;
			continue;
		}
		mask = run_here(i, mask);
		block(all);
		i = 0;
	}
	set_mask(mask);
}

static void handle(int sig, struct guard *g, siginfo_t *info, void *context)
{
	struct action act = action_of(g);

	if (is_default(&act))
		/* It has changed since the kernel looked, which will look again. */
		send_self(sig, info);
	else if (!is_ignored(&act))
		run_handler(sig, g, &act, info, context);
}

static __attribute__((noinline)) void handle_in_turn(int sig, struct guard *g,
						     const siginfo_t *info, void *context)
{
	siginfo_t first;

	if (take_turn(sig, g, info, &first))
		handle(sig, g, &first, context);
}

static void caught(int sig, siginfo_t *info, void *context)
{
	struct guard *g = guard_of(sig);

	if (waits(sig, g, info, context))
		return;
	if (plx_unlikely(plx_inside.waits) && !plx_inside.depth) {
		/* Kept within a handler of libc's, whose return has unblocked all: its mask is
		 * void. */
		uint64_t mask = block(0);

		plx_inside.waits = 0;
		if (nkept)
			send_carriers(mask);
	}
	if (plx_unlikely(kept_first(sig) >= 0 || (carriers & BIT(sig)) || is_carrier(info)))
		handle_in_turn(sig, g, info, context);
	else
		handle(sig, g, info, context);
}

/* The thread has left. True if a handler has run. */
static bool deliver(void)
{
	uint64_t mask = kept_mask;
	bool any = nkept != 0;

	plx_inside.waits = 0;
	if (any)
		send_carriers(mask);
	else
		set_mask(mask);
	return any;
}

PLX_EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	return guard_action(sig, act, old, BY_LIBC);
}
PLX_ALIAS(__sigaction, sigaction);

static sighandler_t set_handler(int sig, sighandler_t h, int flags, bool self)
{
	struct sigaction act = {.sa_handler = h, .sa_flags = flags}, old;

	if (h == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	sigemptyset(&act.sa_mask);
	if (self)
		sigaddset(&act.sa_mask, sig);
	return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

PLX_EXPORT sighandler_t signal(int sig, sighandler_t h)
{
	struct guard *g = guard_of(sig);

	return set_handler(sig, h, g && plx_load(&g->interrupts) ? 0 : SA_RESTART, true);
}
sighandler_t bsd_signal(int sig, sighandler_t h);
PLX_ALIAS(bsd_signal, signal);
PLX_ALIAS(ssignal, signal);

PLX_EXPORT sighandler_t sysv_signal(int sig, sighandler_t h)
{
	return set_handler(sig, h, (int)SA_RESETHAND | SA_NODEFER, false);
}
PLX_ALIAS(__sysv_signal, sysv_signal);

PLX_EXPORT sighandler_t sigset(int sig, sighandler_t h)
{
	const sighandler_t hold = (sighandler_t)2;
	struct sigaction act;
	sigset_t set;
	uint64_t was;

	sigemptyset(&set);
	if (sigaddset(&set, sig))
		return SIG_ERR;
	if (h == hold) {
		was = block(BIT(sig));
		if (sigaction(sig, NULL, &act))
			return SIG_ERR;
		return was & BIT(sig) ? hold : act.sa_handler;
	}
	h = set_handler(sig, h, 0, false);
	if (h == SIG_ERR)
		return SIG_ERR;
	plx_sys4(SYS_rt_sigprocmask, SIG_UNBLOCK, &set, &was, sizeof(was));
	return was & BIT(sig) ? hold : h;
}

PLX_EXPORT int sigignore(int sig)
{
	return set_handler(sig, SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}

PLX_EXPORT int siginterrupt(int sig, int on)
{
	struct guard *g = guard_of(sig);
	struct sigaction act;

	if (sigaction(sig, NULL, &act))
		return -1;
	if (g)
		plx_store(&g->interrupts, on != 0);
	act.sa_flags = on ? act.sa_flags & ~SA_RESTART : act.sa_flags | SA_RESTART;
	return sigaction(sig, &act, NULL);
}

long plx_guard_raw_sigaction(int sig, const void *user_act, void *user_old, size_t size)
{
	struct action in, out;
	struct sigaction act, old;
	struct guard *g = guard_of(sig);
	int saved = errno;

	if (g)
		UNGUARDED(g, plx_sys4(SYS_rt_sigaction, sig, user_act, user_old, size));
	if (!g || size != sizeof(in.mask) || plx_vfork_child_only() ||
	    (user_act && plx_copy_in(&in, user_act, sizeof(in))))
		return PLX_PASS;
	if (user_act)
		act = from_action(&in);
	if (guard_action(sig, user_act ? &act : NULL, &old, BY_ITSELF)) {
		int err = errno;

		errno = saved;
		return -err;
	}
	out = to_action(&old);
	return user_old && plx_copy_out(user_old, &out, sizeof(out)) ? -EFAULT : 0;
}
