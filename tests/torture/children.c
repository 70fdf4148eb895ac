/* SPDX-License-Identifier: MIT */
/*
 * The child of a fork can use what it makes itself, whatever other threads of its parent were
 * about, and whichever fork it was.
 */
#include "rcu/rcu.h"

#include "torture.h"

#include <dlfcn.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <pollux/posix.h>

/* A thread that stands in its registration as a reader. */
static __thread bool registers;
static uint32_t stands, goes;

int pthread_setspecific(pthread_key_t key, const void *value)
{
	static int (*real)(pthread_key_t key, const void *value);

	if (!atomic_get(&real))
		atomic_set(&real, (int (*)(pthread_key_t, const void *))dlsym(
					  RTLD_NEXT, "pthread_setspecific"));
	if (registers) {
		registers = false;
		atomic_set(&stands, 1);
		for (int i = 0; i < 200 && !atomic_get(&goes); i++)
			usleep(1000);
	}
	return atomic_get(&real)(key, value);
}

static void use(struct pollux_ep *ep)
{
	struct epoll_event ev = {.events = EPOLLIN}, out;
	struct pollux_efd *e;

	if (pollux_efd_new(&e, 0, 0) ||
	    pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(e), 0, &ev) ||
	    pollux_efd_write(e, 1, 0) || pollux_ep_wait(ep, &out, 1, 1000000000) != 1)
		abort();
	pollux_file_put(pollux_efd_file(e));
}

static void *use_thread(void *arg)
{
	(void)arg;
	struct pollux_ep *ep;

	if (pollux_ep_new(&ep, NULL))
		abort();
	for (int i = 0; i < 500; i++)
		use(ep);
	pollux_file_put(pollux_ep_file(ep));
	return NULL;
}

static int child(void)
{
	pthread_t t;

	alarm(SOON_MS / 1000);
	if (pthread_create(&t, NULL, use_thread, NULL))
		return 1;
	pthread_join(t, NULL);
	use_thread(NULL);
	pollux_quiesce();
	/* Those of the parent do not count. */
	return pollux_ep_watches() ? 2 : 0;
}

static pid_t fork_by(bool ours)
{
	return ours ? pollux_fork() : fork();
}

static void check_child(bool ours)
{
	pid_t pid = fork_by(ours);

	if (pid == 0)
		_exit(child());
	child_passes(pid);
}

static void churn(struct thread *t)
{
	struct pollux_ep *ep;

	(void)t;
	check(pollux_ep_new(&ep, NULL) == 0);
	while (!stopping())
		use(ep);
	pollux_file_put(pollux_ep_file(ep));
}

static void beside_busy_threads(bool ours)
{
	struct thread t[2];

	torture_begin();
	points_delay(false);
	for (int i = 0; i < 2; i++)
		thread_start(&t[i], churn, NULL);
	usleep(10000);
	for (int64_t start = now_ns(); torture_goes_on(start);)
		check_child(ours);
	torture_end(t, 2);
}

static void register_main(struct thread *t)
{
	struct pollux_efd *e = t->arg;

	registers = true;
	(void)pollux_efd_write(e, 1, 0);
	registers = false;
}

static void beside_a_registration(bool ours)
{
	struct pollux_efd *e;
	struct thread t;

	torture_begin();
	points_delay(false);
	stands = goes = 0;
	assert_int_equal(pollux_efd_new(&e, 0, 0), 0);
	thread_start(&t, register_main, e);
	assert_true(await(atomic_get(&stands)));
	check_child(ours);
	atomic_set(&goes, 1);
	thread_join(&t);
	pollux_file_put(pollux_efd_file(e));
}

static void libc_fork_beside_busy_threads(void **state)
{
	(void)state;
	beside_busy_threads(false);
}

static void pollux_fork_beside_busy_threads(void **state)
{
	(void)state;
	beside_busy_threads(true);
}

static void libc_fork_beside_a_registration(void **state)
{
	(void)state;
	beside_a_registration(false);
}

static void pollux_fork_beside_a_registration(void **state)
{
	(void)state;
	beside_a_registration(true);
}

/* The kernel copies it in order of addresses, and this before what the library writes. */
#define LARGE (64l << 20)
#define LOW 0x10000000l

static void *begins(void *arg)
{
	struct pollux_ep *ep;

	meet(arg);
	if (pollux_ep_new(&ep, NULL))
		abort();
	return NULL;
}

/* In a process that has nothing of ours yet: 1 if the race has been met. */
static int forks_beside_the_beginning(uint32_t us)
{
	struct meet m = {.n = 2};
	pthread_t t;
	int status;
	pid_t pid;

	alarm(SOON_MS / 1000);
	if (pthread_create(&t, NULL, begins, &m))
		return 2;
	meet(&m);
	usleep(us);
	pid = fork();
	if (pid == 0) {
		alarm(SOON_MS / 1000);
		/* It needs a barrier. */
		plx_rcu_confine();
		_exit(points_passed("barrier_anew") != 0);
	}
	pthread_join(t, NULL);
	status = child_wait(pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

/*
 * Such a child may have what says that the process is registered for barriers, and not the
 * registration, which takes ten milliseconds where there are threads.
 */
static void beside_the_beginning(void)
{
	char *large = mmap((void *)LOW, LARGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	unsigned long rounds = 0, met = 0;
	int64_t start = now_ns();
	uint32_t r = 1;

	assert_ptr_equal(large, (void *)LOW);
	assert_int_equal(madvise(large, LARGE, MADV_NOHUGEPAGE), 0);
	memset(large, 1, LARGE);
	for (; torture_until(start, met); rounds++) {
		uint32_t us = rnd(&r) % 20000;
		pid_t pid = fork();
		int status;

		if (pid == 0)
			_exit(forks_beside_the_beginning(us));
		status = child_wait(pid);
		assert_true(WIFEXITED(status));
		assert_uint_in_range(WEXITSTATUS(status), 0, 1);
		met += WEXITSTATUS(status);
	}
	munmap(large, LARGE);
	print_message("%lu rounds, in %lu the child was not registered\n", rounds, met);
	assert_true(met > 0);
}

static void libc_fork_beside_the_beginning(void **state)
{
	(void)state;
#if defined(__SANITIZE_ADDRESS__)
	/* src/rcu/rcu.h */
	print_message("a sanitized build asks for no barriers of membarrier\n");
	skip();
#endif
	if (!(syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0) &
	      MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
		print_message("no membarrier here\n");
		skip();
	}
	beside_the_beginning();
}

/* The same when the POSIX layer has objects, too, and does more around its fork. */
static void with_descriptors(void **state)
{
	int fd = pollux_eventfd(0, 0);

	(void)state;
	assert_true(fd >= 0);
	beside_a_registration(true);
	beside_busy_threads(true);
	assert_int_equal(pollux_close(fd), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(libc_fork_beside_the_beginning),
		cmocka_unit_test(libc_fork_beside_busy_threads),
		cmocka_unit_test(pollux_fork_beside_busy_threads),
		cmocka_unit_test(libc_fork_beside_a_registration),
		cmocka_unit_test(pollux_fork_beside_a_registration),
		cmocka_unit_test(with_descriptors),
	};

#if defined(__SANITIZE_THREAD__)
	fprintf(stderr, "with ThreadSanitizer no child of several threads makes threads\n");
	return 77;
#endif
	return cmocka_run_group_tests(tests, NULL, NULL);
}
