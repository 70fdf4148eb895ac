/* SPDX-License-Identifier: MIT */
/*
 * Who sleeps in poll, select or a read of an object itself sleeps in the kernel: writers go through to
 * it meanwhile, each time, or once for each sleep.
 *
 * Mirrors: docs/cache.md, "Polls". (No code yet.) The word {state, mark, busy, polls, through, gen, U}
 * and calls as in cache_count.pml. SLEEPERS that poll once each, sleeping, and may leave by their time;
 * with BLOCKING the first of them reads and sleeps in that (the object was blocking when it began);
 * two writers, of which the second writes SECOND times; a reader, READS times; a write-back; an
 * adoption. A sleeper is counted by the step that finds U to be 0, on an object of the kernel's, too.
 *
 * ONCE: with polls counted and no read between K and U, the first writer says in the word that it has
 * BEGUN, with a ticket, writes to the kernel, and says DONE in the step that sets the mark, if its
 * BEGUN still stands. While it is DONE others add to U. Who is about to read K takes BEGUN or DONE back
 * in the step that makes him busy, and takes U in that step, too; the last sleeper who leaves takes it
 * back as well.
 *
 * Checked: when nobody can move, nobody sleeps beside U + K > 0; a poll whose time is over: what
 * writes had given that returned before it began has been read. STOP_WRITER: the first writer may
 * stop for ever at any step; STOP_READER: so may the reader of a cached
 * object, STOP_COLD_READER: one that began cold.
 *
 * Memory: a count and "U is 0" are one step, and so are the state and an addition: no pair of barriers.
 *
 * Broken variants: COLD (sleepers are not counted on an object of the kernel's), APART (U is looked at
 * in a step before), UNSEEN (a write does not look at polls), PLAIN_ADD (polls are looked at in a step
 * before the addition); of ONCE: EARLY (DONE is said before the kernel has been written to), LATE (said
 * after it, whether BEGUN still stands or not), NO_TICKET (a BEGUN of somebody else will do), NO_CLEAR
 * (who reads K does not take it back), CLEAR_LATE (he does after he has read), BESIDE_READ (it begins
 * beside a read), TAKE_LATE (who reads K takes U only afterwards). STOP_COLD_READER fails with ONCE, in
 * which nothing is broken: a read that began when the object was the kernel's holds what woke a
 * sleeper, who sleeps again before the reader looks at the word and finds U.
 */
#ifndef SLEEPERS
#define SLEEPERS 2
#endif
#ifndef SECOND
#define SECOND 1
#endif
#ifndef READS
#define READS 1
#endif
#ifndef FLUSHES
#define FLUSHES 1
#endif

#define KERNEL 0
#define CACHED 1
#define FLUSHING 2

#define NONE 0
#define BEGUN 1
#define DONE 2

byte st, gen, polls, through, ticket, u;
bit mark, busy;
byte k;
/* Ghosts. */
byte returned, taken, asleep, ended;
bit adopted;

#ifdef ONCE
#define GO_THROUGH (polls && through != DONE)
#else
#define GO_THROUGH polls
#endif

#ifdef STOP_WRITER
#define MAY_STOP if :: can_stop -> goto stopped :: true fi
#else
#define MAY_STOP skip
#endif
#ifdef STOP_READER
#define READER_MAY_STOP if :: true -> goto stopped :: true fi
#else
#define READER_MAY_STOP skip
#endif
#ifdef STOP_COLD_READER
#define COLD_READER_MAY_STOP if :: true -> goto stopped :: true fi
#else
#define COLD_READER_MAY_STOP skip
#endif

proctype writer(byte n; bit can_stop)
{
	byte g, t;
	bit mine, went;

again:
	if
	:: st == KERNEL ->
		if
		:: atomic { st == KERNEL && !adopted -> st = CACHED; adopted = 1; mark = 1; gen++; through = NONE };
			goto again
		:: atomic { k++; went = 1 }
		fi
#if defined(BROKEN_UNSEEN)
	:: atomic { st == CACHED -> u++ }
#elif defined(BROKEN_PLAIN_ADD)
	:: st == CACHED && !GO_THROUGH ->
		if
		:: atomic { st == CACHED -> u++ }
		:: st != CACHED -> goto again
		fi
#else
	:: atomic { st == CACHED && !GO_THROUGH -> u++ }
#endif
#ifndef BROKEN_UNSEEN
	:: atomic { st == CACHED && GO_THROUGH ->
		g = gen;
#ifdef ONCE
		if
#ifdef BROKEN_BESIDE_READ
		:: through == NONE ->
#else
		:: through == NONE && !busy ->
#endif
			mine = 1;
#ifdef STOP_WRITER
			ticket++;
			t = ticket;
#endif
#ifdef BROKEN_EARLY
			through = DONE
#else
			through = BEGUN
#endif
		:: else
		fi
#endif
	   };
		MAY_STOP;
		atomic { k++; went = 1 }
#endif
	:: st == FLUSHING -> atomic { k++; went = 1 }
	fi;
	MAY_STOP;
	/* Tell; where it was added to U there is nothing to tell. */
	d_step {
		if
		:: st != KERNEL && went ->
			mark = 1;
			if
#ifdef BROKEN_LATE
			:: mine -> through = DONE
#elif defined(BROKEN_NO_TICKET)
			:: mine && gen == g && through == BEGUN -> through = DONE
#else
			/* The ticket matters where writers stop. */
			:: mine && gen == g && through == BEGUN && (ticket == t || !t) -> through = DONE
#endif
			:: else
			fi
		:: else
		fi;
		went = 0;
		mine = 0;
		g = 0;
		t = 0;
		returned++;
		n--
	}
	if
	:: n > 0 -> goto again
	:: else
	fi;
stopped:
	ended++
}

