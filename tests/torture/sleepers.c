/* SPDX-License-Identifier: MIT */
/*
 * As many events as sleepers let all sleepers go, one each: what arrives while
 * somebody collects, what does not fit, and what the bell told somebody else.
 */
#include "epoll/engine.h"

#include "torture.h"

#define N 4

struct shared {
	struct pollux_ep *ep;
	struct obj *o[N];
	int64_t timeout;
	bool stand_in;
	unsigned long got, timed_out, rounds;
	int quit;
};

struct sleeper {
	struct shared *s;
	unsigned long turn;
	uint32_t random;
};

/* As a waiter does that spins while others sleep. */
static void spin(struct sleeper *me)
{
	bool came = false;

	plx_ep_stand_in(me->s->ep);
	for (uint32_t i = rnd(&me->random) % 64; i && !came; i--) {
		if (!(rnd(&me->random) & 31))
			sched_yield();
		came = !plx_ready_empty(me->s->ep);
	}
	plx_ep_stand_down(me->s->ep, came);
}

/* One event a round. */
static void sleeper(struct thread *t)
{
	struct sleeper *me = t->arg;
	struct shared *s = me->s;

	while (!atomic_get(&s->quit)) {
		struct epoll_event ev;
		int n;

		if (atomic_get(&s->rounds) == me->turn) {
			sched_yield();
			continue;
		}
		if (s->stand_in)
			spin(me);
		n = pollux_ep_wait(s->ep, &ev, 1, s->timeout);
		if (n == 1) {
			me->turn++;
			atomic_add(&s->got, 1);
		} else if (n == 0) {
			atomic_add(&s->timed_out, 1);
		} else {
			broken("a wait returned %d", n);
		}
	}
}

static void run(uint32_t mode, int64_t timeout, bool stand_in)
{
	struct shared s = {.ep = ep_new(), .timeout = timeout, .stand_in = stand_in};
	struct sleeper me[N];
	struct thread t[N];
	unsigned long asleep = points_passed("announce_before_look");
	unsigned long rung = points_passed("bell_before_unpark");
	uint32_t r = 7;
	int64_t start = now_ns();

	torture_begin();
	for (int i = 0; i < N; i++) {
		s.o[i] = obj_new(0);
		ep_add(s.ep, &s.o[i]->file, 0, EPOLLIN | mode, i);
		me[i] = (struct sleeper){.s = &s, .random = i + 1};
		thread_start(&t[i], sleeper, &me[i]);
	}
	while (torture_part_until(start, 2,
				  s.rounds > 20 &&
					  points_passed("bell_before_unpark") > rung + 20 &&
					  (timeout <= 0 || atomic_get(&s.timed_out)))) {
		unsigned long round = atomic_add(&s.rounds, 1) + 1;

		/* Sometimes all sleep before the first event, sometimes none. */
		for (uint32_t i = rnd(&r) % 2000; i; i--)
			__asm__ __volatile__("" ::: "memory");
		if (!(rnd(&r) & 15))
			sleep_ms(1);
		for (int i = 0; i < N; i++)
			obj_fire(s.o[i], EPOLLIN, EPOLLIN);
		if (!await(atomic_get(&s.got) == N * round))
			broken("round %lu: %lu events for %d sleepers", round,
			       s.got - N * (round - 1), N);
		for (int i = 0; i < N; i++)
			obj_set(s.o[i], 0);
	}
	atomic_set(&s.quit, 1);
	torture_end(t, N);
	asleep = points_passed("announce_before_look") - asleep;
	rung = points_passed("bell_before_unpark") - rung;
	print_message("mode %#x: %lu rounds, %lu announced, %lu rung, %lu timed out\n", mode,
		      s.rounds, asleep, rung, s.timed_out);
	assert_true(s.rounds > 20);
	assert_true(rung > 20);
	if (timeout > 0)
		assert_true(s.timed_out > 0);
	ep_put(s.ep);
	for (int i = 0; i < N; i++)
		obj_put(s.o[i]);
}

static void edges(void **state)
{
	(void)state;
	run(EPOLLET, POLLUX_FOREVER, false);
}

static void levels(void **state)
{
	(void)state;
	run(0, POLLUX_FOREVER, false);
}

/* Some leave by time-out just as they are chosen (EP-WAKE-09). */
static void time_outs(void **state)
{
	(void)state;
	run(EPOLLET, 60000, false);
}

/* Some spin before they sleep, while others sleep already. */
static void spinners(void **state)
{
	(void)state;
	run(EPOLLET, POLLUX_FOREVER, true);
	run(0, POLLUX_FOREVER, true);
}

