/* SPDX-License-Identifier: MIT */
/*
 * A poll over files sleeps until it is told, and is told nothing after it has returned.
 *
 * Mirrors: src/wait/poll.c watch_called, kernel_sleep, sleep_for_some, call_end. One thread polls a
 * file that it watches already; of three wakes one makes the file ready, and two come in vain. The
 * doorbell is a count that the sleep waits for. Watches are called by the rules of src/wait/watch.c
 * (watch.pml). Steps are sequentially consistent: between the steps whose order counts there are full
 * barriers.
 *
 * Checked: nobody rings when the doorbell has been closed; the poll ends. A sleep that nobody ends is
 * an invalid end state.
 *
 * Broken variants: NO_AWAIT (who ends does not wait for ringers), COUNT_LATE (a ringer looks whether
 * the watch is gone before it counts itself), ASK_FIRST (the file is asked before rung is set to 0),
 * READ_LATE (rung is set to 0 before the doorbell is read), NO_GONE (a ringer does not look whether the
 * watch is gone).
 */

bit ready, rung, gone, closed;
byte doorbell, calls;

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
	gone = 1;
#ifndef BROKEN_NO_AWAIT
	calls == 0;
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
	ends = gone;
	calls++;
#else
	atomic {
#ifndef BROKEN_NO_GONE
		ends = gone;
#endif
		calls++
	}
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
	calls--
}

init {
	atomic {
		run poller();
		run waker(0);
		run waker(0);
		run waker(1)
	}
}
