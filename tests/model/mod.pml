/* SPDX-License-Identifier: MIT */
/*
 * MOD against an event: the writer's callback or the poll of MOD reports it, never neither.
 *
 * Mirrors: src/epoll/ctl.c ep_modify (publish interest, full barrier, poll, queue),
 * src/epoll/file.c item_wake (key filter), src/epoll/ready.c plx_item_queue, plx_item_queue_locked,
 * plx_ep_help and plx_item_unmark, and src/epoll/harvest.c harvest_one and harvest_helped for a ONESHOT item.
 *
 * Checked: a ONESHOT item is armed by MOD, delivered (which disarms it), armed again. When a MOD or
 * a write has returned, a harvest that starts afterwards delivers the item if it is armed and its
 * file is ready. The harvest delivers nothing while the item is disarmed (EP-RDY-04), and once per
 * MOD at most (EP-RDY-14).
 *
 * Weak memory: the state of the file and the interest are plain stores in a store buffer of the
 * process that makes them; `memory` empties the buffers at any time, a full barrier waits for the
 * own one. In C the state change of an eventfd is a read-modify-write, which is stronger.
 *
 * Abstractions: MOD and harvest run in one process in any order, as the epoll's mutex would order
 * them. Interest is one bit: the key filter passes or not. The state is never read away. The
 * readers of the mark word see it in order: all accesses to it are read-modify-writes.
 *
 * Broken variants: NO_MOD_BARRIER, NO_WRITE_BARRIER, POLL_FIRST (MOD polls, then publishes),
 * NO_POLL (MOD does not poll), NO_HELP.
 */

bit state, state_buf[2];
bit interest;
byte interest_buf;	/* 0 empty, 1 the store of 0 waits, 2 that of 1 */

bit queued, incoming, ordered, help, wanted;
byte epoch, pops, pushed = 255;

bit returned;		/* a write has returned */

active proctype memory()
{
endm:	do
	:: atomic { state_buf[0] -> state_buf[0] = 0; state = 1; }
	:: atomic { state_buf[1] -> state_buf[1] = 0; state = 1; }
	:: atomic { interest_buf -> interest = interest_buf - 1; interest_buf = 0; }
	od
}

inline item_queue()
{
	do
	:: true ->
		atomic { e = epoch; q = queued; }
		n_pops = pops;
		if
		:: q ->
			if
			:: pushed == pops
			:: else ->
#ifdef BROKEN_NO_HELP
				skip
#else
				wanted = 1;
				help = 1
#endif
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
				pushed = n_pops;
				break
			:: else
			fi
		fi
	od;
	atomic { e = 0; q = 0; n_pops = 0; }
}

/* MOD has the mutex: what it marks is on the ordered list at once. */
inline item_queue_locked()
{
	atomic {
		if
		:: incoming -> assert(!ordered); incoming = 0; ordered = 1
		:: else
		fi
	}
	atomic {
		q = queued;
		if
		:: !q -> queued = 1
		:: else
		fi
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

proctype writer(bit me)
{
	byte e, n_pops;
	bit q;
	byte n = 2;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		state_buf[me] = 1;
#ifndef BROKEN_NO_WRITE_BARRIER
		(!state_buf[me]);
#endif
		if
		:: interest -> item_queue()
		:: else
		fi;
		returned = 1
	od
}

/* The own store buffer is looked at first. */
#define my_interest (interest_buf -> interest_buf == 2 : interest)

inline harvest()
{
	armed = my_interest;
	due = (armed && owed);
	atomic { h = help; help = 0; }
	atomic {
		if
		:: incoming -> assert(!ordered); incoming = 0; ordered = 1
		:: else
		fi
	}
	got = 0;
	if
	:: ordered ->
		ordered = 0;
		pops++;
		atomic { queued = 0; epoch++; }
		wanted = 0;
		got = (state && armed)
	:: else ->
		if
		:: h && wanted ->
			wanted = 0;
			if
			:: queued -> got = (state && armed)
			:: else
			fi
		:: else
		fi
	fi;
	if
	:: got ->
		assert(armed && arms > 0);
		arms--;
		/* Disarm, with the release of the mutex behind it. */
		interest_buf = 1;
		(!interest_buf)
	:: else
	fi;
	assert(!due || got);
	d_step { h = 0; got = 0; due = 0; armed = 0; }
}

active proctype user()
{
	byte arms, mods = 2, idle = 2;
	bit q, h, got, due, armed, owed, saw;

	run writer(0);
	run writer(1);

	do
	:: mods > 0 ->
		/* MOD that arms. A second one before a delivery arms once. */
		mods--;
#ifdef BROKEN_POLL_FIRST
		saw = state;
#endif
		arms = 1;
		interest_buf = 2;
#ifndef BROKEN_NO_MOD_BARRIER
		(!interest_buf);
#endif
#ifdef BROKEN_NO_POLL
		saw = 0;
#else
#ifndef BROKEN_POLL_FIRST
		saw = state;
#endif
#endif
		if
		:: saw -> item_queue_locked()
		:: else
		fi;
		saw = 0
	:: idle > 0 ->
		idle--;
		/* A write that has returned is owed from here on, and so is what MOD saw. */
		owed = returned;
		harvest();
		owed = 0
	:: mods == 0 && idle == 0 -> break
	od;
	owed = returned;
	harvest()
}
