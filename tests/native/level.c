/* SPDX-License-Identifier: MIT */
/* A level is ready for what is set, and each set of something new is an edge. */
#include "native.h"

#include <pollux/level.h>
#include <pollux/read.h>

static int freed;

static void level_freed(struct pollux_level *l)
{
	freed++;
	free(l);
}

static void it_is_ready_while_it_is_set(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pollux_level l;

	(void)state;
	pollux_level_init(&l, EPOLLOUT, NULL);
	ep_add(ep, &l.file, 0, EPOLLIN | EPOLLOUT, 'a');
	assert_one(ep, EPOLLOUT, 'a');
	pollux_level_set(&l, EPOLLIN);
	assert_one(ep, EPOLLIN | EPOLLOUT, 'a');
	assert_one(ep, EPOLLIN | EPOLLOUT, 'a');
	pollux_level_clear(&l, EPOLLOUT);
	assert_one(ep, EPOLLIN, 'a');
	pollux_level_clear(&l, UINT32_MAX);
	assert_none(ep);
	assert_int_equal(pollux_file_poll(&l.file, UINT32_MAX), 0);
	pollux_file_put(&l.file);
	pollux_synchronize();
	memset(&l, 0xff, sizeof(l));
	ep_put(ep);
}

static void what_is_new_is_an_edge(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pollux_level *l = malloc(sizeof(*l));

	(void)state;
	assert_non_null(l);
	pollux_level_init(l, 0, level_freed);
	ep_add(ep, &l->file, 0, EPOLLIN | EPOLLPRI | EPOLLET, 'a');
	assert_none(ep);
	pollux_level_set(l, EPOLLIN);
	assert_one(ep, EPOLLIN, 'a');
	/* It is set already. */
	pollux_level_set(l, EPOLLIN);
	assert_none(ep);
	pollux_level_set(l, EPOLLIN | EPOLLPRI);
	assert_one(ep, EPOLLIN | EPOLLPRI, 'a');
	pollux_level_clear(l, EPOLLIN);
	assert_none(ep);
	pollux_level_set(l, EPOLLIN);
	assert_one(ep, EPOLLIN | EPOLLPRI, 'a');
	freed = 0;
	pollux_file_put(&l->file);
	pollux_quiesce();
	assert_int_equal(freed, 1);
	ep_put(ep);
}

static void it_wakes_a_sleeper(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pollux_level l;
	struct waiter *w;

	(void)state;
	pollux_level_init(&l, 0, NULL);
	ep_add(ep, &l.file, 0, EPOLLIN, 'a');
	w = waiter_new(ep, 1);
	pollux_level_set(&l, EPOLLIN);
	waiter_gets(w, 'a');
	pollux_file_put(&l.file);
	pollux_synchronize();
	ep_put(ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(it_is_ready_while_it_is_set),
		TEST(what_is_new_is_an_edge),
		TEST(it_wakes_a_sleeper),
	};

	return RUN(tests);
}
