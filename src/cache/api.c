/* SPDX-License-Identifier: MIT */
/*
 * The public face of the POSIX layer: errno exists here and not below.
 */
#include <pollux/posix.h>

#include <fcntl.h>

#include "base/clock.h"
#include "base/sys.h"
#include "cache/cold.h"
#include "cache/posix.h"
#include "cache/quick.h"
#include "cache/uaccess.h"

static PLX_LARGE struct sigaction guard_old[NSIG];

__attribute__((constructor)) static void api_init(void)
{
	plx_px_init();
}

/* r, unless the call is not ours: then what libc makes of it. */
#define API_RETURN(r, libc_call)                                                                   \
	do {                                                                                       \
		long r_ = (plx_px_begin(), (r));                                                   \
		return r_ == PLX_PASS ? (libc_call) : plx_result(r_);                              \
	} while (0)

int pollux_epoll_create1(int flags)
{
	return plx_result(plx_px_epoll_create1(flags));
}

int pollux_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	API_RETURN(plx_px_epoll_ctl(epfd, op, fd, event), epoll_ctl(epfd, op, fd, event));
}

static int wait_now(int epfd, struct epoll_event *events, int maxevents)
{
	API_RETURN(plx_px_epoll_wait(epfd, events, maxevents, &(const struct timespec){0}, NULL),
		   epoll_wait(epfd, events, maxevents, 0));
}

int pollux_epoll_pwait(int epfd, struct epoll_event *events, int maxevents, int timeout,
		       const sigset_t *sigmask)
{
	struct timespec ts = plx_timespec_ms(timeout);

	if (!timeout && !sigmask) {
		/* What it writes in a section is to be wiped in the child of a fork. */
		(void)plx_px_begin();
		return plx_px_look(epfd, events, maxevents, wait_now);
	}
	API_RETURN(plx_px_epoll_wait(epfd, events, maxevents, timeout < 0 ? NULL : &ts, sigmask),
		   epoll_pwait(epfd, events, maxevents, timeout, sigmask));
}

int pollux_epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	return pollux_epoll_pwait(epfd, events, maxevents, timeout, NULL);
}

int pollux_epoll_pwait2(int epfd, struct epoll_event *events, int maxevents,
			const struct timespec *timeout, const sigset_t *sigmask)
{
	struct timespec ts;

	if (timeout) {
		if (plx_copy_in(&ts, timeout, sizeof(ts)))
			return plx_result(-EFAULT);
		if (plx_timespec_bad(&ts))
			return plx_result(-EINVAL);
	}
	API_RETURN(plx_px_epoll_wait(epfd, events, maxevents, timeout ? &ts : NULL, sigmask),
		   epoll_pwait2(epfd, events, maxevents, timeout, sigmask));
}

int pollux_eventfd(unsigned int initval, int flags)
{
	long r = plx_px_eventfd(initval, flags);

	return plx_result(r == PLX_PASS ? plx_sys2(SYS_eventfd2, initval, flags) : r);
}

ssize_t pollux_read(int fd, void *buf, size_t count)
{
	API_RETURN(plx_px_read(fd, buf, count), read(fd, buf, count));
}

static __attribute__((noinline)) ssize_t write_frame(int fd, const void *buf, size_t count)
{
	API_RETURN(plx_px_write(fd, buf, count), write(fd, buf, count));
}

ssize_t pollux_write(int fd, const void *buf, size_t count)
{
	return plx_px_write_quick(fd, buf, count, write_frame);
}

int pollux_close(int fd)
{
	API_RETURN(plx_px_close(fd), close(fd));
}

int pollux_dup(int fd)
{
	API_RETURN(plx_px_dup(fd), dup(fd));
}

int pollux_dup2(int oldfd, int newfd)
{
	API_RETURN(plx_px_dup3(oldfd, newfd, -1), dup2(oldfd, newfd));
}

int pollux_dup3(int oldfd, int newfd, int flags)
{
	API_RETURN(plx_px_dup3(oldfd, newfd, flags), dup3(oldfd, newfd, flags));
}

int pollux_fcntl(int fd, int cmd, long arg)
{
	API_RETURN(plx_px_fcntl(fd, cmd, arg), fcntl(fd, cmd, arg));
}

int pollux_poll(struct pollfd *fds, nfds_t nfds, int timeout)
{
	API_RETURN(plx_px_poll(fds, nfds, timeout), poll(fds, nfds, timeout));
}

int pollux_select(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
		  struct timeval *timeout)
{
	struct timeval tv = {0}, left;
	int r;

	if (timeout && plx_copy_in(&tv, timeout, sizeof(tv)))
		return plx_result(-EFAULT);
	left = tv;
	plx_px_select(nfds, readfds, writefds, exceptfds);
	r = select(nfds, readfds, writefds, exceptfds, timeout ? &left : NULL);
	/* A time-out in read-only memory is no error. */
	if (timeout && memcmp(&left, &tv, sizeof(tv)))
		(void)plx_copy_out(timeout, &left, sizeof(left));
	return r;
}

pid_t pollux_fork(void)
{
	pid_t pid;

	if (plx_px_fork_known)
		return fork();
	plx_px_fork_prepare();
	pid = fork();
	if (pid)
		plx_px_fork_parent();
	else
		plx_px_fork_child();
	return pid;
}

void pollux_escape(int fd)
{
	if (fd < 0)
		plx_px_escape_all(PLX_OUT_SYSCALL);
	else
		plx_px_escape(fd, PLX_OUT_SYSCALL);
}

int pollux_fd_served(int fd)
{
	return plx_cold_serves(fd) || plx_px_fd_served(fd);
}

static void guard_handler(int sig, siginfo_t *info, void *context)
{
	const struct sigaction *old = &guard_old[sig];

	if (plx_uaccess_fixup(context))
		return;
	if (old->sa_flags & SA_SIGINFO) {
		old->sa_sigaction(sig, info, context);
	} else if (old->sa_handler == SIG_DFL || old->sa_handler == SIG_IGN) {
		/* The fault repeats on return, with nobody in its way. */
		sigaction(sig, old, NULL);
		if (info->si_code <= 0)
			plx_sys3(SYS_tgkill, plx_sys0(SYS_getpid), plx_sys0(SYS_gettid), sig);
	} else {
		old->sa_handler(sig);
	}
}

int pollux_guard_faults(void)
{
	struct sigaction sa = {.sa_sigaction = guard_handler,
			       .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
	static const int signals[] = {SIGSEGV, SIGBUS};

	sigemptyset(&sa.sa_mask);
	for (int i = 0; i < 2; i++) {
		struct sigaction old;

		if (sigaction(signals[i], NULL, &old) < 0)
			return -1;
		if ((old.sa_flags & SA_SIGINFO) && old.sa_sigaction == guard_handler)
			continue;
		guard_old[signals[i]] = old;
		if (sigaction(signals[i], &sa, NULL) < 0)
			return -1;
	}
	return 0;
}
