/* SPDX-License-Identifier: MIT */
/*
 * io_submit: what is done here and now, and what is done about the rest (docs/design.md, "Linux
 * AIO", has the table). If a context that has to become the kernel's (handover.c) cannot just now,
 * a request that does not wait for ever is done all the same (without_handing_over), and one that
 * may gets EAGAIN, as if there were no slot.
 *
 * What an error means is the kernel's to say: some are errors of io_submit, some become
 * events, and some would have been found before the file was looked at (AIO-SUBMIT-04).
 *
 * Which files are done inline is remembered per descriptor number, and looked at again now
 * and then. A stale answer is never wrong, only slower: a number that is no longer a
 * regular file fails with ESPIPE and goes the other way; one that is O_DIRECT now is served
 * within the call.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/major.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include "aio/ring.h"
#include "base/delay.h"
#include "base/inside.h"
#include "base/inject.h"
#include "base/stats.h"
#include "base/sys.h"
#include "cache/eventfd.h"
#include "cache/posix.h"
#include "cache/uaccess.h"

/*
 * What is done for each request that is served is one function with the loop over them. A CPU that
 * comes from the kernel does not foresee where functions return to: four calls for each request
 * made requests slower by a quarter.
 */
#define IN_LOOP static inline __attribute__((always_inline))

/* --- which files ------------------------------------------------------------------------- */

/* Per number: how often it may be believed to be done inline; 0: look. */
#define CHECK_AGAIN 64
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

/* A regular file of a file system that we know, or a block device. */
static bool is_known(int fd, const struct stat *st)
{
	struct statfs fs;

	if (S_ISBLK(st->st_mode))
		return true;
	return S_ISREG(st->st_mode) && plx_sys2(SYS_fstatfs, fd, &fs) == 0 &&
	       known_fs((long)fs.f_type);
}

static bool look(int fd)
{
	long flags = plx_sys3(SYS_fcntl, fd, F_GETFL, 0);
	struct stat st;

	return flags >= 0 && !(flags & (O_DIRECT | O_PATH)) && plx_sys2(SYS_fstat, fd, &st) == 0 &&
	       is_known(fd, &st);
}

static bool is_inline(unsigned int fd)
{
	uint8_t b;

	if (fd >= PLX_AIO_FDS)
		return look((int)fd);
	b = plx_load(&plx_aio_believed[fd]);
	if (plx_unlikely(!b)) {
		if (!look((int)fd))
			return false;
		b = CHECK_AGAIN;
	}
	plx_store(&plx_aio_believed[fd], b - 1);
	return true;
}

/* --- inline ------------------------------------------------------------------------------ */

enum kind {
	/* Nothing that a call of its own does. */
	NO_CALL,
	SYNC,
	READ,
	WRITE,
	READS,
	WRITES,
};

/* By a table: what a request is cannot be foreseen, and a branch on it would cost as much. */
#define OPS 9
static const struct op {
	uint16_t call;
	uint8_t kind;
} ops[OPS] = {
	[IOCB_CMD_PREAD] = {SYS_pread64, READ},	 [IOCB_CMD_PWRITE] = {SYS_pwrite64, WRITE},
	[IOCB_CMD_FSYNC] = {SYS_fsync, SYNC},	 [IOCB_CMD_FDSYNC] = {SYS_fdatasync, SYNC},
	[IOCB_CMD_PREADV] = {SYS_preadv, READS}, [IOCB_CMD_PWRITEV] = {SYS_pwritev, WRITES},
};

static enum kind kind_of(const struct iocb *cb)
{
	return plx_likely(cb->aio_lio_opcode < OPS) ? ops[cb->aio_lio_opcode].kind : NO_CALL;
}

static bool is_read(const struct iocb *cb)
{
	return kind_of(cb) == READ || kind_of(cb) == READS;
}

static bool is_write(const struct iocb *cb)
{
	return kind_of(cb) == WRITE || kind_of(cb) == WRITES;
}

