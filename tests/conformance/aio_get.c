/* SPDX-License-Identifier: MIT */
/* io_getevents: its arguments, how many events it takes and when, time-outs, signals, waiters. */
#include "aio.h"

#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>

/* Completes n reads, whose data are first, first + 1, ... */
static void complete(aio_context_t ctx, int fd, uint64_t first, int n)
{
	static char buf[8];
	struct iocb cb;

	for (int i = 0; i < n; i++) {
		aio_pread(&cb, fd, buf, 8, 0);
		cb.aio_data = first + (uint64_t)i;
		aio_accept1(ctx, &cb);
	}
}

/* ev[0..n-1] are the events with the data first, first + 1, ... */
static void check_data(const struct io_event *ev, int n, uint64_t first)
{
	for (int i = 0; i < n; i++) {
		assert_true(ev[i].data == first + (uint64_t)i);
		assert_true(ev[i].res == 8);
	}
}

/*
 * Claims about waiting are made for the events of files, of polls that are ready when they are
 * submitted, and of polls that something else completes. An implementation may have a way of its
 * own for each.
 */
enum source { SOURCE_FILE, SOURCE_POLL, SOURCE_LATE };

#define EACH_SOURCE(fn)                                                                            \
	static void fn##_file(void **state)                                                        \
	{                                                                                          \
		(void)state;                                                                       \
		fn(SOURCE_FILE);                                                                   \
	}                                                                                          \
	static void fn##_poll(void **state)                                                        \
	{                                                                                          \
		(void)state;                                                                       \
		fn(SOURCE_POLL);                                                                   \
	}                                                                                          \
	static void fn##_late(void **state)                                                        \
	{                                                                                          \
		(void)state;                                                                       \
		fn(SOURCE_LATE);                                                                   \
	}

#define TEST_EACH_SOURCE(fn)                                                                       \
	cmocka_unit_test(fn##_file), cmocka_unit_test(fn##_poll), cmocka_unit_test(fn##_late)

/* One event, at once. */
struct maker {
	enum source source;
	aio_context_t ctx;
	int file;
	int efd; /* always readable */
	int p[2];
	uint64_t next;
};

static struct maker maker_new(enum source source, unsigned int nr)
{
	struct maker m = {.source = source, .ctx = aio_new(nr), .file = file_in_memory(8)};

	m.efd = efd_new(1, EFD_NONBLOCK);
	aio_pipe(m.p, 0);
	return m;
}

static void make(struct maker *m, int n)
{
	static char buf[8];
	struct iocb cb;

	for (int i = 0; i < n; i++) {
		if (m->source == SOURCE_FILE)
			aio_pread(&cb, m->file, buf, 8, 0);
		else
			aio_poll(&cb, m->source == SOURCE_POLL ? m->efd : m->p[0], POLLIN);
		cb.aio_data = m->next++;
		if (m->source == SOURCE_FILE)
			aio_accept1(m->ctx, &cb);
		else
			aio_accept1(m->ctx, &cb);
		if (m->source == SOURCE_LATE) {
			assert_int_equal(write(m->p[1], "x", 1), 1);
			assert_int_equal(read(m->p[0], buf, 1), 1);
		}
	}
}

/* The events that were made as number from, from + 1, ... */
static void made(const struct maker *m, const struct io_event *ev, long n, uint64_t from)
{
	for (long i = 0; i < n; i++) {
		assert_true(ev[i].data == from + (uint64_t)i);
		assert_true(ev[i].res == (m->source == SOURCE_FILE   ? 8
					  : m->source == SOURCE_POLL ? POLLIN
								     : (POLLIN | POLLRDNORM)));
		assert_true(ev[i].res2 == 0);
	}
}

static void maker_free(struct maker *m)
{
	close(m->file);
	close(m->efd);
	close(m->p[0]);
	close(m->p[1]);
	aio_free(m->ctx);
}

/* --- arguments ------------------------------------------------------------------------------ */

static void AIO_GET_01_the_timeout_is_read_first(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct io_event ev;
	char *end = edge_new(PROT_NONE);
	int fd = file_in_memory(8);

	(void)state;
	complete(ctx, fd, 0, 1);
	memset(end - AIO_PAGE, 0, AIO_PAGE);
	for (size_t i = 0; i < BAD_ADDRESSES; i++) {
		void *bad = (void *)bad_addresses[i];

		assert_errno(aio_getevents(ctx, 0, 1, &ev, bad), EFAULT);
		assert_errno(aio_getevents(ctx, 1, 1, &ev, bad), EFAULT);
		assert_errno(aio_getevents(0, 1, 1, &ev, bad), EFAULT);
		assert_errno(aio_getevents(ctx, -1, -1, &ev, bad), EFAULT);
		assert_errno(aio_getevents(ctx, 2, 1, NULL, bad), EFAULT);
		assert_errno(aio_getevents(ctx, 0, 0, NULL, bad), EFAULT);
	}
	assert_errno(aio_getevents(ctx, 1, 1, &ev, unmapped()), EFAULT);
	for (int k = 0; k < 16; k++)
		assert_errno(aio_getevents(ctx, 1, 1, &ev, (void *)(end - k)), EFAULT);
	assert_int_equal(ring_count(ring_of(ctx)), 1);
	assert_int_equal(aio_getevents(ctx, 1, 1, &ev, (void *)(end - 16)), 1);
	assert_int_equal(aio_getevents(ctx, 1, 1, &ev, (void *)(end - 21)), 0);
	edge_free(end);
	close(fd);
	aio_free(ctx);
}

static void AIO_GET_01_numbers(void **state)
{
	static const long wrong[][2] = {
		{-1, 0},	{-1, 1},       {-1, -1},       {1, 0},
		{2, 1},		{0, -1},       {LONG_MIN, 0},  {LONG_MAX, 1},
		{0, LONG_MIN},	{1, LONG_MIN}, {LONG_MIN, 5},  {-1, LONG_MIN},
		{LONG_MAX, -1}, {INT_MIN, 1},  {LONG_MIN, -1}, {5, 4}};
	aio_context_t ctx = aio_new(4);
	struct timespec zero = {0};
	struct io_event ev[8];
	int fd = file_in_memory(8);

	(void)state;
	complete(ctx, fd, 0, 3);
	for (int i = 0; i < 16; i++) {
		for (int bad = 0; bad < 2; bad++) {
			assert_errno(aio_getevents(ctx, wrong[i][0], wrong[i][1], bad ? NULL : ev,
						   &zero),
				     EINVAL);
			assert_errno(
				aio_getevents(ctx, wrong[i][0], wrong[i][1], bad ? NULL : ev, NULL),
				EINVAL);
		}
	}
	assert_int_equal(aio_getevents(ctx, 3, LONG_MAX, ev, NULL), 3);
	check_data(ev, 3, 0);
	assert_int_equal(aio_getevents(ctx, LONG_MAX, LONG_MAX, ev, &zero), 0);
	complete(ctx, fd, 3, 2);
	assert_int_equal(aio_getevents(ctx, LONG_MAX, LONG_MAX, ev, &zero), 2);
	close(fd);
	aio_free(ctx);
}

static void AIO_GET_02_at_least_min_and_as_many_as_there_are_up_to_nr(enum source source)
{
	static const long cases[][4] = {
		/* there, min, nr, got */
		{1, 1, 1, 1}, {5, 1, 1, 1},    {5, 1, 3, 3},  {5, 1, 64, 5}, {5, 5, 5, 5},
		{5, 3, 4, 4}, {20, 1, 64, 20}, {20, 0, 7, 7}, {3, 0, 64, 3}, {40, 40, 64, 40},
	};
	struct maker m = maker_new(source, 62);
	struct io_event ev[64];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 10; i++) {
			uint64_t from = m.next;
			long left = cases[i][0] - cases[i][3];

			make(&m, (int)cases[i][0]);
			assert_int_equal(aio_getevents(m.ctx, cases[i][1], cases[i][2], ev, NULL),
					 cases[i][3]);
			made(&m, ev, cases[i][3], from);
			if (left == 0)
				continue;
			aio_take(m.ctx, ev, left);
			made(&m, ev, left, from + (uint64_t)cases[i][3]);
		}
	}
	aio_none(m.ctx);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_02_at_least_min_and_as_many_as_there_are_up_to_nr)

