/* SPDX-License-Identifier: MIT */
/*
 * One wait over own objects and descriptors of the kernel.
 *
 * A wait that finds something on the ready list makes one look: at the kernel's side, by a wait of
 * its own that does not sleep, and then at the list. Any other announces itself, looks at the list
 * once more, and asks the kernel by the wait that it sleeps in, so that where descriptors alone
 * have events each wait is one system call. Whatever wakes it, it takes back its announcement and
 * then collects from the list as well. A wait whose time is over makes one whole look.
 *
 * Where the kernel has events all the time a look comes first, too: the announcement and the
 * reference for a sleep are four locked instructions, of 80 ns beside a system call of 180. A look
 * of these in vain is a system call more: after each only half as many waits make one, at least one
 * of 64, until one has found something.
 *
 * Shares. In a look the kernel is asked first, and if the list has something the last place is not
 * the kernel's; with room for one they take turns. Asked in the other order the list would have to
 * leave a place for a side of which it does not know whether it needs it. So fewer events
 * than there is room for mean that there are no more, but for two cases, each of which takes a
 * place: the doorbell's event, and what was on the list when the kernel was asked and is not ready
 * any more.
 *
 * The doorbell. Its event is known by its data (side.c), and taken out. Who takes it, a look too,
 * collects the rings, and then looks at the list: by the collection that follows, or, where there
 * is no room left, by pass_on, which rings for another. Nobody reads the doorbell. One ring may be
 * there that nobody has slept for: it costs a turn of the wait that finds it.
 *
 *   Barrier pairs, all of ready.c and epoll/wait.c:
 *   push; barrier; sleepers           || announcement; barrier; list
 *   push; count of the ring; doorbell || its event; count = 0 (read-modify-write); list
 *
 * A wait that looks at the two sides one after the other may find nothing on either although
 * something was ready all the time: it was on the list when the kernel had nothing, and has been
 * collected by another thread, which had made a descriptor ready before. So it looks again if
 * somebody has collected meanwhile (ep.given). What was on the list and has become unready instead,
 * the kernel would have missed, too, as it goes through its own list.
 *
 * Shutdown. As in epoll/wait.c: pollux_ep_shutdown rings the doorbell for one, and who leaves rings
 * for the next. So whoever may have collected a ring, a look too, looks at shut as it leaves. Who
 * comes out of a sleep after a shutdown leaves its events. Who has collected from the list returns
 * them: they count as given (pollux_ep_del). A foreign loop is a sleeper that never leaves, so the
 * last ring stays for it.
 *
 * Times. A sleep that keeps the time of an item (epoll/due.c) is no longer than up to that. Who
 * waits for the descriptor of the epoll itself is woken by a timer of the kernel's, which is among
 * the descriptors as the doorbell is (side.c).
 *
 * Signals. The kernel looks for events before it looks for signals, so -EINTR means that there was
 * nothing on its side; a ring that was meant for this thread goes on to another. The wait has its
 * own reference on the epoll while it may sleep.
 *
 * A signal mask goes to the wait that sleeps: that is the only place where the kernel's own, too,
 * looks for signals, after it has found no events (EP-SIG-01, EP-SIG-05). What this thread does
 * before or between is done under the old mask: a signal that only the old one lets through is
 * handled as if it had come before the call, and one that only the new one lets through waits for
 * the sleep.
 */
#include "wait/side.h"

#include <limits.h>
#include <poll.h>

#include "base/clock.h"
#include "base/sleep.h"
#include "base/sys.h"

#define EVENTS_MOST (INT_MAX / (int)sizeof(struct epoll_event))
#define MISSES_MOST 6

static long kernel_wait(int epfd, struct epoll_event *ev, int max, int ms, const sigset_t *mask)
{
#ifdef SYS_epoll_wait
	if (plx_likely(!mask))
		return plx_sys4(SYS_epoll_wait, epfd, ev, max, ms);
#endif
	return plx_sys6(SYS_epoll_pwait, epfd, (long)ev, max, ms, (long)mask, PLX_MASK_SIZE);
}

