/* SPDX-License-Identifier: MIT */
/*
 * Contexts for direct I/O are handed over to the kernel.
 *
 * With O_DIRECT all the work is the kernel's, and what is ours around it only costs. And
 * there are programs (QEMU) that look into the ring whatever its magic is, when the eventfd
 * of a request tells them to: events that are with the twin they would never find.
 *
 * So if the very first request of a context is a direct transfer, a context of the kernel is
 * made, as the program asked for it, and moved (AIO-RING-09) to the address that the program
 * knows. From then on it is the kernel's in all respects, and calls for it find nothing here.
 *
 * Nobody may see anything between the two. Ours must be empty, without waiters or a twin,
 * and without any call inside but the one that hands it over: one compare-and-swap of the state
 * sees to the last and makes the context DEAD, after which what calls have left there stays as it
 * is, and is looked at. It is done under the lock: whoever holds that and finds the context alive
 * may look into its ring. Who comes then has found a context that is DEAD and moving; he waits
 * until it is one thing or the other (plx_aio_moved), which is a system call away.
 *
 * Once it says that it is given it may be destroyed by anybody, who does not wait for the call that
 * gave it away; that call stays in an RCU section for what it has still to say. Model:
 * tests/model/handover.pml.
 *
 * The id in the header is the kernel's from then on, and it must be the one that the program has
 * seen. The kernel gives the lowest that is free, which is the one if all contexts before were
 * handed over, too. If they were not, and an eventfd is told of the request, so that the program
 * may be one of those that look into the ring, the free ids below are taken meanwhile, by contexts
 * that nobody gets to know: two threads of QEMU use their contexts in another order than they
 * made them. One thread does so at a time (the lock `ids`), or two would find each other's there.
 * That takes a system call that waits for each of them, hence not without need. The slot stays
 * taken until the context is destroyed: it is what the next ones are numbered by.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "aio/ring.h"
#include "base/delay.h"
#include "base/inject.h"
#include "base/rcu.h"
#include "base/sys.h"
#include "posix/posix.h"
#include "posix/table.h"

enum { NOT_MOVING, MOVING };

/* So many contexts are handed over. */
#define MOST 64
/* So many ids are taken for one of them. */
#define MOST_TAKEN 16

void plx_aio_moved(const struct plx_kioctx *k)
{
	while (plx_load_acq(&k->moving))
		plx_sys0(SYS_sched_yield);
}

bool plx_aio_is_direct(int fd)
{
	struct stat st;
	long flags;

	if (plx_fd_ours(fd))
		return false;
	flags = plx_sys3(SYS_fcntl, fd, F_GETFL, 0);
	if (flags < 0 || (flags & O_PATH) || !(flags & O_DIRECT) ||
	    plx_sys2(SYS_fstat, fd, &st) < 0)
		return false;
	return S_ISREG(st.st_mode) || S_ISBLK(st.st_mode);
}

static bool make(const struct plx_kioctx *k, aio_context_t *theirs)
{
	*theirs = 0;
	return plx_sys2(SYS_io_setup, k->nr_events, theirs) == 0;
}

static uint32_t id_of(aio_context_t theirs)
{
	return ((const struct plx_aio_ring *)theirs)->id;
}

/* A context of the kernel's whose id is ours (AIO-RING-07), if it can be had. */
static bool make_same(const struct plx_kioctx *k, aio_context_t *theirs, bool trouble)
{
	plx_lock_t *ids = plx_aio_table_ids();
	aio_context_t taken[MOST_TAKEN];
	uint32_t n = 0;
	bool made;

	if (k->id >= MOST || (!trouble && !plx_aio_table_given_below(k->id)))
		return false;
	plx_lock(ids, PLX_RANK_AIO_IDS);
	while ((made = make(k, theirs)) && id_of(*theirs) < k->id && n < MOST_TAKEN)
		taken[n++] = *theirs;
	while (n)
		plx_sys1(SYS_io_destroy, taken[--n]);
	plx_unlock(ids, PLX_RANK_AIO_IDS);
	return made;
}

/* Nothing ever went through it. Waiters are calls: who is alone inside knows of none. */
static bool unused(const struct plx_kioctx *k)
{
	return !plx_load(&k->tail) && !plx_ring_used(k) && !plx_load(&k->twin);
}

/* DEAD and moving, if nothing and nobody is inside but the caller with its slot. */
static bool seize(struct plx_kioctx *k)
{
	uint64_t alone = PLX_AIO_CALL + 1;
	bool seized;

	plx_lock(&k->lock, PLX_RANK_AIO);
	plx_store(&k->moving, MOVING);
	seized = plx_cas(&k->state, &alone, alone | PLX_AIO_DEAD);
	/* Not before: a call may have come and gone that needed a twin for nothing. */
	if (seized && !unused(k)) {
		plx_and(&k->state, ~PLX_AIO_DEAD);
		seized = false;
	}
	if (!seized)
		plx_store_rel(&k->moving, NOT_MOVING);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	return seized;
}

/* Its ring takes the place of ours. */
static bool move(struct plx_kioctx *k, aio_context_t theirs)
{
	long to;

	plx_aio_address_put();
	to = plx_sys6(SYS_mremap, (long)theirs, (long)k->size, (long)k->size,
		      MREMAP_MAYMOVE | MREMAP_FIXED, (long)k->user_id, 0);

	return to == (long)k->user_id;
}

bool plx_aio_hand_over(struct plx_kioctx *k, bool trouble)
{
	aio_context_t theirs;
	bool moved;

	if (plx_load(&k->state) != PLX_AIO_CALL + 1 || !unused(k) ||
	    !make_same(k, &theirs, trouble))
		return false;
	PLX_DELAY(aio_hand_over);
	if (((struct plx_aio_ring *)theirs)->nr != k->nr || id_of(theirs) != k->id || !seize(k)) {
		plx_sys1(SYS_io_destroy, theirs);
		return false;
	}
	PLX_DELAY(aio_hand_over);
	moved = move(k, theirs);
	if (moved)
		plx_aio_context_given(k);
	plx_rcu_read_lock();
	if (moved)
		plx_store(&k->given, 1);
	else
		plx_and(&k->state, ~PLX_AIO_DEAD);
	PLX_DELAY(aio_hand_over);
	plx_store_rel(&k->moving, NOT_MOVING);
	plx_rcu_read_unlock();
	if (!moved) {
		plx_sys1(SYS_io_destroy, theirs);
		return false;
	}
	plx_px_count(PLX_COUNT_AIO_GIVEN);
	return true;
}

long plx_aio_destroy_given(aio_context_t ctx)
{
	struct plx_kioctx *k;
	uint64_t header;
	bool given;
	long r;

	if (!plx_aio_header(ctx, &header))
		return PLX_PASS;
	plx_rcu_read_lock();
	/* By its id alone, which is the kernel's: its ring may have been moved since (AIO-RING-09).
	 */
	k = plx_aio_slot(header);
	given = k && plx_load(&k->given);
	plx_rcu_read_unlock();
	if (!given)
		return PLX_PASS;
	r = plx_sys1(SYS_io_destroy, ctx);
	if (r == 0 && !PLX_INJECTED(lost_context))
		plx_aio_table_give(k, (uint32_t)header);
	return r;
}
