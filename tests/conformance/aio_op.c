/* SPDX-License-Identifier: MIT */
/* What each opcode does, which files it takes, what it refuses and in which order. */
#include "aio.h"

#include <linux/capability.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <netinet/in.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <termios.h>

/* What the kernel moves at most: whole pages. */
#define MAX_RW (INT32_MAX & -(long)getpagesize())
#define PRIO(class, data) ((uint16_t)((class) << 13 | (data)))

/* Bits of aio_rw_flags that the oldest of the reference kernels knows. */
#define RW_HIPRI 0x01
#define RW_DSYNC 0x02
#define RW_SYNC 0x04
#define RW_NOWAIT 0x08
#define RW_APPEND 0x10
#define RW_NOAPPEND 0x20

static struct iocb *with_rw_flags(struct iocb *cb, uint32_t flags)
{
	cb->aio_rw_flags = flags;
	return cb;
}

static struct iocb *with_prio(struct iocb *cb, uint16_t prio)
{
	cb->aio_flags |= IOCB_FLAG_IOPRIO;
	cb->aio_reqprio = (int16_t)prio;
	return cb;
}

static char *aligned(size_t n)
{
	char *p = aligned_alloc(4096, n);

	assert_non_null(p);
	memset(p, 0, n);
	return p;
}

/* --- files of every kind --------------------------------------------------------------------- */

enum file_kind {
	MEMFD,
	DISK,
	DISK_RDONLY,
	DISK_WRONLY,
	PIPE_RD,
	PIPE_WR,
	STREAM,
	DGRAM,
	UDP,
	TTY,
	PTMX,
	EVENTFD,
	TIMERFD,
	EPOLL,
	DIRECTORY,
	PATH_ONLY,
	INOTIFY,
	PIDFD,
	PROC_MEM,
	DEV_NULL,
	DEV_ZERO,
	DEV_FULL,
	CLOSED,
	KINDS,
};

/*
 * What a PREAD and a PWRITE of 8 bytes at offset 0 do: a result that comes as an event, or REFUSED
 * with an errno. The file is in the state in which neither would wait.
 */
#define REFUSED(err) (-1000 - (err))
#define EITHER_8_OR_EINVAL (-1)

static const struct {
	const char *name;
	long rd, wr;
} kinds[KINDS] = {
	[MEMFD] = {"memfd", 8, 8},
	[DISK] = {"file on disk", 8, 8},
	[DISK_RDONLY] = {"read-only file", 8, REFUSED(EBADF)},
	[DISK_WRONLY] = {"write-only file", REFUSED(EBADF), 8},
	[PIPE_RD] = {"read end", 8, REFUSED(EBADF)},
	[PIPE_WR] = {"write end", REFUSED(EBADF), 8},
	[STREAM] = {"stream socket", 8, 8},
	[DGRAM] = {"datagram socket", 8, 8},
	[UDP] = {"UDP socket", 8, 8},
	[TTY] = {"terminal", 8, 8},
	[PTMX] = {"master of a terminal", 8, 8},
	[EVENTFD] = {"eventfd", 8, REFUSED(EINVAL)},
	[TIMERFD] = {"timerfd", EITHER_8_OR_EINVAL, REFUSED(EINVAL)},
	[EPOLL] = {"epoll", REFUSED(EINVAL), REFUSED(EINVAL)},
	[DIRECTORY] = {"directory", REFUSED(EINVAL), REFUSED(EBADF)},
	[PATH_ONLY] = {"O_PATH", REFUSED(EBADF), REFUSED(EBADF)},
	[INOTIFY] = {"inotify", REFUSED(EINVAL), REFUSED(EBADF)},
	[PIDFD] = {"pidfd", REFUSED(EINVAL), REFUSED(EINVAL)},
	[PROC_MEM] = {"/proc/self/mem", REFUSED(EINVAL), REFUSED(EINVAL)},
	[DEV_NULL] = {"/dev/null", 0, 8},
	[DEV_ZERO] = {"/dev/zero", 8, 8},
	[DEV_FULL] = {"/dev/full", 8, REFUSED(EINVAL)},
	[CLOSED] = {"closed", REFUSED(EBADF), REFUSED(EBADF)},
};

struct target {
	int fd;
	int peer;
};

static int on_disk(int how)
{
	char name[64];
	int plain = file_on_disk(4096, 0), fd;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", plain);
	fd = (int)assert_ok(open(name, how | O_CLOEXEC));
	close(plain);
	return fd;
}

static void raw_mode(int fd)
{
	struct termios t;

	assert_ok(tcgetattr(fd, &t));
	cfmakeraw(&t);
	assert_ok(tcsetattr(fd, TCSANOW, &t));
}

/* A terminal in raw mode: fd is the slave, peer the master. */
static struct target tty_new(void)
{
	struct target t;
	char name[64];

	t.peer = (int)assert_ok(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
	assert_ok(grantpt(t.peer));
	assert_ok(unlockpt(t.peer));
	assert_int_equal(ptsname_r(t.peer, name, sizeof(name)), 0);
	t.fd = (int)assert_ok(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
	raw_mode(t.fd);
	return t;
}

static void sockets(struct target *t, int type)
{
	int p[2];

	assert_ok(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, p));
	t->fd = p[0];
	t->peer = p[1];
	assert_int_equal(write(t->peer, "12345678", 8), 8);
}

/* A UDP socket that is connected to itself. */
static int udp_new(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof(a);
	int fd = (int)assert_ok(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));

	assert_ok(bind(fd, (struct sockaddr *)&a, n));
	assert_ok(getsockname(fd, (struct sockaddr *)&a, &n));
	assert_ok(connect(fd, (struct sockaddr *)&a, n));
	assert_int_equal(write(fd, "12345678", 8), 8);
	return fd;
}

static struct target target_new(enum file_kind kind)
{
	const struct itimerspec now = {.it_value = {.tv_nsec = 1}};
	struct target t = {.fd = -1, .peer = -1};
	int p[2];

