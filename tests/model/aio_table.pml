/* SPDX-License-Identifier: MIT */
/*
 * The table of AIO contexts: lookup || grow || destroy || setup, slots and addresses reused.
 *
 * Mirrors: src/aio/table.c plx_aio_get, grow, plx_aio_table_add, plx_aio_table_del; src/aio/context.c
 * plx_aio_put, plx_aio_alone, destroy, plx_aio_release, plx_aio_setup; src/aio/getevents.c take_at_once.
 *
 * Checked:
 *  - no lookup touches a table or a context that has been freed;
 *  - a context that is live for as long as a lookup takes is found by it;
 *  - what is found is the context of the address that was asked for, and its destroy has not
 *    returned and its ring is mapped for as long as the reference is held;
 *  - of two destroys of one context exactly one wins, and its steps are done once;
 *  - when all is done, what was destroyed and what was replaced has been freed.
 *
 * Abstractions:
 *  - A grace period waits until each reader that was inside when it began has left. Readers count
 *    their entries and exits, odd is inside.
 *  - The memory of tables and contexts is not reused; a touch after the free is an assertion. Ring
 *    addresses are reused as soon as they are unmapped, slots as soon as they are cleared.
 *  - Address WILD is memory that is no ring; any id stands there, as in a ring that the program
 *    wrote into. To read an address that is not mapped gives EINVAL.
 *  - Only one growth: from one slot to three, which is enough for all contexts of the model.
 *  - The dead mark and the count of calls inside are one word: one addition enters and tells whether
 *    the context is dead; if so, it is taken back.
 *  - Requests in flight are waited for after the calls, and not modelled.
 *
 * Broken variants: NO_TABLE_GRACE (the old table freed at once), NO_CONTEXT_GRACE (the context freed
 * at once), PUBLISH_FIRST (the new table published before the slots are copied), NO_COMPARE (any
 * context that is in the slot will do), NO_UNLESS_DEAD (a call enters a dead context),
 * LATE_TAKE_BACK (taken back outside the read lock), CLEAR_SEEN (destroy clears the slot of the table
 * which its lookup has seen), NO_WAIT (destroy does not wait for calls), NO_MARK_TEST (each destroy
 * believes that it was the first), NO_SETUP_CALL (setup is not inside while others can find it),
 * NO_LOCK_ONCE (destroy does not take the lock that those have who are not counted), NO_DEAD_LOOK
 * (they do not look for the mark).
 */

#ifdef BROKEN_NO_SETUP_CALL
#define LEAVE
#else
#define LEAVE ctx[k].calls--;
#endif

#define NONE 9
#define WILD 3
#define CONTEXTS 3

/* ghost states */
#define UNBORN 0
#define LIVE 1
#define GOING 2
#define GONE 3

typedef table {
	byte nr;
	byte slot[3];
	bit freed
};

typedef context {
	byte addr, id, calls, state, wins;
	bit dead, locked, retired, freed
};

table tab[2];
context ctx[CONTEXTS];
byte cur;
bit old_retired;
bit mapped[3];
byte ring_id[3];
bit mtx;
byte rcu[4];

inline lock()
{
	atomic { mtx == 0 -> mtx = 1; }
}

inline unlock()
{
	mtx = 0
}

inline grace()
{
	d_step { s0 = rcu[0]; s1 = rcu[1]; s2 = rcu[2]; s3 = rcu[3]; }
	atomic {
		(!(s0 & 1) || rcu[0] != s0) && (!(s1 & 1) || rcu[1] != s1) &&
		(!(s2 & 1) || rcu[2] != s2) && (!(s3 & 1) || rcu[3] != s3);
		s0 = 0;
		s1 = 0;
		s2 = 0;
		s3 = 0;
	}
}

inline put()
{
	atomic {
		assert(!ctx[f].freed && ctx[f].calls > 0);
		ctx[f].calls--;
	}
}

