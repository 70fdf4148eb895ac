/* SPDX-License-Identifier: MIT */
/*
 * A wait that does not sleep, by a number at which other threads put other epolls meanwhile (dup2).
 *
 * Mirrors: src/posix/wait.c look_quickly, look_kernel, look_beside, wait_elsewhere, wait_mixed,
 * wait_kernel, kernel_look, wait_fd; src/posix/fd.c plx_px_dup3, renumber_begin, renumber_holds,
 * renumber_end; src/posix/epoll.c front_keep, front_setup. One number and three epolls: A has files
 * of the kernel's, and objects as well if MIXED; B has both, and somebody who sleeps in it and knows
 * it by another number; C has the kernel's alone. One looks, two put an epoll there, or one does and
 * another makes the first registration of an object by that number (ADD). QUIET: there is nothing
 * but what is ours of B.
 *
 * Checked: the event of a doorbell does not reach the program, nor is a ring lost for who sleeps; all
 * that a call returns is of one epoll, which the number has meant in the meantime, if only to the
 * table or the kernel, and of that nothing is left out that had been there before; who gets nothing
 * has had a moment with nothing to get from each side; what an epoll keeps as a duplicate of itself
 * is one.
 *
 * Memory: what matters is a locked step, a system call or behind a grace period; a section is counted
 * when it begins and ends.
 *
 * Broken variants: NO_FLAG (a look does not ask whether a number changes), NO_GRACE (looks under way
 * are not waited for), NO_LAST_GRACE (nor at the end, before the flag goes), NO_KEEP (no duplicate),
 * OUTSIDE (what is looked at is chosen outside of the section), NO_AGAIN (what is found at the number
 * with the lock has not been told), KEEP_ANY (a duplicate is made without a look at the table).
 */
#define A 1
#define B 2
#define C 3
#ifndef FIRST
#define FIRST B
#endif
#ifndef SECOND
#define SECOND C
#endif
#ifndef START
#define START A
#endif

/* What the number means, and its lock; what each keeps (0: nothing). */
byte tab = START, kern = START, kept[4];
bit lock;
byte flag[4];
/* Odd: within a section. */
byte section;

bit mixed[4], ours[4], theirs[4], bell;
/* Of B: who sleeps, and has been rung for. */
bit sleepers, done, asleep = 1;

/* What the call has got so far. */
bit looks, got_ours[4], got_theirs[4], got_bell;
/* What the number has meant since it began, and what that has not had at some time since then. */
bit meant[4], no_ours[4], no_theirs[4];

/* Whenever something has changed. */
inline note()
{
	if
	:: looks ->
		meant[kern] = 1;
		meant[tab] = 1;
		no_ours[A] = no_ours[A] || (meant[A] && !ours[A]);
		no_ours[B] = no_ours[B] || (meant[B] && !ours[B]);
		no_theirs[A] = no_theirs[A] || (meant[A] && !theirs[A]);
		no_theirs[B] = no_theirs[B] || (meant[B] && !theirs[B]);
		no_theirs[C] = no_theirs[C] || (meant[C] && !theirs[C])
	:: else
	fi
}

inline wake_one(e)
{
	d_step {
		if
		:: e == B && sleepers > done -> done = 1; bell = 1
		:: else
		fi
	}
}

/* The kernel's side of e. */
inline kernel_now(e)
{
	d_step {
		note();
		if
		:: theirs[e] -> got_theirs[e] = 1
		:: else
		fi;
		if
		:: e == B && bell -> bell = 0; got_bell = 1
		:: else
		fi
	}
}

/* Takes the doorbell's event out, if e is that whose it is. */
inline take_events(e)
{
	rung = 0;
	if
	:: e == B && got_bell -> d_step { got_bell = 0; rung = 1; done = 0 };
		if
		:: ours[B] -> wake_one(B)
		:: else
		fi
	:: else
	fi
}

inline collect_inproc(e)
{
	d_step {
		if
		:: ours[e] -> ours[e] = 0; got_ours[e] = 1
		:: else
		fi;
		note()
	}
}

#define GOT_THEIRS (got_theirs[A] || got_theirs[B] || got_theirs[C] || got_bell)

