/* SPDX-License-Identifier: MIT */
/* EP-CTL: the order of the checks of epoll_ctl. */
#include "waiting.h"

#include <limits.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define OPS 7
static const int all_ops[OPS] = {EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, 0, -1, 4, INT_MAX};
static const int unknown_ops[] = {0, -1, 4, 5, 100, INT_MAX, INT_MIN};
#define UNKNOWN_OPS (sizeof(unknown_ops) / sizeof(unknown_ops[0]))

/* Pointers from which no event can be read. */
struct bad_events {
	char *map;
	struct epoll_event *p[6];
};
#define BAD_EVENTS 6

static struct bad_events bad_events_new(void)
{
	long page = sysconf(_SC_PAGESIZE);
	struct bad_events b;

	b.map = mmap(NULL, 2 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	assert_ptr_not_equal(b.map, MAP_FAILED);
	assert_ok(mprotect(b.map + page, (size_t)page, PROT_NONE));
	b.p[0] = NULL;
	b.p[1] = (struct epoll_event *)8;
	b.p[2] = (struct epoll_event *)(b.map + page);
	/* Readable at its beginning, but not to its end. */
	b.p[3] = (struct epoll_event *)(b.map + page - 4);
	b.p[4] = (struct epoll_event *)UINTPTR_MAX;
	b.p[5] = (struct epoll_event *)(uintptr_t)0xffff800000000000;
	return b;
}

static void bad_events_free(struct bad_events *b)
{
	munmap(b->map, 2 * (size_t)sysconf(_SC_PAGESIZE));
}

/* Both entries: the libc wrapper and syscall(). */
static void assert_ctl(int ep, int op, int fd, struct epoll_event *ev, int want)
{
	assert_errno(epoll_ctl(ep, op, fd, ev), want);
	assert_errno(syscall(SYS_epoll_ctl, ep, op, fd, ev), want);
}

static void assert_mask(int ep, int op, int fd, uint32_t events, int want)
{
	struct epoll_event ev;

	memset(&ev, 0, sizeof(ev));
	ev.events = events;
	assert_ctl(ep, op, fd, &ev, want);
}

static void EP_CTL_01_event_is_read_first(void **state)
{
	struct bad_events b = bad_events_new();
	int ep = ep_new(), e = efd_new(0, EFD_NONBLOCK), f = efd_new(0, 0), null, closed;
	int eps[4], fds[6];

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN, 1));
	null = assert_ok(open("/dev/null", O_RDONLY));
	closed = fd_closed();
	memcpy(eps, (int[]){ep, -1, closed, e}, sizeof(eps));
	memcpy(fds, (int[]){e, f, ep, null, closed, -1}, sizeof(fds));
	for (size_t i = 0; i < BAD_EVENTS; i++)
		for (size_t o = 0; o < OPS; o++)
			for (size_t x = 0; x < 4 && all_ops[o] != EPOLL_CTL_DEL; x++)
				for (size_t y = 0; y < 6; y++)
					assert_ctl(eps[x], all_ops[o], fds[y], b.p[i], EFAULT);
	/* What was refused left the item as it was and added nothing. */
	efd_add(e, 1);
	efd_add(f, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, f, 0, 0), ENOENT);
	bad_events_free(&b);
	close(ep);
	close(e);
	close(f);
	close(null);
}

static void EP_CTL_01_event_may_end_at_the_end_of_a_page(enum kind kind)
{
	struct bad_events b = bad_events_new();
	struct subject s = subject_ready(kind);
	int ep = ep_new();
	char *at = b.map + sysconf(_SC_PAGESIZE) - sizeof(struct epoll_event);
	struct epoll_event ev;

	memset(&ev, 0, sizeof(ev));
	ev.events = EPOLLIN;
	ev.data.u64 = 0x1122334455667788;
	memcpy(at, &ev, sizeof(ev));
	assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, s.fd, (struct epoll_event *)at));
	assert_true(ep_one(ep, EPOLLIN, 0x1122334455667788));
	/* Read-only memory is as good. */
	assert_ok(mprotect(b.map, (size_t)sysconf(_SC_PAGESIZE), PROT_READ));
	assert_ok(epoll_ctl(ep, EPOLL_CTL_MOD, s.fd, (struct epoll_event *)at));
	assert_true(ep_one(ep, EPOLLIN, 0x1122334455667788));
	bad_events_free(&b);
	assert_true(ep_one(ep, EPOLLIN, 0x1122334455667788));
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_CTL_01_event_may_end_at_the_end_of_a_page)

