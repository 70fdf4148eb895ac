/* SPDX-License-Identifier: MIT */
/*
 * io_uring_setup, io_uring_enter, io_uring_register (through syscall()), mmap, mmap64
 *
 * A ring takes requests that name descriptors, and mostly nobody but the kernel sees them: then
 * everything escapes and adoption ends, but for contexts of AIO, which no request names. But event
 * loops make rings for one purpose alone, many epoll_ctls by one call (libuv does, for every loop),
 * and such a ring can be followed: without a thread of the kernel that polls it, the kernel takes
 * requests within io_uring_enter only. So before each enter we look at what it will take. What
 * liburing makes, whose calls we do not see, is in liburing.c.
 *
 *   EPOLL_CTL  one of ours is done here, and what takes its place has the same result: a NOP, or
 *              a request that fails so. Where there is none that does, it stays, for the kernel to
 *              find the error, too; then what comes after it in the ring is not done before it
 *              either, and escapes.
 *   NOP        stays.
 *   others     everything escapes and adoption ends, as for a ring that is not followed.
 *
 * A ring is followed if all flags of its setup are known and leave its requests to enter, and as
 * long as nothing is registered with it. The memory is looked at where the program has mapped it,
 * as a mapping of ours would keep the ring after its close. It is the program's memory: it is
 * read by copies that may fail, and each request once.
 *
 *   seen     the ring of that number: written before setup and mmap return, read by enters, which
 *            the program orders after them
 *   looking  one thread looks at the requests of a ring at a time: a second would do the same
 *            once more. It has no reason to come, as both would hand over the same
 *            requests; adoption ends. What was done is a NOP by then.
 */
#include "preload/preload.h"
#include "base/inside.h"
#include "base/lock.h"
#include "base/sys.h"

#include <linux/io_uring.h>
#include <sys/mman.h>

/* Rings with higher numbers are not followed. */
#define RINGS 1024

/* Newer than some headers. */
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1u << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1u << 13)
#endif
#define SETUP_NO_SQARRAY (1u << 16)
#define ENTER_REGISTERED_RING (1u << 4)

#define SETUP_KNOWN                                                                                \
	(IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_ATTACH_WQ |                       \
	 IORING_SETUP_SUBMIT_ALL | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG |         \
	 IORING_SETUP_CQE32 | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |            \
	 SETUP_NO_SQARRAY)

struct ring {
	uint32_t seen;
	uint32_t looking;
	uint32_t entries;
	bool direct;
	struct io_sqring_offsets off;
	/* The program's mappings. */
	char *sq, *requests;
};

static PLX_LARGE struct ring rings[RINGS];
/* Whether any was ever followed: most programs have none. */
static uint32_t any;

static struct ring *followed(int fd)
{
	return fd >= 0 && fd < RINGS && plx_load_acq(&rings[fd].seen) ? &rings[fd] : NULL;
}

/* Requests may be taken that we do not see. */
static void unseen(void)
{
	if ((plx_load(&plx_px_no_adopt) | PLX_ADOPT_AIO) != ~0u)
		plx_stop_adopting_descriptors(PLX_OUT_IO_URING);
}

void plx_uring_unseen(void)
{
	if (!plx_vfork_child())
		unseen();
}

static bool follow(int fd, const void *user)
{
	struct io_uring_params p;
	struct ring *r = &rings[fd];

	if (plx_copy_in(&p, user, sizeof(p)) || (p.flags & ~SETUP_KNOWN))
		return false;
	*r = (struct ring){
		.entries = p.sq_entries,
		.direct = p.flags & SETUP_NO_SQARRAY,
		.off = p.sq_off,
	};
	plx_store(&any, 1);
	plx_store_rel(&r->seen, 1);
	return true;
}

void plx_uring_made(int fd, const void *params)
{
	if (fd < RINGS)
		plx_store_rel(&rings[fd].seen, 0);
	if (plx_vfork_child())
		return;
	if (fd >= RINGS || !follow(fd, params))
		unseen();
}

static void mapped(void *at, int fd, uint64_t offset)
{
	struct ring *r = followed(fd);

	if (r && offset == IORING_OFF_SQ_RING)
		plx_store(&r->sq, at);
	else if (r && offset == IORING_OFF_SQES)
		plx_store(&r->requests, at);
}

/*
 * ThreadSanitizer's run-time maps its own memory by this name, before instrumented code can run,
 * and looking for the next of the name is such code: there the call is made here.
 */
#ifdef PLX_TSAN
#define NOT_INSTRUMENTED __attribute__((no_sanitize("thread")))
NOT_INSTRUMENTED static void *next_mmap(void *at, size_t size, int prot, int flags, int fd,
					off_t offset)
{
	long r = plx_sys6(SYS_mmap, (long)at, (long)size, prot, flags, fd, offset);

	if (r < 0 && r >= -4095) {
		errno = (int)-r;
		return MAP_FAILED;
	}
	return (void *)r;
}
#else
#define NOT_INSTRUMENTED
#define next_mmap plx_real.mmap
#endif

