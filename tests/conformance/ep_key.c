/* SPDX-License-Identifier: MIT */
/* EP-KEY: what an item is known by, and how long it lives. */
#include "waiting.h"

#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <sys/mman.h>

/* Signals s when its first descriptor is gone and d is another one for the same file. */
static void poke_via(const struct subject *s, int d)
{
	assert_true(kind_write(s->kind, s->kind == KIND_EVENTFD ? d : s->peer));
}

static void close_fd(struct subject *s)
{
	assert_ok(close(s->fd));
	s->fd = -1;
}

/* Opens eventfds until one has the number want, which must be free. */
static int reuse_number(int want)
{
	int extra[64], n = 0, fd;

	for (;;) {
		fd = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (fd == want)
			break;
		assert_uint_in_range(n, 0, 63);
		extra[n++] = fd;
	}
	while (n > 0)
		close(extra[--n]);
	return fd;
}

/* Gives the free number want to a new file of this kind. */
static struct subject sub_at(enum kind kind, int want)
{
	struct subject s = subject_new(kind);

	if (s.fd != want) {
		assert_ok(dup3(s.fd, want, O_CLOEXEC));
		close(s.fd);
		s.fd = want;
	}
	return s;
}

static void EP_KEY_01_number_and_file_make_the_key(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	struct epoll_event ev[4];
	int ep = ep_new(), d = dup_of(s.fd), old = s.fd;

	ep_add(ep, s.fd, EPOLLIN, 1);
	assert_errno(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 1), EEXIST);
	/* The same file under another number is another key. */
	assert_errno(epoll_ctl(ep, EPOLL_CTL_DEL, d, NULL), ENOENT);
	assert_errno(ep_ctl(ep, EPOLL_CTL_MOD, d, EPOLLIN, 1), ENOENT);
	ep_add(ep, d, EPOLLIN, 2);
	subject_fill(&s);
	assert_int_equal(ep_poll(ep, ev, 4), 2);
	ep_mod(ep, s.fd, 0, 1);
	assert_true(ep_one(ep, EPOLLIN, 2));
	ep_del(ep, d);
	assert_int_equal(ep_count(ep), 0);
	ep_mod(ep, s.fd, EPOLLIN, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	/* Another file under the same number as well; the first key is out of reach. */
	close_fd(&s);
	for (int k = 0; k < KIND_SOCKET + 1; k++) {
		struct subject other = sub_at(k, old);

		assert_errno(epoll_ctl(ep, EPOLL_CTL_DEL, old, NULL), ENOENT);
		assert_errno(ep_ctl(ep, EPOLL_CTL_MOD, old, EPOLLIN, 1), ENOENT);
		subject_close(&other);
	}
	assert_true(ep_one(ep, EPOLLIN, 1));
	close(d);
	assert_int_equal(ep_count(ep), 0);
	subject_close(&s);
	close(ep);
}

/* The calls of libc and the numbered calls work on the same items. */
static void EP_KEY_01_numbered_calls_know_the_same_items(void **state)
{
	int ep = (int)assert_ok(syscall(SYS_epoll_create1, EPOLL_CLOEXEC));
	int fd = (int)assert_ok(syscall(SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC)), d;
	struct subject s = subject_new(KIND_OF(state));
	uint64_t v = 2;

	ep_add(ep, fd, EPOLLIN, 1);
	assert_errno(raw_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1), EEXIST);
	assert_ok(raw_ctl(ep, EPOLL_CTL_MOD, fd, EPOLLIN, 2));
	assert_ok(raw_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 3));
	assert_errno(ep_ctl(ep, EPOLL_CTL_ADD, s.fd, EPOLLIN, 3), EEXIST);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 3));
	ep_del(ep, s.fd);
	assert_errno(raw_ctl(ep, EPOLL_CTL_DEL, s.fd, 0, 0), ENOENT);
	assert_int_equal(syscall(SYS_write, fd, &v, sizeof(v)), 8);
	assert_true(ep_one(ep, EPOLLIN, 2));
	/* A duplicate made by number keeps the item, and its close by number removes it. */
	d = (int)assert_ok(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0));
	assert_errno(raw_ctl(ep, EPOLL_CTL_DEL, d, 0, 0), ENOENT);
	assert_ok(syscall(SYS_close, fd));
	assert_true(ep_one(ep, EPOLLIN, 2));
	assert_int_equal(syscall(SYS_read, d, &v, sizeof(v)), 8);
	assert_int_equal(v, 2);
	assert_int_equal(ep_count(ep), 0);
	efd_add(d, 1);
	assert_true(ep_one(ep, EPOLLIN, 2));
	assert_ok(syscall(SYS_close, d));
	assert_int_equal(ep_count(ep), 0);
	subject_close(&s);
	assert_ok(syscall(SYS_close, ep));
}

static void EP_KEY_02_item_outlives_its_number(void **state)
{
	static const uint32_t flags[] = {0, EPOLLET, EPOLLONESHOT};

	for (int f = 0; f < 3; f++) {
		struct subject s = subject_new(KIND_OF(state));
		int ep = ep_new(), d = dup_of(s.fd);
		struct waiter t;

		ep_add(ep, s.fd, EPOLLIN | flags[f], 77);
		close_fd(&s);
		assert_int_equal(ep_count(ep), 0);
		waiter_sleep(&t, BY_WAIT, ep, -1, NULL);
		poke_via(&s, d);
		waiter_collected(&t, 77);
		assert_int_equal(t.ev[0].events, EPOLLIN);
		assert_int_equal(ep_count(ep), flags[f] == 0 ? 1 : 0);
		drain_fd(d);
		poke_via(&s, d);
		assert_int_equal(ep_count(ep), flags[f] == EPOLLONESHOT ? 0 : 1);
		close(d);
		assert_int_equal(ep_count(ep), 0);
		subject_close(&s);
		close(ep);
	}
}

