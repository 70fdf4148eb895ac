/* SPDX-License-Identifier: MIT */
/*
 * Nesting: check and insertion are one step.
 *
 * Mirrors: src/epoll/topology.c (plx_topology_check: loop, depth in both directions;
 * plx_topology_paths: counts of reverse paths) and src/epoll/ctl.c (ctl_add: whether an ADD needs
 * the topology lock at all; ep_insert: link first, then count, removed again if there are too
 * many).
 *
 * Checked, at every insertion:
 *  - no loop: ADD(A watches B) and ADD(B watches A) do not both succeed, and one of them does;
 *  - no chain longer than the limit, in each order of three ADDs that would make a chain too long
 *    only together;
 *  - not more paths to the plain file than its limit, also when the file is added to an epoll at
 *    the moment that epoll becomes watched (only that ADD may decide to go without the mutex);
 *    looked at when all ADDs are over, since a link that will be undone counts for a moment.
 *
 * Epolls are 0 to 3, a matrix says who watches whom; `leaf` says who watches the plain file. The
 * depth limit is 3 epolls here and 5 in C; the path limit is 1 here. With small limits the same
 * races need fewer epolls.
 *
 * Abstractions: a walk over the whole graph is one step where the topology lock protects it, as
 * nobody else adds epolls then; DEL only makes chains shorter and is left out. Between the check of
 * the depth and the link, and between the link and the count, everybody else may run.
 *
 * An ADD of the plain file decides under the epoll's own mutex: if the epoll is watched, it takes
 * the topology lock, links and counts; otherwise it links before it lets go of the epoll's mutex.
 * The ADD of an epoll links, then counts with the mutex of that epoll held, so one of the two sees
 * the other. (ctl_add looks at visit_gen too; that only makes it take the lock more often and is
 * left out.)
 *
 * Broken variants: NO_MUTEX (check and insertion are not one step), DOWN_ONLY (depth counted
 * downwards only), COUNT_FIRST (counted, then linked).
 */

#define N 4
#define DEPTH 3
#define PATHS 1

/* link[a * N + b]: a watches b. */
bit link[16];
bit leaf[N];
bit topology_lock, mtx[N];

byte succeeded, finished, tried;

/* Longest chain of epolls from each one down and up; N means a loop or too long to matter. */
byte down[N], up[N];

inline measure()
{
	round = 0;
	i = 0;
	do
	:: i == N -> break
	:: else -> down[i] = 1; up[i] = 1; i++
	od;
	do
	:: round == N -> break
	:: else ->
		i = 0;
		do
		:: i == N * N -> break
		:: else ->
			if
			:: link[i] ->
				if
				:: down[i / N] < 1 + down[i % N] -> down[i / N] = 1 + down[i % N]
				:: else
				fi;
				if
				:: up[i % N] < 1 + up[i / N] -> up[i % N] = 1 + up[i / N]
				:: else
				fi
			:: else
			fi;
			i++
		od;
		round++
	od
}

/* Paths to the plain file: one for each watcher of it, and one for each chain of two above it. */
inline count_paths()
{
	paths = 0;
	i = 0;
	do
	:: i == N -> break
	:: else ->
		paths = paths + leaf[i];
		i++
	od;
	i = 0;
	do
	:: i == N * N -> break
	:: else ->
		paths = paths + (link[i] && leaf[i % N]);
		i++
	od
}

inline clear()
{
	i = 0;
	do
	:: i == N -> break
	:: else -> down[i] = 0; up[i] = 0; i++
	od;
	round = 0;
	paths = 0;
	i = 0
}

proctype add_epoll(byte a; byte b)
{
	byte i, round, paths;
	bit ok;

#ifndef BROKEN_NO_MUTEX
	atomic { !topology_lock -> topology_lock = 1; }
#endif
	d_step {
		measure();
#ifdef BROKEN_DOWN_ONLY
		ok = (1 + down[b] <= DEPTH && down[b] <= N);
#else
		ok = (up[a] + down[b] <= DEPTH);
#endif
		/* Reachable from itself: the new link closes a chain from b down to a. */
		link[a * N + b] = 1;
		measure();
		i = 0;
		do
		:: i == N -> break
		:: else ->
			if
			:: down[i] > N -> ok = 0
			:: else
			fi;
			i++
		od;
		link[a * N + b] = 0;
		clear();
	}
	if
	:: ok ->
#ifdef BROKEN_COUNT_FIRST
		atomic { !mtx[b] -> mtx[b] = 1; }
		d_step {
			link[a * N + b] = 1;
			count_paths();
			ok = (paths <= PATHS);
			link[a * N + b] = 0;
			clear();
		}
		mtx[b] = 0;
#endif
		atomic { !mtx[a] -> mtx[a] = 1; link[a * N + b] = 1; }
#ifndef BROKEN_COUNT_FIRST
		/* The walk down takes the mutex of b: an insertion there is over or sees the link. */
		atomic { !mtx[b] -> mtx[b] = 1; }
		d_step { count_paths(); ok = (paths <= PATHS); clear(); }
		mtx[b] = 0;
#endif
		d_step {
			if
			:: ok -> succeeded++
			:: else -> link[a * N + b] = 0
			fi;
			measure();
			i = 0;
			do
			:: i == N -> break
			:: else -> assert(down[i] <= DEPTH); i++
			od;
			clear();
			mtx[a] = 0;
		}
	:: else
	fi;
#ifndef BROKEN_NO_MUTEX
	topology_lock = 0;
#endif
	finished++
}

inline watched(e)
{
	yes = (link[e] || link[N + e] || link[2 * N + e] || link[3 * N + e]);
}

proctype add_leaf(byte a)
{
	byte i, round, paths;
	bit yes;

	atomic { !mtx[a] -> mtx[a] = 1; }
	d_step { watched(a); }
	if
	:: !yes ->
		leaf[a] = 1;
		mtx[a] = 0
	:: else ->
		mtx[a] = 0;
		atomic { !topology_lock -> topology_lock = 1; }
		atomic { !mtx[a] -> mtx[a] = 1; leaf[a] = 1; }
		d_step { count_paths(); leaf[a] = (paths <= PATHS); clear(); }
		mtx[a] = 0;
		topology_lock = 0
	fi;
	finished++
}

init {
	byte i, paths;

	if
	/* Each watches the other. */
	:: atomic { tried = 2; run add_epoll(0, 1); run add_epoll(1, 0); }
	   finished == tried;
	   assert(succeeded == 1)
	/* A chain of four from three links, in any order: just one fails. */
	:: atomic { tried = 3; run add_epoll(0, 1); run add_epoll(1, 2); run add_epoll(2, 3); }
	   finished == tried;
	   assert(succeeded == 2)
	/* A ring of three. */
	:: atomic { tried = 3; run add_epoll(0, 1); run add_epoll(1, 2); run add_epoll(2, 0); }
	   finished == tried;
	   assert(succeeded == 2)
	/* Two watchers for epoll 0 and the plain file into it: one path is the limit. */
	:: atomic { tried = 3; run add_epoll(1, 0); run add_epoll(2, 0); run add_leaf(0); }
	   finished == tried;
	   assert(succeeded == 2 - 2 * leaf[0])
	fi;
	count_paths();
	assert(paths <= PATHS)
}
