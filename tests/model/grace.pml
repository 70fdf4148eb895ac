/* SPDX-License-Identifier: MIT */
/*
 * A grace period that another thread has made serves, too.
 *
 * Mirrors: src/rcu/rcu.c gp_advance, plx_rcu_note, plx_rcu_over, retire_run_over. A thread removes an object,
 * notes the number of the last grace period begun, and frees the object when one with a greater
 * number has ended. Another thread makes grace periods, one after the other.
 *
 * Checked: nobody touches the object after it was freed; it is freed in the end.
 *
 * Weak memory: the removal and the number of a grace period are plain stores that wait in store
 * buffers; the full barriers in C wait for the own one. How a grace period gets past the readers
 * is in phases.pml: here it waits for those that are inside after its own barrier. Readers count
 * entries and exits, odd is inside.
 *
 * Broken variants: NO_NOTE_BARRIER (number read while the removal is not visible yet),
 * NO_BEGIN_BARRIER (readers looked at while the number is not visible yet), NUMBER_LATE (the number
 * moves after the readers were looked at), NOT_GREATER (the grace period that was under way counts).
 */

bit linked = 1, linked_buf, freed;
byte begun, begun_buf, ended, note;
byte rcu[2];

active proctype memory()
{
endm:	do
	:: atomic { linked_buf -> linked_buf = 0; linked = 0; }
	:: atomic { begun_buf -> begun = begun_buf; begun_buf = 0; }
	od
}

proctype reader(byte me)
{
	byte n = 2;
	bit found;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		rcu[me]++;
		found = linked;
		if
		:: found -> assert(!freed)
		:: else
		fi;
		rcu[me]++
	od
}

active proctype retirer()
{
	linked_buf = 1;
#ifndef BROKEN_NO_NOTE_BARRIER
	(!linked_buf);
#endif
	note = begun;
endw:
#ifdef BROKEN_NOT_GREATER
	ended >= note;
#else
	ended > note;
#endif
	freed = 1
}

active proctype maker()
{
	byte n, s0, s1;

	do
	:: n == 3 -> break
	:: else ->
		n++;
#ifndef BROKEN_NUMBER_LATE
		begun_buf = n;
#ifndef BROKEN_NO_BEGIN_BARRIER
		(!begun_buf);
#endif
#endif
		atomic { s0 = rcu[0]; s1 = rcu[1]; }
#ifdef BROKEN_NUMBER_LATE
		begun_buf = n;
		(!begun_buf);
#endif
		atomic {
			(!(s0 & 1) || rcu[0] != s0) && (!(s1 & 1) || rcu[1] != s1);
			s0 = 0;
			s1 = 0;
		}
		ended = n
	od
}

init {
	atomic {
		run reader(0);
		run reader(1);
	}
	timeout;
	assert(freed || note == 3)
}
