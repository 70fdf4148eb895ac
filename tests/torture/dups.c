/* SPDX-License-Identifier: MIT */
/*
 * The number of a cached eventfd, two threads: one puts another file there (dup2) or duplicates
 * what is there (dup), the other closes it or puts something else there. What the number means then
 * is what one order of the two calls makes of it, to the table and to the kernel.
 */
#include "cache/posix.h"

#include "torture.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include <pollux/posix.h>

/* A number that is free, and high. */
#define HIGH 300

static int shared_efd, null_fd;
/* The number that both change. */
static int shared = -1;

enum what {
	CLOSED,
	NULL_FILE,
	SHARED_EFD,
	OTHER_EFD,
	BROKEN,
};

/* What it is to the kernel, and what it does; an eventfd is an anonymous file. */
static enum what meaning(int fd)
{
	uint64_t v = 7;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return pollux_read(fd, &v, sizeof(v)) < 0 && errno == EBADF ? CLOSED : BROKEN;
	if (S_ISCHR(st.st_mode))
		return pollux_write(fd, "abc", 3) == 3 ? NULL_FILE : BROKEN;
	if ((st.st_mode & S_IFMT) || pollux_write(fd, &v, sizeof(v)) != sizeof(v))
		return BROKEN;
	v = 0;
	if (pollux_read(shared_efd, &v, sizeof(v)) == sizeof(v))
		return v == 7 ? SHARED_EFD : BROKEN;
	return pollux_read(fd, &v, sizeof(v)) == sizeof(v) && v == 7 ? OTHER_EFD : BROKEN;
}

static void over(int fd, int number)
{
	if (pollux_dup2(fd, number) != number)
		broken("dup2: %s", strerror(errno));
}

static void efd_over(int number)
{
	over(shared_efd, number);
}

static void null_over(int number)
{
	over(null_fd, number);
}

static void closes(int number)
{
	check(pollux_close(number) == 0);
}

/* The number is nobody's for a moment, and the next object has it. */
static void makes_anew(int number)
{
	closes(number);
	if (pollux_fcntl(pollux_eventfd(0, EFD_NONBLOCK), F_DUPFD, number) != number)
		broken("the number that was closed is not free");
}

struct step {
	struct gate gate;
	const char *point;
	int number, done;
	void (*act)(int);
};

static void held_up(struct thread *t)
{
	struct step *s = t->arg;

	gate_arm(&s->gate, s->point);
	s->act(s->number);
	atomic_set(&s->done, 1);
}

static void acts(struct thread *t)
{
	struct step *s = t->arg;

	s->act(s->number);
	atomic_set(&s->done, 1);
}

static void begin(void)
{
	torture_begin();
	points_delay(false);
	shared_efd = pollux_eventfd(0, EFD_NONBLOCK);
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_true(pollux_fd_served(shared_efd));
}

/* A cached eventfd is there, alone. */
static void make_shared(void)
{
	if (shared >= 0)
		pollux_close(shared);
	shared = pollux_eventfd(0, EFD_NONBLOCK);
	check(pollux_fd_served(shared));
}

static void end(void)
{
	pollux_close(HIGH);
	if (shared >= 0)
		pollux_close(shared);
	shared = -1;
	pollux_close(shared_efd);
	close(null_fd);
}

/* first stops at the point until second has begun, or is done if it need not wait. */
static enum what one_beside(int number, void (*first)(int), const char *point, void (*second)(int),
			    bool waits)
{
	struct step a = {.point = point, .number = number, .act = first};
	struct step b = {.number = number, .act = second};
	struct thread t[2];

	thread_start(&t[0], held_up, &a);
	assert_true(gate_reached(&a.gate));
	thread_start(&t[1], acts, &b);
	if (waits)
		sleep_ms(50);
	else
		assert_true(await(atomic_get(&b.done)));
	gate_open(&a.gate);
	torture_end(t, 2);
	return meaning(number);
}

/* In either order. */
static void closed_before_the_kernel_replaces_it(void **state)
{
	enum what got;

	(void)state;
	begin();
	make_shared();
	got = one_beside(shared, efd_over, "dup_before_kernel", closes, true);
	assert_true(got == CLOSED || got == SHARED_EFD);
	end();
}

static void replaced_before_the_kernel_closes_it(void **state)
{
	enum what got;

	(void)state;
	begin();
	make_shared();
	got = one_beside(shared, closes, "close_no_entry", efd_over, true);
	assert_true(got == CLOSED || got == SHARED_EFD);
	end();
}

static void both_replace_it(void **state)
{
	enum what got;

	(void)state;
	begin();
	for (int i = 0; i < 2; i++) {
		make_shared();
		got = one_beside(shared, i ? efd_over : null_over, "dup_before_kernel",
				 i ? null_over : efd_over, true);
		assert_true(got == NULL_FILE || got == SHARED_EFD);
	}
	end();
}

