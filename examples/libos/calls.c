/* SPDX-License-Identifier: MIT */
/*
 * The calls: from a number to its description, and what poll and select make of several.
 */
#include "libos.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <time.h>

#include <pollux/poll.h>
#include <pollux/read.h>

#include "table.h"

/* What poll says of a file that has no poll operation. */
#define ALWAYS (EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM)

#define IN_SET (EPOLLIN | EPOLLRDNORM | EPOLLRDBAND | EPOLLHUP | EPOLLERR)
#define OUT_SET (EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND | EPOLLERR)
#define EX_SET ((uint32_t)EPOLLPRI)

int sys_eventfd(struct process *p, unsigned int initial, int flags)
{
	return table_add(p, eventfd_new(initial, flags), 0);
}

int sys_open_null(struct process *p)
{
	return table_add(p, null_new(), 0);
}

int sys_epoll_create(struct process *p)
{
	return table_add(p, epoll_new(), 0);
}

int sys_naive_create(struct process *p)
{
	return table_add(p, naive_new(), 0);
}

int sys_pipe(struct process *p, int fd[2], int flags)
{
	struct description *end[2];
	int r = pipe_new(end, flags);

	return r ? r : table_add_two(p, end, fd);
}

int sys_socketpair(struct process *p, int fd[2], int flags)
{
	struct description *end[2];
	int r = socketpair_new(end, flags);

	return r ? r : table_add_two(p, end, fd);
}

int sys_getfl(struct process *p, int fd)
{
	struct description *d;
	int flags = -EBADF;

	pollux_read_lock();
	d = table_look(p, fd);
	if (d)
		flags = d->mode | __atomic_load_n(&d->flags, __ATOMIC_RELAXED);
	pollux_read_unlock();
	return flags;
}

int sys_setfl(struct process *p, int fd, int flags)
{
	struct description *d;

	pollux_read_lock();
	d = table_look(p, fd);
	if (d)
		__atomic_store_n(&d->flags, flags & O_NONBLOCK, __ATOMIC_RELAXED);
	pollux_read_unlock();
	return d ? 0 : -EBADF;
}

/*
 * What does not sleep is done within a read section and needs no reference. What may sleep must
 * not be in one.
 */
static bool sleeps(struct description *d)
{
	return !(__atomic_load_n(&d->flags, __ATOMIC_RELAXED) & O_NONBLOCK);
}

static inline long transfer(struct description *d, bool in, void *buf, size_t n, bool block)
{
	if (d->mode == (in ? O_WRONLY : O_RDONLY))
		return -EBADF;
	if (in)
		return d->ops->read ? d->ops->read(d, buf, n, block) : -EINVAL;
	return d->ops->write ? d->ops->write(d, buf, n, block) : -EINVAL;
}

static inline long transfer_at(struct process *p, int fd, bool in, void *buf, size_t n)
{
	struct description *d;
	bool block = false;
	long r = -EBADF;

	if (!table_shared(p)) {
		d = table_look(p, fd);
		return d ? transfer(d, in, buf, n, sleeps(d)) : -EBADF;
	}
	pollux_read_lock();
	d = table_look(p, fd);
	if (d && !(block = sleeps(d)))
		r = transfer(d, in, buf, n, false);
	pollux_read_unlock();
	if (!block)
		return r;
	d = table_get(p, fd);
	if (!d)
		return -EBADF;
	r = transfer(d, in, buf, n, true);
	pollux_file_put(&d->file);
	return r;
}

long sys_read(struct process *p, int fd, void *buf, size_t n)
{
	return transfer_at(p, fd, true, buf, n);
}

long sys_write(struct process *p, int fd, const void *buf, size_t n)
{
	return transfer_at(p, fd, false, (void *)buf, n);
}

int sys_shutdown(struct process *p, int fd, int how)
{
	struct description *d = table_hold(p, fd);
	int r;

	if (!d)
		return -EBADF;
	r = d->ops->shutdown ? d->ops->shutdown(d, how) : -ENOTSOCK;
	table_drop(p, d);
	return r;
}

int sys_epoll_ctl(struct process *p, int epfd, int op, int fd, const struct epoll_event *ev)
{
	struct description *d, *target = NULL;
	int r;

	/* In the order of the kernel. */
	if (op != EPOLL_CTL_DEL && !ev)
		return -EFAULT;
	d = table_hold(p, epfd);
	if (d)
		target = table_hold(p, fd);
	if (!target)
		r = -EBADF;
	else if (!target->watched)
		r = -EPERM;
	else if (d == target || !d->ops->ctl)
		r = -EINVAL;
	else
		r = d->ops->ctl(d, op, target, fd, ev);
	if (target)
		table_drop(p, target);
	if (d)
		table_drop(p, d);
	return r;
}

