/* SPDX-License-Identifier: MIT */
/*
 * pollux/pipe.h - the byte stream of pipe(2), as an object with two ends
 *
 * Behaviour is that of rules PIPE-02 to PIPE-24: capacity in slots of a page, writes
 * of up to POLLUX_PIPE_ATOMIC bytes whole or not at all, edges and masks of both ends.
 *
 * Each end is a file with a reference of its own. Dropping the last reference of an end
 * closes it: readers then find the end of the stream, writers -EPIPE, and watchers of
 * the other end are told. The object goes with the second end. A call holds a reference
 * on its end.
 */
#ifndef POLLUX_PIPE_H
#define POLLUX_PIPE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <pollux/file.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct pollux_pipe;

/* Each write is a packet, and each read takes one at most (PIPE-14). */
#define POLLUX_PIPE_PACKETS 1

/* Writes of up to so many bytes are not torn (PIPE-11, PIPE-13). */
#define POLLUX_PIPE_ATOMIC 4096

/* Makes a pipe of 65536 bytes. 0, -EINVAL (unknown flags) or -ENOMEM. */
int pollux_pipe_new(struct pollux_pipe **out, int flags);

/* The ends. They come with one reference each, which belongs to the caller of new. */
struct pollux_file *pollux_pipe_read_end(struct pollux_pipe *p);
struct pollux_file *pollux_pipe_write_end(struct pollux_pipe *p);

/*
 * Takes up to n bytes. Returns how many, 0 at the end of the stream, -EAGAIN when there
 * are none and block is 0; with block not 0 it sleeps, and returns -EINTR when a signal
 * handler without SA_RESTART ran (PIPE-07). Without block: safe from signal handlers.
 */
ssize_t pollux_pipe_read(struct pollux_pipe *p, void *buf, size_t n, int block);

/*
 * Adds n bytes. Returns how many were added: fewer only if the rest found no room and
 * block is 0, or if the call was cut short after a part (PIPE-12). -EAGAIN without room,
 * -EPIPE without readers (no signal is raised), -EINTR. Without block: safe from signal
 * handlers, in whatever call of the library they have interrupted.
 */
ssize_t pollux_pipe_write(struct pollux_pipe *p, const void *buf, size_t n, int block);

/* Bytes that are stored now (PIPE-16). */
size_t pollux_pipe_bytes(struct pollux_pipe *p);

/*
 * Capacity in bytes. set rounds up to a power of two of pages and returns the new
 * capacity, -EBUSY if more slots are in use than that (PIPE-15), or -EINVAL above 256 KiB.
 */
long pollux_pipe_capacity(struct pollux_pipe *p);
long pollux_pipe_set_capacity(struct pollux_pipe *p, size_t bytes);

/* Packets on or off, for writes that start later. */
void pollux_pipe_set_packets(struct pollux_pipe *p, int on);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
