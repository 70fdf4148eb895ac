/* SPDX-License-Identifier: MIT */
/* io_uring: see uring.c and liburing.c. errno may change in all of them. */
#ifndef PLX_PRELOAD_URING_H
#define PLX_PRELOAD_URING_H

#include <stdint.h>

/* After a setup that gave fd; params are the program's. */
void plx_uring_made(int fd, const void *params);
void plx_uring_before_enter(int fd, uint32_t submitted, uint32_t flags);
void plx_uring_before_register(uint32_t what);
/* There is a ring that cannot be followed. */
void plx_uring_unseen(void);

#endif
