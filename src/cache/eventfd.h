/* SPDX-License-Identifier: MIT */
/*
 * eventfd descriptors: a write-back cache in front of the kernel's objects.
 *
 * The number is that of a kernel eventfd, registered by the program's own epoll_ctl. The count is
 * U + K: U is here, K is the kernel's. Values move one way, from U to K, and who looks at both
 * looks so that he notices a move (wait.c).
 *
 * States:
 *
 *   COLD    U is 0: calls are the kernel's, and writes are counted
 *   CACHED  this protocol
 *   BUSY    one thread moves the count; then CACHED, COLD or KERNEL
 *   KERNEL  for good
 *
 * An object begins COLD, or with --adopt=always CACHED. The write that finds it hot adopts it
 * (plx_eventfd_adopt). Only an object with O_NONBLOCK and without EFD_SEMAPHORE, with one number
 * and at most one registration, is CACHED. One that is made to block is COLD, too, but the first
 * call that uses it makes it KERNEL; without such a call it may still be made not to block.
 *
 * One word, that of the file, is changed by compare-and-swap alone. Its upper half is the engine's.
 *
 *   SLOW    not CACHED
 *   BUSY    with SLOW
 *   MARK    CACHED: K may hold something; with SLOW alone: COLD
 *   WRITES  writes that go to the kernel while it is CACHED, and are not over
 *   POLLS   sleepers in poll, counted where U was 0, COLD or CACHED
 *   U       the count in user space
 *
 * Beside it, begun and over count the writes to a COLD object that have begun, and that are over.
 *
 * Invariants, of writes that come through us: (1) CACHED and K > 0: MARK is set. (2) CACHED and
 * MARK: U is 0. So while CACHED a count is on one side only, and a read of U alone misses nothing.
 *
 * BUSY. Everybody waits for the end, which is a system call or two away that do not block; but not
 * looks at U, which stands until K has it. Who adopts waits a while until nobody is counted in
 * WRITES, nor in begun and not in over. A writer to a COLD object counts himself in begun, a full
 * barrier, and looks at the word again before he writes to the kernel; so each that may still write
 * is counted. If the wait is in vain the object is COLD.
 *
 * Adoption. Nobody is counted in POLLS. BUSY; the value of the write becomes U, and the item is
 * queued; K is read, and added to U; CACHED. So the object is ready all the time, on one side or on
 * both, and the kernel's edges of before are dropped by the kernel itself.
 *
 * A read of a COLD object that has found nothing looks at the word again: if EPOCH has moved, all
 * may have been in U meanwhile, and it begins anew.
 *
 * A registration is known to the engine from the beginning, but waits look at it only when its
 * epoll is ready for items (epoll.c). Who adopts looks whether it is, before and after; who
 * registers a CACHED object does so after. If it is not, the object is flushed, and COLD again.
 *
 * Write. CACHED with neither POLLS nor MARK: U grows, and the item is queued. With one of them U is
 * 0: MARK is set and WRITES counts him, he writes to the kernel, and is uncounted. A sum that is
 * too large for U is flushed before, and one that is too large for an eventfd is refused.
 *
 * Read. U, if there is something. With MARK: BUSY, K is read, and MARK goes if WRITES was 0 before
 * that. Otherwise the kernel's read first, and U is added to it; if there is nothing and EPOCH has
 * moved, once more. The end of BUSY moves EPOCH.
 *
 * Edge-triggered, a writer past us may have had his edge, and nobody would tell of K again. But the
 * edge was an event of the kernel's that a wait has taken. Waits count these before they give them
 * to the program, and a read that asks K notes what the count was before. As long as it is the
 * same, U alone is read.
 *
 * Poll. Where U is 0 a sleeper is counted in the same step, and writers go to the kernel until he
 * is uncounted. Nothing has to be looked at after the kernel's poll.
 *
 * Flush. BUSY, and U is written to K. It needs neither memory nor a descriptor. A read that has
 * begun before may find the count in K while U stands: it returns when BUSY is over, so that no
 * wait after it finds U.
 *
 * A write past us is seen by reads, by polls, by waits that sleep, and where the kernel is asked in
 * any case. Of the waits that do not sleep, in an epoll with nothing but cached eventfds, one in 64
 * asks it.
 *
 * A count that the kernel has and that nobody of this process has written (MARK was clear) comes
 * from a writer past us. The object is the kernel's from then on.
 *
 * Nothing is held over a system call but the count in WRITES, and a reference. One who never comes
 * back, by a jump out of a handler, makes writes go to the kernel for good.
 *
 * The models are tests/model/cache_through.pml, cache_look.pml and asks.pml.
 */
