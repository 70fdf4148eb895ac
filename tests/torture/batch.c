/* SPDX-License-Identifier: MIT */
/*
 * Threads are at the events of their batches while the objects are removed, put and freed: no
 * object is freed, and no call of after its removal is made, while a thread is at an event of it.
 */
#include "torture.h"

#include <pollux/read.h>
#include <sys/eventfd.h>

#define OBJECTS 64
#define WORKERS 2

/* In a pool, so that a thread that comes late sees it. */
struct target {
	struct pollux_file file;
	uint32_t users;
	uint32_t alive;
	/* Its free operation and its call, which put it back into the pool. */
	uint32_t ends;
};

struct shared {
	struct pollux_ep *ep;
	struct target x[OBJECTS];
	unsigned long events, late, freed, called;
};

static struct shared s;

static uint32_t target_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	(void)wanted;
	return EPOLLIN;
}

static void end(struct target *x)
{
	if (atomic_get(&x->users))
		broken("an object ends while a thread is at an event of it");
	if (__atomic_sub_fetch(&x->ends, 1, __ATOMIC_SEQ_CST) == 0)
		atomic_set(&x->alive, 0);
}

static void target_free(struct pollux_file *f)
{
	atomic_add(&s.freed, 1);
	end((struct target *)f);
}

static void target_call(void *arg)
{
	atomic_add(&s.called, 1);
	end(arg);
}

static const struct pollux_file_ops target_ops = {
	.size = sizeof(target_ops),
	.poll = target_poll,
	.free = target_free,
};

static void works(struct thread *t)
{
	uint32_t seed = (uint32_t)t->tid;
	struct epoll_event ev[4];
	int n;

	while ((n = pollux_ep_wait(s.ep, ev, 4, POLLUX_FOREVER)) >= 0) {
		/* The batch is open: they stay until it ends. */
		for (int i = 0; i < n; i++) {
			struct target *x = ev[i].data.ptr;

			if (!atomic_get(&x->alive))
				broken("an event of an object that has ended");
			atomic_add(&x->users, 1);
		}
		atomic_add(&s.events, (unsigned long)n);
		for (uint32_t k = rnd(&seed) % 3; k; k--)
			sched_yield();
		for (int i = 0; i < n; i++)
			atomic_add(&((struct target *)ev[i].data.ptr)->users, (uint32_t)-1);
		if (rnd(&seed) % 2)
			pollux_ep_batch_end(s.ep);
	}
	check(n == -ESHUTDOWN);
}

static void removes(struct thread *t)
{
	uint32_t seed = (uint32_t)t->tid;

	while (!stopping()) {
		struct target *x = &s.x[rnd(&seed) % OBJECTS];
		uint32_t dead = 0;
		bool calls = rnd(&seed) % 2;

		if (!__atomic_compare_exchange_n(&x->alive, &dead, 1, false, __ATOMIC_SEQ_CST,
						 __ATOMIC_SEQ_CST)) {
			(void)pollux_reclaim(0);
			continue;
		}
		pollux_file_init(&x->file, &target_ops);
		x->ends = 1 + calls;
		check(ep_ctl(s.ep, EPOLL_CTL_ADD, &x->file, 0, EPOLLIN | EPOLLET,
			     (uint64_t)(uintptr_t)x) == 0);
		for (uint32_t k = rnd(&seed) % 3; k; k--) {
			sched_yield();
			pollux_file_wake(&x->file, EPOLLIN);
		}
		if (calls) {
			int r = pollux_ep_del(s.ep, &x->file, 0);

			check(r == 0 || r == 1);
			if (r == 1)
				atomic_add(&s.late, 1);
			check(pollux_call(target_call, x) == 0);
		}
		pollux_file_put(&x->file);
		if (rnd(&seed) % 64 == 0) {
			pollux_synchronize();
			pollux_barrier();
		}
	}
}

static void nothing_ends_under_a_batch(void **state)
{
	struct pollux_ep_attr attr = {.size = sizeof(attr), .flags = POLLUX_EP_BATCHES};
	struct thread t[WORKERS + 2];
	int64_t start = now_ns();

	(void)state;
	torture_begin();
	assert_int_equal(pollux_ep_new(&s.ep, &attr), 0);
	for (int i = 0; i < WORKERS; i++)
		thread_start(&t[i], works, NULL);
	for (int i = WORKERS; i < WORKERS + 2; i++)
		thread_start(&t[i], removes, NULL);
	while (torture_until(start, atomic_get(&s.late) > 100 && atomic_get(&s.freed) > 100))
		sleep_ms(5);
	__atomic_store_n(&torture_stop, 1, __ATOMIC_SEQ_CST);
	thread_join(&t[WORKERS]);
	thread_join(&t[WORKERS + 1]);
	pollux_ep_shutdown(s.ep);
	torture_end(t, WORKERS);
	pollux_barrier();
	for (int i = 0; i < OBJECTS; i++)
		assert_int_equal(s.x[i].alive, 0);
	printf("%lu events, %lu removed with an event out, %lu freed, %lu called\n", s.events,
	       s.late, s.freed, s.called);
	assert_true(s.late > 0 && s.freed > 0 && s.called > 0);
	ep_put(s.ep);
}

/* A thread stands where it has an event; the remover comes, and waits for it. */
struct stopped_wait {
	struct thread t;
	struct gate g;
	const char *point;
	int64_t timeout;
};

static void stops_in_its_wait(struct thread *t)
{
	struct stopped_wait *w = t->arg;
	struct epoll_event ev;

	gate_arm(&w->g, w->point);
	check(pollux_ep_wait(s.ep, &ev, 1, w->timeout) == 1);
	pollux_ep_batch_end(s.ep);
}

static void synchronizes(struct thread *t)
{
	struct stopped_wait *w = t->arg;

	pollux_synchronize();
	check(atomic_get(&w->g.open));
}

static void lasts(const char *point, bool fds)
{
	struct pollux_ep_attr attr = {.size = sizeof(attr), .flags = POLLUX_EP_BATCHES};
	struct stopped_wait w = {.point = point, .timeout = fds ? 0 : POLLUX_FOREVER};
	struct obj *o = obj_new(EPOLLIN);
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	struct thread t;
	int fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);

	torture_begin();
	points_delay(false);
	assert_int_equal(pollux_ep_new(&s.ep, &attr), 0);
	if (fds)
		assert_int_equal(pollux_ep_ctl_fd(s.ep, EPOLL_CTL_ADD, fd, &ev), 0);
	else
		ep_add(s.ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	start_to_gate(&w.t, stops_in_its_wait, &w, &w.g);
	if (fds)
		assert_int_equal(pollux_ep_ctl_fd(s.ep, EPOLL_CTL_DEL, fd, NULL), 0);
	else
		assert_int_equal(pollux_ep_del(s.ep, &o->file, 0), 1);
	thread_start(&t, synchronizes, &w);
	sleep_ms(QUIET_MS);
	assert_false(thread_done(&t));
	gate_open(&w.g);
	thread_join(&t);
	thread_join(&w.t);
	assert_false(torture_failed);
	obj_put(o);
	close(fd);
	ep_put(s.ep);
}

static void a_batch_lasts_until_it_is_closed(void **state)
{
	(void)state;
	lasts("batch_before_close", false);
}

/* The kernel has given the event, and the thread has not come back with it yet. */
static void a_batch_begins_before_the_event_is_taken(void **state)
{
	(void)state;
	lasts("side_in_hand", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_ends_under_a_batch),
		TEST(a_batch_lasts_until_it_is_closed),
		TEST(a_batch_begins_before_the_event_is_taken),
	};

	return RUN(tests);
}
