/* SPDX-License-Identifier: MIT */
/*
 * Two items of one epoll whose producers are both stopped between mark and push: the help slots have
 * to serve both, also where there is one slot.
 *
 * Mirrors: src/epoll/ready.c plx_item_queue, plx_item_push, plx_ep_help (help_put, help_say),
 * plx_item_unmark, plx_help_take, plx_help_walk, plx_help_next; src/epoll/harvest.c harvest_help,
 * harvest_helped and the order of slots, splice and list in plx_ep_harvest.
 *
 * Checked, for edge-triggered items:
 *  - a harvest that starts after a write has returned delivers that item (with -DONE, where it may
 *    deliver one event only: delivers something), with every other producer stopped at any step;
 *  - with -DEDGES: item 0 gets not more events than writes, and each of them needs a write that had
 *    not returned when the previous harvest that delivered it began: neither help nor ALL makes an
 *    event out of nothing.
 *
 * The protocol: the helper sets the item's own flag `wanted`. If it finds the item kept it says SOME,
 * else it puts the item into a slot and says SOME, or says ALL if there is no slot left. The harvest
 * takes what was said, then the slots, whose items it keeps, then splices, then works off the list.
 * If ALL was said it keeps each item that is wanted. Then it takes the flags of the items that are
 * kept. A wanted item that the splice linked is delivered from the list and needs no help. An item is
 * no longer kept when it can be found without, and nobody wants it.
 *
 * Abstractions: the state of each file is a bit that is never read away (reading is covered by
 * no_lost_event.pml); the lists are one bit per item, their order does not matter here; items are
 * not primary (own mark word), so QUIET does not exist. EPOCH of the mark and `pops` are one
 * counter, moved in one step with the mark: no_lost_event.pml takes them apart. A poll of the epoll
 * (poll_help) is a harvest that finds no room. SLOTS slots; with -DSLOTS=2 nobody says ALL.
 * -DAGAIN: two writes of each producer, to item 0 alone, which may be kept when the second come.
 *
 * Broken variants: ALL_QUEUED (ALL delivers each item that is queued and not linked), OVERWRITE (a
 * helper overwrites the slot with its item), FLAG_LATE (flag set after the slot), SAY_FIRST (a helper
 * says SOME before it has put the item into the slot), KEPT_SILENT (it says nothing if the item is
 * kept), TAKE_LATE (the harvest takes what was said after the slots), FORGET (an item is not kept any
 * more though it is wanted), NOT_KEPT (nor once it was looked at, though its push has not come; that
 * breaks nothing and only costs looks), DROP (-DONE: help that found no room is not said again).
 */

#ifndef SLOTS
#define SLOTS 1
#endif

/* What was said. */
#define NONE 0
#define SOME 1
#define ALL 2

bit queued[2], incoming[2], linked[2], wanted[2], kept[2];
byte pops[2], pushed[2] = 255;
byte said, slot[SLOTS];

/*
 * Ghosts. made: a write has changed the state and is not delivered; must: and has returned; due:
 * and had returned when this harvest began. Counts for item 0: writes made, events delivered,
 * writes returned, returned when this harvest began, returned when the last harvest that delivered
 * the item began.
 */
byte made[4], must[2], due[2];
byte writes, events, returns, begun, told;

inline say()
{
	if
	:: said == NONE -> said = SOME
	:: else
	fi
}

/*
 * A write returns in one step with the last thing that it does, and a harvest begins in one step with
 * its first. Both only ask for more: an earlier return makes due and told no less, and so does a
 * later beginning. Nobody else looks at made[me] after the return.
 */
inline wrote()
{
#ifdef EDGES
	returns = returns + (1 - x);
#endif
	must[x] = must[x] || made[me];
	made[me] = 0;
	n--;
	if
	:: n > 0 -> goto next
	:: else -> goto endo
	fi
}

