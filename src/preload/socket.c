/* SPDX-License-Identifier: MIT */
/*
 * sendmsg, sendmmsg   descriptors in SCM_RIGHTS messages escape first, and nothing of ours
 *                     takes their numbers until the call is over
 * socket, socketpair, accept, accept4
 *                     what they give is not ours, whatever the table has kept
 *
 * Received descriptors have numbers that were free, hence not in the table.
 */
#include "preload/preload.h"

/* Most messages have none. */
static bool has_control(const struct msghdr *m)
{
	uint64_t at, length;

	_Static_assert(sizeof(m->msg_control) == sizeof(at), "a pointer is read at once");
	_Static_assert(sizeof(m->msg_controllen) == sizeof(length), "and so is a length");
	return plx_load_user64(&at, &m->msg_control) == 0 && at &&
	       plx_load_user64(&length, &m->msg_controllen) == 0 && length;
}

static void passed(int fd)
{
	plx_escape_if_ours(fd, PLX_OUT_SCM_RIGHTS);
}

void plx_escape_message(const struct msghdr *m)
{
	if (has_control(m))
		plx_px_passed(m, passed);
}

void plx_escape_messages(const struct mmsghdr *m, unsigned int n)
{
	/* The kernel sends no more than this at a time. */
	if (n > UIO_MAXIOV)
		n = UIO_MAXIOV;
	for (unsigned int i = 0; i < n; i++) {
		uint64_t length;

		if (plx_load_user64(&length, &m[i].msg_hdr.msg_controllen))
			break;
		plx_escape_message(&m[i].msg_hdr);
	}
}

/*
 * It has been sent, or not: before that the memory is the kernel's to judge. Nothing is prepared
 * from before the call until this is over: who has received a descriptor may use it already.
 */
ssize_t plx_cold_sent(ssize_t r, const struct msghdr *m)
{
	if (r >= 0 && !plx_vfork_child())
		plx_escape_message(m);
	return r;
}

int plx_cold_sent_many(int r, const struct mmsghdr *m)
{
	if (r > 0 && !plx_vfork_child())
		plx_escape_messages(m, (unsigned int)r);
	return r;
}

PLX_EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	PLX_COLD_CHANGES(plx_cold_sent(plx_real.sendmsg(fd, m, flags), m));
	if (plx_any())
		plx_escape_message(m);
	return plx_real.sendmsg(fd, m, flags);
}

PLX_EXPORT int sendmmsg(int fd, struct mmsghdr *m, unsigned int n, int flags)
{
	PLX_COLD_CHANGES(plx_cold_sent_many(plx_real.sendmmsg(fd, m, n, flags), m));
	if (plx_any())
		plx_escape_messages(m, n);
	return plx_real.sendmmsg(fd, m, n, flags);
}

PLX_EXPORT int socket(int domain, int type, int protocol)
{
	return plx_given(plx_real.socket(domain, type, protocol));
}

PLX_EXPORT int socketpair(int domain, int type, int protocol, int fds[2])
{
	int r = plx_real.socketpair(domain, type, protocol, fds);

	if (r == 0) {
		plx_given(fds[0]);
		plx_given(fds[1]);
	}
	return r;
}

/* The headers declare the address as a union of pointers. */
PLX_EXPORT int plx_accept(int fd, struct sockaddr *addr, socklen_t *n) __asm__("accept");
PLX_EXPORT int plx_accept(int fd, struct sockaddr *addr, socklen_t *n)
{
	return plx_given(plx_real.accept(fd, addr, n));
}

PLX_EXPORT int plx_accept4(int fd, struct sockaddr *addr, socklen_t *n,
			   int flags) __asm__("accept4");
PLX_EXPORT int plx_accept4(int fd, struct sockaddr *addr, socklen_t *n, int flags)
{
	return plx_given(plx_real.accept4(fd, addr, n, flags));
}
