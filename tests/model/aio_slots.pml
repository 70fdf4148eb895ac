/* SPDX-License-Identifier: MIT */
/*
 * The slots of an AIO context: the ring never overflows (AIO-CQ-07), and every slot comes back.
 *
 * Mirrors: src/aio/submit.c has_room, room, plx_aio_post; src/aio/table.c plx_aio_get;
 * src/aio/context.c plx_aio_put; src/aio/twin.c claim, twin_done, plx_aio_twin_drain;
 * src/aio/async.c hand_over. A ring of NR places, of which NR - 1 are used. Two calls of io_submit,
 * the first of two requests that are done inline, the second of one that is done inline or in the
 * background. With -DTWIN the second has two for the twin instead, which it hands over together.
 * Somebody takes events.
 *
 * The kernel's AIO gives slots back by other means: it counts what is free, gives batches of that to
 * CPUs, and finds by head and tail what has been taken. Here nothing is counted but what is on its
 * way; the ring itself says how much of it is full.
 *
 * Checked: an event always finds a free place. Who looks with the lock counts nothing twice. In the
 * end nothing is spoken for.
 *
 * Weak memory: an addition to the state, the store of the tail and the release of the lock become
 * visible to others some time after their author has gone on, who sees them at once. What releases
 * does so after all that its thread has stored before. A barrier waits for the own ones.
 *
 * Broken variants: NO_GET_BARRIER, NO_POST_BARRIER (no barrier between an addition, or a post, and
 * the next look without the lock), LOOK_FIRST (a call looks before it has spoken for a slot),
 * TAIL_FIRST (a look reads the ring before the state), GIVEN_EARLY (a slot is given back before the
 * tail is moved), GIVEN_OUTSIDE (after the lock was given up), FULL (the last place is used, too),
 * KEPT (a call that was refused keeps its slot); with -DTWIN: CLAIM_FIRST (a claim looks before it
 * adds), CLAIM_UNLOCKED (it does so without the lock, and without a barrier).
 */
#ifndef NR
#define NR 3
#endif
#define CALLS 2
/* Those that post and add: the calls, and who completes in the background or for the twin. */
#define WHO 3

byte slots, head, tail;
bit lock;
/* An addition that is not visible: others wait with theirs. */
bit adding;
short add_b[WHO];
bit tail_b[WHO], unlock_b[WHO];
/* A request is in the background, or with the twin. */
byte handed;
byte busy;
/* Ghost: events in the ring whose slots have not been given back. */
byte twice;

#define next(i) (((i) + 1) % NR)
#define used(h, t) (((t) + NR - (h)) % NR)
#define my_tail (tail_b[me] -> next(tail) : tail)

active proctype memory()
{
	byte i;

endm:	do
	:: d_step { add_b[0] != 0 -> slots = slots + add_b[0]; add_b[0] = 0; adding = 0 }
	:: d_step { add_b[1] != 0 -> slots = slots + add_b[1]; add_b[1] = 0; adding = 0 }
	:: d_step { add_b[2] != 0 -> slots = slots + add_b[2]; add_b[2] = 0; adding = 0; twice = 0 }
	:: d_step { tail_b[0] -> tail = next(tail); tail_b[0] = 0 }
	:: d_step { tail_b[1] -> tail = next(tail); tail_b[1] = 0 }
	:: d_step { tail_b[2] -> tail = next(tail); tail_b[2] = 0 }
	:: d_step { unlock_b[0] && !tail_b[0] && !add_b[0] -> unlock_b[0] = 0; lock = 0 }
	:: d_step { unlock_b[1] && !tail_b[1] && !add_b[1] -> unlock_b[1] = 0; lock = 0 }
	:: d_step { unlock_b[2] && !tail_b[2] && !add_b[2] -> unlock_b[2] = 0; lock = 0 }
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

/* What made a barrier needful is behind us. */
inline room()
{
	has_room();
	if
	:: yes
	:: !yes ->
		take_lock();
		d_step { has_room(); assert(!twice) };
		give_lock()
	fi
}

inline post_inline()
{
	take_lock();
	ring_post();
	give_lock()
}

/* Posts, and gives back the slot of the request. */
inline post_and_give()
{
	take_lock();
#ifdef BROKEN_GIVEN_EARLY
	xadd(-1);
	ring_post();
	give_lock()
#else
	ring_post();
	twice = 1;
#ifdef BROKEN_GIVEN_OUTSIDE
	give_lock();
	xadd(-1)
#else
	xadd(-1);
	give_lock()
#endif
#endif
}

/* Two requests; how many of them may go. */
inline claim()
{
#ifdef BROKEN_CLAIM_FIRST
	u = used(head, my_tail);
	s = slots + add_b[me] + 2;
	xadd(2);
#else
	xadd(2);
	s = slots + add_b[me];
	u = used(head, my_tail);
#endif
	over = (s + u > NR -> s + u - NR : 0);
	over = (over > 2 -> 2 : over);
	if
	:: over -> xadd(-over)
	:: else
	fi;
	handed = handed + 2 - over
}

proctype call(bit me)
{
	byte s, t, u, over, left = 2 - me;
	bit yes;

#ifndef BROKEN_LOOK_FIRST
	xadd(1);
#ifndef BROKEN_NO_GET_BARRIER
	barrier();
#endif
	do
	:: left == 0 -> break
	:: left > 0 ->
		left--;
		room();
#else
	do
	:: left == 0 -> break
	:: left > 0 ->
		left--;
		room();
		if
		:: left == 1 - me -> xadd(1)
		:: else
		fi;
#endif
		if
		:: !yes -> left = 0
#ifdef TWIN
		:: yes && me == 1 ->
#ifndef BROKEN_CLAIM_UNLOCKED
			take_lock();
#endif
			claim();
#ifndef BROKEN_CLAIM_UNLOCKED
			give_lock()
#endif
#else
		:: yes && me == 1 ->
			xadd(1);
			handed++
#endif
		:: yes ->
			post_inline();
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
	xadd(-1);
#endif
	busy--
}

/* The service thread, or who looks at the twin. */
proctype other()
{
	byte me = 2;

endo:	do
	:: atomic { handed > 0 -> handed--; busy++ };
		post_and_give();
		busy--
	od
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
		run other();
		run reaper()
	};
	busy == 0 && !handed && !adding && !lock;
	!twice && !tail_b[0] && !tail_b[1] && !tail_b[2];
	assert(slots == 0)
}
