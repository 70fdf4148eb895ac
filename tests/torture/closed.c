/* SPDX-License-Identifier: MIT */
/*
 * A poll that sleeps on an eventfd goes on with it, though its number is another file's by then;
 * and what comes to be there has nothing of it.
 */
#include "cache/posix.h"

#include "caller.h"

#include <dirent.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <pollux/posix.h>

struct sleeper {
	struct thread t;
	int fd, ms, n;
	short revents;
};

static int open_now(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void polls(struct thread *t)
{
	struct sleeper *s = t->arg;
	struct pollfd p = {.fd = s->fd, .events = POLLIN};

	s->n = pollux_poll(&p, 1, s->ms);
	s->revents = p.revents;
}

static void sleeper_start(struct sleeper *s, int fd, int ms)
{
	torture_begin();
	points_delay(false);
	*s = (struct sleeper){.fd = fd, .ms = ms};
	thread_start(&s->t, polls, s);
	assert_true(thread_asleep(&s->t));
}

static void write_one(int fd)
{
	assert_int_equal(pollux_write(fd, &(uint64_t){1}, sizeof(uint64_t)), sizeof(uint64_t));
}

static void its_number_is_taken(void **state)
{
	int other = memfd_create("other", MFD_CLOEXEC), open = open_now(), fd = new_efd(), again;
	struct sleeper s;

	(void)state;
	sleeper_start(&s, fd, -1);
	again = pollux_dup(fd);
	assert_int_equal(pollux_dup2(other, fd), fd);
	assert_true(thread_asleep(&s.t));
	write_one(again);
	thread_join(&s.t);
	assert_int_equal(s.n, 1);
	assert_int_equal(s.revents, POLLIN);
	pollux_close(again);
	pollux_close(fd);
	assert_int_equal(open_now(), open);
	close(other);
}

/* While it sleeps, and after it: a write goes to user space. */
static void another_eventfd_has_its_number(void **state)
{
	unsigned long through = points_passed("through_counted");
	int fd = new_efd();
	struct sleeper s;
	uint64_t v;

	(void)state;
	sleeper_start(&s, fd, 100);
	assert_int_equal(pollux_close(fd), 0);
	assert_int_equal(new_efd(), fd);
	write_one(fd);
	thread_join(&s.t);
	assert_int_equal(s.n, 0);
	write_one(fd);
	assert_int_equal(points_passed("through_counted"), through);
	assert_int_equal(pollux_fd_served(fd), 1);
	assert_int_equal(pollux_read(fd, &v, sizeof(v)), sizeof(v));
	assert_int_equal(v, 2);
	pollux_close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(its_number_is_taken),
		TEST(another_eventfd_has_its_number),
	};

	plx_px_init();
	return RUN(tests);
}
