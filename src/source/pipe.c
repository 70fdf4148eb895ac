/* SPDX-License-Identifier: MIT */
/*
 * pipe: a byte stream with two ends.
 *
 * Small reads and writes take no lock, so that a signal handler may make them whatever
 * its thread was doing, the same call on the same pipe included. All others block signals
 * and take the pipe's lock: nobody who holds it can be met by his own handler.
 *
 * Without the lock. A write is one record: up to 8 bytes in a cell, up to a page in a
 * chunk that the cell names. The record is complete before anybody can see it. Cells are
 * used in turns, turn t in cell t modulo their number; `ctl` says which turns hold records:
 *
 *   ctl.lo   h, the oldest turn that is unread (low half); t, the next to be written
 *   ctl.hi   end    offset in the kernel's last page behind the last byte
 *            pos    offset in the kernel's first page of the first unread byte
 *            off    bytes of record h that have been read
 *            used   slots in use
 *            SLOW   everything is under the lock
 *
 * A write swaps its record into cell t, if that still shows an earlier turn, and then moves
 * ctl on to t + 1. A writer that finds cell t taken for turn t makes this second step for
 * the other, who may be stopped, or lie below it on the same stack. A record in a cell is
 * never withdrawn: at turn t only reads can happen meanwhile, and they only make room. A
 * read copies, and then moves ctl on to where it came; if another read was quicker, it
 * copies again. Chunks are never unmapped as long as the pipe lives, so a copy from one
 * that has been given out again is merely thrown away.
 *
 * Slots are counted as the kernel does (PIPE-03, PIPE-06, PIPE-11). A record lies in one
 * slot, since larger writes are made of several: it continues the last slot if it fits into
 * the rest of that page, else it opens one. So the lengths alone tell the reader where a
 * slot ends and is free again. When all is read the last slot goes, too.
 *
 * One reader at a time. A read stores the bytes before it takes them. Where another took them
 * meanwhile it would find less, or nothing, and have written to its caller's memory beyond its
 * result, which the kernel never does. So readers take turns, by a lock of their own. But the first
 * thread that reads at all is the reader, and needs no lock, until a second one comes.
 *
 *   reader    0; the thread; SHARING; SHARED
 *   reading   the thread, while it is in a read
 *
 * The thread says that it is reading, and then looks whether it is still the reader. Another one
 * says SHARING, and then waits for the end of what the thread is in; SHARED says that this is over.
 * Whoever comes in between waits, too. Of the barriers between the two steps only the other's costs
 * anything (plx_mb_light). The reader may be in a read when its thread comes again, by a handler
 * that nothing keeps back: that one cannot wait for the end, and leaves SHARING to others. Who
 * freezes the pipe comes as another reader, since the bytes are anybody's afterwards. The model is
 * tests/model/alone.pml.
 *
 * Under the lock. To get there a thread takes cell t itself, for a mark (POISON) that
 * sends writers to the lock, and then sets SLOW. The records are gathered into `slots`,
 * one chunk each. When that is over each slot becomes one record again, in turns beyond
 * the poisoned one, and SLOW goes. So many small records cost one gathering now and then.
 *
 *   ctl, cells      atomic; written under the lock while SLOW
 *   free_chunks     atomic: number of changes, and the first of the free chunks plus one
 *   capacity        in slots; changed under the lock while SLOW, read without
 *   readers, writers, gone, slow_mask   the same
 *   reader, reading   atomic
 *   read_lock         of readers that take turns; before the other
 *   packets         atomic
 */
#include "source/pipe.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#include "base/flood.h"
#include "base/inject.h"
#include "base/inside.h"
#include "base/sanitizer.h"
#include "base/sleep.h"
#include "base/spin.h"
#include "base/sys.h"

/* ThreadSanitizer runs handlers where it likes. (A build for it.) */
#if PLX_TSAN
#define PLX_SIGNALS_RUN_ANYWHERE 1
#else
#define PLX_SIGNALS_RUN_ANYWHERE 0
#endif

#define IN_KEY (EPOLLIN | EPOLLRDNORM)
#define OUT_KEY (EPOLLOUT | EPOLLWRNORM)

/* --- words --------------------------------------------------------------------------- */

struct pos {
	uint32_t h, t;
	uint32_t end, pos, off, used;
	bool slow;
};

#define FIELD_BITS 13
#define FIELD ((1u << FIELD_BITS) - 1)

static struct plx_pair pos_pack(const struct pos *c)
{
	return (struct plx_pair){
		.lo = c->h | (uint64_t)c->t << 32,
		.hi = c->end | (uint64_t)c->pos << FIELD_BITS | (uint64_t)c->off << 2 * FIELD_BITS |
		      (uint64_t)c->used << 3 * FIELD_BITS | (uint64_t)c->slow << 4 * FIELD_BITS,
	};
}

static struct pos pos_unpack(struct plx_pair w)
{
	return (struct pos){
		.h = (uint32_t)w.lo,
		.t = (uint32_t)(w.lo >> 32),
		.end = w.hi & FIELD,
		.pos = w.hi >> FIELD_BITS & FIELD,
		.off = w.hi >> 2 * FIELD_BITS & FIELD,
		.used = w.hi >> 3 * FIELD_BITS & FIELD,
		.slow = w.hi >> 4 * FIELD_BITS & 1,
	};
}

/* hi was loaded while lo did not change: both are of one moment. */
static struct plx_pair pair_load(const struct plx_pair *p)
{
	struct plx_pair w;

	do {
		w.lo = plx_load_acq(&p->lo);
		w.hi = plx_load_acq(&p->hi);
	} while (plx_unlikely(w.lo != plx_load(&p->lo)));
	return w;
}

/* Of a cell: turn, chunk plus one, marks, length. */
#define CELL_TURN(w) ((uint32_t)((w) >> 32))
#define CELL_CHUNK(w) ((uint32_t)(w) >> 16)
#define CELL_LEN(w) ((uint32_t)(w)&FIELD)
#define CELL_OPENS (1u << 13)
#define CELL_POISON (1u << 14)

/*
 * Whether a cell can be taken for a turn. If it shows that turn, the record waits for ctl;
 * if it shows a later one, ctl has moved on since it was looked at.
 */
