/* SPDX-License-Identifier: MIT */
/*
 * Watches are counted by each thread for itself until the limit is near; then every thread's
 * credit goes back and nothing of it is lost or doubled.
 *
 * Mirrors: src/epoll/watches.c credit_enter, credit_leave, charge_slow, plx_watches_charge,
 * plx_watches_uncharge, credits_recall, pollux_ep_set_max_watches. A credit of one thread is two
 * watches here. Two threads add and remove, one recalls and lets go again, two times.
 *
 * Checked: after a recall charged is the number of watches if none is on its way, and never less
 * than those that there are; at the end it is watches and credits.
 *
 * Weak memory: inside, n and exact are plain stores that wait in store buffers, one place each
 * and in order of storing per thread; locked steps and full barriers wait for the own ones.
 * The heavy barrier drains those of all threads. The light one is the compiler's alone.
 *
 * Broken variants: NO_LOOK (exact not looked at), NO_LIGHT (the processor or the compiler takes
 * the look before the store of inside), NO_HEAVY (no barrier in the other threads), NO_AWAIT
 * (inside not waited for), LEAVE_EARLY (inside taken back before the change), SPLIT (the
 * counterpart in charged is changed when inside has been taken back).
 */

#define CREDIT 2

bit exact;
short charged;
/* What a thread's stores have reached, and those that wait in its buffer. */
bit inside[2], inside_buf[2], inside_full[2];
byte credit[2], credit_buf[2];
bit credit_full[2];
/* Watches of each thread; whether one is on its way. */
byte watches[2];
bit changes[2];
byte over;

/* A thread sees its own stores. */
#define MINE (credit_full[me] -> credit_buf[me] : credit[me])

inline drain_inside(i)
{
	inside[i] = inside_buf[i];
	inside_full[i] = 0
}

inline drain_credit(i)
{
	credit[i] = credit_buf[i];
	credit_full[i] = 0
}

/* All that waits. */
inline drain(i)
{
	d_step {
		if
		:: inside_full[i] -> drain_inside(i)
		:: else
		fi;
		if
		:: credit_full[i] -> drain_credit(i)
		:: else
		fi
	}
}

/* The buffer has one place for each word: what was in it goes first. */
inline store_inside(i, v)
{
	d_step {
		if
		:: inside_full[i] && !inside_buf[i] && credit_full[i] -> drain_credit(i)
		:: else
		fi;
		if
		:: inside_full[i] -> drain_inside(i)
		:: else
		fi;
		inside_buf[i] = v;
		inside_full[i] = 1
	}
}

inline store_credit(i, v)
{
	d_step {
		if
		:: credit_full[i] -> drain_credit(i)
		:: else
		fi;
		credit_buf[i] = v;
		credit_full[i] = 1
	}
}

/* Taking inside back is a release: what was stored before goes first. */
#define may_drain_inside(i) (inside_full[i] && (inside_buf[i] || !credit_full[i]))

active proctype memory()
{
endm:	do
	:: d_step { may_drain_inside(0) -> drain_inside(0) }
	:: d_step { may_drain_inside(1) -> drain_inside(1) }
	:: d_step { credit_full[0] -> drain_credit(0) }
	:: d_step { credit_full[1] -> drain_credit(1) }
	od
}

/* A locked step: what was stored before is visible with it. */
inline charged_add(i, v)
{
	atomic {
		drain(i);
		charged = charged + v
	}
}

inline enter(i)
{
#ifdef BROKEN_NO_LIGHT
	seen = exact;
	store_inside(i, 1);
#else
	store_inside(i, 1);
	seen = exact;
#endif
#ifdef BROKEN_NO_LOOK
	seen = 0;
#endif
#ifdef BROKEN_LEAVE_EARLY
	store_inside(i, 0);
#endif
}

inline leave(i)
{
#ifdef BROKEN_LEAVE_EARLY
	skip
#else
	store_inside(i, 0)
#endif
}

proctype counter(byte me)
{
	byte rounds = 2;
	byte mine;
	bit seen, done, owed;

	do
	:: rounds == 0 -> break
	:: else ->
		rounds--;
		/* ADD */
		done = 0;
		owed = 0;
		changes[me] = 1;
		enter(me);
		if
		:: !seen && MINE > 0 ->
			mine = MINE - 1;
			store_credit(me, mine);
			done = 1
		:: !seen && MINE == 0 ->
			/* charge_slow, which enters again; the same here. */
#ifdef BROKEN_SPLIT
			owed = 1;
#else
			charged_add(me, CREDIT);
#endif
			mine = MINE + CREDIT - 1;
			store_credit(me, mine);
			done = 1
		:: else
		fi;
		leave(me);
		if
		:: owed -> charged_add(me, CREDIT)
		:: else
		fi;
		if
		:: !done -> charged_add(me, 1)
		:: else
		fi;
		d_step {
			watches[me]++;
			changes[me] = 0
		};
		/* Removal */
		d_step {
			changes[me] = 1;
			watches[me]--
		};
		enter(me);
		if
		:: seen -> charged_add(me, -1)
		:: !seen && MINE >= 2 * CREDIT - 2 ->
			mine = MINE + 1 - CREDIT;
			store_credit(me, mine);
			charged_add(me, -CREDIT)
		:: else ->
			mine = MINE + 1;
			store_credit(me, mine)
		fi;
		leave(me);
		changes[me] = 0
	od;
	over++
}

active proctype recaller()
{
	byte rounds = 2;

	do
	:: rounds == 0 -> break
	:: else ->
		rounds--;
		/* The store of exact is complete before the look at inside: a full barrier. */
		exact = 1;
#ifndef BROKEN_NO_HEAVY
		d_step {
			drain(0);
			drain(1)
		};
#endif
#ifndef BROKEN_NO_AWAIT
		!inside[0];
		!inside[1];
#endif
		/* Each thread's own, one after the other. */
		charged = charged - credit[0];
		credit[0] = 0;
		charged = charged - credit[1];
		credit[1] = 0;
		/* Nobody has credits: all watches are counted, and what is on its way, but no more. */
		d_step {
			assert(charged >= watches[0] + watches[1]);
			if
			:: !changes[0] && !changes[1] ->
				assert(charged == watches[0] + watches[1])
			:: else
			fi
		};
		exact = 0
	od;
	/* At the end: what is charged is watches and credits. */
	atomic {
		over == 2 ->
		drain(0);
		drain(1);
		assert(charged == watches[0] + watches[1] + credit[0] + credit[1])
	}
}

init {
	atomic {
		run counter(0);
		run counter(1)
	}
}
