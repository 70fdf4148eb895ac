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
#ifndef PLX_POSIX_TABLE_H
#define PLX_POSIX_TABLE_H

#include <sys/resource.h>

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

/*
 * Where the file behind a number had its index when somebody noted it last: only ever prefetched,
 * together with the file, which would have to be there first to tell. Chunks as in the table, made
 * with the first note; the first numbers, which most programs have alone, do without.
 */
extern void **plx_table_hints[PLX_TABLE_CHUNKS];
void plx_table_hint_slow(int fd, void *index);

static inline void plx_table_prefetch(int fd)
{
	void **chunk, *index;

	if (plx_likely((unsigned int)fd < PLX_TABLE_CHUNK) ||
	    (unsigned int)fd >= PLX_TABLE_CHUNK * PLX_TABLE_CHUNKS)
		return;
	chunk = plx_load_acq(&plx_table_hints[fd / PLX_TABLE_CHUNK]);
	index = chunk ? plx_load(&chunk[fd % PLX_TABLE_CHUNK]) : NULL;
	if (index)
		plx_prefetch_write(index);
}

/* fd has a slot; index: what the file has, or NULL. */
static inline void plx_table_hint(int fd, void *index)
{
	void **chunk;

	if (plx_likely((unsigned int)fd < PLX_TABLE_CHUNK))
		return;
	chunk = plx_load_acq(&plx_table_hints[fd / PLX_TABLE_CHUNK]);
	if (plx_likely(chunk ? plx_load(&chunk[fd % PLX_TABLE_CHUNK]) == index : !index))
		return;
	plx_table_hint_slow(fd, index);
}

/* RCU section open, or the result only compared: the file behind fd, or NULL. */
static inline struct pollux_file *plx_table_peek(int fd)
{
	struct pollux_file **slot = plx_table_slot(fd);

	return slot ? plx_load_acq(slot) : NULL;
}

/* True if fd may concern this library at all (hidden descriptors included). */
static inline bool plx_fd_ours(int fd)
{
	return plx_unlikely(plx_table_peek(fd) != NULL);
}

/* The file behind fd with a reference, or NULL; never a hidden one. */
struct pollux_file *plx_table_get(int fd);
/* True if fd is a descriptor of our own: for the program it does not exist. */
bool plx_fd_hidden(int fd);
/*
 * Makes fd mean f; the reference that the caller holds goes to the table. Returns
 * what the number meant before (with its reference), or NULL. The slot must exist.
 */
struct pollux_file *plx_table_set(int fd, struct pollux_file *f);
/* Makes sure that fd has a slot: 0, or -ENOMEM, or -EMFILE if it is too large. */
int plx_table_reserve(int fd);
/* One more than the highest number that can be in use; bounds a walk. */
int plx_table_end(void);
/* The first number from fd on for which something stands in the table, or -1. */
int plx_table_next(int fd);

/* Serialises spilling. */
extern plx_lock_t plx_table_lock;

/*
 * Around everything that changes what a number means: close, dup, adoption. While objects are
 * being turned into kernel objects (plx_spilling) enter waits for that under plx_table_lock, since
 * numbers change hands there; otherwise whoever spills waits for leave. enter returns which of
 * the two it is. No reference may be dropped for good inside, and nothing that was found
 * in the table is valid without one, or an RCU section of its own. The argument is in table.c.
 */
struct plx_changer {
	struct plx_changer *next;
	uint32_t inside;
	uint32_t taken;
} __attribute__((aligned(64)));

extern uint32_t plx_spilling;
extern __thread struct plx_changer *plx_changer;
bool plx_table_enter_slow(void);

static inline bool plx_table_enter(void)
{
	struct plx_changer *c = plx_changer;

	plx_rcu_read_lock();
	if (plx_likely(c && !plx_load_acq(&plx_spilling))) {
		PLX_DELAY(table_before_inside);
		plx_store(&c->inside, c->inside + 1);
		plx_rcu_read_unlock();
		PLX_DELAY(table_inside);
		return false;
	}
	plx_rcu_read_unlock();
	return plx_table_enter_slow();
}

static inline void plx_table_leave(bool locked)
{
	PLX_DELAY(table_before_leave);
	if (plx_unlikely(locked))
		plx_unlock(&plx_table_lock, PLX_RANK_TABLE);
	else
		plx_store_rel(&plx_changer->inside, plx_changer->inside - 1);
}

