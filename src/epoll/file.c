/* SPDX-License-Identifier: MIT */
/*
 * Files: references, lists of watches, and the wake that walks them.
 *
 * A wake runs in three steps: the source changes its state; a full barrier; the
 * watches are looked at. Whoever changes what a wake looks at (interest, the
 * QUEUED mark, the list itself) publishes the change, has a full barrier, and
 * then samples the state. One of the two therefore sees the other.
 */
#include "epoll/engine.h"

int plx_check_size(const void *p, uint32_t size, size_t known)
{
	const unsigned char *c = p;

	if (size < known)
		return -EINVAL;
	for (size_t i = known; i < size; i++)
		if (c[i])
			return -E2BIG;
	return 0;
}

void plx_file_init(struct pollux_file *f, const struct pollux_file_ops *ops)
{
	int bad;

	PLX_INVARIANT(ops, "a file has operations");
	bad = plx_check_size(ops, ops->size, sizeof(*ops));
	PLX_INVARIANT(bad != -EINVAL, "the operations of a file say their size");
	PLX_INVARIANT(!bad, "operations of a file that this version does not know are 0");
	PLX_INVARIANT(!ops->flags, "the operations of a file have no flags");
	PLX_INVARIANT(ops->poll, "a file has a poll operation");
	memset(f, 0, sizeof(*f));
	f->ops = ops;
	f->refs = 1;
	f->node.pushed = (uint32_t)-1;
}

void pollux_file_init(struct pollux_file *f, const struct pollux_file_ops *ops)
{
	plx_file_init(f, ops);
	f->born = plx_born();
}

void pollux_file_get(struct pollux_file *f)
{
	uint32_t old = __atomic_fetch_add(&f->refs, 1, __ATOMIC_RELAXED);

	PLX_INVARIANT(old != 0, "a reference is taken by somebody who holds one");
}

int pollux_file_tryget(struct pollux_file *f)
{
	return plx_file_tryget(f);
}

/*
 * A program's ThreadSanitizer is told what happens before the end of an object of its own. Objects
 * of the layers above end in forks as well, where it must not be called.
 */
static inline bool tsan_hears(const struct pollux_file *f)
{
	return plx_unlikely(plx_tsan_here()) && f->kind == PLX_KIND_OTHER;
}

static void own_free(void *p)
{
	struct pollux_file *f = p;

	f->ops->free(f);
}

static void program_free(struct pollux_file *f)
{
	if (tsan_hears(f)) {
		plx_tsan_after(f);
		plx_tsan_after(&plx_read_sections);
	}
	f->ops->free(f);
}

/* Whether it was the last. */
static inline bool drop(struct pollux_file *f)
{
	uint32_t old = plx_xadd(&f->refs, (uint32_t)-1);

	PLX_INVARIANT(old != 0, "a reference is dropped by somebody who holds one");
	return old == 1;
}

static PLX_CHILD_CODE void last_put(struct pollux_file *f)
{
	const struct pollux_file_ops *ops = f->ops;

	PLX_DELAY(file_last_put);
	/* An epoll of before a fork stays, but nobody is at events of it any more. */
	if (plx_unlikely(plx_file_own(f))) {
		if (plx_file_ep(f)->batches)
			plx_batches_forget(plx_file_ep(f));
		return;
	}
	plx_file_remove_watches(f);
	/* Without a free of its own, f may be gone when release returns. */
	if (ops->release)
		ops->release(f);
	if (!ops->free)
		return;
	if (f->kind == PLX_KIND_OTHER)
		plx_reclaim(f, program_free);
	else
		plx_retire(f, own_free);
}

PLX_CHILD_CODE bool plx_file_put_locked(struct pollux_file *f)
{
	bool hears = tsan_hears(f);

	if (hears)
		plx_tsan_before(f);
	if (!drop(f))
		return false;
	if (hears)
		plx_tsan_after(f);
	last_put(f);
	return true;
}

/* In a signal handler it is not the last, and may have interrupted what would be run here. */
PLX_CHILD_CODE void pollux_file_put(struct pollux_file *f)
{
	if (plx_file_put_locked(f)) {
		plx_retire_flush_if_full();
		plx_reclaim_turn_if_due();
	}
}

