/* SPDX-License-Identifier: MIT */
/*
 * Handlers on alternate stacks that are little larger than what the kernel puts there.
 */
#include "harness.h"

#include <sys/auxv.h>
#include <sys/mman.h>

#define FILLER 0xa5

static volatile sig_atomic_t called;
static volatile pid_t started;

/* What a handler calls has been found before: to look for it takes a stack, too. */
static pid_t (*volatile do_vfork)(void) = vfork;
static int (*volatile do_execve)(const char *, char *const[], char *const[]) = execve;
static void (*volatile do_exit)(int) __attribute__((noreturn)) = _exit;
static ssize_t (*volatile do_write)(int, const void *, size_t) = write;

static char *const argv[] = {"true", NULL};
static int fd;

static void only_called(int sig)
{
	called = sig;
}

static void writes(int sig)
{
	static const uint64_t one = 1;

	if (do_write(fd, &one, sizeof(one)) == sizeof(one))
		called = sig;
}

static void starts_a_program(int sig)
{
	started = do_vfork();
	if (!started) {
		do_execve("/bin/true", argv, environ);
		do_exit(1);
	}
	called = sig;
}

/* sigaltstack takes no smaller one, also where the kernel's frame takes less. */
#if defined(__aarch64__)
#define LEAST 5120
#else
#define LEAST 2048
#endif

/* Runs it on so much more than the kernel's frame: nothing is written below. */
static void on_stack(void (*handler)(int), size_t more)
{
	size_t frame = getauxval(AT_MINSIGSTKSZ), room = 1 << 20;
	size_t size = frame + more > LEAST ? frame + more : LEAST;
	unsigned char *m =
		mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t off = {.ss_flags = SS_DISABLE}, stack = {.ss_size = size};
	struct sigaction act = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	int ep = epoll_create1(EPOLL_CLOEXEC);
	size_t clean = 0;

	if (SANITIZED)
		SKIP("frames of a sanitizer are larger");
	if (!frame)
		SKIP("the kernel does not say how large the least stack is");
	assert_true(m != MAP_FAILED);
	memset(m, FILLER, room);
	stack.ss_sp = m + room - size;
	fd = efd_new(0, EFD_NONBLOCK);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 1));
	assert_ok(sigaltstack(&stack, NULL));
	assert_ok(sigaction(SIGUSR1, &act, NULL));
	called = 0;
	raise(SIGUSR1);
	assert_int_equal(called, SIGUSR1);
	assert_ok(sigaltstack(&off, NULL));
	while (m[clean] == FILLER)
		clean++;
	print_message("%zu of %zu bytes, and %zu more\n", room - clean, frame, more);
	assert_true(clean >= room - size);
	munmap(m, room);
	close(fd);
	close(ep);
}

static void HANDLERS_on_little_more_than_the_least_stack(void **state)
{
	(void)state;
	on_stack(only_called, 128);
}

static void HANDLERS_write_on_a_small_stack(void **state)
{
	(void)state;
	on_stack(writes, 512);
}

static void HANDLERS_start_a_program_on_a_small_stack(void **state)
{

	(void)state;
	on_stack(starts_a_program, 2816);
	child_passes(started);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(HANDLERS_on_little_more_than_the_least_stack),
		cmocka_unit_test(HANDLERS_write_on_a_small_stack),
		cmocka_unit_test(HANDLERS_start_a_program_on_a_small_stack),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
