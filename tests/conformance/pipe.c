/* SPDX-License-Identifier: MIT */
/* The pipe: sizes, masks, errors, blocking, and what it tells its pollers. */
#include "waiting.h"

#include <limits.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PAGE 4096
#define FULL (16 * PAGE)
#define IN_BITS (EPOLLIN | EPOLLRDNORM)
#define OUT_BITS (EPOLLOUT | EPOLLWRNORM)
#define ALL_BITS (IN_BITS | OUT_BITS)

static char buf[2 * FULL];
/* Addresses that are not mapped, and that no program can have; volatile for the compiler's sake. */
static void *volatile bad = (void *)8;
static void *volatile beyond = (void *)UINTPTR_MAX;

struct pipe {
	int r, w;
};

/* Adopted pipes are really served in the run that asks for all of them. */
static struct pipe pipe_new(int flags)
{
	const char *adopt = getenv("POLLUX_ADOPT");
	int fd[2];

	assert_ok(pipe2(fd, flags));
	if (under_pollux() && adopt && strcmp(adopt, "pipe") == 0) {
		assert_true(fd_served(fd[0]));
		assert_true(fd_served(fd[1]));
	}
	return (struct pipe){.r = fd[0], .w = fd[1]};
}

static void pipe_close(struct pipe *p)
{
	if (p->r >= 0)
		close(p->r);
	if (p->w >= 0)
		close(p->w);
}

/* One that is watched from the beginning, at both ends. */
static struct pipe pipe_watched(int flags, int *ep, uint32_t mode)
{
	const char *adopt = getenv("POLLUX_ADOPT");
	struct epoll_event ev[2];
	struct pipe p;

	*ep = (int)assert_ok(epoll_create1(EPOLL_CLOEXEC));
	p = pipe_new(flags);
	assert_ok(ep_ctl(*ep, EPOLL_CTL_ADD, p.r, EPOLLIN | mode, 'r'));
	assert_ok(ep_ctl(*ep, EPOLL_CTL_ADD, p.w, EPOLLOUT | mode, 'w'));
	if (adopt && strstr(adopt, "pipe") && under_pollux())
		assert_true(fd_served(p.r));
	/* The write end was ready at its ADD. */
	assert_int_equal(ep_poll(*ep, ev, 2), 1);
	return p;
}

static short mask(int fd)
{
	struct pollfd p = {.fd = fd, .events = ALL_BITS};

	assert_true(poll(&p, 1, 0) >= 0);
	return p.revents;
}

static int stored(int fd)
{
	int n = -1;

	assert_ok(ioctl(fd, FIONREAD, &n));
	return n;
}

static void fill(struct pipe *p)
{
	assert_int_equal(write(p->w, buf, FULL), FULL);
}

/* The letters of the events, each with its mask: nothing more than these. */
static bool edges(int ep, const char *want)
{
	struct epoll_event ev[4];
	int n = ep_poll(ep, ev, 4);
	char got[5] = "";

	for (int i = 0; i < n; i++)
		got[i] = (char)ev[i].data.u64;
	if (strcmp(got, want) != 0)
		print_error("edges \"%s\", expected \"%s\"\n", got, want);
	return strcmp(got, want) == 0;
}

/* --- threads that block -------------------------------------------------------------- */

struct io {
	struct test_thread t;
	int fd;
	bool writes;
	size_t n;
	ssize_t done;
	int err;
	char *mem;
};

static void *io_main(void *arg)
{
	struct io *io = arg;

	io->done = io->writes ? write(io->fd, io->mem, io->n) : read(io->fd, io->mem, io->n);
	io->err = errno;
	return NULL;
}

static struct io *io_new(int fd, bool writes, size_t n)
{
	struct io *io = calloc(1, sizeof(*io));

	assert_non_null(io);
	io->mem = calloc(1, n);
	assert_non_null(io->mem);
	io->fd = fd;
	io->writes = writes;
	io->n = n;
	thread_start(&io->t, io_main, io);
	assert_true(thread_asleep(&io->t));
	return io;
}

static void io_stays(struct io *io)
{
	sleep_ms(QUIET_MS);
	assert_true(thread_asleep(&io->t));
}

static void io_ends(struct io *io, ssize_t done, int err)
{
	assert_true(thread_join(&io->t, SOON_MS));
	assert_int_equal(io->done, done);
	if (done < 0)
		assert_int_equal(io->err, err);
	free(io->mem);
	free(io);
}

/* Counted by handlers in whatever thread. */
static int signals;

static void on_signal(int sig)
{
	(void)sig;
	__atomic_fetch_add(&signals, 1, __ATOMIC_SEQ_CST);
}

static void catch (int sig, int flags)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = flags};

	__atomic_store_n(&signals, 0, __ATOMIC_SEQ_CST);
	assert_ok(sigaction(sig, &sa, NULL));
}

/* The lowest number that is free. */
static int fd_closed_number(void)
{
	int fd = (int)assert_ok(open("/dev/null", O_RDONLY | O_CLOEXEC));

	assert_ok(close(fd));
	return fd;
}

/* --- creation ------------------------------------------------------------------------ */

static void PIPE_01_flags_and_errors(void **state)
{
	int fd[2] = {-7, -8}, free_fd = fd_closed_number();
	struct rlimit lim, low;

	(void)state;
	assert_errno(pipe2(fd, O_APPEND), EINVAL);
	assert_errno(pipe2((int *)bad, O_APPEND), EINVAL);
	assert_errno(syscall(SYS_pipe2, fd, 1 << 26), EINVAL);
	assert_errno(pipe2((int *)bad, 0), EFAULT);
	assert_errno(syscall(SYS_pipe2, bad, O_NONBLOCK), EFAULT);
	/* Nothing is left open by that. */
	assert_int_equal(fd_closed_number(), free_fd);
	assert_ok(getrlimit(RLIMIT_NOFILE, &lim));
	low = lim;
	low.rlim_cur = free_fd + 1;
	assert_ok(setrlimit(RLIMIT_NOFILE, &low));
	assert_errno(pipe2(fd, 0), EMFILE);
	assert_errno(pipe2((int *)bad, 0), EMFILE);
	assert_ok(setrlimit(RLIMIT_NOFILE, &lim));
	assert_int_equal(fd[0], -7);
	assert_int_equal(fd[1], -8);
	assert_int_equal(fd_closed_number(), free_fd);
}

