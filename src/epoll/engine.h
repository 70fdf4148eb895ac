/* SPDX-License-Identifier: MIT */
/*
 * The engine's objects and what its files offer each other.
 *
 *   pollux_file --watches--> plx_watch (in plx_epitem, or a poller's own)
 *        ^                        |
 *        |                        v
 *   plx_epitem.file          plx_epitem --ep--> pollux_ep (itself a pollux_file)
 *
 * Which lock protects which field
 *
 *   pollux_file.word       atomic; layout below
 *   pollux_file.watches    changed under file.lock, by the last close without; read under RCU
 *   pollux_file.refs       atomic; 0 is final
 *   pollux_file.flags      set under file.lock, cleared by the remover of the primary item
 *   pollux_file.index      file.lock; anybody may ask whether there is one
 *   pollux_file.hint       written by producers as they please, never followed
 *   pollux_file.mode of the source
 *   pollux_file.born       written under forget_lock: see fork.c
 *   pollux_file.node       mark: the word itself; else as that of an item
 *   pollux_file.ended, node.end  whoever had the last reference, then reclaim.c
 *   plx_watch.next         changed under file.lock, read under RCU
 *   plx_watch.pprev        file.lock; of the first in the list the place behind the last (file.c)
 *   plx_watch.events       changed under ep.mtx, by a MOD under file.lock besides, which alone is
 *                          enough where the one-shot event has been delivered (rearm in ctl.c);
 *                          read by wakers without a lock
 *   plx_watch.spent        atomic; pollux_ep.spent, too: see file.c
 *   plx_epitem.node        set as the item is linked, constant: its file's, of the primary item,
 *                          which has it from then until it is removed; else its own
 *   plx_node.pops          written under the mutex of the item's epoll, read by wakers
 *   plx_node.pushed        written by the producer that queued the item
 *   plx_node.next          belongs to the producer that set QUEUED, then, from the
 *                          moment the stack is taken, to the holder of ep.mtx
 *   plx_epitem.rd, all     ep.mtx
 *   plx_epitem.data, due_given  as plx_watch.events
 *   pollux_ep.incoming     atomic; any producer pushes, the holder of ep.mtx takes all
 *   pollux_ep.help, helps  atomic; any producer, the holder of ep.mtx takes all; see ready.c, 3
 *   pollux_ep.sleepers     atomic, waiters announce themselves
 *   pollux_ep.recent, pushes  written by producers as they please, never followed
 *   pollux_ep.side         set once, with the topology lock; see wait/side.c
 *   pollux_ep.watched      set before the first watch of the epoll itself is linked, for good
 *   pollux_ep.bell         atomic; see base/ring.h
 *   pollux_ep.collected_at atomic; when a ring was collected last
 *   pollux_ep.rings, owed, heard  atomic; they only grow; see ready.c, 8
 *   pollux_ep.has_ready    written under ep.mtx, read by anybody: `ready` may hold something
 *   pollux_ep.ready, items, closed, spliced, kept, harvests, events  ep.mtx
 *   pollux_ep.host         constant
 *   pollux_ep.due and what is about it  see due.c
 *   pollux_ep.shut         set once; see wait.c
 *   pollux_ep.batches      constant
 *   pollux_ep.refs         atomic: one for the open file and all items together, one for
 *                          each item that was ever helped; 0 is final
 *
 * The ranks of the locks are in base/lock.h.
 *
 * The word of a file, and the own mark word of a secondary item:
 *
 *   bits 32..63  EPOCH   generation: moves whenever something that a producer
 *                        may have looked at before a compare-and-swap has changed
 *   bit  31      QUEUED  the item whose mark this is sits on its epoll's ready list,
 *                        or its producer is about to put it there
 *   bit  30      QUIET   a wake of the file has nobody to tell anything new
 *   bit  29      SLOW    the source keeps its state elsewhere
 *   bits 0..28   payload of the source
 *
 * A producer that stands between its look at the word and its compare-and-swap is wrong only if it
 * goes on after exactly a multiple of 2^32 moves, with the same payload. A thread that does nothing
 * else makes them in a quarter of an hour, and then one instant in 2^32 is the wrong one.
 */
#pragma once

#include <errno.h>
#include <stddef.h>

#include "epoll/fields.h"

#include <pollux/epoll.h>

