/* SPDX-License-Identifier: MIT */
/*
 * Registrations by a ring of io_uring made for that (as event loops do it): each request is the
 * epoll_ctl of the same arguments, and what comes of the sets afterwards is the same.
 */
#include "waiting.h"

#include <linux/io_uring.h>
#include <sys/mman.h>

#define ENTRIES 16
#define SETUP_NO_SQARRAY (1u << 16)

struct uring {
	int fd;
	struct io_uring_params par;
	char *sq;
	struct io_uring_sqe *requests;
	unsigned int pending;
};

static unsigned int *sq_word(struct uring *u, uint32_t off)
{
	return (unsigned int *)(void *)(u->sq + off);
}

static bool uring_made(struct uring *u, unsigned int flags)
{
	size_t size;

	memset(u, 0, sizeof(*u));
	u->par.flags = flags;
	u->fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &u->par);
	if (u->fd == -1)
		return false;
	/* One mapping for both queues. */
	assert_true(u->par.features & IORING_FEAT_SINGLE_MMAP);
	size = u->par.cq_off.cqes + u->par.cq_entries * sizeof(struct io_uring_cqe);
	if (!(flags & SETUP_NO_SQARRAY) &&
	    size < u->par.sq_off.array + u->par.sq_entries * sizeof(unsigned int))
		size = u->par.sq_off.array + u->par.sq_entries * sizeof(unsigned int);
	u->sq = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, u->fd,
		     IORING_OFF_SQ_RING);
	assert_true(u->sq != MAP_FAILED);
	u->requests = mmap(NULL, u->par.sq_entries * sizeof(*u->requests), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_POPULATE, u->fd, IORING_OFF_SQES);
	assert_true((void *)u->requests != MAP_FAILED);
	return true;
}

#define URING(u, flags)                                                                            \
	struct uring u;                                                                            \
	if (!uring_made(&u, flags))                                                                \
	SKIP("no io_uring for this user")

static void uring_closed(struct uring *u)
{
	assert_ok(munmap(u->requests, u->par.sq_entries * sizeof(*u->requests)));
	assert_ok(close(u->fd));
}

static struct io_uring_sqe *request(struct uring *u, uint8_t opcode, uint64_t mark)
{
	unsigned int *tail = sq_word(u, u->par.sq_off.tail);
	unsigned int at = *tail & (u->par.sq_entries - 1);
	struct io_uring_sqe *s = &u->requests[at];

	if (!(u->par.flags & SETUP_NO_SQARRAY))
		sq_word(u, u->par.sq_off.array)[at] = at;
	memset(s, 0, sizeof(*s));
	s->opcode = opcode;
	s->user_data = mark;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	u->pending++;
	return s;
}

static void want_ctl(struct uring *u, int ep, int op, int fd, struct epoll_event *ev, uint64_t mark)
{
	struct io_uring_sqe *s = request(u, IORING_OP_EPOLL_CTL, mark);

	s->fd = ep;
	s->len = (uint32_t)op;
	s->off = (uint64_t)(unsigned int)fd;
	s->addr = (uintptr_t)ev;
}

/* Hands over what waits; result[mark] for each. */
static void submit(struct uring *u, int *result)
{
	unsigned int n = u->pending;
	unsigned int *head = sq_word(u, u->par.cq_off.head);
	struct io_uring_cqe *cqes = (void *)(u->sq + u->par.cq_off.cqes);

	u->pending = 0;
	assert_int_equal(assert_ok(syscall(SYS_io_uring_enter, u->fd, n, n, IORING_ENTER_GETEVENTS,
					   NULL, (size_t)0)),
			 n);
	while (*head != __atomic_load_n(sq_word(u, u->par.cq_off.tail), __ATOMIC_ACQUIRE)) {
		struct io_uring_cqe *c = &cqes[*head & (u->par.cq_entries - 1)];

		result[c->user_data] = c->res;
		__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	}
}

static int one(struct uring *u, int ep, int op, int fd, struct epoll_event *ev)
{
	int result[1] = {1};

	want_ctl(u, ep, op, fd, ev, 0);
	submit(u, result);
	return result[0];
}

static void is_ready(int ep, uint32_t events, uint64_t data)
{
	struct epoll_event ev;

	assert_int_equal(epoll_wait(ep, &ev, 1, 0), 1);
	assert_int_equal(ev.events, events);
	assert_int_equal(ev.data.u64, data);
}

static void is_not_ready(int ep)
{
	struct epoll_event ev;

	assert_int_equal(epoll_wait(ep, &ev, 1, 0), 0);
}

