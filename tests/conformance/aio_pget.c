/* SPDX-License-Identifier: MIT */
/* io_pgetevents: its sixth argument, the mask for the time of the call, and what signals do. */
#include "aio.h"

#include <sched.h>
#include <setjmp.h>
#include <ucontext.h>

/* --- signals -------------------------------------------------------------------------------- */

static int handled_count;

#define handled __atomic_load_n(&handled_count, __ATOMIC_SEQ_CST)

static void handled_clear(void)
{
	__atomic_store_n(&handled_count, 0, __ATOMIC_SEQ_CST);
}
/* What the handler found: which signals were blocked in it, and which will be after it. */
static sigset_t mask_inside, mask_after;
/* Where the first event of the call belongs, and whether the handler found it there. */
static const struct io_event *first_event;
static bool stored;

static void on_signal(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	__atomic_add_fetch(&handled_count, 1, __ATOMIC_SEQ_CST);
	pthread_sigmask(SIG_SETMASK, NULL, &mask_inside);
	mask_after = ((ucontext_t *)context)->uc_sigmask;
	stored = first_event && first_event->obj;
}

struct signals {
	struct sigaction usr1;
	struct sigaction usr2;
	sigset_t mask;
};

static void set_of(sigset_t *set, int a, int b)
{
	sigemptyset(set);
	if (a != 0)
		sigaddset(set, a);
	if (b != 0)
		sigaddset(set, b);
}

/* Handles SIGUSR1 and SIGUSR2, and blocks both in the calling thread and those that it makes. */
static struct signals signals_begin(int flags)
{
	struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | flags};
	struct signals s;
	sigset_t both;

	assert_ok(sigaction(SIGUSR1, &sa, &s.usr1));
	assert_ok(sigaction(SIGUSR2, &sa, &s.usr2));
	set_of(&both, SIGUSR1, SIGUSR2);
	assert_int_equal(pthread_sigmask(SIG_BLOCK, &both, &s.mask), 0);
	handled_clear();
	return s;
}

static void signals_end(const struct signals *s)
{
	struct timespec zero = {0};
	sigset_t both;

	set_of(&both, SIGUSR1, SIGUSR2);
	while (sigtimedwait(&both, NULL, &zero) > 0)
		;
	assert_int_equal(pthread_sigmask(SIG_SETMASK, &s->mask, NULL), 0);
	assert_ok(sigaction(SIGUSR1, &s->usr1, NULL));
	assert_ok(sigaction(SIGUSR2, &s->usr2, NULL));
}

static bool is_pending(int sig)
{
	sigset_t set;

	sigpending(&set);
	return sigismember(&set, sig) == 1;
}

static void send_to_self(int sig)
{
	assert_int_equal(pthread_kill(pthread_self(), sig), 0);
}

static void swallow(int sig)
{
	struct timespec zero = {0};
	sigset_t set;

	set_of(&set, sig, 0);
	assert_int_equal(sigtimedwait(&set, NULL, &zero), sig);
}

#define NEEDS_EXACT_HANDLERS()                                                                     \
	do {                                                                                       \
		if (SANITIZED == 2)                                                                \
			SKIP("ThreadSanitizer runs handlers later, with all signals blocked");     \
	} while (0)

/* The calling thread blocks SIGUSR1 and SIGUSR2, as it did before the call. */
static void mask_is_back(void)
{
	sigset_t now;

	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
	assert_int_equal(sigismember(&now, SIGUSR1), 1);
	assert_int_equal(sigismember(&now, SIGUSR2), 1);
}

/* --- events of files, and of polls that something else completes --- */

enum source { SOURCE_FILE, SOURCE_POLL };

#define BOTH_SOURCES(fn)                                                                           \
	static void fn##_file(void **state)                                                        \
	{                                                                                          \
		(void)state;                                                                       \
		fn(SOURCE_FILE);                                                                   \
	}                                                                                          \
	static void fn##_poll(void **state)                                                        \
	{                                                                                          \
		(void)state;                                                                       \
		fn(SOURCE_POLL);                                                                   \
	}

#define TEST_BOTH_SOURCES(fn) cmocka_unit_test(fn##_file), cmocka_unit_test(fn##_poll)

struct maker {
	enum source source;
	aio_context_t ctx;
	int file;
	int p[2];
	uint64_t next;
};

static struct maker maker_new(enum source source)
{
	struct maker m = {.source = source, .ctx = aio_new(8), .file = file_in_memory(8)};

	aio_pipe(m.p, 0);
	return m;
}

