/* SPDX-License-Identifier: MIT */
/*
 * The engine of --aio=async: a read or write of a file never keeps its submitter, not even
 * for the page cache, a full journal or a frozen file system.
 *
 * Requests go through a queue to one thread of this process, the only one that we ever
 * make, and only in this mode. It owns an io_uring, and it alone enters it, because what
 * an io_uring does is tied to the thread that submits: a thread that ends takes what it
 * has submitted along, and completions interrupt the sleeping calls of their submitter.
 * The kernel's workers do the work (IOSQE_ASYNC), all of it: so neither the service thread
 * nor the ring's lock is ever held up by somebody's disk, or by the page fault of somebody's
 * buffer. When a request completes, the service thread posts the event.
 *
 * Its file is held from the submission on (AIO-CQ-09) by the ring's table of files, where
 * the submitter registers it in the slot of the request. A duplicate of the descriptor
 * would not do: its close would release the program's POSIX locks on the file.
 *
 * The context is held by being entered: a request counts as a call inside it, which ends
 * when its event has been posted. So io_destroy waits for it, as it must (AIO-DESTROY-03).
 *
 * What the kernel would say at once must be said at once. So each file is looked at for
 * each request, and whatever is in the least unusual goes the exact way of the other
 * engines: bad addresses and vectors, files that are not open for it, what RLIMIT_FSIZE
 * forbids (SIGXFSZ is for the submitter), and writes that append (the workers keep no order).
 *
 * In the child of a fork nothing of this exists: what leads here is wiped, the rest is not
 * in its memory, and its copies of the two descriptors are closed.
 *
 *   root.engine, refused   written under root.lock
 *   free, fresh, queue     async.lock; so is accepts
 *   kick_due               atomic: the queue was empty and the bell has not been rung
 *   inflight               atomic: slots taken whose request has not been answered
 *   life                   atomic: STARTING, SERVING or ENDED
 *   a request              its submitter, then, from the queue on, the service thread
 */
#include <errno.h>

#include "aio/aio.h"

enum plx_aio_mode plx_aio_mode = PLX_AIO_AUTO;

#if PLX_LIBURING
#include <fcntl.h>
#include <liburing.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/delay.h"
#include "base/mem.h"
#include "base/rcu.h"
#include "base/sys.h"
#include "posix/front.h"
#include "posix/uaccess.h"

/* Requests on their way at a time; what is more goes the other way. */
#define SLOTS 4096
#define SLOTS_MIN 64
#define SUBMISSIONS 256
/* More that are blocked at a time hold up the others. */
#define WORKERS 64
#define STACK (256 * 1024)
/* How often a request is tried again that came back for no reason of its own. */
#define TRIES 64

/* The kernel's bounds. */
#define MAX_TRANSFER 0x7ffff000ull
#define MAX_VECTOR 1024

/* The file in front of those of the requests. */
#define BELL_SLOT 0

struct request {
	struct request *next;
	struct plx_kioctx *k;
	struct io_event ev;
	struct pollux_eventfd *resfd;
	/* A copy, or NULL. */
	struct iovec *iov;
	uint64_t buf;
	uint64_t offset;
	uint32_t len;
	uint8_t opcode;
	uint8_t tries;
};

enum life {
	STARTING,
	SERVING,
	ENDED,
};

struct plx_async {
	struct io_uring ring;
	plx_lock_t lock;
	bool accepts;
	uint32_t nslots;
	/* Slots from here on were never used. */
	uint32_t fresh;
	struct request *free;
	struct request *queue;
	struct request **queue_end;
	uint32_t kick_due;
	uint32_t inflight;
	uint32_t drainers;
	uint32_t life;
	uint32_t stop;
	/* The service thread's. */
	bool bell_armed;
	uint64_t bell_value;
	struct request slot[SLOTS];
};

/* On a page that is wiped in the child of a fork. */
struct root {
	plx_lock_t lock;
	/* The service thread could not be had, or has had to go. */
	uint32_t refused;
	struct plx_async *engine;
};

