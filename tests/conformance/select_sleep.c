/* SPDX-License-Identifier: MIT */
/*
 * How a select ends that sleeps: by what is asked, not by a hang-up or an error that is not, as a
 * poll does; where a signal ends it, its sets are as they were; and a number that is closed
 * meanwhile is ready in each set, once something wakes it.
 */
#include "waiting.h"

#include <sys/time.h>

#define SLEEP_US 20000

/* For the set of which the file is hung up or in error, though the set does not ask for that. */
struct hung {
	/* Else the reading end of a pipe that has no writer: a hang-up, and nothing to be written.
	 */
	bool in_error;
	int set;
	bool alone;
};

static int hung_new(bool in_error)
{
	int p[2];

	assert_ok(pipe2(p, O_CLOEXEC | O_NONBLOCK));
	assert_ok(close(p[!in_error]));
	return p[in_error];
}

static void select_sleeps_on_beside_a_hung_file(void **state)
{
	const struct hung *h = *state;
	struct subject s = subject_new(KIND_EVENTFD);
	int fd = hung_new(h->in_error);
	fd_set set[3], only;

	for (int round = 0; round < 2; round++) {
		struct timeval tv = {.tv_usec = SLEEP_US};
		int64_t start = now_ns();
		int n;

		for (int k = 0; k < 3; k++)
			FD_ZERO(&set[k]);
		if (!h->alone)
			FD_SET(s.fd, &set[0]);
		FD_SET(fd, &set[h->set]);
		n = select((fd > s.fd ? fd : s.fd) + 1, &set[0], &set[1], &set[2], &tv);
		if (round == 0) {
			assert_int_equal(n, 0);
			assert_true(now_ns() - start >= SLEEP_US * 1000ll);
		} else {
			assert_int_equal(n, !h->alone);
		}
		FD_ZERO(&only);
		if (n)
			FD_SET(s.fd, &only);
		assert_memory_equal(&set[0], &only, sizeof(only));
		assert_false(FD_ISSET(fd, &set[h->set]));
		subject_fill(&s);
	}
	assert_ok(close(fd));
	subject_close(&s);
}

static volatile sig_atomic_t handled;

static void handler(int sig)
{
	(void)sig;
	handled++;
}

enum beside { ALONE, A_PIPE, AN_EPOLL };

static void select_leaves_its_sets_to_a_signal(void **state)
{
	enum beside beside = *(const enum beside *)*state;
	struct subject s = subject_new(KIND_EVENTFD), pipe = subject_new(KIND_PIPE);
	struct sigaction sa = {.sa_handler = handler}, before;
	fd_set set[3], was;
	int ep = ep_new();

	ep_add(ep, s.fd, EPOLLIN, 1);
	assert_ok(sigaction(SIGALRM, &sa, &before));
	for (int round = 0; round < 100; round++) {
		struct itimerval soon = {.it_value.tv_usec = 1 + round * 5};

		FD_ZERO(&was);
		FD_SET(s.fd, &was);
		if (beside == A_PIPE)
			FD_SET(pipe.fd, &was);
		if (beside == AN_EPOLL)
			FD_SET(ep, &was);
		set[0] = set[2] = was;
		FD_ZERO(&set[1]);
		handled = 0;
		assert_ok(setitimer(ITIMER_REAL, &soon, NULL));
		/* One that comes before the sleep does not end it. */
		if (round % 2) {
			struct timeval tv = {.tv_usec = SLEEP_US};
			int n = select(FD_SETSIZE, &set[0], &set[1], &set[2], &tv);

			if (n == 0)
				continue;
			assert_int_equal(n, -1);
		} else {
			struct timespec ts = {.tv_nsec = SLEEP_US * 1000};
			int n = pselect(FD_SETSIZE, &set[0], &set[1], &set[2], &ts, NULL);

			if (n == 0)
				continue;
			assert_int_equal(n, -1);
		}
		assert_int_equal(errno, EINTR);
#ifndef __SANITIZE_THREAD__
		/* There they run later. */
		assert_int_equal(handled, 1);
#endif
		assert_memory_equal(&set[0], &was, sizeof(was));
		assert_memory_equal(&set[2], &was, sizeof(was));
	}
	assert_ok(sigaction(SIGALRM, &before, NULL));
	assert_ok(close(ep));
	subject_close(&pipe);
	subject_close(&s);
}

struct sleeper {
	struct test_thread t;
	struct timeval tv;
	fd_set set[3];
	int n, err;
};

static void *sleeper_main(void *arg)
{
	struct sleeper *s = arg;

	s->n = select(FD_SETSIZE, &s->set[0], &s->set[1], &s->set[2], &s->tv);
	s->err = errno;
	return NULL;
}

static void select_takes_what_is_closed_in_its_sleep_for_ready(void **state)
{
	/* An eventfd is ready to be read or to be written. */
	static const int asks[] = {1, 2, 4, 5, 6};
	bool in_use = *(const bool *)*state;

	for (size_t i = 0; i < sizeof(asks) / sizeof(*asks); i++) {
		struct subject gone = subject_new(KIND_EVENTFD), waker = subject_new(KIND_EVENTFD);
		struct sleeper *s = calloc(1, sizeof(*s));
		int other = in_use ? (int)assert_ok(dup(gone.fd)) : -1, asked = asks[i];

		assert_non_null(s);
		if (asked & 2)
			efd_add(gone.fd, UINT64_MAX - 1);
		s->tv.tv_sec = SOON_MS / 1000;
		for (int k = 0; k < 3; k++)
			if (asked & 1 << k)
				FD_SET(gone.fd, &s->set[k]);
		FD_SET(waker.fd, &s->set[0]);
		thread_start(&s->t, sleeper_main, s);
		assert_true(thread_asleep(&s->t));
		assert_ok(close_in_use(gone.fd));
		subject_fill(&waker);
		assert_true(thread_join(&s->t, SOON_MS));
		if (s->n < 0)
			print_error("errno %d\n", s->err);
		assert_int_equal(s->n, 1 + __builtin_popcount((unsigned)asked));
		for (int k = 0; k < 3; k++)
			assert_int_equal(!!FD_ISSET(gone.fd, &s->set[k]), asked >> k & 1);
		assert_true(FD_ISSET(waker.fd, &s->set[0]));
		free(s);
		if (in_use)
			assert_ok(close(other));
		subject_close(&waker);
	}
}

int main(void)
{
	static const struct hung hung[] = {
		{.set = 1},
		{.set = 2},
		{.in_error = true, .set = 2},
		{.set = 1, .alone = true},
	};
	static const enum beside beside[] = {ALONE, A_PIPE, AN_EPOLL};
	static const bool dup_left[] = {false, true};
#define HUNG(suffix, i) VARIANT(select_sleeps_on_beside_a_hung_file, suffix, &hung[i])
#define SIGNAL(suffix, i) VARIANT(select_leaves_its_sets_to_a_signal, suffix, &beside[i])
	static const struct CMUnitTest tests[] = {
		HUNG("_to_be_written", 0),
		HUNG("_with_exceptions", 1),
		HUNG("_in_error_with_exceptions", 2),
		HUNG("_alone", 3),
		SIGNAL("", 0),
		SIGNAL("_beside_a_pipe", 1),
		SIGNAL("_beside_an_epoll", 2),
		VARIANT(select_takes_what_is_closed_in_its_sleep_for_ready, "", &dup_left[0]),
		VARIANT(select_takes_what_is_closed_in_its_sleep_for_ready, "_but_for_a_duplicate",
			&dup_left[1]),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