/* In a busy epoll who spins takes the place of a ring; what it leaves behind is rung for. */
static void a_spinner_stands_in_for_a_ring(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *a = obj_new(0), *b = obj_new(0);
	struct waiter *w;
	unsigned long rung;

	(void)state;
	torture_begin();
	points_delay(false);
	ep_add(ep, &a->file, 0, EPOLLIN | EPOLLET, 'a');
	ep_add(ep, &b->file, 0, EPOLLIN | EPOLLET, 'b');
	for (int busy = 0; busy < 2; busy++) {
		int64_t at = busy ? now_ns() + 3600 * 1000000000ll : 0;

		w = waiter_new(ep, 1);
		rung = points_passed("bell_before_unpark");
		atomic_set(&ep->collected_at, at);
		plx_ep_stand_in(ep);
		obj_fire(a, EPOLLIN, EPOLLIN);
		assert_int_equal(points_passed("bell_before_unpark"), rung + !busy);
		if (busy) {
			plx_ep_stand_down(ep, true);
			assert_one(ep, EPOLLIN, 'a');
			atomic_set(&ep->collected_at, at);
			obj_fire(b, EPOLLIN, EPOLLIN);
			waiter_gets(w, 'b');
		} else {
			waiter_gets(w, 'a');
			plx_ep_stand_down(ep, false);
		}
		assert_none(ep);
		obj_set(a, 0);
		obj_set(b, 0);
	}
	ep_put(ep);
	obj_put(a);
	obj_put(b);
}

/* What arrives while another thread collects wakes a sleeper. */
struct slow {
	struct obj *fire;
};

static int slow_sink(void *arg, uint32_t events, uint64_t data)
{
	struct slow *s = arg;

	(void)events;
	if (data == 'a')
		obj_fire(s->fire, EPOLLIN, EPOLLIN);
	return 0;
}

static void arrival_during_a_collection(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *a = obj_new(0), *b = obj_new(0);
	struct slow s = {.fire = b};

	(void)state;
	torture_begin();
	ep_add(ep, &a->file, 0, EPOLLIN | EPOLLET, 'a');
	ep_add(ep, &b->file, 0, EPOLLIN | EPOLLET, 'b');
	for (int i = 0; i < 50; i++) {
		struct waiter *w;

		/* a is on the list, and still a thread sleeps: it was woken for nothing. */
		obj_set(a, EPOLLIN);
		w = waiter_new(ep, 1);
		plx_lock(&ep->mtx, PLX_RANK_EP);
		pollux_file_wake(&a->file, EPOLLIN);
		plx_unlock(&ep->mtx, PLX_RANK_EP);
		if (plx_ep_harvest(ep, slow_sink, &s, 1) == 1)
			waiter_gets(w, 'b');
		else
			waiter_gets(w, 'a');
		obj_set(b, 0);
		obj_set(a, 0);
		(void)pollux_ep_wait(ep, &(struct epoll_event){0}, 1, 0);
	}
	ep_put(ep);
	obj_put(a);
	obj_put(b);
}

/* An event that comes between the last look at the list and the sleep. */
struct announcer {
	struct thread t;
	struct gate g;
	const char *point;
	struct pollux_ep *ep;
	int n;
};

static void announcer(struct thread *t)
{
	struct announcer *a = t->arg;
	struct epoll_event ev;

	gate_arm(&a->g, a->point);
	a->n = pollux_ep_wait(a->ep, &ev, 1, POLLUX_FOREVER);
}

static void arrival_before_the_sleep(void **state)
{
	static const char *const point[] = {"announce_before_count", "announce_before_look"};

	(void)state;
	torture_begin();
	points_delay(false);
	for (int i = 0; i < 20; i++) {
		struct obj *o = obj_new(0);
		struct announcer a = {.point = point[i & 1], .ep = ep_new()};

		ep_add(a.ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
		thread_start(&a.t, announcer, &a);
		assert_true(gate_reached(&a.g));
		obj_fire(o, EPOLLIN, EPOLLIN);
		gate_open(&a.g);
		thread_join(&a.t);
		assert_int_equal(a.n, 1);
		ep_put(a.ep);
		obj_put(o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(edges),
		TEST(levels),
		TEST(time_outs),
		TEST(spinners),
		TEST(a_spinner_stands_in_for_a_ring),
		TEST(arrival_during_a_collection),
		TEST(arrival_before_the_sleep),
	};

	return RUN(tests);
}