	switch (kind) {
	case MEMFD:
		t.fd = file_in_memory(4096);
		break;
	case DISK:
		t.fd = on_disk(O_RDWR);
		break;
	case DISK_RDONLY:
		t.fd = on_disk(O_RDONLY);
		break;
	case DISK_WRONLY:
		t.fd = on_disk(O_WRONLY);
		break;
	case PIPE_RD:
	case PIPE_WR:
		aio_pipe(p, 0);
		t.fd = p[kind == PIPE_WR];
		t.peer = p[kind == PIPE_RD];
		assert_int_equal(write(p[1], "12345678", 8), 8);
		break;
	case STREAM:
		sockets(&t, SOCK_STREAM);
		break;
	case DGRAM:
		sockets(&t, SOCK_DGRAM);
		break;
	case UDP:
		t.fd = udp_new();
		break;
	case TTY:
	case PTMX:
		t = tty_new();
		if (kind == PTMX) {
			int swap = t.fd;

			t.fd = t.peer;
			t.peer = swap;
		}
		assert_int_equal(write(t.peer, "12345678", 8), 8);
		assert_true(readable_within(t.fd, SOON_MS));
		break;
	case EVENTFD:
		t.fd = efd_new(5, EFD_CLOEXEC);
		break;
	case TIMERFD:
		t.fd = (int)assert_ok(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
		assert_ok(timerfd_settime(t.fd, 0, &now, NULL));
		assert_true(readable_within(t.fd, SOON_MS));
		break;
	case EPOLL:
		t.fd = ep_new();
		break;
	case DIRECTORY:
		t.fd = (int)assert_ok(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		break;
	case PATH_ONLY:
		t.fd = (int)assert_ok(open("/dev/null", O_PATH | O_CLOEXEC));
		break;
	case INOTIFY:
		t.fd = (int)assert_ok(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
		break;
	case PIDFD:
		t.fd = (int)assert_ok(syscall(SYS_pidfd_open, getpid(), 0));
		break;
	case PROC_MEM:
		t.fd = (int)assert_ok(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
		break;
	case DEV_NULL:
		t.fd = (int)assert_ok(open("/dev/null", O_RDWR | O_CLOEXEC));
		break;
	case DEV_ZERO:
		t.fd = (int)assert_ok(open("/dev/zero", O_RDWR | O_CLOEXEC));
		break;
	case DEV_FULL:
		t.fd = (int)assert_ok(open("/dev/full", O_RDWR | O_CLOEXEC));
		break;
	default:
		t.fd = (int)assert_ok(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
		close(t.fd);
	}
	return t;
}

static void target_free(struct target *t, enum file_kind kind)
{
	if (kind != CLOSED)
		close(t->fd);
	if (t->peer >= 0)
		close(t->peer);
}

/* The request ends in one of the ways that are written in kinds[]. */
static void ends_as(aio_context_t ctx, struct iocb *cb, long want, const char *name)
{
	struct io_event ev;
	long r;

	errno = 0;
	r = aio_submit1(ctx, cb);
	if (want == EITHER_8_OR_EINVAL)
		want = r == -1 ? REFUSED(EINVAL) : 8;
	if (want <= REFUSED(0)) {
		if (r != -1 || REFUSED(errno) != want) {
			print_error("%s, opcode %d: %ld, errno %d; expected errno %ld\n", name,
				    cb->aio_lio_opcode, r, errno, REFUSED(0) - want);
			fail();
		}
		aio_none(ctx);
		return;
	}
	if (r != 1) {
		print_error("%s, opcode %d: %ld, errno %d; expected 1\n", name, cb->aio_lio_opcode,
			    r, errno);
		fail();
	}
	aio_take(ctx, &ev, 1);
	if (ev.res != want)
		print_error("%s, opcode %d: res %lld, expected %ld\n", name, cb->aio_lio_opcode,
			    (long long)ev.res, want);
	aio_check(&ev, cb, want);
	aio_none(ctx);
}

/* What pread and pwrite could do with /proc/self/mem. */
static char mem_target[8];

static void reads_and_writes(aio_context_t ctx, enum file_kind kind, int fd)
{
	int64_t at = kind == PROC_MEM ? (int64_t)(uintptr_t)mem_target : 0;
	char buf[8] = {'8', '7', '6', '5', '4', '3', '2', '1'};
	struct iovec iov = {.iov_base = buf, .iov_len = sizeof(buf)};
	struct iocb cb;

	ends_as(ctx, aio_pread(&cb, fd, buf, sizeof(buf), at), kinds[kind].rd, kinds[kind].name);
	ends_as(ctx, aio_pwrite(&cb, fd, buf, sizeof(buf), at), kinds[kind].wr, kinds[kind].name);
	/* What was read once may have been all that there was. */
	if (kinds[kind].rd <= REFUSED(0))
		ends_as(ctx, aio_preadv(&cb, fd, &iov, 1, at), kinds[kind].rd, kinds[kind].name);
	ends_as(ctx, aio_pwritev(&cb, fd, &iov, 1, at), kinds[kind].wr, kinds[kind].name);
}

/* --- AIO-OP-01 ------------------------------------------------------------------------------- */

static bool opcode_known(unsigned int op)
{
	switch (op) {
	case IOCB_CMD_PREAD:
	case IOCB_CMD_PWRITE:
	case IOCB_CMD_FSYNC:
	case IOCB_CMD_FDSYNC:
	case IOCB_CMD_POLL:
	case IOCB_CMD_PREADV:
	case IOCB_CMD_PWRITEV:
		return true;
	default:
		return false;
	}
}

static void AIO_OP_01_opcodes_that_exist(void **state)
{
	static const unsigned int more[] = {63,	 64,	 127,	 128,	 255,	 256,	257,
					    512, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};
	aio_context_t ctx = aio_new(1);
	int file = file_in_memory(4096);
	struct iocb cb;

	(void)state;
	for (unsigned int i = 0; i < 41 + sizeof(more) / sizeof(more[0]); i++) {
		unsigned int op = i < 41 ? i : more[i - 41];

		/* All fields 0 suits each of them, but a poll of nothing at a file. */
		aio_prep(&cb, op, file, NULL, 0, 0);
		if (op == IOCB_CMD_POLL)
			aio_does(ctx, aio_poll(&cb, file, POLLIN), POLLIN);
		else if (opcode_known(op))
			aio_does(ctx, &cb, 0);
		else
			aio_refuses(ctx, &cb, EINVAL);
	}
	close(file);
	aio_free(ctx);
}

static void AIO_OP_01_unknown_opcodes_are_refused_by_every_kind_of_file(void **state)
{
	aio_context_t ctx = aio_new(1);
	char buf[8] = {'1', '2', '3', '4', '5', '6', '7', '8'};
	struct iocb cb;

	(void)state;
	for (enum file_kind kind = 0; kind < KINDS; kind++) {
		struct target t = target_new(kind);
		int want = kind == CLOSED || kind == PATH_ONLY ? EBADF : EINVAL;

		for (unsigned int op = 0; op < 21; op++)
			if (!opcode_known(op))
				aio_refuses(ctx, aio_prep(&cb, op, t.fd, buf, sizeof(buf), 0),
					    want);
		target_free(&t, kind);
	}
	aio_free(ctx);
}

static void AIO_OP_01_what_each_opcode_does(void **state)
{
	aio_context_t ctx = aio_new(4);
	char a[4], b[4], got[16];
	struct iovec in[2] = {{.iov_base = a, .iov_len = 4}, {.iov_base = b, .iov_len = 4}};
	struct iovec out[2] = {{.iov_base = "ABC", .iov_len = 3},
			       {.iov_base = "DEFG", .iov_len = 4}};
	struct iocb cb;

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(64, 0) : file_in_memory(64);

		aio_does(ctx, aio_pread(&cb, file, got, 16, 7), 16);
		assert_true(file_matches(got, 16, 7));
		aio_does(ctx, aio_preadv(&cb, file, in, 2, 20), 8);
		assert_true(file_matches(a, 4, 20) && file_matches(b, 4, 24));
		aio_does(ctx, aio_pwrite(&cb, file, "xyz", 3, 2), 3);
		aio_does(ctx, aio_pwritev(&cb, file, out, 2, 5), 7);
		aio_does(ctx, aio_fsync(&cb, file), 0);
		aio_does(ctx, aio_fdsync(&cb, file), 0);
		assert_int_equal(pread(file, got, 16, 0), 16);
		assert_memory_equal(got + 2, "xyzABCDEFG", 10);
		assert_true(file_matches(got, 2, 0) && file_matches(got + 12, 4, 12));
		assert_int_equal(lseek(file, 0, SEEK_CUR), 0);
		close(file);
	}
	aio_free(ctx);
}

static void AIO_OP_01_an_unknown_opcode_comes_after_descriptors_and_key(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_in_memory(8), epoll = ep_new();
	char *end = edge_new(PROT_READ);
	struct iocb cb, *readonly = (struct iocb *)end;

	(void)state;
	aio_refuses(ctx, aio_prep(&cb, 6, -1, NULL, 0, 0), EBADF);
	aio_refuses(ctx, aio_resfd(aio_prep(&cb, 6, file, NULL, 0, 0), -1), EBADF);
	aio_refuses(ctx, aio_resfd(aio_prep(&cb, 6, file, NULL, 0, 0), epoll), EINVAL);
	assert_ok(mprotect(end, AIO_PAGE, PROT_READ | PROT_WRITE));
	aio_prep(readonly, 6, file, NULL, 0, 0);
	assert_ok(mprotect(end, AIO_PAGE, PROT_READ));
	aio_refuses(ctx, readonly, EFAULT);
	edge_free(end);
	close(epoll);
	close(file);
	aio_free(ctx);
}

/* --- AIO-OP-02: which of two errors ---------------------------------------------------------- */

static void AIO_OP_02_priority_before_flags(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_in_memory(8);
	char buf[8];
	struct iocb cb;

	(void)state;
	for (unsigned int op = 0; op <= IOCB_CMD_PWRITEV; op++) {
		if (op != IOCB_CMD_PREAD && op != IOCB_CMD_PWRITE && op != IOCB_CMD_PREADV &&
		    op != IOCB_CMD_PWRITEV)
			continue;
		aio_prep(&cb, op, file, buf, 0, 0);
		aio_refuses(ctx, with_rw_flags(with_prio(&cb, PRIO(4, 0)), 1u << 31), EINVAL);
		aio_prep(&cb, op, file, buf, 0, 0);
		aio_refuses(ctx, with_rw_flags(with_prio(&cb, PRIO(2, 0)), 1u << 31), EOPNOTSUPP);
	}
	close(file);
	aio_free(ctx);
}

static void AIO_OP_02_priority_and_flags_before_the_mode_of_the_file(void **state)
{
	aio_context_t ctx = aio_new(1);
	int rd = on_disk(O_RDONLY), wr = on_disk(O_WRONLY);
	char buf[8];
	struct iocb cb;

	(void)state;
	aio_refuses(ctx, with_rw_flags(aio_pread(&cb, wr, buf, 8, 0), 1u << 31), EOPNOTSUPP);
	aio_refuses(ctx, with_rw_flags(aio_pwrite(&cb, rd, buf, 8, 0), 1u << 31), EOPNOTSUPP);
	aio_refuses(ctx, with_prio(aio_pread(&cb, wr, buf, 8, 0), PRIO(4, 0)), EINVAL);
	aio_refuses(ctx, with_prio(aio_pwrite(&cb, rd, buf, 8, 0), PRIO(7, 7)), EINVAL);
	close(rd);
	close(wr);
	aio_free(ctx);
}

static void AIO_OP_02_the_mode_before_what_the_file_can_do(void **state)
{
	aio_context_t ctx = aio_new(1);
	int rd = (int)assert_ok(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
	int wr = (int)assert_ok(open("/proc/self/mem", O_WRONLY | O_CLOEXEC));
	char buf[8];
	struct iocb cb;

	(void)state;
	aio_refuses(ctx, aio_pread(&cb, wr, buf, 8, 0), EBADF);
	aio_refuses(ctx, aio_pwrite(&cb, rd, buf, 8, 0), EBADF);
	aio_refuses(ctx, aio_pread(&cb, rd, buf, 8, 0), EINVAL);
	aio_refuses(ctx, aio_pwrite(&cb, wr, buf, 8, 0), EINVAL);
	close(rd);
	close(wr);
	aio_free(ctx);
}

static void AIO_OP_02_mode_and_file_before_the_vectors(void **state)
{
	aio_context_t ctx = aio_new(1);
	int rd = on_disk(O_RDONLY), wr = on_disk(O_WRONLY), epoll = ep_new();
	struct iocb cb;

	(void)state;
	aio_refuses(ctx, aio_preadv(&cb, wr, unmapped(), 1, 0), EBADF);
	aio_refuses(ctx, aio_pwritev(&cb, rd, unmapped(), 1, 0), EBADF);
	aio_refuses(ctx, aio_preadv(&cb, wr, unmapped(), 2000, 0), EBADF);
	aio_refuses(ctx, aio_preadv(&cb, epoll, unmapped(), 1, 0), EINVAL);
	aio_refuses(ctx, aio_pwritev(&cb, epoll, unmapped(), 1, 0), EINVAL);
	close(rd);
	close(wr);
	close(epoll);
	aio_free(ctx);
}

static void AIO_OP_02_vectors_before_the_offset(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_on_disk(8, 0);
	struct iovec iov = {.iov_base = &iov, .iov_len = 1};
	struct iocb cb;

	(void)state;
	aio_refuses(ctx, aio_preadv(&cb, file, unmapped(), 1, -1), EFAULT);
	aio_refuses(ctx, aio_pwritev(&cb, file, unmapped(), 1, -1), EFAULT);
	aio_refuses(ctx, aio_preadv(&cb, file, &iov, 1, -1), EINVAL);
	/* A buffer that cannot be the program's is found before the offset, too. */
	aio_refuses(ctx, aio_pread(&cb, file, (void *)~(uintptr_t)0xfff, 8, -1), EFAULT);
	aio_refuses(ctx, aio_pread(&cb, file, (void *)~(uintptr_t)0xfff, 8, 0), EFAULT);
	aio_refuses(ctx, aio_pwrite(&cb, file, (void *)~(uintptr_t)0xfff, 8, 0), EFAULT);
	/* One that could be is looked at by the operation itself. */
	aio_does(ctx, aio_pread(&cb, file, unmapped(), 8, 0), -EFAULT);
	aio_refuses(ctx, aio_pread(&cb, file, unmapped(), 8, -1), EINVAL);
	close(file);
	aio_free(ctx);
}

static void AIO_OP_02_what_the_request_says_comes_before_the_descriptor(void **state)
{
	aio_context_t ctx = aio_new(1);
	struct iocb cb;

	(void)state;
	aio_pread(&cb, -1, NULL, 8, 0);
	cb.aio_reserved2 = 1;
	aio_refuses(ctx, &cb, EINVAL);
	aio_refuses(ctx, aio_pread(&cb, -1, NULL, ~0ul, 0), EINVAL);
	aio_refuses(ctx, aio_pread(&cb, -1, NULL, 1ul << 63, 0), EINVAL);
	aio_refuses(ctx, with_prio(aio_pread(&cb, -1, NULL, 8, 0), PRIO(4, 0)), EBADF);
	aio_refuses(ctx, with_rw_flags(aio_pread(&cb, -1, NULL, 8, -1), 1u << 31), EBADF);
	aio_free(ctx);
}

/* --- AIO-OP-03 ------------------------------------------------------------------------------- */

static void AIO_OP_03_files_of_every_kind(void **state)
{
	aio_context_t ctx = aio_new(1);

	(void)state;
	for (enum file_kind kind = 0; kind < KINDS; kind++) {
		struct target t = target_new(kind);

		reads_and_writes(ctx, kind, t.fd);
		target_free(&t, kind);
	}
	aio_free(ctx);
}

/* What is known of a number must not outlive the file that it named. */
static void AIO_OP_03_a_number_that_was_an_ordinary_file(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_in_memory(4096);
	char buf[8];
	struct iocb cb;

	(void)state;
	for (enum file_kind kind = 0; kind < KINDS; kind++) {
		struct target t = target_new(kind);
		/* One that no other file has had. */
		int number = (int)assert_ok(fcntl(file, F_DUPFD_CLOEXEC, 200 + (int)kind));

		for (int i = 0; i < 3; i++)
			aio_does(ctx, aio_pread(&cb, number, buf, 8, 0), 8);
		if (kind == CLOSED)
			close(number);
		else
			assert_ok(dup3(t.fd, number, O_CLOEXEC));
		reads_and_writes(ctx, kind, number);
		close(number);
		target_free(&t, kind);
	}
	close(file);
	aio_free(ctx);
}

static void AIO_OP_03_a_number_that_becomes_an_ordinary_file(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_in_memory(4096);
	struct iocb cb;
	char buf[8];

	(void)state;
	for (enum file_kind kind = 0; kind < KINDS; kind++) {
		struct target t = target_new(kind);

		for (int i = 0; i < 3; i++)
			(void)aio_submit1(ctx, aio_pwrite(&cb, t.fd, buf, 0, 0));
		while (aio_poll_events(ctx, &(struct io_event){0}, 1) == 1)
			;
		assert_ok(dup3(file, t.fd, O_CLOEXEC));
		aio_does(ctx, aio_pread(&cb, t.fd, buf, 8, 5), 8);
		assert_true(file_matches(buf, 8, 5));
		close(t.fd);
		if (t.peer >= 0)
			close(t.peer);
	}
	close(file);
	aio_free(ctx);
}

static void AIO_OP_03_reading_an_eventfd_takes_its_count(void **state)
{
	aio_context_t ctx = aio_new(1);
	struct iocb cb;
	uint64_t v[2];

	(void)state;
	for (int semaphore = 0; semaphore < 2; semaphore++) {
		int efd = efd_new(7, EFD_NONBLOCK | (semaphore ? EFD_SEMAPHORE : 0));
		int twin = (int)assert_ok(fcntl(efd, F_DUPFD_CLOEXEC, 0));

		v[0] = 0;
		aio_does(ctx, aio_pread(&cb, efd, v, 16, 0), 8);
		assert_int_equal(v[0], semaphore ? 1 : 7);
		assert_errno(write(efd, v, 7), EINVAL);
		efd_add(twin, 3);
		assert_int_equal(efd_take(efd), semaphore ? 1 : 3);
		efd_add(efd, 1);
		aio_does(ctx, aio_pread(&cb, twin, v, 7, 0), -EINVAL);
		aio_does(ctx, aio_pread(&cb, twin, v, 8, 0), 8);
		if (!semaphore)
			aio_does(ctx, aio_pread(&cb, twin, v, 8, 0), -EAGAIN);
		close(efd);
		close(twin);
	}
	aio_free(ctx);
}

/* --- AIO-OP-04 ------------------------------------------------------------------------------- */

static void AIO_OP_04_a_negative_offset_is_refused_by_every_file(void **state)
{
	static const int64_t offsets[] = {-1, -2, -4096, INT64_MIN, INT64_MIN + 1};
	aio_context_t ctx = aio_new(1);
	char buf[8];
	struct iovec iov = {.iov_base = buf, .iov_len = 8};
	struct iocb cb;

	(void)state;
	for (enum file_kind kind = 0; kind < KINDS; kind++) {
		struct target t = target_new(kind);
		/* What comes before the offset stays as it is. */
		int rd = kinds[kind].rd == REFUSED(EBADF) ? EBADF : EINVAL;
		int wr = kinds[kind].wr == REFUSED(EBADF) ? EBADF : EINVAL;

		for (int i = 0; i < 5; i++) {
			aio_refuses(ctx, aio_pread(&cb, t.fd, buf, 8, offsets[i]), rd);
			aio_refuses(ctx, aio_pwrite(&cb, t.fd, buf, 8, offsets[i]), wr);
			aio_refuses(ctx, aio_preadv(&cb, t.fd, &iov, 1, offsets[i]), rd);
			aio_refuses(ctx, aio_pwritev(&cb, t.fd, &iov, 1, offsets[i]), wr);
			/* Also where nothing would be moved. */
			aio_refuses(ctx, aio_pread(&cb, t.fd, buf, 0, offsets[i]), rd);
			aio_refuses(ctx, aio_pwrite(&cb, t.fd, buf, 0, offsets[i]), wr);
		}
		target_free(&t, kind);
	}
	aio_free(ctx);
}

static void AIO_OP_04_other_offsets_mean_nothing_to_files_without_position(void **state)
{
	static const int64_t offsets[] = {0, 1, 4095, 1ll << 40, INT64_MAX - 8};
	aio_context_t ctx = aio_new(1);
	struct target tty = tty_new();
	int p[2], efd = efd_new(0, EFD_NONBLOCK);
	struct iocb cb;
	char buf[8];

	(void)state;
	aio_pipe(p, O_NONBLOCK);
	for (int i = 0; i < 5; i++) {
		aio_does(ctx, aio_pwrite(&cb, p[1], "pipe", 4, offsets[i]), 4);
		aio_does(ctx, aio_pread(&cb, p[0], buf, 8, offsets[4 - i]), 4);
		assert_memory_equal(buf, "pipe", 4);
		aio_does(ctx, aio_pwrite(&cb, tty.peer, "term", 4, offsets[i]), 4);
		assert_true(readable_within(tty.fd, SOON_MS));
		aio_does(ctx, aio_pread(&cb, tty.fd, buf, 8, offsets[4 - i]), 4);
		assert_memory_equal(buf, "term", 4);
		efd_add(efd, 6);
		aio_does(ctx, aio_pread(&cb, efd, buf, 8, offsets[i]), 8);
	}
	close(p[0]);
	close(p[1]);
	close(efd);
	target_free(&tty, TTY);
	aio_free(ctx);
}

/* Sockets insist on 0. */
static void AIO_OP_04_sockets_have_no_other_offset_than_0(void **state)
{
	static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
	aio_context_t ctx = aio_new(1);
	struct iocb cb;
	char buf[8];
	int s[2];

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_ok(socketpair(AF_UNIX, types[i] | SOCK_NONBLOCK, 0, s));
		aio_does(ctx, aio_pwrite(&cb, s[1], "sock", 4, 1), -ESPIPE);
		aio_does(ctx, aio_pwrite(&cb, s[1], "sock", 4, 0), 4);
		aio_does(ctx, aio_pread(&cb, s[0], buf, 8, 1ll << 40), -ESPIPE);
		aio_does(ctx, aio_pread(&cb, s[0], buf, 8, 0), 4);
		aio_does(ctx, aio_pread(&cb, s[0], buf, 8, 0), -EAGAIN);
		close(s[0]);
		close(s[1]);
	}
	aio_free(ctx);
}

static void AIO_OP_04_offset_and_length_together_must_not_overflow(void **state)
{
	aio_context_t ctx = aio_new(1);
	char buf[8];
	struct iovec iov = {.iov_base = buf, .iov_len = 8};
	struct iocb cb;

	(void)state;
	for (enum file_kind kind = 0; kind < KINDS; kind++) {
		struct target t = target_new(kind);
		int rd = kinds[kind].rd == REFUSED(EBADF) ? EBADF : EINVAL;
		int wr = kinds[kind].wr == REFUSED(EBADF) ? EBADF : EINVAL;

		aio_refuses(ctx, aio_pread(&cb, t.fd, buf, 8, INT64_MAX - 7), rd);
		aio_refuses(ctx, aio_pread(&cb, t.fd, buf, 1, INT64_MAX), rd);
		aio_refuses(ctx, aio_preadv(&cb, t.fd, &iov, 1, INT64_MAX - 7), rd);
		aio_refuses(ctx, aio_pwrite(&cb, t.fd, buf, 8, INT64_MAX - 7), wr);
		aio_refuses(ctx, aio_pwritev(&cb, t.fd, &iov, 1, INT64_MAX), wr);
		target_free(&t, kind);
	}
	aio_free(ctx);
}

/* --- AIO-OP-05 ------------------------------------------------------------------------------- */

static void AIO_OP_05_flags_that_nobody_knows(void **state)
{
	aio_context_t ctx = aio_new(1);
	char buf[8] = "";
	struct iovec iov = {.iov_base = buf, .iov_len = 8};
	struct iocb cb;
	int file = file_in_memory(64), disk = file_on_disk(64, 0), p[2];

	(void)state;
	aio_pipe(p, O_NONBLOCK);
	/* Below are flags that some of the reference kernels know and others do not. */
	for (int bit = 12; bit < 32; bit++) {
		uint32_t f = 1u << bit;

		for (int other = 0; other < 2; other++) {
			uint32_t flags = other ? f | RW_DSYNC : f;

			aio_refuses(ctx, with_rw_flags(aio_pread(&cb, file, buf, 8, 0), flags),
				    EOPNOTSUPP);
			aio_refuses(ctx, with_rw_flags(aio_pwrite(&cb, disk, buf, 8, 0), flags),
				    EOPNOTSUPP);
			aio_refuses(ctx, with_rw_flags(aio_preadv(&cb, disk, &iov, 1, 0), flags),
				    EOPNOTSUPP);
			aio_refuses(ctx, with_rw_flags(aio_pwritev(&cb, file, &iov, 1, 0), flags),
				    EOPNOTSUPP);
			aio_refuses(ctx, with_rw_flags(aio_pread(&cb, p[0], buf, 8, 0), flags),
				    EOPNOTSUPP);
		}
	}
	aio_refuses(ctx, with_rw_flags(aio_pread(&cb, file, buf, 8, 0), ~0u), EOPNOTSUPP);
	close(file);
	close(disk);
	close(p[0]);
	close(p[1]);
	aio_free(ctx);
}

/* A flag that a later kernel brought is refused or has its effect; nothing else. */
static void AIO_OP_05_flags_that_some_kernels_know(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_in_memory(64);
	struct io_event ev;
	struct iocb cb;
	char buf[8];

	(void)state;
	for (int bit = 6; bit < 12; bit++) {
		struct iovec iov = {.iov_base = buf, .iov_len = 8};
		ssize_t n;
		long r;
		int e;

		/* pread asks the same code. */
		errno = 0;
		n = preadv2(file, &iov, 1, 0, (int)(1u << bit));
		e = errno;
		errno = 0;
		r = aio_submit1(ctx, with_rw_flags(aio_pread(&cb, file, buf, 8, 0), 1u << bit));
		if (n == -1 && e == EOPNOTSUPP) {
			assert_int_equal(r, -1);
			assert_int_equal(errno, EOPNOTSUPP);
			aio_none(ctx);
			continue;
		}
		assert_int_equal(r, 1);
		aio_take(ctx, &ev, 1);
		aio_check(&ev, &cb, n == -1 ? -e : n);
	}
	close(file);
	aio_free(ctx);
}

/* The first of a context: size bytes with these flags, in one of four ways. 0 or an errno. */
static int submit_with(int way, int file, size_t size, uint32_t flags)
{
	aio_context_t ctx = aio_new(1);
	static char buf[8];
	struct iovec iov = {.iov_base = buf, .iov_len = size};
	struct iocb cb;
	int err;

	switch (way) {
	case 0:
		aio_pread(&cb, file, buf, size, 0);
		break;
	case 1:
		aio_pwrite(&cb, file, buf, size, 0);
		break;
	case 2:
		aio_preadv(&cb, file, &iov, 1, 0);
		break;
	default:
		aio_pwritev(&cb, file, &iov, 1, 0);
	}
	err = aio_submit1(ctx, with_rw_flags(&cb, flags)) == 1 ? 0 : errno;
	aio_free(ctx);
	return err;
}

/* What a file refuses for eight bytes it refuses for none. */
static void AIO_OP_05_flags_of_requests_for_nothing(void **state)
{
	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(64, 0) : file_in_memory(64);

		for (int i = 0; i < 4 * 12; i++)
			if (submit_with(i % 4, file, 8, 1u << i / 4) == EOPNOTSUPP)
				assert_int_equal(submit_with(i % 4, file, 0, 1u << i / 4),
						 EOPNOTSUPP);
		close(file);
	}
}

static void AIO_OP_05_hipri_and_sync_change_nothing_that_is_seen(void **state)
{
	static const uint32_t flags[] = {RW_HIPRI, RW_DSYNC, RW_SYNC, RW_DSYNC | RW_SYNC};
	aio_context_t ctx = aio_new(1);
	struct iocb cb;
	char buf[8];

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(64, 0) : file_in_memory(64);

		for (int i = 0; i < 4; i++) {
			aio_does(ctx, with_rw_flags(aio_pread(&cb, file, buf, 8, 3), flags[i]), 8);
			assert_true(file_matches(buf, 8, 3));
			aio_does(ctx,
				 with_rw_flags(aio_pwrite(&cb, file, "HELLO", 5, 40), flags[i]), 5);
			assert_int_equal(pread(file, buf, 5, 40), 5);
			assert_memory_equal(buf, "HELLO", 5);
			file_fill(file, 64);
		}
		close(file);
	}
	aio_free(ctx);
}

static void AIO_OP_05_nowait_turns_waiting_into_eagain(void **state)
{
	aio_context_t ctx = aio_new(1);
	char buf[8] = "";
	struct target tty = tty_new();
	struct iocb cb;
	int p[2], s[2], efd = efd_new(0, 0), full;
	static char page[1 << 20];

	(void)state;
	aio_pipe(p, 0);
	full = assert_ok(fcntl(p[1], F_GETPIPE_SZ));
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	aio_does(ctx, with_rw_flags(aio_pread(&cb, s[0], buf, 8, 0), RW_NOWAIT), -EAGAIN);
	assert_int_equal(write(s[1], "abc", 3), 3);
	aio_does(ctx, with_rw_flags(aio_pread(&cb, s[0], buf, 8, 0), RW_NOWAIT), 3);
	aio_does(ctx, with_rw_flags(aio_pread(&cb, efd, buf, 8, 0), RW_NOWAIT), -EAGAIN);
	efd_add(efd, 2);
	aio_does(ctx, with_rw_flags(aio_pread(&cb, efd, buf, 8, 0), RW_NOWAIT), 8);
	/* Pipes know it from some kernel on. */
	if (aio_submit1(ctx, with_rw_flags(aio_pread(&cb, p[0], buf, 8, 0), RW_NOWAIT)) == 1) {
		aio_expect(ctx, &cb, -EAGAIN);
		assert_int_equal(write(p[1], page, full), full);
		aio_does(ctx, with_rw_flags(aio_pwrite(&cb, p[1], buf, 8, 0), RW_NOWAIT), -EAGAIN);
		aio_does(ctx, with_rw_flags(aio_pread(&cb, p[0], page, full, 0), RW_NOWAIT), full);
	} else {
		assert_int_equal(errno, EOPNOTSUPP);
	}
	aio_refuses(ctx, with_rw_flags(aio_pread(&cb, tty.fd, buf, 8, 0), RW_NOWAIT), EOPNOTSUPP);
	target_free(&tty, TTY);
	close(efd);
	close(p[0]);
	close(p[1]);
	close(s[0]);
	close(s[1]);
	aio_free(ctx);
}

static void AIO_OP_05_nowait_reads_what_is_cached(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_on_disk(4096, 0);
	struct iocb cb;
	char buf[64];
	struct iovec v = {buf, sizeof(buf)};

	(void)state;
	assert_int_equal(pread(file, buf, 64, 0), 64);
	if (preadv2(file, &v, 1, 0, RWF_NOWAIT) == -1 && errno == EOPNOTSUPP) {
		close(file);
		aio_free(ctx);
		SKIP("the file system of TMPDIR does not read without waiting");
	}
	aio_does(ctx, with_rw_flags(aio_pread(&cb, file, buf, 64, 5), RW_NOWAIT), 64);
	assert_true(file_matches(buf, 64, 5));
	close(file);
	aio_free(ctx);
}

static void AIO_OP_05_append_writes_at_the_end(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_on_disk(16, 0);
	struct iocb cb;
	char buf[32];

	(void)state;
	aio_does(ctx, with_rw_flags(aio_pwrite(&cb, file, "one", 3, 2), RW_APPEND), 3);
	aio_does(ctx, with_rw_flags(aio_pwrite(&cb, file, "two", 3, 0), RW_APPEND), 3);
	assert_int_equal(pread(file, buf, 32, 0), 22);
	assert_true(file_matches(buf, 16, 0));
	assert_memory_equal(buf + 16, "onetwo", 6);
	close(file);
	aio_free(ctx);
}

/* --- AIO-OP-06 ------------------------------------------------------------------------------- */

static void AIO_OP_06_classes_of_priority(void **state)
{
	aio_context_t ctx = aio_new(1);
	struct iocb cb;
	char buf[8] = {'1', '2', '3', '4', '5', '6', '7', '8'};
	struct iovec iov = {.iov_base = buf, .iov_len = 8};

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(64, 0) : file_in_memory(64);

		for (int class = 0; class < 8; class ++) {
			uint16_t prio = PRIO(class, 0);

			/* Real time wants a privilege: see below. */
			if (class == 1)
				continue;
			if (class < 4) {
				aio_does(ctx, with_prio(aio_pread(&cb, file, buf, 8, 0), prio), 8);
				aio_does(ctx, with_prio(aio_pwrite(&cb, file, buf, 8, 0), prio), 8);
				aio_does(ctx, with_prio(aio_preadv(&cb, file, &iov, 1, 0), prio),
					 8);
				aio_does(ctx, with_prio(aio_pwritev(&cb, file, &iov, 1, 0), prio),
					 8);
			} else {
				aio_refuses(ctx, with_prio(aio_pread(&cb, file, buf, 8, 0), prio),
					    EINVAL);
				aio_refuses(ctx, with_prio(aio_pwrite(&cb, file, buf, 8, 0), prio),
					    EINVAL);
				aio_refuses(ctx, with_prio(aio_preadv(&cb, file, &iov, 1, 0), prio),
					    EINVAL);
				aio_refuses(ctx,
					    with_prio(aio_pwritev(&cb, file, &iov, 1, 0), prio),
					    EINVAL);
			}
		}
		/* No class has no degrees. */
		aio_refuses(ctx, with_prio(aio_pread(&cb, file, buf, 8, 0), PRIO(0, 1)), EINVAL);
		for (int level = 0; level < 8; level++)
			aio_does(ctx, with_prio(aio_pread(&cb, file, buf, 8, 0), PRIO(2, level)),
				 8);
		close(file);
	}
	aio_free(ctx);
}

static void drop_capabilities(void)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {{0}};

