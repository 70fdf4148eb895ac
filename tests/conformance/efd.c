/* SPDX-License-Identifier: MIT */
/* The eventfd: counts, blocking, errors, and what it tells its pollers. */
#include "waiting.h"

#include <inttypes.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* The ways in which a program reads and writes eight bytes. */
enum via { VIA_CALL, VIA_VEC, VIA_RAW, VIA_RAWVEC, VIA_GLIBC, VIA_V2, VIA_CHECKED, VIAS };

#ifdef __GLIBC__
/* What read and poll become in programs built with _FORTIFY_SOURCE. */
extern ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);
extern int __poll_chk(struct pollfd *f, nfds_t n, int timeout, size_t room);
#endif

static ssize_t get(enum via via, int fd, uint64_t *v)
{
	struct iovec iov[3] = {{.iov_base = v, .iov_len = 3},
			       {.iov_base = (char *)v + 3, .iov_len = 1},
			       {.iov_base = (char *)v + 4, .iov_len = 4}};

	switch (via) {
	case VIA_VEC:
		return readv(fd, iov, 3);
	case VIA_RAW:
		return syscall(SYS_read, fd, v, sizeof(*v));
	case VIA_RAWVEC:
		return syscall(SYS_readv, fd, iov, 3);
	case VIA_GLIBC:
		return eventfd_read(fd, v) == 0 ? 8 : -1;
	case VIA_V2:
		return preadv2(fd, iov, 3, -1, 0);
#ifdef __GLIBC__
	case VIA_CHECKED:
		return __read_chk(fd, v, sizeof(*v), sizeof(*v));
#endif
	default:
		return read(fd, v, sizeof(*v));
	}
}

static ssize_t put(enum via via, int fd, uint64_t v)
{
	struct iovec iov = {.iov_base = &v, .iov_len = sizeof(v)};

	switch (via) {
	case VIA_VEC:
		return writev(fd, &iov, 1);
	case VIA_RAW:
		return syscall(SYS_write, fd, &v, sizeof(v));
	case VIA_RAWVEC:
		return syscall(SYS_writev, fd, &iov, 1);
	case VIA_GLIBC:
		return eventfd_write(fd, v) == 0 ? 8 : -1;
	case VIA_V2:
		return pwritev2(fd, &iov, 1, -1, 0);
	default:
		return write(fd, &v, sizeof(v));
	}
}

/* A thread in a blocking read (or write of v). */
struct io {
	struct test_thread t;
	enum via via;
	int fd;
	bool writes;
	uint64_t v;
	ssize_t n;
	int err;
};

static void *io_main(void *arg)
{
	struct io *io = arg;

	io->n = io->writes ? put(io->via, io->fd, io->v) : get(io->via, io->fd, &io->v);
	io->err = errno;
	return NULL;
}

static struct io *io_new(enum via via, int fd, bool writes, uint64_t v)
{
	struct io *io = calloc(1, sizeof(*io));

	assert_non_null(io);
	io->via = via;
	io->fd = fd;
	io->writes = writes;
	io->v = v;
	thread_start(&io->t, io_main, io);
	assert_true(thread_asleep(&io->t));
	return io;
}

static void io_stays(struct io *io)
{
	sleep_ms(QUIET_MS);
	assert_true(thread_asleep(&io->t));
}

static uint64_t io_end(struct io *io)
{
	uint64_t v;

	assert_true(thread_join(&io->t, SOON_MS));
	if (io->n != 8)
		print_error("blocked call: %zd, errno %d\n", io->n, io->err);
	assert_int_equal(io->n, 8);
	v = io->v;
	free(io);
	return v;
}

static void io_interrupted(struct io *io)
{
	assert_true(thread_join(&io->t, SOON_MS));
	assert_int_equal(io->n, -1);
	assert_int_equal(io->err, EINTR);
	free(io);
}

#define ANY                                                                                        \
	(POLLIN | POLLPRI | POLLOUT | POLLRDNORM | POLLRDBAND | POLLWRNORM | POLLWRBAND | POLLRDHUP)

static int poll_now(int fd)
{
	struct pollfd p = {.fd = fd, .events = ANY};
	int n = poll(&p, 1, 0);

	assert_int_equal(n, p.revents != 0);
	return p.revents;
}

/* Sets the counter of an eventfd that is not a semaphore. */
static void count_set(int fd, uint64_t v)
{
	uint64_t drop;
	int fl = (int)assert_ok(fcntl(fd, F_GETFL));

	assert_ok(fcntl(fd, F_SETFL, fl | O_NONBLOCK));
	if (read(fd, &drop, sizeof(drop)) == -1)
		assert_int_equal(errno, EAGAIN);
	efd_add(fd, v);
	assert_ok(fcntl(fd, F_SETFL, fl));
}

/* Brings the counter to 2^64-1, which only the kernel can do. */
static bool overflow(int fd)
{
	count_set(fd, COUNT_MAX);
	return resfd_signal(fd);
}

#define NO_AIO "no kernel AIO to signal an eventfd from the kernel"

