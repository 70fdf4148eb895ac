/* SPDX-License-Identifier: MIT */
/*
 * Every request that was accepted gives one event with the right result and data,
 * whoever submits, reaps, sleeps, cancels, or takes events from the ring by himself; and
 * the eventfd counts each. Nobody sleeps on while there is something for him.
 */
#include "aio.h"

#define SUBMITTERS 2
#define REAPERS 3
/* More than the reapers can hold back while they wait for the rest of what they want. */
#define REQS 24
#define BATCH 4
#define END 1
#define ENOUGH 100
#define ALL (SUBMITTERS * REQS)

enum what { INLINE_ONLY, KERNEL_ONLY, BOTH };

struct shared {
	aio_context_t ctx;
	struct req r[ALL];
	enum what what;
	bool own_hands;
	int resfd;
	/* Held by whoever takes events when one does it with its own hands. */
	pthread_mutex_t one;
	unsigned long submitted, reaped, cancelled, zero, told, moved, full;
	unsigned long taken[SUBMITTERS];
};

static void taken(struct shared *s, const struct io_event *ev)
{
	struct req *r;

	if (ev->data == END)
		return;
	r = (struct req *)(uintptr_t)ev->data;
	if (r < s->r || r >= s->r + ALL) {
		broken("an event of something else");
		return;
	}
	if (atomic_get(&r->state) == POLLING && !ev->res)
		atomic_add(&s->zero, 1);
	(void)req_event(ev);
	atomic_add(&s->reaped, 1);
}

struct part {
	struct shared *s;
	int id;
};

static void submitter(struct thread *t)
{
	struct part *p = t->arg;
	struct shared *s = p->s;
	uint32_t rng = (uint32_t)t->tid;
	int64_t last = now_ns();

	while (!stopping()) {
		struct iocb *list[BATCH];
		struct req *batch[BATCH];
		int want = 1 + rnd(&rng) % BATCH, n = 0, done;

		for (int i = 0; i < REQS && n < want; i++) {
			struct req *r = &s->r[p->id * REQS + (i + rnd(&rng)) % REQS];

			if (atomic_get(&r->state) != IDLE)
				continue;
			if (s->what == KERNEL_ONLY ||
			    (s->what == BOTH && rnd(&rng) % (s->own_hands ? 200 : 4) == 0))
				req_poll(r);
			else
				req_transfer(r);
			if (rnd(&rng) & 1)
				req_resfd(r, s->resfd);
			list[n] = &r->cb;
			batch[n++] = r;
		}
		if (!n) {
			sched_yield();
			if (now_ns() - last > SOON_MS * 1000000ll)
				broken("%lu submitted, %lu reaped, and nothing moves",
				       atomic_get(&s->submitted), atomic_get(&s->reaped));
			continue;
		}
		last = now_ns();
		/* Counted before: a reaper may be faster than this call's return. */
		atomic_add(&s->submitted, n);
		for (int i = 0; i < n; i++)
			if (batch[i]->cb.aio_flags & IOCB_FLAG_RESFD)
				atomic_add(&s->told, 1);
		done = pollux_io_submit(s->ctx, n, list);
		if (done < 0 && errno != EAGAIN)
			broken("io_submit: %s", strerror(errno));
		if (done < 0)
			done = 0;
		if (done < n) {
			atomic_add(&s->full, 1);
			sched_yield();
		}
		atomic_add(&s->submitted, done - n);
		for (int i = done; i < n; i++) {
			if (batch[i]->cb.aio_flags & IOCB_FLAG_RESFD)
				atomic_add(&s->told, -1);
			req_back(batch[i]);
		}
		atomic_add(&s->taken[p->id], done);
	}
}

/* Makes polls come true, and cancels. */
static void feeder(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t rng = (uint32_t)t->tid;

	while (!stopping()) {
		struct req *r = &s->r[rnd(&rng) % ALL];

		if (atomic_get(&r->state) != POLLING) {
			sched_yield();
			continue;
		}
		if (rnd(&rng) % 3 == 0) {
			struct io_event unused;

			errno = 0;
			if (pollux_io_cancel(s->ctx, &r->cb, &unused) != -1 ||
			    (errno != EINPROGRESS && errno != EINVAL))
				broken("io_cancel: %s", strerror(errno));
			if (errno == EINPROGRESS)
				atomic_add(&s->cancelled, 1);
		} else if (write(r->event, &(uint64_t){1}, 8) != 8) {
			broken("write: %s", strerror(errno));
		}
	}
}

