/* SPDX-License-Identifier: MIT */
/*
 * A timer of which the kernel does not know the setting is never told too early, and never lost
 * to a thread that sleeps.
 *
 * Mirrors: src/cache/timer.c plx_px_timerfd_settime with set_lazy, set_true, kernel_told, put_off,
 * become_lazy, unmark and make_true; mark_epoll, plx_timer_fired, plx_timers_true,
 * plx_timers_leave, plx_timer_read, plx_timer_escape; src/cache/wait.c
 * timers_enter, kernel_look, wait_kernel, wait_mixed (with items: -DMIXED), note_drop, waiter_done;
 * src/cache/epoll.c epoll_release; plx_px_fork_prepare in src/cache/fork.c, which is a change. One timer, which is set SETS
 * times, one epoll, two threads that wait in it, the first of them up to WAITS times, and a clock
 * with a few ticks. The kernel's timer and its epoll are in the model.
 *
 * Checked:
 *  - an event, and a read, are given to the program only when the time that it has set has come;
 *  - a setting that says the one before was running has not been overtaken by a report of that one;
 *  - when nothing can move any more, nobody sleeps in a wait while the timer is due. The first
 *    waiter may stop for ever at any step of its own, with an event in its hand or not: the second
 *    does not depend on it;
 *  - after a fork has begun, and when the timer has escaped, the kernel knows all of it;
 *  - no timer is lazy in an epoll that is freed (-DCLOSE).
 *
 * A wait may be left by a time-out or a signal, by cancellation, and by a jump, which leaves all
 * that it has said standing; all from one budget (LEAVES).
 *
 * Weak memory (-DWEAK): what one side says to the other (the words below) waits in a store buffer,
 * a place for each word, which the process `memory` empties at any time and in any order; a full
 * barrier waits for the own ones. Some of the real ones are read-modify-writes, at least as strong.
 * twaiters is one here, too: only those look at it who add to it.
 *
 * Abstractions:
 *  - Rows of settings are not counted: whenever a timer may become lazy it does so, or not.
 *  - Times are absolute. NEAR is nothing: that it is 10 ms is for the order of events (3).
 *  - The harvest of in-process items, and the bell, are those of no_lost_wake.pml.
 *  - What the mutexes of the kernel make one step is one step. A grace period is a wait for the
 *    sections that are open (grace.pml).
 *
 * Broken variants: NO_LAZY_BARRIER, NO_LEAVE_BARRIER, NO_SLEEP_BARRIER, NO_FORK_BARRIER (all
 * -DWEAK), NO_NOTIMERS, NO_SLEEPERS, NO_CHANGE (become_lazy does
 * not look at that word), NO_CLOCK (nor at the clock once more), NO_MARK (the registration keeps the
 * program's data), UNMARK_FIRST (told to the kernel's epoll before its timer is set), NO_FIRED (the
 * event of a lazy timer is merely dropped), WHEN_LAZY (waits are counted only where a timer is lazy
 * at that moment), RETRACT_FIRST (a sleeper is not seen any more before it is counted), NO_GRACE (a
 * look may be under way when the first timer becomes lazy), NO_HELP (-DLEAVE: a wait that finds
 * that there are no lazy timers any more relies on whoever said so, who may have stopped), NO_SLEEPERS_LOOK (who is counted does not
 * look for sleepers that were there before the mark), DROP_LATE (a wait that was left by a jump is
 * taken back before the timers are true), CANCEL_LATE (the same for cancellation), NO_DROP (no next
 * wait looks after it), MARK_IN_SET (-DCLOSE: the mark is made without a reference on the epoll),
 * NO_RELEASE (-DCLOSE: the end of the epoll does not look), READ_LAZY, ESCAPE_LAZY.
 */

#ifndef SETS
#define SETS 2
#endif
#ifndef WAITS
#define WAITS 1
#endif
#ifndef LEAVES
#define LEAVES 0
#endif
#ifndef TICKS
#define TICKS 2
#endif
#define NEVER 0

/* What the sides say to each other: nlazy (with the timer's fr), and so on. */
#define NLAZY 0
#define NOTIMERS 1
#define MARK 2
#define CHANGE 3
/* Of each waiter: its part in sleepers. */
#define SLEEPER 4
#define WORDS 6

bit mem[WORDS];
#ifdef WEAK
bit buffered[WORDS];
#endif
byte twaiters;

/* The kernel's timer, its registration, and who sleeps there. */
byte now, at;
bit expired, registered = 1, marked, listed;
bit asleep[2];

