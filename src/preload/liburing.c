/* SPDX-License-Identifier: MIT */
/*
 * Rings of io_uring. A ring takes requests that name descriptors, and nobody but the kernel sees
 * them; one for a descriptor of ours would wait for the kernel's count for ever. So all descriptors
 * become the kernel's, and adoption of them ends, when a ring is made, while nobody has it yet. (No
 * request names a context of AIO.) A ring that is made or used by syscall() is in uring.c.
 *
 * liburing makes its system calls by itself. Its functions that make a ring are ours first:
 * io_uring_queue_init, io_uring_queue_init_params, io_uring_queue_init_mem, io_uring_setup;
 * io_uring_queue_mmap takes one that was made elsewhere. In a program that contains liburing
 * a ring is found when the process is prepared (inline.c).
 *
 * Ours have the versions alone, not the plain names: a program that looks for the name finds what
 * it would find without us.
 */
#include "preload/preload.h"

void plx_uring(void)
{
	if (!plx_vfork_child() && !plx_load_acq(&plx_descriptors_out))
		plx_stop_adopting_descriptors(PLX_OUT_IO_URING);
}

#define VERSIONED(function, name) __asm__(".symver " #function ", " name)

/* The types are liburing's: one pointer is as good as another. */
#define RING(name, version, params, args)                                                          \
	PLX_EXPORT int plx_lib_##name params;                                                      \
	PLX_EXPORT int plx_lib_##name params                                                       \
	{                                                                                          \
		int saved = errno, r;                                                              \
		int(*real) params = plx_real_anywhere(#name);                                      \
                                                                                                   \
		errno = saved;                                                                     \
		if (!real)                                                                         \
			return -ENOSYS;                                                            \
		r = real args;                                                                     \
		saved = errno;                                                                     \
		if (r >= 0)                                                                        \
			plx_uring();                                                               \
		errno = saved;                                                                     \
		return r;                                                                          \
	}                                                                                          \
	VERSIONED(plx_lib_##name, #name "@" version)

RING(io_uring_queue_init, "LIBURING_2.0", (unsigned int entries, void *ring, unsigned int flags),
     (entries, ring, flags));
RING(io_uring_queue_init_params, "LIBURING_2.0", (unsigned int entries, void *ring, void *params),
     (entries, ring, params));
RING(io_uring_queue_mmap, "LIBURING_2.0", (int fd, void *params, void *ring), (fd, params, ring));
RING(io_uring_setup, "LIBURING_2.3", (unsigned int entries, void *params), (entries, params));
RING(io_uring_queue_init_mem, "LIBURING_2.5",
     (unsigned int entries, void *ring, void *params, void *memory, size_t size),
     (entries, ring, params, memory, size));
