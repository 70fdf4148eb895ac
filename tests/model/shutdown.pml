/* SPDX-License-Identifier: MIT */
/*
 * A shutdown reaches everybody who waits: each who leaves wakes the next.
 *
 * Mirrors: src/epoll/wait.c plx_ep_announce, plx_ep_retract, plx_ep_spin, sleep_once, wait_for_some,
 * plx_ep_shut_pass_on, pollux_ep_shutdown, futex_park; src/epoll/ready.c plx_ep_wake_one, bell_clear,
 * plx_ring_end, plx_ep_stand_in, plx_ep_stand_down. Two threads wait once each, and may spin
 * once; one makes an event, which one of them may take; one shuts down. Steps are
 * sequentially consistent: between the steps whose order counts there are full barriers.
 *
 * Checked: all end. A waiter that nobody wakes is an invalid end state.
 *
 * Broken variants: NO_PASS (who leaves wakes nobody), NO_LOOK (who is about to sleep does not look
 * at shut), WAKE_FIRST (the sleepers are looked for before shut is set), LOOK_FIRST (who comes out
 * of a sleep looks at shut before it collects the ring), NO_SPIN_LOOK (who has stopped spinning
 * does not look at shut before it takes an event).
 */

bit shut, event;
byte sleepers, begun, done, collection;
bit asleep[2];

/* A ring is complete; not if it has been collected. */
inline complete(rung)
{
	atomic {
		if
		:: collection == rung -> done++
		:: else
		fi
	}
}

/* busy: the epoll was collected from a moment ago, so one ring is enough. */
inline wake_one(s, rung)
{
	s = sleepers;
	if
	:: s == 0
	:: else ->
		atomic {
			if
			:: done >= s -> s = 0
			:: done > 0 && done < s -> s = 0
			:: done < s -> begun++
			fi;
			rung = collection
		}
		if
		:: s == 0
		:: else ->
			/* Of those who sleep on the word, one. */
			atomic {
				if
				:: asleep[0] -> asleep[0] = 0
				:: asleep[1] -> asleep[1] = 0
				:: !asleep[0] && !asleep[1]
				fi
			}
			complete(rung)
		fi
	fi
}

inline collect()
{
	atomic {
		if
		:: begun || done ->
			begun = 0;
			done = 0;
			collection++
		:: else
		fi
	}
}

proctype waiter(byte me)
{
	byte s, rung;
	bit saw, spun;

again:
	saw = 0;
	if
	:: true -> goto sleeps
	:: !spun -> spun = 1
	fi;
	/* Spins while others may sleep. */
	sleepers++;
	rung = collection;
	complete(rung);
	if
	:: event || shut
	:: true
	fi;
	sleepers--;
	collect();
#ifdef BROKEN_NO_SPIN_LOOK
	goto takes;
#else
	goto looks;
#endif

sleeps:
	sleepers++;
#ifdef BROKEN_NO_LOOK
	if
	:: event -> goto up
	:: else
	fi;
#else
	if
	:: event || shut -> goto up
	:: else
	fi;
#endif
	do
	:: atomic { begun -> break }
	:: atomic { !begun -> asleep[me] = 1 }
		!asleep[me]
	od;
up:
#ifdef BROKEN_LOOK_FIRST
	saw = shut;
#endif
	sleepers--;
	collect();
#ifdef BROKEN_LOOK_FIRST
	if
	:: saw -> goto leaves
	:: else -> goto takes
	fi;
#endif

looks:
	if
	:: shut -> goto leaves
	:: else
	fi;
takes:
	atomic {
		if
		:: event ->
			event = 0;
			goto ends
		:: else -> goto again
		fi
	}
leaves:
#ifndef BROKEN_NO_PASS
	wake_one(s, rung);
#endif
ends:
	skip
}

proctype producer()
{
	byte s, rung;

	event = 1;
	wake_one(s, rung)
}

proctype shutter()
{
	byte s, rung;

#ifdef BROKEN_WAKE_FIRST
	wake_one(s, rung);
	shut = 1
#else
	shut = 1;
	wake_one(s, rung)
#endif
}

init {
	atomic {
		run waiter(0);
		run waiter(1);
		run producer();
		run shutter()
	}
}
