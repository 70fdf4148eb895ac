/* SPDX-License-Identifier: MIT */
/*
 * Completion: the order of events, eventfds that are told, one event for each request, who is
 * woken, and what a request holds until then.
 */
#include "aio.h"

#include <sys/stat.h>
#include <sys/timerfd.h>

/* The counter of a nonblocking eventfd, which is 0 afterwards. */
static uint64_t count_of(int efd)
{
	uint64_t v = 0;

	if (read(efd, &v, sizeof(v)) == -1)
		assert_int_equal(errno, EAGAIN);
	return v;
}

/*
 * The counter becomes this within a while. Polls may tell later than their event shows, so it is
 * read bit by bit.
 */
static void counts_to(int efd, uint64_t want)
{
	uint64_t sum = 0;

	while (sum < want && readable_within(efd, SOON_MS))
		sum += count_of(efd);
	assert_int_equal(sum, want);
	sleep_ms(QUIET_MS);
	assert_int_equal(count_of(efd), 0);
}

/* --- AIO-CQ-01 ------------------------------------------------------------------------------- */

static void AIO_CQ_01_what_is_done_at_once_keeps_its_order(void **state)
{
	enum { N = 64 };
	static struct iocb cb[N];
	aio_context_t ctx = aio_new(N);
	struct iocb *list[N];
	struct io_event ev[N];
	int mem = file_in_memory(4096), disk = file_on_disk(4096, 0), p[2];
	char buf[N];

	(void)state;
	aio_pipe(p, O_NONBLOCK);
	for (int i = 0; i < N; i++) {
		switch (i % 7) {
		case 0:
			list[i] = aio_pread(&cb[i], mem, &buf[i], 1, i);
			break;
		case 1:
			list[i] = aio_pwrite(&cb[i], disk, &buf[i], 1, i);
			break;
		case 2:
			list[i] = aio_pwrite(&cb[i], p[1], &buf[i], 1, 0);
			break;
		case 3:
			list[i] = aio_poll(&cb[i], p[1], POLLOUT);
			break;
		case 4:
			list[i] = aio_pread(&cb[i], mem, unmapped(), 1, 0);
			break;
		case 5:
			list[i] = aio_pread(&cb[i], p[0], &buf[i], 1, 0);
			break;
		default:
			list[i] = aio_pread(&cb[i], disk, &buf[i], 1, 5000);
		}
	}
	for (int batch = N; batch >= 1; batch /= 3) {
		for (int i = 0; i < N; i += batch)
			aio_accept(ctx, list + i, N - i < batch ? N - i : batch);
		aio_take(ctx, ev, N);
		for (int i = 0; i < N; i++) {
			static const int want[] = {1, 1, 1, POLLOUT, -EFAULT, 1, 0};

			aio_check(&ev[i], &cb[i], want[i % 7]);
		}
		aio_none(ctx);
	}
	close_both(p);
	close(mem);
	close(disk);
	aio_free(ctx);
}

static void AIO_CQ_01_events_come_in_the_order_of_completion(void **state)
{
	aio_context_t ctx = aio_new(8);
	int file = file_in_memory(8), p[3][2];
	struct iocb poll[3], rd[3];
	struct io_event ev[6];
	char c;

	(void)state;
	for (int i = 0; i < 3; i++) {
		aio_pipe(p[i], 0);
		aio_accept1(ctx, aio_poll(&poll[i], p[i][0], POLLIN));
	}
	aio_accept1(ctx, aio_pread(&rd[0], file, &c, 1, 0));
	put(p[2][1]);
	aio_accept1(ctx, aio_pread(&rd[1], file, &c, 1, 0));
	put(p[0][1]);
	put(p[1][1]);
	aio_accept1(ctx, aio_pread(&rd[2], file, &c, 1, 0));
	aio_take(ctx, ev, 6);
	aio_check(&ev[0], &rd[0], 1);
	aio_check(&ev[1], &poll[2], POLLIN | POLLRDNORM);
	aio_check(&ev[2], &rd[1], 1);
	aio_check(&ev[3], &poll[0], POLLIN | POLLRDNORM);
	aio_check(&ev[4], &poll[1], POLLIN | POLLRDNORM);
	aio_check(&ev[5], &rd[2], 1);
	for (int i = 0; i < 3; i++)
		close_both(p[i]);
	close(file);
	aio_free(ctx);
}

/* --- AIO-CQ-02: which eventfds --------------------------------------------------------------- */

static void AIO_CQ_02_only_an_eventfd_can_be_told(void **state)
{
	aio_context_t ctx = aio_new(4);
	int file = file_in_memory(8), bad[7], p[2], s[2], n = 0;
	struct iocb cb;
	char c;

	(void)state;
	aio_pipe(p, 0);
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	bad[n++] = file;
	bad[n++] = p[0];
	bad[n++] = p[1];
	bad[n++] = s[0];
	bad[n++] = ep_new();
	bad[n++] = (int)assert_ok(timerfd_create(CLOCK_MONOTONIC, 0));
	bad[n++] = (int)assert_ok(open("/dev/null", O_RDWR));
	for (int i = 0; i < n; i++) {
		aio_refuses(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), bad[i]), EINVAL);
		aio_refuses(ctx, aio_resfd(aio_fsync(&cb, file), bad[i]), EINVAL);
		aio_refuses(ctx, aio_resfd(aio_poll(&cb, file, POLLIN), bad[i]), EINVAL);
		/* The file that is to be read comes first. */
		aio_refuses(ctx, aio_resfd(aio_pread(&cb, -1, &c, 1, 0), bad[i]), EBADF);
	}
	aio_refuses(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), -1), EBADF);
	aio_refuses(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), INT32_MAX), EBADF);
	close(bad[--n]);
	aio_refuses(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), bad[n]), EBADF);
	bad[n] = (int)assert_ok(open("/dev/null", O_PATH));
	aio_refuses(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), bad[n++]), EBADF);
	/* Without the flag the field is not looked at. */
	aio_pread(&cb, file, &c, 1, 0);
	cb.aio_resfd = (uint32_t)p[0];
	aio_does(ctx, &cb, 1);
	while (n > 4)
		close(bad[--n]);
	close_both(p);
	close_both(s);
	close(file);
	aio_free(ctx);
}