static void EP_CTL_02_del_ignores_the_event(enum kind kind)
{
	struct bad_events b = bad_events_new();
	struct subject s = subject_ready(kind);
	int ep = ep_new();

	for (size_t i = 0; i < BAD_EVENTS; i++) {
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
		assert_ok(epoll_ctl(ep, EPOLL_CTL_DEL, s.fd, b.p[i]));
		assert_int_equal(ep_count(ep), 0);
		assert_errno(epoll_ctl(ep, EPOLL_CTL_DEL, s.fd, b.p[i]), ENOENT);
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
		assert_ok(syscall(SYS_epoll_ctl, ep, EPOLL_CTL_DEL, s.fd, b.p[i]));
		assert_errno(epoll_ctl(-1, EPOLL_CTL_DEL, s.fd, b.p[i]), EBADF);
		assert_errno(epoll_ctl(ep, EPOLL_CTL_DEL, ep, b.p[i]), EINVAL);
	}
	/* A mask that ADD and MOD would refuse is not looked at either. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
	bad_events_free(&b);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_CTL_02_del_ignores_the_event)

static void EP_CTL_03_descriptors_that_are_not_open(void **state)
{
	int ep = ep_new(), e = efd_new(0, EFD_NONBLOCK);
	int opath = assert_ok(open("/", O_PATH));
	int opath_file = assert_ok(open("/proc/self/exe", O_PATH));
	int bad[6];

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN, 1));
	memcpy(bad, (int[]){-1, fd_closed(), 1 << 30, INT_MAX, opath, opath_file}, sizeof(bad));
	for (size_t i = 0; i < 6; i++) {
		for (size_t o = 0; o < OPS; o++) {
			assert_mask(bad[i], all_ops[o], e, EPOLLIN, EBADF);
			assert_mask(ep, all_ops[o], bad[i], EPOLLIN, EBADF);
			/* Before any doubt about the other one or the mask. */
			assert_mask(bad[i], all_ops[o], bad[i], EPOLLEXCLUSIVE | EPOLLPRI, EBADF);
			assert_mask(e, all_ops[o], bad[i], EPOLLIN, EBADF);
			assert_mask(bad[i], all_ops[o], ep, EPOLLIN, EBADF);
		}
	}
	close(ep);
	close(e);
	close(opath);
	close(opath_file);
}

static void EP_CTL_03_closed_numbers_are_forgotten(enum kind kind)
{
	struct subject s = subject_ready(kind), keep;
	int ep = ep_new(), d = assert_ok(dup(ep));

	/* The watched number, with and without a descriptor that outlives it. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	keep = s;
	keep.fd = assert_ok(dup(s.fd));
	assert_ok(close(s.fd));
	for (size_t o = 0; o < OPS; o++)
		assert_mask(ep, all_ops[o], s.fd, EPOLLIN, EBADF);
	assert_ok(close(keep.fd));
	for (size_t o = 0; o < OPS; o++)
		assert_mask(ep, all_ops[o], s.fd, EPOLLIN, EBADF);
	if (s.peer != s.fd)
		close(s.peer);
	/* The epoll's number. */
	s = subject_ready(kind);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 2));
	assert_ok(close(ep));
	for (size_t o = 0; o < OPS; o++)
		assert_mask(ep, all_ops[o], s.fd, EPOLLIN, EBADF);
	assert_true(ep_one(d, EPOLLIN, 2));
	close(d);
	subject_close(&s);
}
KIND_TESTS(EP_CTL_03_closed_numbers_are_forgotten)

struct files {
	int fd[7];
};
#define FILES 7

/* Files without a poll operation. */
static struct files files_new(void)
{
	char name[] = "/tmp/ep_ctl.XXXXXX";
	struct files f;

	f.fd[0] = assert_ok(mkstemp(name));
	unlink(name);
	f.fd[1] = assert_ok(open("/", O_RDONLY | O_DIRECTORY));
	f.fd[2] = assert_ok(syscall(SYS_memfd_create, "ep_ctl", 0));
	f.fd[3] = assert_ok(open("/dev/null", O_RDWR));
	f.fd[4] = assert_ok(open("/dev/zero", O_RDWR));
	f.fd[5] = assert_ok(open("/dev/urandom", O_RDONLY));
	f.fd[6] = assert_ok(dup(f.fd[0]));
	return f;
}

static void files_close(struct files *f)
{
	for (size_t i = 0; i < FILES; i++)
		close(f->fd[i]);
}

static void EP_CTL_04_target_without_poll_is_eperm(void **state)
{
	struct files f = files_new();
	struct subject p = subject_new(KIND_PIPE);
	int ep = ep_new(), e = efd_new(0, EFD_NONBLOCK);

	(void)state;
	for (size_t i = 0; i < FILES; i++) {
		for (size_t o = 0; o < OPS; o++) {
			assert_mask(ep, all_ops[o], f.fd[i], EPOLLIN, EPERM);
			assert_mask(ep, all_ops[o], f.fd[i], 0, EPERM);
			assert_mask(ep, all_ops[o], f.fd[i], EPOLLEXCLUSIVE | EPOLLPRI, EPERM);
			/* Before the question whether epfd is an epoll. */
			assert_mask(e, all_ops[o], f.fd[i], EPOLLIN, EPERM);
			assert_mask(p.fd, all_ops[o], f.fd[i], EPOLLIN, EPERM);
			assert_mask(f.fd[0], all_ops[o], f.fd[i], EPOLLIN, EPERM);
			assert_mask(f.fd[i], all_ops[o], f.fd[i], EPOLLIN, EPERM);
		}
	}
	files_close(&f);
	subject_close(&p);
	close(ep);
	close(e);
}

