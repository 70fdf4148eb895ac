/* SPDX-License-Identifier: MIT */
/*
 * The first reader of a pipe takes no turns as long as it is alone, and no reader stores bytes that
 * another one takes.
 *
 * Mirrors: src/source/pipe.c reader_begin, reader_end, plx_pipe_try_read, read_in_turn. Thread A is
 * the reader and reads twice; two others come, at any time, and read once.
 *
 * Checked: from a reader's copy to its taking nobody else takes; everybody comes to an end.
 *
 * Weak memory: reading is a plain store that waits in A's store buffer, of one place; locked steps
 * and full barriers wait for it. The heavy barrier drains it for another thread. The light one is
 * the compiler's alone.
 *
 * Abstractions: writers only add, so a swap that fails for them is done again; who freezes the pipe
 * does what another reader does before its turn. A handler on top of A's own read has no part in it.
 *
 * Broken variants: NO_LIGHT (the look comes before the store of reading), NO_HEAVY (no barrier in
 * A's thread), NO_LOOK (A looks once, before it says that it is reading), NO_AWAIT (the end of A's
 * read is not waited for), NO_SHARING (SHARED is said before that end, so that the next does not
 * wait for it), NO_TURNS (several readers without the lock), ENDED_EARLY (A's read is over before
 * it takes).
 */

#define ALONE 0
#define SHARING 1
#define SHARED 2

byte reader = ALONE;
bit reading, reading_buf, reading_full;
bit lock;
/* How often somebody has taken. */
byte taken;
byte over;

inline drain()
{
	d_step {
		if
		:: reading_full ->
			reading = reading_buf;
			reading_full = 0
		:: else
		fi
	}
}

inline store_reading(v)
{
	d_step {
		if
		:: reading_full -> reading = reading_buf
		:: else
		fi;
		reading_buf = v;
		reading_full = 1
	}
}

active proctype memory()
{
endm:	do
	:: d_step {
		reading_full ->
		reading = reading_buf;
		reading_full = 0
	}
	od
}

/* A locked step: of A what was stored before is visible with it. */
inline copy_and_take(a)
{
	seen = taken;
	atomic {
		if
		:: a -> drain()
		:: else
		fi;
		assert(taken == seen);
		taken++
	}
}

inline reader_end()
{
	atomic {
		if
		:: reader == ALONE ->
#ifdef BROKEN_NO_SHARING
			reader = SHARED;
			first = 1
#else
			reader = SHARING
#endif
		:: else
		fi
	};
	if
	:: reader == SHARED && !first
	:: else ->
#ifndef BROKEN_NO_HEAVY
		drain();
#endif
#ifndef BROKEN_NO_AWAIT
		!reading;
#endif
		reader = SHARED
	fi
}

inline in_turn(a)
{
	reader_end();
#ifndef BROKEN_NO_TURNS
	atomic { !lock -> lock = 1 };
#endif
	copy_and_take(a);
	lock = 0
}

active proctype A()
{
	byte rounds = 2, seen, who;
	bit first;

	do
	:: rounds == 0 -> break
	:: else ->
		rounds--;
		if
		:: reader == ALONE ->
#if defined(BROKEN_NO_LIGHT)
			who = reader;
			store_reading(1);
#else
			store_reading(1);
			who = reader;
#endif
#ifdef BROKEN_NO_LOOK
			who = ALONE;
#endif
			if
			:: who == ALONE ->
#ifdef BROKEN_ENDED_EARLY
				seen = taken;
				store_reading(0);
				atomic {
					drain();
					assert(taken == seen);
					taken++
				}
#else
				copy_and_take(1);
				store_reading(0)
#endif
			:: else ->
				store_reading(0);
				drain();
				in_turn(1)
			fi
		:: else -> in_turn(1)
		fi
	od;
	over++
}

active [2] proctype other()
{
	byte seen;
	bit first;

	in_turn(0);
	over++
}

active proctype end()
{
	over == 3;
	assert(taken == 4)
}
