/* SPDX-License-Identifier: MIT */
/*
 * The numbers of doorbells.
 *
 * A doorbell is an eventfd whose number the program does not know. Its entry in the table says so,
 * and calls of the program that name the number give it up before they go to the kernel, which
 * knows no such descriptor then.
 *
 *   bell_lock   held from before the kernel gives us a number until its entry stands, where an
 *               entry goes and its number is closed, and over a fork, so that the child finds
 *               neither half
 *   making      written under bell_lock: set while there may be a number without an entry
 *   bell.pe     atomic; valid in an RCU section that has read it
 *
 * Argument. (1) dup2, dup3 and close_range end whatever has a number. They say so by a change
 * (table.h) and then wait while `making` is set, which is for three system calls that do not block;
 * who makes a doorbell sets `making`, and makes none if a change is under way. So one of them sees
 * the other: there is no number without an entry when they look at the table, and none comes to be
 * before they are done. Neither holds anything over the program's own call, which may last. (2) Who
 * uses the number counts itself in epoll.ringers, a full barrier, and reads epoll.doorbell. Who
 * gives the doorbell up takes it from there, a full barrier, and waits until nobody is counted
 * before the number is closed. Not for a grace period: a look (wait.c) is in an RCU section while
 * the kernel stores events, and the thread that provides that memory may be the one that gives the
 * doorbell up, in a fork, say. (3) Of
 * several who close it one finds its entry, under the lock, and none while an epoll has it: it is
 * published under the lock, if its entry stands, and taken from its epoll before that is waited
 * for. (4) A close of a number that the program has not been given, beside the making, may end the
 * doorbell before the kernel's epoll has heard of it: then that refuses it, and there is none. The
 * model is tests/model/numbers.pml.
 *
 * The number is higher than those of small programs, and lower than 64 if there is one: each
 * process has room for so many. A higher one makes the kernel's table of descriptors longer. In a
 * process of several threads that takes a grace period of the kernel's, of 10 ms or more; fork
 * copies the table, and select looks at numbers that it has no room for otherwise.
 */
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "base/inject.h"
#include "base/sys.h"
#include "cache/epoll.h"

#define HIGH 40

static PLX_FORK_PAGE plx_lock_t bell_lock;
static uint32_t making;

uint32_t plx_never_ready(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	(void)wanted;
	return 0;
}

static struct plx_bell *file_bell(struct pollux_file *f)
{
	return plx_container_of(f, struct plx_bell, file);
}

static void bell_free(struct pollux_file *f)
{
	plx_free(file_bell(f));
}

static const struct pollux_file_ops bell_ops = {
	.size = sizeof(bell_ops), .poll = plx_never_ready, .free = bell_free};

int plx_fd_high(void)
{
	return HIGH;
}

void plx_change_begin(void)
{
	plx_xadd(&plx_changes_begun, 1);
	/* Partners: plx_bell_new, plx_changed. */
	plx_mb_after_rmw();
	for (int tries = 0; plx_load_acq(&making); tries++)
		plx_await_step(tries);
}

void plx_change_end(void)
{
	plx_xadd(&plx_changes_over, 1);
}

PLX_CHILD_CODE void plx_bells_lock(void)
{
	plx_lock(&bell_lock, PLX_RANK_BELL);
}

PLX_CHILD_CODE void plx_bells_unlock(void)
{
	plx_unlock(&bell_lock, PLX_RANK_BELL);
}

/* bell_lock held. A number that does not make the kernel's table longer, or a negative errno. */
static int high_eventfd(void)
{
	struct rlimit lim;
	rlim_t from = HIGH;
	int low, n;

	if (plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &lim) < 0)
		return -EMFILE;
	if (lim.rlim_cur < HIGH + HIGH / 4)
		from = lim.rlim_cur - lim.rlim_cur / 4;
	low = plx_sys2(SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (low < 0)
		return low;
	n = plx_sys3(SYS_fcntl, low, F_DUPFD_CLOEXEC, from);
	plx_sys1(SYS_close, low);
	/* All before it are taken. */
	if (n >= 1024 && !(n & (n - 1))) {
		plx_sys1(SYS_close, n);
		n = -EMFILE;
	}
	return n;
}

