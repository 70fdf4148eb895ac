/* SPDX-License-Identifier: MIT */
/*
 * What is about to expire in the kernel is set to what is wanted when a wait begins or returns: no
 * lazy timer is forgotten by the time that says when to look.
 *
 * Mirrors: src/cache/timer.c become_lazy, unmark, time_before, plx_timers_soon, each_lazy. Two
 * timers become lazy, and may again; two waits end. With -DBEGIN two waits begin and end that are
 * counted (timers_enter and waiter_done in src/cache/wait.c), of which one is there at a time: else
 * there are no lazy timers any more. With -DLATE one of the two has slept since before timers could
 * be lazy: it is counted when it ends, unless the other is there, which looks, too.
 *
 * Checked: when nobody is on the way, the epoll's `soon` is not later than the kernel's time of any
 * timer that is lazy. With -DBEGIN: when a wait has begun, no timer is lazy that was so before and
 * has expired in the kernel by then; its event would take a slot.
 *
 * Weak memory: the store that says that a timer is lazy, and the one that takes `soon` back, wait in
 * store buffers; full barriers, and locked steps where the order counts (the change of soon by a
 * comparison is one), wait for the own ones.
 *
 * Broken variants: NO_SOON_BARRIER (none after soon was taken back), NO_LOCKED (soon is changed before
 * the timer is seen to be lazy), NO_PUT_BACK (a timer that is found and is not due is left out),
 * BACK_LATE (soon is taken back after the look); with -DBEGIN: NO_BEGIN (nothing is done when a wait
 * begins), COUNT_ENDS (a wait is not counted any more when it looks at its end), and NO_PUT_BACK;
 * with -DLATE: UNCOUNTED (the wait that has slept since before looks without being counted).
 */
#define TIMERS 2
/* How often each of the two may become lazy. */
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define MAX 9

bit lazy[TIMERS], lazy_b[TIMERS];
/* What the holder of the lock knows. */
bit lock[TIMERS], is[TIMERS];
byte armed[TIMERS];
byte soon = MAX;
bit back_b[2];
byte busy;
#ifdef BEGIN
bit counted;
/* Ghosts: it has become lazy, and all of that is over; how often. */
bit settled[TIMERS];
byte times[TIMERS];
#endif

active proctype memory()
{
endm:	do
	:: d_step { lazy_b[0] -> lazy_b[0] = 0; lazy[0] = 1 }
	:: d_step { lazy_b[1] -> lazy_b[1] = 0; lazy[1] = 1 }
	:: d_step { back_b[0] -> back_b[0] = 0; soon = MAX }
	:: d_step { back_b[1] -> back_b[1] = 0; soon = MAX }
	od
}

/* time_before: a locked step in the end. */
inline before(t)
{
	atomic {
		if
		:: t < soon -> soon = t
		:: else
		fi
	}
}

proctype setter(bit i)
{
	byte rounds = ROUNDS;

	do
	:: rounds == 0 -> break
	:: else ->
		rounds--;
		atomic { !lock[i] -> lock[i] = 1 };
		if
		:: !is[i] ->
			if
			:: armed[i] = 1
			:: armed[i] = 3
			fi;
#ifdef BEGIN
			d_step { is[i] = 1; times[i]++ };
#else
			is[i] = 1;
#endif
			lazy_b[i] = 1;
#ifndef BROKEN_NO_LOCKED
			!lazy_b[i];
#endif
			before(armed[i]);
			!lazy_b[i];
			if
			:: true		/* some word of the others speaks against it */
				-> lazy[i] = 0; is[i] = 0
			:: true
#ifdef BEGIN
				-> settled[i] = 1
#endif
			fi
		:: else
		fi;
		lock[i] = 0
	od;
	busy--
}

inline look(i)
{
	if
	:: lazy[i] ->
		atomic { !lock[i] -> lock[i] = 1 };
		if
		:: is[i] && armed[i] <= until ->
			lazy[i] = 0;
			is[i] = 0;
#ifdef BEGIN
			settled[i] = 0
#endif
#ifndef BROKEN_NO_PUT_BACK
		:: is[i] && armed[i] > until -> before(armed[i])
#endif
		:: else
		fi;
		lock[i] = 0
	:: else
	fi
}

inline soon_look()
{
	if
	:: until < soon
	:: else ->
#ifndef BROKEN_BACK_LATE
		back_b[me] = 1;
#ifndef BROKEN_NO_SOON_BARRIER
		!back_b[me];
#endif
#endif
		look(0);
		look(1);
#ifdef BROKEN_BACK_LATE
		soon = MAX
#endif
	fi
}

/* A wait ends. */
proctype ender(bit me)
{
	byte until;

	if
	:: until = 0
	:: until = 2
	fi;
	soon_look();
	busy--
}

#ifdef BEGIN
#define is_due(i) (settled[i] && armed[i] <= until)

/* A wait, from its beginning to its end. */
proctype counted_wait(bit me)
{
	byte until, were[TIMERS];

	atomic { !counted -> counted = 1 };
	d_step {
		until = 1;
		were[0] = (is_due(0) -> times[0] : 0);
		were[1] = (is_due(1) -> times[1] : 0)
	};
#ifndef BROKEN_NO_BEGIN
	soon_look();
#endif
	d_step {
		assert(!(is[0] && were[0] && were[0] == times[0]));
		assert(!(is[1] && were[1] && were[1] == times[1]));
		were[0] = 0;
		were[1] = 0
	};
#ifdef BROKEN_COUNT_ENDS
	counted = 0;
#endif
	until = 2;
	soon_look();
#ifndef BROKEN_COUNT_ENDS
	counted = 0;
#endif
	busy--
}

/* The end of one that has slept since before. */
proctype late_wait(bit me)
{
	byte until = 2;

#ifdef BROKEN_UNCOUNTED
	soon_look();
#else
	bit alone;

	atomic { alone = !counted; counted = 1 };
	if
	:: alone ->
		soon_look();
		counted = 0
	:: else
	fi;
#endif
	busy--
}
#endif

init {
	atomic {
		busy = 4;
		run setter(0);
		run setter(1);
#ifdef BEGIN
		run counted_wait(0);
#ifdef LATE
		run late_wait(1)
#else
		run counted_wait(1)
#endif
#else
		run ender(0);
		run ender(1)
#endif
	};
	busy == 0 && !back_b[0] && !back_b[1];
	assert((!is[0] || soon <= armed[0]) && (!is[1] || soon <= armed[1]))
}