/* Sleeps for events, in one of the ways that there are. */
static void reaper(struct thread *t)
{
	struct part *p = t->arg;
	struct shared *s = p->s;
	uint32_t rng = (uint32_t)t->tid;
	bool end = false;

	while (!end) {
		struct timespec ts = {0, 1000 * (long)(rnd(&rng) % 2000)};
		struct io_event ev[8];
		long min = p->id == 0 ? 1 : rnd(&rng) % 4, max = min + rnd(&rng) % 5;
		int n = pollux_io_getevents(s->ctx, min, max, ev, rnd(&rng) & 1 ? &ts : NULL);

		if (n < 0)
			broken("io_getevents: %s", strerror(errno));
		for (int i = 0; i < n; i++) {
			end |= ev[i].data == END;
			taken(s, &ev[i]);
		}
		if (!n && !min)
			sched_yield();
		if (n < 0)
			return;
	}
}

/* Takes from the ring as fio does, and calls when the ring says that it may not be true. */
static void own_hands(struct thread *t)
{
	struct part *p = t->arg;
	struct shared *s = p->s;
	volatile uint32_t *header = (volatile uint32_t *)(uintptr_t)s->ctx;
	const struct io_event *events = (const struct io_event *)(uintptr_t)(s->ctx + 32);
	bool end = false;

	while (!end && !torture_failed) {
		struct timespec none = {0};
		struct io_event ev[8];
		int n = 0;

		pthread_mutex_lock(&s->one);
		if (p->id == 0 && __atomic_load_n(&header[4], __ATOMIC_SEQ_CST) == 0xa10a10a1u) {
			uint32_t nr = header[1], head = header[2];
			uint32_t tail = __atomic_load_n(&header[3], __ATOMIC_ACQUIRE);

			while (n < 8 && head != tail) {
				ev[n++] = events[head];
				head = (head + 1) % nr;
			}
			__atomic_store_n(&header[2], head, __ATOMIC_RELEASE);
			s->moved += n;
		} else {
			n = pollux_io_getevents(s->ctx, 0, 8, ev, &none);
			if (n < 0)
				broken("io_getevents: %s", strerror(errno));
		}
		pthread_mutex_unlock(&s->one);
		for (int i = 0; i < n; i++) {
			end |= ev[i].data == END;
			taken(s, &ev[i]);
		}
		if (n <= 0)
			sched_yield();
	}
}

