/* SPDX-License-Identifier: MIT */
/*
 * Removal: three ways in, one way out.
 *
 *   DEL                 holds a reference on the file, takes ep.mtx
 *   close of the epoll  takes ep.mtx, then tries to get a reference on each file
 *   last close of file  has the file to itself: no reference can be taken any more
 *
 * Who removes an item is decided by the file's reference count alone. DEL and the
 * epoll's close remove an item only while they hold a reference on its file; with
 * that, the file's close cannot have begun. If none can be had, the close has
 * begun, and it removes all items that it finds on the file's list. So exactly one
 * removes each item, and there is no global lock.
 *
 * The epoll outlives its descriptor until the last item has gone (EP-LOCK-10). The open
 * file and the items have one reference on it in common: it is dropped by whoever finds,
 * under ep.mtx, that the file is closed and no item is left. That is the close of the
 * epoll itself or the last close of a file: DEL and evictions have an open epoll, or a file
 * whose items the close of the epoll can remove itself. Items do not count on the file
 * (EP-ADD-10).
 *
 * So whoever has an item that is not removed yet may take the mutex of its epoll, and to let
 * it go is the last that the thread does to it: the swap that frees the lock may be what lets
 * another thread remove the last item. What may follow it, waking a sleeper, names the
 * address to the kernel and touches nothing; that it comes late, and wakes somebody who
 * sleeps on another lock that is there by then, is harmless: who sleeps on a lock looks again.
 *
 * Memory. A waker that found the item under RCU may still be looking at it, and may
 * put it into a help slot of its epoll; both end with a first grace period. The slots
 * are then cleared, and whoever has read one before that is gone after a second. For
 * that the first who helps an item takes a reference on the epoll. If there is none to be
 * had, the item was removed before, and nobody collects from the epoll any more: the
 * helper then takes its mark back and leaves. Another who has seen that mark may put the item into
 * a slot all the same, where nobody looks; both are in RCU sections that began before
 * the item was removed, so the epoll is still there, and the mark is gone, or has its
 * reference, when the first grace period ends.
 */
#include "epoll/engine.h"

#define RELEASE_CHUNK 64

static void ep_free(void *p)
{
	struct pollux_ep *ep = p;

	if (plx_unlikely(ep->side))
		ep->side->free(ep);
	plx_free(ep->dues);
	plx_free(ep->owner);
	plx_free(ep);
}

static void ep_released(struct pollux_file *f)
{
	struct pollux_host host = plx_file_ep(f)->host;

	ep_free(plx_file_ep(f));
	host.released(host.arg);
}

void plx_ep_put(struct pollux_ep *ep)
{
	uint32_t old = plx_xadd(&ep->refs, (uint32_t)-1);

	PLX_INVARIANT(old != 0, "an epoll's count of references is not dropped below zero");
	if (old != 1)
		return;
	if (ep->host.released)
		plx_reclaim(&ep->file, ep_released);
	else
		plx_retire(ep, ep_free);
}

static void helped_free(void *p)
{
	struct plx_epitem *item = p;
	struct pollux_ep *ep = item->ep;

	plx_slab_free(item);
	plx_ep_put(ep);
}

static void item_retired(void *p)
{
	struct plx_epitem *item = p;

	if (!plx_load(&item->w.helped)) {
		plx_slab_free(item);
		return;
	}
	for (int i = 0; i < PLX_HELPS; i++) {
		struct plx_epitem *slot = item;

		(void)plx_cas(&item->ep->helps[i], &slot, NULL);
	}
	plx_retire(item, helped_free);
}

/*
 * Takes QUEUED so that no producer can push the item from now on, and gets it off
 * the ready list. If a producer has QUEUED and has not pushed yet, its push
 * is waited for, as the kernel waits for a callback that runs. EPOCH moves in the same step:
 * whatever a producer has concluded from the file's list is void (ready.c, 5).
 */
static void item_claim(struct plx_epitem *item)
{
	uint64_t w = plx_load(&item->node->mark);

	while (!plx_cas(&item->node->mark, &w, ((w & ~PLX_QUIET) | PLX_QUEUED) + PLX_EPOCH_ONE))
		;
	if (!(w & PLX_QUEUED))
		return;
	if (!plx_item_linked(item))
		plx_ready_splice(item->ep);
	for (int tries = 0; !plx_item_linked(item); tries++) {
		plx_await_step(tries);
		plx_ready_splice(item->ep);
	}
	plx_ready_unlink(item);
}

