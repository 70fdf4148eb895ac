/* SPDX-License-Identifier: MIT */
/*
 * Making epolls, and ADD, MOD, DEL.
 */
#include "epoll/engine.h"

#include <pollux/memory.h>

static const struct pollux_file_ops ep_file_ops = {
	.size = sizeof(ep_file_ops),
	.poll = plx_ep_poll,
	.release = plx_ep_release,
	.due = plx_ep_due,
};

struct pollux_ep *plx_ep_new(const struct pollux_host *host)
{
	struct pollux_ep *ep;

	plx_rcu_begin();
	ep = plx_zalloc(sizeof(*ep));
	if (!ep)
		return NULL;
	plx_file_init(&ep->file, &ep_file_ops);
	ep->file.kind = PLX_KIND_EPOLL;
	ep->host = *host;
	ep->refs = 1;
	ep->due = ep->keeper = PLX_NEVER;
	plx_list_init(&ep->ready);
	plx_list_init(&ep->items);
	return ep;
}

static int check_attr(const struct pollux_ep_attr *attr)
{
	int r = plx_check_size(attr, attr->size, sizeof(*attr));

	return r ? r : attr->flags & ~POLLUX_EP_BATCHES ? -EINVAL : 0;
}

int pollux_memory_ops(const struct pollux_memory *m)
{
	int r = plx_check_size(m, m->size, sizeof(*m));

	if (r)
		return r;
	return m->flags || !m->map || !m->unmap ? -EINVAL : plx_pages_from(m);
}

int plx_host_check(const struct pollux_host *host)
{
	int r = plx_check_size(host, host->size, sizeof(*host));

	if (r)
		return r;
	return host->flags || !host->park || !host->unpark_one || !host->now ? -EINVAL : 0;
}

int pollux_ep_new(struct pollux_ep **out, const struct pollux_ep_attr *attr)
{
	const struct pollux_host *host = &plx_futex_host;
	struct pollux_ep *ep;
	int r = attr ? check_attr(attr) : 0;

	if (!r && attr && attr->host) {
		host = attr->host;
		r = plx_host_check(host);
	}
	if (r)
		return r;
	ep = plx_ep_new(host);
	if (!ep)
		return -ENOMEM;
	ep->batches = attr && attr->flags & POLLUX_EP_BATCHES;
	ep->file.born = plx_born();
	*out = ep;
	return 0;
}

struct pollux_file *pollux_ep_file(struct pollux_ep *ep)
{
	return &ep->file;
}

struct pollux_ep *pollux_ep_of(struct pollux_file *f)
{
	return f->kind == PLX_KIND_EPOLL ? plx_file_ep(f) : NULL;
}

void pollux_ep_get(struct pollux_ep *ep)
{
	pollux_file_get(&ep->file);
}

void pollux_ep_put(struct pollux_ep *ep)
{
	pollux_file_put(&ep->file);
}

/*
 * An object mostly has few watches, whatever the number of items in the epoll, so the
 * file's own list is the index: a lookup costs the same in an epoll of ten items
 * and of a million. An object that has many gets a table (index.c). Reading the list without
 * file.lock is safe for items of this ep: only holders of ep.mtx, as the caller is, link and unlink
 * those, and RCU covers the others.
 */
static struct plx_epitem *item_find(struct pollux_ep *ep, struct pollux_file *f, int key)
{
	struct plx_epitem *found = NULL;
	unsigned int steps = 0;

	plx_lockdep_held(&ep->mtx);
	if (plx_unlikely(plx_load(&f->index)) && plx_index_find(f, ep, key, &found))
		return found;
	/* A new file needs no section, in which a preempted thread delays grace periods. */
	if (!plx_load(&f->watches))
		return NULL;
	plx_rcu_read_lock();
	for (struct plx_watch *w = plx_load_acq(&f->watches); w; w = plx_load_acq(&w->next)) {
		struct plx_epitem *item = plx_watch_item(w);

		steps++;
		if (plx_watch_is_item(w) && item->ep == ep && item->key == key &&
		    !plx_load(&w->dead)) {
			found = item;
			break;
		}
	}
	plx_rcu_read_unlock();
	if (plx_unlikely(steps > PLX_INDEX_FROM))
		plx_index_make(f);
	return found;
}

