/* SPDX-License-Identifier: MIT */
/* EP-FD: the epoll descriptor as a file. */
#include "waiting.h"

#include <limits.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

extern char **environ;

/* An epoll with one ready eventfd, so that there would be something to give. */
static int epoll_with_event(int *e)
{
	int ep = ep_new();

	*e = efd_new(1, EFD_NONBLOCK);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, *e, EPOLLIN, 1));
	return ep;
}

static void EP_FD_01_read_and_write_are_einval(void **state)
{
	char buf[64] = {0};
	struct iovec v = {.iov_base = buf, .iov_len = sizeof(buf)};
	int e, ep = epoll_with_event(&e);

	(void)state;
	assert_errno(read(ep, buf, sizeof(buf)), EINVAL);
	assert_errno(read(ep, buf, 8), EINVAL);
	assert_errno(read(ep, buf, 0), EINVAL);
	assert_errno(readv(ep, &v, 1), EINVAL);
	assert_errno(write(ep, buf, sizeof(buf)), EINVAL);
	assert_errno(write(ep, buf, 8), EINVAL);
	assert_errno(write(ep, buf, 0), EINVAL);
	assert_errno(writev(ep, &v, 1), EINVAL);
	assert_errno(syscall(SYS_read, ep, buf, 8), EINVAL);
	assert_errno(syscall(SYS_write, ep, buf, 8), EINVAL);
	assert_true(ep_one(ep, EPOLLIN, 1));
	close(ep);
	close(e);
}

static void EP_FD_01_pread_is_espipe(void **state)
{
	char buf[8] = {0};
	struct iovec v = {.iov_base = buf, .iov_len = sizeof(buf)};
	int e, ep = epoll_with_event(&e);

	(void)state;
	assert_errno(pread(ep, buf, sizeof(buf), 0), ESPIPE);
	assert_errno(pread(ep, buf, sizeof(buf), 4096), ESPIPE);
	assert_errno(preadv(ep, &v, 1, 0), ESPIPE);
	close(ep);
	close(e);
}

static void EP_FD_01_lseek_returns_0(void **state)
{
	static const int whence[] = {SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE};
	static const off_t off[] = {0, 1, -1, 4096, LONG_MAX, LONG_MIN};
	int e, ep = epoll_with_event(&e);

	(void)state;
	for (size_t i = 0; i < sizeof(whence) / sizeof(whence[0]); i++)
		for (size_t j = 0; j < sizeof(off) / sizeof(off[0]); j++)
			assert_int_equal(lseek(ep, off[j], whence[i]), 0);
	close(ep);
	close(e);
}

static void EP_FD_02_fsync_and_ftruncate_are_einval(void **state)
{
	int e, ep = epoll_with_event(&e);

	(void)state;
	assert_errno(fsync(ep), EINVAL);
	assert_errno(fdatasync(ep), EINVAL);
	assert_errno(ftruncate(ep, 0), EINVAL);
	assert_errno(ftruncate(ep, 8), EINVAL);
	close(ep);
	close(e);
}

static void EP_FD_02_mmap_is_enodev(void **state)
{
	int e, ep = epoll_with_event(&e);

	(void)state;
	errno = 0;
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ, MAP_SHARED, ep, 0), MAP_FAILED);
	assert_int_equal(errno, ENODEV);
	errno = 0;
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, ep, 0), MAP_FAILED);
	assert_int_equal(errno, ENODEV);
	close(ep);
	close(e);
}

static void EP_FD_03_nonblock_can_be_set_and_cleared(void **state)
{
	int ep = ep_new();
	int on = 1, off = 0;

	(void)state;
	assert_ok(fcntl(ep, F_SETFL, O_NONBLOCK));
	assert_int_equal(fcntl(ep, F_GETFL), O_RDWR | O_NONBLOCK);
	assert_ok(fcntl(ep, F_SETFL, 0));
	assert_int_equal(fcntl(ep, F_GETFL), O_RDWR);
	assert_ok(ioctl(ep, FIONBIO, &on));
	assert_int_equal(fcntl(ep, F_GETFL), O_RDWR | O_NONBLOCK);
	assert_ok(ioctl(ep, FIONBIO, &off));
	assert_int_equal(fcntl(ep, F_GETFL), O_RDWR);
	close(ep);
}

static void EP_FD_03_nonblock_does_not_touch_epoll_wait(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new();
	int on = 1;

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	for (int way = 0; way < 2; way++) {
		struct epoll_event ev;
		struct waiter *w;
		int64_t begin;

		if (way == 0)
			assert_ok(fcntl(ep, F_SETFL, O_NONBLOCK));
		else
			assert_ok(ioctl(ep, FIONBIO, &on));
		begin = now_ms();
		assert_int_equal(epoll_wait(ep, &ev, 1, 30), 0);
		assert_true(now_ms() - begin >= 30);
		w = waiter_new(ep, 8);
		assert_true(waiter_sleeps(w));
		subject_fill(&s);
		waiter_got(w, EPOLLIN, 1);
		subject_drain(&s);
		assert_ok(fcntl(ep, F_SETFL, 0));
	}
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_FD_03_nonblock_does_not_touch_epoll_wait)

