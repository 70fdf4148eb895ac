/* SPDX-License-Identifier: MIT */
/* io_cancel: what it looks at first, what it can cancel, and what comes of it. */
#include "aio.h"

#include <sched.h>

/* A poll that waits for ever. */
static void pend(aio_context_t ctx, struct iocb *cb, int fd)
{
	aio_accept1(ctx, aio_poll(cb, fd, POLLIN));
}

/* The third argument: never read and never written. */
static struct io_event untouched;
#define NO_RESULT (memset(&untouched, 0x5a, sizeof(untouched)))

static bool is_untouched(void)
{
	const unsigned char *b = (const unsigned char *)&untouched;

	for (size_t i = 0; i < sizeof(untouched); i++)
		if (b[i] != 0x5a)
			return false;
	return true;
}

static void cancels(aio_context_t ctx, struct iocb *cb)
{
	NO_RESULT;
	assert_errno(aio_cancel(ctx, cb, &untouched), EINPROGRESS);
	assert_true(is_untouched());
}

static void cannot_cancel(aio_context_t ctx, struct iocb *cb)
{
	NO_RESULT;
	assert_errno(aio_cancel(ctx, cb, &untouched), EINVAL);
	assert_true(is_untouched());
}

/* --- AIO-CANCEL-01 --------------------------------------------------------------------------- */

static void AIO_CANCEL_01_the_request_is_read_first(void **state)
{
	aio_context_t good = aio_new(4), gone = aio_new(4);
	struct io_event ev;
	int p[2];

	(void)state;
	aio_free(gone);
	aio_pipe(p, 0);
	/* With and without a request that is with the kernel. */
	for (int pending = 0; pending < 2; pending++) {
		aio_context_t ctxs[] = {good, gone, 0, 8, (aio_context_t)(uintptr_t)&ev, ~0ul};
		char *end = edge_new(PROT_NONE);
		struct iocb cb;

		if (pending)
			pend(good, &cb, p[0]);
		for (int i = 0; i < 6; i++) {
			/* Of the request only its key is read, at 8. */
			struct iocb *partial = (struct iocb *)(end - 12);

			assert_errno(aio_cancel(ctxs[i], NULL, &ev), EFAULT);
			assert_errno(aio_cancel(ctxs[i], (struct iocb *)end, &ev), EFAULT);
			assert_errno(aio_cancel(ctxs[i], (struct iocb *)(end - 11), &ev), EFAULT);
			memset(end - 4, 0, 4);
			assert_errno(aio_cancel(ctxs[i], partial, &ev), EINVAL);
			for (size_t j = 0; j < BAD_ADDRESSES; j++)
				assert_errno(
					aio_cancel(ctxs[i], (struct iocb *)bad_addresses[j], &ev),
					EFAULT);
		}
		if (pending) {
			cancels(good, &cb);
			aio_expect(good, &cb, 0);
		}
		edge_free(end);
	}
	close_both(p);
	aio_free(good);
}

static void AIO_CANCEL_01_a_key_that_is_not_0(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct iocb cb;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	pend(ctx, &cb, p[0]);
	cb.aio_key = 1;
	cannot_cancel(ctx, &cb);
	cannot_cancel(0, &cb);
	cb.aio_key = ~0u;
	cannot_cancel(ctx, &cb);
	aio_none(ctx);
	cb.aio_key = 0;
	cancels(ctx, &cb);
	aio_expect(ctx, &cb, 0);
	close_both(p);
	aio_free(ctx);
}

static void AIO_CANCEL_01_a_bad_context(void **state)
{
	aio_context_t ctx = aio_new(4), other = aio_new(4);
	struct iocb cb;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	pend(ctx, &cb, p[0]);
	cannot_cancel(0, &cb);
	cannot_cancel(8, &cb);
	cannot_cancel(ctx + 1, &cb);
	cannot_cancel(ctx + 4096, &cb);
	/* The request of one context is nothing to another. */
	cannot_cancel(other, &cb);
	aio_none(ctx);
	cancels(ctx, &cb);
	aio_expect(ctx, &cb, 0);
	aio_free(other);
	aio_free(ctx);
	cannot_cancel(ctx, &cb);
	close_both(p);
}

