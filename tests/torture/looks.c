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
	/* An epoll that the test has not closed. */
	if (m->ep >= 0)
		pollux_close(m->ep);
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
	struct caller looks = {.point = mask ? "wait_before_kernel" : "wait_look",
			       .ep = m.ep,
			       .max = 4,
			       .mask = mask};

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

/* One of a set; others are left. */
static uint64_t collect_one(struct mixed *m)
{
	struct epoll_event ev;

	assert_int_equal(pollux_epoll_wait(m->ep, &ev, 1, 0), 1);
	return ev.data.u64;
}

static void event_of_ours(struct mixed *m)
{
	assert_int_equal(pollux_write(m->efd, &one, sizeof(one)), sizeof(one));
}

static void event_of_the_kernels(struct mixed *m)
{
	assert_int_equal(write(m->p[1], "", 1), 1);
}

static struct mixed mixed_edges(void)
{
	struct mixed m = mixed_begin();

	pollux_epoll_ctl(m.ep, EPOLL_CTL_DEL, m.p[0], NULL);
	add_as(m.ep, m.p[0], EPOLLIN | EPOLLET, 1);
	add_as(m.ep, m.efd, EPOLLIN | EPOLLET, 2);
	return m;
}

/*
 * One is always there, on one side or the other. The look has found nothing on the kernel's, and
 * then others collect what was on ours, but not what has come on the kernel's.
 */
static void ours_is_collected_between(void **state)
{
	struct mixed m = mixed_edges();
	struct caller looks = {.point = "wait_in_hand", .ep = m.ep, .max = 1};

	(void)state;
	event_of_ours(&m);
	caller_start(&looks);
	event_of_the_kernels(&m);
	assert_int_equal(collect_one(&m), 1);
	event_of_the_kernels(&m);
	assert_int_equal(collect_one(&m), 2);
	caller_got(&looks, 1);
	mixed_end(&m);
}

/* It looks at ours first, which has nothing then. */
static void the_kernels_is_collected_between(void **state)
{
	struct mixed m = mixed_edges();
	struct caller looks = {.point = "wait_before_kernel", .ep = m.ep, .max = 1};

	(void)state;
	event_of_the_kernels(&m);
	/* The whole of a buffer: the next one asks ours first. */
	assert_int_equal(collect_one(&m), 1);
	event_of_the_kernels(&m);
	caller_start(&looks);
	event_of_ours(&m);
	assert_int_equal(collect_one(&m), 1);
	caller_got(&looks, 2);
	mixed_end(&m);
}

/* Ours had nothing when it began, and has nothing when it ends. */
static void both_are_collected_between(void **state)
{
	struct mixed m = mixed_edges();
	struct caller looks = {.point = "wait_look", .ep = m.ep, .max = 1};
	struct gate asked = {0};

	(void)state;
	event_of_the_kernels(&m);
	caller_start(&looks);
	event_of_ours(&m);
	assert_int_equal(collect_one(&m), 1);
	gate_arm_any(&asked, "wait_in_hand");
	gate_open(&looks.g);
	assert_true(gate_reached(&asked));
	event_of_the_kernels(&m);
	assert_int_equal(collect_one(&m), 2);
	gate_open(&asked);
	caller_got(&looks, 1);
	mixed_end(&m);
}

static void sleeper_got_ours(struct caller *sleeps)
{
	gate_open(&sleeps->g);
	assert_true(await(thread_done(&sleeps->t)));
	caller_got(sleeps, 2);
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
	sleeper_got_ours(&sleeps);
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
	m.ep = -1;
	assert_int_equal(pollux_write(m.efd, &one, sizeof(one)), sizeof(one));
	other = pollux_epoll_create1(EPOLL_CLOEXEC);
	gate_open(&looks.g);
	thread_join(&looks.t);
	assert_true(looks.n <= 0);
	pollux_close(other);
	mixed_end(&m);
}

/* Somebody sleeps in it, and its doorbell has been rung for him. */
static void rung_for(struct mixed *m, struct caller *sleeps)
{
	*sleeps =
		(struct caller){.point = "wait_before_sleep", .ep = m->ep, .max = 4, .timeout = -1};
	caller_start(sleeps);
	assert_int_equal(pollux_write(m->efd, &one, sizeof(one)), sizeof(one));
}

/*
 * The number is another epoll's when the kernel is asked: what it finds is told, but not the ring
 * for a sleeper, who is rung for again.
 */
static void a_number_that_is_reused_from(struct mixed a)
{
	struct mixed b = mixed_new(EPOLLIN);
	struct caller looks = {.point = "wait_look", .ep = pollux_dup(a.ep), .max = 4}, sleeps;

	assert_true(looks.ep >= 0);
	caller_start(&looks);
	assert_int_equal(pollux_close(looks.ep), 0);
	assert_int_equal(pollux_fcntl(b.ep, F_DUPFD_CLOEXEC, looks.ep), looks.ep);
	rung_for(&b, &sleeps);
	gate_open(&looks.g);
	thread_join(&looks.t);
	assert_int_equal(looks.n, 1);
	assert_int_equal(looks.ev[0].data.u64, 2);
	sleeper_got_ours(&sleeps);
	pollux_close(looks.ep);
	mixed_end(&a);
	mixed_end(&b);
}

