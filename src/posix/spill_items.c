/* SPDX-License-Identifier: MIT */
/*
 * Step 5 of a spill: items are registered with the kernel's epolls.
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
 */
#include "posix/spill.h"

#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/stat.h>

#include "base/sanitizer.h"
#include "base/sys.h"

/* --- sorting --------------------------------------------------------------------------- */

/* What stands in order from lo to mid, and from there to hi, does so from lo to hi. */
static void merge(char *to, const char *from, const int at[3], size_t size,
		  int (*compare)(const void *, const void *))
{
	int left = at[0], right = at[1];

	for (int i = at[0]; i < at[2]; i++) {
		bool first = left < at[1] && (right == at[2] || compare(from + left * size,
									from + right * size) <= 0);

		plx_copy(to + i * size, from + (first ? left++ : right++) * size, size);
	}
}

/*
 * As qsort, but what is equal stays in its order, and the memory is of our own: a handler that has
 * interrupted malloc may be here, or a fork between an allocator's handlers.
 */
static void sort(void *array, int n, size_t size, int (*compare)(const void *, const void *))
{
	char *from = array, *to, *spare;

	if (n < 2)
		return;
	to = spare = plx_spill_scratch(n * size);
	for (int width = 1; width < n; width *= 2) {
		char *done = to;

		for (int lo = 0; lo < n; lo += 2 * width) {
			int mid = lo + width < n ? lo + width : n;
			int hi = mid + width < n ? mid + width : n;

			merge(to, from, (const int[]){lo, mid, hi}, size, compare);
		}
		to = from;
		from = done;
	}
	if (from != array)
		plx_copy(array, from, n * size);
	plx_mem_put(spare);
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

	return plx_sys2(SYS_fstat, fd, &st) < 0 || S_ISREG(st.st_mode);
}

