/* SPDX-License-Identifier: MIT */
/*
 * Waiting: announce, look again, sleep.
 *
 * A waiter that is about to sleep counts itself as a sleeper, has a full barrier,
 * and looks at the list once more; a producer pushes, has a full barrier, and
 * looks for sleepers. One of them sees the other.
 */
#include "epoll/engine.h"

#include <limits.h>
#include <linux/futex.h>
#include <time.h>

#include "base/clock.h"
#include "base/sys.h"

/* Between two looks at the clock. */
#define LOOKS 32

bool plx_ep_announce(struct pollux_ep *ep)
{
	PLX_DELAY(announce_before_count);
	plx_xadd(&ep->sleepers, 1);
	plx_mb_after_rmw();
	PLX_DELAY(announce_before_look);
	/* Partner of both looks: who pushes, and pollux_ep_shutdown. */
	return plx_ready_empty(ep) && !plx_unlikely(plx_load(&ep->shut));
}

void plx_ep_retract(struct pollux_ep *ep)
{
	plx_xadd(&ep->sleepers, (uint32_t)-1);
	plx_bell_collect(ep, 0);
}

static bool ep_has_work(void *arg)
{
	const struct pollux_ep *ep = arg;

	return !plx_ready_empty(arg) || plx_load(&ep->shut);
}

/*
 * Shutdown: whoever sleeps is woken by the one before, and leaves.
 *
 * Argument. Who is about to sleep counts itself, has a full barrier, and looks at shut; who shuts
 * down sets it, has a full barrier, and looks for sleepers. So either sees the other.
 * plx_ep_wake_one rings, or has found a ring that is complete and not collected yet: whoever
 * collects that does so after shut was set, and looks at shut next. So there is always one on the
 * way who will see it, takes back that it sleeps, and wakes the next in the same way; and the last
 * one finds nobody. An exclusive wake that was spent on one of them goes on to another epoll.
 */
bool plx_ep_shut_pass_on(struct pollux_ep *ep)
{
	if (plx_likely(!plx_load(&ep->shut)))
		return false;
	PLX_DELAY(shut_before_pass);
	plx_mb();
	plx_ep_pass_on(ep);
	plx_tsan_after(&ep->shut);
	return true;
}

void pollux_ep_shutdown(struct pollux_ep *ep)
{
	plx_tsan_before(&ep->shut);
	plx_xchg(&ep->shut, 1);
	plx_mb_after_rmw();
	PLX_DELAY(shut_before_wake);
	plx_ep_wake_one(ep);
}

/* As long as the host says, whatever it has paid. */
static bool look_until(struct pollux_ep *ep, int64_t end)
{
	do {
		for (int i = 0; i < LOOKS; i++) {
			if (ep_has_work(ep))
				return true;
			plx_cpu_relax();
		}
	} while (plx_now_ns() < end);
	return false;
}

bool plx_ep_spin(struct pollux_ep *ep)
{
	int64_t look = ep->host.look_ns, end = 0;
	enum plx_spin_how how = PLX_SPIN_NOT;
	bool stands_in, hit;

	if (look > 0)
		end = plx_now_ns() + look;
	else if (look < 0)
		how = plx_spin_how(&ep->yields, &ep->spin);
	if (how == PLX_SPIN_NOT && !end)
		return false;
	/* With nobody asleep there is nobody whom a producer could ring in vain. */
	stands_in = plx_load(&ep->sleepers) != 0;
	if (stands_in)
		plx_ep_stand_in(ep);
	if (end)
		hit = look_until(ep, end);
	else
		hit = plx_spin_until(how, &ep->yields, &ep->spin, ep_has_work, ep);
	if (stands_in)
		plx_ep_stand_down(ep, hit);
	return hit;
}

static int64_t futex_now(void *host)
{
	(void)host;
	return plx_now_ns();
}

/*
 * The threads of an epoll without descriptors sleep on a futex, and those of one that has had a
 * descriptor in the kernel's epoll (wait/side.c). They move over when it gets its first.
 *
 * Argument. Who begins a side stores it, changes the word that threads sleep on, and wakes them. A
 * thread that is about to sleep has loaded the word, and then the side. So it sees the side; or the
 * word has changed since, and it does not sleep; or it sleeps, and is woken. Who rings has pushed
 * before, and looks at the side after a full barrier. A thread that sleeps on the side has seen it
 * before it announced itself and looked at the list. So either it finds what was pushed, or the
 * other finds the side.
 *
 * A ring at the futex may have been complete when nobody slept any more. There it keeps who comes
 * from sleeping; on the side it would keep others from ringing, and nothing is in the kernel. So
 * the bell is turned before anybody sleeps on the side: by whoever finds that this has not been
 * done. What is begun after that finds the side. The model is tests/model/side.pml.
 */