#pragma once

#include "epoll/engine.h"
#include "cache/posix.h"

/* The largest count. */
#define PLX_EVENTFD_MAX (UINT64_MAX - 1)

#define PLX_EVENTFD_U 0x1fffffull
#define PLX_EVENTFD_POLL (1ull << 21)
#define PLX_EVENTFD_POLLS (7 * PLX_EVENTFD_POLL)
#define PLX_EVENTFD_WRITE (1ull << 24)
#define PLX_EVENTFD_WRITES (7 * PLX_EVENTFD_WRITE)
#define PLX_EVENTFD_MARK (1ull << 27)
#define PLX_EVENTFD_BUSY (1ull << 28)
_Static_assert((PLX_EVENTFD_U | PLX_EVENTFD_POLLS | PLX_EVENTFD_WRITES | PLX_EVENTFD_MARK |
		PLX_EVENTFD_BUSY) == PLX_PAYLOAD,
	       "they fill the payload");

/* So many writes since then, in units of 2^20 ns. */
struct plx_heat {
	uint32_t since, writes;
};
/*
 * One write more: whether there have been so many in so short a time. What is lost by races does
 * not matter.
 */
bool plx_heat_grows(struct plx_heat *h, uint32_t writes, int64_t ns);

struct plx_eventfd {
	struct pollux_file file;
	/* The only one, as long as it is CACHED. */
	int number;
	/* It is, or is about to be, registered edge-triggered; written by the only one of ctls. */
	uint32_t edge;
	/* epoll_ctl calls on it that are under way (epoll.c). */
	uint32_t ctls;
	/* Calls that use the number, and are no calls on it by the program; close waits for them.
	 */
	uint32_t pins;
	/* Requests of AIO that are going to tell it (plx_eventfd_get). */
	uint32_t told;
	/* What the count of its epoll's events (epoll.heard) was when K was asked last. */
	uint64_t asked;
	/* Writes to it while it is COLD. */
	uint32_t begun, over;
	/* Where the last write to the kernel was made while it is CACHED, plus one. */
	int writer_cpu;
	/* Made to block, and the kernel has not been told otherwise. */
	uint32_t blocks;
	/*
	 * Approximate. It is hot when the number is great soon enough, which it has to be twice as
	 * great for each time that it has become COLD again.
	 */
	struct plx_heat heat;
	uint32_t returns;
};

_Static_assert(sizeof(struct plx_eventfd) <= PLX_SLAB_OBJECT, "an eventfd has its own lines");

static inline struct plx_eventfd *plx_file_eventfd(struct pollux_file *f)
{
	return plx_container_of(f, struct plx_eventfd, file);
}

/* CACHED or BUSY: not the kernel's alone. */
static inline bool plx_eventfd_in(const struct pollux_file *f)
{
	return (plx_load_acq(&f->word) & (PLX_SLOW | PLX_EVENTFD_BUSY)) != PLX_SLOW;
}

/* COLD, or made to block and not touched: not the kernel's for good. */
static inline bool plx_eventfd_cold_word(uint64_t w)
{
	return (w & (PLX_SLOW | PLX_EVENTFD_BUSY | PLX_EVENTFD_MARK)) ==
	       (PLX_SLOW | PLX_EVENTFD_MARK);
}

