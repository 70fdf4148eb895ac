/* SPDX-License-Identifier: MIT */
/*
 * Descriptors: close, dup, fcntl, ioctl.
 *
 * An entry leaves the table before its number is closed in the kernel: the number
 * may mean something else in another thread the moment after.
 */
#include "cache/epoll.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/single_threaded.h>

#include "base/inside.h"
#include "base/lock.h"
#include "base/sanitizer.h"
#include "base/sys.h"
#include "cache/uaccess.h"

/* RCU section open: a number of f is about to mean nothing, or something else. */
static void number_goes(struct pollux_file *f)
{
	if (f && f->kind == PLX_KIND_TIMER)
		plx_timer_close(f);
	else if (f && f->kind == PLX_KIND_EPOLL && plx_load(&plx_file_epoll(f)->timer_mark))
		plx_timers_leave(plx_file_epoll(f));
}

/*
 * An eventfd at fd is the kernel's before its number means something else. Its entry may stay: its
 * calls are the kernel's. closed: it cannot stay open; else its epolls have to know, too.
 */
static void eventfd_goes(int fd, bool closed)
{
	struct pollux_file *f;
	bool gone;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	gone = !f || f->kind != PLX_KIND_EVENTFD || (closed && plx_eventfd_leave(f)) ||
	       !pollux_file_tryget(f);
	plx_rcu_read_unlock();
	if (plx_likely(gone))
		return;
	plx_eventfd_flush(plx_file_eventfd(f), PLX_EVENTFD_LEAVES);
	pollux_file_put(f);
}

static bool live_epoll_at(int fd)
{
	struct pollux_file *f;
	bool is;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	is = f && f->kind == PLX_KIND_EPOLL && plx_epoll_live(plx_file_epoll(f));
	plx_rcu_read_unlock();
	return is;
}

/*
 * ThreadSanitizer knows who has used a number; that it means something else from now on it learns
 * by the close.
 */
static long close_seen(int fd)
{
	int state;
	long r;

	if (plx_likely(!plx_tsan_here()))
		return plx_sys1(SYS_close, fd);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	r = plx_libc.close(fd) < 0 ? -errno : 0;
	pthread_setcancelstate(state, NULL);
	return r;
}

/*
 * fd means nothing of ours any more: what it meant, with its reference, or NULL. Nobody goes by the
 * number from now on who does not know it already: a request of AIO (plx_eventfd_tell), which is
 * waited for, and a wait (wait.c).
 */
static struct pollux_file *number_out(int fd)
{
	struct pollux_file *f, *mine;

	plx_rcu_read_lock();
	f = mine = plx_table_peek(fd);
	number_goes(f);
	if (f && (f->kind == PLX_KIND_BELL || !plx_cas(plx_table_slot(fd), &mine, NULL)))
		f = NULL;
	plx_rcu_read_unlock();
	if (!f)
		return NULL;
	PLX_DELAY(close_no_entry);
	/* Partners: plx_eventfd_tell; a wait, which announces itself before it looks at the number.
	 */
	plx_mb();
	if (f->kind == PLX_KIND_EVENTFD)
		plx_await_zero(&plx_file_eventfd(f)->pins);
	else if (f->kind == PLX_KIND_EPOLL && plx_load(&plx_file_epoll(f)->ep->sleepers))
		plx_numbers_add(&plx_numbers_barred, fd);
	return f;
}

long plx_px_close(int fd)
{
	PLX_INSIDE();
	struct pollux_file *f;
	long r = PLX_PASS;

	if (!plx_fd_ours(fd))
		return PLX_PASS;
	plx_bell_take(fd);
	eventfd_goes(fd, true);
	f = number_out(fd);
	if (f) {
		r = close_seen(fd);
		pollux_file_put(f);
	}
	return r;
}

static int first_ours(unsigned int first, unsigned int last)
{
	return first > INT_MAX ? -1 : plx_table_next_to((int)first, last);
}

