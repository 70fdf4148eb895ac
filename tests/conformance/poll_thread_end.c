/* SPDX-License-Identifier: MIT */
/*
 * A thread that ends polls once more, and sleeps, in the destructors of its keys, in whatever round
 * of them (pthread_key_create(3)).
 */
#include "waiting.h"

/* ThreadSanitizer itself ends a thread in the last round; no lock is to be taken after that. */
#if defined(__SANITIZE_THREAD__)
#define ROUNDS 1
#else
#define ROUNDS 3
#endif

static pthread_key_t key;
static struct subject subject;
static int polled;

static int polls(void)
{
	struct pollfd p[2] = {{.fd = subject.fd, .events = POLLIN}, {.fd = subject.fd}};

	return poll(p, 2, 1);
}

static void ends(void *value)
{
	uintptr_t rounds = (uintptr_t)value;

	/* What it used before and has given back is used by others now. */
	for (int i = 0; i < 4; i++)
		close(eventfd(0, EFD_CLOEXEC));
	polled += polls() == 0;
	if (rounds > 1)
		pthread_setspecific(key, (void *)(rounds - 1));
}

static void *runs(void *arg)
{
	assert_int_equal(pthread_setspecific(key, (void *)(uintptr_t)ROUNDS), 0);
	polled += polls() == 0;
	return arg;
}

static void poll_sleeps_at_the_end_of_a_thread(void **state)
{
	pthread_t t;

	(void)state;
	subject = subject_new(KIND_EVENTFD);
	assert_int_equal(pthread_key_create(&key, ends), 0);
	for (int i = 0; i < 100; i++) {
		polled = 0;
		assert_int_equal(pthread_create(&t, NULL, runs, NULL), 0);
		assert_int_equal(pthread_join(t, NULL), 0);
		assert_int_equal(polled, ROUNDS + 1);
	}
	pthread_key_delete(key);
	subject_close(&subject);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(poll_sleeps_at_the_end_of_a_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