static void AIO_CQ_02_one_for_each_completion(void **state)
{
	static const int flags[] = {0, EFD_NONBLOCK, EFD_SEMAPHORE, EFD_SEMAPHORE | EFD_NONBLOCK,
				    EFD_CLOEXEC};
	aio_context_t ctx = aio_new(8);
	int file = file_in_memory(64), disk = file_on_disk(4096, 0);
	struct iocb cb[4], *list[4];
	struct io_event ev[4];
	char c;

	(void)state;
	for (int i = 0; i < 5; i++) {
		int efd = efd_new(0, flags[i]);
		bool one_by_one = flags[i] & EFD_SEMAPHORE;

		list[0] = aio_resfd(aio_pread(&cb[0], file, &c, 1, 0), efd);
		list[1] = aio_resfd(aio_pwrite(&cb[1], disk, &c, 1, 0), efd);
		list[2] = aio_pread(&cb[2], file, &c, 1, 0);
		list[3] = aio_resfd(aio_pread(&cb[3], file, unmapped(), 1, 0), efd);
		aio_accept(ctx, list, 4);
		if (!one_by_one)
			assert_int_equal(efd_take(efd), 3);
		for (int j = 0; one_by_one && j < 3; j++)
			assert_int_equal(efd_take(efd), 1);
		assert_false(readable_within(efd, 0));
		assert_int_equal(ring_count(ring_of(ctx)), 4);
		aio_take(ctx, ev, 4);
		/* Taking the events tells nothing. */
		assert_false(readable_within(efd, 0));
		close(efd);
	}
	close(file);
	close(disk);
	aio_free(ctx);
}

static void AIO_CQ_02_requests_of_every_opcode_tell(void **state)
{
	aio_context_t ctx = aio_new(8);
	int file = file_on_disk(4096, 0), efd = efd_new(0, EFD_NONBLOCK), p[2];
	struct iovec iov = {.iov_base = (char[8]){0}, .iov_len = 8};
	struct iocb cb;
	char buf[8];

	(void)state;
	aio_pipe(p, 0);
	aio_does(ctx, aio_resfd(aio_pread(&cb, file, buf, 8, 0), efd), 8);
	counts_to(efd, 1);
	aio_does(ctx, aio_resfd(aio_pwrite(&cb, file, buf, 8, 0), efd), 8);
	counts_to(efd, 1);
	aio_does(ctx, aio_resfd(aio_preadv(&cb, file, &iov, 1, 0), efd), 8);
	counts_to(efd, 1);
	aio_does(ctx, aio_resfd(aio_pwritev(&cb, file, &iov, 1, 0), efd), 8);
	counts_to(efd, 1);
	aio_does(ctx, aio_resfd(aio_fsync(&cb, file), efd), 0);
	counts_to(efd, 1);
	aio_does(ctx, aio_resfd(aio_fdsync(&cb, file), efd), 0);
	counts_to(efd, 1);
	aio_does(ctx, aio_resfd(aio_poll(&cb, p[1], POLLOUT), efd), POLLOUT);
	counts_to(efd, 1);
	aio_accept1(ctx, aio_resfd(aio_poll(&cb, p[0], POLLIN), efd));
	assert_int_equal(count_of(efd), 0);
	put(p[1]);
	counts_to(efd, 1);
	aio_expect(ctx, &cb, POLLIN | POLLRDNORM);
	/* A request that was refused tells nothing. */
	aio_refuses(ctx, aio_resfd(aio_pread(&cb, file, buf, 8, -1), efd), EINVAL);
	aio_refuses(ctx, aio_resfd(aio_prep(&cb, 6, file, NULL, 0, 0), efd), EINVAL);
	assert_int_equal(count_of(efd), 0);
	close_both(p);
	close(efd);
	close(file);
	aio_free(ctx);
}

static void AIO_CQ_02_direct_requests_tell(void **state)
{
	aio_context_t ctx;
	int file = file_on_disk(65536, O_DIRECT), efd = efd_new(0, EFD_NONBLOCK);
	struct iocb cb[16], *list[16];
	struct io_event ev[16];
	char *buf;

	(void)state;
	if (file == -1)
		SKIP("the file system of TMPDIR has no O_DIRECT");
	ctx = aio_new(16);
	buf = aligned_alloc(4096, 65536);
	assert_non_null(buf);
	for (int i = 0; i < 16; i++)
		list[i] = aio_resfd(aio_pread(&cb[i], file, buf + 4096 * i, 4096, 4096 * i), efd);
	aio_accept(ctx, list, 16);
	counts_to(efd, 16);
	assert_int_equal(aio_poll_events(ctx, ev, 16), 16);
	assert_true(file_matches(buf, 65536, 0));
	free(buf);
	close(efd);
	close(file);
	aio_free(ctx);
}

/*
 * Who is told by the eventfd finds the events in the ring, without any other call and without
 * a look at its magic: QEMU does so.
 */
