/* SPDX-License-Identifier: MIT */
/*
 * One eventfd, cached from its creation or, with ADOPT, by a write, in one epoll: what is given is reported, and once, while it is
 * flushed beside waits that sleep and looks that do not, in either order of the two sides.
 *
 * Mirrors: src/cache/eventfd.c; beside_move, beside_ctl and merge_events in src/cache/wait.c. The word as in cache_through.pml,
 * without polls; the kernel's object and its epoll as in cache_wait.pml; the doorbell, which is rung
 * for each push beside a sleeper (cache_ring.pml has the rule that rings less). WRITERS that write
 * WRITES times, each write perhaps too much for U; WAITERS that wait WAITS times each and sleep, and
 * read after a report, or not (MUST_READ: always); READS reads of one more, who with AFTER_READ looks
 * after each; LOOKS looks; FLUSHES flushes, with the mark or for good. STRANGER: the first writer may write past us, and a read that
 * finds it out flushes. EDGES: the registration is edge-triggered, and a read asks K if a wait has
 * taken an event of the kernel's since K was asked last.
 *
 * A move is a flush, a step to the kernel without U, a write that goes through, a read that takes
 * the mark away, and an adoption; it is counted when it begins and when it is over. Beside an adoption a
 * look that has found nothing begins anew. A look asks our list, then the kernel; or
 * the kernel, then our list, and if both had nothing beside a move, the kernel once more. Beside a move
 * what both report becomes one event. BACK: an edge of ours is put back on the list instead. CTLS: the
 * object is modified so often, with new data, in the kernel and then here; with DEL it is taken out
 * before. That is counted when it begins and when it is over. Beside it, and a move, ours is left.
 *
 * Checked:
 *  - when nobody can move, nobody sleeps beside a count (EDGES: beside a count with a write that no
 *    report and no read followed; with MUST_READ and one who waits: beside any);
 *  - a look that finds nothing: what writes have given that had returned before has been read (EDGES,
 *    without reads: has been reported);
 *  - a look that finds the object after a read (AFTER_READ): there was a count while it looked;
 *  - both sides report the object beside a move only, and with the same data.
 *
 * Memory: barriers are the order of steps here; cache_ring.pml has the store buffers.
 *
 * Broken variants: OURS_TAKEN (what ours has after the kernel is not left), OURS_TOLD (nor what it had
 * before), CTL_BEGUN_LATE (counted after the kernel has been called), CTL_OVER_EARLY (before the engine
 * has), KERNEL_FIRST (a look that asked the kernel first does not ask it again), IN_HAND (a
 * flush takes U before K has it), BEGUN_LATE (a flush is counted after it has written), OVER_EARLY (it
 * is over before U is 0), LEAVE_UNCOUNTED, THROUGH_UNCOUNTED, READ_UNCOUNTED, ADOPT_UNCOUNTED (such moves are not
 * counted, or not as adoptions), NO_RECHECK (a wait does not look at the list after it has announced itself), NO_SECOND (nor
 * at U after an item was taken off), NO_PUSH (EDGES: an addition to a U above 0 does not push),
 * TAKEN_LATE (EDGES: the item is taken off the list after U has been looked at), and with EDGES and
 * STRANGER: READ_U (a read takes U alone), HEARD_LATE (a wait counts the kernel's event when it has
 * given it to the program), ASKED_LATE (a read notes what has been counted after it has asked K), and
 * with AFTER_READ: NOT_AWAITED (a read that has met a flush does not wait for its end).
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
#ifndef READS
#define READS 0
#endif
#ifndef FLUSHES
#define FLUSHES 1
#endif
#ifndef CTLS
#define CTLS 0
#endif

#define KERNEL 0
#define CACHED 1
#define BUSY 2
#define COLD 3

/* The word. */
byte epoch, through, u;
#ifdef ADOPT
byte st = COLD;
bit mark = 1;
#else
byte st = CACHED;
bit mark;
#endif
/* Beside it: writes to a COLD object. */
byte begun, over;
/* The kernel's: the count; the object and the doorbell on its list; who sleeps. */
byte k;
bit ready, door;
bit asleep[2];
/* Our list. */
bit queued;
byte sleepers;
/* The data of the registration on either side, 0: none; the calls under way. The list's mutex. */
byte kreg = 1, ureg = 1, ctls;
bit mtx;
/* Of a look: the data that it has from either side; there has been such a call beside it. */
byte kdata, udata;
bit changed;
/* It has been taken out. */
bit gone;
/* Events of the kernel's that waits have taken; how many of them when K was asked last. */
byte heard = 1, asked;

