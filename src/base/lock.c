/* SPDX-License-Identifier: MIT */
#include "base/lock.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <time.h>

#include "base/bug.h"
#include "base/inside.h"
#include "base/spin.h"
#include "base/sys.h"
#include "base/wiped.h"

/*
 * Spinning pays only while the holder runs; the holder never sleeps for long, so
 * a short spin covers the usual case and the futex covers a preempted holder.
 */
#define LOCK_SPINS 100
/* With signals blocked it looks so often for one that ends the process. */
#define LOOK_NS 20000000

/* Behind all other variables, so that those are not apart. */
struct plx_wiped plx_wiped __attribute__((common));

void plx_lock_slow(plx_lock_t *l)
{
	for (int i = 0; i < LOCK_SPINS; i++) {
		if (plx_load(l) == 0 && plx_glance(l))
			return;
		plx_cpu_relax();
	}
	while (__atomic_exchange_n(l, 2, __ATOMIC_ACQUIRE) != 0) {
		const struct timespec moment = {.tv_nsec = LOOK_NS};

		plx_sys4(SYS_futex, l, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 2,
			 plx_signals_held ? &moment : NULL);
		plx_signals_let_end();
	}
}

void plx_lock_wake(plx_lock_t *l)
{
	plx_sys3(SYS_futex, l, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
}

/* As libc knows it: a system call might be one that a filter forbids. Without: nobody's. */
static uint32_t thread_number(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	uint32_t n = FUTEX_TID_MASK;

	pthread_mutex_lock(&m);
#ifdef __GLIBC__
	n = m.__data.__owner ? (uint32_t)m.__data.__owner : n;
#endif
	pthread_mutex_unlock(&m);
	return n;
}

void plx_pi_lock(plx_lock_t *l)
{
	uint32_t me = thread_number(), free = 0;

	for (int tries = 0; !plx_cas(l, &free, me); tries++, free = 0) {
		if (tries < LOCK_SPINS) {
			plx_cpu_relax();
			continue;
		}
		if (!plx_sys4(SYS_futex, l, FUTEX_LOCK_PI | FUTEX_PRIVATE_FLAG, 0, NULL))
			break;
		/* Nobody is known to have it. */
		plx_await_step(tries);
	}
	/* Partner: plx_pi_unlock. The kernel orders the two, which a sanitizer does not see. */
	(void)plx_load_acq(l);
}

void plx_pi_unlock(plx_lock_t *l)
{
	uint32_t w = plx_load(l);

	if (!(w & FUTEX_WAITERS) && plx_cas(l, &w, 0))
		return;
	plx_or(l, FUTEX_WAITERS);
	/* The child of a fork has another number than who has taken it, and there no one waits. */
	if (plx_sys2(SYS_futex, l, FUTEX_UNLOCK_PI | FUTEX_PRIVATE_FLAG) < 0)
		plx_store_rel(l, 0);
}

#if PLX_LOCKDEP
#define LOCKDEP_MAX 1024

static __thread struct {
	const plx_lock_t *lock;
	enum plx_rank rank;
} held[LOCKDEP_MAX];
static __thread int nheld;

void plx_lockdep_acquire(const plx_lock_t *l, enum plx_rank rank)
{
	PLX_INVARIANT(!plx_load(&plx_signal_deliver) || plx_inside.depth,
		      "a lock is held only inside a call that no signal handler interrupts");
	for (int i = 0; i < nheld; i++) {
		PLX_INVARIANT(held[i].lock != l, "a lock is not taken twice by one thread");
		PLX_INVARIANT(held[i].rank < rank || (held[i].rank == rank && rank == PLX_RANK_EP),
			      "locks are taken in rising rank");
	}
	PLX_INVARIANT(nheld < LOCKDEP_MAX, "lock nesting stays bounded");
	held[nheld].lock = l;
	held[nheld].rank = rank;
	nheld++;
}

void plx_lockdep_release(const plx_lock_t *l)
{
	for (int i = nheld - 1; i >= 0; i--) {
		if (held[i].lock != l)
			continue;
		for (; i < nheld - 1; i++)
			held[i] = held[i + 1];
		nheld--;
		return;
	}
	PLX_BUG("a lock is released by its holder");
}

void plx_lockdep_held(const plx_lock_t *l)
{
	for (int i = 0; i < nheld; i++)
		if (held[i].lock == l)
			return;
	PLX_BUG("the caller holds the lock that protects what it touches");
}

void plx_lockdep_none(void)
{
	PLX_INVARIANT(nheld == 0, "no engine lock is held across a wait");
}
#endif
