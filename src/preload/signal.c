/* SPDX-License-Identifier: MIT */
/*
 * sigaction, signal (bsd_signal, ssignal), sysv_signal, sigset, sigignore, siginterrupt
 *
 * Once there is something to serve, the kernel's action for a signal that the program
 * handles is a function of ours. The kernel's action carries the program's mask and flags, so
 * that its handler runs under the conditions it asked for. Ours stands in between for two reasons:
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
 * What the program has installed is kept by the kernel. Each action of a program, which has few of
 * them, is written once into a table, and each place of the table has an entry of its own, a few
 * instructions that are the handler which the kernel is given. So the kernel's action says which
 * one of the program it stands for.
 *
 * Argument. (1) One system call installs an action and returns the one before: the order of
 * changes, what each of them returns, and which handler a signal meets with which mask and flags,
 * are the kernel's, in all threads, in handlers, and in the child of a fork at any instruction.
 * There is no lock, and nothing that a handler could find half done. (2) A place is claimed,
 * written, and then ready; nothing changes it afterwards. The kernel is given its entry after that,
 * and a system call orders the two for whoever is called. Two threads may write the same action to
 * two places; a handler that leaves by a jump, or a fork, may leave one that is never ready: either
 * costs a place. (3) Where there is no place left all is the kernel's from then on, as in a
 * sandbox. (4) What is put in place of an action that nobody has just set (a default after the
 * first call, guard) may meet a change by another thread: who gets that back from the kernel puts
 * it in again, until nobody has come in between. Just then a change may be told that there was none
 * before. (5) Before the process is prepared the call is the program's own; who prepares waits for
 * its end (cache/cold.h). The model is tests/model/actions.pml.
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
 * Faults run at once: they belong to the instruction. (One that was sent waits as all others do;
 * then SIGSEGV is blocked until its thread leaves, and a bad pointer ends the process.) So does a
 * SIGABRT of abort. In a sandbox
 * that the process has put on itself, all do: its filter may not know our calls. Nothing is ours
 * any more by then, so the process does as the child of a vfork does: all that it calls is libc's.
 * Under ThreadSanitizer all run at once, too: it runs handlers where it likes, outside of signal
 * frames.
 */
#include "preload/preload.h"

#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "aio/aio.h"
#include "base/inside.h"
#include "base/sanitizer.h"
#include "base/sleep.h"
#include "base/stats.h"
#include "base/sys.h"

#define RESTORER 0x04000000ul
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
/* Somebody has sent it: it belongs to no instruction. */
#define IS_SENT(info) ((info)->si_code <= 0)