/*
 * The kernel closes all in its order; what is ours is the kernel's before. An epoll whose numbers
 * the kernel does not close, as it has no such call, is one that we do not know, and just as good.
 */
long plx_px_close_range(unsigned int first, unsigned int last, unsigned int flags)
{
	PLX_INSIDE();
	struct pollux_file *f;
	long r;

	if (first > last || (flags & ~(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)))
		return plx_sys3(SYS_close_range, first, last, flags);
	if (flags & CLOSE_RANGE_UNSHARE)
		plx_px_escape_all(PLX_OUT_UNSHARE);
	/* Nothing becomes ours meanwhile where handlers wait, and there are no other threads. */
	if ((flags & CLOSE_RANGE_CLOEXEC) || (plx_px_alone() && first_ours(first, last) < 0))
		return plx_sys3(SYS_close_range, first, last, flags);
	plx_change_begin();
	for (int fd = first_ours(first, last); fd >= 0; fd = plx_table_next_to(fd + 1, last)) {
		plx_bell_take(fd);
		eventfd_goes(fd, true);
		if (live_epoll_at(fd))
			plx_px_escape(fd, PLX_OUT_CLOSED);
		f = number_out(fd);
		if (f)
			pollux_file_put(f);
	}
	PLX_DELAY(range_before_kernel);
	r = plx_sys3(SYS_close_range, first, last, flags);
	plx_change_end();
	return r;
}

/*
 * Numbers that were closed past us: by an instruction of the program's own, or within libc. The
 * entry is left, and goes when the number is given out again.
 *
 * Argument. Who closes a number of ours takes its entry away first, so the kernel gives out none
 * that has one, unless the program closes the number that it is just being given, and something of
 * ours comes to be there: then the kernel has at the number what the table says. An epoll is as
 * good without its entry once the kernel has its items; so is a timer of which the kernel has the
 * setting. An eventfd is there if the number is that of one.
 */
void plx_px_given(int fd)
{
	PLX_INSIDE();
	struct pollux_file *f, *mine;

	if (!plx_fd_ours(fd) || PLX_INJECTED(forgotten_number))
		return;
	plx_bell_lost(fd);
	f = mine = plx_table_get(fd);
	if (!f)
		return;
	PLX_DELAY(given_entry);
	if (f->kind == PLX_KIND_EPOLL)
		plx_epoll_escape(f, PLX_OUT_NUMBER);
	if ((f->kind == PLX_KIND_TIMER && !plx_timer_lost(f)) ||
	    (f->kind == PLX_KIND_EVENTFD && plx_fd_is_eventfd(fd)))
		mine = NULL;
	/* That of the table. */
	if (mine && plx_cas(plx_table_slot(fd), &mine, NULL))
		pollux_file_put(f);
	pollux_file_put(f);
}

/*
 * A duplicate of fd, made by fcntl's cmd. That of an epoll means the same epoll, unless the number
 * has changed hands meanwhile, so that nobody knows what has been duplicated.
 */
static long dup_any(int fd, int cmd, long from)
{
	uint32_t since = plx_changes();
	struct pollux_file *f;
	long n;

	if (plx_fd_kind(fd) != PLX_KIND_EPOLL)
		plx_px_escape(fd, PLX_OUT_DUP);
	f = plx_table_get(fd);
	if (!f || f->kind != PLX_KIND_EPOLL) {
		if (f)
			pollux_file_put(f);
		return PLX_PASS;
	}
	PLX_DELAY(dup_found);
	n = plx_sys3(SYS_fcntl, fd, PLX_INJECTED(wrong_flag) ? F_DUPFD_CLOEXEC : cmd, from);
	if (n >= 0 && plx_table_peek(fd) == f && !plx_numbers_have(&plx_numbers_barred, (int)n) &&
	    plx_table_made((int)n, f, since))
		return n;
	/* By a number without an entry the count would not be seen. */
	if (n >= 0)
		plx_epoll_escape(f, PLX_OUT_NUMBER);
	pollux_file_put(f);
	return n;
}

