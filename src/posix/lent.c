/* SPDX-License-Identifier: MIT */
/*
 * The way back. What a fork takes out of the process is lent to the kernel: once no other process
 * can have a descriptor of it any more, and none has used it, it comes back, all of it at once.
 *
 *   lent eventfd   its number is that of a kernel eventfd, and its slot in the table has a file of
 *                  kind PLX_KIND_LENT, by which calls on the number are seen
 *   lent front     front.lent is set, front.spilled is
 *   child          has the write end of a pipe, hidden and close-on-exec, as its own children
 *                  have; its end of file says that no table of descriptors has a copy
 *   used           in memory that parent and child share: the child has done something with
 *                  one of the objects but close it
 *
 * When all comes back: by an epoll_wait of this process on a lent epoll, if
 *
 *   - each pipe has come to its end of file, and after that `used` is 0;
 *   - no call on a lent number is under way (below);
 *   - nothing has gone to the kernel otherwise, or in a way that this cannot undo: then `never` is
 *     set. So are eventfds that block, have several numbers or a pin, and pipes. An eventfd
 *     that is the kernel's and one that is not have no common order in an epoll, and after a fork
 *     all have one. So either none is left there, or all are;
 *   - each registration of a lent eventfd is level-triggered and plain, since the kernel does not
 *     say what it remembers of others;
 *   - the kernel's ready lists are known. What is on the list without being ready keeps its
 *     place until it is looked at. The epoll that is waited on has been looked at just now, as a
 *     whole, for the program: on its list is what was given out, in that order. In any other, an
 *     eventfd is known not to be on it if it is not ready, and nothing has been done with it since
 *     the fork, or since a wait that looked at the whole list began (touched, scanned).
 *
 * Then each eventfd is made anew, with the kernel's count, registered in the fronts, the ready
 * ones first in the order of the list, and put in the place of the kernel's.
 *
 * Calls on lent numbers, and who brings them back
 *
 *   calls      low bits: threads between enter and leave; above: a clock, which leave moves
 *   returning  set and cleared under plx_table_lock, with plx_spilling set
 *   never      set for good
 *
 * Argument. (1) A thread that goes to the kernel with a lent number counts itself, and then looks
 * at `returning`. Who brings them back sets that, and then looks at the count. A barrier is between
 * the two on both sides, so one of them sees the other: the thread takes itself out of the count,
 * waits, and asks the table again; or nothing comes back this time. Nobody who brings objects back
 * waits for a caller, who may sleep. (2) The same with `never`: who sets it looks at `returning`
 * then, and goes to the kernel with the number only when that is 0. After that the number is the
 * kernel's for good or in process, as the table says. (3) What changes the meaning of a number
 * (close, dup) is within plx_table_enter, which plx_spilling keeps away. (4) A slot of a lent
 * number is never empty in between: the spill stores the lent file in the place of the object, and
 * who had found the object, or waits for the spill, asks the table again. So no thread is on its
 * way to the kernel with such a number without being counted. (5) A thread that sleeps in a lent
 * epoll has announced itself, and takes the doorbell's event out; when the objects are back the
 * doorbell is rung. One that sleeps there since before the fork is in wait_mixed, which does both.
 * (6) The child's store of `used` comes before its first use, and so before the end of its
 * descriptors; the parent loads it after it has seen that. (Where a process ends, or executes a
 * program, the kernel lets go of its files when all numbers are closed, so that of the write end
 * may be anywhere among them.) The models are tests/model/lent.pml, lent_child.pml, and for (5)
 * back.pml.
 *
 * A child of a fork does not bring back what it inherits, nor anything else while it has that.
 */
#include "posix/front.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/inside.h"
#include "base/sanitizer.h"
#include "base/stats.h"
#include "base/sys.h"
#include "posix/uaccess.h"

#define ONE_USER 1ull
#define ONE_TICK (1ull << 24)
#define USERS (ONE_TICK - 1)

