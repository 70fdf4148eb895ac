/* SPDX-License-Identifier: MIT */
/*
 * The doorbell of an epoll with cached items: two items, two sleepers, waits that have room for one
 * event, ringers and woken sleepers that stop.
 *
 * Mirrors: docs/cache.md, "The doorbell". (No code yet; src/epoll/ready.c plx_ep_wake_one has the
 * rule of counting.) Two producers make one item each ready; with SAME both make the first ready. Two
 * who wait, WAITS times each, with room for one event; a look that does not wait; an event of a file
 * of the kernel's own may come. The doorbell is edge-triggered and never read: a ring while its event
 * lies in the kernel adds nothing and wakes one sleeper more. EDGES: items are edge-triggered; else
 * who gets one reads it, or leaves it as it is.
 *
 * Counted rule (default): a producer rings unless as many rings as there are sleepers are complete and
 * not collected. Who takes the doorbell's event out collects all rings before he looks at the list.
 * A ring is counted when the doorbell has been written to, and only if nobody has collected since.
 * FLAG: one ring at a time, from the flag's exchange until it is cleared (protocol as first written).
 *
 * Checked: when nobody can move, nobody sleeps beside an item that is ready (EDGES: and not reported
 * since) whose producer has returned. STOP_RINGER: producer 0 may stop for ever at any step of its
 * ring; the other's item is enough. STOP_WAITER: one who waits may stop for ever with the doorbell's
 * event in his hand; what producers do after that wakes the other.
 *
 * Memory (-DWEAK): U, the mark of an item on the list (set by a producer, taken by a collection) and
 * the announcement are stores that wait in buffers, which the process `memory` empties in any order; a
 * full barrier waits for the own ones. The pairs: push, barrier, sleepers || announcement, barrier,
 * list; U, barrier, mark || mark taken off, barrier, U. The count of rings is changed by
 * read-modify-writes, the flag is cleared by a store with a barrier behind it: flag = 0, barrier,
 * list || push, barrier, flag.
 *
 * Broken variants: NO_PUSH_BARRIER, NO_SLEEP_BARRIER, NO_MARK_BARRIER, NO_OFF_BARRIER and with FLAG
 * NO_CLEAR_BARRIER (all WEAK), NO_RECHECK (who has announced himself does not look at the list),
 * NO_HAND_ON (who leaves something does not ring), SWALLOW (a look that takes the doorbell's event does
 * nothing more), COUNT_LATE (a ring is counted though somebody has collected), COLLECT_LATE (rings are
 * collected after the look at the list and what was left was handed on). FLAG fails with STOP_RINGER and with STOP_WAITER.
 */
#ifndef WAITS
#define WAITS 1
#endif
#ifndef WAITERS
#define WAITERS 2
#endif
#ifndef LOOKS
#define LOOKS 1
#endif

#ifdef EDGES
#define is_edge true
#else
#define is_edge false
#endif

/* In memory: U is not 0; on the list. */
bit has[2], listed[2];
byte sleepers;
#ifdef FLAG
bit rung;
#else
byte rings, collections;
#endif
/* The kernel's list: the doorbell, another file. */
bit door, other;
bit asleep[2];
bit mutex;
/* Ghosts: the producer's event counts; it has not been reported. */
bit due[2], fresh[2];
bit stopped;
byte ended;

#ifdef WEAK
/* Stores that wait: U, the mark set, the mark taken off, announcements, the flag. */
bit has_b[2], on_b[2], off_b[2], announce_b[2];
#ifdef FLAG
bit clear_b[3];
#endif

