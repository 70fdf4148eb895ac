/* SPDX-License-Identifier: MIT */
/*
 * epoll_create and epoll_ctl.
 */
#include "cache/cold.h"
#include "cache/epoll.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/single_threaded.h>

#include "base/clock.h"
#include "base/inside.h"
#include "base/sanitizer.h"
#include "base/sys.h"
#include "cache/uaccess.h"
#include "wait/side.h"

/* The doorbell's number, which is not closed before number_put; -1: there is none. */
static int number_get(struct plx_epoll *pe)
{
	plx_xadd(&pe->ringers, 1);
	/* Partner: plx_epoll_unbell. */
	plx_mb_after_rmw();
	return plx_load(&pe->doorbell);
}

static void number_put(struct plx_epoll *pe)
{
	plx_xadd(&pe->ringers, (uint32_t)-1);
}

static void epoll_unpark(void *host, uint32_t *bell)
{
	struct plx_epoll *pe = host;
	uint64_t one = 1;
	bool rung = false;
	int fd;

	(void)bell;
	/*
	 * The ring has been counted: who makes a doorbell that is not seen here sees that.
	 * Partner: doorbell_make.
	 */
	fd = number_get(pe);
	if (fd >= 0) {
		plx_stat(PLX_STAT_RINGS);
		plx_stat(PLX_STAT_MADE);
		rung = plx_sys3(SYS_write, fd, &one, sizeof(one)) == sizeof(one);
	}
	number_put(pe);
	/* The sum is right (ready.c, 8). */
	if (plx_unlikely(!rung))
		plx_bell_heard(pe->ep, 1);
}

static void epoll_release(struct pollux_file *f)
{
	struct plx_epoll *pe = plx_file_epoll(f);

	if (plx_load(&pe->timer_mark))
		plx_timers_leave(pe);
	plx_epoll_unbell(pe);
	plx_ep_release(f);
}

static const struct pollux_file_ops epoll_ops = {
	.size = sizeof(epoll_ops),
	.poll = plx_ep_poll,
	.release = epoll_release,
};

struct pollux_file *plx_epoll_file(void)
{
	static uint64_t ids;
	struct plx_epoll *pe = plx_zalloc(sizeof(*pe));
	/* Waiting is plx_px_epoll_wait; the engine only ever wakes through these. */
	struct pollux_host host = {
		.look_ns = -1, .unpark_one = epoll_unpark, .now = plx_futex_host.now, .arg = pe};

	if (!pe)
		return NULL;
	pe->ep = plx_ep_new(&host);
	if (!pe->ep) {
		plx_free(pe);
		return NULL;
	}
	pe->doorbell = -1;
	pe->id = plx_xadd(&ids, 1) + 1;
	pe->soon = INT64_MAX;
	pe->heard = 1;
	pe->ep->file.ops = &epoll_ops;
	pe->ep->owner = pe;
	return &pe->ep->file;
}

long plx_px_epoll_create1(int flags)
{
	PLX_INSIDE();
	uint32_t since = plx_changes();
	struct pollux_file *f = NULL;
	long fd;

	/* Without memory, or a place in the table, the program still has a kernel epoll. */
	if (!(plx_px_no_adopt & PLX_ADOPT_EPOLL) && plx_px_begin())
		f = plx_epoll_file();
	fd = plx_sys1(SYS_epoll_create1, flags);
	PLX_DELAY(epoll_no_entry);
	if (f && fd >= 0 && !plx_numbers_have(&plx_numbers_barred, (int)fd) &&
	    plx_table_made((int)fd, f, since)) {
		plx_px_count(PLX_COUNT_EPOLLS);
		return fd;
	}
	if (f)
		pollux_file_put(f);
	if (fd >= 0)
		plx_px_given((int)fd);
	return fd;
}

uint64_t plx_bell_marker;

static void marker_make(void)
{
	uint64_t r, none = 0;

	if (plx_load(&plx_bell_marker))
		return;
	if (plx_sys3(SYS_getrandom, &r, sizeof(r), 0) != sizeof(r))
		r = (uint64_t)&r * 0x9e3779b97f4a7c15ull + (uint64_t)plx_now_ns();
	(void)plx_cas(&plx_bell_marker, &none, r | 1);
}

