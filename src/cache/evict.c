/* SPDX-License-Identifier: MIT */
/*
 * Objects become the kernel's for good. The kernel's object is under the number, and registered
 * where it is watched, from the beginning; it lacks what is cached. What leads here is in escape.c
 * and fork.c.
 *
 *   eventfd  flushed (eventfd.h)
 *   timer    the kernel is told its setting (timer.c)
 *   epoll    nobody rings its doorbell any more, and what it watches leaves, too
 *
 * The kernel makes an event when it is given a count, by the registration that the program has made
 * itself. So an event is never lost. One that is edge-triggered and has been collected comes once
 * more, if the count has not been read. It takes neither memory nor a descriptor.
 */
#include "cache/evict.h"

#include "base/inside.h"
#include "base/sys.h"

/* The entry stays for a request of AIO that finds by it that the number is still its own. */
static int eventfd_leaves(struct plx_eventfd *e)
{
	struct pollux_file **slot = plx_table_slot(e->number), *mine = &e->file;
	bool was_in = plx_eventfd_in(mine);
	bool flushed = plx_eventfd_flush(e, PLX_EVENTFD_LEAVES);

	plx_eventfd_for_good(e);
	if (!flushed)
		return 0;
	/* Partner: plx_eventfd_get. */
	plx_mb();
	if (!plx_load(&e->told) && plx_cas(slot, &mine, NULL))
		plx_file_put_locked(&e->file);
	return was_in;
}

/* Under RCU. */
static bool watched_by(struct pollux_file *f, const struct pollux_ep *ep)
{
	PLX_EACH_WATCH (w, f)
		if (plx_watch_item(w)->ep == ep)
			return true;
	return false;
}

/* What has not left for good: what is COLD may be cached when the epoll has no number any more. */
static bool eventfd_stays(struct pollux_file *f)
{
	return f->kind == PLX_KIND_EVENTFD &&
	       (plx_eventfd_in(f) || plx_eventfd_cold_word(plx_load_acq(&f->word)));
}

/* The eventfd at fd that ep watches, with a reference, or NULL. */
static struct plx_eventfd *watched_at(int fd, const struct pollux_ep *ep)
{
	struct pollux_file *f;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (f && (!eventfd_stays(f) || !watched_by(f, ep) || !pollux_file_tryget(f)))
		f = NULL;
	plx_rcu_read_unlock();
	return f ? plx_file_eventfd(f) : NULL;
}

static int any_stays(void *arg, struct pollux_file *f, int key, const struct epoll_event *ev)
{
	(void)arg;
	(void)key;
	(void)ev;
	return eventfd_stays(f);
}

/* Waits look at both sides until the kernel has all counts. */
static int items_leave(struct plx_epoll *pe)
{
	int n = 0;

	if (!pollux_ep_for_each(pe->ep, any_stays, NULL))
		return 0;
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct plx_eventfd *e = watched_at(fd, pe->ep);

		if (!e)
			continue;
		n += eventfd_leaves(e);
		plx_file_put_locked(&e->file);
	}
	return n;
}

/* Who has registered one meanwhile looks at `evicted` afterwards. All of it is done by each of two.
 */
static int epoll_leaves(struct plx_epoll *pe)
{
	uint32_t not = PLX_EVICTED_NOT;
	int n;

	if (plx_epoll_evicted(pe))
		return 0;
	plx_epoll_files(pe);
	(void)plx_cas(&pe->evicted, &not, PLX_EVICTED_BEGUN);
	/* Partners: mark_epoll in timer.c; setup_over and ctl_both in epoll.c; plx_eventfd_adopt.
	 */
	plx_mb();
	plx_epoll_unbell(pe);
	plx_timers_leave(pe);
	PLX_DELAY(evict_epoll);
	n = items_leave(pe);
	plx_store_rel(&pe->evicted, PLX_EVICTED_DONE);
	return n;
}

void plx_evict_file(struct pollux_file *f, int fd, enum plx_way_out why)
{
	int n = 0;

	if (f->kind == PLX_KIND_EVENTFD)
		n = eventfd_leaves(plx_file_eventfd(f));
	else if (f->kind == PLX_KIND_TIMER)
		n = plx_timer_escape(fd);
	else if (f->kind == PLX_KIND_EPOLL)
		n = epoll_leaves(plx_file_epoll(f));
	if (n)
		plx_px_evicted(why, n);
}

static bool in_process(int fd, bool epoll)
{
	struct pollux_file *f;
	bool is;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (epoll)
		is = f && f->kind == PLX_KIND_EPOLL && !plx_epoll_evicted(plx_file_epoll(f));
	else
		is = f && (f->kind == PLX_KIND_TIMER || eventfd_stays(f));
	plx_rcu_read_unlock();
	return is;
}

bool plx_fd_in_process(int fd)
{
	return in_process(fd, false) || in_process(fd, true);
}

/* The epolls after what they watch, or each would go through the table. */
void plx_evict_table(bool (*want)(int fd), enum plx_way_out why)
{
	for (int epolls = 0; epolls < 2; epolls++) {
		for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
			struct pollux_file *f;

			/* A reference is a write, which a fork pays for. */
			if (!in_process(fd, epolls) || !(f = plx_table_get(fd)))
				continue;
			if ((!want || want(fd)) && !PLX_INJECTED(lost_eviction))
				plx_evict_file(f, fd, why);
			plx_file_put_locked(f);
		}
	}
}

int plx_px_fd_served(int fd)
{
	PLX_INSIDE();
	struct pollux_file *f = plx_table_get(fd);
	int served = 0;

	if (f) {
		served = (f->kind == PLX_KIND_EVENTFD && plx_eventfd_served(f)) ||
			 (f->kind == PLX_KIND_EPOLL && !plx_load_acq(&plx_file_epoll(f)->evicted));
		pollux_file_put(f);
	}
	return served;
}
