/* SPDX-License-Identifier: MIT */
/*
 * One cached eventfd in one epoll: what is given is reported, and once, while the object is adopted
 * and written back beside waits that sleep and looks that do not.
 *
 * Mirrors: docs/cache.md, "Waiting". (No code yet.) The word as in cache_count.pml, without polls; the
 * kernel's object and its epoll (a write queues the object and wakes a sleeper; whoever takes from the
 * list asks the object again; what is level-triggered goes back to the list and the next sleeper is
 * woken; the doorbell is edge-triggered and never read); WRITERS that write WRITES times; WAITERS
 * that wait WAITS times each and sleep, and read after a report, or not (MUST_READ: always); LOOKS
 * looks; FLUSHES write-backs; ADOPTIONS adoptions. STRANGER: the first writer may write by
 * instructions of its own, whom nobody sees. TIMES: the last wait of each may end by its time. EDGES:
 * the registration is edge-triggered; a read asks K each time.
 *
 * Checked:
 *  - when nobody can move, nobody sleeps beside a count (EDGES: beside a count with a write that no
 *    report and no read followed; with MUST_READ and one who waits: beside any);
 *  - a look that finds nothing, and a wait whose time is over: what writes have given that had
 *    returned before has been read (EDGES, without waiters: has been reported);
 *  - one look does not report the object twice;
 *  - EDGES: a report that follows no write is one of those allowed: one for each adoption and each
 *    write-back, one for a cold write across an adoption, one for what STRANGER writes, and one where
 *    an event had to wait as the kernel reported the same data. With MERGE none for the last: the data
 *    is of this registration alone, and both events become one.
 *
 * Memory: barriers are the order of steps here; cache_ring.pml has the store buffers.
 *
 * Broken variants: KERNEL_FIRST (a look asks the kernel, then the list), IN_HAND (a write-back takes U
 * before K has it), NO_RECHECK (a wait does not look at the list after it has announced itself),
 * NO_SECOND (nor at U after an item was taken off), READ_U (EDGES: a read may take U alone), TWICE (an event is not kept back), SWALLOW (a look
 * that takes the doorbell's event does nothing more), NO_LAST_LOOK (TIMES: a wait whose time is over
 * does not look), LIST_ALONE (TIMES: it looks at the list alone), TAKEN_LATE (EDGES: the item is taken
 * off the list after U has been looked at).
 */
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef WRITES
#define WRITES 1
#endif
/* Of the first. */
#ifndef FIRST
#define FIRST WRITES
#endif
#ifndef WAITERS
#define WAITERS 1
#endif
#ifndef WAITS
#define WAITS 1
#endif
#ifndef LOOKS
#define LOOKS 1
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

/* The word. */
byte st, gen, u;
bit mark, busy;
/* The kernel's: the count; the object and the doorbell on its list; who sleeps. */
byte k;
bit ready, door;
bit asleep[2];
/* Our list, the doorbell's flag. */
bit queued, rung;
byte sleepers;

/* Ghosts. */
byte count, returned, taken, reports, allowed;
byte adoptions, ended;
/* EDGES: a write, one that has returned, has been followed by no report and no read that left 0. */
bit fresh, owed;

#ifdef EDGES
#define is_edge true
#else
#define is_edge false
#endif

inline wake()
{
	if
	:: asleep[0] -> asleep[0] = 0
	:: asleep[1] -> asleep[1] = 0
	:: else
	fi
}

/* Both in one step with what they are about. */
#define WRITTEN(n) count = count + (n); fresh = is_edge; at = reports
#define REPORT \
	reports++; \
	if \
	:: is_edge && !fresh -> assert(allowed > 0); allowed-- \
	:: else -> fresh = 0 \
	fi; \
	owed = 0
#define WAS_READ(n) \
	taken = taken + (n); \
	count = count - (n); \
	if \
	:: !count -> fresh = 0; owed = 0; reports = reports + is_edge \
	:: else \
	fi

#define KERNEL_WRITE(n) k = k + (n); ready = 1; wake()