/*
 * The doorbell: made for the first who is about to sleep, since many epolls come and go without
 * one.
 *
 * Argument. (1) Nobody sleeps where an item may be without a doorbell that stands. Who sleeps in an
 * epoll that has none has announced himself and then found inproc clear (wait_kernel); the first
 * ADD sets inproc and then looks for sleepers. One of them sees the other: so the wait goes for
 * items, or the doorbell is made before any ADD goes on, which READY stands for. A wait that goes
 * for items makes sure of it before it announces itself, by its number. (2) No ring is lost that
 * finds no number. Its producer has pushed before, and the look of whoever sleeps later comes after
 * the making, so it finds what was pushed, unless another has collected that. What is left then is
 * the count of a ring, which would keep others from ringing. So who makes the doorbell ends all
 * counts once there is a number: a producer that has found none has counted before, and what it
 * counts as complete later counts for nothing. (3) The kernel has it in the right epoll if epfd
 * means that before and after: nobody can ring before it is published, and closing it takes it out
 * of whatever it is in. (4) Once it has been given up there is no other: `evicted` is set before,
 * and is looked at after it is published. The model is tests/model/doorbell.pml.
 *
 * epoll.lock held.
 */
static int doorbell_make(struct plx_epoll *pe, int epfd)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET};
	struct plx_bell *b;
	int r;

	if (plx_load(&pe->doorbell) >= 0)
		return 0;
	if (plx_table_peek(epfd) != &pe->ep->file)
		return -EBADF;
	if (plx_bell_new(&b) < 0)
		return -EMFILE;
	marker_make();
	ev.data.u64 = plx_load(&plx_bell_marker);
	PLX_DELAY(doorbell_made);
	r = plx_sys4(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, b->number, &ev);
	pe->bell = b;
	if (r < 0 || plx_table_peek(epfd) != &pe->ep->file || !plx_bell_publish(b, pe)) {
		plx_bell_close(b);
		plx_file_put_locked(&b->file);
		return r < 0 ? r : -EBADF;
	}
	/* Partner: epoll_unpark. */
	plx_mb();
	plx_bell_collect(pe->ep, 0);
	return 0;
}

/* Partner: epoll_leaves, which sets evicted and then looks for the doorbell. */
static void setup_over(struct plx_epoll *pe)
{
	plx_unlock(&pe->lock, PLX_RANK_EPOLL);
	plx_mb();
	if (plx_unlikely(plx_load(&pe->evicted)))
		plx_epoll_unbell(pe);
}

int plx_epoll_ring(struct plx_epoll *pe, int epfd)
{
	int r = 0;

	plx_lock(&pe->lock, PLX_RANK_EPOLL);
	if (!plx_load(&pe->evicted))
		r = pe->inproc ? doorbell_make(pe, epfd) : -EAGAIN;
	setup_over(pe);
	return r;
}

/* Items of ours may be added. 0, or a negative errno: the set stays with the kernel. */
static int epoll_setup(struct plx_epoll *pe, int epfd)
{
	int r = 0;

	if (plx_load_acq(&pe->inproc) == PLX_INPROC_READY)
		return 0;
	if (plx_unlikely(plx_cold_busy(&pe->ep->file)))
		return -EBUSY;
	PLX_DELAY(epoll_setup);
	plx_lock(&pe->lock, PLX_RANK_EPOLL);
	if (pe->inproc == PLX_INPROC_READY)
		goto out;
	if (plx_load(&pe->evicted)) {
		r = -ESTALE;
		goto out;
	}
	plx_xchg(&pe->inproc, PLX_INPROC_BEGUN);
	/* Partner: wait_kernel, which announces itself before it reads inproc. */
	plx_mb_after_rmw();
	PLX_DELAY(epoll_begun);
	if (plx_load(&pe->ep->sleepers))
		r = doorbell_make(pe, epfd);
	plx_store_rel(&pe->inproc, r < 0 ? PLX_INPROC_NONE : PLX_INPROC_READY);
out:
	setup_over(pe);
	return r;
}

void plx_epoll_prepare(struct plx_epoll *pe, int epfd)
{
	int r = epoll_setup(pe, epfd);

	if (r != -EBADF && r != -EBUSY)
		plx_store(&pe->wanted, r < 0 ? PLX_WANTED_REFUSED : PLX_WANTED_NOT);
}

bool plx_epoll_hush(struct plx_epoll *pe)
{
	uint64_t rings;
	long r;

	r = number_get(pe);
	if (r >= 0)
		r = plx_sys3(SYS_read, r, &rings, sizeof(rings));
	number_put(pe);
	if (r != sizeof(rings))
		return false;
	plx_bell_heard(pe->ep, rings);
	plx_bell_collect(pe->ep, 0);
	return true;
}

