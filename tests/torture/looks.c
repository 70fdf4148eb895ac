/* SPDX-License-Identifier: MIT */
/*
 * A wait that does not sleep, of an epoll in which only the kernel had something when it began, and
 * that is held up before the kernel is asked: it tells what has come by then, and takes nothing
 * from others.
 */
#include "caller.h"

#include <fcntl.h>

static const uint64_t one = 1;

struct mixed {
	int ep, efd, p[2];
};

/* Without what is ours. */
static struct mixed mixed_begin(void)
{
	struct mixed m = {.ep = pollux_epoll_create1(EPOLL_CLOEXEC),
			  .efd = pollux_eventfd(0, EFD_NONBLOCK)};

	points_delay(false);
	assert_int_equal(pipe(m.p), 0);
	add(m.ep, m.p[0], 1);
	return m;
}

static struct mixed mixed_new(uint32_t events)
{
	struct mixed m = mixed_begin();

	add_as(m.ep, m.efd, events, 2);
	return m;
}

static void mixed_end(struct mixed *m)
{
	pollux_close(m->efd);
	close(m->p[0]);
	close(m->p[1]);
}

/* Whoever finds the second of two events finds the first, if one thread has made both. */
static void finds_both(struct mixed *m, struct caller *looks)
{
	assert_int_equal(pollux_write(m->efd, &one, sizeof(one)), sizeof(one));
	assert_int_equal(write(m->p[1], "", 1), 1);
	gate_open(&looks->g);
	thread_join(&looks->t);
	assert_int_equal(looks->n, 2);
	assert_int_equal(looks->ev[0].data.u64 + looks->ev[1].data.u64, 3);
	pollux_close(m->ep);
	mixed_end(m);
}

static void ours_and_then_the_kernels(void **state)
{
	struct mixed m = mixed_new(EPOLLIN | EPOLLET);
	struct caller looks = {.point = "wait_look", .ep = m.ep, .max = 4};

	(void)state;
	caller_start(&looks);
	finds_both(&m, &looks);
}

/* The same if what is ours comes into the set between. */
static void the_first_of_ours_and_then_the_kernels(const sigset_t *mask)
{
	struct mixed m = mixed_begin();
	struct caller looks = {.point = "wait_look", .ep = m.ep, .max = 4, .mask = mask};

	caller_start(&looks);
	add(m.ep, m.efd, 2);
	finds_both(&m, &looks);
}

static void ours_comes_and_then_the_kernels(void **state)
{
	(void)state;
	the_first_of_ours_and_then_the_kernels(NULL);
}

static void ours_comes_and_then_the_kernels_with_a_mask(void **state)
{
	sigset_t none;

	(void)state;
	sigemptyset(&none);
	the_first_of_ours_and_then_the_kernels(&none);
}

/* The look takes the ring out that was meant for a sleeper. */
static void a_ring_for_one_who_sleeps(void **state)
{
	struct mixed m = mixed_new(EPOLLIN);
	struct caller looks = {.point = "wait_look", .ep = m.ep, .max = 4};
	struct caller sleeps = {.point = "wait_before_sleep", .ep = m.ep, .max = 4, .timeout = -1};

	(void)state;
	caller_start(&looks);
	caller_start(&sleeps);
	assert_int_equal(pollux_write(m.efd, &one, sizeof(one)), sizeof(one));
	caller_got(&looks, 2);
	gate_open(&sleeps.g);
	assert_true(await(thread_done(&sleeps.t)));
	caller_got(&sleeps, 2);
	pollux_close(m.ep);
	mixed_end(&m);
}

/* It holds no reference: the epoll ends, and the number is free, or that of another. */
static void an_epoll_that_ends(void **state)
{
	struct mixed m = mixed_new(EPOLLIN);
	struct caller looks = {.point = "wait_look", .ep = m.ep, .max = 4};
	int other;

	(void)state;
	caller_start(&looks);
	pollux_close(m.ep);
	assert_int_equal(pollux_write(m.efd, &one, sizeof(one)), sizeof(one));
	other = pollux_epoll_create1(EPOLL_CLOEXEC);
	gate_open(&looks.g);
	thread_join(&looks.t);
	assert_true(looks.n <= 0);
	pollux_close(other);
	mixed_end(&m);
}

struct changer {
	struct thread t;
	struct gate g;
	int from, to;
};

static void changer_main(struct thread *t)
{
	struct changer *c = t->arg;

	gate_arm(&c->g, "dup_before_kernel");
	check(pollux_dup2(c->from, c->to) == c->to);
}

/* Another epoll is put at its number: what it finds is not that one's, nor the ring for a sleeper.
 */
static void a_number_that_changes(void **state)
{
	struct mixed a = mixed_new(EPOLLIN), b = mixed_new(EPOLLIN);
	struct caller sleeps = {.point = "wait_before_sleep", .ep = b.ep, .max = 4, .timeout = -1};
	struct changer c = {.from = a.ep};
	struct epoll_event ev;

	(void)state;
	torture_begin();
	points_delay(false);
	c.to = fcntl(0, F_DUPFD_CLOEXEC, 300);
	assert_true(c.to >= 0);
	assert_int_equal(pollux_dup2(b.ep, c.to), c.to);
	caller_start(&sleeps);
	assert_int_equal(pollux_write(b.efd, &one, sizeof(one)), sizeof(one));
	thread_start(&c.t, changer_main, &c);
	assert_true(gate_reached(&c.g));
	assert_int_equal(pollux_epoll_wait(c.to, &ev, 1, 0), 0);
	gate_open(&c.g);
	torture_end(&c.t, 1);
	gate_open(&sleeps.g);
	assert_true(await(thread_done(&sleeps.t)));
	caller_got(&sleeps, 2);
	pollux_close(c.to);
	pollux_close(a.ep);
	pollux_close(b.ep);
	mixed_end(&a);
	mixed_end(&b);
}

/* What has become the kernel's meanwhile is found there, now or by the next look. */
static void items_that_leave(void **state)
{
	struct mixed m = mixed_new(EPOLLIN | EPOLLET);
	struct caller looks = {.point = "wait_look", .ep = m.ep, .max = 4};
	struct epoll_event ev;
	int n, outer = pollux_epoll_create1(EPOLL_CLOEXEC);

	(void)state;
	caller_start(&looks);
	assert_int_equal(pollux_write(m.efd, &one, sizeof(one)), sizeof(one));
	gate_open(&looks.g);
	/* Nested: its items go to the kernel. */
	add(outer, m.ep, 3);
	thread_join(&looks.t);
	n = pollux_epoll_wait(m.ep, &ev, 1, 0);
	assert_int_equal(looks.n + n, 1);
	assert_int_equal((looks.n ? looks.ev : &ev)->data.u64, 2);
	pollux_close(outer);
	pollux_close(m.ep);
	mixed_end(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(ours_and_then_the_kernels),
		TEST(ours_comes_and_then_the_kernels),
		TEST(ours_comes_and_then_the_kernels_with_a_mask),
		TEST(a_ring_for_one_who_sleeps),
		TEST(an_epoll_that_ends),
		TEST(a_number_that_changes),
		TEST(items_that_leave),
	};

	return RUN(tests);
}
