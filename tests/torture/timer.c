/* SPDX-License-Identifier: MIT */
/*
 * Timers whose settings the kernel is not told at once, under many threads: nothing expires before
 * its time, what is due is reported, expirations are counted, and no thread that waits depends on
 * another one that has the event in its hand.
 */
#include "cache/posix.h"

#include "torture.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include <pollux/posix.h>

/* Enough of them in a row for a setting to be put off. */
#define ROW 6
#define NEVER INT64_MAX
#define MS 1000000ll
/* No interrupt is as late as that. */
#define LATE (500 * MS)

static struct itimerspec spec_of(int64_t ms, int64_t interval_ms)
{
	return (struct itimerspec){
		.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * MS},
		.it_interval = {.tv_sec = interval_ms / 1000, .tv_nsec = interval_ms % 1000 * MS},
	};
}

static int timer_new(void)
{
	int fd = (int)plx_px_timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);

	if (fd < 0)
		broken("no timer: %d", fd);
	return fd;
}

/* What was left of the old setting, in ns. */
static int64_t set(int fd, int64_t ms, int64_t interval_ms)
{
	struct itimerspec spec = spec_of(ms, interval_ms), old = {0};
	long r = plx_px_timerfd_settime(fd, 0, &spec, &old);

	/* It may have become the kernel's. */
	if (r == PLX_PASS)
		r = timerfd_settime(fd, 0, &spec, &old);
	if (r != 0)
		broken("a setting failed");
	return old.it_value.tv_sec * 1000000000ll + old.it_value.tv_nsec;
}

static int ctl(int ep, int op, int fd, uint64_t data)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = data};

	return pollux_epoll_ctl(ep, op, fd, &ev);
}

static int ep_with(int fd, uint64_t data)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC);

	if (ctl(ep, EPOLL_CTL_ADD, fd, data) != 0)
		broken("ADD failed");
	return ep;
}

struct call {
	struct thread t;
	struct gate gate;
	const char *point;
	int ep, fd, n;
	int64_t left;
	struct epoll_event ev;
};

static void wait_main(struct thread *t)
{
	struct call *c = t->arg;

	if (c->point)
		gate_arm(&c->gate, c->point);
	c->n = pollux_epoll_wait(c->ep, &c->ev, 1, SOON_MS);
}

/*
 * A row of settings that expire at the same time, and one after it, at `since`, that can be put
 * off. false: the machine was slow, and the timer has expired in between, or was about to.
 */
static bool put_off(int fd, int64_t early_ms, int64_t then_ms, int64_t *since)
{
	int64_t early = now_ns() + early_ms * MS;
	unsigned long said = points_passed("timer_said");

	for (int i = 0; i < ROW; i++) {
		int64_t left = (early - now_ns()) / MS;

		set(fd, left > 1 ? left : 1, 0);
	}
	*since = now_ns();
	set(fd, then_ms, 0);
	/* What expires within 20 ms is not put off. */
	if (now_ns() > early - 22 * MS)
		return false;
	assert_true(points_passed("timer_said") > said);
	return true;
}

static bool hand_round(bool mixed)
{
	struct call first = {.point = "wait_in_hand"}, second = {0};
	int efd = pollux_eventfd(0, EFD_NONBLOCK);
	int64_t since;
	bool met;

	first.fd = timer_new();
	first.ep = second.ep = ep_with(first.fd, 7);
	if (mixed) {
		/* Then it would be in a look. */
		assert_int_equal(ctl(first.ep, EPOLL_CTL_ADD, efd, 8), 0);
		first.point = NULL;
	}
	thread_start(&first.t, wait_main, &first);
	assert_true(thread_asleep(&first.t));
	met = put_off(first.fd, 100, 300, &since);
	if (met) {
		if (!mixed)
			assert_true(gate_reached(&first.gate));
		thread_start(&second.t, wait_main, &second);
		thread_join(&second.t);
		assert_int_equal(second.n, 1);
		assert_int_equal(second.ev.data.u64, 7);
		assert_true(now_ns() >= since + 300 * MS);
	}
	gate_open(&first.gate);
	thread_join(&first.t);
	/* Level-triggered. */
	assert_int_equal(first.n, 1);
	assert_int_equal(first.ev.data.u64, 7);
	assert_false(torture_failed);
	pollux_close(efd);
	pollux_close(first.fd);
	pollux_close(first.ep);
	return met;
}

