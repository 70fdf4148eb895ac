/* SPDX-License-Identifier: MIT */
/*
 * splice, tee, vmsplice, sendfile, sendfile64, copy_file_range
 *
 * Whatever of ours they name escapes first; the kernel then does what it does.
 */
#include "preload/preload.h"

#include <fcntl.h>
#include <sys/sendfile.h>

PLX_EXPORT ssize_t splice(int in, off64_t *in_off, int out, off64_t *out_off, size_t n,
			  unsigned int flags)
{
	plx_escape_if_ours(in, PLX_OUT_SPLICE);
	plx_escape_if_ours(out, PLX_OUT_SPLICE);
	return plx_real.splice(in, in_off, out, out_off, n, flags);
}

PLX_EXPORT ssize_t tee(int in, int out, size_t n, unsigned int flags)
{
	plx_escape_if_ours(in, PLX_OUT_SPLICE);
	plx_escape_if_ours(out, PLX_OUT_SPLICE);
	return plx_real.tee(in, out, n, flags);
}

PLX_EXPORT ssize_t vmsplice(int fd, const struct iovec *iov, size_t cnt, unsigned int flags)
{
	plx_escape_if_ours(fd, PLX_OUT_SPLICE);
	return plx_real.vmsplice(fd, iov, cnt, flags);
}

PLX_EXPORT ssize_t sendfile(int out, int in, off_t *off, size_t n)
{
	plx_escape_if_ours(in, PLX_OUT_SPLICE);
	plx_escape_if_ours(out, PLX_OUT_SPLICE);
	return plx_real.sendfile(out, in, off, n);
}
PLX_ALIAS(sendfile64, sendfile);

PLX_EXPORT ssize_t copy_file_range(int in, off64_t *in_off, int out, off64_t *out_off, size_t n,
				   unsigned int flags)
{
	plx_escape_if_ours(in, PLX_OUT_SPLICE);
	plx_escape_if_ours(out, PLX_OUT_SPLICE);
	return plx_real.copy_file_range(in, in_off, out, out_off, n, flags);
}
