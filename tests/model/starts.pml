/* SPDX-License-Identifier: MIT */
/*
 * A thread starts a program beside one that makes an object, and writes to it.
 *
 * Mirrors: src/preload/inherit.c begin, plx_after_start; src/preload/fork.c plx_vfork_enter,
 * plx_vfork_over; src/cache/table.c plx_table_made; src/cache/note.c plx_cold_made,
 * plx_cold_end_all; src/cache/escape.c plx_px_escape_inherited; src/cache/fd.c becomes_inherited.
 *
 * The maker's object is inherited from its making on, or from an fcntl on. The starter looks at
 * what is there, and the kernel copies what is inherited then.
 *
 * Checked: what the new program has inherited is never cached, neither when it is copied nor later.
 *
 * Memory: each step is a locked one, or stands behind a full barrier.
 *
 * Broken variants: NO_CHANGE (a start is no change), LOOK_FIRST (it looks before the change begins),
 * OVER_EARLY (the change is over before the copy), NO_CHECK (who makes does not look for changes),
 * SINCE_LATE (he reads what they were after the making), COUNTED (the starter looks only if something
 * has been counted), SET_ONLY (fcntl makes an object inherited that is cached), COLD (the starter
 * takes out what is cached alone, and leaves what may be cached later).
 */

/* The object: it is there, inherited, with an entry or a note, cached, the kernel's for good. */
bit open, inherits, known, cached, for_good, copied;
byte begun, over, counted;

/* The invariant. */
#define SAFE (!(copied && cached))

inline escapes()
{
	atomic { cached = 0; known = 0; for_good = 1 }
}

inline look()
{
#ifdef BROKEN_COUNTED
	if
	:: counted == 0
	:: else ->
#endif
	if
#ifdef BROKEN_COLD
	:: atomic { cached && inherits -> cached = 0; known = 0; for_good = 1 }
#else
	:: atomic { known && inherits -> cached = 0; known = 0; for_good = 1 }
#endif
	:: else
	fi
#ifdef BROKEN_COUNTED
	fi
#endif
}

proctype starter()
{
#ifdef BROKEN_LOOK_FIRST
	look();
#endif
#ifndef BROKEN_NO_CHANGE
	begun++;
#endif
#ifndef BROKEN_LOOK_FIRST
	look();
#endif
#if defined(BROKEN_OVER_EARLY)
	over++;
#endif
	atomic { copied = open && inherits; assert(SAFE) };
#if !defined(BROKEN_NO_CHANGE) && !defined(BROKEN_OVER_EARLY)
	over++
#endif
}

proctype maker()
{
	byte since;
	bit later;

	if
	:: later = 0
	:: later = 1
	fi;
#ifndef BROKEN_SINCE_LATE
	since = over;
#endif
	atomic { open = 1; inherits = !later };
#ifdef BROKEN_SINCE_LATE
	since = over;
#endif
	known = 1;
#ifndef BROKEN_NO_CHECK
	if
	:: begun != since -> atomic { known = 0; for_good = 1 }
	:: else
	fi;
#endif
	counted = 1;
	/* It is written to until it is hot. */
	if
	:: atomic { known -> cached = 1; assert(SAFE) }
	:: else
	fi;
	if
	:: later ->
#ifndef BROKEN_SET_ONLY
		escapes();
#endif
		atomic { inherits = 1; assert(SAFE) }
	:: else
	fi;
	if
	:: atomic { known && !for_good -> cached = 1; assert(SAFE) }
	:: else
	fi
}

init {
	atomic {
		run maker();
		run starter()
	}
}
