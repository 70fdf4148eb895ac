/* SPDX-License-Identifier: MIT */
/*
 * A program may keep the handlers of pthread_atfork by itself, as Firefox does: the function of
 * libc's that takes them can be replaced like any other. It runs them around a clone of its own;
 * libc's fork, which knows none of them, does what it always does.
 */
#include "waiting.h"

#include <sched.h>
#include <sys/mman.h>

#define HANDLERS 32
#define STACK (1u << 20)

typedef void (*handler)(void);

static struct {
	handler prepare, parent, child;
} kept[HANDLERS];
static int n_kept, n_prepared;

/* ThreadSanitizer's run-time calls it before instrumented code can run. */
int __register_atfork(handler prepare, handler parent, handler child, void *object);
__attribute__((no_sanitize_thread)) int __register_atfork(handler prepare, handler parent,
							  handler child, void *object)
{
	(void)object;
	if (n_kept == HANDLERS)
		return ENOMEM;
	kept[n_kept].prepare = prepare;
	kept[n_kept].parent = parent;
	kept[n_kept++].child = child;
	return 0;
}

static void before(void)
{
	for (int i = n_kept - 1; i >= 0; i--)
		if (kept[i].prepare)
			kept[i].prepare();
}

static void after(bool child)
{
	for (int i = 0; i < n_kept; i++) {
		handler h = child ? kept[i].child : kept[i].parent;

		if (h)
			h();
	}
}

static void own_prepare(void)
{
	n_prepared++;
}

struct world {
	int efd, ep;
};

/* The child collects the event and makes another. */
static int child_uses(struct world *w)
{
	struct epoll_event ev;
	uint64_t v;

	if (ep_poll(w->ep, &ev, 1) != 1 || ev.data.u64 != 7)
		return 2;
	if (eventfd_read(w->efd, &v) != 0 || v != 3)
		return 3;
	return eventfd_write(w->efd, 5) != 0;
}

static int clone_main(void *arg)
{
	after(true);
	return child_uses(arg);
}

static pid_t child_of(bool by_clone, struct world *w, char *stack)
{
	pid_t pid;

	if (by_clone) {
		before();
		pid = clone(clone_main, stack + STACK, SIGCHLD, w);
		after(false);
	} else {
		pid = fork();
		if (pid == 0)
			_exit(child_uses(w));
	}
	return pid;
}

static void *sleeps(void *arg)
{
	efd_take(*(int *)arg);
	return NULL;
}

static void children(bool by_clone, bool threads)
{
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int end = efd_new(0, 0);
	struct test_thread t;

	assert_true(stack != MAP_FAILED);
	if (threads) {
		thread_start(&t, sleeps, &end);
		assert_true(thread_asleep(&t));
	}
	for (int i = 0; i < 3; i++) {
		struct world w = {.efd = efd_new(3, EFD_NONBLOCK), .ep = ep_new()};
		struct epoll_event ev;
		int prepared = n_prepared;

		ep_add(w.ep, w.efd, EPOLLIN, 7);
		assert_int_equal(fd_served(w.efd), under_pollux());
		assert_int_equal(child_end((pid_t)assert_ok(child_of(by_clone, &w, stack))), 0);
		assert_int_equal(n_prepared - prepared, by_clone);
		/* It is one object to both, and what is made next is served as before. */
		assert_int_equal(ep_poll(w.ep, &ev, 1), 1);
		assert_int_equal(efd_take(w.efd), 5);
		close(w.ep);
		close(w.efd);
	}
	if (threads) {
		efd_add(end, 1);
		assert_true(thread_join(&t, 10000));
	}
	close(end);
	munmap(stack, STACK);
}

static void clone_between_handlers_that_the_program_keeps(void **state)
{
	(void)state;
	children(true, false);
}

static void clone_between_handlers_with_threads(void **state)
{
	(void)state;
	children(true, true);
}

static void fork_of_a_program_that_keeps_its_handlers(void **state)
{
	(void)state;
	children(false, false);
}

static void fork_with_threads_and_kept_handlers(void **state)
{
	(void)state;
	children(false, true);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(clone_between_handlers_that_the_program_keeps),
		cmocka_unit_test(clone_between_handlers_with_threads),
		cmocka_unit_test(fork_of_a_program_that_keeps_its_handlers),
		cmocka_unit_test(fork_with_threads_and_kept_handlers),
	};

	if (SANITIZED == 2) {
		fprintf(stderr, "ThreadSanitizer's own handlers are for libc's fork alone\n");
		return EXIT_SKIPPED;
	}
	if (pthread_atfork(own_prepare, NULL, NULL) != 0)
		return 1;
	return run_group(tests);
}
