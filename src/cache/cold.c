/* SPDX-License-Identifier: MIT */
/*
 * Calls that are under way while the process is not prepared.
 */
#include "cache/cold.h"

#include <linux/membarrier.h>

#include "base/inside.h"
#include "base/lock.h"
#include "base/spin.h"
#include "base/sys.h"
#include "cache/uaccess.h"

uint32_t plx_cold;

/* The process, as known since it began. */
static PLX_FORK_PAGE uint32_t process;

/* Calls of a thread under way: one, and those in handlers that have interrupted it. */
#define DEPTH 4
#define THREADS 128
/* How often the end of a call that does not sleep is looked for: a handler may be in it. */
#define AWAITED 1000
/* Of a thread, or of those that have had the same memory, one after the other. */
static PLX_LARGE struct cold_thread {
	const void *owner;
	uint32_t depth;
	uint32_t process;
	struct plx_cold_call calls[DEPTH];
} threads[THREADS] __attribute__((aligned(64)));
static __thread struct cold_thread *mine;
/* Calls for which there was no room: those that change handlers, and all others. */
static struct plx_cold_call roomless[2];
enum { NONE_LEFT, NOT_SEEN, SEEN };
static uint32_t left;

static __attribute__((noinline)) struct cold_thread *thread_begin(void)
{
	for (int i = 0; i < THREADS; i++) {
		const void *owner = plx_load(&threads[i].owner);

		if (owner == &mine || (!owner && plx_cas(&threads[i].owner, &owner, &mine)))
			return mine = &threads[i];
	}
	return NULL;
}

struct plx_cold_call *plx_cold_enter(const struct plx_cold_call *call)
{
	struct cold_thread *t = plx_likely(mine != NULL) ? mine : thread_begin();
	struct plx_cold_call *c;

	if (plx_unlikely(!t || t->depth >= DEPTH)) {
		c = &roomless[call->what == PLX_COLD_ACTION];
		plx_xadd(&c->what, 1);
		return c;
	}
	plx_store(&t->process, process);
	/* A handler that comes now takes the next one. */
	c = &t->calls[t->depth++];
	plx_compiler_barrier();
	plx_store(&c->fd, call->fd);
	plx_store(&c->n, call->n);
	for (int i = 0; i < 3; i++)
		plx_store(&c->sets[i], call->sets[i]);
	plx_store_rel(&c->what, call->what);
	/* Partner: plx_cold_barrier. */
	plx_compiler_barrier();
	return c;
}

void plx_cold_leave(struct plx_cold_call *const *call)
{
	struct plx_cold_call *c = *call;

	if (plx_unlikely(c == &roomless[0] || c == &roomless[1])) {
		plx_xadd(&c->what, (uint32_t)-1);
		return;
	}
	plx_store_rel(&c->what, 0);
	plx_compiler_barrier();
	mine->depth = (uint32_t)(c - mine->calls);
}

/* The next call that is under way in this process, after c. */
static struct plx_cold_call *next_call(struct plx_cold_call *c)
{
	size_t i = 0;

	if (c)
		i = (size_t)((char *)c - (char *)threads) / sizeof(threads[0]);
	for (; i < THREADS && plx_load_acq(&threads[i].owner); i++) {
		struct plx_cold_call *calls = threads[i].calls;

		for (int d = c ? (int)(c - calls) + 1 : 0; d < DEPTH; d++)
			if (plx_load_acq(&calls[d].what) &&
			    plx_load(&threads[i].process) == process)
				return &calls[d];
		c = NULL;
	}
	return NULL;
}

PLX_CHILD_CODE void plx_cold_born(void)
{
	plx_store(&process, (uint32_t)plx_sys0(SYS_getpid));
}

uint32_t plx_cold_process(void)
{
	return plx_load(&process);
}

bool plx_cold_own(void)
{
	return plx_load(&process) == (uint32_t)plx_sys0(SYS_getpid);
}

bool plx_cold_barrier(void)
{
	plx_mb();
	return plx_px_alone() || !plx_sys2(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0);
}

static bool actions_under_way(void)
{
	struct plx_cold_call *c = NULL;

	while ((c = next_call(c)))
		if (plx_load(&c->what) == PLX_COLD_ACTION)
			return true;
	return plx_load(&roomless[1].what);
}

bool plx_cold_await_actions(void)
{
	int tries = 0;

	while (actions_under_way() && tries < AWAITED)
		plx_await_step(tries++);
	return tries < AWAITED;
}

void plx_cold_begins(void)
{
	plx_store(&left, NOT_SEEN);
}

void plx_cold_over(void)
{
	struct plx_cold_call *c = NULL;

	plx_xchg(&plx_cold, PLX_COLD_OVER);
	if (!plx_cold_barrier())
		return;
	while ((c = next_call(c)))
		plx_store(&c->file, plx_table_peek(c->fd));
	plx_store_rel(&left, SEEN);
}

/* Whether the file at fd, if that is what it is, is f. */
static bool names(int fd, const struct pollux_file *f)
{
	return fd >= 0 && plx_table_peek(fd) == f;
}

static bool concerns(const struct plx_cold_call *c, const struct pollux_file *f)
{
	uint64_t bits;
	struct pollfd p;

	switch (plx_load(&c->what)) {
	case PLX_COLD_WAIT:
		return plx_load(&c->file) == f || !plx_load(&c->file);
	case PLX_COLD_POLL:
		for (uint64_t i = 0; i < c->n; i++)
			if (plx_copy_in(&p, (const struct pollfd *)c->sets[0] + i, sizeof(p)))
				break;
			else if (names(p.fd, f))
				return true;
		return false;
	case PLX_COLD_SELECT:
		for (int i = 0; i < 3; i++)
			for (uint64_t fd = 0; c->sets[i] && fd < c->n; fd++) {
				if (fd % 64 == 0 &&
				    plx_copy_in(&bits, (const uint64_t *)c->sets[i] + fd / 64,
						sizeof(bits)))
					break;
				if (bits >> fd % 64 & 1 && names((int)fd, f))
					return true;
			}
		return false;
	default:
		return false;
	}
}

bool plx_cold_busy(struct pollux_file *f)
{
	uint32_t what = plx_load_acq(&left);
	struct plx_cold_call *c = NULL;
	bool any = false;

	if (plx_likely(what == NONE_LEFT))
		return false;
	if (what == NOT_SEEN || plx_load(&roomless[0].what))
		return true;
	while ((c = next_call(c))) {
		any = true;
		if (concerns(c, f))
			return true;
	}
	if (!any)
		plx_store(&left, NONE_LEFT);
	return false;
}