long plx_px_dup(int fd)
{
	PLX_INSIDE();
	return dup_any(fd, F_DUPFD, 0);
}

/*
 * Two numbers of an object, of an epoll as well, that dup2 or dup3 has made are two of the
 * kernel's: both objects are the kernel's for good before, and newfd has no entry.
 */
long plx_px_dup3(int oldfd, int newfd, int flags)
{
	PLX_INSIDE();
	bool ours = plx_fd_ours(oldfd) || plx_fd_ours(newfd);
	struct pollux_file *f = NULL;
	long r;

	if (flags != -1 && (oldfd == newfd || (flags & ~O_CLOEXEC)))
		return PLX_PASS;
	if (oldfd == newfd) {
		plx_bell_take(oldfd);
		return PLX_PASS;
	}
	/* Neither becomes ours meanwhile: handlers wait. */
	if (plx_px_alone() && !ours)
		return plx_sys3(SYS_dup3, oldfd, newfd, flags == -1 ? 0 : flags);
	/* Nothing is written back for a call that fails. */
	if (newfd < 0 || (ours && plx_sys2(SYS_fcntl, oldfd, F_GETFD) < 0))
		return PLX_PASS;
	plx_change_begin();
	/* What becomes ours from now on has met the change. */
	if (plx_fd_ours(oldfd) || plx_fd_ours(newfd)) {
		plx_px_escape_pair(oldfd, newfd, PLX_OUT_DUP);
		f = number_out(newfd);
	}
	PLX_DELAY(dup_before_kernel);
	r = plx_sys3(SYS_dup3, oldfd, newfd, flags == -1 ? 0 : flags);
	PLX_DELAY(dup_after_kernel);
	plx_change_end();
	if (f)
		pollux_file_put(f);
	return r;
}

static long pass(int fd)
{
	plx_bell_take(fd);
	return PLX_PASS;
}

/*
 * The program says by a call on fd whether it blocks: it may be cached while it does not. One that
 * was made to block may be from then on, when the kernel has been told.
 */
static long set_blocking(struct pollux_file *f, int fd, bool nonblock, long nr, long cmd, long arg)
{
	long r;

	if (!nonblock)
		plx_px_escape(fd, PLX_OUT_FCNTL);
	if (!nonblock || plx_eventfd_served(f))
		return PLX_PASS;
	r = plx_sys3(nr, fd, cmd, arg);
	if (r == 0)
		plx_eventfd_unblocked(plx_file_eventfd(f));
	return r;
}

static long fcntl_eventfd(struct pollux_file *f, int fd, int cmd, long arg)
{
	switch (cmd) {
	case F_GETFL:
	case F_GETFD:
	case F_SETFD:
		return PLX_PASS;
	case F_SETFL:
		return set_blocking(f, fd, (arg & (O_NONBLOCK | O_ASYNC)) == O_NONBLOCK, SYS_fcntl,
				    F_SETFL, arg);
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
		return pass(fd);
	if (cmd == F_SETFD && !(arg & FD_CLOEXEC) && plx_becomes_inherited(fd))
		plx_px_escape(fd, PLX_OUT_FCNTL);
	if (f->kind == PLX_KIND_EVENTFD)
		r = fcntl_eventfd(f, fd, cmd, arg);
	else if (f->kind == PLX_KIND_TIMER && cmd != F_GETFD && cmd != F_SETFD && cmd != F_GETFL)
		plx_px_escape(fd, PLX_OUT_FCNTL);
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
		return pass(fd);
	if (req == FIONCLEX && plx_becomes_inherited(fd))
		plx_px_escape(fd, PLX_OUT_IOCTL);
	if (f->kind == PLX_KIND_TIMER && req != FIOCLEX && req != FIONCLEX)
		plx_px_escape(fd, PLX_OUT_IOCTL);
	else if (f->kind == PLX_KIND_EVENTFD && req == FIONBIO &&
		 !plx_copy_in(&on, arg, sizeof(on)))
		r = set_blocking(f, fd, on, SYS_ioctl, FIONBIO, (long)&on);
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