static void AIO_CQ_02_AIO_RING_05_direct_events_are_in_the_ring(void **state)
{
	aio_context_t ctx;
	int file = file_on_disk(65536, O_DIRECT), efd = efd_new(0, EFD_NONBLOCK);
	struct iocb cb[16], *list[16], other;
	struct aio_ring *ring;
	char *buf, c;

	(void)state;
	if (file == -1)
		SKIP("the file system of TMPDIR has no O_DIRECT");
	buf = aligned_alloc(4096, 65536);
	assert_non_null(buf);
	for (int round = 0; round < 3; round++) {
		int buffered = file_in_memory(8);
		bool seen[16] = {false};

		ctx = aio_new(16);
		ring = ring_of(ctx);
		for (int part = 0; part < 12; part++) {
			for (int i = 0; i < 16; i++)
				list[i] = aio_resfd(
					aio_pread(&cb[i], file, buf + 4096 * i, 4096, 4096 * i),
					efd);
			aio_accept(ctx, list, 16);
			counts_to(efd, 16);
			assert_int_equal(ring_count(ring), 16);
			memset(seen, 0, sizeof(seen));
			for (int i = 0; i < 16; i++) {
				struct io_event ev = {0};
				size_t which;

				assert_true(ring_take(ring, &ev));
				which = (size_t)((struct iocb *)(uintptr_t)ev.obj - cb);
				assert_true(which < 16 && !seen[which]);
				seen[which] = true;
				aio_check(&ev, &cb[which], 4096);
			}
			assert_true(file_matches(buf, 65536, 0));
			/* All else is served as well. */
			if (round > 0)
				aio_does(ctx, aio_pread(&other, buffered, &c, 1, 0), 1);
			if (round > 1)
				aio_does(ctx, aio_poll(&other, buffered, POLLIN), POLLIN);
			aio_none(ctx);
		}
		close(buffered);
		aio_free(ctx);
		assert_errno(aio_submit(ctx, 0, NULL), EINVAL);
	}
	free(buf);
	close(efd);
	close(file);
}

/* --- contexts that are used in another order than they were made, each told by an eventfd ------
 */

#define ORDERED 4

struct ordered {
	struct test_thread t;
	aio_context_t ctx;
	int file, efd;
	int found;
};

/* What its ring holds when its eventfd has told of it, several times over. */
static void *look_into_ring(void *arg)
{
	struct ordered *o = arg;
	char *buf = aligned_alloc(4096, 4096);

	for (int i = 0; i < 20; i++) {
		struct aio_ring *ring = ring_of(o->ctx);
		struct io_event ev = {0};
		struct iocb cb,
			*list[1] = {aio_resfd(aio_pread(&cb, o->file, buf, 4096, 0), o->efd)};

		if (aio_submit(o->ctx, 1, list) != 1)
			break;
		if (!readable_within(o->efd, SOON_MS) || count_of(o->efd) != 1 ||
		    !ring_take(ring, &ev) || ev.obj != (uint64_t)(uintptr_t)&cb || ev.res != 4096)
			break;
		o->found++;
	}
	free(buf);
	return NULL;
}

static void AIO_CQ_02_AIO_RING_05_contexts_in_another_order(void **state)
{
	static const int order[][ORDERED] = {{3, 1, 0, 2}, {1, 0, 2, 3}, {0, 3, 2, 1}};
	int file = file_on_disk(65536, O_DIRECT);

	(void)state;
	if (file == -1)
		SKIP("the file system of TMPDIR has no O_DIRECT");
	/* The last round: all of them at once. */
	for (int round = 0; round < 4; round++) {
		struct ordered o[ORDERED] = {0};

		for (int i = 0; i < ORDERED; i++) {
			o[i].ctx = aio_new(4);
			o[i].file = file;
			o[i].efd = efd_new(0, EFD_NONBLOCK);
		}
		for (int i = 0; i < ORDERED; i++)
			if (round < 3)
				look_into_ring(&o[order[round][i]]);
			else
				thread_start(&o[i].t, look_into_ring, &o[i]);
		for (int i = 0; i < ORDERED; i++) {
			if (round == 3)
				assert_true(thread_join(&o[i].t, 10000));
			assert_int_equal(o[i].found, 20);
			close(o[i].efd);
		}
		for (int i = 0; i < ORDERED; i++)
			aio_free(o[i].ctx);
	}
	close(file);
}

/* A number beside the first one names the same eventfd. */
static void AIO_CQ_02_a_duplicate_of_an_eventfd(void **state)
{
	aio_context_t ctx = aio_new(8);
	int file = file_in_memory(8), efd = efd_new(0, EFD_NONBLOCK);
	int dup1 = (int)assert_ok(fcntl(efd, F_DUPFD_CLOEXEC, 0));
	int dup2 = (int)assert_ok(fcntl(efd, F_DUPFD, 300));
	struct iocb cb;
	char c;

	(void)state;
	aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), dup1), 1);
	aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), dup2), 1);
	aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), efd), 1);
	assert_int_equal(count_of(efd), 3);
	close(efd);
	aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), dup2), 1);
	assert_int_equal(count_of(dup1), 1);
	close(dup1);
	aio_refuses(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), dup1), EBADF);
	close(dup2);
	close(file);
	aio_free(ctx);
}

/* The same number may name another eventfd, or none, for the next request. */
static void AIO_CQ_02_a_number_that_names_another_eventfd_now(void **state)
{
	aio_context_t ctx = aio_new(8);
	int file = file_in_memory(8), a = efd_new(0, EFD_NONBLOCK), b = efd_new(0, EFD_NONBLOCK);
	int number = (int)assert_ok(fcntl(a, F_DUPFD, 300));
	struct iocb cb;
	char c;

	(void)state;
	aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), number), 1);
	assert_int_equal(count_of(a), 1);
	assert_ok(dup2(b, number));
	aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), number), 1);
	assert_int_equal(count_of(a), 0);
	assert_int_equal(count_of(b), 1);
	assert_ok(dup2(file, number));
	aio_refuses(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), number), EINVAL);
	close(number);
	aio_refuses(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), number), EBADF);
	close(a);
	close(b);
	close(file);
	aio_free(ctx);
}

