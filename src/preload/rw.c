/* SPDX-License-Identifier: MIT */
/*
 * read, write, readv, writev, __read_chk   if the descriptor is ours
 * preadv2, pwritev2 and their 64 forms     the same at offset -1, the current position
 *
 * pread, pwrite, preadv, pwritev and their variants are not replaced: the number is a
 * real eventfd or epoll, and the kernel's refusal of a position on it is the answer.
 * The same holds for preadv2 and pwritev2 at any other offset.
 */
#include "preload/preload.h"

#include "base/inject.h"
#include "cache/quick.h"

/*
 * What is kept out of the replaced functions, so that these have no frame and the path
 * of other descriptors through them is a test and a jump.
 */
#define OURS static __attribute__((noinline))

OURS ssize_t read_ours(int fd, void *buf, size_t n)
{
	long r;

	if (plx_unlikely(plx_load(&plx_used))) {
		if (plx_vfork_child())
			return plx_real.read(fd, buf, n);
		plx_cancel_point();
	}
	r = plx_px_read(fd, buf, n);
	return r == PLX_PASS ? plx_real.read(fd, buf, n) : plx_result(r);
}

#ifdef PLX_INJECT
OURS ssize_t read_theirs(int fd, void *buf, size_t n)
{
	ssize_t r;

	if (PLX_INJECTED(wrong_errno)) {
		errno = EIO;
		return -1;
	}
	r = plx_real.read(fd, buf, n);
	if (r > 1 && PLX_INJECTED(wrong_data))
		((char *)buf)[r / 2] ^= 1;
	return r;
}
#else
#define read_theirs plx_real.read
#endif

OURS ssize_t read_cold(int fd, void *buf, size_t n)
{
	if (!plx_vfork_child() &&
	    (plx_cold_uses(fd, PLX_COLD_EVENTFD) || plx_cold_uses(fd, PLX_COLD_TIMER)))
		PLX_COLD_CHANGES(plx_real.read(fd, buf, n));
	return plx_fd_ours(fd) ? read_ours(fd, buf, n) : read_theirs(fd, buf, n);
}

PLX_EXPORT PLX_CHILD_CODE ssize_t read(int fd, void *buf, size_t n)
{
	if (plx_cold_noted(fd))
		return read_cold(fd, buf, n);
	return plx_fd_ours(fd) ? read_ours(fd, buf, n) : read_theirs(fd, buf, n);
}
PLX_ALIAS(__read, read);

PLX_EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
	if ((plx_fd_ours(fd) || plx_cold_noted(fd)) && n <= room)
		return read(fd, buf, n);
	return plx_real.__read_chk(fd, buf, n, room);
}

OURS ssize_t write_frame(int fd, const void *buf, size_t n)
{
	long r;

	if (plx_unlikely(plx_load(&plx_used))) {
		if (plx_vfork_child())
			return plx_real.write(fd, buf, n);
		plx_cancel_point();
	}
	r = plx_px_write(fd, buf, n);
	return r == PLX_PASS ? plx_real.write(fd, buf, n) : plx_result(r);
}

OURS ssize_t write_ours(int fd, const void *buf, size_t n)
{
	if (plx_unlikely(plx_load(&plx_used)))
		return write_frame(fd, buf, n);
	return plx_px_write_quick(fd, buf, n, write_frame);
}

static ssize_t written(ssize_t r, int fd)
{
	if (r == sizeof(uint64_t))
		plx_cold_used(fd);
	return r;
}

OURS ssize_t write_cold(int fd, const void *buf, size_t n)
{
	if (!plx_vfork_child() && plx_cold_uses(fd, PLX_COLD_EVENTFD))
		PLX_COLD_CHANGES(written(plx_real.write(fd, buf, n), fd));
	return plx_fd_ours(fd) ? write_ours(fd, buf, n) : plx_real.write(fd, buf, n);
}

PLX_EXPORT PLX_CHILD_CODE ssize_t write(int fd, const void *buf, size_t n)
{
	if (plx_cold_noted(fd))
		return write_cold(fd, buf, n);
	return plx_fd_ours(fd) ? write_ours(fd, buf, n) : plx_real.write(fd, buf, n);
}
PLX_ALIAS(__write, write);

/* The kernel has the rules for several pieces. An epoll can be neither read nor written. */
__attribute__((noinline)) void plx_vector(int fd)
{
	int saved = errno;

	if (!plx_vfork_child() && plx_fd_kind(fd) != PLX_KIND_EPOLL)
		plx_px_escape(fd, PLX_OUT_VECTOR);
	errno = saved;
}

#define VECTOR(name, params, args, concerns)                                                       \
	PLX_EXPORT ssize_t name params                                                             \
	{                                                                                          \
		plx_note_leaves(fd);                                                               \
		if ((concerns) && plx_fd_ours(fd))                                                 \
			plx_vector(fd);                                                            \
		return plx_real.name args;                                                         \
	}
VECTOR(readv, (int fd, const struct iovec *iov, int cnt), (fd, iov, cnt), true)
VECTOR(writev, (int fd, const struct iovec *iov, int cnt), (fd, iov, cnt), true)
VECTOR(preadv2, (int fd, const struct iovec *iov, int cnt, off_t off, int flags),
       (fd, iov, cnt, off, flags), off == -1)
VECTOR(pwritev2, (int fd, const struct iovec *iov, int cnt, off_t off, int flags),
       (fd, iov, cnt, off, flags), off == -1)
PLX_ALIAS(preadv64v2, preadv2);
PLX_ALIAS(pwritev64v2, pwritev2);
