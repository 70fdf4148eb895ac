/* SPDX-License-Identifier: MIT */
/*
 * Forks, while contexts are used, made and destroyed: the child has none of them and can
 * make its own, the parent loses nothing (AIO-CTX-02, AIO-PROC-03).
 */
#include "aio.h"

#include <sys/wait.h>

#define WORKERS 3
#define KEPT 5

struct shared {
	aio_context_t kept[KEPT];
	unsigned long done, forks;
	int fd;
};

/* Writes and reads a block through a context; false if any of it went wrong. */
static bool pass(aio_context_t ctx, int fd, uint64_t block, bool poll, int event)
{
	struct req r;

	req_init(&r, fd, block, event);
	for (int i = 0; i < 2; i++) {
		struct iocb *list = &r.cb;
		struct io_event ev;

		req_transfer(&r);
		if (pollux_io_submit(ctx, 1, &list) != 1 ||
		    aio_getevents_beside_forks(ctx, 1, 1, &ev) != 1 || req_event(&ev) != &r)
			return false;
		if (!poll)
			continue;
		req_poll(&r);
		if (write(event, &(uint64_t){1}, 8) != 8 || pollux_io_submit(ctx, 1, &list) != 1 ||
		    aio_getevents_beside_forks(ctx, 1, 1, &ev) != 1 || req_event(&ev) != &r)
			return false;
	}
	return !torture_failed;
}

static void worker(struct thread *t)
{
	struct shared *s = t->arg;
	int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	uint32_t rng = (uint32_t)t->tid;
	uint64_t block = (uint64_t)t->tid;

	while (!stopping()) {
		aio_context_t ctx = 0;

		if (pollux_io_setup(4, &ctx) != 0 ||
		    !pass(ctx, s->fd, block, rnd(&rng) % 16 == 0, event) ||
		    pollux_io_destroy(ctx) != 0)
			broken("a worker: %s", strerror(errno));
		atomic_add(&s->done, 1);
	}
	close(event);
}

/* Ends the process: 0 if all is as it should be, else the step. */
static int child(struct shared *s)
{
	struct timespec none = {0};
	struct io_event ev;
	aio_context_t own[KEPT + 1] = {0};
	int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	for (int i = 0; i < KEPT; i++) {
		errno = 0;
		if (pollux_io_getevents(s->kept[i], 0, 1, &ev, &none) != -1 || errno != EINVAL)
			return 1;
		if (pollux_io_submit(s->kept[i], 0, NULL) != -1 || errno != EINVAL)
			return 2;
		if (pollux_io_destroy(s->kept[i]) != -1 || errno != EINVAL)
			return 3;
	}
	for (int i = 0; i < KEPT + 1; i++)
		if (pollux_io_setup(4, &own[i]) != 0)
			return 4;
	/* They took the places in the table that the parent's had. */
	for (int i = 0; i < KEPT; i++)
		if (pollux_io_submit(s->kept[i], 0, NULL) != -1 || errno != EINVAL)
			return 5;
	torture_failed = 0;
	for (int i = 0; i < KEPT + 1; i++)
		if (!pass(own[i], s->fd, (1u << 20) + (uint64_t)i, i == 0, event))
			return 6;
	for (int i = 0; i < KEPT + 1; i++)
		if (pollux_io_destroy(own[i]) != 0)
			return 7;
	return 0;
}

static void forks(void **state)
{
	struct shared s = {.fd = aio_file()};
	struct thread t[WORKERS];
	int64_t start = now_ns();
	struct req r[KEPT];
	int never = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	(void)state;
	aio_begin();
	for (int i = 0; i < KEPT; i++) {
		struct iocb *list = &r[i].cb;

		s.kept[i] = aio_new(4);
		req_init(&r[i], s.fd, (uint64_t)i, never);
		/* One with requests at the kernel, the others with an event in the ring. */
		if (i == 0)
			req_poll(&r[i]);
		else
			req_transfer(&r[i]);
		assert_int_equal(pollux_io_submit(s.kept[i], 1, &list), 1);
	}
	for (int i = 0; i < WORKERS; i++)
		thread_start(&t[i], worker, &s);
	while (torture_until(start, s.forks > 5 && atomic_get(&s.done) > 20)) {
		int status = 0;
		pid_t pid = pollux_fork();

		if (pid == 0)
			_exit(child(&s));
		assert_true(pid > 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			broken("the child ended with %#x", status);
			break;
		}
		s.forks++;
	}
	torture_end(t, WORKERS);
	/* What was on its way in the parent comes, once. */
	assert_int_equal(write(never, &(uint64_t){1}, 8), 8);
	for (int i = 0; i < KEPT; i++) {
		struct timespec none = {0};
		struct io_event ev;

		assert_int_equal(pollux_io_getevents(s.kept[i], 1, 1, &ev, NULL), 1);
		assert_true(req_event(&ev) == &r[i]);
		assert_int_equal(pollux_io_getevents(s.kept[i], 0, 1, &ev, &none), 0);
		assert_int_equal(pollux_io_destroy(s.kept[i]), 0);
	}
	assert_false(torture_failed);
	print_message("%lu forks, %lu contexts\n", s.forks, s.done);
	assert_true(s.forks > 5 && s.done > 20);
	close(s.fd);
	close(never);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(forks),
	};

	return RUN(tests);
}
