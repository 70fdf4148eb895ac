/* SPDX-License-Identifier: MIT */
/*
 * The slots of an AIO context: the ring never overflows (AIO-CQ-07), and every slot comes back.
 *
 * Mirrors: src/aio/submit.c has_room, room, post; src/aio/table.c plx_aio_get; src/aio/context.c
 * plx_aio_put. A ring of NR places, of which NR - 1 are used. Two calls of io_submit, the first of
 * two requests, the second of one; each speaks for one slot from its beginning to its end, since
 * it has at most one request whose event is not in the ring. Somebody takes events.
 *
 * The kernel's AIO gives slots back by other means: it counts what is free, gives batches of that to
 * CPUs, and finds by head and tail what has been taken. Here nothing is counted but what is on its
 * way; the ring itself says how much of it is full.
 *
 * Checked: an event always finds a free place. In the end nothing is spoken for.
 *
 * Weak memory: an addition to the state, the store of the tail and the release of the lock become
 * visible to others some time after their author has gone on, who sees them at once. What releases
 * does so after all that its thread has stored before. A barrier waits for the own ones.
 *
 * Broken variants: NO_GET_BARRIER, NO_POST_BARRIER (no barrier between an addition, or a post, and
 * the next look), LOOK_FIRST (a call looks before it has spoken for a slot), TAIL_FIRST (a look reads
 * the ring before the state), GIVEN_EARLY (the slot is given back before the tail is moved), FULL
 * (the last place is used, too), KEPT (a call that was refused keeps its slot).
 */
#ifndef NR
#define NR 3
#endif
#define CALLS 2
#define WHO 2

byte slots, head, tail;
bit lock;
/* An addition that is not visible: others wait with theirs. */
bit adding;
short add_b[WHO];
bit tail_b[WHO], unlock_b[WHO];
byte busy;

#define next(i) (((i) + 1) % NR)
#define used(h, t) (((t) + NR - (h)) % NR)
#define my_tail (tail_b[me] -> next(tail) : tail)

active proctype memory()
{
	byte i;

endm:	do
	:: d_step { add_b[0] != 0 -> slots = slots + add_b[0]; add_b[0] = 0; adding = 0 }
	:: d_step { add_b[1] != 0 -> slots = slots + add_b[1]; add_b[1] = 0; adding = 0 }
	:: d_step { tail_b[0] -> tail = next(tail); tail_b[0] = 0 }
	:: d_step { tail_b[1] -> tail = next(tail); tail_b[1] = 0 }
	:: d_step { unlock_b[0] && !tail_b[0] && !add_b[0] -> unlock_b[0] = 0; lock = 0 }
	:: d_step { unlock_b[1] && !tail_b[1] && !add_b[1] -> unlock_b[1] = 0; lock = 0 }
	od
}

inline barrier()
{
	!add_b[me] && !tail_b[me] && !unlock_b[me]
}

/* A locked addition: it releases. */
inline xadd(n)
{
	atomic { !adding && !add_b[me] && !tail_b[me] && !unlock_b[me] -> adding = 1; add_b[me] = n }
}

inline take_lock()
{
	atomic { !lock -> lock = 1 }
}

inline give_lock()
{
	unlock_b[me] = 1
}

/* Lock held. */
inline ring_post()
{
	assert(used(head, my_tail) < NR - 1);
	tail_b[me] = 1
}

#ifdef BROKEN_FULL
#define fits(s, u) ((s) + (u) <= NR)
#else
#define fits(s, u) ((s) + (u) < NR)
#endif

inline has_room()
{
#ifdef BROKEN_TAIL_FIRST
	t = my_tail;
	u = used(head, t);
	s = slots + add_b[me];
#else
	s = slots + add_b[me];
	t = my_tail;
	u = used(head, t);
#endif
	yes = fits(s, u)
}

inline post()
{
	take_lock();
	ring_post();
	give_lock()
}

proctype call(bit me)
{
	byte s, t, u, left = 2 - me;
	bit yes, spoken;

#ifndef BROKEN_LOOK_FIRST
	xadd(1);
	spoken = 1;
#ifndef BROKEN_NO_GET_BARRIER
	barrier();
#endif
#endif
	do
	:: left == 0 -> break
	:: left > 0 ->
		left--;
		has_room();
#ifdef BROKEN_LOOK_FIRST
		if
		:: !spoken -> xadd(1); spoken = 1
		:: spoken
		fi;
#endif
		if
		:: !yes -> left = 0
		:: yes ->
#ifdef BROKEN_GIVEN_EARLY
			if
			:: !left -> xadd(-1); spoken = 0
			:: left
			fi;
#endif
			post();
#ifndef BROKEN_NO_POST_BARRIER
			barrier()
#endif
		fi
	od;
#ifdef BROKEN_KEPT
	if
	:: yes -> xadd(-1)
	:: !yes
	fi;
#else
	if
	:: spoken -> xadd(-1)
	:: !spoken
	fi;
#endif
	busy--
}

/* Takes events: a call does so with the lock, the program by moving head. */
proctype reaper()
{
	byte n = 2;

	do
	:: n == 0 -> break
	:: n > 0 -> break
	:: n > 0 && head != tail -> head = next(head); n--
	od;
	busy--
}

init {
	atomic {
		busy = CALLS + 1;
		run call(0);
		run call(1);
		run reaper()
	};
	busy == 0 && !adding && !lock;
	!tail_b[0] && !tail_b[1];
	assert(slots == 0)
}
