/* SPDX-License-Identifier: MIT */
/*
 * A poll over files sleeps until it is told, and is told nothing after it has returned.
 *
 * Mirrors: src/wait/poll.c watch_called, kernel_sleep, sleep_for_some, call_end. One thread polls a
 * file that it watches already; of three wakes one makes the file ready, and two come in vain. The
 * doorbell is a count that the sleep waits for. Steps are sequentially consistent: between the steps
 * whose order counts there are full barriers.
 *
 * Checked: nobody rings when the doorbell has been closed; the poll ends. A sleep that nobody ends is
 * an invalid end state.
 *
 * Broken variants: NO_AWAIT (who ends does not wait for ringers), COUNT_LATE (a ringer looks at over
 * before it counts itself), ASK_FIRST (the file is asked before rung is set to 0), READ_LATE (rung is
 * set to 0 before the doorbell is read), NO_OVER (a ringer does not look at over).
 */

bit ready, rung, over, closed;
byte doorbell, ringers;

proctype poller()
{
	bit saw;

	saw = ready;
	do
	:: saw -> break
	:: else ->
		doorbell > 0;
#ifdef BROKEN_READ_LATE
		rung = 0;
		doorbell = 0;
		saw = ready
#else
#ifdef BROKEN_ASK_FIRST
		doorbell = 0;
		saw = ready;
		rung = 0
#else
		doorbell = 0;
		rung = 0;
		saw = ready
#endif
#endif
	od;
	over = 1;
#ifndef BROKEN_NO_AWAIT
	ringers == 0;
#endif
	closed = 1
}

proctype waker(bit makes)
{
	bit was, ends;

	if
	:: makes -> ready = 1
	:: else
	fi;
#ifdef BROKEN_COUNT_LATE
	ends = over;
	ringers++;
#else
	ringers++;
#ifndef BROKEN_NO_OVER
	ends = over;
#endif
#endif
	if
	:: ends
	:: else ->
		atomic { was = rung; rung = 1 }
		if
		:: was
		:: else ->
			assert(!closed);
			doorbell++
		fi
	fi;
	ringers--
}

init {
	atomic {
		run poller();
		run waker(0);
		run waker(0);
		run waker(1)
	}
}
