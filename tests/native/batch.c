/* SPDX-License-Identifier: MIT */
/* What frees an object waits for the batches that may have an event of it, and for no others. */
#include "native.h"

#include <pollux/read.h>
#include <sys/eventfd.h>
#include <sys/wait.h>

static int freed, called;

static void call(void *arg)
{
	__atomic_fetch_add((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static struct pollux_ep *ep_batches(void)
{
	struct pollux_ep_attr attr = {.size = sizeof(attr), .flags = POLLUX_EP_BATCHES};
	struct pollux_ep *ep = NULL;

	assert_int_equal(pollux_ep_new(&ep, &attr), 0);
	return ep;
}

/* A thread that has got an event, and ends its batch when it is told. */
enum how { BY_END, BY_WAIT, BY_POLL_WAIT, BY_EXIT };

struct holder {
	struct thread t;
	struct pollux_ep *ep;
	enum how how;
	int64_t timeout;
	int n, step;
};

static void step_until(struct holder *h, int step)
{
	while (__atomic_load_n(&h->step, __ATOMIC_SEQ_CST) < step)
		sleep_ms(1);
}

static void step_to(struct holder *h, int step)
{
	__atomic_store_n(&h->step, step, __ATOMIC_SEQ_CST);
}

static void holds(struct thread *t)
{
	struct holder *h = t->arg;
	struct epoll_event ev[4];

	h->n = pollux_ep_wait(h->ep, ev, 4, h->timeout);
	step_to(h, 1);
	step_until(h, 2);
	if (h->how == BY_END)
		pollux_ep_batch_end(h->ep);
	else if (h->how == BY_WAIT)
		(void)pollux_ep_wait(h->ep, ev, 4, 1000000);
	else if (h->how == BY_POLL_WAIT)
		(void)pollux_ep_wait(h->ep, ev, 4, 0);
	if (h->how == BY_EXIT)
		return;
	step_to(h, 3);
	step_until(h, 4);
}

static void holder_start(struct holder *h, struct pollux_ep *ep, enum how how)
{
	*h = (struct holder){.ep = ep, .how = how, .timeout = POLLUX_FOREVER};
	thread_start(&h->t, holds, h);
	step_until(h, 1);
	assert_int_equal(h->n, 1);
}

static void holder_ends_batch(struct holder *h)
{
	step_to(h, 2);
	if (h->how != BY_EXIT)
		step_until(h, 3);
	else
		thread_join(&h->t);
}

static void holder_leave(struct holder *h)
{
	if (h->how == BY_EXIT)
		return;
	step_to(h, 4);
	thread_join(&h->t);
}

/* What is due of what was asked for. */
static void release(void)
{
	for (int i = 0; i < 3; i++)
		(void)pollux_reclaim(0);
}

static void free_and_calls_wait(enum how how)
{
	struct pollux_ep *ep = ep_batches();
	struct obj *o = obj_new(EPOLLIN);
	struct holder h;

	freed = called = 0;
	o->freed = &freed;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLONESHOT, 'a');
	holder_start(&h, ep, how);
	assert_int_equal(pollux_ep_del(ep, &o->file, 0), 1);
	assert_int_equal(pollux_call(call, &called), 0);
	obj_put(o);
	release();
	pollux_quiesce();
	assert_int_equal(freed + called, 0);
	holder_ends_batch(&h);
	pollux_barrier();
	assert_int_equal(freed, 1);
	assert_int_equal(called, 1);
	holder_leave(&h);
	ep_put(ep);
}

static void a_batch_ends_by_each_of_its_ends(void **state)
{
	(void)state;
	free_and_calls_wait(BY_END);
	free_and_calls_wait(BY_WAIT);
	free_and_calls_wait(BY_POLL_WAIT);
	free_and_calls_wait(BY_EXIT);
}

static void synchronizes(struct thread *t)
{
	(void)t;
	pollux_synchronize();
}

static void barriers(struct thread *t)
{
	(void)t;
	pollux_barrier();
}

static void waits_for_a_batch(void (*fn)(struct thread *))
{
	struct pollux_ep *ep = ep_batches();
	struct obj *o = obj_new(EPOLLIN);
	struct holder h;
	struct thread t;

	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	holder_start(&h, ep, BY_END);
	assert_int_equal(pollux_ep_del(ep, &o->file, 0), 1);
	obj_put(o);
	thread_start(&t, fn, NULL);
	sleep_ms(QUIET_MS);
	assert_false(thread_done(&t));
	holder_ends_batch(&h);
	thread_join(&t);
	holder_leave(&h);
	ep_put(ep);
}

static void synchronize_and_barrier_wait(void **state)
{
	(void)state;
	waits_for_a_batch(synchronizes);
	waits_for_a_batch(barriers);
}

struct renewed {
	struct pollux_ep *ep;
	struct obj *o, *other;
	int collects, freed;
	uint64_t got;
};

/* Stays at the second event until what the first one named is freed, or for 100 ms. */
static int takes_long(void *arg, uint32_t events, uint64_t data)
{
	struct renewed *r = arg;

	(void)events;
	if (data != 2) {
		r->got = data;
		return 0;
	}
	__atomic_store_n(&r->collects, 1, __ATOMIC_SEQ_CST);
	for (int i = 0; i < 100 && !__atomic_load_n(&r->freed, __ATOMIC_SEQ_CST); i++)
		sleep_ms(1);
	return 0;
}

static void collects_slowly(struct thread *t)
{
	struct renewed *r = t->arg;

	assert_int_equal(pollux_ep_collect(r->ep, takes_long, r, 2, 0, NULL), 2);
	assert_int_equal(r->got, 1);
	assert_false(__atomic_load_n(&r->freed, __ATOMIC_SEQ_CST));
	pollux_ep_batch_end(r->ep);
}

/* New data, beside the collection that has given out the old ones. */
static void old_data_are_waited_for(void **state)
{
	struct renewed r = {.ep = ep_batches(), .o = obj_new(EPOLLIN), .other = obj_new(EPOLLIN)};
	struct thread t;

	(void)state;
	ep_add(r.ep, &r.o->file, 0, EPOLLIN | EPOLLONESHOT, 1);
	ep_add(r.ep, &r.other->file, 0, EPOLLIN | EPOLLONESHOT, 2);
	thread_start(&t, collects_slowly, &r);
	while (!__atomic_load_n(&r.collects, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	obj_set(r.o, 0);
	assert_int_equal(ep_ctl(r.ep, EPOLL_CTL_MOD, &r.o->file, 0, EPOLLIN | EPOLLONESHOT, 3), 0);
	pollux_synchronize();
	__atomic_store_n(&r.freed, 1, __ATOMIC_SEQ_CST);
	thread_join(&t);
	ep_put(r.ep);
	obj_put(r.o);
	obj_put(r.other);
}

/* It would hang: the other thread holds on to its batch. */
static void a_batch_of_later_is_not_waited_for(void **state)
{
	struct pollux_ep *ep = ep_batches();
	struct obj *o = obj_new(EPOLLIN), *other = obj_new(EPOLLIN);
	struct holder h, again;

	(void)state;
	freed = 0;
	o->freed = &freed;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	holder_start(&h, ep, BY_END);
	obj_put(o);
	release();
	ep_add(ep, &other->file, 0, EPOLLIN | EPOLLET, 'b');
	holder_start(&again, ep, BY_END);
	holder_ends_batch(&h);
	release();
	assert_int_equal(freed, 1);
	holder_ends_batch(&again);
	holder_leave(&again);
	holder_leave(&h);
	obj_put(other);
	ep_put(ep);
}

static void without_the_flag_nothing_waits(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);
	struct holder h;

	(void)state;
	freed = 0;
	o->freed = &freed;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	holder_start(&h, ep, BY_END);
	obj_put(o);
	pollux_barrier();
	assert_int_equal(freed, 1);
	holder_ends_batch(&h);
	holder_leave(&h);
	ep_put(ep);
}

/* Nothing was delivered, so nobody is at anything: these would end the program. */
static void a_wait_without_events_opens_none(void **state)
{
	struct pollux_ep *ep = ep_batches();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	assert_none(ep);
	pollux_file_wake(&o->file, EPOLLIN);
	assert_none(ep);
	pollux_synchronize();
	pollux_barrier();
	obj_set(o, EPOLLIN);
	pollux_file_wake(&o->file, EPOLLIN);
	assert_one(ep, EPOLLIN, 'a');
	obj_set(o, 0);
	assert_none(ep);
	pollux_synchronize();
	obj_put(o);
	ep_put(ep);
}

/* The last reference ends what no call can end any more. */
static void the_end_of_an_epoll_ends_its_batches(void **state)
{
	struct pollux_ep *ep = ep_batches(), *other = ep_batches();
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	ep_add(other, &o->file, 0, EPOLLIN, 'b');
	assert_one(ep, EPOLLIN, 'a');
	assert_one(other, EPOLLIN, 'b');
	ep_put(ep);
	pollux_ep_batch_end(other);
	pollux_synchronize();
	obj_put(o);
	ep_put(other);
}

/* One thread, in a batch of one epoll inside one of another. */
static void batches_of_epolls_are_apart(void **state)
{
	struct pollux_ep *ep[15];
	struct obj *o = obj_new(EPOLLIN);
	struct epoll_event ev;

	(void)state;
	freed = 0;
	o->freed = &freed;
	for (int i = 0; i < 15; i++) {
		ep[i] = ep_batches();
		ep_add(ep[i], &o->file, 0, EPOLLIN, 'a');
	}
	for (int i = 0; i < 14; i++)
		assert_one(ep[i], EPOLLIN, 'a');
	assert_int_equal(pollux_ep_wait(ep[14], &ev, 1, 0), -ENOMEM);
	pollux_ep_batch_end(ep[3]);
	assert_one(ep[14], EPOLLIN, 'a');
	obj_put(o);
	for (int i = 14; i >= 0; i--) {
		(void)pollux_reclaim(0);
		assert_int_equal(freed, 0);
		pollux_ep_batch_end(ep[i]);
	}
	(void)pollux_reclaim(-1);
	assert_int_equal(freed, 1);
	for (int i = 0; i < 15; i++)
		ep_put(ep[i]);
}

struct full {
	struct thread t;
	struct pollux_ep **ep;
	int n;
};

static void waits_with_14(struct thread *t)
{
	struct full *f = t->arg;
	struct epoll_event ev;

	for (int i = 0; i < 14; i++)
		assert_one(f->ep[i], EPOLLIN, 'a');
	f->n = pollux_ep_wait(f->ep[14], &ev, 1, POLLUX_FOREVER);
}

/* Who was woken and cannot take the event leaves it to another. */
static void the_event_goes_to_another(bool side)
{
	struct pollux_ep *ep[15];
	struct obj *o = obj_new(EPOLLIN), *late = obj_new(0);
	struct full f = {.ep = ep, .n = 0};
	struct waiter *w;

	for (int i = 0; i < 15; i++)
		ep[i] = ep_batches();
	for (int i = 0; i < 14; i++)
		ep_add(ep[i], &o->file, 0, EPOLLIN, 'a');
	ep_add(ep[14], &late->file, 0, EPOLLIN | EPOLLET, 'b');
	if (side)
		assert_true(pollux_ep_fd(ep[14]) >= 0);
	thread_start(&f.t, waits_with_14, &f);
	/* The first to sleep is the first to be woken. */
	assert_true(thread_asleep(&f.t) || thread_done(&f.t));
	w = waiter_new(ep[14], 1);
	obj_fire(late, EPOLLIN, EPOLLIN);
	waiter_gets(w, 'b');
	/* It may have come too late for it, and sleep. */
	pollux_ep_shutdown(ep[14]);
	thread_join(&f.t);
	assert_true(f.n == -ENOMEM || f.n == -ESHUTDOWN);
	obj_put(o);
	obj_put(late);
	for (int i = 0; i < 15; i++)
		ep_put(ep[i]);
}

static void one_batch_too_many_loses_no_event(void **state)
{
	(void)state;
	the_event_goes_to_another(false);
	the_event_goes_to_another(true);
}

/* In a batch nothing waits for ever: a reclaim comes back. */
static void a_reclaim_in_a_batch_does_not_wait_for_it(void **state)
{
	struct pollux_ep *ep = ep_batches();
	struct obj *o = obj_new(EPOLLIN);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	assert_one(ep, EPOLLIN, 'a');
	obj_put(o);
	assert_true(pollux_reclaim(-1) >= sizeof(struct pollux_file));
	pollux_quiesce();
	pollux_ep_batch_end(ep);
	assert_int_equal(pollux_reclaim(-1), 0);
	ep_put(ep);
}

/* The kernel has given the event, and what follows a removal waits for who has got it. */
static void events_of_descriptors_count(void **state)
{
	struct pollux_ep *ep = ep_batches();
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	struct holder h = {.ep = ep, .how = BY_END, .timeout = POLLUX_FOREVER};
	uint64_t one = 1;
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	(void)state;
	called = 0;
	assert_true(fd >= 0);
	assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd, &ev), 0);
	thread_start(&h.t, holds, &h);
	assert_true(thread_asleep(&h.t));
	/* A sleep holds up nothing. */
	pollux_synchronize();
	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
	step_until(&h, 1);
	assert_int_equal(h.n, 1);
	assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_DEL, fd, NULL), 0);
	assert_int_equal(pollux_call(call, &called), 0);
	release();
	assert_int_equal(called, 0);
	holder_ends_batch(&h);
	pollux_barrier();
	assert_int_equal(called, 1);
	holder_leave(&h);
	close(fd);
	ep_put(ep);
}