/* In a read section, from an address `a` and the id that stands there to a context `f`, or NONE. */
inline peek()
{
	t = cur;
	f = NONE;
	atomic {
		assert(!tab[t].freed);
		if
		:: id < tab[t].nr -> skip
		:: else -> goto out
		fi;
	}
	atomic {
		assert(!tab[t].freed);
		f = tab[t].slot[id];
		if
		:: f == NONE -> goto out
		:: else
		fi;
	}
#ifndef BROKEN_NO_COMPARE
	atomic {
		assert(!ctx[f].freed);
		if
		:: ctx[f].addr != a -> f = NONE; goto out
		:: else
		fi;
	}
#endif
}

/* The same, and the call is inside of it. */
inline find()
{
	rcu[me]++;
	peek();
	atomic {
		assert(!ctx[f].freed);
		ctx[f].calls++;
		d = ctx[f].dead;
	}
#ifndef BROKEN_NO_UNLESS_DEAD
#ifdef BROKEN_LATE_TAKE_BACK
	rcu[me]++;
	if
	:: d -> put(); f = NONE
	:: else
	fi;
	rcu[me]++;
#else
	if
	:: d -> put(); f = NONE
	:: else
	fi;
#endif
#endif
	d = 0;
out:
	rcu[me]++
}

/* A call on a context: io_submit and its like. */
inline use()
{
	atomic {
		assert(!ctx[f].freed);
		assert(ctx[f].addr == a && ctx[f].state != GONE && mapped[a]);
	}
	put()
}

/* Asks for a context that is there. */
proctype caller(byte me)
{
	byte a, id, t, f, want;
	bit d;

end:	atomic {
		if
		:: ctx[0].state == LIVE -> want = 0
		:: ctx[1].state == LIVE -> want = 1
		:: ctx[2].state == LIVE -> want = 2
		fi;
		a = ctx[want].addr;
	}
	atomic {
		if
		:: mapped[a] -> id = ring_id[a]
		:: else -> goto einval
		fi;
	}
	find();
	if
	:: atomic { f == NONE -> assert(ctx[want].state != LIVE); }
	:: else -> use()
	fi;
einval:
	atomic { a = 0; id = 0; t = 0; f = 0; want = 0; }
}

/* Gives any pointer. */
proctype stray(byte me)
{
	byte a, id, t, f;
	bit d;

	atomic {
		if
		:: a = 0
		:: a = WILD
		fi;
		if
		:: id = 0
		:: id = 1
		:: id = 3
		fi;
	}
	find();
	if
	:: f == NONE
	:: else -> use()
	fi;
	atomic { a = 0; id = 0; t = 0; f = 0; }
}

/* Takes events at once, within the read section and under the lock of the context. */
proctype taker(byte me)
{
	byte a, id, t, f;

	id = ring_id[a];
	rcu[me]++;
	peek();
	atomic { assert(!ctx[f].freed); !ctx[f].locked -> assert(!ctx[f].freed); ctx[f].locked = 1; }
	if
#ifndef BROKEN_NO_DEAD_LOOK
	:: ctx[f].dead
	:: else ->
#else
	:: true ->
#endif
		assert(ctx[f].addr == a);
		/* The ring, to its end. */
		assert(mapped[a]);
		assert(mapped[a] && ctx[f].state != GONE)
	fi;
	atomic { assert(!ctx[f].freed); ctx[f].locked = 0; }
out:
	atomic { rcu[me]++; id = 0; t = 0; f = 0; }
}

