/* SPDX-License-Identifier: MIT */
#include "rcu/rcu.h"

#include <linux/membarrier.h>
#include <pthread.h>

#include "base/bug.h"
#include "base/clock.h"
#include "base/delay.h"
#include "base/inside.h"
#include "base/key.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/slab.h"
#include "base/spin.h"
#include "base/sys.h"
#include "base/wiped.h"

/* A batch is as large as a class of memory has it (mem.c). */
#define RETIRE_BATCH 126
#define ORPHANS_MAX 32

/*
 * Grace periods are numbered, and whoever needs one may use one that another thread has made.
 *
 *   gp_begun   the number of the last one begun; moves before it begins
 *   gp_ended   the number of the last one ended
 *   gp_step    how far the one has come that has begun and not ended
 *
 * All move under gp_lock alone. A batch that is full is closed: a full barrier, then it notes
 * gp_begun. It is released when gp_ended is greater than the note.
 *
 * Argument. Let n be the grace period whose end was seen. Its number was stored after the
 * note was taken, or the note would not be smaller. So what was stored before the note (the
 * objects' removal from all that leads to them) was visible before n began: there is a full
 * barrier between the removal and the note, and one in each thread between the store of the number
 * and the look at the readers. A reader that n has not waited for began after that and cannot find
 * the objects; one that it has waited for is gone, and its accesses are before the store of
 * gp_ended that was seen (tests/model/grace.pml).
 *
 * A grace period is made in steps by whoever has gp_lock, and none of them waits. A section bears
 * the phase of its beginning. (1) After the barrier a look must find nobody in a section of the
 * phase before. If nobody is in one at all, that is the end. (2) Else the phase is flipped, and a
 * later look must find nobody in one of the old phase: whoever was in a section at (1) is gone
 * then. Without (1) a reader that has read the phase long ago, and stores it only now, would bear
 * the one that comes next, and (2) would take it for new. What a look does not find, the next one
 * may, made by whoever comes (tests/model/phases.pml). liburcu's own grace period does the same,
 * but sleeps in between, with all signals blocked.
 *
 * So nobody waits for a reader that is preempted, and nobody for a thread that has gp_lock: others
 * keep what they have for their next call. Only who cannot go on without polls
 * (plx_rcu_synchronize).
 *
 * In the child of a fork gp_lock is free, and somebody may have been in the middle of a step. Its
 * next holder goes on from there. All sections of the child begin in it, later than whatever had
 * been removed before. So it does not matter to that how far the grace period had come, which
 * barrier had been made, or which phase it is; and what is removed later waits for one that has not
 * begun. If it had begun and no step was noted, its number is left out.
 *
 * A grace period takes a microsecond alone and several while the process runs on other CPUs, which
 * are interrupted for it. A thread makes one when it has gathered so many objects that this is a
 * small part of its time; no more, since what waits is not in the cache when it is used again.
 * Where a reader is in the way it tries again when it has some more. All that is released at a time
 * is bounded, so that no call takes long.
 */
#define RETIRE_BATCHES_MAX 512
#define SHARE_MOST 16
#define SHARE_LEAST 128
/* Looks at a reader that is in the way: as long as a section takes, if its thread runs. */
#define GP_SPINS 100
/* Batches that are released by one call, and those from which objects are made more slowly. */
#define RELEASE_MOST 64
#define THROTTLE_FROM 4096

enum { GP_NONE, GP_BEFORE_FLIP, GP_AFTER_FLIP };

static uint64_t gp_begun __attribute__((aligned(64)));
static uint64_t gp_ended;
static uint32_t gp_step;

/*
 * Whether barriers in all threads are had from membarrier. Readers go by liburcu's variable, which
 * says so only while this one does: it is set after it and cleared before it, each time with such a
 * barrier in between. So a reader that relies on one, and is stopped before its section, has been
 * given it. Both are written, and this one is read, under gp_lock.
 */
static bool gp_membarrier;

PLX_START_PAGE uint32_t plx_rcu_begun;
static uint32_t confined;

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
	/* The same after one that has met a reader in its way. */
	uint32_t again;
	/* The end of the thread will be heard of. */
	bool keyed;
	/* One that is free, so that the next need not be fetched from where all threads do. */
	struct retire_batch *kept;
	int64_t flushed_at;
} mine = {.enough = 4};

static PLX_START_PAGE struct plx_key retire_key;

/* Closed batches of threads that ended, under orphan_lock. */
static struct retire_batch *orphans;
static uint32_t norphans;

static bool barrier_registered(void)
{
	return !plx_sys2(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0);
}

static bool barrier_had(void)
{
	return !plx_sys2(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0);
}

/*
 * gp_lock held. The child of a fork beside the registration may have what says that there is one,
 * and not the registration: the kernel copies that first.
 */
