/* SPDX-License-Identifier: MIT */
/*
 * What programs have called when nobody looks any more: free operations of files, released of
 * hosts, and pollux_call. And their read sections, which are the engine's own: all that waits for
 * them, too.
 *
 * Who drops a last reference pushes the file, whose memory holds the link. From there all goes the
 * same way: it is taken together with all that is there, and noted; when the sections and batches
 * of before the note have ended, somebody takes some of it and calls it (a run). What is taken, and
 * the runs, change with reclaim_lock held, so whenever that is free an object is pushed, taken, or
 * in a run. Takings are numbered, and one is over before the next: what was pushed before
 * pollux_barrier is in no later one than the next. When that one is over it is in runs that have
 * begun, and the barrier waits for the end of those (tests/model/barrier.pml).
 *
 * In the child of a fork what was pushed or is taken may be called at once: nobody is at it. So
 * the notes do not matter there, and whatever the lock's holder was about, the list is whole.
 */
#include "epoll/engine.h"

#include <limits.h>

#include <pollux/read.h>

#include "base/clock.h"

/* So many pushes, of all threads, before one of them tries to be rid of some; what it calls then.
 */
#define TRY_EVERY 64
#define RUN_MOST 512

/*
 * Atomic. Bytes are added when the object is on the list, and are those of a run in plx_wiped
 * before it is not: the child of a fork may have too few of them, but none of what it does not
 * have.
 */
static struct {
	struct pollux_file *head;
	long bytes;
	uint32_t n;
} pushed __attribute__((aligned(64)));
/* Written with the lock held. */
static int mode;
static size_t bytes_most;

struct plx_run {
	struct plx_run *next;
	uint64_t number;
};

static struct pollux_file *taken;
static uint64_t takings, rcu_note, batch_note;
static uint64_t runs_begun;

char plx_read_sections;
__thread bool plx_reclaim_due;
static __thread uint32_t pushes;
static __thread bool running;
/* Counted in reclaimers: the process (engine.h). */
static __thread uint8_t reclaims;

struct call {
	struct pollux_file file;
	void (*fn)(void *arg);
	void *arg;
};

static long bytes_of(const struct pollux_file *f)
{
	if (f->kind != PLX_KIND_OTHER)
		return f->kind == PLX_KIND_CALL ? PLX_SLAB_OBJECT : sizeof(struct pollux_ep);
	return f->ops->bytes ? f->ops->bytes : sizeof(*f);
}

void plx_reclaim(struct pollux_file *f, void (*end)(struct pollux_file *f))
{
	struct pollux_file *head = plx_load(&pushed.head);
	long bytes = bytes_of(f);

	f->node.end = end;
	do {
		f->ended = head;
	} while (!plx_cas(&pushed.head, &head, f));
	PLX_DELAY(reclaim_pushed);
	plx_xadd(&pushed.bytes, bytes);
	pushes++;
	/* Threads may live too shortly for many of their own. */
	if (plx_xadd(&pushed.n, 1) % TRY_EVERY == TRY_EVERY - 1 || plx_load(&bytes_most))
		plx_reclaim_due = true;
}

/* Lock held. Whether what is taken may be called; if nothing is, what was pushed is taken. */
static bool advance(void)
{
	struct pollux_file *f, *next;

	if (!taken) {
		takings++;
		for (f = plx_xchg(&pushed.head, NULL); f; f = next) {
			next = f->ended;
			f->ended = taken;
			plx_store_rel(&taken, f);
		}
		PLX_DELAY(reclaim_taken);
		batch_note = plx_batch_note();
		rcu_note = plx_rcu_note();
	}
	return taken && plx_batch_over(batch_note) && plx_rcu_try(rcu_note);
}

/* Lock held, which is let go: calls up to `most`, if they may be; whether there were any. */
static bool run(int most)
{
	struct pollux_file *f, *last, *next;
	struct plx_run r, **at;
	bool any = advance();
	long bytes;

	if (any) {
		f = last = taken;
		for (bytes = bytes_of(f); --most && last->ended; bytes += bytes_of(last))
			last = last->ended;
		plx_xadd(&plx_wiped.bytes_in_runs, bytes);
		plx_xadd(&pushed.bytes, -bytes);
		plx_store_rel(&taken, last->ended);
		last->ended = NULL;
		r = (struct plx_run){plx_wiped.runs, ++runs_begun};
		plx_wiped.runs = &r;
	}
	plx_unlock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
	if (!any)
		return false;
	PLX_DELAY(reclaim_run);
	running = true;
	for (; f; f = next) {
		next = f->ended;
		plx_xadd(&plx_wiped.bytes_in_runs, -bytes_of(f));
		f->node.end(f);
	}
	running = false;
	plx_tsan_before(&runs_begun);
	plx_lock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
	for (at = &plx_wiped.runs; *at && *at != &r; at = &(*at)->next)
		;
	/* In the child of a fork it is not there. */
	if (*at)
		*at = r.next;
	plx_unlock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
	return true;
}

/*
 * Calls what was pushed before, up to the deadline (negative: none); in a batch, or if it is not to
 * wait for batches, without what they hold up.
 */