static void AIO_GET_02_waits_until_min_is_reached(enum source source)
{
	struct maker m = maker_new(source, 62);

	for (int there = 0; there < 3; there++) {
		uint64_t from = m.next;
		struct getter *g;

		make(&m, there);
		g = getter_new(m.ctx, 4, 8, -1);
		for (int i = there; i < 3; i++) {
			make(&m, 1);
			assert_true(getter_sleeps(g));
		}
		make(&m, 1);
		getter_gets(g, 4);
		made(&m, g->ev, 4, from);
		free(g);
		aio_none(m.ctx);
	}
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_02_waits_until_min_is_reached)

/* Events of files and of polls in turn, for one waiter. */
static void AIO_GET_02_AIO_GET_10_waits_for_events_of_all_kinds(void **state)
{
	struct maker file = maker_new(SOURCE_FILE, 62), poll = file;

	(void)state;
	poll.source = SOURCE_POLL;
	for (int first = 0; first < 2; first++) {
		struct getter *g;

		file.next = 0;
		poll.next = 100;
		make(first ? &file : &poll, 1);
		g = getter_new(file.ctx, 6, 6, -1);
		for (int i = 1; i < 5; i++) {
			make(i % 2 == first ? &poll : &file, 1);
			assert_true(getter_sleeps(g));
		}
		make(first ? &poll : &file, 1);
		getter_gets(g, 6);
		for (uint64_t i = 0; i < 6; i++)
			assert_true(g->ev[i].data ==
				    (i % 2 == (first ? 0 : 1) ? i / 2 : 100 + i / 2));
		free(g);
		aio_none(file.ctx);
	}
	maker_free(&file);
}

static void AIO_GET_03_min_0_never_sleeps(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct timespec hour = {.tv_sec = 3600}, forever = {.tv_sec = -1};
	struct io_event ev[4];
	struct iocb cb;
	int fd = file_in_memory(8), p[2];

	(void)state;
	aio_pipe(p, 0);
	for (int pending = 0; pending < 2; pending++) {
		assert_int_equal(assert_ok(aio_getevents(ctx, 0, 4, ev, NULL)), 0);
		assert_int_equal(assert_ok(aio_getevents(ctx, 0, 4, ev, &hour)), 0);
		assert_int_equal(assert_ok(aio_getevents(ctx, 0, 4, ev, &forever)), 0);
		assert_int_equal(assert_ok(aio_getevents(ctx, 0, 4, NULL, NULL)), 0);
		complete(ctx, fd, 7, 2);
		assert_int_equal(assert_ok(aio_getevents(ctx, 0, 4, ev, NULL)), 2);
		check_data(ev, 2, 7);
		if (pending)
			break;
		aio_accept1(ctx, aio_poll(&cb, p[0], POLLIN));
	}
	assert_int_equal(write(p[1], "x", 1), 1);
	aio_expect(ctx, &cb, POLLIN | POLLRDNORM);
	close(p[0]);
	close(p[1]);
	close(fd);
	aio_free(ctx);
}

static void AIO_GET_03_nr_0_takes_nothing(enum source source)
{
	struct maker m = maker_new(source, 8);
	struct timespec hour = {.tv_sec = 3600}, zero = {0};
	struct io_event ev[4];

	for (int there = 0; there < 2; there++) {
		assert_int_equal(assert_ok(aio_getevents(m.ctx, 0, 0, NULL, NULL)), 0);
		assert_int_equal(assert_ok(aio_getevents(m.ctx, 0, 0, (void *)8, NULL)), 0);
		assert_int_equal(assert_ok(aio_getevents(m.ctx, 0, 0, ev, &hour)), 0);
		assert_int_equal(assert_ok(aio_getevents(m.ctx, 0, 0, ev, &zero)), 0);
		make(&m, 1);
	}
	aio_take(m.ctx, ev, 2);
	made(&m, ev, 2, 0);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_03_nr_0_takes_nothing)

/* --- time ----------------------------------------------------------------------------------- */

static long timed(aio_context_t ctx, long min, long nr, struct io_event *ev, time_t sec, long nsec,
		  int64_t *ms)
{
	struct timespec ts = {.tv_sec = sec, .tv_nsec = nsec};
	int64_t start = now_ms();
	long n = aio_getevents(ctx, min, nr, ev, &ts);

	*ms = now_ms() - start;
	return n;
}

static void AIO_GET_04_the_timeout(enum source source)
{
	static const int waits[] = {1, 20, 100};
	struct maker m = maker_new(source, 8);
	struct io_event ev[8];
	int64_t ms;

	for (int i = 0; i < 3; i++) {
		for (int there = 0; there < 3; there++) {
			uint64_t from = m.next;

			make(&m, there);
			assert_int_equal(timed(m.ctx, 3, 8, ev, 0, waits[i] * 1000000L, &ms),
					 there);
			made(&m, ev, there, from);
			/* The clock of the test is read in whole milliseconds. */
			assert_true(ms >= waits[i] - 1);
		}
	}
	assert_int_equal(timed(m.ctx, 1, 8, ev, 1, 0, &ms), 0);
	assert_uint_in_range(ms, 999, SOON_MS);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_04_the_timeout)

static void AIO_GET_04_no_sleep_with_timeout_0(enum source source)
{
	struct maker m = maker_new(source, 8);
	struct timespec zero = {0};
	struct io_event ev[8];
	int64_t start = now_ms();

	for (int i = 0; i < 20000; i++)
		assert_int_equal(aio_getevents(m.ctx, 1, 8, ev, &zero), 0);
	/* The shortest of sleeps would add up to more than this; the calls do not. */
	assert_true(now_ms() - start < SOON_MS);
	for (int i = 0; i < 50; i++) {
		uint64_t from = m.next;

		make(&m, 2);
		assert_int_equal(aio_getevents(m.ctx, 3, 8, ev, &zero), 2);
		made(&m, ev, 2, from);
	}
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_04_no_sleep_with_timeout_0)

static void AIO_GET_04_events_end_a_wait_before_its_time(enum source source)
{
	struct maker m = maker_new(source, 8);
	struct getter *g = getter_new(m.ctx, 2, 4, 3600 * 1000);

	make(&m, 1);
	assert_true(getter_sleeps(g));
	make(&m, 1);
	getter_gets(g, 2);
	made(&m, g->ev, 2, 0);
	free(g);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_04_events_end_a_wait_before_its_time)

/* Events that come one at a time do not begin the time anew. */
static void AIO_GET_04_the_deadline_stands(enum source source)
{
	struct maker m = maker_new(source, 62);
	struct getter *g;
	int sent = 1;

	/* One is there in any case, however late this thread may be with the others. */
	make(&m, 1);
	g = getter_new(m.ctx, 60, 64, 600);
	while (!thread_done(&g->t) && sent < 59) {
		make(&m, 1);
		sent++;
		sleep_ms(40);
	}
	getter_join(g);
	/* Even if each of these pauses was as short as it can be, the deadline came first. */
	assert_true(g->took_ms >= 599);
	assert_true(sent < 59);
	assert_uint_in_range(g->n, 1, sent);
	made(&m, g->ev, g->n, 0);
	free(g);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_04_the_deadline_stands)

static void AIO_GET_05_the_sum_of_seconds_and_nanoseconds_counts(void **state)
{
	static const struct {
		time_t sec;
		long nsec;
		int ms;
	} sums[] = {{-1, 1050000000, 50}, {0, 1050000000, 1050}, {-5, 5030000000, 30},
		    {1, -970000000, 30},  {2, -1960000000, 40},	 {-1, 1000000000, 0},
		    {1, -1000000000, 0},  {0, 2100000000, 2100}};
	aio_context_t ctx = aio_new(4);
	struct io_event ev[4];
	int64_t ms;
	int fd = file_in_memory(8);

	(void)state;
	for (int i = 0; i < 8; i++) {
		assert_int_equal(timed(ctx, 1, 4, ev, sums[i].sec, sums[i].nsec, &ms), 0);
		assert_uint_in_range(ms, sums[i].ms > 0 ? sums[i].ms - 1 : 0, SOON_MS);
		complete(ctx, fd, 0, 1);
		assert_int_equal(timed(ctx, 2, 4, ev, sums[i].sec, sums[i].nsec, &ms), 1);
		assert_uint_in_range(ms, sums[i].ms > 0 ? sums[i].ms - 1 : 0, SOON_MS);
	}
	close(fd);
	aio_free(ctx);
}

