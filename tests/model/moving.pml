/* SPDX-License-Identifier: MIT */
/*
 * A number whose object is on its way to the kernel: the count is gone here, and not in the kernel
 * yet. Nobody writes to the number, ends it or leaves in between, nor takes the front for the
 * kernel's. (ADD, MOD and DEL are made within plx_table_enter, so before or after a spill.)
 *
 * Mirrors: src/posix/spill.c plx_spill_begin, take_items, give_count, numbers_leave, plx_spill_end;
 * src/posix/escape.c plx_px_escape_inherited; src/posix/table.h plx_table_moving; src/posix/front.h
 * plx_front_spilled; src/posix/fd.c close_number, plx_px_close_range; src/preload/fd.c close;
 * src/posix/eventfd.c efd_write. One object with one number and one item in one front; a spill takes
 * it out, and then another one takes out what is none of ours.
 *
 * Checked: the number is not written to by way of the kernel, not closed, the front not waited on and
 * the process not replaced while the count is neither here nor there; everybody comes to an end.
 *
 * Weak memory: what the spill stores waits in a buffer that keeps the order (each store is a release),
 * system calls do not empty it, exchanges and full barriers do. Those who look load one word after
 * the other (each load is an acquire). Entering the changes of a number (changers.pml) is waiting
 * for the table lock here.
 *
 * Broken variants: SLOT_FIRST (the number leaves the table before the count is there), MOVING_LATE
 * (said when the item has left the front), FRONT_FIRST (said when the front has been given up),
 * CLEARED_EARLY (taken back before the count is there), SPILLED_AFTER (moving is looked at before
 * the front), NO_WAIT (a write that finds the object frozen does not wait), SAID_FIRST (the object
 * is said to be the kernel's before its number has left the table).
 */

#define EMPTY 0
#define OURS 1

/* What is in memory, and the buffer of the thread that spills: places, newest last. */
#define SLOT 1
#define MOVING 2
#define SPILLED 3
#define GONE 4
#define DONE 5

byte mem[6];
chan buffer = [4] of { byte, byte };

bit lock, mtx;
/* The count is here; in the kernel. The number is open. */
bit here = 1, there, open = 1;

#define HALF (open && !here && !there)

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

inline table_lock()
{
	atomic { !lock -> lock = 1 }
}

inline settle()
{
	mem[MOVING] == 0
}

proctype spiller()
{
	byte round = 0;

	do
	:: round == 2 -> break
	:: else ->
		table_lock();
#if !defined(BROKEN_MOVING_LATE) && !defined(BROKEN_FRONT_FIRST)
		store(MOVING, 1);
		barrier();
#endif
		if
		:: round == 0 && here ->
			store(SPILLED, 1);
#ifdef BROKEN_FRONT_FIRST
			store(MOVING, 1);
#endif
			barrier();
			atomic { !mtx -> mtx = 1 };
			if
			:: mem[SLOT] == EMPTY -> skip
			:: else ->
				store(GONE, 1);
				barrier();
				here = 0;
#ifdef BROKEN_MOVING_LATE
				store(MOVING, 1);
#endif
#ifdef BROKEN_CLEARED_EARLY
				store(MOVING, 0);
#endif
#ifdef BROKEN_SAID_FIRST
				store(DONE, 1);
#endif
#ifdef BROKEN_SLOT_FIRST
				barrier();
				mem[SLOT] = EMPTY;
#endif
				there = 1;
#ifndef BROKEN_SLOT_FIRST
				barrier();
				mem[SLOT] = EMPTY;
#endif
				store(DONE, 1)
			fi;
			mtx = 0
		:: else
		fi;
		store(MOVING, 0);
		/* The release of the lock. */
		barrier();
		lock = 0;
		round++
	od
}

/* What is open ends, and with it the count, wherever that is. */
inline end_ours()
{
	table_lock();
	if
	:: mem[SLOT] == OURS ->
		mem[SLOT] = EMPTY;
		d_step { here = 0; open = 0 }
	:: else
	fi;
	lock = 0
}

/* close in the drop-in, and close_range. */
proctype closer()
{
	if
	:: mem[SLOT] == OURS -> end_ours()
	:: else
	fi;
	d_step { assert(!HALF); open = 0; there = 0 }
}

proctype writer()
{
	if
	:: mem[SLOT] == OURS ->
		if
		:: mem[GONE] ->
#ifndef BROKEN_NO_WAIT
			(mem[DONE] || !open);
			/* It asks the table again, once, and finds it empty. */
			assert(mem[SLOT] == EMPTY);
#endif
			assert(!HALF)
		:: else
		fi
	:: else -> assert(!HALF)
	fi
}

/* A wait, or poll, with the front. */
proctype waiter()
{
	byte f;

#ifdef BROKEN_SPILLED_AFTER
	f = mem[MOVING];
	if
	:: mem[SPILLED] ->
		if
		:: f -> settle()
		:: else
		fi;
		assert(!HALF)
	:: else
	fi
#else
	if
	:: mem[SPILLED] ->
		settle();
		assert(!HALF)
	:: else
	fi
#endif
}

/* Another program takes this one's place, and nobody finishes what was begun. */
proctype executor()
{
	byte f;

	f = mem[SLOT];
	if
	:: f == OURS ->
		/* This thread's own spill, unless another was quicker. */
		table_lock();
		if
		:: mem[SLOT] == OURS ->
			atomic { !mtx -> mem[GONE] = 1; mem[SLOT] = EMPTY; here = 0; there = 1;
				 mem[DONE] = 1 }
		:: else
		fi;
		lock = 0
	:: else
	fi;
	assert(!HALF)
}

init {
	atomic {
		mem[SLOT] = OURS;
		run spiller();
#ifdef CLOSE
		run closer();
#endif
#ifdef WRITER
		run writer();
#endif
#ifdef WAIT
		run waiter();
#endif
#ifdef EXEC
		run executor();
#endif
	}
}
