/* SPDX-License-Identifier: MIT */
/*
 * eventfd descriptors: adopted at creation, served in process.
 *
 * The number is that of a kernel eventfd with the program's flags. The count is here, and the
 * kernel's is 0, until a spill writes it there (spill.c).
 */
#include "posix/front.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "base/inside.h"
#include "base/lock.h"
#include "base/sys.h"
#include "posix/quick.h"
#include "posix/uaccess.h"

/* Never written to, and so always ready for writing (aio/handover.c). */
static int ready = -1;
static plx_lock_t ready_lock;

int plx_eventfd_ready(void)
{
	int fd = plx_load_acq(&ready);

	if (plx_likely(fd >= 0))
		return fd;
	plx_lock(&ready_lock, PLX_RANK_TABLE);
	fd = ready;
	if (fd < 0) {
		plx_hidden_lock();
		fd = plx_kernel_eventfd(EFD_NONBLOCK | EFD_CLOEXEC);
		if (fd >= 0)
			fd = plx_fd_hide(fd, &ready);
		if (fd >= 0)
			plx_fd_share(&ready);
		plx_hidden_unlock();
	}
	plx_unlock(&ready_lock, PLX_RANK_TABLE);
	return fd;
}

void plx_eventfd_drop_ready(void)
{
	plx_fd_unhide(&ready);
}

PLX_CHILD_CODE void plx_eventfd_after_fork_child(void)
{
	plx_lock_reset(&ready_lock);
}

long plx_px_eventfd(unsigned int init, int flags)
{
	PLX_INSIDE();
	struct pollux_file *old = NULL;
	struct pollux_efd *e;
	bool locked, served;
	uint64_t count = init;
	long fd;

	if (flags & ~(EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC))
		return -EINVAL;
	if ((plx_px_no_adopt & PLX_ADOPT_EVENTFD) || !plx_px_begin())
		return PLX_PASS;
	if (pollux_efd_new(&e, init, flags & EFD_SEMAPHORE ? POLLUX_EFD_SEMAPHORE : 0) < 0)
		return PLX_PASS;
	e->status = flags & EFD_NONBLOCK ? O_NONBLOCK : 0;
	locked = plx_table_enter();
	fd = plx_sys2(SYS_eventfd2, 0, flags);
	PLX_DELAY(eventfd_no_entry);
	served = fd >= 0 && !plx_fd_of_stream((int)fd) && plx_table_reserve((int)fd) == 0;
	if (served)
		old = plx_table_set((int)fd, &e->file);
	else if (fd >= 0 && count)
		plx_sys3(SYS_write, fd, &count, sizeof(count));
	plx_table_leave(locked);
	/* Left by a close that went past us. */
	if (old)
		pollux_file_put(old);
	if (served)
		plx_px_count(PLX_COUNT_EVENTFDS);
	else
		pollux_file_put(&e->file);
	return fd;
}

/*
 * The partner of a pin is the freeze of a spill: of the two, each has done its own part
 * before it looks at the other's, so at least one of them sees the other.
 */
bool plx_eventfd_pin(struct pollux_efd *e)
{
	plx_xadd(&e->pins, 1);
	/* Partner: the freeze, whose spill looks at the pins. */
	plx_mb_after_rmw();
	if (plx_likely(!plx_load_acq(&e->file.gone)))
		return true;
	plx_eventfd_unpin(e);
	return false;
}

void plx_eventfd_unpin(struct pollux_efd *e)
{
	bool last = plx_xadd(&e->pins, -1) == 1;

	/* Partner: as in plx_eventfd_pin. */
	plx_mb_after_rmw();
	if (plx_likely(!last || !plx_load_acq(&e->file.gone)))
		return;
	plx_lock(&plx_table_lock, PLX_RANK_TABLE);
	plx_fd_unhide_unused(&e->kfd, &e->pins);
	plx_unlock(&plx_table_lock, PLX_RANK_TABLE);
}