/* Those that are for AIO what they are for preadv2 and pwritev2. */
#define FLAGS (RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND)

/* Whether there is a call that does the same, as far as the iocb tells. */
IN_LOOP bool plain(const struct iocb *cb)
{
	const enum kind kind = kind_of(cb);

	if (plx_unlikely(kind <= SYNC))
		return kind == SYNC && !cb->aio_buf && !cb->aio_offset && !cb->aio_nbytes &&
		       !cb->aio_rw_flags;
	/* An offset of -1 is none for preadv2. */
	return plx_likely(!cb->aio_rw_flags) ||
	       (!(cb->aio_rw_flags & ~FLAGS) && cb->aio_offset >= 0);
}

static long do_with_flags(const struct iocb *cb)
{
	struct iovec one = {(void *)(uintptr_t)cb->aio_buf, cb->aio_nbytes};
	bool several = kind_of(cb) == READS || kind_of(cb) == WRITES;

	return plx_sys6(is_read(cb) ? SYS_preadv2 : SYS_pwritev2, cb->aio_fildes,
			several ? (long)cb->aio_buf : (long)&one,
			several ? (long)cb->aio_nbytes : 1, cb->aio_offset, 0, cb->aio_rw_flags);
}

/*
 * Of one that is plain. fsync looks at its first argument alone. The system call is in the loop
 * over the requests: a CPU that has been in the kernel does not foresee where functions return to.
 */
IN_LOOP long do_it(const struct iocb *cb)
{
	if (PLX_INJECTED(wrong_errno))
		return -EIO;
	if (cb->aio_lio_opcode == IOCB_CMD_PWRITE && PLX_INJECTED(wrong_data))
		return (long)cb->aio_nbytes;
	if (plx_unlikely(cb->aio_rw_flags))
		return do_with_flags(cb);
	return plx_sys4(ops[cb->aio_lio_opcode].call, cb->aio_fildes, cb->aio_buf, cb->aio_nbytes,
			cb->aio_offset);
}

/* No process has this number. */
#define NOBODY 0x7fffffff
#define WHO_PROCESS 1

/* What the kernel says to the priority: it is asked to give it to a process that there is not. */
static long priority(const struct iocb *cb)
{
	long r;

	if (plx_likely(!(cb->aio_flags & IOCB_FLAG_IOPRIO)) || kind_of(cb) == SYNC)
		return 0;
	r = plx_sys3(SYS_ioprio_set, WHO_PROCESS, NOBODY, (int)cb->aio_reqprio);
	return r == -ESRCH ? 0 : r;
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
	/* Somebody who watches the file says so (fanotify, a security module), or the file does. */
	case -EACCES:
	case -EBUSY:
	case -ETXTBSY:
	case -ENOSPC:
	case -EDQUOT:
		return true;
	default:
		return false;
	}
}

/*
 * An error that may be one of io_submit: nothing has happened, and the kernel is to say. So is
 * nothing at all, with flags: preadv2 does not look at them when there is nothing to do.
 */
IN_LOOP bool unsure(const struct iocb *cb, long res)
{
	if (plx_unlikely(!res && cb->aio_rw_flags))
		return true;
	return res < 0 && (is_read(cb) || without_effect(res));
}

/* What has to be let go after a request. */
static void resfd_put(struct plx_eventfd **e)
{
	if (plx_unlikely(*e))
		plx_eventfd_put(*e);
}

static void resfd_close(int *fd)
{
	if (plx_unlikely(*fd >= 0))
		plx_sys1(SYS_close, *fd);
}

/* The event of a request; the caller has a slot for it. Then the eventfd is told (AIO-CQ-02). */
static void post(struct plx_kioctx *k, const struct iocb *cb, const struct io_event *ev,
		 struct plx_eventfd *e)
{
	plx_lock(&k->lock, PLX_RANK_AIO);
	plx_ring_post(k, ev);
	if (e)
		plx_store(&k->watched, true);
	PLX_DELAY(aio_post);
	plx_unlock(&k->lock, PLX_RANK_AIO);
	plx_stat(PLX_STAT_AIO_INLINE);
	if (e)
		plx_eventfd_tell(e, (int)cb->aio_resfd);
}

