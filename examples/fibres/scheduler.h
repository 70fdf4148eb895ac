/* SPDX-License-Identifier: MIT */
/*
 * Fibres: functions that run in turn in one thread, each on a stack of its own.
 *
 * A fibre that waits in an epoll of the scheduler's lets the others run. Epolls are woken by
 * whatever wakes their files: fibres, other threads, signal handlers.
 *
 * With a virtual clock time stands still while anybody can run, and jumps to the next deadline when
 * nobody can. Then all that happens depends on what the fibres do, and on nothing else.
 */
#ifndef FIBRES_SCHEDULER_H
#define FIBRES_SCHEDULER_H

#include <stdint.h>

#include <pollux/epoll.h>

struct scheduler;

enum scheduler_clock { CLOCK_REAL, CLOCK_VIRTUAL };

/* NULL: no memory. */
struct scheduler *scheduler_new(enum scheduler_clock clock);
/* All fibres have ended, and all its epolls are gone. */
void scheduler_free(struct scheduler *s);

/* A fibre, which runs later. 0 or -ENOMEM. In a fibre, or before scheduler_run. */
int scheduler_spawn(struct scheduler *s, void (*fn)(void *arg), void *arg);

/* Runs fibres in this thread, until all have ended. */
void scheduler_run(struct scheduler *s);

/* Nanoseconds of its clock. */
int64_t scheduler_now(struct scheduler *s);

/* How often one fibre has followed another. */
uint64_t scheduler_hops(const struct scheduler *s);

/* In a fibre: lets the others run first; and the same for some time. */
void fibre_yield(void);
void fibre_sleep(int64_t ns);

/* An epoll in which fibres of s wait. As pollux_ep_new. */
int scheduler_ep_new(struct scheduler *s, struct pollux_ep **out);

#endif
