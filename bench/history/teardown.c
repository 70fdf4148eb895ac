/* SPDX-License-Identifier: MIT */
#include "teardown.h"

#include <errno.h>
#include <pollux/epoll.h>
#include <sched.h>

#include "base/atomic.h"
#include "base/delay.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/slab.h"
#include "rcu/rcu.h"

/* A spinlock of the kernel keeps its holder from being preempted; here a waiter gives way. */
#define SPINS 200

struct item {
	/* The tree of the epoll, by the file's address: a heap by rank as well. ep->mtx. */
	struct item *left, *right;
	struct teardown_ep *ep;
	struct teardown_file *file;
	/* The file's list; changed under file->lock, read under RCU. */
	struct item *link_next, **link_pprev;
	/* The file's queue of waiters; file->wait_lock. */
	struct item *wait_next, **wait_pprev;
	/* The epoll's list of ready items; ep->lock. NULL: not on it. */
	struct item *ready_next, **ready_pprev;
	uint64_t data;
	uint32_t rank;
	/* On the queue of waiters; whoever may remove the item. */
	bool waits;
};

struct teardown_file {
	uint32_t lock;
	uint32_t wait_lock;
	struct item *links;
	struct item *waiters;
	uint64_t count;
};

struct teardown_ep {
	plx_lock_t mtx;
	/* Of refcount alone. */
	uint32_t refs;
	struct item *tree;
	uint32_t lock __attribute__((aligned(64)));
	struct item *ready, **ready_tail;
};

_Static_assert(sizeof(struct item) <= PLX_SLAB_OBJECT, "an item is as large as ours");
_Static_assert(sizeof(struct teardown_file) <= PLX_SLAB_OBJECT, "so is a file");

static long watches __attribute__((aligned(64)));
static plx_lock_t epmutex __attribute__((aligned(64)));

static void spin_lock(uint32_t *l)
{
	unsigned int spins = 0;

	while (plx_load(l) || __atomic_exchange_n(l, 1, __ATOMIC_ACQUIRE)) {
		if (++spins % SPINS == 0)
			sched_yield();
		else
			plx_cpu_relax();
	}
}

static void spin_unlock(uint32_t *l)
{
	plx_store_rel(l, 0);
}

static void ep_lock(struct teardown_ep *ep)
{
	plx_lock(&ep->mtx, PLX_RANK_EP);
}

static void ep_unlock(struct teardown_ep *ep)
{
	plx_unlock(&ep->mtx, PLX_RANK_EP);
}

/* --- the tree -------------------------------------------------------------------------------- */

static struct item *tree_find(struct item *t, const struct teardown_file *f)
{
	while (t && t->file != f)
		t = f < t->file ? t->left : t->right;
	return t;
}

/* All of a is before all of b. */
static struct item *tree_join(struct item *a, struct item *b)
{
	struct item *top, **at = &top;

	while (a && b) {
		if (a->rank > b->rank) {
			*at = a;
			at = &a->right;
			a = *at;
		} else {
			*at = b;
			at = &b->left;
			b = *at;
		}
	}
	*at = a ? a : b;
	return top;
}

static void tree_insert(struct item **at, struct item *item)
{
	struct item *t, **left = &item->left, **right = &item->right;

	while (*at && (*at)->rank >= item->rank)
		at = item->file < (*at)->file ? &(*at)->left : &(*at)->right;
	t = *at;
	*at = item;
	while (t) {
		if (item->file < t->file) {
			*right = t;
			right = &t->left;
			t = *right;
		} else {
			*left = t;
			left = &t->right;
			t = *left;
		}
	}
	*left = NULL;
	*right = NULL;
}

static void tree_erase(struct item **at, const struct item *item)
{
	while (*at != item)
		at = item->file < (*at)->file ? &(*at)->left : &(*at)->right;
	*at = tree_join(item->left, item->right);
}

/* --- what happens to files and epolls besides being closed -------------------------------------
 */

