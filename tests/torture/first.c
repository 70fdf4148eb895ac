/* SPDX-License-Identifier: MIT */
/*
 * The first in-process item comes to an epoll while threads wait on it: the doorbell that is made
 * for it is nobody's event, whoever takes it out of the kernel. Nor does whoever takes it later
 * keep it from those that it was rung for.
 */
#include "cache/epoll.h"

#include "caller.h"

/* One that only looks stands before the kernel; another is about to sleep, and is rung for. */
static void a_look_that_finds_the_bell(void **state)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC), efd = pollux_eventfd(0, EFD_NONBLOCK);
	struct caller looks = {.point = "wait_look", .ep = ep, .max = 4};
	struct caller sleeps = {
		.point = "wait_before_kernel", .ep = ep, .max = 4, .timeout = SOON_MS};
	const uint64_t one = 1;

	(void)state;
	points_delay(false);
	caller_start(&looks);
	add(ep, efd, 7);
	caller_start(&sleeps);
	assert_int_equal(pollux_write(efd, &one, sizeof(one)), sizeof(one));
	caller_got(&looks, 7);
	caller_got(&sleeps, 7);
	pollux_close(ep);
	pollux_close(efd);
}

/*
 * One that has a single place left stands before the kernel, with what it has from our side;
 * another is about to sleep, and is rung for. The first takes nothing but the ring.
 */
static void a_last_place_for_the_bell(void **state)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	int first = pollux_eventfd(0, EFD_NONBLOCK), second = pollux_eventfd(0, EFD_NONBLOCK);
	struct caller looks = {.point = "wait_before_kernel", .ep = ep, .max = 2};
	struct caller sleeps = {.point = "wait_before_sleep", .ep = ep, .max = 4, .timeout = -1};
	const uint64_t one = 1;
	struct epoll_event ev;
	int p[2];

	(void)state;
	points_delay(false);
	assert_int_equal(pipe(p), 0);
	add(ep, p[0], 1);
	add_as(ep, first, EPOLLIN | EPOLLET, 2);
	add_as(ep, second, EPOLLIN | EPOLLET, 3);
	/* The kernel fills the whole of a wait, and so comes second in the next. */
	assert_int_equal(write(p[1], "", 1), 1);
	assert_int_equal(pollux_epoll_wait(ep, &ev, 1, 0), 1);
	assert_int_equal(read(p[0], &ev, 1), 1);
	assert_int_equal(pollux_write(first, &one, sizeof(one)), sizeof(one));
	caller_start(&looks);
	caller_start(&sleeps);
	assert_int_equal(pollux_write(second, &one, sizeof(one)), sizeof(one));
	caller_got(&looks, 2);
	gate_open(&sleeps.g);
	assert_true(await(thread_done(&sleeps.t)));
	caller_got(&sleeps, 3);
	pollux_close(ep);
	pollux_close(first);
	pollux_close(second);
	close(p[0]);
	close(p[1]);
}

struct writer {
	struct thread t;
	struct gate g;
	int fd;
	ssize_t r;
};

static void writer_main(struct thread *t)
{
	struct writer *w = t->arg;
	const uint64_t one = 1;

	gate_arm(&w->g, "bell_before_unpark");
	w->r = pollux_write(w->fd, &one, sizeof(one));
}

/*
 * Somebody has announced a sleep that he will not have, so a ring is counted before there is a
 * doorbell. Its event is collected, and another sleeps: for him is rung again, even if the
 * first ring is complete only then.
 */
static void a_ring_without_a_doorbell(bool before)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	int first = pollux_eventfd(0, EFD_NONBLOCK), second = pollux_eventfd(0, EFD_NONBLOCK);
	struct plx_epoll *pe = plx_file_epoll(plx_table_peek(ep));
	struct writer writes = {.fd = first};
	struct caller sleeps = {.point = "wait_before_sleep", .ep = ep, .max = 4, .timeout = -1};
	const uint64_t one = 1;
	struct epoll_event ev;

	points_delay(false);
	add_as(ep, first, EPOLLIN | EPOLLET, 1);
	add_as(ep, second, EPOLLIN | EPOLLET, 2);
	assert_int_equal(pe->doorbell, -1);
	atomic_add(&pe->ep->sleepers, 1);
	thread_start(&writes.t, writer_main, &writes);
	assert_true(gate_reached(&writes.g));
	if (before) {
		gate_open(&writes.g);
		thread_join(&writes.t);
	}
	atomic_add(&pe->ep->sleepers, (uint32_t)-1);
	assert_int_equal(pollux_epoll_wait(ep, &ev, 1, 0), 1);
	assert_int_equal(ev.data.u64, 1);
	caller_start(&sleeps);
	assert_true(pe->doorbell >= 0);
	if (!before) {
		/* By now it is written. */
		gate_open(&writes.g);
		thread_join(&writes.t);
	}
	assert_int_equal(writes.r, sizeof(one));
	assert_int_equal(pollux_write(second, &one, sizeof(one)), sizeof(one));
	gate_open(&sleeps.g);
	assert_true(await(thread_done(&sleeps.t)));
	caller_got(&sleeps, 2);
	pollux_close(ep);
	pollux_close(first);
	pollux_close(second);
}

