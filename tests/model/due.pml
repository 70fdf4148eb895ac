/* SPDX-License-Identifier: MIT */
/*
 * While a time is to come and threads sleep in the epoll, one of them wakes when it comes.
 *
 * Mirrors: src/epoll/due.c plx_due_keep_slow, plx_due_let_go; src/epoll/harvest.c plx_due_pass_on_slow,
 * plx_due_tell; src/epoll/wait.c sleep_once, wait_for_some. Two threads wait, over and over until they
 * leave: with an event, or at a deadline of their own, which one of them has. One makes the first time
 * finite, and then earlier; one makes an event. A ring that nobody has collected may stand for the
 * next. Steps are sequentially consistent: between the steps whose order counts there are full
 * barriers.
 *
 * Checked: when nothing moves any more and somebody sleeps, somebody sleeps no longer than up to the
 * first time.
 *
 * Broken variants: NO_PASS (who leaves does not look), NO_TELL (who makes the time earlier does not
 * look), DUE_FIRST (who sleeps looks at the time before it counts itself), PASS_FIRST (who leaves
 * looks before it has taken back what it keeps), STORE_LATE (the time is stored after the look for
 * sleepers).
 */

#define NEVER 3

byte due = NEVER, keeper = NEVER, sleepers;
bit rung, event;
bit asleep[2];
byte until[2];

inline ring()
{
	atomic {
		if
		:: rung
		:: true ->
			rung = 1;
			if
			:: asleep[0] -> asleep[0] = 0
			:: asleep[1] -> asleep[1] = 0
			:: !asleep[0] && !asleep[1]
			fi
		fi
	}
}

/* c: a byte of the caller's. */
inline look_for_keeper(c)
{
	c = due;
	if
	:: c < keeper ->
		if
		:: sleepers > 0 -> ring()
		:: else
		fi
	:: else
	fi
}

proctype waiter(byte me; bit ends)
{
	byte d, kept, c;

again:
	kept = NEVER;
#ifdef BROKEN_DUE_FIRST
	d = due;
#endif
	sleepers++;
	if
	:: event -> goto up
	:: else
	fi;
#ifndef BROKEN_DUE_FIRST
	d = due;
#endif
	atomic {
		if
		:: d < keeper ->
			keeper = d;
			kept = d
		:: else
		fi
	}
	do
	:: atomic { rung -> break }
	:: atomic {
			!rung ->
			asleep[me] = 1;
			until[me] = kept
		}
end_asleep:
		if
		:: !asleep[me]
		:: atomic {
				asleep[me] && ends ->
				asleep[me] = 0
			}
			goto up_at_deadline
		fi
	od;
up:
	c = 0;
	goto over;
up_at_deadline:
	c = 1;
over:
#ifdef BROKEN_PASS_FIRST
	look_for_keeper(d);
#endif
	if
	:: kept != NEVER ->
		atomic {
			if
			:: keeper == kept -> keeper = NEVER
			:: else
			fi
		}
	:: else
	fi;
	sleepers--;
	rung = 0;
	atomic {
		if
		:: event -> event = 0
		:: !event && c
		:: !event && !c -> goto again
		fi
	}
#ifndef BROKEN_NO_PASS
#ifndef BROKEN_PASS_FIRST
	look_for_keeper(c)
#endif
#endif
}

proctype setter()
{
	byte c;

	due = 2;
#ifndef BROKEN_NO_TELL
	look_for_keeper(c);
#endif
#ifdef BROKEN_STORE_LATE
	c = sleepers;
	due = 1;
	if
	:: c > 0 && due < keeper -> ring()
	:: else
	fi
#else
	due = 1;
#ifndef BROKEN_NO_TELL
	look_for_keeper(c)
#endif
#endif
}

proctype producer()
{
	event = 1;
	if
	:: sleepers > 0 -> ring()
	:: else
	fi
}

active proctype monitor()
{
	timeout;
	assert(due == NEVER || (!asleep[0] && !asleep[1]) || (asleep[0] && until[0] <= due) ||
	       (asleep[1] && until[1] <= due))
}

init {
	atomic {
		run waiter(0, 0);
		run waiter(1, 1);
		run setter();
		run producer()
	}
}
