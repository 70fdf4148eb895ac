/* SPDX-License-Identifier: MIT */
/*
 * The number of watches is exact where nobody changes it, whoever has added and removed beside the
 * setting of limits.
 */
#include "torture.h"

#define THREADS 4
#define KEYS 100

struct world {
	struct meet m;
	struct pollux_ep *ep[THREADS];
	struct obj *o[THREADS];
	long held[THREADS];
	unsigned long changes, limits, rounds;
};

struct part {
	struct world *w;
	int id;
};

static void add(struct pollux_ep *ep, struct obj *o, int key)
{
	if (ep_ctl(ep, EPOLL_CTL_ADD, &o->file, key, EPOLLIN, 0))
		broken("ADD");
}

static void del(struct pollux_ep *ep, struct obj *o, int key)
{
	if (ep_del(ep, &o->file, key))
		broken("DEL");
}

/* Up and down by chance, beyond what a thread charges at a time. */
static void part(struct thread *t)
{
	struct part *p = t->arg;
	struct world *w = p->w;
	uint32_t r = (uint32_t)t->tid;

	while (meet(&w->m)) {
		long to = rnd(&r) % KEYS;

		while (w->held[p->id] != to && !stopping()) {
			if (w->held[p->id] < to)
				add(w->ep[p->id], w->o[p->id], (int)w->held[p->id]++);
			else
				del(w->ep[p->id], w->o[p->id], (int)--w->held[p->id]);
			atomic_add(&w->changes, 1);
		}
		/* The oracle counts. */
		if (!meet(&w->m))
			return;
	}
}

static void limiter(struct thread *t)
{
	struct world *w = t->arg;
	uint32_t r = (uint32_t)t->tid;

	while (!stopping()) {
		long n = pollux_ep_watches();

		if (n < 0 || n > THREADS * KEYS)
			broken("%ld watches", n);
		/* Near, far, none. None of them is ever reached. */
		pollux_ep_set_max_watches(rnd(&r) % 2 ? THREADS * KEYS : 1000000);
		atomic_add(&w->limits, 1);
		sched_yield();
	}
}

static void counts_are_exact_after_each_round(void **state)
{
	struct world w = {.m.n = THREADS + 1};
	struct part p[THREADS];
	struct thread t[THREADS + 1];
	int64_t start;

	(void)state;
	torture_begin();
	for (int i = 0; i < THREADS; i++) {
		w.ep[i] = ep_new();
		w.o[i] = obj_new(0);
		p[i] = (struct part){.w = &w, .id = i};
		thread_start(&t[i], part, &p[i]);
	}
	thread_start(&t[THREADS], limiter, &w);
	start = now_ns();
	while (torture_until(start, w.rounds > 0 && atomic_get(&w.limits) > 0) && meet(&w.m) &&
	       meet(&w.m)) {
		long sum = 0, n = pollux_ep_watches();

		for (int i = 0; i < THREADS; i++)
			sum += w.held[i];
		if (n != sum)
			broken("%ld watches, %ld counted", sum, n);
		w.rounds++;
	}
	torture_end(t, THREADS + 1);
	print_message("%lu changes, %lu limits, %lu rounds\n", w.changes, w.limits, w.rounds);
	assert_true(w.rounds > 0);
	for (int i = 0; i < THREADS; i++) {
		ep_put(w.ep[i]);
		obj_put(w.o[i]);
	}
	assert_int_equal(pollux_ep_watches(), 0);
	pollux_ep_set_max_watches(-1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(counts_are_exact_after_each_round),
	};

	return RUN(tests);
}