/* The eventfd that is told may be the file that is read. */
static void AIO_CQ_02_an_eventfd_in_both_roles(void **state)
{
	aio_context_t ctx = aio_new(8);
	int efd = efd_new(5, EFD_NONBLOCK);
	struct iocb cb;
	uint64_t v = 0;

	(void)state;
	aio_does(ctx, aio_resfd(aio_pread(&cb, efd, &v, 8, 0), efd), 8);
	assert_int_equal(v, 5);
	assert_int_equal(count_of(efd), 1);
	aio_does(ctx, aio_resfd(aio_poll(&cb, efd, POLLOUT), efd), POLLOUT);
	counts_to(efd, 1);
	close(efd);
	aio_free(ctx);
}

/* What the epoll of an event loop says when requests complete. */
static void AIO_CQ_02_an_eventfd_that_is_watched(void **state)
{
	aio_context_t ctx = aio_new(8);
	int file = file_in_memory(8), efd = efd_new(0, EFD_NONBLOCK);
	int lt = ep_new(), et = ep_new(), once = ep_new(), out = ep_new(), outer = ep_new();
	struct iocb cb;
	char c;

	(void)state;
	assert_ok(ep_ctl(lt, EPOLL_CTL_ADD, efd, EPOLLIN, 1));
	assert_ok(ep_ctl(et, EPOLL_CTL_ADD, efd, EPOLLIN | EPOLLET, 2));
	assert_ok(ep_ctl(once, EPOLL_CTL_ADD, efd, EPOLLIN | EPOLLONESHOT, 3));
	assert_ok(ep_ctl(out, EPOLL_CTL_ADD, efd, EPOLLOUT | EPOLLET, 4));
	assert_ok(ep_ctl(outer, EPOLL_CTL_ADD, et, EPOLLIN | EPOLLET, 5));
	assert_int_equal(ep_count(lt) + ep_count(et) + ep_count(once) + ep_count(outer), 0);
	assert_int_equal(ep_count(out), 1);
	for (int round = 0; round < 3; round++) {
		aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), efd), 1);
		assert_true(ep_one(lt, EPOLLIN, 1));
		assert_true(ep_one(lt, EPOLLIN, 1));
		assert_true(ep_one(outer, EPOLLIN, 5));
		assert_true(ep_one(et, EPOLLIN, 2));
		assert_int_equal(ep_count(et), 0);
		assert_int_equal(ep_count(once), round == 0);
		/* The signal has the key IN: whoever waits for OUT alone is not woken. */
		assert_int_equal(ep_count(out), 0);
		/* A second one before the first was read is an edge. */
		aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), efd), 1);
		assert_true(ep_one(et, EPOLLIN, 2));
		assert_int_equal(ep_count(et), 0);
		assert_int_equal(count_of(efd), 2);
		assert_int_equal(ep_count(lt), 0);
		/* The read is an edge for who waits for OUT. */
		assert_int_equal(ep_count(out), 1);
		while (ep_count(outer) > 0)
			;
	}
	close(outer);
	close(out);
	close(once);
	close(et);
	close(lt);
	close(efd);
	close(file);
	aio_free(ctx);
}

/* --- sleepers on the eventfd
 * ---------------------------------------------------------------------- */

struct sleeper {
	struct test_thread t;
	enum { IN_READ, IN_POLL, IN_EPOLL, SLEEPERS } how;
	int efd;
	int ep;
	aio_context_t ctx;
	bool woken;
	bool seen; /* the event was in the ring already */
};

static void *sleeper_main(void *arg)
{
	struct sleeper *s = arg;
	struct epoll_event ev;
	uint64_t v = 0;

	switch (s->how) {
	case IN_READ:
		s->woken = read(s->efd, &v, 8) == 8 && v == 1;
		break;
	case IN_POLL:
		s->woken = readable_within(s->efd, -1);
		break;
	default:
		s->woken = epoll_wait(s->ep, &ev, 1, -1) == 1 && ev.events == EPOLLIN;
	}
	s->seen = ring_count(ring_of(s->ctx)) == 1;
	return NULL;
}

static void AIO_CQ_02_sleepers_on_the_eventfd_are_woken(void **state)
{
	aio_context_t ctx = aio_new(8);
	int file = file_in_memory(8);
	char c;

	(void)state;
	for (int how = 0; how < SLEEPERS; how++) {
		struct sleeper s = {.how = how, .efd = efd_new(0, 0), .ep = ep_new(), .ctx = ctx};
		struct iocb cb;

		assert_ok(ep_ctl(s.ep, EPOLL_CTL_ADD, s.efd, EPOLLIN, 1));
		thread_start(&s.t, sleeper_main, &s);
		assert_true(thread_asleep(&s.t));
		aio_accept1(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), s.efd));
		assert_true(thread_join(&s.t, SOON_MS));
		assert_true(s.woken);
		/* It is told after the event is there. */
		assert_true(s.seen);
		aio_expect(ctx, &cb, 1);
		close(s.ep);
		close(s.efd);
	}
	close(file);
	aio_free(ctx);
}

/* Whoever learns from the eventfd of n completions finds n events, whatever it was that completed.
 */
static void AIO_CQ_02_the_event_is_there_before_the_count(void **state)
{
	enum { ROUNDS = 400 };
	aio_context_t ctx = aio_new(32);
	int file = file_on_disk(65536, O_DIRECT), mem = file_in_memory(64);
	int efd = efd_new(0, EFD_NONBLOCK), p[2];
	char *buf = aligned_alloc(4096, 4096), c;
	struct iocb cb[4], *list[4];

	(void)state;
	assert_non_null(buf);
	aio_pipe(p, 0);
	for (int round = 0; round < ROUNDS; round++) {
		long told = 0, taken = 0;
		int n = 0;

		list[n] = aio_resfd(aio_poll(&cb[n], p[0], POLLIN), efd);
		n++;
		if (file != -1) {
			list[n] = aio_resfd(aio_pread(&cb[n], file, buf, 4096, 4096 * (round % 16)),
					    efd);
			n++;
		}
		list[n] = aio_resfd(aio_pread(&cb[n], mem, &c, 1, 0), efd);
		n++;
		list[n] = aio_resfd(aio_fsync(&cb[n], mem), efd);
		n++;
		aio_accept(ctx, list, n);
		put(p[1]);
		while (told < n) {
			struct io_event ev[8];
			long got;

			assert_true(readable_within(efd, SOON_MS));
			told += (long)count_of(efd);
			got = aio_poll_events(ctx, ev, 8);
			taken += got;
			assert_true(taken >= told);
		}
		assert_int_equal(taken, n);
		assert_int_equal(read(p[0], &c, 1), 1);
	}
	close_both(p);
	free(buf);
	close(efd);
	close(mem);
	if (file != -1)
		close(file);
	aio_free(ctx);
}

