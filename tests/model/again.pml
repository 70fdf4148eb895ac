/* SPDX-License-Identifier: MIT */
/*
 * A poller that comes to a file again and again, in the same memory and without a grace period,
 * while a waker stands on it.
 *
 * Mirrors: src/epoll/file.c mark_behind, plx_list_link, plx_list_unlink, plx_file_wake_rcu;
 * src/posix/poll.c poll_call_end, poll_call_keep, poll_call_kept. One wake of file 0. The poller comes
 * POLLS times; its memory is W until that is not to serve again, and FRESH then. A plain item
 * comes in front and a watch to the end (ITEMS=2: two items), each at any time or before all, and may go.
 *
 * Checked: whoever is in the list from before the wake to its end is called; no item that was in it
 * before is called twice; nobody of another file is called; nothing is looked at that has been freed.
 *
 * Abstractions: a change of the list is one step but for the two stores of who comes, as it is under
 * a lock, and a waker that reads one word sees it before or after. What the call of a poller does is
 * of the sleep's models, and to be called for nothing does a poller no harm. The index of a file has no part
 * in it: a poller among the items takes it away or is beside it.
 *
 * Broken variants: NO_MARK (one that somebody came in front of serves again), MARK_SELF (it is not
 * the one in front of whom another comes that is marked), OTHER_FILE (it serves for another file, too),
 * TO_THE_END (it comes to the end of the list), FREED (what is not to serve again is freed at once).
 */
#ifndef POLLS
#define POLLS 3
#endif
#ifndef ITEMS
#define ITEMS 1
#endif

#define NONE 0
#define W 1
#define FRESH 2
#define FRESHER 3
#define ITEM 4
#define OTHER 5
#define TAIL 6
#define N 7

byte first[2], next[N];
bit behind[N], freed[N];
/* The file of each. */
bit file[N];
bit lock, section;
/* Ghosts: in the list since before the wake; since before and until now; called. */
bit before[N], stayed[N], called[N];
byte busy;

#define is_poller(x) ((x) == W || (x) == FRESH || (x) == FRESHER)

/* To the front: the two stores of plx_list_link. */
inline link_front(f, x)
{
	atomic {
		!lock -> lock = 1;
		behind[x] = 0;
#ifndef BROKEN_NO_MARK
		if
#ifndef BROKEN_MARK_SELF
		:: is_poller(first[f]) -> behind[first[f]] = 1
#else
		:: first[f] -> behind[x] = 1
#endif
		:: else
		fi;
#endif
		next[x] = first[f]
	};
	atomic { first[f] = x; lock = 0 }
}

inline link_end(f, x, at)
{
	atomic {
		!lock;
		next[x] = NONE;
		if
		:: !first[f] -> first[f] = x
		:: else ->
			at = first[f];
			do
			:: next[at] -> at = next[at]
			:: else -> break
			od;
			next[at] = x;
			at = 0
		fi
	}
}

/* next of x stays. */
inline unlink(f, x, at)
{
	atomic {
		!lock;
		stayed[x] = 0;
		if
		:: first[f] == x -> first[f] = next[x]
		:: else ->
			at = first[f];
			do
			:: next[at] == x -> break
			:: else -> at = next[at]
			od;
			next[at] = next[x];
			at = 0
		fi
	}
}

proctype waker()
{
	byte at, i;

	section = 1;
	atomic {
		/* What is in the list now. */
		at = first[0];
		do
		:: at -> before[at] = 1; stayed[at] = 1; at = next[at]
		:: else -> break
		od;
		at = first[0]
	};
	do
	:: at == NONE -> break
	:: else ->
		atomic {
			assert(!freed[at]);
			assert(file[at] == 0);
			assert(is_poller(at) || !before[at] || !called[at]);
			called[at] = 1
		};
		/* Another step. */
		at = next[at]
	od;
	atomic {
		i = 1;
		do
		:: i < N -> assert(!stayed[i] || called[i]); i++
		:: else -> break
		od;
		i = 0
	};
	section = 0;
	busy--
}

proctype retired(byte x)
{
	/* A grace period. */
	!section;
	freed[x] = 1;
	busy--
}

proctype poller()
{
	byte n = POLLS, x = W, at;
	bit f;

	do
	:: n == 0 -> break
	:: else ->
		n--;
#ifdef BROKEN_OTHER_FILE
		if
		:: f = 0
		:: f = 1
		fi;
		file[x] = f;
#endif
#ifdef BROKEN_TO_THE_END
		link_end(f, x, at);
#else
		link_front(f, x);
#endif
		unlink(f, x, at);
		if
		:: behind[x] ->
#ifdef BROKEN_FREED
			freed[x] = 1;
#else
			atomic { busy++; run retired(x) };
#endif
			x++
		:: else
		fi
	od;
	busy--
}

proctype item(byte x; bit f)
{
	byte at;

	link_front(f, x);
	if
	:: true
	:: unlink(f, x, at);
		!section;
		freed[x] = 1
	fi;
	busy--
}

proctype tail()
{
	byte at;

	link_end(0, TAIL, at);
	if
	:: true
	:: unlink(0, TAIL, at);
		!section;
		freed[TAIL] = 1
	fi;
	busy--
}

init {
	atomic {
#ifdef BROKEN_OTHER_FILE
		file[OTHER] = 1;
#endif
		busy = 4;
		run waker();
		run poller();
		run item(ITEM, 0);
#if ITEMS == 2
		run item(OTHER, file[OTHER])
#else
		run tail()
#endif
	};
	busy == 0
}
