/* SPDX-License-Identifier: MIT */
#ifndef LIBOS_TABLE_H
#define LIBOS_TABLE_H

#include "description.h"

/* A process begins with these, so that a look-up is a few instructions. */
struct slots {
	struct description **slot;
	unsigned int limit;
	/* Set before there is a second thread. */
	bool shared;
};

static inline bool table_shared(const struct process *p)
{
	return ((const struct slots *)p)->shared;
}

/*
 * In a read section, if the table is shared: the description is valid up to its end, but may be in
 * the course of closing.
 */
static inline struct description *table_look(struct process *p, int fd)
{
	const struct slots *s = (const struct slots *)p;

	if ((unsigned int)fd >= s->limit)
		return NULL;
	return __atomic_load_n(&s->slot[fd], __ATOMIC_ACQUIRE);
}

/* With a reference, or NULL. */
struct description *table_get(struct process *p, int fd);

/* To be used in one call, and then dropped. Nobody else closes it, if the table is not shared. */
static inline struct description *table_hold(struct process *p, int fd)
{
	return table_shared(p) ? table_get(p, fd) : table_look(p, fd);
}

static inline void table_drop(struct process *p, struct description *d)
{
	if (table_shared(p))
		pollux_file_put(&d->file);
}

/* Takes the reference of d, which may be NULL: -ENOMEM. Returns the number or -EMFILE. */
int table_add(struct process *p, struct description *d, unsigned int lowest);

/* Two at once: both get a number, or none does. */
int table_add_two(struct process *p, struct description *d[2], int fd[2]);

#endif
