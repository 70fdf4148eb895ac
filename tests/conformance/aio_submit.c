/* SPDX-License-Identifier: MIT */
/* io_submit: the order of its checks, what it accepts, slots, and what it does before it returns.
 */
#include "aio.h"

#include <limits.h>
#include <sched.h>
#include <sys/time.h>

static void AIO_SUBMIT_01_a_negative_number(void **state)
{
	static const long numbers[] = {-1, -2, INT_MIN, LONG_MIN, LONG_MIN + 1};
	aio_context_t ctx = aio_new(4);
	struct iocb cb, *list[1] = {&cb};
	char buf[8];
	int fd = file_in_memory(8);

	(void)state;
	aio_pread(&cb, fd, buf, 8, 0);
	for (int i = 0; i < 5; i++) {
		assert_errno(aio_submit(ctx, numbers[i], list), EINVAL);
		assert_errno(aio_submit(ctx, numbers[i], NULL), EINVAL);
		assert_errno(aio_submit(0, numbers[i], list), EINVAL);
	}
	aio_none(ctx);
	close(fd);
	aio_free(ctx);
}

static void AIO_SUBMIT_01_a_bad_context_comes_before_the_array(void **state)
{
	struct iocb *list[1] = {NULL};

	(void)state;
	assert_errno(aio_submit(0, 0, NULL), EINVAL);
	assert_errno(aio_submit(0, 1, NULL), EINVAL);
	assert_errno(aio_submit(0, 1, unmapped()), EINVAL);
	assert_errno(aio_submit((uintptr_t)list, 1, list), EINVAL);
	assert_errno(aio_submit((uintptr_t)unmapped(), LONG_MAX, list), EINVAL);
}

static void AIO_SUBMIT_01_none_to_submit(void **state)
{
	aio_context_t ctx = aio_new(4);

	(void)state;
	assert_int_equal(assert_ok(aio_submit(ctx, 0, NULL)), 0);
	assert_int_equal(assert_ok(aio_submit(ctx, 0, unmapped())), 0);
	for (size_t i = 0; i < BAD_ADDRESSES; i++)
		assert_int_equal(assert_ok(aio_submit(ctx, 0, (void *)bad_addresses[i])), 0);
	aio_none(ctx);
	aio_free(ctx);
}

/* --- what can be wrong with a request, in the order in which it is found -------------------- */

enum fault {
	BAD_IOCB,      /* not readable */
	BAD_RESERVED2, /* EINVAL */
	BAD_NBYTES,    /* EINVAL */
	BAD_FD,	       /* EBADF */
	BAD_RESFD,     /* EBADF: not open */
	WRONG_RESFD,   /* EINVAL: not an eventfd */
	BAD_KEY,       /* EFAULT: aio_key cannot be written */
	BAD_OPCODE,    /* EINVAL */
	BAD_OPERATION, /* EINVAL: a poll with an offset */
	FAULTS
};

static const int fault_errno[FAULTS] = {
	[BAD_IOCB] = EFAULT, [BAD_RESERVED2] = EINVAL, [BAD_NBYTES] = EINVAL,
	[BAD_FD] = EBADF,    [BAD_RESFD] = EBADF,      [WRONG_RESFD] = EINVAL,
	[BAD_KEY] = EFAULT,  [BAD_OPCODE] = EINVAL,    [BAD_OPERATION] = EINVAL,
};

#define HAS(faults, f) (((faults) >> (f)) & 1)
#define KEY_BEFORE 0x12345678u

struct bench {
	aio_context_t ctx;
	int fd;
	int pipe[2];
	int closed;
	int efd;
	char *end; /* a page that is made readable only when a request in it is to be */
	char buf[8];
};

static struct bench bench_new(void)
{
	struct bench b = {.ctx = aio_new(8), .fd = file_in_memory(64)};

	aio_pipe(b.pipe, 0);
	b.efd = efd_new(0, EFD_NONBLOCK);
	b.closed = (int)assert_ok(dup(b.fd));
	close(b.closed);
	b.end = edge_new(PROT_READ | PROT_WRITE);
	return b;
}

static void bench_free(struct bench *b)
{
	assert_ok(mprotect(b->end, AIO_PAGE, PROT_READ | PROT_WRITE));
	edge_free(b->end);
	close(b->fd);
	close(b->pipe[0]);
	close(b->pipe[1]);
	close(b->efd);
	aio_free(b->ctx);
}

/* Makes a request in which this much is wrong. */
static struct iocb *faulty(struct bench *b, unsigned int faults)
{
	struct iocb *cb = (void *)(b->end + 512);

	assert_ok(mprotect(b->end, AIO_PAGE, PROT_READ | PROT_WRITE));
	aio_pread(cb, b->fd, b->buf, 8, 0);
	aio_resfd(cb, b->efd);
	cb->aio_key = KEY_BEFORE;
	if (HAS(faults, BAD_RESERVED2))
		cb->aio_reserved2 = 1;
	if (HAS(faults, BAD_NBYTES))
		cb->aio_nbytes = 1ull << 63;
	if (HAS(faults, BAD_FD))
		cb->aio_fildes = (uint32_t)b->closed;
	if (HAS(faults, WRONG_RESFD))
		cb->aio_resfd = (uint32_t)b->pipe[0];
	if (HAS(faults, BAD_RESFD))
		cb->aio_resfd = (uint32_t)b->closed;
	if (HAS(faults, BAD_OPERATION)) {
		cb->aio_lio_opcode = IOCB_CMD_POLL;
		cb->aio_buf = POLLIN;
		if (!HAS(faults, BAD_NBYTES))
			cb->aio_nbytes = 0;
		cb->aio_offset = 1;
	}
	if (HAS(faults, BAD_OPCODE))
		cb->aio_lio_opcode = 99;
	if (HAS(faults, BAD_IOCB))
		assert_ok(mprotect(b->end, AIO_PAGE, PROT_NONE));
	else if (HAS(faults, BAD_KEY))
		assert_ok(mprotect(b->end, AIO_PAGE, PROT_READ));
	return cb;
}

