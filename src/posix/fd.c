/* SPDX-License-Identifier: MIT */
/*
 * Descriptors: close, dup, fcntl, ioctl.
 *
 * An entry leaves the table before its number is closed in the kernel: the number
 * may mean something else in another thread the moment after.
 */
#include "posix/front.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/ioctl.h>

#include "base/inside.h"
#include "base/sys.h"
#include "posix/uaccess.h"

long plx_px_close(int fd)
{
	PLX_INSIDE();
	struct pollux_file **slot = plx_table_slot(fd);
	struct pollux_file *f;
	bool locked;
	long r;

	if (!slot || !plx_load(slot))
		return PLX_PASS;
	if (plx_fd_hidden(fd))
		return -EBADF;
	locked = plx_table_enter();
	f = plx_xchg(slot, NULL);
	r = plx_sys1(SYS_close, fd);
	plx_table_leave(locked);
	if (f)
		pollux_file_put(f);
	return r;
}

long plx_px_close_range(unsigned int first, unsigned int last, unsigned int flags)
{
	PLX_INSIDE();
	unsigned int end = plx_table_end();
	unsigned int from = first;
	long r;

	if (first > last || (flags & ~(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)))
		return plx_sys3(SYS_close_range, first, last, flags);
	if (flags & CLOSE_RANGE_UNSHARE)
		plx_px_escape_all(PLX_OUT_UNSHARE);
	/* Our own stay, closed on exec as they are; the ranges between them go. */
	for (unsigned int fd = first; fd <= last && fd < end; fd++) {
		struct pollux_file *f = plx_table_peek(fd);

		if (!f)
			continue;
		if (plx_fd_hidden(fd)) {
			if (from < fd)
				plx_sys3(SYS_close_range, from, fd - 1, flags);
			from = fd + 1;
		} else if (!(flags & CLOSE_RANGE_CLOEXEC)) {
			plx_px_close(fd);
		}
	}
	r = from > last ? 0 : plx_sys3(SYS_close_range, from, last, flags);
	return r;
}

/* A duplicate of fd, made by fcntl's cmd, for what fd means at that moment. */
static long dup_any(int fd, int cmd, long from)
{
	bool locked = plx_table_enter();
	struct pollux_file *f = plx_table_get(fd), *old = NULL;
	long n = PLX_PASS;

	if (!f) {
		plx_table_leave(locked);
		return plx_fd_hidden(fd) ? -EBADF : PLX_PASS;
	}
	n = plx_sys3(SYS_fcntl, fd, PLX_INJECTED(wrong_flag) ? F_DUPFD_CLOEXEC : cmd, from);
	if (n >= 0 && plx_table_reserve(n) < 0) {
		/* A number without an entry would show the doorbell, or the prototype. */
		plx_sys1(SYS_close, n);
		n = -ENOMEM;
	}
	if (n >= 0)
		old = plx_table_set(n, f);
	plx_table_leave(locked);
	if (n < 0)
		pollux_file_put(f);
	/* Left by a close that went past us. */
	if (old)
		pollux_file_put(old);
	return n;
}

long plx_px_dup(int fd)
{
	PLX_INSIDE();
	return dup_any(fd, F_DUPFD, 0);
}