/* Children that live at the same time; with more of them nothing comes back. */
#define PIPES 16
/* Waits from one look for the end of children to the next, and from one attempt to the next. */
#define LOOK_GAP 64
#define TRY_GAP 4096
/*
 * A way out and back costs what a hundred waits gain. So many are free; then what is lent stays
 * lent for more and more waits, as the program forks often.
 */
#define FREE_RETURNS 4
#define MOST_DOUBLINGS 12
/* So many forks with so few waits each are too many. */
#define IDLE_FORKS 64
#define FEW_WAITS 256

struct lent_efd {
	struct pollux_file file;
	bool semaphore;
	/* The clock when a call on it ended last; 0: none since the fork. */
	uint64_t touched;
};

PLX_FORK_DATA struct plx_lent plx_lent = {.calls = ONE_TICK, .wr = -1};

static PLX_FORK_PAGE struct lent_pipe {
	int rd;
	bool used;
} pipes[PIPES];

static struct lent_efd *file_lent(struct pollux_file *f)
{
	return plx_container_of(f, struct lent_efd, file);
}

static uint32_t lent_poll(struct pollux_file *f)
{
	(void)f;
	return 0;
}

static void lent_free(struct pollux_file *f)
{
	plx_free(file_lent(f));
}

static const struct pollux_file_ops lent_ops = {.poll = lent_poll, .free = lent_free};

struct pollux_file *plx_lent_new(bool semaphore)
{
	struct lent_efd *l = plx_zalloc(sizeof(*l));

	if (!l)
		return NULL;
	pollux_file_init(&l->file, &lent_ops);
	l->file.kind = PLX_KIND_LENT;
	l->semaphore = semaphore;
	if (semaphore)
		plx_store(&plx_lent.semaphores, 1);
	return &l->file;
}

void plx_lent_stale(struct pollux_file *f)
{
	plx_store(&file_lent(f)->touched, 1);
}

/* --- never ----------------------------------------------------------------------------- */

void plx_lent_lost(void)
{
	if (!plx_load(&plx_lent.never))
		plx_store(&plx_lent.never, 1);
}

static void settle(void)
{
	for (int tries = 0; plx_load_acq(&plx_lent.returning); tries++)
		plx_await_step(tries);
}

void plx_lent_never(void)
{
	/* Before whatever is to be done with it. */
	if (plx_lent.foreign && !plx_load(plx_lent.used))
		plx_store(plx_lent.used, 1);
	plx_lent_lost();
	/* Partner: plx_lent_return, which looks at `never` after it has set `returning`. */
	plx_mb();
	PLX_DELAY(lent_never);
	settle();
}

bool plx_lent_over(void)
{
	if (plx_likely(!plx_load(&plx_lent.never) && !plx_lent.foreign))
		return false;
	plx_lent_never();
	return true;
}

void plx_lent_used(int fd)
{
	struct pollux_file *f, *mine;
	bool lent;

	if (plx_likely(!plx_fd_ours(fd)))
		return;
	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	lent = f && plx_file_lent(f);
	plx_rcu_read_unlock();
	if (!lent)
		return;
	plx_lent_never();
	/* What it means now, it means for good. */
	plx_rcu_read_lock();
	mine = plx_table_peek(fd);
	lent = mine && mine->kind == PLX_KIND_LENT && plx_cas(plx_table_slot(fd), &mine, NULL);
	plx_rcu_read_unlock();
	if (lent)
		pollux_file_put(mine);
}

/* --- calls ----------------------------------------------------------------------------- */

/* f, found at fd under RCU, which is left. False: the table is to be asked again. */
static bool lent_enter(struct pollux_file *f, int fd)
{
	bool mine = pollux_file_tryget(f);

	plx_rcu_read_unlock();
	if (!mine)
		return false;
	if (plx_unlikely(plx_lent_over())) {
		plx_lent_used(fd);
		pollux_file_put(f);
		return false;
	}
	PLX_DELAY(lent_enter);
	plx_xadd(&plx_lent.calls, ONE_USER);
	/* Partner: plx_lent_return. */
	plx_mb_after_rmw();
	if (plx_likely(!plx_load_acq(&plx_lent.returning) && plx_table_raw(fd) == f))
		return true;
	plx_xadd(&plx_lent.calls, -ONE_USER);
	settle();
	pollux_file_put(f);
	return false;
}

