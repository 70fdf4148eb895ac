/* SPDX-License-Identifier: MIT */
/*
 * Contexts become the kernel's, in place.
 *
 * A context of the kernel's is made, as the program asked for it, its ring is brought to the state
 * of ours, and then it is moved (AIO-RING-09) to the address that the program knows, where it takes
 * the place of ours in one step. From then on the context is the kernel's in all respects. Its id
 * in the header is another (AIO-RING-07), and the slot of ours is free.
 *
 * Nobody may see anything between the two.
 *
 *   1. Calls. Who hands over marks the context MOVING, under its lock, and waits until his is the
 *      only call inside: all others do file I/O at most. Who comes then finds the mark, takes back
 *      what he has added, and sleeps until `moves` is even again (table.c). Those that look into
 *      the ring without being counted do so under the lock, and find the mark there. If somebody
 *      inside takes his time, the mark is taken away: a slow file keeps the one who reads it and
 *      nobody else.
 *   2. Readers that take events by head and tail alone, at any moment. They see the old ring or the
 *      new one, for the kernel changes the mapping under the lock by which faults are answered. A
 *      reader who loads head from the one and tail from the other must see no difference. So head
 *      and tail of the new ring are those of ours before it is moved: the kernel's tail is driven
 *      there by requests that complete at once, whose events are counted as taken by moving head.
 *   3. Events that nobody has taken. Their places in the new ring are filled in the same way, and
 *      written over with ours: the ring is memory. A reader may take one meanwhile, and move the
 *      head of the old ring after it was looked at; he would find the event again in the new. So
 *      unread events keep a context ours if another thread may be such a reader: if head has ever
 *      been moved by somebody else than us, or an eventfd is told of events, which is how such
 *      readers hear of them. What is left is a thread that takes the first event of a context by
 *      itself, unasked, within the system call that moves the ring. To keep each context with
 *      unread events would be exact, and would refuse a poll to every program that has several
 *      threads and has not taken its events yet: often and for certain, against once in a great
 *      while. Before a filter of system calls is installed there is no choice. A ring that is
 *      empty has nothing that a reader could take.
 *
 * A program that has marked its own memory, by writing to the rest of the header, finds that, too.
 * What the kernel has not to give (aio-max-nr, memory) leaves the context ours.
 *
 * Model: tests/model/handover.pml.
 */
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>

#include "aio/ring.h"
#include "base/bug.h"
#include "base/delay.h"
#include "base/inject.h"
#include "base/inside.h"
#include "base/sys.h"
#include "base/wiped.h"
#include "cache/posix.h"
#include "cache/uaccess.h"
#include "rcu/rcu.h"

/* Requests in one call that drives the kernel's tail on. */
#define STEP 64
/* How often a context is tried to be handed over before a filter, and how long after another. */
#define TRIES 1000
#define TRY_NS 1000000

uint32_t plx_aio_given;

/* False: somebody else does it, or it dies. */
static bool mark(struct plx_kioctx *k)
{
	bool open;

	plx_lock(&k->lock, PLX_RANK_AIO);
	open = !plx_aio_closed(k);
	if (open) {
		plx_store(&k->moves, k->moves + 1);
		/* Release: its partner is the acquire in enter. */
		plx_or(&k->state, PLX_AIO_MOVING);
	}
	plx_unlock(&k->lock, PLX_RANK_AIO);
	return open;
}

static void unmark(struct plx_kioctx *k)
{
	/* Who marks it next finds both changed. */
	plx_lock(&k->lock, PLX_RANK_AIO);
	plx_and(&k->state, ~PLX_AIO_MOVING);
	plx_store_rel(&k->moves, k->moves + 1);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	plx_sys3(SYS_futex, &k->moves, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1 << 30);
}

/* --- the kernel's ring ------------------------------------------------------------------------ */

/* n requests, which are complete when the call returns: how many were taken, or an error. */
static long complete(aio_context_t theirs, const struct plx_bell *b, long n)
{
	/* Ready as long as nobody writes to it. */
	struct iocb cb = {.aio_lio_opcode = IOCB_CMD_POLL,
			  .aio_fildes = (uint32_t)b->number,
			  .aio_buf = POLLOUT},
		    *list[STEP];
	long r = -EBADF;

	for (long i = 0; i < n; i++)
		list[i] = &cb;
	/* It is closed, if the program wants the number, after a grace period. */
	plx_rcu_read_lock();
	if (plx_table_peek(b->number) == &b->file)
		r = plx_sys3(SYS_io_submit, theirs, n, list);
	plx_rcu_read_unlock();
	return r;
}

