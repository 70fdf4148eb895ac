/* SPDX-License-Identifier: MIT */
/*
 * Ways out. Before an object leaves our sight it becomes the kernel object of the
 * same numbers, with the same state and registrations, for good.
 *
 * One spill, under plx_table_lock and with signals kept away:
 *
 *   1. the mutexes of all epolls that watch the objects are taken: no harvest, no ctl
 *   2. each object is frozen: reads and writes find it gone, and wait for step 6. Those that have
 *      been quicker may not have told of it: what they have changed would be an edge that nobody
 *      has queued, and be taken for one that has been collected. So they are waited for, if some
 *      item is edge-triggered: for others what is there is enough
 *   3. its items leave the epolls
 *   4. a kernel eventfd with the count takes its place under every number (dup3); what is
 *      in a pipe goes into the kernel's, whose numbers they are
 *   5. the items are added to the kernel epolls; see below
 *   6. the numbers leave the table; spilled is set; the mutexes are released; sleepers are woken
 *      and go to the kernel
 *
 * Not before step 6 does the table let anybody go to the kernel by one of the numbers: what is
 * written between 4 and 5 would be an edge that a ghost is taken for, or stand in the kernel's pipe
 * before what was in ours.
 *
 * The order in which a file's items were added here decides the order in which later
 * wakes find them (EP-RDY-19), and the order of each ready list is that of the next events
 * (EP-ORD-01). The two have nothing to do with each other: one wake of a file with two items
 * queues the newer first. So a file's items are first added with an empty mask, in the order
 * of their ages, and then get their masks by MOD, which queues what is ready:
 *
 *   a. items whose event has been collected and must not be reported again: edge-triggered
 *      ones, for which MOD makes a fresh edge, and disarmed ones. They are ghosts: their
 *      event is swallowed by whoever collects it, usually the spill itself. It empties the
 *      kernel's ready list before and after, and puts back what else was on it:
 *      level-triggered items stay by themselves, the others are armed again by MOD, with
 *      the registrations as fdinfo shows them. (The kernel names an event by its data alone.
 *      If the program gives the same data to several of its edge-triggered kernel files,
 *      all of them report again.) Writers are held up meanwhile, so no real edge can be
 *      mistaken for a ghost. Items of an end that has lost the other one have an event
 *      even with an empty mask: that is a ghost, too.
 *   b. items on the ready list, in its order
 *   c. the others, which are not ready
 *
 * There is no MOD for exclusive items (EP-CTL-09); they are added when their turn comes.
 *
 * The model of step 2 is tests/model/told.pml, that of the numbers tests/model/moving.pml.
 *
 * One that is pinned (plx_eventfd_pin) keeps a hidden descriptor of its kernel eventfd.
 */
#include "posix/front.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>

#include "base/inside.h"
#include "base/sanitizer.h"
#include "base/stats.h"
#include "base/sys.h"
#include "posix/uaccess.h"

/* What makes an event for any item: these are reported whether asked for or not, too. */
#define ALWAYS_OR_READY (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP)

/* One registration on its way to the kernel. */
struct move {
	struct pollux_ep *ep;
	struct target *t;
	uint32_t events;
	/* Place in the epoll's ready list, from 1; 0: not on it. */
	uint32_t order;
	/* Place among the watches of its file in the order of their ADDs, from 0. */
	uint32_t age;
	uint64_t data;
	int key;
	bool consumed;
	/* On the ready list without being ready. */
	bool stale;
	/* The kernel has the item, perhaps without its mask; with it. */
	bool added;
	bool done;
	/* A number taken for it until the end; else -1. */
	int held;
};

/* A file that goes to the kernel: an eventfd, or one end of a pipe. */
struct target {
	struct pollux_file *f;
	/* Of an eventfd. */
	uint64_t count;
	/* What it was ready for when it was frozen. */
	uint32_t ready;
	/* A descriptor of the kernel's object: one of the program's, or our own; -1: none. */
	int k;
	/* What its number means from now on, if it is lent, with a reference. */
	struct pollux_file *lent;
};

struct spill {
	struct target *targets;
	struct pollux_ep **eps;
	struct move *moves;
	int ntargets, neps, nmoves;
	int room_targets, room_eps, room_moves;
	/* For each descriptor up to the last: the place in targets plus one of what it meant. */
	uint32_t *numbers;
	int nnumbers, room_numbers;
	struct plx_masked masked;
	/* Timers that are the kernel's alone now. */
	int timers;
	/* What goes may come back (lent.c). */
	bool lend;
	/* Fronts that have been given up. */
	int fronts;
};

/*
 * What is done where an object would leave our sight. The calls that lead here are
 * listed with the drop-in's functions.
 */
static const struct {
	const char *name;
	const char *what;
} ways_out[PLX_OUT_COUNT] = {
	[PLX_OUT_FORK] = {"fork", "all objects; both sides go on with the kernel's"},
	[PLX_OUT_VFORK] = {"vfork", "all objects; the child shares memory, not descriptors"},
	[PLX_OUT_CLONE] = {"clone", "all objects, unless it makes a thread"},
	[PLX_OUT_UNSHARE] = {"unshare", "all objects; nothing is adopted afterwards"},
	[PLX_OUT_EXEC] = {"exec", "objects with a descriptor that is not close-on-exec"},
	[PLX_OUT_SPAWN] = {"spawn", "as exec, and what file actions name"},
	[PLX_OUT_SCM_RIGHTS] = {"scm_rights", "the objects whose descriptors are sent"},
	[PLX_OUT_SPLICE] = {"splice", "the object; so for tee, vmsplice, sendfile"},
	[PLX_OUT_VECTOR] = {"vector", "the object, for reads and writes in several pieces"},
	[PLX_OUT_STDIO] = {"stdio", "the object given to fdopen or dprintf"},
	[PLX_OUT_FCNTL] = {"fcntl", "the object, for owners, signals, leases, locks"},
	[PLX_OUT_IOCTL] = {"ioctl", "the object, for requests other than FIONBIO and its like"},
	[PLX_OUT_IOCTL_FDS] = {"ioctl_fds", "all objects, for requests that may carry descriptors"},
	[PLX_OUT_FLOCK] = {"flock", "the object"},
	[PLX_OUT_FDINFO] = {"fdinfo", "the object whose fdinfo is opened; all, for the folder"},
	[PLX_OUT_AIO] = {"aio", "objects named by an iocb"},
	[PLX_OUT_IO_URING] = {"io_uring", "what a ring names, or all, and nothing is adopted"},
	[PLX_OUT_NESTED] = {"nested", "both epolls and what they watch"},
	[PLX_OUT_FOREIGN_EPOLL] = {"foreign_epoll", "an object added to an epoll that is not ours"},
	[PLX_OUT_NO_FD] = {"no_fd", "an object for which no doorbell or bell is to be had"},
	[PLX_OUT_LIMIT] = {"limit", "all objects, when the hard limit of descriptors gets low"},
	[PLX_OUT_POLL] = {"poll", "an epoll in a poll or select set, and what it watches; "
				  "what a select names beside a file that is hung up"},
	[PLX_OUT_SYSCALL] = {"syscall", "objects named by a raw call that we do not serve"},
	[PLX_OUT_REOPEN] = {"reopen", "the pipe opened again through /proc or /dev/fd"},
	[PLX_OUT_TIMER_DUP] = {"timer_dup", "a timer that gets a second number, or loses its own"},
	[PLX_OUT_TIMER_READ] = {"timer_read", "a timer that is read without O_NONBLOCK"},
	[PLX_OUT_TIMER_WATCHED] = {"timer_watched", "a timer that a second epoll watches"},
	[PLX_OUT_DUP_OVER] = {"dup_over", "a pipe put in the place of another descriptor"},
};

static uint64_t spilled_by[PLX_OUT_COUNT];
/* Threads count each in a row of its own, as far as there are rows. */
#define COUNTER_ROWS 16
static struct {
	uint64_t n[PLX_COUNT_MAX] __attribute__((aligned(64)));
} counters[COUNTER_ROWS];
/* What the parent had counted when it forked this process. */
static PLX_FORK_PAGE uint64_t spilled_before[PLX_OUT_COUNT];
static PLX_FORK_PAGE uint64_t counted_before[PLX_COUNT_MAX];

void plx_px_count(enum plx_counter what)
{
	static uint32_t threads;
	static __thread uint32_t row;

	if (plx_unlikely(!row))
		row = plx_xadd(&threads, 1) % COUNTER_ROWS + 1;
	/* Released: whoever reads the count finds in the table what was counted. */
	__atomic_fetch_add(&counters[row - 1].n[what], 1, __ATOMIC_RELEASE);
}

static uint64_t counters_sum(enum plx_counter what)
{
	uint64_t sum = 0;

	for (int i = 0; i < COUNTER_ROWS; i++)
		sum += plx_load_acq(&counters[i].n[what]);
	return sum;
}

void plx_px_spilled(enum plx_way_out why, int n)
{
	__atomic_fetch_add(&spilled_by[why], n, __ATOMIC_RELAXED);
	__atomic_fetch_add(&counters[0].n[PLX_COUNT_SPILLED], n, __ATOMIC_RELAXED);
}

/*
 * What a spill works with is memory of our own: a handler that has interrupted malloc may fork,
 * and a program that has no heap gets none, which each fork would copy.
 */
static void *scratch(size_t size)
{
	void *p = plx_mem_get_zero(size);

	PLX_INVARIANT(p, "there is memory for turning objects into kernel objects");
	return p;
}

/* The array gets room for more than n, all zero at first. */
#define SCRATCH 384
_Static_assert(sizeof(struct move) <= SCRATCH, "the first array has room");
static void *grow(void *p, int n, int *room, size_t size)
{
	int more = *room ? *room : (int)(SCRATCH / size);
	void *q;

	if (n < *room)
		return p;
	while (more <= n)
		more *= 2;
	q = scratch(more * size);
	if (p)
		plx_copy(q, p, *room * size);
	plx_mem_put(p);
	*room = more;
	return q;
}

static void spill_add_one(struct spill *s, struct pollux_file *f)
{
	struct plx_served *served = plx_file_served(f);

	if (served->picked || plx_file_gone(f) || !pollux_file_tryget(f))
		return;
	s->targets = grow(s->targets, s->ntargets, &s->room_targets, sizeof(*s->targets));
	s->targets[s->ntargets++] = (struct target){.f = f, .k = -1};
	served->picked = s->ntargets;
	served->number = -1;
}

