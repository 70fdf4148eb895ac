/* SPDX-License-Identifier: MIT */
/*
 * epoll_create, epoll_create1            adopted, or noted
 * epoll_ctl                              if either descriptor is ours
 * epoll_wait, epoll_pwait, epoll_pwait2  if the epoll is ours
 */
#include "preload/preload.h"

static int create(int flags)
{
	int saved = errno;
	long r = plx_px_epoll_create1(flags);

	return r == PLX_PASS ? plx_real.epoll_create1(flags) : plx_result_saved(r, saved);
}

static bool serves(void)
{
	return plx_load_acq(&plx_active) && !plx_vfork_child();
}

int plx_epoll_made(int fd, uint32_t forks)
{
	if (plx_given(fd) >= 0 && !plx_vfork_child())
		plx_cold_note(fd, PLX_COLD_EPOLL, forks);
	return fd;
}

PLX_EXPORT int epoll_create1(int flags)
{
	uint32_t forks = plx_load(&plx_px_forks);

	return serves() ? create(flags) : plx_epoll_made(plx_real.epoll_create1(flags), forks);
}

PLX_EXPORT int epoll_create(int size)
{
	uint32_t forks = plx_load(&plx_px_forks);

	if (size > 0 && serves())
		return create(0);
	return plx_epoll_made(plx_real.epoll_create(size), forks);
}

static __attribute__((noinline)) int ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	int saved = errno;
	long r = plx_vfork_child() ? PLX_PASS : plx_px_epoll_ctl(epfd, op, fd, ev);

	if (r == PLX_PASS)
		return plx_real.epoll_ctl(epfd, op, fd, ev);
	return plx_result_saved(r, saved);
}

PLX_EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	if (op == EPOLL_CTL_ADD && plx_cold_any())
		plx_cold_added(epfd, fd);
	if (plx_fd_ours(epfd) || plx_fd_ours(fd))
		return ctl(epfd, op, fd, ev);
	return plx_real.epoll_ctl(epfd, op, fd, ev);
}

/*
 * The kernel's wait, under way for who prepares. What is written in the table meanwhile is looked
 * at by who calls.
 */
#define COLD_WAIT(epfd, call)                                                                      \
	do {                                                                                       \
		PLX_COLD_CALL(.what = PLX_COLD_WAIT, .fd = (epfd));                                \
		if (plx_cold_any())                                                                \
			return (call);                                                             \
	} while (0)

/* timeout has been copied, mask is the program's. PLX_PASS, or the result with errno set. */
static inline long wait_copied(int epfd, struct epoll_event *ev, int max,
			       const struct timespec *timeout, const sigset_t *mask)
{
	int saved = errno;
	sigset_t copy;
	long r;

	/* libc hands the kernel 8 bytes of the mask. */
	if (plx_vfork_child() || (mask && plx_copy_in(&copy, mask, 8)))
		return PLX_PASS;
	plx_cancel_point();
	r = plx_px_epoll_wait(epfd, ev, max, timeout, mask ? &copy : NULL);
	if (r != PLX_PASS)
		return plx_result_saved(r, saved);
	errno = saved;
	return r;
}

static __attribute__((noinline)) long wait_ours(int epfd, struct epoll_event *ev, int max,
						const struct timespec *timeout,
						const sigset_t *mask)
{
	struct timespec ts;

	if (timeout && (plx_copy_in(&ts, timeout, sizeof(ts)) || plx_timespec_bad(&ts)))
		return PLX_PASS;
	return wait_copied(epfd, ev, max, timeout ? &ts : NULL, mask);
}

static __attribute__((noinline)) long wait_ours_ms(int epfd, struct epoll_event *ev, int max,
						   int timeout, const sigset_t *mask)
{
	struct timespec ts = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000l};

	return wait_copied(epfd, ev, max, timeout < 0 ? NULL : &ts, mask);
}

static __attribute__((noinline)) int wait_or_pass(int epfd, struct epoll_event *ev, int max,
						  int timeout)
{
	long r = wait_ours_ms(epfd, ev, max, timeout, NULL);

	return r == PLX_PASS ? plx_real.epoll_wait(epfd, ev, max, timeout) : r;
}

static __attribute__((noinline)) int wait_cold(int epfd, struct epoll_event *ev, int max,
					       int timeout)
{
	COLD_WAIT(epfd, plx_real.epoll_wait(epfd, ev, max, timeout));
	return epoll_wait(epfd, ev, max, timeout);
}

PLX_EXPORT int epoll_wait(int epfd, struct epoll_event *ev, int max, int timeout)
{
	if (plx_cold_any())
		return wait_cold(epfd, ev, max, timeout);
	return plx_fd_ours(epfd) ? wait_or_pass(epfd, ev, max, timeout)
				 : plx_real.epoll_wait(epfd, ev, max, timeout);
}

PLX_EXPORT int epoll_pwait(int epfd, struct epoll_event *ev, int max, int timeout,
			   const sigset_t *mask)
{
	long r;

	if (plx_cold_any())
		COLD_WAIT(epfd, plx_real.epoll_pwait(epfd, ev, max, timeout, mask));
	r = plx_fd_ours(epfd) ? wait_ours_ms(epfd, ev, max, timeout, mask) : PLX_PASS;

	return r == PLX_PASS ? plx_real.epoll_pwait(epfd, ev, max, timeout, mask) : r;
}

PLX_EXPORT int epoll_pwait2(int epfd, struct epoll_event *ev, int max,
			    const struct timespec *timeout, const sigset_t *mask)
{
	long r;

	if (plx_cold_any())
		COLD_WAIT(epfd, plx_real.epoll_pwait2(epfd, ev, max, timeout, mask));
	r = plx_fd_ours(epfd) ? wait_ours(epfd, ev, max, timeout, mask) : PLX_PASS;

	return r == PLX_PASS ? plx_real.epoll_pwait2(epfd, ev, max, timeout, mask) : r;
}
