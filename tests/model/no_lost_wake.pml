/* SPDX-License-Identifier: MIT */
/*
 * No wake is lost between producers that push and consumers that go to sleep, with both hosts.
 *
 * Mirrors: src/base/ring.h; src/epoll/ready.c plx_ep_wake_one, plx_bell_collect, plx_ep_stand_in,
 * plx_ep_stand_down (and plx_ep_spin in wait.c); the end of
 * plx_ep_harvest (src/epoll/harvest.c); plx_ep_announce, plx_ep_retract and, for the futex host,
 * futex_park and pollux_ep_wait (src/epoll/wait.c). With -DKERNEL: collect_kernel, filter_events,
 * collect_inproc, collect_both, waiter_leave and wait_mixed (src/cache/wait.c), epoll_unpark
 * (src/cache/epoll.c).
 *
 * Checked:
 *  - when nothing can move any more, no consumer sleeps while the list holds an item whose producer
 *    has returned. Producer 0 may stop for ever at any step of its wake: producer 1 alone is then
 *    enough for its own item (nobody depends on a ringer that is preempted);
 *  - -DFROZEN: two consumers sleep and those who are woken never get to run: each producer that has
 *    returned has woken one more of them (EP-WAKE-03).
 *
 * The bell counts rings begun and rings complete since the last collection, and collections.
 *
 * The kernel's epoll (-DKERNEL): `door` says that the doorbell's edge is on the kernel's ready
 * list; a second edge before the first is taken adds nothing to the list, but wakes one more. One
 * event of a descriptor of the kernel's own (`kernel_event`) may come at any time. A sleeper takes
 * any part of what is there; if something is left, the kernel wakes another sleeper. A woken sleeper
 * that finds nothing sleeps on. The doorbell wakes the newest sleeper; the model lets it wake any,
 * which includes that.
 *
 * Weak memory (-DWEAK): the push and the announcement are plain stores that wait in a store buffer of their
 * process; the process `memory` empties the buffers at any time, a full barrier waits until the own
 * one is empty. The real ones are read-modify-writes, at least as strong. The counter of sleepers is
 * the sum of a flag for each consumer, the list a flag for each producer. The bell and the
 * withdrawal are read-modify-writes here as in C.
 *
 * Abstractions:
 *  - A harvest is one step that takes one item (as with maxevents 1, the hardest case for chained
 *    wakes); the mutex makes it so. An item taken may stay on the list (level-triggered).
 *  - Time-outs and signals come from one budget, else no execution would come to rest. A wait ended
 *    by a signal and one ended by cancellation do the same to the bell.
 *  - A spin is any time between its two steps; there are SPINS of them (0 unless given).
 *  - Consumer 0 leaves for ever after two waits, consumer 1 after one, so nobody comes back to clean
 *    up what they left behind.
 *  - The number of collections is only compared with one loaded before: a bit for each ring says
 *    whether they are the same.
 *  - The load of the bell and the compare-and-swap that follows are one step: if the bell changes
 *    in between, the swap fails and all is looked at again. The number of sleepers is loaded before,
 *    in a step of its own. The counts do not overflow: there are fewer rings than 255.
 *  - The 32 bits that the futex compares hold 16 bits of collections: a sleeper is kept from the
 *    futex by any change, here by `begun` alone, which is weaker.
 *
 * Broken variants: NO_PUSH_BARRIER and NO_SLEEP_BARRIER (-DWEAK), NO_RECHECK, NO_CHAIN,
 * BEGUN_COUNTS (a ring begun is counted as if it were complete), LATE_DONE (completion does not compare the
 * collection), NO_COLLECT (a time-out leaves the counts), NO_LAST_HARVEST, NO_LEAVE (a signal
 * collects and does not ring on), ONE_RING (FROZEN: one ring at a time), and with -DKERNEL:
 * COLLECT_ONE (takes one ring off instead of all), NO_PASS (a non-blocking collection takes the
 * doorbell and does not ring on), KERNEL_ONLY (a sleeper that got the kernel's event and the
 * doorbell together returns the former and does nothing about the latter), SPIN_STAYS (SPINS: who
 * has spun in vain leaves its ring counted). NO_COLLECT and NO_PASS break
 * nothing in this model. run.sh lists what is run each time.
 */

#ifndef WAITS
#define WAITS 2
#endif
#ifndef LEVEL
#define LEVEL 1
#endif
#ifndef SPINS
#define SPINS 0
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 1
#endif

bit item[2], due[2];	/* in memory; ghost: push of a producer that has returned */
bit push_buf[2];	/* the store of item = 1 waits */
bit announced[2];
bit announce_buf[2];	/* the store of 1 waits */

byte begun, done;
bit fresh[4];	/* no collection since this process, producers first, has begun its ring */
bit asleep[2];
byte timeouts = TIMEOUTS;
byte spins = SPINS;
#ifdef KERNEL
bit door, kernel_event;
#endif