static void lent_leave(struct pollux_file *f)
{
	uint64_t now = plx_xadd(&plx_lent.calls, ONE_TICK - ONE_USER) / ONE_TICK + 1;
	uint64_t *touched = &file_lent(f)->touched;
	uint64_t was = plx_load(touched);

	while (was < now && !plx_cas(touched, &was, now))
		;
	pollux_file_put(f);
}

uint64_t plx_lent_clock(void)
{
	return plx_load_acq(&plx_lent.calls) / ONE_TICK;
}

/*
 * The eventfd does not block, unless another process says so at this moment, which makes the
 * call the kernel's: signals are let in as if it slept.
 */
static long kernel_call(int fd, void *buf, size_t n, bool writes)
{
	PLX_OUTSIDE(sleep);

	return plx_sys3(writes ? SYS_write : SYS_read, fd, buf, n);
}

long plx_lent_call(struct pollux_file *f, int fd, void *buf, size_t n, bool writes)
{
	long r;

	if (!lent_enter(f, fd))
		return writes ? plx_px_write(fd, buf, n) : plx_px_read(fd, buf, n);
	plx_stat(PLX_STAT_MADE);
	r = kernel_call(fd, buf, n, writes);
	PLX_DELAY(lent_leave);
	lent_leave(f);
	return r;
}

bool plx_lent_ctl(struct pollux_file *f, int epfd, int op, int fd, struct epoll_event *ev, long *r)
{
	plx_rcu_read_lock();
	if (!lent_enter(f, fd))
		return false;
	*r = plx_sys4(SYS_epoll_ctl, epfd, op, fd, ev);
	lent_leave(f);
	return true;
}

/* --- when to look ---------------------------------------------------------------------- */

/* Counts a wait: whether it is one that looks. Waits of several threads may count as one. */
static bool due(void)
{
	uint32_t n = plx_load(&plx_lent.waits) + 1, gap = plx_load(&plx_lent.gap);
	uint32_t most = plx_load(&plx_lent.alone) ? TRY_GAP : LOOK_GAP;

	plx_store(&plx_lent.waits, n);
	if (plx_likely(n < plx_load(&plx_lent.next)))
		return false;
	plx_store(&plx_lent.next, n + gap);
	plx_store(&plx_lent.gap, gap < most ? gap * 2 : most);
	return true;
}

/* Starts counting: the next wait looks, or that after so many. */
static void due_after(uint32_t waits)
{
	plx_store(&plx_lent.waits, 0);
	plx_store(&plx_lent.gap, 1);
	plx_store(&plx_lent.next, waits);
}

/* --- forks ----------------------------------------------------------------------------- */

static struct lent_pipe *pipe_free(void)
{
	for (int i = 0; i < PIPES; i++)
		if (!pipes[i].used)
			return &pipes[i];
	return NULL;
}

static bool pipe_over(const struct lent_pipe *p)
{
	struct pollfd set = {.events = POLLIN};
	const struct timespec now = {0};
	long r = 0;

	/* The number may move away (plx_fd_evict), but not within an RCU section. */
	plx_rcu_read_lock();
	set.fd = plx_load(&p->rd);
	if (set.fd >= 0)
		r = plx_sys6(SYS_ppoll, (long)&set, 1, (long)&now, 0, 8, 0);
	plx_rcu_read_unlock();
	return r == 1 && (set.revents & POLLHUP);
}

/* plx_table_lock held: forgets the pipes that are at their end; whether all are. */
static bool pipes_over(void)
{
	bool all = true;

	for (int i = 0; i < PIPES; i++) {
		if (!pipes[i].used)
			continue;
		if (!pipe_over(&pipes[i])) {
			all = false;
			continue;
		}
		plx_fd_unhide_locked(&pipes[i].rd);
		pipes[i].used = false;
	}
	return all;
}

