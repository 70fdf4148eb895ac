/* SPDX-License-Identifier: MIT */
/*
 * pollux/posix.h - epoll and eventfd by descriptor
 *
 * Each function behaves as the call of the same name without the prefix: results,
 * -1 and errno, cancellation points, restarts. Descriptors are real ones and may be
 * mixed freely: an eventfd made here is served in process, every other descriptor by
 * the kernel, in one wait. Descriptors that are not ours are passed on to libc, so a
 * program may use these names for everything.
 *
 * What leaves the sight of the library has to be announced by the program: call
 * pollux_escape before a descriptor made here is given to libc or the kernel by
 * another way (fork, exec, SCM_RIGHTS, splice, poll, ioctl, ...). The drop-in, which
 * sees these calls, does that by itself. pollux_fork is a fork that does.
 *
 * Safe from any thread. pollux_write and pollux_read on a non-blocking eventfd are
 * safe from signal handlers.
 */
#ifndef POLLUX_POSIX_H
#define POLLUX_POSIX_H

#include <poll.h>
#include <stddef.h>
/* sigset_t. */
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/types.h>

struct timespec;
struct timeval;

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* epoll_create1(2): rules EP-NEW. */
int pollux_epoll_create1(int flags);

/* epoll_ctl(2): rules EP-CTL, EP-ADD, EP-MOD, EP-DEL. */
int pollux_epoll_ctl(int epfd, int op, int fd, struct epoll_event *event);

/* epoll_wait(2): rules EP-ARG, EP-TMO, EP-SIG, EP-WAKE. timeout in milliseconds. */
int pollux_epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout);
int pollux_epoll_pwait(int epfd, struct epoll_event *events, int maxevents, int timeout,
		       const sigset_t *sigmask);
/* timeout to the nanosecond, NULL: without limit. */
int pollux_epoll_pwait2(int epfd, struct epoll_event *events, int maxevents,
			const struct timespec *timeout, const sigset_t *sigmask);

/* eventfd(2): rules EFD. */
int pollux_eventfd(unsigned int initval, int flags);

ssize_t pollux_read(int fd, void *buf, size_t count);
ssize_t pollux_write(int fd, const void *buf, size_t count);
int pollux_close(int fd);
int pollux_dup(int fd);
int pollux_dup2(int oldfd, int newfd);
int pollux_dup3(int oldfd, int newfd, int flags);
int pollux_fcntl(int fd, int cmd, long arg);
int pollux_poll(struct pollfd *fds, nfds_t nfds, int timeout);
/* What the sets name is the kernel's from then on. */
int pollux_select(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds,
		  struct timeval *timeout);

/* fork(2); parent and child go on with kernel objects (EP-KEY-09, EFD-19). */
pid_t pollux_fork(void);

/*
 * The object behind fd becomes a kernel object of the same number and state, for
 * good; nothing happens if it is one already. fd -1: everything that is served in
 * process. Not from signal handlers.
 */
void pollux_escape(int fd);

/*
 * 1 if fd is served in process at this moment, else 0. An eventfd is if it is cached, or is going
 * to be when it is written to often.
 */
int pollux_fd_served(int fd);

/*
 * Makes bad pointers given to these functions come out as EFAULT, as from the kernel,
 * instead of a fault: installs a handler for SIGSEGV and SIGBUS, which passes on
 * every fault that is not ours to the handler that was installed before. 0 or -1.
 */
int pollux_guard_faults(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
