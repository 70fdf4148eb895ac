/* SPDX-License-Identifier: MIT */
/*
 * No event is lost: what was written is what the readers get, who sleep in waits
 * without limit in between, whatever the mode, the number of waiters and the way the
 * events take. A lost wake or a lost edge leaves a rest that nobody reads.
 */
#include "torture.h"

#define EPS 3
#define CHUNK 400

enum shape { PLAIN, NESTED, EXCLUSIVE, SHAPES };

struct shared {
	struct pollux_efd *e, *end;
	struct pollux_ep *ep[EPS], *inner;
	enum shape shape;
	uint32_t mode;
	unsigned long written, taken, waits;
};

static void drain(struct shared *s)
{
	uint64_t v;

	while (pollux_efd_read(s->e, &v, 0) == 0)
		atomic_add(&s->taken, v);
}

static void reader(struct thread *t)
{
	struct shared *s = t->arg;
	struct pollux_ep *ep = s->ep[s->shape == EXCLUSIVE ? t->tid % EPS : 0];
	struct epoll_event ev[3];

	for (;;) {
		int n = pollux_ep_wait(ep, ev, 3, POLLUX_FOREVER);

		atomic_add(&s->waits, 1);
		if (n < 1)
			broken("a wait without limit returned %d", n);
		for (int i = 0; i < n; i++) {
			if (ev[i].data.u64 == 'z')
				return;
			if (s->shape == NESTED) {
				struct epoll_event in;

				if (pollux_ep_wait(s->inner, &in, 1, 0) < 0)
					broken("collecting the inner epoll");
			}
			drain(s);
			if (s->mode & EPOLLONESHOT)
				(void)ep_ctl(ep, EPOLL_CTL_MOD, pollux_efd_file(s->e), 0,
					     EPOLLIN | s->mode, 'a');
		}
	}
}

/* Writes in bursts, and lets the readers fall asleep in between. */
static void writer(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;

	while (!stopping()) {
		for (uint32_t n = 1 + rnd(&r) % 3; n; n--) {
			atomic_add(&s->written, 1);
			if (pollux_efd_write(s->e, 1, 0) != 0)
				broken("a write of 1 fits");
		}
		if (!await(atomic_get(&s->taken) + CHUNK > atomic_get(&s->written)) ||
		    !(rnd(&r) & 7 ||
		      await(atomic_get(&s->taken) == atomic_get(&s->written) || stopping())))
			broken("%lu written, %lu taken, and nobody moves", atomic_get(&s->written),
			       atomic_get(&s->taken));
	}
}

static void run(enum shape shape, uint32_t mode, int writers, int readers)
{
	struct shared s = {.e = efd_new(0, 0), .end = efd_new(0, 0), .shape = shape, .mode = mode};
	struct thread t[MAX_THREADS];
	int64_t start = now_ns();

	torture_begin();
	for (int i = 0; i < EPS; i++) {
		s.ep[i] = ep_new();
		ep_add(s.ep[i], pollux_efd_file(s.end), 0, EPOLLIN, 'z');
	}
	if (shape == NESTED) {
		s.inner = ep_new();
		ep_add(s.inner, pollux_efd_file(s.e), 0, EPOLLIN | mode, 'i');
		ep_add(s.ep[0], pollux_ep_file(s.inner), 0, EPOLLIN | mode, 'a');
	} else {
		for (int i = 0; i < (shape == EXCLUSIVE ? EPS : 1); i++)
			ep_add(s.ep[i], pollux_efd_file(s.e), 0,
			       EPOLLIN | mode | (shape == EXCLUSIVE ? EPOLLEXCLUSIVE : 0), 'a');
	}
	for (int i = 0; i < readers; i++)
		thread_start(&t[writers + i], reader, &s);
	for (int i = 0; i < writers; i++)
		thread_start(&t[i], writer, &s);
	/* There are many shapes: each has a part of the time. */
	while (torture_part_until(start, 3, atomic_get(&s.waits) > 10))
		sleep_ms(2);
	atomic_set(&torture_stop, 1);
	for (int i = 0; i < writers; i++)
		thread_join(&t[i]);
	assert_true(await(atomic_get(&s.taken) == atomic_get(&s.written)));
	efd_add(s.end, 1);
	for (int i = 0; i < readers; i++)
		thread_join(&t[writers + i]);
	assert_false(torture_failed);
	print_message("shape %d, mode %#x, %d -> %d: %lu written, %lu waits\n", shape, mode,
		      writers, readers, s.written, s.waits);
	assert_true(s.waits > 10);
	for (int i = 0; i < EPS; i++)
		ep_put(s.ep[i]);
	if (s.inner)
		ep_put(s.inner);
	efd_put(s.e);
	efd_put(s.end);
}

static void flat(void **state)
{
	(void)state;
	run(PLAIN, EPOLLET, 1, 1);
	run(PLAIN, EPOLLET, 3, 2);
	run(PLAIN, 0, 2, 3);
	run(PLAIN, EPOLLONESHOT, 2, 3);
}

static void nested(void **state)
{
	(void)state;
	run(NESTED, 0, 2, 2);
	run(NESTED, EPOLLET, 2, 2);
}

static void exclusive(void **state)
{
	(void)state;
	run(EXCLUSIVE, 0, 2, EPS * 2);
	run(EXCLUSIVE, EPOLLET, 2, EPS * 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(flat),
		TEST(nested),
		TEST(exclusive),
	};

	return RUN(tests);
}