/* Two processes share the counter: a completion in one is seen in the other. */
static void AIO_CQ_02_an_eventfd_that_was_shared_by_fork(void **state)
{
	aio_context_t ctx = aio_new(4);
	int file = file_in_memory(8), efd = efd_new(0, 0), go[2];
	struct iocb cb;
	char c;
	pid_t pid;

	(void)state;
	aio_pipe(go, 0);
	pid = fork_bounded();
	if (pid == 0) {
		uint64_t v = 0;

		child_check(write(go[1], "g", 1) == 1);
		child_check(read(efd, &v, 8) == 8 && v == 1);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(read(go[0], &c, 1), 1);
	aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), efd), 1);
	assert_int_equal(child_end(pid), 0);
	aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), efd), 1);
	assert_int_equal(efd_take(efd), 1);
	close_both(go);
	close(efd);
	close(file);
	aio_free(ctx);
}

/* --- AIO-CQ-03 ------------------------------------------------------------------------------- */

static void AIO_CQ_03_the_eventfd_is_held_from_submission(void **state)
{
	aio_context_t ctx = aio_new(4);
	int efd = efd_new(0, EFD_NONBLOCK), other, p[2];
	int twin = (int)assert_ok(fcntl(efd, F_DUPFD_CLOEXEC, 0));
	struct iocb cb;

	(void)state;
	aio_pipe(p, 0);
	for (int reused = 0; reused < 2; reused++) {
		aio_accept1(ctx, aio_resfd(aio_poll(&cb, p[0], POLLIN), efd));
		close(efd);
		other = reused ? efd_new(0, EFD_NONBLOCK) : -1;
		if (reused)
			assert_int_equal(other, efd);
		put(p[1]);
		counts_to(twin, 1);
		aio_expect(ctx, &cb, POLLIN | POLLRDNORM);
		assert_int_equal(read(p[0], &(char){0}, 1), 1);
		if (reused) {
			assert_int_equal(count_of(other), 0);
			close(other);
		}
		assert_int_equal(fcntl(twin, F_DUPFD_CLOEXEC, efd), efd);
	}
	close(efd);
	close(twin);
	close_both(p);
	aio_free(ctx);
}

static void AIO_CQ_03_with_no_descriptor_left(void **state)
{
	aio_context_t ctx = aio_new(4);
	int efd = efd_new(0, 0), p[2];
	struct iocb cb;

	(void)state;
	aio_pipe(p, 0);
	aio_accept1(ctx, aio_resfd(aio_poll(&cb, p[0], POLLIN), efd));
	close(efd);
	put(p[1]);
	aio_expect(ctx, &cb, POLLIN | POLLRDNORM);
	close_both(p);
	aio_free(ctx);
}

/* An eventfd that an epoll watches stays in it as long as a request holds it. */
static void AIO_CQ_03_an_eventfd_that_is_watched_and_closed(void **state)
{
	aio_context_t ctx = aio_new(4);
	int efd = efd_new(0, EFD_NONBLOCK), ep = ep_new(), p[2];
	struct epoll_event ev;
	struct iocb cb;

	(void)state;
	aio_pipe(p, 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN, 7));
	aio_accept1(ctx, aio_resfd(aio_poll(&cb, p[0], POLLIN), efd));
	close(efd);
	assert_int_equal(ep_count(ep), 0);
	assert_errno(aio_cancel(ctx, &cb, &(struct io_event){0}), EINPROGRESS);
	aio_expect(ctx, &cb, 0);
	/* Nobody holds it now; the item goes with it, perhaps a moment later. */
	for (int64_t end = now_ms() + SOON_MS; epoll_wait(ep, &ev, 1, 0) != 0;)
		assert_true(now_ms() < end);
	close(ep);
	close_both(p);
	aio_free(ctx);
}

/* --- AIO-CQ-04 ------------------------------------------------------------------------------- */

static void AIO_CQ_04_the_counter_sticks_at_its_end(void **state)
{
	aio_context_t ctx = aio_new(8);
	int file = file_in_memory(8), p[2];
	struct iocb cb;
	char c;

	(void)state;
	aio_pipe(p, 0);
	for (int semaphore = 0; semaphore < 2; semaphore++) {
		int efd = efd_new(0, EFD_NONBLOCK | (semaphore ? EFD_SEMAPHORE : 0)), ep = ep_new();
		struct pollfd pfd = {.fd = efd, .events = POLLIN | POLLOUT};

		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN | EPOLLOUT | EPOLLET, 1));
		assert_int_equal(ep_count(ep), 1);
		efd_add(efd, COUNT_MAX);
		assert_true(ep_one(ep, EPOLLIN, 1));
		for (int i = 0; i < 4; i++) {
			aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), efd), 1);
			assert_int_equal(poll(&pfd, 1, 0), 1);
			assert_int_equal(pfd.revents, POLLIN | POLLERR);
			assert_true(ep_one(ep, EPOLLIN | EPOLLERR, 1));
		}
		assert_errno(write(efd, &(uint64_t){0}, 8), EAGAIN);
		assert_int_equal(efd_take(efd), semaphore ? 1 : UINT64_MAX);
		if (semaphore) {
			assert_int_equal(poll(&pfd, 1, 0), 1);
			assert_int_equal(pfd.revents, POLLIN);
			aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), efd), 1);
			assert_int_equal(poll(&pfd, 1, 0), 1);
			assert_int_equal(pfd.revents, POLLIN | POLLERR);
		} else {
			assert_int_equal(count_of(efd), 0);
			aio_does(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), efd), 1);
			assert_int_equal(count_of(efd), 1);
		}
		close(ep);
		close(efd);
	}
	close_both(p);
	close(file);
	aio_free(ctx);
}