inline ring()
{
	if
	:: sleepers ->
		if
		:: atomic { !rung -> rung = 1 };
			d_step { door = 1; wake() }
		:: rung
		fi
	:: else
	fi
}

inline tell()
{
	d_step {
		if
		:: st != KERNEL -> mark = 1
		:: else
		fi
	}
}

proctype writer(bit stranger)
{
	byte n = (stranger -> FIRST : WRITES), at, g;

again:
	if
#ifdef STRANGER
	:: atomic { stranger -> KERNEL_WRITE(1); WRITTEN(1); allowed++ }
#endif
	:: atomic { st == KERNEL -> g = gen };
		if
		:: atomic { st == KERNEL && adoptions < ADOPTIONS ->
			st = CACHED;
			mark = 1;
			gen++;
			adoptions++;
			allowed++
		   };
			goto again
		:: d_step { KERNEL_WRITE(1); WRITTEN(1) };
			d_step {
				if
				:: st != KERNEL || gen != g -> allowed++
				:: else
				fi
			}
			tell()
		fi
	:: atomic { st == CACHED -> u++; WRITTEN(1) };
		queued = 1;
		ring()
	:: st == FLUSHING ->
		d_step { KERNEL_WRITE(1); WRITTEN(1) };
		tell()
	fi;
	d_step {
		returned++;
		if
		:: is_edge && reports == at -> owed = 1
		:: else
		fi;
		at = 0;
		g = 0;
		n--
	}
	if
	:: n > 0 -> goto again
	:: else
	fi;
	ended++
}

/* c: the list has something; level-triggered items stay on it. */
inline collect()
{
	c = 0;
	if
	:: !queued
#ifdef EDGES
#ifdef BROKEN_TAKEN_LATE
	:: queued ->
		d_step {
			if
			:: u -> c = 1; REPORT
			:: else
			fi
		};
		queued = 0
#else
	:: atomic { queued -> queued = 0 };
		d_step {
			if
			:: u -> c = 1; REPORT
			:: else
			fi
		}
#endif
#else
	:: atomic { queued && u -> c = 1 }
	:: queued && !u ->
		queued = 0;
#ifndef BROKEN_NO_SECOND
		if
		:: u -> queued = 1; c = 1
		:: else
		fi
#endif
#endif
	fi
}

/* What the kernel's list holds: e the object, b the doorbell. In one step. */
inline take_kernel()
{
	e = 0;
	b = 0;
	if
	:: ready && k ->
		e = 1;
		ready = !is_edge
	:: ready && !k -> ready = 0
	:: else
	fi;
	if
	:: e && is_edge && !c -> REPORT
	/* What has been written to U since is on the list, too. */
	:: e && is_edge && c ->
		reports++;
		fresh = 0;
		owed = 0;
		allowed = allowed + (queued && u)
	:: else
	fi;
	if
	:: door -> door = 0; b = 1
	:: else
	fi;
	if
	:: ready -> wake()
	:: else
	fi
}

inline hand_on()
{
	if
	:: queued && sleepers -> ring()
	:: else
	fi
}

/* Both sides, without a sleep; c: something was reported. */
inline whole_look()
{
#ifdef BROKEN_KERNEL_FIRST
	d_step { c = 0; take_kernel() };
	collect();
#else
	collect();
	d_step { take_kernel() };
#endif
#ifndef BROKEN_SWALLOW
	if
	:: b ->
		rung = 0;
		if
		:: !c && !e -> collect()
		:: else
		fi
	:: else
	fi;
#endif
	/* The same data twice: ours waits, or both are one. */
	d_step {
		if
		:: c && e ->
#ifdef BROKEN_TWICE
			assert(false)
#else
#ifndef MERGE
			queued = 1;
			allowed = allowed + is_edge
#endif
#endif
		:: else
		fi
	}
#ifndef BROKEN_SWALLOW
	hand_on();
#endif
	c = c || e
}

