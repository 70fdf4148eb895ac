/* SPDX-License-Identifier: MIT */
/*
 * The number of watches is exact whenever it is asked for, however many threads hold credits and
 * are about to use them.
 */
#include "torture.h"

#define THREADS 4
#define KEYS 100

struct world {
	struct meet m;
	struct pollux_ep *ep[THREADS];
	struct obj *o[THREADS];
	long held[THREADS];
	unsigned long changes, recalls, rounds;
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

static void recaller(struct thread *t)
{
	struct world *w = t->arg;
	uint32_t r = (uint32_t)t->tid;

	while (!stopping()) {
		long n = pollux_ep_watches();

		if (n < 0 || n > THREADS * KEYS)
			broken("%ld watches", n);
		/* Near, far, none. None of them is ever reached. */
		pollux_ep_set_max_watches(rnd(&r) % 2 ? THREADS * KEYS : 1000000);
		atomic_add(&w->recalls, 1);
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
	thread_start(&t[THREADS], recaller, &w);
	start = now_ns();
	while (torture_until(start, w.rounds > 0 && atomic_get(&w.recalls) > 0) && meet(&w.m) &&
	       meet(&w.m)) {
		long sum = 0, n = pollux_ep_watches();

		for (int i = 0; i < THREADS; i++)
			sum += w.held[i];
		if (n != sum)
			broken("%ld watches, %ld counted", sum, n);
		w.rounds++;
	}
	torture_end(t, THREADS + 1);
	print_message("%lu changes, %lu recalls, %lu rounds\n", w.changes, w.recalls, w.rounds);
	assert_true(w.rounds > 0);
	for (int i = 0; i < THREADS; i++) {
		ep_put(w.ep[i]);
		obj_put(w.o[i]);
	}
	assert_int_equal(pollux_ep_watches(), 0);
	pollux_ep_set_max_watches(-1);
}

struct one {
	struct pollux_ep *ep;
	struct obj *o;
	struct gate g;
	long counted;
	int done;
};

/* Has a credit, and is stopped where it is about to use it up by one more. */
static void stopped_adder(struct thread *t)
{
	struct one *o = t->arg;

	add(o->ep, o->o, 0);
	gate_arm(&o->g, "credit_entered");
	add(o->ep, o->o, 1);
}

static void counter(struct thread *t)
{
	struct one *o = t->arg;

	o->counted = pollux_ep_watches();
	atomic_set(&o->done, 1);
}

static void who_is_about_to_use_its_credit_is_waited_for(void **state)
{
	struct one o = {.ep = ep_new(), .o = obj_new(0)};
	struct thread t[2];

	(void)state;
	points_delay(false);
	torture_stop = torture_failed = 0;
	thread_start(&t[0], stopped_adder, &o);
	assert_true(gate_reached(&o.g));
	thread_start(&t[1], counter, &o);
	sleep_ms(30);
	assert_false(atomic_get(&o.done));
	gate_open(&o.g);
	torture_end(t, 2);
	/* Its watch was charged by then. */
	assert_int_equal(o.counted, 2);
	ep_put(o.ep);
	obj_put(o.o);
	assert_int_equal(pollux_ep_watches(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(counts_are_exact_after_each_round),
		TEST(who_is_about_to_use_its_credit_is_waited_for),
	};

	return RUN(tests);
}