static bool cell_is_free(uint64_t w, uint32_t turn)
{
	return (int32_t)(CELL_TURN(w) - turn) < 0;
}

/* Whether a record continues the slot that ends at `end`. */
static bool cell_continues(uint64_t w, uint32_t end)
{
	return !(w & CELL_OPENS) && end + CELL_LEN(w) <= PLX_PIPE_PAGE;
}

/* --- chunks -------------------------------------------------------------------------- */

#define NO_CHUNK 0

static void chunk_put(struct pollux_pipe *p, uint32_t chunk)
{
	uint64_t w = plx_load(&p->free_chunks);
	uint32_t *next = (uint32_t *)plx_pipe_chunk(p, chunk);

	do
		plx_store(next, (uint32_t)w & 0xffff);
	while (!plx_cas(&p->free_chunks, &w, ((w >> 16) + 1) << 16 | chunk));
}

/* A chunk plus one, or NO_CHUNK. */
static uint32_t chunk_take(struct pollux_pipe *p)
{
	uint64_t w = plx_load_acq(&p->free_chunks);
	uint32_t chunk, next;

	do {
		chunk = w & 0xffff;
		if (!chunk)
			return NO_CHUNK;
		/* If another took it, this reads its data, and the swap fails. */
		next = plx_load((uint32_t *)plx_pipe_chunk(p, chunk)) & 0xffff;
	} while (!plx_cas(&p->free_chunks, &w, ((w >> 16) + 1) << 16 | next));
	return chunk;
}

/* lock held: makes more of them if there are none. */
static uint32_t chunk_make(struct pollux_pipe *p)
{
	uint32_t chunk = chunk_take(p);
	long at;

	if (chunk || p->nregions == PLX_PIPE_REGIONS)
		return chunk;
	at = plx_sys6(SYS_mmap, 0, PLX_PIPE_REGION * PLX_PIPE_PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at < 0 && at > -4096)
		return NO_CHUNK;
	chunk = p->nregions * PLX_PIPE_REGION + 1;
	plx_store_rel(&p->regions[p->nregions], (char *)at);
	p->nregions++;
	for (uint32_t i = PLX_PIPE_REGION - 1; i > 0; i--)
		chunk_put(p, chunk + i);
	return chunk;
}

/* --- copies -------------------------------------------------------------------------- */

/* A copy of a chunk that has been given out again is no mistake; see the top. */
static int copy_plain(void *dst, const void *src, size_t n)
{
	if (PLX_SIGNALS_RUN_ANYWHERE)
		plx_copy_unseen(dst, src, n);
	else
		plx_copy(dst, src, n);
	return 0;
}

/* Moves n bytes between mem and the caller's memory, from byte `at` of it on. */
static int io_copy(const struct plx_pipe_io *io, size_t at, char *mem, size_t n, bool in)
{
	const struct iovec *v = io->iov;

	while (at >= v->iov_len) {
		at -= v->iov_len;
		v++;
	}
	while (n) {
		size_t m = v->iov_len - at < n ? v->iov_len - at : n;
		char *user = (char *)v->iov_base + at;
		int r = !m ? 0 : in ? io->copy(mem, user, m) : io->copy(user, mem, m);

		if (plx_unlikely(r)) {
			/* Of many at a time none has been stored: those that fit are. */
			for (size_t i = 0; !in && i < m && !io->copy(user + i, mem + i, 1); i++)
				;
			return r;
		}
		mem += m;
		n -= m;
		at = 0;
		v++;
	}
	return 0;
}

/* --- telling ------------------------------------------------------------------------- */

/*
 * After a read-modify-write, usually of ctl. Threads that sleep in a call stand on the
 * file's list like its pollers.
 */
static void pipe_tell(struct pollux_file *f, uint32_t key)
{
	plx_mb_after_rmw();
	if (plx_load(&f->word) & PLX_QUIET)
		return;
	plx_rcu_read_lock();
	plx_file_wake_rcu(f, key, false);
	plx_rcu_read_unlock();
}

static void pipe_tell_readers(struct pollux_pipe *p)
{
	pipe_tell(&p->rd, IN_KEY);
}

static void pipe_tell_writers(struct pollux_pipe *p)
{
	pipe_tell(&p->wr, OUT_KEY);
}

#define MASK_IN 1u
#define MASK_FULL 2u

static uint32_t pipe_mask(struct pollux_pipe *p)
{
	struct plx_pair w, again = pair_load(&p->ctl);
	uint32_t mask;

	do {
		struct pos c = pos_unpack(w = again);

		mask = (c.h != c.t ? MASK_IN : 0) |
		       (c.used >= plx_load(&p->capacity) ? MASK_FULL : 0);
		if (plx_likely(!c.slow))
			break;
		mask = plx_load_acq(&p->slow_mask);
		again = pair_load(&p->ctl);
	} while (w.lo != again.lo || w.hi != again.hi);
	return mask;
}

static uint32_t pipe_poll_read(struct pollux_file *f)
{
	struct pollux_pipe *p = plx_file_pipe(f);
	uint32_t mask = plx_load_acq(&p->writers) ? 0 : EPOLLHUP;

	if (plx_load_acq(&p->gone))
		return 0;
	/* Who looks is about to read, mostly. */
	__builtin_prefetch(plx_pipe_cell(p, (uint32_t)plx_load(&p->ctl.lo)));
	return mask | (pipe_mask(p) & MASK_IN ? IN_KEY : 0);
}

static uint32_t pipe_poll_write(struct pollux_file *f)
{
	struct pollux_pipe *p = plx_file_pipe(f);
	uint32_t mask = plx_load_acq(&p->readers) ? 0 : EPOLLERR;

	if (plx_load_acq(&p->gone))
		return 0;
	return mask | (pipe_mask(p) & MASK_FULL ? 0 : OUT_KEY);
}

/* --- without the lock ---------------------------------------------------------------- */

/* Internal result: the lock is needed. */
#define GO_SLOW (-4096L)

/* A fast read gives back no more chunks than this at a time. */
#define READ_CHUNKS 32
/* So many records that a read finds are many. */
#define FLOOD_RECORDS 8

/* c after one more record. */
static struct pos pos_append(struct pos c, uint64_t cell)
{
	uint32_t len = CELL_LEN(cell);

