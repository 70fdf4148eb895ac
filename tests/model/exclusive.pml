/* SPDX-License-Identifier: MIT */
/*
 * A wake that goes to one of several exclusive watches is spent on an epoll only if somebody slept
 * there who could be told: not on one whose item is being removed, for a sleeper who has come since.
 *
 * Mirrors: src/epoll/file.c plx_file_wake_rcu, item_wake; src/epoll/ready.c plx_item_queue,
 * plx_item_push, plx_ep_wake_one (as far as it counts sleepers); src/epoll/remove.c plx_item_remove,
 * item_claim; plx_ep_announce, plx_ep_retract in src/epoll/wait.c. A file with two exclusive items.
 * One producer. One thread removes the first item, and sleeps in that epoll then; another one sleeps
 * there from any time on, and may leave. Who sleeps in the second epoll is told if the wake goes on.
 *
 * Checked: where the wake ends at the first item, some sleeper that the producer has counted came
 * before the removal was over. (Then the wake came before the removal.) A removed item is on no
 * list in the end, and its mark is clear.
 *
 * Weak memory: the store of dead waits in a store buffer; what is a read-modify-write waits for it,
 * as does the release of the mutex. The producer's loads are in order only where a barrier is.
 *
 * Broken variants: NO_LOOK (dead is not looked at after the sleepers), NO_LOOK_BARRIER (the
 * processor looks before), RELAXED (nothing waits for the store of dead), DEAD_LATE (dead is stored
 * after the mark was claimed), NO_WAIT (who removes does not wait for a producer that has marked and
 * not pushed).
 */
bit dead, dead_b;
bit marked, listed;
byte epoch;
byte sleepers;
/* The producer's RCU section. */
bit section;
byte busy;
/* Ghosts: the removal is over; who slept before that is counted as a sleeper. */
bit removed, early;

active proctype memory()
{
endm:	do
	:: d_step { dead_b -> dead_b = 0; dead = 1 }
	od
}

inline release()
{
#ifndef BROKEN_RELAXED
	!dead_b
#else
	skip
#endif
}

proctype producer()
{
	bit was, look, counted, told;
	byte at;

	section = 1;
	/* plx_item_queue: the mark, then dead. */
	do
	:: d_step { was = marked; at = epoch };
		if
		:: dead -> break
		:: !dead && was -> break
		:: !dead && !was ->
			if
			:: atomic { !marked && epoch == at -> marked = 1 };
				listed = 1;
				break
			:: marked || epoch != at
			fi
		fi
	od;
#ifdef BROKEN_NO_LOOK_BARRIER
	look = dead;
#endif
	atomic { counted = sleepers > 0; told = early };
	if
	:: !counted
	:: counted ->
#ifdef BROKEN_NO_LOOK
		look = 0;
#else
#ifndef BROKEN_NO_LOOK_BARRIER
		look = dead;
#endif
#endif
		assert(look || told)
	fi;
	section = 0;
	busy--
}

proctype remover()
{
	bit was;

#ifndef BROKEN_DEAD_LATE
	dead_b = 1;
#endif
	release();
	d_step { was = marked; marked = 1; epoch++ };
	if
	:: !was
	:: was && listed -> listed = 0
	:: was && !listed ->
#ifndef BROKEN_NO_WAIT
		!section;
#endif
		listed = 0
	fi;
#ifdef BROKEN_DEAD_LATE
	marked = 0;
	epoch++;
	/* It is over, and dead comes after that. */
	removed = 1;
	sleepers++;
	dead_b = 1;
#else
	release();
	d_step { marked = 0; epoch++ };
	release();
	removed = 1;
	release();
	sleepers++;
#endif
	busy--
}

proctype sleeper()
{
	if
	:: true
	:: atomic { true -> sleepers++; early = !removed };
		if
		:: true
		:: atomic { true -> sleepers--; early = 0 }
		fi
	fi;
	busy--
}

init {
	atomic {
		busy = 3;
		run producer();
		run remover();
		run sleeper()
	};
	busy == 0 && !dead_b;
	assert(!listed && !marked)
}