static struct root *root;

/* Hidden. In the child of a fork they may still name the parent's. */
static int ring_fd = -1;
static int bell_fd = -1;

static void futex_wait(uint32_t *word, uint32_t value)
{
	plx_sys4(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, NULL);
}

static void futex_wake(uint32_t *word)
{
	plx_sys3(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1 << 30);
}

static void life_set(struct plx_async *a, enum life life)
{
	plx_store_rel(&a->life, life);
	futex_wake(&a->life);
}

/* What the life of the service thread is, once it is not was. */
static enum life life_after(struct plx_async *a, enum life was)
{
	uint32_t life;

	while ((life = plx_load_acq(&a->life)) == was)
		futex_wait(&a->life, was);
	return life;
}

/* --- slots and the queue ------------------------------------------------------------------ */

static struct request *slot_take(struct plx_async *a)
{
	struct request *r = NULL;

	plx_lock(&a->lock, PLX_RANK_AIO_ASYNC);
	if (a->accepts && a->free) {
		r = a->free;
		a->free = r->next;
	} else if (a->accepts && a->fresh < a->nslots) {
		r = &a->slot[a->fresh++];
	}
	if (r)
		plx_xadd(&a->inflight, 1);
	plx_unlock(&a->lock, PLX_RANK_AIO_ASYNC);
	return r;
}

static void slot_put(struct plx_async *a, struct request *r)
{
	plx_lock(&a->lock, PLX_RANK_AIO_ASYNC);
	r->next = a->free;
	a->free = r;
	plx_unlock(&a->lock, PLX_RANK_AIO_ASYNC);
}

/* A request has been answered, or was never accepted. */
static void answered(struct plx_async *a)
{
	if (plx_xadd(&a->inflight, -1) == 1 && plx_load(&a->drainers))
		futex_wake(&a->inflight);
}

static void queue_push(struct plx_async *a, struct request *r)
{
	r->next = NULL;
	plx_lock(&a->lock, PLX_RANK_AIO_ASYNC);
	if (!a->queue)
		plx_store(&a->kick_due, 1);
	*a->queue_end = r;
	a->queue_end = &r->next;
	plx_unlock(&a->lock, PLX_RANK_AIO_ASYNC);
}

static struct request *queue_take(struct plx_async *a)
{
	struct request *r;

	plx_lock(&a->lock, PLX_RANK_AIO_ASYNC);
	r = a->queue;
	a->queue = NULL;
	a->queue_end = &a->queue;
	plx_unlock(&a->lock, PLX_RANK_AIO_ASYNC);
	return r;
}

static void ring_bell(struct plx_async *a)
{
	const uint64_t one = 1;

	(void)a;
	/* The numbers may move away (plx_fd_evict), but not within an RCU section. */
	plx_rcu_read_lock();
	plx_sys3(SYS_write, plx_load(&bell_fd), &one, sizeof(one));
	plx_rcu_read_unlock();
}

/* Puts a file, or none (-1), into the ring's table, for the slot of r. */
static bool file_set(struct plx_async *a, const struct request *r, int fd)
{
	struct io_uring_files_update up = {
		.offset = (uint32_t)(r - a->slot) + BELL_SLOT + 1,
		.fds = (uint64_t)(uintptr_t)&fd,
	};
	long n;

	plx_rcu_read_lock();
	n = plx_sys4(SYS_io_uring_register, plx_load(&ring_fd), IORING_REGISTER_FILES_UPDATE, &up,
		     1);
	plx_rcu_read_unlock();
	return n == 1;
}

/* --- the service thread ------------------------------------------------------------------- */

