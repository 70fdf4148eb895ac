/* SPDX-License-Identifier: MIT */
/*
 * The ways of taking watches away that bench/history/teardown.c has, each by the same tests: they
 * do the same, whoever closes first, and only the global mutex makes strangers wait.
 */
#include "torture/torture.h"

#include "history/teardown.h"

#define N_EPS 5
#define N_FILES 20

static const struct teardown_algorithm *a;

static int choose(void **state)
{
	a = *state;
	torture_stop = torture_failed = 0;
	points_delay(false);
	assert_int_equal(a->watches(), 0);
	return 0;
}

static int settle(void **state)
{
	(void)state;
	assert_int_equal(a->watches(), 0);
	pollux_quiesce();
	return 0;
}

static struct teardown_ep *ep_made(void)
{
	struct teardown_ep *ep = a->ep_make();

	assert_non_null(ep);
	return ep;
}

static struct teardown_file *file_made(uint64_t count)
{
	struct teardown_file *f = a->file_make(count);

	assert_non_null(f);
	return f;
}

/* What the epoll reports, as a set of the numbers given to add. */
static uint64_t reported(struct teardown_ep *ep)
{
	uint64_t got[64], set = 0;
	unsigned int n = a->collect(ep, got, 64);

	for (unsigned int i = 0; i < n; i++) {
		assert_true(got[i] < 64);
		assert_false(set >> got[i] & 1);
		set |= 1ull << got[i];
	}
	return set;
}

static void add_and_del_find_each_other(void **state)
{
	struct teardown_ep *ep = ep_made(), *other = ep_made();
	struct teardown_file *f = file_made(0);

	(void)state;
	assert_int_equal(a->del(ep, f), -ENOENT);
	assert_int_equal(a->add(ep, f, 1), 0);
	assert_int_equal(a->add(ep, f, 2), -EEXIST);
	assert_int_equal(a->add(other, f, 3), 0);
	assert_int_equal(a->watches(), 2);
	assert_int_equal(a->del(ep, f), 0);
	assert_int_equal(a->del(ep, f), -ENOENT);
	assert_int_equal(a->watches(), 1);
	a->wake(f);
	assert_int_equal(reported(ep), 0);
	assert_int_equal(reported(other), 1 << 3);
	a->file_close(f);
	a->ep_close(ep);
	a->ep_close(other);
}

static void a_ready_file_is_reported_until_it_is_not(void **state)
{
	struct teardown_ep *ep = ep_made();
	struct teardown_file *f = file_made(1), *g = file_made(0);

	(void)state;
	assert_int_equal(a->add(ep, f, 1), 0);
	assert_int_equal(a->add(ep, g, 2), 0);
	assert_int_equal(reported(ep), 1 << 1);
	assert_int_equal(reported(ep), 1 << 1);
	a->wake(g);
	a->wake(g);
	assert_int_equal(reported(ep), 1 << 1 | 1 << 2);
	a->clear(f);
	assert_int_equal(reported(ep), 1 << 2);
	a->clear(g);
	assert_int_equal(reported(ep), 0);
	a->file_close(f);
	a->file_close(g);
	a->ep_close(ep);
}

static void a_closed_file_leaves_every_epoll(void **state)
{
	struct teardown_ep *ep[3] = {ep_made(), ep_made(), ep_made()};
	struct teardown_file *f = file_made(1), *stays = file_made(1);

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(a->add(ep[i], f, 1), 0);
		assert_int_equal(a->add(ep[i], stays, 2), 0);
	}
	a->file_close(f);
	assert_int_equal(a->watches(), 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(reported(ep[i]), 1 << 2);
	a->file_close(stays);
	for (int i = 0; i < 3; i++)
		a->ep_close(ep[i]);
}

static void a_closed_epoll_leaves_every_file(void **state)
{
	struct teardown_ep *ep = ep_made(), *other = ep_made();
	struct teardown_file *f[3] = {file_made(1), file_made(0), file_made(1)};

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(a->add(ep, f[i], i), 0);
		assert_int_equal(a->add(other, f[i], i), 0);
	}
	a->ep_close(ep);
	assert_int_equal(a->watches(), 3);
	a->wake(f[1]);
	assert_int_equal(reported(other), 1 << 0 | 1 << 1 | 1 << 2);
	for (unsigned int i = 0; i < 3; i++)
		a->file_close(f[i]);
	a->ep_close(other);
}

