/* SPDX-License-Identifier: MIT */
/*
 * A timer that becomes lazy is not on the kernel's ready list: it would keep a place there that it
 * is to lose, or lose one that it is to keep.
 *
 * Mirrors: src/cache/timer.c set_true, gets_stale, ask, not_stale; src/cache/wait.c collect_kernel
 * with kernel_look. One timer, which is set up to SETS times and may expire in between; another one
 * of the same epoll, which asks, too; two threads that collect. The kernel's list is in the model
 * as far as this timer is on it.
 *
 * Checked: when the timer is given its mark it is not on the list.
 *
 * Each word is written by one locked step, or holds what may be old; what is read late is only
 * older. So there are no store buffers here. What the mutexes of the kernel make one step is one
 * step. That the setting comes before what is added to unseen, and that is read before the kernel
 * looks, is what release and acquire, and the kernel's locks, see to.
 *
 * Broken variants: ASK_FIRST (unseen moves before the kernel has heard of the setting), READ_LATE
 * (a wait reads it after the kernel has looked), FEW (a look that had no room for more counts, too),
 * NOT_LOOKED (so does one that was left out), NO_RENEW (after another expiry the old question
 * stands), NOT_ASKED (who has not asked takes any answer).
 */
#define SETS 4
#define LOOKS 2

/* The kernel's: it is ready; it is on the list. */
bit ready, listed;
byte unseen, seen;

/* It is true, and its time comes. */
bit armed = 1;

active proctype clock()
{
endc:	do
	:: atomic { armed && !ready -> ready = 1; listed = 1; armed = 0 }
	od
}

active proctype setter()
{
	byte sets = SETS, asked;
	bit stale, expired;

	do
	:: sets == 0 -> break
	:: else ->
		sets--;
		if
#ifdef BROKEN_NOT_ASKED
		:: stale && seen >= asked -> stale = 0
#else
		:: stale && asked && seen >= asked -> stale = 0
#endif
		:: else
		fi;
#ifdef BROKEN_ASK_FIRST
		atomic { unseen++; asked = unseen };
#endif
		if
		:: atomic {
			/* Its time is far away: it does not expire now. */
			!stale && armed && !ready ->
			assert(!listed);
			sets = 0
		   }
		:: true ->
			atomic { expired = !armed; ready = 0; armed = 1 };
			if
			:: expired ->
				stale = 1;
#if !defined(BROKEN_NO_RENEW) && !defined(BROKEN_ASK_FIRST)
				asked = 0
#endif
			:: else
			fi;
			expired = 0
		fi;
		/* Or later, once the row is long enough. */
		if
		:: stale && !asked -> atomic { unseen++; asked = unseen }
		:: true
		fi
	od
}

active proctype another()
{
	atomic { unseen++ }
}

/* The kernel comes by: what is not ready leaves the list. */
inline visit()
{
	atomic {
		if
		:: !ready -> listed = 0
		:: else
		fi
	}
}

active [2] proctype collector()
{
	byte looks = LOOKS, was;

	do
	:: looks == 0 -> break
	:: else ->
		looks--;
#ifndef BROKEN_READ_LATE
		was = unseen;
#endif
		if
		:: true ->
			visit();
#ifdef BROKEN_READ_LATE
			was = unseen;
#endif
			seen = was
		:: true		/* no room for more: it may have come by, or not */
			->
			if
			:: visit()
			:: true
			fi;
#ifdef BROKEN_FEW
			seen = was
#endif
		:: true		/* left out: items were on their way to the kernel */
			->
#ifdef BROKEN_NOT_LOOKED
			seen = was
#else
			skip
#endif
		fi
	od
}
