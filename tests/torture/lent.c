/* SPDX-License-Identifier: MIT */
/*
 * What a fork has lent to the kernel comes back while other threads use it: no write is lost or
 * counted twice, no sleeper is left asleep, and calls that are on their way when it comes back find
 * it where it is (src/posix/lent.c).
 */
#include "torture.h"

#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include <pollux/posix.h>

#include "posix/front.h"

#define LONG_MS 30000

static int add(int ep, int fd, uint64_t data)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = data};

	return pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

static int new_efd(void)
{
	int fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static int new_ep(void)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC);

	assert_true(ep >= 0);
	return ep;
}

static bool put(int fd, uint64_t v)
{
	return pollux_write(fd, &v, sizeof(v)) == sizeof(v);
}

/* What a read yields; 0 when it fails. */
static uint64_t get(int fd)
{
	uint64_t v;

	return pollux_read(fd, &v, sizeof(v)) == sizeof(v) ? v : 0;
}

/* A child that ends at once, by itself or not. */
static void child_that_ends(uint32_t how)
{
	int status;
	pid_t pid = pollux_fork();

	if (pid == 0) {
		if (how % 4 == 0)
			for (;;)
				pause();
		if (how % 4 == 1)
			execl("/bin/true", "true", NULL);
		_exit(0);
	}
	if (pid < 0)
		broken("no child");
	if (how % 4 == 0)
		kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid)
		broken("the child is not there");
}

/* As the drop-in does it: what is not inherited stays, and what is lent may come back beside it. */
static void spawned(void)
{
	char *argv[] = {"true", NULL}, *none[] = {NULL};
	int status;
	pid_t pid;

	plx_px_escape_inherited(PLX_OUT_SPAWN);
	check(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, none) == 0);
	check(waitpid(pid, &status, 0) == pid && status == 0);
}

static uint32_t returns(void)
{
	return __atomic_load_n(&plx_lent.returns, __ATOMIC_RELAXED);
}

/* --- two that talk to each other ------------------------------------------------------- */

struct side {
	int ep, mine, theirs;
	unsigned long turns;
	int *stop;
};

static void talks(struct thread *t)
{
	struct side *s = t->arg;

	while (!stopping()) {
		struct epoll_event ev[2];
		uint64_t v;
		int n;

		/* Ignored signals that come while another thread has them blocked. */
		do {
			n = pollux_epoll_wait(s->ep, ev, 2, LONG_MS);
		} while (n < 0 && errno == EINTR);
		/* Woken for that. */
		if (atomic_get(s->stop))
			return;
		if (n != 1 || ev->data.u64 != (uint64_t)s->mine || ev->events != EPOLLIN) {
			broken("a wait gave %d, errno %d", n, errno);
			return;
		}
		v = get(s->mine);
		if (v != 1) {
			if (!atomic_get(s->stop))
				broken("a message counts %llu", (unsigned long long)v);
			return;
		}
		atomic_add(&s->turns, 1);
		if (!put(s->theirs, 1))
			broken("a write failed");
	}
}

static void messages_through_forks(void **state)
{
	struct side side[2];
	struct thread t[2];
	uint32_t before = 0, ways = 0, r = 11;
	int64_t start = now_ns();
	unsigned long forks = 0;
	int stop = 0;

	(void)state;
	torture_begin();
	for (int i = 0; i < 2; i++)
		side[i] = (struct side){.ep = new_ep(), .mine = new_efd(), .stop = &stop};
	for (int i = 0; i < 2; i++) {
		side[i].theirs = side[!i].mine;
		assert_int_equal(add(side[i].ep, side[i].mine, side[i].mine), 0);
	}
	for (int i = 0; i < 2; i++)
		thread_start(&t[i], talks, &side[i]);
	assert_true(put(side[0].mine, 1));
	for (; torture_until(start, ways >= 3); forks++) {
		unsigned long at = atomic_get(&side[0].turns);

		child_that_ends(rnd(&r));
		/* However often all has come back before. */
		__atomic_store_n(&plx_lent.returns, before, __ATOMIC_RELAXED);
		__atomic_store_n(&plx_lent.idle_forks, 0, __ATOMIC_RELAXED);
		/* They have to be able to talk. */
		for (int i = 0; i < 200 && !stopping() && atomic_get(&side[0].turns) - at < 50; i++)
			usleep(100);
		ways += returns() - before;
	}
	atomic_set(&stop, 1);
	for (int i = 0; i < 2; i++)
		assert_true(put(side[i].mine, 1));
	torture_end(t, 2);
	print_message("%lu forks, %lu messages, %u ways back\n", forks, side[0].turns, ways);
	assert_true(ways > 0);
	for (int i = 0; i < 2; i++) {
		pollux_close(side[i].ep);
		pollux_close(side[i].mine);
	}
}

