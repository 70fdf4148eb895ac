/* SPDX-License-Identifier: MIT */
/*
 * libaio as programs are linked with it: results and errno, the layout of its structures, the
 * symbol versions, the helpers, and what a program may do with the ring by itself.
 *
 * The old forms of io_cancel, io_getevents and io_queue_wait cannot be linked with any more; they
 * are looked up as the loader would do it for a program that was linked long ago.
 */
#include "harness.h"

#include <dlfcn.h>
#include <libaio.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>

#define MAGIC 0xa10a10a1u
#define NO_ERRNO 4711

static const struct timespec zero;

/* The result of a call of libaio, which must leave errno alone. */
#define laio(call)                                                                                 \
	({                                                                                         \
		errno = NO_ERRNO;                                                                  \
		long r_ = (call);                                                                  \
		if (errno != NO_ERRNO) {                                                           \
			print_error("%s: errno became %d\n", #call, errno);                        \
			fail();                                                                    \
		}                                                                                  \
		r_;                                                                                \
	})
#define laio_is(call, want) assert_int_equal(laio(call), want)

/* io_setup, where others may use up aio-max-nr for a moment. */
static io_context_t context(int nr)
{
	int64_t end = now_ms() + SOON_MS;
	io_context_t ctx = NULL;
	int r;

	while ((r = io_setup(nr, &ctx)) == -EAGAIN && now_ms() < end)
		sleep_ms(1);
	assert_int_equal(r, 0);
	assert_non_null(ctx);
	return ctx;
}

static int file_with(const char *text)
{
	int fd = (int)assert_ok(syscall(SYS_memfd_create, "laio", 1u));

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	return fd;
}

static long submit1(io_context_t ctx, struct iocb *cb)
{
	return laio(io_submit(ctx, 1, &cb));
}

/* One event, which must come soon. */
static struct io_event take(io_context_t ctx)
{
	struct timespec soon = {.tv_sec = SOON_MS / 1000};
	struct io_event ev;

	assert_int_equal(laio(io_getevents(ctx, 1, 1, &ev, &soon)), 1);
	return ev;
}

/* --- the ring, as a program sees it ---------------------------------------------------------- */

struct ring {
	unsigned int id, nr, head, tail, magic, compat, incompat, header_length;
	struct io_event ev[];
};

static struct ring *ring_of(io_context_t ctx)
{
	return (struct ring *)ctx;
}

/* Takes up to max events without a call, as fio does with userspace_reap. */
static int reap(io_context_t ctx, struct io_event *ev, int max)
{
	struct ring *r = ring_of(ctx);
	unsigned int head = r->head;
	int n = 0;

	while (n < max && head != __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE)) {
		ev[n++] = r->ev[head];
		head = (head + 1) % r->nr;
	}
	__atomic_store_n(&r->head, head, __ATOMIC_RELEASE);
	return n;
}

/* --- LAIO-01 --------------------------------------------------------------------------------- */

static void LAIO_01_results_and_errno(void **state)
{
	struct io_event ev[2];
	struct timespec none = zero;
	struct iocb cb, *list[2] = {&cb, NULL};
	io_context_t ctx = NULL;
	char buf[8];
	int file = file_with("abcdefgh");

	(void)state;
	laio_is(io_setup(0, &ctx), -EINVAL);
	laio_is(io_setup(-1, &ctx), -EINVAL);
	assert_null(ctx);
	laio_is(io_setup(1, NULL), -EFAULT);
	ctx = context(4);
	laio_is(io_setup(4, &ctx), -EINVAL);

	io_prep_pread(&cb, file, buf, 8, 0);
	laio_is(io_submit(ctx, 1, list), 1);
	laio_is(io_getevents(ctx, 1, 2, ev, NULL), 1);
	assert_int_equal(ev[0].res, 8);
	laio_is(io_submit(ctx, 0, list), 0);
	laio_is(io_submit(ctx, -1, list), -EINVAL);
	laio_is(io_submit(ctx, 2, list), 1);
	laio_is(io_submit(ctx, 1, list + 1), -EFAULT);
	laio_is(io_submit(NULL, 1, list), -EINVAL);
	cb.aio_fildes = -1;
	laio_is(io_submit(ctx, 1, list), -EBADF);
	laio_is(io_getevents(ctx, 2, 1, ev, NULL), -EINVAL);
	laio_is(io_getevents(NULL, 0, 1, ev, NULL), -EINVAL);
	laio_is(io_pgetevents(ctx, 2, 1, ev, NULL, NULL), -EINVAL);
	laio_is(io_pgetevents(ctx, 1, 1, ev, &none, NULL), 1);
	laio_is(io_pgetevents(NULL, 0, 1, ev, NULL, NULL), -EINVAL);
	laio_is(io_cancel(ctx, &cb, ev), -EINVAL);
	laio_is(io_cancel(ctx, NULL, ev), -EFAULT);
	laio_is(io_destroy(ctx), 0);
	laio_is(io_destroy(ctx), -EINVAL);
	laio_is(io_destroy(NULL), -EINVAL);
	close(file);
}

/* What the system call returns as an error is not mistaken for a result, and the other way round.
 */
static void LAIO_01_a_result_is_never_taken_for_an_error(void **state)
{
	enum { N = 4096 };
	static struct iocb cb[N];
	static struct iocb *list[N];
	static struct io_event ev[N];
	io_context_t ctx = context(N);
	int file = file_with("x");
	char c;

	(void)state;
	for (int i = 0; i < N; i++) {
		io_prep_pread(&cb[i], file, &c, 1, 0);
		list[i] = &cb[i];
	}
	laio_is(io_submit(ctx, N, list), N);
	laio_is(io_getevents(ctx, N, N, ev, NULL), N);
	laio_is(io_destroy(ctx), 0);
	close(file);
}

