/* SPDX-License-Identifier: MIT */
/*
 * poll over sets with cached eventfds.
 *
 * The kernel has the program's own set: it polls the objects by their numbers, and knows K. If U
 * of one is not 0, that one is ready, and the kernel is asked without a sleep about the others, if
 * there are any. Otherwise the caller is counted at each of them, in the step that finds U to be 0
 * (eventfd.h), and sleeps in the kernel. Who writes meanwhile writes to the kernel, and nothing has
 * to be looked at afterwards.
 *
 * An epoll of ours in a set goes to the kernel first, and so does a timer: their readiness would be
 * the sum of two sides. So does whatever is in a set of select, or of a ppoll with a mask.
 */
#include "cache/epoll.h"

#include <fcntl.h>
#include <limits.h>

#include "base/clock.h"
#include "base/sleep.h"
#include "base/spin.h"
#include "base/sys.h"
#include "cache/uaccess.h"

/* So many objects of a call are counted at. */
#define COUNTED 32
/* So much of a set is copied at once. */
#define CHUNK 32
#define SET_WORD (8 * sizeof(long))

/*
 * The timeout of a look that a signal has left to a call: if it finds nothing the call is
 * interrupted. Nothing else is told this one.
 */
static const struct timespec look_only;

/* What a program waits for, in its own memory. */
struct wait_set {
	struct pollfd *fds;
	nfds_t n;
	/* The program's call is poll: a sleep is the same, as a filter may know no other. */
	bool by_poll;
};

/* What is said of each number of a set: whether it is waited for to be read; at: its place. False
 * ends it. */
typedef bool (*visit_t)(void *arg, int fd, bool input, nfds_t at);

static bool walk(const struct wait_set *s, visit_t visit, void *arg)
{
	struct pollfd chunk[CHUNK];

	for (nfds_t i = 0; i < s->n; i += CHUNK) {
		nfds_t m = s->n - i < CHUNK ? s->n - i : CHUNK;

		if (plx_copy_in(chunk, s->fds + i, m * sizeof(*chunk)))
			return false;
		for (nfds_t j = 0; j < m; j++)
			if (chunk[j].fd >= 0 && plx_fd_ours(chunk[j].fd) &&
			    !visit(arg, chunk[j].fd, chunk[j].events & POLLIN, i + j))
				return false;
	}
	return true;
}

/* One call. */
struct poll_call {
	const struct wait_set *set;
	/* There are cached eventfds among them. */
	bool cached;
	/* One of them is neither COLD nor marked, or may not be any more: U may come. */
	bool in;
	/* One of them has U. */
	bool ready;
	/* plx_adoptions_over before the first look. */
	uint32_t adoptions;
	/* Where the caller is counted; in the order of the set. */
	struct plx_eventfd *counted[COUNTED];
	nfds_t ncounted;
	/* The kernel has said what it has. */
	bool asked;
	/* By fix_one: so many more are ready. */
	int added;
};

/* Of the calling thread's polls, whose wakers say nothing (base/spin.h). */
static __thread struct plx_yields poll_yields;
static __thread struct plx_spin_state poll_spin;

/* The first look at each of ours: what cannot be in a set is the kernel's afterwards. */
static bool judge_one(void *arg, int fd, bool input, nfds_t at)
{
	struct poll_call *c = arg;
	enum plx_file_kind kind = PLX_KIND_OTHER;
	struct pollux_file *f;

	(void)at;
	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (f)
		kind = f->kind;
	if (kind == PLX_KIND_EVENTFD && plx_eventfd_serves(f) && input) {
		uint64_t w = plx_load_acq(&f->word);

		c->cached = true;
		c->in |= !(w & (PLX_SLOW | PLX_EVENTFD_MARK)) || (w & PLX_EVENTFD_BUSY);
		c->ready |= (w & PLX_EVENTFD_U) != 0;
	}
	plx_rcu_read_unlock();
	if (kind == PLX_KIND_BELL)
		plx_bell_take(fd);
	else if (kind == PLX_KIND_EPOLL || kind == PLX_KIND_TIMER)
		plx_px_escape(fd, PLX_OUT_POLL);
	return true;
}

static bool has_count(int fd)
{
	struct pollux_file *f;
	bool has;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	has = f && f->kind == PLX_KIND_EVENTFD && (plx_load_acq(&f->word) & PLX_EVENTFD_U);
	plx_rcu_read_unlock();
	return has;
}

/* Ends the walk at one that is ready. */
static bool not_ready(void *arg, int fd, bool input, nfds_t at)
{
	(void)arg;
	(void)at;
	return !input || !has_count(fd);
}

static bool call_ready(void *arg)
{
	const struct poll_call *c = arg;

	return !walk(c->set, not_ready, NULL);
}