/* The number of a watched file now belongs to a file that cannot be watched. */
static void EP_CTL_04_number_reused_by_a_regular_file(enum kind kind)
{
	struct subject s = subject_ready(kind);
	int ep = ep_new(), null = assert_ok(open("/dev/null", O_RDWR));
	int d = assert_ok(dup(s.fd));

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	assert_int_equal(dup2(null, s.fd), s.fd);
	for (size_t o = 0; o < OPS; o++)
		assert_mask(ep, all_ops[o], s.fd, EPOLLIN, EPERM);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(dup2(d, s.fd), s.fd);
	assert_mask(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, EEXIST);
	close(d);
	close(null);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_CTL_04_number_reused_by_a_regular_file)

static void EP_CTL_05_epoll_cannot_watch_itself(void **state)
{
	int ep = ep_new();
	int d = assert_ok(dup(ep)), far = assert_ok(fcntl(ep, F_DUPFD_CLOEXEC, 40));
	int n[3] = {ep, d, far};

	(void)state;
	for (size_t i = 0; i < 3; i++)
		for (size_t j = 0; j < 3; j++)
			for (size_t o = 0; o < OPS; o++)
				assert_mask(n[i], all_ops[o], n[j], EPOLLIN, EINVAL);
	assert_errno(epoll_ctl(ep, EPOLL_CTL_DEL, d, NULL), EINVAL);
	close(ep);
	/* Also when the number it was made with is gone. */
	for (size_t o = 0; o < OPS; o++)
		assert_mask(d, all_ops[o], far, EPOLLIN, EINVAL);
	close(d);
	close(far);
}

static void EP_CTL_05_epfd_must_be_an_epoll(void **state)
{
	struct files f = files_new();
	struct subject p = subject_new(KIND_PIPE), u = subject_new(KIND_SOCKET);
	int ep = ep_new(), e = efd_new(0, EFD_NONBLOCK);
	int wrong[] = {e, p.fd, p.peer, u.fd, f.fd[0], f.fd[1], f.fd[3]};
	int target[] = {e, p.fd, u.fd, ep};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		for (size_t j = 0; j < sizeof(target) / sizeof(target[0]); j++)
			for (size_t o = 0; o < OPS; o++)
				assert_mask(wrong[i], all_ops[o], target[j], EPOLLIN, EINVAL);
	files_close(&f);
	subject_close(&p);
	subject_close(&u);
	close(ep);
	close(e);
}

static void EP_CTL_05_number_of_an_epoll_reused(void **state)
{
	int ep = ep_new(), e = efd_new(1, EFD_NONBLOCK), f;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN, 1));
	assert_ok(close(ep));
	f = efd_new(0, EFD_NONBLOCK);
	assert_int_equal(f, ep);
	for (size_t o = 0; o < OPS; o++)
		assert_mask(f, all_ops[o], e, EPOLLIN, EINVAL);
	assert_int_equal(dup2(f, e), e);
	for (size_t o = 0; o < OPS; o++)
		assert_mask(f, all_ops[o], e, EPOLLIN, EINVAL);
	close(f);
	close(e);
}

#define EXCLUSIVE_OK                                                                               \
	((uint32_t)(EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET |             \
		    EPOLLEXCLUSIVE))

static void EP_CTL_06_add_exclusive_allows_few_bits(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new();

	for (int i = 0; i < 32; i++) {
		uint32_t bit = (uint32_t)1 << i;

		if (bit & EXCLUSIVE_OK) {
			assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLEXCLUSIVE | bit, 1));
			assert_ok(raw_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
			continue;
		}
		assert_mask(ep, EPOLL_CTL_ADD, s.fd, EPOLLEXCLUSIVE | bit, EINVAL);
		assert_mask(ep, EPOLL_CTL_ADD, s.fd, EXCLUSIVE_OK | bit, EINVAL);
		assert_errno(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0), ENOENT);
	}
	subject_fill(&s);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_CTL_06_add_exclusive_allows_few_bits)

static void EP_CTL_06_mod_exclusive_is_einval(enum kind kind)
{
	static const uint32_t masks[] = {EPOLLEXCLUSIVE, EPOLLEXCLUSIVE | EPOLLIN,
					 EPOLLEXCLUSIVE | EPOLLIN | EPOLLET,
					 EPOLLEXCLUSIVE | EPOLLPRI};
	struct subject plain = subject_new(kind), excl = subject_new(kind);
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, plain.fd, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, excl.fd, EPOLLIN | EPOLLEXCLUSIVE, 2));
	for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
		assert_mask(ep, EPOLL_CTL_MOD, plain.fd, masks[i], EINVAL);
		assert_mask(ep, EPOLL_CTL_MOD, excl.fd, masks[i], EINVAL);
	}
	subject_fill(&plain);
	assert_true(ep_one(ep, EPOLLIN, 1));
	subject_fill(&excl);
	assert_true(ep_order(ep, 2, 1, 2));
	assert_true(ep_order(ep, 2, 1, 2));
	close(ep);
	subject_close(&plain);
	subject_close(&excl);
}
KIND_TESTS(EP_CTL_06_mod_exclusive_is_einval)

