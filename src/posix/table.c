/* SPDX-License-Identifier: MIT */
#include "posix/table.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>

#include "base/sys.h"

/*
 * Where descriptors of our own live. High enough to stay out of the program's way
 * (the lowest free number is the program's, EP-NEW-05), low enough that the kernel's
 * own table stays small: fork copies it.
 */
#define HIDDEN_BASE 4000
#define HIDDEN_ROOM 256

struct hidden {
	struct pollux_file file;
	int *owner;
	plx_moved_t moved;
	/* The process that keeps it for itself, or 0. */
	int pid;
	/* Both sides of a fork may have it. */
	bool shared;
};

PLX_LARGE struct pollux_file *plx_table_first[PLX_TABLE_CHUNK] __attribute__((aligned(4096)));
/* The first one is never looked up here. */
PLX_LARGE struct pollux_file **plx_table_chunks[PLX_TABLE_CHUNKS];
/* One more than the highest chunk that there is or is about to be. */
static int chunks_end = 1;
PLX_FORK_PAGE plx_lock_t plx_table_lock;

PLX_FORK_PAGE uint32_t plx_spilling;
PLX_FORK_PAGE uint32_t plx_moving;
__thread bool plx_mover;

/*
 * Changing a number is a system call and a store into the table, and a spill must find both done
 * or neither. So it sets plx_spilling, and waits for all who have begun before they could see it.
 * They are not waited for by a grace period: most of such a change is the system call, threads
 * are preempted at its end more than anywhere else, and all who need grace periods would wait for
 * that. Instead each thread counts in a record of its own that it is inside.
 *
 *   plx_spilling     set and cleared under plx_table_lock
 *   plx_moving       the same, but cleared before a fork that the lock is kept for
 *   changer.inside   written by its thread; from 0 only within an RCU section that has seen
 *                    plx_spilling 0
 *   changer.taken    atomic; changers: never shorter, who comes takes over one that was left
 *
 * Argument. Who spills sets plx_spilling, a grace period follows, then each record is waited for.
 * (1) A thread that has seen 0 stored inside before its RCU section ended; if the section began
 * before the grace period, it ended, with its stores visible, before that did. So the record is
 * on the list and inside is seen, until its thread releases it after its change. (2) A section that
 * began later sees plx_spilling, since it was set before, and its thread waits for the lock. (3)
 * So no inside rises once the grace period is over, and each that was up is waited for once. A
 * thread cannot spill while it is inside itself: nothing in between leads there.
 * The model is tests/model/changers.pml.
 */
static struct plx_changer *changers;
__thread struct plx_changer *plx_changer;
static pthread_key_t changer_key;
static pthread_once_t changer_once = PTHREAD_ONCE_INIT;

static void changer_exit(void *p)
{
	struct plx_changer *c = p;

	plx_changer = NULL;
	plx_store_rel(&c->taken, 0);
}

static void changer_init(void)
{
	PLX_INVARIANT(pthread_key_create(&changer_key, changer_exit) == 0,
		      "a thread key for changes of the descriptor table can be had");
}

void plx_table_init(void)
{
	pthread_once(&changer_once, changer_init);
}

static struct plx_changer *changer_find(void)
{
	struct plx_changer *c, *first;

	for (c = plx_load_acq(&changers); c; c = c->next) {
		uint32_t free = 0;

		if (!plx_load(&c->taken) && plx_cas(&c->taken, &free, 1))
			return c;
	}
	c = plx_mem_get_zero(sizeof(*c));
	if (!c)
		return NULL;
	c->taken = 1;
	first = plx_load(&changers);
	do {
		c->next = first;
	} while (!plx_cas(&changers, &first, c));
	return c;
}

/* The calling thread has a record from now on, unless there is no memory. */
static bool changer_begin(void)
{
	struct plx_changer *c;

	plx_table_init();
	c = changer_find();
	if (c && pthread_setspecific(changer_key, c)) {
		plx_store_rel(&c->taken, 0);
		c = NULL;
	}
	plx_changer = c;
	return c;
}

bool plx_table_enter_slow(void)
{
	if (!plx_changer && changer_begin())
		return plx_table_enter();
	plx_lock(&plx_table_lock, PLX_RANK_TABLE);
	return true;
}

/*
 * Few change a number at a time, and most of them are in a short system call. One may last: a
 * dup3 that closes another file first.
 */
void plx_table_await(void)
{
	for (struct plx_changer *c = plx_load_acq(&changers); c; c = c->next)
		plx_await_zero(&c->inside);
}

