/* SPDX-License-Identifier: MIT */
/*
 * Cached eventfds (src/cache/eventfd.h): whatever is written, read, polled and flushed at the same
 * time, nothing is lost or counted twice, no wait sleeps beside a count, each write makes an edge,
 * and one wait reports an item once. A writer past us is seen, and ends it. So it is for objects
 * that are cached from their creation; for those that become hot; and for those that are cached by
 * chance, and not any more.
 */
#include "cache/eventfd.h"

#include "caller.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>

#include <pollux/posix.h>

/* What U holds. */
#define U_MAX 0xffff

static int new_ep(void)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC);

	assert_int_equal(pollux_fd_served(ep), 1);
	return ep;
}

static void watch(int ep, int fd, bool edge, uint64_t data)
{
	add_as(ep, fd, EPOLLIN | (edge ? EPOLLET : 0), data);
}

/* Small ones, some that fill U with another, and some that U cannot hold. */
static uint64_t value(uint32_t *r)
{
	uint32_t x = rnd(r);

	switch (x >> 8 & 15) {
	case 0:
		return U_MAX + 1 + (x >> 16);
	case 1:
		return 40000;
	default:
		return 1 + (x >> 16) % 5;
	}
}

static void put(int fd, uint64_t v)
{
	if (pollux_write(fd, &v, sizeof(v)) != sizeof(v))
		broken("a write failed: %s", strerror(errno));
}

/* 0: nothing was there. */
static uint64_t get(int fd)
{
	uint64_t v = 0;
	ssize_t n = pollux_read(fd, &v, sizeof(v));

	if (n != sizeof(v) && (n >= 0 || errno != EAGAIN))
		broken("a read failed: %s", strerror(errno));
	return n == sizeof(v) ? v : 0;
}

/* One of the calls that wait, on an object alone in its epoll. */
static void waits_for(int ep, int fd, int ms, uint32_t *r)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct epoll_event ev;
	int n;

	n = rnd(r) >> 8 & 1 ? pollux_poll(&p, 1, ms) : pollux_epoll_wait(ep, &ev, 1, ms);
	if (n < 0 || (ms < 0 && n != 1))
		broken("a wait ended with %d: %s", n, strerror(errno));
}

/* It is the kernel's from now on. */
static void flushes(int fd, uint32_t *r)
{
	struct timeval now = {0};
	fd_set set;
	int other;

	switch (rnd(r) >> 8 & 3) {
	case 0:
		other = pollux_dup(fd);
		check(other >= 0 && pollux_close(other) == 0);
		break;
	case 1:
		check(pollux_fcntl(fd, F_SETOWN, getpid()) == 0);
		break;
	case 2:
		FD_ZERO(&set);
		FD_SET(fd, &set);
		check(pollux_select(fd + 1, &set, NULL, NULL, &now) >= 0);
		break;
	default:
		pollux_escape(fd);
	}
	check(!pollux_fd_served(fd));
}

/* How often the steps of which a test is have been taken. */
struct steps {
	unsigned long flushed, through, between, adopted;
};

static struct steps steps_now(void)
{
	return (struct steps){points_passed("flush_written"), points_passed("through_written"),
			      points_passed("read_between"), points_passed("adopted")};
}

static bool steps_since(const struct steps *s, unsigned long n)
{
	struct steps now = steps_now();

	return now.flushed > s->flushed + n && now.through > s->through + n &&
	       now.between > s->between + n &&
	       (plx_adopts == PLX_ADOPTS_ALWAYS || now.adopted > s->adopted);
}

static void steps_print(const struct steps *s, unsigned long rounds)
{
	struct steps now = steps_now();

	print_message(
		"%lu rounds, %lu adoptions, %lu flushes, %lu writes through, %lu reads of both\n",
		rounds, now.adopted - s->adopted, now.flushed - s->flushed,
		now.through - s->through, now.between - s->between);
}

/* Makes it hot beforehand: with the next write after a wait it is cached. */
static void heat(int fd)
{
	if (plx_adopts != PLX_ADOPTS_HOT)
		return;
	for (int i = 0; i < 100; i++)
		put(fd, 1);
	get(fd);
}

/* In every other round it becomes hot by what the round does. */
static void perhaps_heat(int fd, uint32_t *r)
{
	if (rnd(r) >> 8 & 1)
		heat(fd);
}

/* --- sums ---------------------------------------------------------------------------------- */

#define WRITERS 3
#define WRITES 200

struct sums {
	int fd, ep, readers, writing;
	bool strangers;
	/* By writes that have returned; by reads. */
	uint64_t written, got;
	unsigned long writes;
};