static void a_number_that_is_reused(void **state)
{
	(void)state;
	a_number_that_is_reused_from(mixed_new(EPOLLIN));
	a_number_that_is_reused_from(mixed_begin());
}

/* It is closed while a thread sleeps by it: that finds what comes, and nobody else has the number.
 */
static void a_number_that_is_closed_under_a_sleeper(void **state)
{
	struct mixed m = mixed_new(EPOLLIN);
	struct caller sleeps = {
		.point = "wait_before_sleep", .ep = pollux_dup(m.ep), .max = 4, .timeout = SOON_MS};

	(void)state;
	caller_start(&sleeps);
	gate_open(&sleeps.g);
	assert_true(await(in_the_kernel(&sleeps.t)) && thread_asleep(&sleeps.t));
	assert_int_equal(pollux_close(sleeps.ep), 0);
	assert_int_equal(pollux_write(m.efd, &one, sizeof(one)), sizeof(one));
	thread_join(&sleeps.t);
	assert_int_equal(sleeps.n, 1);
	assert_int_equal(sleeps.ev[0].data.u64, 2);
	mixed_end(&m);
}

/* By another call the program changes what the event of the eventfd says. */
static void registered_anew(struct mixed *m, bool mod, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.u64 = 3};

	if (mod) {
		assert_int_equal(pollux_epoll_ctl(m->ep, EPOLL_CTL_MOD, m->efd, &ev), 0);
	} else {
		assert_int_equal(pollux_epoll_ctl(m->ep, EPOLL_CTL_DEL, m->efd, NULL), 0);
		add_as(m->ep, m->efd, events, 3);
	}
}

/* Too much for our side: what there is goes to the kernel. */
static void flushed(struct mixed *m)
{
	const uint64_t much = 1 << 21;

	assert_int_equal(pollux_write(m->efd, &much, sizeof(much)), sizeof(much));
}

/*
 * EP-DEL-01, EP-DEL-02: a wait tells of one registration of a file, the one that was there, or the
 * one that came. It has the kernel's event, and then the count comes to our side.
 */
static void one_registration_after_the_kernels(bool mod, uint32_t events)
{
	struct mixed m = mixed_new(events);
	struct caller looks = {.point = "wait_in_hand", .ep = m.ep, .max = 4};
	uint64_t count;

	event_of_ours(&m);
	flushed(&m);
	caller_start(&looks);
	assert_int_equal(pollux_read(m.efd, &count, sizeof(count)), sizeof(count));
	registered_anew(&m, mod, events);
	event_of_ours(&m);
	event_of_the_kernels(&m);
	caller_got(&looks, 2);
	/* Whichever side goes first. */
	assert_int_equal(collect_one(&m), 3);
	assert_int_equal(collect_one(&m), 1);
	mixed_end(&m);
}

/* It has the event of our side, and then the kernel has the count. */
static void one_registration_before_the_kernels(bool mod, uint32_t events, uint32_t then)
{
	struct mixed m = mixed_new(events);
	struct caller looks = {.point = "wait_before_kernel", .ep = m.ep, .max = 4};

	event_of_the_kernels(&m);
	/* The whole of a buffer. */
	assert_int_equal(collect_one(&m), 1);
	event_of_ours(&m);
	caller_start(&looks);
	flushed(&m);
	registered_anew(&m, mod, then);
	gate_open(&looks.g);
	thread_join(&looks.t);
	assert_int_equal(looks.n, 2);
	assert_int_equal(looks.ev[0].data.u64 + looks.ev[1].data.u64, 4);
	mixed_end(&m);
}

static void one_registration_of_a_file(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		uint32_t events = EPOLLIN | (i & 2 ? EPOLLET : 0);

		one_registration_after_the_kernels(i & 1, events);
		one_registration_before_the_kernels(i & 1, events, events);
		/* The kernel's from then on. */
		one_registration_before_the_kernels(i & 1, events, events | EPOLLOUT);
	}
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
	/* An edge that the look has collected may come once more. */
	assert_uint_in_range(looks.n + n, 1, 2);
	assert_int_equal((looks.n ? looks.ev : &ev)->data.u64, 2);
	if (n)
		assert_int_equal(ev.data.u64, 2);
	pollux_close(outer);
	mixed_end(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(ours_and_then_the_kernels),
		TEST(ours_comes_and_then_the_kernels),
		TEST(ours_comes_and_then_the_kernels_with_a_mask),
		TEST(ours_is_collected_between),
		TEST(the_kernels_is_collected_between),
		TEST(both_are_collected_between),
		TEST(a_ring_for_one_who_sleeps),
		TEST(an_epoll_that_ends),
		TEST(a_number_that_is_reused),
		TEST(a_number_that_is_closed_under_a_sleeper),
		TEST(one_registration_of_a_file),
		TEST(items_that_leave),
	};

	return RUN(tests);
}