void plx_table_settle(void)
{
	while (plx_table_moving())
		sched_yield();
}

void plx_table_after_fork_child(void)
{
	/* Whoever was inside is not here. */
	for (struct plx_changer *c = plx_load_acq(&changers); c; c = c->next)
		if (plx_load(&c->inside))
			plx_store(&c->inside, 0);
}

struct pollux_file *plx_table_get(int fd)
{
	struct pollux_file *f;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (f && (f->kind == PLX_KIND_HIDDEN || !pollux_file_tryget(f)))
		f = NULL;
	plx_rcu_read_unlock();
	return f;
}

bool plx_fd_hidden(int fd)
{
	struct pollux_file *f;
	bool hidden;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	hidden = f && f->kind == PLX_KIND_HIDDEN;
	plx_rcu_read_unlock();
	return hidden;
}

PLX_CHILD_CODE struct pollux_file *plx_table_set(int fd, struct pollux_file *f)
{
	f = plx_xchg(plx_table_slot(fd), f);
	return plx_is_token(f) ? NULL : f;
}

/* Chunks are never freed; a race for one is decided by the swap. */
int plx_table_reserve(int fd)
{
	struct pollux_file ***at, **none = NULL, **p;
	int end = plx_load(&chunks_end);

	if (fd < PLX_TABLE_CHUNK)
		return 0;
	if (fd >= PLX_TABLE_CHUNK * PLX_TABLE_CHUNKS)
		return -EMFILE;
	at = &plx_table_chunks[fd / PLX_TABLE_CHUNK];
	if (plx_load_acq(at))
		return 0;
	p = plx_mem_get_zero(PLX_TABLE_CHUNK * sizeof(*p));
	if (!p)
		return -ENOMEM;
	/* First: whoever finds the chunk uses it. */
	while (end < fd / PLX_TABLE_CHUNK + 1 &&
	       !plx_cas(&chunks_end, &end, fd / PLX_TABLE_CHUNK + 1))
		;
	if (!plx_cas(at, &none, p))
		plx_mem_put(p);
	return 0;
}

int plx_table_end(void)
{
	return plx_load_acq(&chunks_end) * PLX_TABLE_CHUNK;
}

/* Most of the table is empty, and a walk over it is a part of each fork. */
#define AT_ONCE 8
static bool none_here(struct pollux_file **slot)
{
	uintptr_t any = 0;

	for (int i = 0; i < AT_ONCE; i++)
		any |= (uintptr_t)plx_load(&slot[i]);
	return !any;
}

PLX_CHILD_CODE int plx_table_next(int fd)
{
	int end = plx_table_end();

	while (fd < end) {
		struct pollux_file **slot = plx_table_slot(fd);

		if (!slot)
			fd = (fd | (PLX_TABLE_CHUNK - 1)) + 1;
		else if (fd % AT_ONCE == 0 && none_here(slot))
			fd += AT_ONCE;
		else if (plx_load(slot))
			return fd;
		else
			fd++;
	}
	return -1;
}

static uint32_t hidden_poll(struct pollux_file *f)
{
	(void)f;
	return 0;
}

static void hidden_free(struct pollux_file *f)
{
	plx_free(f);
}

static const struct pollux_file_ops hidden_ops = {.poll = hidden_poll, .free = hidden_free};

/* Two that raised it at once would restore what the other has raised. */
static plx_lock_t limit_lock;

void plx_limit_raise(struct rlimit *was)
{
	struct rlimit more;

	plx_lock(&limit_lock, PLX_RANK_LIMIT);
	plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, was);
	more = *was;
	more.rlim_cur = was->rlim_max;
	plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, NULL);
}

void plx_limit_restore(const struct rlimit *was)
{
	plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, was, NULL);
	plx_unlock(&limit_lock, PLX_RANK_LIMIT);
}

PLX_CHILD_CODE void plx_limit_after_fork_child(void)
{
	plx_lock_reset(&limit_lock);
}

int plx_fd_high(void)
{
	return HIDDEN_BASE;
}

