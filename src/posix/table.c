/* SPDX-License-Identifier: MIT */
#include "posix/table.h"

#include <fcntl.h>
#include <string.h>

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
};

struct pollux_file *plx_table_first[PLX_TABLE_CHUNK];
struct pollux_file **plx_table_chunks[PLX_TABLE_CHUNKS] = {plx_table_first};
plx_lock_t plx_table_lock;

uint32_t plx_spilling;

bool plx_table_enter(void)
{
	plx_rcu_read_lock();
	if (plx_likely(!plx_load_acq(&plx_spilling)))
		return false;
	plx_rcu_read_unlock();
	plx_lock(&plx_table_lock, PLX_RANK_TABLE);
	return true;
}

void plx_table_leave(bool locked)
{
	if (plx_unlikely(locked))
		plx_unlock(&plx_table_lock, PLX_RANK_TABLE);
	else
		plx_rcu_read_unlock();
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

struct pollux_file *plx_table_set(int fd, struct pollux_file *f)
{
	return plx_xchg(plx_table_slot(fd), f);
}

/* Chunks are never freed; a race for one is decided by the swap. */
int plx_table_reserve(int fd)
{
	struct pollux_file ***at, **none = NULL, **p;

	if (fd < PLX_TABLE_CHUNK)
		return 0;
	if (fd >= PLX_TABLE_CHUNK * PLX_TABLE_CHUNKS)
		return -EMFILE;
	at = &plx_table_chunks[fd / PLX_TABLE_CHUNK];
	if (plx_load_acq(at))
		return 0;
	p = plx_mem_get(PLX_TABLE_CHUNK * sizeof(*p));
	if (!p)
		return -ENOMEM;
	memset(p, 0, PLX_TABLE_CHUNK * sizeof(*p));
	if (!plx_cas(at, &none, p))
		plx_mem_put(p);
	return 0;
}

int plx_table_end(void)
{
	for (int i = PLX_TABLE_CHUNKS; i > 0; i--)
		if (plx_load_acq(&plx_table_chunks[i - 1]))
			return i * PLX_TABLE_CHUNK;
	return 0;
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

void plx_limit_after_fork_child(void)
{
	limit_lock = 0;
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

void plx_fd_drop_private(int fd)
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

void plx_fd_unhide(int *owner)
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
	/* A producer that read the old number rings it inside an RCU section. */
	plx_rcu_synchronize();
	return 0;
}