active proctype memory()
{
endm:	do
	:: atomic { has_b[0] -> has_b[0] = 0; has[0] = 1 }
	:: atomic { has_b[1] -> has_b[1] = 0; has[1] = 1 }
	:: atomic { off_b[0] -> off_b[0] = 0; listed[0] = 0 }
	:: atomic { announce_b[0] -> announce_b[0] = 0; sleepers++ }
	:: atomic { announce_b[1] -> announce_b[1] = 0; sleepers++ }
	:: atomic { on_b[0] && !off_b[0] -> on_b[0] = 0; listed[0] = 1 }
#ifndef SAME
	:: atomic { off_b[1] -> off_b[1] = 0; listed[1] = 0 }
	:: atomic { on_b[1] && !off_b[1] -> on_b[1] = 0; listed[1] = 1 }
#endif
#ifdef FLAG
	:: atomic { clear_b[0] -> clear_b[0] = 0; rung = 0 }
	:: atomic { clear_b[1] -> clear_b[1] = 0; rung = 0 }
	:: atomic { clear_b[2] -> clear_b[2] = 0; rung = 0 }
#endif
	od
}
#endif

#define NOTHING (!listed[0] && !listed[1])

inline wake()
{
	if
	:: asleep[0] -> asleep[0] = 0
	:: asleep[1] -> asleep[1] = 0
	:: else
	fi
}

#ifdef STOP_RINGER
#define MAY_STOP if :: can_stop -> goto over :: true fi
#else
#define MAY_STOP skip
#endif

/* After a full barrier. */
inline ring()
{
	s = sleepers;
	if
	:: s ->
		MAY_STOP;
		atomic {
			if
#ifdef FLAG
			:: !rung -> rung = 1
#else
			:: rings < s -> c = collections
#endif
			:: else -> s = 0
			fi
		}
		if
		:: s ->
			MAY_STOP;
			d_step { door = 1; wake() };
#ifndef FLAG
			MAY_STOP;
			d_step {
				if
#ifdef BROKEN_COUNT_LATE
				:: true -> rings++
#else
				:: c == collections -> rings++
				:: else
#endif
				fi
			}
#endif
		:: else
		fi
	:: else
	fi;
	d_step { s = 0; c = 0 }
}

inline hand_on()
{
#ifndef BROKEN_NO_HAND_ON
	if
	:: !NOTHING -> ring()
	:: else
	fi
#else
	skip
#endif
}

#ifdef SAME
#define it 0
#else
#define it me
#endif

proctype producer(bit me; bit can_stop)
{
	byte s, c;
	bit after;

	after = stopped;
#ifdef WEAK
	atomic { has_b[it] = 1; fresh[it] = 1 };
#ifndef BROKEN_NO_MARK_BARRIER
	(!has_b[it]);
#endif
	if
	:: !listed[it] ->
		on_b[it] = 1;
	:: else
	fi;
#ifndef BROKEN_NO_PUSH_BARRIER
	(!on_b[it] && !has_b[it]);
#endif
#else
	d_step { has[it] = 1; fresh[it] = 1 };
	listed[it] = 1;
#endif
	ring();
	d_step {
		if
#ifdef STOP_WAITER
		:: stopped && !after
		:: else -> due[it] = 1
#else
		:: true -> due[it] = 1
#endif
		fi;
		after = 0
	};
over:
	ended++
}

/* One item off the list at position i, under the mutex; got: it is reported. */
inline try_item(i)
{
	if
	:: !got && listed[i] ->
#ifdef EDGES
#ifdef WEAK
		off_b[i] = 1;
#ifndef BROKEN_NO_OFF_BARRIER
		(!off_b[i]);
#endif
#else
		listed[i] = 0;
#endif
		d_step {
			if
			:: has[i] -> got = 1; fresh[i] = 0
			:: else
			fi
		}
#else
		if
		:: has[i] ->
			got = 1;
			/* A read, or not. */
			if
			:: atomic { has[i] = 0; fresh[i] = 0 }
			:: true
			fi
		:: else ->
#ifdef WEAK
			off_b[i] = 1;
#ifndef BROKEN_NO_OFF_BARRIER
			(!off_b[i]);
#endif
			if
			:: has[i] && !listed[i] && !on_b[i] -> on_b[i] = 1; (!on_b[i]); got = 1
			:: else
			fi
#else
			listed[i] = 0;
			if
			:: has[i] -> listed[i] = 1; got = 1
			:: else
			fi
#endif
		fi
#endif
	:: else
	fi
}

