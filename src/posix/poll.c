/* SPDX-License-Identifier: MIT */
/*
 * poll and select over sets that hold in-process eventfds.
 *
 * The kernel sees the set without them (negative numbers are skipped) and with one
 * descriptor more, an eventfd of the calling thread, which the watches that are put
 * on the in-process files ring. An epoll in the set goes to the kernel first: its
 * readiness is the sum of two sides, one of which only the kernel can tell, and an
 * in-process item that is added later would have nobody to tell.
 *
 * The number of the bell. It moves if the program wants it (plx_fd_evict), and a sleep uses it
 * throughout: the kernel's poll looks its descriptors up when it begins, and again whenever it is
 * woken. So a call says what number it is about to sleep on, and whoever has moved the bell waits
 * until nobody sleeps on the old one.
 *
 *   bell.fd        the number; written under plx_hidden_lock
 *   bell.linked    the thread's calls with watches, the innermost first; written by the thread
 *   call.sleeps_on written by the thread; -1 outside of a sleep
 *
 * Argument. A call stores sleeps_on, makes a full barrier, and looks whether fd is still the same.
 * Who moves the bell stores fd, waits for a grace period, which is a full barrier, and looks at
 * sleeps_on. So the call takes the new number, or is seen. One that is seen is rung for, by a
 * number that means the bell as the old one does, until it has left its sleep: it takes the new
 * number for the next. It needs no lock for that. A handler of the program may keep it from
 * leaving, or leave it by a jump, so it is not waited for without end: the kernel's poll does not
 * go on after a handler. Calls of the thread that moves the bell have been interrupted by a
 * handler. They are either over, or have not begun, and get the new number. The model is
 * tests/model/bell.pml.
 */
#include "posix/front.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/key.h"
#include "base/mem.h"
#include "base/sleep.h"
#include "base/spin.h"
#include "base/sys.h"
#include "posix/uaccess.h"

/* The largest set that is looked at where it is, if all of it is ours. */
#define QUICK 8
/* And what select's sets of descriptors may take for it. */
#define QUICK_WORDS 16
/* A set of so many needs no memory. */
#define SMALL 32

/*
 * The timeout of a look that a signal has left to a call: if it finds nothing the call is
 * interrupted, and a select leaves its sets as they are. Nothing else is told this one.
 */
static const struct timespec look_only;

static bool is_look(const struct timespec *timeout)
{
	return timeout && !timeout->tv_sec && !timeout->tv_nsec;
}

struct poll_call;

struct poll_bell {
	/* Hidden; -1 if there is none yet. */
	int fd;
	/* The call of the thread that has watches linked; a handler may make another in it. */
	struct poll_call *linked;
	/* The memory of one that is over, for the next one; the thread's own. */
	struct poll_call *kept;
	/* Of the thread's sleeps in poll and select, whatever their sets (base/spin.h). */
	struct plx_yields yields;
	struct plx_spin_state spin;
};

/* The calling thread's, or NULL. */
static __thread struct poll_bell *poll_bell;
static PLX_START_PAGE struct plx_key bell_key;

struct poll_watch {
	struct plx_watch w;
	struct poll_call *call;
	struct pollux_file *file;
	/* Its place in the set. */
	nfds_t at;
};

/*
 * One piece of memory, not the C library's: a handler that has interrupted malloc may poll.
 *
 * It serves the thread's next call of the same files in the same places, without a grace period,
 * if each watch was the first in its list (plx_watch_unlink). Who has found it as it was then finds
 * nothing that misleads it: call, file and bell of a watch never change (where another file has the
 * same address by now a grace period has passed), a ring too many is heard and found vain, and what
 * was rung for before is looked at when the watches are linked again. Who walks bell.linked may
 * find a call again where it is linked now, with sleeps_on and outer of the time; all that are not
 * over are in the list from there. No list comes round, since a call that is kept goes for good
 * when an outer one is kept.
 */
struct poll_call {
	struct pollfd *user;
	struct pollfd *kernel;
	nfds_t n, nours, nkernel;
	struct poll_bell *bell;
	int sleeps_on;
	/* Its entry among the kernel's: the first of ours, which the kernel does not look at. */
	nfds_t bell_at;
	bool linked;
	/* Its watches have been linked: somebody may have found them. */
	bool found;
	/* For its present files it is not to serve again. */
	bool spent;
	/* Room for so many of ours; so many of them have their files. */
	nfds_t room, filed;
	/* The linked call that this one has interrupted. */
	struct poll_call *outer;
	/* One for each of ours, and behind them what the kernel sees. */
	struct poll_watch watch[];
};

static void bell_thread_exit(void *p)
{
	PLX_INSIDE();
	struct poll_bell *b = p;

	/* A waker may still be about to ring. */
	plx_rcu_synchronize();
	plx_fd_unhide(&b->fd);
	plx_free(b->kept);
	plx_free(b);
	/* What the program does at the end of a thread may come after this. */
	poll_bell = NULL;
}

PLX_START_CODE void plx_poll_init(void)
{
	(void)plx_key(&bell_key, bell_thread_exit);
}

/* Neither of these two is to meet what has taken the bell's number since. */
static void bell_ring(struct poll_bell *b)
{
	const uint64_t one = 1;

	plx_rcu_read_lock();
	plx_sys3(SYS_write, plx_load(&b->fd), &one, sizeof(one));
	plx_rcu_read_unlock();
}

static void bell_silence(struct poll_bell *b)
{
	uint64_t rings;

	plx_rcu_read_lock();
	plx_sys3(SYS_read, plx_load(&b->fd), &rings, sizeof(rings));
	plx_rcu_read_unlock();
}

/* plx_hidden_lock held, the bell has left the number. Whether a call may still sleep on it. */
static bool bell_slept_on(int *owner, int number)
{
	struct poll_bell *b = plx_container_of(owner, struct poll_bell, fd);
	bool asleep = false;

	plx_rcu_read_lock();
	for (struct poll_call *c = plx_load_acq(&b->linked); c; c = plx_load_acq(&c->outer)) {
		if (plx_load_acq(&c->sleeps_on) != number)
			continue;
		if (b == poll_bell) {
			c->kernel[c->bell_at].fd = plx_load(&b->fd);
			plx_store(&c->sleeps_on, plx_load(&b->fd));
		} else {
			asleep = true;
		}
	}
	plx_rcu_read_unlock();
	if (asleep)
		bell_ring(b);
	return asleep;
}

static bool bell_there(void)
{
	return poll_bell && plx_load(&poll_bell->fd) >= 0;
}

