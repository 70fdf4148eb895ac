/* SPDX-License-Identifier: MIT */
/*
 * matrix [OBJECT [CALL]]
 *
 * Every call that takes a descriptor, on every kind of descriptor that Pollux may serve, most of
 * which have no use for it: a line for each, with its result, what it wrote, and what can be seen
 * of the object afterwards. The lines are the same on the kernel and on Pollux, or one of them is
 * wrong (matrix.py compares them).
 *
 * Each object is new for each call, and may be registered level- or edge-triggered in an epoll. If
 * the call makes an eventfd the kernel's, its edge may be reported once more: that is said in the
 * form of log_may (log.c).
 * What would sleep for ever is ended by a signal after a while; MATRIX_THREAD in the environment
 * asks for a second thread, in whose company some calls take other ways.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

/* Calls are made with what they are not meant for. */
#pragma GCC diagnostic ignored "-Wnonnull"
#pragma GCC diagnostic ignored "-Wunused-result"
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wstringop-overread"
#endif

#define BUF 4096
#define TICK_US 20000
#define LAST_NUMBER 100
#define LOW ((void *)8)
#define KERNEL ((void *)0xffff800000000000ul)

/* What newer headers name. */
#define DUPFD_QUERY 1027
#define CREATED_QUERY 1028
#define SET_TICKS _IOW('T', 0, uint64_t)
#define SET_PARAMS 0x40088a01ul
#define GET_PARAMS 0x80088a02ul

static unsigned char buf[65536];
static uint64_t zero, one = 1, three = 3, max = UINT64_MAX, most = UINT64_MAX - 1;
static struct iovec iov[1200];
/* Beside the object: a file with some bytes, an empty pipe, a pair of sockets. */
static int file, pipe_in, pipe_out, pair[2];
/* The order of the object's events is not determined. */
static bool mixed;
static bool watched;

static char line[16384];
static int said;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line + said, sizeof(line) - said, format, args);
	va_end(args);
	said += n < (int)sizeof(line) - said ? n : 0;
}

static void on_tick(int sig)
{
	(void)sig;
}

static void ticks(bool on)
{
	struct itimerval every = {{0, TICK_US}, {0, TICK_US}}, none = {{0, 0}, {0, 0}};
	int saved = errno;

	setitimer(ITIMER_REAL, on ? &every : &none, NULL);
	errno = saved;
}

/* --- what calls need ----------------------------------------------------------------------- */

/* n pairs of an address and a size_t. */
static struct iovec *vec(int n, ...)
{
	va_list args;

	va_start(args, n);
	for (int i = 0; i < n; i++) {
		iov[i].iov_base = va_arg(args, void *);
		iov[i].iov_len = va_arg(args, size_t);
	}
	va_end(args);
	return iov;
}

/* Of a new descriptor its flags; it is closed again. */
static long opened(long fd)
{
	int saved = errno;

	if (fd < 0)
		return -1;
	say(" fd %ld flags %#x cloexec %d", fd, fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
	close(fd);
	errno = saved;
	return 0;
}

static void look(int fd)
{
	struct pollfd p = {.fd = fd, .events = SHRT_MAX & ~POLLNVAL};
	int saved = errno, r;

	do
		r = poll(&p, 1, 0);
	while (r < 0 && errno == EINTR);
	say(" [%#x]", (unsigned int)(uint16_t)p.revents);
	errno = saved;
}

static void try_rw(int fd)
{
	uint64_t v = 0;
	long r;

	look(fd);
	r = read(fd, &v, sizeof(v));
	say(" read %ld %s", r, r < 0 ? strerrorname_np(errno) : "");
	if (r > 0)
		say("%llx", (unsigned long long)v);
	r = write(fd, &three, sizeof(three));
	say(" write %ld %s", r, r < 0 ? strerrorname_np(errno) : "");
	look(fd);
}

static int by_events(const void *a, const void *b)
{
	const struct epoll_event *x = a, *y = b;

	return (x->events > y->events) - (x->events < y->events);
}

static long events_of(struct epoll_event *ev, int n)
{
	if (mixed && n > 1)
		qsort(ev, n, sizeof(*ev), by_events);
	if (mixed && n == 1)
		return n;
	for (int i = 0; i < n; i++)
		say(" %#x:%llu", ev[i].events, (unsigned long long)ev[i].data.u64);
	return n;
}

static long wait_for(int ep, int room, int ms)
{
	struct epoll_event ev[8];

	return events_of(ev, epoll_wait(ep, ev, room, ms));
}

static long wait_ns(int ep, long sec, long nsec)
{
	struct timespec ts = {sec, nsec};
	struct epoll_event ev[8];

	ticks(false);
	return events_of(ev, epoll_pwait2(ep, ev, 8, &ts, NULL));
}

static long wait_raw(int ep, const void *mask, size_t size)
{
	struct epoll_event ev[8];

	return events_of(ev, (int)syscall(SYS_epoll_pwait, ep, ev, 8, 0, mask, size));
}

static long ctl(int ep, int op, int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.u64 = 9};

	return epoll_ctl(ep, op, fd, &ev);
}

/* A registration from its beginning to its end. */
static long watch(int fd, uint32_t add, uint32_t mod)
{
	int ep = epoll_create1(0), saved;
	long r = ctl(ep, EPOLL_CTL_ADD, fd, add);

	say(" add %s", r ? strerrorname_np(errno) : "");
	for (int i = 0; i < 2; i++)
		say(" %ld", wait_for(ep, 8, 0));
	r = ctl(ep, EPOLL_CTL_MOD, fd, mod);
	say(" mod %s", r ? strerrorname_np(errno) : "");
	say(" %ld", wait_for(ep, 8, 0));
	r = ctl(ep, EPOLL_CTL_DEL, fd, 0);
	saved = errno;
	close(ep);
	errno = saved;
	return r;
}

static long poll_bits(int fd)
{
	long r = 0;

	for (int i = 0; i < 16; i++) {
		struct pollfd p = {.fd = fd, .events = (short)(1u << i), .revents = 0x55};

		do
			r = poll(&p, 1, 0);
		while (r < 0 && errno == EINTR);
		say(" %ld:%#x", r, (unsigned int)(uint16_t)p.revents);
	}
	return r;
}

static long select_all(int fd)
{
	struct timeval now;
	fd_set set[3];
	long r;

	do {
		now = (struct timeval){0};
		for (int k = 0; k < 3; k++) {
			FD_ZERO(&set[k]);
			FD_SET(fd, &set[k]);
		}
		r = select(fd + 1, &set[0], &set[1], &set[2], &now);
	} while (r < 0 && errno == EINTR);
	for (int k = 0; k < 3; k++)
		say(" %d", !!FD_ISSET(fd, &set[k]));
	return r;
}