static inline bool plx_eventfd_cold(const struct pollux_file *f)
{
	return plx_eventfd_cold_word(plx_load_acq(&f->word)) &&
	       !plx_load(&plx_container_of(f, struct plx_eventfd, file)->blocks);
}

/* COLD or CACHED: a call on it is not the program's own, uncounted one. */
static inline bool plx_eventfd_served(const struct pollux_file *f)
{
	uint64_t w = plx_load_acq(&f->word);

	/* By one look: it may become the one while it is looked for the other. */
	return (w & (PLX_SLOW | PLX_EVENTFD_BUSY)) != PLX_SLOW ||
	       (plx_eventfd_cold_word(w) &&
		!plx_load(&plx_container_of(f, struct plx_eventfd, file)->blocks));
}

/*
 * Before the program's own call, which is not counted, on one that blocks: it is the kernel's for
 * good then.
 */
void plx_eventfd_touch(struct pollux_file *f);
/*
 * Before a call on it: whether that is served. If not it is the program's own. Asked in this order,
 * since another thread may make it not to block, and cache it.
 */
static inline bool plx_eventfd_serves(struct pollux_file *f)
{
	plx_eventfd_touch(f);
	return plx_eventfd_served(f);
}

/* The time in which one becomes hot. For tests, a longer one on a busy machine. */
extern int64_t plx_hot_ns;
/* A write to it, COLD, is over: whether it is hot. What is lost by races does not matter. */
bool plx_eventfd_hot(struct plx_eventfd *e);
/* It is as if it had been written to just so often. */
void plx_eventfd_heat(struct plx_eventfd *e);
/*
 * A write of eight bytes to COLD, which becomes CACHED by it: the result, or PLX_SLEEP_ANEW,
 * undone, if it may not. With a reference, not within an RCU section.
 */
long plx_eventfd_adopt(struct plx_eventfd *e, int fd, const void *buf);

/* CACHED becomes COLD: for who finds that it may not be cached, or that it does not pay. */
void plx_eventfd_return(struct plx_eventfd *e);

/* --adopt=random: an eventfd at fd, which a call is about to use, may become COLD. */
void plx_eventfd_random_slow(int fd);
static inline void plx_eventfd_random(int fd)
{
	if (plx_unlikely(plx_adopts == PLX_ADOPTS_RANDOM))
		plx_eventfd_random_slow(fd);
}

/* The kernel has been told that it does not block. */
void plx_eventfd_unblocked(struct plx_eventfd *e);

/*
 * BUSY is the calling thread's, and of a move that begins. It has blocked the signals, or they
 * wait: no handler may close the number under its own thread, or wait for this. *w is the word,
 * which is not the kernel's for good. If that has changed, false, and it is in *w.
 */
bool plx_eventfd_busy_begin(struct plx_eventfd *e, uint64_t *w);
void plx_eventfd_busy_end(struct plx_eventfd *e, uint64_t clear, uint64_t add);
/* BUSY: U, which is 0, becomes count, and its item is queued. */
void plx_eventfd_show(struct plx_eventfd *e, uint64_t count);
/* RCU section open. epoll.heard of the epoll that watches e, or 0. */
uint64_t plx_eventfd_heard(struct plx_eventfd *e);
/* Reads K, so that *k is what was there: 0 or a negative errno. */
long plx_eventfd_empty(struct plx_eventfd *e, int fd, uint64_t *k);

/* What a flush leads to. */
enum plx_eventfd_end {
	/* CACHED with MARK. */
	PLX_EVENTFD_MARKED,
	PLX_EVENTFD_COLD,
	/* KERNEL. */
	PLX_EVENTFD_LEAVES,
};

/*
 * Writes U to the kernel's object. False if it was the kernel's already. The caller has a
 * reference, and is not within an RCU section.
 */