static int bell_get(void)
{
	struct poll_bell *b = poll_bell;
	int fd;

	if (bell_there())
		return 0;
	if (!b) {
		b = plx_zalloc(sizeof(*b));
		if (!b)
			return -ENOMEM;
		b->fd = -1;
		poll_bell = b;
		pthread_setspecific(plx_key(&bell_key, bell_thread_exit), b);
	}
	plx_hidden_lock();
	fd = plx_kernel_eventfd(EFD_NONBLOCK | EFD_CLOEXEC);
	/* Where another thread forks, the child has neither this thread nor its sleep. */
	fd = fd < 0 ? -EMFILE : plx_fd_hide_private(fd, &b->fd);
	if (fd >= 0)
		plx_fd_on_leave(&b->fd, bell_slept_on);
	plx_hidden_unlock();
	return fd < 0 ? fd : 0;
}

bool plx_poll_sleeps(void)
{
	return poll_bell && poll_bell->linked;
}

PLX_CHILD_CODE void plx_poll_drop_bell(void)
{
	if (poll_bell)
		plx_fd_unhide(&poll_bell->fd);
}

static void poll_wake(struct plx_watch *w, uint32_t key)
{
	struct poll_watch *p = plx_container_of(w, struct poll_watch, w);

	if (key && !(key & plx_load(&w->events)))
		return;
	/* One ring is enough for a call; the write makes the poller runnable. */
	if (plx_xchg(&p->w.helped, 1) || PLX_INJECTED(lost_wake))
		return;
	plx_stat(PLX_STAT_RINGS);
	plx_stat(PLX_STAT_MADE);
	plx_spin_note_waker(&p->call->bell->spin);
	bell_ring(p->call->bell);
	PLX_DELAY(poll_rung);
}

/* For the next call, in place of what was kept; or to be freed when nobody can find it. */
static void poll_call_keep(struct poll_call *c)
{
	struct poll_call *gone = c;

	if (poll_bell && !c->spent && c->n <= SMALL) {
		gone = poll_bell->kept;
		poll_bell->kept = c;
	}
	if (!gone)
		return;
	if (!gone->found) {
		plx_free(gone);
		return;
	}
	plx_retire(gone, plx_free);
	plx_retire_flush_if_full();
}

/* Also the cleanup of a cancelled call. */
static void poll_call_end(void *p)
{
	struct poll_call *c = p;

	for (nfds_t i = 0; i < c->nours; i++) {
		struct poll_watch *w = &c->watch[i];

		if (c->linked && !plx_watch_unlink(w->file, &w->w))
			c->spent = true;
		pollux_file_put(w->file);
	}
	if (c->linked) {
		c->linked = false;
		plx_store(&c->bell->linked, c->outer);
		/* This call may have taken the other's ring, which looks again now. */
		if (c->outer)
			bell_ring(c->bell);
	}
	poll_call_keep(c);
}

static uint32_t poll_mask(const struct pollfd *p)
{
	return (uint16_t)p->events | POLLERR | POLLHUP;
}

/* What a file that has not gone is ready for. */
static short poll_look(struct pollux_file *f, const struct pollfd *p)
{
	short ready = (short)pollux_file_poll(f, poll_mask(p));

	return PLX_INJECTED(wrong_poll) ? ready ^ POLLIN : ready;
}

/* Fills in what the in-process files are ready for; how many are. */
static int poll_inproc(struct poll_call *c)
{
	int ready = 0;

	for (nfds_t i = 0; i < c->nours; i++) {
		struct poll_watch *w = &c->watch[i];
		struct pollfd *p = &c->user[w->at];

		if (plx_file_gone(w->file))
			continue;
		p->revents = poll_look(w->file, p);
		if (p->revents)
			ready++;
	}
	return ready;
}

/* A file has gone, or its number means something else, which is what the kernel would look at. */
static bool poll_stale(struct poll_call *c)
{
	for (nfds_t i = 0; i < c->nours; i++) {
		struct poll_watch *w = &c->watch[i];

		if (plx_file_gone(w->file) || plx_table_peek(c->user[w->at].fd) != w->file)
			return true;
	}
	return false;
}

/* The table says what the numbers mean then. */
static void poll_await_spill(struct poll_call *c)
{
	for (nfds_t i = 0; i < c->nours; i++)
		if (plx_file_gone(c->watch[i].file))
			plx_spill_wait(c->watch[i].file);
}

/*
 * Takes the ring out, and lets the next one come. What it was for has to be looked for after that:
 * who rings has changed the state before, and so has who finds helped still set.
 */
static void poll_heard(struct poll_call *c)
{
	bell_silence(c->bell);
	for (nfds_t i = 0; i < c->nours; i++)
		plx_store(&c->watch[i].w.helped, 0);
	plx_mb();
}

/*
 * Copies the kernel's answers over, drops the bell's; the number of ready descriptors. What is ours
 * is filled in by poll_inproc.
 */
static int poll_merge(struct poll_call *c, int kernel_ready)
{
	if (c->kernel[c->bell_at].revents) {
		poll_heard(c);
		kernel_ready--;
	}
	for (nfds_t i = 0; i < c->n; i++)
		c->user[i].revents = c->kernel[i].revents;
	return kernel_ready;
}

/*
 * libc's ppoll. A signal that came during this call and has been handled only now
 * interrupts it, unless the call has a mask of its own, which might have held it up.
 */
static int unseen_sleep(struct pollfd *set, nfds_t n, const struct timespec *timeout,
			const sigset_t *sigmask)
{
	static const struct timespec now;
	PLX_OUTSIDE(sleep);
	bool interrupted = sleep.interrupted && !sigmask;
	int r;

	PLX_DELAY(poll_before_sleep);
	r = plx_libc.ppoll(set, n, interrupted ? &now : timeout, sigmask);

	if (r == 0 && interrupted)
		return -EINTR;
	return r < 0 ? -errno : r;
}

/* Without a sleep. The kernel says that it is interrupted only if it finds nothing. */
static int look_kernel(struct pollfd *set, nfds_t n)
{
#ifdef SYS_poll
	/* The other one copies a time in and out. */
	return (int)plx_sys3(SYS_poll, set, n, 0);
#else
	struct timespec now = {0};

	return (int)plx_sys6(SYS_ppoll, (long)set, (long)n, (long)&now, 0, _NSIG / 8, 0);
#endif
}

