/* SPDX-License-Identifier: MIT */
/*
 * eventfd descriptors: the calls on them. The protocol is told in eventfd.h.
 *
 * A call that is not served is the program's own: the number is a kernel eventfd, so wrong
 * arguments, objects that block, and vectors need nothing here.
 */
#include "cache/eventfd.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "base/flood.h"
#include "base/inside.h"
#include "base/lock.h"
#include "base/sanitizer.h"
#include "base/sys.h"
#include "cache/epoll.h"
#include "cache/quick.h"
#include "cache/uaccess.h"

/* Whether this is built with ThreadSanitizer. */
#ifdef PLX_TSAN
#define TSAN 1
#else
#define TSAN 0
#endif

/* Never written once threads run. */
PLX_START_PAGE uint32_t plx_write_watched;

/* Of K the kernel's epoll tells. */
static uint32_t eventfd_poll(struct pollux_file *f, uint32_t wanted)
{
	(void)wanted;
	return plx_load_acq(&f->word) & PLX_EVENTFD_U ? EPOLLIN : 0;
}

static void eventfd_free(struct pollux_file *f)
{
	plx_slab_free(plx_file_eventfd(f));
}

static const struct pollux_file_ops eventfd_ops = {
	.size = sizeof(eventfd_ops),
	.poll = eventfd_poll,
	.free = eventfd_free,
};

static struct plx_eventfd *eventfd_new(void)
{
	struct plx_eventfd *e;

	plx_rcu_begin();
	plx_retire_throttle();
	e = plx_slab_alloc();
	if (!e)
		return NULL;
	plx_file_init(&e->file, &eventfd_ops);
	e->file.kind = PLX_KIND_EVENTFD;
	return e;
}

struct pollux_file *plx_eventfd_file(int fd, bool hot)
{
	struct plx_eventfd *e = eventfd_new();

	if (!e)
		return NULL;
	e->number = fd;
	e->file.word = PLX_SLOW | PLX_EVENTFD_MARK;
	if (hot)
		plx_eventfd_heat(e);
	return &e->file;
}

long plx_px_eventfd(unsigned int init, int flags)
{
	PLX_INSIDE();
	uint32_t since = plx_changes();
	struct plx_eventfd *e;
	long fd;

	if ((flags & ~(EFD_CLOEXEC | EFD_NONBLOCK)) || (plx_px_no_adopt & PLX_ADOPT_EVENTFD) ||
	    !plx_px_begin())
		return PLX_PASS;
	/* ThreadSanitizer has to see the making of what its own read and write are for. */
	if (!(flags & EFD_NONBLOCK) && (TSAN || plx_tsan_here()))
		return PLX_PASS;
	e = eventfd_new();
	if (!e)
		return PLX_PASS;
	e->blocks = !(flags & EFD_NONBLOCK);
	if (e->blocks || plx_adopts != PLX_ADOPTS_ALWAYS)
		e->file.word = PLX_SLOW | PLX_EVENTFD_MARK;
	else if (init)
		e->file.word = PLX_EVENTFD_MARK;
	fd = plx_sys2(SYS_eventfd2, init, flags);
	PLX_DELAY(eventfd_no_entry);
	e->number = (int)fd;
	if (fd >= 0 && !plx_fd_of_stream((int)fd) && plx_table_made((int)fd, &e->file, since)) {
		plx_px_count(flags & EFD_NONBLOCK ? PLX_COUNT_EVENTFDS : PLX_COUNT_BLOCKING);
		if ((flags & EFD_NONBLOCK) && plx_adopts == PLX_ADOPTS_ALWAYS)
			plx_px_count(PLX_COUNT_CACHED);
		return fd;
	}
	pollux_file_put(&e->file);
	if (fd >= 0)
		plx_px_given((int)fd);
	return fd;
}

/* Counted in WRITES. */
static long write_through(struct plx_eventfd *e, int fd, uint64_t value)
{
	long r;

	plx_xadd(&plx_moves_begun, 1);
	plx_eventfd_ask(e);
	plx_stat(PLX_STAT_MADE);
	plx_stat(PLX_STAT_THROUGH);
	plx_store(&e->writer_cpu, sched_getcpu() + 1);
	PLX_DELAY(through_counted);
	r = plx_sys3(SYS_write, fd, &value, sizeof(value));
	PLX_DELAY(through_written);
	plx_xadd(&e->file.word, -PLX_EVENTFD_WRITE);
	plx_xadd(&plx_moves_over, 1);
	return r;
}