static long poll_raw(int fd, const void *timeout)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
	long r;

	do
		r = syscall(SYS_ppoll, &p, 1, timeout, NULL, 8);
	while (r < 0 && errno == EINTR);
	say(" %#x", (unsigned int)(uint16_t)p.revents);
	return r;
}

static long stat_of(int fd)
{
	struct stat st = {0};
	long r = fstat(fd, &st);

	say(" mode %o size %lld links %ld block %ld blocks %lld device %llx owner %u", st.st_mode,
	    (long long)st.st_size, (long)st.st_nlink, (long)st.st_blksize, (long long)st.st_blocks,
	    (unsigned long long)st.st_rdev, st.st_uid);
	return r;
}

static long statx_of(int fd)
{
	struct statx st = {0};
	long r = statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st);

	say(" mode %o mask %#x attributes %#llx size %lld", st.stx_mode, st.stx_mask,
	    (unsigned long long)st.stx_attributes, (long long)st.stx_size);
	return r;
}

static long statfs_of(int fd)
{
	struct statfs st = {0};
	long r = fstatfs(fd, &st);

	say(" type %#lx", (unsigned long)st.f_type);
	return r;
}

static long open_again(int fd, int flags)
{
	char name[64];
	int again, saved;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	again = open(name, flags);
	if (again < 0)
		return -1;
	saved = errno;
	say(" flags %#x", fcntl(again, F_GETFL));
	if (!(flags & O_PATH))
		look(again);
	close(again);
	errno = saved;
	return 0;
}

/* Other files have numbers in their names. */
static long link_of(int fd)
{
	char name[64], to[128] = "";
	long r;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	r = readlink(name, to, sizeof(to) - 1);
	if (strstr(to, "anon"))
		say(" %s", to);
	return r < 0 ? r : 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static long fdinfo_of(int fd)
{
	static const char *const differs[] = {"mnt_id", "ino", "eventfd-id", "it_value"};
	char name[64], text[2048] = "", *lines[64];
	int n = 0, in;
	long r;

	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", fd);
	in = open(name, O_RDONLY);
	r = read(in, text, sizeof(text) - 1);
	close(in);
	for (char *p = strtok(text, "\n"); p && n < 64; p = strtok(NULL, "\n")) {
		bool skip = false;

		for (size_t i = 0; i < sizeof(differs) / sizeof(differs[0]); i++)
			skip |= !strncmp(p, differs[i], strlen(differs[i]));
		/* An epoll says which file its items watch. */
		if (strstr(p, " ino:"))
			*strstr(p, " ino:") = '\0';
		if (!skip)
			lines[n++] = p;
	}
	qsort(lines, n, sizeof(lines[0]), by_text);
	for (int i = 0; i < n; i++)
		say(" | %s", lines[i]);
	return r > 0 ? 0 : r;
}

static long ioctl_long(int fd, unsigned long request, long value)
{
	long r = ioctl(fd, request, &value);

	say(" %d", (int)value);
	return r;
}

static long params(int fd, unsigned char first)
{
	memset(buf, first, 8);
	return ioctl(fd, SET_PARAMS, buf);
}

static long lock_of(int fd, int cmd)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	long r = fcntl(fd, cmd, &l);

	say(" %d %d %lld %lld", l.l_type, l.l_whence, (long long)l.l_start, (long long)l.l_len);
	return r;
}

static long owner_of(int fd)
{
	struct f_owner_ex o = {0};
	long r = fcntl(fd, F_GETOWN_EX, &o);

	say(" %d %d", o.type, o.pid);
	return r;
}

static long map(int fd, int prot, int flags)
{
	void *p = mmap(NULL, BUF, prot, flags, fd, 0);

	if (p == MAP_FAILED)
		return -1;
	munmap(p, BUF);
	return 0;
}

static long splice_at(int from, int to)
{
	loff_t at = 0;

	return splice(from, &at, to, NULL, 8, SPLICE_F_NONBLOCK);
}

static long splice_some(int to)
{
	write(pipe_out, &three, sizeof(three));
	return splice(pipe_in, NULL, to, NULL, 8, SPLICE_F_NONBLOCK);
}

static long send_file_at(int to)
{
	off_t at = 3;
	long r = sendfile(to, file, &at, 8);

	say(" at %lld", (long long)at);
	return r;
}

static long name_of(int fd)
{
	struct sockaddr_un a = {0};
	socklen_t n = sizeof(a);
	long r = getsockname(fd, (struct sockaddr *)&a, &n);

	say(" %u %d", n, a.sun_family);
	return r;
}

static long sockopt(int fd, int which)
{
	socklen_t n = sizeof(int);
	int v = 0;
	long r = getsockopt(fd, SOL_SOCKET, which, &v, &n);

	say(" %d", v);
	return r;
}

static long message(int fd, bool sends, bool many)
{
	struct iovec part = {buf, 3};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};

	if (many)
		return sends ? sendmmsg(fd, &m, 1, MSG_DONTWAIT)
			     : recvmmsg(fd, &m, 1, MSG_DONTWAIT, NULL);
	return sends ? sendmsg(fd, &m.msg_hdr, MSG_DONTWAIT)
		     : recvmsg(fd, &m.msg_hdr, MSG_DONTWAIT);
}

/* Sent to ourselves, and used by the number that came. */
static long passed(int fd)
{
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec part = {buf, 1};
	struct msghdr m = {.msg_iov = &part,
			   .msg_iovlen = 1,
			   .msg_control = &control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	long same;
	int got;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	if (sendmsg(pair[0], &m, 0) != 1 || recvmsg(pair[1], &m, 0) != 1)
		return -1;
	memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	say(" got %d flags %#x", got, fcntl(got, F_GETFL));
	look(got);
	say(" write %ld", (long)write(got, &three, sizeof(three)));
	look(fd);
	same = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, fd, got);
	close(got);
	return same;
}

static long same_file(int fd)
{
	int other = dup(fd);
	long r = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, fd, other);

	say(" %ld", r);
	look(other);
	close(other);
	return syscall(SYS_fcntl, fd, DUPFD_QUERY, fd);
}

static long taken(int fd)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0), saved;
	long r = opened(syscall(SYS_pidfd_getfd, self, fd, 0));

	saved = errno;
	close(self);
	errno = saved;
	return r;
}

static long in_child(int fd)
{
	char text[512];
	int p[2];
	long n;

	ticks(false);
	fflush(stdout);
	if (pipe(p))
		return -1;
	if (fork() == 0) {
		said = 0;
		fcntl(fd, F_SETFL, O_NONBLOCK);
		try_rw(fd);
		write(p[1], line, said);
		_exit(0);
	}
	close(p[1]);
	n = read(p[0], text, sizeof(text));
	close(p[0]);
	wait(NULL);
	if (n > 0)
		say("%.*s", (int)n, text);
	look(fd);
	return 0;
}

