/* SPDX-License-Identifier: MIT */
/*
 * A call that sleeps on an eventfd goes on with it when it becomes the kernel's, though its number
 * is another file's by then; and when the call has left, nobody keeps the eventfd.
 */
#include "posix/posix.h"

#include "torture.h"

#include <dirent.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <pollux/posix.h>

struct world {
	struct gate gate;
	/* Where the sleeper, or who makes it the kernel's, stops. */
	const char *point;
	int fd, again, other, open;
};

struct reader {
	struct thread t;
	struct world *w;
	struct gate gate;
	/* Where it stops, or NULL. */
	const char *point;
	ssize_t result;
	uint64_t value;
};

static int open_now(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void begin(struct world *w, const char *point)
{
	torture_begin();
	points_delay(false);
	*w = (struct world){.point = point};
	w->other = (int)syscall(SYS_memfd_create, "other", 0);
	assert_true(w->other >= 0);
	w->fd = pollux_eventfd(0, EFD_CLOEXEC);
	assert_true(pollux_fd_served(w->fd));
	w->again = pollux_dup(w->fd);
	assert_true(w->again >= 0);
	w->open = open_now();
}

static void end(struct world *w)
{
	/* The calls have left, and with them what was kept for them. */
	assert_int_equal(open_now(), w->open);
	close(w->again);
	close(w->fd);
	close(w->other);
}

static void reads(struct thread *t)
{
	struct reader *r = t->arg;

	if (r->point)
		gate_arm(&r->gate, r->point);
	r->result = pollux_read(r->w->fd, &r->value, sizeof(r->value));
}

static void write_value(struct world *w, uint64_t value)
{
	assert_int_equal(write(w->again, &value, sizeof(value)), sizeof(value));
}

static void has_read(struct reader *r, uint64_t value)
{
	thread_join(&r->t);
	assert_int_equal(r->result, sizeof(value));
	assert_int_equal(r->value, value);
}

/* Before the sleeper goes on, once it has seen how it will. */
static void an_eventfd_that_has_left_loses_its_number(void **state)
{
	static struct world w;
	struct reader r = {.w = &w, .point = "efd_goes_on"};

	(void)state;
	begin(&w, NULL);
	thread_start(&r.t, reads, &r);
	assert_true(thread_asleep(&r.t));
	pollux_escape(w.fd);
	assert_true(gate_reached(&r.gate));
	assert_int_equal(pollux_dup2(w.other, w.fd), w.fd);
	gate_open(&r.gate);
	assert_true(thread_asleep(&r.t));
	write_value(&w, 7);
	has_read(&r, 7);
	end(&w);
}

static void escaper(struct thread *t)
{
	struct world *w = t->arg;

	gate_arm(&w->gate, w->point);
	pollux_escape(w->fd);
}

/* Its numbers are not in the table any more, and the sleeper has not been told yet. */
static void a_number_is_taken_while_the_eventfd_leaves(void **state)
{
	static struct world w;
	struct reader r = {.w = &w};
	struct thread t;

	(void)state;
	begin(&w, "spill_before_done");
	thread_start(&r.t, reads, &r);
	assert_true(thread_asleep(&r.t));
	start_to_gate(&t, escaper, &w, &w.gate);
	/* As a close and an open would do it; both are the kernel's by now. */
	assert_int_equal(syscall(SYS_dup3, w.other, w.fd, 0), w.fd);
	gate_open(&w.gate);
	thread_join(&t);
	assert_true(thread_asleep(&r.t));
	write_value(&w, 7);
	has_read(&r, 7);
	end(&w);
}

/* One comes as the eventfd has left, and the last that slept on it ends what it kept. */
static void a_reader_comes_while_the_last_leaves(void **state)
{
	static struct world w;
	static struct reader last, late;

	(void)state;
	begin(&w, NULL);
	last = (struct reader){.w = &w, .point = "unhide"};
	late = (struct reader){.w = &w, .point = "efd_pins"};
	start_to_gate(&late.t, reads, &late, &late.gate);
	thread_start(&last.t, reads, &last);
	assert_true(thread_asleep(&last.t));
	pollux_escape(w.fd);
	write_value(&w, 7);
	assert_true(gate_reached(&last.gate));
	/* It has seen the descriptor, and sleeps on it. */
	gate_open(&late.gate);
	assert_true(thread_asleep(&late.t));
	gate_open(&last.gate);
	has_read(&last, 7);
	assert_int_equal(pollux_dup2(w.other, w.fd), w.fd);
	write_value(&w, 8);
	/* And ends it. */
	has_read(&late, 8);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_eventfd_that_has_left_loses_its_number),
		TEST(a_number_is_taken_while_the_eventfd_leaves),
		TEST(a_reader_comes_while_the_last_leaves),
	};

	plx_px_init();
	return RUN(tests);
}