static void sums_writer(struct thread *t)
{
	struct sums *s = t->arg;
	uint32_t r = (uint32_t)(uintptr_t)t ^ (uint32_t)now_ns();

	for (int i = 0; i < WRITES && !stopping(); i++) {
		uint64_t v = value(&r);

		if (s->strangers && rnd(&r) % 64 == 0)
			check(write(s->fd, &v, sizeof(v)) == sizeof(v));
		else
			put(s->fd, v);
		atomic_add(&s->written, v);
		atomic_add(&s->writes, 1);
		if (rnd(&r) % 8 == 0)
			sched_yield();
	}
	atomic_add(&s->writing, -1);
}

/* What has been written before a read begins has been read when it ends, if nobody else reads. */
static void sums_reader(struct thread *t)
{
	struct sums *s = t->arg;
	uint32_t r = (uint32_t)(uintptr_t)t ^ (uint32_t)now_ns();

	while (!stopping()) {
		bool last = !atomic_get(&s->writing);
		uint64_t before = atomic_get(&s->written), v = get(s->fd);
		uint64_t got = atomic_add(&s->got, v) + v;

		if (s->readers == 1 && !s->strangers && got < before)
			broken("%lu of %lu have been read", (unsigned long)got,
			       (unsigned long)before);
		if (!v && last)
			return;
		if (!v)
			waits_for(s->ep, s->fd, 1, &r);
		if (rnd(&r) % 4 == 0)
			sched_yield();
	}
}

static void sums_poller(struct thread *t)
{
	struct sums *s = t->arg;
	uint32_t r = (uint32_t)(uintptr_t)t ^ (uint32_t)now_ns();

	while (!stopping() && atomic_get(&s->writing)) {
		waits_for(s->ep, s->fd, 1, &r);
		sched_yield();
	}
}

static void sums_round(bool edge, int readers, bool strangers, uint32_t *r)
{
	struct sums s = {.fd = new_efd(),
			 .ep = new_ep(),
			 .readers = readers,
			 .writing = WRITERS,
			 .strangers = strangers};
	unsigned long end = rnd(r) % (2 * WRITERS * WRITES);
	struct thread t[WRITERS + 3];
	int n = 0;

	watch(s.ep, s.fd, edge, 1);
	perhaps_heat(s.fd, r);
	for (int i = 0; i < WRITERS; i++)
		thread_start(&t[n++], sums_writer, &s);
	for (int i = 0; i < readers; i++)
		thread_start(&t[n++], sums_reader, &s);
	thread_start(&t[n++], sums_poller, &s);
	while (!stopping() && atomic_get(&s.writing) && atomic_get(&s.writes) < end)
		sched_yield();
	if (atomic_get(&s.writes) >= end)
		flushes(s.fd, r);
	for (int i = 0; i < n; i++)
		thread_join(&t[i]);
	/* Of two readers the last may have been the other. */
	for (uint64_t v; (v = get(s.fd));)
		s.got += v;
	if (s.got != s.written)
		broken("%lu were written and %lu read", (unsigned long)s.written,
		       (unsigned long)s.got);
	pollux_close(s.ep);
	pollux_close(s.fd);
}

static void sums_of(bool edge, bool strangers)
{
	struct steps before = steps_now();
	unsigned long rounds = 0;
	int64_t start = now_ns();
	uint32_t r = (uint32_t)start;

	torture_begin();
	for (; torture_part_until(start, 2, steps_since(&before, 20)); rounds++)
		sums_round(edge, 1 + rounds % 2, strangers, &r);
	torture_end(NULL, 0);
	steps_print(&before, rounds);
	assert_true(steps_since(&before, 20));
}

static void sums_are_right(void **state)
{
	(void)state;
	sums_of(false, false);
	sums_of(true, false);
}

static void sums_are_right_beside_strangers(void **state)
{
	(void)state;
	sums_of(false, true);
	sums_of(true, true);
}

/* --- sleepers ------------------------------------------------------------------------------ */

#define SIDES 3
#define PER_SIDE 2
#define HOPS 100

/* One message goes round, and everybody sleeps without end: who sleeps beside it, stops it. */
struct ring {
	int fd[SIDES], ep[SIDES];
	uint64_t message;
	unsigned long hops;
	int stop, left;
};

struct side {
	struct ring *ring;
	int i;
};

