/* SPDX-License-Identifier: MIT */
/*
 * Blocking reads and writes: whoever can go on does, so nobody sleeps beside a counter
 * that would let him, and what the writers put in is what the readers take out.
 */
#include "torture.h"

#define READERS 3
#define WRITERS 3
#define ROUND 64

/* The large step fills the counter with three of them: then writers sleep. */
#define LARGE (1ull << 62)

struct shared {
	struct meet m;
	struct pollux_efd *e;
	uint64_t step;
	int semaphore;
	int quit;
	/* Of this round: what is still to be taken, in units of what one read takes. */
	long left;
	int out;
	unsigned long writes, reads, slept_reads, slept_writes;
};

static void writer(struct thread *t)
{
	struct shared *s = t->arg;

	for (;;) {
		if (!meet(&s->m) || atomic_get(&s->quit))
			return;
		for (int i = 0; i < ROUND; i++) {
			int r = pollux_efd_write(s->e, s->step, 0);

			if (r == -EAGAIN) {
				atomic_add(&s->slept_writes, 1);
				r = pollux_efd_write(s->e, s->step, 1);
			}
			if (r != 0)
				broken("a blocking write: %d", r);
			atomic_add(&s->writes, 1);
		}
		if (!meet(&s->m))
			return;
	}
}

/* Reads until the round's whole sum is taken. */
static void reader(struct thread *t)
{
	struct shared *s = t->arg;

	for (;;) {
		if (!meet(&s->m) || atomic_get(&s->quit))
			return;
		while (atomic_get(&s->left) > 0) {
			uint64_t v = 0;
			int r = pollux_efd_read(s->e, &v, 0);

			if (r == -EAGAIN) {
				atomic_add(&s->slept_reads, 1);
				r = pollux_efd_read(s->e, &v, 1);
			}
			if (r != 0)
				broken("a blocking read: %d", r);
			if (!v || (s->semaphore ? v != 1 : v % s->step != 0))
				broken("a read took %llu", (unsigned long long)v);
			atomic_add(&s->reads, 1);
			__atomic_sub_fetch(&s->left, s->semaphore ? 1 : (long)(v / s->step),
					   __ATOMIC_SEQ_CST);
		}
		/* What is written now belongs to no round: it lets the others out of their sleep.
		 */
		atomic_add(&s->out, 1);
		while (atomic_get(&s->out) < READERS && !stopping()) {
			(void)pollux_efd_write(s->e, s->step, 0);
			sched_yield();
		}
		if (!meet(&s->m))
			return;
	}
}

static void run(uint64_t step, bool semaphore)
{
	struct shared s = {.m.n = READERS + WRITERS + 1,
			   .e = efd_new(0, semaphore ? POLLUX_EFD_SEMAPHORE : 0),
			   .step = step,
			   .semaphore = semaphore};
	struct thread t[READERS + WRITERS];
	unsigned long rounds = 0;
	int64_t start = now_ns();

	torture_begin();
	for (int i = 0; i < READERS + WRITERS; i++)
		thread_start(&t[i], i < READERS ? reader : writer, &s);
	while (torture_until(start, s.slept_reads && (step < LARGE || s.slept_writes))) {
		s.left = ROUND * WRITERS;
		s.out = 0;
		if (!meet(&s.m) || !meet(&s.m))
			break;
		while (pollux_efd_read(s.e, &(uint64_t){0}, 0) == 0)
			;
		if (s.left > 0)
			broken("%ld lost", s.left);
		rounds++;
	}
	atomic_set(&s.quit, 1);
	if (!stopping())
		(void)meet(&s.m);
	torture_end(t, READERS + WRITERS);
	print_message("%lu rounds, %lu writes (%lu slept), %lu reads (%lu slept)\n", rounds,
		      s.writes, s.slept_writes, s.reads, s.slept_reads);
	assert_true(s.slept_reads > 0);
	assert_true(step < LARGE || s.slept_writes > 0);
	efd_put(s.e);
}

static void readers_sleep(void **state)
{
	(void)state;
	run(1, false);
}

static void readers_of_a_semaphore_sleep(void **state)
{
	(void)state;
	run(1, true);
}

static void both_sides_sleep(void **state)
{
	(void)state;
	run(LARGE, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(readers_sleep),
		TEST(readers_of_a_semaphore_sleep),
		TEST(both_sides_sleep),
	};

	return RUN(tests);
}
