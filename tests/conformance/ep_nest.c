/* SPDX-License-Identifier: MIT */
/* EP-NEST: epolls inside epolls, loops and depth. */
#include "waiting.h"

#define MAX_DEPTH 5

static int try_link(int outer, int inner)
{
	return ep_ctl(outer, EPOLL_CTL_ADD, inner, EPOLLIN, (uint64_t)inner);
}

static void link_ep(int outer, int inner)
{
	assert_ok(try_link(outer, inner));
}

/* Makes n epolls e[0] (top) .. e[n-1] (bottom) where e[i] watches e[i+1]. */
static void chain_open(int *e, int n)
{
	for (int i = 0; i < n; i++)
		e[i] = ep_new();
	for (int i = 0; i + 1 < n; i++)
		link_ep(e[i], e[i + 1]);
}

static void close_all(const int *e, int n)
{
	for (int i = 0; i < n; i++)
		close(e[i]);
}

static bool poll_in(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1 && p.revents == POLLIN;
}

static void EP_NEST_01_readable_while_an_item_is_ready(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int inner = ep_new(), outer = ep_new();

	ep_add(outer, inner, EPOLLIN, 7);
	ep_add(inner, s.fd, EPOLLIN, 1);
	assert_int_equal(ep_count(outer), 0);
	subject_fill(&s);
	assert_true(ep_one(outer, EPOLLIN, 7));
	assert_true(poll_in(outer));
	assert_true(ep_one(inner, EPOLLIN, 1));
	assert_true(ep_one(outer, EPOLLIN, 7));
	subject_drain(&s);
	assert_int_equal(ep_count(outer), 0);
	assert_false(poll_in(outer));
	subject_close(&s);
	close(inner);
	close(outer);
}

static void EP_NEST_01_reports_in_and_rdnorm(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int inner = ep_new(), outer = ep_new();

	ep_add(outer, inner, EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLPRI | EPOLLRDHUP, 7);
	ep_add(inner, s.fd, EPOLLIN, 1);
	subject_fill(&s);
	assert_true(ep_one(outer, EPOLLIN | EPOLLRDNORM, 7));
	subject_close(&s);
	close(inner);
	close(outer);
}

static void EP_NEST_01_queued_but_stale_item_is_not_readable(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int inner = ep_new(), outer = ep_new();

	ep_add(outer, inner, EPOLLIN, 7);
	ep_add(inner, s.fd, EPOLLIN, 1);
	subject_fill(&s);
	subject_drain(&s);
	assert_int_equal(ep_count(outer), 0);
	assert_int_equal(ep_count(inner), 0);
	subject_close(&s);
	close(inner);
	close(outer);
}

static void EP_NEST_01_link_added_to_a_ready_inner_fires(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int inner = ep_new(), outer = ep_new();

	ep_add(inner, s.fd, EPOLLIN, 1);
	subject_fill(&s);
	ep_add(outer, inner, EPOLLIN, 7);
	assert_true(ep_one(outer, EPOLLIN, 7));
	subject_close(&s);
	close(inner);
	close(outer);
}

static void EP_NEST_01_sleeper_on_the_outer_wakes(void **state)
{
	struct wset w = wset_open(WSET_OF(state), 0);
	struct waiter t;
	int top = ep_new();

	ep_add(top, w.ep, EPOLLIN, 55);
	for (int i = 0; i < w.nsub; i++) {
		for (int e = 0; e < ENTRIES; e++) {
			waiter_sleep(&t, e, top, -1, NULL);
			subject_fill(&w.sub[i]);
			waiter_collected(&t, 55);
			subject_drain(&w.sub[i]);
			assert_int_equal(ep_count(top), 0);
		}
	}
	close(top);
	wset_close(&w);
}