bool plx_eventfd_flush(struct plx_eventfd *e, enum plx_eventfd_end end);

/*
 * Moves of counts that have begun, and that are over, of all objects: flushes, writes that go to
 * the kernel, and marks that a read takes away. Who loads `over`, looks at both sides, and finds
 * `begun` equal to it afterwards has looked beside none.
 */
extern uint32_t plx_moves_begun, plx_moves_over;
/* The same of adoptions, which are moves, and the only ones from K to U. */
extern uint32_t plx_adoptions_begun, plx_adoptions_over;

/* Its word says KERNEL: the epolls that watch it ask the kernel for good. */
void plx_eventfd_for_good(struct plx_eventfd *e);

/* Before the kernel can have an event of e: the epolls that watch it ask the kernel. */
void plx_eventfd_ask(struct plx_eventfd *e);

/*
 * U is 0: the word becomes `to`, if it is *w, by which the next write may go to the kernel; else *w
 * is what it is now. That is a move, too: what a wait has seen here it may see there, though
 * another count.
 */
bool plx_eventfd_to_kernel(struct plx_eventfd *e, uint64_t *w, uint64_t to);

/* For a poll: true if U is 0, and then *counted says whether plx_eventfd_poll_end has to follow. */
bool plx_eventfd_poll_begin(struct plx_eventfd *e, bool *counted);
static inline void plx_eventfd_poll_end(struct plx_eventfd *e)
{
	plx_xadd(&e->file.word, -PLX_EVENTFD_POLL);
}

/* RCU section open: the number of f is about to be closed. False: plx_eventfd_flush has to be
 * called before. */
bool plx_eventfd_leave(struct pollux_file *f);

/* The kernel may have events of an object, which an epoll watches from now on. */
static inline bool plx_eventfd_may_be_kernels(const struct pollux_file *f)
{
	return plx_load_acq(&f->word) & (PLX_SLOW | PLX_EVENTFD_MARK | PLX_EVENTFD_WRITES);
}

/* Whether value goes to U. */
static inline bool plx_eventfd_fits(uint64_t w, uint64_t value)
{
	return !(w & (PLX_SLOW | PLX_EVENTFD_POLLS | PLX_EVENTFD_MARK)) && value <= PLX_EVENTFD_U &&
	       (w & PLX_EVENTFD_U) + value <= PLX_EVENTFD_U;
}

/* RCU section open: a write of which everybody has been told is done in one step; else false. */
static inline bool plx_eventfd_write_quiet(struct plx_eventfd *e, uint64_t value)
{
	uint64_t w = plx_load(&e->file.word);

	if (!(w & PLX_QUIET) || !plx_eventfd_fits(w, value))
		return false;
	PLX_DELAY(quiet_before_add);
	return plx_cas(&e->file.word, &w, w + value);
}

/*
 * A completion of AIO: one more, as the kernel does it (AIO-CQ-04). get: the object that fd means,
 * for plx_eventfd_put, if it is CACHED, or NULL. tell: fd is the number it was found by, which may
 * have been closed since.
 */
struct plx_eventfd *plx_eventfd_get(int fd);
void plx_eventfd_put(struct plx_eventfd *e);
void plx_eventfd_tell(struct plx_eventfd *e, int fd);

/*
 * The same for one that is the kernel's: hold gives a descriptor of our own, which is to be closed,
 * or -errno if fd is no eventfd.
 */
int plx_eventfd_hold(int fd);
void plx_eventfd_tell_kernel(int fd);
/* Whether the kernel has such a file at fd: "eventfd", "eventpoll", "timerfd". */
bool plx_fd_is(int fd, const char *kind);
static inline bool plx_fd_is_eventfd(int fd)
{
	return plx_fd_is(fd, "eventfd");
}

/* A COLD one for what the program has had at fd before, and which may be hot; NULL without memory.
 */
struct pollux_file *plx_eventfd_file(int fd, bool hot);
