/* SPDX-License-Identifier: MIT */
/*
 * pollux/poll.h - poll(2) over files and descriptors together, without an epoll
 *
 *	struct pollux_pollfile v[] = {
 *		{.file = &s->file, .events = EPOLLIN},
 *		{.fd = listener, .events = EPOLLIN},
 *	};
 *
 *	n = pollux_files_poll(v, 2, POLLUX_FOREVER, NULL, NULL);
 */
#ifndef POLLUX_POLL_H
#define POLLUX_POLL_H

#include <stddef.h>
#include <stdint.h>

#include <pollux/epoll.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * What is waited for, and what has come of it.
 *
 * file     the file, or NULL: then the descriptor fd is meant, and if that is negative nothing
 * events   what is wanted. EPOLLERR and EPOLLHUP always are; flags such as EPOLLET mean nothing.
 * revents  set by the call: what is true of that. For a descriptor that is not open POLLNVAL of
 *          <poll.h>.
 * reserved is 0.
 */
struct pollux_pollfile {
	struct pollux_file *file;
	int fd;
	uint32_t events;
	uint32_t revents;
	uint32_t reserved;
};

/*
 * Asks all n entries, and if none is ready waits until one is, up to deadline: nanoseconds of
 * CLOCK_MONOTONIC, or of the host's clock. One that has passed, as 0 has, never sleeps; a negative
 * one waits without limit. Returns the number of entries whose revents is not 0, which is 0 when
 * the time is over.
 *
 * mask: the signal mask for the time of the sleep, as ppoll(2) has it, or NULL. host: how the
 * thread sleeps (struct pollux_host), or NULL: as by default. Of a host park, unpark_one
 * and now are called with its arg, and with a bell that belongs to this call; the last of these
 * calls has returned before this one does, so `released` is not needed.
 *
 * A call that does not sleep makes no system call if there are files alone, and one if there are
 * descriptors. A sleep allocates memory, and with descriptors or a mask it takes a descriptor for
 * as long as it takes. While it sleeps the call has a reference on each file. Each entry asks for
 * itself: nothing is taken from anybody, and exclusive watchers are woken as if it were not there.
 *
 * On an error revents mean nothing:
 *   -EINTR       a signal handler ran in the sleep, and nothing was there when the signal came
 *   -EINVAL      more entries than memory has, or more descriptors than RLIMIT_NOFILE permits, with
 *                one of the library's own in a sleep; a host that is not one, as with
 *                pollux_ep_new, whose -E2BIG there is, too
 *   -EOPNOTSUPP  descriptors or a mask together with a host, or the file of an epoll that has had a
 *                descriptor, of which that does not tell: give its pollux_ep_fd in fd
 *   -EBADF       the last reference on a file was dropped before the call had its own
 *   -EOWNERDEAD  a file is that of an epoll of before a fork that has made this process (fork.h)
 *   -ENOMEM, -EMFILE, -ENFILE  for the sleep
 *
 * The caller has a reference on each file. Any thread; not from signal handlers, in a read section,
 * in an operation of a file or a host, nor with a lock held that a poll operation takes. It is no
 * cancellation point. What was done before the pollux_file_wake that makes an entry ready happens
 * before what follows this call, and ThreadSanitizer is told so.
 */
int pollux_files_poll(struct pollux_pollfile *v, size_t n, int64_t deadline, const sigset_t *mask,
		      const struct pollux_host *host);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
