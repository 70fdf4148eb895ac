/* SPDX-License-Identifier: MIT */
/*
 * A program that is built with -fsanitize=thread and linked with the library as it is installed.
 * Plain data goes from thread to thread by each of the ways that the headers promise an order for;
 * ThreadSanitizer has to know of it. tsan_edges WAY; the ways that begin with "wrong" have a race.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pollux/epoll.h>
#include <pollux/eventfd.h>
#include <pollux/level.h>
#include <pollux/poll.h>
#include <pollux/read.h>
#include <pollux/timer.h>
#include <pollux/watch.h>

#define ROUNDS 200

struct object {
	struct pollux_file file;
	uint32_t mask;
	long data[4];
};

static struct object *o;
static struct pollux_ep *ep;
static struct pollux_efd *efd;
static struct pollux_level level;
static struct pollux_timer *timer;
static long data, sum;

static uint32_t object_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)wanted;
	return __atomic_load_n(&pollux_container_of(f, struct object, file)->mask,
			       __ATOMIC_RELAXED);
}

static void object_free(struct pollux_file *f)
{
	struct object *x = pollux_container_of(f, struct object, file);

	/* Those of two objects may run at once. */
	__atomic_fetch_add(&sum, x->data[0], __ATOMIC_RELAXED);
	memset(x->data, 0, sizeof(x->data));
	free(x);
}

static const struct pollux_file_ops object_ops = {
	.size = sizeof(object_ops),
	.poll = object_poll,
	.free = object_free,
};

static struct object *object_new(uint32_t mask)
{
	struct object *x = calloc(1, sizeof(*x));

	if (!x)
		exit(2);
	pollux_file_init(&x->file, &object_ops);
	x->mask = mask;
	return x;
}

static void add(struct pollux_file *f)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};

	if (pollux_ep_ctl(ep, EPOLL_CTL_ADD, f, 0, &ev))
		exit(2);
}

static void set_mask(uint32_t mask)
{
	__atomic_store_n(&o->mask, mask, __ATOMIC_RELAXED);
}

static int wait_one(void)
{
	struct epoll_event ev;

	return pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER);
}

/* What was set up is there for the other thread; nothing comes back this way. */
static int started;

static void tell_started(void)
{
	__atomic_store_n(&started, 1, __ATOMIC_RELEASE);
}

static void await_started(void)
{
	while (!__atomic_load_n(&started, __ATOMIC_ACQUIRE))
		;
}

static void *wakes(void *arg)
{
	(void)arg;
	await_started();
	data = 1;
	set_mask(EPOLLIN);
	pollux_file_wake(&o->file, EPOLLIN);
	return NULL;
}

static void by_wake(void)
{
	o = object_new(0);
	add(&o->file);
	tell_started();
	wait_one();
	sum += data;
}

static void *wakes_too_soon(void *arg)
{
	(void)arg;
	await_started();
	set_mask(EPOLLIN);
	pollux_file_wake(&o->file, EPOLLIN);
	data = 1;
	return NULL;
}

static void *adds(void *arg)
{
	(void)arg;
	await_started();
	data = 1;
	add(&o->file);
	return NULL;
}

static void by_add(void)
{
	o = object_new(EPOLLIN);
	tell_started();
	wait_one();
	sum += data;
}

static void *sets(void *arg)
{
	(void)arg;
	await_started();
	data = 1;
	pollux_level_set(&level, EPOLLIN);
	return NULL;
}

static void by_level(void)
{
	pollux_level_init(&level, 0, NULL);
	add(&level.file);
	tell_started();
	wait_one();
	sum += data;
}

static void by_poll(void)
{
	struct pollux_pollfile v = {&level.file, -1, EPOLLIN, 0, 0};

	pollux_level_init(&level, 0, NULL);
	tell_started();
	if (pollux_files_poll(&v, 1, POLLUX_FOREVER, NULL, NULL) != 1)
		exit(2);
	sum += data;
}

static void *sets_timer(void *arg)
{
	(void)arg;
	await_started();
	data = 1;
	pollux_timer_set(timer, 0, 0);
	return NULL;
}

static void by_timer(void)
{
	if (pollux_timer_new(&timer, NULL))
		exit(2);
	add(pollux_timer_file(timer));
	tell_started();
	wait_one();
	sum += data;
}

static void *writes(void *arg)
{
	(void)arg;
	await_started();
	data = 1;
	pollux_efd_write(efd, 1, 0);
	return NULL;
}

static void by_efd(void)
{
	if (pollux_efd_new(&efd, 0, 0))
		exit(2);
	add(pollux_efd_file(efd));
	tell_started();
	wait_one();
	sum += data;
}

static void *shuts(void *arg)
{
	(void)arg;
	await_started();
	data = 1;
	pollux_ep_shutdown(ep);
	return NULL;
}

static void by_shutdown(void)
{
	tell_started();
	if (wait_one() >= 0)
		exit(2);
	sum += data;
}

