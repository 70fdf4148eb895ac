/* SPDX-License-Identifier: MIT */
/*
 * The descriptor table: number -> file, for the numbers that are ours.
 *
 * A number that is ours is that of the kernel's object of the same kind, so numbers, limits and
 * /proc stay right and a number that is not in the table simply belongs to the kernel.
 *
 * Lookup is two loads. What it finds is valid inside the RCU section it was done
 * in; plx_table_get takes a reference for use beyond that. An entry counts as a
 * reference on its file.
 */
#pragma once

#include "base/delay.h"
#include "epoll/engine.h"

#define PLX_TABLE_CHUNK 1024
#define PLX_TABLE_CHUNKS 16384

extern struct pollux_file **plx_table_chunks[PLX_TABLE_CHUNKS];
extern struct pollux_file *plx_table_first[PLX_TABLE_CHUNK];

static inline struct pollux_file **plx_table_slot(int fd)
{
	struct pollux_file **chunk;

	if (plx_likely((unsigned int)fd < PLX_TABLE_CHUNK))
		return &plx_table_first[fd];
	if ((unsigned int)fd >= PLX_TABLE_CHUNK * PLX_TABLE_CHUNKS)
		return NULL;
	chunk = plx_load_acq(&plx_table_chunks[fd / PLX_TABLE_CHUNK]);
	return chunk ? &chunk[fd % PLX_TABLE_CHUNK] : NULL;
}

/* RCU section open, or the result only compared: the file behind fd, or NULL. */
static inline struct pollux_file *plx_table_peek(int fd)
{
	struct pollux_file **slot = plx_table_slot(fd);

	return slot ? plx_load_acq(slot) : NULL;
}

/* True if fd may concern this library at all (a doorbell's number included). */
static inline bool plx_fd_ours(int fd)
{
	return plx_unlikely(plx_table_peek(fd) != NULL);
}

/* What fd means at this moment. */
enum plx_file_kind plx_fd_kind(int fd);

/* The file behind fd with a reference, or NULL; never a doorbell. */
struct pollux_file *plx_table_get(int fd);
/*
 * Makes fd mean f; the reference that the caller holds goes to the table. Returns
 * what the number meant before (with its reference), or NULL. The slot must exist.
 */
struct pollux_file *plx_table_set(int fd, struct pollux_file *f);
/* Makes sure that fd has a slot: 0, or -ENOMEM, or -EMFILE if it is too large. */
int plx_table_reserve(int fd);
/* The first number from fd on, up to last, for which something stands in the table, or -1. */
int plx_table_next_to(int fd, unsigned int last);
static inline int plx_table_next(int fd)
{
	return plx_table_next_to(fd, PLX_TABLE_CHUNK * PLX_TABLE_CHUNKS - 1);
}

/*
 * Changes: what gives many numbers another meaning, or one that may be free, or gives them to
 * another process: close_range, dup2, dup3, fork; beside threads exec, spawn and vfork, too, which
 * look at the table before, and at the programs to start. Nobody waits for a change, as one may
 * last: a dup2 that closes another file first, or system.
 *
 * Who makes an object asks whether a change has been under way: if so, the number may mean
 * something else, or another process may have it as well, and it gets no entry. Argument: who
 * loads `over`, and finds `begun` equal to it later, has met no change in between.
 */
extern uint32_t plx_changes_begun, plx_changes_over;

static inline uint32_t plx_changes(void)
{
	return plx_load_acq(&plx_changes_over);
}

static inline bool plx_changed(uint32_t since)
{
	/* Partner: plx_change_begin. */
	plx_mb();
	return plx_load(&plx_changes_begun) != since;
}

void plx_change_begin(void);
void plx_change_end(void);
/*
 * The kernel has given fd to the caller for f, after plx_changes() was `since`: true if it stands
 * in the table; else the reference stays with the caller, and the object is the kernel's alone.
 */
bool plx_table_made(int fd, struct pollux_file *f, uint32_t since);
/* In the child of a fork: no change is under way, and there is no doorbell. */
void plx_changes_after_fork_child(void);

/* Numbers, to which others are added. High ones are not told apart. */
#define PLX_NUMBERS 4096
struct plx_numbers {
	uint64_t bits[PLX_NUMBERS / 64 + 1];
};
void plx_numbers_add(struct plx_numbers *set, int fd);
bool plx_numbers_have(const struct plx_numbers *set, int fd);

/*
 * Numbers by which somebody may be about to sleep in an epoll that is not there any more. An epoll
 * that gets such a number is the kernel's alone. The argument is in wait.c.
 */
extern struct plx_numbers plx_numbers_barred;

/*
 * Doorbells (bell.c): the only descriptors of our own. Each is an eventfd at a high number, made
 * when a wait is about to need it. There is no second one for an epoll: where the program takes,
 * closes or names the number, what is cached goes to the kernel, and the doorbell is given up.
 */
struct plx_epoll;

struct plx_bell {
	struct pollux_file file;
	int number;
	/* Whose it is, from its publication until it is given up. */
	struct plx_epoll *pe;
};

/* The poll operation of what is in no epoll of ours. */
uint32_t plx_never_ready(struct pollux_file *f, uint32_t wanted);
/* A new one, with a reference, which nobody knows. -EAGAIN: not beside a change. */
int plx_bell_new(struct plx_bell **made);
/* It is the doorbell of pe from now on; false if the program has taken its number. */
bool plx_bell_publish(struct plx_bell *b, struct plx_epoll *pe);
/* No epoll has it, and nobody knows the number: it is closed, unless it has been. */
void plx_bell_close(struct plx_bell *b);
/* What has the number fd, and whose it is, with references; NULL: it is no doorbell's. */
struct plx_bell *plx_bell_get(int fd, struct pollux_file **epoll);
/* escape.c: the program names fd: if that is a doorbell's number, it is given up. Not within RCU.
 */
void plx_bell_take(int fd);
/* The same: the program has been given fd: a doorbell was closed past us. */
void plx_bell_lost(int fd);
/* Around a fork. */
void plx_bells_lock(void);
void plx_bells_unlock(void);
/* Numbers of descriptors of our own begin here. */
int plx_fd_high(void);
