/* SPDX-License-Identifier: MIT */
/*
 * A thread that ends polls and waits once more, and sleeps, in the destructors of its keys, in
 * whatever round of them (pthread_key_create(3)). Nothing is left of it.
 */
#include "waiting.h"

/* ThreadSanitizer itself ends a thread in the last round; no lock is to be taken after that. */
#if defined(__SANITIZE_THREAD__)
#define ROUNDS 1
#else
#define ROUNDS 3
#endif
#define THREADS 100
/* More than a wait has room for on its stack. */
#define EVENTS 1024

/* What waits to be freed. */
#define PAGES 32

static pthread_key_t key;
static struct subject subject, other;
static int ep, file, done;
static aio_context_t ctx;

static bool polls(void)
{
	struct pollfd p[2] = {{.fd = subject.fd, .events = POLLIN}, {.fd = subject.fd}};

	return poll(p, 2, 1) == 0;
}

/* In an epoll with files of both sides. */
static bool waits(void)
{
	struct epoll_event ev[EVENTS];

	return epoll_wait(ep, ev, EVENTS, 1) == 0;
}

static bool looks(void)
{
	struct epoll_event ev[EVENTS];

	return epoll_wait(ep, ev, EVENTS, 0) == 0;
}

static bool reads(void)
{
	char byte;
	struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PREAD,
			  .aio_fildes = (uint32_t)file,
			  .aio_buf = (uintptr_t)&byte,
			  .aio_nbytes = 1},
		    *list[1] = {&cb};
	struct io_event got;
	struct timespec soon = {.tv_nsec = 1000000};

	return syscall(SYS_io_submit, ctx, 1L, list) == 1 &&
	       syscall(SYS_io_getevents, ctx, 1L, 1L, &got, NULL) == 1 && got.res == 1 &&
	       syscall(SYS_io_getevents, ctx, 1L, 1L, &got, &soon) == 0;
}

static bool (*call)(void);

static void ends(void *value)
{
	uintptr_t rounds = (uintptr_t)value;

	/* What it used before and has given back is used by others now. */
	for (int i = 0; i < 4; i++)
		close(eventfd(0, EFD_CLOEXEC));
	done += call();
	if (rounds > 1)
		pthread_setspecific(key, (void *)(rounds - 1));
}

static void *runs(void *arg)
{
	assert_int_equal(pthread_setspecific(key, (void *)(uintptr_t)ROUNDS), 0);
	done += call();
	return arg;
}

/* The process's memory, in pages. */
static long pages(void)
{
	long n = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	assert_true(f && fscanf(f, "%ld", &n) == 1);
	fclose(f);
	return n;
}

static void threads_end(void)
{
	pthread_t t;

	for (int i = 0; i < THREADS; i++) {
		done = 0;
		assert_int_equal(pthread_create(&t, NULL, runs, NULL), 0);
		assert_int_equal(pthread_join(t, NULL), 0);
		assert_int_equal(done, ROUNDS + 1);
	}
}

static void leaves_nothing(bool (*fn)(void))
{
	long before;

	call = fn;
	assert_int_equal(pthread_key_create(&key, ends), 0);
	threads_end();
	before = pages();
	threads_end();
	assert_true(pages() - before <= PAGES);
	pthread_key_delete(key);
}

static void poll_at_the_end_of_a_thread_leaves_nothing(void **state)
{
	(void)state;
	subject = subject_new(KIND_EVENTFD);
	leaves_nothing(polls);
	subject_close(&subject);
}

static void epoll_at_the_end_of_a_thread(bool (*fn)(void))
{
	ep = ep_new();
	subject = subject_new(KIND_EVENTFD);
	other = subject_new(KIND_PIPE);
	ep_add(ep, subject.fd, EPOLLIN, 1);
	ep_add(ep, other.fd, EPOLLIN, 2);
	leaves_nothing(fn);
	subject_close(&subject);
	subject_close(&other);
	close(ep);
}

static void epoll_wait_at_the_end_of_a_thread_leaves_nothing(void **state)
{
	(void)state;
	epoll_at_the_end_of_a_thread(waits);
}

static void look_at_the_end_of_a_thread_leaves_nothing(void **state)
{
	(void)state;
	epoll_at_the_end_of_a_thread(looks);
}

static void aio_at_the_end_of_a_thread_leaves_nothing(void **state)
{
	(void)state;
	file = (int)assert_ok(memfd_create("end", MFD_CLOEXEC));
	assert_int_equal(assert_ok(write(file, "x", 1)), 1);
	ctx = 0;
	assert_ok(aio_setup_in_turn(8, &ctx));
	leaves_nothing(reads);
	assert_ok(syscall(SYS_io_destroy, ctx));
	close(file);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(poll_at_the_end_of_a_thread_leaves_nothing),
		cmocka_unit_test(epoll_wait_at_the_end_of_a_thread_leaves_nothing),
		cmocka_unit_test(look_at_the_end_of_a_thread_leaves_nothing),
		cmocka_unit_test(aio_at_the_end_of_a_thread_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
