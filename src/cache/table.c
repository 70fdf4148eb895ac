/* SPDX-License-Identifier: MIT */
#include "cache/table.h"

#include "cache/posix.h"

PLX_LARGE struct pollux_file *plx_table_first[PLX_TABLE_CHUNK] __attribute__((aligned(64)));
/* The first one is never looked up here. */
PLX_LARGE struct pollux_file **plx_table_chunks[PLX_TABLE_CHUNKS];
/* One more than the highest chunk that there is or is about to be. */
static int chunks_end = 1;

PLX_FORK_PAGE uint32_t plx_changes_begun;
PLX_FORK_PAGE uint32_t plx_changes_over;

enum plx_file_kind plx_fd_kind(int fd)
{
	PLX_INSIDE();
	enum plx_file_kind kind = PLX_KIND_OTHER;
	struct pollux_file *f;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (f)
		kind = f->kind;
	plx_rcu_read_unlock();
	return kind;
}

struct pollux_file *plx_table_get(int fd)
{
	struct pollux_file *f;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (f && (f->kind == PLX_KIND_BELL || !pollux_file_tryget(f)))
		f = NULL;
	plx_rcu_read_unlock();
	return f;
}

PLX_CHILD_CODE struct pollux_file *plx_table_set(int fd, struct pollux_file *f)
{
	return plx_xchg(plx_table_slot(fd), f);
}

bool plx_table_made(int fd, struct pollux_file *f, uint32_t since)
{
	struct pollux_file *old, *mine = f;

	if (plx_table_reserve(fd) < 0)
		return false;
	/* What stands there was left by a close that went past us. */
	old = plx_table_set(fd, f);
	PLX_DELAY(table_made);
	if (old)
		pollux_file_put(old);
	return !plx_changed(since) || !plx_cas(plx_table_slot(fd), &mine, NULL);
}

struct plx_numbers plx_numbers_barred;

void plx_numbers_add(struct plx_numbers *set, int fd)
{
	if (fd < PLX_NUMBERS)
		plx_or(&set->bits[fd / 64], 1ull << fd % 64);
	else
		plx_or(&set->bits[PLX_NUMBERS / 64], 1);
}

bool plx_numbers_have(const struct plx_numbers *set, int fd)
{
	return plx_load(&set->bits[fd < PLX_NUMBERS ? fd / 64 : PLX_NUMBERS / 64]) >>
		       (fd < PLX_NUMBERS ? fd % 64 : 0) &
	       1;
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

/* Most of the table is empty, and a walk over it is a part of each fork. */
#define AT_ONCE 8
static bool none_here(struct pollux_file **slot)
{
	uintptr_t any = 0;

	for (int i = 0; i < AT_ONCE; i++)
		any |= (uintptr_t)plx_load(&slot[i]);
	return !any;
}

PLX_CHILD_CODE int plx_table_next_to(int fd, unsigned int last)
{
	int end = plx_load_acq(&chunks_end) * PLX_TABLE_CHUNK;

	while (fd < end && (unsigned int)fd <= last) {
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