static int64_t ns_of(int timeout_ms)
{
	return timeout_ms < 0 ? POLLUX_FOREVER : timeout_ms * (int64_t)1000000;
}

int sys_epoll_wait(struct process *p, int epfd, struct epoll_event *ev, int max, int timeout_ms)
{
	struct description *d = table_hold(p, epfd);
	int r;

	if (!d)
		return -EBADF;
	if (max <= 0)
		r = -EINVAL;
	else
		r = d->ops->wait ? d->ops->wait(d, ev, max, ns_of(timeout_ms)) : -EINVAL;
	table_drop(p, d);
	return r;
}

static int64_t deadline_of(int timeout_ms)
{
	struct timespec t;

	if (timeout_ms <= 0)
		return timeout_ms;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * (int64_t)1000000000 + t.tv_nsec + ns_of(timeout_ms);
}

#define FEW 8

/* strict: all must be open, or none is asked, and the result is -EBADF. */
static int poll_all(struct process *p, struct pollfd *v, unsigned int n, int timeout_ms,
		    bool strict)
{
	struct pollux_pollfile few[FEW], *e = few;
	struct description *few_d[FEW], **d = few_d;
	int r = 0, ready = 0;

	if (n > FEW) {
		e = calloc(n, sizeof(*e));
		d = calloc(n, sizeof(*d));
		if (!e || !d) {
			free(e);
			free(d);
			return -ENOMEM;
		}
	}
	for (unsigned int i = 0; i < n; i++) {
		uint32_t wanted = (uint16_t)v[i].events;

		d[i] = table_hold(p, v[i].fd);
		e[i] = (struct pollux_pollfile){
			.file = d[i] ? d[i]->watched : NULL,
			.fd = -1,
			.events = wanted,
		};
		v[i].revents = 0;
		if (!d[i] && v[i].fd >= 0)
			v[i].revents = POLLNVAL;
		else if (d[i] && !d[i]->watched)
			v[i].revents = (short)(ALWAYS & wanted);
		ready += v[i].revents != 0;
		if (!d[i] && strict)
			r = -EBADF;
	}
	if (!r)
		r = pollux_files_poll(e, n, ready ? 0 : deadline_of(timeout_ms), NULL, NULL);
	for (unsigned int i = 0; i < n; i++) {
		if (r > 0 && e[i].revents)
			v[i].revents = (short)e[i].revents;
		if (d[i])
			table_drop(p, d[i]);
	}
	if (n > FEW) {
		free(e);
		free(d);
	}
	return r < 0 ? r : r + ready;
}

int sys_poll(struct process *p, struct pollfd *v, unsigned int n, int timeout_ms)
{
	return poll_all(p, v, n, timeout_ms, false);
}

static bool in_set(int fd, const fd_set *set)
{
	return set && FD_ISSET(fd, set);
}

static int put_in_set(int fd, fd_set *set, bool true_now)
{
	if (!in_set(fd, set))
		return 0;
	if (!true_now)
		FD_CLR(fd, set);
	return true_now;
}

int sys_select(struct process *p, int n, fd_set *in, fd_set *out, fd_set *ex, int timeout_ms)
{
	struct pollfd v[FD_SETSIZE];
	unsigned int count = 0;
	int r, ready = 0;

	if (n < 0)
		return -EINVAL;
	if (n > FD_SETSIZE)
		n = FD_SETSIZE;
	for (int fd = 0; fd < n; fd++) {
		uint32_t wanted = 0;

		if (in_set(fd, in))
			wanted |= IN_SET;
		if (in_set(fd, out))
			wanted |= OUT_SET;
		if (in_set(fd, ex))
			wanted |= EX_SET;
		if (wanted)
			v[count++] = (struct pollfd){.fd = fd, .events = (short)wanted};
	}
	r = poll_all(p, v, count, timeout_ms, true);
	if (r < 0)
		return r;
	for (unsigned int i = 0; i < count; i++) {
		uint32_t mask = (uint16_t)v[i].revents;

		ready += put_in_set(v[i].fd, in, (mask & IN_SET) != 0);
		ready += put_in_set(v[i].fd, out, (mask & OUT_SET) != 0);
		ready += put_in_set(v[i].fd, ex, (mask & EX_SET) != 0);
	}
	return ready;
}
