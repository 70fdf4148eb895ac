/* SPDX-License-Identifier: MIT */
/*
 * A spill: objects become the kernel objects of the same numbers, with the same state and
 * registrations, for good. What leads here is in escape.c and fork.c.
 *
 * One spill, under plx_table_lock and with signals kept away:
 *
 *   1. the mutexes of all epolls that watch the objects are taken: no harvest, no ctl
 *   2. each object is frozen: reads and writes find it gone, and wait for step 6. Those that have
 *      been quicker may not have told of it: what they have changed would be an edge that nobody
 *      has queued, and be taken for one that has been collected. So they are waited for, if some
 *      item is edge-triggered: for others what is there is enough
 *   3. its items leave the epolls
 *   4. a kernel eventfd with the count takes its place under every number (dup3)
 *   5. the items are added to the kernel epolls (spill_items.c)
 *   6. the numbers leave the table; spilled is set; the mutexes are released; sleepers are woken
 *      and go to the kernel
 *
 * Not before step 6 does the table let anybody go to the kernel by one of the numbers: what is
 * written between 4 and 5 would be an edge that a ghost is taken for.
 *
 * The model of step 2 is tests/model/told.pml, that of the numbers tests/model/moving.pml.
 *
 * One that is pinned (plx_eventfd_pin) keeps a hidden descriptor of its kernel eventfd.
 */
#include "posix/spill.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/inside.h"
#include "base/sanitizer.h"
#include "base/sys.h"

void *plx_spill_scratch(size_t size)
{
	void *p = plx_mem_get_zero(size);

	PLX_INVARIANT(p, "there is memory for turning objects into kernel objects");
	return p;
}

/* Of the first array. */
#define SCRATCH 384
_Static_assert(sizeof(struct plx_move) <= SCRATCH, "the first array has room");

void *plx_spill_grow(void *p, int n, int *room, size_t size)
{
	int more = *room ? *room : (int)(SCRATCH / size);
	void *q;

	if (n < *room)
		return p;
	while (more <= n)
		more *= 2;
	q = plx_spill_scratch(more * size);
	if (p)
		plx_copy(q, p, *room * size);
	plx_mem_put(p);
	*room = more;
	return q;
}

static void spill_add_eventfd(struct plx_spill *s, struct pollux_efd *e)
{
	if (e->picked || plx_file_gone(&e->file) || !pollux_file_tryget(&e->file))
		return;
	s->targets = plx_spill_grow(s->targets, s->ntargets, &s->room_targets, sizeof(*s->targets));
	s->targets[s->ntargets++] = (struct plx_target){.e = e};
	e->picked = s->ntargets;
}

static void spill_add_ep(struct plx_spill *s, struct pollux_ep *ep)
{
	for (int i = 0; i < s->neps; i++)
		if (s->eps[i] == ep)
			return;
	/* Gone while this looks: its items have been removed. */
	if (!plx_ep_tryget(ep))
		return;
	s->eps = plx_spill_grow(s->eps, s->neps, &s->room_eps, sizeof(*s->eps));
	s->eps[s->neps++] = ep;
}

/* Everything that the front watches. */
static void spill_add_front(struct plx_spill *s, struct plx_front *fr)
{
	plx_lock(&fr->ep->mtx, PLX_RANK_EP);
	for (struct plx_list *l = fr->ep->items.next; l != &fr->ep->items; l = l->next)
		spill_add_eventfd(s, plx_file_efd(plx_all_item(l)->file));
	plx_unlock(&fr->ep->mtx, PLX_RANK_EP);
}

static void spill_find_eps(struct plx_spill *s)
{
	plx_rcu_read_lock();
	for (int i = 0; i < s->ntargets; i++) {
		struct plx_watch *w = plx_load_acq(&s->targets[i].e->file.watches);

		for (; w; w = plx_load_acq(&w->next))
			if (plx_watch_is_item(w))
				spill_add_ep(s, plx_watch_item(w)->ep);
	}
	plx_rcu_read_unlock();
}

