/* SPDX-License-Identifier: MIT */
/*
 * The end of contexts: io_destroy, exit, execve, and what forks and threads have to do with it.
 *
 * The program also runs as its own helper: with a first argument that begins with "--" it is what
 * a test has executed, and ends with status 0 if all was well.
 */
#include "aio.h"

#include <spawn.h>
#include <sys/resource.h>

extern char **environ;

static void pend(aio_context_t ctx, struct iocb *cb, int fd)
{
	aio_accept1(ctx, aio_poll(cb, fd, POLLIN));
}

/*
 * Waits until the thread is in a sleep, interruptible or not, that it does not leave for a
 * moment; false if it ends.
 */
static bool thread_stuck(struct test_thread *t)
{
	int64_t end = now_ms() + SOON_MS, since = 0;
	unsigned long seen = ~0ul;

	while (now_ms() < end) {
		unsigned long switches = 0;
		char state = task_state(OF_THREAD, t->tid, &switches);

		if (!state || thread_done(t))
			return false;
		if ((state != 'S' && state != 'D') || switches != seen)
			since = now_ms();
		else if (now_ms() - since >= QUIET_MS)
			return true;
		seen = switches;
		sleep_ms(1);
	}
	return false;
}

struct call {
	struct test_thread t;
	aio_context_t ctx;
	struct iocb *cb;
	long r;
	int err;
};

static void *destroy_main(void *arg)
{
	struct call *c = arg;

	errno = 0;
	c->r = aio_destroy(c->ctx);
	c->err = errno;
	return NULL;
}

static void *submit_main(void *arg)
{
	struct call *c = arg;

	errno = 0;
	c->r = aio_submit1(c->ctx, c->cb);
	c->err = errno;
	return NULL;
}

/*
 * A request that cannot be cancelled and that ends when the test wants it: a read of an empty pipe,
 * which io_submit may wait for itself.
 */
#define NO_KEY 0x5a5a5a5au
struct stubborn {
	int p[2];
	char buf[8];
	struct iocb cb;
	struct call submit;
};

/*
 * Returns when the request is in the context: io_submit has written its key (AIO-SUBMIT-05). That
 * a thread sleeps would not tell on what.
 */
static void stubborn_begin(struct stubborn *s, aio_context_t ctx)
{
	int64_t end = now_ms() + SOON_MS;

	memset(s, 0, sizeof(*s));
	aio_pipe(s->p, 0);
	aio_pread(&s->cb, s->p[0], s->buf, sizeof(s->buf), 0);
	s->cb.aio_key = NO_KEY;
	s->submit.ctx = ctx;
	s->submit.cb = &s->cb;
	thread_start(&s->submit.t, submit_main, &s->submit);
	while (__atomic_load_n(&s->cb.aio_key, __ATOMIC_RELAXED) == NO_KEY) {
		assert_true(now_ms() < end);
		sched_yield();
	}
}

static void stubborn_end(struct stubborn *s)
{
	put(s->p[1]);
	assert_true(thread_join(&s->submit.t, SOON_MS));
	assert_int_equal(s->submit.r, 1);
	close_both(s->p);
}

/* Destroys the context by a thread; returns when nobody finds it any more (AIO-DESTROY-02). */
static void destroy_begin(struct call *d)
{
	int64_t end = now_ms() + SOON_MS;

	thread_start(&d->t, destroy_main, d);
	while (aio_submit(d->ctx, 0, NULL) == 0) {
		assert_true(now_ms() < end);
		sched_yield();
	}
	assert_int_equal(errno, EINVAL);
}

/* --- AIO-DESTROY-01 -------------------------------------------------------------------------- */

static void AIO_DESTROY_01_what_is_no_context(void **state)
{
	aio_context_t ctx = aio_new(4);
	char page[4096] __attribute__((aligned(4096))) = {0};

	(void)state;
	assert_errno(aio_destroy(0), EINVAL);
	assert_errno(aio_destroy((aio_context_t)(uintptr_t)page), EINVAL);
	assert_errno(aio_destroy(ctx + 8), EINVAL);
	for (size_t i = 0; i < BAD_ADDRESSES; i++)
		assert_errno(aio_destroy(bad_addresses[i]), EINVAL);
	aio_free(ctx);
	for (int i = 0; i < 3; i++)
		assert_errno(aio_destroy(ctx), EINVAL);
	/* Made anew at the same address, perhaps, it is another context. */
	ctx = aio_new(4);
	aio_free(ctx);
	assert_errno(aio_destroy(ctx), EINVAL);
}

static void AIO_DESTROY_01_a_second_one_while_the_first_waits(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct stubborn s;
	struct call first = {.ctx = ctx};

	(void)state;
	stubborn_begin(&s, ctx);
	destroy_begin(&first);
	assert_true(thread_stuck(&first.t));
	assert_errno(aio_destroy(ctx), EINVAL);
	assert_errno(aio_destroy(ctx), EINVAL);
	assert_false(thread_done(&first.t));
	stubborn_end(&s);
	assert_true(thread_join(&first.t, SOON_MS));
	assert_int_equal(first.r, 0);
	assert_errno(aio_destroy(ctx), EINVAL);
}

