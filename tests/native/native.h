/* SPDX-License-Identifier: MIT */
/*
 * Shared ground of the native tests: epolls, counters and objects made through
 * the embedder's API, with no descriptor anywhere. The objects report any mask
 * that a test gives them, so claims are checked for masks and keys that no file
 * of the kernel offers.
 */
#ifndef TESTS_NATIVE_H
#define TESTS_NATIVE_H

#include <stdbool.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <pollux/epoll.h>
#include <pollux/eventfd.h>
#include <pollux/file.h>

#include "../shared.h"

/* In a child: where it goes wrong, the line. */
#define must(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                 \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

/* --- an object of our own ------------------------------------------------------- */

struct obj {
	struct pollux_file file;
	uint32_t mask;
	int polls;
	/* Of the last poll. */
	uint32_t wanted;
	int *released;
	int *freed;
};

static uint32_t obj_poll(struct pollux_file *f, uint32_t wanted)
{
	struct obj *o = (struct obj *)f;

	__atomic_store_n(&o->wanted, wanted, __ATOMIC_RELAXED);
	__atomic_fetch_add(&o->polls, 1, __ATOMIC_RELAXED);
	return __atomic_load_n(&o->mask, __ATOMIC_ACQUIRE);
}

static void obj_release(struct pollux_file *f)
{
	struct obj *o = (struct obj *)f;

	if (o->released)
		__atomic_fetch_add(o->released, 1, __ATOMIC_SEQ_CST);
}

static void obj_free(struct pollux_file *f)
{
	struct obj *o = (struct obj *)f;

	if (o->freed)
		__atomic_fetch_add(o->freed, 1, __ATOMIC_SEQ_CST);
	free(o);
}

static const struct pollux_file_ops obj_ops = {
	.size = sizeof(obj_ops),
	.poll = obj_poll,
	.release = obj_release,
	.free = obj_free,
};

static inline struct obj *obj_new(uint32_t mask)
{
	struct obj *o = calloc(1, sizeof(*o));

	assert_non_null(o);
	pollux_file_init(&o->file, &obj_ops);
	o->mask = mask;
	return o;
}

/* Changes the state without telling anybody. */
static inline void obj_set(struct obj *o, uint32_t mask)
{
	__atomic_store_n(&o->mask, mask, __ATOMIC_RELEASE);
}

/* Changes the state and tells with this key. */
static inline void obj_fire(struct obj *o, uint32_t mask, uint32_t key)
{
	obj_set(o, mask);
	pollux_file_wake(&o->file, key);
}

static inline void obj_put(struct obj *o)
{
	pollux_file_put(&o->file);
}

/* --- epolls and counters ---------------------------------------------------------- */

static inline struct pollux_ep *ep_new(void)
{
	struct pollux_ep *ep = NULL;

	assert_int_equal(pollux_ep_new(&ep, NULL), 0);
	return ep;
}

static inline void ep_put(struct pollux_ep *ep)
{
	pollux_file_put(pollux_ep_file(ep));
}

static inline int ep_ctl(struct pollux_ep *ep, int op, struct pollux_file *f, int key,
			 uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return pollux_ep_ctl(ep, op, f, key, &ev);
}

static inline void ep_add(struct pollux_ep *ep, struct pollux_file *f, int key, uint32_t events,
			  uint64_t data)
{
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_ADD, f, key, events, data), 0);
}

static inline void ep_mod(struct pollux_ep *ep, struct pollux_file *f, int key, uint32_t events,
			  uint64_t data)
{
	assert_int_equal(ep_ctl(ep, EPOLL_CTL_MOD, f, key, events, data), 0);
}

static inline int ep_del(struct pollux_ep *ep, struct pollux_file *f, int key)
{
	return pollux_ep_ctl(ep, EPOLL_CTL_DEL, f, key, NULL);
}