static void finish(struct plx_async *a, struct request *r, long res)
{
	struct pollux_eventfd *e = r->resfd;
	struct plx_kioctx *k = r->k;
	struct io_event ev = r->ev;

	ev.res = res;
	/* First: once the event is there, its file is not held any more. */
	file_set(a, r, -1);
	plx_free(r->iov);
	slot_put(a, r);
	PLX_DELAY(aio_async_done);
	plx_aio_complete(k, &ev);
	if (e) {
		plx_eventfd_tell(e);
		plx_eventfd_unpin(e);
		pollux_file_put(&e->file);
	}
	plx_aio_put(k, 1);
	answered(a);
}

/*
 * What is left of the list that found no room in the ring. The kernel's AIO completes a read
 * or write of a file with neither of the two errors that are tried again.
 */
static struct request *fill_ring(struct plx_async *a, struct request *r)
{
	while (r) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&a->ring);

		if (!sqe)
			break;
		PLX_DELAY(aio_async_send);
		io_uring_prep_rw(r->opcode, sqe, (int)(r - a->slot) + BELL_SLOT + 1,
				 (void *)(uintptr_t)r->buf, r->len, r->offset);
		sqe->flags = IOSQE_FIXED_FILE | IOSQE_ASYNC;
		io_uring_sqe_set_data(sqe, r);
		r = r->next;
	}
	return r;
}

static void arm_bell(struct plx_async *a)
{
	struct io_uring_sqe *sqe = a->bell_armed ? NULL : io_uring_get_sqe(&a->ring);

	if (!sqe)
		return;
	io_uring_prep_read(sqe, BELL_SLOT, &a->bell_value, sizeof(a->bell_value), (uint64_t)-1);
	sqe->flags = IOSQE_FIXED_FILE;
	io_uring_sqe_set_data(sqe, NULL);
	a->bell_armed = true;
}

static void collect(struct plx_async *a)
{
	struct io_uring_cqe *cqe;

	while (io_uring_peek_cqe(&a->ring, &cqe) == 0) {
		struct request *r = io_uring_cqe_get_data(cqe);
		long res = cqe->res;

		io_uring_cqe_seen(&a->ring, cqe);
		if (!r)
			a->bell_armed = false;
		else if ((res == -EAGAIN || res == -EINTR) && r->tries++ < TRIES)
			queue_push(a, r);
		else
			finish(a, r, res);
	}
}

static void serve(struct plx_async *a)
{
	struct request *list = NULL;
	int r;

	while (!plx_load_acq(&a->stop)) {
		arm_bell(a);
		if (!list)
			list = queue_take(a);
		list = fill_ring(a, list);
		/* It sleeps when everything has been sent and the bell would wake it. */
		r = list || !a->bell_armed ? io_uring_submit(&a->ring)
					   : io_uring_submit_and_wait(&a->ring, 1);
		collect(a);
		plx_retire_flush_if_full();
		/* No memory for requests at the moment. */
		if (r < 0 && r != -EINTR)
			plx_sys0(SYS_sched_yield);
	}
}

/* Files that the table can have: the kernel takes no more than may be open. */
static int register_files(struct plx_async *a, int bell)
{
	int files[BELL_SLOT + 1 + SLOTS];
	struct rlimit was;
	int err;

	plx_limit_raise(&was);
	a->nslots = was.rlim_max > SLOTS + BELL_SLOT + 1
			    ? SLOTS
			    : (was.rlim_max > BELL_SLOT + 1 ? was.rlim_max - BELL_SLOT - 1 : 0);
	for (uint32_t i = 0; i < BELL_SLOT + 1 + a->nslots; i++)
		files[i] = i == BELL_SLOT ? bell : -1;
	err = a->nslots < SLOTS_MIN
		      ? -EMFILE
		      : io_uring_register_files(&a->ring, files, BELL_SLOT + 1 + a->nslots);
	plx_limit_restore(&was);
	return err;
}

/* The bell's read shows that the ring may not only be had but used. */
static int first_submission(struct plx_async *a)
{
	int n;

	arm_bell(a);
	n = io_uring_submit(&a->ring);
	return n == 1 ? 0 : n < 0 ? n : -EIO;
}

