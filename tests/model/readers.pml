/* SPDX-License-Identifier: MIT */
/*
 * Threads take a reader, and give it back, beside a look at all that are taken.
 *
 * Mirrors: src/rcu/bp.c reader_take, reader_give_back, plx_urcu_nobody, plx_urcu_look. A thread takes
 * a reader, is in a section in which it may find an object, and gives the reader back; then it is
 * another's. One removes the object, looks until nobody is in a section, and frees it. (Phases, which
 * say which sections count, are in phases.pml.)
 *
 * Checked: nobody touches the object after it was freed; it is freed in the end.
 *
 * Weak memory: the removal, the mark and the counter are plain stores that wait in store buffers, in
 * order; a full barrier waits for the own ones. Where the kernel has membarrier the look waits for
 * those of all, which stands here for the barrier in the section as well.
 *
 * Broken variants: NO_TAKE_BARRIER (with nobody known the look makes no barrier in others),
 * NO_LOOK_BARRIER (looked at while the removal is not visible yet), BACK_FIRST (the mark goes before
 * the section's end).
 */

#define THREADS 2

bit linked = 1, linked_buf, freed;
bit taken[THREADS], taken_buf[THREADS], in[THREADS], in_buf[THREADS], leaving[THREADS];

active proctype memory()
{
endm:	do
	:: atomic { linked_buf -> linked_buf = 0; linked = 0 }
	:: atomic { taken_buf[0] -> taken_buf[0] = 0; taken[0] = 1 }
	:: atomic { taken_buf[1] -> taken_buf[1] = 0; taken[1] = 1 }
	:: atomic { in_buf[0] && !taken_buf[0] -> in_buf[0] = 0; in[0] = 1 }
	:: atomic { in_buf[1] && !taken_buf[1] -> in_buf[1] = 0; in[1] = 1 }
	od
}

proctype thread(byte me)
{
	byte n = 2;
	bit found;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		taken_buf[me] = 1;
#ifndef BROKEN_NO_TAKE_BARRIER
		(!taken_buf[me]);
#endif
		in_buf[me] = 1;
		found = linked;
#ifdef BROKEN_BACK_FIRST
		(!taken_buf[me]);
		taken[me] = 0;
#endif
		if
		:: found -> assert(!freed)
		:: else
		fi;
		/* A store behind those that wait. */
		(!taken_buf[me] && !in_buf[me]);
		in[me] = 0;
		taken[me] = 0
	od
}

active proctype remover()
{
	byte i;
	bit busy;

	linked_buf = 1;
#ifndef BROKEN_NO_LOOK_BARRIER
	(!linked_buf);
#endif
	do
	:: busy = 0;
	   if
	   :: taken[0] || taken[1] ->
		/* In all threads. */
		(!in_buf[0] && !in_buf[1] && !taken_buf[0] && !taken_buf[1]);
		i = 0;
		do
		:: i == THREADS -> break
		:: else ->
			busy = busy || (taken[i] && in[i]);
			i++
		od
	   :: else
	   fi;
	   if
	   :: !busy -> break
	   :: else
	   fi
	od;
	freed = 1
}

init
{
	atomic { run thread(0); run thread(1) }
}