void plx_eventfd_tell(struct pollux_efd *e, int fd)
{
	const struct timespec now = {0};
	const uint64_t one = 1;
	struct pollfd p = {.events = POLLOUT};

	if (plx_likely(plx_efd_signal(e) != -ESTALE))
		return;
	plx_spill_wait(&e->file);
	/* The number may move away (plx_fd_evict), but not within an RCU section. */
	plx_rcu_read_lock();
	p.fd = plx_load(&e->kfd);
	if (plx_unlikely(p.fd < 0))
		p.fd = fd;
	plx_sys6(SYS_ppoll, (long)&p, 1, (long)&now, 0, 0, 0);
	if (p.revents & POLLOUT)
		plx_sys3(SYS_write, p.fd, &one, sizeof(one));
	else
		plx_count_beyond_writes(p.fd);
	plx_rcu_read_unlock();
}

/* A call on a number that is not an eventfd; f is what it was, under RCU. Leaves RCU. */
static __attribute__((noinline)) long no_eventfd(const struct pollux_file *f)
{
	bool hidden = f && f->kind == PLX_KIND_HIDDEN;

	plx_rcu_read_unlock();
	return hidden ? -EBADF : PLX_PASS;
}

/*
 * A call that slept while its object became a kernel object goes on sleeping there,
 * also if O_NONBLOCK was set meanwhile: that is for later calls (EFD-18). By the descriptor that
 * the pin keeps.
 */
static long kernel_sleep_pinned(struct pollux_efd *e, uint64_t *value, bool write)
{
	uint32_t breaks = plx_inside.breaks;
	long r;

	do {
		r = plx_kernel_sleep(&e->kfd, value, write);
	} while (r == -EINTR && breaks == plx_inside.breaks);
	return r;
}

static void only_put(void *p)
{
	struct pollux_efd *e = p;

	pollux_file_put(&e->file);
}

static void unpin_put(void *p)
{
	plx_eventfd_unpin(p);
	only_put(p);
}

static long efd_read(int fd, void *buf, size_t n, bool nonblock);
static long efd_write(int fd, void *buf, size_t n, bool nonblock);

/* The object has left: what the number means now. 0, an error, or PLX_PASS. */
static long efd_again(int fd, uint64_t *value, bool write, bool nonblock)
{
	long r;

	if (!plx_fd_ours(fd))
		return PLX_PASS;
	r = write ? efd_write(fd, value, sizeof(*value), nonblock)
		  : efd_read(fd, value, sizeof(*value), nonblock);
	return r == sizeof(*value) ? 0 : r;
}

/* The call has to sleep, or the object has left: outside the RCU section, with a reference. */
static long efd_slow(struct pollux_efd *e, int fd, long r, uint64_t *value, bool write,
		     bool nonblock)
{
	bool slept = r == -EAGAIN;
	bool got, pinned;

	/* Dropping a reference may release memory, which a signal handler must not. */
	if (slept && nonblock) {
		plx_rcu_read_unlock();
		return r;
	}
	got = pollux_file_tryget(&e->file);
	plx_rcu_read_unlock();
	/* Gone from the table, by a close or a spill: the number is the kernel's. */
	if (!got)
		return efd_again(fd, value, write, nonblock);
	if (slept) {
		PLX_DELAY(efd_pins);
		plx_xadd(&e->pins, 1);
	}
	PLX_HOLD_PUSH(slept ? unpin_put : only_put, e);
	if (slept) {
		plx_stat(PLX_STAT_MADE);
		r = write ? pollux_efd_write(e, *value, 1) : pollux_efd_read(e, value, 1);
	}
	if (r == -ESTALE) {
		plx_spill_wait(&e->file);
		/* Not by the number, which may be closed at any time, and be another file's. */
		pinned = slept && plx_fd_used(&e->kfd) >= 0;
		PLX_DELAY(efd_goes_on);
		if (pinned)
			r = kernel_sleep_pinned(e, value, write);
		else if (slept && (plx_load(&e->status) & O_NONBLOCK))
			r = plx_kernel_sleep(&fd, value, write);
		else
			r = efd_again(fd, value, write, nonblock);
	}
	PLX_HOLD_POP(1);
	return r;
}

