/* SPDX-License-Identifier: MIT */
/*
 * A thread holds the loader's lock while another forks: the child makes its first descriptors all
 * the same, and they work. No rule says so.
 */
#include "waiting.h"

#include <dlfcn.h>
#include <link.h>

static int inside, over;

static int hold(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)info;
	(void)size;
	(void)unused;
	__atomic_store_n(&inside, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	return 1;
}

static void *holds(void *unused)
{
	dl_iterate_phdr(hold, NULL);
	return unused;
}

static int first_descriptors(void *unused)
{
	int ep = epoll_create1(EPOLL_CLOEXEC), fd = eventfd(0, EFD_NONBLOCK);

	(void)unused;
	child_check(ep != -1 && fd != -1);
	child_check(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 7) == 0);
	child_check(ep_count(ep) == 0);
	child_check(write(fd, &(uint64_t){1}, 8) == 8);
	child_check(ep_one(ep, EPOLLIN, 7));
	return 0;
}

static void child_beside_the_lock(void)
{
	struct test_thread t;
	int status;

	inside = over = 0;
	thread_start(&t, holds, NULL);
	while (!__atomic_load_n(&inside, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	status = child_status(first_descriptors, NULL);
	__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
	assert_true(thread_join(&t, 20000));
	assert_int_equal(status, 0);
}

static void FORK_beside_the_lock_of_the_loader(void **state)
{
	(void)state;
	child_beside_the_lock();
}

static void FORK_the_same_with_a_library_loaded_later(void **state)
{
	void *lib;

	(void)state;
	assert_null(dlopen("libresolv.so.2", RTLD_NOW | RTLD_NOLOAD));
	lib = dlopen("libresolv.so.2", RTLD_NOW);
	assert_non_null(lib);
	child_beside_the_lock();
	dlclose(lib);
}

/* Last: then this process has descriptors of its own. */
static void FORK_after_that_the_parent_has_its_first(void **state)
{
	(void)state;
	assert_int_equal(first_descriptors(NULL), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(FORK_beside_the_lock_of_the_loader),
		cmocka_unit_test(FORK_the_same_with_a_library_loaded_later),
		cmocka_unit_test(FORK_after_that_the_parent_has_its_first),
	};

	return run_group(tests);
}
