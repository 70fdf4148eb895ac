/* SPDX-License-Identifier: MIT */
/*
 * Keys by which the ends of threads are heard of, without pthread_once: that makes a system call
 * for each, of which a program would make eight when it starts, and a handler that interrupts it
 * waits for its own thread.
 */
#pragma once

#include <pthread.h>

#include "base/atomic.h"
#include "base/bug.h"

struct plx_key {
	/* 1 more than the key; 0 until somebody has made it. */
	uint32_t next;
};

/* The key; who comes first makes it, and of two who do so at once one takes its own back. */
static inline pthread_key_t plx_key(struct plx_key *k, void (*at_exit)(void *))
{
	uint32_t next = plx_load_acq(&k->next);
	pthread_key_t made;

	if (plx_likely(next))
		return next - 1;
	PLX_INVARIANT(pthread_key_create(&made, at_exit) == 0, "a thread key can be had");
	if (plx_cas(&k->next, &next, made + 1))
		return made;
	pthread_key_delete(made);
	return next - 1;
}
