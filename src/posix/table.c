/* SPDX-License-Identifier: MIT */
#include "posix/table.h"

#include <fcntl.h>
#include <sched.h>

#include "base/clock.h"
#include "base/inject.h"
#include "base/inside.h"
#include "base/key.h"
#include "base/sys.h"
#include "posix/posix.h"

/*
 * Where descriptors of our own live. High enough to stay out of the program's way
 * (the lowest free number is the program's, EP-NEW-05), low enough that the kernel's
 * own table stays small: fork copies it.
 */
#define HIDDEN_BASE 4000
#define HIDDEN_ROOM 256

/* All under hidden_lock, and shared also where no other thread is. */
struct hidden {
	struct pollux_file file;
	int *owner;
	plx_moved_t moved;
	/* Where it is now, -1: closed. Numbers that it has left mean it, too, for a while. */
	int number;
	uint32_t moves;
	/* Both sides of a fork may have it. */
	bool shared;
};

PLX_LARGE struct pollux_file *plx_table_first[PLX_TABLE_CHUNK] __attribute__((aligned(64)));
/* The first one is never looked up here. */
PLX_LARGE struct pollux_file **plx_table_chunks[PLX_TABLE_CHUNKS];
PLX_LARGE void **plx_table_hints[PLX_TABLE_CHUNKS];
/* One more than the highest chunk that there is or is about to be. */
static int chunks_end = 1;
PLX_FORK_PAGE plx_lock_t plx_table_lock;

PLX_FORK_PAGE uint32_t plx_spilling;

/*
 * Changing a number is a system call and a store into the table, and a spill must find both done
 * or neither. So it sets plx_spilling, and waits for all who have begun before they could see it.
 * They are not waited for by a grace period: most of such a change is the system call, threads
 * are preempted at its end more than anywhere else, and all who need grace periods would wait for
 * that. Instead each thread counts in a record of its own that it is inside.
 *
 *   plx_spilling     set and cleared under plx_table_lock
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
static PLX_START_PAGE struct plx_key changer_key;

static void changer_exit(void *p)
{
	struct plx_changer *c = p;

	plx_changer = NULL;
	plx_store_rel(&c->taken, 0);
}

PLX_START_CODE void plx_table_init(void)
{
	(void)plx_key(&changer_key, changer_exit);
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

	c = changer_find();
	if (c && pthread_setspecific(plx_key(&changer_key, changer_exit), c)) {
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

/*
 * Two that change the same number. Each makes a system call and a store into the table; if they
 * came in one order to the kernel and in the other to the table, the number would be that of an
 * eventfd whose count is not seen, or that of one file by the table and of another by the kernel.
 * So they take the lock of the number: close of what is ours, dup2 and dup3 that take something of
 * ours away or put it there, and those and dup and F_DUPFD for the number that is duplicated.
 * close_range, which leaves an epoll to the kernel's, takes it for the entry alone: what comes
 * there before the kernel closes the number is looked for afterwards (forget_closed).
 *
 *   number_locks   held over the system call and the store; within enter and leave, so that there
 *                  is none left to wait for when numbers change hands under plx_table_lock
 *
 * Not who makes an object: its number is nobody's before. And not a close of what is the kernel's,
 * which goes by the table without a look at this.
 */
#define NUMBER_LOCKS 64
#define NUMBER_LINES 16
/* Threads close numbers that are neighbours: the locks of these are in different lines. */
static struct {
	plx_lock_t lock[NUMBER_LOCKS / NUMBER_LINES];
} __attribute__((aligned(64))) number_locks[NUMBER_LINES];

static plx_lock_t *number_lock(int fd)
{
	unsigned int n = (unsigned int)fd % NUMBER_LOCKS;

	return &number_locks[n % NUMBER_LINES].lock[n / NUMBER_LINES];
}

void plx_numbers_lock(int fd, int other)
{
	plx_lock_t *a = number_lock(fd), *b = number_lock(other);

	if (a != b)
		plx_lock(a < b ? a : b, PLX_RANK_NUMBER);
	plx_lock(a < b ? b : a, PLX_RANK_NUMBER);
}