inline collect()
{
	atomic { !mutex -> mutex = 1 };
	try_item(0);
#ifndef SAME
	try_item(1);
#endif
	mutex = 0
}

/* w: whose store buffer. */
inline collect_rings(w)
{
#ifdef FLAG
#ifdef WEAK
	clear_b[w] = 1;
#ifndef BROKEN_NO_CLEAR_BARRIER
	(!clear_b[w])
#endif
#else
	rung = 0
#endif
#else
	d_step { rings = 0; collections++ }
#endif
}

/* One event; the next sleeper is woken for what is left. */
inline take_kernel()
{
	b = 0;
	e = 0;
	if
	:: door -> door = 0; b = 1
	:: other -> other = 0; e = 1
	fi;
	if
	:: door || other -> wake()
	:: else
	fi
}

#ifdef OTHER
active proctype other_file()
{
	if
	:: atomic { true -> other = 1; wake() }
	:: true
	fi
}
#endif

proctype waiter(bit me)
{
	byte n = WAITS, s, c;
	bit got, b, e;
	bit can_stop = 0;

again:
#ifdef WEAK
	announce_b[me] = 1;
#ifndef BROKEN_NO_SLEEP_BARRIER
	(!announce_b[me]);
#endif
#else
	sleepers++;
#endif
#ifndef BROKEN_NO_RECHECK
	if
	:: !NOTHING -> goto up
	:: else
	fi;
#endif
park:
	atomic {
		if
		:: door || other -> take_kernel()
		:: else -> asleep[me] = 1
		fi
	}
	if
	:: !b && !e ->
endp:		(!asleep[me]);
		goto park
	:: else
	fi;
#ifdef STOP_WAITER
	/* What had been given before is his, as in the kernel an event that he has taken. */
	if
	:: atomic { b && !stopped -> stopped = 1; due[0] = 0; due[1] = 0 }; goto over
	:: true
	fi;
#endif
up:
#ifndef BROKEN_COLLECT_LATE
	if
	:: b -> collect_rings(me)
	:: else
	fi;
#endif
#ifdef WEAK
	atomic { !announce_b[me] -> sleepers-- };
#else
	sleepers--;
#endif
	/* The doorbell's event, if it is there, has woken the next. */
	if
	:: e -> goto got_one
	:: else
	fi;
	collect();
#ifdef BROKEN_COLLECT_LATE
	if
	:: b -> collect_rings(me)
	:: else
	fi;
#else
	hand_on();
#endif
	d_step { b = 0; e = 0 };
	if
	:: !got -> goto again
	:: else
	fi;
got_one:
	atomic { got = 0; b = 0; e = 0; n-- };
	if
	:: n > 0 -> goto again
	:: else
	fi;
over:
	ended++
}

/* It has taken an item, or the kernel's event; or nothing, its one place went to the doorbell. */
proctype looker()
{
	byte n = LOOKS, s, c;
	bit got, b, e;
	bit can_stop = 0;

	do
	:: n == 0 -> break
	:: n > 0 ->
		n--;
		if
		:: true -> collect()
		:: atomic { door || other -> take_kernel() }
		fi;
#ifndef BROKEN_SWALLOW
		if
		:: b -> collect_rings(2)
		:: else
		fi;
		hand_on();
#endif
		d_step { b = 0; e = 0; got = 0 }
	od;
over:
	ended++
}

init {
	atomic {
		run producer(0, 1);
		run producer(1, 0);
		run waiter(0);
		if
		:: WAITERS > 1 -> run waiter(1)
		:: else
		fi;
		run looker()
	}
	/* True when nobody else can take a step. */
	timeout ->
	assert(ended + asleep[0] + asleep[1] == 3 + WAITERS);
	assert(!(asleep[0] || asleep[1]) || !(
		(due[0] && has[0] && (!is_edge || fresh[0])) || (due[1] && has[1] && (!is_edge || fresh[1]))))
}