#include "base/atomic.h"
#include "base/bug.h"
#include "base/delay.h"
#include "base/inject.h"
#include "base/stats.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/ring.h"
#include "base/flood.h"
#include "base/sanitizer.h"
#include "base/slab.h"
#include "base/spin.h"
#include "base/wiped.h"
#include "rcu/rcu.h"

#define PLX_EPOCH_ONE (1ull << 32)
#define PLX_QUEUED (1ull << 31)
#define PLX_QUIET (1ull << 30)
#define PLX_SLOW (1ull << 29)
#define PLX_PAYLOAD (PLX_SLOW - 1)

/* pollux_file.flags */
#define PLX_FILE_HAS_PRIMARY 1u

/* pollux_file.kind: lets a layer above recognise its own objects. */
enum plx_file_kind {
	PLX_KIND_OTHER,
	PLX_KIND_EPOLL,
	PLX_KIND_EVENTFD,
	PLX_KIND_BELL,
	PLX_KIND_TIMER,
	/* Not a file, but a pollux_call. */
	PLX_KIND_CALL,
};

/* Interest bits that are not events (EP-RDY-14). */
#define PLX_EP_FLAGS (EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE)
#define PLX_EXCLUSIVE_OK                                                                           \
	(EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE)

#define PLX_EP_MAX_DEPTH 5

/* What a watch is, and with that its place in the file's list. */
enum plx_watch_place {
	/* An item: in front of all others, newest first. */
	PLX_WATCH_PLAIN,
	/* An item: at the end, oldest first; a success of one ends the wake. */
	PLX_WATCH_EXCLUSIVE,
	/* A poll(2) sleeper: in front, newest first. */
	PLX_WATCH_POLLER,
	/* A thread blocked in read or write: at the end, in line with the exclusive ones. */
	PLX_WATCH_TAIL,
};

/*
 * Entry of a file's list of watches: the head of a plx_epitem, or something that is
 * called with the key of each wake, under the same rules as pollux_file_wake itself.
 */
struct plx_watch {
	struct plx_watch *next;
	struct plx_watch **pprev;
	union {
		/* Not of an item. */
		void (*call)(struct plx_watch *w, uint32_t key);
		/* Of an item that is kept: the next one; under the mutex of its epoll. */
		struct plx_epitem *kept_next;
	};
	uint32_t events;
	uint8_t place;
	uint8_t dead;
	uint8_t helped;
	/* Of an exclusive item: a wake has ended at it. */
	uint8_t spent;
};

struct plx_list {
	struct plx_list *next, *prev;
};

/*
 * An event takes lines from the producer's CPU to the consumer's and back, and waits for each. What
 * both write for a primary item is in the line of its file, which has to come in any case; the
 * first line of an item both only read, and the second is the consumer's.
 */
struct plx_epitem {
	struct plx_watch w;
	struct pollux_ep *ep;
	struct plx_node *node;
	struct pollux_file *file;
	uint64_t data;
	/* On the ready list if rd.next is set. If not, rd.prev is the last collection that took it.
	 */
	struct plx_list rd;
	struct plx_list all;
	struct plx_node own;
	int key;
	/* See plx_item_given; above that bit its place in ep.dues, from 1 on, or 0. */
	uint32_t due_given;
};

_Static_assert(sizeof(struct plx_epitem) == PLX_SLAB_OBJECT, "an item fills two cache lines");
_Static_assert(offsetof(struct plx_epitem, rd) == 64, "the first of them is for all");

static inline bool plx_item_is_primary(const struct plx_epitem *item)
{
	return item->node != &item->own;
}

/* A wait has reported an event of it since it was added or modified. */
static inline bool plx_item_given(const struct plx_epitem *item)
{
	return plx_load(&item->due_given) & 1;
}

static inline void plx_item_set_given(struct plx_epitem *item, bool given)
{
	plx_store(&item->due_given, (plx_load(&item->due_given) & ~1u) | given);
}

/* It has been armed for one event, and that has been delivered: even errors are not reported. */
static inline bool plx_item_disarmed(const struct plx_epitem *item)
{
	return !(plx_load_acq(&item->w.events) & ~PLX_EP_FLAGS);
}

static inline bool plx_item_linked(const struct plx_epitem *item)
{
	return item->rd.next != NULL;
}

/* ep.mtx held, the item is on no list: the collection now has taken it off, and looks at it. */
static inline void plx_item_take(struct plx_epitem *item, uint64_t harvest)
{
	item->rd.prev = (struct plx_list *)(uintptr_t)harvest;
}