/*
 * A thread that slept before any timer could be put off stands there with the event of an expiry
 * that is too early. Another one, which waits, is told at the time that is wanted all the same.
 */
static void nobody_waits_for_a_hand(void **state)
{
	(void)state;
	for (int mixed = 0; mixed < 2; mixed++) {
		int64_t start = now_ns();
		bool met = false;

		torture_begin();
		points_delay(false);
		while (!met && torture_until(start, met))
			met = hand_round(mixed);
		assert_true(met);
	}
}

static bool slot_round(void)
{
	struct call first = {.point = "timer_soon"};
	int efd = pollux_eventfd(0, EFD_NONBLOCK), pair[3][2];
	struct epoll_event ev[2];
	int64_t early, since;
	bool met;
	char c;

	first.fd = timer_new();
	first.ep = ep_with(first.fd, 7);
	assert_int_equal(ctl(first.ep, EPOLL_CTL_ADD, efd, 8), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair[i]), 0);
		assert_int_equal(ctl(first.ep, EPOLL_CTL_ADD, pair[i][0], 10 + (uint64_t)i), 0);
	}
	thread_start(&first.t, wait_main, &first);
	assert_true(thread_asleep(&first.t));
	early = now_ns() + 99 * MS;
	met = put_off(first.fd, 100, 3600000, &since);
	/* It expires within 20 ms. */
	while (now_ns() < early - 12 * MS)
		sleep_ms(1);
	assert_int_equal(write(pair[0][1], "x", 1), 1);
	/* Before it does. */
	met = met && now_ns() < early;
	if (met) {
		assert_true(gate_reached(&first.gate));
		while (now_ns() < early + 6 * MS)
			sleep_ms(1);
		assert_int_equal(read(pair[0][0], &c, 1), 1);
		assert_int_equal(write(pair[1][1], "x", 1), 1);
		assert_int_equal(write(pair[2][1], "x", 1), 1);
		assert_int_equal(pollux_epoll_wait(first.ep, ev, 2, 0), 2);
		assert_int_equal(ev[0].data.u64, 11);
		assert_int_equal(ev[1].data.u64, 12);
	}
	gate_open(&first.gate);
	thread_join(&first.t);
	assert_int_equal(first.n, 1);
	assert_true(first.ev.data.u64 == 10 || !met);
	assert_false(torture_failed);
	for (int i = 0; i < 3; i++) {
		close(pair[i][0]);
		close(pair[i][1]);
	}
	pollux_close(efd);
	pollux_close(first.fd);
	pollux_close(first.ep);
	return met;
}

/*
 * A thread that slept before any timer could be put off returns, and has taken back the time that
 * says when to look for those that expire too early. A wait that begins then has room for others
 * all the same.
 */
static void no_slot_for_an_early_expiry(void **state)
{
	int64_t start = now_ns();
	bool met = false;

	(void)state;
	torture_begin();
	points_delay(false);
	while (!met && torture_until(start, met))
		met = slot_round();
	assert_true(met);
}

static void set_main(struct thread *t)
{
	struct call *c = t->arg;

	for (int i = 0; i < ROW - 1; i++)
		set(c->fd, 40, 0);
	gate_arm(&c->gate, c->point);
	c->left = set(c->fd, 3600000, 0);
}

/*
 * A setting is about to be put off when the one before expires, and somebody is told so: then
 * nothing was left of that one.
 */