/* Ghosts. */
byte count, returned, taken, reports;
byte ended;
/* EDGES: a write, one that has returned, has been followed by no report and no read that left 0. */
bit fresh, owed;
/* AFTER_READ: there has been a count since the look began. */
bit some;
/* Moves under way; whether one has begun since the look has, or before it and was not over: what the
 * counts of moves begun and over tell. */
byte moves;
bit looking, moved;
/* The same of adoptions. */
byte adopting;
bit adopted;

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
#ifdef AFTER_READ
#define SOME(x) some = some || (looking && (x))
#else
#define SOME(x) skip
#endif
#define WRITTEN(n) count = count + (n); SOME(true); fresh = is_edge; at = reports
#define REPORT reports = reports + is_edge; fresh = 0; owed = 0
#define WAS_READ(n) \
	taken = taken + (n); \
	count = count - (n); \
	if \
	:: !count -> fresh = 0; owed = 0; reports = reports + is_edge \
	:: else \
	fi

#define KERNEL_WRITE(n) \
	k = k + (n); \
	if \
	:: kreg -> ready = 1; wake() \
	:: else \
	fi

inline ring()
{
	d_step {
		if
		:: sleepers -> door = 1; wake()
		:: else
		fi
	}
}

#define BEGIN d_step { moves++; moved = looking }
#ifdef BROKEN_LEAVE_UNCOUNTED
#define COUNT_LEAVE(x) skip
#else
#define COUNT_LEAVE(x) x
#endif
#ifdef BROKEN_THROUGH_UNCOUNTED
#define COUNT_THROUGH(x) skip
#else
#define COUNT_THROUGH(x) x
#endif
#ifdef BROKEN_READ_UNCOUNTED
#define COUNT_READ(x) skip
#else
#define COUNT_READ(x) x
#endif

/* f: with the mark. */
inline flush(f)
{
	do
	:: st == KERNEL -> break
	:: st == BUSY -> (st != BUSY)
	:: f && st == COLD -> break
	:: atomic { !f && st == COLD -> st = KERNEL; mark = 0 };
		break
	:: atomic { f == 1 && st == CACHED && !u -> mark = 1 };
		break
	:: f == 2 && st == CACHED && !u ->
		COUNT_LEAVE(BEGIN);
		if
		:: atomic { st == CACHED && !u -> mark = 1; st = COLD };
			COUNT_LEAVE(moves--);
			break
		:: st != CACHED || u -> COUNT_LEAVE(moves--)
		fi
	:: !f && st == CACHED && !u ->
		COUNT_LEAVE(BEGIN);
		if
		:: atomic { st == CACHED && !u -> st = KERNEL };
			COUNT_LEAVE(moves--);
			break
		:: st != CACHED || u -> COUNT_LEAVE(moves--)
		fi
	:: atomic { st == CACHED && u -> st = BUSY;
#ifdef BROKEN_IN_HAND
		h = u;
		u = 0
#endif
	   };
#ifdef BROKEN_IN_HAND
		BEGIN;
		d_step { KERNEL_WRITE(h); h = 0 };
#elif defined(BROKEN_BEGUN_LATE)
		d_step { KERNEL_WRITE(u) };
		BEGIN;
#else
		BEGIN;
		d_step { KERNEL_WRITE(u) };
#endif
#ifdef BROKEN_OVER_EARLY
		moves--;
#endif
		d_step {
			u = 0;
			epoch++;
			if
			:: f == 1 -> st = CACHED; mark = 1
			:: f == 2 -> st = COLD; mark = 1
			:: else -> st = KERNEL
			fi
		}
#ifndef BROKEN_OVER_EARLY
		moves--;
#endif
		break
	od;
	skip
}