/* Kernels before 6.9 have no ioctl of their own for epoll: ENOTTY. */
static void EP_FD_04_unknown_ioctl_is_einval(void **state)
{
	static const unsigned long reqs[] = {FIONREAD, TCGETS, _IO('q', 1), _IOW(0x8A, 3, int), 0};
	int e, ep = epoll_with_event(&e);
	int want = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(reqs) / sizeof(reqs[0]); i++) {
		char arg[256] = {0};

		errno = 0;
		assert_int_equal(ioctl(ep, reqs[i], arg), -1);
		if (want == 0)
			want = errno;
		assert_int_equal(errno, want);
		assert_true(want == EINVAL || want == ENOTTY);
		assert_errno(syscall(SYS_ioctl, ep, reqs[i], arg), want);
	}
	assert_true(ep_one(ep, EPOLLIN, 1));
	close(ep);
	close(e);
}

static void EP_FD_04_ioctls_of_the_vfs_work(void **state)
{
	int ep = assert_ok(epoll_create1(0));

	(void)state;
	assert_ok(ioctl(ep, FIOCLEX));
	assert_int_equal(fcntl(ep, F_GETFD), FD_CLOEXEC);
	assert_ok(ioctl(ep, FIONCLEX));
	assert_int_equal(fcntl(ep, F_GETFD), 0);
	close(ep);
}

struct params {
	uint32_t busy_poll_usecs;
	uint16_t busy_poll_budget;
	uint8_t prefer_busy_poll;
	uint8_t pad;
};
#define SPARAMS _IOW(0x8A, 1, struct params)
#define GPARAMS _IOR(0x8A, 2, struct params)

/* Skips the test where the kernel has no such parameters. */
static void need_params(int ep)
{
	struct params p;

	if (ioctl(ep, GPARAMS, &p) == -1) {
		assert_true(errno == EOPNOTSUPP || errno == ENOTTY || errno == EINVAL);
		print_message("skipped: this kernel has no EPIOCGPARAMS (errno %d)\n", errno);
		close(ep);
		skip();
	}
}

static void assert_params(int ep, uint32_t usecs, uint16_t budget, uint8_t prefer)
{
	struct params p;

	memset(&p, 0xee, sizeof(p));
	assert_ok(ioctl(ep, GPARAMS, &p));
	assert_int_equal(p.busy_poll_usecs, usecs);
	assert_int_equal(p.busy_poll_budget, budget);
	assert_int_equal(p.prefer_busy_poll, prefer);
	assert_int_equal(p.pad, 0);
}

static void EP_FD_05_params_are_stored(void **state)
{
	struct params p = {.busy_poll_usecs = 70, .busy_poll_budget = 16, .prefer_busy_poll = 1};
	int ep = ep_new(), other, d;

	(void)state;
	need_params(ep);
	assert_params(ep, 0, 0, 0);
	assert_ok(ioctl(ep, SPARAMS, &p));
	assert_params(ep, 70, 16, 1);
	d = assert_ok(dup(ep));
	assert_params(d, 70, 16, 1);
	other = ep_new();
	assert_params(other, 0, 0, 0);
	p = (struct params){.busy_poll_usecs = INT_MAX, .busy_poll_budget = 64};
	assert_ok(ioctl(d, SPARAMS, &p));
	assert_params(ep, INT_MAX, 64, 0);
	assert_params(other, 0, 0, 0);
	/* An epoll that takes the number of one that is gone starts with zeros. */
	assert_ok(close(d));
	assert_ok(close(ep));
	assert_int_equal(ep_new(), ep);
	assert_params(ep, 0, 0, 0);
	close(ep);
	close(other);
}

#define EP_CAP_NET_ADMIN ((uint64_t)1 << CAP_NET_ADMIN)

