/* SPDX-License-Identifier: MIT */
/*
 * Files that become ready by time: nobody wakes them when it comes.
 *
 * An epoll keeps the times of such items in a heap. Who waits in it sleeps no longer than up to the
 * first of them, puts the items whose time has come on the ready list, and polls them as if they
 * had been woken.
 *
 *   pollux_ep.dues, ndues, dues_room, dues_items  ep.mtx, and so an item's place in dues
 *   pollux_ep.due     written under ep.mtx: the first time in the heap as the last section under
 *                     that has left it; PLX_NEVER if there is none
 *   pollux_ep.keeper  atomic: a time up to which somebody sleeps; PLX_NEVER if it is not known that
 *                     anybody does. Below all times: a descriptor of the kernel's keeps them, for
 *                     good (wait/side.c)
 *
 * The heap. An item's time is what its file said at its last poll. If that found nothing it is what
 * the file said before: a time that passes between the two steps must not be taken for one that the
 * poll has seen. If it found something it is what the file said after: what comes between goes with
 * the same event. A file that makes its time earlier wakes, and the item is polled again. So the
 * time in the heap is never later than the file's, unless the item is on the ready list or on its
 * way there. It may be earlier; then a poll in vain puts it right. An item that wants nothing, as
 * one whose one-shot event has been delivered, has none until it is polled again.
 *
 * Who keeps the time. If several threads sleep in an epoll only one has to wake when a time comes.
 * So who is about to sleep sleeps up to ep.due only if nobody else keeps a time that is as early,
 * and says so in ep.keeper.
 *
 *   Argument. While a time is in ep.due and somebody sleeps, a thread sleeps that has said a time
 *   in ep.keeper which is not later, or a ring is on its way, or a thread is between. (1) Who
 *   makes ep.due earlier stores it, has a full barrier, and looks at keeper and for sleepers; who
 *   sleeps counts itself, has a full barrier, and looks at ep.due. So one sees the other. If nobody
 *   keeps that time one sleeper is rung for (plx_due_unkept). (2) Whoever comes out of a sleep
 * takes back what it has said by a read-modify-write, and goes back to sleep, where it looks again;
 * or it leaves the wait, and looks whether the time is kept and somebody sleeps. One who comes to
 *   sleep meanwhile has counted itself before it has found the time kept. (3) Who is rung for
 * leaves or looks again, so the ring is never spent on somebody who does neither. The model is
 *   tests/model/due.pml.
 *
 * Nested epolls. The file of an epoll has its epoll's due as its time. Who makes that earlier wakes
 * the file, as any other does.
 */
#include "epoll/engine.h"

#define FIRST_ROOM 8

static uint32_t place_of(const struct plx_epitem *item)
{
	return plx_load(&item->due_given) >> 1;
}

static void set_place(struct plx_epitem *item, uint32_t n)
{
	plx_store(&item->due_given, n << 1 | plx_item_given(item));
}

static void place(struct pollux_ep *ep, uint32_t i, struct plx_due_entry e)
{
	ep->dues[i] = e;
	set_place(e.item, i + 1);
}

static void sift_up(struct pollux_ep *ep, uint32_t i, struct plx_due_entry e)
{
	while (i && ep->dues[(i - 1) / 2].at > e.at) {
		place(ep, i, ep->dues[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	place(ep, i, e);
}

static void sift_down(struct pollux_ep *ep, uint32_t i, struct plx_due_entry e)
{
	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child + 1 < ep->ndues && ep->dues[child + 1].at < ep->dues[child].at)
			child++;
		if (child >= ep->ndues || ep->dues[child].at >= e.at)
			break;
		place(ep, i, ep->dues[child]);
		i = child;
	}
	place(ep, i, e);
}

/* Its place in the heap is given a new time. */
static void move(struct pollux_ep *ep, uint32_t i, struct plx_due_entry e)
{
	if (i && ep->dues[(i - 1) / 2].at > e.at)
		sift_up(ep, i, e);
	else
		sift_down(ep, i, e);
}

static void take_out(struct pollux_ep *ep, struct plx_epitem *item)
{
	uint32_t i = place_of(item) - 1;
	struct plx_due_entry last;

	set_place(item, 0);
	last = ep->dues[--ep->ndues];
	if (last.item != item)
		move(ep, i, last);
}

bool plx_due_reserve(struct pollux_ep *ep)
{
	uint32_t room = ep->dues_room ? 2 * ep->dues_room : FIRST_ROOM;
	struct plx_due_entry *more;

	plx_lockdep_held(&ep->mtx);
	if (ep->dues_items == ep->dues_room) {
		more = plx_zalloc(room * sizeof(*more));
		if (!more)
			return false;
		if (ep->ndues)
			memcpy(more, ep->dues, ep->ndues * sizeof(*more));
		plx_free(ep->dues);
		ep->dues = more;
		ep->dues_room = room;
	}
	ep->dues_items++;
	return true;
}

void plx_due_forget(struct plx_epitem *item)
{
	struct pollux_ep *ep = item->ep;

	plx_lockdep_held(&ep->mtx);
	if (place_of(item))
		take_out(ep, item);
	ep->dues_items--;
	(void)plx_due_publish(ep);
}

void plx_due_none(struct plx_epitem *item)
{
	plx_lockdep_held(&item->ep->mtx);
	if (place_of(item))
		take_out(item->ep, item);
}

void plx_due_note(struct plx_epitem *item, int64_t at)
{
	struct pollux_ep *ep = item->ep;
	struct plx_due_entry e = {.at = at, .item = item};

	plx_lockdep_held(&ep->mtx);
	if (at < 0) {
		plx_due_none(item);
	} else if (place_of(item)) {
		move(ep, place_of(item) - 1, e);
	} else {
		sift_up(ep, ep->ndues++, e);
	}
}

struct plx_epitem *plx_due_take(struct pollux_ep *ep, int64_t now)
{
	struct plx_epitem *item;

	plx_lockdep_held(&ep->mtx);
	if (!ep->ndues || ep->dues[0].at > now)
		return NULL;
	item = ep->dues[0].item;
	take_out(ep, item);
	return item;
}

bool plx_due_publish(struct pollux_ep *ep)
{
	int64_t old = ep->due, due = ep->ndues ? ep->dues[0].at : PLX_NEVER;

	plx_lockdep_held(&ep->mtx);
	if (due == old)
		return false;
	plx_store(&ep->due, due);
	if (plx_unlikely(ep->side))
		(void)ep->side->due(ep, due);
	return due < old;
}

int64_t plx_due_keep_slow(struct pollux_ep *ep, int64_t deadline, int64_t *kept)
{
	int64_t due = plx_load(&ep->due), keeper = plx_load(&ep->keeper);

	do {
		if (due >= keeper)
			return deadline;
	} while (!plx_cas(&ep->keeper, &keeper, due));
	*kept = due;
	PLX_DELAY(due_kept);
	return deadline < 0 || due < deadline ? due : deadline;
}

void plx_due_let_go(struct pollux_ep *ep, int64_t kept)
{
	/* Another may keep an earlier one by now. */
	(void)plx_cas(&ep->keeper, &kept, PLX_NEVER);
}

/* Operation of the file of an epoll. */
int64_t plx_ep_due(struct pollux_file *f)
{
	int64_t due = plx_load(&plx_file_ep(f)->due);

	return due == PLX_NEVER ? -1 : due;
}