static void make(struct maker *m, int n)
{
	static char buf[8];
	struct iocb cb;

	for (int i = 0; i < n; i++) {
		if (m->source == SOURCE_FILE)
			aio_pread(&cb, m->file, buf, 8, 0);
		else
			aio_poll(&cb, m->p[0], POLLIN);
		cb.aio_data = m->next++;
		if (m->source == SOURCE_FILE)
			aio_accept1(m->ctx, &cb);
		else
			aio_accept1(m->ctx, &cb);
		if (m->source == SOURCE_POLL) {
			assert_int_equal(write(m->p[1], "x", 1), 1);
			assert_int_equal(read(m->p[0], buf, 1), 1);
		}
	}
}

static void made(const struct io_event *ev, long n, uint64_t from)
{
	for (long i = 0; i < n; i++)
		assert_true(ev[i].data == from + (uint64_t)i);
}

static void maker_free(struct maker *m)
{
	close(m->file);
	close(m->p[0]);
	close(m->p[1]);
	aio_free(m->ctx);
}

/* --- arguments ------------------------------------------------------------------------------ */

static void AIO_PGET_01_without_a_set_it_is_io_getevents(enum source source)
{
	struct maker m = maker_new(source);
	static const size_t sizes[] = {0, 1, 8, 128, SIZE_MAX};
	struct timespec zero = {0}, moment = {.tv_nsec = 20000000}, hour = {.tv_sec = 3600};
	struct io_event ev[8];

	for (int i = 0; i < 6; i++) {
		/* Whatever the size is. */
		struct aio_sigset none = {NULL, i < 5 ? sizes[i] : 0};
		struct aio_sigset *set = i < 5 ? &none : NULL;
		uint64_t from = m.next;
		int64_t start;

		assert_int_equal(assert_ok(aio_pgetevents(m.ctx, 0, 8, ev, NULL, set)), 0);
		assert_int_equal(assert_ok(aio_pgetevents(m.ctx, 1, 8, ev, &zero, set)), 0);
		start = now_ms();
		assert_int_equal(assert_ok(aio_pgetevents(m.ctx, 1, 8, ev, &moment, set)), 0);
		assert_true(now_ms() - start >= 19);
		make(&m, 5);
		assert_int_equal(aio_pgetevents(m.ctx, 1, 2, ev, NULL, set), 2);
		made(ev, 2, from);
		assert_int_equal(aio_pgetevents(m.ctx, 3, 8, ev, &hour, set), 3);
		made(ev, 3, from + 2);
		assert_errno(aio_pgetevents(m.ctx, 2, 1, ev, NULL, set), EINVAL);
		assert_errno(aio_pgetevents(m.ctx, -1, 1, ev, NULL, set), EINVAL);
		make(&m, 1);
		assert_errno(aio_pgetevents(m.ctx, 1, 1, unmapped(), NULL, set), EFAULT);
		assert_int_equal(aio_pgetevents(m.ctx, 1, 1, ev, NULL, set), 1);
	}
	maker_free(&m);
}
BOTH_SOURCES(AIO_PGET_01_without_a_set_it_is_io_getevents)

/* What can be wrong, in the order in which it is found. */
enum fault { BAD_TIMEOUT, BAD_STRUCT, BAD_SIZE, BAD_SET, BAD_CTX, BAD_NUMBERS, BAD_EVENTS, FAULTS };

static const int fault_errno[FAULTS] = {
	[BAD_TIMEOUT] = EFAULT, [BAD_STRUCT] = EFAULT,	[BAD_SIZE] = EINVAL,  [BAD_SET] = EFAULT,
	[BAD_CTX] = EINVAL,	[BAD_NUMBERS] = EINVAL, [BAD_EVENTS] = EFAULT};

#define HAS(faults, f) (((faults) >> (f)) & 1)

static long faulty_call(aio_context_t ctx, unsigned int faults, struct io_event *ev)
{
	struct timespec zero = {0};
	sigset_t none;
	struct aio_sigset set = {&none, 8};

	sigemptyset(&none);
	if (HAS(faults, BAD_SIZE))
		set.size = 16;
	if (HAS(faults, BAD_SET))
		set.mask = unmapped();
	return aio_pgetevents(HAS(faults, BAD_CTX) ? 0 : ctx, HAS(faults, BAD_NUMBERS) ? 9 : 1, 8,
			      HAS(faults, BAD_EVENTS) ? unmapped() : ev,
			      HAS(faults, BAD_TIMEOUT) ? unmapped() : &zero,
			      HAS(faults, BAD_STRUCT) ? unmapped() : &set);
}

static int first_fault(unsigned int faults)
{
	int f = 0;

	while (!HAS(faults, f))
		f++;
	return f;
}

