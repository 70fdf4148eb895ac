/* SPDX-License-Identifier: MIT */
/*
 * Pipes: 16 pages, filled as the kernel fills them, so that it can be seen at the same moment that
 * there is room (a page is free only when the last byte of it has been read).
 *
 * Both ends are one piece of memory, which goes when both have been freed. Whoever tells the other
 * end does so with the lock held: that end may be closing, but has not been released then.
 */
#include "description.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PAGES 16u
#define PAGE 4096u

enum { READER, WRITER };

struct page {
	unsigned int start, used;
	char byte[PAGE];
};

struct pipe {
	struct end {
		struct description d;
		struct pipe *pipe;
		/* What is true of it. Written under the lock, read without. */
		uint32_t mask;
		bool open;
		/* Threads that wait to read, or to write. */
		pthread_cond_t changed;
	} end[2];
	pthread_mutex_t lock;
	/* Ends that have not been freed. */
	int memory;
	/* Pages tail to head - 1, modulo PAGES, hold something. */
	unsigned int head, tail;
	struct page page[PAGES];
};

static struct end *end_of(struct pollux_file *f)
{
	return pollux_container_of(f, struct end, d.file);
}

static uint32_t pipe_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)wanted;
	return __atomic_load_n(&end_of(f)->mask, __ATOMIC_ACQUIRE);
}

static bool pipe_empty(const struct pipe *p)
{
	return p->head == p->tail;
}

static bool pipe_full(const struct pipe *p)
{
	return p->head - p->tail == PAGES;
}

/* The lock is held. */
static void pipe_say(struct pipe *p)
{
	uint32_t in = 0, out = 0;

	if (!pipe_empty(p))
		in |= EPOLLIN | EPOLLRDNORM;
	if (!p->end[WRITER].open)
		in |= EPOLLHUP;
	if (!pipe_full(p))
		out |= EPOLLOUT | EPOLLWRNORM;
	if (!p->end[READER].open)
		out |= EPOLLERR;
	__atomic_store_n(&p->end[READER].mask, in, __ATOMIC_RELEASE);
	__atomic_store_n(&p->end[WRITER].mask, out, __ATOMIC_RELEASE);
}

/* The lock is held. */
static void tell_reader(struct pipe *p)
{
	pipe_say(p);
	pthread_cond_broadcast(&p->end[READER].changed);
	if (p->end[READER].open)
		tell(&p->end[READER].d, EPOLLIN | EPOLLRDNORM);
}

static void tell_writer(struct pipe *p)
{
	pipe_say(p);
	pthread_cond_broadcast(&p->end[WRITER].changed);
	if (p->end[WRITER].open)
		tell(&p->end[WRITER].d, EPOLLOUT | EPOLLWRNORM);
}

/* Up to n bytes of what is there. */
static size_t pipe_take(struct pipe *p, char *to, size_t n)
{
	size_t done = 0;

	while (done < n && !pipe_empty(p)) {
		struct page *g = &p->page[p->tail % PAGES];
		size_t part = n - done < g->used ? n - done : g->used;

		memcpy(to + done, g->byte + g->start, part);
		g->start += (unsigned int)part;
		g->used -= (unsigned int)part;
		done += part;
		if (!g->used)
			p->tail++;
	}
	return done;
}

static long pipe_read(struct description *d, void *buf, size_t n, bool block)
{
	struct pipe *p = end_of(&d->file)->pipe;
	bool was_full;
	size_t done;

	if (!n)
		return 0;
	pthread_mutex_lock(&p->lock);
	while (block && pipe_empty(p) && p->end[WRITER].open)
		pthread_cond_wait(&p->end[READER].changed, &p->lock);
	was_full = pipe_full(p);
	done = pipe_take(p, buf, n);
	/* Only the step from full makes an edge for who writes. */
	if (was_full && !pipe_full(p))
		tell_writer(p);
	else
		pipe_say(p);
	block = !done && p->end[WRITER].open;
	pthread_mutex_unlock(&p->lock);
	return block ? -EAGAIN : (long)done;
}

