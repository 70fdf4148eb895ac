/* SPDX-License-Identifier: MIT */
/*
 * How many watches there are, and the limit of that (EP-ADD-07).
 *
 * Every ADD and every removal counts, in all threads, so the count must not be one word that
 * all of them write. A thread charges many at once and uses them up by itself:
 *
 *   charged       atomic; watches that exist and credits that threads hold, together
 *   credit.n      written by its thread while inside is 1 and after it has seen exact 0;
 *                 otherwise by the holder of credits_lock
 *   credit.inside written by its thread
 *   credits_free  atomic; anybody pushes, the holder of credits_lock pops
 *   exact         set under credits_lock: the limit is near, each watch is charged for itself
 *
 * Argument. There are charged minus the sum of all credits watches, and charged never
 * exceeds the limit but by a limit that comes down: so there are never too many. Nor is one
 * refused too early: before that exact is set, all who have not seen it are waited for, and
 * the credits of all threads go back. From then on nobody has any, charged is the number of
 * watches, and it is compared and changed in one step. A change of a credit and its
 * counterpart in charged are made inside once, so the recall separates neither.
 *
 * Who is waited for: a thread stores inside and looks at exact, the recall stores exact and
 * looks at inside, with a full barrier between the two steps on both sides (credit_enter,
 * credits_recall). So the thread sees exact, or the recall sees inside and waits until it is
 * taken back with a release, behind the thread's stores. A credit that comes on the list
 * later is put there under the lock: its thread sees exact. It is no RCU section, as a thread
 * that is preempted in one delays all who wait for a grace period, and in a storm of ADDs and
 * closes this is where a thread is; there nothing but the recall waits for it.
 * The model is tests/model/credits.pml.
 */
#include "epoll/engine.h"

#include "base/key.h"

#define CREDIT 64

struct credit {
	struct credit *next;
	/* While no thread has it. */
	struct credit *free_next;
	long n;
	uint32_t inside;
} __attribute__((aligned(64)));

static plx_lock_t credits_lock;
/* Never shorter: who comes takes over one that was left. */
static struct credit *credits;
static struct credit credit_of_first;
static struct credit *credits_free;
static uint32_t exact;
static long max_watches = -1;
static long charged __attribute__((aligned(64)));

static __thread struct credit *mine;
static PLX_START_PAGE struct plx_key credit_key;

/* What it holds stays in it, for the next thread. */
static void credit_exit(void *p)
{
	struct credit *c = p, *head = plx_load(&credits_free);

	mine = NULL;
	do {
		plx_store(&c->free_next, head);
	} while (!plx_cas(&credits_free, &head, c));
}

/* credits_lock held: the first one leaves by nobody else, and so its link stays what it is. */
static struct credit *credit_take(void)
{
	struct credit *c = plx_load_acq(&credits_free);

	while (c && !plx_cas(&credits_free, &c, plx_load(&c->free_next)))
		;
	return c;
}

PLX_START_CODE void plx_watches_init(void)
{
	(void)plx_key(&credit_key, credit_exit);
}

/* NULL without memory: such a thread charges each watch for itself. */
static struct credit *credit_new(void)
{
	struct credit *c;

	plx_lock(&credits_lock, PLX_RANK_WATCHES);
	c = credit_take();
	if (!c) {
		/* A page less in a program of one thread. */
		c = credits ? plx_mem_get(sizeof(*c)) : &credit_of_first;
		if (c) {
			c->n = 0;
			c->inside = 0;
			c->next = credits;
			credits = c;
		}
	}
	if (c && pthread_setspecific(plx_key(&credit_key, credit_exit), c)) {
		credit_exit(c);
		c = NULL;
	}
	plx_unlock(&credits_lock, PLX_RANK_WATCHES);
	mine = c;
	return c;
}

/*
 * Whether the thread may change its credit, until credit_leave. The barrier's partner is in
 * credits_recall.
 */
