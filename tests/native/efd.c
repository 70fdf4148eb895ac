/* SPDX-License-Identifier: MIT */
/* The counter: arithmetic, masks, and which watchers hear of what. */
#include "epoll/engine.h"

#include "native.h"

#define TOP (UINT64_MAX - 1)

static uint32_t efd_mask(struct pollux_efd *e)
{
	return pollux_file_poll(pollux_efd_file(e), UINT32_MAX);
}

static void EFD_01_flags(void **state)
{
	struct pollux_efd *e;

	(void)state;
	for (int bit = 1; bit < 31; bit++)
		assert_int_equal(pollux_efd_new(&e, 0, 1 << bit), -EINVAL);
	assert_int_equal(pollux_efd_new(&e, 0, -1), -EINVAL);
}

static void EFD_04_read_takes_all_or_one(void **state)
{
	static const uint64_t start[] = {1,	     5,		 1ull << 20, (1ull << 28) - 1,
					 1ull << 28, 1ull << 40, TOP};

	(void)state;
	for (int i = 0; i < 7; i++) {
		struct pollux_efd *e = efd_new(start[i], 0);
		struct pollux_efd *s = efd_new(start[i], POLLUX_EFD_SEMAPHORE);
		uint64_t v;

		assert_int_equal(pollux_efd_count(e), start[i]);
		assert_int_equal(efd_take(e), start[i]);
		assert_int_equal(pollux_efd_count(e), 0);
		assert_int_equal(pollux_efd_read(e, &v, 0), -EAGAIN);
		assert_int_equal(efd_take(s), 1);
		assert_int_equal(pollux_efd_count(s), start[i] - 1);
		efd_put(e);
		efd_put(s);
	}
}

static void EFD_05_read_of_nothing(void **state)
{
	struct pollux_efd *e = efd_new(0, 0);
	uint64_t v = 77;

	(void)state;
	assert_int_equal(pollux_efd_read(e, &v, 0), -EAGAIN);
	assert_int_equal(v, 77);
	efd_put(e);
}

static void EFD_10_a_write_fits_or_fails(void **state)
{
	/* Around each border between the ways in which the count is kept. */
	static const uint64_t at[] = {0,
				      1,
				      (1ull << 6) - 1,
				      1ull << 6,
				      (1ull << 27) - 1,
				      1ull << 27,
				      (1ull << 28) - 1,
				      1ull << 28,
				      (1ull << 29) - 1,
				      1ull << 29,
				      1ull << 63,
				      TOP - 1,
				      TOP};

	(void)state;
	for (int i = 0; i < 13; i++) {
		for (int k = 0; k < 12; k++) {
			struct pollux_efd *e = efd_new(0, 0);
			bool fits = at[k] <= TOP - at[i];
			uint64_t sum = fits ? at[i] + at[k] : at[i], v = 0;

			assert_int_equal(pollux_efd_write(e, at[i], 0), 0);
			assert_int_equal(pollux_efd_count(e), at[i]);
			assert_int_equal(pollux_efd_write(e, at[k], 0), fits ? 0 : -EAGAIN);
			assert_int_equal(pollux_efd_count(e), sum);
			assert_int_equal(pollux_efd_read(e, &v, 0), sum ? 0 : -EAGAIN);
			assert_int_equal(v, sum);
			/* Small again, but for ever on the slow way. */
			efd_add(e, 3);
			efd_add(e, 0);
			assert_int_equal(efd_take(e), 3);
			efd_put(e);
		}
	}
}

static void EFD_09_the_one_value_that_cannot_be_written(void **state)
{
	struct pollux_efd *e = efd_new(TOP, 0);

	(void)state;
	assert_int_equal(pollux_efd_write(e, UINT64_MAX, 0), -EINVAL);
	assert_int_equal(pollux_efd_write(e, UINT64_MAX, 1), -EINVAL);
	assert_int_equal(pollux_efd_count(e), TOP);
	efd_put(e);
}

static void EFD_11_zero_can_be_written_up_to_the_top(void **state)
{
	struct pollux_efd *e = efd_new(TOP, 0);

	(void)state;
	assert_int_equal(pollux_efd_write(e, 0, 0), 0);
	pollux_efd_signal(e);
	assert_int_equal(pollux_efd_write(e, 0, 0), -EAGAIN);
	efd_put(e);
}