static void EP_CTL_06_exclusive_on_an_epoll_is_einval(void **state)
{
	int outer = ep_new(), inner = ep_new(), e = efd_new(1, EFD_NONBLOCK);

	(void)state;
	assert_ok(ep_ctl(inner, EPOLL_CTL_ADD, e, EPOLLIN, 1));
	assert_mask(outer, EPOLL_CTL_ADD, inner, EPOLLEXCLUSIVE, EINVAL);
	assert_mask(outer, EPOLL_CTL_ADD, inner, EPOLLEXCLUSIVE | EPOLLIN, EINVAL);
	assert_int_equal(ep_count(outer), 0);
	assert_errno(ep_ctl(outer, EPOLL_CTL_DEL, inner, 0, 0), ENOENT);
	close(outer);
	close(inner);
	close(e);
}

static void EP_CTL_07_exclusive_before_the_lookup(enum kind kind)
{
	struct subject known = subject_new(kind), unknown = subject_new(kind);
	int a = ep_new(), b = ep_new();

	assert_ok(ep_ctl(a, EPOLL_CTL_ADD, known.fd, EPOLLIN, 1));
	assert_mask(a, EPOLL_CTL_MOD, unknown.fd, EPOLLEXCLUSIVE | EPOLLIN, EINVAL);
	assert_mask(a, EPOLL_CTL_ADD, known.fd, EPOLLEXCLUSIVE | EPOLLPRI, EINVAL);
	assert_mask(a, EPOLL_CTL_ADD, known.fd, EPOLLEXCLUSIVE | EPOLLIN, EEXIST);
	/* The link from b to a would close a loop. */
	assert_ok(ep_ctl(a, EPOLL_CTL_ADD, b, EPOLLIN, 2));
	assert_mask(b, EPOLL_CTL_ADD, a, EPOLLIN, ELOOP);
	assert_mask(b, EPOLL_CTL_ADD, a, EPOLLIN | EPOLLEXCLUSIVE, EINVAL);
	/* a watches b already: without the flag it would be EEXIST. */
	assert_mask(a, EPOLL_CTL_ADD, b, EPOLLIN | EPOLLEXCLUSIVE, EINVAL);
	close(a);
	close(b);
	subject_close(&known);
	subject_close(&unknown);
}
KIND_TESTS(EP_CTL_07_exclusive_before_the_lookup)

static void EP_CTL_08_loop_is_for_add_alone_and_before_the_lookup(void **state)
{
	int a = ep_new(), b = ep_new(), c = ep_new();

	(void)state;
	assert_ok(ep_ctl(a, EPOLL_CTL_ADD, b, EPOLLIN, 1));
	assert_ok(ep_ctl(b, EPOLL_CTL_ADD, c, EPOLLIN, 2));
	assert_mask(b, EPOLL_CTL_ADD, a, EPOLLIN, ELOOP);
	assert_mask(c, EPOLL_CTL_ADD, a, EPOLLIN, ELOOP);
	assert_mask(c, EPOLL_CTL_ADD, b, 0, ELOOP);
	/* The other ops come to the lookup. */
	assert_mask(c, EPOLL_CTL_MOD, a, EPOLLIN, ENOENT);
	assert_mask(c, EPOLL_CTL_DEL, a, EPOLLIN, ENOENT);
	for (size_t i = 0; i < UNKNOWN_OPS; i++)
		assert_mask(c, unknown_ops[i], a, EPOLLIN, EINVAL);
	/* A link that is there passes the check and is found by the lookup. */
	assert_mask(a, EPOLL_CTL_ADD, b, EPOLLIN, EEXIST);
	assert_mask(b, EPOLL_CTL_ADD, c, EPOLLIN, EEXIST);
	/* Once the link below is gone there is no loop any more. */
	assert_ok(ep_ctl(b, EPOLL_CTL_DEL, c, 0, 0));
	assert_ok(ep_ctl(c, EPOLL_CTL_ADD, a, EPOLLIN, 3));
	assert_mask(b, EPOLL_CTL_ADD, c, EPOLLIN, ELOOP);
	close(a);
	close(b);
	close(c);
}

static void EP_CTL_09_eexist_leaves_the_item(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, 1));
	assert_mask(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLET, EEXIST);
	assert_mask(ep, EPOLL_CTL_ADD, s.fd, 0, EEXIST);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 1));
	/* A refused ADD is no edge. */
	assert_mask(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, EEXIST);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_CTL_09_eexist_leaves_the_item)

static void EP_CTL_09_enoent(enum kind kind)
{
	struct subject s = subject_ready(kind), t = subject_new(kind);
	int ep = ep_new(), other = ep_new(), d;

	assert_mask(ep, EPOLL_CTL_DEL, s.fd, 0, ENOENT);
	assert_mask(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, ENOENT);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	assert_mask(other, EPOLL_CTL_DEL, s.fd, 0, ENOENT);
	assert_mask(other, EPOLL_CTL_MOD, s.fd, EPOLLIN, ENOENT);
	assert_mask(ep, EPOLL_CTL_DEL, t.fd, 0, ENOENT);
	/* The same file under another number is another key. */
	d = assert_ok(dup(s.fd));
	assert_mask(ep, EPOLL_CTL_DEL, d, 0, ENOENT);
	assert_mask(ep, EPOLL_CTL_MOD, d, EPOLLIN, ENOENT);
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	assert_mask(ep, EPOLL_CTL_DEL, s.fd, 0, ENOENT);
	assert_mask(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, ENOENT);
	assert_int_equal(ep_count(ep), 0);
	close(d);
	close(ep);
	close(other);
	subject_close(&s);
	subject_close(&t);
}
KIND_TESTS(EP_CTL_09_enoent)