static void AIO_PGET_01_the_first_fault_counts(enum source source)
{
	struct maker m = maker_new(source);
	struct io_event ev[8];

	make(&m, 2);
	for (unsigned int faults = 1; faults < 1u << FAULTS; faults++)
		assert_errno(faulty_call(m.ctx, faults, ev), fault_errno[first_fault(faults)]);
	assert_int_equal(faulty_call(m.ctx, 0, ev), 2);
	made(ev, 2, 0);
	maker_free(&m);
}
BOTH_SOURCES(AIO_PGET_01_the_first_fault_counts)

static void AIO_PGET_01_addresses_and_sizes(void **state)
{
	static const size_t wrong[] = {0,  1,	4,	  7,	      9,
				       16, 128, SIZE_MAX, 1ull << 32, (1ull << 32) + 8};
	aio_context_t ctx = aio_new(4);
	char *end = edge_new(PROT_NONE);
	sigset_t none;
	struct aio_sigset set = {&none, 8};
	struct timespec zero = {0};
	struct io_event ev;

	(void)state;
	sigemptyset(&none);
	for (size_t i = 0; i < BAD_ADDRESSES; i++) {
		struct aio_sigset bad = {(void *)bad_addresses[i], 8};

		assert_errno(aio_pgetevents(ctx, 0, 1, &ev, &zero, (void *)bad_addresses[i]),
			     EFAULT);
		assert_errno(aio_pgetevents(ctx, 0, 1, &ev, &zero, &bad), EFAULT);
		assert_errno(aio_pgetevents(ctx, 1, 1, &ev, NULL, &bad), EFAULT);
		assert_errno(aio_pgetevents(ctx, 0, 1, &ev, (void *)bad_addresses[i], &set),
			     EFAULT);
	}
	for (int i = 0; i < 10; i++) {
		set.size = wrong[i];
		assert_errno(aio_pgetevents(ctx, 0, 1, &ev, &zero, &set), EINVAL);
		assert_errno(aio_pgetevents(ctx, 1, 1, &ev, NULL, &set), EINVAL);
	}
	/* Both structures to their last byte, and no byte more. */
	for (int k = 0; k < 16; k++)
		assert_errno(aio_pgetevents(ctx, 0, 1, &ev, &zero, (void *)(end - k)), EFAULT);
	set = (struct aio_sigset){&none, 8};
	memcpy(end - 16, &set, 16);
	assert_int_equal(assert_ok(aio_pgetevents(ctx, 1, 1, &ev, &zero, (void *)(end - 16))), 0);
	for (int k = 0; k < 8; k++) {
		set.mask = end - k;
		assert_errno(aio_pgetevents(ctx, 0, 1, &ev, &zero, &set), EFAULT);
	}
	memset(end - 8, 0, 8);
	set.mask = end - 8;
	assert_int_equal(assert_ok(aio_pgetevents(ctx, 1, 1, &ev, &zero, &set)), 0);
	edge_free(end);
	aio_free(ctx);
}

/* --- the mask ------------------------------------------------------------------------------- */

static void AIO_PGET_02_the_handler_runs_even_if_events_are_returned(enum source source)
{
	static const int flags[] = {0, SA_RESTART};
	struct maker m = maker_new(source);
	struct timespec zero = {0}, hour = {.tv_sec = 3600};
	struct timespec *timeouts[] = {NULL, &zero, &hour};
	struct io_event ev[8];
	sigset_t none;
	struct aio_sigset set = {&none, 8};

	sigemptyset(&none);
	for (int i = 0; i < 6; i++) {
		struct signals s = signals_begin(flags[i / 3]);
		uint64_t from = m.next;

		make(&m, 2);
		send_to_self(SIGUSR1);
		assert_int_equal(handled, 0);
		assert_int_equal(aio_pgetevents(m.ctx, 1, 8, ev, timeouts[i % 3], &set), 2);
		assert_int_equal(handled, 1);
		made(ev, 2, from);
		mask_is_back();
		assert_false(is_pending(SIGUSR1));
		signals_end(&s);
	}
	maker_free(&m);
}
BOTH_SOURCES(AIO_PGET_02_the_handler_runs_even_if_events_are_returned)

