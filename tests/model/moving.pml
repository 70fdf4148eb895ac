/* SPDX-License-Identifier: MIT */
/*
 * A number whose object is on its way to the kernel: it is the kernel's already, and its item is not
 * there yet. Nobody ends the number, asks for the item or leaves in between.
 *
 * Mirrors: src/posix/spill.c spill_begin, replace_numbers, register_moves, spill_end, and
 * plx_px_escape_inherited; src/posix/table.h plx_table_moving; src/posix/front.h plx_front_spilled;
 * src/posix/epoll.c plx_px_epoll_ctl, ctl_inproc; src/posix/fd.c close_number,
 * plx_px_close_range; src/preload/fd.c close. One object with one number and one item in one front;
 * a spill takes it out, and then another one takes out what is none of ours.
 *
 * Checked: the number is not closed, its item not asked for, the front not waited on and the process
 * not replaced while the item is neither here nor there; everybody comes to an end.
 *
 * Weak memory: what the spill stores waits in a buffer that keeps the order (each store is a release),
 * system calls do not empty it, exchanges and full barriers do. Those who look load one word after
 * the other (each load is an acquire). Entering the changes of a number (changers.pml) is waiting
 * for the table lock here.
 *
 * Broken variants: MOVING_LATE (said when the number has been emptied), FRONT_FIRST (said when the
 * front has been given up), CLEARED_EARLY (taken back before the item is there), LOOK_FIRST (moving
 * looked at before the table), SPILLED_AFTER (the same for a front), NO_LOOK (a close does not look),
 * NO_SETTLE (ctl does not wait), RANGE (close_range does not wait), EXEC (nor does exec).
 */

#define EMPTY 0
#define OURS 1

/* What is in memory, and the buffer of the thread that spills: places, newest last. */
#define SLOT 1
#define MOVING 2
#define SPILLED 3
#define GONE 4

byte mem[5];
chan buffer = [4] of { byte, byte };

bit lock, mtx;
/* The item is in the front; in the kernel. The number is open. */
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
				/* dup3, and the exchange. */
				barrier();
				mem[SLOT] = EMPTY;
#ifdef BROKEN_MOVING_LATE
				store(MOVING, 1);
#endif
#ifdef BROKEN_CLEARED_EARLY
				store(MOVING, 0);
#endif
				there = 1
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

/* close in the drop-in. */
proctype closer()
{
	byte f;
	bit moving;

#ifdef BROKEN_LOOK_FIRST
	moving = mem[MOVING];
	f = mem[SLOT];
#else
	f = mem[SLOT];
	moving = mem[MOVING];
#endif
#ifdef BROKEN_NO_LOOK
	moving = 0;
#endif
	if
	:: f == OURS || moving ->
		table_lock();
		if
		:: mem[SLOT] == OURS ->
			/* The last reference goes with it, and so does the item. */
			mem[SLOT] = EMPTY;
			d_step { here = 0; open = 0 };
			lock = 0;
			goto out
		:: else
		fi;
		lock = 0
	:: else
	fi;
	d_step { assert(!HALF); open = 0; there = 0 };
out:	skip
}

proctype ranger()
{
	byte f;

	f = mem[SLOT];
	if
	:: f == OURS ->
		table_lock();
		if
		:: mem[SLOT] == OURS ->
			mem[SLOT] = EMPTY;
			d_step { here = 0; open = 0 }
		:: else
		fi;
		lock = 0
	:: else
	fi;
#ifndef BROKEN_RANGE
	settle();
#endif
	d_step { assert(!HALF); open = 0; there = 0 }
}

/* MOD of the item. */
proctype ctl()
{
	byte f;

	f = mem[SLOT];
#ifndef BROKEN_NO_SETTLE
	if
	:: f == EMPTY && mem[MOVING] -> settle()
	:: else
	fi;
#endif
	if
	:: f == OURS ->
		atomic { !mtx -> mtx = 1 };
		f = here;
		mtx = 0;
		if
		:: f || !open -> goto out
		:: else
		fi;
		/* Not found: so it has been frozen, and will say when it is the kernel's. */
		assert(mem[GONE] || !open);
		there || !open
	:: else
	fi;
	assert(!HALF);
out:	skip
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
			atomic { !mtx -> mem[GONE] = 1; mem[SLOT] = EMPTY; here = 0; there = 1 }
		:: else
		fi;
		lock = 0
	:: else
	fi;
#ifndef BROKEN_EXEC
	settle();
#endif
	assert(!HALF)
}

init {
	atomic {
		mem[SLOT] = OURS;
		run spiller();
#ifdef CLOSE
		run closer();
#endif
#ifdef RANGER
		run ranger();
#endif
#ifdef CTL
		run ctl();
#endif
#ifdef WAIT
		run waiter();
#endif
#ifdef EXEC
		run executor();
#endif
	}
}
