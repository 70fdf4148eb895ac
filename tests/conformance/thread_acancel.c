/* SPDX-License-Identifier: MIT */
/*
 * A thread that may be cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS) is, in the middle
 * of a call. Others go on with the objects that it has used.
 */
#include "waiting.h"

#define ROUNDS 400

static int ep, efd, started;

static void writes(void)
{
	uint64_t one = 1;

	(void)!write(efd, &one, sizeof(one));
}

static void reads(void)
{
	uint64_t n;

	(void)!read(efd, &n, sizeof(n));
}

static void waits(void)
{
	struct epoll_event ev;

	(void)epoll_wait(ep, &ev, 1, 0);
}

static void polls(void)
{
	struct pollfd p = {.fd = efd, .events = POLLIN};

	(void)poll(&p, 1, 0);
}

static void modifies(void)
{
	struct epoll_event ev = {.events = EPOLLIN};

	(void)epoll_ctl(ep, EPOLL_CTL_MOD, efd, &ev);
}

static void *calls(void *arg)
{
	void (**call)(void) = arg;

	assert_int_equal(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), 0);
	__atomic_store_n(&started, 1, __ATOMIC_RELEASE);
	for (;;)
		(*call)();
	return NULL;
}

/* The count is as many threads have left it; the objects are whole. */
static void goes_on(void)
{
	struct epoll_event ev;
	uint64_t n = 1;

	assert_int_equal(write(efd, &n, sizeof(n)), sizeof(n));
	assert_int_equal(epoll_wait(ep, &ev, 1, -1), 1);
	assert_int_equal(read(efd, &n, sizeof(n)), sizeof(n));
	assert_true(n > 0);
	assert_int_equal(epoll_wait(ep, &ev, 1, 0), 0);
}

static void cancelled_in(void (*call)(void))
{
	for (int i = 0; i < ROUNDS; i++) {
		void *result;
		pthread_t t;

		__atomic_store_n(&started, 0, __ATOMIC_RELAXED);
		assert_int_equal(pthread_create(&t, NULL, calls, &call), 0);
		while (!__atomic_load_n(&started, __ATOMIC_ACQUIRE))
			sched_yield();
		for (volatile int k = 0; k < i * 7 % 1000; k++)
			;
		assert_int_equal(pthread_cancel(t), 0);
		assert_int_equal(pthread_join(t, &result), 0);
		assert_ptr_equal(result, PTHREAD_CANCELED);
		goes_on();
		/* What the thread has left does not keep others from making and ending objects. */
		close((int)assert_ok(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
	}
}

static void a_thread_is_cancelled_at_any_instruction(void **state)
{
	(void)state;
	if (SANITIZED)
		SKIP("a sanitizer is not ready for a thread that ends anywhere");
	ep = ep_new();
	efd = (int)assert_ok(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	ep_add(ep, efd, EPOLLIN, 0);
	goes_on();
	cancelled_in(writes);
	cancelled_in(reads);
	cancelled_in(waits);
	cancelled_in(polls);
	cancelled_in(modifies);
	close(efd);
	close(ep);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_is_cancelled_at_any_instruction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
