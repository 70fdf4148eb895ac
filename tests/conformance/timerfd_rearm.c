/* SPDX-License-Identifier: MIT */
/*
 * timerfds that are set again and again to a later time, or disarmed, before they expire. A
 * setting may be put off, so that the kernel's timer expires before its time: nobody is to see
 * that.
 *
 * No claim depends on how fast anything goes: nothing expires before its time, and what is waited
 * for comes in the end.
 */
#include "waiting.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

/* Enough of them in a row for a setting to be put off. */
#define ROW 6
/* The time that is set in the row; when it has passed for certain. */
#define FIRST_MS 40
#define PASSED_MS 70
#define HOUR_MS 3600000

static int new_timer(int flags)
{
	return (int)assert_ok(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | flags));
}

static struct timespec from_ms(int64_t ms)
{
	return (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
}

static int try_set(int fd, int64_t ms, int64_t interval_ms)
{
	struct itimerspec spec = {.it_value = from_ms(ms), .it_interval = from_ms(interval_ms)};

	return timerfd_settime(fd, 0, &spec, NULL);
}

/* ms from now; 0 disarms. */
static void set(int fd, int64_t ms)
{
	assert_ok(try_set(fd, ms, 0));
}

/* The kernel may be left with first_ms, and ms is what counts: no sooner than the result. */
static int64_t put_off_from(int fd, int64_t first_ms, int64_t ms)
{
	int64_t due;

	for (int i = 0; i < ROW; i++)
		set(fd, first_ms);
	due = now_ns() + ms * 1000000;
	set(fd, ms);
	return due;
}

static int64_t put_off(int fd, int64_t ms)
{
	return put_off_from(fd, FIRST_MS, ms);
}

/* As put_off, until the kernel's time has passed. */
static void put_off_past(int fd, int64_t ms)
{
	put_off(fd, ms);
	sleep_ms(PASSED_MS);
}

/* Of one whose time has passed; the interrupt may be late. */
static uint64_t read_passed(int fd)
{
	int64_t end = now_ms() + SOON_MS;
	uint64_t n = 0;
	ssize_t r;

	do {
		r = read(fd, &n, sizeof(n));
	} while (r < 0 && errno == EAGAIN && now_ms() < end);
	return r == sizeof(n) ? n : 0;
}

/* So many level-triggered events together, in the end. */
static bool come(int ep, struct epoll_event *ev, int want)
{
	int64_t end = now_ms() + SOON_MS;
	int n;

	do {
		n = epoll_wait(ep, ev, 8, SOON_MS);
	} while (n > 0 && n < want && now_ms() < end);
	return n == want;
}

static bool comes(int ep, uint64_t data)
{
	struct epoll_event ev[8];

	return come(ep, ev, 1) && ev[0].events == EPOLLIN && ev[0].data.u64 == data;
}

static void assert_silent(int ep, int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	uint64_t n;

	assert_int_equal(ep_count(ep), 0);
	assert_errno(read(fd, &n, sizeof(n)), EAGAIN);
	assert_int_equal(ep_count(ep), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
}

struct timed {
	int ep, fd;
};

/* LT, data 7, non-blocking. */
static struct timed timed_new(uint32_t flags)
{
	struct timed t = {.ep = ep_new(), .fd = new_timer(TFD_NONBLOCK)};

	ep_add(t.ep, t.fd, EPOLLIN | flags, 7);
	return t;
}

static void timed_close(struct timed *t)
{
	close(t->fd);
	close(t->ep);
}

static const uint32_t modes[] = {0, EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE};
#define MODES (sizeof(modes) / sizeof(modes[0]))

static void TFD_07_nothing_comes_before_its_time(void **state)
{
	struct epoll_event ev[4];

	(void)state;
	for (size_t m = 0; m < MODES; m++) {
		for (int never = 0; never < 2; never++) {
			struct timed t = timed_new(modes[m]);

			put_off(t.fd, never ? 0 : HOUR_MS);
			assert_int_equal(epoll_wait(t.ep, ev, 4, 2 * PASSED_MS), 0);
			assert_silent(t.ep, t.fd);
			put_off_past(t.fd, never ? 0 : HOUR_MS);
			assert_silent(t.ep, t.fd);
			timed_close(&t);
		}
	}
}

static void TFD_07_it_comes_at_its_time(void **state)
{
	(void)state;
	for (size_t m = 0; m < MODES; m++) {
		for (enum entry e = BY_WAIT; e < ENTRIES; e++) {
			struct timed t = timed_new(modes[m]);
			struct epoll_event ev[4];
			struct timespec now;
			struct itimerspec spec = {0};
			int64_t due;
			uint64_t n;

			put_off(t.fd, HOUR_MS);
			clock_gettime(CLOCK_MONOTONIC, &now);
			due = now.tv_sec * 1000000000LL + now.tv_nsec + 60000000;
			spec.it_value.tv_sec = due / 1000000000;
			spec.it_value.tv_nsec = due % 1000000000;
			assert_ok(timerfd_settime(t.fd, TFD_TIMER_ABSTIME, &spec, NULL));
			assert_int_equal(wait_by(e, t.ep, ev, 4, SOON_MS, NULL), 1);
			assert_true(now_ns() >= due);
			assert_int_equal(ev[0].data.u64, 7);
			assert_int_equal(ev[0].events, EPOLLIN);
			assert_int_equal(ep_count(t.ep),
					 modes[m] & (EPOLLET | EPOLLONESHOT) ? 0 : 1);
			assert_int_equal(read(t.fd, &n, sizeof(n)), sizeof(n));
			assert_int_equal(n, 1);
			assert_errno(read(t.fd, &n, sizeof(n)), EAGAIN);
			assert_int_equal(ep_count(t.ep), 0);
			timed_close(&t);
		}
	}
}

/* The time of the kernel's timer and the wanted one have both passed unseen. */
static void TFD_13_what_has_passed_unseen_is_there(void **state)
{
	(void)state;
	for (int how = 0; how < 4; how++) {
		struct timed t = timed_new(how & 1 ? EPOLLET : 0);

		put_off_past(t.fd, FIRST_MS + 20);
		if (how < 2)
			assert_true(comes(t.ep, 7));
		assert_int_equal(read_passed(t.fd), 1);
		assert_silent(t.ep, t.fd);
		timed_close(&t);
	}
}

static void TFD_13_every_multiple_counts(void **state)
{
	struct timed t = timed_new(0);
	int64_t before, after, read_before, read_after;
	uint64_t n;

	(void)state;
	for (int i = 0; i < ROW; i++)
		set(t.fd, FIRST_MS);
	before = now_ns();
	assert_ok(try_set(t.fd, 50, 10));
	after = now_ns();
	sleep_ms(200);
	assert_true(comes(t.ep, 7));
	read_before = now_ns();
	assert_int_equal(read(t.fd, &n, sizeof(n)), sizeof(n));
	read_after = now_ns();
	assert_true((int64_t)n >= (read_before - after - 50000000) / 10000000);
	assert_true((int64_t)n <= (read_after - before - 50000000) / 10000000 + 1);
	timed_close(&t);
}

/* A periodic timer tells once, and again after a read (TFD-15). */
static void TFD_15_a_periodic_one_is_told_once_for_each_read(void **state)
{
	struct timed t = timed_new(EPOLLET);
	struct epoll_event ev[4];
	uint64_t n;

	(void)state;
	for (int i = 0; i < ROW; i++)
		set(t.fd, FIRST_MS);
	assert_ok(try_set(t.fd, 60, 10));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(epoll_wait(t.ep, ev, 4, SOON_MS), 1);
		sleep_ms(30);
		assert_int_equal(ep_count(t.ep), 0);
		assert_int_equal(read(t.fd, &n, sizeof(n)), sizeof(n));
		assert_true(n >= 1);
	}
	timed_close(&t);
}

static void TFD_08_a_new_setting_takes_the_expiry_back(void **state)
{
	(void)state;
	for (int never = 0; never < 2; never++) {
		struct timed t = timed_new(0);

		put_off_past(t.fd, FIRST_MS + 20);
		set(t.fd, never ? 0 : HOUR_MS);
		assert_silent(t.ep, t.fd);
		/* So does one after it has been seen. */
		put_off_past(t.fd, FIRST_MS + 20);
		assert_true(comes(t.ep, 7));
		set(t.fd, never ? 0 : HOUR_MS);
		assert_silent(t.ep, t.fd);
		timed_close(&t);
	}
}

static int64_t ns_of(const struct timespec *ts)
{
	return ts->tv_sec * 1000000000LL + ts->tv_nsec;
}

static void TFD_09_the_old_value_is_what_was_set(void **state)
{
	struct timed t = timed_new(0);
	struct itimerspec spec = {0}, old, was;

	(void)state;
	for (int i = 1; i < 4 * ROW; i++) {
		int64_t before, after;

		spec.it_value = from_ms(HOUR_MS + i * 1000);
		spec.it_interval = from_ms(i * 1000);
		before = now_ns();
		assert_ok(timerfd_settime(t.fd, 0, &spec, NULL));
		after = now_ns();
		assert_ok(timerfd_gettime(t.fd, &was));
		spec.it_value = from_ms(HOUR_MS + i * 1000 + 500);
		assert_ok(timerfd_settime(t.fd, 0, &spec, &old));
		assert_int_equal(ns_of(&old.it_interval), i * 1000000000LL);
		assert_int_equal(ns_of(&was.it_interval), i * 1000000000LL);
		assert_true(ns_of(&was.it_value) <= (HOUR_MS + i * 1000) * 1000000LL);
		assert_true(ns_of(&old.it_value) <= ns_of(&was.it_value));
		assert_true(ns_of(&old.it_value) >=
			    before + (HOUR_MS + i * 1000) * 1000000LL - now_ns());
		assert_true(after >= before);
	}
	timed_close(&t);
}

static void TFD_06_disarmed_it_shows_its_interval(void **state)
{
	struct timed t = timed_new(0);
	struct itimerspec was;

	(void)state;
	put_off(t.fd, HOUR_MS);
	assert_ok(try_set(t.fd, 0, 3000));
	assert_ok(timerfd_gettime(t.fd, &was));
	assert_int_equal(ns_of(&was.it_value), 0);
	assert_int_equal(ns_of(&was.it_interval), 3000000000LL);
	timed_close(&t);
}

static void TFD_10_gettime_when_it_has_passed(void **state)
{
	struct timed t = timed_new(0);
	int64_t end = now_ms() + SOON_MS;
	struct itimerspec was;

	(void)state;
	put_off_past(t.fd, FIRST_MS + 20);
	assert_ok(timerfd_gettime(t.fd, &was));
	assert_int_equal(ns_of(&was.it_value), 0);
	assert_true(comes(t.ep, 7));
	for (int i = 0; i < ROW; i++)
		set(t.fd, FIRST_MS);
	assert_ok(try_set(t.fd, FIRST_MS + 20, HOUR_MS));
	sleep_ms(PASSED_MS);
	do {
		assert_ok(timerfd_gettime(t.fd, &was));
	} while (!ns_of(&was.it_value) && now_ms() < end);
	assert_true(ns_of(&was.it_value) > 0);
	assert_true(ns_of(&was.it_value) <= HOUR_MS * 1000000LL);
	/* The expirations are kept (TFD-16). */
	assert_int_equal(read_passed(t.fd), 1);
	timed_close(&t);
}

static void TFD_03_errors_leave_it_as_it_is(void **state)
{
	struct timed t = timed_new(0);
	struct itimerspec spec = {.it_value = from_ms(HOUR_MS)}, was;
	struct itimerspec *bad = (struct itimerspec *)8;

	(void)state;
	__asm__("" : "+r"(bad));
	put_off(t.fd, HOUR_MS);
	assert_errno(timerfd_settime(t.fd, 0, bad, NULL), EFAULT);
	assert_errno(timerfd_settime(t.fd, 64, &spec, NULL), EINVAL);
	spec.it_value.tv_nsec = 1000000000;
	assert_errno(timerfd_settime(t.fd, 0, &spec, NULL), EINVAL);
	assert_errno(timerfd_settime(-1, 0, &(struct itimerspec){0}, NULL), EBADF);
	assert_errno(timerfd_settime(t.ep, 0, &(struct itimerspec){0}, NULL), EINVAL);
	assert_errno(timerfd_gettime(t.fd, bad), EFAULT);
	sleep_ms(PASSED_MS);
	assert_silent(t.ep, t.fd);
	/* This one sets it all the same (TFD-04). */
	put_off(t.fd, HOUR_MS);
	spec.it_value = from_ms(2LL * HOUR_MS);
	assert_errno(timerfd_settime(t.fd, 0, &spec, bad), EFAULT);
	assert_ok(timerfd_gettime(t.fd, &was));
	assert_true(ns_of(&was.it_value) > HOUR_MS * 1000000LL);
	timed_close(&t);
}

/* ---- reading ---- */

static void *read_one(void *p)
{
	struct timed *t = p;
	uint64_t n = 0;

	return (void *)(read(t->fd, &n, sizeof(n)) == sizeof(n) ? n : 99);
}

static void TFD_12_a_blocked_read_sleeps_until_it_expires(void **state)
{
	(void)state;
	for (int how = 0; how < 3; how++) {
		struct timed t = {.ep = ep_new(), .fd = new_timer(0)};
		struct test_thread r = {.fn = NULL};
		int64_t due;

		ep_add(t.ep, t.fd, EPOLLIN, 7);
		if (how == 0)
			put_off(t.fd, HOUR_MS);
		thread_start(&r, read_one, &t);
		assert_true(thread_asleep(&r));
		if (how == 1)
			put_off_from(t.fd, HOUR_MS, HOUR_MS);
		if (how < 2)
			sleep_ms(PASSED_MS);
		assert_false(thread_done(&r));
		due = put_off_from(t.fd, HOUR_MS, 60);
		assert_true(thread_join(&r, SOON_MS));
		assert_true(now_ns() >= due);
		assert_ptr_equal(r.ret, (void *)1);
		timed_close(&t);
	}
}

static void TFD_11_reads_of_all_kinds(void **state)
{
	struct timed t = timed_new(0);
	uint64_t n;
	uint32_t half[2];
	struct iovec iov = {.iov_base = &n, .iov_len = sizeof(n)};
	struct iovec two[2] = {{&half[0], 4}, {&half[1], 4}};

	(void)state;
	put_off_past(t.fd, HOUR_MS);
	assert_errno(read(t.fd, &n, 7), EINVAL);
	assert_errno(read(t.fd, &n, 8), EAGAIN);
	put_off_past(t.fd, HOUR_MS);
	assert_errno(readv(t.fd, &iov, 1), EAGAIN);
	put_off_past(t.fd, HOUR_MS);
	assert_errno(readv(t.fd, two, 2), EAGAIN);
	put_off_past(t.fd, HOUR_MS);
	assert_errno(syscall(SYS_read, t.fd, &n, 8), EAGAIN);
	assert_errno(write(t.fd, &n, 8), EINVAL);
	timed_close(&t);
}

/* ---- other ways of looking ---- */

static void TFD_14_poll_and_select(void **state)
{
	(void)state;
	for (int how = 0; how < 6; how++) {
		struct timed t = timed_new(0);
		struct pollfd p = {.fd = how % 3 == 2 ? t.ep : t.fd, .events = POLLIN};
		struct timeval none = {0};
		fd_set set;
		int64_t due;

		if (how < 3)
			put_off_past(t.fd, HOUR_MS);
		else
			put_off(t.fd, HOUR_MS);
		FD_ZERO(&set);
		FD_SET(p.fd, &set);
		if (how % 3 == 1)
			assert_int_equal(select(p.fd + 1, &set, NULL, NULL, &none), 0);
		else
			assert_int_equal(poll(&p, 1, how < 3 ? 0 : PASSED_MS), 0);
		due = put_off(t.fd, 60);
		FD_SET(p.fd, &set);
		if (how % 3 == 1)
			assert_int_equal(select(p.fd + 1, &set, NULL, NULL, NULL), 1);
		else
			assert_int_equal(poll(&p, 1, SOON_MS), 1);
		assert_true(now_ns() >= due);
		assert_true(ep_one(t.ep, EPOLLIN, 7));
		timed_close(&t);
	}
}

static void TFD_14_an_epoll_around_the_epoll(void **state)
{
	(void)state;
	for (int before = 0; before < 2; before++) {
		struct timed t = timed_new(0);
		struct epoll_event ev[4];
		int outer = ep_new();

		if (before)
			ep_add(outer, t.ep, EPOLLIN | EPOLLET, 1);
		put_off(t.fd, HOUR_MS);
		if (!before)
			ep_add(outer, t.ep, EPOLLIN | EPOLLET, 1);
		assert_int_equal(epoll_wait(outer, ev, 4, 2 * PASSED_MS), 0);
		put_off(t.fd, 60);
		assert_int_equal(epoll_wait(outer, ev, 4, SOON_MS), 1);
		assert_true(ep_one(t.ep, EPOLLIN, 7));
		close(outer);
		timed_close(&t);
	}
}

static void TFD_14_two_epolls(void **state)
{
	struct timed t = timed_new(0);
	struct epoll_event ev[4];
	int other = ep_new();

	(void)state;
	put_off(t.fd, HOUR_MS);
	ep_add(other, t.fd, EPOLLIN, 8);
	assert_int_equal(epoll_wait(other, ev, 4, PASSED_MS), 0);
	assert_silent(t.ep, t.fd);
	put_off(t.fd, 60);
	assert_int_equal(epoll_wait(other, ev, 4, SOON_MS), 1);
	assert_int_equal(ev[0].data.u64, 8);
	assert_true(ep_one(t.ep, EPOLLIN, 7));
	close(other);
	timed_close(&t);
}

/* ---- registrations ---- */

static void TFD_14_MOD_DEL_and_ADD(void **state)
{
	struct epoll_event ev[4];

	(void)state;
	for (int past = 0; past < 2; past++) {
		struct timed t = timed_new(0);

		past ? put_off_past(t.fd, HOUR_MS) : (void)put_off(t.fd, HOUR_MS);
		ep_mod(t.ep, t.fd, EPOLLIN | EPOLLET, 8);
		assert_int_equal(epoll_wait(t.ep, ev, 4, PASSED_MS), 0);
		put_off(t.fd, 60);
		assert_int_equal(epoll_wait(t.ep, ev, 4, SOON_MS), 1);
		assert_int_equal(ev[0].data.u64, 8);
		assert_int_equal(ep_count(t.ep), 0);
		past ? put_off_past(t.fd, HOUR_MS) : (void)put_off(t.fd, HOUR_MS);
		assert_errno(ep_ctl(t.ep, EPOLL_CTL_ADD, t.fd, EPOLLIN, 9), EEXIST);
		ep_del(t.ep, t.fd);
		assert_errno(epoll_ctl(t.ep, EPOLL_CTL_DEL, t.fd, NULL), ENOENT);
		put_off_past(t.fd, FIRST_MS + 20);
		assert_int_equal(ep_count(t.ep), 0);
		ep_add(t.ep, t.fd, EPOLLIN, 9);
		assert_true(comes(t.ep, 9));
		past ? put_off_past(t.fd, HOUR_MS) : (void)put_off(t.fd, HOUR_MS);
		ep_mod(t.ep, t.fd, 0, 9);
		set(t.fd, 1);
		sleep_ms(20);
		assert_int_equal(ep_count(t.ep), 0);
		timed_close(&t);
	}
}

static void TFD_14_the_number_is_used_again(void **state)
{
	struct timed t = timed_new(0);
	struct epoll_event ev[4];
	int efd, ep = t.ep;

	(void)state;
	put_off(t.fd, HOUR_MS);
	close(t.fd);
	efd = efd_new(0, 0);
	assert_int_equal(efd, t.fd);
	assert_int_equal(epoll_wait(t.ep, ev, 4, 2 * PASSED_MS), 0);
	ep_add(t.ep, efd, EPOLLIN, 1);
	efd_add(efd, 1);
	assert_true(ep_one(t.ep, EPOLLIN, 1));
	assert_errno(timerfd_settime(efd, 0, &(struct itimerspec){0}, NULL), EINVAL);
	close(efd);
	/* The epoll goes first, or something takes the place of one. */
	for (int how = 0; how < 4; how++) {
		struct pollfd p;
		int other = efd_new(0, 0);

		t.ep = how ? ep_new() : ep;
		t.fd = new_timer(TFD_NONBLOCK);
		ep_add(t.ep, t.fd, EPOLLIN, 7);
		put_off(t.fd, HOUR_MS);
		if (how == 2)
			assert_ok(dup2(other, t.ep));
		else if (how == 3)
			assert_ok(dup2(other, t.fd));
		else
			close(t.ep);
		sleep_ms(PASSED_MS);
		if (how < 3) {
			uint64_t n;

			assert_errno(read(t.fd, &n, sizeof(n)), EAGAIN);
			put_off(t.fd, 60);
			p = (struct pollfd){.fd = t.fd, .events = POLLIN};
			assert_int_equal(poll(&p, 1, SOON_MS), 1);
		} else {
			assert_int_equal(ep_count(t.ep), 0);
		}
		close(t.fd);
		if (how >= 2)
			close(t.ep);
		close(other);
	}
}

/* By an instruction, and then given out for another clock. */
static void TFD_14_the_number_is_closed_unseen(void **state)
{
	struct timed t = timed_new(0);
	struct itimerspec left;

	(void)state;
	put_off_from(t.fd, HOUR_MS, 2 * HOUR_MS);
	assert_int_equal(own_close(t.fd), 0);
	assert_int_equal(assert_ok(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC)), t.fd);
	assert_ok(timerfd_gettime(t.fd, &left));
	assert_int_equal(left.it_value.tv_sec, 0);
	assert_int_equal(left.it_value.tv_nsec, 0);
	timed_close(&t);
}