/* It runs under the mask of the call, and after it comes the old one. */
static void AIO_PGET_02_the_handler_runs_before_the_old_mask_comes_back(enum source source)
{
	struct maker m;
	struct signals s;
	struct timespec zero = {0};
	struct io_event ev[8];
	sigset_t temp;
	struct aio_sigset set = {&temp, 8};

	NEEDS_EXACT_HANDLERS();
	m = maker_new(source);
	s = signals_begin(0);
	/* Blocks SIGWINCH, which the thread does not, and lets SIGUSR2 in, which it blocks. */
	set_of(&temp, SIGWINCH, 0);
	for (int there = 0; there < 2; there++) {
		handled_clear();
		make(&m, there);
		send_to_self(SIGUSR1);
		if (there)
			assert_int_equal(aio_pgetevents(m.ctx, 1, 8, ev, &zero, &set), 1);
		else
			assert_errno(aio_pgetevents(m.ctx, 1, 8, ev, &zero, &set), EINTR);
		assert_int_equal(handled, 1);
		assert_int_equal(sigismember(&mask_inside, SIGWINCH), 1);
		assert_int_equal(sigismember(&mask_inside, SIGUSR2), 0);
		assert_int_equal(sigismember(&mask_after, SIGWINCH), 0);
		assert_int_equal(sigismember(&mask_after, SIGUSR1), 1);
		assert_int_equal(sigismember(&mask_after, SIGUSR2), 1);
		mask_is_back();
	}
	signals_end(&s);
	maker_free(&m);
}
BOTH_SOURCES(AIO_PGET_02_the_handler_runs_before_the_old_mask_comes_back)

static void AIO_PGET_02_both_handlers_run(enum source source)
{
	struct maker m;
	struct signals s;
	struct timespec zero = {0};
	struct io_event ev[8];
	sigset_t none;
	struct aio_sigset set = {&none, 8};

	NEEDS_EXACT_HANDLERS();
	m = maker_new(source);
	s = signals_begin(0);
	sigemptyset(&none);
	make(&m, 1);
	send_to_self(SIGUSR1);
	send_to_self(SIGUSR2);
	assert_int_equal(aio_pgetevents(m.ctx, 1, 8, ev, &zero, &set), 1);
	mask_is_back();
	assert_int_equal(handled, 2);
	signals_end(&s);
	maker_free(&m);
}
BOTH_SOURCES(AIO_PGET_02_both_handlers_run)

static void AIO_PGET_02_a_signal_that_the_mask_blocks_stays_pending(enum source source)
{
	struct maker m = maker_new(source);
	struct signals s = signals_begin(0);
	struct timespec zero = {0}, moment = {.tv_nsec = 10000000};
	struct io_event ev[8];
	sigset_t temp;
	struct aio_sigset set = {&temp, 8}, without = {NULL, 0};

	set_of(&temp, SIGUSR1, 0);
	send_to_self(SIGUSR1);
	assert_int_equal(aio_pgetevents(m.ctx, 1, 8, ev, &zero, &set), 0);
	assert_int_equal(aio_pgetevents(m.ctx, 1, 8, ev, &moment, &set), 0);
	assert_int_equal(aio_pgetevents(m.ctx, 0, 8, ev, NULL, &set), 0);
	/* Without a set the thread's own mask holds. */
	assert_int_equal(aio_pgetevents(m.ctx, 1, 8, ev, &zero, &without), 0);
	assert_int_equal(aio_pgetevents(m.ctx, 1, 8, ev, &moment, NULL), 0);
	make(&m, 1);
	assert_int_equal(aio_pgetevents(m.ctx, 1, 8, ev, NULL, &set), 1);
	/* All bits: those that cannot be blocked are left out. */
	sigfillset(&temp);
	make(&m, 1);
	assert_int_equal(aio_pgetevents(m.ctx, 1, 8, ev, NULL, &set), 1);
	assert_int_equal(handled, 0);
	assert_true(is_pending(SIGUSR1));
	mask_is_back();
	swallow(SIGUSR1);
	signals_end(&s);
	maker_free(&m);
}
BOTH_SOURCES(AIO_PGET_02_a_signal_that_the_mask_blocks_stays_pending)

/* A waiter whose mask differs from its thread's: pset is set before the thread starts. */
static struct getter *pgetter_new(aio_context_t ctx, long min, int ms, const sigset_t *mask)
{
	struct getter *g = calloc(1, sizeof(*g));

	assert_non_null(g);
	g->ctx = ctx;
	g->min = min;
	g->nr = 8;
	g->ms = ms;
	g->pset = true;
	g->set = (struct aio_sigset){mask, 8};
	thread_start(&g->t, getter_main, g);
	assert_true(thread_asleep(&g->t));
	return g;
}

/* Blocked by the mask of the call and not by the thread: it is handled when the call is over. */
static void AIO_PGET_02_the_mask_keeps_signals_off_during_the_wait(enum source source)
{
	struct maker m = maker_new(source);
	struct signals s = signals_begin(0);
	sigset_t temp;
	struct getter *g;

	set_of(&temp, SIGUSR1, SIGUSR2);
	assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &temp, NULL), 0);
	g = pgetter_new(m.ctx, 1, -1, &temp);
	assert_int_equal(pthread_kill(g->t.id, SIGUSR1), 0);
	assert_true(getter_sleeps(g));
	assert_int_equal(handled, 0);
	make(&m, 1);
	getter_gets(g, 1);
	assert_int_equal(handled, 1);
	made(g->ev, 1, 0);
	free(g);
	signals_end(&s);
	maker_free(&m);
}
BOTH_SOURCES(AIO_PGET_02_the_mask_keeps_signals_off_during_the_wait)

