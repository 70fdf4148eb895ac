/* SPDX-License-Identifier: MIT */
/*
 * sendmsg, sendmmsg   descriptors in SCM_RIGHTS messages escape first
 *
 * Received descriptors have numbers that were free, hence not in the table.
 */
#include "preload/preload.h"

void plx_escape_message(const struct msghdr *m)
{
	struct msghdr copy;

	if (plx_copy_in(&copy, m, sizeof(copy)) == 0 && copy.msg_controllen && copy.msg_control)
		plx_px_escape_msg(&copy);
}

void plx_escape_messages(const struct mmsghdr *m, unsigned int n)
{
	/* The kernel sends no more than this at a time. */
	if (n > UIO_MAXIOV)
		n = UIO_MAXIOV;
	for (unsigned int i = 0; i < n; i++)
		plx_escape_message(&m[i].msg_hdr);
}

PLX_EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	if (plx_any())
		plx_escape_message(m);
	return plx_real.sendmsg(fd, m, flags);
}

PLX_EXPORT int sendmmsg(int fd, struct mmsghdr *m, unsigned int n, int flags)
{
	if (plx_any())
		plx_escape_messages(m, n);
	return plx_real.sendmmsg(fd, m, n, flags);
}
