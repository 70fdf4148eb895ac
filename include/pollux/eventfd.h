/* SPDX-License-Identifier: MIT */
/*
 * pollux/eventfd.h - the counter of eventfd(2), as an object
 *
 * Behaviour is that of rules EFD-01 to EFD-20. A write whose watchers already
 * know costs one atomic addition.
 */
#ifndef POLLUX_EVENTFD_H
#define POLLUX_EVENTFD_H

#include <stdint.h>

#include <pollux/file.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct pollux_efd;

/* Read takes 1 at a time (EFD-04). */
#define POLLUX_EFD_SEMAPHORE 1

/* Makes a counter with one reference. 0, -EINVAL (unknown flags) or -ENOMEM. */
int pollux_efd_new(struct pollux_efd **out, uint64_t initial, int flags);

struct pollux_file *pollux_efd_file(struct pollux_efd *e);

/* The counter that f is the file of, or NULL. No reference is taken. Any thread, signal handlers
 * too. */
struct pollux_efd *pollux_efd_of(struct pollux_file *f);

/*
 * Takes the count (or 1 of it). Returns 0 and stores it in *value, or -EAGAIN
 * when the count is 0 and block is 0; with block not 0 it sleeps, and returns
 * -EINTR when a signal handler without SA_RESTART ran (EFD-05), or -ENOMEM.
 */
int pollux_efd_read(struct pollux_efd *e, uint64_t *value, int block);

/*
 * Adds value. Returns 0; -EINVAL for 2^64-1; -EAGAIN if it does not fit and
 * block is 0; with block not 0 it sleeps until it fits, or -EINTR or -ENOMEM as above
 * (EFD-09..11).
 * Without block: safe from signal handlers.
 */
int pollux_efd_write(struct pollux_efd *e, uint64_t value, int block);

/* Adds 1, stopping at 2^64-1, as the kernel's own signals do (EFD-14). */
void pollux_efd_signal(struct pollux_efd *e);

/* The count, without taking it. */
uint64_t pollux_efd_count(struct pollux_efd *e);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