/* The wait goes on, as does what the mask keeps off, until there is enough. */
static void AIO_PGET_02_what_is_kept_off_does_not_end_the_wait(enum source source)
{
	NEEDS_EXACT_HANDLERS();
	for (int i = 0; i < 6; i++) {
		struct maker m = maker_new(source);
		struct signals s = signals_begin(0);
		sigset_t temp;
		struct getter *g;

		set_of(&temp, SIGUSR1, SIGUSR2);
		assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &temp, NULL), 0);
		set_of(&temp, SIGUSR1, 0);
		g = pgetter_new(m.ctx, 3, i % 2 ? 3600 * 1000 : -1, &temp);
		first_event = &g->ev[0];
		for (int k = 0; k < 3; k++) {
			if (k == i / 2)
				assert_int_equal(pthread_kill(g->t.id, SIGUSR1), 0);
			make(&m, 1);
			if (k < 2)
				assert_true(getter_sleeps(g));
			if (k < 2)
				assert_int_equal(handled, 0);
		}
		getter_gets(g, 3);
		made(g->ev, 3, 0);
		assert_int_equal(handled, 1);
		assert_true(stored);
		assert_int_equal(sigismember(&mask_inside, SIGUSR2), 0);
		assert_int_equal(sigismember(&mask_after, SIGUSR1), 0);
		first_event = NULL;
		free(g);
		signals_end(&s);
		maker_free(&m);
	}
}
BOTH_SOURCES(AIO_PGET_02_what_is_kept_off_does_not_end_the_wait)

/* And the mask is what it was. */
static void *masked_main(void *arg)
{
	struct getter *g = arg;
	sigset_t now;

	getter_main(g);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
	return sigismember(&now, SIGUSR1) || !sigismember(&now, SIGUSR2) ? "another mask" : NULL;
}

static void AIO_PGET_02_the_old_mask_comes_back_after_a_wait(enum source source)
{
	for (int i = 0; i < 4; i++) {
		struct maker m = maker_new(source);
		struct signals s = signals_begin(i % 2 ? SA_RESTART : 0);
		struct getter g = {.ctx = m.ctx, .min = 2, .nr = 8, .ms = -1, .pset = true};
		sigset_t temp, usr1;

		set_of(&temp, i / 2 ? SIGUSR1 : 0, 0);
		set_of(&usr1, SIGUSR1, 0);
		g.set = (struct aio_sigset){&temp, 8};
		assert_int_equal(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL), 0);
		thread_start(&g.t, masked_main, &g);
		assert_true(thread_asleep(&g.t));
		make(&m, 1);
		assert_true(getter_sleeps(&g));
		/* Blocked by the thread, and let in. */
		assert_int_equal(pthread_kill(g.t.id, SIGUSR2), 0);
		getter_gets(&g, 1);
		assert_null(g.t.ret);
		assert_int_equal(handled, 1);
		signals_end(&s);
		maker_free(&m);
	}
}
BOTH_SOURCES(AIO_PGET_02_the_old_mask_comes_back_after_a_wait)

/* --- what a handler does to the context of its call ------------------------------------------- */

static aio_context_t destroyed;
static long destroy_result;
static sigjmp_buf jump_to;

static void destroy_in_handler(int sig)
{
	(void)sig;
	destroy_result = aio_destroy(destroyed);
}

static void jump(int sig)
{
	(void)sig;
	siglongjmp(jump_to, 1);
}

/* The signal is pending before the call, and there may be enough already. */
static void AIO_PGET_02_AIO_DESTROY_02_the_handler_destroys_the_context(enum source source)
{
	struct sigaction sa = {.sa_handler = destroy_in_handler};
	struct timespec zero = {0}, moment = {.tv_nsec = 10000000};
	sigset_t none;
	struct aio_sigset set = {&none, 8};

	NEEDS_EXACT_HANDLERS();
	sigemptyset(&none);
	for (int i = 0; i < 6; i++) {
		struct maker m = maker_new(source);
		struct signals s = signals_begin(0);
		struct io_event ev[8];
		int min = i / 2;

		assert_ok(sigaction(SIGUSR1, &sa, NULL));
		destroyed = m.ctx;
		destroy_result = -2;
		make(&m, i % 2);
		send_to_self(SIGUSR1);
		if (i % 2 && min < 2)
			assert_int_equal(aio_pgetevents(m.ctx, min, 8, ev, &moment, &set), 1);
		else if (i % 2)
			assert_int_equal(aio_pgetevents(m.ctx, min, 8, ev, &zero, &set), 1);
		else
			assert_errno(aio_pgetevents(m.ctx, min, 8, ev, &zero, &set), EINTR);
		assert_int_equal(destroy_result, 0);
		assert_errno(aio_destroy(m.ctx), EINVAL);
		m.ctx = aio_new(1);
		signals_end(&s);
		maker_free(&m);
	}
}
BOTH_SOURCES(AIO_PGET_02_AIO_DESTROY_02_the_handler_destroys_the_context)