/* On through the word, with what has been read from K. */
inline read_on()
{
	g = 0;
next_read:
	if
	:: atomic { st == KERNEL -> g = gen };
		atomic { taken = taken + k; k = 0 };
		COLD_READER_MAY_STOP;
		if
		:: gen != g -> goto next_read
		:: gen == g
		fi
	:: st == FLUSHING -> (st != FLUSHING); goto next_read
	:: atomic { st == CACHED && !busy && !mark && u -> taken = taken + u; u = 0 }
	:: atomic { st == CACHED && !busy && (mark || !u) ->
		busy = 1;
		mark = 0;
#if defined(ONCE) && !defined(BROKEN_TAKE_LATE)
		taken = taken + u;
		u = 0;
#endif
#if !defined(BROKEN_NO_CLEAR) && !defined(BROKEN_CLEAR_LATE)
		through = NONE
#endif
	   };
more:
		READER_MAY_STOP;
		atomic { taken = taken + k; k = 0 };
		READER_MAY_STOP;
		if
		:: atomic { st == CACHED && mark ->
			mark = 0;
#if !defined(BROKEN_NO_CLEAR) && !defined(BROKEN_CLEAR_LATE)
			through = NONE
#endif
		   };
			goto more
		:: atomic { st == CACHED && !mark ->
			taken = taken + u;
			u = 0;
			busy = 0;
#ifdef BROKEN_CLEAR_LATE
			through = NONE
#endif
		   }
		fi
	fi
}

proctype reader()
{
	byte n = READS, g;

	do
	:: n == 0 -> break
	:: n > 0 -> n--; read_on()
	od;
stopped:
	ended++
}

proctype sleeper(bit reads)
{
	byte before, g;

	before = returned;
#ifdef BROKEN_COLD
	if
	:: u -> goto ready
	:: atomic { !u && st != KERNEL -> polls++ }
	:: st == KERNEL -> goto uncounted
	fi;
#elif defined(BROKEN_APART)
	if
	:: u -> goto ready
	:: else
	fi;
	polls++;
#else
	if
	:: u -> goto ready
	:: atomic { !u -> polls++ }
	fi;
#endif
	atomic {
		if
		:: k -> goto up
		:: else -> asleep++
		fi
	}
end1:	if
	:: atomic { k ->
		asleep--;
		/* A read takes K before it wakes. */
		if
		:: reads -> taken = taken + k; k = 0
		:: else
		fi
	   }
#ifdef TIMES
	:: atomic { !k && !reads -> asleep--; assert(taken >= before) }
#endif
	fi;
up:
	atomic {
		polls--;
		if
		:: !polls -> through = NONE
		:: else
		fi
	}
#ifdef BLOCKING
	/* It began when the object was the kernel's, and looks at the word as all such reads do. */
	if
	:: reads && st != KERNEL -> read_on()
	:: else
	fi;
#endif
	goto ready;
#ifdef BROKEN_COLD
uncounted:
	asleep++;
end2:	atomic { k -> asleep-- };
#endif
ready:
stopped:
	ended++
}

proctype flusher()
{
	byte n = FLUSHES;

	do
	:: n == 0 -> break
	:: n > 0 ->
		n--;
		if
		:: true
		:: atomic { st == CACHED && !busy -> st = FLUSHING };
			k = k + u;
			d_step { u = 0; mark = 0; through = NONE; st = KERNEL }
		fi
	od;
	ended++
}

init {
	byte i;

	atomic {
		run writer(1, 1);
		run writer(SECOND, 0);
		run reader();
		do
#ifdef BLOCKING
		:: i < SLEEPERS -> run sleeper(i == 0); i++
#else
		:: i < SLEEPERS -> run sleeper(0); i++
#endif
		:: else -> break
		od;
		run flusher();
		i = 0
	}
	/* True when nobody else can take a step. */
	timeout ->
	assert(!asleep || u + k == 0);
#if !defined(STOP_READER) && !defined(STOP_COLD_READER)
	assert(ended + asleep == 4 + SLEEPERS)
#endif
}
