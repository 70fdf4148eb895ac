/* SPDX-License-Identifier: MIT */
/*
 * A front: the user-space side of an epoll descriptor.
 *
 * The descriptor is a real kernel epoll. Kernel files are registered there, with
 * the program's own data; in-process objects are items of the front's pollux_ep.
 * Once there is such an item, `doorbell`, an eventfd, is registered in the kernel
 * epoll too, edge-triggered. Waiters sleep in the kernel's epoll_wait, in the
 * kernel's order and with the kernel's signals and time-outs; a producer rings when
 * one is announced, which wakes exactly one.
 *
 *   inproc    set once, under lock, after the doorbell stands
 *   spilled   set once, under plx_table_lock: kernel only from now on
 *   nkernel   atomic; 0: nothing but the doorbell was ever registered in the kernel
 *   gen       atomic; moves when items have gone to the kernel
 *   turn      1: the kernel filled a whole wait, in-process items go first next time
 *   ghosts, nghosts  ghost_lock: data of items whose next event is a spill's own making
 *   doorbell, kfd  hidden descriptors; kfd is a duplicate of the epoll itself, so
 *             that a wait outlives the program's close of its number (EP-WAIT-05)
 */
#ifndef PLX_POSIX_FRONT_H
#define PLX_POSIX_FRONT_H

#include "posix/posix.h"
#include "source/eventfd.h"

struct plx_front {
	struct pollux_ep *ep;
	plx_lock_t lock;
	uint32_t inproc;
	uint32_t spilled;
	uint32_t nkernel;
	uint32_t gen;
	uint32_t turn;
	plx_lock_t ghost_lock;
	uint32_t nghosts;
	uint64_t *ghosts;
	int kfd;
	int doorbell;
	uint64_t marker;
};

static inline struct plx_front *plx_file_front(struct pollux_file *f)
{
	return plx_file_ep(f)->owner;
}

/* The front may have in-process items now. */
static inline bool plx_front_live(struct plx_front *fr)
{
	return plx_load_acq(&fr->inproc) && !plx_load_acq(&fr->spilled);
}

/* True if the front waits to swallow one event with this data; it is swallowed then. */
bool plx_ghost_take(struct plx_front *fr, uint64_t data);

/* False if there is no descriptor at all, so that e cannot be made a kernel object. */
bool plx_spill_possible(const struct pollux_eventfd *e);

/* One more to a kernel eventfd that takes no more by writes. */
void plx_count_beyond_writes(int k);

/* Waits until the kernel object stands in the place of a frozen eventfd. */
void plx_spill_wait(struct pollux_eventfd *e);

/*
 * For who holds a reference on an eventfd and will have to tell it later: between pin and
 * unpin it stays within reach, also when it becomes a kernel object and the program closes
 * all its numbers. pin: false if it has become one already.
 */
bool plx_eventfd_pin(struct pollux_eventfd *e);
void plx_eventfd_unpin(struct pollux_eventfd *e);
/* One more to a pinned eventfd, as a completion of AIO does it (AIO-CQ-04). */
void plx_eventfd_tell(struct pollux_eventfd *e);

#endif
