/* SPDX-License-Identifier: MIT */
/*
 * What goes on after a fork, in a program from which nothing else has left: a library may serve it
 * again once the child has none of it any more, and nobody can tell.
 */
#include "waiting.h"

static ssize_t put(int fd, uint64_t v)
{
	return write(fd, &v, sizeof(v));
}

/* What a read yields; UINT64_MAX when it fails. */
static uint64_t get(int fd)
{
	uint64_t v;

	return read(fd, &v, sizeof(v)) == sizeof(v) ? v : UINT64_MAX;
}

/*
 * A loop that is woken by eventfds starts programs, and goes on: before they have ended and after
 * that, with what was ready at the fork and what has come since, in one order.
 */
static void rounds(int first, int end, bool uses)
{
	for (int round = first; round < end; round++) {
		int ep = (int)assert_ok(epoll_create1(EPOLL_CLOEXEC)), e[4];
		struct epoll_event ev[8];
		pid_t pid;

		for (int i = 0; i < 4; i++) {
			e[i] = (int)assert_ok(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
			assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e[i], EPOLLIN, i));
		}
		assert_int_equal(put(e[2], 1), 8);
		assert_int_equal(put(e[0], 2), 8);
		pid = (pid_t)assert_ok(fork_bounded());
		if (pid == 0) {
			if (uses)
				put(e[1], 5);
			if (round % 2)
				_exit(0);
			execl("/bin/true", "true", NULL);
			_exit(127);
		}
		/* While it may still live. */
		if (round % 3)
			assert_int_equal(put(e[3], 3), 8);
		assert_int_equal(child_end(pid), 0);
		if (round % 3 == 0)
			assert_int_equal(put(e[3], 3), 8);
		for (int k = 0; k < 3; k++) {
			int n = (int)assert_ok(epoll_wait(ep, ev, 8, 0)), at = 0;

			assert_int_equal(n, uses ? 4 : 3);
			assert_int_equal(ev[at++].data.u64, 2);
			assert_int_equal(ev[at++].data.u64, 0);
			/* The child's comes before or behind. */
			if (uses) {
				assert_int_equal(ev[2].data.u64 + ev[3].data.u64, 4);
				assert_int_not_equal(ev[2].data.u64, ev[3].data.u64);
			} else {
				assert_int_equal(ev[at].data.u64, 3);
			}
		}
		assert_int_equal(get(e[2]), 1);
		assert_int_equal(get(e[0]), 2);
		assert_int_equal(get(e[3]), 3);
		assert_int_equal(get(e[1]), uses ? 5 : UINT64_MAX);
		assert_int_equal(epoll_wait(ep, ev, 8, 0), 0);
		for (int i = 3; i >= 0; i--)
			assert_int_equal(put(e[i], 1), 8);
		assert_int_equal(epoll_wait(ep, ev, 8, -1), 4);
		for (int i = 0; i < 4; i++)
			assert_int_equal(ev[i].data.u64, 3 - i);
		close(ep);
		for (int i = 0; i < 4; i++)
			close(e[i]);
	}
}

static void ESCAPE_fork_and_exec_beside_a_loop(void **state)
{
	(void)state;
	rounds(0, 30, false);
}

/* The same with children that write. */
static void ESCAPE_fork_beside_a_loop_that_the_child_wakes(void **state)
{
	(void)state;
	rounds(0, 6, true);
}

/* It is killed, or ends long after its own child. */
static void ESCAPE_fork_of_children_that_live_on(void **state)
{
	int ep = (int)assert_ok(epoll_create1(EPOLL_CLOEXEC));
	int e = (int)assert_ok(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	struct epoll_event ev[2];

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN, 1));
	for (int i = 0; i < 4; i++) {
		pid_t pid = (pid_t)assert_ok(fork_bounded());

		if (pid == 0) {
			if (i % 2 && fork() != 0)
				_exit(0);
			if (i % 2) {
				sleep_ms(20);
				_exit(0);
			}
			for (;;)
				pause();
		}
		for (int k = 0; k < 40; k++) {
			assert_int_equal(put(e, 1), 8);
			assert_int_equal(epoll_wait(ep, ev, 2, -1), 1);
			assert_int_equal(get(e), 1);
			assert_int_equal(epoll_wait(ep, ev, 2, 0), 0);
			if (k == 20 && i % 2 == 0)
				assert_ok(kill(pid, SIGKILL));
			if (k == 25)
				assert_int_equal(child_end(pid), i % 2 ? 0 : 128 + SIGKILL);
		}
	}
	close(e);
	close(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ESCAPE_fork_of_children_that_live_on),
		cmocka_unit_test(ESCAPE_fork_and_exec_beside_a_loop),
		cmocka_unit_test(ESCAPE_fork_beside_a_loop_that_the_child_wakes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
