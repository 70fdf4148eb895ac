/* SPDX-License-Identifier: MIT */
/*
 * Linux AIO: contexts, their table and their rings.
 *
 * A context is named by the address of its ring, a page of real memory that the program can read
 * (AIO-RING-01). What the ring shows is all there is: nothing is ever pending anywhere else. A
 * context is ours (submit.c, table.c) until it becomes the kernel's (handover.c); from then on
 * nothing of it is here, and all calls are the kernel's own. See docs/design.md, "Linux AIO".
 *
 *   field of kioctx     protected by
 *   user_id             written under root.lock (mremap)
 *   state               atomic; see below
 *   moves               kioctx.lock; read without it
 *   tail, head, watched kioctx.lock (the program may move the ring's head, too); read without it
 *   root.table          RCU; written under root.lock
 *   root.used, lowest,  root.lock
 *   inherited
 *
 * state counts in one word what a call holds: in the high half the calls inside the context, in the
 * low half the slots that are spoken for (AIO-SUBMIT-07): a submit has one, for the request at
 * hand. It takes both with one addition. Two bits close the context to calls that come: DEAD for
 * good (destroyed, or the kernel's by now), MOVING while it is being handed over.
 */
#pragma once

#include <linux/aio_abi.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/atomic.h"
#include "base/lock.h"
#include "base/sanitizer.h"

#define PLX_AIO_MAGIC 0xa10a10a1u

struct plx_aio_ring {
	uint32_t id;
	uint32_t nr;
	uint32_t head;
	uint32_t tail;
	uint32_t magic;
	uint32_t compat_features;
	uint32_t incompat_features;
	uint32_t header_length;
	struct io_event events[];
};

_Static_assert(sizeof(struct plx_aio_ring) == 32, "the header of the ABI");
_Static_assert(sizeof(struct io_event) == 32, "the event of the ABI");

#define PLX_AIO_DEAD (1ull << 63)
#define PLX_AIO_MOVING (1ull << 62)
#define PLX_AIO_CLOSED (PLX_AIO_DEAD | PLX_AIO_MOVING)
#define PLX_AIO_CALL (1ull << 32)
#define PLX_AIO_CALLS(state) ((uint32_t)((state) >> 32) & 0x3fffffffu)
#define PLX_AIO_SLOTS(state) ((uint32_t)(state))

struct plx_kioctx {
	uint64_t state;
	unsigned long user_id;
	/* Where we see the ring. */
	struct plx_aio_ring *ring;
	/* Entries of the ring; the ring's own copy is the program's. */
	uint32_t nr;
	uint32_t tail;
	plx_lock_t lock;
	/* Where head was when we were through with it. */
	uint32_t head;
	/* Somebody may look at head and tail alone: he has, or an eventfd is told of events. */
	bool watched;
	/* Events that the ring takes: as many as the kernel's would, used by one CPU. */
	uint32_t limit;
	/* Odd while it is being handed over: those who come meanwhile sleep on it. */
	uint32_t moves;
	/* What the program asked for. */
	uint32_t nr_events;
	uint32_t id;
	/* Which one it is of all that were made. */
	uint32_t serial;
	/* Of the arena when the ring was made. */
	uint32_t forks;
	size_t size;
};

/* To calls that come; those that hold the lock and find it open may touch the ring. */
static inline bool plx_aio_closed(const struct plx_kioctx *k)
{
	return plx_load(&k->state) & PLX_AIO_CLOSED;
}

/* --- contexts (table.c, context.c) ----------------------------------------------------- */

/*
 * The context that ctx names, with slots added to its state besides the call; NULL if
 * there is none of ours. plx_aio_put gives both back.
 */
struct plx_kioctx *plx_aio_get(aio_context_t ctx, uint32_t slots);
void plx_aio_put(struct plx_kioctx *k, uint32_t slots);
/* The same for the context with this id, wherever its ring is. *beyond: there are none from id on.
 */
struct plx_kioctx *plx_aio_get_id(uint32_t id, bool *beyond);

/*
 * The two halves of a lookup, for a call that stays in one RCU section: the header, read
 * where ctx points to, and in the section the context. It may be closed already; while its
 * lock is held and it is not, it stays.
 */
bool plx_aio_header(aio_context_t ctx, uint64_t *header);
struct plx_kioctx *plx_aio_peek(aio_context_t ctx, uint64_t header);

/* Puts k into the table; sets its id. 0, -EAGAIN (more than limit events) or -ENOMEM. */
int plx_aio_table_add(struct plx_kioctx *k, uint64_t limit);
/* Takes it out, once: true for the caller who did. k stays readable for a grace period. */
bool plx_aio_table_del(struct plx_kioctx *k);
/* A process is about to be forked by the drop-in, which inherits the rings that are there. */
void plx_aio_before_fork(void);
/* Its ring has moved to another address. */
void plx_aio_table_moved(struct plx_kioctx *k, unsigned long user_id);

/*
 * k is closed: whether the caller's call is the only one inside, at last. It sleeps for that, for
 * as long as it takes, or else for a moment.
 */