/* In a child, which goes there for good. */
static int goes_elsewhere(void *unused)
{
	const char later[] = "monotonic 1000000 0";
	struct timed t = timed_new(0);
	struct itimerspec left;
	int offsets, there;

	(void)unused;
	put_off_from(t.fd, HOUR_MS, 2 * HOUR_MS);
	if (unshare(CLONE_NEWTIME))
		return EXIT_SKIPPED;
	offsets = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
	if (offsets < 0 || write(offsets, later, sizeof(later) - 1) < 0)
		return EXIT_SKIPPED;
	there = open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
	put_off_from(t.fd, HOUR_MS, 2 * HOUR_MS);
	if (there < 0 || setns(there, 0))
		return EXIT_SKIPPED;
	return timerfd_gettime(t.fd, &left) || left.it_value.tv_sec > 7200 ||
	       left.it_value.tv_sec < 7100;
}

static void TFD_09_in_another_time_namespace(void **state)
{
	(void)state;
	assert_child(child_status(goes_elsewhere, NULL), "no time namespaces for this user");
}

/* A wait that finds nothing: whether it ends hardly later than its time. */
static bool in_time(int ep, bool by_instruction)
{
	int64_t due = now_ns() + PASSED_MS * 1000000ll;
	struct epoll_event ev;

	if (by_instruction)
		assert_int_equal(
			own_call6(SYS_epoll_pwait, ep, (long)&ev, 1, PASSED_MS, 0, _NSIG / 8), 0);
	else
		assert_int_equal(epoll_wait(ep, &ev, 1, PASSED_MS), 0);
	return now_ns() - due < 500000;
}