/* The caller closes what there is when it fails. */
static int ring_equip(struct plx_async *a, int bell)
{
	unsigned int workers[2] = {WORKERS, WORKERS};
	int err;

	err = io_uring_ring_dontfork(&a->ring);
	if (err < 0)
		return err;
	/* From then on the thread itself needs no number of it. */
	err = io_uring_register_ring_fd(&a->ring);
	if (err != 1)
		return err < 0 ? err : -EIO;
	err = register_files(a, bell);
	if (err < 0)
		return err;
	err = io_uring_register_iowq_max_workers(&a->ring, workers);
	if (err < 0)
		return err;
	return first_submission(a);
}

static int ring_open(struct plx_async *a)
{
	struct io_uring_params p = {
		.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
		.cq_entries = 2 * SLOTS,
	};
	int bell = plx_kernel_eventfd(EFD_CLOEXEC);
	int err = bell;

	/* In the child of a fork that nobody has seen. */
	plx_fd_unhide(&ring_fd);
	plx_fd_unhide(&bell_fd);
	if (err < 0)
		return err;
	err = io_uring_queue_init_params(SUBMISSIONS, &a->ring, &p);
	if (err < 0) {
		plx_sys1(SYS_close, bell);
		return err;
	}
	err = ring_equip(a, bell);
	if (err < 0) {
		plx_sys1(SYS_close, bell);
		io_uring_queue_exit(&a->ring);
		return err;
	}
	err = plx_fd_hide_private(bell, &bell_fd);
	if (err >= 0)
		err = plx_fd_hide_private(a->ring.ring_fd, &ring_fd);
	if (err < 0)
		plx_fd_unhide(&bell_fd);
	return err;
}

/* io_uring_queue_exit closes a number of its own. */
static void ring_close(struct plx_async *a)
{
	a->ring.ring_fd = plx_sys3(SYS_fcntl, plx_load(&ring_fd), F_DUPFD_CLOEXEC, 0);
	plx_fd_unhide(&ring_fd);
	io_uring_queue_exit(&a->ring);
	plx_fd_unhide(&bell_fd);
}

static void *service_main(void *arg)
{
	struct plx_async *a = arg;

	pthread_setname_np(pthread_self(), "pollux-aio");
	if (ring_open(a) >= 0) {
		life_set(a, SERVING);
		serve(a);
		ring_close(a);
	}
	life_set(a, ENDED);
	return NULL;
}

static int thread_new(struct plx_async *a)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t mask, old;
	int err;

	/* It touches no memory of the program. */
	sigfillset(&mask);
	pthread_sigmask(SIG_SETMASK, &mask, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK);
	err = pthread_create(&thread, &attr, service_main, a);
	if (err == EINVAL) {
		/* The thread-local variables of this program alone are larger. */
		pthread_attr_destroy(&attr);
		pthread_attr_init(&attr);
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
		err = pthread_create(&thread, &attr, service_main, a);
	}
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

static struct plx_async *engine_new(void)
{
	struct plx_async *a;
	long p;

	p = plx_sys6(SYS_mmap, 0, sizeof(*a), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	if (p < 0 && p > -4096)
		return NULL;
	a = (struct plx_async *)p;
	a->queue_end = &a->queue;
	a->accepts = true;
	if (plx_sys3(SYS_madvise, a, sizeof(*a), MADV_DONTFORK) < 0 || thread_new(a) ||
	    life_after(a, STARTING) != SERVING) {
		plx_sys2(SYS_munmap, a, sizeof(*a));
		return NULL;
	}
	return a;
}

static struct plx_async *engine_now(void)
{
	struct root *r = plx_load_acq(&root);

	return r ? plx_load_acq(&r->engine) : NULL;
}

/* The engine, made on first need; NULL if it cannot be had. */
static struct plx_async *engine_get(void)
{
	struct root *r = plx_aio_wiped_page((void **)&root);
	struct plx_async *a;