	if (c.h == c.t)
		c = (struct pos){.h = c.h, .t = c.t, .end = len, .used = 1};
	else if (cell_continues(cell, c.end))
		c.end += len;
	else {
		c.end = len;
		c.used++;
	}
	c.t++;
	return c;
}

/* Moves ctl on over the record in cell t: this thread's own, or that of another. */
static inline bool ctl_append(struct pollux_pipe *p, struct plx_pair *w, uint64_t cell)
{
	struct plx_pair next = *w;
	struct pos c;

	/* Mostly there is another one in the slot, and it is two additions. */
	if ((uint32_t)w->lo != w->lo >> 32 && cell_continues(cell, w->hi & FIELD)) {
		next.lo += 1ull << 32;
		next.hi += CELL_LEN(cell);
	} else {
		c = pos_append(pos_unpack(*w), cell);
		next = pos_pack(&c);
	}
	return plx_cas_pair(&p->ctl, w, next);
}

static bool pos_has_room(const struct pos *c, size_t n, uint32_t capacity)
{
	return c->h == c->t || c->end + n <= PLX_PIPE_PAGE || c->used < capacity;
}

/* The caller's bytes in a record: 0, GO_SLOW, or -EAGAIN if they need not be looked at. */
static long record_make(struct pollux_pipe *p, const struct plx_pipe_io *io, struct plx_pair *cell)
{
	struct pos c = pos_unpack(pair_load(&p->ctl));
	size_t n = io->total;
	uint32_t chunk;

	if (c.slow)
		return GO_SLOW;
	if (!pos_has_room(&c, n, plx_load(&p->capacity)))
		return -EAGAIN;
	*cell = (struct plx_pair){.lo = n - (n > 1 && PLX_INJECTED(torn_write))};
	if (n <= sizeof(cell->hi))
		return io_copy(io, 0, (char *)&cell->hi, n, true) ? GO_SLOW : 0;
	chunk = chunk_take(p);
	if (!chunk)
		return GO_SLOW;
	cell->lo |= chunk << 16;
	if (!io_copy(io, 0, plx_pipe_chunk(p, chunk), n, true))
		return 0;
	chunk_put(p, chunk);
	return GO_SLOW;
}

/* Puts the record into the pipe: 0, -EAGAIN or GO_SLOW. */
static long record_append(struct pollux_pipe *p, struct plx_pair cell)
{
	struct plx_pair w, old, *at;
	struct pos c;

	for (;;) {
		w = pair_load(&p->ctl);
		c = pos_unpack(w);
		if (c.slow)
			return GO_SLOW;
		PLX_DELAY(pipe_before_look);
		at = plx_pipe_cell(p, c.t);
		old.lo = plx_load_acq(&at->lo);
		old.hi = plx_load_acq(&at->hi);
		if (plx_unlikely(!cell_is_free(old.lo, c.t))) {
			if (CELL_TURN(old.lo) != c.t)
				continue;
			if (old.lo & CELL_POISON)
				return GO_SLOW;
			PLX_DELAY(pipe_before_help);
			ctl_append(p, &w, old.lo);
			continue;
		}
		/* One cell stays free for the poison. */
		if (c.t - c.h >= PLX_PIPE_CELLS - 1)
			return GO_SLOW;
		if (!pos_has_room(&c, CELL_LEN(cell.lo), plx_load(&p->capacity)))
			return -EAGAIN;
		cell.lo = (uint32_t)cell.lo | (uint64_t)c.t << 32;
		PLX_DELAY(pipe_before_cell);
		if (plx_cas_pair(at, &old, cell))
			break;
	}
	plx_store(&p->wr_turn, c.t + 1);
	PLX_DELAY(pipe_before_ctl);
	while (!ctl_append(p, &w, cell.lo)) {
		/* Has another moved it on? */
		if ((uint32_t)(w.lo >> 32) != c.t)
			break;
	}
	return 0;
}

static long write_fast(struct pollux_pipe *p, struct plx_pipe_io *io)
{
	struct plx_pair cell;
	long r;

	plx_pipe_ask_for_lines(p);
	r = record_make(p, io, &cell);
	if (r)
		return r;
	r = record_append(p, cell);
	if (plx_unlikely(r) && CELL_CHUNK(cell.lo))
		chunk_put(p, CELL_CHUNK(cell.lo));
	if (!r)
		io->done = io->total;
	return r;
}

/* False: nothing has been done. */
bool plx_pipe_put_few(struct pollux_pipe *p, uint64_t bytes, uint32_t n)
{
	struct plx_pair cell = {.lo = n - (n > 1 && PLX_INJECTED(torn_write)), .hi = bytes};

	if (plx_unlikely(plx_load(&p->packets)) || plx_unlikely(record_append(p, cell)))
		return false;
	pipe_tell_readers(p);
	return true;
}

/*
 * What a fast read has gathered: up to record h (off bytes of it), behind which the
 * kernel's page is at pos; `freed` slots have been passed.
 */
struct gather {
	uint32_t h, off, pos, freed;
	size_t done;
	uint32_t nchunks;
	uint16_t chunks[READ_CHUNKS];
};

/* Goes on to the end of what w has or of the caller's memory: 0, -EAGAIN (w is old) or GO_SLOW. */
static long read_gather(struct pollux_pipe *p, struct plx_pipe_io *io, struct plx_pair w,
			struct gather *g)
{
	struct pos c = pos_unpack(w);

	while (g->done < io->total && g->h != c.t) {
		struct plx_pair *at = plx_pipe_cell(p, g->h);
		uint64_t cell = plx_load_acq(&at->lo);
		uint64_t value = plx_load_acq(&at->hi);
		uint32_t len = CELL_LEN(cell), n = len - g->off;
		char *from = (char *)&value;

		if (CELL_TURN(cell) != g->h)
			return -EAGAIN;
		/* A record that opens a slot: the one before is free. */
		if (g->done && !g->off && !cell_continues(cell, g->pos)) {
			g->freed++;
			g->pos = 0;
		}
		if (n > io->total - g->done)
			n = io->total - g->done;
		if (CELL_CHUNK(cell)) {
			if (g->nchunks == READ_CHUNKS)
				return GO_SLOW;
			from = plx_pipe_chunk(p, CELL_CHUNK(cell));
		}
		if (io_copy(io, g->done, from + g->off, n, false))
			return GO_SLOW;
		g->done += n;
		g->pos += n;
		g->off += n;
		if (g->off < len)
			break;
		if (CELL_CHUNK(cell))
			g->chunks[g->nchunks++] = CELL_CHUNK(cell);
		g->off = 0;
		g->h++;
	}
	return 0;
}