PLX_EXPORT NOT_INSTRUMENTED void *mmap(void *at, size_t size, int prot, int flags, int fd,
				       off_t offset)
{
	void *p = next_mmap(at, size, prot, flags, fd, offset);

	if (plx_unlikely(plx_load(&any)) && p != MAP_FAILED && !(flags & MAP_ANONYMOUS))
		mapped(p, fd, (uint64_t)offset);
	return p;
}
PLX_ALIAS(mmap64, mmap);

/* The request becomes another one, with the same mark on its completion. */
static bool replace(char *user, const struct io_uring_sqe *was, struct io_uring_sqe by)
{
	by.flags = was->flags;
	by.user_data = was->user_data;
	return plx_copy_out(user, &by, sizeof(by)) == 0;
}

/* False: not to be followed. held: a request of ours that fails has been left to the kernel. */
static bool serve(char *user, bool *held)
{
	struct io_uring_sqe s;
	bool noted;
	long r;

	if (plx_copy_in(&s, user, sizeof(s)) || (s.flags & ~IOSQE_CQE_SKIP_SUCCESS) ||
	    s.personality)
		return false;
	if (s.opcode == IORING_OP_NOP)
		return true;
	if (s.opcode != IORING_OP_EPOLL_CTL)
		return false;
	/* The kernel refuses it. */
	if (s.buf_index || s.splice_fd_in)
		return true;
	noted = plx_cold_noted(s.fd) || plx_cold_noted((int)s.off);
	if (!noted && !plx_fd_ours(s.fd) && !plx_fd_ours((int)s.off))
		return true;
	if (*held) {
		plx_note_leaves(s.fd);
		plx_note_leaves((int)s.off);
		plx_px_escape_pair(s.fd, (int)s.off, PLX_OUT_IO_URING);
		return true;
	}
	if (noted)
		r = plx_cold_ctl(s.fd, (int)s.len, (int)s.off, (void *)(uintptr_t)s.addr,
				 plx_kernel_ctl);
	else
		r = plx_px_epoll_ctl(s.fd, (int)s.len, (int)s.off, (void *)(uintptr_t)s.addr);
	switch (r) {
	case PLX_PASS:
		return true;
	case 0:
		return replace(user, &s, (struct io_uring_sqe){.opcode = IORING_OP_NOP});
	case -ENOENT:
		/* There is no poll that could be removed: such a ring would not be followed. */
		return replace(user, &s, (struct io_uring_sqe){.opcode = IORING_OP_POLL_REMOVE});
	case -EBADF:
		/* For the kernel a descriptor that we hide is one. */
		s.fd = -1;
		return plx_copy_out(user, &s, sizeof(s)) == 0;
	case -EFAULT:
		return true;
	}
	/* Should the kernel do it after all, it is not noted here. */
	plx_note_leaves((int)s.off);
	plx_px_escape((int)s.off, PLX_OUT_IO_URING);
	*held = true;
	return true;
}

static bool look_at_all(struct ring *r, uint32_t submitted)
{
	char *sq = plx_load(&r->sq), *requests = plx_load(&r->requests);
	uint32_t head, tail;
	bool held = false;

	if (!sq || !requests || plx_load_user32(&head, sq + r->off.head) ||
	    plx_load_user32(&tail, sq + r->off.tail))
		return false;
	if (submitted > tail - head)
		submitted = tail - head;
	if (submitted > r->entries)
		return false;
	for (uint32_t i = 0; i < submitted; i++) {
		uint32_t at = (head + i) & (r->entries - 1);

		if (!r->direct && plx_load_user32(&at, sq + r->off.array + at * sizeof(at)))
			return false;
		if (at >= r->entries || !serve(requests + at * sizeof(struct io_uring_sqe), &held))
			return false;
	}
	return true;
}

static bool look(struct ring *r, uint32_t submitted)
{
	PLX_INSIDE();
	bool seen = !plx_xchg(&r->looking, 1);

	if (seen) {
		seen = look_at_all(r, submitted);
		plx_store_rel(&r->looking, 0);
	}
	return seen;
}

void plx_uring_before_enter(int fd, uint32_t submitted, uint32_t flags)
{
	struct ring *r = flags & ENTER_REGISTERED_RING ? NULL : followed(fd);

	if (!submitted || plx_vfork_child())
		return;
	if (!r || !look(r, submitted))
		unseen();
}

void plx_uring_before_register(uint32_t what)
{
	/* What asks, or speaks of the kernel's own threads, changes no request. */
	if (what == IORING_REGISTER_PROBE || what == IORING_REGISTER_IOWQ_AFF ||
	    what == IORING_UNREGISTER_IOWQ_AFF || what == IORING_REGISTER_IOWQ_MAX_WORKERS)
		return;
	plx_uring_unseen();
}
