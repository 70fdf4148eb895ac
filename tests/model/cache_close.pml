/* SPDX-License-Identifier: MIT */
/*
 * A number that is closed, or put elsewhere by dup2, while its cached object is written back by
 * another thread: no call of ours reaches a stranger's file, and a dup2 that fails has changed nothing.
 *
 * Mirrors: docs/cache.md, "Numbers". (No code yet.) One number, object A, WRITES writes by one thread
 * of the program, one read by another, which race with the close, as a program's calls may; a
 * write-back by a third (a fork, an epoll that is closed, the accounting); a close, or with DUP a dup2
 * over the number, which may fail; after a close another thread gets the number for object B.
 *
 * The state FLUSHING is the pin: one thread writes by the number, it does not block, and whoever is to
 * close waits for it. Close writes back what U holds, then marks the word in the step that finds U to
 * be 0, takes the object out of the table, and calls the kernel. The mark ends adding, adopting and
 * writing back.
 *
 * Checked: a write-back meets the object's own file; a read that finds nothing in an open file, with a
 * write returned before it began: that has been read; nothing is lost in a file that stays open; B stays
 * in the table.
 *
 * Memory: changes of the word are compare-and-swaps; the table's slot is cleared before the system call
 * and set after it, and the kernel's lock on the table of descriptors orders the two.
 *
 * Broken variants: NO_WAIT (close does not wait for FLUSHING), NO_CLOSING (an adoption does not look
 * at the mark), MARK_ALONE (close does not write back first; a read beside it finds nothing, and after
 * a dup2 that fails U is gone), MARK_LATE (the mark is set after the kernel's close), SLOT_LATE (the slot is
 * cleared after it), OPEN_FIRST (a dup2 that failed takes the mark off before the object is in the table
 * again).
 */
#define KERNEL 0
#define CACHED 1
#define FLUSHING 2
#define A 1
#define B 2
#ifndef WRITES
#define WRITES 2
#endif

byte st, u;
bit closing, busy;
byte file = A, slot = A, k[3];
/* Ghosts. */
byte given, returned, taken, ended;
bit closed;

active proctype writer()
{
	byte n = WRITES, o;

	do
	:: n == 0 -> break
	:: n > 0 ->
		o = slot;
again:
		if
		:: o != A || closing || st == FLUSHING ->
			d_step { k[file] = k[file] + (file > 0); given = given + (file == A) }
		:: o == A && !closing && st == KERNEL ->
			if
#ifdef BROKEN_NO_CLOSING
			:: atomic { st == KERNEL -> st = CACHED; closing = 0 }; goto again
#else
			:: atomic { st == KERNEL && !closing -> st = CACHED }; goto again
#endif
			:: d_step { k[file] = k[file] + (file > 0); given = given + (file == A) }
			fi
		:: atomic { o == A && !closing && st == CACHED -> u++; given++ }
		fi;
		d_step { returned = given; n--; o = 0 }
	od;
	ended++
}

active proctype reader()
{
	byte o, r, before;

	before = returned;
	o = slot;
again:
	if
	:: o == A && st == FLUSHING && !closing -> (st != FLUSHING || closing); goto again
	:: o != A || closing || st == KERNEL ->
		atomic {
			if
			:: file == A -> r = k[A]; k[A] = 0; taken = taken + r
			:: else -> goto over
			fi
		}
		/* Adopted meanwhile: on. */
		if
		:: o == A && !r && st != KERNEL && !closing -> goto again
		:: else
		fi
	:: atomic { o == A && !closing && st == CACHED -> busy = 1 };
		atomic {
			if
			:: file == A -> r = k[A]; k[A] = 0; taken = taken + r
			:: else
			fi
		}
		atomic {
			if
			:: st == CACHED && !closing -> r = r + u; taken = taken + u; u = 0
			:: else
			fi;
			busy = 0
		}
	fi;
	d_step {
		assert(r || closed || taken >= before);
		r = 0;
		before = 0;
		o = 0
	};
over:
	ended++
}

inline write_back()
{
	assert(file == A);
	k[file] = k[file] + u;
	d_step { u = 0; st = KERNEL }
}

active proctype flusher()
{
	if
	:: true
	:: atomic { st == CACHED && !busy -> st = FLUSHING };
		write_back()
	fi;
	ended++
}

active proctype closer()
{
#ifdef BROKEN_MARK_LATE
#define MARK skip
#else
#define MARK closing = 1
#endif
again:
	if
#ifdef BROKEN_NO_WAIT
	:: atomic { st == FLUSHING -> MARK }
#else
	:: st == FLUSHING -> (st != FLUSHING); goto again
#endif
#ifdef BROKEN_MARK_ALONE
	:: atomic { st != FLUSHING -> MARK }
#else
	:: atomic { st == CACHED && u && !busy -> st = FLUSHING };
		write_back();
		goto again
	:: atomic { st != FLUSHING && !u -> MARK; st = KERNEL }
#endif
	fi;
#ifndef BROKEN_SLOT_LATE
	slot = 0;
#endif
#ifdef DUP
	if
	/* It fails. */
#ifdef BROKEN_OPEN_FIRST
	:: true -> closing = 0; slot = A
#else
	:: true -> slot = A; closing = 0
#endif
	:: true ->
#endif
		atomic {
#ifdef DUP
			file = B;
#else
			file = 0;
#endif
			closed = 1
		}
#ifdef BROKEN_MARK_LATE
		closing = 1;
#endif
#ifdef BROKEN_SLOT_LATE
		slot = 0;
#endif
#ifdef DUP
		slot = B
	fi;
#endif
	ended++
}

#ifndef DUP
active proctype opener()
{
	(file == 0);
	file = B;
	slot = B;
	ended++
}
#endif

init {
	/* True when nobody else can take a step. */
	timeout ->
#ifdef DUP
	assert(ended == 4);
#else
	assert(ended == 5);
#endif
	assert(file == slot);
	assert(file != A || k[A] + u + taken == given)
}
