/* SPDX-License-Identifier: MIT */
/*
 * close, dup, fcntl, fcntl64            if the descriptor is ours
 * pipe, pipe2                           the kernel's: what had the numbers was closed past us
 * dup2, dup3                            always: they may hit a doorbell
 * close_range, closefrom                always: the same
 * ioctl                                 if the descriptor is ours; a request that may carry
 *                                       descriptors to a driver: everything escapes first
 * pidfd_getfd                           the descriptor named escapes first
 */
#include "preload/preload.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include "aio/aio.h"

static __attribute__((noinline)) int close_ours(int fd)
{
	if (!plx_vfork_child()) {
		plx_cancel_point();
		PLX_SERVED(plx_px_close(fd));
	}
	return plx_real.close(fd);
}

PLX_EXPORT int close(int fd)
{
	plx_aio_forget(fd);
	plx_uring_closes(fd);
	plx_note_closes(fd);
	return plx_fd_ours(fd) ? close_ours(fd) : plx_real.close(fd);
}
PLX_ALIAS(__close, close);

__attribute__((cold)) void plx_given_slow(int fd)
{
	int saved = errno;

	plx_note_closes(fd);
	if (plx_fd_ours(fd) && !plx_vfork_child())
		plx_px_given(fd);
	errno = saved;
}

void plx_note_range(unsigned int first, unsigned int last, unsigned int flags)
{
	if (plx_unshares(first, last, flags) && !plx_vfork_child())
		plx_stop_adopting(PLX_OUT_UNSHARE);
	/* With other flags nothing is closed, and nothing need be: the kernel may have no such
	 * call. */
	if (flags & ~CLOSE_RANGE_UNSHARE)
		return;
	for (unsigned int fd = first; plx_cold_any() && fd <= last && fd < plx_load(&plx_cold_end);
	     fd++)
		plx_note_leaves((int)fd);
	if (plx_unlikely(plx_load(&plx_uring_followed)) && !plx_vfork_child())
		plx_urings_end(first, last);
}

PLX_EXPORT int close_range(unsigned int first, unsigned int last, int flags)
{
	plx_note_range(first, last, flags);
	if (plx_any())
		PLX_SERVED(plx_px_close_range(first, last, flags));
	return plx_real.close_range(first, last, flags);
}

PLX_EXPORT void closefrom(int low)
{
	/* libc goes on without the call. */
	if (close_range(low < 0 ? 0 : low, ~0u, 0))
		plx_real.closefrom(low);
}

static int dup_by(int fd, int cmd, long arg)
{
	return cmd < 0 ? plx_real.dup(fd) : plx_real.fcntl(fd, cmd, arg);
}

/* cmd -1: dup. PLX_PASS: it is noted no more, or never was. */
static __attribute__((noinline)) int fcntl_noted(int fd, int cmd, long arg)
{
	switch (cmd) {
	case -1:
	case F_DUPFD:
	case F_DUPFD_CLOEXEC:
		return plx_cold_dup(fd, cmd, arg, dup_by);
	case F_GETFL:
	case F_GETFD:
		break;
	case F_SETFD:
		if (!(arg & FD_CLOEXEC) && plx_becomes_inherited(fd))
			plx_cold_leaves(fd);
		break;
	case F_SETFL:
		PLX_COLD_CHANGES(plx_cold_blocking(fd, plx_real.fcntl(fd, cmd, arg),
						   (arg & (O_NONBLOCK | O_ASYNC)) == O_NONBLOCK));
		break;
	default:
		plx_cold_leaves(fd);
	}
	return (int)PLX_PASS;
}

PLX_EXPORT int dup(int fd)
{
	if (plx_cold_noted(fd) && !plx_vfork_child()) {
		int n = fcntl_noted(fd, -1, 0);

		if (n != PLX_PASS)
			return n;
	}
	if (plx_ours(fd))
		PLX_SERVED(plx_px_dup(fd));
	return plx_given(plx_real.dup(fd));
}

PLX_EXPORT int pipe2(int fds[2], int flags)
{
	int r = plx_real.pipe2(fds, flags);

	if (r == 0) {
		plx_given(fds[0]);
		plx_given(fds[1]);
	}
	return r;
}

PLX_EXPORT int pipe(int fds[2])
{
	return pipe2(fds, 0);
}
int __pipe(int fds[2]);
PLX_ALIAS(__pipe, pipe);