static char *bad_page(void)
{
	char *p = mmap(NULL, 2 * (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	p += sysconf(_SC_PAGESIZE);
	assert_ok(mprotect(p, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE));
	return p;
}

static void bad_page_free(char *p)
{
	munmap(p - sysconf(_SC_PAGESIZE), 2 * (size_t)sysconf(_SC_PAGESIZE));
}

static void EFD_01_initval_and_flags(void **state)
{
	static const int flags[] = {0, EFD_SEMAPHORE, EFD_NONBLOCK, EFD_CLOEXEC,
				    EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC};
	static const unsigned int init[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff};

	(void)state;
	for (int i = 0; i < 5; i++) {
		for (int raw = 0; raw < 2; raw++) {
			int fd = (int)assert_ok(raw ? syscall(SYS_eventfd2, init[i], flags[i])
						    : eventfd(init[i], flags[i]));

			assert_int_equal(fcntl(fd, F_GETFL),
					 O_RDWR | (flags[i] & EFD_NONBLOCK ? O_NONBLOCK : 0));
			assert_int_equal(fcntl(fd, F_GETFD),
					 flags[i] & EFD_CLOEXEC ? FD_CLOEXEC : 0);
			if (init[i] != 0)
				assert_int_equal(efd_take(fd),
						 flags[i] & EFD_SEMAPHORE ? 1 : init[i]);
			close(fd);
		}
	}
}

static void EFD_01_other_flags_are_refused_before_the_fd_limit(void **state)
{
	struct rlimit old, none;

	(void)state;
	for (int bit = 0; bit < 32; bit++) {
		int flag = (int)(1u << bit);

		if (flag == EFD_SEMAPHORE || flag == EFD_NONBLOCK || flag == EFD_CLOEXEC)
			continue;
		assert_errno(eventfd(0, flag), EINVAL);
		assert_errno(eventfd(0, flag | EFD_NONBLOCK), EINVAL);
	}
	assert_ok(getrlimit(RLIMIT_NOFILE, &old));
	none = old;
	none.rlim_cur = 0;
	assert_ok(setrlimit(RLIMIT_NOFILE, &none));
	errno = 0;
	int r1 = eventfd(0, 2), e1 = errno, r2 = eventfd(0, 0), e2 = errno;
	int r3 = (int)syscall(SYS_eventfd2, 0, 0), e3 = errno;
	assert_ok(setrlimit(RLIMIT_NOFILE, &old));
	assert_int_equal(r1, -1);
	assert_int_equal(e1, EINVAL);
	assert_int_equal(r2, -1);
	assert_int_equal(e2, EMFILE);
	assert_int_equal(r3, -1);
	assert_int_equal(e3, EMFILE);
}

static void EFD_01_the_lowest_number_is_used(void **state)
{
	int a = efd_new(0, 0), b = efd_new(0, 0), c = efd_new(0, 0);

	(void)state;
	close(b);
	close(a);
	assert_int_equal(efd_new(0, 0), a);
	assert_int_equal(efd_new(0, 0), b);
	close(a);
	close(b);
	close(c);
}

static void EFD_02_the_counter_holds_up_to_2_64_minus_2(void **state)
{
	static const uint64_t values[] = {1,
					  0xffffffff,
					  0x100000000ull,
					  0x7fffffffffffffffull,
					  0x8000000000000000ull,
					  COUNT_MAX - 1,
					  COUNT_MAX};
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	for (enum via via = VIA_CALL; via < VIAS; via++) {
		for (int i = 0; i < 7; i++) {
			uint64_t v = 0;

			assert_int_equal(put(via, fd, values[i]), 8);
			assert_int_equal(get(via, fd, &v), 8);
			assert_int_equal(v, values[i]);
		}
	}
	efd_add(fd, 0x7fffffffffffffffull);
	efd_add(fd, 0x7fffffffffffffffull);
	assert_int_equal(efd_take(fd), COUNT_MAX);
	close(fd);
}

static void EFD_02_only_the_kernel_reaches_2_64_minus_1(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	efd_add(fd, COUNT_MAX);
	assert_errno(put(VIA_CALL, fd, 1), EAGAIN);
	assert_int_equal(poll_now(fd), POLLIN);
	if (!resfd_signal(fd)) {
		close(fd);
		SKIP(NO_AIO);
	}
	assert_int_equal(efd_take(fd), UINT64_MAX);
	close(fd);
}

static void EFD_03_a_short_buffer_is_refused_whatever_the_counter(void **state)
{
	char buf[8];

	(void)state;
	for (unsigned int init = 0; init < 2; init++) {
		for (int fl = 0; fl < 2; fl++) {
			int fd = efd_new(init, fl ? EFD_NONBLOCK : EFD_SEMAPHORE);
			struct iovec iov = {.iov_base = buf, .iov_len = 7};

			for (size_t n = 0; n < 8; n++) {
				assert_errno(read(fd, buf, n), EINVAL);
				assert_errno(syscall(SYS_read, fd, buf, n), EINVAL);
			}
			assert_errno(readv(fd, &iov, 1), EINVAL);
			/* Before the buffer is looked at. */
			assert_errno(syscall(SYS_read, fd, (void *)8, (size_t)7), EINVAL);
			assert_int_equal(poll_now(fd), POLLOUT | (init ? POLLIN : 0));
			if (init)
				assert_int_equal(efd_take(fd), 1);
			close(fd);
		}
	}
}

static void EFD_03_a_long_buffer_gets_eight_bytes(void **state)
{
	static const size_t lengths[] = {8, 9, 12, 16, 24};
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	for (int i = 0; i < 5; i++) {
		unsigned char buf[24];
		uint64_t v = 0x0102030405060708ull;

		for (int raw = 0; raw < 2; raw++) {
			memset(buf, 0xee, sizeof(buf));
			efd_add(fd, v);
			assert_int_equal(raw ? syscall(SYS_read, fd, buf, lengths[i])
					     : read(fd, buf, lengths[i]),
					 8);
			assert_memory_equal(buf, &v, 8);
			for (size_t k = 8; k < sizeof(buf); k++)
				assert_int_equal(buf[k], 0xee);
		}
	}
	close(fd);
}

static void EFD_04_a_read_takes_all(void **state)
{
	(void)state;
	for (enum via via = VIA_CALL; via < VIAS; via++) {
		int fd = efd_new(3, EFD_NONBLOCK);
		uint64_t v = 0;

		assert_int_equal(put(via, fd, 4), 8);
		assert_int_equal(get(via, fd, &v), 8);
		assert_int_equal(v, 7);
		assert_errno(get(via, fd, &v), EAGAIN);
		assert_int_equal(v, 7);
		close(fd);
	}
}

static void EFD_04_a_semaphore_read_takes_one(void **state)
{
	(void)state;
	for (enum via via = VIA_CALL; via < VIAS; via++) {
		int fd = efd_new(1, EFD_NONBLOCK | EFD_SEMAPHORE);
		uint64_t v;

		assert_int_equal(put(via, fd, 2), 8);
		for (int i = 0; i < 3; i++) {
			v = 0;
			assert_int_equal(get(via, fd, &v), 8);
			assert_int_equal(v, 1);
		}
		assert_errno(get(via, fd, &v), EAGAIN);
		close(fd);
	}
}

static void EFD_04_a_semaphore_at_the_top(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK | EFD_SEMAPHORE);

	(void)state;
	efd_add(fd, COUNT_MAX);
	assert_errno(put(VIA_CALL, fd, 1), EAGAIN);
	assert_int_equal(efd_take(fd), 1);
	assert_int_equal(poll_now(fd), POLLIN | POLLOUT);
	efd_add(fd, 1);
	assert_int_equal(poll_now(fd), POLLIN);
	close(fd);
}

enum { SUM_THREADS = 4, SUM_WRITES = 5000 };

struct sum {
	struct test_thread t;
	int fd;
	bool writes;
	uint64_t total;
	uint64_t calls;
	int bad;
};

/* A reader ends when it has read a value that has the top bit. */
static void *sum_main(void *arg)
{
	struct sum *s = arg;
	uint64_t v;

	for (int i = 1; s->writes && i <= SUM_WRITES; i++) {
		v = (uint64_t)(i % 3 + 1);
		if (write(s->fd, &v, sizeof(v)) != sizeof(v))
			s->bad++;
		s->total += v;
	}
	while (!s->writes) {
		if (read(s->fd, &v, sizeof(v)) != sizeof(v)) {
			s->bad++;
			break;
		}
		s->calls++;
		s->total += v & ~(1ull << 63);
		if (v >> 63)
			break;
	}
	return NULL;
}

static void EFD_04_no_count_is_lost_between_threads(void **state)
{
	struct sum *s = calloc(2 * SUM_THREADS, sizeof(*s));
	uint64_t in = 0, out = 0;
	int fd = efd_new(0, 0);

	(void)state;
	for (int i = 0; i < 2 * SUM_THREADS; i++) {
		s[i].fd = fd;
		s[i].writes = i >= SUM_THREADS;
		thread_start(&s[i].t, sum_main, &s[i]);
	}
	for (int i = SUM_THREADS; i < 2 * SUM_THREADS; i++) {
		assert_true(thread_join(&s[i].t, SOON_MS));
		in += s[i].total;
	}
	for (int ended = 0; ended < SUM_THREADS; ended++) {
		int64_t end = now_ms() + SOON_MS;
		int done = 0;

		efd_add(fd, 1ull << 63);
		do {
			done = 0;
			for (int i = 0; i < SUM_THREADS; i++)
				done += thread_done(&s[i].t);
			sched_yield();
		} while (done <= ended && now_ms() < end);
		assert_int_equal(done, ended + 1);
	}
	for (int i = 0; i < SUM_THREADS; i++) {
		assert_true(thread_join(&s[i].t, SOON_MS));
		out += s[i].total;
	}
	for (int i = 0; i < 2 * SUM_THREADS; i++)
		assert_int_equal(s[i].bad, 0);
	assert_int_equal(in, out);
	free(s);
	close(fd);
}

struct tokens {
	struct test_thread t;
	int fd;
	int n;
	int bad;
};

static void *tokens_main(void *arg)
{
	struct tokens *k = arg;
	uint64_t v;

	for (int i = 0; i < k->n; i++)
		if (read(k->fd, &v, sizeof(v)) != sizeof(v) || v != 1)
			k->bad++;
	return NULL;
}

static void EFD_04_a_semaphore_hands_out_every_token_once(void **state)
{
	struct tokens *k = calloc(SUM_THREADS, sizeof(*k));
	int fd = efd_new(0, EFD_SEMAPHORE);

	(void)state;
	for (int i = 0; i < SUM_THREADS; i++) {
		k[i].fd = fd;
		k[i].n = 3000;
		thread_start(&k[i].t, tokens_main, &k[i]);
	}
	for (int i = 0; i < 3000; i++)
		efd_add(fd, SUM_THREADS);
	for (int i = 0; i < SUM_THREADS; i++) {
		assert_true(thread_join(&k[i].t, SOON_MS));
		assert_int_equal(k[i].bad, 0);
	}
	assert_int_equal(poll_now(fd), POLLOUT);
	free(k);
	close(fd);
}

static void EFD_05_an_empty_nonblocking_read_is_refused(void **state)
{
	(void)state;
	for (int sem = 0; sem < 2; sem++) {
		int fd = efd_new(0, EFD_NONBLOCK | (sem ? EFD_SEMAPHORE : 0));

		for (enum via via = VIA_CALL; via < VIAS; via++) {
			uint64_t v = 5;

			assert_errno(get(via, fd, &v), EAGAIN);
			assert_int_equal(v, 5);
		}
		close(fd);
	}
}

static void EFD_05_a_blocking_read_sleeps_until_a_write(void **state)
{
	(void)state;
	for (enum via via = VIA_CALL; via < VIAS; via++) {
		int fd = efd_new(0, 0);
		struct io *io = io_new(via, fd, false, 0);

		io_stays(io);
		/* A zero is a write, but no count. */
		assert_int_equal(put(via, fd, 0), 8);
		io_stays(io);
		assert_int_equal(put(via, fd, 9), 8);
		assert_int_equal(io_end(io), 9);
		close(fd);
	}
}

static int signals;

static void on_signal(int sig)
{
	(void)sig;
	__atomic_add_fetch(&signals, 1, __ATOMIC_SEQ_CST);
}

static void signal_and_wait(struct io *io)
{
	int64_t end = now_ms() + SOON_MS;
	int before = __atomic_load_n(&signals, __ATOMIC_SEQ_CST);

	pthread_kill(io->t.id, SIGUSR1);
	while (__atomic_load_n(&signals, __ATOMIC_SEQ_CST) == before && now_ms() < end)
		sleep_ms(1);
	assert_int_not_equal(__atomic_load_n(&signals, __ATOMIC_SEQ_CST), before);
}

static void EFD_05_a_signal_ends_or_restarts_a_blocking_read(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal}, old;

	(void)state;
	/* It holds signals back until a call ends that it knows to block; ours it does not. */
	if (SANITIZED == 2 && under_pollux())
		SKIP("ThreadSanitizer delays the handler");
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	for (enum via via = VIA_CALL; via < VIAS; via++) {
		int fd = efd_new(0, 0);
		struct io *io;

		sa.sa_flags = 0;
		assert_ok(sigaction(SIGUSR1, &sa, NULL));
		io = io_new(via, fd, false, 0);
		signal_and_wait(io);
		io_interrupted(io);
		sa.sa_flags = SA_RESTART;
		assert_ok(sigaction(SIGUSR1, &sa, NULL));
		io = io_new(via, fd, false, 0);
		for (int i = 0; i < 3; i++) {
			signal_and_wait(io);
			io_stays(io);
		}
		efd_add(fd, 3);
		assert_int_equal(io_end(io), 3);
		close(fd);
	}
	assert_ok(sigaction(SIGUSR1, &old, NULL));
}

