/* SPDX-License-Identifier: MIT */
/*
 * One file in the epolls of many threads: what each of them adds, finds and deletes is its own,
 * while the table beside the file's list is made, grows and goes under all of them.
 */
#include "torture.h"

#include "epoll/engine.h"

#define THREADS 6
#define KEYS 24

static struct obj *file;
static unsigned long changes, wakes;
/* In turn all of them have many, so that the table comes, and all have none, so that it goes. */
static int filling;

static void delete_all(struct pollux_ep *ep, bool *there)
{
	for (int k = 0; k < KEYS; k++) {
		check(ep_del(ep, &file->file, k) == (there[k] ? 0 : -ENOENT));
		there[k] = false;
	}
}

static void changer(struct thread *t)
{
	struct pollux_ep *ep = ep_new();
	bool there[KEYS] = {false};
	uint32_t seed = (uint32_t)(uintptr_t)t->arg;

	while (!stopping()) {
		int k = (int)(rnd(&seed) % KEYS);

		atomic_add(&changes, 1);
		if (!atomic_get(&filling)) {
			delete_all(ep, there);
			sched_yield();
		} else if (rnd(&seed) % 8 < 5) {
			check(ep_ctl(ep, EPOLL_CTL_ADD, &file->file, k, EPOLLIN, 0) ==
			      (there[k] ? -EEXIST : 0));
			there[k] = true;
		} else {
			check(ep_del(ep, &file->file, k) == (there[k] ? 0 : -ENOENT));
			there[k] = false;
		}
	}
	delete_all(ep, there);
	ep_put(ep);
}

static void waker(struct thread *t)
{
	(void)t;
	while (!stopping()) {
		obj_fire(file, EPOLLIN, EPOLLIN);
		atomic_add(&wakes, 1);
	}
}

static bool has_table(void)
{
	return __atomic_load_n(&file->file.index, __ATOMIC_RELAXED) != NULL;
}

static void each_thread_finds_its_own(void **state)
{
	struct thread t[THREADS + 1];
	int64_t start = now_ns();
	unsigned long tables = 0;

	(void)state;
	torture_begin();
	file = obj_new(0);
	filling = 1;
	for (uintptr_t i = 0; i < THREADS; i++)
		thread_start(&t[i], changer, (void *)(i + 1));
	thread_start(&t[THREADS], waker, NULL);
	while (torture_until(start, tables > 0)) {
		check(await(stopping() || has_table()));
		atomic_set(&filling, 0);
		check(await(stopping() || !has_table()));
		atomic_set(&filling, 1);
		tables++;
	}
	torture_end(t, THREADS + 1);
	print_message("%lu changes, %lu wakes, %lu times a table\n", changes, wakes, tables);
	assert_true(tables > 0);
	assert_int_equal(pollux_ep_watches(), 0);
	assert_false(has_table());
	obj_put(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_thread_finds_its_own),
	};

	return RUN(tests);
}
