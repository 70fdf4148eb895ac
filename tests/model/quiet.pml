/* SPDX-License-Identifier: MIT */
/*
 * QUIET: the fast path of a write that tells nobody, against everything that makes it wrong.
 *
 * Mirrors: src/epoll/ready.c plx_item_try_quiet and src/epoll/file.c item_wake (QUIET is tried after
 * the own wake), plx_file_add, plx_file_bump, plx_watch_link, ep_unquiet, and the changes that end QUIET: ADD of a second watch (src/epoll/ctl.c), a blocked
 * reader that hangs itself on the file, an epoll that becomes watched (src/epoll/topology.c).
 *
 * -DCHANGE=1: a second watch or a blocked reader comes. It publishes itself, bumps the epoch and
 * clears QUIET, polls the state. Checked: each write is seen, by that poll or by a call of the
 * write's wake, once both have returned.
 * -DCHANGE=2: the epoll becomes watched: the same, its poll finds the item on the lists or in the
 * help slot, unless a harvest has delivered it.
 * -DCHANGE=4: the item is removed, and another watch comes to the list at any time. It bumps nothing
 * if the list is empty and the item has given its mark back (watch_link): that the removal has moved
 * the epoch (item_claim) has to be enough. Checked: as for 1. The watch comes to the front; a wake
 * walks the list as it found its beginning.
 * -DCHANGE=3: no change; a consumer goes to sleep, writers 0 and 1 may stop at any step for ever.
 * Checked: when nothing moves, the consumer does not sleep while a write of writer 2 has returned
 * and is not delivered. QUIET is therefore set after the wake of the sleeper, not before.
 *
 * Weak memory: the publication waits in a store buffer; the bump is a read-modify-write on another
 * word and passes it on a weak machine, so a full barrier stands between them in C.
 *
 * Abstractions: one primary, edge-triggered item; the count only grows; push and lists as in
 * no_lost_event.pml; the bell and the unpark are one step (no_lost_wake.pml takes them apart).
 *
 * Broken variants: NO_BUMP (change without bump), BUMP_FIRST (bump before the publication),
 * NO_BARRIER, CLEAR_ONLY (QUIET cleared, epoch kept), CHECK_FIRST (the writer checks the conditions
 * before it loads the word), QUIET_FIRST (-DCHANGE=3: QUIET set before the wake),
 * RELOAD (-DCHANGE=3: QUIET set for a stay on the list that began after the own wake),
 * CLAIM_KEEPS (-DCHANGE=4: the removal keeps the epoch), EMPTY_LIST (-DCHANGE=4: nothing is bumped if
 * only the list is empty: the item may have left it and not moved the epoch yet). CHECK_FIRST
 * breaks nothing in this model since the word is compared as a whole.
 */

#ifndef CHANGE
#define CHANGE 1
#endif

byte cnt, epoch, pops;
bit queued, quiet;
byte pushed = 255;
bit incoming, help;

bit other, other_buf;			/* the second watch, or "epoll is watched" */
#if CHANGE == 4
bit linked = 1, dead;			/* the item */
bit primary = 1;			/* it has not given its mark back */
#define ALONE (linked && !other)
#else
#define ALONE (!other)
#endif
bit made[3], returned[3], there;	/* ghosts: not seen by the other, write returned, change done */

bit announced, asleep, bell, mtx;

#if CHANGE != 4
active proctype memory()
{
endm:	do
	:: atomic { other_buf -> other_buf = 0; other = 1; }
	od
}
#endif

#if CHANGE == 3
/* Before what it would do next. */
#define MAY_STOP if :: me != 2 -> goto out :: true fi
#else
#define MAY_STOP skip
#endif

#if CHANGE == 3
inline wake_one()
{
	if
	:: atomic { announced -> MAY_STOP };
	   atomic { MAY_STOP; bell = 1; asleep = 0 }
	:: !announced
	fi
}
#define tell_other() skip
#else
#define wake_one() skip
#if CHANGE == 4
/* Not behind an item that was the beginning of the list. */
#define tell_other() skip
#else
#define tell_other() made[me] = made[me] && !other
#endif
#endif

/*
 * A write returns in one step with the last thing that it does, which asks for more than a later
 * return. What was made is not looked at again once it has returned and the change is done.
 */