static void a_ring_that_finds_no_doorbell(void **state)
{
	(void)state;
	a_ring_without_a_doorbell(true);
	a_ring_without_a_doorbell(false);
}

/* It sleeps since before there was an item of ours: the doorbell is made before there is one. */
static void a_sleeper_from_before(void **state)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC), efd = pollux_eventfd(0, EFD_NONBLOCK);
	struct plx_epoll *pe = plx_file_epoll(plx_table_peek(ep));
	struct caller sleeps = {.point = "wait_before_sleep", .ep = ep, .max = 4, .timeout = -1};
	const uint64_t one = 1;

	(void)state;
	points_delay(false);
	caller_start(&sleeps);
	add(ep, efd, 7);
	assert_true(pe->doorbell >= 0);
	assert_int_equal(pollux_write(efd, &one, sizeof(one)), sizeof(one));
	gate_open(&sleeps.g);
	assert_true(await(thread_done(&sleeps.t)));
	caller_got(&sleeps, 7);
	pollux_close(ep);
	pollux_close(efd);
}

/*
 * A wait sleeps, and its epoll leaves for the kernel and loses the number: it goes on in that
 * epoll, which has another one.
 */
static void a_wait_that_outlives_its_number(void **state)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC), efd = pollux_eventfd(0, EFD_NONBLOCK), p[2];
	struct caller sleeps = {.point = "wait_in_hand", .ep = ep, .max = 4, .timeout = -1};
	const uint64_t one = 1;
	int other;

	(void)state;
	points_delay(false);
	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	add_as(ep, p[0], EPOLLIN, 1);
	add_as(ep, efd, EPOLLIN, 2);
	caller_start(&sleeps);
	gate_open(&sleeps.g);
	assert_true(await(in_the_kernel(&sleeps.t)) && thread_asleep(&sleeps.t));
	other = pollux_dup(ep);
	assert_true(other >= 0);
	pollux_escape(ep);
	assert_int_equal(pollux_close(ep), 0);
	assert_int_equal(pollux_write(efd, &one, sizeof(one)), sizeof(one));
	assert_true(await(thread_done(&sleeps.t)));
	caller_got(&sleeps, 2);
	pollux_close(other);
	pollux_close(efd);
	close(p[0]);
	close(p[1]);
}

/* One adds, and another waits, at the same time, in many epolls. */
struct meeting {
	int ep, efd, begun, ready;
};

static void meeting_waits(struct thread *t)
{
	struct meeting *m = t->arg;
	struct epoll_event ev;

	atomic_add(&m->ready, 1);
	while (!atomic_get(&m->begun))
		;
	if (pollux_epoll_wait(m->ep, &ev, 1, SOON_MS) != 1)
		broken("nobody was told");
}

static void adds_meet_sleepers(void **state)
{
	const uint64_t one = 1;
	unsigned long made = 0, met = 0;
	int64_t start = now_ns();
	uint32_t r = 3;

	(void)state;
	torture_begin();
	while (torture_until(start, made > 20)) {
		struct meeting m = {.ep = pollux_epoll_create1(EPOLL_CLOEXEC),
				    .efd = pollux_eventfd(0, EFD_NONBLOCK)};
		unsigned long begun = points_passed("doorbell_made");
		struct thread t[2];

		for (int i = 0; i < 2; i++)
			thread_start(&t[i], meeting_waits, &m);
		while (atomic_get(&m.ready) < 2)
			sched_yield();
		atomic_set(&m.begun, 1);
		for (uint32_t i = rnd(&r) % 4000; i; i--)
			__asm__ __volatile__("" ::: "memory");
		add(m.ep, m.efd, 1);
		if (pollux_write(m.efd, &one, sizeof(one)) != sizeof(one))
			broken("a write failed");
		if (!await(thread_done(&t[0]) && thread_done(&t[1])))
			broken("somebody sleeps on");
		made += points_passed("doorbell_made") > begun;
		met += points_passed("doorbell_made") == begun;
		for (int i = 0; i < 2; i++)
			thread_join(&t[i]);
		pollux_close(m.ep);
		pollux_close(m.efd);
	}
	torture_end(NULL, 0);
	print_message("%lu with a doorbell, %lu without\n", made, met);
	assert_true(made > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_ring_that_finds_no_doorbell),
		TEST(a_sleeper_from_before),
		TEST(adds_meet_sleepers),
		TEST(a_look_that_finds_the_bell),
		TEST(a_last_place_for_the_bell),
		/* The last one: no epoll that gets the number is cached afterwards. */
		TEST(a_wait_that_outlives_its_number),
	};

	return RUN(tests);
}