/* If the sleep is over (plx_sleep_is_over), the call holds nothing any more. */
static int poll_sleep(struct pollfd *set, nfds_t n, const struct timespec *timeout,
		      const sigset_t *sigmask)
{
	struct plx_sleep sleep = {.args = {(long)set, (long)n, 0, (long)sigmask, _NSIG / 8}};
	struct timespec left;

	if (plx_unlikely(!plx_load(&plx_sleeps_seen)))
		return unseen_sleep(set, n, timeout, sigmask);
	/* The kernel writes to it. */
	if (timeout) {
		left = *timeout;
		sleep.args[2] = (long)&left;
	}
	PLX_DELAY(poll_before_sleep);
	return (int)plx_sleep(&sleep, sigmask ? PLX_SLEEP_MASKED : PLX_SLEEP_ENDS, SYS_ppoll);
}

/* Until the kernel's fd is ready for events. 0, a negative errno, or a sleep that is over. */
static int kernel_await(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	struct plx_sleep sleep = {.args = {(long)&p, 1}};
	int r;

	if (plx_likely(plx_load(&plx_sleeps_seen)))
		r = (int)plx_sleep(&sleep, PLX_SLEEP_RESTARTS, SYS_ppoll);
	else
		r = unseen_sleep(&p, 1, NULL, NULL);
	return r > 0 ? 0 : r;
}

static long call_unseen(const int *number, long nr, uint64_t *value)
{
	PLX_OUTSIDE(unseen);

	return plx_sys3(nr, plx_load(number), value, sizeof(*value));
}

long plx_kernel_sleep(const int *number, uint64_t *value, bool write)
{
	long nr = write ? SYS_write : SYS_read;
	bool seen = plx_load(&plx_sleeps_seen);
	long r;

	do {
		struct plx_sleep sleep = {.args = {plx_load(number), (long)value, sizeof(*value)}};

		r = seen ? plx_sleep(&sleep, PLX_SLEEP_RESTARTS, nr) : -EAGAIN;
		if (r != -EAGAIN)
			break;
		r = kernel_await(plx_load(number), write ? POLLOUT : POLLIN);
		if (r)
			break;
		/* Where handlers are seen, none may run but in a sleep: what is held is let go. */
		r = seen ? -EAGAIN : call_unseen(number, nr, value);
	} while (r == -EAGAIN);
	return r < 0 ? r : 0;
}

/* From here to the end of the sleep the number of the bell means nothing else. */
static void poll_say_where(struct poll_call *c)
{
	int fd;

	do {
		fd = plx_load(&c->bell->fd);
		plx_store(&c->sleeps_on, fd);
		c->kernel[c->bell_at].fd = fd;
		plx_mb();
	} while (fd != plx_load(&c->bell->fd));
}

static int poll_kernel(struct poll_call *c, bool block, int64_t deadline, const sigset_t *sigmask)
{
	struct timespec ts = {0}, *tp = &ts;
	int r;

	if (block && deadline < 0) {
		tp = NULL;
	} else if (block) {
		int64_t left = deadline - plx_now_ns();

		if (left < 0)
			left = 0;
		ts.tv_sec = left / PLX_NSEC;
		ts.tv_nsec = left % PLX_NSEC;
	}
	if (!block) {
		if (c->linked)
			c->kernel[c->bell_at].fd = plx_load(&c->bell->fd);
		return look_kernel(c->kernel, c->n);
	}
	poll_say_where(c);
	r = poll_sleep(c->kernel, c->n, tp, sigmask);
	if (!plx_sleep_is_over(r))
		plx_store_rel(&c->sleeps_on, -1);
	return r;
}

static int poll_link(struct poll_call *c)
{
	int r = bell_get();

	if (r < 0)
		return r;
	if (!c->found)
		c->bell = poll_bell;
	plx_store(&c->sleeps_on, -1);
	c->kernel[c->bell_at].events = POLLIN;
	for (nfds_t i = 0; i < c->nours; i++)
		plx_watch_link(c->watch[i].file, &c->watch[i].w);
	c->linked = true;
	c->found = true;
	plx_store_rel(&c->outer, c->bell->linked);
	plx_store_rel(&c->bell->linked, c);
	plx_mb();
	return 0;
}

/* No descriptor for the bell: the kernel's poll needs none. */
static long poll_give_up(struct poll_call *c)
{
	for (nfds_t i = 0; i < c->nours; i++)
		plx_px_escape(c->user[c->watch[i].at].fd, PLX_OUT_NO_FD);
	return PLX_PASS;
}

/*
 * Our side where the kernel had no answer: what its call returned instead, unless there is
 * something on ours. PLX_PASS if an object has gone, which may have been looked at when it was half
 * frozen.
 */
static long poll_left_by(struct poll_call *c, int why)
{
	int n;

	for (nfds_t i = 0; i < c->n; i++)
		c->user[i].revents = 0;
	n = poll_inproc(c);
	if (!poll_stale(c))
		return n ? n : why;
	/* A signal does not wait for the kernel's sleep. */
	return why == -EINTR ? PLX_SLEEP_LOOK : why < 0 ? why : PLX_PASS;
}

/* A mask lets signals in even if the call does not sleep; there is nothing else to tell. */
static long poll_masked_look(struct poll_call *c, const struct timespec *timeout,
			     const sigset_t *sigmask)
{
	int k;

	if (!sigmask || timeout == &look_only)
		return 0;
	k = poll_sleep(c->kernel, c->n, timeout, sigmask);
	if (plx_sleep_is_over(k))
		return k;
	return k > 0 ? poll_merge(c, k) : poll_left_by(c, k);
}

/* Whether a look at ours would find something. */
static bool poll_stirs(void *arg)
{
	const struct poll_call *c = arg;

	for (nfds_t i = 0; i < c->nours; i++) {
		const struct poll_watch *w = &c->watch[i];

		if (plx_file_gone(w->file) || pollux_file_poll(w->file, poll_mask(&c->user[w->at])))
			return true;
	}
	return false;
}

/* Whether poll_spin would not return at once. */
static bool poll_would_spin(void)
{
	struct poll_bell *b = poll_bell;
	enum plx_spin_how how = plx_spin_how(&b->yields, &b->spin);

	plx_spin_not(how);
	return how != PLX_SPIN_NOT;
}

/* A moment before the watches are linked, in which something of ours may come: true if so. */
static bool poll_spin(struct poll_call *c)
{
	struct poll_bell *b = poll_bell;

	PLX_DELAY(poll_spins);
	return plx_spin(&b->yields, &b->spin, poll_stirs, c);
}

/*
 * c->user holds the set (in our memory). Returns what ppoll returns, or PLX_PASS if an
 * object has gone to the kernel: the whole call is the kernel's then.
 *
 * A sleep looks at the kernel's side before it begins and when it ends, so that a call that
 * finds nothing on ours makes no system call but the one in which it sleeps, and reads its bell if
 * that has rung. Only a thread that has no bell yet looks first: it may never need one. So does one
 * that spins, since what the kernel has is not to wait for that. A late ring of a call that is over
 * (poll_wake, when the watch has gone) ends a sleep in vain.
 */
