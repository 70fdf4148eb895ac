/* SPDX-License-Identifier: MIT */
/*
 * MOD of an item whose one-shot event has been delivered: it takes the file's lock in place of the
 * epoll's mutex. Collections, other MODs and writes run beside it.
 *
 * Mirrors: src/epoll/ctl.c rearm, sample_armed and ep_modify, src/epoll/ready.c plx_item_queue,
 * plx_item_queue_locked and plx_item_unmark, src/epoll/remove.c plx_item_remove,
 * src/epoll/harvest.c harvest_one and harvest_helped.
 *
 * Checked: a delivery has the data of the MOD whose events it has seen (EP-MOD-01). When a MOD and
 * a write have returned, a collection that starts afterwards delivers the item, if it is armed
 * (EP-MOD-07). With edges, a collection that has begun after all writes, and has seen the events of
 * the last MOD, stands for all of them: none delivers again (EP-RDY-10).
 *
 * Abstractions: MOD 1 and 2 arm for one event, MOD 3 with edges; the number of a MOD is both its
 * events and its data. Events are changed by a swap, which is a full barrier, and by the delivery,
 * whose store is the last that it does to the item; the state by a read-modify-write. So all
 * processes see one order of steps. The state is read away once.
 *
 * Variants: ONE_SHOT (without MOD 3), DEL (the item is removed, and it is told whether an event of
 * the last MOD has been delivered), WRITERS (2 if not given).
 *
 * Broken variants: NO_RELOAD (a collection polls with the events of before the unmark),
 * NO_FILE_LOCK (ep_modify does without), NOT_GIVEN (queued even if it has been delivered since),
 * DISARM_FIRST (before the data are read), GIVEN_FIRST (DEL looks at it before it has the item off
 * the list), POLL_FIRST (the state is sampled before events are stored).
 */

#ifndef WRITERS
#define WRITERS 2
#endif
#ifdef ONE_SHOT
#define LAST 2
#else
#define LAST 3
#endif

bit mtx, file_lock;
bit state;
byte events, data;

bit queued, incoming, ordered, help, wanted;
byte epoch, pops, pushed = 255;

byte writing = WRITERS;	/* writes that have not returned */
byte pending;		/* MODs that have begun, and stored no events */
bit back[4];		/* MODs that have returned */
bit covered;		/* with edges: nothing new since the last delivery */
bit given;		/* a delivery since the item was armed */
bit due;		/* the collection has to deliver */
bit gone, told;		/* DEL has taken it off the list; what it says of given */

inline lock(l)
{
	atomic { !l -> l = 1; }
}

inline queue()
{
	do
	:: true ->
		atomic { e = epoch; q = queued; }
		n = pops;
		if
		:: q ->
			if
			:: pushed == n
			:: else -> wanted = 1; help = 1
			fi;
			break
		:: else ->
			atomic {
				q = 0;
				if
				:: epoch == e && !queued -> queued = 1; q = 1
				:: else
				fi
			}
			if
			:: q ->
				atomic { assert(!incoming); incoming = 1; }
				pushed = n;
				break
			:: else
			fi
		fi
	od;
	atomic { e = 0; q = 0; n = 0; }
}

/* mtx held. */
inline splice()
{
	atomic {
		if
		:: incoming -> assert(!ordered); incoming = 0; ordered = 1
		:: else
		fi
	}
}

inline queue_locked()
{
	splice();
	atomic {
		q = queued;
		queued = 1
	}
	if
	:: q ->
		if
		:: ordered || pushed == pops
		:: else -> wanted = 1; help = 1
		fi
	:: else ->
		assert(!ordered);
		ordered = 1;
		pushed = pops
	fi;
	q = 0
}

active [WRITERS] proctype writer()
{
	byte e, n;
	bit q;

	atomic { covered = 0; state = 1; }
	if
	:: events && !gone -> queue()
	:: else
	fi;
	writing--
}

inline mod(id)
{
	d_step { pending++; covered = 0; }
	lock(file_lock);
	if
	:: gone -> file_lock = 0
	:: !gone && !events && !queued ->
#ifdef BROKEN_POLL_FIRST
		saw = state;
#endif
		data = id;
		given = 0;
		d_step { events = id; pending--; }
		file_lock = 0;
#ifndef BROKEN_POLL_FIRST
		saw = state;
#endif
		if
		:: saw ->
			lock(mtx);
#ifdef BROKEN_NOT_GIVEN
			given = 0;
#endif
			if
			:: !gone && !given && state && events -> queue_locked()
			:: else
			fi;
			mtx = 0
		:: else
		fi
	:: else ->
		file_lock = 0;
		lock(mtx);
		if
		:: gone
		:: else ->
#ifndef BROKEN_NO_FILE_LOCK
			lock(file_lock);
#endif
			data = id;
			given = 0;
			d_step { events = id; pending--; }
#ifndef BROKEN_NO_FILE_LOCK
			file_lock = 0;
#endif
			if
			:: state -> queue_locked()
			:: else
			fi
		fi;
		mtx = 0
	fi;
	atomic { back[id] = 1; saw = 0; }
}

active proctype once()
{
	bit q, saw;

	mod(1);
	/* It reads what there is. */
	d_step { state = 0; due = 0; }
	mod(2)
}

#ifdef DEL
active proctype remover()
{
	lock(mtx);
#ifdef BROKEN_GIVEN_FIRST
	told = given;
#endif
	lock(file_lock);
	gone = 1;
	file_lock = 0;
#ifndef BROKEN_GIVEN_FIRST
	told = given;
#endif
	mtx = 0
}
#endif

#ifndef ONE_SHOT
active proctype edges()
{
	bit q, saw;

	mod(3)
}
#endif

inline deliver()
{
#ifdef BROKEN_DISARM_FIRST
	if
	:: ev < 3 -> events = 0
	:: else
	fi;
#endif
	assert(data == ev);
	assert(ev != 3 || !covered);
	atomic {
		given = 1;
		if
		:: ev == 3 && whole && !pending -> covered = 1
		:: else
		fi
	}
#ifndef BROKEN_DISARM_FIRST
	if
	:: ev < 3 -> events = 0
	:: else
	fi
#endif
}

inline collect()
{
	lock(mtx);
	d_step {
		whole = !writing;
		due = (events && back[events] && whole && !given && state && !gone);
	}
	atomic { h = help; help = 0; }
	splice();
	if
	:: gone
	:: !gone && ordered ->
		ordered = 0;
		ev = events;
		pops++;
		atomic { queued = 0; epoch++; }
		wanted = 0;
#ifndef BROKEN_NO_RELOAD
		ev = events;
#endif
		got = (state && ev)
	:: else ->
		if
		:: h && wanted ->
			wanted = 0;
			if
			:: queued -> ev = events; got = (state && ev)
			:: else
			fi
		:: else
		fi
	fi;
	if
	:: got -> deliver()
	:: else
	fi;
	assert(!due || got);
	atomic { h = 0; got = 0; due = 0; ev = 0; whole = 0; }
	mtx = 0
}

active proctype collector()
{
	byte ev, n = 2;
	bit h, got, whole;

	do
	:: n > 0 -> n--; collect()
	:: n > 0 -> break
	:: n == 0 -> break
	od;
	/* All have returned. */
	(back[2] && back[LAST] && !writing);
	collect();
	collect();
#ifdef DEL
	(gone && !mtx);
	assert(told == given)
#endif
}