static void EFD_12_masks(void **state)
{
	static const struct {
		uint64_t count;
		uint32_t mask;
	} t[] = {
		{0, EPOLLOUT},
		{1, EPOLLIN | EPOLLOUT},
		{(1ull << 28) - 1, EPOLLIN | EPOLLOUT},
		{1ull << 28, EPOLLIN | EPOLLOUT},
		{TOP - 1, EPOLLIN | EPOLLOUT},
		{TOP, EPOLLIN},
	};

	(void)state;
	for (int i = 0; i < 6; i++) {
		struct pollux_efd *e = efd_new(0, 0);

		efd_add(e, t[i].count);
		assert_int_equal(efd_mask(e), t[i].mask);
		if (t[i].count == TOP) {
			pollux_efd_signal(e);
			assert_int_equal(efd_mask(e), EPOLLIN | EPOLLERR);
		}
		if (t[i].count) {
			(void)efd_take(e);
			assert_int_equal(efd_mask(e), EPOLLOUT);
		}
		efd_put(e);
	}
}

static void EFD_13_who_hears_of_reads_and_writes(void **state)
{
	static const uint64_t base[] = {1, 1ull << 40};

	(void)state;
	for (int big = 0; big < 2; big++) {
		struct pollux_efd *e = efd_new(base[big], POLLUX_EFD_SEMAPHORE);
		struct pollux_ep *in = ep_new(), *out = ep_new();

		ep_add(in, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'i');
		ep_add(out, pollux_efd_file(e), 0, EPOLLOUT | EPOLLET, 'o');
		assert_one(in, EPOLLIN, 'i');
		assert_one(out, EPOLLOUT, 'o');
		efd_add(e, 1);
		assert_one(in, EPOLLIN, 'i');
		assert_none(out);
		efd_add(e, 0);
		assert_one(in, EPOLLIN, 'i');
		assert_none(out);
		(void)efd_take(e);
		assert_none(in);
		assert_one(out, EPOLLOUT, 'o');
		/* What fails tells nobody. */
		assert_int_equal(pollux_efd_write(e, TOP, 0), -EAGAIN);
		assert_none(in);
		assert_none(out);
		ep_put(in);
		ep_put(out);
		efd_put(e);
	}
}

static void EFD_13_a_failed_read_tells_nobody(void **state)
{
	struct pollux_efd *e = efd_new(0, 0);
	struct pollux_ep *ep = ep_new();
	uint64_t v;

	(void)state;
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLOUT | EPOLLET, 'a');
	assert_one(ep, EPOLLOUT, 'a');
	assert_int_equal(pollux_efd_read(e, &v, 0), -EAGAIN);
	assert_none(ep);
	ep_put(ep);
	efd_put(e);
}

static void EFD_14_signals_stop_at_the_top(void **state)
{
	struct pollux_efd *e = efd_new(TOP - 1, 0);
	struct pollux_ep *ep = ep_new(), *none = ep_new();

	(void)state;
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'a');
	ep_add(none, pollux_efd_file(e), 0, 0, 'n');
	assert_one(ep, EPOLLIN, 'a');
	pollux_efd_signal(e);
	assert_one(ep, EPOLLIN, 'a');
	for (int i = 0; i < 3; i++) {
		pollux_efd_signal(e);
		assert_int_equal(pollux_efd_count(e), UINT64_MAX);
		assert_one(ep, EPOLLIN | EPOLLERR, 'a');
		/* The key says IN only (EP-RDY-13). */
		assert_none(none);
	}
	ep_put(ep);
	ep_put(none);
	efd_put(e);
}

static void EFD_15_after_the_overflow(void **state)
{
	struct pollux_efd *e = efd_new(TOP, 0);

	(void)state;
	pollux_efd_signal(e);
	assert_int_equal(efd_take(e), UINT64_MAX);
	assert_int_equal(pollux_efd_count(e), 0);
	pollux_efd_signal(e);
	assert_int_equal(efd_take(e), 1);
	efd_put(e);
}

/* --- blocking ------------------------------------------------------------------------- */

struct blocked {
	struct thread t;
	struct pollux_efd *e;
	uint64_t value;
	int write;
	int r;
};

static void blocked_main(struct thread *t)
{
	struct blocked *b = t->arg;

	b->r = b->write ? pollux_efd_write(b->e, b->value, 1) : pollux_efd_read(b->e, &b->value, 1);
}

static struct blocked *blocked_new(struct pollux_efd *e, int write, uint64_t value)
{
	struct blocked *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	b->e = e;
	b->write = write;
	b->value = value;
	thread_start(&b->t, blocked_main, b);
	assert_true(thread_asleep(&b->t));
	return b;
}

static void EFD_05_a_reader_sleeps_until_there_is_something(void **state)
{
	struct pollux_efd *e = efd_new(0, 0);
	struct blocked *b = blocked_new(e, 0, 0);

	(void)state;
	efd_add(e, 0);
	sleep_ms(QUIET_MS);
	assert_false(thread_done(&b->t));
	efd_add(e, 7);
	thread_join(&b->t);
	assert_int_equal(b->r, 0);
	assert_int_equal(b->value, 7);
	free(b);
	efd_put(e);
}