static long efd_read(int fd, void *buf, size_t n, bool nonblock)
{
	struct pollux_efd *e;
	struct pollux_file *f;
	uint64_t value;
	long r;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (plx_unlikely(!f || f->kind != PLX_KIND_EVENTFD)) {
		if (f && f->kind == PLX_KIND_TIMER)
			return plx_timer_read(f, fd, buf, n);
		return no_eventfd(f);
	}
	/* A buffer that cannot be the program's is refused before anything is taken. */
	if (plx_unlikely(n < sizeof(value) || !plx_user_range(buf, n))) {
		plx_rcu_read_unlock();
		return plx_user_range(buf, n) ? -EINVAL : -EFAULT;
	}
	e = plx_file_efd(f);
	r = pollux_efd_read(e, &value, 0);
	if (plx_unlikely(r)) {
		r = efd_slow(e, fd, r, &value, false,
			     nonblock || (plx_load(&e->status) & O_NONBLOCK));
		if (r)
			return r;
	} else {
		plx_rcu_read_unlock();
	}
	/* The value is gone even if it cannot be stored (EFD-06). */
	if (plx_likely(!plx_copy_out(buf, &value, sizeof(value))))
		return sizeof(value);
	plx_copy_out_head(buf, &value, sizeof(value));
	return -EFAULT;
}

/* A handler has run in the sleep of a read or write: the number may mean something else. */
static __attribute__((noinline)) long again(long r, int fd, void *buf, size_t n, bool nonblock,
					    long (*call)(int, void *, size_t, bool))
{
	while (r == PLX_SLEEP_ANEW)
		r = call(fd, buf, n, nonblock);
	if (!plx_sleep_is_over(r))
		return r;
	/* What was there before the signal goes before it. */
	if (r == PLX_SLEEP_LOOK)
		r = call(fd, buf, n, true);
	return r == PLX_SLEEP_BROKEN || r == -EAGAIN || r == PLX_PASS ? -EINTR : r;
}

static long counted(enum plx_stat what, long r)
{
	if (r != PLX_PASS)
		plx_stat(what);
	return r;
}

/* Never written once threads run. */
PLX_START_PAGE uint32_t plx_write_watched;

long plx_px_read(int fd, void *buf, size_t n)
{
	PLX_INSIDE();
	long r = efd_read(fd, buf, n, false);

	if (plx_sleep_is_over(r))
		r = again(r, fd, buf, n, false, efd_read);
	return counted(PLX_STAT_READS, r);
}

static long efd_write(int fd, void *buf, size_t n, bool nonblock)
{
	struct pollux_efd *e;
	struct pollux_file *f;
	uint64_t value;
	bool there;
	long r;

	/* As in plx_px_write_quick. */
	there = n == sizeof(value) && plx_likely(!plx_load_user64(&value, buf));
	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	/* It will be written: to read it first would fetch the line twice. */
	plx_prefetch_write(f);
	if (plx_unlikely(!f || f->kind != PLX_KIND_EVENTFD))
		return no_eventfd(f);
	e = plx_file_efd(f);
	if (plx_unlikely(n != sizeof(value)))
		r = plx_user_range(buf, n) ? -EINVAL : -EFAULT;
	else if (plx_unlikely(!there))
		r = -EFAULT;
	else
		r = pollux_efd_write(e, value, 0);
	if (plx_likely(r == 0)) {
		plx_rcu_read_unlock();
		return sizeof(value);
	}
	if (r == -EAGAIN || r == -ESTALE) {
		r = efd_slow(e, fd, r, &value, true,
			     nonblock || (plx_load(&e->status) & O_NONBLOCK));
		return r ? r : (long)sizeof(value);
	}
	plx_rcu_read_unlock();
	return r;
}

long plx_px_write(int fd, const void *user, size_t n)
{
	PLX_INSIDE();
	void *buf = (void *)(uintptr_t)user;
	long r = efd_write(fd, buf, n, false);

	if (plx_sleep_is_over(r))
		r = again(r, fd, buf, n, false, efd_write);
	return counted(PLX_STAT_WRITES, r);
}

ssize_t plx_px_write_tell(struct pollux_file *f, uint32_t depth)
{
	plx_mb_after_rmw();
	plx_file_wake_rcu(f, EPOLLIN, false);
	plx_rcu_read_unlock();
	plx_inside_end(&depth);
	return sizeof(uint64_t);
}

