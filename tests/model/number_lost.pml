/* SPDX-License-Identifier: MIT */
/*
 * A wait goes to the kernel by its epoll's number, which another thread closes, and which another
 * epoll gets.
 *
 * Mirrors: src/cache/wait.c wait_kernel, wait_mixed, number_lost, wait_lost; src/cache/fd.c
 * number_out, plx_px_close; src/cache/epoll.c plx_px_epoll_create1, ctl_both. Epoll 1 has the number;
 * it is closed, and epoll 2 gets the number, with an object, which somebody writes to.
 *
 * Checked: nobody sleeps in epoll 2 beside an event, unless he has found nothing in the table and the
 * number not closed yet (wait.c).
 *
 * Memory: what matters here is a locked step, a system call or behind a full barrier.
 *
 * Broken variants: NO_LOOK (the wait does not look at the number after it has announced itself),
 * LOOK_FIRST (it does before), NO_BAR (who closes it does not look for sleepers), BAR_FIRST (he does
 * before the number has left the table).
 */
/* The epoll that the number means, in the table and to the kernel. */
byte table = 1, kernel = 1;
byte sleepers[3];
bit barred;
/* Epoll 2 caches: the object's event is on its list, else the kernel's. */
bit cached, list, theirs, rung, written;

proctype waiter()
{
	byte me;

again:	me = table;
	if
	:: me == 0 ->
		/* Nothing stands there: the program's own call; but for who comes between the two. */
		if
		:: kernel == 2 && cached -> goto again
		:: kernel == 2 && !cached
		:: else -> goto end
		fi
	:: else ->
#ifdef BROKEN_LOOK_FIRST
		if
		:: table != me -> goto again
		:: else
		fi;
		sleepers[me]++;
#else
		sleepers[me]++;
#ifndef BROKEN_NO_LOOK
		if
		:: table != me -> sleepers[me]--; goto again
		:: else
		fi;
#endif
#endif
		if
		:: me == 2 && list -> sleepers[me]--; goto end
		:: else
		fi
	fi;
	/* The sleep: in the epoll that the number means to the kernel. */
	if
	:: kernel == 0 -> goto end
	:: kernel == 1 ->
		/* Nothing comes any more. */
		goto end
	:: kernel == 2 ->
		if
		:: rung -> rung = 0
		:: theirs -> theirs = 0
		:: timeout -> assert(!list && !theirs)
		fi
	fi;
end:	skip
}

proctype closer()
{
#ifdef BROKEN_BAR_FIRST
	barred = sleepers[1] > 0;
	table = 0;
#else
	table = 0;
#ifndef BROKEN_NO_BAR
	barred = sleepers[1] > 0;
#endif
#endif
	kernel = 0;
	/* epoll_create1, and an ADD */
	d_step { kernel = 2; cached = !barred };
	if
	:: cached -> table = 2
	:: else
	fi;
	/* A write. */
	if
	:: cached -> list = 1;
		if
		:: sleepers[2] > 0 -> rung = 1
		:: else
		fi
	:: else -> theirs = 1
	fi
}

init {
	atomic {
		run waiter();
		run closer()
	}
}