/* --- many that write to one ------------------------------------------------------------ */

#define FILES 4
#define WRITERS 3

struct many {
	int ep, fd[FILES];
	unsigned long written, seen;
	int stop;
};

static void writes(struct thread *t)
{
	struct many *m = t->arg;
	uint32_t r = 77 + (uint32_t)(uintptr_t)t;

	while (!atomic_get(&m->stop) && !stopping()) {
		if (!put(m->fd[rnd(&r) % FILES], 1))
			broken("a write failed");
		atomic_add(&m->written, 1);
		usleep(rnd(&r) % 300);
	}
}

/* Objects that come and go. */
static void makes(struct thread *t)
{
	struct many *m = t->arg;

	while (!atomic_get(&m->stop) && !stopping()) {
		int fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

		if (fd < 0 || add(m->ep, fd, 100) != 0 || !put(fd, 1) || get(fd) != 1)
			broken("a new eventfd");
		if (pollux_epoll_ctl(m->ep, EPOLL_CTL_DEL, fd, NULL) != 0)
			broken("a new eventfd is not registered");
		pollux_close(fd);
		usleep(500);
	}
}

static void reads(struct thread *t)
{
	struct many *m = t->arg;

	while (!atomic_get(&m->stop) && !stopping()) {
		struct epoll_event ev[FILES + 1];
		uint32_t seen = 0;
		int n = pollux_epoll_wait(m->ep, ev, FILES + 1, 10);

		for (int i = 0; i < n; i++) {
			if (ev[i].data.u64 == 100)
				continue;
			if (seen & 1u << ev[i].data.u64)
				broken("an item twice in a wait");
			seen |= 1u << ev[i].data.u64;
			m->seen += get(m->fd[ev[i].data.u64]);
		}
	}
}

static void counts_through_forks(void **state)
{
	struct many m = {.ep = new_ep()};
	uint32_t before = 0, r = 12, ways = 0;
	struct thread t[WRITERS + 2];
	int64_t start = now_ns();
	unsigned long forks = 0;

	(void)state;
	torture_begin();
	for (int i = 0; i < FILES; i++) {
		m.fd[i] = new_efd();
		assert_int_equal(add(m.ep, m.fd[i], i), 0);
	}
	thread_start(&t[0], reads, &m);
	thread_start(&t[1], makes, &m);
	for (int i = 0; i < WRITERS; i++)
		thread_start(&t[2 + i], writes, &m);
	for (; torture_until(start, ways >= 3); forks++) {
		child_that_ends(rnd(&r));
		/* However often all has come back before. */
		__atomic_store_n(&plx_lent.returns, before, __ATOMIC_RELAXED);
		__atomic_store_n(&plx_lent.idle_forks, 0, __ATOMIC_RELAXED);
		usleep(rnd(&r) % 10000);
		ways += returns() - before;
	}
	atomic_set(&m.stop, 1);
	torture_end(t, WRITERS + 2);
	for (int i = 0; i < FILES; i++)
		m.seen += get(m.fd[i]);
	print_message("%lu forks, %lu writes, %u ways back\n", forks, m.written, ways);
	assert_int_equal(m.seen, m.written);
	assert_true(ways > 0);
	for (int i = 0; i < FILES; i++)
		pollux_close(m.fd[i]);
	pollux_close(m.ep);
}

