/* SPDX-License-Identifier: MIT */
/*
 * The user-space side of an epoll descriptor.
 *
 * The descriptor is a real kernel epoll. All that the program watches is registered there, with
 * its own mask and data; cached objects, which the kernel may have no event of, are items of the
 * pollux_ep as well.
 * Before somebody sleeps while there may be such items, a doorbell, an eventfd, is
 * registered in the kernel epoll too, edge-triggered (epoll.c has the argument). A wait
 * sleeps in the program's own epoll_wait, by its own number, in the kernel's order and with the
 * kernel's signals and time-outs; a producer rings when one is announced, which wakes exactly one.
 *
 *   inproc    set under lock: waits look for in-process items; READY, they may be added
 *   wanted    atomic; an eventfd that it watches is hot: the next wait makes inproc READY
 *   hot       set once: the eventfds that it watches are written to often
 *   heat      approximate; of these
 *   evicted   atomic: no item comes any more, and soon the kernel has what there is
 *   foreign   atomic, set once: the program registers with the doorbell's own data
 *   nkernel   atomic; PLX_KERNEL_NOTHING: the kernel's side can have no event but the doorbell's
 *   unasked   approximate; looks at it that found nothing while ours had something
 *   turn      who goes first in the next wait, because the other has filled a whole one (wait.c)
 *   ctls, ctls_over  atomic; calls that add or modify, begun and over
 *   heard     atomic, from 1; events of the kernel's that waits have taken beside items
 *   looks     approximate; waits that have left out a look at the kernel's side
 *   direct    approximate; so many waits may sleep without a look at the kernel's side before
 *   id        of no other epoll that ever was
 *   nlazy     atomic; timers of which the kernel does not know the setting (timer.c)
 *   twaiters  atomic; waits that know of them
 *   notimers  set once: there are none any more
 *   soon      atomic; none of them expires in the kernel before this time
 *   timer_mark  the upper bits of the data by which the kernel knows them; 0: none so far
 *   timers    set once: all waits know the mark, or will be seen as sleepers
 *   unseen    atomic; counts the timers that may be left on the kernel's ready list (timer.c)
 *   seen      atomic; what unseen was before the kernel looked through the whole list
 *   doorbell  atomic; the number to ring by, -1: none; stored under bell_lock (bell.c), and taken
 *             away, with bell, by one who has a reference or has dropped the last
 *   ringers   atomic; threads that use the number; each counts itself, and then reads it
 */
#pragma once

#include "cache/posix.h"
#include "cache/eventfd.h"

/* epoll.inproc */
enum { PLX_INPROC_NONE, PLX_INPROC_BEGUN, PLX_INPROC_READY };
/* epoll.nkernel: EVENTFDS of the set may have counts there; FILES of the kernel's are for good. */
enum { PLX_KERNEL_NOTHING, PLX_KERNEL_EVENTFDS, PLX_KERNEL_FILES, PLX_KERNEL_LEAVING };
/* epoll.wanted */
enum { PLX_WANTED_NOT, PLX_WANTED, PLX_WANTED_REFUSED };
/* epoll.evicted */
enum { PLX_EVICTED_NOT, PLX_EVICTED_BEGUN, PLX_EVICTED_DONE };

struct plx_epoll {
	struct pollux_ep *ep;
	plx_lock_t lock;
	uint32_t inproc;
	uint32_t wanted;
	uint32_t hot;
	struct plx_heat heat;
	uint32_t evicted;
	uint32_t foreign;
	uint32_t nkernel;
	int32_t unasked;
	uint32_t turn;
	uint32_t direct;
	uint32_t looks;
	uint32_t ctls, ctls_over;
	int doorbell;
	uint32_t ringers;
	struct plx_bell *bell;
	uint64_t heard;
	uint64_t id;
	uint32_t nlazy;
	uint32_t twaiters;
	uint32_t notimers;
	int64_t soon;
	uint64_t timer_mark;
	uint32_t timers;
	uint64_t unseen;
	uint64_t seen;
};

static inline struct plx_epoll *plx_file_epoll(struct pollux_file *f)
{
	return plx_file_ep(f)->owner;
}

/* Files of the table are watched by items of epolls of ours alone. RCU section open: the epoll. */
static inline struct plx_epoll *plx_watch_epoll(struct plx_watch *w)
{
	return plx_watch_item(w)->ep->owner;
}
#define PLX_EACH_WATCH(w, f)                                                                       \
	for (struct plx_watch *w = plx_load_acq(&(f)->watches); w; w = plx_load_acq(&w->next))

/* The epoll may have in-process items now. */
static inline bool plx_epoll_live(struct plx_epoll *pe)
{
	return plx_load_acq(&pe->inproc) && plx_load_acq(&pe->evicted) != PLX_EVICTED_DONE;
}

/* The epoll is the kernel's alone, and the kernel has its items. */
static inline bool plx_epoll_evicted(struct plx_epoll *pe)
{
	return plx_load_acq(&pe->evicted) == PLX_EVICTED_DONE;
}

/* A file of the kernel's is about to be among what pe watches. */
static inline void plx_epoll_files(struct plx_epoll *pe)
{
	if (plx_load(&pe->nkernel) != PLX_KERNEL_FILES)
		plx_xchg(&pe->nkernel, PLX_KERNEL_FILES);
}