/* Closed while the event waits in the list: it is still delivered. */
static void EP_KEY_02_queued_event_of_an_orphan_is_delivered(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int ep = ep_new(), d = dup_of(s.fd);

	ep_add(ep, s.fd, EPOLLIN | EPOLLET, 5);
	subject_fill(&s);
	close_fd(&s);
	assert_true(ep_one(ep, EPOLLIN, 5));
	assert_int_equal(ep_count(ep), 0);
	close(d);
	subject_close(&s);
	close(ep);
}

static void EP_KEY_02_orphan_in_a_nested_epoll(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int inner = ep_new(), outer = ep_new(), d = dup_of(s.fd), di = dup_of(inner);

	ep_add(inner, s.fd, EPOLLIN, 5);
	ep_add(outer, inner, EPOLLIN, 6);
	close_fd(&s);
	close(inner);
	poke_via(&s, d);
	assert_true(ep_one(outer, EPOLLIN, 6));
	assert_true(ep_one(di, EPOLLIN, 5));
	close(d);
	assert_int_equal(ep_count(outer), 0);
	close(di);
	subject_close(&s);
	close(outer);
}

static void EP_KEY_03_orphan_is_out_of_reach(void **state)
{
	struct subject s = subject_new(KIND_OF(state)), other;
	struct epoll_event ev[4];
	int ep = ep_new(), d = dup_of(s.fd), old = s.fd;

	ep_add(ep, s.fd, EPOLLIN, 1);
	close_fd(&s);
	assert_errno(epoll_ctl(ep, EPOLL_CTL_DEL, old, NULL), EBADF);
	assert_errno(ep_ctl(ep, EPOLL_CTL_MOD, old, EPOLLIN, 1), EBADF);
	assert_errno(ep_ctl(ep, EPOLL_CTL_ADD, old, EPOLLIN, 1), EBADF);
	assert_errno(epoll_ctl(ep, EPOLL_CTL_DEL, d, NULL), ENOENT);
	assert_errno(ep_ctl(ep, EPOLL_CTL_MOD, d, EPOLLIN, 1), ENOENT);
	for (int k = 0; k < KIND_SOCKET + 1; k++) {
		other = sub_at(k, old);
		assert_errno(epoll_ctl(ep, EPOLL_CTL_DEL, old, NULL), ENOENT);
		assert_errno(ep_ctl(ep, EPOLL_CTL_MOD, old, EPOLLIN, 1), ENOENT);
		/* DEL acts on the item of the file that has the number now. */
		ep_add(ep, old, EPOLLIN, 2);
		poke_via(&s, d);
		subject_fill(&other);
		assert_int_equal(ep_poll(ep, ev, 4), 2);
		ep_del(ep, old);
		assert_true(ep_one(ep, EPOLLIN, 1));
		drain_fd(d);
		assert_int_equal(ep_count(ep), 0);
		subject_close(&other);
	}
	close(d);
	subject_close(&s);
	close(ep);
}

static void EP_KEY_04_dup_back_brings_it_into_reach(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int ep = ep_new(), d = dup_of(s.fd), old = s.fd;

	ep_add(ep, s.fd, EPOLLIN, 1);
	assert_ok(close(old));
	assert_errno(ep_ctl(ep, EPOLL_CTL_MOD, old, EPOLLIN, 9), EBADF);
	assert_int_equal(dup2(d, old), old);
	assert_errno(ep_ctl(ep, EPOLL_CTL_ADD, old, EPOLLIN, 9), EEXIST);
	ep_mod(ep, old, EPOLLIN, 9);
	close(d);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 9));
	ep_del(ep, old);
	assert_int_equal(ep_count(ep), 0);
	assert_errno(epoll_ctl(ep, EPOLL_CTL_DEL, old, NULL), ENOENT);
	subject_close(&s);
	close(ep);
}

/* Orphan and newcomer of every pair of kinds under one number. */
static void EP_KEY_05_newcomer_beside_the_orphan(void **state)
{
	for (int k = 0; k < KIND_SOCKET + 1; k++) {
		struct subject s = subject_new(KIND_OF(state)), other;
		struct epoll_event ev[4];
		int ep = ep_new(), d = dup_of(s.fd), old = s.fd;

		ep_add(ep, s.fd, EPOLLIN, 1);
		close_fd(&s);
		other = sub_at(k, old);
		ep_add(ep, old, EPOLLIN, 2);
		assert_int_equal(ep_count(ep), 0);
		poke_via(&s, d);
		assert_true(ep_one(ep, EPOLLIN, 1));
		subject_fill(&other);
		assert_int_equal(ep_poll(ep, ev, 4), 2);
		drain_fd(d);
		assert_true(ep_one(ep, EPOLLIN, 2));
		ep_mod(ep, old, EPOLLIN, 3);
		assert_true(ep_one(ep, EPOLLIN, 3));
		/* The newcomer goes, the orphan stays, and the other way round. */
		subject_close(&other);
		assert_int_equal(ep_count(ep), 0);
		poke_via(&s, d);
		assert_true(ep_one(ep, EPOLLIN, 1));
		other = sub_at(k, old);
		ep_add(ep, old, EPOLLIN, 4);
		subject_fill(&other);
		assert_int_equal(ep_poll(ep, ev, 4), 2);
		close(d);
		assert_true(ep_one(ep, EPOLLIN, 4));
		subject_close(&other);
		subject_close(&s);
		close(ep);
	}
}

