/* SPDX-License-Identifier: MIT */
/*
 * Fork: everything that is in process goes to the kernel before, and both sides go on with it.
 */
#include "cache/cold.h"
#include "cache/evict.h"

#include "base/inside.h"
#include "base/spin.h"
#include "base/stats.h"
#include "base/sys.h"

/*
 * A fork that finds nothing of ours does nothing: every page that it wrote would have to be
 * copied on both sides. BEGUN is for good. It and forks that have found nothing, counted
 * in EMPTY_FORK, are never there together, so that prepare and its hooks agree. The upper half is
 * the number of the process that counts: what a child finds there is its parent's, and need not be
 * written by it. (In another namespace of processes it may have its parent's number. Then its
 * objects are the kernel's.)
 */
#define EMPTY_FORK 4u
#define COUNTER_SHIFT 32
PLX_CHILD_PAGE uint64_t plx_px_begun;

/*
 * Prepare has taken the locks, and holds them. (A child in which somebody has begun before its
 * hook, in a handler of a signal or of pthread_atfork, does not.)
 */
static PLX_FORK_PAGE bool fork_full;

static uint64_t counter(void)
{
	uint32_t known = plx_load(&plx_cold_process);

	return (uint64_t)(known ? known : (uint32_t)plx_sys0(SYS_getpid)) << COUNTER_SHIFT;
}

/* Of this process or another. */
static bool forks_counted(uint64_t s)
{
	return (uint32_t)s >= EMPTY_FORK;
}

bool plx_px_begin_slow(void)
{
	uint64_t s = plx_load(&plx_px_begun), own = counter();

	/* The hook of this child has not run yet: it is alone. */
	if (plx_unlikely(s & PLX_FORKED_BESIDE) && s >> COUNTER_SHIFT != own >> COUNTER_SHIFT)
		plx_changes_after_fork_child();
	plx_rcu_begin();
	do {
		if (forks_counted(s) && s >> COUNTER_SHIFT == own >> COUNTER_SHIFT)
			return false;
	} while (!plx_cas(&plx_px_begun, &s, PLX_BEGUN));
	return true;
}

static bool fork_empty_begin(void)
{
	uint64_t s = plx_load_acq(&plx_px_begun), own, next;

	if (s == PLX_BEGUN)
		return false;
	own = counter();
	do {
		if (s == PLX_BEGUN)
			return false;
		next = (s >> COUNTER_SHIFT == own >> COUNTER_SHIFT ? s : own) + EMPTY_FORK;
		if (!plx_px_alone())
			next |= PLX_FORKED_BESIDE;
	} while (!plx_cas(&plx_px_begun, &s, next));
	PLX_DELAY(fork_empty);
	return true;
}

/*
 * Fork is a change (table.h): what is made meanwhile is the kernel's. One is made at a time. Its
 * lock, that of doorbells and being without signals last from prepare to the hook of each side, so
 * that the child finds the locks its own; so does being inside, since leaving would let a signal in
 * that waits.
 */
static PLX_FORK_PAGE plx_lock_t fork_lock;
static PLX_FORK_PAGE struct plx_masked fork_masked;
static PLX_FORK_PAGE uint32_t fork_depth;

PLX_CHILD_PAGE uint32_t plx_px_forks;
PLX_START_PAGE bool plx_px_fork_known;
uint32_t plx_px_raw_threads;

/*
 * A quiet fork: nothing is in process, and no other thread is here. Then no lock can be held
 * by somebody who is missing in the child, nobody adopts anything meanwhile, signals wait as the
 * thread is inside, and there is nothing to do on either side. What is noted is the thread's own:
 * libc's fork writes to that page anyway.
 */
static __thread struct {
	uint32_t depth;
	bool on;
} quiet;

static bool fork_is_quiet(void)
{
	if (!plx_px_alone() || !plx_load(&plx_signals_wait) || plx_load(&plx_stats_wanted))
		return false;
	plx_px_escape_all(PLX_OUT_FORK);
	return plx_nothing_in(plx_adopted_ever());
}

void plx_px_fork_prepare(void)
{
	struct plx_masked masked;
	uint64_t adopted;
	uint32_t depth;

	plx_xadd(&plx_px_forks, 1);
	if (fork_empty_begin())
		return;
	depth = plx_inside_begin();
	quiet.on = fork_is_quiet();
	if (quiet.on) {
		quiet.depth = depth;
		return;
	}
	plx_signals_block(&masked);
	plx_change_begin();
	adopted = plx_adopted_ever();
	plx_evict_table(NULL, PLX_OUT_FORK);
	plx_all_out(adopted);
	plx_lock(&fork_lock, PLX_RANK_FORK);
	fork_masked = masked;
	fork_full = true;
	fork_depth = depth;
	plx_bells_lock();
	plx_mem_before_fork();
}

void plx_px_fork_parent(void)
{
	uint32_t depth = fork_depth;
	struct plx_masked masked = fork_masked;

	plx_xadd(&plx_px_forks, 1);
	if (quiet.on) {
		quiet.on = false;
		plx_inside_end(&quiet.depth);
		return;
	}
	if (forks_counted(plx_load(&plx_px_begun))) {
		plx_xadd(&plx_px_begun, -(uint64_t)EMPTY_FORK);
		return;
	}
	fork_full = false;
	plx_mem_after_fork();
	plx_bells_unlock();
	plx_unlock(&fork_lock, PLX_RANK_FORK);
	plx_change_end();
	plx_signals_unblock(&masked);
	plx_inside_end(&depth);
}

/* In the child, first of all: true if there is nothing else to do. */
static PLX_CHILD_CODE bool child_is_done(void)
{
	uint64_t s = plx_load(&plx_px_begun);

	if (s == PLX_BEGUN && !quiet.on)
		return !fork_full;
	if (s == PLX_BEGUN) {
		quiet.on = false;
		plx_inside_end(&quiet.depth);
	} else if (plx_unlikely(s & PLX_FORKED_BESIDE)) {
		plx_changes_after_fork_child();
		plx_and(&plx_px_begun, ~(uint64_t)PLX_FORKED_BESIDE);
	}
	return true;
}

PLX_CHILD_CODE void plx_px_fork_child(void)
{
	struct plx_masked masked;
	int saved;

	if (child_is_done())
		return;
	/* Not before: errno is in a page of libc's code that the child may not need otherwise. */
	saved = errno;
	masked = fork_masked;
	fork_full = false;
	plx_wipe_by_hand();
	plx_mem_after_fork();
	/*
	 * Threads that held locks of epolls are not here. All sets are in the kernel, so what the
	 * locks protect is empty.
	 */
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f = plx_table_peek(fd);
		struct plx_epoll *pe;

		if (!f || f->kind != PLX_KIND_EPOLL)
			continue;
		pe = plx_file_epoll(f);
		plx_lock_reset(&pe->lock);
		plx_lock_reset(&pe->ep->mtx);
		if (pe->ep->sleepers)
			pe->ep->sleepers = 0;
		plx_lock_reset(&f->lock);
	}
	plx_bells_unlock();
	plx_changes_after_fork_child();
	plx_unlock(&fork_lock, PLX_RANK_FORK);
	plx_counters_after_fork_child();
	plx_signals_unblock(&masked);
	plx_inside_end(&fork_depth);
	/* A page that is not written need not be copied. */
	if (errno != saved)
		errno = saved;
}