static void times_and_files_beside_descriptors(void **state)
{
	struct pollux_ep *ep = ep_batches();
	struct obj *o = obj_new(0);
	struct holder h;
	int64_t start = now_ns();
	struct epoll_event ev;

	(void)state;
	assert_true(pollux_ep_fd(ep) >= 0);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, 20000000), 0);
	assert_true(now_ns() - start >= 20000000);
	pollux_synchronize();
	h = (struct holder){.ep = ep, .how = BY_WAIT, .timeout = POLLUX_FOREVER};
	thread_start(&h.t, holds, &h);
	assert_true(thread_asleep(&h.t));
	obj_fire(o, EPOLLIN, EPOLLIN);
	step_until(&h, 1);
	assert_int_equal(h.n, 1);
	freed = 0;
	o->freed = &freed;
	obj_put(o);
	release();
	assert_int_equal(freed, 0);
	holder_ends_batch(&h);
	pollux_barrier();
	assert_int_equal(freed, 1);
	holder_leave(&h);
	ep_put(ep);
}

/* What the other thread is at, it is at in the parent. It would hang. */
static void a_child_has_none_of_other_threads(void **state)
{
	struct pollux_ep *ep = ep_batches();
	struct obj *o = obj_new(EPOLLIN);
	struct holder h;
	pid_t pid;

	(void)state;
	called = 0;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	holder_start(&h, ep, BY_END);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(SOON_MS / 1000);
		pollux_synchronize();
		if (pollux_call(call, &called))
			_exit(2);
		pollux_barrier();
		_exit(called != 1);
	}
	child_passes(pid);
	(void)pollux_call(call, &called);
	release();
	assert_int_equal(called, 0);
	holder_ends_batch(&h);
	holder_leave(&h);
	obj_put(o);
	ep_put(ep);
}