static void what_was_told_has_expired(void **state)
{
	int64_t start = now_ns();
	unsigned long told = 0, rounds = 0;

	(void)state;
	torture_begin();
	points_delay(false);
	for (; torture_until(start, told > 3) && rounds < 1000; rounds++) {
		struct call w = {0}, s = {.point = "timer_before_mark"};
		struct pollfd p;
		bool stands;

		s.fd = timer_new();
		w.ep = ep_with(s.fd, 7);
		thread_start(&w.t, wait_main, &w);
		assert_true(thread_asleep(&w.t));
		thread_start(&s.t, set_main, &s);
		while (!__atomic_load_n(&s.gate.reached, __ATOMIC_ACQUIRE) && !thread_done(&s.t))
			sleep_ms(1);
		/* Else it may be the expiry of a setting before. */
		stands = __atomic_load_n(&s.gate.reached, __ATOMIC_ACQUIRE);
		p = (struct pollfd){.fd = s.fd, .events = POLLIN};
		/* The kernel's, beside Pollux. */
		if (stands)
			assert_int_equal(poll(&p, 1, SOON_MS), 1);
		sleep_ms(20);
		gate_open(&s.gate);
		thread_join(&s.t);
		sleep_ms(20);
		if (stands && thread_done(&w.t)) {
			assert_int_equal(s.left, 0);
			told++;
		}
		set(s.fd, 1, 0);
		thread_join(&w.t);
		assert_int_equal(w.n, 1);
		pollux_close(s.fd);
		pollux_close(w.ep);
	}
	print_message("%lu rounds, %lu told\n", rounds, told);
	assert_true(told > 3);
}

/* --- at random ---------------------------------------------------------------------------- */

#define WORLDS 3
#define TIMERS 3
#define WAITERS 3
#define SETTERS 2

struct timer {
	int fd;
	/* Its number is another than that of its registration. */
	bool renumbered;
	pthread_mutex_t mutex;
	/* Odd: it is being set. */
	uint32_t seq;
	/* The seq whose expiry a wait has reported. */
	uint32_t told;
	/* The setting expires not before lo, and, but for the interrupt, not after hi. */
	int64_t lo, hi, interval;
	uint64_t taken;
};

struct world {
	struct thread t;
	int ep, efd, waiters;
	int stop_setters, stop_waiters;
	uint32_t r;
	struct timer timers[TIMERS];
};

struct part {
	struct thread t;
	struct world *w;
	uint32_t r;
};

static unsigned long reported, taken, settings, meddled, rounds_done, forks, sendings, renumbered;

/* The mutex is held. */
static void set_timer(struct timer *t, int64_t ms, int64_t interval_ms)
{
	int64_t was_lo = t->lo, was_interval = t->interval, before, after, left;
	uint32_t seq = atomic_get(&t->seq);
	bool told = atomic_get(&t->told) == seq;

	atomic_set(&t->seq, seq + 1);
	before = now_ns();
	left = set(t->fd, ms, interval_ms);
	after = now_ns();
	if (!was_interval) {
		if (left && (told || was_lo == NEVER))
			broken("%lld ns are left of a timer that has expired", (long long)left);
		if (left && left > t->hi - before)
			broken("%lld ns are left, more than was set", (long long)left);
		if (!left && was_lo != NEVER && after < was_lo)
			broken("nothing is left of a timer that runs");
	}
	atomic_set(&t->lo, ms ? before + ms * MS : NEVER);
	t->hi = ms ? after + ms * MS : NEVER;
	t->interval = ms ? interval_ms * MS : 0;
	t->taken = 0;
	atomic_set(&t->seq, seq + 2);
	atomic_add(&settings, 1);
}

static void setter(struct thread *t)
{
	struct part *p = t->arg;

	while (!atomic_get(&p->w->stop_setters) && !stopping()) {
		struct timer *timer = &p->w->timers[rnd(&p->r) % TIMERS];
		int row = (int)(rnd(&p->r) % 12);

		pthread_mutex_lock(&timer->mutex);
		for (int i = 0; i < row; i++) {
			uint32_t r = rnd(&p->r);
			int64_t ms = 22 + r % 30;

			if (i == row - 1)
				ms = (r >> 8) % 8 == 0	 ? 0
				     : (r >> 8) % 8 == 1 ? 1 + r % 5
							 : 30 + r % 40;
			set_timer(timer, ms, i == row - 1 && (r >> 16) % 3 == 0 ? 7 : 0);
		}
		pthread_mutex_unlock(&timer->mutex);
		if (rnd(&p->r) % 4 == 0)
			sleep_ms((int)(rnd(&p->r) % 60));
		else
			sched_yield();
	}
}

