/* SPDX-License-Identifier: MIT */
/*
 * A descriptor is sent while dup2 puts one of ours at its number.
 *
 * Mirrors: src/posix/table.c plx_sent_begin, plx_sent_end; src/posix/escape.c plx_px_escape_msg,
 * which spills under plx_table_lock and waits for those who change numbers; src/posix/fd.c plx_px_dup3. Two
 * calls send the number, one after the other, and two objects are put there in turn.
 *
 * Checked: what is sent is a file of the kernel's, never the placeholder of an object that is ours,
 * and both come to an end.
 *
 * Weak memory: the note and the slot are stored by read-modify-writes with full barriers, and each
 * looks at the other's after its own. Without a barrier the look may come before the store: so
 * CHECK_FIRST and LOOK_FIRST are that, too.
 *
 * Broken variants: CHECK_FIRST (the sender looks at the slot before he notes), LOOK_FIRST (dup2 looks
 * for a note before the slot is set, and not after), NO_LOOK (it does not look), ENDED_EARLY (the note
 * is taken back before the kernel has looked the number up), ONE_LOOK (the sender does not look at the
 * slot again: what he has found may have been taken back), NO_AWAIT (the sender's spill does not wait
 * for dup2 to leave).
 */

#define SENDINGS 2
#define OBJECTS 2

/* What the number means in the kernel; placeholder: of an object that is ours. */
#define OLD 0
#define PLACEHOLDER 1
#define KERNELS 2

byte number = OLD;
/* 0: nothing of ours; else the object, from 1. */
byte slot;
/* Kernel objects by now. */
bit gone[OBJECTS + 1];
byte noted;
bit inside, lock;

/* All numbers of the object become the kernel's. */
inline spill(f)
{
	atomic { !lock -> lock = 1 };
#ifndef BROKEN_NO_AWAIT
	!inside;
#endif
	d_step {
		gone[f] = 1;
		if
		:: slot == f ->
			slot = 0;
			if
			:: number == PLACEHOLDER -> number = KERNELS
			:: else
			fi
		:: else
		fi
	};
	lock = 0
}

active proctype sender()
{
	byte n, f, sent;

	do
	:: n == SENDINGS -> break
	:: else ->
		n++;
#ifdef BROKEN_CHECK_FIRST
		f = slot;
		noted++;
#else
		noted++;
		f = slot;
#endif
		do
		:: f ->
			spill(f);
#ifdef BROKEN_ONE_LOOK
			break;
#endif
			f = slot
		:: else -> break
		od;
#ifdef BROKEN_ENDED_EARLY
		noted--;
#endif
		sent = number;
		assert(sent != PLACEHOLDER);
#ifndef BROKEN_ENDED_EARLY
		noted--;
#endif
	od
}

active proctype dups()
{
	byte f, old;
	bit meets;

	do
	:: f == OBJECTS -> break
	:: else ->
		f++;
again:
		/* plx_table_enter. */
		atomic { !lock -> inside = 1 };
		meets = 0;
		if
		:: gone[f] ->
			/* The kernel's own. */
			number = KERNELS;
			slot = 0;
			inside = 0
		:: else ->
#ifndef BROKEN_NO_LOOK
			meets = noted > 0;
#endif
			if
			:: meets -> inside = 0
			:: else ->
				old = slot;
				slot = f;
#if !defined(BROKEN_NO_LOOK) && !defined(BROKEN_LOOK_FIRST)
				meets = noted > 0;
#endif
				if
				:: meets -> slot = old
				:: else -> number = PLACEHOLDER
				fi;
				inside = 0
			fi
		fi;
		if
		:: meets ->
			spill(f);
			goto again
		:: else
		fi
	od
}
