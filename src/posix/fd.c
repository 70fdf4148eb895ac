/* SPDX-License-Identifier: MIT */
/*
 * Descriptors: close, dup, fcntl, ioctl.
 *
 * An entry leaves the table before its number is closed in the kernel: the number
 * may mean something else in another thread the moment after.
 */
#include "posix/front.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>

#include "base/inside.h"
#include "base/lock.h"
#include "base/sanitizer.h"
#include "base/sys.h"
#include "posix/uaccess.h"

/* RCU section open: a number of f is about to mean nothing, or something else. */
static void number_goes(struct pollux_file *f)
{
	if (f && f->kind == PLX_KIND_TIMER)
		plx_timer_close(f);
	else if (f && f->kind == PLX_KIND_EPOLL && plx_load(&plx_file_front(f)->timer_mark))
		plx_timers_leave(plx_file_front(f));
}

/*
 * An eventfd at fd is the kernel's before its number means something else. Its entry may stay: its
 * calls are the kernel's. closed: it cannot stay open; else its epolls have to know, too.
 */
static void eventfd_goes(int fd, bool closed)
{
	struct pollux_file *f;
	bool gone;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	gone = !f || f->kind != PLX_KIND_EVENTFD || (closed && plx_eventfd_leave(f)) ||
	       !pollux_file_tryget(f);
	plx_rcu_read_unlock();
	if (plx_likely(gone))
		return;
	plx_eventfd_flush(plx_file_eventfd(f), PLX_EVENTFD_LEAVES);
	pollux_file_put(f);
}

static bool eventfd_at(int fd)
{
	struct pollux_file *f;
	bool is;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	is = f && f->kind == PLX_KIND_EVENTFD;
	plx_rcu_read_unlock();
	return is;
}

/* It gets a second number. */
static void eventfd_escapes(int fd)
{
	if (eventfd_at(fd))
		plx_px_escape(fd, PLX_OUT_DUP);
}

/*
 * ThreadSanitizer knows who has used a number; that it means something else from now on it learns
 * by the close.
 */
static long close_seen(int fd)
{
	int state;
	long r;

	if (plx_likely(!plx_tsan_here()))
		return plx_sys1(SYS_close, fd);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	r = plx_libc.close(fd) < 0 ? -errno : 0;
	pthread_setcancelstate(state, NULL);
	return r;
}

/* What the number meant comes back in *f, with its reference. */
static long close_number(int fd, struct pollux_file **f)
{
	struct pollux_file **slot = plx_table_slot(fd), *old;
	bool locked, hidden;
	long r;

	*f = NULL;
	if (!slot)
		return plx_fd_maybe_hidden(fd) && plx_fd_stray(fd) ? -EBADF : PLX_PASS;
	eventfd_goes(fd, true);
	locked = plx_table_enter();
	plx_rcu_read_lock();
	old = plx_table_peek(fd);
	hidden = old && old->kind == PLX_KIND_HIDDEN;
	number_goes(old);
	plx_rcu_read_unlock();
	if (plx_unlikely(!old || hidden)) {
		hidden |= plx_fd_maybe_hidden(fd) && plx_fd_stray(fd);
		plx_table_leave(locked);
		return hidden ? -EBADF : PLX_PASS;
	}
	plx_numbers_lock(fd, fd);
	*f = plx_table_set(fd, NULL);
	PLX_DELAY(close_no_entry);
	/* Partner: plx_eventfd_tell. */
	if (*f && (*f)->kind == PLX_KIND_EVENTFD)
		plx_await_zero(&plx_file_eventfd(*f)->pins);
	r = close_seen(fd);
	plx_numbers_unlock(fd, fd);
	plx_table_leave(locked);
	return r;
}

long plx_px_close(int fd)
{
	PLX_INSIDE();
	struct pollux_file *f;
	long r = close_number(fd, &f);

	if (f)
		pollux_file_put(f);
	return r;
}

/*
 * An epoll whose items are the kernel's is left to the kernel's own close_range, which ends it in
 * its turn among the kernel's files: one that ends before it may still make an event for it, and so
 * for the epolls around it. Our duplicate goes with our last reference, so before that. Until the
 * number is closed it is that of an epoll which we do not know, and just as good. That is not so
 * with items of ours, but such an epoll is watched by nobody, and with several threads it is closed
 * at once. True if fd is left.
 */
