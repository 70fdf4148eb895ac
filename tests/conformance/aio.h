/* SPDX-License-Identifier: MIT */
/*
 * What the tests of Linux AIO share: the six calls, requests, rings, files to work on, memory
 * that is not there, threads that wait for events, and children.
 *
 * The calls go through libc's syscall(), because that is how a program without libaio makes them.
 * Only the main thread of the main process may fail a test; threads and children report what
 * happened.
 */
#ifndef TESTS_CONFORMANCE_AIO_H
#define TESTS_CONFORMANCE_AIO_H

#include "waiting.h"

#include <sched.h>

#define AIO_MAGIC 0xa10a10a1u
#define AIO_PAGE ((size_t)sysconf(_SC_PAGESIZE))

static inline int aio_setup(unsigned int nr, aio_context_t *ctx)
{
	return (int)syscall(SYS_io_setup, nr, ctx);
}

static inline int aio_destroy(aio_context_t ctx)
{
	return (int)syscall(SYS_io_destroy, ctx);
}

static inline long aio_submit(aio_context_t ctx, long nr, struct iocb **list)
{
	return syscall(SYS_io_submit, ctx, nr, list);
}

static inline long aio_getevents(aio_context_t ctx, long min, long nr, struct io_event *ev,
				 struct timespec *timeout)
{
	return syscall(SYS_io_getevents, ctx, min, nr, ev, timeout);
}

/* What the sixth argument of io_pgetevents points to. */
struct aio_sigset {
	const void *mask;
	size_t size;
};

static inline long aio_pgetevents(aio_context_t ctx, long min, long nr, struct io_event *ev,
				  struct timespec *timeout, const struct aio_sigset *set)
{
	return syscall(SYS_io_pgetevents, ctx, min, nr, ev, timeout, set);
}

static inline int aio_cancel(aio_context_t ctx, struct iocb *cb, struct io_event *result)
{
	return (int)syscall(SYS_io_cancel, ctx, cb, result);
}

/* A context for nr requests. */
static inline aio_context_t aio_new(unsigned int nr)
{
	aio_context_t ctx = 0;

	assert_ok(aio_setup_in_turn(nr, &ctx));
	assert_true(ctx != 0);
	return ctx;
}

static inline void aio_free(aio_context_t ctx)
{
	assert_int_equal(assert_ok(aio_destroy(ctx)), 0);
}

/* --- the ring -------------------------------------------------------------------------------- */

struct aio_ring {
	uint32_t id;
	uint32_t nr;
	uint32_t head;
	uint32_t tail;
	uint32_t magic;
	uint32_t compat_features;
	uint32_t incompat_features;
	uint32_t header_length;
	struct io_event ev[];
};

static inline struct aio_ring *ring_of(aio_context_t ctx)
{
	return (struct aio_ring *)(uintptr_t)ctx;
}

static inline uint32_t ring_head(struct aio_ring *r)
{
	return __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
}

static inline uint32_t ring_tail(struct aio_ring *r)
{
	return __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
}

static inline void ring_set_head(struct aio_ring *r, uint32_t head)
{
	__atomic_store_n(&r->head, head, __ATOMIC_RELEASE);
}

/* Events in the ring that nobody has taken. */
static inline uint32_t ring_count(struct aio_ring *r)
{
	uint32_t head = ring_head(r), tail = ring_tail(r);

	return tail >= head ? tail - head : tail + r->nr - head;
}

/* Takes one event without a call, as libaio does with timeout 0; false when there is none. */
static inline bool ring_take(struct aio_ring *r, struct io_event *ev)
{
	uint32_t head = ring_head(r);

	if (head == ring_tail(r))
		return false;
	*ev = r->ev[head];
	ring_set_head(r, (head + 1) % r->nr);
	return true;
}

/* --- requests ------------------------------------------------------------------------------- */

/* Some request; its aio_data is a number of its own, made from its address. */
static inline struct iocb *aio_prep(struct iocb *cb, unsigned int opcode, int fd, const void *buf,
				    size_t n, int64_t offset)
{
	memset(cb, 0, sizeof(*cb));
	cb->aio_data = ~(uint64_t)(uintptr_t)cb;
	cb->aio_lio_opcode = (uint16_t)opcode;
	cb->aio_fildes = (uint32_t)fd;
	cb->aio_buf = (uintptr_t)buf;
	cb->aio_nbytes = n;
	cb->aio_offset = offset;
	return cb;
}