/* BUSY: whether nobody is in a write to K. Who looks later has waited. */
inline drain(is)
{
	o = over;
	atomic { is = (begun == o && !through); o = 0 }
}

#ifdef BROKEN_ADOPT_UNCOUNTED
#define ADOPTING skip
#define HAS_ADOPTED skip
#else
#define ADOPTING d_step { adopting++; adopted = looking }
#define HAS_ADOPTED adopting--
#endif
inline adopt()
{
	BEGIN;
	ADOPTING;
	drain(was);
	if
	:: !was -> d_step { st = COLD; epoch++ }
	:: was ->
		d_step { u = 1; WRITTEN(1); queued = (ureg > 0) };
		ring();
#ifdef EDGES
		h = heard;
#endif
		d_step { g = k; k = 0 };
#ifdef EDGES
		d_step { asked = h; h = 0 };
#endif
		d_step { u = u + g; g = 0; epoch++; mark = 0; st = CACHED }
	fi;
	HAS_ADOPTED;
	moves--
}

proctype writer(bit stranger)
{
	byte n = (stranger -> FIRST : WRITES), at;
#if defined(BROKEN_IN_HAND) || defined(ADOPT)
	byte h;
#endif
#ifdef ADOPT
	byte o, g;
	bit tried;
#endif
	bit was;

again:
	if
#ifdef STRANGER
	:: atomic { stranger -> KERNEL_WRITE(1); WRITTEN(1) }
#endif
	:: st == COLD ->
		begun++;
		if
		:: st != COLD -> over++; goto again
		:: st == COLD
		fi;
		d_step { KERNEL_WRITE(1); WRITTEN(1) };
		over++
#ifdef ADOPT
	:: atomic { st == COLD && !tried -> st = BUSY; tried = 1 };
		adopt();
		if
		:: was -> was = 0
		:: else -> goto again
		fi
#endif
	:: st == KERNEL -> d_step { KERNEL_WRITE(1); WRITTEN(1) }
	:: st == BUSY -> (st != BUSY); goto again
	:: atomic { st == CACHED && !mark -> was = (u > 0); u++; WRITTEN(1) };
#ifdef BROKEN_NO_PUSH
		queued = queued || !was;
#else
		queued = (ureg > 0);
#endif
		ring()
	:: st == CACHED && u -> flush(1); goto again
	:: atomic { st == CACHED && !u -> mark = 1; through++ };
		COUNT_THROUGH(BEGIN);
		d_step { KERNEL_WRITE(1); WRITTEN(1) };
		through--;
		COUNT_THROUGH(moves--)
	fi;
	d_step {
		returned++;
		if
		:: is_edge && reports == at -> owed = 1
		:: else
		fi;
		at = 0;
		was = 0;
#ifdef ADOPT
		tried = 0;
#endif
		n--
	}
	if
	:: n > 0 -> goto again
	:: else
	fi;
	ended++
}

#define CONFLICT (moved && changed)
#ifdef BROKEN_OURS_TAKEN
#define LEFT false
#else
#define LEFT (e && CONFLICT)
#endif

inline report_u()
{
	d_step {
		if
		:: u && LEFT -> queued = 1
		:: u && !LEFT -> c = 1; udata = ureg; REPORT
		:: else
		fi
	}
}

/* c: the list has something; level-triggered items stay on it. e: beside what the kernel has. */
inline collect()
{
	c = 0;
	atomic { !mtx -> mtx = 1 };
	if
	:: !queued
#ifdef EDGES
#ifdef BROKEN_TAKEN_LATE
	:: queued -> report_u(); queued = 0
#else
	:: atomic { queued -> queued = 0 };
		report_u()
#endif
#else
	:: atomic { queued && u -> c = !LEFT; udata = ureg }
	:: queued && !u ->
		queued = 0;
#ifndef BROKEN_NO_SECOND
		if
		:: atomic { u -> queued = 1; c = !LEFT; udata = ureg }
		:: else
		fi
#endif
#endif
	fi;
	d_step { mtx = 0; udata = (looking -> udata : 0) }
}

