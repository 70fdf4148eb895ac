/* SPDX-License-Identifier: MIT */
/*
 * A wake that ends at an exclusive item goes on if all who slept in its epoll leave without the item.
 *
 * Mirrors: src/epoll/file.c item_wake, take_spent, hand_on, plx_ep_pass_on; src/epoll/ready.c
 * plx_ep_wake_one; plx_ep_announce, plx_ep_retract in src/epoll/wait.c; src/cache/wait.c
 * pass_ring_on. One item, whose file has somebody behind it; two who sleep, each of whom collects
 * what is there when he gets up, or leaves it: as something else had the last place, or by a signal.
 *
 * Checked: when nothing can move any more, an item that is left on the list has been rung for and its
 * sleeper is on his way, or the wake has gone on. With one producer it goes on once at most.
 *
 * Memory: all that matters are locked steps, or has a full barrier behind it.
 *
 * Broken variants: NO_LOOK (who leaves passes rings on, and no more), LATE (a waker sets spent when
 * it has counted a sleeper), BOTH (it goes on whatever who leaves has done)).
 */
#ifndef PRODUCERS
#define PRODUCERS 1
#endif

#define NOT 0
#define SET 1
#define OVER 2

bit listed, marked;
byte spent;
bit ep_spent;
byte sleepers, done;
/* A ghost: how often the wake has gone on. */
byte told;
byte busy = PRODUCERS + 2;

/* plx_ep_wake_one. Who sleeps may get up at any time, for a ring or something else. */
inline wake_one(r)
{
	atomic {
		if
		:: sleepers > done -> done++; r = 1
		:: else -> r = 0
		fi
	}
}

inline set_spent()
{
	spent = SET;
	ep_spent = 1
}

proctype producer()
{
	bit slept, counts;
	byte was;

	atomic {
		if
		:: !marked -> marked = 1; listed = 1
		:: marked
		fi
	};
	counts = sleepers > 0;
#ifndef BROKEN_LATE
	if
	:: counts -> set_spent()
	:: !counts
	fi;
#endif
	wake_one(slept);
	if
	:: !counts -> told++
	:: counts && slept ->
#ifdef BROKEN_LATE
		set_spent();
#endif
		skip
	:: counts && !slept ->
		d_step { was = spent; spent = NOT };
#ifdef BROKEN_BOTH
		was = NOT;
#endif
		if
		:: was == OVER
		:: else -> told++
		fi
	fi;
	busy--
}

inline pass_on()
{
	if
	:: listed ->
		wake_one(r);
		if
		:: r
		:: else ->
#ifndef BROKEN_NO_LOOK
			if
			:: ep_spent && sleepers == 0 ->
				ep_spent = 0;
				atomic {
					if
					:: listed && spent == SET -> spent = OVER; r = 1
					:: else
					fi
				};
				if
				:: r -> told++
				:: else
				fi
			:: else
			fi
#else
			skip
#endif
		fi
	:: else
	fi
}

/* Under the mutex; what is collected is edge-triggered. */
inline harvest()
{
	atomic {
		if
		:: listed ->
			listed = 0;
			marked = 0;
#ifndef BROKEN_CLEAR_ALL
			spent = (spent == SET -> NOT : spent)
#else
			spent = NOT
#endif
		:: else
		fi
	}
}

proctype sleeper()
{
	bit r;

	sleepers++;
	atomic { sleepers--; done = 0 };
	if
	:: true -> harvest()
	:: true -> pass_on()
	fi;
	busy--
}

init {
	atomic {
		byte i;

		for (i : 1 .. PRODUCERS) {
			run producer()
		};
		run sleeper();
		run sleeper()
	};
	busy == 0;
	assert(!listed || told > 0);
#if PRODUCERS == 1
	assert(told <= 1)
#endif
}