static long duplicate(int from, int to, int flags)
{
	long r = flags < 0 ? dup2(from, to) : dup3(from, to, flags);
	int saved = errno;

	if (r >= 0 && r != from) {
		look(to);
		say(" cloexec %d", fcntl(to, F_GETFD));
		close(to);
	}
	errno = saved;
	return r;
}

static long one_request(int fd, int op, int told)
{
	struct iocb cb = {.aio_lio_opcode = (uint16_t)op,
			  .aio_fildes = (uint32_t)fd,
			  .aio_buf = (uintptr_t)buf,
			  .aio_nbytes = 8,
			  .aio_flags = told >= 0 ? IOCB_FLAG_RESFD : 0,
			  .aio_resfd = (uint32_t)told},
		    *list = &cb;
	struct timespec soon = {0, 3000000};
	aio_context_t ctx = 0;
	struct io_event ev;
	int saved, tries = 0;
	long r, n;

	memcpy(buf, &one, sizeof(one));
	if (op == IOCB_CMD_POLL) {
		cb.aio_buf = POLLIN | POLLOUT;
		cb.aio_nbytes = 0;
	}
	if (watched)
		return -1;
	/* The kernel takes its time to end a context, and counts those of other processes. */
	while (syscall(SYS_io_setup, 4, &ctx)) {
		if (errno != EAGAIN || tries++ == 1000)
			return -1;
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	r = syscall(SYS_io_submit, ctx, 1, &list);
	saved = errno;
	ticks(false);
	if (r == 1) {
		n = syscall(SYS_io_getevents, ctx, 1, 1, &ev, &soon);
		say(" %ld %lld", n, n == 1 ? (long long)ev.res : 0);
	}
	syscall(SYS_io_destroy, ctx);
	errno = saved;
	return r;
}

static long by_stdio(int fd, const char *mode, bool writes)
{
	FILE *f = fdopen(dup(fd), mode);
	int saved;
	long r;

	if (!f)
		return -1;
	errno = 0;
	if (writes) {
		say(" %zu", fwrite(&three, 1, 8, f));
		r = fflush(f);
	} else {
		r = (long)fread(buf, 1, 8, f);
		say(" end %d error %d", !!feof(f), !!ferror(f));
	}
	saved = errno;
	fclose(f);
	errno = saved;
	return r;
}

static long set_timer(int fd, int flags, struct timespec value, struct timespec interval)
{
	struct itimerspec new = {interval, value}, old;
	long r;

	memset(&old, 0x55, sizeof(old));
	r = timerfd_settime(fd, flags, &new, &old);
	say(" %lld.%d %lld", (long long)(old.it_value.tv_sec + 50) / 100, !!old.it_value.tv_nsec,
	    (long long)old.it_interval.tv_sec);
	return r;
}

static long get_timer(int fd)
{
	struct itimerspec now;
	long r;

	memset(&now, 0x55, sizeof(now));
	r = timerfd_gettime(fd, &now);
	say(" %lld.%d %lld", (long long)(now.it_value.tv_sec + 50) / 100, !!now.it_value.tv_nsec,
	    (long long)now.it_interval.tv_sec);
	return r;
}

static long signal_fd(int fd)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	return signalfd(fd, &set, 0);
}

/* --- the calls ------------------------------------------------------------------------------ */

struct call {
	const char *name;
	/* peer: what belongs to the object, or another one. */
	long (*make)(int fd, int peer);
};

static struct call calls[512];
static int ncalls;

