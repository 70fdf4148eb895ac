/* SPDX-License-Identifier: MIT */
/*
 * Registrations by a ring of io_uring made for that (as event loops do it): each request is the
 * epoll_ctl of the same arguments, and what comes of the sets afterwards is the same.
 */
#include "uring.h"

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
	if (under_pollux())
		assert_true(fd_served(ep) && fd_served(s[0].fd));
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

/* As a loop finds out that a file of the kernel's is in its set. Nothing is given up for that. */
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
	if (under_pollux())
		assert_true(fd_served(ep) && fd_served(fd));
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

/* The same request once more, by its place. */
static void want_again(struct uring *u, unsigned int at)
{
	unsigned int *tail = sq_word(u, u->par.sq_off.tail);

	sq_word(u, u->par.sq_off.array)[*tail & (u->par.sq_entries - 1)] = at;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	u->pending++;
}

/* The kernel writes to none, so a program may keep and repeat them. */
static void RING_requests_stay_as_they_are(void **state)
{
	URING(u, 0);
	int ep = ep_new(), fd = efd_new(1, EFD_NONBLOCK), result[2];
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};
	struct io_uring_sqe kept[2];

	(void)state;
	want_ctl(&u, ep, EPOLL_CTL_ADD, fd, &ev, 0);
	want_ctl(&u, ep, EPOLL_CTL_DEL, fd, NULL, 1);
	memcpy(kept, u.requests, sizeof(kept));
	for (int i = 0; i < 3; i++) {
		result[0] = result[1] = 1;
		submit(&u, result);
		assert_int_equal(result[0], 0);
		assert_int_equal(result[1], 0);
		assert_memory_equal(kept, u.requests, sizeof(kept));
		is_not_ready(ep);
		want_again(&u, 0);
		want_again(&u, 1);
	}
	if (under_pollux())
		assert_true(fd_served(ep) && fd_served(fd));
	close(fd);
	close(ep);
	uring_closed(&u);
}

static void ring_refuses_an_enter(void)
{
	URING(u, 0);
	int ep = ep_new(), fd = efd_new(1, EFD_NONBLOCK);
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};

	want_ctl(&u, ep, EPOLL_CTL_ADD, fd, &ev, 0);
	assert_int_equal(uring_call(&u, SYS_io_uring_enter, u.fd, 1, 0, 1u << 30, 0, 0), -EINVAL);
	is_not_ready(ep);
	assert_int_equal(raw_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 4), 0);
	is_ready(ep, EPOLLIN, 4);
	close(fd);
	close(ep);
	uring_closed(&u);
}

/* The kernel does not come to what is behind it. */
static void ring_refuses_a_request(void)
{
	URING(u, 0);
	int ep = ep_new(), fd = efd_new(1, EFD_NONBLOCK), result[2] = {1, 1};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};
	struct io_uring_sqe *bad = request(&u, IORING_OP_EPOLL_CTL, 0);

	bad->fd = ep;
	bad->len = EPOLL_CTL_ADD;
	bad->off = (uint64_t)fd;
	bad->addr = (uintptr_t)&ev;
	bad->buf_index = 1;
	want_ctl(&u, ep, EPOLL_CTL_ADD, fd, &ev, 1);
	assert_int_equal(uring_call(&u, SYS_io_uring_enter, u.fd, 2, 0, 0, 0, 0), 1);
	results(&u, result);
	assert_int_equal(result[0], -EINVAL);
	assert_int_equal(result[1], 1);
	is_not_ready(ep);
	close(fd);
	close(ep);
	uring_closed(&u);
}

static void ring_the_same_twice(void)
{
	URING(u, 0);
	int ep = ep_new(), fd = efd_new(1, EFD_NONBLOCK), result[1] = {1};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};

	want_ctl(&u, ep, EPOLL_CTL_ADD, fd, &ev, 0);
	want_again(&u, 0);
	/* That of the second. */
	submit(&u, result);
	assert_int_equal(result[0], -EEXIST);
	is_ready(ep, EPOLLIN, 3);
	close(fd);
	close(ep);
	uring_closed(&u);
}

/* The kernel has the requests, whatever the program has mapped. */
static void ring_is_not_mapped_any_more(void)
{
	URING(u, 0);
	int ep = ep_new(), fd = efd_new(1, EFD_NONBLOCK);
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};

	want_ctl(&u, ep, EPOLL_CTL_ADD, fd, &ev, 0);
	assert_ok(munmap(u.requests, u.par.sq_entries * sizeof(*u.requests)));
	assert_ok(munmap(u.sq, u.size));
	assert_int_equal(
		uring_call(&u, SYS_io_uring_enter, u.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0), 1);
	is_ready(ep, EPOLLIN, 3);
	close(fd);
	close(ep);
	close(u.fd);
}

static void ring_is_read_only(void)
{
	URING(u, 0);
	int ep = ep_new(), fd = efd_new(1, EFD_NONBLOCK), result[1] = {1};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};

	want_ctl(&u, ep, EPOLL_CTL_ADD, fd, &ev, 0);
	assert_ok(mprotect(u.requests, u.par.sq_entries * sizeof(*u.requests), PROT_READ));
	submit(&u, result);
	assert_int_equal(result[0], 0);
	is_ready(ep, EPOLLIN, 3);
	close(fd);
	close(ep);
	uring_closed(&u);
}

