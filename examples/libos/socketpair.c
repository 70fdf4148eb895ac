/* SPDX-License-Identifier: MIT */
/*
 * Pairs of stream sockets. As with a pipe, both ends are one piece of memory, and the other end is
 * told with the lock held.
 *
 * What has been sent is kept in messages, as the kernel keeps it: the sender is told for each that
 * has been read to its end. How much memory a message counts for is our own affair.
 */
#include "description.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ROOM 212992u
#define MESSAGE 32768u
#define OVERHEAD 768u

#define IN_KEY (EPOLLIN | EPOLLPRI | EPOLLRDNORM | EPOLLRDBAND)
#define OUT_KEY (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND)

/* What an end does no more. */
#define NO_RECEIVE 1u
#define NO_SEND 2u
#define NEITHER (NO_RECEIVE | NO_SEND)

struct message {
	struct message *next;
	size_t start, used, charge;
	char byte[];
};

struct pair {
	struct end {
		struct description d;
		struct pair *pair;
		struct end *other;
		/* What is true of it. Written under the lock, read without. */
		uint32_t mask;
		unsigned int shut;
		int error;
		bool open;
		/* What has come, and what the messages that it has sent count for. */
		struct message *first, **last;
		size_t sent;
		pthread_cond_t readable, writable;
	} end[2];
	pthread_mutex_t lock;
	/* Ends that have not been freed. */
	int memory;
};

static struct end *end_of(struct pollux_file *f)
{
	return pollux_container_of(f, struct end, d.file);
}

static uint32_t socket_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)wanted;
	return __atomic_load_n(&end_of(f)->mask, __ATOMIC_ACQUIRE);
}

static bool has_room(const struct end *e)
{
	return e->sent * 4 <= ROOM;
}

/* The lock is held. */
static void say(struct end *e)
{
	uint32_t mask = 0;

	if (e->error)
		mask |= EPOLLERR;
	if (e->shut == NEITHER)
		mask |= EPOLLHUP;
	if (e->shut & NO_RECEIVE)
		mask |= EPOLLRDHUP | EPOLLIN | EPOLLRDNORM;
	if (e->first)
		mask |= EPOLLIN | EPOLLRDNORM;
	if (has_room(e))
		mask |= OUT_KEY;
	__atomic_store_n(&e->mask, mask, __ATOMIC_RELEASE);
}

/* The lock is held. */
static void changed(struct end *e)
{
	say(e);
	pthread_cond_broadcast(&e->readable);
	pthread_cond_broadcast(&e->writable);
	if (e->open)
		tell_all(&e->d);
}

/* The first message has been read, or is thrown away. */
static void message_end(struct end *e)
{
	struct message *m = e->first;
	struct end *sender = e->other;

	e->first = m->next;
	if (!e->first)
		e->last = &e->first;
	sender->sent -= m->charge;
	free(m);
	say(sender);
	if (!has_room(sender))
		return;
	pthread_cond_signal(&sender->writable);
	if (sender->open)
		tell(&sender->d, OUT_KEY);
}

static size_t take(struct end *e, char *to, size_t n)
{
	size_t done = 0;

	while (done < n && e->first) {
		struct message *m = e->first;
		size_t part = n - done < m->used ? n - done : m->used;

		memcpy(to + done, m->byte + m->start, part);
		m->start += part;
		m->used -= part;
		done += part;
		if (!m->used)
			message_end(e);
	}
	return done;
}

static long socket_read(struct description *d, void *buf, size_t n, bool block)
{
	struct end *e = end_of(&d->file);
	struct pair *p = e->pair;
	long r;

	if (!n)
		return 0;
	pthread_mutex_lock(&p->lock);
	while (block && !e->first && !e->error && !(e->shut & NO_RECEIVE))
		pthread_cond_wait(&e->readable, &p->lock);
	r = (long)take(e, buf, n);
	if (!r && e->error) {
		r = -e->error;
		e->error = 0;
	} else if (!r && !(e->shut & NO_RECEIVE)) {
		r = -EAGAIN;
	}
	say(e);
	pthread_mutex_unlock(&p->lock);
	return r;
}

static struct message *message_new(const char *from, size_t n)
{
	struct message *m = malloc(sizeof(*m) + n);

