/* SPDX-License-Identifier: MIT */
/*
 * State that must survive when a library hands its objects to the kernel: what is ready, orphaned
 * items, collected edges, numbers. Each of these was found by the differential tester; most are
 * about moments that no program aims for.
 *
 * Some of it Pollux promises only to a process with a single thread: what it has to do in
 * between could be seen by others. The program runs itself again for these, without the
 * harness and its thread.
 */
#include "waiting.h"

#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Numbers that a library may use for itself. */
#define HIGH 4000
#define HIGHS 12

/* Everything goes to the kernel. */
static void leave(void)
{
	pid_t pid = (pid_t)assert_ok(fork_bounded());

	if (pid == 0)
		_exit(0);
	assert_int_equal(child_end(pid), 0);
}

static rlim_t limit_to(rlim_t n)
{
	struct rlimit lim;
	rlim_t was;

	assert_ok(getrlimit(RLIMIT_NOFILE, &lim));
	was = lim.rlim_cur;
	lim.rlim_cur = n;
	assert_ok(setrlimit(RLIMIT_NOFILE, &lim));
	return was;
}

static rlim_t limit_here;

static int restore_limit(void **state)
{
	(void)state;
	limit_to(limit_here);
	return 0;
}

/* The next events are exactly these, in this order if that is kept. Their data differ. */
static void expect_data(int ep, int n, const uint64_t *data, bool ordered)
{
	struct epoll_event ev[16];

	assert_int_equal(ep_poll(ep, ev, 16), n);
	for (int i = 0; i < n; i++) {
		int at = i;

		for (at = ordered ? i : 0; at < n - 1 && !ordered; at++)
			if (ev[at].data.u64 == data[i])
				break;
		assert_int_equal(ev[at].data.u64, data[i]);
	}
}
#define EXPECT(ep, ...)                                                                            \
	expect_data(ep, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),                      \
		    (uint64_t[]){__VA_ARGS__}, true)

/* The next after an escape, which on Pollux may change the order (docs/compatibility.md). */
#define EXPECT_ESCAPED(ep, ...)                                                                    \
	expect_data(ep, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),                      \
		    (uint64_t[]){__VA_ARGS__}, !under_pollux())

/* Runs the program again for the one test. */
static void alone(const char *name)
{
	pid_t pid = (pid_t)assert_ok(fork());

	if (pid == 0) {
		alarm(SOON_MS / 1000);
		/* The output is that of the harness; what fails is said on the other stream. */
		dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
		execl("/proc/self/exe", "escape_state", name, NULL);
		_exit(127);
	}
	child_passes(pid);
}

/* --- order ------------------------------------------------------------------------------- */

static void EP_ORD_01_EP_RDY_19_two_items_of_a_file_keep_both_orders(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK), copy = (int)assert_ok(dup(fd)), ep = ep_new();

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, copy, EPOLLIN | EPOLLET, 2));
	efd_add(fd, 1);
	leave();
	EXPECT_ESCAPED(ep, 2, 1);
	efd_add(fd, 1);
	EXPECT(ep, 2, 1);
	close(fd);
	close(copy);
	close(ep);
}

static void EP_ORD_02_an_unready_item_is_reported_when_it_is_ready_again(void **state)
{
	int a = efd_new(1, EFD_NONBLOCK), b = efd_new(1, EFD_NONBLOCK), ep = ep_new();

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b, EPOLLIN, 2));
	assert_int_equal(efd_take(a), 1);
	leave();
	EXPECT(ep, 2);
	efd_add(a, 1);
	EXPECT_ESCAPED(ep, 2, 1);
	close(a);
	close(b);
	close(ep);
}