/*
 * The program's own call, on a COLD object: PLX_SLEEP_ANEW if it is not any more. With a reference,
 * and not within an RCU section: the memory is the program's.
 */
static long write_cold(struct plx_eventfd *e, int fd, const void *buf, size_t n)
{
	long r = PLX_SLEEP_ANEW;

	plx_xadd(&e->begun, 1);
	/* Partner: drained in adopt.c. */
	plx_mb_after_rmw();
	PLX_DELAY(cold_counted);
	if (plx_likely(plx_eventfd_cold(&e->file))) {
		r = plx_sys3(SYS_write, fd, buf, n);
		PLX_DELAY(cold_written);
	}
	plx_xadd(&e->over, 1);
	return r;
}

/* A write that the object's word does not take in one step; with a reference. */
static long put(struct plx_eventfd *e, int fd, uint64_t value)
{
	uint64_t w = plx_load_acq(&e->file.word);
	bool done;
	long r;

	for (int tries = 0;;) {
		if (plx_eventfd_fits(w, value)) {
			plx_rcu_read_lock();
			done = plx_file_change(&e->file, &w, w + value);
			plx_rcu_read_unlock();
			if (done)
				return sizeof(value);
			continue;
		}
		if (!(w & (PLX_SLOW | PLX_EVENTFD_U))) {
			if ((w & PLX_EVENTFD_WRITES) == PLX_EVENTFD_WRITES)
				plx_eventfd_return(e);
			else if (plx_cas(&e->file.word, &w,
					 (w | PLX_EVENTFD_MARK) + PLX_EVENTFD_WRITE))
				return write_through(e, fd, value);
			w = plx_load_acq(&e->file.word);
			continue;
		}
		if (!(w & PLX_SLOW) && value > PLX_EVENTFD_MAX - (w & PLX_EVENTFD_U))
			return -EAGAIN;
		if (!(w & PLX_SLOW))
			plx_eventfd_flush(e, PLX_EVENTFD_MARKED);
		else if (w & PLX_EVENTFD_BUSY)
			plx_await_step(tries++);
		else if (!plx_eventfd_served(&e->file))
			return PLX_PASS;
		else if ((r = write_cold(e, fd, &value, sizeof(value))) != PLX_SLEEP_ANEW)
			return r;
		w = plx_load_acq(&e->file.word);
	}
}

/* A call that is not served; f is what the number means, under RCU. Leaves RCU. */
static __attribute__((noinline)) long no_eventfd(struct pollux_file *f)
{
	int bell = f && f->kind == PLX_KIND_BELL
			   ? plx_container_of(f, struct plx_bell, file)->number
			   : -1;

	if (f && f->kind == PLX_KIND_EVENTFD)
		plx_eventfd_touch(f);
	plx_rcu_read_unlock();
	plx_bell_take(bell);
	return PLX_PASS;
}

static long counted(enum plx_stat what, long r)
{
	if (r != PLX_PASS)
		plx_stat(what);
	return r;
}

/* RCU section open: nobody can have been told of a count that is in K alone. */
static bool edges_are_ours(struct plx_eventfd *e)
{
	uint64_t now = plx_eventfd_heard(e);

	return now && plx_load(&e->asked) == now;
}

#define EPOCH_OF(w) ((w) / PLX_EPOCH_ONE)

/* So often the CPU is given to writers. */
#define WRITES_AWAITED 16

/*
 * BUSY: whether nobody is in a write to the kernel. Who was there last on this CPU has been
 * interrupted, mostly by the thread that he has woken, which is this one: it does not wait for him.
 */
static bool writes_over(struct plx_eventfd *e)
{
	for (int tries = 0; plx_load_acq(&e->file.word) & PLX_EVENTFD_WRITES; tries++) {
		if (tries == WRITES_AWAITED || plx_load(&e->writer_cpu) == sched_getcpu() + 1)
			return false;
		plx_await_step(tries);
	}
	return true;
}

/*
 * CACHED, and K may hold something, so U is 0: this read takes it, while writers wait. If none is
 * in a write, the mark goes. As take_both, or PLX_SLEEP_ANEW.
 */
static long take_marked(struct plx_eventfd *e, int fd, uint64_t w, uint64_t *value)
{
	struct plx_masked masked;
	long r = PLX_SLEEP_ANEW;
	bool over;

	plx_signals_block(&masked);
	if (plx_eventfd_busy_begin(e, &w)) {
		PLX_DELAY(marked_busy);
		over = writes_over(e);
		*value = 0;
		r = plx_eventfd_empty(e, fd, value);
		PLX_DELAY(marked_read);
		plx_eventfd_busy_end(e, PLX_SLOW | (r || !over ? 0 : PLX_EVENTFD_MARK), 0);
		if (!r && !*value)
			r = -EAGAIN;
	}
	plx_signals_unblock(&masked);
	return r;
}