/* --- LAIO-02 --------------------------------------------------------------------------------- */

static void LAIO_02_layout(void **state)
{
#define AT(type, field, at) assert_int_equal(offsetof(type, field), at)
	(void)state;
	assert_int_equal(sizeof(struct iocb), 64);
	assert_int_equal(sizeof(struct io_event), 32);
	AT(struct iocb, data, 0);
	AT(struct iocb, key, 8);
	AT(struct iocb, aio_rw_flags, 12);
	AT(struct iocb, aio_lio_opcode, 16);
	AT(struct iocb, aio_reqprio, 18);
	AT(struct iocb, aio_fildes, 20);
	AT(struct iocb, u.c.buf, 24);
	AT(struct iocb, u.v.vec, 24);
	AT(struct iocb, u.poll.events, 24);
	AT(struct iocb, u.c.nbytes, 32);
	AT(struct iocb, u.v.nr, 32);
	AT(struct iocb, u.c.offset, 40);
	AT(struct iocb, u.v.offset, 40);
	AT(struct iocb, u.c.flags, 56);
	AT(struct iocb, u.c.resfd, 60);
	AT(struct io_event, data, 0);
	AT(struct io_event, obj, 8);
	AT(struct io_event, res, 16);
	AT(struct io_event, res2, 24);
#undef AT
}

static void LAIO_02_the_context_is_the_address_of_the_ring(void **state)
{
	io_context_t ctx = context(10);
	struct ring *r = ring_of(ctx);

	(void)state;
	assert_int_equal(r->magic, MAGIC);
	assert_int_equal(r->header_length, 32);
	assert_int_equal(r->compat, 1);
	assert_int_equal(r->incompat, 0);
	assert_int_equal(r->head, 0);
	assert_int_equal(r->tail, 0);
	assert_true(r->nr >= 10);
	laio_is(io_destroy(ctx), 0);
}

/* A program may use libaio for some of the calls and the system calls for others. */
static void LAIO_02_one_context_through_both_doors(void **state)
{
	io_context_t ctx = NULL;
	struct io_event ev[2];
	struct iocb cb[2], *list[2] = {&cb[0], &cb[1]};
	char buf[2];
	int file = file_with("AB");

	(void)state;
	for (int made_by_call = 0; made_by_call < 2; made_by_call++) {
		if (made_by_call) {
			int64_t end = now_ms() + SOON_MS;
			long r;

			ctx = NULL;
			while ((r = syscall(SYS_io_setup, 2, &ctx)) == -1 && errno == EAGAIN &&
			       now_ms() < end)
				sleep_ms(1);
			assert_int_equal(r, 0);
		} else {
			ctx = context(2);
		}
		io_prep_pread(&cb[0], file, &buf[0], 1, 0);
		io_prep_pread(&cb[1], file, &buf[1], 1, 1);
		laio_is(io_submit(ctx, 1, list), 1);
		assert_int_equal(syscall(SYS_io_submit, ctx, 1, list + 1), 1);
		assert_int_equal(syscall(SYS_io_getevents, ctx, 1, 1, ev, NULL), 1);
		laio_is(io_getevents(ctx, 1, 1, ev + 1, NULL), 1);
		for (int i = 0; i < 2; i++) {
			assert_ptr_equal(ev[i].obj, &cb[i]);
			assert_int_equal(ev[i].res, 1);
			assert_int_equal(buf[i], 'A' + i);
		}
		if (made_by_call)
			laio_is(io_destroy(ctx), 0);
		else
			assert_int_equal(syscall(SYS_io_destroy, ctx), 0);
		laio_is(io_destroy(ctx), -EINVAL);
	}
	close(file);
}

/* --- LAIO-03 --------------------------------------------------------------------------------- */

static const struct {
	const char *name, *version;
	bool hidden; /* not what a program is linked with today */
} symbols[] = {
	{"io_queue_init", "LIBAIO_0.1", false},	   {"io_queue_run", "LIBAIO_0.1", false},
	{"io_queue_release", "LIBAIO_0.1", false}, {"io_submit", "LIBAIO_0.1", false},
	{"io_cancel", "LIBAIO_0.1", true},	   {"io_getevents", "LIBAIO_0.1", true},
	{"io_queue_wait", "LIBAIO_0.1", true},	   {"io_setup", "LIBAIO_0.4", false},
	{"io_destroy", "LIBAIO_0.4", false},	   {"io_cancel", "LIBAIO_0.4", false},
	{"io_getevents", "LIBAIO_0.4", false},	   {"io_queue_wait", "LIBAIO_0.4", false},
	{"io_pgetevents", "LIBAIO_0.5", false},
};
#define SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

static void *version_of(const char *name, const char *version)
{
	void *p = dlvsym(RTLD_DEFAULT, name, version);

	if (p == NULL) {
		print_error("%s@%s: %s\n", name, version, dlerror());
		fail();
	}
	return p;
}

static void LAIO_03_every_version_is_there(void **state)
{
	(void)state;
	for (size_t i = 0; i < SYMBOLS; i++) {
		void *p = version_of(symbols[i].name, symbols[i].version);

		if (symbols[i].hidden)
			assert_ptr_not_equal(dlsym(RTLD_DEFAULT, symbols[i].name), p);
		else
			assert_ptr_equal(dlsym(RTLD_DEFAULT, symbols[i].name), p);
	}
	/* What this program is linked with are the highest ones. */
	assert_ptr_equal(version_of("io_cancel", "LIBAIO_0.4"), (void *)io_cancel);
	assert_ptr_equal(version_of("io_getevents", "LIBAIO_0.4"), (void *)io_getevents);
	assert_ptr_equal(version_of("io_pgetevents", "LIBAIO_0.5"), (void *)io_pgetevents);
	assert_ptr_equal(version_of("io_submit", "LIBAIO_0.1"), (void *)io_submit);
}

