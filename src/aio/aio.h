/* SPDX-License-Identifier: MIT */
/*
 * Linux AIO: contexts, their table, their rings, and the two engines.
 *
 * A context is named by the address of its ring, a page of real memory that the program
 * can read (AIO-RING-01). The id in the ring's header is the index of the context in a
 * table (table.c), so that finding it costs the same with one context and with 100,000.
 *
 * Buffered reads and writes are done within io_submit (submit.c), which is what the
 * kernel does with them. Everything else, and everything that this library could not
 * answer exactly, is submitted to a kernel context behind ours, the twin (twin.c), with the
 * program's own iocb: the kernel's checks, its errors and its events are then the
 * program's. The twin is made when it is first needed, also for the first sleep: threads
 * sleep in the kernel's io_pgetevents on the twin, so that signals, masks and time-outs
 * are the kernel's (wait.c).
 *
 * Events of the twin are taken from its ring by user-space reaping, which the ABI permits
 * to one consumer at a time: under kioctx.lock, and never by a call. While requests are with the
 * twin nobody can tell the program's own reaper of a completion, and the ring's magic says so:
 * readers that see another magic than the ABI's have to make the call.
 *
 * The third engine is there for operators who ask for it: it hands plain reads and writes
 * to a thread of this process (async.c). Each of them is a call inside the context, which
 * that thread ends.
 *
 *   field of kioctx     protected by
 *   user_id             written under root.lock and kioctx.lock (mremap)
 *   state               atomic; see below
 *   tail, head's moves  kioctx.lock (the program may move head, too)
 *   waiters, bell       kioctx.lock
 *   twin, twin_*        made under kioctx.twin_lock, constant until destroy
 *   twin_pending        kioctx.lock
 *   root.table          RCU; written under root.lock
 *   root.used, lowest   root.lock
 *
 * state counts in one word what a call holds: in the high half the calls inside the
 * context (and DEAD), in the low half the slots that are spoken for (AIO-SUBMIT-07):
 * requests accepted whose event is not in the ring yet. A submit of one request takes
 * both with one addition.
 */
#ifndef PLX_AIO_AIO_H
#define PLX_AIO_AIO_H

#include <linux/aio_abi.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/atomic.h"
#include "base/lock.h"

#define PLX_AIO_MAGIC 0xa10a10a1u
/* Somebody has to call before the ring is true. */
#define PLX_AIO_MAGIC_CALL 0xa10a10a0u

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
#define PLX_AIO_CALL (1ull << 32)
#define PLX_AIO_CALLS(state) ((uint32_t)((state) >> 32) & 0x7fffffffu)
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
	/* Atomic: it is being handed over to the kernel. */
	uint32_t moving;
	/* Atomic: it has been; what is left keeps the slot. */
	uint32_t given;
	/* The bell is in the twin, or about to be. */
	uint32_t bell;
	struct plx_aio_waiter *waiters;
	/* With the kernel: accepted by the twin and not taken from it. */
	uint32_t twin_pending;
	/* 0 until the twin is needed. */
	unsigned long twin;
	uint32_t twin_nr;
	uint32_t twin_limit;
	plx_lock_t twin_lock;
	/* What the program asked for. */
	uint32_t nr_events;
	uint32_t id;
	/* Of the process that made it; see plx_aio_inherited. */
	uint32_t birth;
	size_t size;
};

static inline bool plx_aio_dead(const struct plx_kioctx *k)
{
	return plx_load(&k->state) & PLX_AIO_DEAD;
}

/* --- contexts (table.c, context.c) ----------------------------------------------------- */

/*
 * The context that ctx names, with slots added to its state besides the call; NULL if
 * there is none of ours. plx_aio_put gives both back.
 */
struct plx_kioctx *plx_aio_get(aio_context_t ctx, uint32_t slots);
void plx_aio_put(struct plx_kioctx *k, uint32_t slots);

/*
 * The two halves of a lookup, for a call that stays in one RCU section: the header, read
 * where ctx points to, and in the section the context. It may be DEAD already; while its
 * lock is held and it is not, it stays.
 */
bool plx_aio_header(aio_context_t ctx, uint64_t *header);
struct plx_kioctx *plx_aio_peek(aio_context_t ctx, uint64_t header);
/* In an RCU section: the context with the id in the header, wherever its ring is. */
struct plx_kioctx *plx_aio_slot(uint64_t header);