static void barrier_all(void)
{
	plx_mb();
	if (!gp_membarrier || plx_likely(barrier_had()))
		return;
	PLX_DELAY(barrier_anew);
	PLX_INVARIANT(barrier_registered() && barrier_had(),
		      "the barrier that the process is registered for can be had");
}

void plx_rcu_begin_slow(void)
{
	const long wanted = MEMBARRIER_CMD_PRIVATE_EXPEDITED;
	uint32_t depth = plx_inside_begin();

	plx_wipe_begin();
	plx_urcu_init();
	plx_lock(&plx_wiped.gp_lock, PLX_RANK_GRACE);
	if (!plx_rcu_begun && !confined) {
		long can = plx_sys2(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0);

		gp_membarrier = can > 0 && (can & wanted) && barrier_registered();
		barrier_all();
		plx_store(&urcu_bp_has_sys_membarrier, gp_membarrier);
	}
	plx_store_rel(&plx_rcu_begun, 1);
	plx_unlock(&plx_wiped.gp_lock, PLX_RANK_GRACE);
	plx_inside_end(&depth);
}

void plx_rcu_confine(void)
{
	uint32_t depth = plx_inside_begin();

	plx_retire_drain();
	plx_lock(&plx_wiped.gp_lock, PLX_RANK_GRACE);
	plx_store(&urcu_bp_has_sys_membarrier, 0);
	barrier_all();
	gp_membarrier = false;
	plx_store(&confined, 1);
	plx_unlock(&plx_wiped.gp_lock, PLX_RANK_GRACE);
	plx_inside_end(&depth);
}

/* gp_lock held. A look at the readers, with a little patience. */
static enum plx_urcu_seen gp_look(int *spins)
{
	for (;;) {
		const unsigned long *who = NULL;
		enum plx_urcu_seen seen = plx_urcu_look(&who);

		if (seen == PLX_URCU_CURRENT || seen == PLX_URCU_NONE)
			return seen;
		do {
			if (--*spins < 0)
				return seen;
			plx_cpu_relax();
		} while (who && plx_urcu_is_old(who));
	}
}

/* gp_lock held. The grace period goes as far as it can without waiting; whether that is its end. */
static bool gp_advance(void)
{
	int spins = GP_SPINS;

	if (gp_step == GP_NONE) {
		plx_store(&gp_begun, gp_begun + 1);
		plx_mb();
		/* Who comes to be known after this look does so by a full barrier. */
		if (plx_urcu_nobody()) {
			plx_store_rel(&gp_ended, gp_begun);
			return true;
		}
		/* Partners: readers, between the beginning of a section and its first look. */
		barrier_all();
		gp_step = GP_BEFORE_FLIP;
	}
	if (gp_step == GP_BEFORE_FLIP) {
		switch (gp_look(&spins)) {
		case PLX_URCU_NONE:
			break;
		case PLX_URCU_CURRENT:
			PLX_DELAY(grace_flip);
			plx_urcu_flip();
			gp_step = GP_AFTER_FLIP;
			break;
		default:
			return false;
		}
	}
	if (gp_step == GP_AFTER_FLIP && gp_look(&spins) == PLX_URCU_OLD)
		return false;
#if !defined(__x86_64__)
	/*
	 * Partners: readers, between their last look and the end of the section. x86 keeps the
	 * order of loads and later stores by itself.
	 */
	barrier_all();
#endif
	gp_step = GP_NONE;
	plx_store_rel(&gp_ended, gp_begun);
	return true;
}

/* What is removed by now is noted to wait for a grace period that has not begun. */
uint64_t plx_rcu_note(void)
{
#if PLX_TSAN
	__tsan_release(&plx_rcu_token_writer);
#endif
	plx_mb();
	return plx_load(&gp_begun);
}

static bool plx_rcu_over(uint64_t after)
{
	if (plx_load_acq(&gp_ended) <= after)
		return false;
#if PLX_TSAN
	__tsan_acquire(&plx_rcu_token_reader);
#endif
	return true;
}

/* The same, and if it is not over does for it what can be done without waiting. */
bool plx_rcu_try(uint64_t after)
{
	if (plx_rcu_over(after))
		return true;
	if (!plx_trylock(&plx_wiped.gp_lock, PLX_RANK_GRACE))
		return false;
	while (!plx_rcu_over(after) && gp_advance())
		;
	plx_unlock(&plx_wiped.gp_lock, PLX_RANK_GRACE);
	return plx_rcu_over(after);
}

static void gp_wait(uint64_t after)
{
	for (int tries = 0; !plx_rcu_try(after); tries++)
		plx_await_step(tries);
}

