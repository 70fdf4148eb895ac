/* SPDX-License-Identifier: MIT */
/*
 * An epoll is shut down while threads come to wait in it, sleep and leave, and others wake: every
 * one of them gets to know, however it meets the shutdown.
 */
#include "torture.h"

#include <poll.h>
#include <sys/eventfd.h>

#define WAITERS 5

/* The epoll has files alone; descriptors too; or gets its first meanwhile. */
enum { FILES, DESCRIPTORS, LATE };

struct shared {
	struct pollux_ep *ep;
	struct obj *o;
	int fd;
	unsigned long waits;
};

static void add_fd(struct shared *s)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = 'f'};

	check(pollux_ep_ctl_fd(s->ep, EPOLL_CTL_ADD, s->fd, &ev) == 0);
}

static void adds(struct thread *t)
{
	add_fd(t->arg);
}

/* Another's loop: it ends when a look says so, and looks when there is something to see. */
static void foreign(struct thread *t)
{
	struct shared *s = t->arg;
	struct pollfd p = {.fd = pollux_ep_fd(s->ep), .events = POLLIN};
	struct epoll_event ev;
	int n = 0;

	while (n != -ESHUTDOWN) {
		check(poll(&p, 1, -1) == 1);
		n = pollux_ep_wait(s->ep, &ev, 1, 0);
		check(n >= 0 || n == -ESHUTDOWN);
	}
}

static void waits(struct thread *t)
{
	struct shared *s = t->arg;
	struct epoll_event ev;
	unsigned int seed = (unsigned int)t->tid;
	int n = 0;

	while (n != -ESHUTDOWN) {
		n = pollux_ep_wait(s->ep, &ev, 1,
				   rand_r(&seed) % 4 ? POLLUX_FOREVER
						     : (int64_t)(rand_r(&seed) % 200000));
		atomic_add(&s->waits, 1);
		check(n >= 0 || n == -ESHUTDOWN);
	}
	ep_put(s->ep);
}

static void wakes(struct thread *t)
{
	struct shared *s = t->arg;
	unsigned int seed = (unsigned int)t->tid;
	uint64_t one = 1;

	for (int i = 0; i < 200 && !thread_done(t); i++) {
		obj_fire(s->o, EPOLLIN, EPOLLIN);
		if (s->fd >= 0)
			check(write(s->fd, &one, sizeof(one)) == sizeof(one));
		for (unsigned int k = rand_r(&seed) % 1000; k; k--)
			__asm__ __volatile__("");
	}
}

static void everybody(int what)
{
	unsigned long rounds = 0, passed = points_passed("shut_before_pass");
	int64_t start = now_ns();
	unsigned int seed = 7;

	torture_begin();
	while (torture_part_until(start, 3, rounds > 20)) {
		struct shared s = {.ep = ep_new(), .o = obj_new(0), .fd = -1};
		struct thread t[WAITERS], w, other;

		if (what != FILES)
			s.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (what == DESCRIPTORS)
			add_fd(&s);

		ep_add(s.ep, &s.o->file, 0, EPOLLIN | EPOLLET, 'a');
		for (int i = 0; i < WAITERS; i++) {
			pollux_file_get(pollux_ep_file(s.ep));
			thread_start(&t[i], waits, &s);
		}
		thread_start(&w, wakes, &s);
		if (what != FILES)
			thread_start(&other, what == LATE ? adds : foreign, &s);
		for (unsigned int k = rand_r(&seed) % 100000; k; k--)
			__asm__ __volatile__("");
		pollux_ep_shutdown(s.ep);
		/* A thread that stays fails the test here. */
		for (int i = 0; i < WAITERS; i++)
			thread_join(&t[i]);
		thread_join(&w);
		if (what != FILES) {
			thread_join(&other);
			close(s.fd);
		}
		ep_put(s.ep);
		obj_put(s.o);
		rounds++;
	}
	passed = points_passed("shut_before_pass") - passed;
	printf("%lu epolls shut down, %lu threads left a sleep or a look\n", rounds, passed);
	assert_false(torture_failed);
	assert_true(passed > 0);
}

static void everybody_leaves(void **state)
{
	(void)state;
	everybody(FILES);
}

static void everybody_leaves_the_kernels_wait(void **state)
{
	(void)state;
	everybody(DESCRIPTORS);
}

static void everybody_leaves_as_the_first_descriptor_comes(void **state)
{
	(void)state;
	everybody(LATE);
}

/* Between its announcement and its look the one, before its wake the other. */
struct sleeper {
	struct thread t;
	struct gate g;
	struct pollux_ep *ep;
	int n;
};

static void sleeps(struct thread *t)
{
	struct sleeper *s = t->arg;
	struct epoll_event ev;

	gate_arm(&s->g, "announce_before_look");
	s->n = pollux_ep_wait(s->ep, &ev, 1, POLLUX_FOREVER);
}

static void who_is_about_to_sleep_sees_it(void **state)
{
	struct sleeper s = {.ep = ep_new()};
	struct waiter *other;

	(void)state;
	points_delay(false);
	other = waiter_new(s.ep, 1);
	thread_start(&s.t, sleeps, &s);
	assert_true(gate_reached(&s.g));
	pollux_ep_shutdown(s.ep);
	gate_open(&s.g);
	thread_join(&s.t);
	thread_join(&other->t);
	assert_int_equal(s.n, -ESHUTDOWN);
	assert_int_equal(other->n, -ESHUTDOWN);
	free(other);
	ep_put(s.ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_is_about_to_sleep_sees_it),
		TEST(everybody_leaves),
		TEST(everybody_leaves_the_kernels_wait),
		TEST(everybody_leaves_as_the_first_descriptor_comes),
	};

	return RUN(tests);
}
