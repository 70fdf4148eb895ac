/* SPDX-License-Identifier: MIT */
/*
 * How watches are taken away when a file or an epoll is closed, and what two closes that meet
 * are kept apart by:
 *
 *   mutex      one global mutex over all closes: of every watched file and of every epoll. The
 *              kernel until 2023, and what was measured in 2017 and 2019.
 *   refcount   a lock for each epoll, which is counted and released by RCU; the close of a file
 *              takes a reference on the epoll of the first item that it finds, takes its lock,
 *              and removes the item unless the epoll's own close has been there. Proposed in
 *              2017 and 2019.
 *   pollux     ours, through the native interface: the file's count of references decides.
 *
 * The first two are written from their descriptions. What is around the closes is the kernel's
 * and the same for both: an epoll has a tree of its items, a lock of its own and a list of ready
 * items under a spinlock; a file has a list of its items and a queue of waiters, each under a
 * spinlock. Files, items and their memory are those of the third: objects of two cache lines
 * from the same magazines, released in the same batches.
 */
#ifndef BENCH_HISTORY_TEARDOWN_H
#define BENCH_HISTORY_TEARDOWN_H

#include <stdbool.h>
#include <stdint.h>

struct teardown_ep;
struct teardown_file;

struct teardown_algorithm {
	const char *name;
	/* NULL: out of memory. */
	struct teardown_ep *(*ep_make)(void);
	struct teardown_file *(*file_make)(uint64_t count);
	/*
	 * The last reference goes: all watches of it are gone when the call returns. A file and
	 * an epoll may be closed at the same time; nothing else may be done with either by then.
	 */
	void (*ep_close)(struct teardown_ep *ep);
	void (*file_close)(struct teardown_file *f);
	/* Level-triggered interest in a count above 0. 0, -EEXIST or -ENOMEM. */
	int (*add)(struct teardown_ep *ep, struct teardown_file *f, uint64_t data);
	/* 0 or -ENOENT. */
	int (*del)(struct teardown_ep *ep, struct teardown_file *f);
	/* Adds 1 to the count and tells the epolls. */
	void (*wake)(struct teardown_file *f);
	/* Sets the count to 0. */
	void (*clear)(struct teardown_file *f);
	/* What was given to add, of up to max files that are ready. Does not wait. */
	unsigned int (*collect)(struct teardown_ep *ep, uint64_t *data, unsigned int max);
	/* All watches that there are. */
	long (*watches)(void);
};

extern const struct teardown_algorithm teardown_mutex, teardown_refcount, teardown_pollux;

#endif