/*
 * A wait that has been woken for nothing, as the kernel's timer has expired, ends in time. What is
 * left of its time by then is little more than whole ms.
 */
static void EP_TMO_03_it_is_not_late(void **state)
{
	const struct itimerspec first = {.it_value.tv_nsec = FIRST_MS * 1000000 + 900000};
	struct timed t = timed_new(0);
	int empty = ep_new(), kernel = 0, ours = 0;

	(void)state;
	if (prctl(PR_GET_SECCOMP))
		SKIP("under a filter a wait in ms sleeps in ms");
	for (int round = 0; round < 12; round++) {
		/* So many that the next row is worth it, too. */
		for (int i = 0; i < 100; i++) {
			assert_ok(timerfd_settime(t.fd, 0, &first, NULL));
			assert_int_equal(ep_count(t.ep), 0);
		}
		set(t.fd, HOUR_MS);
		ours += in_time(t.ep, false);
		kernel += in_time(empty, true);
	}
	if (kernel < 9)
		SKIP("the kernel's waits are late");
	assert_true(ours >= 4);
	close(empty);
	timed_close(&t);
}

/* ---- out of sight ---- */

static void TFD_23_duplicates(void **state)
{
	(void)state;
	for (int how = 0; how < 3; how++) {
		struct timed t = timed_new(0);
		int to = efd_new(0, 0), twin;

		put_off(t.fd, HOUR_MS);
		twin = how == 0	  ? (int)assert_ok(dup(t.fd))
		       : how == 1 ? dup_of(t.fd)
				  : (int)assert_ok(dup2(t.fd, to));
		sleep_ms(PASSED_MS);
		assert_silent(t.ep, twin);
		put_off_past(twin, HOUR_MS);
		assert_silent(t.ep, t.fd);
		put_off_past(t.fd, FIRST_MS + 20);
		close(t.fd);
		assert_true(comes(t.ep, 7));
		close(twin);
		assert_int_equal(ep_count(t.ep), 0);
		close(to);
		close(t.ep);
	}
}

