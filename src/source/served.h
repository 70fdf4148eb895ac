/* SPDX-License-Identifier: MIT */
/*
 * What the POSIX layer keeps with a file that it serves under descriptors.
 */
#ifndef PLX_SOURCE_SERVED_H
#define PLX_SOURCE_SERVED_H

#include <stdint.h>

struct plx_served {
	/* O_NONBLOCK or 0. */
	uint32_t status;
	/* 1 once the kernel's object stands in its place. */
	uint32_t spilled;
	/* A spill's own, under its lock: its place there plus one; one of its descriptors. */
	uint32_t picked;
	int number;
	/* A close_range's own: what was closed before it. */
	struct pollux_file *closed;
};

#endif
