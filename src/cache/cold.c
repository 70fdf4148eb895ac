/* SPDX-License-Identifier: MIT */
/*
 * Calls that are under way while the process is not prepared.
 */
#include "cache/cold.h"

#include <linux/membarrier.h>
#include <signal.h>
#include <sys/mman.h>

#include "base/inside.h"
#include "base/lock.h"
#include "base/spin.h"
#include "base/sys.h"
#include "cache/uaccess.h"

PLX_CHILD_PAGE uint32_t plx_cold;

PLX_CHILD_PAGE uint32_t plx_cold_process;

#define THREADS 1024
/* How often the end of a call that does not sleep is looked for: a handler may be in it. */
#define AWAITED 1000
/* How often that is done in vain: one that was left by a jump never comes. */
#define REFUSED 4
static PLX_LARGE struct plx_cold_thread threads[THREADS] __attribute__((aligned(64)));
/* The first of them: often that of the only thread, and of the children that it makes. */
static PLX_CHILD_PAGE_FIRST struct plx_cold_thread first_thread;
__thread struct plx_cold_thread *plx_cold_mine;
/* what: calls of others, and of handlers that have interrupted one. */
struct plx_cold_call plx_cold_others;
/* Calls that began before the process was prepared: whether any are left. */
static enum { NONE_LEFT, NOT_SEEN, SEEN } left;

static struct plx_cold_thread *thread_at(int i)
{
	return i ? &threads[i] : &first_thread;
}

static struct plx_cold_thread *thread_begin(void)
{
	for (int i = 0; i < THREADS; i++) {
		struct plx_cold_thread *t = thread_at(i);
		const void *me = &plx_cold_mine, *owner = plx_load(&t->owner);

		if (owner == me || (!owner && plx_cas(&t->owner, &owner, me)))
			return plx_cold_mine = t;
	}
	return NULL;
}

struct plx_cold_call *plx_cold_enter_slow(uint32_t what, uint64_t n, const void *set,
					  const void *set1, const void *set2)
{
	struct plx_cold_thread *t = plx_cold_mine ? plx_cold_mine : thread_begin();

	if (t && !plx_load(&t->call.what))
		return plx_cold_say(t, what, n, set, set1, set2);
	plx_xadd(&plx_cold_others.what, 1);
	return &plx_cold_others;
}

void plx_cold_leave_slow(void)
{
	plx_xadd(&plx_cold_others.what, (uint32_t)-1);
}

struct plx_cold_call *plx_cold_next(int *i)
{
	struct plx_cold_thread *t;

	while (*i < THREADS && plx_load_acq(&(t = thread_at(*i))->owner)) {
		++*i;
		if (plx_load_acq(&t->call.what) && plx_load(&t->process) == plx_cold_process)
			return &t->call;
	}
	return NULL;
}

PLX_CHILD_CODE void plx_cold_born(void)
{
	/* By a thread that is not here; what it has prepared is the kernel's. */
	if (plx_load(&plx_cold) == PLX_COLD_PREPARING)
		plx_store(&plx_cold, PLX_COLD_NOTED);
	plx_store(&plx_cold_process, (uint32_t)plx_sys0(SYS_getpid));
}

/* In all threads; false if there is none to be had. Partner: plx_cold_say. */
static bool barrier(void)
{
	plx_mb();
	return plx_px_alone() || !plx_sys2(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0);
}

/* Whether the kernel gives what RCU does not go on without (a filter, or too little memory). */
static bool rcu_can(void)
{
	const size_t n = 1 << 16;
	long p = plx_sys6(SYS_mmap, 0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);

	return p > 0 && !plx_sys2(SYS_munmap, p, n) &&
	       !plx_sys4(SYS_rt_sigprocmask, SIG_BLOCK, 0, 0, sizeof(uint64_t));
}

void plx_cold_await(void)
{
	for (int tries = 0; plx_load_acq(&plx_cold) == PLX_COLD_PREPARING; tries++)
		plx_await_step(tries);
}

static bool changes(void)
{
	struct plx_cold_call *c;

	for (int i = 0; (c = plx_cold_next(&i));)
		if (plx_load(&c->what) == PLX_COLD_CHANGE)
			return true;
	return plx_load(&plx_cold_others.what);
}

bool plx_cold_begin(void)
{
	static uint32_t refused;
	int tries = 0;
	bool can;

	plx_xchg(&plx_cold, PLX_COLD_PREPARING);
	can = plx_cold_process == (uint32_t)plx_sys0(SYS_getpid) && !plx_changed(plx_changes()) &&
	      rcu_can() && barrier();
	while (can && changes()) {
		can = tries < AWAITED && refused < REFUSED;
		refused += !can;
		plx_await_step(tries++);
	}
	if (can)
		return true;
	plx_store_rel(&plx_cold, PLX_COLD_NOTED);
	return false;
}

bool plx_cold_ends(void)
{
	plx_store(&left, NOT_SEEN);
	plx_xchg(&plx_cold, PLX_COLD_OVER);
	return barrier();
}

void plx_cold_seen(void)
{
	plx_store_rel(&left, SEEN);
}

/* Whether the file at fd may be f, or an epoll that watches it and has been closed. */
static bool names(int fd, const struct pollux_file *f)
{
	return fd >= 0 && (plx_table_peek(fd) == f ||
			   (fd < PLX_COLD_NOTES && plx_load(&plx_cold_notes[fd].closed)));
}

static bool selects(const uint64_t *set, uint64_t n, const struct pollux_file *f)
{
	uint64_t bits = 0;

	for (uint64_t fd = 0; set && fd < n; fd++) {
		if (fd % 64 == 0 && plx_copy_in(&bits, set + fd / 64, sizeof(bits)))
			return true;
		if (bits >> fd % 64 & 1 && names((int)fd, f))
			return true;
	}
	return false;
}

/* The kernel has sets of its own by then: where the program's are gone they may have named f. */
static bool concerns(const struct plx_cold_call *c, const struct pollux_file *f)
{
	const struct pollux_file *file;
	struct pollfd p;

	switch (plx_load(&c->what)) {
	case PLX_COLD_WAIT:
		file = plx_load(&c->file);
		return file == f || file == PLX_COLD_CLOSED;
	case PLX_COLD_POLL:
		for (uint64_t i = 0; i < c->n; i++) {
			if (plx_copy_in(&p, (const struct pollfd *)c->sets[0] + i, sizeof(p)) ||
			    names(p.fd, f))
				return true;
		}
		return false;
	case PLX_COLD_SELECT:
		return selects(c->sets[0], c->n, f) || selects(c->sets[1], c->n, f) ||
		       selects(c->sets[2], c->n, f);
	default:
		return true;
	}
}

bool plx_cold_busy(struct pollux_file *f)
{
	uint32_t what = plx_load_acq(&left);
	struct plx_cold_call *c;
	bool any = false;

	if (plx_likely(what == NONE_LEFT))
		return plx_unlikely(plx_load(&plx_cold) == PLX_COLD_PREPARING);
	if (what == NOT_SEEN || plx_load(&plx_cold_others.what))
		return true;
	for (int i = 0; (c = plx_cold_next(&i));) {
		any = true;
		if (concerns(c, f))
			return true;
	}
	if (!any)
		plx_store(&left, NONE_LEFT);
	return false;
}