static inline bool plx_item_taken(const struct plx_epitem *item, uint64_t harvest)
{
	return item->rd.prev == (struct plx_list *)(uintptr_t)harvest;
}

/* plx_watch.spent: the wake that has ended there had this of IN and OUT; it has gone on since. */
enum { PLX_SPENT_NOT, PLX_SPENT_IN, PLX_SPENT_OUT, PLX_SPENT_ANY, PLX_SPENT_OVER };

/* ep.help: what the next collection looks at besides the list. */
enum {
	PLX_HELP_NONE,
	/* The items that are kept, and those in ep.helps. */
	PLX_HELP_SOME,
	/* Every item: there was no place left in ep.helps. */
	PLX_HELP_ALL,
};

/* As many as fill a line. */
#define PLX_HELPS 7

/* plx_watch.helped of an item: it has a reference on its epoll; is to be looked at; is kept. */
#define PLX_HELP_EVER 1
#define PLX_HELP_WANTED 2
#define PLX_HELP_KEPT 4

/* How far ahead of the collection lines are asked for. */
#define PLX_RECENT 8

/*
 * The kernel's side of an epoll that watches descriptors as well. A room above makes it (wait/);
 * this one knows what it needs.
 */
struct plx_side {
	/* pollux_ep_pwait; sleeps: the time-out is not 0; deadline: negative for none. */
	int (*wait)(struct pollux_ep *ep, struct epoll_event *ev, int max, bool sleeps,
		    int64_t deadline, const sigset_t *mask);
	/* pollux_ep_collect. */
	int (*collect)(struct pollux_ep *ep, pollux_event_fn fn, void *arg, int max, bool sleeps,
		       int64_t deadline, const sigset_t *mask);
	/*
	 * ep.mtx held: ep.due becomes this, or an item is about to come that has times. 0, or an
	 * error of the latter.
	 */
	int (*due)(struct pollux_ep *ep, int64_t due);
	/* The epoll has or may get descriptors: its file is not watched. Topology lock. */
	uint32_t fds;
	/* Wakes one who sleeps there: as unpark_one of a host. */
	void (*ring)(struct pollux_ep *ep);
	/* The last reference of the epoll has gone: nobody waits. Some may still ring. */
	void (*release)(struct pollux_ep *ep);
	/* Nobody rings any more, and the epoll is freed next. */
	void (*free)(struct pollux_ep *ep);
};

/* A time that never comes. */
#define PLX_NEVER INT64_MAX

struct plx_due_entry {
	int64_t at;
	struct plx_epitem *item;
};

struct pollux_ep {
	struct pollux_file file;
	/* Its own line, which wakers read and nobody writes to. */
	struct pollux_host host __attribute__((aligned(64)));
	/* pollux_ep_shutdown has been called. */
	uint32_t shut;
	/* POLLUX_EP_BATCHES. */
	uint32_t batches;
	/* Written by producers. */
	struct plx_epitem *incoming __attribute__((aligned(64)));
	uint32_t help;
	uint64_t bell;
	uint32_t sleepers;
	/* What was pushed lately, as hints (ready.c); only ever prefetched. */
	uint32_t pushes;
	uint32_t recent[PLX_RECENT];
	/* It may have watches of its own: their list is in a line that each wait writes to. */
	uint32_t watched;
	/* Some item of it may have been the end of an exclusive wake. */
	uint32_t spent;
	struct plx_epitem *helps[PLX_HELPS];
	/* Written by consumers. */
	plx_lock_t mtx __attribute__((aligned(64)));
	int64_t collected_at;
	uint32_t refs;
	/* How many events collections have given out. */
	uint32_t given;
	struct plx_list ready;
	struct plx_list items;
	uint32_t has_ready;
	uint32_t ends;
	uint64_t harvests;
	/* The same as given, and it does not wrap. */
	uint64_t events;
	/* Items that were helped, until their push is known to have come. */
	struct plx_epitem *kept;
	/* pushes, as the last collection found it. */
	uint32_t spliced;
	uint32_t nitems;
	uint32_t closed;
	/* When the first item becomes ready by itself. */
	int64_t due;
	int64_t keeper;
	struct plx_due_entry *dues;
	uint32_t ndues;
	uint32_t dues_room;
	uint32_t dues_items;
	struct plx_spin_state spin;
	struct plx_yields yields;
	struct plx_side *side;
	int visit_depth;
	uint64_t visit_gen;
	/* Rings through a descriptor. */
	uint64_t rings;
	uint64_t owed;
	uint64_t heard;
	/* Of the layer above; freed with the epoll, and until then its host may be called. */
	void *owner;
};