/* To the deadline, by the call that can express it. */
static long kernel_sleep(int epfd, struct epoll_event *ev, int max, int64_t deadline,
			 const sigset_t *mask)
{
	struct timespec ts;
	int64_t left;
	long r;

	if (deadline < 0)
		return kernel_wait(epfd, ev, max, -1, mask);
	left = deadline - plx_now_ns();
	if (left <= 0)
		return kernel_wait(epfd, ev, max, 0, mask);
	ts = plx_timespec_ns(left);
	if (plx_likely(!plx_load(&plx_pwait2_refused))) {
		r = plx_sys6(SYS_epoll_pwait2, epfd, (long)ev, max, (long)&ts, (long)mask,
			     PLX_MASK_SIZE);
		if (!plx_pwait2_refuses(r))
			return r;
	}
	if (left > INT_MAX * 1000000ll)
		left = INT_MAX * 1000000ll;
	return kernel_wait(epfd, ev, max, (left + 999999) / 1000000, mask);
}

/*
 * Takes the events of the doorbell and of the timer out of n, and collects the rings; the number
 * left.
 */
static int take_bell(struct plx_kernel_side *s, struct epoll_event *ev, int n)
{
	for (int i = 0; i < n; i++) {
		if (plx_likely(ev[i].data.u64 != s->marker))
			continue;
		PLX_DELAY(side_before_collect);
		plx_bell_collect(s->ep, 1);
		n--;
		memmove(ev + i, ev + i + 1, (n - i) * sizeof(*ev));
		if (plx_likely(plx_load(&s->timer) < 0))
			break;
		i--;
	}
	return n;
}

/* What the kernel has now, without its doorbell. */
static int look_kernel(struct plx_kernel_side *s, struct epoll_event *ev, int room)
{
	for (;;) {
		int n = (int)kernel_wait(s->epfd, ev, room, 0, NULL), kept;

		if (n <= 0)
			return n;
		kept = take_bell(s, ev, n);
		/* It had the only place. */
		if (kept || n < room)
			return kept;
	}
}

/* For who may have taken a ring, and leaves behind what that was for. */
static void pass_on(struct pollux_ep *ep)
{
	plx_mb();
	if (!plx_ready_empty(ep))
		plx_ep_pass_on(ep);
}

/* What a sleep that returned n has come to. */
static inline int slept(struct pollux_ep *ep, int n)
{
	if (plx_unlikely(plx_load(&ep->shut)))
		return -ESHUTDOWN;
	if (plx_unlikely(n < 0))
		pass_on(ep);
	return n;
}

/* The list's share after n events of the kernel's: all events, or 0. */
static int collect_list(struct plx_kernel_side *s, struct epoll_event *ev, int n, int max)
{
	struct pollux_ep *ep = s->ep;
	struct epoll_event *at = ev + n;
	int own = 0;

	if (n > 0) {
		(void)plx_load_acq(&s->ctls);
		plx_tsan_after(s);
	}
	if (n < max) {
		own = plx_ep_harvest(ep, plx_sink_array, &at, max - n);
	} else {
		pass_on(ep);
	}
	if (max == 1 && n + own)
		plx_store(&s->turn, n ? PLX_TURN_OWN : PLX_TURN_KERNEL);
	plx_spin_brought(&ep->yields, n + own);
	return n + own;
}

static int look_sides(struct plx_kernel_side *s, struct epoll_event *ev, int max)
{
	struct pollux_ep *ep = s->ep;
	uint32_t given;
	int n;

	do {
		bool own = !plx_ready_empty(ep) || plx_due_passed(ep);

		given = plx_load_acq(&ep->given);
		if (own && max == 1 && plx_load(&s->turn) == PLX_TURN_OWN) {
			n = collect_list(s, ev, 0, 1);
			if (n)
				return n;
		}
		PLX_DELAY(side_before_look);
		n = look_kernel(s, ev, own && max > 1 ? max - 1 : max);
		if (n < 0)
			return n;
		PLX_DELAY(side_in_hand);
		n = collect_list(s, ev, n, max);
		/* Partner: plx_ep_harvest, which counts before it says that the list is empty. */
	} while (!n && plx_unlikely(given != plx_load(&ep->given)));
	return n;
}