/* An outer set of an eventfd, a pipe and two inner epolls sees each of them by itself. */
static void EP_NEST_01_outer_over_files_and_epolls(void **state)
{
	struct subject s[4] = {subject_new(KIND_EVENTFD), subject_new(KIND_PIPE),
			       subject_new(KIND_EVENTFD), subject_new(KIND_PIPE)};
	int a = ep_new(), b = ep_new(), outer = ep_new();

	(void)state;
	ep_add(a, s[2].fd, EPOLLIN, 1);
	ep_add(b, s[3].fd, EPOLLIN, 1);
	ep_add(outer, s[0].fd, EPOLLIN, 10);
	ep_add(outer, s[1].fd, EPOLLIN, 11);
	ep_add(outer, a, EPOLLIN, 12);
	ep_add(outer, b, EPOLLIN, 13);
	for (int i = 0; i < 4; i++) {
		subject_fill(&s[i]);
		assert_true(ep_one(outer, EPOLLIN, 10 + (uint64_t)i));
		subject_drain(&s[i]);
	}
	for (int i = 0; i < 4; i++)
		subject_fill(&s[i]);
	assert_int_equal(ep_count(outer), 4);
	for (int i = 0; i < 4; i++)
		subject_close(&s[i]);
	assert_int_equal(ep_count(outer), 0);
	close(a);
	close(b);
	close(outer);
}

static void EP_NEST_02_cycles_give_eloop(void **state)
{
	int e[MAX_DEPTH], d;

	(void)state;
	for (int n = 2; n <= MAX_DEPTH; n++) {
		chain_open(e, n);
		assert_errno(try_link(e[n - 1], e[0]), ELOOP);
		/* A duplicate of the descriptor names the same epoll. */
		d = (int)assert_ok(dup(e[0]));
		assert_errno(try_link(e[n - 1], d), ELOOP);
		close(d);
		d = (int)assert_ok(dup(e[n - 1]));
		assert_errno(try_link(d, e[0]), ELOOP);
		close(d);
		close_all(e, n);
	}
}

static void EP_NEST_02_cycle_with_files_in_the_sets(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int e[3];

	chain_open(e, 3);
	for (int i = 0; i < 3; i++)
		ep_add(e[i], s.fd, EPOLLIN, 1);
	assert_errno(try_link(e[2], e[0]), ELOOP);
	assert_errno(try_link(e[1], e[0]), ELOOP);
	subject_close(&s);
	close_all(e, 3);
}

static void EP_NEST_02_link_may_be_turned_round_after_del(void **state)
{
	int a = ep_new(), b = ep_new();

	(void)state;
	link_ep(a, b);
	assert_errno(try_link(b, a), ELOOP);
	ep_del(a, b);
	link_ep(b, a);
	assert_errno(try_link(a, b), ELOOP);
	close(a);
	/* Closing the epoll has taken the link away as well. */
	a = ep_new();
	link_ep(a, b);
	close(a);
	close(b);
}