/* After an item was queued by ctl: one waiter, and the pollers of the epoll. */
static void ctl_tell(struct pollux_ep *ep)
{
	/* The release of ep.mtx was one, but for the processor. */
	plx_mb_after_rmw();
	plx_ep_wake_one(ep);
	if (plx_load(&ep->file.watches))
		plx_file_wake_rmw(&ep->file, EPOLLIN);
}

static struct plx_epitem *item_new(struct pollux_ep *ep, struct pollux_file *f, int key,
				   uint32_t events, uint64_t data)
{
	struct plx_epitem *item = plx_slab_alloc();

	if (!item)
		return NULL;
	item->w.events = events;
	item->w.place = events & EPOLLEXCLUSIVE ? PLX_WATCH_EXCLUSIVE : PLX_WATCH_PLAIN;
	item->ep = ep;
	item->file = f;
	item->key = key;
	plx_store(&item->data, data);
	item->own.pushed = (uint32_t)-1;
	plx_item_take(item, ep->harvests);
	return item;
}

/* What must be told when ep.mtx is not held any more. */
struct tell {
	/* Something has been queued. */
	bool queued;
	/* The first time is earlier. */
	bool due;
};

/* An item is about to come that has times. */
static int times_begin(struct pollux_ep *ep)
{
	struct plx_side *side = plx_load_acq(&ep->side);
	int r = side ? side->due(ep, ep->due) : 0;

	return r < 0 ? r : plx_due_reserve(ep) ? 0 : -ENOMEM;
}

/* Linked, with these events. */
static void sample(struct plx_epitem *item, uint32_t events, struct tell *tell)
{
	struct pollux_file *f = item->file;
	bool ready;

	if (plx_likely(!f->ops->due)) {
		ready = f->ops->poll(f, events) & events;
	} else {
		ready = plx_due_poll(item, events);
		tell->due = plx_due_publish(item->ep);
	}
	if (ready)
		tell->queued = plx_item_queue_locked(item);
}

/* ep.mtx held (and the topology lock if paths). */
static int ep_insert(struct pollux_ep *ep, struct pollux_file *f, int key, uint32_t events,
		     uint64_t data, bool paths, struct tell *tell)
{
	struct plx_epitem *item;
	int r = 0;

	if (!plx_watches_charge(ep))
		return -ENOSPC;
	item = item_new(ep, f, key, events, data);
	if (!item)
		r = -ENOMEM;
	else if (plx_unlikely(f->ops->due != NULL))
		r = times_begin(ep);
	if (r) {
		if (item)
			plx_slab_free(item);
		plx_watches_uncharge(ep);
		return r;
	}
	plx_list_add_tail(&item->all, &ep->items);
	ep->nitems++;
	plx_item_link(f, item);
	if (paths && plx_topology_paths(f) < 0) {
		plx_item_remove(item);
		return -EINVAL;
	}
	/* Linked first, sampled second: a change that races with ADD is not lost. */
	PLX_DELAY(add_before_sample);
	plx_mb_after_rmw();
	sample(item, events, tell);
	return 0;
}

/*
 * MOD of an item whose one-shot event has been delivered arms it without ep.mtx: threads that share
 * an epoll do this for each event, and would meet there. The plain case alone: the item is the
 * first watch of its file and not queued, the file has neither times nor interest to tell, and the
 * epoll no batches: those count on it that a MOD comes before a collection or after its end.
 *
 * Argument
 *
 * 1. Who changes what. Of an armed item the events, data and given are changed under ep.mtx alone.
 *    A delivery disarms last, with release, and touches none of them again. Each MOD changes them
 *    under file.lock: here, where the item is disarmed, and in ep_modify, which has ep.mtx besides.
 *    The swap of events arms last. So two MODs never mix, and a delivery has the data that belong
 *    to the events which it has seen.
 * 2. No event is lost. The swap of events is a full barrier; then the state is sampled. Who changes
 *    the state has a barrier, and looks at events: one of the two sees the other. If the sample
 *    finds something, it is taken again under ep.mtx, and the item queued, as by each MOD. If a
 *    producer that saw the item armed before queues it now, whoever takes it off the list has a
 *    full barrier, and reads events again before it polls (harvest.c).
 * 3. None comes twice. What has been delivered with these events was the event of this MOD: then
 *    given is set, and nothing is queued.
 * 4. A removal takes the item off the list under file.lock, and looks at given after that.
 *
 * The model is tests/model/rearm.pml.
 */