uint32_t pollux_file_poll(struct pollux_file *f, uint32_t wanted)
{
	wanted |= EPOLLERR | EPOLLHUP;
	return f->ops->poll(f, wanted) & wanted;
}

/*
 * file.lock held: what w wants has changed, and it is told if nobody else wanted it or wants it
 * still. Calls come in the order in which the lock was had, so the last one says how it is.
 *
 * An item of another epoll may be on the list of a file that is being closed, and leave it
 * meanwhile without the lock: therefore RCU. The close takes the mutex of the caller's epoll before
 * the file is released, so no call comes after that.
 */
static __attribute__((noinline)) void
interest_tell(struct pollux_file *f, const struct plx_watch *w, uint32_t before, uint32_t after)
{
	uint32_t others = 0;

	plx_rcu_read_lock();
	for (struct plx_watch *x = plx_load_acq(&f->watches); x; x = plx_load_acq(&x->next))
		if (x != w)
			others |= plx_load(&x->events) & ~PLX_EP_FLAGS;
	plx_rcu_read_unlock();
	before = others | (before & ~PLX_EP_FLAGS);
	after = others | (after & ~PLX_EP_FLAGS);
	if (before != after)
		f->ops->interest(f, after);
}

void plx_item_set_events(struct plx_epitem *item, uint32_t events)
{
	struct pollux_file *f = item->file;
	uint32_t before = item->w.events;

	plx_store(&item->w.events, events);
	if (f->ops->interest) {
		PLX_DELAY(interest_before_tell);
		interest_tell(f, &item->w, before, events);
	}
}

void plx_item_disarm(struct plx_epitem *item)
{
	struct pollux_file *f = item->file;
	uint32_t events = item->w.events & PLX_EP_FLAGS;

	if (plx_likely(!f->ops->interest)) {
		/* After all that the delivery does to the item. Partner: rearm in ctl.c. */
		plx_store_rel(&item->w.events, events);
		return;
	}
	plx_lock(&f->lock, PLX_RANK_FILE);
	plx_item_set_events(item, events);
	plx_unlock(&f->lock, PLX_RANK_FILE);
}

/*
 * A producer that wants to set QUIET has read the word, then looked at the list;
 * moving EPOCH after the list has changed makes its compare-and-swap fail.
 */
void plx_file_bump(struct pollux_file *f)
{
	uint64_t w = plx_load(&f->word);

	while (!plx_cas(&f->word, &w, (w & ~PLX_QUIET) + PLX_EPOCH_ONE))
		;
}

/* An epoll that is watched must hear of every wake of its items: none may be quiet. */
static void ep_unquiet(struct pollux_ep *ep)
{
	plx_lock(&ep->mtx, PLX_RANK_EP);
	for (struct plx_list *l = ep->items.next; l != &ep->items; l = l->next) {
		struct plx_epitem *item = plx_all_item(l);

		if (plx_item_is_primary(item))
			plx_file_bump(item->file);
	}
	plx_unlock(&ep->mtx, PLX_RANK_EP);
}

/*
 * Nobody needs pprev of the first watch, which is where the file says: it is the place behind the
 * last one, so that who comes to the end does not walk there.
 */
static void list_link(struct pollux_file *f, struct plx_watch *w)
{
	struct plx_watch *first = f->watches, **at = &f->watches;

	if (!first) {
		w->pprev = &w->next;
	} else if (w->place == PLX_WATCH_EXCLUSIVE || w->place == PLX_WATCH_TAIL) {
		at = w->pprev = first->pprev;
		first->pprev = &w->next;
	} else {
		w->pprev = first->pprev;
		first->pprev = &w->next;
	}
	w->next = at == &f->watches ? first : NULL;
	plx_store_rel(at, w);
}

static void list_unlink(struct pollux_file *f, struct plx_watch *w)
{
	struct plx_watch *first = f->watches, *next = w->next;

	/* w->next stays: a waker that stands on w walks on from it. */
	if (w == first) {
		plx_store_rel(&f->watches, next);
		if (next)
			next->pprev = w->pprev;
		return;
	}
	plx_store_rel(w->pprev, next);
	if (next)
		next->pprev = w->pprev;
	else
		first->pprev = w->pprev;
}