static void PIPE_02_modes_and_flags(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK | O_DIRECT | O_CLOEXEC);
	struct stat st;

	(void)state;
	assert_int_equal(fcntl(p.r, F_GETFL) & (O_ACCMODE | O_NONBLOCK | O_DIRECT),
			 O_RDONLY | O_NONBLOCK);
	assert_int_equal(fcntl(p.w, F_GETFL) & (O_ACCMODE | O_NONBLOCK | O_DIRECT),
			 O_WRONLY | O_NONBLOCK | O_DIRECT);
	assert_int_equal(fcntl(p.r, F_GETFD), FD_CLOEXEC);
	assert_ok(fstat(p.r, &st));
	assert_true(S_ISFIFO(st.st_mode));
	assert_errno(isatty(p.w) ? 0 : -1, ENOTTY);
	pipe_close(&p);
	p = pipe_new(0);
	assert_int_equal(fcntl(p.r, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDONLY);
	assert_int_equal(fcntl(p.w, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_WRONLY);
	assert_int_equal(fcntl(p.w, F_GETFD), 0);
	/* Each end has its own, and both ways to set it. */
	assert_ok(fcntl(p.r, F_SETFL, O_NONBLOCK));
	assert_errno(read(p.r, buf, 1), EAGAIN);
	assert_int_equal(fcntl(p.w, F_GETFL) & O_NONBLOCK, 0);
	assert_ok(ioctl(p.w, FIONBIO, &(int){1}));
	assert_int_equal(fcntl(p.w, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	fill(&p);
	assert_errno(write(p.w, buf, 1), EAGAIN);
	pipe_close(&p);
}

/* --- sizes and masks ----------------------------------------------------------------- */

static void PIPE_03_sixteen_slots(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);
	int n = 0;

	(void)state;
	assert_int_equal(write(p.w, buf, sizeof(buf)), FULL);
	assert_int_equal(read(p.r, buf, sizeof(buf)), FULL);
	while (write(p.w, buf, 1) == 1)
		n++;
	assert_int_equal(n, FULL);
	assert_int_equal(read(p.r, buf, sizeof(buf)), FULL);
	for (n = 0; write(p.w, buf, 3000) == 3000; n++)
		;
	assert_int_equal(n, 16);
	while (read(p.r, buf, sizeof(buf)) > 0)
		;
	/* What goes beyond whole pages continues the last slot, if it fits there. */
	assert_int_equal(write(p.w, buf, 10), 10);
	assert_int_equal(write(p.w, buf, PAGE + 904), PAGE + 904);
	for (n = 0; write(p.w, buf, PAGE) == PAGE; n++)
		;
	assert_int_equal(n, 14);
	while (read(p.r, buf, sizeof(buf)) > 0)
		;
	assert_int_equal(write(p.w, buf, 4000), 4000);
	assert_int_equal(write(p.w, buf, PAGE + 904), PAGE + 904);
	for (n = 0; write(p.w, buf, PAGE) == PAGE; n++)
		;
	assert_int_equal(n, 13);
	pipe_close(&p);
}

static void PIPE_04_masks_of_the_read_end(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);

	(void)state;
	assert_int_equal(mask(p.r), 0);
	assert_int_equal(write(p.w, buf, 2), 2);
	assert_int_equal(mask(p.r), IN_BITS);
	close(p.w);
	assert_int_equal(mask(p.r), IN_BITS | EPOLLHUP);
	assert_int_equal(read(p.r, buf, 1), 1);
	assert_int_equal(mask(p.r), IN_BITS | EPOLLHUP);
	assert_int_equal(read(p.r, buf, 1), 1);
	assert_int_equal(mask(p.r), EPOLLHUP);
	close(p.r);
}

static void PIPE_05_masks_of_the_write_end(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);

	(void)state;
	assert_int_equal(mask(p.w), OUT_BITS);
	fill(&p);
	assert_int_equal(mask(p.w), 0);
	close(p.r);
	assert_int_equal(mask(p.w), EPOLLERR);
	close(p.w);
	p = pipe_new(O_NONBLOCK);
	close(p.r);
	assert_int_equal(mask(p.w), OUT_BITS | EPOLLERR);
	close(p.w);
}

static void PIPE_06_writable_by_slot(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);

	(void)state;
	fill(&p);
	assert_int_equal(read(p.r, buf, PAGE - 1), PAGE - 1);
	assert_int_equal(mask(p.w), 0);
	assert_int_equal(read(p.r, buf, 1), 1);
	assert_int_equal(mask(p.w), OUT_BITS);
	pipe_close(&p);
}

/* --- reading and writing ------------------------------------------------------------- */

static void PIPE_07_reading(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);
	struct iovec iov[3] = {{buf, 2}, {buf + 10, 0}, {buf + 20, 9}};
	struct io *io;

	(void)state;
	assert_int_equal(read(p.r, buf, 0), 0);
	assert_errno(read(p.r, buf, 1), EAGAIN);
	assert_errno(syscall(SYS_read, p.r, buf, 1), EAGAIN);
	assert_errno(preadv2(p.r, iov, 3, -1, RWF_NOWAIT), EAGAIN);
	assert_int_equal(write(p.w, "hello", 5), 5);
	assert_int_equal(read(p.r, buf, 100), 5);
	assert_memory_equal(buf, "hello", 5);
	assert_int_equal(writev(p.w, (struct iovec[]){{"ab", 2}, {"cde", 3}}, 2), 5);
	assert_int_equal(readv(p.r, iov, 3), 5);
	assert_memory_equal(buf, "ab", 2);
	assert_memory_equal(buf + 20, "cde", 3);
	/* A bad buffer takes nothing. */
	assert_int_equal(write(p.w, "xyz", 3), 3);
	assert_errno(read(p.r, bad, 3), EFAULT);
	iov[2].iov_base = bad;
	assert_errno(readv(p.r, iov, 3), EFAULT);
	assert_errno(read(p.r, beyond, 3), EFAULT);
	assert_int_equal(read(p.r, buf, 10), 3);
	assert_memory_equal(buf, "xyz", 3);
	/* Blocking: it sleeps for the first byte, and not for more. */
	assert_ok(fcntl(p.r, F_SETFL, 0));
	io = io_new(p.r, false, 100);
	assert_int_equal(write(p.w, "ab", 2), 2);
	io_ends(io, 2, 0);
	io = io_new(p.r, false, 100);
	close(p.w);
	io_ends(io, 0, 0);
	assert_int_equal(read(p.r, buf, 1), 0);
	close(p.r);
}

/* As EFD_06_a_buffer_that_ends_early_gets_what_fits; nothing is taken. */
static void PIPE_07_a_buffer_that_ends_early_gets_what_fits(void **state)
{
#if defined(__x86_64__)
	static const size_t lengths[] = {7, 8, 12, 16, 33, 300};
	char *page =
		mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pipe p = pipe_new(O_NONBLOCK);

	(void)state;
	assert_true(page != MAP_FAILED);
	assert_ok(mprotect(page + PAGE, PAGE, PROT_NONE));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		for (size_t room = 1; room < lengths[i]; room += 1 + room / 8) {
			memset(buf, 'x', lengths[i]);
			assert_int_equal(write(p.w, buf, lengths[i]), lengths[i]);
			memset(page, 0, PAGE);
			assert_errno(read(p.r, page + PAGE - room, lengths[i]), EFAULT);
			assert_memory_equal(page + PAGE - room, buf, room);
			assert_int_equal(read(p.r, buf, PAGE), lengths[i]);
		}
	}
	pipe_close(&p);
	munmap(page, 2 * PAGE);
#else
	(void)state;
	skip();
#endif
}

/* As EFD_07_a_piece_longer_than_the_address_space. */
static void PIPE_07_a_piece_longer_than_the_address_space(void **state)
{
	(void)state;
	if (!long_piece_is_cut())
		SKIP("this kernel has another rule");
	for (int bit = 31; bit < 63; bit++) {
		struct iovec iov[2] = {{buf, (size_t)1 << bit}, {buf, 0}};
		struct pipe p = pipe_new(O_NONBLOCK), q = pipe_new(O_NONBLOCK);

		assert_int_equal(write(p.w, "abc", 3), 3);
		if (bit == 62) {
			assert_errno(readv(p.r, iov, 2), EFAULT);
			assert_errno(writev(p.w, iov, 2), EFAULT);
		}
		assert_int_equal(readv(p.r, iov, 1), 3);
		/* As much as is mapped and fits. */
		assert_int_equal(write(q.w, "abc", 3), 3);
		assert_true(writev(q.w, iov, 1) > 0);
		assert_true(stored(q.r) > 3);
		assert_true(read(q.r, buf, sizeof(buf)) > 3);
		pipe_close(&p);
		pipe_close(&q);
	}
}

