/* SPDX-License-Identifier: MIT */
/*
 * Ways out. Before an object leaves our sight it becomes the kernel object of the
 * same numbers, with the same state and registrations, for good.
 *
 * One spill, under plx_table_lock and with signals blocked:
 *
 *   1. the mutexes of all epolls that watch the objects are taken: no harvest, no ctl
 *   2. each counter is frozen: reads and writes find it gone, and wait for step 6
 *   3. a kernel eventfd with the count takes its place under every number (dup3)
 *   4. its items leave the epolls
 *   5. and are added to the kernel epolls, in the order of the ready lists and, for each
 *      file, in the order in which they were added here (EP-RDY-19, EP-EXC-02)
 *   6. spilled is set; the mutexes are released; sleepers are woken and go to the kernel
 *
 * ADD makes a fresh edge in the kernel for a file that is ready. That is right for
 * an item that was queued and for a level-triggered one. An edge-triggered item whose
 * event has been collected must not report again. Such items are added first, as
 * ghosts: the one event that each of them makes is swallowed by whoever collects it,
 * usually the spill itself, which empties the kernel's ready list for that and puts back
 * what else was on it: level-triggered items stay by themselves, the others are armed
 * again by MOD, with the registrations as fdinfo shows them. Writers are held up
 * meanwhile, so no real edge can be mistaken for a ghost.
 */
#include "posix/front.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/inside.h"
#include "base/sys.h"
#include "posix/uaccess.h"

/* One registration on its way to the kernel. */
struct move {
	struct pollux_ep *ep;
	struct pollux_eventfd *e;
	uint32_t events;
	/* Place in the epoll's ready list, from 1; 0: not on it. */
	uint32_t order;
	/* Place among the watches of its file in the order of their ADDs, from 0. */
	uint32_t age;
	uint64_t data;
	int key;
	bool consumed;
	bool done;
};

struct spill {
	struct pollux_eventfd **efds;
	struct pollux_ep **eps;
	struct move *moves;
	int nefds, neps, nmoves;
	int room_efds, room_eps, room_moves;
	/* For each descriptor the place in efds plus one of what it meant. */
	uint32_t *numbers;
	int nnumbers;
	sigset_t old_mask;
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
	[PLX_OUT_FDINFO] = {"fdinfo", "the object whose fdinfo is opened"},
	[PLX_OUT_AIO] = {"aio", "objects named by an iocb"},
	[PLX_OUT_IO_URING] = {"io_uring", "all objects; nothing is adopted afterwards"},
	[PLX_OUT_NESTED] = {"nested", "both epolls and what they watch"},
	[PLX_OUT_FOREIGN_EPOLL] = {"foreign_epoll", "an object added to an epoll that is not ours"},
	[PLX_OUT_NO_FD] = {"no_fd",
			   "an object added to an epoll that has gone, or no doorbell to be had"},
	[PLX_OUT_POLL] = {"poll", "an epoll in a poll or select set, and what it watches"},
	[PLX_OUT_SYSCALL] = {"syscall", "objects named by a raw call that we do not serve"},
};

static uint64_t spilled_by[PLX_OUT_COUNT];
static uint64_t counters[PLX_COUNT_MAX];
/* What the parent had counted when it forked this process. */
static uint64_t spilled_before[PLX_OUT_COUNT];
static uint64_t counted_before[PLX_COUNT_MAX];

void plx_px_count(enum plx_counter what)
{
	/* Released: whoever reads the count finds in the table what was counted. */
	__atomic_fetch_add(&counters[what], 1, __ATOMIC_RELEASE);
}

static void *grow(void *p, int n, int *room, size_t size)
{
	if (n < *room)
		return p;
	*room = *room ? *room * 2 : 16;
	p = realloc(p, *room * size);
	PLX_INVARIANT(p, "there is memory for turning objects into kernel objects");
	return p;
}

static void spill_add_efd(struct spill *s, struct pollux_eventfd *e)
{
	if (e->picked || plx_load(&e->gone) || !pollux_file_tryget(&e->file))
		return;
	s->efds = grow(s->efds, s->nefds, &s->room_efds, sizeof(*s->efds));
	s->efds[s->nefds++] = e;
	e->picked = s->nefds;
}

