/* SPDX-License-Identifier: MIT */
/*
 * Threads collect edges and refuse some: each edge is taken by exactly one of them, and none is
 * lost.
 */
#include "torture.h"

#define OBJECTS 3
#define THREADS 3

struct shared {
	struct pollux_ep *ep;
	struct obj *o[OBJECTS];
	/* Fired and not taken yet: 0 or 1. */
	int out[OBJECTS];
	unsigned long taken, refused;
};

struct collector {
	struct thread t;
	struct shared *s;
	const sigset_t *mask;
	uint32_t seed;
};

static int take(void *arg, uint32_t events, uint64_t data)
{
	struct collector *c = arg;

	check(events == EPOLLIN && data < OBJECTS);
	if (rnd(&c->seed) % 3 == 0) {
		atomic_add(&c->s->refused, 1);
		return -EFAULT;
	}
	obj_set(c->s->o[data], 0);
	if (atomic_add(&c->s->out[data], -1) != 1)
		broken("an edge is taken twice");
	atomic_add(&c->s->taken, 1);
	return 0;
}

static void collects(struct thread *t)
{
	struct collector *c = t->arg;

	while (!stopping()) {
		int r = pollux_ep_collect(c->s->ep, take, c, 1 + (int)(rnd(&c->seed) % OBJECTS),
					  rnd(&c->seed) % 2 ? 0 : POLLUX_FOREVER, c->mask);

		check((r >= 0 && r <= OBJECTS) || r == -EFAULT || r == -ESHUTDOWN);
	}
}

static void edges(const sigset_t *first, const sigset_t *others)
{
	struct shared s = {.ep = ep_new()};
	struct collector c[THREADS];
	struct thread *t[THREADS];
	unsigned long fired = 0;
	int64_t start = now_ns();

	for (int i = 0; i < OBJECTS; i++) {
		s.o[i] = obj_new(0);
		ep_add(s.ep, &s.o[i]->file, 0, EPOLLIN | EPOLLET, (uint64_t)i);
	}
	torture_begin();
	for (int i = 0; i < THREADS; i++) {
		c[i] = (struct collector){.s = &s, .mask = i ? others : first, .seed = 11 + i};
		t[i] = &c[i].t;
		thread_start(t[i], collects, &c[i]);
	}
	while (torture_until(start, fired > 200 && atomic_get(&s.refused) > 20)) {
		int i = (int)(fired % OBJECTS);

		atomic_add(&s.out[i], 1);
		obj_fire(s.o[i], EPOLLIN, EPOLLIN);
		fired++;
		/* One at a time, so that the next does not make up for one that is lost. */
		if (!await(!atomic_get(&s.out[i]) || stopping()))
			broken("edge %lu is lost", fired);
	}
	atomic_set(&torture_stop, 1);
	pollux_ep_shutdown(s.ep);
	for (int i = 0; i < THREADS; i++)
		thread_join(t[i]);
	printf("%lu edges, %lu refusals\n", fired, s.refused);
	assert_false(torture_failed);
	assert_int_equal(s.taken, fired);
	for (int i = 0; i < OBJECTS; i++)
		obj_put(s.o[i]);
	ep_put(s.ep);
}

static void each_edge_is_taken_once(void **state)
{
	(void)state;
	edges(NULL, NULL);
}

/* All sleep in the kernel then, or move there. */
static void so_it_is_with_masks(void **state)
{
	sigset_t none;

	(void)state;
	sigemptyset(&none);
	edges(&none, &none);
	edges(&none, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(each_edge_is_taken_once),
		TEST(so_it_is_with_masks),
	};

	return RUN(tests);
}