static void LAIO_03_no_version_that_never_was(void **state)
{
	(void)state;
	assert_null(dlvsym(RTLD_DEFAULT, "io_setup", "LIBAIO_0.1"));
	assert_null(dlvsym(RTLD_DEFAULT, "io_submit", "LIBAIO_0.4"));
	assert_null(dlvsym(RTLD_DEFAULT, "io_pgetevents", "LIBAIO_0.4"));
	assert_null(dlvsym(RTLD_DEFAULT, "io_cancel", "LIBAIO_0.5"));
}

/* A plugin that opens the library by itself works on the contexts of its host. */
static void LAIO_03_the_library_by_its_own_handle(void **state)
{
	/* Since time has 64 bits everywhere, Debian's has another name. */
	void *same = dlopen("libaio.so.1", RTLD_NOW);
	void *lib = same ? same : dlopen("libaio.so.1t64", RTLD_NOW);
	int (*submit)(io_context_t, long, struct iocb **);
	int (*getevents)(io_context_t, long, long, struct io_event *, struct timespec *);
	int (*destroy)(io_context_t);
	io_context_t ctx = context(2);
	int file = file_with("q");
	struct iocb cb, *list[1] = {&cb};
	struct io_event ev;
	char c = 0;

	(void)state;
	assert_non_null(lib);
	*(void **)&submit = dlsym(lib, "io_submit");
	*(void **)&getevents = dlsym(lib, "io_getevents");
	*(void **)&destroy = dlvsym(lib, "io_destroy", "LIBAIO_0.4");
	assert_true(submit != NULL && getevents != NULL && destroy != NULL);
	io_prep_pread(&cb, file, &c, 1, 0);
	laio_is(submit(ctx, 1, list), 1);
	laio_is(getevents(ctx, 1, 1, &ev, NULL), 1);
	assert_ptr_equal(ev.obj, &cb);
	assert_int_equal(c, 'q');
	laio_is(destroy(ctx), 0);
	laio_is(io_destroy(ctx), -EINVAL);
	dlclose(lib);
	close(file);
}

/* --- LAIO-04 --------------------------------------------------------------------------------- */

typedef int (*old_getevents)(io_context_t, long, struct io_event *, const struct timespec *);
typedef int (*old_cancel)(io_context_t, struct iocb *);
typedef int (*old_wait)(io_context_t, const struct timespec *);

static void LAIO_04_old_getevents(void **state)
{
	old_getevents get;
	io_context_t ctx = context(4);
	const struct timespec moment = {.tv_nsec = 1000000};
	int file = file_with("abcd");
	struct iocb cb[3], *list[3];
	struct io_event ev[4];
	char buf[3];

	(void)state;
	*(void **)&get = version_of("io_getevents", "LIBAIO_0.1");
	for (int i = 0; i < 3; i++) {
		io_prep_pread(&cb[i], file, &buf[i], 1, i);
		list[i] = &cb[i];
	}
	laio_is(io_submit(ctx, 3, list), 3);
	laio_is(get(ctx, 2, ev, NULL), 2);
	assert_ptr_equal(ev[0].obj, &cb[0]);
	assert_ptr_equal(ev[1].obj, &cb[1]);
	laio_is(get(ctx, 4, ev, NULL), 1);
	assert_ptr_equal(ev[0].obj, &cb[2]);
	laio_is(get(ctx, 4, ev, &zero), 0);
	laio_is(get(ctx, 4, ev, &moment), 0);
	/* It wants one event, which none of none cannot be. */
	laio_is(get(ctx, 0, ev, NULL), -EINVAL);
	laio_is(get(ctx, 0, ev, &moment), -EINVAL);
	laio_is(get(ctx, -1, ev, NULL), -EINVAL);
	laio_is(get(NULL, 1, ev, NULL), -EINVAL);
	/* Unless the look at the ring comes first. */
	laio_is(get(ctx, 0, ev, &zero), 0);
	laio_is(io_destroy(ctx), 0);
	close(file);
}

struct late {
	struct test_thread t;
	io_context_t ctx;
	int fd;
};

static void *late_main(void *arg)
{
	struct late *l = arg;

	sleep_ms(20);
	return (void *)(intptr_t)write(l->fd, "x", 1);
}

static void LAIO_04_old_getevents_waits_for_one(void **state)
{
	old_getevents get;
	io_context_t ctx = context(4);
	struct late l = {.ctx = ctx};
	struct io_event ev[4];
	struct iocb cb;
	int p[2];

	(void)state;
	*(void **)&get = version_of("io_getevents", "LIBAIO_0.1");
	assert_ok(pipe(p));
	io_prep_poll(&cb, p[0], POLLIN);
	assert_int_equal(submit1(ctx, &cb), 1);
	l.fd = p[1];
	thread_start(&l.t, late_main, &l);
	laio_is(get(ctx, 4, ev, NULL), 1);
	assert_ptr_equal(ev[0].obj, &cb);
	assert_true(thread_join(&l.t, SOON_MS));
	laio_is(io_destroy(ctx), 0);
	close(p[0]);
	close(p[1]);
}

static void LAIO_04_old_cancel(void **state)
{
	old_cancel cancel;
	io_context_t ctx = context(4);
	struct io_event ev;
	struct iocb cb;
	int p[2];

	(void)state;
	*(void **)&cancel = version_of("io_cancel", "LIBAIO_0.1");
	assert_ok(pipe(p));
	io_prep_poll(&cb, p[0], POLLIN);
	cb.data = &p;
	laio_is(cancel(ctx, &cb), -EINVAL);
	assert_int_equal(submit1(ctx, &cb), 1);
	laio_is(cancel(ctx, &cb), -EINPROGRESS);
	ev = take(ctx);
	assert_ptr_equal(ev.obj, &cb);
	assert_ptr_equal(ev.data, &p);
	assert_int_equal(ev.res, 0);
	laio_is(cancel(ctx, &cb), -EINVAL);
	laio_is(cancel(ctx, NULL), -EFAULT);
	laio_is(cancel(NULL, &cb), -EINVAL);
	laio_is(io_destroy(ctx), 0);
	close(p[0]);
	close(p[1]);
}