/* Puts k into the table; sets its id. 0, -EAGAIN (limit) or -ENOMEM. */
int plx_aio_table_add(struct plx_kioctx *k, uint64_t limit);
/* Takes it out, once: true for the caller who did. k stays readable for a grace period. */
bool plx_aio_table_del(struct plx_kioctx *k);
/* Whether all slots below have contexts that were handed over. */
bool plx_aio_table_given_below(uint32_t id);
/* The lock of this process, for who has ids of the kernel's that nobody is to know. */
plx_lock_t *plx_aio_table_ids(void);
/* Takes one out that was handed over, and releases it; k is looked at only if slot id has it. */
void plx_aio_table_give(struct plx_kioctx *k, uint32_t id);
/* Its ring goes; the address is the kernel's by now. */
void plx_aio_context_given(struct plx_kioctx *k);
/* k is what the child of a fork has of a context of its parent: nothing of it may be touched. */
bool plx_aio_inherited(const struct plx_kioctx *k);
/* Its ring has moved to another address. */
void plx_aio_table_moved(struct plx_kioctx *k, unsigned long user_id);

/* --- the ring (arena.c, ring.h) ------------------------------------------------------------- */

/*
 * Pages for a ring, zeroed: where we see them, and in *user where the program does; NULL if
 * there are none.
 */
struct plx_aio_ring *plx_aio_ring_map(size_t size, unsigned long *user);
void plx_aio_ring_unmap(struct plx_aio_ring *ring, size_t size, unsigned long user);
/* A zeroed page that the child of a fork finds zeroed again, made once; NULL if none is had. */
void *plx_aio_wiped_page(void **at);

/*
 * A ring is unmapped here and another mapped at its address there, with the kernel in
 * between, which ThreadSanitizer does not see: put before the one, get after the other.
 */
#if PLX_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
extern char plx_aio_address_token;
#define plx_aio_address_put() __tsan_release(&plx_aio_address_token)
#define plx_aio_address_get() __tsan_acquire(&plx_aio_address_token)
#else
#define plx_aio_address_put() ((void)0)
#define plx_aio_address_get() ((void)0)
#endif

/* --- the twin (twin.c) --------------------------------------------------------------------- */

/* Marks an event that is a bell; the address of nothing that a program can submit. */
#define PLX_AIO_BELL ((uint64_t)(uintptr_t)&plx_aio_bell)
extern struct iocb plx_aio_bell;

/* Makes sure that there is a twin: 0, -EINVAL (destroyed meanwhile) or what io_setup said. */
int plx_aio_twin_make(struct plx_kioctx *k);
/* kioctx.lock held. Moves the twin's events to the ring, as far as there is room. */
void plx_aio_twin_drain(struct plx_kioctx *k);
/*
 * kioctx.lock held. Takes up to n of the twin's events to the program's array, past our
 * ring; returns how many, or -EFAULT. Those in our ring are older.
 */
long plx_aio_twin_take(struct plx_kioctx *k, struct io_event *user, long n);
/*
 * Submits n iocbs of the program; returns what the kernel returned. first: nothing else has been
 * done in this call, which speaks for one slot besides. If a sleep's result that is over comes back
 * then (base/sleep.h), the caller is not inside k any more.
 */
long plx_aio_twin_submit(struct plx_kioctx *k, long n, struct iocb **user, bool first);
/* kioctx.lock not held: what plx_aio_due has promised. */
void plx_aio_ring_bell(struct plx_kioctx *k);

/* --- contexts that become the kernel's (handover.c) ------------------------------------------- */

/*
 * The caller is inside, and speaks for one slot. True: the context is the kernel's, under the same
 * address, and the caller is not inside it any more. With trouble: others before it may be ours.
 */
bool plx_aio_hand_over(struct plx_kioctx *k, bool trouble);
/* io_destroy of one that was; PLX_PASS if it is none. */
long plx_aio_destroy_given(aio_context_t ctx);
/* A file or a block device that is open for direct I/O. */
bool plx_aio_is_direct(int fd);
/* k is DEAD: returns when it is not about to be handed over any more. */
void plx_aio_moved(const struct plx_kioctx *k);

/* --- taking and waiting (getevents.c, wait.c) ------------------------------------------------ */

/* What a call was asked for. */
struct plx_aio_want {
	long min, nr;
	struct io_event *user;
	/* In nanoseconds; negative: without limit (AIO-GET-05). */
	int64_t timeout;
	/* io_pgetevents: the mask for the call, or none. */
	bool pget;
	bool masked;
	uint64_t mask;
	/* Signals that the mask blocks and the program does not: blocked since the wait began. */
	uint64_t held_off;
};