/* The ends of a pipe go together. */
static void spill_add_served(struct spill *s, struct pollux_file *f)
{
	spill_add_one(s, f);
	if (plx_file_is_pipe(f))
		spill_add_one(s, plx_pipe_peer(f));
}

static bool is_eventfd(const struct target *t)
{
	return t->f->kind == PLX_KIND_EVENTFD;
}

/* Its place among the targets plus one. */
static uint32_t picked(const struct target *t)
{
	return plx_file_served(t->f)->picked;
}

static void spill_add_ep(struct spill *s, struct pollux_ep *ep)
{
	for (int i = 0; i < s->neps; i++)
		if (s->eps[i] == ep)
			return;
	/* Gone while this looks: its items have been removed. */
	if (!plx_ep_tryget(ep))
		return;
	s->eps = grow(s->eps, s->neps, &s->room_eps, sizeof(*s->eps));
	s->eps[s->neps++] = ep;
}

/* Everything that the front watches. */
static void spill_add_front(struct spill *s, struct plx_front *fr)
{
	plx_lock(&fr->ep->mtx, PLX_RANK_EP);
	for (struct plx_list *l = fr->ep->items.next; l != &fr->ep->items; l = l->next)
		spill_add_served(s, plx_all_item(l)->file);
	plx_unlock(&fr->ep->mtx, PLX_RANK_EP);
}

static void spill_find_eps(struct spill *s)
{
	plx_rcu_read_lock();
	for (int i = 0; i < s->ntargets; i++) {
		struct plx_watch *w = plx_load_acq(&s->targets[i].f->watches);

		for (; w; w = plx_load_acq(&w->next))
			if (plx_watch_is_item(w))
				spill_add_ep(s, plx_watch_item(w)->ep);
	}
	plx_rcu_read_unlock();
}

/* ep.mtx held, objects frozen. order: place in the ready list, 0 if not on it. */
static void take_item(struct spill *s, struct plx_epitem *item, uint32_t order, struct target *t)
{
	uint32_t events = plx_load(&item->w.events);
	uint32_t ready = t->ready;
	struct move *m;

	s->moves = grow(s->moves, s->nmoves, &s->room_moves, sizeof(*s->moves));
	m = &s->moves[s->nmoves++];
	m->ep = item->ep;
	m->t = t;
	m->events = events;
	m->order = order;
	m->data = item->data;
	m->key = item->key;
	m->age = item->seen;
	m->added = m->done = false;
	m->held = -1;
	m->consumed = (events & EPOLLET) && !order && (ready & events);
	/*
	 * Disarmed: the kernel does the same to it, with an event that there is, or that is
	 * made for it (plx_pipe_raise).
	 */
	if (!(events & ~PLX_EP_FLAGS)) {
		m->consumed = true;
		m->events |= EPOLLIN | EPOLLOUT;
	}
	m->stale = order && !(ready & events);
	plx_item_remove(item);
}

/*
 * Numbers the items of a file by age: plain ones are listed newest first, exclusive ones
 * after them, oldest first. The numbers are kept where a harvest notes its visits; the
 * items are about to go.
 */
static void number_items(struct pollux_file *f)
{
	struct plx_watch *w;
	uint32_t plain = 0, next;

	plx_rcu_read_lock();
	for (w = plx_load_acq(&f->watches); w; w = plx_load_acq(&w->next))
		if (w->place == PLX_WATCH_PLAIN)
			plain++;
	next = plain;
	for (w = plx_load_acq(&f->watches); w; w = plx_load_acq(&w->next))
		if (plx_watch_is_item(w))
			plx_watch_item(w)->seen = w->place == PLX_WATCH_PLAIN ? --plain : next++;
	plx_rcu_read_unlock();
}

/*
 * The ready list first, in its order; then the rest, among it items that a producer has marked and
 * is about to push. An epoll that is just being closed may have no descriptor any more
 * (front_release in epoll.c): its items go nowhere, and nobody would collect a ghost of theirs.
 */
static void take_items(struct spill *s, struct pollux_ep *ep)
{
	const struct plx_front *fr = ep->owner;
	bool closed = plx_load(&fr->kfd) < 0;
	uint32_t order = 0;

	plx_ready_splice(ep);
	for (int pass = 0; pass < 2; pass++) {
		struct plx_list *head = pass ? &ep->items : &ep->ready;
		struct plx_list *l, *next;

		for (l = head->next; l != head; l = next) {
			struct plx_epitem *item = pass ? plx_all_item(l) : plx_rd_item(l);
			uint32_t place = plx_file_served(item->file)->picked;
			bool queued = plx_load(&item->node->mark) & PLX_QUEUED;

			next = l->next;
			if (place && (closed || PLX_INJECTED(forgotten_item)))
				plx_item_remove(item);
			else if (place)
				take_item(s, item, queued ? ++order : 0, &s->targets[place - 1]);
		}
	}
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

bool plx_spill_possible(struct pollux_file *f)
{
	return f->kind != PLX_KIND_EVENTFD || plx_spare_keep(f->mode);
}

/*
 * 2^64-1 cannot be written (EFD-02): it takes a completion of the kernel's AIO. Without one,
 * the count stays one below.
 */
void plx_count_beyond_writes(int k)
{
	struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_flags = IOCB_FLAG_RESFD};
	struct iocb *list = &cb;
	aio_context_t ctx = 0;
	int empty = plx_sys2(SYS_memfd_create, "pollux", MFD_CLOEXEC);

	cb.aio_fildes = empty;
	cb.aio_resfd = k;
	if (empty >= 0 && plx_sys2(SYS_io_setup, 1, &ctx) == 0) {
		plx_sys3(SYS_io_submit, ctx, 1, &list);
		plx_sys1(SYS_io_destroy, ctx);
	}
	if (empty >= 0)
		plx_sys1(SYS_close, empty);
}

static void fill_kernel_eventfd(int k, struct pollux_eventfd *e, uint64_t count)
{
	bool beyond = count == UINT64_MAX;

	count -= beyond;
	if (count)
		plx_sys3(SYS_write, k, &count, sizeof(count));
	if (beyond)
		plx_count_beyond_writes(k);
	if (!(plx_load(&e->served.status) & O_NONBLOCK))
		plx_sys3(SYS_fcntl, k, F_SETFL, 0);
}

/* k also under the number fd, which the program's limit may have left outside since. */
static void replace_number(int k, int fd, int flags)
{
	struct rlimit lim;

	if (plx_sys3(SYS_dup3, k, fd, flags) >= 0)
		return;
	plx_limit_raise(&lim);
	plx_sys3(SYS_dup3, k, fd, flags);
	plx_limit_restore(&lim);
}

/* The slot's reference, so that the spill has one until it ends. A second number is one too many.
 */
static struct pollux_file *lend_number(struct pollux_file *lent)
{
	if (plx_load(&lent->refs) > 1)
		plx_lent_lost();
	pollux_file_get(lent);
	return lent;
}

/* fd is a number of the program's for the object at that place. */
static bool own_number(const struct spill *s, int fd, int place)
{
	return fd < s->nnumbers && s->numbers[fd] == (uint32_t)place + 1;
}

/*
 * Puts the kernel eventfds that there are under all the numbers of their objects. The
 * numbers of pipes belong to the right objects already.
 */
static void replace_numbers(struct spill *s)
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f = plx_table_peek(fd);
		struct plx_served *served = f ? plx_file_served(f) : NULL;
		const struct target *t;
		long cloexec;

		if (!served || !served->picked || own_number(s, fd, served->picked - 1))
			continue;
		t = &s->targets[served->picked - 1];
		if (is_eventfd(t) && t->k < 0)
			continue;
		cloexec = plx_sys2(SYS_fcntl, fd, F_GETFD);
		if (cloexec < 0)
			continue;
		if (is_eventfd(t))
			replace_number(t->k, fd, cloexec & FD_CLOEXEC ? O_CLOEXEC : 0);
		s->numbers = grow(s->numbers, fd, &s->room_numbers, sizeof(*s->numbers));
		s->numbers[fd] = served->picked;
		if (s->nnumbers <= fd)
			s->nnumbers = fd + 1;
		served->number = fd;
	}
}

/* All is as it was, in the kernel: who finds one of the numbers may go there. */
static void numbers_leave(struct spill *s)
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f = plx_table_peek(fd);
		struct plx_served *served = f ? plx_file_served(f) : NULL;
		const struct target *t;

		if (!served || !served->picked)
			continue;
		t = &s->targets[served->picked - 1];
		/* Never empty in between, so that nobody goes past what counts his call. */
		plx_table_set(fd, t->lent ? lend_number(t->lent) : NULL);
		plx_file_put_locked(f);
	}
}

/* A number of the program's for the object, or -1. */
static int number_of(const struct spill *s, uint32_t place)
{
	for (int fd = 0; fd < s->nnumbers; fd++)
		if (s->numbers[fd] == place)
			return fd;
	return -1;
}

/* Of the other end of t's pipe. */
static bool is_peers(const struct target *t, const struct move *m)
{
	return m->t != t && !is_eventfd(m->t) && plx_file_pipe(m->t->f) == plx_file_pipe(t->f);
}

/*
 * Whether a full pipe's last slot is to come when the ready lists have been filled: a stale item of
 * the write end is not alone, so that room made for it later would be told to the others. Exclusive
 * ones may have to go to the kernel before it, and an edge of the readers that has been collected
 * would be made again by the last slot. A pipe of one slot is empty without it.
 */
static bool last_comes_late(const struct spill *s, const struct target *t)
{
	bool stale = false;
	int n = 0;

	if (t->f->kind != PLX_KIND_PIPE_WRITE || !__libc_single_threaded)
		return false;
	for (int i = 0; i < s->nmoves; i++) {
		const struct move *m = &s->moves[i];

		if (m->t == t && (m->events & EPOLLEXCLUSIVE))
			return false;
		if (is_peers(t, m) && (plx_file_pipe(t->f)->capacity == 1 ||
				       (m->consumed && !(m->events & EPOLLONESHOT))))
			return false;
		stale |= m->t == t && m->stale;
		n += m->t == t;
	}
	return stale && n > 1;
}

/*
 * Kernel eventfds for all objects, under all their numbers. Where there is no descriptor,
 * the spare one serves one object after the other, and k says a number of the object.
 */
