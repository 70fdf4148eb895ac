/* SPDX-License-Identifier: MIT */
/* EP-NEW: creating an epoll. */
#include "waiting.h"

#include <limits.h>
#include <sys/resource.h>

static int raw_create1(int flags)
{
	return (int)syscall(SYS_epoll_create1, flags);
}

static void EP_NEW_01_size_must_be_positive(void **state)
{
	(void)state;
	assert_errno(epoll_create(0), EINVAL);
	assert_errno(epoll_create(-1), EINVAL);
	assert_errno(epoll_create(INT_MIN), EINVAL);
#ifdef SYS_epoll_create
	assert_errno(syscall(SYS_epoll_create, 0), EINVAL);
	assert_errno(syscall(SYS_epoll_create, -1), EINVAL);
#endif
}

static void EP_NEW_01_positive_size_is_ignored(void **state)
{
	static const int sizes[] = {1, 2, 1024, INT_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		int ep = assert_ok(epoll_create(sizes[i]));
		int fds[5];

		for (int j = 0; j < 5; j++) {
			fds[j] = efd_new(1, EFD_NONBLOCK);
			assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fds[j], EPOLLIN, (uint64_t)j));
		}
		assert_true(ep_order(ep, 5, 0, 1, 2, 3, 4));
		for (int j = 0; j < 5; j++)
			close(fds[j]);
		assert_ok(close(ep));
	}
#ifdef SYS_epoll_create
	int ep = assert_ok(syscall(SYS_epoll_create, 1));

	assert_ok(close(ep));
#endif
}

static void EP_NEW_02_cloexec_is_the_only_flag(void **state)
{
	(void)state;
	assert_int_equal(EPOLL_CLOEXEC, O_CLOEXEC);
	for (int bit = 0; bit < 32; bit++) {
		int flag = (int)(1u << bit);

		if (flag == EPOLL_CLOEXEC)
			continue;
		assert_errno(epoll_create1(flag), EINVAL);
		assert_errno(epoll_create1(flag | EPOLL_CLOEXEC), EINVAL);
		assert_errno(raw_create1(flag), EINVAL);
	}
	assert_errno(epoll_create1(-1), EINVAL);
	assert_errno(epoll_create1(O_NONBLOCK), EINVAL);
	close((int)assert_ok(epoll_create1(0)));
	close((int)assert_ok(epoll_create1(EPOLL_CLOEXEC)));
}

static void EP_NEW_02_failed_create_opens_nothing(void **state)
{
	int before = fd_closed();

	(void)state;
	for (int i = 0; i < 100; i++) {
		assert_errno(epoll_create1(O_NONBLOCK), EINVAL);
		assert_errno(epoll_create(0), EINVAL);
	}
	assert_int_equal(fd_closed(), before);
}