/* What the program registers with pe is told from what is ours by its data. */
static void ctl_data(struct plx_epoll *pe, const struct epoll_event *ev)
{
	if (plx_unlikely(plx_load(&plx_bell_marker)) &&
	    ev->data.u64 == plx_load(&plx_bell_marker)) {
		plx_epoll_escape(&pe->ep->file, PLX_OUT_NO_FD);
		plx_store(&pe->foreign, 1);
	}
	if (plx_unlikely(plx_load(&pe->timer_mark)) && plx_timer_marked(pe, ev->data.u64)) {
		plx_timers_leave(pe);
		plx_store(&pe->timer_mark, 0);
	}
}

/* epfd is an epoll of ours, fd belongs to the kernel. */
static long ctl_kernel(struct plx_epoll *pe, int op, struct epoll_event *ev)
{
	struct epoll_event copy;

	if (op == EPOLL_CTL_ADD)
		plx_epoll_files(pe);
	if (plx_unlikely(plx_load(&plx_bell_marker) || plx_load(&pe->timer_mark)) &&
	    op != EPOLL_CTL_DEL && plx_copy_in(&copy, ev, sizeof(copy)) == 0)
		ctl_data(pe, &copy);
	return PLX_PASS;
}

/*
 * The kernel has no event of a served eventfd with these: its count is 0 there. (EPOLLOUT it would
 * have all the time.)
 */
#define SILENT_EVENTS                                                                              \
	(EPOLLIN | EPOLLRDNORM | EPOLLPRI | EPOLLERR | EPOLLHUP | EPOLLRDHUP | EPOLLET)

/* Another epoll watches it. (Of two that come at once the second finds the first afterwards.) */
static bool watched_elsewhere(struct pollux_file *f, const struct plx_epoll *pe)
{
	bool is = false;

	plx_rcu_read_lock();
	PLX_EACH_WATCH (w, f)
		is |= plx_watch_epoll(w) != pe;
	plx_rcu_read_unlock();
	return is;
}

/*
 * The kernel's call, on the program's numbers and with its mask and data, and the engine's after
 * it. No lock is held, for the kernel may have to wait for its own.
 *
 *   e.ctls   atomic; calls of this kind on the object that are under way
 *
 * Argument. (1) Two at once on one object may come to the two in different orders: the second makes
 * it the kernel's, whatever the engine has of it then. (2) A number that has changed hands
 * meanwhile, so that nobody knows what has been registered where, has another file in the table
 * afterwards; then the object, and the epoll, are the kernel's, too. (3) A flush or an eviction
 * looks for items, or for the epolls that they are in, after it has stored why; this looks for that
 * after the item is there.
 */
static long ctl_both(struct pollux_file *ef, int epfd, int op, struct pollux_file *f, int fd,
		     struct epoll_event *ev)
{
	struct plx_epoll *pe = plx_file_epoll(ef);
	struct plx_eventfd *e = plx_file_eventfd(f);
	bool alone = !plx_xadd(&e->ctls, 1), known, unseen;
	uint32_t edge = plx_load(&e->edge);
	int ours = 0;
	long r;

	plx_stat(PLX_STAT_MADE);
	if (!alone)
		plx_px_escape(fd, PLX_OUT_WATCHED);
	/* Before the kernel can have reported an edge. */
	else if (op != EPOLL_CTL_DEL && (ev->events & EPOLLET))
		plx_store(&e->edge, 1);
	PLX_DELAY(ctl_before);
	r = plx_sys4(SYS_epoll_ctl, epfd, op, fd, ev);
	PLX_DELAY(ctl_both);
	known = plx_table_peek(epfd) == ef && plx_table_peek(fd) == f;
	if (r == 0 && alone && plx_likely(known))
		ours = plx_ep_ctl(pe->ep, op, f, fd, ev);
	/*
	 * Partners: the flush, or the write through the kernel, which looks for epolls;
	 * plx_eventfd_for_good, plx_eventfd_adopt, epoll_leaves.
	 */
	plx_mb();
	unseen = op == EPOLL_CTL_ADD && plx_eventfd_in(f) && !plx_epoll_ready(pe);
	if (plx_eventfd_may_be_kernels(f))
		plx_epoll_counts(pe);
	if (r == 0 && !plx_eventfd_served(f))
		plx_epoll_files(pe);
	if (alone && r != 0)
		plx_store(&e->edge, edge);
	else if (alone && (op == EPOLL_CTL_DEL || !(ev->events & EPOLLET)))
		plx_store(&e->edge, 0);
	plx_xadd(&e->ctls, (uint32_t)-1);
	plx_ep_ctl_done(op);
	/* It has been adopted meanwhile. */
	if (plx_unlikely(unseen))
		plx_eventfd_return(e);
	/* No memory; or a call before was made past us. The kernel alone has the registration. */
	if (plx_unlikely(ours < 0) && op != EPOLL_CTL_DEL) {
		plx_epoll_files(pe);
		plx_px_escape(fd, PLX_OUT_NO_FD);
	} else if (plx_unlikely(!known && r == 0)) {
		plx_px_escape_pair(fd, epfd, PLX_OUT_NUMBER);
		plx_epoll_escape(ef, PLX_OUT_NUMBER);
	} else if (plx_unlikely(op == EPOLL_CTL_ADD &&
				(plx_load(&pe->evicted) || watched_elsewhere(f, pe)))) {
		plx_px_escape(fd, PLX_OUT_WATCHED);
	}
	return r;
}