/* What the kernel's list holds: e the object, b the doorbell. In one step. */
inline take_kernel()
{
	e = 0;
	b = 0;
	if
	:: ready && k ->
		e = 1;
		kdata = (looking -> kreg : 0);
		ready = !is_edge
	:: ready && !k -> ready = 0
	:: else
	fi;
	if
	:: e && is_edge -> REPORT
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

#ifdef EDGES
#define HEARD \
	if \
	:: e -> heard++ \
	:: else \
	fi
#else
#define HEARD skip
#endif
#ifdef BROKEN_HEARD_LATE
#define HEARD_EARLY skip
#else
#define HEARD_EARLY HEARD
#endif

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
	do
	:: true ->
	d_step { looking = 1; moved = (moves > 0); adopted = (adopting > 0); changed = (ctls > 0); SOME(count > 0) };
	if
	:: e = 0;
		collect();
		d_step { take_kernel() };
#ifndef BROKEN_OURS_TOLD
		/* The engine looks for what is to come again. */
		if
		:: c && e && CONFLICT ->
			atomic { !mtx -> c = 0; queued = queued || (ureg && u) }
		:: else
		fi
#endif
	:: d_step { c = 0; take_kernel() };
		collect();
#ifndef BROKEN_KERNEL_FIRST
		d_step {
			if
			:: !c && !e && moved -> take_kernel()
			:: else
			fi
		}
#endif
	fi;
	HEARD;
	/* Both have it: they are compared beside a move only. Beside an adoption nothing is looked for anew. */
	d_step {
		assert(!c || !e || (moved && kdata == udata));
		o = (!c && !e && adopted);
		looking = 0;
		moved = 0;
		adopted = 0;
		changed = 0;
		kdata = 0;
		udata = 0
	};
	if
	:: o -> o = 0
	:: !o -> break
	fi
	od;
	skip;
#ifdef BACK
	d_step {
		if
		:: c && e && is_edge -> queued = 1
		:: else
		fi
	}
#endif
	hand_on();
	c = c || e
}

#ifdef BROKEN_NOT_AWAITED
#define AWAIT_FLUSH skip
#else
#define AWAIT_FLUSH (st != BUSY)
#endif

inline read_it()
{
	g = 0;
again_read:
	if
	:: st == KERNEL -> atomic { WAS_READ(k); k = 0 }
	:: atomic { st == COLD -> g = epoch };
		atomic { r = k > 0; WAS_READ(k); k = 0 };
		if
		:: atomic { r -> r = 0; g = 0 };
			AWAIT_FLUSH
		:: atomic { !r && epoch == g && st != BUSY -> g = 0 }
		:: atomic { !r && !(epoch == g && st != BUSY) -> g = 0 }; goto again_read
		fi
	:: st == BUSY -> (st != BUSY); goto again_read
	:: atomic { st == CACHED && mark -> st = BUSY };
		COUNT_READ(BEGIN);
		drain(m);
		if
		:: !m -> d_step { st = COLD; epoch++ };
			COUNT_READ(moves--);
			goto again_read
		:: m ->
#ifdef EDGES
			h = heard;
#endif
			atomic { WAS_READ(k); k = 0 };
#ifdef EDGES
			d_step { asked = h; h = 0 };
#endif
			d_step { m = 0; st = CACHED; mark = 0; epoch++ };
			COUNT_READ(moves--)
		fi
#if !defined(EDGES) || defined(BROKEN_READ_U)
	:: atomic { st == CACHED && u -> WAS_READ(u); u = 0 }
	:: atomic { st == CACHED && !u && !mark -> g = epoch };
#else
	:: atomic { st == CACHED && u && asked == heard -> WAS_READ(u); u = 0 }
	:: atomic { st == CACHED && !mark && !(u && asked == heard) -> g = epoch };
#ifndef BROKEN_ASKED_LATE
		h = heard;
#endif
#endif
		atomic { r = k > 0; WAS_READ(k); k = 0 };
#ifdef EDGES
#ifdef BROKEN_ASKED_LATE
		h = heard;
#endif
		d_step { asked = h; h = 0 };
#endif
		if
		:: atomic { (st == KERNEL || st == COLD) && r -> g = 0 }
		:: atomic { (st == KERNEL || st == COLD) && !r -> g = 0 }; goto again_read
		:: atomic { st == BUSY && r -> g = 0 };
			AWAIT_FLUSH
		:: atomic { st == BUSY && !r -> g = 0 }; goto again_read
		:: atomic { st == CACHED && !r && !u && epoch != g -> g = 0 }; goto again_read
		:: atomic { st == CACHED && (r || u || epoch == g) ->
#ifdef STRANGER
			m = (r && !mark && epoch == g);
#endif
			if
			:: u -> WAS_READ(u); u = 0
			:: else
			fi;
			g = 0;
			r = 0
		   };
#ifdef STRANGER
			if
			:: m ->
				m = 0;
				flush(0)
			:: else
			fi
#endif
		fi
	fi;
	d_step { g = 0; r = 0; m = 0 }
}

