/* SPDX-License-Identifier: MIT */
/*
 * A pollable object of your own, waited for without any descriptor.
 *
 * A bounded queue of numbers is readable when it holds something and writable when
 * it has room. One thread fills it, the other empties it, and each of them sleeps in
 * an epoll of its own while it has nothing to do.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <pollux/epoll.h>
#include <pollux/file.h>

#define ROOM 4
#define NUMBERS 1000

/* The file may be anywhere in it. */
struct queue {
	struct pollux_file file;
	pthread_mutex_t lock;
	unsigned int head, count;
	int slot[ROOM];
};

/*
 * Says what the queue is ready for. The engine calls it at any time and from any
 * thread, so it must be short and must not call back into an epoll. It takes no lock
 * here: one atomic load of the count is enough.
 */
static uint32_t queue_poll(struct pollux_file *f, uint32_t wanted)
{
	struct queue *q = pollux_container_of(f, struct queue, file);
	unsigned int count = __atomic_load_n(&q->count, __ATOMIC_ACQUIRE);
	uint32_t mask = 0;

	/* Whether this is wanted costs more than to say it. */
	(void)wanted;
	if (count > 0)
		mask |= EPOLLIN | EPOLLRDNORM;
	if (count < ROOM)
		mask |= EPOLLOUT | EPOLLWRNORM;
	return mask;
}

/* Called when nobody can be looking at the queue any more. */
static void queue_free(struct pollux_file *f)
{
	struct queue *q = pollux_container_of(f, struct queue, file);

	pthread_mutex_destroy(&q->lock);
	free(q);
}

static const struct pollux_file_ops queue_ops = {
	.size = sizeof(queue_ops),
	.poll = queue_poll,
	.free = queue_free,
};

static struct queue *queue_new(void)
{
	struct queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	pthread_mutex_init(&q->lock, NULL);
	/* The one reference that this gives is the caller's. */
	pollux_file_init(&q->file, &queue_ops);
	return q;
}

/*
 * The pattern of every source: change the state first, then tell the watchers what
 * has become true. The wake takes no lock and costs a few nanoseconds when nobody
 * sleeps.
 */
static int queue_put(struct queue *q, int value)
{
	int done = 0;

	pthread_mutex_lock(&q->lock);
	if (q->count < ROOM) {
		q->slot[(q->head + q->count) % ROOM] = value;
		__atomic_store_n(&q->count, q->count + 1, __ATOMIC_RELEASE);
		done = 1;
	}
	pthread_mutex_unlock(&q->lock);
	if (done)
		pollux_file_wake(&q->file, EPOLLIN | EPOLLRDNORM);
	return done;
}

static int queue_take(struct queue *q, int *value)
{
	int done = 0;

	pthread_mutex_lock(&q->lock);
	if (q->count > 0) {
		*value = q->slot[q->head];
		q->head = (q->head + 1) % ROOM;
		__atomic_store_n(&q->count, q->count - 1, __ATOMIC_RELEASE);
		done = 1;
	}
	pthread_mutex_unlock(&q->lock);
	if (done)
		pollux_file_wake(&q->file, EPOLLOUT | EPOLLWRNORM);
	return done;
}

/* An epoll that watches the queue for these events; edge-triggered, one event a change. */
static struct pollux_ep *watch(struct queue *q, uint32_t events)
{
	struct epoll_event ev = {.events = events | EPOLLET, .data.ptr = q};
	struct pollux_ep *ep;

	/* NULL: sleep on a futex. A scheduler of your own can be given here instead. */
	if (pollux_ep_new(&ep, NULL) != 0)
		return NULL;
	/* The key tells several registrations of one file apart; there is only one. */
	if (pollux_ep_ctl(ep, EPOLL_CTL_ADD, &q->file, 0, &ev) != 0) {
		pollux_ep_put(ep);
		return NULL;
	}
	return ep;
}

static void *producer(void *arg)
{
	struct queue *q = arg;
	struct pollux_ep *ep = watch(q, EPOLLOUT);
	struct epoll_event ev;

	if (!ep)
		exit(1);
	for (int i = 1; i <= NUMBERS; i++)
		while (!queue_put(q, i))
			(void)pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER);
	/* It ends with its last reference, and its registrations with it. */
	pollux_ep_put(ep);
	return NULL;
}

int main(void)
{
	struct queue *q = queue_new();
	struct pollux_ep *ep;
	long sum = 0;
	int got = 0;
	pthread_t t;

	if (!q)
		return 1;
	ep = watch(q, EPOLLIN);
	if (!ep || pthread_create(&t, NULL, producer, q) != 0)
		return 1;
	while (got < NUMBERS) {
		struct epoll_event ev;
		int value;

		if (pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER) != 1)
			continue;
		/* Edge-triggered: take all there is before the next wait. */
		while (queue_take(ev.data.ptr, &value)) {
			sum += value;
			got++;
		}
	}
	pthread_join(t, NULL);
	printf("%d numbers, sum %ld\n", got, sum);
	/* The last reference of the queue takes its registrations with it. */
	pollux_file_put(&q->file);
	pollux_ep_put(ep);
	/* Optional: gives back at once what waits for a grace period. */
	pollux_quiesce();
	return sum == (long)NUMBERS * (NUMBERS + 1) / 2 ? 0 : 1;
}
