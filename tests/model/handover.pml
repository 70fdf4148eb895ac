/* SPDX-License-Identifier: MIT */
/*
 * A context is handed over to the kernel, while others look it up, take events and destroy it.
 *
 * Mirrors: src/aio/handover.c seize, plx_aio_hand_over, plx_aio_destroy_given; src/aio/table.c
 * plx_aio_get, plx_aio_table_del, plx_aio_table_give; src/aio/getevents.c take_at_once;
 * src/aio/context.c plx_aio_destroy.
 *
 * Checked:
 *  - a call finds our context, the kernel's, or none, and none only if it has been destroyed;
 *  - whoever is inside of ours, or takes from its ring under its lock, has our ring at its address;
 *  - what is handed over is empty and has no twin;
 *  - of all destroys exactly one succeeds; when it has, the slot is free again and the context has
 *    been released, and nobody touches it after that.
 *
 * Abstractions:
 *  - One context and one process that hands it over. A call puts an event into our ring, or makes a
 *    twin and leaves without any request in it. A request that is under way counts in the state, and
 *    is not modelled.
 *  - A grace period waits until each reader that was inside when it began has left. Readers count
 *    their entries and exits, odd is inside.
 *  - The state is the dead mark and the calls, and "alone" is one call that is not dead.
 *  - MOVES: the program moves the kernel's ring elsewhere before it destroys the context.
 *
 * Broken variants: NOT_ALONE (the mark is set whoever is inside), NO_LOCK (without the lock),
 * UNUSED_FIRST (looked at before the mark is set, not after), MOVING_LATE (moving is said after the
 * mark), NO_MOVED (who finds the mark does not wait), NO_AGAIN (he does not look again when it could
 * not be moved), GIVEN_LATE (given is said after it has stopped moving), NO_SECTION (the last words
 * are said outside the read lock), NO_GRACE (released at once), BY_ADDRESS (the destroy finds its slot
 * by the address that the ring had).
 */

#define NONE 0
#define OURS 1
#define KERNEL 2

#define HOME 0
#define AWAY 1

#define PROCS 4

/* What is mapped at the two addresses, and which of them the program knows. */
byte at[2];
byte handle;

/* The context. */
byte calls;
bit dead, moving, given, locked, tail, twin;
/* Its slot; retired, freed. */
bit slot, retired, freed;
byte rcu[PROCS];

/* ghosts: a destroy has begun to take effect; how many have succeeded */
bit doomed;
byte wins;

/* Each touch of the context. */
#define K assert(!freed)

inline read_lock()
{
	rcu[me]++
}

inline read_unlock()
{
	rcu[me]++
}

inline lock()
{
	atomic { K; !locked -> K; locked = 1; }
}

inline unlock()
{
	atomic { K; locked = 0; }
}

inline put()
{
	atomic { K; assert(calls > 0); calls--; }
}

/* A lookup: got says whether the call is inside of ours. */
inline get()
{
	got = 0;
	do
	:: at[a] == NONE -> break
	:: else ->
		read_lock();
		if
		:: !slot -> read_unlock(); break
		:: else
		fi;
		atomic {
			K;
			if
			:: given -> goto_given = 1
			:: else -> calls++; was = dead
			fi;
		}
		if
		:: goto_given -> read_unlock(); break
		:: else
		fi;
		if
		:: !was -> got = 1; read_unlock(); break
		:: else
		fi;
		put();
#ifndef BROKEN_NO_MOVED
		atomic { K; !moving -> K; }
#endif
#ifdef BROKEN_NO_AGAIN
		was = 1;
#else
		atomic { K; was = dead; }
#endif
		read_unlock();
		if
		:: was -> break
		:: else
		fi
	od;
	was = 0;
	goto_given = 0
}

/* Passed on: the kernel finds its own at the address, or says EINVAL. */
inline pass()
{
	assert(at[a] == KERNEL || doomed || a != handle)
}

inline work()
{
	if
	:: lock();
	   atomic { K; assert(at[a] == OURS); tail = 1; }
	   unlock()
	:: atomic { K; assert(at[a] == OURS); twin = 1; }
	fi
}

proctype caller(byte me)
{
	byte a;
	bit got, was, goto_given;

	get();
	if
	:: got -> work(); put()
	:: else -> pass()
	fi
}

/* Takes events at once, within the read section and under the lock of the context. */
proctype taker(byte me)
{
	byte a;

	if
	:: at[a] == NONE -> goto out
	:: else
	fi;
	read_lock();
	if
	:: slot ->
		lock();
		if
		:: dead
		:: else ->
			assert(at[a] == OURS);
			/* The ring, to its end. */
			assert(at[a] == OURS)
		fi;
		unlock()
	:: else
	fi;
	read_unlock();
out:
	skip
}

