/* SPDX-License-Identifier: MIT */
/*
 * Descriptions whose object is one of the library's, an eventfd or an epoll, and one that has none.
 *
 * The description has a reference on its object, which goes with its own last one. An epoll watches
 * the object's file; the description's is only counted.
 */
#include "description.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include <pollux/eventfd.h>

struct wrapper {
	struct description d;
	struct pollux_efd *efd;
	struct pollux_ep *ep;
};

static struct wrapper *wrapper_of(struct description *d)
{
	return pollux_container_of(d, struct wrapper, d);
}

static uint32_t wrapper_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	(void)wanted;
	return 0;
}

static void wrapper_release(struct pollux_file *f)
{
	struct wrapper *w = pollux_container_of(f, struct wrapper, d.file);

	if (w->efd)
		pollux_file_put(pollux_efd_file(w->efd));
	if (w->ep)
		pollux_ep_put(w->ep);
}

static void wrapper_free(struct pollux_file *f)
{
	free(pollux_container_of(f, struct wrapper, d.file));
}

static const struct pollux_file_ops wrapper_ops = {
	.size = sizeof(wrapper_ops),
	.poll = wrapper_poll,
	.release = wrapper_release,
	.free = wrapper_free,
};

static struct wrapper *wrapper_new(const struct operations *ops)
{
	struct wrapper *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	pollux_file_init(&w->d.file, &wrapper_ops);
	w->d.ops = ops;
	w->d.mode = O_RDWR;
	return w;
}

static long counter_read(struct description *d, void *buf, size_t n, bool block)
{
	uint64_t value;
	int r;

	if (n < sizeof(value))
		return -EINVAL;
	r = pollux_efd_read(wrapper_of(d)->efd, &value, block);
	if (r < 0)
		return r;
	memcpy(buf, &value, sizeof(value));
	return sizeof(value);
}

static long counter_write(struct description *d, const void *buf, size_t n, bool block)
{
	uint64_t value;
	int r;

	if (n != sizeof(value))
		return -EINVAL;
	memcpy(&value, buf, sizeof(value));
	r = pollux_efd_write(wrapper_of(d)->efd, value, block);
	if (r < 0)
		return r;
	if (__atomic_load_n(&d->naive, __ATOMIC_ACQUIRE))
		naive_tell(d);
	return sizeof(value);
}

static const struct operations counter_ops = {.read = counter_read, .write = counter_write};

struct description *eventfd_new(unsigned int initial, int flags)
{
	struct wrapper *w = wrapper_new(&counter_ops);

	if (!w)
		return NULL;
	w->d.flags = flags & O_NONBLOCK;
	if (pollux_efd_new(&w->efd, initial, flags & EFD_SEMAPHORE ? POLLUX_EFD_SEMAPHORE : 0)) {
		pollux_file_put(&w->d.file);
		return NULL;
	}
	w->d.watched = pollux_efd_file(w->efd);
	return &w->d;
}

static int epoll_change(struct description *d, int op, struct description *target, int fd,
			const struct epoll_event *ev)
{
	/* The number is the key, so two descriptors of one file are two registrations. */
	return pollux_ep_ctl(wrapper_of(d)->ep, op, target->watched, fd, ev);
}

static int epoll_collect(struct description *d, struct epoll_event *ev, int max, int64_t timeout_ns)
{
	return pollux_ep_wait(wrapper_of(d)->ep, ev, max, timeout_ns);
}

static const struct operations epoll_ops = {.ctl = epoll_change, .wait = epoll_collect};

struct description *epoll_new(void)
{
	struct wrapper *w = wrapper_new(&epoll_ops);

	if (!w)
		return NULL;
	if (pollux_ep_new(&w->ep, NULL)) {
		pollux_file_put(&w->d.file);
		return NULL;
	}
	w->d.watched = pollux_ep_file(w->ep);
	return &w->d;
}

static long null_read(struct description *d, void *buf, size_t n, bool block)
{
	(void)d;
	(void)buf;
	(void)n;
	(void)block;
	return 0;
}

static long null_write(struct description *d, const void *buf, size_t n, bool block)
{
	(void)d;
	(void)buf;
	(void)block;
	return (long)n;
}

static const struct operations null_ops = {.read = null_read, .write = null_write};

struct description *null_new(void)
{
	struct wrapper *w = wrapper_new(&null_ops);

	return w ? &w->d : NULL;
}