/* c after what has been gathered; false if c is old. */
static bool pos_advance(struct pollux_pipe *p, struct pos *c, const struct gather *g)
{
	uint32_t freed = g->freed, pos = g->pos;

	if (g->h == c->t) {
		*c = (struct pos){.h = c->t, .t = c->t};
		return true;
	}
	if (!g->off) {
		uint64_t next = plx_load_acq(&plx_pipe_cell(p, g->h)->lo);

		if (CELL_TURN(next) != g->h)
			return false;
		if (!cell_continues(next, pos)) {
			freed++;
			pos = 0;
		}
	}
	c->h = g->h;
	c->off = g->off;
	c->pos = pos;
	c->used -= freed;
	return true;
}

/* What is left to do when a read is over: writers to tell; the records that it has found. */
struct after {
	bool tell;
	uint32_t records;
};

/* Bytes, -EAGAIN or GO_SLOW. */
static long read_fast(struct pollux_pipe *p, struct plx_pipe_io *io, struct after *after)
{
	struct plx_pair w = pair_load(&p->ctl);
	struct gather g = {0};
	struct pos c, start = {0};
	bool fresh = true, full;

	for (;;) {
		long r;

		c = pos_unpack(w);
		if (c.slow)
			return GO_SLOW;
		/* Somebody else has read: from the beginning. */
		if (fresh || c.h != start.h || c.off != start.off) {
			g.h = c.h;
			g.off = c.off;
			g.pos = c.pos;
			g.freed = g.done = g.nchunks = 0;
			start = c;
			fresh = false;
		}
		if (c.h == c.t)
			return -EAGAIN;
		r = read_gather(p, io, w, &g);
		if (r == GO_SLOW)
			return r;
		full = c.used >= plx_load(&p->capacity);
		PLX_DELAY(pipe_before_take);
		if (r || !pos_advance(p, &c, &g)) {
			w = pair_load(&p->ctl);
			fresh = true;
		} else if (plx_cas_pair(&p->ctl, &w, pos_pack(&c))) {
			break;
		}
	}
	for (uint32_t i = 0; i < g.nchunks; i++)
		chunk_put(p, g.chunks[i]);
	after->tell = full && c.used < plx_load(&p->capacity);
	after->records = g.h - start.h;
	return (long)g.done;
}

/* --- under the lock ------------------------------------------------------------------ */

struct blocked {
	uint64_t mask;
	bool on;
};

/*
 * Everything is blocked but the signals of faults, which a copy of the caller's memory may
 * raise and which have to be handled then and there. Where handlers are kept away from a
 * thread that is inside, nothing needs to be.
 */
static void pipe_lock(plx_lock_t *l, struct blocked *b)
{
	uint64_t most = ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1));

	b->on = PLX_SIGNALS_RUN_ANYWHERE || !plx_signal_deliver || !plx_inside.depth;
	if (b->on)
		plx_sys4(SYS_rt_sigprocmask, SIG_BLOCK, &most, &b->mask, sizeof(most));
	plx_lock_leaf(l);
}

static void pipe_unlock(plx_lock_t *l, const struct blocked *b)
{
	plx_unlock_leaf(l);
	if (b->on)
		plx_sys4(SYS_rt_sigprocmask, SIG_SETMASK, &b->mask, NULL, sizeof(b->mask));
}

static struct plx_pipe_slot *slot_at(struct pollux_pipe *p, uint32_t i)
{
	return &p->slots[(p->first + i) % PLX_PIPE_SLOTS];
}

static char *slot_bytes(struct pollux_pipe *p, const struct plx_pipe_slot *s)
{
	return plx_pipe_chunk(p, s->chunk) + s->start;
}

static void slow_mask_update(struct pollux_pipe *p)
{
	plx_store_rel(&p->slow_mask,
		      (p->used ? MASK_IN : 0) | (p->used >= p->capacity ? MASK_FULL : 0));
}

/* Records into slots. Chunks that are not needed any more are given back at the end. */
static int pipe_gather(struct pollux_pipe *p)
{
	struct pos c = pos_unpack(pair_load(&p->ctl));
	uint32_t spare[PLX_PIPE_CELLS], nspare = 0, made[PLX_PIPE_SLOTS], nmade = 0;
	struct plx_pipe_slot *s = NULL;

	p->first = p->used = 0;
	for (uint32_t h = c.h; h != c.t; h++) {
		struct plx_pair *at = plx_pipe_cell(p, h);
		uint64_t cell = plx_load(&at->lo), value = plx_load(&at->hi);
		uint32_t chunk = CELL_CHUNK(cell), off = h == c.h ? c.off : 0;
		uint32_t n = CELL_LEN(cell) - off;
		const char *from = (char *)&value;

		PLX_INVARIANT(CELL_TURN(cell) == h, "a record stands in the cell of its turn");
		if (chunk)
			from = plx_pipe_chunk(p, chunk);
		if (!s || !cell_continues(cell, s->end)) {
			s = slot_at(p, p->used++);
			*s = (struct plx_pipe_slot){.chunk = chunk, .start = off, .len = n};
			s->end = (h == c.h ? c.pos : 0) + n;
			if (chunk)
				continue;
			s->chunk = chunk_make(p);
			s->start = 0;
			if (!s->chunk)
				goto no_memory;
			made[nmade++] = s->chunk;
			copy_plain(slot_bytes(p, s), from + off, n);
			continue;
		}
		/* start is no more than what the kernel's page has before it: there is room. */
		if (!chunk && s->start + s->len + sizeof(value) <= PLX_PIPE_PAGE)
			copy_plain(slot_bytes(p, s) + s->len, &value, sizeof(value));
		else
			copy_plain(slot_bytes(p, s) + s->len, from, n);
		s->len += n;
		s->end += n;
		if (chunk)
			spare[nspare++] = chunk;
	}
	PLX_INVARIANT(p->used == c.used, "the slots of the records are as many as were counted");
	while (nspare)
		chunk_put(p, spare[--nspare]);
	p->gathered = 1;
	return 0;
no_memory:
	while (nmade)
		chunk_put(p, made[--nmade]);
	return -ENOMEM;
}

