/* SPDX-License-Identifier: MIT */
/*
 * Own objects and descriptors of the kernel in one wait: each event of either side is had once,
 * whoever waits, looks, or watches the epoll's own descriptor, and nobody sleeps beside one.
 */
#include "torture.h"

#include <poll.h>
#include <sys/eventfd.h>

#define OBJECTS 3
#define KERNEL 3
#define WAITERS 3
#define ALL (OBJECTS + KERNEL)

struct shared {
	struct pollux_ep *ep;
	struct obj *o[OBJECTS];
	int fd[KERNEL];
	int bell;
	unsigned long got[ALL], rounds, timed_out, looked;
	int quit;
};

static void take(struct shared *s, const struct epoll_event *ev, int n)
{
	for (int i = 0; i < n; i++) {
		if (ev[i].data.u64 >= ALL)
			broken("an event with data %#lx", (unsigned long)ev[i].data.u64);
		else
			atomic_add(&s->got[ev[i].data.u64], 1);
	}
}

static bool all_got(struct shared *s, unsigned long round)
{
	for (int i = 0; i < ALL; i++)
		if (atomic_get(&s->got[i]) != round)
			return false;
	return true;
}

/* Room for one, two or three; for ever, and by time-outs that end beside wakes. */
static void waiter(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;

	while (!atomic_get(&s->quit)) {
		struct epoll_event ev[3];
		int max = 1 + rnd(&r) % 3;
		int n = pollux_ep_wait(s->ep, ev, max, rnd(&r) % 2 ? 200000 : 20000000);

		if (n < 0)
			broken("a wait returned %d", n);
		else
			take(s, ev, n);
		if (!n)
			atomic_add(&s->timed_out, 1);
	}
}

static void looker(struct thread *t)
{
	struct shared *s = t->arg;

	while (!atomic_get(&s->quit)) {
		struct epoll_event ev;
		int n = pollux_ep_wait(s->ep, &ev, 1, 0);

		if (n < 0)
			broken("a look returned %d", n);
		else
			take(s, &ev, n);
		sched_yield();
	}
}

/* Another's loop: it looks when the descriptor is readable, and not before. */
static void foreign(struct thread *t)
{
	struct shared *s = t->arg;
	struct pollfd p[2] = {{.fd = pollux_ep_fd(s->ep), .events = POLLIN},
			      {.fd = s->bell, .events = POLLIN}};

	while (!atomic_get(&s->quit)) {
		struct epoll_event ev[2];
		int n;

		if (poll(p, 2, -1) < 0)
			broken("poll failed");
		n = pollux_ep_wait(s->ep, ev, 2, 0);
		if (n < 0)
			broken("a look returned %d", n);
		else
			take(s, ev, n);
		atomic_add(&s->looked, 1);
	}
}

/* Descriptors come and go, and none of them has an event. */
static void changer(struct thread *t)
{
	struct shared *s = t->arg;
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	while (!atomic_get(&s->quit)) {
		struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 99};

		check(pollux_ep_ctl_fd(s->ep, EPOLL_CTL_ADD, fd, &ev) == 0);
		check(pollux_ep_ctl_fd(s->ep, EPOLL_CTL_ADD, fd, &ev) == -EEXIST);
		check(pollux_ep_ctl_fd(s->ep, EPOLL_CTL_MOD, fd, &ev) == 0);
		check(pollux_ep_ctl_fd(s->ep, EPOLL_CTL_DEL, fd, NULL) == 0);
		sched_yield();
	}
	close(fd);
}

static void fire(struct shared *s, uint32_t *r)
{
	uint64_t one = 1;
	int first = rnd(r) % ALL;

	for (int k = 0; k < ALL; k++) {
		int i = (first + k) % ALL;

		if (i < OBJECTS)
			obj_fire(s->o[i], EPOLLIN, EPOLLIN);
		else
			check(write(s->fd[i - OBJECTS], &one, sizeof(one)) == sizeof(one));
	}
}

