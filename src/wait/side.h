/* SPDX-License-Identifier: MIT */
/*
 * The kernel's side of an epoll: what side.c makes and wait.c sleeps on.
 *
 *   side.epfd, doorbell, marker  constant
 *   side.timer   set once, under ep.mtx; -1: none
 *   side.turned  atomic; the bell has been turned since the epoll has this side (side.c)
 *   side.ctls    atomic; changes of the kernel's set, begun
 *   side.turn    approximate; who has the only place of the next wait that has one (wait.c)
 *   side.misses, waits  approximate; looks before a sleep in vain, in a row; all waits (wait.c)
 *   side.asked   set under ep.mtx; 1 from the first pollux_ep_fd on
 *   side.collects  set under the topology lock, for good; see plx_side_collects
 */
#pragma once

#include <poll.h>

#include "epoll/engine.h"

/* The kernel's mask of signals. */
#define PLX_MASK_SIZE 8

/* side.turn */
enum { PLX_TURN_KERNEL, PLX_TURN_OWN };

struct plx_kernel_side {
	struct plx_side head;
	struct pollux_ep *ep;
	int epfd;
	int doorbell;
	int timer;
	uint64_t marker;
	uint32_t turned;
	uint32_t ctls;
	uint32_t turn;
	uint32_t misses;
	uint32_t waits;
	uint32_t asked;
	uint32_t collects;
};

static inline struct plx_kernel_side *plx_side_of(struct pollux_ep *ep)
{
	return plx_container_of(plx_load_acq(&ep->side), struct plx_kernel_side, head);
}

/* Before a sleep on the side is announced. */
static inline void plx_side_turn(struct plx_kernel_side *s)
{
	if (plx_likely(plx_load_acq(&s->turned)))
		return;
	(void)plx_rings_collect(&s->ep->bell, true);
	plx_store_rel(&s->turned, 1);
}

/* wait.c: see struct plx_side. */
int plx_side_wait(struct pollux_ep *ep, struct epoll_event *ev, int max, bool sleeps,
		  int64_t deadline, const sigset_t *mask);

int plx_side_collect(struct pollux_ep *ep, pollux_event_fn fn, void *arg, int max, bool sleeps,
		     int64_t deadline, const sigset_t *mask);

/* wait.c: ppoll of n descriptors up to deadline; negative: none, 0: it does not sleep. */
long plx_kernel_poll(struct pollfd *fd, size_t n, int64_t deadline, const sigset_t *mask);

/*
 * side.c: who collects is about to sleep on it, so it gets no descriptors from now on. 0, or
 * -EOPNOTSUPP: it may have some.
 */
int plx_side_collects(struct plx_kernel_side *s);

/*
 * side.c: makes the side of an epoll, if it has none. fds: for descriptors, so that its file is not
 * watched. 0, or a negative errno.
 */
int plx_side_get(struct pollux_ep *ep, bool fds, struct plx_kernel_side **s);

/*
 * For the room above, which serves descriptors of its own kind: fd is about to be registered with
 * the kernel by this op. 0, or a negative errno.
 */
extern int (*plx_side_registers)(int op, int fd);