/* ep.mtx held, objects frozen. order: place in the ready list, 0 if not on it. */
static void take_item(struct plx_spill *s, struct plx_epitem *item, uint32_t order,
		      struct plx_target *t)
{
	uint32_t events = plx_load(&item->w.events);
	uint32_t ready = t->ready;
	struct plx_move *m;

	s->moves = plx_spill_grow(s->moves, s->nmoves, &s->room_moves, sizeof(*s->moves));
	m = &s->moves[s->nmoves++];
	m->ep = item->ep;
	m->t = t;
	m->events = events;
	m->order = order;
	m->data = item->data;
	m->key = item->key;
	m->age = item->age;
	m->added = m->done = false;
	m->held = -1;
	m->consumed = (events & EPOLLET) && !order && (ready & events);
	/* Disarmed: the kernel does the same to it, with an event that there is. */
	if (!(events & ~PLX_EP_FLAGS)) {
		m->consumed = true;
		m->events |= EPOLLIN | EPOLLOUT;
	}
	m->stale = order && !(ready & events);
	plx_item_remove(item);
}

/*
 * Numbers the items of a file by age: plain ones are listed newest first, exclusive ones
 * after them, oldest first. The numbers are kept in the items, which
 * are about to go.
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
			plx_watch_item(w)->age = w->place == PLX_WATCH_PLAIN ? --plain : next++;
	plx_rcu_read_unlock();
}

/*
 * The ready list first, in its order; then the rest, among it items that a producer has marked and
 * is about to push. An epoll that is just being closed may have no descriptor any more
 * (front_release in epoll.c): its items go nowhere, and nobody would collect a ghost of theirs.
 */
static void take_items(struct plx_spill *s, struct pollux_ep *ep)
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
			uint32_t place = plx_file_efd(item->file)->picked;
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

bool plx_front_may_leave(struct plx_front *fr)
{
	const bool lasts[2] = {plx_spare_lasts(false), plx_spare_lasts(true)};
	bool may = true;

	plx_lock(&fr->ep->mtx, PLX_RANK_EP);
	for (struct plx_list *l = fr->ep->items.next; l != &fr->ep->items && may; l = l->next)
		may = lasts[!!plx_all_item(l)->file->mode];
	plx_unlock(&fr->ep->mtx, PLX_RANK_EP);
	return may;
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

static void fill_kernel_eventfd(int k, struct pollux_efd *e, uint64_t count)
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

void plx_spill_replace_number(int k, int fd, int flags)
{
	struct rlimit lim;

	if (plx_sys3(SYS_dup3, k, fd, flags) >= 0)
		return;
	plx_limit_raise(&lim);
	plx_sys3(SYS_dup3, k, fd, flags);
	plx_limit_restore(&lim);
}

/* The eventfd of the table at fd that goes, or NULL. */
static struct pollux_efd *picked_at(int fd)
{
	struct pollux_file *f = plx_table_peek(fd);

	return f && f->kind == PLX_KIND_EVENTFD && plx_file_efd(f)->picked ? plx_file_efd(f) : NULL;
}

/* Puts the kernel eventfds that there are under all the numbers of their objects. */
static void replace_numbers(struct plx_spill *s)
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		const struct pollux_efd *e = picked_at(fd);
		const struct plx_target *t;
		long cloexec;

		if (!e || plx_spill_owns(s, fd, e->picked - 1))
			continue;
		t = &s->targets[e->picked - 1];
		if (t->k < 0)
			continue;
		cloexec = plx_sys2(SYS_fcntl, fd, F_GETFD);
		if (cloexec < 0)
			continue;
		plx_spill_replace_number(t->k, fd, cloexec & FD_CLOEXEC ? O_CLOEXEC : 0);
		s->numbers = plx_spill_grow(s->numbers, fd, &s->room_numbers, sizeof(*s->numbers));
		s->numbers[fd] = e->picked;
		if (s->nnumbers <= fd)
			s->nnumbers = fd + 1;
	}
}