/* The timer: changed under its lock. Others look at lazy and gone without it. */
bit lock, lazy, known, gone;
byte want, armed;

bit timers;		/* the epoll may have some */
bit section[3];		/* RCU sections of the waiters and of the setter */
byte leaves = LEAVES;

/* What the program has set; its expiry has been told. */
byte wish;
bit told;

#ifdef CLOSE
bit entry = 1, freed;
byte refs = 1;
#define FRONT entry
#else
#define FRONT true
#endif

#ifdef WEAK
active proctype memory()
{
	byte i = 0;

endm:	do
	:: d_step { buffered[0] -> buffered[0] = 0; mem[0] = 1 }
	:: d_step { buffered[1] -> buffered[1] = 0; mem[1] = 1 }
	:: d_step { buffered[2] -> buffered[2] = 0; mem[2] = 1 }
	:: d_step { buffered[3] -> buffered[3] = 0; mem[3] = 1 }
	:: d_step { buffered[4] -> buffered[4] = 0; mem[4] = 1 }
	:: d_step { buffered[5] -> buffered[5] = 0; mem[5] = 1 }
	od
}
#define say(x) buffered[x] = !mem[x]
#define barrier(x) !buffered[x]
#define take_back(x) !buffered[x] -> mem[x] = 0
#else
#define say(x) mem[x] = 1
#define barrier(x) skip
#define take_back(x) mem[x] = 0
#endif
#ifdef WEAK
#define say_barrier(x) say(x); barrier(x)
#else
#define say_barrier(x) say(x)
#endif

#define expires (at != NEVER && now >= at && !expired)
#define is_due (wish != NEVER && now >= wish)
/* That is what the kernel knows. */
#define is_true (!marked && at == wish)

inline wake_sleeper()
{
	if
	:: asleep[0] -> asleep[0] = 0
	:: asleep[1] -> asleep[1] = 0
	:: else
	fi
}

/* In one step: a registration looks at the timer. */
inline poll_timer()
{
	if
	:: expired && registered -> listed = 1; wake_sleeper()
	:: else
	fi
}

/* Time passes; the interrupt comes when it likes. */
active proctype clock()
{
endc:	do
	:: now < TICKS -> now++
	:: atomic { expires -> expired = 1; poll_timer() }
	od
}

/* --- the timer, lock held --------------------------------------------------------------- */

/*
 * Taking the lock goes with the step after it, and leaving it with the step before it: the one only
 * keeps others from moving, the other only lets them. A section of RCU is the same.
 */
#define LOCK atomic { !lock -> lock = 1 }

/* Afterwards the lock is held, or not. */
inline unmark(was_listed, held)
{
	if
	:: was_listed ->
		d_step { registered = 0; listed = 0; marked = 0 };
		atomic { registered = 1; poll_timer() }
	:: else ->
		atomic { marked = 0; poll_timer() }
	fi;
	atomic { take_back(NLAZY) };
	atomic { lazy = 0; lock = held }
}

/* Whether it has expired: the interrupt is waited for. */
inline make_true(collected, has_expired, held)
{
	if
	:: atomic { want != NEVER && now >= want && expired -> has_expired = 1 }
	:: atomic { !(want != NEVER && now >= want) -> has_expired = 0 }
	fi;
	if
	:: !collected && now >= armed -> unmark(true, held)
	:: else -> unmark(false, held)
	fi
}

/* The first step of that. */
#ifdef BROKEN_UNMARK_FIRST
#define TO_KERNEL marked = 0; poll_timer() }; d_step { at = want; expired = 0; known = 0
#else
#define TO_KERNEL at = want; expired = 0; known = 0
#endif
#define LOCK_LAZY atomic { !lock && lazy -> lock = 1; TO_KERNEL }

#define LOCK_NOT_LAZY atomic { !lock && !lazy -> lock = 1 }

inline timers_true()
{
	if
	:: mem[NLAZY] ->
		/* Looked at without the lock first. */
		if
		:: lazy ->
			if
			:: LOCK_LAZY;
				make_true(false, x, 0)
			:: !lock && !lazy
			fi;
			x = 0
		:: else
		fi
	:: else
	fi
}

inline timers_leave()
{
#ifdef BROKEN_NO_LEAVE_BARRIER
	say(NOTIMERS);
#else
	say_barrier(NOTIMERS);
#endif
	timers_true()
}

/* --- settings ----------------------------------------------------------------------------- */

inline kernel_told(v)
{
	d_step {
		at = v;
		expired = 0;
		wish = v;
		told = 0;
		want = v;
		armed = v;
		known = (v != NEVER && !gone)
	}
}

