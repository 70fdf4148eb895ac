/* SPDX-License-Identifier: MIT */
/*
 * A ring that is taken out of the doorbell by who does not collect its event is not lost to others,
 * and one that nobody takes costs no later wait a slot.
 *
 * Mirrors: src/cache/epoll.c plx_epoll_hush, epoll_unpark; src/cache/wait.c waiter_leave,
 * pass_ring_on, wait_mixed, sleeps_at_once, note_drop, collect_kernel where the program's buffer is
 * bad, and its looks without a sleep; src/epoll/ready.c plx_ep_wake_one, plx_ring_end,
 * plx_bell_collect, bell_over, plx_bell_stray. What is
 * told there of no_lost_wake.pml with -DKERNEL holds here, too; that one has the time-outs and the
 * spins, and the memory: all words here are changed by locked steps.
 *
 * Checked:
 *  - when nothing can move any more, no consumer sleeps while the list holds an item whose producer
 *    has returned. Producer 0 may stop for ever at any step of its wake;
 *  - if a wait finds the doorbell's event, a ring has been written since it began: what was written
 *    before takes no slot of it (-DONE: one consumer). With two what the accounts say is left open:
 *    any wait may take rings out before it looks.
 *
 * The doorbell: `count` says that its eventfd has a count, which only a hush takes; `door`, that it
 * is on the kernel's ready list. A look that comes by takes it off, and finds an event if there is a
 * count. A fault leaves all as it is, and the kernel wakes another sleeper, as it does whenever it
 * leaves something. A bad buffer (there are FAULTS) is one where not even one event can be stored.
 *
 * It is searched in parts: signals, sleeps that are left by a jump, perhaps with something in hand
 * (JUMPS), faults, or other events of the kernel (-DOTHER), where nobody stops (-DNO_STOP).
 *
 * Broken variants: NO_COLLECT (a hush leaves the bell's counts), COLLECT_FIRST (it clears them before
 * it takes the ring), HUSH_LATE (a waiter takes the ring after it has announced itself and looked),
 * NO_LEAVE (who leaves with a ring in hand rings for nobody), NO_AGAIN (a sleeper that has taken it
 * returns without another look); with -DONE: NO_OWED (of the rings that a collection finds, those
 * that have not reached its caller are forgotten), NO_DOUBT (what has reached it is taken for the
 * one that it finds), HEARD_ALL (a read is taken for one of all that is owed), NO_COUNTS (what was
 * begun after the leave is not looked for), NO_LOOK (a wait may sleep at once with rings about).
 * NO_TAKEN (a look without a sleep that has taken it rings for nobody) breaks nothing here: the
 * harvest after it does.
 */

#ifndef WAITS
#define WAITS 1
#endif
#ifndef FAULTS
#define FAULTS 0
#endif
#ifndef SIGNALS
#define SIGNALS 0
#endif
#ifndef JUMPS
#define JUMPS 0
#endif

bit item[2], due[2];
bit announced[2], asleep[2];
byte begun, done;
/*
 * Who has begun a ring since the last collection, a bit for each process. The code has a number of
 * the last collection and compares it; here that would be many states for each that matters.
 */
byte same;
bit door, kernel_event;
byte count;
byte signals = SIGNALS, faults = FAULTS, jumps = JUMPS;
#ifdef ONE
/* rings - heard; owed - heard, or 0 if it is less. */
short unheard;
byte owed;
/* Ghost: writes to the doorbell so far. */
byte rings;
#endif

#define list_empty (!item[0] && !item[1])
#define there (door || kernel_event)

inline wake_sleeper()
{
	if
	:: asleep[0] -> asleep[0] = 0
	:: asleep[1] -> asleep[1] = 0
	:: else
	fi
}

#ifdef NO_STOP
#define MAY_STOP skip
#else
#define MAY_STOP if :: can_stop -> goto out :: true fi
#endif