#define CALL(name, expr)                                                                           \
	static long call_##name(int fd, int peer)                                                  \
	{                                                                                          \
		(void)fd;                                                                          \
		(void)peer;                                                                        \
		return (long)(expr);                                                               \
	}                                                                                          \
	__attribute__((constructor)) static void add_##name(void)                                  \
	{                                                                                          \
		calls[ncalls++] = (struct call){#name, call_##name};                               \
	}

/* clang-format off: a line for each. */
CALL(read0, read(fd, buf, 0))
CALL(read7, read(fd, buf, 7))
CALL(read8, read(fd, buf, 8))
CALL(read16, read(fd, buf, 16))
CALL(read_null, read(fd, NULL, 8))
CALL(read_bad, read(fd, LOW, 8))
CALL(read_max, read(fd, buf, SIZE_MAX))
CALL(read_ro, read(fd, (void *)"constant", 8))
CALL(sread8, syscall(SYS_read, fd, buf, 8))
CALL(sread_null, syscall(SYS_read, fd, NULL, 8))
CALL(read_kern, read(fd, KERNEL, 8))
CALL(readv8, readv(fd, vec(1, buf, 8ul), 1))
CALL(readv44, readv(fd, vec(2, buf, 4ul, buf + 8, 4ul), 2))
CALL(readv7, readv(fd, vec(1, buf, 7ul), 1))
CALL(readv43, readv(fd, vec(2, buf, 4ul, buf + 8, 3ul), 2))
CALL(readv0, readv(fd, iov, 0))
CALL(readvm, readv(fd, iov, -1))
CALL(readv08, readv(fd, vec(2, NULL, 0ul, buf, 8ul), 2))
CALL(readv1025, readv(fd, iov, 1025))
CALL(readvnull, readv(fd, NULL, 1))
CALL(readvhuge, readv(fd, vec(2, buf, (size_t)-1, buf, 8ul), 2))
CALL(readvbad, readv(fd, vec(2, LOW, 8ul, buf, 8ul), 2))
CALL(readv4bad, readv(fd, vec(2, buf, 4ul, LOW, 8ul), 2))
CALL(readv44b, readv(fd, vec(3, buf, 8ul, LOW, 8ul, buf, 8ul), 3))
CALL(pread8, pread(fd, buf, 8, 0))
CALL(preadneg, pread(fd, buf, 8, -1))
CALL(pread0, pread(fd, buf, 0, 0))
CALL(preadv, preadv(fd, vec(1, buf, 8ul), 1, 0))
CALL(preadvneg, preadv(fd, vec(1, buf, 8ul), 1, -1))
CALL(preadv2, preadv2(fd, vec(1, buf, 8ul), 1, -1, 0))
CALL(preadv2o, preadv2(fd, vec(1, buf, 8ul), 1, 0, 0))
CALL(preadv2n, preadv2(fd, vec(1, buf, 8ul), 1, -1, RWF_NOWAIT))
CALL(preadv2h, preadv2(fd, vec(1, buf, 8ul), 1, -1, RWF_HIPRI))
CALL(preadv2x, preadv2(fd, vec(1, buf, 8ul), 1, -1, 0x40000000))
CALL(preadv2a, preadv2(fd, vec(1, buf, 8ul), 1, -1, RWF_APPEND))
CALL(preadv2neg2, preadv2(fd, vec(1, buf, 8ul), 1, -2, 0))
CALL(preadv2at, preadv2(fd, vec(1, buf, 8ul), 1, -1, 0x40))
CALL(preadv2dc, preadv2(fd, vec(1, buf, 8ul), 1, -1, 0x80))
CALL(preadv2noap, preadv2(fd, vec(1, buf, 8ul), 1, -1, 0x20))
CALL(write0, write(fd, &one, 0))
CALL(write7, write(fd, &one, 7))
CALL(write1, write(fd, &one, 8))
CALL(writez, write(fd, &zero, 8))
CALL(writemax, write(fd, &max, 8))
CALL(writemaxm, write(fd, &most, 8))
CALL(write16, write(fd, buf, 16))
CALL(write_null, write(fd, NULL, 8))
CALL(write_bad, write(fd, LOW, 8))
CALL(write_max, write(fd, buf, SIZE_MAX))
CALL(swrite, syscall(SYS_write, fd, &one, 8))
CALL(writev1, writev(fd, vec(1, &one, 8ul), 1))
CALL(writev44, writev(fd, vec(2, &one, 4ul, (char *)&one + 4, 4ul), 2))
CALL(writev43, writev(fd, vec(2, &one, 4ul, &zero, 3ul), 2))
CALL(writev0, writev(fd, iov, 0))
CALL(writevm, writev(fd, iov, -1))
CALL(writev88, writev(fd, vec(2, &one, 8ul, &three, 8ul), 2))
CALL(writev8m, writev(fd, vec(2, &one, 8ul, &max, 8ul), 2))
CALL(writev8bad, writev(fd, vec(2, &one, 8ul, LOW, 8ul), 2))
CALL(writevbad, writev(fd, vec(2, LOW, 8ul, &one, 8ul), 2))
CALL(writev80, writev(fd, vec(2, NULL, 0ul, &one, 8ul), 2))
CALL(writevhuge, writev(fd, vec(2, &one, (size_t)-1, &one, 8ul), 2))
CALL(pwrite8, pwrite(fd, &one, 8, 0))
CALL(pwriteneg, pwrite(fd, &one, 8, -5))
CALL(pwritev, pwritev(fd, vec(1, &one, 8ul), 1, 0))
CALL(pwritev2, pwritev2(fd, vec(1, &one, 8ul), 1, -1, 0))
CALL(pwritev2n, pwritev2(fd, vec(1, &one, 8ul), 1, -1, RWF_NOWAIT))
CALL(pwritev2s, pwritev2(fd, vec(1, &one, 8ul), 1, -1, RWF_DSYNC))
CALL(pwritev2x, pwritev2(fd, vec(1, &one, 8ul), 1, -1, 0x40000000))
CALL(pwritev2a, pwritev2(fd, vec(1, &one, 8ul), 1, -1, RWF_APPEND))
CALL(pwritev2sy, pwritev2(fd, vec(1, &one, 8ul), 1, -1, RWF_SYNC))
CALL(pwritev2nap, pwritev2(fd, vec(1, &one, 8ul), 1, -1, 0x20))
CALL(seek0, lseek(fd, 0, SEEK_SET))
CALL(seekc, lseek(fd, 0, SEEK_CUR))
CALL(seeke, lseek(fd, 0, SEEK_END))
CALL(seek5, lseek(fd, 5, SEEK_SET))
CALL(seekx, lseek(fd, 5, 77))
CALL(seekneg, lseek(fd, -1, SEEK_SET))
CALL(seekdata, lseek(fd, 0, SEEK_DATA))
CALL(fstat, stat_of(fd))
CALL(statx, statx_of(fd))
CALL(fstatfs, statfs_of(fd))
CALL(trunc0, ftruncate(fd, 0))
CALL(truncneg, ftruncate(fd, -1))
CALL(falloc, fallocate(fd, 0, 0, 8))
CALL(fallocx, fallocate(fd, 0, 0, 0))
CALL(fsync, fsync(fd))
CALL(fdatasync, fdatasync(fd))
CALL(sfr, sync_file_range(fd, 0, 0, 0))
CALL(fadv, posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED))
CALL(fadvx, posix_fadvise(fd, 0, 0, 99))
CALL(readahead, readahead(fd, 0, 10))
CALL(syncfs, syncfs(fd))
CALL(flock, flock(fd, LOCK_EX | LOCK_NB))
CALL(flockx, flock(fd, 99))
CALL(getfl, fcntl(fd, F_GETFL))
CALL(getfd, fcntl(fd, F_GETFD))
CALL(setfd1, fcntl(fd, F_SETFD, 1))
CALL(setfd0, fcntl(fd, F_SETFD, 0))
CALL(setfdx, fcntl(fd, F_SETFD, 0xff))
CALL(setfl0, fcntl(fd, F_SETFL, 0))
CALL(setflnb, fcntl(fd, F_SETFL, O_NONBLOCK))
CALL(setflap, fcntl(fd, F_SETFL, O_APPEND))
CALL(setflas, fcntl(fd, F_SETFL, O_ASYNC))
CALL(setfldi, fcntl(fd, F_SETFL, O_DIRECT))
CALL(setflna, fcntl(fd, F_SETFL, O_NOATIME))
CALL(setflall, fcntl(fd, F_SETFL, -1))
CALL(setflrd, fcntl(fd, F_SETFL, O_RDONLY | O_NONBLOCK))
CALL(setflnd, fcntl(fd, F_SETFL, O_NDELAY | O_SYNC))
CALL(dupfd0, opened(fcntl(fd, F_DUPFD, 0)))
CALL(dupfdm, fcntl(fd, F_DUPFD, -1))
CALL(dupfd100, opened(fcntl(fd, F_DUPFD, 100)))
CALL(dupfdbig, fcntl(fd, F_DUPFD, 20000))
CALL(dupfdbig2, fcntl(fd, F_DUPFD, 0x7fffffff))
CALL(dupfdc, opened(fcntl(fd, F_DUPFD_CLOEXEC, 10)))
CALL(dup, opened(dup(fd)))
CALL(getown, fcntl(fd, F_GETOWN))
CALL(setown, fcntl(fd, F_SETOWN, getpid()))
CALL(setown0, fcntl(fd, F_SETOWN, 0))
CALL(setownx, fcntl(fd, F_SETOWN, -99999))
CALL(getownex, owner_of(fd))
CALL(setsig, fcntl(fd, F_SETSIG, SIGUSR2))
CALL(setsigx, fcntl(fd, F_SETSIG, 999))
CALL(getsig, fcntl(fd, F_GETSIG))
CALL(getlease, fcntl(fd, F_GETLEASE))
CALL(setlease, fcntl(fd, F_SETLEASE, F_RDLCK))
CALL(notify, fcntl(fd, F_NOTIFY, DN_CREATE))
CALL(getlk, lock_of(fd, F_GETLK))
CALL(setlk, lock_of(fd, F_SETLK))
CALL(ofdget, lock_of(fd, F_OFD_GETLK))
CALL(ofdset, lock_of(fd, F_OFD_SETLK))
CALL(lknull, fcntl(fd, F_GETLK, NULL))
CALL(getpsz, fcntl(fd, F_GETPIPE_SZ))
CALL(setpsz, fcntl(fd, F_SETPIPE_SZ, 8192))
CALL(setpszx, fcntl(fd, F_SETPIPE_SZ, -1))
CALL(setpszbig, fcntl(fd, F_SETPIPE_SZ, 1 << 30))
CALL(seals, fcntl(fd, F_GET_SEALS))
CALL(addseals, fcntl(fd, F_ADD_SEALS, 0))
CALL(setrwhint, fcntl(fd, F_SET_RW_HINT, &one))
CALL(same_number, fcntl(fd, DUPFD_QUERY, fd))
CALL(same_as_peer, fcntl(fd, DUPFD_QUERY, peer))
CALL(created, fcntl(fd, CREATED_QUERY, 0))
CALL(fcntlx, fcntl(fd, 9999, 0))
CALL(fcntlneg, fcntl(fd, -1, 0))
CALL(sfcntl, syscall(SYS_fcntl, fd, F_GETFL, 0))
CALL(cancellk, fcntl(fd, 1029, 0))
CALL(fionread, ioctl_long(fd, FIONREAD, 77))
CALL(fionbio1, ioctl_long(fd, FIONBIO, 1))
CALL(fionbio0, ioctl_long(fd, FIONBIO, 0))
CALL(fionbion, ioctl(fd, FIONBIO, NULL))
CALL(fioasync, ioctl_long(fd, FIOASYNC, 1))
CALL(fioasync0, ioctl_long(fd, FIOASYNC, 0))
CALL(fioclex, ioctl(fd, FIOCLEX))
CALL(fionclex, ioctl(fd, FIONCLEX))
CALL(fioqsize, ioctl(fd, FIOQSIZE, buf))
CALL(fibmap, ioctl_long(fd, FIBMAP, 0))
CALL(tcgets, ioctl(fd, TCGETS, buf))
CALL(ioctlx, ioctl(fd, 0xdead, buf))
CALL(ioctl0, ioctl(fd, 0, 0))
CALL(fionreadn, ioctl(fd, FIONREAD, NULL))
CALL(ticks3, ioctl(fd, SET_TICKS, &three))
CALL(ticks0, ioctl(fd, SET_TICKS, &zero))
CALL(ticksn, ioctl(fd, SET_TICKS, NULL))
CALL(epg, ioctl(fd, GET_PARAMS, buf))
CALL(eps, ioctl(fd, SET_PARAMS, buf))
CALL(epsbad, ioctl(fd, SET_PARAMS, NULL))
CALL(epsset, params(fd, 0))
CALL(epsbig, params(fd, 0xff))
CALL(ficlone, ioctl(fd, FICLONE, file))
CALL(ficlone2, ioctl(file, FICLONE, fd))
CALL(figetbsz, ioctl_long(fd, FIGETBSZ, 0))
CALL(fsgetfl, ioctl_long(fd, FS_IOC_GETFLAGS, 0))
CALL(sioctl, syscall(SYS_ioctl, fd, FIONBIO, &one))
CALL(siocinq, ioctl_long(fd, 0x541B, 3))
CALL(siocoutq, ioctl_long(fd, 0x5411, 3))
CALL(fiosetown, ioctl(fd, 0x8901, &one))
CALL(siocgpgrp, ioctl(fd, 0x8904, buf))
CALL(nsget, ioctl(fd, 0xb701, 0))
CALL(mmap_p, map(fd, PROT_READ, MAP_PRIVATE))
CALL(mmap_s, map(fd, PROT_READ | PROT_WRITE, MAP_SHARED))
CALL(splice_out, splice(fd, NULL, pipe_out, NULL, 8, SPLICE_F_NONBLOCK))
CALL(splice_in, splice(pipe_in, NULL, fd, NULL, 8, SPLICE_F_NONBLOCK))
CALL(splice_out0, splice(fd, NULL, pipe_out, NULL, 0, 0))
CALL(splice_outo, splice_at(fd, pipe_out))
CALL(splice_file, splice(file, NULL, fd, NULL, 8, SPLICE_F_NONBLOCK))
CALL(splice_self, splice(fd, NULL, fd, NULL, 8, SPLICE_F_NONBLOCK))
CALL(splice_inw, splice_some(fd))
CALL(tee_out, tee(fd, pipe_out, 8, SPLICE_F_NONBLOCK))
CALL(tee_in, tee(pipe_in, fd, 8, SPLICE_F_NONBLOCK))
CALL(vmsplice, vmsplice(fd, vec(1, &one, 8ul), 1, SPLICE_F_NONBLOCK))
CALL(sendfile_to, sendfile(fd, file, NULL, 8))
CALL(sendfile_to3, send_file_at(fd))
CALL(sendfile_from, sendfile(pipe_out, fd, NULL, 8))
CALL(sendfile_sock, sendfile(pair[0], fd, NULL, 8))
CALL(cfr_to, copy_file_range(file, NULL, fd, NULL, 8, 0))
CALL(cfr_from, copy_file_range(fd, NULL, file, NULL, 8, 0))
CALL(getsockname, name_of(fd))
CALL(getpeername, getpeername(fd, (void *)buf, &(socklen_t){100}))
CALL(sotype, sockopt(fd, SO_TYPE))
CALL(soerr, sockopt(fd, SO_ERROR))
CALL(setso, setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){100000}, 4))
CALL(listen, listen(fd, 1))
CALL(accept, accept(fd, NULL, NULL))
CALL(accept4, accept4(fd, NULL, NULL, 0))
CALL(connect, connect(fd, (void *)buf, 2))
CALL(bind, bind(fd, (void *)buf, 200))
CALL(shutdown, shutdown(fd, SHUT_WR))
CALL(send, send(fd, &one, 8, MSG_DONTWAIT))
CALL(recv, recv(fd, buf, 8, MSG_DONTWAIT))
CALL(sendto, sendto(fd, &one, 8, MSG_DONTWAIT, NULL, 0))
CALL(recvfrom, recvfrom(fd, buf, 8, MSG_DONTWAIT, NULL, NULL))
CALL(sendmsg, message(fd, true, false))
CALL(recvmsg, message(fd, false, false))
CALL(sendmmsg, message(fd, true, true))
CALL(recvmmsg, message(fd, false, true))
CALL(sockatmark, sockatmark(fd))
CALL(openat, openat(fd, "x", O_RDONLY))
CALL(openatabs, opened(openat(fd, "/", O_RDONLY)))
CALL(openatempty, openat(fd, "", O_RDONLY))
CALL(faccessat, faccessat(fd, "x", F_OK, 0))
CALL(faccessate, syscall(SYS_faccessat2, fd, "", R_OK, AT_EMPTY_PATH))
CALL(readlinkat, readlinkat(fd, "", (char *)buf, 100))
CALL(fchdir, fchdir(fd))
CALL(getdents, syscall(SYS_getdents64, fd, buf, 1000))
CALL(fchmod, fchmod(fd, 0600))
CALL(fchown, fchown(fd, -1, -1))
CALL(futimens, futimens(fd, NULL))
CALL(fgetxattr, fgetxattr(fd, "user.x", buf, 10))
CALL(fsetxattr, fsetxattr(fd, "user.x", "a", 1, 0))
CALL(flistxattr, flistxattr(fd, (char *)buf, 100))
CALL(linkat, linkat(fd, "", AT_FDCWD, "/tmp/zz-none", AT_EMPTY_PATH))
CALL(unlinkat, unlinkat(fd, "zzz", 0))
CALL(mkdirat, mkdirat(fd, "zzz", 0))
CALL(utimensat, utimensat(fd, "", NULL, AT_EMPTY_PATH))
CALL(fexecve, syscall(SYS_execveat, fd, "", (char *[]){"x", NULL}, NULL, AT_EMPTY_PATH))
CALL(fpathconf, fpathconf(fd, _PC_PIPE_BUF))
CALL(isatty, isatty(fd))
CALL(ttyname, ttyname_r(fd, (char *)buf, 100))
CALL(tcgetpgrp, tcgetpgrp(fd))
CALL(ep_add_ef, ctl(fd, EPOLL_CTL_ADD, pipe_in, EPOLLIN))
CALL(ep_add_sk, ctl(fd, EPOLL_CTL_ADD, pair[1], EPOLLOUT))
CALL(ep_add_peer, ctl(fd, EPOLL_CTL_ADD, peer, EPOLLIN | EPOLLOUT))
CALL(ep_add_self, ctl(fd, EPOLL_CTL_ADD, fd, EPOLLIN))
CALL(ep_mod, ctl(fd, EPOLL_CTL_MOD, pipe_in, EPOLLIN))
CALL(ep_del, ctl(fd, EPOLL_CTL_DEL, pipe_in, 0))
CALL(ep_op, ctl(fd, 77, pipe_in, 0))
CALL(ep_op0, ctl(fd, 0, pipe_in, 0))
CALL(ep_file, ctl(fd, EPOLL_CTL_ADD, file, EPOLLIN))
CALL(ep_badfd, ctl(fd, EPOLL_CTL_ADD, 999, EPOLLIN))
CALL(ep_null, epoll_ctl(fd, EPOLL_CTL_ADD, pipe_in, NULL))
CALL(ep_bad, epoll_ctl(fd, EPOLL_CTL_ADD, pipe_in, LOW))
CALL(wait1, wait_for(fd, 1, 0))
CALL(wait8, wait_for(fd, 8, 0))
CALL(wait0, epoll_wait(fd, (void *)buf, 0, 0))
CALL(waitm, epoll_wait(fd, (void *)buf, -1, 0))
CALL(waithuge, epoll_wait(fd, (void *)buf, 0x7fffffff, 0))
CALL(waitnull, epoll_wait(fd, NULL, 8, 0))
CALL(waitbad, epoll_wait(fd, LOW, 8, 0))
CALL(waitkern, epoll_wait(fd, KERNEL, 8, 0))
CALL(waitms, wait_ns(fd, 0, 1000000))
CALL(pwait2, wait_ns(fd, 0, 1000))
CALL(pwait2bad, wait_ns(fd, 0, 1000000000))
CALL(pwait2neg, wait_ns(fd, -1, 0))
CALL(pwait2null, epoll_pwait2(fd, (void *)buf, 8, LOW, NULL))
CALL(spwait, wait_raw(fd, NULL, 8))
CALL(spwaitsz, wait_raw(fd, buf, 7))
CALL(spwaitszn, wait_raw(fd, NULL, 7))
CALL(spwaitb, wait_raw(fd, LOW, 8))
CALL(add_in, watch(fd, EPOLLIN, EPOLLOUT))
CALL(add_out, watch(fd, EPOLLOUT, EPOLLIN))
CALL(add_0, watch(fd, 0, EPOLLIN | EPOLLOUT))
CALL(add_et, watch(fd, EPOLLET | EPOLLIN | EPOLLOUT, EPOLLET | EPOLLIN))
CALL(add_os, watch(fd, EPOLLONESHOT | EPOLLIN | EPOLLOUT, EPOLLIN))
CALL(add_ex, watch(fd, EPOLLEXCLUSIVE | EPOLLIN, EPOLLIN))
CALL(add_exet, watch(fd, EPOLLEXCLUSIVE | EPOLLIN | EPOLLET, EPOLLIN))
CALL(add_exos, watch(fd, EPOLLEXCLUSIVE | EPOLLIN | EPOLLONESHOT, EPOLLIN))
CALL(add_exout, watch(fd, EPOLLEXCLUSIVE | EPOLLOUT | EPOLLWAKEUP, 0))
CALL(add_expri, watch(fd, EPOLLEXCLUSIVE | EPOLLPRI, 0))
CALL(add_modex, watch(fd, EPOLLIN, EPOLLIN | EPOLLEXCLUSIVE))
CALL(add_all, watch(fd, 0xefffffff, 0x0fffffff))
CALL(add_rdnorm, watch(fd, EPOLLRDNORM | EPOLLWRNORM, EPOLLRDBAND | EPOLLWRBAND))
CALL(add_rdhup, watch(fd, EPOLLRDHUP | EPOLLHUP | EPOLLERR, EPOLLMSG | EPOLLPRI))
CALL(add_wk, watch(fd, EPOLLWAKEUP | EPOLLIN, EPOLLWAKEUP))
CALL(add_nval, watch(fd, 0x20, 0x20 | EPOLLIN))
CALL(tfs1, set_timer(fd, 0, (struct timespec){100, 0}, (struct timespec){0, 0}))
CALL(tfsabs, set_timer(fd, 1, (struct timespec){1, 0}, (struct timespec){0, 0}))
CALL(tfsx, set_timer(fd, 99, (struct timespec){1, 0}, (struct timespec){0, 0}))
CALL(tfsns, set_timer(fd, 0, (struct timespec){1, 1000000000}, (struct timespec){0, 0}))
CALL(tfsneg, set_timer(fd, 0, (struct timespec){-1, 0}, (struct timespec){0, 0}))
CALL(tfsins, set_timer(fd, 0, (struct timespec){1, 0}, (struct timespec){0, -1}))
CALL(tfs0, set_timer(fd, 0, (struct timespec){0, 0}, (struct timespec){5, 0}))
CALL(tfscan, set_timer(fd, 3, (struct timespec){1000000000, 0}, (struct timespec){0, 0}))
CALL(tfsnull, timerfd_settime(fd, 0, NULL, NULL))
CALL(tfsbad, timerfd_settime(fd, 0, LOW, NULL))
CALL(tfsobad, timerfd_settime(fd, 0, &(struct itimerspec){{0, 0}, {200, 0}}, LOW))
CALL(tfg, get_timer(fd))
CALL(tfgbad, timerfd_gettime(fd, LOW))
CALL(tfgnull, timerfd_gettime(fd, NULL))
CALL(eread, eventfd_read(fd, (void *)buf))
CALL(ewrite, eventfd_write(fd, 3))
CALL(ewritemax, eventfd_write(fd, ~0ull))
CALL(signalfd, signal_fd(fd))
CALL(inadd, inotify_add_watch(fd, "/tmp", IN_CREATE))
CALL(inrm, inotify_rm_watch(fd, 1))
CALL(pollbits, poll_bits(fd))
CALL(sel, select_all(fd))
CALL(sppoll, poll_raw(fd, &(struct timespec){0, 0}))
CALL(sppollbad, poll_raw(fd, &(struct timespec){0, -1}))
CALL(sppollptr, poll_raw(fd, LOW))
CALL(proc_r, open_again(fd, O_RDONLY | O_NONBLOCK))
CALL(proc_w, open_again(fd, O_WRONLY | O_NONBLOCK))
CALL(proc_rw, open_again(fd, O_RDWR))
CALL(proc_p, open_again(fd, O_PATH))
CALL(rlink, link_of(fd))
CALL(fdinfo, fdinfo_of(fd))
CALL(dup2s, duplicate(fd, fd, -1))
CALL(dup2m, duplicate(fd, -1, -1))
CALL(dup2_60, duplicate(fd, 60, -1))
CALL(dup2big, duplicate(fd, 20000, -1))
CALL(dup3s, duplicate(fd, fd, 0))
CALL(dup3c, duplicate(fd, 60, O_CLOEXEC))
CALL(dup3x, duplicate(fd, 60, 1))
CALL(dup3nb, duplicate(fd, 60, O_NONBLOCK))
CALL(dup2peer, duplicate(fd, peer, -1))
CALL(dup2from, dup2(peer, fd))
CALL(dup2file, dup2(file, fd))
CALL(close, close(fd))
CALL(crce, close_range(fd, fd, CLOSE_RANGE_CLOEXEC))
CALL(crx, close_range(fd, fd, 1 << 5))
CALL(crinv, close_range(fd, fd - 1, 0))
CALL(cr, close_range(fd, fd, 0))
CALL(kcmp, same_file(fd))
CALL(pidget, taken(fd))
CALL(passfd, passed(fd))
CALL(inchild, in_child(fd))
CALL(aio_read, one_request(fd, IOCB_CMD_PREAD, -1))
CALL(aio_write, one_request(fd, IOCB_CMD_PWRITE, -1))
CALL(aio_poll, one_request(fd, IOCB_CMD_POLL, -1))
CALL(aio_fsync, one_request(fd, IOCB_CMD_FSYNC, -1))
CALL(aio_res, one_request(file, IOCB_CMD_PREAD, fd))
CALL(aio_readv, one_request(fd, IOCB_CMD_PREADV, -1))
CALL(aio_noop, one_request(fd, IOCB_CMD_NOOP, -1))
CALL(fread, by_stdio(fd, "r", 0))
CALL(fwrite, by_stdio(fd, "w", 1))
CALL(dprintf, dprintf(fd, "12345678"))
CALL(fdopenx, by_stdio(fd, "r+", 0))
CALL(fdopena, by_stdio(fd, "a", 1))
CALL(mq, syscall(SYS_mq_notify, fd, NULL))
CALL(finit, syscall(SYS_finit_module, fd, "", 0))
CALL(setns, syscall(SYS_setns, fd, 0))
CALL(pidsig, syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0))
CALL(waitid, waitid(P_PIDFD, fd, NULL, WEXITED | WNOHANG))
CALL(uring, syscall(SYS_io_uring_enter, fd, 0, 0, 0, NULL, 0))
CALL(landlock, syscall(446, fd, 0))
CALL(bpf, syscall(SYS_bpf, 99, NULL, 0))
CALL(fsmount, syscall(432, fd, 0, 0))
CALL(quotactl_fd, syscall(443, fd, 0, 0, NULL))
#ifdef SYS_futimesat
CALL(futimesat, syscall(SYS_futimesat, fd, NULL, NULL))
#endif
CALL(pselect6b, syscall(SYS_pselect6, fd + 1, NULL, NULL, NULL, &(struct timespec){0, 0}, LOW))
CALL(cachestat, syscall(451, fd, buf, buf + 64, 0))
/* clang-format on */

