/* SPDX-License-Identifier: MIT */
/*
 * A poll that does not wait tells of each member of its set, whichever side it is on, in whatever
 * order they stand, and writes 0 to those that have nothing to say (poll(2)).
 */
#include "waiting.h"

enum member { EFD_IDLE, EFD_READY, PIPE_IDLE, PIPE_READY, PIPE_HUNG_UP, CLOSED, NONE, KINDS };

static const short says[KINDS] = {
	[EFD_READY] = POLLIN, [PIPE_READY] = POLLIN, [PIPE_HUNG_UP] = POLLHUP, [CLOSED] = POLLNVAL};

static int fds[KINDS];

/* The write ends that stay open come back in own. */
static void make_members(int own[2])
{
	int idle[2], ready[2], hung_up[2];

	fds[EFD_IDLE] = assert_ok(eventfd(0, EFD_NONBLOCK));
	fds[EFD_READY] = assert_ok(eventfd(1, EFD_NONBLOCK));
	assert_ok(pipe(idle));
	assert_ok(pipe(ready));
	assert_ok(pipe(hung_up));
	assert_int_equal(write(ready[1], "x", 1), 1);
	assert_ok(close(hung_up[1]));
	fds[PIPE_IDLE] = idle[0];
	fds[PIPE_READY] = ready[0];
	fds[PIPE_HUNG_UP] = hung_up[0];
	fds[CLOSED] = assert_ok(dup(idle[0]));
	assert_ok(close(fds[CLOSED]));
	fds[NONE] = -1;
	own[0] = idle[1];
	own[1] = ready[1];
}

/* The members are the digits of a number, in a set of n. */
static void look(unsigned long number, nfds_t n, nfds_t room)
{
	struct pollfd p[32];
	int expected = 0;

	assert_true(room <= 32);
	for (nfds_t i = 0; i < room; i++) {
		enum member m = i < n ? number % KINDS : NONE;

		p[i] = (struct pollfd){.fd = fds[m], .events = POLLIN, .revents = 0x55};
		expected += says[m] != 0;
		number /= KINDS;
	}
	assert_int_equal(poll(p, room, 0), expected);
	for (nfds_t i = 0; i < room; i++)
		for (int m = 0; m < KINDS; m++)
			if (p[i].fd == fds[m])
				assert_int_equal(p[i].revents, says[m]);
}

static void a_look_tells_of_each_member(void **state)
{
	const nfds_t *room = *state;
	unsigned long all = 1;
	int own[2];

	make_members(own);
	for (nfds_t n = 1; n <= 4; n++) {
		all *= KINDS;
		for (unsigned long number = 0; number < all; number++)
			look(number, n, n > *room ? n : *room);
	}
	for (int m = 0; m < CLOSED; m++)
		assert_ok(close(fds[m]));
	for (int i = 0; i < 2; i++)
		assert_ok(close(own[i]));
}

int main(void)
{
	/* Small sets are looked at where they are. */
	static const nfds_t room[] = {1, 12};
	const struct CMUnitTest tests[] = {
		VARIANT(a_look_tells_of_each_member, "_of_a_small_set", &room[0]),
		VARIANT(a_look_tells_of_each_member, "_of_a_larger_set", &room[1]),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
