/* SPDX-License-Identifier: MIT */
/*
 * The actions of one signal: several threads set them, one is given the signal, and forks copy what
 * there is at any step.
 *
 * Mirrors: src/preload/signal.c place_of, set_action, replace, reset. The kernel's action is one word,
 * which a system call exchanges: 0, the default, or the entry of a place. Action 1 is the default from
 * its first call on. Steps are sequentially consistent: the claim of a place and a system call are
 * full barriers.
 *
 * Checked: who is called by an entry finds the action that was set last when the signal came, and so
 * does the child of a fork; an exchange returns the one before, unless a default is being put in its
 * place just then; at the end the kernel has the one that was set last.
 *
 * Broken variants: ENTRY_FIRST (the kernel is given the entry before the place is written), NO_CLAIM
 * (a free place is written without a claim), REUSE (a place that the kernel does not name is written
 * again), NO_BACK (what came in between is not put in again), BACK_ONCE (what comes in between then is
 * not).
 */

#define PLACES 5
#define FREE 0
#define WRITING 1
#define READY 2

byte state[PLACES], value[PLACES];
byte kernel, set_last;
bit replaces;
byte ends;

/* What an entry stands for. */
#define STANDS(e) (e -> value[(e -> e - 1 : 0)] : 0)

inline find(id, p)
{
	p = 0;
	do
	:: p < PLACES ->
#ifdef BROKEN_REUSE
		atomic {
			if
			:: kernel != p + 1 && state[p] != WRITING -> state[p] = WRITING; mine = 1
			:: else -> mine = 0
			fi
		}
#else
#ifdef BROKEN_NO_CLAIM
		mine = state[p] == FREE;
#else
		atomic {
			mine = state[p] == FREE;
			if
			:: mine -> state[p] = WRITING
			:: else
			fi
		}
#endif
#endif
		if
		:: mine ->
#ifndef BROKEN_ENTRY_FIRST
			value[p] = id;
			state[p] = READY;
#endif
			break
		:: else ->
			if
			:: atomic { state[p] == READY && value[p] == id -> break }
			:: else -> p++
			fi
		fi
	od
}

inline set(id)
{
	find(id, p);
	assert(p < PLACES);
	atomic {
		was = kernel;
		kernel = p + 1;
		before = set_last;
		set_last = id;
		told = !replaces
	}
#ifdef BROKEN_ENTRY_FIRST
	value[p] = id;
	state[p] = READY;
#else
	assert(!told || STANDS(was) == before)
#endif
}

proctype setter(byte second)
{
	byte p, was, before;
	bit mine, told;

	set(1);
	set(second);
	ends++
}

proctype called()
{
	byte e, expected, from, to, was, i;

	for (i : 1 .. 2) {
		atomic {
			kernel != 0 || ends == 2;
			e = kernel;
			expected = set_last
		}
		if
		:: e == 0 -> break
		:: else
		fi;
		assert(state[e - 1] == READY);
		assert(value[e - 1] == expected);
		if
		:: expected == 1 && kernel == e ->
			from = e;
			to = 0;
			do
			:: atomic {
				was = kernel;
				kernel = to;
				replaces = was != from;
				if
				:: was == from && to == 0 -> set_last = 0
				:: else
				fi
			   };
#ifdef BROKEN_NO_BACK
			   replaces = 0;
			   break
#endif
			   if
			   :: was == from -> break
			   :: else
			   fi;
#ifdef BROKEN_BACK_ONCE
			   kernel = was;
			   replaces = 0;
			   break;
#endif
			   from = to;
			   to = was
			od
		:: else
		fi
	}
	ends++
}

proctype child()
{
	atomic {
		assert(replaces || kernel == 0 || state[kernel - 1] == READY);
		assert(replaces || STANDS(kernel) == set_last)
	}
}

init {
	atomic {
		run setter(2);
		run setter(3);
		run called();
		run child()
	}
	ends == 3;
	assert(STANDS(kernel) == set_last)
}