static bool leave_epoll(int fd)
{
	struct pollux_file *f;
	bool epoll, leave = false, locked;

	if (!plx_table_slot(fd))
		return false;
	locked = plx_table_enter();
	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	epoll = f && f->kind == PLX_KIND_EPOLL;
	if (epoll)
		number_goes(f);
	plx_rcu_read_unlock();
	if (epoll) {
		/* With the lock it is what it is, and dup2 does not put another there meanwhile. */
		plx_numbers_lock(fd, fd);
		f = plx_table_peek(fd);
		leave = f && f->kind == PLX_KIND_EPOLL &&
			(__libc_single_threaded || !plx_front_live(plx_file_front(f)));
		PLX_DELAY(range_epoll);
		if (leave)
			plx_table_set(fd, NULL);
		plx_numbers_unlock(fd, fd);
	}
	plx_table_leave(locked);
	if (leave)
		pollux_file_put(f);
	return leave;
}

/* What is the kernel's from first to last; our hidden descriptors stay. */
static long close_around(unsigned int first, unsigned int last, unsigned int flags)
{
	unsigned int end = plx_table_end(), fd = last < end ? last + 1 : end;
	long r = 0;

	/* The last first, as the kernel would if the call were one. */
	while (fd-- > first) {
		if (!plx_fd_ours(fd) || !plx_fd_hidden(fd))
			continue;
		if (fd < last)
			r = plx_sys3(SYS_close_range, fd + 1, last, flags);
		if (fd == first)
			return r;
		last = fd - 1;
	}
	return plx_sys3(SYS_close_range, first, last, flags);
}

/* Where hidden descriptors may come to be, none does meanwhile. */
static long close_kernel_range(unsigned int first, unsigned int last, unsigned int flags)
{
	unsigned int from = plx_load(&plx_hidden_from);

	if (last >= from) {
		long r;

		plx_hidden_lock();
		r = close_around(first < from ? from : first, last, flags);
		plx_hidden_unlock();
		if (first >= from || r < 0)
			return r;
		last = from - 1;
	}
	return close_around(first, last, flags);
}

/*
 * A number at which an object was being made when the kernel's close_range came by: it was the
 * kernel's already, and stands in the table as soon as its maker has left. Whatever would be opened
 * there next would be taken for that object. Nobody else is between the two at this number, so what
 * stands in the table and is closed is such a one: they hold its lock, or store after the kernel
 * has made the number and before it ends it.
 */
static void forget_closed(int fd)
{
	struct pollux_file *f = NULL;
	bool locked = plx_table_enter();

	plx_numbers_lock(fd, fd);
	if (plx_table_peek(fd) && !plx_fd_hidden(fd) && plx_sys2(SYS_fcntl, fd, F_GETFD) < 0)
		f = plx_table_set(fd, NULL);
	plx_numbers_unlock(fd, fd);
	plx_table_leave(locked);
	if (f)
		pollux_file_put(f);
}

static void forget_closed_range(unsigned int first, unsigned int last)
{
	unsigned int end = plx_table_end();

	/* Those who have got a number before it was closed. */
	plx_rcu_synchronize();
	plx_table_await();
	for (unsigned int fd = first; fd <= last && fd < end; fd++)
		if (plx_fd_ours(fd))
			forget_closed(fd);
}

long plx_px_close_range(unsigned int first, unsigned int last, unsigned int flags)
{
	PLX_INSIDE();
	unsigned int end = plx_table_end();
	bool locked;
	long r;

	if (first > last || (flags & ~(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)))
		return plx_sys3(SYS_close_range, first, last, flags);
	if (flags & CLOSE_RANGE_UNSHARE)
		plx_px_escape_all(PLX_OUT_UNSHARE);
	if (!(flags & CLOSE_RANGE_CLOEXEC))
		for (unsigned int fd = first; fd <= last && fd < end; fd++)
			if (plx_fd_ours(fd) && !plx_fd_hidden(fd) && !leave_epoll(fd))
				plx_px_close(fd);
	/* A spill has descriptors of its own meanwhile, at whatever numbers are free. */
	locked = plx_table_enter();
	r = close_kernel_range(first, last, flags);
	plx_table_leave(locked);
	if (!__libc_single_threaded && !(flags & CLOSE_RANGE_CLOEXEC))
		forget_closed_range(first, last);
	return r;
}