static int first_fault(unsigned int faults)
{
	int f = 0;

	while (!HAS(faults, f))
		f++;
	return f;
}

/* Sets of faults that can be told from each other: BAD_RESFD and WRONG_RESFD exclude each other. */
static bool possible(unsigned int faults)
{
	return !(HAS(faults, BAD_RESFD) && HAS(faults, WRONG_RESFD)) &&
	       !(HAS(faults, BAD_IOCB) && HAS(faults, BAD_KEY)) &&
	       !(HAS(faults, BAD_OPCODE) && HAS(faults, BAD_OPERATION));
}

static void AIO_SUBMIT_04_AIO_SUBMIT_06_the_first_fault_of_a_request_counts(void **state)
{
	struct bench b = bench_new();
	uint64_t v;

	(void)state;
	for (unsigned int faults = 1; faults < 1u << FAULTS; faults++) {
		struct iocb *cb;

		if (!possible(faults))
			continue;
		cb = faulty(&b, faults);
		errno = 0;
		if (aio_submit1(b.ctx, cb) != -1 || errno != fault_errno[first_fault(faults)]) {
			print_error("faults %#x: errno %d\n", faults, errno);
			fail();
		}
	}
	/* No event and no signal of the eventfd came from any of them. */
	aio_none(b.ctx);
	assert_int_equal(ring_tail(ring_of(b.ctx)), 0);
	assert_errno(read(b.efd, &v, 8), EAGAIN);
	aio_does(b.ctx, faulty(&b, 0), 8);
	assert_int_equal(efd_take(b.efd), 1);
	bench_free(&b);
}

static void AIO_SUBMIT_05_the_key_is_set_once_the_descriptors_are_good(void **state)
{
	struct bench b = bench_new();

	(void)state;
	for (unsigned int faults = 1; faults < 1u << FAULTS; faults++) {
		struct iocb *cb;
		int first = first_fault(faults);

		if (!possible(faults))
			continue;
		cb = faulty(&b, faults);
		assert_int_equal(aio_submit1(b.ctx, cb), -1);
		assert_ok(mprotect(b.end, AIO_PAGE, PROT_READ | PROT_WRITE));
		assert_int_equal(cb->aio_key,
				 first == BAD_OPCODE || first == BAD_OPERATION ? 0 : KEY_BEFORE);
	}
	aio_does(b.ctx, faulty(&b, 0), 8);
	assert_int_equal(((struct iocb *)(void *)(b.end + 512))->aio_key, 0);
	bench_free(&b);
}

static void AIO_SUBMIT_05_nothing_else_of_a_request_is_written(void **state)
{
	struct bench b = bench_new();
	struct iocb *cb = faulty(&b, 0), before;

	(void)state;
	before = *cb;
	before.aio_key = 0;
	aio_does(b.ctx, cb, 8);
	assert_memory_equal(cb, &before, sizeof(before));
	bench_free(&b);
}

static void AIO_SUBMIT_04_reserved_and_length(void **state)
{
	static const uint64_t negative[] = {1ull << 63, UINT64_MAX, (1ull << 63) + 1};
	static const uint16_t opcodes[] = {IOCB_CMD_PREAD, IOCB_CMD_PWRITE, IOCB_CMD_FSYNC,
					   IOCB_CMD_POLL,  IOCB_CMD_PREADV, 99};
	struct bench b = bench_new();

	(void)state;
	for (int op = 0; op < 6; op++) {
		for (int i = 0; i < 3; i++) {
			struct iocb *cb = faulty(&b, 0);

			cb->aio_lio_opcode = opcodes[op];
			cb->aio_nbytes = negative[i];
			cb->aio_fildes = (uint32_t)b.closed;
			aio_refuses(b.ctx, cb, EINVAL);
		}
		for (int bit = 0; bit < 64; bit += 9) {
			struct iocb *cb = faulty(&b, 0);

			cb->aio_lio_opcode = opcodes[op];
			cb->aio_reserved2 = 1ull << bit;
			cb->aio_fildes = (uint32_t)b.closed;
			aio_refuses(b.ctx, cb, EINVAL);
		}
	}
	bench_free(&b);
}

static void AIO_SUBMIT_04_descriptors(void **state)
{
	struct bench b = bench_new();
	int path = (int)assert_ok(open("/dev/null", O_PATH | O_CLOEXEC));
	int not_eventfds[] = {b.fd, b.pipe[0], b.pipe[1], epoll_create1(EPOLL_CLOEXEC)};
	int not_open[] = {b.closed, -1, INT_MIN, INT_MAX, 1 << 20, path};

	(void)state;
	for (int i = 0; i < 6; i++) {
		struct iocb *cb = faulty(&b, 0);

		cb->aio_fildes = (uint32_t)not_open[i];
		aio_refuses(b.ctx, cb, EBADF);
		cb = faulty(&b, 0);
		cb->aio_resfd = (uint32_t)not_open[i];
		aio_refuses(b.ctx, cb, EBADF);
		/* Without the flag the field is not looked at. */
		cb->aio_flags = 0;
		aio_does(b.ctx, cb, 8);
	}
	for (int i = 0; i < 4; i++) {
		struct iocb *cb = faulty(&b, 0);

		cb->aio_resfd = (uint32_t)not_eventfds[i];
		aio_refuses(b.ctx, cb, EINVAL);
	}
	close(not_eventfds[3]);
	close(path);
	bench_free(&b);
}

/* --- slots ---------------------------------------------------------------------------------- */

/* On one CPU the kernel gives a slot that was freed to the next request. */
static cpu_set_t stay_on_one_cpu(void)
{
	cpu_set_t all, one;

	assert_ok(sched_getaffinity(0, sizeof(all), &all));
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(i, &one);
		assert_ok(sched_setaffinity(0, sizeof(one), &one));
		break;
	}
	return all;
}

static void go_anywhere(cpu_set_t all)
{
	assert_ok(sched_setaffinity(0, sizeof(all), &all));
}

