/* SPDX-License-Identifier: MIT */
/*
 * Readers of the ring that look at head and tail alone and make no other call than io_submit: they
 * hear of events by an eventfd, or look all the time. Whatever a context is asked for first, and
 * in whatever order, each completion is in the ring at the context's address, once, as soon as it
 * is told of.
 */
#include "aio.h"

/* The counter of a nonblocking eventfd, which is 0 afterwards. */
static uint64_t count_of(int efd)
{
	uint64_t v = 0;

	return read(efd, &v, sizeof(v)) == sizeof(v) ? v : 0;
}

enum what {
	CACHED_READ,
	CACHED_WRITE,
	CACHED_SYNC_WRITE,
	CACHED_FLUSH,
	DIRECT_READ,
	DIRECT_SYNC_WRITE,
	DIRECT_FLUSH,
	READY_POLL,
	LATE_POLL,
	PIPE_READ,
	KINDS,
};

#define DSYNC 2
#define SIZE 4096

/* A context, its eventfd and what its requests need; one thread has it. */
struct device {
	aio_context_t ctx;
	struct aio_ring *ring;
	int cached, direct, efd, data[2], later[2];
	char *buf;
	const char *wrong;
};

static bool device_new(struct device *d, int cached, int direct)
{
	memset(d, 0, sizeof(*d));
	d->cached = cached;
	d->direct = direct;
	d->efd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	d->buf = aligned_alloc(SIZE, SIZE);
	if (d->efd == -1 || d->buf == NULL || pipe2(d->data, O_CLOEXEC | O_NONBLOCK) == -1 ||
	    pipe2(d->later, O_CLOEXEC | O_NONBLOCK) == -1 || aio_setup_in_turn(16, &d->ctx) == -1)
		return false;
	memset(d->buf, 'r', SIZE);
	d->ring = ring_of(d->ctx);
	return true;
}

static bool device_end(struct device *d)
{
	free(d->buf);
	close_both(d->data);
	close_both(d->later);
	close(d->efd);
	return aio_destroy(d->ctx) == 0;
}

/* The request, and what is to happen before it, or behind. */
static struct iocb *request(struct device *d, struct iocb *cb, enum what what)
{
	switch (what) {
	case CACHED_READ:
		aio_pread(cb, d->cached, d->buf, SIZE, 0);
		break;
	case DIRECT_READ:
		aio_pread(cb, d->direct, d->buf, SIZE, 0);
		break;
	case CACHED_WRITE:
		aio_pwrite(cb, d->cached, d->buf, SIZE, 0);
		break;
	case CACHED_SYNC_WRITE:
		aio_pwrite(cb, d->cached, d->buf, SIZE, 0);
		cb->aio_rw_flags = DSYNC;
		break;
	case DIRECT_SYNC_WRITE:
		aio_pwrite(cb, d->direct, d->buf, SIZE, 0);
		cb->aio_rw_flags = DSYNC;
		break;
	case CACHED_FLUSH:
		aio_fdsync(cb, d->cached);
		break;
	case DIRECT_FLUSH:
		aio_fdsync(cb, d->direct);
		break;
	case READY_POLL:
		aio_poll(cb, d->data[1], POLLOUT);
		break;
	case LATE_POLL:
		aio_poll(cb, d->later[0], POLLIN);
		break;
	default:
		(void)!write(d->data[1], "x", 1);
		aio_pread(cb, d->data[0], d->buf, 1, 0);
	}
	return aio_resfd(cb, d->efd);
}

static void behind(struct device *d, enum what what)
{
	if (what == LATE_POLL)
		(void)!write(d->later[1], "x", 1);
}

static bool right(enum what what, int64_t res)
{
	switch (what) {
	case CACHED_FLUSH:
	case DIRECT_FLUSH:
		return res == 0;
	case READY_POLL:
		return res == POLLOUT;
	case LATE_POLL:
		return res & POLLIN;
	case PIPE_READ:
		return res == 1;
	default:
		return res == SIZE;
	}
}

/* One request, and its event as soon as it is told of. */
static bool one(struct device *d, enum what what)
{
	struct io_event ev = {0};
	struct iocb cb;
	char c;

	if (aio_submit1(d->ctx, request(d, &cb, what)) != 1) {
		d->wrong = "io_submit";
		return false;
	}
	behind(d, what);
	if (!readable_within(d->efd, SOON_MS) || count_of(d->efd) != 1) {
		d->wrong = "the eventfd";
		return false;
	}
	if (!ring_take(d->ring, &ev)) {
		d->wrong = "no event in the ring";
		return false;
	}
	if (ev.obj != (uintptr_t)&cb || ev.data != cb.aio_data || !right(what, ev.res) ||
	    ring_count(d->ring)) {
		d->wrong = "the event";
		return false;
	}
	if (what == LATE_POLL)
		(void)!read(d->later[0], &c, 1);
	return true;
}