/* --- LAIO-05 --------------------------------------------------------------------------------- */

static void LAIO_05_queue_init_and_release(void **state)
{
	io_context_t ctx = (io_context_t)0x1234;
	int64_t end = now_ms() + SOON_MS;
	int r;

	(void)state;
	laio_is(io_queue_init(0, &ctx), -EINVAL);
	laio_is(io_queue_init(-1, &ctx), -EINVAL);
	assert_ptr_equal(ctx, (io_context_t)0x1234);
	/* What was in ctx does not matter. */
	while ((r = (int)laio(io_queue_init(5, &ctx))) == -EAGAIN && now_ms() < end)
		sleep_ms(1);
	assert_int_equal(r, 0);
	assert_ptr_not_equal(ctx, (io_context_t)0x1234);
	assert_int_equal(ring_of(ctx)->magic, MAGIC);
	laio_is(io_queue_release(ctx), 0);
	laio_is(io_queue_release(ctx), -EINVAL);
	laio_is(io_queue_release(NULL), -EINVAL);
	/* The kernel refuses so many; libaio has cleared ctx before it asked. */
	ctx = (io_context_t)0x1234;
	laio_is(io_queue_init(0x7fffffff, &ctx), -EINVAL);
	assert_null(ctx);
}

static void LAIO_05_queue_wait_takes_nothing(void **state)
{
	old_wait wait_0_1;
	int (*wait_0_4)(io_context_t, struct timespec *);
	io_context_t ctx = context(2);
	struct timespec none = zero, minute = {.tv_sec = 60};
	int64_t start = now_ms();
	int file = file_with("x");
	struct iocb cb;
	char c;

	(void)state;
	*(void **)&wait_0_1 = version_of("io_queue_wait", "LIBAIO_0.1");
	*(void **)&wait_0_4 = version_of("io_queue_wait", "LIBAIO_0.4");
	for (int full = 0; full < 2; full++) {
		laio_is(wait_0_4(ctx, NULL), 0);
		laio_is(wait_0_4(ctx, &none), 0);
		laio_is(wait_0_4(ctx, &minute), 0);
		laio_is(wait_0_1(ctx, NULL), 0);
		laio_is(wait_0_1(ctx, &none), 0);
		laio_is(wait_0_1(ctx, &minute), 0);
		if (!full) {
			io_prep_pread(&cb, file, &c, 1, 0);
			assert_int_equal(submit1(ctx, &cb), 1);
		}
	}
	assert_true(now_ms() - start < 30000);
	assert_ptr_equal(take(ctx).obj, &cb);
	laio_is(wait_0_4(NULL, NULL), -EINVAL);
	laio_is(wait_0_1(NULL, NULL), -EINVAL);
	laio_is(io_destroy(ctx), 0);
	close(file);
}

static struct {
	io_context_t ctx[8];
	struct iocb *cb[8];
	long res[8], res2[8];
	int n;
} called;

static void on_event(io_context_t ctx, struct iocb *cb, long res, long res2)
{
	int i = called.n++;

	if (i < 8) {
		called.ctx[i] = ctx;
		called.cb[i] = cb;
		called.res[i] = res;
		called.res2[i] = res2;
	}
}

static void LAIO_05_queue_run_calls_what_is_stored_in_data(void **state)
{
	io_context_t ctx = context(8);
	struct iocb cb[3], *list[3];
	int file = file_with("abcd");
	char buf[8];

	(void)state;
	memset(&called, 0, sizeof(called));
	laio_is(io_queue_run(ctx), 0);
	assert_int_equal(called.n, 0);
	for (int i = 0; i < 3; i++) {
		io_prep_pread(&cb[i], file, buf, (size_t)i + 1, i == 2 ? 100 : 0);
		io_set_callback(&cb[i], on_event);
		list[i] = &cb[i];
	}
	laio_is(io_submit(ctx, 3, list), 3);
	laio_is(io_queue_run(ctx), 0);
	assert_int_equal(called.n, 3);
	for (int i = 0; i < 3; i++) {
		assert_ptr_equal(called.ctx[i], ctx);
		assert_ptr_equal(called.cb[i], &cb[i]);
		assert_int_equal(called.res[i], i == 2 ? 0 : i + 1);
		assert_int_equal(called.res2[i], 0);
	}
	laio_is(io_queue_run(NULL), -EINVAL);
	laio_is(io_destroy(ctx), 0);
	close(file);
}

static void again(io_context_t ctx, struct iocb *cb, long res, long res2)
{
	on_event(ctx, cb, res, res2);
	if (called.n < 4)
		called.res2[7] += io_submit(ctx, 1, &cb);
}

/* It goes on until there is nothing: also with what its callbacks have submitted. */
static void LAIO_05_queue_run_goes_on_to_the_end(void **state)
{
	io_context_t ctx = context(2);
	int file = file_with("a");
	struct iocb cb;
	char c;

	(void)state;
	memset(&called, 0, sizeof(called));
	io_prep_pread(&cb, file, &c, 1, 0);
	io_set_callback(&cb, again);
	assert_int_equal(submit1(ctx, &cb), 1);
	laio_is(io_queue_run(ctx), 0);
	assert_int_equal(called.n, 4);
	assert_int_equal(called.res2[7], 3);
	laio_is(io_destroy(ctx), 0);
	close(file);
}

/* --- LAIO-06 and LAIO-07 --------------------------------------------------------------------- */