static void AIO_DESTROY_01_of_many_at_once_one_succeeds(void **state)
{
	enum { N = 6, ROUNDS = 40 };

	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		aio_context_t ctx = aio_new(4);
		struct call c[N];
		struct iocb cb;
		int won = 0, p[2];

		aio_pipe(p, 0);
		if (round % 2)
			pend(ctx, &cb, p[0]);
		for (int i = 0; i < N; i++) {
			c[i] = (struct call){.ctx = ctx};
			thread_start(&c[i].t, destroy_main, &c[i]);
		}
		for (int i = 0; i < N; i++) {
			assert_true(thread_join(&c[i].t, SOON_MS));
			if (c[i].r == 0)
				won++;
			else
				assert_int_equal(c[i].err, EINVAL);
		}
		assert_int_equal(won, 1);
		close_both(p);
	}
}

/* --- AIO-DESTROY-02 -------------------------------------------------------------------------- */

static void AIO_DESTROY_02_no_call_finds_it_any_more(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct call d = {.ctx = ctx};
	struct timespec zero = {0};
	struct stubborn s;
	struct io_event ev;
	struct iocb cb;
	int file = file_in_memory(8);
	char c;

	(void)state;
	stubborn_begin(&s, ctx);
	/* While it waits and afterwards. */
	for (int after = 0; after < 2; after++) {
		if (after) {
			stubborn_end(&s);
			assert_true(thread_join(&d.t, SOON_MS));
			assert_int_equal(d.r, 0);
		} else {
			destroy_begin(&d);
			assert_true(thread_stuck(&d.t));
		}
		assert_errno(aio_submit1(ctx, aio_pread(&cb, file, &c, 1, 0)), EINVAL);
		assert_errno(aio_submit(ctx, 0, NULL), EINVAL);
		assert_errno(aio_getevents(ctx, 0, 1, &ev, &zero), EINVAL);
		assert_errno(aio_getevents(ctx, 1, 1, &ev, NULL), EINVAL);
		assert_errno(aio_pgetevents(ctx, 1, 1, &ev, NULL, NULL), EINVAL);
		assert_errno(aio_cancel(ctx, &cb, &ev), EINVAL);
		assert_errno(aio_destroy(ctx), EINVAL);
	}
	close(file);
}

static void AIO_DESTROY_02_sleepers_return_first(void **state)
{
	aio_context_t ctx = aio_new(4);
	struct call d = {.ctx = ctx};
	struct getter *g[3];
	struct stubborn s;

	(void)state;
	stubborn_begin(&s, ctx);
	for (int i = 0; i < 3; i++)
		g[i] = getter_new(ctx, i + 1, 4, i == 1 ? 60000 : -1);
	thread_start(&d.t, destroy_main, &d);
	for (int i = 0; i < 3; i++) {
		getter_fails(g[i], EINVAL);
		free(g[i]);
	}
	/* The request is still there. */
	assert_true(thread_stuck(&d.t));
	stubborn_end(&s);
	assert_true(thread_join(&d.t, SOON_MS));
	assert_int_equal(d.r, 0);
}

