/* SPDX-License-Identifier: MIT */
/*
 * A timer on which somebody sleeps, or which the kernel's AIO polls, since before anything is
 * cached: he is woken when it expires, and not at a time to which it was set before.
 */
#include "aio.h"

#include <sys/timerfd.h>

#define FIRST_MS 150
#define LAST_MS 400

enum way { BY_POLL, BY_PPOLL, BY_SELECT, BY_PSELECT, BY_READ, WAYS };

static int fd;
static enum way how;
static int64_t woken;

static void *sleeps(void *unused)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t v = 0;
	sigset_t none;
	fd_set set;
	int n = 1;

	sigemptyset(&none);
	FD_ZERO(&set);
	FD_SET(fd, &set);
	if (how == BY_POLL)
		n = poll(&p, 1, -1);
	else if (how == BY_PPOLL)
		n = ppoll(&p, 1, NULL, &none);
	else if (how == BY_SELECT)
		n = select(fd + 1, &set, NULL, NULL, NULL);
	else if (how == BY_PSELECT)
		n = pselect(fd + 1, &set, NULL, NULL, NULL, &none);
	else if (read(fd, &v, sizeof(v)) != sizeof(v) || v != 1)
		n = 0;
	woken = n == 1 ? now_ns() : 0;
	return unused;
}

static void set(int64_t ms)
{
	const struct itimerspec spec = {.it_value.tv_nsec = ms * 1000000};

	assert_ok(timerfd_settime(fd, 0, &spec, NULL));
}

/* Often enough to be hot; the last time is the latest. */
static int prepared_beside_it(void *arg)
{
	struct test_thread t;
	struct epoll_event ev;
	int ep = ep_new();
	int64_t due = 0;

	how = *(enum way *)arg;
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | (how == BY_READ ? 0 : TFD_NONBLOCK));
	ep_add(ep, fd, EPOLLIN, 1);
	set(LAST_MS);
	thread_start(&t, sleeps, NULL);
	if (!thread_asleep(&t))
		return 2;
	for (int i = 0; i < 1000; i++) {
		set(FIRST_MS);
		if (epoll_wait(ep, &ev, 1, 0))
			return EXIT_SKIPPED;
	}
	due = now_ns() + LAST_MS * 1000000ll;
	set(LAST_MS);
	if (!thread_join(&t, SOON_MS))
		return 3;
	return woken < due;
}

static void TFD_07_slept_on_since_before(void **state)
{
	(void)state;
	if (SANITIZED == 2)
		SKIP("it is prepared from the beginning");
	for (enum way way = 0; way < WAYS; way++)
		assert_child(child_status(prepared_beside_it, &way), "the machine is too busy");
}

/* In a program whose contexts of AIO are the kernel's. */
static int polled_by_the_kernel(void)
{
	struct timespec soon = {.tv_sec = SOON_MS / 1000};
	struct itimerspec left;
	struct iocb cb;
	struct io_event event;
	struct epoll_event ev;
	aio_context_t ctx = 0;
	int ep = epoll_create1(EPOLL_CLOEXEC);

	fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	set(LAST_MS);
	ev.events = EPOLLIN;
	if (aio_setup(1, &ctx) || epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) ||
	    aio_submit1(ctx, aio_poll(&cb, fd, POLLIN)) != 1)
		return 2;
	for (int i = 0; i < 1000; i++) {
		set(FIRST_MS);
		if (epoll_wait(ep, &ev, 1, 0))
			return EXIT_SKIPPED;
	}
	set(LAST_MS);
	if (aio_getevents(ctx, 1, 1, &event, &soon) != 1 || timerfd_gettime(fd, &left))
		return 3;
	return left.it_value.tv_sec || left.it_value.tv_nsec || event.res != POLLIN;
}

static int with_the_kernels_contexts(void *unused)
{
	char *argv[] = {"/proc/self/exe", "--polled", NULL};

	(void)unused;
	setenv("POLLUX_NO_ADOPT", "aio", 1);
	execv(argv[0], argv);
	return 1;
}

static void TFD_07_polled_by_aio_since_before(void **state)
{
	(void)state;
	assert_child(child_status(with_the_kernels_contexts, NULL), "the machine is too busy");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest cold_timer[] = {
		cmocka_unit_test(TFD_07_slept_on_since_before),
		cmocka_unit_test(TFD_07_polled_by_aio_since_before),
	};

	if (argc > 1 && !strcmp(argv[1], "--polled"))
		return polled_by_the_kernel();
	return run_group(cold_timer);
}
