/* SPDX-License-Identifier: MIT */
/*
 * The write that tells nobody, in line. Most of what it costs beyond its one addition would be
 * the frames of the functions on the way, so all that is rare here is the last call of a path.
 */
#pragma once

#include "base/inside.h"
#include "cache/eventfd.h"
#include "cache/table.h"
#include "cache/uaccess.h"

typedef ssize_t (*plx_write_t)(int fd, const void *buf, size_t n);

/* Somebody wants to hear of each write: statistics, or the run-time of a sanitizer. */
extern uint32_t plx_write_watched;

/*
 * The ends of a write of eight bytes. Within the RCU section, which ends there: it is not done yet.
 * After it: it is done, and a signal waits.
 */
ssize_t plx_px_write_loud(struct pollux_file *f, uint64_t value, uint32_t depth, int fd,
			  const void *buf, plx_write_t other);
ssize_t plx_px_write_left(void);

/* The end of plx_inside_begin, but for the look at signals that wait. */
static inline void quick_outside(uint32_t depth)
{
	plx_compiler_barrier();
	plx_inside.depth = depth;
	plx_compiler_barrier();
}

/* What is not done here is left to other, undone, and so are signals that wait then. */
static inline __attribute__((always_inline)) ssize_t plx_px_write_quick(int fd, const void *buf,
									size_t n, plx_write_t other)
{
	struct pollux_file *f;
	uint32_t depth;
	uint64_t value = 0;

	if (plx_unlikely(plx_load(&plx_write_watched)))
		return other(fd, buf, n);
	depth = plx_inside_begin();
	/* Who provides the memory may wait for the section (userfaultfd): it begins after that. */
	if (plx_unlikely(!plx_rcu_known()) ||
	    (plx_likely(n == sizeof(value)) && plx_unlikely(plx_load_user64(&value, buf)))) {
		quick_outside(depth);
		return other(fd, buf, n);
	}
	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	/* It will be written: to read it first would fetch the line twice. */
	plx_prefetch_write(f);
	if (plx_unlikely(!f || f->kind != PLX_KIND_EVENTFD || n != sizeof(value))) {
		plx_rcu_read_unlock();
		quick_outside(depth);
		return other(fd, buf, n);
	}
	if (!plx_eventfd_write_quiet(plx_file_eventfd(f), value))
		return plx_px_write_loud(f, value, depth, fd, buf, other);
	plx_rcu_read_unlock();
	quick_outside(depth);
	return plx_unlikely(plx_inside.waits) ? plx_px_write_left() : (ssize_t)sizeof(value);
}
