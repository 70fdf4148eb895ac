/* SPDX-License-Identifier: MIT */
/*
 * Between the files that turn objects into kernel objects: spill.c (the objects), spill_items.c
 * (their registrations), escape.c and fork.c (what makes it necessary), counters.c.
 *
 * All of a spill is the holder's of plx_table_lock; its items are, too, once their epolls' mutexes
 * are held.
 */
#ifndef PLX_POSIX_SPILL_H
#define PLX_POSIX_SPILL_H

#include "posix/front.h"

/* One registration on its way to the kernel. */
struct plx_move {
	struct pollux_ep *ep;
	struct plx_target *t;
	uint32_t events;
	/* Place in the epoll's ready list, from 1; 0: not on it. */
	uint32_t order;
	/* Place among the watches of its file in the order of their ADDs, from 0. */
	uint32_t age;
	uint64_t data;
	int key;
	bool consumed;
	/* On the ready list without being ready. */
	bool stale;
	/* The kernel has the item, perhaps without its mask; with it. */
	bool added;
	bool done;
	/* A number taken for it until the end; else -1. */
	int held;
};

/* An eventfd that goes to the kernel. */
struct plx_target {
	struct pollux_efd *e;
	uint64_t count;
	/* What it was ready for when it was frozen. */
	uint32_t ready;
	/* A descriptor of the kernel's object: one of the program's, or our own. */
	int k;
};

struct plx_spill {
	struct plx_target *targets;
	struct pollux_ep **eps;
	struct plx_move *moves;
	int ntargets, neps, nmoves;
	int room_targets, room_eps, room_moves;
	/* For each descriptor up to the last: the place in targets plus one of what it meant. */
	uint32_t *numbers;
	int nnumbers, room_numbers;
	struct plx_masked masked;
	/* Timers that are the kernel's alone now. */
	int timers;
};

/* fd is a number of the program's for the object at that place. */
static inline bool plx_spill_owns(const struct plx_spill *s, int fd, int place)
{
	return fd < s->nnumbers && s->numbers[fd] == (uint32_t)place + 1;
}

/* --- spill.c ------------------------------------------------------------------------- */

/* Takes plx_table_lock, keeps signals away, and waits for those who change numbers. */
void plx_spill_begin(struct plx_spill *s);
/* f, found under fd, goes. */
void plx_spill_add(struct plx_spill *s, struct pollux_file *f, int fd);
/* So does everything in the table that want() picks. */
void plx_spill_add_table(struct plx_spill *s, bool (*want)(int fd));
/* Runs what has been collected, and lets go. keep: the table lock stays held. */
void plx_spill_end(struct plx_spill *s, enum plx_way_out why, bool keep);
/* Lets go of what plx_spill_end has kept. */
void plx_spill_unlock(void);
/* Whether fd means something that is in process; no more than a hint, for it may leave. */
bool plx_fd_in_process(int fd);

/*
 * What a spill works with is memory of our own: a handler that has interrupted malloc may fork,
 * and a program that has no heap gets none, which each fork would copy. All zero.
 */
void *plx_spill_scratch(size_t size);
/* The array gets room for more than n, all zero at first. */
void *plx_spill_grow(void *p, int n, int *room, size_t size);
/* k also under the number fd, which the program's limit may have left outside since. */
void plx_spill_replace_number(int k, int fd, int flags);

/* --- spill_items.c --------------------------------------------------------------------- */

void plx_spill_register(struct plx_spill *s);

/* A registration of a kernel epoll, as fdinfo shows it. */
struct plx_registration {
	int fd;
	uint32_t events;
	uint64_t data;
	/* Its place among those with the same number, which all but one have lost that. */
	uint32_t place;
	/* A descriptor that means the file: fd, unless that has come to mean another. */
	int source;
};
/*
 * All of them, by their numbers; how many, or -1 if the kernel does not tell: there is no /proc, as
 * after a chroot. *out is to be put back to plx_mem_put.
 */
int plx_registrations(int epfd, struct plx_registration **out);

/* --- escape.c -------------------------------------------------------------------------- */

/* No pointers: each would be relocated at the start of each program. */
struct plx_way_out_row {
	char name[16];
	char what[112];
};
extern const struct plx_way_out_row plx_ways_out[PLX_OUT_COUNT];

/* How many objects have ever been adopted. */
uint64_t plx_adopted_ever(void);
/* Nothing has been adopted since all was out, if so many have been by now. */
bool plx_nothing_in(uint64_t adopted);

/* --- counters.c ------------------------------------------------------------------------ */

uint64_t plx_counters_sum(enum plx_counter what);
/* In the child: what the parent has counted is not the child's. */
void plx_counters_after_fork_child(void);

#endif