proctype destroyer(byte me)
{
	byte a, id, t, f;
	bit d;

	atomic {
		if
		:: mapped[a] -> id = ring_id[a]
		:: else -> goto einval
		fi;
	}
	find();
	if
	:: f == NONE -> goto einval
	:: else
	fi;
	lock();
	atomic {
		assert(!ctx[f].freed);
#ifndef BROKEN_NO_MARK_TEST
		if
		:: ctx[f].dead -> unlock(); goto lost
		:: else
		fi;
#endif
		ctx[f].dead = 1;
		ctx[f].state = GOING;
		ctx[f].wins++;
		assert(ctx[f].wins == 1);
	}
#ifdef BROKEN_CLEAR_SEEN
	tab[t].slot[ctx[f].id] = NONE;
#else
	atomic {
		assert(tab[cur].slot[ctx[f].id] == f);
		tab[cur].slot[ctx[f].id] = NONE;
	}
#endif
	unlock();
#ifndef BROKEN_NO_LOCK_ONCE
	atomic { !ctx[f].locked -> assert(!ctx[f].freed); }
#endif
#ifndef BROKEN_NO_WAIT
	/* Its own. */
	atomic { ctx[f].calls == 1 -> assert(!ctx[f].freed); }
#endif
	atomic { assert(mapped[a]); mapped[a] = 0; }
	atomic { ctx[f].state = GONE; ctx[f].retired = 1; }
	goto einval;
lost:
	put();
einval:
	atomic { id = 0; t = 0; f = 0; }
}

proctype setup(byte k)
{
	byte a, id;

	/* The ring is mapped and the context filled in before anybody can see it. */
	atomic {
		if
		:: !mapped[0] -> a = 0
		:: !mapped[k] -> a = k
		fi;
		mapped[a] = 1;
		ctx[k].addr = a;
#ifndef BROKEN_NO_SETUP_CALL
		ctx[k].calls = 1;
#endif
	}
	lock();
	/* Nobody changes a slot without the lock. */
	atomic {
		do
		:: id < tab[cur].nr && tab[cur].slot[id] != NONE -> id++
		:: else -> break
		od
	}
	if
	:: id == tab[cur].nr ->
		assert(cur == 0);
#ifdef BROKEN_PUBLISH_FIRST
		cur = 1;
		tab[1].slot[0] = tab[0].slot[0];
#else
		tab[1].slot[0] = tab[0].slot[0];
		cur = 1;
#endif
		old_retired = 1;
	:: else
	fi;
	atomic { ctx[k].id = id; ring_id[a] = id; }
	atomic { tab[cur].slot[id] = k; ctx[k].state = LIVE; }
	unlock();
	/* Still inside: the address is stored for the program. */
	atomic { assert(!ctx[k].freed && mapped[a]); LEAVE a = 0; id = 0; }
}

proctype reclaim_table()
{
	byte s0, s1, s2, s3;

end:	old_retired;
#ifndef BROKEN_NO_TABLE_GRACE
	grace();
#endif
	tab[0].freed = 1
}

proctype reclaim_context(byte k)
{
	byte s0, s1, s2, s3;

end:	ctx[k].retired;
#ifndef BROKEN_NO_CONTEXT_GRACE
	grace();
#endif
	ctx[k].freed = 1
}

init {
	atomic {
		tab[0].nr = 1;
		tab[1].nr = 3;
		tab[1].slot[0] = NONE;
		tab[1].slot[1] = NONE;
		tab[1].slot[2] = NONE;
		/* One context there from the start, at address 0 in slot 0. */
		mapped[0] = 1;
		ctx[0].state = LIVE;
#ifdef CALLER
		run caller(0);
#endif
#ifdef STRAY
		run stray(1);
#endif
#ifdef TAKER
		run taker(1);
#endif
		run destroyer(2);
#ifdef DESTROYERS
		run destroyer(3);
#endif
		run setup(1);
#ifdef SETUPS
		run setup(2);
#endif
		run reclaim_table();
		run reclaim_context(0);
#ifdef DESTROYERS
		run reclaim_context(1);
#ifdef SETUPS
		run reclaim_context(2);
#endif
#endif
	}
	timeout ->
	assert(ctx[0].wins == 1);
	assert(old_retired == tab[0].freed);
	assert((ctx[0].wins == 1) == ctx[0].freed && (ctx[1].wins == 1) == ctx[1].freed &&
	       (ctx[2].wins == 1) == ctx[2].freed)
}
