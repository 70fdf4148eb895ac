/* SPDX-License-Identifier: MIT */
/*
 * Ways out: before an object leaves our sight it becomes a kernel object (evict.c).
 */
#include "cache/evict.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>

#include "base/inside.h"
#include "base/sys.h"
#include "cache/uaccess.h"

static void give_up(struct plx_bell *b, struct pollux_file *epoll)
{
	if (epoll) {
		plx_evict_file(epoll, -1, PLX_OUT_NO_FD);
		plx_epoll_unbell(plx_file_epoll(epoll));
		plx_file_put_locked(epoll);
	}
	plx_bell_close(b);
	plx_file_put_locked(&b->file);
}

void plx_bell_take(int fd)
{
	struct pollux_file *epoll;
	struct plx_bell *b;

	if (plx_likely(!plx_fd_ours(fd)))
		return;
	PLX_INSIDE();
	/* Again where it has been published meanwhile, or another is about to close it. */
	for (int tries = 0; (b = plx_bell_get(fd, &epoll)); tries++) {
		if (tries)
			plx_await_step(tries);
		give_up(b, epoll);
	}
}

void plx_bell_lost(int fd)
{
	struct pollux_file *epoll, *mine;
	struct plx_bell *b = plx_bell_get(fd, &epoll);

	if (!b)
		return;
	mine = &b->file;
	if (plx_cas(plx_table_slot(fd), &mine, NULL))
		plx_file_put_locked(&b->file);
	give_up(b, epoll);
}

void plx_px_escape(int fd, enum plx_way_out why)
{
	PLX_INSIDE();
	struct pollux_file *f = plx_table_get(fd);

	if (!f) {
		plx_bell_take(fd);
		return;
	}
	plx_evict_file(f, fd, why);
	pollux_file_put(f);
}

void plx_px_escape_pair(int fd, int other, enum plx_way_out why)
{
	plx_px_escape(fd, why);
	plx_px_escape(other, why);
}

void plx_epoll_escape(struct pollux_file *f, enum plx_way_out why)
{
	plx_evict_file(f, -1, why);
}

/*
 * So many objects had been adopted when all went out: as long as there are no more, none is in
 * process. (What has not been counted yet when the number is read is counted later.)
 */
static PLX_FORK_PAGE uint64_t all_out;

PLX_CHILD_CODE uint64_t plx_adopted_ever(void)
{
	return plx_stat_sum(PLX_COUNT_EPOLLS) + plx_stat_sum(PLX_COUNT_EVENTFDS) +
	       plx_stat_sum(PLX_COUNT_BLOCKING) + plx_stat_sum(PLX_COUNT_TIMERS);
}

PLX_CHILD_CODE bool plx_nothing_in(uint64_t adopted)
{
	return adopted == plx_load_acq(&all_out);
}

PLX_CHILD_CODE void plx_all_out(uint64_t adopted)
{
	if (!plx_nothing_in(adopted))
		plx_store_rel(&all_out, adopted);
}

/*
 * Some programs come here with every request to a driver: nothing is looked for if
 * nothing has been adopted since the last time.
 */
void plx_px_escape_all(enum plx_way_out why)
{
	PLX_INSIDE();
	uint64_t adopted;

	adopted = plx_adopted_ever();
	if (plx_nothing_in(adopted))
		return;
	plx_evict_table(NULL, why);
	plx_all_out(adopted);
}

PLX_CHILD_CODE bool plx_survives_exec(int fd)
{
	long flags = plx_sys2(SYS_fcntl, fd, F_GETFD);

	return flags >= 0 && !(flags & FD_CLOEXEC);
}

static struct plx_numbers in_actions;

void plx_px_named_in_actions(int fd)
{
	if (fd >= 0)
		plx_numbers_add(&in_actions, fd);
}

bool plx_survives_spawn(int fd)
{
	return plx_numbers_have(&in_actions, fd) || plx_survives_exec(fd);
}

/*
 * Adoption of descriptors ends. That is a change (table.h): who is making something, or preparing
 * the process, and has not seen it, makes no entry. Nor does this go by what has been counted,
 * since that is later than the entry. The model is tests/model/ending.pml.
 */
void plx_px_ends(enum plx_way_out why)
{
	PLX_INSIDE();
	struct plx_masked masked;
	uint64_t adopted;

	plx_or(&plx_px_no_adopt, ~PLX_ADOPT_AIO);
	/* No handler leaves it by a jump. */
	plx_signals_block(&masked);
	plx_change_begin();
	adopted = plx_adopted_ever();
	plx_evict_table(NULL, why);
	plx_all_out(adopted);
	plx_change_end();
	plx_signals_unblock(&masked);
}

/*
 * Most programs open everything close-on-exec. What another thread adopts at this moment the new
 * program inherits or not, as the kernel would have it; so no lock is needed to look.
 */
static PLX_CHILD_CODE bool any_inherited(bool (*survives)(int fd))
{
	bool any = false;

	/* Beside others the table counts: an object is counted after its entry is made. */
	if (plx_px_alone() && plx_nothing_in(plx_adopted_ever()))
		return false;
	for (int fd = plx_table_next(0); fd >= 0 && !any; fd = plx_table_next(fd + 1))
		any = plx_fd_in_process(fd) && survives(fd);
	return any;
}

PLX_CHILD_CODE void plx_px_escape_inherited(bool (*survives)(int fd), enum plx_way_out why)
{
	PLX_INSIDE();
	int saved;

	if (!any_inherited(survives))
		return;
	/* Not before: errno is in a page of libc's code that the child of a fork may not have. */
	saved = errno;
	plx_evict_table(survives, why);
	errno = saved;
}

void plx_px_passed(const struct msghdr *msg, void (*each)(int fd))
{
	PLX_INSIDE();
	struct msghdr m;
	char *control;
	size_t at = 0;

	/* The kernel refuses more. */
	if (plx_copy_in(&m, msg, sizeof(m)) || !m.msg_control || m.msg_controllen > INT_MAX)
		return;
	control = m.msg_control;
	while (at + sizeof(struct cmsghdr) <= m.msg_controllen) {
		struct cmsghdr c;

		if (plx_copy_in(&c, control + at, sizeof(c)) || c.cmsg_len < sizeof(c) ||
		    c.cmsg_len > m.msg_controllen - at)
			return;
		if (c.cmsg_level == SOL_SOCKET && c.cmsg_type == SCM_RIGHTS) {
			for (size_t i = CMSG_LEN(0); i + sizeof(int) <= c.cmsg_len;
			     i += sizeof(int)) {
				int fd;

				if (plx_copy_in(&fd, control + at + i, sizeof(fd)))
					return;
				each(fd);
			}
		}
		at += CMSG_ALIGN(c.cmsg_len);
	}
}

void plx_px_escape_iocbs(long n, void *const *iocbs)
{
	PLX_INSIDE();
	for (long i = 0; i < n; i++) {
		struct iocb cb;
		void *p;

		if (plx_copy_in(&p, iocbs + i, sizeof(p)) || plx_copy_in(&cb, p, sizeof(cb)))
			break;
		if (plx_fd_ours(cb.aio_fildes))
			plx_px_escape(cb.aio_fildes, PLX_OUT_AIO);
		if ((cb.aio_flags & IOCB_FLAG_RESFD) && plx_fd_ours(cb.aio_resfd))
			plx_px_escape(cb.aio_resfd, PLX_OUT_AIO);
	}
}