static int look(struct plx_kernel_side *s, struct epoll_event *ev, int max)
{
	struct plx_batch *batch = NULL;
	int n;

	if (plx_unlikely(s->ep->batches)) {
		batch = plx_batch_of(s->ep);
		if (!batch) {
			pass_on(s->ep);
			return -ENOMEM;
		}
		/* Partner: who takes a descriptor out, in the kernel (epoll/thread.c). */
		plx_batch_open(batch, s->ep);
	}
	n = look_sides(s, ev, max);
	if (batch && n <= 0)
		plx_batch_end(s->ep);
	return n;
}

long plx_kernel_poll(struct pollfd *fd, size_t n, int64_t deadline, const sigset_t *mask)
{
	struct timespec left = {0};

	if (deadline > 0)
		left = plx_time_left(deadline);
	return plx_sys6(SYS_ppoll, (long)fd, (long)n, deadline < 0 ? 0 : (long)&left, (long)mask,
			PLX_MASK_SIZE, 0);
}

/* The sleep alone: with batches, events are taken in a look. All who sleep here are woken. */
static int sleep_alone(int epfd, int64_t deadline, const sigset_t *mask)
{
	struct pollfd p = {.fd = epfd, .events = POLLIN};
	long r = plx_kernel_poll(&p, 1, deadline, mask);

	return r < 0 ? (int)r : 0;
}

/* A look before a sleep: 0 if there is nothing, or if it is not this wait's turn. */
static int look_first(struct plx_kernel_side *s, struct epoll_event *ev, int max)
{
	uint32_t misses = plx_load(&s->misses), waits = plx_load(&s->waits) + 1;
	bool kernels;
	int n;

	plx_store(&s->waits, waits);
	if (waits & ((1u << misses) - 1))
		return 0;
	kernels = misses && plx_ready_empty(s->ep);
	n = look(s, ev, max);
	if (!n)
		plx_store(&s->misses, misses + (misses < MISSES_MOST));
	else if (kernels)
		plx_store(&s->misses, 0);
	return n;
}

/* Announced. The number of events without the doorbell's, or a negative errno. */
static int sleep_on(struct plx_kernel_side *s, struct epoll_event *ev, int max, int64_t deadline,
		    const sigset_t *mask)
{
	uint32_t since = plx_spin_sleeps(&s->ep->spin);
	int64_t kept, until = plx_due_keep(s->ep, deadline, &kept);
	int n;

	PLX_DELAY(side_before_sleep);
	if (plx_unlikely(s->ep->batches))
		n = sleep_alone(s->epfd, until, mask);
	else
		n = (int)kernel_sleep(s->epfd, ev, max, until, mask);
	plx_spin_slept(&s->ep->spin, since);
	if (plx_unlikely(kept != PLX_NEVER))
		plx_due_let_go(s->ep, kept);
	PLX_DELAY(side_in_hand);
	return n > 0 ? take_bell(s, ev, n) : n;
}

static __attribute__((noinline)) int wait_for_some(struct plx_kernel_side *s,
						   struct epoll_event *ev, int max,
						   int64_t deadline, const sigset_t *mask)
{
	struct pollux_ep *ep = s->ep;

	for (;;) {
		bool work = !plx_ready_empty(ep) || plx_due_passed(ep) || plx_ep_spin(ep);
		int n = 0;

		if (plx_unlikely(plx_load(&ep->shut)))
			return -ESHUTDOWN;
		if (work) {
			n = look(s, ev, max);
			if (n)
				return n;
		}
		if (plx_ep_announce(ep)) {
			n = sleep_on(s, ev, max, deadline, mask);
			plx_ep_retract(ep);
			n = slept(ep, n);
			if (plx_unlikely(n < 0))
				return n;
			/* The doorbell's event may have had the only place. */
			if ((n || max > 1) && !plx_unlikely(ep->batches))
				n = collect_list(s, ev, n, max);
			else
				n = look(s, ev, max);
		} else {
			/* The kernel has not been asked. */
			plx_ep_retract(ep);
			n = look(s, ev, max);
		}
		if (n)
			return n;
		if (deadline >= 0 && plx_now_ns() >= deadline)
			return look(s, ev, max);
	}
}