static void PIPE_08_the_wrong_end(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);

	(void)state;
	assert_errno(read(p.w, buf, 1), EBADF);
	assert_errno(write(p.r, buf, 1), EBADF);
	assert_errno(readv(p.w, &(struct iovec){buf, 1}, 1), EBADF);
	assert_errno(read(p.w, beyond, 1), EBADF);
	assert_errno(write(p.r, buf, 0), EBADF);
	assert_errno(lseek(p.r, 0, SEEK_SET), ESPIPE);
	assert_errno(pread(p.r, buf, 1, 0), ESPIPE);
	assert_errno(pwrite(p.w, buf, 1, 0), ESPIPE);
	pipe_close(&p);
}

static void PIPE_09_writing_nothing(void **state)
{
	int ep;
	struct pipe p = pipe_watched(O_NONBLOCK, &ep, EPOLLET);

	(void)state;
	catch (SIGPIPE, 0);
	assert_int_equal(write(p.w, buf, 0), 0);
	assert_true(edges(ep, ""));
	close(p.r);
	assert_int_equal(write(p.w, buf, 0), 0);
	assert_int_equal(__atomic_load_n(&signals, __ATOMIC_SEQ_CST), 0);
	close(p.w);
	close(ep);
	signal(SIGPIPE, SIG_DFL);
}

static int sigpipe_code = -1;

static void on_sigpipe(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	__atomic_fetch_add(&signals, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&sigpipe_code, info->si_pid == getpid() ? info->si_code : -2,
			 __ATOMIC_SEQ_CST);
}

static void PIPE_10_writing_without_readers(void **state)
{
	struct sigaction sa = {.sa_sigaction = on_sigpipe, .sa_flags = SA_SIGINFO};
	struct pipe p = pipe_new(O_NONBLOCK);
	struct io *io;

	(void)state;
	assert_ok(sigaction(SIGPIPE, &sa, NULL));
	__atomic_store_n(&signals, 0, __ATOMIC_SEQ_CST);
	assert_int_equal(write(p.w, buf, 5), 5);
	close(p.r);
	assert_errno(write(p.w, buf, 1), EPIPE);
	assert_int_equal(__atomic_load_n(&signals, __ATOMIC_SEQ_CST), 1);
	assert_int_equal(__atomic_load_n(&sigpipe_code, __ATOMIC_SEQ_CST), SI_USER);
	/* The readers are looked for before the buffer. */
	assert_errno(write(p.w, bad, 1), EPIPE);
	assert_errno(write(p.w, buf, 10000), EPIPE);
	assert_int_equal(__atomic_load_n(&signals, __ATOMIC_SEQ_CST), 3);
	close(p.w);
	/* A part was written before the last reader went. */
	p = pipe_new(0);
	assert_int_equal(write(p.w, buf, 15 * PAGE), 15 * PAGE);
	io = io_new(p.w, true, 3 * PAGE);
	__atomic_store_n(&signals, 0, __ATOMIC_SEQ_CST);
	close(p.r);
	io_ends(io, PAGE, 0);
	assert_int_equal(__atomic_load_n(&signals, __ATOMIC_SEQ_CST), 1);
	close(p.w);
	p = pipe_new(0);
	fill(&p);
	io = io_new(p.w, true, 10);
	close(p.r);
	io_ends(io, -1, EPIPE);
	assert_int_equal(__atomic_load_n(&signals, __ATOMIC_SEQ_CST), 2);
	close(p.w);
	signal(SIGPIPE, SIG_DFL);
}

static void PIPE_11_small_writes_are_whole(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);
	struct io *io;

	(void)state;
	fill(&p);
	assert_errno(write(p.w, buf, 1), EAGAIN);
	assert_int_equal(read(p.r, buf, 100), 100);
	assert_errno(write(p.w, buf, 100), EAGAIN);
	assert_errno(write(p.w, bad, 100), EAGAIN);
	assert_int_equal(read(p.r, buf, PAGE - 100), PAGE - 100);
	assert_int_equal(write(p.w, buf, 1), 1);
	assert_errno(write(p.w, buf, PAGE), EAGAIN);
	assert_int_equal(write(p.w, buf, PAGE - 1), PAGE - 1);
	assert_ok(fcntl(p.w, F_SETFL, 0));
	io = io_new(p.w, true, PAGE);
	assert_int_equal(read(p.r, buf, PAGE - 1), PAGE - 1);
	io_stays(io);
	assert_int_equal(read(p.r, buf, 1), 1);
	io_ends(io, PAGE, 0);
	assert_int_equal(stored(p.r), FULL);
	pipe_close(&p);
}

static void PIPE_12_larger_writes(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);
	struct io *io;

	(void)state;
	assert_int_equal(write(p.w, buf, 14 * PAGE), 14 * PAGE);
	assert_int_equal(write(p.w, buf, 3 * PAGE), 2 * PAGE);
	assert_errno(write(p.w, buf, 3 * PAGE), EAGAIN);
	assert_ok(fcntl(p.w, F_SETFL, 0));
	assert_int_equal(read(p.r, buf, FULL), FULL);
	io = io_new(p.w, true, FULL + 2 * PAGE);
	assert_int_equal(read(p.r, buf, PAGE), PAGE);
	io_stays(io);
	assert_int_equal(read(p.r, buf, PAGE), PAGE);
	io_ends(io, FULL + 2 * PAGE, 0);
	/* A handler ends it with what was written, SA_RESTART or not. */
	for (int flags = 0; flags <= SA_RESTART; flags += SA_RESTART) {
		catch (SIGUSR1, flags);
		assert_int_equal(read(p.r, buf, sizeof(buf)), FULL);
		io = io_new(p.w, true, FULL + 1);
		assert_int_equal(stored(p.r), FULL);
		assert_int_equal(pthread_kill(io->t.id, SIGUSR1), 0);
		io_ends(io, FULL, 0);
		assert_int_equal(__atomic_load_n(&signals, __ATOMIC_SEQ_CST), 1);
	}
	/* Before any part: EINTR, or again. */
	catch (SIGUSR1, 0);
	io = io_new(p.w, true, 2 * PAGE);
	assert_int_equal(pthread_kill(io->t.id, SIGUSR1), 0);
	io_ends(io, -1, EINTR);
	catch (SIGUSR1, SA_RESTART);
	io = io_new(p.w, true, 2 * PAGE);
	assert_int_equal(pthread_kill(io->t.id, SIGUSR1), 0);
	io_stays(io);
	assert_int_equal(read(p.r, buf, 2 * PAGE), 2 * PAGE);
	io_ends(io, 2 * PAGE, 0);
	assert_int_equal(__atomic_load_n(&signals, __ATOMIC_SEQ_CST), 1);
	pipe_close(&p);
	signal(SIGUSR1, SIG_DFL);
}