/* --- the objects ---------------------------------------------------------------------------- */

struct object {
	int fd, peer;
};

static struct object object(int fd, int peer)
{
	return (struct object){fd, peer};
}

static struct object make_empty(void)
{
	return object(eventfd(0, EFD_NONBLOCK), eventfd(0, EFD_NONBLOCK));
}

static struct object make_counted(void)
{
	return object(eventfd(3, EFD_NONBLOCK), eventfd(1, EFD_NONBLOCK));
}

static struct object make_duplicated(void)
{
	int fd = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);

	return object(fd, dup(fd));
}

static struct object make_full(void)
{
	int fd = eventfd(0, EFD_NONBLOCK);

	write(fd, &most, sizeof(most));
	return object(fd, eventfd(1, 0));
}

static struct object make_semaphore(void)
{
	return object(eventfd(3, EFD_SEMAPHORE), eventfd(1, EFD_NONBLOCK));
}

static struct object make_blocking(void)
{
	return object(eventfd(0, 0), eventfd(1, EFD_NONBLOCK));
}

static struct object make_appending(void)
{
	int fd = eventfd(3, EFD_NONBLOCK);

	fcntl(fd, F_SETFL, O_APPEND);
	return object(fd, eventfd(1, EFD_NONBLOCK));
}

static struct object make_timer(void)
{
	return object(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), eventfd(0, 0));
}