	child_check(syscall(SYS_capset, &head, none) == 0);
}

static void real_time_without_privilege(void *arg)
{
	aio_context_t ctx = 0;
	struct io_event ev;
	struct iocb cb;
	char buf[8];
	int file = *(int *)arg;

	drop_capabilities();
	child_check(aio_setup_in_turn(1, &ctx) == 0);
	child_errno(aio_submit1(ctx, with_prio(aio_pread(&cb, file, buf, 8, 0), PRIO(1, 0))),
		    EPERM);
	/* Before the flags and the mode. */
	child_errno(aio_submit1(ctx, with_rw_flags(
					     with_prio(aio_pread(&cb, file, buf, 8, 0), PRIO(1, 0)),
					     1u << 31)),
		    EPERM);
	child_check(aio_submit1(ctx, with_prio(aio_pread(&cb, file, buf, 8, 0), PRIO(2, 4))) == 1);
	child_check(aio_getevents(ctx, 1, 1, &ev, NULL) == 1 && ev.res == 8);
	child_check(aio_destroy(ctx) == 0);
}

static bool has_capability(int cap)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	assert_ok(syscall(SYS_capget, &head, data));
	return data[cap / 32].effective & 1u << cap % 32;
}

static void AIO_OP_06_real_time_wants_a_privilege(void **state)
{
	int file = file_in_memory(8);

	(void)state;
	in_child(real_time_without_privilege, &file);
	if (has_capability(CAP_SYS_NICE) || has_capability(CAP_SYS_ADMIN)) {
		aio_context_t ctx = aio_new(1);
		struct iocb cb;
		char buf[8];

		aio_does(ctx, with_prio(aio_pread(&cb, file, buf, 8, 0), PRIO(1, 0)), 8);
		aio_does(ctx, with_prio(aio_pread(&cb, file, buf, 8, 0), PRIO(1, 7)), 8);
		aio_free(ctx);
	}
	close(file);
}

