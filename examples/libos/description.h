/* SPDX-License-Identifier: MIT */
/*
 * Open file descriptions, as the files of this library OS see them.
 *
 * A description is counted by its pollux_file: one reference for each descriptor, and one for each
 * call that sleeps or changes an epoll. Calls that do neither look it up and use it inside a read
 * section of the library, and need none.
 */
#ifndef LIBOS_DESCRIPTION_H
#define LIBOS_DESCRIPTION_H

#include <stdbool.h>

#include <pollux/epoll.h>
#include <pollux/file.h>

#include "libos.h"

struct description;

/* What is missing gives EINVAL, and ENOTSOCK for shutdown. */
struct operations {
	/* block 0: -EAGAIN instead of sleeping. */
	long (*read)(struct description *d, void *buf, size_t n, bool block);
	long (*write)(struct description *d, const void *buf, size_t n, bool block);
	int (*shutdown)(struct description *d, int how);
	/* An epoll. target and its number: what is added. */
	int (*ctl)(struct description *d, int op, struct description *target, int fd,
		   const struct epoll_event *ev);
	int (*wait)(struct description *d, struct epoll_event *ev, int max, int64_t timeout_ns);
};

struct naive_item;

struct description {
	struct pollux_file file;
	const struct operations *ops;
	/* What an epoll watches: &file, or the file of an object of the library; NULL: nothing. */
	struct pollux_file *watched;
	/* O_RDONLY, O_WRONLY or O_RDWR. */
	int mode;
	/* O_NONBLOCK or 0. Atomic. */
	int flags;
	/* Atomic: some naive epoll watches it. */
	struct naive_item *naive;
};

/* Tells the watchers. Any lock may be held. */
void naive_tell(struct description *d);

static inline void tell(struct description *d, uint32_t key)
{
	pollux_file_wake(&d->file, key);
	if (__atomic_load_n(&d->naive, __ATOMIC_ACQUIRE))
		naive_tell(d);
}

/* The same for a change that every exclusive watcher hears of. */
static inline void tell_all(struct description *d)
{
	pollux_file_wake_all(&d->file, 0);
	if (__atomic_load_n(&d->naive, __ATOMIC_ACQUIRE))
		naive_tell(d);
}

/* The makers give one reference each; NULL: no memory. */
struct description *eventfd_new(unsigned int initial, int flags);
struct description *null_new(void);
struct description *epoll_new(void);
struct description *naive_new(void);
int pipe_new(struct description *end[2], int flags);
int socketpair_new(struct description *end[2], int flags);

#endif