static struct object make_armed_timer(void)
{
	struct itimerspec far = {{500, 0}, {100000, 5}};
	int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);

	timerfd_settime(fd, 0, &far, NULL);
	return object(fd, eventfd(0, 0));
}

static struct object make_expired_timer(void)
{
	struct itimerspec past = {{0, 0}, {0, 1}};
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

	timerfd_settime(fd, TFD_TIMER_ABSTIME, &past, NULL);
	return object(fd, eventfd(0, 0));
}

static struct object make_epoll(void)
{
	return object(epoll_create1(0), eventfd(0, EFD_NONBLOCK));
}

static struct object make_ready_epoll(void)
{
	struct object o = object(epoll_create1(EPOLL_CLOEXEC), eventfd(1, EFD_NONBLOCK));

	ctl(o.fd, EPOLL_CTL_ADD, o.peer, EPOLLIN);
	return o;
}

static struct object make_mixed_epoll(void)
{
	struct object o = object(epoll_create1(0), eventfd(1, EFD_NONBLOCK));

	ctl(o.fd, EPOLL_CTL_ADD, o.peer, EPOLLIN);
	ctl(o.fd, EPOLL_CTL_ADD, pipe_out, EPOLLOUT);
	return o;
}

static struct object make_collected_epoll(void)
{
	struct object o = object(epoll_create1(0), eventfd(1, EFD_NONBLOCK));
	struct epoll_event ev;