/*
 * Producers conclude something from a list only while its primary item is alone there. So nothing
 * is made wrong by a watch that comes to an empty list when the primary item has given the mark
 * back, which moves EPOCH. Until then that item may have left the list and not moved EPOCH yet, and
 * its QUIET would keep wakes from the one who comes. The model is tests/model/quiet.pml, CHANGE=4.
 */
static void watch_link(struct pollux_file *f, struct plx_watch *w, struct plx_epitem *item)
{
	bool given_back, alone;

	/* Before anybody can find w; who comes later samples what is ready. Partner:
	 * plx_ep_watched. */
	if (plx_unlikely(f->kind == PLX_KIND_EPOLL))
		plx_store(&plx_file_ep(f)->watched, 1);
	plx_lock(&f->lock, PLX_RANK_FILE);
	/* Acquired: the former primary item has given the mark back. */
	given_back = !(plx_load_acq(&f->flags) & PLX_FILE_HAS_PRIMARY);
	alone = given_back && !f->watches;
	if (item) {
		item->node = &item->own;
		if (given_back) {
			plx_store(&f->flags, PLX_FILE_HAS_PRIMARY);
			item->node = &f->node;
		}
	}
	if (plx_unlikely(f->index != NULL) && item)
		plx_index_link(f, item);
	list_link(f, w);
	if (plx_unlikely(f->ops->interest != NULL))
		interest_tell(f, w, 0, w->events);
	plx_unlock(&f->lock, PLX_RANK_FILE);
	if (!alone)
		plx_file_bump(f);
	if (plx_unlikely(f->kind == PLX_KIND_EPOLL))
		ep_unquiet(plx_file_ep(f));
}

void plx_watch_link(struct pollux_file *f, struct plx_watch *w)
{
	watch_link(f, w, NULL);
}

void plx_item_link(struct pollux_file *f, struct plx_epitem *item)
{
	watch_link(f, &item->w, item);
}

void plx_watch_unlink(struct pollux_file *f, struct plx_watch *w)
{
	plx_lock(&f->lock, PLX_RANK_FILE);
	list_unlink(f, w);
	if (plx_unlikely(f->ops->interest != NULL))
		interest_tell(f, w, w->events, 0);
	plx_unlock(&f->lock, PLX_RANK_FILE);
	plx_file_bump(f);
}

void plx_item_unlink(struct plx_epitem *item)
{
	struct pollux_file *f = item->file;

	/* Nobody else changes the list of a dying file: that takes a reference. */
	if (plx_file_dying(f)) {
		list_unlink(f, &item->w);
		return;
	}
	plx_lock(&f->lock, PLX_RANK_FILE);
	if (plx_unlikely(f->index != NULL))
		plx_index_unlink(f, item);
	list_unlink(f, &item->w);
	if (plx_unlikely(f->ops->interest != NULL))
		interest_tell(f, &item->w, item->w.events, 0);
	plx_unlock(&f->lock, PLX_RANK_FILE);
}

/* An epoll of which an item has been pushed: whoever watches it is told. False if nobody does. */
static bool ep_tell_own(struct pollux_ep *ep)
{
	if (!plx_ep_watched(ep))
		return false;
	plx_file_wake_rcu(&ep->file, EPOLLIN, false);
	return true;
}

/*
 * A wake that has ended at an exclusive item was spent on a thread that slept. In the kernel a
 * thread that has been woken sleeps no more, and collects before it leaves. Here it counts as a
 * sleeper until it runs: what has woken it may be a file of the kernel's, which takes the last
 * place of its buffer, or a signal. Then it has left the item on the list, nobody may come for
 * that, and whoever the wake has not been given to does not know of it. So it goes on from there.
 *
 *   watch.spent   set by a waker before it counts sleepers, to what is left of its key; cleared by
 *                 it if there are none, and by who collects the item, unless it is OVER
 *   ep.spent      set after it; cleared by who looks for items that have it
 *
 * Argument. Who leaves has taken back that it sleeps, has a full barrier, and looks; the waker has
 * set both, has a full barrier, and looks for sleepers. So either the waker does not count the one
 * who leaves, or that one sees it, and says so by OVER: one of the two goes on with the wake, and
 * not both. As long as others sleep it is they who have been told, or are told now. Two wakes of
 * one item at a time may go on once too often; that is one look too many for somebody. The model is
 * tests/model/handed.pml.
 */

