/* SPDX-License-Identifier: MIT */
/*
 * The count of an eventfd that is cached, U in user space and K in the kernel: a mark says that K may
 * hold something, and then nothing is added to U. With ADOPT it begins COLD, and becomes CACHED, at
 * the end of any write.
 *
 * Mirrors: src/cache/eventfd.c, flush.c and adopt.c. One eventfd; a thread that writes WRITES times,
 * 1, 2 ..., a second writer of 4, READERS that read READS times each, SLEEPERS in poll, of whom each may
 * be one whose time ends, FLUSHES flushes, each with the mark, for good or, with ADOPT, back to COLD. Any
 * write may be too much for U: it flushes with the mark if U > 0, and goes through to K. EDGES: the
 * registration is edge-triggered, and a read asks K each time. FULL: K holds up to 4, U up to 2.
 *
 * The word {state, mark, through, polls, EPOCH, U} changes in single steps, as by compare-and-swap; one
 * that fails begins again. A system call is one step. A read that asks K compares what the word had
 * before, by mark, through and EPOCH alone.
 *
 * COLD is a state with the mark. Its writers are counted in begun and over, each in a step of its own.
 *
 * Checked:
 *  - in every state: what K holds is marked, and what is marked holds no U; nor does an
 *    object with a poll or a write that goes through, or one that is the kernel's; FLUSHING has U alone;
 *  - at the end, what has been read, U and K make what has been written; everybody has ended but who
 *    sleeps beside a count of 0;
 *  - nobody reads 2 without 1, which was written before it by the same thread, unless a read that is
 *    not over has it;
 *  - a read, and a poll whose time is over: all writes that had returned before it began are in reads;
 *  - FULL: a write that the kernel refuses has given nothing, a flush is not refused, and no read
 *    returns more than one object may hold.
 *
 * Memory: one word and system calls, as in cache_count.pml.
 *
 * Broken variants: NO_THROUGH (who goes through is not counted), NO_EPOCH (the end of a write that goes
 * through does not move EPOCH), NO_FLUSH_EPOCH (nor does a flush), CLEAR_FIRST (a read clears the mark
 * before it asks K), CLEAR_BESIDE (it clears it beside a write that goes through), MARK_LATE (a
 * write that goes through marks at its end), ADD_MARKED (a mark does not keep a write from U), IN_HAND (a flush takes U before K has it), FLUSH_CLEAR (a flush
 * with the mark forgets it), TAKE_FLUSHING (a read takes U from FLUSHING), WRITE_FLUSHING (a write goes
 * through to K beside a flush), ADD_APART (the state is looked at in a step before the addition),
 * POLL_ANY (a poll is counted with U > 0), POLL_APART (it looks at U in a step before), POLL_UNSEEN (a
 * write does not look at polls), KERNEL_EMPTY (a read that found nothing does not ask K again where
 * the object has become the kernel's), NO_AGAIN (EDGES: nor where EPOCH has moved), K_ALONE (EDGES: a
 * read that found nothing in K does not take U), SUM (FULL: a read adds up more than one object may hold).
 * With ADOPT: NO_COUNT (writers to a COLD object are not counted), COUNT_LATE (they look whether it is
 * COLD in a step before, and not again), UNMARKED (adoption leaves the mark off), NO_ADOPT_EPOCH (it
 * does not move EPOCH), OVER_LATE (a read loads over after it has asked K), COLD_POLL (a sleeper is not
 * counted at a COLD object).
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
#ifndef SLEEPERS
#define SLEEPERS 0
#endif
#ifndef FLUSHES
#define FLUSHES 1
#endif

#define KERNEL 0
#define CACHED 1
#define FLUSHING 2
#define COLD 3

/* The word. */
byte epoch, through, polls, u;
#ifdef ADOPT
byte st = COLD;
bit mark = 1;
#else
byte st = CACHED;
bit mark;
#endif
/* Beside it. */
byte begun, over;
/* The kernel's. */
byte k;
#ifdef FULL
#define LIMIT 4
#define MAX 2
#else
#define LIMIT 100
#define MAX 100
#endif

/* Ghosts: given by writes, by writes that have returned; taken out of U and K; read. */
byte given, returned, taken, sum;
byte asleep, ended;

#define PREFIX(x) (!((x) & 2) || ((x) & 1))
#define ALL_TAKEN (!(before & (7 - taken)))

#define RIGHT ( \
	(st != CACHED || !k || mark) && \
	(!mark || !u || st == KERNEL) && \
	(!polls || !u || st == KERNEL) && \
	(!through || mark || st == KERNEL) && \
	(st != KERNEL || !u) && \
	(st != COLD || (!u && mark)) && \
	(st != FLUSHING || (!mark && !through && !polls)))