/* What remains of it when it has slept takes slots of its own. */
static void PIPE_03_PIPE_12_a_write_that_slept_continues_no_slot(void **state)
{
	struct pipe p = pipe_new(0);
	struct io *io;

	(void)state;
	assert_int_equal(write(p.w, buf, 15 * PAGE), 15 * PAGE);
	assert_int_equal(write(p.w, buf, 100), 100);
	io = io_new(p.w, true, PAGE + 900);
	assert_int_equal(stored(p.r), 15 * PAGE + 1000);
	assert_int_equal(read(p.r, buf, PAGE), PAGE);
	io_ends(io, PAGE + 900, 0);
	assert_int_equal(read(p.r, buf, 14 * PAGE), 14 * PAGE);
	/* 1000 bytes and a page. */
	assert_ok(fcntl(p.w, F_SETFL, O_NONBLOCK));
	assert_int_equal(write(p.w, buf, 100), 100);
	assert_int_equal(write(p.w, buf, 14 * PAGE), 13 * PAGE);
	pipe_close(&p);
}

static void PIPE_12_a_write_that_slept_looks_at_O_NONBLOCK(void **state)
{
	struct pipe p = pipe_new(0);
	struct io *io;

	(void)state;
	fill(&p);
	io = io_new(p.w, true, 2 * PAGE);
	assert_ok(fcntl(p.w, F_SETFL, O_NONBLOCK));
	io_stays(io);
	assert_int_equal(read(p.r, buf, PAGE), PAGE);
	io_ends(io, PAGE, 0);
	/*
	 * And before it looks at the signal that ends its sleep. (ThreadSanitizer runs handlers
	 * within sleeps, where those with SA_RESTART end none.)
	 */
	for (int flags = 0; flags <= (SANITIZED == 2 ? 0 : SA_RESTART); flags += SA_RESTART) {
		catch (SIGUSR1, flags);
		assert_ok(fcntl(p.w, F_SETFL, 0));
		io = io_new(p.w, true, PAGE);
		assert_ok(fcntl(p.w, F_SETFL, O_NONBLOCK));
		io_stays(io);
		assert_int_equal(pthread_kill(io->t.id, SIGUSR1), 0);
		io_ends(io, -1, EAGAIN);
		assert_int_equal(__atomic_load_n(&signals, __ATOMIC_SEQ_CST), 1);
	}
	signal(SIGUSR1, SIG_DFL);
	pipe_close(&p);
}

/* A call keeps its end open when the number is closed, and means nothing else by it. */
static void PIPE_10_the_number_of_a_blocked_write_is_closed(void **state)
{
	struct sigaction sa = {.sa_sigaction = on_sigpipe, .sa_flags = SA_SIGINFO};
	struct pipe p = pipe_new(0);
	struct io *io;
	int fd;

	(void)state;
	assert_ok(sigaction(SIGPIPE, &sa, NULL));
	__atomic_store_n(&signals, 0, __ATOMIC_SEQ_CST);
	fill(&p);
	io = io_new(p.w, true, 2 * PAGE);
	assert_ok(close(p.w));
	assert_ok(close(p.r));
	io_ends(io, -1, EPIPE);
	assert_int_equal(__atomic_load_n(&signals, __ATOMIC_SEQ_CST), 1);
	assert_int_equal(__atomic_load_n(&sigpipe_code, __ATOMIC_SEQ_CST), SI_USER);
	/* After a part of it the number is another file's. */
	p = pipe_new(0);
	fill(&p);
	io = io_new(p.w, true, 2 * PAGE);
	assert_int_equal(read(p.r, buf, PAGE), PAGE);
	io_stays(io);
	fd = (int)assert_ok(syscall(SYS_memfd_create, "other", 0));
	assert_ok(dup2(fd, p.w));
	assert_ok(close(p.r));
	io_ends(io, PAGE, 0);
	assert_int_equal(__atomic_load_n(&signals, __ATOMIC_SEQ_CST), 2);
	assert_int_equal(lseek(fd, 0, SEEK_END), 0);
	close(fd);
	close(p.w);
	signal(SIGPIPE, SIG_DFL);
}

struct writers {
	struct test_thread t;
	int fd;
	char letter;
};

static void *letters_main(void *arg)
{
	struct writers *w = arg;
	char page[PAGE];

	memset(page, w->letter, sizeof(page));
	for (int i = 0; i < 300; i++)
		if (write(w->fd, page, sizeof(page)) != (ssize_t)sizeof(page))
			return arg;
	return NULL;
}

static void PIPE_13_small_writes_are_not_interleaved(void **state)
{
	struct writers w[3];
	struct pipe p = pipe_new(0);
	char page[PAGE];

	(void)state;
	for (int i = 0; i < 3; i++) {
		w[i].fd = p.w;
		w[i].letter = (char)('a' + i);
		thread_start(&w[i].t, letters_main, &w[i]);
	}
	for (int i = 0; i < 900; i++) {
		size_t n = 0;

		while (n < sizeof(page))
			n += (size_t)assert_ok(read(p.r, page + n, sizeof(page) - n));
		for (n = 1; n < sizeof(page) && page[n] == page[0]; n++)
			;
		assert_int_equal(n, sizeof(page));
	}
	for (int i = 0; i < 3; i++) {
		assert_true(thread_join(&w[i].t, SOON_MS));
		assert_null(w[i].t.ret);
	}
	pipe_close(&p);
}

static void PIPE_14_packets(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK | O_DIRECT);
	int n = 0;

	(void)state;
	assert_int_equal(write(p.w, "abc", 3), 3);
	assert_int_equal(write(p.w, "defgh", 5), 5);
	assert_int_equal(read(p.r, buf, 100), 3);
	assert_int_equal(read(p.r, buf, 2), 2);
	assert_errno(read(p.r, buf, 100), EAGAIN);
	while (write(p.w, buf, 1) == 1)
		n++;
	assert_int_equal(n, 16);
	for (n = 0; n < 16; n++)
		assert_int_equal(read(p.r, buf, 100), 1);
	/* A longer write makes several. */
	assert_int_equal(write(p.w, buf, PAGE + 5), PAGE + 5);
	assert_int_equal(read(p.r, buf, 2 * PAGE), PAGE);
	assert_int_equal(read(p.r, buf, 2 * PAGE), 5);
	/* Off and on by fcntl. */
	assert_ok(fcntl(p.w, F_SETFL, O_NONBLOCK));
	assert_int_equal(write(p.w, "ab", 2), 2);
	assert_int_equal(write(p.w, "cd", 2), 2);
	assert_int_equal(read(p.r, buf, 100), 4);
	assert_ok(fcntl(p.w, F_SETFL, O_NONBLOCK | O_DIRECT));
	assert_int_equal(write(p.w, "ab", 2), 2);
	assert_int_equal(write(p.w, "cd", 2), 2);
	assert_int_equal(read(p.r, buf, 100), 2);
	pipe_close(&p);
}