/* The number comes back from the kernel itself, round after round. */
static void EP_KEY_05_number_is_reused_at_once(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int ep = ep_new(), n = s.fd;

	ep_add(ep, n, EPOLLIN, 1000);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 1000));
	subject_close(&s);
	assert_int_equal(ep_count(ep), 0);
	for (uint64_t round = 0; round < 50; round++) {
		n = reuse_number(n);
		assert_errno(epoll_ctl(ep, EPOLL_CTL_DEL, n, NULL), ENOENT);
		ep_add(ep, n, EPOLLIN, round);
		assert_int_equal(ep_count(ep), 0);
		efd_add(n, 1);
		assert_true(ep_one(ep, EPOLLIN, round));
		close(n);
		assert_int_equal(ep_count(ep), 0);
	}
	close(ep);
}

enum closing {
	BY_CLOSE,
	BY_RAW_CLOSE,
	BY_CLOSE_RANGE,
	BY_RAW_CLOSE_RANGE,
	BY_FCLOSE,
	BY_DUP2,
	BY_DUP3,
	BY_RAW_DUP3,
	CLOSINGS,
};

/* Drops the descriptor; for dup2 and its like the number is afterwards that of an eventfd. */
static void close_by(enum closing how, int fd)
{
	int other = -1;
	FILE *f;

	switch (how) {
	case BY_CLOSE:
		assert_ok(close(fd));
		break;
	case BY_RAW_CLOSE:
		assert_ok(syscall(SYS_close, fd));
		break;
	case BY_CLOSE_RANGE:
		assert_ok(close_range((unsigned int)fd, (unsigned int)fd, 0));
		break;
	case BY_RAW_CLOSE_RANGE:
		assert_ok(syscall(SYS_close_range, fd, fd, 0));
		break;
	case BY_FCLOSE:
		f = fdopen(fd, "r");
		assert_non_null(f);
		assert_int_equal(fclose(f), 0);
		break;
	default:
		other = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (how == BY_DUP2)
			assert_int_equal(dup2(other, fd), fd);
		else if (how == BY_DUP3)
			assert_int_equal(dup3(other, fd, O_CLOEXEC), fd);
		else
			assert_int_equal(syscall(SYS_dup3, other, fd, O_CLOEXEC), fd);
		close(other);
	}
}

/* The last descriptor of s goes by how: no epoll knows the file any more. */
static void check_closing(enum kind kind, enum closing how)
{
	struct subject s = subject_new(kind), later;
	int a = ep_new(), b = ep_new(), outer = ep_new(), old = s.fd;

	ep_add(outer, a, EPOLLIN, 3);
	ep_add(a, s.fd, EPOLLIN, 1);
	ep_add(b, s.fd, EPOLLIN | EPOLLET, 2);
	ep_add(outer, s.fd, EPOLLIN | EPOLLONESHOT, 4);
	subject_fill(&s);
	close_by(how, s.fd);
	s.fd = -1;
	assert_int_equal(ep_count(a), 0);
	assert_int_equal(ep_count(b), 0);
	assert_int_equal(ep_count(outer), 0);
	if (how >= BY_DUP2) {
		assert_errno(epoll_ctl(a, EPOLL_CTL_DEL, old, NULL), ENOENT);
		close(old);
	}
	assert_errno(epoll_ctl(b, EPOLL_CTL_DEL, old, NULL), EBADF);
	later = sub_at(kind, old);
	assert_errno(epoll_ctl(a, EPOLL_CTL_DEL, old, NULL), ENOENT);
	assert_errno(ep_ctl(outer, EPOLL_CTL_MOD, old, EPOLLIN, 1), ENOENT);
	ep_add(b, old, EPOLLIN, 9);
	subject_fill(&later);
	assert_true(ep_one(b, EPOLLIN, 9));
	assert_int_equal(ep_count(outer), 0);
	subject_close(&later);
	subject_close(&s);
	close(a);
	close(b);
	close(outer);
}

static void EP_KEY_06_last_close_removes_all_items(void **state)
{
	for (int how = BY_CLOSE; how < BY_DUP2; how++)
		check_closing(KIND_OF(state), how);
}

static void EP_KEY_08_dup_onto_the_number_is_a_close(void **state)
{
	for (int how = BY_DUP2; how < CLOSINGS; how++)
		check_closing(KIND_OF(state), how);
}

static void EP_KEY_06_other_items_of_the_set_stay(void **state)
{
	struct subject s[6];
	int ep = ep_new();

	(void)state;
	for (int i = 0; i < 6; i++) {
		s[i] = subject_new(i % KIND_SOCKET + 1);
		ep_add(ep, s[i].fd, EPOLLIN, (uint64_t)i);
		subject_fill(&s[i]);
	}
	for (int i = 0; i < 5; i++) {
		struct epoll_event ev[8];
		int n;

		subject_close(&s[i]);
		n = ep_poll(ep, ev, 8);
		assert_int_equal(n, 5 - i);
		for (int k = 0; k < n; k++)
			assert_true(ev[k].data.u64 > (uint64_t)i);
	}
	subject_close(&s[5]);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
}

struct reader {
	struct test_thread t;
	int fd;
	ssize_t ret;
	int err;
};

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	uint64_t v;

	r->ret = read(r->fd, &v, sizeof(v));
	r->err = errno;
	return NULL;
}

static void do_nothing(int sig)
{
	(void)sig;
}

/*
 * A read that sleeps in another thread holds the file; the item goes when the
 * read ends. The file must be ready for something all the while, so the read
 * end of a pipe is no subject here.
 */