inline read_it()
{
	g = 0;
again_read:
	if
	:: atomic { st == KERNEL -> g = gen };
		atomic { WAS_READ(k); k = 0 };
		if
		:: gen != g -> goto again_read
		:: gen == g
		fi
	:: st == FLUSHING -> (st != FLUSHING); goto again_read
#if !defined(EDGES) || defined(BROKEN_READ_U)
	:: atomic { st == CACHED && !busy && !mark && u -> WAS_READ(u); u = 0 }
	:: atomic { st == CACHED && !busy && (mark || !u) -> busy = 1; mark = 0 };
#else
	:: atomic { st == CACHED && !busy -> busy = 1; mark = 0 };
#endif
more_read:
		atomic { WAS_READ(k); k = 0 };
		if
		:: atomic { st == CACHED && mark -> mark = 0 }; goto more_read
		:: atomic { st == CACHED && !mark -> WAS_READ(u); u = 0; busy = 0 }
		fi
	fi;
	d_step { g = 0 }
}

proctype waiter(bit me)
{
	byte n = WAITS, g, before;
	bit c, e, b;

again:
	sleepers++;
#ifndef BROKEN_NO_RECHECK
	if
	:: queued -> sleepers--; goto list
	:: else
	fi;
#endif
park:
	if
	:: atomic { ready || door -> take_kernel() }
	:: atomic { !ready && !door -> asleep[me] = 1 };
endp:		if
		:: !asleep[me] -> goto park
#ifdef TIMES
		:: atomic { asleep[me] && n == 1 -> asleep[me] = 0; before = returned };
			sleepers--;
#ifndef BROKEN_NO_LAST_LOOK
#ifdef BROKEN_LIST_ALONE
			collect();
#else
			whole_look();
#endif
#endif
			d_step { assert(is_edge || c || taken >= before); before = 0 };
			goto got
#endif
		fi
	fi;
	if
	:: !e && !b -> goto park
	:: else
	fi;
	sleepers--;
	if
	:: b -> rung = 0
	:: else
	fi;
	if
	:: e -> hand_on(); goto got
	:: else
	fi;
list:
	collect();
	hand_on();
	if
	:: !c -> d_step { b = 0; e = 0 }; goto again
	:: else
	fi;
got:	skip;
	d_step { c = 0; e = 0; b = 0 };
	if
	:: true -> read_it()
#ifndef MUST_READ
	:: true
#endif
	fi;
	n--;
	if
	:: n > 0 -> goto again
	:: else
	fi;
	ended++
}

proctype looker()
{
	byte n = LOOKS, before;
	bit c, e, b, still;

	do
	:: n == 0 -> break
	:: n > 0 ->
		d_step { before = returned; still = owed };
		whole_look();
		d_step {
			assert(is_edge || c || taken >= before);
			assert(WAITERS > 0 || c || !still);
			c = 0;
			e = 0;
			b = 0;
			before = 0;
			still = 0;
			n--
		}
	od;
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
#ifdef BROKEN_IN_HAND
		:: atomic { st == CACHED && !busy -> st = FLUSHING; allowed++; h = u; u = 0 };
			d_step {
				if
				:: h -> KERNEL_WRITE(h); h = 0
				:: else
				fi
			};
#else
		:: atomic { st == CACHED && !busy -> st = FLUSHING; allowed++ };
			d_step {
				if
				:: u -> KERNEL_WRITE(u)
				:: else
				fi
			};
#endif
			d_step { u = 0; mark = 0; st = KERNEL }
		fi
	od;
	ended++
}

init {
	byte i;
	bit c, e, b;

	atomic {
		do
		:: i < WRITERS -> run writer(i == 0); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < WAITERS -> run waiter(i); i++
		:: else -> break
		od;
		run looker();
		run flusher();
		i = 0
	}
	/* True when nobody else can take a step. */
	timeout ->
	assert(ended + asleep[0] + asleep[1] == WRITERS + WAITERS + 2);
	assert(count == u + k);
	assert(!(asleep[0] || asleep[1]) || !count || (is_edge && !fresh));
#ifdef MUST_READ
	assert(WAITERS > 1 || !asleep[0] || !count);
#endif
#ifdef EDGES
	if
	:: WAITERS == 0 && fresh && count ->
		whole_look();
		assert(c)
	:: else
	fi
#endif
}