/* Submits one at a time until there is no slot and returns how many were accepted. */
static int submit_until_full(aio_context_t ctx, int fd)
{
	static char buf[8];
	struct iocb cb;
	int n = 0;

	aio_pread(&cb, fd, buf, 8, 0);
	while (aio_submit1(ctx, &cb) == 1)
		n++;
	assert_int_equal(errno, EAGAIN);
	return n;
}

static void AIO_SUBMIT_04_no_slot_comes_before_the_descriptors(void **state)
{
	struct bench b = bench_new();
	int n = submit_until_full(b.ctx, b.fd);

	(void)state;
	for (unsigned int faults = 0; faults < 1u << FAULTS; faults++) {
		struct iocb *cb;
		int want;

		if (!possible(faults))
			continue;
		cb = faulty(&b, faults);
		want = faults == 0 || first_fault(faults) > BAD_NBYTES
			       ? EAGAIN
			       : fault_errno[first_fault(faults)];
		assert_errno(aio_submit1(b.ctx, cb), want);
	}
	assert_int_equal(ring_count(ring_of(b.ctx)), n);
	ring_set_head(ring_of(b.ctx), ring_tail(ring_of(b.ctx)));
	aio_does(b.ctx, faulty(&b, 0), 8);
	bench_free(&b);
}

static void AIO_SUBMIT_07_how_many_are_accepted(void **state)
{
	static const unsigned int numbers[] = {1, 8, 62, 63, 100, 128, 500, 1000};
	int fd = file_in_memory(8);

	(void)state;
	for (int i = 0; i < 8; i++) {
		aio_context_t ctx = aio_new(numbers[i]);
		uint32_t nr = ring_of(ctx)->nr;

		for (int round = 0; round < 4; round++) {
			int n = submit_until_full(ctx, fd);

			assert_uint_in_range(n, numbers[i], nr - 1);
			assert_int_equal(ring_count(ring_of(ctx)), n);
			ring_set_head(ring_of(ctx), ring_tail(ring_of(ctx)));
		}
		aio_free(ctx);
	}
	close(fd);
}

/* Requests that are not complete take slots like those that are. */
static void AIO_SUBMIT_07_pending_requests_take_slots(void **state)
{
	aio_context_t ctx = aio_new(62);
	uint32_t nr = ring_of(ctx)->nr;
	struct iocb *cb = calloc(nr, sizeof(*cb));
	struct io_event *ev = calloc(nr, sizeof(*ev));
	int p[2];
	uint32_t n = 0;

	(void)state;
	assert_non_null(cb);
	assert_non_null(ev);
	aio_pipe(p, 0);
	while (n < nr && aio_submit1(ctx, aio_poll(&cb[n], p[0], POLLIN)) == 1)
		n++;
	assert_int_equal(errno, EAGAIN);
	assert_uint_in_range(n, 62, nr - 1);
	aio_none(ctx);
	assert_int_equal(write(p[1], "x", 1), 1);
	aio_take(ctx, ev, n);
	aio_none(ctx);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = (uint32_t)(((struct iocb *)(uintptr_t)ev[i].obj) - cb);

		assert_uint_in_range(k, 0, n - 1);
		assert_true(cb[k].aio_data == ev[i].data);
		/* Each once. */
		cb[k].aio_data = 0;
	}
	close(p[0]);
	close(p[1]);
	free(ev);
	free(cb);
	aio_free(ctx);
}

static void AIO_SUBMIT_08_a_slot_is_freed_by_reaping(void **state)
{
	static const long portions[] = {1, 3, 40, 2, 20};
	cpu_set_t all = stay_on_one_cpu();
	aio_context_t ctx = aio_new(62);
	struct io_event ev[64];
	int fd = file_in_memory(8), n;

	(void)state;
	/* All of them are complete, and nevertheless there is no slot. */
	n = submit_until_full(ctx, fd);
	assert_int_equal(ring_count(ring_of(ctx)), n);
	assert_int_equal(submit_until_full(ctx, fd), 0);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(aio_poll_events(ctx, ev, portions[i]), portions[i]);
		assert_int_equal(submit_until_full(ctx, fd), portions[i]);
	}
	close(fd);
	aio_free(ctx);
	go_anywhere(all);
}

/* A call that took events by EFAULT has taken none. */
static void AIO_SUBMIT_08_AIO_GET_08_a_failed_call_frees_no_slot(void **state)
{
	cpu_set_t all = stay_on_one_cpu();
	aio_context_t ctx = aio_new(62);
	struct io_event ev;
	int fd = file_in_memory(8);

	(void)state;
	assert_uint_in_range(submit_until_full(ctx, fd), 62, ring_of(ctx)->nr - 1);
	for (int i = 0; i < 10; i++) {
		assert_errno(aio_getevents(ctx, 1, 5, (void *)8, NULL), EFAULT);
		assert_int_equal(submit_until_full(ctx, fd), 0);
	}
	aio_take(ctx, &ev, 1);
	assert_int_equal(submit_until_full(ctx, fd), 1);
	close(fd);
	aio_free(ctx);
	go_anywhere(all);
}

static void AIO_SUBMIT_08_a_refused_request_takes_no_slot(void **state)
{
	struct bench b = bench_new();
	int room = submit_until_full(b.ctx, b.fd);

	(void)state;
	ring_set_head(ring_of(b.ctx), ring_tail(ring_of(b.ctx)));
	for (int i = 0; i < 20 * room; i++) {
		aio_refuses(b.ctx, faulty(&b, 1u << BAD_FD), EBADF);
		aio_refuses(b.ctx, faulty(&b, 1u << BAD_RESFD), EBADF);
		aio_refuses(b.ctx, faulty(&b, 1u << BAD_OPERATION), EINVAL);
	}
	assert_uint_in_range(submit_until_full(b.ctx, b.fd), 8, ring_of(b.ctx)->nr - 1);
	bench_free(&b);
}

/* --- several requests ----------------------------------------------------------------------- */