/* Random calls of one thread, beside sets of numbers. */
static void random_calls_do_as_an_oracle_says(void **state)
{
	struct teardown_ep *ep[N_EPS];
	struct teardown_file *f[N_FILES];
	uint64_t watched[N_EPS] = {0}, ready = 0;
	uint32_t seed = 7;
	long count = 0;

	(void)state;
	for (int i = 0; i < N_EPS; i++)
		ep[i] = ep_made();
	for (int i = 0; i < N_FILES; i++)
		f[i] = file_made(0);
	for (int round = 0; round < 20000; round++) {
		unsigned int e = rnd(&seed) % N_EPS, x = rnd(&seed) % N_FILES;
		uint64_t bit = 1ull << x;

		switch (rnd(&seed) % 16) {
		default:
			assert_int_equal(a->add(ep[e], f[x], x), watched[e] & bit ? -EEXIST : 0);
			watched[e] |= bit;
			break;
		case 8 ... 10:
			assert_int_equal(a->del(ep[e], f[x]), watched[e] & bit ? 0 : -ENOENT);
			watched[e] &= ~bit;
			break;
		case 11:
			a->wake(f[x]);
			ready |= bit;
			break;
		case 12:
			a->clear(f[x]);
			ready &= ~bit;
			break;
		case 13:
			a->file_close(f[x]);
			for (int i = 0; i < N_EPS; i++)
				watched[i] &= ~bit;
			ready &= ~bit;
			if (rnd(&seed) % 2)
				ready |= bit;
			f[x] = file_made(ready & bit ? 1 : 0);
			break;
		case 14:
			if (rnd(&seed) % 4)
				break;
			a->ep_close(ep[e]);
			watched[e] = 0;
			ep[e] = ep_made();
			break;
		case 15:
			assert_int_equal(reported(ep[e]), watched[e] & ready);
			break;
		}
		count = 0;
		for (int i = 0; i < N_EPS; i++)
			count += __builtin_popcountll(watched[i]);
		assert_int_equal(a->watches(), count);
	}
	for (int i = 0; i < N_EPS; i++) {
		assert_int_equal(reported(ep[i]), watched[i] & ready);
		a->ep_close(ep[i]);
	}
	for (int i = 0; i < N_FILES; i++)
		a->file_close(f[i]);
}

/* --- closes that meet --------------------------------------------------------------------------
 */

/*
 * In each round three epolls watch four files. Everybody's own: two threads close two of the
 * files, two close two of the epolls, one tells of the third file and takes it out of the third
 * epoll, one collects from that epoll. All these have pairs in common.
 */
enum { CLOSE_F0, CLOSE_F1, CLOSE_E0, CLOSE_E1, TELL, COLLECT, PARTS };

static struct {
	struct meet m;
	struct teardown_ep *ep[3];
	struct teardown_file *f[4];
	unsigned long rounds;
	int quit;
} shared;

static void part(struct thread *t)
{
	uint64_t got[8];
	unsigned int n;

	while (meet(&shared.m) && !atomic_get(&shared.quit)) {
		switch ((intptr_t)t->arg) {
		case CLOSE_F0:
			a->file_close(shared.f[0]);
			break;
		case CLOSE_F1:
			a->file_close(shared.f[1]);
			break;
		case CLOSE_E0:
			a->ep_close(shared.ep[0]);
			break;
		case CLOSE_E1:
			a->ep_close(shared.ep[1]);
			break;
		case TELL:
			a->wake(shared.f[2]);
			check(a->del(shared.ep[2], shared.f[2]) == 0);
			a->wake(shared.f[3]);
			break;
		case COLLECT:
			n = a->collect(shared.ep[2], got, 8);
			for (unsigned int i = 0; i < n; i++)
				check(got[i] < 4);
			break;
		}
		if (!meet(&shared.m))
			break;
	}
}

static void begin_round(void)
{
	for (int i = 0; i < 3; i++)
		shared.ep[i] = ep_made();
	for (unsigned int i = 0; i < 4; i++) {
		shared.f[i] = file_made(i & 1);
		for (int k = 0; k < 3; k++)
			assert_int_equal(a->add(shared.ep[k], shared.f[i], i), 0);
	}
}

static void end_round(void)
{
	/* Only the fourth file in the third epoll is left. */
	check(a->watches() == 1);
	check(reported(shared.ep[2]) == 1 << 3);
	a->file_close(shared.f[2]);
	a->file_close(shared.f[3]);
	check(reported(shared.ep[2]) == 0);
	a->ep_close(shared.ep[2]);
	check(a->watches() == 0);
	shared.rounds++;
}

