/* SPDX-License-Identifier: MIT */
/*
 * A copy to or from memory of the program moves the bytes that it is told, whatever their number
 * and their places, and no other; what is not there is an error, and what lies beyond is not
 * touched.
 */
#include "cache/uaccess.h"

#include "native.h"

#include <limits.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>

#include <pollux/posix.h>

#define PAGE 4096
#define MOST 600
#define ROOM 64

static unsigned char number(size_t i)
{
	return (unsigned char)(i * 37 + 11);
}

/* Of n bytes at p the ones from first on, before end, are the source's, and the others as made. */
static bool only(const unsigned char *p, size_t n, size_t first, size_t end)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != (i >= first && i < end ? number(i - first) : 0xee))
			return false;
	return true;
}

static void the_bytes_are_moved_and_no_others(void **state)
{
	unsigned char from[ROOM + MOST], to[ROOM + MOST + ROOM];

	(void)state;
	for (size_t n = 0; n <= MOST; n++) {
		size_t there = n * 7 % 19, here = n * 5 % 17;

		for (size_t i = 0; i < n; i++)
			from[there + i] = number(i);
		for (int out = 0; out < 2; out++) {
			memset(to, 0xee, sizeof(to));
			assert_int_equal(out ? plx_copy_out(to + here, from + there, n)
					     : plx_copy_in(to + here, from + there, n),
					 0);
			assert_true(only(to, sizeof(to), here, here + n));
		}
	}
}

/* Two pages, of which the second is not there. */
static unsigned char *edge(void)
{
	unsigned char *p =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(mprotect(p + PAGE, PAGE, PROT_NONE), 0);
	return p + PAGE;
}

static void what_is_not_there_is_an_error(void **state)
{
	unsigned char *end = edge(), mine[MOST + ROOM];

	(void)state;
	/* In front of the test's own, which it has only now. */
	assert_int_equal(pollux_guard_faults(), 0);
	for (size_t n = 1; n <= MOST; n += n < 64 ? 1 : 23) {
		for (size_t there = 0; there <= n && there < 80; there++) {
			int expected = there < n ? -EFAULT : 0;

			for (size_t i = 0; i < there; i++)
				(end - there)[i] = number(i);
			memset(mine, 0xee, sizeof(mine));
			assert_int_equal(plx_copy_in(mine, end - there, n), expected);
			for (size_t i = n; i < sizeof(mine); i++)
				assert_int_equal(mine[i], 0xee);
			for (size_t i = 0; i < n; i++)
				mine[i] = number(i);
			memset(end - PAGE, 0xee, PAGE);
			assert_int_equal(plx_copy_out(end - there, mine, n), expected);
			/* A part of it may be there, or nothing. */
			for (size_t i = 0; i < there; i++)
				assert_true((end - there)[i] == number(i) ||
					    ((end - there)[i] == 0xee && expected));
			assert_true(only(end - PAGE, PAGE - there, 0, 0));
		}
	}
	assert_int_equal(munmap(end - PAGE, 2 * PAGE), 0);
}

/* The kernel reads a time-out before it looks at the sets, and stores what is left of one that it
 * has read. */
static void a_time_of_select_is_memory_of_the_program(void **state)
{
	struct timeval *end = (struct timeval *)edge(), *last = end - 1;
	int efd = pollux_eventfd(0, EFD_NONBLOCK);
	uint64_t one = 1;
	fd_set in;

	(void)state;
	assert_true(efd >= 0);
	assert_int_equal(pollux_guard_faults(), 0);
	FD_ZERO(&in);
	FD_SET(efd, &in);
	assert_int_equal(pollux_select(efd + 1, &in, NULL, NULL, end), -1);
	assert_int_equal(errno, EFAULT);
	*last = (struct timeval){.tv_sec = -1};
	assert_int_equal(pollux_select(efd + 1, (fd_set *)end, NULL, NULL, last), -1);
	assert_int_equal(errno, EINVAL);
	assert_true(FD_ISSET(efd, &in));
	assert_int_equal(pollux_write(efd, &one, sizeof(one)), sizeof(one));
	*last = (struct timeval){.tv_sec = LONG_MAX, .tv_usec = 1000000};
	assert_int_equal(pollux_select(efd + 1, &in, NULL, NULL, last), 1);
	assert_true(last->tv_sec > LONG_MAX / 2);
	*last = (struct timeval){.tv_sec = 1000};
	assert_int_equal(mprotect((char *)end - PAGE, PAGE, PROT_READ), 0);
	assert_int_equal(pollux_select(efd + 1, &in, NULL, NULL, last), 1);
	assert_int_equal(last->tv_sec, 1000);
	assert_int_equal(pollux_close(efd), 0);
	assert_int_equal(munmap((char *)end - PAGE, 2 * PAGE), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_bytes_are_moved_and_no_others),
		TEST(what_is_not_there_is_an_error),
		TEST(a_time_of_select_is_memory_of_the_program),
	};

	return RUN(tests);
}