struct forever {
	struct test_thread t;
	aio_context_t ctx;
	struct timespec ts;
	struct io_event ev;
	long n;
};

static void *forever_main(void *arg)
{
	struct forever *f = arg;

	f->n = aio_getevents(f->ctx, 1, 1, &f->ev, &f->ts);
	return NULL;
}

static void AIO_GET_05_a_negative_sum_waits_without_limit(void **state)
{
	static const struct timespec sums[] = {
		{-1, 0},	  {0, -1},	 {-1, 999999999},	{-1000000, 5},
		{1, -2000000000}, {0, LONG_MIN}, {-1000000000, 1000000}};
	static const struct timespec large[] = {
		{0, LONG_MAX}, {LONG_MAX, 0}, {LONG_MAX, 999999999}, {LONG_MAX / 1000000000, 0}};
	aio_context_t ctx[11];
	struct forever *f = calloc(11, sizeof(*f));
	int fd = file_in_memory(8);

	(void)state;
	assert_non_null(f);
	for (int i = 0; i < 11; i++) {
		f[i].ctx = ctx[i] = aio_new(1);
		f[i].ts = i < 7 ? sums[i] : large[i - 7];
		thread_start(&f[i].t, forever_main, &f[i]);
	}
	for (int i = 0; i < 11; i++)
		assert_true(thread_asleep(&f[i].t));
	sleep_ms(100);
	for (int i = 0; i < 11; i++) {
		assert_true(thread_asleep(&f[i].t));
		complete(ctx[i], fd, 5, 1);
		assert_true(thread_join(&f[i].t, SOON_MS));
		assert_int_equal(f[i].n, 1);
		check_data(&f[i].ev, 1, 5);
		aio_free(ctx[i]);
	}
	close(fd);
	free(f);
}

static void AIO_GET_06_the_timeout_is_not_written(enum source source)
{
	struct maker m = maker_new(source, 4);
	char *end = edge_new(PROT_READ | PROT_WRITE);
	struct timespec *ts = (void *)end, *rest = (void *)(end - sizeof(*ts));
	struct io_event ev[4];

	*ts = *rest = (struct timespec){.tv_sec = 0, .tv_nsec = 30000000};
	assert_int_equal(aio_getevents(m.ctx, 1, 4, ev, rest), 0);
	assert_int_equal(rest->tv_sec, 0);
	assert_int_equal(rest->tv_nsec, 30000000);
	make(&m, 1);
	assert_int_equal(aio_getevents(m.ctx, 1, 4, ev, rest), 1);
	make(&m, 1);
	assert_int_equal(aio_getevents(m.ctx, 2, 4, ev, rest), 1);
	assert_int_equal(rest->tv_sec, 0);
	assert_int_equal(rest->tv_nsec, 30000000);
	/* Nor does it have to be writable. */
	assert_ok(mprotect(end, AIO_PAGE, PROT_READ));
	assert_int_equal(aio_getevents(m.ctx, 1, 4, ev, ts), 0);
	edge_free(end);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_06_the_timeout_is_not_written)

/* --- signals -------------------------------------------------------------------------------- */

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

static struct sigaction handle(int sig, int flags)
{
	struct sigaction sa = {.sa_handler = count_signal, .sa_flags = flags}, old;

	assert_ok(sigaction(sig, &sa, &old));
	handled_clear();
	return old;
}

static void AIO_GET_07_a_signal_ends_a_wait_for_the_first_event(void **state)
{
	static const int flags[] = {0, SA_RESTART};
	static const int timeouts[] = {-1, 3600 * 1000};
	aio_context_t ctx = aio_new(4);

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct sigaction old = handle(SIGUSR1, flags[i % 2]);
		struct getter *g = getter_new(ctx, 1, 4, timeouts[i / 2]);

		assert_int_equal(pthread_kill(g->t.id, SIGUSR1), 0);
		getter_fails(g, EINTR);
		assert_int_equal(handled, 1);
		free(g);
		assert_ok(sigaction(SIGUSR1, &old, NULL));
	}
	aio_free(ctx);
}

static void AIO_GET_07_with_some_events_their_number_is_returned(enum source source)
{
	static const int flags[] = {0, SA_RESTART};
	struct maker m = maker_new(source, 8);

	for (int i = 0; i < 4; i++) {
		struct sigaction old = handle(SIGUSR1, flags[i % 2]);
		uint64_t from = m.next;
		struct getter *g;

		/* Two that were there already, or came during the wait. */
		if (i / 2 == 0)
			make(&m, 2);
		g = getter_new(m.ctx, 3, 4, -1);
		if (i / 2 == 1) {
			make(&m, 2);
			assert_true(getter_sleeps(g));
		}
		assert_int_equal(pthread_kill(g->t.id, SIGUSR1), 0);
		getter_gets(g, 2);
		assert_int_equal(handled, 1);
		made(&m, g->ev, 2, from);
		free(g);
		aio_none(m.ctx);
		assert_ok(sigaction(SIGUSR1, &old, NULL));
	}
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_07_with_some_events_their_number_is_returned)

static void AIO_GET_07_ignored_and_blocked_signals_end_nothing(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
	struct getter *g;
	sigset_t usr2, before;
	int fd = file_in_memory(8);

	(void)state;
	assert_ok(sigaction(SIGUSR1, &ignore, &old));
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &usr2, &before), 0);
	g = getter_new(ctx, 1, 4, -1);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(pthread_kill(g->t.id, SIGUSR1), 0);
		assert_int_equal(pthread_kill(g->t.id, SIGUSR2), 0);
		assert_int_equal(pthread_kill(g->t.id, SIGWINCH), 0);
		assert_true(getter_sleeps(g));
	}
	complete(ctx, fd, 3, 1);
	getter_gets(g, 1);
	check_data(g->ev, 1, 3);
	free(g);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
	assert_ok(sigaction(SIGUSR1, &old, NULL));
	close(fd);
	aio_free(ctx);
}

/* --- handlers that do not just return --- */

static sigjmp_buf jump_to;

static void jump(int sig)
{
	(void)sig;
	siglongjmp(jump_to, 1);
}

/* Leaves a wait by a jump, this deep in the stack. */
static __attribute__((noinline)) void wait_and_jump(aio_context_t ctx, int depth)
{
	volatile char room[256];
	struct io_event ev;

	room[0] = (char)depth;
	if (depth > 0)
		wait_and_jump(ctx, depth - 1);
	else
		(void)aio_getevents(ctx, 1, 1, &ev, NULL);
	room[1] = room[0];
}

static __attribute__((noinline)) int destroy_at(aio_context_t ctx, int depth)
{
	volatile char room[256];
	int r;

	room[0] = (char)depth;
	r = depth > 0 ? destroy_at(ctx, depth - 1) : aio_destroy(ctx);
	room[1] = room[0];
	return r;
}

struct jumper {
	struct test_thread t;
	aio_context_t ctx;
	int depth;
	/* Where io_destroy is called from; negative: by somebody else, later. */
	int destroy;
};

static void *jumper_main(void *arg)
{
	struct jumper *j = arg;

	if (sigsetjmp(jump_to, 1) == 0) {
		wait_and_jump(j->ctx, j->depth);
		return "no jump";
	}
	if (j->destroy >= 0 && destroy_at(j->ctx, j->destroy) != 0)
		return "io_destroy";
	return NULL;
}

