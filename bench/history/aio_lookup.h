/* SPDX-License-Identifier: MIT */
/*
 * The two ways from a context's address to the context that came before the table: the
 * list that was walked, and the radix tree that was proposed for it.
 *
 * What is around the search is that of the table (src/aio/table.c), so that only the
 * search differs: readers are in an RCU section, changes are made under a lock, a call
 * enters by an addition to the context's state and has found nothing if it is dead.
 */
#ifndef BENCH_HISTORY_AIO_LOOKUP_H
#define BENCH_HISTORY_AIO_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

struct old_context {
	uint64_t state;
	unsigned long user_id;
	struct old_context *next;
};

/* The context of that address, and the call is inside of it; NULL: there is none. */
struct old_context *list_get(unsigned long user_id);
struct old_context *radix_get(unsigned long user_id);
void old_put(struct old_context *c);

/* No two contexts have the same address. False: out of memory. */
bool list_add(struct old_context *c);
bool radix_add(struct old_context *c);
/* It is readable for a grace period yet; nobody finds it any more. */
void list_del(struct old_context *c);
void radix_del(struct old_context *c);

#endif