static bool watches(struct plx_epoll *pe, int epfd, int fd, struct pollux_file *f,
		    struct epoll_event *ev)
{
	struct plx_eventfd *e = plx_file_eventfd(f);

	if (f->kind == PLX_KIND_TIMER)
		return plx_timer_watched(f, pe, epfd, ev);
	if (f->kind != PLX_KIND_EVENTFD || !plx_eventfd_served(f) || plx_load_acq(&f->watches) ||
	    (ev->events & ~(uint32_t)SILENT_EVENTS) || plx_ep_ctl(pe->ep, EPOLL_CTL_ADD, f, fd, ev))
		return false;
	plx_ep_ctl_done(EPOLL_CTL_ADD);
	plx_store(&e->edge, !!(ev->events & EPOLLET));
	plx_epoll_counts(pe);
	if (plx_load(&e->heat.writes)) {
		plx_store(&pe->hot, 1);
		plx_store(&pe->wanted, PLX_WANTED);
	}
	return true;
}

void plx_epoll_watches(struct plx_epoll *pe, int epfd, int fd, struct epoll_event *ev)
{
	struct pollux_file *f = plx_table_get(fd);

	if (f && watches(pe, epfd, fd, f, ev)) {
		if (f->kind == PLX_KIND_TIMER)
			plx_epoll_files(pe);
	} else {
		plx_epoll_files(pe);
		if (f && f->kind == PLX_KIND_EPOLL)
			plx_px_escape(epfd, PLX_OUT_NESTED);
		if (f)
			plx_px_escape(fd, PLX_OUT_WATCHED);
	}
	if (f)
		pollux_file_put(f);
}

/* ef is an epoll of ours, f an in-process file. */
static long ctl_inproc(struct pollux_file *ef, int epfd, int op, struct pollux_file *f, int fd,
		       struct epoll_event *ev)
{
	struct plx_epoll *pe = plx_file_epoll(ef);
	struct epoll_event copy = {0};
	int setup = 0;

	if (op != EPOLL_CTL_ADD && op != EPOLL_CTL_MOD && op != EPOLL_CTL_DEL)
		return PLX_PASS;
	if (op != EPOLL_CTL_DEL && plx_copy_in(&copy, ev, sizeof(copy)))
		return -EFAULT;
	if (!plx_eventfd_serves(f))
		return ctl_kernel(pe, op, &copy);
	if (copy.events & ~(uint32_t)SILENT_EVENTS) {
		plx_px_escape(fd, PLX_OUT_MASK);
		return ctl_kernel(pe, op, &copy);
	}
	if (op == EPOLL_CTL_ADD && watched_elsewhere(f, pe)) {
		plx_px_escape(fd, PLX_OUT_WATCHED);
		return ctl_kernel(pe, op, &copy);
	}
	if (op != EPOLL_CTL_DEL)
		ctl_data(pe, &copy);
	if (op == EPOLL_CTL_ADD && plx_load_acq(&pe->evicted))
		setup = -ESTALE;
	else if (op == EPOLL_CTL_ADD && (plx_eventfd_in(f) || plx_adopts != PLX_ADOPTS_HOT))
		setup = epoll_setup(pe, epfd);
	if (plx_unlikely(setup < 0)) {
		plx_px_escape(fd, PLX_OUT_NO_FD);
		return ctl_kernel(pe, op, &copy);
	}
	/* What it watched is the kernel's: f is not among it. */
	if (op != EPOLL_CTL_ADD && plx_load_acq(&pe->evicted))
		return PLX_PASS;
	return ctl_both(ef, epfd, op, f, fd, &copy);
}