/* --- AIO-CANCEL-02 --------------------------------------------------------------------------- */

static void AIO_CANCEL_02_what_is_not_pending(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct iocb cb, copy;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	memset(&cb, 0, sizeof(cb));
	cannot_cancel(ctx, &cb);
	pend(ctx, &cb, p[0]);
	/* It is the address that counts. */
	copy = cb;
	cannot_cancel(ctx, &copy);
	put(p[1]);
	/* Complete, and its event not taken. */
	cannot_cancel(ctx, &cb);
	aio_expect(ctx, &cb, POLLIN | POLLRDNORM);
	cannot_cancel(ctx, &cb);
	get(p[0]);
	pend(ctx, &cb, p[0]);
	cancels(ctx, &cb);
	cannot_cancel(ctx, &cb);
	aio_expect(ctx, &cb, 0);
	cannot_cancel(ctx, &cb);
	/* Refused at submission. */
	aio_refuses(ctx, aio_poll(&cb, -1, POLLIN), EBADF);
	cannot_cancel(ctx, &cb);
	close_both(p);
	aio_free(ctx);
}

static void AIO_CANCEL_02_ordinary_files_cannot_be_cancelled(void **state)
{
	aio_context_t ctx = aio_new(64);
	int mem = file_in_memory(4096), disk = file_on_disk(65536, 0);
	int direct = file_on_disk(65536, O_DIRECT), poll[2];
	char *buf = aligned_alloc(4096, 65536);
	struct iocb cb[6], pending;

	(void)state;
	assert_non_null(buf);
	aio_pipe(poll, 0);
	/* A poll beside them makes no difference. */
	pend(ctx, &pending, poll[0]);
	aio_accept1(ctx, aio_pread(&cb[0], mem, buf, 16, 0));
	cannot_cancel(ctx, &cb[0]);
	aio_expect(ctx, &cb[0], 16);
	aio_accept1(ctx, aio_pwrite(&cb[1], disk, buf, 16, 0));
	cannot_cancel(ctx, &cb[1]);
	aio_expect(ctx, &cb[1], 16);
	aio_accept1(ctx, aio_fsync(&cb[2], disk));
	cannot_cancel(ctx, &cb[2]);
	aio_expect(ctx, &cb[2], 0);
	aio_accept1(ctx, aio_fdsync(&cb[3], mem));
	cannot_cancel(ctx, &cb[3]);
	aio_expect(ctx, &cb[3], 0);
	if (direct != -1) {
		for (int i = 0; i < 50; i++) {
			aio_accept1(ctx, aio_pread(&cb[4], direct, buf, 65536, 0));
			cannot_cancel(ctx, &cb[4]);
			aio_expect(ctx, &cb[4], 65536);
			aio_accept1(ctx, aio_pwrite(&cb[5], direct, buf, 65536, 0));
			cannot_cancel(ctx, &cb[5]);
			aio_expect(ctx, &cb[5], 65536);
		}
		close(direct);
	}
	aio_none(ctx);
	cancels(ctx, &pending);
	aio_expect(ctx, &pending, 0);
	free(buf);
	close(mem);
	close(disk);
	close_both(poll);
	aio_free(ctx);
}

/* --- AIO-CANCEL-03 --------------------------------------------------------------------------- */

static void AIO_CANCEL_03_the_event_comes_through_the_ring(void **state)
{
	aio_context_t ctx = aio_new(8);
	int fds[4][2];
	struct iocb cb;

	(void)state;
	aio_pipe(fds[0], 0);
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, fds[1]));
	fds[2][0] = fds[2][1] = efd_new(0, 0);
	fds[3][0] = fds[3][1] = ep_new();
	for (int i = 0; i < 4; i++) {
		pend(ctx, &cb, fds[i][0]);
		cancels(ctx, &cb);
		aio_expect(ctx, &cb, 0);
		aio_none(ctx);
	}
	close_both(fds[0]);
	close_both(fds[1]);
	close(fds[2][0]);
	close(fds[3][0]);
	aio_free(ctx);
}

