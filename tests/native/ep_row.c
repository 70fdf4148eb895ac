/* SPDX-License-Identifier: MIT */
/*
 * A file with a few watches in large epolls: its index is a row, which alone has the order of the
 * list (src/epoll/index.c). The list is what it would be without.
 */
#include "epoll/engine.h"

#include "native.h"

#define KEYS 5
#define EPS 3
/* So many have a row; one more, and it is a table. */
#define ROW 7
#define MOST (EPS * KEYS + 2)

static struct pollux_ep *eps[EPS];
static struct obj *rest;

/* What should be in the list, in its order. Entries of items have an epoll and a key. */
struct entry {
	struct plx_watch *sleeper;
	int ep, key;
};

static struct entry model[MOST];
static int nmodel;

static void model_add(struct entry e, bool last)
{
	int at = last ? nmodel : 0;

	memmove(model + at + 1, model + at, (size_t)(nmodel - at) * sizeof(model[0]));
	model[at] = e;
	nmodel++;
}

static int model_find(struct entry e)
{
	for (int i = 0; i < nmodel; i++)
		if (!memcmp(&model[i], &e, sizeof(e)))
			return i;
	return -1;
}

static void model_remove(int i)
{
	nmodel--;
	memmove(model + i, model + i + 1, (size_t)(nmodel - i) * sizeof(model[0]));
}

static void check_list(struct obj *o)
{
	int i = 0;

	for (struct plx_watch *w = o->file.watches; w; w = w->next, i++) {
		assert_uint_in_range(i, 0, nmodel - 1);
		if (model[i].sleeper) {
			assert_ptr_equal(w, model[i].sleeper);
		} else {
			struct plx_epitem *item = plx_watch_item(w);

			assert_true(plx_watch_is_item(w));
			assert_ptr_equal(item->ep, eps[model[i].ep]);
			assert_int_equal(item->key, model[i].key);
		}
	}
	assert_int_equal(i, nmodel);
}

static void nobody(struct plx_watch *w, uint32_t key)
{
	(void)w;
	(void)key;
}

/* A sleeper comes, in front or at the end, or goes. */
static void change_sleeper(struct obj *o, struct plx_watch *w, bool tail)
{
	struct entry e = {.sleeper = w};
	int at = model_find(e);

	if (at >= 0) {
		plx_watch_unlink(&o->file, w);
		model_remove(at);
		return;
	}
	*w = (struct plx_watch){.call = nobody};
	w->place = tail ? PLX_WATCH_TAIL : PLX_WATCH_POLLER;
	plx_watch_link(&o->file, w);
	model_add(e, tail);
}

static void change_item(struct obj *o, struct entry e, bool add, bool exclusive)
{
	int at = model_find(e);

	if (add) {
		assert_int_equal(ep_ctl(eps[e.ep], EPOLL_CTL_ADD, &o->file, e.key,
					EPOLLIN | (exclusive ? EPOLLEXCLUSIVE : 0), 0),
				 at < 0 ? 0 : -EEXIST);
		if (at < 0)
			model_add(e, exclusive);
	} else {
		assert_int_equal(ep_del(eps[e.ep], &o->file, e.key), at < 0 ? -ENOENT : 0);
		if (at >= 0)
			model_remove(at);
	}
}

static void setup_large(void)
{
	rest = obj_new(0);
	for (int e = 0; e < EPS; e++) {
		eps[e] = ep_new();
		/* One of them is small: its lookups make no row, and have to keep it. */
		for (int k = 0; e && k < PLX_INDEX_LARGE; k++)
			ep_add(eps[e], &rest->file, k, EPOLLIN, 0);
	}
}

static void EP_EXC_02_the_list_has_its_order_in_a_row_too(void **state)
{
	static struct plx_watch sleeper[2];
	struct obj *o = obj_new(0);
	uint32_t seed = 3;
	int rows = 0, tables = 0, none = 0;

	(void)state;
	setup_large();
	for (int round = 0; round < 60000; round++) {
		uint32_t r = rnd(&seed);
		/* Phases of none to few, of few, and of few to many. */
		uint32_t adds = (uint32_t[]){5, 8, 10}[round / 500 % 3];
		struct entry e = {.ep = (int)(r >> 8) % EPS, .key = (int)(r >> 16) % KEYS};

		if (r % 64 == 0)
			change_sleeper(o, &sleeper[r >> 6 & 1], r >> 6 & 1);
		else
			change_item(o, e, rnd(&seed) % 16 < adds, r & 1);
		check_list(o);
		if (!o->file.index)
			none++;
		else if (nmodel > ROW)
			tables++;
		else
			rows++;
	}
	assert_true(none > 100 && rows > 100 && tables > 100);
	for (int i = 0; i < 2; i++)
		if (model_find((struct entry){.sleeper = &sleeper[i]}) >= 0)
			change_sleeper(o, &sleeper[i], i);
	while (nmodel)
		change_item(o, model[nmodel - 1], false, false);
	assert_null(o->file.index);
	for (int e = 0; e < EPS; e++)
		ep_put(eps[e]);
	obj_put(rest);
	obj_put(o);
	assert_int_equal(pollux_ep_watches(), 0);
}

/* Either end of what has a row: the file's, and that of an epoll. */
static void EP_KEY_06_what_is_left_in_a_row_goes_with_the_file_or_the_epoll(void **state)
{
	(void)state;
	setup_large();
	for (int n = 3; n <= ROW; n++) {
		struct obj *o = obj_new(0);
		long before = pollux_ep_watches();

		/* By lookups of a large one. */
		for (int i = 0; i < n; i++)
			ep_add(eps[1 + i % 2], &o->file, i, EPOLLIN, 0);
		assert_int_equal(ep_del(eps[1], &o->file, 99), -ENOENT);
		assert_int_equal(o->file.index != NULL, n > PLX_INDEX_FROM_LARGE);
		if (n % 2)
			ep_add(eps[0], &o->file, 0, EPOLLIN | EPOLLEXCLUSIVE, 'x');
		obj_put(o);
		assert_int_equal(pollux_ep_watches(), before);
	}
	for (int n = 4; n <= ROW; n++) {
		struct obj *o = obj_new(EPOLLIN);
		struct pollux_ep *ep = ep_new();

		for (int i = 0; i < n; i++)
			ep_add(i % 2 ? ep : eps[1], &o->file, i, EPOLLIN | EPOLLET, 'a' + i);
		assert_int_equal(ep_del(eps[1], &o->file, 99), -ENOENT);
		ep_put(ep);
		assert_order(eps[1], 16, n > 6 ? "aceg" : n > 4 ? "ace" : "ac");
		obj_put(o);
		assert_none(eps[1]);
	}
	for (int e = 0; e < EPS; e++)
		ep_put(eps[e]);
	obj_put(rest);
	assert_int_equal(pollux_ep_watches(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(EP_EXC_02_the_list_has_its_order_in_a_row_too),
		TEST(EP_KEY_06_what_is_left_in_a_row_goes_with_the_file_or_the_epoll),
	};

	return RUN(tests);
}