static void AIO_SUBMIT_02_in_order_until_the_first_that_fails(void **state)
{
	static const enum fault kinds[] = {BAD_IOCB,	BAD_RESERVED2, BAD_NBYTES, BAD_FD,
					   WRONG_RESFD, BAD_KEY,       BAD_OPCODE};
	struct bench b = bench_new();
	struct iocb cb[6], *list[6];
	char buf[6][8];

	(void)state;
	for (int kind = 0; kind < 7; kind++) {
		for (int at = 0; at < 6; at++) {
			for (int i = 0; i < 6; i++)
				list[i] = aio_pread(&cb[i], b.fd, buf[i], 8, i);
			list[at] = faulty(&b, 1u << kinds[kind]);
			if (at == 0) {
				assert_errno(aio_submit(b.ctx, 6, list), fault_errno[kinds[kind]]);
				aio_none(b.ctx);
				continue;
			}
			assert_int_equal(assert_ok(aio_submit(b.ctx, 6, list)), at);
			aio_expect_all(b.ctx, cb, at, 8);
			aio_none(b.ctx);
			/* The error shows when the rest is tried. */
			assert_errno(aio_submit(b.ctx, 6 - at, list + at),
				     fault_errno[kinds[kind]]);
		}
	}
	bench_free(&b);
}

static void AIO_SUBMIT_02_no_slot_for_the_last_ones(void **state)
{
	aio_context_t ctx = aio_new(62);
	uint32_t nr = ring_of(ctx)->nr;
	struct iocb cb, **list = calloc(nr * 2, sizeof(*list));
	char buf[8];
	int fd = file_in_memory(8);
	long n;

	(void)state;
	assert_non_null(list);
	aio_pread(&cb, fd, buf, 8, 0);
	for (uint32_t i = 0; i < nr * 2; i++)
		list[i] = &cb;
	n = assert_ok(aio_submit(ctx, nr * 2, list));
	assert_uint_in_range(n, 62, nr - 1);
	assert_int_equal(ring_count(ring_of(ctx)), n);
	assert_errno(aio_submit(ctx, nr * 2, list), EAGAIN);
	free(list);
	close(fd);
	aio_free(ctx);
}

static void AIO_SUBMIT_03_a_bad_slot_of_the_array(void **state)
{
	struct bench b = bench_new();
	struct iocb cb[4];
	struct io_event ev[4];
	char buf[8];

	(void)state;
	for (size_t i = 0; i < BAD_ADDRESSES; i++)
		assert_errno(aio_submit(b.ctx, 1, (void *)bad_addresses[i]), EFAULT);
	assert_errno(aio_submit(b.ctx, 1, NULL), EFAULT);
	assert_errno(aio_submit(b.ctx, 1, unmapped()), EFAULT);
	assert_errno(aio_submit(b.ctx, LONG_MAX, unmapped()), EFAULT);
	assert_ok(mprotect(b.end, AIO_PAGE, PROT_NONE));
	for (int k = 0; k < 8; k++)
		assert_errno(aio_submit(b.ctx, 1, (void *)(b.end - k)), EFAULT);
	/* An array whose end cannot be read: what comes before is done. */
	for (int n = 1; n < 5; n++) {
		struct iocb **list = (void *)(b.end - n * 8);

		for (int i = 0; i < n; i++)
			list[i] = aio_pread(&cb[i], b.fd, buf, 8, 0);
		assert_int_equal(assert_ok(aio_submit(b.ctx, n + 1, list)), n);
		aio_expect_all(b.ctx, cb, n, 8);
		assert_int_equal(assert_ok(aio_submit(b.ctx, LONG_MAX, list)), n);
		aio_take(b.ctx, ev, n);
		assert_int_equal(assert_ok(aio_submit(b.ctx, INT_MAX, list)), n);
		aio_take(b.ctx, ev, n);
		assert_errno(aio_submit(b.ctx, 1, list + n), EFAULT);
		aio_none(b.ctx);
	}
	/* Nor need the array be aligned. */
	for (int shift = 1; shift < 8; shift++) {
		struct iocb *one = aio_pread(&cb[0], b.fd, buf, 8, 0);
		char *at = b.end - 8 - shift;

		memcpy(at, &one, 8);
		assert_int_equal(assert_ok(aio_submit(b.ctx, 1, (void *)at)), 1);
		aio_expect(b.ctx, &cb[0], 8);
	}
	bench_free(&b);
}

static void AIO_SUBMIT_03_a_bad_request_address(void **state)
{
	struct bench b = bench_new();
	char *end = edge_new(PROT_NONE);
	char buf[8] = {0};

	(void)state;
	for (size_t i = 0; i < BAD_ADDRESSES; i++)
		aio_refuses(b.ctx, (struct iocb *)bad_addresses[i], EFAULT);
	aio_refuses(b.ctx, NULL, EFAULT);
	aio_refuses(b.ctx, unmapped(), EFAULT);
	for (size_t k = 0; k < sizeof(struct iocb); k++) {
		/* A good request of which the last bytes are missing. */
		struct iocb cb;

		aio_pread(&cb, b.fd, buf, 8, 0);
		memcpy(end - k, &cb, k);
		aio_refuses(b.ctx, (void *)(end - k), EFAULT);
	}
	for (size_t k = sizeof(struct iocb); k < sizeof(struct iocb) + 9; k++) {
		struct iocb cb;
		struct io_event ev;

		aio_pread(&cb, b.fd, buf, 8, 0);
		memcpy(end - k, &cb, sizeof(cb));
		aio_accept1(b.ctx, (void *)(end - k));
		aio_take(b.ctx, &ev, 1);
		assert_true(ev.obj == (uintptr_t)(end - k));
		assert_int_equal(ev.res, 8);
	}
	edge_free(end);
	bench_free(&b);
}

static void *submitter_main(void *arg)
{
	void **a = arg;

	return (void *)aio_submit(*(aio_context_t *)a[0], 300, a[1]);
}