/* The handler itself writes what the blocked read waits for. */
static int handler_fd;

static void on_signal_write(int sig)
{
	uint64_t v = 6;
	int saved = errno;

	(void)sig;
	if (write(handler_fd, &v, sizeof(v)) == sizeof(v))
		__atomic_add_fetch(&signals, 1, __ATOMIC_SEQ_CST);
	errno = saved;
}

static void EFD_05_a_handler_may_write_what_is_read(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal_write, .sa_flags = SA_RESTART}, old;
	struct io *io;

	(void)state;
	if (SANITIZED == 2 && under_pollux())
		SKIP("ThreadSanitizer delays the handler");
	handler_fd = efd_new(0, 0);
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	io = io_new(VIA_CALL, handler_fd, false, 0);
	signal_and_wait(io);
	assert_int_equal(io_end(io), 6);
	assert_ok(sigaction(SIGUSR1, &old, NULL));
	close(handler_fd);
}

static void EFD_06_a_bad_buffer_loses_the_value(void **state)
{
	char *bad = bad_page();
	struct iovec iov = {.iov_base = bad, .iov_len = 8};

	(void)state;
	for (int way = 0; way < 4; way++) {
		int fd = efd_new(5, EFD_NONBLOCK);
		uint64_t v;

		if (way == 0)
			assert_errno(read(fd, bad, 8), EFAULT);
		else if (way == 1)
			assert_errno(syscall(SYS_read, fd, bad, (size_t)8), EFAULT);
		else if (way == 2)
			assert_errno(readv(fd, &iov, 1), EFAULT);
		else
			assert_errno(read(fd, bad - 4, 8), EFAULT);
		assert_errno(get(VIA_CALL, fd, &v), EAGAIN);
		assert_int_equal(poll_now(fd), POLLOUT);
		close(fd);
	}
	bad_page_free(bad);
}

/* Of a value that cannot be stored what comes before the first bad byte is. (x86-64's kernel.) */
static void EFD_06_a_buffer_that_ends_early_gets_what_fits(void **state)
{
#if defined(__x86_64__)
	const uint64_t value = 0x1122334455667788ull;
	int fd = efd_new(0, EFD_NONBLOCK);
	char *bad = bad_page(), want[16];

	(void)state;
	for (size_t k = 1; k < sizeof(value); k++) {
		memset(bad - sizeof(want), 0xee, sizeof(want));
		memset(want, 0xee, sizeof(want));
		memcpy(want + sizeof(want) - k, &value, k);
		efd_add(fd, value);
		assert_errno(read(fd, bad - k, sizeof(value)), EFAULT);
		assert_memory_equal(bad - sizeof(want), want, sizeof(want));
		assert_int_equal(poll_now(fd), POLLOUT);
	}
	close(fd);
	bad_page_free(bad);
#else
	(void)state;
	skip();
#endif
}

static void EFD_06_a_bad_buffer_loses_one_of_a_semaphore(void **state)
{
	char *bad = bad_page();
	int fd = efd_new(2, EFD_NONBLOCK | EFD_SEMAPHORE);
	uint64_t v;

	(void)state;
	assert_errno(read(fd, bad, 8), EFAULT);
	assert_int_equal(efd_take(fd), 1);
	assert_errno(get(VIA_CALL, fd, &v), EAGAIN);
	/* Nothing to take: the buffer is not touched. */
	assert_errno(read(fd, bad, 8), EAGAIN);
	close(fd);
	bad_page_free(bad);
}

static void EFD_07_readv_fills_pieces(void **state)
{
	uint64_t want = 0x1122334455667788ull;
	unsigned char b[12];
	struct iovec iov[4] = {{b, 1}, {b + 1, 0}, {b + 1, 6}, {b + 7, 5}};
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	for (int raw = 0; raw < 2; raw++) {
		memset(b, 0xee, sizeof(b));
		efd_add(fd, want);
		assert_int_equal(raw ? syscall(SYS_readv, fd, iov, 4) : readv(fd, iov, 4), 8);
		assert_memory_equal(b, &want, 8);
		assert_int_equal(b[8], 0xee);
	}
	/* Less than eight bytes in all. */
	efd_add(fd, 1);
	assert_errno(readv(fd, iov, 3), EINVAL);
	assert_int_equal(efd_take(fd), 1);
	close(fd);
}

static void EFD_07_writev_writes_each_piece_by_itself(void **state)
{
	uint64_t v[2] = {3, 4};
	struct iovec halves[2] = {{v, 4}, {(char *)v + 4, 4}};
	struct iovec two[2] = {{&v[0], 8}, {&v[1], 8}};
	struct iovec odd[2] = {{&v[0], 8}, {&v[1], 4}};
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	assert_errno(writev(fd, halves, 2), EINVAL);
	assert_errno(syscall(SYS_writev, fd, halves, 2), EINVAL);
	assert_int_equal(poll_now(fd), POLLOUT);
	assert_int_equal(writev(fd, two, 2), 16);
	assert_int_equal(efd_take(fd), 7);
	assert_int_equal(writev(fd, odd, 2), 8);
	assert_int_equal(efd_take(fd), 3);
	/* The second value no longer fits: what was written counts. */
	v[0] = COUNT_MAX;
	assert_int_equal(writev(fd, two, 2), 8);
	assert_int_equal(efd_take(fd), COUNT_MAX);
	close(fd);
}

/*
 * Newer kernels cut a single piece to what is transferred at most before they look at where it
 * ends; of several each has to be where memory of the program can be.
 */
static void EFD_07_a_piece_longer_than_the_address_space(void **state)
{
	static uint64_t v;
	bool cut = long_piece_is_cut();

	(void)state;
	for (int bit = 30; bit < 63; bit++) {
		struct iovec iov[2] = {{&v, (size_t)1 << bit}, {&v, 0}};
		int fd = efd_new(5, EFD_NONBLOCK);

		v = 0;
		if (cut) {
			assert_int_equal(readv(fd, iov, 1), 8);
			assert_int_equal(v, 5);
			assert_errno(writev(fd, iov, 1), EINVAL);
			efd_add(fd, 5);
			assert_int_equal(preadv2(fd, iov, 1, -1, RWF_NOWAIT), 8);
			assert_errno(readv(fd, iov, 1), EAGAIN);
		} else if (bit == 62) {
			assert_errno(readv(fd, iov, 1), EFAULT);
			assert_errno(writev(fd, iov, 1), EFAULT);
		}
		close(fd);
		fd = efd_new(5, EFD_NONBLOCK);
		if (bit == 62) {
			assert_errno(readv(fd, (struct iovec[]){{&v, SIZE_MAX}}, 1), EINVAL);
			assert_errno(readv(fd, iov, 2), EFAULT);
			assert_int_equal(efd_take(fd), 5);
		}
		close(fd);
	}
}

static void EFD_08_a_write_is_eight_bytes(void **state)
{
	static const size_t lengths[] = {0, 1, 4, 7};
	uint64_t v[2] = {1, 1};
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	for (int i = 0; i < 4; i++) {
		assert_errno(write(fd, v, lengths[i]), EINVAL);
		assert_errno(syscall(SYS_write, fd, v, lengths[i]), EINVAL);
		/* The buffer is not looked at. */
		assert_errno(syscall(SYS_write, fd, (void *)8, lengths[i]), EINVAL);
	}
	assert_int_equal(poll_now(fd), POLLOUT);
	close(fd);
}

/* Older kernels take the first eight bytes of a longer buffer. */
static void EFD_08_a_longer_write(void **state)
{
	static const size_t lengths[] = {9, 12, 16};
	uint64_t v[2] = {5, 5};
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	for (int i = 0; i < 3; i++) {
		ssize_t n = write(fd, v, lengths[i]);

		if (n == -1) {
			assert_int_equal(errno, EINVAL);
			assert_int_equal(poll_now(fd), POLLOUT);
			assert_errno(syscall(SYS_write, fd, (void *)8, lengths[i]), EINVAL);
		} else {
			assert_int_equal(n, 8);
			assert_int_equal(efd_take(fd), 5);
		}
	}
	close(fd);
}

static void EFD_09_the_order_of_write_errors(void **state)
{
	char *bad = bad_page();

	(void)state;
	for (int full = 0; full < 2; full++) {
		int fd = efd_new(0, EFD_NONBLOCK);
		struct iovec iov = {.iov_base = bad, .iov_len = 8};

		if (full)
			efd_add(fd, COUNT_MAX);
		assert_errno(write(fd, bad, 7), EINVAL);
		assert_errno(write(fd, bad, 8), EFAULT);
		assert_errno(write(fd, bad - 4, 8), EFAULT);
		assert_errno(syscall(SYS_write, fd, bad, (size_t)8), EFAULT);
		assert_errno(writev(fd, &iov, 1), EFAULT);
		for (enum via via = VIA_CALL; via < VIAS; via++) {
			assert_errno(put(via, fd, UINT64_MAX), EINVAL);
			if (full)
				assert_errno(put(via, fd, 1), EAGAIN);
		}
		assert_int_equal(poll_now(fd), full ? POLLIN : POLLOUT);
		if (full)
			assert_int_equal(efd_take(fd), COUNT_MAX);
		close(fd);
	}
	bad_page_free(bad);
}

