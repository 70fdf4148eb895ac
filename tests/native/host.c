/* SPDX-License-Identifier: MIT */
/* What an epoll asks of its host, and what it makes of what the host says. */
#include "native.h"

#include <ucontext.h>

#include "base/atomic.h"

struct host {
	int parked, rung, released;
	/* The look ends when that is true. */
	struct obj *fires;
	bool never;
};

static int host_park(void *arg, uint32_t *bell, int64_t deadline)
{
	struct host *h = arg;

	h->parked++;
	/* Nobody else is there to ring. */
	if (h->fires)
		obj_fire(h->fires, EPOLLIN, EPOLLIN);
	assert_true(deadline >= 0 || pollux_bell_rung(bell));
	return h->fires ? 0 : -ETIMEDOUT;
}

static void host_unpark(void *arg, uint32_t *bell)
{
	(void)bell;
	((struct host *)arg)->rung++;
}

static int64_t host_now(void *arg)
{
	(void)arg;
	return 1;
}

static void host_released(void *arg)
{
	((struct host *)arg)->released++;
}

static struct pollux_host host_of(struct host *h, int64_t look_ns)
{
	return (struct pollux_host){
		.size = sizeof(struct pollux_host),
		.look_ns = look_ns,
		.park = host_park,
		.unpark_one = host_unpark,
		.now = host_now,
		.released = host_released,
		.arg = h,
	};
}

static struct pollux_ep *ep_with(const struct pollux_host *host)
{
	const struct pollux_ep_attr attr = {.size = sizeof(attr), .host = host};
	struct pollux_ep *ep = NULL;

	assert_int_equal(pollux_ep_new(&ep, &attr), 0);
	return ep;
}

static void what_is_wrong_is_refused(void **state)
{
	struct host h = {0};
	struct pollux_host good = host_of(&h, 0), host;
	struct pollux_ep *ep = NULL;
	struct {
		struct pollux_ep_attr attr;
		uint64_t newer;
	} longer = {.attr = {.size = sizeof(longer), .host = &good}};
	struct {
		struct pollux_host host;
		uint64_t newer;
	} longer_host = {.host = good};
	struct pollux_ep_attr attr = {.size = sizeof(attr), .host = &host};

	(void)state;
	host = good;
	attr.size = 0;
	assert_int_equal(pollux_ep_new(&ep, &attr), -EINVAL);
	attr.size = sizeof(attr);
	attr.flags = 2;
	assert_int_equal(pollux_ep_new(&ep, &attr), -EINVAL);
	attr.flags = 0;
	host.size--;
	assert_int_equal(pollux_ep_new(&ep, &attr), -EINVAL);
	host = good;
	host.flags = 1u << 31;
	assert_int_equal(pollux_ep_new(&ep, &attr), -EINVAL);
	host = good;
	host.park = NULL;
	assert_int_equal(pollux_ep_new(&ep, &attr), -EINVAL);
	host = good;
	host.unpark_one = NULL;
	assert_int_equal(pollux_ep_new(&ep, &attr), -EINVAL);
	host = good;
	host.now = NULL;
	assert_int_equal(pollux_ep_new(&ep, &attr), -EINVAL);
	/* Of a program that is newer than the library. */
	longer.newer = 1;
	assert_int_equal(pollux_ep_new(&ep, &longer.attr), -E2BIG);
	longer.newer = 0;
	assert_int_equal(pollux_ep_new(&ep, &longer.attr), 0);
	ep_put(ep);
	ep = NULL;
	longer_host.host.size = sizeof(longer_host);
	longer_host.newer = 1;
	attr.host = &longer_host.host;
	assert_int_equal(pollux_ep_new(&ep, &attr), -E2BIG);
	assert_null(ep);
	pollux_quiesce();
	assert_int_equal(h.released, 1);
}

static void released_is_the_last_call_and_comes_once(void **state)
{
	struct host h = {.fires = obj_new(0)};
	struct pollux_host host = host_of(&h, 0);
	struct pollux_ep *ep = ep_with(&host);
	struct epoll_event ev;

	(void)state;
	/* It is not kept. */
	memset(&host, 0xff, sizeof(host));
	ep_add(ep, &h.fires->file, 0, EPOLLIN | EPOLLET, 'a');
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), 1);
	assert_int_equal(h.parked, 1);
	assert_int_equal(h.rung, 1);
	ep_put(ep);
	pollux_quiesce();
	assert_int_equal(h.released, 1);
	obj_fire(h.fires, EPOLLIN, EPOLLIN);
	pollux_quiesce();
	assert_int_equal(h.released, 1);
	assert_int_equal(h.rung, 1);
	obj_put(h.fires);
}

