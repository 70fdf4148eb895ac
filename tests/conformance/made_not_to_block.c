/* SPDX-License-Identifier: MIT */
/*
 * An eventfd that blocks when it is made, and is made not to block afterwards, as Java and ZeroMQ
 * do it: it counts and wakes as one that never blocked. Under Pollux it is served, if nothing else
 * had been done with it before. No rule says so.
 */
#include "waiting.h"

#include <sys/ioctl.h>

enum before { NOTHING, WRITE, READ, POLL, ADD, DUP, BEFORES };

static void not_to_block(int fd, bool by_ioctl)
{
	int on = 1;

	if (by_ioctl)
		assert_ok(ioctl(fd, FIONBIO, &on));
	else
		assert_ok(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
	assert_int_equal(fcntl(fd, F_GETFL), O_RDWR | O_NONBLOCK);
}

static void EFD_18_made_not_to_block(void **state)
{
	(void)state;
	for (int how = 0; how < 2 * BEFORES; how++) {
		int fd = efd_new(2, 0), ep = ep_new(), other = -1;
		struct pollfd p = {.fd = fd, .events = POLLIN};
		uint64_t count = 2, v;

		switch (how / 2) {
		case WRITE:
			efd_add(fd, 3);
			count = 5;
			break;
		case READ:
			assert_int_equal(efd_take(fd), 2);
			count = 0;
			break;
		case POLL:
			assert_int_equal(poll(&p, 1, 0), 1);
			break;
		case ADD:
			ep_add(ep, fd, EPOLLIN, 7);
			break;
		case DUP:
			other = assert_ok(dup(fd));
			break;
		}
		not_to_block(fd, how % 2);
		/* A poll need not be known if nothing has been cached so far. */
		if (how / 2 != POLL)
			assert_int_equal(fd_served(fd),
					 under_pollux() && how / 2 == NOTHING && SANITIZED != 2);
		if (how / 2 != ADD)
			ep_add(ep, fd, EPOLLIN, 7);
		assert_int_equal(ep_one(ep, EPOLLIN, 7), count != 0);
		efd_add(fd, 10);
		assert_true(ep_one(ep, EPOLLIN, 7));
		assert_int_equal(poll(&p, 1, 0), 1);
		assert_int_equal(efd_take(other == -1 ? fd : other), count + 10);
		assert_int_equal(ep_count(ep), 0);
		assert_errno(read(fd, &v, sizeof(v)), EAGAIN);
		close(fd);
		if (other != -1)
			close(other);
		close(ep);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(EFD_18_made_not_to_block)};

	return run_group(tests);
}