/*
 * A read has taken K. U, which it may hold as well, stands until a flush is over: till then a wait
 * that follows the read would find it.
 */
static void flush_over(const struct plx_eventfd *e)
{
	for (int tries = 0; plx_load_acq(&e->file.word) & PLX_EVENTFD_BUSY; tries++)
		plx_await_step(tries);
}

/*
 * K and U, with a reference; 0 or a negative errno. The reads of two threads may share what the
 * kernel would give to one. Nothing that was there before is missed: where EPOCH has not moved, no
 * flush has ended since `was`, and no write through the kernel.
 */
static long take_both(struct plx_eventfd *e, int fd, uint64_t *value)
{
	for (int tries = 0;;) {
		uint64_t was = plx_load_acq(&e->file.word), w, to, k = 0;
		bool same;
		long r;

		if ((was & (PLX_SLOW | PLX_EVENTFD_BUSY)) == PLX_SLOW)
			return PLX_PASS;
		if (was & PLX_SLOW) {
			plx_await_step(tries++);
			continue;
		}
		if (was & PLX_EVENTFD_MARK) {
			r = take_marked(e, fd, was, value);
			if (r != PLX_SLEEP_ANEW)
				return r;
			continue;
		}
		PLX_DELAY(read_both);
		r = plx_eventfd_empty(e, fd, &k);
		if (r)
			return r;
		PLX_DELAY(read_between);
		w = plx_load_acq(&e->file.word);
		do {
			/* Too much for one read: the kernel would have refused the last write. */
			to = k > PLX_EVENTFD_MAX - (w & PLX_EVENTFD_U) ? w : w & ~PLX_EVENTFD_U;
		} while (!(w & PLX_SLOW) && !plx_cas(&e->file.word, &w, to));
		if (w & PLX_SLOW) {
			/* U stands, and may be in k. */
			if (!k)
				continue;
			flush_over(e);
			*value = k;
			return 0;
		}
		same = EPOCH_OF(w) == EPOCH_OF(was);
		*value = k + (w & ~to & PLX_EVENTFD_U);
		if (plx_unlikely(k && same && !(w & PLX_EVENTFD_MARK)))
			plx_px_evicted(PLX_OUT_STRANGER, plx_eventfd_flush(e, PLX_EVENTFD_LEAVES));
		if (*value || same)
			return *value ? 0 : -EAGAIN;
	}
}

/* RCU section open, which this leaves. */
static long take(struct plx_eventfd *e, int fd, uint64_t *value)
{
	uint64_t w = plx_load_acq(&e->file.word);
	long r;

	while (!(w & PLX_SLOW) && (w & PLX_EVENTFD_U) &&
	       (!plx_load(&e->edge) || edges_are_ours(e))) {
		if (!plx_cas(&e->file.word, &w, w & ~PLX_EVENTFD_U))
			continue;
		plx_flood_sum(w & PLX_EVENTFD_U, &e->file.word);
		plx_rcu_read_unlock();
		*value = (w & PLX_EVENTFD_U) + PLX_INJECTED(wrong_count);
		return 0;
	}
	if (!plx_eventfd_serves(&e->file) || !pollux_file_tryget(&e->file))
		return no_eventfd(&e->file);
	plx_rcu_read_unlock();
	r = take_both(e, fd, value);
	/* It is COLD, or was. */
	if (r == PLX_PASS && plx_eventfd_served(&e->file))
		r = PLX_SLEEP_ANEW;
	pollux_file_put(&e->file);
	return r;
}

/*
 * The program's own call on a COLD object. Where that finds nothing the object may have been
 * adopted before it, with all that there was, and may be COLD again: PLX_SLEEP_ANEW. RCU section
 * open, which this leaves.
 */