/* Whether somebody watches the epoll itself. */
static inline bool plx_ep_watched(struct pollux_ep *ep)
{
	return plx_unlikely(plx_load(&ep->watched)) && plx_load(&ep->file.watches);
}

/* --- file.c: files and their lists of watches ------------------------------------ */

/* One more reference, unless the last one has gone. */
static inline bool plx_refs_tryget(uint32_t *refs)
{
	uint32_t n = plx_load(refs);

	do {
		if (n == 0)
			return false;
	} while (!plx_cas(refs, &n, n + 1));
	return true;
}

/*
 * pollux_file_tryget in line: where sets are walked a processor foresees the lines of files by the
 * place that asks for them, if no others are asked for there.
 */
static inline bool plx_file_tryget(struct pollux_file *f)
{
	return plx_refs_tryget(&f->refs);
}

/*
 * A structure of the program's that grows, as clone3 and openat2 take it: `size` is its caller's,
 * `known` ours. 0, -EINVAL (too small) or -E2BIG (what we do not know is not 0).
 */
int plx_check_size(const void *p, uint32_t size, size_t known);
/* pollux_file_init for the layer above: born is 0. */
void plx_file_init(struct pollux_file *f, const struct pollux_file_ops *ops);
/* pollux_file_put for who holds locks: leaves grace periods to others. Whether it was the last. */
bool plx_file_put_locked(struct pollux_file *f);
/* Adds w to f's list, at its place. Ends with a read-modify-write. */
void plx_watch_link(struct pollux_file *f, struct plx_watch *w);
/* The same for an item; decides which mark it has. */
void plx_item_link(struct pollux_file *f, struct plx_epitem *item);
/* Takes w off. After a grace period no waker can still be calling it. */
void plx_watch_unlink(struct pollux_file *f, struct plx_watch *w);
/* Takes an item off; producers have to be told by a change of EPOCH in its mark. */
void plx_item_unlink(struct plx_epitem *item);
/* Invalidates what producers may have concluded about f: EPOCH moves, QUIET goes. */
void plx_file_bump(struct pollux_file *f);
/* pollux_file_wake after a read-modify-write, which orders what follows on x86. */
void plx_file_wake_rmw(struct pollux_file *f, uint32_t key);
/* pollux_file_wake for a caller inside an RCU section whose last access was a full barrier. */
void plx_file_wake_rcu(struct pollux_file *f, uint32_t key, bool all);
/*
 * For who leaves something on the list of ep, after a full barrier: another sleeper is told, or an
 * exclusive wake that has ended at ep goes on. Neither ep.mtx nor an RCU section.
 */
void plx_ep_pass_on(struct pollux_ep *ep);
/*
 * Adds v to the payload of f's word and wakes with EPOLLIN. Returns the word as it
 * was before; if that had SLOW, nobody has been told.
 */
uint64_t plx_file_add(struct pollux_file *f, uint64_t v);
/* ep.mtx and file.lock held: a MOD to these events. The file is told if it asks for that. */
void plx_item_set_events(struct plx_epitem *item, uint32_t events);
/* ep.mtx held, its one-shot event has been delivered: it wants none, and the file is told. */
void plx_item_disarm(struct plx_epitem *item);
/*
 * RCU section open. Changes f's word from *w, as it has been loaded before (acquire), to `to`,
 * which differs in the payload alone, and wakes with EPOLLIN. False: it was another, which is in *w
 * now.
 */
bool plx_file_change(struct pollux_file *f, uint64_t *w, uint64_t to);
/* True if the last reference has gone. */
static inline bool plx_file_dying(struct pollux_file *f)
{
	return plx_load(&f->refs) == 0;
}

/* --- thread.c: events that threads are at, and watches ------------------------------------- */

struct plx_batch {
	struct pollux_ep *ep;
	uint64_t opened;
};

