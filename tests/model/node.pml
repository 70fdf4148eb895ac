/* SPDX-License-Identifier: MIT */
/*
 * The node of a file, which its primary item has: it goes from one item to the next.
 *
 * Mirrors: src/epoll/ready.c plx_item_queue, plx_item_push, plx_item_queue_locked, plx_ready_splice,
 * plx_item_unmark; src/epoll/remove.c item_claim, plx_item_remove; src/epoll/file.c watch_link. One
 * file; its item 1 is removed from epoll 1, and then item 2 added to epoll 2, while PRODUCERS write
 * once each and epoll 2 is collected from HARVESTS times.
 *
 * Checked: nobody pushes an item that has been removed; the link to the item below stays as it was
 * pushed; a producer that finds its item queued and does not ask for help leaves it where it can be
 * found; what has been written is collected or can be; item 1 is found when it is removed.
 *
 * Abstractions:
 *  - Below item 2 lies one of another file (3), which stays; below item 1 nothing.
 *  - The mutex of an epoll is a bit; a grace period waits for each section that has begun.
 *  - The help slot is a mark of the item.
 *
 * Broken variants: NO_WAIT (the removal does not wait for a producer that has marked the item),
 * NO_EPOCH (it does not move EPOCH), RESET (the node begins anew with each item).
 */
#ifndef PRODUCERS
#define PRODUCERS 3
#endif
#ifndef HARVESTS
#define HARVESTS 1
#endif

/* The word. */
byte epoch;
bit queued;
/* The rest of the node. */
byte next, pushed = 255, pops;

bit ready, held;
/* The one watch of the file. */
byte first = 1;
bit dead[3], gone[3], linked[3], wanted[3];
/* It can be found: on the stack, or on the list. */
bit on[3];
byte incoming[3], below[3], section[PRODUCERS];

/* The mutex held. */
inline splice(ep, top)
{
	atomic { top = incoming[ep]; incoming[ep] = 0 };
	if
	:: top == ep ->
		assert(next == below[ep]);
		assert(!linked[ep]);
		linked[ep] = 1
	:: else
	fi;
	/* The other file's goes back to where it was. */
	if
	:: ep == 2 -> atomic { if :: !incoming[2] -> incoming[2] = 3 :: else fi }
	:: else
	fi;
	top = 0
}

inline unmark(item)
{
	atomic { on[item] = 0; pops++ };
	atomic {
		queued = 0;
#ifndef BROKEN_NO_EPOCH
		epoch++
#endif
	}
}

proctype producer(byte me)
{
	byte item, was, p, head;
	bit marked;

	section[me]++;
	ready = 1;
	item = first;
	if
	:: !item -> goto out
	:: else
	fi;
again:
	atomic { was = epoch; marked = queued };
	if
	:: dead[item] -> goto out
	:: else
	fi;
	p = pops;
	if
	:: marked ->
		atomic {
			if
			:: pushed != p -> wanted[item] = 1
			:: else -> assert(on[item] || pops != p || dead[item])
			fi
		};
		goto out
	:: else
	fi;
	atomic {
		if
		:: epoch == was && !queued -> queued = 1; was = 0
		:: else -> was = 0; p = 0; marked = 0; goto again
		fi
	};
	head = incoming[item];
	do
	:: next = head;
		atomic {
			if
			:: incoming[item] == head ->
				assert(!gone[item] && !on[item]);
				incoming[item] = item;
				below[item] = head;
				on[item] = 1;
				break
			:: else -> head = incoming[item]
			fi
		}
	od;
	pushed = p;
out:
	section[me]++
}

inline grace(i, seen)
{
	i = 0;
	do
	:: i < PRODUCERS ->
		seen = section[i];
		if
		:: seen % 2 -> section[i] != seen
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0;
	seen = 0
}

proctype changer()
{
	byte top, i;
	bit was;

	/* plx_item_remove */
	first = 0;
	dead[1] = 1;
	atomic {
		was = queued;
		queued = 1;
#ifndef BROKEN_NO_EPOCH
		epoch++
#endif
	};
	if
	:: was ->
		splice(1, top);
#ifndef BROKEN_NO_WAIT
		if
		:: !linked[1] ->
			grace(i, top);
			splice(1, top)
		:: else
		fi;
#endif
		assert(linked[1]);
		linked[1] = 0
	:: else
	fi;
	gone[1] = 1;
	unmark(1);
	/* ep_insert */
	atomic { !held -> held = 1 };
#ifdef BROKEN_RESET
	atomic { pops = 0; pushed = 255 };
#endif
	first = 2;
	if
	:: ready ->
		splice(2, top);
		atomic {
			was = queued;
			queued = 1
		};
		if
		:: was && !linked[2] ->
			if
			:: pushed != pops -> wanted[2] = 1
			:: else
			fi
		:: was
		:: else ->
			atomic { assert(!linked[2]); linked[2] = 1; on[2] = 1 };
			pushed = pops
		fi
	:: else
	fi;
	held = 0
}

proctype consumer()
{
	byte top, n;

	do
	:: n < HARVESTS ->
		atomic { !held -> held = 1 };
		splice(2, top);
		if
		:: linked[2] ->
			linked[2] = 0;
			unmark(2);
			wanted[2] = 0;
			ready = 0
		:: !linked[2] && wanted[2] ->
			wanted[2] = 0;
			if
			:: queued -> ready = 0
			:: else
			fi
		:: else
		fi;
		held = 0;
		n++
	:: else -> break
	od
}

init {
	byte i;

	atomic {
		incoming[2] = 3;
		run changer();
		run consumer();
		do
		:: i < PRODUCERS -> run producer(i); i++
		:: else -> break
		od
	};
	_nr_pr == 1;
	assert(!ready || on[2] || wanted[2])
}