/* The number of a watched file is reused by another one of the same kind. */
static void EP_CTL_09_reused_number_is_not_registered(enum kind kind)
{
	struct subject s = subject_ready(kind), t = subject_ready(kind);
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	assert_int_equal(dup2(t.fd, s.fd), s.fd);
	assert_mask(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, ENOENT);
	assert_mask(ep, EPOLL_CTL_DEL, s.fd, 0, ENOENT);
	assert_int_equal(ep_count(ep), 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 2));
	assert_true(ep_one(ep, EPOLLIN, 2));
	assert_mask(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, EEXIST);
	close(ep);
	if (s.peer != s.fd)
		close(s.peer);
	close(s.fd);
	subject_close(&t);
}
KIND_TESTS(EP_CTL_09_reused_number_is_not_registered)

/* A number that is watched by many epolls, and high enough for a table of its own. */
static void EP_CTL_09_a_high_number_in_many_epolls(void **state)
{
	enum { HIGH = 1100, EPS = 24 };
	struct rlimit lim, old;
	int ep[EPS], other;

	(void)state;
	assert_ok(getrlimit(RLIMIT_NOFILE, &old));
	if (old.rlim_max <= HIGH)
		skip();
	lim = old;
	lim.rlim_cur = old.rlim_cur <= HIGH ? HIGH + 1 : old.rlim_cur;
	assert_ok(setrlimit(RLIMIT_NOFILE, &lim));
	for (int e = 0; e < EPS; e++)
		ep[e] = ep_new();
	for (int round = 0; round < 2; round++) {
		int fd = efd_new(1, EFD_NONBLOCK | EFD_CLOEXEC);

		assert_ok(dup3(fd, HIGH, O_CLOEXEC));
		close(fd);
		for (int e = 0; e < EPS; e++) {
			ep_add(ep[e], HIGH, EPOLLIN, (uint64_t)e);
			assert_errno(ep_ctl(ep[e], EPOLL_CTL_ADD, HIGH, EPOLLIN, 0), EEXIST);
			assert_true(ep_one(ep[e], EPOLLIN, (uint64_t)e));
		}
		for (int e = 0; e < EPS; e += 2) {
			assert_ok(epoll_ctl(ep[e], EPOLL_CTL_DEL, HIGH, NULL));
			assert_errno(epoll_ctl(ep[e], EPOLL_CTL_DEL, HIGH, NULL), ENOENT);
			ep_add(ep[e], HIGH, EPOLLIN, 99);
			assert_true(ep_one(ep[e], EPOLLIN, 99));
		}
		/* Another file gets the number, with no watch, then with one. */
		other = efd_new(1, EFD_NONBLOCK | EFD_CLOEXEC);
		assert_ok(dup3(other, HIGH, O_CLOEXEC));
		for (int e = 0; e < EPS; e++)
			assert_errno(epoll_ctl(ep[e], EPOLL_CTL_DEL, HIGH, NULL), ENOENT);
		ep_add(ep[0], HIGH, EPOLLIN, 7);
		assert_true(ep_one(ep[0], EPOLLIN, 7));
		close(other);
		close(HIGH);
		assert_errno(epoll_ctl(ep[0], EPOLL_CTL_DEL, HIGH, NULL), EBADF);
	}
	for (int e = 0; e < EPS; e++)
		close(ep[e]);
	assert_ok(setrlimit(RLIMIT_NOFILE, &old));
}

static void EP_CTL_09_mod_of_exclusive_item_is_einval(enum kind kind)
{
	struct subject s = subject_new(kind);
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN | EPOLLEXCLUSIVE, 1));
	assert_mask(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, EINVAL);
	assert_mask(ep, EPOLL_CTL_MOD, s.fd, 0, EINVAL);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0));
	/* The next item of this key has nothing of it. */
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, 0, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, 3));
	assert_true(ep_one(ep, EPOLLIN, 3));
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_CTL_09_mod_of_exclusive_item_is_einval)

static void EP_CTL_09_unknown_op_is_einval(enum kind kind)
{
	struct subject known = subject_new(kind), unknown = subject_new(kind);
	int ep = ep_new();

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, known.fd, EPOLLIN, 1));
	for (size_t i = 0; i < UNKNOWN_OPS; i++) {
		assert_mask(ep, unknown_ops[i], known.fd, EPOLLOUT, EINVAL);
		assert_mask(ep, unknown_ops[i], unknown.fd, EPOLLIN, EINVAL);
		assert_mask(ep, unknown_ops[i], known.fd, EPOLLEXCLUSIVE, EINVAL);
	}
	subject_fill(&known);
	subject_fill(&unknown);
	assert_true(ep_one(ep, EPOLLIN, 1));
	close(ep);
	subject_close(&known);
	subject_close(&unknown);
}
KIND_TESTS(EP_CTL_09_unknown_op_is_einval)

