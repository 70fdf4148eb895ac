/* SPDX-License-Identifier: MIT */
/*
 * Calls on a number that has been lent to the kernel, and the thread that brings it back.
 *
 * Mirrors: src/posix/lent.c lent_enter, lent_leave, plx_lent_never, plx_lent_return. Two threads
 * make two calls each; one may say that nothing comes back, and then goes to the kernel with the
 * number whenever it likes; one tries two times to bring it back.
 *
 * Checked: while the number changes hands nobody is on his way to the kernel with it, nor later,
 * and everybody comes to an end.
 *
 * Weak memory: `returning` and `lost` are plain stores that wait in store buffers; full barriers
 * and read-modify-writes wait for the own one, and a release keeps its order. The count and the slot
 * are changed by read-modify-writes.
 *
 * Broken variants: NO_RETURN_BARRIER, NO_NEVER_BARRIER (none between the own store and the look at
 * the other's), COUNT_LATE (the caller looks at `returning` and counts itself then), COUNT_FIRST
 * (the count is looked at before `returning` is set), SLOT_ONCE (the slot is not looked at again
 * once the caller is counted), NO_SETTLE (who sets `lost` does not wait), LEAVE_EARLY (a caller is
 * not counted to the end of its call).
 */

bit returning, returning_buf, returning_full;
bit lost, lost_buf, lost_full;
byte users;
/* The number means the object in process, for the kernel and in the table. */
bit back, slot;
bit calls[2];
/* Goes to the kernel with the number from now on. */
bit out;

inline drain_returning()
{
	d_step {
		if
		:: returning_full -> returning = returning_buf; returning_full = 0
		:: else
		fi
	}
}

inline drain_lost()
{
	d_step {
		if
		:: lost_full -> lost = lost_buf; lost_full = 0
		:: else
		fi
	}
}

active proctype memory()
{
endm:	do
	:: returning_full -> drain_returning()
	:: lost_full -> drain_lost()
	od
}

proctype caller(byte me)
{
	byte n = 2;
	bit seen, lent;

	do
	:: n == 0 -> break
	:: else ->
		lent = !slot;
		if
		:: !lent -> n--	/* In process. */
		:: else ->
#ifdef BROKEN_COUNT_LATE
			seen = returning;
			users++;
#else
			users++;
			seen = returning;
#endif
#ifndef BROKEN_SLOT_ONCE
			lent = !slot;
#endif
			if
			:: seen || !lent ->
				users--;
				!returning
			:: else ->
#ifdef BROKEN_LEAVE_EARLY
				users--;
#endif
				calls[me] = 1;
				assert(!back);
				calls[me] = 0;
#ifndef BROKEN_LEAVE_EARLY
				users--;
#endif
				n--
			fi
		fi
	od
}

active proctype loser()
{
	bit lent;

	if
	:: skip
	:: d_step { lost_buf = 1; lost_full = 1 };
#ifndef BROKEN_NO_NEVER_BARRIER
		drain_lost();
#endif
#ifndef BROKEN_NO_SETTLE
		!returning;
#endif
		lent = !slot;
		if
		:: lent ->
			out = 1;
			assert(!back)
		:: else
		fi
	fi
}

active proctype returner()
{
	byte n = 2;
	bit may;

	do
	:: n == 0 || back -> break
	:: else ->
		n--;
#ifdef BROKEN_COUNT_FIRST
		may = users == 0;
#endif
		d_step { returning_buf = 1; returning_full = 1 };
#ifndef BROKEN_NO_RETURN_BARRIER
		drain_returning();
#endif
#ifdef BROKEN_COUNT_FIRST
		may = may && !lost;
#else
		may = !lost;
		may = may && users == 0;
#endif
		if
		:: may ->
			back = 1;
			assert(!calls[0] && !calls[1] && !out);
			/* An exchange. */
			drain_returning();
			slot = 1
		:: else
		fi;
		/* The buffer has one place: what was in it goes first. */
		drain_returning();
		d_step { returning_buf = 0; returning_full = 1 }
	od;
	assert(!(back && out))
}

init {
	atomic {
		run caller(0);
		run caller(1)
	}
}
