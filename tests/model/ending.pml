/* SPDX-License-Identifier: MIT */
/*
 * Adoption ends, by two threads at once, beside one that makes an object, or the entries of those
 * that it has found.
 *
 * Mirrors: src/preload/init.c plx_stop_adopting_descriptors; src/preload/liburing.c plx_uring;
 * src/cache/table.c plx_table_made; src/cache/eventfd.c plx_px_eventfd; src/cache/note.c
 * plx_cold_found; src/cache/escape.c plx_px_ends, plx_px_escape_all, plx_all_out.
 *
 * Checked: once who ends adoption and who makes the object have returned, no entry is left that is
 * in process, and no later look at all is left out for one.
 *
 * Memory: each step is a locked one, or stands behind a full barrier.
 *
 * Broken variants: NO_CHANGE (the end is no change), NO_LOOK (who makes an entry does not look for
 * changes), SINCE_LATE (he reads what they were after he has looked for the end), MARK_LATE (the
 * change begins before the end is said, and is over by then), EARLY (the second to end returns when
 * the first has begun), COUNT_FIRST (what is made is counted before it has its entry), COUNTED (who
 * ends goes by what has been counted).
 */

bit ended, out, entry, made;
byte begun, over, counted, all_out;

inline count() { counted++ }

inline escape_all(adopted)
{
	adopted = counted;
	if
	:: adopted == all_out
	:: else ->
		entry = 0;
		all_out = adopted
	fi
}

inline ends(adopted)
{
#ifdef BROKEN_COUNTED
	escape_all(adopted);
#else
	adopted = counted;
	entry = 0;
	all_out = adopted;
#endif
}

proctype maker()
{
	byte since;

#ifdef BROKEN_SINCE_LATE
	if
	:: ended -> goto done
	:: else
	fi;
	since = over;
#else
	since = over;
	if
	:: ended -> goto done
	:: else
	fi;
#endif
#ifdef BROKEN_COUNT_FIRST
	count();
#endif
	entry = 1;
#ifndef BROKEN_NO_LOOK
	if
	:: begun != since -> entry = 0; goto done
	:: else
	fi;
#endif
#ifndef BROKEN_COUNT_FIRST
	count();
#endif
done:
	atomic { made = 1; assert(!entry || counted != all_out) }
}

proctype ender()
{
	byte adopted;

	if
#ifdef BROKEN_EARLY
	:: ended
#else
	:: out
#endif
	:: else ->
#ifdef BROKEN_MARK_LATE
		begun++;
		ends(adopted);
		over++;
		ended = 1;
#else
		ended = 1;
#ifndef BROKEN_NO_CHANGE
		begun++;
#endif
		ends(adopted);
#ifndef BROKEN_NO_CHANGE
		over++;
#endif
#endif
		out = 1
	fi;
	atomic { assert(!made || !entry) };
	made == 1;
	assert(!entry)
}

/* It takes all out before, for a reason of its own, and ends nothing. */
proctype other()
{
	byte adopted;

	escape_all(adopted)
}

init {
	atomic {
		run maker();
		run ender();
		run ender();
		run other()
	}
}