/* plx_hidden_lock held. */
static bool pipe_make(struct lent_pipe *p)
{
	int fds[2];

	if (plx_sys2(SYS_pipe2, fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return false;
	p->rd = plx_lent.wr = -1;
	if (plx_fd_hide_private(fds[0], &p->rd) < 0) {
		plx_sys1(SYS_close, fds[1]);
		return false;
	}
	p->used = true;
	return plx_fd_hide(fds[1], &plx_lent.wr) >= 0;
}

static bool shared_make(void)
{
	long p;

	if (plx_lent.used)
		return true;
	p = plx_sys6(SYS_mmap, 0, sizeof(*plx_lent.used), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (p < 0 && p > -4096)
		return false;
	plx_lent.used = (uint32_t *)p;
	return true;
}

/* Nothing comes back any more: what was kept for that goes. */
static void give_up(void)
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f = plx_table_peek(fd);

		if (f && f->kind == PLX_KIND_LENT) {
			plx_table_set(fd, NULL);
			plx_file_put_locked(f);
		}
	}
	for (int i = 0; i < PIPES; i++)
		if (pipes[i].used)
			plx_fd_unhide_locked(&pipes[i].rd);
	plx_clear(pipes, sizeof(pipes));
	plx_store(&plx_lent.on, 0);
}

bool plx_lent_here(void)
{
	if (plx_load(&plx_lent.on) &&
	    (plx_lent.foreign ? plx_load(plx_lent.used) : plx_load(&plx_lent.never)))
		give_up();
	return plx_load(&plx_lent.on);
}

/* Descriptors that a fork would copy, and the child close. Nobody is about to ring any more. */
static void bells_close(void)
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f = plx_table_peek(fd);

		if (f && f->kind == PLX_KIND_EPOLL && plx_file_lent(f))
			plx_fd_unhide_locked(&plx_file_front(f)->doorbell);
	}
}

/* A program that forks all the time, and hardly waits, would pay for it with each fork. */
static bool worth_it(void)
{
	uint32_t idle =
		plx_load(&plx_lent.waits) < FEW_WAITS ? plx_load(&plx_lent.idle_forks) + 1 : 0;

	plx_store(&plx_lent.idle_forks, idle);
	return idle < IDLE_FORKS;
}

void plx_lent_before_fork(bool settled)
{
	struct lent_pipe *p;

	if (settled && plx_load(&plx_lent.on))
		bells_close();
	if (!worth_it())
		plx_lent_lost();
	if (!plx_lent_here() || plx_lent.foreign || plx_load(&plx_lent.never))
		return;
	(void)pipes_over();
	p = pipe_free();
	plx_hidden_lock();
	plx_lent.made = p && shared_make() && pipe_make(p);
	plx_hidden_unlock();
	if (!plx_lent.made) {
		plx_lent_lost();
		plx_lent_here();
		return;
	}
	plx_store(&plx_lent.alone, 0);
	due_after(1);
}

void plx_lent_after_fork_parent(void)
{
	if (plx_lent.made)
		plx_fd_unhide_locked(&plx_lent.wr);
	plx_lent.made = false;
	plx_store(&plx_lent.hold, 0);
}

PLX_CHILD_CODE void plx_lent_after_fork_child(void)
{
	if (!plx_load(&plx_lent.on))
		return;
	/* Where nothing comes back, nothing has been shared, and nobody wants to know. */
	plx_lent.foreign = !plx_load(&plx_lent.never) || plx_lent.foreign;
	plx_lent.made = false;
	plx_lent.hold = 0;
}

/* --- back ------------------------------------------------------------------------------ */

/* A lent eventfd that is to come back. */
struct back_efd {
	int fd;
	struct lent_efd *lent;
	uint64_t count;
	struct pollux_eventfd *e;
};

struct back_front {
	int fd;
	struct plx_front *fr;
	bool bell;
};

struct back_item {
	struct back_front *front;
	struct back_efd *efd;
	struct epoll_event ev;
	/* Place on the kernel's list from 1; INT_MAX: not on it. */
	int order;
	bool added;
};