static void EP_ORD_01_one_file_in_two_epolls_leaves_both_at_once(void **state)
{
	int a = efd_new(1, EFD_NONBLOCK), b = efd_new(1, EFD_NONBLOCK), in = ep_new(),
	    out = ep_new();

	(void)state;
	assert_ok(ep_ctl(out, EPOLL_CTL_ADD, a, EPOLLIN, 1));
	assert_ok(ep_ctl(out, EPOLL_CTL_ADD, b, EPOLLIN, 2));
	assert_ok(ep_ctl(in, EPOLL_CTL_ADD, b, EPOLLIN, 3));
	assert_ok(ep_ctl(out, EPOLL_CTL_ADD, in, EPOLLIN, 4));
	EXPECT_ESCAPED(out, 1, 2, 4);
	close(a);
	close(b);
	close(in);
	close(out);
}

/* --- collected edges ------------------------------------------------------------------------ */

static void EP_RDY_14_disarmed_stays_disarmed(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK), ep = ep_new();
	char info[INFO_MAX];

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLONESHOT, 5));
	assert_true(ep_one(ep, EPOLLIN, 5));
	leave();
	assert_int_equal(ep_count(ep), 0);
	info_read(ep, info);
	assert_int_equal(info_items(info), 1);
	assert_non_null(strstr(info, "events: 40000000"));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, fd, EPOLLIN, 6));
	assert_true(ep_one(ep, EPOLLIN, 6));
	close(fd);
	close(ep);
}

/* Beside a collected edge, the edges of other files stay what they are. */
static void EP_RDY_06_an_exclusive_edge_of_another_file_stays(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK), ep = ep_new(), p[2];

	(void)state;
	assert_ok(pipe2(p, O_NONBLOCK));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 1));
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN | EPOLLET | EPOLLEXCLUSIVE, 2));
	assert_int_equal(write(p[1], "x", 1), 1);
	leave();
	assert_true(ep_one_and_repeat(ep, 2, fd, 1));
	assert_int_equal(ep_count(ep), 0);
	close(p[0]);
	close(p[1]);
	close(fd);
	close(ep);
}

static void EP_KEY_02_an_orphaned_edge_of_another_file_stays(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK), ep = ep_new(), s[2], copy;

	(void)state;
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 1));
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLET, 2));
	assert_int_equal(write(s[1], "x", 1), 1);
	copy = (int)assert_ok(dup(s[0]));
	assert_ok(dup2(s[1], s[0]));
	leave();
	assert_true(ep_one_and_repeat(ep, 2, fd, 1));
	assert_int_equal(ep_count(ep), 0);
	close(s[0]);
	close(s[1]);
	close(copy);
	close(fd);
	close(ep);
}

/* The number of the one that has an event is that of the one whose event was collected. */
static void EP_KEY_05_an_orphaned_edge_and_a_collected_one_of_its_number(void **state)
{
	int ep = ep_new(), s[2], copy, fd;

	(void)state;
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	copy = (int)assert_ok(dup(s[0]));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLET, 2));
	close(s[0]);
	fd = efd_new(1, EFD_NONBLOCK);
	assert_int_equal(fd, s[0]);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 1));
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(write(s[1], "x", 1), 1);
	leave();
	assert_true(ep_one_and_repeat(ep, 2, fd, 1));
	efd_add(fd, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	close(s[1]);
	close(copy);
	close(fd);
	close(ep);
}

static void EP_MOD_02_equal_data_of_a_collected_edge_and_another_file(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK), ep = ep_new(), p[2];

	(void)state;
	assert_ok(pipe2(p, O_NONBLOCK));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET, 7));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 7));
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(ep_count(ep), 2);
	leave();
	assert_true(ep_one_and_repeat(ep, 7, fd, 7));
	assert_true(ep_one(ep, EPOLLIN, 7));
	assert_true(ep_one(ep, EPOLLIN, 7));
	close(p[0]);
	close(p[1]);
	close(fd);
	close(ep);
}

/* --- orphaned items -------------------------------------------------------------------------- */

static void EP_KEY_02_two_orphans_of_a_file_both_stay(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK), a = (int)assert_ok(dup(fd)), b = (int)assert_ok(dup(fd));
	int ep = ep_new();

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b, EPOLLIN, 2));
	close(a);
	close(b);
	leave();
	assert_int_equal(ep_count(ep), 2);
	close(fd);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
}

