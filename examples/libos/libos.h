/* SPDX-License-Identifier: MIT */
/*
 * A small library OS: the descriptors of a process, in user space.
 *
 * A process has a table of descriptors. What they refer to, open file descriptions, are objects of
 * this program with a pollux_file in each, and the epolls are the library's. No call below makes a
 * system call, but to sleep and to wake who sleeps.
 *
 * Every call takes the process that makes it, and returns what the system call of that name does,
 * or a negative errno.
 */
#ifndef LIBOS_H
#define LIBOS_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/select.h>

struct process;

/* A process without descriptors, which gives out numbers from `first` to `limit`, or NULL. */
struct process *process_new(int first, int limit);

/* Another one that has the same descriptors, as after fork. */
struct process *process_fork(struct process *p);

/*
 * From now on several threads make calls of it. Before, no call has to keep a descriptor from being
 * closed under it, which makes it cheaper; kernels do the same.
 */
void process_share(struct process *p);

/* Closes all descriptors. Nobody makes calls of it any more. */
void process_exit(struct process *p);

/* flags: O_NONBLOCK, EFD_SEMAPHORE. */
int sys_eventfd(struct process *p, unsigned int initial, int flags);
int sys_pipe(struct process *p, int fd[2], int flags);
/* Of AF_UNIX, SOCK_STREAM. */
int sys_socketpair(struct process *p, int fd[2], int flags);
/* The file that takes everything, and has no poll operation. */
int sys_open_null(struct process *p);
int sys_epoll_create(struct process *p);
/* For comparison: an epoll that asks all of its files at each wait; level-triggered, not nested. */
int sys_naive_create(struct process *p);

int sys_close(struct process *p, int fd);
int sys_dup(struct process *p, int fd);
int sys_dup2(struct process *p, int from, int to);
/* fcntl: F_DUPFD, F_GETFL, F_SETFL. */
int sys_dupfd(struct process *p, int fd, int lowest);
int sys_getfl(struct process *p, int fd);
int sys_setfl(struct process *p, int fd, int flags);

long sys_read(struct process *p, int fd, void *buf, size_t n);
long sys_write(struct process *p, int fd, const void *buf, size_t n);
int sys_shutdown(struct process *p, int fd, int how);

int sys_epoll_ctl(struct process *p, int epfd, int op, int fd, const struct epoll_event *ev);
int sys_epoll_wait(struct process *p, int epfd, struct epoll_event *ev, int max, int timeout_ms);
int sys_poll(struct process *p, struct pollfd *v, unsigned int n, int timeout_ms);
int sys_select(struct process *p, int n, fd_set *in, fd_set *out, fd_set *ex, int timeout_ms);

#endif