/* The calling thread's batch of ep, or one that is not open, for that; NULL if there is none. */
struct plx_batch *plx_batch_of(const struct pollux_ep *ep);
/* ep.mtx held, or the kernel is asked next: unless it is open. */
void plx_batch_open(struct plx_batch *b, struct pollux_ep *ep);
/* That of the calling thread, if it has one. */
void plx_batch_end(const struct pollux_ep *ep);
/* At the beginning of a wait. */
static inline void plx_batch_wait(struct pollux_ep *ep)
{
	if (plx_unlikely(ep->batches))
		pollux_ep_batch_end(ep);
}
/* Whether the calling thread has one, of whatever epoll. */
bool plx_batch_inside(void);
/* What is out of reach by now: a note, and whether the batches that may have it have ended. */
uint64_t plx_batch_note(void);
bool plx_batch_over(uint64_t note);
/* How many threads have one of ep; -1: somebody has the lock. Signal handlers, too. */
int plx_batches_open(const struct pollux_ep *ep);
/* The last reference of ep has gone. */
void plx_batches_forget(const struct pollux_ep *ep);
/* One watch more in ep: false if the limit is reached. */
bool plx_watches_charge(const struct pollux_ep *ep);
/* One less. */
void plx_watches_uncharge(const struct pollux_ep *ep);

/* --- reclaim.c: what programs have called when nobody looks ------------------------------- */

/* For ThreadSanitizer: what was done in read sections happens before what is freed after them. */
extern char plx_read_sections;
/* Calls end(f) when nobody looks at f; the memory of f is used until then. */
void plx_reclaim(struct pollux_file *f, void (*end)(struct pollux_file *f));
/* Where nothing is held: calls some that are due, and waits while too much waits. */
extern __thread bool plx_reclaim_due;
void plx_reclaim_turn(void);
static inline void plx_reclaim_turn_if_due(void)
{
	if (plx_unlikely(plx_reclaim_due))
		plx_reclaim_turn();
}
/* The latter alone. */
void plx_reclaim_room(void);
/* What waits. */
size_t plx_reclaim_bytes(void);

/* --- fork.c ------------------------------------------------------------------------------ */

/* What is in pollux_file.born of what this process makes. Something has begun then. */
uint8_t plx_born_slow(void);
static inline uint8_t plx_born(void)
{
	uint8_t born = plx_load(&plx_wiped.born);

	return plx_likely(born) ? born : plx_born_slow();
}
/* It is that of a process before this one. 0: the layer above has made it, and sees to forks. */
static inline bool plx_born_before(uint8_t born)
{
	return born && plx_unlikely(born != plx_load(&plx_wiped.born));
}
/* It was made before a fork that has made this process: whatever its locks protect may be half. */
static inline bool plx_file_stale(const struct pollux_file *f)
{
	return plx_born_before(plx_load(&f->born));
}
int plx_file_own_slow(struct pollux_file *f);
/* Before anything is done under a lock: 0 and its watchers of before are gone, or -EOWNERDEAD. */
static inline int plx_file_own(struct pollux_file *f)
{
	return plx_file_stale(f) ? plx_file_own_slow(f) : 0;
}

/* --- index.c: beside the list of a file with many watches ------------------------------- */

/* A lookup that walked past so many makes an index. */
#define PLX_INDEX_FROM 16

/* Makes it, if there is memory. */
void plx_index_make(struct pollux_file *f);
/* file.lock held, f has an index: an item comes, or goes. */
void plx_index_link(struct pollux_file *f, struct plx_epitem *item);
void plx_index_unlink(struct pollux_file *f, struct plx_epitem *item);
/* file.lock held, or the last reference has gone. */
void plx_index_drop(struct pollux_file *f);
/* ep.mtx held: false if there is no index; else *found is the item, or NULL. */
bool plx_index_find(struct pollux_file *f, struct pollux_ep *ep, int key,
		    struct plx_epitem **found);

/* --- ready.c: the ready list ------------------------------------------------------- */

/*
 * Queues item unless it is queued already; true if this call did it. Any thread,
 * any context, under RCU or with ep.mtx held.
 */
bool plx_item_queue(struct plx_epitem *item);
/* The same for the holder of ep.mtx, who needs no push. */
bool plx_item_queue_locked(struct plx_epitem *item);
/*
 * Where the thread has pushed last, with nobody in between, and so will again, as a rule; only ever
 * prefetched. NULL: it is not worth it.
 */
