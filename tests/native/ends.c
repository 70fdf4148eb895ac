/* SPDX-License-Identifier: MIT */
/*
 * A signal that ends a process ends it also while a thread waits for others with signals blocked.
 * One that has a handler, or that the program has blocked itself, waits until that is over.
 */
#include "native.h"

#include <sys/wait.h>

#include "base/inside.h"
#include "base/lock.h"
#include "base/spin.h"

static plx_lock_t lock;
static uint32_t word;

static void waits_for_a_lock(void)
{
	plx_lock(&lock, PLX_RANK_MEM);
	plx_unlock(&lock, PLX_RANK_MEM);
}

static void waits_for_a_word(void)
{
	plx_await_zero(&word);
}

/* It is told when the signal has been sent. */
static void *lets_go(void *arg)
{
	char c;

	if (read(*(int *)arg, &c, 1) != 1)
		abort();
	sleep_ms(100);
	plx_store_rel(&word, 0);
	if (plx_xchg(&lock, 0) == 2)
		plx_lock_wake(&lock);
	return arg;
}

static int handled;

static void handler(int sig)
{
	(void)sig;
	handled++;
}

enum how { DEFAULT, HANDLED, IGNORED, BLOCKED };

/* In a child: what others hold is let go after a while, but not with the default action. */
static void child(void (*wait)(void), int sig, enum how how, int ready, int sent)
{
	struct plx_masked m, inner;
	sigset_t set;
	pthread_t t;

	signal(sig, how == HANDLED ? handler : how == IGNORED ? SIG_IGN : SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	sigprocmask(how == BLOCKED ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
	lock = 2;
	word = 1;
	plx_signals_block(&m);
	/* An inner one changes nothing. */
	plx_signals_block(&inner);
	plx_signals_unblock(&inner);
	if (how != DEFAULT)
		pthread_create(&t, NULL, lets_go, &sent);
	if (write(ready, "r", 1) != 1)
		_exit(1);
	wait();
	if (how != DEFAULT)
		pthread_join(t, NULL);
	if (handled)
		_exit(2);
	plx_signals_unblock(&m);
	/* ThreadSanitizer runs handlers later, in a function that it replaces. */
	usleep(1000);
	_exit(how == HANDLED && !handled ? 3 : 0);
}

static int status_of(void (*wait)(void), int sig, enum how how)
{
	int p[2], sent[2], status;
	char c;
	pid_t pid;

	assert_int_equal(pipe(p), 0);
	assert_int_equal(pipe(sent), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		child(wait, sig, how, p[1], sent[0]);
	assert_int_equal(read(p[0], &c, 1), 1);
	assert_int_equal(kill(pid, sig), 0);
	assert_int_equal(write(sent[1], "s", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	for (int i = 0; i < 2; i++) {
		close(p[i]);
		close(sent[i]);
	}
	return status;
}

static void (*const waits[])(void) = {waits_for_a_lock, waits_for_a_word};

static void a_signal_ends_a_wait_with_signals_blocked(void **state)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGALRM, SIGUSR1};

	(void)state;
	for (size_t w = 0; w < 2; w++) {
		for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
			int status = status_of(waits[w], signals[i], DEFAULT);

			assert_true(WIFSIGNALED(status));
			assert_int_equal(WTERMSIG(status), signals[i]);
		}
	}
}

static void one_with_a_handler_comes_afterwards(void **state)
{
	(void)state;
	for (size_t w = 0; w < 2; w++)
		assert_int_equal(status_of(waits[w], SIGTERM, HANDLED), 0);
}

static void one_that_is_ignored_or_blocked_does_not(void **state)
{
	(void)state;
	for (size_t w = 0; w < 2; w++) {
		assert_int_equal(status_of(waits[w], SIGTERM, IGNORED), 0);
		assert_int_equal(status_of(waits[w], SIGTERM, BLOCKED), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_signal_ends_a_wait_with_signals_blocked),
		TEST(one_with_a_handler_comes_afterwards),
		TEST(one_that_is_ignored_or_blocked_does_not),
	};

	return RUN(tests);
}