/* Where an iocb of the program has its key, which may be an odd address. */
static void *key_of(struct iocb *user)
{
	return (void *)((uintptr_t)user + offsetof(struct iocb, aio_key));
}

/* 1: done. 0: not here, nothing has happened. Else the error of io_submit. */
IN_LOOP long try_inline(struct plx_kioctx *k, const struct iocb *cb, struct iocb *user)
{
	struct io_event ev = {.data = cb->aio_data, .obj = (uint64_t)(uintptr_t)user};
	__attribute__((cleanup(resfd_put))) struct plx_eventfd *e = NULL;
	long r;

	if (!plain(cb) || !is_inline(cb->aio_fildes))
		return 0;
	if (cb->aio_flags & IOCB_FLAG_RESFD) {
		e = plx_eventfd_get((int)cb->aio_resfd);
		if (!e)
			return 0;
	}
	/* Writable it must be before anything is done; a bad descriptor leaves it as it was. */
	if (plx_store_user32(key_of(user), 0))
		return 0;
	PLX_DELAY(aio_inline);
	r = priority(cb);
	if (plx_unlikely(r < 0))
		return r;
	ev.res = do_it(cb);
	if (plx_unlikely(unsure(cb, ev.res))) {
		plx_store_user32(key_of(user), cb->aio_key);
		plx_aio_forget((int)cb->aio_fildes);
		return 0;
	}
	post(k, cb, &ev, e);
	return 1;
}

/*
 * A poll whose file is ready is done, as the kernel's AIO does it: it asks the file just as poll
 * does. True if so; else nothing has happened.
 */
static bool try_poll(struct plx_kioctx *k, const struct iocb *cb, struct iocb *user)
{
	struct io_event ev = {.data = cb->aio_data, .obj = (uint64_t)(uintptr_t)user};
	__attribute__((cleanup(resfd_put))) struct plx_eventfd *e = NULL;

	if (cb->aio_buf > UINT16_MAX || cb->aio_offset || cb->aio_nbytes || cb->aio_rw_flags)
		return false;
	if (cb->aio_flags & IOCB_FLAG_RESFD) {
		e = plx_eventfd_get((int)cb->aio_resfd);
		if (!e)
			return false;
	}
	if (plx_store_user32(key_of(user), 0))
		return false;
	ev.res = plx_px_ready((int)cb->aio_fildes, (uint16_t)cb->aio_buf);
	if (!ev.res) {
		plx_store_user32(key_of(user), cb->aio_key);
		return false;
	}
	post(k, cb, &ev, e);
	return true;
}

/* The kernel looks at the file behind this number. */
static void show(int fd)
{
	if (plx_fd_ours(fd))
		plx_px_escape(fd, PLX_OUT_AIO);
}

/* Of a read or write. */
static bool may_wait(int fd, const struct stat *st, bool writes)
{
	long flags = plx_sys3(SYS_fcntl, fd, F_GETFL, 0);

	if (S_ISREG(st->st_mode) || S_ISBLK(st->st_mode) || S_ISDIR(st->st_mode))
		return false;
	/* /dev/null and the like. */
	if (S_ISCHR(st->st_mode) && major(st->st_rdev) == MEM_MAJOR)
		return false;
	/* That it is not open for this is an error. */
	return !(flags & O_NONBLOCK) && (flags & O_ACCMODE) != (writes ? O_RDONLY : O_WRONLY);
}

/* What the kernel says to what is no eventfd, or why nobody can say it now. */
static long no_resfd(int fd)
{
	long flags = plx_sys2(SYS_fcntl, fd, F_GETFL);

	if (flags < 0 || (flags & O_PATH))
		return -EBADF;
	return plx_fd_is_eventfd(fd) ? -EAGAIN : -EINVAL;
}