struct back {
	struct plx_lent_wait *w;
	/* Events that the wait has stored. */
	int n;
	struct back_efd *efds;
	struct back_front *fronts;
	struct back_item *items;
	int nefds, nfronts, nitems;
	int room_efds, room_fronts, room_items;
};

static void *more(void *p, int n, int *room, size_t size)
{
	void *q;

	if (n < *room)
		return p;
	q = plx_mem_get_zero((*room * 2 + 16) * size);
	if (!q)
		return NULL;
	if (p)
		plx_copy(q, p, *room * size);
	plx_mem_put(p);
	*room = *room * 2 + 16;
	return q;
}

/* The count of the kernel's eventfd at fd, which is left as it is. */
static bool count_of(int fd, uint64_t *count)
{
	char path[64], text[512], *at;
	long file, n;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = plx_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (file < 0)
		return false;
	n = plx_sys3(SYS_read, file, text, sizeof(text) - 1);
	plx_sys1(SYS_close, file);
	text[n > 0 ? n : 0] = 0;
	at = strstr(text, "eventfd-count:");
	if (!at)
		return false;
	*count = strtoull(at + strlen("eventfd-count:"), NULL, 16);
	return *count < UINT64_MAX - 1;
}

/* What stands in the table. False: something cannot come back, or not now. */
static bool find_all(struct back *b)
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f = plx_table_peek(fd);

		if (f && f->kind == PLX_KIND_LENT) {
			struct back_efd *e = more(b->efds, b->nefds, &b->room_efds, sizeof(*e));

			if (!e)
				return false;
			b->efds = e;
			e += b->nefds++;
			*e = (struct back_efd){.fd = fd, .lent = file_lent(f)};
			if (!count_of(fd, &e->count) ||
			    plx_sys2(SYS_fcntl, fd, F_GETFL) != (O_RDWR | O_NONBLOCK))
				return false;
		} else if (f && f->kind == PLX_KIND_EPOLL) {
			struct back_front *e =
				more(b->fronts, b->nfronts, &b->room_fronts, sizeof(*e));

			if (!e)
				return false;
			b->fronts = e;
			for (int i = 0; i < b->nfronts; i++)
				if (e[i].fr == plx_file_front(f))
					return false;
			e[b->nfronts++] = (struct back_front){.fd = fd, .fr = plx_file_front(f)};
		}
	}
	return true;
}

/*
 * The place of a ready item on the list of the epoll that is waited on: where its event stands
 * among those given out. 0 if that is not known.
 */
static int place_of(struct back *b, uint64_t data)
{
	int place = 0;

	for (int i = 0; i < b->n; i++) {
		struct epoll_event ev;

		if (plx_copy_in(&ev, b->w->ev + i, sizeof(ev)))
			return 0;
		if (ev.data.u64 != data)
			continue;
		if (place)
			return 0;
		place = i + 1;
	}
	return place;
}

static bool item_known(struct back *b, struct back_item *it)
{
	uint32_t ready = (it->efd->count ? EPOLLIN | EPOLLRDNORM : 0) | EPOLLOUT | EPOLLWRNORM;
	uint64_t touched = plx_load(&it->efd->lent->touched);

	it->order = INT_MAX;
	if (it->front->fr == b->w->fr) {
		if (ready & it->ev.events)
			it->order = place_of(b, it->ev.data.u64);
		return it->order;
	}
	return !(ready & it->ev.events) &&
	       (!touched || touched <= plx_load(&it->front->fr->scanned));
}

/*
 * The registrations of one epoll, sorted by number, of which those of lent eventfds come back. The
 * order of several that are ready is known as long as no other thread is in a wait: one that takes
 * few events moves them to the end. (A wait has a reference, and the table has one.)
 */