static void AIO_OP_06_without_the_flag_the_priority_is_ignored(void **state)
{
	static const uint16_t prios[] = {1, PRIO(0, 1), PRIO(1, 0), PRIO(4, 0), PRIO(7, 7), 0xffff};
	aio_context_t ctx = aio_new(1);
	int file = file_in_memory(64);
	struct iocb cb;
	char buf[8];

	(void)state;
	for (int i = 0; i < 6; i++) {
		aio_pread(&cb, file, buf, 8, 0);
		cb.aio_reqprio = (int16_t)prios[i];
		aio_does(ctx, &cb, 8);
		aio_pwrite(&cb, file, buf, 8, 0);
		cb.aio_reqprio = (int16_t)prios[i];
		aio_does(ctx, &cb, 8);
	}
	close(file);
	aio_free(ctx);
}

static void AIO_OP_06_only_reads_and_writes_have_a_priority(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_in_memory(64);
	struct iocb cb;

	(void)state;
	aio_does(ctx, with_prio(aio_fsync(&cb, file), PRIO(7, 7)), 0);
	aio_does(ctx, with_prio(aio_fdsync(&cb, file), PRIO(4, 0)), 0);
	aio_does(ctx, with_prio(aio_poll(&cb, file, POLLIN), PRIO(7, 7)), POLLIN);
	close(file);
	aio_free(ctx);
}

/* --- AIO-OP-07 ------------------------------------------------------------------------------- */

static void AIO_OP_07_unknown_flags_of_the_request_are_ignored(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_in_memory(64), efd = efd_new(0, EFD_NONBLOCK);
	struct iocb cb;
	char buf[8];

	(void)state;
	for (int bit = 2; bit <= 32; bit++) {
		uint32_t flags = bit < 32 ? 1u << bit : ~3u;

		aio_pread(&cb, file, buf, 8, 0);
		cb.aio_flags = flags;
		/* Without its flag the eventfd is not looked at either. */
		cb.aio_resfd = bit % 2 ? (uint32_t)efd : ~0u;
		aio_does(ctx, &cb, 8);
		aio_pwrite(&cb, file, buf, 8, 0);
		cb.aio_flags = flags;
		aio_does(ctx, &cb, 8);
		aio_fsync(&cb, file);
		cb.aio_flags = flags;
		aio_does(ctx, &cb, 0);
		aio_poll(&cb, file, POLLOUT);
		cb.aio_flags = flags;
		aio_does(ctx, &cb, POLLOUT);
	}
	assert_errno(read(efd, buf, 8), EAGAIN);
	close(efd);
	close(file);
	aio_free(ctx);
}

/* --- AIO-OP-08 ------------------------------------------------------------------------------- */

#define VEC_MAX 1024

static void AIO_OP_08_numbers_of_vectors(void **state)
{
	static const int good[] = {0, 1, 2, 7, 8, 9, 255, 1023, 1024};
	static const size_t bad[] = {1025, 2048, 65536, INT32_MAX, 1ul << 31};
	static struct iovec iov[VEC_MAX + 1];
	static unsigned char in[2 * (VEC_MAX + 1)];
	aio_context_t ctx = aio_new(1);
	struct iocb cb;

	(void)state;
	for (int i = 0; i <= VEC_MAX; i++)
		iov[i] = (struct iovec){.iov_base = in + 2 * i, .iov_len = 2};
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(8192, 0) : file_in_memory(8192);

		for (int i = 0; i < 9; i++) {
			memset(in, 0, sizeof(in));
			aio_does(ctx, aio_preadv(&cb, file, iov, (size_t)good[i], 11), 2 * good[i]);
			assert_true(file_matches(in, (size_t)(2 * good[i]), 11));
			assert_int_equal(in[2 * good[i]], 0);
			aio_does(ctx, aio_pwritev(&cb, file, iov, (size_t)good[i], 11),
				 2 * good[i]);
		}
		for (int i = 0; i < 5; i++) {
			aio_refuses(ctx, aio_preadv(&cb, file, iov, bad[i], 0), EINVAL);
			aio_refuses(ctx, aio_pwritev(&cb, file, iov, bad[i], 0), EINVAL);
		}
		/* The number alone is wrong before the array is. */
		aio_refuses(ctx, aio_preadv(&cb, file, unmapped(), 1025, 0), EINVAL);
		close(file);
	}
	aio_free(ctx);
}

