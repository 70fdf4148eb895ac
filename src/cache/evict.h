/* SPDX-License-Identifier: MIT */
/*
 * Between the files that make objects the kernel's: evict.c, escape.c and fork.c (what makes it
 * necessary), counters.c.
 */
#pragma once

#include "cache/epoll.h"

/* --- evict.c ------------------------------------------------------------------------- */

/* f, found under fd and held by a reference, is the kernel's from now on. */
void plx_evict_file(struct pollux_file *f, int fd, enum plx_way_out why);
/* So is everything in the table that want() picks; NULL: everything. */
void plx_evict_table(bool (*want)(int fd), enum plx_way_out why);
/* Whether fd means something that is in process; no more than a hint, for it may leave. */
bool plx_fd_in_process(int fd);

/* --- escape.c -------------------------------------------------------------------------- */

/* How many objects have ever been adopted. */
uint64_t plx_adopted_ever(void);
/* Nothing has been adopted since all was out, if so many have been by now. */
bool plx_nothing_in(uint64_t adopted);
/* All is out of what had been adopted when there were so many. */
void plx_all_out(uint64_t adopted);

/* --- counters.c ------------------------------------------------------------------------ */

/* In the child: what the parent has counted is not the child's. */
void plx_counters_after_fork_child(void);