void plx_numbers_unlock(int fd, int other)
{
	plx_lock_t *a = number_lock(fd), *b = number_lock(other);

	plx_unlock(a, PLX_RANK_NUMBER);
	if (a != b)
		plx_unlock(b, PLX_RANK_NUMBER);
}

void plx_table_after_fork_child(void)
{
	/* Whoever was inside is not here. */
	for (struct plx_changer *c = plx_load_acq(&changers); c; c = c->next)
		if (plx_load(&c->inside))
			plx_store(&c->inside, 0);
	for (int i = 0; i < NUMBER_LOCKS; i++)
		plx_lock_reset(number_lock(i));
	plx_limit_after_fork_child();
	/* Another thread may have been about to make the first object. */
	plx_retire_after_fork_child();
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
	return plx_xchg(plx_table_slot(fd), f);
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

/* Without memory there is no note. */
void plx_table_hint_slow(int fd, void *index)
{
	void ***at = &plx_table_hints[fd / PLX_TABLE_CHUNK], **none = NULL, **p = plx_load_acq(at);

	if (!p) {
		p = plx_mem_get_zero(PLX_TABLE_CHUNK * sizeof(*p));
		if (p && !plx_cas(at, &none, p)) {
			plx_mem_put(p);
			p = none;
		}
	}
	if (p)
		plx_store(&p[fd % PLX_TABLE_CHUNK], index);
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

static uint32_t hidden_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	(void)wanted;
	return 0;
}

static void hidden_free(struct pollux_file *f)
{
	plx_free(f);
}

static const struct pollux_file_ops hidden_ops = {
	.size = sizeof(hidden_ops), .poll = hidden_poll, .free = hidden_free};

/*
 * The program's soft limit, while we raise it.
 *
 *   limit_lock   held for as long: two that raised it at once would restore what the other has
 *                raised, and who asks for it would be told of the raised one
 *   limit_holds  rises under limit_lock; how many calls of the program are under way that must not
 *                meet a raised limit: it would be that of the process or the program that they
 *                start for good, or what they set would be undone
 *   limit_held   limit_lock; when the last of them began
 *   my_holds     those of the thread: the others' are not in the child of a fork
 *
 * Argument. Who holds it is counted under the lock: who has raised the limit before that has
 * restored it. Who takes the lock later, to raise it, sees the count, and waits with the lock:
 * nobody comes meanwhile. Not for long: what is started has got its limit soon after the last of
 * them began, while the call may last, as system() does, or its end may not be seen, as that of
 * vfork. Waiting without the lock would never end where programs are started all the time, or would
 * have to end while one is. Whoever raises it holds hidden_lock or plx_table_lock as well, so a
 * fork, which takes both, does not meet it. The model is tests/model/limit.pml.
 */
static plx_lock_t limit_lock;
static uint32_t limit_holds;
static int64_t limit_held;
static __thread uint32_t my_holds;

#define HOLD_NS 20000000

/* Also before anything is ours, and so before anybody stands in front of the program's handlers. */
void plx_px_limit_hold(void)
{
	struct plx_masked m;
	PLX_INSIDE();

	plx_signals_block(&m);
	plx_lock(&limit_lock, PLX_RANK_LIMIT);
	my_holds++;
	plx_xadd(&limit_holds, 1);
	limit_held = plx_now_ns();
	plx_unlock(&limit_lock, PLX_RANK_LIMIT);
	plx_signals_unblock(&m);
}

void plx_px_limit_let_go(void)
{
	struct plx_masked m;
	PLX_INSIDE();

	/* A handler in between would fork a child that counts too few. */
	plx_signals_block(&m);
	my_holds--;
	PLX_DELAY(limit_let_go);
	plx_xadd(&limit_holds, (uint32_t)-1);
	plx_signals_unblock(&m);
}

/* No hold: whoever has raised it keeps the lock until it is restored. */
bool plx_limit_get(struct rlimit *lim)
{
	bool others = !plx_px_alone();
	struct plx_masked m;
	long r;
	PLX_INSIDE();

	plx_signals_block(&m);
	if (others)
		plx_lock(&limit_lock, PLX_RANK_LIMIT);
	r = plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, lim);
	if (others)
		plx_unlock(&limit_lock, PLX_RANK_LIMIT);
	plx_signals_unblock(&m);
	return r == 0;
}

