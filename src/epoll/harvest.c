/* SPDX-License-Identifier: MIT */
/*
 * Collecting events.
 *
 * The whole of a collection runs under ep.mtx, as in the kernel (EP-WAIT-02): two
 * threads never get the same edge, and DEL waits for a collection in progress
 * (EP-DEL-02). Producers are not held up: they push to `incoming`.
 *
 * After a collection the list is (EP-ORD-05): what was not reached, then what
 * arrived meanwhile, then the delivered level-triggered items.
 */
#include "epoll/engine.h"

struct harvest {
	pollux_event_fn sink;
	void *arg;
	int max;
	int n;
	int err;
};

uint32_t plx_due_poll(struct plx_epitem *item, uint32_t events)
{
	struct pollux_file *f = item->file;
	int64_t due = f->ops->due(f);
	bool wanted = events;

	PLX_DELAY(due_before_poll);
	events &= f->ops->poll(f, events);
	PLX_DELAY(due_after_poll);
	if (events)
		due = f->ops->due(f);
	plx_due_note(item, wanted ? due : -1);
	return events;
}

/* What the item reports now; a file that is being closed reports nothing (EP-KEY-12). */
static uint32_t item_poll(struct plx_epitem *item, uint32_t events)
{
	if (plx_file_dying(item->file))
		return 0;
	events &= ~PLX_EP_FLAGS;
	if (plx_unlikely(item->file->ops->due != NULL))
		return plx_due_poll(item, events);
	return item->file->ops->poll(item->file, events) & events;
}

/* ep.mtx held: those whose time has come, as if they had been woken. */
static __attribute__((noinline)) void queue_due(struct pollux_ep *ep)
{
	int64_t now = plx_ep_now(ep);
	struct plx_epitem *item;

	while ((item = plx_due_take(ep, now)) != NULL)
		(void)plx_item_queue_locked(item);
}

void plx_due_pass_on_slow(struct pollux_ep *ep)
{
	PLX_DELAY(due_before_pass);
	/* Partner: plx_ep_announce, before plx_due_keep. */
	plx_mb();
	if (plx_due_unkept(ep))
		plx_ep_wake_one(ep);
}

void plx_due_tell(struct pollux_ep *ep)
{
	plx_due_pass_on_slow(ep);
	if (plx_ep_watched(ep))
		pollux_file_wake(&ep->file, EPOLLIN);
}

static bool item_level(uint32_t events)
{
	return PLX_INJECTED(double_edge) || !(events & (EPOLLET | EPOLLONESHOT));
}

/* Stores the event. ONESHOT is disarmed by delivery alone (EP-RDY-15). */
static bool harvest_deliver(struct harvest *h, struct plx_epitem *item, uint32_t events,
			    uint32_t revents)
{
	h->err = h->sink(h->arg, revents, plx_load(&item->data));
	if (h->err)
		return false;
	plx_tsan_after(item->file);
	plx_item_set_given(item, true);
	h->n++;
	if (events & EPOLLONESHOT) {
		if (plx_unlikely(item->file->ops->due != NULL))
			plx_due_none(item);
		plx_item_disarm(item);
	}
	return true;
}

/*
 * One item off the private list. It goes back to the front of `rest` if its event
 * could not be stored (EP-ARG-03), to `level` if it stays queued.
 */
static void harvest_one(struct harvest *h, struct plx_epitem *item, struct plx_list *rest,
			struct plx_list *level)
{
	uint32_t events = plx_load_acq(&item->w.events);
	bool lt = item_level(events);
	uint32_t revents = lt ? item_poll(item, events) : 0;

