/* SPDX-License-Identifier: MIT */
/*
 * A poll over files sleeps until it is told, and is told nothing after it has returned.
 *
 * Mirrors: src/wait/poll.c watch_called, kernel_sleep, sleep_for_some, call_end; src/base/ring.h. One
 * thread polls a file that it watches already; of four wakes one makes the file ready, and three come in
 * vain, two of which may stop for ever at any step of their ring. The doorbell is a count that the sleep
 * waits for; with -DFUTEX the sleep is on the bell itself, and the end waits for nobody. Watches are
 * called by the rules of src/wait/watch.c (watch.pml). Steps are sequentially consistent: between the
 * steps whose order counts there are full barriers.
 *
 * Checked: nobody rings when the doorbell has been closed; the poll ends. A sleep that nobody ends is
 * an invalid end state, whoever has stopped. To wait for one who has stopped, at the end, is a valid one.
 *
 * Broken variants: NO_AWAIT (who ends does not wait for ringers), COUNT_LATE (a ringer looks whether
 * the watch is gone before it counts itself), ASK_FIRST (the file is asked before the rings are
 * collected), READ_LATE (they are collected before the doorbell is read), NO_GONE (a ringer does not
 * look whether the watch is gone), BEGUN_COUNTS (a ring that has begun keeps others from ringing),
 * LATE_END (one that is late is counted as complete).
 */

bit ready, gone, closed, asleep;
byte begun, complete, doorbell, calls;
/* Nobody has collected since this waker has begun. */
bit fresh[4];

inline collect()
{
	atomic {
		begun = 0; complete = 0;
		fresh[0] = 0; fresh[1] = 0; fresh[2] = 0; fresh[3] = 0
	}
}

inline sleep()
{
#ifdef FUTEX
	atomic { asleep = (begun == 0) };
	!asleep
#else
	doorbell > 0
#endif
}

proctype poller()
{
	bit saw;

	saw = ready;
	do
	:: saw -> break
	:: else ->
		sleep();
#ifdef BROKEN_READ_LATE
		collect();
		doorbell = 0;
		saw = ready
#else
#ifdef BROKEN_ASK_FIRST
		doorbell = 0;
		saw = ready;
		collect()
#else
		doorbell = 0;
		collect();
		saw = ready
#endif
#endif
	od;
	gone = 1;
#ifndef FUTEX
#ifndef BROKEN_NO_AWAIT
endawait:
	calls == 0;
#endif
	closed = 1
#endif
}

#ifdef BROKEN_BEGUN_COUNTS
#define COUNTED begun
#else
#define COUNTED complete
#endif

#define MAY_STOP if :: stops -> goto endstopped :: true fi

proctype waker(byte me; bit makes; bit stops)
{
	bit ends;

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
		/* The load and the compare-and-swap are one step: else all is looked at again. */
		if
		:: atomic { COUNTED > 0 -> skip }
		:: atomic { COUNTED == 0 -> begun++; fresh[me] = 1 };
			MAY_STOP;
#ifdef FUTEX
			asleep = 0;
#else
			atomic { assert(!closed); doorbell++ };
#endif
			MAY_STOP;
#ifdef BROKEN_LATE_END
			complete++
#else
			atomic { complete = complete + fresh[me]; fresh[me] = 0 }
#endif
		fi
	fi;
	calls--;
endstopped:
	false
}

init {
	atomic {
		run poller();
		run waker(0, 0, 1);
		run waker(1, 0, 1);
		run waker(2, 0, 0);
		run waker(3, 1, 0)
	}
}