static void AIO_DESTROY_02_pending_polls_do_not_delay_it(void **state)
{
	enum { N = 100 };
	static struct iocb cb[N];
	int p[2], s[2], efd = efd_new(0, 0), ep = ep_new();

	(void)state;
	aio_pipe(p, 0);
	assert_ok(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	for (int i = 0; i < 10; i++) {
		const int fds[] = {p[0], s[0], efd, ep};
		aio_context_t ctx = aio_new(N);
		int64_t start = now_ms();

		for (int j = 0; j < N; j++)
			pend(ctx, &cb[j], fds[j % 4]);
		aio_free(ctx);
		assert_true(now_ms() - start < SOON_MS);
	}
	put(p[1]);
	put(s[1]);
	efd_add(efd, 1);
	close_both(p);
	close_both(s);
	close(efd);
	close(ep);
}

/* Destroyed by one thread while others submit, reap and cancel: each call works or fails EINVAL. */
struct busy {
	struct test_thread t;
	aio_context_t ctx;
	int file, rd;
	int what;
	long calls;
	int bad;
	/* Not on the stack: a thread may be told of the end before its last request has ended. */
	char in, out;
};

static void *busy_main(void *arg)
{
	struct busy *b = arg;
	struct iocb cb[2], *list[2] = {&cb[0], &cb[1]};
	struct io_event ev[4];
	struct timespec ms = {.tv_nsec = 1000000};

	for (;; b->calls++) {
		long r;

		errno = 0;
		switch (b->what) {
		case 0:
			aio_pread(&cb[0], b->file, &b->in, 1, 0);
			aio_pwrite(&cb[1], b->file, &b->out, 1, 1);
			r = aio_submit(b->ctx, 2, list);
			break;
		case 1:
			aio_poll(&cb[0], b->rd, POLLIN);
			r = aio_submit(b->ctx, 1, list);
			if (r == 1)
				r = aio_cancel(b->ctx, &cb[0], NULL);
			break;
		default:
			r = aio_getevents(b->ctx, 1, 4, ev, &ms);
		}
		if (r == -1 && errno == EINVAL)
			return NULL;
		if (r == -1 && errno != EAGAIN && errno != EINPROGRESS)
			b->bad = errno;
	}
}

static void AIO_DESTROY_02_calls_in_progress_finish(void **state)
{
	enum { N = 3, ROUNDS = 30 };
	int file = file_in_memory(8), p[2];

	(void)state;
	aio_pipe(p, 0);
	for (int round = 0; round < ROUNDS; round++) {
		aio_context_t ctx = aio_new(64);
		struct busy b[N];

		for (int i = 0; i < N; i++) {
			b[i] = (struct busy){.ctx = ctx, .file = file, .rd = p[0], .what = i};
			thread_start(&b[i].t, busy_main, &b[i]);
		}
		sleep_ms(round % 4);
		aio_free(ctx);
		for (int i = 0; i < N; i++) {
			assert_true(thread_join(&b[i].t, SOON_MS));
			assert_int_equal(b[i].bad, 0);
		}
	}
	close_both(p);
	close(file);
}

static void AIO_DESTROY_02_the_ring_is_gone(void **state)
{
	aio_context_t ctx = aio_new(4);
	unsigned char in_core;

	(void)state;
	assert_ok(mincore((void *)(uintptr_t)ctx, 1, &in_core));
	aio_free(ctx);
	assert_errno(mincore((void *)(uintptr_t)ctx, 1, &in_core), ENOMEM);
}

/* --- AIO-DESTROY-03 -------------------------------------------------------------------------- */

enum { BLOCK = 65536, BLOCKS = 32 };

static char *blocks(void)
{
	char *p = aligned_alloc(4096, BLOCK * BLOCKS);

	assert_non_null(p);
	memset(p, 0, BLOCK * BLOCKS);
	return p;
}

/* A file that is read and written past the cache where that is possible. */
static int slow_file(void)
{
	int fd = file_on_disk(BLOCK * BLOCKS, O_DIRECT);

	return fd == -1 ? file_on_disk(BLOCK * BLOCKS, 0) : fd;
}

static void AIO_DESTROY_03_reads_have_ended(void **state)
{
	int file = slow_file();
	char *buf = blocks();
	struct iocb cb[BLOCKS], *list[BLOCKS];

	(void)state;
	for (int round = 0; round < 20; round++) {
		aio_context_t ctx = aio_new(BLOCKS);

		for (int i = 0; i < BLOCKS; i++)
			list[i] = aio_pread(&cb[i], file, buf + i * BLOCK, BLOCK, i * BLOCK);
		aio_accept(ctx, list, BLOCKS);
		aio_free(ctx);
		/* Each was done to its end... */
		assert_true(file_matches(buf, BLOCK * BLOCKS, 0));
		/* ...and comes back to no buffer. */
		memset(buf, 0x33, BLOCK * BLOCKS);
		if (round % 4 == 0)
			sleep_ms(QUIET_MS);
		for (int i = 0; i < BLOCK * BLOCKS; i++)
			if (buf[i] != 0x33)
				fail_msg("byte %d was written after io_destroy", i);
	}
	free(buf);
	close(file);
}

static void AIO_DESTROY_03_writes_have_ended(void **state)
{
	int file = slow_file();
	char *buf = blocks(), *back = blocks();
	struct iocb cb[BLOCKS], *list[BLOCKS];

	(void)state;
	for (int round = 0; round < 10; round++) {
		aio_context_t ctx = aio_new(BLOCKS);

		for (int i = 0; i < BLOCKS; i++) {
			memset(buf + i * BLOCK, round * 7 + i + 1, BLOCK);
			list[i] = aio_pwrite(&cb[i], file, buf + i * BLOCK, BLOCK, i * BLOCK);
		}
		aio_accept(ctx, list, BLOCKS);
		aio_free(ctx);
		/* What is in the buffer now must not be what is written. */
		memset(buf, 0, BLOCK * BLOCKS);
		assert_int_equal(pread(file, back, BLOCK * BLOCKS, 0), BLOCK * BLOCKS);
		for (int i = 0; i < BLOCK * BLOCKS; i++)
			if (back[i] != (char)(round * 7 + i / BLOCK + 1))
				fail_msg("byte %d is not what was written", i);
	}
	free(buf);
	free(back);
	close(file);
}

/* --- AIO-DESTROY-04 -------------------------------------------------------------------------- */

static void AIO_DESTROY_04_the_eventfd_of_a_cancelled_request_is_told(void **state)
{
	aio_context_t ctx = aio_new(8);
	int efd = efd_new(0, EFD_NONBLOCK), p[2];
	uint64_t told = 0, v;
	struct iocb cb[3];

	(void)state;
	aio_pipe(p, 0);
	for (int i = 0; i < 3; i++)
		aio_accept1(ctx, aio_resfd(aio_poll(&cb[i], p[0], POLLIN), efd));
	aio_free(ctx);
	while (told < 3) {
		struct pollfd pfd = {.fd = efd, .events = POLLIN};

		assert_int_equal(poll(&pfd, 1, SOON_MS), 1);
		assert_int_equal(read(efd, &v, 8), 8);
		told += v;
	}
	assert_int_equal(told, 3);
	put(p[1]);
	sleep_ms(QUIET_MS);
	assert_errno(read(efd, &v, 8), EAGAIN);
	close(efd);
	close_both(p);
}

static void AIO_DESTROY_04_events_that_nobody_took_are_lost(void **state)
{
	aio_context_t ctx = aio_new(8), next;
	int efd = efd_new(0, EFD_NONBLOCK), file = file_in_memory(8);
	struct iocb cb;
	char c;

	(void)state;
	aio_accept1(ctx, aio_resfd(aio_pread(&cb, file, &c, 1, 0), efd));
	aio_accept1(ctx, aio_pread(&cb, file, &c, 1, 0));
	aio_free(ctx);
	/* What was told stays told, and the next context begins with nothing. */
	assert_int_equal(efd_take(efd), 1);
	next = aio_new(8);
	aio_none(next);
	aio_free(next);
	close(efd);
	close(file);
}

/* --- AIO-DESTROY-05 -------------------------------------------------------------------------- */

static volatile sig_atomic_t handled;

static void on_signal(int sig)
{
	(void)sig;
	handled++;
}

static void AIO_DESTROY_05_signals_do_not_interrupt_it(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal}, old;
	aio_context_t ctx = aio_new(4);
	struct call d = {.ctx = ctx};
	struct stubborn s;

	(void)state;
	assert_ok(sigaction(SIGUSR1, &sa, &old));
	stubborn_begin(&s, ctx);
	handled = 0;
	destroy_begin(&d);
	assert_true(thread_stuck(&d.t));
	for (int i = 0; i < 5; i++) {
		assert_int_equal(pthread_kill(d.t.id, SIGUSR1), 0);
		sleep_ms(5);
		assert_false(thread_done(&d.t));
	}
	assert_true(thread_stuck(&d.t));
	stubborn_end(&s);
	assert_true(thread_join(&d.t, SOON_MS));
	assert_int_equal(d.r, 0);
	assert_true(handled > 0);
	assert_ok(sigaction(SIGUSR1, &old, NULL));
}

