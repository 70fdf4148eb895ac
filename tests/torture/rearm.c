/* SPDX-License-Identifier: MIT */
/*
 * A MOD that arms an item again whose one-shot event has been delivered goes beside a collection,
 * and beside other MODs, writes and removals: each event has the data of its MOD, and none is lost.
 */
#include "torture.h"

#define ITEMS 4

struct shared {
	struct pollux_ep *ep;
	struct pollux_efd *e[ITEMS];
	unsigned long events, misses;
};

static void shared_new(struct shared *s)
{
	memset(s, 0, sizeof(*s));
	s->ep = ep_new();
	for (int i = 0; i < ITEMS; i++) {
		s->e[i] = efd_new(0, 0);
		ep_add(s->ep, pollux_efd_file(s->e[i]), 0, EPOLLIN | EPOLLONESHOT, i);
	}
}

static void shared_put(struct shared *s)
{
	ep_put(s->ep);
	for (int i = 0; i < ITEMS; i++)
		efd_put(s->e[i]);
}

/* Threads are stopped by gates alone. */
static void at_gates(struct shared *s)
{
	torture_begin();
	points_delay(false);
	shared_new(s);
}

static void gates_end(struct shared *s)
{
	assert_false(torture_failed);
	shared_put(s);
}

/* --- beside a collection --------------------------------------------------------------- */

struct collection {
	const char *point;
	struct pollux_ep *ep;
	struct gate g;
	int got;
};

static void collect_to_gate(struct thread *t)
{
	struct collection *c = t->arg;
	struct epoll_event ev[ITEMS];

	gate_arm(&c->g, c->point);
	c->got = pollux_ep_wait(c->ep, ev, ITEMS, 0);
}

static void arm_again(struct thread *t)
{
	struct shared *s = t->arg;

	check(ep_ctl(s->ep, EPOLL_CTL_MOD, pollux_efd_file(s->e[1]), 0, EPOLLIN | EPOLLONESHOT,
		     7) == 0);
}

static void beside_a_collection(void **state)
{
	struct epoll_event ev[ITEMS];
	struct collection c = {.point = "unmark_before_sample"};
	struct thread collector, armer;
	struct shared s;
	uint64_t v;

	(void)state;
	at_gates(&s);
	c.ep = s.ep;
	efd_add(s.e[1], 1);
	assert_int_equal(pollux_ep_wait(s.ep, ev, ITEMS, 0), 1);
	assert_int_equal(pollux_efd_read(s.e[1], &v, 0), 0);
	efd_add(s.e[0], 1);
	start_to_gate(&collector, collect_to_gate, &c, &c.g);
	/* The collection has the mutex of the epoll, and stands. */
	thread_start(&armer, arm_again, &s);
	assert_true(await(thread_done(&armer)));
	thread_join(&armer);
	/* The event comes in the next collection. */
	efd_add(s.e[1], 1);
	gate_open(&c.g);
	thread_join(&collector);
	assert_int_equal(c.got, 1);
	assert_int_equal(pollux_ep_wait(s.ep, ev, ITEMS, 0), 1);
	assert_int_equal(ev[0].data.u64, 7);
	gates_end(&s);
}

/* --- beside a MOD with the mutex ------------------------------------------------------- */

struct change {
	struct pollux_ep *ep;
	struct pollux_file *f;
	const char *point;
	struct gate g;
	uint32_t events;
	bool edges;
};

static void change(struct thread *t)
{
	struct change *c = t->arg;

	if (c->point)
		gate_arm(&c->g, c->point);
	check(ep_ctl(c->ep, EPOLL_CTL_MOD, c->f, 0, c->events | (c->edges ? EPOLLET : EPOLLONESHOT),
		     c->events) == 0);
}