int plx_kernel_eventfd(unsigned int flags)
{
	struct rlimit lim;
	int k = plx_sys2(SYS_eventfd2, 0, flags);

	if (k >= 0)
		return k;
	plx_limit_raise(&lim);
	k = plx_sys2(SYS_eventfd2, 0, flags);
	plx_limit_restore(&lim);
	return k;
}

void plx_limit_raise(struct rlimit *was)
{
	struct rlimit more;

	plx_lock(&limit_lock, PLX_RANK_LIMIT);
	for (int tries = 0; plx_unlikely(plx_load_acq(&limit_holds) != my_holds) &&
			    plx_now_ns() - limit_held <= HOLD_NS && !PLX_INJECTED(lost_hold);
	     tries++)
		plx_await_step(tries);
	plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, was);
	more = *was;
	more.rlim_cur = was->rlim_max;
	plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, NULL);
}

void plx_limit_restore(const struct rlimit *was)
{
	if (!PLX_INJECTED(lost_limit))
		plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, was, NULL);
	plx_unlock(&limit_lock, PLX_RANK_LIMIT);
}

PLX_CHILD_CODE void plx_limit_after_fork_child(void)
{
	plx_lock_reset(&limit_lock);
	if (plx_load(&limit_holds) != my_holds)
		plx_store(&limit_holds, my_holds);
}

/*
 * Descriptors of our own. From the moment on at which the kernel gives us a number until it stands
 * in the table, and from the moment on at which ours leaves a number until the program's stands
 * there, the table does not tell the truth, and nobody may act on it.
 *
 *   hidden_lock        held for both; no grace period is waited for under it, and it is not taken
 *                      within an RCU section
 *   hidden.number      the one number at which it is; written under the lock
 *   plx_hidden_from    written under the lock, and before the first object; only falls
 *
 * Argument. (1) Under the lock there is no descriptor of ours without an entry. The program's calls
 * that would end a descriptor look at the table under it: dup2 and dup3 keep it until the number is
 * theirs, unless the number is the program's already, for then it cannot become ours; close_range
 * keeps it; close does not end anything that is not the program's when it looks (plx_fd_stray). So
 * none of them ends a descriptor of ours, whatever the moment. close and close_range look that
 * closely from plx_hidden_from on alone: below are only those that are about to be moved up, by the
 * thread that has made them, and no program closes a number that it has not. (Where a low limit has
 * come meanwhile, and numbers have to be looked for further down, a close that has not looked yet
 * may go by.) (2) A descriptor is moved by evict. The old number keeps its entry, and its place in
 * the kernel, while those who have read it from *owner may use it: for a grace period, and until
 * all who change numbers have left. None of
 * them is waited for under the lock, for who is waited for may want it. So whoever wants the number
 * looks again, under the lock: another may have been quicker with the same number, which was the
 * program's, and perhaps ours again, since. `moves` tells this leaving from an earlier one, and the
 * reference in struct plx_left this file from a later one. (3) The lock is held over a fork, so
 * that the child finds neither half. What others have evicted and not yet replaced it closes. (4) A
 * spill holds plx_table_lock while it waits for those who change numbers, and they may wait for
 * hidden_lock; its holder never waits for either.
 */
static PLX_FORK_PAGE plx_lock_t hidden_lock;
int plx_hidden_from = HIDDEN_BASE;

PLX_CHILD_CODE void plx_hidden_lock(void)
{
#if PLX_LOCKDEP
	PLX_INVARIANT(!plx_rcu_inside(), "hidden_lock is not taken within an RCU section");
#endif
	plx_lock(&hidden_lock, PLX_RANK_HIDDEN);
}

PLX_CHILD_CODE void plx_hidden_unlock(void)
{
	plx_unlock(&hidden_lock, PLX_RANK_HIDDEN);
}

int plx_fd_high(void)
{
	return HIDDEN_BASE;
}

/* Where numbers are looked for above the soft limit. */
static rlim_t beyond(const struct rlimit *lim)
{
	return lim->rlim_cur < HIDDEN_BASE && lim->rlim_max > HIDDEN_BASE + HIDDEN_ROOM
		       ? HIDDEN_BASE
		       : lim->rlim_cur;
}