/* As newer headers have it. */
#ifndef F_DUPFD_QUERY
#define F_DUPFD_QUERY (1024 + 3)
#endif

/* False also on kernels that do not know the question. */
static bool same_file(int fd, int other)
{
	return other >= 0 && plx_sys3(SYS_fcntl, fd, F_DUPFD_QUERY, other) == 1;
}

/* fd is another number of f, and means the same as number to the kernel. */
static bool has_number(struct pollux_file *f, int number, int fd)
{
	return fd != number && plx_table_peek(fd) == f && same_file(number, fd);
}

/* The lock of the number held: f, which stands in the table for it, is what the kernel has there.
 */
static bool is_there(struct pollux_file *f, int number)
{
	bool there = false;

	if (f->kind == PLX_KIND_EVENTFD)
		return plx_fd_is_eventfd(number);
	if (f->kind == PLX_KIND_EPOLL && same_file(number, plx_load(&plx_file_front(f)->kfd)))
		return true;
	for (int fd = plx_table_next(0); fd >= 0 && !there; fd = plx_table_next(fd + 1))
		there = has_number(f, number, fd);
	return there;
}

/*
 * Numbers that were closed past us: by an instruction of the program's own, or within libc. The
 * entry is left, and goes when the number is given out again.
 *
 * Argument. Who closes a number of ours takes its entry away first, so the kernel gives out none
 * that has one, unless dup3 is about to put something of ours there: then the entry is what the
 * number means as soon as its lock can be had. So it is if the program closes the number that it
 * is just being given, and something of ours comes to be there. In these two cases the kernel has
 * at the number what the table says, and can be asked about it where that matters: an epoll without
 * items of ours is as good without its entry, a timer of which the kernel has the setting, too, and
 * other timers are put nowhere by dup3. An eventfd is there if the number is that of one.
 */
void plx_px_given(int fd)
{
	PLX_INSIDE();
	struct pollux_file **slot = plx_table_slot(fd), *f, *mine;
	bool locked, left;

	if (!slot || PLX_INJECTED(forgotten_number))
		return;
	locked = plx_table_enter();
	f = mine = plx_table_get(fd);
	left = f && (f->kind != PLX_KIND_TIMER || plx_timer_lost(f));
	plx_numbers_lock(fd, fd);
	PLX_DELAY(given_entry);
	left = left && !is_there(f, fd) && plx_cas(slot, &mine, NULL);
	plx_numbers_unlock(fd, fd);
	plx_table_leave(locked);
	/* That of the table. */
	if (left)
		pollux_file_put(f);
	if (f)
		pollux_file_put(f);
}

/* A duplicate of fd, made by fcntl's cmd, for what fd means at that moment. */
static long dup_any(int fd, int cmd, long from)
{
	struct pollux_file *f, *old = NULL;
	long n = PLX_PASS;
	bool locked;

	eventfd_escapes(fd);
	/* From two numbers it would have two names in an epoll. */
	if (plx_timer_escape(fd))
		plx_px_spilled(PLX_OUT_TIMER_DUP, 1);
	locked = plx_table_enter();
	plx_numbers_lock(fd, fd);
	f = plx_table_get(fd);
	if (!f || f->kind == PLX_KIND_EVENTFD) {
		plx_numbers_unlock(fd, fd);
		plx_table_leave(locked);
		if (f)
			pollux_file_put(f);
		return plx_fd_hidden(fd) ? -EBADF : PLX_PASS;
	}
	PLX_DELAY(dup_found);
	n = plx_sys3(SYS_fcntl, fd, PLX_INJECTED(wrong_flag) ? F_DUPFD_CLOEXEC : cmd, from);
	if (n >= 0 && plx_table_reserve(n) < 0) {
		/* By a number without an entry the count would not be seen. */
		plx_sys1(SYS_close, n);
		n = -ENOMEM;
	}
	if (n >= 0)
		old = plx_table_set(n, f);
	plx_numbers_unlock(fd, fd);
	plx_table_leave(locked);
	if (n < 0)
		pollux_file_put(f);
	/* Left by a close that went past us. */
	if (old)
		pollux_file_put(old);
	return n;
}

