/* SPDX-License-Identifier: MIT */
/*
 * A spill: objects go to the kernel for good. The kernel's eventfd is under all their numbers, and
 * registered wherever they are watched, from the beginning; it lacks the count. What leads here is
 * in escape.c and fork.c.
 *
 * One spill, under plx_table_lock and with signals kept away:
 *
 *   1. plx_spilling keeps all away who change numbers and registrations; who has begun is waited
 * for
 *   2. for each object a number is found
 *   3. its items leave the epolls, each under the mutex of its epoll. Those on a ready list come
 *      first, in its order; with the first item of an object its state is frozen, and the kernel's
 *      eventfd is given the count. Reads and writes find the object gone, and wait for step 4
 *   4. the numbers leave the table; `spilled` is set; who sleeps in a read goes on in the kernel
 *
 * The kernel makes an event when it is given the count, by the registration that the program has
 * made itself. So an event is never lost. One that is edge-triggered and has been collected comes
 * once more, if the count has not been read.
 *
 * It takes neither memory nor a descriptor. Only one that is pinned (plx_eventfd_pin) keeps a
 * hidden descriptor of its kernel eventfd, if there is one to be had.
 *
 * The model of the numbers is tests/model/moving.pml.
 */
#include "posix/spill.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/inside.h"
#include "base/sys.h"

static void spill_add_eventfd(struct plx_spill *s, struct pollux_efd *e)
{
	if (e->leaves || plx_file_gone(&e->file) || !pollux_file_tryget(&e->file))
		return;
	e->leaves = 1;
	e->number = -1;
	e->next_out = NULL;
	*s->out_end = e;
	s->out_end = &e->next_out;
}

/* Everything that the front watches. */
static void spill_add_front(struct plx_spill *s, struct plx_front *fr)
{
	plx_lock(&fr->ep->mtx, PLX_RANK_EP);
	for (struct plx_list *l = fr->ep->items.next; l != &fr->ep->items; l = l->next)
		spill_add_eventfd(s, plx_file_efd(plx_all_item(l)->file));
	plx_unlock(&fr->ep->mtx, PLX_RANK_EP);
}

/* Those that watch e. One that has gone while this looks has no items any more. */
static void find_fronts(struct plx_spill *s, struct pollux_efd *e)
{
	plx_rcu_read_lock();
	for (struct plx_watch *w = plx_load_acq(&e->file.watches); w; w = plx_load_acq(&w->next)) {
		struct plx_front *fr;

		if (!plx_watch_is_item(w))
			continue;
		fr = plx_watch_item(w)->ep->owner;
		if (fr->leaves || !plx_ep_tryget(fr->ep))
			continue;
		fr->leaves = 1;
		fr->next_out = s->fronts;
		s->fronts = fr;
	}
	plx_rcu_read_unlock();
}

/* The eventfd of the table at fd that leaves, or NULL. */
static struct pollux_efd *leaving_at(int fd)
{
	struct pollux_file *f = plx_table_peek(fd);

	return f && f->kind == PLX_KIND_EVENTFD && plx_file_efd(f)->leaves ? plx_file_efd(f) : NULL;
}

/* The last number of each is enough. */
static void find_numbers(void)
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_efd *e = leaving_at(fd);

		if (e)
			e->number = fd;
	}
}