static void PIPE_15_capacity(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);
	int null = (int)assert_ok(open("/dev/null", O_RDWR));

	(void)state;
	assert_int_equal(fcntl(p.r, F_GETPIPE_SZ), FULL);
	assert_int_equal(fcntl(p.w, F_GETPIPE_SZ), FULL);
	assert_int_equal(fcntl(p.w, F_SETPIPE_SZ, 0), PAGE);
	assert_int_equal(write(p.w, buf, 2 * PAGE), PAGE);
	assert_int_equal(fcntl(p.r, F_SETPIPE_SZ, 5000), 2 * PAGE);
	assert_int_equal(fcntl(p.w, F_GETPIPE_SZ), 2 * PAGE);
	assert_int_equal(write(p.w, buf, 2 * PAGE), PAGE);
	assert_errno(fcntl(p.w, F_SETPIPE_SZ, PAGE), EBUSY);
	assert_int_equal(fcntl(p.w, F_SETPIPE_SZ, FULL), FULL);
	assert_int_equal(write(p.w, buf, FULL), 14 * PAGE);
	assert_int_equal(read(p.r, buf, sizeof(buf)), FULL);
	assert_errno(fcntl(p.w, F_SETPIPE_SZ, 0x80000001u), EINVAL);
	assert_errno(fcntl(null, F_GETPIPE_SZ), EBADF);
	assert_errno(fcntl(null, F_SETPIPE_SZ, PAGE), EBADF);
	close(null);
	pipe_close(&p);
}

static void PIPE_16_FIONREAD(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);

	(void)state;
	assert_int_equal(stored(p.r), 0);
	for (int i = 1; i <= 300; i++) {
		assert_int_equal(write(p.w, "ab", 1 + i % 2), 1 + i % 2);
		assert_int_equal(stored(i % 3 ? p.r : p.w), i + (i + 1) / 2);
	}
	assert_int_equal(read(p.r, buf, 100), 100);
	assert_int_equal(stored(p.r), 350);
	assert_errno(ioctl(p.r, FIONREAD, bad), EFAULT);
	pipe_close(&p);
}

/* --- what is told -------------------------------------------------------------------- */

static void PIPE_17_every_write_wakes(void **state)
{
	int ep;
	struct pipe p = pipe_watched(O_NONBLOCK, &ep, EPOLLET);

	(void)state;
	assert_int_equal(write(p.w, buf, 1), 1);
	assert_true(edges(ep, "r"));
	assert_int_equal(write(p.w, buf, 1), 1);
	assert_true(edges(ep, "r"));
	/* Also one that fails. */
	assert_errno(write(p.w, bad, 1), EFAULT);
	assert_true(edges(ep, "r"));
	assert_int_equal(write(p.w, buf, 15 * PAGE), 15 * PAGE);
	assert_true(edges(ep, "r"));
	assert_errno(write(p.w, buf, PAGE), EAGAIN);
	assert_true(edges(ep, "r"));
	/* A buffer that no program can have is refused before. */
	assert_errno(write(p.w, beyond, 1), EFAULT);
	assert_true(edges(ep, ""));
	pipe_close(&p);
	close(ep);
}

static void PIPE_18_a_blocked_writer_tells(void **state)
{
	int ep;
	struct pipe p = pipe_watched(0, &ep, EPOLLET);
	struct io *io = io_new(p.w, true, FULL + PAGE);

	(void)state;
	assert_true(edges(ep, "r"));
	assert_true(edges(ep, ""));
	assert_int_equal(read(p.r, buf, PAGE), PAGE);
	io_ends(io, FULL + PAGE, 0);
	/* The read made an edge for writers, the writer's end one for the reader. */
	assert_int_equal(ep_count(ep), 1);
	assert_int_equal(read(p.r, buf, FULL), FULL);
	assert_true(edges(ep, "w"));
	pipe_close(&p);
	close(ep);
}

static void PIPE_19_reads_of_a_full_pipe_wake(void **state)
{
	int ep;
	struct pipe p = pipe_watched(O_NONBLOCK, &ep, EPOLLET);

	(void)state;
	assert_int_equal(write(p.w, buf, 100), 100);
	assert_true(edges(ep, "r"));
	assert_int_equal(read(p.r, buf, 100), 100);
	assert_true(edges(ep, ""));
	fill(&p);
	assert_true(edges(ep, "r"));
	assert_int_equal(read(p.r, buf, PAGE - 1), PAGE - 1);
	assert_true(edges(ep, ""));
	assert_int_equal(read(p.r, buf, 1), 1);
	assert_true(edges(ep, "w"));
	assert_int_equal(read(p.r, buf, 5 * PAGE), 5 * PAGE);
	assert_true(edges(ep, ""));
	pipe_close(&p);
	close(ep);
}

static void PIPE_20_none_on_the_own_end(void **state)
{
	int ep;
	struct pipe p = pipe_watched(O_NONBLOCK, &ep, EPOLLET);

	(void)state;
	/* Bytes are left, and room is left. */
	assert_int_equal(write(p.w, buf, 100), 100);
	assert_true(edges(ep, "r"));
	assert_int_equal(read(p.r, buf, 50), 50);
	assert_true(edges(ep, ""));
	pipe_close(&p);
	close(ep);
}

static void PIPE_21_the_last_close_tells_all(void **state)
{
	int ep;
	struct pipe p = pipe_watched(O_NONBLOCK, &ep, EPOLLET);
	int d = (int)assert_ok(dup(p.w));

	(void)state;
	close(p.w);
	assert_true(edges(ep, ""));
	close(d);
	assert_true(ep_one(ep, EPOLLHUP, 'r'));
	close(p.r);
	close(ep);
	p = pipe_watched(O_NONBLOCK, &ep, EPOLLET);
	d = (int)assert_ok(fcntl(p.r, F_DUPFD_CLOEXEC, 0));
	close(p.r);
	assert_int_equal(ep_count(ep), 0);
	close(d);
	assert_true(ep_one(ep, EPOLLOUT | EPOLLERR, 'w'));
	close(p.w);
	close(ep);
}

static void PIPE_22_a_change_of_size_tells_writers(void **state)
{
	int ep;
	struct pipe p = pipe_watched(O_NONBLOCK, &ep, EPOLLET);

	(void)state;
	assert_int_equal(fcntl(p.r, F_SETPIPE_SZ, 2 * PAGE), 2 * PAGE);
	assert_true(edges(ep, "w"));
	assert_int_equal(fcntl(p.w, F_SETPIPE_SZ, 2 * PAGE), 2 * PAGE);
	assert_true(edges(ep, "w"));
	assert_int_equal(write(p.w, buf, 2 * PAGE), 2 * PAGE);
	assert_true(edges(ep, "r"));
	assert_errno(fcntl(p.w, F_SETPIPE_SZ, PAGE), EBUSY);
	assert_true(edges(ep, ""));
	assert_int_equal(fcntl(p.w, F_SETPIPE_SZ, FULL), FULL);
	assert_true(edges(ep, "w"));
	pipe_close(&p);
	close(ep);
}

static void PIPE_23_splice_and_tee(void **state)
{
	int ep;
	struct pipe from = pipe_new(O_NONBLOCK), p = pipe_watched(O_NONBLOCK, &ep, EPOLLET);

	(void)state;
	assert_int_equal(write(from.w, "hello", 5), 5);
	assert_int_equal(tee(from.r, p.w, 5, SPLICE_F_NONBLOCK), 5);
	assert_int_equal(ep_count(ep), 1);
	assert_int_equal(read(p.r, buf, 10), 5);
	assert_int_equal(splice(from.r, NULL, p.w, NULL, 5, SPLICE_F_NONBLOCK), 5);
	assert_true(edges(ep, "r"));
	assert_int_equal(read(p.r, buf, 10), 5);
	assert_memory_equal(buf, "hello", 5);
	assert_errno(read(from.r, buf, 10), EAGAIN);
	pipe_close(&from);
	pipe_close(&p);
	close(ep);
}