/* --- several epolls, a timer, children of children ------------------------------------------- */

#define EPS 3
#define BYE FILES
#define TICK (FILES + 1)
#define NEW 100
#define TICK_NS 3000000ll

struct several {
	int ep[EPS], fd[FILES], bye[EPS], tick;
	uint64_t written, seen, ticks;
	/* The writers have stopped for a moment. */
	int pause, pauses, paused, stop, over;
	/* What the other process has done. */
	uint64_t theirs;
};

struct several_part {
	struct thread t;
	struct several *s;
	int ep;
	uint32_t r;
};

static void several_waits(struct thread *t)
{
	struct several_part *p = t->arg;
	struct several *s = p->s;

	while (!atomic_get(&s->over) && !stopping()) {
		struct epoll_event ev[FILES + 3];
		uint32_t seen = 0;
		int n = pollux_epoll_wait(s->ep[p->ep], ev, 1 + (int)(rnd(&p->r) % (FILES + 3)),
					  LONG_MS);

		if (n <= 0 && errno != EINTR)
			broken("a wait gave %d, errno %d", n, errno);
		for (int i = 0; i < n; i++) {
			uint64_t at = ev[i].data.u64;

			if (at == NEW)
				continue;
			if (at > TICK || seen & 1u << at || ev[i].events != EPOLLIN) {
				broken("event %#x of %llu, of %d", ev[i].events,
				       (unsigned long long)at, n);
				return;
			}
			seen |= 1u << at;
			/* Others may have been quicker. */
			if (at < FILES)
				atomic_add(&s->seen, get(s->fd[at]));
			else if (at == TICK)
				atomic_add(&s->ticks, get(s->tick));
		}
	}
}

static void several_writes(struct thread *t)
{
	struct several_part *p = t->arg;
	struct several *s = p->s;

	while (!atomic_get(&s->stop) && !stopping()) {
		uint64_t v = 1 + rnd(&p->r) % 3;

		int pause = atomic_get(&s->pause);

		if (pause) {
			atomic_add(&s->paused, 1);
			/* The next one may have begun before this thread hears of the end. */
			while (atomic_get(&s->pause) == pause && !stopping())
				usleep(100);
			continue;
		}
		atomic_add(&s->written, v);
		if (!put(s->fd[rnd(&p->r) % FILES], v))
			broken("a write failed: %s", strerror(errno));
		usleep(rnd(&p->r) % 200);
	}
}

static void several_meddles(struct thread *t)
{
	struct several_part *p = t->arg;
	struct several *s = p->s;

	while (!atomic_get(&s->stop) && !stopping()) {
		struct epoll_event ev = {.events = EPOLLIN};
		uint32_t r = rnd(&p->r);
		int fd, at = (int)(r >> 4) % FILES, ep = s->ep[(r >> 8) % EPS];

		ev.data.u64 = (uint64_t)at;
		switch (r % 4) {
		case 0:
			check(pollux_epoll_ctl(ep, EPOLL_CTL_MOD, s->fd[at], &ev) == 0);
			break;
		case 1:
			check(pollux_epoll_ctl(ep, EPOLL_CTL_DEL, s->fd[at], NULL) == 0);
			check(pollux_epoll_ctl(ep, EPOLL_CTL_ADD, s->fd[at], &ev) == 0);
			break;
		case 2:
			/* Closed with what is in it. */
			fd = new_efd();
			check(add(ep, fd, NEW) == 0 && put(fd, 1));
			pollux_close(fd);
			break;
		default:
			check(get(s->bye[0]) == 0);
		}
		usleep((r >> 16) % 500);
	}
}

