/* SPDX-License-Identifier: MIT */
/*
 * An epoll gets its first descriptor while threads wait in it; and one whose descriptor a foreign loop
 * watches.
 *
 * Mirrors: src/epoll/wait.c futex_park, futex_unpark_one, plx_ep_side_begin; src/epoll/ready.c
 * plx_ep_wake_one, plx_rings_collect; src/wait/side.c pollux_ep_fd; src/wait/wait.c.
 *
 * PRODUCERS make one item each ready (edge-triggered). WAITERS threads wait WAITS times each, with
 * room for one event: on the futex as long as they see no side, then in the kernel. `maker` makes the
 * side at any time (MADE: it is there from the beginning). The doorbell is edge-triggered and never
 * read: its event is there or not, and a ring wakes one who sleeps in the kernel. A producer counts its
 * ring as begun in the word that threads sleep on, rings, and counts it as complete if nobody has
 * collected since. In a busy epoll, which may be at any time, one complete ring is enough.
 *
 * FD: a thread asks for the descriptor at any time and watches it from then on; LOOKS times it makes a
 * wait that does not sleep, with room for one event, when it is readable.
 *
 * Checked: when nobody can move, nobody sleeps while an item is on the list; and with FD, the loop does
 * not think that nothing is there while an item is on the list.
 *
 * Broken variants: SIDE_FIRST (who parks looks at the side before the word), NO_TURN (the word does not
 * change), NO_WAKE (who sleeps on it is not woken), NO_HELP (who sees the side before the word has
 * changed does not change it), EARLY (who rings has looked at the side before he
 * has pushed). With FD: NO_LOOK (who asks does not look at the list), LOOK_FIRST (he looks before he
 * counts), NO_HAND_ON (who leaves something does not ring), COLLECT_LATE (a look collects the rings
 * after the list).
 */
#ifndef WAITERS
#define WAITERS 2
#endif
#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef WAITS
#define WAITS 1
#endif
#ifndef LOOKS
#define LOOKS 2
#endif

#ifdef MADE
bit side = 1, turned = 1;
#else
bit side, turned;
#endif
bit listed[2];
byte sleepers;
/* The bell: begun and collections are in the word. */
byte begun, done, collections;
bit door;
/* On the futex; in the kernel. */
bit parked[2], asleep[2];
bit mutex;
bit asked, idle;
byte ended;

#define NOTHING (!listed[0] && !listed[1])

inline wake_futex()
{
	if
	:: parked[0] -> parked[0] = 0
	:: parked[1] -> parked[1] = 0
	:: else
	fi
}

/* The doorbell's event is there: one sleeper, and the foreign loop. */
inline wake_kernel()
{
	idle = 0;
	if
	:: asleep[0] -> asleep[0] = 0
	:: asleep[1] -> asleep[1] = 0
	:: else
	fi
}

/* After a full barrier. early: the side as it was before. */
inline ring(early)
{
	s = sleepers;
	if
	:: s ->
		atomic {
			if
			:: done >= s -> s = 0
			/* Busy. */
			:: done && done < s -> s = 0
			:: done < s -> begun++; c = collections
			fi
		};
		if
		:: s ->
#ifdef BROKEN_EARLY
			on_side = early;
#else
			on_side = side;
#endif
			if
			:: on_side -> d_step { door = 1; wake_kernel() }
			:: else -> d_step { wake_futex() }
			fi;
			d_step {
				if
				:: c == collections -> done++
				:: else
				fi
			}
		:: else
		fi
	:: else
	fi;
	d_step { s = 0; c = 0; on_side = 0 }
}

inline collect_rings()
{
	d_step {
		if
		:: begun || done -> begun = 0; done = 0; collections++
		:: else
		fi
	}
}

/* Before a sleep on the side. */
inline turn()
{
#ifndef BROKEN_NO_HELP
	if
	:: !turned ->
		d_step { begun = 0; done = 0; collections++ };
		turned = 1
	:: else
	fi
#else
	skip
#endif
}