static bool find_items(struct back *b, struct back_front *front)
{
	struct plx_registration *reg;
	int n = plx_registrations(front->fd, &reg), e = 0, queued = 0;
	bool fine = n >= 0;

	for (int i = 0; i < n && fine; i++) {
		struct back_item *it;

		while (e < b->nefds && b->efds[e].fd < reg[i].fd)
			e++;
		if (e == b->nefds || b->efds[e].fd != reg[i].fd)
			continue;
		it = more(b->items, b->nitems, &b->room_items, sizeof(*it));
		fine = it && !(reg[i].events & PLX_EP_FLAGS) &&
		       (i + 1 == n || reg[i + 1].fd != reg[i].fd);
		if (!it)
			break;
		b->items = it;
		it += b->nitems++;
		*it = (struct back_item){
			.front = front,
			.efd = &b->efds[e],
			.ev = {.events = reg[i].events, .data.u64 = reg[i].data},
		};
		/* As it is; but what had the number before and is open elsewhere has none. */
		fine = fine && item_known(b, it) &&
		       plx_sys4(SYS_epoll_ctl, front->fd, EPOLL_CTL_MOD, reg[i].fd, &it->ev) == 0;
		queued += it->order != INT_MAX;
	}
	plx_mem_put(reg);
	return fine && (queued < 2 || plx_load(&front->fr->ep->file.refs) == 2);
}

static bool has_items(const struct back *b, const struct back_front *front)
{
	for (int i = 0; i < b->nitems; i++)
		if (b->items[i].front == front)
			return true;
	return false;
}

static int by_order(const void *a, const void *b)
{
	const struct back_item *x = a, *y = b;

	return x->order < y->order ? -1 : x->order > y->order;
}

/* All that can fail. */
static bool prepare(struct back *b)
{
	for (int i = 0; i < b->nfronts; i++) {
		struct back_front *front = &b->fronts[i];
		bool lent = plx_load(&front->fr->spilled);

		if ((lent && plx_load(&front->fr->inproc)) || has_items(b, front)) {
			front->bell = lent || !plx_load(&front->fr->inproc);
			if (front->bell && plx_front_bell(front->fr, front->fd) < 0) {
				front->bell = false;
				return false;
			}
		}
	}
	for (int i = 0; i < b->nefds; i++) {
		struct back_efd *e = &b->efds[i];

		if (pollux_efd_new(&e->e, PLX_INJECTED(lost_count) ? 0 : e->count,
				   e->lent->semaphore ? POLLUX_EFD_SEMAPHORE : 0) < 0) {
			e->e = NULL;
			return false;
		}
		e->e->served.status = O_NONBLOCK;
	}
	if (!plx_sort(b->items, b->nitems, sizeof(*b->items), by_order))
		return false;
	for (int i = 0; i < b->nitems; i++) {
		struct back_item *it = &b->items[i];

		it->added = plx_ep_ctl(it->front->fr->ep, EPOLL_CTL_ADD, &it->efd->e->file,
				       it->efd->fd, &it->ev) == 0;
		if (!it->added)
			return false;
	}
	return true;
}

static void undo(struct back *b)
{
	for (int i = 0; i < b->nitems; i++)
		if (b->items[i].added)
			plx_ep_ctl(b->items[i].front->fr->ep, EPOLL_CTL_DEL,
				   &b->items[i].efd->e->file, b->items[i].efd->fd, NULL);
	for (int i = 0; i < b->nefds; i++)
		if (b->efds[i].e)
			plx_file_put_locked(&b->efds[i].e->file);
	for (int i = 0; i < b->nfronts; i++)
		if (b->fronts[i].bell)
			plx_front_no_bell(b->fronts[i].fr);
}

/* False: a number could not be replaced; then nothing has been done. */
static bool commit_number(struct back_efd *e)
{
	long cloexec = plx_sys2(SYS_fcntl, e->fd, F_GETFD);

	return plx_eventfd_stand_in(e->fd, cloexec & FD_CLOEXEC ? O_CLOEXEC : 0) >= 0;
}

