/* SPDX-License-Identifier: MIT */
/*
 * The count of an eventfd that is cached, U in user space and K in the kernel: a mark says that K may
 * hold something, and then nothing is added to U. A read takes it away again. With ADOPT it begins COLD,
 * and any write may make it CACHED, and add what K held to U.
 *
 * Mirrors: src/cache/eventfd.c, flush.c and adopt.c. One eventfd; a thread that writes WRITES times,
 * 1, 2 ..., a second writer of 4, with THIRD a third one of 8, READERS that read READS times each, SLEEPERS in poll, of whom each may
 * be one whose time ends, FLUSHES flushes, each with the mark, for good or, with ADOPT, back to COLD. Any
 * write may be too much for U: it flushes with the mark if U > 0, and goes through to K. EDGES: the
 * registration is edge-triggered, and a read asks K each time. FULL: K holds up to 4, U up to 2.
 *
 * The word {state, mark, through, polls, EPOCH, U} changes in single steps, as by compare-and-swap; one
 * that fails begins again. A system call is one step. A read of an object without the mark that asks K
 * compares what the word had before, by EPOCH alone.
 *
 * BUSY is of one thread, which moves the count; others wait for it. An adoption waits, as long as it
 * likes, for writes to K to be over. A read that finds the mark takes it away only if none is under way.
 * COLD has the mark. Its writers are counted in begun and over, each in a step of its own. A read of a COLD
 * object that has found nothing looks at the word again.
 *
 * Checked:
 *  - in every state: what K holds is marked, and what is marked holds no U; nor does an
 *    object with a poll or a write that goes through, or one that is the kernel's;
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
 * Broken variants: NO_THROUGH (who goes through is not counted), NO_FLUSH_EPOCH (the end of a flush
 * does not move EPOCH), CLEAR_FIRST (a read clears the mark before it asks K), CLEAR_BESIDE (it clears it
 * beside a write that goes through), MARK_SHARED (it is not BUSY meanwhile), OVER_AFTER (it
 * asks K before it looks for such writes), MARK_LATE (a
 * write that goes through marks at its end), ADD_MARKED (a mark does not keep a write from U), FLUSH_CLEAR (a flush
 * with the mark forgets it), TAKE_BUSY (a read takes U from BUSY), WRITE_BUSY (a write goes
 * through to K beside a flush), ADD_APART (the state is looked at in a step before the addition),
 * POLL_ANY (a poll is counted with U > 0), POLL_APART (it looks at U in a step before), POLL_UNSEEN (a
 * write does not look at polls), KERNEL_EMPTY (a read that found nothing does not ask K again where
 * the object has become the kernel's), NO_AGAIN (EDGES: nor where EPOCH has moved), K_ALONE (EDGES: a
 * read that found nothing in K does not take U), SUM (FULL: a read adds up more than one object may hold).
 * With ADOPT: NO_COUNT (writers to a COLD object are not counted), COUNT_LATE (they look whether it is
 * COLD in a step before, and not again), NO_DRAIN (an adoption does not wait for them), OVER_LATE (it
 * loads over after begun), COLD_POLL (a sleeper is not counted at a COLD object), ADOPT_POLLS (nor looked
 * for by an adoption), POLL_BUSY (a sleeper does not wait for BUSY), COLD_ONCE (a read of a COLD object
 * does not look at the word again), COLD_STATE (it looks whether it is COLD, not at EPOCH).
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
#define BUSY 2
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
#define ALL_TAKEN (!(before & (15 - taken)))

#define RIGHT ( \
	(st != CACHED || !k || mark) && \
	(!mark || !u || st == KERNEL || st == BUSY) && \
	(!polls || !u || st == KERNEL || st == BUSY) && \
	(!through || mark || st == KERNEL || st == BUSY) && \
	(st != KERNEL || !u) && \
	(st != COLD || (!u && mark)))

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
	:: st == BUSY -> (st != BUSY)
	:: atomic { st == CACHED && !u ->
		if
		:: f == LEAVES -> st = KERNEL
		:: f == MARKED -> mark = 1
		:: f == COOLS -> mark = 1; st = COLD
		fi
	   }
		break
	:: atomic { st == CACHED && u -> st = BUSY };
		atomic { assert(k + u <= LIMIT); k = k + u };
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

/* BUSY: whether nobody is in a write to K. Who looks later has waited. */
inline drain(is)
{
#ifdef BROKEN_OVER_LATE
	o = begun;
	atomic { is = (over == o && !through); o = 0 }
#else
	o = over;
	atomic { is = (begun == o && !through); o = 0 }
#endif
}

inline adopt()
{
#ifdef BROKEN_NO_DRAIN
	done = 1;
#else
	drain(done);
#endif
	if
	:: atomic { !done -> st = COLD; epoch++ }
	:: done ->
		atomic { u = v; given = given + v };
		atomic { h = k; k = 0 };
		if
		:: atomic { h + v <= MAX ->
			u = h + v;
			h = 0;
			epoch++;
			mark = 0;
			st = CACHED
		   }
		:: atomic { h + v > MAX ->
			if
			:: k + h + v <= LIMIT -> k = k + h + v
			:: else -> k = k + h; given = given - v; done = 0
			fi;
			h = 0
		   };
			atomic { u = 0; epoch++; st = COLD };
			goto written
		fi
	fi
}