static void AIO_OP_08_an_array_that_is_not_there(void **state)
{
	aio_context_t ctx = aio_new(1);
	char *end = edge_new(PROT_NONE), buf[8];
	struct iovec *iov = (struct iovec *)end - 2;
	struct iocb cb;

	(void)state;
	iov[0] = (struct iovec){.iov_base = buf, .iov_len = 4};
	iov[1] = (struct iovec){.iov_base = buf + 4, .iov_len = 4};
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(64, 0) : file_in_memory(64);

		aio_does(ctx, aio_preadv(&cb, file, iov, 2, 9), 8);
		assert_true(file_matches(buf, 8, 9));
		aio_refuses(ctx, aio_preadv(&cb, file, iov, 3, 0), EFAULT);
		aio_refuses(ctx, aio_pwritev(&cb, file, iov, 3, 0), EFAULT);
		aio_refuses(ctx, aio_preadv(&cb, file, (void *)end, 1, 0), EFAULT);
		aio_refuses(ctx, aio_preadv(&cb, file, (void *)(end - 8), 1, 0), EFAULT);
		aio_refuses(ctx, aio_pwritev(&cb, file, (void *)end, 1, 0), EFAULT);
		aio_refuses(ctx, aio_preadv(&cb, file, NULL, 1, 0), EFAULT);
		for (size_t i = 0; i < BAD_ADDRESSES; i++)
			aio_refuses(ctx, aio_preadv(&cb, file, (void *)bad_addresses[i], 2, 0),
				    EFAULT);
		/* None of no vectors is read. */
		aio_does(ctx, aio_preadv(&cb, file, NULL, 0, 0), 0);
		aio_does(ctx, aio_pwritev(&cb, file, NULL, 0, 0), 0);
		close(file);
	}
	edge_free(end);
	aio_free(ctx);
}

static void AIO_OP_08_a_negative_length(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = file_on_disk(64, 0);
	char buf[32] = "";
	struct iocb cb;

	(void)state;
	for (int n = 1; n <= 12; n++) {
		struct iovec iov[12];

		for (int bad = 0; bad < n; bad++) {
			for (int i = 0; i < n; i++)
				iov[i] = (struct iovec){.iov_base = buf, .iov_len = 2};
			iov[bad].iov_len = bad % 2 ? (size_t)-1 : 1ul << 63;
			aio_refuses(ctx, aio_preadv(&cb, file, iov, (size_t)n, 0), EINVAL);
			aio_refuses(ctx, aio_pwritev(&cb, file, iov, (size_t)n, 0), EINVAL);
		}
	}
	assert_int_equal(pread(file, buf, 32, 0), 32);
	assert_true(file_matches(buf, 32, 0));
	close(file);
	aio_free(ctx);
}

static void AIO_OP_08_vectors_of_any_shape(void **state)
{
	aio_context_t ctx = aio_new(1);
	unsigned char buf[64], back[64];
	struct iovec iov[6] = {
		{.iov_base = buf, .iov_len = 0},	{.iov_base = buf + 40, .iov_len = 3},
		{.iov_base = NULL, .iov_len = 0},	{.iov_base = buf, .iov_len = 17},
		{.iov_base = unmapped(), .iov_len = 0}, {.iov_base = buf + 30, .iov_len = 1}};
	struct iocb cb;

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(64, 0) : file_in_memory(64);

		memset(buf, 0, sizeof(buf));
		aio_does(ctx, aio_preadv(&cb, file, iov, 6, 5), 21);
		assert_true(file_matches(buf + 40, 3, 5) && file_matches(buf, 17, 8) &&
			    file_matches(buf + 30, 1, 25));
		aio_does(ctx, aio_pwritev(&cb, file, iov, 6, 33), 21);
		assert_int_equal(pread(file, back, 64, 0), 64);
		assert_true(file_matches(back, 33, 0) && file_matches(back + 33, 21, 5) &&
			    file_matches(back + 54, 10, 54));
		close(file);
	}
	aio_free(ctx);
}

/* --- AIO-OP-09: results ---------------------------------------------------------------------- */

static void AIO_OP_09_counts_at_the_end_of_the_file(void **state)
{
	aio_context_t ctx = aio_new(1);
	unsigned char buf[256];
	struct iovec iov[2] = {{.iov_base = buf, .iov_len = 60},
			       {.iov_base = buf + 60, .iov_len = 60}};
	struct iocb cb;

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(100, 0) : file_in_memory(100);

		aio_does(ctx, aio_pread(&cb, file, buf, 100, 0), 100);
		aio_does(ctx, aio_pread(&cb, file, buf, 101, 0), 100);
		memset(buf, 0, sizeof(buf));
		aio_does(ctx, aio_pread(&cb, file, buf, 256, 70), 30);
		assert_true(file_matches(buf, 30, 70) && buf[30] == 0);
		aio_does(ctx, aio_preadv(&cb, file, iov, 2, 30), 70);
		aio_does(ctx, aio_pread(&cb, file, buf, 1, 99), 1);
		aio_does(ctx, aio_pread(&cb, file, buf, 1, 100), 0);
		aio_does(ctx, aio_pread(&cb, file, buf, 256, 5000), 0);
		aio_does(ctx, aio_pread(&cb, file, buf, 256, 1ll << 60), 0);
		aio_does(ctx, aio_pread(&cb, file, buf, 8, INT64_MAX - 8), 0);
		aio_does(ctx, aio_pread(&cb, file, buf, 0, INT64_MAX), 0);
		aio_does(ctx, aio_pread(&cb, file, buf, 0, 0), 0);
		aio_does(ctx, aio_pread(&cb, file, NULL, 0, 0), 0);
		aio_does(ctx, aio_pwrite(&cb, file, NULL, 0, 0), 0);
		/* No byte is moved, so that the buffer does not matter. */
		aio_does(ctx, aio_pread(&cb, file, unmapped(), 8, 100), 0);
		close(file);
	}
	aio_free(ctx);
}

static void AIO_OP_09_writes_make_the_file_longer(void **state)
{
	aio_context_t ctx = aio_new(1);
	char buf[64];
	struct iocb cb;

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(10, 0) : file_in_memory(10);
		struct stat st;

		aio_does(ctx, aio_pwrite(&cb, file, "abc", 3, 9), 3);
		aio_does(ctx, aio_pwrite(&cb, file, "xyz", 3, 20), 3);
		assert_ok(fstat(file, &st));
		assert_int_equal(st.st_size, 23);
		assert_int_equal(pread(file, buf, 64, 9), 14);
		assert_memory_equal(buf, "abc\0\0\0\0\0\0\0\0xyz", 14);
		/* A write of nothing beyond the end changes nothing. */
		aio_does(ctx, aio_pwrite(&cb, file, buf, 0, 1000), 0);
		assert_ok(fstat(file, &st));
		assert_int_equal(st.st_size, 23);
		close(file);
	}
	aio_free(ctx);
}

static void AIO_OP_09_bad_buffers(void **state)
{
	aio_context_t ctx = aio_new(1);
	char *end = edge_new(PROT_NONE), *rdonly = edge_new(PROT_READ), back[64];
	struct iovec iov[2] = {{.iov_base = back, .iov_len = 16}, {.iov_base = end, .iov_len = 16}};
	struct iocb cb;

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(8192, 0) : file_in_memory(8192);

		aio_does(ctx, aio_pread(&cb, file, end, 8, 0), -EFAULT);
		aio_does(ctx, aio_pwrite(&cb, file, end, 8, 0), -EFAULT);
		aio_does(ctx, aio_pread(&cb, file, rdonly, 8, 0), -EFAULT);
		aio_does(ctx, aio_pread(&cb, file, NULL, 8, 0), -EFAULT);
		aio_does(ctx, aio_preadv(&cb, file, iov + 1, 1, 0), -EFAULT);
		aio_does(ctx, aio_pwritev(&cb, file, iov + 1, 1, 0), -EFAULT);
		/* What comes before the bad part may be moved. */
		aio_does(ctx, aio_preadv(&cb, file, iov, 2, 0), 16);
		assert_true(file_matches(back, 16, 0));
		assert_int_equal(pread(file, back, 64, 0), 64);
		assert_true(file_matches(back, 64, 0));
		close(file);
	}
	edge_free(end);
	edge_free(rdonly);
	aio_free(ctx);
}

static void AIO_OP_09_files_that_do_not_wait(void **state)
{
	aio_context_t ctx = aio_new(1);
	static char big[1 << 20];
	struct io_event ev;
	struct iocb cb;
	int p[2], s[2], full;

	(void)state;
	aio_pipe(p, O_NONBLOCK);
	full = assert_ok(fcntl(p[1], F_GETPIPE_SZ));
	aio_does(ctx, aio_pread(&cb, p[0], big, 8, 0), -EAGAIN);
	aio_does(ctx, aio_pwrite(&cb, p[1], big, sizeof(big), 0), full);
	aio_does(ctx, aio_pwrite(&cb, p[1], big, 8, 0), -EAGAIN);
	aio_does(ctx, aio_pread(&cb, p[0], big, sizeof(big), 0), full);
	aio_does(ctx, aio_pwrite(&cb, p[1], "abc", 3, 0), 3);
	aio_does(ctx, aio_pread(&cb, p[0], big, 2, 0), 2);
	close(p[1]);
	aio_does(ctx, aio_pread(&cb, p[0], big, 8, 0), 1);
	aio_does(ctx, aio_pread(&cb, p[0], big, 8, 0), 0);
	close(p[0]);

	assert_ok(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
	aio_does(ctx, aio_pread(&cb, s[0], big, 8, 0), -EAGAIN);
	aio_accept1(ctx, aio_pwrite(&cb, s[0], big, sizeof(big), 0));
	aio_take(ctx, &ev, 1);
	assert_uint_in_range(ev.res, 1, sizeof(big) - 1);
	aio_does(ctx, aio_pwrite(&cb, s[0], big, sizeof(big), 0), -EAGAIN);
	close(s[1]);
	close(s[0]);
	aio_free(ctx);
}

/* Datagrams keep their bounds. */
static void AIO_OP_09_datagrams(void **state)
{
	aio_context_t ctx = aio_new(1);
	struct iocb cb;
	char buf[16];
	int s[2];

	(void)state;
	assert_ok(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, s));
	aio_does(ctx, aio_pwrite(&cb, s[0], "first", 5, 0), 5);
	aio_does(ctx, aio_pwrite(&cb, s[0], "second", 6, 0), 6);
	aio_does(ctx, aio_pread(&cb, s[1], buf, 2, 0), 2);
	aio_does(ctx, aio_pread(&cb, s[1], buf, 16, 0), 6);
	assert_memory_equal(buf, "second", 6);
	close(s[0]);
	aio_does(ctx, aio_pread(&cb, s[1], buf, 16, 0), 0);
	close(s[1]);
	aio_free(ctx);
}