static void PIPE_24_blocked_readers(void **state)
{
	struct pipe p = pipe_new(0);
	struct io *a = io_new(p.r, false, 1), *b = io_new(p.r, false, 1);
	struct io *c = io_new(p.r, false, 1);

	(void)state;
	assert_int_equal(write(p.w, buf, 1), 1);
	io_ends(a, 1, 0);
	io_stays(b);
	io_stays(c);
	assert_int_equal(write(p.w, buf, 2), 2);
	io_ends(b, 1, 0);
	io_ends(c, 1, 0);
	a = io_new(p.r, false, 1);
	b = io_new(p.r, false, 1);
	close(p.w);
	io_ends(a, 0, 0);
	io_ends(b, 0, 0);
	close(p.r);
	/* Interrupted, and restarted. */
	p = pipe_new(0);
	catch (SIGUSR1, 0);
	a = io_new(p.r, false, 1);
	assert_int_equal(pthread_kill(a->t.id, SIGUSR1), 0);
	io_ends(a, -1, EINTR);
	catch (SIGUSR1, SA_RESTART);
	a = io_new(p.r, false, 1);
	assert_int_equal(pthread_kill(a->t.id, SIGUSR1), 0);
	io_stays(a);
	assert_int_equal(write(p.w, buf, 1), 1);
	io_ends(a, 1, 0);
	pipe_close(&p);
	signal(SIGUSR1, SIG_DFL);
}

static void PIPE_25_fifos(void **state)
{
	char dir[] = "/tmp/pollux-fifo-XXXXXX", path[64];
	int r, w;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/fifo", dir);
	assert_ok(mkfifo(path, 0600));
	r = (int)assert_ok(open(path, O_RDONLY | O_NONBLOCK));
	assert_int_equal(mask(r), 0);
	assert_int_equal(read(r, buf, 1), 0);
	w = (int)assert_ok(open(path, O_WRONLY));
	assert_int_equal(mask(r), 0);
	close(w);
	assert_int_equal(mask(r), EPOLLHUP);
	w = (int)assert_ok(open(path, O_WRONLY));
	assert_int_equal(mask(r), 0);
	close(w);
	close(r);
	unlink(path);
	rmdir(dir);
}

/* --- pipes that leave with something in them ------------------------------------------ */

/* How much fits into what is left: the layout of the slots. */
static int room_left(struct pipe *p, int n)
{
	int k = 0;

	while (write(p->w, buf, (size_t)n) == n)
		k++;
	return k;
}

/* The same pipe twice: one goes to the kernel with what it holds. */
static void PIPE_03_PIPE_06_a_pipe_that_leaves_keeps_its_slots(void **state)
{
	static const int sizes[] = {1, 100, 3000, 4096, 5000, 2000, 9000, 3};
	static char in[10000], out[2][1000];

	(void)state;
	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = (char)(i * 7 + i / 256);
	for (int skip = 0; skip < 5000; skip += 701) {
		struct pipe p[2] = {pipe_new(O_NONBLOCK), pipe_new(O_NONBLOCK)};

		for (int k = 0; k < 2; k++) {
			for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
				assert_int_equal(write(p[k].w, in, (size_t)sizes[i]), sizes[i]);
			if (skip)
				assert_int_equal(read(p[k].r, buf, (size_t)skip), skip);
		}
		/* Foreign to pipes, so that it leads to the kernel. */
		assert_ok(fcntl(p[1].r, F_GETOWN));
		assert_false(fd_served(p[1].r));
		assert_int_equal(stored(p[1].r), stored(p[0].r));
		for (int n = 700; n > 0; n -= 233)
			assert_int_equal(room_left(&p[1], n), room_left(&p[0], n));
		assert_int_equal(mask(p[1].w), mask(p[0].w));
		for (ssize_t got = 1; got > 0;) {
			got = read(p[0].r, out[0], 777);
			assert_int_equal(read(p[1].r, out[1], 777), got);
			if (got > 0)
				assert_memory_equal(out[0], out[1], (size_t)got);
		}
		pipe_close(&p[0]);
		pipe_close(&p[1]);
	}
}

static void PIPE_14_packets_leave_as_packets(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK | O_DIRECT);

	(void)state;
	assert_int_equal(write(p.w, "abc", 3), 3);
	assert_int_equal(write(p.w, "de", 2), 2);
	assert_ok(fcntl(p.w, F_SETFL, O_NONBLOCK));
	assert_int_equal(write(p.w, "fgh", 3), 3);
	assert_ok(fcntl(p.w, F_GETOWN));
	assert_int_equal(fcntl(p.w, F_GETFL) & (O_NONBLOCK | O_DIRECT), O_NONBLOCK);
	assert_int_equal(read(p.r, buf, 100), 3);
	assert_int_equal(read(p.r, buf, 1), 1);
	assert_int_equal(read(p.r, buf, 100), 3);
	assert_memory_equal(buf, "fgh", 3);
	pipe_close(&p);
}

/* Parent and child go on with what is in it. */
static void fork_and_end(void)
{
	pid_t pid = (pid_t)assert_ok(fork());

	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void PIPE_07_a_pipe_survives_a_fork(void **state)
{
	int ep;
	struct pipe p = pipe_watched(O_NONBLOCK, &ep, EPOLLET);
	pid_t pid;

	(void)state;
	assert_int_equal(write(p.w, "hello", 5), 5);
	pid = fork_bounded();
	if (pid == 0) {
		struct epoll_event ev;

		if (epoll_wait(ep, &ev, 1, 0) != 1 || ev.data.u64 != 'r' ||
		    read(p.r, buf, 3) != 3 || memcmp(buf, "hel", 3) != 0 ||
		    write(p.w, "p!", 2) != 2)
			_exit(1);
		_exit(0);
	}
	assert_int_equal(child_end(pid), 0);
	assert_true(edges(ep, "r"));
	assert_int_equal(read(p.r, buf, 100), 4);
	assert_memory_equal(buf, "lop!", 4);
	pipe_close(&p);
	close(ep);
}

/* The writers are gone before the fork, and the bytes are not. */
static void PIPE_04_a_closed_pipe_survives_a_fork(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);
	pid_t pid;

	(void)state;
	assert_int_equal(write(p.w, "hello", 5), 5);
	assert_int_equal(read(p.r, buf, 1), 1);
	close(p.w);
	pid = fork_bounded();
	if (pid == 0)
		_exit(read(p.r, buf, 2) != 2 || memcmp(buf, "el", 2) != 0);
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(mask(p.r), IN_BITS | EPOLLHUP);
	assert_int_equal(read(p.r, buf, 100), 2);
	assert_int_equal(read(p.r, buf, 100), 0);
	assert_int_equal(mask(p.r), EPOLLHUP);
	close(p.r);
}

static void PIPE_24_sleepers_go_along(void **state)
{
	struct pipe p = pipe_new(0);
	struct io *r = io_new(p.r, false, 10), *w;

	(void)state;
	assert_ok(fcntl(p.r, F_GETOWN));
	io_stays(r);
	assert_int_equal(write(p.w, "abc", 3), 3);
	io_ends(r, 3, 0);
	pipe_close(&p);
	p = pipe_new(0);
	w = io_new(p.w, true, FULL + 100);
	assert_ok(fcntl(p.r, F_GETOWN));
	io_stays(w);
	assert_int_equal(stored(p.r), FULL);
	assert_int_equal(read(p.r, buf, PAGE), PAGE);
	io_ends(w, FULL + 100, 0);
	assert_int_equal(stored(p.r), FULL - PAGE + 100);
	pipe_close(&p);
}