static void EP_NEW_03_cloexec_is_set_only_on_request(void **state)
{
	int a = assert_ok(epoll_create1(EPOLL_CLOEXEC));
	int b = assert_ok(epoll_create1(0));
	int c = assert_ok(epoll_create(1));
	int d = assert_ok(raw_create1(EPOLL_CLOEXEC));
	int e = assert_ok(raw_create1(0));

	(void)state;
	assert_int_equal(fcntl(a, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(b, F_GETFD), 0);
	assert_int_equal(fcntl(c, F_GETFD), 0);
	assert_int_equal(fcntl(d, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fcntl(e, F_GETFD), 0);
	close(a);
	close(b);
	close(c);
	close(d);
	close(e);
}

static void EP_NEW_03_cloexec_is_not_carried_over_to_the_next(void **state)
{
	int first = assert_ok(epoll_create1(EPOLL_CLOEXEC));
	int next;

	(void)state;
	assert_ok(close(first));
	next = assert_ok(epoll_create1(0));
	assert_int_equal(next, first);
	assert_int_equal(fcntl(next, F_GETFD), 0);
	assert_ok(close(next));
}

static void EP_NEW_04_status_flags_are_rdwr(void **state)
{
	int eps[] = {
		assert_ok(epoll_create1(0)),
		assert_ok(epoll_create1(EPOLL_CLOEXEC)),
		assert_ok(epoll_create(7)),
		assert_ok(raw_create1(EPOLL_CLOEXEC)),
	};

	(void)state;
	for (size_t i = 0; i < sizeof(eps) / sizeof(eps[0]); i++) {
		assert_int_equal(fcntl(eps[i], F_GETFL), O_RDWR);
		close(eps[i]);
	}
}

#define FREE_NUMBERS 8

/* The numbers that the next opens will get, lowest first. */
static void free_numbers(int *n)
{
	for (int i = 0; i < FREE_NUMBERS; i++)
		n[i] = assert_ok(open("/dev/null", O_RDONLY | O_CLOEXEC));
	for (int i = 0; i < FREE_NUMBERS; i++)
		assert_ok(close(n[i]));
}

static void EP_NEW_05_lowest_free_number(void **state)
{
	int n[FREE_NUMBERS];

	(void)state;
	free_numbers(n);
	for (int i = 0; i < FREE_NUMBERS; i++)
		assert_int_equal(i & 1 ? epoll_create1(EPOLL_CLOEXEC) : raw_create1(0), n[i]);
	assert_ok(close(n[5]));
	assert_ok(close(n[2]));
	assert_int_equal(epoll_create1(0), n[2]);
	assert_int_equal(epoll_create(1), n[5]);
	for (int i = 0; i < FREE_NUMBERS; i++)
		assert_ok(close(n[i]));
}

/* Nothing that an epoll needs for itself may take a number from the program. */
static void EP_NEW_05_use_takes_no_other_number(void **state)
{
	struct epoll_event ev;
	struct waiter *w;
	int n[FREE_NUMBERS], p[2];

	(void)state;
	free_numbers(n);
	assert_int_equal(epoll_create1(EPOLL_CLOEXEC), n[0]);
	assert_int_equal(eventfd(0, EFD_NONBLOCK), n[1]);
	assert_ok(ep_ctl(n[0], EPOLL_CTL_ADD, n[1], EPOLLIN, 1));
	assert_ok(pipe2(p, O_NONBLOCK));
	assert_int_equal(p[0], n[2]);
	assert_int_equal(p[1], n[3]);
	assert_ok(ep_ctl(n[0], EPOLL_CTL_ADD, p[0], EPOLLIN, 2));
	assert_int_equal(epoll_wait(n[0], &ev, 1, 1), 0);
	w = waiter_new(n[0], 8);
	assert_int_equal(eventfd(0, EFD_NONBLOCK), n[4]);
	efd_add(n[1], 1);
	waiter_got(w, EPOLLIN, 1);
	assert_int_equal(epoll_create1(0), n[5]);
	assert_ok(ep_ctl(n[5], EPOLL_CTL_ADD, n[0], EPOLLIN, 3));
	assert_true(ep_one(n[5], EPOLLIN, 3));
	assert_int_equal(open("/dev/null", O_RDONLY), n[6]);
	for (int i = 0; i < 7; i++)
		assert_ok(close(n[i]));
	assert_int_equal(fd_closed(), n[0]);
}

struct limited {
	int r;
	int err;
};

/*
 * Calls fn with an RLIMIT_NOFILE that leaves no number. The limit is restored
 * before anything is asserted.
 */
static struct limited without_numbers(int (*fn)(int), int arg)
{
	struct rlimit old, low;
	struct limited l;
	int top = fd_closed();

	assert_ok(getrlimit(RLIMIT_NOFILE, &old));
	low = old;
	low.rlim_cur = (rlim_t)top;
	assert_ok(setrlimit(RLIMIT_NOFILE, &low));
	errno = 0;
	l.r = fn(arg);
	l.err = errno;
	assert_ok(setrlimit(RLIMIT_NOFILE, &old));
	return l;
}

static void assert_emfile(int (*fn)(int), int arg)
{
	struct limited l = without_numbers(fn, arg);

	assert_int_equal(l.r, -1);
	assert_int_equal(l.err, EMFILE);
}

static void EP_NEW_05_no_number_left_is_emfile(void **state)
{
	int top = fd_closed();

	(void)state;
	assert_emfile(epoll_create1, 0);
	assert_emfile(epoll_create1, EPOLL_CLOEXEC);
	assert_emfile(epoll_create, 1);
	assert_emfile(raw_create1, 0);
	/* The failures opened nothing and the limit is not remembered. */
	assert_int_equal(epoll_create1(0), top);
	assert_ok(close(top));
}

static void EP_NEW_05_full_file_table_is_enfile(void **state)
{
	(void)state;
	print_message("skipped: filling the system-wide file table would disturb the machine\n");
	skip();
}

static void assert_einval(int (*fn)(int), int arg)
{
	struct limited l = without_numbers(fn, arg);

	assert_int_equal(l.r, -1);
	assert_int_equal(l.err, EINVAL);
}

#define FEW_NUMBERS 64
#define USED_AND_CLOSED 100

/* All that are left. */
static int numbers(void)
{
	int fd[FEW_NUMBERS], n = 0;

	while (n < FEW_NUMBERS && (fd[n] = open("/dev/null", O_RDONLY)) >= 0)
		n++;
	for (int i = 0; i < n; i++)
		close(fd[i]);
	return n;
}

static void *uses_and_closes(void *arg)
{
	int ep = epoll_create1(0), efd = eventfd(0, EFD_NONBLOCK);
	struct epoll_event ev = {.events = EPOLLIN};

	if (epoll_ctl(ep, EPOLL_CTL_ADD, efd, &ev) || epoll_wait(ep, &ev, 1, 1))
		*(bool *)arg = true;
	close(ep);
	close(efd);
	return NULL;
}

/* arg: by threads that end with it. */
static int numbers_stay(void *arg)
{
	struct rlimit few = {FEW_NUMBERS, FEW_NUMBERS};
	bool failed = false;
	pthread_t t;
	int before;

	if (setrlimit(RLIMIT_NOFILE, &few))
		return 1;
	uses_and_closes(&failed);
	before = numbers();
	for (int i = 0; i < USED_AND_CLOSED && !failed; i++) {
		if (!arg)
			uses_and_closes(&failed);
		else if (pthread_create(&t, NULL, uses_and_closes, &failed) ||
			 pthread_join(t, NULL))
			return 2;
	}
	return failed ? 3 : numbers() == before && before > FEW_NUMBERS / 4 ? 0 : 4;
}

static void EP_NEW_05_closed_epolls_take_no_number(void **state)
{
	assert_int_equal(child_status(numbers_stay, NULL), 0);
	/* Run-times of sanitizers have numbers of their own for a thread. */
	if (!SANITIZED)
		assert_int_equal(child_status(numbers_stay, state), 0);
}

static void EP_NEW_06_einval_before_emfile(void **state)
{
	(void)state;
	assert_einval(epoll_create1, O_NONBLOCK);
	assert_einval(epoll_create1, EPOLL_CLOEXEC | 1);
	assert_einval(epoll_create, 0);
	assert_einval(epoll_create, -5);
	assert_einval(raw_create1, O_NONBLOCK);
}

static void EP_NEW_07_no_limit_on_their_number(void **state)
{
	enum { MANY = 800 };
	struct rlimit lim;
	int *ep = calloc(MANY, sizeof(*ep));
	int e = efd_new(1, EFD_NONBLOCK);
	int n = MANY;

	(void)state;
	assert_non_null(ep);
	assert_ok(getrlimit(RLIMIT_NOFILE, &lim));
	if (lim.rlim_cur < MANY + 100)
		n = (int)lim.rlim_cur / 2;
	for (int i = 0; i < n; i++) {
		ep[i] = ep_new();
		assert_int_equal(ep_count(ep[i]), 0);
		assert_ok(ep_ctl(ep[i], EPOLL_CTL_ADD, e, EPOLLIN, (uint64_t)i));
	}
	for (int i = 0; i < n; i++)
		assert_true(ep_one(ep[i], EPOLLIN, (uint64_t)i));
	for (int i = 0; i < n; i++)
		assert_ok(close(ep[i]));
	close(e);
	free(ep);
}

static void EP_NEW_07_new_epoll_is_empty(enum kind kind)
{
	struct subject a = subject_ready(kind), b = subject_ready(kind);
	int old = ep_new(), ep;

	assert_ok(ep_ctl(old, EPOLL_CTL_ADD, a.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(old, EPOLL_CTL_ADD, b.fd, EPOLLIN | EPOLLET, 2));
	assert_true(ep_order(old, 2, 1, 2));
	assert_ok(close(old));

	/* The next epoll has the number of the old one and nothing else of it. */
	ep = ep_new();
	assert_int_equal(ep, old);
	assert_int_equal(ep_count(ep), 0);
	assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, a.fd, 0, 0), ENOENT);
	assert_errno(ep_ctl(ep, EPOLL_CTL_MOD, b.fd, EPOLLIN, 9), ENOENT);
	subject_fill(&a);
	subject_fill(&b);
	assert_int_equal(ep_count(ep), 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.fd, EPOLLIN, 3));
	assert_true(ep_one(ep, EPOLLIN, 3));
	assert_ok(close(ep));
	subject_close(&a);
	subject_close(&b);
}
KIND_TESTS(EP_NEW_07_new_epoll_is_empty)

