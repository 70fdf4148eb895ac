/* SPDX-License-Identifier: MIT */
/*
 * Threads that are stopped within epoll_wait, at a point of its way.
 */
#ifndef TESTS_TORTURE_CALLER_H
#define TESTS_TORTURE_CALLER_H

#include "torture.h"

#include <ctype.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <pollux/posix.h>

struct caller {
	struct thread t;
	struct gate g;
	const char *point;
	int ep, timeout, max;
	const sigset_t *mask;
	struct epoll_event ev[4];
	int n;
};

static inline void caller_main(struct thread *t)
{
	struct caller *w = t->arg;

	gate_arm(&w->g, w->point);
	w->n = pollux_epoll_pwait(w->ep, w->ev, w->max, w->timeout, w->mask);
}

static inline void caller_start(struct caller *w)
{
	thread_start(&w->t, caller_main, w);
	assert_true(gate_reached(&w->g));
}

static inline void caller_got(struct caller *w, uint64_t data)
{
	gate_open(&w->g);
	thread_join(&w->t);
	assert_int_equal(w->n, 1);
	assert_int_equal(w->ev[0].data.u64, data);
}

/* One that is cached. */
static inline int new_efd(void)
{
	int fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	assert_int_equal(pollux_fd_served(fd), 1);
	return fd;
}

static inline void add_as(int ep, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	assert_int_equal(pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev), 0);
}

static inline void add(int ep, int fd, uint64_t data)
{
	add_as(ep, fd, EPOLLIN, data);
}

/* The kernel says, if it may, which call a thread sleeps in. A gate is slept at, too. */
static inline bool in_the_kernel(const struct thread *t)
{
	char path[64], text[64] = "";
	long call;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", t->tid);
	f = fopen(path, "re");
	if (!f || !fgets(text, sizeof(text), f))
		strcpy(text, "unknown");
	if (f)
		fclose(f);
	if (strcmp(text, "unknown") == 0)
		return true;
	call = isdigit(text[0]) ? strtol(text, NULL, 0) : -1;
	return call == SYS_epoll_pwait || call == SYS_epoll_pwait2
#ifdef SYS_epoll_wait
	       || call == SYS_epoll_wait
#endif
		;
}

#endif