	ctl(o.fd, EPOLL_CTL_ADD, o.peer, EPOLLIN | EPOLLET);
	epoll_wait(o.fd, &ev, 1, 0);
	/* A count that is 0 makes no edge when it leaves. */
	read(o.peer, &(uint64_t){0}, sizeof(uint64_t));
	return o;
}

static struct object make_pipe(int flags, int end, int bytes)
{
	int p[2];

	if (pipe2(p, flags))
		abort();
	write(p[1], "123456789abc", bytes);
	return object(p[end], p[!end]);
}

static struct object make_reader(void)
{
	return make_pipe(O_NONBLOCK, 0, 0);
}

static struct object make_filled_reader(void)
{
	return make_pipe(O_CLOEXEC, 0, 12);
}

static struct object make_packets(void)
{
	return make_pipe(O_DIRECT, 0, 3);
}

static struct object make_writer(void)
{
	return make_pipe(O_NONBLOCK, 1, 0);
}

static struct object without_peer(struct object o)
{
	close(o.peer);
	o.peer = eventfd(0, 0);
	return o;
}

static struct object make_last_reader(void)
{
	return without_peer(make_pipe(O_NONBLOCK, 0, 3));
}

static struct object make_last_writer(void)
{
	return without_peer(make_pipe(O_NONBLOCK, 1, 0));
}

