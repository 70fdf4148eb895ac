/* SPDX-License-Identifier: MIT */
/*
 * After a barrier, what was asked for before has been called.
 *
 * Mirrors: src/epoll/reclaim.c plx_reclaim, advance, run, settle, await_runs. Each object is a bit. Two
 * threads push one and run what may be run, all or one of it; a third pushes one, and makes a
 * barrier. Grace periods are in grace.pml and batch.pml: here they may be over or not.
 *
 * Checked: at the end of the barrier the object of its thread has been called, and each object is called
 * once.
 *
 * Broken variants: THIS_TAKING (the barrier waits for the taking that was the last), ANY_TAKING (it does
 * not look whether that is still to be called), NO_AWAIT (it does not wait for runs of others),
 * LIST_LATE (a run is known when the lock is free again), LIST_SHORT (not while the last is called).
 */

#define ME 4

bit mutex;
byte pushed, taken, called;
byte takings, runs_begun;
byte runs[4];

inline lock() { atomic { !mutex -> mutex = 1 } }
inline unlock() { mutex = 0 }

/* The mutex is held, and let go. */
inline run_some()
{
	d_step {
		if
		:: !taken -> takings++; taken = pushed; pushed = 0
		:: else
		fi;
		mine = 0
	}
	if
	:: mine = taken
	:: mine = taken & 1
	:: mine = taken & 6
	:: mine = 0
	fi;
	d_step {
		taken = taken & (7 - mine);
#ifndef BROKEN_LIST_LATE
		if
		:: mine -> runs_begun++; runs[me] = runs_begun
		:: else
		fi
#endif
	}
	unlock();
#ifdef BROKEN_LIST_LATE
	if
	:: mine -> lock(); runs_begun++; runs[me] = runs_begun; unlock()
	:: else
	fi;
#endif
#ifdef BROKEN_LIST_SHORT
	runs[me] = 0;
#endif
	if
	:: mine ->
		atomic { assert(!(called & mine)); called = called | mine };
		lock();
		runs[me] = 0;
		unlock()
	:: else
	fi
}

proctype other(byte me)
{
	byte mine, n;

	atomic { pushed = pushed | me };
	do
	:: n == 2 -> break
	:: else -> n++; lock(); run_some()
	od
}

active proctype barrier()
{
	byte mine, number, last, me = 3;
	bit over;

	atomic { pushed = pushed | ME };
	lock();
#ifdef BROKEN_THIS_TAKING
	number = takings;
#else
	number = takings + 1;
#endif
	unlock();
	do
	:: over -> break
	:: else ->
		lock();
		run_some();
		lock();
#ifdef BROKEN_ANY_TAKING
		over = takings >= number;
#else
		over = takings > number || (takings == number && !taken);
#endif
		unlock()
	od;
#ifndef BROKEN_NO_AWAIT
	lock();
	last = runs_begun;
	unlock();
	(runs[1] == 0 || runs[1] > last) && (runs[2] == 0 || runs[2] > last);
#endif
	assert(called & ME)
}

init {
	atomic {
		run other(1);
		run other(2)
	}
}
