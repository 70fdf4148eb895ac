/* SPDX-License-Identifier: MIT */
/*
 * What a read has taken is not found by a wait after it, though the count was on its way to the
 * kernel.
 */
#include "cache/eventfd.h"

#include "caller.h"

static const uint64_t one = 1;

struct act {
	struct gate gate;
	const char *point;
	int ep, efd, n, looked;
};

static void reads_and_looks(struct thread *t)
{
	struct act *a = t->arg;
	struct epoll_event ev;
	uint64_t value = 0;

	gate_arm(&a->gate, a->point);
	if (pollux_read(a->efd, &value, sizeof(value)) != sizeof(value) || value != 1)
		broken("%llu is read", (unsigned long long)value);
	a->n = pollux_epoll_wait(a->ep, &ev, 1, 0);
	atomic_set(&a->looked, 1);
}

static struct plx_eventfd *object(int fd)
{
	return plx_file_eventfd(plx_table_peek(fd));
}

static void returns(struct thread *t)
{
	struct act *a = t->arg;

	gate_arm(&a->gate, "flush_written");
	plx_eventfd_flush(object(a->efd), PLX_EVENTFD_COLD);
}

static void run(bool cold)
{
	struct act reader = {.point = cold ? "cold_read" : "read_both",
			     .ep = pollux_epoll_create1(EPOLL_CLOEXEC),
			     .efd = new_efd()};
	struct act flusher = {.efd = reader.efd};
	struct thread t[2];
	int64_t start;

	torture_begin();
	points_delay(false);
	add(reader.ep, reader.efd, 1);
	if (cold)
		assert_true(plx_eventfd_flush(object(reader.efd), PLX_EVENTFD_COLD));
	thread_start(&t[0], reads_and_looks, &reader);
	assert_true(gate_reached(&reader.gate));
	if (cold)
		plx_eventfd_heat(object(reader.efd));
	assert_int_equal(pollux_write(reader.efd, &one, sizeof(one)), sizeof(one));
	assert_true(plx_eventfd_in(&object(reader.efd)->file));
	thread_start(&t[1], returns, &flusher);
	assert_true(gate_reached(&flusher.gate));
	/* The kernel has the count, and the flush is not over. */
	gate_open(&reader.gate);
	for (start = now_ns(); !atomic_get(&reader.looked) && now_ns() - start < 50000000;)
		sched_yield();
	gate_open(&flusher.gate);
	torture_end(t, 2);
	assert_int_equal(reader.n, 0);
	pollux_close(reader.efd);
	pollux_close(reader.ep);
}

static void a_read_of_a_cached_one(void **state)
{
	(void)state;
	run(false);
}

static void a_read_of_a_cold_one(void **state)
{
	(void)state;
	run(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_read_of_a_cached_one),
		TEST(a_read_of_a_cold_one),
	};

	return RUN(tests);
}