static void AIO_GET_07_AIO_DESTROY_02_waits_left_by_a_jump(void **state)
{
	static const int places[][2] = {{0, 0}, {5, 0}, {0, 5}, {0, -1}, {5, -1}};
	struct sigaction sa = {.sa_handler = jump}, old;

	(void)state;
	if (SANITIZED)
		SKIP("a sanitizer's own record of the stack does not know of the jump");
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct maker m = maker_new(SOURCE_FILE, 8);
		struct jumper j = {.ctx = m.ctx, .depth = places[i][0], .destroy = places[i][1]};
		struct io_event ev[2];

		thread_start(&j.t, jumper_main, &j);
		assert_true(thread_asleep(&j.t));
		if (j.destroy < 0) {
			/* Somebody else needs more than the one that leaves did. */
			struct getter *g = getter_new(m.ctx, 2, 2, -1);

			assert_int_equal(pthread_kill(j.t.id, SIGUSR1), 0);
			assert_true(thread_join(&j.t, SOON_MS));
			make(&m, 1);
			assert_true(getter_sleeps(g));
			make(&m, 1);
			getter_gets(g, 2);
			free(g);
			make(&m, 1);
			aio_take(m.ctx, ev, 1);
		} else {
			assert_int_equal(pthread_kill(j.t.id, SIGUSR1), 0);
			assert_true(thread_join(&j.t, SOON_MS));
		}
		if (j.t.ret != NULL)
			print_error("%s\n", (char *)j.t.ret);
		assert_null(j.t.ret);
		if (j.destroy >= 0) {
			assert_errno(aio_destroy(m.ctx), EINVAL);
			m.ctx = aio_new(1);
		}
		maker_free(&m);
	}
	assert_ok(sigaction(SIGUSR1, &old, NULL));
}

/* What a handler does to the context of the call that it has interrupted. */
static struct {
	aio_context_t ctx;
	int destroyed;
	pid_t child;
	pid_t parent;
} interrupted;

static void destroy_in_handler(int sig)
{
	(void)sig;
	interrupted.destroyed = aio_destroy(interrupted.ctx) == 0;
}

static void AIO_GET_07_AIO_DESTROY_02_a_handler_destroys_the_context(void **state)
{
	struct sigaction sa = {.sa_handler = destroy_in_handler}, old;

	(void)state;
	if (SANITIZED == 2)
		SKIP("ThreadSanitizer runs handlers where it likes");
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	for (int i = 0; i < 3; i++) {
		struct getter *g, *other = NULL;

		interrupted.ctx = aio_new(4);
		interrupted.destroyed = 0;
		if (i == 2)
			other = getter_new(interrupted.ctx, 1, 4, -1);
		g = getter_new(interrupted.ctx, 1, 4, i == 1 ? 3600 * 1000 : -1);
		assert_int_equal(pthread_kill(g->t.id, SIGUSR1), 0);
		getter_fails(g, EINTR);
		assert_int_equal(interrupted.destroyed, 1);
		free(g);
		if (other) {
			getter_fails(other, EINVAL);
			free(other);
		}
		assert_errno(aio_destroy(interrupted.ctx), EINVAL);
	}
	assert_ok(sigaction(SIGUSR1, &old, NULL));
}

static void fork_in_handler(int sig)
{
	(void)sig;
	interrupted.child = fork();
}

/* In a process of its own: both sides of the fork find the call interrupted. */
static void waits_through_a_fork(int ready)
{
	struct sigaction sa = {.sa_handler = fork_in_handler};
	aio_context_t ctx = 0;
	struct io_event ev[4];
	struct iocb cb, *list[1] = {&cb};
	int p[2], st;

	child_check(aio_setup_in_turn(4, &ctx) == 0);
	child_check(pipe(p) == 0);
	child_check(sigaction(SIGUSR1, &sa, NULL) == 0);
	aio_poll(&cb, p[0], POLLIN);
	child_check(aio_submit(ctx, 1, list) == 1);
	child_check(write(ready, "x", 1) == 1);
	child_errno(aio_getevents(ctx, 1, 4, ev, NULL), EINTR);
	if (interrupted.child == 0) {
		struct timespec zero = {0};

		child_errno(aio_getevents(ctx, 0, 4, ev, &zero), EINVAL);
		child_errno(aio_destroy(ctx), EINVAL);
		_exit(0);
	}
	child_check(interrupted.child > 0);
	child_check(waitpid(interrupted.child, &st, 0) == interrupted.child && st == 0);
	child_check(write(p[1], "x", 1) == 1);
	child_check(aio_getevents(ctx, 1, 4, ev, NULL) == 1);
	child_check(aio_destroy(ctx) == 0);
}

static void AIO_GET_07_AIO_CTX_02_a_handler_forks(void **state)
{
	int p[2];
	pid_t pid;
	char c;

	(void)state;
	if (SANITIZED)
		SKIP("sanitizers do not support it");
	assert_ok(pipe(p));
	pid = fork_bounded();
	if (pid == 0) {
		waits_through_a_fork(p[1]);
		_exit(0);
	}
	assert_true(pid > 0);
	close(p[1]);
	assert_int_equal(read(p[0], &c, 1), 1);
	close(p[0]);
	assert_true(child_asleep(pid));
	assert_ok(kill(pid, SIGUSR1));
	child_passes(pid);
}

/* Nobody in this process can make a context any more, and nobody sees why. */
static void refuse_contexts(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {.len = 4, .filter = code};

	child_check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	child_check(own_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&filter) == 0);
}

struct leaving {
	void (*handler)(int);
	bool masked;
};

/* A handler leaves the wait, or the context, where the machine's limit of AIO is used up. */
static void leave_at_the_limit(void *arg)
{
	struct leaving *how = arg;
	struct sigaction sa = {.sa_handler = how->handler};
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct itimerspec moment = {.it_value.tv_nsec = QUIET_MS * 1000000l};
	uint64_t none = 0;
	struct aio_sigset set = {&none, 8};
	struct io_event got;
	timer_t timer;
	long r = 0;

	interrupted.ctx = 0;
	interrupted.destroyed = 0;
	child_check(aio_setup_in_turn(4, &interrupted.ctx) == 0);
	refuse_contexts();
	child_check(sigaction(SIGUSR1, &sa, NULL) == 0);
	child_check(timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0);
	child_check(timer_settime(timer, 0, &moment, NULL) == 0);
	if (sigsetjmp(jump_to, 1) == 0) {
		if (how->masked)
			r = aio_pgetevents(interrupted.ctx, 1, 1, &got, NULL, &set);
		else
			r = aio_getevents(interrupted.ctx, 1, 1, &got, NULL);
		child_check(r == -1 && errno == EINTR && interrupted.destroyed == 1);
	} else {
		child_check(aio_destroy(interrupted.ctx) == 0);
	}
	child_check(aio_destroy(interrupted.ctx) == -1 && errno == EINVAL);
}

static void AIO_GET_07_AIO_DESTROY_02_at_the_limit(void **state)
{
	struct leaving how[] = {
		{destroy_in_handler, false},
		{destroy_in_handler, true},
		{jump, false},
		{jump, true},
	};

	(void)state;
	if (SANITIZED)
		SKIP("a sanitizer's own record of the stack does not know of the jump");
	for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++)
		in_child(leave_at_the_limit, &how[i]);
}

/* A stop and its end count as a signal although no handler runs. */
static void waits_through_a_stop(void *arg)
{
	aio_context_t ctx = 0;
	struct io_event ev[4];
	struct iocb cb, *list[1] = {&cb};
	int fd = *(int *)arg;
	char buf[8];

	child_check(aio_setup_in_turn(4, &ctx) == 0);
	child_errno(aio_getevents(ctx, 1, 4, ev, NULL), EINTR);
	aio_pread(&cb, fd, buf, 8, 0);
	child_check(aio_submit(ctx, 1, list) == 1);
	child_check(aio_getevents(ctx, 2, 4, ev, NULL) == 1);
	child_check(ev[0].res == 8);
}

static void AIO_GET_07_stop_and_continue_end_a_wait(void **state)
{
	int fd = file_in_memory(8), st = -1;
	pid_t pid = fork_bounded();
	bool ended = false;
	int64_t end = now_ms() + SOON_MS;

	(void)state;
	if (pid == 0) {
		waits_through_a_stop(&fd);
		_exit(0);
	}
	assert_true(pid > 0);
	/* A stop that comes before the wait has begun ends nothing and is followed by another. */
	while (!ended && now_ms() < end) {
		if (!child_asleep(pid)) {
			/* It is between its waits, or it has ended. */
			ended = waitpid(pid, &st, WNOHANG) == pid;
			continue;
		}
		assert_ok(kill(pid, SIGSTOP));
		assert_int_equal(waitpid(pid, &st, WUNTRACED), pid);
		if (!WIFSTOPPED(st)) {
			ended = true;
			break;
		}
		assert_ok(kill(pid, SIGCONT));
		sleep_ms(5);
	}
	if (!ended) {
		kill(pid, SIGKILL);
		waitpid(pid, &st, 0);
	}
	assert_int_equal(st, 0);
	close(fd);
}