/* The mutex is held. fd: one of its numbers. */
static void read_at(struct timer *t, int fd)
{
	int64_t before, after;
	uint64_t n = 0;
	ssize_t r;

	before = now_ns();
	r = pollux_read(fd, &n, sizeof(n));
	after = now_ns();
	if (r == sizeof(n)) {
		int64_t most = 1, least = 1;

		if (after < t->lo)
			broken("a read has %llu before the time", (unsigned long long)n);
		if (t->interval) {
			most = (after - t->lo) / t->interval + 1;
			least = before >= t->hi ? (before - t->hi) / t->interval + 1 : 1;
		} else {
			atomic_set(&t->lo, NEVER);
		}
		t->taken += n;
		if ((int64_t)t->taken > most || (int64_t)t->taken < least)
			broken("%llu expirations, not %lld to %lld", (unsigned long long)t->taken,
			       (long long)least, (long long)most);
		atomic_add(&taken, 1);
	} else if (r != -1 || errno != EAGAIN) {
		broken("a read failed: %s", strerror(errno));
	} else if (t->lo != NEVER && !t->taken && before >= t->hi + LATE) {
		broken("nothing to read %lld ns after the time", (long long)(before - t->hi));
	}
}

static void read_timer(struct timer *t)
{
	pthread_mutex_lock(&t->mutex);
	read_at(t, t->fd);
	pthread_mutex_unlock(&t->mutex);
}