static struct pollux_ep *bell_ep(uint32_t *bell)
{
	return plx_container_of(bell, struct pollux_ep, bell);
}

/*
 * A time-out is always given: a futex wait without one is restarted after a
 * handler with SA_RESTART, and an epoll wait never is (EP-SIG-02).
 */
int plx_futex_sleep(const uint32_t *word, uint32_t seen, int64_t deadline)
{
	struct timespec ts = {.tv_sec = LONG_MAX / 2000000000l};
	long r;

	if (deadline >= 0)
		ts = plx_timespec_ns(deadline);
	PLX_DELAY(park_before_futex);
	r = plx_sys6(SYS_futex, (long)word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen, (long)&ts,
		     0, FUTEX_BITSET_MATCH_ANY);
	return r == -ETIMEDOUT || r == -EINTR ? (int)r : 0;
}

static int futex_park(void *host, uint32_t *bell, int64_t deadline)
{
	struct pollux_ep *ep = bell_ep(bell);
	uint32_t seen = plx_load_acq(bell);
	int r = 0;

	(void)host;
	while (!r && !(seen & POLLUX_BELL_MASK) && plx_likely(!plx_load(&ep->side))) {
		r = plx_futex_sleep(bell, seen, deadline);
		seen = plx_load_acq(bell);
	}
	return r;
}