/* --- AIO-PROC-01 ----------------------------------------------------------------------------- */

/* How a child with pending requests ends. */
enum end {
	BY_EXIT,
	BY__EXIT,
	BY_END_OF_THE_LAST_THREAD,
	BY_EXIT_OF_A_THREAD,
	BY_SIGNAL,
	BY_EXEC,
	BY_FAILED_EXEC,
	ENDS
};

struct ending {
	enum end end;
	int rd;
	int told; /* an eventfd that requests name */
	int file;
	char *buf;
};

/*
 * AddressSanitizer looks for leaks at exit and finds what the test itself has not freed. (The
 * other one has no memory of the last thread any more when that calls what stands here.)
 */
static void leave(void)
{
	_exit(0);
}

static void *exit_main(void *arg)
{
	(void)arg;
	exit(0);
}

static void *sleep_main(void *arg)
{
	struct io_event ev;

	aio_getevents(*(aio_context_t *)arg, 1, 1, &ev, NULL);
	return NULL;
}

static void end_with_requests(struct ending *e)
{
	char *argv[] = {"/proc/self/exe", "--nothing", NULL};
	char *none[] = {"/nonexistent", NULL};
	struct iocb cb[BLOCKS], *list[BLOCKS];
	aio_context_t ctx = 0;
	struct io_event ev;
	pthread_t t;

	if (SANITIZED == 1)
		atexit(leave);
	child_check(aio_setup_in_turn(64, &ctx) == 0);
	child_check(aio_submit1(ctx, aio_poll(&cb[0], e->rd, POLLIN)) == 1);
	child_check(aio_submit1(ctx, aio_resfd(aio_poll(&cb[1], e->rd, POLLIN), e->told)) == 1);
	if (e->file != -1) {
		for (int i = 0; i < BLOCKS; i++)
			list[i] = aio_pwrite(&cb[i], e->file, e->buf + i * BLOCK, BLOCK, i * BLOCK);
		child_check(aio_submit(ctx, BLOCKS, list) == BLOCKS);
	}
	switch (e->end) {
	case BY_EXIT:
		exit(0);
	case BY__EXIT:
		_exit(0);
	case BY_END_OF_THE_LAST_THREAD:
		pthread_exit(NULL);
	case BY_EXIT_OF_A_THREAD:
		/* Others sleep in the context meanwhile. */
		child_check(pthread_create(&t, NULL, sleep_main, &ctx) == 0);
		child_check(pthread_create(&t, NULL, sleep_main, &ctx) == 0);
		child_check(pthread_create(&t, NULL, exit_main, NULL) == 0);
		sleep_main(&ctx);
		for (;;)
			pause();
	case BY_SIGNAL:
		kill(getpid(), SIGKILL);
		for (;;)
			pause();
	case BY_EXEC:
		execv(argv[0], argv);
		_exit(98);
	default:
		/* An exec that fails leaves everything as it was. */
		child_check(execv(none[0], none) == -1);
		cb[2].aio_key = 0;
		child_check(aio_cancel(ctx, &cb[0], NULL) == -1);
		child_check(aio_destroy(ctx) == 0);
		child_check(aio_getevents(ctx, 0, 1, &ev, NULL) == -1 && errno == EINVAL);
		_exit(0);
	}
}