static bool rearm(struct pollux_ep *ep, struct pollux_file *f, int key, uint32_t events,
		  uint64_t data)
{
	struct plx_epitem *item;
	struct plx_watch *first;
	bool plain;

	if (f->ops->due || f->ops->interest || ep->batches || !plx_load(&f->watches))
		return false;
	plx_lock(&f->lock, PLX_RANK_FILE);
	first = plx_load(&f->watches);
	item = first && plx_watch_is_item(first) ? plx_watch_item(first) : NULL;
	plain = item && item->ep == ep && item->key == key && plx_item_disarmed(item) &&
		!(plx_load(&item->node->mark) & PLX_QUEUED);
	if (plain) {
		plx_store(&item->data, data);
		plx_item_set_given(item, false);
		PLX_DELAY(rearm_before_arm);
		plx_xchg(&item->w.events, events);
		/* Partner: the barrier of a wake, before it looks at events (file.c). */
		plx_mb_after_rmw();
	}
	plx_unlock(&f->lock, PLX_RANK_FILE);
	return plain;
}

/* Armed by rearm: what is there already. */
static void sample_armed(struct pollux_ep *ep, struct pollux_file *f, int key, uint32_t events,
			 struct tell *tell)
{
	struct plx_epitem *item;

	PLX_DELAY(rearm_before_sample);
	if (plx_likely(!(f->ops->poll(f, events) & events)))
		return;
	PLX_DELAY(rearm_before_queue);
	plx_lock(&ep->mtx, PLX_RANK_EP);
	item = item_find(ep, f, key);
	if (item && !plx_item_given(item))
		sample(item, plx_load(&item->w.events), tell);
	plx_unlock(&ep->mtx, PLX_RANK_EP);
}

struct epoll_event plx_item_registered(struct plx_epitem *item)
{
	struct epoll_event ev;

	plx_lockdep_held(&item->ep->mtx);
	/* Partner: rearm. */
	plx_lock(&item->file->lock, PLX_RANK_FILE);
	ev.events = plx_load(&item->w.events);
	ev.data.u64 = plx_load(&item->data);
	plx_unlock(&item->file->lock, PLX_RANK_FILE);
	return ev;
}

static int ep_modify(struct plx_epitem *item, uint32_t events, uint64_t data, struct tell *tell)
{
	struct pollux_file *f = item->file;

	if (item->w.place == PLX_WATCH_EXCLUSIVE)
		return -EINVAL;
	/* Partner: rearm. */
	plx_lock(&f->lock, PLX_RANK_FILE);
	plx_store(&item->data, data);
	plx_item_set_given(item, false);
	PLX_DELAY(mod_before_events);
	plx_item_set_events(item, events);
	plx_unlock(&f->lock, PLX_RANK_FILE);
	/* The new mask is public before the state is sampled (EP-MOD-07). */
	plx_mb();
	PLX_DELAY(mod_before_sample);
	sample(item, events, tell);
	return 0;
}

/*
 * The shape of nested epolls changes only under the topology lock. It is needed
 * when an epoll is added, or when ep is itself watched, so that the new file lies
 * below others; visit_gen tells that a check running in another thread has passed
 * ep already and counts on its set (EP-NEST-08, EP-PATH-03).
 */