/* What a wake with this key is, if it ends at an exclusive item whose epoll has a sleeper. */
static uint8_t spent_as(uint32_t events, uint32_t key)
{
	switch (key & (EPOLLIN | EPOLLOUT)) {
	case EPOLLIN:
		return events & EPOLLIN ? PLX_SPENT_IN : PLX_SPENT_NOT;
	case EPOLLOUT:
		return events & EPOLLOUT ? PLX_SPENT_OUT : PLX_SPENT_NOT;
	case 0:
		return PLX_SPENT_ANY;
	default:
		return PLX_SPENT_NOT;
	}
}

/*
 * The epoll's part of a wake. Returns whether it counts as the one successful
 * wake of an exclusive watch (EP-EXC-04). Not if the item has been removed: whoever sleeps
 * may have come to do so since, and then nobody would have been told. Who did stored dead,
 * let go of ep.mtx, and counted himself as a sleeper after that. The model is
 * tests/model/exclusive.pml.
 */
static bool item_wake(struct plx_epitem *item, uint32_t key, bool all)
{
	struct pollux_ep *ep = item->ep;
	uint32_t events = plx_load(&item->w.events);
	uint8_t spent = PLX_SPENT_NOT;
	bool slept, queued;
	uint64_t stay;

	if (!(events & ~PLX_EP_FLAGS) || (key && !(key & events)) || PLX_INJECTED(lost_event))
		return false;
	queued = plx_item_queue(item);
	if (!queued)
		plx_stat(PLX_STAT_STAYED);
	stay = queued ? 0 : plx_item_stay(item);
	/* The push was a read-modify-write; an item found queued was pushed before. */
	plx_mb_after_rmw();
	/* Who comes to sleep after this look finds the item. */
	if (plx_unlikely(item->w.place == PLX_WATCH_EXCLUSIVE) && !all && plx_load(&ep->sleepers))
		spent = spent_as(events, key);
	if (plx_unlikely(spent)) {
		plx_store(&item->w.spent, spent);
		plx_xchg(&ep->spent, 1);
		plx_mb_after_rmw();
	}
	PLX_DELAY(wake_before_tell);
	slept = plx_ep_wake_one(ep);
	if (!ep_tell_own(ep) && stay)
		plx_item_try_quiet(item, stay);
	if (plx_likely(!spent))
		return false;
	/* Partner: plx_ep_announce. */
	plx_mb();
	if (slept && plx_likely(!plx_load_acq(&item->w.dead)))
		return true;
	return plx_xchg(&item->w.spent, PLX_SPENT_NOT) == PLX_SPENT_OVER;
}

/* From w on. */
static void wake_from(struct plx_watch *w, uint32_t key, bool all)
{
	for (; w; w = plx_load_acq(&w->next)) {
		if (!plx_watch_is_item(w))
			w->call(w, key);
		else if (item_wake(plx_watch_item(w), key, all) && !all)
			break;
	}
}

/* ep.mtx held: whether the wake of the item is to go on, PLX_SPENT_OVER from now on. */
static bool take_spent(struct plx_epitem *item, uint8_t *spent)
{
	*spent = plx_load(&item->w.spent);
	return item->w.place == PLX_WATCH_EXCLUSIVE && *spent && *spent != PLX_SPENT_OVER &&
	       plx_cas(&item->w.spent, spent, PLX_SPENT_OVER);
}

static __attribute__((noinline)) void hand_on(struct pollux_ep *ep)
{
	static const uint32_t keys[] = {
		[PLX_SPENT_IN] = EPOLLIN, [PLX_SPENT_OUT] = EPOLLOUT, [PLX_SPENT_ANY] = 0};
	uint8_t spent;

	plx_xchg(&ep->spent, 0);
	plx_lock(&ep->mtx, PLX_RANK_EP);
	plx_ready_splice(ep);
	/* One walk: a wake takes no lock, and what it pushes here does not come to the list. */
	for (struct plx_list *l = ep->ready.next; l != &ep->ready; l = l->next) {
		struct plx_epitem *item = plx_rd_item(l);

		if (!take_spent(item, &spent))
			continue;
		plx_rcu_read_lock();
		wake_from(plx_load_acq(&item->w.next), keys[spent], false);
		plx_rcu_read_unlock();
	}
	plx_unlock(&ep->mtx, PLX_RANK_EP);
}

