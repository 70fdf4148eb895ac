/* SPDX-License-Identifier: MIT */
/*
 * Nesting: check and insertion are one step.
 *
 * Mirrors: src/epoll/topology.c (loop check, depth in both directions, counts of reverse paths,
 * insertion, all under the one topology mutex) and the test in src/epoll/ctl.c whether an ADD needs
 * that mutex at all.
 *
 * Checked, at every insertion:
 *  - no loop: ADD(A watches B) and ADD(B watches A) do not both succeed, and one of them does;
 *  - no chain longer than the limit, in each order of three ADDs that would make a chain too long
 *    only together;
 *  - not more paths to the plain file than its limit, also when the file is added to an epoll at
 *    the moment that epoll becomes watched (only that ADD may decide to go without the mutex).
 *
 * Epolls are 0 to 3, a matrix says who watches whom; `leaf` says who watches the plain file. The
 * depth limit is 3 epolls here and 5 in C; the path limit is 1 here. With small limits the same
 * races need fewer epolls.
 *
 * Abstractions: a walk over the whole graph is one step where the topology mutex protects it, as
 * nobody else adds then; DEL only makes chains shorter and is left out. The walk may be early and
 * the insertion late: they are two steps with all others in between.
 *
 * An ADD of the plain file decides under the epoll's own mutex: if the epoll is watched, or an ADD
 * of this epoll to another one is under way (`pending`, set under the epoll's mutex before the
 * paths are counted, cleared after the insertion), it takes the topology mutex and counts;
 * otherwise it inserts before it lets go of the epoll's mutex.
 *
 * Broken variants: NO_MUTEX (check and insertion are not one step), DOWN_ONLY (depth counted
 * downwards only), NO_PENDING (`pending` is not looked at).
 */

#define N 4
#define DEPTH 3
#define PATHS 1

/* link[a * N + b]: a watches b. */
bit link[16];
bit leaf[N], pending[N];
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
	atomic { !mtx[b] -> pending[b] = 1; }
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
		count_paths();
		if
		:: paths > PATHS -> ok = 0
		:: else
		fi;
		link[a * N + b] = 0;
		clear();
	}
	if
	:: ok ->
		atomic { !mtx[a] -> link[a * N + b] = 1; succeeded++; }
		d_step {
			measure();
			i = 0;
			do
			:: i == N -> break
			:: else -> assert(down[i] <= DEPTH); i++
			od;
			count_paths();
			assert(paths <= PATHS);
			clear();
		}
	:: else
	fi;
	pending[b] = 0;
#ifndef BROKEN_NO_MUTEX
	topology_lock = 0;
#endif
	finished++
}

inline watched(e)
{
	yes = (link[e] || link[N + e] || link[2 * N + e] || link[3 * N + e]);
#ifndef BROKEN_NO_PENDING
	yes = (yes || pending[e]);
#endif
}

proctype add_leaf(byte a)
{
	byte i, round, paths;
	bit yes, ok = 1;

	atomic { !mtx[a] -> mtx[a] = 1; }
	d_step { watched(a); }
	if
	:: !yes ->
		leaf[a] = 1;
		mtx[a] = 0
	:: else ->
		mtx[a] = 0;
		atomic { !topology_lock -> topology_lock = 1; }
		d_step {
			leaf[a] = 1;
			count_paths();
			ok = (paths <= PATHS);
			leaf[a] = 0;
			clear();
		}
		if
		:: ok -> atomic { !mtx[a] -> leaf[a] = 1; }
		:: else
		fi;
		topology_lock = 0
	fi;
	d_step {
		count_paths();
		assert(paths <= PATHS);
		clear();
	}
	finished++
}

init {
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
	fi
}
