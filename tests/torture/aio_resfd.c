/* SPDX-License-Identifier: MIT */
/*
 * A request tells the eventfd that it named, whatever happens to that number while the request is
 * done: the eventfd may become the kernel's, or the number be closed and another file's.
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

/* The request of s is being done, by the thread that has submitted it; the eventfd's number. */
static int begin(struct submission *s, struct thread *t, int file)
{
	int resfd;

	aio_begin();
	points_delay(false);
	s->ctx = aio_new(1);
	resfd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert_int_equal(pollux_fd_served(resfd), 1);
	req_init(&s->r, file, 0, -1);
	req_transfer(&s->r);
	req_resfd(&s->r, resfd);
	gate_arm_any(&s->gate, "aio_inline");
	start_to_gate(t, submits, s, &s->gate);
	return resfd;
}

static void end(struct submission *s, struct thread *t)
{
	struct io_event ev;

	gate_open(&s->gate);
	torture_end(t, 1);
	assert_int_equal(s->n, 1);
	assert_int_equal(pollux_io_getevents(s->ctx, 1, 1, &ev, NULL), 1);
	/* The eventfd is told after the event is there, and before this. */
	assert_int_equal(pollux_io_destroy(s->ctx), 0);
}

static void told_when_it_has_left(void **state)
{
	struct submission s = {0};
	int file = aio_file(), resfd;
	uint64_t count = 0;
	struct thread t;

	(void)state;
	resfd = begin(&s, &t, file);
	pollux_escape(-1);
	assert_int_equal(pollux_fd_served(resfd), 0);
	end(&s, &t);
	assert_int_equal(pollux_read(resfd, &count, sizeof(count)), sizeof(count));
	assert_int_equal(count, 1);
	pollux_close(resfd);
	close(file);
}

/* Nobody can see the count any more; and the other file is not told. */
static void another_file_under_the_number(void **state)
{
	for (int ours = 0; ours < 2; ours++) {
		struct submission s = {0};
		int file = aio_file(), resfd, other;
		uint64_t count = 0;
		struct thread t;
		struct stat st;

		(void)state;
		resfd = begin(&s, &t, file);
		assert_int_equal(pollux_close(resfd), 0);
		other = ours ? pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
			     : memfd_create("other", MFD_CLOEXEC);
		assert_int_equal(other, resfd);
		end(&s, &t);
		assert_int_equal(fstat(other, &st), 0);
		assert_int_equal(st.st_size, 0);
		if (ours)
			assert_int_equal(pollux_read(other, &count, sizeof(count)), -1);
		pollux_close(other);
		close(file);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(told_when_it_has_left),
		TEST(another_file_under_the_number),
	};

	return RUN(tests);
}