static void run(enum what what, bool hands, unsigned int nr, int per_test)
{
	struct shared *s = calloc(1, sizeof(*s));
	struct part p[SUBMITTERS + REAPERS];
	struct thread t[SUBMITTERS + REAPERS], f;
	int64_t start = now_ns();
	int fd = aio_file(), n = 0, reapers = hands ? 2 : REAPERS;
	uint64_t v = 0;
	bool alive;

	assert_non_null(s);
	aio_begin();
	s->what = what;
	s->own_hands = hands;
	s->ctx = aio_new(nr);
	s->resfd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_true(s->resfd >= 0);
	pthread_mutex_init(&s->one, NULL);
	for (int i = 0; i < ALL; i++)
		req_init(&s->r[i], fd, (uint64_t)i,
			 what == INLINE_ONLY ? -1 : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	for (int i = 0; i < reapers; i++, n++) {
		p[n] = (struct part){s, i};
		thread_start(&t[n], hands ? own_hands : reaper, &p[n]);
	}
	for (int i = 0; i < SUBMITTERS; i++, n++) {
		p[n] = (struct part){s, i};
		thread_start(&t[n], submitter, &p[n]);
	}
	thread_start(&f, feeder, s);
	while (torture_part_until(start, per_test, atomic_get(&s->reaped) > ENOUGH))
		sleep_ms(2);
	atomic_set(&torture_stop, 1);
	for (int i = 0; i < SUBMITTERS; i++)
		thread_join(&t[reapers + i]);
	thread_join(&f);
	/* What still waits is ready now. */
	for (int i = 0; i < ALL; i++)
		if (atomic_get(&s->r[i].state) == POLLING)
			assert_int_equal(write(s->r[i].event, &(uint64_t){1}, 8), 8);
	assert_true(await(atomic_get(&s->reaped) == atomic_get(&s->submitted) || torture_failed ||
			  !hands));
	/* Reapers that hold events back until they have enough, and those that sleep. */
	start = now_ns();
	do {
		struct iocb cb = {.aio_data = END,
				  .aio_lio_opcode = IOCB_CMD_PREAD,
				  .aio_fildes = (uint32_t)fd,
				  .aio_buf = (uintptr_t)&v},
			    *list = &cb;

		(void)pollux_io_submit(s->ctx, 1, &list);
		sleep_ms(1);
		alive = false;
		for (int i = 0; i < reapers; i++)
			alive |= !thread_done(&t[i]);
	} while (alive && now_ns() - start < SOON_MS * 1000000ll);
	for (int i = 0; i < reapers; i++)
		thread_join(&t[i]);
	assert_false(torture_failed);
	/* Ends that nobody took may stand before the last events, which may be on their way. */
	(void)await(({
		struct timespec none = {0};
		struct io_event ev[8];
		int left = pollux_io_getevents(s->ctx, 0, 8, ev, &none);

		for (int i = 0; i < left; i++)
			taken(s, &ev[i]);
		left <= 0 && atomic_get(&s->reaped) >= atomic_get(&s->submitted);
	}));
	assert_false(torture_failed);
	print_message("%d, %s, %u: %lu and %lu submitted, %lu reaped (%lu by hand), %lu cancelled, "
		      "%lu times full\n",
		      what, hands ? "by hand" : "by calls", nr, s->taken[0], s->taken[1], s->reaped,
		      s->moved, s->cancelled, s->full);
	assert_int_equal(s->reaped, s->submitted);
	assert_int_equal(s->taken[0] + s->taken[1], s->submitted);
	assert_true(s->reaped > ENOUGH);
	assert_true(s->zero <= s->cancelled);
	/* Completions of polls may be told of a little later (AIO-CQ-05). */
	v = 0;
	assert_true(await(({
		uint64_t more = 0;

		if (pollux_read(s->resfd, &more, sizeof(more)) == sizeof(more))
			v += more;
		v >= s->told;
	})));
	assert_int_equal(v, s->told);
	assert_int_equal(pollux_io_destroy(s->ctx), 0);
	for (int i = 0; i < ALL; i++)
		if (s->r[i].event >= 0)
			close(s->r[i].event);
	pollux_close(s->resfd);
	close(fd);
	free(s);
}

static void by_calls(void **state)
{
	(void)state;
	run(INLINE_ONLY, false, 64, 3);
	run(KERNEL_ONLY, false, 64, 3);
	run(BOTH, false, 64, 3);
}

static void by_hand(void **state)
{
	(void)state;
	run(INLINE_ONLY, true, 64, 2);
	run(BOTH, true, 64, 2);
}

/* Fewer slots with the kernel than requests. */
static void too_many(void **state)
{
	(void)state;
	run(KERNEL_ONLY, false, 5, 2);
	run(BOTH, false, 5, 2);
}

/* --- the ring never overflows (AIO-SUBMIT-07, AIO-CQ-07) ---------------------------------- */

struct filler {
	aio_context_t ctx;
	int fd, ready;
	unsigned long taken;
	struct meet m;
};

static void fill(struct thread *t)
{
	struct filler *s = t->arg;
	uint32_t rng = (uint32_t)t->tid;
	uint64_t v;
	struct iocb transfer = {.aio_lio_opcode = IOCB_CMD_PREAD,
				.aio_fildes = (uint32_t)s->fd,
				.aio_buf = (uintptr_t)&v};
	struct iocb poll = {.aio_lio_opcode = IOCB_CMD_POLL,
			    .aio_fildes = (uint32_t)s->ready,
			    .aio_buf = POLLIN};

	if (!meet(&s->m))
		return;
	for (int refused = 0; refused < 20;) {
		struct iocb *list[BATCH];
		int n = 1 + rnd(&rng) % BATCH, done;

		for (int i = 0; i < n; i++)
			list[i] = rnd(&rng) % 3 ? &transfer : &poll;
		done = pollux_io_submit(s->ctx, n, list);
		if (done < 0 && errno != EAGAIN)
			broken("io_submit: %s", strerror(errno));
		refused += done < 0;
		atomic_add(&s->taken, done < 0 ? 0 : done);
	}
}

static void fill_up(int threads, unsigned int nr)
{
	struct filler s = {.ctx = aio_new(nr),
			   .fd = aio_file(),
			   .m.n = threads,
			   .ready = eventfd(1, EFD_CLOEXEC)};
	const uint32_t *header = (const uint32_t *)(uintptr_t)s.ctx;
	unsigned long got = 0;
	struct thread t[MAX_THREADS];

	for (int round = 0; round < 3 && !torture_failed; round++) {
		struct timespec none = {0};
		struct io_event ev[16];
		int n;

		s.taken = got = 0;
		for (int i = 0; i < threads; i++)
			thread_start(&t[i], fill, &s);
		for (int i = 0; i < threads; i++)
			thread_join(&t[i]);
		while ((n = pollux_io_getevents(s.ctx, 0, 16, ev, &none)) > 0)
			got += (unsigned long)n;
		assert_int_equal(n, 0);
		assert_int_equal(got, s.taken);
		assert_true(got >= nr && got <= header[1] - 1);
	}
	print_message("%d threads, %u: %lu of %u\n", threads, nr, got, header[1]);
	assert_int_equal(pollux_io_destroy(s.ctx), 0);
	close(s.fd);
	close(s.ready);
}

static void never_overflows(void **state)
{
	(void)state;
	aio_begin();
	fill_up(1, 8);
	fill_up(1, 100);
	fill_up(4, 8);
	fill_up(4, 100);
	assert_false(torture_failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(by_calls),
		TEST(by_hand),
		TEST(too_many),
		TEST(never_overflows),
	};

	return RUN(tests);
}