static void AIO_SUBMIT_03_the_number_is_cut_to_that_of_the_ring(void **state)
{
	static const uint32_t stops[] = {62, 124};
	aio_context_t ctx = aio_new(62);
	struct aio_ring *r = ring_of(ctx);
	struct iocb cb, *list[300];
	struct test_thread t;
	struct trap trap[2];
	void *arg[2] = {&ctx, list};
	char buf[8], *page = calloc(1, AIO_PAGE);
	int fd = file_in_memory(8);

	(void)state;
	/*
	 * There are never as many slots as the ring has entries, so that the cut only shows when
	 * events are taken during the call. It is held up twice for that, by requests that are in
	 * pages which are missing.
	 */
	memset(trap, 0, sizeof(trap));
	if (r->nr < 125 || r->nr > 124 + 62)
		SKIP("another number of CPUs");
	if (!trap_new(&trap[0], 1))
		SKIP("no userfaultfd");
	assert_true(trap_new(&trap[1], 1));
	aio_pread(&cb, fd, buf, 8, 0);
	memcpy(page, &cb, sizeof(cb));
	for (uint32_t i = 0; i < 300; i++)
		list[i] = &cb;
	for (int i = 0; i < 2; i++)
		list[stops[i]] = (void *)(trap[i].base + trap[i].page);
	thread_start(&t, submitter_main, arg);
	for (int i = 0; i < 2; i++) {
		struct uffdio_copy copy = {.dst = (uintptr_t)list[stops[i]],
					   .src = (uintptr_t)page,
					   .len = trap[i].page};

		trap_wait(&trap[i]);
		assert_int_equal(ring_count(r), 62);
		ring_set_head(r, ring_tail(r));
		assert_ok(ioctl(trap[i].uffd, UFFDIO_COPY, &copy));
	}
	assert_true(thread_join(&t, SOON_MS));
	assert_int_equal((long)t.ret, r->nr);
	assert_int_equal(ring_count(r), r->nr - 124);
	for (int i = 0; i < 2; i++)
		trap_free(&trap[i]);
	free(page);
	close(fd);
	aio_free(ctx);
}

static void AIO_SUBMIT_09_one_request_many_times(void **state)
{
	aio_context_t ctx = aio_new(62);
	struct iocb cb, *list[62];
	struct io_event ev[62];
	char buf[8];
	int fd = file_in_memory(8), p[2];

	(void)state;
	for (int i = 0; i < 62; i++)
		list[i] = &cb;
	aio_pread(&cb, fd, buf, 8, 0);
	aio_accept(ctx, list, 62);
	aio_take(ctx, ev, 62);
	for (int i = 0; i < 62; i++)
		aio_check(&ev[i], &cb, 8);
	aio_none(ctx);
	/* And while all of them are pending. */
	aio_pipe(p, 0);
	aio_poll(&cb, p[0], POLLIN);
	aio_accept(ctx, list, 62);
	aio_none(ctx);
	assert_int_equal(write(p[1], "x", 1), 1);
	aio_take(ctx, ev, 62);
	for (int i = 0; i < 62; i++)
		aio_check(&ev[i], &cb, POLLIN | POLLRDNORM);
	aio_none(ctx);
	close(p[0]);
	close(p[1]);
	close(fd);
	aio_free(ctx);
}

/* --- errors of the operation ---------------------------------------------------------------- */

static void AIO_SUBMIT_06_errors_of_the_operation_come_in_the_event(void **state)
{
	struct bench b = bench_new();
	struct iocb cb;
	int p[2];

	(void)state;
	aio_does(b.ctx, aio_pread(&cb, b.fd, unmapped(), 8, 0), -EFAULT);
	aio_does(b.ctx, aio_pread(&cb, b.fd, (void *)8, 8, 0), -EFAULT);
	aio_does(b.ctx, aio_pwrite(&cb, b.fd, unmapped(), 8, 0), -EFAULT);
	aio_pipe(p, O_NONBLOCK);
	aio_does(b.ctx, aio_pread(&cb, p[0], b.buf, 8, 0), -EAGAIN);
	aio_does(b.ctx, aio_resfd(aio_pread(&cb, p[0], b.buf, 8, 0), b.efd), -EAGAIN);
	assert_int_equal(efd_take(b.efd), 1);
	close(p[0]);
	close(p[1]);
	bench_free(&b);
}

static void AIO_SUBMIT_06_a_buffer_that_ends_too_early_gives_a_short_result(void **state)
{
	static const size_t good[] = {1, 3, 8, 100, 4096};
	aio_context_t ctx = aio_new(4);
	char *end = edge_new(PROT_NONE);
	struct iocb cb;

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int fd = disk ? file_on_disk(20000, 0) : file_in_memory(20000);

		for (int i = 0; i < 5; i++) {
			aio_does(ctx, aio_pread(&cb, fd, end - good[i], 8192, 10),
				 (int64_t)good[i]);
			assert_true(file_matches(end - good[i], good[i], 10));
		}
		close(fd);
	}
	edge_free(end);
	aio_free(ctx);
}

/* --- what is used until when ---------------------------------------------------------------- */