static long poll_run(struct poll_call *c, const struct timespec *timeout, const sigset_t *sigmask)
{
	bool poll_only = is_look(timeout);
	bool ask = c->nkernel && (poll_only || !bell_there()), asked = !c->nkernel;
	bool spun = poll_only || !bell_there();
	uint32_t handlers = plx_inside.handlers, since;
	int64_t deadline = -1;
	int n = 0, k, r;
	long left;

	if (timeout && !poll_only) {
		int64_t now = plx_now_ns();

		if (timeout->tv_sec < (INT64_MAX - now) / PLX_NSEC - 1)
			deadline = now + timeout->tv_sec * PLX_NSEC + timeout->tv_nsec;
	}
	plx_stat(PLX_STAT_POLLS);
	c->kernel[c->bell_at].fd = -1;
	for (;;) {
		/* That side first, which takes the ring out. */
		if (ask) {
			k = poll_kernel(c, false, 0, NULL);
			if (k < 0)
				return poll_left_by(c, k);
			n = poll_merge(c, k);
			asked = true;
		}
		PLX_DELAY(poll_look);
		if (c->linked)
			PLX_DELAY(poll_linked_look);
		k = poll_inproc(c);
		/* Whatever has gone has not been looked at. */
		if (poll_stale(c)) {
			poll_await_spill(c);
			return PLX_PASS;
		}
		ask = k && !asked;
		if (ask)
			continue;
		if (poll_bell)
			plx_spin_brought(&poll_bell->yields, n + k);
		if (n + k)
			return n + k;
		if (poll_only)
			return poll_masked_look(c, timeout, sigmask);
		/* A signal came with a ring for what is over. */
		if (plx_unlikely(handlers != plx_inside.handlers))
			return -EINTR;
		if (!spun) {
			ask = !asked && poll_would_spin();
			if (ask)
				continue;
			spun = true;
			if (asked && poll_spin(c)) {
				ask = c->nkernel;
				asked = !ask;
				continue;
			}
		}
		asked = !c->nkernel;
		if (!c->linked) {
			/* Looked at once more with the watches in place. */
			r = poll_link(c);
			if (r < 0)
				return r == -EMFILE ? poll_give_up(c) : r;
			continue;
		}
		since = plx_spin_sleeps(&poll_bell->spin);
		k = poll_kernel(c, true, deadline, sigmask);
		if (plx_sleep_is_over(k))
			return k;
		plx_spin_slept(&poll_bell->spin, since);
		if (k > 0) {
			n = poll_merge(c, k);
			asked = true;
		} else {
			left = poll_left_by(c, k);
			if (left != PLX_PASS)
				return left;
			n = 0;
		}
	}
}

/* What is kept, if it is for as many; NULL without. */
static struct poll_call *poll_call_kept(nfds_t n, nfds_t room)
{
	struct poll_call *c = poll_bell ? poll_bell->kept : NULL;

	if (!c || c->n != n || c->room != room)
		return NULL;
	poll_bell->kept = NULL;
	c->nours = 0;
	return c;
}

static struct poll_call *poll_call_alloc(nfds_t n, nfds_t room)
{
	struct poll_call *c =
		plx_zalloc(sizeof(*c) + room * sizeof(*c->watch) + n * sizeof(struct pollfd));

	if (!c)
		return NULL;
	c->n = n;
	c->room = room;
	c->kernel = (struct pollfd *)(c->watch + room);
	return c;
}

/* The next of ours, at this place in the set. False if that has been something else before. */
static bool poll_call_add(struct poll_call *c, struct pollux_file *f, nfds_t at, uint32_t mask)
{
	struct poll_watch *w = &c->watch[c->nours];

	if (c->nours == c->filed) {
		w->w.call = poll_wake;
		w->w.place = PLX_WATCH_POLLER;
		w->call = c;
		w->file = f;
		w->at = at;
		c->filed++;
	}
	if (w->file != f || w->at != at)
		return false;
	plx_store(&w->w.events, mask);
	plx_store(&w->w.helped, 0);
	c->kernel[at].fd = -1;
	if (!c->nours++)
		c->bell_at = at;
	return true;
}

/*
 * The call for n descriptors of set, which are in our memory, with room for so many of ours.
 * -ENOMEM without memory; -EAGAIN if there are more of ours by now; -ESTALE if they are not what
 * they were in the call that was kept, which has gone then.
 */
static int poll_call_new(struct poll_call **made, struct pollfd *set, nfds_t n, nfds_t room)
{
	struct poll_call *c = poll_call_kept(n, room);
	int r = 0;

	if (!c)
		c = poll_call_alloc(n, room);
	if (!c)
		return -ENOMEM;
	c->user = set;
	c->nkernel = 0;
	for (nfds_t i = 0; i < n; i++) {
		struct pollux_file *f = set[i].fd < 0 ? NULL : plx_table_get(set[i].fd);

		set[i].revents = 0;
		c->kernel[i] = set[i];
		if (f && (f->kind == PLX_KIND_EPOLL || f->kind == PLX_KIND_TIMER)) {
			pollux_file_put(f);
			plx_px_escape(set[i].fd, PLX_OUT_POLL);
			c->nkernel++;
			continue;
		}
		if (!f) {
			c->nkernel += set[i].fd >= 0;
			/* One of our own does not exist: no descriptor is as high as that. */
			if (set[i].fd >= 0 && plx_fd_hidden(set[i].fd))
				c->kernel[i].fd = INT_MAX;
			continue;
		}
		if (c->nours == room)
			r = -EAGAIN;
		else if (!poll_call_add(c, f, i, poll_mask(&set[i])))
			r = -ESTALE;
		if (r < 0) {
			pollux_file_put(f);
			c->spent = true;
			poll_call_end(c);
			return r;
		}
	}
	*made = c;
	return 0;
}

/* ours: so many of the set are, or a few more. */
static long poll_once(struct pollfd *set, nfds_t n, nfds_t ours, const struct timespec *timeout,
		      const sigset_t *sigmask, bool again)
{
	struct poll_call *c;
	long r = poll_call_new(&c, set, n, ours);

	if (r == -ESTALE)
		r = poll_call_new(&c, set, n, ours);
	if (r == -EAGAIN)
		r = poll_call_new(&c, set, n, n);
	if (r < 0)
		return r;
	r = PLX_PASS;
	PLX_HOLD_PUSH(poll_call_end, c);
	if (c->nours) {
		r = poll_run(c, timeout, sigmask);
	} else if (again) {
		if (is_look(timeout) && !sigmask)
			r = look_kernel(c->kernel, n);
		else
			r = poll_sleep(c->kernel, n, timeout, sigmask);
		for (nfds_t i = 0; r >= 0 && i < n; i++)
			set[i].revents = c->kernel[i].revents;
	}
	PLX_HOLD_POP(1);
	return r;
}