static void make_kernel_objects(struct spill *s)
{
	struct target *end = s->targets + s->ntargets, *t;
	bool all = true;

	for (t = s->targets; t < end; t++) {
		struct pollux_eventfd *e = plx_file_efd(t->f);

		if (!is_eventfd(t))
			continue;
		t->k = all ? plx_kernel_eventfd(EFD_NONBLOCK | EFD_CLOEXEC |
						(e->file.mode ? EFD_SEMAPHORE : 0))
			   : -1;
		all = t->k >= 0;
		if (all)
			fill_kernel_eventfd(t->k, e, t->count);
	}
	PLX_DELAY(spill_made);
	replace_numbers(s);
	PLX_DELAY(spill_numbers);
	for (t = s->targets; t < end; t++) {
		struct pollux_eventfd *e = plx_file_efd(t->f);
		int n;

		if (t->k >= 0)
			continue;
		if (!is_eventfd(t)) {
			t->k = number_of(s, picked(t));
			continue;
		}
		t->k = plx_spare_take(e->file.mode);
		PLX_INVARIANT(t->k >= 0,
			      "there is a descriptor for turning an object into a kernel object");
		fill_kernel_eventfd(t->k, e, t->count);
		replace_numbers(s);
		n = number_of(s, picked(t));
		if (n < 0)
			continue;
		plx_sys1(SYS_close, t->k);
		t->k = n;
		plx_spare_renew(e->file.mode);
	}
	for (t = s->targets; t < end; t++)
		if (last_comes_late(s, t))
			plx_pipe_keep_room(t->f);
	for (t = s->targets; t < end; t++)
		if (!is_eventfd(t))
			plx_pipe_fill(t->f);
}

/* --- numbers of items ---------------------------------------------------------------- */

/* A duplicate at the number or above it, whatever the program's limit. */
static int dup_from(int fd, int number)
{
	struct rlimit lim;
	int n = plx_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, number);

	if (n >= 0)
		return n;
	plx_limit_raise(&lim);
	n = plx_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, number);
	plx_limit_restore(&lim);
	return n;
}

/* A duplicate far from what the program uses. */
static int dup_away(int fd)
{
	int n = dup_from(fd, plx_fd_high());

	return n >= 0 ? n : dup_from(fd, 0);
}

/* Closing a descriptor of it may release the program's record locks. */
static bool may_hold_locks(int fd)
{
	struct stat st;

	return fstat(fd, &st) < 0 || S_ISREG(st.st_mode);
}

/* One of the descriptors of the spill itself stands where an item's number is wanted. */
static void make_way(struct spill *s, int number)
{
	for (int i = 0; i < s->ntargets; i++) {
		int n;

		if (s->targets[i].k != number || own_number(s, number, i) ||
		    (n = dup_away(number)) < 0)
			continue;
		plx_sys1(SYS_close, number);
		s->targets[i].k = n;
	}
}

/* A number that means another file for a while. */
struct borrowed {
	int number;
	/* What it means otherwise, -1: nothing; and whether that is close-on-exec. */
	int aside;
	int flags;
};

/*
 * If nothing has the number, it can be had; if something has, then only with a single
 * thread: nobody is there to see it.
 */
static bool borrow(struct borrowed *b, int file, int number)
{
	int n;

	plx_fd_vacate(number);
	*b = (struct borrowed){.number = number, .aside = -1};
	n = dup_from(file, number);
	if (n == number)
		return true;
	if (n >= 0)
		plx_sys1(SYS_close, n);
	if (!__libc_single_threaded || may_hold_locks(number))
		return false;
	b->flags = plx_sys2(SYS_fcntl, number, F_GETFD);
	b->aside = dup_away(number);
	if (b->aside < 0)
		return false;
	replace_number(file, number, O_CLOEXEC);
	return true;
}

static void give_back(const struct borrowed *b)
{
	if (b->aside < 0) {
		plx_sys1(SYS_close, b->number);
		return;
	}
	replace_number(b->aside, b->number, b->flags & FD_CLOEXEC ? O_CLOEXEC : 0);
	plx_sys1(SYS_close, b->aside);
}

/*
 * The item's number has come to mean something else since its ADD (EP-KEY-03), but may
 * come to mean the file again (EP-KEY-04), so the kernel is to know the item by it. A number
 * that nothing has stays with the item until the end of the spill. Where the number cannot
 * be had, the item gets one that the program does not use.
 */
static void ctl_orphan(struct spill *s, struct move *m, int op, struct epoll_event *ev)
{
	struct plx_front *fr = m->ep->owner;
	int *kernel = &m->t->k;
	struct borrowed b;

	/* A pipe whose numbers are all closed, while a call is still in it. */
	if (*kernel < 0)
		return;
	if (m->held < 0) {
		make_way(s, m->key);
		if (!borrow(&b, *kernel, m->key)) {
			m->held = dup_away(*kernel);
		} else if (b.aside < 0) {
			m->held = m->key;
		} else {
			plx_sys4(SYS_epoll_ctl, fr->kfd, op, m->key, ev);
			give_back(&b);
			return;
		}
	}
	plx_sys4(SYS_epoll_ctl, fr->kfd, op, m->held, ev);
}

/* --- ghosts ------------------------------------------------------------------------ */

static void ghost_add(struct plx_front *fr, uint64_t data)
{
	plx_lock(&fr->ghost_lock, PLX_RANK_GHOST);
	fr->ghosts = grow(fr->ghosts, fr->nghosts, &fr->room_ghosts, sizeof(*fr->ghosts));
	fr->ghosts[fr->nghosts] = data;
	plx_store_rel(&fr->nghosts, fr->nghosts + 1);
	plx_unlock(&fr->ghost_lock, PLX_RANK_GHOST);
}

void plx_ghost_gone(struct plx_front *fr)
{
	plx_lock(&fr->ghost_lock, PLX_RANK_GHOST);
	PLX_DELAY(ghost_gone);
	if (plx_load(&fr->nghosts))
		plx_store_rel(&fr->gone, plx_load(&fr->gone) + 1);
	plx_unlock(&fr->ghost_lock, PLX_RANK_GHOST);
}

bool plx_ghost_take(struct plx_front *fr, uint64_t data)
{
	bool found = false;

	plx_lock(&fr->ghost_lock, PLX_RANK_GHOST);
	for (uint32_t i = 0; i < fr->nghosts && !found; i++) {
		found = fr->ghosts[i] == data;
		if (found) {
			fr->ghosts[i] = fr->ghosts[fr->nghosts - 1];
			plx_store_rel(&fr->nghosts, fr->nghosts - 1);
		}
	}
	plx_unlock(&fr->ghost_lock, PLX_RANK_GHOST);
	return found;
}

static int by_number(const void *a, const void *b)
{
	const struct plx_registration *x = a, *y = b;

	if (x->fd != y->fd)
		return x->fd < y->fd ? -1 : 1;
	return x->place < y->place ? -1 : x->place > y->place;
}

int plx_registrations(int epfd, struct plx_registration **out)
{
	char path[64], *text = NULL, *line;
	int n = 0, room = 0;
	int len = 0, size = 0;
	struct rlimit lim;
	long fd, r;
	int lent = -1;

	*out = NULL;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epfd);
	fd = plx_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd == -EMFILE) {
		plx_limit_raise(&lim);
		fd = plx_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
		plx_limit_restore(&lim);
	}
	if (fd == -EMFILE && (lent = plx_spare_take(false)) >= 0) {
		plx_sys1(SYS_close, lent);
		fd = plx_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	}
	if (fd < 0)
		return 0;
	do {
		text = grow(text, len + 4096, &size, 1);
		r = plx_sys3(SYS_read, fd, text + len, size - len - 1);
		len += r > 0 ? r : 0;
	} while (r > 0);
	plx_sys1(SYS_close, fd);
	if (lent >= 0)
		plx_spare_renew(false);
	text[len] = 0;
	for (line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
		struct plx_registration reg;
		unsigned long long data;

		if (sscanf(line, "tfd: %d events: %x data: %llx", &reg.fd, &reg.events, &data) != 3)
			continue;
		reg.data = data;
		reg.place = n;
		reg.source = -1;
		*out = grow(*out, n, &room, sizeof(**out));
		(*out)[n++] = reg;
	}
	plx_mem_put(text);
	if (n)
		qsort(*out, n, sizeof(**out), by_number);
	for (int i = 0; i < n; i++) {
		struct plx_registration *r = *out + i;

		r->place = i && r[-1].fd == r->fd ? r[-1].place + 1 : 0;
	}
	return n;
}

/* What is taken off a kernel epoll's ready list while ghosts are laid. */
struct seance {
	struct plx_front *fr;
	struct plx_registration *reg;
	int nreg;
	uint64_t *data;
	int ndata, room;
	int ghosts;
	bool rung;
	/* Something on the list could not be put back: nothing is taken off. */
	bool refused;
};

/* Empties the ready list. At most as many events as there are registrations. */
static void collect_all(struct seance *c, int most)
{
	struct epoll_event *ev = scratch(most * sizeof(*ev));
	struct plx_front *fr = c->fr;
	int got;

	got = plx_sys6(SYS_epoll_pwait, fr->kfd, (long)ev, most, 0, 0, 8);
	for (int i = 0; i < got; i++) {
		if (ev[i].data.u64 == fr->marker && ev[i].events == EPOLLIN) {
			c->rung = true;
		} else if (!plx_ghost_take(fr, ev[i].data.u64)) {
			c->data = grow(c->data, c->ndata, &c->room, sizeof(*c->data));
			c->data[c->ndata++] = ev[i].data.u64;
		}
	}
	plx_mem_put(ev);
}

/* MOD polls again, which queues what is ready. Exclusive items have none (EP-CTL-09). */
static long rearm(const struct seance *c, const struct plx_registration *reg)
{
	struct epoll_event ev = {.events = reg->events, .data.u64 = reg->data};
	bool exclusive = reg->events & EPOLLEXCLUSIVE;
	long r = 0;

	if (exclusive)
		r = plx_sys4(SYS_epoll_ctl, c->fr->kfd, EPOLL_CTL_DEL, reg->fd, NULL);
	return r ? r
		 : plx_sys4(SYS_epoll_ctl, c->fr->kfd, exclusive ? EPOLL_CTL_ADD : EPOLL_CTL_MOD,
			    reg->fd, &ev);
}

