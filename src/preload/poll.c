/* SPDX-License-Identifier: MIT */
/*
 * poll, ppoll, __poll_chk, __ppoll_chk   if the set holds one of ours
 * select, pselect, ppoll with a mask     what they name is the kernel's before
 */
#include "preload/preload.h"

#include "base/inject.h"

/* The kernel's, while the process is not prepared. */
#define COLD_POLL(call)                                                                            \
	if (plx_note_waits())                                                                      \
	PLX_COLD_SLEEPS(call, .what = PLX_COLD_POLL, .sets = {fds}, .n = n)
#define COLD_SELECT(call)                                                                          \
	if (plx_note_waits())                                                                      \
	PLX_COLD_SLEEPS(call, .what = PLX_COLD_SELECT, .sets = {r, w, e},                          \
			.n = n < 0 ? 0 : (uint64_t)n)

static long poll_ms(struct pollfd *fds, nfds_t n, int timeout)
{
	plx_cancel_point();
	return plx_px_poll(fds, n, timeout);
}

static __attribute__((noinline)) int poll_any(struct pollfd *fds, nfds_t n, int timeout)
{
	COLD_POLL(plx_real.poll(fds, n, timeout));
	if (plx_any())
		PLX_SERVED(poll_ms(fds, n, timeout));
	return plx_real.poll(fds, n, timeout);
}

static __attribute__((noinline)) int look_cold(struct pollfd *fds, nfds_t n)
{
	struct plx_cold_thread *t = plx_cold_looks();

	if (plx_unlikely(!t))
		return poll_any(fds, n, 0);
	plx_cold_say(t, PLX_COLD_POLL, n, fds, NULL, NULL);
	PLX_COLD_LOOK(t, plx_sys_poll(fds, n));
	return poll_any(fds, n, 0);
}

PLX_EXPORT int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	if (PLX_INJECTED(wrong_errno)) {
		errno = EINVAL;
		return -1;
	}
	return plx_cold_any() && !timeout ? look_cold(fds, n) : poll_any(fds, n, timeout);
}
PLX_ALIAS(__poll, poll);

PLX_EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		     const sigset_t *mask)
{
	struct timespec ts;

	COLD_POLL(plx_real.ppoll(fds, n, timeout, mask));
	if (plx_any() && mask) {
		plx_px_poll_leaves(fds, (unsigned int)n);
	} else if (plx_any() &&
		   !(timeout && (plx_copy_in(&ts, timeout, sizeof(ts)) || plx_timespec_bad(&ts)))) {
		plx_cancel_point();
		PLX_SERVED(plx_px_ppoll(fds, n, timeout ? &ts : NULL));
	}
	return plx_real.ppoll(fds, n, timeout, mask);
}

PLX_EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room)
{
	if (room / sizeof(*fds) < n || !(plx_any() || plx_cold_any()))
		return plx_real.__poll_chk(fds, n, timeout, room);
	return poll(fds, n, timeout);
}

PLX_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
			   const sigset_t *mask, size_t room)
{
	if (room / sizeof(*fds) < n || !(plx_any() || plx_cold_any()))
		return plx_real.__ppoll_chk(fds, n, timeout, mask, room);
	return ppoll(fds, n, timeout, mask);
}

static void before_select(int n, const fd_set *r, const fd_set *w, const fd_set *e)
{
	if (plx_any())
		plx_px_select(n, r, w, e);
}

PLX_EXPORT int pselect(int n, fd_set *r, fd_set *w, fd_set *e, const struct timespec *timeout,
		       const sigset_t *mask)
{
	COLD_SELECT(plx_real.pselect(n, r, w, e, timeout, mask));
	before_select(n, r, w, e);
	return plx_real.pselect(n, r, w, e, timeout, mask);
}

PLX_EXPORT int select(int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *timeout)
{
	COLD_SELECT(plx_real.select(n, r, w, e, timeout));
	before_select(n, r, w, e);
	return plx_real.select(n, r, w, e, timeout);
}
PLX_ALIAS(__select, select);
