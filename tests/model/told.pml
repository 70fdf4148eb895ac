/* SPDX-License-Identifier: MIT */
/*
 * A write beside a spill. An edge-triggered item whose file is ready and which is not queued has had
 * its event collected: a spill sees to it that the kernel does not report it again. So no write may
 * have changed the count and not have queued the item yet.
 *
 * Mirrors: src/posix/spill.c spill_run, take_item, numbers_leave; src/source/eventfd.c try_told,
 * efd_signal, plx_efd_freeze; src/epoll/file.c plx_file_wake_rcu; src/posix/eventfd.c efd_write. One
 * file whose count is 1, one item, whose event has been collected; WRITERS threads that write once
 * and one that collects.
 *
 * Checked: when all have come to their end, the last write has been followed by an event.
 *
 * Changes of the count and of the mark are read-modify-writes, and so is the freeze.
 *
 * Broken variants: NO_GRACE (writers are not waited for), TOLD_OUTSIDE (the section begins after the
 * change), GRACE_FIRST (they are waited for before the count is frozen).
 */

#ifndef WRITERS
#define WRITERS 2
#endif

byte count = 1;
bit gone, dead, queued, spilled;
/* The item is the kernel's, and its event is to come. */
bit there, pending;
/* A write has not been followed by an event. */
bit unheard;
byte inside, ended;

inline grace()
{
	/* Sections that begin later find it frozen. */
	(inside == 0)
}

proctype writer()
{
#ifndef BROKEN_TOLD_OUTSIDE
	inside++;
#endif
	if
	:: atomic { !gone -> count++; unheard = 1 }
#ifdef BROKEN_TOLD_OUTSIDE
		inside++;
#endif
		/* Dead is looked at with the mark: a removal moves EPOCH. */
		atomic {
			if
			:: !dead -> queued = 1
			:: else
			fi
		};
		inside--
	:: atomic { gone ->
#ifndef BROKEN_TOLD_OUTSIDE
		inside--
#endif
		}
		spilled;
		/* The kernel's is one step. */
		atomic { count++; unheard = 1; pending = 1 }
	fi;
	ended++
}

/* Under the mutex of the epoll, as the spill takes items. */
bit mutex;

proctype collector()
{
endc:	do
	:: atomic { !mutex && queued && !dead && !gone -> mutex = 1 };
		queued = 0;
		/* The sample comes after the mark has gone. */
		unheard = 0;
		mutex = 0
	:: atomic { there && pending -> pending = 0; unheard = 0 }
	od
}

proctype spiller()
{
	bit consumed;

	atomic { !mutex -> mutex = 1 };
#ifdef BROKEN_GRACE_FIRST
	grace();
#endif
	gone = 1;
#if !defined(BROKEN_NO_GRACE) && !defined(BROKEN_GRACE_FIRST)
	grace();
#endif
	atomic { consumed = count > 0 && !queued; dead = 1; queued = 0 };
	/* What has been collected is swallowed. */
	d_step { there = 1; pending = !consumed };
	spilled = 1;
	mutex = 0;
	ended++
}

active proctype judge()
{
	ended == WRITERS + 1;
	/* The collector has had its turns. */
	!(there && pending);
	assert(!unheard)
}

init {
	byte i;

	atomic {
		run spiller();
		run collector();
		do
		:: i == WRITERS -> break
		:: else -> run writer(); i++
		od
	}
}