/*
 * As try_inline, of a request that cannot make the context the kernel's: it is done, if it is one
 * that does not wait for ever, or has the kernel's error. Else EAGAIN.
 */
static long without_handing_over(struct plx_kioctx *k, const struct iocb *cb, struct iocb *user)
{
	struct io_event ev = {.res = -EINVAL};
	__attribute__((cleanup(resfd_put))) struct plx_eventfd *e = NULL;
	__attribute__((cleanup(resfd_close))) int kernels = -1;
	int fd = (int)cb->aio_fildes, told = -1;
	struct stat st;
	bool waits;
	long r = 1;

	show(fd);
	if (plx_sys2(SYS_fstat, fd, &st) < 0)
		return -EBADF;
	if (cb->aio_flags & IOCB_FLAG_RESFD) {
		e = plx_eventfd_get((int)cb->aio_resfd);
		if (!e)
			told = kernels = plx_eventfd_hold((int)cb->aio_resfd);
		/* Without a free number it is told by the program's. */
		if (told == -EMFILE && plx_fd_is_eventfd((int)cb->aio_resfd))
			told = (int)cb->aio_resfd;
		if (!e && told < 0)
			return no_resfd((int)cb->aio_resfd);
	}
	waits = (is_read(cb) || is_write(cb)) && may_wait(fd, &st, is_write(cb)) &&
		!(cb->aio_rw_flags & RWF_NOWAIT);
	if (waits && is_write(cb))
		return -EAGAIN;
	if (plx_store_user32(key_of(user), 0))
		return -EFAULT;
	if (plain(cb) && !(cb->aio_flags & IOCB_FLAG_IOPRIO) && is_known(fd, &st))
		ev.res = do_it(cb);
	if (ev.res == -EINVAL || unsure(cb, ev.res))
		r = plx_aio_ask(cb, waits ? RWF_NOWAIT : 0, &ev);
	if (waits && (r == -EOPNOTSUPP || (r == 1 && ev.res == -EAGAIN)))
		r = -EAGAIN;
	if (r == -EAGAIN)
		plx_store_user32(key_of(user), cb->aio_key);
	if (r != 1)
		return r;
	ev.data = cb->aio_data;
	ev.obj = (uint64_t)(uintptr_t)user;
	ev.res2 = 0;
	if (told >= 0)
		plx_store(&k->watched, true);
	post(k, cb, &ev, e);
	if (told >= 0)
		plx_eventfd_tell_kernel(told);
	return 1;
}

/* --- io_submit --------------------------------------------------------------------------- */

_Static_assert(sizeof(struct iocb) == 64, "the request of the ABI");

/* The next request of the program: its address and its content. */
static int fetch(struct iocb **user, struct iocb **at, struct iocb *cb)
{
	uint64_t p;

	if (plx_load_user64(&p, user))
		return -EFAULT;
	*at = (struct iocb *)(uintptr_t)p;
	if (plx_copy_in64(cb, *at))
		return -EFAULT;
	if (cb->aio_reserved2 || (int64_t)cb->aio_nbytes < 0)
		return -EINVAL;
	return 0;
}

/*
 * Whether one more slot is free; ours is counted in state already. Slots are given back after
 * their events have come into the ring, and seen in the other order: what is on its way is counted
 * twice, never missed. The model is tests/model/aio_slots.pml.
 */
IN_LOOP bool has_room(const struct plx_kioctx *k)
{
	/* Its partner: the release of the slot in plx_aio_put, behind that of the tail. */
	const uint64_t state = plx_load_acq(&k->state);

	return PLX_AIO_SLOTS(state) + plx_ring_used(k) <= k->limit;
}

/*
 * The look stands behind the addition of plx_aio_get, or the lock of the last post. Partner: the
 * same of another call. That one has posted and looks again, and we have just come: it finds our
 * slot, or we its event.
 */
IN_LOOP bool room(const struct plx_kioctx *k)
{
	plx_mb_after_rmw();
	return has_room(k);
}

