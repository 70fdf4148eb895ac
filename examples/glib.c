/* SPDX-License-Identifier: MIT */
/*
 * GLib's main loop drives an epoll of Pollux.
 *
 * GLib waits for descriptors. pollux_ep_fd gives it one, that is readable while an event waits, be
 * it of an object or of a descriptor in the epoll. A GSource takes the events and calls what each
 * of them is for; GLib's own sources, here a timer, run beside it. A thread puts numbers into a
 * queue that is an object of the program, and another one echoes over a socket.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <glib.h>

#include <pollux/epoll.h>
#include <pollux/file.h>

#define NUMBERS 20000u
#define ECHOES 2000u

/* What is called for an event; the data of a registration is the address of one. */
struct handler {
	void (*run)(struct handler *h);
};

/* The source that stands for the epoll in GLib's loop. */
struct epoll_source {
	GSource source;
	struct pollux_ep *ep;
	gpointer tag;
};

/* The descriptor alone decides: no prepare and no check are needed. */
static gboolean epoll_source_dispatch(GSource *source, GSourceFunc callback, gpointer data)
{
	struct epoll_source *s = (struct epoll_source *)source;
	struct epoll_event ev[16];
	int n = pollux_ep_wait(s->ep, ev, 16, 0);

	(void)callback;
	(void)data;
	for (int i = 0; i < n; i++) {
		struct handler *h = ev[i].data.ptr;

		h->run(h);
	}
	/* It stays readable while events are left, so other sources get their turn meanwhile. */
	return n == -ESHUTDOWN ? G_SOURCE_REMOVE : G_SOURCE_CONTINUE;
}

static void epoll_source_finalize(GSource *source)
{
	pollux_ep_put(((struct epoll_source *)source)->ep);
}

static GSourceFuncs epoll_source_funcs = {
	.dispatch = epoll_source_dispatch,
	.finalize = epoll_source_finalize,
};

/* Takes over the caller's reference of ep. */
static GSource *epoll_source_new(struct pollux_ep *ep)
{
	GSource *source = g_source_new(&epoll_source_funcs, sizeof(struct epoll_source));
	struct epoll_source *s = (struct epoll_source *)source;
	int fd = pollux_ep_fd(ep);

	if (fd < 0)
		g_error("pollux_ep_fd: %s", g_strerror(-fd));
	s->ep = ep;
	s->tag = g_source_add_unix_fd(source, fd, G_IO_IN);
	return source;
}

#define ROOM 64u

/* A queue as an object: only how many numbers it has, and their sum. A producer waits for room. */
static struct queue {
	struct pollux_file file;
	struct handler handler;
	pthread_mutex_t lock;
	pthread_cond_t taken;
	uint64_t sum;
	unsigned int count;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .taken = PTHREAD_COND_INITIALIZER};

static uint32_t queue_poll(struct pollux_file *f, uint32_t wanted)
{
	struct queue *q = pollux_container_of(f, struct queue, file);

	(void)wanted;
	return __atomic_load_n(&q->count, __ATOMIC_ACQUIRE) ? EPOLLIN : 0u;
}

static const struct pollux_file_ops queue_ops = {.size = sizeof(queue_ops), .poll = queue_poll};

static GMainLoop *loop;
static uint64_t sum;
static unsigned int numbers, echoes, ticks, events;

static void end_if_done(void)
{
	if (numbers == NUMBERS && echoes == ECHOES)
		g_main_loop_quit(loop);
}

static void queue_run(struct handler *h)
{
	struct queue *q = pollux_container_of(h, struct queue, handler);

	pthread_mutex_lock(&q->lock);
	numbers += q->count;
	sum += q->sum;
	__atomic_store_n(&q->count, 0, __ATOMIC_RELEASE);
	q->sum = 0;
	pthread_cond_signal(&q->taken);
	pthread_mutex_unlock(&q->lock);
	events++;
	end_if_done();
}

static void *producer(void *arg)
{
	struct queue *q = arg;

	for (unsigned int i = 1; i <= NUMBERS; i++) {
		pthread_mutex_lock(&q->lock);
		while (q->count == ROOM)
			pthread_cond_wait(&q->taken, &q->lock);
		q->sum += i;
		__atomic_store_n(&q->count, q->count + 1, __ATOMIC_RELEASE);
		pthread_mutex_unlock(&q->lock);
		pollux_file_wake(&q->file, EPOLLIN);
	}
	return NULL;
}

static struct echo {
	struct handler handler;
	int fd[2];
} echo;

static void echo_run(struct handler *h)
{
	struct echo *e = pollux_container_of(h, struct echo, handler);
	char c;

	if (recv(e->fd[0], &c, 1, 0) == 1 && send(e->fd[0], &c, 1, 0) == 1)
		echoes++;
	end_if_done();
}

static void *echo_client(void *arg)
{
	struct echo *e = arg;

	for (unsigned int i = 0; i < ECHOES; i++) {
		char c = (char)i;

		if (send(e->fd[1], &c, 1, 0) != 1 || recv(e->fd[1], &c, 1, 0) != 1 || c != (char)i)
			exit(1);
	}
	return NULL;
}

static gboolean tick(gpointer data)
{
	(void)data;
	ticks++;
	return G_SOURCE_CONTINUE;
}

int main(void)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct pollux_ep *ep;
	GSource *source;
	pthread_t t, u;

	loop = g_main_loop_new(NULL, FALSE);
	if (pollux_ep_new(&ep, NULL) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, echo.fd))
		return 1;
	pollux_file_init(&queue.file, &queue_ops);
	queue.handler.run = queue_run;
	ev.data.ptr = &queue.handler;
	if (pollux_ep_ctl(ep, EPOLL_CTL_ADD, &queue.file, 0, &ev))
		return 1;
	echo.handler.run = echo_run;
	ev.data.ptr = &echo.handler;
	if (pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, echo.fd[0], &ev))
		return 1;
	source = epoll_source_new(ep);
	g_source_attach(source, NULL);
	g_timeout_add(1, tick, NULL);
	if (pthread_create(&t, NULL, producer, &queue) ||
	    pthread_create(&u, NULL, echo_client, &echo))
		return 1;
	g_main_loop_run(loop);
	pthread_join(t, NULL);
	pthread_join(u, NULL);
	printf("GLib's loop: %u numbers of a queue by %u events, sum %llu; %u echoes of a socket "
	       "by "
	       "the same epoll; %u ticks of its own timer\n",
	       numbers, events, (unsigned long long)sum, echoes, ticks);
	g_source_destroy(source);
	g_source_unref(source);
	g_main_loop_unref(loop);
	pollux_file_put(&queue.file);
	close(echo.fd[0]);
	close(echo.fd[1]);
	pollux_quiesce();
	return sum != (uint64_t)NUMBERS * (NUMBERS + 1) / 2;
}