static struct teardown_file *file_make(uint64_t count)
{
	struct teardown_file *f = plx_slab_alloc();

	if (f)
		f->count = count;
	return f;
}

static struct teardown_ep *ep_make(void)
{
	struct teardown_ep *ep = plx_zalloc(sizeof(*ep));

	if (!ep)
		return NULL;
	ep->refs = 1;
	ep->ready_tail = &ep->ready;
	return ep;
}

/* What a file calls for each waiter. */
static void item_queue(struct item *item)
{
	struct teardown_ep *ep = item->ep;

	spin_lock(&ep->lock);
	if (!item->ready_pprev) {
		item->ready_next = NULL;
		item->ready_pprev = ep->ready_tail;
		*ep->ready_tail = item;
		ep->ready_tail = &item->ready_next;
	}
	spin_unlock(&ep->lock);
}

/* ep->lock held. */
static void ready_unlink(struct item *item)
{
	if (!item->ready_pprev)
		return;
	*item->ready_pprev = item->ready_next;
	if (item->ready_next)
		item->ready_next->ready_pprev = item->ready_pprev;
	else
		item->ep->ready_tail = item->ready_pprev;
	item->ready_pprev = NULL;
}

static int add(struct teardown_ep *ep, struct teardown_file *f, uint64_t data)
{
	struct item *item;
	int r = 0;

	ep_lock(ep);
	if (tree_find(ep->tree, f)) {
		r = -EEXIST;
		goto out;
	}
	item = plx_slab_alloc();
	if (!item) {
		r = -ENOMEM;
		goto out;
	}
	plx_xadd(&watches, 1);
	item->ep = ep;
	item->file = f;
	item->data = data;
	item->rank = (uint32_t)(((uint64_t)(uintptr_t)item * 0x9e3779b97f4a7c15ull) >> 32);

	item->waits = true;
	spin_lock(&f->wait_lock);
	item->wait_next = f->waiters;
	item->wait_pprev = &f->waiters;
	if (item->wait_next)
		item->wait_next->wait_pprev = &item->wait_next;
	f->waiters = item;
	spin_unlock(&f->wait_lock);

	spin_lock(&f->lock);
	item->link_next = f->links;
	item->link_pprev = &f->links;
	if (item->link_next)
		item->link_next->link_pprev = &item->link_next;
	plx_store_rel(&f->links, item);
	spin_unlock(&f->lock);

	tree_insert(&ep->tree, item);
	plx_mb();
	if (plx_load(&f->count))
		item_queue(item);
out:
	ep_unlock(ep);
	return r;
}

static void wait_unlink(struct item *item)
{
	struct teardown_file *f = item->file;

	if (!item->waits)
		return;
	item->waits = false;
	spin_lock(&f->wait_lock);
	*item->wait_pprev = item->wait_next;
	if (item->wait_next)
		item->wait_next->wait_pprev = item->wait_pprev;
	spin_unlock(&f->wait_lock);
}

/* ep->mtx held, and whatever makes sure that nobody else removes the item. */
static void item_remove(struct item *item)
{
	struct teardown_ep *ep = item->ep;
	struct teardown_file *f = item->file;

	wait_unlink(item);
	PLX_DELAY(history_unlink);
	/*
	 * The file's close looks at the list without its lock; once it has found it empty it gives
	 * the file to RCU, which therefore has to keep it until the unlocking is done.
	 */
	plx_rcu_read_lock();
	spin_lock(&f->lock);
	if (item->link_next)
		item->link_next->link_pprev = item->link_pprev;
	plx_store_rel(item->link_pprev, item->link_next);
	PLX_DELAY(history_unlinked);
	spin_unlock(&f->lock);
	plx_rcu_read_unlock();

	tree_erase(&ep->tree, item);
	spin_lock(&ep->lock);
	ready_unlink(item);
	spin_unlock(&ep->lock);
	plx_xadd(&watches, -1);
	plx_retire(item, plx_slab_free);
}

