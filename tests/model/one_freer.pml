/* SPDX-License-Identifier: MIT */
/*
 * One freer: DEL, close of the epoll, last close of the file, writers in wake and a harvest meet at
 * one item.
 *
 * Mirrors: src/epoll/remove.c plx_item_remove, item_claim, item_retired, plx_file_remove_watches,
 * plx_ep_release; src/epoll/ready.c plx_item_queue, plx_item_push, plx_ep_help and the harvest's
 * look at the help slots (plx_help_take) as the users of what is freed.
 *
 * Checked: the item is removed once; item, file and epoll are each freed exactly once when all is
 * done (no leak); nobody touches any of them after that; the file is released only when no item is
 * left; no deadlock (also not between the wait for a grace period under the mutex and a reader).
 *
 * Abstractions:
 *  - A grace period waits until each reader that was inside when it began has left. Readers count
 *    their entries and exits, odd is inside. Only the two writers and the harvest read.
 *  - The memory an object is freed to is not reused; a touch after the free is an assertion.
 *  - The last put of a file or of the epoll's file runs its closing work in a process of its own.
 *    In C the one that puts runs it and waits: fewer interleavings.
 *  - One help slot. The list of items that are kept is not there: it is changed under the mutex, and
 *    the removal takes the item off (plx_help_forget).
 *  - What is done under the file's lock is one step: it changes one thing that others see.
 *  - The writers hold no reference, only the read lock; in C most writers hold one too.
 *  - One item, one file, one epoll: items do not touch each other but through the lists, which
 *    are changed under the locks modelled here.
 *
 * -DNONPRIMARY: the item has its own mark word.
 * Broken variants: NO_GRACE (freed at once), ONE_GRACE (help cleared before the first grace
 * period), NO_CLEAR (help not cleared), PUT_AT_CLOSE (the common reference to the epoll dropped by
 * its close though an item is left), NO_HELP_REF (who helps first takes no reference), HELP_GET
 * (takes it although it was the last), NO_TRYGET (close of the epoll does not leave the item to the
 * closing side), NO_IN_FLIGHT (removal does not wait for a push under way), NO_EPOCH (primary: epoch
 * kept), NO_MARK (-DNONPRIMARY: mark not set for ever), NO_READ_LOCK (harvest uses the help slot
 * outside the read lock), NO_DEAD (a producer does not look whether the item is dead). With
 * -DNONPRIMARY either of NO_MARK and NO_DEAD alone breaks nothing.
 */

#ifndef HARVESTS
#define HARVESTS 1
#endif

byte file_refs = 1, epf_refs = 1, ep_refs = 1;
bit file_zero, epf_zero, closed, retired, released;
byte item_freed, ep_freed, file_freed;
bit mtx;

bit on_list = 1, in_set = 1, dead;
bit queued, incoming, ordered, help, ever;
byte epoch, pops, pushed = 255;

byte rcu[3];

#define touch_item assert(!item_freed)
#define touch_ep assert(!ep_freed)
#define touch_file assert(!file_freed)

inline grace()
{
	d_step { s0 = rcu[0]; s1 = rcu[1]; s2 = rcu[2]; }
	atomic {
		(!(s0 & 1) || rcu[0] != s0) && (!(s1 & 1) || rcu[1] != s1) &&
		(!(s2 & 1) || rcu[2] != s2);
		s0 = 0;
		s1 = 0;
		s2 = 0;
	}
}

inline ep_put()
{
	atomic {
		touch_ep;
		assert(ep_refs > 0);
		ep_refs--;
	}
}

inline lock_mtx()
{
	atomic { touch_ep; mtx == 0 -> touch_ep; mtx = 1; }
}

inline unlock_mtx()
{
	atomic { touch_ep; mtx = 0; }
}

inline splice()
{
	atomic {
		if
		:: incoming -> touch_item; assert(!ordered); incoming = 0; ordered = 1
		:: else
		fi
	}
}