proctype producer(byte me; byte n)
{
	byte e, x = me / 2;
	bit q;

write:	atomic {
		made[me] = 1;
#ifdef EDGES
		writes = writes + (1 - x);
#endif
	};
load:	atomic {
		e = pops[x];
		if
		:: queued[x] -> goto marked
		:: else -> goto mark
		fi
	};
mark:	if
	:: atomic { pops[x] == e && !queued[x] -> queued[x] = 1 }
	:: atomic {
		!(pops[x] == e && !queued[x]) ->
		e = pops[x];
		if
		:: queued[x] -> goto marked
		:: else -> goto mark
		fi
	   }
	fi;
	atomic {
		assert(!incoming[x]);
		incoming[x] = 1;
	};
	atomic {
		pushed[x] = e;
		e = 0;
		wrote()
	};

marked:	if
	:: atomic { pushed[x] == e -> e = 0; wrote() }
	:: pushed[x] != e -> e = 0
	fi;
	atomic {
		q = kept[x];
#ifndef BROKEN_FLAG_LATE
		wanted[x] = 1
#endif
	};
#ifdef BROKEN_SAY_FIRST
	atomic { say() };
#endif
	if
	:: q ->
		q = 0;
#ifdef BROKEN_KEPT_SILENT
		goto helped
#else
		goto some
#endif
	:: else
	fi;
#ifdef BROKEN_OVERWRITE
	slot[0] = x + 1;
	goto some;
#endif
	/* Compare-and-swap; the value that made it fail is looked at. */
	if
	:: atomic { slot[0] == NONE -> slot[0] = x + 1; goto some }
	:: slot[0] == x + 1 -> goto some
	:: else
	fi;
#if SLOTS > 1
	if
	:: atomic { slot[1] == NONE -> slot[1] = x + 1; goto some }
	:: slot[1] == x + 1 -> goto some
	:: else
	fi;
#endif
#ifdef BROKEN_FLAG_LATE
	said = ALL;
	goto helped;
#else
	atomic { said = ALL; wrote() };
#endif

some:
#ifdef BROKEN_FLAG_LATE
	atomic { say() };
#elif defined(BROKEN_SAY_FIRST)
	atomic { wrote() };
#else
	atomic { say(); wrote() };
#endif

helped:
	atomic {
#ifdef BROKEN_FLAG_LATE
		wanted[x] = 1;
#endif
		wrote()
	};

next:	n > 0;
	goto write;
endo:	false
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

/* Nobody else looks at `linked`. */
inline splice()
{
	linked[0] = linked[0] || incoming[0];
	linked[1] = linked[1] || incoming[1];
	incoming[0] = 0;
	incoming[1] = 0
}

/* Slot n. */
inline take_slot(n)
{
	atomic {
		if
		:: slot[n] -> kept[slot[n] - 1] = 1; slot[n] = NONE
		:: else
		fi
	}
}

inline keep_wanted(n)
{
	atomic {
		if
		:: wanted[n] -> kept[n] = 1
		:: else
		fi
	}
}

/* What is only the harvester's to change, it reads in one step with what it has done before. */
active proctype harvester()
{
	byte i;
	bit got, take, second, taken[2];
	byte how;

#ifdef ONE
#define ROOM (!got)
#else
#define ROOM (1)
#endif
	atomic {
#ifdef AGAIN
		run producer(0, 2);
		run producer(1, 2);
#else
		run producer(0, 1);
		run producer(1, 1);
		run producer(2, 1);
		run producer(3, 1);
#endif
	};

endh:	do
	:: true ->
		/* plx_help_take */
		atomic {
			due[0] = must[0];
			due[1] = must[1];
#ifdef EDGES
			begun = returns;
#endif
			how = said;
#ifndef BROKEN_TAKE_LATE
			said = NONE
#endif
		};
		if
		:: how ->
			take_slot(0);
#if SLOTS > 1
			take_slot(1);
#endif
#ifdef BROKEN_TAKE_LATE
			atomic { how = said; said = NONE }
#endif
		:: else
		fi;
		/* Which of the two stands first in the list is not modelled: either. */
		atomic {
			splice();
			if
			:: linked[0] -> i = 0
			:: linked[1] -> i = 1
			:: !linked[0] && !linked[1] -> goto list_done
			fi
		};
each:		atomic {
			linked[i] = 0;
			queued[i] = 0;
			pops[i]++;
			/* The poll that follows answers who asked for help too. */
			wanted[i] = 0;
			taken[i] = 1
		};
		atomic {
			deliver(i);
			i = 1 - i;
			if
			:: linked[i] && ROOM
			:: else -> goto list_done
			fi
		};
		goto each;
list_done:
		/* harvest_help */
		if
		:: how == ALL -> keep_wanted(0); keep_wanted(1)
#ifdef BROKEN_ALL_QUEUED
			; kept[0] = kept[0] || queued[0]; kept[1] = kept[1] || queued[1]
#endif
		:: else
		fi;
		atomic {
			if
			:: how && kept[0] -> i = 0
			:: how && kept[1] -> i = 1
			:: else -> goto help_done
			fi
		};
help:
		if
		:: kept[i] && !linked[i] && !taken[i] ->
			if
			:: ROOM ->
				/* Taken off the list since it was asked for: that was the answer. */
				atomic {
#ifdef BROKEN_ALL_QUEUED
					take = wanted[i] || how == ALL;
#else
					take = wanted[i];
#endif
					wanted[i] = 0
				};
				if
				:: atomic { take && queued[i] -> take = 0; deliver(i) }
				:: else -> take = 0
				fi
			:: else ->
#ifndef BROKEN_DROP
				if
				:: atomic { wanted[i] -> say() }
				:: else
				fi
#else
				skip
#endif
			fi
		:: else
		fi;
		/* plx_help_next */
		if
		:: kept[i] ->
#ifdef BROKEN_NOT_KEPT
			take = 1;
#else
			take = linked[i] || !queued[i] || pushed[i] == pops[i];
#endif
			atomic {
				if
#ifdef BROKEN_FORGET
				:: take -> kept[i] = 0
#else
				:: take && (linked[i] || !wanted[i]) -> kept[i] = 0; wanted[i] = 0
#endif
				:: else
				fi
			}
		:: else
		fi;
		if
		:: !second -> second = 1; i = 1 - i; goto help
		:: else -> second = 0
		fi;
help_done:
		atomic {
			splice();
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
			taken[0] = 0;
			taken[1] = 0;
			how = 0;
		}
	od
}
