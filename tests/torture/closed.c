/* SPDX-License-Identifier: MIT */
/*
 * A call that sleeps on a pipe keeps its end when its number is closed, and no longer: it goes on
 * with that end if the pipe becomes the kernel's, and when it has left nobody has the end any more.
 */
#include "torture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <pollux/posix.h>

#include "posix/posix.h"

#define PAGE 4096
#define FULL (16 * PAGE)

struct world {
	struct gate gate;
	/* Where the sleeper stops, or who closes. */
	const char *point;
	int fds[2], fd, other;
	bool writes;
	ssize_t result;
	char got[FULL + PAGE];
};

static void begin(struct world *w, const char *point)
{
	torture_begin();
	points_delay(false);
	*w = (struct world){.point = point, .result = -2};
	w->other = (int)syscall(SYS_memfd_create, "other", 0);
	assert_true(w->other >= 0);
	assert_int_equal(plx_px_pipe2(w->fds, O_CLOEXEC, true), 0);
	assert_true(pollux_fd_served(w->fds[0]));
	signal(SIGPIPE, SIG_IGN);
}

static void sleeper(struct thread *t)
{
	struct world *w = t->arg;

	if (strcmp(w->point, "pipe_left") == 0 || strcmp(w->point, "pipe_goes_on") == 0)
		gate_arm(&w->gate, w->point);
	w->result = w->writes ? pollux_write(w->fds[1], w->got, sizeof(w->got))
			      : pollux_read(w->fds[0], w->got, sizeof(w->got));
}

static void closer(struct thread *t)
{
	struct world *w = t->arg;

	gate_arm(&w->gate, w->point);
	check(pollux_close(w->fds[0]) == 0);
}

/* The reader leaves while the number is being closed. */
static void left_meanwhile(const char *point)
{
	static struct world w;
	struct thread t[2];

	begin(&w, point);
	thread_start(&t[0], sleeper, &w);
	assert_true(thread_asleep(&t[0]));
	start_to_gate(&t[1], closer, &w, &w.gate);
	assert_int_equal(pollux_write(w.fds[1], "abc", 3), 3);
	thread_join(&t[0]);
	assert_int_equal(w.result, 3);
	gate_open(&w.gate);
	thread_join(&t[1]);
	assert_false(torture_failed);
	/* Nobody has the end, in the kernel neither: it says so. */
	assert_int_equal(pollux_write(w.fds[1], "d", 1), -1);
	assert_int_equal(errno, EPIPE);
	pollux_close(w.fds[1]);
	close(w.other);
}

static void a_reader_leaves_before_its_end_is_kept(void **state)
{
	(void)state;
	left_meanwhile("pipe_end_looked");
}

static void a_reader_leaves_after_its_end_was_kept(void **state)
{
	(void)state;
	left_meanwhile("pipe_end_kept");
}

/*
 * The number is another file's after the pipe has left, and before the sleeper goes on; or once it
 * has seen how it will.
 */
static void sleeps_on(bool writes, const char *point)
{
	static struct world w;
	struct thread t;
	int end = writes ? 1 : 0;

	begin(&w, point);
	w.writes = writes;
	thread_start(&t, sleeper, &w);
	assert_true(thread_asleep(&t));
	pollux_escape(w.fds[0]);
	assert_true(gate_reached(&w.gate));
	assert_int_equal(pollux_dup2(w.other, w.fds[end]), w.fds[end]);
	gate_open(&w.gate);
	assert_true(thread_asleep(&t));
	if (writes) {
		static char buf[FULL + PAGE];
		ssize_t n = read(w.fds[0], buf, sizeof(buf));

		assert_int_equal(n, FULL);
		thread_join(&t);
		assert_int_equal(w.result, FULL + PAGE);
		assert_int_equal(read(w.fds[0], buf, sizeof(buf)), PAGE);
		assert_int_equal(read(w.fds[0], buf, sizeof(buf)), 0);
	} else {
		assert_int_equal(write(w.fds[1], "abc", 3), 3);
		thread_join(&t);
		assert_int_equal(w.result, 3);
		assert_int_equal(write(w.fds[1], "d", 1), -1);
		assert_int_equal(errno, EPIPE);
	}
	assert_int_equal(lseek(w.other, 0, SEEK_END), 0);
	close(w.fds[0]);
	close(w.fds[1]);
	close(w.other);
}

static void a_reader_whose_pipe_has_left_loses_its_number(void **state)
{
	(void)state;
	sleeps_on(false, "pipe_left");
	sleeps_on(false, "pipe_goes_on");
}

static void a_writer_whose_pipe_has_left_loses_its_number(void **state)
{
	(void)state;
	sleeps_on(true, "pipe_left");
	sleeps_on(true, "pipe_goes_on");
}

static void escaper(struct thread *t)
{
	struct world *w = t->arg;

	gate_arm(&w->gate, w->point);
	pollux_escape(w->fds[0]);
}

/* Its numbers are not in the table any more, and the sleeper has not been told yet. */
static void a_number_is_taken_while_the_pipe_leaves(void **state)
{
	static struct world w;
	struct thread t[2];

	(void)state;
	begin(&w, "spill_before_done");
	thread_start(&t[0], sleeper, &w);
	assert_true(thread_asleep(&t[0]));
	start_to_gate(&t[1], escaper, &w, &w.gate);
	/* As a close and an open would do it; both are the kernel's by now. */
	assert_int_equal(syscall(SYS_dup3, w.other, w.fds[0], 0), w.fds[0]);
	gate_open(&w.gate);
	thread_join(&t[1]);
	assert_true(thread_asleep(&t[0]));
	assert_int_equal(write(w.fds[1], "abc", 3), 3);
	thread_join(&t[0]);
	assert_int_equal(w.result, 3);
	assert_int_equal(write(w.fds[1], "d", 1), -1);
	assert_int_equal(errno, EPIPE);
	close(w.fds[0]);
	close(w.fds[1]);
	close(w.other);
}

