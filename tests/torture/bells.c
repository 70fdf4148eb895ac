/* SPDX-License-Identifier: MIT */
/*
 * Doorbells come and go while the program puts descriptors of its own at the very numbers and
 * closes what it has not: each number means what its last dup2 put there, and each sleeper is
 * woken.
 */
#include "cache/epoll.h"

#include "torture.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <pollux/posix.h>

/* So many numbers from the first of a doorbell on are wanted by each. */
#define HIGH 5
#define TAKERS 2

static int null_fd;
static struct stat null_stat;

static bool is_null(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_rdev == null_stat.st_rdev && S_ISCHR(st.st_mode) &&
	       st.st_ino == null_stat.st_ino;
}

static bool is_free(int fd)
{
	return fcntl(fd, F_GETFD) < 0;
}

/* The first number that a doorbell would get. */
static int next_number(void)
{
	int fd = plx_fd_high();

	while (!is_free(fd))
		fd++;
	return fd;
}

static int add(int ep, int fd)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 7};

	return pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

/* The first sleep makes the doorbell. */
static int add_and_sleep(int ep, int fd)
{
	struct epoll_event ev;
	int r = add(ep, fd);

	return r ? r : pollux_epoll_wait(ep, &ev, 1, 1);
}

struct sleeper {
	struct thread t;
	int ep, n;
};

static void sleeper_main(struct thread *t)
{
	struct sleeper *s = t->arg;
	struct epoll_event ev = {0};

	s->n = pollux_epoll_wait(s->ep, &ev, 1, SOON_MS);
	if (s->n == 1 && ev.data.u64 != 7)
		s->n = -2;
}

/* A sleeper is woken. */
static bool wakes(int ep, int efd)
{
	struct sleeper s = {.ep = ep};
	uint64_t one = 1;

	thread_start(&s.t, sleeper_main, &s);
	if (!thread_asleep(&s.t) && !thread_done(&s.t))
		broken("nobody sleeps");
	if (pollux_write(efd, &one, sizeof(one)) != sizeof(one))
		broken("a write failed: %s", strerror(errno));
	thread_join(&s.t);
	return s.n == 1 && pollux_read(efd, &one, sizeof(one)) == sizeof(one);
}

struct call {
	struct gate gate;
	const char *point;
	int ep, efd, fd, r, err, done;
};

static void adder(struct thread *t)
{
	struct call *c = t->arg;

	gate_arm(&c->gate, c->point);
	c->r = add_and_sleep(c->ep, c->efd);
}

static void taker(struct thread *t)
{
	struct call *c = t->arg;

	if (c->point)
		gate_arm(&c->gate, c->point);
	c->r = pollux_dup2(null_fd, c->fd);
	c->err = errno;
	atomic_set(&c->done, 1);
}

static void range_closer(struct thread *t)
{
	struct call *c = t->arg;

	c->r = (int)plx_px_close_range((unsigned int)c->fd, (unsigned int)c->fd, 0);
	atomic_set(&c->done, 1);
}

/* While a doorbell has a number and no entry, other meets that very number. */
static void meets_a_new_number(struct call *other, void (*fn)(struct thread *))
{
	struct call a = {.point = "bell_no_entry"};
	struct thread t[2];

	torture_begin();
	points_delay(false);
	a.ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	a.efd = pollux_eventfd(0, EFD_NONBLOCK);
	assert_int_equal(pollux_fd_served(a.efd), 1);
	other->fd = next_number();
	thread_start(&t[0], adder, &a);
	assert_true(gate_reached(&a.gate));
	assert_false(is_free(other->fd));
	thread_start(&t[1], fn, other);
	sleep_ms(50);
	assert_false(atomic_get(&other->done));
	gate_open(&a.gate);
	torture_end(t, 2);
	assert_int_equal(a.r, 0);
	assert_true(other->done);
	assert_true(wakes(a.ep, a.efd));
	pollux_close(a.efd);
	pollux_close(a.ep);
}

static void dup2_onto_a_new_number(void **state)
{
	struct call b = {0};

	(void)state;
	meets_a_new_number(&b, taker);
	assert_int_equal(b.r, b.fd);
	assert_true(is_null(b.fd));
	assert_int_equal(pollux_close(b.fd), 0);
	assert_true(is_free(b.fd));
}

static void close_range_over_a_new_number(void **state)
{
	struct call b = {0};

	(void)state;
	meets_a_new_number(&b, range_closer);
	assert_int_equal(b.r, 0);
	assert_true(is_free(b.fd));
}

/* A dup2 is on its way to the kernel, to a number that is free: no doorbell comes to be there. */
static void dup2_before_a_new_number(void **state)
{
	struct call b = {.point = "dup_before_kernel"};
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC), efd = pollux_eventfd(0, EFD_NONBLOCK);
	struct thread t;

	(void)state;
	torture_begin();
	points_delay(false);
	b.fd = next_number();
	start_to_gate(&t, taker, &b, &b.gate);
	assert_int_equal(add_and_sleep(ep, efd), 0);
	assert_true(is_free(b.fd));
	gate_open(&b.gate);
	torture_end(&t, 1);
	assert_int_equal(b.r, b.fd);
	assert_true(is_null(b.fd));
	assert_true(wakes(ep, efd));
	assert_int_equal(pollux_close(b.fd), 0);
	pollux_close(efd);
	pollux_close(ep);
}

static void leaver(struct thread *t)
{
	struct call *c = t->arg;

	pollux_escape(c->ep);
}

