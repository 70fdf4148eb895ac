/* SPDX-License-Identifier: MIT */
/*
 * Ways out. Before an object leaves our sight it becomes the kernel object of the
 * same numbers, with the same state and registrations, for good.
 *
 * One spill, under plx_table_lock and with signals kept away:
 *
 *   1. the mutexes of all epolls that watch the objects are taken: no harvest, no ctl
 *   2. each counter is frozen: reads and writes find it gone, and wait for step 6
 *   3. a kernel eventfd with the count takes its place under every number (dup3)
 *   4. its items leave the epolls
 *   5. and are added to the kernel epolls; see below
 *   6. spilled is set; the mutexes are released; sleepers are woken and go to the kernel
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
 *      mistaken for a ghost.
 *   b. items on the ready list, in its order
 *   c. the others, which are not ready
 *
 * There is no MOD for exclusive items (EP-CTL-09); they are added when their turn comes.
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
	/* On the ready list without being ready. */
	bool stale;
	/* The kernel has the item, perhaps without its mask; with it. */
	bool added;
	bool done;
	/* A number taken for it until the end; else -1. */
	int held;
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
	struct plx_masked masked;
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
	[PLX_OUT_IO_URING] = {"io_uring", "all objects; nothing is adopted afterwards"},
	[PLX_OUT_NESTED] = {"nested", "both epolls and what they watch"},
	[PLX_OUT_FOREIGN_EPOLL] = {"foreign_epoll", "an object added to an epoll that is not ours"},
	[PLX_OUT_NO_FD] = {"no_fd", "an object for which no doorbell or bell is to be had"},
	[PLX_OUT_LIMIT] = {"limit", "all objects, when the hard limit of descriptors gets low"},
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
	m->added = m->done = false;
	m->held = -1;
	m->consumed = (events & EPOLLET) && !order && (ready & events);
	/* Disarmed: the kernel does the same to it, with an event that there always is. */
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
			if (picked && PLX_INJECTED(forgotten_item))
				plx_item_remove(item);
			else if (picked)
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