/* Two contexts in turn, which begin with these two. */
static bool pair(int cached, int direct, enum what first, enum what second, const char **wrong)
{
	struct device d[2];
	bool good = device_new(&d[0], cached, direct) && device_new(&d[1], cached, direct);

	for (int i = 0; good && i < 2; i++)
		good = one(&d[i], i ? second : first) && one(&d[i], i ? first : second);
	for (int what = 0; good && what < KINDS; what++)
		for (int i = 0; good && i < 2; i++)
			good = one(&d[i], (enum what)((what + (int)first) % KINDS));
	*wrong = d[0].wrong ? d[0].wrong : d[1].wrong;
	return device_end(&d[0]) && device_end(&d[1]) && good;
}

struct orders {
	struct test_thread t;
	int cached, direct, begin;
	int a, b;
	const char *wrong;
};

/* A part of all pairs. */
static void *orders_main(void *arg)
{
	struct orders *o = arg;

	for (int i = o->begin; i < KINDS * KINDS; i += 4) {
		o->a = i / KINDS;
		o->b = i % KINDS;
		if (!pair(o->cached, o->direct, (enum what)o->a, (enum what)o->b, &o->wrong))
			return o;
	}
	return NULL;
}

static void AIO_RING_05_AIO_CQ_02_whatever_comes_first_and_second(void **state)
{
	int cached = file_in_memory(SIZE), direct = file_on_disk(SIZE, O_DIRECT);
	struct orders o[4];

	(void)state;
	if (direct == -1)
		SKIP("the file system of TMPDIR has no O_DIRECT");
	for (int i = 0; i < 4; i++) {
		o[i] = (struct orders){.cached = cached, .direct = direct, .begin = i};
		thread_start(&o[i].t, orders_main, &o[i]);
	}
	for (int i = 0; i < 4; i++) {
		assert_true(thread_join(&o[i].t, 10 * SOON_MS));
		if (o[i].t.ret != NULL)
			fail_msg("%d, then %d: wrong: %s", o[i].a, o[i].b,
				 o[i].wrong ? o[i].wrong : "a call");
	}
	close(cached);
	close(direct);
}

/* --- one thread submits, another reads ---------------------------------------------------------
 */

#define MANY 600
#define CONTEXTS 8

struct stream {
	struct test_thread t;
	struct device *d;
	/* It looks all the time, or when it is told. */
	bool looks;
	struct iocb *cb;
	unsigned char *seen;
	int taken, total, over;
	bool twice;
};

static void *stream_reader(void *arg)
{
	struct stream *s = arg;
	int64_t end = now_ms() + SOON_MS;
	struct io_event ev = {0};
	uint64_t n;

	while (!__atomic_load_n(&s->twice, __ATOMIC_RELAXED) && now_ms() < end) {
		int total = __atomic_load_n(&s->total, __ATOMIC_ACQUIRE);

		if (total && s->taken == total)
			return NULL;
		if (!s->looks && readable_within(s->d->efd, 1))
			(void)!read(s->d->efd, &n, sizeof(n));
		while (ring_take(s->d->ring, &ev)) {
			size_t which = (size_t)((struct iocb *)(uintptr_t)ev.obj - s->cb);

			if (which >= MANY || s->seen[which]++)
				__atomic_store_n(&s->twice, true, __ATOMIC_RELAXED);
			__atomic_fetch_add(&s->taken, 1, __ATOMIC_RELEASE);
			end = now_ms() + SOON_MS;
		}
	}
	return s;
}

/* How many were accepted; what there is no slot for, or not just now, is tried again. */
static int submit_stream(struct stream *s, uint32_t x)
{
	int64_t end = now_ms() + SOON_MS;
	int n = 0;

	while (n < MANY && now_ms() < end && !__atomic_load_n(&s->twice, __ATOMIC_RELAXED)) {
		enum what what;

		(void)rnd(&x);
		/* At first what is done at once. */
		what = (enum what)(n < (int)(x % 8) ? CACHED_READ : x / 8 % LATE_POLL);
		request(s->d, &s->cb[n], what);
		if (!s->looks || x & 64)
			s->cb[n].aio_flags |= IOCB_FLAG_RESFD;
		else
			s->cb[n].aio_flags &= ~(uint32_t)IOCB_FLAG_RESFD;
		while (aio_submit1(s->d->ctx, &s->cb[n]) != 1) {
			if (errno != EAGAIN || now_ms() > end)
				return n;
			sched_yield();
		}
		end = now_ms() + SOON_MS;
		n++;
	}
	return n;
}