static void EP_KEY_04_an_orphan_is_reachable_again(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK), a = (int)assert_ok(dup(fd)), ep = ep_new();

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a, EPOLLIN, 1));
	close(a);
	leave();
	assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, fd, 0, 0), ENOENT);
	/* The lowest number is the orphan's own or that of something new: no other is taken. */
	assert_int_equal(dup(fd), a);
	assert_errno(ep_ctl(ep, EPOLL_CTL_ADD, a, EPOLLIN, 2), EEXIST);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, a, 0, 0));
	assert_int_equal(ep_count(ep), 0);
	close(a);
	close(fd);
	close(ep);
}

static void EP_KEY_03_a_number_below_an_orphans_is_free_for_an_item(void **state)
{
	int low = efd_new(0, EFD_NONBLOCK), fd = efd_new(1, EFD_NONBLOCK);
	int copy = (int)assert_ok(dup(fd)), ep = ep_new(), number = low;

	(void)state;
	close(low);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	close(fd);
	leave();
	assert_int_equal(dup(copy), number);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, number, EPOLLIN, 2));
	assert_int_equal(ep_count(ep), 2);
	close(number);
	close(copy);
	close(ep);
}

static void EP_KEY_05_an_orphan_and_an_item_of_its_number_both_stay_alone(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK), copy = (int)assert_ok(dup(fd)), ep = ep_new(), other;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	close(fd);
	other = efd_new(1, EFD_NONBLOCK);
	assert_int_equal(other, fd);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, other, EPOLLIN, 2));
	leave();
	EXPECT_ESCAPED(ep, 1, 2);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, other, 0, 0));
	EXPECT(ep, 1);
	close(other);
	assert_int_equal(dup(copy), other);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, other, 0, 0));
	assert_int_equal(ep_count(ep), 0);
	close(other);
	close(copy);
	close(ep);
}

static void EP_KEY_05_an_orphan_and_an_item_of_its_number_both_stay(void **state)
{
	(void)state;
	alone("EP_KEY_05_an_orphan_and_an_item_of_its_number_both_stay");
}

static void EP_KEY_04_an_orphan_whose_number_is_high(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK), ep[HIGHS], high[HIGHS];

	(void)state;
	for (int i = 0; i < HIGHS; i++) {
		ep[i] = ep_new();
		high[i] = (int)assert_ok(dup2(fd, HIGH + i));
		assert_ok(ep_ctl(ep[i], EPOLL_CTL_ADD, high[i], EPOLLIN, i));
		close(high[i]);
	}
	leave();
	for (int i = 0; i < HIGHS; i++) {
		assert_true(ep_one(ep[i], EPOLLIN, i));
		assert_int_equal(dup2(fd, high[i]), high[i]);
		assert_ok(ep_ctl(ep[i], EPOLL_CTL_DEL, high[i], 0, 0));
		close(high[i]);
		close(ep[i]);
	}
	close(fd);
}

/* --- limits ------------------------------------------------------------------------------------
 */

static void EP_NEW_05_a_lowered_limit_leaves_counts_and_numbers(void **state)
{
	int ep = ep_new(), fd = efd_new(3, EFD_NONBLOCK), next;

	(void)state;
	next = (int)assert_ok(dup(fd));
	close(next);
	limit_to(fd);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	assert_errno(eventfd(0, EFD_NONBLOCK), EMFILE);
	leave();
	limit_to(limit_here);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(efd_take(fd), 3);
	assert_int_equal(efd_new(0, EFD_NONBLOCK), next);
	close(next);
	close(fd);
	close(ep);
}

static void EP_ORD_01_no_descriptor_left_is_no_reason_for_another_order(void **state)
{
	int a = efd_new(1, EFD_NONBLOCK), b = efd_new(1, EFD_NONBLOCK), ep = ep_new(), top;

	(void)state;
	top = (int)assert_ok(dup(a));
	limit_to(top + 1);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b, EPOLLIN, 2));
	limit_to(limit_here);
	EXPECT(ep, 1, 2);
	close(top);
	close(a);
	close(b);
	close(ep);
}