static void AIO_PROC_01_pending_polls_do_not_delay_the_end(void **state)
{
	(void)state;
	for (enum end end = 0; end < ENDS; end++) {
		int p[2], efd = efd_new(0, EFD_NONBLOCK);
		struct ending e = {.end = end, .told = efd, .file = -1};
		int64_t start = now_ms();
		pid_t pid;

		aio_pipe(p, 0);
		e.rd = p[0];
		pid = fork_bounded();
		if (pid == 0)
			end_with_requests(&e);
		assert_true(pid > 0);
		assert_int_equal(child_end(pid), end == BY_SIGNAL ? 128 + SIGKILL : 0);
		assert_true(now_ms() - start < SOON_MS);
		close_both(p);
		close(efd);
	}
}

/* The end of the context tells who shares the eventfd with the process. */
static void AIO_PROC_01_eventfds_are_told_at_the_end(void **state)
{
	(void)state;
	for (enum end end = 0; end < ENDS; end++) {
		int p[2], efd = efd_new(0, EFD_NONBLOCK);
		struct ending e = {.end = end, .told = efd, .file = -1};
		struct pollfd pfd = {.fd = efd, .events = POLLIN};
		pid_t pid;

		aio_pipe(p, 0);
		e.rd = p[0];
		pid = fork_bounded();
		if (pid == 0)
			end_with_requests(&e);
		assert_true(pid > 0);
		assert_int_equal(poll(&pfd, 1, SOON_MS), 1);
		assert_int_equal(efd_take(efd), 1);
		assert_int_equal(child_end(pid), end == BY_SIGNAL ? 128 + SIGKILL : 0);
		close_both(p);
		close(efd);
	}
}

static void AIO_PROC_01_requests_that_cannot_be_cancelled_are_awaited(void **state)
{
	char *buf = blocks(), *back = blocks();
	int file = slow_file(), p[2], efd = efd_new(0, EFD_NONBLOCK);

	(void)state;
	aio_pipe(p, 0);
	for (int round = 0; round < 2 * ENDS; round++) {
		struct ending e = {
			.end = round % ENDS, .rd = p[0], .told = efd, .file = file, .buf = buf};
		pid_t pid;

		memset(buf, round + 1, BLOCK * BLOCKS);
		pid = fork_bounded();
		if (pid == 0)
			end_with_requests(&e);
		assert_true(pid > 0);
		assert_int_equal(child_end(pid), e.end == BY_SIGNAL ? 128 + SIGKILL : 0);
		/* After the end of the process nothing is on its way to the file any more. */
		assert_int_equal(pread(file, back, BLOCK * BLOCKS, 0), BLOCK * BLOCKS);
		for (int i = 0; i < BLOCK * BLOCKS; i++)
			if (back[i] != (char)(round + 1))
				fail_msg("round %d: byte %d is not what was written", round, i);
	}
	free(buf);
	free(back);
	close_both(p);
	close(efd);
	close(file);
}

/* What execve has left of the contexts of the former program. */
static int after_exec(const char *ctx_text, const char *fd_text)
{
	aio_context_t ctx = strtoull(ctx_text, NULL, 0);
	int rd = atoi(fd_text);
	struct timespec zero = {0};
	struct io_event ev;
	struct iocb cb;

	child_errno(aio_getevents(ctx, 0, 1, &ev, &zero), EINVAL);
	child_errno(aio_submit1(ctx, aio_poll(&cb, rd, POLLIN)), EINVAL);
	child_errno(aio_destroy(ctx), EINVAL);
	/* And new ones can be made. */
	ctx = 0;
	child_check(aio_setup_in_turn(4, &ctx) == 0);
	child_check(aio_submit1(ctx, aio_poll(&cb, rd, POLLIN)) == 1);
	child_check(aio_getevents(ctx, 1, 1, &ev, NULL) == 1);
	child_check(ev.obj == (uintptr_t)&cb && ev.res == (POLLIN | POLLRDNORM));
	child_check(aio_getevents(ctx, 0, 1, &ev, &zero) == 0);
	child_check(aio_destroy(ctx) == 0);
	return 0;
}