/* A terminal whose other side is gone fails with EIO. */
static void AIO_OP_09_input_and_output_errors(void **state)
{
	aio_context_t ctx = aio_new(1);
	struct target t = tty_new();
	struct iocb cb;
	char buf[8];

	(void)state;
	close(t.peer);
	aio_does(ctx, aio_pwrite(&cb, t.fd, "x", 1, 0), -EIO);
	aio_does(ctx, aio_pread(&cb, t.fd, buf, 8, 0), 0);
	close(t.fd);
	t = tty_new();
	close(t.fd);
	aio_does(ctx, aio_pread(&cb, t.peer, buf, 8, 0), -EIO);
	close(t.peer);
	aio_free(ctx);
}

static void AIO_OP_09_sealed_files(void **state)
{
	aio_context_t ctx = aio_new(1);
	int file = (int)assert_ok(syscall(SYS_memfd_create, "aio", 3u));
	struct iocb cb;
	char buf[8];

	(void)state;
	file_fill(file, 4096);
	assert_ok(fcntl(file, F_ADD_SEALS, F_SEAL_GROW));
	aio_does(ctx, aio_pwrite(&cb, file, "x", 1, 4095), 1);
	aio_does(ctx, aio_pwrite(&cb, file, "x", 1, 4096), -EPERM);
	assert_ok(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE));
	aio_does(ctx, aio_pwrite(&cb, file, "x", 1, 0), -EPERM);
	aio_does(ctx, aio_pread(&cb, file, buf, 8, 0), 8);
	assert_true(file_matches(buf, 8, 0));
	close(file);
	aio_free(ctx);
}

static volatile sig_atomic_t xfsz;

static void on_xfsz(int sig)
{
	(void)sig;
	xfsz++;
}

static int64_t child_result(aio_context_t ctx, struct iocb *cb)
{
	struct io_event ev;

	child_check(aio_submit1(ctx, cb) == 1);
	child_check(aio_getevents(ctx, 1, 1, &ev, NULL) == 1);
	child_check(ev.obj == (uintptr_t)cb);
	/* The thread sanitizer runs handlers of signals when the next function of libc is called.
	 */
	if (SANITIZED == 2)
		usleep(1000);
	return ev.res;
}

/* The thread sanitizer keeps signals back, in the child of a fork to the end. */
static bool signals_are(int n)
{
	return SANITIZED == 2 || xfsz == n;
}

static void beyond_the_limit(void *arg)
{
	struct rlimit lim = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
	aio_context_t ctx = 0;
	int file = *(int *)arg;
	struct iocb cb;
	char buf[32] = "";
	ssize_t n;

	signal(SIGXFSZ, on_xfsz);
	child_check(aio_setup_in_turn(1, &ctx) == 0);
	child_check(getrlimit(RLIMIT_FSIZE, &lim) == 0);
	lim.rlim_cur = 100;
	child_check(setrlimit(RLIMIT_FSIZE, &lim) == 0);
	child_check(child_result(ctx, aio_pwrite(&cb, file, buf, 10, 90)) == 10 && signals_are(0));
	child_check(child_result(ctx, aio_pwrite(&cb, file, buf, 32, 90)) == 10 && signals_are(0));
	child_check(child_result(ctx, aio_pwrite(&cb, file, buf, 1, 100)) == -EFBIG &&
		    signals_are(1));
	child_check(child_result(ctx, aio_pwrite(&cb, file, buf, 8, 1000)) == -EFBIG &&
		    signals_are(2));
	child_check(child_result(ctx, aio_pread(&cb, file, buf, 32, 90)) == 10);
	signal(SIGXFSZ, SIG_IGN);
	child_check(child_result(ctx, aio_pwrite(&cb, file, buf, 8, 100)) == -EFBIG &&
		    signals_are(2));
	lim.rlim_cur = lim.rlim_max;
	child_check(setrlimit(RLIMIT_FSIZE, &lim) == 0);
	/* The file system's own limit, if it has one, sends no signal. */
	n = pwrite(file, buf, 1, INT64_MAX - 1);
	child_check(n == 1 || errno == EFBIG);
	child_check(child_result(ctx, aio_pwrite(&cb, file, buf, 1, INT64_MAX - 1)) ==
		    (n == 1 ? 1 : -EFBIG));
	child_check(signals_are(2));
	child_check(aio_destroy(ctx) == 0);
}

static void AIO_OP_09_the_limit_of_file_sizes(void **state)
{
	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(50, 0) : file_in_memory(50);

		in_child(beyond_the_limit, &file);
		close(file);
	}
}

/* By default the signal ends the process. */
static void dies_of_the_limit(void *arg)
{
	struct rlimit lim = {.rlim_cur = 100, .rlim_max = 100};
	aio_context_t ctx = 0;
	struct iocb cb;

	signal(SIGXFSZ, SIG_DFL);
	child_check(aio_setup_in_turn(1, &ctx) == 0);
	child_check(setrlimit(RLIMIT_CORE, &(struct rlimit){0}) == 0);
	child_check(setrlimit(RLIMIT_FSIZE, &lim) == 0);
	aio_submit1(ctx, aio_pwrite(&cb, *(int *)arg, "x", 1, 100));
}

static void AIO_OP_09_beyond_the_limit_the_process_ends(void **state)
{
	int file = file_in_memory(50);
	pid_t pid = fork_bounded();

	(void)state;
	if (pid == 0) {
		dies_of_the_limit(&file);
		_exit(0);
	}
	assert_int_equal(child_end(pid), 128 + SIGXFSZ);
	close(file);
}

/* A file on a tmpfs of its own with so many bytes, which nobody else sees; -1: not permitted. */
static int file_on_small_tmpfs(const char *size)
{
	int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC), mnt, file = -1;

	if (fs == -1)
		return -1;
	if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "size", size, 0) == 0 &&
	    syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0 &&
	    (mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0)) != -1) {
		file = openat(mnt, "file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		close(mnt);
	}
	close(fs);
	return file;
}

static void AIO_OP_09_a_full_file_system(void **state)
{
	static char buf[65536];
	aio_context_t ctx;
	struct io_event ev;
	struct iocb cb;
	struct iovec iov = {.iov_base = buf, .iov_len = sizeof(buf)};
	int file = file_on_small_tmpfs("64k");
	struct stat st;
	int64_t at = 0;

	(void)state;
	if (file == -1)
		SKIP("no tmpfs can be mounted here: %s", strerror(errno));
	ctx = aio_new(1);
	aio_does(ctx, aio_pwrite(&cb, file, buf, 40000, 0), 40000);
	/* What fits is written, and the rest is short. */
	aio_accept1(ctx, aio_pwrite(&cb, file, buf, sizeof(buf), 40000));
	aio_take(ctx, &ev, 1);
	assert_uint_in_range(ev.res, 1, sizeof(buf) - 1);
	at = 40000 + ev.res;
	assert_ok(fstat(file, &st));
	assert_int_equal(st.st_size, at);
	aio_does(ctx, aio_pwrite(&cb, file, buf, 8, at + 4096), -ENOSPC);
	aio_does(ctx, aio_pwritev(&cb, file, &iov, 1, 1 << 20), -ENOSPC);
	assert_ok(fstat(file, &st));
	assert_int_equal(st.st_size, at);
	/* What is there can be overwritten and read. */
	aio_does(ctx, aio_pwrite(&cb, file, "again", 5, 10), 5);
	aio_does(ctx, aio_pread(&cb, file, buf, 5, 10), 5);
	assert_memory_equal(buf, "again", 5);
	close(file);
	aio_free(ctx);
}

/* A loop device over this file; -1: not permitted. It goes with its last descriptor. */
static int loop_over(int backing, int flags)
{
	int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC), fd = -1;

	for (int i = 0; ctl != -1 && i < 20 && fd == -1; i++) {
		int n = ioctl(ctl, LOOP_CTL_GET_FREE);
		struct loop_info64 info;
		char name[32];

		if (n < 0)
			break;
		snprintf(name, sizeof(name), "/dev/loop%d", n);
		fd = open(name, O_RDWR | O_CLOEXEC | flags);
		if (fd == -1)
			break;
		if (ioctl(fd, LOOP_SET_FD, backing) == -1) {
			/* Somebody else was faster. */
			close(fd);
			fd = -1;
			continue;
		}
		memset(&info, 0, sizeof(info));
		info.lo_flags = LO_FLAGS_AUTOCLEAR;
		if (ioctl(fd, LOOP_SET_STATUS64, &info) == -1) {
			ioctl(fd, LOOP_CLR_FD, 0);
			close(fd);
			fd = -1;
			break;
		}
	}
	if (ctl != -1)
		close(ctl);
	return fd;
}

/* A disk that fails: its bytes are kept in a file system that is full. */
static void AIO_OP_09_a_disk_that_fails(void **state)
{
	aio_context_t ctx;
	struct iocb cb;
	char *buf;
	int file = file_on_small_tmpfs("64k"), direct, buffered, err;
	char name[64];

	(void)state;
	if (file == -1)
		SKIP("no tmpfs can be mounted here: %s", strerror(errno));
	assert_ok(ftruncate(file, 1 << 20));
	direct = loop_over(file, O_DIRECT);
	err = errno;
	if (direct == -1)
		close(file);
	if (direct == -1)
		SKIP("no loop device can be had here: %s", strerror(err));
	ctx = aio_new(1);
	buf = aligned(1 << 19);
	memset(buf, 'x', 1 << 19);
	aio_does(ctx, aio_pwrite(&cb, direct, buf, 4096, 0), 4096);
	/* The driver hides that only a part of a write fitted: fill what is left, page by page. */
	for (off_t at = 4096; pwrite(direct, buf, 4096, at) == 4096; at += 4096)
		assert_true(at < 1 << 19);
	err = errno;
	assert_true(err == EIO || err == ENOSPC);
	aio_does(ctx, aio_pwrite(&cb, direct, buf, 4096, 1 << 19), -err);
	aio_does(ctx, aio_pwrite(&cb, direct, buf, 1 << 17, 1 << 19), -err);
	buf[4095] = 0;
	aio_does(ctx, aio_pread(&cb, direct, buf, 4096, 0), 4096);
	assert_int_equal(buf[4095], 'x');

	/* Through the cache the write succeeds and its error is found by the next sync. */
	snprintf(name, sizeof(name), "/proc/self/fd/%d", direct);
	buffered = (int)assert_ok(open(name, O_RDWR | O_CLOEXEC));
	aio_does(ctx, aio_pwrite(&cb, buffered, buf, 1 << 19, 1 << 19), 1 << 19);
	aio_does(ctx, aio_fsync(&cb, buffered), -EIO);
	/* It is told once. */
	aio_does(ctx, aio_fdsync(&cb, buffered), 0);
	close(buffered);
	close(direct);
	close(file);
	free(buf);
	aio_free(ctx);
}

/* --- O_DIRECT -------------------------------------------------------------------------------- */

