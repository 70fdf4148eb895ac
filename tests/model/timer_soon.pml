/* SPDX-License-Identifier: MIT */
/*
 * What is about to expire in the kernel is set to what is wanted when a wait begins or returns: no
 * lazy timer is forgotten by the time that says when to look.
 *
 * Mirrors: src/posix/timer.c become_lazy, unmark, time_before, plx_timers_soon, each_lazy. Two
 * timers become lazy, and may again; two waits end.
 *
 * Checked: when nobody is on the way, the front's `soon` is not later than the kernel's time of any
 * timer that is lazy.
 *
 * Weak memory: the store that says that a timer is lazy, and the one that takes `soon` back, wait in
 * store buffers; full barriers, and locked steps where the order counts (the change of soon by a
 * comparison is one), wait for the own ones.
 *
 * Broken variants: NO_SOON_BARRIER (none after soon was taken back), NO_LOCKED (soon is changed before
 * the timer is seen to be lazy), NO_PUT_BACK (a timer that is found and is not due is left out),
 * BACK_LATE (soon is taken back after the look).
 */
#define TIMERS 2
#define MAX 9

bit lazy[TIMERS], lazy_b[TIMERS];
/* What the holder of the lock knows. */
bit lock[TIMERS], is[TIMERS];
byte armed[TIMERS];
byte soon = MAX;
bit back_b[2];
byte busy;

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
	byte rounds = 2;

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
			is[i] = 1;
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
		:: is[i] && armed[i] <= until -> lazy[i] = 0; is[i] = 0
#ifndef BROKEN_NO_PUT_BACK
		:: is[i] && armed[i] > until -> before(armed[i])
#endif
		:: else
		fi;
		lock[i] = 0
	:: else
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
	fi;
	busy--
}

init {
	atomic {
		busy = 4;
		run setter(0);
		run setter(1);
		run ender(0);
		run ender(1)
	};
	busy == 0 && !back_b[0] && !back_b[1];
	assert((!is[0] || soon <= armed[0]) && (!is[1] || soon <= armed[1]))
}
