/* SPDX-License-Identifier: MIT */
/*
 * A poll may take a lock of the program, and wakes may be made with it held; release and free may
 * call everything (pollux-embedding(7)).
 */
#include "native.h"

#include <pollux/level.h>
#include <pollux/read.h>

struct locked {
	struct pollux_file file;
	pthread_mutex_t *lock;
	uint32_t mask;
	int in_poll;
	/* Woken by each poll. */
	struct pollux_file *other;
};

static uint32_t locked_poll(struct pollux_file *f, uint32_t wanted)
{
	struct locked *l = pollux_container_of(f, struct locked, file);
	uint32_t mask;

	(void)wanted;
	if (l->other)
		pollux_file_wake(l->other, EPOLLIN);
	__atomic_store_n(&l->in_poll, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(l->lock);
	mask = l->mask;
	pthread_mutex_unlock(l->lock);
	return mask;
}

static const struct pollux_file_ops locked_ops = {.size = sizeof(locked_ops), .poll = locked_poll};

static void awaits(int *what)
{
	int64_t end = now_ns() + SOON_MS * 1000000ll;

	while (!__atomic_load_n(what, __ATOMIC_SEQ_CST) && now_ns() < end)
		sched_yield();
	assert_true(__atomic_load_n(what, __ATOMIC_SEQ_CST));
}

/* A collection stands in a poll, which waits for the lock; who holds the lock wakes. */
static void who_holds_it_wakes_while_a_poll_waits_for_it(void **state)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct locked l = {.lock = &lock};
	struct pollux_ep *ep = ep_new();
	struct pollux_efd *e = efd_new(0, 0);
	struct pollux_level level;
	struct waiter *w;

	(void)state;
	pollux_file_init(&l.file, &locked_ops);
	pollux_level_init(&level, 0, NULL);
	ep_add(ep, &l.file, 0, EPOLLIN, 'a');
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN, 'e');
	ep_add(ep, &level.file, 0, EPOLLIN, 'l');
	pthread_mutex_lock(&lock);
	l.in_poll = 0;
	pollux_file_wake(&l.file, EPOLLIN);
	w = waiter_begin(ep, 8, POLLUX_FOREVER);
	awaits(&l.in_poll);
	l.mask = EPOLLIN;
	pollux_file_wake(&l.file, EPOLLIN);
	efd_add(e, 1);
	pollux_level_set(&level, EPOLLIN);
	pollux_read_lock();
	pollux_file_wake(&l.file, EPOLLIN);
	pollux_read_unlock();
	pollux_file_get(&l.file);
	pollux_file_put(&l.file);
	assert_false(thread_done(&w->t));
	pthread_mutex_unlock(&lock);
	thread_join(&w->t);
	assert_true(w->n >= 1 && w->ev[0].data.u64 == 'a');
	free(w);
	assert_int_equal(efd_take(e), 1);
	pollux_level_clear(&level, EPOLLIN);
	assert_one(ep, EPOLLIN, 'a');
	pollux_file_put(&l.file);
	pollux_file_put(&level.file);
	efd_put(e);
	ep_put(ep);
}

static void a_poll_wakes_others_and_its_own_file(void **state)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct locked l = {.lock = &lock, .mask = EPOLLIN};
	struct pollux_ep *ep = ep_new(), *outer = ep_new();
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	pollux_file_init(&l.file, &locked_ops);
	l.other = &o->file;
	ep_add(ep, &l.file, 0, EPOLLIN, 'a');
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'o');
	ep_add(outer, pollux_ep_file(ep), 0, EPOLLIN, 'i');
	assert_order(ep, 8, "ao");
	/* Each poll of the one is an edge of the other, which this wait or the next reports. */
	assert_order(ep, 1, "a");
	assert_order(ep, 8, "oa");
	assert_one(outer, EPOLLIN, 'i');
	l.other = &l.file;
	l.mask = 0;
	ep_mod(ep, &o->file, 0, 0, 'o');
	assert_none(ep);
	obj_put(o);
	pollux_file_put(&l.file);
	ep_put(outer);
	ep_put(ep);
}

struct last {
	struct pollux_file file;
	struct pollux_ep *ep;
	struct obj *o;
	int calls;
};

/* An epoll and an object from their making to their end. */
static void everything(struct last *l)
{
	struct pollux_ep *own = ep_new();
	struct obj *o = obj_new(EPOLLIN);

	ep_add(l->ep, &o->file, 0, EPOLLIN, 'x');
	ep_add(own, &o->file, 0, EPOLLIN, 'x');
	ep_mod(l->ep, &o->file, 0, EPOLLIN, 'y');
	assert_one(own, EPOLLIN, 'x');
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_int_equal(ep_del(own, &o->file, 0), 0);
	pollux_read_lock();
	assert_int_equal(pollux_file_poll(&o->file, EPOLLIN), EPOLLIN);
	pollux_read_unlock();
	ep_put(own);
	obj_put(o);
	obj_fire(l->o, EPOLLIN, EPOLLIN);
	l->calls++;
}

static void last_release(struct pollux_file *f)
{
	everything(pollux_container_of(f, struct last, file));
}

static uint32_t last_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	return wanted & EPOLLIN;
}

static const struct pollux_file_ops last_ops = {
	.size = sizeof(last_ops), .poll = last_poll, .release = last_release, .free = last_release};

static void release_and_free_may_call_everything(void **state)
{
	struct last l = {.ep = ep_new(), .o = obj_new(0)};

	(void)state;
	pollux_file_init(&l.file, &last_ops);
	ep_add(l.ep, &l.file, 0, EPOLLIN, 'l');
	ep_add(l.ep, &l.o->file, 0, EPOLLIN, 'o');
	pollux_file_put(&l.file);
	assert_int_equal(l.calls, 1);
	assert_one(l.ep, EPOLLIN, 'o');
	pollux_quiesce();
	assert_int_equal(l.calls, 2);
	assert_one(l.ep, EPOLLIN, 'o');
	obj_put(l.o);
	ep_put(l.ep);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_holds_it_wakes_while_a_poll_waits_for_it),
		TEST(a_poll_wakes_others_and_its_own_file),
		TEST(release_and_free_may_call_everything),
	};

	return RUN(tests);
}