static int in_child(struct timed *t)
{
	uint64_t n;

	if (ep_count(t->ep) || read(t->fd, &n, sizeof(n)) != -1 || errno != EAGAIN)
		return 1;
	for (int i = 0; i < ROW; i++)
		if (try_set(t->fd, FIRST_MS, 0))
			return 2;
	if (try_set(t->fd, FIRST_MS + 20, 0))
		return 3;
	sleep_ms(PASSED_MS);
	return read_passed(t->fd) == 1 ? 0 : 4;
}

static void TFD_23_fork(void **state)
{
	struct timed t = timed_new(0);
	pid_t pid;

	(void)state;
	put_off(t.fd, HOUR_MS);
	pid = (pid_t)assert_ok(fork());
	if (!pid) {
		sleep_ms(PASSED_MS);
		_exit(in_child(&t));
	}
	child_passes(pid);
	put_off_past(t.fd, HOUR_MS);
	assert_silent(t.ep, t.fd);
	timed_close(&t);
}

static const char *own_name;

static void executed_by_vfork(int fd, const char *expect)
{
	char number[16];
	pid_t pid;

	snprintf(number, sizeof(number), "%d", fd);
	pid = (pid_t)assert_ok(vfork());
	if (!pid) {
		execl(own_name, own_name, expect, number, (char *)NULL);
		_exit(127);
	}
	child_passes(pid);
}

static void TFD_23_exec(void **state)
{
	(void)state;
	for (int past = 0; past < 2; past++) {
		struct timed t = timed_new(0);

		assert_ok(fcntl(t.fd, F_SETFD, 0));
		put_off(t.fd, past ? FIRST_MS + 20 : HOUR_MS);
		executed_by_vfork(t.fd, past ? "due" : "silent");
		timed_close(&t);
	}
}

/* Started by TFD_23_exec. */
static int after_exec(bool due, int fd)
{
	uint64_t n;

	sleep_ms(PASSED_MS);
	if (due)
		return read_passed(fd) != 1;
	return read(fd, &n, sizeof(n)) != -1 || errno != EAGAIN;
}

static int send_to_self(int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int sv[2], got;

	assert_ok(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sv));
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	assert_ok(sendmsg(sv[0], &m, 0));
	assert_ok(recvmsg(sv[1], &m, MSG_CMSG_CLOEXEC));
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(got));
	close(sv[0]);
	close(sv[1]);
	return got;
}