/* A blocking write of 2^64-1 to a full counter fails at once too. */
static void EFD_09_the_value_is_judged_before_blocking(void **state)
{
	int fd = efd_new(0, 0);

	(void)state;
	efd_add(fd, COUNT_MAX);
	assert_errno(put(VIA_CALL, fd, UINT64_MAX), EINVAL);
	close(fd);
}

static void EFD_10_a_write_fits_or_is_refused(void **state)
{
	static const struct {
		uint64_t have, add;
		bool fits;
	} c[] = {
		{0, COUNT_MAX, true},
		{1, COUNT_MAX, false},
		{1, COUNT_MAX - 1, true},
		{COUNT_MAX - 1, 1, true},
		{COUNT_MAX - 1, 2, false},
		{COUNT_MAX, 1, false},
		{COUNT_MAX, COUNT_MAX, false},
		{1ull << 63, 1ull << 63, false},
		{1ull << 63, (1ull << 63) - 1, false},
		{1ull << 63, (1ull << 63) - 2, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		for (enum via via = VIA_CALL; via < VIAS; via++) {
			int fd = efd_new(0, EFD_NONBLOCK);

			efd_add(fd, c[i].have);
			if (c[i].fits)
				assert_int_equal(put(via, fd, c[i].add), 8);
			else
				assert_errno(put(via, fd, c[i].add), EAGAIN);
			assert_int_equal(efd_take(fd), c[i].have + (c[i].fits ? c[i].add : 0));
			close(fd);
		}
	}
}

static void EFD_10_a_blocking_write_sleeps_until_it_fits(void **state)
{
	(void)state;
	for (enum via via = VIA_CALL; via < VIAS; via++) {
		int fd = efd_new(0, 0);
		struct io *io;

		efd_add(fd, COUNT_MAX);
		io = io_new(via, fd, true, 2);
		io_stays(io);
		assert_int_equal(efd_take(fd), COUNT_MAX);
		io_end(io);
		assert_int_equal(efd_take(fd), 2);
		close(fd);
	}
}

/* One token less is not room enough for two. */
static void EFD_10_a_blocking_write_waits_for_enough_room(void **state)
{
	int fd = efd_new(0, EFD_SEMAPHORE);
	struct io *io;

	(void)state;
	efd_add(fd, COUNT_MAX);
	io = io_new(VIA_CALL, fd, true, 2);
	assert_int_equal(efd_take(fd), 1);
	io_stays(io);
	assert_int_equal(efd_take(fd), 1);
	io_end(io);
	assert_int_equal(poll_now(fd), POLLIN);
	close(fd);
}

static void EFD_10_a_signal_ends_or_restarts_a_blocking_write(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal}, old;

	(void)state;
	if (SANITIZED == 2 && under_pollux())
		SKIP("ThreadSanitizer delays the handler");
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	for (enum via via = VIA_CALL; via < VIA_V2; via++) {
		int fd = efd_new(0, 0);
		struct io *io;

		efd_add(fd, COUNT_MAX);
		sa.sa_flags = 0;
		assert_ok(sigaction(SIGUSR1, &sa, NULL));
		io = io_new(via, fd, true, 1);
		signal_and_wait(io);
		io_interrupted(io);
		sa.sa_flags = SA_RESTART;
		assert_ok(sigaction(SIGUSR1, &sa, NULL));
		io = io_new(via, fd, true, 7);
		signal_and_wait(io);
		io_stays(io);
		assert_int_equal(efd_take(fd), COUNT_MAX);
		io_end(io);
		assert_int_equal(efd_take(fd), 7);
		close(fd);
	}
	assert_ok(sigaction(SIGUSR1, &old, NULL));
}

static void EFD_10_writers_and_readers_at_the_top_make_progress(void **state)
{
	struct sum *s = calloc(2, sizeof(*s));
	int fd = efd_new(0, EFD_SEMAPHORE);
	struct tokens *k = calloc(1, sizeof(*k));

	(void)state;
	efd_add(fd, COUNT_MAX - 1);
	k->fd = fd;
	/* The tokens that two writers bring, but for the one that there was room for. */
	for (int i = 1; i <= SUM_WRITES; i++)
		k->n += 2 * (i % 3 + 1);
	k->n--;
	for (int i = 0; i < 2; i++) {
		s[i].fd = fd;
		s[i].writes = true;
		thread_start(&s[i].t, sum_main, &s[i]);
	}
	thread_start(&k->t, tokens_main, k);
	assert_true(thread_join(&k->t, SOON_MS));
	for (int i = 0; i < 2; i++) {
		assert_true(thread_join(&s[i].t, SOON_MS));
		assert_int_equal(s[i].bad, 0);
	}
	assert_int_equal(k->bad, 0);
	assert_int_equal(poll_now(fd), POLLIN);
	assert_int_equal(efd_take(fd), 1);
	efd_add(fd, 1);
	assert_int_equal(poll_now(fd), POLLIN);
	free(s);
	free(k);
	close(fd);
}

static void EFD_11_writing_zero_succeeds_up_to_2_64_minus_2(void **state)
{
	static const uint64_t have[] = {0, 1, COUNT_MAX - 1, COUNT_MAX};

	(void)state;
	for (int i = 0; i < 4; i++) {
		for (enum via via = VIA_CALL; via < VIAS; via++) {
			int fd = efd_new(0, 0);

			efd_add(fd, have[i]);
			assert_int_equal(put(via, fd, 0), 8);
			if (have[i] > 0)
				assert_int_equal(efd_take(fd), have[i]);
			close(fd);
		}
	}
}

static void EFD_11_writing_zero_is_refused_at_2_64_minus_1(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK);
	struct io *io;

	(void)state;
	if (!overflow(fd)) {
		close(fd);
		SKIP(NO_AIO);
	}
	for (enum via via = VIA_CALL; via < VIAS; via++)
		assert_errno(put(via, fd, 0), EAGAIN);
	assert_ok(fcntl(fd, F_SETFL, O_RDWR));
	io = io_new(VIA_CALL, fd, true, 0);
	io_stays(io);
	assert_int_equal(efd_take(fd), UINT64_MAX);
	io_end(io);
	assert_int_equal(poll_now(fd), POLLOUT);
	close(fd);
}

static int ppoll_now(int fd)
{
	struct pollfd p = {.fd = fd, .events = ANY};
	struct timespec zero = {0};
	int n = ppoll(&p, 1, &zero, NULL);

	assert_int_equal(n, p.revents != 0);
	return p.revents;
}

static int other_polls_now(int fd)
{
	struct pollfd p = {.fd = fd, .events = ANY}, q = p;
	struct timespec zero = {0};
	int n = (int)syscall(SYS_ppoll, &p, 1, &zero, NULL, (size_t)8);

	assert_int_equal(n, p.revents != 0);
#ifdef __GLIBC__
	n = __poll_chk(&q, 1, 0, sizeof(q));
#else
	n = poll(&q, 1, 0);
#endif
	assert_int_equal(n, q.revents != 0);
	assert_int_equal(p.revents, q.revents);
	return p.revents;
}

/* The sets in which fd is ready: 1 readable, 2 writable, 4 exceptional. */
static int select_now(int fd, bool pselect_)
{
	struct timespec zero = {0};
	struct timeval zero_tv = {0};
	fd_set r, w, x;
	int n, got;

	FD_ZERO(&r);
	FD_SET(fd, &r);
	w = x = r;
	n = pselect_ ? pselect(fd + 1, &r, &w, &x, &zero, NULL)
		     : select(fd + 1, &r, &w, &x, &zero_tv);
	got = (FD_ISSET(fd, &r) ? 1 : 0) + (FD_ISSET(fd, &w) ? 2 : 0) + (FD_ISSET(fd, &x) ? 4 : 0);
	assert_int_equal(n, __builtin_popcount((unsigned int)got));
	return got;
}

static void assert_mask(int fd, int want)
{
	struct pollfd p = {.fd = fd, .events = 0};
	struct epoll_event ev = {0};
	int ep = ep_new(), sel, n;

	assert_int_equal(poll_now(fd), want);
	assert_int_equal(ppoll_now(fd), want);
	assert_int_equal(other_polls_now(fd), want);
	n = poll(&p, 1, 0);
	assert_int_equal(n, want & POLLERR ? 1 : 0);
	assert_int_equal(p.revents, want & POLLERR);
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, ANY | EPOLLET, 1));
	n = ep_poll(ep, &ev, 1);
	assert_int_equal(n, want != 0);
	assert_int_equal(ev.events, want);
	close(ep);
	/* select counts an error as readable and writable. */
	sel = (want & (POLLIN | POLLERR) ? 1 : 0) + (want & (POLLOUT | POLLERR) ? 2 : 0);
	assert_int_equal(select_now(fd, false), sel);
	assert_int_equal(select_now(fd, true), sel);
}

