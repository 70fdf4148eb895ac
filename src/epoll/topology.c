/* SPDX-License-Identifier: MIT */
/*
 * The shape of nested epolls: no loops, at most five levels, and a limit on the
 * number of paths from a file up to the epolls that nobody watches.
 *
 * All of it runs under the topology lock, together with the insertion it is
 * about, so that two ADDs cannot each pass a check that both together fail
 * (EP-NEST-08). Removals do not take the lock: they only shorten paths.
 *
 * Downwards, the mutexes of epolls are taken from the outside in. Upwards, lists
 * of watches are read under RCU.
 */
#include "epoll/engine.h"

#define LOOP 1000

uint64_t plx_topology_gen = 1;

/* Paths of n + 1 epolls allowed for one file; those of one epoll have no limit. */
static const unsigned int path_limits[PLX_EP_MAX_DEPTH] = {0, 500, 100, 50, 10};

/* Epolls on the longest chain that hangs below ep, ep included; LOOP if it meets stop. */
static int depth_below(struct pollux_ep *ep, struct pollux_ep *stop, int level)
{
	int deepest = 0;

	if (ep == stop)
		return LOOP;
	if (level > PLX_EP_MAX_DEPTH)
		return level;
	plx_lock(&ep->mtx, PLX_RANK_EP);
	if (ep->visit_gen == plx_topology_gen) {
		deepest = ep->visit_depth;
		plx_unlock(&ep->mtx, PLX_RANK_EP);
		return deepest;
	}
	for (struct plx_list *l = ep->items.next; l != &ep->items; l = l->next) {
		struct pollux_file *f = plx_all_item(l)->file;
		int d;

		if (f->kind != PLX_KIND_EPOLL)
			continue;
		d = depth_below(plx_file_ep(f), stop, level + 1);
		if (d > deepest)
			deepest = d;
		if (deepest >= LOOP)
			break;
	}
	plx_store(&ep->visit_gen, plx_topology_gen);
	ep->visit_depth = deepest >= LOOP ? LOOP : deepest + 1;
	deepest = ep->visit_depth;
	plx_unlock(&ep->mtx, PLX_RANK_EP);
	return deepest;
}

/* Epolls on the longest chain above f's epoll, itself included. */
static int depth_above(struct pollux_file *f, int level)
{
	int highest = 0;

	if (level > PLX_EP_MAX_DEPTH)
		return level;
	for (struct plx_watch *w = plx_load_acq(&f->watches); w; w = plx_load_acq(&w->next)) {
		struct pollux_ep *above;
		int d;

		if (!plx_watch_is_item(w))
			continue;
		above = plx_watch_item(w)->ep;
		if (above->visit_gen == plx_topology_gen) {
			d = above->visit_depth;
		} else {
			d = depth_above(&above->file, level + 1);
			plx_store(&above->visit_gen, plx_topology_gen);
			above->visit_depth = d;
		}
		if (d > highest)
			highest = d;
	}
	return highest + 1;
}

int plx_topology_check(struct pollux_ep *ep, struct pollux_ep *target)
{
	int below = depth_below(target, ep, 1);
	int above;

	if (below > PLX_EP_MAX_DEPTH)
		return -ELOOP;
	plx_store(&plx_topology_gen, plx_topology_gen + 1);
	plx_rcu_read_lock();
	above = depth_above(&ep->file, 1);
	plx_rcu_read_unlock();
	return below + above > PLX_EP_MAX_DEPTH ? -ELOOP : 0;
}

/* Whether another epoll watches ep. A thread that polls it ends no path (EP-PATH-01). */
static bool ep_nested(struct pollux_ep *ep)
{
	for (struct plx_watch *w = plx_load_acq(&ep->file.watches); w; w = plx_load_acq(&w->next))
		if (plx_watch_is_item(w))
			return true;
	return false;
}

static int paths_above(struct pollux_file *f, int depth, unsigned int *count)
{
	if (depth >= PLX_EP_MAX_DEPTH)
		return -EINVAL;
	for (struct plx_watch *w = plx_load_acq(&f->watches); w; w = plx_load_acq(&w->next)) {
		struct pollux_ep *above;

		if (!plx_watch_is_item(w))
			continue;
		above = plx_watch_item(w)->ep;
		if (ep_nested(above)) {
			if (paths_above(&above->file, depth + 1, count) < 0)
				return -EINVAL;
		} else if (depth && ++count[depth] > path_limits[depth]) {
			return -EINVAL;
		}
	}
	return 0;
}

static int paths_of_file(struct pollux_file *f)
{
	unsigned int count[PLX_EP_MAX_DEPTH] = {0};
	int r;

	plx_rcu_read_lock();
	r = paths_above(f, 0, count);
	plx_rcu_read_unlock();
	return r;
}

static int paths_below(struct pollux_ep *ep)
{
	int r = 0;

	plx_lock(&ep->mtx, PLX_RANK_EP);
	if (ep->visit_gen != plx_topology_gen) {
		plx_store(&ep->visit_gen, plx_topology_gen);
		for (struct plx_list *l = ep->items.next; !r && l != &ep->items; l = l->next) {
			struct pollux_file *f = plx_all_item(l)->file;

			r = f->kind == PLX_KIND_EPOLL ? paths_below(plx_file_ep(f))
						      : paths_of_file(f);
		}
	}
	plx_unlock(&ep->mtx, PLX_RANK_EP);
	return r;
}

int plx_topology_paths(struct pollux_file *f)
{
	if (f->kind != PLX_KIND_EPOLL)
		return paths_of_file(f);
	plx_store(&plx_topology_gen, plx_topology_gen + 1);
	return paths_below(plx_file_ep(f));
}