static void AIO_CQ_06_AIO_RING_05_each_event_once_for_a_reader_beside_the_submitter(void **state)
{
	int cached = file_in_memory(SIZE), direct = file_on_disk(SIZE, O_DIRECT);
	struct iocb *cb = calloc(MANY, sizeof(*cb));

	(void)state;
	if (direct == -1)
		SKIP("the file system of TMPDIR has no O_DIRECT");
	for (int i = 0; i < CONTEXTS; i++) {
		unsigned char seen[MANY] = {0};
		struct device d;
		struct stream s = {.d = &d, .cb = cb, .seen = seen, .looks = i % 2};

		assert_true(device_new(&d, cached, direct));
		thread_start(&s.t, stream_reader, &s);
		assert_int_equal(submit_stream(&s, (uint32_t)(i + 1) * 2654435761u), MANY);
		__atomic_store_n(&s.total, MANY, __ATOMIC_RELEASE);
		assert_true(thread_join(&s.t, 2 * SOON_MS));
		assert_false(s.twice);
		assert_null(s.t.ret);
		assert_int_equal(s.taken, MANY);
		for (int k = 0; k < MANY; k++)
			assert_int_equal(seen[k], 1);
		assert_int_equal(ring_count(d.ring), 0);
		assert_true(device_end(&d));
	}
	free(cb);
	close(cached);
	close(direct);
}

/* --- events that lie unread when something comes that takes its time -----------------------------
 */

/* Numbers of unread events, at places all over the ring; who takes them does so by calls at first.
 */
static void unread(void *arg)
{
	int cached = file_in_memory(SIZE);

	(void)arg;
	for (int before = 0; before < 140; before += 7) {
		for (int n = 0; n <= 16; n += 5) {
			struct io_event ev = {0};
			struct iocb cb[18];
			struct device d;
			char c = 0;

			child_check(device_new(&d, cached, -1));
			for (int i = 0; i < before; i++) {
				child_check(aio_submit1(d.ctx, aio_pread(cb, cached, &c, 1, 0)) ==
					    1);
				child_check(aio_getevents(d.ctx, 1, 1, &ev, NULL) == 1);
			}
			for (int i = 0; i < n; i++) {
				aio_pwrite(&cb[i], cached, &c, 1, i);
				child_check(aio_submit1(d.ctx, &cb[i]) == 1);
			}
			child_check(aio_submit1(d.ctx, request(&d, &cb[n], LATE_POLL)) == 1);
			child_check(ring_count(d.ring) == (uint32_t)n);
			for (int i = 0; i < n; i++)
				child_check(ring_take(d.ring, &ev) && ev.obj == (uintptr_t)&cb[i] &&
					    ev.data == cb[i].aio_data && ev.res == 1);
			child_check(!ring_take(d.ring, &ev));
			behind(&d, LATE_POLL);
			child_check(readable_within(d.efd, SOON_MS) && count_of(d.efd) == 1);
			child_check(ring_take(d.ring, &ev) && ev.obj == (uintptr_t)&cb[n]);
			child_check(device_end(&d));
		}
	}
	close(cached);
}

static void AIO_RING_04_unread_events_keep_their_places(void **state)
{
	(void)state;
	in_child(unread, NULL);
}

/* While events lie unread, a request may tell an eventfd of any kind: that of a loop that blocks.
 */
static void unread_and_told(void *arg)
{
	int cached = file_in_memory(SIZE), blocking = eventfd(0, EFD_CLOEXEC);
	struct device d;
	struct iocb cb[4];
	struct io_event ev;

	(void)arg;
	child_check(cached != -1 && blocking != -1 && device_new(&d, cached, -1));
	for (int i = 0; i < 4; i++) {
		child_check(request(&d, &cb[i], i % 2 ? CACHED_WRITE : CACHED_READ) != NULL);
		if (i > 1)
			cb[i].aio_resfd = (uint32_t)blocking;
		child_check(aio_submit1(d.ctx, &cb[i]) == 1);
		child_check(readable_within(i > 1 ? blocking : d.efd, SOON_MS));
	}
	child_check(count_of(d.efd) == 2 && count_of(blocking) == 2);
	child_check(ring_count(d.ring) == 4);
	for (int i = 0; i < 4; i++)
		child_check(ring_take(d.ring, &ev));
	child_check(device_end(&d));
	close(blocking);
	close(cached);
}

static void AIO_CQ_02_any_eventfd_is_told_while_events_lie_unread(void **state)
{
	(void)state;
	in_child(unread_and_told, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(AIO_CQ_02_any_eventfd_is_told_while_events_lie_unread),
		cmocka_unit_test(AIO_RING_04_unread_events_keep_their_places),
		cmocka_unit_test(AIO_RING_05_AIO_CQ_02_whatever_comes_first_and_second),
		cmocka_unit_test(
			AIO_CQ_06_AIO_RING_05_each_event_once_for_a_reader_beside_the_submitter),
	};

	return run_group(tests);
}