static void EP_NEW_05_dup2_onto_a_number_above_the_limit(void **state)
{
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	limit_to(ep + 20);
	for (int i = HIGH; i < HIGH + HIGHS; i++)
		assert_errno(dup2(fd, i), EBADF);
	limit_to(limit_here);
	for (int i = HIGH; i < HIGH + HIGHS; i++) {
		assert_errno(dup(i), EBADF);
		assert_errno(dup3(i, i, 0), EINVAL);
		assert_errno(dup2(i, i), EBADF);
		assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, i, 0, 0), EBADF);
	}
	efd_add(fd, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	close(fd);
	close(ep);
}

static void EFD_12_poll_of_as_many_as_the_limit_allows(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK);
	struct pollfd set[8];
	fd_set r;

	(void)state;
	for (int i = 0; i < 8; i++)
		set[i] = (struct pollfd){.fd = fd, .events = POLLIN};
	limit_to(8);
	assert_int_equal(poll(set, 8, 0), 8);
	limit_to(7);
	assert_errno(poll(set, 8, 0), EINVAL);
	limit_to(1);
	FD_ZERO(&r);
	FD_SET(fd, &r);
	FD_SET(0, &r);
	assert_uint_in_range(select(fd + 1, &r, NULL, NULL, &(struct timeval){0}), 1, 2);
	assert_true(FD_ISSET(fd, &r));
	limit_to(limit_here);
	close(fd);
}

/* --- numbers far up ------------------------------------------------------------------------------
 */

static void EP_FD_09_numbers_taken_from_a_library_leave_no_item_behind(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK), ep = ep_new();
	char info[INFO_MAX];

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	for (int i = HIGH; i < HIGH + HIGHS; i++)
		assert_int_equal(dup2(fd, i), i);
	assert_true(ep_one(ep, EPOLLIN, 1));
	info_read(ep, info);
	assert_int_equal(info_items(info), 1);
	for (int i = HIGH; i < HIGH + HIGHS; i++)
		close(i);
	close(fd);
	close(ep);
}