static void spill_add_ep(struct spill *s, struct pollux_ep *ep)
{
	for (int i = 0; i < s->neps; i++)
		if (s->eps[i] == ep)
			return;
	plx_ep_get(ep);
	s->eps = grow(s->eps, s->neps, &s->room_eps, sizeof(*s->eps));
	s->eps[s->neps++] = ep;
}

/* Every eventfd that the front watches. */
static void spill_add_front(struct spill *s, struct plx_front *fr)
{
	plx_lock(&fr->ep->mtx, PLX_RANK_EP);
	for (struct plx_list *l = fr->ep->items.next; l != &fr->ep->items; l = l->next)
		spill_add_efd(s, plx_file_efd(plx_all_item(l)->file));
	plx_unlock(&fr->ep->mtx, PLX_RANK_EP);
}

static void spill_find_eps(struct spill *s)
{
	plx_rcu_read_lock();
	for (int i = 0; i < s->nefds; i++) {
		struct plx_watch *w = plx_load_acq(&s->efds[i]->file.watches);

		for (; w; w = plx_load_acq(&w->next))
			if (plx_watch_is_item(w))
				spill_add_ep(s, plx_watch_item(w)->ep);
	}
	plx_rcu_read_unlock();
}

/* ep.mtx held, counters frozen. order: place in the ready list, 0 if not on it. */
static void take_item(struct spill *s, struct plx_epitem *item, uint32_t order, uint64_t count)
{
	uint32_t events = plx_load(&item->w.events);
	uint32_t ready = (count ? EPOLLIN : 0) | (count < UINT64_MAX - 1 ? EPOLLOUT : 0);
	struct move *m;

	s->moves = grow(s->moves, s->nmoves, &s->room_moves, sizeof(*s->moves));
	m = &s->moves[s->nmoves++];
	m->ep = item->ep;
	m->e = plx_file_efd(item->file);
	m->events = events;
	m->order = order;
	m->data = item->data;
	m->key = item->key;
	m->age = item->seen;
	m->done = false;
	m->consumed = (events & EPOLLET) && !order && (ready & events);
	plx_item_remove(item);
}

/*
 * Numbers the items of a file by age: plain ones are listed newest first, exclusive ones
 * after them, oldest first. The numbers are kept where a harvest notes its visits; the
 * items are about to go.
 */
static void number_items(struct pollux_eventfd *e)
{
	struct plx_watch *w;
	uint32_t plain = 0, next;

	plx_rcu_read_lock();
	for (w = plx_load_acq(&e->file.watches); w; w = plx_load_acq(&w->next))
		if (w->place == PLX_WATCH_PLAIN)
			plain++;
	next = plain;
	for (w = plx_load_acq(&e->file.watches); w; w = plx_load_acq(&w->next))
		if (plx_watch_is_item(w))
			plx_watch_item(w)->seen = w->place == PLX_WATCH_PLAIN ? --plain : next++;
	plx_rcu_read_unlock();
}

/* The ready list first, in its order; then the rest, among it items that a producer
 * has marked and is about to push. */
