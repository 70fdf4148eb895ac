/* SPDX-License-Identifier: MIT */
/*
 * The number of a doorbell, which the program puts a file of its own at (dup2) while it is made,
 * rung and given up, and where another thread makes an object.
 *
 * Mirrors: src/cache/bell.c plx_bell_new, plx_bell_publish, plx_bell_close, plx_epoll_unbell,
 * plx_change_begin, plx_change_end; src/cache/escape.c plx_bell_take; src/cache/table.c
 * plx_table_made; src/cache/epoll.c doorbell_make, epoll_unpark, setup_over; src/cache/evict.c
 * epoll_leaves; src/cache/fd.c plx_px_dup3. There is one number. EVICT: the epoll leaves beside it
 * all, or beside all but dup2.
 *
 * Checked: dup2 replaces no doorbell, nobody writes to the program's file, what stands in the table
 * for the number is there, and a doorbell that has been given up is closed.
 *
 * Memory: what matters here is a locked step, a system call or behind a full barrier.
 *
 * Broken variants: NO_WAIT (a change does not wait for who is making one), NO_CHANGE (who makes one
 * does not look for changes), CHANGE_FIRST (he does before he says so), NO_AWAIT (the number is closed
 * at once), BLIND (published without a look at its entry), NO_OWNER (closed though it has been
 * published meanwhile), OWNER_EARLY (it is nobody's before who uses it
 * is waited for, and another closes it), ENTRY_FIRST (its entry goes before it is closed), NO_LOOK (who makes an object does not look for changes), LOOK_FIRST (he does
 * before it stands in the table), NO_EVICTED (who makes a doorbell does not look whether the epoll
 * has left).
 */
#define NONE 0
#define BELL 1
#define FILE 2
#define OBJECT 3

/* What the number is to the kernel, and in the table. */
byte kernel, entry;
byte begun, over;
bit making, lock;
/* Of the epoll: the doorbell is published; it has one for itself. */
bit doorbell, owned, evicted;
/* Threads that use the number, counted in epoll.ringers. */
byte ringers;

inline take() { atomic { !lock -> lock = 1 } }

inline await_ringers()
{
#ifndef BROKEN_NO_AWAIT
	ringers == 0
#else
	skip
#endif
}

/* With no epoll that has it. */
inline bell_close()
{
	take();
	if
#ifdef BROKEN_NO_OWNER
	:: entry == BELL ->
#else
	:: entry == BELL && !owned ->
#endif
		assert(kernel == BELL);
#ifdef BROKEN_ENTRY_FIRST
		entry = NONE;
		kernel = NONE
#else
		kernel = NONE;
		entry = NONE
#endif
	:: else
	fi;
	lock = 0
}

inline unbell()
{
	if
	:: d_step { doorbell -> doorbell = 0 };
#ifdef BROKEN_OWNER_EARLY
		owned = 0;
		await_ringers();
#else
		await_ringers();
		owned = 0;
#endif
		bell_close()
	:: else
	fi
}

proctype maker()
{
	bit made;

	take();
#ifdef BROKEN_CHANGE_FIRST
	if
	:: begun != over -> goto none
	:: else
	fi;
	making = 1;
#else
	making = 1;
#ifndef BROKEN_NO_CHANGE
	if
	:: begun != over -> goto none
	:: else
	fi;
#endif
#endif
	/* The kernel gives no number that something has. */
	if
	:: d_step { kernel == NONE -> kernel = BELL };
		entry = BELL;
		made = 1
	:: else
	fi;
none:	making = 0;
	lock = 0;
	if
	:: !made -> goto end
	:: else
	fi;
	/* Registered; published. */
	take();
	if
#ifdef BROKEN_BLIND
	:: true ->
#else
	:: entry == BELL ->
#endif
		owned = 1;
		doorbell = 1;
		lock = 0;
#ifndef BROKEN_NO_EVICTED
		if
		:: evicted -> unbell()
		:: else
		fi
#endif
	:: else -> lock = 0;
		bell_close()
	fi;
end:	skip
}

proctype producer()
{
	ringers++;
	if
	:: doorbell -> assert(kernel == BELL)
	:: else
	fi;
	ringers--
}

inline leaves()
{
	evicted = 1;
	unbell()
}

proctype leaver()
{
	leaves()
}

/* dup2 of a file of the program's onto the number. */
proctype taker()
{
	begun++;
#ifndef BROKEN_NO_WAIT
	!making;
#endif
again:	if
	:: entry == BELL ->
		if
		:: owned -> leaves()
		:: else
		fi;
		bell_close();
		goto again
	:: else
	fi;
	/* What is ours there goes out of the table. */
	if
	:: entry == OBJECT -> entry = NONE
	:: else
	fi;
	assert(kernel != BELL);
	kernel = FILE;
	over++
}

#ifdef OBJECTS
proctype object()
{
	byte since = over;

	if
	:: d_step { kernel == NONE -> kernel = OBJECT };
#ifdef BROKEN_LOOK_FIRST
		if
		:: begun == since -> entry = OBJECT
		:: else
		fi
#else
		entry = OBJECT;
#ifndef BROKEN_NO_LOOK
		if
		:: begun != since ->
			if
			:: d_step { entry == OBJECT -> entry = NONE }
			:: else
			fi
		:: else
		fi
#endif
#endif
	:: else
	fi
}
#endif

init {
	atomic {
#ifdef OBJECTS
		run object();
#else
		run maker();
		run producer();
#ifdef EVICT
		run leaver();
#endif
#endif
#ifdef EVICT
		if
		:: run taker()
		:: true
		fi
#else
		run taker()
#endif
	};
	timeout;
	assert(entry != OBJECT || kernel == OBJECT);
	assert(entry != BELL || kernel == BELL);
	assert(!doorbell || (kernel == BELL && !evicted));
	assert(kernel != BELL || doorbell)
}