/* Can take a step in a state that is wrong only. */
proctype invariants()
{
end:
	atomic { !RIGHT -> assert(false) }
}

/* Where a flush leads to. */
#define LEAVES 0
#define MARKED 1
#define COOLS 2

inline flush(f)
{
	do
	:: st == KERNEL -> break
	:: atomic { st == COLD ->
		if
		:: f == LEAVES -> st = KERNEL
		:: else
		fi
	   }
		break
	:: st == FLUSHING -> (st != FLUSHING)
	:: atomic { st == CACHED && !u ->
		if
		:: f == LEAVES -> st = KERNEL
		:: f == MARKED -> mark = 1
		:: f == COOLS -> mark = 1; st = COLD
		fi
	   }
		break
#ifdef BROKEN_IN_HAND
	:: atomic { st == CACHED && u -> st = FLUSHING; h = u; u = 0 };
		atomic { k = k + h; h = 0 };
#else
	:: atomic { st == CACHED && u -> st = FLUSHING };
		atomic { assert(k + u <= LIMIT); k = k + u };
#endif
		atomic {
			u = 0;
#ifndef BROKEN_NO_FLUSH_EPOCH
			epoch++;
#endif
			if
			:: f == MARKED -> st = CACHED;
#ifndef BROKEN_FLUSH_CLEAR
				mark = 1
#endif
			:: f == COOLS -> st = COLD; mark = 1
			:: f == LEAVES -> st = KERNEL
			fi
		}
		break
	od
}

inline kernel_write()
{
	atomic {
		if
		:: k + v <= LIMIT -> k = k + v; given = given + v; done = 1
		:: else -> done = 0
		fi
	}
}