/* One of the descriptors of the spill itself stands where an item's number is wanted. */
static void make_way(struct plx_spill *s, int number)
{
	for (int i = 0; i < s->ntargets; i++) {
		int n;

		if (s->targets[i].k != number || plx_spill_owns(s, number, i) ||
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
	plx_spill_replace_number(file, number, O_CLOEXEC);
	return true;
}

static void give_back(const struct borrowed *b)
{
	if (b->aside < 0) {
		plx_sys1(SYS_close, b->number);
		return;
	}
	plx_spill_replace_number(b->aside, b->number, b->flags & FD_CLOEXEC ? O_CLOEXEC : 0);
	plx_sys1(SYS_close, b->aside);
}

/*
 * The item's number has come to mean something else since its ADD (EP-KEY-03), but may
 * come to mean the file again (EP-KEY-04), so the kernel is to know the item by it. A number
 * that nothing has stays with the item until the end of the spill. Where the number cannot
 * be had, the item gets one that the program does not use.
 */
static void ctl_orphan(struct plx_spill *s, struct plx_move *m, int op, struct epoll_event *ev)
{
	struct plx_front *fr = m->ep->owner;
	struct borrowed b;

	if (m->held < 0) {
		make_way(s, m->key);
		if (!borrow(&b, m->t->k, m->key)) {
			m->held = dup_away(m->t->k);
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
	fr->ghosts = plx_spill_grow(fr->ghosts, fr->nghosts, &fr->room_ghosts, sizeof(*fr->ghosts));
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
	int spare = -1;

	*out = NULL;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epfd);
	fd = plx_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd == -EMFILE) {
		plx_limit_raise(&lim);
		fd = plx_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
		plx_limit_restore(&lim);
	}
	if (fd == -EMFILE && (spare = plx_spare_take(false)) >= 0) {
		plx_sys1(SYS_close, spare);
		fd = plx_sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	}
	if (fd < 0)
		return -1;
	do {
		text = plx_spill_grow(text, len + 4096, &size, 1);
		r = plx_sys3(SYS_read, fd, text + len, size - len - 1);
		len += r > 0 ? r : 0;
	} while (r > 0);
	plx_sys1(SYS_close, fd);
	if (spare >= 0)
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
		*out = plx_spill_grow(*out, n, &room, sizeof(**out));
		(*out)[n++] = reg;
	}
	plx_mem_put(text);
	sort(*out, n, sizeof(**out), by_number);
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
	/* Something on the list could not be put back, or is not known: nothing is taken off. */
	bool refused;
};

/* Empties the ready list. At most as many events as there are registrations. */
static void collect_all(struct seance *c, int most)
{
	struct epoll_event *ev = plx_spill_scratch(most * sizeof(*ev));
	struct plx_front *fr = c->fr;
	int got;

	got = plx_sys6(SYS_epoll_pwait, fr->kfd, (long)ev, most, 0, 0, 8);
	for (int i = 0; i < got; i++) {
		uint64_t marker = plx_load(&fr->marker);

		/* 0: there has been no doorbell. */
		if (marker && ev[i].data.u64 == marker && ev[i].events == EPOLLIN) {
			c->rung = true;
		} else if (!plx_ghost_take(fr, ev[i].data.u64)) {
			c->data = plx_spill_grow(c->data, c->ndata, &c->room, sizeof(*c->data));
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
	if (c->nreg < 0) {
		/* No /proc here. Of the doorbell alone there is nothing to be known. */
		c->nreg = 0;
		c->refused = fr->had_kernel;
	}
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

	PLX_DELAY(spill_ghosts);
	if (!c->refused)
		collect_all(c, c->nreg + c->ghosts + 1);
	for (int i = 0; i < c->ndata; i++)
		put_back(c, c->data[i]);
	if (c->rung && !plx_load(&fr->spilled))
		fr->ep->host.unpark_one(fr, plx_bell_word(fr->ep));
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
static void move_ctl(struct plx_spill *s, struct plx_move *m, uint32_t events)
{
	struct plx_front *fr = m->ep->owner;
	struct epoll_event ev = {.events = events, .data.u64 = m->data};
	int op = m->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	plx_xchg(&fr->nkernel, 1);
	if (m->key < s->nnumbers && s->numbers[m->key] == m->t->e->picked)
		plx_sys4(SYS_epoll_ctl, fr->kfd, op, m->key, &ev);
	else
		ctl_orphan(s, m, op, &ev);
	m->added = true;
}

/* Armed, in the kernel and not on its list: it would be put there. */
static bool notices(const struct plx_move *m)
{
	return m->done && !m->order && !m->consumed;
}

/*
 * What is on the list of the epoll and not ready goes from there, as long as nothing stands there
 * that is to be: a poll looks at the items up to the first that is ready, and keeps no other.
 */
static void unlist(const struct plx_spill *s, const struct pollux_ep *ep)
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
static void exclusive_go(struct plx_spill *s, struct plx_move *m)
{
	const int *file = &m->t->k;
	bool full = !(m->events & EPOLLIN);
	uint64_t value = 1;

	for (int i = 0; i < s->nmoves; i++) {
		const struct plx_move *other = &s->moves[i];

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
		const struct plx_move *other = &s->moves[i];

		if (other->ep != m->ep && other->t == m->t && notices(other))
			unlist(s, other->ep);
	}
}

/* Gives the item its mask. */
static void move_go(struct plx_spill *s, struct plx_move *m)
{
	bool stale;

	m->done = true;
	if (m->consumed)
		ghost_add(m->ep->owner, m->data);
	/*
	 * One that has become unready keeps its place on the list until it is collected. With
	 * several threads it loses that: somebody could collect what is made up here.
	 */
	stale = m->stale && __libc_single_threaded;
	if (stale && (m->events & EPOLLEXCLUSIVE)) {
		exclusive_go(s, m);
		return;
	}
	/* An eventfd is ready for one of the two. */
	if (stale)
		move_ctl(s, m, EPOLLIN | EPOLLOUT);
	move_ctl(s, m, m->events);
}

static int by_age(const void *a, const void *b)
{
	const struct plx_move *x = a, *y = b;

	if (x->t != y->t)
		return x->t < y->t ? -1 : 1;
	return x->age < y->age ? -1 : x->age > y->age;
}

static int by_epoll(const void *a, const void *b)
{
	const struct plx_move *x = *(struct plx_move *const *)a, *y = *(struct plx_move *const *)b;

	if (x->ep != y->ep)
		return x->ep < y->ep ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* An event of it would be swallowed by nobody. */
static void stay_disarmed(struct plx_move *m)
{
	m->consumed = false;
	m->events &= ~(uint32_t)(EPOLLIN | EPOLLOUT);
}

static void lay_ghosts(struct plx_spill *s, struct plx_move **ghosts, int n)
{
	for (int i = 0, next; i < n; i = next) {
		struct seance c;

		seance_begin(&c, ghosts[i]->ep->owner);
		for (next = i; next < n && ghosts[next]->ep == ghosts[i]->ep; next++) {
			if (c.refused && (ghosts[next]->events & EPOLLONESHOT))
				stay_disarmed(ghosts[next]);
			move_go(s, ghosts[next]);
		}
		c.ghosts = next - i;
		seance_end(&c);
	}
}

/* The ready list of one epoll, while it is made again in the kernel. */
struct ready {
	/* In the list's order, up to the end. */
	struct plx_move **first, **end;
	/* What stands first in the kernel's list, if that is so far a rotation of ours. */
	struct plx_move **head;
	/* The list can be turned: what is collected from its head goes to its end. */
	bool turns;
};

static struct plx_move **list_next(const struct ready *l, struct plx_move **m)
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

	for (struct plx_move **m = l->first; m < l->end; m++) {
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

static void list_turn(struct plx_spill *s, struct ready *l)
{
	const struct plx_front *fr = (*l->head)->ep->owner;
	struct epoll_event ev;

	plx_sys6(SYS_epoll_pwait, fr->kfd, (long)&ev, 1, 0, 0, 8);
	if ((*l->head)->events & (EPOLLET | EPOLLONESHOT))
		move_ctl(s, *l->head, (*l->head)->events);
	l->head = list_next(l, l->head);
}

/* Gives the item its place: behind the one before it, if the list has to be turned to that end. */
static void list_go(struct plx_spill *s, struct ready *l, struct plx_move **m)
{
	if (l->turns && l->head) {
		struct plx_move **next = list_next(l, m);

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
static struct plx_move *older_first(struct plx_spill *s, struct plx_move *m)
{
	struct plx_move *o = m;

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
static bool goes_early(struct plx_spill *s, struct ready *lists, int n, const struct plx_move *o)
{
	for (struct ready *l = lists; l < lists + n; l++)
		for (struct plx_move **m = l->first; m < l->end; m++)
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
static void fill_lists(struct plx_spill *s, struct ready *lists, int n)
{
	struct plx_move *stuck;

	do {
		struct plx_move **at = NULL;
		struct ready *of = NULL;

		stuck = NULL;
		for (struct ready *l = lists; l < lists + n; l++)
			for (struct plx_move **m = l->first; m < l->end; m++) {
				struct plx_move *o = (*m)->done ? NULL : older_first(s, *m);

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
static void make_lists(struct plx_spill *s, struct plx_move **queued, int n)
{
	struct ready *lists = plx_spill_scratch((s->neps + 1) * sizeof(*lists));
	int count = 0;

	sort(queued, n, sizeof(*queued), by_epoll);
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
 * these itself, as it is emptied for them. Exclusive items of other lists must not be older than
 * its own.
 */
static bool list_stands_alone(const struct plx_spill *s, const struct pollux_ep *ep)
{
	for (int i = 0; i < s->nmoves; i++) {
		const struct plx_move *m = &s->moves[i];
		bool exclusive = m->events & EPOLLEXCLUSIVE;

		if (m->ep == ep && m->consumed)
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
static int pick_first(struct plx_spill *s, struct plx_move **some)
{
	int n = 0;

	for (int i = 0; i < s->nmoves && __libc_single_threaded; i++) {
		const struct plx_move *m = &s->moves[i];
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

void plx_spill_register(struct plx_spill *s)
{
	struct plx_move **some = plx_spill_scratch((s->nmoves + 1) * sizeof(*some));
	struct plx_move *end = s->moves + s->nmoves;
	int n = 0;

	sort(s->moves, s->nmoves, sizeof(*s->moves), by_age);
	for (struct plx_move *m = s->moves; m < end; m++) {
		bool alone = m->age == 0 && (m + 1 == end || m[1].t != m->t);

		if (alone || (m->events & EPOLLEXCLUSIVE))
			continue;
		move_ctl(s, m, 0);
	}
	make_lists(s, some, pick_first(s, some));
	for (struct plx_move *m = s->moves; m < end; m++)
		if (m->consumed)
			some[n++] = m;
	sort(some, n, sizeof(*some), by_epoll);
	lay_ghosts(s, some, n);
	n = 0;
	for (struct plx_move *m = s->moves; m < end; m++)
		if (m->order && !m->done)
			some[n++] = m;
	make_lists(s, some, n);
	for (struct plx_move *m = s->moves; m < end; m++)
		if (!m->done)
			move_go(s, m);
	for (struct plx_move *m = s->moves; m < end; m++)
		if (m->held >= 0)
			plx_sys1(SYS_close, m->held);
	PLX_DELAY(spill_registered);
	for (int i = 0; i < s->neps; i++) {
		struct plx_front *fr = s->eps[i]->owner;

		plx_xadd(&fr->gen, 1);
	}
	plx_mem_put(some);
}
