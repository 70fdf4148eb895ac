/* SPDX-License-Identifier: MIT */
/*
 * The table of a process: numbers and the descriptions that they stand for.
 *
 * Whoever changes it has its lock. Whoever looks a number up has none: a slot is one pointer, and a
 * read section keeps what was found there from being freed, as a slot is emptied before its
 * reference is dropped.
 */
#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <pollux/read.h>

#define BITS 64u

struct process {
	struct slots slots;
	pthread_mutex_t lock;
	unsigned int first;
	/* No number below it is free. */
	unsigned int hint;
	/* One bit for each number that is taken. */
	uint64_t *taken;
};

_Static_assert(offsetof(struct process, slots) == 0, "process_slots relies on it");

static bool is_taken(const struct process *p, unsigned int fd)
{
	return p->taken[fd / BITS] >> fd % BITS & 1;
}

struct process *process_new(int first, int limit)
{
	struct process *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	p->slots.limit = (unsigned int)limit;
	p->first = p->hint = (unsigned int)first;
	p->slots.slot = calloc((size_t)limit, sizeof(*p->slots.slot));
	p->taken = calloc((size_t)limit / BITS + 1, sizeof(*p->taken));
	if (p->slots.slot && p->taken)
		return p;
	process_exit(p);
	return NULL;
}

void process_share(struct process *p)
{
	p->slots.shared = true;
}

/* The lock is held. The lowest free number from `lowest` on, or -EMFILE. */
static int number_find(struct process *p, unsigned int lowest)
{
	bool from_hint = lowest <= p->hint;
	unsigned int fd = from_hint ? p->hint : lowest;

	while (fd < p->slots.limit && is_taken(p, fd))
		fd += ~p->taken[fd / BITS] >> fd % BITS ? 1 : BITS - fd % BITS;
	if (from_hint)
		p->hint = fd < p->slots.limit ? fd : p->slots.limit;
	return fd < p->slots.limit ? (int)fd : -EMFILE;
}

/* The lock is held. The description's reference goes to the table. */
static void number_set(struct process *p, unsigned int fd, struct description *d)
{
	p->taken[fd / BITS] |= 1ull << fd % BITS;
	__atomic_store_n(&p->slots.slot[fd], d, __ATOMIC_RELEASE);
}

static struct description *number_clear(struct process *p, unsigned int fd)
{
	struct description *d = p->slots.slot[fd];

	if (!d)
		return NULL;
	__atomic_store_n(&p->slots.slot[fd], NULL, __ATOMIC_RELEASE);
	p->taken[fd / BITS] &= ~(1ull << fd % BITS);
	if (fd < p->hint)
		p->hint = fd;
	return d;
}

int table_add(struct process *p, struct description *d, unsigned int lowest)
{
	int fd;

	if (!d)
		return -ENOMEM;
	pthread_mutex_lock(&p->lock);
	fd = number_find(p, lowest > p->first ? lowest : p->first);
	if (fd >= 0)
		number_set(p, (unsigned int)fd, d);
	pthread_mutex_unlock(&p->lock);
	if (fd < 0)
		pollux_file_put(&d->file);
	return fd;
}

int table_add_two(struct process *p, struct description *d[2], int fd[2])
{
	fd[0] = table_add(p, d[0], 0);
	fd[1] = table_add(p, d[1], 0);
	if (fd[0] >= 0 && fd[1] >= 0)
		return 0;
	for (int i = 0; i < 2; i++)
		if (fd[i] >= 0)
			sys_close(p, fd[i]);
	return -EMFILE;
}

struct description *table_get(struct process *p, int fd)
{
	struct description *d;

	pollux_read_lock();
	/* One that is being closed has left its slot: look again. */
	do
		d = table_look(p, fd);
	while (d && !pollux_file_tryget(&d->file));
	pollux_read_unlock();
	return d;
}

int sys_close(struct process *p, int fd)
{
	struct description *d = NULL;

	if (fd < 0 || (unsigned int)fd >= p->slots.limit)
		return -EBADF;
	pthread_mutex_lock(&p->lock);
	d = number_clear(p, (unsigned int)fd);
	pthread_mutex_unlock(&p->lock);
	if (!d)
		return -EBADF;
	/* The last one takes it out of all epolls before this returns. */
	pollux_file_put(&d->file);
	return 0;
}

int sys_dupfd(struct process *p, int fd, int lowest)
{
	struct description *d = table_get(p, fd);

	if (!d)
		return -EBADF;
	if (lowest < 0 || (unsigned int)lowest >= p->slots.limit) {
		pollux_file_put(&d->file);
		return -EINVAL;
	}
	return table_add(p, d, (unsigned int)lowest);
}

int sys_dup(struct process *p, int fd)
{
	return sys_dupfd(p, fd, 0);
}

int sys_dup2(struct process *p, int from, int to)
{
	struct description *d = table_get(p, from), *old;

	if (!d)
		return -EBADF;
	old = d;
	if (to < 0 || (unsigned int)to >= p->slots.limit) {
		to = -EBADF;
	} else if (from != to) {
		pthread_mutex_lock(&p->lock);
		old = number_clear(p, (unsigned int)to);
		number_set(p, (unsigned int)to, d);
		pthread_mutex_unlock(&p->lock);
	}
	if (old)
		pollux_file_put(&old->file);
	return to;
}

struct process *process_fork(struct process *p)
{
	struct process *child = process_new((int)p->first, (int)p->slots.limit);

	if (!child)
		return NULL;
	pthread_mutex_lock(&p->lock);
	for (unsigned int fd = 0; fd < p->slots.limit; fd++) {
		if (!p->taken[fd / BITS]) {
			fd |= BITS - 1;
		} else if (is_taken(p, fd)) {
			pollux_file_get(&p->slots.slot[fd]->file);
			number_set(child, fd, p->slots.slot[fd]);
		}
	}
	child->hint = p->hint;
	pthread_mutex_unlock(&p->lock);
	return child;
}

void process_exit(struct process *p)
{
	for (unsigned int fd = 0; p->taken && p->slots.slot && fd < p->slots.limit; fd++) {
		if (!p->taken[fd / BITS])
			fd |= BITS - 1;
		else if (is_taken(p, fd))
			sys_close(p, (int)fd);
	}
	pthread_mutex_destroy(&p->lock);
	free(p->slots.slot);
	free(p->taken);
	free(p);
}
