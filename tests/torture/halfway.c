/* SPDX-License-Identifier: MIT */
/*
 * What a collection looks at for pushes that are half done does not grow with the epoll: a few
 * items, and all of them at most once for several threads that were stopped, whatever is written
 * and collected meanwhile.
 */
#include "torture.h"

#define ITEMS 1000
#define WAITS 20

struct world {
	struct pollux_ep *ep;
	struct pollux_efd *e[ITEMS];
	struct stopped s[ITEMS];
	int stopped;
};

static unsigned long looks(void)
{
	return points_passed("help_look");
}

static void begin(struct world *w, int stopped, uint32_t mode)
{
	w->ep = ep_new();
	w->stopped = stopped;
	for (int i = 0; i < ITEMS; i++) {
		w->e[i] = efd_new(0, 0);
		ep_add(w->ep, pollux_efd_file(w->e[i]), 0, EPOLLIN | mode, i);
	}
	for (int i = 0; i < stopped; i++)
		stopped_start(&w->s[i], "push_before_link", w->e[i], NULL);
}

static void end(struct world *w)
{
	for (int i = 0; i < w->stopped; i++)
		stopped_go(&w->s[i]);
	for (int i = 0; i < ITEMS; i++)
		efd_put(w->e[i]);
	ep_put(w->ep);
}

/* The events of one wait by item, all of those that have been written to; returns the looks. */
static unsigned long wait_for(struct world *w, int first, int n)
{
	unsigned long before = looks();
	struct epoll_event ev[2 * ITEMS];
	bool got[ITEMS] = {false};

	assert_int_equal(pollux_ep_wait(w->ep, ev, 2 * ITEMS, 0), n);
	for (int i = 0; i < n; i++) {
		assert_false(got[ev[i].data.u64]);
		got[ev[i].data.u64] = true;
	}
	for (int i = 0; i < n; i++)
		assert_true(got[first + i]);
	return looks() - before;
}

static void writes_to_items_half_way(int stopped, unsigned long walks)
{
	static const uint32_t mode[] = {0, EPOLLET};

	torture_begin();
	points_delay(false);
	for (int m = 0; m < 2; m++) {
		static struct world w;
		unsigned long sum = 0;

		begin(&w, stopped, mode[m]);
		for (int k = 0; k < WAITS; k++) {
			for (int i = 0; i < stopped; i++)
				efd_add(w.e[i], 1);
			if (k % 2)
				assert_true(pollux_file_poll(pollux_ep_file(w.ep), UINT32_MAX));
			sum += wait_for(&w, 0, stopped);
		}
		assert_in_range(sum, 1, walks * ITEMS + 2ul * WAITS * (unsigned int)stopped);
		/* A poll beside those that are wanted. */
		efd_add(w.e[0], 1);
		sum = looks();
		assert_true(pollux_file_poll(pollux_ep_file(w.ep), UINT32_MAX));
		assert_in_range(looks() - sum, 1, (unsigned int)stopped);
		/* Once they have gone on, nothing is left to be looked at. */
		for (int i = 0; i < stopped; i++)
			stopped_go(&w.s[i]);
		w.stopped = 0;
		(void)wait_for(&w, 0, stopped);
		(void)wait_for(&w, 0, m ? 0 : stopped);
		for (int i = 0; i < stopped; i++)
			efd_add(w.e[i], 1);
		assert_int_equal(wait_for(&w, 0, stopped), 0);
		end(&w);
	}
}

static void few_stopped(void **state)
{
	(void)state;
	writes_to_items_half_way(2, 0);
}

static void more_stopped_than_there_are_slots(void **state)
{
	(void)state;
	writes_to_items_half_way(20, 1);
}

/* What is removed meanwhile is not looked at, wherever it stands among the others. */
static void removed_half_way(void **state)
{
	static struct world w;

	(void)state;
	torture_begin();
	points_delay(false);
	for (int gone = 0; gone < 3; gone++) {
		begin(&w, 3, EPOLLET);
		for (int i = 0; i < 3; i++)
			efd_add(w.e[i], 1);
		(void)wait_for(&w, 0, 3);
		stopped_go(&w.s[gone]);
		assert_int_equal(ep_del(w.ep, pollux_efd_file(w.e[gone]), 0), 0);
		for (int i = 0; i < 3; i++) {
			if (i == gone)
				continue;
			efd_add(w.e[i], 1);
			assert_one(w.ep, EPOLLIN, (uint64_t)i);
		}
		for (int i = 0; i < 3; i++)
			if (i != gone)
				stopped_go(&w.s[i]);
		w.stopped = 0;
		end(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(few_stopped),
		TEST(more_stopped_than_there_are_slots),
		TEST(removed_half_way),
	};

	return RUN(tests);
}