/* A batch of all three operations on files of every kind. */
static void batch(unsigned int flags)
{
	URING(u, flags);
	int ep = ep_new(), result[ENTRIES] = {0};
	struct subject s[] = {subject_ready(KIND_EVENTFD), subject_ready(KIND_SOCKET),
			      subject_ready(KIND_PIPE), subject_ready(KIND_EVENTFD)};
	struct epoll_event ev[8];

	for (int i = 0; i < 4; i++) {
		ev[i] = (struct epoll_event){.events = EPOLLIN, .data.u64 = 10 + (uint64_t)i};
		want_ctl(&u, ep, EPOLL_CTL_ADD, s[i].fd, &ev[i], (uint64_t)i);
	}
	ev[4] = (struct epoll_event){.events = EPOLLIN | EPOLLET, .data.u64 = 20};
	want_ctl(&u, ep, EPOLL_CTL_MOD, s[0].fd, &ev[4], 4);
	want_ctl(&u, ep, EPOLL_CTL_DEL, s[2].fd, NULL, 5);
	want_ctl(&u, ep, EPOLL_CTL_DEL, s[3].fd, NULL, 6);
	for (int i = 0; i < 7; i++)
		result[i] = 1;
	submit(&u, result);
	for (int i = 0; i < 7; i++)
		assert_int_equal(result[i], 0);
	assert_int_equal(epoll_wait(ep, ev, 8, 0), 2);
	assert_int_equal(ev[0].data.u64 + ev[1].data.u64, 20 + 11);
	/* The edge is told; the level stays. */
	is_ready(ep, EPOLLIN, 11);
	subject_drain(&s[1]);
	is_not_ready(ep);
	subject_fill(&s[0]);
	is_ready(ep, EPOLLIN, 20);
	subject_fill(&s[3]);
	is_not_ready(ep);
	for (int i = 0; i < 4; i++)
		subject_close(&s[i]);
	close(ep);
	uring_closed(&u);
}

static void RING_requests_in_batches(void **state)
{
	(void)state;
	batch(0);
}

static void RING_without_an_array(void **state)
{
	struct uring u;

	(void)state;
	if (!uring_made(&u, SETUP_NO_SQARRAY))
		SKIP("this kernel's rings have an array");
	uring_closed(&u);
	batch(SETUP_NO_SQARRAY);
}

static void EP_CTL_11_by_a_ring(enum kind kind)
{
	URING(u, 0);
	int ep = ep_new(), other = ep_new(), gone = dup(ep);
	struct subject s = subject_new(kind);
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 7};

	close(gone);
	assert_int_equal(one(&u, ep, EPOLL_CTL_DEL, s.fd, NULL), -ENOENT);
	assert_int_equal(one(&u, ep, EPOLL_CTL_MOD, s.fd, &ev), -ENOENT);
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, s.fd, NULL), -EFAULT);
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, gone, &ev), -EBADF);
	assert_int_equal(one(&u, ep, EPOLL_CTL_DEL, gone, NULL), -EBADF);
	assert_int_equal(one(&u, gone, EPOLL_CTL_ADD, s.fd, &ev), -EBADF);
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, ep, &ev), -EINVAL);
	assert_int_equal(one(&u, ep, 77, s.fd, &ev), -EINVAL);
	assert_int_equal(one(&u, s.fd, EPOLL_CTL_ADD, ep, &ev), -EINVAL);
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, s.fd, &ev), 0);
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, s.fd, &ev), -EEXIST);
	/* By the call, it is there, too. */
	errno = 0;
	assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, s.fd, &ev), -1);
	assert_int_equal(errno, EEXIST);
	subject_fill(&s);
	is_ready(ep, EPOLLIN, 7);
	assert_int_equal(one(&u, other, EPOLL_CTL_DEL, s.fd, NULL), -ENOENT);
	assert_int_equal(one(&u, ep, EPOLL_CTL_DEL, s.fd, NULL), 0);
	assert_int_equal(one(&u, ep, EPOLL_CTL_DEL, s.fd, NULL), -ENOENT);
	is_not_ready(ep);
	subject_close(&s);
	close(other);
	close(ep);
	uring_closed(&u);
}
KIND_TESTS(EP_CTL_11_by_a_ring)

static void *sleeper(void *end)
{
	char c;

	/* Until the other end is closed. */
	return read(*(int *)end, &c, 1) == 0 ? NULL : end;
}

/* As a loop finds out that a file is in its set already. */
static void RING_tries_again_in_several_threads(void **state)
{
	URING(u, 0);
	int ep = ep_new(), fd = efd_new(1, EFD_NONBLOCK), ends[2];
	struct subject s = subject_ready(KIND_SOCKET);
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 4};
	pthread_t t;
	void *r;

	(void)state;
	assert_ok(pipe(ends));
	assert_int_equal(pthread_create(&t, NULL, sleeper, &ends[0]), 0);
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, fd, &ev), 0);
	ev = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 5};
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, s.fd, &ev), 0);
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, s.fd, &ev), -EEXIST);
	ev.data.u64 = 6;
	assert_int_equal(one(&u, ep, EPOLL_CTL_MOD, s.fd, &ev), 0);
	assert_int_equal(one(&u, ep, EPOLL_CTL_DEL, fd, NULL), 0);
	is_ready(ep, EPOLLIN, 6);
	is_not_ready(ep);
	close(ends[1]);
	assert_int_equal(pthread_join(t, &r), 0);
	assert_null(r);
	close(ends[0]);
	subject_close(&s);
	close(fd);
	close(ep);
	uring_closed(&u);
}