/* Its end is not the end of all that has copies. */
static void generations(uint32_t r)
{
	int status;
	pid_t pid = pollux_fork();

	if (pid == 0) {
		if (pollux_fork() == 0) {
			usleep(r % 2000);
			if (r & 4096)
				execl("/bin/true", "true", NULL);
		}
		_exit(0);
	}
	check(pid > 0 && waitpid(pid, &status, 0) == pid);
}

static bool several_all(struct several *s)
{
	return atomic_get(&s->seen) == atomic_get(&s->written);
}

/* Every write has been heard of, and read, when all are quiet. */
static void several_quiet(struct several *s, int writers)
{
	atomic_set(&s->paused, 0);
	atomic_set(&s->pause, ++s->pauses);
	if (!await(stopping() || (atomic_get(&s->paused) >= writers && several_all(s))))
		broken("%llu written, %llu read, %d of %d paused",
		       (unsigned long long)atomic_get(&s->written),
		       (unsigned long long)atomic_get(&s->seen), (int)atomic_get(&s->paused),
		       writers);
	atomic_set(&s->pause, 0);
}

static void several_begin(struct several *s)
{
	const struct itimerspec tick = {.it_value.tv_nsec = TICK_NS,
					.it_interval.tv_nsec = TICK_NS};

	for (int i = 0; i < FILES; i++)
		s->fd[i] = new_efd();
	for (int e = 0; e < EPS; e++) {
		s->ep[e] = new_ep();
		s->bye[e] = new_efd();
		check(add(s->ep[e], s->bye[e], BYE) == 0);
		for (int i = 0; i < FILES; i++)
			check(add(s->ep[e], s->fd[i], (uint64_t)i) == 0);
	}
	s->tick = (int)plx_px_timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	check(add(s->ep[0], s->tick, TICK) == 0);
	if (plx_px_timerfd_settime(s->tick, 0, &tick, NULL) != 0)
		check(timerfd_settime(s->tick, 0, &tick, NULL) == 0);
}

static void several_end(struct several *s)
{
	for (int e = 0; e < EPS; e++) {
		pollux_close(s->ep[e]);
		pollux_close(s->bye[e]);
	}
	for (int i = 0; i < FILES; i++)
		pollux_close(s->fd[i]);
	pollux_close(s->tick);
}

/* Threads that use everything, while fn goes on. */
static void several_beside(struct several *s, bool (*fn)(struct several *s, uint32_t *r))
{
	struct several_part p[EPS + WRITERS + 1];
	int64_t begun, ticks, now;
	uint32_t r = 31;

	several_begin(s);
	begun = now_ns();
	for (int i = 0; i < EPS + WRITERS + 1; i++) {
		p[i] = (struct several_part){.s = s, .ep = i, .r = rnd(&r)};
		thread_start(&p[i].t,
			     i < EPS		 ? several_waits
			     : i < EPS + WRITERS ? several_writes
						 : several_meddles,
			     &p[i]);
	}
	while (!stopping() && fn(s, &r))
		several_quiet(s, WRITERS);
	several_quiet(s, WRITERS);
	atomic_set(&s->stop, 1);
	for (int i = EPS; i < EPS + WRITERS + 1; i++)
		thread_join(&p[i].t);
	atomic_set(&s->over, 1);
	for (int e = 0; e < EPS; e++)
		check(put(s->bye[e], 1));
	for (int i = 0; i < EPS; i++)
		thread_join(&p[i].t);
	now = now_ns();
	s->ticks += get(s->tick);
	ticks = (now - begun) / TICK_NS;
	if ((int64_t)s->ticks > (now_ns() - begun) / TICK_NS + 1 || (int64_t)s->ticks < ticks - 1)
		broken("%llu expirations, not %lld", (unsigned long long)s->ticks,
		       (long long)ticks);
	check(several_all(s));
	several_end(s);
}

static int64_t several_start;
static unsigned long several_forks;
static uint32_t several_before, several_ways;

