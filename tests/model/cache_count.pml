/* SPDX-License-Identifier: MIT */
/*
 * The count of a cached eventfd, U in user space and K in the kernel: nothing is lost, counted twice
 * or out of sight while the object is adopted and written back.
 *
 * Mirrors: docs/cache.md, "The word", "Calls on an object". (No code yet.) One eventfd; a thread that
 * writes 1 and then 2, a second writer of 4, READERS that read READS times each, LOOKS looks that do
 * not wait, a poll that counts itself and leaves again (sleeping: cache_poll.pml), FLUSHES
 * write-backs, at most ADOPTIONS adoptions. Any write may adopt. A call on an object that is the
 * kernel's is two steps: the word, then the system call, and another look at the word follows.
 *
 * The word {state, mark, busy, polls, gen, U} changes in single steps, as by compare-and-swap; one
 * that fails begins again. A system call is one step.
 *
 * Checked:
 *  - at the end, what has been read, U and K make what has been written;
 *  - nobody reads 2 without 1, which was written before it by the same thread, unless a read that is
 *    not over has it;
 *  - a read or a look that finds nothing: what writes that had returned before it began have given is
 *    taken by reads;
 *  - U is 0 while the object is the kernel's, and while a poll is counted;
 *  - -DFULL: K holds up to 5 and another process has put 4 there. A write that the kernel refuses has
 *    given nothing; a write-back that it refuses leaves the object cached; a read returns no more
 *    than one object may hold.
 *
 * TAKE_FIRST: who is about to read K takes U in the step that makes him busy, as cache_poll.pml needs
 * it with ONCE; what has been added since he takes at the end.
 *
 * Memory: one word and system calls. Reads and writes of K are ordered by the kernel's lock on it:
 * who finds in K what a cold writer has put there finds his earlier steps, and the cold writer's look
 * at the word comes after his system call (it needs that order: full barrier on return).
 *
 * Broken variants: NO_MARK (adoption does not mark K), NO_TELL (a cold write does not look again),
 * NO_THROUGH_MARK (a write through does not mark), NO_GEN (a cold read looks at the state alone, as if
 * the generation had wrapped), NO_LOOK (it does not look again), MARK_APART (mark and U are looked at
 * in two steps), MARK_LATE (the mark is cleared after K has been read), ONE_READ (a mark that came
 * while K was read is not looked at), NO_BUSY (two reads may be between K and U), IN_HAND (a write-back
 * takes U before K has it), NO_FLUSHING (it does so without the state), ADD_APART (state and U in two
 * steps), KERNEL_FIRST (a look asks K, then U), PULL (a look brings K to U), THROUGH_LATE (a write is
 * added to U beside polls), FULL_CLEARS (a refused write-back has cleared U), SUM (a read adds K and U up
 * beyond what one object may hold).
 */
#ifndef WRITES
#define WRITES 2
#endif
#ifndef READERS
#define READERS 1
#endif
#ifndef READS
#define READS 1
#endif
#ifndef LOOKS
#define LOOKS 1
#endif
#ifndef POLLS
#define POLLS 0
#endif
#ifndef FLUSHES
#define FLUSHES 1
#endif
#ifndef ADOPTIONS
#define ADOPTIONS 1
#endif

#define KERNEL 0
#define CACHED 1
#define FLUSHING 2

/* The word; gen is what adoptions make it. */
byte st, gen, polls, u;
bit mark, busy;
/* The kernel's. */
#ifdef FULL
#define LIMIT 5
#define THEIRS 4
byte k = THEIRS;
#else
#define LIMIT 100
#define THEIRS 0
byte k;
#endif

/* Ghosts: given by writes, by writes that have returned; taken out of U and K; read. */
byte given, returned, taken, sum;
byte adoptions, ended;

#ifdef FULL
/* Here 2 may be read without 1: 1 has to stay in U when both do not fit. */
#define PREFIX(x) true
#else
#define PREFIX(x) (!((x) & 2) || ((x) & 1))
#endif

inline kernel_write(v)
{
	atomic {
		if
		:: k + v <= LIMIT -> k = k + v; given = given + v; done = 1
		:: else -> done = 0
		fi
	}
}

/* K may hold something. */
inline tell()
{
	d_step {
		if
		:: st != KERNEL -> mark = 1
		:: else
		fi
	}
}