/* A struct sigaction as the kernel has it. */
struct action {
	void (*handler)(int, siginfo_t *, void *);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

/*
 * A flag of an action that libc's function has been asked for, which gives each its own restorer:
 * that is in the kernel's action.
 */
#define OF_LIBC (1ul << 32)

/* An action of the program. It does not change once it is ready. */
struct place {
	struct action is;
	uint32_t state;
};
enum { FREE, BEING_WRITTEN, READY };

#define ACTIONS 256
_Static_assert(ACTIONS == 256, "so many entries are below");
static PLX_LARGE struct place actions[ACTIONS];

/* What the kernel calls: one for each action, at a distance of ENTRY. */
#define ENTRY 16u
extern __attribute__((visibility("hidden"))) const char plx_signal_entries[];
/* clang-format off */
__asm__(".pushsection .text\n"
	".balign 16\n"
	".globl plx_signal_entries\n"
	".hidden plx_signal_entries\n"
	".type plx_signal_entries, %function\n"
	"plx_signal_entries:\n"
	".cfi_startproc\n"
	".set plx_entry, 0\n"
	".rept 256\n"
#if defined(__x86_64__)
	"	endbr64\n"
	"	movl $plx_entry, %ecx\n"
	"	jmp plx_signal\n"
#else
	"	hint #34\n"
	"	mov w3, #plx_entry\n"
	"	b plx_signal\n"
#endif
	"	.balign 16\n"
	".set plx_entry, plx_entry + 1\n"
	".endr\n"
	".cfi_endproc\n"
	".size plx_signal_entries, .-plx_signal_entries\n"
	".popsection\n");
/* clang-format on */

/* Counts how often a signal has lost its handler: what was kept for that is void. */
static PLX_LARGE uint32_t losses[SIGNALS];
/* Signals for which the program has, or has had, a handler. */
static uint64_t handled;
/* Those of siginterrupt. */
static uint64_t interrupting;
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

static bool deliver(void);

static bool may_guard(int sig)
{
	return sig > 0 && sig < SIGNALS && !(BIT(sig) & (UNCATCHABLE | LIBC_SIGNALS));
}

static bool is_memory(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS;
}

static bool is(const struct action *act, sighandler_t h)
{
	return (uintptr_t)act->handler == (uintptr_t)h;
}

/* The signals in a set of libc's. */
static uint64_t *bits(sigset_t *set)
{
	return (uint64_t *)set;
}

static bool is_entry(uintptr_t pc)
{
	uintptr_t at = pc - (uintptr_t)plx_signal_entries;

	return at < ACTIONS * ENTRY && at % ENTRY == 0;
}

/* The program's action for which that of the kernel stands; NULL: it is the program's own. */
static const struct place *place_at(const struct action *kernel)
{
	uintptr_t at = (uintptr_t)kernel->handler;

	return is_entry(at) ? &actions[(at - (uintptr_t)plx_signal_entries) / ENTRY] : NULL;
}

/* What the program is told of it. */
static void show(struct action *kernel)
{
	const struct place *a = place_at(kernel);
	struct action was = *kernel;

	if (!a)
		return;
	*kernel = a->is;
	if (a->is.flags & OF_LIBC) {
		kernel->flags = (a->is.flags & ~OF_LIBC) | (was.flags & RESTORER);
		kernel->restorer = was.restorer;
	}
}

static bool is_same(const struct action *a, const struct action *b)
{
	return a->handler == b->handler && a->mask == b->mask && a->flags == b->flags &&
	       a->restorer == b->restorer;
}

/* The place of an action in the table, or -1. */
static long place_of(const struct action *want)
{
	uint64_t h =
		((uintptr_t)want->handler ^ want->mask << 7 ^ want->flags) * 0x9e3779b97f4a7c15ull;

	for (uint32_t i = 0; i < ACTIONS; i++) {
		uint32_t at = ((uint32_t)(h >> 32) + i) % ACTIONS;
		struct place *a = &actions[at];
		uint32_t state = plx_load_acq(&a->state);

		if (state == FREE && plx_cas(&a->state, &state, BEING_WRITTEN)) {
			a->is = *want;
			plx_store_rel(&a->state, READY);
			return at;
		}
		if (plx_likely(state == READY && is_same(&a->is, want)))
			return at;
	}
	return -1;
}

/* Who asks: libc's functions give every action their own restorer, a bare call as it is. */
enum caller {
	BY_LIBC,
	BY_ITSELF,
};

/* What the program wants becomes what the kernel has to do. False: that is the same. */
static bool stand_in(int sig, struct action *act, enum caller by)
{
	bool fault = is_memory(sig), handler = !is(act, SIG_DFL) && !is(act, SIG_IGN);
	struct action want = *act;
	long at;

	if (handler) {
		if (!(plx_load(&handled) & BIT(sig)))
			(void)plx_or(&handled, BIT(sig));
	} else {
		(void)plx_xadd(&losses[sig], 1);
		if (is(act, SIG_IGN) || !(fault || (sig == SIGUSR2 && plx_stats_wanted)))
			return false;
	}
	want.flags &= (unsigned int)KNOWN_FLAGS;
	want.mask &= ~UNCATCHABLE;
	if (by == BY_LIBC) {
		want.flags = (want.flags & ~RESTORER) | OF_LIBC;
		want.restorer = NULL;
	}
	at = place_of(&want);
	if (plx_unlikely(at < 0)) {
		plx_px_ends(PLX_OUT_SYSCALL);
		(void)plx_or(&plx_px_no_adopt, ~0u);
		plx_aio_hand_over_all();
		plx_guard_keep_none();
		return false;
	}
	act->handler = (void *)(plx_signal_entries + at * ENTRY);
	act->flags = (want.flags & ~(SA_RESETHAND | OF_LIBC)) | SA_SIGINFO;
	if (!handler) {
		act->flags = SA_SIGINFO | (fault ? SA_ONSTACK : SA_RESTART);
		act->mask = 0;
	}
	/*
	 * What is kept while a fault is answered would be kept with the mask of that: the thread's
	 * own would be lost (keep).
	 */
	if (fault || !handler)
		act->mask |= MAY_WAIT;
	return true;
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

/* Of a set of libc's only the signals that there are: that is all that libc's function says, too.
 */
static inline void from_action(struct sigaction *act, const struct action *a)
{
	act->sa_sigaction = a->handler;
	act->sa_flags = (int)a->flags;
	act->sa_restorer = a->restorer;
	*bits(&act->sa_mask) = a->mask;
}

static inline long bare_call(int sig, const struct action *act, struct action *old)
{
	return plx_sys4(SYS_rt_sigaction, sig, act, old, sizeof(act->mask));
}

/*
 * What libc's function adds to an action, once it is known; it is asked for when a process has set
 * LEARN actions. From then on the system call is made here: a return of one function more after a
 * system call costs a tenth of it. Libc's function stays in use where another library has one of
 * that name, which may want to know (libjsig, a sanitizer's run-time).
 */
static struct {
	uint32_t known, sets;
	unsigned long flags;
	void (*restorer)(void);
} libc;
#define LEARN 8

static void learn(int sig, const struct action *act)
{
	struct action now;

	if (plx_real_anywhere("sigaction") != plx_real_anywhere("__sigaction") ||
	    bare_call(sig, NULL, &now) || now.handler != act->handler)
		return;
	libc.flags = now.flags & RESTORER;
	libc.restorer = now.restorer;
	plx_store_rel(&libc.known, 1);
}

static __attribute__((noinline)) long by_libc(int sig, const struct action *act, struct action *old)
{
	struct sigaction in, out;

	if (act)
		from_action(&in, act);
	if (plx_real.sigaction(sig, act ? &in : NULL, &out))
		return -errno;
	if (old)
		*old = to_action(&out);
	if (act && plx_xadd(&libc.sets, 1) == LEARN)
		learn(sig, act);
	return 0;
}

/* Changes the kernel's action. */
static inline long change(int sig, struct action *act, struct action *old, enum caller by)
{
	if (by == BY_LIBC) {
		if (plx_unlikely(!plx_load_acq(&libc.known)))
			return by_libc(sig, act, old);
		if (act) {
			act->flags |= libc.flags;
			act->restorer = libc.restorer;
		}
	}
	return bare_call(sig, act, old);
}

static long now(int sig, struct action *kernel)
{
	return change(sig, NULL, kernel, BY_LIBC);
}

/* In place of `from`. What comes in between is put in again, and what comes in between then. */
static void replace(int sig, struct action from, struct action to, enum caller by)
{
	struct action was;

	while (!change(sig, &to, &was, by) && was.handler != from.handler) {
		from = to;
		to = was;
	}
}

/* What was installed past us, or before. */
static void guard(int sig)
{
	struct action was, act;

	if (!may_guard(sig) || now(sig, &was) || place_at(&was))
		return;
	act = was;
	if (stand_in(sig, &act, BY_ITSELF))
		replace(sig, was, act, BY_LIBC);
}

void plx_guard_install(void)
{
	plx_store(&plx_signal_deliver, deliver);
	for (int sig = 1; sig < SIGNALS; sig++)
		guard(sig);
	plx_store(&plx_signals_wait, !keep_none && !TSAN);
	plx_store(&plx_sleeps_seen, !keep_none && !TSAN && !plx_tsan_here());
}

void plx_guard_statistics(void)
{
	guard(SIGUSR2);
}

PLX_CHILD_CODE void plx_guard_after_fork(bool cleared)
{
	/* Pending signals stay with the parent, and so does one that it keeps. */
	if (plx_unlikely(nkept || carriers) && kept_process != plx_sys0(SYS_getpid)) {
		nkept = 0;
		carriers = bare = 0;
	}
	if (!cleared)
		return;
	if (plx_stats_wanted)
		plx_guard_statistics();
	if (plx_load(&plx_active))
		plx_guard_install();
}

/* What ours would do by calls that the program does not make, the kernel does. */
static void give_back(int sig)
{
	struct action was, act;
	const struct place *a;

	if (!may_guard(sig) || now(sig, &was) || !(a = place_at(&was)))
		return;
	act = was;
	show(&act);
	if (is(&act, SIG_DFL) || (act.flags & SA_RESETHAND))
		replace(sig, was, act, BY_LIBC);
}

/* The process is about to put itself into a sandbox. */
void plx_guard_keep_none(void)
{
	keep_none = true;
	(void)plx_or(&plx_used, PLX_USED_VFORK);
	plx_store(&plx_sleeps_seen, 0);
	plx_store(&plx_signals_wait, 0);
	for (int sig = 1; sig < SIGNALS; sig++)
		give_back(sig);
}

PLX_CHILD_CODE bool plx_guard_keeps_none(void)
{
	return keep_none;
}

/* While the process is not prepared nothing stands in, but for statistics. */
static bool stands_in(int sig)
{
	return plx_load_acq(&plx_active) || (plx_stats_wanted && sig == SIGUSR2);
}

/* Returns the result of the program's own call, unless the process is prepared. */
#define OWN_CALL(sig, call)                                                                        \
	while (plx_unlikely(!stands_in(sig))) {                                                    \
		{                                                                                  \
			PLX_COLD_CALL(.what = PLX_COLD_CHANGE);                                    \
			if (plx_load_acq(&plx_cold) < PLX_COLD_PREPARING)                          \
				return (call);                                                     \
		}                                                                                  \
		plx_cold_await();                                                                  \
	}

/* One frame, after the system call as well. */
static inline __attribute__((always_inline)) long set_action(int sig, struct action *act,
							     struct action *old, enum caller by)
{
	long r;

	OWN_CALL(sig, change(sig, act, old, by));
	/* Signals of the child of a vfork are its own. In a sandbox ours are not needed. */
	if (act && !plx_vfork_child() && stand_in(sig, act, by))
		/* What stands in needs a restorer. */
		by = BY_LIBC;
	r = change(sig, act, old, by);
	if (old)
		show(old);
	return r;
}

static long send_self(int sig, siginfo_t *info)
{
	return plx_sys4(SYS_rt_tgsigqueueinfo, plx_sys0(SYS_getpid), plx_sys0(SYS_gettid), sig,
			info);
}

/* The default for this signal: as if the handler had never been there. */
static __attribute__((noinline)) void die(int sig, siginfo_t *info)
{
	struct action dfl = {.flags = 0};

	bare_call(sig, &dfl, NULL);
	/* A fault repeats by itself; a signal that was sent has to be sent again. */
	if (info->si_code <= 0)
		send_self(sig, info);
}

/* As the kernel would have it for the program's handler. */
static void set_mask_of(int sig, const struct place *a, ucontext_t *context)
{
	uint64_t mask = *bits(&context->uc_sigmask) | a->is.mask |
			(a->is.flags & SA_NODEFER ? 0 : BIT(sig));

	plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

/* What the thread sleeps in is over before the handler begins. */
static void leave_sleep(int sig, const struct place *a, void *context)
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
		set_mask_of(sig, a, context);
	}
}

/* It has been called: the default is next. */
static __attribute__((noinline)) void reset(int sig, const struct place *a)
{
	enum caller by = BY_ITSELF;
	struct action was, dfl;
	int saved = errno;

	if (!now(sig, &was) && place_at(&was) == a) {
		dfl = was;
		show(&dfl);
		dfl.handler = NULL;
		if (stand_in(sig, &dfl, BY_ITSELF) || (a->is.flags & OF_LIBC))
			by = BY_LIBC;
		replace(sig, was, dfl, by);
	}
	errno = saved;
}

/*
 * The program may have given its handlers little more than the kernel's own frame takes, on an
 * alternate stack: what is below this, and in those who call it, is small.
 */
static void run_handler(int sig, const struct place *a, siginfo_t *info, void *context)
{
	leave_sleep(sig, a, context);
	/* Until now more was blocked than the program has asked for (stand_in). */
	if (is_memory(sig))
		set_mask_of(sig, a, context);
	if (a->is.flags & SA_RESETHAND)
		reset(sig, a);
	plx_inside.handlers++;
	a->is.handler(sig, info, context);
}

static void fault(int sig, const struct place *a, siginfo_t *info, void *context)
{
	if (plx_uaccess_fixup(context))
		return;
	if (is(&a->is, SIG_DFL))
		die(sig, info);
	else
		run_handler(sig, a, info, context);
}

static void statistics(void)
{
	int saved = errno;

	plx_px_stats_print(true);
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

static void kept_add(int sig, const siginfo_t *info)
{
	struct kept *k = &kept[nkept++];

	k->info = *info;
	k->sig = sig;
	k->losses = plx_load(&losses[sig]);
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
static void put_by(int sig, siginfo_t *info)
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
		kept_add(sig, info);
	else
		send_self(sig, info);
}

/* The thread is inside: the signal waits, and so do all others from the return on. */
static void keep(int sig, siginfo_t *info, ucontext_t *context)
{
	uint64_t all = that_wait(sig);

	/* One that came before has been kept, with a mask of no use; none comes from here on. */
	block(all);
	put_by(sig, info);
	kept_mask = *bits(&context->uc_sigmask);
	*bits(&context->uc_sigmask) |= all;
	/* Blocked only until a handler of libc's returns, which this one has interrupted. */
	kept_mask &= ~LIBC_SIGNALS;
	plx_inside.waits = 1;
}

/* The signal has interrupted another handler, before what that one had interrupted was over. */
static void come_later(int sig, siginfo_t *info, ucontext_t *context)
{
	block(that_wait(sig));
	put_by(sig, info);
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
static bool waits(int sig, siginfo_t *info, void *context)
{
	uint64_t may = MAY_WAIT | (IS_SENT(info) ? FAULTS : 0);
	enum plx_sleep_signal now;

	if (!(BIT(sig) & may) || !plx_load(&plx_signals_wait) || is_abort(sig, info))
		return false;
	now = plx_inside.depth ? PLX_SIGNAL_IS_KEPT
			       : plx_sleep_interrupted(plx_sleep_context(context, is_entry));
	if (now == PLX_SIGNAL_IS_KEPT)
		keep(sig, info, context);
	else if (now == PLX_SIGNAL_COMES_LATER)
		come_later(sig, info, context);
	return now != PLX_SIGNAL_RUNS;
}

/* Which siginfo the handler gets: *info, or the one that is kept longest; false if none. */
static bool take_turn(int sig, const siginfo_t *info, siginfo_t *first)
{
	uint64_t mask = block(that_wait(sig));
	bool carrier = came(sig, info), turn = !carrier;
	int i;

	*first = *info;
	while ((i = kept_first(sig)) >= 0 && kept[i].losses != plx_load(&losses[sig]))
		kept_drop(i);
	if (i >= 0) {
		turn = true;
		*first = kept[i].info;
		kept_drop(i);
		if (!carrier)
			kept_add(sig, info);
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
	siginfo_t info = kept[i].info;
	const struct place *a;
	struct action kernel;
	ucontext_t context;

	kept_drop(i);
	if (now(sig, &kernel) || !(a = place_at(&kernel)) || is(&a->is, SIG_DFL) ||
	    !context_here(&context))
		return mask;
	*bits(&context.uc_sigmask) = mask;
	set_mask(a->is.mask | mask | BIT(sig));
	run_handler(sig, a, &info, &context);
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

static __attribute__((noinline)) void run_in_turn(int sig, const struct place *a,
						  const siginfo_t *info, void *context)
{
	siginfo_t first;

	if (take_turn(sig, info, &first))
		run_handler(sig, a, &first, context);
}

static void caught(int sig, const struct place *a, siginfo_t *info, void *context)
{
	if (waits(sig, info, context))
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
		run_in_turn(sig, a, info, context);
	else
		run_handler(sig, a, info, context);
}

__attribute__((used, visibility("hidden"))) void plx_signal(int sig, siginfo_t *info, void *context,
							    uint32_t at);
/* From the entries. */
void plx_signal(int sig, siginfo_t *info, void *context, uint32_t at)
{
	const struct place *a = &actions[at];

	/* It is; ThreadSanitizer sees by this that it has been written before. */
	if (plx_load_acq(&a->state) != READY)
		return;
	if (is_memory(sig) && !IS_SENT(info))
		fault(sig, a, info, context);
	else if (is_memory(sig) && is(&a->is, SIG_DFL))
		die(sig, info);
	else if (plx_unlikely(is(&a->is, SIG_DFL)))
		statistics();
	else
		caught(sig, a, info, context);
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
	struct action want, was;
	long r;

	if (!may_guard(sig))
		return plx_real.sigaction(sig, act, old);
	if (act)
		want = to_action(act);
	r = set_action(sig, act ? &want : NULL, old ? &was : NULL, BY_LIBC);
	if (r == 0 && old)
		from_action(old, &was);
	return (int)plx_result(r);
}
PLX_ALIAS(__sigaction, sigaction);

static sighandler_t set_handler(int sig, sighandler_t h, unsigned long flags, bool self)
{
	struct action act = {.handler = (void *)h, .flags = flags}, old;

	if (h == SIG_ERR || !may_guard(sig)) {
		errno = EINVAL;
		return SIG_ERR;
	}
	if (self)
		act.mask = BIT(sig);
	if (plx_result(set_action(sig, &act, &old, BY_LIBC)))
		return SIG_ERR;
	return (sighandler_t)(uintptr_t)old.handler;
}

PLX_EXPORT sighandler_t signal(int sig, sighandler_t h)
{
	bool interrupts = may_guard(sig) && (plx_load(&interrupting) & BIT(sig));

	return set_handler(sig, h, interrupts ? 0 : SA_RESTART, true);
}
sighandler_t bsd_signal(int sig, sighandler_t h);
PLX_ALIAS(bsd_signal, signal);
PLX_ALIAS(ssignal, signal);

PLX_EXPORT sighandler_t sysv_signal(int sig, sighandler_t h)
{
	return set_handler(sig, h, SA_RESETHAND | SA_NODEFER, false);
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
	struct sigaction act;

	if (sigaction(sig, NULL, &act))
		return -1;
	if (on)
		(void)plx_or(&interrupting, BIT(sig));
	else
		(void)plx_and(&interrupting, ~BIT(sig));
	act.sa_flags = on ? act.sa_flags & ~SA_RESTART : act.sa_flags | SA_RESTART;
	return sigaction(sig, &act, NULL);
}

long plx_guard_raw_sigaction(int sig, const void *user_act, void *user_old, size_t size)
{
	struct action act, old;
	int saved = errno;
	long r;

	if (!may_guard(sig))
		return PLX_PASS;
	OWN_CALL(sig, plx_sys4(SYS_rt_sigaction, sig, user_act, user_old, size));
	if (size != sizeof(act.mask))
		return PLX_PASS;
	/* Nobody may answer a fault: the kernel looks at the pointers, and has written there. */
	if (plx_vfork_child()) {
		r = plx_sys4(SYS_rt_sigaction, sig, user_act, user_old, size);
		if (r == 0 && user_old) {
			memcpy(&old, user_old, sizeof(old));
			show(&old);
			memcpy(user_old, &old, sizeof(old));
		}
		return r;
	}
	if (user_act && plx_copy_in(&act, user_act, sizeof(act)))
		return PLX_PASS;
	r = set_action(sig, user_act ? &act : NULL, &old, BY_ITSELF);
	errno = saved;
	return r == 0 && user_old && plx_copy_out(user_old, &old, sizeof(old)) ? -EFAULT : r;
}
