/* SPDX-License-Identifier: MIT */
/*
 * A context is handed over to the kernel, while others submit, take events by calls or by head and
 * tail alone, and destroy it.
 *
 * Mirrors: src/aio/handover.c mark, unmark, make, move, give_away, plx_aio_hand_over; src/aio/table.c
 * enter, plx_aio_get, plx_aio_table_del; src/aio/getevents.c take, take_at_once; src/aio/submit.c post;
 * src/aio/context.c plx_aio_put, plx_aio_destroy.
 *
 * Checked:
 *  - a call finds our context, the kernel's, or none, and none only if it has been destroyed;
 *  - whoever is inside of ours, or takes from its ring under its lock, has our ring at its address;
 *  - each event is taken once at most, what is taken is an event, and none is lost unless the context
 *    is destroyed;
 *  - of two destroys one succeeds, by us or by the kernel.
 *
 * Abstractions: one context, handed over once at most. What the address shows changes in one step, and
 * each access sees what it shows then; the kernel notes it in another. The kernel's calls on its own
 * context are one step each. Memory is released as in aio_table. The wait for others to leave ends when
 * it likes (a moment has gone by). Our ring is not at the beginning: its head and tail are START.
 *
 * With -DREADER somebody takes events by head and tail; with -DCARRY there is nobody such, and unread
 * events are carried over.
 *
 * Broken variants: NO_MARK (calls that come are not kept out), NOT_ALONE (those inside are not waited
 * for), NO_LOCK (the mark is set without the lock), NO_PLACES (the kernel's ring begins at its
 * beginning), UNREAD (events are carried over beside a reader), EMPTY_FIRST (whether the ring is empty
 * is looked at before the mark is set), DEAD_FIRST (it is dead before it is moved), OPEN (the mark is
 * taken away before it is dead), NO_AGAIN (who comes meanwhile takes it for the kernel's), OWN_ID
 * (the header of the kernel's ring has the kernel's number before the kernel knows where it is).
 */
#define NONE 0
#define OURS 1
#define KERNEL 2

#define NR 4
#define START 2
#define EVENTS 2

#define next(i) (((i) + 1) % NR)

typedef ring_t {
	byte head, tail;
	byte ev[NR]
};

/* What the program sees at the address; the rings, by the same numbers. */
byte at = OURS;
ring_t ring[3];
/* Of the kernel's: the number in its header, and whether it knows where it is. */
byte id = KERNEL;
bit noted;

byte calls;
bit dead, moving, locked;
/* Ours, the tail that nobody else writes. */
byte tail = START;

/* Ghosts. */
byte posted, wins;
bit taken[EVENTS + 1], doomed;
byte running;

inline take_lock()
{
	atomic { !locked -> locked = 1 }
}

inline give_lock()
{
	locked = 0
}

/* found: ours, with a call inside, or what is to be asked instead. */
inline get()
{
	do
	:: at == NONE || dead || at == KERNEL && id == KERNEL -> found = KERNEL; break
	:: else ->
		atomic { calls++; was_dead = dead; was_moving = moving };
		if
		:: !was_dead && !was_moving -> found = OURS; break
		:: else
		fi;
		calls--;
		if
		:: was_dead -> found = KERNEL; break
		:: else
		fi;
#ifdef BROKEN_NO_AGAIN
		found = KERNEL;
		break
#else
		!moving
#endif
	od;
	was_dead = 0;
	was_moving = 0
}

inline put()
{
	calls--
}

/* The event e. */
inline seen()
{
	d_step {
		assert(e > 0);
		assert(!taken[e]);
		taken[e] = 1
	}
}

/* The kernel is asked for its context. */
#define kernels (at == KERNEL && noted && id == KERNEL)

inline post()
{
	take_lock();
	assert(at == OURS);
	ring[OURS].ev[tail] = posted + 1;
	posted++;
	tail = next(tail);
	ring[OURS].tail = tail;
	give_lock()
}

proctype submitter()
{
	byte found, n = EVENTS;
	bit was_dead, was_moving;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		get();
		if
		:: found == OURS -> post(); put()
		:: else ->
			atomic {
				assert(kernels || doomed);
				if
				:: kernels ->
					ring[KERNEL].ev[ring[KERNEL].tail] = posted + 1;
					posted++;
					ring[KERNEL].tail = next(ring[KERNEL].tail)
				:: else
				fi
			}
		fi
	od;
	running--
}

