/* SPDX-License-Identifier: MIT */
/* What an epoll shows of itself. */
#include "epoll/engine.h"

int pollux_ep_for_each(struct pollux_ep *ep, pollux_ep_item_fn fn, void *arg)
{
	int r = plx_file_own(&ep->file);

	if (plx_unlikely(r))
		return r;
	plx_lock(&ep->mtx, PLX_RANK_EP);
	for (struct plx_list *l = ep->items.next; !r && l != &ep->items; l = l->next) {
		struct plx_epitem *item = plx_all_item(l);
		const struct epoll_event ev = {
			.events = plx_load(&item->w.events),
			.data.u64 = item->data,
		};

		/* It may be in its release already, which waits for the mutex with its items. */
		if (!plx_file_dying(item->file))
			r = fn(arg, item->file, item->key, &ev);
	}
	plx_unlock(&ep->mtx, PLX_RANK_EP);
	return r;
}

int pollux_ep_stat(struct pollux_ep *ep, struct pollux_ep_stat *st, size_t size)
{
	struct pollux_ep_stat now = {0};
	int r = plx_file_own(&ep->file);

	if (plx_unlikely(r))
		return r;
	plx_lock(&ep->mtx, PLX_RANK_EP);
	plx_ready_splice(ep);
	now.items = ep->nitems;
	for (struct plx_list *l = ep->ready.next; l != &ep->ready; l = l->next)
		now.queued++;
	if (now.queued)
		plx_store_rel(&ep->has_ready, 1);
	now.collections = ep->harvests;
	now.events = ep->events;
	plx_unlock(&ep->mtx, PLX_RANK_EP);
	now.sleepers = plx_load(&ep->sleepers);
	memset(st, 0, size);
	memcpy(st, &now, size < sizeof(now) ? size : sizeof(now));
	return 0;
}