/* Its tail, which is at `at`, gets to `to`; and so does head, unless what is between is kept. */
static bool drive(struct plx_aio_ring *ring, const struct plx_bell *b, uint32_t nr, uint32_t at,
		  uint32_t to, bool keep)
{
	long n;

	while (at != to) {
		n = (to + nr - at) % nr;
		n = complete((aio_context_t)ring, b, n < STEP ? n : STEP);
		if (n <= 0)
			return false;
		at = (at + (uint32_t)n) % nr;
		if (!keep)
			plx_store_rel(&ring->head, at);
	}
	return true;
}

/* From 0 to head, and from there to the tail of k. */
static bool drive_all(struct plx_aio_ring *ring, const struct plx_bell *b,
		      const struct plx_kioctx *k, uint32_t head)
{
	return drive(ring, b, k->nr, 0, head, false) && drive(ring, b, k->nr, head, k->tail, true);
}

/* As the program has asked for it; or 0. */
static aio_context_t kernels_own(uint32_t nr_events)
{
	aio_context_t theirs = 0, aside;

	if (!plx_sys2(SYS_io_setup, nr_events, &theirs))
		return theirs;
	/* The program's contexts may need what this one takes. */
	aside = plx_xchg(&plx_wiped.aio_aside, 0);
	if (!aside)
		return 0;
	plx_sys1(SYS_io_destroy, aside);
	return plx_sys2(SYS_io_setup, nr_events, &theirs) ? 0 : theirs;
}

/* A context of the kernel's that is as k is, by its head; or 0. By b, if the ring was used. */
static aio_context_t make(const struct plx_kioctx *k, uint32_t head, const struct plx_bell *b)
{
	const struct plx_aio_ring *ours = k->ring;
	aio_context_t theirs = kernels_own(k->nr_events);
	struct plx_aio_ring *ring = (struct plx_aio_ring *)theirs;

	if (!theirs)
		return 0;
	plx_aio_address_get();
	if (ring->nr != k->nr || !drive_all(ring, b, k, head)) {
		plx_sys1(SYS_io_destroy, theirs);
		return 0;
	}
	for (uint32_t i = head; i != k->tail && !PLX_INJECTED(lost_unread); i = plx_ring_next(k, i))
		ring->events[i] = ours->events[i];
	ring->nr = ours->nr;
	ring->magic = ours->magic;
	ring->compat_features = ours->compat_features;
	ring->incompat_features = ours->incompat_features;
	ring->header_length = ours->header_length;
	return theirs;
}

/*
 * Its ring takes the place of ours, unless the program has put something else there. The kernel
 * notes where it is after it has moved the pages. Until then, and until all is done, their header
 * has our number, so that who calls finds ours, which is moving, and waits. *id: the kernel's.
 */
static bool move(const struct plx_kioctx *k, aio_context_t theirs, uint32_t *id)
{
	struct plx_aio_ring *ring = (struct plx_aio_ring *)theirs;
	uint64_t there, header;
	long to;

	memcpy(&header, k->ring, sizeof(header));
	if (plx_load_user64(&there, (const void *)k->user_id) || there != header)
		return false;
	plx_aio_address_put();
	*id = plx_load(&ring->id);
	plx_store(&ring->id, k->id);
	to = plx_sys6(SYS_mremap, (long)theirs, (long)k->size, (long)k->size,
		      MREMAP_MAYMOVE | MREMAP_FIXED, (long)k->user_id, 0);
	if (to != (long)k->user_id)
		plx_store(&ring->id, *id);
	return to == (long)k->user_id;
}

/*
 * Whether events that lie unread do not keep it ours; see above. Before it is marked, and so
 * without the lock, this is a guess.
 */
static bool may_carry(const struct plx_kioctx *k, bool must)
{
	return must || plx_px_alone() ||
	       (!plx_load(&k->watched) && plx_ring_head(k) == plx_load(&k->head));
}

static void give_away(struct plx_kioctx *k, uint32_t head, uint32_t id)
{
	struct plx_aio_ring *ring = (struct plx_aio_ring *)k->user_id;
	uint32_t moved = plx_ring_head(k);
	bool mine;

	/* Somebody has read from the old one after all. */
	if (plx_unlikely(moved != head))
		plx_cas(&ring->head, &head, moved);
	PLX_DELAY(aio_hand_over);
	plx_aio_address_put();
	/* From here on others call the kernel, and may destroy it. Partner: plx_aio_header. */
	plx_store_rel(&ring->id, id);
	mine = plx_aio_table_del(k);
	PLX_INVARIANT(mine, "who hands a context over is alone inside");
	plx_store(&plx_aio_given, 1);
	plx_xadd(&plx_wiped.aio_moves_over, 1);
	PLX_DELAY(aio_hand_over);
	unmark(k);
	plx_aio_release(k, false);
	plx_px_count(PLX_COUNT_AIO_GIVEN);
}