/* Somebody else is inside: the call is to leave, and to come again. */
#define COME_AGAIN (-65540L)
/* So often, of a request that need not wait for the kernel, and of others. */
#define TRIES_FEW 3
#define TRIES_MANY 100
#define TRY_NS 1000000

/* As try_inline, of what was not done there; or PLX_PASS: all the rest is the kernel's. */
static long otherwise(struct plx_kioctx *k, const struct iocb *cb, struct iocb *user, int tries)
{
	enum plx_aio_hand hand;
	long flags, r;

	plx_bell_take((int)cb->aio_fildes);
	if (cb->aio_lio_opcode == IOCB_CMD_POLL && try_poll(k, cb, user))
		return 1;
	/* An error is no reason to give it away, as far as it is easily told. */
	flags = plx_sys2(SYS_fcntl, cb->aio_fildes, F_GETFL);
	if (flags < 0 || (flags & O_PATH))
		return -EBADF;
	hand = plx_aio_hand_over(k, false);
	if (hand == PLX_AIO_GIVEN)
		return PLX_PASS;
	if (hand == PLX_AIO_BUSY && tries < TRIES_FEW)
		return COME_AGAIN;
	r = without_handing_over(k, cb, user);
	return r == -EAGAIN && hand == PLX_AIO_BUSY && tries < TRIES_MANY ? COME_AGAIN : r;
}

static inline long submit(struct plx_kioctx *k, struct plx_aio_batch *b, int tries)
{
	long r = 0;

	while (b->nr > 0) {
		struct iocb cb, *at;

		r = fetch(b->user, &at, &cb);
		if (r)
			break;
		if (!room(k)) {
			r = -EAGAIN;
			break;
		}
		r = try_inline(k, &cb, at);
		if (plx_unlikely(r == 0))
			r = otherwise(k, &cb, at, tries);
		if (r == PLX_PASS || r == COME_AGAIN)
			return r;
		if (r < 0)
			break;
		b->done++;
		b->user++;
		b->nr--;
	}
	return b->done ? b->done : r;
}

long plx_aio_submit(aio_context_t ctx, struct plx_aio_batch *b)
{
	PLX_INSIDE();
	struct timespec moment = {.tv_nsec = TRY_NS};
	struct plx_kioctx *k;
	long r;

	if (b->nr < 0)
		return PLX_PASS;
	for (int tries = 0;; tries++) {
		/* One slot is the call's own while it is inside. */
		k = plx_aio_get(ctx, 1);
		if (!k)
			return PLX_PASS;
		if (b->nr > k->nr)
			b->nr = k->nr;
		r = submit(k, b, tries);
		/* It is not inside any more. */
		if (r == PLX_PASS)
			return r;
		plx_aio_put(k, 1);
		if (plx_likely(r != COME_AGAIN))
			return r;
		/* Handlers wait meanwhile, as some of it may be done already. */
		if (tries)
			plx_sys2(SYS_nanosleep, &moment, NULL);
	}
}

long plx_aio_submit_rest(aio_context_t ctx, const struct plx_aio_batch *b)
{
	long r;

	plx_px_escape_iocbs(b->nr, (void *const *)b->user);
	r = plx_sys3(SYS_io_submit, ctx, b->nr, b->user);
	if (plx_unlikely(plx_load(&plx_stats_wanted)) && r > 0)
		plx_stat_add(PLX_STAT_AIO_KERNEL, (uint64_t)r);
	if (r < 0)
		return b->done ? b->done : r;
	return b->done + r;
}

/* Nothing is ever pending in one of ours; the kernel's order of errors all the same. */
long plx_aio_cancel(aio_context_t ctx, struct iocb *iocb, struct io_event *result)
{
	PLX_INSIDE();
	struct plx_kioctx *k = plx_aio_get(ctx, 0);
	uint32_t key;

	(void)result;
	if (!k)
		return PLX_PASS;
	plx_aio_put(k, 0);
	return plx_load_user32(&key, key_of(iocb)) ? -EFAULT : -EINVAL;
}