static void futex_unpark_one(void *host, uint32_t *bell)
{
	struct pollux_ep *ep = bell_ep(bell);
	struct plx_side *side;

	(void)host;
	/* The ring has been counted. Partner: the announcement of who sleeps on the side. */
	plx_mb_after_rmw();
	side = plx_load_acq(&ep->side);
	if (plx_unlikely(side))
		side->ring(ep);
	else
		plx_sys3(SYS_futex, bell, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
}

void plx_ep_side_begin(struct pollux_ep *ep, struct plx_side *side)
{
	plx_store_rel(&ep->side, side);
	PLX_DELAY(side_before_turn);
	/* A read-modify-write: a full barrier, too. */
	(void)plx_rings_collect(&ep->bell, true);
	plx_sys3(SYS_futex, plx_ring_word(&ep->bell), FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX);
}

const struct pollux_host plx_futex_host = {
	.size = sizeof(plx_futex_host),
	.look_ns = -1,
	.park = futex_park,
	.unpark_one = futex_unpark_one,
	.now = futex_now,
};

int plx_sink_array(void *arg, uint32_t events, uint64_t data)
{
	struct epoll_event *ev = (*(struct epoll_event **)arg)++;

	ev->events = events;
	ev->data.u64 = data;
	return 0;
}

/* What a wait does with its events. */
struct taker {
	pollux_event_fn sink;
	void *arg;
	int max;
};

static int harvest(struct pollux_ep *ep, const struct taker *t)
{
	int n = plx_ep_harvest(ep, t->sink, t->arg, t->max);

	plx_spin_brought(&ep->yields, n);
	return n;
}

/*
 * Sleeps once, unless there is work. A host may come back from park on another thread than it was
 * called in, so neither this function nor those that call it within a wait may have anything of
 * their thread in their frame: what is thread-local is used in functions of other files alone.
 */
static __attribute__((noinline)) int sleep_once(struct pollux_ep *ep, int64_t deadline)
{
	int64_t until, kept;
	uint32_t since;
	int r = 0;

	if (plx_ep_announce(ep)) {
		until = plx_due_keep(ep, deadline, &kept);
		since = plx_spin_sleeps(&ep->spin);
		r = ep->host.park(ep->host.arg, plx_ring_word(&ep->bell), until);
		plx_spin_slept(&ep->spin, since);
		if (plx_unlikely(kept != PLX_NEVER)) {
			plx_due_let_go(ep, kept);
			if (r == -ETIMEDOUT && until != deadline)
				r = 0;
		}
	}
	plx_ep_retract(ep);
	return r;
}

static int side_wait(struct plx_side *side, struct pollux_ep *ep, const struct taker *t,
		     bool sleeps, int64_t deadline)
{
	if (t->sink == plx_sink_array)
		return side->wait(ep, *(struct epoll_event **)t->arg, t->max, sleeps, deadline,
				  NULL);
	return side->collect(ep, t->sink, t->arg, t->max, sleeps, deadline, NULL);
}

/* Nothing was there at first. */
static __attribute__((noinline)) int wait_for_some(struct pollux_ep *ep, const struct taker *t,
						   int64_t deadline)
{
	for (;;) {
		struct plx_side *side = plx_load_acq(&ep->side);
		int r = 0, n;

		if (plx_unlikely(side))
			return side_wait(side, ep, t, true, deadline);
		if (!plx_ep_spin(ep))
			r = sleep_once(ep, deadline);
		if (plx_unlikely(plx_ep_shut_pass_on(ep)))
			return -ESHUTDOWN;
		if (r == -EINTR) {
			/*
			 * There was nothing when the signal came; what the handler
			 * made stays for the next call (EP-SIG-08). A ring that was
			 * meant for this thread goes on to another (EP-WAKE-09).
			 */
			plx_mb();
			if (!plx_ready_empty(ep))
				plx_ep_pass_on(ep);
			plx_due_pass_on(ep);
			return -EINTR;
		}
		n = harvest(ep, t);
		/* A wake that met the deadline is not wasted (EP-TMO-08). */
		if (n || r == -ETIMEDOUT) {
			plx_due_pass_on(ep);
			return n;
		}
	}
}

/* Nothing was there at first, and the call sleeps. */
static int wait_holding(struct pollux_ep *ep, const struct taker *t, int64_t deadline)
{
	int n;

	/* The caller's may go while it waits, as a descriptor may be closed (EP-LOCK-10). */
	if (plx_unlikely(!plx_file_tryget(&ep->file)))
		return -EBADF;
	n = wait_for_some(ep, t, deadline);
	pollux_file_put(&ep->file);
	plx_retire_flush_if_full();
	return n;
}

/* sleeps: the time is not over yet; deadline: negative for none. */
static inline __attribute__((always_inline)) int
wait_for(struct pollux_ep *ep, const struct taker *t, bool sleeps, int64_t deadline)
{
	struct plx_side *side;
	int n = plx_wait_begin(ep, t->max, sleeps);

	if (plx_unlikely(n))
		return n;
	side = plx_load_acq(&ep->side);
	if (plx_unlikely(side))
		return side_wait(side, ep, t, sleeps, deadline);
	n = harvest(ep, t);
	return n || !sleeps ? n : wait_holding(ep, t, deadline);
}

int64_t plx_ep_deadline(struct pollux_ep *ep, int64_t timeout_ns)
{
	int64_t now;

	if (timeout_ns <= 0)
		return -1;
	now = ep->host.now(ep->host.arg);
	return timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

static __attribute__((noinline)) int wait_own(struct pollux_ep *ep, struct epoll_event *ev, int max,
					      int64_t timeout_ns)
{
	const struct taker t = {plx_sink_array, &ev, max};

	return wait_for(ep, &t, timeout_ns != 0, plx_ep_deadline(ep, timeout_ns));
}

int pollux_ep_wait(struct pollux_ep *ep, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	struct plx_side *side = plx_load_acq(&ep->side);

	/* A wait that makes a system call has its lines of code to wait for. */
	if (side)
		return side->wait(ep, ev, max, timeout_ns != 0,
				  timeout_ns > 0 ? plx_ep_deadline(ep, timeout_ns) : -1, NULL);
	return wait_own(ep, ev, max, timeout_ns);
}

static int wait_until(struct pollux_ep *ep, const struct taker *t, int64_t deadline)
{
	return wait_for(ep, t, deadline < 0 || ep->host.now(ep->host.arg) < deadline, deadline);
}

int pollux_ep_wait_until(struct pollux_ep *ep, struct epoll_event *ev, int max, int64_t deadline)
{
	const struct taker t = {plx_sink_array, &ev, max};

	return wait_until(ep, &t, deadline);
}

int plx_ep_collect(struct pollux_ep *ep, pollux_event_fn fn, void *arg, int max, int64_t deadline)
{
	const struct taker t = {fn, arg, max};

	return wait_until(ep, &t, deadline);
}