static void EP_FD_06_params_errors(void **state)
{
	const struct params good = {.busy_poll_usecs = 5, .busy_poll_budget = 6};
	struct params p;
	int ep = ep_new();
	void *bad = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(bad, MAP_FAILED);
	need_params(ep);
	assert_ok(ioctl(ep, SPARAMS, &good));

	assert_errno(ioctl(ep, SPARAMS, NULL), EFAULT);
	assert_errno(ioctl(ep, SPARAMS, bad), EFAULT);
	assert_errno(ioctl(ep, GPARAMS, NULL), EFAULT);
	assert_errno(ioctl(ep, GPARAMS, bad), EFAULT);
	p = (struct params){.busy_poll_usecs = 1, .pad = 1};
	assert_errno(ioctl(ep, SPARAMS, &p), EINVAL);
	p = (struct params){.busy_poll_usecs = (uint32_t)INT_MAX + 1};
	assert_errno(ioctl(ep, SPARAMS, &p), EINVAL);
	p = (struct params){.busy_poll_usecs = UINT32_MAX};
	assert_errno(ioctl(ep, SPARAMS, &p), EINVAL);
	p = (struct params){.busy_poll_usecs = 1, .prefer_busy_poll = 2};
	assert_errno(ioctl(ep, SPARAMS, &p), EINVAL);
	assert_params(ep, 5, 6, 0);
	munmap(bad, 4096);
	close(ep);
}

static void EP_FD_06_large_budget_needs_net_admin(void **state)
{
	const struct params good = {.busy_poll_usecs = 5, .busy_poll_budget = 6};
	const struct params max = {.busy_poll_budget = 64};
	const struct params large = {.busy_poll_budget = 65};
	struct params worse[] = {
		{.busy_poll_budget = 65, .pad = 1},
		{.busy_poll_budget = 65, .busy_poll_usecs = UINT32_MAX},
		{.busy_poll_budget = 65, .prefer_busy_poll = 2},
	};
	uint64_t caps = cap_get();
	int ep = ep_new();

	(void)state;
	need_params(ep);
	assert_ok(ioctl(ep, SPARAMS, &good));
	cap_set(caps & ~EP_CAP_NET_ADMIN);
	assert_errno(ioctl(ep, SPARAMS, &large), EPERM);
	assert_params(ep, 5, 6, 0);
	for (size_t i = 0; i < sizeof(worse) / sizeof(worse[0]); i++)
		assert_errno(ioctl(ep, SPARAMS, &worse[i]), EINVAL);
	assert_params(ep, 5, 6, 0);
	assert_ok(ioctl(ep, SPARAMS, &max));
	assert_params(ep, 0, 64, 0);
	cap_set(caps);
	if (caps & EP_CAP_NET_ADMIN) {
		assert_ok(ioctl(ep, SPARAMS, &large));
		assert_params(ep, 0, 65, 0);
	}
	close(ep);
}

static void EP_FD_07_params_do_not_change_delivery(enum kind kind)
{
	const struct params p = {
		.busy_poll_usecs = 50, .busy_poll_budget = 8, .prefer_busy_poll = 1};
	struct subject a = subject_new(kind), b = subject_new(kind);
	int ep = ep_new();
	struct epoll_event ev;
	struct waiter *w;
	int64_t begin;

	need_params(ep);
	assert_ok(ioctl(ep, SPARAMS, &p));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.fd, EPOLLIN | EPOLLET, 2));
	begin = now_ms();
	assert_int_equal(epoll_wait(ep, &ev, 1, 10), 0);
	assert_true(now_ms() - begin >= 10);
	subject_fill(&b);
	subject_fill(&a);
	assert_true(ep_order(ep, 2, 2, 1));
	assert_true(ep_one(ep, EPOLLIN, 1));
	subject_drain(&a);
	assert_int_equal(ep_count(ep), 0);
	w = waiter_new(ep, 8);
	subject_fill(&b);
	waiter_got(w, EPOLLIN, 2);
	close(ep);
	subject_close(&a);
	subject_close(&b);
}
KIND_TESTS(EP_FD_07_params_do_not_change_delivery)

