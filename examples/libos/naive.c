/* SPDX-License-Identifier: MIT */
/*
 * An epoll as it is often written: a list of registrations, all of which are asked at each wait.
 * It is here to be compared with, and does no more than level-triggered events of plain files.
 *
 * It sleeps on a condition. A file that is watched knows its registrations, and whoever changes it
 * wakes their epolls, if anybody sleeps there.
 */
#include "description.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct naive {
	struct description d;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Atomic. */
	int sleepers;
	struct naive_item *first, **last;
};

struct naive_item {
	struct naive_item *next, *next_of_file;
	struct naive *ep;
	struct description *target;
	int fd;
	struct epoll_event ev;
};

/* For the lists of the files: items that a file has are looked at and changed under it. */
static pthread_rwlock_t files_lock = PTHREAD_RWLOCK_INITIALIZER;

static struct naive *naive_of(struct description *d)
{
	return pollux_container_of(d, struct naive, d);
}

void naive_tell(struct description *d)
{
	pthread_rwlock_rdlock(&files_lock);
	for (struct naive_item *i = d->naive; i; i = i->next_of_file) {
		/* A read-modify-write: who counts itself after it sees what has changed. */
		if (!__atomic_fetch_add(&i->ep->sleepers, 0, __ATOMIC_SEQ_CST))
			continue;
		pthread_mutex_lock(&i->ep->lock);
		pthread_cond_signal(&i->ep->changed);
		pthread_mutex_unlock(&i->ep->lock);
	}
	pthread_rwlock_unlock(&files_lock);
}

/* The lock is held. */
static struct naive_item **naive_find(struct naive *ep, const struct description *target, int fd)
{
	struct naive_item **at = &ep->first;

	while (*at && ((*at)->target != target || (*at)->fd != fd))
		at = &(*at)->next;
	return at;
}

/* Both locks are held. The file has fewer registrations than the epoll. */
static bool naive_has(struct naive *ep, const struct description *target, int fd)
{
	struct naive_item *i = target->naive;

	while (i && (i->ep != ep || i->fd != fd))
		i = i->next_of_file;
	return i != NULL;
}

static void naive_unlink(struct naive_item *i)
{
	struct naive_item **at = &i->target->naive;

	pthread_rwlock_wrlock(&files_lock);
	while (*at != i)
		at = &(*at)->next_of_file;
	__atomic_store_n(at, i->next_of_file, __ATOMIC_RELEASE);
	pthread_rwlock_unlock(&files_lock);
	/* This one holds what it watches, unlike a real one. */
	pollux_file_put(&i->target->file);
	free(i);
}

static int naive_add(struct naive *ep, struct description *target, int fd,
		     const struct epoll_event *ev)
{
	struct naive_item *i = malloc(sizeof(*i));
	int r = 0;

	if (!i)
		return -ENOMEM;
	*i = (struct naive_item){.ep = ep, .target = target, .fd = fd, .ev = *ev};
	pthread_rwlock_wrlock(&files_lock);
	pthread_mutex_lock(&ep->lock);
	if (naive_has(ep, target, fd)) {
		r = -EEXIST;
		free(i);
	} else {
		pollux_file_get(&target->file);
		*ep->last = i;
		ep->last = &i->next;
		i->next_of_file = target->naive;
		__atomic_store_n(&target->naive, i, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&ep->lock);
	pthread_rwlock_unlock(&files_lock);
	return r;
}

static int naive_ctl(struct description *d, int op, struct description *target, int fd,
		     const struct epoll_event *ev)
{
	struct naive *ep = naive_of(d);
	struct naive_item **at, *gone = NULL;
	int r = 0;

	if (op != EPOLL_CTL_DEL && ev->events & (EPOLLET | EPOLLONESHOT | EPOLLEXCLUSIVE))
		return -EINVAL;
	if (op == EPOLL_CTL_ADD)
		return naive_add(ep, target, fd, ev);
	pthread_mutex_lock(&ep->lock);
	at = naive_find(ep, target, fd);
	if (!*at) {
		r = -ENOENT;
	} else if (op == EPOLL_CTL_DEL) {
		gone = *at;
		*at = gone->next;
		if (!*at)
			ep->last = at;
	} else {
		(*at)->ev = *ev;
	}
	pthread_mutex_unlock(&ep->lock);
	if (gone)
		naive_unlink(gone);
	return r;
}

/* The lock is held. */
static int naive_walk(struct naive *ep, struct epoll_event *ev, int max)
{
	int n = 0;

	for (struct naive_item *i = ep->first; i && n < max; i = i->next) {
		uint32_t wanted = i->ev.events | EPOLLERR | EPOLLHUP;
		uint32_t mask = pollux_file_poll(i->target->watched, wanted) & wanted;

		if (!mask)
			continue;
		ev[n].events = mask;
		ev[n++].data = i->ev.data;
	}
	return n;
}

static int naive_wait(struct description *d, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	struct naive *ep = naive_of(d);
	int n;

	pthread_mutex_lock(&ep->lock);
	n = naive_walk(ep, ev, max);
	if (!n && timeout_ns) {
		struct timespec end;
		int late = 0;

		clock_gettime(CLOCK_MONOTONIC, &end);
		if (timeout_ns > 0) {
			end.tv_nsec += timeout_ns % 1000000000;
			end.tv_sec += timeout_ns / 1000000000 + end.tv_nsec / 1000000000;
			end.tv_nsec %= 1000000000;
		}
		__atomic_fetch_add(&ep->sleepers, 1, __ATOMIC_SEQ_CST);
		while (!(n = naive_walk(ep, ev, max)) && !late) {
			if (timeout_ns < 0)
				pthread_cond_wait(&ep->changed, &ep->lock);
			else
				late = pthread_cond_timedwait(&ep->changed, &ep->lock, &end);
		}
		__atomic_fetch_sub(&ep->sleepers, 1, __ATOMIC_SEQ_CST);
	}
	pthread_mutex_unlock(&ep->lock);
	return n;
}

static uint32_t naive_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	(void)wanted;
	return 0;
}

static void naive_release(struct pollux_file *f)
{
	struct naive *ep = pollux_container_of(f, struct naive, d.file);

	while (ep->first) {
		struct naive_item *i = ep->first;

		ep->first = i->next;
		naive_unlink(i);
	}
}

static void naive_free(struct pollux_file *f)
{
	struct naive *ep = pollux_container_of(f, struct naive, d.file);

	pthread_cond_destroy(&ep->changed);
	pthread_mutex_destroy(&ep->lock);
	free(ep);
}

static const struct pollux_file_ops naive_file_ops = {
	.size = sizeof(naive_file_ops),
	.poll = naive_poll,
	.release = naive_release,
	.free = naive_free,
};

static const struct operations naive_ops = {.ctl = naive_ctl, .wait = naive_wait};

struct description *naive_new(void)
{
	struct naive *ep = calloc(1, sizeof(*ep));
	pthread_condattr_t attr;

	if (!ep)
		return NULL;
	pollux_file_init(&ep->d.file, &naive_file_ops);
	pthread_mutex_init(&ep->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ep->changed, &attr);
	pthread_condattr_destroy(&attr);
	ep->last = &ep->first;
	ep->d.ops = &naive_ops;
	ep->d.mode = O_RDWR;
	return &ep->d;
}
