/* SPDX-License-Identifier: MIT */
/*
 * The engine's mutex: four bytes, sleeping, not recursive.
 *
 * Every lock has a rank. A thread takes locks in rising rank only (equal ranks
 * are allowed for PLX_RANK_EP, where the mutexes of nested epolls are taken from
 * the outside in, and the loop check keeps that order free of cycles).
 * Builds with PLX_LOCKDEP check this at every acquisition.
 */
#pragma once

#include "base/atomic.h"

/* Which lock, and what it protects. */
enum plx_rank {
	PLX_RANK_FORK = 1,  /* fork_lock: one fork at a time */
	PLX_RANK_TIMER,	    /* plx_timer.lock: a timerfd: what the kernel knows of it */
	PLX_RANK_EPOLL,	    /* plx_epoll.lock: its doorbell */
	PLX_RANK_TOPOLOGY,  /* the one global mutex: shape of nested epolls while one is added */
	PLX_RANK_EP,	    /* eventpoll.mtx: ordered ready list, items, harvest */
	PLX_RANK_FILE,	    /* file.lock: the file's list of watches, its primary flag, MODs */
	PLX_RANK_OBJECT,    /* pollux_timer.lock: a timer's times */
	PLX_RANK_AIO_TABLE, /* root of AIO contexts: which contexts there are */
	PLX_RANK_AIO_ARENA, /* arena.lock: pages of rings that no context has */
	PLX_RANK_AIO,	    /* kioctx.lock: the ring's tail, taking from it */
	PLX_RANK_RECLAIM,   /* reclaim_lock: what waits for its free operation */
	PLX_RANK_THREADS,   /* threads_lock: which threads count watches, or have batches */
	PLX_RANK_GRACE,	    /* gp_lock: the numbers of grace periods; held over one */
	PLX_RANK_BELL,	    /* bell_lock: which numbers are those of doorbells */
	PLX_RANK_RETIRE,    /* orphaned retire batches: batches left behind by threads that ended */
	PLX_RANK_SLAB,	    /* depot of the slab: free objects that no thread keeps */
	PLX_RANK_MEM,	    /* all other memory */
};

/* 0 free, 1 held, 2 held and somebody may sleep. */
typedef uint32_t plx_lock_t;

/*
 * What every fork writes lies together: each page that is written must be copied, on
 * both sides. A line of its own for each, because others than forks use them, too.
 */
#define PLX_FORK_PAGE __attribute__((section(".bss.plx_fork"), aligned(64)))
/* What a child writes that makes its first epoll, in one page: the sections are sorted by name. */
#define PLX_CHILD_PAGE_FIRST __attribute__((section(".bss.plx_child_a"), aligned(4096)))
#define PLX_CHILD_PAGE __attribute__((section(".bss.plx_child_b"), aligned(64)))
/* Of which the beginning is in the page. */
#define PLX_CHILD_PAGE_TABLE __attribute__((section(".bss.plx_child_c")))
/* The same for what each start of a program writes, which is a fault for each page. */
#define PLX_START_PAGE __attribute__((section("plx_start_page")))
/* What each child of a fork runs, in one place: it has none of the code mapped yet. */
#define PLX_CHILD_CODE __attribute__((section(".text.hot.plx_child")))
/* What each start of a program runs, for the same reason: code is mapped by 16 pages at a time. */
#define PLX_START_CODE __attribute__((section(".text.startup.plx")))
/* Constants that either needs, beside its code. */
#define PLX_CHILD_CONST __attribute__((section(".text.hot.plx_child_const")))
#define PLX_START_CONST __attribute__((section(".text.startup.plx_const")))
/* Large tables, of which little is written: they are put behind all that is small (meson.build). */
#define PLX_LARGE __attribute__((section(".bss.plx_large")))

/*
 * Threads of all priorities need those of these ranks for objects of their own: there the holder
 * has the priority of whoever waits. Free, or the holder's number and FUTEX_WAITERS (futex(2)).
 */
#define PLX_RANK_LENDS PLX_RANK_BELL
void plx_pi_lock(plx_lock_t *l);
void plx_pi_unlock(plx_lock_t *l);

void plx_lock_slow(plx_lock_t *l);
void plx_lock_wake(plx_lock_t *l);

#if PLX_LOCKDEP
void plx_lockdep_acquire(const plx_lock_t *l, enum plx_rank rank);
void plx_lockdep_release(const plx_lock_t *l);
/* Aborts unless the calling thread holds l. */
void plx_lockdep_held(const plx_lock_t *l);
/* Aborts if the calling thread holds any engine lock. */
void plx_lockdep_none(void);
#else
#define plx_lockdep_acquire(l, r) ((void)0)
#define plx_lockdep_release(l) ((void)0)
#define plx_lockdep_held(l) ((void)0)
#define plx_lockdep_none() ((void)0)
#endif

/* In the child of a fork: whoever held it is not there. A page that is not written stays shared. */
static inline void plx_lock_reset(plx_lock_t *l)
{
	if (plx_load(l))
		plx_store(l, 0);
}

/*
 * For a moment, of one below PLX_RANK_LENDS, by whom may be a signal handler, which may have
 * interrupted whatever has locks of any rank: so they are not looked at. False if somebody has it.
 */
static inline bool plx_glance(plx_lock_t *l)
{
	uint32_t free = 0;

	return __atomic_compare_exchange_n(l, &free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void plx_glance_end(plx_lock_t *l)
{
	if (plx_unlikely(__atomic_exchange_n(l, 0, __ATOMIC_RELEASE) == 2))
		plx_lock_wake(l);
}

static inline void plx_lock(plx_lock_t *l, enum plx_rank rank)
{
	(void)rank;
	plx_lockdep_acquire(l, rank);
	if (rank >= PLX_RANK_LENDS)
		plx_pi_lock(l);
	else if (plx_unlikely(!plx_glance(l)))
		plx_lock_slow(l);
}

/* False if somebody has it. */
static inline bool plx_trylock(plx_lock_t *l, enum plx_rank rank)
{
	(void)rank;
	if (!plx_glance(l))
		return false;
	plx_lockdep_acquire(l, rank);
	return true;
}

static inline void plx_unlock(plx_lock_t *l, enum plx_rank rank)
{
	(void)rank;
	plx_lockdep_release(l);
	if (rank >= PLX_RANK_LENDS)
		plx_pi_unlock(l);
	else
		plx_glance_end(l);
}