static void AIO_PROC_01_execve_takes_the_contexts_away(void **state)
{
	int p[2], other[2];
	pid_t pid;

	(void)state;
	aio_pipe(p, 0);
	aio_pipe(other, 0);
	pid = fork_bounded();
	if (pid == 0) {
		char ctx_text[32], fd_text[16];
		char *argv[] = {"/proc/self/exe", "--after-exec", ctx_text, fd_text, NULL};
		struct iocb cb[2];
		aio_context_t ctx = 0;
		/* Inherited by the next program; the other ends go with this one. */
		int rd = fcntl(p[0], F_DUPFD, 0);

		child_check(rd != -1);
		child_check(aio_setup_in_turn(4, &ctx) == 0);
		child_check(aio_submit1(ctx, aio_poll(&cb[0], rd, POLLIN)) == 1);
		child_check(aio_submit1(ctx, aio_poll(&cb[1], other[0], POLLPRI)) == 1);
		snprintf(ctx_text, sizeof(ctx_text), "%#llx", (unsigned long long)ctx);
		snprintf(fd_text, sizeof(fd_text), "%d", rd);
		execv(argv[0], argv);
		_exit(98);
	}
	assert_true(pid > 0);
	close(other[0]);
	/* The former program's request has let its file go when the next one runs. */
	signal(SIGPIPE, SIG_IGN);
	for (int64_t end = now_ms() + SOON_MS; write(other[1], "x", 1) == 1; sleep_ms(1))
		assert_true(now_ms() < end);
	assert_int_equal(errno, EPIPE);
	signal(SIGPIPE, SIG_DFL);
	assert_true(child_asleep(pid));
	put(p[1]);
	assert_int_equal(child_end(pid), 0);
	close_both(p);
	close(other[1]);
}

/* --- AIO-PROC-02 ----------------------------------------------------------------------------- */

struct maker {
	struct test_thread t;
	aio_context_t ctx;
	bool make;
	int rd, file;
	char *buf;
	struct iocb poll, io[BLOCKS];
	int bad;
};

static void *maker_main(void *arg)
{
	struct maker *m = arg;
	struct iocb *list[BLOCKS];

	if (m->make && aio_setup_in_turn(64, &m->ctx) == -1)
		m->bad = errno;
	if (aio_submit1(m->ctx, aio_poll(&m->poll, m->rd, POLLIN)) != 1)
		m->bad = errno;
	for (int i = 0; i < BLOCKS; i++)
		list[i] = aio_pread(&m->io[i], m->file, m->buf + i * BLOCK, BLOCK, i * BLOCK);
	if (aio_submit(m->ctx, BLOCKS, list) != BLOCKS)
		m->bad = errno;
	return NULL;
}

static void AIO_PROC_02_requests_outlive_their_thread(void **state)
{
	int file = slow_file(), p[2];
	char *buf = blocks();

	(void)state;
	aio_pipe(p, 0);
	for (int round = 0; round < 10; round++) {
		static struct maker m;
		struct io_event ev[BLOCKS];

		m = (struct maker){.make = round % 2, .rd = p[0], .file = file, .buf = buf};
		if (!m.make)
			m.ctx = aio_new(64);
		memset(buf, 0, BLOCK * BLOCKS);
		thread_start(&m.t, maker_main, &m);
		assert_true(thread_join(&m.t, SOON_MS));
		assert_int_equal(m.bad, 0);
		aio_take(m.ctx, ev, BLOCKS);
		for (int i = 0; i < BLOCKS; i++) {
			struct iocb *of = (struct iocb *)(uintptr_t)ev[i].obj;

			assert_uint_in_range(of - m.io, 0, BLOCKS - 1);
			aio_check(&ev[i], of, BLOCK);
		}
		assert_true(file_matches(buf, BLOCK * BLOCKS, 0));
		sleep_ms(QUIET_MS);
		aio_none(m.ctx);
		put(p[1]);
		aio_expect(m.ctx, &m.poll, POLLIN | POLLRDNORM);
		get(p[0]);
		/* Whoever made it, anyone may use it and take it away. */
		pend(m.ctx, &m.poll, p[0]);
		assert_errno(aio_cancel(m.ctx, &m.poll, NULL), EINPROGRESS);
		aio_expect(m.ctx, &m.poll, 0);
		aio_free(m.ctx);
	}
	free(buf);
	close_both(p);
	close(file);
}

struct visitor {
	struct test_thread t;
	aio_context_t ctx;
	int end;
};

static void *visitor_main(void *arg)
{
	struct visitor *v = arg;
	struct io_event ev;

	while (!__atomic_load_n(&v->end, __ATOMIC_ACQUIRE)) {
		pthread_testcancel();
		aio_getevents(v->ctx, 1, 1, &ev, &(struct timespec){.tv_nsec = 1000000});
	}
	return NULL;
}

static void AIO_PROC_02_threads_that_end_between_waits(void **state)
{
	aio_context_t ctx = aio_new(8);
	struct iocb cb;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	for (int i = 0; i < 20; i++) {
		struct visitor v = {.ctx = ctx};

		pend(ctx, &cb, p[0]);
		thread_start(&v.t, visitor_main, &v);
		sleep_ms(i % 4);
		/* The address sanitizer takes the frames of a cancelled thread for live ones. */
		if (SANITIZED || i % 2)
			__atomic_store_n(&v.end, 1, __ATOMIC_RELEASE);
		else
			pthread_cancel(v.t.id);
		assert_true(thread_join(&v.t, SOON_MS));
		put(p[1]);
		aio_expect(ctx, &cb, POLLIN | POLLRDNORM);
		get(p[0]);
	}
	close_both(p);
	aio_free(ctx);
}

