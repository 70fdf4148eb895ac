/* SPDX-License-Identifier: MIT */
/*
 * A fork writes back everything before the child exists, and nothing that the two share is ever cached
 * again.
 *
 * Mirrors: docs/cache.md, "Fork". (No code yet.) Object 0 is there; a thread makes object 1 meanwhile;
 * two threads write, one to each, and adopt; one forks. The count of forks is odd while one is on its
 * way. Who makes an object reads it before the system call and again after the object is in the table:
 * if it was odd or has changed, the object is the kernel's for good. Until then it is NEW, which nobody
 * adopts.
 *
 * Checked: when the child begins, no object that it shares is cached, being written back or busy, and U is
 * 0; no such object is adopted later; what writes have given is in K.
 *
 * Memory (-DWEAK): the slot in the table and the count of forks are stores that wait in a buffer until a
 * full barrier: slot, barrier, forks || forks, barrier, slots. Adoption is a compare-and-swap on a word
 * that the fork changes, too, and needs no pair.
 *
 * Broken variants: NO_SLOT_BARRIER, NO_FORK_BARRIER (WEAK), NO_COUNT (who makes an object does not look
 * whether a fork has begun), ONE_LOOK (he looks after it is in the table alone), NOT_FOR_GOOD (the fork
 * leaves objects the kernel's that others may adopt), NO_WAIT (it does not wait for another's
 * write-back), COLD_LEFT (it leaves alone what is not cached).
 */
#define NEW 0
#define KERNEL 1
#define CACHED 2
#define FLUSHING 3
#define FOR_GOOD 4

byte st[2], u[2], k[2];
bit there[2], slot[2], shared[2];
byte forks;
byte given[2], ended;

#ifdef WEAK
bit slot_b, forks_b;

active proctype memory()
{
endm:	do
	:: atomic { slot_b -> slot_b = 0; slot[1] = 1 }
	:: atomic { forks_b -> forks_b = 0; forks++ }
	od
}
#endif

proctype writer(bit i)
{
	byte n = 2;

	/* The number is known. */
	(st[i] != NEW);
again:
	if
	:: atomic { st[i] == KERNEL -> assert(!shared[i]); st[i] = CACHED }; goto again
	:: atomic { st[i] == CACHED -> u[i]++; given[i]++ }
	:: st[i] != CACHED -> atomic { k[i]++; given[i]++ }
	fi;
	n--;
	if
	:: n > 0 -> goto again
	:: else
	fi;
	ended++
}

proctype maker()
{
	byte before;

	before = forks;
	there[1] = 1;
#ifdef WEAK
	slot_b = 1;
#ifndef BROKEN_NO_SLOT_BARRIER
	(!slot_b);
#endif
#else
	slot[1] = 1;
#endif
	/* The fork may have changed it already. */
	if
#ifdef BROKEN_NO_COUNT
	:: false
#elif defined(BROKEN_ONE_LOOK)
	:: forks % 2 -> before = 1
#else
	:: forks != before || before % 2 -> before = 1
#endif
	:: else -> before = 0
	fi;
	atomic {
		if
		:: st[1] == NEW && before -> st[1] = FOR_GOOD
		:: st[1] == NEW && !before -> st[1] = KERNEL
		:: else
		fi
	}
	ended++
}

inline write_back(i, to)
{
	k[i] = k[i] + u[i];
	d_step { u[i] = 0; st[i] = to }
}

proctype flusher()
{
	if
	:: true
	:: atomic { st[0] == CACHED -> st[0] = FLUSHING };
		write_back(0, KERNEL)
	fi;
	ended++
}

#ifdef BROKEN_NOT_FOR_GOOD
#define LEFT KERNEL
#else
#define LEFT FOR_GOOD
#endif

proctype forker()
{
	byte i;

#ifdef WEAK
	forks_b = 1;
#ifndef BROKEN_NO_FORK_BARRIER
	(!forks_b);
#endif
#else
	forks++;
#endif
	do
	:: i == 2 -> break
	:: i < 2 && !slot[i] -> i++
	:: i < 2 && slot[i] ->
again:
		if
		:: atomic { st[i] == CACHED -> st[i] = FLUSHING };
			write_back(i, LEFT)
#ifdef BROKEN_NO_WAIT
		:: st[i] == FLUSHING
#else
		:: st[i] == FLUSHING -> (st[i] != FLUSHING); goto again
#endif
#ifdef BROKEN_COLD_LEFT
		:: st[i] == KERNEL || st[i] == NEW
#else
		:: atomic { st[i] == KERNEL || st[i] == NEW -> st[i] = LEFT }
#endif
		:: st[i] == FOR_GOOD
		fi;
		i++
	od;
	/* The child. */
	atomic {
		shared[0] = there[0];
		shared[1] = there[1];
		assert(!there[0] || (st[0] != CACHED && st[0] != FLUSHING && !u[0] && k[0] == given[0]));
		assert(!there[1] || (st[1] != CACHED && st[1] != FLUSHING && !u[1] && k[1] == given[1]));
		i = 0
	}
#ifdef WEAK
	(!forks_b);
#endif
	forks++;
	ended++
}

init {
	atomic {
		st[0] = KERNEL;
		there[0] = 1;
		slot[0] = 1;
		run writer(0);
		run writer(1);
		run maker();
		run flusher();
		run forker()
	}
	/* True when nobody else can take a step. */
	timeout ->
	assert(ended == 5);
	assert(!shared[0] || st[0] == FOR_GOOD);
	assert(!shared[1] || st[1] == FOR_GOOD);
	assert(k[0] + u[0] == given[0] && k[1] + u[1] == given[1])
}