/* Everything under the lock from here on: 0, or -ENOMEM (to be tried again). */
static int pipe_slow(struct pollux_pipe *p)
{
	struct plx_pair w, old, poison, *at;
	struct pos c;

	w = pair_load(&p->ctl);
	c = pos_unpack(w);
	if (c.slow)
		return p->gathered ? 0 : pipe_gather(p);
	for (;;) {
		w = pair_load(&p->ctl);
		c = pos_unpack(w);
		at = plx_pipe_cell(p, c.t);
		old.lo = plx_load_acq(&at->lo);
		old.hi = plx_load_acq(&at->hi);
		if (!cell_is_free(old.lo, c.t)) {
			if (CELL_TURN(old.lo) == c.t)
				ctl_append(p, &w, old.lo);
			continue;
		}
		poison = (struct plx_pair){.lo = CELL_POISON | (uint64_t)c.t << 32};
		if (plx_cas_pair(at, &old, poison))
			break;
	}
	PLX_DELAY(pipe_before_slow);
	w = pair_load(&p->ctl);
	do {
		c = pos_unpack(w);
		plx_store_rel(&p->slow_mask,
			      (c.h != c.t ? MASK_IN : 0) | (c.used >= p->capacity ? MASK_FULL : 0));
		c.slow = true;
	} while (!plx_cas_pair(&p->ctl, &w, pos_pack(&c)));
	p->gathered = 0;
	return pipe_gather(p);
}

/* Slots into records, unless something asks for the lock on every call. */
static void pipe_fast(struct pollux_pipe *p)
{
	struct plx_pair w = pair_load(&p->ctl);
	uint32_t turn = pos_unpack(w).t + 1;
	struct pos c = {.h = turn, .t = turn + p->used, .used = p->used};

	if (!p->readers || !p->writers || p->gone)
		return;
	for (uint32_t i = 0; i < p->used; i++)
		if (slot_at(p, i)->packet)
			return;
	for (uint32_t i = 0; i < p->used; i++) {
		struct plx_pipe_slot *s = slot_at(p, i);
		struct plx_pair *at = plx_pipe_cell(p, turn + i);

		/* Only the first has bytes missing at its front. */
		PLX_INVARIANT(!i || !s->start, "a slot behind the first is whole");
		plx_store(&at->hi, 0);
		plx_store_rel(&at->lo, (s->len + s->start) | CELL_OPENS | (uint64_t)s->chunk << 16 |
					       (uint64_t)(turn + i) << 32);
	}
	if (p->used) {
		c.off = slot_at(p, 0)->start;
		c.pos = slot_at(p, 0)->end - slot_at(p, 0)->len;
		c.end = slot_at(p, p->used - 1)->end;
	}
	p->gathered = 0;
	while (!plx_cas_pair(&p->ctl, &w, pos_pack(&c)))
		;
}

static void slot_free_first(struct pollux_pipe *p)
{
	chunk_put(p, slot_at(p, 0)->chunk);
	p->first = (p->first + 1) % PLX_PIPE_SLOTS;
	p->used--;
}

/* What the kernel does under its mutex. */
static long slots_read(struct pollux_pipe *p, struct plx_pipe_io *io, bool *tell)
{
	bool packet = false;

	while (p->used && io->done < io->total && !packet) {
		struct plx_pipe_slot *s = slot_at(p, 0);
		uint32_t n = s->len < io->total - io->done ? s->len : io->total - io->done;
		int r = io_copy(io, io->done, slot_bytes(p, s), n, false);

		if (r)
			return io->done ? (long)io->done : r;
		io->done += n;
		s->start += n;
		s->len -= n;
		packet = s->packet;
		/* What a packet has left is thrown away. */
		if (!s->len || packet) {
			*tell |= p->used >= p->capacity;
			slot_free_first(p);
		}
	}
	if (io->done)
		return (long)io->done;
	return p->writers ? -EAGAIN : 0;
}

/* Continues the last slot with what goes beyond whole pages; only when a write begins. */
static int slots_merge(struct pollux_pipe *p, struct plx_pipe_io *io)
{
	uint32_t n = io->total % PLX_PIPE_PAGE;
	struct plx_pipe_slot *s;
	int r;

	if (!n || !p->used || io->again)
		return 0;
	s = slot_at(p, p->used - 1);
	if (s->packet || s->end + n > PLX_PIPE_PAGE)
		return 0;
	r = io_copy(io, io->done, slot_bytes(p, s) + s->len, n, true);
	if (r)
		return r;
	s->len += n;
	s->end += n;
	io->done += n;
	return 0;
}

static long slots_write(struct pollux_pipe *p, struct plx_pipe_io *io)
{
	int r;

	io->was_empty = !p->used;
	r = slots_merge(p, io);
	while (!r && io->done < io->total) {
		size_t left = io->total - io->done;
		uint32_t n = left < PLX_PIPE_PAGE ? left : PLX_PIPE_PAGE, chunk;

		if (p->used >= p->capacity)
			return -EAGAIN;
		chunk = chunk_make(p);
		if (!chunk)
			return -ENOMEM;
		r = io_copy(io, io->done, plx_pipe_chunk(p, chunk), n, true);
		if (r) {
			chunk_put(p, chunk);
			break;
		}
		*slot_at(p, p->used++) = (struct plx_pipe_slot){
			.chunk = chunk, .len = n, .end = n, .packet = plx_load(&p->packets)};
		io->done += n;
	}
	return r;
}

/* After a change under the lock. Large calls are likely to be followed by others. */
static void slots_done(struct pollux_pipe *p, const struct plx_pipe_io *io)
{
	slow_mask_update(p);
	if (!p->used || io->total <= PLX_PIPE_PAGE)
		pipe_fast(p);
}