/* --- AIO-CQ-05 ------------------------------------------------------------------------------- */

static void AIO_CQ_05_polls_tell_in_the_end(void **state)
{
	enum { N = 16, ROUNDS = 100 };
	aio_context_t ctx = aio_new(N);
	int efd = efd_new(0, EFD_NONBLOCK), ep = ep_new(), p[2];
	struct iocb cb[N], *list[N];

	(void)state;
	aio_pipe(p, 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN | EPOLLET, 1));
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t told = 0;
		long taken = 0;

		for (int i = 0; i < N; i++)
			list[i] = aio_resfd(aio_poll(&cb[i], p[0], POLLIN), efd);
		aio_accept(ctx, list, N);
		put(p[1]);
		/* An event loop that sleeps in epoll_wait misses none. */
		while (told < N) {
			struct epoll_event e;
			struct io_event ev[N];

			assert_int_equal(epoll_wait(ep, &e, 1, SOON_MS), 1);
			told += count_of(efd);
			taken += aio_poll_events(ctx, ev, N);
			assert_true(taken >= (long)told);
		}
		assert_int_equal(told, N);
		assert_int_equal(taken, N);
		assert_int_equal(read(p[0], &(char){0}, 1), 1);
	}
	close_both(p);
	close(ep);
	close(efd);
	aio_free(ctx);
}

/* --- AIO-CQ-06 and AIO-CQ-07 ----------------------------------------------------------------- */

/* Whatever was accepted gives one event, and nothing else does. */
static void AIO_CQ_06_one_event_for_each_request(void **state)
{
	enum { N = 64, ROUNDS = 60 };
	static struct iocb cb[N];
	static char buf[N][512];
	aio_context_t ctx = aio_new(N);
	int mem = file_in_memory(4096), disk = file_on_disk(65536, 0), p[2];
	struct iocb *list[N];
	struct io_event ev[N];

	(void)state;
	aio_pipe(p, O_NONBLOCK);
	for (int round = 0; round < ROUNDS; round++) {
		int seen[N] = {0}, accepted = 0;

		for (int i = 0; i < N; i++) {
			switch ((i * 7 + round) % 9) {
			case 0:
				list[i] = aio_pread(&cb[i], mem, buf[i], 512, i);
				break;
			case 1:
				list[i] = aio_pwrite(&cb[i], disk, buf[i], 512, 512 * i);
				break;
			case 2:
				list[i] = aio_fdsync(&cb[i], disk);
				break;
			case 3:
				list[i] = aio_poll(&cb[i], p[0], POLLIN);
				break;
			case 4:
				list[i] = aio_pread(&cb[i], p[0], buf[i], 1, 0);
				break;
			case 5:
				list[i] = aio_poll(&cb[i], p[1], POLLOUT);
				break;
			case 6:
				/* This one is refused and ends the batch. */
				list[i] = aio_pread(&cb[i], mem, buf[i], 512, -1);
				break;
			case 7:
				list[i] = aio_fsync(&cb[i], mem);
				break;
			default:
				list[i] = aio_pread(&cb[i], disk, buf[i], 512, 512 * i);
			}
			cb[i].aio_data = (uint64_t)i;
		}
		for (int at = 0; at < N;) {
			long r = aio_submit(ctx, N - at, list + at);

			if (r == -1) {
				assert_int_equal(errno, EINVAL);
				assert_int_equal(cb[at].aio_offset, -1);
				seen[at] = 1;
				r = 1;
			} else {
				assert_uint_in_range(r, 1, N - at);
				accepted += (int)r;
			}
			at += (int)r;
		}
		/* The polls of the read end. */
		put(p[1]);
		aio_take(ctx, ev, accepted);
		for (int i = 0; i < accepted; i++) {
			assert_uint_in_range(ev[i].data, 0, N - 1);
			assert_int_equal(ev[i].obj, (uintptr_t)&cb[ev[i].data]);
			seen[ev[i].data]++;
		}
		for (int i = 0; i < N; i++)
			assert_int_equal(seen[i], 1);
		aio_none(ctx);
		while (read(p[0], buf[0], 512) > 0)
			;
	}
	close_both(p);
	close(mem);
	close(disk);
	aio_free(ctx);
}

/* Requests that wait and requests that are done at once share the room. */
static void AIO_CQ_07_the_ring_never_overflows(void **state)
{
	enum { MANY = 4096 };
	static struct iocb cb[MANY];
	static struct io_event ev[MANY];
	static unsigned char seen[MANY];
	static const unsigned int sizes[] = {1, 8, 62, 100, 500};
	int file = file_in_memory(8), p[2];
	char c;

	(void)state;
	aio_pipe(p, 0);
	for (int s = 0; s < 5; s++) {
		for (int polls = 0; polls < 4; polls++) {
			aio_context_t ctx = aio_new(sizes[s]);
			uint32_t room = ring_of(ctx)->nr - 1;
			long n = 0, taken = 0;

			/* None, all, every second, and polls behind reads. */
			for (; n < MANY; n++) {
				bool poll = polls == 1 || (polls == 2 && n % 2) ||
					    (polls == 3 && n >= (long)sizes[s]);

				cb[n].aio_data = 0;
				if (poll)
					aio_poll(&cb[n], p[0], POLLIN);
				else
					aio_pread(&cb[n], file, &c, 1, 0);
				if (aio_submit1(ctx, &cb[n]) != 1)
					break;
			}
			assert_int_equal(errno, EAGAIN);
			assert_uint_in_range(n, sizes[s], room);
			put(p[1]);
			memset(seen, 0, sizeof(seen));
			aio_take(ctx, ev, n);
			for (; taken < n; taken++) {
				long i = (struct iocb *)(uintptr_t)ev[taken].obj - cb;

				assert_uint_in_range(i, 0, n - 1);
				assert_int_equal(seen[i], 0);
				seen[i] = 1;
			}
			aio_none(ctx);
			assert_int_equal(read(p[0], &c, 1), 1);
			/* All of it is free again. */
			for (int i = 0; i < (int)sizes[s]; i++)
				aio_accept1(ctx, aio_pread(&cb[i], file, &c, 1, 0));
			aio_take(ctx, ev, sizes[s]);
			aio_free(ctx);
		}
	}
	close_both(p);
	close(file);
}