static void AIO_SUBMIT_10_the_request_is_not_used_after_submission(void **state)
{
	aio_context_t ctx = aio_new(4);
	char *page =
		mmap(NULL, AIO_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iocb *cb = (void *)page;
	char c;
	int p[2];

	(void)state;
	assert_true(page != MAP_FAILED);
	aio_pipe(p, 0);
	/* Changed. */
	aio_accept1(ctx, aio_poll(cb, p[0], POLLIN));
	memset(cb, 0xff, sizeof(*cb));
	assert_int_equal(write(p[1], "x", 1), 1);
	aio_expect(ctx, cb, POLLIN | POLLRDNORM);
	assert_int_equal(read(p[0], &c, 1), 1);
	/* Gone. */
	aio_accept1(ctx, aio_poll(cb, p[0], POLLIN));
	assert_ok(munmap(page, AIO_PAGE));
	assert_int_equal(write(p[1], "x", 1), 1);
	aio_expect(ctx, cb, POLLIN | POLLRDNORM);
	close(p[0]);
	close(p[1]);
	aio_free(ctx);
}

/* Reads of a disk past the page cache are under way when io_submit returns. */
static void AIO_SUBMIT_10_vectors_are_copied_at_submission(void **state)
{
	enum { N = 16, PART = 4096 };
	aio_context_t ctx = aio_new(N);
	struct iocb cb[N], *list[N];
	struct iovec iov[N][2];
	struct io_event ev[N];
	unsigned char *buf = NULL;
	int fd = file_on_disk((size_t)N * 2 * PART, O_DIRECT);

	(void)state;
	if (fd == -1) {
		aio_free(ctx);
		SKIP("no O_DIRECT on the file system of the temporary files");
	}
	assert_int_equal(posix_memalign((void **)&buf, 4096, (size_t)N * 2 * PART), 0);
	assert_ok(fsync(fd));
	for (int round = 0; round < 4; round++) {
		memset(buf, 0, (size_t)N * 2 * PART);
		for (int i = 0; i < N; i++) {
			for (int k = 0; k < 2; k++)
				iov[i][k] = (struct iovec){buf + (size_t)(2 * i + k) * PART, PART};
			list[i] = aio_preadv(&cb[i], fd, iov[i], 2, (int64_t)i * 2 * PART);
		}
		aio_accept(ctx, list, N);
		memset(iov, 0xff, sizeof(iov));
		memset(cb, 0xff, sizeof(cb));
		aio_take(ctx, ev, N);
		for (int i = 0; i < N; i++) {
			if (ev[i].res == -EINVAL) {
				aio_free(ctx);
				SKIP("O_DIRECT wants another alignment here");
			}
			assert_int_equal(ev[i].res, 2 * PART);
		}
		assert_true(file_matches(buf, (size_t)N * 2 * PART, 0));
	}
	free(buf);
	close(fd);
	aio_free(ctx);
}

static void AIO_SUBMIT_11_buffered_file_io_is_complete_at_once(void **state)
{
	aio_context_t ctx = aio_new(8);
	struct aio_ring *r = ring_of(ctx);
	struct iocb cb[4], *list[4];
	struct iovec iov[2];
	struct io_event ev[4];
	char a[8] = {0}, b[8] = {0}, out[8] = "abcdefg";

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int fd = disk ? file_on_disk(100, 0) : file_in_memory(100);

		memset(a, 0, 8);
		memset(b, 0, 8);
		iov[0] = (struct iovec){b, 3};
		iov[1] = (struct iovec){b + 3, 5};
		list[0] = aio_pread(&cb[0], fd, a, 8, 20);
		list[1] = aio_pwrite(&cb[1], fd, out, 8, 50);
		list[2] = aio_preadv(&cb[2], fd, iov, 2, 50);
		iov[0] = (struct iovec){b, 3};
		aio_accept(ctx, list, 3);
		/* No call in between: the events are there, and so is the data. */
		assert_int_equal(ring_count(r), 3);
		assert_true(file_matches(a, 8, 20));
		assert_memory_equal(b, out, 8);
		aio_take(ctx, ev, 3);
		for (int i = 0; i < 3; i++)
			aio_check(&ev[i], &cb[i], 8);
		close(fd);
	}
	aio_free(ctx);
}

/* A thread in io_submit of one request. */
struct submitter {
	struct test_thread t;
	aio_context_t ctx;
	struct iocb cb;
	uint64_t buf;
	long n;
	int err;
};

static void *submit_main(void *arg)
{
	struct submitter *s = arg;

	errno = 0;
	s->n = aio_submit1(s->ctx, &s->cb);
	s->err = errno;
	return NULL;
}

/* Returns whether the thread sleeps in io_submit; Pollux need not. */
static bool submits(struct submitter *s, aio_context_t ctx, int fd)
{
	bool sleeps;

	s->ctx = ctx;
	s->buf = 0;
	aio_pread(&s->cb, fd, &s->buf, 8, 0);
	thread_start(&s->t, submit_main, s);
	sleeps = thread_asleep(&s->t);
	if (!sleeps)
		assert_true(under_pollux());
	return sleeps;
}

static void AIO_SUBMIT_12_reads_that_block(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct submitter *s = calloc(1, sizeof(*s));
	int efd = efd_new(0, 0), p[2];

	(void)state;
	assert_non_null(s);
	aio_pipe(p, 0);
	submits(s, ctx, p[0]);
	aio_none(ctx);
	assert_int_equal(write(p[1], "abcdefgh", 8), 8);
	assert_true(thread_join(&s->t, SOON_MS));
	assert_int_equal(s->n, 1);
	aio_expect(ctx, &s->cb, 8);
	assert_memory_equal(&s->buf, "abcdefgh", 8);

	submits(s, ctx, efd);
	aio_none(ctx);
	efd_add(efd, 5);
	assert_true(thread_join(&s->t, SOON_MS));
	assert_int_equal(s->n, 1);
	aio_expect(ctx, &s->cb, 8);
	assert_int_equal(s->buf, 5);
	free(s);
	close(efd);
	close(p[0]);
	close(p[1]);
	aio_free(ctx);
}

static int handled_count;

#define handled __atomic_load_n(&handled_count, __ATOMIC_SEQ_CST)

static void handled_clear(void)
{
	__atomic_store_n(&handled_count, 0, __ATOMIC_SEQ_CST);
}

static void count_signal(int sig)
{
	(void)sig;
	__atomic_add_fetch(&handled_count, 1, __ATOMIC_SEQ_CST);
}