long plx_px_dup3(int oldfd, int newfd, int flags)
{
	PLX_INSIDE();
	struct pollux_file *f, *old = NULL;
	struct pollux_file **slot;
	bool locked, evicted;
	long r;

	if (flags != -1 && (oldfd == newfd || (flags & ~O_CLOEXEC)))
		return PLX_PASS;
	if (plx_fd_hidden(oldfd))
		return -EBADF;
	if (oldfd == newfd || plx_sys2(SYS_fcntl, oldfd, F_GETFD) < 0)
		return PLX_PASS;
	evicted = plx_fd_hidden(newfd);
	if (evicted && plx_fd_evict(newfd) < 0)
		return -EMFILE;
	if (newfd >= 0 && plx_table_reserve(newfd) < 0) {
		plx_px_escape(oldfd, PLX_OUT_NO_FD);
		return PLX_PASS;
	}
	locked = plx_table_enter();
	f = plx_table_get(oldfd);
	/*
	 * There is no moment at which newfd has no entry and is still a duplicate of the
	 * prototype: a write of another thread would be lost in that. So what comes in is
	 * in the table before the kernel replaces the number, what goes out is afterwards.
	 */
	slot = newfd >= 0 ? plx_table_slot(newfd) : NULL;
	if (f && slot)
		old = plx_xchg(slot, f);
	r = plx_sys3(SYS_dup3, oldfd, newfd, flags == -1 ? 0 : flags);
	if (r >= 0 && !f && slot)
		old = plx_xchg(slot, NULL);
	if (r < 0 && f) {
		struct pollux_file *mine = f;

		/* As it was, unless somebody else has changed it meanwhile. */
		if (!slot || plx_cas(slot, &mine, old))
			old = f;
	}
	if (r < 0 && evicted)
		plx_sys1(SYS_close, newfd);
	plx_table_leave(locked);
	if (old)
		pollux_file_put(old);
	return r;
}

static long fcntl_eventfd(struct pollux_file *f, int fd, int cmd, long arg)
{
	struct pollux_eventfd *e = plx_file_efd(f);

	switch (cmd) {
	case F_GETFL:
		return O_RDWR | plx_load(&e->status);
	case F_SETFL:
		/* Access mode and creation flags are ignored by the kernel, too. */
		if (!(arg & (O_APPEND | O_ASYNC | O_DIRECT | O_NOATIME))) {
			plx_store(&e->status, (uint32_t)arg & O_NONBLOCK);
			return 0;
		}
		break;
	case F_GETFD:
	case F_SETFD:
		return PLX_PASS;
	}
	plx_px_escape(fd, PLX_OUT_FCNTL);
	return PLX_PASS;
}

long plx_px_fcntl(int fd, int cmd, long arg)
{
	PLX_INSIDE();
	struct pollux_file *f;
	long r = PLX_PASS;

	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return dup_any(fd, cmd, arg);
	f = plx_table_get(fd);
	if (!f)
		return plx_fd_hidden(fd) ? -EBADF : PLX_PASS;
	if (f->kind == PLX_KIND_EVENTFD)
		r = fcntl_eventfd(f, fd, cmd, arg);
	pollux_file_put(f);
	return r;
}

long plx_px_ioctl(int fd, unsigned long req, void *arg)
{
	PLX_INSIDE();
	struct pollux_file *f = plx_table_get(fd);
	long r = PLX_PASS;
	int on;

	if (!f)
		return plx_fd_hidden(fd) ? -EBADF : PLX_PASS;
	if (f->kind != PLX_KIND_EVENTFD) {
		pollux_file_put(f);
		return PLX_PASS;
	}
	switch (req) {
	case FIONBIO:
		r = plx_copy_in(&on, arg, sizeof(on));
		if (!r)
			plx_store(&plx_file_efd(f)->status, on ? O_NONBLOCK : 0u);
		break;
	case FIOCLEX:
	case FIONCLEX:
	case FIONREAD:
	case TCGETS:
		break;
	default:
		plx_px_escape(fd, PLX_OUT_IOCTL);
	}
	pollux_file_put(f);
	return r;
}

/*
 * Requests whose type says what device they are for. Those of KVM, vhost and VFIO
 * hand eventfds to the kernel; a type that is not known to be harmless is taken to
 * do so, too.
 */
bool plx_px_ioctl_carries_fds(unsigned long req)
{
	switch (_IOC_TYPE(req)) {
	case 0x12: /* block devices */
	case 'E':  /* input */
	case 'T':  /* terminals */
	case 'V':  /* video */
	case 'X':  /* file systems */
	case 'f':  /* ext4, inode flags */
	case 'v':  /* the same, version */
	case 0x89: /* sockets */
	case 0x8a: /* epoll */
	case 0x8b: /* wireless */
	case 0xaa: /* userfaultfd */
		return false;
	default:
		return true;
	}
}