static void EP_NEST_02_diamond_is_not_a_cycle(void **state)
{
	int e[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		e[i] = ep_new();
	link_ep(e[0], e[1]);
	link_ep(e[0], e[2]);
	link_ep(e[1], e[3]);
	link_ep(e[2], e[3]);
	link_ep(e[1], e[2]);
	assert_errno(try_link(e[2], e[1]), ELOOP);
	assert_errno(try_link(e[3], e[0]), ELOOP);
	close_all(e, 4);
}

static void EP_NEST_03_five_levels_work(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	struct waiter t;
	int e[MAX_DEPTH];

	chain_open(e, MAX_DEPTH);
	ep_add(e[MAX_DEPTH - 1], s.fd, EPOLLIN, 99);
	assert_int_equal(ep_count(e[0]), 0);
	waiter_sleep(&t, BY_WAIT, e[0], -1, NULL);
	subject_fill(&s);
	waiter_collected(&t, (uint64_t)e[1]);
	for (int i = 0; i + 1 < MAX_DEPTH; i++)
		assert_true(ep_one(e[i], EPOLLIN, (uint64_t)e[i + 1]));
	assert_true(ep_one(e[MAX_DEPTH - 1], EPOLLIN, 99));
	subject_drain(&s);
	for (int i = 0; i < MAX_DEPTH; i++)
		assert_int_equal(ep_count(e[i]), 0);
	subject_close(&s);
	close_all(e, MAX_DEPTH);
}

static void EP_NEST_03_sixth_level_gives_eloop(void **state)
{
	int e[MAX_DEPTH], x = ep_new();

	(void)state;
	chain_open(e, MAX_DEPTH);
	assert_errno(try_link(x, e[0]), ELOOP);
	assert_errno(try_link(e[MAX_DEPTH - 1], x), ELOOP);
	/* A side branch is measured by the chain on which it lies. */
	link_ep(x, e[1]);
	ep_del(x, e[1]);
	link_ep(e[MAX_DEPTH - 2], x);
	close(x);
	close_all(e, MAX_DEPTH);
}

/* The longest chain counts, not the one found first. */
static void EP_NEST_03_longest_chain_counts(void **state)
{
	int e[4], f[2], a = ep_new(), b = ep_new(), c = ep_new();

	(void)state;
	chain_open(e, 4);
	chain_open(f, 2);
	link_ep(a, f[0]);
	link_ep(a, e[0]);
	assert_errno(try_link(b, a), ELOOP);
	ep_del(a, e[0]);
	/* c, b, a, f0, f1 make five. */
	link_ep(b, a);
	link_ep(c, b);
	assert_errno(try_link(f[1], e[3]), ELOOP);
	ep_del(b, a);
	link_ep(f[1], e[3]);
	close_all(e, 4);
	close_all(f, 2);
	close(a);
	close(b);
	close(c);
}

static void EP_NEST_04_wrapping_outwards(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int e[MAX_DEPTH + 1], r;

	for (int i = 0; i <= MAX_DEPTH; i++)
		e[i] = ep_new();
	ep_add(e[0], s.fd, EPOLLIN, 1);
	for (int i = 1; i < MAX_DEPTH; i++)
		link_ep(e[i], e[i - 1]);
	errno = 0;
	r = try_link(e[MAX_DEPTH], e[MAX_DEPTH - 1]);
	assert_int_equal(r, -1);
	/* Kernels that count only downwards refuse by the path check instead. */
	if (errno != EINVAL)
		assert_int_equal(errno, ELOOP);
	subject_close(&s);
	close_all(e, MAX_DEPTH + 1);
}

static void EP_NEST_04_building_inwards(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int e[MAX_DEPTH + 1];

	for (int i = 0; i <= MAX_DEPTH; i++)
		e[i] = ep_new();
	for (int i = 1; i < MAX_DEPTH; i++)
		link_ep(e[i - 1], e[i]);
	ep_add(e[MAX_DEPTH - 1], s.fd, EPOLLIN, 1);
	assert_errno(try_link(e[MAX_DEPTH - 1], e[MAX_DEPTH]), ELOOP);
	ep_add(e[MAX_DEPTH], s.fd, EPOLLIN, 1);
	assert_errno(try_link(e[MAX_DEPTH - 1], e[MAX_DEPTH]), ELOOP);
	subject_close(&s);
	close_all(e, MAX_DEPTH + 1);
}

static void EP_NEST_04_joining_two_chains(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int a[3], b[3];

	chain_open(a, 3);
	chain_open(b, 3);
	assert_errno(try_link(a[2], b[0]), ELOOP);
	ep_add(b[2], s.fd, EPOLLIN, 1);
	assert_errno(try_link(a[2], b[0]), ELOOP);
	/* Two above and three below make five. */
	link_ep(a[1], b[0]);
	subject_fill(&s);
	assert_true(ep_one(a[0], EPOLLIN, (uint64_t)a[1]));
	ep_del(a[1], b[0]);
	/* Three above and two below as well. */
	link_ep(a[2], b[1]);
	assert_true(ep_one(a[0], EPOLLIN, (uint64_t)a[1]));
	subject_close(&s);
	close_all(a, 3);
	close_all(b, 3);
}

static void EP_NEST_05_files_are_not_a_level(void **state)
{
	struct subject s = subject_new(KIND_OF(state)), late = subject_new(KIND_OF(state));
	int e[MAX_DEPTH];

	for (int i = 0; i < MAX_DEPTH; i++)
		e[i] = ep_new();
	ep_add(e[MAX_DEPTH - 1], s.fd, EPOLLIN, 1);
	for (int i = MAX_DEPTH - 1; i > 0; i--)
		link_ep(e[i - 1], e[i]);
	ep_add(e[MAX_DEPTH - 1], late.fd, EPOLLIN, 2);
	subject_fill(&late);
	assert_true(ep_one(e[0], EPOLLIN, (uint64_t)e[1]));
	assert_true(ep_one(e[MAX_DEPTH - 1], EPOLLIN, 2));
	subject_close(&s);
	subject_close(&late);
	close_all(e, MAX_DEPTH);
}

static void EP_NEST_06_present_link_gives_eexist(void **state)
{
	int e[MAX_DEPTH], d;

	(void)state;
	chain_open(e, MAX_DEPTH);
	for (int i = 0; i + 1 < MAX_DEPTH; i++)
		assert_errno(try_link(e[i], e[i + 1]), EEXIST);
	/* Under another number the same link is legal, as an item of its own. */
	d = (int)assert_ok(dup(e[1]));
	link_ep(e[0], d);
	assert_errno(try_link(e[0], d), EEXIST);
	close(d);
	close_all(e, MAX_DEPTH);
}

static void EP_NEST_07_mod_and_del_never_fail(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int e[MAX_DEPTH];

	chain_open(e, MAX_DEPTH);
	ep_add(e[MAX_DEPTH - 1], s.fd, EPOLLIN, 1);
	subject_fill(&s);
	for (int i = 0; i + 1 < MAX_DEPTH; i++) {
		ep_mod(e[i], e[i + 1], EPOLLIN | EPOLLET, 40 + (uint64_t)i);
		assert_true(ep_one(e[i], EPOLLIN, 40 + (uint64_t)i));
		ep_mod(e[i], e[i + 1], 0, 0);
		assert_int_equal(ep_count(e[i]), 0);
	}
	for (int i = 0; i + 1 < MAX_DEPTH; i++)
		ep_del(e[i], e[i + 1]);
	assert_true(ep_one(e[MAX_DEPTH - 1], EPOLLIN, 1));
	subject_close(&s);
	close_all(e, MAX_DEPTH);
}

/* Threads that each make one link at the same moment. */
struct racer {
	struct test_thread t;
	pthread_barrier_t *go;
	int outer, inner;
	int ret, err;
};

static void *racer_main(void *arg)
{
	struct racer *r = arg;

	pthread_barrier_wait(r->go);
	errno = 0;
	r->ret = try_link(r->outer, r->inner);
	r->err = errno;
	return NULL;
}

/* Of n links only n - 1 are legal together; makes them all at once. */
static void race_links(struct racer *r, int n)
{
	pthread_barrier_t go;
	int ok = 0, refused = 0;

	pthread_barrier_init(&go, NULL, (unsigned int)n);
	for (int i = 0; i < n; i++) {
		r[i].go = &go;
		thread_start(&r[i].t, racer_main, &r[i]);
	}
	for (int i = 0; i < n; i++) {
		assert_true(thread_join(&r[i].t, SOON_MS));
		ok += r[i].ret == 0;
		refused += r[i].ret == -1 && r[i].err == ELOOP;
	}
	assert_int_equal(ok, n - 1);
	assert_int_equal(refused, 1);
	pthread_barrier_destroy(&go);
}

static void EP_NEST_08_two_threads_cannot_close_a_loop(void **state)
{
	(void)state;
	for (int round = 0; round < 200; round++) {
		int a = ep_new(), b = ep_new();
		struct racer r[2] = {{.outer = a, .inner = b}, {.outer = b, .inner = a}};

		race_links(r, 2);
		close(a);
		close(b);
	}
}

static void EP_NEST_08_three_threads_cannot_close_a_loop(void **state)
{
	(void)state;
	for (int round = 0; round < 150; round++) {
		int e[3] = {ep_new(), ep_new(), ep_new()};
		struct racer r[3];

		for (int i = 0; i < 3; i++) {
			r[i].outer = e[i];
			r[i].inner = e[(i + 1) % 3];
		}
		race_links(r, 3);
		close_all(e, 3);
	}
}

/* Each of two links is legal, both together would make six levels. */
static void EP_NEST_08_two_threads_cannot_exceed_the_depth(void **state)
{
	(void)state;
	for (int round = 0; round < 150; round++) {
		int a[2], b[2], c[2];
		struct racer r[2];

		chain_open(a, 2);
		chain_open(b, 2);
		chain_open(c, 2);
		r[0].outer = a[1];
		r[0].inner = b[0];
		r[1].outer = b[1];
		r[1].inner = c[0];
		race_links(r, 2);
		close_all(a, 2);
		close_all(b, 2);
		close_all(c, 2);
	}
}

static void EP_NEST_09_refused_link_is_not_there(void **state)
{
	struct subject s = subject_new(KIND_OF(state));
	int e[MAX_DEPTH], x = ep_new();

	chain_open(e, MAX_DEPTH);
	ep_add(e[0], s.fd, EPOLLIN, 1);
	ep_add(x, s.fd, EPOLLIN, 2);
	assert_errno(try_link(e[MAX_DEPTH - 1], e[0]), ELOOP);
	assert_errno(try_link(x, e[0]), ELOOP);
	assert_errno(try_link(e[MAX_DEPTH - 1], x), ELOOP);
	assert_errno(epoll_ctl(e[MAX_DEPTH - 1], EPOLL_CTL_DEL, e[0], NULL), ENOENT);
	assert_errno(epoll_ctl(x, EPOLL_CTL_DEL, e[0], NULL), ENOENT);
	assert_errno(ep_ctl(e[MAX_DEPTH - 1], EPOLL_CTL_MOD, x, EPOLLIN, 0), ENOENT);
	subject_fill(&s);
	assert_true(ep_one(x, EPOLLIN, 2));
	assert_true(ep_one(e[0], EPOLLIN, 1));
	assert_int_equal(ep_count(e[MAX_DEPTH - 1]), 0);
	/* Every link that was legal before still is. */
	ep_del(e[0], e[1]);
	link_ep(x, e[1]);
	subject_close(&s);
	close(x);
	close_all(e, MAX_DEPTH);
}

int main(void)
{
	static const struct CMUnitTest ep_nest[] = {
		EACH_KIND(EP_NEST_01_readable_while_an_item_is_ready),
		EACH_KIND(EP_NEST_01_reports_in_and_rdnorm),
		EACH_KIND(EP_NEST_01_queued_but_stale_item_is_not_readable),
		EACH_KIND(EP_NEST_01_link_added_to_a_ready_inner_fires),
		EACH_WSET(EP_NEST_01_sleeper_on_the_outer_wakes),
		cmocka_unit_test(EP_NEST_01_outer_over_files_and_epolls),
		cmocka_unit_test(EP_NEST_02_cycles_give_eloop),
		EACH_KIND(EP_NEST_02_cycle_with_files_in_the_sets),
		cmocka_unit_test(EP_NEST_02_link_may_be_turned_round_after_del),
		cmocka_unit_test(EP_NEST_02_diamond_is_not_a_cycle),
		EACH_KIND(EP_NEST_03_five_levels_work),
		cmocka_unit_test(EP_NEST_03_sixth_level_gives_eloop),
		cmocka_unit_test(EP_NEST_03_longest_chain_counts),
		EACH_KIND(EP_NEST_04_wrapping_outwards),
		EACH_KIND(EP_NEST_04_building_inwards),
		EACH_KIND(EP_NEST_04_joining_two_chains),
		EACH_KIND(EP_NEST_05_files_are_not_a_level),
		cmocka_unit_test(EP_NEST_06_present_link_gives_eexist),
		EACH_KIND(EP_NEST_07_mod_and_del_never_fail),
		cmocka_unit_test(EP_NEST_08_two_threads_cannot_close_a_loop),
		cmocka_unit_test(EP_NEST_08_three_threads_cannot_close_a_loop),
		cmocka_unit_test(EP_NEST_08_two_threads_cannot_exceed_the_depth),
		EACH_KIND(EP_NEST_09_refused_link_is_not_there),
	};

	return run_group(ep_nest);
}