static void EFD_12_the_poll_mask_at_every_count(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	assert_mask(fd, POLLOUT);
	count_set(fd, 1);
	assert_mask(fd, POLLIN | POLLOUT);
	count_set(fd, COUNT_MAX - 1);
	assert_mask(fd, POLLIN | POLLOUT);
	count_set(fd, COUNT_MAX);
	assert_mask(fd, POLLIN);
	efd_take(fd);
	assert_mask(fd, POLLOUT);
	close(fd);
}

static void EFD_12_the_poll_mask_after_overflow(void **state)
{
	int fd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	if (!overflow(fd)) {
		close(fd);
		SKIP(NO_AIO);
	}
	assert_mask(fd, POLLIN | POLLERR);
	efd_take(fd);
	assert_mask(fd, POLLOUT);
	close(fd);
}

enum sleeper_how { BY_POLL, BY_PPOLL, BY_SELECT, BY_PSELECT, BY_HOWS };

struct partners {
	int mine, theirs;
	const char *wrong;
};

#define ROUNDS 20000

static void play(struct partners *p)
{
	for (int i = 0; i < ROUNDS && !p->wrong; i++) {
		struct pollfd set[2] = {{.fd = p->mine, .events = POLLIN}, {.fd = -1}};
		int n = poll(set, 2, SOON_MS);

		if (n != 1 || set[0].revents != POLLIN)
			p->wrong = n == 0 ? "a write that nobody was woken for" : "an answer";
		else if (efd_take(p->mine) != 1)
			p->wrong = "a count";
		else
			efd_add(p->theirs, 1);
	}
}

static void *partner_main(void *arg)
{
	play(arg);
	return NULL;
}

/* poll(2): more files than the limit of descriptors allows is an error, whatever they are. */
static void EFD_13_a_poll_of_more_than_the_limit(void **state)
{
	struct rlimit old, low;
	struct pollfd p[8];
	int fd = efd_new(1, 0);

	(void)state;
	for (int i = 0; i < 8; i++)
		p[i] = (struct pollfd){.fd = fd, .events = POLLIN};
	assert_ok(getrlimit(RLIMIT_NOFILE, &old));
	assert_int_equal(poll(p, 8, 0), 8);
	for (int lim = 9; lim >= 6; lim--) {
		low = old;
		low.rlim_cur = lim;
		assert_ok(setrlimit(RLIMIT_NOFILE, &low));
		errno = 0;
		int r = poll(p, 8, 0), e = errno, r6 = poll(p, 6, 0);
		assert_ok(setrlimit(RLIMIT_NOFILE, &old));
		assert_int_equal(r, lim < 8 ? -1 : 8);
		assert_int_equal(e, lim < 8 ? EINVAL : 0);
		assert_int_equal(r6, 6);
	}
	assert_int_equal(poll(p, 8, 0), 8);
	close(fd);
}

/* Of the number of files the kernel takes 32 bits. */
static void EFD_13_a_poll_counts_in_32_bits(void **state)
{
	/* For the compiler it could be any number. */
	volatile nfds_t one = 1 + ((nfds_t)1 << 32);
	int fd = efd_new(1, 0);
	struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};

	(void)state;
	if (SANITIZED)
		SKIP("the sanitizer looks at as many");
	assert_int_equal(poll(p, one, 0), 1);
	assert_true(p[0].revents == POLLIN && !p[1].revents);
	p[0].revents = 0;
	assert_int_equal(ppoll(p, one, NULL, NULL), 1);
	assert_true(p[0].revents == POLLIN && !p[1].revents);
	p[0].revents = 0;
	assert_int_equal(poll(p, one - 1, 0), 0);
	assert_int_equal(p[0].revents, 0);
	close(fd);
}

/* Whether a select with this time-out, of an eventfd that is ready, finds that; else its errno. */
static int select_takes(bool raw, time_t sec, suseconds_t usec)
{
	struct timeval t = {.tv_sec = sec, .tv_usec = usec};
	int fd = efd_new(1, 0), r, err;
	fd_set in;

	FD_ZERO(&in);
	FD_SET(fd, &in);
	errno = 0;
#ifdef SYS_select
	if (raw)
		r = (int)syscall(SYS_select, fd + 1, &in, NULL, NULL, &t);
	else
#endif
		r = select(fd + 1, &in, NULL, NULL, &t);
	err = errno;
	if (r == 1)
		assert_true(FD_ISSET(fd, &in));
	if (!raw && r >= 0)
		assert_true(t.tv_usec < 1000000);
	close(fd);
	return r == 1 ? 0 : err;
}

/* Seconds and microseconds come together in libc, and otherwise in the kernel. */
static void EFD_13_the_time_outs_of_select(void **state)
{
	(void)state;
	for (int raw = 0; raw < 2; raw++) {
		assert_int_equal(select_takes(raw, 0, 2500000), 0);
		assert_int_equal(select_takes(raw, LONG_MAX, 999999), 0);
		assert_int_equal(select_takes(raw, -1, 0), EINVAL);
		assert_int_equal(select_takes(raw, 0, -1), EINVAL);
	}
	assert_int_equal(select_takes(false, LONG_MAX, 1000000), 0);
	assert_int_equal(select_takes(false, 2, -1000000), EINVAL);
#ifdef SYS_select
	assert_int_equal(select_takes(true, LONG_MAX, 1000000), EINVAL);
	assert_int_equal(select_takes(true, 2, -1000000), 0);
	assert_int_equal(select_takes(true, 0, -1000000), EINVAL);
#endif
#ifdef __GLIBC__
	/* It keeps 32 bits of the microseconds. */
	assert_int_equal(select_takes(false, 0, 0x80000000l), EINVAL);
	assert_int_equal(select_takes(false, 0, 0x100000000l), 0);
#endif
}

/* select(2): the first n descriptors are looked at; the word of the last is written as a whole. */
static void EFD_13_select_looks_below_its_number(void **state)
{
	int fd[12];
	struct timeval now;
	fd_set r, w;

	(void)state;
	for (int i = 0; i < 12; i++)
		fd[i] = efd_new(i % 2, 0);
	/* Of four and of ten files. */
	for (int below = 4; below <= 10; below += 6) {
		for (int both = 0; both < 2; both++) {
			int n = fd[below - 1] + 1;

			FD_ZERO(&r);
			FD_ZERO(&w);
			now = (struct timeval){0};
			for (int i = 0; i < 12; i++) {
				FD_SET(fd[i], &r);
				FD_SET(fd[i], &w);
			}
			assert_int_equal(select(n, &r, both ? &w : NULL, NULL, &now),
					 below / 2 + (both ? below : 0));
			for (int i = 0; i < 12; i++) {
				bool same_word = fd[i] / 64 == (n - 1) / 64;

				if (i >= below && !same_word)
					continue;
				assert_int_equal(!!FD_ISSET(fd[i], &r), i < below && i % 2);
				if (both)
					assert_int_equal(!!FD_ISSET(fd[i], &w), i < below);
			}
		}
	}
	/* None is ready: all is cleared. One that is not open: an error, and nothing is written. */
	FD_ZERO(&r);
	FD_SET(fd[0], &r);
	FD_SET(fd[2], &r);
	now = (struct timeval){0};
	assert_int_equal(select(fd[11] + 1, &r, NULL, NULL, &now), 0);
	assert_false(FD_ISSET(fd[0], &r) || FD_ISSET(fd[2], &r));
	close(fd[3]);
	FD_SET(fd[1], &r);
	FD_SET(fd[3], &r);
	now = (struct timeval){0};
	assert_errno(select(fd[11] + 1, &r, NULL, NULL, &now), EBADF);
	assert_true(FD_ISSET(fd[1], &r) && FD_ISSET(fd[3], &r));
	for (int i = 0; i < 12; i++)
		if (i != 3)
			close(fd[i]);
}

static void EFD_13_two_who_poll_wake_each_other(void **state)
{
	int a = efd_new(0, 0), b = efd_new(0, 0);
	struct partners here = {.mine = a, .theirs = b}, there = {.mine = b, .theirs = a};
	struct test_thread t;

	(void)state;
	thread_start(&t, partner_main, &there);
	efd_add(b, 1);
	play(&here);
	assert_true(thread_join(&t, 2 * SOON_MS));
	assert_null(here.wrong);
	assert_null(there.wrong);
	close(a);
	close(b);
}

struct sleeper {
	struct test_thread t;
	enum sleeper_how how;
	int fd;
	bool out;
	int n;
};

static void *sleeper_main(void *arg)
{
	struct sleeper *s = arg;
	struct pollfd p = {.fd = s->fd, .events = s->out ? POLLOUT : POLLIN};
	fd_set set;

	FD_ZERO(&set);
	FD_SET(s->fd, &set);
	switch (s->how) {
	case BY_PPOLL:
		s->n = ppoll(&p, 1, NULL, NULL);
		break;
	case BY_SELECT:
		s->n = select(s->fd + 1, s->out ? NULL : &set, s->out ? &set : NULL, NULL, NULL);
		break;
	case BY_PSELECT:
		s->n = pselect(s->fd + 1, s->out ? NULL : &set, s->out ? &set : NULL, NULL, NULL,
			       NULL);
		break;
	default:
		s->n = poll(&p, 1, -1);
		break;
	}
	return NULL;
}