long plx_px_dup(int fd)
{
	PLX_INSIDE();
	return dup_any(fd, F_DUPFD, 0);
}

/*
 * Nothing of ours is at fd, nor comes to be there, from now on: plx_table_enter and plx_hidden_lock
 * are held. False if what is there cannot be moved.
 */
static bool want_number(int fd, struct plx_left *left, enum plx_want *want, bool *locked)
{
	for (;;) {
		if (plx_fd_evict(fd, left) < 0)
			return false;
		*locked = plx_table_enter();
		plx_hidden_lock();
		*want = plx_fd_want(fd, left);
		if (*want != PLX_WANT_HIDDEN)
			return true;
		plx_hidden_unlock();
		plx_table_leave(*locked);
	}
}

static void replaced_epoll(int number)
{
	plx_rcu_read_lock();
	number_goes(plx_table_peek(number));
	plx_rcu_read_unlock();
}

/*
 * An epoll that is put at a number, or replaced there, while others wait by that number.
 *
 * dup3 changes the table and then the kernel. A wait in between, or one that has looked at the
 * table before and comes to the kernel after, would be one of another epoll than it takes it for:
 * the event of that one's doorbell is none of the program's, what is ours there is not looked at,
 * and neither is what it was to look at. A wait that does not sleep and holds no reference goes by
 * the program's number (look_quickly in wait.c), others do so where an epoll keeps no duplicate of
 * itself (wait_fd).
 *
 *   front.renumbered  atomic; such calls that are under way, for both epolls: then nobody begins to
 *                     go by a number of theirs without a reference
 *   front.kfd         they keep a duplicate from now on
 *
 * Argument. All who go by the number do so within an RCU section in which they have read both. (1)
 * Who has read them before they were set is waited for, before the table changes. (2) Who finds the
 * old epoll at the number after that finds renumbered set: it goes down only after another grace
 * period, which waits for all who have found the old epoll there. (3) Who finds the new one, finds
 * it set, or reads it when it has gone down: then the kernel has been told. (4) What stands at the
 * two numbers may have changed before their lock was taken: then all begins again with that.
 * The model is tests/model/looks.pml.
 *
 * That leaves those who do not look within a section, or not at the table: who sleeps in an epoll
 * that has nothing of ours, and so no duplicate, when it has chosen the number; and who has found
 * nothing at the number. Nobody can tell whether such a one has come to the kernel, without being
 * told by it before each sleep. A number that is closed and becomes an epoll's again could be known
 * to be nobody's only after a grace period in each close of an epoll.
 */
struct renumbered {
	struct pollux_file *to, *from;
};

static struct pollux_file *renumber(int fd)
{
	struct pollux_file *f = plx_table_get(fd);
	struct plx_front *fr;

	if (!f || f->kind != PLX_KIND_EPOLL) {
		if (f)
			pollux_file_put(f);
		return NULL;
	}
	fr = plx_file_front(f);
	plx_front_keep(fr, fd);
	plx_xadd(&fr->renumbered, 1);
	return f;
}

static void renumber_begin(struct renumbered *r, int oldfd, int newfd)
{
	*r = (struct renumbered){0};
	/* Handlers do not come in between. */
	if (plx_px_alone())
		return;
	r->to = renumber(oldfd);
	r->from = renumber(newfd);
	if (!r->from)
		return;
	/* A registration that is under way may come to it by the number. */
	if (r->to)
		plx_front_files(plx_file_front(r->to));
	plx_rcu_synchronize();
}

/* With the lock of both numbers, of which the first means f. */
static bool renumber_holds(const struct renumbered *r, struct pollux_file *f, int newfd)
{
	struct pollux_file *from = plx_table_peek(newfd);

	if (plx_px_alone())
		return true;
	return (!f || f->kind != PLX_KIND_EPOLL || f == r->to) &&
	       (!from || from == r->from || from->kind != PLX_KIND_EPOLL);
}

static void renumber_end(struct renumbered *r)
{
	if (r->from)
		plx_rcu_synchronize();
	for (int i = 0; i < 2; i++) {
		struct pollux_file *f = i ? r->from : r->to;

		if (!f)
			continue;
		plx_xadd(&plx_file_front(f)->renumbered, (uint32_t)-1);
		pollux_file_put(f);
	}
	*r = (struct renumbered){0};
}