static void closes_that_meet_remove_each_watch_once(void **state)
{
	struct thread t[PARTS];
	int64_t start = now_ns();

	(void)state;
	torture_begin();
	memset(&shared, 0, sizeof(shared));
	shared.m.n = PARTS + 1;
	for (intptr_t i = 0; i < PARTS; i++)
		thread_start(&t[i], part, (void *)i);
	while (torture_until(start, shared.rounds > 0)) {
		begin_round();
		if (!meet(&shared.m) || !meet(&shared.m))
			break;
		end_round();
	}
	atomic_set(&shared.quit, 1);
	if (!stopping())
		meet(&shared.m);
	torture_end(t, PARTS);
	print_message("%lu rounds\n", shared.rounds);
	assert_true(shared.rounds > 0);
}

/* --- one close is stopped on its way ------------------------------------------------------------
 */

struct closer {
	struct thread t;
	struct gate g;
	const char *point;
	struct teardown_file *f;
	struct teardown_ep *ep;
};

static void closer_main(struct thread *t)
{
	struct closer *c = t->arg;

	if (c->point)
		gate_arm(&c->g, c->point);
	if (c->f)
		a->file_close(c->f);
	else
		a->ep_close(c->ep);
}

static const char *inside_close(void)
{
	return a == &teardown_pollux ? "close_before_remove" : "history_close";
}

/* What the mutex cost: everybody's closes wait for one, related or not. */
static void strangers_wait_for_the_mutex_alone(void **state)
{
	struct teardown_ep *ep[3] = {ep_made(), ep_made(), ep_made()};
	struct closer first = {.point = inside_close(), .f = file_made(1)};
	struct closer file = {.f = file_made(1)}, epoll = {.ep = ep[2]};
	struct teardown_file *unwatched = file_made(1), *watched = file_made(1);

	(void)state;
	assert_int_equal(a->add(ep[0], first.f, 0), 0);
	assert_int_equal(a->add(ep[1], file.f, 1), 0);
	assert_int_equal(a->add(ep[2], watched, 2), 0);
	thread_start(&first.t, closer_main, &first);
	assert_true(gate_reached(&first.g));
	/* Never watched: it has nothing to do with anybody. */
	a->file_close(unwatched);
	thread_start(&file.t, closer_main, &file);
	thread_start(&epoll.t, closer_main, &epoll);
	if (a == &teardown_mutex) {
		assert_true(thread_asleep(&file.t));
		assert_true(thread_asleep(&epoll.t));
		assert_int_equal(a->watches(), 3);
	} else {
		thread_join(&file.t);
		thread_join(&epoll.t);
		assert_int_equal(a->watches(), 1);
	}
	gate_open(&first.g);
	thread_join(&first.t);
	if (a == &teardown_mutex) {
		thread_join(&file.t);
		thread_join(&epoll.t);
	}
	a->file_close(watched);
	a->ep_close(ep[0]);
	a->ep_close(ep[1]);
}

/* The file's close has its reference on the epoll; the epoll's close does all the work meanwhile.
 */
static void an_epoll_closed_under_a_close_is_left_alone(void **state)
{
	struct teardown_ep *ep = ep_made(), *other = ep_made();
	struct closer c = {.point = "history_close_referenced", .f = file_made(1)};

	(void)state;
	assert_int_equal(a->add(other, c.f, 0), 0);
	assert_int_equal(a->add(ep, c.f, 0), 0);
	thread_start(&c.t, closer_main, &c);
	assert_true(gate_reached(&c.g));
	a->ep_close(ep);
	assert_int_equal(a->watches(), 1);
	pollux_quiesce();
	gate_open(&c.g);
	thread_join(&c.t);
	assert_int_equal(a->watches(), 0);
	a->ep_close(other);
}

#define EACH(test, algorithm)                                                                      \
	{                                                                                          \
#test " (" #algorithm ")", test, choose, settle,                                   \
			(void *)(uintptr_t)&teardown_##algorithm                                   \
	}
#define ALL(test) EACH(test, mutex), EACH(test, refcount), EACH(test, pollux)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ALL(add_and_del_find_each_other),
		ALL(a_ready_file_is_reported_until_it_is_not),
		ALL(a_closed_file_leaves_every_epoll),
		ALL(a_closed_epoll_leaves_every_file),
		ALL(random_calls_do_as_an_oracle_says),
		ALL(closes_that_meet_remove_each_watch_once),
		ALL(strangers_wait_for_the_mutex_alone),
		EACH(an_epoll_closed_under_a_close_is_left_alone, refcount),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