extern __thread const struct pollux_ep *plx_pushed_to;
/* Pushes an item whose QUEUED bit the caller has set; pops as read before that. */
void plx_item_push(struct plx_epitem *item, uint32_t pops);
/* ep.mtx held: what producers have pushed goes to the tail of the ordered list. */
void plx_ready_splice(struct pollux_ep *ep);
/* ep.mtx held: takes the item off the ordered list, if it is on it. */
void plx_ready_unlink(struct plx_epitem *item);
/* After a wake that found the item queued: the next ones need not look, if nobody else has to know.
 */
void plx_item_try_quiet(struct plx_epitem *item, uint64_t stay);
/* Names the item's present stay on the ready list, if it can be found there; else 0. */
uint64_t plx_item_stay(struct plx_epitem *item);
/* Makes the harvest look at an item whose producer is between its mark and its push. */
void plx_ep_help(struct plx_epitem *item);
/* The same for the holder of ep.mtx. */
void plx_ep_help_locked(struct plx_epitem *item);
/*
 * ep.mtx held. Takes what producers have asked for: PLX_HELP_NONE, or ep.kept is to be looked at;
 * before the splice, so that an item is among those that it links or its push has not come yet.
 */
uint32_t plx_help_take(struct pollux_ep *ep);
/* After PLX_HELP_ALL: finds what is not in ep.kept yet. */
void plx_help_walk(struct pollux_ep *ep);
/* ep.mtx held: the item, which *at in ep.kept names, leaves it if nothing is left to be done. */
struct plx_epitem **plx_help_next(struct plx_epitem **at);
/* An item that is kept is removed. */
void plx_help_forget(struct plx_epitem *item);
/* ep.mtx held, item off the list: QUEUED goes; the next wake queues it again. */
void plx_item_unmark(struct plx_epitem *item);
/* ep.mtx held: sets QUEUED again; false if a producer was faster. */
bool plx_item_remark(struct plx_epitem *item);
/*
 * Whether there is nothing on the list, of producers either. Any context. A harvest holds what it
 * has taken while has_ready is 1, and may ask for a look at an item that it keeps at its end. A
 * look that an end fell into proves nothing.
 */
static inline bool plx_ready_any(struct pollux_ep *ep)
{
	return plx_load_acq(&ep->incoming) || plx_load_acq(&ep->help) ||
	       plx_load_acq(&ep->has_ready);
}

static inline bool plx_ready_empty(struct pollux_ep *ep)
{
	uint32_t ends = plx_load_acq(&ep->ends);

	return !plx_ready_any(ep) && plx_load(&ep->ends) == ends;
}
/* The host's clock. */
int64_t plx_ep_now(struct pollux_ep *ep);
/*
 * Wakes one sleeper that no ring is on its way to; false if there is none. In a busy epoll
 * the one who is on the way already may have to do. A full barrier first is the caller's.
 */
bool plx_ep_wake_one(struct pollux_ep *ep);
/* A ring has arrived (taken: 1), or its sleeper is up anyway (0); a harvest must follow. */
void plx_bell_collect(struct pollux_ep *ep, uint32_t taken);
/* See ready.c, 8. Whether a ring may lie about that no sleeper will take. */
static inline bool plx_bell_stray(struct pollux_ep *ep)
{
	return ((plx_load(&ep->bell) & PLX_RINGS) ||
		plx_unlikely(plx_load(&ep->owed) > plx_load(&ep->heard))) &&
	       !plx_load(&ep->sleepers);
}
/* So many rings have come out of what the host rings with, or will never be made. */
void plx_bell_heard(struct pollux_ep *ep, uint64_t n);

/*
 * Around a spin of a waiter while others sleep: it counts as woken. came: it has found
 * something. A harvest or an announcement must follow.
 */
void plx_ep_stand_in(struct pollux_ep *ep);
void plx_ep_stand_down(struct pollux_ep *ep, bool came);

/* --- ctl.c ---------------------------------------------------------------------------- */

/* pollux_ep_new for a host of our own, which is not looked at; NULL without memory. born is 0. */
struct pollux_ep *plx_ep_new(const struct pollux_host *host);
/* A host of the program's: 0, or a negative errno. */
int plx_host_check(const struct pollux_host *host);

/* --- due.c: files that become ready by time ------------------------------------------- */