static void AIO_SUBMIT_12_a_signal_ends_the_request_and_not_the_call(void **state)
{
	static const int flags[] = {0, SA_RESTART};
	aio_context_t ctx = aio_new(4);
	struct submitter *s = calloc(1, sizeof(*s));
	int efd = efd_new(0, 0), p[2];

	(void)state;
	assert_non_null(s);
	aio_pipe(p, 0);
	for (int i = 0; i < 4; i++) {
		struct sigaction sa = {.sa_handler = count_signal, .sa_flags = flags[i % 2]}, old;
		bool sleeps = submits(s, ctx, i < 2 ? p[0] : efd);

		assert_ok(sigaction(SIGUSR1, &sa, &old));
		handled_clear();
		if (sleeps) {
			assert_int_equal(pthread_kill(s->t.id, SIGUSR1), 0);
			assert_true(thread_join(&s->t, SOON_MS));
			assert_int_equal(s->n, 1);
			assert_int_equal(handled, 1);
			aio_expect(ctx, &s->cb, -EINTR);
		} else {
			/* The request is in the background, where no signal meets it. */
			assert_true(thread_join(&s->t, SOON_MS));
			assert_int_equal(s->n, 1);
			if (i < 2)
				assert_int_equal(write(p[1], "abcdefgh", 8), 8);
			else
				efd_add(efd, 1);
			aio_expect(ctx, &s->cb, 8);
		}
		aio_none(ctx);
		assert_ok(sigaction(SIGUSR1, &old, NULL));
	}
	free(s);
	close(efd);
	close(p[0]);
	close(p[1]);
	aio_free(ctx);
}

/* A call that blocks holds up neither other calls on the context nor its events. */
static void AIO_SUBMIT_12_others_go_on_while_one_blocks(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct submitter *s = calloc(1, sizeof(*s));
	struct iocb cb;
	char buf[8];
	int fd = file_in_memory(8), p[2];

	(void)state;
	assert_non_null(s);
	aio_pipe(p, 0);
	submits(s, ctx, p[0]);
	for (int i = 0; i < 200; i++)
		aio_does(ctx, aio_pread(&cb, fd, buf, 8, 0), 8);
	assert_int_equal(write(p[1], "abcdefgh", 8), 8);
	aio_expect(ctx, &s->cb, 8);
	assert_true(thread_join(&s->t, SOON_MS));
	assert_int_equal(s->n, 1);
	free(s);
	close(fd);
	close(p[0]);
	close(p[1]);
	aio_free(ctx);
}

static void AIO_SUBMIT_13_data_and_address_come_back(void **state)
{
	static const uint64_t data[] = {0,	    1,		UINT32_MAX,
					1ull << 63, UINT64_MAX, 0xa5a5a5a5a5a5a5a5};
	aio_context_t ctx = aio_new(8);
	struct iocb cb[3];
	struct io_event ev;
	char buf[8];
	int fd = file_in_memory(8), p[2];

	(void)state;
	aio_pipe(p, 0);
	assert_int_equal(write(p[1], "x", 1), 1);
	for (int i = 0; i < 6; i++) {
		aio_pread(&cb[0], fd, buf, 8, 0);
		aio_pread(&cb[1], fd, unmapped(), 8, 0);
		aio_poll(&cb[2], p[0], POLLIN);
		for (int k = 0; k < 3; k++) {
			cb[k].aio_data = data[i];
			aio_accept1(ctx, &cb[k]);
			aio_take(ctx, &ev, 1);
			assert_true(ev.data == data[i]);
			assert_true(ev.obj == (uintptr_t)&cb[k]);
			assert_true(ev.res == (k == 0 ? 8 : k == 1 ? -EFAULT : POLLIN));
			assert_true(ev.res2 == 0);
		}
	}
	close(p[0]);
	close(p[1]);
	close(fd);
	aio_free(ctx);
}

/* Several threads submit to one context and reap from it: every event comes once, to someone. */
#define CROWD 4
#define EACH 400

struct crowd {
	struct test_thread t;
	aio_context_t ctx;
	int fd;
	int index;
	unsigned char *seen;
	long *left;
};