/* Its epoll becomes the kernel's while its number is taken. */
static void a_doorbell_that_is_given_up_twice(void **state)
{
	struct call a = {.point = "bell_close"}, b = {0};
	struct thread t[2];
	int efd;

	(void)state;
	torture_begin();
	points_delay(false);
	b.ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	efd = pollux_eventfd(0, EFD_NONBLOCK);
	assert_int_equal(add_and_sleep(b.ep, efd), 0);
	a.fd = plx_file_epoll(plx_table_peek(b.ep))->doorbell;
	start_to_gate(&t[0], taker, &a, &a.gate);
	thread_start(&t[1], leaver, &b);
	sleep_ms(20);
	gate_open(&a.gate);
	torture_end(t, 2);
	assert_int_equal(a.r, a.fd);
	assert_true(is_null(a.fd));
	assert_true(wakes(b.ep, efd));
	assert_int_equal(pollux_close(a.fd), 0);
	pollux_close(efd);
	pollux_close(b.ep);
}

/* The number of a doorbell is taken before the epoll has it. */
static void a_doorbell_that_is_taken_at_once(void **state)
{
	struct call a = {.point = "doorbell_made"}, b = {0};
	struct thread t[2];

	(void)state;
	torture_begin();
	points_delay(false);
	a.ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	a.efd = pollux_eventfd(0, EFD_NONBLOCK);
	b.fd = next_number();
	start_to_gate(&t[0], adder, &a, &a.gate);
	thread_start(&t[1], taker, &b);
	assert_true(await(atomic_get(&b.done)));
	assert_true(is_null(b.fd));
	gate_open(&a.gate);
	torture_end(t, 2);
	assert_int_equal(a.r, 0);
	assert_true(is_null(b.fd));
	assert_true(wakes(a.ep, a.efd));
	assert_true(is_null(b.fd));
	assert_int_equal(pollux_close(b.fd), 0);
	pollux_close(a.efd);
	pollux_close(a.ep);
}

struct world {
	unsigned long taken[TAKERS], strays, woken, ranges;
};

struct part {
	struct world *w;
	int i;
};

/*
 * Each taker has numbers of its own to want, so that only ours are in the way. Every third is left
 * to the stray closes.
 */
static void random_taker(struct thread *t)
{
	struct part *p = t->arg;
	uint32_t r = p->i + 5;

	while (!stopping()) {
		int fd = plx_fd_high() + (int)(rnd(&r) % HIGH) * (TAKERS + 1) + p->i;

		if (pollux_dup2(null_fd, fd) != fd)
			broken("dup2: %s", strerror(errno));
		sched_yield();
		if (!is_null(fd))
			broken("%d is not what dup2 put there", fd);
		if (pollux_close(fd) != 0)
			broken("%d could not be closed: %s", fd, strerror(errno));
		atomic_add(&p->w->taken[p->i], 1);
	}
}

/*
 * Closes what the program has not: that ends nothing of the program's, and no doorbell that stands.
 * A number that is being made one it may end, each once (bell.c, (4)); then the call returns 0.
 */
static void stray(struct thread *t)
{
	struct part *p = t->arg;
	unsigned long ended = 0;
	uint32_t r = 77;

	while (!stopping()) {
		int fd = plx_fd_high() + (int)(rnd(&r) % HIGH) * (TAKERS + 1) + TAKERS;

		if (rnd(&r) % 8) {
			if (pollux_close(fd) == 0)
				ended++;
			else if (errno != EBADF)
				broken("close: %s", strerror(errno));
			if (ended > points_passed("bell_no_entry"))
				broken("%d, which is nobody's, was closed", fd);
			atomic_add(&p->w->strays, 1);
		} else {
			if (plx_px_close_range(fd, fd, 0) != 0)
				broken("close_range failed");
			atomic_add(&p->w->ranges, 1);
		}
		sched_yield();
	}
}

static bool met(const struct world *w)
{
	for (int i = 0; i < TAKERS; i++)
		if (atomic_get(&w->taken[i]) < 50)
			return false;
	return atomic_get(&w->strays) > 50 && atomic_get(&w->ranges) > 10 && w->woken > 20 &&
	       points_passed("bell_no_entry") > 20;
}

static void all_at_once(void **state)
{
	struct world w = {0};
	struct part parts[TAKERS + 1];
	struct thread t[TAKERS + 1];
	int64_t start = now_ns();

	(void)state;
	torture_begin();
	for (int i = 0; i <= TAKERS; i++) {
		parts[i] = (struct part){.w = &w, .i = i};
		thread_start(&t[i], i < TAKERS ? random_taker : stray, &parts[i]);
	}
	for (; torture_until(start, met(&w)); w.woken++) {
		int ep[3], efd[3];

		for (int i = 0; i < 3; i++) {
			ep[i] = pollux_epoll_create1(EPOLL_CLOEXEC);
			efd[i] = pollux_eventfd(0, EFD_NONBLOCK);
			if (add(ep[i], efd[i]) != 0)
				broken("ADD: %s", strerror(errno));
		}
		for (int i = 0; i < 3; i++) {
			if (!wakes(ep[i], efd[i]))
				broken("a sleeper was not woken");
			check(pollux_close(efd[i]) == 0);
			check(pollux_close(ep[i]) == 0);
		}
	}
	torture_end(t, TAKERS + 1);
	print_message(
		"%lu sets, %lu and %lu numbers taken, %lu stray closes, %lu ranges, %lu made\n",
		w.woken, w.taken[0], w.taken[1], w.strays, w.ranges,
		points_passed("bell_no_entry"));
	assert_true(met(&w));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(dup2_onto_a_new_number),		TEST(close_range_over_a_new_number),
		TEST(dup2_before_a_new_number),		TEST(a_doorbell_that_is_given_up_twice),
		TEST(a_doorbell_that_is_taken_at_once), TEST(all_at_once),
	};

	reach_all_numbers();
	null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (fstat(null_fd, &null_stat) != 0)
		return 1;
	return RUN(tests);
}
