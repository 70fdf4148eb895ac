/* SPDX-License-Identifier: MIT */
/* Epolls in epolls: loops, depth, and the limits on paths. */
#include "native.h"

#define CHAIN 8

static void chain_new(struct pollux_ep **ep, int n)
{
	for (int i = 0; i < n; i++)
		ep[i] = ep_new();
}

static void chain_put(struct pollux_ep **ep, int n)
{
	for (int i = 0; i < n; i++)
		ep_put(ep[i]);
}

/* The inner one becomes watched by the outer one. */
static int nest(struct pollux_ep *outer, struct pollux_ep *inner, int key)
{
	return ep_ctl(outer, EPOLL_CTL_ADD, pollux_ep_file(inner), key, EPOLLIN, 'e');
}

static void EP_NEST_02_loops_are_refused(void **state)
{
	struct pollux_ep *ep[4];

	(void)state;
	chain_new(ep, 4);
	assert_int_equal(nest(ep[0], ep[1], 0), 0);
	assert_int_equal(nest(ep[1], ep[0], 0), -ELOOP);
	assert_int_equal(nest(ep[1], ep[2], 0), 0);
	assert_int_equal(nest(ep[2], ep[3], 0), 0);
	assert_int_equal(nest(ep[3], ep[0], 0), -ELOOP);
	assert_int_equal(nest(ep[2], ep[0], 0), -ELOOP);
	/* The way out of the loop is open again. */
	assert_int_equal(ep_del(ep[0], pollux_ep_file(ep[1]), 0), 0);
	assert_int_equal(nest(ep[3], ep[0], 0), 0);
	assert_int_equal(nest(ep[0], ep[1], 0), -ELOOP);
	chain_put(ep, 4);
}

static void EP_NEST_03_five_levels_are_allowed(void **state)
{
	(void)state;
	for (int file = 0; file < 2; file++) {
		for (int inwards = 0; inwards < 2; inwards++) {
			struct pollux_ep *ep[6];
			struct obj *o = obj_new(EPOLLIN);

			chain_new(ep, 6);
			if (file)
				ep_add(ep[inwards ? 4 : 0], &o->file, 0, EPOLLIN, 'o');
			for (int i = 0; i < 4; i++)
				assert_int_equal(inwards ? nest(ep[i], ep[i + 1], 0)
							 : nest(ep[i + 1], ep[i], 0),
						 0);
			assert_int_equal(inwards ? nest(ep[4], ep[5], 0) : nest(ep[5], ep[4], 0),
					 -ELOOP);
			if (file)
				assert_one(ep[inwards ? 0 : 4], EPOLLIN, 'e');
			chain_put(ep, 6);
			obj_put(o);
		}
	}
}

static void EP_NEST_04_joining_two_chains(void **state)
{
	struct pollux_ep *a[3], *b[3];

	(void)state;
	chain_new(a, 3);
	chain_new(b, 3);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(nest(a[i], a[i + 1], 0), 0);
		assert_int_equal(nest(b[i], b[i + 1], 0), 0);
	}
	assert_int_equal(nest(a[2], b[0], 0), -ELOOP);
	assert_int_equal(nest(a[2], b[1], 0), 0);
	assert_int_equal(nest(a[2], b[0], 0), -ELOOP);
	chain_put(a, 3);
	chain_put(b, 3);
}

static void EP_NEST_06_the_loop_check_comes_before_the_lookup(void **state)
{
	struct pollux_ep *ep[2];

	(void)state;
	chain_new(ep, 2);
	assert_int_equal(nest(ep[0], ep[1], 0), 0);
	assert_int_equal(nest(ep[0], ep[1], 0), -EEXIST);
	assert_int_equal(nest(ep[1], ep[0], 0), -ELOOP);
	chain_put(ep, 2);
}

static void EP_NEST_07_mod_and_del_do_not_fail_for_depth(void **state)
{
	struct pollux_ep *ep[5];

	(void)state;
	chain_new(ep, 5);
	for (int i = 0; i < 4; i++)
		assert_int_equal(nest(ep[i], ep[i + 1], 0), 0);
	for (int i = 0; i < 4; i++)
		ep_mod(ep[i], pollux_ep_file(ep[i + 1]), 0, EPOLLIN | EPOLLET, 'e');
	for (int i = 0; i < 4; i++)
		assert_int_equal(ep_del(ep[i], pollux_ep_file(ep[i + 1]), 0), 0);
	chain_put(ep, 5);
}

static void EP_NEST_09_a_refusal_has_no_effect(void **state)
{
	struct pollux_ep *ep[CHAIN];
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	chain_new(ep, CHAIN);
	ep_add(ep[0], &o->file, 0, EPOLLIN, 'o');
	for (int i = 0; i < 4; i++)
		assert_int_equal(nest(ep[i + 1], ep[i], 0), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(nest(ep[5], ep[4], 0), -ELOOP);
		assert_none(ep[5]);
		assert_int_equal(ep_del(ep[5], pollux_ep_file(ep[4]), 0), -ENOENT);
	}
	assert_int_equal(pollux_ep_watches(), 5);
	assert_int_equal(nest(ep[5], ep[3], 0), 0);
	assert_one(ep[5], EPOLLIN, 'e');
	chain_put(ep, CHAIN);
	obj_put(o);
}

