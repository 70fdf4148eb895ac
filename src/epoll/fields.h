/* SPDX-License-Identifier: MIT */
/*
 * What is in a pollux_file. Programs see 64 opaque bytes (pollux/file.h); the engine's own sources
 * include this first, so that the public header leaves the definition to it. Owners and locks of
 * the fields are in engine.h.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct pollux_file;
struct pollux_file_ops;
struct plx_watch;
struct plx_epitem;
struct plx_index;

/* What of a watch changes with each event. */
struct plx_node {
	uint64_t mark;
	union {
		struct plx_epitem *next;
		/* Of a file that nobody has any more: what ends it (reclaim.c). */
		void (*end)(struct pollux_file *f);
	};
	uint32_t pushed;
	uint32_t pops;
};

/* It fills one cache line, if it is aligned to one. */
struct pollux_file {
	union {
		uint64_t word;
		struct plx_node node;
	};
	struct plx_watch *watches;
	const struct pollux_file_ops *ops;
	uint32_t refs;
	uint32_t lock;
	uint8_t flags;
	uint8_t kind;
	uint8_t mode;
	uint8_t born;
	uint32_t hint;
	union {
		struct plx_index *index;
		/* The next one that waits for its end. */
		struct pollux_file *ended;
	};
};

#define POLLUX_FILE_DEFINED 1

_Static_assert(sizeof(struct pollux_file) == 8 * sizeof(uint64_t),
	       "programs reserve eight words for a file");
_Static_assert(_Alignof(struct pollux_file) == _Alignof(uint64_t), "and align it as one of them");