/* The wait is over, with n events or an error: what it returns. */
static int left(struct pollux_ep *ep, int n)
{
	plx_due_pass_on(ep);
	return plx_unlikely(plx_ep_shut_pass_on(ep)) && n <= 0 ? -ESHUTDOWN : n;
}

/* What a first look has not found. */
static __attribute__((noinline)) int wait_holding(struct plx_kernel_side *s, struct epoll_event *ev,
						  int max, int64_t deadline, const sigset_t *mask)
{
	struct pollux_ep *ep = s->ep;
	int n;

	plx_side_turn(s);
	/* The caller's may go while it waits, as a descriptor may be closed (EP-LOCK-10). */
	if (plx_unlikely(!plx_file_tryget(&ep->file)))
		return -EBADF;
	n = left(ep, wait_for_some(s, ev, max, deadline, mask));
	pollux_file_put(&ep->file);
	plx_retire_flush_if_full();
	return n;
}

static __attribute__((noinline)) int wait_whole(struct plx_kernel_side *s, struct epoll_event *ev,
						int max, bool sleeps, int64_t deadline,
						const sigset_t *mask)
{
	int n = sleeps ? look_first(s, ev, max) : look(s, ev, max);

	return n || !sleeps ? left(s->ep, n) : wait_holding(s, ev, max, deadline, mask);
}

/* As look_sides, where the kernel has been asked, which gave n. */
static __attribute__((noinline)) int look_on(struct plx_kernel_side *s, struct epoll_event *ev,
					     int n, int max, uint32_t given)
{
	int kept = n > 0 ? take_bell(s, ev, n) : n;

	if (n < 0)
		return n;
	/* The doorbell's event had the only place. */
	if (!kept && n == max)
		return look_sides(s, ev, max);
	n = collect_list(s, ev, kept, max);
	return n || given == plx_load(&s->ep->given) ? n : look_sides(s, ev, max);
}

/*
 * Where the kernel has events all the time, and the list has none, the look is made here, in one
 * piece: after a system call each line of code that is run has to be waited for.
 */
int plx_side_wait(struct pollux_ep *ep, struct epoll_event *ev, int max, bool sleeps,
		  int64_t deadline, const sigset_t *mask)
{
	struct plx_kernel_side *s = plx_side_of(ep);
	int n = plx_wait_begin(ep, max, sleeps);
	uint32_t given;

	if (plx_unlikely(n))
		return n;
	if (max > EVENTS_MOST)
		max = EVENTS_MOST;
	given = plx_load_acq(&ep->given);
	if (plx_unlikely(ep->batches || plx_load(&s->misses) || !plx_ready_empty(ep) ||
			 plx_due_passed(ep)))
		return wait_whole(s, ev, max, sleeps, deadline, mask);
	PLX_DELAY(side_before_look);
	n = (int)kernel_wait(s->epfd, ev, max, 0, NULL);
	PLX_DELAY(side_in_hand);
	/* One event, as a rule. */
	if (plx_likely(n == 1 && max > 1 && ev->data.u64 != s->marker && plx_ready_empty(ep) &&
		       !plx_due_passed(ep))) {
		(void)plx_load_acq(&s->ctls);
		plx_tsan_after(s);
		plx_store(&ep->yields.events, plx_load(&ep->yields.events) + 1);
		return plx_likely(!plx_load(&ep->shut) && plx_load(&ep->due) == PLX_NEVER)
			       ? 1
			       : left(ep, 1);
	}
	n = look_on(s, ev, n, max, given);
	if (n || !sleeps)
		return left(ep, n);
	plx_store(&s->misses, 1);
	return wait_holding(s, ev, max, deadline, mask);
}