static bool forks_of_all_kinds(struct several *s, uint32_t *r)
{
	(void)s;
	if (rnd(r) % 3)
		child_that_ends(rnd(r));
	else
		generations(rnd(r));
	if (rnd(r) % 2)
		spawned();
	several_forks++;
	__atomic_store_n(&plx_lent.returns, several_before, __ATOMIC_RELAXED);
	__atomic_store_n(&plx_lent.idle_forks, 0, __ATOMIC_RELAXED);
	/* Waits go on, by which it may come back: one of them tries it each time, not one in 4096.
	 */
	for (uint32_t i = rnd(r) % 200; i && !stopping() && returns() == several_before; i--) {
		__atomic_store_n(&plx_lent.next, 0, __ATOMIC_RELAXED);
		usleep(100);
	}
	usleep(rnd(r) % 1000);
	several_ways += returns() - several_before;
	return torture_until(several_start, several_ways >= 3);
}

static void several_through_forks(void **state)
{
	struct several s = {0};

	(void)state;
	torture_begin();
	several_start = now_ns();
	several_beside(&s, forks_of_all_kinds);
	assert_false(torture_failed);
	print_message("%lu forks, %llu written, %llu expirations, %u ways back\n", several_forks,
		      (unsigned long long)s.written, (unsigned long long)s.ticks, several_ways);
	assert_true(several_ways > 0);
}

/* --- calls that meet the way back -------------------------------------------------------- */

struct met {
	int ep, fd;
	struct gate gate;
	const char *point;
	bool (*call)(struct met *m);
	int done;
};

static struct met met_begin(const char *point, bool (*call)(struct met *m))
{
	struct met m = {.ep = new_ep(), .fd = new_efd(), .point = point, .call = call};

	torture_begin();
	points_delay(false);
	/* However often all has come back before. */
	plx_lent.returns = plx_lent.idle_forks = 0;
	assert_int_equal(add(m.ep, m.fd, 1), 0);
	child_that_ends(2);
	assert_int_equal(pollux_fd_served(m.fd), 0);
	return m;
}

static void met_end(struct met *m)
{
	pollux_close(m->fd);
	pollux_close(m->ep);
	points_delay(true);
}

static void stops(struct thread *t)
{
	struct met *m = t->arg;

	if (m->point)
		gate_arm(&m->gate, m->point);
	if (!m->call(m))
		broken("the call failed");
	atomic_set(&m->done, 1);
}

static bool one_more(struct met *m)
{
	return put(m->fd, 1);
}

/* Waits until it is back, or has had every opportunity. */
static bool comes_back(struct met *m)
{
	struct epoll_event ev[2];

	for (int i = 0; i < 40 && pollux_fd_served(m->fd) != 1; i++)
		assert_uint_in_range(pollux_epoll_wait(m->ep, ev, 2, 0), 0, 1);
	return pollux_fd_served(m->fd) == 1;
}

static void a_write_that_is_not_counted_yet(void **state)
{
	struct met m = met_begin("lent_enter", one_more);
	struct thread t;

	(void)state;
	thread_start(&t, stops, &m);
	assert_true(gate_reached(&m.gate));
	assert_true(comes_back(&m));
	gate_open(&m.gate);
	torture_end(&t, 1);
	assert_int_equal(get(m.fd), 1);
	met_end(&m);
}

static void a_write_that_is_under_way(void **state)
{
	struct met m = met_begin("lent_leave", one_more);
	struct thread t;

	(void)state;
	thread_start(&t, stops, &m);
	assert_true(gate_reached(&m.gate));
	assert_false(comes_back(&m));
	gate_open(&m.gate);
	torture_end(&t, 1);
	assert_true(comes_back(&m));
	assert_int_equal(get(m.fd), 1);
	met_end(&m);
}

static bool looks(struct met *m)
{
	struct epoll_event ev;

	return pollux_epoll_wait(m->ep, &ev, 1, 0) == 0;
}