int plx_bell_new(struct plx_bell **made)
{
	struct plx_bell *b = plx_zalloc(sizeof(*b));
	struct pollux_file *old = NULL;
	int r;

	*made = NULL;
	if (!b)
		return -ENOMEM;
	plx_file_init(&b->file, &bell_ops);
	b->file.kind = PLX_KIND_BELL;
	plx_bells_lock();
	plx_store(&making, 1);
	/* Partner: plx_change_begin. */
	plx_mb();
	b->number = plx_changed(plx_changes()) ? -EAGAIN : high_eventfd();
	PLX_DELAY(bell_no_entry);
	if (b->number >= 0 && plx_table_reserve(b->number) == 0) {
		/* Left by a close that went past us. */
		pollux_file_get(&b->file);
		old = plx_table_set(b->number, &b->file);
		*made = b;
	} else if (b->number >= 0) {
		plx_sys1(SYS_close, b->number);
	}
	plx_store_rel(&making, 0);
	plx_bells_unlock();
	if (old)
		plx_file_put_locked(old);
	if (*made)
		return 0;
	r = b->number < 0 ? b->number : -ENOMEM;
	pollux_file_put(&b->file);
	return r;
}

bool plx_bell_publish(struct plx_bell *b, struct plx_epoll *pe)
{
	bool there;

	plx_bells_lock();
	there = plx_table_peek(b->number) == &b->file;
	if (there) {
		plx_store_rel(&b->pe, pe);
		plx_store_rel(&pe->doorbell, b->number);
	}
	plx_bells_unlock();
	return there;
}

PLX_CHILD_CODE void plx_bell_close(struct plx_bell *b)
{
	struct pollux_file *mine = &b->file;
	bool there;

	PLX_DELAY(bell_close);
	plx_bells_lock();
	there = !plx_load(&b->pe) && plx_table_peek(b->number) == mine;
	if (there) {
		/* Its entry last: who wants the number and finds none goes to the kernel. */
		plx_sys1(SYS_close, b->number);
		PLX_DELAY(bell_closed);
		there = plx_cas(plx_table_slot(b->number), &mine, NULL);
	}
	plx_bells_unlock();
	if (there)
		plx_file_put_locked(&b->file);
}

struct plx_bell *plx_bell_get(int fd, struct pollux_file **epoll)
{
	struct pollux_file *f;
	struct plx_epoll *pe;

	*epoll = NULL;
	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (f && (f->kind != PLX_KIND_BELL || !pollux_file_tryget(f)))
		f = NULL;
	pe = f ? plx_load_acq(&file_bell(f)->pe) : NULL;
	if (pe && pollux_file_tryget(&pe->ep->file))
		*epoll = &pe->ep->file;
	plx_rcu_read_unlock();
	return f ? file_bell(f) : NULL;
}

void plx_epoll_unbell(struct plx_epoll *pe)
{
	struct plx_bell *b;

	if (plx_xchg(&pe->doorbell, -1) < 0)
		return;
	b = pe->bell;
	/* Partner: number_get. Nobody else closes it before that is over. */
	plx_await_zero(&pe->ringers);
	plx_store_rel(&b->pe, NULL);
	plx_bell_close(b);
	plx_file_put_locked(&b->file);
}

PLX_CHILD_CODE void plx_changes_after_fork_child(void)
{
	uint32_t begun = plx_load(&plx_changes_begun);

	if (plx_load(&plx_changes_over) != begun)
		plx_store(&plx_changes_over, begun);
	if (plx_load(&making))
		plx_store(&making, 0);
	plx_lock_reset(&bell_lock);
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f = plx_table_peek(fd);

		if (!f || f->kind != PLX_KIND_BELL)
			continue;
		plx_table_set(fd, NULL);
		plx_sys1(SYS_close, fd);
	}
}
