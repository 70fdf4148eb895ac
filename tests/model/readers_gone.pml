/* SPDX-License-Identifier: MIT */
/*
 * A reader whose thread has ended unheard is taken back by who needs one.
 *
 * Mirrors: src/rcu/bp.c urcu_bp_register, owner_note, readers_take_back, for threads that have no key.
 * Threads have numbers, which others have after their end. There is one reader. A thread takes it, notes
 * its number, and ends; who finds it taken reads the number, asks whether there is such a thread, and
 * exchanges what it has read.
 *
 * Checked: it is not taken from a thread that lives; in the end each thread has had it.
 *
 * Broken variants: NO_COUNT (the exchange leaves the count as it was), NO_CLAIM (there is no exchange),
 * ASK_FIRST (it is asked before the number is read), FOREIGN (the number of a process that shares the
 * memory is noted, as one in the child of a vfork has it).
 */

#define THREADS 3
#define LIVES 2
#define NUMBERS 3
/* No thread has it. */
#define OTHER (NUMBERS + 1)

bit alive[NUMBERS + 2];
bit taken, holds;
byte number, count, lives;

inline take_back()
{
#ifdef BROKEN_ASK_FIRST
	/* Of any number. */
	if
	:: n = 1
	:: n = 2
	:: n = 3
	fi;
	there = alive[n];
	atomic { seen = count; found = (number == n -> n : 0) };
#else
	atomic { seen = count; found = number };
	there = alive[found];
#endif
	if
	:: found && !there ->
#ifndef BROKEN_NO_CLAIM
		atomic {
			if
			:: number == found && count == seen ->
				number = 0;
#ifndef BROKEN_NO_COUNT
				count++
#endif
			:: else -> found = 0
			fi
		};
#endif
		if
		:: found ->
			assert(!holds);
			taken = 0
		:: else
		fi
	:: else
	fi;
	found = 0; seen = 0; there = 0; n = 0
}

proctype thread()
{
	byte life, me, n, found, seen;
	bit there;

	do
	:: life == LIVES -> break
	:: else ->
		life++;
		atomic {
			me = 1;
			do
			:: alive[me] -> me++
			:: else -> break
			od;
			alive[me] = 1
		};
		do
		:: atomic { !taken -> taken = 1; assert(!holds); holds = 1; break }
		:: taken -> take_back()
		od;
#ifdef BROKEN_FOREIGN
		number = OTHER;
#else
		number = me;
#endif
		assert(taken && holds);
		atomic { holds = 0; alive[me] = 0; me = 0; lives++ }
	od
}

init
{
	byte i;

	atomic {
		do
		:: i == THREADS -> break
		:: else -> run thread(); i++
		od
	};
	(lives == THREADS * LIVES)
}