/* One has found the item armed, and changes it when the event has been delivered. */
static void two_do_not_mix(void **state)
{
	struct change c = {.point = "ctl_before_mutex", .events = EPOLLOUT};
	struct change again = {.events = EPOLLIN};
	struct gate events = {0};
	struct thread one, two;
	struct epoll_event ev;
	struct shared s;

	(void)state;
	at_gates(&s);
	c.ep = again.ep = s.ep;
	c.f = again.f = pollux_efd_file(s.e[0]);
	start_to_gate(&one, change, &c, &c.g);
	efd_add(s.e[0], 1);
	assert_int_equal(pollux_ep_wait(s.ep, &ev, 1, 0), 1);
	gate_arm_any(&events, "mod_before_events");
	gate_open(&c.g);
	assert_true(gate_reached(&events));
	thread_start(&two, change, &again);
	sleep_ms(20);
	gate_open(&events);
	thread_join(&one);
	thread_join(&two);
	assert_int_equal(pollux_ep_wait(s.ep, &ev, 1, 0), 1);
	assert_int_equal(ev.events, ev.data.u32);
	gates_end(&s);
}

/* A producer that saw it armed before queues it while it is armed again. */
static void queued_while_it_is_armed(void **state)
{
	struct change c = {.point = "rearm_before_arm", .ep = ep_new(), .events = EPOLLIN};
	struct collection taken = {.point = "unmark_before_mark", .ep = c.ep};
	struct obj *o = obj_new(0);
	struct thread one, collector;
	struct stopped late;
	struct epoll_event ev;

	(void)state;
	torture_begin();
	points_delay(false);
	c.f = &o->file;
	ep_add(c.ep, c.f, 0, EPOLLIN | EPOLLONESHOT, 0);
	stopped_start(&late, "queue_before_mark", NULL, o);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_int_equal(pollux_ep_wait(c.ep, &ev, 1, 0), 1);
	obj_set(o, 0);
	start_to_gate(&one, change, &c, &c.g);
	stopped_go(&late);
	start_to_gate(&collector, collect_to_gate, &taken, &taken.g);
	gate_open(&c.g);
	thread_join(&one);
	/* It finds the item queued. */
	obj_fire(o, EPOLLIN, EPOLLIN);
	gate_open(&taken.g);
	thread_join(&collector);
	assert_int_equal(taken.got, 1);
	assert_false(torture_failed);
	ep_put(c.ep);
	obj_put(o);
}

/* What it finds ready has been delivered before it comes to queue it. */
static void an_edge_comes_once(void **state)
{
	struct change c = {.point = "rearm_before_queue", .events = EPOLLIN, .edges = true};
	struct epoll_event ev;
	struct thread one;
	struct shared s;

	(void)state;
	at_gates(&s);
	c.ep = s.ep;
	c.f = pollux_efd_file(s.e[0]);
	efd_add(s.e[0], 1);
	assert_int_equal(pollux_ep_wait(s.ep, &ev, 1, 0), 1);
	start_to_gate(&one, change, &c, &c.g);
	efd_add(s.e[0], 1);
	assert_int_equal(pollux_ep_wait(s.ep, &ev, 1, 0), 1);
	gate_open(&c.g);
	thread_join(&one);
	assert_none(s.ep);
	gates_end(&s);
}

struct delivery {
	struct change c;
	struct thread t;
};

static int changed_meanwhile(void *arg, uint32_t events, uint64_t data)
{
	struct delivery *d = arg;

	check(events == EPOLLIN && data == 0);
	thread_start(&d->t, change, &d->c);
	sleep_ms(20);
	return 0;
}

/* Until its event has been delivered the item is armed. */
static void after_the_delivery(void **state)
{
	struct delivery d = {.c.events = EPOLLIN};
	struct epoll_event ev;
	struct shared s;

	(void)state;
	at_gates(&s);
	d.c.ep = s.ep;
	d.c.f = pollux_efd_file(s.e[0]);
	efd_add(s.e[0], 1);
	assert_int_equal(pollux_ep_collect(s.ep, changed_meanwhile, &d, 1, 0, NULL), 1);
	thread_join(&d.t);
	assert_int_equal(pollux_ep_wait(s.ep, &ev, 1, 0), 1);
	assert_int_equal(ev.data.u32, EPOLLIN);
	gates_end(&s);
}

