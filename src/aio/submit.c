/* SPDX-License-Identifier: MIT */
/*
 * io_submit and the inline engine.
 *
 * A plain read or write of a regular file (or a block device) without O_DIRECT is done
 * here and now, as the kernel would do it within its io_submit; a whole system call less
 * stands around it. All else goes to the twin with the program's own iocb.
 *
 * What an error means is the kernel's to say: some are errors of io_submit, some become
 * events, and some would have been found before the file was looked at (AIO-SUBMIT-04).
 * So a read that failed, and a write that failed without having had any effect, is
 * submitted to the twin as if nothing had been tried.
 *
 * Which files are done inline is remembered per descriptor number, and looked at again now
 * and then. A stale answer is never wrong, only slower: a number that is no longer a
 * regular file fails with ESPIPE and goes to the twin; one that is O_DIRECT now is served
 * within the call; one that has become a buffered file is served by the kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "aio/ring.h"
#include "base/delay.h"
#include "base/inside.h"
#include "base/sleep.h"
#include "base/sys.h"
#include "posix/front.h"
#include "posix/uaccess.h"
#include "source/eventfd.h"

/* --- which files ------------------------------------------------------------------------- */

enum engine {
	ASK,
	INLINE,
	TWIN,
};

/* Per number: how often INLINE (1 to 64) or TWIN (129 to 192) may be believed; 0: ask. */
#define CHECK_AGAIN 64
#define BELIEVE_TWIN 128
PLX_LARGE uint8_t plx_aio_believed[PLX_AIO_FDS];

/*
 * File systems whose buffered reads and writes the kernel's AIO does within io_submit, by
 * the same code as pread and pwrite. Others may do them in the background, or have pread
 * but no AIO (proc), and stay the kernel's.
 */
static bool known_fs(long magic)
{
	switch (magic) {
	case 0x01021994: /* tmpfs, memfd */
	case 0x858458f6: /* ramfs */
	case 0xef53:	 /* ext2, ext3, ext4 */
	case 0x58465342: /* xfs */
	case 0x9123683e: /* btrfs */
	case 0xf2f52010: /* f2fs */
	case 0x794c7630: /* overlayfs */
	case 0x2011bab0: /* exfat */
	case 0x4d44:	 /* vfat */
	case 0x73717368: /* squashfs */
	case 0xe0f5e1e2: /* erofs */
	case 0x9660:	 /* iso9660 */
		return true;
	default:
		return false;
	}
}

bool plx_aio_known_file(int fd)
{
	struct statfs fs;
	struct stat st;

	if (plx_sys2(SYS_fstat, fd, &st) < 0)
		return false;
	if (S_ISBLK(st.st_mode))
		return true;
	return S_ISREG(st.st_mode) && plx_sys2(SYS_fstatfs, fd, &fs) == 0 &&
	       known_fs((long)fs.f_type);
}

static enum engine look(int fd)
{
	long flags = plx_sys3(SYS_fcntl, fd, F_GETFL, 0);

	if (flags < 0 || (flags & (O_DIRECT | O_PATH)))
		return TWIN;
	return plx_aio_known_file(fd) ? INLINE : TWIN;
}

static enum engine engine_of(unsigned int fd)
{
	uint8_t b;
	enum engine e;

	if (fd >= PLX_AIO_FDS)
		return look(fd);
	b = plx_load(&plx_aio_believed[fd]);
	if (plx_likely(b != 0)) {
		e = b > BELIEVE_TWIN ? TWIN : INLINE;
		b = b == 1 || b == BELIEVE_TWIN + 1 ? 0 : b - 1;
	} else {
		e = look(fd);
		b = e == TWIN ? BELIEVE_TWIN + CHECK_AGAIN : CHECK_AGAIN;
	}
	plx_store(&plx_aio_believed[fd], b);
	return e;
}

/* --- inline ------------------------------------------------------------------------------ */

static bool is_read(const struct iocb *cb)
{
	return cb->aio_lio_opcode == IOCB_CMD_PREAD || cb->aio_lio_opcode == IOCB_CMD_PREADV;
}

/* Whether the inline engine could do it, as far as the iocb tells. */
static bool plain(const struct iocb *cb)
{
	switch (cb->aio_lio_opcode) {
	case IOCB_CMD_PREAD:
	case IOCB_CMD_PWRITE:
	case IOCB_CMD_PREADV:
	case IOCB_CMD_PWRITEV:
		return !cb->aio_rw_flags && !(cb->aio_flags & IOCB_FLAG_IOPRIO);
	default:
		return false;
	}
}

static long do_it(const struct iocb *cb)
{
	long nr;

	switch (cb->aio_lio_opcode) {
	case IOCB_CMD_PREAD:
		nr = SYS_pread64;
		break;
	case IOCB_CMD_PWRITE:
		nr = SYS_pwrite64;
		break;
	case IOCB_CMD_PREADV:
		nr = SYS_preadv;
		break;
	default:
		nr = SYS_pwritev;
	}
	if (PLX_INJECTED(wrong_errno))
		return -EIO;
	if (cb->aio_lio_opcode == IOCB_CMD_PWRITE && PLX_INJECTED(wrong_data))
		return (long)cb->aio_nbytes;
	return plx_sys4(nr, cb->aio_fildes, cb->aio_buf, cb->aio_nbytes, cb->aio_offset);
}

