/* SPDX-License-Identifier: MIT */
/*
 * Rings of io_uring, as a program makes and enters them that has no library for that.
 */
#ifndef TESTS_URING_H
#define TESTS_URING_H

#include "waiting.h"

#include <linux/io_uring.h>
#include <sys/mman.h>

#define ENTRIES 16
#define SETUP_NO_SQARRAY (1u << 16)

struct uring {
	int fd;
	/* Its system calls are made past libc. */
	bool own;
	struct io_uring_params par;
	size_t size;
	char *sq;
	struct io_uring_sqe *requests;
	unsigned int pending;
};

static inline unsigned int *sq_word(struct uring *u, uint32_t off)
{
	return (unsigned int *)(void *)(u->sq + off);
}

/* The result of a call, or -errno. */
static inline long uring_call(const struct uring *u, long nr, long a, long b, long c, long d,
			      long e, long f)
{
	long r = u->own ? own_call6(nr, a, b, c, d, e, f) : syscall(nr, a, b, c, d, e, f);

	return !u->own && r == -1 ? -errno : r;
}

static inline void *uring_mapped(struct uring *u, size_t size, off_t offset)
{
	const int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
	void *p = u->own ? (void *)uring_call(u, SYS_mmap, 0, (long)size, prot, flags, u->fd,
					      (long)offset)
			 : mmap(NULL, size, prot, flags, u->fd, offset);

	assert_true((uintptr_t)p < -4096ul);
	return p;
}

static inline bool uring_made_by(struct uring *u, unsigned int flags, bool own)
{
	*u = (struct uring){.own = own, .par.flags = flags};
	u->fd = (int)uring_call(u, SYS_io_uring_setup, ENTRIES, (long)&u->par, 0, 0, 0, 0);
	if (u->fd < 0)
		return false;
	/* One mapping for both queues. */
	assert_true(u->par.features & IORING_FEAT_SINGLE_MMAP);
	u->size = u->par.cq_off.cqes + u->par.cq_entries * sizeof(struct io_uring_cqe);
	if (!(flags & SETUP_NO_SQARRAY) &&
	    u->size < u->par.sq_off.array + u->par.sq_entries * sizeof(unsigned int))
		u->size = u->par.sq_off.array + u->par.sq_entries * sizeof(unsigned int);
	u->sq = uring_mapped(u, u->size, IORING_OFF_SQ_RING);
	u->requests =
		uring_mapped(u, u->par.sq_entries * sizeof(*u->requests), (off_t)IORING_OFF_SQES);
	return true;
}

static inline bool uring_made(struct uring *u, unsigned int flags)
{
	return uring_made_by(u, flags, false);
}

#define URING(u, flags)                                                                            \
	struct uring u;                                                                            \
	if (!uring_made(&u, flags))                                                                \
	SKIP("no io_uring for this user")

static inline void uring_closed(struct uring *u)
{
	assert_ok(munmap(u->requests, u->par.sq_entries * sizeof(*u->requests)));
	assert_ok(munmap(u->sq, u->size));
	assert_ok(close(u->fd));
}

static inline struct io_uring_sqe *request(struct uring *u, uint8_t opcode, uint64_t mark)
{
	unsigned int *tail = sq_word(u, u->par.sq_off.tail);
	unsigned int at = *tail & (u->par.sq_entries - 1);
	struct io_uring_sqe *s = &u->requests[at];

	if (!(u->par.flags & SETUP_NO_SQARRAY))
		sq_word(u, u->par.sq_off.array)[at] = at;
	memset(s, 0, sizeof(*s));
	s->opcode = opcode;
	s->user_data = mark;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	u->pending++;
	return s;
}

static inline void want_ctl(struct uring *u, int ep, int op, int fd, struct epoll_event *ev,
			    uint64_t mark)
{
	struct io_uring_sqe *s = request(u, IORING_OP_EPOLL_CTL, mark);

	s->fd = ep;
	s->len = (uint32_t)op;
	s->off = (uint64_t)(unsigned int)fd;
	s->addr = (uintptr_t)ev;
}

/* Hands over what waits, without waiting for its end. */
static inline void hand_over(struct uring *u)
{
	unsigned int n = u->pending;

	u->pending = 0;
	assert_int_equal(uring_call(u, SYS_io_uring_enter, u->fd, n, 0, 0, 0, 0), n);
}

/* result[mark] of each that has ended. */
static inline void results(struct uring *u, int *result)
{
	unsigned int *head = sq_word(u, u->par.cq_off.head);
	struct io_uring_cqe *cqes = (void *)(u->sq + u->par.cq_off.cqes);

	while (*head != __atomic_load_n(sq_word(u, u->par.cq_off.tail), __ATOMIC_ACQUIRE)) {
		struct io_uring_cqe *c = &cqes[*head & (u->par.cq_entries - 1)];

		result[c->user_data] = c->res;
		__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	}
}

static inline void submit(struct uring *u, int *result)
{
	unsigned int n = u->pending;

	u->pending = 0;
	assert_int_equal(
		uring_call(u, SYS_io_uring_enter, u->fd, n, n, IORING_ENTER_GETEVENTS, 0, 0), n);
	results(u, result);
}

static inline int one(struct uring *u, int ep, int op, int fd, struct epoll_event *ev)
{
	int result[1] = {1};

	want_ctl(u, ep, op, fd, ev, 0);
	submit(u, result);
	return result[0];
}

#endif
