/* SPDX-License-Identifier: MIT */
#include "base/rcu.h"

#include <linux/membarrier.h>
#include <pthread.h>

#include "base/bug.h"
#include "base/clock.h"
#include "base/inside.h"
#include "base/key.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/slab.h"
#include "base/sys.h"

/* A batch is as large as a class of memory has it (mem.c). */
#define RETIRE_BATCH 126
#define ORPHANS_MAX 32

/*
 * Grace periods are numbered, and whoever needs one may use one that another thread has made.
 *
 *   gp_begun   the number of the last one begun; moves before it begins
 *   gp_ended   the number of the last one ended
 *
 * Both move under gp_lock alone. A batch that is full is closed: a full barrier, then it notes
 * gp_begun. It is released when gp_ended is greater than the note.
 *
 * Argument. Let n be the grace period whose end was seen. Its number was stored after the
 * note was taken, or the note would not be smaller. So what was stored before the note (the
 * objects' removal from all that leads to them) was visible before n began: there is a full
 * barrier between the removal and the note, and one between the store of the number and the
 * look at the readers, which liburcu begins with. A reader that n has not waited for began
 * after that and cannot find the objects; one that it has waited for is gone, and its
 * accesses are before the store of gp_ended that was seen.
 *
 * A grace period takes a microsecond alone, several while the process runs on other CPUs,
 * which are interrupted for it, and ten milliseconds and more if a reader is preempted: liburcu
 * sleeps then. While one thread does, the others go on; only who has a whole lot of
 * objects, about a megabyte of notes, waits for it. A thread makes one when it has gathered so
 * many objects that the waiting is a small part of its time; no more, since what waits is not in
 * the cache when it is used again.
 */
#define RETIRE_BATCHES_MAX 512
#define SLOW_NS 500000
#define SHARE_MOST 16
#define SHARE_LEAST 128
#define HASTY 64

static plx_lock_t gp_lock;
static uint64_t gp_begun __attribute__((aligned(64)));
static uint64_t gp_ended;

struct retire_entry {
	void *obj;
	void (*fn)(void *obj);
};

struct retire_batch {
	/* The next younger one. */
	struct retire_batch *next;
	uint64_t after;
	uint32_t n;
	struct retire_entry e[RETIRE_BATCH];
};

#if PLX_TSAN
char plx_rcu_token_reader, plx_rcu_token_writer;
#endif

static __thread struct {
	struct retire_batch *oldest;
	/* The youngest is the one that is filled. */
	struct retire_batch *batch;
	uint32_t batches;
	/* So many make it worth a grace period. */
	uint32_t enough;
	/* So many grace periods more are made without a yield before. */
	uint32_t hasty;
	/* The end of the thread will be heard of. */
	bool keyed;
	/* One that is free, so that the next need not be fetched from where all threads do. */
	struct retire_batch *kept;
	int64_t flushed_at;
} mine = {.enough = 4};

static PLX_START_PAGE struct plx_key retire_key;

/* Batches of threads that ended, under orphan_lock. */
static plx_lock_t orphan_lock;
static struct retire_batch *orphans;
static uint32_t norphans;

/* All that the thread has, the oldest first. */
static struct retire_batch *retire_take_all(void)
{
	struct retire_batch *b = mine.oldest;

	mine.oldest = mine.batch = NULL;
	mine.batches = 0;
	return b;
}

static void retire_thread_exit(void *p)
{
	PLX_INSIDE();
	struct retire_batch *last = mine.batch;
	struct retire_batch *b = retire_take_all();
	uint32_t n;

	(void)p;
	plx_mem_put(mine.kept);
	mine.kept = NULL;
	mine.keyed = false;
	if (!b)
		return;
	plx_lock(&orphan_lock, PLX_RANK_RETIRE);
	last->next = orphans;
	plx_store(&orphans, b);
	n = ++norphans;
	plx_unlock(&orphan_lock, PLX_RANK_RETIRE);
	/* Threads that live too shortly to fill a batch: there may be no others. */
	if (n >= ORPHANS_MAX)
		plx_retire_flush();
}

PLX_START_CODE void plx_retire_init(void)
{
	(void)plx_key(&retire_key, retire_thread_exit);
}