/* --- memory for the events ------------------------------------------------------------------ */

static void AIO_GET_08_nothing_is_consumed_when_events_cannot_be_stored(enum source source)
{
	struct maker m = maker_new(source, 62);
	char *end = edge_new(PROT_NONE);
	struct timespec zero = {0};
	struct io_event ev[8];

	for (int round = 0; round < 12; round++) {
		uint64_t from = m.next;

		make(&m, 5);
		for (size_t i = 0; i < BAD_ADDRESSES; i++)
			assert_errno(aio_getevents(m.ctx, 1, 5, (void *)bad_addresses[i], &zero),
				     EFAULT);
		assert_errno(aio_getevents(m.ctx, 1, 5, NULL, NULL), EFAULT);
		assert_errno(aio_getevents(m.ctx, 0, 5, unmapped(), &zero), EFAULT);
		assert_errno(aio_getevents(m.ctx, 6, 8, unmapped(), NULL), EFAULT);
		for (int room = 0; room < 5; room++) {
			assert_errno(aio_getevents(m.ctx, 1, 5, (void *)(end - room * 32), &zero),
				     EFAULT);
			assert_errno(
				aio_getevents(m.ctx, 0, 5, (void *)(end - room * 32 - 31), NULL),
				EFAULT);
		}
		/* Where there is room for fewer, fewer can be asked for. */
		assert_int_equal(aio_getevents(m.ctx, 1, 2, (void *)(end - 64), &zero), 2);
		memcpy(ev, end - 64, 64);
		made(&m, ev, 2, from);
		aio_take(m.ctx, ev, 3);
		made(&m, ev, 3, from + 2);
		aio_none(m.ctx);
	}
	edge_free(end);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_08_nothing_is_consumed_when_events_cannot_be_stored)

/* What a handler finds of the wait that it ends. */
static struct {
	aio_context_t ctx;
	const struct io_event *ev;
	bool stored;
	long left;
} ended;

static void look_at_the_wait(int sig)
{
	struct timespec zero = {0};
	struct io_event ev[4];

	(void)sig;
	ended.stored = ended.ev && ended.ev->obj;
	ended.left = aio_getevents(ended.ctx, 0, 4, ev, &zero);
}

/* Too few have come for the wait: they are its own all the same, and not the handler's. */
static void AIO_GET_07_what_has_come_is_stored_before_the_handler(enum source source)
{
	struct sigaction sa = {.sa_handler = look_at_the_wait}, old;

	if (SANITIZED == 2)
		SKIP("ThreadSanitizer runs handlers where it likes");
	/* Faults, too, are blocked in it. */
	sigfillset(&sa.sa_mask);
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	for (int i = 0; i < 3; i++) {
		struct maker m = maker_new(source, 8);
		struct getter *g = getter_new(m.ctx, 3, 8, -1);

		ended.ctx = m.ctx;
		ended.ev = g->ev;
		ended.left = -1;
		make(&m, i);
		assert_true(getter_sleeps(g));
		assert_int_equal(pthread_kill(g->t.id, SIGUSR1), 0);
		if (i)
			getter_gets(g, i);
		else
			getter_fails(g, EINTR);
		made(&m, g->ev, i, 0);
		assert_int_equal(ended.stored, i > 0);
		assert_int_equal(ended.left, 0);
		free(g);
		maker_free(&m);
	}
	assert_ok(sigaction(SIGUSR1, &old, NULL));
}
EACH_SOURCE(AIO_GET_07_what_has_come_is_stored_before_the_handler)

static void AIO_GET_08_memory_that_can_only_be_read(enum source source)
{
	struct maker m = maker_new(source, 8);
	char *end = edge_new(PROT_READ);
	struct timespec zero = {0};
	struct io_event ev[8];

	make(&m, 3);
	assert_errno(aio_getevents(m.ctx, 1, 3, (void *)end, &zero), EFAULT);
	assert_errno(aio_getevents(m.ctx, 1, 3, (void *)(end - 64), &zero), EFAULT);
	assert_errno(aio_getevents(m.ctx, 3, 3, (void *)(end - 64), NULL), EFAULT);
	aio_take(m.ctx, ev, 3);
	made(&m, ev, 3, 0);
	edge_free(end);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_08_memory_that_can_only_be_read)

/* The memory is not looked at when there is nothing to store; it may come and go. */
static void AIO_GET_08_without_events_the_memory_does_not_matter(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct timespec zero = {0}, moment = {.tv_nsec = 2000000};

	(void)state;
	for (size_t i = 0; i < BAD_ADDRESSES; i++) {
		assert_int_equal(aio_getevents(ctx, 0, 4, (void *)bad_addresses[i], NULL), 0);
		assert_int_equal(aio_getevents(ctx, 1, 4, (void *)bad_addresses[i], &zero), 0);
		assert_int_equal(aio_getevents(ctx, 1, 4, (void *)bad_addresses[i], &moment), 0);
	}
	aio_free(ctx);
}

/* A sleeper that has no room for the event that wakes it. */
struct cramped {
	struct test_thread t;
	aio_context_t ctx;
	long min;
	long nr;
	void *ev;
	long n;
	int err;
	/* The mask of the call, or none. */
	const struct aio_sigset *blocked;
};

static void *cramped_main(void *arg)
{
	struct cramped *c = arg;

	errno = 0;
	if (c->blocked)
		c->n = aio_pgetevents(c->ctx, c->min, c->nr, c->ev, NULL, c->blocked);
	else
		c->n = aio_getevents(c->ctx, c->min, c->nr, c->ev, NULL);
	c->err = errno;
	return NULL;
}

static struct cramped *cramped_new(aio_context_t ctx, long min, long nr, void *ev,
				   const struct aio_sigset *blocked)
{
	struct cramped *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	c->ctx = ctx;
	c->min = min;
	c->nr = nr;
	c->ev = ev;
	c->blocked = blocked;
	thread_start(&c->t, cramped_main, c);
	assert_true(thread_asleep(&c->t));
	return c;
}

static void sleeper_without_room(enum source source, const struct aio_sigset *blocked)
{
	struct maker m = maker_new(source, 8);
	struct cramped *c = cramped_new(m.ctx, 1, 4, (void *)8, blocked);
	struct io_event ev[4];

	make(&m, 1);
	assert_true(thread_join(&c->t, SOON_MS));
	assert_int_equal(c->n, -1);
	assert_int_equal(c->err, EFAULT);
	free(c);
	make(&m, 1);
	aio_take(m.ctx, ev, 2);
	made(&m, ev, 2, 0);
	aio_none(m.ctx);
	maker_free(&m);
}

static void AIO_GET_08_a_sleeper_without_room(enum source source)
{
	sleeper_without_room(source, NULL);
}
EACH_SOURCE(AIO_GET_08_a_sleeper_without_room)

/* Those of bad addresses, too: for the kernel there is none. */
static void AIO_GET_08_AIO_PGET_02_a_sleeper_without_room_blocks_all(enum source source)
{
	uint64_t all = ~0ull;
	struct aio_sigset set = {&all, 8};

	sleeper_without_room(source, &set);
}
EACH_SOURCE(AIO_GET_08_AIO_PGET_02_a_sleeper_without_room_blocks_all)