static void TFD_23_SCM_RIGHTS(void **state)
{
	struct timed t = timed_new(0);
	int other;

	(void)state;
	put_off(t.fd, HOUR_MS);
	other = send_to_self(t.fd);
	sleep_ms(PASSED_MS);
	assert_silent(t.ep, other);
	put_off_past(other, HOUR_MS);
	assert_silent(t.ep, t.fd);
	close(other);
	timed_close(&t);
}

static void TFD_21_ioctl_and_fcntl(void **state)
{
	struct timed t = timed_new(0);
	uint64_t five = 5, n;

	(void)state;
	put_off(t.fd, HOUR_MS);
	if (ioctl(t.fd, _IOW('T', 0, uint64_t), &five) == 0) {
		assert_int_equal(read(t.fd, &n, sizeof(n)), sizeof(n));
		assert_int_equal(n, 5);
	}
	timed_close(&t);
	t = timed_new(0);
	put_off(t.fd, HOUR_MS);
	assert_ok(fcntl(t.fd, F_SETFL, 0));
	assert_ok(fcntl(t.fd, F_SETFL, O_NONBLOCK));
	sleep_ms(PASSED_MS);
	assert_silent(t.ep, t.fd);
	timed_close(&t);
}

/* ---- beside others ---- */

static void TFD_14_others_come_without_it(void **state)
{
	(void)state;
	for (enum kind kind = KIND_EVENTFD; kind <= KIND_SOCKET; kind++) {
		struct timed t = timed_new(0);
		struct subject s = subject_new(kind);

		ep_add(t.ep, s.fd, EPOLLIN, 1);
		put_off_past(t.fd, HOUR_MS);
		subject_fill(&s);
		assert_true(ep_one(t.ep, EPOLLIN, 1));
		put_off_past(t.fd, HOUR_MS);
		assert_true(ep_one(t.ep, EPOLLIN, 1));
		subject_drain(&s);
		assert_silent(t.ep, t.fd);
		/* Both. */
		put_off(t.fd, FIRST_MS + 20);
		subject_fill(&s);
		sleep_ms(PASSED_MS);
		assert_true(come(t.ep, (struct epoll_event[8]){{0}}, 2));
		subject_close(&s);
		timed_close(&t);
	}
}

struct waiting {
	int ep, n, ms, err;
	uint64_t data;
};

/* ---- buffers that cannot be written ---- */

/* Where a page ends that can be written, and one begins that cannot. */
static struct epoll_event *edge(void)
{
	static unsigned char *p;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (!p) {
		p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0);
		assert_true(p != MAP_FAILED);
		assert_ok(mprotect(p + page, page, PROT_READ));
	}
	return (struct epoll_event *)(void *)(p + page);
}

/* The kernel's expiry, before it or during it, is nothing to a wait. */
static void EP_ARG_02_an_expiry_before_the_time_is_no_event(void **state)
{
	struct epoll_event *bad[] = {NULL, edge(), edge() + 1};

	(void)state;
	/* Beside nothing, an eventfd, a pipe; a poll, a short wait, one that lasts over it. */
	for (int beside = 0; beside < 3; beside++) {
		for (int how = 0; how < 3; how++) {
			for (int both = 0; both < 2; both++) {
				enum entry e =
					(enum entry)((beside + 2 * how + 3 * both) % ENTRIES);
				struct subject s =
					subject_new(beside > 1 ? KIND_PIPE : KIND_EVENTFD);
				struct timed t = timed_new(0);
				int64_t due;

				if (beside)
					ep_add(t.ep, s.fd, EPOLLIN, 1);
				/* Waits have been here, or not. */
				if (both)
					assert_int_equal(ep_count(t.ep), 0);
				if (how == 2)
					put_off(t.fd, HOUR_MS);
				else
					put_off_past(t.fd, HOUR_MS);
				assert_int_equal(wait_by(e, t.ep, bad[(how + beside) % 3],
							 1 + both * 7,
							 how == 0   ? 0
							 : how == 1 ? 3
								    : PASSED_MS,
							 NULL),
						 0);
				assert_silent(t.ep, t.fd);
				due = put_off_from(t.fd, HOUR_MS, 30);
				assert_errno(
					wait_by(e, t.ep, bad[how], 1 + both * 7, SOON_MS, NULL),
					EFAULT);
				assert_true(now_ns() >= due);
				assert_true(comes(t.ep, 7));
				subject_close(&s);
				timed_close(&t);
			}
		}
	}
}

static void EP_ARG_02_nor_is_it_one_in_an_inner_epoll(void **state)
{
	(void)state;
	for (int how = 0; how < 4; how++) {
		struct timed t = timed_new(0);
		int outer = ep_new();

		if (how & 1)
			ep_add(outer, t.ep, EPOLLIN, 1);
		put_off_past(t.fd, HOUR_MS);
		if (!(how & 1))
			ep_add(outer, t.ep, EPOLLIN, 1);
		for (int again = 0; again < 2; again++) {
			if ((how >> 1) ^ again)
				assert_int_equal(epoll_wait(outer, edge(), 4, again), 0);
			else
				assert_int_equal(epoll_wait(t.ep, edge(), 4, again), 0);
		}
		set(t.fd, 1);
		assert_errno(epoll_wait(outer, edge(), 4, SOON_MS), EFAULT);
		assert_errno(epoll_wait(t.ep, edge(), 4, SOON_MS), EFAULT);
		assert_true(comes(t.ep, 7));
		close(outer);
		timed_close(&t);
	}
}

/* Others that became ready after it: as many as fit, and the next one keeps its event. */
static void EP_ARG_03_nor_does_it_take_the_place_of_others(void **state)
{
	(void)state;
	for (size_t m = 0; m < MODES; m++) {
		for (int fit = 0; fit < 4; fit++) {
			struct timed t = timed_new(0);
			struct epoll_event *ev = edge() - fit, rest[8];
			struct subject s[3];
			bool stays = modes[m] == 0 || modes[m] == EPOLLEXCLUSIVE;
			int n;

			for (int i = 0; i < 3; i++) {
				s[i] = subject_new(KIND_PIPE);
				ep_add(t.ep, s[i].fd, EPOLLIN | modes[m], (uint64_t)i + 1);
			}
			put_off_past(t.fd, HOUR_MS);
			for (int i = 0; i < 3; i++)
				subject_fill(&s[i]);
			n = epoll_wait(t.ep, ev, 4, 0);
			if (fit)
				assert_int_equal(n, fit);
			else
				assert_int_equal(n, -1);
			for (int i = 0; i < n; i++)
				assert_int_equal(ev[i].data.u64, i + 1);
			n = epoll_wait(t.ep, rest, 8, 0);
			assert_int_equal(n, stays ? 3 : 3 - fit);
			for (int i = 0; i < n; i++)
				assert_int_equal(rest[i].data.u64, (fit + i) % 3 + 1);
			for (int i = 0; i < 3; i++)
				subject_close(&s[i]);
			timed_close(&t);
		}
	}
}