/* The kernel would have said the same before it wrote anything. */
static bool without_effect(long err)
{
	switch (err) {
	case -EBADF:
	case -EINVAL:
	case -ESPIPE:
	case -EISDIR:
	case -EFAULT:
	case -EPERM:
	case -EOPNOTSUPP:
		return true;
	default:
		return false;
	}
}

struct pollux_eventfd *plx_aio_resfd_get(const struct iocb *cb)
{
	struct pollux_file *f;

	if (!plx_fd_ours(cb->aio_resfd))
		return NULL;
	f = plx_table_get(cb->aio_resfd);
	if (f && (f->kind != PLX_KIND_EVENTFD || !plx_eventfd_pin(plx_file_efd(f)))) {
		pollux_file_put(f);
		f = NULL;
	}
	return f ? plx_file_efd(f) : NULL;
}

void plx_aio_resfd_put(struct pollux_eventfd *e)
{
	plx_eventfd_unpin(e);
	pollux_file_put(&e->file);
}

bool plx_aio_post(struct plx_kioctx *k, const struct io_event *ev, uint32_t slots)
{
	bool due;

	plx_lock(&k->lock, PLX_RANK_AIO);
	/* What the kernel has completed came earlier (AIO-CQ-01). */
	if (k->twin_pending)
		plx_aio_twin_drain(k);
	plx_ring_post(k, ev);
	PLX_DELAY(aio_post);
	/* Release: its partner is the acquire in has_room. */
	if (slots)
		plx_xadd(&k->state, -(uint64_t)slots);
	due = plx_aio_due(k);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	return due;
}

/* 1: done. 0: not for this engine, nothing has happened. Else the error of io_submit. */
static int try_inline(struct plx_kioctx *k, const struct iocb *cb, struct iocb *user)
{
	struct io_event ev = {.data = cb->aio_data, .obj = (uint64_t)(uintptr_t)user};
	struct pollux_eventfd *e = NULL;
	bool due;

	if (!plain(cb) || engine_of(cb->aio_fildes) != INLINE)
		return 0;
	if (cb->aio_flags & IOCB_FLAG_RESFD) {
		e = plx_aio_resfd_get(cb);
		if (!e)
			return 0;
	}
	/* Writable it must be before anything is done; a bad descriptor leaves it as it was. */
	if (plx_store_user32(plx_aio_key(user), 0)) {
		if (e)
			plx_aio_resfd_put(e);
		return 0;
	}
	PLX_DELAY(aio_inline);
	ev.res = do_it(cb);
	if (plx_unlikely(ev.res < 0) && (is_read(cb) || without_effect(ev.res))) {
		plx_store_user32(plx_aio_key(user), cb->aio_key);
		plx_aio_forget((int)cb->aio_fildes);
		if (e)
			plx_aio_resfd_put(e);
		return 0;
	}
	/* The slot is the call's, which may have more to do. */
	due = plx_aio_post(k, &ev, 0);
	plx_stat(PLX_STAT_AIO_INLINE);
	if (e) {
		plx_eventfd_tell(e, (int)cb->aio_resfd);
		plx_aio_resfd_put(e);
	}
	if (plx_unlikely(due))
		plx_aio_ring_bell(k);
	return 1;
}

/* --- io_submit --------------------------------------------------------------------------- */

_Static_assert(sizeof(struct iocb) == 64, "the request of the ABI");

/* The next request of the program: its address and its content. */
static int fetch(struct iocb **user, long i, struct iocb **at, struct iocb *cb)
{
	uint64_t p;

	if (plx_load_user64(&p, user + i))
		return -EFAULT;
	*at = (struct iocb *)(uintptr_t)p;
	if (plx_copy_in64(cb, *at))
		return -EFAULT;
	if (cb->aio_reserved2 || (int64_t)cb->aio_nbytes < 0)
		return -EINVAL;
	return 0;
}

/*
 * Ours is counted in state already. Slots are given back after their events have come into
 * the ring, and seen in the other order: what is on its way is counted twice, never missed. The
 * model is tests/model/aio_slots.pml.
 */
static bool has_room(const struct plx_kioctx *k)
{
	/* Its partner: the release of the slot, behind that of the tail. */
	const uint64_t state = plx_load_acq(&k->state);

	return PLX_AIO_SLOTS(state) + plx_ring_used(k) < k->nr;
}

/*
 * Whether one more slot is free. With the lock no request that was answered in the background
 * or by the kernel is counted twice.
 */
static bool room(struct plx_kioctx *k)
{
	bool yes;

	/*
	 * Behind the addition of plx_aio_get, or the lock of the last post. Partner: the same of
	 * another call. That one has posted and looks again, and we have just come: it finds our
	 * slot, or we its event.
	 */
	plx_mb_after_rmw();
	if (plx_likely(has_room(k)))
		return true;
	plx_lock(&k->lock, PLX_RANK_AIO);
	yes = has_room(k);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	return yes;
}