static void EP_KEY_07_call_in_progress_keeps_the_item(void **state)
{
	static const enum kind kinds[] = {KIND_EVENTFD, KIND_SOCKET};
	struct sigaction sa = {.sa_handler = do_nothing}, old;

	(void)state;
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	for (int k = 0; k < 2; k++) {
		struct subject s = subject_new(kinds[k]);
		struct reader r = {.fd = s.fd};
		int ep = ep_new();

		assert_ok(fcntl(s.fd, F_SETFL, 0));
		ep_add(ep, s.fd, EPOLLOUT, 8);
		thread_start(&r.t, reader_main, &r);
		assert_true(thread_asleep(&r.t));
		assert_true(ep_one(ep, EPOLLOUT, 8));
		close_fd(&s);
		assert_true(ep_one(ep, EPOLLOUT, 8));
		assert_errno(epoll_ctl(ep, EPOLL_CTL_DEL, r.fd, NULL), EBADF);
		assert_true(thread_asleep(&r.t));
		assert_true(ep_one(ep, EPOLLOUT, 8));
		assert_int_equal(pthread_kill(r.t.id, SIGUSR1), 0);
		assert_true(thread_join(&r.t, SOON_MS));
		assert_int_equal(r.ret, -1);
		assert_int_equal(r.err, EINTR);
		assert_int_equal(ep_count(ep), 0);
		subject_close(&s);
		close(ep);
	}
	assert_ok(sigaction(SIGUSR1, &old, NULL));
}

static void send_fd(int sock, int fd)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} u;
	char c = 'f';
	struct iovec v = {&c, 1};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = u.room,
			   .msg_controllen = sizeof(u.room)};

	memset(&u, 0, sizeof(u));
	u.h.cmsg_level = SOL_SOCKET;
	u.h.cmsg_type = SCM_RIGHTS;
	u.h.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&u.h), &fd, sizeof(fd));
	assert_int_equal(sendmsg(sock, &m, 0), 1);
}

static int receive_fd(int sock)
{
	union {
		struct cmsghdr h;
		char room[CMSG_SPACE(sizeof(int))];
	} u;
	char c;
	int fd = -1;
	struct iovec v = {&c, 1};
	struct msghdr m = {.msg_iov = &v,
			   .msg_iovlen = 1,
			   .msg_control = u.room,
			   .msg_controllen = sizeof(u.room)};

	memset(&u, 0, sizeof(u));
	assert_int_equal(recvmsg(sock, &m, MSG_CMSG_CLOEXEC), 1);
	assert_int_equal(u.h.cmsg_type, SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(&u.h), sizeof(fd));
	return fd;
}

static bool soon_empty(int ep)
{
	int64_t end = now_ms() + SOON_MS;

	while (ep_count(ep) != 0) {
		if (now_ms() >= end)
			return false;
		sleep_ms(1);
	}
	return true;
}

static void *cancelled_main(void *arg)
{
	/* The address sanitizer takes the frames of a cancelled thread for live ones. */
	static uint64_t v;

	return (void *)(intptr_t)read(*(int *)arg, &v, sizeof(v));
}

/* A call that its thread's cancellation has ended is in progress no more. */
static void EP_KEY_07_a_cancelled_call_keeps_nothing(void **state)
{
	int ep = (int)assert_ok(epoll_create1(0)), fd = efd_new(0, 0);
	struct test_thread t;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	thread_start(&t, cancelled_main, &fd);
	assert_true(thread_asleep(&t));
	assert_int_equal(pthread_cancel(t.id), 0);
	assert_true(thread_join(&t, SOON_MS));
	efd_add(fd, 1);
	close(fd);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
}

static void EP_KEY_07_descriptor_in_flight_keeps_the_item(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int ep = ep_new(), pair[2], d;

	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
	ep_add(ep, s.fd, EPOLLIN, 6);
	subject_fill(&s);
	send_fd(pair[0], s.fd);
	close_fd(&s);
	assert_true(ep_one(ep, EPOLLIN, 6));
	/* It arrives under some number, as the file it was. */
	d = receive_fd(pair[1]);
	assert_true(ep_one(ep, EPOLLIN, 6));
	drain_fd(d);
	assert_int_equal(ep_count(ep), 0);
	poke_via(&s, d);
	assert_true(ep_one(ep, EPOLLIN, 6));
	/* The second flight ends nowhere. */
	send_fd(pair[0], d);
	close(d);
	assert_true(ep_one(ep, EPOLLIN, 6));
	close(pair[0]);
	close(pair[1]);
	assert_true(soon_empty(ep));
	subject_close(&s);
	close(ep);
}

static void EP_KEY_07_mapping_keeps_the_item(void **state)
{
	struct io_uring_params p;
	struct subject s = subject_new(KIND_OF(state));
	int fd, ep = ep_new();
	void *m = MAP_FAILED;
	size_t size = 0;

	memset(&p, 0, sizeof(p));
	fd = (int)syscall(SYS_io_uring_setup, 1, &p);
	if (fd >= 0) {
		size = p.sq_off.array + p.sq_entries * sizeof(uint32_t);
		m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
	}
	if (m == MAP_FAILED) {
		print_message("skipped: no file here that can be mapped and polled (io_uring)\n");
		subject_close(&s);
		close(ep);
		skip();
	}
	/* Beside an item of another kind, as in a mixed set. */
	ep_add(ep, s.fd, EPOLLIN, 1);
	ep_add(ep, fd, EPOLLOUT, 2);
	assert_true(ep_one(ep, EPOLLOUT, 2));
	close(fd);
	assert_true(ep_one(ep, EPOLLOUT, 2));
	munmap(m, size);
	assert_int_equal(ep_count(ep), 0);
	subject_fill(&s);
	assert_true(ep_one(ep, EPOLLIN, 1));
	subject_close(&s);
	close(ep);
}

