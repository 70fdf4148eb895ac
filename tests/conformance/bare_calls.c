/* SPDX-License-Identifier: MIT */
/*
 * Calls that a program makes by syscall() are the kernel's in what libc's functions are not: none
 * is a cancellation point that somebody else has switched off, and results are as wide as a long.
 */
#include "waiting.h"

#include <setjmp.h>
#include <sys/prctl.h>

static sigjmp_buf out;

static void leaves(int sig)
{
	(void)sig;
	siglongjmp(out, 1);
}

static bool can_be_cancelled(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
	return state == PTHREAD_CANCEL_ENABLE;
}

static void *interrupts(void *thread)
{
	usleep(20000);
	pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

static void left_by_a_jump(long nr, long a, long b, long c)
{
	struct sigaction sa = {.sa_handler = leaves}, before;
	pthread_t self = pthread_self(), t;

	assert_ok(sigaction(SIGUSR1, &sa, &before));
	assert_int_equal(pthread_create(&t, NULL, interrupts, &self), 0);
	if (!sigsetjmp(out, 1)) {
		/* ppoll takes a mask as well, and its size. */
		syscall(nr, a, b, c, 0, 0);
		fail();
	}
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_true(can_be_cancelled());
	assert_ok(sigaction(SIGUSR1, &before, NULL));
}

static void BARE_a_jump_out_of_a_call_leaves_cancellation_on(void **state)
{
	struct subject s = subject_new(KIND_EVENTFD), pipe = subject_new(KIND_PIPE);
	struct pollfd p = {.fd = s.fd, .events = POLLIN};
	int blocks = efd_new(0, EFD_CLOEXEC), ends[2];
	char byte;

	(void)state;
	if (SANITIZED == 2)
		SKIP("ThreadSanitizer runs handlers where it likes");
	assert_ok(pipe2(ends, O_CLOEXEC));
	left_by_a_jump(SYS_ppoll, (long)&p, 1, 0);
#ifdef SYS_poll
	left_by_a_jump(SYS_poll, (long)&p, 1, -1);
#endif
	left_by_a_jump(SYS_read, blocks, (long)&p, 8);
	left_by_a_jump(SYS_read, ends[0], (long)&byte, 1);
	close(ends[0]);
	close(ends[1]);
	close(blocks);
	subject_close(&s);
	subject_close(&pipe);
}

static void BARE_results_are_as_wide_as_a_long(void **state)
{
	unsigned long slack = 3000000000ul,
		      before = (unsigned long)syscall(SYS_prctl, PR_GET_TIMERSLACK);

	(void)state;
	assert_ok(prctl(PR_SET_TIMERSLACK, slack));
	errno = 5;
	assert_int_equal(syscall(SYS_prctl, PR_GET_TIMERSLACK, 0, 0, 0, 0), (long)slack);
	assert_int_equal(errno, 5);
	assert_ok(prctl(PR_SET_TIMERSLACK, before));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(BARE_a_jump_out_of_a_call_leaves_cancellation_on),
		cmocka_unit_test(BARE_results_are_as_wide_as_a_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