static void part_writer(struct thread *t)
{
	struct world *w = t->arg;

	gate_arm(&w->gate, "pipe_tried");
	w->result = pollux_write(w->fds[1], w->got, sizeof(w->got));
}

/* It does not sleep yet, and its pipe leaves, and its number is another file's, before or after. */
static void has_brought_a_part(bool leaves_first)
{
	static struct world w;
	static char buf[FULL + PAGE];
	struct thread t;

	begin(&w, "pipe_tried");
	start_to_gate(&t, part_writer, &w, &w.gate);
	if (leaves_first)
		pollux_escape(w.fds[0]);
	assert_int_equal(pollux_dup2(w.other, w.fds[1]), w.fds[1]);
	if (!leaves_first)
		pollux_escape(w.fds[0]);
	gate_open(&w.gate);
	assert_true(thread_asleep(&t));
	assert_int_equal(read(w.fds[0], buf, sizeof(buf)), FULL);
	thread_join(&t);
	assert_int_equal(w.result, FULL + PAGE);
	assert_int_equal(read(w.fds[0], buf, sizeof(buf)), PAGE);
	assert_int_equal(read(w.fds[0], buf, sizeof(buf)), 0);
	assert_int_equal(lseek(w.other, 0, SEEK_END), 0);
	close(w.fds[0]);
	close(w.fds[1]);
	close(w.other);
}

static void a_writer_has_brought_a_part(void **state)
{
	(void)state;
	has_brought_a_part(false);
	has_brought_a_part(true);
}

struct late {
	struct world *w;
	struct gate gate;
	ssize_t result;
	char got[16];
};

static void late_reader(struct thread *t)
{
	struct late *l = t->arg;

	gate_arm(&l->gate, "pipe_pins");
	l->result = pollux_read(l->w->fds[0], l->got, sizeof(l->got));
}

static void leaving_reader(struct thread *t)
{
	struct world *w = t->arg;

	gate_arm(&w->gate, "unhide");
	w->result = pollux_read(w->fds[0], w->got, sizeof(w->got));
}

/* One comes as the pipe has left, and the last that slept on it ends what it kept. */
static void a_reader_comes_while_the_last_leaves(void **state)
{
	static struct world w;
	static struct late l;
	struct thread t[2];

	(void)state;
	begin(&w, "unhide");
	l = (struct late){.w = &w, .result = -2};
	start_to_gate(&t[1], late_reader, &l, &l.gate);
	thread_start(&t[0], leaving_reader, &w);
	assert_true(thread_asleep(&t[0]));
	pollux_escape(w.fds[0]);
	assert_int_equal(write(w.fds[1], "abc", 3), 3);
	assert_true(gate_reached(&w.gate));
	/* It has seen the end, and sleeps on it. */
	gate_open(&l.gate);
	assert_true(thread_asleep(&t[1]));
	gate_open(&w.gate);
	thread_join(&t[0]);
	assert_int_equal(w.result, 3);
	assert_int_equal(pollux_dup2(w.other, w.fds[0]), w.fds[0]);
	assert_int_equal(write(w.fds[1], "de", 2), 2);
	thread_join(&t[1]);
	assert_int_equal(l.result, 2);
	assert_memory_equal(l.got, "de", 2);
	/* And ends it. */
	assert_int_equal(write(w.fds[1], "f", 1), -1);
	assert_int_equal(errno, EPIPE);
	close(w.fds[0]);
	close(w.fds[1]);
	close(w.other);
}

static void counts(struct thread *t)
{
	struct world *w = t->arg;

	gate_arm(&w->gate, w->point);
	w->result = pollux_read(w->fd, w->got, sizeof(uint64_t));
}

static void an_eventfd_that_has_left_loses_its_number(void **state)
{
	static struct world w;
	const uint64_t seven = 7;
	struct thread t;
	uint64_t got;
	int again;

	(void)state;
	begin(&w, "efd_goes_on");
	w.fd = pollux_eventfd(0, EFD_CLOEXEC);
	assert_true(pollux_fd_served(w.fd));
	thread_start(&t, counts, &w);
	assert_true(thread_asleep(&t));
	again = pollux_dup(w.fd);
	pollux_escape(w.fd);
	assert_true(gate_reached(&w.gate));
	assert_int_equal(pollux_dup2(w.other, w.fd), w.fd);
	gate_open(&w.gate);
	assert_true(thread_asleep(&t));
	assert_int_equal(write(again, &seven, sizeof(seven)), sizeof(seven));
	thread_join(&t);
	assert_int_equal(w.result, sizeof(seven));
	memcpy(&got, w.got, sizeof(got));
	assert_int_equal(got, seven);
	close(again);
	close(w.fd);
	close(w.other);
	pollux_close(w.fds[0]);
	pollux_close(w.fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_reader_leaves_before_its_end_is_kept),
		TEST(a_reader_leaves_after_its_end_was_kept),
		TEST(a_reader_whose_pipe_has_left_loses_its_number),
		TEST(a_writer_whose_pipe_has_left_loses_its_number),
		TEST(a_number_is_taken_while_the_pipe_leaves),
		TEST(a_writer_has_brought_a_part),
		TEST(a_reader_comes_while_the_last_leaves),
		TEST(an_eventfd_that_has_left_loses_its_number),
	};

	plx_px_init();
	plx_px_no_adopt &= ~PLX_ADOPT_PIPE;
	return RUN(tests);
}
