/* SPDX-License-Identifier: MIT */
/*
 * A fork comes in the middle of what another thread does with its signals, or in a handler of one
 * that comes from elsewhere in the middle of a call. Both go on as on the kernel. No rule says so.
 */
#include "waiting.h"

/* At most so many, and for so long. */
#define FORKS 400
#define ABORTS 40
#define MOST_MS 2000

static bool stop;

static void nothing(int sig)
{
	(void)sig;
}

static void *changes(void *arg)
{
	struct sigaction on = {.sa_handler = nothing}, off = {.sa_handler = SIG_DFL};

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		sigaction(SIGUSR1, &on, NULL);
		sigaction(SIGUSR1, &off, NULL);
	}
	return arg;
}

/* Whatever the thread was at, what the child is told of the signal is what happens to it. */
static int raises(void *arg)
{
	struct sigaction now;

	(void)arg;
	sigaction(SIGUSR1, NULL, &now);
	if (now.sa_handler != SIG_DFL && now.sa_handler != nothing)
		return 1;
	raise(SIGUSR1);
	return now.sa_handler == SIG_DFL ? 2 : 128 + SIGUSR1;
}

static void SIGNALS_of_a_child_that_is_forked_beside_a_change(void **state)
{
	int64_t end = now_ms() + MOST_MS;
	struct test_thread t;
	int fd = eventfd(0, 0);

	(void)state;
	thread_start(&t, changes, NULL);
	for (int i = 0; i < FORKS && now_ms() < end; i++)
		assert_int_equal(child_status(raises, NULL), 128 + SIGUSR1);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	assert_true(thread_join(&t, SOON_MS));
	close(fd);
}

static int aborted_ep;

/* As programs do that report how they end. */
static void report(int sig)
{
	pid_t pid;
	int st;

	(void)sig;
	close(aborted_ep);
	pid = fork();
	if (pid == 0)
		_exit(0);
	_exit(waitpid(pid, &st, 0) == pid && st == 0 ? 0 : 1);
}

static int works(void *arg)
{
	const int *ready = arg;
	struct sigaction sa = {.sa_handler = report};
	struct epoll_event ev = {.events = EPOLLIN};
	uint64_t value = 1;

	sigaction(SIGABRT, &sa, NULL);
	aborted_ep = epoll_create1(0);
	for (bool told = false;; told = true) {
		int efd = eventfd(0, EFD_NONBLOCK);

		epoll_ctl(aborted_ep, EPOLL_CTL_ADD, efd, &ev);
		if (write(efd, &value, sizeof(value)) != sizeof(value) ||
		    epoll_wait(aborted_ep, &ev, 1, 0) != 1 ||
		    read(efd, &value, sizeof(value)) != sizeof(value))
			return 2;
		close(efd);
		if (!told && write(ready[1], "", 1) != 1)
			return 3;
	}
}

static void SIGNALS_abort_from_elsewhere_in_a_call(void **state)
{
	int64_t end = now_ms() + MOST_MS;
	int ready[2];
	char c;

	(void)state;
	assert_int_equal(pipe(ready), 0);
	for (int i = 0; i < ABORTS && now_ms() < end; i++) {
		pid_t pid = child_start(works, ready);

		assert_int_equal(read(ready[0], &c, 1), 1);
		usleep(500 + 37 * i);
		assert_int_equal(kill(pid, SIGABRT), 0);
		assert_int_equal(child_end(pid), 0);
	}
	close(ready[0]);
	close(ready[1]);
}

/* Of the thread itself it comes at once: abort does not come back. */
static int aborts(void *arg)
{
	struct sigaction sa = {.sa_handler = report};

	(void)arg;
	aborted_ep = epoll_create1(0);
	sigaction(SIGABRT, &sa, NULL);
	abort();
}

static void SIGNALS_abort(void **state)
{
	(void)state;
	assert_int_equal(child_status(aborts, NULL), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(SIGNALS_of_a_child_that_is_forked_beside_a_change),
		cmocka_unit_test(SIGNALS_abort_from_elsewhere_in_a_call),
		cmocka_unit_test(SIGNALS_abort),
	};

	NEEDS_HANDLERS_IN_PLACE();
	return run_group(tests);
}