static void EFD_12_sleeping_polls_follow_the_counter(void **state)
{
	(void)state;
	for (int out = 0; out < 2; out++) {
		int fd = efd_new(0, EFD_NONBLOCK);
		struct sleeper *s = calloc(BY_HOWS, sizeof(*s));

		if (out)
			efd_add(fd, COUNT_MAX);
		for (int i = 0; i < BY_HOWS; i++) {
			s[i].how = (enum sleeper_how)i;
			s[i].fd = fd;
			s[i].out = out;
			thread_start(&s[i].t, sleeper_main, &s[i]);
			assert_true(thread_asleep(&s[i].t));
		}
		sleep_ms(QUIET_MS);
		for (int i = 0; i < BY_HOWS; i++)
			assert_true(thread_asleep(&s[i].t));
		if (out)
			efd_take(fd);
		else
			efd_add(fd, 1);
		for (int i = 0; i < BY_HOWS; i++) {
			assert_true(thread_join(&s[i].t, SOON_MS));
			assert_int_equal(s[i].n, 1);
		}
		free(s);
		close(fd);
	}
}

static int beside[2] = {-1, -1};

/* Makes two test functions: the eventfd alone, and beside a kernel file. */
#define ALONE_AND_MIXED(name)                                                                      \
	static void name##_alone(void **state)                                                     \
	{                                                                                          \
		(void)state;                                                                       \
		beside[0] = beside[1] = -1;                                                        \
		name();                                                                            \
	}                                                                                          \
	static void name##_mixed(void **state)                                                     \
	{                                                                                          \
		(void)state;                                                                       \
		assert_ok(pipe2(beside, O_CLOEXEC));                                               \
		name();                                                                            \
		close(beside[0]);                                                                  \
		close(beside[1]);                                                                  \
		beside[0] = beside[1] = -1;                                                        \
	}

#define TEST_ALONE_AND_MIXED(name) cmocka_unit_test(name##_alone), cmocka_unit_test(name##_mixed)

/* An epoll with this item, whose state at ADD is collected already. */
static int watch(int fd, uint32_t events)
{
	int ep = ep_new();

	if (beside[0] != -1)
		assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, beside[0], EPOLLIN, 2));
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, events | EPOLLET, 1));
	ep_count(ep);
	return ep;
}

static void EFD_13_every_write_is_an_IN_edge(void)
{
	int fd = efd_new(0, EFD_NONBLOCK);
	int in = watch(fd, EPOLLIN), out = watch(fd, EPOLLOUT),
	    both = watch(fd, EPOLLIN | EPOLLOUT);

	/* A zero into an empty counter is an edge too; what is true then is OUT. */
	efd_add(fd, 0);
	assert_int_equal(ep_count(in), 0);
	assert_true(ep_one(both, EPOLLOUT, 1));
	for (enum via via = VIA_CALL; via < VIAS; via++) {
		for (uint64_t v = 0; v < 2; v++) {
			if (via == VIA_CALL && v == 0)
				efd_add(fd, 1);
			assert_int_equal(put(via, fd, v), 8);
			assert_true(ep_one(in, EPOLLIN, 1));
			assert_int_equal(ep_count(in), 0);
			assert_true(ep_one(both, EPOLLIN | EPOLLOUT, 1));
			assert_int_equal(ep_count(both), 0);
		}
	}
	/* The key of a write is IN alone. */
	assert_int_equal(ep_count(out), 0);
	close(in);
	close(out);
	close(both);
	close(fd);
}
ALONE_AND_MIXED(EFD_13_every_write_is_an_IN_edge)

static void EFD_13_a_refused_write_is_no_edge(void)
{
	int fd = efd_new(0, EFD_NONBLOCK), ep = watch(fd, EPOLLIN);
	const uint64_t most = COUNT_MAX;

	efd_add(fd, 1);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_errno(write(fd, &most, sizeof(most)), EAGAIN);
	assert_int_equal(ep_count(ep), 0);
	assert_int_equal(efd_take(fd), 1);
	close(ep);
	close(fd);
}
ALONE_AND_MIXED(EFD_13_a_refused_write_is_no_edge)

static void EFD_13_every_read_is_an_OUT_edge(void)
{
	int fd = efd_new(40, EFD_NONBLOCK | EFD_SEMAPHORE);
	int in = watch(fd, EPOLLIN), out = watch(fd, EPOLLOUT),
	    both = watch(fd, EPOLLIN | EPOLLOUT);

	ep_take_repeat(in, fd, 1);
	for (enum via via = VIA_CALL; via < VIAS; via++) {
		uint64_t v;

		assert_int_equal(get(via, fd, &v), 8);
		assert_true(ep_one(out, EPOLLOUT, 1));
		assert_int_equal(ep_count(out), 0);
		assert_true(ep_one(both, EPOLLIN | EPOLLOUT, 1));
		assert_int_equal(ep_count(both), 0);
	}
	assert_int_equal(ep_count(in), 0);
	close(in);
	close(out);
	close(both);
	close(fd);
}
ALONE_AND_MIXED(EFD_13_every_read_is_an_OUT_edge)

static void EFD_13_failed_calls_are_no_edge(void)
{
	char *bad = bad_page();
	int empty = efd_new(0, EFD_NONBLOCK), full = efd_new(0, EFD_NONBLOCK), ep[2];
	uint64_t v;

	efd_add(full, COUNT_MAX);
	ep[0] = watch(empty, EPOLLIN | EPOLLOUT);
	ep[1] = watch(full, EPOLLIN | EPOLLOUT);
	for (enum via via = VIA_CALL; via < VIAS; via++) {
		assert_errno(get(via, empty, &v), EAGAIN);
		assert_errno(put(via, full, 1), EAGAIN);
		assert_errno(put(via, empty, UINT64_MAX), EINVAL);
	}
	assert_errno(read(full, &v, 4), EINVAL);
	assert_errno(write(empty, &v, 4), EINVAL);
	assert_errno(write(empty, bad, 8), EFAULT);
	assert_int_equal(ep_count(ep[0]), 0);
	assert_int_equal(ep_count(ep[1]), 0);
	/* The items are alive. */
	efd_take(full);
	efd_add(empty, 1);
	assert_true(ep_one(ep[0], EPOLLIN | EPOLLOUT, 1));
	assert_true(ep_one(ep[1], EPOLLOUT, 1));
	close(ep[0]);
	close(ep[1]);
	close(empty);
	close(full);
	bad_page_free(bad);
}
ALONE_AND_MIXED(EFD_13_failed_calls_are_no_edge)

/* The edges of blocked calls come when these calls get through. */
static void EFD_13_blocked_calls_make_their_edge_when_they_end(void)
{
	int fd = efd_new(0, 0), ep = watch(fd, EPOLLIN | EPOLLOUT);
	struct io *io;

	efd_add(fd, COUNT_MAX);
	assert_true(ep_one(ep, EPOLLIN, 1));
	io = io_new(VIA_CALL, fd, true, 3);
	assert_int_equal(ep_count(ep), 0);
	assert_int_equal(efd_take(fd), COUNT_MAX);
	io_end(io);
	assert_true(ep_one(ep, EPOLLIN | EPOLLOUT, 1));
	assert_int_equal(efd_take(fd), 3);
	assert_true(ep_one(ep, EPOLLOUT, 1));
	assert_int_equal(ep_count(ep), 0);
	close(ep);
	close(fd);
}
ALONE_AND_MIXED(EFD_13_blocked_calls_make_their_edge_when_they_end)

static void EFD_14_the_kernel_adds_one_and_makes_an_edge(void)
{
	int fd = efd_new(0, 0), ep = watch(fd, EPOLLIN);
	struct io *io;

	if (!resfd_signal(fd)) {
		close(ep);
		close(fd);
		SKIP(NO_AIO);
	}
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(ep_count(ep), 0);
	efd_add(fd, 4);
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_true(resfd_signal(fd));
	assert_true(ep_one(ep, EPOLLIN, 1));
	assert_int_equal(efd_take(fd), 6);
	/* Blocked readers and waiters are woken by it like by a write. */
	io = io_new(VIA_CALL, fd, false, 0);
	assert_true(resfd_signal(fd));
	assert_int_equal(io_end(io), 1);
	ep_count(ep);
	struct waiter *w = waiter_new(ep, 4);
	assert_true(resfd_signal(fd));
	waiter_gets(w, 1);
	close(ep);
	close(fd);
}
ALONE_AND_MIXED(EFD_14_the_kernel_adds_one_and_makes_an_edge)

static void EFD_14_the_kernel_stops_at_2_64_minus_1(void)
{
	int fd = efd_new(0, EFD_NONBLOCK), ep, none;

	efd_add(fd, COUNT_MAX);
	ep = watch(fd, EPOLLIN);
	none = watch(fd, 0);
	if (!resfd_signal(fd)) {
		close(ep);
		close(none);
		close(fd);
		SKIP(NO_AIO);
	}
	assert_true(ep_one(ep, EPOLLIN | EPOLLERR, 1));
	/* The key has no ERR: an item that asks for nothing is not queued. */
	assert_int_equal(ep_count(none), 0);
	assert_true(resfd_signal(fd));
	assert_true(ep_one(ep, EPOLLIN | EPOLLERR, 1));
	assert_int_equal(efd_take(fd), UINT64_MAX);
	close(ep);
	close(none);
	close(fd);
}
ALONE_AND_MIXED(EFD_14_the_kernel_stops_at_2_64_minus_1)