long plx_px_dup3(int oldfd, int newfd, int flags)
{
	PLX_INSIDE();
	struct pollux_file *f, *old = NULL, *was = NULL;
	struct renumbered renumbered;
	struct plx_left left = {0};
	struct pollux_file **slot;
	enum plx_want want;
	bool locked;
	int timers;
	long r;

	if (flags != -1 && (oldfd == newfd || (flags & ~O_CLOEXEC)))
		return PLX_PASS;
	if (plx_fd_hidden(oldfd))
		return -EBADF;
	if (oldfd == newfd)
		return PLX_PASS;
	/* Neither becomes ours meanwhile: handlers wait. */
	if (plx_px_alone() && !plx_fd_ours(oldfd) && !plx_fd_ours(newfd))
		return plx_sys3(SYS_dup3, oldfd, newfd, flags == -1 ? 0 : flags);
	if (plx_sys2(SYS_fcntl, oldfd, F_GETFD) < 0)
		return PLX_PASS;
	timers = (int)plx_timer_escape(oldfd) + (int)plx_timer_escape(newfd);
	if (timers)
		plx_px_spilled(PLX_OUT_TIMER_DUP, timers);
	replaced_epoll(newfd);
	eventfd_escapes(oldfd);
	/* The kernel may refuse the call. */
	eventfd_goes(newfd, false);
	if (newfd >= 0 && plx_fd_ours(oldfd) && plx_table_reserve(newfd) < 0) {
		plx_px_escape(oldfd, PLX_OUT_NO_FD);
		return PLX_PASS;
	}
	for (;;) {
		renumber_begin(&renumbered, oldfd, newfd);
		if (!want_number(newfd, &left, &want, &locked)) {
			renumber_end(&renumbered);
			return -EMFILE;
		}
		plx_numbers_lock(oldfd, newfd);
		f = plx_table_get(oldfd);
		if (renumber_holds(&renumbered, f, newfd))
			break;
		plx_numbers_unlock(oldfd, newfd);
		plx_hidden_unlock();
		plx_table_leave(locked);
		if (f)
			pollux_file_put(f);
		renumber_end(&renumbered);
	}
	/* Two numbers of it are two of the kernel's. */
	if (f && f->kind == PLX_KIND_EVENTFD) {
		plx_file_put_locked(f);
		f = NULL;
	}
	slot = newfd >= 0 ? plx_table_slot(newfd) : NULL;
	if (want == PLX_WANT_TAKEN) {
		/* It cannot become ours, and to end what it is may take long. */
		plx_hidden_unlock();
		if (!f && !plx_fd_ours(newfd)) {
			plx_numbers_unlock(oldfd, newfd);
			plx_table_leave(locked);
			renumber_end(&renumbered);
			return PLX_PASS;
		}
	}
	/*
	 * There is no moment at which newfd has no entry and still is an epoll that has one. So
	 * what comes in is in the table before the kernel replaces the number, what goes out is
	 * afterwards.
	 */
	PLX_DELAY(dup_before_entry);
	if (f && slot) {
		/* One more, so that its address means nothing else meanwhile. */
		pollux_file_get(f);
		old = plx_table_set(newfd, f);
		PLX_DELAY(dup_entry);
	} else if (slot && eventfd_at(newfd)) {
		/* It is the kernel's, so its calls need no entry. */
		old = plx_table_set(newfd, NULL);
	} else if (slot) {
		was = plx_table_peek(newfd);
	}
	/* Partner: plx_eventfd_tell. */
	if (old && old->kind == PLX_KIND_EVENTFD)
		plx_await_zero(&plx_file_eventfd(old)->pins);
	PLX_DELAY(dup_before_kernel);
	r = plx_sys3(SYS_dup3, oldfd, newfd, flags == -1 ? 0 : flags);
	PLX_DELAY(dup_after_kernel);
	/* Where nothing of ours was there may be by now: it has been closed, and is another's. */
	if (r >= 0 && was && plx_cas(slot, &was, NULL))
		old = was;
	if (r < 0 && f) {
		struct pollux_file *mine = f;

		/* As it was, unless somebody else has changed it meanwhile. */
		if (!slot || plx_cas(slot, &mine, old))
			old = f;
	}
	if (r < 0 && want == PLX_WANT_LEFT)
		plx_fd_left_close(newfd, &left);
	plx_numbers_unlock(oldfd, newfd);
	if (want != PLX_WANT_TAKEN)
		plx_hidden_unlock();
	plx_table_leave(locked);
	plx_fd_left_put(&left);
	renumber_end(&renumbered);
	if (old)
		pollux_file_put(old);
	if (f && slot)
		pollux_file_put(f);
	return r;
}