static void run(uint32_t mode, int waiters, bool look, bool loop, int parts)
{
	struct shared s = {.ep = ep_new(), .bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
	struct thread t[WAITERS + 3];
	uint64_t v = 1;
	uint32_t r = 7;
	int n = 0;
	unsigned long rung = points_passed("side_before_ring");
	int64_t start = now_ns();

	torture_begin();
	for (int i = 0; i < OBJECTS; i++) {
		s.o[i] = obj_new(0);
		ep_add(s.ep, &s.o[i]->file, 0, EPOLLIN | mode, i);
	}
	for (int i = 0; i < KERNEL; i++) {
		struct epoll_event ev = {.events = EPOLLIN | mode, .data.u64 = OBJECTS + i};

		s.fd[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		assert_int_equal(pollux_ep_ctl_fd(s.ep, EPOLL_CTL_ADD, s.fd[i], &ev), 0);
	}
	for (int i = 0; i < waiters; i++)
		thread_start(&t[n++], waiter, &s);
	thread_start(&t[n++], changer, &s);
	if (look)
		thread_start(&t[n++], looker, &s);
	if (loop)
		thread_start(&t[n++], foreign, &s);
	while (torture_part_until(start, parts,
				  s.rounds > 20 && points_passed("side_before_ring") > rung + 20)) {
		unsigned long round = ++s.rounds;

		/* Sometimes all sleep before the first event, sometimes none. */
		for (uint32_t i = rnd(&r) % 2000; i; i--)
			__asm__ __volatile__("" ::: "memory");
		if (!(rnd(&r) & 15))
			sleep_ms(1);
		fire(&s, &r);
		if (!await(all_got(&s, round)))
			broken("round %lu: %lu %lu %lu events of objects, %lu %lu %lu of "
			       "descriptors",
			       round, s.got[0], s.got[1], s.got[2], s.got[3], s.got[4], s.got[5]);
		for (int i = 0; i < OBJECTS; i++)
			obj_set(s.o[i], 0);
	}
	atomic_set(&s.quit, 1);
	assert_int_equal(write(s.bell, &v, sizeof(v)), sizeof(v));
	torture_end(t, n);
	print_message("%d waiters%s%s: %lu rounds, %lu rings, %lu timed out, %lu looked\n", waiters,
		      look ? ", a look" : "", loop ? ", a loop" : "", s.rounds,
		      points_passed("side_before_ring") - rung, s.timed_out, s.looked);
	assert_true(s.rounds > 20);
	assert_true(points_passed("side_before_ring") > rung + 20);
	ep_put(s.ep);
	for (int i = 0; i < OBJECTS; i++)
		obj_put(s.o[i]);
	for (int i = 0; i < KERNEL; i++)
		close(s.fd[i]);
	close(s.bell);
}

static void waiters_alone(void **state)
{
	(void)state;
	run(EPOLLET, 1, false, false, 2);
	run(EPOLLET, WAITERS, false, false, 2);
}

static void waiters_beside_looks(void **state)
{
	(void)state;
	run(EPOLLET, 1, true, false, 2);
	run(EPOLLET, WAITERS, true, false, 2);
}

static void a_foreign_loop(void **state)
{
	(void)state;
	run(EPOLLET, 0, false, true, 3);
	run(EPOLLET, 2, false, true, 3);
	run(EPOLLET, 1, true, true, 3);
}

/* One event, and one thread that waits for it, in an epoll that has no descriptor at first. */
struct late {
	struct pollux_ep *ep;
	int n;
};

static void late_waiter(struct thread *t)
{
	struct late *l = t->arg;
	struct epoll_event ev;

	l->n = pollux_ep_wait(l->ep, &ev, 1, POLLUX_FOREVER);
}

static void the_first_descriptor_comes_beside_sleepers(void **state)
{
	unsigned long parked = points_passed("park_before_futex"), rounds = 0;
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int64_t start = now_ns();
	uint32_t r = 3;

	(void)state;
	torture_begin();
	while (torture_until(start,
			     rounds > 20 && points_passed("park_before_futex") > parked + 20)) {
		struct obj *o[2] = {obj_new(0), obj_new(0)};
		struct late l[2];
		struct pollux_ep *ep = ep_new();
		struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 9};
		struct thread t[2];

		for (int i = 0; i < 2; i++) {
			ep_add(ep, &o[i]->file, 0, EPOLLIN | EPOLLET, i);
			l[i] = (struct late){.ep = ep};
			thread_start(&t[i], late_waiter, &l[i]);
		}
		if (rnd(&r) % 4 == 0)
			sleep_ms(1);
		for (uint32_t i = rnd(&r) % 20000; i; i--)
			__asm__ __volatile__("" ::: "memory");
		if (rnd(&r) % 2)
			obj_fire(o[0], EPOLLIN, EPOLLIN);
		assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd, &ev), 0);
		if (!o[0]->mask)
			obj_fire(o[0], EPOLLIN, EPOLLIN);
		obj_fire(o[1], EPOLLIN, EPOLLIN);
		for (int i = 0; i < 2; i++) {
			thread_join(&t[i]);
			assert_int_equal(l[i].n, 1);
			obj_put(o[i]);
		}
		ep_put(ep);
		rounds++;
	}
	close(fd);
	torture_end(NULL, 0);
	print_message("%lu rounds, %lu times at the futex\n", rounds,
		      points_passed("park_before_futex") - parked);
}

/*
 * A ring at the futex is complete, and nobody has slept any more; the thread that makes the side
 * stands before it turns the bell. Who sleeps on the side is rung for all the same.
 */
struct making {
	struct thread t;
	struct gate g;
	struct pollux_ep *ep;
	int fd;
};