static void take_items(struct spill *s, struct pollux_ep *ep, const uint64_t *counts)
{
	uint32_t order = 0;

	plx_ready_splice(ep);
	for (int pass = 0; pass < 2; pass++) {
		struct plx_list *head = pass ? &ep->items : &ep->ready;
		struct plx_list *l, *next;

		for (l = head->next; l != head; l = next) {
			struct plx_epitem *item = pass ? plx_all_item(l) : plx_rd_item(l);
			uint32_t picked = plx_file_efd(item->file)->picked;
			bool queued = plx_load(item->mark) & PLX_QUEUED;

			next = l->next;
			if (picked)
				take_item(s, item, queued ? ++order : 0, counts[picked - 1]);
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

bool plx_spill_possible(void)
{
	int k = plx_kernel_eventfd(EFD_CLOEXEC);

	if (k < 0)
		return false;
	plx_sys1(SYS_close, k);
	return true;
}

/*
 * 2^64-1 cannot be written (EFD-02): it takes a completion of the kernel's AIO. Without one,
 * the count stays one below.
 */
static void count_beyond_writes(int k)
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

static int make_kernel_eventfd(struct pollux_eventfd *e, uint64_t count)
{
	int k = plx_kernel_eventfd(EFD_NONBLOCK | EFD_CLOEXEC | (e->semaphore ? EFD_SEMAPHORE : 0));
	bool beyond = count == UINT64_MAX;

	PLX_INVARIANT(k >= 0, "there is a descriptor for turning an object into a kernel object");
	count -= beyond;
	if (count)
		plx_sys3(SYS_write, k, &count, sizeof(count));
	if (beyond)
		count_beyond_writes(k);
	if (!(plx_load(&e->status) & O_NONBLOCK))
		plx_sys3(SYS_fcntl, k, F_SETFL, 0);
	return k;
}

/* Puts kernel eventfds under all the numbers of the objects. */
static void replace_numbers(struct spill *s, const int *k)
{
	int end = plx_table_end();

	s->numbers = calloc(end, sizeof(*s->numbers));
	s->nnumbers = end;
	PLX_INVARIANT(s->numbers, "there is memory for turning objects into kernel objects");
	for (int fd = 0; fd < end; fd++) {
		struct pollux_file *f = plx_table_peek(fd);
		uint32_t picked;
		long cloexec;

		if (!f || f->kind != PLX_KIND_EVENTFD || !(picked = plx_file_efd(f)->picked))
			continue;
		cloexec = plx_sys2(SYS_fcntl, fd, F_GETFD);
		if (cloexec >= 0) {
			plx_sys3(SYS_dup3, k[picked - 1], fd, cloexec & FD_CLOEXEC ? O_CLOEXEC : 0);
			s->numbers[fd] = picked;
		}
		plx_table_set(fd, NULL);
		plx_file_put_locked(f);
	}
}

/*
 * The number under which the kernel is to know the item: its own, unless that has come
 * to mean something else; then one that is about to be closed, so that the item is
 * out of reach for epoll_ctl as before (EP-KEY-03).
 */
static int move_number(const struct spill *s, const struct move *m, const int *k)
{
	if (m->key < s->nnumbers && s->numbers[m->key] == m->e->picked)
		return m->key;
	return k[m->e->picked - 1];
}

/* --- ghosts ------------------------------------------------------------------------ */

static void ghost_add(struct plx_front *fr, uint64_t data)
{
	plx_lock(&fr->ghost_lock, PLX_RANK_GHOST);
	fr->ghosts = realloc(fr->ghosts, (fr->nghosts + 1) * sizeof(*fr->ghosts));
	PLX_INVARIANT(fr->ghosts, "there is memory for turning objects into kernel objects");
	fr->ghosts[fr->nghosts] = data;
	plx_store_rel(&fr->nghosts, fr->nghosts + 1);
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

/* A registration of the kernel epoll, as fdinfo shows it. */
struct registration {
	int fd;
	uint32_t events;
	uint64_t data;
};

/* All registrations of the kernel epoll; their number. *out is to be freed. */
static int registrations(int epfd, struct registration **out)
{
	char path[64], *text = NULL, *line;
	int n = 0, room = 0;
	size_t len = 0, size = 0;
	struct rlimit lim;
	long fd, r;

	*out = NULL;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epfd);
	fd = plx_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd == -EMFILE) {
		plx_limit_raise(&lim);
		fd = plx_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
		plx_limit_restore(&lim);
	}
	if (fd < 0)
		return 0;
	do {
		if (size - len < 4096) {
			size = size ? size * 2 : 16384;
			text = realloc(text, size);
			PLX_INVARIANT(text,
				      "there is memory for turning objects into kernel objects");
		}
		r = plx_sys3(SYS_read, fd, text + len, size - len - 1);
		len += r > 0 ? r : 0;
	} while (r > 0);
	plx_sys1(SYS_close, fd);
	text[len] = 0;
	for (line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
		struct registration reg;
		unsigned long long data;

		if (sscanf(line, "tfd: %d events: %x data: %llx", &reg.fd, &reg.events, &data) != 3)
			continue;
		reg.data = data;
		*out = grow(*out, n, &room, sizeof(**out));
		(*out)[n++] = reg;
	}
	free(text);
	return n;
}

/* Puts a collected event back, if collecting has changed anything. */
static void put_back(int epfd, const struct registration *reg, int n, uint64_t data)
{
	for (int i = 0; i < n; i++) {
		struct epoll_event ev = {.events = reg[i].events, .data.u64 = data};

		if (reg[i].data == data && (reg[i].events & (EPOLLET | EPOLLONESHOT)))
			plx_sys4(SYS_epoll_ctl, epfd, EPOLL_CTL_MOD, reg[i].fd, &ev);
	}
}

/*
 * The ghosts of fr are on the kernel's ready list: gets them off it. A waiter that was
 * quicker has its event in hand and swallows it when it runs; it is waited for, but not
 * for ever, since it may have been cancelled on the way.
 */
static void lay_ghosts(struct plx_front *fr)
{
	struct registration *reg;
	int n = registrations(fr->kfd, &reg);
	struct epoll_event *ev = calloc(n + 1, sizeof(*ev));
	struct timespec pause = {.tv_nsec = 100000};
	bool rung = false;
	int got;

	PLX_INVARIANT(ev, "there is memory for turning objects into kernel objects");
	got = plx_sys6(SYS_epoll_pwait, fr->kfd, (long)ev, n + 1, 0, 0, 8);
	for (int i = 0; i < got; i++) {
		if (ev[i].data.u64 == fr->marker && ev[i].events == EPOLLIN)
			rung = true;
		else if (!plx_ghost_take(fr, ev[i].data.u64))
			put_back(fr->kfd, reg, n, ev[i].data.u64);
	}
	if (rung && !plx_load(&fr->spilled))
		fr->ep->host->unpark_one(fr, plx_bell_word(fr->ep));
	for (int i = 0; i < 10000 && plx_load_acq(&fr->nghosts); i++)
		plx_sys2(SYS_nanosleep, &pause, NULL);
	plx_lock(&fr->ghost_lock, PLX_RANK_GHOST);
	plx_store(&fr->nghosts, 0);
	plx_unlock(&fr->ghost_lock, PLX_RANK_GHOST);
	free(ev);
	free(reg);
}

/*
 * One move may go if the older items of its file have gone, and what stands before it in
 * its epoll: collected edges before queued items, queued items in their order.
 */
static bool move_may_go(const struct move *m, const uint32_t *next_age, bool strict)
{
	const struct plx_front *fr = m->ep->owner;

	if (m->age != next_age[m->e->picked - 1])
		return false;
	if (!strict || !m->order)
		return true;
	return !fr->consumed_left && m->order == fr->order_next;
}

static void move_go(struct spill *s, struct move *m, const int *k, uint32_t *next_age)
{
	struct plx_front *fr = m->ep->owner;
	struct epoll_event ev = {.events = m->events, .data.u64 = m->data};

	if (m->consumed)
		ghost_add(fr, m->data);
	plx_xchg(&fr->nkernel, 1);
	plx_sys4(SYS_epoll_ctl, fr->kfd, EPOLL_CTL_ADD, move_number(s, m, k), &ev);
	m->done = true;
	next_age[m->e->picked - 1]++;
	if (m->order)
		fr->order_next = m->order + 1;
	if (m->consumed && --fr->consumed_left == 0)
		lay_ghosts(fr);
}

/*
 * Both orders together nearly always have a solution. Where they have none, age wins: the
 * ready lists of different epolls were then filled in orders that no single sequence of
 * wakes gives.
 */
static void register_moves(struct spill *s, const int *k)
{
	uint32_t *next_age = calloc(s->nefds + 1, sizeof(*next_age));
	int left = s->nmoves;

	PLX_INVARIANT(next_age, "there is memory for turning objects into kernel objects");
	for (int i = 0; i < s->neps; i++) {
		struct plx_front *fr = s->eps[i]->owner;

		fr->consumed_left = 0;
		fr->order_next = 1;
	}
	for (int i = 0; i < s->nmoves; i++) {
		struct plx_front *fr = s->moves[i].ep->owner;

		fr->consumed_left += s->moves[i].consumed;
	}
	for (bool strict = true; left;) {
		int before = left;

		for (int i = 0; i < s->nmoves; i++) {
			struct move *m = &s->moves[i];

			if (m->done || !move_may_go(m, next_age, strict))
				continue;
			move_go(s, m, k, next_age);
			left--;
			if (!strict)
				break;
		}
		strict = strict ? left < before : true;
	}
	for (int i = 0; i < s->neps; i++) {
		struct plx_front *fr = s->eps[i]->owner;

		plx_xadd(&fr->gen, 1);
	}
	free(next_age);
}

/* plx_table_lock held, signals blocked; the objects have been collected in s. */
static void spill_run(struct spill *s, enum plx_way_out why)
{
	uint64_t *counts = calloc(s->nefds + 1, sizeof(*counts));
	int *k = calloc(s->nefds + 1, sizeof(*k));

	PLX_INVARIANT(counts && k, "there is memory for turning objects into kernel objects");
	spill_find_eps(s);
	for (int i = 0; i < s->neps; i++)
		plx_lock(&s->eps[i]->mtx, PLX_RANK_EP);
	for (int i = 0; i < s->nefds; i++)
		counts[i] = plx_efd_freeze(s->efds[i]);
	for (int i = 0; i < s->nefds; i++)
		number_items(s->efds[i]);
	for (int i = 0; i < s->neps; i++)
		take_items(s, s->eps[i], counts);
	for (int i = 0; i < s->nefds; i++)
		k[i] = make_kernel_eventfd(s->efds[i], counts[i]);
	replace_numbers(s, k);
	register_moves(s, k);
	for (int i = 0; i < s->nefds; i++) {
		PLX_DELAY(spill_before_done);
		plx_sys1(SYS_close, k[i]);
		s->efds[i]->picked = 0;
		plx_store_rel(&s->efds[i]->spilled, 1);
	}
	for (int i = s->neps - 1; i >= 0; i--)
		plx_unlock(&s->eps[i]->mtx, PLX_RANK_EP);
	spilled_by[why] += s->nefds;
	counters[PLX_COUNT_SPILLED] += s->nefds;
	free(counts);
	free(k);
}

static void spill_begin(struct spill *s)
{
	sigset_t all;

	memset(s, 0, sizeof(*s));
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &s->old_mask);
	plx_lock(&plx_table_lock, PLX_RANK_TABLE);
	/* Who changes a number now does it after us; who has begun is waited for. */
	plx_store_rel(&plx_spilling, 1);
	plx_mb();
	plx_rcu_synchronize();
}

static void spill_unlock(void)
{
	plx_store_rel(&plx_spilling, 0);
	plx_unlock(&plx_table_lock, PLX_RANK_TABLE);
}

/* Runs what has been collected, and lets go. keep: the table lock stays held. */
static void spill_end(struct spill *s, enum plx_way_out why, bool keep)
{
	if (s->nefds)
		spill_run(s, why);
	if (!keep)
		spill_unlock();
	for (int i = 0; i < s->nefds; i++) {
		/* Threads blocked in read or write go on with the kernel's object. */
		pollux_file_wake_all(&s->efds[i]->file, 0);
		plx_file_put_locked(&s->efds[i]->file);
	}
	for (int i = 0; i < s->neps; i++)
		plx_ep_put(s->eps[i]);
	free(s->efds);
	free(s->eps);
	free(s->moves);
	free(s->numbers);
	if (!keep)
		pthread_sigmask(SIG_SETMASK, &s->old_mask, NULL);
}

/* The front is the kernel's alone from now on. */
static void front_give_up(struct spill *s, struct plx_front *fr)
{
	plx_lock(&fr->lock, PLX_RANK_FRONT);
	plx_store_rel(&fr->spilled, 1);
	/* Nobody rings any more, and nobody would take the doorbell's event out. */
	if (fr->inproc)
		plx_sys4(SYS_epoll_ctl, fr->kfd, EPOLL_CTL_DEL, fr->doorbell, NULL);
	plx_unlock(&fr->lock, PLX_RANK_FRONT);
	plx_mb();
	spill_add_front(s, fr);
}

static void spill_add_file(struct spill *s, struct pollux_file *f)
{
	if (f->kind == PLX_KIND_EVENTFD)
		spill_add_efd(s, plx_file_efd(f));
	else if (f->kind == PLX_KIND_EPOLL && !plx_load(&plx_file_front(f)->spilled))
		front_give_up(s, plx_file_front(f));
}

void plx_px_escape(int fd, enum plx_way_out why)
{
	PLX_INSIDE();
	struct pollux_file *f = plx_table_get(fd);
	struct spill s;

	if (!f)
		return;
	if (f->kind == PLX_KIND_EPOLL && plx_load_acq(&plx_file_front(f)->spilled)) {
		pollux_file_put(f);
		return;
	}
	spill_begin(&s);
	spill_add_file(&s, f);
	spill_end(&s, why, false);
	pollux_file_put(f);
}

/* Everything in the table that want() picks. */
static void spill_table(struct spill *s, bool (*want)(int fd))
{
	int end = plx_table_end();

	for (int fd = 0; fd < end; fd++) {
		struct pollux_file *f;

		if (!plx_table_peek(fd) || !(f = plx_table_get(fd)))
			continue;
		if (!want || want(fd))
			spill_add_file(s, f);
		plx_file_put_locked(f);
	}
}

/*
 * Some programs come here with every request to a driver: nothing is looked for if
 * nothing has been adopted since the last time.
 */
void plx_px_escape_all(enum plx_way_out why)
{
	PLX_INSIDE();
	static uint64_t all_out;
	uint64_t adopted = plx_load_acq(&counters[PLX_COUNT_EPOLLS]) +
			   plx_load_acq(&counters[PLX_COUNT_EVENTFDS]);
	struct spill s;

	if (adopted == plx_load_acq(&all_out))
		return;
	spill_begin(&s);
	spill_table(&s, NULL);
	spill_end(&s, why, false);
	plx_store_rel(&all_out, adopted);
}

static bool survives_exec(int fd)
{
	long flags = plx_sys2(SYS_fcntl, fd, F_GETFD);

	return flags >= 0 && !(flags & FD_CLOEXEC);
}

void plx_px_escape_inherited(enum plx_way_out why)
{
	PLX_INSIDE();
	struct spill s;

	spill_begin(&s);
	spill_table(&s, survives_exec);
	spill_end(&s, why, false);
}

void plx_px_escape_msg(const struct msghdr *msg)
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

				if (plx_copy_in(&fd, control + at + i, sizeof(fd)) == 0 &&
				    plx_fd_ours(fd))
					plx_px_escape(fd, PLX_OUT_SCM_RIGHTS);
			}
		}
		at += CMSG_ALIGN(c.cmsg_len);
	}
}

