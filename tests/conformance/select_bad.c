/* SPDX-License-Identifier: MIT */
/*
 * What select makes of numbers that cannot be polled: one that is not open is an error before any
 * file is looked at (EBADF; so an epoll in the sets keeps the place of an item that has become
 * unready, which a look would drop), one that is open is ready.
 */
#include "waiting.h"

struct way {
	enum kind beside;
	bool nested;
	bool ready;
};

static void select_of_a_closed_number_looks_at_nothing(void **state)
{
	const struct way *w = *state;
	struct subject first = subject_ready(KIND_EVENTFD), second = subject_ready(KIND_EVENTFD);
	struct subject beside = w->ready ? subject_ready(w->beside) : subject_new(w->beside);
	int ep = ep_new(), inner = ep_new(), closed;
	struct timespec now = {0};
	struct epoll_event got[2];
	fd_set in;

	if (w->nested)
		ep_add(ep, inner, EPOLLIN, 3);
	ep_add(ep, first.fd, EPOLLIN, 1);
	ep_add(ep, second.fd, EPOLLIN, 2);
	subject_drain(&first);

	closed = assert_ok(dup(second.fd));
	assert_ok(close(closed));
	FD_ZERO(&in);
	FD_SET(ep, &in);
	FD_SET(beside.fd, &in);
	FD_SET(closed, &in);
	assert_errno(pselect(closed + 1, &in, NULL, NULL, w->ready ? NULL : &now, NULL), EBADF);
	assert_true(FD_ISSET(ep, &in) && FD_ISSET(beside.fd, &in) && FD_ISSET(closed, &in));

	/* The place of the first is still before the second's; an escape need not keep it. */
	subject_fill(&first);
	assert_int_equal(epoll_wait(ep, got, 2, 0), 2);
	assert_int_equal(got[0].data.u64 + got[1].data.u64, 3);
	if (!under_pollux())
		assert_int_equal(got[0].data.u64, 1);

	assert_ok(close(inner));
	assert_ok(close(ep));
	subject_close(&beside);
	subject_close(&second);
	subject_close(&first);
}

/* A number that is open and cannot be polled is no error: it is ready in each set
 * (core_sys_select). */
static void select_of_a_path_is_ready(void **state)
{
	const struct way *w = *state;
	struct subject beside = w->ready ? subject_ready(w->beside) : subject_new(w->beside);
	int path = assert_ok(open("/", O_PATH | O_CLOEXEC));
	fd_set set[3];

	for (int asked = 1; asked < 8; asked++) {
		int n = __builtin_popcount((unsigned)asked);

		for (int k = 0; k < 3; k++) {
			FD_ZERO(&set[k]);
			if (asked & 1 << k)
				FD_SET(path, &set[k]);
		}
		FD_SET(beside.fd, &set[0]);
		assert_int_equal(select((path > beside.fd ? path : beside.fd) + 1, &set[0], &set[1],
					&set[2], NULL),
				 n + w->ready);
		for (int k = 0; k < 3; k++)
			assert_int_equal(!!FD_ISSET(path, &set[k]), asked >> k & 1);
		assert_int_equal(!!FD_ISSET(beside.fd, &set[0]), w->ready);
	}
	assert_ok(close(path));
	subject_close(&beside);
}

int main(void)
{
	static const struct way way[] = {
		{.beside = KIND_EVENTFD},
		{.beside = KIND_PIPE},
		{.beside = KIND_EVENTFD, .nested = true},
		{.beside = KIND_EVENTFD, .ready = true},
	};
#define WAY(suffix, i) VARIANT(select_of_a_closed_number_looks_at_nothing, suffix, &way[i])
#define PATH(suffix, i) VARIANT(select_of_a_path_is_ready, suffix, &way[i])
	static const struct CMUnitTest tests[] = {
		WAY("_beside_an_eventfd", 0),	    WAY("_beside_a_pipe", 1),
		WAY("_in_the_kernel", 2),	    WAY("_though_another_is_ready", 3),
		PATH("_beside_an_eventfd", 0),	    PATH("_beside_a_pipe", 1),
		PATH("_beside_a_ready_eventfd", 3),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