static void EP_ORD_06_nor_does_it_take_a_slot(void **state)
{
	(void)state;
	for (int beside = 0; beside < 2; beside++) {
		for (int room = 1; room < 4; room++) {
			struct timed t = timed_new(0);
			struct epoll_event ev[8];
			struct subject s[3];
			int efd = efd_new(0, 0);

			if (beside)
				ep_add(t.ep, efd, EPOLLIN, 9);
			for (int i = 0; i < 3; i++) {
				s[i] = subject_new(KIND_PIPE);
				ep_add(t.ep, s[i].fd, EPOLLIN, (uint64_t)i + 1);
			}
			put_off_past(t.fd, HOUR_MS);
			for (int i = 0; i < 3; i++)
				subject_fill(&s[i]);
			assert_int_equal(epoll_wait(t.ep, ev, room, 0), room);
			for (int i = 0; i < room; i++)
				assert_int_equal(ev[i].data.u64, i + 1);
			assert_int_equal(epoll_wait(t.ep, ev, 8, 0), 3);
			for (int i = 0; i < 3; i++)
				assert_int_equal(ev[i].data.u64, (room + i) % 3 + 1);
			for (int i = 0; i < 3; i++)
				subject_close(&s[i]);
			close(efd);
			timed_close(&t);
		}
	}
}

static void *wait_bad(void *p)
{
	struct waiting *w = p;

	w->n = epoll_wait(w->ep, edge(), 4, w->ms);
	w->err = errno;
	return NULL;
}

/* One that sleeps since before the timer was put off for the first time sleeps on. */
static void EP_ARG_02_nor_to_who_has_slept_since_before(void **state)
{
	(void)edge();
	(void)state;
	for (int how = 0; how < 6; how++) {
		struct timed t = timed_new(0);
		struct subject s = subject_new(how / 2 > 1 ? KIND_PIPE : KIND_EVENTFD);
		struct waiting w = {.ep = t.ep, .ms = how & 1 ? 3 * PASSED_MS : SOON_MS};
		struct test_thread th = {.fn = NULL};
		int64_t due = 0, begun;
		bool late;

		if (how / 2)
			ep_add(t.ep, s.fd, EPOLLIN, 1);
		for (thread_start(&th, wait_bad, &w); !thread_asleep(&th);
		     thread_start(&th, wait_bad, &w)) {
			/* On a busy machine it may be over before anybody has looked. */
			assert_true(how & 1 && thread_join(&th, SOON_MS));
			assert_int_equal(w.n, 0);
			w.ms *= 2;
		}
		begun = now_ms();
		put_off(t.fd, HOUR_MS);
		/* Then it may have expired in between, and the wait is over. */
		late = now_ms() - begun >= FIRST_MS;
		sleep_ms(PASSED_MS);
		if (!(how & 1) && !late) {
			assert_false(thread_done(&th));
			due = now_ns() + 20000000;
			set(t.fd, 20);
		}
		if (late)
			set(t.fd, 1);
		assert_true(thread_join(&th, SOON_MS));
		if (late) {
			how--;
		} else if (!(how & 1)) {
			assert_int_equal(w.n, -1);
			assert_int_equal(w.err, EFAULT);
			assert_true(now_ns() >= due);
			assert_true(comes(t.ep, 7));
		} else {
			assert_int_equal(w.n, 0);
			assert_silent(t.ep, t.fd);
		}
		subject_close(&s);
		timed_close(&t);
	}
}

/* What was ready before it expired comes before it. */
static void EP_ORD_01_a_timer_comes_after_what_was_ready_before(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct timed t = timed_new(0);
		struct subject s = subject_new(i & 1 ? KIND_SOCKET : KIND_PIPE);
		struct epoll_event ev[8];
		int64_t due;
		bool before;

		ep_add(t.ep, s.fd, EPOLLIN, 1);
		put_off(t.fd, HOUR_MS);
		due = now_ns() + 100000000;
		set(t.fd, 100);
		if (i & 2)
			assert_int_equal(ep_count(t.ep), 0);
		/* After the kernel's time and before its own, unless this thread is late. */
		sleep_ms(50);
		subject_fill(&s);
		before = now_ns() < due;
		sleep_ms(100);
		assert_true(come(t.ep, ev, 2));
		if (before)
			assert_int_equal(ev[0].data.u64, 1);
		subject_close(&s);
		timed_close(&t);
	}
}

/*
 * An item that is on the ready list and not ready any more keeps its place until somebody comes by:
 * nobody does (0), a wait looks through the whole list (1), or through what is before it (2).
 */
static void EP_ORD_02_a_timer_that_is_set_again_keeps_its_place(void **state)
{
	(void)state;
	for (int i = 0; i < 6; i++) {
		struct timed t = timed_new(0);
		struct subject s = subject_new(KIND_PIPE);
		struct pollfd p = {.fd = t.fd, .events = POLLIN};
		int efd = efd_new(0, 0), how = i / 2;
		struct epoll_event ev[8];

		if (i & 1)
			ep_add(t.ep, efd, EPOLLIN, 9);
		ep_add(t.ep, s.fd, EPOLLIN, 1);
		set(t.fd, 1);
		assert_int_equal(epoll_wait(t.ep, ev, 8, SOON_MS), 1);
		subject_fill(&s);
		if (how == 2) {
			assert_int_equal(epoll_wait(t.ep, ev, 1, 0), 1);
			assert_int_equal(ev[0].data.u64, 7);
		}
		put_off_from(t.fd, HOUR_MS, HOUR_MS);
		if (how) {
			assert_int_equal(epoll_wait(t.ep, ev, how == 1 ? 8 : 1, 0), 1);
			assert_int_equal(ev[0].data.u64, 1);
		}
		put_off_past(t.fd, FIRST_MS + 20);
		assert_int_equal(poll(&p, 1, SOON_MS), 1);
		assert_int_equal(epoll_wait(t.ep, ev, 8, 0), 2);
		assert_int_equal(ev[0].data.u64, how == 1 ? 1 : 7);
		assert_int_equal(ev[1].data.u64, how == 1 ? 7 : 1);
		subject_close(&s);
		close(efd);
		timed_close(&t);
	}
}

static void *wait_once(void *p)
{
	struct waiting *w = p;
	struct epoll_event ev[4];

	w->n = epoll_wait(w->ep, ev, 4, w->ms);
	if (w->n > 0)
		w->data = ev[0].data.u64;
	return NULL;
}

/* Threads sleep before and after the timer is set; one edge wakes one. */
static void TFD_14_several_wait(void **state)
{
	(void)state;
	for (int before = 0; before < 3; before++) {
		struct timed t = timed_new(EPOLLET);
		struct waiting w[2] = {{.ep = t.ep, .ms = 500}, {.ep = t.ep, .ms = 500}};
		struct test_thread th[2] = {{.fn = NULL}, {.fn = NULL}};

		for (int i = 0; i < before; i++)
			thread_start(&th[i], wait_once, &w[i]);
		put_off_from(t.fd, before ? HOUR_MS : FIRST_MS, 3 * PASSED_MS);
		for (int i = before; i < 2; i++)
			thread_start(&th[i], wait_once, &w[i]);
		for (int i = 0; i < 2; i++)
			assert_true(thread_join(&th[i], SOON_MS));
		/* None if they were too late. */
		if (w[0].n + w[1].n == 0)
			assert_true(comes(t.ep, 7));
		else
			assert_int_equal(w[0].n + w[1].n, 1);
		timed_close(&t);
	}
}