void plx_px_escape_iocbs(long n, void *const *iocbs)
{
	PLX_INSIDE();
	for (long i = 0; i < n; i++) {
		struct iocb cb;
		void *p;

		if (plx_copy_in(&p, iocbs + i, sizeof(p)) || plx_copy_in(&cb, p, sizeof(cb)))
			return;
		if (plx_fd_ours(cb.aio_fildes))
			plx_px_escape(cb.aio_fildes, PLX_OUT_AIO);
		if ((cb.aio_flags & IOCB_FLAG_RESFD) && plx_fd_ours(cb.aio_resfd))
			plx_px_escape(cb.aio_resfd, PLX_OUT_AIO);
	}
}

/*
 * Fork. The table lock and blocked signals last from prepare to the hook of each
 * side, so that nothing is adopted in between and the child finds the lock its own; so
 * does being inside, since leaving would let a signal in that waits.
 */
static sigset_t fork_mask;
static uint32_t fork_depth;

void plx_px_fork_prepare(void)
{
	uint32_t depth = plx_inside_begin();
	struct spill s;

	spill_begin(&s);
	fork_depth = depth;
	spill_table(&s, NULL);
	spill_end(&s, PLX_OUT_FORK, true);
	fork_mask = s.old_mask;
	plx_rcu_before_fork();
}