	if (!revents) {
		plx_item_unmark(item);
		plx_mb_after_rmw();
		/* It may have been armed meanwhile (rearm in ctl.c). */
		events = plx_load_acq(&item->w.events);
		lt = item_level(events);
		revents = item_poll(item, events);
		if (!revents)
			return;
		/*
		 * Became ready in between. A producer may have marked it already and
		 * not pushed it yet, while the write that made it ready has returned:
		 * the event is this collection's, and the next one has to look again.
		 */
		if (lt && !plx_item_remark(item)) {
			harvest_deliver(h, item, events, revents);
			plx_ep_help_locked(item);
			return;
		}
	}
	if (harvest_deliver(h, item, events, revents)) {
		if (lt)
			plx_list_add_tail(&item->rd, level);
		return;
	}
	if (lt || plx_item_remark(item))
		plx_list_add(&item->rd, rest);
	else
		plx_ep_help_locked(item);
}

/*
 * An item whose producer has set QUEUED and not yet pushed, while another
 * producer's write has already returned. The mark stays: the push will come.
 */
static void harvest_helped(struct harvest *h, struct plx_epitem *item)
{
	uint32_t events, revents;

	/*
	 * An item on the list needs no help. One that this collection has taken off
	 * the list has been polled after plx_help_take; who has asked since then has said
	 * so once more.
	 */
	if (plx_item_linked(item) || plx_item_taken(item, item->ep->harvests) ||
	    !(plx_load(&item->w.helped) & PLX_HELP_WANTED))
		return;
	if (h->err || h->n == h->max) {
		plx_ep_help_locked(item);
		return;
	}
	plx_item_take(item, item->ep->harvests);
	(void)plx_and(&item->w.helped, (uint8_t)~PLX_HELP_WANTED);
	plx_mb_after_rmw();
	/* Taken off the list since it was asked for: that has been the answer. */
	if (!(plx_load(&item->node->mark) & PLX_QUEUED))
		return;
	events = plx_load_acq(&item->w.events);
	revents = item_poll(item, events);
	if (!revents)
		return;
	if (!harvest_deliver(h, item, events, revents) || item_level(events))
		plx_ep_help_locked(item);
}

static void harvest_help(struct harvest *h, struct pollux_ep *ep, uint32_t how)
{
	struct plx_epitem **at = &ep->kept;

	if (how == PLX_HELP_ALL)
		plx_help_walk(ep);
	while (*at) {
		harvest_helped(h, *at);
		at = plx_help_next(at);
	}
}

static __attribute__((noinline)) int harvest(struct pollux_ep *ep, pollux_event_fn sink, void *arg,
					     int max, bool timed)
{
	struct harvest h = {.sink = sink, .arg = arg, .max = max};
	struct plx_list rest, level;
	bool more, earlier = false;
	struct plx_batch *batch = NULL;
	uint32_t help;

	if (plx_unlikely(ep->batches)) {
		batch = plx_batch_of(ep);
		if (!batch) {
			plx_mb();
			plx_ep_pass_on(ep);
			return -ENOMEM;
		}
	}
	plx_list_init(&rest);
	plx_list_init(&level);
	plx_lock(&ep->mtx, PLX_RANK_EP);
	plx_store(&ep->has_ready, 1);
	if (timed)
		queue_due(ep);
	help = plx_help_take(ep);
	plx_ready_splice(ep);
	plx_list_splice_front(&ep->ready, &rest);
	ep->harvests++;
	while (h.n < max && !h.err && !plx_list_empty(&rest)) {
		struct plx_epitem *item = plx_rd_item(rest.next);

		plx_ready_unlink(item);
		plx_item_take(item, ep->harvests);
		/* Of an exclusive one: this is who its wake was for. */
		if (plx_unlikely(plx_load(&item->w.spent) % PLX_SPENT_OVER))
			plx_store(&item->w.spent, PLX_SPENT_NOT);
		harvest_one(&h, item, &rest, &level);
	}
	if (plx_unlikely(help))
		harvest_help(&h, ep, help);
	plx_list_splice_front(&rest, &ep->ready);
	plx_ready_splice(ep);
	plx_list_splice_tail(&level, &ep->ready);
	more = !plx_list_empty(&ep->ready);
	if (plx_unlikely(batch != NULL) && h.n)
		plx_batch_open(batch, ep);
	plx_store(&ep->given, ep->given + h.n);
	ep->events += h.n;
	plx_store_rel(&ep->ends, ep->ends + 1);
	plx_store_rel(&ep->has_ready, more);
	more |= plx_load(&ep->help) != PLX_HELP_NONE;
	if (plx_unlikely(ep->dues_items))
		earlier = plx_due_publish(ep);
	plx_unlock(&ep->mtx, PLX_RANK_EP);
	if (plx_unlikely(earlier))
		plx_due_tell(ep);
	if (more) {
		/* Pairs with the barrier in ep_announce. */
		plx_mb();
		plx_ep_pass_on(ep);
	}
	return h.n ? h.n : h.err;
}