/* --- with the right data --------------------------------------------------------------- */

/* The data are the events that are wanted, and an eventfd may have both. */
static void armer(struct thread *t)
{
	static const uint32_t wanted[] = {EPOLLIN, EPOLLOUT, EPOLLIN | EPOLLOUT};
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;

	while (!stopping()) {
		struct pollux_file *f = pollux_efd_file(s->e[rnd(&r) % ITEMS]);
		uint32_t events = wanted[rnd(&r) % 3];
		int n = ep_ctl(s->ep, EPOLL_CTL_MOD, f, 0,
			       events | (rnd(&r) % 8 ? EPOLLONESHOT : EPOLLET), events);

		check(n == 0 || n == -ENOENT);
		if (n)
			atomic_add(&s->misses, 1);
	}
}

static void remover(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;

	while (!stopping()) {
		struct pollux_file *f = pollux_efd_file(s->e[rnd(&r) % ITEMS]);

		(void)pollux_ep_del(s->ep, f, 0);
		sleep_ms(rnd(&r) % 2);
		check(ep_ctl(s->ep, EPOLL_CTL_ADD, f, 0, EPOLLIN | EPOLLONESHOT, EPOLLIN) == 0);
	}
}

static void filler(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;
	uint64_t v;

	while (!stopping()) {
		struct pollux_efd *e = s->e[rnd(&r) % ITEMS];

		if (rnd(&r) & 1)
			efd_add(e, 1);
		else
			(void)pollux_efd_read(e, &v, 0);
	}
}

static void collector(struct thread *t)
{
	struct shared *s = t->arg;
	struct epoll_event ev[ITEMS];

	while (!stopping()) {
		int n = pollux_ep_wait(s->ep, ev, ITEMS, 1000000);

		for (int k = 0; k < n; k++) {
			if (ev[k].events & ~ev[k].data.u32)
				broken("%x reported, where %x is wanted", ev[k].events,
				       ev[k].data.u32);
			atomic_add(&s->events, 1);
		}
	}
}

static void right_data(void **state)
{
	static void (*const run[])(struct thread *) = {armer,  armer,	  armer,    remover,
						       filler, collector, collector};
	unsigned long armed = points_passed("rearm_before_arm"), met;
	struct thread t[sizeof(run) / sizeof(run[0])];
	int n = sizeof(run) / sizeof(run[0]);
	struct epoll_event ev[ITEMS];
	struct shared s;

	(void)state;
	torture_begin();
	shared_new(&s);
	for (int i = 0; i < ITEMS; i++)
		ep_ctl(s.ep, EPOLL_CTL_MOD, pollux_efd_file(s.e[i]), 0, EPOLLIN | EPOLLONESHOT,
		       EPOLLIN);
	for (int i = 0; i < n; i++)
		thread_start(&t[i], run[i], &s);
	torture_sleep_until(points_passed("rearm_before_arm") > armed + 100 &&
			    atomic_get(&s.misses) > 0);
	torture_end(t, n);
	met = points_passed("rearm_before_arm") - armed;
	print_message("%lu events, %lu MODs without the mutex, %lu of nothing\n", s.events, met,
		      s.misses);
	assert_true(met > 100);
	/* All are armed again, and are there once. */
	for (int i = 0; i < ITEMS; i++)
		assert_int_equal(ep_ctl(s.ep, EPOLL_CTL_MOD, pollux_efd_file(s.e[i]), 0,
					EPOLLOUT | EPOLLONESHOT, EPOLLOUT),
				 0);
	assert_int_equal(pollux_ep_wait(s.ep, ev, ITEMS, 0), ITEMS);
	assert_none(s.ep);
	shared_put(&s);
}

/* --- shown whole ----------------------------------------------------------------------- */

static int look(void *arg, struct pollux_file *f, int key, const struct epoll_event *ev)
{
	struct shared *s = arg;

	(void)key;
	if (f == pollux_efd_file(s->e[0]) && !(ev->events & (EPOLLIN | EPOLLOUT)) &&
	    ev->data.u32 != EPOLLOUT)
		broken("disarmed, with the data of what has not been reported");
	return 0;
}