/* What is more than whole pages goes on in the last one, if all of that fits there. */
static size_t pipe_go_on(struct pipe *p, const char *from, size_t n)
{
	struct page *g = &p->page[(p->head - 1) % PAGES];
	size_t part = n % PAGE;

	if (!part || pipe_empty(p) || g->start + g->used + part > PAGE)
		return 0;
	memcpy(g->byte + g->start + g->used, from, part);
	g->used += (unsigned int)part;
	return part;
}

static size_t pipe_new_page(struct pipe *p, const char *from, size_t n)
{
	struct page *g = &p->page[p->head++ % PAGES];

	g->start = 0;
	g->used = n < PAGE ? (unsigned int)n : PAGE;
	memcpy(g->byte, from, g->used);
	return g->used;
}

static long pipe_write(struct description *d, const void *buf, size_t n, bool block)
{
	struct pipe *p = end_of(&d->file)->pipe;
	const char *from = buf;
	bool was_empty;
	size_t done;
	long r = 0;

	if (!n)
		return 0;
	pthread_mutex_lock(&p->lock);
	was_empty = pipe_empty(p);
	done = p->end[READER].open ? pipe_go_on(p, from, n) : 0;
	while (done < n) {
		if (!p->end[READER].open) {
			r = -EPIPE;
		} else if (!pipe_full(p)) {
			done += pipe_new_page(p, from + done, n - done);
			continue;
		} else if (block) {
			/* Who reads has been told of what was there before. */
			if (was_empty)
				tell_reader(p);
			else
				pipe_say(p);
			pthread_cond_wait(&p->end[WRITER].changed, &p->lock);
			was_empty = pipe_empty(p);
			continue;
		} else {
			r = -EAGAIN;
		}
		break;
	}
	/* Also if nothing was written: the kernel does so. */
	tell_reader(p);
	pthread_mutex_unlock(&p->lock);
	return done ? (long)done : r;
}

static void pipe_release(struct pollux_file *f)
{
	struct end *e = end_of(f), *other;
	struct pipe *p = e->pipe;

	other = e == &p->end[READER] ? &p->end[WRITER] : &p->end[READER];
	pthread_mutex_lock(&p->lock);
	e->open = false;
	pipe_say(p);
	if (other->open)
		tell_all(&other->d);
	pthread_cond_broadcast(&other->changed);
	pthread_mutex_unlock(&p->lock);
}

static void pipe_free(struct pollux_file *f)
{
	struct pipe *p = end_of(f)->pipe;

	if (__atomic_sub_fetch(&p->memory, 1, __ATOMIC_ACQ_REL))
		return;
	pthread_mutex_destroy(&p->lock);
	for (int i = 0; i < 2; i++)
		pthread_cond_destroy(&p->end[i].changed);
	free(p);
}

static const struct pollux_file_ops pipe_file_ops = {
	.size = sizeof(pipe_file_ops),
	.poll = pipe_poll,
	.release = pipe_release,
	.free = pipe_free,
};

static const struct operations pipe_ops = {.read = pipe_read, .write = pipe_write};

int pipe_new(struct description *end[2], int flags)
{
	struct pipe *p = malloc(sizeof(*p));

	if (!p)
		return -ENOMEM;
	/* The pages need no zeros. */
	memset(p, 0, offsetof(struct pipe, page));
	pthread_mutex_init(&p->lock, NULL);
	p->memory = 2;
	for (int i = 0; i < 2; i++) {
		struct end *e = &p->end[i];

		pollux_file_init(&e->d.file, &pipe_file_ops);
		pthread_cond_init(&e->changed, NULL);
		e->d.ops = &pipe_ops;
		e->d.watched = &e->d.file;
		e->d.mode = i == READER ? O_RDONLY : O_WRONLY;
		e->d.flags = flags & O_NONBLOCK;
		e->pipe = p;
		e->open = true;
		end[i] = &e->d;
	}
	pipe_say(p);
	return 0;
}