/* The mutex is held. */
inline remove()
{
	atomic { touch_file; on_list = 0; }
	atomic { touch_item; assert(!dead); dead = 1; in_set = 0; }
	/* item_claim: no producer can push from now on, but for one that has QUEUED already. */
	atomic {
#ifdef NONPRIMARY
		touch_item;
#else
		touch_file;
#endif
		q = queued;
#ifndef BROKEN_NO_MARK
		queued = 1;
#endif
#ifndef BROKEN_NO_EPOCH
		epoch++;
#endif
	}
	if
	:: q ->
		splice();
		if
		:: ordered
		:: else ->
#ifndef BROKEN_NO_IN_FLIGHT
			grace();
			splice();
			assert(ordered)
#else
			skip
#endif
		fi;
		ordered = 0
	:: else
	fi;
#ifndef NONPRIMARY
	if
	:: file_refs > 0 ->
		/* plx_item_unmark: the mark goes back to the file. */
		pops++;
		atomic {
			touch_file;
			queued = 0;
#ifndef BROKEN_NO_EPOCH
			epoch++;
#endif
		}
	:: else
	fi;
#endif
	atomic { q = 0; assert(!retired); retired = 1; }
}

#ifdef NONPRIMARY
#define touch_mark touch_item
#else
#define touch_mark touch_file
#endif

/*
 * Who enters a read section reads in the same step, and who leaves it does so with its last step: a
 * grace period then waits for no more readers, and for none of them longer.
 */
inline leave()
{
	e = 0;
	p = 0;
	q = 0;
	rcu[me]++;
	goto out
}

proctype writer(byte me)
{
	byte e, p;
	bit q;

	atomic {
		rcu[me]++;
		if
		:: file_zero -> leave()		/* descriptor closed */
		:: else
		fi
	};
	if
	:: atomic { !on_list -> touch_file; leave() }
	:: atomic { on_list -> touch_file }
	fi;
	atomic { touch_mark; e = epoch; q = queued; };
again:
#ifndef BROKEN_NO_DEAD
	if
	:: atomic { dead -> touch_item; leave() }
	:: atomic { !dead -> touch_item }
	fi;
#endif
	if
	:: atomic { q -> touch_item; p = pops; e = 0; q = 0; };
		atomic {
			touch_item;
			if
			:: pushed == p -> goto last
			:: else -> p = 0
			fi
		};
		/* plx_ep_help: who sets `ever` takes a reference on the epoll. */
#ifndef BROKEN_NO_HELP_REF
		atomic {
			touch_item;
			if
			:: ever -> goto help_
			:: else -> ever = 1
			fi
		};
		atomic {
			touch_ep;
			if
#ifdef BROKEN_HELP_GET
			:: true -> ep_refs++; goto help_
#else
			:: ep_refs > 0 -> ep_refs++; goto help_
			:: else
#endif
			fi
		};
		atomic { touch_item; ever = 0; goto last };
#else
		atomic { touch_item; ever = 1 };
#endif
help_:		atomic { touch_ep; help = 1; }
	:: atomic { !q -> touch_item; p = pops; };
		atomic {
			touch_mark;
			if
			:: epoch == e && !queued -> queued = 1; e = 0
			:: else -> e = epoch; q = queued; p = 0; goto again
			fi
		};
		atomic { touch_item; touch_ep; assert(!incoming); incoming = 1; };
		atomic { touch_item; pushed = p; }
	fi;
last:	atomic { touch_ep; leave() };
out:
endo:	false
}

proctype harvester()
{
	bit h;
	byte n = HARVESTS;

	do
	:: n == 0 -> break
	:: else ->
		n--;
		atomic {
			if
			:: epf_refs == 0 -> goto out
			:: else -> epf_refs++
			fi
		}
		lock_mtx();
#ifndef BROKEN_NO_READ_LOCK
		rcu[2]++;
#endif
		atomic { touch_ep; h = help; help = 0; }
		splice();
		if
		:: ordered ->
			atomic { touch_item; ordered = 0; pops++; }
			atomic { touch_item; touch_file; queued = 0; epoch++; }
			atomic { touch_item; touch_file; assert(!released); }
		:: h && !ordered ->
			atomic { touch_item; h = !dead; }
			if
			:: h -> atomic { touch_item; touch_file; assert(!released); }
			:: else
			fi
		:: else
		fi;
		h = 0;
#ifndef BROKEN_NO_READ_LOCK
		rcu[2]++;
#endif
		unlock_mtx();
		atomic { epf_refs--; epf_zero = (epf_refs == 0); }
	od;
out:
endo:	false
}