/* The old setting is said to be running. */
inline put_off(v)
{
	d_step {
		assert(!told);
		want = v;
		wish = v
	}
}

#define may_wait(n, v) (n < armed && (v == NEVER || v >= armed))

#ifdef BROKEN_NO_NOTIMERS
#define said_notimers false
#else
#define said_notimers mem[NOTIMERS]
#endif
#ifdef BROKEN_NO_CHANGE
#define said_change false
#else
#define said_change mem[CHANGE]
#endif
#ifdef BROKEN_NO_SLEEPERS
#define said_sleepers 0
#else
#define said_sleepers (mem[SLEEPER] + mem[SLEEPER + 1])
#endif
#ifdef BROKEN_NO_CLOCK
#define not_expired true
#else
#define not_expired (now < armed)
#endif

inline become_lazy(ok)
{
	atomic { lazy = 1; ok = 0 };
	say(NLAZY);
#if defined(WEAK) && !defined(BROKEN_NO_LAZY_BARRIER)
	barrier(NLAZY);
#endif
	if
	:: said_notimers -> skip
	:: else ->
		if
		:: said_change -> skip
		:: else ->
			if
			:: said_sleepers > 1 -> skip
			:: else ->
#ifdef BROKEN_NO_MARK
				atomic { poll_timer(); ok = 1 }
#else
				atomic { marked = 1; poll_timer(); ok = 1 }
#endif
			fi
		fi
	fi;
	if
	:: ok && not_expired
	:: !ok -> unmark(false, 1)
	:: ok && !not_expired -> ok = 0; unmark(true, 1)
	fi
}

inline release()
{
#ifdef CLOSE
#ifndef BROKEN_NO_RELEASE
	if
	:: mem[MARK] -> timers_leave()
	:: else
	fi;
#endif
	/* The epoll's memory, after a grace period; this may be the setter itself, outside. */
	!section[2];
	d_step { assert(!lazy); freed = 1 }
#else
	skip
#endif
}

inline put_epoll()
{
#ifdef CLOSE
	d_step { refs--; x = (refs == 0) };
	if
	:: x -> x = 0; release()
	:: else
	fi
#else
	skip
#endif
}

/* The epoll's mark. */
inline mark_epoll()
{
#ifdef CLOSE
	atomic {
		if
		:: entry -> refs++
		:: else -> goto kept
		fi
	};
#endif
	say_barrier(MARK);
#ifndef BROKEN_NO_GRACE
endg0:	!section[0];
endg1:	!section[1];
#endif
	timers = 1;
	put_epoll();
kept:	skip
}

proctype setter()
{
	byte sets = SETS, v, n;
	bit ok, x;

#ifndef BROKEN_MARK_IN_SET
	mark_epoll();
#endif
	do
	:: sets == 0 -> break
	:: else ->
		sets--;
		ok = 0;
		section[2] = 1;
#ifdef BROKEN_MARK_IN_SET
		/* The epoll was found before. */
		if
		:: FRONT -> say(MARK); timers = 1
		:: else -> timers = 0
		fi;
#endif
		atomic {
			!lock -> lock = 1;
			n = now;
			if
			:: v = NEVER
			:: n + 1 <= TICKS -> v = n + 1
			:: n + 2 <= TICKS -> v = n + 2
			fi
		};
		if
		:: gone -> kernel_told(v)
		:: !gone && lazy && may_wait(n, v) -> put_off(v)
		:: !gone && lazy && !may_wait(n, v) ->
			if
			:: want == NEVER || n < want ->
				/* What was left is known without the kernel. */
				d_step { assert(!told); n = armed };
				kernel_told(v);
				if
				:: now >= n -> unmark(true, 1)
				:: else -> unmark(false, 1)
				fi
			:: else ->
				atomic { TO_KERNEL };
				make_true(false, x, 1);
				kernel_told(v)
			fi
		:: !gone && !lazy ->
			if
#ifdef BROKEN_MARK_IN_SET
			:: timers && known && may_wait(n, v) ->
#else
			:: FRONT && timers && !mem[NOTIMERS] && known && may_wait(n, v) ->
#endif
				become_lazy(ok);
				if
				:: ok -> put_off(v)
				:: else -> kernel_told(v)
				fi
			:: true -> kernel_told(v)
			fi
		fi;
		d_step { lock = 0; section[2] = 0; v = 0; n = 0; ok = 0; x = 0 }
	od
}

/* --- waits -------------------------------------------------------------------------------- */

/* A stop goes with the step after which it comes, and so does the choice to leave. */
#define MAY_STOP if :: me == 0 -> forget(); goto stopped :: true fi