void plx_px_fork_parent(void)
{
	uint32_t depth = fork_depth;
	sigset_t mask = fork_mask;

	plx_rcu_after_fork_parent();
	spill_unlock();
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	plx_inside_end(&depth);
}

void plx_px_fork_child_locks(void)
{
	sigset_t mask = fork_mask;
	int end = plx_table_end();

	plx_rcu_after_fork_child();
	/*
	 * Threads that held locks of the engine are not here. All sets are in the
	 * kernel, so what the locks protect is empty.
	 */
	plx_topology_lock = 0;
	plx_limit_after_fork_child();
	plx_retire_after_fork_child();
	plx_eventfd_after_fork_child();
	for (int fd = 0; fd < end; fd++) {
		struct pollux_file *f = plx_table_peek(fd);
		struct plx_front *fr;

		if (!f || f->kind != PLX_KIND_EPOLL)
			continue;
		fr = plx_file_front(f);
		fr->lock = 0;
		fr->ep->mtx = 0;
		fr->ep->sleepers = 0;
		f->lock = 0;
	}
	spill_unlock();
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	plx_inside_end(&fork_depth);
}

void plx_px_fork_child_clean(void)
{
	PLX_INSIDE();
	int end = plx_table_end();

	memcpy(spilled_before, spilled_by, sizeof(spilled_before));
	memcpy(counted_before, counters, sizeof(counted_before));
	/* Hidden descriptors would keep kernel epolls alive beyond their last close. */
	for (int fd = 0; fd < end; fd++) {
		struct pollux_file *f = plx_table_peek(fd);

		if (f && f->kind == PLX_KIND_EPOLL && plx_load(&plx_file_front(f)->spilled)) {
			plx_fd_unhide(&plx_file_front(f)->kfd);
			plx_fd_unhide(&plx_file_front(f)->doorbell);
		}
	}
	plx_poll_after_fork_child();
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
		served = f->kind == PLX_KIND_EVENTFD ||
			 (f->kind == PLX_KIND_EPOLL && !plx_load_acq(&plx_file_front(f)->spilled));
		pollux_file_put(f);
	}
	return served;
}