static void AIO_PGET_02_AIO_DESTROY_02_the_handler_jumps(enum source source)
{
	struct sigaction sa = {.sa_handler = jump};
	struct maker m = maker_new(source);
	struct signals s = signals_begin(0);
	struct timespec zero = {0};
	struct io_event ev[8];
	sigset_t none;
	struct aio_sigset set = {&none, 8};

	if (SANITIZED)
		SKIP("a sanitizer's own record of the stack does not know of the jump");
	assert_ok(sigaction(SIGUSR1, &sa, NULL));
	sigemptyset(&none);
	for (volatile int i = 0; i < 4; i++) {
		send_to_self(SIGUSR1);
		make(&m, i % 2);
		if (sigsetjmp(jump_to, 1) == 0) {
			(void)aio_pgetevents(m.ctx, i / 2, 8, ev, &zero, &set);
			fail_msg("no jump");
		}
		mask_is_back();
		/* What there was has been taken. */
		assert_int_equal(aio_getevents(m.ctx, 0, 8, ev, &zero), 0);
	}
	signals_end(&s);
	/* Nobody is inside any more. */
	maker_free(&m);
}
BOTH_SOURCES(AIO_PGET_02_AIO_DESTROY_02_the_handler_jumps)

static void AIO_PGET_02_AIO_PGET_03_a_signal_that_the_mask_lets_in_ends_the_wait(enum source source)
{
	static const int flags[] = {0, SA_RESTART};
	struct maker m = maker_new(source);
	sigset_t none;

	sigemptyset(&none);
	for (int i = 0; i < 8; i++) {
		struct signals s = signals_begin(flags[i % 2]);
		bool some = i / 4 == 1;
		uint64_t from = m.next;
		struct getter *g;

		make(&m, some ? 2 : 0);
		g = pgetter_new(m.ctx, 3, i / 2 % 2 ? 3600 * 1000 : -1, &none);
		assert_int_equal(pthread_kill(g->t.id, SIGUSR1), 0);
		if (some) {
			getter_gets(g, 2);
			made(g->ev, 2, from);
		} else {
			getter_fails(g, EINTR);
		}
		assert_int_equal(handled, 1);
		free(g);
		signals_end(&s);
	}
	maker_free(&m);
}
BOTH_SOURCES(AIO_PGET_02_AIO_PGET_03_a_signal_that_the_mask_lets_in_ends_the_wait)

/* Mask and wait are one step: whenever the signal comes, the wait does not outlive it. */
struct killer {
	struct test_thread t;
	pthread_t to;
	int go;
};

static void *killer_main(void *arg)
{
	struct killer *k = arg;
	int seen = 0, go;

	for (;;) {
		while ((go = __atomic_load_n(&k->go, __ATOMIC_ACQUIRE)) == seen)
			sched_yield();
		if (go < 0)
			return NULL;
		seen = go;
		for (volatile int i = 0; i < go * 53 % 4000; i++)
			;
		pthread_kill(k->to, SIGUSR1);
	}
}

static void AIO_PGET_02_no_window_between_mask_and_wait(void **state)
{
	struct maker m = maker_new(SOURCE_FILE);
	struct signals s = signals_begin(0);
	struct killer *k = calloc(1, sizeof(*k));
	struct io_event ev[8];
	sigset_t none;
	struct aio_sigset set = {&none, 8};

	(void)state;
	assert_non_null(k);
	sigemptyset(&none);
	k->to = pthread_self();
	thread_start(&k->t, killer_main, k);
	for (int round = 1; round <= 1000; round++) {
		struct timespec hour = {.tv_sec = 3600};

		handled_clear();
		__atomic_store_n(&k->go, round, __ATOMIC_RELEASE);
		assert_errno(aio_pgetevents(m.ctx, 1, 8, ev, &hour, &set), EINTR);
		assert_int_equal(handled, 1);
	}
	__atomic_store_n(&k->go, -1, __ATOMIC_RELEASE);
	assert_true(thread_join(&k->t, SOON_MS));
	free(k);
	signals_end(&s);
	maker_free(&m);
}

