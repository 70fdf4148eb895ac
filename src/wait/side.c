/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of the kernel in an epoll of the native API. docs/design.md has the overview ("One
 * wait over own objects and descriptors"). The side comes with the first descriptor, when the epoll
 * is asked for a descriptor itself, or with the first sleep that has a signal mask. Its doorbell is
 * an eventfd that is registered there edge-triggered and never read.
 *
 * Data. The kernel keeps the program's data. A registration may end without a call, with the last
 * descriptor of its file, and may live on when its number means another file: a table of ours would
 * keep dead entries, or mix two up. The doorbell's data are 64 random bits, and who comes with the
 * same for a descriptor gets -EINVAL. A marker that moved away, instead, would still be in the
 * hands of waits that have begun.
 *
 * Lifetime. The side is made once, and goes with the epoll: its epoll of the kernel with the last
 * reference, when nobody waits or makes a change; the doorbell and the memory after the grace
 * period that the epoll itself waits for, as producers may ring until then. Sides that wait for
 * that keep one descriptor each, so who makes one where many wait releases them first.
 *
 * Locking. It is published under the topology lock, as whether the epoll is watched is decided
 * there. ctl_fd, wait and ring take no lock. Whether the timer is needed is decided under the
 * epoll's mutex.
 *
 * Nesting. A watch of the epoll's file hears of the ready list alone, so an epoll that descriptors
 * may be added to is not watched as a file: each of the two calls that would make it so fails, with
 * -EOPNOTSUPP. What is watched is its descriptor, by a ctl_fd of the outer one. Such sides are thus
 * at the top of what is nested by files, so all ways between epolls that lead through a side are
 * the kernel's, and it finds the loops. A side that is there for masks alone has nothing but its
 * doorbell, and is in nobody's way (head.fds).
 *
 * A descriptor for foreign loops is the kernel's epoll itself. It is readable if a descriptor is
 * ready, or if the doorbell's event is there. Who waits on it is a sleeper that never leaves: it is
 * counted as one from then on, so producers ring for it by the same rule, once until the ring has
 * been collected.
 *
 *   Argument. Let an item be on the list, its push returned, and nobody in a wait. Its producer has
 *   rung, or has found a complete ring that was not collected. The event of that is in the kernel
 *   still: who takes it out collects it at once, then looks at the list, and has rung again if
 *   something stayed there (wait.c). Who asks first announces the sleeper, has a full barrier, and
 *   looks at the list. So the descriptor is readable. If nothing is ready, a wait takes the event
 * out and leaves none. A ring that is being made while a wait takes its item makes the descriptor
 *   readable once in vain, and so does an item that becomes unready on the list: the next wait ends
 *   that.
 *
 *   What becomes ready by time (epoll/due.c) is told by a timer of the kernel's, which comes when
 *   somebody has asked for the descriptor and an item has times. It is registered as the doorbell
 *   is, with the same data, and set, with the epoll's mutex held, whenever the first time changes.
 *   So it is the keeper of all times, and no sleeper is. What its event does to the bell is
 *   harmless: rings are collected before the look at the list that follows.
 *
 * Fork. The child has the same epoll of the kernel as its parent, so whatever it did there would be
 * done to the parent. So it does nothing: it has no epoll from before (epoll/fork.c), wakes do not
 * ring, and the child's two numbers stay until it ends or calls exec.
 *
 * Signals. A handler may wake files of it, which rings. All else is not for handlers.
 *
 * The models are tests/model/no_lost_wake.pml (KERNEL: the bell's rule with a doorbell),
 * cache_ring.pml (two items, threads that stop), and side.pml (the first descriptor comes while
 * threads sleep on the futex; the descriptor for foreign loops).
 */
#include "wait/side.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "base/sys.h"

int (*plx_side_registers)(int op, int fd);

/* So many doorbells may wait for a grace period before who makes one waits for it. */
#define DOORBELLS_WAIT 16
static uint32_t doorbells_wait;

static void side_ring(struct pollux_ep *ep)
{
	struct plx_kernel_side *s = plx_side_of(ep);
	uint64_t one = 1;

	PLX_DELAY(side_before_ring);
	if (!plx_file_stale(&ep->file))
		plx_sys3(SYS_write, s->doorbell, &one, sizeof(one));
}

static void side_release(struct pollux_ep *ep)
{
	struct plx_kernel_side *s = plx_side_of(ep);

	plx_sys1(SYS_close, s->epfd);
	plx_xadd(&doorbells_wait, 1);
}

static void side_close(struct plx_kernel_side *s)
{
	if (s->timer >= 0)
		plx_sys1(SYS_close, s->timer);
	if (s->doorbell >= 0)
		plx_sys1(SYS_close, s->doorbell);
	plx_free(s);
}

static void side_free(struct pollux_ep *ep)
{
	struct plx_kernel_side *s = plx_side_of(ep);

	/* Released before a fork: in the child the numbers may mean anything by now. */
	if (plx_file_stale(&ep->file)) {
		plx_free(s);
		return;
	}
	plx_xadd(&doorbells_wait, (uint32_t)-1);
	side_close(s);
}

static int timer_open(struct plx_kernel_side *s)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = s->marker};
	int fd = (int)plx_sys2(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	int r = fd;

	if (fd >= 0)
		r = (int)plx_sys4(SYS_epoll_ctl, s->epfd, EPOLL_CTL_ADD, fd, &ev);
	if (r < 0 && fd >= 0)
		plx_sys1(SYS_close, fd);
	if (r >= 0)
		plx_store(&s->timer, fd);
	return r;
}

/* ep.mtx held: see struct plx_side. */
static int side_due(struct pollux_ep *ep, int64_t due)
{
	struct plx_kernel_side *s = plx_side_of(ep);
	struct timespec at[2] = {{0}};
	int r = 0;

	plx_lockdep_held(&ep->mtx);
	if (!s->asked)
		return 0;
	if (s->timer < 0)
		r = timer_open(s);
	if (r < 0)
		return r;
	/* 0 is none. */
	if (due != PLX_NEVER)
		at[1] = plx_timespec_ns(due + !due);
	plx_sys4(SYS_timerfd_settime, s->timer, TFD_TIMER_ABSTIME, at, 0);
	return 0;
}

/* Two descriptors and the random bits: 0 or a negative errno. */
static int side_open(struct plx_kernel_side *s)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	int r;

	if (plx_sys3(SYS_getrandom, &s->marker, sizeof(s->marker), 0) != sizeof(s->marker))
		return -ENOSYS;
	r = plx_sys1(SYS_epoll_create1, EPOLL_CLOEXEC);
	if (r < 0)
		return r;
	s->epfd = r;
	r = plx_sys2(SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (r >= 0) {
		s->doorbell = r;
		ev.data.u64 = s->marker;
		r = plx_sys4(SYS_epoll_ctl, s->epfd, EPOLL_CTL_ADD, s->doorbell, &ev);
	}
	if (r < 0)
		plx_sys1(SYS_close, s->epfd);
	return r;
}

/* Whoever comes second finds the other's. */
static int side_publish(struct plx_kernel_side *s)
{
	struct pollux_ep *ep = s->ep;
	int r = -EEXIST;

	plx_lock(&plx_wiped.topology_lock, PLX_RANK_TOPOLOGY);
	if (s->head.fds && plx_load(&ep->file.watches)) {
		r = -EOPNOTSUPP;
	} else if (!plx_load(&ep->side)) {
		plx_ep_side_begin(ep, &s->head);
		plx_store_rel(&s->turned, 1);
		r = 0;
	}
	plx_unlock(&plx_wiped.topology_lock, PLX_RANK_TOPOLOGY);
	return r;
}

static int side_make(struct pollux_ep *ep, bool fds)
{
	struct plx_kernel_side *s;
	int r;

	/* Who brings his own sleep cannot sleep in the kernel's wait. */
	if (!plx_ep_on_futex(ep) || (fds && plx_load(&ep->file.watches)))
		return -EOPNOTSUPP;
	if (plx_load(&doorbells_wait) >= DOORBELLS_WAIT)
		plx_retire_drain();
	s = plx_zalloc(sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->head = (struct plx_side){.wait = plx_side_wait,
				    .collect = plx_side_collect,
				    .fds = fds,
				    .ring = side_ring,
				    .release = side_release,
				    .due = side_due,
				    .free = side_free};
	s->ep = ep;
	s->doorbell = s->timer = -1;
	r = side_open(s);
	if (!r) {
		r = side_publish(s);
		if (!r)
			return 0;
		plx_sys1(SYS_close, s->epfd);
	}
	side_close(s);
	return r == -EEXIST ? 0 : r;
}

/* For good: it has descriptors, or else who collects sleeps on it. */
static __attribute__((noinline)) int side_is_for(struct plx_kernel_side *s, bool fds)
{
	bool refused;

	plx_lock(&plx_wiped.topology_lock, PLX_RANK_TOPOLOGY);
	refused = fds ? plx_load(&s->ep->file.watches) || s->collects : s->head.fds;
	if (!refused)
		plx_store_rel(fds ? &s->head.fds : &s->collects, 1);
	plx_unlock(&plx_wiped.topology_lock, PLX_RANK_TOPOLOGY);
	return refused ? -EOPNOTSUPP : 0;
}

int plx_side_collects(struct plx_kernel_side *s)
{
	return plx_likely(plx_load(&s->collects)) ? 0 : side_is_for(s, false);
}

int plx_side_get(struct pollux_ep *ep, bool fds, struct plx_kernel_side **s)
{
	int r = plx_file_own(&ep->file);

	if (!r && plx_unlikely(!plx_load_acq(&ep->side)))
		r = side_make(ep, fds);
	if (r < 0)
		return r;
	*s = plx_side_of(ep);
	plx_side_turn(*s);
	if (fds && plx_unlikely(!plx_load_acq(&(*s)->head.fds)))
		return side_is_for(*s, true);
	return 0;
}

int pollux_ep_ctl_fd(struct pollux_ep *ep, int op, int fd, const struct epoll_event *ev)
{
	struct plx_kernel_side *s;
	struct epoll_event copy = {0};
	int r = plx_side_get(ep, true, &s);

	if (r < 0)
		return r;
	if (op != EPOLL_CTL_DEL) {
		if (!ev)
			return -EFAULT;
		copy = *ev;
		if (plx_unlikely(copy.data.u64 == s->marker))
			return -EINVAL;
	}
	/* For the program these do not exist. */
	if (fd == s->epfd || fd == s->doorbell || (fd >= 0 && fd == plx_load(&s->timer)))
		return -EBADF;
	if (plx_load(&plx_side_registers)) {
		r = plx_load(&plx_side_registers)(op, fd);
		if (r < 0)
			return r;
	}
	/* Partner: who has an event of it. */
	plx_xadd(&s->ctls, 1);
	plx_tsan_before(s);
	PLX_DELAY(side_before_ctl);
	return (int)plx_sys4(SYS_epoll_ctl, s->epfd, op, fd, &copy);
}

/* Somebody is about to wait for the descriptor. */
static __attribute__((noinline)) int side_ask(struct plx_kernel_side *s)
{
	struct pollux_ep *ep = s->ep;
	bool first;
	int r = 0;

	plx_lock(&ep->mtx, PLX_RANK_EP);
	first = !s->asked;
	s->asked = 1;
	if (first && ep->dues_items)
		r = side_due(ep, ep->due);
	if (r < 0)
		s->asked = 0;
	else if (first)
		/* The timer does, for good. */
		(void)plx_xchg(&ep->keeper, INT64_MIN);
	plx_unlock(&ep->mtx, PLX_RANK_EP);
	if (r < 0)
		return r;
	/* Two who ask at once count one. */
	if (first && !plx_ep_announce(ep))
		plx_ep_wake_one(ep);
	return 0;
}

int pollux_ep_fd(struct pollux_ep *ep)
{
	struct plx_kernel_side *s;
	int r = plx_side_get(ep, true, &s);

	if (r < 0)
		return r;
	if (plx_unlikely(!plx_load_acq(&s->asked)))
		r = side_ask(s);
	return r < 0 ? r : s->epfd;
}
