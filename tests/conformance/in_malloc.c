/* SPDX-License-Identifier: MIT */
/*
 * fork may be called by a handler that has interrupted malloc, or by a thread while an allocator's
 * handlers of pthread_atfork hold its locks. So nothing on the way of it allocates, whatever it
 * finds: here the allocator is the program's own, and notes who comes while it is closed.
 */
#include "waiting.h"

#define MANY 60

static int closed;
static int came;

#if !SANITIZED

/* libc's. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

static void note(void)
{
	if (closed)
		came++;
}

void *malloc(size_t size)
{
	note();
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	note();
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	note();
	return __libc_realloc(p, size);
}

void free(void *p)
{
	note();
	__libc_free(p);
}

#endif

static int fd[MANY];

/* Half of the events are collected; edges with what they were for, as they may come once more. */
static int full_epoll(uint32_t mode)
{
	struct epoll_event ev[MANY];
	int ep = ep_new();

	for (int i = 0; i < MANY; i++) {
		fd[i] = efd_new(1, EFD_NONBLOCK);
		ep_add(ep, fd[i], EPOLLIN | mode, (uint64_t)i);
	}
	assert_int_equal(epoll_wait(ep, ev, MANY / 2, 0), MANY / 2);
	for (int i = 0; mode & EPOLLET && i < MANY / 2; i++)
		assert_int_equal(efd_take(fd[ev[i].data.u64]), 1);
	return ep;
}

static void forks(uint32_t mode)
{
	int ep = full_epoll(mode);
	pid_t pid;

	closed = 1;
	pid = fork();
	if (pid == 0)
		_exit(came);
	closed = 0;
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(came, 0);
	assert_int_equal(ep_count(ep), mode & EPOLLET ? MANY / 2 : MANY);
	for (int i = 0; i < MANY; i++)
		close(fd[i]);
	close(ep);
}

static void ESCAPE_fork_of_many_items_does_not_allocate(void **state)
{
	(void)state;
	forks(0);
}

static void ESCAPE_fork_of_many_edges_does_not_allocate(void **state)
{
	(void)state;
	forks(EPOLLET);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(ESCAPE_fork_of_many_items_does_not_allocate),
		cmocka_unit_test(ESCAPE_fork_of_many_edges_does_not_allocate),
	};

	if (SANITIZED) {
		fprintf(stderr, "the allocator is the sanitizer's\n");
		return EXIT_SKIPPED;
	}
	return run_group(tests);
}