static inline struct iocb *aio_pread(struct iocb *cb, int fd, void *buf, size_t n, int64_t offset)
{
	return aio_prep(cb, IOCB_CMD_PREAD, fd, buf, n, offset);
}

static inline struct iocb *aio_pwrite(struct iocb *cb, int fd, const void *buf, size_t n,
				      int64_t offset)
{
	return aio_prep(cb, IOCB_CMD_PWRITE, fd, buf, n, offset);
}

static inline struct iocb *aio_preadv(struct iocb *cb, int fd, const struct iovec *iov, size_t n,
				      int64_t offset)
{
	return aio_prep(cb, IOCB_CMD_PREADV, fd, iov, n, offset);
}

static inline struct iocb *aio_pwritev(struct iocb *cb, int fd, const struct iovec *iov, size_t n,
				       int64_t offset)
{
	return aio_prep(cb, IOCB_CMD_PWRITEV, fd, iov, n, offset);
}

static inline struct iocb *aio_fsync(struct iocb *cb, int fd)
{
	return aio_prep(cb, IOCB_CMD_FSYNC, fd, NULL, 0, 0);
}

static inline struct iocb *aio_fdsync(struct iocb *cb, int fd)
{
	return aio_prep(cb, IOCB_CMD_FDSYNC, fd, NULL, 0, 0);
}

static inline struct iocb *aio_poll(struct iocb *cb, int fd, unsigned int mask)
{
	return aio_prep(cb, IOCB_CMD_POLL, fd, (const void *)(uintptr_t)mask, 0, 0);
}

/* Lets the completion of a prepared request add one to an eventfd. */
static inline struct iocb *aio_resfd(struct iocb *cb, int efd)
{
	cb->aio_flags |= IOCB_FLAG_RESFD;
	cb->aio_resfd = (uint32_t)efd;
	return cb;
}

/* What io_submit returns for this request alone. */
static inline long aio_submit1(aio_context_t ctx, struct iocb *cb)
{
	return aio_submit(ctx, 1, &cb);
}

/* Submits requests that must all be accepted. */
static inline void aio_accept(aio_context_t ctx, struct iocb **list, long n)
{
	assert_int_equal(assert_ok(aio_submit(ctx, n, list)), n);
}

static inline void aio_accept1(aio_context_t ctx, struct iocb *cb)
{
	assert_int_equal(assert_ok(aio_submit1(ctx, cb)), 1);
}

/* Takes n events, which must come within SOON_MS. */
static inline void aio_take(aio_context_t ctx, struct io_event *ev, long n)
{
	struct timespec soon = {.tv_sec = SOON_MS / 1000};

	assert_int_equal(assert_ok(aio_getevents(ctx, n, n, ev, &soon)), n);
}

/* Takes what is there now, at most n; never sleeps. */
static inline long aio_poll_events(aio_context_t ctx, struct io_event *ev, long n)
{
	struct timespec zero = {0};

	return assert_ok(aio_getevents(ctx, 0, n, ev, &zero));
}

/* There is no event. It is not left in the ring to be taken later: the test ends here. */
#define aio_none(ctx)                                                                              \
	do {                                                                                       \
		struct io_event ev_;                                                               \
		assert_int_equal(aio_poll_events(ctx, &ev_, 1), 0);                                \
	} while (0)

/* The event belongs to this request and has this result. */
#define aio_check(ev, cb, want) aio_check_at(ev, cb, want, __FILE__, __LINE__)
static inline void aio_check_at(const struct io_event *ev, const struct iocb *cb, int64_t want,
				const char *file, int line)
{
	if (ev->obj == (uintptr_t)cb && ev->data == ~(uint64_t)(uintptr_t)cb && ev->res == want &&
	    ev->res2 == 0)
		return;
	print_error("%s:%d: event obj %#llx data %#llx res %lld res2 %lld, expected obj %#llx "
		    "data %#llx res %lld res2 0\n",
		    file, line, (unsigned long long)ev->obj, (unsigned long long)ev->data,
		    (long long)ev->res, (long long)ev->res2, (unsigned long long)(uintptr_t)cb,
		    (unsigned long long)~(uint64_t)(uintptr_t)cb, (long long)want);
	fail();
}

/*
 * Takes the events of n requests that one call accepted, all with this result, in the order of the
 * requests (AIO-CQ-01).
 */