static long read_cold(struct plx_eventfd *e, int fd, void *buf, size_t n)
{
	uint64_t was = plx_load_acq(&e->file.word), now;
	struct plx_eventfd *held = NULL;
	bool same;
	long r;

	if (!plx_eventfd_cold_word(was)) {
		plx_rcu_read_unlock();
		return PLX_SLEEP_ANEW;
	}

	/* It is to see this together with the writes. */
	if ((TSAN || plx_unlikely(plx_tsan_here())) && pollux_file_tryget(&e->file))
		held = e;
	plx_rcu_read_unlock();
	PLX_DELAY(cold_read);
	r = plx_sys3(SYS_read, fd, buf, n);
	if (held) {
		plx_tsan_after(held);
		pollux_file_put(&held->file);
	}
	if (plx_unlikely(r < 0 && r != -EAGAIN))
		return r;
	plx_rcu_read_lock();
	same = plx_table_peek(fd) == &e->file;
	now = same ? plx_load_acq(&e->file.word) : 0;
	held = plx_unlikely(now & PLX_EVENTFD_BUSY) && pollux_file_tryget(&e->file) ? e : NULL;
	plx_rcu_read_unlock();
	if (held) {
		flush_over(held);
		pollux_file_put(&held->file);
	}
	if (plx_likely(r != -EAGAIN))
		return r;
	return same && !held && EPOCH_OF(now) == EPOCH_OF(was) ? r : PLX_SLEEP_ANEW;
}

static long read_served(int fd, void *buf, size_t n)
{
	struct plx_eventfd *e;
	struct pollux_file *f;
	uint64_t value;
	long r;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (plx_unlikely(!f || f->kind != PLX_KIND_EVENTFD)) {
		if (f && f->kind == PLX_KIND_TIMER)
			return counted(PLX_STAT_READS, plx_timer_read(f, fd, buf, n));
		return no_eventfd(f);
	}
	e = plx_file_eventfd(f);
	if (plx_eventfd_cold(f))
		return read_cold(e, fd, buf, n);
	/* The kernel refuses such a buffer before it takes anything. */
	if (plx_unlikely(n < sizeof(value) || !plx_user_range(buf, n)))
		return no_eventfd(f);
	r = take(e, fd, &value);
	if (r != PLX_PASS && r != PLX_SLEEP_ANEW)
		plx_stat(PLX_STAT_READS);
	if (plx_unlikely(r))
		return r;
	plx_tsan_after(e);
	/* The value is gone even if it cannot be stored (EFD-06). */
	if (plx_likely(!plx_copy_out(buf, &value, sizeof(value))))
		return sizeof(value);
	plx_copy_out_head(buf, &value, sizeof(value));
	return -EFAULT;
}

long plx_px_read(int fd, void *buf, size_t n)
{
	PLX_INSIDE();
	long r;

	plx_eventfd_random(fd);
	do
		r = read_served(fd, buf, n);
	while (plx_unlikely(r == PLX_SLEEP_ANEW));
	return r;
}

/* RCU section open, which this leaves. */
static long write_served(struct plx_eventfd *e, int fd, uint64_t value)
{
	uint64_t w = plx_load_acq(&e->file.word);
	long r;

	plx_tsan_before(e);
	while (plx_likely(plx_eventfd_fits(w, value))) {
		if (!plx_file_change(&e->file, &w, w + value))
			continue;
		plx_rcu_read_unlock();
		return sizeof(value);
	}
	if (!plx_eventfd_serves(&e->file) || !pollux_file_tryget(&e->file))
		return no_eventfd(&e->file);
	plx_rcu_read_unlock();
	r = put(e, fd, value);
	pollux_file_put(&e->file);
	return r;
}

/* What fd means, if it is a COLD eventfd, with a reference. */
static struct plx_eventfd *cold_at(int fd)
{
	struct pollux_file *f;

	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	if (f && (f->kind != PLX_KIND_EVENTFD || !plx_eventfd_cold(f) || !pollux_file_tryget(f)))
		f = NULL;
	plx_rcu_read_unlock();
	return f ? plx_file_eventfd(f) : NULL;
}

long plx_px_write(int fd, const void *buf, size_t n)
{
	PLX_INSIDE();
	struct plx_eventfd *cold;
	struct pollux_file *f;
	uint64_t value = UINT64_MAX;
	bool there;
	long r;

	plx_eventfd_random(fd);
	cold = cold_at(fd);
	if (cold) {
		plx_tsan_before(cold);
		r = PLX_SLEEP_ANEW;
		if (plx_unlikely(plx_eventfd_hot(cold)) && n == sizeof(value))
			r = plx_eventfd_adopt(cold, fd, buf);
		if (r == PLX_SLEEP_ANEW) {
			r = write_cold(cold, fd, buf, n);
			plx_stat(PLX_STAT_COLD);
		} else {
			plx_stat(PLX_STAT_WRITES);
		}
		pollux_file_put(&cold->file);
		if (r != PLX_SLEEP_ANEW)
			return r;
	}
	/* Who provides the memory may wait for the section (userfaultfd): it begins after that. */
	there = n == sizeof(value) && plx_likely(!plx_load_user64(&value, buf));
	plx_rcu_read_lock();
	f = plx_table_peek(fd);
	/* It will be written: to read it first would fetch the line twice. */
	plx_prefetch_write(f);
	/* The kernel says what is wrong with it. */
	if (plx_unlikely(!f || f->kind != PLX_KIND_EVENTFD || !there || value == UINT64_MAX))
		return no_eventfd(f);
	return counted(PLX_STAT_WRITES, write_served(plx_file_eventfd(f), fd, value));
}