/* The kernel sees the descriptors that this request names. */
static int to_kernel(const struct iocb *cb)
{
	if (plx_fd_hidden(cb->aio_fildes))
		return -EBADF;
	if (plx_fd_ours(cb->aio_fildes))
		plx_px_escape(cb->aio_fildes, PLX_OUT_AIO);
	if ((cb->aio_flags & IOCB_FLAG_RESFD) && plx_fd_ours(cb->aio_resfd)) {
		if (plx_fd_hidden(cb->aio_resfd))
			return -EBADF;
		plx_px_escape(cb->aio_resfd, PLX_OUT_AIO);
	}
	return 0;
}

/* Another engine is to be tried first. */
static bool for_us(const struct iocb *cb)
{
	return plain(cb) && (plx_aio_mode == PLX_AIO_ASYNC || engine_of(cb->aio_fildes) == INLINE);
}

/* The i-th request and those that follow it, as long as they are for the kernel, too. */
static long submit_to_twin(struct plx_kioctx *k, struct iocb **user, long i, long nr,
			   const struct iocb *first)
{
	struct iocb cb = *first, *at;
	long n = 0;
	int err;

	do {
		err = to_kernel(&cb);
		if (err)
			break;
		n++;
	} while (i + n < nr && fetch(user, i + n, &at, &cb) == 0 && !for_us(&cb));
	if (!n)
		return err;
	err = plx_aio_twin_make(k);
	if (err)
		return err;
	n = plx_aio_twin_submit(k, n, user + i, i == 0);
	if (plx_unlikely(plx_load(&plx_stats_wanted)) && n > 0)
		plx_stat_add(PLX_STAT_AIO_KERNEL, n);
	return n;
}

/* As try_inline. What the other engines do may take its time: so nobody waits for us. */
static int try_async(struct plx_kioctx *k, const struct iocb *cb, struct iocb *user)
{
	if (plain(cb) && plx_aio_async_submit(k, cb, user)) {
		plx_stat(PLX_STAT_AIO_ASYNC);
		return 1;
	}
	plx_aio_async_kick();
	return 0;
}

static long submit(struct plx_kioctx *k, struct iocb **user, long nr)
{
	const bool async = plx_aio_mode == PLX_AIO_ASYNC;
	long done = 0, r = 0;

	while (done < nr) {
		struct iocb cb, *at;

		r = fetch(user, done, &at, &cb);
		if (r)
			break;
		if (!room(k)) {
			r = -EAGAIN;
			break;
		}
		if (plx_unlikely(async))
			r = try_async(k, &cb, at);
		if (r == 0)
			r = try_inline(k, &cb, at);
		if (r == 0)
			r = submit_to_twin(k, user, done, nr, &cb);
		if (r <= 0)
			break;
		done += r;
	}
	if (plx_unlikely(async))
		plx_aio_async_kick();
	return done ? done : r;
}

/* What a context is used for first says what it is used for. */
static bool for_direct_io(const struct plx_kioctx *k, struct iocb **user, long nr, bool *tells)
{
	struct iocb cb, *at;

	if (plx_likely(plx_load(&k->tail) || plx_load(&k->twin)) || nr <= 0 ||
	    plx_aio_mode != PLX_AIO_AUTO || fetch(user, 0, &at, &cb) || !plain(&cb) ||
	    !plx_aio_is_direct((int)cb.aio_fildes))
		return false;
	*tells = cb.aio_flags & IOCB_FLAG_RESFD;
	return true;
}

long plx_aio_submit(aio_context_t ctx, long nr, struct iocb **user)
{
	PLX_INSIDE();
	struct plx_kioctx *k;
	bool tells;
	long r;

	if (nr < 0)
		return PLX_PASS;
	do {
		/* One slot is the call's own while it is inside. */
		k = plx_aio_get(ctx, 1);
		if (!k)
			return PLX_PASS;
		if (for_direct_io(k, user, nr, &tells) && plx_aio_hand_over(k, tells))
			return PLX_PASS;
		r = submit(k, user, nr > k->nr ? k->nr : nr);
	} while (plx_sleep_is_over(r));
	plx_aio_put(k, 1);
	return r;
}

long plx_aio_cancel(aio_context_t ctx, struct iocb *iocb, struct io_event *result)
{
	PLX_INSIDE();
	struct plx_kioctx *k = plx_aio_get(ctx, 0);
	unsigned long twin;
	uint32_t key;
	long r;

	if (!k)
		return PLX_PASS;
	twin = plx_load_acq(&k->twin);
	/* Without a twin nothing is pending; the kernel's order of errors all the same. */
	if (twin)
		r = plx_sys3(SYS_io_cancel, twin, iocb, result);
	else
		r = plx_load_user32(&key, plx_aio_key(iocb)) ? -EFAULT : -EINVAL;
	plx_aio_put(k, 0);
	return r;
}