static void *crowd_main(void *arg)
{
	struct crowd *c = arg;
	struct iocb cb[4], *list[4];
	struct io_event ev[8];
	struct timespec zero = {0};
	char buf[8];
	int sent = 0;

	while (__atomic_load_n(c->left, __ATOMIC_ACQUIRE) > 0) {
		long n = 0;

		if (sent < EACH) {
			for (int i = 0; i < 4; i++) {
				list[i] = aio_pread(&cb[i], c->fd, buf, 8, 0);
				cb[i].aio_data = (uint64_t)(c->index * EACH + sent + i);
			}
			n = aio_submit(c->ctx, EACH - sent < 4 ? EACH - sent : 4, list);
			if (n == -1 && errno != EAGAIN)
				return "io_submit";
			if (n > 0)
				sent += (int)n;
		}
		n = aio_getevents(c->ctx, 0, 1 + sent % 8, ev, &zero);
		if (n < 0)
			return "io_getevents";
		for (long i = 0; i < n; i++) {
			if (ev[i].res != 8 || ev[i].data >= CROWD * EACH)
				return "event";
			__atomic_add_fetch(&c->seen[ev[i].data], 1, __ATOMIC_RELAXED);
		}
		__atomic_sub_fetch(c->left, n, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void AIO_SUBMIT_13_AIO_GET_09_a_crowd_on_one_context(void **state)
{
	struct crowd *c = calloc(CROWD, sizeof(*c));
	unsigned char *seen = calloc(CROWD * EACH, 1);
	aio_context_t ctx = aio_new(16);
	int fd = file_in_memory(8);
	long left = CROWD * EACH;

	(void)state;
	assert_non_null(c);
	assert_non_null(seen);
	for (int i = 0; i < CROWD; i++) {
		c[i].ctx = ctx;
		c[i].fd = fd;
		c[i].index = i;
		c[i].seen = seen;
		c[i].left = &left;
		thread_start(&c[i].t, crowd_main, &c[i]);
	}
	for (int i = 0; i < CROWD; i++) {
		assert_true(thread_join(&c[i].t, SOON_MS));
		if (c[i].t.ret != NULL)
			print_error("thread %d: %s\n", i, (char *)c[i].t.ret);
		assert_null(c[i].t.ret);
	}
	for (int i = 0; i < CROWD * EACH; i++)
		assert_int_equal(seen[i], 1);
	aio_none(ctx);
	close(fd);
	aio_free(ctx);
	free(seen);
	free(c);
}

/*
 * Handlers may make the calls as well, on the very context and in the very moment of a call that
 * they interrupt.
 */
static struct {
	aio_context_t ctx;
	int fd;
	struct iocb cb;
	char buf[8];
	long submitted;
	long taken;
	long runs;
	const char *wrong;
} in_handler;

static void handler_calls(int sig)
{
	struct iocb *list[1] = {&in_handler.cb};
	struct timespec zero = {0};
	struct io_event ev[2];
	int saved = errno;
	long n;

	(void)sig;
	n = aio_submit(in_handler.ctx, 1, list);
	if (n == 1)
		in_handler.submitted++;
	else if (n != -1 || errno != EAGAIN)
		in_handler.wrong = "io_submit";
	n = aio_getevents(in_handler.ctx, 0, 1 + in_handler.runs++ % 2, ev, &zero);
	if (n < 0)
		in_handler.wrong = "io_getevents";
	else
		in_handler.taken += n;
	errno = saved;
}

static void AIO_SUBMIT_13_AIO_GET_09_handlers_make_calls_too(void **state)
{
	static const struct itimerval often = {{0, 150}, {0, 150}}, never;
	struct sigaction sa = {.sa_handler = handler_calls, .sa_flags = SA_RESTART}, old;
	struct iocb cb, *list[1] = {&cb};
	struct io_event ev[4];
	char buf[8];
	long submitted = 0, taken = 0, n;
	int64_t end = now_ms() + SOON_MS;
	int efd = efd_new(1, EFD_NONBLOCK);

	(void)state;
	if (SANITIZED == 2) {
		close(efd);
		SKIP("ThreadSanitizer runs handlers where it likes");
	}
	memset(&in_handler, 0, sizeof(in_handler));
	in_handler.ctx = aio_new(62);
	in_handler.fd = file_in_memory(8);
	aio_pread(&in_handler.cb, in_handler.fd, in_handler.buf, 8, 0);
	assert_ok(sigaction(SIGALRM, &sa, &old));
	assert_ok(setitimer(ITIMER_REAL, &often, NULL));
	for (int i = 0; (i < 20000 || in_handler.runs < 300) && now_ms() < end; i++) {
		struct timespec zero = {0};

		if (i % 8 == 7)
			aio_poll(&cb, efd, POLLIN);
		else
			aio_pread(&cb, in_handler.fd, buf, 8, 0);
		n = aio_submit(in_handler.ctx, 1, list);
		if (n == 1)
			submitted++;
		else
			assert_int_equal(errno, EAGAIN);
		n = aio_getevents(in_handler.ctx, 0, 1 + i % 4, ev, &zero);
		if (n > 0)
			taken += n;
		else if (n == -1)
			assert_int_equal(errno, EINTR);
	}
	assert_ok(setitimer(ITIMER_REAL, &never, NULL));
	assert_ok(sigaction(SIGALRM, &old, NULL));
	assert_null(in_handler.wrong);
	assert_true(in_handler.runs >= 300);
	while (taken + in_handler.taken < submitted + in_handler.submitted) {
		aio_take(in_handler.ctx, ev, 1);
		taken++;
	}
	aio_none(in_handler.ctx);
	close(efd);
	close(in_handler.fd);
	aio_free(in_handler.ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(AIO_SUBMIT_01_a_negative_number),
		cmocka_unit_test(AIO_SUBMIT_01_a_bad_context_comes_before_the_array),
		cmocka_unit_test(AIO_SUBMIT_01_none_to_submit),
		cmocka_unit_test(AIO_SUBMIT_02_in_order_until_the_first_that_fails),
		cmocka_unit_test(AIO_SUBMIT_02_no_slot_for_the_last_ones),
		cmocka_unit_test(AIO_SUBMIT_03_a_bad_slot_of_the_array),
		cmocka_unit_test(AIO_SUBMIT_03_a_bad_request_address),
		cmocka_unit_test(AIO_SUBMIT_03_the_number_is_cut_to_that_of_the_ring),
		cmocka_unit_test(AIO_SUBMIT_04_AIO_SUBMIT_06_the_first_fault_of_a_request_counts),
		cmocka_unit_test(AIO_SUBMIT_04_reserved_and_length),
		cmocka_unit_test(AIO_SUBMIT_04_descriptors),
		cmocka_unit_test(AIO_SUBMIT_04_no_slot_comes_before_the_descriptors),
		cmocka_unit_test(AIO_SUBMIT_05_the_key_is_set_once_the_descriptors_are_good),
		cmocka_unit_test(AIO_SUBMIT_05_nothing_else_of_a_request_is_written),
		cmocka_unit_test(AIO_SUBMIT_06_errors_of_the_operation_come_in_the_event),
		cmocka_unit_test(AIO_SUBMIT_06_a_buffer_that_ends_too_early_gives_a_short_result),
		cmocka_unit_test(AIO_SUBMIT_07_how_many_are_accepted),
		cmocka_unit_test(AIO_SUBMIT_07_pending_requests_take_slots),
		cmocka_unit_test(AIO_SUBMIT_08_a_slot_is_freed_by_reaping),
		cmocka_unit_test(AIO_SUBMIT_08_AIO_GET_08_a_failed_call_frees_no_slot),
		cmocka_unit_test(AIO_SUBMIT_08_a_refused_request_takes_no_slot),
		cmocka_unit_test(AIO_SUBMIT_09_one_request_many_times),
		cmocka_unit_test(AIO_SUBMIT_10_the_request_is_not_used_after_submission),
		cmocka_unit_test(AIO_SUBMIT_10_vectors_are_copied_at_submission),
		cmocka_unit_test(AIO_SUBMIT_11_buffered_file_io_is_complete_at_once),
		cmocka_unit_test(AIO_SUBMIT_12_reads_that_block),
		cmocka_unit_test(AIO_SUBMIT_12_a_signal_ends_the_request_and_not_the_call),
		cmocka_unit_test(AIO_SUBMIT_12_others_go_on_while_one_blocks),
		cmocka_unit_test(AIO_SUBMIT_13_data_and_address_come_back),
		cmocka_unit_test(AIO_SUBMIT_13_AIO_GET_09_a_crowd_on_one_context),
		cmocka_unit_test(AIO_SUBMIT_13_AIO_GET_09_handlers_make_calls_too),
	};

	return run_group(tests);
}