/* True if the context is dead and moving, and the caller's alone. */
inline seize()
{
#ifndef BROKEN_NO_LOCK
	lock();
#endif
#ifndef BROKEN_MOVING_LATE
	moving = 1;
#endif
#ifdef BROKEN_UNUSED_FIRST
	seized = !twin && !tail;
#else
	seized = 1;
#endif
	atomic {
		if
#ifdef BROKEN_NOT_ALONE
		:: seized && !dead -> dead = 1
#else
		:: seized && calls == 1 && !dead -> dead = 1
#endif
		:: else -> seized = 0
		fi;
	}
#ifdef BROKEN_MOVING_LATE
	moving = seized;
#endif
#ifndef BROKEN_UNUSED_FIRST
	if
	:: seized && (tail || twin) -> dead = 0; seized = 0
	:: else
	fi;
#endif
	if
	:: !seized -> moving = 0
	:: else
	fi;
#ifndef BROKEN_NO_LOCK
	unlock();
#endif
	skip
}

/* The first request, which is a direct transfer. */
proctype submitter(byte me)
{
	byte a;
	bit got, was, goto_given, seized, moved;

	get();
	if
	:: !got -> pass(); goto out
	:: else
	fi;
	seize();
	if
	:: !seized -> goto ours
	:: else
	fi;
	if
	:: atomic {
		/* What the program has been told, or will be, is not lost. */
		assert(at[a] == OURS && !tail && !twin && calls >= 1);
		at[a] = KERNEL;
		moved = 1;
	   }
	:: skip
	fi;
#ifndef BROKEN_NO_SECTION
	read_lock();
#endif
#ifdef BROKEN_GIVEN_LATE
	if
	:: moved -> moving = 0; atomic { K; given = 1; }
	:: else -> dead = 0; moving = 0
	fi;
#else
	atomic {
		K;
		if
		:: moved -> given = 1
		:: else -> dead = 0
		fi;
	}
	atomic { K; moving = 0; }
#endif
#ifndef BROKEN_NO_SECTION
	read_unlock();
#endif
	if
	:: moved -> pass(); goto out
	:: else
	fi;
ours:
	work();
	put();
out:
	skip
}

inline take_out()
{
	assert(slot);
	slot = 0
}

proctype destroyer(byte me)
{
	byte a;
	bit got, was, goto_given;

#ifdef MOVES
	atomic {
		if
		:: at[HOME] == KERNEL -> at[HOME] = NONE; at[AWAY] = KERNEL; handle = AWAY
		:: else
		fi;
	}
#endif
	a = handle;
	get();
	if
	:: !got -> goto not_ours
	:: else
	fi;
	/* Under the table's lock. */
	atomic {
		K;
		if
		:: dead -> was = 1
		:: else -> dead = 1; doomed = 1; take_out()
		fi;
	}
	if
	:: was -> put(); assert(doomed); goto out
	:: else
	fi;
	lock();
	unlock();
	atomic { calls == 1 -> K; }
	atomic { assert(at[a] == OURS); at[a] = NONE; retired = 1; wins++; }
	goto out;
not_ours:
	read_lock();
	atomic {
		if
#ifdef BROKEN_BY_ADDRESS
		:: slot && a == HOME -> K; was = given
#else
		:: slot -> K; was = given
#endif
		:: else
		fi;
	}
	read_unlock();
	/* The kernel's io_destroy, with or without us behind it. */
	atomic {
		if
		:: at[a] == KERNEL -> at[a] = NONE; doomed = 1; wins++; got = 1
		:: else -> assert(doomed)
		fi;
	}
	/* Nothing of the context is looked at: its slot has it, or it is another's. */
	atomic {
		if
		:: got && was && slot -> K; take_out(); retired = 1
		:: else
		fi;
	}
out:
	skip
}

proctype reclaim()
{
	byte s0, s1, s2, s3;

end:	retired;
#ifndef BROKEN_NO_GRACE
	d_step { s0 = rcu[0]; s1 = rcu[1]; s2 = rcu[2]; s3 = rcu[3]; }
	atomic {
		(!(s0 & 1) || rcu[0] != s0) && (!(s1 & 1) || rcu[1] != s1) &&
		(!(s2 & 1) || rcu[2] != s2) && (!(s3 & 1) || rcu[3] != s3);
		s0 = 0;
		s1 = 0;
		s2 = 0;
		s3 = 0;
	}
#endif
	freed = 1
}

init {
	atomic {
		at[HOME] = OURS;
		slot = 1;
		run submitter(0);
#ifdef CALLER
		run caller(1);
#endif
#ifdef TAKER
		run taker(1);
#endif
#ifdef DESTROY
		run destroyer(2);
		run reclaim();
#endif
#ifdef DESTROYS
		run destroyer(3);
#endif
	}
	timeout ->
#ifdef DESTROY
	assert(wins == 1 && !slot && freed)
#else
	assert(wins == 0 && slot && (given == (at[HOME] == KERNEL)) && !locked && !moving)
#endif
}