/*
 * Collecting by a function. The kernel takes its events off before anybody has seen them, so there
 * are no descriptors: what the kernel has is the doorbell's event.
 */
static __attribute__((noinline)) int collect_some(struct plx_kernel_side *s, pollux_event_fn fn,
						  void *arg, int max, int64_t deadline,
						  const sigset_t *mask)
{
	struct pollux_ep *ep = s->ep;
	struct epoll_event bell[2];

	for (;;) {
		int n = 0;

		if (plx_ready_empty(ep) && !plx_due_passed(ep) && !plx_ep_spin(ep)) {
			if (plx_ep_announce(ep)) {
				n = sleep_on(s, bell, 2, deadline, mask);
				if (plx_unlikely(ep->batches) && n >= 0)
					n = look_kernel(s, bell, 2);
			}
			plx_ep_retract(ep);
		}
		n = slept(ep, n);
		if (plx_unlikely(n < 0))
			return n;
		n = plx_ep_harvest(ep, fn, arg, max);
		plx_spin_brought(&ep->yields, n);
		if (n || (deadline >= 0 && plx_now_ns() >= deadline))
			return n;
	}
}

int plx_side_collect(struct pollux_ep *ep, pollux_event_fn fn, void *arg, int max, bool sleeps,
		     int64_t deadline, const sigset_t *mask)
{
	struct plx_kernel_side *s = plx_side_of(ep);
	int n = plx_load_acq(&s->head.fds) ? -EOPNOTSUPP : plx_ep_harvest(ep, fn, arg, max);

	if (!n && sleeps)
		n = plx_side_collects(s);
	else
		sleeps = false;
	if (n || !sleeps)
		return left(ep, n);
	plx_side_turn(s);
	if (plx_unlikely(!plx_file_tryget(&ep->file)))
		return -EBADF;
	n = left(ep, collect_some(s, fn, arg, max, deadline, mask));
	pollux_file_put(&ep->file);
	plx_retire_flush_if_full();
	return n;
}

int pollux_ep_collect(struct pollux_ep *ep, pollux_event_fn fn, void *arg, int max,
		      int64_t deadline, const sigset_t *mask)
{
	bool sleeps = deadline < 0 || ep->host.now(ep->host.arg) < deadline;
	struct plx_kernel_side *s;
	int r;

	if (!mask || !sleeps)
		return plx_ep_collect(ep, fn, arg, max, deadline);
	r = plx_ep_collect(ep, fn, arg, max, 0);
	if (r)
		return r;
	r = plx_side_get(ep, false, &s);
	return r < 0 ? r : plx_side_collect(ep, fn, arg, max, true, deadline, mask);
}

/* mask: not NULL. */
static int masked(struct pollux_ep *ep, struct epoll_event *ev, int max, bool sleeps,
		  int64_t deadline, const sigset_t *mask)
{
	struct plx_kernel_side *s;
	int r;

	if (max <= 0 || !sleeps || plx_load(&ep->shut) || !plx_load_acq(&ep->side)) {
		r = pollux_ep_wait(ep, ev, max, 0);
		if (r || !sleeps)
			return r;
		r = plx_side_get(ep, false, &s);
		if (r < 0)
			return r;
	}
	return plx_side_wait(ep, ev, max, true, deadline, mask);
}

int pollux_ep_pwait(struct pollux_ep *ep, struct epoll_event *ev, int max, int64_t timeout_ns,
		    const sigset_t *mask)
{
	if (!mask)
		return pollux_ep_wait(ep, ev, max, timeout_ns);
	return masked(ep, ev, max, timeout_ns != 0, plx_ep_deadline(ep, timeout_ns), mask);
}

int pollux_ep_pwait_until(struct pollux_ep *ep, struct epoll_event *ev, int max, int64_t deadline,
			  const sigset_t *mask)
{
	if (!mask)
		return pollux_ep_wait_until(ep, ev, max, deadline);
	return masked(ep, ev, max, deadline < 0 || ep->host.now(ep->host.arg) < deadline, deadline,
		      mask);
}
