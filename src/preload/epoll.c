/* SPDX-License-Identifier: MIT */
/*
 * epoll_create, epoll_create1            adopted, or noted
 * epoll_ctl                              if either descriptor is ours
 * epoll_wait, epoll_pwait, epoll_pwait2  if the epoll is ours
 */
#include "preload/preload.h"

static int create(int flags)
{
	PLX_SERVED(plx_px_epoll_create1(flags));
	return plx_real.epoll_create1(flags);
}

static bool serves(void)
{
	return plx_load_acq(&plx_active) ? !plx_vfork_child() : plx_stats_wanted && plx_may_adopt();
}

static int made(int fd, struct plx_cold_since since)
{
	return plx_note_made(plx_given(fd), PLX_COLD_EPOLL, since);
}

PLX_EXPORT int epoll_create1(int flags)
{
	struct plx_cold_since since = plx_cold_since();

	return serves() ? create(flags) : made(plx_real.epoll_create1(flags), since);
}

PLX_EXPORT int epoll_create(int size)
{
	struct plx_cold_since since = plx_cold_since();

	return size > 0 && serves() ? create(0) : made(plx_real.epoll_create(size), since);
}

static __attribute__((noinline)) int ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	if (!plx_vfork_child())
		PLX_SERVED(plx_px_epoll_ctl(epfd, op, fd, ev));
	return plx_real.epoll_ctl(epfd, op, fd, ev);
}

PLX_EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	if ((plx_cold_noted(epfd) || plx_cold_noted(fd)) && !plx_vfork_child()) {
		int r = plx_cold_ctl(epfd, op, fd, ev, plx_real.epoll_ctl);

		if (r != PLX_PASS)
			return r;
	}
	if (plx_fd_ours(epfd) || plx_fd_ours(fd))
		return ctl(epfd, op, fd, ev);
	return plx_real.epoll_ctl(epfd, op, fd, ev);
}

/* timeout has been copied, mask is the program's. PLX_PASS, or the result with errno set. */
static inline long wait_copied(int epfd, struct epoll_event *ev, int max,
			       const struct timespec *timeout, const sigset_t *mask)
{
	sigset_t copy;

	/* libc hands the kernel 8 bytes of the mask. */
	if (plx_vfork_child() || (mask && plx_copy_in(&copy, mask, 8)))
		return PLX_PASS;
	plx_cancel_point();
	PLX_SERVED(plx_px_epoll_wait(epfd, ev, max, timeout, mask ? &copy : NULL));
	return PLX_PASS;
}

static int wait_now(int epfd, struct epoll_event *ev, int max)
{
	return wait_copied(epfd, ev, max, &(const struct timespec){0}, NULL);
}

long plx_epoll_wait_ts(int epfd, struct epoll_event *ev, int max, const struct timespec *timeout,
		       const sigset_t *mask)
{
	struct timespec ts;

	/* Before anything is copied: nobody may answer a fault. */
	if (plx_vfork_child() ||
	    (timeout && (plx_copy_in(&ts, timeout, sizeof(ts)) || plx_timespec_bad(&ts))))
		return PLX_PASS;
	if (timeout && !ts.tv_sec && !ts.tv_nsec && !mask && !plx_load(&plx_used))
		return plx_px_look(epfd, ev, max, wait_now);
	return wait_copied(epfd, ev, max, timeout ? &ts : NULL, mask);
}

long plx_epoll_wait_ms(int epfd, struct epoll_event *ev, int max, int timeout, const sigset_t *mask)
{
	struct timespec ts = plx_timespec_ms(timeout);

	if (!timeout && !mask && !plx_load(&plx_used))
		return plx_px_look(epfd, ev, max, wait_now);
	return wait_copied(epfd, ev, max, timeout < 0 ? NULL : &ts, mask);
}

static __attribute__((noinline)) int wait_or_pass(int epfd, struct epoll_event *ev, int max,
						  int timeout)
{
	struct timespec ts = plx_timespec_ms(timeout);
	long r = wait_copied(epfd, ev, max, timeout < 0 ? NULL : &ts, NULL);

	return r == PLX_PASS ? plx_real.epoll_wait(epfd, ev, max, timeout) : r;
}

static int look_or_pass(int epfd, struct epoll_event *ev, int max)
{
	return wait_or_pass(epfd, ev, max, 0);
}

static __attribute__((noinline)) int wait_cold(int epfd, struct epoll_event *ev, int max,
					       int timeout)
{
	if (plx_note_waits())
		PLX_COLD_SLEEPS(plx_real.epoll_wait(epfd, ev, max, timeout), .what = PLX_COLD_WAIT,
				.n = plx_cold_word(epfd));
	return epoll_wait(epfd, ev, max, timeout);
}

static __attribute__((noinline)) int look_cold(int epfd, struct epoll_event *ev, int max)
{
	struct plx_cold_thread *t = plx_cold_looks();

	if (plx_unlikely(!t))
		return wait_cold(epfd, ev, max, 0);
	plx_cold_say(t, PLX_COLD_WAIT, plx_cold_word(epfd), NULL, NULL, NULL);
	PLX_COLD_LOOK(t, plx_sys6(PLX_EPOLL_WAIT, epfd, (long)ev, max, 0, 0, _NSIG / 8));
	return epoll_wait(epfd, ev, max, 0);
}

PLX_EXPORT int epoll_wait(int epfd, struct epoll_event *ev, int max, int timeout)
{
	if (plx_cold_any())
		return timeout ? wait_cold(epfd, ev, max, timeout) : look_cold(epfd, ev, max);
	if (!plx_fd_ours(epfd))
		return plx_real.epoll_wait(epfd, ev, max, timeout);
	return timeout || plx_load(&plx_used) ? wait_or_pass(epfd, ev, max, timeout)
					      : plx_px_look(epfd, ev, max, look_or_pass);
}

PLX_EXPORT int epoll_pwait(int epfd, struct epoll_event *ev, int max, int timeout,
			   const sigset_t *mask)
{
	long r;

	if (plx_note_waits())
		PLX_COLD_SLEEPS(plx_real.epoll_pwait(epfd, ev, max, timeout, mask),
				.what = PLX_COLD_WAIT, .n = plx_cold_word(epfd));
	r = plx_fd_ours(epfd) ? plx_epoll_wait_ms(epfd, ev, max, timeout, mask) : PLX_PASS;

	return r == PLX_PASS ? plx_real.epoll_pwait(epfd, ev, max, timeout, mask) : r;
}

PLX_EXPORT int epoll_pwait2(int epfd, struct epoll_event *ev, int max,
			    const struct timespec *timeout, const sigset_t *mask)
{
	long r;

	if (plx_note_waits())
		PLX_COLD_SLEEPS(plx_real.epoll_pwait2(epfd, ev, max, timeout, mask),
				.what = PLX_COLD_WAIT, .n = plx_cold_word(epfd));
	r = plx_fd_ours(epfd) ? plx_epoll_wait_ts(epfd, ev, max, timeout, mask) : PLX_PASS;

	return r == PLX_PASS ? plx_real.epoll_pwait2(epfd, ev, max, timeout, mask) : r;
}