/* As many outer epolls as a file two levels below may have paths to: 500. */
#define PATHS 500

/*
 * An inner epoll watched PATHS + 1 times, which is allowed while no file is
 * below it. Returns the outer epoll; dups of the inner are the keys.
 */
struct saturated {
	int inner;
	int outer;
	int dups[PATHS];
};

static struct saturated *saturated_new(void)
{
	struct saturated *x = calloc(1, sizeof(*x));
	struct rlimit lim;

	assert_non_null(x);
	assert_ok(getrlimit(RLIMIT_NOFILE, &lim));
	if (lim.rlim_cur < PATHS + 100) {
		lim.rlim_cur = lim.rlim_max < PATHS + 100 ? lim.rlim_max : PATHS + 100;
		assert_ok(setrlimit(RLIMIT_NOFILE, &lim));
	}
	x->inner = ep_new();
	x->outer = ep_new();
	assert_ok(ep_ctl(x->outer, EPOLL_CTL_ADD, x->inner, EPOLLIN, 0));
	for (int i = 0; i < PATHS; i++) {
		x->dups[i] = assert_ok(dup(x->inner));
		assert_ok(ep_ctl(x->outer, EPOLL_CTL_ADD, x->dups[i], EPOLLIN, 1));
	}
	return x;
}

static void saturated_free(struct saturated *x)
{
	for (int i = 0; i < PATHS; i++)
		close(x->dups[i]);
	close(x->inner);
	close(x->outer);
	free(x);
}

static void EP_CTL_10_path_limit_leaves_nothing_behind(enum kind kind)
{
	struct saturated *x = saturated_new();
	struct subject s = subject_ready(kind), t = subject_new(kind);

	assert_mask(x->inner, EPOLL_CTL_ADD, s.fd, EPOLLIN, EINVAL);
	assert_mask(x->inner, EPOLL_CTL_ADD, s.fd, EPOLLIN, EINVAL);
	assert_mask(x->inner, EPOLL_CTL_DEL, s.fd, 0, ENOENT);
	assert_mask(x->inner, EPOLL_CTL_MOD, s.fd, EPOLLIN, ENOENT);
	subject_fill(&s);
	assert_int_equal(ep_count(x->inner), 0);
	assert_int_equal(ep_count(x->outer), 0);
	/* One path less, and the same call is good. */
	assert_ok(ep_ctl(x->outer, EPOLL_CTL_DEL, x->dups[0], 0, 0));
	assert_ok(ep_ctl(x->inner, EPOLL_CTL_ADD, s.fd, EPOLLIN, 7));
	assert_true(ep_one(x->inner, EPOLLIN, 7));
	assert_ok(ep_ctl(x->inner, EPOLL_CTL_ADD, t.fd, EPOLLIN, 8));
	/* A link too many is refused from the side of the outer epoll as well. */
	assert_mask(x->outer, EPOLL_CTL_ADD, x->dups[0], EPOLLIN, EINVAL);
	assert_mask(x->outer, EPOLL_CTL_DEL, x->dups[0], 0, ENOENT);
	saturated_free(x);
	subject_close(&s);
	subject_close(&t);
}
KIND_TESTS(EP_CTL_10_path_limit_leaves_nothing_behind)

/*
 * Each step of the order against all the later ones that can be wrong at the
 * same time.
 */
static void EP_CTL_11_full_order(void **state)
{
	struct bad_events bad = bad_events_new();
	int ep = ep_new(), other = ep_new(), e = efd_new(0, EFD_NONBLOCK), x = efd_new(0, 0);
	int null = assert_ok(open("/dev/null", O_RDWR)), closed = fd_closed();
	const uint32_t misuse = EPOLLEXCLUSIVE | EPOLLPRI;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, x, EPOLLIN | EPOLLEXCLUSIVE, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, other, EPOLLIN, 3));
	/* EFAULT, also with an unknown op on descriptors that are all wrong. */
	assert_ctl(closed, 99, closed, bad.p[2], EFAULT);
	assert_ctl(null, EPOLL_CTL_ADD, null, bad.p[2], EFAULT);
	assert_ctl(ep, EPOLL_CTL_ADD, ep, bad.p[2], EFAULT);
	/* EBADF before EPERM and both EINVAL. */
	assert_mask(closed, EPOLL_CTL_ADD, null, misuse, EBADF);
	assert_mask(null, EPOLL_CTL_MOD, closed, misuse, EBADF);
	assert_mask(closed, 99, ep, misuse, EBADF);
	/* EPERM before EINVAL of a wrong epfd, of EXCLUSIVE and of the op. */
	assert_mask(null, EPOLL_CTL_ADD, null, misuse, EPERM);
	assert_mask(e, 99, null, misuse, EPERM);
	assert_mask(ep, EPOLL_CTL_DEL, null, misuse, EPERM);
	/* Same file, then EXCLUSIVE, before loop and lookup. */
	assert_mask(ep, EPOLL_CTL_ADD, ep, EPOLLIN, EINVAL);
	assert_mask(ep, EPOLL_CTL_DEL, ep, EPOLLIN, EINVAL);
	assert_mask(ep, EPOLL_CTL_MOD, ep, EPOLLIN, EINVAL);
	assert_mask(other, EPOLL_CTL_ADD, ep, EPOLLEXCLUSIVE, EINVAL);
	assert_mask(other, EPOLL_CTL_MOD, e, EPOLLEXCLUSIVE, EINVAL);
	assert_mask(ep, EPOLL_CTL_ADD, e, misuse, EINVAL);
	/* Loop, then lookup. */
	assert_mask(other, EPOLL_CTL_ADD, ep, EPOLLIN, ELOOP);
	assert_mask(ep, EPOLL_CTL_ADD, other, EPOLLIN, EEXIST);
	assert_mask(ep, EPOLL_CTL_ADD, x, EPOLLIN, EEXIST);
	assert_mask(ep, EPOLL_CTL_MOD, x, EPOLLIN, EINVAL);
	assert_mask(other, EPOLL_CTL_MOD, x, EPOLLIN, ENOENT);
	assert_mask(other, EPOLL_CTL_DEL, ep, misuse, ENOENT);
	bad_events_free(&bad);
	close(ep);
	close(other);
	close(e);
	close(x);
	close(null);
}

