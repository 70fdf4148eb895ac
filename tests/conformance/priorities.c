/* SPDX-License-Identifier: MIT */
/*
 * A thread of high priority that makes a call does not wait for one of low priority that has been
 * preempted in a call of its own.
 *
 * All are bound to one CPU. The low one makes calls for ever. The middle one preempts it anywhere,
 * and computes until the high one, which is preempted by nobody, has made another call. What it
 * computes is reckoned in its own CPU time, so that nothing depends on what else the machine does.
 */
#include "harness.h"
#include "waiting.h"

#include <sched.h>

#define ROUNDS 400
#define WARM 100
/* The high one sleeps for 50 us. Without priorities that are lent this is as long as the kernel
 * lets real-time threads run: 950 ms. */
#define MOST_NS 300000000ll

enum { MIDDLE = 5, HIGH = 10 };

static void (*low_call)(void), (*high_call)(void);
static uint32_t calls, low_calls, over;

static void nothing(int sig)
{
	(void)sig;
}

static bool run_as(int priority)
{
	struct sched_param p = {.sched_priority = priority};
	cpu_set_t cpu;

	assert_ok(sched_getaffinity(0, sizeof(cpu), &cpu));
	for (int i = 0, found = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &cpu) && found++)
			CPU_CLR(i, &cpu);
	assert_ok(sched_setaffinity(0, sizeof(cpu), &cpu));
	return pthread_setschedparam(pthread_self(), priority ? SCHED_FIFO : SCHED_OTHER, &p) == 0;
}

static void *low_main(void *arg)
{
	run_as(0);
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
		low_call(), __atomic_fetch_add(&low_calls, 1, __ATOMIC_RELEASE);
	return arg;
}

static void *high_main(void *arg)
{
	const struct timespec pause = {.tv_nsec = 50000};

	if (!run_as(HIGH))
		return NULL;
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		nanosleep(&pause, NULL);
		high_call();
		__atomic_fetch_add(&calls, 1, __ATOMIC_RELEASE);
	}
	return arg;
}

/* The longest time that the middle one has had to compute. */
static void *middle_main(void *arg)
{
	int64_t *longest = arg;

	if (!run_as(MIDDLE))
		return NULL;
	for (int i = 0; i < ROUNDS && *longest < MOST_NS; i++) {
		const struct timespec pause = {.tv_nsec = 20000 + i * 997 % 50000};
		uint32_t before;
		int64_t start, took;

		nanosleep(&pause, NULL);
		start = cpu_ns();
		before = __atomic_load_n(&calls, __ATOMIC_ACQUIRE);
		/* One call has begun before. */
		while (__atomic_load_n(&calls, __ATOMIC_ACQUIRE) - before < 2)
			;
		took = cpu_ns() - start;
		if (took > *longest)
			*longest = took;
	}
	return arg;
}

static void nobody_waits(void (*low)(void), void (*high)(void))
{
	struct test_thread l, m, h;
	int64_t longest = 0;
	struct sched_param p = {.sched_priority = HIGH}, none = {0};

	if (SANITIZED == 2 && under_pollux())
		SKIP("ThreadSanitizer's own locks, in our calls, lend no priority");
	if (sched_setscheduler(0, SCHED_FIFO, &p))
		SKIP("this user may not run real-time threads");
	assert_ok(sched_setscheduler(0, SCHED_OTHER, &none));
	low_call = low;
	high_call = high;
	calls = low_calls = over = 0;
	thread_start(&l, low_main, NULL);
	thread_start(&h, high_main, &h);
	/* What they do for the first time, page faults say, may wait for each other in the kernel.
	 */
	while (__atomic_load_n(&calls, __ATOMIC_ACQUIRE) < WARM ||
	       __atomic_load_n(&low_calls, __ATOMIC_ACQUIRE) < WARM)
		sleep_ms(1);
	thread_start(&m, middle_main, &longest);
	assert_true(thread_join(&m, SOON_MS));
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	assert_true(thread_join(&h, SOON_MS));
	assert_true(thread_join(&l, SOON_MS));
	assert_non_null(m.ret);
	assert_non_null(h.ret);
	assert_in_range(longest, 0, MOST_NS - 1);
}

static void sets_a_handler(void)
{
	struct sigaction act = {.sa_handler = nothing};

	sigaction(SIGUSR1, &act, NULL);
}

static void sets_another(void)
{
	struct sigaction act = {.sa_handler = nothing};

	sigaction(SIGUSR2, &act, NULL);
}

static void PRIORITY_of_who_sets_a_handler(void **state)
{
	int efd = efd_new(0, 0);

	(void)state;
	nobody_waits(sets_a_handler, sets_another);
	close(efd);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGUSR2, SIG_DFL);
}

static void uses_own_objects(void)
{
	int ep = ep_new(), efd = efd_new(0, EFD_NONBLOCK);
	struct pollfd p = {.fd = efd, .events = POLLIN};

	ep_add(ep, efd, EPOLLIN, 1);
	for (int i = 0; i < 20; i++) {
		efd_add(efd, 1);
		assert_true(ep_one(ep, EPOLLIN, 1));
		assert_int_equal(efd_take(efd), 1);
	}
	assert_int_equal(poll(&p, 1, 0), 0);
	close(efd);
	close(ep);
}

static void PRIORITY_of_who_uses_objects_of_its_own(void **state)
{
	(void)state;
	nobody_waits(uses_own_objects, uses_own_objects);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(PRIORITY_of_who_sets_a_handler),
		cmocka_unit_test(PRIORITY_of_who_uses_objects_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