/* The same in batches: what is accepted at one time is bounded, too. */
static void AIO_CQ_07_nor_by_batches(void **state)
{
	enum { MANY = 4096 };
	static struct iocb cb[MANY];
	static struct iocb *list[MANY];
	static struct io_event ev[MANY];
	static const unsigned int sizes[] = {1, 62, 100};
	int file = file_in_memory(8), p[2];
	char c;

	(void)state;
	aio_pipe(p, 0);
	for (int s = 0; s < 3; s++) {
		for (int how = 0; how < 3; how++) {
			aio_context_t ctx = aio_new(sizes[s]);
			long room = ring_of(ctx)->nr - 1;
			long first = how == 0 ? 0 : how == 1 ? room / 2 : room - 2;
			long reads = 0, polls;

			/* Reads whose events stay in the ring, then a heap of polls. */
			for (int i = 0; i < MANY; i++)
				list[i] = i < first ? aio_pread(&cb[i], file, &c, 1, 0)
						    : aio_poll(&cb[i], p[0], POLLIN);
			if (first > 0)
				reads = assert_ok(aio_submit(ctx, first, list));
			for (polls = 0;;) {
				long r =
					aio_submit(ctx, MANY - first - polls, list + first + polls);

				if (r == -1)
					break;
				assert_true(r > 0);
				polls += r;
			}
			assert_int_equal(errno, EAGAIN);
			assert_uint_in_range(reads + polls, sizes[s], room);
			put(p[1]);
			aio_take(ctx, ev, reads + polls);
			aio_none(ctx);
			assert_int_equal(read(p[0], &c, 1), 1);
			aio_free(ctx);
		}
	}
	close_both(p);
	close(file);
}

/* --- AIO-CQ-08 ------------------------------------------------------------------------------- */

static void AIO_CQ_08_waiters_are_woken(void **state)
{
	aio_context_t ctx = aio_new(16);
	int file = file_in_memory(8), p[2];
	struct getter *g;
	struct iocb cb, more[3];
	char c;

	(void)state;
	aio_pipe(p, 0);
	/* By what is done at once. */
	g = getter_new(ctx, 1, 8, -1);
	aio_accept1(ctx, aio_pread(&cb, file, &c, 1, 0));
	getter_gets(g, 1);
	aio_check(&g->ev[0], &cb, 1);
	free(g);
	/* By what was pending before the wait began. */
	aio_accept1(ctx, aio_poll(&cb, p[0], POLLIN));
	g = getter_new(ctx, 1, 8, -1);
	put(p[1]);
	getter_gets(g, 1);
	aio_check(&g->ev[0], &cb, POLLIN | POLLRDNORM);
	free(g);
	assert_int_equal(read(p[0], &c, 1), 1);
	/* By what is submitted afterwards and completes later. */
	g = getter_new(ctx, 1, 8, -1);
	aio_accept1(ctx, aio_poll(&cb, p[0], POLLIN));
	assert_true(getter_sleeps(g));
	put(p[1]);
	getter_gets(g, 1);
	aio_check(&g->ev[0], &cb, POLLIN | POLLRDNORM);
	free(g);
	assert_int_equal(read(p[0], &c, 1), 1);
	/* Only when there is enough. */
	g = getter_new(ctx, 3, 8, -1);
	aio_accept1(ctx, aio_pread(&more[0], file, &c, 1, 0));
	assert_true(getter_sleeps(g));
	aio_accept1(ctx, aio_fsync(&more[1], file));
	assert_true(getter_sleeps(g));
	aio_accept1(ctx, aio_poll(&more[2], p[1], POLLOUT));
	getter_gets(g, 3);
	aio_check(&g->ev[0], &more[0], 1);
	free(g);
	aio_none(ctx);
	close_both(p);
	close(file);
	aio_free(ctx);
}

static void AIO_CQ_08_each_waiter_gets_its_own(void **state)
{
	enum { WAITERS = 8 };
	aio_context_t ctx = aio_new(32);
	struct getter *g[WAITERS];
	struct iocb cb[WAITERS];
	int file = file_in_memory(8), p[2];
	bool seen[WAITERS] = {false};
	char c;

	(void)state;
	aio_pipe(p, 0);
	for (int i = 0; i < WAITERS; i++)
		g[i] = getter_new(ctx, 1, 1, -1);
	for (int i = 0; i < WAITERS; i++)
		aio_accept1(ctx, i % 3 == 0   ? aio_pread(&cb[i], file, &c, 1, 0)
				 : i % 3 == 1 ? aio_poll(&cb[i], p[1], POLLOUT)
					      : aio_fsync(&cb[i], file));
	for (int i = 0; i < WAITERS; i++) {
		long at;

		getter_gets(g[i], 1);
		at = (struct iocb *)(uintptr_t)g[i]->ev[0].obj - cb;
		assert_uint_in_range(at, 0, WAITERS - 1);
		assert_false(seen[at]);
		seen[at] = true;
		free(g[i]);
	}
	aio_none(ctx);
	close_both(p);
	close(file);
	aio_free(ctx);
}