static long read_slow(struct pollux_pipe *p, struct plx_pipe_io *io, struct after *after)
{
	struct blocked mask;
	long r;

	pipe_lock(&p->lock, &mask);
	if (p->gone) {
		r = -ESTALE;
	} else if (!p->readers) {
		r = -EBADF;
	} else {
		r = pipe_slow(p);
		if (!r) {
			r = slots_read(p, io, &after->tell);
			slots_done(p, io);
		}
	}
	pipe_unlock(&p->lock, &mask);
	return r;
}

static long write_slow(struct pollux_pipe *p, struct plx_pipe_io *io)
{
	struct blocked mask;
	long r;

	pipe_lock(&p->lock, &mask);
	if (p->gone) {
		r = -ESTALE;
	} else if (!p->writers) {
		r = -EBADF;
	} else if (!p->readers) {
		r = -EPIPE;
	} else {
		r = pipe_slow(p);
		if (!r) {
			r = slots_write(p, io);
			slots_done(p, io);
		}
	}
	pipe_unlock(&p->lock, &mask);
	return r;
}

/* --- one reader at a time ------------------------------------------------------------ */

#define SHARING 1ul
#define SHARED 2ul

/* Whose address is that of the thread, and no other's as long as it lives. */
static __thread char this_thread;

/* From here on nobody reads out of turn, unless it is this thread that is in a read. */
static void reader_end(struct pollux_pipe *p, uintptr_t me)
{
	uintptr_t who = plx_load(&p->reader), reading;

	while (who != SHARING && who != SHARED) {
		uintptr_t next = who ? SHARING : SHARED;

		if (plx_cas(&p->reader, &who, next))
			who = next;
	}
	if (who == SHARED)
		return;
	/* Partner: reader_begin. */
	plx_mb_heavy();
	PLX_DELAY(pipe_sharing);
	for (int tries = 0; (reading = plx_load_acq(&p->reading)); tries++) {
		if (reading == me)
			return;
		plx_await_step(tries);
	}
	plx_store_rel(&p->reader, SHARED);
}

static __attribute__((noinline)) bool reader_becomes(struct pollux_pipe *p, uintptr_t me)
{
	uintptr_t nobody = 0;

	if (!plx_load(&p->reader) && plx_cas(&p->reader, &nobody, me))
		return true;
	reader_end(p, me);
	return false;
}

/* Whether the read needs no turn; *outer: what this thread was in, below a handler. */
static bool reader_begin(struct pollux_pipe *p, uintptr_t me, uintptr_t *outer)
{
	if (plx_unlikely(plx_load(&p->reader) != me) && !reader_becomes(p, me))
		return false;
	*outer = plx_load(&p->reading);
	plx_store(&p->reading, me);
	PLX_DELAY(pipe_reading);
	plx_mb_light();
	if (plx_likely(plx_load(&p->reader) == me))
		return true;
	plx_store(&p->reading, *outer);
	reader_end(p, me);
	return false;
}

static bool pipe_is_empty(struct pollux_pipe *p)
{
	struct pos c = pos_unpack(pair_load(&p->ctl));

	return !c.slow && c.h == c.t;
}

/* --- calls --------------------------------------------------------------------------- */

static long read_pass(struct pollux_pipe *p, struct plx_pipe_io *io, struct after *after)
{
	long r = read_fast(p, io, after);

	return r == GO_SLOW ? read_slow(p, io, after) : r;
}

/* One of several readers. */
static long read_in_turn(struct pollux_pipe *p, struct plx_pipe_io *io, struct after *after)
{
	struct blocked mask;
	long r;

	if (pipe_is_empty(p))
		return -EAGAIN;
	pipe_lock(&p->read_lock, &mask);
	r = read_pass(p, io, after);
	pipe_unlock(&p->read_lock, &mask);
	return r;
}

long plx_pipe_try_read(struct pollux_pipe *p, struct plx_pipe_io *io)
{
	uintptr_t me = (uintptr_t)&this_thread, outer;
	struct after after = {0};
	long r;

	if (plx_likely(reader_begin(p, me, &outer))) {
		r = read_pass(p, io, &after);
		plx_store_rel(&p->reading, outer);
	} else {
		r = read_in_turn(p, io, &after);
	}
	if (after.tell)
		pipe_tell_writers(p);
	/* Never less than so many writes. */
	if (after.records >= FLOOD_RECORDS)
		plx_flood_look(&p->ctl.lo);
	if (r >= 0)
		plx_tsan_after(p);
	return r;
}

static long write_pass(struct pollux_pipe *p, struct plx_pipe_io *io)
{
	long r = GO_SLOW;

	if (!io->again && io->total <= PLX_PIPE_PAGE && !plx_load(&p->packets))
		r = write_fast(p, io);
	return r == GO_SLOW ? write_slow(p, io) : r;
}

long plx_pipe_try_write(struct pollux_pipe *p, struct plx_pipe_io *io, bool more)
{
	long r;

	plx_tsan_before(p);
	r = write_pass(p, io);
	/* Also after a failure (PIPE-17), and before a sleep what was empty. */
	if (r != -EAGAIN || !more || io->was_empty)
		pipe_tell_readers(p);
	return r;
}

static bool pipe_readable(void *arg)
{
	struct pollux_pipe *p = arg;

	return (pipe_mask(p) & MASK_IN) || !plx_load_acq(&p->writers) || plx_load_acq(&p->gone);
}

static bool pipe_writable(struct pollux_pipe *p)
{
	return !(pipe_mask(p) & MASK_FULL) || !plx_load_acq(&p->readers) || plx_load_acq(&p->gone);
}

/* --- sleeping ------------------------------------------------------------------------ */

/*
 * A thread blocked in a call stands at the end of its file's list, in line with the
 * exclusive items, and one wake wakes one of them (PIPE-24, EP-EXC-09). Once woken it is
 * passed over. It looks again before it sleeps on, at the end of the line, as a new
 * sleeper. A handler that runs meanwhile finds its place left, and what it was woken for passed on
 * (base/sleep.h). The sleeper is retired, not freed: a waker may still stand on it when the thread
 * is up already.
 */
struct sleeper {
	struct plx_watch w;
	struct pollux_pipe *p;
	struct pollux_file *f;
	uint32_t woken;
	struct plx_parker parker;
};

_Static_assert(sizeof(struct sleeper) <= PLX_SLAB_OBJECT, "a sleeper fits");