/* Whether timeout is one that passes; when, if so. */
static bool poll_end(const struct timespec *timeout, int64_t *end)
{
	if (!timeout || is_look(timeout) || timeout->tv_sec >= INT64_MAX / PLX_NSEC / 2)
		return false;
	*end = plx_now_ns() + timeout->tv_sec * PLX_NSEC + timeout->tv_nsec;
	return true;
}

/* The time to the end in *left. */
static const struct timespec *poll_left(int64_t end, struct timespec *left)
{
	int64_t ns = end - plx_now_ns();

	left->tv_sec = ns > 0 ? ns / PLX_NSEC : 0;
	left->tv_nsec = ns > 0 ? ns % PLX_NSEC : 0;
	return left;
}

/* A call whose objects go to the kernel goes on for the rest of its time. */
static long poll_set(struct pollfd *set, nfds_t n, const struct timespec *timeout,
		     const sigset_t *sigmask)
{
	struct timespec left;
	/* A look does not go back to where the call began. */
	bool again = timeout == &look_only;
	int64_t end = 0;
	bool timed = poll_end(timeout, &end);

	for (;;) {
		nfds_t ours = 0;
		long r;

		for (nfds_t i = 0; i < n; i++)
			ours += set[i].fd >= 0 && plx_fd_ours(set[i].fd);
		r = poll_once(set, n, ours, timeout, sigmask, again);
		if (r != PLX_PASS || !ours)
			return r;
		again = true;
		if (timed)
			timeout = poll_left(end, &left);
	}
}

/* Whether fd needs more than the kernel's own poll. */
static bool poll_ours(int fd)
{
	struct pollux_file *f;
	bool ours;

	if (plx_likely(!plx_fd_ours(fd)))
		return false;
	if (plx_timer_escape(fd))
		plx_px_spilled(PLX_OUT_POLL, 1);
	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	ours = f && (f->kind != PLX_KIND_EPOLL || !plx_load_acq(&plx_file_front(f)->spilled));
	plx_rcu_read_unlock();
	/* The kernel is asked: it has to have the items of the epoll. */
	if (!ours)
		plx_table_settle();
	return ours;
}

/* Whether a set, in the program's memory, holds anything of ours. */
static bool poll_any_ours(struct pollfd *fds, nfds_t n)
{
	struct pollfd chunk[32];

	for (nfds_t i = 0; i < n; i += 32) {
		nfds_t m = n - i < 32 ? n - i : 32;

		if (plx_copy_in(chunk, fds + i, m * sizeof(*chunk)))
			return false;
		for (nfds_t j = 0; j < m; j++)
			if (chunk[j].fd >= 0 && poll_ours(chunk[j].fd))
				return true;
	}
	return false;
}

/*
 * The program's limit of descriptors is known not to be below one less than this, for a poll of
 * more is an error (poll(2): EINVAL). It is asked for once; that it is lowered is heard of before.
 * 0: it has not been asked for.
 */
static PLX_START_PAGE uint32_t limit_floor;
/* Sets that are larger ask. */
#define LIMIT_ENOUGH 64

static bool limit_get(rlim_t *soft)
{
	struct rlimit lim;

	if (!plx_limit_get(&lim))
		return false;
	*soft = lim.rlim_cur;
	return true;
}

static uint32_t floor_of(rlim_t soft)
{
	return 1 + (soft < LIMIT_ENOUGH ? (uint32_t)soft : LIMIT_ENOUGH);
}

static __attribute__((noinline)) void limit_learn(void)
{
	uint32_t unknown = 0;
	rlim_t soft;

	/* Who lowers it meanwhile has asked, too, and is not overwritten. */
	if (limit_get(&soft))
		(void)plx_cas(&limit_floor, &unknown, floor_of(soft));
}

void plx_poll_limit(rlim_t soft)
{
	uint32_t floor;

	limit_learn();
	floor = plx_load(&limit_floor);
	while (floor_of(soft) < floor && !plx_cas(&limit_floor, &floor, floor_of(soft)))
		;
}

static bool poll_too_many(nfds_t n)
{
	rlim_t soft = 0;

	if (plx_unlikely(!plx_load(&limit_floor)))
		limit_learn();
	if (plx_likely(n < plx_load(&limit_floor)))
		return false;
	/* If the kernel does not tell, all are too many. */
	(void)limit_get(&soft);
	return n > soft;
}

/* RCU section open: what fd means, unless that is no object that is served, or one that leaves. */
static struct pollux_file *quick_file(int fd)
{
	struct pollux_file *f = plx_table_peek(fd);

	return f && f->kind == PLX_KIND_EVENTFD && !plx_file_gone(f) ? f : NULL;
}

/* Asks the kernel about what is its own in the set. False: that has to take the long way. */
static bool quick_kernel(struct pollfd *set, nfds_t n, int *ready)
{
	struct pollfd kernel[QUICK];
	bool all = true;

	plx_rcu_read_lock();
	for (nfds_t i = 0; all && i < n; i++) {
		kernel[i] = set[i];
		if (set[i].fd < 0 || !plx_fd_ours(set[i].fd))
			continue;
		kernel[i].fd = -1;
		all = quick_file(set[i].fd) != NULL;
	}
	plx_rcu_read_unlock();
	if (!all)
		return false;
	*ready = look_kernel(kernel, n);
	for (nfds_t i = 0; i < n; i++) {
		set[i].revents = kernel[i].revents;
		/* From now on it has been looked at. */
		if (kernel[i].fd >= 0)
			set[i].fd = -1;
	}
	return *ready >= 0 || *ready == -EINTR;
}

/*
 * A few files, some of ours, none of which is on its way to the kernel. mixed: the others are the
 * kernel's, whose side comes first; else there are no others. How many are ready, or -EINTR; -1 if
 * there may be more to it, and nothing has happened. The numbers of the kernel's are lost.
 */