/* One item; the next is told of what is left. */
inline collect_list()
{
	if
	:: !NOTHING ->
		atomic { !mutex -> mutex = 1 };
		d_step {
			if
			:: listed[0] -> listed[0] = 0; got = 1
			:: listed[1] -> listed[1] = 0; got = 1
			:: else
			fi
		};
		mutex = 0;
#ifndef BROKEN_NO_HAND_ON
		if
		:: !NOTHING -> ring(side)
		:: else
		fi
#endif
	:: else
	fi
}

proctype producer(bit me)
{
	byte s, c;
	bit on_side, before;

	before = side;
	listed[me] = 1;
	ring(before);
	before = 0;
	ended++
}

#ifndef MADE
active proctype maker()
{
	side = 1;
#ifndef BROKEN_NO_TURN
	d_step { begun = 0; done = 0; collections++ };
#endif
	turned = 1;
#ifndef BROKEN_NO_WAKE
	d_step { parked[0] = 0; parked[1] = 0 };
#endif
	ended++
}
#else
active proctype maker()
{
	ended++
}
#endif

proctype waiter(bit me)
{
	byte n = WAITS, s, c, seen_begun, seen_collections;
	bit on_side, got, b, saw;

again:
	saw = side;
	if
	:: saw -> turn()
	:: else
	fi;
	sleepers++;
	if
	:: !NOTHING -> goto up
	:: else
	fi;
	if
	:: saw -> goto kernel
	:: else
	fi;
park:
#ifdef BROKEN_SIDE_FIRST
	saw = side;
	d_step { seen_begun = begun; seen_collections = collections };
#else
	saw = 0;
	d_step { seen_begun = begun; seen_collections = collections };
	saw = side;
#endif
	if
	:: seen_begun || saw -> goto up
	:: else
	fi;
	atomic {
		if
		:: begun == seen_begun && collections == seen_collections -> parked[me] = 1
		:: else
		fi
	};
endf:	(!parked[me]);
	goto park;
kernel:
	atomic {
		if
		:: door -> door = 0; b = 1
		:: else -> asleep[me] = 1
		fi
	};
	if
	:: !b ->
endk:		(!asleep[me]);
		goto kernel
	:: else
	fi;
	collect_rings();
up:
	saw = 0;
	d_step { seen_begun = 0; seen_collections = 0; b = 0 };
	sleepers--;
	collect_rings();
	collect_list();
	if
	:: !got -> goto again
	:: else
	fi;
	d_step { got = 0; n-- };
	if
	:: n > 0 -> goto again
	:: else
	fi;
	ended++
}

#ifdef FD
active proctype foreign()
{
	byte n = LOOKS, s, c;
	bit on_side, got, b;

	(side);
	turn();
#ifdef BROKEN_LOOK_FIRST
	b = !NOTHING;
	sleepers++;
	if
	:: b -> ring(side)
	:: else
	fi;
	b = 0;
#else
	sleepers++;
#ifndef BROKEN_NO_LOOK
	if
	:: !NOTHING -> ring(side)
	:: else
	fi;
#endif
#endif
	asked = 1;
	do
	:: n == 0 -> break
	:: n > 0 ->
		atomic {
			if
			:: door -> door = 0; b = 1
			:: else -> idle = 1
			fi
		};
endi:		(!idle);
		if
		:: b ->
#ifdef BROKEN_COLLECT_LATE
			collect_list();
			collect_rings();
#else
			collect_rings();
			collect_list();
#endif
			d_step { got = 0; b = 0; n-- }
		:: else
		fi
	od;
	/* It goes away, and is not asked any more. */
	asked = 0
}
#endif

init {
	atomic {
		run producer(0);
		if
		:: PRODUCERS > 1 -> run producer(1)
		:: else
		fi;
		if
		:: WAITERS > 0 -> run waiter(0)
		:: else
		fi;
		if
		:: WAITERS > 1 -> run waiter(1)
		:: else
		fi
	}
	/* True when nobody else can take a step. */
	timeout ->
	assert(ended + parked[0] + parked[1] + asleep[0] + asleep[1] == 1 + PRODUCERS + WAITERS);
	assert(!(parked[0] || parked[1]) || !side);
	assert(!(parked[0] || parked[1] || asleep[0] || asleep[1]) || NOTHING);
	assert(!(asked && idle) || NOTHING)
}