/*
 * Inside of enter and leave: nobody else closes or replaces what is ours at one of these numbers,
 * or puts something of ours there. The argument is in table.c.
 */
void plx_numbers_lock(int fd, int other);
void plx_numbers_unlock(int fd, int other);

/* After a grace period: waits for those who were inside before it, until each has left once. */
void plx_table_await(void);
/* The key by which ends of threads are heard of. */
void plx_table_init(void);
/* In the child of a fork that found nothing of ours. */
void plx_table_after_fork_child(void);

/*
 * Between the two the soft limit of descriptors is as high as the hard one: the way to
 * a number when the program has used up its own. Other threads wait here meanwhile;
 * *was is what to go back to.
 */
void plx_limit_raise(struct rlimit *was);
void plx_limit_restore(const struct rlimit *was);
/* What the program has set. False if the kernel does not tell. */
bool plx_limit_get(struct rlimit *lim);
void plx_limit_after_fork_child(void);

/* A kernel eventfd, even when the program has used up its descriptors; or -errno. */
int plx_kernel_eventfd(unsigned int flags);

/*
 * Descriptors of our own, at high numbers (from plx_fd_high on) and close-on-exec. When the program
 * puts a descriptor of its own at such a number (dup2), the file moves: *owner says the new number,
 * and a grace period goes by before the old one is the program's. The argument is in table.c.
 *
 * Between lock and unlock no descriptor comes or goes but the caller's, and the program puts none
 * of its own at a number that nothing has. What makes a descriptor does so in there, since it first
 * has a number that the program may want, and hides it. Not within an RCU section; no grace period
 * is waited for inside.
 */
void plx_hidden_lock(void);
void plx_hidden_unlock(void);
/* Before the first object. */
void plx_hidden_begin(void);
int plx_fd_high(void);

/*
 * plx_hidden_lock held. hide moves fd up and returns the new number, or -EMFILE (fd is closed
 * then); hide_dup leaves fd as it is and needs no number that the program could use.
 */
int plx_fd_hide(int fd, int *owner);
int plx_fd_hide_dup(int fd, int *owner);
/* The child of a fork need not close it. */
void plx_fd_share(const int *owner);
/*
 * Whoever has the descriptor registered somewhere by its number: moved() stands in for the
 * update of *owner, while both numbers mean the file.
 */
typedef void (*plx_moved_t)(int *owner, int from, int to);
void plx_fd_on_move(const int *owner, plx_moved_t moved);
/* plx_hidden_lock not held. unhide closes it. */
void plx_fd_unhide(int *owner);
/* The same for a caller that holds locks: leaves the waiting for grace periods. */
void plx_fd_unhide_locked(int *owner);
/* fd is hidden, in the child of a fork: closes it, if it was being left for somebody who is not
 * here. */
void plx_fd_drop_left(int fd);
/* f is a hidden file. */
bool plx_fd_shared(struct pollux_file *f);

/* A number that a descriptor of ours has left, to make way for the program's. */
struct plx_left {
	struct pollux_file *file;
	uint32_t moves;
};

/*
 * The program wants number fd. If it is hidden, our descriptor moves away: 0, or -EMFILE. The
 * number stays hidden, and taken, until plx_fd_want says yes. left is zero at first, and put at
 * last.
 */
int plx_fd_evict(int fd, struct plx_left *left);
enum plx_want {
	/* One of ours: evict it (again). */
	PLX_WANT_HIDDEN,
	/* It has been evicted: whoever wants the number replaces the descriptor and the entry. */
	PLX_WANT_LEFT,
	/* Nothing has the number. */
	PLX_WANT_FREE,
	/* It is the program's. */
	PLX_WANT_TAKEN,
};
/* plx_hidden_lock held; the answer is true for as long. */
enum plx_want plx_fd_want(int fd, const struct plx_left *left);
/* plx_hidden_lock held: if the number is still what has been left, it is not wanted after all. */
void plx_fd_left_close(int fd, const struct plx_left *left);
void plx_fd_left_put(struct plx_left *left);

/*
 * Calls on fd, of which the table says nothing, are to be asked about all the same: it may be about
 * to become a number of ours. plx_fd_stray says whether it is one, or nothing at all, for a call
 * that would end a descriptor.
 */
extern int plx_hidden_from;
bool plx_fd_stray(int fd);

static inline bool plx_fd_maybe_hidden(int fd)
{
	return plx_unlikely(fd >= plx_load(&plx_hidden_from));
}

#endif
