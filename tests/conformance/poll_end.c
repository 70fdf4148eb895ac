/* SPDX-License-Identifier: MIT */
/*
 * A poll that ends without an event, because its time is over or by a signal, says of each of its
 * entries that nothing is ready, whatever stood there before (poll(2)).
 */
#include "waiting.h"

#define SET 3

static volatile sig_atomic_t handled;

static void handler(int sig)
{
	(void)sig;
	handled = 1;
}

enum how { BY_TIME, BY_SIGNAL, BY_SIGNAL_AND_MASK };

struct way {
	enum how how;
	int n;
};

static void poll_ends_with_nothing(void **state)
{
	const struct way *w = *state;
	struct sigaction sa = {.sa_handler = handler};
	struct timespec ts = {.tv_nsec = 20000000}, *tsp = w->how == BY_TIME ? &ts : NULL;
	struct subject s[SET] = {subject_new(KIND_EVENTFD), subject_new(KIND_PIPE),
				 subject_new(KIND_EVENTFD)};
	struct pollfd p[SET];
	sigset_t none;
	int n, err;

	sigemptyset(&none);
	assert_ok(sigaction(SIGALRM, &sa, NULL));
	/* The second time the thread has what it needs to sleep. */
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < SET; i++)
			p[i] = (struct pollfd){
				.fd = s[i].fd, .events = POLLIN, .revents = POLLIN | POLLERR};
		handled = 0;
		if (w->how != BY_TIME)
			alarms_every(20000);
		n = ppoll(p, (nfds_t)w->n, tsp, w->how == BY_SIGNAL_AND_MASK ? &none : NULL);
		err = errno;
		alarms_every(0);
		if (w->how == BY_TIME)
			assert_int_equal(n, 0);
		else
			assert_true(n == -1 && err == EINTR && handled);
		for (int i = 0; i < SET; i++)
			assert_int_equal(p[i].revents, i < w->n ? 0 : POLLIN | POLLERR);
	}
	for (int i = 0; i < SET; i++)
		subject_close(&s[i]);
}

/* A signal that the mask lets in ends a poll that does not sleep, too; so with select. */
static void poll_lets_a_signal_in_without_a_sleep(void **state)
{
	const struct way *w = *state;
	struct sigaction sa = {.sa_handler = handler};
	struct subject s[SET] = {subject_new(KIND_EVENTFD), subject_new(KIND_PIPE),
				 subject_new(KIND_EVENTFD)};
	struct timespec now = {0};
	sigset_t none, usr1, before;

	sigemptyset(&none);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	assert_ok(sigaction(SIGUSR1, &sa, NULL));
	assert_ok(sigprocmask(SIG_BLOCK, &usr1, &before));
	for (int round = 0; round < 4; round++) {
		struct pollfd p[SET];
		fd_set in;
		int n;

		FD_ZERO(&in);
		for (int i = 0; i < SET; i++) {
			p[i] = (struct pollfd){.fd = s[i].fd, .events = POLLIN};
			if (i < w->n)
				FD_SET(s[i].fd, &in);
		}
		/* In the last rounds there is something to tell, and the signal stays. */
		if (round == 2)
			subject_fill(&s[0]);
		handled = 0;
		assert_ok(raise(SIGUSR1));
		/* ThreadSanitizer does not know that a handler may run in a pselect. */
		n = round % 2 && SANITIZED != 2 ? pselect(FD_SETSIZE, &in, NULL, NULL, &now, &none)
						: ppoll(p, (nfds_t)w->n, &now, &none);
		if (round < 2) {
			assert_true(n == -1 && errno == EINTR && handled);
			assert_true(round == 0 || FD_ISSET(s[0].fd, &in));
		} else {
			assert_int_equal(n, 1);
		}
	}
	assert_ok(sigprocmask(SIG_SETMASK, &before, NULL));
	for (int i = 0; i < SET; i++)
		subject_close(&s[i]);
}

int main(void)
{
	static const struct way way[] = {
		{BY_TIME, 1},
		{BY_TIME, 3},
		{BY_SIGNAL, 1},
		{BY_SIGNAL, 3},
		{BY_SIGNAL_AND_MASK, 1},
		{BY_SIGNAL_AND_MASK, 3},
	};
#define LOOK(suffix, i) VARIANT(poll_lets_a_signal_in_without_a_sleep, suffix, &way[i])
#define WAY(suffix, i) VARIANT(poll_ends_with_nothing, suffix, &way[i])
	static const struct CMUnitTest tests[] = {
		WAY("_by_time", 0),
		WAY("_by_time_mixed", 1),
		WAY("_by_signal", 2),
		WAY("_by_signal_mixed", 3),
		WAY("_by_masked_signal", 4),
		WAY("_by_masked_signal_mixed", 5),
		LOOK("", 4),
		LOOK("_mixed", 5),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