enum plx_aio_hand plx_aio_hand_over(struct plx_kioctx *k, bool must)
{
	aio_context_t theirs = 0;
	struct plx_bell *b = NULL;
	uint32_t head, id;
	int err = 0;

	if (plx_ring_used(k) && !may_carry(k, must))
		return PLX_AIO_STAYS;
	if (!mark(k))
		return PLX_AIO_BUSY;
	PLX_DELAY(aio_hand_over);
	if (!plx_aio_alone(k, false)) {
		unmark(k);
		return PLX_AIO_BUSY;
	}
	head = plx_ring_head(k);
	plx_xadd(&plx_wiped.aio_moves_begun, 1);
	if (head == k->tail || may_carry(k, must)) {
		err = head || k->tail ? plx_bell_new(&b) : 0;
		theirs = err ? 0 : make(k, head, b);
	}
	if (b) {
		plx_bell_close(b);
		plx_file_put_locked(&b->file);
	}
	PLX_DELAY(aio_hand_over);
	if (!theirs || plx_ring_head(k) != head || !move(k, theirs, &id)) {
		plx_aio_address_put();
		if (theirs)
			plx_sys1(SYS_io_destroy, theirs);
		plx_xadd(&plx_wiped.aio_moves_over, 1);
		unmark(k);
		/* Who must cannot wait for the end of a change, as that of a vfork. */
		return err == -EAGAIN && !must ? PLX_AIO_BUSY : PLX_AIO_STAYS;
	}
	give_away(k, head, id);
	return PLX_AIO_GIVEN;
}

/* The context with this id; false: there is none from there on. */
static bool hand_over_id(uint32_t id)
{
	enum plx_aio_hand hand = PLX_AIO_BUSY;
	bool beyond = false;

	for (int try = 0; hand != PLX_AIO_GIVEN && try < TRIES; try++) {
		struct timespec moment = {.tv_nsec = TRY_NS};

		if (try)
			plx_sys2(SYS_nanosleep, &moment, NULL);
		/* The kernel may have less room on this CPU than on the next, and tell so once. */
		if (hand == PLX_AIO_STAYS && try > 3)
			break;

		PLX_INSIDE();
		struct plx_kioctx *k = plx_aio_get_id(id, &beyond);

		if (!k)
			break;
		hand = plx_aio_hand_over(k, true);
		if (hand != PLX_AIO_GIVEN)
			plx_aio_put(k, 0);
	}
	return !beyond;
}

void plx_aio_hand_over_all(void)
{
	/* Partner: the same in plx_aio_setup, between the table and a look at plx_px_no_adopt. */
	plx_mb();
	for (uint32_t id = 0; hand_over_id(id); id++)
		;
}

/* --- a request on its own -----------------------------------------------------------------------
 */

/* A context in which nothing is when nobody has it in hand; one that was used before, if any. */
static aio_context_t take_aside(void)
{
	aio_context_t ctx = plx_xchg(&plx_wiped.aio_aside, 0);

	if (!ctx && plx_sys2(SYS_io_setup, 1, &ctx) < 0)
		return 0;
	return ctx;
}

static void put_aside(aio_context_t ctx)
{
	aio_context_t none = 0;

	/* It takes the kernel milliseconds to destroy one. */
	if (!plx_cas(&plx_wiped.aio_aside, &none, ctx))
		plx_sys1(SYS_io_destroy, ctx);
}

/* The event of a request that was accepted, which comes soon. */
static void event_of(aio_context_t ctx, struct io_event *ev)
{
	while (plx_sys6(SYS_io_getevents, (long)ctx, 1, 1, (long)ev, 0, 0) == -EINTR)
		;
}

long plx_aio_ask(const struct iocb *cb, int flags, struct io_event *ev)
{
	struct iocb copy = *cb, *list = &copy;
	struct timespec none = {0};
	aio_context_t ctx = take_aside();
	long r;

	if (!ctx)
		return -EAGAIN;
	/* Who is to be told hears of the event when it is in the program's ring. */
	copy.aio_flags &= ~(uint32_t)IOCB_FLAG_RESFD;
	copy.aio_rw_flags |= flags;
	r = plx_sys3(SYS_io_submit, ctx, 1, &list);
	if (r == 1 && cb->aio_lio_opcode != IOCB_CMD_POLL) {
		event_of(ctx, ev);
	} else if (r == 1 &&
		   plx_sys6(SYS_io_getevents, (long)ctx, 1, 1, (long)ev, (long)&none, 0) != 1) {
		/* Not ready; or it became so just now, and then its event says so. */
		plx_sys3(SYS_io_cancel, ctx, &copy, ev);
		event_of(ctx, ev);
		if (!ev->res)
			r = -EAGAIN;
	}
	put_aside(ctx);
	return r;
}