static struct object make_socket(void)
{
	int s[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s))
		abort();
	return object(s[1], s[0]);
}

/* What is served in process is registered for nothing else. */
#define IN EPOLLIN
#define BOTH (EPOLLIN | EPOLLOUT)

static const struct {
	const char *name;
	struct object (*make)(void);
	uint32_t events;
	bool mixed;
} objects[] = {
	{"empty", make_empty, IN, false},
	{"counted", make_counted, IN, false},
	{"duplicated", make_duplicated, IN, false},
	{"full", make_full, IN, false},
	{"semaphore", make_semaphore, IN, false},
	{"blocking", make_blocking, IN, false},
	{"appending", make_appending, IN, false},
	{"for-both", make_counted, BOTH, false},
	{"timer", make_timer, BOTH, false},
	{"armed-timer", make_armed_timer, BOTH, false},
	{"expired-timer", make_expired_timer, BOTH, false},
	{"epoll", make_epoll, BOTH, false},
	{"ready-epoll", make_ready_epoll, BOTH, false},
	{"mixed-epoll", make_mixed_epoll, BOTH, true},
	{"collected-epoll", make_collected_epoll, BOTH, false},
	{"reader", make_reader, BOTH, false},
	{"filled-reader", make_filled_reader, BOTH, false},
	{"packets", make_packets, BOTH, false},
	{"writer", make_writer, BOTH, false},
	{"last-reader", make_last_reader, BOTH, false},
	{"last-writer", make_last_writer, BOTH, false},
	{"socket", make_socket, BOTH, false},
};

/* --- one by one ----------------------------------------------------------------------------- */

enum watched { NOT, LEVEL, EDGE, WATCHES };

static const char *const watched_names[] = {"", ", level", ", edge"};

static void surroundings(void)
{
	static const char text[20] = "\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\3";
	int p[2];

	ftruncate(file, 0);
	pwrite(file, text, sizeof(text), 0);
	lseek(file, 0, SEEK_SET);
	if (pipe2(p, O_NONBLOCK) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		abort();
	pipe_in = p[0];
	pipe_out = p[1];
	memset(buf, 0xa5, BUF);
}

/* Pollux may have one more than the kernel. */
static void say_edge(int ep)
{
	struct epoll_event ev = {0};
	int n = epoll_wait(ep, &ev, 1, 0);

	say(" %d+1/%x =%ld", n, ev.events, wait_for(ep, 8, 0));
}

/* What the call has left. edge: it may be reported once more. */
static void aftermath(const struct object *o, int ep, bool edge)
{
	say(" then flags %#x cloexec %d", fcntl(o->fd, F_GETFL), fcntl(o->fd, F_GETFD));
	look(o->peer);
	fcntl(o->fd, F_SETFL, O_NONBLOCK);
	fcntl(o->peer, F_SETFL, O_NONBLOCK);
	if (edge)
		say_edge(ep);
	else if (ep >= 0)
		say(" =%ld", wait_for(ep, 8, 0));
	try_rw(o->fd);
	if (ep >= 0)
		say(" =%ld", wait_for(ep, 8, 0));
	try_rw(o->peer);
}

static void cell(int object, enum watched how, const struct call *call)
{
	uint32_t hash = 0;
	struct object o;
	int ep = -1, err;
	long r;

	said = 0;
	mixed = objects[object].mixed;
	watched = how != NOT;
	surroundings();
	o = objects[object].make();
	if (watched) {
		ep = epoll_create1(0);
		ctl(ep, EPOLL_CTL_ADD, o.fd, objects[object].events | (how == EDGE ? EPOLLET : 0));
		if (how == EDGE)
			(void)wait_for(ep, 8, 0);
		said = 0;
	}
	ticks(true);
	errno = 0;
	r = call->make(o.fd, o.peer);
	err = errno;
	ticks(false);
	say(" = %ld %s", r, r < 0 ? strerrorname_np(err) : "");
	for (int i = 0; i < BUF; i++)
		hash = hash * 31 + buf[i];
	say(" %08x", hash);
	aftermath(&o, ep, how == EDGE && objects[object].events == IN);
	printf("%s%s: %s%.*s\n", objects[object].name, watched_names[how], call->name, said, line);
	for (int fd = 3; fd < LAST_NUMBER; fd++)
		if (fd != file)
			close(fd);
}

static void *idle(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	pause();
	return arg;
}

int main(int argc, char **argv)
{
	static const int ignored[] = {SIGPIPE, SIGIO, SIGUSR2, SIGURG};
	struct sigaction tick = {.sa_handler = on_tick};
	pthread_t thread;

	/* Numbers are part of the results. */
	close_range(3, ~0u, 0);
	file = memfd_create("matrix", MFD_CLOEXEC);
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
	sigaction(SIGALRM, &tick, NULL);
	if (file < 0 || (getenv("MATRIX_THREAD") && pthread_create(&thread, NULL, idle, NULL)))
		return 1;
	for (size_t o = 0; o < sizeof(objects) / sizeof(objects[0]); o++) {
		if (argc > 1 && strcmp(argv[1], objects[o].name))
			continue;
		for (int w = NOT; w < WATCHES; w++)
			for (int c = 0; c < ncalls; c++)
				if (argc < 3 || !strcmp(argv[2], calls[c].name))
					cell((int)o, w, &calls[c]);
	}
	return 0;
}