static int ctl_add(struct pollux_ep *ep, struct pollux_file *f, int key, uint32_t events,
		   uint64_t data, struct tell *tell)
{
	bool is_ep = f->kind == PLX_KIND_EPOLL;
	bool full = is_ep;
	int r = 0;

	if (!full) {
		plx_lock(&ep->mtx, PLX_RANK_EP);
		full = plx_load(&ep->file.watches) ||
		       plx_load(&ep->visit_gen) == plx_load(&plx_topology_gen);
	}
	if (full) {
		if (!is_ep)
			plx_unlock(&ep->mtx, PLX_RANK_EP);
		plx_lock(&plx_wiped.topology_lock, PLX_RANK_TOPOLOGY);
		plx_store(&plx_topology_gen, plx_topology_gen + 1);
		if (is_ep)
			r = plx_topology_check(ep, plx_file_ep(f));
		/* What its descriptors say no watch of the file would hear. */
		if (is_ep && !r && plx_file_ep(f)->side && plx_file_ep(f)->side->fds)
			r = -EOPNOTSUPP;
		if (!r)
			plx_lock(&ep->mtx, PLX_RANK_EP);
	}
	if (!r) {
		if (item_find(ep, f, key))
			r = PLX_INJECTED(wrong_errno) ? -ENOENT : -EEXIST;
		else
			r = ep_insert(ep, f, key, events, data, full, tell);
		plx_unlock(&ep->mtx, PLX_RANK_EP);
	}
	if (full) {
		plx_store(&plx_topology_gen, plx_topology_gen + 1);
		plx_unlock(&plx_wiped.topology_lock, PLX_RANK_TOPOLOGY);
	}
	return r;
}

int pollux_ep_del(struct pollux_ep *ep, struct pollux_file *f, int key)
{
	struct plx_epitem *item;
	int r = plx_file_own(&ep->file);

	if (plx_unlikely(r))
		return r;
	r = -ENOENT;
	plx_lock(&ep->mtx, PLX_RANK_EP);
	item = item_find(ep, f, key);
	if (item)
		r = plx_item_remove(item);
	plx_unlock(&ep->mtx, PLX_RANK_EP);
	/* What was done before the ADD, by whoever gets the operation back. */
	if (!r)
		plx_tsan_after(f);
	plx_retire_flush_if_full();
	return r;
}

int plx_ep_ctl(struct pollux_ep *ep, int op, struct pollux_file *f, int key,
	       const struct epoll_event *ev)
{
	uint32_t events = 0;
	uint64_t data = 0;
	struct tell tell = {false, false};
	int r;

	if (plx_unlikely(plx_file_stale(&ep->file) || plx_file_stale(f)) &&
	    (plx_file_own(&ep->file) || plx_file_own(f)))
		return -EOWNERDEAD;
	if (op != EPOLL_CTL_DEL) {
		if (!ev)
			return -EFAULT;
		events = ev->events;
		data = ev->data.u64;
		/* Partner: harvest_deliver. */
		plx_tsan_before(f);
	}
	if (f == &ep->file)
		return -EINVAL;
	if (events & EPOLLEXCLUSIVE) {
		if (op == EPOLL_CTL_MOD)
			return -EINVAL;
		if (op == EPOLL_CTL_ADD &&
		    (f->kind == PLX_KIND_EPOLL || (events & ~PLX_EXCLUSIVE_OK)))
			return -EINVAL;
	}
	/* System suspend is the kernel's business (EP-WKU-02). */
	events = (events & ~EPOLLWAKEUP) | EPOLLERR | EPOLLHUP;
	if (op == EPOLL_CTL_ADD) {
		r = ctl_add(ep, f, key, events, data, &tell);
	} else if (op == EPOLL_CTL_MOD && rearm(ep, f, key, events, data)) {
		sample_armed(ep, f, key, events, &tell);
		r = 0;
	} else {
		struct plx_epitem *item;

		PLX_DELAY(ctl_before_mutex);
		plx_lock(&ep->mtx, PLX_RANK_EP);
		item = item_find(ep, f, key);
		if (op == EPOLL_CTL_DEL) {
			r = item ? 0 : -ENOENT;
			if (item && !PLX_INJECTED(forgotten_del))
				plx_item_remove(item);
		} else if (op == EPOLL_CTL_MOD) {
			r = item ? ep_modify(item, events, data, &tell) : -ENOENT;
		} else {
			r = -EINVAL;
		}
		plx_unlock(&ep->mtx, PLX_RANK_EP);
	}
	if (tell.queued)
		ctl_tell(ep);
	if (plx_unlikely(tell.due))
		plx_due_tell(ep);
	return r;
}

int pollux_ep_ctl(struct pollux_ep *ep, int op, struct pollux_file *f, int key,
		  const struct epoll_event *ev)
{
	int r = plx_ep_ctl(ep, op, f, key, ev);

	plx_ep_ctl_done(op);
	return r;
}