/* A descriptor closed before its request is taken, as loops leave them behind. */
static void RING_requests_for_what_is_closed(void **state)
{
	URING(u, 0);
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK), result[2] = {1, 1};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};

	(void)state;
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, fd, &ev), 0);
	want_ctl(&u, ep, EPOLL_CTL_DEL, fd, NULL, 0);
	close(fd);
	fd = efd_new(1, EFD_NONBLOCK);
	want_ctl(&u, ep, EPOLL_CTL_ADD, fd, &ev, 1);
	submit(&u, result);
	assert_int_equal(result[0], -ENOENT);
	assert_int_equal(result[1], 0);
	is_ready(ep, EPOLLIN, 3);
	close(fd);
	is_not_ready(ep);
	close(ep);
	uring_closed(&u);
}

/* One that fails has no effect on what comes after it, and that has none on it. */
static void RING_requests_behind_one_that_fails(void **state)
{
	URING(u, 0);
	int ep = ep_new(), fd = efd_new(1, EFD_NONBLOCK), result[4] = {1, 1, 1, 1};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};
	struct epoll_event again = {.events = EPOLLIN, .data.u64 = 9};

	(void)state;
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, fd, &ev), 0);
	want_ctl(&u, ep, EPOLL_CTL_ADD, fd, &again, 0);
	want_ctl(&u, ep, EPOLL_CTL_DEL, fd, NULL, 1);
	want_ctl(&u, ep, EPOLL_CTL_DEL, fd, NULL, 2);
	want_ctl(&u, ep, EPOLL_CTL_ADD, fd, &again, 3);
	submit(&u, result);
	assert_int_equal(result[0], -EEXIST);
	assert_int_equal(result[1], 0);
	assert_int_equal(result[2], -ENOENT);
	assert_int_equal(result[3], 0);
	is_ready(ep, EPOLLIN, 9);
	close(fd);
	close(ep);
	uring_closed(&u);
}

/* A ring finds what was there before it, whatever its requests are: a read, a close. */
static void RING_of_requests_of_all_kinds(void **state)
{
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK), other = efd_new(0, EFD_NONBLOCK);
	int result[4] = {1, 1, 1, 1};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};
	struct io_uring_sqe *s;
	uint64_t v = 0;

	(void)state;
	assert_ok(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev));
	is_not_ready(ep);
	efd_add(fd, 6);
	if (under_pollux())
		assert_true(fd_served(ep) && fd_served(fd));
	URING(u, 0);
	if (under_pollux())
		assert_true(!fd_served(ep) && !fd_served(fd));
	is_ready(ep, EPOLLIN, 3);
	want_ctl(&u, ep, EPOLL_CTL_ADD, other, &ev, 0);
	s = request(&u, IORING_OP_READ, 1);
	s->fd = fd;
	s->addr = (uintptr_t)&v;
	s->len = sizeof(v);
	s = request(&u, IORING_OP_CLOSE, 2);
	s->fd = fd;
	submit(&u, result);
	assert_int_equal(result[0], 0);
	assert_int_equal(result[1], 8);
	assert_int_equal(result[2], 0);
	assert_int_equal(v, 6);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	is_not_ready(ep);
	efd_add(other, 1);
	is_ready(ep, EPOLLIN, 3);
	close(other);
	close(ep);
	uring_closed(&u);
}

/* Both processes have what was registered before. */
static void EP_KEY_09_by_a_ring_before_a_fork(void **state)
{
	URING(u, 0);
	struct subject s = subject_ready(KIND_EVENTFD);
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 9};
	int ep = ep_new();
	pid_t child;

	(void)state;
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, s.fd, &ev), 0);
	is_ready(ep, EPOLLIN, 9);
	child = fork();
	if (child == 0) {
		struct epoll_event got;

		_exit(epoll_wait(ep, &got, 1, 0) == 1 && got.data.u64 == 9 ? 0 : 1);
	}
	child_passes(child);
	assert_int_equal(one(&u, ep, EPOLL_CTL_DEL, s.fd, NULL), 0);
	is_not_ready(ep);
	subject_close(&s);
	close(ep);
	uring_closed(&u);
}

int main(void)
{
	const struct CMUnitTest uring_ctl[] = {
		/* First: after it nothing is served any more. */
		cmocka_unit_test(RING_of_requests_of_all_kinds),
		cmocka_unit_test(RING_requests_in_batches),
		cmocka_unit_test(RING_without_an_array),
		kind_unit_tests(EP_CTL_11_by_a_ring),
		cmocka_unit_test(RING_tries_again_in_several_threads),
		cmocka_unit_test(RING_requests_for_what_is_closed),
		cmocka_unit_test(RING_requests_behind_one_that_fails),
		cmocka_unit_test(EP_KEY_09_by_a_ring_before_a_fork),
	};

	return run_group(uring_ctl);
}