/*
 * Whether fd is the file of the registration. Where the kernel does not say, only its own
 * number is taken for it.
 */
static bool is_registered(const struct seance *c, const struct plx_registration *reg, int fd)
{
	struct kcmp_epoll_slot slot = {.efd = c->fr->kfd, .tfd = reg->fd, .toff = reg->place};
	long pid = plx_sys0(SYS_getpid);
	long r = plx_sys6(SYS_kcmp, pid, pid, KCMP_EPOLL_TFD, fd, (long)&slot, 0);

	return r == 0 || (r < 0 && r != -EBADF && r != -ENOENT && fd == reg->fd);
}

/*
 * The registration is out of reach, so another one delivers the event in its place, once.
 * (Should there be a further edge before that, both do.)
 */
static void stand_in(const struct seance *c, const struct plx_registration *reg, int fd)
{
	struct epoll_event ev = {.events = reg->events | EPOLLONESHOT, .data.u64 = reg->data};
	int n = dup_away(fd);

	ev.events &= ~(uint32_t)EPOLLEXCLUSIVE;
	plx_sys4(SYS_epoll_ctl, c->fr->kfd, EPOLL_CTL_ADD, n, &ev);
	plx_sys1(SYS_close, n);
}

/* Numbers that are looked through for a file whose registration has lost its own. */
#define ORPHAN_SEARCH 65536

/* -1 if this process has no descriptor of the registration's file. */
static int find_source(const struct seance *c, const struct plx_registration *reg)
{
	struct rlimit lim;

	if (is_registered(c, reg, reg->fd))
		return reg->fd;
	plx_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &lim);
	for (rlim_t fd = 0; fd < lim.rlim_max && fd < ORPHAN_SEARCH; fd++)
		if (is_registered(c, reg, fd))
			return fd;
	return -1;
}

/*
 * Before the first ghost appears: what is on the list now is none. An edge whose file is
 * open in other processes or in flight only could never be put back. Rather than lose it,
 * collected edges are reported again. From here to seance_end nobody changes a registration
 * (ctl_beside in epoll.c), and nobody takes the list for empty who has not found it so before or
 * after (wait_mixed).
 */
static void seance_begin(struct seance *c, struct plx_front *fr)
{
	memset(c, 0, sizeof(*c));
	c->fr = fr;
	c->nreg = plx_registrations(fr->kfd, &c->reg);
	for (int i = 0; i < c->nreg && !c->refused; i++) {
		struct plx_registration *reg = &c->reg[i];

		/* Now: the ghosts may come under the same number. */
		if ((reg->events & (EPOLLET | EPOLLONESHOT)) && (reg->events & ~PLX_EP_FLAGS)) {
			reg->source = find_source(c, reg);
			c->refused = reg->source < 0;
		}
	}
	PLX_DELAY(spill_registrations);
	if (!c->refused)
		collect_all(c, c->nreg + 1);
	PLX_DELAY(spill_collected);
}

/* Puts a collected event back, if collecting has changed anything. */
static void put_back(const struct seance *c, uint64_t data)
{
	for (int i = 0; i < c->nreg; i++) {
		const struct plx_registration *reg = &c->reg[i];
		struct borrowed b;

		if (reg->data != data || reg->source < 0)
			continue;
		if (reg->source == reg->fd) {
			rearm(c, reg);
		} else if (borrow(&b, reg->source, reg->fd)) {
			rearm(c, reg);
			give_back(&b);
		} else {
			stand_in(c, reg, reg->source);
		}
	}
}

/* Whether a ghost is in the hands of a waiter that may still swallow it. */
static bool ghost_awaited(struct plx_front *fr)
{
	return plx_load_acq(&fr->nghosts) > plx_load_acq(&fr->gone);
}

/*
 * The ghosts are on the kernel's ready list: gets them off it. A waiter that was quicker
 * has its event in hand and swallows it when it runs. It is waited for, but only for a
 * moment if so many waiters have been cancelled in their sleep since that all ghosts may
 * have gone with them, and never for long: it may have been left by a jump.
 */
static void seance_end(struct seance *c)
{
	struct timespec pause = {.tv_nsec = 100000};
	struct plx_front *fr = c->fr;

	if (!c->refused)
		collect_all(c, c->nreg + c->ghosts + 1);
	for (int i = 0; i < c->ndata; i++)
		put_back(c, c->data[i]);
	if (c->rung && !plx_load(&fr->spilled))
		fr->ep->host->unpark_one(fr, plx_bell_word(fr->ep));
	for (int i = 0; i < 10000 && !c->refused && ghost_awaited(fr); i++)
		plx_sys2(SYS_nanosleep, &pause, NULL);
	for (int i = 0; i < 10 && !c->refused && plx_load_acq(&fr->nghosts); i++)
		plx_sys2(SYS_nanosleep, &pause, NULL);
	plx_lock(&fr->ghost_lock, PLX_RANK_GHOST);
	plx_store(&fr->nghosts, 0);
	plx_store(&fr->gone, 0);
	plx_unlock(&fr->ghost_lock, PLX_RANK_GHOST);
	plx_mem_put(c->data);
	plx_mem_put(c->reg);
}

/* Registers the item with these events, or gives it them. */
static void move_ctl(struct spill *s, struct move *m, uint32_t events)
{
	struct plx_front *fr = m->ep->owner;
	struct epoll_event ev = {.events = events, .data.u64 = m->data};
	int op = m->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	plx_xchg(&fr->nkernel, 1);
	if (m->key < s->nnumbers && s->numbers[m->key] == picked(m->t))
		plx_sys4(SYS_epoll_ctl, fr->kfd, op, m->key, &ev);
	else
		ctl_orphan(s, m, op, &ev);
	m->added = true;
}

/* Armed, in the kernel and not on its list: it would be put there. */
static bool notices(const struct move *m)
{
	return m->done && !m->order && !m->consumed;
}

/*
 * What is on the list of the epoll and not ready goes from there, as long as nothing stands there
 * that is to be: a poll looks at the items up to the first that is ready, and keeps no other.
 */
static void unlist(const struct spill *s, const struct pollux_ep *ep)
{
	const struct plx_front *fr = ep->owner;
	struct pollfd p = {.fd = fr->kfd, .events = POLLIN};
	struct timespec none = {0};

	for (int i = 0; i < s->nmoves; i++)
		if (s->moves[i].ep == ep && s->moves[i].done && s->moves[i].order)
			return;
	plx_sys6(SYS_ppoll, (long)&p, 1, (long)&none, 0, 8, 0);
}

/*
 * A stale exclusive item gets its place while the count is not what it is: 1 instead of 0,
 * or the other way below the maximum. That must not make an edge for one whose event has
 * been collected; disarmed ones do not notice.
 */
static void exclusive_go(struct spill *s, struct move *m)
{
	const int *file = &m->t->k;
	bool full = !(m->events & EPOLLIN);
	uint64_t value = 1;

	for (int i = 0; i < s->nmoves; i++) {
		const struct move *other = &s->moves[i];

		if (other->t == m->t && other->consumed && other->done &&
		    !(other->events & EPOLLONESHOT)) {
			move_ctl(s, m, m->events);
			return;
		}
	}
	plx_sys3(full ? SYS_read : SYS_write, *file, &value, sizeof(value));
	move_ctl(s, m, m->events);
	plx_sys3(full ? SYS_write : SYS_read, *file, &value, sizeof(value));
	for (int i = 0; i < s->nmoves; i++) {
		const struct move *other = &s->moves[i];

		if (other->ep != m->ep && other->t == m->t && notices(other))
			unlist(s, other->ep);
	}
}

static bool is_alone(const struct spill *s, const struct move *m)
{
	for (int i = 0; i < s->nmoves; i++)
		if (&s->moves[i] != m && s->moves[i].t == m->t)
			return false;
	return true;
}

static bool others_notice(const struct spill *s, const struct move *m)
{
	for (int i = 0; i < s->nmoves; i++) {
		const struct move *other = &s->moves[i];

		if (other != m && other->t == m->t && notices(other))
			return true;
	}
	return false;
}

/* Nothing watches the other end of its pipe. */
static bool peer_unwatched(const struct spill *s, const struct move *m)
{
	for (int i = 0; i < s->nmoves; i++)
		if (is_peers(m->t, &s->moves[i]))
			return false;
	return true;
}

/*
 * A stale item's file is to be ready for something for a moment. An eventfd is, and so are most
 * pipes; an empty or a full one can be made so, if no item of it that waits for that is in the
 * kernel yet, and if the other end does not notice. (More room is told to all items of a write
 * end, whatever their masks, unless it is there from the beginning on: last_comes_late.)
 */
static bool stale_raise(const struct spill *s, const struct move *m)
{
	bool reads = m->t->f->kind == PLX_KIND_PIPE_READ;

	if (is_eventfd(m->t))
		return true;
	/* One that cannot be asked to look for what there is. */
	if ((m->events & EPOLLEXCLUSIVE) && !(m->events & (reads ? EPOLLIN : EPOLLOUT)))
		return false;
	if (m->t->ready & ALWAYS_OR_READY)
		return true;
	if (!reads)
		return (is_alone(s, m) || plx_file_pipe(m->t->f)->last_out) &&
		       plx_pipe_raise(m->t->f, true);
	/* A byte in a pipe of one slot makes it full, and so no byte makes an edge for writers. */
	return !others_notice(s, m) &&
	       (plx_file_pipe(m->t->f)->capacity > 1 || peer_unwatched(s, m)) &&
	       plx_pipe_raise(m->t->f, true);
}

/* All other items of its write end are on their lists, disarmed, or not in the kernel yet. */
static bool writers_listed(const struct spill *s, const struct move *m)
{
	for (int i = 0; i < s->nmoves; i++) {
		const struct move *other = &s->moves[i];
		bool disarmed = other->consumed && (other->events & EPOLLONESHOT);

		if (other != m && other->t == m->t && other->added &&
		    !(other->done && (other->order || disarmed)))
			return false;
	}
	return true;
}

/*
 * Where that cannot be: the readers of an empty pipe are told of a byte that is not there, which no
 * writer hears of; those who watch a write end of a size that is as before.
 */