/* --- AIO-PROC-03 ----------------------------------------------------------------------------- */

struct family {
	aio_context_t ctx;
	struct iocb *cb;
	int file;
};

static void child_of_fork(void *arg)
{
	struct family *f = arg;
	struct timespec zero = {0};
	struct io_event ev;
	struct iocb cb;
	aio_context_t own = 0;
	char c = 0;

	child_errno(aio_getevents(f->ctx, 0, 1, &ev, &zero), EINVAL);
	child_errno(aio_getevents(f->ctx, 1, 1, &ev, NULL), EINVAL);
	child_errno(aio_cancel(f->ctx, f->cb, &ev), EINVAL);
	child_errno(aio_submit1(f->ctx, aio_pread(&cb, f->file, &c, 1, 0)), EINVAL);
	child_errno(aio_destroy(f->ctx), EINVAL);
	child_check(aio_setup_in_turn(8, &own) == 0);
	child_check(own != f->ctx);
	child_check(aio_submit1(own, aio_pread(&cb, f->file, &c, 1, 3)) == 1);
	child_check(aio_getevents(own, 1, 1, &ev, NULL) == 1);
	child_check(ev.obj == (uintptr_t)&cb && ev.res == 1 && (unsigned char)c == file_byte(3));
	child_check(aio_destroy(own) == 0);
}

static void AIO_PROC_03_requests_of_the_parent_go_on(void **state)
{
	aio_context_t ctx = aio_new(64);
	int file = slow_file(), mem = file_in_memory(16), p[2], efd = efd_new(0, 0);
	char *buf = blocks();
	struct iocb poll, cb[BLOCKS], *list[BLOCKS];
	struct io_event ev[BLOCKS + 2];
	struct family f = {.ctx = ctx, .cb = &poll, .file = mem};
	char c;

	(void)state;
	aio_pipe(p, 0);
	for (int round = 0; round < 5; round++) {
		struct iocb before;

		memset(buf, 0, BLOCK * BLOCKS);
		aio_accept1(ctx, aio_resfd(aio_poll(&poll, p[0], POLLIN), efd));
		aio_accept1(ctx, aio_pread(&before, mem, &c, 1, 0));
		for (int i = 0; i < BLOCKS; i++)
			list[i] = aio_pread(&cb[i], file, buf + i * BLOCK, BLOCK, i * BLOCK);
		aio_accept(ctx, list, BLOCKS);
		in_child(child_of_fork, &f);
		aio_take(ctx, ev, BLOCKS + 1);
		aio_check(&ev[0], &before, 1);
		assert_true(file_matches(buf, BLOCK * BLOCKS, 0));
		aio_none(ctx);
		put(p[1]);
		assert_int_equal(efd_take(efd), 1);
		aio_expect(ctx, &poll, POLLIN | POLLRDNORM);
		get(p[0]);
	}
	free(buf);
	close(efd);
	close(mem);
	close(file);
	close_both(p);
	aio_free(ctx);
}

/* A fork in the middle of others' calls. */
static void AIO_PROC_03_while_threads_wait(void **state)
{
	aio_context_t ctx = aio_new(8);
	int p[2], mem = file_in_memory(16);
	struct iocb cb, more[2];
	struct family f = {.ctx = ctx, .cb = &cb, .file = mem};
	struct getter *g[2];
	sigset_t chld, old;
	char c;

	(void)state;
	aio_pipe(p, 0);
	/*
	 * The end of a child interrupts whoever sleeps, although nobody handles the signal, if the
	 * main thread happens to have it blocked at that moment.
	 */
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &chld, &old), 0);
	for (int round = 0; round < 5; round++) {
		pend(ctx, &cb, p[0]);
		g[0] = getter_new(ctx, 2, 2, -1);
		in_child(child_of_fork, &f);
		assert_true(getter_sleeps(g[0]));
		g[1] = getter_new(ctx, 1, 1, -1);
		in_child(child_of_fork, &f);
		put(p[1]);
		/* One or the other takes it; what comes next is for who is left: three for both. */
		for (int i = 0; i < 2; i++)
			aio_accept1(ctx, aio_pread(&more[i], mem, &c, 1, 0));
		getter_gets(g[0], 2);
		getter_gets(g[1], 1);
		free(g[0]);
		free(g[1]);
		aio_none(ctx);
		get(p[0]);
	}
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
	close(mem);
	close_both(p);
	aio_free(ctx);
}