void plx_rcu_synchronize(void)
{
	gp_wait(plx_rcu_note());
}

/* All that the thread has, the oldest first; closed. */
static struct retire_batch *retire_take_all(void)
{
	struct retire_batch *b = mine.oldest;

	if (mine.batch && mine.batch->n < RETIRE_BATCH)
		mine.batch->after = plx_rcu_note();
	mine.oldest = mine.batch = NULL;
	mine.batches = 0;
	mine.again = 0;
	return b;
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
	plx_lock(&plx_wiped.orphan_lock, PLX_RANK_RETIRE);
	list = orphans;
	plx_store(&orphans, NULL);
	norphans = 0;
	plx_unlock(&plx_wiped.orphan_lock, PLX_RANK_RETIRE);
	return list;
}

/* How many there are now. */
static uint32_t orphans_put(struct retire_batch *list)
{
	struct retire_batch *last = list;
	uint32_t n = 1;

	for (; last->next; last = last->next)
		n++;
	plx_lock(&plx_wiped.orphan_lock, PLX_RANK_RETIRE);
	last->next = orphans;
	plx_store_rel(&orphans, list);
	n = norphans += n;
	plx_unlock(&plx_wiped.orphan_lock, PLX_RANK_RETIRE);
	return n;
}

static void orphans_run_over(void)
{
	struct retire_batch *list = orphans_take(), *over = NULL, *left = NULL, *next;

	for (; list; list = next) {
		struct retire_batch **to = plx_rcu_over(list->after) ? &over : &left;

		next = list->next;
		list->next = *to;
		*to = list;
	}
	if (left)
		orphans_put(left);
	retire_run(over);
}

static void retire_thread_exit(void *p)
{
	uint32_t depth = plx_inside_begin();
	struct retire_batch *b = retire_take_all();

	(void)p;
	plx_mem_put(mine.kept);
	mine.kept = NULL;
	mine.keyed = false;
	/* Threads that live too shortly to fill a batch: there may be no others. */
	if (b && orphans_put(b) >= ORPHANS_MAX && plx_rcu_try(plx_rcu_note()))
		orphans_run_over();
	plx_inside_end(&depth);
}

PLX_START_CODE void plx_retire_init(void)
{
	plx_urcu_init();
	(void)plx_key(&retire_key, retire_thread_exit);
}

static struct retire_batch *retire_batch_new(void)
{
	struct retire_batch *b;

	if (plx_unlikely(!mine.keyed)) {
		if (pthread_setspecific(plx_key(&retire_key, retire_thread_exit), &mine))
			return NULL;
		mine.keyed = true;
	}
	b = mine.kept;
	if (!b)
		b = plx_mem_get(sizeof(*b));
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
		b->after = plx_rcu_note();
}

bool plx_retire_full(void)
{
	return mine.batch && mine.batch->n == RETIRE_BATCH;
}

/* A grace period took so long, and so long the thread had done without one. */
static void enough_adapt(int64_t took, int64_t since)
{
	if (took * SHARE_MOST > since)
		mine.enough *= 2;
	else if (took * SHARE_LEAST < since)
		mine.enough /= 2;
	if (mine.enough > RETIRE_BATCHES_MAX)
		mine.enough = RETIRE_BATCHES_MAX;
	if (!mine.enough)
		mine.enough = 1;
}

/* Releases closed batches that need wait no more. */
static void retire_run_over(void)
{
	struct retire_batch *b;

	for (int n = 0; n < RELEASE_MOST; n++) {
		b = mine.oldest;
		if (!b || b->n < RETIRE_BATCH || !plx_rcu_over(b->after))
			break;
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
	int64_t start, now;
	bool over;

	plx_lockdep_none();
	retire_run_over();
	if (mine.batches < mine.enough || mine.batches < mine.again)
		return;
	start = plx_now_ns();
	over = plx_rcu_try(after);
	now = plx_now_ns();
	if (over) {
		enough_adapt(now - start, start - mine.flushed_at);
		mine.flushed_at = now;
		mine.again = 0;
		orphans_run_over();
	} else {
		mine.again = mine.batches + mine.batches / 4 + 1;
	}
	retire_run_over();
}

void plx_retire_throttle(void)
{
	if (plx_likely(mine.batches < THROTTLE_FROM))
		return;
	plx_lockdep_none();
	gp_wait(mine.oldest->after);
	mine.again = 0;
	retire_run_over();
}

void plx_retire_drain(void)
{
	plx_lockdep_none();
	while (mine.batch || plx_load(&orphans)) {
		struct retire_batch *left = orphans_take();
		struct retire_batch *b = retire_take_all();

		plx_rcu_synchronize();
		/* What the callbacks retire goes to a fresh batch. */
		retire_run(b);
		retire_run(left);
	}
}