static void assert_anon(int fd, const char *type)
{
	char path[64], link[64], want[64];
	struct stat st;
	ssize_t n;

	memset(&st, 0xee, sizeof(st));
	assert_ok(fstat(fd, &st));
	assert_int_equal(st.st_mode, 0600);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(st.st_nlink, 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	snprintf(want, sizeof(want), "anon_inode:[%s]", type);
	n = assert_ok(readlink(path, link, sizeof(link) - 1));
	link[n] = '\0';
	assert_string_equal(link, want);
}

static void EP_FD_08_stat_and_link(void **state)
{
	int e, ep = epoll_with_event(&e);
	int t = assert_ok(timerfd_create(CLOCK_MONOTONIC, 0));
	int d = assert_ok(dup(ep)), f = assert_ok(dup(e));

	(void)state;
	assert_anon(ep, "eventpoll");
	assert_anon(d, "eventpoll");
	assert_anon(e, "eventfd");
	assert_anon(f, "eventfd");
	assert_anon(t, "timerfd");
	close(ep);
	close(d);
	close(e);
	close(f);
	close(t);
}

static void EP_FD_08_number_reused_by_another_type(void **state)
{
	int ep = ep_new(), e;

	(void)state;
	assert_anon(ep, "eventpoll");
	assert_ok(close(ep));
	e = efd_new(0, EFD_NONBLOCK);
	assert_int_equal(e, ep);
	assert_anon(e, "eventfd");
	assert_ok(close(e));
	ep = ep_new();
	assert_int_equal(ep, e);
	assert_anon(ep, "eventpoll");
	close(ep);
}

/* As info_read, through stdio, which does not call open by its public name. */
static void info_read_stdio(int fd, char *buf)
{
	char path[64];
	size_t len;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	assert_non_null(f);
	len = fread(buf, 1, INFO_MAX - 1, f);
	buf[len] = '\0';
	assert_false(ferror(f));
	fclose(f);
}

static bool info_has(const char *info, const char *line)
{
	size_t len = strlen(line);

	for (const char *p = info; p != NULL && *p != '\0';) {
		if (strncmp(p, line, len) == 0 && p[len] == '\n')
			return true;
		p = strchr(p, '\n');
		p = p == NULL ? NULL : p + 1;
	}
	print_error("no line \"%s\" in:\n%s", line, info);
	return false;
}

/* The line of the item that was added with number tfd for the file behind fd. */
static bool info_item(const char *info, int fd, int tfd, uint32_t events, uint64_t data)
{
	char line[256];
	struct stat st;

	assert_ok(fstat(fd, &st));
	snprintf(line, sizeof(line), "tfd: %8d events: %8x data: %16llx  pos:%lli ino:%lx sdev:%x",
		 tfd, events, (unsigned long long)data, 0LL, (unsigned long)st.st_ino,
		 major(st.st_dev) << 20 | minor(st.st_dev));
	return info_has(info, line);
}

#define ALWAYS ((uint32_t)(EPOLLERR | EPOLLHUP))

static void EP_FD_09_fdinfo_head(void **state)
{
	int eps[] = {assert_ok(epoll_create1(0)), assert_ok(epoll_create1(EPOLL_CLOEXEC))};
	char info[INFO_MAX], line[128];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct stat st;

		assert_ok(fstat(eps[i], &st));
		info_read(eps[i], info);
		assert_true(info_has(info, "pos:\t0"));
		snprintf(line, sizeof(line), "flags:\t0%o", O_RDWR | (i ? O_CLOEXEC : 0));
		assert_true(info_has(info, line));
		assert_non_null(strstr(info, "\nmnt_id:\t"));
		snprintf(line, sizeof(line), "ino:\t%lu", (unsigned long)st.st_ino);
		assert_true(info_has(info, line));
		assert_int_equal(info_items(info), 0);
		close(eps[i]);
	}
}

/* A set that spans kinds, seen at each step of its life. */
static void fdinfo_follows(void (*get)(int, char *))
{
	char info[INFO_MAX];
	struct subject s = subject_new(KIND_PIPE), u = subject_new(KIND_SOCKET);
	int ep = ep_new(), inner = ep_new();
	int e = efd_new(0, EFD_NONBLOCK), f = efd_new(3, EFD_NONBLOCK), d = assert_ok(dup(e));

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN, 0x1234));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, d, EPOLLOUT | EPOLLET, UINT64_MAX));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, f, EPOLLIN | EPOLLONESHOT, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLRDHUP, 0xfedcba9876543210));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, u.fd, 0, 5));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, inner, EPOLLIN, 6));
	get(ep, info);
	assert_int_equal(info_items(info), 6);
	assert_true(info_item(info, e, e, EPOLLIN | ALWAYS, 0x1234));
	assert_true(info_item(info, d, d, EPOLLOUT | EPOLLET | ALWAYS, UINT64_MAX));
	assert_true(info_item(info, f, f, EPOLLIN | EPOLLONESHOT | ALWAYS, 0));
	assert_true(info_item(info, s.fd, s.fd, EPOLLIN | EPOLLRDHUP | ALWAYS, 0xfedcba9876543210));
	assert_true(info_item(info, u.fd, u.fd, ALWAYS, 5));
	assert_true(info_item(info, inner, inner, EPOLLIN | ALWAYS, 6));

	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, e, EPOLLOUT, 7));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, 8));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, u.fd, 0, 0));
	get(ep, info);
	assert_int_equal(info_items(info), 5);
	assert_true(info_item(info, e, e, EPOLLOUT | ALWAYS, 7));
	assert_true(info_item(info, s.fd, s.fd, EPOLLIN | ALWAYS, 8));

	/* The item of a closed number stays while its file lives, with that number. */
	assert_ok(close(e));
	get(ep, info);
	assert_int_equal(info_items(info), 5);
	assert_true(info_item(info, d, e, EPOLLOUT | ALWAYS, 7));
	assert_ok(close(d));
	assert_ok(close(inner));
	get(ep, info);
	assert_int_equal(info_items(info), 2);
	assert_true(info_item(info, f, f, EPOLLIN | EPOLLONESHOT | ALWAYS, 0));
	assert_true(info_item(info, s.fd, s.fd, EPOLLIN | ALWAYS, 8));

	/* Delivery disarms a ONESHOT item: only the flag is left. */
	assert_true(ep_one(ep, EPOLLIN, 0));
	get(ep, info);
	assert_true(info_item(info, f, f, EPOLLONESHOT, 0));
	close(f);
	subject_close(&s);
	subject_close(&u);
	get(ep, info);
	assert_int_equal(info_items(info), 0);
	close(ep);
}