static void AIO_CANCEL_03_the_result_may_be_anything(void **state)
{
	aio_context_t ctx = aio_new(8);
	struct iocb cb;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	pend(ctx, &cb, p[0]);
	assert_errno(aio_cancel(ctx, &cb, NULL), EINPROGRESS);
	aio_expect(ctx, &cb, 0);
	assert_errno(aio_cancel(ctx, &cb, NULL), EINVAL);
	for (size_t i = 0; i < BAD_ADDRESSES; i++) {
		pend(ctx, &cb, p[0]);
		assert_errno(aio_cancel(ctx, &cb, (struct io_event *)bad_addresses[i]),
			     EINPROGRESS);
		aio_expect(ctx, &cb, 0);
	}
	close_both(p);
	aio_free(ctx);
}

/* What the request says has been copied, but for its key, which is read again. */
static void AIO_CANCEL_03_the_request_is_known_by_its_address(void **state)
{
	aio_context_t ctx = aio_new(8);
	struct io_event ev;
	struct iocb cb;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	pend(ctx, &cb, p[0]);
	cb.aio_data = 77;
	memset((char *)&cb + offsetof(struct iocb, aio_lio_opcode), 0xff,
	       sizeof(cb) - offsetof(struct iocb, aio_lio_opcode));
	assert_errno(aio_cancel(ctx, &cb, NULL), EINPROGRESS);
	aio_take(ctx, &ev, 1);
	aio_check(&ev, &cb, 0);
	close_both(p);
	aio_free(ctx);
}

static void AIO_CANCEL_03_a_waiter_is_woken(void **state)
{
	aio_context_t ctx = aio_new(8);
	struct getter *g;
	struct iocb cb;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	pend(ctx, &cb, p[0]);
	g = getter_new(ctx, 1, 4, -1);
	cancels(ctx, &cb);
	getter_gets(g, 1);
	aio_check(&g->ev[0], &cb, 0);
	free(g);
	close_both(p);
	aio_free(ctx);
}

static void AIO_CANCEL_03_the_others_stay(void **state)
{
	enum { N = 16 };
	aio_context_t ctx = aio_new(N);
	struct iocb cb[N];
	struct io_event ev[N];
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	for (int i = 0; i < N; i++)
		pend(ctx, &cb[i], p[0]);
	for (int i = 1; i < N; i += 2) {
		cancels(ctx, &cb[i]);
		aio_expect(ctx, &cb[i], 0);
	}
	aio_none(ctx);
	put(p[1]);
	aio_take(ctx, ev, N / 2);
	for (int i = 0; i < N / 2; i++)
		aio_check(&ev[i], &cb[N - 2 - 2 * i], POLLIN | POLLRDNORM);
	aio_none(ctx);
	close_both(p);
	aio_free(ctx);
}

/* The file of a cancelled request is let go. */
static void AIO_CANCEL_03_the_file_is_let_go(void **state)
{
	aio_context_t ctx = aio_new(8);
	void (*old)(int) = signal(SIGPIPE, SIG_IGN);
	struct iocb cb;
	int64_t end = now_ms() + SOON_MS;
	int p[2];

	(void)state;
	aio_pipe(p, O_NONBLOCK);
	pend(ctx, &cb, p[0]);
	close(p[0]);
	put(p[1]);
	aio_expect(ctx, &cb, POLLIN | POLLRDNORM);
	close(p[1]);
	aio_pipe(p, O_NONBLOCK);
	aio_accept1(ctx, aio_poll(&cb, p[0], POLLPRI));
	close(p[0]);
	put(p[1]);
	cancels(ctx, &cb);
	aio_expect(ctx, &cb, 0);
	/* Perhaps a moment later. */
	while (write(p[1], "x", 1) == 1 || errno == EAGAIN) {
		assert_true(now_ms() < end);
		sleep_ms(1);
	}
	assert_int_equal(errno, EPIPE);
	close(p[1]);
	signal(SIGPIPE, old);
	aio_free(ctx);
}