/* A request that waits for IN keeps the file, which is all the time ready for OUT. */
static void EP_KEY_07_pending_aio_keeps_the_item(void **state)
{
	enum kind kind = KIND_OF(state);
	struct subject s = subject_new(kind == KIND_PIPE ? KIND_SOCKET : kind);
	aio_context_t ctx = 0;
	struct iocb cb = {
		.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = (uint32_t)s.fd, .aio_buf = POLLIN};
	struct iocb *list[] = {&cb};
	int ep = ep_new();

	if (aio_setup_in_turn(1, &ctx) != 0) {
		print_message("skipped: no AIO here\n");
		subject_close(&s);
		close(ep);
		skip();
	}
	ep_add(ep, s.fd, EPOLLOUT, 2);
	assert_int_equal(syscall(SYS_io_submit, ctx, 1, list), 1);
	close_fd(&s);
	assert_true(ep_one(ep, EPOLLOUT, 2));
	assert_int_equal(syscall(SYS_io_destroy, ctx), 0);
	assert_true(soon_empty(ep));
	subject_close(&s);
	close(ep);
}

static char *self_args[] = {"ep_key", "--after-exec", NULL, NULL, NULL};

/* What is left in the epoll fd after an execve: exactly the item with data want, or nothing. */
static int after_exec(int ep, int want)
{
	struct epoll_event ev[8];
	int n = epoll_wait(ep, ev, 8, 0);

	child_check(n == (want != 0));
	child_check(n == 0 || ev[0].data.u64 == (uint64_t)want);
	return 0;
}

struct exec_job {
	enum kind kind;
	bool keep; /* a duplicate of the second file goes through the execve */
};

static int child_open(enum kind kind, int *peer)
{
	int p[2] = {-1, -1};

	if (kind == KIND_EVENTFD) {
		*peer = -1;
		return eventfd(1, EFD_CLOEXEC);
	}
	if (kind == KIND_PIPE)
		child_check(pipe2(p, O_CLOEXEC) == 0);
	else
		child_check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) == 0);
	child_check(write(p[1], "x", 1) == 1);
	*peer = p[1];
	return p[0];
}

static int child_execs(void *arg)
{
	struct exec_job *job = arg;
	int ep = epoll_create1(0), a, b, pa, pb;
	char number[16];

	child_check(ep >= 0);
	a = child_open(job->kind, &pa);
	b = child_open(job->kind, &pb);
	child_check(ep_ctl(ep, EPOLL_CTL_ADD, a, EPOLLIN, 1) == 0);
	child_check(ep_ctl(ep, EPOLL_CTL_ADD, b, EPOLLIN, 2) == 0);
	child_check(ep_count(ep) == 2);
	if (job->keep)
		child_check(dup(b) >= 0);
	snprintf(number, sizeof(number), "%d", ep);
	self_args[2] = number;
	self_args[3] = job->keep ? "2" : "0";
	execv("/proc/self/exe", self_args);
	return CHILD_FAILED;
}

static void EP_KEY_08_close_by_exec(void **state)
{
	for (int keep = 0; keep < 2; keep++) {
		struct exec_job job = {.kind = KIND_OF(state), .keep = keep == 1};

		child_passes(child_start(child_execs, &job));
	}
}

/* What parent and child of a fork share in the tests below, and how they take turns. */
struct family {
	struct subject s;
	int ep;
	int to_child[2];
	int to_parent[2];
	int extra;
};

static void family_open(struct family *f, enum kind kind)
{
	f->s = subject_new(kind);
	f->ep = ep_new();
	f->extra = -1;
	assert_ok(pipe2(f->to_child, O_CLOEXEC));
	assert_ok(pipe2(f->to_parent, O_CLOEXEC));
	ep_add(f->ep, f->s.fd, EPOLLIN, 1);
}

static void family_close(struct family *f)
{
	for (int i = 0; i < 2; i++) {
		close(f->to_child[i]);
		close(f->to_parent[i]);
	}
	if (f->extra >= 0)
		close(f->extra);
	subject_close(&f->s);
	close(f->ep);
}

/* One side tells the other to go on; reads end when the other side has died. */
static bool tell(int fd)
{
	return write(fd, "!", 1) == 1;
}

static bool await(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char c;

	return poll(&p, 1, SOON_MS) == 1 && read(fd, &c, 1) == 1;
}

static int child_adds_again(void *arg)
{
	struct family *f = arg;

	errno = 0;
	child_check(ep_ctl(f->ep, EPOLL_CTL_ADD, f->s.fd, EPOLLIN, 2) == -1);
	child_check(errno == EEXIST);
	child_check(ep_ctl(f->ep, EPOLL_CTL_MOD, f->s.fd, EPOLLIN, 3) == 0);
	return 0;
}

static void EP_KEY_09_child_finds_the_item(void **state)
{
	struct family f;

	family_open(&f, KIND_OF(state));
	child_passes(child_start(child_adds_again, &f));
	/* The MOD of the child is seen here. */
	subject_fill(&f.s);
	assert_true(ep_one(f.ep, EPOLLIN, 3));
	family_close(&f);
}

static int child_deletes(void *arg)
{
	struct family *f = arg;

	child_check(epoll_ctl(f->ep, EPOLL_CTL_DEL, f->s.fd, NULL) == 0);
	return 0;
}

