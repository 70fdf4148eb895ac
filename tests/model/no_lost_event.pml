/* SPDX-License-Identifier: MIT */
/*
 * No event is lost between the writers of one eventfd and the harvest of one epoll.
 *
 * Mirrors: src/epoll/file.c plx_file_add and item_wake, src/epoll/ready.c plx_item_queue,
 * plx_item_push, plx_ep_help and plx_item_try_quiet (producer below); plx_ready_splice,
 * plx_item_unmark and plx_item_remark with plx_ep_harvest, harvest_one and harvest_helped of
 * src/epoll/harvest.c (harvester below).
 *
 * Checked:
 *  - a write that has returned is found by every harvest that starts afterwards (with time-out 0):
 *    ET until it is delivered once, LT in each harvest until the count is read (EP-RDY-18). This
 *    holds with the other producer stopped at any step for ever: all claims are assertions, so an
 *    execution in which a process is never scheduled again is one of those searched;
 *  - ET: not more events are delivered than writes were made (EP-RDY-06); with -DEDGES also: each
 *    event needs a write that had not returned when the previous delivering harvest began
 *    (EP-RDY-07, EP-RDY-08);
 *  - the item is never pushed while it is on the incoming stack and never on both lists.
 *
 * Abstractions:
 *  - One item, so the stack and the ordered list are one bit each. The push is then one step: its
 *    preparation (next = head) is private to the producer until the compare-and-swap succeeds.
 *  - Several harvests at once are one looping harvester: the epoll's mutex serialises them.
 *  - Each access to a shared word is one step in program order. The two places where a weak memory
 *    order would matter have a full barrier in C (state change before the mark is read; dequeue
 *    before the poll); the variants READ_EARLY and POLL_FIRST show what their absence does.
 *  - The choice between the folded compare-and-swap and the plain add depends on the watches; here
 *    it is free, which includes both.
 *  - Epoch and pops do not wrap: the number of dequeues is bounded by the number of writes.
 *  - The lock-free look with which plx_ep_harvest begins is not modelled; no room in the buffer of
 *    the harvest, and two items, are help_all.pml.
 *  - Reads happen in a process of their own, at any time. Waking sleepers is no_lost_wake.pml, the
 *    conditions of QUIET are quiet.pml; here the conditions hold always.
 *
 * -DLT: level-triggered item. -DNONPRIMARY: the item has its own mark word, no QUIET.
 * Broken variants: POLL_FIRST, READ_EARLY, NO_HELP, HELP_DEQUEUES, HELP_NOT_REARMED (LT),
 * NO_EPOCH, POPS_LATE (counted after the mark is clear), PUSHED_FIRST, NO_SECOND_POLL (LT),
 * NO_HELP_AFTER_RACE (LT), QUIET_UNPUSHED (QUIET without a look at pushed), SPLICE_FIRST (slot
 * taken after the splice), FLAG_LATE (wanted set after the slot). SPLICE_FIRST breaks nothing that
 * this model can show; the order is kept for the argument in ready.c.
 */

byte cnt, epoch;
bit queued, quiet;
byte pops;

byte pushed = 255;
bit incoming, ordered, help, wanted;

/* Ghosts: made = write has changed the state, must = write has returned, due = what the harvest
 * that runs now has to find. */
bit made[2], must[2], due[2];
byte writes, events;
/* Writes that had returned when this harvest began, and when the last one that delivered began. */
byte returns, begun, told;
byte running = 2;

#ifndef WRITES
#define WRITES 1
#endif

inline deliver()
{
	events++;
	got = 1;
	due[0] = 0;
	due[1] = 0;
#ifndef LT
	assert(events <= writes);
#ifdef EDGES
	assert(writes > told);
	told = begun;
#endif
	made[0] = 0;
	made[1] = 0;
	must[0] = 0;
	must[1] = 0;
#else
	events = 0;
#endif
}

#ifdef NONPRIMARY
#define SAME_WORD (epoch == e && !queued)
#define SAME_QUEUED (0)
#else
#define SAME_WORD (epoch == e && !queued && cnt == c && quiet == qt)
#define SAME_QUEUED (epoch == e && queued && cnt == c && quiet == qt)
#endif