/* --- AIO-CQ-09 ------------------------------------------------------------------------------- */

static void AIO_CQ_09_closing_does_not_stop_a_request(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct iocb cb;
	int fds[3][2];

	(void)state;
	aio_pipe(fds[0], 0);
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, fds[1]));
	fds[2][0] = efd_new(0, 0);
	fds[2][1] = (int)assert_ok(fcntl(fds[2][0], F_DUPFD_CLOEXEC, 0));
	for (int i = 0; i < 3; i++) {
		const uint64_t one = 1;
		size_t n = i == 2 ? 8 : 1;

		aio_accept1(ctx, aio_poll(&cb, fds[i][0], POLLIN));
		close(fds[i][0]);
		sleep_ms(QUIET_MS);
		aio_none(ctx);
		assert_int_equal(write(fds[i][1], &one, n), n);
		aio_take(ctx, &(struct io_event){0}, 1);
		close(fds[i][1]);
	}
	aio_free(ctx);
}

static void AIO_CQ_09_items_of_epolls_stay_with_the_file(void **state)
{
	aio_context_t ctx = aio_new(4);
	int ep = ep_new(), p[2], reader;
	struct epoll_event ev;
	struct iocb cb;

	(void)state;
	aio_pipe(p, 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p[0], EPOLLIN, 5));
	/* A request that waits for what will not come: the file lives on without a number. */
	aio_accept1(ctx, aio_poll(&cb, p[0], POLLPRI));
	reader = p[0];
	close(reader);
	assert_int_equal(ep_count(ep), 0);
	put(p[1]);
	assert_true(ep_one(ep, EPOLLIN, 5));
	/* It ends with the request. */
	assert_errno(aio_cancel(ctx, &cb, &(struct io_event){0}), EINPROGRESS);
	aio_expect(ctx, &cb, 0);
	for (int64_t end = now_ms() + SOON_MS; epoll_wait(ep, &ev, 1, 0) != 0;)
		assert_true(now_ms() < end);
	close(p[1]);
	close(ep);
	aio_free(ctx);
}

static void AIO_CQ_09_items_of_an_eventfd_stay_with_it(void **state)
{
	aio_context_t ctx = aio_new(4);
	int ep = ep_new(), efd = efd_new(0, EFD_NONBLOCK);
	struct epoll_event ev;
	struct iocb cb;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN, 5));
	assert_true(ep_count(ep) == 0);
	efd_add(efd, 1);
	assert_true(ep_one(ep, EPOLLIN, 5));
	aio_accept1(ctx, aio_poll(&cb, efd, POLLPRI));
	close(efd);
	/* Level triggered, and the count is not 0. */
	assert_true(ep_one(ep, EPOLLIN, 5));
	assert_errno(aio_cancel(ctx, &cb, &(struct io_event){0}), EINPROGRESS);
	aio_expect(ctx, &cb, 0);
	for (int64_t end = now_ms() + SOON_MS; epoll_wait(ep, &ev, 1, 0) != 0;)
		assert_true(now_ms() < end);
	close(ep);
	aio_free(ctx);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(AIO_CQ_01_what_is_done_at_once_keeps_its_order),
		cmocka_unit_test(AIO_CQ_01_events_come_in_the_order_of_completion),
		cmocka_unit_test(AIO_CQ_02_only_an_eventfd_can_be_told),
		cmocka_unit_test(AIO_CQ_02_one_for_each_completion),
		cmocka_unit_test(AIO_CQ_02_requests_of_every_opcode_tell),
		cmocka_unit_test(AIO_CQ_02_direct_requests_tell),
		cmocka_unit_test(AIO_CQ_02_AIO_RING_05_direct_events_are_in_the_ring),
		cmocka_unit_test(AIO_CQ_02_AIO_RING_05_contexts_in_another_order),
		cmocka_unit_test(AIO_CQ_02_a_duplicate_of_an_eventfd),
		cmocka_unit_test(AIO_CQ_02_a_number_that_names_another_eventfd_now),
		cmocka_unit_test(AIO_CQ_02_an_eventfd_in_both_roles),
		cmocka_unit_test(AIO_CQ_02_an_eventfd_that_is_watched),
		cmocka_unit_test(AIO_CQ_02_sleepers_on_the_eventfd_are_woken),
		cmocka_unit_test(AIO_CQ_02_the_event_is_there_before_the_count),
		cmocka_unit_test(AIO_CQ_02_an_eventfd_that_was_shared_by_fork),
		cmocka_unit_test(AIO_CQ_03_the_eventfd_is_held_from_submission),
		cmocka_unit_test(AIO_CQ_03_with_no_descriptor_left),
		cmocka_unit_test(AIO_CQ_03_an_eventfd_that_is_watched_and_closed),
		cmocka_unit_test(AIO_CQ_04_the_counter_sticks_at_its_end),
		cmocka_unit_test(AIO_CQ_05_polls_tell_in_the_end),
		cmocka_unit_test(AIO_CQ_06_one_event_for_each_request),
		cmocka_unit_test(AIO_CQ_07_the_ring_never_overflows),
		cmocka_unit_test(AIO_CQ_07_nor_by_batches),
		cmocka_unit_test(AIO_CQ_08_waiters_are_woken),
		cmocka_unit_test(AIO_CQ_08_each_waiter_gets_its_own),
		cmocka_unit_test(AIO_CQ_09_closing_does_not_stop_a_request),
		cmocka_unit_test(AIO_CQ_09_items_of_epolls_stay_with_the_file),
		cmocka_unit_test(AIO_CQ_09_items_of_an_eventfd_stay_with_it),
	};

	return run_group(tests);
}
