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
 * The thread ends when it has had nothing to do for a while, and comes back on need. It must
 * not be the last one: a process whose threads have all ended has ended (AIO-PROC-01), and
 * this one, which takes no signal, would keep it.
 *
 * In the child of a fork nothing of this exists: what leads here is wiped, the rest is not
 * in its memory, and its copies of the two descriptors are closed.
 *
 *   root.engine, refused   written under root.lock, which starting and ending hold
 *   free, fresh, queue     async.lock; so are accepts, open and stop
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

#include "base/clock.h"
#include "base/delay.h"
#include "base/inside.h"
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
#define IDLE_NS 1000000000ll
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
	/* Its number. */
	int resfd_at;
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
	/* Requests may come; the bell may be rung. */
	bool accepts;
	bool open;
	bool stop;
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
	/* Why it has no ring, once it has ended. */
	int error;
	/* The service thread's. */
	bool bell_armed;
	uint64_t bell_value;
	struct request slot[SLOTS];
};

/* On a page that is wiped in the child of a fork. */
struct root {
	plx_lock_t lock;
	/* It cannot be had, or has had to go for good. */
	uint32_t refused;
	/* While there is a thread. */
	struct plx_async *engine;
	/* What the next one will use. */
	struct plx_async *memory;
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

/* False if this engine is about to end: look for another. *out: NULL if it is full. */
static bool slot_take(struct plx_async *a, struct request **out)
{
	bool accepts;

	*out = NULL;
	plx_lock(&a->lock, PLX_RANK_AIO_ASYNC);
	accepts = a->accepts;
	if (accepts && a->free) {
		*out = a->free;
		a->free = (*out)->next;
	} else if (accepts && a->fresh < a->nslots) {
		*out = &a->slot[a->fresh++];
	}
	if (*out)
		plx_xadd(&a->inflight, 1);
	plx_unlock(&a->lock, PLX_RANK_AIO_ASYNC);
	return accepts;
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
	bool last = plx_xadd(&a->inflight, -1) == 1;

	/* Partner: drain. */
	plx_mb_after_rmw();
	if (last && plx_load(&a->drainers))
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

	/* With the lock: the number is closed by the end of the thread. */
	plx_lock(&a->lock, PLX_RANK_AIO_ASYNC);
	/* It may move away, too (plx_fd_evict), but not within an RCU section. */
	plx_rcu_read_lock();
	if (a->open)
		plx_sys3(SYS_write, plx_load(&bell_fd), &one, sizeof(one));
	plx_rcu_read_unlock();
	plx_unlock(&a->lock, PLX_RANK_AIO_ASYNC);
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
	int at = r->resfd_at;
	bool due;

	ev.res = res;
	/*
	 * First: once the event is there, we do not hold its file any more. The kernel's worker
	 * may for a moment, as the kernel's AIO does, which tells of the event before it puts
	 * the file.
	 */
	file_set(a, r, -1);
	plx_free(r->iov);
	slot_put(a, r);
	PLX_DELAY(aio_async_done);
	due = plx_aio_post(k, &ev, 1);
	PLX_DELAY(aio_async_posted);
	if (e) {
		plx_eventfd_tell(e, at);
		plx_aio_resfd_put(e);
	}
	if (due)
		plx_aio_ring_bell(k);
	plx_aio_put(k, 0);
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

/*
 * Sends what is in the ring and waits for something to come; 0, or -ETIME if nothing has, for
 * so long that the thread may not be needed. Always bounded: what is on its way now may be
 * taken back by its submitter, of which nobody is told.
 */
static int wait_once(struct plx_async *a)
{
	struct __kernel_timespec idle = {.tv_sec = IDLE_NS / PLX_NSEC,
					 .tv_nsec = IDLE_NS % PLX_NSEC};
	struct io_uring_cqe *cqe;
	int r = io_uring_submit_and_wait_timeout(&a->ring, &cqe, 1, &idle, NULL);

	return r < 0 ? r : 0;
}

/* root.lock held. If nothing is on its way nobody finds the engine any more. */
static bool close_if_idle(struct root *r, struct plx_async *a)
{
	bool idle;

	plx_lock(&a->lock, PLX_RANK_AIO_ASYNC);
	idle = !plx_load(&a->inflight);
	if (idle) {
		plx_store_rel(&r->engine, NULL);
		a->accepts = a->open = false;
	}
	plx_unlock(&a->lock, PLX_RANK_AIO_ASYNC);
	return idle;
}

/*
 * root.lock held. io_uring_queue_exit closes a number of its own: until it has done so no dup2
 * puts the program's file there.
 */
static void ring_close(struct plx_async *a)
{
	plx_hidden_lock();
	a->ring.ring_fd = plx_sys3(SYS_fcntl, plx_load(&ring_fd), F_DUPFD_CLOEXEC, plx_fd_high());
	if (a->ring.ring_fd < 0)
		a->ring.ring_fd = plx_sys3(SYS_fcntl, plx_load(&ring_fd), F_DUPFD_CLOEXEC, 0);
	io_uring_queue_exit(&a->ring);
	plx_hidden_unlock();
	plx_fd_unhide(&ring_fd);
	plx_fd_unhide(&bell_fd);
}

/*
 * The thread ends, if nothing has come meanwhile. All under root.lock: the next one has the
 * same memory and the same two variables.
 */
static bool leave(struct plx_async *a)
{
	struct root *r = plx_load_acq(&root);
	bool left;

	PLX_DELAY(aio_async_leave);
	plx_lock(&r->lock, PLX_RANK_AIO_START);
	left = close_if_idle(r, a);
	if (left) {
		ring_close(a);
		life_set(a, ENDED);
	}
	plx_unlock(&r->lock, PLX_RANK_AIO_START);
	return left;
}

/* Until it has had nothing to do for a while, or is told to stop. */
static void serve(struct plx_async *a)
{
	struct request *list = NULL;
	bool wanted = true;
	int r;

	while (wanted) {
		arm_bell(a);
		if (!list)
			list = queue_take(a);
		list = fill_ring(a, list);
		/* It sleeps when everything has been sent and the bell would wake it. */
		r = list || !a->bell_armed ? io_uring_submit(&a->ring) : wait_once(a);
		collect(a);
		plx_retire_flush_if_full();
		if (r == -ETIME || plx_load(&a->stop))
			wanted = !leave(a);
		/* No memory for requests at the moment. */
		else if (r < 0 && r != -EINTR)
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
		      ? -EPERM
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

/* plx_hidden_lock held. */
static int ring_make(struct plx_async *a)
{
	struct io_uring_params p = {
		.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
		.cq_entries = 2 * SLOTS,
	};
	int bell = plx_kernel_eventfd(EFD_CLOEXEC);
	int err = bell;

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
	return err < 0 ? err : plx_fd_hide_private(a->ring.ring_fd, &ring_fd);
}

static int ring_open(struct plx_async *a)
{
	int err;

	/* In the child of a fork that nobody has seen. */
	plx_fd_unhide(&ring_fd);
	plx_fd_unhide(&bell_fd);
	plx_hidden_lock();
	err = ring_make(a);
	plx_hidden_unlock();
	if (err < 0)
		plx_fd_unhide(&bell_fd);
	return err;
}

static void *service_main(void *arg)
{
	/* All its life: it has every signal blocked. */
	PLX_INSIDE();
	struct plx_async *a = arg;
	int err;

	pthread_setname_np(pthread_self(), "pollux-aio");
	err = ring_open(a);
	if (err < 0) {
		a->error = err;
		life_set(a, ENDED);
		return NULL;
	}
	life_set(a, SERVING);
	serve(a);
	return NULL;
}

/* The thread is made with all signals blocked: it touches no memory of the program. */
static int thread_new(struct plx_async *a)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t mask, old;
	int err;

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
	return -err;
}

/* Kept for the rest of the process: a late look at it must find it. */
static struct plx_async *memory_new(void)
{
	struct plx_async *a;
	long p;

	p = plx_sys6(SYS_mmap, 0, sizeof(*a), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);
	if (p < 0 && p > -4096)
		return NULL;
	a = (struct plx_async *)p;
	a->queue_end = &a->queue;
	if (plx_sys3(SYS_madvise, a, sizeof(*a), MADV_DONTFORK) < 0) {
		plx_sys2(SYS_munmap, a, sizeof(*a));
		return NULL;
	}
	return a;
}

/* What may be otherwise the next time. */
static bool passes(int err)
{
	return err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -EAGAIN;
}

/* root.lock held; there is no thread. */
static struct plx_async *engine_new(struct root *r)
{
	struct plx_async *a = r->memory;
	int err;

	if (!a)
		a = r->memory = memory_new();
	if (!a)
		return NULL;
	a->error = 0;
	a->bell_armed = false;
	plx_store(&a->life, STARTING);
	err = thread_new(a);
	if (!err && life_after(a, STARTING) == ENDED)
		err = a->error;
	if (err) {
		plx_store(&r->refused, !passes(err));
		return NULL;
	}
	plx_lock(&a->lock, PLX_RANK_AIO_ASYNC);
	a->accepts = a->open = true;
	plx_unlock(&a->lock, PLX_RANK_AIO_ASYNC);
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
		a = engine_new(r);
		plx_store_rel(&r->engine, a);
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

/* Everything has been found good: the request takes its slot and goes. */
static bool hand_over(struct plx_kioctx *k, const struct iocb *cb, struct iocb *user,
		      const struct want *w, struct pollux_eventfd *e)
{
	struct plx_async *a;
	struct request *r;

	do {
		a = engine_get();
		if (!a)
			return false;
	} while (!slot_take(a, &r));
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
	r->resfd_at = (int)cb->aio_resfd;
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
	       (!tells || (e = plx_aio_resfd_get(cb)) != NULL) && hand_over(k, cb, user, &w, e);
	if (!done) {
		if (e)
			plx_aio_resfd_put(e);
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
	/* Partner: answered. */
	plx_mb_after_rmw();
	while ((n = plx_load_acq(&a->inflight)) != 0)
		futex_wait(&a->inflight, n);
	plx_xadd(&a->drainers, -1);
}

PLX_CHILD_CODE void plx_aio_async_drain(void)
{
	struct plx_async *a = engine_now();

	if (a)
		drain(a);
}

void plx_aio_async_stop(void)
{
	PLX_INSIDE();
	struct root *r = plx_load_acq(&root);
	struct plx_async *a;

	if (!r)
		return;
	plx_lock(&r->lock, PLX_RANK_AIO_START);
	plx_store(&r->refused, 1);
	a = r->engine;
	if (a) {
		plx_lock(&a->lock, PLX_RANK_AIO_ASYNC);
		a->accepts = false;
		plx_store(&a->stop, true);
		plx_unlock(&a->lock, PLX_RANK_AIO_ASYNC);
	}
	plx_unlock(&r->lock, PLX_RANK_AIO_START);
	if (!a)
		return;
	drain(a);
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

PLX_CHILD_CODE void plx_aio_async_drain(void)
{
}

void plx_aio_async_stop(void)
{
}
#endif