proctype deleter()
{
	bit q;
	byte s0, s1, s2;

	atomic {
		if
		:: file_refs == 0 || epf_refs == 0 -> goto out
		:: else -> file_refs++; epf_refs++
		fi
	}
	lock_mtx();
	if
	:: in_set -> remove()
	:: else
	fi;
	unlock_mtx();
	atomic { touch_file; file_refs--; file_zero = (file_refs == 0); }
	atomic { epf_refs--; epf_zero = (epf_refs == 0); }
out:
endo:	false
}

/* The last put of the file. */
proctype file_closer()
{
	bit q, found, last;
	byte s0, s1, s2;

	file_zero;
	do
	:: true ->
		atomic {
			touch_file;
			found = on_list;
			if
			:: found -> touch_item; touch_ep; assert(ep_refs > 0)
			:: else
			fi
		}
		if
		:: found ->
			lock_mtx();
			remove();
			atomic { touch_ep; last = (closed && !in_set); }
			unlock_mtx();
			if
			:: last -> ep_put()
			:: else
			fi
		:: else -> break
		fi
	od;
	released = 1;
	grace();
	file_freed++;
endo:	false
}

/* The last put of the epoll's file. */
proctype ep_closer()
{
	bit q, got, last;
	byte s0, s1, s2;

	epf_zero;
	lock_mtx();
	if
	:: in_set ->
		atomic {
			touch_item;
			touch_file;
			got = (file_refs > 0);
			file_refs = file_refs + got;
		}
#ifdef BROKEN_NO_TRYGET
		remove();
#else
		if
		:: got -> remove()
		:: else
		fi;
#endif
	:: else
	fi;
	/* In C the loop comes round once more before it finds nothing to remove. */
	atomic {
		touch_ep;
		closed = 1;
#ifdef BROKEN_PUT_AT_CLOSE
		last = 1;
#else
		last = !in_set;
#endif
	}
	unlock_mtx();
	if
	:: got -> atomic { touch_file; file_refs--; file_zero = (file_refs == 0); }
	:: else
	fi;
	if
	:: last -> ep_put()
	:: else
	fi;
endo:	false
}

proctype reclaim_item()
{
	byte s0, s1, s2;

	retired;
#ifndef BROKEN_NO_GRACE
#ifndef BROKEN_ONE_GRACE
	grace();
#endif
	if
	:: ever ->
#ifndef BROKEN_NO_CLEAR
		atomic { touch_ep; help = 0; }
#endif
		grace()
	:: else
	fi;
#endif
	item_freed++;
#ifndef BROKEN_NO_HELP_REF
	if
	:: ever -> ep_put()
	:: else
	fi;
#endif
endo:	false
}

proctype reclaim_ep()
{
	byte s0, s1, s2;

	ep_refs == 0;
	grace();
	ep_freed++;
endo:	false
}

init {
	atomic {
		run writer(0);
		run writer(1);
		run harvester();
		run deleter();
		run file_closer();
		run ep_closer();
		run reclaim_item();
		run reclaim_ep();
	}
	/* close of the two descriptors, in any order and at any time. */
	if
	:: true ->
		atomic { file_refs--; file_zero = (file_refs == 0); };
		atomic { epf_refs--; epf_zero = (epf_refs == 0); }
	:: true ->
		atomic { epf_refs--; epf_zero = (epf_refs == 0); };
		atomic { file_refs--; file_zero = (file_refs == 0); }
	fi;
	timeout ->
	assert(dead && item_freed == 1 && ep_freed == 1 && file_freed == 1)
}
