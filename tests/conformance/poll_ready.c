/* SPDX-License-Identifier: MIT */
/*
 * A poll or select of what is ready says so, whatever signal comes meanwhile: only a call that has
 * nothing to say is interrupted (poll(2): EINTR).
 */
#include "waiting.h"

#include <sys/time.h>

#define ROUNDS 2000
#define SPAN_US 60

static volatile sig_atomic_t handled;

static void handler(int sig)
{
	(void)sig;
	handled++;
}

struct way {
	bool nested;
	bool selects;
	bool sleeps;
	/* A pipe is polled as well, which is not ready. */
	bool mixed;
	enum kind kind;
};

static int ask(const struct way *w, int fd, int other)
{
	struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = other, .events = POLLIN}};
	int top = fd > other ? fd : other;
	struct timeval now = {0};
	fd_set in;

	if (!w->selects)
		return poll(p, other < 0 ? 1 : 2, w->sleeps ? -1 : 0);
	FD_ZERO(&in);
	FD_SET(fd, &in);
	if (other >= 0)
		FD_SET(other, &in);
	return select(top + 1, &in, NULL, NULL, w->sleeps ? NULL : &now);
}

static void poll_of_what_is_ready_is_not_interrupted(void **state)
{
	const struct way *w = *state;
	struct subject idle = subject_new(KIND_PIPE);
	struct sigaction sa = {.sa_handler = handler}, before;
	struct itimerval soon = {0}, none = {0};

	assert_ok(sigaction(SIGALRM, &sa, &before));
	handled = 0;
	for (int round = 0; round < ROUNDS; round++) {
		struct subject s = subject_ready(w->kind);
		int ep = ep_new(), n, err;

		ep_add(ep, s.fd, EPOLLIN, 1);
		soon.it_value.tv_usec = 1 + round % SPAN_US;
		assert_ok(setitimer(ITIMER_REAL, &soon, NULL));
		n = ask(w, w->nested ? ep : s.fd, w->mixed ? idle.fd : -1);
		err = errno;
		assert_ok(setitimer(ITIMER_REAL, &none, NULL));
		if (n != 1)
			fail_msg("round %d: %d, %s", round, n, n < 0 ? strerror(err) : "no error");
		assert_ok(close(ep));
		subject_close(&s);
	}
	/* It came at least in some of the rounds, before the call, in it or behind it. */
	assert_true(handled > 0);
	assert_ok(sigaction(SIGALRM, &before, NULL));
	subject_close(&idle);
}

int main(void)
{
	static const struct way way[] = {
		{.nested = true, .kind = KIND_EVENTFD},
		{.nested = true, .kind = KIND_EVENTFD, .sleeps = true},
		{.nested = true, .kind = KIND_EVENTFD, .selects = true},
		{.nested = true, .kind = KIND_EVENTFD, .selects = true, .sleeps = true},
		{.nested = true, .kind = KIND_PIPE},
		{.kind = KIND_EVENTFD, .sleeps = true},
		{.kind = KIND_EVENTFD, .selects = true},
		{.kind = KIND_EVENTFD, .mixed = true},
		{.kind = KIND_EVENTFD, .mixed = true, .sleeps = true},
		{.kind = KIND_EVENTFD, .mixed = true, .selects = true},
	};
#define WAY(suffix, i) VARIANT(poll_of_what_is_ready_is_not_interrupted, suffix, &way[i])
	static const struct CMUnitTest tests[] = {
		WAY("_of_an_epoll", 0),
		WAY("_that_may_sleep_of_an_epoll", 1),
		WAY("_select_of_an_epoll", 2),
		WAY("_select_that_may_sleep_of_an_epoll", 3),
		WAY("_of_the_kernel_s_epoll", 4),
		WAY("_that_may_sleep", 5),
		WAY("_select", 6),
		WAY("_beside_a_pipe", 7),
		WAY("_that_may_sleep_beside_a_pipe", 8),
		WAY("_select_beside_a_pipe", 9),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