/* The ends of a batch, which in the child has ended. */
enum fork_end { END_CALL, END_WAIT, END_PWAIT, END_PUT, ENDS };

static bool child_ends_batch(struct pollux_ep *ep, enum fork_end how)
{
	struct epoll_event ev;
	sigset_t none;

	sigemptyset(&none);
	if (how == END_WAIT)
		return pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER) == -EOWNERDEAD;
	if (how == END_PWAIT)
		return pollux_ep_pwait(ep, &ev, 1, POLLUX_FOREVER, &none) == -EOWNERDEAD;
	if (how == END_PUT)
		pollux_ep_put(ep);
	else
		pollux_ep_batch_end(ep);
	return true;
}

/* The object is freed at once, and the ends are harmless. */
static int child_of_a_batch(struct pollux_ep *ep, struct obj *o, struct obj *late,
			    enum fork_end how)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 'b'};
	struct pollux_ep *own;

	alarm(SOON_MS / 1000);
	pollux_synchronize();
	obj_put(o);
	pollux_barrier();
	if (freed != 1)
		return 2;
	if (!child_ends_batch(ep, how))
		return 3;
	/* Batches are as ever. */
	if (pollux_ep_new(&own, &(struct pollux_ep_attr){.size = sizeof(struct pollux_ep_attr),
							 .flags = POLLUX_EP_BATCHES}) ||
	    pollux_ep_ctl(own, EPOLL_CTL_ADD, &late->file, 0, &ev) ||
	    pollux_ep_wait(own, &ev, 1, 0) != 1)
		return 4;
	obj_put(late);
	(void)pollux_reclaim(0);
	(void)pollux_reclaim(0);
	if (freed != 1)
		return 5;
	/* That of the parent's is another, whatever the place. */
	(void)child_ends_batch(ep, how == END_PUT ? END_CALL : how);
	(void)pollux_reclaim(0);
	if (freed != 1)
		return 6;
	pollux_ep_batch_end(own);
	pollux_barrier();
	pollux_ep_put(own);
	return freed != 2;
}