/* Also those whose number is closed by then, and another file's. */
static void PIPE_24_EP_KEY_07_sleepers_on_closed_numbers_go_along(void **state)
{
	int other = (int)assert_ok(syscall(SYS_memfd_create, "other", 0));
	struct pipe p;
	struct io *io;

	(void)state;
	assert_int_equal(write(other, "other", 5), 5);
	for (int reused = 0; reused < 2; reused++) {
		p = pipe_new(0);
		io = io_new(p.r, false, 10);
		assert_ok(reused ? dup2(other, p.r) : close(p.r));
		assert_ok(fcntl(p.w, F_GETOWN));
		io_stays(io);
		assert_int_equal(write(p.w, "abc", 3), 3);
		io_ends(io, 3, 0);
		/* With the call the last reader has gone. */
		signal(SIGPIPE, SIG_IGN);
		assert_errno(write(p.w, "abc", 3), EPIPE);
		signal(SIGPIPE, SIG_DFL);
		close(p.w);
		if (reused)
			close(p.r);
		p = pipe_new(0);
		io = io_new(p.r, false, 10);
		assert_ok(reused ? dup2(other, p.r) : close(p.r));
		assert_ok(fcntl(p.w, F_GETOWN));
		close(p.w);
		io_ends(io, 0, 0);
		if (reused)
			close(p.r);
		/* A part of it is done. */
		p = pipe_new(0);
		io = io_new(p.w, true, FULL + 100);
		assert_ok(reused ? dup2(other, p.w) : close(p.w));
		assert_ok(fcntl(p.r, F_GETOWN));
		io_stays(io);
		assert_int_equal(stored(p.r), FULL);
		assert_int_equal(read(p.r, buf, PAGE), PAGE);
		io_ends(io, FULL + 100, 0);
		assert_int_equal(read(p.r, buf, 2 * FULL), FULL - PAGE + 100);
		assert_int_equal(read(p.r, buf, 1), 0);
		close(p.r);
		if (reused)
			close(p.w);
	}
	assert_int_equal(lseek(other, 0, SEEK_CUR), 5);
	assert_int_equal(lseek(other, 0, SEEK_END), 5);
	close(other);
}

/* An item that its delivery has disarmed stays so, and costs the pipe nothing. */
static void PIPE_04_a_disarmed_item_goes_along(void **state)
{
	int ep = (int)assert_ok(epoll_create1(EPOLL_CLOEXEC));
	struct pipe p = pipe_new(O_NONBLOCK);
	struct rusage before, after;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p.r, EPOLLIN | EPOLLONESHOT, 'r'));
	assert_int_equal(write(p.w, "a", 1), 1);
	assert_true(ep_one(ep, EPOLLIN, 'r'));
	assert_int_equal(read(p.r, buf, 1), 1);
	/* Naps and not time: a slow machine makes no more of them. */
	assert_ok(getrusage(RUSAGE_THREAD, &before));
	assert_ok(fcntl(p.r, F_GETOWN));
	assert_ok(getrusage(RUSAGE_THREAD, &after));
	assert_true(after.ru_nvcsw - before.ru_nvcsw < 9000);
	assert_false(fd_served(p.r));
	assert_int_equal(stored(p.r), 0);
	assert_int_equal(ep_count(ep), 0);
	assert_int_equal(write(p.w, "b", 1), 1);
	close(p.w);
	assert_int_equal(ep_count(ep), 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, p.r, EPOLLIN | EPOLLONESHOT, 's'));
	assert_true(ep_one(ep, EPOLLIN | EPOLLHUP, 's'));
	assert_int_equal(read(p.r, buf, 10), 1);
	close(p.r);
	close(ep);
}

/* Items of an end that has lost the other one are ready whatever their masks. */
static void PIPE_21_the_order_survives_a_fork(void **state)
{
	int ep = (int)assert_ok(epoll_create1(EPOLL_CLOEXEC)), dup;
	struct pipe a = pipe_new(O_NONBLOCK), b = pipe_new(O_NONBLOCK);

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.r, EPOLLIN | EPOLLET, 'b'));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a.w, EPOLLIN | EPOLLOUT | EPOLLET, 'a'));
	dup = (int)assert_ok(fcntl(a.w, F_DUPFD_CLOEXEC, 0));
	assert_int_equal(write(b.w, "x", 1), 1);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, dup, EPOLLIN, 'd'));
	close(a.r);
	a.r = -1;
	fork_and_end();
	assert_true(edges(ep, "abd"));
	assert_true(edges(ep, "d"));
	close(dup);
	pipe_close(&a);
	pipe_close(&b);
	close(ep);
}

static void PIPE_19_an_item_disarmed_at_a_full_pipe_stays_so(void **state)
{
	int ep = (int)assert_ok(epoll_create1(EPOLL_CLOEXEC));
	struct pipe p = pipe_new(O_NONBLOCK);

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, p.w, EPOLLOUT | EPOLLONESHOT, 'w'));
	assert_true(ep_one(ep, EPOLLOUT, 'w'));
	fill(&p);
	fork_and_end();
	assert_int_equal(fcntl(p.w, F_GETPIPE_SZ), FULL);
	assert_int_equal(write(p.w, "x", 1), -1);
	close(p.r);
	p.r = -1;
	assert_int_equal(ep_count(ep), 0);
	assert_ok(ep_ctl(ep, EPOLL_CTL_MOD, p.w, EPOLLOUT, 'w'));
	assert_true(ep_one(ep, EPOLLERR, 'w'));
	pipe_close(&p);
	close(ep);
}

/* The kernel ends what one call has closed in the opposite order. */
static void PIPE_21_close_range_ends_the_last_first(void **state)
{
	int ep = (int)assert_ok(epoll_create1(EPOLL_CLOEXEC)), first, next;
	struct pipe a = pipe_new(O_NONBLOCK), b = pipe_new(O_NONBLOCK);

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, a.r, EPOLLIN | EPOLLET, 'a'));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, b.w, EPOLLET, 'b'));
	first = (int)assert_ok(fcntl(a.w, F_DUPFD, 300));
	next = (int)assert_ok(fcntl(b.r, F_DUPFD, first + 1));
	assert_int_equal(next, first + 1);
	close(a.w);
	close(b.r);
	assert_int_equal(ep_count(ep), 0);
	assert_ok(close_range((unsigned int)first, (unsigned int)next, 0));
	assert_true(edges(ep, "ba"));
	a.w = b.r = -1;
	pipe_close(&a);
	pipe_close(&b);
	close(ep);
}

/* libc takes what is not eight bytes for a failure. */
static void PIPE_07_a_pipe_is_no_eventfd(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK);
	eventfd_t value = 5;

	(void)state;
	assert_int_equal(write(p.w, "abc", 3), 3);
	assert_int_equal(eventfd_read(p.r, &value), -1);
	assert_int_equal(eventfd_write(p.w, value), 0);
	assert_int_equal(eventfd_read(p.r, &value), 0);
	pipe_close(&p);
}

