/* SPDX-License-Identifier: MIT */
/*
 * What the POSIX layer needs of a pipe beyond its public face. How it works: pipe.c.
 */
#ifndef PLX_SOURCE_PIPE_H
#define PLX_SOURCE_PIPE_H

#include <sys/uio.h>

#include <pollux/pipe.h>

#include "epoll/engine.h"
#include "source/served.h"

#define PLX_PIPE_PAGE 4096
/* Records that may wait before they are put together; a power of two. */
#define PLX_PIPE_CELLS 128
/* The largest capacity; a power of two, and well below the number of cells. */
#define PLX_PIPE_SLOTS 64
#define PLX_PIPE_SLOTS_DEFAULT 16

/* Chunks of one page each, by index; regions of them are added when they run out. */
#define PLX_PIPE_REGION 32
#define PLX_PIPE_REGIONS 32

/*
 * One of the kernel's slots: len bytes, at start of a chunk (named by its index plus one);
 * end is where they end in the kernel's page.
 */
struct plx_pipe_slot {
	uint16_t chunk;
	uint16_t start;
	uint16_t len;
	uint16_t end;
	bool packet;
};

/* POSIX layer: calls that sleep on an end; its descriptor if the number has been closed, or -1. */
struct plx_pipe_pin {
	uint32_t pins;
	int kfd;
};

struct pollux_pipe {
	struct pollux_file rd __attribute__((aligned(64)));
	struct plx_served rd_served;
	struct plx_pipe_pin rd_pin;
	/* Who reads without taking turns, and does so just now; see pipe.c. */
	uintptr_t reader, reading;
	plx_lock_t read_lock;
	struct pollux_file wr __attribute__((aligned(64)));
	struct plx_served wr_served;
	struct plx_pipe_pin wr_pin;
	/* What a writer has come to, so where the next begins, as a rule; only ever prefetched. */
	uint32_t wr_turn;
	/* What is where, while calls go without the lock; layout in pipe.c. */
	struct plx_pair ctl __attribute__((aligned(64)));
	uint64_t free_chunks;
	uint32_t capacity;
	uint32_t packets;
	uint32_t readers, writers;
	uint32_t gone;
	/* While ctl says SLOW: what poll is to say. */
	uint32_t slow_mask;
	struct plx_spin_state spin;
	uint32_t ends;
	/* lock: all that follows but the cells. */
	plx_lock_t lock __attribute__((aligned(64)));
	uint32_t gathered;
	uint32_t first, used;
	uint32_t nregions;
	/* A spill's own; the last slot is not in the kernel's pipe yet. */
	uint32_t raised;
	bool last_out;
	char *regions[PLX_PIPE_REGIONS];
	struct plx_pipe_slot slots[PLX_PIPE_SLOTS];
	struct plx_pair cells[PLX_PIPE_CELLS] __attribute__((aligned(64)));
};

static inline struct pollux_pipe *plx_file_pipe(struct pollux_file *f)
{
	return f->kind == PLX_KIND_PIPE_READ ? plx_container_of(f, struct pollux_pipe, rd)
					     : plx_container_of(f, struct pollux_pipe, wr);
}

static inline struct plx_pair *plx_pipe_cell(struct pollux_pipe *p, uint32_t turn)
{
	return &p->cells[turn % PLX_PIPE_CELLS];
}

/*
 * By a writer. The reader has had all of these lines since the last write. One after the other each
 * would be waited for, as ctl says which cell it is; a writer's own line says so already.
 */
static inline void plx_pipe_ask_for_lines(struct pollux_pipe *p)
{
	plx_prefetch_write(plx_pipe_cell(p, plx_load(&p->wr_turn)));
	plx_prefetch_write(&p->ctl);
	plx_prefetch_write(&p->rd.word);
}

/*
 * One call: its memory, and how far it has come. copy returns 0, or a negative errno for
 * memory that cannot be touched.
 */
struct plx_pipe_io {
	const struct iovec *iov;
	int cnt;
	int (*copy)(void *dst, const void *src, size_t n);
	size_t total;
	size_t done;
	/* Of a write: it has slept already; the pipe was empty when it began. */
	bool again;
	bool was_empty;
};

/*
 * Reads what there is. Bytes, 0 at the end of the stream, -EAGAIN, -EFAULT, -ENOMEM;
 * -EBADF if the end was closed by another thread meanwhile, -ESTALE once frozen. Does
 * not sleep; RCU section open, or a reference held.
 */
long plx_pipe_try_read(struct pollux_pipe *p, struct plx_pipe_io *io);
/* The same after -EAGAIN, with a reference held: sleeps. -EINTR too. */
long plx_pipe_sleep_read(struct pollux_pipe *p, struct plx_pipe_io *io);

/*
 * Writes as much as has room, from io->done on. 0 when all is written, else why not:
 * -EAGAIN, -EPIPE, -EFAULT, -ENOMEM, -EBADF, -ESTALE. Does not sleep, and tells the
 * readers unless `more` says that the caller goes on with plx_pipe_sleep_write when it
 * gets -EAGAIN.
 */
long plx_pipe_try_write(struct pollux_pipe *p, struct plx_pipe_io *io, bool more);
/*
 * One to eight bytes, the first in the lowest bits of the word, where nothing stands in the way:
 * false if it does; then nothing has been done. RCU section open.
 */
bool plx_pipe_put_few(struct pollux_pipe *p, uint64_t bytes, uint32_t n);
/*
 * After -EAGAIN, with a reference held: sleeps until all is written. -EINTR too; -EAGAIN if the end
 * does not block any more when it has slept.
 */
long plx_pipe_sleep_write(struct pollux_pipe *p, struct plx_pipe_io *io);

/* 0, -EBUSY, -ESTALE or -ENOMEM. Tells the watchers of the write end (PIPE-22). */
int plx_pipe_resize(struct pollux_pipe *p, uint32_t slots);

/*
 * Freezes the pipe: from the return on, calls find it gone (-ESTALE), and its slots stay
 * as they are, for the caller to look at. 0 or -ENOMEM.
 */
int plx_pipe_freeze(struct pollux_pipe *p);

/* Of a frozen pipe: the i-th slot in use, and its first byte. */
static inline const struct plx_pipe_slot *plx_pipe_slot(const struct pollux_pipe *p, uint32_t i)
{
	return &p->slots[(p->first + i) % PLX_PIPE_SLOTS];
}

/* Where a chunk is; they are known by their index plus one. */
static inline char *plx_pipe_chunk(const struct pollux_pipe *p, uint32_t chunk)
{
	return plx_load_acq(&p->regions[(chunk - 1) / PLX_PIPE_REGION]) +
	       (size_t)((chunk - 1) % PLX_PIPE_REGION) * PLX_PIPE_PAGE;
}

#endif
