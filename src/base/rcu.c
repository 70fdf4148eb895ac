/* SPDX-License-Identifier: MIT */
#include "base/rcu.h"

#include <pthread.h>

#include "base/bug.h"
#include "base/clock.h"
#include "base/inside.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/slab.h"

#define RETIRE_BATCH 128
#define ORPHANS_MAX 32

/*
 * A grace period takes a microsecond, or ten milliseconds if a reader is preempted:
 * liburcu sleeps then. A thread whose grace periods are slow gathers more objects for
 * each, up to about a megabyte of notes.
 */
#define RETIRE_BATCHES_MAX 512
#define SLOW_NS 500000
#define FAST_NS 50000

struct retire_entry {
	void *obj;
	void (*fn)(void *obj);
};

struct retire_batch {
	struct retire_batch *next;
	uint32_t n;
	/* Batches in this chain, this one included. */
	uint32_t chain;
	struct retire_entry e[RETIRE_BATCH];
};

#if PLX_TSAN
char plx_rcu_token_reader, plx_rcu_token_writer;
#endif

static __thread struct retire_batch *batch;
static __thread uint32_t flush_at = 16;
static pthread_key_t retire_key;
static pthread_once_t retire_once = PTHREAD_ONCE_INIT;

/* Batches of threads that ended, under orphan_lock. */
static plx_lock_t orphan_lock;
static struct retire_batch *orphans;
static uint32_t norphans;

static void retire_thread_exit(void *p)
{
	PLX_INSIDE();
	struct retire_batch *b = p, *last = b;
	uint32_t n;

	batch = NULL;
	while (last->next)
		last = last->next;
	plx_lock(&orphan_lock, PLX_RANK_RETIRE);
	last->next = orphans;
	plx_store(&orphans, b);
	n = ++norphans;
	plx_unlock(&orphan_lock, PLX_RANK_RETIRE);
	/* Threads that live too shortly to fill a batch: there may be no others. */
	if (n >= ORPHANS_MAX)
		plx_retire_flush();
}

static void retire_init(void)
{
	PLX_INVARIANT(pthread_key_create(&retire_key, retire_thread_exit) == 0,
		      "a thread key for retire batches can be had");
}

void plx_retire_init(void)
{
	pthread_once(&retire_once, retire_init);
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

static struct retire_batch *retire_batch_new(void)
{
	struct retire_batch *b = plx_mem_get(sizeof(*b));

	if (!b)
		return NULL;
	b->n = 0;
	b->next = batch;
	b->chain = batch ? batch->chain + 1 : 1;
	plx_retire_init();
	if (pthread_setspecific(retire_key, b)) {
		plx_mem_put(b);
		return NULL;
	}
	batch = b;
	return b;
}

void plx_retire(void *obj, void (*fn)(void *obj))
{
	struct retire_batch *b = batch;

	if (plx_unlikely(!b || b->n == RETIRE_BATCH)) {
		b = retire_batch_new();
		/* Without memory for a note the object is lost, which is safe. */
		if (!b)
			return;
	}
	b->e[b->n].obj = obj;
	b->e[b->n].fn = fn;
	b->n++;
}

bool plx_retire_full(void)
{
	return batch && batch->n == RETIRE_BATCH && batch->chain >= flush_at;
}

static void retire_run(struct retire_batch *b)
{
	while (b) {
		struct retire_batch *next = b->next;

		for (uint32_t i = 0; i < b->n; i++)
			b->e[i].fn(b->e[i].obj);
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

void plx_retire_flush(void)
{
	struct retire_batch *mine = batch;
	struct retire_batch *left = orphans_take();
	int64_t start, took;

	plx_lockdep_none();
	if (!mine && !left)
		return;
	/* What the callbacks retire goes to a fresh batch. */
	if (mine) {
		batch = NULL;
		pthread_setspecific(retire_key, NULL);
	}
	start = plx_now_ns();
	plx_rcu_synchronize();
	took = plx_now_ns() - start;
	if (took > SLOW_NS && flush_at < RETIRE_BATCHES_MAX)
		flush_at *= 4;
	else if (took < FAST_NS && flush_at > 1)
		flush_at /= 2;
	retire_run(mine);
	retire_run(left);
}

void plx_retire_drain(void)
{
	while (batch || plx_load(&orphans))
		plx_retire_flush();
}

void plx_retire_after_fork_child(void)
{
	orphan_lock = 0;
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

void plx_rcu_after_fork_child(void)
{
	urcu_bp_after_fork_child();
	plx_mem_after_fork();
	plx_slab_after_fork();
}