static void settle(int64_t deadline, bool batches)
{
	uint64_t number = 0;
	bool over;

	for (int tries = 0;; tries++) {
		plx_lock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
		if (!tries)
			number = takings + 1;
		if (run(INT_MAX))
			continue;
		plx_lock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
		over = takings > number || (takings == number && !taken);
		over |= (!batches || plx_batch_inside()) && !plx_batch_over(batch_note);
		plx_unlock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
		if (over || (deadline >= 0 && plx_now_ns() >= deadline))
			return;
		plx_await_step(tries);
	}
}

/* Until those have ended that have begun. */
static void await_runs(void)
{
	uint64_t number = 0;
	struct plx_run *r;

	for (int tries = 0;; tries++) {
		plx_lock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
		if (!tries)
			number = runs_begun;
		/* The youngest comes first. */
		for (r = plx_wiped.runs; r && r->number > number; r = r->next)
			;
		plx_unlock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
		if (!r)
			break;
		plx_await_step(tries);
	}
	plx_tsan_after(&runs_begun);
}

size_t plx_reclaim_bytes(void)
{
	long bytes = plx_load(&pushed.bytes) + plx_load(&plx_wiped.bytes_in_runs);

	return bytes > 0 ? bytes : 0;
}

void plx_reclaim_room(void)
{
	size_t most = plx_load(&bytes_most);

	if (plx_likely(!most) || running || plx_rcu_inside())
		return;
	plx_lockdep_none();
	for (int tries = 0; plx_reclaim_bytes() > most && !plx_batch_inside(); tries++) {
		plx_lock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
		if (mode == POLLUX_RECLAIM_ANYWHERE) {
			if (run(INT_MAX))
				continue;
		} else {
			plx_unlock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
			if (plx_load(&plx_wiped.reclaimers) <= (reclaims == plx_born()))
				return;
		}
		plx_await_step(tries);
	}
}

void plx_reclaim_turn(void)
{
	if (running || plx_rcu_inside())
		return;
	plx_lockdep_none();
	plx_reclaim_due = false;
	if (plx_trylock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM)) {
		if (mode == POLLUX_RECLAIM_ANYWHERE)
			(void)run(RUN_MOST);
		else
			plx_unlock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
	}
	plx_reclaim_room();
}

static void call_run(struct pollux_file *f)
{
	struct call c = *plx_container_of(f, struct call, file);

	plx_tsan_after(f);
	plx_tsan_after(&plx_read_sections);
	plx_slab_free(f);
	c.fn(c.arg);
}

int pollux_call(void (*fn)(void *arg), void *arg)
{
	struct call *c;

	plx_rcu_begin();
	c = plx_slab_alloc();
	if (!c)
		return -ENOMEM;
	c->file.kind = PLX_KIND_CALL;
	c->fn = fn;
	c->arg = arg;
	plx_tsan_before(c);
	plx_reclaim(&c->file, call_run);
	plx_reclaim_turn_if_due();
	return 0;
}

int pollux_reclaim_mode(int how, size_t max_bytes)
{
	if (how != POLLUX_RECLAIM_ANYWHERE && how != POLLUX_RECLAIM_ASKED)
		return -EINVAL;
	plx_rcu_begin();
	plx_lock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
	plx_store(&mode, how);
	plx_store(&bytes_most, max_bytes);
	plx_unlock(&plx_wiped.reclaim_lock, PLX_RANK_RECLAIM);
	if (how == POLLUX_RECLAIM_ASKED && !running)
		await_runs();
	return 0;
}

static void check_context(void)
{
	plx_rcu_begin();
	PLX_INVARIANT(!running, "nothing is reclaimed in a free operation or a call");
	PLX_INVARIANT(!plx_rcu_inside(), "nothing is reclaimed in a read section");
	plx_lockdep_none();
}

size_t pollux_reclaim(int64_t deadline)
{
	check_context();
	if (reclaims != plx_born())
		plx_xadd(&plx_wiped.reclaimers, 1);
	reclaims = plx_born();
	settle(deadline, true);
	return plx_reclaim_bytes();
}

void pollux_barrier(void)
{
	check_context();
	PLX_INVARIANT(!plx_batch_inside(), "pollux_barrier is not called in a batch");
	settle(-1, true);
	await_runs();
}

void pollux_quiesce(void)
{
	uint32_t before;

	plx_rcu_begin();
	do {
		plx_retire_drain();
		before = pushes;
		if (!running && plx_load(&mode) == POLLUX_RECLAIM_ANYWHERE)
			settle(-1, false);
	} while (before != pushes);
	plx_retire_drain();
}

void pollux_read_lock(void)
{
	plx_rcu_begin();
	plx_rcu_read_lock();
}

void pollux_read_unlock(void)
{
	plx_tsan_before(&plx_read_sections);
	plx_rcu_read_unlock();
}

void pollux_synchronize(void)
{
	uint64_t note;

	plx_rcu_begin();
	PLX_INVARIANT(!plx_rcu_inside(), "pollux_synchronize is not called in a read section");
	PLX_INVARIANT(!plx_batch_inside(), "pollux_synchronize is not called in a batch");
	note = plx_batch_note();
	for (int tries = 0; !plx_batch_over(note); tries++)
		plx_await_step(tries);
	plx_rcu_synchronize();
	plx_tsan_after(&plx_read_sections);
}