/* What a thread that has ended or stopped knew. */
inline forget()
{
	waits = 0;
	got = 0;
	announced = 0;
	counted = 0;
	others = 0;
	swallowed = 0;
	x = 0
}

/* This thread is counted, unless there are no lazy timers any more. */
inline timers_enter()
{
	if
	:: counted
	:: !counted && mem[NOTIMERS] ->
#ifndef BROKEN_NO_HELP
		timers_true()
#else
		skip
#endif
	:: !counted && !mem[NOTIMERS] ->
		d_step { counted = 1; others = (twaiters > 0); twaiters++ };
		if
#ifdef BROKEN_NO_SLEEPERS_LOOK
		:: others -> others = 0; timers_leave()
#else
		:: others || mem[SLEEPER] + mem[SLEEPER + 1] > announced ->
			others = 0;
			timers_leave()
#endif
		:: else
		fi
	fi
}

#ifdef BROKEN_WHEN_LAZY
#define knows mem[NLAZY]
#else
#define knows mem[MARK]
#endif

inline announce()
{
	atomic { say(SLEEPER + me); announced = 1 };
#if defined(WEAK) && !defined(BROKEN_NO_SLEEP_BARRIER)
	barrier(SLEEPER + me)
#endif
}

#define retract() atomic { take_back(SLEEPER + me); announced = 0 }
/* And perhaps stops. */
#define RETRACT_STOP atomic { take_back(SLEEPER + me); announced = 0; MAY_STOP }

/* A handler jumps, or cancels; with the event in its hand, perhaps. Or the thread stops. */
inline may_go()
{
	if
	:: leaves > 0 -> leaves--; got = 0; goto jumped
	:: leaves > 0 -> leaves--; got = 0; goto cancelled
	:: me == 0 -> forget(); goto stopped
	:: true
	fi
}

#define OURS 2
#define THEIRS 1

/* In one step: an event, from the head of the list. got: whose data it has. */
inline collect()
{
	got = 0;
	if
	:: listed && !expired -> listed = 0
	:: listed && expired && marked -> listed = 0; got = OURS
	:: listed && expired && !marked ->
		assert(is_due);
		told = 1;
		got = THEIRS;
		wake_sleeper()
	:: else
	fi
}

/* The kernel's sleep. got is 0 after a time-out. */
#define KERNEL_WAIT(label)                                                                         \
	label: do                                                                                  \
	:: atomic { !asleep[me] && listed -> collect(); if :: got -> may_go(); break :: else fi }  \
	:: atomic { !asleep[me] && !listed -> asleep[me] = 1 }                                     \
	:: atomic { asleep[me] && leaves > 0 -> leaves--; asleep[me] = 0; may_go(); break }        \
	od

inline kernel_look()
{
	if
	:: atomic { knows -> section[me] = 1 };
		timers_enter()
	:: atomic { !knows -> section[me] = 1 }
	fi;
	atomic { collect(); section[me] = 0; MAY_STOP }
}

/* What is in its hand: an event of the program's, or none. */
inline filter()
{
	if
	:: got == OURS ->
#ifdef BROKEN_NO_FIRED
		got = 0
#else
		if
		:: LOCK_LAZY;
			make_true(true, x, 1);
			d_step {
				got = 0;
				swallowed = 1;
				if
				:: x -> assert(is_due); told = 1; got = THEIRS
				:: else
				fi;
				x = 0;
				lock = 0
			}
		:: atomic { !lock && !lazy -> got = 0; swallowed = 1; x = 0 }
		fi
#endif
	:: else
	fi
}

inline uncount()
{
	if
	:: counted ->
		d_step { counted = 0; twaiters-- }
	:: else
	fi
}

/* Without blocking. */
inline read_timer()
{
	if
#ifndef BROKEN_READ_LAZY
	:: LOCK_LAZY;
		make_true(false, x, 1)
	:: LOCK_NOT_LAZY
#else
	:: LOCK
#endif
	fi;
	d_step {
		if
		:: expired -> assert(is_due); expired = 0; known = 0; told = 0;
			at = NEVER; wish = NEVER; want = NEVER; armed = NEVER
		:: else
		fi;
		x = 0;
		lock = 0
	}
}