/* Another thread sets it while one sleeps in the wait. */
static void TFD_07_set_while_somebody_waits(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct timed t = timed_new(0);
		struct waiting w = {.ep = t.ep, .ms = SOON_MS};
		struct test_thread th = {.fn = NULL};

		if (i == 0)
			put_off(t.fd, HOUR_MS);
		thread_start(&th, wait_once, &w);
		assert_true(thread_asleep(&th));
		if (i == 1)
			put_off(t.fd, HOUR_MS);
		/* Earlier than whatever the kernel has. */
		set(t.fd, 1);
		assert_true(thread_join(&th, SOON_MS));
		assert_int_equal(w.n, 1);
		assert_int_equal(w.data, 7);
		timed_close(&t);
	}
}

/*
 * One thread moves the time, always to a later one, and rests now and then; others wait. The time
 * that a setting is sure to have had when a wait began has passed when the wait gives an event.
 */
static struct {
	struct timed t;
	int64_t sure;
	int stop, early;
} race;

static double race_seconds(void)
{
	const char *text = getenv("POLLUX_TORTURE_SECONDS");

	return text ? atof(text) : 0.5;
}

static void *racer_wait(void *p)
{
	int ms = *(int *)p;

	while (!__atomic_load_n(&race.stop, __ATOMIC_ACQUIRE)) {
		int64_t sure = __atomic_load_n(&race.sure, __ATOMIC_ACQUIRE);
		struct epoll_event ev[4];
		int n = epoll_wait(race.t.ep, ev, 4, ms);

		if (n > 0 && now_ns() < sure)
			race.early = 1;
		/* It stays ready until it is set again. */
		if (n > 0)
			sleep_ms(1);
	}
	return NULL;
}

static void race_run(int waiters)
{
	static int timeouts[] = {5, 0, 50};
	struct test_thread th[3] = {{.fn = NULL}};
	int64_t end;
	uint32_t rnd = 1;

	race.t = timed_new(0);
	race.stop = race.early = 0;
	race.sure = 0;
	end = now_ns() + (int64_t)(race_seconds() * 1e9);
	for (int i = 0; i < waiters; i++)
		thread_start(&th[i], racer_wait, &timeouts[i]);
	while (now_ns() < end) {
		int64_t due = now_ns() + 30000000;

		set(race.t.fd, 31);
		__atomic_store_n(&race.sure, due, __ATOMIC_RELEASE);
		rnd = rnd * 1664525 + 1013904223;
		if (rnd >> 28 == 0)
			sleep_ms(rnd >> 20 & 63);
		else if (rnd >> 30 == 0)
			usleep(rnd >> 22 & 255);
	}
	/* What came last comes. */
	if (!waiters) {
		struct epoll_event ev;

		assert_int_equal(epoll_wait(race.t.ep, &ev, 1, SOON_MS), 1);
	}
	__atomic_store_n(&race.stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < waiters; i++)
		assert_true(thread_join(&th[i], SOON_MS));
	assert_int_equal(race.early, 0);
	timed_close(&race.t);
}

static void TFD_07_moved_while_others_wait(void **state)
{
	(void)state;
	for (int waiters = 0; waiters <= 3; waiters++)
		race_run(waiters);
}

/* ThreadSanitizer runs handlers where it likes, also inside of calls. */
#define SKIP_IF_HANDLERS_COME_ANYWHERE()                                                           \
	do {                                                                                       \
		if (SANITIZED == 2 && under_pollux())                                              \
			SKIP("ThreadSanitizer");                                                   \
	} while (0)

static sigjmp_buf away;
static int jumps;

static void on_alarm(int sig)
{
	(void)sig;
	if (jumps)
		siglongjmp(away, 1);
}

static void alarm_every(int us)
{
	struct itimerval every = {{0, us}, {0, us}};

	assert_ok(setitimer(ITIMER_REAL, &every, NULL));
}

/* A wait that is left by a jump, perhaps with the event in its hand, does not lose the timer. */
static void TFD_07_jumps_out_of_waits_lose_nothing(void **state)
{
	struct sigaction sa = {.sa_handler = on_alarm}, old;
	struct timed t = timed_new(0);
	struct epoll_event ev[4];
	volatile int rounds = 0;
	volatile int64_t due;
	int n;

	(void)state;
	SKIP_IF_HANDLERS_COME_ANYWHERE();
	assert_ok(sigaction(SIGALRM, &sa, &old));
	due = put_off(t.fd, 400);
	if (!sigsetjmp(away, 1)) {
		jumps = 1;
		alarm_every(700);
	}
	while (rounds++ < 100000 && now_ns() < due)
		epoll_wait(t.ep, ev, 4, 20);
	jumps = 0;
	alarm_every(0);
	do {
		n = epoll_wait(t.ep, ev, 4, SOON_MS);
	} while (n < 0 && errno == EINTR);
	assert_int_equal(n, 1);
	assert_int_equal(ev[0].data.u64, 7);
	assert_ok(sigaction(SIGALRM, &old, NULL));
	timed_close(&t);
}

static struct timed *handled;

static void on_alarm_set(int sig)
{
	int saved = errno;

	(void)sig;
	try_set(handled->fd, HOUR_MS, 0);
	try_set(handled->fd, FIRST_MS, 0);
	errno = saved;
}

/* Handlers set the timer that the code they interrupt sets and waits for. */
static void TFD_07_handlers_set_it(void **state)
{
	struct sigaction sa = {.sa_handler = on_alarm_set, .sa_flags = SA_RESTART}, old;
	struct timed t = timed_new(0);
	struct epoll_event ev[4];
	int64_t end = now_ns() + 300000000;
	struct itimerspec was;
	int n;

	(void)state;
	SKIP_IF_HANDLERS_COME_ANYWHERE();
	handled = &t;
	assert_ok(sigaction(SIGALRM, &sa, &old));
	alarm_every(900);
	while (now_ns() < end) {
		set(t.fd, HOUR_MS);
		assert_ok(timerfd_gettime(t.fd, &was));
		n = epoll_wait(t.ep, ev, 4, 1);
		assert_true(n >= 0 || errno == EINTR);
	}
	alarm_every(0);
	set(t.fd, 30);
	do {
		n = epoll_wait(t.ep, ev, 4, SOON_MS);
	} while (n < 0 && errno == EINTR);
	assert_int_equal(n, 1);
	assert_ok(sigaction(SIGALRM, &old, NULL));
	timed_close(&t);
}