proctype writer(byte v; byte n)
{
	bit done;
#ifdef BROKEN_IN_HAND
	byte h;
#endif

again:
	if
	:: st == KERNEL -> kernel_write()
	:: st == COLD ->
#ifndef BROKEN_NO_COUNT
		begun++;
#endif
#ifndef BROKEN_COUNT_LATE
		if
		:: st != COLD ->
#ifndef BROKEN_NO_COUNT
			over++;
#endif
			goto again
		:: st == COLD
		fi;
#endif
		kernel_write();
#ifndef BROKEN_NO_COUNT
		over++;
#endif
		/* It is hot, or not. */
		if
		:: true
		:: atomic { st == COLD -> st = CACHED;
#ifndef BROKEN_NO_ADOPT_EPOCH
			epoch++;
#endif
#ifdef BROKEN_UNMARKED
			mark = 0
#endif
		   }
		fi
#ifdef BROKEN_WRITE_FLUSHING
	:: atomic { st == FLUSHING -> through++ };
		kernel_write();
		atomic { through--; epoch++ }
#else
	:: st == FLUSHING -> (st != FLUSHING); goto again
#endif
#if defined(BROKEN_ADD_APART)
	:: st == CACHED && !polls && !mark -> atomic { u = u + v; given = given + v; done = 1 }
#else
#if defined(BROKEN_POLL_UNSEEN)
	:: atomic { st == CACHED && !mark && u + v <= MAX ->
#elif defined(BROKEN_ADD_MARKED)
	:: atomic { st == CACHED && !polls && u + v <= MAX ->
#else
	:: atomic { st == CACHED && !polls && !mark && u + v <= MAX ->
#endif
		u = u + v;
		given = given + v;
		done = 1
	   }
#endif
	:: st == CACHED && u -> flush(MARKED); goto again
	:: atomic { st == CACHED && !u ->
#ifndef BROKEN_MARK_LATE
		mark = 1;
#endif
#ifndef BROKEN_NO_THROUGH
		through++
#endif
	   };
		kernel_write();
		atomic {
#ifndef BROKEN_NO_THROUGH
			through--;
#endif
#ifdef BROKEN_MARK_LATE
			mark = 1;
#endif
#ifndef BROKEN_NO_EPOCH
			epoch++
#endif
		}
	fi;
	atomic {
		if
		:: done -> returned = returned + v
		:: else
		fi;
		done = 0;
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
/* What another read holds counts as read: it may be told to have come before. */
#ifdef FULL
#define HEARD sum = sum + r; assert(r <= LIMIT)
#else
#define HEARD sum = sum + r; assert(PREFIX(taken))
#endif
#ifdef BROKEN_SUM
#define FITS true
#else
#define FITS (r + u <= LIMIT)
#endif
#if defined(BROKEN_NO_AGAIN)
#define MOVED false
#else
#define MOVED (epoch != e)
#endif

proctype reader()
{
	byte n = READS, r, before, e, o;
	bit none;

next:
	before = returned;
again:
	if
	:: st == KERNEL || st == COLD -> READ_K; atomic { HEARD }
#ifdef BROKEN_TAKE_FLUSHING
	:: atomic { st == FLUSHING -> r = r + u; taken = taken + u; u = 0; HEARD }
#else
	:: st == FLUSHING -> (st != FLUSHING); goto again
#endif
#ifndef EDGES
	:: atomic { st == CACHED && u -> r = u; taken = taken + u; u = 0; HEARD }
	:: atomic { st == CACHED && !u ->
#else
	:: atomic { st == CACHED ->
#endif
#ifdef BROKEN_CLEAR_FIRST
		mark = (mark && through);
#endif
		e = epoch
	   };
#ifdef BROKEN_OVER_LATE
		READ_K;
		o = over;
#else
		o = over;
		READ_K;
#endif
		none = (begun == o);
		if
#ifdef BROKEN_KERNEL_EMPTY
		:: atomic { st == KERNEL || st == COLD -> HEARD }
#else
		:: atomic { (st == KERNEL || st == COLD) && r -> HEARD }
		:: atomic { (st == KERNEL || st == COLD) && !r -> e = 0; o = 0; none = 0 }; goto again
#endif
		:: atomic { st == FLUSHING && r -> HEARD }
		:: atomic { st == FLUSHING && !r -> e = 0; o = 0; none = 0 }; goto again
		:: atomic { st == CACHED && !r && !u && MOVED -> e = 0; o = 0; none = 0 }; goto again
		:: atomic { st == CACHED && (r || u || !MOVED) ->
			if
#if defined(BROKEN_CLEAR_FIRST)
			:: false
#elif defined(BROKEN_CLEAR_BESIDE)
			:: epoch == e -> mark = 0
#else
			:: epoch == e && !through && none -> mark = 0
#endif
			:: else
			fi;
			if
#ifdef BROKEN_K_ALONE
			:: false
#else
			:: FITS -> r = r + u; taken = taken + u; u = 0
#endif
			:: else
			fi;
			HEARD
		   }
		fi
	fi;
	d_step {
#ifdef FULL
		assert(r || ALL_TAKEN);
#else
		assert(ALL_TAKEN);
#endif
		r = 0;
		e = 0;
		o = 0;
		none = 0;
		before = 0;
		n--
	}
	if
	:: n > 0 -> goto next
	:: else
	fi;
	ended++
}

proctype sleeper()
{
	byte before;
	bit timed, counted;

	if
	:: timed = 1
	:: true
	fi;
	before = returned;
#ifdef BROKEN_POLL_APART
	if
	:: u -> goto timed_out
	:: else
	fi;
	atomic { polls++; counted = 1 };
#else
	if
#ifndef BROKEN_POLL_ANY
	:: u -> goto timed_out
#ifdef BROKEN_COLD_POLL
	:: atomic { st != KERNEL && st != COLD && !u -> polls++; counted = 1 }
	:: st == COLD
#else
	:: atomic { st != KERNEL && !u -> polls++; counted = 1 }
#endif
#else
	:: atomic { st != KERNEL -> polls++; counted = 1 }
#endif
	:: st == KERNEL
	fi;
#endif
	asleep++;
end:
	if
	:: atomic { k -> asleep-- }
	:: atomic { !k && timed -> asleep--; assert(ALL_TAKEN) }
	fi;
	d_step {
		polls = polls - counted;
		counted = 0
	}
timed_out:
	ended++
}

proctype flusher()
{
	byte n = FLUSHES;
#ifdef BROKEN_IN_HAND
	byte h;
#endif

	do
	:: n == 0 -> break
	:: n > 0 ->
		n--;
		if
		:: true
		:: flush(LEAVES)
		:: flush(MARKED)
#ifdef ADOPT
		:: flush(COOLS)
#endif
		fi
	od;
	ended++
}

init {
	byte i;

	atomic {
		run invariants();
		run writer(1, WRITES);
		run writer(4, 1);
		do
		:: i < READERS -> run reader(); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < SLEEPERS -> run sleeper(); i++
		:: else -> break
		od;
		run flusher();
		i = 0
	}
	/* True when nobody else can take a step. */
	timeout ->
	assert(ended + asleep == 3 + READERS + SLEEPERS);
	assert(sum == taken && sum + u + k == given);
	assert(!asleep || u + k == 0);
	assert(!through && polls <= asleep)
}
