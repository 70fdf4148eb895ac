/* SPDX-License-Identifier: MIT */
/*
 * An epoll's doorbell, whose number the program wants, while its marker changes, or the epoll leaves.
 *
 * Mirrors: src/posix/epoll.c doorbell_moved, marker_change, plx_front_unbell; src/posix/table.c
 * plx_fd_evict, move_away; src/posix/spill.c front_give_up. The number moves once, from OLD to
 * NEW; the kernel may refuse the new one, as at its limit of watches. The marker changes two times.
 * The epoll leaves, or not.
 *
 * Checked: until the epoll leaves, what is rung is always heard, by one registration at least; when
 * all is over there is one, by the number that it has, with the marker that the front knows. Of an
 * epoll that has left there is none. Where the new number was refused the old registration stays,
 * and is out of reach: what has its marker is known no more if that changes, which takes a program
 * that chooses the same 64 random bits twice. That is left out.
 *
 * Weak memory: the stores of the number and of the marker wait in store buffers, until their author
 * makes a barrier or gives up a lock.
 *
 * Broken variants: NO_MOVE_BARRIER, NO_MARK_BARRIER (none between the own store and the look at the
 * other's), NO_MOVE_LOOK (who moves it does not look at the marker again), ONE_LOOK (he does
 * once, and not after what he has done then), DEL_FIRST (the old registration goes before the new one
 * is there), DEL_REFUSED (it goes also if the new one was refused), UNLOCKED (who ends the doorbell
 * does so while it moves), NO_END (a registration that is out of reach is left), SPILLED_LATE
 * (front.spilled is set after that).
 */
#define OLD 0
#define NEW 1
#define FIRST 1
#define LAST 3

/* Registrations: the marker of each, or 0. */
byte reg[2] = { FIRST, 0 };
bit front_lock, hidden_lock, refused, stands = 1, spilled;
byte number = OLD, number_b = OLD;
byte marker = FIRST, marker_b = FIRST;

inline take(l) { atomic { !l -> l = 1 } }

inline number_seen() { number = number_b }
inline marker_seen() { marker = marker_b }

/* Store buffers. */
proctype memory()
{
endm:	do
	:: atomic { number != number_b -> number_seen() }
	:: atomic { marker != marker_b -> marker_seen() }
	od
}

/* With hidden_lock. */
inline moved()
{
	if
	:: !stands -> number_b = NEW
	:: stands ->
		seen = marker;
#ifdef BROKEN_DEL_FIRST
		reg[OLD] = 0;
#endif
		if
		:: reg[NEW] = seen
		:: refused = 1
		fi;
		number_b = NEW;
		if
#ifndef BROKEN_DEL_REFUSED
		:: refused
		:: !refused ->
#else
		:: true ->
#endif
#ifndef BROKEN_NO_MOVE_BARRIER
			number_seen();
#endif
			do
#ifdef BROKEN_NO_MOVE_LOOK
			:: break
#else
			:: marker == seen -> break
			:: marker != seen ->
				seen = marker;
				d_step {
					if
					:: reg[NEW] -> reg[NEW] = seen
					:: else
					fi
				}
#ifdef BROKEN_ONE_LOOK
				break
#endif
#endif
			od;
			reg[OLD] = 0
		fi
	fi
}

proctype mover()
{
	byte seen;

	take(hidden_lock);
	moved();
	number_seen();
	hidden_lock = 0
}

proctype changer()
{
	byte at, to = FIRST;

	do
	:: to == LAST -> break
	:: to < LAST ->
		take(front_lock);
		to++;
		marker_b = to;
#ifndef BROKEN_NO_MARK_BARRIER
		marker_seen();
#endif
		at = number;
		d_step {
			if
			:: reg[at] -> reg[at] = to
			:: else
			fi
		};
		marker_seen();
		front_lock = 0
	od
}

proctype leaver()
{
	bit out;

	if
	:: skip
	:: take(front_lock);
#ifndef BROKEN_SPILLED_LATE
		spilled = 1;
#endif
#ifndef BROKEN_UNLOCKED
		take(hidden_lock);
#endif
		d_step {
			if
			:: reg[number] -> reg[number] = 0
			:: else -> out = 1
			fi
		};
		stands = 0;
#ifndef BROKEN_UNLOCKED
		hidden_lock = 0;
#endif
#ifdef BROKEN_SPILLED_LATE
		spilled = 1;
#endif
#ifndef BROKEN_NO_END
		if
		:: out -> d_step { reg[OLD] = 0; reg[NEW] = 0 }
		:: else
		fi;
#endif
		front_lock = 0
	fi
}

/* Rings at any time. */
proctype producer()
{
	assert(spilled || !stands || reg[OLD] || reg[NEW])
}

init {
	atomic {
		run memory();
		run mover();
		run changer();
		run leaver();
		run producer()
	};
	_nr_pr == 2 && number == number_b && marker == marker_b;
	if
	:: spilled -> assert(!reg[OLD] && !reg[NEW])
	:: !spilled && refused -> assert(reg[OLD] && !reg[NEW])
	:: else -> assert(!reg[OLD] && reg[NEW] == marker)
	fi
}