/*
 * The program says by a call on fd whether it blocks: it may be cached while it does not. One that
 * was made to block may be from then on, when the kernel has been told.
 */
static long set_blocking(struct pollux_file *f, int fd, bool nonblock, long nr, long cmd, long arg)
{
	long r;

	if (!nonblock)
		plx_px_escape(fd, PLX_OUT_FCNTL);
	if (!nonblock || plx_eventfd_served(f))
		return PLX_PASS;
	r = plx_sys3(nr, fd, cmd, arg);
	if (r == 0)
		plx_eventfd_unblocked(plx_file_eventfd(f));
	return r;
}

static long fcntl_eventfd(struct pollux_file *f, int fd, int cmd, long arg)
{
	switch (cmd) {
	case F_GETFL:
	case F_GETFD:
	case F_SETFD:
		return PLX_PASS;
	case F_SETFL:
		return set_blocking(f, fd, (arg & (O_NONBLOCK | O_ASYNC)) == O_NONBLOCK, SYS_fcntl,
				    F_SETFL, arg);
	}
	plx_px_escape(fd, PLX_OUT_FCNTL);
	return PLX_PASS;
}

long plx_px_fcntl(int fd, int cmd, long arg)
{
	PLX_INSIDE();
	struct pollux_file *f;
	long r = PLX_PASS;

	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return dup_any(fd, cmd, arg);
	f = plx_table_get(fd);
	if (!f)
		return plx_fd_hidden(fd) ? -EBADF : PLX_PASS;
	if (f->kind == PLX_KIND_EVENTFD)
		r = fcntl_eventfd(f, fd, cmd, arg);
	else if (f->kind == PLX_KIND_TIMER && cmd != F_GETFD && cmd != F_SETFD && cmd != F_GETFL)
		plx_px_escape(fd, PLX_OUT_FCNTL);
	pollux_file_put(f);
	return r;
}

long plx_px_ioctl(int fd, unsigned long req, void *arg)
{
	PLX_INSIDE();
	struct pollux_file *f = plx_table_get(fd);
	long r = PLX_PASS;
	int on;

	if (!f)
		return plx_fd_hidden(fd) ? -EBADF : PLX_PASS;
	if (f->kind != PLX_KIND_EVENTFD) {
		if (f->kind == PLX_KIND_TIMER && req != FIOCLEX && req != FIONCLEX)
			plx_px_escape(fd, PLX_OUT_IOCTL);
		pollux_file_put(f);
		return r;
	}
	switch (req) {
	case FIONBIO:
		if (!plx_copy_in(&on, arg, sizeof(on)))
			r = set_blocking(f, fd, on, SYS_ioctl, FIONBIO, (long)&on);
		break;
	case FIOCLEX:
	case FIONCLEX:
	case FIONREAD:
	case TCGETS:
		break;
	default:
		plx_px_escape(fd, PLX_OUT_IOCTL);
	}
	pollux_file_put(f);
	return r;
}

/*
 * Requests whose type says what device they are for. Those of KVM, vhost and VFIO
 * hand eventfds to the kernel; a type that is not known to be harmless is taken to
 * do so, too.
 */
bool plx_px_ioctl_carries_fds(unsigned long req)
{
	switch (_IOC_TYPE(req)) {
	case 0x12: /* block devices */
	case 'E':  /* input */
	case 'T':  /* terminals */
	case 'V':  /* video */
	case 'X':  /* file systems */
	case 'f':  /* ext4, inode flags */
	case 'v':  /* the same, version */
	case 0x89: /* sockets */
	case 0x8a: /* epoll */
	case 0x8b: /* wireless */
	case 0xaa: /* userfaultfd */
		return false;
	default:
		return true;
	}
}