bool plx_spill_possible(const struct pollux_eventfd *e)
{
	return plx_spare_keep(e->semaphore);
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
	if (!(plx_load(&e->status) & O_NONBLOCK))
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

/* Puts the kernel eventfds that there are under all the numbers of their objects. */
static void replace_numbers(struct spill *s, const int *k)
{
	int end = s->nnumbers;

	for (int fd = 0; fd < end; fd++) {
		struct pollux_file *f = plx_table_peek(fd);
		uint32_t picked;
		long cloexec;

		if (!f || f->kind != PLX_KIND_EVENTFD || !(picked = plx_file_efd(f)->picked) ||
		    k[picked - 1] < 0)
			continue;
		cloexec = plx_sys2(SYS_fcntl, fd, F_GETFD);
		if (cloexec >= 0) {
			replace_number(k[picked - 1], fd, cloexec & FD_CLOEXEC ? O_CLOEXEC : 0);
			s->numbers[fd] = picked;
		}
		plx_table_set(fd, NULL);
		plx_file_put_locked(f);
	}
}

/* fd is a number of the program's for the object at that place. */
static bool own_number(const struct spill *s, int fd, int place)
{
	return fd < s->nnumbers && s->numbers[fd] == (uint32_t)place + 1;
}

/* A number of the program's for the object, or -1. */
static int number_of(const struct spill *s, uint32_t picked)
{
	for (int fd = 0; fd < s->nnumbers; fd++)
		if (s->numbers[fd] == picked)
			return fd;
	return -1;
}

/*
 * Kernel eventfds for all objects, under all their numbers. Where there is no descriptor,
 * the spare one serves one object after the other, and k says a number of the object.
 */
static void make_kernel_objects(struct spill *s, int *k, const uint64_t *counts)
{
	bool all = true;

	s->nnumbers = plx_table_end();
	s->numbers = calloc(s->nnumbers, sizeof(*s->numbers));
	PLX_INVARIANT(s->numbers, "there is memory for turning objects into kernel objects");
	for (int i = 0; i < s->nefds; i++) {
		struct pollux_eventfd *e = s->efds[i];

		k[i] = all ? plx_kernel_eventfd(EFD_NONBLOCK | EFD_CLOEXEC |
						(e->semaphore ? EFD_SEMAPHORE : 0))
			   : -1;
		all = k[i] >= 0;
		if (all)
			fill_kernel_eventfd(k[i], e, counts[i]);
	}
	replace_numbers(s, k);
	for (int i = 0; i < s->nefds; i++) {
		struct pollux_eventfd *e = s->efds[i];
		int n;

		if (k[i] >= 0)
			continue;
		k[i] = plx_spare_take(e->semaphore);
		PLX_INVARIANT(k[i] >= 0,
			      "there is a descriptor for turning an object into a kernel object");
		fill_kernel_eventfd(k[i], e, counts[i]);
		replace_numbers(s, k);
		n = number_of(s, i + 1);
		if (n < 0)
			continue;
		plx_sys1(SYS_close, k[i]);
		k[i] = n;
		plx_spare_renew(e->semaphore);
	}
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
static void make_way(struct spill *s, int *k, int number)
{
	for (int i = 0; i < s->nefds; i++) {
		int n;

		if (k[i] != number || own_number(s, number, i) || (n = dup_away(number)) < 0)
			continue;
		plx_sys1(SYS_close, number);
		k[i] = n;
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

	if (plx_fd_hidden(number) && plx_fd_evict(number) == 0)
		plx_sys1(SYS_close, number);
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
static void ctl_orphan(struct spill *s, struct move *m, int *k, int op, struct epoll_event *ev)
{
	struct plx_front *fr = m->ep->owner;
	int *kernel = &k[m->e->picked - 1];
	struct borrowed b;

	if (m->held < 0) {
		make_way(s, k, m->key);
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
	/* Its place among those with the same number, which all but one have lost that. */
	uint32_t place;
	/* A descriptor that means the file: fd, unless that has come to mean another. */
	int source;
};

static int by_number(const void *a, const void *b)
{
	const struct registration *x = a, *y = b;

	if (x->fd != y->fd)
		return x->fd < y->fd ? -1 : 1;
	return x->place < y->place ? -1 : x->place > y->place;
}

/* All registrations of the kernel epoll; their number. *out is to be freed. */
static int registrations(int epfd, struct registration **out)
{
	char path[64], *text = NULL, *line;
	int n = 0, room = 0;
	size_t len = 0, size = 0;
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
	if (lent >= 0)
		plx_spare_renew(false);
	text[len] = 0;
	for (line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
		struct registration reg;
		unsigned long long data;

		if (sscanf(line, "tfd: %d events: %x data: %llx", &reg.fd, &reg.events, &data) != 3)
			continue;
		reg.data = data;
		reg.place = n;
		reg.source = -1;
		*out = grow(*out, n, &room, sizeof(**out));
		(*out)[n++] = reg;
	}
	free(text);
	if (n)
		qsort(*out, n, sizeof(**out), by_number);
	for (int i = 0; i < n; i++) {
		struct registration *r = *out + i;

		r->place = i && r[-1].fd == r->fd ? r[-1].place + 1 : 0;
	}
	return n;
}

/* What is taken off a kernel epoll's ready list while ghosts are laid. */
struct seance {
	struct plx_front *fr;
	struct registration *reg;
	int nreg;
	uint64_t *data;
	int ndata, room;
	bool rung;
	/* Something on the list could not be put back: nothing is taken off. */
	bool refused;
};

/* Empties the ready list. At most as many events as there are registrations. */
static void collect_all(struct seance *c, int most)
{
	struct epoll_event *ev = calloc(most, sizeof(*ev));
	struct plx_front *fr = c->fr;
	int got;

	PLX_INVARIANT(ev, "there is memory for turning objects into kernel objects");
	got = plx_sys6(SYS_epoll_pwait, fr->kfd, (long)ev, most, 0, 0, 8);
	for (int i = 0; i < got; i++) {
		if (ev[i].data.u64 == fr->marker && ev[i].events == EPOLLIN) {
			c->rung = true;
		} else if (!plx_ghost_take(fr, ev[i].data.u64)) {
			c->data = grow(c->data, c->ndata, &c->room, sizeof(*c->data));
			c->data[c->ndata++] = ev[i].data.u64;
		}
	}
	free(ev);
}

/* MOD polls again, which queues what is ready. Exclusive items have none (EP-CTL-09). */
static long rearm(const struct seance *c, const struct registration *reg)
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
static bool is_registered(const struct seance *c, const struct registration *reg, int fd)
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
static void stand_in(const struct seance *c, const struct registration *reg, int fd)
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
static int find_source(const struct seance *c, const struct registration *reg)
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
 * collected edges are reported again.
 */
static void seance_begin(struct seance *c, struct plx_front *fr)
{
	memset(c, 0, sizeof(*c));
	c->fr = fr;
	c->nreg = registrations(fr->kfd, &c->reg);
	for (int i = 0; i < c->nreg && !c->refused; i++) {
		struct registration *reg = &c->reg[i];

		/* Now: the ghosts may come under the same number. */
		if ((reg->events & (EPOLLET | EPOLLONESHOT)) && (reg->events & ~PLX_EP_FLAGS)) {
			reg->source = find_source(c, reg);
			c->refused = reg->source < 0;
		}
	}
	if (!c->refused)
		collect_all(c, c->nreg + 1);
}

/* Puts a collected event back, if collecting has changed anything. */
static void put_back(const struct seance *c, uint64_t data)
{
	for (int i = 0; i < c->nreg; i++) {
		const struct registration *reg = &c->reg[i];
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

/*
 * The ghosts are on the kernel's ready list: gets them off it. A waiter that was quicker
 * has its event in hand and swallows it when it runs; it is waited for, but not for ever,
 * since it may have been cancelled on the way.
 */
static void seance_end(struct seance *c, int ghosts)
{
	struct timespec pause = {.tv_nsec = 100000};
	struct plx_front *fr = c->fr;

	if (!c->refused)
		collect_all(c, c->nreg + ghosts + 1);
	for (int i = 0; i < c->ndata; i++)
		put_back(c, c->data[i]);
	if (c->rung && !plx_load(&fr->spilled))
		fr->ep->host->unpark_one(fr, plx_bell_word(fr->ep));
	for (int i = 0; i < 10000 && !c->refused && plx_load_acq(&fr->nghosts); i++)
		plx_sys2(SYS_nanosleep, &pause, NULL);
	plx_lock(&fr->ghost_lock, PLX_RANK_GHOST);
	plx_store(&fr->nghosts, 0);
	plx_unlock(&fr->ghost_lock, PLX_RANK_GHOST);
	free(c->data);
	free(c->reg);
}

/* Registers the item with these events, or gives it them. */
static void move_ctl(struct spill *s, struct move *m, int *k, uint32_t events)
{
	struct plx_front *fr = m->ep->owner;
	struct epoll_event ev = {.events = events, .data.u64 = m->data};
	int op = m->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	plx_xchg(&fr->nkernel, 1);
	if (m->key < s->nnumbers && s->numbers[m->key] == m->e->picked)
		plx_sys4(SYS_epoll_ctl, fr->kfd, op, m->key, &ev);
	else
		ctl_orphan(s, m, k, op, &ev);
	m->added = true;
}

/*
 * A stale exclusive item gets its place while the count is not what it is: 1 instead of 0,
 * or the other way below the maximum. That must not make an edge for one whose event has
 * been collected; disarmed ones do not notice.
 */
static void exclusive_go(struct spill *s, struct move *m, int *k)
{
	const int *file = &k[m->e->picked - 1];
	bool full = !(m->events & EPOLLIN);
	uint64_t value = 1;

	for (int i = 0; i < s->nmoves; i++) {
		const struct move *other = &s->moves[i];

		if (other->e == m->e && other->consumed && !(other->events & EPOLLONESHOT)) {
			move_ctl(s, m, k, m->events);
			return;
		}
	}
	plx_sys3(full ? SYS_read : SYS_write, *file, &value, sizeof(value));
	move_ctl(s, m, k, m->events);
	plx_sys3(full ? SYS_write : SYS_read, *file, &value, sizeof(value));
}

/* Gives the item its mask. */
static void move_go(struct spill *s, struct move *m, int *k)
{
	m->done = true;
	if (m->consumed)
		ghost_add(m->ep->owner, m->data);
	/*
	 * One that has become unready keeps its place on the list until it is collected. With
	 * several threads it loses that: somebody could collect what is made up here.
	 */
	if (m->stale && __libc_single_threaded) {
		if (m->events & EPOLLEXCLUSIVE) {
			exclusive_go(s, m, k);
			return;
		}
		move_ctl(s, m, k, EPOLLIN | EPOLLOUT);
	}
	move_ctl(s, m, k, m->events);
}

static int by_age(const void *a, const void *b)
{
	const struct move *x = a, *y = b;

	if (x->e->picked != y->e->picked)
		return x->e->picked < y->e->picked ? -1 : 1;
	return x->age < y->age ? -1 : x->age > y->age;
}

static int by_epoll(const void *a, const void *b)
{
	const struct move *x = *(struct move *const *)a, *y = *(struct move *const *)b;

	if (x->ep != y->ep)
		return x->ep < y->ep ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* n moves, those of an epoll together. */
static void lay_ghosts(struct spill *s, int *k, struct move **ghosts, int n)
{
	for (int i = 0, next; i < n; i = next) {
		struct seance c;

		seance_begin(&c, ghosts[i]->ep->owner);
		for (next = i; next < n && ghosts[next]->ep == ghosts[i]->ep; next++)
			move_go(s, ghosts[next], k);
		seance_end(&c, next - i);
	}
}

/*
 * Exclusive items are added in the order of their ages (EP-EXC-02). Those that are not ready
 * can go at any time; false if an older one has to wait for its place in another epoll.
 */
static bool older_have_gone(struct spill *s, struct move *m, int *k)
{
	struct move *o = m;

	if (!(m->events & EPOLLEXCLUSIVE))
		return true;
	while (o > s->moves && o[-1].e == m->e)
		o--;
	for (; o < m; o++) {
		if (!(o->events & EPOLLEXCLUSIVE) || o->done)
			continue;
		if (o->order)
			return false;
		move_go(s, o, k);
	}
	return true;
}

/* The n moves of the ready lists, in their order in each epoll. */
static void fill_lists(struct spill *s, int *k, struct move **queued, int n)
{
	for (int left = n, before = -1; left;) {
		bool force = left == before;

		before = left;
		for (int i = 0; i < n; i++) {
			struct move *m = queued[i];

			if (m->done || (i && queued[i - 1]->ep == m->ep && !queued[i - 1]->done) ||
			    (!older_have_gone(s, m, k) && !force))
				continue;
			move_go(s, m, k);
			force = false;
			left--;
		}
	}
}

static void register_moves(struct spill *s, int *k)
{
	struct move **some = calloc(s->nmoves + 1, sizeof(*some));
	struct move *end = s->moves + s->nmoves;
	int n = 0;

	PLX_INVARIANT(some, "there is memory for turning objects into kernel objects");
	if (s->nmoves)
		qsort(s->moves, s->nmoves, sizeof(*s->moves), by_age);
	for (struct move *m = s->moves; m < end; m++) {
		bool alone = m->age == 0 && (m + 1 == end || m[1].e != m->e);

		if (!alone && !(m->events & EPOLLEXCLUSIVE))
			move_ctl(s, m, k, 0);
	}
	for (struct move *m = s->moves; m < end; m++)
		if (m->consumed)
			some[n++] = m;
	qsort(some, n, sizeof(*some), by_epoll);
	lay_ghosts(s, k, some, n);
	n = 0;
	for (struct move *m = s->moves; m < end; m++)
		if (m->order)
			some[n++] = m;
	qsort(some, n, sizeof(*some), by_epoll);
	fill_lists(s, k, some, n);
	for (struct move *m = s->moves; m < end; m++)
		if (!m->done)
			move_go(s, m, k);
	for (struct move *m = s->moves; m < end; m++)
		if (m->held >= 0)
			plx_sys1(SYS_close, m->held);
	for (int i = 0; i < s->neps; i++) {
		struct plx_front *fr = s->eps[i]->owner;

		plx_xadd(&fr->gen, 1);
	}
	free(some);
}

/* plx_table_lock held, signals kept away; the objects have been collected in s. */
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
	make_kernel_objects(s, k, counts);
	register_moves(s, k);
	for (int i = 0; i < s->nefds; i++) {
		PLX_DELAY(spill_before_done);
		if (plx_load(&s->efds[i]->pins))
			PLX_INVARIANT(
				plx_fd_hide_dup_private(k[i], &s->efds[i]->kfd) >= 0,
				"there is a descriptor for turning an object into a kernel object");
		if (!own_number(s, k[i], i))
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
	memset(s, 0, sizeof(*s));
	plx_signals_block(&s->masked);
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
		plx_signals_unblock(&s->masked);
}

/* The front is the kernel's alone from now on. */
static void front_give_up(struct spill *s, struct plx_front *fr)
{
	plx_lock(&fr->lock, PLX_RANK_FRONT);
	plx_store_rel(&fr->spilled, 1);
	/*
	 * Nobody rings any more, and nobody would take the doorbell's event out. If it has
	 * moved since it was registered, only its end is the end of that.
	 */
	if (fr->inproc &&
	    plx_sys4(SYS_epoll_ctl, fr->kfd, EPOLL_CTL_DEL, fr->doorbell, NULL) == -ENOENT) {
		int bell = plx_xchg(&fr->doorbell, -1);

		plx_rcu_synchronize();
		plx_fd_unhide(&bell);
	}
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

/* The file behind fd if there is anything to do for it, with a reference. */
static struct pollux_file *escaping(int fd)
{
	struct pollux_file *f = plx_table_get(fd);

	if (f && f->kind == PLX_KIND_EPOLL && plx_load_acq(&plx_file_front(f)->spilled)) {
		pollux_file_put(f);
		return NULL;
	}
	return f;
}

/* Together, so that an object which both epolls watch does not leave one before the rest. */
void plx_px_escape_pair(int fd, int other, enum plx_way_out why)
{
	PLX_INSIDE();
	struct pollux_file *f = escaping(fd), *g = escaping(other);
	struct spill s;

	if (f || g) {
		spill_begin(&s);
		if (f)
			spill_add_file(&s, f);
		if (g)
			spill_add_file(&s, g);
		spill_end(&s, why, false);
	}
	if (f)
		pollux_file_put(f);
	if (g)
		pollux_file_put(g);
}

void plx_px_escape(int fd, enum plx_way_out why)
{
	plx_px_escape_pair(fd, -1, why);
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
 * Fork. The table lock and being without signals last from prepare to the hook of each
 * side, so that nothing is adopted in between and the child finds the lock its own; so
 * does being inside, since leaving would let a signal in that waits.
 */
static struct plx_masked fork_masked;
static uint32_t fork_depth;

void plx_px_fork_prepare(void)
{
	uint32_t depth = plx_inside_begin();
	struct spill s;

	spill_begin(&s);
	fork_depth = depth;
	spill_table(&s, NULL);
	spill_end(&s, PLX_OUT_FORK, true);
	fork_masked = s.masked;
	plx_rcu_before_fork();
}

void plx_px_fork_parent(void)
{
	uint32_t depth = fork_depth;
	struct plx_masked masked = fork_masked;

	plx_rcu_after_fork_parent();
	spill_unlock();
	plx_signals_unblock(&masked);
	plx_inside_end(&depth);
}

void plx_px_fork_child_locks(void)
{
	struct plx_masked masked = fork_masked;
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
	plx_spare_after_fork_child();
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
	plx_signals_unblock(&masked);
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
		if (f && f->kind == PLX_KIND_HIDDEN)
			plx_fd_drop_private(fd);
	}
	plx_poll_after_fork_child();
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