bool plx_aio_alone(struct plx_kioctx *k, bool patient);
/* Releases what is left of k, which is not, or no longer, in the table; nobody is inside. */
void plx_aio_release(struct plx_kioctx *k, bool user);

/* --- the ring (arena.c, ring.h) ------------------------------------------------------------- */

/*
 * Pages for k's ring, zeroed: k->ring is where we see them, k->user_id where the program does.
 * False if there are none.
 */
bool plx_aio_ring_map(struct plx_kioctx *k);
/* The children of forks inherit what the program sees of it. */
bool plx_aio_ring_inherit(const struct plx_kioctx *k);
/* user: where the program sees them, too. */
void plx_aio_ring_unmap(struct plx_kioctx *k, bool user);

/*
 * A ring is unmapped here and another mapped at its address there, with the kernel in
 * between, which ThreadSanitizer does not see: put before the one, get after the other.
 */
#if PLX_TSAN
extern char plx_aio_address_token;
#define plx_aio_address_put() __tsan_release(&plx_aio_address_token)
#define plx_aio_address_get() __tsan_acquire(&plx_aio_address_token)
#else
#define plx_aio_address_put() ((void)0)
#define plx_aio_address_get() ((void)0)
#endif

/* --- contexts that become the kernel's (handover.c) ------------------------------------------- */

enum plx_aio_hand {
	/* It is the kernel's, under the same address, and the caller is not inside it any more. */
	PLX_AIO_GIVEN,
	/* Somebody else is inside, and takes his time, or hands it over; or starts a program. */
	PLX_AIO_BUSY,
	/* It stays ours: events lie unread, or the kernel has no context to give. */
	PLX_AIO_STAYS,
};

/* The caller is inside. must: also if that is not quite exact; see the head of handover.c. */
enum plx_aio_hand plx_aio_hand_over(struct plx_kioctx *k, bool must);
/* Some context has become the kernel's. */
extern uint32_t plx_aio_given;
/* All contexts of this process, as far as it can be done; those made later are not seen to. */
void plx_aio_hand_over_all(void);
/*
 * What the kernel makes of a request that does not wait for ever, with more rw_flags: 1 and its
 * event, or an error. A poll that is not ready: EAGAIN.
 */
long plx_aio_ask(const struct iocb *cb, int flags, struct io_event *ev);

/* --- taking and waiting (getevents.c) --------------------------------------------------------- */

/* What a call was asked for, and what it has got. */
struct plx_aio_want {
	long min, nr, got;
	struct io_event *events;
	const struct timespec *timeout;
	/* io_pgetevents; sig: {const sigset_t *, size_t}, in the program's memory. */
	bool pget;
	const void *sig;
	/*
	 * What is left of the time-out, and the mask: events may have been stored where the program
	 * has them.
	 */
	struct timespec left;
	uint64_t mask;
	struct plx_aio_sig {
		const uint64_t *mask;
		size_t size;
	} own_sig;
};

/* --- the calls: results as the system calls', PLX_PASS if ctx is not one of ours ------------ */
long plx_aio_setup(unsigned int nr_events, aio_context_t *user);
long plx_aio_destroy(aio_context_t ctx);
long plx_aio_cancel(aio_context_t ctx, struct iocb *iocb, struct io_event *result);

/*
 * Those that may have to be finished by the kernel. PLX_PASS: it is to be asked for the rest of the
 * call, by plx_aio_submit_rest and plx_aio_get_rest. That may sleep, and is a plain system call of
 * the program's: not within a call of ours.
 */
struct plx_aio_batch {
	long nr;
	struct iocb **user;
	/* So many are done; nr and user are the others. */
	long done;
};
long plx_aio_submit(aio_context_t ctx, struct plx_aio_batch *b);
long plx_aio_submit_rest(aio_context_t ctx, const struct plx_aio_batch *b);
long plx_aio_getevents(aio_context_t ctx, struct plx_aio_want *w);
long plx_aio_get_rest(aio_context_t ctx, struct plx_aio_want *w);

/*
 * What is believed of the file behind a number (submit.c). The drop-in calls forget where
 * a number is closed, or given out by libc; nothing depends on its seeing all of them but speed
 * and, for a few requests, what a number means that was a regular file and is a file of proc.
 */
#define PLX_AIO_FDS 65536
extern uint8_t plx_aio_believed[PLX_AIO_FDS];

static inline void plx_aio_forget(int fd)
{
	if ((unsigned int)fd < PLX_AIO_FDS && plx_unlikely(plx_load(&plx_aio_believed[fd])))
		plx_store(&plx_aio_believed[fd], 0);
}

/* Stands around an mremap: the ring of a context may be what moves. */
void *plx_aio_mremap_begin(const void *old, size_t old_size, int flags);
void plx_aio_mremap_end(void *token, void *moved);

/* What limits io_setup: the contexts of this process against aio-max-nr, or nothing. */
enum plx_aio_limit {
	PLX_AIO_UNLIMITED,
	PLX_AIO_MAX_NR,
};
extern enum plx_aio_limit plx_aio_limit;
