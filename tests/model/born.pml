/* SPDX-License-Identifier: MIT */
/*
 * The number of a process beside a fork.
 *
 * Mirrors: src/epoll/fork.c plx_born_slow. Threads of a process that has no number take one; at any
 * time it is forked, and the child, which finds the number wiped and all else as it was, takes one.
 *
 * Checked: all threads of a process agree; the child's number is not that which the parent had at the
 * fork. (What the parent makes later the child has not.)
 *
 * Broken variants: LOAD (the counter is read and written apart), LATE (it moves when the number is
 * there), OWN (who comes second returns what it has drawn).
 */

#define THREADS 3

byte numbers, born, child_numbers, child_born;
byte parent_born;
byte got[THREADS];

inline take(n, b, mine)
{
	if
	:: b -> mine = b
	:: else ->
#ifdef BROKEN_LOAD
		mine = n + 1;
		n = mine;
#else
#ifdef BROKEN_LATE
		mine = n + 1;
#else
		atomic { n++; mine = n };
#endif
#endif
		atomic {
			if
			:: b == 0 -> b = mine
#ifdef BROKEN_OWN
			:: else
#else
			:: else -> mine = b
#endif
			fi
		}
#ifdef BROKEN_LATE
		n = mine
#endif
	fi
}

proctype thread(byte me)
{
	byte mine;

	take(numbers, born, mine);
	assert(mine == born);
	got[me] = mine
}

active proctype forks()
{
	byte mine;

	atomic { child_numbers = numbers; parent_born = born };
	take(child_numbers, child_born, mine)
}

init
{
	atomic { run thread(0); run thread(1); run thread(2) };
	got[0] && got[1] && got[2] && child_born;
	assert(got[0] == got[1] && got[1] == got[2]);
	assert(child_born != parent_born)
}