static inline void aio_expect_all(aio_context_t ctx, struct iocb *cb, long n, int64_t want)
{
	struct io_event *ev = calloc((size_t)n, sizeof(*ev));

	assert_non_null(ev);
	aio_take(ctx, ev, n);
	for (long i = 0; i < n; i++)
		aio_check(&ev[i], &cb[i], want);
	free(ev);
}

/* The next event belongs to this request and has this result; waits for it. */
#define aio_expect(ctx, cb, want)                                                                  \
	do {                                                                                       \
		struct io_event ev_;                                                               \
		aio_take(ctx, &ev_, 1);                                                            \
		aio_check(&ev_, cb, want);                                                         \
	} while (0)

/* Submits a request which must be accepted and complete with this result, alone. */
#define aio_does(ctx, cb, want)                                                                    \
	do {                                                                                       \
		struct iocb *cb_ = (cb);                                                           \
		aio_accept1(ctx, cb_);                                                             \
		aio_expect(ctx, cb_, want);                                                        \
		aio_none(ctx);                                                                     \
	} while (0)

/* Submits a request which must be refused with this errno and leave no event. */
#define aio_refuses(ctx, cb, want)                                                                 \
	do {                                                                                       \
		assert_errno(aio_submit1(ctx, cb), want);                                          \
		aio_none(ctx);                                                                     \
	} while (0)

/* --- files ---------------------------------------------------------------------------------- */

/* The byte that a fresh test file has at an offset. */
static inline unsigned char file_byte(size_t at)
{
	return (unsigned char)(at * 7 + at / 251);
}

static inline int file_fill(int fd, size_t size)
{
	unsigned char *buf = malloc(size + 1);

	assert_non_null(buf);
	for (size_t i = 0; i < size; i++)
		buf[i] = file_byte(i);
	assert_int_equal(pwrite(fd, buf, size, 0), size);
	free(buf);
	return fd;
}

/* A file of size bytes in memory. */
static inline int file_in_memory(size_t size)
{
	return file_fill((int)assert_ok(syscall(SYS_memfd_create, "aio", 1u)), size);
}

/*
 * A file of size bytes on the file system of TMPDIR (when unset /var/tmp, as /tmp may be memory),
 * without a name. flags may be O_DIRECT, O_APPEND, O_SYNC, ...; -1 when the file system refuses
 * them.
 */
static inline int file_on_disk(size_t size, int flags)
{
	const char *dir = getenv("TMPDIR");
	char path[4096], name[64];
	int plain, fd;

	snprintf(path, sizeof(path), "%s/pollux-aio-XXXXXX", dir != NULL ? dir : "/var/tmp");
	plain = (int)assert_ok(mkostemp(path, O_CLOEXEC));
	assert_ok(unlink(path));
	file_fill(plain, size);
	if (flags == 0)
		return plain;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", plain);
	fd = open(name, O_RDWR | O_CLOEXEC | flags);
	close(plain);
	return fd;
}

/* buf holds what a fresh test file has from offset on. */
static inline bool file_matches(const void *buf, size_t n, size_t offset)
{
	const unsigned char *b = buf;

	for (size_t i = 0; i < n; i++)
		if (b[i] != file_byte(offset + i))
			return false;
	return true;
}

static inline void close_both(const int p[2])
{
	close(p[0]);
	close(p[1]);
}

/* One byte of a pipe or a socket. */
static inline void put(int fd)
{
	assert_int_equal(write(fd, "x", 1), 1);
}

static inline void get(int fd)
{
	char c;

	assert_int_equal(read(fd, &c, 1), 1);
}

/* A pipe; flags as for pipe2. */
static inline void aio_pipe(int p[2], int flags)
{
	assert_ok(pipe2(p, O_CLOEXEC | flags));
}

/* --- memory that is not there --------------------------------------------------------------- */

/*
 * The first address of a page that cannot be accessed (prot PROT_NONE) or only be read
 * (PROT_READ), behind a page that can: end - n begins n good bytes.
 */