static void EP_FD_09_fdinfo_lists_the_items(void **state)
{
	(void)state;
	fdinfo_follows(info_read);
}

static void EP_FD_09_fdinfo_lists_the_items_to_stdio(void **state)
{
	(void)state;
	fdinfo_follows(info_read_stdio);
}

static void EP_FD_09_fdinfo_by_a_dup(void **state)
{
	char info[INFO_MAX];
	int e, ep = epoll_with_event(&e);
	int d = assert_ok(dup(ep));

	(void)state;
	info_read(d, info);
	assert_int_equal(info_items(info), 1);
	assert_true(info_item(info, e, e, EPOLLIN | ALWAYS, 1));
	close(ep);
	info_read(d, info);
	assert_true(info_item(info, e, e, EPOLLIN | ALWAYS, 1));
	close(d);
	close(e);
}

static int dup_in_way(int fd, int way)
{
	int n;

	switch (way) {
	case 0:
		return assert_ok(dup(fd));
	case 1:
		n = fd_closed();
		assert_int_equal(dup2(fd, n), n);
		return n;
	case 2:
		n = fd_closed();
		assert_int_equal(dup3(fd, n, O_CLOEXEC), n);
		return n;
	case 3:
		return assert_ok(fcntl(fd, F_DUPFD, 50));
	case 4:
		return assert_ok(fcntl(fd, F_DUPFD_CLOEXEC, 60));
	default:
		return assert_ok(syscall(SYS_dup, fd));
	}
}

static void EP_FD_10_dups_share_both_lists(enum kind kind)
{
	for (int way = 0; way < 6; way++) {
		struct subject a = subject_new(kind), b = subject_new(kind);
		int ep = ep_new(), d = dup_in_way(ep, way);

		/* The interest list. */
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a.fd, EPOLLIN, 1));
		assert_errno(ep_ctl(d, EPOLL_CTL_ADD, a.fd, EPOLLIN, 2), EEXIST);
		assert_ok(ep_ctl(d, EPOLL_CTL_ADD, b.fd, EPOLLIN | EPOLLET, 3));
		assert_errno(raw_ctl(ep, EPOLL_CTL_ADD, b.fd, EPOLLIN, 2), EEXIST);
		assert_ok(ep_ctl(d, EPOLL_CTL_MOD, a.fd, EPOLLIN, 4));
		/* The ready list: an edge is taken once, an LT item moves behind. */
		subject_fill(&a);
		subject_fill(&b);
		assert_true(ep_order(d, 2, 4, 3));
		assert_true(ep_order(ep, 1, 4));
		subject_fill(&b);
		assert_true(ep_order(ep, 2, 4, 3));
		assert_true(ep_order(d, 1, 4));
		assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, a.fd, 0, 0));
		assert_errno(ep_ctl(d, EPOLL_CTL_DEL, a.fd, 0, 0), ENOENT);
		assert_int_equal(ep_count(d), 0);
		/* Either may go first. */
		close(way & 1 ? ep : d);
		subject_fill(&b);
		assert_true(ep_one(way & 1 ? d : ep, EPOLLIN, 3));
		close(way & 1 ? d : ep);
		subject_close(&a);
		subject_close(&b);
	}
}
KIND_TESTS(EP_FD_10_dups_share_both_lists)

static void EP_FD_10_event_wakes_a_waiter_on_a_dup(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new(), d = assert_ok(dup(ep));
	struct waiter *w;

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 1));
	w = waiter_new(d, 8);
	subject_fill(&s);
	waiter_got(w, EPOLLIN, 1);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
	close(d);
	subject_close(&s);
}
KIND_TESTS(EP_FD_10_event_wakes_a_waiter_on_a_dup)

struct forked {
	int ep;
	struct subject a, b, c;
};