	if (plx_unlikely(!r || plx_load(&r->refused)))
		return NULL;
	a = plx_load_acq(&r->engine);
	if (plx_likely(a != NULL))
		return a;
	plx_lock(&r->lock, PLX_RANK_AIO_START);
	a = r->engine;
	if (!a && !r->refused) {
		a = engine_new();
		if (a)
			plx_store_rel(&r->engine, a);
		else
			plx_store(&r->refused, 1);
	}
	plx_unlock(&r->lock, PLX_RANK_AIO_START);
	return a;
}

/* --- submission ---------------------------------------------------------------------------- */

/* What a request asks for, as far as the ring has to know. */
struct want {
	bool write;
	uint8_t opcode;
	uint32_t len;
	struct iovec *iov;
	/* Bytes of it all. */
	uint64_t bytes;
};

/* A copy of the vector. The caller frees it, also when it is refused. */
static bool vector_in(struct want *w, const struct iocb *cb)
{
	const uint64_t n = cb->aio_nbytes;

	if (!n || n > MAX_VECTOR)
		return false;
	w->iov = plx_zalloc(n * sizeof(*w->iov));
	if (!w->iov ||
	    plx_copy_in(w->iov, (const void *)(uintptr_t)cb->aio_buf, n * sizeof(*w->iov)))
		return false;
	w->len = (uint32_t)n;
	for (uint64_t i = 0; i < n; i++) {
		if (!plx_user_range(w->iov[i].iov_base, w->iov[i].iov_len))
			return false;
		w->bytes += w->iov[i].iov_len;
	}
	return true;
}

static bool want_in(struct want *w, const struct iocb *cb)
{
	switch (cb->aio_lio_opcode) {
	case IOCB_CMD_PREAD:
		w->opcode = IORING_OP_READ;
		break;
	case IOCB_CMD_PWRITE:
		w->opcode = IORING_OP_WRITE;
		w->write = true;
		break;
	case IOCB_CMD_PREADV:
		w->opcode = IORING_OP_READV;
		return vector_in(w, cb);
	default:
		w->opcode = IORING_OP_WRITEV;
		w->write = true;
		return vector_in(w, cb);
	}
	w->bytes = cb->aio_nbytes;
	w->len = (uint32_t)(w->bytes < MAX_TRANSFER ? w->bytes : MAX_TRANSFER);
	return plx_user_range((const void *)(uintptr_t)cb->aio_buf, w->bytes);
}

/* The place is one that the kernel accepts, for a file that is not closer bound. */
static bool place_fits(const struct want *w, const struct iocb *cb)
{
	uint64_t bytes = w->bytes < MAX_TRANSFER ? w->bytes : MAX_TRANSFER;
	struct rlimit lim;

	if (!bytes || cb->aio_offset < 0 || bytes > (uint64_t)(INT64_MAX - cb->aio_offset))
		return false;
	if (!w->write)
		return true;
	if (plx_sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &lim) < 0)
		return false;
	return lim.rlim_cur == RLIM_INFINITY || (uint64_t)cb->aio_offset + bytes <= lim.rlim_cur;
}

/* For io_uring O_NONBLOCK may mean something; the kernel's AIO ignores it. */
static bool file_fits(const struct want *w, int fd)
{
	long flags;

	if (plx_fd_ours(fd))
		return false;
	flags = plx_sys3(SYS_fcntl, fd, F_GETFL, 0);
	if (flags < 0 || (flags & (O_PATH | O_NONBLOCK)) || (w->write && (flags & O_APPEND)) ||
	    (flags & O_ACCMODE) == (w->write ? O_RDONLY : O_WRONLY) ||
	    (flags & O_ACCMODE) == O_ACCMODE)
		return false;
	return plx_aio_known_file(fd);
}

/* An in-process eventfd that will be within reach, with a reference and pinned. */
static struct pollux_eventfd *resfd_pin(const struct iocb *cb)
{
	struct pollux_eventfd *e = plx_aio_resfd_get(cb);