/* --- paths ------------------------------------------------------------------------- */

/*
 * A chain of `length - 1` epolls over a file; then as many epolls as go on top of
 * it, each of which makes one path of `length`.
 */
static void paths(int length, int limit)
{
	struct pollux_ep *chain[4];
	struct pollux_ep **top = calloc(limit + 1, sizeof(*top));
	struct obj *o = obj_new(EPOLLIN), *other = obj_new(EPOLLIN);

	assert_non_null(top);
	chain_new(chain, length - 1);
	ep_add(chain[0], &o->file, 0, EPOLLIN, 'o');
	for (int i = 0; i + 1 < length - 1; i++)
		assert_int_equal(nest(chain[i + 1], chain[i], 0), 0);
	for (int i = 0; i <= limit; i++) {
		top[i] = ep_new();
		assert_int_equal(nest(top[i], chain[length - 2], 0), i < limit ? 0 : -EINVAL);
	}
	assert_int_equal(ep_del(top[limit], pollux_ep_file(chain[length - 2]), 0), -ENOENT);
	/* EP-PATH-07: each file has its own count. */
	ep_add(chain[0], &other->file, 0, EPOLLIN, 'p');
	/* EP-PATH-08: a place that becomes free can be taken. */
	ep_put(top[0]);
	assert_int_equal(nest(top[limit], chain[length - 2], 0), 0);
	for (int i = 1; i <= limit; i++)
		ep_put(top[i]);
	free(top);
	chain_put(chain, length - 1);
	obj_put(o);
	obj_put(other);
}

static void EP_PATH_01_length_2(void **state)
{
	(void)state;
	paths(2, 500);
}

static void EP_PATH_01_length_3(void **state)
{
	(void)state;
	paths(3, 100);
}

static void EP_PATH_01_length_4(void **state)
{
	(void)state;
	paths(4, 50);
}

static void EP_PATH_01_length_5(void **state)
{
	(void)state;
	paths(5, 10);
}

static void EP_PATH_02_length_1_has_no_limit(void **state)
{
	struct pollux_ep *ep[1500];
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	chain_new(ep, 1500);
	for (int i = 0; i < 1500; i++)
		ep_add(ep[i], &o->file, 0, EPOLLIN | EPOLLET, 'o');
	obj_fire(o, EPOLLIN, EPOLLIN);
	for (int i = 0; i < 1500; i++)
		assert_one(ep[i], EPOLLIN, 'o');
	chain_put(ep, 1500);
	obj_put(o);
}

static void EP_PATH_05_an_empty_epoll_has_no_paths(void **state)
{
	struct pollux_ep *inner = ep_new(), *top[600];
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	chain_new(top, 600);
	for (int i = 0; i < 600; i++)
		assert_int_equal(nest(top[i], inner, 0), 0);
	assert_int_equal(ep_ctl(inner, EPOLL_CTL_ADD, &o->file, 0, EPOLLIN, 'o'), -EINVAL);
	assert_int_equal(ep_del(inner, &o->file, 0), -ENOENT);
	assert_none(top[0]);
	chain_put(top, 100);
	ep_add(inner, &o->file, 0, EPOLLIN, 'o');
	assert_one(top[599], EPOLLIN, 'e');
	chain_put(top + 100, 500);
	ep_put(inner);
	obj_put(o);
}

static void EP_PATH_06_several_items_are_several_paths(void **state)
{
	struct pollux_ep *inner = ep_new(), *outer = ep_new();
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	ep_add(inner, &o->file, 0, EPOLLIN, 'o');
	for (int i = 0; i < 500; i++)
		assert_int_equal(nest(outer, inner, i), 0);
	assert_int_equal(nest(outer, inner, 500), -EINVAL);
	assert_int_equal(ep_del(outer, pollux_ep_file(inner), 77), 0);
	assert_int_equal(nest(outer, inner, 500), 0);
	ep_put(outer);
	ep_put(inner);
	obj_put(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(EP_NEST_02_loops_are_refused),
		TEST(EP_NEST_03_five_levels_are_allowed),
		TEST(EP_NEST_04_joining_two_chains),
		TEST(EP_NEST_06_the_loop_check_comes_before_the_lookup),
		TEST(EP_NEST_07_mod_and_del_do_not_fail_for_depth),
		TEST(EP_NEST_09_a_refusal_has_no_effect),
		TEST(EP_PATH_01_length_2),
		TEST(EP_PATH_01_length_3),
		TEST(EP_PATH_01_length_4),
		TEST(EP_PATH_01_length_5),
		TEST(EP_PATH_02_length_1_has_no_limit),
		TEST(EP_PATH_05_an_empty_epoll_has_no_paths),
		TEST(EP_PATH_06_several_items_are_several_paths),
	};

	return RUN(tests);
}
