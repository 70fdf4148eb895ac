/* SPDX-License-Identifier: MIT */
/*
 * A thread's first wake and first read section allocate nothing by libc, however many keys the
 * program has made before the library, and what is known of a thread serves another after its end.
 */
#include "native.h"

#include <malloc.h>
#include <sys/mman.h>

#include <pollux/level.h>
#include <pollux/memory.h>
#include <pollux/read.h>

/* libc has memory at hand for 32. */
#define KEYS 40
#define THREADS 2000

static struct pollux_level level;
static int maps;
static size_t more;

static void *map(void *arg, size_t bytes, size_t align)
{
	char *p = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	(void)arg;
	maps++;
	return p == MAP_FAILED ? NULL : p + (-(uintptr_t)p & (align - 1));
}

static void unmap(void *arg, void *p, size_t bytes)
{
	(void)arg;
	munmap(p, bytes);
}

static size_t allocated(void)
{
#ifdef __GLIBC__
	return mallinfo2().uordblks;
#else
	/* musl has all keys at hand. */
	return 0;
#endif
}

static void *wakes(void *unused)
{
	size_t before = allocated();

	pollux_file_wake(&level.file, EPOLLIN);
	/* A wake of what has been told already has no section. */
	pollux_read_lock();
	pollux_read_unlock();
	more += allocated() - before;
	return unused;
}

static void threads(int n)
{
	struct pollux_ep *ep = ep_new();

	pollux_level_init(&level, 0, NULL);
	ep_add(ep, &level.file, 0, EPOLLIN, 'l');
	while (n--) {
		pthread_t t;

		assert_int_equal(pthread_create(&t, NULL, wakes, NULL), 0);
		assert_int_equal(pthread_join(t, NULL), 0);
	}
	ep_put(ep);
	pollux_file_put(&level.file);
}

static void first_wakes_allocate_nothing(void **state)
{
	(void)state;
	threads(4);
	assert_int_equal(more, 0);
}

static void threads_that_have_ended_leave_their_place(void **state)
{
	int before;

	(void)state;
	threads(1000);
	before = maps;
	threads(THREADS);
	assert_int_equal(maps, before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(first_wakes_allocate_nothing),
		TEST(threads_that_have_ended_leave_their_place),
	};
	const struct pollux_memory m = {.size = sizeof(m), .map = map, .unmap = unmap};
	pthread_key_t key;

	for (int i = 0; i < KEYS; i++)
		if (pthread_key_create(&key, NULL))
			return 1;
	if (pollux_memory_ops(&m))
		return 1;
	return RUN(tests);
}
