/* SPDX-License-Identifier: MIT */
/*
 * A ring that is taken out of the doorbell by who does not collect its event is not lost to others.
 *
 * Mirrors: src/posix/epoll.c plx_front_hush, front_unpark; src/posix/wait.c take_ring_along,
 * waiter_leave, pass_ring_on, wait_mixed, collect_kernel where the program's buffer is bad, and its
 * looks without a sleep; src/epoll/ready.c plx_ep_wake_one, bell_complete, plx_bell_collect. What is
 * told there of no_lost_wake.pml with -DKERNEL holds here, too; that one has the time-outs and the
 * spins, and the memory: all words here are changed by locked steps.
 *
 * Checked:
 *  - when nothing can move any more, no consumer sleeps while the list holds an item whose producer
 *    has returned. Producer 0 may stop for ever at any step of its wake;
 *  - a sleeper that leaves, full or by a signal, with nobody else asleep, leaves no event of the
 *    doorbell behind that was there when it began to, and that the bell tells of (-DONE: one consumer).
 *
 * The doorbell: `count` says that its eventfd has a count, which only a hush takes; `door`, that it
 * is on the kernel's ready list. A look that comes by takes it off, and finds an event if there is a
 * count. A fault leaves all as it is, and the kernel wakes another sleeper, as it does whenever it
 * leaves something. A bad buffer (there are FAULTS) is one where not even one event can be stored.
 *
 * It is searched in parts: signals, faults, or other events of the kernel (-DOTHER), where nobody
 * stops (-DNO_STOP).
 *
 * Broken variants: NO_COLLECT (a hush leaves the bell's counts), COLLECT_FIRST (it clears them before
 * it takes the ring), HUSH_LATE (a leaver takes the ring after it has looked whom to ring for),
 * NO_LEAVE (it takes the ring, and rings for nobody), FULL_NO_PASS (so does one that has no room
 * left), NO_AGAIN (a sleeper that has taken it returns without another look), NO_ALONG (-DONE: the
 * step is left out). NO_TAKEN (a look without a sleep that has taken it rings for nobody) breaks
 * nothing here: the harvest after it does.
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

bit item[2], due[2];
bit announced[2], asleep[2];
byte begun, done, collections;
bit door, count, kernel_event;
byte signals = SIGNALS, faults = FAULTS;
/* Ghosts: producers in their wake; rings. */
byte in_wake, rings;

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
			:: done < s -> begun++; c = collections; s = 1
			:: else -> s = 0
			fi
		}
		if
		:: s ->
			MAY_STOP;
			atomic { count = 1; door = 1; rings++; wake_sleeper() }
			MAY_STOP;
			atomic {
				if
				:: c == collections && begun -> done++
				:: else
				fi;
				c = 0
			}
		:: else
		fi
	:: else
	fi;
	s = 0
}

proctype producer(bit me; bool can_stop)
{
	byte s, c;

	atomic { item[me] = 1; in_wake++ }
	wake_one();
	atomic { due[me] = item[me]; in_wake-- }
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

inline collect()
{
	atomic {
		if
		:: begun || done -> begun = 0; done = 0; collections++
		:: else
		fi
	}
}

inline retract()
{
	announced[me] = 0;
	collect()
}

/* took: there was a ring. */
inline hush()
{
#ifdef BROKEN_COLLECT_FIRST
	collect();
#endif
	d_step { took = count; count = 0 };
#if !defined(BROKEN_NO_COLLECT) && !defined(BROKEN_COLLECT_FIRST)
	if
	:: took -> collect()
	:: else
	fi
#endif
}

inline take_ring_along()
{
#ifndef BROKEN_NO_ALONG
	atomic { s = announced[0] + announced[1] };
	if
	:: s <= 1 && (begun || done) -> hush(); took = 0
	:: else
	fi;
	s = 0
#else
	skip
#endif
}

/* In one step: any part of what the kernel has. */
inline take_kernel()
{
	if
	:: door -> door = 0; rung = count
	:: kernel_event -> kernel_event = 0; kept = 1
	:: door && kernel_event -> door = 0; kernel_event = 0; rung = count; kept = 1
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
	byte s, c, was;
	bit got, rung, kept, took, taken, fault, bad, calm;
	bool can_stop = 0;

wait:
	if
	:: atomic { faults > 0 -> faults--; bad = 1 }
	:: true
	fi;
again:
	if
	:: bad ->
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
		if
		:: atomic { there -> take_kernel() };
			if
			:: rung -> rung = 0; collect(); ring_on()
			:: else
			fi
		:: true
		fi;
		if
		:: true -> harvest()
		:: kept -> ring_on()
		fi;
		atomic { got = got || kept; kept = 0 };
		/* Our side may have gone first. */
		if
		:: atomic { got && there -> take_kernel(); kept = 0 };
			if
			:: rung -> rung = 0; collect(); ring_on()
			:: else
			fi
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
		atomic { calm = (in_wake == 0 && (begun || done)); was = rings };
		take_ring_along();
		retract();
#ifndef BROKEN_FULL_NO_PASS
		ring_on();
#endif
		goto left
	:: else
	fi;
	if
	:: rung -> rung = 0; collect()
	:: else
	fi;
	retract();
	harvest();
	if
	:: kept || got -> kept = 0; goto returned
	:: else -> goto again
	fi;

interrupted:
	atomic { calm = (in_wake == 0 && (begun || done)); was = rings };
#ifndef BROKEN_HUSH_LATE
	take_ring_along();
#endif
	waiter_leave();
#ifdef BROKEN_HUSH_LATE
	take_ring_along();
#endif
left:
#ifdef ONE
	atomic {
		assert(!calm || was != rings || !(door && count))
	};
#endif
	was = 0;
returned:
	atomic { got = 0; bad = 0; calm = 0; n-- };
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