static void direct_reads_and_writes(int file)
{
	aio_context_t ctx = aio_new(8);
	char *buf, *back;
	struct iocb cb[8], *list[8];
	struct io_event ev[8];

	buf = aligned(8 * 4096);
	back = aligned(8 * 4096);
	/* The file has 6 pages and a half. */
	aio_does(ctx, aio_pread(&cb[0], file, buf, 4096, 4096), 4096);
	assert_true(file_matches(buf, 4096, 4096));
	aio_does(ctx, aio_pread(&cb[0], file, buf, 8 * 4096, 0), 6 * 4096 + 2048);
	assert_true(file_matches(buf, 6 * 4096 + 2048, 0));
	aio_does(ctx, aio_pread(&cb[0], file, buf, 8192, 6 * 4096), 2048);
	aio_does(ctx, aio_pread(&cb[0], file, buf, 4096, 16 * 4096), 0);
	for (int i = 0; i < 8; i++) {
		memset(buf + i * 4096, 'a' + i, 4096);
		list[i] = aio_pwrite(&cb[i], file, buf + i * 4096, 4096, i * 4096);
	}
	aio_accept(ctx, list, 8);
	aio_take(ctx, ev, 8);
	for (int i = 0; i < 8; i++) {
		struct iocb *of = (struct iocb *)(uintptr_t)ev[i].obj;

		aio_check(&ev[i], of, 4096);
		assert_uint_in_range(of - cb, 0, 7);
		list[i] = aio_pread(&cb[i], file, back + i * 4096, 4096, i * 4096);
	}
	aio_accept(ctx, list, 8);
	aio_take(ctx, ev, 8);
	assert_memory_equal(buf, back, 8 * 4096);
	aio_none(ctx);
	free(buf);
	free(back);
	aio_free(ctx);
}

static void AIO_OP_09_direct_input_and_output_on_disk(void **state)
{
	int file = file_on_disk(6 * 4096 + 2048, O_DIRECT);

	(void)state;
	if (file == -1)
		SKIP("the file system of TMPDIR has no O_DIRECT");
	direct_reads_and_writes(file);
	close(file);
}

static void AIO_OP_09_direct_input_and_output_in_memory(void **state)
{
	int file = file_in_memory(6 * 4096 + 2048);

	(void)state;
	if (fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_DIRECT) == -1) {
		close(file);
		SKIP("tmpfs has no O_DIRECT here");
	}
	direct_reads_and_writes(file);
	close(file);
}

/* What is not aligned ends as pread and pwrite do. */
static void AIO_OP_09_direct_and_not_aligned(void **state)
{
	static const struct {
		int buf, n, offset;
	} odd[] = {{1, 4096, 0}, {0, 4095, 0}, {0, 100, 0}, {0, 4096, 1}, {3, 7, 11}};
	int file = file_on_disk(8192, O_DIRECT);
	aio_context_t ctx;
	struct iocb cb;
	char *buf;

	(void)state;
	if (file == -1)
		SKIP("the file system of TMPDIR has no O_DIRECT");
	ctx = aio_new(1);
	buf = aligned(8192);
	memset(buf, 0, 8192);
	for (int i = 0; i < 5; i++) {
		size_t n = (size_t)odd[i].n;
		ssize_t rd, wr;

		errno = 0;
		rd = pread(file, buf + odd[i].buf, n, odd[i].offset);
		rd = rd == -1 ? -errno : rd;
		aio_does(ctx, aio_pread(&cb, file, buf + odd[i].buf, n, odd[i].offset), rd);
		errno = 0;
		wr = pwrite(file, buf + odd[i].buf, n, odd[i].offset);
		wr = wr == -1 ? -errno : wr;
		aio_does(ctx, aio_pwrite(&cb, file, buf + odd[i].buf, n, odd[i].offset), wr);
	}
	free(buf);
	close(file);
	aio_free(ctx);
}

/* O_DIRECT may come and go while the file is in use. */
static void AIO_OP_09_direct_is_switched_on_and_off(void **state)
{
	int file = file_on_disk(8192, 0);
	aio_context_t ctx = aio_new(1);
	struct iocb cb;
	char *buf;

	(void)state;
	buf = aligned(4096);
	for (int i = 0; i < 4; i++) {
		bool direct = i % 2;

		if (fcntl(file, F_SETFL, direct ? O_DIRECT : 0) == -1) {
			free(buf);
			close(file);
			aio_free(ctx);
			SKIP("the file system of TMPDIR has no O_DIRECT");
		}
		for (int j = 0; j < 3; j++) {
			memset(buf, 'A' + 4 * i + j, 4096);
			aio_does(ctx, aio_pwrite(&cb, file, buf, 4096, 4096), 4096);
			memset(buf, 0, 4096);
			aio_does(ctx, aio_pread(&cb, file, buf, 4096, 4096), 4096);
			assert_int_equal(buf[0], 'A' + 4 * i + j);
			assert_int_equal(buf[4095], 'A' + 4 * i + j);
		}
		if (!direct)
			aio_does(ctx, aio_pread(&cb, file, buf, 10, 5), 10);
	}
	free(buf);
	close(file);
	aio_free(ctx);
}

/* --- AIO-OP-10 ------------------------------------------------------------------------------- */

static void AIO_OP_10_fields_that_must_be_zero(void **state)
{
	aio_context_t ctx = aio_new(1);
	struct iocb cb;

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(64, 0) : file_in_memory(64);

		for (int op = IOCB_CMD_FSYNC; op <= IOCB_CMD_FDSYNC; op++) {
			for (int field = 0; field < 8; field++) {
				aio_prep(&cb, (unsigned int)op, file, NULL, 0, 0);
				switch (field) {
				case 0:
					cb.aio_buf = 1;
					break;
				case 1:
					cb.aio_buf = 1ull << 63;
					break;
				case 2:
					cb.aio_offset = 1;
					break;
				case 3:
					cb.aio_offset = -1;
					break;
				case 4:
					cb.aio_nbytes = 1;
					break;
				case 5:
					cb.aio_nbytes = INT64_MAX;
					break;
				case 6:
					cb.aio_rw_flags = RW_DSYNC;
					break;
				default:
					cb.aio_rw_flags = 1u << 31;
				}
				aio_refuses(ctx, &cb, EINVAL);
			}
			/* These two say nothing. */
			aio_prep(&cb, (unsigned int)op, file, NULL, 0, 0);
			cb.aio_reqprio = -1;
			cb.aio_resfd = ~0u;
			aio_does(ctx, &cb, 0);
		}
		close(file);
	}
	aio_free(ctx);
}

static void AIO_OP_10_files_that_can_and_cannot_be_synced(void **state)
{
	static const struct {
		enum file_kind kind;
		long want;
	} files[] = {
		{MEMFD, 0},
		{DISK, 0},
		{DISK_RDONLY, 0},
		{DISK_WRONLY, 0},
		{DIRECTORY, 0},
		{PIPE_RD, REFUSED(EINVAL)},
		{PIPE_WR, REFUSED(EINVAL)},
		{STREAM, REFUSED(EINVAL)},
		{DGRAM, REFUSED(EINVAL)},
		{TTY, REFUSED(EINVAL)},
		{EVENTFD, REFUSED(EINVAL)},
		{TIMERFD, REFUSED(EINVAL)},
		{EPOLL, REFUSED(EINVAL)},
		{INOTIFY, REFUSED(EINVAL)},
		{PIDFD, REFUSED(EINVAL)},
		{DEV_NULL, REFUSED(EINVAL)},
		{PATH_ONLY, REFUSED(EBADF)},
		{CLOSED, REFUSED(EBADF)},
	};
	aio_context_t ctx = aio_new(1);
	struct iocb cb;

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct target t = target_new(files[i].kind);
		const char *name = kinds[files[i].kind].name;

		ends_as(ctx, aio_fsync(&cb, t.fd), files[i].want, name);
		ends_as(ctx, aio_fdsync(&cb, t.fd), files[i].want, name);
		/* A field that is wrong is found before the file that cannot. */
		target_free(&t, files[i].kind);
	}
	aio_free(ctx);
}

static void AIO_OP_10_a_sync_behind_writes(void **state)
{
	aio_context_t ctx = aio_new(16);
	int file = file_on_disk(4096, 0);
	struct iocb cb[16], *list[16];
	struct io_event ev[16];
	char buf[16];
	bool seen[16] = {false};

	(void)state;
	for (int i = 0; i < 16; i++) {
		buf[i] = (char)('a' + i);
		list[i] = i % 4 == 3
				  ? aio_prep(&cb[i], i % 8 == 3 ? IOCB_CMD_FSYNC : IOCB_CMD_FDSYNC,
					     file, NULL, 0, 0)
				  : aio_pwrite(&cb[i], file, &buf[i], 1, i);
	}
	aio_accept(ctx, list, 16);
	aio_take(ctx, ev, 16);
	for (int i = 0; i < 16; i++) {
		struct iocb *of = (struct iocb *)(uintptr_t)ev[i].obj;
		long n = of - cb;

		assert_uint_in_range(n, 0, 15);
		assert_false(seen[n]);
		seen[n] = true;
		aio_check(&ev[i], of, n % 4 == 3 ? 0 : 1);
	}
	aio_none(ctx);
	close(file);
	aio_free(ctx);
}

/* --- AIO-OP-11 ------------------------------------------------------------------------------- */

static void AIO_OP_11_an_appending_file_ignores_the_offset_of_writes(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct iovec iov[2] = {{.iov_base = "vec", .iov_len = 3},
			       {.iov_base = "tor", .iov_len = 3}};
	char buf[64];
	struct iocb cb[3], *list[3];
	struct io_event ev[3];

	(void)state;
	for (int disk = 0; disk < 2; disk++) {
		int file = disk ? file_on_disk(10, O_APPEND) : file_in_memory(10);

		if (!disk)
			assert_ok(fcntl(file, F_SETFL, O_APPEND));
		aio_does(ctx, aio_pwrite(&cb[0], file, "one", 3, 0), 3);
		aio_does(ctx, aio_pwrite(&cb[0], file, "two", 3, 1000), 3);
		aio_does(ctx, aio_pwritev(&cb[0], file, iov, 2, 5), 6);
		aio_refuses(ctx, aio_pwrite(&cb[0], file, "bad", 3, -1), EINVAL);
		list[0] = aio_pwrite(&cb[0], file, "A", 1, 7);
		list[1] = aio_pwrite(&cb[1], file, "B", 1, 7);
		list[2] = aio_pwrite(&cb[2], file, "C", 1, 7);
		aio_accept(ctx, list, 3);
		aio_take(ctx, ev, 3);
		aio_does(ctx, aio_pread(&cb[0], file, buf, 64, 10), 15);
		assert_memory_equal(buf, "onetwovectorABC", 15);
		aio_does(ctx, aio_pread(&cb[0], file, buf, 10, 0), 10);
		assert_true(file_matches(buf, 10, 0));
		/* Switched off, the offset counts again. */
		assert_ok(fcntl(file, F_SETFL, 0));
		aio_does(ctx, aio_pwrite(&cb[0], file, "X", 1, 10), 1);
		aio_does(ctx, aio_pread(&cb[0], file, buf, 64, 10), 15);
		assert_memory_equal(buf, "Xne", 3);
		close(file);
	}
	aio_free(ctx);
}

static void AIO_OP_11_lengths_are_capped(void **state)
{
	const size_t sizes[] = {MAX_RW - 1,	 MAX_RW,    MAX_RW + 1ul, INT32_MAX,	1ul << 32,
				(1ul << 32) + 1, 1ul << 40, 1ul << 60,	  INT64_MAX - 1};
	/* Far from the end of the address space: a length of a vector may not reach beyond it. */
	static char buf[128];
	aio_context_t ctx = aio_new(1);
	int null = (int)assert_ok(open("/dev/null", O_RDWR | O_CLOEXEC));
	int file = file_in_memory(100);
	struct iocb cb;

	(void)state;
	for (int i = 0; i < 9; i++) {
		size_t n = sizes[i];
		long want = n < (size_t)MAX_RW ? (long)n : MAX_RW;
		struct iovec iov[3] = {{.iov_base = buf, .iov_len = n},
				       {.iov_base = buf, .iov_len = 10},
				       {.iov_base = buf, .iov_len = MAX_RW}};

		/* /dev/null takes everything and looks at nothing. */
		aio_does(ctx, aio_pwrite(&cb, null, buf, n, 0), want);
		aio_does(ctx, aio_pread(&cb, file, buf, n, 0), 100);
		assert_true(file_matches(buf, 100, 0));
		if (n > 1ul << 40) {
			aio_refuses(ctx, aio_pwritev(&cb, null, iov, 3, 0), EFAULT);
			continue;
		}
		aio_does(ctx, aio_pwritev(&cb, null, iov, 1, 0), want);
		aio_does(ctx, aio_pwritev(&cb, null, iov, 3, 0), MAX_RW);
		aio_does(ctx, aio_preadv(&cb, file, iov, 3, 0), 100);
	}
	close(file);
	close(null);
	aio_free(ctx);
}