static int forked_child(void *arg)
{
	struct forked *f = arg;
	struct epoll_event ev[4];

	/* The edge of b was taken by the parent; a stays; c is news. */
	if (f->b.kind == KIND_EVENTFD)
		child_check(ep_one_and_repeat(f->ep, 1, f->b.fd, 2));
	child_check(epoll_wait(f->ep, ev, 4, 0) == 1);
	child_check(ev[0].data.u64 == 1 && ev[0].events == EPOLLIN);
	child_check(ep_ctl(f->ep, EPOLL_CTL_ADD, f->a.fd, EPOLLIN, 9) == -1 && errno == EEXIST);
	child_check(ep_ctl(f->ep, EPOLL_CTL_DEL, f->a.fd, 0, 0) == 0);
	child_check(ep_ctl(f->ep, EPOLL_CTL_MOD, f->b.fd, EPOLLIN | EPOLLET, 4) == 0);
	child_check(ep_ctl(f->ep, EPOLL_CTL_ADD, f->c.fd, EPOLLIN, 3) == 0);
	child_check(epoll_wait(f->ep, ev, 4, 0) == 1);
	child_check(ev[0].data.u64 == 4);
	return 0;
}

static void EP_FD_10_fork_shares_both_lists(enum kind kind)
{
	struct forked f = {.ep = ep_new(),
			   .a = subject_ready(kind),
			   .b = subject_ready(kind),
			   .c = subject_new(kind)};

	assert_ok(ep_ctl(f.ep, EPOLL_CTL_ADD, f.a.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(f.ep, EPOLL_CTL_ADD, f.b.fd, EPOLLIN | EPOLLET, 2));
	assert_true(ep_order(f.ep, 2, 1, 2));
	assert_int_equal(child_status(forked_child, &f), 0);
	assert_int_equal(ep_count(f.ep), 0);
	assert_errno(ep_ctl(f.ep, EPOLL_CTL_DEL, f.a.fd, 0, 0), ENOENT);
	subject_fill(&f.b);
	subject_fill(&f.c);
	assert_true(ep_order(f.ep, 2, 4, 3));
	close(f.ep);
	subject_close(&f.a);
	subject_close(&f.b);
	subject_close(&f.c);
}
KIND_TESTS(EP_FD_10_fork_shares_both_lists)

static void EP_FD_11_lives_until_the_last_descriptor(enum kind kind)
{
	struct subject s = subject_new(kind), t = subject_new(kind);
	int ep = ep_new(), d = assert_ok(dup(ep)), reused;

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	assert_ok(close(ep));
	assert_errno(ep_count(ep), EBADF);
	subject_fill(&s);
	assert_true(ep_one(d, EPOLLIN, 1));
	/* The number goes to another epoll; the two have nothing in common. */
	reused = ep_new();
	assert_int_equal(reused, ep);
	assert_int_equal(ep_count(reused), 0);
	assert_ok(ep_ctl(reused, EPOLL_CTL_ADD, s.fd, EPOLLIN, 2));
	assert_ok(ep_ctl(d, EPOLL_CTL_ADD, t.fd, EPOLLIN, 3));
	subject_fill(&t);
	assert_true(ep_order(d, 2, 1, 3));
	assert_true(ep_one(reused, EPOLLIN, 2));
	assert_ok(close(d));
	assert_true(ep_one(reused, EPOLLIN, 2));
	assert_ok(close(reused));
	subject_close(&s);
	subject_close(&t);
}
KIND_TESTS(EP_FD_11_lives_until_the_last_descriptor)

static void EP_FD_11_dup2_over_a_number_leaves_the_others(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int ep = ep_new(), d = assert_ok(dup(ep)), other = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	assert_int_equal(dup2(other, ep), ep);
	assert_int_equal(ep_count(ep), 0);
	assert_true(ep_one(d, EPOLLIN, 1));
	/* dup2 of a number onto itself closes nothing. */
	assert_int_equal(dup2(d, d), d);
	assert_true(ep_one(d, EPOLLIN, 1));
	assert_int_equal(dup2(other, d), d);
	assert_int_equal(ep_count(d), 0);
	assert_ok(ep_ctl(d, EPOLL_CTL_ADD, s.fd, EPOLLIN, 2));
	assert_true(ep_one(ep, EPOLLIN, 2));
	close(ep);
	close(d);
	close(other);
	subject_close(&s);
}
KIND_TESTS(EP_FD_11_dup2_over_a_number_leaves_the_others)

static void EP_FD_11_lives_until_a_call_is_over(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new(), reused;
	struct waiter *w;

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	w = waiter_new(ep, 8);
	assert_ok(close_in_use(ep));
	assert_true(waiter_sleeps(w));
	reused = assert_ok(syscall(SYS_epoll_create1, EPOLL_CLOEXEC));
	assert_int_equal(reused, ep);
	assert_true(waiter_sleeps(w));
	subject_fill(&s);
	waiter_got(w, EPOLLIN, 1);
	assert_int_equal(ep_count(reused), 0);
	close_in_use(reused);
	subject_close(&s);
}
KIND_TESTS(EP_FD_11_lives_until_a_call_is_over)

static void send_fd(int sock, int fd)
{
	char byte = 'x', ctl[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec v = {.iov_base = &byte, .iov_len = 1};
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	assert_int_equal(assert_ok(sendmsg(sock, &m, 0)), 1);
}

static int recv_fd(int sock)
{
	char byte, ctl[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec v = {.iov_base = &byte, .iov_len = 1};
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof(ctl)};
	struct cmsghdr *c;
	int fd;

	assert_int_equal(assert_ok(recvmsg(sock, &m, 0)), 1);
	c = CMSG_FIRSTHDR(&m);
	assert_non_null(c);
	assert_int_equal(c->cmsg_type, SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

/* A descriptor in flight in a message is a descriptor. */
static void EP_FD_11_lives_in_flight(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new(), sv[2], back;

	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	send_fd(sv[0], ep);
	assert_ok(close(ep));
	subject_fill(&s);
	back = recv_fd(sv[1]);
	assert_true(ep_one(back, EPOLLIN, 1));
	assert_errno(ep_ctl(back, EPOLL_CTL_ADD, s.fd, EPOLLIN, 2), EEXIST);
	subject_drain(&s);
	assert_int_equal(ep_count(back), 0);
	subject_fill(&s);
	assert_true(ep_one(back, EPOLLIN, 1));
	close(back);
	close(sv[0]);
	close(sv[1]);
	subject_close(&s);
}
KIND_TESTS(EP_FD_11_lives_in_flight)

/*
 * The program that the exec tests start is this one with the words "probe",
 * the epoll's number and the data it must report. 77: the epoll is not open.
 */
#define PROBE_CLOSED 77

static int probe(int argc, char **argv)
{
	int ep = atoi(argv[2]);
	struct epoll_event ev[8];
	uint64_t want = 0, have = 0;
	int n;

	if (fcntl(ep, F_GETFD) == -1)
		return PROBE_CLOSED;
	n = epoll_wait(ep, ev, 8, 0);
	child_check(n == argc - 3);
	for (int i = 0; i < n; i++) {
		want |= (uint64_t)1 << atoi(argv[3 + i]);
		have |= (uint64_t)1 << ev[i].data.u64;
		child_check(ev[i].events == EPOLLIN);
	}
	child_check(want == have);
	return 0;
}

/*
 * 1 keeps its number over the exec, 2 loses the registered number but has a
 * dup that stays, 3 has no other descriptor and goes, 4 is like 2 but its
 * other descriptor is in the process that waits for the child.
 */
struct exec_set {
	int ep;
	struct subject s[3];
	int dup2;
};

static int exec_set_make(struct exec_set *x, enum kind kind)
{
	for (int i = 0; i < 3; i++) {
		int fd;

		x->s[i] = subject_ready(kind);
		fd = x->s[i].fd;
		child_check(fcntl(x->s[i].peer, F_SETFD, 0) == 0);
		child_check(fcntl(fd, F_SETFD, i == 0 ? 0 : FD_CLOEXEC) == 0);
		child_check(ep_ctl(x->ep, EPOLL_CTL_ADD, fd, EPOLLIN, (uint64_t)i + 1) == 0);
	}
	x->dup2 = dup(x->s[1].fd);
	child_check(x->dup2 != -1);
	return 0;
}

struct exec_arg {
	int flags;
	enum kind kind;
	int shared;
};

static int exec_child(void *arg)
{
	struct exec_arg *a = arg;
	struct exec_set x = {.ep = epoll_create1(a->flags)};
	char num[16];
	char *argv[] = {"ep_fd", "probe", num, "1", "2", "4", NULL};

	child_check(x.ep != -1);
	if (exec_set_make(&x, a->kind) != 0)
		return 1;
	child_check(fcntl(a->shared, F_SETFD, FD_CLOEXEC) == 0);
	child_check(ep_ctl(x.ep, EPOLL_CTL_ADD, a->shared, EPOLLIN, 4) == 0);
	snprintf(num, sizeof(num), "%d", x.ep);
	execv("/proc/self/exe", argv);
	return 2;
}

static void EP_FD_12_exec_keeps_epoll_and_items(enum kind kind)
{
	struct subject s = subject_ready(kind);
	struct exec_arg a = {.flags = 0, .kind = kind, .shared = s.fd};

	assert_int_equal(child_status(exec_child, &a), 0);
	subject_close(&s);
}
KIND_TESTS(EP_FD_12_exec_keeps_epoll_and_items)

static void EP_FD_12_exec_closes_with_cloexec(enum kind kind)
{
	struct subject s = subject_ready(kind);
	struct exec_arg a = {.flags = EPOLL_CLOEXEC, .kind = kind, .shared = s.fd};

	assert_int_equal(child_status(exec_child, &a), PROBE_CLOSED);
	subject_close(&s);
}
KIND_TESTS(EP_FD_12_exec_closes_with_cloexec)

static int spawn_probe(char **argv)
{
	pid_t pid;
	int status;

	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
	while (waitpid(pid, &status, 0) == -1)
		assert_int_equal(errno, EINTR);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The parent's own set goes to a spawned program and stays the parent's too. */
static void EP_FD_12_spawn_inherits_what_is_not_cloexec(enum kind kind)
{
	struct exec_set x = {.ep = assert_ok(epoll_create1(0))};
	char num[16];
	char *argv[] = {"ep_fd", "probe", num, "1", "2", "3", NULL};

	assert_int_equal(exec_set_make(&x, kind), 0);
	snprintf(num, sizeof(num), "%d", x.ep);
	/* All three files live on in this process, so all three are reported. */
	assert_int_equal(spawn_probe(argv), 0);
	assert_true(ep_set(x.ep, 3, 1, 2, 3));
	assert_ok(ep_ctl(x.ep, EPOLL_CTL_DEL, x.s[0].fd, 0, 0));
	assert_true(ep_set(x.ep, 2, 2, 3));
	assert_ok(fcntl(x.ep, F_SETFD, FD_CLOEXEC));
	assert_int_equal(spawn_probe(argv), PROBE_CLOSED);
	assert_true(ep_set(x.ep, 2, 2, 3));
	close(x.ep);
	close(x.dup2);
	for (int i = 0; i < 3; i++)
		subject_close(&x.s[i]);
}
KIND_TESTS(EP_FD_12_spawn_inherits_what_is_not_cloexec)

static void EP_FD_12_failed_exec_changes_nothing(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new();
	char *argv[] = {"nobody", NULL};

	assert_ok(fcntl(s.fd, F_SETFD, FD_CLOEXEC));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 1));
	assert_errno(execv("/proc/self/no-such-program", argv), ENOENT);
	assert_int_equal(ep_count(ep), 0);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(ep_count(ep), 0);
	assert_int_equal(fcntl(ep, F_GETFD), FD_CLOEXEC);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_FD_12_failed_exec_changes_nothing)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(EP_FD_01_read_and_write_are_einval),
		cmocka_unit_test(EP_FD_01_pread_is_espipe),
		cmocka_unit_test(EP_FD_01_lseek_returns_0),
		cmocka_unit_test(EP_FD_02_fsync_and_ftruncate_are_einval),
		cmocka_unit_test(EP_FD_02_mmap_is_enodev),
		cmocka_unit_test(EP_FD_03_nonblock_can_be_set_and_cleared),
		kind_unit_tests(EP_FD_03_nonblock_does_not_touch_epoll_wait),
		cmocka_unit_test(EP_FD_04_unknown_ioctl_is_einval),
		cmocka_unit_test(EP_FD_04_ioctls_of_the_vfs_work),
		cmocka_unit_test(EP_FD_05_params_are_stored),
		cmocka_unit_test(EP_FD_06_params_errors),
		cmocka_unit_test(EP_FD_06_large_budget_needs_net_admin),
		kind_unit_tests(EP_FD_07_params_do_not_change_delivery),
		cmocka_unit_test(EP_FD_08_stat_and_link),
		cmocka_unit_test(EP_FD_08_number_reused_by_another_type),
		cmocka_unit_test(EP_FD_09_fdinfo_head),
		cmocka_unit_test(EP_FD_09_fdinfo_lists_the_items),
		cmocka_unit_test(EP_FD_09_fdinfo_lists_the_items_to_stdio),
		cmocka_unit_test(EP_FD_09_fdinfo_by_a_dup),
		kind_unit_tests(EP_FD_10_dups_share_both_lists),
		kind_unit_tests(EP_FD_10_event_wakes_a_waiter_on_a_dup),
		kind_unit_tests(EP_FD_10_fork_shares_both_lists),
		kind_unit_tests(EP_FD_11_lives_until_the_last_descriptor),
		kind_unit_tests(EP_FD_11_dup2_over_a_number_leaves_the_others),
		kind_unit_tests(EP_FD_11_lives_until_a_call_is_over),
		kind_unit_tests(EP_FD_11_lives_in_flight),
		kind_unit_tests(EP_FD_12_exec_keeps_epoll_and_items),
		kind_unit_tests(EP_FD_12_exec_closes_with_cloexec),
		kind_unit_tests(EP_FD_12_spawn_inherits_what_is_not_cloexec),
		kind_unit_tests(EP_FD_12_failed_exec_changes_nothing),
	};

	if (argc >= 3 && strcmp(argv[1], "probe") == 0)
		return probe(argc, argv);
	return run_group(tests);
}