static void EP_CTL_11_lookup_before_paths(enum kind kind)
{
	struct saturated *x = saturated_new();
	struct subject s = subject_new(kind);

	assert_ok(ep_ctl(x->outer, EPOLL_CTL_DEL, x->dups[0], 0, 0));
	assert_ok(ep_ctl(x->inner, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1));
	/* One more path than this would be refused, but the key is known. */
	assert_mask(x->inner, EPOLL_CTL_ADD, s.fd, EPOLLIN, EEXIST);
	assert_mask(x->outer, EPOLL_CTL_ADD, x->dups[1], EPOLLIN, EEXIST);
	assert_mask(x->outer, EPOLL_CTL_ADD, x->dups[0], EPOLLIN, EINVAL);
	saturated_free(x);
	subject_close(&s);
}
KIND_TESTS(EP_CTL_11_lookup_before_paths)

static int signals;

static void count_signal(int sig)
{
	(void)sig;
	__atomic_add_fetch(&signals, 1, __ATOMIC_RELAXED);
}

struct storm {
	pthread_t to;
	int end;
};

static void *storm_main(void *arg)
{
	struct storm *s = arg;

	while (!__atomic_load_n(&s->end, __ATOMIC_ACQUIRE)) {
		pthread_kill(s->to, SIGUSR1);
		sched_yield();
	}
	return NULL;
}

static void EP_CTL_12_returns_0_whatever_signals_come(enum kind kind)
{
	struct sigaction sa = {.sa_handler = count_signal}, old;
	struct storm storm = {.to = pthread_self()};
	struct subject s = subject_ready(kind);
	int ep = ep_new(), rounds = 0, wrong = 0;
	struct test_thread t;

	assert_ok(sigaction(SIGUSR1, &sa, &old));
	signals = 0;
	thread_start(&t, storm_main, &storm);
	while (rounds < 500 || __atomic_load_n(&signals, __ATOMIC_RELAXED) < 100) {
		wrong += ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1) != 0;
		wrong += ep_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN | EPOLLET, 2) != 0;
		wrong += raw_ctl(ep, EPOLL_CTL_MOD, s.fd, EPOLLIN, 3) != 0;
		wrong += ep_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0) != 0;
		rounds++;
	}
	__atomic_store_n(&storm.end, 1, __ATOMIC_RELEASE);
	assert_true(thread_join(&t, SOON_MS));
	assert_ok(sigaction(SIGUSR1, &old, NULL));
	assert_int_equal(wrong, 0);
	close(ep);
	subject_close(&s);
}
KIND_TESTS(EP_CTL_12_returns_0_whatever_signals_come)

/* Sleepers do not hold up epoll_ctl, on a set of one kind or a mixed one. */
static void ctl_beside_sleepers(enum kind kind, enum kind other)
{
	struct subject a = subject_new(kind), b = subject_new(other);
	int ep = ep_new();
	struct waiter *w[2];

	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.fd, EPOLLIN | EPOLLET, 9));
	for (int i = 0; i < 2; i++)
		w[i] = waiter_new(ep, 8);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a.fd, EPOLLIN | EPOLLET, 1));
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, a.fd, EPOLLIN | EPOLLET, 2));
	assert_ok(raw_ctl(ep, EPOLL_CTL_MOD, b.fd, EPOLLIN | EPOLLET, 8));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, a.fd, 0, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_DEL, b.fd, 0, 0));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a.fd, EPOLLIN | EPOLLET, 3));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.fd, EPOLLIN | EPOLLET, 4));
	for (int i = 0; i < 2; i++)
		assert_true(waiter_sleeps(w[i]));
	subject_fill(&a);
	waiter_got(w[1], EPOLLIN, 3);
	subject_fill(&b);
	waiter_got(w[0], EPOLLIN, 4);
	close(ep);
	subject_close(&a);
	subject_close(&b);
}

