/* SPDX-License-Identifier: MIT */
/*
 * When DEL has returned, no later collection reports the item, also if a producer of
 * it was under way; and DEL with ADD reports a ready object anew.
 */
#include "torture.h"

struct deleter {
	struct thread t;
	struct pollux_ep *ep;
	struct pollux_file *f;
	int r;
};

static void deleter(struct thread *t)
{
	struct deleter *d = t->arg;

	d->r = ep_del(d->ep, d->f, 0);
}

static void waits_for_a_producer_under_way(void **state)
{
	static const char *const point[] = {"push_before_link", "push_before_pushed",
					    "queue_before_mark", "add_before_cas"};

	(void)state;
	torture_begin();
	points_delay(false);
	for (int p = 0; p < 4; p++) {
		for (int secondary = 0; secondary < 2; secondary++) {
			struct pollux_ep *ep = ep_new(), *other = ep_new();
			struct pollux_efd *e = efd_new(0, 0);
			struct deleter d = {.ep = ep, .f = pollux_efd_file(e)};
			struct stopped s;

			if (secondary) {
				if (p == 3) {
					ep_put(ep);
					ep_put(other);
					efd_put(e);
					continue;
				}
				/* Newest first: the second of two items is met first. */
				ep_add(other, pollux_efd_file(e), 0, EPOLLOUT, 'o');
			} else if (p == 2) {
				/* Reached without the fast way: the key is not IN alone. */
				ep_put(ep);
				ep_put(other);
				efd_put(e);
				continue;
			}
			ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'a');
			stopped_start(&s, point[p], e, NULL);
			thread_start(&d.t, deleter, &d);
			if (p == 0) {
				/* Marked and not pushed: DEL has to wait. */
				assert_true(thread_in_steps(&d.t));
				sleep_ms(QUIET_MS);
				assert_false(thread_done(&d.t));
				stopped_go(&s);
				thread_join(&d.t);
			} else {
				thread_join(&d.t);
				assert_none(ep);
				/* Registered anew while the old producer still stands there. */
				if (p == 1) {
					ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'b');
					assert_one(ep, EPOLLIN, 'b');
					assert_none(ep);
					assert_int_equal(ep_del(ep, pollux_efd_file(e), 0), 0);
				}
				stopped_go(&s);
			}
			assert_int_equal(d.r, 0);
			assert_none(ep);
			assert_int_equal(pollux_efd_count(e), 1);
			ep_add(ep, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'c');
			assert_one(ep, EPOLLIN, 'c');
			for (int i = 0; i < 3; i++) {
				efd_add(e, 1);
				assert_one(ep, EPOLLIN, 'c');
				assert_none(ep);
			}
			ep_put(ep);
			ep_put(other);
			efd_put(e);
		}
	}
}

/* A stale producer of the file's first item meets the item that has come after it. */
static void a_stale_producer_does_not_touch_the_next_item(void **state)
{
	struct pollux_ep *one = ep_new(), *two = ep_new();
	struct pollux_efd *e = efd_new(0, 0);
	struct stopped s;

	(void)state;
	torture_begin();
	points_delay(false);
	ep_add(one, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'a');
	stopped_start(&s, "add_before_cas", e, NULL);
	assert_int_equal(ep_del(one, pollux_efd_file(e), 0), 0);
	ep_add(two, pollux_efd_file(e), 0, EPOLLIN | EPOLLET, 'b');
	stopped_go(&s);
	assert_none(one);
	assert_one(two, EPOLLIN, 'b');
	assert_none(two);
	efd_add(e, 1);
	assert_one(two, EPOLLIN, 'b');
	assert_none(one);
	ep_put(one);
	ep_put(two);
	efd_put(e);
}

struct shared {
	struct pollux_ep *ep;
	struct pollux_efd *e;
	uint64_t alive;
	unsigned long events, writes, dels;
};

static void writer(struct thread *t)
{
	struct shared *s = t->arg;

	for (; !stopping(); atomic_add(&s->writes, 1))
		(void)pollux_efd_write(s->e, 1, 0);
}

static void collector(struct thread *t)
{
	struct shared *s = t->arg;

	while (!stopping()) {
		uint64_t alive = atomic_get(&s->alive);
		struct epoll_event ev[2];
		int n = pollux_ep_wait(s->ep, ev, 2, 0);

		if (n > 1)
			broken("one item, %d events", n);
		if (n == 1 && ev[0].data.u64 < alive)
			broken("registration %llu reported after it had gone (%llu)",
			       (unsigned long long)ev[0].data.u64, (unsigned long long)alive);
		atomic_add(&s->events, n == 1);
	}
}

static void random_dels(void **state)
{
	(void)state;
	for (int mode = 0; mode < 2; mode++) {
		struct shared s = {.ep = ep_new(), .e = efd_new(0, 0), .alive = 1};
		struct thread t[4];
		int64_t start = now_ns();

		torture_begin();
		for (int i = 0; i < 4; i++)
			thread_start(&t[i], i < 2 ? writer : collector, &s);
		for (uint64_t gen = 1;
		     torture_until(start, s.dels > 50 && atomic_get(&s.events) > 50); gen++) {
			if (ep_ctl(s.ep, EPOLL_CTL_ADD, pollux_efd_file(s.e), 0,
				   EPOLLIN | (mode ? EPOLLET : 0), gen) != 0)
				broken("ADD failed");
			for (int i = gen % 16 == 0; i; i--)
				sched_yield();
			if (ep_del(s.ep, pollux_efd_file(s.e), 0) != 0)
				broken("DEL failed");
			atomic_set(&s.alive, gen + 1);
			s.dels++;
		}
		torture_end(t, 4);
		print_message("%lu DELs, %lu writes, %lu events\n", s.dels, s.writes, s.events);
		assert_true(s.dels > 50 && s.events > 50);
		assert_none(s.ep);
		ep_put(s.ep);
		efd_put(s.e);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(waits_for_a_producer_under_way),
		TEST(a_stale_producer_does_not_touch_the_next_item),
		TEST(random_dels),
	};

	return RUN(tests);
}