void plx_hidden_begin(void)
{
	struct rlimit lim;
	rlim_t from;

	if (plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &lim) < 0)
		return;
	from = lim.rlim_max > lim.rlim_cur ? beyond(&lim) : lim.rlim_cur - lim.rlim_cur / 8;
	if (from < HIDDEN_BASE)
		plx_store(&plx_hidden_from, (int)from);
}

/* hidden_lock held. A duplicate at the number or above it. */
static int dup_from(int fd, rlim_t from)
{
	if (from < (rlim_t)plx_hidden_from)
		plx_store(&plx_hidden_from, (int)from);
	/*
	 * Who finds the descriptor there finds that the number is one to be asked about. The
	 * partner is the kernel's own: the descriptor is in its table after the next call alone.
	 */
	plx_mb();
	return plx_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, from);
}

/* hidden_lock held. fd duplicated to a high number, close-on-exec; a negative errno if none is had.
 */
static int dup_high(int fd)
{
	struct rlimit lim;
	int n;

	if (!plx_limit_get(&lim))
		return -EMFILE;
	if (lim.rlim_cur > HIDDEN_BASE + HIDDEN_ROOM) {
		n = dup_from(fd, HIDDEN_BASE);
		if (n >= 0)
			return n;
	}
	/*
	 * Above the soft limit the program cannot see what is missing: numbers up
	 * there stay usable when the limit comes down again. It may go up again, too.
	 */
	if (lim.rlim_max > lim.rlim_cur) {
		rlim_t from = beyond(&lim);

		plx_limit_raise(&lim);
		n = dup_from(fd, from);
		plx_limit_restore(&lim);
		if (n >= 0)
			return n;
	}
	for (rlim_t at = lim.rlim_cur; at > 8; at /= 2) {
		n = dup_from(fd, at - at / 8);
		if (n >= 0)
			return n;
	}
	return -EMFILE;
}

/* hidden_lock held. What is hidden at fd, or has been and was moved; NULL: nothing. */
static PLX_CHILD_CODE struct hidden *hidden_at(int fd)
{
	struct hidden *h = NULL;
	struct pollux_file *f;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (f && f->kind == PLX_KIND_HIDDEN)
		h = plx_container_of(f, struct hidden, file);
	plx_rcu_read_unlock();
	return h;
}

static int hide_here(int n, int *owner)
{
	struct hidden *h = plx_zalloc(sizeof(*h));

	if (!h || plx_table_reserve(n) < 0) {
		plx_free(h);
		return -EMFILE;
	}
	pollux_file_init(&h->file, &hidden_ops);
	h->file.kind = PLX_KIND_HIDDEN;
	h->owner = owner;
	h->number = n;
	plx_store(owner, n);
	plx_table_set(n, &h->file);
	return n;
}

int plx_fd_hide_dup(int fd, int *owner)
{
	int n = dup_high(fd);

	if (n < 0)
		return -EMFILE;
	PLX_DELAY(hidden_no_entry);
	if (hide_here(n, owner) < 0) {
		plx_sys1(SYS_close, n);
		return -EMFILE;
	}
	return n;
}

int plx_fd_hide(int fd, int *owner)
{
	int n = plx_fd_hide_dup(fd, owner);

	plx_sys1(SYS_close, fd);
	return n;
}

void plx_fd_share(const int *owner)
{
	hidden_at(*owner)->shared = true;
}

bool plx_fd_shared(struct pollux_file *f)
{
	return plx_container_of(f, struct hidden, file)->shared;
}

void plx_fd_on_move(const int *owner, plx_moved_t moved)
{
	hidden_at(*owner)->moved = moved;
}

/*
 * hidden_lock held. The number of what *owner says, which is hidden no more; *f: the reference of
 * the table. -1 if there is none: the program has closed it behind our back, perhaps.
 */
static PLX_CHILD_CODE int take_out(int *owner, struct pollux_file **f)
{
	struct hidden *h = hidden_at(plx_load(owner));
	int n;

	*f = NULL;
	plx_store(owner, -1);
	if (!h || h->number < 0)
		return -1;
	/* Not what *owner said, if that was copied before it moved. */
	n = h->number;
	h->number = -1;
	plx_store(h->owner, -1);
	*f = plx_table_set(n, NULL);
	return n;
}