/* Items of the tests carry letters; the order in which they come is a string. */
#define assert_order(ep, max, want) order_check(ep, max, want, __FILE__, __LINE__)
static inline void order_check(struct pollux_ep *ep, int max, const char *want, const char *file,
			       int line)
{
	struct epoll_event ev[32];
	char got[33] = "";
	int n;

	assert_true(max <= 32);
	n = pollux_ep_wait(ep, ev, max, 0);
	for (int i = 0; i < n; i++)
		got[i] = (char)ev[i].data.u64;
	if (n < 0 || strcmp(got, want) != 0) {
		print_error("%s:%d: collected %d \"%s\", expected \"%s\"\n", file, line, n, got,
			    want);
		fail();
	}
}

/* Exactly one event, with these bits and this letter. */
#define assert_one(ep, bits, letter) one_check(ep, bits, letter, __FILE__, __LINE__)
static inline void one_check(struct pollux_ep *ep, uint32_t bits, uint64_t letter, const char *file,
			     int line)
{
	struct epoll_event ev[8] = {0};
	int n = pollux_ep_wait(ep, ev, 8, 0);

	if (n != 1 || ev[0].events != bits || ev[0].data.u64 != letter) {
		print_error("%s:%d: %d events, first %#x '%c', expected 1, %#x '%c'\n", file, line,
			    n, n > 0 ? ev[0].events : 0, n > 0 ? (int)ev[0].data.u64 : ' ', bits,
			    (int)letter);
		fail();
	}
}

#define assert_none(ep) assert_order(ep, 32, "")

static inline struct pollux_efd *efd_new(uint64_t count, int flags)
{
	struct pollux_efd *e = NULL;

	assert_int_equal(pollux_efd_new(&e, count, flags), 0);
	return e;
}

static inline void efd_put(struct pollux_efd *e)
{
	pollux_file_put(pollux_efd_file(e));
}

static inline void efd_add(struct pollux_efd *e, uint64_t v)
{
	assert_int_equal(pollux_efd_write(e, v, 0), 0);
}

static inline uint64_t efd_take(struct pollux_efd *e)
{
	uint64_t v = 0;

	assert_int_equal(pollux_efd_read(e, &v, 0), 0);
	return v;
}

/* --- threads --------------------------------------------------------------- */

/* A thread that stays on one CPU. */
struct bound {
	int cpu;
	void *(*fn)(void *);
	void *arg;
};

static inline void *bound_main(void *p)
{
	struct bound b = *(struct bound *)p;
	cpu_set_t set;

	free(p);
	CPU_ZERO(&set);
	CPU_SET(b.cpu, &set);
	if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set))
		abort();
	return b.fn(b.arg);
}

static inline pthread_t thread_bound(int cpu, void *(*fn)(void *), void *arg)
{
	struct bound *b = malloc(sizeof(*b));
	pthread_t t;

	assert_non_null(b);
	*b = (struct bound){.cpu = cpu, .fn = fn, .arg = arg};
	assert_int_equal(pthread_create(&t, NULL, bound_main, b), 0);
	return t;
}

struct thread {
	pthread_t id;
	int tid;
	int done;
	void (*fn)(struct thread *t);
	void *arg;
};