static int quick_look(struct pollfd *set, nfds_t n, bool mixed)
{
	nfds_t ours = 0, theirs = 0;
	bool all = true;
	int ready = 0;

	/* Who polls nothing of ours is not made a reader of RCU. */
	for (nfds_t i = 0; i < n; i++) {
		set[i].revents = 0;
		if (set[i].fd >= 0 && plx_fd_ours(set[i].fd))
			ours++;
		else if (set[i].fd >= 0)
			theirs++;
	}
	if (theirs && (!mixed || !ours || !quick_kernel(set, n, &ready)))
		return -1;
	plx_rcu_read_lock();
	for (nfds_t i = 0; all && i < n; i++) {
		struct pollux_file *f;

		if (set[i].fd < 0)
			continue;
		f = quick_file(set[i].fd);
		all = f != NULL;
		if (!all)
			break;
		set[i].revents = poll_look(f, &set[i]);
		if (set[i].revents)
			ready = ready < 0 ? 1 : ready + 1;
		/* What it says after it has gone is not looked at. */
		all = !plx_file_gone(f);
	}
	plx_rcu_read_unlock();
	return all ? ready : -1;
}

/* Whether so many ready files are an answer at once. */
static bool quick_answer(int ready, const struct timespec *timeout)
{
	return ready > 0 || (ready == 0 && is_look(timeout));
}

/* The result of the call, or PLX_PASS if it takes the long way. */
static long poll_quick(struct pollfd *fds, nfds_t n, const struct timespec *timeout)
{
	struct pollfd set[QUICK];
	int ready;

	if (plx_copy_in(set, fds, n * sizeof(*set)))
		return PLX_PASS;
	if (plx_unlikely(poll_too_many(n)))
		return PLX_PASS;
	ready = quick_look(set, n, is_look(timeout));
	if (ready == -EINTR)
		return ready;
	if (!quick_answer(ready, timeout))
		return PLX_PASS;
	for (nfds_t i = 0; i < n; i++)
		if (plx_copy_out(&fds[i].revents, &set[i].revents, sizeof(set[i].revents)))
			return PLX_PASS;
	plx_stat(PLX_STAT_POLLS);
	return ready;
}

static long ppoll_once(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		       const sigset_t *sigmask)
{
	struct pollfd small[SMALL], *set = small;
	long r;

	if (n && n <= QUICK && !sigmask) {
		r = poll_quick(fds, n, timeout);
		if (r != PLX_PASS)
			return r;
	}
	if (!n || (!poll_any_ours(fds, n) && timeout != &look_only))
		return PLX_PASS;
	if (poll_too_many(n))
		return -EINVAL;
	if (n > SMALL)
		set = plx_zalloc(n * sizeof(*set));
	if (!set)
		return -ENOMEM;
	PLX_HOLD_PUSH(plx_free, set == small ? NULL : set);
	if (plx_copy_in(set, fds, n * sizeof(*set)))
		r = -EFAULT;
	else
		r = poll_set(set, n, timeout, sigmask);
	for (nfds_t i = 0; r >= 0 && i < n; i++)
		if (plx_copy_out(&fds[i].revents, &set[i].revents, sizeof(set[i].revents)))
			r = -EFAULT;
	PLX_HOLD_POP(1);
	return r;
}

/*
 * A handler has run in the sleep of a call, and all that it began with may have changed: once(args,
 * timeout) makes it anew. end: when its time is over; 0 if it has none.
 */
static __attribute__((noinline)) long
poll_again(long r, long (*once)(const void *args, const struct timespec *timeout), const void *args,
	   const struct timespec *timeout, int64_t end)
{
	struct timespec left;

	while (r == PLX_SLEEP_ANEW)
		r = once(args, end ? poll_left(end, &left) : timeout);
	if (!plx_sleep_is_over(r))
		return r;
	if (r == PLX_SLEEP_LOOK)
		r = once(args, &look_only);
	/* What the handler has made of the numbers is no error of this call's. */
	return r > 0 || r == -EFAULT ? r : -EINTR;
}

/* Only with a mask may a call sleep again. */
static int64_t masked_end(const struct timespec *timeout, const sigset_t *sigmask)
{
	int64_t end;

	return sigmask && poll_end(timeout, &end) ? end : 0;
}

struct ppoll_args {
	struct pollfd *fds;
	nfds_t n;
	const sigset_t *sigmask;
};

static long ppoll_call(const void *args, const struct timespec *timeout)
{
	const struct ppoll_args *a = args;

	return ppoll_once(a->fds, a->n, timeout, a->sigmask);
}

/* Where a signal ends a poll, nothing was ready, and the kernel says so of each. */
static __attribute__((noinline)) long ppoll_interrupted(struct pollfd *fds, nfds_t n)
{
	const short none = 0;

	for (nfds_t i = 0; i < n; i++)
		if (plx_copy_out(&fds[i].revents, &none, sizeof(none)))
			return -EFAULT;
	return -EINTR;
}

long plx_px_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		  const sigset_t *sigmask)
{
	PLX_INSIDE();
	/* The kernel takes no more of it. */
	const unsigned int count = (unsigned int)n;
	struct ppoll_args args = {.fds = fds, .n = count, .sigmask = sigmask};
	int64_t end = masked_end(timeout, sigmask);
	long r = ppoll_once(fds, count, timeout, sigmask);

	if (plx_sleep_is_over(r))
		r = poll_again(r, ppoll_call, &args, timeout, end);
	return plx_unlikely(r == -EINTR) ? ppoll_interrupted(fds, count) : r;
}

uint16_t plx_px_ready(int fd, uint16_t events)
{
	static const struct timespec now;
	struct pollfd p = {.fd = fd, .events = (short)events};
	long r = plx_px_ppoll(&p, 1, &now, NULL);

	if (r == PLX_PASS)
		r = look_kernel(&p, 1);
	return r == 1 && !(p.revents & POLLNVAL) ? (uint16_t)p.revents : 0;
}

/* What select means by its three sets, in poll's terms. */
#define SELECT_READ (POLLRDNORM | POLLRDBAND | POLLIN | POLLHUP | POLLERR)
#define SELECT_WRITE (POLLWRBAND | POLLWRNORM | POLLOUT | POLLERR)
#define SELECT_EXCEPT POLLPRI

#define SET_WORD (8 * sizeof(long))

struct select_sets {
	fd_set *user[3];
	unsigned long *in[3];
	size_t bytes;
	/* For sets that are as small as that. */
	unsigned long (*small)[QUICK_WORDS];
};

static const short select_events[3] = {SELECT_READ, SELECT_WRITE, SELECT_EXCEPT};

/* Copies the set k in; what is above the last descriptor is neither looked at nor left set. */
static long select_fetch(struct select_sets *s, int k, int n)
{
	long r = plx_copy_in(s->in[k], s->user[k], s->bytes);

	if (!r && n % SET_WORD)
		s->in[k][n / SET_WORD] &= (1ul << (n % SET_WORD)) - 1;
	return r;
}

