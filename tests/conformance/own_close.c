/* SPDX-License-Identifier: MIT */
/*
 * A program with Go in it, which closes by an instruction of its own what C code has been given by
 * libc. No rule says so; the number is free then, whoever has made it so.
 */
#include "waiting.h"

/* As Go's linker writes it. */
__asm__(".pushsection .note.go.buildid, \"a\", %note\n"
	".balign 4\n"
	".long 4, 8, 4\n"
	".asciz \"Go\\0\"\n"
	".ascii \"abcd/efg\"\n"
	".popsection");

/* Whoever makes it. */
static void check_is_null_device(int fd, int number)
{
	char buf[8] = "before";

	assert_int_equal(fd, number);
	assert_int_equal(read(fd, buf, sizeof(buf)), 0);
	assert_int_equal(write(fd, buf, 3), 3);
	close(fd);
}

static void own_close_of_an_eventfd_frees_its_number(void **state)
{
	int fd = eventfd(1, EFD_NONBLOCK);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(own_close(fd), 0);
	check_is_null_device(open("/dev/null", O_RDWR), fd);
}

static void own_close_of_an_epoll_frees_its_number(void **state)
{
	struct epoll_event ev;
	int fd = ep_new(), null;

	(void)state;
	assert_int_equal(own_close(fd), 0);
	null = open("/dev/null", O_RDWR);
	assert_int_equal(null, fd);
	assert_errno(epoll_wait(null, &ev, 1, 0), EINVAL);
	check_is_null_device(null, fd);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_close_of_an_eventfd_frees_its_number),
		cmocka_unit_test(own_close_of_an_epoll_frees_its_number),
	};

	return run_group(tests);
}
