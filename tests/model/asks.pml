/* SPDX-License-Identifier: MIT */
/*
 * Adoption of an eventfd beside its registration, and an epoll whose kernel's side need not be asked.
 *
 * Mirrors: src/cache/adopt.c and ctl_both in epoll.c; plx_epoll_counts in epoll.h and kernel_leaves in
 * wait.c. One epoll, one eventfd, which is COLD. A writer adopts it, and then writes, to U or through
 * to the kernel. Another thread registers it, or has done so before
 * (REGISTERED: then the epoll is ready for items as well). A wait that does not sleep looks: if nkernel
 * is NOTHING, at U alone. Another makes nkernel NOTHING if it can.
 *
 * Each step is one access; all see them in one order, as with full barriers between them.
 *
 * Checked: an object that is CACHED in an epoll that is not ready does not stay so; a look that begins
 * after a write has returned finds it, in an epoll in which it has been registered.
 *
 * Broken variants: NO_SECOND_LOOK (who adopts does not look again), NO_LOOK_AT_ADD (who registers does
 * not), AT_ONCE (nkernel becomes NOTHING without LEAVING before the walk), TRUSTS_LEAVING (who has
 * changed a word takes LEAVING for good), ASK_FIRST (a write through asks before it changes the word).
 */
#define NOTHING 0
#define EVENTFDS 1
#define LEAVING 2

/* The word; the mark stands where K may hold something. */
bit cached, mark = 1, flushing;
byte u, k;
/* The epoll. */
#ifdef REGISTERED
bit watched = 1, ready = 1, added = 1;
#else
bit watched, ready, added;
#endif
byte nkernel = EVENTFDS;

/* Ghosts. */
bit returned;
byte ended;

inline counts()
{
	do
	:: nkernel == EVENTFDS -> break
#ifdef BROKEN_TRUSTS_LEAVING
	:: nkernel == LEAVING -> break
	:: atomic { nkernel == NOTHING -> nkernel = EVENTFDS }
		break
#else
	:: atomic { nkernel != EVENTFDS -> nkernel = EVENTFDS }
		break
#endif
	od
}

/* Becomes COLD, and U the kernel's. */
inline cool()
{
	do
	:: !cached && !flushing -> break
	:: flushing -> (!flushing)
	:: atomic { cached && u -> cached = 0; flushing = 1 };
		counts();
		k = k + u;
		atomic { u = 0; flushing = 0; mark = 1 }
		break
	:: atomic { cached && !u -> mark = 1 };
		counts();
		if
		:: atomic { cached && !u && mark -> cached = 0 }
			break
		:: !cached || u || !mark
		fi
	od
}

proctype writer()
{
	bit go;

	/* waits_see */
	if
	:: watched && !ready -> go = 0
	:: !watched || ready -> go = 1
	fi;
	if
	:: go ->
		cached = 1;
#ifndef BROKEN_NO_SECOND_LOOK
		if
		:: watched && !ready -> cool()
		:: !watched || ready
		fi
#endif
	:: !go
	fi;
	/* A read takes the mark away, or not. */
	if
	:: atomic { cached -> mark = 0 }
	:: true
	fi;
	/* A write. */
again:
	if
	:: atomic { cached && !mark -> u++ }
	:: flushing -> (!flushing); goto again
	:: !cached && !flushing -> k++
	:: cached ->
#ifdef BROKEN_ASK_FIRST
		counts();
#endif
		if
		:: atomic { cached && !u -> mark = 1 }
		:: !cached || u || flushing -> goto again
		fi;
#ifndef BROKEN_ASK_FIRST
		counts();
#endif
		k++
	fi;
	returned = 1;
	ended++
}

proctype registrar()
{
#ifndef REGISTERED
	watched = 1;
	if
	:: mark || !cached -> counts()
	:: !mark && cached
	fi;
#ifndef BROKEN_NO_LOOK_AT_ADD
	if
	:: cached && !ready -> cool()
	:: !cached || ready
	fi;
#endif
	added = 1;
#endif
	ended++
}

/* kernel_leaves */
proctype leaver()
{
	bit may;

#ifdef BROKEN_AT_ONCE
	may = watched && (mark || !cached);
	if
	:: !may -> nkernel = NOTHING
	:: may
	fi;
#else
	if
	:: atomic { nkernel == EVENTFDS -> nkernel = LEAVING };
		may = watched && (mark || !cached);
		if
		:: atomic { nkernel == LEAVING -> nkernel = (may -> EVENTFDS : NOTHING) }
		:: nkernel != LEAVING
		fi
	:: nkernel != EVENTFDS
	fi;
#endif
	ended++
}

proctype looker()
{
	bit must, found;

	must = returned && added;
	if
	:: nkernel != NOTHING -> found = (k > 0)
	:: nkernel == NOTHING
	fi;
	/* Ours, if the epoll is ready for it. */
	found = found || (u > 0 && ready);
	/* It may have moved from there to here, and is looked for again (beside_move). */
	if
	:: !found && nkernel != NOTHING -> found = (k > 0)
	:: else
	fi;
	assert(found || !must);
	ended++
}

init {
	atomic {
		run writer();
		run registrar();
		run leaver();
		run looker()
	}
	timeout ->
	assert(ended == 4);
	assert(!cached || !watched || ready)
}
