/* SPDX-License-Identifier: MIT */
/*
 * A signal of a fault that is sent, by another thread, is one like others: each is handled, its
 * handler may make any call, and the calls that it interrupts are done.
 */
#include "hot.h"

/* So many of each, or as many as there is time for on a busy machine. */
#define SENT 300
#define SECONDS 2

static int ep, fd;
static int over, handled, sent;
static uint64_t added, taken;

static void handler(int sig, siginfo_t *info, void *context)
{
	int saved = errno;
	uint64_t one = 1, v;
	struct epoll_event ev;

	(void)sig;
	(void)info;
	(void)context;
	if (write(fd, &one, sizeof(one)) == sizeof(one))
		added++;
	epoll_wait(ep, &ev, 1, 0);
	if (read(fd, &v, sizeof(v)) == sizeof(v))
		taken += v;
	errno = saved;
	__atomic_add_fetch(&handled, 1, __ATOMIC_RELEASE);
}

struct sender {
	pthread_t to;
	int sig;
};

static void *sends(void *arg)
{
	const struct sender *s = arg;
	time_t end = time(NULL) + SECONDS;
	uint32_t r = 1;

	for (int i = 0; i < SENT && time(NULL) < end; i++) {
		sent++;
		pthread_kill(s->to, s->sig);
		while (__atomic_load_n(&handled, __ATOMIC_ACQUIRE) == i)
			sched_yield();
		r = r * 1103515245 + 12345;
		for (uint32_t k = r >> 16 & 1023; k; k--)
			__asm__ volatile("");
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void run(int sig)
{
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, before;
	struct sender s = {.to = pthread_self(), .sig = sig};
	struct epoll_event ev;
	struct test_thread t;
	uint64_t v, left;

	one_is_hot(&ep, &fd);
	handled = over = sent = 0;
	added = taken = 0;
	assert_ok(sigaction(sig, &sa, &before));
	thread_start(&t, sends, &s);
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		uint64_t one = 1;
		int n;

		assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
		__atomic_add_fetch(&added, 1, __ATOMIC_RELAXED);
		n = epoll_wait(ep, &ev, 1, 0);
		assert_true(n >= 0);
		if (read(fd, &v, sizeof(v)) == sizeof(v))
			__atomic_add_fetch(&taken, v, __ATOMIC_RELAXED);
		else
			assert_int_equal(errno, EAGAIN);
	}
	assert_true(thread_join(&t, 5000));
	assert_ok(sigaction(sig, &before, NULL));
	assert_int_equal(handled, sent);
	left = read(fd, &v, sizeof(v)) == sizeof(v) ? v : 0;
	assert_int_equal(added, taken + left);
	close(fd);
	close(ep);
}

#define SENT_TEST(name)                                                                            \
	static void SIGNAL_sent_##name(void **state)                                               \
	{                                                                                          \
		(void)state;                                                                       \
		if (SANITIZED)                                                                     \
			SKIP("the run-time takes them for faults");                                \
		run(name);                                                                         \
	}

SENT_TEST(SIGSEGV)
SENT_TEST(SIGBUS)
SENT_TEST(SIGFPE)
SENT_TEST(SIGILL)
SENT_TEST(SIGTRAP)
SENT_TEST(SIGSYS)

/* As if there had never been a handler. */
static int ends(void *sig)
{
	signal(*(int *)sig, SIG_DFL);
	efd_add(fd, 1);
	raise(*(int *)sig);
	return 0;
}

static void SIGNAL_sent_without_a_handler(void **state)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

	(void)state;
	if (SANITIZED)
		SKIP("the run-time takes them for faults");
	one_is_hot(&ep, &fd);
	for (int i = 0; i < 6; i++) {
		int sig = signals[i], status = child_wait(child_start(ends, &sig));

		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), sig);
	}
	close(fd);
	close(ep);
}

int main(void)
{
	const struct CMUnitTest signals_sent[] = {
		cmocka_unit_test(SIGNAL_sent_SIGSEGV),
		cmocka_unit_test(SIGNAL_sent_SIGBUS),
		cmocka_unit_test(SIGNAL_sent_SIGFPE),
		cmocka_unit_test(SIGNAL_sent_SIGILL),
		cmocka_unit_test(SIGNAL_sent_SIGTRAP),
		cmocka_unit_test(SIGNAL_sent_SIGSYS),
		cmocka_unit_test(SIGNAL_sent_without_a_handler),
	};

	return run_group(signals_sent);
}