/* The descriptors that are in any of the sets; how many, or -1 if there are more than room. */
static int select_gather(const struct select_sets *s, struct pollfd *set, int room)
{
	int count = 0;

	for (size_t w = 0; w < s->bytes / sizeof(long); w++) {
		unsigned long any = 0;

		for (int k = 0; k < 3; k++)
			any |= s->in[k] ? s->in[k][w] : 0;
		for (; any; any &= any - 1) {
			int bit = __builtin_ctzl(any);

			if (count == room)
				return -1;
			set[count] = (struct pollfd){.fd = (int)(w * SET_WORD) + bit};
			for (int k = 0; k < 3; k++)
				if (s->in[k] && (s->in[k][w] >> bit) & 1)
					set[count].events |= select_events[k];
			count++;
		}
	}
	return count;
}

/* Whether the entry of a set is ready for what the set k asks; k has it. */
static bool select_ready(const struct pollfd *entry, int k)
{
	return entry->revents & (select_events[k] | POLLNVAL);
}

static bool select_has(const struct select_sets *s, int k, int fd)
{
	return s->in[k] && (s->in[k][fd / SET_WORD] >> (fd % SET_WORD)) & 1;
}

/* How many bits are set in the results. */
static long select_bits(const struct select_sets *s, const struct pollfd *set, int n)
{
	long bits = 0;

	for (int i = 0; i < n; i++)
		for (int k = 0; k < 3; k++)
			bits += select_has(s, k, set[i].fd) && select_ready(&set[i], k);
	return bits;
}

/* Writes the results back; how many bits are set, or -EFAULT. */
static long select_store(struct select_sets *s, const struct pollfd *set, int n, long bits)
{
	for (int k = 0; k < 3; k++) {
		if (!s->in[k])
			continue;
		for (int i = 0; i < n; i++) {
			int fd = set[i].fd;

			if (!select_ready(&set[i], k))
				s->in[k][fd / SET_WORD] &= ~(1ul << (fd % SET_WORD));
		}
		if (plx_copy_out(s->user[k], s->in[k], s->bytes))
			return -EFAULT;
	}
	return bits;
}

/* Whether there is anything of ours in the sets. */
static bool select_any_ours(const struct select_sets *s)
{
	for (size_t w = 0; w < s->bytes / sizeof(long); w++) {
		unsigned long any = 0;

		for (int k = 0; k < 3; k++)
			any |= s->in[k] ? s->in[k][w] : 0;
		for (; any; any &= any - 1)
			if (plx_fd_ours((int)(w * SET_WORD) + __builtin_ctzl(any)))
				return true;
	}
	return false;
}

/* As poll_quick. ours: whether there is anything of ours in the sets. */
static long select_quick(fd_set *const user[3], int n, size_t bytes, const struct timespec *timeout,
			 bool *ours)
{
	unsigned long in[3][QUICK_WORDS];
	struct select_sets s = {.user = {user[0], user[1], user[2]}, .bytes = bytes};
	struct pollfd set[QUICK];
	int count, ready;
	long bits;

	for (int k = 0; k < 3; k++) {
		s.in[k] = user[k] ? in[k] : NULL;
		if (user[k] && select_fetch(&s, k, n))
			return PLX_PASS;
	}
	*ours = select_any_ours(&s);
	if (!*ours)
		return PLX_PASS;
	count = select_gather(&s, set, QUICK);
	if (count <= 0)
		return PLX_PASS;
	ready = quick_look(set, count, false);
	bits = ready > 0 ? select_bits(&s, set, count) : 0;
	/* What is ready in a way that is not asked for is left to the long way. */
	if (!quick_answer(ready, timeout) || !bits != !ready)
		return PLX_PASS;
	plx_stat(PLX_STAT_POLLS);
	return bits || timeout != &look_only ? select_store(&s, set, count, bits) : 0;
}

/* What is open and cannot be polled (O_PATH) is ready in all ways, says select. */
static bool select_closed(int fd)
{
	return plx_fd_hidden(fd) || plx_sys2(SYS_fcntl, fd, F_GETFD) < 0;
}

/*
 * The kernel's select fails for a number that is not open before it looks at any file, where a poll
 * looks at all. A look at an epoll changes it: items that have become unready lose their places. So
 * with an epoll in the set the numbers are looked at first.
 */
static long select_check(const struct pollfd *set, int n)
{
	bool looks_change = false;

	plx_rcu_read_lock();
	for (int i = 0; i < n && !looks_change; i++) {
		const struct pollux_file *f = plx_table_peek(set[i].fd);

		looks_change = f && f->kind == PLX_KIND_EPOLL;
	}
	plx_rcu_read_unlock();
	for (int i = 0; i < n && looks_change; i++)
		if (select_closed(set[i].fd))
			return -EBADF;
	return 0;
}

/* A select that sleeps in the kernel, on the program's own sets. */
static long select_kernel(struct select_sets *s, int n, const struct timespec *timeout,
			  const sigset_t *sigmask)
{
	const struct {
		const sigset_t *mask;
		size_t size;
	} masked = {sigmask, _NSIG / 8};
	struct plx_sleep sleep = {.args = {n, (long)s->user[0], (long)s->user[1], (long)s->user[2],
					   0, (long)&masked}};
	struct timespec left;

	if (plx_unlikely(!plx_load(&plx_sleeps_seen))) {
		PLX_OUTSIDE(sleep_unseen);
		int r;

		/* As in unseen_sleep; but then its sets stay. */
		if (sleep_unseen.interrupted && !sigmask)
			return -EINTR;
		r = plx_libc.pselect(n, s->user[0], s->user[1], s->user[2], timeout, sigmask);
		return r < 0 ? -errno : r;
	}
	/* The kernel writes to it. */
	if (timeout) {
		left = *timeout;
		sleep.args[4] = (long)&left;
	}
	return plx_sleep(&sleep, sigmask ? PLX_SLEEP_MASKED : PLX_SLEEP_ENDS, SYS_pselect6);
}

