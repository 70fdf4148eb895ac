/* SPDX-License-Identifier: MIT */
/*
 * Whoever changes what a number means is either done, or waits, while objects become kernel ones.
 *
 * Mirrors: src/posix/table.h plx_table_enter, plx_table_leave; src/posix/table.c plx_table_await;
 * src/posix/spill.c plx_spill_begin, plx_spill_unlock. Two threads change numbers, two times each;
 * one spills, two times.
 *
 * Checked: no change is under way while the spill works, and everybody comes to an end.
 *
 * Weak memory: plx_spilling and inside are plain stores that wait in store buffers; full barriers
 * wait for the own one, and a release keeps its order behind what was stored before. A grace period
 * begins and ends with a barrier that all threads make, and waits in between for the readers that
 * were there. Readers count entries and exits, odd is inside.
 *
 * Broken variants: NO_GRACE (the records are looked at without one before), NO_AWAIT (they are not
 * looked at), INSIDE_LATE (inside stored when the section has ended), NO_LOOK (spilling not looked
 * at), LEAVE_EARLY (inside taken back before the change is done).
 */

bit spilling, spilling_buf, spilling_full, lock, works;
byte rcu[2];
bit inside[2], inside_buf[2], inside_full[2];
bit changes[2];

inline drain_inside(i)
{
	d_step {
		if
		:: inside_full[i] -> inside[i] = inside_buf[i]; inside_full[i] = 0
		:: else
		fi
	}
}

inline drain_spilling()
{
	d_step {
		if
		:: spilling_full -> spilling = spilling_buf; spilling_full = 0
		:: else
		fi
	}
}

inline store_inside(i, v)
{
	/* The buffer has one place: what was in it goes first. */
	d_step {
		if
		:: inside_full[i] -> inside[i] = inside_buf[i]
		:: else
		fi;
		inside_buf[i] = v;
		inside_full[i] = 1
	}
}

active proctype memory()
{
endm:	do
	:: inside_full[0] -> drain_inside(0)
	:: inside_full[1] -> drain_inside(1)
	:: spilling_full -> drain_spilling()
	od
}

proctype changer(byte me)
{
	byte n = 2;
	bit seen;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		rcu[me]++;
#ifdef BROKEN_NO_LOOK
		seen = 0;
#else
		seen = spilling;
#endif
		if
		:: !seen ->
#ifdef BROKEN_INSIDE_LATE
			rcu[me]++;
			store_inside(me, 1);
#else
			store_inside(me, 1);
			rcu[me]++;
#endif
			changes[me] = 1;
#ifdef BROKEN_LEAVE_EARLY
			store_inside(me, 0);
			changes[me] = 0
#else
			changes[me] = 0;
			store_inside(me, 0)
#endif
		:: else ->
			rcu[me]++;
			atomic { !lock -> lock = 1 };
			changes[me] = 1;
			assert(!works);
			changes[me] = 0;
			lock = 0
		fi
	od
}

active proctype spiller()
{
	byte n = 2, s0, s1;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		atomic { !lock -> lock = 1 };
		d_step { spilling_buf = 1; spilling_full = 1 };
		drain_spilling();
#ifndef BROKEN_NO_GRACE
		d_step {
			drain_inside(0);
			drain_inside(1);
			s0 = rcu[0];
			s1 = rcu[1]
		};
		(!(s0 & 1) || rcu[0] != s0) && (!(s1 & 1) || rcu[1] != s1);
		d_step {
			drain_inside(0);
			drain_inside(1);
			s0 = 0;
			s1 = 0
		};
#endif
#ifndef BROKEN_NO_AWAIT
		!inside[0];
		!inside[1];
#endif
		works = 1;
		assert(!changes[0] && !changes[1]);
		works = 0;
		/* Released, so its order is kept; who does not see it yet waits for the lock. */
		d_step { spilling_buf = 0; spilling_full = 1 };
		drain_spilling();
		lock = 0
	od
}

init {
	atomic {
		run changer(0);
		run changer(1)
	}
}