ssize_t plx_px_write_loud(struct pollux_file *f, uint64_t value, uint32_t depth, int fd,
			  const void *buf, plx_write_t other)
{
	int r = pollux_efd_write(plx_file_efd(f), value, 0);

	plx_rcu_read_unlock();
	if (plx_likely(r == 0)) {
		plx_inside_end(&depth);
		return sizeof(value);
	}
	/* Nothing has been written. */
	quick_outside(depth);
	return other(fd, buf, sizeof(value));
}

ssize_t plx_px_write_left(void)
{
	(void)plx_inside_left();
	return sizeof(uint64_t);
}

/* The kernel transfers no more at a time. */
#define RW_MAX 0x7ffff000

/*
 * One piece is a plain read or write. Anything else is too rare to be worth a second
 * implementation of the kernel's rules for pieces: the object goes to the kernel.
 */
static long vector_way(int fd, const struct iovec *iov, int cnt, int flags, struct iovec *one)
{
	struct pollux_file *f;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (!f || f->kind != PLX_KIND_EVENTFD) {
		long r = f && f->kind == PLX_KIND_HIDDEN ? -EBADF : PLX_PASS;
		bool timer = f && f->kind == PLX_KIND_TIMER;

		plx_rcu_read_unlock();
		if (timer)
			plx_px_escape(fd, PLX_OUT_VECTOR);
		return r;
	}
	plx_rcu_read_unlock();
	if (cnt != 1 || (flags & ~RWF_NOWAIT)) {
		plx_px_escape(fd, PLX_OUT_VECTOR);
		return PLX_PASS;
	}
	if (plx_copy_in(one, iov, sizeof(*one)))
		return -EFAULT;
	if ((ssize_t)one->iov_len < 0)
		return -EINVAL;
	if (!plx_user_range(one->iov_base, one->iov_len)) {
		if (one->iov_len <= RW_MAX)
			return -EFAULT;
		/* Newer kernels judge only the range that is transferred. */
		plx_px_escape(fd, PLX_OUT_VECTOR);
		return PLX_PASS;
	}
	return one->iov_len ? 0 : 1;
}

static long readv_once(int fd, const struct iovec *iov, int cnt, int flags)
{
	struct iovec one;
	long r = vector_way(fd, iov, cnt, flags, &one);

	if (r)
		return r > 0 ? 0 : r;
	return efd_read(fd, one.iov_base, one.iov_len, flags & RWF_NOWAIT);
}

static long writev_once(int fd, const struct iovec *iov, int cnt, int flags, bool nonblock)
{
	struct iovec one;
	/* A write has no flag that it could be served with. */
	long r = vector_way(fd, iov, flags ? 0 : cnt, 0, &one);

	if (r)
		return r > 0 ? 0 : r;
	return efd_write(fd, one.iov_base, one.iov_len, nonblock);
}

struct vector {
	const struct iovec *iov;
	int flags;
};

static long readv_again(int fd, void *buf, size_t cnt, bool nonblock)
{
	const struct vector *v = buf;

	return readv_once(fd, v->iov, (int)cnt, nonblock ? v->flags | RWF_NOWAIT : v->flags);
}

static long writev_again(int fd, void *buf, size_t cnt, bool nonblock)
{
	const struct vector *v = buf;

	return writev_once(fd, v->iov, (int)cnt, v->flags, nonblock);
}

long plx_px_readv(int fd, const struct iovec *iov, int cnt, int flags)
{
	PLX_INSIDE();
	struct vector v = {.iov = iov, .flags = flags};
	long r = readv_once(fd, iov, cnt, flags);

	if (plx_sleep_is_over(r))
		r = again(r, fd, &v, cnt, false, readv_again);
	return counted(PLX_STAT_READS, r);
}

long plx_px_writev(int fd, const struct iovec *iov, int cnt, int flags)
{
	PLX_INSIDE();
	struct vector v = {.iov = iov, .flags = flags};
	long r = writev_once(fd, iov, cnt, flags, false);

	if (plx_sleep_is_over(r))
		r = again(r, fd, &v, cnt, false, writev_again);
	return counted(PLX_STAT_WRITES, r);
}