/*
 * Whether nothing but U counts where that is not 0, as the set is one object that is waited for to
 * be read: the kernel, which is not asked then, would say nothing else of it.
 */
static bool set_of_one(const struct wait_set *s)
{
	struct pollfd p;

	return s->n == 1 && !plx_copy_in(&p, s->fds, sizeof(p)) && p.events == POLLIN;
}

/* The kernel has not found U, and has found what is our own. */
static bool fix_one(void *arg, int fd, bool input, nfds_t at)
{
	struct poll_call *c = arg;
	const struct wait_set *s = c->set;
	short revents = 0;
	void *place = &s->fds[at].revents;

	if (c->asked && plx_copy_in(&revents, place, sizeof(revents)))
		return false;
	if (input && has_count(fd)) {
		c->added += !revents;
		revents |= PLX_INJECTED(wrong_poll) ? POLLOUT : POLLIN;
	}
	return !plx_copy_out(place, &revents, sizeof(revents));
}

/* False: it is ready. What there is no place for is the kernel's. */
static bool count_one(void *arg, int fd, bool input, nfds_t at)
{
	struct poll_call *c = arg;
	struct pollux_file *f;
	bool counted = false, sleeps = true;

	(void)at;
	if (!input)
		return true;
	if (c->ncounted == COUNTED) {
		plx_px_escape(fd, PLX_OUT_POLL);
		return true;
	}
	f = plx_table_get(fd);
	if (f && f->kind == PLX_KIND_EVENTFD)
		sleeps = plx_eventfd_poll_begin(plx_file_eventfd(f), &counted);
	if (counted)
		c->counted[c->ncounted++] = plx_file_eventfd(f);
	else if (f)
		pollux_file_put(f);
	return sleeps;
}

/* Also when the call is cancelled, or a handler begins in its sleep. */
static void uncount(void *p)
{
	struct poll_call *c = p;

	while (c->ncounted) {
		struct plx_eventfd *e = c->counted[--c->ncounted];

		plx_eventfd_poll_end(e);
		pollux_file_put(&e->file);
	}
}

/* The time of a call of poll. */
static int in_ms(const struct timespec *timeout)
{
	return timeout ? (int)(timeout->tv_sec * 1000 + timeout->tv_nsec / 1000000) : -1;
}

/*
 * libc's function. A signal that came during this call and has been handled only now interrupts it.
 */
static int unseen_sleep(const struct wait_set *s, const struct timespec *timeout)
{
	static const struct timespec now;
	PLX_OUTSIDE(sleep);
	int r;

	PLX_DELAY(poll_before_sleep);
	if (sleep.interrupted)
		timeout = &now;
	if (s->by_poll)
		r = plx_libc.poll(s->fds, s->n, in_ms(timeout));
	else
		r = plx_libc.ppoll(s->fds, s->n, timeout, NULL);
	if (r == 0 && sleep.interrupted)
		return -EINTR;
	return r < 0 ? -errno : r;
}

/* Without a sleep. The kernel says that it is interrupted only if it finds nothing. */
static long look_kernel(const struct wait_set *s)
{
	return plx_sys_poll(s->fds, s->n);
}

/* If the sleep is over (plx_sleep_is_over), the call holds nothing any more. */
static int poll_sleep(const struct wait_set *s, const struct timespec *timeout)
{
	struct plx_sleep sleep = {.args = {(long)s->fds, (long)s->n, 0, 0, _NSIG / 8}};
	long nr = SYS_ppoll;
	struct timespec left;

	if (plx_unlikely(!plx_load(&plx_sleeps_seen)))
		return unseen_sleep(s, timeout);
#ifdef SYS_poll
	if (s->by_poll) {
		nr = SYS_poll;
		sleep.args[2] = in_ms(timeout);
		timeout = NULL;
	}
#endif
	/* The kernel writes to it. */
	if (timeout) {
		left = *timeout;
		sleep.args[2] = (long)&left;
	}
	PLX_DELAY(poll_before_sleep);
	return (int)plx_sleep(&sleep, false, nr);
}

/* Some of ours are ready. 0: not any more, and nothing else is. */
static long call_answer(struct poll_call *c)
{
	long r = 0;

	c->asked = !set_of_one(c->set);
	if (c->asked)
		r = look_kernel(c->set);
	if (r < 0 && r != -EINTR)
		return r;
	r = r > 0 ? r : 0;
	c->added = 0;
	if (!walk(c->set, fix_one, c))
		return -EFAULT;
	return r + c->added;
}

/* A moment in which something of ours may come; what the kernel has does not wait for it. */
static long call_spin(struct poll_call *c)
{
	enum plx_spin_how how = plx_spin_how(&poll_yields, &poll_spin);
	long r;

	if (how == PLX_SPIN_NOT)
		return 0;
	r = look_kernel(c->set);
	if (r) {
		plx_spin_not(how);
		return r == -EINTR ? 0 : r;
	}
	PLX_DELAY(poll_spins);
	plx_spin_until(how, &poll_yields, &poll_spin, call_ready, c);
	return 0;
}