bool plx_item_remove(struct plx_epitem *item)
{
	struct pollux_ep *ep = item->ep;
	struct pollux_file *f = item->file;
	bool given;

	plx_lockdep_held(&ep->mtx);
	/* Its neighbours in a large epoll are in nobody's cache, and written to below. */
	plx_prefetch_write(item->all.next);
	plx_prefetch_write(item->all.prev);
	plx_item_unlink(item);
	/* Nobody can arm it any more. Partner: rearm. */
	given = plx_item_given(item);
	PLX_DELAY(remove_before_dead);
	plx_store_rel(&item->w.dead, 1);
	item_claim(item);
	if (plx_item_is_primary(item) && !plx_file_dying(f)) {
		/*
		 * The mark goes back to the file. A producer that still looks at
		 * the item either sees dead or fails, since EPOCH has moved. (A file
		 * that is being closed needs it no more.)
		 */
		plx_item_unmark(item);
		plx_store_rel(&f->flags, 0);
	}
	if (plx_unlikely(f->ops->due != NULL))
		plx_due_forget(item);
	plx_list_del(&item->all);
	if (plx_unlikely(plx_load(&item->w.helped) & PLX_HELP_KEPT))
		plx_help_forget(item);
	ep->nitems--;
	plx_watches_uncharge(ep);
	plx_retire(item, item_retired);
	return given;
}

/* The caller may hold locks (plx_file_put_locked): nothing that was retired is released here. */
void plx_file_remove_watches(struct pollux_file *f)
{
	struct plx_watch *w;

	/* Nobody else changes the list any more, or looks anything up: that takes a reference. */
	if (plx_unlikely(f->index))
		plx_index_drop(f);
	while ((w = plx_load_acq(&f->watches)) != NULL) {
		struct plx_epitem *item = plx_watch_item(w);
		struct pollux_ep *ep = item->ep;
		bool last;

		PLX_INVARIANT(plx_watch_is_item(w),
			      "whoever sleeps on a file holds a reference on it");
		plx_lock(&ep->mtx, PLX_RANK_EP);
		PLX_DELAY(close_before_remove);
		plx_item_remove(item);
		last = ep->closed && !ep->nitems;
		plx_unlock(&ep->mtx, PLX_RANK_EP);
		if (last)
			plx_ep_put(ep);
	}
}

/* Its caller may hold locks, too. */
void plx_ep_release(struct pollux_file *f)
{
	struct pollux_ep *ep = plx_file_ep(f);
	struct pollux_file *files[RELEASE_CHUNK];
	/* Read here: the epoll may be gone at the end. */
	bool told = ep->host.released || ep->owner || plx_ep_on_futex(ep);
	bool last;
	int n;

	if (plx_unlikely(ep->side))
		ep->side->release(ep);
	if (plx_unlikely(ep->batches))
		plx_batches_forget(ep);
	do {
		struct plx_list *l, *next;

		n = 0;
		plx_lock(&ep->mtx, PLX_RANK_EP);
		for (l = ep->items.next; l != &ep->items && n < RELEASE_CHUNK; l = next) {
			struct plx_epitem *item = plx_all_item(l);

			next = l->next;
			if (!pollux_file_tryget(item->file))
				continue;
			PLX_DELAY(release_before_remove);
			files[n++] = item->file;
			plx_item_remove(item);
		}
		/* What is left is on files that are being closed. */
		ep->closed = !n;
		last = !n && !ep->nitems;
		plx_unlock(&ep->mtx, PLX_RANK_EP);
		for (int i = 0; i < n; i++)
			plx_file_put_locked(files[i]);
	} while (n);
	if (last)
		plx_ep_put(ep);
	if (told)
		return;
	/*
	 * A waker may have counted a sleeper, and call the host any moment. It is in an RCU
	 * section, or has a reference on the epoll; nobody sleeps any more, so no other will call
	 * it.
	 */
	PLX_INVARIANT(!plx_rcu_inside(), "an epoll whose host has no released operation is not "
					 "put in a read section");
	plx_lockdep_none();
	plx_rcu_synchronize();
}