/* ep.mtx held: room for the times of one more item; false without memory. */
bool plx_due_reserve(struct pollux_ep *ep);
/* ep.mtx held: the item, for which there was room, is removed. */
void plx_due_forget(struct plx_epitem *item);
/* ep.mtx held: this is the time of the item; negative: none. */
void plx_due_note(struct plx_epitem *item, int64_t at);
/* ep.mtx held: it has none, as long as it is not polled. */
void plx_due_none(struct plx_epitem *item);
/* ep.mtx held: an item whose time has come, which has none any more, or NULL. */
struct plx_epitem *plx_due_take(struct pollux_ep *ep, int64_t now);
/*
 * ep.mtx held, at the end of what may change the times: true if the first is earlier now. Then
 * plx_due_tell has to follow without it.
 */
bool plx_due_publish(struct pollux_ep *ep);
/*
 * Announced: how long to sleep, if deadline is all else that ends it. *kept: for plx_due_let_go
 * after the sleep, if it is not PLX_NEVER.
 */
int64_t plx_due_keep_slow(struct pollux_ep *ep, int64_t deadline, int64_t *kept);
static inline int64_t plx_due_keep(struct pollux_ep *ep, int64_t deadline, int64_t *kept)
{
	*kept = PLX_NEVER;
	if (plx_likely(plx_load(&ep->due) == PLX_NEVER))
		return deadline;
	return plx_due_keep_slow(ep, deadline, kept);
}
void plx_due_let_go(struct pollux_ep *ep, int64_t kept);
/* After a full barrier: there is a time that nobody is known to keep. */
static inline bool plx_due_unkept(struct pollux_ep *ep)
{
	int64_t due = plx_load(&ep->due);

	return plx_unlikely(due != PLX_NEVER) && due < plx_load(&ep->keeper);
}
static inline bool plx_due_passed(struct pollux_ep *ep)
{
	int64_t due = plx_load(&ep->due);

	return plx_unlikely(due != PLX_NEVER) && plx_ep_now(ep) >= due;
}
int64_t plx_ep_due(struct pollux_file *f);

/* --- harvest.c ----------------------------------------------------------------------- */

/* ep.mtx held: polls the item's file, of which it wants these events, and asks for its time. */
uint32_t plx_due_poll(struct plx_epitem *item, uint32_t events);
/* ep.mtx not held: the first time of ep is earlier than it was. */
void plx_due_tell(struct pollux_ep *ep);
/* For who leaves a wait: another keeps the time. */
void plx_due_pass_on_slow(struct pollux_ep *ep);
static inline void plx_due_pass_on(struct pollux_ep *ep)
{
	if (plx_unlikely(plx_load(&ep->due) != PLX_NEVER))
		plx_due_pass_on_slow(ep);
}

/* Collects up to max events; the number that sink took, or what it said of the first. */
int plx_ep_harvest(struct pollux_ep *ep, pollux_event_fn sink, void *arg, int max);
/* What has been delivered, and is ready, comes again, edges too. */
void plx_ep_again(struct pollux_ep *ep);
/* IN|RDNORM if an item is ready now; consumes nothing (EP-POLL-01..03). */
uint32_t plx_ep_poll(struct pollux_file *f, uint32_t wanted);

/* --- wait.c -------------------------------------------------------------------------- */

/* Announces the caller as a sleeper: true if it may sleep, false if there is work. */
bool plx_ep_announce(struct pollux_ep *ep);
/* The sleep is over, for whatever reason; consumes a ring. */
void plx_ep_retract(struct pollux_ep *ep);
/* A look for something to harvest before a sleep, as long as the host wants it: true if there is.
 */
bool plx_ep_spin(struct pollux_ep *ep);
extern const struct pollux_host plx_futex_host;
/*
 * Sleeps while *word is seen, up to a time of CLOCK_MONOTONIC (negative: none): 0, as far as is
 * known, -ETIMEDOUT or -EINTR.
 */
int plx_futex_sleep(const uint32_t *word, uint32_t seen, int64_t deadline);
/* Its waiters sleep on a futex, as by default. */
static inline bool plx_ep_on_futex(const struct pollux_ep *ep)
{
	return ep->host.unpark_one == plx_futex_host.unpark_one;
}
/* The host's time at which a time-out that begins now is over; negative for none. */
int64_t plx_ep_deadline(struct pollux_ep *ep, int64_t timeout_ns);
/* Topology lock held: from now on waiters of ep, who sleep on a futex, sleep on this side. */
void plx_ep_side_begin(struct pollux_ep *ep, struct plx_side *side);
/*
 * For who leaves a wait and may have collected a ring: after a shutdown true, and the next of those
 * who sleep is woken (wait.c).
 */
