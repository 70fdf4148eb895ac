/* SPDX-License-Identifier: MIT */
/*
 * The registry of threads that liburcu's readers go by.
 *
 * A reader is a counter, which its thread writes, and which grace periods look at. Counters are in
 * memory that the child of a fork finds wiped (base/wiped.h): there, nobody is in a section. Which
 * of them threads have is in memory that is not: the thread that forked goes on with its own. Those
 * that other threads had stay taken in the child, in no section; that is all there is to be done
 * about a fork, and none of it takes a lock.
 *
 *   chunk.taken  atomic; a bit for each reader, set by its thread, cleared at its end
 *   chunk.next   set before the chunk is linked, behind the first; they stay
 *   chunk.owner  process and thread, if the end of the thread is not heard of; else 0
 *
 * Argument. A thread takes its reader with a full barrier before its first section, and a look
 * comes after one that follows the removal of what is to be released. If the look does not find
 * the reader taken, the section comes later than the removal. If it finds it given back, what was
 * done in its sections is before that.
 *
 * The end of a thread is heard of by a key, unless libc would allocate for that: it does for the
 * 33rd key of the process and later ones, and a thread's first section may be in a handler that has
 * interrupted an allocator. Then the reader is taken by another thread, if none is free and the
 * owner is not there any more. One of two who find that has changed the owner. In the child of a
 * fork all of these stay taken, as the process is another. Neither does a thread lose its reader
 * there: who looks for it is of that process, too. (A number that another thread has got keeps the
 * reader until that one ends.)
 *
 * Where the kernel cannot wipe (before 4.14; pages of other sizes; gVisor), libc's fork calls what
 * does, and pollux_after_fork_child. A thread that is in the middle of a fork when the first thing
 * is made elsewhere is not told then, and its child may find locks held.
 */
#include "rcu/bp.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/bug.h"
#include "base/inside.h"
#include "base/key.h"
#include "base/mem.h"
#include "base/sanitizer.h"
#include "base/sys.h"
#include "base/wiped.h"

#define READER_SIZE sizeof(plx_wiped.readers[0])

_Static_assert(offsetof(struct urcu_bp_reader, ctr) == 0, "a reader begins with its counter");

struct chunk {
	struct chunk *next;
	char *readers;
	uint64_t taken;
	uint64_t owner[PLX_READERS];
};

/* For a key from here on glibc allocates. */
#define KEYS_AT_HAND 32
/* There are owners. */
static uint32_t unheard;

struct urcu_bp_gp urcu_bp_gp = {.ctr = URCU_BP_GP_COUNT};
int urcu_bp_has_sys_membarrier;
DEFINE_URCU_TLS(struct urcu_bp_reader *, urcu_bp_reader);

static struct chunk chunks = {.readers = (char *)plx_wiped.readers};
static PLX_START_PAGE struct plx_key key;
/* The process that is wiped, if that is done by hand. (Where a child has its parent's number, in
 * another space of them, it is not.) */
static uint32_t by_hand;

void plx_wipe_by_hand(void)
{
	uint32_t me = (uint32_t)plx_sys0(SYS_getpid);

	if (!plx_load(&by_hand) || plx_load(&by_hand) == me)
		return;
	plx_store(&by_hand, me);
	memset(&plx_wiped, 0, sizeof(plx_wiped));
	for (struct chunk *c = plx_load(&chunks.next); c; c = c->next)
		memset(c->readers, 0, PLX_READERS * READER_SIZE);
}

static void wipe(void *at, size_t size)
{
	/* qemu before 8.0 agrees with everything. */
	const int nonsense = 0x10000;

	if (!plx_sys3(SYS_madvise, at, size, MADV_WIPEONFORK) &&
	    plx_sys3(SYS_madvise, at, size, nonsense))
		return;
	/* It would say no, to who cannot do without. */
	if (!plx_load(&by_hand))
		(void)pthread_atfork(NULL, NULL, plx_wipe_by_hand);
	plx_store(&by_hand, (uint32_t)plx_sys0(SYS_getpid));
}

void plx_wipe_begin(void)
{
	wipe(&plx_wiped, sizeof(plx_wiped));
}

static struct chunk *chunk_new(void)
{
	/* A page that is not wiped comes before those that are. */
	struct chunk *c = plx_pages_map(PLX_PAGE + PLX_READERS * READER_SIZE, PLX_PAGE);

	PLX_INVARIANT(c, "memory for the sections of a thread can be had");
	c->readers = (char *)c + PLX_PAGE;
	wipe(c->readers, PLX_READERS * READER_SIZE);
	c->next = plx_load(&chunks.next);
	while (!plx_cas(&chunks.next, &c->next, c))
		;
	return c;
}

static void *reader_at(struct chunk *c, int i)
{
	return c->readers + (size_t)i * READER_SIZE;
}

/* The bit of a reader, if it is of the chunk. */
static uint64_t bit_of(const struct chunk *c, const struct urcu_bp_reader *r)
{
	size_t i = ((uintptr_t)r - (uintptr_t)c->readers) / READER_SIZE;

	return i < PLX_READERS ? 1ull << i : 0;
}

