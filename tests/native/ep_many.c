/* SPDX-License-Identifier: MIT */
/*
 * A file with many watches: under many keys in one epoll, in many epolls, and both. The table
 * that lookups go to then (src/epoll/index.c) says what the list says.
 */
#include "epoll/engine.h"

#include "native.h"

#define KEYS 5000
#define EPS 40
#define EP_KEYS 6

static void EP_KEY_01_each_of_many_keys_is_a_registration(void **state)
{
	static int order[KEYS];
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	uint32_t seed = 1;

	(void)state;
	for (int k = 0; k < KEYS; k++) {
		ep_add(ep, &o->file, k, EPOLLIN, (uint64_t)k);
		order[k] = k;
	}
	assert_non_null(o->file.index);
	for (int k = KEYS - 1; k > 0; k--) {
		int other = (int)(rnd(&seed) % (uint32_t)(k + 1)), was = order[k];

		order[k] = order[other];
		order[other] = was;
	}
	for (int i = 0; i < KEYS; i++) {
		int k = order[i];

		assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, &o->file, k, EPOLLIN, 0), -EEXIST);
		ep_mod(ep, &o->file, k, EPOLLOUT, (uint64_t)k);
		assert_int_equal(ep_del(ep, &o->file, k), 0);
		assert_int_equal(ep_del(ep, &o->file, k), -ENOENT);
		assert_int_equal(ep_ctl(ep, EPOLL_CTL_MOD, &o->file, k, EPOLLIN, 0), -ENOENT);
	}
	/* The table goes when few are left. */
	assert_null(o->file.index);
	assert_int_equal(pollux_ep_watches(), 0);
	ep_put(ep);
	obj_put(o);
}

/* One file, a pair of epoll and key for each watch, and a table of what should be. */
static void EP_CTL_09_lookups_among_many_epolls_and_keys(void **state)
{
	struct pollux_ep *ep[EPS];
	bool there[EPS][EP_KEYS] = {{false}};
	struct obj *o = obj_new(0);
	uint32_t seed = 7;
	bool met = false;

	(void)state;
	for (int e = 0; e < EPS; e++)
		ep[e] = ep_new();
	for (int round = 0; round < 40000; round++) {
		uint32_t r = rnd(&seed);
		int e = (int)(r >> 4) % EPS, k = (int)(r >> 16) % EP_KEYS;
		/* Phases in which there are more of them, and fewer. */
		uint32_t adds = round / 4000 % 2 ? 3 : 9, what = rnd(&seed) % 16;
		uint32_t events = EPOLLIN | (r & 1 ? EPOLLEXCLUSIVE : 0);

		if (what < adds) {
			assert_int_equal(ep_ctl(ep[e], EPOLL_CTL_ADD, &o->file, k, events, 0),
					 there[e][k] ? -EEXIST : 0);
			there[e][k] = true;
		} else if (what < 15) {
			assert_int_equal(ep_del(ep[e], &o->file, k), there[e][k] ? 0 : -ENOENT);
			there[e][k] = false;
		} else {
			ep_put(ep[e]);
			ep[e] = ep_new();
			memset(there[e], 0, sizeof(there[e]));
		}
		met |= o->file.index != NULL;
	}
	assert_true(met);
	obj_fire(o, EPOLLIN, 0);
	for (int e = 0; e < EPS; e++) {
		struct epoll_event ev[EP_KEYS + 1];
		int want = 0;

		for (int k = 0; k < EP_KEYS; k++)
			want += there[e][k];
		assert_int_equal(pollux_ep_wait(ep[e], ev, EP_KEYS + 1, 0), want);
	}
	/* The last close finds all that are left. */
	obj_put(o);
	assert_int_equal(pollux_ep_watches(), 0);
	for (int e = 0; e < EPS; e++) {
		assert_none(ep[e]);
		ep_put(ep[e]);
	}
}

/* Plain ones come first, the newest in front; exclusive ones behind, the oldest in front. */
static void EP_EXC_02_the_order_of_watches_that_come_and_go(void **state)
{
	enum { MOST = 24, STEPS = 20000 };
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	/* Keys in the order of the list, and what each is. */
	int list[MOST], n = 0;
	bool exclusive[MOST] = {false}, in[MOST] = {false};
	uint32_t random = 1;

	(void)state;
	for (int step = 0; step < STEPS; step++) {
		struct plx_watch *w;
		int key, at = 0;

		random = random * 1664525 + 1013904223;
		/* Few and many of them in turn: with an index, and without. */
		key = (int)(random >> 16) % (step / 1000 % 2 ? 5 : MOST);
		if (in[key]) {
			assert_int_equal(ep_del(ep, &o->file, key), 0);
			while (list[at] != key)
				at++;
			n--;
			memmove(list + at, list + at + 1, (n - at) * sizeof(list[0]));
		} else {
			exclusive[key] = random >> 30;
			ep_add(ep, &o->file, key, EPOLLIN | (exclusive[key] ? EPOLLEXCLUSIVE : 0),
			       key);
			at = exclusive[key] ? n : 0;
			memmove(list + at + 1, list + at, (n - at) * sizeof(list[0]));
			list[at] = key;
			n++;
		}
		in[key] = !in[key];
		w = o->file.watches;
		for (int i = 0; i < n; i++, w = w->next) {
			assert_non_null(w);
			assert_int_equal(plx_watch_item(w)->key, list[i]);
		}
		assert_null(w);
	}
	ep_put(ep);
	obj_put(o);
}

/* One more costs the same, however many there are: 32 times as many not 1,024 times as much. */
static int64_t exclusive_adds(int n)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	int64_t start = cpu_ns();

	for (int k = 0; k < n; k++)
		ep_add(ep, &o->file, k, EPOLLIN | EPOLLEXCLUSIVE, 0);
	start = cpu_ns() - start;
	obj_put(o);
	ep_put(ep);
	return start;
}

static void EP_EXC_02_many_exclusive_watches_of_one_file(void **state)
{
	bool same = false;

	(void)state;
	/* Other work makes a measurement wrong, but never one of a walk through all of them right.
	 */
	for (int tries = 0; tries < 10 && !same; tries++) {
		int64_t few = exclusive_adds(2000);

		same = exclusive_adds(64000) < 200 * few;
	}
	assert_true(same);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(EP_KEY_01_each_of_many_keys_is_a_registration),
		TEST(EP_CTL_09_lookups_among_many_epolls_and_keys),
		TEST(EP_EXC_02_the_order_of_watches_that_come_and_go),
		TEST(EP_EXC_02_many_exclusive_watches_of_one_file),
	};

	return RUN(tests);
}