/* One of its numbers was closed past us. False if there is no other. */
static bool other_number(struct pollux_efd *e)
{
	int fd = e->number - 1;

	while (fd >= 0 && leaving_at(fd) != e)
		fd--;
	e->number = fd;
	return fd >= 0;
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

/*
 * With the mutex of an epoll that watches it, or with no such epoll. One that has no number any
 * more is in the hands of a call that sleeps, and stays what it is.
 */
static void give_count(struct pollux_efd *e)
{
	uint64_t count;
	bool beyond;

	if (e->number < 0 || plx_file_gone(&e->file))
		return;
	count = plx_efd_freeze(e);
	PLX_DELAY(spill_frozen);
	beyond = count == UINT64_MAX;
	count -= beyond;
	if (PLX_INJECTED(forgotten_count))
		count = 0;
	while (count && plx_sys3(SYS_write, e->number, &count, sizeof(count)) == -EBADF)
		if (!other_number(e))
			return;
	if (beyond)
		plx_count_beyond_writes(e->number);
}

/* The ready list first; then the rest, with those that a producer has marked and not yet pushed. */
static void take_items(struct plx_front *fr)
{
	struct pollux_ep *ep = fr->ep;

	plx_lock(&ep->mtx, PLX_RANK_EP);
	plx_ready_splice(ep);
	for (int pass = 0; pass < 2; pass++) {
		struct plx_list *head = pass ? &ep->items : &ep->ready, *l, *next;

		for (l = head->next; l != head; l = next) {
			struct plx_epitem *item = pass ? plx_all_item(l) : plx_rd_item(l);
			struct pollux_efd *e = plx_file_efd(item->file);

			next = l->next;
			if (!e->leaves)
				continue;
			plx_item_remove(item);
			give_count(e);
		}
	}
	plx_unlock(&ep->mtx, PLX_RANK_EP);
}

/* The kernel has the counts: who finds one of the numbers may go there. */
static void numbers_leave(void)
{
	for (int fd = plx_table_next(0); fd >= 0; fd = plx_table_next(fd + 1)) {
		struct pollux_efd *e = leaving_at(fd);

		if (!e)
			continue;
		plx_table_set(fd, NULL);
		plx_file_put_locked(&e->file);
	}
}

/* Threads that sleep in a read or write go on with the kernel's object. */
static void object_done(struct pollux_efd *e)
{
	PLX_DELAY(spill_before_done);
	e->leaves = 0;
	if (plx_file_gone(&e->file)) {
		if (plx_load(&e->pins)) {
			plx_hidden_lock();
			(void)plx_fd_hide_dup_private(e->number, &e->kfd);
			plx_hidden_unlock();
		}
		plx_store_rel(&e->spilled, 1);
		pollux_file_wake_all(&e->file, 0);
	}
	plx_file_put_locked(&e->file);
}

/* plx_table_lock held, signals kept away; the objects have been collected in s. */
static void spill_run(struct plx_spill *s, enum plx_way_out why)
{
	struct pollux_efd *e, *next;
	struct plx_front *fr;
	int n = 0;

	for (e = s->out; e; e = e->next_out)
		find_fronts(s, e);
	find_numbers();
	PLX_DELAY(spill_begun);
	/* Before the kernel can have an event. */
	for (fr = s->fronts; fr; fr = fr->next_out)
		plx_xchg(&fr->nkernel, 1);
	for (fr = s->fronts; fr; fr = fr->next_out)
		take_items(fr);
	for (e = s->out; e; e = e->next_out)
		give_count(e);
	PLX_DELAY(spill_moving);
	while ((fr = s->fronts)) {
		s->fronts = fr->next_out;
		fr->leaves = 0;
		plx_xadd(&fr->gen, 1);
		plx_ep_put(fr->ep);
	}
	numbers_leave();
	for (e = s->out; e; e = next) {
		next = e->next_out;
		n += plx_file_gone(&e->file);
		object_done(e);
	}
	plx_px_spilled(why, n);
}

void plx_spill_wait(struct pollux_file *f)
{
	for (int tries = 0; !plx_load_acq(&plx_file_efd(f)->spilled); tries++)
		plx_await_step(tries);
}

void plx_spill_begin(struct plx_spill *s)
{
	memset(s, 0, sizeof(*s));
	s->out_end = &s->out;
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
	if (s->out)
		spill_run(s, why);
	plx_px_spilled(why, s->timers);
	plx_store_rel(&plx_moving, 0);
	plx_mover = false;
	if (keep)
		return;
	plx_spill_unlock();
	plx_signals_unblock(&s->masked);
}

/* The front is the kernel's alone from now on. */
static void front_give_up(struct plx_spill *s, struct plx_front *fr)
{
	plx_lock(&fr->lock, PLX_RANK_FRONT);
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
