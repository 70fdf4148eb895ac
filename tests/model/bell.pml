/* SPDX-License-Identifier: MIT */
/*
 * A poll sleeps on the number of its bell while the bell moves and the number becomes the program's.
 *
 * Mirrors: src/posix/poll.c poll_say_where, poll_run, bell_slept_on; src/posix/table.c move_away,
 * plx_fd_evict, await_sleepers; the kernel's poll, which looks the number up when it begins and
 * whenever it is woken. One call, one move, and an event that comes or not.
 *
 * Checked: the call hears of the event, the mover comes to an end without it, and who rings does not
 * meet what is the program's.
 *
 * Weak memory: what the call stores waits in a buffer of one place, which its full barrier empties. A
 * grace period is a barrier for the mover alone. What has become ready is told under RCU, which that
 * waits for.
 *
 * Broken variants: NO_AWAIT (sleepers are not waited for), NO_RING (they are not rung for), NO_BARRIER
 * (before the number is looked at again), NO_RECHECK (it is not), MOVED_LATE (the new number stored
 * when nobody sleeps on the old one).
 */

#define OLD 1
#define NEW 2
#define NONE 0

/* What the numbers mean: 1 is the bell. */
bit bell[3] = 1;
byte fd = OLD;
byte sleeps_on, buf;
bit held;
/* The bell's count; the event. */
bit rung, ready;
/* In the wait queue of the bell, and woken. */
bit queued, woken;
bit section;
/* The event comes; the mover is through. */
bit comes = 1, moved;

active proctype memory()
{
endm:	do
	:: atomic { held -> sleeps_on = buf; held = 0 }
	od
}

inline drain()
{
	d_step {
		if
		:: held -> sleeps_on = buf; held = 0
		:: else
		fi
	}
}

inline store_sleeps_on(v)
{
	d_step {
		if
		:: held -> sleeps_on = buf
		:: else
		fi;
		buf = v;
		held = 1
	}
}

inline ring()
{
	d_step {
		rung = 1;
		if
		:: queued -> woken = 1
		:: else
		fi
	}
}

active proctype mover()
{
	bell[NEW] = 1;
#ifndef BROKEN_MOVED_LATE
	fd = NEW;
#endif
	/* The grace period. */
	!section;
#ifndef BROKEN_NO_AWAIT
	if
	:: sleeps_on == OLD ->
#ifndef BROKEN_NO_RING
		ring();
#endif
		sleeps_on != OLD
	:: else
	fi;
#endif
#ifdef BROKEN_MOVED_LATE
	fd = NEW;
#endif
	bell[OLD] = 0;
	moved = 1
}

active proctype teller()
{
	byte n;

	if
	:: comes = 0
	:: 1 ->
		ready = 1;
		section = 1;
		n = fd;
		assert(bell[n]);
		ring();
		section = 0
	fi
}

active proctype poller()
{
	byte n;

	do
	:: 1 ->
		/* The look that takes the ring out, and then at our side. */
		rung = 0;
		if
		:: ready -> break
		:: else
		fi;
		do
		:: n = fd;
			store_sleeps_on(n);
#ifndef BROKEN_NO_BARRIER
			drain();
#endif
#ifdef BROKEN_NO_RECHECK
			break;
#endif
			if
			:: n == fd -> break
			:: else
			fi
		od;
		/* The kernel's poll: it is in the queue before it looks. */
		skip;
		atomic {
			woken = 0;
			if
			:: bell[n] -> queued = 1
			:: else -> queued = 0
			fi
		};
		do
		:: bell[n] && rung -> break
		:: else ->
			if
			:: atomic { woken -> woken = 0 }
			:: moved && !comes -> goto out
			fi
		od;
		queued = 0;
		/* A release. */
		store_sleeps_on(NONE)
	od;
out:	skip
}