static int del(struct teardown_ep *ep, struct teardown_file *f)
{
	struct item *item;

	ep_lock(ep);
	item = tree_find(ep->tree, f);
	if (item)
		item_remove(item);
	ep_unlock(ep);
	plx_retire_flush_if_full();
	return item ? 0 : -ENOENT;
}

static void wake(struct teardown_file *f)
{
	plx_xadd(&f->count, 1);
	spin_lock(&f->wait_lock);
	for (struct item *item = f->waiters; item; item = item->wait_next)
		item_queue(item);
	spin_unlock(&f->wait_lock);
}

static void clear(struct teardown_file *f)
{
	(void)plx_xchg(&f->count, 0);
}

static unsigned int collect(struct teardown_ep *ep, uint64_t *data, unsigned int max)
{
	struct item *item, *first = NULL;
	unsigned int n = 0;

	ep_lock(ep);
	while (n < max) {
		spin_lock(&ep->lock);
		item = ep->ready == first ? NULL : ep->ready;
		if (item)
			ready_unlink(item);
		spin_unlock(&ep->lock);
		if (!item)
			break;
		/* Off the list before the look: a wake after it queues the item again. */
		plx_mb();
		if (!plx_load(&item->file->count))
			continue;
		data[n++] = item->data;
		if (!first)
			first = item;
		item_queue(item);
	}
	ep_unlock(ep);
	return n;
}

static long watches_now(void)
{
	return plx_load(&watches);
}

/* --- one mutex over all closes ------------------------------------------------------------------
 */

static void mutex_file_close(struct teardown_file *f)
{
	struct item *item;

	/* A file that was never watched does not take the mutex. */
	if (plx_load_acq(&f->links)) {
		plx_lock(&epmutex, PLX_RANK_TOPOLOGY);
		while ((item = plx_load_acq(&f->links)) != NULL) {
			struct teardown_ep *ep = item->ep;

			ep_lock(ep);
			PLX_DELAY(history_close);
			item_remove(item);
			ep_unlock(ep);
		}
		plx_unlock(&epmutex, PLX_RANK_TOPOLOGY);
	}
	plx_retire(f, plx_slab_free);
	plx_retire_flush_if_full();
}

/* No file tells the epoll any more. */
static void tree_silence(struct item *t)
{
	for (; t; t = t->right) {
		tree_silence(t->left);
		wait_unlink(t);
	}
}

static void mutex_ep_close(struct teardown_ep *ep)
{
	plx_lock(&epmutex, PLX_RANK_TOPOLOGY);
	tree_silence(ep->tree);
	ep_lock(ep);
	while (ep->tree)
		item_remove(ep->tree);
	ep_unlock(ep);
	plx_unlock(&epmutex, PLX_RANK_TOPOLOGY);
	plx_free(ep);
	plx_retire_flush_if_full();
}

const struct teardown_algorithm teardown_mutex = {
	"mutex", ep_make, file_make, mutex_ep_close, mutex_file_close, add,
	del,	 wake,	  clear,     collect,	     watches_now};

/* --- a reference on the epoll, and its lock ----------------------------------------------------
 */

/* In a read section. */
static bool ep_tryget(struct teardown_ep *ep)
{
	uint32_t n = plx_load(&ep->refs);

	do {
		if (n == 0)
			return false;
	} while (!plx_cas(&ep->refs, &n, n + 1));
	return true;
}

static void ep_put(struct teardown_ep *ep)
{
	if (plx_xadd(&ep->refs, (uint32_t)-1) == 1)
		plx_retire(ep, plx_free);
}

