/* SPDX-License-Identifier: MIT */
/* The calls of a timerfd: their arguments, errors and results. */
#include "waiting.h"

#include <sys/timerfd.h>

/* Out of the compiler's sight. */
static void *volatile bad = (void *)8;

static int new_timer(void)
{
	return (int)assert_ok(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
}

static void set(int fd, time_t s, long ns, long interval_ns)
{
	struct itimerspec spec = {.it_value = {.tv_sec = s, .tv_nsec = ns},
				  .it_interval = {.tv_nsec = interval_ns}};

	assert_ok(timerfd_settime(fd, 0, &spec, NULL));
}

/* Until it has expired; its count is left. */
static void expire(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	assert_int_equal(poll(&p, 1, SOON_MS), 1);
}

static void TFD_01_clocks_and_flags(void **state)
{
	static const int good[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME};
	static const int alarms[] = {CLOCK_REALTIME_ALARM, CLOCK_BOOTTIME_ALARM};
	static const int wrong[] = {CLOCK_PROCESS_CPUTIME_ID,
				    CLOCK_THREAD_CPUTIME_ID,
				    CLOCK_MONOTONIC_RAW,
				    CLOCK_TAI,
				    -1,
				    1000};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		close((int)assert_ok(timerfd_create(good[i], TFD_CLOEXEC)));
	for (size_t i = 0; i < sizeof(alarms) / sizeof(alarms[0]); i++) {
		int fd = timerfd_create(alarms[i], TFD_CLOEXEC);

		/* It takes a capability. */
		if (fd >= 0)
			close(fd);
		else
			assert_int_equal(errno, EPERM);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_errno(timerfd_create(wrong[i], 0), EINVAL);
	for (int bit = 1; bit && bit < 1 << 30; bit <<= 1)
		if (!(bit & (TFD_CLOEXEC | TFD_NONBLOCK)))
			assert_errno(timerfd_create(CLOCK_MONOTONIC, bit), EINVAL);
}

static void TFD_02_flags_of_the_file_and_writes(void **state)
{
	int fd = new_timer(), blocks = (int)assert_ok(timerfd_create(CLOCK_MONOTONIC, 0));
	const uint64_t one = 1;

	(void)state;
	assert_int_equal(fcntl(fd, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDWR | O_NONBLOCK);
	assert_int_equal(fcntl(blocks, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDWR);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(blocks, F_GETFD), 0);
	assert_errno(write(fd, &one, sizeof(one)), EINVAL);
	close(fd);
	close(blocks);
}

static void TFD_04_it_is_set_though_the_old_value_cannot_be_stored(void **state)
{
	struct itimerspec spec = {.it_value.tv_sec = 1000}, now;
	int fd = new_timer();

	(void)state;
	for (int i = 0; i < 8; i++) {
		set(fd, 0, 0, 0);
		assert_errno(timerfd_settime(fd, 0, &spec, bad), EFAULT);
		assert_ok(timerfd_gettime(fd, &now));
		assert_true(now.it_value.tv_sec > 0);
	}
	close(fd);
}

static void TFD_05_the_descriptor_counts_before_the_address(void **state)
{
	int fd = new_timer(), pipe[2];

	(void)state;
	assert_ok(pipe2(pipe, O_CLOEXEC));
	assert_errno(timerfd_gettime(fd, bad), EFAULT);
	assert_errno(timerfd_gettime(fd, NULL), EFAULT);
	assert_errno(timerfd_gettime(pipe[0], bad), EINVAL);
	close(fd);
	assert_errno(timerfd_gettime(fd, bad), EBADF);
	assert_errno(timerfd_gettime(-1, bad), EBADF);
	close(pipe[0]);
	close(pipe[1]);
}

static void TFD_16_gettime_keeps_the_count(void **state)
{
	struct itimerspec now;
	int fd = new_timer();
	uint64_t n;

	(void)state;
	set(fd, 0, 1, 5000000);
	for (int i = 0; i < 3; i++) {
		sleep_ms(12);
		assert_ok(timerfd_gettime(fd, &now));
		assert_int_equal(now.it_interval.tv_nsec, 5000000);
	}
	assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
	/* The first, and two in each twelve milliseconds at least. */
	assert_true(n >= 1 + 3 * 2);
	close(fd);
}

static void TFD_17_a_read_to_a_bad_buffer_loses_the_count(void **state)
{
	int fd = new_timer();
	uint64_t n;

	(void)state;
	set(fd, 0, 1, 0);
	expire(fd);
	assert_errno(read(fd, bad, sizeof(n)), EFAULT);
	assert_errno(read(fd, &n, sizeof(n)), EAGAIN);
	/* One that is too short loses nothing. */
	set(fd, 0, 1, 0);
	expire(fd);
	assert_errno(read(fd, &n, sizeof(n) - 1), EINVAL);
	assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
	assert_int_equal(n, 1);
	close(fd);
}

struct reader {
	struct test_thread t;
	int fd;
	void *buf;
	long r;
};

static void *reader_main(void *arg)
{
	struct reader *r = arg;

	r->r = read(r->fd, r->buf, sizeof(uint64_t));
	return NULL;
}

/* The memory is provided by a thread that makes, closes and forks before it does (userfaultfd). */
static void TFD_11_a_read_waits_for_nobody_but_its_memory(void **state)
{
	struct reader *r = calloc(1, sizeof(*r));
	struct trap trap = {0};
	struct itimerspec left;
	uint64_t n;
	pid_t pid;
	int ep;

	(void)state;
	if (!trap_new(&trap, 0)) {
		free(r);
		SKIP("no userfaultfd for this user");
	}
	ep = ep_new();
	r->fd = new_timer();
	r->buf = trap.ev;
	set(r->fd, 0, 1, 0);
	/* Not by a poll, which has an effect on what serves it. */
	do
		assert_ok(timerfd_gettime(r->fd, &left));
	while (left.it_value.tv_sec || left.it_value.tv_nsec);
	thread_start(&r->t, reader_main, r);
	trap_wait(&trap);
	for (int i = 0; i < 1000; i++) {
		int fd = efd_new(0, i % 2 ? EFD_NONBLOCK : 0);

		ep_add(ep, fd, EPOLLIN, 0);
		efd_add(fd, 1);
		close(fd);
	}
	pid = fork();
	if (!pid)
		_exit(0);
	child_passes(pid);
	trap_open(&trap);
	assert_true(thread_join(&r->t, SOON_MS));
	assert_int_equal(r->r, sizeof(n));
	memcpy(&n, trap.ev, sizeof(n));
	assert_int_equal(n, 1);
	close(r->fd);
	close(ep);
	trap_free(&trap);
	free(r);
}

static void TFD_22_what_is_too_far_is_as_far_as_can_be(void **state)
{
	int fd = new_timer(), ep = ep_new();
	struct itimerspec now;
	uint64_t n;

	(void)state;
	ep_add(ep, fd, EPOLLIN, 1);
	for (int i = 0; i < 8; i++) {
		set(fd, (time_t)(INT64_MAX >> i), 0, 0);
		assert_ok(timerfd_gettime(fd, &now));
		assert_true(now.it_value.tv_sec > (time_t)100 * 365 * 86400);
		assert_true(now.it_value.tv_sec <= INT64_MAX / 1000000000);
		assert_errno(read(fd, &n, sizeof(n)), EAGAIN);
		assert_int_equal(ep_count(ep), 0);
	}
	close(fd);
	close(ep);
}

static void TFD_24_it_has_no_places(void **state)
{
	int fd = new_timer();
	uint64_t n;

	(void)state;
	set(fd, 0, 1, 0);
	expire(fd);
	assert_errno(pread(fd, &n, sizeof(n), 0), ESPIPE);
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
	assert_int_equal(lseek(fd, 100, SEEK_SET), 0);
	assert_int_equal(read(fd, &n, sizeof(n)), sizeof(n));
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(TFD_01_clocks_and_flags),
		cmocka_unit_test(TFD_02_flags_of_the_file_and_writes),
		cmocka_unit_test(TFD_04_it_is_set_though_the_old_value_cannot_be_stored),
		cmocka_unit_test(TFD_05_the_descriptor_counts_before_the_address),
		cmocka_unit_test(TFD_11_a_read_waits_for_nobody_but_its_memory),
		cmocka_unit_test(TFD_16_gettime_keeps_the_count),
		cmocka_unit_test(TFD_17_a_read_to_a_bad_buffer_loses_the_count),
		cmocka_unit_test(TFD_22_what_is_too_far_is_as_far_as_can_be),
		cmocka_unit_test(TFD_24_it_has_no_places),
	};

	return run_group(tests);
}