/* Told of more than there is, the kernel waits for nothing. */
static void RING_is_told_of_more(void **state)
{
	URING(u, 0);
	int ep = ep_new(), fd = efd_new(1, EFD_NONBLOCK), result[1] = {1};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};

	(void)state;
	want_ctl(&u, ep, EPOLL_CTL_ADD, fd, &ev, 0);
	assert_int_equal(
		uring_call(&u, SYS_io_uring_enter, u.fd, 4, 5, IORING_ENTER_GETEVENTS, 0, 0), 1);
	results(&u, result);
	assert_int_equal(result[0], 0);
	assert_int_equal(
		uring_call(&u, SYS_io_uring_enter, u.fd, 4, 5, IORING_ENTER_GETEVENTS, 0, 0), 0);
	is_ready(ep, EPOLLIN, 3);
	if (under_pollux())
		assert_true(fd_served(ep) && fd_served(fd));
	close(fd);
	close(ep);
	uring_closed(&u);
}

static struct uring sleeps;

static void wants_the_next(int sig)
{
	(void)sig;
	request(&sleeps, IORING_OP_NOP, 1);
}

static void *interrupts(void *thread)
{
	usleep(50000);
	pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

/* The places of requests are the program's again as soon as they have been taken. */
static void RING_sleeps_when_the_next_is_written(void **state)
{
	struct sigaction sa = {.sa_handler = wants_the_next}, before;
	int ep = ep_new(), fd = efd_new(1, EFD_NONBLOCK), result[2] = {1, 1};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};
	pthread_t self = pthread_self(), t;

	(void)state;
	if (SANITIZED == 2)
		SKIP("ThreadSanitizer runs handlers where it likes");
	if (!uring_made(&sleeps, 0))
		SKIP("no io_uring for this user");
	assert_ok(sigaction(SIGUSR1, &sa, &before));
	/* All places are taken: the next has that of the first. */
	for (int i = 0; i < ENTRIES; i++)
		want_ctl(&sleeps, ep, i ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &ev, 0);
	sleeps.pending = 0;
	assert_int_equal(pthread_create(&t, NULL, interrupts, &self), 0);
	assert_int_equal(uring_call(&sleeps, SYS_io_uring_enter, sleeps.fd, ENTRIES, ENTRIES + 1,
				    IORING_ENTER_GETEVENTS, 0, 0),
			 ENTRIES);
	assert_int_equal(pthread_join(t, NULL), 0);
	sleeps.pending = 1;
	submit(&sleeps, result);
	assert_int_equal(result[1], 0);
	assert_ok(sigaction(SIGUSR1, &before, NULL));
	close(fd);
	close(ep);
	uring_closed(&sleeps);
}

/* Each in a child: after it nothing is served any more. */
#define IN_A_CHILD(name)                                                                           \
	static void RING_##name(void **state)                                                      \
	{                                                                                          \
		pid_t child = fork_bounded();                                                      \
                                                                                                   \
		(void)state;                                                                       \
		if (child == 0) {                                                                  \
			ring_##name();                                                             \
			_exit(0);                                                                  \
		}                                                                                  \
		child_passes(child);                                                               \
	}
IN_A_CHILD(refuses_an_enter)
IN_A_CHILD(refuses_a_request)
IN_A_CHILD(the_same_twice)
IN_A_CHILD(is_not_mapped_any_more)
IN_A_CHILD(is_read_only)

/* Other requests name the same descriptors: a read, a poll, a close. */
static void RING_of_requests_of_all_kinds(void **state)
{
	URING(u, 0);
	int ep = ep_new(), fd = efd_new(0, EFD_NONBLOCK), other = efd_new(0, EFD_NONBLOCK);
	int result[4] = {1, 1, 1, 1};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 3};
	struct io_uring_sqe *s;
	uint64_t v = 0;

	(void)state;
	assert_int_equal(one(&u, ep, EPOLL_CTL_ADD, fd, &ev), 0);
	is_not_ready(ep);
	efd_add(fd, 6);
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
		cmocka_unit_test(RING_requests_in_batches),
		cmocka_unit_test(RING_without_an_array),
		kind_unit_tests(EP_CTL_11_by_a_ring),
		cmocka_unit_test(RING_tries_again_in_several_threads),
		cmocka_unit_test(RING_requests_for_what_is_closed),
		cmocka_unit_test(RING_requests_behind_one_that_fails),
		cmocka_unit_test(RING_requests_stay_as_they_are),
		cmocka_unit_test(RING_is_told_of_more),
		cmocka_unit_test(RING_sleeps_when_the_next_is_written),
		cmocka_unit_test(EP_KEY_09_by_a_ring_before_a_fork),
		cmocka_unit_test(RING_refuses_an_enter),
		cmocka_unit_test(RING_refuses_a_request),
		cmocka_unit_test(RING_the_same_twice),
		cmocka_unit_test(RING_is_not_mapped_any_more),
		cmocka_unit_test(RING_is_read_only),
		/* Last: after it nothing is served any more. */
		cmocka_unit_test(RING_of_requests_of_all_kinds),
	};

	return run_group(uring_ctl);
}
