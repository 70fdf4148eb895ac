/* SPDX-License-Identifier: MIT */
/*
 * Calls that sleep on an end of a pipe, while its numbers are closed and the pipe leaves.
 *
 * Mirrors: src/posix/pipe.c call_sleeping, goes_on, unpin_put, keep_end, plx_pipe_keep_end,
 * plx_pipe_keep_filled, end_unkeep; src/posix/fd.c close_number; src/posix/spill.c spill_run,
 * numbers_leave. One end with two numbers, CALLS calls by any of them, a close of each, one spill.
 *
 * Checked: a call that had said so before its number's close began, and slept when the pipe left,
 * goes on with a descriptor of its own; nobody uses that after its close; it is made and closed as
 * often, and none is left at the end; no deadlock.
 *
 * Abstractions:
 *  - What is done to the table and to the kernel's number under the number's lock is one step.
 *  - Between plx_table_enter and leave is inside; a spill waits until nobody is. Who closes a number
 *    that has left the table goes past all of that.
 *  - A call that had not said so before the close began may go on by the number, whatever that
 *    is by then: it is as if it came after the close.
 *  - What wakes a call while the pipe is ours (bytes, a signal) may come at any time.
 *
 * Broken variants: NO_SPILL_KEEP (the spill keeps no end), SPILL_KEEPS_LATE (it does so when the
 * numbers have left), NO_CLOSE_KEEP (nor does the close),
 * LOOK_FIRST (who keeps looks for calls before the descriptor is there), LOAD_FIRST (a call looks
 * for the descriptor before it takes its pin away), NO_SECOND_LOOK (who keeps does not look again),
 * LOOK_OUTSIDE (who ends it looks for calls before it takes the lock), READ_OUTSIDE (a call that
 * goes on takes no lock to see whether there is one), LATE (a call says so after it has slept).
 */
#ifndef CALLS
#define CALLS 2
#endif

byte pins, opens, inside;
bit kept, frozen, left, spilled, spilling, held;
/* Numbers that still mean the end, and those whose close has begun. */
bit ours[2] = 1, begun[2];
/* In the table: until closed, or until the spill takes it out. */
#define in_table(n) (ours[n] && !left)

inline changer_in() { atomic { !spilling -> inside++ } }
inline changer_out() { inside-- }
inline lock() { atomic { !held -> held = 1 } }
inline unlock() { held = 0 }

inline make()
{
	atomic {
		assert(!kept && !opens);
		opens++;
		kept = 1
	}
}

/* The descriptor goes if nobody is there for it. */
inline unkeep(calls)
{
#ifdef BROKEN_LOOK_OUTSIDE
	calls = pins;
#endif
	lock();
#ifndef BROKEN_LOOK_OUTSIDE
	calls = pins;
#endif
	if
	:: !calls && kept -> kept = 0; atomic { assert(opens == 1); opens-- }
	:: else
	fi;
	calls = 0;
	unlock()
}

inline unkeep_after(calls)
{
#ifdef BROKEN_LOOK_FIRST
	if
	:: !calls -> unkeep(calls)
	:: else
	fi
#else
#ifdef BROKEN_NO_SECOND_LOOK
	skip
#else
	unkeep(calls)
#endif
#endif
}

proctype call()
{
	bit n, early, slept, had, last;
	byte calls;

	if
	:: n = 0
	:: n = 1
	fi;
	/* In the table, and it has to sleep. */
	if
	:: atomic { in_table(n) && !frozen -> skip }
	:: else -> goto out
	fi;
#ifndef BROKEN_LATE
	atomic { pins++; early = !begun[n] };
#endif
	if
	:: atomic { !frozen -> slept = 1 };
#ifdef BROKEN_LATE
		early = !begun[n];
#endif
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
	lock();
	had = kept;
	unlock();
#endif
	assert(had || !slept || !early);
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
	had = kept;
	atomic { pins--; last = !pins };
#else
	atomic { pins--; last = !pins };
	had = kept;
#endif
	if
	:: last && had ->
		changer_in();
		unkeep(calls);
		changer_out()
	:: else
	fi;
out:
	skip
}

proctype closer(bit n)
{
	byte calls;

	begun[n] = 1;
#ifndef BROKEN_NO_CLOSE_KEEP
	if
	:: in_table(n) && pins ->
		changer_in();
#ifdef BROKEN_LOOK_FIRST
		calls = pins;
#endif
		lock();
		if
		:: in_table(n) && !kept -> make()
		:: else
		fi;
		unlock();
		unkeep_after(calls);
		changer_out()
	:: else
	fi;
#endif
	if
	:: in_table(n) ->
		changer_in();
		ours[n] = 0;
		changer_out()
	:: left -> ours[n] = 0
	fi
}

proctype spill()
{
	byte calls;

	spilling = 1;
	inside == 0;
	frozen = 1;
#ifdef BROKEN_SPILL_KEEPS_LATE
	left = 1;
#endif
#ifndef BROKEN_NO_SPILL_KEEP
	if
	:: pins && !kept && (ours[0] || ours[1]) ->
#ifdef BROKEN_LOOK_FIRST
		calls = pins;
#endif
		lock();
		if
		:: atomic { ours[0] || ours[1] -> make() }
		:: else
		fi;
		unlock();
		unkeep_after(calls)
	:: else
	fi;
#endif
	left = 1;
	spilled = 1;
	spilling = 0
}

init {
	byte i;

	atomic {
		run closer(0);
		run closer(1);
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
