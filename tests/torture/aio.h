/* SPDX-License-Identifier: MIT */
/* Requests that can be told from each other, for the torture of contexts of AIO. */
#ifndef TESTS_TORTURE_AIO_H
#define TESTS_TORTURE_AIO_H

#include "aio/aio.h"

#include "torture.h"

#include <poll.h>
#include <pollux/aio.h>
#include <pollux/posix.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define BLOCK 512

/* Contexts that are gone will be named: cmocka's handlers, new for each test, stand behind ours. */
static inline void aio_begin(void)
{
	torture_begin();
	assert_int_equal(pollux_guard_faults(), 0);
}

/*
 * Beside forks: a child that ends while the thread which forks has its signals blocked makes
 * the kernel wake another thread for nothing, for SIGCHLD is not ignored at once then.
 */
static inline int aio_getevents_beside_forks(aio_context_t ctx, long min, long nr,
					     struct io_event *ev)
{
	int n;

	do
		n = pollux_io_getevents(ctx, min, nr, ev, NULL);
	while (n < 0 && errno == EINTR);
	return n;
}

/* A file of which each request has a block to itself. */
static inline int aio_file(void)
{
	int fd = memfd_create("torture", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static inline aio_context_t aio_new(unsigned int nr)
{
	aio_context_t ctx = 0;

	assert_int_equal(pollux_io_setup(nr, &ctx), 0);
	assert_true(ctx != 0);
	return ctx;
}

enum req_state { IDLE, FLYING, POLLING };

struct req {
	struct iocb cb;
	enum req_state state;
	/* Writes so far; the last one's number is what the block has to show. */
	uint64_t version;
	uint64_t block;
	int fd;
	int event;
	bool reading;
	uint64_t data[BLOCK / 8];
};

/* fd: the file; event: a counter of the request's own to poll, or -1. */
static inline void req_init(struct req *r, int fd, uint64_t block, int event)
{
	memset(r, 0, sizeof(*r));
	r->fd = fd;
	r->block = block;
	r->event = event;
}

static inline uint64_t req_word(const struct req *r, unsigned int i)
{
	return (r->block << 40) ^ (r->version << 8) ^ i;
}

/* The next thing to do: a write, or the read that shows that it was done. */
static inline void req_transfer(struct req *r)
{
	memset(&r->cb, 0, sizeof(r->cb));
	r->cb.aio_fildes = (uint32_t)r->fd;
	r->cb.aio_buf = (uintptr_t)r->data;
	r->cb.aio_nbytes = BLOCK;
	r->cb.aio_offset = (int64_t)(r->block * BLOCK);
	r->cb.aio_data = (uintptr_t)r;
	r->cb.aio_lio_opcode = r->reading ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE;
	if (!r->reading)
		r->version++;
	for (unsigned int i = 0; i < BLOCK / 8; i++)
		r->data[i] = r->reading ? 0 : req_word(r, i);
	atomic_set(&r->state, FLYING);
}

static inline void req_poll(struct req *r)
{
	memset(&r->cb, 0, sizeof(r->cb));
	r->cb.aio_fildes = (uint32_t)r->event;
	r->cb.aio_buf = POLLIN;
	r->cb.aio_data = (uintptr_t)r;
	r->cb.aio_lio_opcode = IOCB_CMD_POLL;
	atomic_set(&r->state, POLLING);
}

static inline void req_resfd(struct req *r, int fd)
{
	r->cb.aio_flags |= IOCB_FLAG_RESFD;
	r->cb.aio_resfd = (uint32_t)fd;
}

/* It was not accepted after all. */
static inline void req_back(struct req *r)
{
	if (r->cb.aio_lio_opcode == IOCB_CMD_PWRITE)
		r->version--;
	atomic_set(&r->state, IDLE);
}

/* Its event has come: once, for a request that was on its way, with the right result. */
static inline struct req *req_event(const struct io_event *ev)
{
	struct req *r = (struct req *)(uintptr_t)ev->data;
	enum req_state was = __atomic_load_n(&r->state, __ATOMIC_SEQ_CST);

	if (ev->obj != (uintptr_t)&r->cb || ev->res2 != 0)
		broken("an event of nothing");
	switch (was) {
	case IDLE:
		broken("a second event of one request");
		break;
	case POLLING:
		if (ev->res != 0 && !(ev->res & POLLIN))
			broken("a poll gave %#llx", (unsigned long long)ev->res);
		(void)!read(r->event, &(uint64_t){0}, 8);
		break;
	case FLYING:
		if (ev->res != BLOCK)
			broken("%s of block %lu: %lld", r->reading ? "read" : "write",
			       (unsigned long)r->block, (long long)ev->res);
		for (unsigned int i = 0; r->reading && i < BLOCK / 8; i++)
			if (r->data[i] != req_word(r, i)) {
				broken("block %lu, word %u: %#lx", (unsigned long)r->block, i,
				       (unsigned long)r->data[i]);
				break;
			}
		r->reading = !r->reading;
		break;
	}
	if (__atomic_exchange_n(&r->state, IDLE, __ATOMIC_SEQ_CST) != was)
		broken("two events of one request");
	return r;
}

#endif