/* All is as it was, in the kernel: who finds one of the numbers may go there. */
static void numbers_leave(void)
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_efd *e = picked_at(fd);

		if (!e)
			continue;
		plx_table_set(fd, NULL);
		plx_file_put_locked(&e->file);
	}
}

/* A number of the program's for the object, or -1. */
static int number_of(const struct plx_spill *s, uint32_t place)
{
	for (int fd = 0; fd < s->nnumbers; fd++)
		if (s->numbers[fd] == place)
			return fd;
	return -1;
}

/*
 * Kernel eventfds for all objects, under all their numbers. Where there is no descriptor,
 * the spare one serves one object after the other, and k says a number of the object.
 */
static void make_kernel_objects(struct plx_spill *s)
{
	struct plx_target *end = s->targets + s->ntargets, *t;
	bool all = true;

	for (t = s->targets; t < end; t++) {
		struct pollux_efd *e = t->e;

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
		struct pollux_efd *e = t->e;
		int n;

		if (t->k >= 0)
			continue;
		t->k = plx_spare_take(e->file.mode);
		PLX_INVARIANT(t->k >= 0,
			      "there is a descriptor for turning an object into a kernel object");
		fill_kernel_eventfd(t->k, e, t->count);
		replace_numbers(s);
		n = number_of(s, e->picked);
		if (n < 0)
			continue;
		plx_sys1(SYS_close, t->k);
		t->k = n;
		plx_spare_renew(e->file.mode);
	}
}

/* The state of an object is final from here on. */
static void target_freeze(struct plx_target *t)
{
	t->count = plx_efd_freeze(t->e);
	t->ready = (t->count ? EPOLLIN : 0) | (t->count < UINT64_MAX - 1 ? EPOLLOUT : 0);
}

static void target_done(struct plx_spill *s, struct plx_target *t)
{
	struct pollux_efd *e = t->e;

	PLX_DELAY(spill_before_done);
	if (plx_load(&e->pins)) {
		plx_hidden_lock();
		(void)plx_fd_hide_dup_private(t->k, &e->kfd);
		plx_hidden_unlock();
	}
	if (!plx_spill_owns(s, t->k, e->picked - 1))
		plx_sys1(SYS_close, t->k);
	e->picked = 0;
	plx_store_rel(&e->spilled, 1);
}

/* The mutexes held: whether some item remembers that its event has been collected. */
static bool any_edges(const struct plx_spill *s)
{
	bool any = false;

	plx_rcu_read_lock();
	for (int i = 0; i < s->ntargets && !any; i++) {
		struct plx_watch *w = plx_load_acq(&s->targets[i].e->file.watches);

		for (; w && !any; w = plx_load_acq(&w->next))
			any = plx_watch_is_item(w) && (plx_load(&w->events) & EPOLLET);
	}
	plx_rcu_read_unlock();
	return any;
}

/* plx_table_lock held, signals kept away; the files have been collected in s. */
static void spill_run(struct plx_spill *s, enum plx_way_out why)
{
	struct plx_target *end = s->targets + s->ntargets, *t;

	spill_find_eps(s);
	PLX_DELAY(spill_begun);
	for (int i = 0; i < s->neps; i++) {
		struct plx_front *fr = s->eps[i]->owner;

		plx_lock(&s->eps[i]->mtx, PLX_RANK_EP);
		if (!plx_load(&fr->spilled))
			fr->had_kernel = plx_load(&fr->nkernel);
	}
	for (t = s->targets; t < end; t++)
		target_freeze(t);
	PLX_DELAY(spill_frozen);
	/* Partners: all who change the state of an object within an RCU section, and then tell. */
	if (!plx_px_alone() && any_edges(s))
		plx_rcu_synchronize();
	for (t = s->targets; t < end; t++)
		number_items(&t->e->file);
	for (int i = 0; i < s->neps; i++)
		take_items(s, s->eps[i]);
	make_kernel_objects(s);
	PLX_DELAY(spill_moving);
	plx_spill_register(s);
	numbers_leave();
	for (t = s->targets; t < end; t++)
		target_done(s, t);
	for (int i = s->neps - 1; i >= 0; i--)
		plx_unlock(&s->eps[i]->mtx, PLX_RANK_EP);
	plx_px_spilled(why, s->ntargets);
}