static void stale_tell(struct spill *s, struct move *m)
{
	bool reads = m->t->f->kind == PLX_KIND_PIPE_READ;

	if (reads ? others_notice(s, m) : is_eventfd(m->t) || !writers_listed(s, m))
		return;
	move_ctl(s, m, m->events & EPOLLEXCLUSIVE ? m->events : EPOLLIN | EPOLLOUT);
	if (reads)
		plx_pipe_tell_readers(m->t->f);
	else
		plx_pipe_tell_writers(m->t->f);
}

/* Gives the item its mask. */
static void move_go(struct spill *s, struct move *m)
{
	bool stale, raised;

	m->done = true;
	if (m->consumed)
		ghost_add(m->ep->owner, m->data);
	/*
	 * One that has become unready keeps its place on the list until it is collected. With
	 * several threads it loses that: somebody could collect what is made up here.
	 */
	stale = m->stale && __libc_single_threaded;
	if (stale && is_eventfd(m->t) && (m->events & EPOLLEXCLUSIVE)) {
		exclusive_go(s, m);
		return;
	}
	raised = stale && stale_raise(s, m);
	if (raised && !(m->events & EPOLLEXCLUSIVE))
		move_ctl(s, m, EPOLLIN | EPOLLOUT);
	else if (stale && !raised)
		stale_tell(s, m);
	if (!m->added || !(m->events & EPOLLEXCLUSIVE))
		move_ctl(s, m, m->events);
	if (raised && !is_eventfd(m->t))
		plx_pipe_raise(m->t->f, false);
}

static int by_age(const void *a, const void *b)
{
	const struct move *x = a, *y = b;

	if (x->t != y->t)
		return x->t < y->t ? -1 : 1;
	return x->age < y->age ? -1 : x->age > y->age;
}