	if (e && !plx_eventfd_pin(e)) {
		pollux_file_put(&e->file);
		e = NULL;
	}
	return e;
}

static void resfd_drop(struct pollux_eventfd *e)
{
	if (!e)
		return;
	plx_eventfd_unpin(e);
	pollux_file_put(&e->file);
}

/* Everything has been found good: the request takes its slot and goes. */
static bool hand_over(struct plx_kioctx *k, const struct iocb *cb, struct iocb *user,
		      const struct want *w, struct pollux_eventfd *e)
{
	struct plx_async *a = engine_get();
	struct request *r = a ? slot_take(a) : NULL;

	if (!r)
		return false;
	if (plx_store_user32(plx_aio_key(user), 0) || !file_set(a, r, (int)cb->aio_fildes)) {
		plx_store_user32(plx_aio_key(user), cb->aio_key);
		slot_put(a, r);
		answered(a);
		return false;
	}
	r->k = k;
	r->ev = (struct io_event){.data = cb->aio_data, .obj = (uint64_t)(uintptr_t)user};
	r->resfd = e;
	r->iov = w->iov;
	r->buf = w->iov ? (uint64_t)(uintptr_t)w->iov : cb->aio_buf;
	r->len = w->len;
	r->offset = (uint64_t)cb->aio_offset;
	r->opcode = w->opcode;
	r->tries = 0;
	plx_xadd(&k->state, PLX_AIO_CALL + 1);
	PLX_DELAY(aio_async_push);
	queue_push(a, r);
	return true;
}

bool plx_aio_async_submit(struct plx_kioctx *k, const struct iocb *cb, struct iocb *user)
{
	const bool tells = cb->aio_flags & IOCB_FLAG_RESFD;
	struct pollux_eventfd *e = NULL;
	struct want w = {0};
	bool done;

	done = want_in(&w, cb) && place_fits(&w, cb) && file_fits(&w, (int)cb->aio_fildes) &&
	       (!tells || (e = resfd_pin(cb)) != NULL) && hand_over(k, cb, user, &w, e);
	if (!done) {
		resfd_drop(e);
		plx_free(w.iov);
	}
	return done;
}

void plx_aio_async_kick(void)
{
	struct plx_async *a = engine_now();

	if (a && plx_load(&a->kick_due) && plx_xchg(&a->kick_due, 0))
		ring_bell(a);
}

/* --- the end -------------------------------------------------------------------------------- */

static void drain(struct plx_async *a)
{
	uint32_t n;

	plx_xadd(&a->drainers, 1);
	while ((n = plx_load_acq(&a->inflight)) != 0)
		futex_wait(&a->inflight, n);
	plx_xadd(&a->drainers, -1);
}

void plx_aio_async_drain(void)
{
	struct plx_async *a = engine_now();

	if (a)
		drain(a);
}

void plx_aio_async_stop(void)
{
	struct root *r = plx_load_acq(&root);
	struct plx_async *a;

	if (!r)
		return;
	plx_lock(&r->lock, PLX_RANK_AIO_START);
	plx_store(&r->refused, 1);
	a = r->engine;
	plx_unlock(&r->lock, PLX_RANK_AIO_START);
	if (!a)
		return;
	plx_lock(&a->lock, PLX_RANK_AIO_ASYNC);
	a->accepts = false;
	plx_unlock(&a->lock, PLX_RANK_AIO_ASYNC);
	drain(a);
	plx_store_rel(&a->stop, 1);
	ring_bell(a);
	life_after(a, SERVING);
}
#else
bool plx_aio_async_submit(struct plx_kioctx *k, const struct iocb *cb, struct iocb *user)
{
	(void)k;
	(void)cb;
	(void)user;
	return false;
}

void plx_aio_async_kick(void)
{
}

void plx_aio_async_drain(void)
{
}

void plx_aio_async_stop(void)
{
}
#endif