static void EP_KEY_09_del_in_the_child_removes_for_both(void **state)
{
	struct family f;

	family_open(&f, KIND_OF(state));
	subject_fill(&f.s);
	assert_true(ep_one(f.ep, EPOLLIN, 1));
	child_passes(child_start(child_deletes, &f));
	assert_int_equal(ep_count(f.ep), 0);
	assert_errno(epoll_ctl(f.ep, EPOLL_CTL_DEL, f.s.fd, NULL), ENOENT);
	ep_add(f.ep, f.s.fd, EPOLLIN, 2);
	assert_true(ep_one(f.ep, EPOLLIN, 2));
	family_close(&f);
}

static int child_finds_nothing(void *arg)
{
	struct family *f = arg;

	child_check(await(f->to_child[0]));
	child_check(ep_count(f->ep) == 0);
	errno = 0;
	child_check(epoll_ctl(f->ep, EPOLL_CTL_DEL, f->s.fd, NULL) == -1);
	child_check(errno == ENOENT);
	return 0;
}

static void EP_KEY_09_del_in_the_parent_removes_for_both(void **state)
{
	struct family f;
	pid_t pid;

	family_open(&f, KIND_OF(state));
	subject_fill(&f.s);
	pid = child_start(child_finds_nothing, &f);
	ep_del(f.ep, f.s.fd);
	assert_true(tell(f.to_child[1]));
	child_passes(pid);
	family_close(&f);
}

static int child_stays(void *arg)
{
	struct family *f = arg;

	child_check(tell(f->to_parent[1]));
	child_check(await(f->to_child[0]));
	return 0;
}

static void EP_KEY_09_child_holds_the_item_until_it_exits(void **state)
{
	struct family f;
	pid_t pid;

	family_open(&f, KIND_OF(state));
	subject_fill(&f.s);
	pid = child_start(child_stays, &f);
	assert_true(await(f.to_parent[0]));
	close_fd(&f.s);
	assert_true(ep_one(f.ep, EPOLLIN, 1));
	assert_true(tell(f.to_child[1]));
	child_passes(pid);
	assert_int_equal(ep_count(f.ep), 0);
	family_close(&f);
}

static int child_closes(void *arg)
{
	struct family *f = arg;

	child_check(close(f->s.fd) == 0);
	child_check(ep_count(f->ep) == 1);
	return 0;
}

static void EP_KEY_09_close_in_the_child_leaves_the_item(void **state)
{
	struct family f;

	family_open(&f, KIND_OF(state));
	subject_fill(&f.s);
	child_passes(child_start(child_closes, &f));
	assert_true(ep_one(f.ep, EPOLLIN, 1));
	subject_drain(&f.s);
	subject_fill(&f.s);
	assert_true(ep_one(f.ep, EPOLLIN, 1));
	family_close(&f);
}

static int child_plays(void *arg)
{
	struct family *f = arg;
	struct epoll_event ev[4];

	/* The parent's event. */
	child_check(epoll_wait(f->ep, ev, 4, SOON_MS) == 1);
	child_check(ev[0].data.u64 == 1);
	drain_fd(f->s.fd);
	child_check(ep_count(f->ep) == 0);
	child_check(tell(f->to_parent[1]));
	/* One for the parent. */
	child_check(await(f->to_child[0]));
	child_check(subject_poke(&f->s));
	return 0;
}

static void EP_KEY_09_events_cross_both_ways(void **state)
{
	struct family f;
	struct waiter t;
	pid_t pid;

	family_open(&f, KIND_OF(state));
	pid = child_start(child_plays, &f);
	subject_fill(&f.s);
	assert_true(await(f.to_parent[0]));
	assert_int_equal(ep_count(f.ep), 0);
	waiter_sleep(&t, BY_WAIT, f.ep, -1, NULL);
	assert_true(tell(f.to_child[1]));
	waiter_collected(&t, 1);
	child_passes(pid);
	family_close(&f);
}

static int child_adds_its_own(void *arg)
{
	struct family *f = arg;
	int peer, fd = child_open(f->s.kind, &peer);

	child_check(fd >= 0);
	child_check(ep_ctl(f->ep, EPOLL_CTL_ADD, fd, EPOLLIN, 50) == 0);
	child_check(tell(f->to_parent[1]));
	child_check(await(f->to_child[0]));
	return 0;
}

/* An item for a file that only the child has is reported here too, while the child lives. */
static void EP_KEY_09_child_adds_a_file_of_its_own(void **state)
{
	struct family f;
	pid_t pid;

	family_open(&f, KIND_OF(state));
	pid = child_start(child_adds_its_own, &f);
	assert_true(await(f.to_parent[0]));
	assert_true(ep_one(f.ep, EPOLLIN, 50));
	assert_true(tell(f.to_child[1]));
	child_passes(pid);
	assert_int_equal(ep_count(f.ep), 0);
	family_close(&f);
}

static int child_sees_another(void *arg)
{
	struct family *f = arg;
	struct epoll_event ev[4];

	child_check(epoll_wait(f->ep, ev, 4, SOON_MS) == 1);
	child_check(ev[0].data.u64 == 60);
	child_check(tell(f->to_parent[1]));
	child_check(await(f->to_child[0]));
	child_check(ep_count(f->ep) == 0);
	return 0;
}

/* A file that the parent opened after the fork wakes the child through the shared epoll. */
static void EP_KEY_09_parent_adds_a_file_after_the_fork(void **state)
{
	struct family f;
	struct subject late;
	pid_t pid;

	family_open(&f, KIND_OF(state));
	pid = child_start(child_sees_another, &f);
	late = subject_new(KIND_OF(state));
	ep_add(f.ep, late.fd, EPOLLIN, 60);
	subject_fill(&late);
	assert_true(await(f.to_parent[0]));
	assert_true(ep_one(f.ep, EPOLLIN, 60));
	subject_close(&late);
	assert_true(tell(f.to_child[1]));
	child_passes(pid);
	family_close(&f);
}