/* The caller has passed a full barrier. */
inline wake_one()
{
	atomic { s = announced[0] + announced[1] }
	if
	:: s > 0 ->
		MAY_STOP;
		atomic {
			if
			:: done < s -> begun++; same = same | (1 << _pid); s = 1
			:: else -> s = 0
			fi
		}
		if
		:: s ->
			MAY_STOP;
			atomic {
#ifdef ONE
				count++;
				rings++;
#else
				count = 1;
#endif
				door = 1;
				wake_sleeper()
			}
			MAY_STOP;
			atomic {
				if
				:: (same & (1 << _pid)) && begun -> done++
				:: else
				fi;
				same = same & ~(1 << _pid)
			}
		:: else
		fi
	:: else
	fi;
	s = 0
}

proctype producer(bit me; bool can_stop)
{
	byte s;

	item[me] = 1;
	wake_one();
	due[me] = item[me];
out:
	skip
}

inline ring_on()
{
	if
	:: !list_empty -> wake_one()
	:: else
	fi
}

inline harvest()
{
	atomic {
		if
		:: item[0] -> got = 1; item[0] = 0; due[0] = 0
		:: !item[0] && item[1] -> got = 1; item[1] = 0; due[1] = 0
		:: else -> got = 0
		fi
	}
	ring_on()
}

/* In two steps: the counts go, and then it is known how many rings they were. */
inline collect(taken)
{
	atomic {
		b = begun;
		if
		:: begun || done -> begun = 0; done = 0; same = 0
		:: else
		fi
	};
#ifdef ONE
	atomic {
		unheard = unheard + b;
		if
#ifndef BROKEN_NO_OWED
		:: b > taken && unheard > owed -> owed = unheard
#endif
#ifndef BROKEN_NO_DOUBT
		:: b && b <= taken && owed && unheard > owed -> owed = unheard
#endif
		:: else
		fi;
	};
#endif
	b = 0
}

inline retract()
{
	announced[me] = 0;
	collect(0)
}

/* took: there was a ring. */
inline hush()
{
#ifdef BROKEN_COLLECT_FIRST
	collect(0);
#endif
	d_step { c = count; took = c > 0; count = 0 };
#ifdef ONE
	atomic {
#ifdef BROKEN_HEARD_ALL
		if
		:: took -> unheard = 0; owed = 0
		:: else
		fi;
#else
		unheard = unheard - c;
		owed = (owed > c -> owed - c : 0);
#endif
	}
#endif
	c = 0;
#if !defined(BROKEN_NO_COLLECT) && !defined(BROKEN_COLLECT_FIRST)
	if
	:: took -> collect(0)
	:: else
	fi
#endif
}

/* What the accounts say; with more consumers than one they may say anything. */
#ifdef ONE
#ifdef BROKEN_NO_COUNTS
#define stray (!announced[0] && owed > 0)
#else
#define stray (!announced[0] && (owed > 0 || begun || done))
#endif
#define no_stray !(stray)
#else
#define stray true
#define no_stray true
#endif

/* taken: a ring that others may need. */
inline hush_strays()
{
	if
	:: stray -> hush(); taken = taken || took; took = 0
	:: no_stray
	fi
}

/* The slot of what it had to know of, and has left, is another's. */
#ifdef ONE
#define CHECK_SLOT assert(!rung || was != rings)
#else
#define CHECK_SLOT skip
#endif

/* In one step: any part of what the kernel has. */
inline take_kernel()
{
	if
	:: door -> door = 0; rung = count > 0
	:: kernel_event -> kernel_event = 0; kept = 1
	:: door && kernel_event -> door = 0; kernel_event = 0; rung = count > 0; kept = 1
	fi;
	if
	:: there -> wake_sleeper()
	:: else
	fi
}

/* In one step: what is on the list and has no count leaves it; the rest stays. fault: there is some. */
inline fault_kernel()
{
	if
	:: door && !count -> door = 0
	:: else
	fi;
	if
	:: there -> fault = 1; wake_sleeper()
	:: else -> fault = 0
	fi
}

/* Leaves with a bad buffer, or by a signal. */
inline waiter_leave()
{
	retract();
#ifndef BROKEN_NO_LEAVE
	ring_on()
#endif
}