bool plx_ep_shut_pass_on(struct pollux_ep *ep);
/* At the beginning of each wait: 0, or why there is none. */
static inline int plx_wait_begin(struct pollux_ep *ep, int max, bool sleeps)
{
	if (max <= 0)
		return -EINVAL;
	plx_batch_wait(ep);
	if (plx_file_stale(&ep->file))
		return -EOWNERDEAD;
	if (plx_unlikely(plx_load(&ep->shut))) {
		plx_ep_shut_pass_on(ep);
		return -ESHUTDOWN;
	}
	/* A host that wants no looks wants its thread to do nothing else either. */
	if (sleeps && ep->host.look_ns)
		plx_flood_wait();
	return 0;
}
/* pollux_ep_collect without a mask. */
int plx_ep_collect(struct pollux_ep *ep, pollux_event_fn fn, void *arg, int max, int64_t deadline);
/* The sink of a program's array; arg: where the next place is kept. */
int plx_sink_array(void *arg, uint32_t events, uint64_t data);

/* --- ctl.c --------------------------------------------------------------------------- */

/* pollux_ep_ctl, for who holds locks; plx_ep_ctl_done has to follow when none is held any more. */
int plx_ep_ctl(struct pollux_ep *ep, int op, struct pollux_file *f, int key,
	       const struct epoll_event *ev);
/* ep.mtx held: what it was added or modified with, without those events that were given out. */
struct epoll_event plx_item_registered(struct plx_epitem *item);

static inline void plx_ep_ctl_done(int op)
{
	plx_retire_flush_if_full();
	if (op == EPOLL_CTL_ADD)
		plx_retire_throttle();
}

/* --- remove.c ------------------------------------------------------------------------ */

/*
 * ep.mtx held, the caller owns the removal: the item is gone for everyone. Returns whether a wait
 * has reported an event of it since it was added or modified.
 */
bool plx_item_remove(struct plx_epitem *item);
/* The last reference of f has gone: removes it from all epolls. */
void plx_file_remove_watches(struct pollux_file *f);
/* release operation of an epoll's file. */
void plx_ep_release(struct pollux_file *f);
void plx_ep_put(struct pollux_ep *ep);

/* --- topology.c ---------------------------------------------------------------------- */

extern uint64_t plx_topology_gen;
/* Topology lock held: 0 or -ELOOP if ep -> target may not be added. */
int plx_topology_check(struct pollux_ep *ep, struct pollux_ep *target);
/* Topology lock held, the new item linked: 0 or -EINVAL (EP-PATH). */
int plx_topology_paths(struct pollux_file *f);

/* --- lists --------------------------------------------------------------------------- */

static inline void plx_list_init(struct plx_list *l)
{
	l->next = l->prev = l;
}

static inline bool plx_list_empty(const struct plx_list *l)
{
	return l->next == l;
}

static inline void plx_list_add_tail(struct plx_list *n, struct plx_list *head)
{
	n->prev = head->prev;
	n->next = head;
	head->prev->next = n;
	head->prev = n;
}

static inline void plx_list_add(struct plx_list *n, struct plx_list *head)
{
	plx_list_add_tail(n, head->next);
}

static inline void plx_list_del(struct plx_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
}

/* Moves all of from to the front of to; from becomes empty. */
static inline void plx_list_splice_front(struct plx_list *from, struct plx_list *to)
{
	if (plx_list_empty(from))
		return;
	from->prev->next = to->next;
	to->next->prev = from->prev;
	to->next = from->next;
	from->next->prev = to;
	plx_list_init(from);
}

static inline void plx_list_splice_tail(struct plx_list *from, struct plx_list *to)
{
	plx_list_splice_front(from, to->prev);
}

static inline struct plx_epitem *plx_rd_item(struct plx_list *l)
{
	return plx_container_of(l, struct plx_epitem, rd);
}

static inline struct plx_epitem *plx_all_item(struct plx_list *l)
{
	return plx_container_of(l, struct plx_epitem, all);
}

static inline bool plx_watch_is_item(const struct plx_watch *w)
{
	return w->place <= PLX_WATCH_EXCLUSIVE;
}

static inline struct plx_epitem *plx_watch_item(struct plx_watch *w)
{
	return plx_container_of(w, struct plx_epitem, w);
}

static inline struct pollux_ep *plx_file_ep(struct pollux_file *f)
{
	return plx_container_of(f, struct pollux_ep, file);
}