static bool watched(struct pollux_efd *e)
{
	return __atomic_load_n(&pollux_efd_file(e)->watches, __ATOMIC_ACQUIRE);
}

static void EFD_05_a_reader_that_is_cancelled_leaves(void **state)
{
	struct pollux_efd *e = efd_new(0, 0);
	struct blocked *b = blocked_new(e, 0, 0);
	void *end;

	(void)state;
	assert_true(watched(e));
	assert_int_equal(pthread_cancel(b->t.id), 0);
	assert_int_equal(pthread_join(b->t.id, &end), 0);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	assert_false(watched(e));
	efd_add(e, 3);
	assert_int_equal(efd_take(e), 3);
	free(b);
	efd_put(e);
}

static void EFD_10_a_writer_sleeps_until_it_fits(void **state)
{
	struct pollux_efd *e = efd_new(TOP - 2, POLLUX_EFD_SEMAPHORE);
	struct blocked *b = blocked_new(e, 1, 5);

	(void)state;
	assert_int_equal(efd_take(e), 1);
	assert_int_equal(efd_take(e), 1);
	sleep_ms(QUIET_MS);
	assert_false(thread_done(&b->t));
	assert_int_equal(efd_take(e), 1);
	thread_join(&b->t);
	assert_int_equal(b->r, 0);
	assert_int_equal(pollux_efd_count(e), TOP);
	free(b);
	efd_put(e);
}

static void EFD_16_one_write_satisfies_as_many_as_the_count_allows(void **state)
{
	(void)state;
	for (int sem = 0; sem < 2; sem++) {
		struct pollux_efd *e = efd_new(0, sem ? POLLUX_EFD_SEMAPHORE : 0);
		struct blocked *b[4];
		int done = 0;
		int64_t end = now_ns() + SOON_MS * 1000000ll;

		for (int i = 0; i < 4; i++)
			b[i] = blocked_new(e, 0, 0);
		efd_add(e, 3);
		while (done != (sem ? 3 : 1) && now_ns() < end) {
			sleep_ms(1);
			done = 0;
			for (int i = 0; i < 4; i++)
				done += thread_done(&b[i]->t);
		}
		sleep_ms(QUIET_MS);
		done = 0;
		for (int i = 0; i < 4; i++)
			done += thread_done(&b[i]->t);
		assert_int_equal(done, sem ? 3 : 1);
		for (int i = done; i < 4; i++)
			efd_add(e, 1);
		/* Without semaphore two writes may have met in one reader. */
		for (int i = 0; i < 4; i++) {
			while (!thread_done(&b[i]->t)) {
				efd_add(e, 1);
				sleep_ms(1);
			}
			thread_join(&b[i]->t);
			assert_int_equal(b[i]->r, 0);
			if (sem)
				assert_int_equal(b[i]->value, 1);
			free(b[i]);
		}
		efd_put(e);
	}
}

static void EFD_16_a_blocked_reader_does_not_hide_the_watchers(void **state)
{
	struct pollux_efd *e = efd_new(0, 0);
	struct pollux_ep *ep = ep_new();
	struct blocked *b;

	(void)state;
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'a');
	/* Quiet before the reader comes. */
	efd_add(e, 1);
	efd_add(e, 1);
	assert_int_equal(efd_take(e), 2);
	b = blocked_new(e, 0, 0);
	efd_add(e, 4);
	thread_join(&b->t);
	assert_int_equal(b->value, 4);
	free(b);
	(void)pollux_ep_wait(ep, &(struct epoll_event){0}, 1, 0);
	efd_add(e, 1);
	assert_one(ep, EPOLLIN, 'a');
	ep_put(ep);
	efd_put(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(EFD_01_flags),
		TEST(EFD_04_read_takes_all_or_one),
		TEST(EFD_05_read_of_nothing),
		TEST(EFD_09_the_one_value_that_cannot_be_written),
		TEST(EFD_10_a_write_fits_or_fails),
		TEST(EFD_11_zero_can_be_written_up_to_the_top),
		TEST(EFD_12_masks),
		TEST(EFD_13_who_hears_of_reads_and_writes),
		TEST(EFD_13_a_failed_read_tells_nobody),
		TEST(EFD_14_signals_stop_at_the_top),
		TEST(EFD_15_after_the_overflow),
		TEST(EFD_05_a_reader_sleeps_until_there_is_something),
		TEST(EFD_05_a_reader_that_is_cancelled_leaves),
		TEST(EFD_10_a_writer_sleeps_until_it_fits),
		TEST(EFD_16_one_write_satisfies_as_many_as_the_count_allows),
		TEST(EFD_16_a_blocked_reader_does_not_hide_the_watchers),
	};

	return RUN(tests);
}
