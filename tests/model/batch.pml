/* SPDX-License-Identifier: MIT */
/*
 * Who frees an object waits for the batches that may have an event of it.
 *
 * Mirrors: src/epoll/thread.c plx_batch_open, plx_batch_note, plx_batch_over; src/epoll/harvest.c
 * plx_ep_harvest; with EARLY src/wait/wait.c look. Two threads collect, each twice: what they find on the
 * list they touch until their batch ends. Another removes the item under the mutex, notes the clock,
 * looks at the batches one after the other until none is as old as the note, and frees the object. The
 * mutex orders what is done under it, so that memory is as it looks here.
 *
 * Checked: nobody touches the object after it was freed; who frees does not wait for a batch of after
 * the note: the last thread opens one then, and keeps it until the object has been freed.
 *
 * Broken variants: OPEN_LATE (the batch is opened when the mutex is free again), NOTE_FIRST (noted
 * before the removal), END_FIRST (the thread is at the event when its batch has ended), NOT_MOVED (the
 * note does not move the clock), YOUNGER (those as old as the note are taken for younger).
 */

bit mutex, linked = 1, freed, noted;
byte clock = 1;
byte opened[3];

inline lock() { atomic { !mutex -> mutex = 1 } }
inline unlock() { mutex = 0 }

proctype waiter(byte me)
{
	byte n, now;
	bit got;

	do
	:: n == 2 -> break
	:: else ->
		n++;
#ifdef EARLY
		now = clock;
		opened[me] = now;
#endif
		lock();
		got = linked;
#ifndef EARLY
#ifndef BROKEN_OPEN_LATE
		if
		:: got ->
			now = clock;
			opened[me] = now
		:: else
		fi;
#endif
#endif
		unlock();
#ifdef BROKEN_OPEN_LATE
		now = clock;
		opened[me] = now;
#endif
#ifdef BROKEN_END_FIRST
		opened[me] = 0;
#endif
		if
		:: got -> assert(!freed)
		:: else
		fi;
		opened[me] = 0
	od
}

active proctype remover()
{
	byte note, i;

#ifdef BROKEN_NOTE_FIRST
	atomic { note = clock; clock++ }
#endif
	lock();
	linked = 0;
	unlock();
#ifndef BROKEN_NOTE_FIRST
#ifdef BROKEN_NOT_MOVED
	note = clock;
#else
	atomic { note = clock; clock++ }
#endif
#endif
	noted = 1;
	do
	:: i == 3 -> break
	:: else ->
#ifdef BROKEN_YOUNGER
		opened[i] == 0 || opened[i] >= note;
#else
		opened[i] == 0 || opened[i] > note;
#endif
		i++
	od;
	freed = 1
}

/* Its events are others'. */
active proctype later()
{
	noted;
	lock();
	opened[2] = clock;
	unlock();
	freed;
	opened[2] = 0
}

init {
	atomic {
		run waiter(0);
		run waiter(1)
	}
}