#define list_empty (!item[0] && !item[1])

#ifdef WEAK
active proctype memory()
{
endm:	do
	:: atomic { push_buf[0] -> push_buf[0] = 0; item[0] = 1; }
	:: atomic { push_buf[1] -> push_buf[1] = 0; item[1] = 1; }
	:: atomic { announce_buf[0] -> announce_buf[0] = 0; announced[0] = 1; }
	:: atomic { announce_buf[1] -> announce_buf[1] = 0; announced[1] = 1; }
	od
}
#endif

inline wake_sleeper()
{
	if
	:: asleep[0] -> asleep[0] = 0
	:: asleep[1] -> asleep[1] = 0
	:: else
	fi
}

#ifdef KERNEL
#define unpark_one() door = 1; wake_sleeper()
#else
#define unpark_one() wake_sleeper()
#endif

/* Before what it would do next. */
#define MAY_STOP if :: can_stop -> goto endout :: true fi

/*
 * A producer returns in one step with the last thing that it does: what it is owed, it is owed from
 * then on, which asks for more than a later return. Taken in the meantime: nobody is owed anything.
 */
#ifdef FROZEN
#define RETURN                                                                                     \
	due[me] = (item[me] || push_buf[me]);                                                      \
	assert(due[0] + due[1] + asleep[0] + asleep[1] <= 2);                                      \
	goto endout
#else
#define RETURN due[me] = (item[me] || push_buf[me]); goto endout
#endif
#define MAY_RETURN if :: produces -> RETURN :: else fi

#if defined(BROKEN_BEGUN_COUNTS)
#define COUNTED begun
#else
#define COUNTED done
#endif

#ifdef BROKEN_ONE_RING
#define ENOUGH 1
#else
#define ENOUGH s
#endif

/* The caller has passed a full barrier. can_stop, produces and ring are constants of the process. */
inline wake_one()
{
	if
	:: atomic { announced[0] || announced[1] -> s = announced[0] + announced[1] };
	   if
	   :: atomic { COUNTED < ENOUGH -> MAY_STOP; s = 0; begun++; fresh[ring] = 1 };
	      atomic { MAY_STOP; unpark_one() };
	      atomic {
		MAY_STOP;
#ifdef BROKEN_LATE_DONE
		done++;
#else
		done = done + fresh[ring];
#endif
		fresh[ring] = 0;
		MAY_RETURN
	      }
	   :: atomic { COUNTED >= ENOUGH -> s = 0; MAY_RETURN }
	   fi
	:: atomic { !announced[0] && !announced[1] -> MAY_RETURN }
	fi
}

proctype producer(bit me; bool can_stop)
{
	byte s, ring = me;
	bool produces = 1;

#ifdef WEAK
	push_buf[me] = 1;
#ifndef BROKEN_NO_PUSH_BARRIER
	(push_buf[me] == 0);
#endif
#else
	item[me] = 1;
#endif
	wake_one();
endout:	false
}

#ifdef KERNEL
#define GOT(x) got = (x || kept); kept = 0
#else
#define GOT(x) got = x
#endif

inline take_item()
{
	atomic {
		if
		:: item[0] ->
			GOT(1);
			if
			:: true -> item[0] = 0; due[0] = 0
			:: LEVEL
			fi
		:: item[1] ->
			GOT(1);
			if
			:: true -> item[1] = 0; due[1] = 0
			:: LEVEL
			fi
		:: list_empty -> GOT(0)
		fi
	}
}

/* After a harvest. */
#ifdef BROKEN_NO_CHAIN
#define chain() skip
#else
#define chain() ring_on()
#endif

/* A full barrier, then the list, then the sleepers. */
inline ring_on()
{
	if
	:: !list_empty -> wake_one()
	:: else
	fi
}

/* In one step. */
inline collect()
{
	if
	:: begun || done ->
#ifdef BROKEN_COLLECT_ONE
		begun = (begun > 0 -> begun - 1 : 0);
		done = (done > 0 -> done - 1 : 0);
#else
		begun = 0;
		done = 0;
#endif
		fresh[0] = 0;
		fresh[1] = 0;
		fresh[2] = 0;
		fresh[3] = 0
	:: else
	fi
}

/* The announcement has left the store buffer before its withdrawal can. */
#define WITHDRAW announce_buf[me] == 0 -> announced[me] = 0

/* While another consumer is a sleeper; a spin that has found something goes to `again`. */
#if SPINS
inline spin()
{
	if
	:: atomic { spins > 0 && announced[1 - me] -> spins--; announced[me] = 1; }
	   done++;
#ifdef BROKEN_SPIN_STAYS
	   announced[me] = 0;
#else
	   atomic { WITHDRAW };
	   atomic { collect() };
#endif
	   if
	   :: !list_empty -> goto again
	   :: true
	   fi
	:: true
	fi
}
#else
#define spin() skip
#endif