/* fd duplicated to a high number, close-on-exec; a negative errno if there is none. */
static int dup_high(int fd)
{
	struct rlimit lim;
	int n;

	if (plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &lim) < 0)
		return -EMFILE;
	if (lim.rlim_cur > HIDDEN_BASE + HIDDEN_ROOM) {
		n = plx_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, HIDDEN_BASE);
		if (n >= 0)
			return n;
	}
	/*
	 * Above the soft limit the program cannot see what is missing: numbers up
	 * there stay usable when the limit comes down again. It may go up again, too.
	 */
	if (lim.rlim_max > lim.rlim_cur) {
		rlim_t from = lim.rlim_cur;

		if (from < HIDDEN_BASE && lim.rlim_max > HIDDEN_BASE + HIDDEN_ROOM)
			from = HIDDEN_BASE;
		plx_limit_raise(&lim);
		n = plx_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, from);
		plx_limit_restore(&lim);
		if (n >= 0)
			return n;
	}
	for (rlim_t at = lim.rlim_cur; at > 8; at /= 2) {
		n = plx_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, at - at / 8);
		if (n >= 0)
			return n;
	}
	return -EMFILE;
}

static int hide_here(int n, int *owner, int pid)
{
	struct hidden *h = plx_zalloc(sizeof(*h));

	if (!h || plx_table_reserve(n) < 0) {
		plx_free(h);
		return -EMFILE;
	}
	pollux_file_init(&h->file, &hidden_ops);
	h->file.kind = PLX_KIND_HIDDEN;
	h->owner = owner;
	h->pid = pid;
	plx_store(owner, n);
	plx_table_set(n, &h->file);
	return n;
}

int plx_fd_hide_here(int n, int *owner)
{
	return hide_here(n, owner, 0);
}

static int hide_dup(int fd, int *owner, int pid)
{
	int n = dup_high(fd);

	if (n < 0)
		return -EMFILE;
	if (hide_here(n, owner, pid) < 0) {
		plx_sys1(SYS_close, n);
		return -EMFILE;
	}
	return n;
}

int plx_fd_hide_dup(int fd, int *owner)
{
	return hide_dup(fd, owner, 0);
}

int plx_fd_hide_dup_private(int fd, int *owner)
{
	return hide_dup(fd, owner, plx_sys0(SYS_getpid));
}

int plx_fd_hide(int fd, int *owner)
{
	int n = hide_dup(fd, owner, 0);

	plx_sys1(SYS_close, fd);
	return n;
}

int plx_fd_hide_private(int fd, int *owner)
{
	int n = plx_fd_hide_dup_private(fd, owner);

	plx_sys1(SYS_close, fd);
	return n;
}

void plx_fd_share(const int *owner)
{
	plx_container_of(plx_table_peek(*owner), struct hidden, file)->shared = true;
}

bool plx_fd_shared(struct pollux_file *f)
{
	return plx_container_of(f, struct hidden, file)->shared;
}

PLX_CHILD_CODE void plx_fd_drop_private(int fd)
{
	struct hidden *h = plx_container_of(plx_table_peek(fd), struct hidden, file);

	if (h->pid && h->pid != plx_sys0(SYS_getpid))
		plx_fd_unhide(h->owner);
}

int plx_fd_reveal(int *owner)
{
	struct pollux_file *f;
	int n = plx_load(owner);

	if (n < 0)
		return -1;
	plx_store(owner, -1);
	f = plx_table_set(n, NULL);
	if (f)
		plx_file_put_locked(f);
	return n;
}

PLX_CHILD_CODE void plx_fd_unhide(int *owner)
{
	struct pollux_file *f;
	int n = plx_load(owner);

	if (n < 0)
		return;
	plx_store(owner, -1);
	f = plx_table_set(n, NULL);
	plx_sys1(SYS_close, n);
	if (f)
		pollux_file_put(f);
}

void plx_fd_on_move(const int *owner, plx_moved_t moved)
{
	plx_container_of(plx_table_peek(*owner), struct hidden, file)->moved = moved;
}

int plx_fd_evict(int fd)
{
	struct pollux_file *f = plx_table_peek(fd);
	struct hidden *h;
	int n;

	if (!f || f->kind != PLX_KIND_HIDDEN)
		return 0;
	h = plx_container_of(f, struct hidden, file);
	n = dup_high(fd);
	if (n >= 0 && plx_table_reserve(n) < 0) {
		plx_sys1(SYS_close, n);
		n = -EMFILE;
	}
	if (n < 0)
		return -EMFILE;
	plx_table_set(n, f);
	if (h->moved)
		h->moved(h->owner, fd, n);
	else
		plx_store(h->owner, n);
	plx_table_set(fd, NULL);
	/* Who has read the old number uses it inside an RCU section, or where numbers change. */
	plx_rcu_synchronize();
	plx_table_await();
	return 0;
}