/* The handler of the signal that ends the wait has faults blocked. */
static void AIO_GET_08_AIO_GET_07_a_sleeper_without_room_is_interrupted(enum source source)
{
	struct sigaction sa = {.sa_handler = look_at_the_wait}, old;
	struct maker m = maker_new(source, 8);
	struct cramped *c;

	if (SANITIZED == 2)
		SKIP("ThreadSanitizer runs handlers where it likes");
	sigfillset(&sa.sa_mask);
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	c = cramped_new(m.ctx, 2, 4, (void *)8, NULL);
	ended.ctx = m.ctx;
	ended.ev = NULL;
	make(&m, 1);
	sleep_ms(QUIET_MS);
	assert_int_equal(pthread_kill(c->t.id, SIGUSR1), 0);
	assert_true(thread_join(&c->t, SOON_MS));
	assert_int_equal(c->n, -1);
	assert_int_equal(c->err, EFAULT);
	/* It has not been taken, and so it was the handler's. */
	assert_int_equal(ended.left, 1);
	free(c);
	assert_ok(sigaction(SIGUSR1, &old, NULL));
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_08_AIO_GET_07_a_sleeper_without_room_is_interrupted)

static void AIO_GET_08_earlier_batches_are_returned(enum source source)
{
	struct maker m = maker_new(source, 8);
	char *end = edge_new(PROT_NONE);
	struct io_event ev[4];
	struct cramped *c;

	make(&m, 2);
	/* The first batch is two events; there is no room for what comes then. */
	c = cramped_new(m.ctx, 3, 4, end - 64, NULL);
	make(&m, 1);
	assert_true(thread_join(&c->t, SOON_MS));
	assert_int_equal(c->n, 2);
	memcpy(ev, end - 64, 64);
	made(&m, ev, 2, 0);
	free(c);
	make(&m, 1);
	aio_take(m.ctx, ev, 2);
	made(&m, ev, 2, 2);
	aio_none(m.ctx);
	edge_free(end);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_08_earlier_batches_are_returned)

/* A batch that lies at the end and at the beginning of the ring is one batch. */
static void AIO_GET_08_a_batch_around_the_end_of_the_ring(void **state)
{
	aio_context_t ctx = aio_new(62);
	uint32_t nr = ring_of(ctx)->nr;
	char *end = edge_new(PROT_NONE);
	struct io_event ev[64];
	int fd = file_in_memory(8);

	(void)state;
	for (uint32_t at = 0; at < nr - 5;) {
		int n = nr - 5 - at < 60 ? (int)(nr - 5 - at) : 60;

		complete(ctx, fd, 0, n);
		aio_take(ctx, ev, n);
		at += (uint32_t)n;
	}
	complete(ctx, fd, 1000, 20);
	for (int room = 0; room < 20; room++)
		assert_errno(aio_getevents(ctx, 1, 64, (void *)(end - room * 32), NULL), EFAULT);
	assert_int_equal(ring_count(ring_of(ctx)), 20);
	assert_int_equal(aio_getevents(ctx, 1, 20, (void *)(end - 640), NULL), 20);
	memcpy(ev, end - 640, 640);
	check_data(ev, 20, 1000);
	edge_free(end);
	close(fd);
	aio_free(ctx);
}

/* --- several waiters ------------------------------------------------------------------------ */

static void AIO_GET_09_one_event_ends_one_wait(enum source source)
{
	struct maker m = maker_new(source, 8);
	struct getter *g[4];
	bool ended[4] = {false};

	for (int i = 0; i < 4; i++)
		g[i] = getter_new(m.ctx, 1, 4, -1);
	for (int round = 0; round < 4; round++) {
		int64_t end = now_ms() + SOON_MS;
		int who = -1;

		make(&m, 1);
		while (who < 0 && now_ms() < end) {
			for (int i = 0; i < 4; i++)
				if (!ended[i] && thread_done(&g[i]->t))
					who = i;
			sleep_ms(1);
		}
		assert_true(who >= 0);
		ended[who] = true;
		getter_gets(g[who], 1);
		made(&m, g[who]->ev, 1, (uint64_t)round);
		sleep_ms(QUIET_MS);
		for (int i = 0; i < 4; i++)
			if (!ended[i])
				assert_true(thread_asleep(&g[i]->t));
	}
	for (int i = 0; i < 4; i++)
		free(g[i]);
	aio_none(m.ctx);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_09_one_event_ends_one_wait)

static void AIO_GET_09_as_many_events_as_all_need_end_all_waits(enum source source)
{
	static const long needs[] = {1, 5, 2, 3, 1, 4};
	struct maker m = maker_new(source, 62);
	struct getter *g[6];

	for (int portion = 1; portion <= 16; portion *= 4) {
		uint64_t from = m.next;
		bool seen[16] = {false};

		for (int i = 0; i < 6; i++)
			g[i] = getter_new(m.ctx, needs[i], needs[i], -1);
		for (int sent = 0; sent < 16; sent += portion) {
			make(&m, portion);
			sched_yield();
		}
		for (int i = 0; i < 6; i++) {
			getter_gets(g[i], needs[i]);
			for (long k = 0; k < needs[i]; k++) {
				uint64_t which = g[i]->ev[k].data - from;

				assert_true(which < 16);
				assert_false(seen[which]);
				seen[which] = true;
				/* What one waiter gets is in order. */
				if (k > 0)
					assert_true(g[i]->ev[k].data > g[i]->ev[k - 1].data);
			}
			free(g[i]);
		}
		aio_none(m.ctx);
	}
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_09_as_many_events_as_all_need_end_all_waits)

/*
 * One whose need is large cannot keep everything from one whose need is small: it may take some
 * on the way, but not more than it needs.
 */
static void AIO_GET_09_each_waiter_has_its_own_need(enum source source)
{
	struct maker m = maker_new(source, 62);
	struct getter *large = getter_new(m.ctx, 64, 64, -1), *small;
	long sent = 0;

	small = getter_new(m.ctx, 1, 1, -1);
	while (!thread_done(&small->t) && sent < 65) {
		make(&m, 1);
		sent++;
		sleep_ms(5);
	}
	getter_gets(small, 1);
	if (sent < 65)
		assert_true(thread_asleep(&large->t));
	aio_free(m.ctx);
	getter_join(large);
	if (sent == 65)
		assert_int_equal(large->n, 64);
	else if (large->n == -1)
		assert_int_equal(large->err, EINVAL);
	else
		assert_uint_in_range(large->n, 1, sent - 1);
	free(large);
	free(small);
	m.ctx = aio_new(1);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_09_each_waiter_has_its_own_need)

/* Someone takes events without sleeping while others wait for them. */
static void AIO_GET_09_sleepers_and_a_poller(enum source source)
{
	struct maker m = maker_new(source, 62);
	struct getter *g[2] = {getter_new(m.ctx, 8, 8, -1), getter_new(m.ctx, 8, 8, -1)};
	struct io_event ev[4];
	bool seen[200] = {false};
	int total = 0, taken = 0;

	while (!thread_done(&g[0]->t) || !thread_done(&g[1]->t)) {
		struct timespec zero = {0};
		long n;

		assert_true(total < 190);
		make(&m, 3);
		total += 3;
		n = aio_getevents(m.ctx, 0, 1, ev, &zero);
		assert_uint_in_range(n, 0, 1);
		if (n == 1) {
			assert_true(ev[0].data < 200 && !seen[ev[0].data]);
			seen[ev[0].data] = true;
			taken++;
		}
		sleep_ms(2);
	}
	for (int i = 0; i < 2; i++) {
		getter_gets(g[i], 8);
		for (int k = 0; k < 8; k++) {
			assert_true(g[i]->ev[k].data < 200 && !seen[g[i]->ev[k].data]);
			seen[g[i]->ev[k].data] = true;
		}
		free(g[i]);
	}
	/* What nobody has got is still there. */
	while (taken + 16 < total) {
		aio_take(m.ctx, ev, 1);
		assert_true(ev[0].data < 200 && !seen[ev[0].data]);
		seen[ev[0].data] = true;
		taken++;
	}
	aio_none(m.ctx);
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_09_sleepers_and_a_poller)

/* Many threads wait for events of both kinds again and again; none is lost or given twice. */
#define CONSUMERS 4
#define EVENTS 1200

struct consumer {
	struct test_thread t;
	aio_context_t ctx;
	int index;
	unsigned char *seen;
	int *total;
};