/* One that is slow to say so does not undo what has been said of a later setting. */
static void tell(struct timer *t, uint32_t seq)
{
	uint32_t told = atomic_get(&t->told);

	while (told < seq && !__atomic_compare_exchange_n(&t->told, &told, seq, false,
							  __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

static void wait_once(struct world *w, int timeout, bool reads)
{
	struct epoll_event ev[TIMERS + 1];
	uint32_t seq[TIMERS];
	int64_t lo[TIMERS], now;
	int n;

	for (int i = 0; i < TIMERS; i++) {
		seq[i] = atomic_get(&w->timers[i].seq);
		lo[i] = atomic_get(&w->timers[i].lo);
	}
	n = pollux_epoll_wait(w->ep, ev, TIMERS + 1, timeout);
	now = now_ns();
	if (n < 0)
		broken("a wait failed: %s", strerror(errno));
	for (int k = 0; k < n; k++) {
		uint64_t i = ev[k].data.u64;
		struct timer *t = &w->timers[i];

		if (i == TIMERS)
			continue;
		if (i > TIMERS || ev[k].events != EPOLLIN) {
			broken("an event of nobody: %#llx", (unsigned long long)i);
			return;
		}
		/* Set in the meantime, or about to be. */
		if ((seq[i] & 1) || atomic_get(&t->seq) != seq[i])
			continue;
		if (now < lo[i])
			broken("an event comes %lld ns before its time",
			       lo[i] == NEVER ? -1 : (long long)(lo[i] - now));
		tell(t, seq[i]);
		atomic_add(&reported, 1);
		if (reads)
			read_timer(t);
	}
	if (n > 0)
		sleep_ms(1);
}

static void waiter(struct thread *t)
{
	static const int timeouts[] = {0, 1, 5, 40, 40};
	struct part *p = t->arg;

	while (!atomic_get(&p->w->stop_waiters) && !stopping()) {
		uint32_t r = rnd(&p->r);

		wait_once(p->w, timeouts[r % 5], r >> 16 & 1);
		if (r >> 20 & 1)
			sched_yield();
	}
}

static void leaves(int fd)
{
	plx_px_escape(fd, PLX_OUT_SCM_RIGHTS);
}

/* Another number for it, of the kernel's, as another process would have it. */
static int sent(int fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {.room = {0}};
	struct iovec iov = {.iov_base = (char[1]){0}, .iov_len = 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.room,
			   .msg_controllen = sizeof(control.room)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int pair[2];

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	check(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) == 0);
	plx_px_passed(&m, leaves);
	check(sendmsg(pair[0], &m, 0) == 1);
	check(recvmsg(pair[1], &m, MSG_CMSG_CLOEXEC) == 1);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	close(pair[0]);
	close(pair[1]);
	return fd;
}

/* In another process, too, for a moment. */
static void forked(void)
{
	pid_t pid = pollux_fork();

	if (pid == 0)
		_exit(0);
	check(pid > 0 && waitpid(pid, NULL, 0) == pid);
}

/* It goes on under another number. */
static void renumber(struct timer *t)
{
	int fd;

	pthread_mutex_lock(&t->mutex);
	fd = pollux_fcntl(t->fd, F_DUPFD, 0);
	check(fd >= 0);
	pollux_close(t->fd);
	t->fd = fd;
	t->renumbered = true;
	pthread_mutex_unlock(&t->mutex);
}

/* What ends that settings are put off, for a while or for good. */
static void meddle(struct world *w, uint32_t r)
{
	uint32_t i = r % TIMERS;
	struct timer *t = &w->timers[i];
	struct itimerspec left;
	struct pollfd p;
	int fd;

	switch (r >> 8 & 15) {
	case 0:
		/*
		 * Not by dup, of which ThreadSanitizer hears, and then thinks that the number still
		 * is what another world has closed, of which it does not.
		 */
		fd = pollux_fcntl(t->fd, F_DUPFD, 0);
		check(fd >= 0);
		pollux_close(fd);
		break;
	case 1:
		if (t->renumbered)
			return;
		check(ctl(w->ep, EPOLL_CTL_MOD, t->fd, i) == 0);
		break;
	case 2:
		if (t->renumbered)
			return;
		check(ctl(w->ep, EPOLL_CTL_DEL, t->fd, 0) == 0);
		sched_yield();
		check(ctl(w->ep, EPOLL_CTL_ADD, t->fd, i) == 0);
		break;
	case 3:
		fd = ep_with(t->fd, 1);
		sched_yield();
		pollux_close(fd);
		break;
	case 4:
		p = (struct pollfd){.fd = t->fd, .events = POLLIN};
		check(pollux_poll(&p, 1, 0) >= 0);
		break;
	case 5:
		check(pollux_write(w->efd, &(uint64_t){1}, 8) == 8);
		check(pollux_read(w->efd, &(uint64_t){0}, 8) == 8);
		break;
	case 6:
		/* From now on the set has two sides. */
		(void)ctl(w->ep, EPOLL_CTL_ADD, w->efd, TIMERS);
		break;
	case 7:
		pollux_escape(w->efd);
		break;
	case 8:
		/* A second number of the set comes and goes. */
		fd = pollux_dup(w->ep);
		check(fd >= 0);
		sched_yield();
		pollux_close(fd);
		break;
	case 9:
		if (r >> 12 & 3)
			return;
		forked();
		atomic_add(&forks, 1);
		break;
	case 10:
		fd = sent(t->fd);
		pthread_mutex_lock(&t->mutex);
		read_at(t, fd);
		pthread_mutex_unlock(&t->mutex);
		close(fd);
		atomic_add(&sendings, 1);
		break;
	case 11:
		close(sent(w->ep));
		break;
	case 12:
		/* Its registration stays, under a number that means nothing. */
		renumber(t);
		check(ctl(w->ep, EPOLL_CTL_DEL, t->fd, 0) == -1 && errno == ENOENT);
		atomic_add(&renumbered, 1);
		break;
	default:
		if (plx_px_timerfd_gettime(t->fd, &left) != 0)
			check(timerfd_gettime(t->fd, &left) == 0);
		return;
	}
	atomic_add(&meddled, 1);
}

static bool all_told(struct world *w)
{
	for (int i = 0; i < TIMERS; i++)
		if (atomic_get(&w->timers[i].told) != atomic_get(&w->timers[i].seq))
			return false;
	return true;
}

static void world_round(struct world *w)
{
	struct part setters[SETTERS], waiters[WAITERS];
	int64_t end;

	w->stop_setters = w->stop_waiters = 0;
	w->waiters = (int)(rnd(&w->r) % (WAITERS + 1));
	w->ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	w->efd = pollux_eventfd(0, EFD_NONBLOCK);
	if (rnd(&w->r) % 3 == 0)
		check(ctl(w->ep, EPOLL_CTL_ADD, w->efd, TIMERS) == 0);
	for (int i = 0; i < TIMERS; i++) {
		w->timers[i] = (struct timer){.fd = timer_new(), .lo = NEVER, .told = 1};
		pthread_mutex_init(&w->timers[i].mutex, NULL);
		check(ctl(w->ep, EPOLL_CTL_ADD, w->timers[i].fd, (uint64_t)i) == 0);
	}
	for (int i = 0; i < w->waiters; i++) {
		waiters[i] = (struct part){.w = w, .r = rnd(&w->r)};
		thread_start(&waiters[i].t, waiter, &waiters[i]);
	}
	for (int i = 0; i < SETTERS; i++) {
		setters[i] = (struct part){.w = w, .r = rnd(&w->r)};
		thread_start(&setters[i].t, setter, &setters[i]);
	}
	for (int i = (int)(rnd(&w->r) % 6); i >= 0 && !stopping(); i--) {
		if (rnd(&w->r) % 2)
			sleep_ms((int)(rnd(&w->r) % 60));
		else if (!w->waiters)
			wait_once(w, (int)(rnd(&w->r) % 60), true);
		meddle(w, rnd(&w->r));
	}
	atomic_set(&w->stop_setters, 1);
	for (int i = 0; i < SETTERS; i++)
		thread_join(&setters[i].t);
	/* What comes last is reported. */
	for (int i = 0; i < TIMERS; i++) {
		struct timer *t = &w->timers[i];

		pthread_mutex_lock(&t->mutex);
		for (int k = 0; k < ROW; k++)
			set_timer(t, 30, 0);
		set_timer(t, 31 + rnd(&w->r) % 30, 0);
		pthread_mutex_unlock(&t->mutex);
	}
	end = now_ns() + SOON_MS * 1000000ll;
	while (!all_told(w) && now_ns() < end && !stopping()) {
		if (w->waiters)
			sleep_ms(2);
		else
			wait_once(w, SOON_MS, false);
	}
	if (!all_told(w) && !stopping())
		broken("a timer is due and not reported");
	atomic_set(&w->stop_waiters, 1);
	for (int i = 0; i < w->waiters; i++)
		thread_join(&waiters[i].t);
	for (int i = 0; i < TIMERS; i++) {
		pollux_close(w->timers[i].fd);
		pthread_mutex_destroy(&w->timers[i].mutex);
	}
	pollux_close(w->efd);
	pollux_close(w->ep);
	atomic_add(&rounds_done, 1);
}

static void world_main(struct thread *t)
{
	struct world *w = t->arg;

	while (!stopping())
		world_round(w);
}

static bool met(void)
{
	return atomic_get(&reported) > 20 && atomic_get(&taken) > 10 && atomic_get(&meddled) > 10 &&
	       atomic_get(&rounds_done) > 10 && atomic_get(&forks) > 0 &&
	       atomic_get(&sendings) > 3 && atomic_get(&renumbered) > 3 &&
	       points_passed("timer_said") > 50 && points_passed("timer_true") > 20 &&
	       points_passed("timer_leave") > 5 && points_passed("timer_soon") > 5;
}

static void all_at_once(void **state)
{
	static struct world worlds[WORLDS];
	struct thread t[WORLDS];

	(void)state;
	torture_begin();
	for (int i = 0; i < WORLDS; i++) {
		worlds[i].r = (uint32_t)i + 17;
		thread_start(&t[i], world_main, &worlds[i]);
	}
	torture_sleep_until(met());
	torture_end(t, WORLDS);
	print_message("%lu rounds, %lu settings, put off %lu times, made true %lu times, laziness "
		      "ended %lu times, %lu reports, %lu reads, %lu other calls, of which %lu "
		      "forks, %lu sent, "
		      "%lu renumbered\n",
		      rounds_done, settings, points_passed("timer_said"),
		      points_passed("timer_true"), points_passed("timer_leave"), reported, taken,
		      meddled, forks, sendings, renumbered);
	assert_true(met());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nobody_waits_for_a_hand),
		TEST(no_slot_for_an_early_expiry),
		TEST(what_was_told_has_expired),
		TEST(all_at_once),
	};

	return RUN(tests);
}
