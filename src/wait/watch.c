/* SPDX-License-Identifier: MIT */
/*
 * Watches that call a function.
 *
 *   callback.calls  atomic; bit 31: GONE, set once by who unlinks it; below that, how many calls
 *                   have begun and not ended
 *   all else        constant while it is linked
 *
 * Argument. A waker counts its call by a compare-and-swap that fails if GONE is set, and who
 * removes the watch sets GONE by a read-modify-write of the same word. So a call was counted before
 * that, or does not begin. One that ends takes itself out with a release, and who reads the count
 * acquires. A waker may have found the watch before it left the list, and stand on it for as long
 * as it likes: so the memory stays for a grace period, and so does the link to the next watch, by
 * which such a waker goes on. The model is tests/model/watch.pml.
 *
 * In the child of a fork those who were in a call are not there, and the file is to forget the
 * watch (epoll/fork.c), or has.
 */
#include "wait/watch.h"

#define GONE (1u << 31)

static void called(struct plx_watch *w, uint32_t key)
{
	struct plx_callback *c = plx_container_of(w, struct plx_callback, w);
	uint32_t n = plx_load(&c->calls);

	if ((key && !(key & w->events)) || plx_file_stale(c->file))
		return;
	PLX_DELAY(watch_before_count);
	do {
		if (n & GONE)
			return;
	} while (!plx_cas(&c->calls, &n, n + 1));
	PLX_DELAY(watch_before_call);
	c->fn((struct pollux_watch *)c, c->file, key);
	PLX_DELAY(watch_after_call);
	plx_tsan_before(c);
	plx_xadd(&c->calls, (uint32_t)-1);
}

bool plx_file_tells_all(struct pollux_file *f)
{
	struct plx_side *side;

	if (plx_likely(f->kind != PLX_KIND_EPOLL))
		return true;
	side = plx_load_acq(&plx_file_ep(f)->side);
	return !side || !plx_load(&side->fds);
}

int plx_callback_link(struct plx_callback *c, struct pollux_file *f, uint32_t events,
		      pollux_watch_fn fn)
{
	bool is_ep = f->kind == PLX_KIND_EPOLL;
	int r;

	if (!plx_file_tryget(f))
		return -EBADF;
	r = plx_file_own(f);
	*c = (struct plx_callback){.file = f, .fn = fn, .born = plx_load(&f->born)};
	c->w.call = called;
	c->w.events = events | EPOLLERR | EPOLLHUP;
	c->w.place = PLX_WATCH_POLLER;
	/* Whether an epoll is watched, or has descriptors, is decided there. */
	if (is_ep)
		plx_lock(&plx_wiped.topology_lock, PLX_RANK_TOPOLOGY);
	if (plx_likely(!r && plx_file_tells_all(f)))
		plx_watch_link(f, &c->w);
	else if (!r)
		r = -EOPNOTSUPP;
	if (is_ep)
		plx_unlock(&plx_wiped.topology_lock, PLX_RANK_TOPOLOGY);
	if (r)
		pollux_file_put(f);
	return r;
}

void plx_callback_unlink(struct plx_callback *c)
{
	(void)plx_file_own(c->file);
	if (plx_likely(!plx_born_before(c->born)))
		plx_watch_unlink(c->file, &c->w);
	PLX_DELAY(watch_before_gone);
	(void)plx_or(&c->calls, GONE);
}

bool plx_callback_runs(struct plx_callback *c)
{
	return plx_load_acq(&c->calls) != GONE;
}

int pollux_watch_add(struct pollux_watch *w, struct pollux_file *f, uint32_t events,
		     pollux_watch_fn fn)
{
	uint32_t mask;
	int r;

	plx_rcu_begin();
	events &= ~PLX_EP_FLAGS;
	r = plx_callback_link((struct plx_callback *)w, f, events, fn);
	if (r)
		return r;
	/* Partner: pollux_file_wake. */
	plx_mb();
	PLX_DELAY(watch_before_poll);
	mask = pollux_file_poll(f, events);
	if (mask)
		plx_tsan_after(f);
	return (int)mask;
}

int pollux_watch_del(struct pollux_watch *w)
{
	struct plx_callback *c = (struct plx_callback *)w;
	bool linked = !(plx_load(&c->calls) & GONE), runs;

	if (plx_born_before(c->born))
		plx_store(&c->calls, c->calls & GONE);
	if (linked)
		plx_callback_unlink(c);
	runs = plx_callback_runs(c);
	if (!runs)
		plx_tsan_after(c);
	if (linked)
		pollux_file_put(c->file);
	return runs;
}

void pollux_watch_del_sync(struct pollux_watch *w)
{
	PLX_INVARIANT(!plx_rcu_inside(), "pollux_watch_del_sync is not called in a read section, "
					 "nor in a call of a watch");
	pollux_watch_del(w);
	plx_rcu_synchronize();
	plx_tsan_after(w);
}
