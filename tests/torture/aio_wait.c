/* SPDX-License-Identifier: MIT */
/*
 * Waiters with needs of their own, without time-outs, and never one event more than they
 * all need: nobody sleeps while what he needs is there (AIO-GET-09, AIO-CQ-08).
 */
#include "cache/posix.h"

#include "aio.h"

#define WAITERS 3
#define NEED 5
#define END 1
#define ENOUGH 20

struct shared {
	aio_context_t ctx;
	int file, ready;
	unsigned long wanted, posted, taken, calls;
	int alive;
	bool ending;
};

static void waiter(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t rng = (uint32_t)t->tid;

	while (!atomic_get(&s->ending) && !torture_failed) {
		struct io_event ev[NEED];
		long need = 1 + rnd(&rng) % NEED;
		int n;

		atomic_add(&s->wanted, (unsigned long)need);
		n = pollux_io_getevents(s->ctx, need, need, ev, NULL);
		if (n != need)
			broken("io_getevents for %ld: %d, %s", need, n, strerror(errno));
		atomic_add(&s->taken, n > 0 ? (unsigned long)n : 0);
		atomic_add(&s->calls, 1);
	}
	atomic_add(&s->alive, -1);
}

/* Takes without waiting, and now and then what a waiter has been woken for. */
static void poller(struct thread *t)
{
	struct shared *s = t->arg;

	while (!atomic_get(&s->ending) && !torture_failed) {
		struct timespec none = {0};
		struct io_event ev;
		int n = pollux_io_getevents(s->ctx, 0, 1, &ev, &none);

		if (n < 0)
			broken("io_getevents: %s", strerror(errno));
		if (n == 1) {
			atomic_add(&s->wanted, 1);
			atomic_add(&s->taken, 1);
		}
		sleep_ms(1);
	}
	atomic_add(&s->alive, -1);
}

/* polls: of 8 requests so many are with the kernel. */
static void post(struct shared *s, uint32_t *rng, unsigned int polls)
{
	static char buf[8];
	struct iocb cb = {.aio_data = END,
			  .aio_lio_opcode = IOCB_CMD_PREAD,
			  .aio_fildes = (uint32_t)s->file,
			  .aio_buf = (uintptr_t)buf,
			  .aio_nbytes = sizeof(buf)},
		    *list = &cb;
	int n;

	if (rnd(rng) % 8 < polls) {
		cb.aio_lio_opcode = IOCB_CMD_POLL;
		cb.aio_fildes = (uint32_t)s->ready;
		cb.aio_buf = POLLIN;
		cb.aio_nbytes = 0;
	}
	n = pollux_io_submit(s->ctx, 1, &list);
	if (n == 1)
		s->posted++;
	/* The kernel gives slots back a little later. */
	else if (errno != EAGAIN)
		broken("io_submit: %s", strerror(errno));
}

/* Posts what is wanted, and no more, until all have ended or ns are over. */
static void serve(struct shared *s, uint32_t *rng, unsigned int polls, int64_t ns)
{
	int64_t start = now_ns(), moved = start;
	unsigned long was = 0;

	while (!stopping() && now_ns() - start < ns && atomic_get(&s->alive)) {
		unsigned long taken = atomic_get(&s->taken);

		if (taken != was || taken == s->posted)
			moved = now_ns();
		was = taken;
		if (s->posted < atomic_get(&s->wanted)) {
			post(s, rng, polls);
			moved = now_ns();
		} else if (now_ns() - moved > SOON_MS * 1000000ll) {
			broken("%lu posted, %lu taken, and nobody wakes", s->posted, taken);
		} else {
			sched_yield();
		}
	}
}

static void run(unsigned int polls, bool with_poller, int per_test)
{
	struct shared s = {
		.ctx = aio_new(64), .file = aio_file(), .ready = eventfd(1, EFD_CLOEXEC)};
	struct thread t[WAITERS + 1];
	uint32_t rng = (uint32_t)now_ns() | 1;
	int64_t start = now_ns();
	int n = 0;

	s.alive = WAITERS + with_poller;
	for (; n < WAITERS; n++)
		thread_start(&t[n], waiter, &s);
	if (with_poller)
		thread_start(&t[n++], poller, &s);
	do
		serve(&s, &rng, polls, torture_ns() / per_test);
	while (atomic_get(&s.calls) <= ENOUGH && torture_until(start, false));
	atomic_set(&s.ending, true);
	/* Each ends when it has got what it wants now. */
	serve(&s, &rng, polls, 2 * SOON_MS * 1000000ll);
	if (torture_failed)
		for (int i = 0; i < 8 * NEED; i++)
			post(&s, &rng, 0);
	for (int i = 0; i < n; i++)
		thread_join(&t[i]);
	assert_false(torture_failed);
	print_message("%u of 8 polls: %lu events, %lu waits\n", polls, s.taken, s.calls);
	assert_int_equal(s.taken, s.posted);
	assert_true(s.calls > ENOUGH);
	assert_int_equal(pollux_io_destroy(s.ctx), 0);
	close(s.file);
	close(s.ready);
}

static void each_gets_what_it_needs(void **state)
{
	(void)state;
	aio_begin();
	run(0, false, 3);
	run(8, false, 3);
	run(2, false, 3);
}

static void beside_one_who_does_not_wait(void **state)
{
	(void)state;
	aio_begin();
	run(0, true, 2);
	run(4, true, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_gets_what_it_needs),
		TEST(beside_one_who_does_not_wait),
	};

	return RUN(tests);
}