/*
 * Before the lock is taken: until memory for n events is there, which may take as long as it likes
 * (userfaultfd, a file that is mapped), or never be. Others go on meanwhile, as the kernel's
 * submitters do; it may have gone again when events are stored, and then they wait.
 */
void plx_aio_wait_for_memory(const struct io_event *user, long n);
/* kioctx.lock held. Up to n events to the program, or -EFAULT and none of them is taken. */
long plx_aio_take(struct plx_kioctx *k, struct io_event *user, long n);
/*
 * Takes what there is, and waits if that is too little. *slept: it has been in the kernel.
 * *k: NULL if the context was destroyed by a handler that interrupted the wait; the
 * caller's call inside it has been ended then.
 */
long plx_aio_wait(struct plx_kioctx **k, struct plx_aio_want *w, bool *slept);
/* At the end of a call that has waited with a mask: what it has held off comes. */
void plx_aio_let_back(const struct plx_aio_want *w);
/*
 * Handlers of signals that the mask lets in run, as at the end of the kernel's call; true
 * if one did. Sleeps for up to ns.
 */
bool plx_aio_let_signals_in(const struct plx_aio_want *w, int64_t ns);
/*
 * kioctx.lock held, and about to be given up. True: somebody waits for what is in our ring, and
 * the caller has to ring the bell.
 */
bool plx_aio_due(struct plx_kioctx *k);
/* Ends what calls further up on this stack, frame being one's own, have left by a jump. */
void plx_aio_wait_check(void *frame);
/* This thread, which is about to destroy k, ends its own waits for it. */
void plx_aio_wait_forsake(struct plx_kioctx *k);
/* Makes the key by which ends of threads are heard of; see plx_retire_init. */
void plx_aio_wait_init(void);

/* --- submission (submit.c) ------------------------------------------------------------------ */

/*
 * The event of a request that the kernel does not know; the caller holds its slot and a call,
 * and gives slots back that the event has no more need of.
 * True if plx_aio_ring_bell is to be called: after the eventfd of the request has been told, as
 * in the kernel.
 */
bool plx_aio_post(struct plx_kioctx *k, const struct io_event *ev, uint32_t slots);
/* A regular file of a file system that we know, or a block device. */
bool plx_aio_known_file(int fd);
/*
 * The in-process eventfd that a completion is to be told to, with a reference and pinned, or NULL.
 * The number may be another file's by the time that it is told.
 */
struct pollux_eventfd *plx_aio_resfd_get(const struct iocb *cb);
void plx_aio_resfd_put(struct pollux_eventfd *e);
/* Where an iocb of the program has its key, which may be an odd address. */
static inline void *plx_aio_key(struct iocb *user)
{
	return (void *)((uintptr_t)user + offsetof(struct iocb, aio_key));
}

/* --- the service thread (async.c) ------------------------------------------------------------ */

enum plx_aio_mode {
	PLX_AIO_AUTO,
	/* Plain reads and writes never keep the submitter. */
	PLX_AIO_ASYNC,
};
extern enum plx_aio_mode plx_aio_mode;

/*
 * A plain request, cb, of the program's iocb: true if it is on its way. The caller is inside
 * k and holds a slot besides the request's own. After one or several, kick.
 */
bool plx_aio_async_submit(struct plx_kioctx *k, const struct iocb *cb, struct iocb *user);
void plx_aio_async_kick(void);
/* Waits until nothing is on its way: the process is about to end. */
void plx_aio_async_drain(void);
/* The same, and nothing is accepted any more; the thread ends. */
void plx_aio_async_stop(void);

/* --- the calls: results as the system calls', PLX_PASS if ctx is not one of ours ------------ */
long plx_aio_setup(unsigned int nr_events, aio_context_t *user);
long plx_aio_destroy(aio_context_t ctx);
long plx_aio_submit(aio_context_t ctx, long nr, struct iocb **user);
long plx_aio_getevents(aio_context_t ctx, long min_nr, long nr, struct io_event *events,
		       const struct timespec *timeout);
/* sig: the kernel's {const sigset_t *, size_t}, in the program's memory. */
long plx_aio_pgetevents(aio_context_t ctx, long min_nr, long nr, struct io_event *events,
			const struct timespec *timeout, const void *sig);
long plx_aio_cancel(aio_context_t ctx, struct iocb *iocb, struct io_event *result);
/*
 * What is believed of the file behind a number (submit.c). The drop-in calls forget where
 * it sees a number change hands; nothing depends on its seeing all of them but speed and,
 * for a few requests, what a number means that was a regular file and is a file of proc.
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

#endif