static void side_main(struct thread *t)
{
	struct side *s = t->arg;
	struct ring *g = s->ring;
	uint32_t r = (uint32_t)(uintptr_t)t ^ (uint32_t)now_ns();

	for (;;) {
		uint64_t v;

		waits_for(g->ep[s->i], g->fd[s->i], -1, &r);
		if (atomic_get(&g->stop) || stopping())
			break;
		/* The other one of this side may have it. */
		v = get(g->fd[s->i]);
		if (!v)
			continue;
		/* At the end there is more. */
		if (v != atomic_get(&g->message) && !atomic_get(&g->stop))
			broken("%lu became %lu", (unsigned long)g->message, (unsigned long)v);
		v = value(&r);
		atomic_set(&g->message, v);
		atomic_add(&g->hops, 1);
		put(g->fd[(s->i + 1) % SIDES], v);
	}
	atomic_add(&g->left, 1);
}

/* Whoever sleeps is woken by another write, or another after that. */
static void ring_stop(struct ring *g)
{
	atomic_set(&g->stop, 1);
	for (int i = 0; atomic_get(&g->left) < SIDES * PER_SIDE; i++) {
		if (i == SOON_MS)
			_exit(1);
		for (int j = 0; j < SIDES; j++)
			put(g->fd[j], 1);
		sleep_ms(1);
	}
}

static unsigned long ring_round(bool edge, uint32_t *r)
{
	unsigned long end = rnd(r) % (2 * HOPS);
	struct thread t[SIDES * PER_SIDE];
	struct side side[SIDES];
	struct ring g = {0};
	bool flushed = false;
	unsigned long hops;

	for (int i = 0; i < SIDES; i++) {
		g.fd[i] = new_efd();
		g.ep[i] = new_ep();
		watch(g.ep[i], g.fd[i], edge, i);
		heat(g.fd[i]);
		side[i] = (struct side){&g, i};
	}
	for (int i = 0; i < SIDES * PER_SIDE; i++)
		thread_start(&t[i], side_main, &side[i % SIDES]);
	g.message = 1;
	put(g.fd[0], 1);
	while (!stopping() && (hops = atomic_get(&g.hops)) < HOPS) {
		if (hops >= end && !flushed) {
			flushed = true;
			flushes(g.fd[rnd(r) % SIDES], r);
		}
		if (!await(atomic_get(&g.hops) != hops || stopping())) {
			broken("a message of %lu is lost", (unsigned long)g.message);
			_exit(1);
		}
	}
	ring_stop(&g);
	for (int i = 0; i < SIDES * PER_SIDE; i++)
		thread_join(&t[i]);
	for (int i = 0; i < SIDES; i++) {
		pollux_close(g.ep[i]);
		pollux_close(g.fd[i]);
	}
	return g.hops;
}

static void nobody_sleeps_beside_a_count(void **state)
{
	struct steps before = steps_now();
	unsigned long rounds = 0, hops = 0;
	int64_t start = now_ns();
	uint32_t r = (uint32_t)start;

	(void)state;
	torture_begin();
	for (; torture_until(start, steps_since(&before, 20)); rounds++)
		hops += ring_round(rounds % 2, &r);
	torture_end(NULL, 0);
	steps_print(&before, rounds);
	print_message("%lu hops\n", hops);
	assert_true(steps_since(&before, 20));
}

/* --- edges --------------------------------------------------------------------------------- */

#define EDGES 100

/* Each write has to be reported before the next one comes. */
struct edges {
	int fd, ep, stop;
	unsigned long written, reported;
	uint64_t sum, got;
};

static void edges_waiter(struct thread *t)
{
	struct edges *e = t->arg;
	uint32_t r = (uint32_t)(uintptr_t)t ^ (uint32_t)now_ns();
	struct epoll_event ev;
	unsigned long seen;

	do {
		check(pollux_epoll_wait(e->ep, &ev, 1, -1) == 1);
		if (rnd(&r) % 2)
			e->got += get(e->fd);
		seen = atomic_get(&e->written);
		atomic_set(&e->reported, seen);
	} while (seen < EDGES);
}

/* Counted as a sleeper whenever there is nothing. */
static void edges_poller(struct thread *t)
{
	struct edges *e = t->arg;
	uint32_t r = (uint32_t)(uintptr_t)t ^ (uint32_t)now_ns();

	while (!stopping() && !atomic_get(&e->stop)) {
		struct pollfd p = {.fd = e->fd, .events = POLLIN};

		check(pollux_poll(&p, 1, 1) >= 0);
		if (rnd(&r) % 2)
			sleep_ms(1);
	}
}