int plx_ep_harvest(struct pollux_ep *ep, pollux_event_fn sink, void *arg, int max)
{
	bool timed = plx_due_passed(ep);

	/* Zero-timeout polls of an idle epoll take no lock. */
	return plx_ready_empty(ep) && !timed ? 0 : harvest(ep, sink, arg, max, timed);
}

void plx_ep_again(struct pollux_ep *ep)
{
	plx_lock(&ep->mtx, PLX_RANK_EP);
	for (struct plx_list *l = ep->items.next; l != &ep->items; l = l->next) {
		struct plx_epitem *item = plx_all_item(l);

		if (plx_item_given(item) && item_poll(item, plx_load(&item->w.events)))
			(void)plx_item_queue_locked(item);
	}
	plx_unlock(&ep->mtx, PLX_RANK_EP);
	plx_mb();
	plx_ep_pass_on(ep);
}

/* What is found stays wanted: the next harvest delivers it. */
static uint32_t poll_help(struct pollux_ep *ep, uint32_t how, uint32_t ready)
{
	struct plx_epitem **at = &ep->kept;

	if (how == PLX_HELP_ALL)
		plx_help_walk(ep);
	while (*at) {
		struct plx_epitem *item = *at;

		if (!plx_item_linked(item) && (plx_load(&item->w.helped) & PLX_HELP_WANTED)) {
			plx_ep_help_locked(item);
			if (!ready && (plx_load(&item->node->mark) & PLX_QUEUED))
				ready = item_poll(item, plx_load(&item->w.events));
		}
		at = plx_help_next(at);
	}
	return ready;
}

uint32_t plx_ep_poll(struct pollux_file *f, uint32_t wanted)
{
	struct pollux_ep *ep = plx_file_ep(f);
	bool timed, earlier = false;
	uint32_t ready = 0, help;
	struct plx_epitem *item;

	/* The list changes by it, so it is looked at whatever is wanted (EP-POLL-03). */
	(void)wanted;
	if (plx_file_stale(f))
		return 0;
	timed = plx_due_passed(ep);
	if (plx_ready_empty(ep) && !timed)
		return 0;
	plx_lock(&ep->mtx, PLX_RANK_EP);
	plx_store(&ep->has_ready, 1);
	if (timed)
		queue_due(ep);
	help = plx_help_take(ep);
	plx_ready_splice(ep);
	while (!ready && !plx_list_empty(&ep->ready)) {
		item = plx_rd_item(ep->ready.next);
		ready = item_poll(item, plx_load(&item->w.events));
		if (ready)
			break;
		plx_ready_unlink(item);
		plx_item_unmark(item);
		plx_mb_after_rmw();
		ready = item_poll(item, plx_load(&item->w.events));
		if (ready && plx_item_remark(item))
			plx_list_add(&item->rd, &ep->ready);
		else if (ready)
			plx_ep_help_locked(item);
	}
	if (plx_unlikely(help))
		ready = poll_help(ep, help, ready);
	plx_store_rel(&ep->ends, ep->ends + 1);
	plx_store_rel(&ep->has_ready, !plx_list_empty(&ep->ready));
	if (plx_unlikely(ep->dues_items))
		earlier = plx_due_publish(ep);
	plx_unlock(&ep->mtx, PLX_RANK_EP);
	if (plx_unlikely(earlier))
		plx_due_tell(ep);
	return ready ? EPOLLIN | EPOLLRDNORM : 0;
}