static void *consumer_main(void *arg)
{
	struct consumer *c = arg;
	struct io_event ev[8];

	while (__atomic_load_n(c->total, __ATOMIC_ACQUIRE) < EVENTS) {
		struct timespec ts = {.tv_nsec = 20000000};
		long min = 1 + c->index % 3;
		long n = aio_getevents(c->ctx, min, min + c->index, ev, &ts);

		if (n < 0)
			return "io_getevents";
		for (long i = 0; i < n; i++) {
			if (ev[i].data >= EVENTS)
				return "data";
			__atomic_add_fetch(&c->seen[ev[i].data], 1, __ATOMIC_RELAXED);
		}
		__atomic_add_fetch(c->total, (int)n, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void AIO_GET_09_a_crowd_of_waiters(void **state)
{
	struct maker m = maker_new(SOURCE_FILE, 30);
	struct consumer *c = calloc(CONSUMERS, sizeof(*c));
	unsigned char *seen = calloc(EVENTS, 1);
	struct iocb cb, *list[1] = {&cb};
	static char buf[8];
	int total = 0;

	(void)state;
	assert_non_null(c);
	assert_non_null(seen);
	for (int i = 0; i < CONSUMERS; i++) {
		c[i].ctx = m.ctx;
		c[i].index = i;
		c[i].seen = seen;
		c[i].total = &total;
		thread_start(&c[i].t, consumer_main, &c[i]);
	}
	for (int i = 0; i < EVENTS; i++) {
		int64_t end = now_ms() + SOON_MS;
		long n;

		if (i % 7 < 4)
			aio_pread(&cb, m.file, buf, 8, 0);
		else
			aio_poll(&cb, m.efd, POLLIN);
		cb.aio_data = (uint64_t)i;
		while ((n = aio_submit(m.ctx, 1, list)) == -1 && errno == EAGAIN && now_ms() < end)
			sched_yield();
		assert_int_equal(n, 1);
	}
	for (int i = 0; i < CONSUMERS; i++) {
		assert_true(thread_join(&c[i].t, SOON_MS));
		if (c[i].t.ret != NULL)
			print_error("thread %d: %s\n", i, (char *)c[i].t.ret);
		assert_null(c[i].t.ret);
	}
	for (int i = 0; i < EVENTS; i++)
		assert_int_equal(seen[i], 1);
	assert_int_equal(total, EVENTS);
	aio_none(m.ctx);
	maker_free(&m);
	free(seen);
	free(c);
}

/*
 * Kernels before 6.8 let a waiter whose need is not met take what there is. Pollux never does, on
 * whatever kernel.
 */
static bool takes_early(void)
{
	struct utsname u;
	int major = 0, minor = 0;

	assert_ok(uname(&u));
	assert_int_equal(sscanf(u.release, "%d.%d", &major, &minor), 2);
	return !under_pollux() && (major < 6 || (major == 6 && minor < 8));
}

static void AIO_GET_09_nothing_is_taken_before_all_is_there(enum source source)
{
	struct maker m = maker_new(source, 62);
	struct getter *large, *small;
	struct io_event ev[4];

	if (takes_early()) {
		maker_free(&m);
		SKIP("kernels before 6.8 take earlier");
	}
	for (int round = 0; round < 3; round++) {
		uint64_t from = m.next;

		large = getter_new(m.ctx, 6, 8, -1);
		make(&m, 3);
		assert_true(getter_sleeps(large));
		/* Others get what is there, with and without sleeping. */
		assert_int_equal(aio_poll_events(m.ctx, ev, 2), 2);
		made(&m, ev, 2, from);
		small = getter_new_awake(m.ctx, 1, 1, -1);
		getter_gets(small, 1);
		made(&m, small->ev, 1, from + 2);
		free(small);
		make(&m, 5);
		assert_true(getter_sleeps(large));
		make(&m, 1);
		getter_gets(large, 6);
		made(&m, large->ev, 6, from + 3);
		free(large);
		aio_none(m.ctx);
	}
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_09_nothing_is_taken_before_all_is_there)

/* The smallest need is met first, whoever came first. */
static void AIO_GET_09_needs_are_met_as_events_come(enum source source)
{
	static const long needs[][4] = {{7, 4, 2, 1}, {1, 2, 4, 7}, {2, 7, 1, 4}};
	struct maker m = maker_new(source, 62);

	if (takes_early()) {
		maker_free(&m);
		SKIP("kernels before 6.8 take earlier");
	}
	for (int round = 0; round < 3; round++) {
		struct getter *g[8] = {NULL};

		for (int i = 0; i < 4; i++)
			g[needs[round][i]] = getter_new(m.ctx, needs[round][i], 8, -1);
		for (int need = 1; need < 8; need++) {
			uint64_t from = m.next;

			if (!g[need])
				continue;
			for (int i = 0; i < need; i++) {
				for (int k = need; k < 8; k++)
					assert_true(!g[k] || thread_asleep(&g[k]->t));
				make(&m, 1);
			}
			getter_gets(g[need], need);
			made(&m, g[need]->ev, need, from);
			free(g[need]);
		}
		aio_none(m.ctx);
	}
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_09_needs_are_met_as_events_come)

/* What a wait that ends has not been given is the next one's. */
static void AIO_GET_09_a_wait_that_ends_takes_what_there_is(enum source source)
{
	struct maker m = maker_new(source, 62);
	struct sigaction old = handle(SIGUSR1, 0);
	struct getter *g[2];
	struct io_event ev[4];
	long total;

	if (takes_early()) {
		assert_ok(sigaction(SIGUSR1, &old, NULL));
		maker_free(&m);
		SKIP("kernels before 6.8 take earlier");
	}
	for (int round = 0; round < 3; round++) {
		uint64_t from = m.next;

		for (int i = 0; i < 2; i++)
			g[i] = getter_new(m.ctx, 5, 8, -1);
		make(&m, 3);
		assert_true(getter_sleeps(g[0]));
		assert_int_equal(pthread_kill(g[0]->t.id, SIGUSR1), 0);
		getter_gets(g[0], 3);
		made(&m, g[0]->ev, 3, from);
		assert_true(getter_sleeps(g[1]));
		make(&m, 4);
		assert_true(getter_sleeps(g[1]));
		total = aio_poll_events(m.ctx, ev, 1);
		assert_int_equal(total, 1);
		made(&m, ev, 1, from + 3);
		make(&m, 2);
		getter_gets(g[1], 5);
		made(&m, g[1]->ev, 5, from + 4);
		free(g[0]);
		free(g[1]);
		aio_none(m.ctx);
	}
	assert_ok(sigaction(SIGUSR1, &old, NULL));
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_09_a_wait_that_ends_takes_what_there_is)

/* --- order ---------------------------------------------------------------------------------- */

static void AIO_GET_10_the_order_of_the_ring(enum source source)
{
	static const long portions[] = {1, 9, 3, 25, 2, 17};
	struct maker m = maker_new(source, 62);
	struct io_event ev[64];
	uint64_t taken = 0;

	for (int round = 0; round < 40; round++) {
		long n;

		while (m.next - taken < 40)
			make(&m, 1);
		n = portions[round % 6];
		assert_int_equal(aio_getevents(m.ctx, n, n, ev, NULL), n);
		made(&m, ev, n, taken);
		taken += (uint64_t)n;
	}
	maker_free(&m);
}
EACH_SOURCE(AIO_GET_10_the_order_of_the_ring)

/* Files and polls that complete in turn. */
static void AIO_GET_10_one_order_over_all_kinds(void **state)
{
	struct maker m = maker_new(SOURCE_FILE, 62);
	struct io_event ev[64];
	uint64_t from = 0;

	(void)state;
	for (int round = 0; round < 30; round++) {
		for (int i = 0; i < 20; i++) {
			m.source = (enum source)((i * 5 + round) % 7 % 3);
			make(&m, 1);
		}
		aio_take(m.ctx, ev, 20);
		for (int i = 0; i < 20; i++)
			assert_true(ev[i].data == from + (uint64_t)i);
		from += 20;
	}
	maker_free(&m);
}

/* --- the end of the context ----------------------------------------------------------------- */

static void AIO_GET_11_destroy_ends_the_waits(void **state)
{
	static const int timeouts[] = {-1, 3600 * 1000, -1, 3600 * 1000};

	(void)state;
	for (int waiters = 1; waiters < 5; waiters++) {
		aio_context_t ctx = aio_new(4);
		struct getter *g[4];

		for (int i = 0; i < waiters; i++)
			g[i] = getter_new(ctx, i % 2 + 1, 4, timeouts[i]);
		aio_free(ctx);
		for (int i = 0; i < waiters; i++) {
			getter_fails(g[i], EINVAL);
			free(g[i]);
		}
	}
}

static void AIO_GET_11_with_some_events_their_number_is_returned(enum source source)
{
	for (int late = 0; late < 2; late++) {
		struct maker m = maker_new(source, 8);
		struct getter *g;

		/* In the second round they come during the wait. Who sleeps may leave those. */
		if (!late)
			make(&m, 2);
		g = getter_new(m.ctx, 3, 4, -1);
		if (late) {
			make(&m, 2);
			assert_true(getter_sleeps(g));
		}
		aio_free(m.ctx);
		getter_join(g);
		if (g->n == -1 && late)
			assert_int_equal(g->err, EINVAL);
		else
			assert_int_equal(g->n, 2);
		if (g->n > 0)
			made(&m, g->ev, 2, 0);
		free(g);
		m.ctx = aio_new(1);
		maker_free(&m);
	}
}
EACH_SOURCE(AIO_GET_11_with_some_events_their_number_is_returned)

/* Waits begin while their context is destroyed: each ends, whatever it meets. */
struct late {
	struct test_thread t;
	aio_context_t ctx;
	int go;
	int round;
	const char *wrong;
};

static void *late_main(void *arg)
{
	struct late *l = arg;
	struct io_event ev;
	int seen = 0, go;

	for (;;) {
		while ((go = __atomic_load_n(&l->go, __ATOMIC_ACQUIRE)) == seen)
			sched_yield();
		if (go < 0)
			return NULL;
		seen = go;
		errno = 0;
		if (aio_getevents(l->ctx, 1, 1, &ev, NULL) != -1 || errno != EINVAL)
			l->wrong = "a wait on a context that was destroyed";
		__atomic_store_n(&l->round, seen, __ATOMIC_RELEASE);
	}
}

static void AIO_GET_11_waits_race_with_destroy(void **state)
{
	struct late *l = calloc(2, sizeof(*l));

	(void)state;
	assert_non_null(l);
	for (int i = 0; i < 2; i++)
		thread_start(&l[i].t, late_main, &l[i]);
	for (int round = 1; round <= 60; round++) {
		aio_context_t ctx = aio_new(4);
		int64_t end = now_ms() + SOON_MS;

		for (int i = 0; i < 2; i++) {
			l[i].ctx = ctx;
			__atomic_store_n(&l[i].go, round, __ATOMIC_RELEASE);
		}
		for (volatile int i = 0; i < round * 37 % 2000; i++)
			;
		aio_free(ctx);
		for (int i = 0; i < 2; i++) {
			while (__atomic_load_n(&l[i].round, __ATOMIC_ACQUIRE) != round) {
				assert_true(now_ms() < end);
				sched_yield();
			}
		}
	}
	for (int i = 0; i < 2; i++) {
		__atomic_store_n(&l[i].go, -1, __ATOMIC_RELEASE);
		assert_true(thread_join(&l[i].t, SOON_MS));
		assert_null(l[i].wrong);
	}
	free(l);
}

/* The events go where the time-out is. */
static void AIO_GET_05_the_time_out_is_read_once(void **state)
{
	union {
		struct timespec timeout;
		struct io_event ev[4];
	} memory = {.timeout = {.tv_nsec = 50000000}};
	aio_context_t ctx = aio_new(8);
	struct iocb cb;
	char byte;
	int fd = file_in_memory(8);

	(void)state;
	/* As a time it would be an hour. */
	aio_pread(&cb, fd, &byte, 1, 0)->aio_data = 3600;
	aio_accept1(ctx, &cb);
	assert_int_equal(assert_ok(aio_getevents(ctx, 2, 4, memory.ev, &memory.timeout)), 1);
	assert_int_equal(memory.ev[0].data, 3600);
	close(fd);
	aio_free(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(AIO_GET_01_the_timeout_is_read_first),
		cmocka_unit_test(AIO_GET_01_numbers),
		TEST_EACH_SOURCE(AIO_GET_02_at_least_min_and_as_many_as_there_are_up_to_nr),
		TEST_EACH_SOURCE(AIO_GET_02_waits_until_min_is_reached),
		cmocka_unit_test(AIO_GET_02_AIO_GET_10_waits_for_events_of_all_kinds),
		cmocka_unit_test(AIO_GET_03_min_0_never_sleeps),
		TEST_EACH_SOURCE(AIO_GET_03_nr_0_takes_nothing),
		TEST_EACH_SOURCE(AIO_GET_04_the_timeout),
		TEST_EACH_SOURCE(AIO_GET_04_no_sleep_with_timeout_0),
		TEST_EACH_SOURCE(AIO_GET_04_events_end_a_wait_before_its_time),
		TEST_EACH_SOURCE(AIO_GET_04_the_deadline_stands),
		cmocka_unit_test(AIO_GET_05_the_sum_of_seconds_and_nanoseconds_counts),
		cmocka_unit_test(AIO_GET_05_a_negative_sum_waits_without_limit),
		TEST_EACH_SOURCE(AIO_GET_06_the_timeout_is_not_written),
		cmocka_unit_test(AIO_GET_07_a_signal_ends_a_wait_for_the_first_event),
		TEST_EACH_SOURCE(AIO_GET_07_with_some_events_their_number_is_returned),
		cmocka_unit_test(AIO_GET_07_ignored_and_blocked_signals_end_nothing),
		cmocka_unit_test(AIO_GET_07_AIO_DESTROY_02_waits_left_by_a_jump),
		cmocka_unit_test(AIO_GET_07_AIO_DESTROY_02_a_handler_destroys_the_context),
		cmocka_unit_test(AIO_GET_07_AIO_CTX_02_a_handler_forks),
		cmocka_unit_test(AIO_GET_07_AIO_DESTROY_02_at_the_limit),
		cmocka_unit_test(AIO_GET_07_stop_and_continue_end_a_wait),
		TEST_EACH_SOURCE(AIO_GET_08_nothing_is_consumed_when_events_cannot_be_stored),
		TEST_EACH_SOURCE(AIO_GET_07_what_has_come_is_stored_before_the_handler),
		TEST_EACH_SOURCE(AIO_GET_08_memory_that_can_only_be_read),
		cmocka_unit_test(AIO_GET_08_without_events_the_memory_does_not_matter),
		TEST_EACH_SOURCE(AIO_GET_08_a_sleeper_without_room),
		TEST_EACH_SOURCE(AIO_GET_08_AIO_PGET_02_a_sleeper_without_room_blocks_all),
		TEST_EACH_SOURCE(AIO_GET_08_AIO_GET_07_a_sleeper_without_room_is_interrupted),
		TEST_EACH_SOURCE(AIO_GET_08_earlier_batches_are_returned),
		cmocka_unit_test(AIO_GET_08_a_batch_around_the_end_of_the_ring),
		TEST_EACH_SOURCE(AIO_GET_09_one_event_ends_one_wait),
		TEST_EACH_SOURCE(AIO_GET_09_as_many_events_as_all_need_end_all_waits),
		TEST_EACH_SOURCE(AIO_GET_09_each_waiter_has_its_own_need),
		TEST_EACH_SOURCE(AIO_GET_09_nothing_is_taken_before_all_is_there),
		TEST_EACH_SOURCE(AIO_GET_09_needs_are_met_as_events_come),
		TEST_EACH_SOURCE(AIO_GET_09_a_wait_that_ends_takes_what_there_is),
		TEST_EACH_SOURCE(AIO_GET_09_sleepers_and_a_poller),
		cmocka_unit_test(AIO_GET_09_a_crowd_of_waiters),
		TEST_EACH_SOURCE(AIO_GET_10_the_order_of_the_ring),
		cmocka_unit_test(AIO_GET_10_one_order_over_all_kinds),
		cmocka_unit_test(AIO_GET_11_destroy_ends_the_waits),
		TEST_EACH_SOURCE(AIO_GET_11_with_some_events_their_number_is_returned),
		cmocka_unit_test(AIO_GET_11_waits_race_with_destroy),
		cmocka_unit_test(AIO_GET_05_the_time_out_is_read_once),
	};

	return run_group(tests);
}