/* --- AIO-CANCEL-04 --------------------------------------------------------------------------- */

static void AIO_CANCEL_04_the_oldest_of_several(void **state)
{
	aio_context_t ctx = aio_new(8);
	struct io_event ev;
	struct iocb cb;
	int p[4][2];

	(void)state;
	for (int i = 0; i < 4; i++) {
		aio_pipe(p[i], 0);
		aio_poll(&cb, p[i][0], POLLIN);
		cb.aio_data = (uint64_t)(100 + i);
		aio_accept1(ctx, &cb);
	}
	for (int i = 0; i < 2; i++) {
		cancels(ctx, &cb);
		aio_take(ctx, &ev, 1);
		assert_int_equal(ev.obj, (uintptr_t)&cb);
		assert_int_equal(ev.data, 100 + i);
		assert_int_equal(ev.res, 0);
	}
	/* The third completes, so that the fourth is the oldest. */
	put(p[2][1]);
	aio_take(ctx, &ev, 1);
	assert_int_equal(ev.data, 102);
	assert_int_equal(ev.res, POLLIN | POLLRDNORM);
	cancels(ctx, &cb);
	aio_take(ctx, &ev, 1);
	assert_int_equal(ev.data, 103);
	cannot_cancel(ctx, &cb);
	aio_none(ctx);
	for (int i = 0; i < 4; i++)
		close_both(p[i]);
	aio_free(ctx);
}

/* --- AIO-CANCEL-05 --------------------------------------------------------------------------- */

static void AIO_CANCEL_05_the_eventfd_is_told(void **state)
{
	aio_context_t ctx = aio_new(8);
	int efd = efd_new(0, 0), p[2];
	struct iocb cb[3];

	(void)state;
	aio_pipe(p, 0);
	for (int i = 0; i < 3; i++)
		aio_accept1(ctx, aio_resfd(aio_poll(&cb[i], p[0], POLLIN), efd));
	for (int i = 0; i < 3; i++) {
		cancels(ctx, &cb[i]);
		/* Blocks until it is. */
		assert_int_equal(efd_take(efd), 1);
		aio_expect(ctx, &cb[i], 0);
	}
	close(efd);
	close_both(p);
	aio_free(ctx);
}

/* --- races ----------------------------------------------------------------------------------- */

struct racer {
	struct test_thread t;
	aio_context_t ctx;
	struct iocb *cb;
	int fd;
	uint32_t round, end;
	long cancelled, refused, other;
};

static bool next_round(struct racer *r, uint32_t *done)
{
	uint32_t round, spins = 0;

	while ((round = __atomic_load_n(&r->round, __ATOMIC_ACQUIRE)) == *done) {
		if (__atomic_load_n(&r->end, __ATOMIC_ACQUIRE))
			return false;
		if (++spins > 2000)
			sched_yield();
	}
	*done = round;
	for (unsigned int i = 0; i < round % 32 * 32; i++)
		__asm__ volatile("" ::: "memory");
	return true;
}

static void count(long *n)
{
	__atomic_fetch_add(n, 1, __ATOMIC_RELEASE);
}

/* How many requests the canceller is done with. */
static long raced(struct racer *r)
{
	return __atomic_load_n(&r->cancelled, __ATOMIC_ACQUIRE) +
	       __atomic_load_n(&r->refused, __ATOMIC_ACQUIRE) +
	       __atomic_load_n(&r->other, __ATOMIC_ACQUIRE);
}

static void *canceller_main(void *arg)
{
	struct racer *r = arg;
	uint32_t done = 0;

	while (next_round(r, &done)) {
		if (aio_cancel(r->ctx, r->cb, NULL) != -1)
			count(&r->other);
		else if (errno == EINPROGRESS)
			count(&r->cancelled);
		else if (errno == EINVAL)
			count(&r->refused);
		else
			count(&r->other);
	}
	return NULL;
}

