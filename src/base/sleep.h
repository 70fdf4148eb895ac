/* SPDX-License-Identifier: MIT */
/*
 * Sleeps that handlers of the program end.
 *
 * In the kernel no handler ever runs within a sleep: a call that a signal interrupts has left all
 * queues and let go of its file before the handler begins, and after it the call begins anew, or
 * fails. So it is here, where somebody catches the signals of the process (signal.c): what a call
 * holds for its sleep it names (PLX_HOLD_PUSH), and who catches a signal lets go of all of it
 * before the program's handler runs. Then nothing is left that a handler could keep others from, or
 * leave behind by a jump or by a switch of stacks, and the call, if the handler returns to it, sees
 * that its sleep is over and touches nothing any more.
 *
 *   asleep       the sleep that the thread is in; NULL as soon as that is over
 *   plx_holds    what its call holds, the innermost first
 *   phase, over  of a sleep; written by its thread and by handlers of that
 *
 * Argument. All of it belongs to one thread; what can come in between is a handler. Handlers
 * of the program run where the depth is 0 (inside.h): within a call that is between the store of 0
 * in plx_sleep and the store of the old depth in sleep_end. That part is divided by the place of
 * the instruction that has been interrupted, which the handler is told, and by `phase`:
 *
 *   1. Before the first instruction of the window: phase is BEFORE. What is held is let go, and
 *      `over` is set. The window looks at it.
 *   2. In the window, from that look to the system call: the same, and the handler's return is led
 *      to the window's other exit, as if the look had found it. A system call that the kernel is to
 *      begin again (SA_RESTART) has its return there, too.
 *   3. At the instruction behind the system call with -EINTR: the signal has ended the sleep, there
 *      is nothing in its hand. Let go.
 *   4. There with any other result, or behind, where phase is DONE: the call has slept, and what it
 *      has got in its hand is still to be seen to. The signal is kept until it is done (inside.h).
 *   5. At the first instruction of a handler of ours: the kernel has begun several at once, and the
 *      last one runs first. What counts is what the first of them has interrupted. (To put this one
 *      off would be wrong: by then the mask that the call had for its sleep is gone.)
 *   6. Elsewhere with phase CALL: another handler lies between, of libc or one that has just begun.
 *      Whether the sleep is over is for that one to see, or for nobody: the signal is sent
 *      again, blocked until that one returns, and then comes to one of the places above.
 *
 * Who ends a sleep is inside from before asleep is NULL until all is let go: a handler that
 * comes meanwhile is kept, and begins where nothing is held. It is not cancelled, either: the sleep
 * may be at any instruction, what lets go may not.
 *
 * So a sleep never begins after what would have to wake it has been taken back, and no result is
 * thrown away. Where nobody sees the handlers, or they run elsewhere than where they interrupt
 * (ThreadSanitizer), plx_sleeps_seen is 0 and sleeps are libc's own.
 *
 * The model is tests/model/sleep.pml.
 */
#pragma once

#include <errno.h>
#include <pthread.h>

#include "base/inside.h"

/* Handlers of the program are seen, at the instruction that they interrupt. */
extern uint32_t plx_sleeps_seen;

/* epoll_pwait2 is not known to the kernel (ENOSYS) or to a sandbox (EPERM): nor will it be. */
extern uint32_t plx_pwait2_refused;

static inline bool plx_pwait2_refuses(long r)
{
	if (plx_likely(r != -ENOSYS && r != -EPERM))
		return false;
	plx_store(&plx_pwait2_refused, 1);
	return true;
}

/* --- what a call holds -------------------------------------------------------------------- */

struct plx_hold {
	/* NULL once it has been let go. */
	void (*let_go)(void *);
	void *arg;
	struct plx_hold *outer;
	bool linked;
};

void plx_hold_cancelled(void *hold);

static inline void plx_hold_begin(struct plx_hold *h)
{
	h->linked = plx_load(&plx_sleeps_seen);
	if (plx_unlikely(!h->linked))
		return;
	h->outer = plx_holds;
	/*
	 * Who lets go takes it off the list, elsewhere: gcc 14 sees only that plx_hold_end does
	 * not, and calls the pointer dangling. It need not know whose address this is.
	 */
	__asm__("" : "+r"(h));
	plx_holds = h;
}

static inline void plx_hold_end(struct plx_hold *h, bool run)
{
	if (plx_unlikely(!h->let_go))
		return;
	if (plx_likely(h->linked))
		plx_holds = h->outer;
	if (run)
		h->let_go(h->arg);
}

/* As pthread_cleanup_push and pop; fn(argument) runs also if a handler ends a sleep in between. */
#define PLX_HOLD_PUSH(fn, argument)                                                                \
	{                                                                                          \
		struct plx_hold hold_ = {.let_go = (fn), .arg = (argument)};                       \
		plx_hold_begin(&hold_);                                                            \
		pthread_cleanup_push(plx_hold_cancelled, &hold_)
#define PLX_HOLD_POP(run)                                                                          \
	pthread_cleanup_pop(0);                                                                    \
	plx_hold_end(&hold_, (run));                                                               \
	}

/* --- sleeping ----------------------------------------------------------------------------- */

/*
 * What a sleep returns that a handler has ended. Whoever gets one of these holds nothing of what it
 * has named any more, and hands it on to where the call began. There
 *
 *   ANEW    the call begins anew, as if it had been made after the handler
 *   LOOK    so it does, but does not sleep: it is interrupted if it would
 *   BROKEN  it is interrupted
 */
#define PLX_SLEEP_ANEW (-65537)
#define PLX_SLEEP_LOOK (-65538)
#define PLX_SLEEP_BROKEN (-65539)

static inline bool plx_sleep_is_over(long r)
{
	return plx_unlikely(r <= PLX_SLEEP_ANEW);
}

struct plx_sleep {
	uint32_t phase;
	uint32_t over;
	uint32_t depth;
	/* What the thread's type is otherwise, if it can be cancelled in it. */
	int cancel_type;
	bool cancellable;
	/* Of the system call; set by the caller. */
	long args[6];
};

/*
 * The system call nr, outside, and as a cancellation point: its result, or one of the above. Only
 * where sleeps are seen. masked: it has a mask, so handlers before the sleep itself are handlers
 * before the call.
 */
long plx_sleep(struct plx_sleep *s, bool masked, long nr);
/* For who catches a signal: what becomes of it where the thread is. */
enum plx_sleep_signal {
	/* The handler runs; first plx_sleep_aside. */
	PLX_SIGNAL_RUNS,
	/* It is kept until the thread has left its call. */
	PLX_SIGNAL_IS_KEPT,
	/* It comes again when the handler that it has interrupted returns. */
	PLX_SIGNAL_COMES_LATER,
};
enum plx_sleep_signal plx_sleep_interrupted(const void *context);
/*
 * Where the thread was before the kernel began handlers, of which this one, told context, is the
 * last: it may begin several at once, and interrupts each of them before its first instruction.
 */
void *plx_sleep_context(void *context, bool (*handler)(uintptr_t pc));
/* The sleep, if there is one, is over; context is where the handler returns to. */
void plx_sleep_aside(void *context);
/* A handler runs that cannot wait, wherever the thread is: it is none the wiser. */
void plx_sleep_forget(void);
/*
 * A call of libc's that does nothing but be a cancellation point; set before a thread is cancelled,
 * and NULL until then.
 */
extern void (*plx_cancel_waits)(void);
/* libc's pthread_setcanceltype, which the drop-in stands in front of. */
extern int (*plx_set_cancel_type)(int type, int *old);