static void EP_CTL_13_works_beside_sleepers(enum kind kind)
{
	ctl_beside_sleepers(kind, kind);
}
KIND_TESTS(EP_CTL_13_works_beside_sleepers)

static void EP_CTL_13_works_beside_sleepers_on_a_mixed_set(void **state)
{
	(void)state;
	ctl_beside_sleepers(KIND_EVENTFD, KIND_PIPE);
	ctl_beside_sleepers(KIND_PIPE, KIND_EVENTFD);
	ctl_beside_sleepers(KIND_SOCKET, KIND_EVENTFD);
}

/* Calls of several threads on one key: each ADD and each DEL succeeds once. */
struct contest {
	int ep;
	int fd;
	int added;
	int deleted;
	int wrong;
};

static void *contest_main(void *arg)
{
	struct contest *c = arg;

	for (int i = 0; i < 3000; i++) {
		if (ep_ctl(c->ep, EPOLL_CTL_ADD, c->fd, EPOLLIN, 1) == 0)
			__atomic_add_fetch(&c->added, 1, __ATOMIC_RELAXED);
		else if (errno != EEXIST)
			__atomic_add_fetch(&c->wrong, 1, __ATOMIC_RELAXED);
		if (ep_ctl(c->ep, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLET, 2) != 0 &&
		    errno != ENOENT)
			__atomic_add_fetch(&c->wrong, 1, __ATOMIC_RELAXED);
		if (ep_ctl(c->ep, EPOLL_CTL_DEL, c->fd, 0, 0) == 0)
			__atomic_add_fetch(&c->deleted, 1, __ATOMIC_RELAXED);
		else if (errno != ENOENT)
			__atomic_add_fetch(&c->wrong, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void EP_CTL_13_calls_are_serialised(enum kind kind)
{
	struct subject s = subject_ready(kind);
	struct contest c = {.ep = ep_new(), .fd = s.fd};
	struct test_thread t[3];

	for (int i = 0; i < 3; i++)
		thread_start(&t[i], contest_main, &c);
	for (int i = 0; i < 3; i++)
		assert_true(thread_join(&t[i], SOON_MS));
	assert_int_equal(c.wrong, 0);
	assert_int_equal(c.added, c.deleted);
	assert_true(c.added >= 3000);
	assert_int_equal(ep_count(c.ep), 0);
	assert_ok(ep_ctl(c.ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 3));
	assert_true(ep_one(c.ep, EPOLLIN, 3));
	close(c.ep);
	subject_close(&s);
}
KIND_TESTS(EP_CTL_13_calls_are_serialised)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(EP_CTL_01_event_is_read_first),
		kind_unit_tests(EP_CTL_01_event_may_end_at_the_end_of_a_page),
		kind_unit_tests(EP_CTL_02_del_ignores_the_event),
		cmocka_unit_test(EP_CTL_03_descriptors_that_are_not_open),
		kind_unit_tests(EP_CTL_03_closed_numbers_are_forgotten),
		cmocka_unit_test(EP_CTL_04_target_without_poll_is_eperm),
		kind_unit_tests(EP_CTL_04_number_reused_by_a_regular_file),
		cmocka_unit_test(EP_CTL_05_epoll_cannot_watch_itself),
		cmocka_unit_test(EP_CTL_05_epfd_must_be_an_epoll),
		cmocka_unit_test(EP_CTL_05_number_of_an_epoll_reused),
		kind_unit_tests(EP_CTL_06_add_exclusive_allows_few_bits),
		kind_unit_tests(EP_CTL_06_mod_exclusive_is_einval),
		cmocka_unit_test(EP_CTL_06_exclusive_on_an_epoll_is_einval),
		kind_unit_tests(EP_CTL_07_exclusive_before_the_lookup),
		cmocka_unit_test(EP_CTL_08_loop_is_for_add_alone_and_before_the_lookup),
		kind_unit_tests(EP_CTL_09_eexist_leaves_the_item),
		kind_unit_tests(EP_CTL_09_enoent),
		kind_unit_tests(EP_CTL_09_reused_number_is_not_registered),
		cmocka_unit_test(EP_CTL_09_a_high_number_in_many_epolls),
		kind_unit_tests(EP_CTL_09_mod_of_exclusive_item_is_einval),
		kind_unit_tests(EP_CTL_09_unknown_op_is_einval),
		kind_unit_tests(EP_CTL_10_path_limit_leaves_nothing_behind),
		cmocka_unit_test(EP_CTL_11_full_order),
		kind_unit_tests(EP_CTL_11_lookup_before_paths),
		kind_unit_tests(EP_CTL_12_returns_0_whatever_signals_come),
		kind_unit_tests(EP_CTL_13_works_beside_sleepers),
		cmocka_unit_test(EP_CTL_13_works_beside_sleepers_on_a_mixed_set),
		kind_unit_tests(EP_CTL_13_calls_are_serialised),
	};

	return run_group(tests);
}