static int child_pokes(void *arg)
{
	struct wset *w = arg;

	child_check(subject_poke(&w->sub[w->nsub - 1]));
	return 0;
}

/* Threads that sleep in the set while the process forks are woken by what the child does. */
static void EP_KEY_09_fork_beside_a_sleeper(void **state)
{
	for (int e = 0; e < ENTRIES; e++) {
		struct wset w = wset_open(WSET_OF(state), EPOLLET);
		struct waiter t;

		waiter_sleep(&t, e, w.ep, -1, NULL);
		child_passes(child_start(child_pokes, &w));
		waiter_collected(&t, w.data[w.nsub - 1]);
		/* And the set still serves this process. */
		waiter_sleep(&t, e, w.ep, -1, NULL);
		subject_fill(&w.sub[0]);
		if (w.inner >= 0)
			waiter_join(&t);
		else
			waiter_collected(&t, w.data[0]);
		assert_int_equal(t.n, 1);
		wset_close(&w);
	}
}

static int child_counts(void *arg)
{
	struct wset *w = arg;

	for (int i = 0; i < w->nsub; i++) {
		child_check(subject_poke(&w->sub[i]));
		child_check(ep_count(w->ep) == 1);
		drain_fd(w->sub[i].fd);
		child_check(ep_count(w->ep) == 0);
	}
	return 0;
}

static int child_does_nothing(void *arg)
{
	return arg != NULL;
}

/* State that was there before the fork, queued events included, is the child's as well. */
static void EP_KEY_09_fork_keeps_the_state_of_the_set(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);

	for (int i = 0; i < w.nsub; i++) {
		subject_fill(&w.sub[i]);
		subject_drain(&w.sub[i]);
	}
	child_passes(child_start(child_counts, &w));
	assert_int_equal(ep_count(w.ep), 0);
	subject_fill(&w.sub[0]);
	assert_true(ep_one(w.ep, EPOLLIN, w.data[0]));
	child_passes(child_start(child_does_nothing, NULL));
	assert_true(ep_one(w.ep, EPOLLIN, w.data[0]));
	wset_close(&w);
}

/* An edge that was queued before the fork is there once, for whoever comes first. */
static int child_takes(void *arg)
{
	struct wset *w = arg;

	child_check(ep_count(w->ep) == 1);
	child_check(ep_count(w->ep) == 0);
	return 0;
}

static void EP_KEY_09_queued_edge_is_delivered_once(void **state)
{
	static const uint32_t flags[] = {EPOLLET, EPOLLONESHOT};

	for (int f = 0; f < 2; f++) {
		struct wset w = wset_open(WSET_OF(state), flags[f]);

		subject_fill(&w.sub[0]);
		child_passes(child_start(child_takes, &w));
		assert_int_equal(ep_count(w.ep), 0);
		wset_close(&w);
	}
}

static void EP_KEY_10_removal_wakes_nobody(void **state)
{
	struct subject s = subject_new(KIND_OF(state)), other = subject_new(KIND_EVENTFD);
	int ep = ep_new(), outer = ep_new();
	struct waiter in, out;

	ep_add(ep, s.fd, EPOLLIN | EPOLLET, 1);
	ep_add(ep, other.fd, EPOLLIN, 2);
	ep_add(outer, ep, EPOLLIN | EPOLLET, 3);
	waiter_sleep(&in, BY_WAIT, ep, -1, NULL);
	waiter_sleep(&out, BY_WAIT, outer, -1, NULL);
	close_fd(&s);
	/* The peer goes too: a hangup that nobody watches any more. */
	subject_close(&s);
	assert_true(thread_asleep(&in.t));
	assert_true(thread_asleep(&out.t));
	subject_fill(&other);
	waiter_collected(&in, 2);
	waiter_collected(&out, 3);
	subject_close(&other);
	close(ep);
	close(outer);
}

static void EP_KEY_10_removal_is_no_event(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int ep = ep_new(), outer = ep_new();
	uint32_t all = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP | EPOLLET;

	ep_add(outer, ep, all, 3);
	ep_add(ep, s.fd, EPOLLPRI | EPOLLRDHUP | EPOLLET, 1);
	assert_int_equal(ep_count(outer), 0);
	close_fd(&s);
	assert_int_equal(ep_count(ep), 0);
	assert_int_equal(ep_count(outer), 0);
	subject_close(&s);
	close(ep);
	close(outer);
}

static void EP_KEY_11_closing_a_watched_epoll(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int inner = ep_new(), outer[2] = {ep_new(), ep_new()}, again;
	struct waiter t;

	ep_add(inner, s.fd, EPOLLIN, 1);
	for (int i = 0; i < 2; i++)
		ep_add(outer[i], inner, EPOLLIN, 5);
	subject_fill(&s);
	assert_true(ep_one(outer[0], EPOLLIN, 5));
	waiter_start(&t, BY_WAIT, outer[1], -1, NULL);
	waiter_collected(&t, 5);
	close(inner);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ep_count(outer[i]), 0);
		assert_errno(epoll_ctl(outer[i], EPOLL_CTL_DEL, inner, NULL), EBADF);
	}
	again = ep_new();
	if (again != inner) {
		assert_ok(dup2(again, inner));
		close(again);
	}
	assert_errno(epoll_ctl(outer[0], EPOLL_CTL_DEL, inner, NULL), ENOENT);
	ep_add(inner, s.fd, EPOLLIN, 2);
	assert_int_equal(ep_count(outer[0]), 0);
	ep_add(outer[0], inner, EPOLLIN, 6);
	assert_true(ep_one(outer[0], EPOLLIN, 6));
	close(inner);
	subject_close(&s);
	close(outer[0]);
	close(outer[1]);
}