static void LAIO_06_LAIO_07_an_empty_ring_is_answered_without_a_call(void **state)
{
	io_context_t ctx = context(2);
	struct timespec none = zero;
	struct io_event ev;
	sigset_t *bad = (sigset_t *)8;

	(void)state;
	/* Each of these is an error, or a crash, for whoever looks at it. */
	laio_is(io_getevents(ctx, -1, 1, &ev, &none), 0);
	laio_is(io_getevents(ctx, 2, 1, &ev, &none), 0);
	laio_is(io_getevents(ctx, 1, -1, &ev, &none), 0);
	laio_is(io_getevents(ctx, 0, 1, (struct io_event *)8, &none), 0);
	laio_is(io_pgetevents(ctx, 2, 1, &ev, &none, NULL), 0);
	laio_is(io_pgetevents(ctx, 0, 1, &ev, &none, bad), 0);
	/* With any other timeout they come out. */
	laio_is(io_getevents(ctx, -1, 1, &ev, NULL), -EINVAL);
	none.tv_nsec = 1;
	laio_is(io_getevents(ctx, 2, 1, &ev, &none), -EINVAL);
	laio_is(io_pgetevents(ctx, 0, 1, &ev, &none, bad), -EFAULT);
	laio_is(io_pgetevents(ctx, 0, 1, &ev, NULL, bad), -EFAULT);
	laio_is(io_destroy(ctx), 0);
}

static void LAIO_06_with_events_it_is_the_system_call(void **state)
{
	io_context_t ctx = context(2);
	struct timespec none = zero;
	int file = file_with("x");
	struct io_event ev;
	struct iocb cb;
	char c;

	(void)state;
	io_prep_pread(&cb, file, &c, 1, 0);
	assert_int_equal(submit1(ctx, &cb), 1);
	laio_is(io_getevents(ctx, -1, 1, &ev, &none), -EINVAL);
	laio_is(io_getevents(ctx, 2, 1, &ev, &none), -EINVAL);
	/* libaio itself stores nothing: this pointer would end the program. */
	laio_is(io_getevents(ctx, 1, 1, (struct io_event *)8, &none), -EFAULT);
	laio_is(io_pgetevents(ctx, 1, 1, &ev, &none, (sigset_t *)8), -EFAULT);
	laio_is(io_getevents(ctx, 1, 1, &ev, &none), 1);
	assert_ptr_equal(ev.obj, &cb);
	laio_is(io_getevents(ctx, 1, 1, &ev, &none), 0);
	laio_is(io_destroy(ctx), 0);
	close(file);
}

/* A ring that does not carry the magic is not looked at. */
static void LAIO_06_without_the_magic_it_is_the_system_call(void **state)
{
	io_context_t ctx = context(2);
	struct timespec none = zero;
	struct io_event ev;

	(void)state;
	ring_of(ctx)->magic = 0;
	laio_is(io_getevents(ctx, 2, 1, &ev, &none), -EINVAL);
	laio_is(io_pgetevents(ctx, 2, 1, &ev, &none, NULL), -EINVAL);
	laio_is(io_getevents(ctx, 1, 1, &ev, &none), 0);
	ring_of(ctx)->magic = MAGIC;
	laio_is(io_getevents(ctx, 2, 1, &ev, &none), 0);
	laio_is(io_destroy(ctx), 0);
}

/* A request that is with the kernel is found by a look with timeout 0, as soon as it is done. */
static void LAIO_06_completions_are_seen_by_a_look(void **state)
{
	io_context_t ctx = context(2);
	struct timespec none = zero;
	struct io_event ev;
	struct iocb cb;
	int p[2];

	(void)state;
	assert_ok(pipe(p));
	for (int i = 0; i < 50; i++) {
		int64_t end = now_ms() + SOON_MS;
		char c;
		int r;

		io_prep_poll(&cb, p[0], POLLIN);
		assert_int_equal(submit1(ctx, &cb), 1);
		laio_is(io_getevents(ctx, 1, 1, &ev, &none), 0);
		assert_int_equal(write(p[1], "x", 1), 1);
		while ((r = (int)laio(io_getevents(ctx, 1, 1, &ev, &none))) == 0 && now_ms() < end)
			;
		assert_int_equal(r, 1);
		assert_ptr_equal(ev.obj, &cb);
		assert_int_equal(read(p[0], &c, 1), 1);
	}
	laio_is(io_destroy(ctx), 0);
	close(p[0]);
	close(p[1]);
}

static volatile sig_atomic_t handled;

/* The thread sanitizer runs handlers of signals when the next function of libc is called. */
static int handlers_run(void)
{
	if (SANITIZED == 2)
		usleep(1000);
	return handled;
}

static void on_signal(int sig)
{
	(void)sig;
	handled++;
}

static void LAIO_07_no_mask_and_no_interruption(void **state)
{
	io_context_t ctx = context(2);
	struct sigaction sa = {.sa_handler = on_signal}, old_sa;
	struct timespec none = zero, moment = {.tv_nsec = 1};
	struct io_event ev;
	sigset_t all, set, old;

	(void)state;
	sigemptyset(&set);
	sigemptyset(&all);
	sigaddset(&set, SIGUSR1);
	assert_ok(sigaction(SIGUSR1, &sa, &old_sa));
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
	handled = 0;
	raise(SIGUSR1);
	laio_is(io_pgetevents(ctx, 1, 1, &ev, &none, &all), 0);
	assert_int_equal(handlers_run(), 0);
	/* Another timeout makes the call, and the call lets the signal in. */
	laio_is(io_pgetevents(ctx, 1, 1, &ev, &moment, &all), -EINTR);
	assert_int_equal(handlers_run(), 1);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
	assert_ok(sigaction(SIGUSR1, &old_sa, NULL));
	laio_is(io_destroy(ctx), 0);
}

