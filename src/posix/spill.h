/* SPDX-License-Identifier: MIT */
/*
 * Between the files that turn objects into kernel objects: spill.c, escape.c and fork.c (what makes
 * it necessary), counters.c.
 *
 * All of a spill is the holder's of plx_table_lock.
 */
#ifndef PLX_POSIX_SPILL_H
#define PLX_POSIX_SPILL_H

#include "posix/front.h"

struct plx_spill {
	/* Objects, linked by next_out, and the fronts that watch some of them. */
	struct pollux_efd *out, **out_end;
	struct plx_front *fronts;
	struct plx_masked masked;
	/* Timers that are the kernel's alone now. */
	int timers;
};

/* --- spill.c ------------------------------------------------------------------------- */

/* Takes plx_table_lock, keeps signals away, and waits for those who change numbers. */
void plx_spill_begin(struct plx_spill *s);
/* f, found under fd, goes. */
void plx_spill_add(struct plx_spill *s, struct pollux_file *f, int fd);
/* So does everything in the table that want() picks. */
void plx_spill_add_table(struct plx_spill *s, bool (*want)(int fd));
/* Runs what has been collected, and lets go. keep: the table lock stays held. */
void plx_spill_end(struct plx_spill *s, enum plx_way_out why, bool keep);
/* Lets go of what plx_spill_end has kept. */
void plx_spill_unlock(void);
/* Whether fd means something that is in process; no more than a hint, for it may leave. */
bool plx_fd_in_process(int fd);

/* --- escape.c -------------------------------------------------------------------------- */

/* No pointers: each would be relocated at the start of each program. */
struct plx_way_out_row {
	char name[16];
	char what[112];
};
extern const struct plx_way_out_row plx_ways_out[PLX_OUT_COUNT];

/* How many objects have ever been adopted. */
uint64_t plx_adopted_ever(void);
/* Nothing has been adopted since all was out, if so many have been by now. */
bool plx_nothing_in(uint64_t adopted);

/* --- counters.c ------------------------------------------------------------------------ */

uint64_t plx_counters_sum(enum plx_counter what);
/* In the child: what the parent has counted is not the child's. */
void plx_counters_after_fork_child(void);

#endif