#ifdef KERNEL
/* Any part of what the kernel has; it wakes another sleeper for the rest. In one step. */
inline take_kernel()
{
	if
	:: door -> door = 0; rung = 1
	:: kernel_event -> kernel_event = 0; kept = 1
	:: door && kernel_event -> door = 0; kernel_event = 0; rung = 1; kept = 1
	fi;
	if
	:: door || kernel_event -> wake_sleeper()
	:: else
	fi
}

#ifndef ALONE
active proctype other_descriptor()
{
endo:	if
	:: atomic { true -> kernel_event = 1; wake_sleeper(); }
	:: true
	fi
}
#endif

/*
 * Both sides without sleeping; kept: there was an event of the kernel's, and if the program's buffer is
 * full then, nothing is harvested.
 */
inline collect_both()
{
	if
	:: atomic { door || kernel_event -> take_kernel(); }
	   if
	   :: atomic { rung -> rung = 0; collect() };
#ifndef BROKEN_NO_PASS
		ring_on()
#endif
	   :: !rung
	   fi;
	   if
	   :: take_item()
	   :: atomic { kept -> GOT(1) }
	   fi
	:: take_item()
	fi;
	chain()
}
#else
inline collect_both()
{
	take_item();
	chain()
}
#endif

/* In one step. Who is not woken any more stays so until it looks. */
inline park()
{
#ifdef KERNEL
	if
	:: door || kernel_event -> take_kernel(); goto up
	:: else -> asleep[me] = 1
	fi
#else
	if
	:: begun -> goto up
	:: else -> asleep[me] = 1
	fi
#endif
}

proctype consumer(bit me)
{
	byte n = (me == 0 -> WAITS : 1);
	bool got;
	byte s, ring = 2 + me;
	bool can_stop = 0, produces = 0;
#ifdef KERNEL
	bool rung, kept;
#endif

again:
	collect_both();
#if SPINS
	if
	:: got -> goto returned
	:: else
	fi;
	spin();
#endif
#ifdef WEAK
	if
	:: got -> goto returned
	:: atomic { !got -> announce_buf[me] = 1 }
	fi;
#ifndef BROKEN_NO_SLEEP_BARRIER
	(announce_buf[me] == 0);
#endif
#else
	if
	:: got -> goto returned
	:: atomic { !got -> announced[me] = 1 }
	fi;
#endif
#ifndef BROKEN_NO_RECHECK
	if
	:: !list_empty ->
		atomic { WITHDRAW };
		atomic { collect() };
		goto again
	:: else
	fi;
#endif
	atomic { park() };
	/*
	 * Not woken, but timed out or interrupted. Who has been woken looks for events first, so
	 * that way leads through `park`.
	 */
endp:	do
	:: atomic { asleep[me] && timeouts > 0 -> timeouts--; asleep[me] = 0; goto timed_out }
	:: atomic { asleep[me] && timeouts > 0 -> timeouts--; asleep[me] = 0; goto interrupted }
	:: atomic { !asleep[me] -> park() }
	od;
up:
#ifdef KERNEL
	if
	:: atomic { rung -> rung = 0; collect() };
	   atomic { WITHDRAW }
	:: atomic { !rung && WITHDRAW }
	fi;
	atomic {
		collect();
		if
		:: kept -> kept = 0
		:: else -> goto again
		fi
	};
#ifndef BROKEN_KERNEL_ONLY
	if
	:: take_item(); chain()
	:: true -> ring_on()
	fi;
#endif
	goto returned;
#else
	atomic { WITHDRAW };
	atomic { collect(); goto again };
#endif
timed_out:
	atomic { WITHDRAW };
#ifndef BROKEN_NO_COLLECT
	atomic { collect() };
#endif
#ifndef BROKEN_NO_LAST_HARVEST
	collect_both();
#endif
	goto returned;
interrupted:
	atomic { WITHDRAW };
	atomic { collect() };
#ifndef BROKEN_NO_LEAVE
	ring_on();
#endif
returned:
	atomic {
		got = 0;
		n--;
		if
		:: n > 0 -> goto again
		:: else
		fi
	};
endout:	false
}

init {
	atomic {
#ifdef FROZEN
		announced[0] = 1;
		announced[1] = 1;
		asleep[0] = 1;
		asleep[1] = 1;
		run producer(0, 1);
		run producer(1, 0);
#else
		run producer(0, 1);
		run producer(1, 0);
		run consumer(0);
		run consumer(1);
#endif
	}
	/* True when no other process can take a step. */
	timeout ->
	assert(!(asleep[0] || asleep[1]) || !(due[0] || due[1])
#ifdef FROZEN
		|| due[0] + due[1] + asleep[0] + asleep[1] <= 2
#endif
	)
}
