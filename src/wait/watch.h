/* SPDX-License-Identifier: MIT */
/* Watches that call a function: those of programs, and those by which a poll sleeps. */
#pragma once

#include "epoll/engine.h"

#include <pollux/watch.h>

struct plx_callback {
	struct plx_watch w;
	struct pollux_file *file;
	pollux_watch_fn fn;
	/* See watch.c. */
	uint32_t calls;
	/* That of the file when it was linked. */
	uint8_t born;
};

_Static_assert(sizeof(struct plx_callback) <= sizeof(struct pollux_watch),
	       "programs reserve enough for a watch");

/* As pollux_watch_add, but the file is not asked: 0 or a negative errno. */
int plx_callback_link(struct plx_callback *c, struct pollux_file *f, uint32_t events,
		      pollux_watch_fn fn);
/* Once: no call begins after it. Its reference is the caller's; c outlives a grace period. */
void plx_callback_unlink(struct plx_callback *c);
/* Unlinked: whether a call has begun and not ended. */
bool plx_callback_runs(struct plx_callback *c);
/* The file of an epoll does not tell of its descriptors. */
bool plx_file_tells_all(struct pollux_file *f);