static void refcount_file_close(struct teardown_file *f)
{
	struct item *item;

	plx_rcu_read_lock();
	while ((item = plx_load_acq(&f->links)) != NULL) {
		struct teardown_ep *ep = item->ep;

		/* The epoll's own close has removed the item, or is about to have done so. */
		if (!ep_tryget(ep)) {
			plx_cpu_relax();
			continue;
		}
		plx_rcu_read_unlock();
		PLX_DELAY(history_close_referenced);
		ep_lock(ep);
		PLX_DELAY(history_close);
		/*
		 * The epoll's close empties the tree under the lock, all at once. If there is a
		 * tree, it has not been there, and nobody else removes items of a file that is
		 * being closed; if there is none, the item may be freed memory by now.
		 */
		if (ep->tree)
			item_remove(item);
		ep_unlock(ep);
		ep_put(ep);
		plx_rcu_read_lock();
	}
	plx_rcu_read_unlock();
	plx_retire(f, plx_slab_free);
	plx_retire_flush_if_full();
}

static void refcount_ep_close(struct teardown_ep *ep)
{
	ep_lock(ep);
	tree_silence(ep->tree);
	while (ep->tree)
		item_remove(ep->tree);
	ep_unlock(ep);
	ep_put(ep);
	plx_retire_flush_if_full();
}

const struct teardown_algorithm teardown_refcount = {
	"refcount", ep_make, file_make, refcount_ep_close, refcount_file_close, add,
	del,	    wake,    clear,	collect,	   watches_now};

/* --- ours ----------------------------------------------------------------------------------------
 */

struct our_file {
	struct pollux_file file;
	uint64_t count;
};

static struct our_file *our(struct teardown_file *f)
{
	return (struct our_file *)f;
}

static struct pollux_ep *our_ep(struct teardown_ep *ep)
{
	return (struct pollux_ep *)ep;
}

static uint32_t our_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)wanted;
	return plx_load(&((struct our_file *)f)->count) ? EPOLLIN : 0;
}

static void our_free(struct pollux_file *f)
{
	plx_slab_free(f);
}

static const struct pollux_file_ops our_ops = {
	.size = sizeof(our_ops), .poll = our_poll, .free = our_free};

static struct teardown_ep *pollux_ep_make(void)
{
	struct pollux_ep *ep;

	return pollux_ep_new(&ep, NULL) ? NULL : (struct teardown_ep *)ep;
}

static struct teardown_file *pollux_file_make(uint64_t count)
{
	struct our_file *f = plx_slab_alloc();

	if (f) {
		pollux_file_init(&f->file, &our_ops);
		f->count = count;
	}
	return (struct teardown_file *)f;
}

static void pollux_ep_close(struct teardown_ep *ep)
{
	pollux_file_put(pollux_ep_file(our_ep(ep)));
}

static void pollux_file_close(struct teardown_file *f)
{
	pollux_file_put(&our(f)->file);
}

static int pollux_add(struct teardown_ep *ep, struct teardown_file *f, uint64_t data)
{
	struct epoll_event ev = {.events = EPOLLIN, .data = {.u64 = data}};

	return pollux_ep_ctl(our_ep(ep), EPOLL_CTL_ADD, &our(f)->file, 0, &ev);
}

static int pollux_del(struct teardown_ep *ep, struct teardown_file *f)
{
	return pollux_ep_ctl(our_ep(ep), EPOLL_CTL_DEL, &our(f)->file, 0, NULL);
}

static void pollux_wake(struct teardown_file *f)
{
	plx_xadd(&our(f)->count, 1);
	pollux_file_wake(&our(f)->file, EPOLLIN);
}

static void pollux_clear(struct teardown_file *f)
{
	(void)plx_xchg(&our(f)->count, 0);
}

static unsigned int pollux_collect(struct teardown_ep *ep, uint64_t *data, unsigned int max)
{
	struct epoll_event got[64];
	int n = pollux_ep_wait(our_ep(ep), got, max < 64 ? (int)max : 64, 0);

	for (int i = 0; i < n; i++)
		data[i] = got[i].data.u64;
	return n < 0 ? 0 : (unsigned int)n;
}

const struct teardown_algorithm teardown_pollux = {
	"pollux",	   pollux_ep_make, pollux_file_make, pollux_ep_close,
	pollux_file_close, pollux_add,	   pollux_del,	     pollux_wake,
	pollux_clear,	   pollux_collect, pollux_ep_watches};