static int by_epoll(const void *a, const void *b)
{
	const struct move *x = *(struct move *const *)a, *y = *(struct move *const *)b;

	if (x->ep != y->ep)
		return x->ep < y->ep ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/*
 * Items that are armed come later: nothing of this is an edge for them. (Others of a full write end
 * get a place on their lists by it, and lose that when they are found not ready.)
 */
static bool ghost_raise(const struct move *m)
{
	bool able = !is_eventfd(m->t) && plx_pipe_raise(m->t->f, true);

	return able || (m->t->ready & ALWAYS_OR_READY);
}

/* The number of moves that have an event to be swallowed; n, those of an epoll together. */
static int raise_ghosts(struct move **ghosts, int n)
{
	int kept = 0;

	for (int i = 0; i < n; i++) {
		struct move *m = ghosts[i];

		if (ghost_raise(m)) {
			ghosts[kept++] = m;
			continue;
		}
		/* A disarmed one that reports the end of the other side, should that come. */
		m->consumed = false;
		m->events &= ~(uint32_t)(EPOLLIN | EPOLLOUT);
	}
	return kept;
}

/*
 * The byte that raises it makes its pipe full, and writers are told when that goes. So it goes
 * before they have been given their masks.
 */
static bool fills_up(const struct move *m)
{
	return m->t->f->kind == PLX_KIND_PIPE_READ && plx_file_pipe(m->t->f)->capacity == 1 &&
	       !(m->t->ready & ALWAYS_OR_READY);
}

static void lay_ghosts(struct spill *s, struct move **ghosts, int n)
{
	n = raise_ghosts(ghosts, n);
	for (int i = 0, next; i < n; i = next) {
		struct seance c;

		seance_begin(&c, ghosts[i]->ep->owner);
		for (next = i; next < n && ghosts[next]->ep == ghosts[i]->ep; next++)
			move_go(s, ghosts[next]);
		c.ghosts = next - i;
		seance_end(&c);
	}
	for (int i = 0; i < n; i++)
		if (!is_eventfd(ghosts[i]->t))
			plx_pipe_raise(ghosts[i]->t->f, false);
}

/*
 * Of files that have lost their other end, which an empty mask does not hide: the events are
 * ghosts, too. n moves in the order of their ages.
 */
static void add_broken(struct spill *s, struct move **broken, int n)
{
	struct seance *c = scratch((s->neps + 1) * sizeof(*c));

	for (int i = 0; i < n; i++) {
		int e = 0;

		while (s->eps[e] != broken[i]->ep)
			e++;
		if (!c[e].ghosts)
			seance_begin(&c[e], s->eps[e]->owner);
		c[e].ghosts++;
	}
	for (int i = 0; i < n; i++) {
		ghost_add(broken[i]->ep->owner, broken[i]->data);
		move_ctl(s, broken[i], EPOLLET);
	}
	for (int e = 0; e < s->neps; e++)
		if (c[e].ghosts)
			seance_end(&c[e]);
	plx_mem_put(c);
}

/* The ready list of one epoll, while it is made again in the kernel. */
struct ready {
	/* In the list's order, up to the end. */
	struct move **first, **end;
	/* What stands first in the kernel's list, if that is so far a rotation of ours. */
	struct move **head;
	/* The list can be turned: what is collected from its head goes to its end. */
	bool turns;
};

static struct move **list_next(const struct ready *l, struct move **m)
{
	do
		m = m + 1 == l->end ? l->first : m + 1;
	while (!(*m)->done);
	return m;
}

/*
 * What is level-triggered does so by itself, and what a MOD can arm again has to be. Somebody
 * else's files on the list, and other threads that collect, would be in the way.
 */
static bool list_turns(const struct ready *l)
{
	const struct plx_front *fr = (*l->first)->ep->owner;
	struct pollfd p = {.fd = fr->kfd, .events = POLLIN};
	struct timespec none = {0};
	int exclusive = 0;

	for (struct move **m = l->first; m < l->end; m++) {
		bool level = !((*m)->events & (EPOLLET | EPOLLONESHOT));

		if ((*m)->events & EPOLLEXCLUSIVE && !level)
			return false;
		if ((*m)->stale)
			return false;
		exclusive += !!((*m)->events & EPOLLEXCLUSIVE);
	}
	return exclusive && __libc_single_threaded &&
	       !plx_sys6(SYS_ppoll, (long)&p, 1, (long)&none, 0, 8, 0);
}

static void list_turn(struct spill *s, struct ready *l)
{
	const struct plx_front *fr = (*l->head)->ep->owner;
	struct epoll_event ev;

	plx_sys6(SYS_epoll_pwait, fr->kfd, (long)&ev, 1, 0, 0, 8);
	if ((*l->head)->events & (EPOLLET | EPOLLONESHOT))
		move_ctl(s, *l->head, (*l->head)->events);
	l->head = list_next(l, l->head);
}

/* Gives the item its place: behind the one before it, if the list has to be turned to that end. */
static void list_go(struct spill *s, struct ready *l, struct move **m)
{
	if (l->turns && l->head) {
		struct move **next = list_next(l, m);

		while (l->head != next)
			list_turn(s, l);
	}
	move_go(s, *m);
	if (!l->head)
		l->head = m;
}

/*
 * Exclusive items are added in the order of their ages (EP-EXC-02). Those that are not ready
 * can go at any time. One that is ready and older, and has to wait for its place in the list
 * of an epoll, is returned.
 */
static struct move *older_first(struct spill *s, struct move *m)
{
	struct move *o = m;

	if (!(m->events & EPOLLEXCLUSIVE))
		return NULL;
	while (o > s->moves && o[-1].t == m->t)
		o--;
	for (; o < m; o++) {
		if (!(o->events & EPOLLEXCLUSIVE) || o->done)
			continue;
		if (o->order)
			return o;
		move_go(s, o);
	}
	return NULL;
}

/* Whether the item has gone, before its turn if its list can be turned afterwards. */
static bool goes_early(struct spill *s, struct ready *lists, int n, const struct move *o)
{
	for (struct ready *l = lists; l < lists + n; l++)
		for (struct move **m = l->first; m < l->end; m++)
			if (*m == o && l->turns) {
				list_go(s, l, m);
				return true;
			}
	return false;
}

/*
 * The lists, each in its order. If that and the order of ages contradict one another an item goes
 * before its turn, and its list is turned; if that cannot be, it is the order of ages that is left.
 */
static void fill_lists(struct spill *s, struct ready *lists, int n)
{
	struct move *stuck;

	do {
		struct move **at = NULL;
		struct ready *of = NULL;

		stuck = NULL;
		for (struct ready *l = lists; l < lists + n; l++)
			for (struct move **m = l->first; m < l->end; m++) {
				struct move *o = (*m)->done ? NULL : older_first(s, *m);

				if (o) {
					if (!stuck) {
						stuck = o;
						at = m;
						of = l;
					}
					break;
				}
				if (!(*m)->done)
					list_go(s, l, m);
			}
		/* What is older than it, too, has gone or waits behind others. */
		if (stuck && !goes_early(s, lists, n, stuck))
			list_go(s, of, at);
	} while (stuck);
	for (struct ready *l = lists; l < lists + n; l++)
		while (l->turns && l->head != l->first)
			list_turn(s, l);
}

/* Of the n moves of some ready lists. */
static void make_lists(struct spill *s, struct move **queued, int n)
{
	struct ready *lists = scratch((s->neps + 1) * sizeof(*lists));
	int count = 0;

	qsort(queued, n, sizeof(*queued), by_epoll);
	for (int i = 0; i < n; i++) {
		if (!i || queued[i]->ep != queued[i - 1]->ep)
			lists[count++].first = &queued[i];
		lists[count - 1].end = &queued[i + 1];
	}
	for (struct ready *l = lists; l < lists + count; l++)
		l->turns = list_turns(l);
	fill_lists(s, lists, count);
	plx_mem_put(lists);
}

/*
 * Its list can be made before any item gets a mask whose edge has been collected: it has none of
 * these itself, as it is emptied for them, and what they do to the ends of pipes is nothing to it.
 * Exclusive items of other lists must not be older than its own.
 */
static bool list_stands_alone(const struct spill *s, const struct pollux_ep *ep)
{
	for (int i = 0; i < s->nmoves; i++) {
		const struct move *m = &s->moves[i];
		bool exclusive = m->events & EPOLLEXCLUSIVE;

		if (m->ep == ep && (m->consumed || (m->order && !is_eventfd(m->t))))
			return false;
		for (int k = 0; exclusive && m->order && m->ep != ep && k < s->nmoves; k++)
			if (s->moves[k].ep == ep && s->moves[k].t == m->t)
				return false;
	}
	return true;
}

/*
 * What gives a stale exclusive item its place would be an edge for those of its file whose edge has
 * been collected. As long as they have no mask it is none, so such lists are made first. Puts their
 * items into some and returns how many.
 */
static int pick_first(struct spill *s, struct move **some)
{
	int n = 0;

	for (int i = 0; i < s->nmoves && __libc_single_threaded; i++) {
		const struct move *m = &s->moves[i];
		bool picked = !m->stale || !(m->events & EPOLLEXCLUSIVE);

		for (int k = 0; k < n && !picked; k++)
			picked = some[k]->ep == m->ep;
		if (picked || !list_stands_alone(s, m->ep))
			continue;
		for (int k = 0; k < s->nmoves; k++)
			if (s->moves[k].ep == m->ep && s->moves[k].order)
				some[n++] = &s->moves[k];
	}
	return n;
}

static void register_moves(struct spill *s)
{
	struct move **some = scratch((s->nmoves + 1) * sizeof(*some));
	struct move *end = s->moves + s->nmoves;
	int n = 0;

	if (s->nmoves)
		qsort(s->moves, s->nmoves, sizeof(*s->moves), by_age);
	for (struct move *m = s->moves; m < end; m++) {
		bool alone = m->age == 0 && (m + 1 == end || m[1].t != m->t);

		if (alone || (m->events & EPOLLEXCLUSIVE))
			continue;
		if (m->t->ready & (EPOLLERR | EPOLLHUP))
			some[n++] = m;
		else
			move_ctl(s, m, 0);
	}
	add_broken(s, some, n);
	make_lists(s, some, pick_first(s, some));
	for (int pass = 0; pass < 2; pass++) {
		n = 0;
		for (struct move *m = s->moves; m < end; m++)
			if (m->consumed && fills_up(m) == !pass)
				some[n++] = m;
		qsort(some, n, sizeof(*some), by_epoll);
		lay_ghosts(s, some, n);
	}
	n = 0;
	for (struct move *m = s->moves; m < end; m++)
		if (m->order && !m->done)
			some[n++] = m;
	make_lists(s, some, n);
	for (struct target *t = s->targets; t < s->targets + s->ntargets; t++)
		if (t->f->kind == PLX_KIND_PIPE_WRITE && plx_file_pipe(t->f)->last_out)
			plx_pipe_raise(t->f, false);
	for (struct move *m = s->moves; m < end; m++)
		if (!m->done)
			move_go(s, m);
	for (struct move *m = s->moves; m < end; m++)
		if (m->held >= 0)
			plx_sys1(SYS_close, m->held);
	PLX_DELAY(spill_registered);
	for (int i = 0; i < s->neps; i++) {
		struct plx_front *fr = s->eps[i]->owner;

		plx_xadd(&fr->gen, 1);
	}
	plx_mem_put(some);
}

/* The state of an object is final from here on. */
static void target_freeze(struct target *t)
{
	if (!is_eventfd(t)) {
		t->ready = plx_pipe_gone(t->f);
		return;
	}
	t->count = plx_efd_freeze(plx_file_efd(t->f));
	t->ready = (t->count ? EPOLLIN : 0) | (t->count < UINT64_MAX - 1 ? EPOLLOUT : 0);
}

static void target_done(struct spill *s, struct target *t)
{
	struct plx_served *served = plx_file_served(t->f);

	PLX_DELAY(spill_before_done);
	if (is_eventfd(t) && plx_load(&plx_file_efd(t->f)->pins)) {
		plx_hidden_lock();
		(void)plx_fd_hide_dup_private(t->k, &plx_file_efd(t->f)->kfd);
		plx_hidden_unlock();
	}
	if (t->k >= 0 && !own_number(s, t->k, served->picked - 1))
		plx_sys1(SYS_close, t->k);
	served->picked = 0;
	plx_store_rel(&served->spilled, 1);
	if (t->lent)
		plx_file_put_locked(t->lent);
}

/* Before numbers change. Whatever cannot be lent makes all that is gone for good. */
static void targets_lend(struct spill *s)
{
	if (s->lend)
		plx_store_rel(&plx_lent.on, 1);
	for (struct target *t = s->targets; s->lend && t < s->targets + s->ntargets; t++) {
		struct pollux_eventfd *e = plx_file_efd(t->f);

		if (is_eventfd(t) && !plx_load(&e->pins) && plx_load(&e->served.status) &&
		    t->count < UINT64_MAX - 1)
			t->lent = plx_lent_new(e->file.mode);
		s->lend = t->lent;
	}
	if (!s->lend)
		plx_lent_lost();
}

/* Once all is registered: what the way back would not find as it was. */
static void moves_lend(struct spill *s)
{
	for (struct move *m = s->moves; m < s->moves + s->nmoves; m++) {
		bool number = m->key < s->nnumbers && s->numbers[m->key] == picked(m->t);

		if (!number)
			plx_lent_lost();
		if (m->stale && m->t->lent)
			plx_lent_stale(m->t->lent);
	}
}

/* The mutexes held: whether some item remembers that its event has been collected. */
static bool any_edges(const struct spill *s)
{
	bool any = false;

	plx_rcu_read_lock();
	for (int i = 0; i < s->ntargets && !any; i++) {
		struct plx_watch *w = plx_load_acq(&s->targets[i].f->watches);

		for (; w && !any; w = plx_load_acq(&w->next))
			any = plx_watch_is_item(w) && (plx_load(&w->events) & EPOLLET);
	}
	plx_rcu_read_unlock();
	return any;
}

/* plx_table_lock held, signals kept away; the files have been collected in s. */
static void spill_run(struct spill *s, enum plx_way_out why)
{
	struct target *end = s->targets + s->ntargets, *t;

	spill_find_eps(s);
	PLX_DELAY(spill_begun);
	for (int i = 0; i < s->neps; i++)
		plx_lock(&s->eps[i]->mtx, PLX_RANK_EP);
	for (t = s->targets; t < end; t++)
		target_freeze(t);
	PLX_DELAY(spill_frozen);
	/* Partners: all who change the state of an object within an RCU section, and then tell. */
	if ((!__libc_single_threaded || plx_load(&plx_px_raw_threads)) && any_edges(s))
		plx_rcu_synchronize();
	for (t = s->targets; t < end; t++)
		number_items(t->f);
	for (int i = 0; i < s->neps; i++)
		take_items(s, s->eps[i]);
	targets_lend(s);
	make_kernel_objects(s);
	PLX_DELAY(spill_moving);
	register_moves(s);
	for (t = s->targets; t < end; t++)
		if (plx_file_is_pipe(t->f))
			plx_pipe_keep_filled(t->f);
	numbers_leave(s);
	if (s->lend)
		moves_lend(s);
	for (t = s->targets; t < end; t++)
		target_done(s, t);
	for (int i = s->neps - 1; i >= 0; i--)
		plx_unlock(&s->eps[i]->mtx, PLX_RANK_EP);
	plx_px_spilled(why, s->ntargets);
}

void plx_spill_wait(struct pollux_file *f)
{
	for (int tries = 0; !plx_load_acq(&plx_file_served(f)->spilled); tries++)
		plx_await_step(tries);
}

bool plx_spill_hold(bool wait)
{
	/* Who changes a number now does it after us; who has begun is waited for. */
	plx_store_rel(&plx_spilling, 1);
	/* Before any slot is emptied and any front is given up: who finds those finds this set. */
	plx_mover = true;
	plx_store_rel(&plx_moving, 1);
	plx_mb();
	plx_rcu_synchronize();
	if (!wait)
		return plx_table_idle();
	plx_table_await();
	return true;
}

void plx_spill_release(void)
{
	plx_store_rel(&plx_moving, 0);
	plx_mover = false;
	plx_store_rel(&plx_spilling, 0);
}

static void spill_begin(struct spill *s, enum plx_way_out why)
{
	memset(s, 0, sizeof(*s));
	s->lend = why == PLX_OUT_FORK && (plx_px_adopt & PLX_ADOPT_FORKED) && !plx_lent.foreign &&
		  !plx_load(&plx_lent.never);
	plx_signals_block(&s->masked);
	plx_lock(&plx_table_lock, PLX_RANK_TABLE);
	plx_spill_hold(true);
	/* No timer can begin to be lazy before the end of this. */
	plx_timers_true_all();
}

static void spill_unlock(void)
{
	plx_store_rel(&plx_spilling, 0);
	plx_unlock(&plx_table_lock, PLX_RANK_TABLE);
}

/* Runs what has been collected, and lets go. keep: the table lock stays held. */
static void spill_end(struct spill *s, enum plx_way_out why, bool keep)
{
	if (s->ntargets)
		spill_run(s, why);
	plx_px_spilled(why, s->timers);
	plx_store_rel(&plx_moving, 0);
	plx_mover = false;
	if (!keep)
		spill_unlock();
	for (int i = 0; i < s->ntargets; i++) {
		/* Threads blocked in read or write go on with the kernel's object. */
		pollux_file_wake_all(s->targets[i].f, 0);
		plx_file_put_locked(s->targets[i].f);
	}
	for (int i = 0; i < s->neps; i++)
		plx_ep_put(s->eps[i]);
	plx_mem_put(s->targets);
	plx_mem_put(s->eps);
	plx_mem_put(s->moves);
	plx_mem_put(s->numbers);
	if (!keep)
		plx_signals_unblock(&s->masked);
}

/* The front is the kernel's alone from now on. */
static void front_give_up(struct spill *s, struct plx_front *fr)
{
	s->fronts++;
	plx_lock(&fr->lock, PLX_RANK_FRONT);
	if (s->lend) {
		plx_store(&fr->scanned, 0);
		plx_store(&fr->lent, 1);
		/* The child may register what it likes. */
		plx_xchg(&fr->nkernel, 1);
		plx_store_rel(&plx_lent.on, 1);
	} else {
		plx_lent_lost();
	}
	plx_store_rel(&fr->spilled, 1);
	/*
	 * Nobody rings any more, and nobody would take the doorbell's event out. If it has
	 * moved since it was registered, only its end is the end of that.
	 */
	if (fr->inproc &&
	    plx_sys4(SYS_epoll_ctl, fr->kfd, EPOLL_CTL_DEL, fr->doorbell, NULL) == -ENOENT) {
		int bell = plx_xchg(&fr->doorbell, -1);

		plx_rcu_synchronize();
		plx_fd_unhide_locked(&bell);
	}
	plx_unlock(&fr->lock, PLX_RANK_FRONT);
	plx_mb();
	spill_add_front(s, fr);
}

static void spill_add_file(struct spill *s, struct pollux_file *f, int fd)
{
	if (plx_file_served(f))
		spill_add_served(s, f);
	else if (f->kind == PLX_KIND_TIMER)
		s->timers += plx_timer_escape(fd);
	else if (f->kind == PLX_KIND_EPOLL && !plx_load(&plx_file_front(f)->spilled))
		front_give_up(s, plx_file_front(f));
}

/* The file behind fd if there is anything to do for it, with a reference. */
static struct pollux_file *escaping(int fd, enum plx_way_out why)
{
	struct pollux_file *f;

	plx_pipe_forget(fd);
	while ((f = plx_table_get(fd)) && plx_file_lent(f)) {
		plx_lent_used(fd);
		pollux_file_put(f);
	}
	if (f && f->kind == PLX_KIND_TIMER) {
		if (plx_timer_escape(fd))
			plx_px_spilled(why, 1);
		pollux_file_put(f);
		return NULL;
	}
	if (f && f->kind == PLX_KIND_EPOLL && plx_front_spilled(plx_file_front(f))) {
		pollux_file_put(f);
		return NULL;
	}
	return f;
}

/* Together, so that an object which both epolls watch does not leave one before the rest. */
void plx_px_escape_pair(int fd, int other, enum plx_way_out why)
{
	PLX_INSIDE();
	struct pollux_file *f = escaping(fd, why), *g = escaping(other, why);
	struct spill s;

	if (f || g) {
		spill_begin(&s, why);
		if (f)
			spill_add_file(&s, f, fd);
		if (g)
			spill_add_file(&s, g, other);
		spill_end(&s, why, false);
	}
	if (f)
		pollux_file_put(f);
	if (g)
		pollux_file_put(g);
}

/* Whether it means something that is in process; no more than a hint, for it may leave. */
static bool in_process(int fd)
{
	struct pollux_file *f;
	bool is;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	is = f && (plx_file_served(f) || f->kind == PLX_KIND_TIMER ||
		   (f->kind == PLX_KIND_EPOLL && !plx_load(&plx_file_front(f)->spilled)));
	plx_rcu_read_unlock();
	return is;
}

/*
 * What is there when it is over may be another of ours, by a dup2 that the spill has waited for, or
 * that has been taken back (table.c): nobody goes to the kernel by the number before it has left.
 */
void plx_px_escape(int fd, enum plx_way_out why)
{
	do {
		plx_px_escape_pair(fd, -1, why);
	} while (plx_unlikely(in_process(fd)));
}

/* Everything in the table that want() picks. */
static void spill_table(struct spill *s, bool (*want)(int fd))
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f;

		/* A reference is a write, which a fork pays for. */
		if (!in_process(fd) || !(f = plx_table_get(fd)))
			continue;
		if ((!want || want(fd)) && !PLX_INJECTED(lost_spill))
			spill_add_file(s, f, fd);
		plx_file_put_locked(f);
	}
}