#if CHANGE != 3
#define NOT_MISSED assert(!there || !made[me])
#else
#define NOT_MISSED skip
#endif
inline wrote()
{
	returned[me] = 1;
	NOT_MISSED;
	e = 0;
	e0 = 0;
	vis = 0;
	c = 0;
	p = 0;
	q = 0;
	qt = 0;
	alone = 0;
	n--;
	if
	:: n > 0 -> goto next
	:: else -> goto out
	fi
}

/* The state changes; where QUIET is set, that is all. */
inline write_it()
{
	cnt++;
	made[me] = 1;
	returned[me] = 0;
	if
	:: quiet -> wrote()
	:: else
	fi
}

inline load_word()
{
	e = epoch;
	q = queued;
	qt = quiet;
	c = cnt
}

proctype writer(byte me; byte n)
{
	byte e, e0, c, p;
	bit q, qt, alone, vis;

write:
#if CHANGE == 3
	atomic { write_it() };
#else
	if
	:: atomic { write_it() }
	/* Folded state change and mark, with the word loaded before the conditions. */
	:: atomic {
		load_word();
		if
		:: q -> e = 0; c = 0; q = 0; qt = 0; goto apart
		:: else
		fi
	   };
	   p = pops;
	   alone = ALONE;
#if CHANGE == 4
	   alone = alone && !dead;
#endif
	   atomic {
		if
		:: alone && epoch == e && cnt == c && !queued && quiet == qt ->
			cnt++;
			made[me] = 1;
			returned[me] = 0;
			queued = 1;
			e = 0;
			c = 0;
			qt = 0;
			alone = 0;
			goto push_
		:: else ->
			e = 0;
			c = 0;
			p = 0;
			qt = 0;
			alone = 0;
			goto apart
		fi
	   };
apart:	   atomic { write_it() }
	fi;
#endif
#if CHANGE == 4
	atomic {
		if
		:: other -> made[me] = 0
		:: else
		fi;
		if
		:: !linked -> wrote()
		:: else
		fi
	};
#endif
retry:
	atomic { load_word() };
#if CHANGE == 4
	if
	:: atomic { dead -> wrote() }
	:: !dead
	fi;
#endif
	p = pops;
	if
	:: q ->
		if
		:: pushed == p
#if CHANGE == 4
		:: else
#else
		:: else -> help = 1
#endif
		fi;
		/*
		 * Found on the list before the own wake, and not taken off since: then the
		 * wake was for this stay on the list.
		 */
		atomic { load_word(); p = 0 };
		p = pushed;
		atomic {
			vis = (q && p == pops);
			e0 = (vis -> e : 0);
			e = 0;
			c = 0;
			p = 0;
			qt = 0
		};
#ifndef BROKEN_QUIET_FIRST
		wake_one();
		tell_other();
#endif
		/* plx_item_try_quiet */
#ifdef BROKEN_CHECK_FIRST
		alone = ALONE;
#endif
		atomic {
			load_word();
#ifndef BROKEN_RELOAD
			if
			:: q && !qt && vis && e == e0
			:: else -> goto done_
			fi
#endif
		};
#ifdef BROKEN_RELOAD
		p = pushed;
#endif
#ifndef BROKEN_CHECK_FIRST
		alone = ALONE;
#endif
#if CHANGE == 4
		alone = alone && !dead;
#endif
		if
#ifdef BROKEN_RELOAD
		:: alone && q && !qt && p == pops ->
#else
		:: alone ->
#endif
			atomic {
				if
				:: queued && epoch == e && cnt == c && quiet == qt ->
					quiet = 1
				:: else
				fi;
				goto done_
			}
		:: else
		fi;
		goto done_
	:: else
	fi;
	atomic {
		if
		:: epoch == e && !queued && cnt == c && quiet == qt ->
			queued = 1;
			e = 0;
			c = 0;
			qt = 0
		:: else -> goto retry
		fi
	};
push_:
	atomic { MAY_STOP; assert(!incoming); incoming = 1 };
	atomic { MAY_STOP; pushed = p };
	wake_one();
	atomic { tell_other(); wrote() };
done_:
#ifdef BROKEN_QUIET_FIRST
	wake_one();
	tell_other();
#endif
	atomic { wrote() };
next:	n > 0;
	goto write;
out:
endw:	false
}

inline dequeue()
{
	atomic {
		incoming = 0;
		pops++;
		queued = 0;
		quiet = 0;
		epoch++;
	}
}

