/* SPDX-License-Identifier: MIT */
/*
 * A reserve of memory whose lock is free in the child of a fork, whatever its holder was about.
 *
 * Mirrors: src/base/slab.c depot_get, fresh_chunk; src/base/mem.c block_new, arena_new. A thread
 * takes units of a chunk, and new chunks, one store after the other. At any time the process is
 * forked, and the child goes on with what it finds. A chunk is UNITS units, with a gap behind it; the
 * first may be taken once (plx_slab_near).
 *
 * Checked: the child has each unit once, and only those of chunks that there are.
 *
 * Broken variants: BEGIN_FIRST (what is taken moves the beginning first), LEFT_FIRST (a chunk's size
 * is there before its place), NEAR_LATE (the first chunk is noted when it is in use).
 */

#define UNITS 2
#define CHUNKS 3

byte left, fresh, used;
byte child_left, child_fresh, child_used;
#define AT(chunk) ((chunk) * (UNITS + 1))
bool had[AT(CHUNKS)];

inline chunk(l, f, u)
{
#ifdef BROKEN_NEAR_LATE
	f = AT(u);
	l = UNITS;
	u++
#else
	u++;
#ifdef BROKEN_LEFT_FIRST
	l = UNITS;
	f = AT(u - 1)
#else
	f = AT(u - 1);
	l = UNITS
#endif
#endif
}

inline cut(l, f, at)
{
	at = f;
#ifdef BROKEN_BEGIN_FIRST
	f = at + 1;
	l = l - 1
#else
	l = l - 1;
	f = at + 1
#endif
}

active proctype parent()
{
	byte at;

	do
	:: used == CHUNKS - 1 && left == 0 -> break
	:: else ->
		if
		:: left == 0 -> chunk(left, fresh, used)
		:: else
		fi;
		cut(left, fresh, at)
	od
}

active proctype child()
{
	byte at;

	atomic { child_left = left; child_fresh = fresh; child_used = used };
	do
	:: child_used == CHUNKS && child_left == 0 -> break
	:: else ->
		if
		:: child_left == 0 -> chunk(child_left, child_fresh, child_used)
		:: else
		fi;
		cut(child_left, child_fresh, at);
		assert(at < AT(child_used) && at % (UNITS + 1) != UNITS);
		assert(!had[at]);
		had[at] = true
	od
}