void plx_spill_wait(struct pollux_file *f)
{
	for (int tries = 0; !plx_load_acq(&plx_file_efd(f)->spilled); tries++)
		plx_await_step(tries);
}

void plx_spill_begin(struct plx_spill *s)
{
	memset(s, 0, sizeof(*s));
	plx_signals_block(&s->masked);
	plx_lock(&plx_table_lock, PLX_RANK_TABLE);
	/* Who changes a number now does it after us; who has begun is waited for. */
	plx_store_rel(&plx_spilling, 1);
	/* Before any slot is emptied and any front is given up: who finds those finds this set. */
	plx_mover = true;
	plx_store_rel(&plx_moving, 1);
	plx_mb();
	plx_rcu_synchronize();
	plx_table_await();
	/* No timer can begin to be lazy before the end of this. */
	plx_timers_true_all();
}

void plx_spill_unlock(void)
{
	plx_store_rel(&plx_spilling, 0);
	plx_unlock(&plx_table_lock, PLX_RANK_TABLE);
}

void plx_spill_end(struct plx_spill *s, enum plx_way_out why, bool keep)
{
	if (s->ntargets)
		spill_run(s, why);
	plx_px_spilled(why, s->timers);
	plx_store_rel(&plx_moving, 0);
	plx_mover = false;
	if (!keep)
		plx_spill_unlock();
	for (int i = 0; i < s->ntargets; i++) {
		/* Threads blocked in read or write go on with the kernel's object. */
		pollux_file_wake_all(&s->targets[i].e->file, 0);
		plx_file_put_locked(&s->targets[i].e->file);
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
static void front_give_up(struct plx_spill *s, struct plx_front *fr)
{
	plx_lock(&fr->lock, PLX_RANK_FRONT);
	fr->had_kernel = plx_load(&fr->nkernel);
	plx_store_rel(&fr->spilled, 1);
	plx_front_unbell(fr);
	plx_unlock(&fr->lock, PLX_RANK_FRONT);
	plx_mb();
	spill_add_front(s, fr);
}

void plx_spill_add(struct plx_spill *s, struct pollux_file *f, int fd)
{
	if (f->kind == PLX_KIND_EVENTFD)
		spill_add_eventfd(s, plx_file_efd(f));
	else if (f->kind == PLX_KIND_TIMER)
		s->timers += plx_timer_escape(fd);
	else if (f->kind == PLX_KIND_EPOLL && !plx_load(&plx_file_front(f)->spilled))
		front_give_up(s, plx_file_front(f));
}

bool plx_fd_in_process(int fd)
{
	struct pollux_file *f;
	bool is;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	is = f && (f->kind == PLX_KIND_EVENTFD || f->kind == PLX_KIND_TIMER ||
		   (f->kind == PLX_KIND_EPOLL && !plx_load(&plx_file_front(f)->spilled)));
	plx_rcu_read_unlock();
	return is;
}

void plx_spill_add_table(struct plx_spill *s, bool (*want)(int fd))
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_file *f;

		/* A reference is a write, which a fork pays for. */
		if (!plx_fd_in_process(fd) || !(f = plx_table_get(fd)))
			continue;
		if ((!want || want(fd)) && !PLX_INJECTED(lost_spill))
			plx_spill_add(s, f, fd);
		plx_file_put_locked(f);
	}
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