static void commit(struct back *b)
{
	for (int i = 0; i < b->nefds; i++)
		plx_px_count(PLX_COUNT_BACK);
	for (int i = 0; i < b->nitems; i++)
		plx_sys4(SYS_epoll_ctl, b->items[i].front->fd, EPOLL_CTL_DEL, b->items[i].efd->fd,
			 NULL);
	PLX_DELAY(lent_back);
	for (int i = 0; i < b->nefds; i++) {
		struct back_efd *e = &b->efds[i];

		PLX_INVARIANT(commit_number(e), "a descriptor can be replaced by another");
		plx_table_set(e->fd, &e->e->file);
		plx_file_put_locked(&e->lent->file);
	}
	PLX_DELAY(lent_numbers);
	for (int i = 0; i < b->nfronts; i++) {
		struct back_front *front = &b->fronts[i];

		plx_xadd(&front->fr->gen, 1);
		plx_store_rel(&front->fr->spilled, 0);
		plx_mb();
		/* Who announces himself later sees `spilled` (wait_lent). */
		if (front->bell && plx_load(&front->fr->ep->sleepers)) {
			plx_bell_other(front->fr->ep);
			front->fr->ep->host->unpark_one(front->fr, plx_bell_word(front->fr->ep));
		}
	}
	plx_store(&plx_lent.on, 0);
	b->w->back = true;
	plx_store(&plx_lent.returns, plx_load(&plx_lent.returns) + 1);
}

/* plx_table_lock held, nobody changes a number, no call on a lent number is under way. */
static void bring_back(struct back *b)
{
	bool fine = find_all(b);

	for (int i = 0; i < b->nfronts && fine; i++)
		fine = find_items(b, &b->fronts[i]);
	if (fine) {
		fine = prepare(b);
		if (fine)
			commit(b);
		else
			undo(b);
	}
	plx_mem_put(b->efds);
	plx_mem_put(b->fronts);
	plx_mem_put(b->items);
}

static bool alone(void)
{
	if (plx_load(&plx_lent.hold) || plx_lent.foreign)
		return false;
	if (!plx_load(&plx_lent.alone)) {
		if (!pipes_over())
			return false;
		plx_store(&plx_lent.alone, 1);
		if (plx_load(&plx_lent.returns) >= FREE_RETURNS) {
			uint32_t n = plx_load(&plx_lent.returns);

			due_after(1u << (n < MOST_DOUBLINGS ? n : MOST_DOUBLINGS));
			return false;
		}
		due_after(1);
	}
	/* After the end of file: partner of the child's store, which comes before it. */
	if (plx_lent.used && plx_load_acq(plx_lent.used))
		plx_lent_lost();
	return !plx_load(&plx_lent.never);
}

static long lent_return(struct plx_lent_wait *w)
{
	struct back b = {.w = w};
	long n = PLX_PASS;

	/* A close may take long: it is not waited for. */
	if (!plx_spill_hold(false)) {
		plx_spill_release();
		return n;
	}
	plx_store(&plx_lent.returning, 1);
	/* Partner: lent_enter, and plx_lent_never. */
	plx_mb();
	PLX_DELAY(lent_returning);
	if (!plx_load(&plx_lent.never) && !(plx_load_acq(&plx_lent.calls) & USERS) &&
	    plx_load(&plx_lent.on)) {
		n = w->collect(w->arg);
		b.n = (int)n;
		if (n >= 0 && n < w->max)
			bring_back(&b);
	}
	plx_store_rel(&plx_lent.returning, 0);
	plx_spill_release();
	return n;
}

long plx_lent_return(struct plx_lent_wait *w)
{
	struct plx_masked masked;
	long n = PLX_PASS;
	sigset_t faults;

	if (!plx_load(&plx_lent.on) || (plx_load(&plx_lent.calls) & USERS) || !due() ||
	    plx_eventfd_prototype() < 0 || !plx_spare_keep(false) ||
	    (plx_load(&plx_lent.semaphores) && !plx_spare_keep(true)))
		return n;
	plx_signals_block(&masked);
	if (masked.blocked) {
		/* The program's buffer may be a bad one. */
		sigemptyset(&faults);
		sigaddset(&faults, SIGSEGV);
		sigaddset(&faults, SIGBUS);
		pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
	}
	if (plx_trylock(&plx_table_lock, PLX_RANK_TABLE)) {
		if (alone())
			n = lent_return(w);
		plx_unlock(&plx_table_lock, PLX_RANK_TABLE);
	}
	plx_signals_unblock(&masked);
	return n;
}
