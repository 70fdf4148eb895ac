/* SPDX-License-Identifier: MIT */
/*
 * The twin: the kernel's own context behind one of ours.
 *
 * The program's iocbs are submitted to it as they are, so the events that come out of it
 * are the program's to the last bit, whatever the request was.
 *
 * Its ring is read in user space under kioctx.lock, and nobody takes anything from it by a call:
 * who sleeps on it sleeps in a call that cannot store events (wait.c). So nothing is ever
 * in the hands of a third party while somebody looks for it, and what has come to the twin
 * can be put into our ring before what comes later (AIO-CQ-01).
 *
 * The bell: an event of ours in the twin that wakes those who sleep on it because something has
 * come to our own ring. It is a read of no bytes, which completes within io_submit. It is no
 * poll, if that can be avoided: a poll takes the lock that the completion of other polls tries,
 * and one that finds it taken looks at its file again later, when what it was to tell of may
 * be gone. One at a time; whoever removes it clears the flag (wait.c has the rule when it is
 * rung). There is always room for it: the twin gets no more requests than it was made for, and the
 * kernel takes more. Its ring has n >= 2 * max(nr_events, 4 * CPUs) + 1 slots, taken from the whole
 * in batches of b = n / (4 * CPUs): each of the other CPUs keeps fewer than 2 * b of them, and
 * fewer than b may be left over, so that more than n / 2 + b can be had on any CPU. One more in the
 * number would be charged, too: contexts that come to aio-max-nr together would get too few.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

#include "aio/ring.h"
#include "base/bug.h"
#include "base/delay.h"
#include "base/rcu.h"
#include "base/sleep.h"
#include "base/sys.h"
#include "posix/posix.h"
#include "posix/uaccess.h"

/* The same for a poll, whose mask it has as its buffer. */
struct iocb plx_aio_bell = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_buf = POLLOUT};

int plx_aio_twin_make(struct plx_kioctx *k)
{
	aio_context_t twin = 0;
	uint32_t want = k->nr_events;
	long err = 0;

	if (plx_likely(plx_load_acq(&k->twin)))
		return 0;
	/* For the bell; its lock comes before ours. */
	if (plx_eventfd_prototype() < 0)
		return -EMFILE;
	plx_lock(&k->twin_lock, PLX_RANK_AIO_TWIN);
	/* Its partner: destroy, which sets DEAD before it takes the lock to see the twin. */
	if (plx_load(&k->state) & PLX_AIO_DEAD)
		err = -EINVAL;
	while (!err && !k->twin) {
		err = plx_sys2(SYS_io_setup, want, &twin);
		if (err == -EAGAIN && want > 1) {
			/* The machine's limit is close: fewer requests at a time. */
			want /= 2;
			err = 0;
			continue;
		}
		if (err)
			break;
		plx_aio_address_get();
		k->twin_nr = ((struct plx_aio_ring *)twin)->nr;
		k->twin_limit = want;
		plx_store_rel(&k->twin, twin);
		plx_px_count(PLX_COUNT_AIO_TWINS);
	}
	plx_unlock(&k->twin_lock, PLX_RANK_AIO_TWIN);
	return err;
}

/* The magic says whether the ring is true without a call; see the head of aio.h. */
static void set_magic(struct plx_kioctx *k)
{
	plx_store_rel(&k->ring->magic, k->twin_pending ? PLX_AIO_MAGIC_CALL : PLX_AIO_MAGIC);
}

static void pending_add(struct plx_kioctx *k, uint32_t n)
{
	k->twin_pending += n;
	if (k->twin_pending == n)
		set_magic(k);
}

static void pending_sub(struct plx_kioctx *k, uint32_t n)
{
	k->twin_pending -= n;
	if (!k->twin_pending)
		set_magic(k);
}

static void twin_done(struct plx_kioctx *k, uint32_t n)
{
	if (!n)
		return;
	plx_xadd(&k->state, -(uint64_t)n);
	pending_sub(k, n);
}

static uint32_t twin_next(const struct plx_kioctx *k, uint32_t i)
{
	return i + 1 == k->twin_nr ? 0 : i + 1;
}

void plx_aio_twin_drain(struct plx_kioctx *k)
{
	struct plx_aio_ring *t = (struct plx_aio_ring *)plx_load_acq(&k->twin);
	uint32_t head, tail, done = 0;

	if (!t)
		return;
	head = t->head;
	/* The kernel's release: an event is complete before its tail. */
	tail = plx_load_acq(&t->tail);
	if (head == tail)
		return;
	while (head != tail) {
		const struct io_event *ev = &t->events[head];

		if (ev->obj == PLX_AIO_BELL) {
			k->bell = 0;
		} else {
			if (plx_ring_used(k) >= k->nr - 1)
				break;
			plx_ring_post(k, ev);
			done++;
		}
		head = twin_next(k, head);
	}
	plx_store_rel(&t->head, head);
	twin_done(k, done);
}