/* --- AIO-OP-12 ------------------------------------------------------------------------------- */

struct sender {
	struct test_thread t;
	aio_context_t ctx;
	int fd;
	long r;
	int sig;
};

/* Submits a write that nobody will read and takes the signal that comes to this thread. */
static void *sender_main(void *arg)
{
	struct sender *s = arg;
	struct timespec soon = {.tv_sec = 1};
	struct iocb cb;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	s->r = aio_submit1(s->ctx, aio_pwrite(&cb, s->fd, "x", 1, 0));
	s->sig = sigtimedwait(&set, NULL, &soon);
	return NULL;
}

static void AIO_OP_12_a_broken_pipe_tells_the_thread_that_submits(void **state)
{
	aio_context_t ctx = aio_new(1);
	sigset_t set, old;
	int p[2], s[2];

	(void)state;
	aio_pipe(p, 0);
	close(p[0]);
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	close(s[0]);
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
	for (int i = 0; i < 2; i++) {
		struct sender w = {.ctx = ctx, .fd = i ? s[1] : p[1]};
		struct io_event ev;
		sigset_t pending;

		thread_start(&w.t, sender_main, &w);
		assert_true(thread_join(&w.t, SOON_MS));
		assert_int_equal(w.r, 1);
		assert_int_equal(w.sig, SIGPIPE);
		assert_ok(sigpending(&pending));
		assert_false(sigismember(&pending, SIGPIPE));
		aio_take(ctx, &ev, 1);
		assert_int_equal(ev.res, -EPIPE);
		aio_none(ctx);
	}
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
	close(p[1]);
	close(s[1]);
	aio_free(ctx);
}

static void AIO_OP_12_who_ignores_the_signal_gets_the_error(void **state)
{
	aio_context_t ctx = aio_new(1);
	void (*old)(int) = signal(SIGPIPE, SIG_IGN);
	struct iovec iov = {.iov_base = "x", .iov_len = 1};
	struct iocb cb;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	close(p[0]);
	aio_does(ctx, aio_pwrite(&cb, p[1], "x", 1, 0), -EPIPE);
	aio_does(ctx, aio_pwritev(&cb, p[1], &iov, 1, 0), -EPIPE);
	/* Nothing is written where nothing was asked for. */
	aio_does(ctx, aio_pwrite(&cb, p[1], "x", 0, 0), 0);
	close(p[1]);
	signal(SIGPIPE, old);
	aio_free(ctx);
}

static void AIO_OP_12_by_default_the_signal_ends_the_process(void **state)
{
	pid_t pid;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	close(p[0]);
	pid = fork_bounded();
	if (pid == 0) {
		aio_context_t ctx = 0;
		struct iocb cb;

		signal(SIGPIPE, SIG_DFL);
		child_check(aio_setup_in_turn(1, &ctx) == 0);
		aio_submit1(ctx, aio_pwrite(&cb, p[1], "x", 1, 0));
		_exit(0);
	}
	assert_int_equal(child_end(pid), 128 + SIGPIPE);
	close(p[1]);
}

#ifndef FAN_PRE_ACCESS
#define FAN_PRE_ACCESS 0x00100000
#endif
#define FAN_NO_SPACE (ENOSPC << 24)

/* A watcher of the file, who denies each access. */
static void *denies(void *arg)
{
	union {
		struct fanotify_event_metadata event;
		char room[4096];
	} read_;
	int watch = *(int *)arg;
	struct pollfd p = {.fd = watch, .events = POLLIN};

	while (poll(&p, 1, 1000) == 1 && read(watch, &read_, sizeof(read_)) > 0) {
		struct fanotify_response no = {.fd = read_.event.fd,
					       .response = FAN_DENY | FAN_NO_SPACE};

		if (write(watch, &no, sizeof(no)) != sizeof(no))
			break;
		close(read_.event.fd);
	}
	return NULL;
}

/* What a watcher says is an error of io_submit, and no event. */
static void AIO_SUBMIT_04_a_write_that_is_denied(void **state)
{
	int watch = fanotify_init(FAN_CLASS_PRE_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC);
	int plain = file_on_disk(8, 0), fd;
	aio_context_t ctx = aio_new(8);
	struct test_thread t;
	struct iocb cb;
	char name[64];

	(void)state;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", plain);
	if (watch < 0 || fanotify_mark(watch, FAN_MARK_ADD, FAN_PRE_ACCESS, AT_FDCWD, name))
		SKIP("no watchers before an access here");
	fd = (int)assert_ok(open(name, O_RDWR | O_CLOEXEC));
	thread_start(&t, denies, &watch);
	aio_refuses(ctx, aio_pwrite(&cb, fd, "x", 1, 0), ENOSPC);
	aio_refuses(ctx, aio_pread(&cb, fd, name, 1, 0), ENOSPC);
	assert_true(thread_join(&t, SOON_MS));
	close(fd);
	close(plain);
	close(watch);
	aio_free(ctx);
}

/* A number that was a regular file's, which has been read often, and is a file's of proc. */
static void AIO_OP_01_a_number_that_has_changed_hands(void **state)
{
	aio_context_t ctx = aio_new(8);
	int fd = file_in_memory(8);
	struct iocb cb;
	char byte;

	(void)state;
	aio_does(ctx, aio_pread(&cb, fd, &byte, 1, 0), 1);
	assert_ok(syscall(SYS_close_range, fd, fd, 0));
	assert_int_equal(open("/proc/self/status", O_RDONLY | O_CLOEXEC), fd);
	aio_refuses(ctx, aio_pread(&cb, fd, &byte, 1, 0), EINVAL);
	close(fd);
	aio_free(ctx);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(AIO_OP_01_opcodes_that_exist),
		cmocka_unit_test(AIO_OP_01_unknown_opcodes_are_refused_by_every_kind_of_file),
		cmocka_unit_test(AIO_OP_01_what_each_opcode_does),
		cmocka_unit_test(AIO_OP_01_an_unknown_opcode_comes_after_descriptors_and_key),
		cmocka_unit_test(AIO_OP_02_priority_before_flags),
		cmocka_unit_test(AIO_OP_02_priority_and_flags_before_the_mode_of_the_file),
		cmocka_unit_test(AIO_OP_02_the_mode_before_what_the_file_can_do),
		cmocka_unit_test(AIO_OP_02_mode_and_file_before_the_vectors),
		cmocka_unit_test(AIO_OP_02_vectors_before_the_offset),
		cmocka_unit_test(AIO_OP_02_what_the_request_says_comes_before_the_descriptor),
		cmocka_unit_test(AIO_OP_03_files_of_every_kind),
		cmocka_unit_test(AIO_OP_03_a_number_that_was_an_ordinary_file),
		cmocka_unit_test(AIO_OP_03_a_number_that_becomes_an_ordinary_file),
		cmocka_unit_test(AIO_OP_03_reading_an_eventfd_takes_its_count),
		cmocka_unit_test(AIO_OP_04_a_negative_offset_is_refused_by_every_file),
		cmocka_unit_test(AIO_OP_04_other_offsets_mean_nothing_to_files_without_position),
		cmocka_unit_test(AIO_OP_04_sockets_have_no_other_offset_than_0),
		cmocka_unit_test(AIO_OP_04_offset_and_length_together_must_not_overflow),
		cmocka_unit_test(AIO_OP_05_flags_that_nobody_knows),
		cmocka_unit_test(AIO_OP_05_flags_that_some_kernels_know),
		cmocka_unit_test(AIO_OP_05_flags_of_requests_for_nothing),
		cmocka_unit_test(AIO_OP_05_hipri_and_sync_change_nothing_that_is_seen),
		cmocka_unit_test(AIO_OP_05_nowait_turns_waiting_into_eagain),
		cmocka_unit_test(AIO_OP_05_nowait_reads_what_is_cached),
		cmocka_unit_test(AIO_OP_05_append_writes_at_the_end),
		cmocka_unit_test(AIO_OP_06_classes_of_priority),
		cmocka_unit_test(AIO_OP_06_real_time_wants_a_privilege),
		cmocka_unit_test(AIO_OP_06_without_the_flag_the_priority_is_ignored),
		cmocka_unit_test(AIO_OP_06_only_reads_and_writes_have_a_priority),
		cmocka_unit_test(AIO_OP_07_unknown_flags_of_the_request_are_ignored),
		cmocka_unit_test(AIO_OP_08_numbers_of_vectors),
		cmocka_unit_test(AIO_OP_08_an_array_that_is_not_there),
		cmocka_unit_test(AIO_OP_08_a_negative_length),
		cmocka_unit_test(AIO_OP_08_vectors_of_any_shape),
		cmocka_unit_test(AIO_OP_09_counts_at_the_end_of_the_file),
		cmocka_unit_test(AIO_OP_09_writes_make_the_file_longer),
		cmocka_unit_test(AIO_OP_09_bad_buffers),
		cmocka_unit_test(AIO_OP_09_files_that_do_not_wait),
		cmocka_unit_test(AIO_OP_09_datagrams),
		cmocka_unit_test(AIO_OP_09_input_and_output_errors),
		cmocka_unit_test(AIO_OP_09_sealed_files),
		cmocka_unit_test(AIO_OP_09_the_limit_of_file_sizes),
		cmocka_unit_test(AIO_OP_09_beyond_the_limit_the_process_ends),
		cmocka_unit_test(AIO_OP_09_a_full_file_system),
		cmocka_unit_test(AIO_OP_09_a_disk_that_fails),
		cmocka_unit_test(AIO_OP_09_direct_input_and_output_on_disk),
		cmocka_unit_test(AIO_OP_09_direct_input_and_output_in_memory),
		cmocka_unit_test(AIO_OP_09_direct_and_not_aligned),
		cmocka_unit_test(AIO_OP_09_direct_is_switched_on_and_off),
		cmocka_unit_test(AIO_OP_10_fields_that_must_be_zero),
		cmocka_unit_test(AIO_OP_10_files_that_can_and_cannot_be_synced),
		cmocka_unit_test(AIO_OP_10_a_sync_behind_writes),
		cmocka_unit_test(AIO_OP_11_an_appending_file_ignores_the_offset_of_writes),
		cmocka_unit_test(AIO_OP_11_lengths_are_capped),
		cmocka_unit_test(AIO_OP_12_a_broken_pipe_tells_the_thread_that_submits),
		cmocka_unit_test(AIO_OP_12_who_ignores_the_signal_gets_the_error),
		cmocka_unit_test(AIO_OP_12_by_default_the_signal_ends_the_process),
		cmocka_unit_test(AIO_OP_01_a_number_that_has_changed_hands),
		cmocka_unit_test(AIO_SUBMIT_04_a_write_that_is_denied),
	};

	return run_group(tests);
}