/*
 * So many objects had been adopted when all went out: as long as there are no more, none is in
 * process. (What has not been counted yet when the number is read is counted later.)
 */
static uint64_t all_out;

static uint64_t adopted_ever(void)
{
	return counters_sum(PLX_COUNT_EPOLLS) + counters_sum(PLX_COUNT_EVENTFDS) +
	       counters_sum(PLX_COUNT_PIPES) + counters_sum(PLX_COUNT_TIMERS) +
	       counters_sum(PLX_COUNT_BACK);
}

static bool nothing_in(void)
{
	return adopted_ever() == plx_load_acq(&all_out);
}

/*
 * Some programs come here with every request to a driver: nothing is looked for if
 * nothing has been adopted since the last time.
 */
void plx_px_escape_all(enum plx_way_out why)
{
	PLX_INSIDE();
	struct spill s;
	uint64_t adopted;

	plx_pipe_forget_all();
	if (why != PLX_OUT_FORK && plx_load(&plx_lent.on))
		plx_lent_never();
	adopted = adopted_ever();
	if (adopted == plx_load_acq(&all_out))
		return;
	plx_store(&plx_lent.hold, why == PLX_OUT_FORK);
	spill_begin(&s, why);
	spill_table(&s, NULL);
	spill_end(&s, why, false);
	plx_store_rel(&all_out, adopted);
}

void plx_px_limit_lowered(rlim_t hard)
{
	PLX_INSIDE();

	if (!plx_spare_beyond(hard))
		return;
	/* A spare beyond the limit would serve only once. */
	plx_px_escape_all(PLX_OUT_LIMIT);
	plx_spare_drop();
}

static bool survives_exec(int fd)
{
	long flags = plx_sys2(SYS_fcntl, fd, F_GETFD);

	return flags >= 0 && !(flags & FD_CLOEXEC);
}

/*
 * Most programs open everything close-on-exec. What another thread adopts at this moment the new
 * program inherits or not, as the kernel would have it; so no lock is needed to look.
 */
static bool any_inherited(void)
{
	bool any = false;

	if (nothing_in())
		return false;
	for (int fd = plx_table_next(0); fd >= 0 && !any; fd = plx_table_next(fd + 1))
		any = in_process(fd) && survives_exec(fd);
	return any;
}

/* What is lent is used by another program then. */
static void lent_inherited(void)
{
	if (!plx_load(&plx_lent.on))
		return;
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f;
		bool lent;

		plx_rcu_read_lock();
		f = plx_table_peek(fd);
		lent = f && plx_file_lent(f);
		plx_rcu_read_unlock();
		if (lent && survives_exec(fd))
			plx_lent_used(fd);
	}
}

void plx_px_escape_inherited(enum plx_way_out why)
{
	PLX_INSIDE();
	struct spill s;

	plx_pipe_forget_all();
	lent_inherited();
	if (!any_inherited())
		return;
	spill_begin(&s, why);
	plx_pipe_forget_all();
	spill_table(&s, survives_exec);
	spill_end(&s, why, false);
}

void plx_px_escape_msg(const struct msghdr *msg, uint64_t *sent)
{
	PLX_INSIDE();
	struct msghdr m;
	char *control;
	size_t at = 0;

	if (plx_copy_in(&m, msg, sizeof(m)) || !m.msg_control)
		return;
	control = m.msg_control;
	while (at + sizeof(struct cmsghdr) <= m.msg_controllen) {
		struct cmsghdr c;

		if (plx_copy_in(&c, control + at, sizeof(c)) || c.cmsg_len < sizeof(c) ||
		    c.cmsg_len > m.msg_controllen - at)
			return;
		if (c.cmsg_level == SOL_SOCKET && c.cmsg_type == SCM_RIGHTS) {
			for (size_t i = CMSG_LEN(0); i + sizeof(int) <= c.cmsg_len;
			     i += sizeof(int)) {
				int fd;

				if (plx_copy_in(&fd, control + at + i, sizeof(fd)))
					return;
				plx_sent_begin(fd, sent);
				if (plx_fd_ours(fd))
					plx_px_escape(fd, PLX_OUT_SCM_RIGHTS);
			}
		}
		at += CMSG_ALIGN(c.cmsg_len);
	}
}

void plx_px_sent(void *sent)
{
	plx_sent_end(*(uint64_t *)sent);
}

long plx_px_escape_iocbs(long n, void *const *iocbs)
{
	PLX_INSIDE();
	for (long i = 0; i < n; i++) {
		struct iocb cb;
		void *p;

		if (plx_copy_in(&p, iocbs + i, sizeof(p)) || plx_copy_in(&cb, p, sizeof(cb)))
			break;
		if (plx_fd_hidden(cb.aio_fildes) ||
		    ((cb.aio_flags & IOCB_FLAG_RESFD) && plx_fd_hidden(cb.aio_resfd)))
			return i;
		if (plx_fd_ours(cb.aio_fildes))
			plx_px_escape(cb.aio_fildes, PLX_OUT_AIO);
		if ((cb.aio_flags & IOCB_FLAG_RESFD) && plx_fd_ours(cb.aio_resfd))
			plx_px_escape(cb.aio_resfd, PLX_OUT_AIO);
	}
	return n;
}

/*
 * A fork that finds nothing of ours does nothing: every page that it wrote would have to be
 * copied on both sides. BEGUN is for good. It and forks that have found nothing, counted
 * in EMPTY_FORK, are never there together, so that prepare and its hooks agree.
 */
#define EMPTY_FORK 2u
uint32_t plx_px_begun;

bool plx_px_begin_slow(void)
{
	uint32_t s = plx_load(&plx_px_begun);

	plx_hidden_begin();
	do {
		if (s >= EMPTY_FORK)
			return false;
	} while (!plx_cas(&plx_px_begun, &s, PLX_BEGUN));
	return true;
}

static bool fork_empty_begin(void)
{
	uint32_t s = plx_load_acq(&plx_px_begun);

	do {
		if (s == PLX_BEGUN)
			return false;
	} while (!plx_cas(&plx_px_begun, &s, s + EMPTY_FORK));
	PLX_DELAY(fork_empty);
	return true;
}

/*
 * Fork. The table lock, that of hidden descriptors and being without signals last from prepare
 * to the hook of each side, so that nothing is adopted or hidden in between and the child finds the
 * locks its own; so does being inside, since leaving would let a signal in that waits.
 */
static PLX_FORK_PAGE struct plx_masked fork_masked;
static PLX_FORK_PAGE uint32_t fork_depth;

PLX_START_PAGE bool plx_px_fork_known;
uint32_t plx_px_raw_threads;

/*
 * A quiet fork: nothing is in process, and no other thread is here. Then no lock can be held
 * by somebody who is missing in the child, nobody adopts anything meanwhile, signals wait as the
 * thread is inside, and once we have no descriptors of our own that the child would have to close
 * there is nothing to do on either side. What is noted is the thread's own: libc's fork writes
 * to that page anyway.
 */
static __thread struct {
	uint32_t depth;
	bool on;
	/* In the child, between the two steps. */
	bool child;
} quiet;

/* adopted_ever() of the last time that this process was tidied for it. */
static uint64_t quiet_since = UINT64_MAX;

/* Fronts of epolls that are the kernel's alone have descriptors of ours that nobody needs. */
static PLX_CHILD_CODE void fronts_strip(void)
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f = plx_table_peek(fd);

		if (f && f->kind == PLX_KIND_EPOLL && plx_load(&plx_file_front(f)->spilled)) {
			plx_fd_unhide(&plx_file_front(f)->kfd);
			plx_fd_unhide(&plx_file_front(f)->doorbell);
		}
	}
}