/* The last reference is the other's, or ours: free runs here in any case. */
static void *puts_it(void *arg)
{
	(void)arg;
	await_started();
	o->data[0] = 1;
	pollux_file_put(&o->file);
	return NULL;
}

static void by_put(void)
{
	o = object_new(0);
	pollux_file_get(&o->file);
	tell_started();
	for (volatile int i = 0; i < 100000; i++)
		;
	pollux_file_put(&o->file);
	pollux_quiesce();
}

static void *looks(void *arg)
{
	struct object *x;

	(void)arg;
	pollux_read_lock();
	x = __atomic_load_n(&o, __ATOMIC_ACQUIRE);
	tell_started();
	if (x)
		x->data[1] = x->data[0];
	pollux_read_unlock();
	return NULL;
}

static void by_section(void)
{
	struct object *x = o;

	await_started();
	__atomic_store_n(&o, NULL, __ATOMIC_RELAXED);
	pollux_file_put(&x->file);
	pollux_quiesce();
}

static void by_synchronize(void)
{
	struct object *x = o;

	await_started();
	__atomic_store_n(&o, NULL, __ATOMIC_RELAXED);
	pollux_synchronize();
	x->data[1] = 0;
}

/* In its batch it reads what is cleared when the object is freed. */
static void *is_at_it(void *arg)
{
	struct epoll_event ev;

	(void)arg;
	await_started();
	if (pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER) != 1)
		exit(2);
	__atomic_store_n(&started, 2, __ATOMIC_RELEASE);
	sum += o->data[0];
	pollux_ep_batch_end(ep);
	return NULL;
}

static void by_batch(void)
{
	struct pollux_ep_attr attr = {.size = sizeof(attr), .flags = POLLUX_EP_BATCHES};

	pollux_ep_put(ep);
	if (pollux_ep_new(&ep, &attr))
		exit(2);
	set_mask(EPOLLIN);
	add(&o->file);
	tell_started();
	while (__atomic_load_n(&started, __ATOMIC_ACQUIRE) != 2)
		;
	pollux_file_put(&o->file);
	pollux_barrier();
}

static void called(void *arg)
{
	(void)arg;
	data++;
}

static void *calls(void *arg)
{
	(void)arg;
	data = 1;
	if (pollux_call(called, NULL))
		exit(2);
	tell_started();
	pollux_reclaim(-1);
	return NULL;
}

/* The call is made here or there. */
static void by_barrier(void)
{
	await_started();
	pollux_barrier();
	sum += data;
}

static struct pollux_watch watch;

static void watch_call(struct pollux_watch *w, struct pollux_file *f, uint32_t key)
{
	(void)w;
	(void)f;
	(void)key;
	data = 1;
	tell_started();
}

static void *wakes_watch(void *arg)
{
	(void)arg;
	pollux_file_wake(&o->file, EPOLLIN);
	return NULL;
}

/* The call has been made, or it never comes; it is over then. */
static void by_watch(void)
{
	while (!__atomic_load_n(&started, __ATOMIC_RELAXED))
		;
	while (pollux_watch_del(&watch))
		;
	sum += data;
	pollux_watch_del_sync(&watch);
}

static const struct {
	const char *name;
	void *(*other)(void *);
	void (*here)(void);
	/* There is an object at first. */
	int has;
} ways[] = {
	{"wake", wakes, by_wake, 0},
	{"wrong-wake", wakes_too_soon, by_wake, 0},
	{"add", adds, by_add, 0},
	{"level", sets, by_level, 0},
	{"poll", sets, by_poll, 0},
	{"timer", sets_timer, by_timer, 0},
	{"efd", writes, by_efd, 0},
	{"shutdown", shuts, by_shutdown, 0},
	{"put", puts_it, by_put, 0},
	{"section", looks, by_section, 1},
	{"synchronize", looks, by_synchronize, 1},
	{"batch", is_at_it, by_batch, 1},
	{"barrier", calls, by_barrier, 0},
	{"watch", wakes_watch, by_watch, 1},
};

int main(int argc, char **argv)
{
	size_t n = sizeof(ways) / sizeof(ways[0]), w = 0;

	while (w < n && (argc < 2 || strcmp(argv[1], ways[w].name)))
		w++;
	if (w == n)
		return 2;
	for (int i = 0; i < ROUNDS; i++) {
		pthread_t t;

		started = 0;
		data = 0;
		if (pollux_ep_new(&ep, NULL))
			return 2;
		o = ways[w].has ? object_new(0) : NULL;
		if (ways[w].here == by_watch &&
		    pollux_watch_add(&watch, &o->file, EPOLLIN, watch_call))
			return 2;
		if (pthread_create(&t, NULL, ways[w].other, NULL))
			return 2;
		ways[w].here();
		pthread_join(t, NULL);
		pollux_ep_put(ep);
	}
	printf("%ld\n", sum);
	return 0;
}
