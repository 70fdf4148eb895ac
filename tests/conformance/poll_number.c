/* SPDX-License-Identifier: MIT */
/*
 * A poll that wakes looks at what its numbers mean then, not at the files with which it went to
 * sleep (poll(2): POLLNVAL of a number that is closed meanwhile).
 */
#include "waiting.h"

struct way {
	enum kind kind;
	/* The number means another file then; else it is closed. */
	bool replaced;
};

struct poller {
	struct test_thread t;
	struct pollfd p[2];
	int n;
};

static void *poller_main(void *arg)
{
	struct poller *p = arg;

	p->n = poll(p->p, 2, SOON_MS);
	return NULL;
}

static void poll_looks_at_what_its_numbers_mean_when_it_wakes(void **state)
{
	const struct way *w = *state;

	for (int round = 0; round < 4; round++) {
		struct subject gone = subject_new(w->kind), waker = subject_new(KIND_EVENTFD);
		struct poller *p = calloc(1, sizeof(*p));

		assert_non_null(p);
		p->p[0] = (struct pollfd){.fd = gone.fd, .events = POLLIN};
		p->p[1] = (struct pollfd){.fd = waker.fd, .events = POLLIN};
		thread_start(&p->t, poller_main, p);
		assert_true(thread_asleep(&p->t));
		if (w->replaced)
			assert_ok(syscall(SYS_dup3, waker.fd, gone.fd, 0));
		else
			assert_ok(close_in_use(gone.fd));
		subject_fill(&waker);
		assert_true(thread_join(&p->t, SOON_MS));
		assert_int_equal(p->n, 2);
		assert_int_equal(p->p[0].revents, w->replaced ? POLLIN : POLLNVAL);
		assert_int_equal(p->p[1].revents, POLLIN);
		free(p);
		if (w->replaced)
			assert_ok(close(gone.fd));
		if (gone.peer != gone.fd)
			assert_ok(close(gone.peer));
		subject_close(&waker);
	}
}

int main(void)
{
	static const struct way way[] = {
		{.kind = KIND_EVENTFD},
		{.kind = KIND_EVENTFD, .replaced = true},
		{.kind = KIND_PIPE},
	};
#define WAY(suffix, i) VARIANT(poll_looks_at_what_its_numbers_mean_when_it_wakes, suffix, &way[i])
	static const struct CMUnitTest tests[] = {
		WAY("_closed", 0),
		WAY("_replaced", 1),
		WAY("_of_the_kernel_closed", 2),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