static void EFD_15_after_overflow_a_read_resets(void **state)
{
	uint64_t v;

	(void)state;
	for (enum via via = VIA_CALL; via < VIAS; via++) {
		int fd = efd_new(0, EFD_NONBLOCK);

		if (!overflow(fd)) {
			close(fd);
			SKIP(NO_AIO);
		}
		assert_errno(put(via, fd, 1), EAGAIN);
		assert_int_equal(get(via, fd, &v), 8);
		assert_int_equal(v, UINT64_MAX);
		assert_errno(get(via, fd, &v), EAGAIN);
		efd_add(fd, 2);
		assert_int_equal(efd_take(fd), 2);
		close(fd);
	}
}

static int io_done_count(struct io **io, int n)
{
	int done = 0;

	for (int i = 0; i < n; i++)
		done += io[i] == NULL || thread_done(&io[i]->t);
	return done;
}

/* Waits until want of the calls have ended, and sees that the rest stay. */
static void io_ended(struct io **io, int n, int want)
{
	int64_t end = now_ms() + SOON_MS;

	while (io_done_count(io, n) < want && now_ms() < end)
		sleep_ms(1);
	sleep_ms(QUIET_MS);
	assert_int_equal(io_done_count(io, n), want);
	for (int i = 0; i < n; i++)
		if (io[i] != NULL && !thread_done(&io[i]->t))
			assert_true(thread_asleep(&io[i]->t));
}

static void EFD_16_one_write_satisfies_one_of_several_readers(void **state)
{
	int fd = efd_new(0, 0);
	struct io *io[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		io[i] = io_new((enum via)(i % VIAS), fd, false, 0);
	for (int round = 0; round < 4; round++) {
		efd_add(fd, (uint64_t)(10 + round));
		io_ended(io, 4, round + 1);
		for (int i = 0; i < 4; i++) {
			if (io[i] != NULL && thread_done(&io[i]->t)) {
				assert_int_equal(io_end(io[i]), 10 + round);
				io[i] = NULL;
			}
		}
	}
	close(fd);
}

static void EFD_16_a_semaphore_satisfies_as_many_as_its_value(void **state)
{
	int fd = efd_new(0, EFD_SEMAPHORE);
	struct io *io[5];

	(void)state;
	for (int i = 0; i < 5; i++)
		io[i] = io_new((enum via)i, fd, false, 0);
	efd_add(fd, 2);
	io_ended(io, 5, 2);
	efd_add(fd, 1);
	io_ended(io, 5, 3);
	efd_add(fd, 5);
	io_ended(io, 5, 5);
	for (int i = 0; i < 5; i++)
		assert_int_equal(io_end(io[i]), 1);
	assert_int_equal(efd_take(fd), 1);
	close(fd);
}

static void EFD_16_one_read_lets_in_all_writers_that_fit(void **state)
{
	int fd = efd_new(0, 0);
	struct io *io[3];

	(void)state;
	efd_add(fd, COUNT_MAX);
	for (int i = 0; i < 3; i++)
		io[i] = io_new((enum via)i, fd, true, 1);
	assert_int_equal(efd_take(fd), COUNT_MAX);
	for (int i = 0; i < 3; i++)
		io_end(io[i]);
	assert_int_equal(efd_take(fd), 3);
	close(fd);
}

static void EFD_16_pollers_and_a_reader_are_all_told(void)
{
	int fd = efd_new(0, 0), ep = watch(fd, EPOLLIN | EPOLLOUT);
	struct io *io = io_new(VIA_CALL, fd, false, 0);
	struct waiter *w = waiter_new(ep, 4);

	efd_add(fd, 2);
	assert_int_equal(io_end(io), 2);
	waiter_gets(w, 1);
	close(ep);
	close(fd);
}
ALONE_AND_MIXED(EFD_16_pollers_and_a_reader_are_all_told)

static void EFD_17_there_is_no_position(void **state)
{
	int fd = efd_new(1, EFD_NONBLOCK);
	uint64_t v = 1;
	struct iovec iov = {.iov_base = &v, .iov_len = 8};

	(void)state;
	assert_errno(pread(fd, &v, 8, 0), ESPIPE);
	assert_errno(pwrite(fd, &v, 8, 0), ESPIPE);
	assert_errno(preadv(fd, &iov, 1, 0), ESPIPE);
	assert_errno(pwritev(fd, &iov, 1, 0), ESPIPE);
	assert_errno(preadv2(fd, &iov, 1, 0, 0), ESPIPE);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(lseek(fd, 100, SEEK_CUR), 0);
	assert_int_equal(lseek(fd, -5, SEEK_END), 0);
	assert_int_equal(efd_take(fd), 1);
	close(fd);
}

static void EFD_17_RWF_NOWAIT_reads_do_not_block(void **state)
{
	int fd = efd_new(0, 0);
	uint64_t v = 0;
	struct iovec iov = {.iov_base = &v, .iov_len = 8};

	(void)state;
	assert_errno(preadv2(fd, &iov, 1, -1, RWF_NOWAIT), EAGAIN);
	efd_add(fd, 3);
	assert_int_equal(preadv2(fd, &iov, 1, -1, RWF_NOWAIT), 8);
	assert_int_equal(v, 3);
	close(fd);
}

static void EFD_18_O_NONBLOCK_applies_to_later_calls(void **state)
{
	(void)state;
	for (int by_ioctl = 0; by_ioctl < 2; by_ioctl++) {
		int fd = efd_new(0, 0), on = 1;
		struct io *io = io_new(VIA_CALL, fd, false, 0);
		uint64_t v;

		if (by_ioctl)
			assert_ok(ioctl(fd, FIONBIO, &on));
		else
			assert_ok(fcntl(fd, F_SETFL, O_NONBLOCK));
		assert_int_equal(fcntl(fd, F_GETFL), O_RDWR | O_NONBLOCK);
		for (enum via via = VIA_CALL; via < VIAS; via++)
			assert_errno(get(via, fd, &v), EAGAIN);
		io_stays(io);
		efd_add(fd, 1);
		assert_int_equal(io_end(io), 1);
		on = 0;
		if (by_ioctl)
			assert_ok(ioctl(fd, FIONBIO, &on));
		else
			assert_ok(fcntl(fd, F_SETFL, 0));
		assert_int_equal(fcntl(fd, F_GETFL), O_RDWR);
		io = io_new(VIA_RAW, fd, false, 0);
		io_stays(io);
		efd_add(fd, 2);
		assert_int_equal(io_end(io), 2);
		close(fd);
	}
}

/* The flag belongs to the file, not to the descriptor. */
static void EFD_18_O_NONBLOCK_is_shared_by_duplicates(void **state)
{
	int fd = efd_new(0, 0), other = (int)assert_ok(dup(fd));
	uint64_t v;

	(void)state;
	assert_ok(fcntl(other, F_SETFL, O_NONBLOCK));
	assert_errno(get(VIA_CALL, fd, &v), EAGAIN);
	assert_int_equal(fcntl(fd, F_GETFL), O_RDWR | O_NONBLOCK);
	close(other);
	close(fd);
}

static void EFD_19_fork_shares_the_counter(void **state)
{
	int fd = efd_new(3, 0), back = efd_new(0, 0);
	uint64_t v = 0;
	pid_t pid;

	(void)state;
	pid = (pid_t)assert_ok(fork_bounded());
	if (pid == 0) {
		if (read(fd, &v, 8) != 8 || v != 3)
			_exit(1);
		v = 4;
		if (write(back, &v, 8) != 8)
			_exit(2);
		/* Sleeps until the parent writes. */
		if (read(fd, &v, 8) != 8 || v != 5)
			_exit(3);
		v = COUNT_MAX;
		_exit(write(fd, &v, 8) == 8 ? 0 : 4);
	}
	assert_int_equal(efd_take(back), 4);
	assert_true(child_asleep(pid));
	efd_add(fd, 5);
	assert_int_equal(child_end(pid), 0);
	assert_int_equal(efd_take(fd), COUNT_MAX);
	close(fd);
	close(back);
}

static bool fdinfo(int fd, const char *key, char *value, size_t room)
{
	char info[INFO_MAX], *at;

	info_read(fd, info);
	at = strstr(info, key);
	if (at != NULL) {
		at += strlen(key);
		snprintf(value, room, "%.*s", (int)strcspn(at, "\n"), at);
	}
	return at != NULL;
}

static void EFD_19_fdinfo_shows_the_counter(void **state)
{
	static const uint64_t counts[] = {0, 1, 0xabcdef, COUNT_MAX};
	int fd = efd_new(0, EFD_NONBLOCK), sem = efd_new(1, EFD_SEMAPHORE);
	char got[128], want[128];

	(void)state;
	for (int i = 0; i < 4; i++) {
		if (i > 0)
			count_set(fd, counts[i]);
		snprintf(want, sizeof(want), " %16" PRIx64, counts[i]);
		assert_true(fdinfo(fd, "eventfd-count:", got, sizeof(got)));
		assert_string_equal(got, want);
	}
	assert_true(fdinfo(fd, "eventfd-id:", got, sizeof(got)));
	/* Not in every kernel. */
	if (fdinfo(fd, "eventfd-semaphore:", got, sizeof(got)))
		assert_int_equal(atoi(got), 0);
	if (fdinfo(sem, "eventfd-semaphore:", got, sizeof(got)))
		assert_int_equal(atoi(got), 1);
	close(sem);
	close(fd);
}

static void EFD_20_the_last_close_takes_the_items_away(void **state)
{
	int fd = efd_new(1, 0), copy = (int)assert_ok(dup(fd)), ep = ep_new();
	struct waiter *w;

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLHUP, 7));
	close(fd);
	assert_true(ep_one(ep, EPOLLIN, 7));
	assert_int_equal(efd_take(copy), 1);
	w = waiter_new(ep, 4);
	close(copy);
	waiters_stay(&w, 1);
	waiters_release(ep, &w, 1);
	assert_int_equal(ep_count(ep), 0);
	close(ep);
}