static void edges_round(bool kernels, uint32_t *r)
{
	struct edges e = {.fd = new_efd(), .ep = new_ep()};
	unsigned long end = rnd(r) % (2 * EDGES);
	struct thread t[2];

	watch(e.ep, e.fd, true, 1);
	perhaps_heat(e.fd, r);
	thread_start(&t[0], edges_waiter, &e);
	thread_start(&t[1], edges_poller, &e);
	for (unsigned long i = 1; i <= EDGES && !stopping(); i++) {
		uint64_t v = value(r);

		if (i == end && kernels)
			flushes(e.fd, r);
		e.sum += v;
		atomic_set(&e.written, i);
		put(e.fd, v);
		if (!await(atomic_get(&e.reported) == i || stopping())) {
			broken("a write of %lu is not reported", (unsigned long)v);
			_exit(1);
		}
	}
	atomic_set(&e.stop, 1);
	for (int i = 0; i < 2; i++)
		thread_join(&t[i]);
	check(stopping() || e.got + get(e.fd) == e.sum);
	pollux_close(e.ep);
	pollux_close(e.fd);
}

static void in_rounds(void (*round)(bool odd, uint32_t *r))
{
	struct steps before = steps_now();
	unsigned long rounds = 0;
	int64_t start = now_ns();
	uint32_t r = (uint32_t)start;

	torture_begin();
	for (; torture_until(start, steps_since(&before, 20)); rounds++)
		round(rounds % 2, &r);
	torture_end(NULL, 0);
	steps_print(&before, rounds);
	assert_true(steps_since(&before, 20));
}

static void each_write_makes_an_edge(void **state)
{
	(void)state;
	in_rounds(edges_round);
}

/* --- one wait ------------------------------------------------------------------------------ */

#define FILES 3
#define PIPE FILES
#define LOOKS 300

/* The first is always ready. The last is registered edge-triggered. */
struct looks {
	int fd[FILES], ep, p[2], stop;
	bool passed;
};

static void looks_writer(struct thread *t)
{
	struct looks *l = t->arg;
	uint32_t r = (uint32_t)(uintptr_t)t ^ (uint32_t)now_ns();

	while (!stopping() && !atomic_get(&l->stop)) {
		put(l->fd[(rnd(&r) >> 8) % FILES], value(&r));
		sched_yield();
	}
}

static void looks_reader(struct thread *t)
{
	struct looks *l = t->arg;
	uint32_t r = (uint32_t)(uintptr_t)t ^ (uint32_t)now_ns();

	while (!stopping() && !atomic_get(&l->stop)) {
		int fd = l->fd[1 + (rnd(&r) >> 8) % (FILES - 1)];
		struct pollfd p = {.fd = fd, .events = POLLIN};

		get(fd);
		check(pollux_poll(&p, 1, rnd(&r) >> 8 & 1) >= 0);
	}
}

static void look(struct looks *l, uint32_t *r)
{
	bool seen[FILES + 1] = {0};
	/* Room for what each side may have of them. */
	struct epoll_event ev[2 * (FILES + 1)];
	int n = pollux_epoll_wait(l->ep, ev, 2 * (FILES + 1), rnd(r) >> 8 & 1);

	for (int i = 0; i < n; i++) {
		bool *s = &seen[ev[i].data.u64 % (FILES + 1)];

		if (*s)
			broken("%d is reported twice", (int)ev[i].data.u64);
		*s = true;
	}
	/* A wait that its count has passed by leaves it to the next one, if it does not move again.
	 */
	if (!seen[0] && l->passed && plx_adopts != PLX_ADOPTS_RANDOM)
		broken("what is always ready is not reported among %d", n);
	l->passed = !seen[0];
}

static void looks_round(bool with_pipe, uint32_t *r)
{
	struct looks l = {.ep = new_ep()};
	unsigned int end = rnd(r) % (2 * LOOKS);
	struct thread t[2];

	assert_int_equal(pipe2(l.p, O_CLOEXEC), 0);
	if (with_pipe) {
		assert_int_equal(write(l.p[1], "", 1), 1);
		watch(l.ep, l.p[0], false, PIPE);
	}
	for (int i = 0; i < FILES; i++) {
		l.fd[i] = new_efd();
		watch(l.ep, l.fd[i], i == FILES - 1, i);
	}
	put(l.fd[0], 1);
	thread_start(&t[0], looks_writer, &l);
	thread_start(&t[1], looks_reader, &l);
	for (unsigned int i = 0; i < LOOKS && !stopping(); i++) {
		if (i == end)
			flushes(l.fd[rnd(r) % FILES], r);
		look(&l, r);
	}
	atomic_set(&l.stop, 1);
	for (int i = 0; i < 2; i++)
		thread_join(&t[i]);
	/* Nothing moves any more. */
	if (!stopping()) {
		look(&l, r);
		check(!l.passed);
	}
	for (int i = 0; i < FILES; i++)
		pollux_close(l.fd[i]);
	pollux_close(l.ep);
	close(l.p[0]);
	close(l.p[1]);
}

