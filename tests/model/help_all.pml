/* SPDX-License-Identifier: MIT */
/*
 * Two items of one epoll whose producers are both stopped between mark and push: the one help slot
 * has to serve both.
 *
 * Mirrors: src/epoll/ready.c plx_item_queue, plx_item_push, plx_ep_help (slot: none, one item, or
 * ALL) and plx_item_unmark; src/epoll/harvest.c harvest_take_help, harvest_help, harvest_helped and
 * the order of slot, splice and list in plx_ep_harvest.
 *
 * Checked, for edge-triggered items:
 *  - a harvest that starts after a write has returned delivers that item (with -DONE, where it may
 *    deliver one event only: delivers something), with every other producer stopped at any step;
 *  - with -DEDGES: item 0 gets not more events than writes, and each of them needs a write that had
 *    not returned when the previous harvest that delivered it began: neither help nor ALL makes an
 *    event out of nothing.
 *
 * The protocol: the helper sets the item's own flag `wanted`, then puts the item, or ALL if another
 * one is there, into the slot. The harvest takes the slot, then splices, then takes the flags: of
 * the item in the slot, or of each item if the slot said ALL. A wanted item that the splice linked
 * is delivered from the list and needs no help.
 *
 * Abstractions: the state of each file is a bit that is never read away (reading is covered by
 * no_lost_event.pml); the lists are one bit per item, their order does not matter here; items are
 * not primary (own mark word), so QUIET does not exist. EPOCH of the mark and `pops` are one
 * counter, moved in one step with the mark: no_lost_event.pml takes them apart. In C the list is
 * worked off before the slot; here each item has its turn in any order, which includes that.
 *
 * Broken variants: ALL_PUSHED (ALL looks at queued, not pushed and not linked instead of a flag),
 * ALL_QUEUED (ALL delivers each item that is queued and not linked), OVERWRITE (a helper overwrites
 * the slot with its item), FLAG_LATE (flag set after the slot),
 * DROP (-DONE: help that found no room
 * is not put back).
 */

#define NONE 0
#define ALL 3

bit queued[2], incoming[2], linked[2], wanted[2];
byte pops[2], pushed[2] = 255;
byte slot;

/*
 * Ghosts. made: a write has changed the state and is not delivered; must: and has returned; due:
 * and had returned when this harvest began. Counts for item 0: writes made, events delivered,
 * writes returned, returned when this harvest began, returned when the last harvest that delivered
 * the item began.
 */
byte made[4], must[2], due[2];
byte writes, events, returns, begun, told;

proctype producer(byte me; byte n)
{
	byte e, x = me / 2;
	bit q;


	do
	:: n == 0 -> break
	:: else ->
		n--;
		d_step {
			made[me] = 1;
#ifdef EDGES
			writes = writes + (1 - x);
#endif
		}
		atomic { e = pops[x]; q = queued[x]; }
		do
		:: q ->
			if
			:: pushed[x] == e
			:: pushed[x] != e ->
#ifndef BROKEN_FLAG_LATE
				wanted[x] = 1;
#endif
				/* Compare-and-swap; the value that made it fail is looked at. */
#ifdef BROKEN_OVERWRITE
				slot = x + 1;
#else
				atomic {
					if
					:: slot == NONE -> slot = x + 1; goto helped
					:: slot == x + 1 -> goto helped
					:: else
					fi
				}
				slot = ALL;
#endif
helped:
#ifdef BROKEN_FLAG_LATE
				wanted[x] = 1
#else
				skip
#endif
			fi;
			break
		:: else ->
			atomic {
				if
				:: pops[x] == e && !queued[x] -> queued[x] = 1
				:: else -> e = pops[x]; q = queued[x]; goto again
				fi
			}
			atomic {
				assert(!incoming[x]);
				incoming[x] = 1;
			}
			pushed[x] = e;
			break;
again:			skip
		od;
		atomic {
#ifdef EDGES
			returns = returns + (1 - x);
#endif
			must[x] = must[x] || made[me];
			e = 0;
			q = 0;
		}
	od
}

inline deliver(i)
{
	atomic {
#ifdef EDGES
		if
		:: i == 0 ->
			events++;
			assert(events <= writes && writes > told);
			told = begun
		:: else
		fi;
#endif
		due[i] = 0;
		must[i] = 0;
		made[2 * i] = 0;
		made[2 * i + 1] = 0;
		got = 1;
	}
}

inline splice()
{
	atomic {
		linked[0] = linked[0] || incoming[0];
		linked[1] = linked[1] || incoming[1];
		incoming[0] = 0;
		incoming[1] = 0;
	}
}

active proctype harvester()
{
	byte i;
	bit got, take, second;
	byte s;

#ifdef ONE
#define ROOM (!got)
#else
#define ROOM (1)
#endif
	run producer(0, 1);
	run producer(1, 1);
	run producer(2, 1);
	run producer(3, 1);

endh:	do
	:: true ->
		d_step {
			due[0] = must[0];
			due[1] = must[1];
#ifdef EDGES
			begun = returns;
#endif
			got = 0;
		}
		atomic { s = slot; slot = NONE; }
		splice();
		/* Which of the two stands first in the list is not modelled: either. */
		if
		:: true -> i = 0
		:: true -> i = 1
		fi;
each:
		take = 0;
		if
		:: linked[i] && ROOM ->
			atomic {
				linked[i] = 0;
				queued[i] = 0;
				pops[i]++;
				/* The poll that follows answers who asked for help too. */
				wanted[i] = 0;
			}
			deliver(i)
		:: linked[i] && !ROOM
		:: !linked[i] ->
			if
			:: s == i + 1 ->
				take = 1
			:: s == ALL ->
#ifdef BROKEN_ALL_PUSHED
				take = queued[i] && pushed[i] != pops[i]
#else
#ifdef BROKEN_ALL_QUEUED
				take = queued[i]
#else
				take = 1
#endif
#endif
			:: else
			fi;
			if
			:: take && ROOM ->
#if !defined(BROKEN_ALL_PUSHED) && !defined(BROKEN_ALL_QUEUED)
				/* Taken off the list since it was asked for: that was the answer. */
				atomic { take = wanted[i]; wanted[i] = 0; }
				take = take && queued[i];
#endif
				if
				:: take -> deliver(i)
				:: else
				fi
			:: take && !ROOM ->
#ifndef BROKEN_DROP
				atomic {
					if
					:: !wanted[i] -> skip
					:: wanted[i] && (slot == NONE || slot == i + 1) ->
						slot = i + 1
					:: else -> slot = ALL
					fi
				}
#else
				skip
#endif
			:: else
			fi
		fi;
		if
		:: !second -> second = 1; i = 1 - i; goto each
		:: second -> second = 0
		fi;
		splice();
		atomic {
#ifdef ONE
			assert(got || (!due[0] && !due[1]));
#else
			assert(!due[0] && !due[1]);
#endif
			due[0] = 0;
			due[1] = 0;
			got = 0;
			i = 0;
			take = 0;
			s = 0;
		}
	od
}