static void looker(struct thread *t)
{
	struct shared *s = t->arg;

	while (!stopping()) {
		(void)pollux_ep_for_each(s->ep, look, s);
		atomic_add(&s->events, 1);
	}
}

/* It is armed for what is not there, then for what is, and only that is reported. */
static void shown_whole(void **state)
{
	unsigned long armed = points_passed("rearm_before_arm"), met = 0;
	int64_t start = now_ns();
	struct pollux_file *f;
	struct thread t;
	struct shared s;

	(void)state;
	torture_begin();
	shared_new(&s);
	f = pollux_efd_file(s.e[0]);
	check(ep_ctl(s.ep, EPOLL_CTL_MOD, f, 0, EPOLLOUT | EPOLLONESHOT, EPOLLOUT) == 0);
	thread_start(&t, looker, &s);
	while (torture_until(start, met > 100 && atomic_get(&s.events) > 100)) {
		struct epoll_event ev;

		check(pollux_ep_wait(s.ep, &ev, 1, 0) == 1);
		check(ep_ctl(s.ep, EPOLL_CTL_MOD, f, 0, EPOLLIN | EPOLLONESHOT, EPOLLIN) == 0);
		check(ep_ctl(s.ep, EPOLL_CTL_MOD, f, 0, EPOLLOUT | EPOLLONESHOT, EPOLLOUT) == 0);
		met = points_passed("rearm_before_arm") - armed;
	}
	torture_end(&t, 1);
	print_message("%lu looks, %lu MODs without the mutex\n", s.events, met);
	assert_true(met > 100);
	shared_put(&s);
}

/* --- and none is lost ------------------------------------------------------------------ */

static void reader(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;
	struct epoll_event ev[ITEMS];
	uint64_t v;

	while (!stopping()) {
		int n = pollux_ep_wait(s->ep, ev, 1 + rnd(&r) % ITEMS, 1000000);

		for (int k = 0; k < n; k++) {
			struct pollux_efd *e = s->e[ev[k].data.u32];

			check(pollux_efd_read(e, &v, 0) == 0);
			check(ep_ctl(s->ep, EPOLL_CTL_MOD, pollux_efd_file(e), 0,
				     EPOLLIN | EPOLLONESHOT | (rnd(&r) & 1 ? EPOLLET : 0),
				     ev[k].data.u32) == 0);
			atomic_add(&s->events, 1);
		}
	}
}

static void writer(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t r = (uint32_t)t->tid;

	while (!stopping())
		efd_add(s->e[rnd(&r) % ITEMS], 1);
}

static void none_lost(void **state)
{
	unsigned long armed = points_passed("rearm_before_arm"), met;
	struct epoll_event ev[ITEMS];
	struct thread t[5];
	struct shared s;
	uint64_t v;

	(void)state;
	torture_begin();
	shared_new(&s);
	for (int i = 0; i < 5; i++)
		thread_start(&t[i], i < 2 ? writer : reader, &s);
	torture_sleep_until(points_passed("rearm_before_arm") > armed + 100);
	torture_end(t, 5);
	met = points_passed("rearm_before_arm") - armed;
	print_message("%lu events, %lu MODs without the mutex\n", s.events, met);
	assert_true(met > 100);
	/* All are armed: what has been written since the last event of it is reported, once. */
	for (int n = pollux_ep_wait(s.ep, ev, ITEMS, 0); n-- > 0;)
		assert_int_equal(pollux_efd_read(s.e[ev[n].data.u32], &v, 0), 0);
	for (int i = 0; i < ITEMS; i++)
		assert_int_equal(pollux_efd_read(s.e[i], &v, 0), -EAGAIN);
	assert_none(s.ep);
	shared_put(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(beside_a_collection), TEST(two_do_not_mix),     TEST(queued_while_it_is_armed),
		TEST(an_edge_comes_once),  TEST(after_the_delivery), TEST(right_data),
		TEST(shown_whole),	   TEST(none_lost),
	};

	return RUN(tests);
}