proctype producer(bit me; byte n)
{
	byte e, c, p;
	bit q, qt;

	do
	:: n == 0 -> break
	:: else ->
		n--;
#ifdef BROKEN_READ_EARLY
		atomic { e = epoch; q = queued; qt = quiet; c = cnt + 1; }
#endif
		if
		:: atomic {
			cnt++;
			writes++;
			made[me] = 1;
			qt = quiet;
		   }
		   if
		   :: qt -> goto returned
		   :: skip
		   fi
#ifndef NONPRIMARY
		/* State change and mark folded in one compare-and-swap. */
		:: atomic { !queued -> e = epoch; qt = quiet; c = cnt; }
		   p = pops;
		   atomic {
			if
			:: SAME_WORD ->
				cnt++;
				writes++;
				made[me] = 1;
				queued = 1;
				goto push
			:: else -> cnt++; writes++; made[me] = 1; qt = quiet
			fi
		   }
		   if
		   :: qt -> goto returned
		   :: else
		   fi
#endif
		fi;
#ifdef BROKEN_READ_EARLY
		goto loaded;
#endif
retry:
		atomic { e = epoch; q = queued; qt = quiet; c = cnt; }
loaded:
		p = pops;
		if
		:: q ->
			if
			:: pushed == p
			:: pushed != p ->
#ifndef BROKEN_NO_HELP
#ifdef BROKEN_FLAG_LATE
				help = 1;
				wanted = 1
#else
				wanted = 1;
				help = 1
#endif
#else
				skip
#endif
			fi;
#ifndef NONPRIMARY
			/* After the wake: the later writers need not look. */
			atomic { e = epoch; q = queued; qt = quiet; c = cnt; }
			p = pushed;
			if
#ifdef BROKEN_QUIET_UNPUSHED
			:: q && !qt ->
#else
			:: q && !qt && p == pops ->
#endif
				atomic {
					if
					:: SAME_QUEUED -> quiet = 1
					:: else
					fi
				}
			:: else
			fi;
#endif
			goto returned
		:: else
		fi;
		atomic {
			if
			:: SAME_WORD -> queued = 1
			:: else -> goto retry
			fi
		}
push:
#ifdef BROKEN_PUSHED_FIRST
		pushed = p;
#endif
		atomic {
			assert(!incoming);
			incoming = 1;
		}
		pushed = p;
returned:
		atomic {
			must[me] = made[me];
#ifdef EDGES
			returns++;
#endif
			e = 0;
			c = 0;
			p = 0;
			q = 0;
			qt = 0;
		}
	od;
	running--
}

/* read(2) of the eventfd: whatever was not yet told is no longer true. */
active proctype reader()
{
endr:	do
	:: d_step {
		cnt > 0 ->
		cnt = 0;
		made[0] = 0;
		made[1] = 0;
		must[0] = 0;
		must[1] = 0;
		due[0] = 0;
		due[1] = 0;
	   }
	od
}

inline splice()
{
	atomic {
		if
		:: incoming ->
			assert(!ordered);
			incoming = 0;
			ordered = 1
		:: else
		fi
	}
}

inline dequeue()
{
#ifndef BROKEN_POPS_LATE
	atomic { ordered = 0; pops++; }
#endif
	atomic {
		assert(queued);
		queued = 0;
		quiet = 0;
		ordered = 0;
#ifndef BROKEN_NO_EPOCH
		epoch++;
#endif
	}
#ifdef BROKEN_POPS_LATE
	pops++;
#endif
	wanted = 0;
}

active proctype harvester()
{
	bit h, got, linked, ready;
	run producer(0, 2);
	run producer(1, WRITES);

endh:	do
	:: true ->
		d_step {
			due[0] = must[0];
			due[1] = must[1];
			got = 0;
#ifdef EDGES
			begun = returns;
#endif
		}
#ifdef BROKEN_SPLICE_FIRST
		splice();
		atomic { h = help; help = 0; }
#else
		atomic { h = help; help = 0; }
		splice();
#endif
		linked = ordered;
		if
		:: linked ->
#ifndef LT
#ifdef BROKEN_POLL_FIRST
			atomic {
				ready = cnt > 0;
				if
				:: ready -> deliver()
				:: else
				fi
			}
			dequeue();
#else
			dequeue();
			atomic {
				if
				:: cnt > 0 -> deliver()
				:: else
				fi
			}
#endif
#else
			atomic {
				ready = cnt > 0;
				if
				:: ready -> deliver()
				:: else
				fi
			}
			if
			:: ready
			:: else ->
				dequeue();
#ifndef BROKEN_NO_SECOND_POLL
				/* Poll and the delivery that follows are one step. */
				atomic {
					ready = cnt > 0;
					if
					:: ready -> deliver()
					:: else
					fi
				}
#endif
				if
				:: ready ->
					atomic {
						if
						:: !queued ->
							queued = 1;
							ordered = 1
						:: else -> goto raced
						fi
					}
					pushed = pops;
					goto settled;
raced:
					/*
					 * A producer has marked the item and may stop before
					 * its push, while the event found here is of a write
					 * that returned long ago.
					 */
#ifndef BROKEN_NO_HELP_AFTER_RACE
					wanted = 1;
					help = 1
#else
					skip
#endif
				:: else
				fi
			fi;
settled:
			skip
#endif
		:: else ->
			if
			:: h && wanted ->
				wanted = 0;
				if
				:: !queued -> goto answered
				:: else
				fi;
				atomic {
					ready = cnt > 0;
					if
					:: ready -> deliver()
					:: else
					fi
				}
#ifdef BROKEN_HELP_DEQUEUES
				atomic {
					if
					:: queued -> queued = 0; quiet = 0; epoch++; pops++
					:: else
					fi
				};
#endif
#if defined(LT) && !defined(BROKEN_HELP_NOT_REARMED)
				/* A level stays reported until the late push arrives. */
				if
				:: ready -> wanted = 1; help = 1
				:: else
				fi;
#endif
answered:
				skip
			:: else
			fi
		fi;
		splice();
		d_step {
			assert(!due[0] && !due[1]);
			h = 0;
			got = 0;
			linked = 0;
			ready = 0;
		}
	od
}