proctype writer(byte v; byte n)
{
	bit done;

again:
	if
	:: st == KERNEL ->
		if
		:: atomic { st == KERNEL && adoptions < ADOPTIONS ->
			st = CACHED;
			gen++;
			adoptions++;
#ifndef BROKEN_NO_MARK
			mark = 1
#endif
		   };
			goto again
		:: kernel_write(v);
#ifndef BROKEN_NO_TELL
			tell()
#endif
		fi
#if defined(BROKEN_ADD_APART)
	:: st == CACHED -> d_step { u = u + v; given = given + v; done = 1 }
#else
#ifdef BROKEN_THROUGH_LATE
	:: atomic { st == CACHED ->
#else
	:: atomic { st == CACHED && !polls ->
#endif
		u = u + v;
		given = given + v;
		done = 1
	   }
	:: st == CACHED && polls ->
		kernel_write(v);
#ifndef BROKEN_NO_THROUGH_MARK
		tell()
#endif
#endif
	:: st == FLUSHING -> kernel_write(v); tell()
	fi;
	atomic {
		if
		:: done -> returned = returned + v
		:: else
		fi;
		v = 2 * v;
		n--
	}
	if
	:: n > 0 -> goto again
	:: else
	fi;
	ended++
}

#define READ_K atomic { r = r + k; taken = taken + k; k = 0 }
/* So much that nothing can be added to it: 2^62 and more. */
#if defined(FULL) && !defined(BROKEN_SUM)
#define LARGE (r > 0)
#else
#define LARGE false
#endif
/* What another read holds counts as read: it may be told to have come before. */
#define HEARD sum = sum + r; assert(PREFIX(taken))
#define TAKE_U r = r + u; taken = taken + u; u = 0; HEARD
#ifdef BROKEN_ONE_READ
#define CLEAN true
#else
#define CLEAN (!mark)
#endif

inline deliver()
{
	d_step {
		assert(r <= LIMIT);
		assert(r || taken >= before);
		r = 0;
		before = 0
	}
}

proctype reader()
{
	byte n = READS, r, before, g;

next:
	before = returned + THEIRS;
again:
	if
	:: atomic { st == KERNEL -> g = gen };
		READ_K;
#ifndef BROKEN_NO_LOOK
		if
#ifdef BROKEN_NO_GEN
		:: st != KERNEL -> goto again
		:: atomic { st == KERNEL -> HEARD }
#else
		:: gen != g && !LARGE -> goto again
		:: atomic { gen == g || LARGE -> HEARD }
#endif
		fi
#else
		atomic { HEARD }
#endif
	:: st == FLUSHING -> (st != FLUSHING); goto again
#ifdef BROKEN_MARK_APART
	:: st == CACHED && !busy && !mark && u ->
		atomic {
			if
			:: st == CACHED && !busy && u -> TAKE_U
			:: else -> goto again
			fi
		}
#else
	:: atomic { st == CACHED && !busy && !mark && u -> TAKE_U }
#endif
	:: atomic { st == CACHED && !busy && (mark || !u) ->
#ifndef BROKEN_NO_BUSY
		busy = 1;
#endif
#ifdef TAKE_FIRST
		r = r + u;
		taken = taken + u;
		u = 0;
#endif
#ifndef BROKEN_MARK_LATE
		mark = 0
#endif
	   };
more:
		READ_K;
#ifdef BROKEN_MARK_LATE
		mark = 0;
#endif
		if
#ifndef BROKEN_ONE_READ
		:: atomic { st == CACHED && mark && !LARGE -> mark = 0 }; goto more
#endif
		:: atomic { st == CACHED && CLEAN && !LARGE -> TAKE_U; busy = 0 }
		/* U stays, and so does a mark. */
		:: atomic { st == CACHED && LARGE -> busy = 0; HEARD }
#if defined(BROKEN_NO_BUSY) || defined(BROKEN_NO_FLUSHING)
		:: atomic { st != CACHED -> busy = 0 }; goto again
#endif
		fi
	fi;
	deliver();
	n--;
	g = 0;
	if
	:: n > 0 -> goto next
	:: else
	fi;
	ended++
}

/* A level-triggered look at one object; or a poll with no time. */
proctype look()
{
	byte n = LOOKS, before;
	bit found;
#ifdef BROKEN_PULL
	byte h;
#endif

next:
	if
	:: n == 0 -> goto over
	:: else
	fi;
	before = returned + THEIRS;
#if defined(BROKEN_PULL)
	atomic { h = k; k = 0 };
	atomic {
		if
		:: st == CACHED -> u = u + h
		:: else -> k = k + h
		fi;
		h = 0
	}
#endif
#ifdef BROKEN_KERNEL_FIRST
	found = (k > 0);
	found = found || u > 0;
#else
	found = (u > 0);
	found = found || k > 0;
#endif
	d_step {
		assert(found || taken >= before);
		before = 0;
		found = 0;
		n--
	}
	goto next;
over:
	ended++
}

/* Counted only where U is 0. */
proctype poller()
{
	byte n = POLLS;

	do
	:: n == 0 -> break
	:: n > 0 ->
		n--;
		if
		:: u
		:: atomic { !u -> polls++ };
			assert(!u);
			polls--
		fi
	od;
	ended++
}

proctype flusher()
{
	byte n = FLUSHES;
	bit ok;
#if defined(BROKEN_IN_HAND) || defined(BROKEN_NO_FLUSHING)
	byte h;
#endif

	do
	:: n == 0 -> break
	:: n > 0 ->
		n--;
		if
		:: true
#if defined(BROKEN_NO_FLUSHING)
		:: atomic { st == CACHED -> h = u; u = 0; mark = 0; st = KERNEL };
			atomic { k = k + h; h = 0 }
#elif defined(BROKEN_IN_HAND)
		:: atomic { st == CACHED && !busy -> st = FLUSHING; h = u; u = 0 };
			atomic { k = k + h; h = 0 };
			atomic { mark = 0; st = KERNEL }
#else
		:: atomic { st == CACHED && !busy -> st = FLUSHING };
			atomic {
				if
				:: k + u <= LIMIT -> k = k + u; ok = 1
				:: else -> ok = 0
				fi
			}
			d_step {
				if
				:: ok -> u = 0; mark = 0; st = KERNEL
#ifdef BROKEN_FULL_CLEARS
				:: else -> u = 0; mark = 0; st = KERNEL
#else
				:: else -> mark = 1; st = CACHED
#endif
				fi;
				ok = 0
			}
#endif
		fi
	od;
	ended++
}

init {
	byte i;

	atomic {
		run writer(1, WRITES);
		run writer(4, 1);
		do
		:: i < READERS -> run reader(); i++
		:: else -> break
		od;
		run look();
		run poller();
		run flusher();
		i = 0
	}
	/* True when nobody else can take a step. */
	timeout ->
	assert(ended == 5 + READERS);
	assert(sum == taken && sum + u + k == given + THEIRS);
	assert(st == CACHED || !u);
	assert(!busy && !polls)
}
