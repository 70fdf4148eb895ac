/* SPDX-License-Identifier: MIT */
/*
 * A process is prepared beside its calls.
 *
 * Mirrors: src/cache/cold.c, note.c; plx_prepare, and the macros PLX_COLD_CHANGES and
 * PLX_COLD_SLEEPS. An eventfd and its epoll are noted. Calls beside who prepares: a close, an
 * epoll_ctl that adds the eventfd, and a wait. Each has said that it is under way before it looks
 * whether it may go to the kernel by itself.
 *
 * Checked: no entry is there of what has been closed; what is cached has no registration that is
 * not known; and while it is, nobody sleeps who has not been announced.
 *
 * Weak memory: what a call says is a plain store that waits in its store buffer, which the barrier
 * in all threads empties.
 *
 * Broken variants: NO_BARRIER and NO_SECOND_BARRIER (calls are looked at while what they say is in a
 * store buffer), NO_AWAIT (entries are made beside changes), LOOK_FIRST (a change looks before it
 * says so), NO_WAY_BACK (who has found that somebody prepares does not look at the table), LATE
 * (the process is prepared before there are entries), NOT_BUSY (cached beside a wait from before).
 */

#define NOTED 0
#define PREPARING 1
#define OVER 2

#define CLOSES 0
#define ADDS 1
#define WAITS 2
#define CALLS 3

byte state;
bit said[CALLS], buf[CALLS], buffered[CALLS];
bit noted = 1, entry, closed;
/* The kernel's registration, and ours. */
bit registered, item;
bit asleep, announced, cached;

inline say(value)
{
	atomic { said[me] = (buffered[me] -> buf[me] : said[me]); buf[me] = value; buffered[me] = 1 }
}

proctype memory(byte r)
{
endm:	do
	:: atomic { buffered[r] -> said[r] = buf[r]; buffered[r] = 0 }
	od
}

inline barrier()
{
	atomic {
		said[0] = (buffered[0] -> buf[0] : said[0]); buffered[0] = 0;
		said[1] = (buffered[1] -> buf[1] : said[1]); buffered[1] = 0;
		said[2] = (buffered[2] -> buf[2] : said[2]); buffered[2] = 0
	}
}

/* Whether the change goes to the kernel by itself. It has said so; if not, it has waited. */
inline change_begins()
{
#ifdef BROKEN_LOOK_FIRST
	byself = state == NOTED;
	say(1);
#else
	say(1);
	byself = state == NOTED;
#endif
	if
	:: byself
	:: else ->
		say(0);
#ifndef BROKEN_NO_WAY_BACK
		state != PREPARING
#endif
	fi
}

proctype closes()
{
	byte me = CLOSES;
	bit byself;

	change_begins();
	if
	:: byself -> noted = 0; say(0)
	:: else
	fi;
	/* The table is looked at in any case. */
	atomic { entry = 0; cached = 0 };
	closed = 1;
	assert(!entry)
}

proctype adds()
{
	byte me = ADDS;
	bit byself, known;

	change_begins();
	if
	:: byself -> registered = 1; say(0)
	:: else ->
		known = entry;
		/* The engine hears of it in the same call, which adoption looks at (ctl_both). */
		atomic { registered = 1; item = known; cached = (known -> cached : 0) }
	fi
}

proctype waits()
{
	byte me = WAITS;

	say(1);
	if
	:: state != OVER -> asleep = 1; assert(!cached); asleep = 0; say(0)
	:: else -> say(0); announced = 1
	fi
}

proctype prepares()
{
	byte me = CALLS;

	state = PREPARING;
#ifndef BROKEN_NO_BARRIER
	barrier();
#endif
#ifndef BROKEN_NO_AWAIT
	!said[CLOSES] && !said[ADDS];
#endif
#ifdef BROKEN_LATE
	state = OVER;
#endif
	if
	:: noted -> entry = 1
	:: else
	fi;
	assert(!(entry && closed));
	/* fdinfo. */
	item = entry && registered;
	state = OVER;
#ifndef BROKEN_NO_SECOND_BARRIER
	barrier();
#endif
#ifndef BROKEN_NOT_BUSY
	!said[WAITS];
#endif
	/* A write adopts. */
	atomic {
		if
		:: entry -> assert(item == registered); cached = 1; assert(!asleep)
		:: else
		fi
	}
}

init
{
	atomic {
		run memory(0); run memory(1); run memory(2);
		run closes(); run adds(); run waits(); run prepares()
	}
}