static void EP_KEY_11_sleeper_on_the_watcher_sleeps_on(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);
	struct subject other = subject_new(KIND_EVENTFD);
	int top = ep_new();
	struct waiter t;

	ep_add(top, w.ep, EPOLLIN, 5);
	ep_add(top, other.fd, EPOLLIN, 6);
	waiter_sleep(&t, BY_WAIT, top, -1, NULL);
	close(w.ep);
	w.ep = ep_new();
	for (int i = 0; i < w.nsub; i++)
		subject_fill(&w.sub[i]);
	assert_true(thread_asleep(&t.t));
	subject_fill(&other);
	waiter_collected(&t, 6);
	subject_close(&other);
	close(top);
	wset_close(&w);
}

/* Files are closed while another thread collects: one that is closed is not reported any more. */
struct collector {
	struct test_thread t;
	int ep;
	uint64_t closed;
	int stop;
	int wrong;
	int seen;
};

static void *collector_main(void *arg)
{
	struct collector *c = arg;
	struct epoll_event ev[8];

	while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE)) {
		uint64_t closed = __atomic_load_n(&c->closed, __ATOMIC_ACQUIRE);
		int n = epoll_wait(c->ep, ev, 8, 0);

		for (int i = 0; i < n; i++) {
			c->seen++;
			if (ev[i].data.u64 <= closed)
				c->wrong++;
		}
	}
	return NULL;
}

static void EP_KEY_12_dying_file_is_not_ready(void **state)
{
	struct collector c = {.ep = ep_new()};
	struct subject s = subject_new(KIND_OF(state));

	/* Always ready, so that there is always something to collect. */
	ep_add(c.ep, s.fd, EPOLLIN, UINT64_MAX);
	subject_fill(&s);
	thread_start(&c.t, collector_main, &c);
	for (uint64_t round = 1; round <= 3000; round++) {
		struct subject brief = subject_new(KIND_OF(state));

		ep_add(c.ep, brief.fd, EPOLLIN, round);
		subject_fill(&brief);
		close_fd(&brief);
		__atomic_store_n(&c.closed, round, __ATOMIC_RELEASE);
		subject_close(&brief);
	}
	__atomic_store_n(&c.stop, 1, __ATOMIC_RELEASE);
	assert_true(thread_join(&c.t, SOON_MS));
	assert_int_equal(c.wrong, 0);
	assert_true(ep_one(c.ep, EPOLLIN, UINT64_MAX));
	subject_close(&s);
	close(c.ep);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest ep_key[] = {
		EACH_KIND(EP_KEY_01_number_and_file_make_the_key),
		EACH_KIND(EP_KEY_01_numbered_calls_know_the_same_items),
		EACH_KIND(EP_KEY_02_item_outlives_its_number),
		EACH_KIND(EP_KEY_02_queued_event_of_an_orphan_is_delivered),
		EACH_KIND(EP_KEY_02_orphan_in_a_nested_epoll),
		EACH_KIND(EP_KEY_03_orphan_is_out_of_reach),
		EACH_KIND(EP_KEY_04_dup_back_brings_it_into_reach),
		EACH_KIND(EP_KEY_05_newcomer_beside_the_orphan),
		EACH_KIND(EP_KEY_05_number_is_reused_at_once),
		EACH_KIND(EP_KEY_06_last_close_removes_all_items),
		cmocka_unit_test(EP_KEY_06_other_items_of_the_set_stay),
		cmocka_unit_test(EP_KEY_07_call_in_progress_keeps_the_item),
		cmocka_unit_test(EP_KEY_07_a_cancelled_call_keeps_nothing),
		EACH_KIND(EP_KEY_07_descriptor_in_flight_keeps_the_item),
		EACH_KIND(EP_KEY_07_mapping_keeps_the_item),
		EACH_KIND(EP_KEY_07_pending_aio_keeps_the_item),
		EACH_KIND(EP_KEY_08_dup_onto_the_number_is_a_close),
		EACH_KIND(EP_KEY_08_close_by_exec),
		EACH_KIND(EP_KEY_09_child_finds_the_item),
		EACH_KIND(EP_KEY_09_del_in_the_child_removes_for_both),
		EACH_KIND(EP_KEY_09_del_in_the_parent_removes_for_both),
		EACH_KIND(EP_KEY_09_child_holds_the_item_until_it_exits),
		EACH_KIND(EP_KEY_09_close_in_the_child_leaves_the_item),
		EACH_KIND(EP_KEY_09_events_cross_both_ways),
		EACH_KIND(EP_KEY_09_child_adds_a_file_of_its_own),
		EACH_KIND(EP_KEY_09_parent_adds_a_file_after_the_fork),
		EACH_WSET(EP_KEY_09_fork_beside_a_sleeper),
		EACH_WSET(EP_KEY_09_fork_keeps_the_state_of_the_set),
		EACH_WSET(EP_KEY_09_queued_edge_is_delivered_once),
		EACH_KIND(EP_KEY_10_removal_wakes_nobody),
		EACH_KIND(EP_KEY_10_removal_is_no_event),
		EACH_KIND(EP_KEY_11_closing_a_watched_epoll),
		EACH_WSET(EP_KEY_11_sleeper_on_the_watcher_sleeps_on),
		EACH_KIND(EP_KEY_12_dying_file_is_not_ready),
	};

	if (argc == 4 && strcmp(argv[1], self_args[1]) == 0)
		return after_exec(atoi(argv[2]), atoi(argv[3]));
	return run_group(ep_key);
}