static void a_write_while_it_comes_back(void **state)
{
	struct met back = met_begin("lent_back", looks), m = back;
	struct thread t[2];

	(void)state;
	m.point = NULL;
	m.call = one_more;
	thread_start(&t[0], stops, &back);
	assert_true(gate_reached(&back.gate));
	thread_start(&t[1], stops, &m);
	usleep(20000);
	assert_false(atomic_get(&m.done));
	gate_open(&back.gate);
	torture_end(t, 2);
	assert_int_equal(pollux_fd_served(m.fd), 1);
	assert_int_equal(get(m.fd), 1);
	met_end(&m);
}

static bool sleeps(struct met *m)
{
	struct epoll_event ev;

	int n;

	do {
		n = pollux_epoll_wait(m->ep, &ev, 1, LONG_MS);
	} while (n < 0 && errno == EINTR);
	return n == 1 && ev.data.u64 == 1;
}

static bool sees(struct met *m)
{
	struct epoll_event ev[2];

	for (int i = 0; i < 40 && pollux_fd_served(m->fd) != 1; i++)
		if (pollux_epoll_wait(m->ep, ev, 2, 0) != 1 || ev[0].data.u64 != 1)
			return false;
	return true;
}

/* In another epoll, since before the fork: it is found there by what comes later. */
static void a_sleeper_of_another_epoll(void **state)
{
	struct met m = {.ep = new_ep(), .fd = new_efd(), .call = sleeps};
	int ep = new_ep(), fd = new_efd();
	struct epoll_event ev;
	struct thread t;

	(void)state;
	torture_begin();
	points_delay(false);
	plx_lent.returns = plx_lent.idle_forks = 0;
	assert_int_equal(add(m.ep, m.fd, 1), 0);
	assert_int_equal(add(ep, fd, 2), 0);
	thread_start(&t, stops, &m);
	while (!__atomic_load_n(&plx_file_front(plx_table_peek(m.ep))->ep->sleepers,
				__ATOMIC_ACQUIRE))
		usleep(100);
	child_that_ends(2);
	for (int i = 0; i < 40 && pollux_fd_served(fd) != 1; i++)
		assert_int_equal(pollux_epoll_wait(ep, &ev, 1, 0), 0);
	assert_int_equal(pollux_fd_served(fd), 1);
	assert_int_equal(pollux_fd_served(m.fd), 1);
	assert_true(put(m.fd, 1));
	torture_end(&t, 1);
	pollux_close(ep);
	pollux_close(fd);
	met_end(&m);
}

/* No wait brings back, for now; the next one does. */
static void back_later(bool later)
{
	__atomic_store_n(&plx_lent.next, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&plx_lent.hold, later, __ATOMIC_RELEASE);
}

/*
 * Sleepers of epolls that had nothing of ours before the fork. Here another epoll brings back, and
 * something is written as soon as the number is ours again.
 */
static void the_first_of_an_epoll(void **state)
{
	struct met back = {.ep = new_ep(), .fd = new_efd(), .point = "lent_numbers", .call = looks};
	struct met m = {.ep = new_ep(), .fd = back.fd, .point = "wait_before_sleep"};
	struct epoll_event ev;
	struct thread t[2];

	(void)state;
	torture_begin();
	points_delay(false);
	plx_lent.returns = plx_lent.idle_forks = 0;
	child_that_ends(2);
	back_later(true);
	m.call = sleeps;
	assert_int_equal(add(m.ep, m.fd, 1), 0);
	/* It is not on the list. */
	assert_int_equal(pollux_epoll_wait(m.ep, &ev, 1, 0), 0);
	thread_start(&t[1], stops, &m);
	assert_true(gate_reached(&m.gate));
	back_later(false);
	thread_start(&t[0], stops, &back);
	assert_true(gate_reached(&back.gate));
	assert_true(put(m.fd, 1));
	gate_open(&m.gate);
	usleep(20000);
	gate_open(&back.gate);
	torture_end(t, 2);
	assert_int_equal(pollux_fd_served(m.fd), 1);
	pollux_close(back.ep);
	met_end(&m);
}

