/* SPDX-License-Identifier: MIT */
/*
 * Calls that a signal handler of the program must not meet half done.
 *
 * For a handler a system call is one step: it runs before the call, after it, or in the
 * sleep of the call. What stands in for a system call here takes locks, opens RCU sections
 * and changes variables of its thread; a handler that came in the middle and called us
 * again would wait for its own thread, or find half of a change, and one that left by
 * siglongjmp would leave a lock behind for ever. So each call notes that the thread is
 * inside. Whoever catches the signals of the process (the drop-in, signal.c) then keeps
 * the signal back and says so in `waits`, and leaving delivers it.
 *
 *   depth  how many calls deep the thread is; only the thread itself writes it
 *   waits  set by a handler of the thread that found depth > 0
 *
 * Argument. Both words belong to one thread, so there is nothing to order but what the
 * compiler does. (1) Nothing is half done while depth is 0: it is raised before the first
 * step of a call and lowered after the last. A handler that finds 0 may do anything. (2) A
 * signal is not kept for longer than a call: leaving lowers depth first and looks at waits
 * second. A handler that comes before the store is seen by the look; one that comes
 * after it runs at once. (3) A call is finite: where it sleeps until somebody else does
 * something, it is outside (PLX_OUTSIDE), and the waits that remain (a lock, a
 * grace period) are for threads that are inside calls themselves, none of which can be
 * held up by a handler. (4) Both macros undo what they did when the thread is cancelled
 * in between, and a jump out of a handler is a jump from depth 0.
 *
 * The cost is an addition, a subtraction and a test of a variable of the thread.
 */
#pragma once

#include <signal.h>
#include <stddef.h>

#include "base/atomic.h"

struct plx_inside {
	uint32_t depth;
	uint32_t waits;
	/* Handlers of the program that the thread has begun to run, as far as they are seen. */
	uint32_t handlers;
};

extern __thread struct plx_inside plx_inside;

/* 1: a handler of the program that finds its thread inside is kept back. */
extern uint32_t plx_signals_wait;

/*
 * For what no handler may interrupt: blocks all signals, unless they wait anyway.
 * (A blocked signal is not quite as if it had not come: the kernel does not drop it even
 * if it is ignored, and may wake another thread of the process with it.)
 */
struct plx_masked {
	uint64_t old, held;
	bool blocked;
};
void plx_signals_block(struct plx_masked *m);
void plx_signals_unblock(const struct plx_masked *m);

/* What the thread has blocked by the above, and the program has not. */
extern __thread uint64_t plx_signals_held;
/*
 * Within a wait for others: a signal that ends the process ends it, though it is blocked. (One with
 * a handler goes on waiting.)
 */
void plx_signals_let_end(void);

/* Delivers what waits; set once, by whoever sets `waits`. True if a handler has run. */
extern bool (*plx_signal_deliver)(void);

bool plx_inside_left(void);

#define plx_compiler_barrier() __asm__ __volatile__("" ::: "memory")

static inline uint32_t plx_inside_begin(void)
{
	uint32_t depth = plx_inside.depth;

	plx_inside.depth = depth + 1;
	plx_compiler_barrier();
	return depth;
}

static inline void plx_inside_end(const uint32_t *depth)
{
	plx_compiler_barrier();
	plx_inside.depth = *depth;
	plx_compiler_barrier();
	if (plx_unlikely(plx_inside.waits))
		(void)plx_inside_left();
}

struct plx_hold;
/* What the thread's call holds for a sleep (base/sleep.h). */
extern __thread struct plx_hold *plx_holds;

struct plx_outside {
	uint32_t depth;
	/* Not to be let go here. */
	struct plx_hold *holds;
	/* A handler that had waited has run just now. */
	bool interrupted;
};

struct plx_outside plx_outside_begin(void);
void plx_outside_end(struct plx_outside *o);

/*
 * From here to the end of the block the thread is inside. What all programs with the archive have
 * in them, and nothing cancels, calls the two functions: to undo it libgcc_s would be loaded.
 */
#define PLX_INSIDE()                                                                               \
	__attribute__((cleanup(plx_inside_end), unused)) uint32_t inside_ = plx_inside_begin()

/* From here to the end of the block it is not, however deep it was: it sleeps. */
#define PLX_OUTSIDE(name)                                                                          \
	__attribute__((cleanup(plx_outside_end), unused)) struct plx_outside name =                \
		plx_outside_begin()