/* io_getevents that finds what it asks for, or nothing; it does not wait. */
proctype taker()
{
	byte n = EVENTS, h, e;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		take_lock();
		if
		:: !dead && !moving ->
			assert(at == OURS);
			h = ring[OURS].head;
			if
			:: h != tail ->
				e = ring[OURS].ev[h];
				seen();
				ring[OURS].head = next(h)
			:: else
			fi
		:: else
		fi;
		give_lock()
	od;
	running--
}

/* Whoever reads the ring is at the mercy of what is there. */
proctype reader()
{
	byte n = EVENTS, h, t, e;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		atomic { at != NONE -> h = ring[at].head };
		atomic { at != NONE -> t = ring[at].tail };
		if
		:: h != t ->
			atomic { at != NONE -> e = ring[at].ev[h] };
			seen();
			atomic { at != NONE -> ring[at].head = next(h) }
		:: else
		fi
	od;
	running--
}

inline may_carry()
{
#if defined(CARRY) || defined(BROKEN_UNREAD)
	yes = 1
#elif defined(BROKEN_EMPTY_FIRST)
	skip
#else
	yes = (ring[OURS].head == tail)
#endif
}

/* The kernel's ring gets the places and the events of ours, one after the other. */
inline make()
{
	h = ring[OURS].head;
#ifdef BROKEN_NO_PLACES
	ring[KERNEL].head = 0;
	ring[KERNEL].tail = (tail + NR - h) % NR;
#else
	ring[KERNEL].head = h;
	ring[KERNEL].tail = tail;
#endif
	do
	:: h == tail -> break
	:: else -> ring[KERNEL].ev[h] = ring[OURS].ev[h]; h = next(h)
	od
}

proctype mover()
{
	byte found, h;
	bit was_dead, was_moving, yes, mine;

#ifdef BROKEN_EMPTY_FIRST
	yes = (ring[OURS].head == tail);
#endif
	get();
	if
	:: found != OURS -> goto out
	:: else
	fi;
#ifndef BROKEN_NO_MARK
#ifdef BROKEN_NO_LOCK
	if
	:: !dead -> moving = 1; mine = 1
	:: else
	fi;
#else
	take_lock();
	if
	:: !dead -> moving = 1; mine = 1
	:: else
	fi;
	give_lock();
#endif
	if
	:: !mine -> put(); goto out
	:: else
	fi;
#endif
#ifndef BROKEN_NOT_ALONE
	if
	:: calls == 1
	:: calls != 1 -> moving = 0; put(); goto out
	fi;
#endif
	may_carry();
	if
	:: !yes -> moving = 0; put(); goto out
	/* The kernel has none to give. */
	:: yes -> moving = 0; put(); goto out
	:: yes
	fi;
	make();
#ifdef BROKEN_DEAD_FIRST
	dead = 1;
#else
	assert(!dead);
#endif
#ifndef BROKEN_OWN_ID
	id = OURS;
#endif
	at = KERNEL;
	noted = 1;
	id = KERNEL;
#ifdef BROKEN_OPEN
	moving = 0;
	dead = 1;
#else
	dead = 1;
	moving = 0;
#endif
out:
	running--
}

proctype destroyer()
{
	byte found;
	bit was_dead, was_moving, mine;

	get();
	if
	:: found == OURS ->
		atomic {
			mine = !dead;
			dead = 1;
			doomed = (mine -> 1 : doomed)
		};
		if
		:: mine ->
			calls == 1;
			take_lock();
			give_lock();
			assert(at == OURS);
			atomic { at = NONE; wins++ }
		:: else
		fi;
		put()
	:: else ->
		atomic {
			assert(kernels || doomed);
			if
			:: kernels -> at = NONE; doomed = 1; wins++
			:: else
			fi
		}
	fi;
	running--
}

/* What is left is in the ring that the program sees. */
inline nothing_is_lost()
{
	byte i;

	if
	:: !doomed ->
		d_step {
			i = ring[at].head;
			do
			:: i == ring[at].tail -> break
			:: else ->
				assert(ring[at].ev[i] > 0 && !taken[ring[at].ev[i]]);
				taken[ring[at].ev[i]] = 1;
				i = next(i)
			od;
			i = 1;
			do
			:: i > posted -> break
			:: else -> assert(taken[i]); i++
			od
		}
	:: else
	fi
}

init {
	atomic {
		ring[OURS].head = START;
		ring[OURS].tail = START;
		run mover();
		run submitter();
		running = 2;
#ifdef READER
		run reader();
		running++;
#endif
#ifdef TAKER
		run taker();
		running++;
#endif
#ifdef DESTROY
		run destroyer();
		run destroyer();
		running = running + 2
#endif
	};
	running == 0;
	nothing_is_lost();
#ifdef DESTROY
	assert(wins == 1)
#endif
}