/* Of a wait, without a sleep. */
inline look()
{
	hush_strays();
	atomic {
		if
		:: there -> take_kernel(); CHECK_SLOT
		:: else
		fi
	};
	if
	:: rung -> rung = 0; collect(1); taken = 1
	:: else
	fi;
#ifndef BROKEN_NO_TAKEN
	if
	:: taken -> ring_on()
	:: else
	fi;
#endif
	taken = 0
}

#ifdef OTHER
active proctype other_descriptor()
{
endo:	if
	:: atomic { true -> kernel_event = 1; wake_sleeper() }
	:: true
	fi
}
#endif

proctype consumer(bit me)
{
	byte n = (me == 0 -> WAITS : 1);
	byte s, c, b, was;
	bit got, rung, kept, took, taken, fault, bad;
	bool can_stop = 0;

wait:
#ifdef ONE
	was = rings;
#endif
	if
	:: atomic { faults > 0 -> faults--; bad = 1 }
	:: true
	fi;
again:
	if
	:: bad ->
		hush_strays();
		do
		:: atomic { fault_kernel() };
			if
			:: fault ->
				fault = 0;
				hush();
				if
				:: took -> took = 0; taken = 1
				:: else ->
					/* An event of the program's. */
					taken = 0;
					ring_on();
					goto returned
				fi
			:: else -> break
			fi
		od;
		if
		:: taken ->
			taken = 0;
#ifndef BROKEN_NO_TAKEN
			ring_on()
#endif
		:: else
		fi;
		/* So does a harvest at its end, if it could not store an item. */
		if
		:: !list_empty -> ring_on(); goto returned
		:: else
		fi
	:: else ->
		/* Without the look if it sleeps at once. */
		if
		:: true ->
			look()
#ifdef BROKEN_NO_LOOK
		:: true
#else
		:: no_stray
#endif
		fi;
		if
		:: true -> harvest()
		:: kept -> ring_on()
		fi;
		atomic { got = got || kept; kept = 0 };
		/* Our side may have gone first. */
		if
		:: got -> look(); kept = 0
		:: true
		fi;
		if
		:: got -> goto returned
		:: else
		fi
	fi;
	announced[me] = 1;
	if
	:: !list_empty -> retract(); goto again
	:: else
	fi;
#ifdef BROKEN_HUSH_LATE
	hush();
	took = 0;
#endif
park:
	atomic {
		if
		:: there && bad ->
			fault_kernel();
			if
			:: fault -> goto faulted
			:: else -> asleep[me] = 1
			fi
		:: there && !bad ->
			take_kernel();
			CHECK_SLOT;
			if
			:: rung || kept -> goto up
			:: else -> goto park
			fi
		:: else -> asleep[me] = 1
		fi
	}
endp:	if
	:: atomic { asleep[me] && signals > 0 -> signals--; asleep[me] = 0; goto interrupted }
	:: !asleep[me]
	fi;
	goto park;

faulted:
	fault = 0;
	hush();
	if
	:: took ->
		took = 0;
		retract();
#ifdef BROKEN_NO_AGAIN
		goto returned
#else
		/* No item can be stored. */
		ring_on();
		goto again
#endif
	:: else ->
		waiter_leave();
		goto returned
	fi;

up:
	if
	:: kept && !rung ->
		/* It has no room for more. */
		kept = 0;
		retract();
		ring_on();
		goto returned
	:: atomic { jumps > 0 -> jumps--; rung = 0; kept = 0; goto interrupted }
	:: rung || !kept
	fi;
	if
	:: rung -> rung = 0; collect(1)
	:: else
	fi;
	retract();
	harvest();
	if
	:: kept || got -> kept = 0; goto returned
	:: else -> goto again
	fi;

interrupted:
	waiter_leave();
returned:
	atomic { got = 0; bad = 0; n-- };
	if
	:: n > 0 -> goto wait
	:: else
	fi;
out:
	skip
}

init {
	atomic {
		run producer(0, 1);
		run producer(1, 0);
		run consumer(0);
#ifndef ONE
		run consumer(1);
#endif
	}
	/* True when no other process can take a step. */
	timeout ->
	assert(!(asleep[0] || asleep[1]) || !(due[0] || due[1]))
}