/* dup2 onto the number and a close by close_range end the old epoll as well. */
static void EP_NEW_07_number_replaced_by_dup2_is_empty(enum kind kind)
{
	struct subject a = subject_ready(kind);
	int old = ep_new(), fresh = ep_new();

	assert_ok(ep_ctl(old, EPOLL_CTL_ADD, a.fd, EPOLLIN, 1));
	assert_int_equal(dup2(fresh, old), old);
	assert_int_equal(ep_count(old), 0);
	assert_errno(ep_ctl(old, EPOLL_CTL_DEL, a.fd, 0, 0), ENOENT);
	assert_ok(ep_ctl(fresh, EPOLL_CTL_ADD, a.fd, EPOLLIN, 2));
	assert_true(ep_one(old, EPOLLIN, 2));
	assert_ok(close(fresh));
	assert_true(ep_one(old, EPOLLIN, 2));
#ifdef SYS_close_range
	if (syscall(SYS_close_range, (unsigned int)old, (unsigned int)old, 0) == 0) {
		assert_int_equal(ep_new(), old < fresh ? old : fresh);
		close(old < fresh ? old : fresh);
		assert_errno(fcntl(old, F_GETFD), EBADF);
		assert_errno(ep_count(old), EBADF);
	} else {
		assert_int_equal(errno, ENOSYS);
		assert_ok(close(old));
	}
#else
	assert_ok(close(old));
#endif
	subject_close(&a);
}
KIND_TESTS(EP_NEW_07_number_replaced_by_dup2_is_empty)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(EP_NEW_01_size_must_be_positive),
		cmocka_unit_test(EP_NEW_01_positive_size_is_ignored),
		cmocka_unit_test(EP_NEW_02_cloexec_is_the_only_flag),
		cmocka_unit_test(EP_NEW_02_failed_create_opens_nothing),
		cmocka_unit_test(EP_NEW_03_cloexec_is_set_only_on_request),
		cmocka_unit_test(EP_NEW_03_cloexec_is_not_carried_over_to_the_next),
		cmocka_unit_test(EP_NEW_04_status_flags_are_rdwr),
		cmocka_unit_test(EP_NEW_05_lowest_free_number),
		cmocka_unit_test(EP_NEW_05_use_takes_no_other_number),
		cmocka_unit_test(EP_NEW_05_no_number_left_is_emfile),
		cmocka_unit_test(EP_NEW_05_full_file_table_is_enfile),
		cmocka_unit_test(EP_NEW_05_closed_epolls_take_no_number),
		cmocka_unit_test(EP_NEW_06_einval_before_emfile),
		cmocka_unit_test(EP_NEW_07_no_limit_on_their_number),
		kind_unit_tests(EP_NEW_07_new_epoll_is_empty),
		kind_unit_tests(EP_NEW_07_number_replaced_by_dup2_is_empty),
	};

	return run_group(tests);
}