void plx_ep_pass_on(struct pollux_ep *ep)
{
	bool told = plx_ep_wake_one(ep);

	/* After a shutdown nobody collects, a foreign loop either, which counts as a sleeper. */
	if (plx_unlikely(plx_load(&ep->spent)) &&
	    (plx_load(&ep->shut) || (!told && !plx_load(&ep->sleepers))))
		hand_on(ep);
}

void plx_file_wake_rcu(struct pollux_file *f, uint32_t key, bool all)
{
	wake_from(plx_load_acq(&f->watches), key, all);
}

static inline void wake(struct pollux_file *f, uint32_t key, bool all)
{
	plx_rcu_read_lock();
	plx_file_wake_rcu(f, key, all);
	plx_rcu_read_unlock();
}

void plx_file_wake_rmw(struct pollux_file *f, uint32_t key)
{
	plx_mb_after_rmw();
	wake(f, key, false);
}

void pollux_file_wake(struct pollux_file *f, uint32_t key)
{
	/* Partner: harvest_deliver. */
	plx_tsan_before(f);
	plx_mb();
	if (!(plx_load(&f->word) & PLX_QUIET))
		wake(f, key, false);
}

void pollux_file_wake_all(struct pollux_file *f, uint32_t key)
{
	plx_tsan_before(f);
	plx_mb();
	wake(f, key, true);
}

/*
 * The common shape, one watch and that the primary item, sets the mark together
 * with the payload: one locked instruction instead of two. If the item has been
 * removed since it was looked at, or anything else has changed, EPOCH differs
 * and the general way is taken.
 *
 * RCU section open. w: the word, loaded before. NULL if it is not that shape, or the item is
 * queued.
 */
static struct plx_epitem *only_item(struct pollux_file *f, uint64_t w, uint32_t *pops)
{
	struct plx_watch *first = plx_load_acq(&f->watches);
	struct plx_epitem *item;

	if (!first || (w & (PLX_QUEUED | PLX_SLOW)) || !plx_watch_is_item(first) ||
	    plx_load(&first->next))
		return NULL;
	item = plx_watch_item(first);
	*pops = plx_load(&f->node.pops);
	if (!plx_item_is_primary(item) || !(plx_load(&item->w.events) & EPOLLIN) ||
	    plx_load(&first->dead))
		return NULL;
	PLX_DELAY(add_before_cas);
	return item;
}

/* Its mark has been set. */
static void push_only(struct plx_epitem *item, uint32_t pops)
{
	struct pollux_ep *ep = item->ep;

	plx_item_push(item, pops);
	/* Partner: plx_ep_announce. */
	plx_mb_after_rmw();
	plx_ep_wake_one(ep);
	(void)ep_tell_own(ep);
}

uint64_t plx_file_add(struct pollux_file *f, uint64_t v)
{
	struct plx_epitem *item;
	uint32_t pops;
	uint64_t w;

	/* While f's own line comes, which leads to it. */
	if (plx_pushed_to)
		plx_prefetch_write(&plx_pushed_to->incoming);
	w = plx_load_acq(&f->word);
	plx_rcu_read_lock();
	item = only_item(f, w, &pops);
	if (item && plx_cas(&f->word, &w, (w + v) | PLX_QUEUED)) {
		push_only(item, pops);
		plx_rcu_read_unlock();
		return w;
	}
	w = plx_xadd(&f->word, v);
	plx_mb_after_rmw();
	if (!(w & (PLX_QUIET | PLX_SLOW)))
		plx_file_wake_rcu(f, EPOLLIN, false);
	plx_rcu_read_unlock();
	return w;
}

bool plx_file_change(struct pollux_file *f, uint64_t *w, uint64_t to)
{
	bool lost = PLX_INJECTED(lost_event);
	struct plx_epitem *item = NULL;
	uint32_t pops;

	if (!(*w & PLX_QUIET) && !lost)
		item = only_item(f, *w, &pops);
	if (!plx_cas(&f->word, w, item ? to | PLX_QUEUED : to))
		return false;
	if (item) {
		push_only(item, pops);
	} else if (!(to & PLX_QUIET) && !lost) {
		/* Partner: whoever takes the item off the list and polls (harvest.c). */
		plx_mb_after_rmw();
		plx_file_wake_rcu(f, EPOLLIN, false);
	}
	return true;
}