static void making(struct thread *t)
{
	struct making *m = t->arg;
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 'f'};

	gate_arm(&m->g, "side_before_turn");
	check(pollux_ep_ctl_fd(m->ep, EPOLL_CTL_ADD, m->fd, &ev) == 0);
}

static void a_ring_that_nobody_slept_for(void **state)
{
	(void)state;
	torture_begin();
	points_delay(false);
	for (int i = 0; i < 20; i++) {
		struct making m = {.ep = ep_new(), .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
		struct obj *a = obj_new(0), *b = obj_new(0);
		struct stopped s;
		struct waiter *w;

		ep_add(m.ep, &a->file, 0, EPOLLIN | EPOLLET, 'a');
		ep_add(m.ep, &b->file, 0, EPOLLIN | EPOLLET, 'b');
		w = waiter_new(m.ep, 1);
		stopped_start(&s, "bell_before_begun", NULL, a);
		/* Rung for b, it has a, which came first; the next wait has b. */
		obj_fire(b, EPOLLIN, EPOLLIN);
		waiter_gets(w, 'a');
		assert_one(m.ep, EPOLLIN, 'b');
		stopped_go(&s);
		thread_start(&m.t, making, &m);
		assert_true(gate_reached(&m.g));
		w = waiter_new(m.ep, 1);
		obj_fire(a, EPOLLIN, EPOLLIN);
		waiter_gets(w, 'a');
		gate_open(&m.g);
		thread_join(&m.t);
		ep_put(m.ep);
		close(m.fd);
		obj_put(a);
		obj_put(b);
	}
	torture_end(NULL, 0);
}

/* A wake that stands before its ring while the epoll ends: nobody else's descriptor is written. */
static void a_ring_beside_the_end(void **state)
{
	(void)state;
	torture_begin();
	points_delay(false);
	for (int i = 0; i < 20; i++) {
		struct pollux_ep *ep = ep_new();
		struct stopped s;
		struct obj *o = obj_new(0);
		int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), other[64];
		uint64_t v;

		ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'o');
		/* A sleeper that is always there. */
		assert_true(pollux_ep_fd(ep) >= 0);
		stopped_start(&s, "side_before_ring", NULL, o);
		ep_put(ep);
		for (int k = 0; k < 64; k++)
			other[k] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		stopped_go(&s);
		for (int k = 0; k < 64; k++) {
			assert_int_equal(read(other[k], &v, sizeof(v)), -1);
			close(other[k]);
		}
		close(fd);
		obj_put(o);
	}
}

/* A thread that has taken the doorbell's event and stands there: the next event wakes another. */
struct standing {
	struct thread t;
	struct gate g;
	struct pollux_ep *ep;
	int n;
	struct epoll_event ev;
};

static void standing(struct thread *t)
{
	struct standing *w = t->arg;

	gate_arm(&w->g, "side_before_collect");
	w->n = pollux_ep_wait(w->ep, &w->ev, 1, POLLUX_FOREVER);
}

static void a_sleeper_that_stands_with_the_ring_in_its_hand(void **state)
{
	(void)state;
	torture_begin();
	points_delay(false);
	for (int i = 0; i < 20; i++) {
		struct standing w = {.ep = ep_new()};
		struct obj *a = obj_new(0), *b = obj_new(0);
		int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 'f'};
		struct waiter *second;

		ep_add(w.ep, &a->file, 0, EPOLLIN | EPOLLET, 'a');
		ep_add(w.ep, &b->file, 0, EPOLLIN | EPOLLET, 'b');
		assert_int_equal(pollux_ep_ctl_fd(w.ep, EPOLL_CTL_ADD, fd, &ev), 0);
		thread_start(&w.t, standing, &w);
		assert_true(thread_asleep(&w.t));
		obj_fire(a, EPOLLIN, EPOLLIN);
		assert_true(gate_reached(&w.g));
		/* It finds a on the list. */
		second = waiter_begin(w.ep, 1, POLLUX_FOREVER);
		waiter_gets(second, 'a');
		second = waiter_new(w.ep, 1);
		obj_fire(b, EPOLLIN, EPOLLIN);
		waiter_gets(second, 'b');
		obj_fire(a, EPOLLIN, EPOLLIN);
		gate_open(&w.g);
		thread_join(&w.t);
		assert_int_equal(w.n, 1);
		assert_int_equal(w.ev.data.u64, 'a');
		ep_put(w.ep);
		close(fd);
		obj_put(a);
		obj_put(b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(waiters_alone),
		TEST(waiters_beside_looks),
		TEST(a_foreign_loop),
		TEST(the_first_descriptor_comes_beside_sleepers),
		TEST(a_ring_that_nobody_slept_for),
		TEST(a_ring_beside_the_end),
		TEST(a_sleeper_that_stands_with_the_ring_in_its_hand),
	};

	return RUN(tests);
}
