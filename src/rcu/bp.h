/* SPDX-License-Identifier: MIT */
/*
 * An instance of liburcu's bulletproof flavour that nobody else uses: its readers, from its own
 * header, over a registry of threads of our own (bp.c). A program may use liburcu-bp as well: it
 * must not wait for our readers, nor we for its. The names that liburcu gives away are other ones
 * here, also for the linker.
 *
 * Grace periods are made in steps by rcu/rcu.c, none of which waits: for that, this says what a
 * look at all readers finds.
 */
#pragma once

#ifndef PLX_LIBURCU_SOURCE
#error "The target lacks the dependency urcu: these would be the headers of an installed liburcu."
#endif

/* What liburcu's headers include of the system's comes before that all is hidden. */
#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define urcu_bp_gp plx_urcu_gp
#define urcu_bp_reader plx_urcu_reader
#define urcu_bp_has_sys_membarrier plx_urcu_has_sys_membarrier
#define urcu_bp_register plx_urcu_register

#pragma GCC visibility push(hidden)

#include <urcu/static/urcu-bp.h>

/* Makes the key by which ends of threads are heard of. May be called again. */
void plx_urcu_init(void);

enum plx_urcu_seen {
	/* A section of before the last flip is open. */
	PLX_URCU_OLD,
	/* Only sections that began after the last flip are. */
	PLX_URCU_CURRENT,
	/* Each thread was seen in none. */
	PLX_URCU_NONE,
};

/* Nobody else is known, and the calling thread is in no section. */
bool plx_urcu_nobody(void);
/* One look at all readers. *who: the first that is old, for the next. */
enum plx_urcu_seen plx_urcu_look(const unsigned long **who);
/* Whether that one still is; it may have become another thread's. */
bool plx_urcu_is_old(const unsigned long *who);
/* Sections that begin from now on can be told from those that have begun. */
void plx_urcu_flip(void);

/*
 * From now on children find plx_wiped, and the readers' counters elsewhere, wiped. May be called
 * again.
 */
void plx_wipe_begin(void);
/* In the child of a fork of which libc does not tell: where the kernel does not wipe. */
void plx_wipe_by_hand(void);

#pragma GCC visibility pop
