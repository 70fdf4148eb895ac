/* SPDX-License-Identifier: MIT */
/*
 * Who waits for events of an AIO context, and the bell in its twin.
 *
 * Mirrors: src/aio/wait.c plx_aio_due, look, there, leave, sleep_on_twin, plx_aio_wait;
 * src/aio/twin.c plx_aio_twin_drain, plx_aio_twin_take, plx_aio_ring_bell; src/aio/getevents.c
 * plx_aio_take, take_at_once; src/aio/submit.c plx_aio_post; src/aio/context.c destroy. Two wait,
 * for one event and for two, and may give up in their sleep; POSTS events come into our ring, and
 * COMES to the twin; somebody takes one event, if nobody waits; with -DDESTROY the context goes.
 *
 * Checked: when nothing can move any more nobody sleeps who needs no more than there is, or whose
 * context is dead. Who takes after the first look takes all that he needs.
 *
 * Memory: our side is under the context's lock, the twin is the kernel's. It wakes all who sleep on
 * the twin whenever something comes, and lets nobody sleep while there is something. A nap is a step
 * that comes to its end.
 *
 * Broken variants: NO_DUE_POST, NO_DUE_LOOK, NO_DUE_DESTROY (who posts, has looked, or has set DEAD,
 * gives up the lock without a look whether a bell is due), NO_DEAD (that is not for the context's
 * death), POST_LOOK_FIRST (who posts looks before he has posted), LIST_LATE (a waiter is in the list
 * after it has given up the lock), BELL_KEPT (who removes the bell leaves the flag), COUNT_BELL (a
 * waiter takes the bell for an event).
 */
#ifndef POSTS
#define POSTS 2
#endif
#ifndef COMES
#define COMES 1
#endif

/* Events in our ring and in the twin's; the bell, which is one there. */
byte used, twin;
bit bell_there;
/* Under the lock: the bell is there or on its way. */
bit lock, bell, dead;
/* Of each waiter: is in the list, and what it needs then; sleeps on the twin. */
bit listed[2], asleep[2];
byte need[2];

inline take_lock() { atomic { !lock -> lock = 1 } }

#ifdef BROKEN_NO_DEAD
#define DEAD 0
#else
#define DEAD dead
#endif
#define with_twin (twin + bell_there)

/* plx_aio_due. With the lock. */
inline due()
{
	d_step {
		ring = 0;
		if
		:: (listed[0] || listed[1]) && !bell ->
			ring = DEAD || (listed[0] && need[0] <= used) ||
			       (listed[1] && need[1] <= used);
			bell = ring
		:: else
		fi
	}
}

inline ring_bell()
{
	if
	:: ring -> bell_there = 1
	:: else
	fi;
	ring = 0
}

inline bell_heard()
{
	bell_there = 0;
#ifndef BROKEN_BELL_KEPT
	bell = 0
#endif
}

inline drain()
{
	d_step {
		used = used + twin;
		twin = 0;
		if
		:: bell_there -> bell_heard()
		:: else
		fi
	}
}

/* plx_aio_take: up to n. */
inline take(n)
{
	d_step {
		m = (n < used -> n : used);
		left = n - m;
		used = used - m;
		t = (left < twin -> left : twin);
		twin = twin - t;
		got = got + m + t
	};
	/* The bell may lie before what was taken of the twin, or behind it. */
	if
	:: left && bell_there -> d_step { bell_heard() }
	:: t == left || !bell_there
	fi;
	d_step { m = 0; t = 0; left = 0 }
}

/* me is in the list if it listens. */
inline look(listens)
{
	ring = 0;
	take_lock();
	done = over || dead;
	if
	:: first || done -> take(min - got)
	:: else ->
		if
#ifdef BROKEN_COUNT_BELL
		:: used + with_twin >= min - got -> take(min - got); assert(got == min)
#else
		:: used + with_twin - bell >= min - got -> take(min - got); assert(got == min)
#endif
		:: else ->
			drain();
			if
			:: used >= min - got -> take(min - got)
			:: else
			fi
		fi
	fi;
	d_step {
		first = 0;
		done = done || got >= min;
#ifndef BROKEN_LIST_LATE
		need[me] = min - got;
		listed[me] = listens && !done
#else
		if
		:: done -> listed[me] = 0
		:: else
		fi
#endif
	};
#ifndef BROKEN_NO_DUE_LOOK
	due();
#endif
	d_step { quiet = !bell && !with_twin; lock = 0 };
#ifdef BROKEN_LIST_LATE
	d_step { need[me] = min - got; listed[me] = listens && !done };
#endif
	ring_bell()
}

proctype waiter(bit me; byte min)
{
	byte got, m, t, left;
	bit first = 1, over, done, quiet, ring, on;

	do
	:: look(on);
		if
		:: done -> break
		:: !done && on && quiet ->
			asleep[me] = 1;
			if
			:: true ->
endsleep:			atomic { with_twin > 0 -> asleep[me] = 0 }
			/* The time is over, or a handler has run; it has left by a jump. */
			:: atomic { true -> asleep[me] = 0; over = 1 }
			:: atomic { true -> asleep[me] = 0; goto jumped }
			fi
		/* By the clock; its end may be the wait's. */
		:: !done && on && !quiet ->
			if
			:: true
			:: over = 1
			fi
		:: !done && !on -> on = 1
		fi
	od;
	goto end;
jumped:
	take_lock();
	listed[me] = 0;
	due();
	lock = 0;
	ring_bell();
end:	assert(!listed[me])
}

proctype poster()
{
	byte n;
	bit ring;

	do
	:: n == POSTS -> break
	:: n < POSTS ->
		n++;
#ifdef BROKEN_POST_LOOK_FIRST
		take_lock();
		due();
		lock = 0;
#endif
		take_lock();
		used++;
#if !defined(BROKEN_NO_DUE_POST) && !defined(BROKEN_POST_LOOK_FIRST)
		due();
#endif
		lock = 0;
		ring_bell()
	od
}

/* What the kernel completes. */
proctype completer()
{
	byte n;

	do
	:: n == COMES -> break
	:: n < COMES -> n++; twin++
	od
}

/* take_at_once, of up to two. */
proctype taker()
{
	byte got, m, t, left;

	take_lock();
	if
	:: !dead && used && !listed[0] && !listed[1] -> take(2)
	:: else
	fi;
	lock = 0
}

proctype destroyer()
{
	bit ring;

	dead = 1;
#ifndef BROKEN_NO_DUE_DESTROY
	take_lock();
	due();
	lock = 0;
	ring_bell()
#endif
}

init {
	atomic {
		run waiter(0, 1);
		run waiter(1, 2);
		run poster();
		run completer();
		run taker();
#ifdef DESTROY
		run destroyer()
#endif
	};
	timeout ->
	assert(!asleep[0] || (!dead && used + twin < need[0]));
	assert(!asleep[1] || (!dead && used + twin < need[1]))
}