static void one_wait_reports_an_item_once(void **state)
{
	(void)state;
	in_rounds(looks_round);
}

/* --- writers past us ----------------------------------------------------------------------- */

enum sees { WAIT, POLL, SELECT, READ };

struct past {
	enum sees how;
	int fd, ep, ms, n;
	bool alone;
	uint64_t value;
};

static void past_sees(struct thread *t)
{
	struct past *p = t->arg;
	struct timeval now = {0};
	struct pollfd pfd = {.fd = p->fd, .events = POLLIN};
	struct epoll_event ev[2];
	fd_set set;

	switch (p->how) {
	case WAIT:
		/* Where the epoll has nothing of the kernel's, one look of 64 asks it. */
		for (int i = 0; i < (p->alone ? 64 : 1) && !p->n; i++)
			p->n = pollux_epoll_wait(p->ep, ev, 2, p->ms);
		break;
	case POLL:
		p->n = pollux_poll(&pfd, 1, p->ms);
		break;
	case SELECT:
		FD_ZERO(&set);
		FD_SET(p->fd, &set);
		p->n = pollux_select(p->fd + 1, &set, NULL, NULL, p->ms < 0 ? NULL : &now);
		break;
	case READ:
		p->n = 1;
	}
}

/*
 * sleeps: it is written when the call sleeps. alone: the epoll has nothing else; otherwise a file
 * of the kernel's, too.
 */
static void past_seen(enum sees how, bool sleeps, bool edge, bool alone)
{
	struct past p = {
		.how = how, .fd = new_efd(), .ep = new_ep(), .ms = sleeps ? -1 : 0, .alone = alone};
	/* One of ours has not been read, and the event of his is the last that comes. */
	bool both = how == WAIT && !sleeps && edge && !alone;
	const uint64_t seven = 7;
	struct epoll_event ev;
	struct thread t;
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	if (!alone)
		watch(p.ep, fds[0], false, 2);
	watch(p.ep, p.fd, edge, 1);
	/* From now on the kernel has been asked. */
	put(p.fd, 2);
	assert_int_equal(pollux_epoll_wait(p.ep, &ev, 1, 0), 1);
	assert_int_equal(get(p.fd), 2);
	if (both) {
		put(p.fd, 5);
		assert_int_equal(pollux_epoll_wait(p.ep, &ev, 1, 0), 1);
	}
	if (sleeps) {
		thread_start(&t, past_sees, &p);
		assert_true(thread_asleep(&t));
	}
	assert_int_equal(write(p.fd, &seven, sizeof(seven)), sizeof(seven));
	if (!sleeps)
		thread_start(&t, past_sees, &p);
	thread_join(&t);
	assert_int_equal(p.n, 1);
	assert_int_equal(get(p.fd), both ? seven + 5 : seven);
	assert_int_equal(pollux_fd_served(p.fd), 0);
	assert_int_equal(get(p.fd), 0);
	/* The kernel's: nothing has changed for the program. */
	while (pollux_epoll_wait(p.ep, &ev, 1, 0) > 0)
		assert_int_equal(edge, true);
	put(p.fd, 3);
	assert_int_equal(pollux_epoll_wait(p.ep, &ev, 1, 0), 1);
	assert_int_equal(ev.data.u64, 1);
	assert_int_equal(get(p.fd), 3);
	pollux_close(p.ep);
	pollux_close(p.fd);
	close(fds[0]);
	close(fds[1]);
}

static void a_writer_past_us_is_seen(void **state)
{
	(void)state;
	/* While it is not cached nobody looks for one. */
	if (plx_adopts != PLX_ADOPTS_ALWAYS) {
		print_message("skipped: it may not be cached\n");
		skip();
	}
	torture_begin();
	points_delay(false);
	for (int k = 0; k < 4; k++) {
		for (enum sees how = WAIT; how <= SELECT; how++)
			for (int sleeps = 0; sleeps < 2; sleeps++)
				past_seen(how, sleeps, k & 1, k & 2);
		past_seen(READ, false, k & 1, k & 2);
	}
	torture_end(NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(sums_are_right),
		TEST(sums_are_right_beside_strangers),
		TEST(nobody_sleeps_beside_a_count),
		TEST(each_write_makes_an_edge),
		TEST(one_wait_reports_an_item_once),
		TEST(a_writer_past_us_is_seen),
	};

	plx_px_init();
	plx_hot_ns = INT64_MAX >> 16;
	return RUN(tests);
}