proctype writer(byte v; byte n)
{
	bit done;
#ifdef ADOPT
	byte h, o;
	bit tried;
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
		over++
#endif
#ifdef ADOPT
#ifdef BROKEN_ADOPT_POLLS
	:: atomic { st == COLD && !tried -> st = BUSY; tried = 1 };
#else
	:: atomic { st == COLD && !polls && !tried -> st = BUSY; tried = 1 };
#endif
		adopt();
		if
		:: done -> goto written
		:: else -> goto again
		fi
#endif
#ifdef BROKEN_WRITE_BUSY
	:: atomic { st == BUSY -> through++ };
		kernel_write();
		through--
#else
	:: st == BUSY -> (st != BUSY); goto again
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
			skip
		}
	fi;
written:
	atomic {
		if
		:: done -> returned = returned + v
		:: else
		fi;
		done = 0;
#ifdef ADOPT
		tried = 0;
#endif
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
	byte n = READS, r, before, e;
	bit alone;

next:
	before = returned;
again:
	if
	:: st == KERNEL -> READ_K; atomic { HEARD }
	:: atomic { st == COLD -> e = epoch };
		READ_K;
		if
		:: atomic { r -> HEARD; e = 0 }
#if defined(BROKEN_COLD_ONCE)
		:: atomic { !r -> HEARD; e = 0 }
#elif defined(BROKEN_COLD_STATE)
		:: atomic { !r && (st == COLD || st == KERNEL) -> HEARD; e = 0 }
		:: atomic { !r && st != COLD && st != KERNEL -> e = 0 }; goto again
#else
		:: atomic { !r && !MOVED && st != BUSY -> HEARD; e = 0 }
		:: atomic { !r && (MOVED || st == BUSY) -> e = 0 }; goto again
#endif
		fi
#ifdef BROKEN_TAKE_BUSY
	:: atomic { st == BUSY && u -> r = r + u; taken = taken + u; u = 0; HEARD }
#endif
	:: st == BUSY -> (st != BUSY); goto again
#ifdef BROKEN_MARK_SHARED
	:: atomic { st == CACHED && mark -> e = epoch };
		READ_K;
		atomic {
			if
			:: st == CACHED && epoch == e && !through -> mark = 0
			:: else
			fi;
			e = 0;
			HEARD
		}
#else
	:: atomic { st == CACHED && mark -> st = BUSY };
#if defined(BROKEN_CLEAR_BESIDE)
		alone = 1;
#elif !defined(BROKEN_OVER_AFTER)
		alone = !through;
#endif
#ifdef BROKEN_CLEAR_FIRST
		atomic { st = CACHED; mark = !alone; epoch++ };
		READ_K;
		atomic { HEARD; alone = 0 }
#else
		READ_K;
#ifdef BROKEN_OVER_AFTER
		alone = !through;
#endif
		atomic { st = CACHED; mark = !alone; epoch++; HEARD; alone = 0 }
#endif
#endif
#ifndef EDGES
	:: atomic { st == CACHED && u -> r = u; taken = taken + u; u = 0; HEARD }
	:: atomic { st == CACHED && !u && !mark -> e = epoch };
#else
	:: atomic { st == CACHED && !mark -> e = epoch };
#endif
		READ_K;
		if
#ifdef BROKEN_KERNEL_EMPTY
		:: atomic { st == KERNEL || st == COLD -> HEARD }
#else
		:: atomic { (st == KERNEL || st == COLD) && r -> HEARD }
		:: atomic { (st == KERNEL || st == COLD) && !r -> e = 0 }; goto again
#endif
		:: atomic { st == BUSY && r -> HEARD }
		:: atomic { st == BUSY && !r -> e = 0 }; goto again
		:: atomic { st == CACHED && !r && !u && MOVED -> e = 0 }; goto again
		:: atomic { st == CACHED && (r || u || !MOVED) ->
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
#ifdef BROKEN_POLL_BUSY
#define COUNTS (st != KERNEL)
#else
#define COUNTS (st == CACHED || st == COLD)
#endif
#ifndef BROKEN_POLL_ANY
	:: u -> goto timed_out
#ifdef BROKEN_COLD_POLL
	:: atomic { COUNTS && st != COLD && !u -> polls++; counted = 1 }
	:: st == COLD
#else
	:: atomic { COUNTS && !u -> polls++; counted = 1 }
#endif
#else
	:: atomic { COUNTS -> polls++; counted = 1 }
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
#ifdef THIRD
		run writer(8, 1);
#endif
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
	#ifdef THIRD
	ended--;
#endif
	assert(ended + asleep == 3 + READERS + SLEEPERS);
	assert(sum == taken && sum + u + k == given);
	assert(!asleep || u + k == 0);
	assert(!through && polls <= asleep)
}