static unsigned long long counted(enum plx_counter what)
{
	return counters[what] - counted_before[what];
}

void plx_px_stats_print(int fd, bool nothing_too)
{
	char buf[4096];
	int n;

	if (!nothing_too && !counted(PLX_COUNT_EPOLLS) && !counted(PLX_COUNT_EVENTFDS) &&
	    !counted(PLX_COUNT_AIO))
		return;
	n = snprintf(buf, sizeof(buf),
		     "pollux: adopted: %llu epolls, %llu eventfds; sleeps %llu; spilled %llu\n",
		     counted(PLX_COUNT_EPOLLS), counted(PLX_COUNT_EVENTFDS),
		     counted(PLX_COUNT_SLEEPS), counted(PLX_COUNT_SPILLED));
	if (counted(PLX_COUNT_AIO))
		n += snprintf(buf + n, sizeof(buf) - n,
			      "pollux: AIO contexts %llu, of which %llu needed the kernel's, too\n",
			      counted(PLX_COUNT_AIO), counted(PLX_COUNT_AIO_TWINS));
	for (int i = 0; i < PLX_OUT_COUNT; i++)
		if (spilled_by[i] - spilled_before[i])
			n += snprintf(buf + n, sizeof(buf) - n,
				      "pollux: spilled by %s: %llu (%s)\n", ways_out[i].name,
				      (unsigned long long)(spilled_by[i] - spilled_before[i]),
				      ways_out[i].what);
	plx_sys3(SYS_write, fd, buf, n);
}