/* The counter as one of the ways to its fdinfo shows it. */
static uint64_t fdinfo_by(int way, int fd)
{
	char path[1024], text[512] = "", folder[] = "/tmp/pollux-XXXXXX", link[64];
	int dir = AT_FDCWD, old = (int)assert_ok(open(".", O_DIRECTORY | O_CLOEXEC)), f;
	char *at;

	snprintf(path, sizeof(path), "fdinfo/%d", fd);
	switch (way) {
	case 0:
		assert_ok(chdir("/proc/self"));
		break;
	case 1:
		dir = (int)assert_ok(open("/proc", O_DIRECTORY | O_CLOEXEC));
		snprintf(path, sizeof(path), "self/fdinfo/%d", fd);
		break;
	case 2:
		assert_ok(chdir("/proc/self/fdinfo"));
		snprintf(path, sizeof(path), "%d", fd);
		break;
	case 3:
		snprintf(path, sizeof(path), "/proc/self/task/%d/../../fdinfo/%d", (int)getpid(),
			 fd);
		break;
	case 4:
		assert_non_null(mkdtemp(folder));
		snprintf(link, sizeof(link), "%s/link", folder);
		assert_ok(symlink("/proc/self/fdinfo", link));
		snprintf(path, sizeof(path), "%s/%d", link, fd);
		break;
	case 5:
		memcpy(path, "/proc/self", 10);
		for (at = path + 10; at < path + 600; at += 2)
			memcpy(at, "/.", 2);
		snprintf(at, 64, "/fdinfo/%d", fd);
		break;
	default:
		snprintf(path, sizeof(path), "/dev/fd/../fdinfo/%d", fd);
	}
	f = (int)assert_ok(openat(dir, path, O_RDONLY | O_CLOEXEC));
	assert_true(read(f, text, sizeof(text) - 1) > 0);
	close(f);
	if (dir != AT_FDCWD)
		close(dir);
	if (way == 4)
		assert_true(unlink(link) == 0 && rmdir(folder) == 0);
	assert_ok(fchdir(old));
	close(old);
	at = strstr(text, "eventfd-count:");
	assert_non_null(at);
	return strtoull(at + strlen("eventfd-count:"), NULL, 16);
}

static void EFD_19_fdinfo_by_any_path(void **state)
{
	(void)state;
	for (int way = 0; way < 7; way++) {
		int fd = efd_new(0, EFD_CLOEXEC | EFD_NONBLOCK);

		efd_add(fd, 0x1230 + way);
		assert_int_equal(fdinfo_by(way, fd), 0x1230 + way);
		close(fd);
	}
}

int main(void)
{
	const struct CMUnitTest efd[] = {
		cmocka_unit_test(EFD_01_initval_and_flags),
		cmocka_unit_test(EFD_01_other_flags_are_refused_before_the_fd_limit),
		cmocka_unit_test(EFD_01_the_lowest_number_is_used),
		cmocka_unit_test(EFD_02_the_counter_holds_up_to_2_64_minus_2),
		cmocka_unit_test(EFD_02_only_the_kernel_reaches_2_64_minus_1),
		cmocka_unit_test(EFD_03_a_short_buffer_is_refused_whatever_the_counter),
		cmocka_unit_test(EFD_03_a_long_buffer_gets_eight_bytes),
		cmocka_unit_test(EFD_04_a_read_takes_all),
		cmocka_unit_test(EFD_04_a_semaphore_read_takes_one),
		cmocka_unit_test(EFD_04_a_semaphore_at_the_top),
		cmocka_unit_test(EFD_04_no_count_is_lost_between_threads),
		cmocka_unit_test(EFD_04_a_semaphore_hands_out_every_token_once),
		cmocka_unit_test(EFD_05_an_empty_nonblocking_read_is_refused),
		cmocka_unit_test(EFD_05_a_blocking_read_sleeps_until_a_write),
		cmocka_unit_test(EFD_05_a_signal_ends_or_restarts_a_blocking_read),
		cmocka_unit_test(EFD_05_a_handler_may_write_what_is_read),
		cmocka_unit_test(EFD_06_a_bad_buffer_loses_the_value),
		cmocka_unit_test(EFD_06_a_buffer_that_ends_early_gets_what_fits),
		cmocka_unit_test(EFD_06_a_bad_buffer_loses_one_of_a_semaphore),
		cmocka_unit_test(EFD_07_readv_fills_pieces),
		cmocka_unit_test(EFD_07_writev_writes_each_piece_by_itself),
		cmocka_unit_test(EFD_07_a_piece_longer_than_the_address_space),
		cmocka_unit_test(EFD_08_a_write_is_eight_bytes),
		cmocka_unit_test(EFD_08_a_longer_write),
		cmocka_unit_test(EFD_09_the_order_of_write_errors),
		cmocka_unit_test(EFD_09_the_value_is_judged_before_blocking),
		cmocka_unit_test(EFD_10_a_write_fits_or_is_refused),
		cmocka_unit_test(EFD_10_a_blocking_write_sleeps_until_it_fits),
		cmocka_unit_test(EFD_10_a_blocking_write_waits_for_enough_room),
		cmocka_unit_test(EFD_10_a_signal_ends_or_restarts_a_blocking_write),
		cmocka_unit_test(EFD_10_writers_and_readers_at_the_top_make_progress),
		cmocka_unit_test(EFD_11_writing_zero_succeeds_up_to_2_64_minus_2),
		cmocka_unit_test(EFD_11_writing_zero_is_refused_at_2_64_minus_1),
		cmocka_unit_test(EFD_12_the_poll_mask_at_every_count),
		cmocka_unit_test(EFD_12_the_poll_mask_after_overflow),
		cmocka_unit_test(EFD_12_sleeping_polls_follow_the_counter),
		cmocka_unit_test(EFD_13_a_poll_of_more_than_the_limit),
		cmocka_unit_test(EFD_13_a_poll_counts_in_32_bits),
		cmocka_unit_test(EFD_13_the_time_outs_of_select),
		cmocka_unit_test(EFD_13_select_looks_below_its_number),
		cmocka_unit_test(EFD_13_two_who_poll_wake_each_other),
		TEST_ALONE_AND_MIXED(EFD_13_every_write_is_an_IN_edge),
		TEST_ALONE_AND_MIXED(EFD_13_a_refused_write_is_no_edge),
		TEST_ALONE_AND_MIXED(EFD_13_every_read_is_an_OUT_edge),
		TEST_ALONE_AND_MIXED(EFD_13_failed_calls_are_no_edge),
		TEST_ALONE_AND_MIXED(EFD_13_blocked_calls_make_their_edge_when_they_end),
		TEST_ALONE_AND_MIXED(EFD_14_the_kernel_adds_one_and_makes_an_edge),
		TEST_ALONE_AND_MIXED(EFD_14_the_kernel_stops_at_2_64_minus_1),
		cmocka_unit_test(EFD_15_after_overflow_a_read_resets),
		cmocka_unit_test(EFD_16_one_write_satisfies_one_of_several_readers),
		cmocka_unit_test(EFD_16_a_semaphore_satisfies_as_many_as_its_value),
		cmocka_unit_test(EFD_16_one_read_lets_in_all_writers_that_fit),
		TEST_ALONE_AND_MIXED(EFD_16_pollers_and_a_reader_are_all_told),
		cmocka_unit_test(EFD_17_there_is_no_position),
		cmocka_unit_test(EFD_17_RWF_NOWAIT_reads_do_not_block),
		cmocka_unit_test(EFD_18_O_NONBLOCK_applies_to_later_calls),
		cmocka_unit_test(EFD_18_O_NONBLOCK_is_shared_by_duplicates),
		cmocka_unit_test(EFD_19_fork_shares_the_counter),
		cmocka_unit_test(EFD_19_fdinfo_shows_the_counter),
		cmocka_unit_test(EFD_19_fdinfo_by_any_path),
		cmocka_unit_test(EFD_20_the_last_close_takes_the_items_away),
	};

	return run_group(efd);
}
