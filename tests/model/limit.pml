/* SPDX-License-Identifier: MIT */
/*
 * The soft limit of descriptors, which is raised for a moment to get a number above it, beside calls
 * of the program that set it, tell it, or start a process or a program, which keeps what it is then.
 *
 * Mirrors: src/posix/table.c plx_px_limit_hold, plx_px_limit_let_go, plx_limit_raise,
 * plx_limit_restore, plx_limit_after_fork_child; dup_high and spills, which raise it, under
 * hidden_lock or plx_table_lock; src/preload/preload.h plx_start_begin; src/preload/fork.c (vfork),
 * exec.c, limit.c; src/posix/fork.c plx_px_fork_prepare. Two raise it, one of them in a call that
 * holds it, as a handler in system() does; two start something, or tell it, one of them two times,
 * one sets it, one forks, and so does a handler at the end of system().
 *
 * Checked: what is started or forked has the limit that the program has set; what it sets stays; in
 * the child of a fork nobody is waited for who is not there; everybody comes to an end.
 *
 * Memory: the limit is the kernel's, under a lock of its own; the count changes by locked steps.
 *
 * Time: a hold that is older than HOLD_NS is not waited for, as what it has started has its limit by
 * then. Here: such a time is over (`old` and `mine`) only if all who held it when it began have got
 * so far.
 *
 * Broken variants: NO_LOCK (two raise it at once), NO_COUNT (who holds it waits for the lock and no
 * more), NO_WAY (is counted and does not wait for the lock), COUNT_LATE (is counted behind the lock),
 * OWN_CLOCK (who waits does so without the lock, and for HOLD_NS at most), IDLE (nobody holds it
 * before there is an object), NOT_MINE (waits for its own hold, too), NO_FORK (a fork does not wait),
 * NO_RESET (the child counts the holds of the parent's threads), OPEN_END (the handler may come in the
 * middle of letting go).
 */
#define RAISED 9
/* Who start something, or set the limit. */
#define HOLDERS 3
#define SETTER 2

/* The kernel's; what the program has set. */
byte limit = 1, set = 1;
bit lock, hidden_lock, table_lock, adopted;
byte holds;
/* Of each: is counted; has not got what it wants by then. */
bit waits_for[HOLDERS];
/* A setrlimit is on its way. */
bit setting;

#define ANY (waits_for[0] || waits_for[1] || waits_for[2])

inline take(l)
{
	atomic { !l -> l = 1 }
}

inline hold(me)
{
#ifdef BROKEN_NO_WAY
	atomic { holds++; waits_for[me] = 1 }
#elif defined(BROKEN_COUNT_LATE)
	take(lock);
	lock = 0;
	atomic { holds++; waits_for[me] = 1 }
#elif defined(BROKEN_NO_COUNT)
	take(lock);
	lock = 0
#elif defined(BROKEN_OWN_CLOCK)
	holds++;
	take(lock);
	waits_for[me] = 1;
	lock = 0
#else
	take(lock);
	atomic { holds++; waits_for[me] = 1 };
	lock = 0
#endif
}

inline let_go(me)
{
#ifndef BROKEN_NO_COUNT
	holds--
#else
	skip
#endif
}

/* my: holds of the thread itself; l: what it works under. */
inline raise_and_restore(my, l)
{
	take(l);
	adopted = 1;
#ifndef BROKEN_NO_LOCK
	take(lock);
#endif
#ifdef BROKEN_OWN_CLOCK
	/* Those who hold it when it begins to wait. */
	d_step { since[0] = waits_for[0]; since[1] = waits_for[1]; since[2] = waits_for[2] };
	do
	:: holds == my -> break
	:: holds != my && !ANY -> break
	:: holds != my && !(since[0] && waits_for[0]) && !(since[1] && waits_for[1]) &&
	   !(since[2] && waits_for[2]) -> break
	:: holds != my && ANY ->
		lock = 0;
		/* The others have begun anew since, or got on. */
		if
		:: atomic { since[0] && !waits_for[0] -> since[0] = 0 }
		:: atomic { since[1] && !waits_for[1] -> since[1] = 0 }
		:: atomic { since[2] && !waits_for[2] -> since[2] = 0 }
		:: holds == my
		fi;
		take(lock)
	od;
#elif defined(BROKEN_NOT_MINE)
	holds == 0;
#else
	(holds == my || !ANY);
#endif
	was = limit;
	limit = RAISED;
	/* The number is got. */
	limit = was;
#ifndef BROKEN_NO_LOCK
	lock = 0;
#endif
	l = 0
}

proctype raiser()
{
	byte was;
#ifdef BROKEN_OWN_CLOCK
	bit since[HOLDERS];
#endif

	raise_and_restore(0, hidden_lock)
}

/* The limit as the kernel gives it to a child, or tells it. */
inline gets(me)
{
	d_step {
		assert(limit != RAISED && (setting || limit == set));
		waits_for[me] = 0
	}
}

proctype starter(byte me; byte n)
{
	bit held;

	do
	:: n == 0 -> break
	:: else ->
		n--;
#ifdef BROKEN_IDLE
		held = adopted;
#else
		held = 1;
#endif
		if
		:: held -> hold(me)
		:: else
		fi;
		gets(me);
		if
		:: held -> let_go(me)
		:: else
		fi
	od
}

/* my: holds of the thread itself; rest: what it takes out of the count after that, in both. */
inline fork(my, rest)
{
#ifndef BROKEN_NO_FORK
	take(table_lock);
	take(hidden_lock);
#endif
	d_step {
		assert(limit != RAISED);
		in_child = holds;
#ifndef BROKEN_NO_RESET
		in_child = my;
#endif
		in_child = in_child - rest;
		assert(in_child == my)
	};
#ifndef BROKEN_NO_FORK
	hidden_lock = 0;
	table_lock = 0
#endif
}

/* system(): it lasts longer, and a handler of the same thread may come in it. */
proctype long_starter(byte me)
{
	byte was, in_child;
#ifdef BROKEN_OWN_CLOCK
	bit since[HOLDERS];
#endif

	hold(me);
	gets(me);
	raise_and_restore(1, table_lock);
#ifdef BROKEN_OPEN_END
	/* my_holds is 0, and it is still counted. */
	fork(0, 1);
	let_go(me)
#else
	let_go(me);
	fork(0, 0)
#endif
}

proctype setter()
{
	hold(SETTER);
	d_step { setting = 1; set = 2 };
	d_step { limit = 2; setting = 0; waits_for[SETTER] = 0 };
	let_go(SETTER)
}

proctype forker()
{
	byte in_child;

	fork(0, 0)
}

init {
	atomic {
		run raiser();
		run starter(0, 2);
		run long_starter(1);
		run setter();
		run forker()
	};
	_nr_pr == 1;
	assert(limit == 2 && !holds)
}
