/* SPDX-License-Identifier: MIT */
/*
 * pollux/level.h - a file that is ready as long as you say so
 *
 * A mask that is set and cleared, with no operations to write: for stop flags, bells, and states
 * that another piece of the program keeps.
 *
 *	pollux_level_init(&stop, 0, NULL);
 *	pollux_ep_ctl(ep, EPOLL_CTL_ADD, &stop.file, 0, &ev);
 *	...
 *	pollux_level_set(&stop, EPOLLIN);
 */
#ifndef POLLUX_LEVEL_H
#define POLLUX_LEVEL_H

#include <stdint.h>

#include <pollux/file.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Embed it anywhere. All but `file` belongs to the library. */
struct pollux_level {
	struct pollux_file file;
	uint32_t events;
	uint32_t reserved;
	void (*free)(struct pollux_level *l);
};

/*
 * Prepares l with one reference, which belongs to the caller and is dropped by pollux_file_put
 * (&l->file); `events` are true at first. free is called as that of a file's operations, or NULL:
 * then the memory may be used for something else when the last reference has been dropped and
 * pollux_synchronize has returned after that. Cannot fail. Any thread.
 */
void pollux_level_init(struct pollux_level *l, uint32_t events,
		       void (*free)(struct pollux_level *l));

/*
 * Makes these events true, too, and wakes for those that were not: each set of something new is an
 * edge. Cannot fail, takes no lock. Any thread that keeps l valid for the call, signal handlers
 * too. What the caller did before happens before what follows the wait that reports it.
 */
void pollux_level_set(struct pollux_level *l, uint32_t events);

/*
 * Makes them false. A wait that collects at the same time may have reported them already. Any
 * thread, signal handlers too. Nobody is woken.
 */
void pollux_level_clear(struct pollux_level *l, uint32_t events);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