static bool sleeper_wake(struct plx_watch *w, uint32_t key)
{
	struct sleeper *s = plx_container_of(w, struct sleeper, w);

	if ((key && !(key & w->events)) || plx_xchg(&s->woken, 1))
		return false;
	plx_spin_note_waker(&s->p->spin);
	plx_parker_ring(&s->parker);
	return true;
}

static void sleeper_free(void *arg)
{
	struct sleeper *s = arg;

	plx_parker_destroy(&s->parker);
	plx_slab_free(s);
}

static struct sleeper *sleeper_new(struct pollux_pipe *p, struct pollux_file *f, uint32_t events)
{
	struct sleeper *s = plx_slab_alloc();

	if (!s)
		return NULL;
	s->p = p;
	s->f = f;
	s->w.call = sleeper_wake;
	s->w.events = events;
	s->w.place = PLX_WATCH_TAIL;
	plx_parker_init(&s->parker);
	plx_watch_link(f, &s->w);
	plx_mb();
	return s;
}

/* Whether it has been woken; a waker that comes later passes it over. */
static bool sleeper_done(struct sleeper *s)
{
	bool woken;

	plx_watch_unlink(s->f, &s->w);
	PLX_DELAY(pipe_before_passed_over);
	woken = plx_xchg(&s->woken, 1);
	plx_retire(s, sleeper_free);
	plx_retire_flush_if_full();
	return woken;
}

/*
 * A spill takes items for told of all that is in the pipe once it has waited for readers of RCU: so
 * a change and what tells of it are in one section.
 */
static long read_told(struct pollux_pipe *p, struct plx_pipe_io *io)
{
	long r;

	plx_rcu_read_lock();
	r = plx_pipe_try_read(p, io);
	plx_rcu_read_unlock();
	return r;
}

/* Cancelled, or in a handler: perhaps woken for something that it will not take. */
static void reader_left(void *arg)
{
	struct sleeper *s = arg;
	struct pollux_pipe *p = s->p;

	if (sleeper_done(s) && pipe_readable(p))
		pipe_tell_readers(p);
}

/* The same, as a write ends. */
static void writer_left(void *arg)
{
	struct sleeper *s = arg;
	struct pollux_pipe *p = s->p;

	sleeper_done(s);
	if (!(pipe_mask(p) & MASK_FULL))
		pipe_tell_writers(p);
	pipe_tell_readers(p);
}

/*
 * Sleeps until woken. interrupts: any handler ends it, SA_RESTART or not. 0 or -EINTR; or the sleep
 * is over (plx_sleep_is_over), and the sleeper is gone.
 */
static int sleeper_sleep(struct sleeper *s, bool interrupts)
{
	int r;

	PLX_HOLD_PUSH(s->f == &s->p->rd ? reader_left : writer_left, s);
	r = plx_parker_wait(&s->parker, interrupts ? PLX_SLEEP_ENDS : PLX_SLEEP_RESTARTS);
	PLX_HOLD_POP(0);
	return r;
}

long plx_pipe_sleep_read(struct pollux_pipe *p, struct plx_pipe_io *io)
{
	bool told = false, interrupted = false;
	long r = -EAGAIN;
	uint32_t since;

	if (plx_spin(&plx_read_yields, &p->spin, pipe_readable, p)) {
		r = read_told(p, io);
		plx_spin_brought(&plx_read_yields, r > 0);
	}
	while (r == -EAGAIN) {
		struct sleeper *s = sleeper_new(p, &p->rd, EPOLLIN | EPOLLHUP | EPOLLERR);

		if (!s)
			return -ENOMEM;
		/* Looked at with the sleeper in place, and before a signal is obeyed. */
		r = read_told(p, io);
		if (r == -EAGAIN) {
			since = plx_spin_sleeps(&p->spin);
			r = sleeper_sleep(s, false);
			if (plx_sleep_is_over(r))
				return r;
			plx_spin_slept(&p->spin, since);
			interrupted = r != 0;
			told = true;
			r = read_told(p, io);
			plx_spin_brought(&plx_read_yields, r > 0);
		}
		told |= sleeper_done(s);
		if (interrupted && r == -EAGAIN)
			r = -EINTR;
	}
	/*
	 * What a reader leaves behind that has slept is told once more; and one that has
	 * been woken for bytes that it does not take lets the next know.
	 */
	if (told && (pipe_mask(p) & MASK_IN))
		pipe_tell_readers(p);
	return r;
}

long plx_pipe_sleep_write(struct pollux_pipe *p, struct plx_pipe_io *io)
{
	bool interrupted = false, nonblock, again;
	long r;
	int slept;

	do {
		struct sleeper *s;

		while (!interrupted && !pipe_writable(p)) {
			s = sleeper_new(p, &p->wr, EPOLLOUT | EPOLLHUP | EPOLLERR);
			if (!s)
				return -ENOMEM;
			slept = pipe_writable(p) ? 0 : sleeper_sleep(s, io->done > 0);
			if (plx_sleep_is_over(slept))
				return slept;
			interrupted = slept != 0;
			sleeper_done(s);
		}
		io->again = true;
		/* As in read_told. */
		plx_rcu_read_lock();
		r = write_pass(p, io);
		/* It may have been set meanwhile: the kernel looks again after each sleep. */
		nonblock = plx_load(&p->wr_served.status) & O_NONBLOCK;
		again = r == -EAGAIN && !interrupted && !nonblock;
		if (!again && !(pipe_mask(p) & MASK_FULL))
			pipe_tell_writers(p);
		if (!again || io->was_empty)
			pipe_tell_readers(p);
		plx_rcu_read_unlock();
	} while (again);
	return r == -EAGAIN && !nonblock ? -EINTR : r;
}

/* --- size, and the end --------------------------------------------------------------- */

int plx_pipe_resize(struct pollux_pipe *p, uint32_t slots)
{
	struct blocked mask;
	int r;

	pipe_lock(&p->lock, &mask);
	r = p->gone ? -ESTALE : pipe_slow(p);
	if (!r && p->used > slots)
		r = -EBUSY;
	if (!r)
		plx_store(&p->capacity, slots);
	if (p->gathered && !p->gone) {
		slow_mask_update(p);
		pipe_fast(p);
	}
	pipe_unlock(&p->lock, &mask);
	if (!r) {
		plx_mb();
		pipe_tell(&p->wr, 0);
	}
	return r;
}

