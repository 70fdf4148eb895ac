/* SPDX-License-Identifier: MIT */
/*
 * An epoll's doorbell, which the first who needs one makes.
 *
 * Mirrors: src/cache/epoll.c epoll_setup, plx_epoll_ring, doorbell_make, epoll_unpark;
 * src/cache/wait.c wait_kernel, wait_mixed, wait_ring; src/epoll/ready.c plx_ep_wake_one,
 * plx_ring_end, bell_clear; src/epoll/wait.c plx_ep_announce, plx_ep_retract. Two add an object
 * each, the first of the epoll's, and write to it or not; two wait until they have got an event, or
 * one (LEAVER), beside one whose time is over and one who looks without a sleep. FAILS: so often the
 * kernel does not register the doorbell; an ADD has failed then, and the object is the kernel's; a
 * sleep is a short one.
 *
 * Checked: nobody sleeps while there is an event and nobody is on his way to it.
 *
 * Memory: what matters here is a locked step, a system call or behind a full barrier.
 *
 * Broken variants: NO_LOOK (the first ADD does not look for sleepers), LOOK_FIRST (it does before it
 * says that there may be items), NO_READY (another ADD does not wait for the first), MAKE_LATE (a
 * wait makes it after it has announced itself), NO_END
 * (the counts of rings are not ended), END_FIRST (they are before there is a number).
 */
#ifndef FAILS
#define FAILS 0
#endif

#define NONE 0
#define BEGUN 1
#define READY 2

byte inproc;
bit lock, number;
byte fails = FAILS;
/* What is on our list, on the kernel's, and what has been written to the doorbell. */
byte list, theirs;
bit rung;
/* The bell; what it counts as begun does not matter to producers but for its collection. */
byte sleepers, done, collection;
bit counts;

inline take() { atomic { !lock -> lock = 1 } }

inline bell_clear()
{
	d_step {
		if
		:: counts -> counts = 0; done = 0; collection++
		:: else
		fi
	}
}

/* ok: it is published. With the lock. */
inline doorbell_make(ok)
{
#ifdef BROKEN_END_FIRST
	bell_clear();
#endif
	if
	:: d_step { fails > 0 -> fails--; ok = 0 }
	:: d_step { fails = 0; ok = 1 };
		/* Nobody has written to it before it is published. */
		number = 1;
#if !defined(BROKEN_NO_END) && !defined(BROKEN_END_FIRST)
		bell_clear()
#endif
	fi
}

inline wake_one()
{
	seen = sleepers;
	if
	:: seen ->
		if
		:: d_step { done < seen -> counts = 1; at = collection };
			/* epoll_unpark */
			if
			:: number -> rung = 1
			:: else
			fi;
			d_step {
				if
				:: collection == at -> done++
				:: else
				fi
			}
		:: else
		fi
	:: else
	fi;
	d_step { at = 0; seen = 0 }
}

/* writes: in any case. */
proctype adder(bit writes)
{
	byte at, seen;
	bit ok = 1;

#ifdef BROKEN_NO_READY
	if
	:: inproc -> goto ready
	:: else
	fi;
#else
	if
	:: inproc == READY -> goto ready
	:: else
	fi;
#endif
	take();
	if
	:: inproc == READY
	:: else ->
#ifdef BROKEN_LOOK_FIRST
		if
		:: sleepers && !number -> doorbell_make(ok)
		:: else
		fi;
		inproc = BEGUN;
#else
		inproc = BEGUN;
#ifndef BROKEN_NO_LOOK
		if
		:: sleepers && !number -> doorbell_make(ok)
		:: else
		fi;
#endif
#endif
		if
		:: ok -> inproc = READY
		:: else -> inproc = NONE
		fi
	fi;
	lock = 0;
	if
	:: !ok -> theirs++; goto end
	:: else
	fi;
ready:	if
	:: !writes
	:: list++;
		wake_one()
	fi;
end:	skip
}

/* A harvest: one of what there is; what is left is told to another. */
inline harvest(got)
{
	got = 0;
	if
	:: d_step { list > 0 -> list--; got = 1 }
	:: else
	fi;
	if
	:: got && list -> wake_one()
	:: else
	fi
}

inline retract() { sleepers--; bell_clear() }

proctype waiter()
{
	byte at, seen;
	bit got, ok, brief;

again:
	/* wait_kernel */
	if
	:: inproc -> goto mixed
	:: else
	fi;
	sleepers++;
	if
	:: inproc -> retract(); goto mixed
	:: else
	fi;
	/* The sleep, by an event of either kind. */
	if
	:: atomic { rung -> rung = 0 }
	:: atomic { theirs > 0 -> theirs--; got = 1 }
	:: atomic { timeout -> goto over }
	fi;
	retract();
	if
	:: got -> goto end
	:: else
	fi;
mixed:	brief = 0;
	harvest(got);
	if
	:: got -> goto end
	:: d_step { !got && theirs > 0 -> theirs--; got = 1 }; goto end
	:: else
	fi;
#ifndef BROKEN_MAKE_LATE
	if
	:: !number ->
		take();
		if
		:: !inproc -> lock = 0; goto again
		:: inproc && !number ->
			doorbell_make(ok);
			brief = !ok
		:: else
		fi;
		lock = 0
	:: else
	fi;
#endif
	sleepers++;
	if
	:: list -> retract(); goto mixed
	:: else
	fi;
#ifdef BROKEN_MAKE_LATE
	take();
	if
	:: inproc && !number -> doorbell_make(ok); brief = !ok
	:: else
	fi;
	lock = 0;
#endif
	if
	:: atomic { rung -> rung = 0 }
	:: atomic { theirs > 0 -> theirs--; got = 1 }
	:: brief
	:: atomic { timeout -> goto over }
	fi;
	retract();
	if
	:: got -> goto end
	:: else -> goto mixed
	fi;
over:	assert(!list && !theirs);
end:	skip
}

/* One that begins in an epoll without items, and has no time left. */
proctype leaver()
{
	byte at, seen;
	bit got;

	sleepers++;
endleaves:
	inproc;
	retract();
	harvest(got)
}

/* A wait that does not sleep. */
proctype looker()
{
	byte at, seen;
	bit got;

endlooks:
	inproc;
	harvest(got)
}

init {
	atomic {
		run adder(0);
		run adder(1);
		run waiter();
#ifdef LEAVER
		run leaver();
		run looker()
#else
		run waiter()
#endif
	}
}