/*
 * An eventfd that pe watches, whose word has been changed, may have a count in the kernel.
 *
 * Argument. A wait may find that no eventfd has (kernel_leaves in wait.c): it says LEAVING, a full
 * barrier, and looks at all words. Who has changed a word, a full barrier, and finds EVENTFDS here,
 * was before LEAVING, and so before the looks. Who finds LEAVING changes it, and then it does not
 * become NOTHING.
 */
static inline void plx_epoll_counts(struct plx_epoll *pe)
{
	uint32_t n = plx_load(&pe->nkernel);

	while ((n == PLX_KERNEL_NOTHING || n == PLX_KERNEL_LEAVING) &&
	       !plx_cas(&pe->nkernel, &n, PLX_KERNEL_EVENTFDS))
		;
}

/* Whether an eventfd that it watches may be cached; if not, that may change (plx_epoll_prepare). */
static inline bool plx_epoll_ready(struct plx_epoll *pe)
{
	if (plx_load_acq(&pe->evicted))
		return false;
	if (plx_likely(plx_load_acq(&pe->inproc) == PLX_INPROC_READY))
		return true;
	if (plx_load(&pe->wanted) == PLX_WANTED_NOT)
		plx_store(&pe->wanted, PLX_WANTED);
	return false;
}

/* The data of the events of all doorbells; 0: there has been none. */
extern uint64_t plx_bell_marker;
/* libc's streams read and write these numbers, and do not come through us. */
static inline bool plx_fd_of_stream(int fd)
{
	return fd >= 0 && fd <= 2;
}

/* --- timer.c ------------------------------------------------------------------------- */

/* The data of an event of a timer of pe that the kernel's epoll knows by our own data. */
#define PLX_TIMER_FDS (1u << 24)

static inline bool plx_timer_marked(struct plx_epoll *pe, uint64_t data)
{
	uint64_t mark = plx_load(&pe->timer_mark);

	return mark && (data ^ mark) < PLX_TIMER_FDS;
}

/* Some timer is to know whether the kernel's ready list has been looked through. */
static inline bool plx_timers_unseen(struct plx_epoll *pe)
{
	return plx_load(&pe->unseen) != plx_load(&pe->seen);
}

/*
 * Such an event has been taken out: its kernel timer is set to what the program wants. True if it
 * has expired: it is at the end of the kernel's list, and *ev is its event.
 */
bool plx_timer_fired(struct plx_epoll *pe, struct epoll_event *ev);
/* All timers of the epoll become true; for good. */
void plx_timers_true(struct plx_epoll *pe);
void plx_timers_leave(struct plx_epoll *pe);
/* A wait begins, or is over: those that expire in the kernel by about now become true. */
void plx_timers_soon(struct plx_epoll *pe);
/* f is a timer, found under RCU, which is left. */
long plx_timer_read(struct pollux_file *f, int fd, void *buf, size_t n);
/* f is a timer, with a reference; pe may be NULL. */
long plx_timer_ctl(struct pollux_file *f, struct plx_epoll *pe, int epfd, int op, int fd,
		   struct epoll_event *ev);
/* A new one for what the program has had at fd before; NULL without memory. */
struct pollux_file *plx_timer_file(int fd, int flags);
/* pe, at epfd, is found to watch it; false if another one does, too. Nobody else knows it. */
bool plx_timer_watched(struct pollux_file *f, struct plx_epoll *pe, int epfd,
		       const struct epoll_event *ev);
/* If fd is a timer, it is the kernel's alone from now on: true if it was not. */
bool plx_timer_escape(int fd);
/* The number of a timer, f, is about to be closed. */
void plx_timer_close(struct pollux_file *f);
/* It has been closed past us; false if it seems to be there, with a setting of our own. */
bool plx_timer_lost(struct pollux_file *f);
/*
 * epoll.c: takes what rings have been made out of the doorbell, as if its event had been
 * collected: false if there were none. A look of the kernel at its ready list drops it then. Until
 * that has come by it keeps its place, where another ring finds it; one that comes later stands
 * behind whatever was there before.
 */
bool plx_epoll_hush(struct plx_epoll *pe);
/* epoll.c: a new one for an epoll that the program has had before; NULL without memory. */
struct pollux_file *plx_epoll_file(void);
/* It is found to watch fd, while nobody changes that. */
void plx_epoll_watches(struct plx_epoll *pe, int epfd, int fd, struct epoll_event *ev);
/* escape.c: f, an epoll, becomes the kernel's, whatever its numbers mean by now. */
void plx_epoll_escape(struct pollux_file *f, enum plx_way_out why);
/*
 * epoll.c: the doorbell stands, or the kernel has the items: 0, so a thread may sleep by epfd.
 * -EAGAIN: the epoll has no items of ours; else there is none.
 */
int plx_epoll_ring(struct plx_epoll *pe, int epfd);
/*
 * bell.c. With a reference, or by who has dropped the last, not within an RCU section: nobody rings
 * any more. The doorbell is closed, and so leaves the kernel's epoll.
 */
void plx_epoll_unbell(struct plx_epoll *pe);
/*
 * epoll.c: makes it ready for items that are cached, as PLX_WANTED says. epfd is its number, or may
 * be. By an ordinary thread that holds nothing.
 */
void plx_epoll_prepare(struct plx_epoll *pe, int epfd);