static long select_run(struct select_sets *s, int n, const struct timespec *timeout,
		       const sigset_t *sigmask)
{
	struct timespec left;
	int64_t end;
	bool timed = poll_end(timeout, &end);
	struct pollfd small[SMALL], *set = small;
	int count = select_gather(s, small, SMALL);
	bool ours = false;
	long r, bits;

	if (count < 0) {
		set = plx_zalloc(n * sizeof(*set));
		if (!set)
			return -ENOMEM;
		count = select_gather(s, set, n);
	}
	/* Open as it begins: if closed in its sleep it is ready, no error. */
	for (int i = 0; i < count; i++)
		if (poll_ours(set[i].fd))
			set[i].events |= POLLNVAL;
	for (int i = 0; i < count; i++)
		ours |= set[i].events & POLLNVAL;
	ours |= timeout == &look_only;
	/* The kernel's select does not mind a limit that has come down since, poll does. */
	if (ours && poll_too_many(count)) {
		for (int i = 0; i < count; i++)
			plx_px_escape(set[i].fd, PLX_OUT_POLL);
		ours = false;
	}
	PLX_HOLD_PUSH(plx_free, set == small ? NULL : set);
	r = ours ? select_check(set, count) : PLX_PASS;
	if (!r)
		r = poll_set(set, count, timeout, sigmask);
	for (int i = 0; r >= 0 && i < count; i++)
		if (set[i].revents & ~set[i].events & POLLNVAL && select_closed(set[i].fd))
			r = -EBADF;
	bits = r > 0 ? select_bits(s, set, count) : 0;
	if (r > 0 && !bits && (!is_look(timeout) || (sigmask && timeout != &look_only))) {
		/*
		 * A poll tells of hang-ups and errors that are not asked for, a select sleeps on.
		 * So does the kernel's.
		 */
		for (int i = 0; i < count; i++)
			plx_px_escape(set[i].fd, PLX_OUT_POLL);
		r = select_kernel(s, n, timed ? poll_left(end, &left) : timeout, sigmask);
	} else if (r >= 0) {
		/* The sets of a select that is interrupted stay as they are. */
		r = bits || timeout != &look_only ? select_store(s, set, count, bits) : 0;
	}
	PLX_HOLD_POP(1);
	return r;
}

static void select_free(void *p)
{
	struct select_sets *s = p;

	for (int k = 0; k < 3; k++)
		if (s->in[k] != s->small[k])
			plx_free(s->in[k]);
}

static long pselect_once(int n, fd_set *rd, fd_set *wr, fd_set *ex, const struct timespec *timeout,
			 const sigset_t *sigmask)
{
	unsigned long small[3][QUICK_WORDS];
	struct select_sets s = {.user = {rd, wr, ex}, .small = small};
	bool fault = false, ours = true;
	long r = PLX_PASS;

	if (n <= 0)
		return PLX_PASS;
	s.bytes = (n + SET_WORD - 1) / SET_WORD * sizeof(long);
	if (s.bytes <= QUICK_WORDS * sizeof(long) && !sigmask) {
		r = select_quick(s.user, n, s.bytes, timeout, &ours);
		if (r != PLX_PASS || (!ours && timeout != &look_only))
			return r;
	}
	PLX_HOLD_PUSH(select_free, &s);
	for (int k = 0; k < 3 && !fault; k++) {
		if (!s.user[k])
			continue;
		s.in[k] = s.bytes <= sizeof(small[k]) ? small[k] : plx_zalloc(s.bytes);
		if (!s.in[k])
			r = -ENOMEM;
		fault = !s.in[k] || select_fetch(&s, k, n);
	}
	if (!fault)
		r = select_run(&s, n, timeout, sigmask);
	PLX_HOLD_POP(1);
	return r;
}

struct pselect_args {
	int n;
	fd_set **sets;
	const sigset_t *sigmask;
};

static long pselect_call(const void *args, const struct timespec *timeout)
{
	const struct pselect_args *a = args;

	return pselect_once(a->n, a->sets[0], a->sets[1], a->sets[2], timeout, a->sigmask);
}

/* The word of a set of which n bits count. */
static bool word_has_ours(unsigned long bits, size_t word, int n)
{
	int first = (int)(word * SET_WORD);

	if (n - first < (int)SET_WORD)
		bits &= (1ul << (n - first)) - 1;
	for (; bits; bits &= bits - 1)
		if (plx_fd_ours(first + __builtin_ctzl(bits)))
			return true;
	return false;
}

bool plx_px_select_ours(int n, const fd_set *rd, const fd_set *wr, const fd_set *ex)
{
	const fd_set *given[3] = {rd, wr, ex};
	size_t words = n > 0 ? (n + SET_WORD - 1) / SET_WORD : 0;

	for (size_t first = 0; first < words; first += QUICK_WORDS) {
		size_t more = words - first < QUICK_WORDS ? words - first : QUICK_WORDS;

		for (int k = 0; k < 3; k++) {
			unsigned long in[QUICK_WORDS];

			if (!given[k])
				continue;
			if (plx_copy_in(in, (const long *)given[k] + first, more * sizeof(*in)))
				return false;
			for (size_t w = 0; w < more; w++)
				if (in[w] && word_has_ours(in[w], first + w, n))
					return true;
		}
	}
	return false;
}

/* The highest number that is the program's; -1 if that cannot be found out. */
static int highest_number(void)
{
	struct entry {
		uint64_t ino;
		int64_t off;
		unsigned short size;
		unsigned char type;
		char name[];
	};
	_Alignas(struct entry) char room[2048];
	/* No handler may leave by a jump while the folder is open. */
	PLX_INSIDE();
	long dir = plx_sys4(SYS_openat, AT_FDCWD, "/proc/self/fd",
			    O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0),
	     got;
	int top = -1;

	if (dir < 0)
		return -1;
	while ((got = plx_sys3(SYS_getdents64, dir, room, sizeof(room))) > 0) {
		const struct entry *e;

		for (long at = 0; at < got; at += e->size) {
			int fd = 0;

			e = (const struct entry *)(room + at);
			for (const char *p = e->name; *p >= '0' && *p <= '9'; p++)
				fd = fd * 10 + *p - '0';
			if (fd > top && fd != dir && !plx_fd_hidden(fd))
				top = fd;
		}
	}
	plx_sys1(SYS_close, dir);
	return top;
}

/* The kernel's table has as many entries as the least power of two above the highest number. */
int plx_px_select_numbers(int n)
{
	int64_t size = 64;
	int top;

	if (plx_likely(n <= FD_SETSIZE))
		return n;
	top = highest_number();
	while (size <= top)
		size *= 2;
	return top < 0 || n < size ? n : (int)size;
}

long plx_px_pselect(int n, fd_set *rd, fd_set *wr, fd_set *ex, const struct timespec *timeout,
		    const sigset_t *sigmask)
{
	PLX_INSIDE();
	struct pselect_args args = {.n = n, .sets = (fd_set *[]){rd, wr, ex}, .sigmask = sigmask};
	int64_t end = masked_end(timeout, sigmask);
	long r = pselect_once(n, rd, wr, ex, timeout, sigmask);

	return plx_sleep_is_over(r) ? poll_again(r, pselect_call, &args, timeout, end) : r;
}
