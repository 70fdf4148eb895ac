/* SPDX-License-Identifier: MIT */
/*
 * No wake is lost between producers that push and consumers that go to sleep.
 *
 * Mirrors: src/epoll/ready.c wake_one; src/epoll/wait.c (announce, recheck, park, bell, time-out);
 * the chained wake at the end of src/epoll/harvest.c.
 *
 * Checked: when nothing can move any more, no consumer sleeps while the list holds an item whose
 * producer has returned. With -DSTOP producer 0 may stop for ever at any step after its push: then
 * producer 1 alone must be enough for its own item (no consumer waits for a preempted producer).
 *
 * Weak memory: the push and the consumer's announcement (and its withdrawal) are plain stores that
 * wait in a store buffer of their process; the process `memory` empties the buffers at any time. A
 * full barrier waits until the own buffer is empty. The real push and the real counter are atomic
 * read-modify-writes, which are at least as strong: the counter is the sum of one flag for each
 * consumer, and an item is a flag of its producer. The bell is a read-modify-write here as in C.
 *
 * Abstractions:
 *  - A harvest is one step that takes one item (as with maxevents 1, the hardest case for chained
 *    wakes); the mutex makes it so. An item taken may stay on the list (level-triggered).
 *  - The futex: parking looks at the bell and falls asleep in one step; a wake picks any sleeper.
 *    A sleeper that was woken may still take itself for timed out (a host that looks at its clock
 *    after the wake, or a signal). Time-outs are bounded by a budget, else no execution would ever
 *    come to rest; the search includes those in which they never happen.
 *  - A consumer leaves for ever after two waits or at its choice after one, so nobody comes back to
 *    clean up what it left behind.
 *
 * A producer that finds the bell ringing unparks too: the one that rang may have stopped between
 * the bell and its unpark. With -DRING_ONCE it does not, which is enough where no producer stops.
 *
 * Broken variants: NO_PUSH_BARRIER, NO_SLEEP_BARRIER, NO_RECHECK, NO_CHAIN, TIMEOUT_KEEPS_BELL,
 * NO_LAST_HARVEST; and -DSTOP -DRING_ONCE.
 */

#ifndef PUSHES
#define PUSHES 1
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 1
#endif
#define WAITS 2

byte item[2], due[2];	  /* in memory; ghost: push of a producer that has returned */
byte push_buf[2];	  /* 1: the store of item = 1 waits */
byte announced[2];
byte announce_buf[2];	  /* 0 empty, 1 the store of 0 waits, 2 that of 1 */

bit bell;
byte asleep[2];
byte timeouts = TIMEOUTS;

#define list_empty (!item[0] && !item[1])
#define sleepers (announced[0] || announced[1])

active proctype memory()
{
endm:	do
	:: atomic { push_buf[0] -> push_buf[0] = 0; item[0] = 1; }
	:: atomic { push_buf[1] -> push_buf[1] = 0; item[1] = 1; }
	:: atomic { announce_buf[0] -> announced[0] = announce_buf[0] - 1; announce_buf[0] = 0; }
	:: atomic { announce_buf[1] -> announced[1] = announce_buf[1] - 1; announce_buf[1] = 0; }
	od
}

inline unpark_one()
{
	atomic {
		if
		:: asleep[0] -> asleep[0] = 0
		:: asleep[1] -> asleep[1] = 0
		:: else
		fi
	}
}

#ifdef STOP
#define MAY_STOP if :: can_stop -> goto out :: true fi
#else
#define MAY_STOP skip
#endif

/* The caller has passed a full barrier. can_stop is a constant of the process. */
inline wake_one()
{
	if
	:: sleepers ->
		MAY_STOP;
		atomic {
			if
			:: bell == 0 -> bell = 1; rang = 1
#ifdef RING_ONCE
			:: else -> rang = 0
#else
			:: else -> rang = 1
#endif
			fi
		}
		if
		:: rang -> MAY_STOP; unpark_one()
		:: else
		fi
	:: else
	fi;
	rang = 0
}

proctype producer(byte me; bool can_stop)
{
	byte n = (me == 0 -> PUSHES : 1);
	bool rang;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		push_buf[me] = 1;
		MAY_STOP;
#ifndef BROKEN_NO_PUSH_BARRIER
		(push_buf[me] == 0);
#endif
		wake_one();
		/* Taken in the meantime: nobody is owed anything. */
		atomic { due[me] = (item[me] || push_buf[me]); }
	od;
out:
	skip
}

inline harvest()
{
	atomic {
		got = 0;
		if
		:: item[0] ->
			got = 1;
			if
			:: true -> item[0] = 0; due[0] = 0
			:: true
			fi
		:: item[1] ->
			got = 1;
			if
			:: true -> item[1] = 0; due[1] = 0
			:: true
			fi
		:: else
		fi
	}
	/* Releasing the mutex after the list was read; then the sleepers are looked at. */
	(announce_buf[me] == 0);
#ifndef BROKEN_NO_CHAIN
	if
	:: !list_empty -> wake_one()
	:: else
	fi
#endif
}

inline take_bell(ok)
{
	atomic {
		if
		:: bell != 0 ->
			bell = 0;
			ok = 1
		:: else -> ok = 0
		fi
	}
}

proctype consumer(byte me)
{
	byte n = WAITS;
	bool got, rang;
	bool can_stop = 0;

again:
	harvest();
	if
	:: got -> goto returned
	:: else
	fi;
	announce_buf[me] = 2;
#ifndef BROKEN_NO_SLEEP_BARRIER
	(announce_buf[me] == 0);
#endif
#ifndef BROKEN_NO_RECHECK
	if
	:: !list_empty ->
		announce_buf[me] = 1;
		goto again
	:: else
	fi;
#endif
park:
	atomic {
		if
		:: bell == 0 -> asleep[me] = 1
		:: else -> goto ring
		fi
	}
endp:	if
	:: atomic { timeouts > 0 -> timeouts--; asleep[me] = 0; goto timed_out }
	:: !asleep[me]
	fi;
ring:
	take_bell(got);
	if
	:: got -> got = 0; announce_buf[me] = 1; goto again
	:: else -> goto park
	fi;
timed_out:
#ifndef BROKEN_TIMEOUT_KEEPS_BELL
	take_bell(got);
#endif
	announce_buf[me] = 1;
#ifndef BROKEN_NO_LAST_HARVEST
	harvest();
#endif
returned:
	got = 0;
	n--;
	if
	:: n > 0 -> goto again
	:: true
	fi;
out:
	skip
}

init {
	atomic {
		run producer(0, 1);
		run producer(1, 0);
		run consumer(0);
		run consumer(1);
	}
	/* True when no other process can take a step. */
	timeout ->
	assert(!(asleep[0] || asleep[1]) || !(due[0] || due[1]))
}