static uint64_t owner_self(void)
{
	return (uint64_t)plx_sys0(SYS_getpid) << 32 | (uint32_t)plx_sys0(SYS_gettid);
}

static bool owner_gone(uint64_t owner, uint64_t self)
{
	return owner && owner >> 32 == self >> 32 &&
	       plx_sys3(SYS_tgkill, owner >> 32, (uint32_t)owner, 0) == -ESRCH;
}

/* One of a thread that has ended, or NULL. */
static struct urcu_bp_reader *reader_of_ended(uint64_t owner)
{
	uint64_t self;

	/* A filter may know none of these calls. */
	if (!plx_load(&unheard))
		return NULL;
	self = owner_self();
	for (struct chunk *c = &chunks; c; c = plx_load_acq(&c->next)) {
		for (int i = 0; i < PLX_READERS; i++) {
			uint64_t was = plx_load_acq(&c->owner[i]);

			if (owner_gone(was, self) && plx_cas(&c->owner[i], &was, owner)) {
				plx_mb_after_rmw();
				CMM_STORE_SHARED(((struct urcu_bp_reader *)reader_at(c, i))->ctr,
						 0);
				return reader_at(c, i);
			}
		}
	}
	return NULL;
}

/* owner: 0 if it will be given back. */
static struct urcu_bp_reader *reader_take(uint64_t owner)
{
	struct urcu_bp_reader *r;

	for (struct chunk *c = &chunks;; c = plx_load_acq(&c->next) ?: chunk_new()) {
		uint64_t taken = plx_load(&c->taken);

		while (~taken) {
			int i = __builtin_ctzll(~taken);

			if (plx_cas(&c->taken, &taken, taken | 1ull << i)) {
				/* Partner: gp_advance, before plx_urcu_nobody. */
				plx_mb_after_rmw();
				plx_store_rel(&c->owner[i], owner);
				return reader_at(c, i);
			}
		}
		r = plx_load_acq(&c->next) ? NULL : reader_of_ended(owner);
		if (r)
			return r;
	}
}

static void reader_give_back(void *p)
{
	struct urcu_bp_reader *r = p;

	/* A handler that comes now takes another. */
	URCU_TLS(urcu_bp_reader) = NULL;
	CMM_STORE_SHARED(r->ctr, 0);
#if PLX_TSAN
	__tsan_release(r);
#endif
	for (struct chunk *c = &chunks; c; c = plx_load_acq(&c->next))
		if (bit_of(c, r))
			(void)plx_and(&c->taken, ~bit_of(c, r));
}

void urcu_bp_register(void)
{
	pthread_key_t by = plx_key(&key, reader_give_back);
	struct plx_masked masked;

	plx_signals_block(&masked);
	/* A handler may have been here. */
	if (!URCU_TLS(urcu_bp_reader)) {
		if (by >= KEYS_AT_HAND)
			plx_store(&unheard, 1);
		URCU_TLS(urcu_bp_reader) = reader_take(by < KEYS_AT_HAND ? 0 : owner_self());
#if PLX_TSAN
		__tsan_acquire(URCU_TLS(urcu_bp_reader));
#endif
		/* After the last of the thread's destructors it stays taken. */
		if (by < KEYS_AT_HAND)
			(void)pthread_setspecific(by, URCU_TLS(urcu_bp_reader));
	}
	plx_signals_unblock(&masked);
}

PLX_START_CODE void plx_urcu_init(void)
{
	(void)plx_key(&key, reader_give_back);
}

bool plx_urcu_nobody(void)
{
	struct urcu_bp_reader *me = URCU_TLS(urcu_bp_reader);

	if (me && me->ctr & URCU_BP_GP_CTR_NEST_MASK)
		return false;
	for (struct chunk *c = &chunks; c; c = plx_load_acq(&c->next))
		if (plx_load_acq(&c->taken) & ~bit_of(c, me))
			return false;
	return true;
}

enum plx_urcu_seen plx_urcu_look(const unsigned long **who)
{
	enum plx_urcu_seen seen = PLX_URCU_NONE;

	for (struct chunk *c = &chunks; c; c = plx_load_acq(&c->next)) {
		for (uint64_t taken = plx_load_acq(&c->taken); taken; taken &= taken - 1) {
			struct urcu_bp_reader *r = reader_at(c, __builtin_ctzll(taken));

			if (!(CMM_LOAD_SHARED(r->ctr) & URCU_BP_GP_CTR_NEST_MASK))
				continue;
			seen = PLX_URCU_CURRENT;
			if (plx_urcu_is_old(&r->ctr)) {
				*who = &r->ctr;
				return PLX_URCU_OLD;
			}
		}
	}
	return seen;
}

bool plx_urcu_is_old(const unsigned long *who)
{
	unsigned long ctr = CMM_LOAD_SHARED(*who);

	return (ctr & URCU_BP_GP_CTR_NEST_MASK) && ((ctr ^ urcu_bp_gp.ctr) & URCU_BP_GP_CTR_PHASE);
}

void plx_urcu_flip(void)
{
	cmm_smp_mb();
	CMM_STORE_SHARED(urcu_bp_gp.ctr, urcu_bp_gp.ctr ^ URCU_BP_GP_CTR_PHASE);
	cmm_smp_mb();
}