static void a_child_has_none_of_who_forked(bool side, enum fork_end how)
{
	struct pollux_ep *ep = ep_batches();
	struct obj *o = obj_new(EPOLLIN), *late = obj_new(EPOLLIN);
	int status;
	pid_t pid;

	freed = 0;
	o->freed = late->freed = &freed;
	if (side)
		assert_true(pollux_ep_fd(ep) >= 0);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	assert_one(ep, EPOLLIN, 'a');
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(child_of_a_batch(ep, o, late, how));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	obj_put(o);
	release();
	assert_int_equal(freed, 0);
	pollux_ep_batch_end(ep);
	pollux_barrier();
	assert_int_equal(freed, 1);
	obj_put(late);
	ep_put(ep);
	pollux_barrier();
}

static void a_child_has_none_of_its_own(void **state)
{
	(void)state;
	for (enum fork_end how = 0; how < ENDS; how++) {
		a_child_has_none_of_who_forked(false, how);
		a_child_has_none_of_who_forked(true, how);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_batch_ends_by_each_of_its_ends),
		TEST(synchronize_and_barrier_wait),
		TEST(old_data_are_waited_for),
		TEST(a_batch_of_later_is_not_waited_for),
		TEST(without_the_flag_nothing_waits),
		TEST(a_wait_without_events_opens_none),
		TEST(the_end_of_an_epoll_ends_its_batches),
		TEST(batches_of_epolls_are_apart),
		TEST(one_batch_too_many_loses_no_event),
		TEST(a_reclaim_in_a_batch_does_not_wait_for_it),
		TEST(events_of_descriptors_count),
		TEST(times_and_files_beside_descriptors),
		TEST(a_child_has_none_of_other_threads),
		TEST(a_child_has_none_of_its_own),
	};

	return RUN(tests);
}