static inline char *edge_new(int prot)
{
	char *p = mmap(NULL, 2 * AIO_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	assert_true(p != MAP_FAILED);
	assert_ok(mprotect(p + AIO_PAGE, AIO_PAGE, prot));
	return p + AIO_PAGE;
}

static inline void edge_free(char *end)
{
	assert_ok(munmap(end - AIO_PAGE, 2 * AIO_PAGE));
}

/*
 * Where nothing is mapped and nothing comes to be: below every program and above what the kernel
 * keeps free. A page that was unmapped would be taken by the next mapping of anyone.
 */
static inline void *unmapped(void)
{
	void *p = (void *)(uintptr_t)0x200000;
	unsigned char in_core;

	assert_errno(mincore(p, AIO_PAGE, &in_core), ENOMEM);
	return p;
}

/* Addresses that no program may use: the null page, the hole, the kernel's half. */
static const uintptr_t bad_addresses[] = {
	8,
	0x1000,
	0x7ffffffff000ull,
	0x0000800000000000ull,
	1ull << 63,
	~(uintptr_t)0xfff,
	0xffff888000000000ull,
	0xffffffff81000000ull,
	~0ull,
	~(uintptr_t)0 - 63,
	0xdeadbeefdeadbeefull,
};
#define BAD_ADDRESSES (sizeof(bad_addresses) / sizeof(bad_addresses[0]))

/* --- threads that wait for events ----------------------------------------------------------- */

/*
 * A thread that makes one io_getevents, or io_pgetevents when pset is true. It lives on the heap
 * because a failed test may leave it waiting behind itself.
 */
struct getter {
	struct test_thread t;
	aio_context_t ctx;
	long min;
	long nr;
	int ms; /* -1: no timeout */
	bool pset;
	struct aio_sigset set;
	long n;
	int err;
	int64_t took_ms;
	struct io_event ev[64];
};

static inline void *getter_main(void *arg)
{
	struct getter *g = arg;
	struct timespec ts = {.tv_sec = g->ms / 1000, .tv_nsec = (long)(g->ms % 1000) * 1000000};
	struct timespec *tsp = g->ms < 0 ? NULL : &ts;
	int64_t start = now_ms();

	errno = 0;
	g->n = g->pset ? aio_pgetevents(g->ctx, g->min, g->nr, g->ev, tsp, &g->set)
		       : aio_getevents(g->ctx, g->min, g->nr, g->ev, tsp);
	g->err = errno;
	g->took_ms = now_ms() - start;
	return NULL;
}

/* One that may not have to sleep. */
static inline struct getter *getter_new_awake(aio_context_t ctx, long min, long nr, int ms)
{
	struct getter *g = calloc(1, sizeof(*g));

	assert_non_null(g);
	assert_true(nr <= 64);
	g->ctx = ctx;
	g->min = min;
	g->nr = nr;
	g->ms = ms;
	thread_start(&g->t, getter_main, g);
	return g;
}

/* Returns when the thread sleeps in its call. */
static inline struct getter *getter_new(aio_context_t ctx, long min, long nr, int ms)
{
	struct getter *g = getter_new_awake(ctx, min, nr, ms);

	assert_true(thread_asleep(&g->t));
	return g;
}

/* True when the thread goes on sleeping. */
static inline bool getter_sleeps(struct getter *g)
{
	sleep_ms(QUIET_MS);
	return thread_asleep(&g->t);
}

static inline void getter_join(struct getter *g)
{
	assert_true(thread_join(&g->t, SOON_MS));
}

/* The call ends soon with n events, which the caller may look at before it frees the getter. */
static inline void getter_gets(struct getter *g, long n)
{
	getter_join(g);
	if (g->n != n)
		print_error("getter: %ld, errno %d, expected %ld\n", g->n, g->err, n);
	assert_int_equal(g->n, n);
}

/* The call ends soon with this errno. */
static inline void getter_fails(struct getter *g, int err)
{
	getter_join(g);
	if (g->n != -1 || g->err != err)
		print_error("getter: %ld, errno %d, expected -1 and %d\n", g->n, g->err, err);
	assert_int_equal(g->n, -1);
	assert_int_equal(g->err, err);
}

/* --- children ------------------------------------------------------------------------------- */

/* In a child: the call returns -1 with this errno. */
#define child_errno(call, want)                                                                    \
	do {                                                                                       \
		errno = 0;                                                                         \
		child_check((call) == -1 && errno == (want));                                      \
	} while (0)

/* Runs fn in a forked child, which must come to its end. */
static inline void in_child(void (*fn)(void *), void *arg)
{
	pid_t pid = fork_bounded();

	if (pid == 0) {
		fn(arg);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(child_end(pid), 0);
}

#endif