static long call_run(struct poll_call *c, const struct timespec *timeout)
{
	bool looks = timeout && !timeout->tv_sec && !timeout->tv_nsec;
	bool spun = looks || !c->in;
	long r;

	for (int tries = 0;; c->ready = call_ready(c)) {
		if (c->ready) {
			r = call_answer(c);
			if (r)
				return r;
			continue;
		}
		PLX_DELAY(poll_looks);
		if (looks) {
			r = look_kernel(c->set);
			/* What it had before may be on our side by now (beside_adoption). */
			if (r < 0 || plx_load_acq(&plx_adoptions_begun) == c->adoptions)
				return r;
			plx_await_step(tries++);
			c->adoptions = plx_load_acq(&plx_adoptions_over);
			continue;
		}
		if (!spun) {
			spun = true;
			r = call_spin(c);
			if (r)
				return r;
			continue;
		}
		PLX_DELAY(poll_counts);
		if (walk(c->set, count_one, c))
			break;
		uncount(c);
	}
	return poll_sleep(c->set, timeout);
}

/* PLX_PASS: there is nothing of ours in the set. */
static long call_once(const struct wait_set *s, const struct timespec *timeout)
{
	struct poll_call c;
	long r;

	/* Not the whole: the places of `counted` would be cleared at each call. */
	c.set = s;
	c.cached = c.in = c.ready = false;
	c.adoptions = plx_load_acq(&plx_adoptions_over);
	c.ncounted = 0;

	/* What cannot be read is for the kernel to say. */
	if (!walk(s, judge_one, &c))
		return PLX_PASS;
	if (!c.cached)
		return timeout == &look_only ? look_kernel(s) : PLX_PASS;
	plx_stat(PLX_STAT_POLLS);
	PLX_HOLD_PUSH(uncount, &c);
	r = call_run(&c, timeout);
	PLX_HOLD_POP(1);
	return r;
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

static long call_whole(struct pollfd *fds, nfds_t n, const struct timespec *timeout, bool by_poll)
{
	PLX_INSIDE();
	/* The kernel takes no more of it. */
	struct wait_set set = {.fds = fds, .n = (unsigned int)n, .by_poll = by_poll};
	long r = call_once(&set, timeout);

	if (plx_sleep_is_over(r)) {
		/* A handler has run in the sleep, and all that it began with may have changed. */
		if (r == PLX_SLEEP_LOOK)
			r = call_once(&set, &look_only);
		/* What the handler has made of the numbers is no error of this call's. */
		r = r > 0 || r == -EFAULT ? r : -EINTR;
	}
	return plx_unlikely(r == -EINTR) ? ppoll_interrupted(fds, set.n) : r;
}

long plx_px_poll(struct pollfd *fds, nfds_t n, int ms)
{
	struct timespec ts = plx_timespec_ms(ms);

	return call_whole(fds, n, ms < 0 ? NULL : &ts, true);
}

long plx_px_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout)
{
	return call_whole(fds, n, timeout, false);
}

uint16_t plx_px_ready(int fd, uint16_t events)
{
	struct pollfd p = {.fd = fd, .events = (short)events};
	long r = plx_px_poll(&p, 1, 0);

	if (r == PLX_PASS)
		r = look_kernel(&(struct wait_set){.fds = &p, .n = 1});
	return r == 1 && !(p.revents & POLLNVAL) ? (uint16_t)p.revents : 0;
}

static bool leave_one(void *arg, int fd, bool input, nfds_t at)
{
	(void)arg;
	(void)input;
	(void)at;
	plx_px_escape(fd, PLX_OUT_POLL);
	return true;
}

void plx_px_poll_leaves(struct pollfd *fds, nfds_t n)
{
	PLX_INSIDE();
	walk(&(struct wait_set){.fds = fds, .n = n}, leave_one, NULL);
}

void plx_px_select(int n, const fd_set *rd, const fd_set *wr, const fd_set *ex)
{
	PLX_INSIDE();
	const fd_set *sets[3] = {rd, wr, ex};

	/* No number behind the end of the table is looked at, whatever n is (select(2), BUGS). */
	for (int fd = n > 0 ? plx_table_next_to(0, n - 1) : -1; fd >= 0;
	     fd = plx_table_next_to(fd + 1, n - 1)) {
		for (int k = 0; k < 3; k++) {
			unsigned long word;

			if (sets[k] &&
			    !plx_copy_in(&word, (const long *)sets[k] + fd / SET_WORD,
					 sizeof(word)) &&
			    (word >> fd % SET_WORD & 1))
				plx_px_escape(fd, PLX_OUT_SELECT);
		}
	}
}