/* A thread that is cancelled in its wait takes nothing along. */
static void TFD_07_a_cancelled_wait_loses_nothing(void **state)
{
	struct timed t = timed_new(0);
	struct epoll_event ev[4];

	(void)state;
	put_off(t.fd, 400);
	for (int i = 0; i < 40; i++) {
		struct waiting w = {.ep = t.ep, .ms = SOON_MS};
		struct test_thread th = {.fn = NULL};

		thread_start(&th, wait_once, &w);
		sleep_ms(i % 4);
		pthread_cancel(th.id);
		assert_int_equal(pthread_join(th.id, NULL), 0);
	}
	assert_int_equal(epoll_wait(t.ep, ev, 4, SOON_MS), 1);
	assert_int_equal(ev[0].data.u64, 7);
	timed_close(&t);
}

/* Many timers, each put off, come in the end, and none before its time. */
static void TFD_07_many_timers(void **state)
{
	enum { TIMERS = 40 };
	int ep = ep_new(), fd[TIMERS], left = TIMERS;
	int64_t due[TIMERS];
	uint64_t n;

	(void)state;
	for (int i = 0; i < TIMERS; i++) {
		fd[i] = new_timer(TFD_NONBLOCK);
		ep_add(ep, fd[i], EPOLLIN, (uint64_t)i);
	}
	for (int i = 0; i < TIMERS; i++) {
		for (int k = 0; k < ROW; k++)
			set(fd[i], FIRST_MS);
		due[i] = now_ns() + (60 + i * 5) * 1000000LL;
		set(fd[i], 60 + i * 5);
	}
	while (left) {
		struct epoll_event ev[8];
		int got = epoll_wait(ep, ev, 8, SOON_MS);

		assert_true(got > 0);
		for (int i = 0; i < got; i++) {
			int which = (int)ev[i].data.u64;

			assert_uint_in_range(which, 0, TIMERS - 1);
			assert_true(now_ns() >= due[which]);
			assert_int_equal(read(fd[which], &n, sizeof(n)), sizeof(n));
			assert_int_equal(n, 1);
			left--;
		}
	}
	assert_int_equal(ep_count(ep), 0);
	for (int i = 0; i < TIMERS; i++)
		close(fd[i]);
	close(ep);
}

/* Eventfds of the same epoll leave for the kernel while a timer is put off. */
static void ESCAPE_leaves_a_timer_in_peace(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct timed t = timed_new(0);
		struct epoll_event ev[4];
		int fd[2] = {efd_new(0, 0), efd_new(0, 0)};
		struct waiting w = {.ep = t.ep, .ms = SOON_MS};
		struct test_thread th = {.fn = NULL};
		int other;

		ep_add(t.ep, fd[0], EPOLLIN | EPOLLET, 1);
		ep_add(t.ep, fd[1], EPOLLIN, 2);
		efd_add(fd[0], 1);
		assert_true(ep_one(t.ep, EPOLLIN, 1));
		/* A count that is 0 is not written to the kernel's object, and makes no edge. */
		assert_int_equal(efd_take(fd[0]), 1);
		put_off(t.fd, HOUR_MS);
		if (i) {
			thread_start(&th, wait_once, &w);
			assert_true(thread_asleep(&th));
		}
		other = send_to_self(fd[0]);
		sleep_ms(PASSED_MS);
		if (!i)
			assert_silent(t.ep, t.fd);
		efd_add(fd[1], 1);
		if (i) {
			assert_true(thread_join(&th, SOON_MS));
			assert_int_equal(w.n, 1);
			assert_int_equal(w.data, 2);
		}
		assert_true(ep_one(t.ep, EPOLLIN, 2));
		efd_take(fd[1]);
		put_off(t.fd, 60);
		assert_int_equal(epoll_wait(t.ep, ev, 4, SOON_MS), 1);
		assert_int_equal(ev[0].data.u64, 7);
		close(other);
		close(fd[0]);
		close(fd[1]);
		timed_close(&t);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest timerfd_rearm[] = {
		cmocka_unit_test(TFD_07_nothing_comes_before_its_time),
		cmocka_unit_test(TFD_07_it_comes_at_its_time),
		cmocka_unit_test(TFD_13_what_has_passed_unseen_is_there),
		cmocka_unit_test(TFD_13_every_multiple_counts),
		cmocka_unit_test(TFD_15_a_periodic_one_is_told_once_for_each_read),
		cmocka_unit_test(TFD_08_a_new_setting_takes_the_expiry_back),
		cmocka_unit_test(TFD_09_the_old_value_is_what_was_set),
		cmocka_unit_test(TFD_06_disarmed_it_shows_its_interval),
		cmocka_unit_test(TFD_10_gettime_when_it_has_passed),
		cmocka_unit_test(TFD_03_errors_leave_it_as_it_is),
		cmocka_unit_test(TFD_12_a_blocked_read_sleeps_until_it_expires),
		cmocka_unit_test(TFD_11_reads_of_all_kinds),
		cmocka_unit_test(TFD_14_poll_and_select),
		cmocka_unit_test(TFD_14_an_epoll_around_the_epoll),
		cmocka_unit_test(TFD_14_two_epolls),
		cmocka_unit_test(TFD_14_MOD_DEL_and_ADD),
		cmocka_unit_test(TFD_14_the_number_is_used_again),
		cmocka_unit_test(TFD_14_the_number_is_closed_unseen),
		cmocka_unit_test(TFD_09_in_another_time_namespace),
		cmocka_unit_test(EP_TMO_03_it_is_not_late),
		cmocka_unit_test(TFD_23_duplicates),
		cmocka_unit_test(TFD_23_fork),
		cmocka_unit_test(TFD_23_exec),
		cmocka_unit_test(TFD_23_SCM_RIGHTS),
		cmocka_unit_test(TFD_21_ioctl_and_fcntl),
		cmocka_unit_test(TFD_14_others_come_without_it),
		cmocka_unit_test(EP_ARG_02_an_expiry_before_the_time_is_no_event),
		cmocka_unit_test(EP_ARG_02_nor_is_it_one_in_an_inner_epoll),
		cmocka_unit_test(EP_ARG_03_nor_does_it_take_the_place_of_others),
		cmocka_unit_test(EP_ORD_06_nor_does_it_take_a_slot),
		cmocka_unit_test(EP_ARG_02_nor_to_who_has_slept_since_before),
		cmocka_unit_test(EP_ORD_01_a_timer_comes_after_what_was_ready_before),
		cmocka_unit_test(EP_ORD_02_a_timer_that_is_set_again_keeps_its_place),
		cmocka_unit_test(TFD_14_several_wait),
		cmocka_unit_test(TFD_07_set_while_somebody_waits),
		cmocka_unit_test(TFD_07_moved_while_others_wait),
		cmocka_unit_test(TFD_07_jumps_out_of_waits_lose_nothing),
		cmocka_unit_test(TFD_07_handlers_set_it),
		cmocka_unit_test(TFD_07_a_cancelled_wait_loses_nothing),
		cmocka_unit_test(TFD_07_many_timers),
		cmocka_unit_test(ESCAPE_leaves_a_timer_in_peace),
	};

	own_name = argv[0];
	if (argc == 3)
		return after_exec(strcmp(argv[1], "due") == 0, atoi(argv[2]));
	return run_group(timerfd_rearm);
}
