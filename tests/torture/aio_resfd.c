/* SPDX-License-Identifier: MIT */
/*
 * A request tells the eventfd that it named, whatever happens to that number while the request is
 * done: the number may have been closed and be another file's, and the eventfd the kernel's.
 */
#include "aio.h"

#include <fcntl.h>
#include <sys/stat.h>

struct submission {
	struct gate gate;
	struct req r;
	aio_context_t ctx;
	long n;
};

static void submits(struct thread *t)
{
	struct submission *s = t->arg;
	struct iocb *list = &s->r.cb;

	s->n = pollux_io_submit(s->ctx, 1, &list);
}

static void told_under_another_number(void **state)
{
	struct submission s = {0};
	int file = aio_file(), other, resfd, dup;
	struct io_event ev;
	struct stat st;
	struct thread t;
	uint64_t count = 0;

	(void)state;
	aio_begin();
	points_delay(false);
	s.ctx = aio_new(1);
	resfd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	dup = pollux_dup(resfd);
	req_init(&s.r, file, 0, -1);
	req_transfer(&s.r);
	req_resfd(&s.r, resfd);
	/* By the thread that does the request. */
	gate_arm_any(&s.gate, "aio_inline");
	thread_start(&t, submits, &s);
	assert_true(gate_reached(&s.gate));
	assert_int_equal(pollux_close(resfd), 0);
	other = memfd_create("other", MFD_CLOEXEC);
	assert_int_equal(other, resfd);
	pollux_escape(-1);
	gate_open(&s.gate);
	torture_end(&t, 1);
	assert_int_equal(s.n, 1);
	assert_int_equal(pollux_io_getevents(s.ctx, 1, 1, &ev, NULL), 1);
	/* The eventfd is told after the event is there, and before this. */
	assert_int_equal(pollux_io_destroy(s.ctx), 0);
	assert_int_equal(fstat(other, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(pollux_read(dup, &count, sizeof(count)), sizeof(count));
	assert_int_equal(count, 1);
	close(other);
	close(file);
	pollux_close(dup);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(told_under_another_number),
	};

	return RUN(tests);
}
