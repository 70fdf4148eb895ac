/* SPDX-License-Identifier: MIT */
/*
 * One file in the epolls of many threads: what each of them adds, finds and deletes is its own,
 * while the index beside the file's list is made, grows and goes under all of them.
 */
#include "epoll/engine.h"

#include "torture.h"

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

#define FEW_THREADS 4
#define FEW_KEYS 8

static unsigned long told, indexes;

/* A wake of its own finds all that this thread has there, whatever the others change. */
static void few_told(struct pollux_ep *ep, const bool *there)
{
	struct epoll_event ev[4 * FEW_KEYS];
	bool got[FEW_KEYS] = {false};
	int n;

	pollux_file_wake(&file->file, EPOLLIN);
	n = pollux_ep_wait(ep, ev, 4 * FEW_KEYS, 0);
	check(n >= 0);
	for (int i = 0; i < n; i++)
		got[ev[i].data.u64] = true;
	check(!memcmp(got, there, sizeof(got)));
	atomic_add(&told, 1);
}

static void few_changer(struct thread *t)
{
	struct pollux_ep *ep = ep_new();
	bool there[FEW_KEYS] = {false};
	uint32_t seed = (uint32_t)(uintptr_t)t->arg;

	while (!stopping()) {
		uint32_t r = rnd(&seed);
		int k = (int)(r % FEW_KEYS);

		if (r & 64) {
			check(ep_ctl(ep, EPOLL_CTL_ADD, &file->file, k,
				     EPOLLIN | (r & 128 ? EPOLLEXCLUSIVE : EPOLLET),
				     (uint64_t)k) == (there[k] ? -EEXIST : 0));
			there[k] = true;
		} else {
			check(ep_del(ep, &file->file, k) == (there[k] ? 0 : -ENOENT));
			there[k] = false;
		}
		atomic_add(&changes, 1);
		if (r & 256)
			few_told(ep, there);
	}
	for (int k = 0; k < FEW_KEYS; k++)
		check(ep_del(ep, &file->file, k) == (there[k] ? 0 : -ENOENT));
	ep_put(ep);
}

static void nobody(struct plx_watch *w, uint32_t key)
{
	(void)w;
	(void)key;
}

/* Those who sleep on the file are in the list, too, and in no index. */
static void few_sleeper(struct thread *t)
{
	(void)t;
	while (!stopping()) {
		for (int tail = 0; tail < 2; tail++) {
			struct plx_watch w = {.call = nobody};

			w.place = tail ? PLX_WATCH_TAIL : PLX_WATCH_POLLER;
			plx_watch_link(&file->file, &w);
			sched_yield();
			plx_watch_unlink(&file->file, &w);
			plx_rcu_synchronize();
		}
		for (int i = 0; i < 50 && !stopping(); i++) {
			atomic_add(&indexes, (unsigned long)has_table());
			sched_yield();
		}
	}
}

/* An index comes and goes all the time. */
static void each_thread_is_told_of_its_own(void **state)
{
	struct thread t[FEW_THREADS + 1];
	int64_t start = now_ns();

	(void)state;
	torture_begin();
	file = obj_new(EPOLLIN);
	changes = 0;
	for (uintptr_t i = 0; i < FEW_THREADS; i++)
		thread_start(&t[i], few_changer, (void *)(i + 1));
	thread_start(&t[FEW_THREADS], few_sleeper, NULL);
	while (torture_until(start, atomic_get(&told) > 100 && atomic_get(&indexes)))
		sched_yield();
	torture_end(t, FEW_THREADS + 1);
	print_message("%lu changes, %lu times told, %lu times an index\n", changes, told, indexes);
	assert_true(told > 0 && indexes > 0);
	assert_int_equal(pollux_ep_watches(), 0);
	assert_false(has_table());
	obj_put(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_thread_finds_its_own),
		TEST(each_thread_is_told_of_its_own),
	};

	return RUN(tests);
}
