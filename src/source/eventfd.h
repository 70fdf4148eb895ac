/* SPDX-License-Identifier: MIT */
/*
 * What the POSIX layer needs of an eventfd beyond its public face.
 */
#ifndef PLX_SOURCE_EVENTFD_H
#define PLX_SOURCE_EVENTFD_H

#include <pollux/eventfd.h>

#include "epoll/engine.h"

struct pollux_eventfd {
	struct pollux_file file;
	/* The whole count, once `word` has SLOW and big_ready is 1. */
	uint64_t big;
	uint32_t big_ready;
	uint32_t semaphore;
	/* 1 from the freeze on; the POSIX layer then makes it a kernel eventfd. */
	uint32_t gone;
	uint32_t spin_state;
	int32_t waker_cpu;
	/* POSIX layer: O_NONBLOCK; and 1 once the kernel eventfd stands in its place. */
	uint32_t status;
	uint32_t spilled;
	/* A spill's own mark, under its lock. */
	uint32_t picked;
	/* POSIX layer: who has to tell it later, and the kernel eventfd for them, or -1. */
	uint32_t pins;
	int kfd;
};

_Static_assert(sizeof(struct pollux_eventfd) <= PLX_SLAB_OBJECT, "an eventfd has its own lines");

static inline struct pollux_eventfd *plx_file_efd(struct pollux_file *f)
{
	return plx_container_of(f, struct pollux_eventfd, file);
}

/* pollux_efd_signal, or -ESTALE when the counter was frozen: then the kernel has it. */
int plx_efd_signal(struct pollux_eventfd *e);

/*
 * Freezes the counter: from the return on, reads and writes find it gone (-ESTALE).
 * Returns the final count. Threads that sleep in one are to be woken by the caller,
 * with pollux_file_wake_all, when there is something to go on with.
 */
uint64_t plx_efd_freeze(struct pollux_eventfd *e);

#endif