/* And here it is ready when it comes back. */
static void the_first_of_its_own_epoll(void **state)
{
	struct met back = {.ep = new_ep(), .fd = new_efd(), .point = "lent_back"}, m;
	struct thread t[2];

	(void)state;
	torture_begin();
	points_delay(false);
	plx_lent.returns = plx_lent.idle_forks = 0;
	back.call = sees;
	child_that_ends(2);
	back_later(true);
	assert_int_equal(add(back.ep, back.fd, 1), 0);
	m = back;
	m.point = "wait_before_sleep";
	m.call = sleeps;
	thread_start(&t[1], stops, &m);
	assert_true(gate_reached(&m.gate));
	assert_true(put(back.fd, 1));
	back_later(false);
	thread_start(&t[0], stops, &back);
	assert_true(gate_reached(&back.gate));
	gate_open(&m.gate);
	usleep(20000);
	gate_open(&back.gate);
	torture_end(t, 2);
	assert_int_equal(pollux_fd_served(m.fd), 1);
	met_end(&m);
}

/* What it has to do with numbers ends the way back for good: each in a process of its own. */
static void apart(void (*fn)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		alarm(60);
		fn();
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static bool duplicates(struct met *m)
{
	int fd = pollux_dup(m->fd);

	return fd >= 0 && pollux_close(fd) == 0;
}

static void duplicate_apart(void)
{
	struct met m = met_begin("lent_never", duplicates);
	struct thread t;

	thread_start(&t, stops, &m);
	if (!gate_reached(&m.gate) || comes_back(&m))
		_exit(1);
	gate_open(&m.gate);
	torture_end(&t, 1);
	if (comes_back(&m) || !put(m.fd, 3) || get(m.fd) != 3)
		_exit(2);
	met_end(&m);
}

static void a_duplicate(void **state)
{
	(void)state;
	apart(duplicate_apart);
}

/* --- children that do something ------------------------------------------------------------ */

/* The exit status: whether it came back, plus what was read. */
static void with_child(void (*child)(int ep, int fd), int expected, bool back)
{
	struct met m = met_begin("", NULL);
	int status;
	pid_t pid = pollux_fork();

	if (pid == 0) {
		child(m.ep, m.fd);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status || comes_back(&m) != back ||
	    get(m.fd) != (uint64_t)expected)
		_exit(3);
	met_end(&m);
}

static void child_closes(int ep, int fd)
{
	pollux_close(fd);
	pollux_close(ep);
}

static void child_writes(int ep, int fd)
{
	(void)ep;
	if (!put(fd, 5))
		_exit(1);
}

static void child_waits(int ep, int fd)
{
	(void)fd;
	if (pollux_epoll_wait(ep, &(struct epoll_event){0}, 1, 0) != 0)
		_exit(1);
}

static void child_deletes(int ep, int fd)
{
	if (pollux_epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL) != 0)
		_exit(1);
}

