/* SPDX-License-Identifier: MIT */
/*
 * Who holds a pin on an eventfd (a call that sleeps in it, or who has to tell it later), while it
 * becomes the kernel's.
 *
 * Mirrors: src/posix/eventfd.c efd_slow, plx_eventfd_pin, plx_eventfd_unpin; src/posix/spill.c
 * give_count, object_done; src/posix/table.c unhide, plx_fd_used. CALLS calls, one spill.
 *
 * Checked: a call that slept in ours goes on with a descriptor of its own; nobody uses that after
 * its close; it is made and closed as often, and none is left at the end; no deadlock.
 *
 * Abstractions:
 *  - A call that has taken its pin when the eventfd was frozen already may go on by the number: it is
 *    as if it came later.
 *  - What wakes a call while the eventfd is ours (a count, a signal) may come at any time.
 *
 * Broken variants: NO_KEEP (the spill keeps no descriptor), LOOK_FIRST (it looks for pins before it
 * freezes), LOAD_FIRST (who leaves looks whether it is frozen before it takes its pin away), NO_TABLE
 * (who leaves does not wait for the spill), LOOK_OUTSIDE (who ends the descriptor looks for pins
 * before it takes the lock), READ_OUTSIDE (a call that goes on takes no lock to see whether there is
 * one), LATE (a call takes its pin after it has slept).
 */
#ifndef CALLS
#define CALLS 3
#endif

byte pins, opens;
bit kept, frozen, spilled, table, held;

inline lock(l) { atomic { !l -> l = 1 } }
inline unlock(l) { l = 0 }

/* The descriptor goes if nobody is there for it. */
inline unkeep(calls)
{
#ifdef BROKEN_LOOK_OUTSIDE
	calls = pins;
#endif
	lock(held);
#ifndef BROKEN_LOOK_OUTSIDE
	calls = pins;
#endif
	if
	:: !calls && kept -> kept = 0; atomic { assert(opens == 1); opens-- }
	:: else
	fi;
	calls = 0;
	unlock(held)
}

proctype call()
{
	bit slept, had, last, left;
	byte calls;

	/* It has found the eventfd, and has to sleep. */
	if
	:: !frozen
	:: else -> goto out
	fi;
#ifndef BROKEN_LATE
	pins++;
#endif
	if
	:: atomic { !frozen -> slept = 1 };
		if
		:: frozen
		:: goto leave
		fi
	:: frozen
	fi;
#ifdef BROKEN_LATE
	pins++;
#endif
	spilled;
#ifdef BROKEN_READ_OUTSIDE
	had = kept;
#else
	lock(held);
	had = kept;
	unlock(held);
#endif
	assert(had || !slept);
	/* It sleeps in the kernel. */
	if
	:: had -> assert(opens)
	:: else
	fi;
leave:
#ifdef BROKEN_LATE
	if
	:: !frozen -> goto out
	:: else
	fi;
#endif
#ifdef BROKEN_LOAD_FIRST
	left = frozen;
	atomic { pins--; last = !pins };
#else
	atomic { pins--; last = !pins };
	left = frozen;
#endif
	if
	:: last && left ->
#ifndef BROKEN_NO_TABLE
		lock(table);
#endif
		unkeep(calls);
#ifndef BROKEN_NO_TABLE
		unlock(table)
#endif
	:: else
	fi;
out:
	skip
}

proctype spill()
{
	bit any;

	lock(table);
#ifdef BROKEN_LOOK_FIRST
	any = pins > 0;
	frozen = 1;
#else
	frozen = 1;
	any = pins > 0;
#endif
#ifndef BROKEN_NO_KEEP
	if
	:: any ->
		lock(held);
		atomic {
			assert(!kept && !opens);
			opens++;
			kept = 1
		};
		unlock(held)
	:: else
	fi;
#endif
	spilled = 1;
	unlock(table)
}

init {
	byte i;

	atomic {
		run spill();
		i = 0;
		do
		:: i < CALLS -> run call(); i++
		:: else -> break
		od
	};
	_nr_pr == 1;
	assert(!kept && !opens && !pins)
}