inline seen()
{
	d_step { made[0] = 0; made[1] = 0; made[2] = 0; }
}

#if CHANGE == 4
/* What it delivers is not asked for. */
inline harvest()
{
	atomic {
		!mtx;
		if
		:: incoming -> dequeue()
		:: else
		fi
	}
}
#else
/* Harvest: a step each for the help slot, the list with dequeue, the poll. */
inline harvest()
{
	atomic { !mtx -> mtx = 1; h = help; help = 0; };
	atomic {
		if
		:: incoming -> dequeue(); got = 1
		:: else -> got = h
		fi;
		h = 0;
#if CHANGE == 1
		got = 0;
		mtx = 0
#endif
	};
#if CHANGE != 1
	atomic {
		if
		:: got -> seen()
		:: else
		fi;
		mtx = 0;
#if CHANGE == 3
		if
		:: got -> got = 0; goto again
		:: else
		fi
#else
		got = 0
#endif
	}
#endif
}
#endif

proctype consumer()
{
#if CHANGE != 4
	bit h, got;
#endif
#if CHANGE == 3
again:
	harvest();
	announced = 1;
	if
	:: incoming || help -> announced = 0; goto again
	:: else
	fi;
endc:	atomic {
		if
		:: bell -> skip
		:: else -> asleep = 1
		fi
	}
ends:	atomic { !asleep -> bell = 0 };
	announced = 0;
	goto again
#else
	harvest();
	harvest();
endo:	false
#endif
}

#if CHANGE != 3
inline bump()
{
	atomic {
		quiet = 0;
#ifndef BROKEN_CLEAR_ONLY
		epoch++;
#endif
	}
}

#if CHANGE == 4
proctype remover()
{
	bit q;

	atomic { !mtx -> mtx = 1; }
	linked = 0;
	dead = 1;
	atomic {
		q = queued;
		queued = 1;
		quiet = 0;
#ifndef BROKEN_CLAIM_KEEPS
		epoch++;
#endif
	}
	if
	:: atomic { q && incoming -> incoming = 0; q = 0 }
	:: !q
	fi;
	pops++;
	atomic {
		queued = 0;
		quiet = 0;
#ifndef BROKEN_CLAIM_KEEPS
		epoch++;
#endif
	}
	atomic { primary = 0; q = 0; mtx = 0; };
endo:	false
}
#endif

proctype change()
{
#if CHANGE == 4
	bit alone;

	/* The list has a lock, and to let it go is a barrier. */
	atomic {
#ifdef BROKEN_EMPTY_LIST
		alone = !linked;
#else
		alone = !linked && !primary;
#endif
		other = 1;
	}
	if
	:: !alone -> bump()
	:: else
	fi;
#else
#ifdef BROKEN_BUMP_FIRST
	bump();
#endif
	other_buf = 1;
#ifndef BROKEN_NO_BARRIER
	(!other_buf);
#endif
#if !defined(BROKEN_BUMP_FIRST) && !defined(BROKEN_NO_BUMP)
	bump();
#endif
#endif
	atomic {
#if CHANGE == 1 || CHANGE == 4
		seen();
#else
		/* A poll of the epoll waits for a harvest. */
		!mtx;
		if
		:: incoming || help -> seen()
		:: else
		fi;
#endif
		there = 1;
		assert(!(returned[0] && made[0]));
		assert(!(returned[1] && made[1]));
		assert(!(returned[2] && made[2]));
	};
endo:	false
}
#endif

init {
	atomic {
#if CHANGE == 3
		run writer(0, 1);
		run writer(1, 1);
		run writer(2, 1);
#elif CHANGE == 4
		/* As one write, two or none before have left it. */
		if
		:: true -> cnt = 1; queued = 1; incoming = 1; pushed = 0
		:: true -> cnt = 1; queued = 1; incoming = 1; pushed = 0; quiet = 1
		:: true
		fi;
		run writer(0, 1);
		run writer(1, 1);
#else
		run writer(0, 2);
		run writer(1, 1);
#endif
		run consumer();
#if CHANGE != 3
		run change();
#endif
#if CHANGE == 4
		run remover();
#endif
	}
	timeout;
#if CHANGE == 3
	assert(!(asleep && returned[2] && made[2]))
#endif
}
