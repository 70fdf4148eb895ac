/* SPDX-License-Identifier: MIT */
/*
 * A ring that liburing has made takes polls of eventfds, of those from before as of those from
 * after; the library makes its system calls by itself. What its functions make of their arguments,
 * and who finds them, is as it was. (QEMU's threads for devices are woken so.)
 */
#include "waiting.h"

#include <dlfcn.h>
#include <linux/io_uring.h>

#define LIBRARY "liburing.so.2"

struct time {
	int64_t tv_sec;
	long long tv_nsec;
};

static struct {
	int (*init)(unsigned int entries, void *ring, unsigned int flags);
	int (*init_params)(unsigned int entries, void *ring, struct io_uring_params *p);
	void (*quit)(void *ring);
	struct io_uring_sqe *(*get)(void *ring);
	int (*submit)(void *ring);
	int (*wait)(void *ring, struct io_uring_cqe **cqe, struct time *t);
} lib;

/* Larger than the library's own. */
static _Alignas(64) char ring[1024];

/* As the loader finds what a program was linked with. */
static bool found(void *where, const char *name)
{
	*(void **)where = dlvsym(RTLD_DEFAULT, name, "LIBURING_2.0");
	return *(void **)where != NULL;
}

static bool loaded(void)
{
	return dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL) && found(&lib.init, "io_uring_queue_init") &&
	       found(&lib.init_params, "io_uring_queue_init_params") &&
	       found(&lib.quit, "io_uring_queue_exit") && found(&lib.get, "io_uring_get_sqe") &&
	       found(&lib.submit, "io_uring_submit") &&
	       found(&lib.wait, "io_uring_wait_cqe_timeout");
}

static bool heard(int efd)
{
	struct time patience = {.tv_sec = 5};
	struct io_uring_sqe *s = lib.get(ring);
	struct io_uring_cqe *cqe;

	s->opcode = IORING_OP_POLL_ADD;
	s->fd = efd;
	s->poll32_events = EPOLLIN;
	return lib.submit(ring) == 1 && eventfd_write(efd, 1) == 0 &&
	       lib.wait(ring, &cqe, &patience) == 0 && cqe->res == EPOLLIN;
}

/* In a child, since it is for good. */
static int child(int way)
{
	struct io_uring_params p = {0};
	struct epoll_event ev = {.events = EPOLLIN}, out;
	int before = eventfd(0, EFD_NONBLOCK), ep = epoll_create1(0), r;

	if (epoll_ctl(ep, EPOLL_CTL_ADD, before, &ev) || fd_served(before) != under_pollux())
		return 1;
	/* A refusal changes nothing. */
	if (lib.init(0, ring, 0) != -EINVAL || fd_served(before) != under_pollux())
		return 2;
	errno = 4321;
	r = way ? lib.init_params(8, ring, &p) : lib.init(8, ring, 0);
	if (r < 0)
		return EXIT_SKIPPED;
	if (errno != 4321)
		return 3;
	if (!heard(before))
		return 4;
	if (epoll_wait(ep, &out, 1, 0) != 1)
		return 5;
	lib.quit(ring);
	return 0;
}

static int child_after(int way)
{
	struct io_uring_params p = {0};

	if ((way ? lib.init_params(8, ring, &p) : lib.init(8, ring, 0)) < 0)
		return EXIT_SKIPPED;
	return heard(eventfd(0, EFD_NONBLOCK)) ? 0 : 6;
}

static void polled(int (*body)(int way))
{
	if (!loaded())
		SKIP(LIBRARY " is not installed");
	for (int way = 0; way < 2; way++) {
		pid_t pid = (pid_t)assert_ok(fork());

		if (pid == 0)
			_exit(body(way));
		assert_child(child_end(pid), "no io_uring for this user");
	}
}

static void LIBURING_eventfds_from_before(void **state)
{
	(void)state;
	polled(child);
}

static void LIBURING_eventfds_from_after(void **state)
{
	(void)state;
	polled(child_after);
}

/* A program may look whether it has the library. */
static void LIBURING_is_not_pretended(void **state)
{
	pid_t pid;

	(void)state;
	if (dlsym(RTLD_DEFAULT, "eventfd") == NULL)
		SKIP("the program is linked statically");
	pid = (pid_t)assert_ok(fork());
	if (pid == 0)
		_exit(dlopen(LIBRARY, RTLD_NOLOAD | RTLD_NOW)
			      ? EXIT_SKIPPED
			      : dlsym(RTLD_DEFAULT, "io_uring_queue_init") != NULL);
	assert_child(child_end(pid), "it is loaded already");
}

int main(void)
{
	/* First: the others load the library for good. */
	const struct CMUnitTest liburing[] = {
		cmocka_unit_test(LIBURING_is_not_pretended),
		cmocka_unit_test(LIBURING_eventfds_from_before),
		cmocka_unit_test(LIBURING_eventfds_from_after),
	};

	return run_group(liburing);
}