static inline bool credit_enter(struct credit *c)
{
	bool may;

	plx_store(&c->inside, 1);
	plx_mb_light();
	may = plx_likely(!plx_load_acq(&exact));
	PLX_DELAY(credit_entered);
	return may;
}

static inline void credit_leave(struct credit *c)
{
	PLX_DELAY(credit_before_leave);
	plx_store_rel(&c->inside, 0);
}

/* credits_lock held. */
static void credits_recall(void)
{
	if (!exact) {
		plx_store(&exact, 1);
		/* Partner: credit_enter. */
		plx_mb_heavy();
		for (struct credit *c = credits; c; c = c->next)
			plx_await_zero(&c->inside);
	}
	for (struct credit *c = credits; c; c = c->next) {
		plx_xadd(&charged, -plx_load(&c->n));
		plx_store(&c->n, 0);
	}
}

static bool charge(long n)
{
	long max = plx_load(&max_watches);
	long now = plx_load(&charged);

	do {
		if (max >= 0 && now + n > max)
			return false;
	} while (!plx_cas(&charged, &now, now + n));
	return true;
}

static __attribute__((noinline)) bool charge_slow(void)
{
	struct credit *c = mine ? mine : credit_new();
	bool ok = false;

	if (c) {
		ok = credit_enter(c) && charge(CREDIT);
		if (ok)
			plx_store(&c->n, c->n + CREDIT - 1);
		credit_leave(c);
	}
	if (ok || charge(1))
		return true;
	plx_lock(&credits_lock, PLX_RANK_WATCHES);
	credits_recall();
	plx_unlock(&credits_lock, PLX_RANK_WATCHES);
	return charge(1);
}

bool plx_watches_charge(void)
{
	struct credit *c = mine;
	bool ok;

	if (plx_unlikely(!c))
		return charge_slow();
	/* In this order: what is in the credit holds while exact is 0. */
	ok = credit_enter(c) && c->n > 0;
	if (plx_likely(ok))
		plx_store(&c->n, c->n - 1);
	credit_leave(c);
	return plx_likely(ok) || charge_slow();
}

void plx_watches_uncharge(void)
{
	struct credit *c = mine;

	if (plx_unlikely(!c)) {
		plx_xadd(&charged, -1l);
		return;
	}
	if (!credit_enter(c)) {
		plx_xadd(&charged, -1l);
	} else if (plx_unlikely(c->n >= 2 * CREDIT)) {
		plx_store(&c->n, c->n + 1 - CREDIT);
		plx_xadd(&charged, -(long)CREDIT);
	} else {
		plx_store(&c->n, c->n + 1);
	}
	credit_leave(c);
}

void pollux_ep_set_max_watches(long max)
{
	plx_lock(&credits_lock, PLX_RANK_WATCHES);
	plx_store(&max_watches, max);
	if (max < 0 || plx_load(&charged) <= max)
		plx_store_rel(&exact, 0);
	else
		credits_recall();
	plx_unlock(&credits_lock, PLX_RANK_WATCHES);
}

long pollux_ep_watches(void)
{
	uint32_t was;
	long n;

	plx_lock(&credits_lock, PLX_RANK_WATCHES);
	was = exact;
	credits_recall();
	n = plx_load(&charged);
	plx_store_rel(&exact, was);
	plx_unlock(&credits_lock, PLX_RANK_WATCHES);
	return n;
}

void plx_watches_forget(void)
{
	for (struct credit *c = credits; c; c = c->next)
		plx_store(&c->n, 0);
	plx_store(&charged, 0);
}

PLX_CHILD_CODE void plx_watches_after_fork_child(void)
{
	plx_lock_reset(&credits_lock);
	/* Whoever was inside is not here. */
	for (struct credit *c = credits; c; c = c->next)
		if (plx_load(&c->inside))
			plx_store(&c->inside, 0);
}