/*
 * The files behind both numbers, with references. False if there is nothing to do but to pass
 * the call on: the epoll has kernel files only, and that is what fd is.
 */
static bool ctl_files(int epfd, int op, int fd, struct pollux_file **ef, struct pollux_file **f)
{
	bool ours = true;

	plx_rcu_read_lock();
	*ef = plx_table_peek(epfd);
	*f = plx_table_peek(fd);
	if (!*f && *ef && (*ef)->kind == PLX_KIND_EPOLL) {
		struct plx_epoll *pe = plx_file_epoll(*ef);

		ours = plx_load(&pe->inproc) || plx_load(&pe->timer_mark) ||
		       (op == EPOLL_CTL_ADD && plx_load(&pe->nkernel) != PLX_KERNEL_FILES);
	}
	if (ours) {
		if (*f && !plx_file_tryget(*f))
			*f = NULL;
		if (*ef && !plx_file_tryget(*ef))
			*ef = NULL;
	}
	plx_rcu_read_unlock();
	return ours;
}

long plx_px_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	PLX_INSIDE();
	struct pollux_file *ef, *f;
	long r = PLX_PASS;

	if (PLX_INJECTED(wrong_errno))
		return -ENOSPC;
	if (plx_likely(!ctl_files(epfd, op, fd, &ef, &f))) {
		plx_stat(PLX_STAT_KERNEL_CTLS);
		return PLX_PASS;
	}
	if (plx_unlikely((ef && ef->kind == PLX_KIND_BELL) || (f && f->kind == PLX_KIND_BELL))) {
		plx_bell_take(epfd);
		plx_bell_take(fd);
	} else if (plx_unlikely(f && f->kind == PLX_KIND_TIMER)) {
		bool ours = ef && ef->kind == PLX_KIND_EPOLL;

		if (ours)
			ctl_kernel(plx_file_epoll(ef), op, ev);
		r = plx_timer_ctl(f, ours ? plx_file_epoll(ef) : NULL, epfd, op, fd, ev);
	} else if (ef && ef->kind == PLX_KIND_EPOLL) {
		struct plx_epoll *pe = plx_file_epoll(ef);

		plx_tsan_before(pe);
		/* Partner: beside_ctl in wait.c. What is passed on is not ours after this. */
		plx_xadd(&pe->ctls, op != EPOLL_CTL_DEL);
		if (!f) {
			r = ctl_kernel(pe, op, ev);
		} else if (f->kind == PLX_KIND_EVENTFD) {
			r = ctl_inproc(ef, epfd, op, f, fd, ev);
		} else if (op == EPOLL_CTL_ADD && f != ef) {
			/* Nothing is given up for a call that fails at once. */
			if (plx_copy_in(&(struct epoll_event){0}, ev, sizeof(*ev)))
				r = -EFAULT;
			else
				plx_px_escape_pair(fd, epfd, PLX_OUT_NESTED);
			r = r == PLX_PASS ? ctl_kernel(pe, op, ev) : r;
		}
		plx_xadd(&pe->ctls_over, op != EPOLL_CTL_DEL);
	} else if (!ef && f && op == EPOLL_CTL_ADD && plx_sys2(SYS_fcntl, epfd, F_GETFD) >= 0) {
		if (plx_copy_in(&(struct epoll_event){0}, ev, sizeof(*ev)))
			r = -EFAULT;
		else
			plx_px_escape(fd, PLX_OUT_FOREIGN_EPOLL);
	}
	PLX_DELAY(ctl_decided);
	if (ef) {
		plx_stat(r == PLX_PASS ? PLX_STAT_KERNEL_CTLS : PLX_STAT_CTLS);
		pollux_file_put(ef);
	}
	if (f)
		pollux_file_put(f);
	return r;
}

/* fd goes into an epoll of the native API, which is the kernel's for descriptors. */
static int native_ctl(int op, int fd)
{
	PLX_INSIDE();
	if (!plx_fd_ours(fd))
		return 0;
	if (op == EPOLL_CTL_ADD)
		plx_px_escape(fd, PLX_OUT_FOREIGN_EPOLL);
	plx_bell_take(fd);
	return 0;
}

PLX_START_CODE void plx_epoll_init(void)
{
	plx_store(&plx_side_registers, native_ctl);
}
