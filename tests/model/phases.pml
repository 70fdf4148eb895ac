/* SPDX-License-Identifier: MIT */
/*
 * A grace period in steps.
 *
 * Mirrors: src/rcu/rcu.c gp_advance; src/rcu/bp.c plx_urcu_look, plx_urcu_flip; liburcu's
 * readers. Whoever makes a grace period goes as far as the readers let him, and goes on, or another
 * does, when it looks again. Objects are removed and freed one after the other, each by a grace
 * period of its own.
 *
 * Checked: nobody touches an object after it was freed.
 *
 * Weak memory: a reader's word is a plain store that waits in its store buffer, which the barrier
 * in all threads empties. A reader loads
 * the phase and stores it later, so that it may be an old one by then. (Loads and later stores keep
 * their order on x86. Elsewhere a second barrier in all threads keeps them: END_BARRIER is not a
 * variant here, since the model has the order anyway.)
 *
 * Broken variants: NO_BARRIER (readers are looked at while a section's beginning is in a store
 * buffer), NO_FIRST (the phase is flipped though a section of the phase before is open), NO_SECOND
 * (the flip is the end), NONE_IS_CURRENT (no flip is thought to be needed where only sections of
 * the current phase are open).
 */

#define READERS 2
#define OBJECTS 3
#define ENTRIES 3

/* 0: in no section; else the phase plus one. */
byte ctr[READERS], buf[READERS];
bit buffered[READERS];
bit phase;
byte linked = 1, freed;

inline flush(r)
{
	if
	:: buffered[r] -> ctr[r] = buf[r]; buffered[r] = 0
	:: else
	fi
}

proctype memory(byte r)
{
endm:	do
	:: atomic { buffered[r] -> ctr[r] = buf[r]; buffered[r] = 0 }
	od
}

inline store(value)
{
	/* One place in the buffer: the one before leaves it first. */
	atomic { flush(me); buf[me] = value; buffered[me] = 1 }
}

proctype reader(byte me)
{
	byte n, found;
	bit p;

	do
	:: n == ENTRIES -> break
	:: else ->
		n++;
		p = phase;
		store(p + 1);
		found = linked;
		assert(found > freed);
		assert(found > freed);
		store(0)
	od
}

#define OLD(r) (ctr[r] && ctr[r] != phase + 1)

active proctype maker()
{
	byte n, r;
	bit current;

	do
	:: n == OBJECTS -> break
	:: else ->
		n++;
		/* Object n is replaced by the next: who finds that does not find it. */
		linked = n + 1;
#ifndef BROKEN_NO_BARRIER
		atomic { flush(0); flush(1) };
#endif
		current = 0;
#ifndef BROKEN_NO_FIRST
		r = 0;
		do
		:: r == READERS -> break
		:: else ->
			atomic { !OLD(r) -> current = current || ctr[r]; r++ }
		od;
#else
		current = 1;
#endif
#ifdef BROKEN_NONE_IS_CURRENT
		current = 0;
#endif
		if
		:: current ->
			phase = !phase;
#ifndef BROKEN_NO_SECOND
			r = 0;
			do
			:: r == READERS -> break
			:: else ->
				atomic { !OLD(r) -> r++ }
			od
#endif
		:: else
		fi;
		freed = n
	od
}

init {
	atomic {
		run reader(0);
		run reader(1);
		run memory(0);
		run memory(1)
	}
}