/* Children that only execute something leave the requests alone, too. */
static void AIO_PROC_03_vfork_and_spawn(void **state)
{
	char *argv[] = {"/proc/self/exe", "--nothing", NULL};
	aio_context_t ctx = aio_new(8);
	struct iocb cb;
	int p[2];

	(void)state;
	aio_pipe(p, 0);
	for (int i = 0; i < 3; i++) {
		pid_t pid = 0;

		pend(ctx, &cb, p[0]);
		switch (i) {
		case 0:
			assert_int_equal(posix_spawn(&pid, argv[0], NULL, NULL, argv, environ), 0);
			assert_int_equal(child_end(pid), 0);
			break;
		case 1:
			pid = vfork();
			if (pid == 0) {
				execv(argv[0], argv);
				_exit(98);
			}
			assert_int_equal(child_end(pid), 0);
			break;
		default:
			/* A shell is not built with a sanitizer, and the drop-in would be. */
			if (!SANITIZED || !under_pollux())
				assert_int_equal(system("true"), 0);
		}
		aio_none(ctx);
		put(p[1]);
		aio_expect(ctx, &cb, POLLIN | POLLRDNORM);
		get(p[0]);
	}
	close_both(p);
	aio_free(ctx);
}

struct napper {
	struct test_thread t;
	aio_context_t ctx;
	long n;
	int err;
};

static void *naps(void *arg)
{
	struct napper *w = arg;
	struct timespec timeout = {.tv_sec = SOON_MS / 1000};
	struct io_event ev[2];

	w->n = aio_getevents(w->ctx, 1, 2, ev, &timeout);
	w->err = errno;
	return NULL;
}

/* Without a free descriptor; the new one lies where the old one was, and has an event. */
static int waits_for_the_old_one(void *unused)
{
	struct rlimit few;
	struct napper w = {.ctx = aio_new(8)};
	int fd = file_in_memory(8), efd = efd_new(0, EFD_NONBLOCK);
	aio_context_t ctx = 0;
	struct io_event ev;
	struct iocb cb;
	char byte;

	(void)unused;
	aio_does(w.ctx, aio_pread(&cb, fd, &byte, 1, 0), 1);
	child_check(getrlimit(RLIMIT_NOFILE, &few) == 0);
	few.rlim_cur = 3;
	child_check(setrlimit(RLIMIT_NOFILE, &few) == 0);
	thread_start(&w.t, naps, &w);
	sleep_ms(QUIET_MS);
	child_check(aio_destroy(w.ctx) == 0 && aio_setup(8, &ctx) == 0);
	sleep_ms(QUIET_MS);
	child_check(aio_submit1(ctx, aio_poll(&cb, efd, POLLOUT)) == 1);
	child_check(thread_join(&w.t, SOON_MS));
	child_check(w.n == -1 && w.err == EINVAL);
	child_check(aio_getevents(ctx, 1, 1, &ev, NULL) == 1);
	return 0;
}

static void AIO_DESTROY_02_who_waits_takes_nothing_of_the_next(void **state)
{
	(void)state;
	if (SANITIZED == 2)
		SKIP("the thread sanitizer takes a thread of the child for one of the parent");
	assert_child(child_status(waits_for_the_old_one, NULL), "");
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(AIO_DESTROY_01_what_is_no_context),
		cmocka_unit_test(AIO_DESTROY_01_a_second_one_while_the_first_waits),
		cmocka_unit_test(AIO_DESTROY_01_of_many_at_once_one_succeeds),
		cmocka_unit_test(AIO_DESTROY_02_no_call_finds_it_any_more),
		cmocka_unit_test(AIO_DESTROY_02_sleepers_return_first),
		cmocka_unit_test(AIO_DESTROY_02_pending_polls_do_not_delay_it),
		cmocka_unit_test(AIO_DESTROY_02_calls_in_progress_finish),
		cmocka_unit_test(AIO_DESTROY_02_the_ring_is_gone),
		cmocka_unit_test(AIO_DESTROY_03_reads_have_ended),
		cmocka_unit_test(AIO_DESTROY_03_writes_have_ended),
		cmocka_unit_test(AIO_DESTROY_04_the_eventfd_of_a_cancelled_request_is_told),
		cmocka_unit_test(AIO_DESTROY_04_events_that_nobody_took_are_lost),
		cmocka_unit_test(AIO_DESTROY_05_signals_do_not_interrupt_it),
		cmocka_unit_test(AIO_PROC_01_pending_polls_do_not_delay_the_end),
		cmocka_unit_test(AIO_PROC_01_eventfds_are_told_at_the_end),
		cmocka_unit_test(AIO_PROC_01_requests_that_cannot_be_cancelled_are_awaited),
		cmocka_unit_test(AIO_PROC_01_execve_takes_the_contexts_away),
		cmocka_unit_test(AIO_PROC_02_requests_outlive_their_thread),
		cmocka_unit_test(AIO_PROC_02_threads_that_end_between_waits),
		cmocka_unit_test(AIO_PROC_03_requests_of_the_parent_go_on),
		cmocka_unit_test(AIO_PROC_03_while_threads_wait),
		cmocka_unit_test(AIO_PROC_03_vfork_and_spawn),
		cmocka_unit_test(AIO_DESTROY_02_who_waits_takes_nothing_of_the_next),
	};

	if (argc == 2 && strcmp(argv[1], "--nothing") == 0)
		return 0;
	if (argc == 4 && strcmp(argv[1], "--after-exec") == 0)
		return after_exec(argv[2], argv[3]);
	return run_group(tests);
}
