/* SPDX-License-Identifier: MIT */
/*
 * A watch with a callback is removed beside wakes: no call begins after the removal, the removal tells
 * whether one goes on, and nobody touches the watch after a grace period.
 *
 * Mirrors: src/wait/watch.c called, plx_callback_unlink, plx_callback_runs, pollux_watch_del,
 * pollux_watch_del_sync. Two threads wake twice each, in a section of RCU each time; one removes the
 * watch, asks until it is not being called, and frees it after a grace period, for which it sees each
 * waker outside of a section once. Steps are sequentially consistent: the word is changed by
 * read-modify-writes alone, and the order of all else does not count.
 *
 * Checked: no call begins when the removal is done; none goes on when it has said so; nobody touches the
 * watch when it has been freed.
 *
 * Broken variants: COUNT_LATE (a waker looks whether the watch is gone before it counts its call),
 * NO_GONE (leaving the list is all there is to a removal), LOOK_FIRST (the count is read before the
 * watch is gone), NO_GRACE (it is freed when it is not being called), GRACE_FIRST (the grace period is
 * made before it has left the list).
 */

#define WAKES 2

bit linked = 1, gone, done, idle, freed;
byte calls;
bit inside[2];

proctype waker(byte me)
{
	byte n = WAKES;
	bit found, calls_it, begun_done;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		inside[me] = 1;
		found = linked;
		if
		:: !found
		:: else ->
#ifdef BROKEN_COUNT_LATE
			atomic { assert(!freed); calls_it = !gone };
			begun_done = done;
			if
			:: calls_it -> calls++
			:: else
			fi;
#else
			atomic {
				assert(!freed);
				begun_done = done;
				calls_it = !gone;
				calls = calls + calls_it
			};
#endif
			if
			:: calls_it ->
				assert(!begun_done);
				assert(!idle && !freed);
				atomic { assert(!freed); calls-- }
			:: else
			fi
		fi;
		inside[me] = 0
	od
}

proctype owner()
{
#ifdef BROKEN_GRACE_FIRST
	!inside[0];
	!inside[1];
#endif
	linked = 0;
#ifdef BROKEN_LOOK_FIRST
	calls == 0;
#endif
#ifndef BROKEN_NO_GONE
	gone = 1;
#endif
	done = 1;
#ifndef BROKEN_LOOK_FIRST
	calls == 0;
#endif
	idle = 1;
#if !defined(BROKEN_NO_GRACE) && !defined(BROKEN_GRACE_FIRST)
	!inside[0];
	!inside[1];
#endif
	freed = 1
}

init {
	atomic {
		run waker(0);
		run waker(1);
		run owner()
	}
}