static void EP_FD_10_a_number_given_up_is_none_for_poll(void **state)
{
	int ep[HIGHS], fd = efd_new(0, EFD_NONBLOCK);
	struct pollfd p = {.events = POLLIN};

	(void)state;
	for (int i = 0; i < HIGHS; i++) {
		assert_int_equal(dup2(fd, HIGH + i), HIGH + i);
		close(HIGH + i);
		ep[i] = ep_new();
		assert_ok(ep_ctl(ep[i], EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	}
	for (int i = 0; i < HIGHS; i++) {
		p.fd = HIGH + i;
		p.revents = 0;
		assert_int_equal(poll(&p, 1, 0), 1);
		assert_int_equal(p.revents, POLLNVAL);
		close(ep[i]);
	}
	close(fd);
}

/* --- arguments
 * ------------------------------------------------------------------------------------- */

static void EP_CTL_01_a_bad_pointer_changes_nothing(void **state)
{
	int a = efd_new(1, EFD_NONBLOCK), b = efd_new(1, EFD_NONBLOCK), in = ep_new(),
	    out = ep_new();
	int null = (int)assert_ok(open("/dev/null", O_RDWR));

	(void)state;
	assert_ok(ep_ctl(out, EPOLL_CTL_ADD, a, EPOLLIN, 1));
	assert_ok(ep_ctl(out, EPOLL_CTL_ADD, b, EPOLLIN, 2));
	assert_ok(ep_ctl(in, EPOLL_CTL_ADD, b, EPOLLIN, 3));
	assert_errno(epoll_ctl(out, EPOLL_CTL_ADD, in, NULL), EFAULT);
	assert_errno(epoll_ctl(null, EPOLL_CTL_ADD, b, NULL), EFAULT);
	EXPECT(out, 1, 2);
	close(null);
	close(a);
	close(b);
	close(in);
	close(out);
}

static void EP_FD_01_EFD_07_pieces_of_no_length(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK), ep = ep_new();
	struct iovec none = {.iov_base = NULL, .iov_len = 0};
	struct iovec bad = {.iov_base = (void *)0xffff800000000000, .iov_len = 0};

	(void)state;
	assert_errno(writev(ep, &none, 1), EINVAL);
	assert_errno(readv(ep, &none, 1), EINVAL);
	assert_int_equal(writev(fd, &none, 1), 0);
	assert_errno(writev(fd, &bad, 1), EFAULT);
	assert_errno(readv(fd, &bad, 1), EFAULT);
	assert_int_equal(efd_take(fd), 1);
	close(fd);
	close(ep);
}

static const struct CMUnitTest alone_tests[] = {
	{.name = "EP_KEY_05_an_orphan_and_an_item_of_its_number_both_stay",
	 .test_func = EP_KEY_05_an_orphan_and_an_item_of_its_number_both_stay_alone},
};

int main(int argc, char **argv)
{
	struct rlimit lim;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(EP_ORD_01_EP_RDY_19_two_items_of_a_file_keep_both_orders),
		cmocka_unit_test(EP_ORD_02_an_unready_item_is_reported_when_it_is_ready_again),
		cmocka_unit_test(EP_ORD_01_one_file_in_two_epolls_leaves_both_at_once),
		cmocka_unit_test(EP_RDY_14_disarmed_stays_disarmed),
		cmocka_unit_test(EP_RDY_06_an_exclusive_edge_of_another_file_stays),
		cmocka_unit_test(EP_KEY_02_an_orphaned_edge_of_another_file_stays),
		cmocka_unit_test(EP_KEY_05_an_orphaned_edge_and_a_collected_one_of_its_number),
		cmocka_unit_test(EP_MOD_02_equal_data_of_a_collected_edge_and_another_file),
		cmocka_unit_test(EP_KEY_02_two_orphans_of_a_file_both_stay),
		cmocka_unit_test(EP_KEY_04_an_orphan_is_reachable_again),
		cmocka_unit_test(EP_KEY_03_a_number_below_an_orphans_is_free_for_an_item),
		cmocka_unit_test(EP_KEY_05_an_orphan_and_an_item_of_its_number_both_stay),
		cmocka_unit_test(EP_KEY_04_an_orphan_whose_number_is_high),
		cmocka_unit_test_teardown(EP_NEW_05_a_lowered_limit_leaves_counts_and_numbers,
					  restore_limit),
		cmocka_unit_test_teardown(
			EP_ORD_01_no_descriptor_left_is_no_reason_for_another_order, restore_limit),
		cmocka_unit_test_teardown(EP_NEW_05_dup2_onto_a_number_above_the_limit,
					  restore_limit),
		cmocka_unit_test_teardown(EFD_12_poll_of_as_many_as_the_limit_allows,
					  restore_limit),
		cmocka_unit_test(EP_FD_09_numbers_taken_from_a_library_leave_no_item_behind),
		cmocka_unit_test(EP_FD_10_a_number_given_up_is_none_for_poll),
		cmocka_unit_test(EP_CTL_01_a_bad_pointer_changes_nothing),
		cmocka_unit_test(EP_FD_01_EFD_07_pieces_of_no_length),
	};

	getrlimit(RLIMIT_NOFILE, &lim);
	if (lim.rlim_cur <= HIGH + HIGHS) {
		lim.rlim_cur = lim.rlim_max < 2 * HIGH ? lim.rlim_max : 2 * HIGH;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
	limit_here = lim.rlim_cur;
	for (size_t i = 0; argc > 1 && i < sizeof(alone_tests) / sizeof(alone_tests[0]); i++)
		if (!strcmp(argv[1], alone_tests[i].name))
			return _cmocka_run_group_tests("alone", &alone_tests[i], 1, NULL, NULL);
	return run_group(tests);
}