/* --- errors and signals --------------------------------------------------------------------- */

static void AIO_PGET_03_EINTR_without_events(void **state)
{
	static const int flags[] = {0, SA_RESTART};
	aio_context_t ctx = aio_new(4);
	struct timespec zero = {0}, hour = {.tv_sec = 3600}, forever = {.tv_sec = -1};
	struct timespec *timeouts[] = {&zero, NULL, &hour, &forever};
	struct io_event ev[4];
	sigset_t none;
	struct aio_sigset set = {&none, 8};

	(void)state;
	sigemptyset(&none);
	for (int i = 0; i < 8; i++) {
		struct signals s = signals_begin(flags[i / 4]);

		send_to_self(SIGUSR1);
		assert_errno(aio_pgetevents(ctx, 1, 4, ev, timeouts[i % 4], &set), EINTR);
		assert_int_equal(handled, 1);
		mask_is_back();
		/* Also where no event was asked for. */
		send_to_self(SIGUSR1);
		assert_errno(aio_pgetevents(ctx, 0, 4, ev, timeouts[i % 4], &set), EINTR);
		send_to_self(SIGUSR1);
		assert_errno(aio_pgetevents(ctx, 0, 0, NULL, timeouts[i % 4], &set), EINTR);
		assert_int_equal(handled, 3);
		/* And once only. */
		assert_int_equal(assert_ok(aio_pgetevents(ctx, 1, 4, ev, &zero, &set)), 0);
		signals_end(&s);
	}
	aio_free(ctx);
}

static void AIO_PGET_03_other_errors_stay_and_the_handler_runs(enum source source)
{
	struct maker m = maker_new(source);
	struct signals s = signals_begin(0);
	struct io_event ev[8];

	make(&m, 2);
	for (unsigned int faults = 1; faults < 1u << FAULTS; faults++) {
		int first = first_fault(faults);

		handled_clear();
		send_to_self(SIGUSR1);
		assert_errno(faulty_call(m.ctx, faults, ev), fault_errno[first]);
		mask_is_back();
		/* Before the mask is installed nothing lets the signal in. */
		assert_int_equal(handled, first > BAD_SET);
		assert_int_equal(is_pending(SIGUSR1), first <= BAD_SET);
		if (first <= BAD_SET)
			swallow(SIGUSR1);
	}
	assert_int_equal(aio_pgetevents(m.ctx, 1, 8, ev, NULL, NULL), 2);
	made(ev, 2, 0);
	signals_end(&s);
	maker_free(&m);
}
BOTH_SOURCES(AIO_PGET_03_other_errors_stay_and_the_handler_runs)

static void AIO_PGET_03_AIO_GET_11_destroy_during_the_wait(void **state)
{
	struct signals s = signals_begin(0);
	aio_context_t ctx = aio_new(4);
	sigset_t none;
	struct getter *g;

	(void)state;
	sigemptyset(&none);
	g = pgetter_new(ctx, 1, -1, &none);
	aio_free(ctx);
	getter_fails(g, EINVAL);
	assert_int_equal(handled, 0);
	free(g);
	signals_end(&s);
}

/*
 * EINTR is for handlers: a stop and its end leave the wait as it was, other than with io_getevents
 * (AIO-GET-07).
 */
struct stopped {
	int ready;
	int go;
	bool masked;
};

static void waits_through_a_stop(void *arg)
{
	struct stopped *st = arg;
	aio_context_t ctx = 0;
	struct iocb cb, *list[1] = {&cb};
	struct io_event ev;
	sigset_t none;
	struct aio_sigset set = {&none, 8};

	sigemptyset(&none);
	child_check(aio_setup_in_turn(4, &ctx) == 0);
	aio_poll(&cb, st->go, POLLIN);
	child_check(aio_submit(ctx, 1, list) == 1);
	child_check(write(st->ready, "x", 1) == 1);
	child_check(aio_pgetevents(ctx, 1, 1, &ev, NULL, st->masked ? &set : NULL) == 1);
	child_check(ev.res == (POLLIN | POLLRDNORM));
}