PLX_EXPORT int dup2(int fd, int to)
{
	plx_aio_forget(to);
	plx_uring_closes(to);
	plx_note_leaves(fd);
	/* It may fail, and close nothing. */
	plx_note_leaves(to);
	if (plx_any())
		PLX_SERVED(plx_px_dup3(fd, to, -1));
	return plx_real.dup2(fd, to);
}
PLX_ALIAS(__dup2, dup2);

PLX_EXPORT int dup3(int fd, int to, int flags)
{
	plx_aio_forget(to);
	plx_uring_closes(to);
	plx_note_leaves(fd);
	/* It may fail, and close nothing. */
	plx_note_leaves(to);
	if (plx_any() && flags != -1)
		PLX_SERVED(plx_px_dup3(fd, to, flags));
	return plx_real.dup3(fd, to, flags);
}

/*
 * The headers declare fcntl and ioctl with an open end; as functions of three arguments
 * they need no frame.
 */
static __attribute__((noinline)) int fcntl_ours(int fd, int cmd, long arg)
{
	if (!plx_vfork_child())
		PLX_SERVED(plx_px_fcntl(fd, cmd, arg));
	return plx_real.fcntl(fd, cmd, arg);
}

PLX_EXPORT int plx_fcntl(int fd, int cmd, long arg) __asm__("fcntl");
PLX_EXPORT int plx_fcntl(int fd, int cmd, long arg)
{
	if (plx_cold_noted(fd) && !plx_vfork_child()) {
		int r = fcntl_noted(fd, cmd, arg);

		if (r != PLX_PASS)
			return r;
	}
	if (plx_fd_ours(fd))
		return fcntl_ours(fd, cmd, arg);
	if (plx_unlikely(cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC))
		return plx_given(plx_real.fcntl(fd, cmd, arg));
	return plx_real.fcntl(fd, cmd, arg);
}
PLX_EXPORT int plx_fcntl64(int, int, long) __asm__("fcntl64") __attribute__((alias("fcntl")));
PLX_EXPORT int plx_fcntl_(int, int, long) __asm__("__fcntl") __attribute__((alias("fcntl")));

static void note_ioctl(int fd, unsigned long req)
{
	if (!plx_cold_any() || plx_vfork_child())
		return;
	if (plx_px_ioctl_carries_fds(req))
		plx_cold_end_all(NULL);
	else if (req == FIONCLEX ? plx_becomes_inherited(fd) : req != FIOCLEX && req != FIONBIO)
		plx_note_leaves(fd);
}

static long serve_ioctl(int fd, unsigned long req, void *arg)
{
	if (plx_ours(fd))
		return plx_px_ioctl(fd, req, arg);
	if (plx_any() && plx_px_ioctl_carries_fds(req))
		plx_px_escape_all(PLX_OUT_IOCTL_FDS);
	return PLX_PASS;
}

long plx_serve_ioctl(int fd, unsigned long req, void *arg)
{
	note_ioctl(fd, req);
	if (req == FIONBIO)
		plx_note_leaves(fd);
	return serve_ioctl(fd, req, arg);
}

static __attribute__((noinline)) int ioctl_active(int fd, unsigned long req, void *arg)
{
	PLX_SERVED(serve_ioctl(fd, req, arg));
	return plx_real.ioctl(fd, req, arg);
}

/* What the kernel has read can be read. */
static int nonblock_noted(int fd, const int *on)
{
	int r = plx_real.ioctl(fd, FIONBIO, (void *)on);

	return plx_cold_blocking(fd, r, r == 0 && *on);
}

static __attribute__((noinline)) int ioctl_cold(int fd, unsigned long req, void *arg)
{
	if (req == FIONBIO && plx_cold_noted(fd))
		PLX_COLD_CHANGES(nonblock_noted(fd, arg));
	note_ioctl(fd, req);
	return plx_load(&plx_active) ? ioctl_active(fd, req, arg) : plx_real.ioctl(fd, req, arg);
}

PLX_EXPORT int plx_ioctl(int fd, unsigned long req, void *arg) __asm__("ioctl");
PLX_EXPORT int plx_ioctl(int fd, unsigned long req, void *arg)
{
	if (plx_cold_any())
		return ioctl_cold(fd, req, arg);
	return plx_load(&plx_active) ? ioctl_active(fd, req, arg) : plx_real.ioctl(fd, req, arg);
}

PLX_EXPORT int pidfd_getfd(int pidfd, int fd, unsigned int flags)
{
	/* pidfd may be this very process; in any other the number means something else. */
	plx_escape_if_ours(fd, PLX_OUT_SYSCALL);
	return plx_given(plx_real.pidfd_getfd(pidfd, fd, flags));
}
