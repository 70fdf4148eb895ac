/* SPDX-License-Identifier: MIT */
/*
 * Who sleeps in an epoll that has been lent to the kernel, while all of it comes back.
 *
 * Mirrors: src/posix/lent.c lent_return, prepare, undo, commit; src/posix/epoll.c plx_front_bell,
 * plx_front_no_bell, plx_front_ring; src/posix/wait.c wait_lent, wait_mixed (for one who waits since
 * before the fork), wait_ring; src/epoll/ready.c plx_ep_wake_one. One eventfd and one level-triggered
 * item of it, which is the kernel's at first. It comes back when that is tried for the second time,
 * or the first. One writes once, by the number, and to what that means then (lent.pml has how nobody
 * goes to the kernel while it changes); two wait until they have got the event.
 *
 * Checked: when nothing can move any more nobody sleeps while the eventfd is ready. Nobody has the
 * doorbell's event without knowing that there is one.
 *
 * Memory: what matters here is a locked step, a system call, or behind a full barrier.
 *
 * Broken variants: NO_LIVE_LOOK (who sleeps in a lent epoll does not look whether it is back once he
 * has announced himself), LIVE_LOOK_FIRST (he does before), NO_RING (who brings it back rings for
 * nobody), RING_FIRST (he does before front.spilled is cleared), BELL_LATE (the doorbell is
 * registered after that), INPROC_LATE (front.inproc is set then, too), NO_COUNT (the object is made
 * without the kernel's count).
 */
/* The number means the kernel's object; the item is the kernel's; what can be read. */
bit kernel = 1, registered = 1, theirs;
/* The object in process: what can be read; the item is on our list. */
bit ours, list;
bit inproc, spilled = 1, moving, returning, front_lock, back;
/* The doorbell: it is registered; it has been rung since its event was taken. */
bit stands, rung;
byte sleepers, done;

#define live (inproc && !spilled)
#define theirs_is_ready (registered && theirs)

inline take(l) { atomic { !l -> l = 1 } }

inline wake_one()
{
	d_step {
		if
		:: done < sleepers -> done++; rung = 1
		:: else
		fi
	}
}

inline announce() { sleepers++ }
inline retract() { d_step { sleepers--; done = 0 } }

proctype producer()
{
	if
	:: skip
	:: atomic { kernel && !returning -> theirs = 1 }
	:: atomic { !kernel -> ours = 1 };
		list = 1;
		wake_one()
	fi
}

inline front_bell()
{
	take(front_lock);
	/* Rings of old are read, and their counts end. */
	d_step { rung = 0; done = 0 };
	stands = 1;
#ifndef BROKEN_INPROC_LATE
	inproc = 1;
#endif
	front_lock = 0
}

inline item_add()
{
#ifndef BROKEN_NO_COUNT
	ours = theirs;
#endif
	if
	:: ours -> list = 1; wake_one()
	:: else
	fi
}

inline ring_sleepers()
{
#ifndef BROKEN_NO_RING
	if
	:: sleepers -> rung = 1
	:: else
	fi
#else
	skip
#endif
}

proctype returner()
{
	byte n;

	do
	:: n == 2 || back -> break
	:: n < 2 && !back ->
		n++;
		moving = 1;
		returning = 1;
#ifndef BROKEN_BELL_LATE
		front_bell();
#endif
		item_add();
		if
		:: n == 1 ->
			/* There was no memory for more. */
			d_step { list = 0; ours = 0 };
			take(front_lock);
			stands = 0;
			front_lock = 0
		:: true ->
			registered = 0;
			kernel = 0;
#ifdef BROKEN_RING_FIRST
			ring_sleepers();
			spilled = 0;
#else
			spilled = 0;
			ring_sleepers();
#endif
#ifdef BROKEN_BELL_LATE
			front_bell();
#endif
#ifdef BROKEN_INPROC_LATE
			inproc = 1;
#endif
			back = 1
		fi;
		returning = 0;
		moving = 0
	od
}

/* before: in wait_mixed, since before the fork. */
proctype waiter(bit before)
{
	bit got;

	if
	:: before -> goto mixed
	:: else
	fi;
lent:	!moving;
	if
	:: live -> goto mixed
	:: else
	fi;
#ifdef BROKEN_LIVE_LOOK_FIRST
	if
	:: live -> goto mixed
	:: else
	fi;
#endif
	announce();
#if !defined(BROKEN_NO_LIVE_LOOK) && !defined(BROKEN_LIVE_LOOK_FIRST)
	if
	:: live -> retract(); goto lent
	:: else
	fi;
#endif
endlent:
	if
	:: atomic { stands && rung -> rung = 0 }
	:: theirs_is_ready -> got = 1
	fi;
	retract();
	if
	:: got -> goto end
	:: else
	fi;
	/* The doorbell's event is told by its marker. */
	assert(inproc);
	goto lent;

mixed:	if
	:: list -> wake_one(); goto end
	:: else
	fi;
	if
	:: theirs_is_ready -> goto end
	:: else
	fi;
	if
	:: moving -> !moving; goto mixed
	:: else
	fi;
	if
	:: !stands ->
		take(front_lock);
		if
		:: live && !stands -> stands = 1
		:: else
		fi;
		front_lock = 0
	:: else
	fi;
	announce();
	if
	:: list -> retract(); goto mixed
	:: else
	fi;
endmixed:
	if
	:: atomic { stands && rung -> rung = 0 }
	:: theirs_is_ready -> got = 1
	fi;
	retract();
	if
	:: got
	:: !got -> goto mixed
	fi;
end:	if
	:: list -> wake_one()
	:: else
	fi
}

init {
	atomic {
		run producer();
		run returner();
		if
		:: inproc = 1; run waiter(1)
		:: inproc = 0; run waiter(0)
		fi;
		run waiter(0)
	};
	timeout ->
	assert(!sleepers || (!ours && !theirs))
}