static void AIO_PGET_03_stop_and_continue_do_not_end_the_wait(void **state)
{
	(void)state;
	for (int masked = 0; masked < 2; masked++) {
		int ready[2], go[2], st;
		struct stopped arg;
		pid_t pid;
		char c;

		aio_pipe(ready, 0);
		aio_pipe(go, 0);
		arg = (struct stopped){ready[1], go[0], masked};
		pid = fork_bounded();
		if (pid == 0) {
			waits_through_a_stop(&arg);
			_exit(0);
		}
		assert_true(pid > 0);
		assert_int_equal(read(ready[0], &c, 1), 1);
		for (int i = 0; i < 3; i++) {
			assert_true(child_asleep(pid));
			assert_ok(kill(pid, SIGSTOP));
			assert_int_equal(waitpid(pid, &st, WUNTRACED), pid);
			assert_true(WIFSTOPPED(st));
			assert_ok(kill(pid, SIGCONT));
		}
		assert_true(child_asleep(pid));
		assert_int_equal(write(go[1], "x", 1), 1);
		assert_int_equal(child_end(pid), 0);
		close(ready[0]);
		close(ready[1]);
		close(go[0]);
		close(go[1]);
	}
}

/* The events go where the mask is, and would let the signal in. */
static void AIO_PGET_02_the_mask_is_read_once(void **state)
{
	union {
		uint64_t mask;
		struct io_event ev[4];
	} memory = {.mask = ~0ull};
	const struct aio_sigset set = {.mask = &memory.mask, .size = sizeof(memory.mask)};
	struct timespec timeout = {.tv_nsec = 100000000};
	aio_context_t ctx = aio_new(8);
	struct signals s = signals_begin(0);
	struct iocb cb;
	char byte;
	int fd = file_in_memory(8);

	(void)state;
	aio_pread(&cb, fd, &byte, 1, 0)->aio_data = 0;
	aio_accept1(ctx, &cb);
	raise(SIGUSR1);
	assert_int_equal(assert_ok(aio_pgetevents(ctx, 2, 4, memory.ev, &timeout, &set)), 1);
	assert_int_equal(handled, 0);
	signals_end(&s);
	close(fd);
	aio_free(ctx);
}

/* The same of one that is none. */
static void AIO_PGET_02_that_there_is_no_mask_is_read_once(void **state)
{
	union {
		struct aio_sigset set;
		struct io_event ev[4];
	} memory = {.set = {.size = 8}};
	struct timespec timeout = {.tv_nsec = 50000000};
	aio_context_t ctx = aio_new(8);
	struct iocb cb;
	char byte;
	int fd = file_in_memory(8);

	(void)state;
	aio_accept1(ctx, aio_pread(&cb, fd, &byte, 1, 0));
	assert_int_equal(assert_ok(aio_pgetevents(ctx, 2, 4, memory.ev, &timeout, &memory.set)), 1);
	close(fd);
	aio_free(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_BOTH_SOURCES(AIO_PGET_01_without_a_set_it_is_io_getevents),
		TEST_BOTH_SOURCES(AIO_PGET_01_the_first_fault_counts),
		cmocka_unit_test(AIO_PGET_01_addresses_and_sizes),
		TEST_BOTH_SOURCES(AIO_PGET_02_the_handler_runs_even_if_events_are_returned),
		TEST_BOTH_SOURCES(AIO_PGET_02_the_handler_runs_before_the_old_mask_comes_back),
		TEST_BOTH_SOURCES(AIO_PGET_02_both_handlers_run),
		TEST_BOTH_SOURCES(AIO_PGET_02_a_signal_that_the_mask_blocks_stays_pending),
		TEST_BOTH_SOURCES(AIO_PGET_02_the_mask_keeps_signals_off_during_the_wait),
		TEST_BOTH_SOURCES(AIO_PGET_02_what_is_kept_off_does_not_end_the_wait),
		TEST_BOTH_SOURCES(AIO_PGET_02_the_old_mask_comes_back_after_a_wait),
		TEST_BOTH_SOURCES(AIO_PGET_02_AIO_DESTROY_02_the_handler_destroys_the_context),
		TEST_BOTH_SOURCES(AIO_PGET_02_AIO_DESTROY_02_the_handler_jumps),
		TEST_BOTH_SOURCES(
			AIO_PGET_02_AIO_PGET_03_a_signal_that_the_mask_lets_in_ends_the_wait),
		cmocka_unit_test(AIO_PGET_02_no_window_between_mask_and_wait),
		cmocka_unit_test(AIO_PGET_03_EINTR_without_events),
		TEST_BOTH_SOURCES(AIO_PGET_03_other_errors_stay_and_the_handler_runs),
		cmocka_unit_test(AIO_PGET_03_AIO_GET_11_destroy_during_the_wait),
		cmocka_unit_test(AIO_PGET_03_stop_and_continue_do_not_end_the_wait),
		cmocka_unit_test(AIO_PGET_02_the_mask_is_read_once),
		cmocka_unit_test(AIO_PGET_02_that_there_is_no_mask_is_read_once),
	};

	return run_group(tests);
}