PLX_CHILD_CODE void plx_fd_unhide_locked(int *owner)
{
	struct pollux_file *f;
	int n;

	if (plx_load(owner) < 0)
		return;
	PLX_DELAY(unhide);
	plx_hidden_lock();
	n = take_out(owner, &f);
	if (n >= 0)
		plx_sys1(SYS_close, n);
	plx_hidden_unlock();
	if (f)
		plx_file_put_locked(f);
}

PLX_CHILD_CODE void plx_fd_unhide(int *owner)
{
	if (plx_load(owner) < 0)
		return;
	plx_fd_unhide_locked(owner);
	plx_retire_flush_if_full();
}

/* hidden_lock held. */
static PLX_CHILD_CODE struct pollux_file *left_close(int fd)
{
	struct pollux_file *f = plx_table_set(fd, NULL);

	plx_sys1(SYS_close, fd);
	return f;
}

PLX_CHILD_CODE void plx_fd_drop_left(int fd)
{
	struct hidden *h = plx_container_of(plx_table_peek(fd), struct hidden, file);

	if (h->number == fd)
		return;
	plx_hidden_lock();
	plx_file_put_locked(left_close(fd));
	plx_hidden_unlock();
}

/* hidden_lock held. h goes from its number to another one. */
static int move_away(struct hidden *h)
{
	int from = h->number;
	int n = dup_high(from);

	if (n >= 0 && plx_table_reserve(n) < 0) {
		plx_sys1(SYS_close, n);
		n = -EMFILE;
	}
	if (n < 0)
		return -EMFILE;
	PLX_DELAY(hidden_no_entry);
	pollux_file_get(&h->file);
	plx_table_set(n, &h->file);
	h->number = n;
	h->moves++;
	if (h->moved)
		h->moved(h->owner, from, n);
	else
		plx_store(h->owner, n);
	return 0;
}

int plx_fd_evict(int fd, struct plx_left *left)
{
	struct hidden *h;
	int r = 0;

	plx_fd_left_put(left);
	if (plx_likely(!plx_fd_hidden(fd)))
		return 0;
	plx_hidden_lock();
	h = hidden_at(fd);
	if (h && h->number == fd)
		r = move_away(h);
	if (h && r == 0) {
		pollux_file_get(&h->file);
		*left = (struct plx_left){.file = &h->file, .moves = h->moves};
	}
	plx_hidden_unlock();
	if (!left->file)
		return r;
	PLX_DELAY(hidden_left);
	/* Who has read the old number uses it inside an RCU section, or where numbers change. */
	plx_rcu_synchronize();
	plx_table_await();
	return 0;
}

enum plx_want plx_fd_want(int fd, const struct plx_left *left)
{
	struct hidden *h = hidden_at(fd);

	if (h)
		return &h->file == left->file && h->number != fd && h->moves == left->moves
			       ? PLX_WANT_LEFT
			       : PLX_WANT_HIDDEN;
	return plx_sys2(SYS_fcntl, fd, F_GETFD) < 0 ? PLX_WANT_FREE : PLX_WANT_TAKEN;
}

void plx_fd_left_close(int fd, const struct plx_left *left)
{
	if (plx_fd_want(fd, left) == PLX_WANT_LEFT)
		plx_file_put_locked(left_close(fd));
}

void plx_fd_left_put(struct plx_left *left)
{
	if (left->file)
		plx_file_put_locked(left->file);
	left->file = NULL;
}

/*
 * The lock is taken only while somebody holds it: a descriptor of ours that F_GETFD has found was
 * made by one who held it then, and who holds it still or has made the entry.
 */
bool plx_fd_stray(int fd)
{
	if (plx_sys2(SYS_fcntl, fd, F_GETFD) < 0)
		return true;
	PLX_DELAY(hidden_stray);
	plx_mb();
	if (plx_unlikely(plx_load_acq(&hidden_lock))) {
		plx_hidden_lock();
		plx_hidden_unlock();
	}
	return plx_fd_hidden(fd);
}
