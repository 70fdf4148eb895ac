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
 * The epoll outlives its descriptor until the last item has gone: each item counts
 * on it (EP-LOCK-10). Items do not count on the file (EP-ADD-10).
 *
 * Memory. A waker that found the item under RCU may still be looking at it, and may
 * put it into the help slot of its epoll; both end with a first grace period. The
 * slot is then cleared, and whoever has read it before that is gone after a second.
 */
#include "epoll/engine.h"

#define RELEASE_CHUNK 64

void plx_ep_get(struct pollux_ep *ep)
{
	plx_xadd(&ep->refs, 1);
}

static void ep_free(void *p)
{
	struct pollux_ep *ep = p;

	if (ep->owner_free)
		ep->owner_free(ep->owner);
	plx_free(ep);
}

void plx_ep_put(struct pollux_ep *ep)
{
	uint32_t old = plx_xadd(&ep->refs, (uint32_t)-1);

	PLX_INVARIANT(old != 0, "an epoll's count of references is not dropped below zero");
	if (old == 1)
		plx_retire(ep, ep_free);
}

static void item_free(void *p)
{
	struct plx_epitem *item = p;
	struct pollux_ep *ep = item->ep;

	plx_slab_free(item);
	plx_ep_put(ep);
}

static void item_retired(void *p)
{
	struct plx_epitem *item = p;
	struct plx_epitem *slot = item;

	if (!plx_load(&item->w.helped)) {
		item_free(item);
		return;
	}
	plx_cas(&item->ep->help, &slot, NULL);
	plx_retire(item, item_free);
}

/*
 * Takes QUEUED so that no producer can push the item from now on, and gets it off
 * the ready list. If a producer has QUEUED and has not pushed yet, its RCU section
 * is waited for, as the kernel waits for a callback that runs.
 */
static void item_claim(struct plx_epitem *item)
{
	if (!(plx_or(item->mark, PLX_QUEUED) & PLX_QUEUED))
		return;
	if (!item->w.linked)
		plx_ready_splice(item->ep);
	if (!item->w.linked) {
		plx_rcu_synchronize();
		plx_ready_splice(item->ep);
	}
	PLX_INVARIANT(item->w.linked, "an item that was marked is found on the ready list");
	plx_ready_unlink(item);
}

void plx_item_remove(struct plx_epitem *item)
{
	struct pollux_ep *ep = item->ep;
	struct pollux_file *f = item->file;

	plx_lockdep_held(&ep->mtx);
	plx_watch_unlink(f, &item->w);
	PLX_DELAY(remove_before_dead);
	plx_store_rel(&item->w.dead, 1);
	item_claim(item);
	if (item->mark == &f->word) {
		/*
		 * The mark goes back to the file. A producer that still looks at
		 * the item either sees dead or fails, since EPOCH has moved.
		 */
		plx_item_unmark(item);
		plx_and(&f->flags, ~PLX_FILE_HAS_PRIMARY);
	}
	plx_list_del(&item->all);
	ep->nitems--;
	plx_watches_uncharge(1);
	plx_retire(item, item_retired);
}

void plx_file_remove_watches(struct pollux_file *f)
{
	struct plx_watch *w;

	/* Nobody else changes the list any more: that takes a reference. */
	while ((w = plx_load_acq(&f->watches)) != NULL) {
		struct plx_epitem *item = plx_watch_item(w);
		struct pollux_ep *ep = item->ep;

		PLX_INVARIANT(plx_watch_is_item(w),
			      "whoever sleeps on a file holds a reference on it");
		plx_ep_get(ep);
		plx_lock(&ep->mtx, PLX_RANK_EP);
		PLX_DELAY(close_before_remove);
		plx_item_remove(item);
		plx_unlock(&ep->mtx, PLX_RANK_EP);
		plx_ep_put(ep);
		plx_retire_flush_if_full();
	}
}

void plx_ep_release(struct pollux_file *f)
{
	struct pollux_ep *ep = plx_file_ep(f);
	struct pollux_file *files[RELEASE_CHUNK];
	int n;

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
		plx_unlock(&ep->mtx, PLX_RANK_EP);
		for (int i = 0; i < n; i++)
			pollux_file_put(files[i]);
		plx_retire_flush_if_full();
	} while (n);
	plx_ep_put(ep);
}