/* As whoever is about to go to the kernel by the number. */
static void leaves(int number)
{
	plx_px_escape(number, PLX_OUT_VECTOR);
	check(pollux_fd_served(number) == 0);
}

/* What was found there has left, and so has what is there by then. */
static void leaves_while_it_is_replaced(void **state)
{
	(void)state;
	begin();
	make_shared();
	assert_int_equal(one_beside(shared, efd_over, "dup_before_kernel", leaves, true),
			 SHARED_EFD);
	end();
}

/* It is the kernel's, so nobody waits; the object that comes after it stays. */
static void made_anew_after_a_file_of_the_kernel(void **state)
{
	(void)state;
	begin();
	assert_int_equal(fcntl(HIGH, F_GETFD), -1);
	assert_int_equal(one_beside(HIGH, null_over, "dup_after_kernel", makes_anew, false),
			 OTHER_EFD);
	end();
}

/* The lowest that is free. */
static int next_number(void)
{
	int fd = dup(null_fd);

	close(fd);
	return fd;
}

static void makes(int number)
{
	check(pollux_eventfd(0, EFD_NONBLOCK) == number);
}

static void closes_range(int number)
{
	check(plx_px_close_range((unsigned int)number, (unsigned int)number, 0) == 0);
}

static void closed_while_it_is_made(void **state)
{
	int number;

	(void)state;
	begin();
	number = next_number();
	assert_int_equal(one_beside(number, makes, "eventfd_no_entry", closes_range, true), CLOSED);
	end();
}

/* An epoll that the kernel's close_range is about to close, when dup2 puts another file there. */
static void closed_as_a_range_and_replaced(void **state)
{
	struct step a = {.point = "range_before_kernel", .number = HIGH, .act = closes_range};
	struct step b = {.point = "dup_before_kernel", .number = HIGH, .act = efd_over};
	struct thread t[2];
	enum what got;

	(void)state;
	begin();
	over(pollux_epoll_create1(EPOLL_CLOEXEC), HIGH);
	start_to_gate(&t[0], held_up, &a, &a.gate);
	thread_start(&t[1], held_up, &b);
	for (int i = 0; i < 50 && !atomic_get(&b.gate.reached); i++)
		sleep_ms(1);
	gate_open(&a.gate);
	sleep_ms(20);
	gate_open(&b.gate);
	torture_end(t, 2);
	got = meaning(HIGH);
	assert_true(got == CLOSED || got == SHARED_EFD);
	end();
}

static int duplicate;

static void duplicates(int number)
{
	duplicate = pollux_dup(number);
}

#define WAYS 4
static void (*const ways[WAYS])(int) = {efd_over, null_over, closes, duplicates};

struct race {
	struct meet meet;
	unsigned int how;
	unsigned long rounds;
};

static void second(struct thread *t)
{
	struct race *r = t->arg;

	while (meet(&r->meet)) {
		ways[r->how / WAYS](shared);
		if (!meet(&r->meet))
			return;
	}
}

/* Of all pairs, as often as the time allows. */
static void any_two(void **state)
{
	struct race r = {.meet.n = 2};
	int64_t start = now_ns();
	uint32_t seed = 1;
	struct thread t;

	(void)state;
	begin();
	points_delay(true);
	thread_start(&t, second, &r);
	while (torture_until(start, r.rounds > 1000)) {
		enum what got;

		pollux_close(shared_efd);
		shared_efd = pollux_eventfd(0, EFD_NONBLOCK);
		make_shared();
		duplicate = -1;
		do {
			r.how = rnd(&seed) % (WAYS * WAYS);
		} while (r.how / WAYS == r.how % WAYS);
		if (!meet(&r.meet))
			break;
		ways[r.how % WAYS](shared);
		if (!meet(&r.meet))
			break;
		got = meaning(shared);
		/* Closed when it was looked up, and given out again at once. */
		if (duplicate == shared && got == OTHER_EFD)
			duplicate = -1, got = CLOSED;
		if (got == BROKEN || got == OTHER_EFD)
			broken("%u and %u: the number means neither", r.how % WAYS, r.how / WAYS);
		if (duplicate >= 0) {
			got = meaning(duplicate);
			if (got == BROKEN || got == CLOSED)
				broken("%u and %u: the duplicate means neither", r.how % WAYS,
				       r.how / WAYS);
			pollux_close(duplicate);
		}
		r.rounds++;
	}
	torture_end(&t, 1);
	print_message("%lu rounds\n", r.rounds);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(closed_before_the_kernel_replaces_it),
		TEST(replaced_before_the_kernel_closes_it),
		TEST(both_replace_it),
		TEST(leaves_while_it_is_replaced),
		TEST(made_anew_after_a_file_of_the_kernel),
		TEST(closed_while_it_is_made),
		TEST(closed_as_a_range_and_replaced),
		TEST(any_two),
	};

	return RUN(tests);
}
