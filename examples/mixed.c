/* SPDX-License-Identifier: MIT */
/*
 * An object of your own and a socket in one wait.
 *
 * A server answers requests that come by a socket; the answers are made by another thread, which
 * hands them over in a queue of the program's own. One wait is for both: no descriptor is made for
 * the queue, however many of those there are.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <pollux/epoll.h>
#include <pollux/file.h>

#define REQUESTS 1000
#define ROOM 16

/* A queue of numbers. Readable if there are some, and once nobody puts any more. */
struct queue {
	struct pollux_file file;
	pthread_mutex_t lock;
	pthread_cond_t filled;
	unsigned int head, count;
	int closed;
	uint32_t slot[ROOM];
};

static uint32_t queue_poll(struct pollux_file *f, uint32_t wanted)
{
	struct queue *q = pollux_container_of(f, struct queue, file);

	(void)wanted;
	return __atomic_load_n(&q->count, __ATOMIC_ACQUIRE) ? EPOLLIN : 0u;
}

static const struct pollux_file_ops queue_ops = {.size = sizeof(queue_ops), .poll = queue_poll};

static void queue_init(struct queue *q)
{
	memset(q, 0, sizeof(*q));
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->filled, NULL);
	pollux_file_init(&q->file, &queue_ops);
}

/* First the change, then the wake, which costs a system call only if somebody sleeps. */
static void queue_put(struct queue *q, uint32_t v)
{
	pthread_mutex_lock(&q->lock);
	q->slot[(q->head + q->count) % ROOM] = v;
	__atomic_store_n(&q->count, q->count + 1, __ATOMIC_RELEASE);
	pthread_cond_signal(&q->filled);
	pthread_mutex_unlock(&q->lock);
	pollux_file_wake(&q->file, EPOLLIN);
}

static void queue_close(struct queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->closed = 1;
	pthread_cond_signal(&q->filled);
	pthread_mutex_unlock(&q->lock);
}

/* Blocks for the worker, and not for the server, which comes when the queue is readable. */
static int queue_take(struct queue *q, uint32_t *v, int block)
{
	int got = 0;

	pthread_mutex_lock(&q->lock);
	while (block && !q->count && !q->closed)
		pthread_cond_wait(&q->filled, &q->lock);
	if (q->count) {
		*v = q->slot[q->head];
		q->head = (q->head + 1) % ROOM;
		__atomic_store_n(&q->count, q->count - 1, __ATOMIC_RELEASE);
		got = 1;
	}
	pthread_mutex_unlock(&q->lock);
	return got;
}

static struct queue requests, answers;

static void *worker(void *arg)
{
	uint32_t v;

	(void)arg;
	while (queue_take(&requests, &v, 1))
		queue_put(&answers, v * v);
	return NULL;
}

/* Sends numbers, a few at a time, and adds up the squares that come back. */
static void *client(void *arg)
{
	int fd = *(int *)arg;
	uint64_t *sum = calloc(1, sizeof(*sum));
	uint32_t v, back, out = 0;

	if (!sum)
		exit(1);
	for (v = 1; v <= REQUESTS; v++) {
		if (send(fd, &v, sizeof(v), 0) != sizeof(v))
			exit(1);
		out++;
		for (; out == ROOM / 2 || (v == REQUESTS && out); out--) {
			if (recv(fd, &back, sizeof(back), 0) != sizeof(back))
				exit(1);
			*sum += back;
		}
	}
	close(fd);
	return sum;
}

static int serve(int fd)
{
	struct epoll_event ev = {.events = EPOLLIN}, got[8];
	struct pollux_ep *ep;
	int served = 0, open = 1;

	if (pollux_ep_new(&ep, NULL))
		return -1;
	ev.data.ptr = &answers;
	if (pollux_ep_ctl(ep, EPOLL_CTL_ADD, &answers.file, 0, &ev))
		return -1;
	ev.data.ptr = NULL;
	if (pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd, &ev))
		return -1;
	while (open) {
		int n = pollux_ep_wait(ep, got, 8, POLLUX_FOREVER);

		if (n < 0 && n != -EINTR)
			return -1;
		for (int i = 0; i < n; i++) {
			uint32_t v;

			if (got[i].data.ptr == &answers) {
				while (queue_take(&answers, &v, 0))
					served += send(fd, &v, sizeof(v), 0) == sizeof(v);
			} else if (recv(fd, &v, sizeof(v), 0) == sizeof(v)) {
				queue_put(&requests, v);
			} else {
				open = 0;
			}
		}
	}
	/* The epoll's own two descriptors go with its last reference. */
	pollux_ep_put(ep);
	return served;
}

int main(void)
{
	uint64_t want = 0, *sum;
	pthread_t w, c;
	int fd[2], served;

	queue_init(&requests);
	queue_init(&answers);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) ||
	    pthread_create(&w, NULL, worker, NULL) || pthread_create(&c, NULL, client, &fd[1]))
		return 1;
	served = serve(fd[0]);
	queue_close(&requests);
	pthread_join(w, NULL);
	pthread_join(c, (void **)&sum);
	close(fd[0]);
	for (uint64_t v = 1; v <= REQUESTS; v++)
		want += v * v;
	printf("%d answers by one wait for a queue and a socket, sum %llu\n", served,
	       (unsigned long long)*sum);
	served = served == REQUESTS && *sum == want;
	free(sum);
	pollux_file_put(&requests.file);
	pollux_file_put(&answers.file);
	pollux_quiesce();
	return !served;
}