	if (!m)
		return NULL;
	m->next = NULL;
	m->start = 0;
	m->used = n;
	m->charge = n + OVERHEAD;
	memcpy(m->byte, from, n);
	return m;
}

/* The lock is held. One message, or why not. */
static long send_one(struct end *e, const char *from, size_t n)
{
	struct end *to = e->other;
	struct message *m;

	if (e->shut & NO_SEND)
		return -EPIPE;
	if (e->sent >= ROOM)
		return -EAGAIN;
	if (n > MESSAGE)
		n = MESSAGE;
	m = message_new(from, n);
	if (!m)
		return -ENOMEM;
	*to->last = m;
	to->last = &m->next;
	e->sent += m->charge;
	say(e);
	say(to);
	pthread_cond_signal(&to->readable);
	tell(&to->d, IN_KEY);
	return (long)n;
}

static long socket_write(struct description *d, const void *buf, size_t n, bool block)
{
	struct end *e = end_of(&d->file);
	struct pair *p = e->pair;
	const char *from = buf;
	size_t done = 0;
	long r;

	pthread_mutex_lock(&p->lock);
	r = e->shut & NO_SEND ? -EPIPE : 0;
	while (!r && done < n) {
		r = send_one(e, from + done, n - done);
		if (r > 0)
			done += (size_t)r;
		if (r == -EAGAIN && block)
			pthread_cond_wait(&e->writable, &p->lock);
		if (r > 0 || (r == -EAGAIN && block))
			r = 0;
	}
	pthread_mutex_unlock(&p->lock);
	return done ? (long)done : r;
}

static int socket_shutdown(struct description *d, int how)
{
	struct end *e = end_of(&d->file);
	unsigned int mine, theirs = 0;

	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	mine = (unsigned int)how + 1;
	if (mine & NO_RECEIVE)
		theirs |= NO_SEND;
	if (mine & NO_SEND)
		theirs |= NO_RECEIVE;
	pthread_mutex_lock(&e->pair->lock);
	e->shut |= mine;
	changed(e);
	e->other->shut |= theirs;
	changed(e->other);
	pthread_mutex_unlock(&e->pair->lock);
	return 0;
}

static void socket_release(struct pollux_file *f)
{
	struct end *e = end_of(f);

	pthread_mutex_lock(&e->pair->lock);
	e->open = false;
	e->shut = NEITHER;
	e->other->shut = NEITHER;
	/* What was sent here has not been read: the sender is told of that. */
	if (e->first)
		e->other->error = ECONNRESET;
	changed(e->other);
	while (e->first)
		message_end(e);
	pthread_mutex_unlock(&e->pair->lock);
}

static void socket_free(struct pollux_file *f)
{
	struct pair *p = end_of(f)->pair;

	if (__atomic_sub_fetch(&p->memory, 1, __ATOMIC_ACQ_REL))
		return;
	pthread_mutex_destroy(&p->lock);
	for (int i = 0; i < 2; i++) {
		pthread_cond_destroy(&p->end[i].readable);
		pthread_cond_destroy(&p->end[i].writable);
	}
	free(p);
}

static const struct pollux_file_ops socket_file_ops = {
	.size = sizeof(socket_file_ops),
	.poll = socket_poll,
	.release = socket_release,
	.free = socket_free,
};

static const struct operations socket_ops = {
	.read = socket_read,
	.write = socket_write,
	.shutdown = socket_shutdown,
};

int socketpair_new(struct description *end[2], int flags)
{
	struct pair *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	p->memory = 2;
	for (int i = 0; i < 2; i++) {
		struct end *e = &p->end[i];

		pollux_file_init(&e->d.file, &socket_file_ops);
		pthread_cond_init(&e->readable, NULL);
		pthread_cond_init(&e->writable, NULL);
		e->d.ops = &socket_ops;
		e->d.watched = &e->d.file;
		e->d.mode = O_RDWR;
		e->d.flags = flags & O_NONBLOCK;
		e->pair = p;
		e->other = &p->end[!i];
		e->last = &e->first;
		e->open = true;
		say(e);
		end[i] = &e->d;
	}
	return 0;
}
