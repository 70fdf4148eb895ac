/* SPDX-License-Identifier: MIT */
/*
 * pollux/memory.h - where the engine has its memory from
 *
 * By default mmap(2): the engine never calls malloc. A program that has no such call, or counts all
 * memory, gives two functions instead, before it makes anything.
 */
#ifndef POLLUX_MEMORY_H
#define POLLUX_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * size   sizeof(struct pollux_memory). flags: none are defined, 0.
 * map    returns `bytes` bytes, a multiple of 4096, that are zero and aligned to align, a power of
 * two from 4096 to 2 MiB; or NULL: what needed the memory fails with -ENOMEM, or asks for less. For
 * the first wake, wait or read section of a thread that needs more there is no way to fail: NULL
 * ends the program then. Not called often: most memory is used again. unmap  takes back what map
 * has returned, with the same size. Most memory is kept for good. arg    is given to both.
 *
 * They are called by any thread, with locks of the engine held; also in the first wake of a thread,
 * and so in a signal handler, if handlers wake. They must not call the library, nor take a lock
 * that is held around a wake. They stay for good.
 */
struct pollux_memory {
	uint32_t size;
	uint32_t flags;
	void *(*map)(void *arg, size_t bytes, size_t align);
	void (*unmap)(void *arg, void *p, size_t bytes);
	void *arg;
};

/*
 * From now on all memory of the engine is had from m, which is copied: epolls, registrations,
 * timers, eventfds, notes of threads. (Not the rings of <pollux/aio.h>, which are shared with the
 * kernel.) A library that is built with a sanitizer uses its allocator all the same. Returns 0,
 * -EINVAL (a size that is too small, an unknown flag, no map or unmap), -E2BIG as pollux_ep_new, or
 * -EBUSY: the engine has memory already. While no other function of the library is called, by any
 * thread.
 *
 * What is known of more than 64 threads in read sections is in such memory, too. If it is not
 * private and anonymous the kernel cannot wipe it in the children of forks (see fork.h).
 */
int pollux_memory_ops(const struct pollux_memory *m);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
