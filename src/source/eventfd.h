/* SPDX-License-Identifier: MIT */
/*
 * What the POSIX layer needs of an eventfd beyond its public face.
 */
#ifndef PLX_SOURCE_EVENTFD_H
#define PLX_SOURCE_EVENTFD_H

#include "epoll/engine.h"

#include <pollux/eventfd.h>

struct pollux_efd {
	/*
	 * mode: 1, a semaphore. gone: 1 from the freeze on; the POSIX layer then gives the count to
	 * the kernel's eventfd. So ADD and DEL look at nothing else.
	 */
	struct pollux_file file;
	/* 1: the whole count is in `big`; `word` has SLOW. */
	uint32_t big_ready;
	uint64_t big;
	struct plx_spin_state spin;
	/* POSIX layer: O_NONBLOCK or 0. */
	uint32_t status;
	/* 1 once the kernel's object has the count. */
	uint32_t spilled;
	/* Who has to tell it later, and the kernel eventfd for them, or -1. */
	uint32_t pins;
	int kfd;
	/* A spill's own, under its lock: it leaves, by this number (-1: none is known). */
	uint32_t leaves;
	int number;
	struct pollux_efd *next_out;
};

_Static_assert(sizeof(struct pollux_efd) <= PLX_SLAB_OBJECT, "an eventfd has its own lines");

static inline struct pollux_efd *plx_file_efd(struct pollux_file *f)
{
	return plx_container_of(f, struct pollux_efd, file);
}

/*
 * Below SAFE a payload has room for a small addition by every thread there can be, of which the
 * kernel allows 2^22.
 */
#define PLX_EFD_SAFE (1ull << 28)
#define PLX_EFD_SMALL (1ull << 6)
_Static_assert(PLX_EFD_SAFE + PLX_EFD_SMALL * (1ull << 22) <= PLX_SLOW, "they do not meet SLOW");

enum plx_efd_quiet {
	/* Written, and nobody has to be told. */
	PLX_EFD_DONE,
	/* Written, and somebody has: pollux_file_wake. */
	PLX_EFD_TELL,
	/* Not written: any other way. */
	PLX_EFD_NOT,
};

/* RCU section open: the write that finds everybody told is one addition. */
static inline enum plx_efd_quiet plx_efd_write_quiet(struct pollux_efd *e, uint64_t value)
{
	uint64_t w = plx_load(&e->file.word);

	if ((w & (PLX_QUIET | PLX_SLOW | (PLX_PAYLOAD & ~(PLX_EFD_SAFE - 1)))) != PLX_QUIET ||
	    value >= PLX_EFD_SMALL)
		return PLX_EFD_NOT;
	PLX_DELAY(quiet_before_add);
	w = plx_xadd(&e->file.word, value);
	if (plx_likely((w & (PLX_QUIET | PLX_SLOW)) == PLX_QUIET))
		return PLX_EFD_DONE;
	return w & PLX_SLOW ? PLX_EFD_NOT : PLX_EFD_TELL;
}

/* pollux_efd_signal, or -ESTALE when the counter was frozen: then the kernel has it. */
int plx_efd_signal(struct pollux_efd *e);

/*
 * Freezes the counter: from the return on, reads and writes find it gone (-ESTALE).
 * Returns the final count. Threads that sleep in one are to be woken by the caller,
 * with pollux_file_wake_all, when there is something to go on with.
 */
uint64_t plx_efd_freeze(struct pollux_efd *e);

#endif