/* --- LAIO-08 --------------------------------------------------------------------------------- */

/* Exit status of a child that runs one call with a bad context, 128 + signal if it dies. */
static int with_bad_context(bool pget, io_context_t ctx)
{
	int st = 0;
	pid_t pid = fork();

	if (pid == 0) {
		struct rlimit no_core = {0};
		struct timespec none = zero;
		struct io_event ev;
		int r;

		/* Also where a sanitizer has a handler of its own. */
		signal(SIGSEGV, SIG_DFL);
		setrlimit(RLIMIT_CORE, &no_core);
		alarm(SOON_MS / 1000);
		r = pget ? io_pgetevents(ctx, 1, 1, &ev, &none, NULL)
			 : io_getevents(ctx, 1, 1, &ev, &none);
		_exit(r == -EINVAL ? 1 : 2);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	return WIFSIGNALED(st) ? 128 + WTERMSIG(st) : WEXITSTATUS(st);
}

static void LAIO_08_a_bad_context_is_dereferenced(void **state)
{
	void *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *zeros = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_true(none != MAP_FAILED && zeros != MAP_FAILED);
	for (int pget = 0; pget < 2; pget++) {
		assert_int_equal(with_bad_context(pget, none), 128 + SIGSEGV);
		assert_int_equal(with_bad_context(pget, (io_context_t)4096), 128 + SIGSEGV);
		/* Memory without the magic is asked about. */
		assert_int_equal(with_bad_context(pget, zeros), 1);
		assert_int_equal(with_bad_context(pget, NULL), 1);
	}
	munmap(none, 4096);
	munmap(zeros, 4096);
}

/* The other functions leave it to the system call. */
static void LAIO_08_the_other_functions_do_not_look(void **state)
{
	void *none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iocb cb, *list[1] = {&cb};

	(void)state;
	assert_true(none != MAP_FAILED);
	io_prep_fsync(&cb, 0);
	laio_is(io_submit(none, 1, list), -EINVAL);
	laio_is(io_cancel(none, &cb, NULL), -EINVAL);
	laio_is(io_destroy(none), -EINVAL);
	laio_is(io_queue_release(none), -EINVAL);
	munmap(none, 4096);
}

/* --- LAIO-09 --------------------------------------------------------------------------------- */

static void LAIO_09_the_mask_of_pgetevents(void **state)
{
	io_context_t ctx = context(2);
	struct sigaction sa = {.sa_handler = on_signal}, old_sa;
	struct timespec moment = {.tv_nsec = 50000000};
	struct io_event ev;
	sigset_t none, set, old, now;
	int file = file_with("x");
	struct iocb cb;
	char c;

	(void)state;
	sigemptyset(&none);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	assert_ok(sigaction(SIGUSR2, &sa, &old_sa));
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
	handled = 0;
	raise(SIGUSR2);
	/* Without a mask nothing changes for the call. */
	laio_is(io_pgetevents(ctx, 1, 1, &ev, &moment, NULL), 0);
	assert_int_equal(handlers_run(), 0);
	laio_is(io_pgetevents(ctx, 1, 1, &ev, &moment, &set), 0);
	assert_int_equal(handlers_run(), 0);
	laio_is(io_pgetevents(ctx, 1, 1, &ev, NULL, &none), -EINTR);
	assert_int_equal(handlers_run(), 1);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
	assert_true(sigismember(&now, SIGUSR2));
	/* With an event there, the handler runs and the event is returned. */
	io_prep_pread(&cb, file, &c, 1, 0);
	assert_int_equal(submit1(ctx, &cb), 1);
	raise(SIGUSR2);
	laio_is(io_pgetevents(ctx, 1, 1, &ev, NULL, &none), 1);
	assert_int_equal(handlers_run(), 2);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
	assert_ok(sigaction(SIGUSR2, &old_sa, NULL));
	laio_is(io_destroy(ctx), 0);
	close(file);
}

/* --- LAIO-10 --------------------------------------------------------------------------------- */

/* All that a helper has not set is 0. */
static void holds(const struct iocb *cb, int opcode, int fd, const void *buf, unsigned long n,
		  long long offset, int rw_flags)
{
	struct iocb want;

	memset(&want, 0, sizeof(want));
	want.aio_lio_opcode = (short)opcode;
	want.aio_fildes = fd;
	want.u.c.buf = (void *)(uintptr_t)buf;
	want.u.c.nbytes = n;
	want.u.c.offset = offset;
	want.aio_rw_flags = (unsigned int)rw_flags;
	assert_memory_equal(cb, &want, sizeof(want));
}

static void LAIO_10_helpers_clear_the_request(void **state)
{
	struct iocb cb;
	struct iovec iov = {0};
	char buf[4];

	(void)state;
#define DIRTY memset(&cb, 0xa5, sizeof(cb))
	DIRTY;
	io_prep_pread(&cb, 5, buf, 4, 77);
	holds(&cb, 0, 5, buf, 4, 77, 0);
	DIRTY;
	io_prep_pwrite(&cb, 6, buf, 3, 1ll << 40);
	holds(&cb, 1, 6, buf, 3, 1ll << 40, 0);
	DIRTY;
	io_prep_preadv(&cb, 7, &iov, 2, 9);
	holds(&cb, 7, 7, &iov, 2, 9, 0);
	DIRTY;
	io_prep_pwritev(&cb, 8, &iov, 3, 10);
	holds(&cb, 8, 8, &iov, 3, 10, 0);
	DIRTY;
	io_prep_preadv2(&cb, 7, &iov, 2, 9, 8);
	holds(&cb, 7, 7, &iov, 2, 9, 8);
	DIRTY;
	io_prep_pwritev2(&cb, 8, &iov, 3, 10, 2);
	holds(&cb, 8, 8, &iov, 3, 10, 2);
	DIRTY;
	io_prep_fsync(&cb, 9);
	holds(&cb, 2, 9, NULL, 0, 0, 0);
	DIRTY;
	io_prep_fdsync(&cb, 10);
	holds(&cb, 3, 10, NULL, 0, 0, 0);
	DIRTY;
	io_prep_poll(&cb, 11, POLLIN | POLLRDHUP);
	holds(&cb, 5, 11, (void *)(POLLIN | POLLRDHUP), 0, 0, 0);
#undef DIRTY
}

static void LAIO_10_eventfd_and_callback_come_afterwards(void **state)
{
	io_context_t ctx = context(2);
	int file = file_with("abc"), efd = efd_new(0, EFD_NONBLOCK);
	struct iocb cb, *list[1] = {&cb};
	char c;

	(void)state;
	io_prep_pread(&cb, file, &c, 1, 2);
	io_set_eventfd(&cb, efd);
	io_set_callback(&cb, on_event);
	assert_int_equal(cb.u.c.flags, 1);
	assert_int_equal(cb.u.c.resfd, efd);
	assert_ptr_equal(cb.data, (void *)on_event);
	cb.u.c.flags = 6;
	io_set_eventfd(&cb, efd);
	assert_int_equal(cb.u.c.flags, 7);
	memset(&called, 0, sizeof(called));
	laio_is(io_submit(ctx, 1, list), 1);
	assert_int_equal(efd_take(efd), 1);
	laio_is(io_queue_run(ctx), 0);
	assert_int_equal(called.n, 1);
	assert_int_equal(c, 'c');
	/* Preparing it again takes both away. */
	io_prep_pread(&cb, file, &c, 1, 0);
	laio_is(io_submit(ctx, 1, list), 1);
	assert_null(take(ctx).data);
	assert_errno(read(efd, &(uint64_t){0}, 8), EAGAIN);
	laio_is(io_destroy(ctx), 0);
	close(efd);
	close(file);
}

/* io_poll, io_fsync and io_fdsync prepare, set the callback and submit. */
static void LAIO_10_helpers_that_submit(void **state)
{
	io_context_t ctx = context(4);
	int file = file_with("abc");
	struct iocb cb[3];
	struct io_event ev[3];

	(void)state;
	laio_is(io_poll(ctx, &cb[0], on_event, file, POLLIN), 1);
	laio_is(io_fsync(ctx, &cb[1], on_event, file), 1);
	laio_is(io_fdsync(ctx, &cb[2], on_event, file), 1);
	laio_is(io_getevents(ctx, 3, 3, ev, NULL), 3);
	for (int i = 0; i < 3; i++) {
		assert_ptr_equal(ev[i].data, (void *)on_event);
		assert_int_equal(ev[i].res, ev[i].obj == &cb[0] ? POLLIN : 0);
	}
	laio_is(io_poll(ctx, &cb[0], on_event, -1, POLLIN), -EBADF);
	laio_is(io_destroy(ctx), 0);
	close(file);
}

/* --- LAIO-11 and LAIO-12 --------------------------------------------------------------------- */

enum { REAPED = 20000, DEPTH = 16 };

/* What a program does that reaps by itself: its loop knows the magic and falls back to the call. */
static int reap_or_get(io_context_t ctx, struct io_event *ev, int max)
{
	struct timespec none = zero;

	if (__atomic_load_n(&ring_of(ctx)->magic, __ATOMIC_ACQUIRE) == MAGIC)
		return reap(ctx, ev, max);
	return io_getevents(ctx, 0, max, ev, &none);
}

static void LAIO_11_LAIO_12_a_program_takes_events_by_itself(void **state)
{
	io_context_t ctx = context(DEPTH);
	int file = file_with("0123456789");
	struct iocb cb[DEPTH], *list[DEPTH];
	struct io_event ev[DEPTH];
	char buf[DEPTH];
	int done = 0;

	(void)state;
	for (int i = 0; i < DEPTH; i++)
		list[i] = &cb[i];
	/* Often around the ring, in batches of every size. */
	for (int round = 0; done < REAPED; round++) {
		int n = round % DEPTH + 1, got = 0;

		for (int i = 0; i < n; i++) {
			io_prep_pread(&cb[i], file, &buf[i], 1, (round + i) % 10);
			cb[i].data = (void *)(uintptr_t)(done + i);
		}
		laio_is(io_submit(ctx, n, list), n);
		while (got < n) {
			int r = reap_or_get(ctx, ev, n - got < 5 ? n - got : 5);

			assert_uint_in_range(r, 1, 5);
			for (int i = 0; i < r; i++) {
				int at = got + i;

				assert_ptr_equal(ev[i].obj, &cb[at]);
				assert_int_equal((uintptr_t)ev[i].data, done + at);
				assert_int_equal(ev[i].res, 1);
				assert_int_equal(ev[i].res2, 0);
				assert_int_equal(buf[at], '0' + (round + at) % 10);
			}
			got += r;
		}
		done += n;
		assert_int_equal(ring_of(ctx)->head, ring_of(ctx)->tail);
	}
	laio_is(io_destroy(ctx), 0);
	close(file);
}

/* The program's own reaping and the call take turns on one ring. */
static void LAIO_12_reaping_and_calls_mixed(void **state)
{
	io_context_t ctx = context(DEPTH);
	int file = file_with("0123456789");
	struct timespec none = zero;
	struct iocb cb[8], *list[8];
	struct io_event ev[8];
	char buf[8];

	(void)state;
	for (int i = 0; i < 8; i++)
		list[i] = &cb[i];
	for (int round = 0; round < 500; round++) {
		int mine = round % 9;

		for (int i = 0; i < 8; i++)
			io_prep_pread(&cb[i], file, &buf[i], 1, i);
		laio_is(io_submit(ctx, 8, list), 8);
		assert_int_equal(reap_or_get(ctx, ev, mine), mine);
		laio_is(io_getevents(ctx, 0, 8, ev + mine, &none), 8 - mine);
		for (int i = 0; i < 8; i++)
			assert_ptr_equal(ev[i].obj, &cb[i]);
		laio_is(io_getevents(ctx, 0, 8, ev, &none), 0);
	}
	laio_is(io_destroy(ctx), 0);
	close(file);
}

struct producer {
	struct test_thread t;
	io_context_t ctx;
	int file;
	long submitted;
};

/* Submits REAPED reads, numbered in data; waits while the ring is full. */
static void *producer_main(void *arg)
{
	struct producer *p = arg;
	struct iocb cb[4], *list[4];
	char buf[4];

	while (p->submitted < REAPED) {
		int r;

		for (int i = 0; i < 4; i++) {
			io_prep_pread(&cb[i], p->file, &buf[i], 1, 0);
			cb[i].data = (void *)(uintptr_t)(p->submitted + i);
			list[i] = &cb[i];
		}
		r = io_submit(p->ctx, REAPED - p->submitted < 4 ? REAPED - p->submitted : 4, list);
		if (r == -EAGAIN)
			sched_yield();
		else if (r < 0)
			break;
		else
			p->submitted += r;
	}
	return NULL;
}

/* One thread submits, another moves head: an event is complete before tail shows it. */
static void LAIO_12_a_reaper_beside_a_submitter(void **state)
{
	io_context_t ctx = context(DEPTH);
	struct producer p = {.ctx = ctx, .file = file_with("x")};
	int64_t end;
	long next = 0;

	(void)state;
	thread_start(&p.t, producer_main, &p);
	end = now_ms() + 2 * SOON_MS;
	while (next < REAPED) {
		struct io_event ev[DEPTH];
		int n = reap_or_get(ctx, ev, DEPTH);

		if (n == 0) {
			assert_true(now_ms() < end);
			sched_yield();
			continue;
		}
		/* From one event to the next, however long it takes for all. */
		end = now_ms() + 2 * SOON_MS;
		for (int i = 0; i < n; i++) {
			assert_int_equal((uintptr_t)ev[i].data, next);
			assert_int_equal(ev[i].res, 1);
			next++;
		}
	}
	assert_true(thread_join(&p.t, SOON_MS));
	assert_int_equal(p.submitted, REAPED);
	assert_int_equal(reap_or_get(ctx, &(struct io_event){0}, 1), 0);
	laio_is(io_destroy(ctx), 0);
	close(p.file);
}

/* A ring that was full takes requests again as soon as head has been moved. */
static void LAIO_12_moving_head_makes_room(void **state)
{
	io_context_t ctx = context(DEPTH);
	int file = file_with("x"), accepted = 0, more = 0;
	struct io_event ev[7];
	struct iocb cb;
	char c;

	(void)state;
	io_prep_pread(&cb, file, &c, 1, 0);
	while (submit1(ctx, &cb) == 1)
		assert_true(++accepted < 100000);
	assert_true(accepted >= DEPTH);
	assert_int_equal(submit1(ctx, &cb), -EAGAIN);
	assert_int_equal(reap(ctx, ev, 7), 7);
	while (submit1(ctx, &cb) == 1)
		assert_true(++more <= accepted);
	assert_int_equal(more, 7);
	laio_is(io_destroy(ctx), 0);
	close(file);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(LAIO_01_results_and_errno),
		cmocka_unit_test(LAIO_01_a_result_is_never_taken_for_an_error),
		cmocka_unit_test(LAIO_02_layout),
		cmocka_unit_test(LAIO_02_the_context_is_the_address_of_the_ring),
		cmocka_unit_test(LAIO_02_one_context_through_both_doors),
		cmocka_unit_test(LAIO_03_every_version_is_there),
		cmocka_unit_test(LAIO_03_no_version_that_never_was),
		cmocka_unit_test(LAIO_03_the_library_by_its_own_handle),
		cmocka_unit_test(LAIO_04_old_getevents),
		cmocka_unit_test(LAIO_04_old_getevents_waits_for_one),
		cmocka_unit_test(LAIO_04_old_cancel),
		cmocka_unit_test(LAIO_05_queue_init_and_release),
		cmocka_unit_test(LAIO_05_queue_wait_takes_nothing),
		cmocka_unit_test(LAIO_05_queue_run_calls_what_is_stored_in_data),
		cmocka_unit_test(LAIO_05_queue_run_goes_on_to_the_end),
		cmocka_unit_test(LAIO_06_LAIO_07_an_empty_ring_is_answered_without_a_call),
		cmocka_unit_test(LAIO_06_with_events_it_is_the_system_call),
		cmocka_unit_test(LAIO_06_without_the_magic_it_is_the_system_call),
		cmocka_unit_test(LAIO_06_completions_are_seen_by_a_look),
		cmocka_unit_test(LAIO_07_no_mask_and_no_interruption),
		cmocka_unit_test(LAIO_08_a_bad_context_is_dereferenced),
		cmocka_unit_test(LAIO_08_the_other_functions_do_not_look),
		cmocka_unit_test(LAIO_09_the_mask_of_pgetevents),
		cmocka_unit_test(LAIO_10_helpers_clear_the_request),
		cmocka_unit_test(LAIO_10_eventfd_and_callback_come_afterwards),
		cmocka_unit_test(LAIO_10_helpers_that_submit),
		cmocka_unit_test(LAIO_11_LAIO_12_a_program_takes_events_by_itself),
		cmocka_unit_test(LAIO_12_reaping_and_calls_mixed),
		cmocka_unit_test(LAIO_12_a_reaper_beside_a_submitter),
		cmocka_unit_test(LAIO_12_moving_head_makes_room),
	};

	return run_group(tests);
}