proctype looker()
{
	byte f, g, k;
	bit rung, more;

	d_step { looks = 1; note() };
	/* A wait with a mask begins there. */
	if
	:: skip
	:: goto slow
	fi;
	/* look_quickly */
	section++;
	f = tab;
#ifndef BROKEN_NO_FLAG
	if
	:: flag[f] -> section++; goto slow
	:: else
	fi;
#endif
	if
	:: mixed[f] && ours[f] -> section++; goto slow
	:: else
	fi;
	k = kern;
	kernel_now(kern);
	if
	:: mixed[f] ->
		take_events(f);
		if
		:: !GOT_THEIRS && (rung || ours[f]) -> section++; goto slow
		:: else
		fi
	:: else
	fi;
	more = GOT_THEIRS && mixed[f] && ours[f];
	if
	:: GOT_THEIRS && tab != f ->
		g = tab;
		take_events(g);
		section++;
		if
		:: !GOT_THEIRS -> goto slow
		:: else
		fi
	:: else ->
		section++;
		if
		:: more -> collect_inproc(f)
		:: else
		fi
	fi;
	goto out;
slow:	/* wait_call, with a reference. */
	f = tab;
	if
	:: mixed[f] ->
		kernel_now(kept[f]);
		take_events(f);
		collect_inproc(f)
	:: else ->
#ifdef BROKEN_OUTSIDE
		g = kept[f];
		section++;
#else
		section++;
		g = kept[f];
#endif
		if
		:: g -> kernel_now(g)
		:: else -> kernel_now(kern)
		fi;
		section++;
		if
		:: GOT_THEIRS && tab != f ->
			g = tab;
			take_events(g);
			if
			:: !GOT_THEIRS -> goto slow
			:: else
			fi
		:: else
		fi
	fi;
out:	skip;
	d_step {
		looks = 0;
		assert(!got_bell);
		assert((got_ours[A] || got_theirs[A]) + (got_ours[B] || got_theirs[B]) +
		       (got_ours[C] || got_theirs[C]) <= 1);
		assert((meant[A] || !(got_ours[A] || got_theirs[A])) &&
		       (meant[B] || !(got_ours[B] || got_theirs[B])) &&
		       (meant[C] || !(got_ours[C] || got_theirs[C])));
		/* It was there before. */
		assert(!(got_theirs[B] && !got_ours[B] && ours[B]));
		assert((no_ours[A] && no_theirs[A]) || (no_ours[B] && no_theirs[B]) ||
		       no_theirs[C] || got_ours[A] || got_ours[B] || got_theirs[A] || got_theirs[B] ||
		       got_theirs[C])
	}
}

inline take(l)
{
	atomic { !l -> l = 1 }
}

inline synchronize()
{
	s = section;
	!(s & 1) || section != s
}

/* Not if the number means another one by now. */
inline keep(e)
{
#ifdef BROKEN_KEEP_ANY
	if
	:: !kept[e] -> kept[e] = kern
	:: else
	fi
#else
	take(lock);
	if
	:: !kept[e] && tab == e -> kept[e] = kern
	:: else
	fi;
	lock = 0
#endif
}

/* dup2 of x, which has another number that stays. */
proctype changer(byte x)
{
	byte was, s;

again:	was = tab;
#ifndef BROKEN_NO_KEEP
	/* By its other number. */
	kept[x] = x;
	keep(was);
#endif
	flag[x]++;
	flag[was]++;
#ifndef BROKEN_NO_GRACE
	synchronize();
#endif
	take(lock);
#ifndef BROKEN_NO_AGAIN
	if
	:: tab != was ->
		lock = 0;
		synchronize();
		flag[x]--;
		flag[was]--;
		goto again
	:: else
	fi;
#endif
	d_step { tab = x; note() };
	d_step { kern = x; note() };
	lock = 0;
#ifndef BROKEN_NO_LAST_GRACE
	synchronize();
#endif
	flag[x]--;
	flag[was]--
}

#ifdef ADD
proctype adder()
{
	byte f;

	f = tab;
	keep(f)
}
#endif

/* Of B: ours first. */
proctype producer()
{
	d_step { ours[B] = 1; note() };
	wake_one(B);
#ifndef QUIET
	d_step { theirs[B] = 1; note() }
#endif
}

proctype sleeper()
{
endsleeps:
	atomic { bell || theirs[B] -> bell = 0 };
	d_step { sleepers = 0; done = 0; asleep = 0 };
	if
	:: d_step { ours[B] -> ours[B] = 0; note() }
	:: else
	fi
}

init {
	atomic {
#ifdef MIXED
		mixed[A] = 1;
		kept[A] = A;
#endif
		mixed[B] = 1;
		kept[B] = B;
		sleepers = 1;
#ifndef QUIET
		theirs[A] = 1;
		theirs[C] = 1;
#endif
		run looker();
		run changer(FIRST);
#ifdef ADD
		run adder();
#else
		run changer(SECOND);
#endif
		run producer();
		run sleeper()
	};
	timeout;
	assert(!looks && !lock);
	assert(!asleep || !ours[B]);
	assert((!kept[A] || kept[A] == A) && (!kept[B] || kept[B] == B) &&
	       (!kept[C] || kept[C] == C))
}