/* How often an epoll with nothing in it is looked at before it sleeps. */
static int64_t look_takes(int64_t look_ns)
{
	struct host h = {0};
	struct pollux_host host = host_of(&h, look_ns);
	struct pollux_ep *ep = ep_with(&host);
	struct epoll_event ev;
	int64_t start = now_ns();

	assert_int_equal(pollux_ep_wait(ep, &ev, 1, 1000), 0);
	start = now_ns() - start;
	assert_int_equal(h.parked, 1);
	ep_put(ep);
	pollux_quiesce();
	return start;
}

static void a_look_takes_as_long_as_the_host_says(void **state)
{
	(void)state;
	assert_true(look_takes(20000000) >= 20000000);
	/* Not at all: the shortest of several, as the machine may be busy. */
	for (int i = 0; i < 1000; i++)
		if (look_takes(0) < 100000)
			return;
	fail();
}

static void firer(struct thread *t)
{
	sleep_ms(5);
	obj_fire(t->arg, EPOLLIN, EPOLLIN);
}

static void what_comes_in_the_look_needs_no_sleep(void **state)
{
	struct host h = {0};
	/* Longer than a test may take. */
	struct pollux_host host = host_of(&h, 1000000000ll * 3600);
	struct pollux_ep *ep = ep_with(&host);
	struct obj *o = obj_new(0);
	struct epoll_event ev;
	struct thread t;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	thread_start(&t, firer, o);
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), 1);
	thread_join(&t);
	assert_int_equal(h.parked, 0);
	assert_int_equal(h.rung, 0);
	obj_put(o);
	ep_put(ep);
	/* Before h goes. */
	pollux_quiesce();
}

static void a_poll_is_told_what_is_wanted(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN | EPOLLOUT);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET | EPOLLONESHOT, 'a');
	assert_int_equal(o->wanted & ~(EPOLLET | EPOLLONESHOT), EPOLLIN | EPOLLERR | EPOLLHUP);
	assert_one(ep, EPOLLIN, 'a');
	assert_int_equal(o->wanted, EPOLLIN | EPOLLERR | EPOLLHUP);
	/* What it says besides is of no interest. */
	assert_int_equal(pollux_file_poll(&o->file, EPOLLOUT), EPOLLOUT);
	assert_int_equal(o->wanted, EPOLLOUT | EPOLLERR | EPOLLHUP);
	obj_set(o, EPOLLHUP | EPOLLIN);
	assert_int_equal(pollux_file_poll(&o->file, 0), EPOLLHUP);
	ep_put(ep);
	obj_put(o);
}

/* musl has no makecontext. */
#if !PLX_TSAN && defined(__GLIBC__)
/* A fibre that waits in one thread and goes on in another. */
static struct fibre {
	ucontext_t self, scheduler;
	char stack[256 * 1024];
	struct pollux_ep *ep;
	struct epoll_event ev;
	pthread_t began, ended;
	int r;
} fibre;

static int fibre_park(void *arg, uint32_t *bell, int64_t deadline)
{
	(void)arg;
	(void)deadline;
	while (!pollux_bell_rung(bell))
		swapcontext(&fibre.self, &fibre.scheduler);
	return 0;
}

static void fibre_main(void)
{
	/* The thread is asked for by a call: a compiler may keep its address over the wait. */
	fibre.began = pthread_self();
	fibre.r = pollux_ep_wait(fibre.ep, &fibre.ev, 1, POLLUX_FOREVER);
	swapcontext(&fibre.self, &fibre.scheduler);
}

static void runs_the_fibre(struct thread *t)
{
	(void)t;
	swapcontext(&fibre.scheduler, &fibre.self);
	fibre.ended = pthread_self();
}

static void park_may_come_back_on_another_thread(void **state)
{
	struct host h = {0};
	struct pollux_host host = host_of(&h, 0);
	struct obj *o = obj_new(0);
	struct thread t;

	(void)state;
	host.park = fibre_park;
	fibre.ep = ep_with(&host);
	ep_add(fibre.ep, &o->file, 0, EPOLLIN, 'a');
	getcontext(&fibre.self);
	fibre.self.uc_stack.ss_sp = fibre.stack;
	fibre.self.uc_stack.ss_size = sizeof(fibre.stack);
	makecontext(&fibre.self, fibre_main, 0);
	swapcontext(&fibre.scheduler, &fibre.self);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_int_equal(h.rung, 1);
	thread_start(&t, runs_the_fibre, NULL);
	thread_join(&t);
	assert_int_equal(fibre.r, 1);
	assert_int_equal(fibre.ev.data.u64, 'a');
	assert_false(pthread_equal(fibre.began, fibre.ended));
	obj_put(o);
	ep_put(fibre.ep);
	pollux_quiesce();
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_wrong_is_refused),
		TEST(released_is_the_last_call_and_comes_once),
		TEST(a_look_takes_as_long_as_the_host_says),
		TEST(what_comes_in_the_look_needs_no_sleep),
		TEST(a_poll_is_told_what_is_wanted),
#if !PLX_TSAN && defined(__GLIBC__)
		TEST(park_may_come_back_on_another_thread),
#endif
	};

	return RUN(tests);
}