void plx_mb_heavy(void)
{
	plx_mb();
#if defined(_LGPL_SOURCE)
	if (urcu_bp_has_sys_membarrier)
		PLX_INVARIANT(plx_sys2(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0,
			      "the barrier that liburcu registered for can be had");
#endif
}

void plx_rcu_synchronize(void)
{
#if PLX_TSAN
	__tsan_release(&plx_rcu_token_writer);
#endif
	urcu_bp_synchronize_rcu();
#if PLX_TSAN
	__tsan_acquire(&plx_rcu_token_reader);
#endif
}

/* gp_lock held. */
static void gp_run(void)
{
	uint64_t n = gp_begun + 1;

	plx_store(&gp_begun, n);
	plx_mb();
	plx_rcu_synchronize();
	plx_store_rel(&gp_ended, n);
}

/* What is removed by now is noted to wait for a grace period that has not begun. */
static uint64_t gp_note(void)
{
#if PLX_TSAN
	__tsan_release(&plx_rcu_token_writer);
#endif
	plx_mb();
	return plx_load(&gp_begun);
}

static bool gp_over(uint64_t after)
{
	return plx_load_acq(&gp_ended) > after;
}

/* The lock is free most of the time; who finds it taken is spared a grace period. */
static void gp_wait(uint64_t after)
{
	plx_lock(&gp_lock, PLX_RANK_GRACE);
	if (!gp_over(after))
		gp_run();
	plx_unlock(&gp_lock, PLX_RANK_GRACE);
}

static struct retire_batch *retire_batch_new(void)
{
	struct retire_batch *b;

	if (plx_unlikely(!mine.keyed)) {
		if (pthread_setspecific(plx_key(&retire_key, retire_thread_exit), &mine))
			return NULL;
		mine.keyed = true;
	}
	b = mine.kept ? mine.kept : plx_mem_get(sizeof(*b));
	mine.kept = NULL;
	if (!b)
		return NULL;
	b->n = 0;
	b->next = NULL;
	if (mine.batch)
		mine.batch->next = b;
	else
		mine.oldest = b;
	mine.batch = b;
	mine.batches++;
	return b;
}

PLX_CHILD_CODE void plx_retire(void *obj, void (*fn)(void *obj))
{
	struct retire_batch *b = mine.batch;

	if (plx_unlikely(!b || b->n == RETIRE_BATCH)) {
		b = retire_batch_new();
		/* Without memory for a note the object is lost, which is safe. */
		if (!b)
			return;
	}
	b->e[b->n].obj = obj;
	b->e[b->n].fn = fn;
	if (++b->n == RETIRE_BATCH)
		b->after = gp_note();
}

bool plx_retire_full(void)
{
	return mine.batch && mine.batch->n == RETIRE_BATCH;
}

static void retire_run(struct retire_batch *b)
{
	while (b) {
		struct retire_batch *next = b->next;

		for (uint32_t i = 0; i < b->n; i++)
			b->e[i].fn(b->e[i].obj);
		if (!mine.kept && mine.keyed)
			mine.kept = b;
		else
			plx_mem_put(b);
		b = next;
	}
}

static struct retire_batch *orphans_take(void)
{
	struct retire_batch *list;

	if (!plx_load(&orphans))
		return NULL;
	plx_lock(&orphan_lock, PLX_RANK_RETIRE);
	list = orphans;
	plx_store(&orphans, NULL);
	norphans = 0;
	plx_unlock(&orphan_lock, PLX_RANK_RETIRE);
	return list;
}

/* A grace period took so long, and so long the thread had done without one. */
static void enough_adapt(int64_t took, int64_t since)
{
	if (took > SLOW_NS) {
		mine.enough *= 4;
		mine.hasty = 0;
	} else if (took * SHARE_MOST > since) {
		mine.enough *= 2;
	} else if (took * SHARE_LEAST < since) {
		mine.enough /= 2;
	}
	if (mine.enough > RETIRE_BATCHES_MAX)
		mine.enough = RETIRE_BATCHES_MAX;
	if (!mine.enough)
		mine.enough = 1;
}

/* Releases the closed batches that need wait no more. */
static void retire_run_over(void)
{
	struct retire_batch *b;

	while ((b = mine.oldest) && b->n == RETIRE_BATCH && gp_over(b->after)) {
		mine.oldest = b->next;
		if (!mine.oldest)
			mine.batch = NULL;
		mine.batches--;
		b->next = NULL;
		retire_run(b);
	}
}

void plx_retire_full_flush(void)
{
	uint64_t after = mine.batch->after;
	struct retire_batch *left;
	int64_t start, now;

	plx_lockdep_none();
	retire_run_over();
	if (mine.batches < mine.enough)
		return;
	/*
	 * Whoever this thread has taken the CPU from, perhaps by the wake that brought it here, may
	 * be within a section: that ends before anybody has to sleep for it. Without the lock, as
	 * this may last while others have work. If it does, those are mostly threads that compute,
	 * and it is left out until a grace period is slow. Nor is it a part of what one takes.
	 */
	if (mine.hasty) {
		mine.hasty--;
	} else if (!gp_over(after) && !plx_load(&gp_lock)) {
		start = plx_now_ns();
		plx_sys0(SYS_sched_yield);
		if (plx_now_ns() - start > SLOW_NS)
			mine.hasty = HASTY;
	}
	start = plx_now_ns();
	if (mine.batches >= RETIRE_BATCHES_MAX)
		plx_lock(&gp_lock, PLX_RANK_GRACE);
	else if (!plx_trylock(&gp_lock, PLX_RANK_GRACE))
		return;
	left = orphans_take();
	if (left || !gp_over(after))
		gp_run();
	plx_unlock(&gp_lock, PLX_RANK_GRACE);
	now = plx_now_ns();
	enough_adapt(now - start, start - mine.flushed_at);
	mine.flushed_at = now;
	retire_run_over();
	retire_run(left);
}

void plx_retire_flush(void)
{
	struct retire_batch *left = orphans_take();
	struct retire_batch *b = retire_take_all();

	plx_lockdep_none();
	if (!b && !left)
		return;
	gp_wait(gp_note());
	/* What the callbacks retire goes to a fresh batch. */
	retire_run(b);
	retire_run(left);
}

void plx_retire_drain(void)
{
	while (mine.batch || plx_load(&orphans))
		plx_retire_flush();
}

PLX_CHILD_CODE void plx_retire_after_fork_child(void)
{
	plx_lock_reset(&orphan_lock);
	plx_lock_reset(&gp_lock);
}

void plx_rcu_before_fork(void)
{
	sigset_t mask;

	plx_slab_before_fork();
	plx_mem_before_fork();
	/* It blocks all signals, which other threads would feel (inside.h). */
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	urcu_bp_before_fork();
	if (plx_inside.depth && plx_load(&plx_signals_wait))
		pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

void plx_rcu_after_fork_parent(void)
{
	urcu_bp_after_fork_parent();
	plx_mem_after_fork();
	plx_slab_after_fork();
}

PLX_CHILD_CODE void plx_rcu_after_fork_child(void)
{
	urcu_bp_after_fork_child();
	plx_mem_after_fork();
	plx_slab_after_fork();
}