static void grandchild_writes(int ep, int fd)
{
	int status;
	pid_t pid = pollux_fork();

	if (pid == 0) {
		child_writes(ep, fd);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		_exit(1);
}

static void closes_apart(void)
{
	with_child(child_closes, 0, true);
}

static void writes_apart(void)
{
	with_child(child_writes, 5, false);
}

static void waits_apart(void)
{
	with_child(child_waits, 0, false);
}

static void deletes_apart(void)
{
	with_child(child_deletes, 0, false);
}

static void grandchild_apart(void)
{
	with_child(grandchild_writes, 5, false);
}

/* The child ends, and leaves a process that still has all. */
static void orphan_apart(void)
{
	struct met m = met_begin("", NULL);
	int p[2], status;
	char c;
	pid_t pid;

	if (pipe(p))
		_exit(1);
	pid = pollux_fork();
	if (pid == 0) {
		if (pollux_fork() == 0) {
			close(p[1]);
			/* Until the other end is closed. */
			if (read(p[0], &c, 1) == 0)
				(void)put(m.fd, 7);
		}
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || comes_back(&m))
		_exit(2);
	close(p[1]);
	while (get(m.fd) != 7)
		usleep(1000);
	if (comes_back(&m))
		_exit(3);
	met_end(&m);
}

/* The first one that uses something ends it all, for good; what it does counts. */
static bool a_child_writes(struct several *s, uint32_t *r)
{
	static int rounds;
	int status, p[2];
	uint64_t done = 0;
	pid_t pid;

	check(pipe(p) == 0);
	pid = pollux_fork();
	if (pid == 0) {
		for (int i = 0; i < 50; i++) {
			usleep(rnd(r) % 100);
			if (put(s->fd[rnd(r) % FILES], 2))
				done += 2;
		}
		/* What is read is theirs. */
		done -= get(s->fd[0]);
		_exit(write(p[1], &done, sizeof(done)) != sizeof(done));
	}
	check(read(p[0], &done, sizeof(done)) == sizeof(done));
	atomic_add(&s->written, done);
	check(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	close(p[0]);
	close(p[1]);
	return ++rounds < 10;
}

static void used_beside_apart(void)
{
	struct several s = {0};

	torture_begin();
	several_beside(&s, a_child_writes);
	if (torture_failed)
		_exit(5);
}

static void children_that_use_it(void **state)
{
	(void)state;
	apart(closes_apart);
	apart(writes_apart);
	apart(waits_apart);
	apart(deletes_apart);
	apart(grandchild_apart);
	apart(orphan_apart);
	apart(used_beside_apart);
}

/* --- what does not come back ---------------------------------------------------------------- */

static void expect_lost(int ep, int fd)
{
	struct met m = {.ep = ep, .fd = fd};

	child_that_ends(2);
	if (comes_back(&m))
		_exit(4);
}

static void blocking_apart(void)
{
	int ep = new_ep(), fd = new_efd(), other = pollux_eventfd(0, EFD_CLOEXEC);

	torture_begin();
	if (other < 0 || add(ep, fd, 1) != 0)
		_exit(1);
	expect_lost(ep, fd);
}

static void second_number_apart(void)
{
	int ep = new_ep(), fd = new_efd();

	torture_begin();
	if (pollux_dup(fd) < 0 || add(ep, fd, 1) != 0)
		_exit(1);
	expect_lost(ep, fd);
}

static void left_before_apart(void)
{
	int ep = new_ep(), fd = new_efd(), other = new_efd();

	torture_begin();
	pollux_escape(other);
	if (add(ep, fd, 1) != 0)
		_exit(1);
	expect_lost(ep, fd);
}

static void edges_apart(void)
{
	int ep = new_ep(), fd = new_efd();
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};

	torture_begin();
	if (pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) != 0)
		_exit(1);
	expect_lost(ep, fd);
}

static void what_does_not_come_back(void **state)
{
	(void)state;
	apart(blocking_apart);
	apart(second_number_apart);
	apart(left_before_apart);
	apart(edges_apart);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_does_not_come_back),
		cmocka_unit_test(children_that_use_it),
		cmocka_unit_test(a_duplicate),
		cmocka_unit_test(a_write_that_is_not_counted_yet),
		cmocka_unit_test(a_write_that_is_under_way),
		cmocka_unit_test(a_write_while_it_comes_back),
		cmocka_unit_test(a_sleeper_of_another_epoll),
		cmocka_unit_test(the_first_of_an_epoll),
		cmocka_unit_test(the_first_of_its_own_epoll),
		cmocka_unit_test(messages_through_forks),
		cmocka_unit_test(counts_through_forks),
		cmocka_unit_test(several_through_forks),
	};

	plx_px_init();
	plx_px_adopt |= PLX_ADOPT_FORKED;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