long plx_aio_twin_take(struct plx_kioctx *k, struct io_event *user, long n)
{
	struct plx_aio_ring *t = (struct plx_aio_ring *)plx_load_acq(&k->twin);
	uint32_t head, tail;
	bool bell = false;
	long got = 0;

	if (!t)
		return 0;
	head = plx_load(&t->head);
	tail = plx_load_acq(&t->tail);
	if (head == tail)
		return 0;
	while (head != tail && got < n) {
		const struct io_event *ev = &t->events[head];

		if (ev->obj == PLX_AIO_BELL)
			bell = true;
		else if (plx_copy_out(user + got, ev, sizeof(*ev)))
			return -EFAULT;
		else
			got++;
		head = twin_next(k, head);
	}
	if (bell)
		k->bell = 0;
	plx_store_rel(&t->head, head);
	twin_done(k, got);
	return got;
}

/*
 * kioctx.lock held. Speaks for up to n slots besides the call's own, of which one request may make
 * use. The order is that of every submit: first spoken for, then looked whether there is room, so
 * that of two who meet at least one sees the other. Returns how many it got.
 */
static long claim(struct plx_kioctx *k, long n)
{
	uint64_t state = plx_xadd(&k->state, (uint64_t)n) + (uint64_t)n;
	long over = (long)PLX_AIO_SLOTS(state) + plx_ring_used(k) - k->nr;

	if (over <= 0)
		return n;
	if (over > n)
		over = n;
	plx_xadd(&k->state, -(uint64_t)over);
	return n - over;
}

/* What the caller speaks for: n requests, its call and the slot of that. */
struct spoken {
	struct plx_kioctx *k;
	uint32_t n;
};

static void take_back(void *p)
{
	const struct spoken *s = p;

	plx_lock(&s->k->lock, PLX_RANK_AIO);
	twin_done(s->k, s->n);
	plx_unlock(&s->k->lock, PLX_RANK_AIO);
	plx_aio_put(s->k, 1);
}

/*
 * It may sleep, in the read of a pipe for instance, until a handler of the program has done
 * something. One that comes before it, if nothing has been done yet, is one before the program's
 * call, and must not be kept until that is over. One that comes within the sleep ends the request
 * (AIO-SUBMIT-12), and the call is about to end.
 */
static long submit_anew(struct plx_kioctx *k, long n, struct iocb **user)
{
	struct plx_sleep sleep = {.args = {(long)k->twin, n, (long)user}};
	struct spoken spoken = {.k = k, .n = (uint32_t)n};
	long r;

	PLX_HOLD_PUSH(take_back, &spoken);
	r = plx_sleep_uncut(&sleep, SYS_io_submit);
	PLX_HOLD_POP(false);
	return r;
}

long plx_aio_twin_submit(struct plx_kioctx *k, long n, struct iocb **user, bool first)
{
	long room, r;
	bool ring;

	plx_lock(&k->lock, PLX_RANK_AIO);
	room = (long)k->twin_limit - k->twin_pending;
	if (room < n) {
		plx_aio_twin_drain(k);
		room = (long)k->twin_limit - k->twin_pending;
	}
	ring = plx_aio_due(k);
	if (n > room)
		n = room;
	if (n > 0)
		n = claim(k, n);
	/* Before the kernel has them: a reader of the ring must know. */
	if (n > 0)
		pending_add(k, n);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	if (ring)
		plx_aio_ring_bell(k);
	if (n <= 0)
		return -EAGAIN;
	PLX_DELAY(aio_kernel_submit);
	if (first && plx_load(&plx_sleeps_seen))
		r = submit_anew(k, n, user);
	else
		r = plx_sys3(SYS_io_submit, k->twin, n, user);
	if (plx_sleep_is_over(r))
		return r;
	plx_lock(&k->lock, PLX_RANK_AIO);
	if (r < n)
		twin_done(k, r < 0 ? n : n - r);
	/*
	 * What was completed at once is in the ring when io_submit returns (AIO-SUBMIT-11); who
	 * waits has been told of it by the kernel, and finds it with the twin as well.
	 */
	if (!k->waiters)
		plx_aio_twin_drain(k);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	return r;
}

static long ring(unsigned long twin, int fd)
{
	struct iocb *bell = &plx_aio_bell;

	plx_store(&bell->aio_fildes, fd);
	return plx_sys3(SYS_io_submit, twin, 1, &bell);
}

/*
 * The program has closed the prototype behind our back: an eventfd for this once. Or this kernel
 * is older than 5.8, whose eventfds AIO can only poll.
 */
static long ring_by_another(unsigned long twin)
{
	long r;
	int fd;

	/* No dup2 puts the program's file at this number meanwhile. */
	plx_hidden_lock();
	fd = plx_kernel_eventfd(EFD_CLOEXEC | EFD_NONBLOCK);
	r = ring(twin, fd);
	if (r == -EINVAL) {
		plx_store(&plx_aio_bell.aio_lio_opcode, IOCB_CMD_POLL);
		r = ring(twin, fd);
	}
	plx_sys1(SYS_close, fd);
	plx_hidden_unlock();
	return r;
}

void plx_aio_ring_bell(struct plx_kioctx *k)
{
	long r;

	/* If it has to be made, that is not done within the section. */
	(void)plx_eventfd_prototype();
	/* The number may move away (plx_fd_evict), but not within an RCU section. */
	plx_rcu_read_lock();
	r = ring(k->twin, plx_eventfd_prototype());
	plx_rcu_read_unlock();
	if (plx_unlikely(r == -EBADF || r == -EINVAL))
		r = ring_by_another(k->twin);
	PLX_INVARIANT(r == 1, "a bell finds room");
}