proctype reader()
{
	byte n = READS, g, h, o;
	bit r, m;
#ifdef AFTER_READ
	bit c, e, b;
#endif

	do
	:: n == 0 -> break
	:: n > 0 ->
		n--;
		read_it();
#ifdef AFTER_READ
		whole_look();
		d_step {
			assert(!c || some);
			some = 0;
			c = 0;
			e = 0;
			b = 0
		}
#endif
	od;
	ended++
}

proctype waiter(bit me)
{
	byte n = WAITS, g, h, o;
	bit c, e, b, r, m;

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
		fi
	fi;
	if
	:: !e && !b -> goto park
	:: else
	fi;
	HEARD_EARLY;
	sleepers--;
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
#ifndef BROKEN_HEARD_LATE
	e = 0;
#endif
	d_step { c = 0; b = 0 };
	if
	:: true -> read_it()
#ifndef MUST_READ
	:: true
#endif
	fi;
#ifdef BROKEN_HEARD_LATE
	HEARD;
	e = 0;
#endif
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
	bit c, e, b, o, still;

	do
	:: n == 0 -> break
	:: n > 0 ->
		d_step { before = returned; still = owed };
		whole_look();
		d_step {
			assert(is_edge || c || gone || taken >= before);
			assert(WAITERS + READS > 0 || c || gone || !still);
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
		:: flush(0)
		:: flush(1)
#ifdef ADOPT
		:: flush(2)
#endif
		fi
	od;
	ended++
}

#define CTL_BEGUN d_step { ctls++; changed = looking }

proctype ctl()
{
	byte n = CTLS, data = 1;

	do
	:: n == 0 -> break
	:: n > 0 ->
		n--;
		data++;
#ifdef DEL
		d_step { kreg = 0; ready = 0; gone = 1 };
		atomic { !mtx -> ureg = 0; queued = 0 };
#endif
#ifndef BROKEN_CTL_BEGUN_LATE
		CTL_BEGUN;
#endif
		d_step {
			kreg = data;
			if
			:: k -> ready = 1; wake()
			:: else
			fi
		};
#ifdef BROKEN_CTL_BEGUN_LATE
		CTL_BEGUN;
#endif
#ifdef BROKEN_CTL_OVER_EARLY
		ctls--;
#endif
		atomic { !mtx -> ureg = data; queued = queued || u };
		if
		:: queued -> ring()
		:: else
		fi;
#ifndef BROKEN_CTL_OVER_EARLY
		ctls--
#endif
	od;
	ended++
}

init {
	byte i;
	bit c, e, b, o;

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
		run reader();
		run flusher();
		run ctl();
		i = 0
	}
	/* True when nobody else can take a step. */
	timeout ->
	assert(ended + asleep[0] + asleep[1] == WRITERS + WAITERS + 4);
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