/* Other ways to the same pipe. */
static void PIPE_02_other_ways_to_a_pipe(void **state)
{
	struct pipe p = pipe_new(O_NONBLOCK | O_CLOEXEC);
	char path[64];
	FILE *f;
	int fd;

	(void)state;
	assert_int_equal(write(p.w, "abcdef", 6), 6);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", p.r);
	fd = (int)assert_ok(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
	assert_int_equal(read(fd, buf, 2), 2);
	assert_memory_equal(buf, "ab", 2);
	assert_int_equal(read(p.r, buf, 1), 1);
	close(fd);
	pipe_close(&p);
	p = pipe_new(O_CLOEXEC);
	assert_int_equal(write(p.w, "line\n", 5), 5);
	f = fdopen(p.r, "r");
	assert_non_null(f);
	assert_ptr_equal(fgets(buf, 100, f), buf);
	assert_string_equal(buf, "line\n");
	fclose(f);
	close(p.w);
}

/* What a program that is started opens in the folder of descriptors is the same pipe. */
static void PIPE_02_opened_again_by_a_file_action(void **state)
{
	static const char *const folders[] = {"/dev/fd", "/proc/self/fd"};
	char *argv[] = {"cat", NULL};

	(void)state;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
		struct pipe p = pipe_new(O_CLOEXEC), out = pipe_new(O_CLOEXEC);
		posix_spawn_file_actions_t fa;
		char path[32], got[4];
		pid_t pid;

		assert_int_equal(write(p.w, "abc", 3), 3);
		snprintf(path, sizeof(path), "%s/%d", folders[i], p.r);
		assert_int_equal(posix_spawn_file_actions_init(&fa), 0);
		assert_int_equal(posix_spawn_file_actions_addopen(&fa, 0, path, O_RDONLY, 0), 0);
		snprintf(path, sizeof(path), "%s/%d", folders[i], out.w);
		assert_int_equal(posix_spawn_file_actions_addopen(&fa, 1, path, O_WRONLY, 0), 0);
		assert_int_equal(posix_spawnp(&pid, argv[0], &fa, NULL, argv, environ), 0);
		posix_spawn_file_actions_destroy(&fa);
		assert_ok(close(p.w));
		assert_ok(close(out.w));
		assert_int_equal(read(out.r, got, sizeof(got)), 3);
		assert_memory_equal(got, "abc", 3);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		assert_ok(close(p.r));
		assert_ok(close(out.r));
	}
}

/* --- several readers ----------------------------------------------------------------- */

#define BYTES 200000
#define WANTED 64

struct readers {
	struct pipe p;
	unsigned long got, wrong;
	bool over;
};

static void *reads_beside_another(void *arg)
{
	struct readers *s = arg;
	char mine[WANTED];

	while (!__atomic_load_n(&s->over, __ATOMIC_ACQUIRE)) {
		ssize_t n;

		memset(mine, '-', sizeof(mine));
		n = read(s->p.r, mine, sizeof(mine));
		if (n < 0 && errno != EAGAIN)
			__atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
		for (ssize_t i = 0; i < WANTED; i++)
			if (mine[i] != (i < n ? 'x' : '-'))
				__atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
		if (n > 0)
			__atomic_fetch_add(&s->got, (unsigned long)n, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void PIPE_07_a_reader_writes_no_more_than_it_gets(void **state)
{
	struct readers s = {.p = pipe_new(O_NONBLOCK)};
	int64_t end = now_ms() + 1000;
	struct test_thread t[2];
	unsigned long sent = 0;

	(void)state;
	for (int i = 0; i < 2; i++)
		thread_start(&t[i], reads_beside_another, &s);
	for (; sent < BYTES && now_ms() < end; sent++)
		while (write(s.p.w, "x", 1) < 0)
			assert_int_equal(errno, EAGAIN);
	end = now_ms() + 20000;
	while (__atomic_load_n(&s.got, __ATOMIC_RELAXED) < sent && now_ms() < end)
		sched_yield();
	__atomic_store_n(&s.over, true, __ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++)
		assert_true(thread_join(&t[i], 20000));
	assert_int_equal(s.got, sent);
	assert_int_equal(s.wrong, 0);
	pipe_close(&s.p);
}

int main(void)
{
	const struct CMUnitTest pipes[] = {
		cmocka_unit_test(PIPE_01_flags_and_errors),
		cmocka_unit_test(PIPE_02_modes_and_flags),
		cmocka_unit_test(PIPE_03_sixteen_slots),
		cmocka_unit_test(PIPE_04_masks_of_the_read_end),
		cmocka_unit_test(PIPE_05_masks_of_the_write_end),
		cmocka_unit_test(PIPE_06_writable_by_slot),
		cmocka_unit_test(PIPE_07_reading),
		cmocka_unit_test(PIPE_07_a_buffer_that_ends_early_gets_what_fits),
		cmocka_unit_test(PIPE_07_a_piece_longer_than_the_address_space),
		cmocka_unit_test(PIPE_07_a_reader_writes_no_more_than_it_gets),
		cmocka_unit_test(PIPE_08_the_wrong_end),
		cmocka_unit_test(PIPE_09_writing_nothing),
		cmocka_unit_test(PIPE_10_writing_without_readers),
		cmocka_unit_test(PIPE_11_small_writes_are_whole),
		cmocka_unit_test(PIPE_12_larger_writes),
		cmocka_unit_test(PIPE_03_PIPE_12_a_write_that_slept_continues_no_slot),
		cmocka_unit_test(PIPE_12_a_write_that_slept_looks_at_O_NONBLOCK),
		cmocka_unit_test(PIPE_10_the_number_of_a_blocked_write_is_closed),
		cmocka_unit_test(PIPE_13_small_writes_are_not_interleaved),
		cmocka_unit_test(PIPE_14_packets),
		cmocka_unit_test(PIPE_15_capacity),
		cmocka_unit_test(PIPE_16_FIONREAD),
		cmocka_unit_test(PIPE_17_every_write_wakes),
		cmocka_unit_test(PIPE_18_a_blocked_writer_tells),
		cmocka_unit_test(PIPE_19_reads_of_a_full_pipe_wake),
		cmocka_unit_test(PIPE_20_none_on_the_own_end),
		cmocka_unit_test(PIPE_21_the_last_close_tells_all),
		cmocka_unit_test(PIPE_22_a_change_of_size_tells_writers),
		cmocka_unit_test(PIPE_23_splice_and_tee),
		cmocka_unit_test(PIPE_24_blocked_readers),
		cmocka_unit_test(PIPE_25_fifos),
		cmocka_unit_test(PIPE_03_PIPE_06_a_pipe_that_leaves_keeps_its_slots),
		cmocka_unit_test(PIPE_14_packets_leave_as_packets),
		cmocka_unit_test(PIPE_07_a_pipe_survives_a_fork),
		cmocka_unit_test(PIPE_04_a_closed_pipe_survives_a_fork),
		cmocka_unit_test(PIPE_24_sleepers_go_along),
		cmocka_unit_test(PIPE_24_EP_KEY_07_sleepers_on_closed_numbers_go_along),
		cmocka_unit_test(PIPE_04_a_disarmed_item_goes_along),
		cmocka_unit_test(PIPE_21_the_order_survives_a_fork),
		cmocka_unit_test(PIPE_19_an_item_disarmed_at_a_full_pipe_stays_so),
		cmocka_unit_test(PIPE_21_close_range_ends_the_last_first),
		cmocka_unit_test(PIPE_07_a_pipe_is_no_eventfd),
		cmocka_unit_test(PIPE_02_other_ways_to_a_pipe),
		cmocka_unit_test(PIPE_02_opened_again_by_a_file_action),
	};

	return run_group(pipes);
}