static void *thread_main(void *p)
{
	struct thread *t = p;

	__atomic_store_n(&t->tid, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	t->fn(t);
	__atomic_store_n(&t->done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static inline void thread_start(struct thread *t, void (*fn)(struct thread *t), void *arg)
{
	t->fn = fn;
	t->arg = arg;
	t->done = t->tid = 0;
	assert_int_equal(pthread_create(&t->id, NULL, thread_main, t), 0);
	while (!__atomic_load_n(&t->tid, __ATOMIC_SEQ_CST))
		sched_yield();
}

static inline bool thread_done(struct thread *t)
{
	return __atomic_load_n(&t->done, __ATOMIC_SEQ_CST);
}

static inline bool thread_asleep(struct thread *t)
{
	return task_asleep(OF_THREAD, t->tid, &t->done);
}

static inline void thread_await(struct thread *t)
{
	int64_t end = now_ns() + SOON_MS * 1000000ll;

	while (!thread_done(t) && now_ns() < end)
		sleep_ms(1);
	assert_true(thread_done(t));
}

static inline void thread_join(struct thread *t)
{
	thread_await(t);
	pthread_join(t->id, NULL);
}

/* A thread in one pollux_ep_wait. On the heap: one that hangs outlives the failed test. */
struct waiter {
	struct thread t;
	struct pollux_ep *ep;
	int max;
	int64_t timeout;
	int n;
	int64_t ns;
	struct epoll_event ev[8];
};

static void waiter_main(struct thread *t)
{
	struct waiter *w = t->arg;
	int64_t start = now_ns();

	w->n = pollux_ep_wait(w->ep, w->ev, w->max, w->timeout);
	w->ns = now_ns() - start;
}

static inline struct waiter *waiter_begin(struct pollux_ep *ep, int max, int64_t timeout)
{
	struct waiter *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->ep = ep;
	w->max = max;
	w->timeout = timeout;
	thread_start(&w->t, waiter_main, w);
	return w;
}

/* Returns when the thread sleeps in its wait. */
static inline struct waiter *waiter_new(struct pollux_ep *ep, int max)
{
	struct waiter *w = waiter_begin(ep, max, POLLUX_FOREVER);

	assert_true(thread_asleep(&w->t));
	return w;
}

static inline void waiter_gets(struct waiter *w, uint64_t letter)
{
	thread_join(&w->t);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->ev[0].data.u64, letter);
	free(w);
}

/* Still asleep after a while. */
static inline void waiter_stays(struct waiter *w)
{
	sleep_ms(QUIET_MS);
	assert_false(thread_done(&w->t));
	assert_true(thread_asleep(&w->t));
}

/* Index of the one waiter that ends soon; it is joined. */
static inline int waiters_first(struct waiter **w, int n)
{
	int64_t end = now_ns() + SOON_MS * 1000000ll;

	while (now_ns() < end) {
		for (int i = 0; i < n; i++) {
			if (w[i] && thread_done(&w[i]->t)) {
				thread_join(&w[i]->t);
				return i;
			}
		}
		sleep_ms(1);
	}
	fail();
	return -1;
}

/* Ends the waiters that are left over, with an item that stays ready. */
static inline void waiters_release(struct pollux_ep *ep, struct waiter **w, int n)
{
	struct obj *o = obj_new(EPOLLIN);

	ep_add(ep, &o->file, 0, EPOLLIN, 'Z');
	for (int i = 0; i < n; i++) {
		if (!w[i])
			continue;
		waiter_gets(w[i], 'Z');
		w[i] = NULL;
	}
	obj_put(o);
}

static inline int host_parks(void *arg, uint32_t *bell, int64_t deadline)
{
	(void)arg;
	(void)bell;
	(void)deadline;
	return -ETIMEDOUT;
}

static inline void host_unparks(void *arg, uint32_t *bell)
{
	(void)arg;
	(void)bell;
}

static inline int64_t host_is_at_0(void *arg)
{
	(void)arg;
	return 0;
}

/* A host that parks by itself, and in which the time is always over. */
static inline struct pollux_host host_of_no_time(void)
{
	return (struct pollux_host){.size = sizeof(struct pollux_host),
				    .park = host_parks,
				    .unpark_one = host_unparks,
				    .now = host_is_at_0};
}

static inline void not_of_a_sanitizer(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	print_message("skipped: a sanitizer's allocator is in its place\n");
	skip();
#endif
}

static inline int quiesce(void **state)
{
	(void)state;
	pollux_quiesce();
	return pollux_ep_watches() == 0 ? 0 : -1;
}

/*
 * For tests that put something at the numbers of our own descriptors. Where the soft limit is low
 * these lie above it, and nobody can.
 */
static inline void reach_all_numbers(void)
{
	struct rlimit lim;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	lim.rlim_cur = lim.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
}

/* Every test leaves no registration behind. */
#define TEST(fn) cmocka_unit_test_teardown(fn, quiesce)
#define RUN(tests) cmocka_run_group_tests(tests, NULL, NULL)

#endif
