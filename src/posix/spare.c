/* SPDX-License-Identifier: MIT */
/*
 * The kernel eventfd that is always there.
 *
 * To become a kernel object an eventfd needs a kernel eventfd, and that needs a number. When
 * the program has used up its own, one above its soft limit will do (plx_limit_raise). With
 * a soft limit as high as the hard one there is none, so one kernel eventfd of each kind, plain
 * and semaphore, is kept from the first adoption of its kind on; without it nothing is
 * adopted.
 *
 * A spill that has to use it gives it away. If it did so in a table that is full, the number
 * is free again once the kernel object stands under the numbers of the program, and the next
 * one is made there at once. Another thread that finds itself without descriptors may take
 * that number first; then there is no spare until somebody adopts, or spills, again.
 *
 * A spare above a hard limit that the program lowers would serve once: its number cannot be had
 * again. Everything becomes a kernel object before that, and spares are made afresh.
 *
 * After a fork the kept ones would be shared with the parent: the child makes its own.
 */
#include "posix/front.h"

#include <sys/eventfd.h>

#include "base/sys.h"

static PLX_FORK_DATA int spares[2] = {-1, -1};
/* In the child of a fork: they are the parent's. */
static PLX_FORK_PAGE bool inherited;
static plx_lock_t spare_lock;

static unsigned int spare_flags(bool semaphore)
{
	return EFD_NONBLOCK | EFD_CLOEXEC | (semaphore ? EFD_SEMAPHORE : 0);
}

bool plx_spare_keep(bool semaphore)
{
	int *spare = &spares[semaphore];

	if (plx_unlikely(inherited))
		return false;
	if (plx_likely(plx_load(spare) >= 0))
		return true;
	plx_lock(&spare_lock, PLX_RANK_TABLE);
	if (plx_load(spare) < 0) {
		int fd;

		plx_hidden_lock();
		fd = plx_kernel_eventfd(spare_flags(semaphore));
		if (fd >= 0)
			plx_fd_hide(fd, spare);
		plx_hidden_unlock();
	}
	plx_unlock(&spare_lock, PLX_RANK_TABLE);
	return plx_load(spare) >= 0;
}

int plx_spare_take(bool semaphore)
{
	return inherited ? -1 : plx_fd_reveal(&spares[semaphore]);
}

void plx_spare_renew(bool semaphore)
{
	int fd;

	plx_hidden_lock();
	fd = plx_sys2(SYS_eventfd2, 0, spare_flags(semaphore));
	if (fd >= 0 &&
	    (plx_load(&spares[semaphore]) >= 0 || plx_fd_hide_here(fd, &spares[semaphore]) < 0))
		plx_sys1(SYS_close, fd);
	plx_hidden_unlock();
}

bool plx_spare_lasts(bool semaphore)
{
	struct rlimit lim;
	int fd = plx_load(&spares[semaphore]);

	return !inherited && fd >= 0 &&
	       plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &lim) == 0 &&
	       (rlim_t)fd < lim.rlim_max;
}

bool plx_spare_beyond(rlim_t limit)
{
	for (int i = 0; i < 2; i++) {
		int fd = plx_load(&spares[i]);

		if (fd >= 0 && (rlim_t)fd >= limit)
			return true;
	}
	return false;
}

PLX_CHILD_CODE void plx_spare_drop(void)
{
	for (int i = 0; i < 2; i++)
		plx_fd_unhide(&spares[i]);
}

PLX_CHILD_CODE void plx_spare_after_fork_child(void)
{
	plx_lock_reset(&spare_lock);
	inherited = true;
}

PLX_CHILD_CODE void plx_spare_after_fork_child_clean(void)
{
	plx_spare_drop();
	inherited = false;
}