/*
 * False: there is something left that the child would have to close. The kernel copies its table of
 * descriptors up to the highest, so the prototype goes, too, unless AIO rings its bells on it.
 */
static bool fork_tidy(void)
{
	/* The wait that the forking handler has interrupted sleeps on one. */
	if (plx_wait_sleeps() || plx_poll_sleeps())
		return false;
	plx_spare_drop();
	plx_poll_drop_bell();
	fronts_strip();
	if (!counters_sum(PLX_COUNT_AIO_TWINS))
		plx_eventfd_drop_prototype();
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f = plx_table_peek(fd);
		bool fine = !f || (f->kind == PLX_KIND_HIDDEN && plx_fd_shared(f)) ||
			    (f->kind == PLX_KIND_EPOLL && plx_load(&plx_file_front(f)->spilled));

		if (!fine)
			return false;
	}
	return true;
}

static bool fork_is_quiet(void)
{
	uint64_t adopted = adopted_ever();

	if (!__libc_single_threaded || plx_load(&plx_px_raw_threads) ||
	    !plx_load(&plx_signals_wait) || plx_load(&plx_stats_wanted) ||
	    adopted != plx_load(&all_out) || plx_lent_here())
		return false;
	if (quiet_since == adopted)
		return true;
	if (!fork_tidy())
		return false;
	quiet_since = adopted;
	return true;
}

void plx_px_fork_prepare(void)
{
	uint32_t depth;
	struct spill s;

	if (fork_empty_begin())
		return;
	depth = plx_inside_begin();
	plx_pipe_forget_all();
	quiet.on = fork_is_quiet();
	if (quiet.on) {
		quiet.depth = depth;
		return;
	}
	spill_begin(&s, PLX_OUT_FORK);
	fork_depth = depth;
	plx_pipe_forget_all();
	spill_table(&s, NULL);
	spill_end(&s, PLX_OUT_FORK, true);
	fork_masked = s.masked;
	plx_lent_before_fork(!s.ntargets && !s.fronts);
	plx_hidden_lock();
	plx_rcu_before_fork();
}

void plx_px_fork_parent(void)
{
	uint32_t depth = fork_depth;
	struct plx_masked masked = fork_masked;

	if (quiet.on) {
		quiet.on = false;
		plx_inside_end(&quiet.depth);
		return;
	}
	if (plx_load(&plx_px_begun) >= EMPTY_FORK) {
		plx_xadd(&plx_px_begun, -EMPTY_FORK);
		return;
	}
	plx_rcu_after_fork_parent();
	plx_hidden_unlock();
	plx_lent_after_fork_parent();
	spill_unlock();
	plx_signals_unblock(&masked);
	plx_inside_end(&depth);
}

PLX_CHILD_CODE void plx_px_fork_child_locks(void)
{
	struct plx_masked masked = fork_masked;

	if (plx_px_fork_child_empty())
		return;
	quiet.child = quiet.on;
	if (quiet.on) {
		quiet.on = false;
		plx_inside_end(&quiet.depth);
		return;
	}
	plx_rcu_after_fork_child();
	/*
	 * Threads that held locks of the engine are not here. All sets are in the
	 * kernel, so what the locks protect is empty.
	 */
	plx_lock_reset(&plx_topology_lock);
	plx_watches_after_fork_child();
	plx_limit_after_fork_child();
	plx_retire_after_fork_child();
	plx_eventfd_after_fork_child();
	plx_pipe_after_fork_child();
	plx_spare_after_fork_child();
	plx_lent_after_fork_child();
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f = plx_table_peek(fd);
		struct plx_front *fr;

		if (!f || f->kind != PLX_KIND_EPOLL)
			continue;
		fr = plx_file_front(f);
		plx_lock_reset(&fr->lock);
		plx_lock_reset(&fr->ghost_lock);
		plx_lock_reset(&fr->ep->mtx);
		if (fr->ep->sleepers)
			fr->ep->sleepers = 0;
		plx_lock_reset(&f->lock);
	}
	plx_hidden_unlock();
	spill_unlock();
	plx_signals_unblock(&masked);
	plx_inside_end(&fork_depth);
}

PLX_CHILD_CODE void plx_px_fork_child_clean(void)
{
	PLX_INSIDE();

	if (plx_load(&plx_px_begun) != PLX_BEGUN)
		return;
	if (quiet.child) {
		quiet.child = false;
		return;
	}
	memcpy(spilled_before, spilled_by, sizeof(spilled_before));
	for (int i = 0; i < PLX_COUNT_MAX; i++)
		counted_before[i] = counters_sum(i);
	if (plx_load(&plx_stats_wanted))
		plx_stat_reset();
	/* Hidden descriptors would keep kernel epolls alive beyond their last close. */
	fronts_strip();
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f = plx_table_peek(fd);

		if (f && f->kind == PLX_KIND_HIDDEN)
			plx_fd_drop_private(fd);
	}
	plx_spare_after_fork_child_clean();
}

void plx_px_fork_child(void)
{
	PLX_INSIDE();
	plx_px_fork_child_locks();
	plx_px_fork_child_clean();
}

int plx_px_fd_served(int fd)
{
	PLX_INSIDE();
	struct pollux_file *f = plx_table_get(fd);
	int served = 0;

	if (f) {
		served = plx_file_served(f) ||
			 (f->kind == PLX_KIND_EPOLL && !plx_load_acq(&plx_file_front(f)->spilled));
		pollux_file_put(f);
	}
	return served;
}

static unsigned long long counted(enum plx_counter what)
{
	return counters_sum(what) - counted_before[what];
}

static unsigned long long stat_sum(enum plx_stat what)
{
	return plx_stat_sum(what);
}

/* What each kind of call came to; n characters are in buf already. */
static int print_traffic(char *buf, size_t size, int n)
{
	unsigned long long calls = 0, made = stat_sum(PLX_STAT_MADE);

	for (int i = PLX_STAT_READS; i <= PLX_STAT_POLLS; i++)
		calls += stat_sum(i);
	n += snprintf(buf + n, size - n,
		      "pollux: in process: %llu reads, %llu writes, %llu ctl, %llu waits, "
		      "%llu polls; left to the kernel: %llu ctl, %llu waits\n",
		      stat_sum(PLX_STAT_READS), stat_sum(PLX_STAT_WRITES), stat_sum(PLX_STAT_CTLS),
		      stat_sum(PLX_STAT_WAITS), stat_sum(PLX_STAT_POLLS),
		      stat_sum(PLX_STAT_KERNEL_CTLS), stat_sum(PLX_STAT_KERNEL_WAITS));
	n += snprintf(buf + n, size - n,
		      "pollux: system calls: %lld saved, as %llu were made for these %llu\n",
		      (long long)(calls - made), made, calls);
	n += snprintf(buf + n, size - n,
		      "pollux: ready lists: %llu queued, %llu queued already, %llu given out in "
		      "%llu turns, at most %llu\n",
		      stat_sum(PLX_STAT_QUEUED), stat_sum(PLX_STAT_STAYED),
		      stat_sum(PLX_STAT_COLLECTED), stat_sum(PLX_STAT_TURNS),
		      (unsigned long long)plx_stat_longest());
	n += snprintf(buf + n, size - n,
		      "pollux: wakes: %llu rings, %llu sleeps without an event\n",
		      stat_sum(PLX_STAT_RINGS), stat_sum(PLX_STAT_IDLE));
	return n;
}

static int print_aio(char *buf, size_t size, int n)
{
	n += snprintf(buf + n, size - n,
		      "pollux: AIO contexts %llu, of which %llu needed the kernel's, too, and %llu "
		      "became the kernel's\n",
		      counted(PLX_COUNT_AIO), counted(PLX_COUNT_AIO_TWINS),
		      counted(PLX_COUNT_AIO_GIVEN));
	return n + snprintf(buf + n, size - n,
			    "pollux: AIO requests: %llu done at once, %llu by our thread, "
			    "%llu by the kernel's AIO\n",
			    stat_sum(PLX_STAT_AIO_INLINE), stat_sum(PLX_STAT_AIO_ASYNC),
			    stat_sum(PLX_STAT_AIO_KERNEL));
}

void plx_px_stats_print(int fd, bool nothing_too)
{
	bool descriptors = counted(PLX_COUNT_EPOLLS) || counted(PLX_COUNT_EVENTFDS) ||
			   counted(PLX_COUNT_PIPES);
	char buf[4096];
	int n;

	if (!nothing_too && !descriptors && !counted(PLX_COUNT_AIO))
		return;
	n = snprintf(buf, sizeof(buf),
		     "pollux: adopted: %llu epolls, %llu eventfds, %llu pipes; sleeps %llu; "
		     "spilled %llu; process %ld (%.64s)\n",
		     counted(PLX_COUNT_EPOLLS), counted(PLX_COUNT_EVENTFDS),
		     counted(PLX_COUNT_PIPES), counted(PLX_COUNT_SLEEPS),
		     counted(PLX_COUNT_SPILLED), plx_sys0(SYS_getpid),
		     program_invocation_short_name);
	if (descriptors)
		n = print_traffic(buf, sizeof(buf), n);
	if (counted(PLX_COUNT_BACK))
		n += snprintf(buf + n, sizeof(buf) - n, "pollux: back after forks: %llu\n",
			      counted(PLX_COUNT_BACK));
	if (counted(PLX_COUNT_TIMERS))
		n += snprintf(buf + n, sizeof(buf) - n,
			      "pollux: timers %llu: %llu settings that the kernel was not told, "
			      "%llu expiries too early\n",
			      counted(PLX_COUNT_TIMERS), stat_sum(PLX_STAT_TIMER_KEPT),
			      stat_sum(PLX_STAT_TIMER_EARLY));
	if (counted(PLX_COUNT_AIO))
		n = print_aio(buf, sizeof(buf), n);
	for (int i = 0; i < PLX_OUT_COUNT; i++) {
		unsigned long long spilled = plx_load(&spilled_by[i]) - spilled_before[i];

		if (spilled)
			n += snprintf(buf + n, sizeof(buf) - n,
				      "pollux: spilled by %s: %llu (%s)\n", ways_out[i].name,
				      spilled, ways_out[i].what);
	}
	plx_sys3(SYS_write, fd, buf, n);
}