static void AIO_CANCEL_02_AIO_CANCEL_03_against_completion(void **state)
{
	enum { ROUNDS = 1500 };
	aio_context_t ctx = aio_new(4);
	long zero = 0;
	struct iocb cb;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	struct racer r = {.ctx = ctx, .cb = &cb};

	thread_start(&r.t, canceller_main, &r);
	for (int i = 0; i < ROUNDS; i++) {
		struct io_event ev;

		pend(ctx, &cb, p[0]);
		__atomic_store_n(&r.round, r.round + 1, __ATOMIC_RELEASE);
		put(p[1]);
		aio_take(ctx, &ev, 1);
		assert_int_equal(ev.obj, (uintptr_t)&cb);
		assert_true(ev.res == 0 || ev.res == POLLIN || ev.res == (POLLIN | POLLRDNORM));
		zero += ev.res == 0;
		get(p[0]);
		/* The canceller is done with this one before the next is submitted. */
		while (raced(&r) <= i)
			sched_yield();
		aio_none(ctx);
	}
	__atomic_store_n(&r.end, 1, __ATOMIC_RELEASE);
	assert_true(thread_join(&r.t, SOON_MS));
	assert_int_equal(r.other, 0);
	assert_int_equal(r.cancelled + r.refused, ROUNDS);
	/* Nothing is cancelled for whom it was too late. */
	assert_true(zero <= r.cancelled);
	close_both(p);
	aio_free(ctx);
}

static void AIO_CANCEL_02_two_cancellers(void **state)
{
	enum { ROUNDS = 1000 };
	aio_context_t ctx = aio_new(4);
	struct iocb cb;
	long mine = 0;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	struct racer r = {.ctx = ctx, .cb = &cb};

	thread_start(&r.t, canceller_main, &r);
	for (int i = 0; i < ROUNDS; i++) {
		pend(ctx, &cb, p[0]);
		__atomic_store_n(&r.round, r.round + 1, __ATOMIC_RELEASE);
		if (aio_cancel(ctx, &cb, NULL) == -1 && errno == EINPROGRESS)
			mine++;
		aio_expect(ctx, &cb, 0);
		while (raced(&r) <= i)
			sched_yield();
		aio_none(ctx);
	}
	__atomic_store_n(&r.end, 1, __ATOMIC_RELEASE);
	assert_true(thread_join(&r.t, SOON_MS));
	assert_int_equal(r.other, 0);
	assert_int_equal(mine + r.cancelled, ROUNDS);
	close_both(p);
	aio_free(ctx);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(AIO_CANCEL_01_the_request_is_read_first),
		cmocka_unit_test(AIO_CANCEL_01_a_key_that_is_not_0),
		cmocka_unit_test(AIO_CANCEL_01_a_bad_context),
		cmocka_unit_test(AIO_CANCEL_02_what_is_not_pending),
		cmocka_unit_test(AIO_CANCEL_02_ordinary_files_cannot_be_cancelled),
		cmocka_unit_test(AIO_CANCEL_03_the_event_comes_through_the_ring),
		cmocka_unit_test(AIO_CANCEL_03_the_result_may_be_anything),
		cmocka_unit_test(AIO_CANCEL_03_the_request_is_known_by_its_address),
		cmocka_unit_test(AIO_CANCEL_03_a_waiter_is_woken),
		cmocka_unit_test(AIO_CANCEL_03_the_others_stay),
		cmocka_unit_test(AIO_CANCEL_03_the_file_is_let_go),
		cmocka_unit_test(AIO_CANCEL_04_the_oldest_of_several),
		cmocka_unit_test(AIO_CANCEL_05_the_eventfd_is_told),
		cmocka_unit_test(AIO_CANCEL_02_AIO_CANCEL_03_against_completion),
		cmocka_unit_test(AIO_CANCEL_02_two_cancellers),
	};

	return run_group(tests);
}