int plx_pipe_freeze(struct pollux_pipe *p)
{
	uintptr_t me = (uintptr_t)&this_thread;
	struct blocked turn, mask;
	int r;

	/* Which is in no read. */
	if (plx_load(&p->reader) != me)
		reader_end(p, me);
	pipe_lock(&p->read_lock, &turn);
	pipe_lock(&p->lock, &mask);
	r = pipe_slow(p);
	if (!r)
		plx_store_rel(&p->gone, 1);
	pipe_unlock(&p->lock, &mask);
	pipe_unlock(&p->read_lock, &turn);
	return r;
}

/* --- the object ---------------------------------------------------------------------- */

/* An end has been closed: everybody on both ends hears of it (PIPE-21). */
static void pipe_release(struct pollux_file *f)
{
	struct pollux_pipe *p = plx_file_pipe(f);
	bool reads = f == &p->rd;
	bool other;
	struct blocked mask;

	/* As in read_told. */
	plx_rcu_read_lock();
	pipe_lock(&p->lock, &mask);
	/* Without memory the records stay where they are, under the lock all the same. */
	(void)pipe_slow(p);
	plx_store_rel(reads ? &p->readers : &p->writers, 0);
	other = reads ? p->writers : p->readers;
	pipe_unlock(&p->lock, &mask);
	if (other)
		pollux_file_wake_all(reads ? &p->wr : &p->rd, 0);
	plx_rcu_read_unlock();
}

static void pipe_free(struct pollux_file *f)
{
	struct pollux_pipe *p = plx_file_pipe(f);

	if (plx_xadd(&p->ends, (uint32_t)-1) != 1)
		return;
	for (uint32_t i = 0; i < p->nregions; i++)
		plx_sys2(SYS_munmap, p->regions[i], PLX_PIPE_REGION * PLX_PIPE_PAGE);
	plx_free(p);
}

static const struct pollux_file_ops read_ops = {
	.poll = pipe_poll_read,
	.release = pipe_release,
	.free = pipe_free,
};

static const struct pollux_file_ops write_ops = {
	.poll = pipe_poll_write,
	.release = pipe_release,
	.free = pipe_free,
};

int pollux_pipe_new(struct pollux_pipe **out, int flags)
{
	struct pos c = {.h = 1, .t = 1};
	struct pollux_pipe *p;

	if (flags & ~POLLUX_PIPE_PACKETS)
		return -EINVAL;
	p = plx_zalloc(sizeof(*p));
	if (!p)
		return -ENOMEM;
	pollux_file_init(&p->rd, &read_ops);
	pollux_file_init(&p->wr, &write_ops);
	p->rd.kind = PLX_KIND_PIPE_READ;
	p->wr.kind = PLX_KIND_PIPE_WRITE;
	p->ctl = pos_pack(&c);
	p->capacity = PLX_PIPE_SLOTS_DEFAULT;
	p->packets = flags & POLLUX_PIPE_PACKETS;
	p->readers = p->writers = 1;
	p->rd_pin.kfd = p->wr_pin.kfd = -1;
	p->ends = 2;
	*out = p;
	return 0;
}

struct pollux_file *pollux_pipe_read_end(struct pollux_pipe *p)
{
	return &p->rd;
}

struct pollux_file *pollux_pipe_write_end(struct pollux_pipe *p)
{
	return &p->wr;
}

static struct plx_pipe_io plain_io(struct iovec *iov)
{
	return (struct plx_pipe_io){
		.iov = iov,
		.cnt = 1,
		.copy = copy_plain,
		.total = iov->iov_len,
	};
}

ssize_t pollux_pipe_read(struct pollux_pipe *p, void *buf, size_t n, int block)
{
	struct iovec iov = {.iov_base = buf, .iov_len = n};
	struct plx_pipe_io io = plain_io(&iov);
	long r;

	if (!n)
		return 0;
	r = plx_pipe_try_read(p, &io);
	return r == -EAGAIN && block ? plx_pipe_sleep_read(p, &io) : r;
}

ssize_t pollux_pipe_write(struct pollux_pipe *p, const void *buf, size_t n, int block)
{
	struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = n};
	struct plx_pipe_io io = plain_io(&iov);
	long r;

	if (!n)
		return 0;
	r = plx_pipe_try_write(p, &io, block);
	if (r == -EAGAIN && block)
		r = plx_pipe_sleep_write(p, &io);
	return io.done ? (ssize_t)io.done : r;
}

size_t pollux_pipe_bytes(struct pollux_pipe *p)
{
	struct plx_pair w = pair_load(&p->ctl), again;
	struct blocked mask;
	size_t bytes;

	for (;; w = again) {
		struct pos c = pos_unpack(w);

		if (c.slow)
			break;
		bytes = 0;
		for (uint32_t h = c.h; h != c.t; h++)
			bytes += CELL_LEN(plx_load_acq(&plx_pipe_cell(p, h)->lo));
		again = pair_load(&p->ctl);
		if (w.lo == again.lo && w.hi == again.hi)
			return bytes - c.off;
	}
	bytes = 0;
	pipe_lock(&p->lock, &mask);
	if (pipe_slow(p) == 0) {
		for (uint32_t i = 0; i < p->used; i++)
			bytes += slot_at(p, i)->len;
		pipe_fast(p);
	}
	pipe_unlock(&p->lock, &mask);
	return bytes;
}

long pollux_pipe_capacity(struct pollux_pipe *p)
{
	return (long)plx_load(&p->capacity) * PLX_PIPE_PAGE;
}

long pollux_pipe_set_capacity(struct pollux_pipe *p, size_t bytes)
{
	uint32_t slots = 1;
	int r;

	if (bytes > (size_t)PLX_PIPE_SLOTS * PLX_PIPE_PAGE)
		return -EINVAL;
	while ((size_t)slots * PLX_PIPE_PAGE < bytes)
		slots *= 2;
	r = plx_pipe_resize(p, slots);
	return r ? r : (long)slots * PLX_PIPE_PAGE;
}

void pollux_pipe_set_packets(struct pollux_pipe *p, int on)
{
	plx_store(&p->packets, on ? 1 : 0);
}