ssize_t plx_px_write_loud(struct pollux_file *f, uint64_t value, uint32_t depth, int fd,
			  const void *buf, plx_write_t other)
{
	uint64_t w = plx_load_acq(&f->word);

	while (plx_likely(plx_eventfd_fits(w, value))) {
		if (!plx_file_change(f, &w, w + value))
			continue;
		plx_rcu_read_unlock();
		plx_inside_end(&depth);
		return sizeof(value);
	}
	plx_rcu_read_unlock();
	/* Nothing has been written. */
	quick_outside(depth);
	return other(fd, buf, sizeof(value));
}

ssize_t plx_px_write_left(void)
{
	(void)plx_inside_left();
	return sizeof(uint64_t);
}

void plx_eventfd_put(struct plx_eventfd *e)
{
	plx_xadd(&e->told, (uint32_t)-1);
	pollux_file_put(&e->file);
}

struct plx_eventfd *plx_eventfd_get(int fd)
{
	struct pollux_file *f = plx_table_get(fd);
	struct plx_eventfd *e;

	if (!f)
		return NULL;
	if (f->kind != PLX_KIND_EVENTFD) {
		pollux_file_put(f);
		return NULL;
	}
	e = plx_file_eventfd(f);
	plx_xadd(&e->told, 1);
	/* Partner: eventfd_leaves. */
	plx_mb_after_rmw();
	if (plx_eventfd_serves(f))
		return e;
	plx_eventfd_put(e);
	return NULL;
}

int plx_eventfd_hold(int fd)
{
	long k = plx_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, plx_fd_high());

	/* Without so high a number it is one that the program may see for a moment. */
	if (k == -EINVAL)
		k = plx_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);
	if (k >= 0 && !plx_fd_is_eventfd((int)k)) {
		plx_sys1(SYS_close, k);
		k = -EINVAL;
	}
	return (int)k;
}

/*
 * 2^64-1 cannot be written (EFD-02): it takes a completion of the kernel's AIO. Without one,
 * the count stays one below.
 */
static void tell_full(int fd)
{
	struct iocb cb = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_flags = IOCB_FLAG_RESFD};
	struct iocb *list = &cb;
	aio_context_t ctx = 0;
	int empty = plx_sys2(SYS_memfd_create, "pollux", MFD_CLOEXEC);

	cb.aio_fildes = empty;
	cb.aio_resfd = fd;
	if (empty >= 0 && plx_sys2(SYS_io_setup, 1, &ctx) == 0) {
		plx_sys3(SYS_io_submit, ctx, 1, &list);
		plx_sys1(SYS_io_destroy, ctx);
	}
	if (empty >= 0)
		plx_sys1(SYS_close, empty);
}

void plx_eventfd_tell_kernel(int fd)
{
	const uint64_t one = 1;
	struct pollfd p = {.fd = fd, .events = POLLOUT};

	plx_sys_poll(&p, 1);
	/* Another may have taken the room. */
	if (!(p.revents & POLLOUT) || plx_sys3(SYS_write, fd, &one, sizeof(one)) == -EAGAIN)
		tell_full(fd);
}

static bool tell_here(struct plx_eventfd *e)
{
	uint64_t w = plx_load_acq(&e->file.word);
	bool done = false;

	while (!done && plx_eventfd_fits(w, 1)) {
		plx_rcu_read_lock();
		done = plx_file_change(&e->file, &w, w + 1);
		plx_rcu_read_unlock();
	}
	return done;
}

void plx_eventfd_tell(struct plx_eventfd *e, int fd)
{
	if (plx_likely(tell_here(e)))
		return;
	plx_xadd(&e->pins, 1);
	/* Partner: close_number, which empties the slot before it looks at the pins. */
	plx_mb_after_rmw();
	/* Closed meanwhile it has no other number: nobody can see the count. */
	if (plx_table_peek(fd) == &e->file && put(e, fd, 1) != sizeof(uint64_t))
		plx_eventfd_tell_kernel(fd);
	plx_xadd(&e->pins, (uint32_t)-1);
}