proctype waiter(bit me)
{
	byte waits = (me == 0 -> WAITS : 1);
	byte got;
	bit announced, counted, others, swallowed, x;

again:
	waits--;
#ifdef MIXED
mixed:
	swallowed = 0;
	if
	:: true ->
		kernel_look();
		filter();
		if
		:: got -> goto returned
		:: swallowed && !got -> goto mixed
		:: else
		fi
	:: true		/* nothing but the doorbell was there when it looked */
	fi;
	announce();
	if
	:: knows -> timers_enter()
	:: else
	fi;
	KERNEL_WAIT(endm);
	x = (got == 0);
	filter();
	MAY_STOP;
	retract();
	if
	:: got -> goto returned
	:: !got && x -> x = 0; goto returned	/* timed out */
	:: else -> goto mixed
	fi;
#else
	if
	:: knows ->
		timers_enter();
		if
		:: counted -> goto by_timers
		:: else
		fi
	:: else
	fi;
	MAY_STOP;
	if
	:: me == 0 ->
		kernel_look();
		filter();
		goto returned
	:: true
	fi;
	announce();
	if
	:: knows ->
		timers_enter();
		if
		:: counted -> retract(); goto by_timers
		:: else
		fi
	:: else
	fi;
	MAY_STOP;
	KERNEL_WAIT(endk);
#ifndef BROKEN_RETRACT_FIRST
	if
	:: knows -> timers_enter()
	:: else
	fi;
#endif
	MAY_STOP;
	RETRACT_STOP;
	if
	:: !got -> goto returned
	:: else
	fi;
	filter();
	if
	:: got -> goto returned
	:: else
	fi;
	timers_enter();
by_timers:
	MAY_STOP;
	announce();
	KERNEL_WAIT(endt);
	x = (got == 0);
	filter();
	MAY_STOP;
	RETRACT_STOP;
	if
	:: !got && !x -> goto by_timers
	:: else -> x = 0
	fi;
#endif
	goto returned;

cancelled:
#ifdef BROKEN_CANCEL_LATE
	if
	:: announced -> retract()
	:: else
	fi;
	uncount();
	MAY_STOP;
#endif
	timers_true();
	MAY_STOP;
	if
	:: announced -> retract()
	:: else
	fi;
	MAY_STOP;
	uncount();
	forget();
	goto stopped;

jumped:
	MAY_STOP;
	/* The next wait, or the end of the thread. */
#ifdef BROKEN_DROP_LATE
	retract();
	uncount();
	MAY_STOP;
#endif
#ifndef BROKEN_NO_DROP
	timers_true();
#endif
	MAY_STOP;
	if
	:: announced -> retract()
	:: else
	fi;
	uncount();
	if
	:: waits > 0 -> goto again
	:: else -> forget(); goto stopped
	fi;

returned:
	MAY_STOP;
	uncount();
	if
	:: got && waits > 0 -> read_timer()
	:: true
	fi;
	got = 0;
	if
	:: waits > 0 -> goto again
	:: else
	fi;
	forget();
stopped:
endo:	false
}

/* --- the rest ----------------------------------------------------------------------------- */

#ifdef READ
active proctype reader()
{
	bit x;

	read_timer()
}
#endif

#ifdef FORK
/* And so does an end of laziness for all timers at once by others. */
active proctype forker()
{
	bit x;

	say(CHANGE);
#ifndef BROKEN_NO_FORK_BARRIER
	barrier(CHANGE);
#endif
	timers_true();
	assert(is_true);
	atomic { take_back(CHANGE) }
}
#endif

#ifdef ESCAPE
/* A second number, a second epoll, a poll, a read that blocks. */
active proctype escaper()
{
	bit x;

	if
#ifndef BROKEN_ESCAPE_LAZY
	:: LOCK_LAZY;
		make_true(false, x, 1)
	:: LOCK_NOT_LAZY
#else
	:: LOCK
#endif
	fi;
	gone = 1;
	lock = 0;
	assert(is_true)
}
#endif

#ifdef LEAVE
/* Something else that ends laziness for the epoll, and may stop. */
active proctype leaver()
{
	bit x;

	say(NOTIMERS);
	barrier(NOTIMERS);
	if
	:: true -> timers_true()
	:: true
	fi
}
#endif

#ifdef CLOSE
active proctype closer()
{
	bit x;

	if
	:: mem[MARK] -> timers_leave()
	:: else
	fi;
	entry = 0;
	put_epoll()
}
#endif

init {
	atomic {
		/* The first setting of the row, which the kernel knows. */
		kernel_told(1);
		run setter();
#ifndef NO_WAITS
		run waiter(0);
#ifndef ALONE
		run waiter(1);
#endif
#endif
	}
	/* True when no other process can take a step. */
	timeout ->
	assert(!(asleep[0] || asleep[1]) || wish == NEVER)
}
