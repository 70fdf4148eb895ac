/* SPDX-License-Identifier: MIT */
/*
 * One wait asks our side and then the kernel's, while an item goes from here to there: it is given
 * out by one of them.
 *
 * Mirrors: src/posix/wait.c collect_both, kernel_look, items_left; src/posix/spill.c plx_spill_begin,
 * spill_run, take_items, plx_spill_end. One level-triggered item that is ready;
 * a spill takes it out, another finds nothing; the wait does both looks two times.
 *
 * Checked: each wait has the item once; everybody comes to an end.
 *
 * Weak memory: what the spill stores waits in a buffer that keeps the order (each store is a release),
 * system calls and exchanges of the item's place do not empty it, full barriers do. Loads of the wait
 * are acquires. A grace period begins and ends with a barrier, and waits in between for the readers
 * that were there. Readers count entries and exits, odd is inside.
 *
 * Broken variants: NO_MOVING (moving not looked at), NO_GEN (gen not looked at), GEN_FIRST (looked at
 * before moving), NO_SECTION (the kernel looks after the section), NO_GRACE (the spill waits for
 * nobody), CLEARED_EARLY (moving cleared before gen moves).
 */

#define MOVING 1
#define GEN 2

byte mem[3];
chan buffer = [4] of { byte, byte };

bit mtx;
/* The item is on our ready list; on the kernel's. */
bit here = 1, there;
byte rcu;

inline store(what, v)
{
	buffer!what,v
}

/* A full barrier: the buffer is empty. */
inline barrier()
{
	empty(buffer)
}

active proctype memory()
{
	byte what, v;

endm:	do
	:: atomic { buffer?what,v -> mem[what] = v; what = 0; v = 0 }
	od
}

active proctype spiller()
{
	byte round, seen;

	do
	:: round == 2 -> break
	:: else ->
		store(MOVING, 1);
		barrier();
#ifndef BROKEN_NO_GRACE
		seen = rcu;
		(!(seen & 1) || rcu != seen);
		barrier();
#endif
		atomic { !mtx -> mtx = 1 };
		if
		:: here ->
			here = 0;
			there = 1;
#ifdef BROKEN_CLEARED_EARLY
			store(MOVING, 0);
#endif
			store(GEN, 1);
			barrier()
		:: else
		fi;
		mtx = 0;
		store(MOVING, 0);
		/* The release of the table's lock, and what comes before the next spill. */
		barrier();
		round++
	od
}

active proctype waiter()
{
	byte round, gen, now, given;
	bit moving, skip_it;

	do
	:: round == 2 -> break
	:: else ->
		given = 0;
		skip_it = 0;
		gen = mem[GEN];
		/* The harvest. */
		atomic { !mtx -> mtx = 1 };
		given = here;
		mtx = 0;
		rcu++;
		if
		:: given ->
#ifdef BROKEN_GEN_FIRST
			now = mem[GEN];
			moving = mem[MOVING];
#else
			moving = mem[MOVING];
			now = mem[GEN];
#endif
#ifdef BROKEN_NO_MOVING
			moving = 0;
#endif
#ifdef BROKEN_NO_GEN
			now = gen;
#endif
			skip_it = moving || now != gen
		:: else
		fi;
#ifdef BROKEN_NO_SECTION
		rcu++;
#endif
		if
		:: !skip_it -> given = given + there
		:: else
		fi;
#ifndef BROKEN_NO_SECTION
		rcu++;
#endif
		assert(given == 1);
		moving = 0;
		now = 0;
		round++
	od
}
