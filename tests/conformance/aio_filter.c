/* SPDX-License-Identifier: MIT */
/*
 * A program has contexts with events that nobody has taken, and then refuses itself all system
 * calls but those of AIO, and what ends it. The contexts are what they were: it takes the events
 * that lie there, submits, waits, makes and destroys contexts. No rule says so.
 */
#include "aio.h"
#include "confine.h"

/* More than any limit by which a few would be found and the others not. */
#define CONTEXTS 100
#define UNREAD 5

static const int allowed[] = {
	SYS_io_setup,	   SYS_io_destroy, SYS_io_submit,  SYS_io_getevents,
	SYS_io_pgetevents, SYS_io_cancel,  SYS_exit_group,
};
#define ALLOWED (sizeof(allowed) / sizeof(allowed[0]))

struct how {
	/* What the filter answers to all else. */
	uint32_t otherwise;
	bool by_seccomp;
	/* Another thread sleeps in io_getevents, and is confined as well. */
	bool sleeper;
};

/* One context of the program, and what it has asked it for. */
struct unread {
	aio_context_t ctx;
	struct iocb cb[UNREAD], poll;
	int n;
	bool polled;
};

static char buffer[8];

/* Some have turned round in their ring, some have a poll at the kernel, some have nothing. */
static bool begin(struct unread *u, int number, int fd, int later)
{
	struct io_event ev;

	u->n = number % (UNREAD + 1);
	u->polled = number % 4 == 1;
	if (aio_setup_in_turn(4, &u->ctx) == -1)
		return false;
	for (int i = 0; i < number % 7 * 20; i++)
		if (aio_submit1(u->ctx, aio_pread(&u->poll, fd, buffer, 8, 0)) != 1 ||
		    aio_getevents(u->ctx, 1, 1, &ev, NULL) != 1)
			return false;
	for (int i = 0; i < u->n; i++)
		if (aio_submit1(u->ctx, aio_pread(&u->cb[i], fd, buffer, (size_t)i + 1, 0)) != 1)
			return false;
	return !u->polled || aio_submit1(u->ctx, aio_poll(&u->poll, later, POLLIN)) == 1;
}

/* Makes no call but those of AIO. */
static bool goes_on(struct unread *u, int fd, int ready)
{
	struct io_event ev[UNREAD + 1];
	struct timespec none = {0};
	struct iocb cb;

	if (aio_getevents(u->ctx, u->n, UNREAD + 1, ev, NULL) != u->n)
		return false;
	for (int i = 0; i < u->n; i++)
		if (ev[i].obj != (uintptr_t)&u->cb[i] || ev[i].res != i + 1)
			return false;
	if (aio_getevents(u->ctx, 0, 1, ev, &none) != 0)
		return false;
	if (aio_submit1(u->ctx, aio_pread(&cb, fd, buffer, 8, 0)) != 1 ||
	    aio_getevents(u->ctx, 1, 1, ev, NULL) != 1 || ev->res != 8)
		return false;
	if (aio_submit1(u->ctx, aio_poll(&cb, ready, POLLIN)) != 1 ||
	    aio_getevents(u->ctx, 1, 1, ev, NULL) != 1 || !(ev->res & POLLIN))
		return false;
	return aio_destroy(u->ctx) == 0;
}

static aio_context_t slept_on;
static long slept;

static void *sleeper_main(void *arg)
{
	struct io_event ev;

	(void)arg;
	__atomic_store_n(&slept, aio_getevents(slept_on, 1, 1, &ev, NULL), __ATOMIC_RELEASE);
	/* What ends a thread is refused. */
	while (aio_getevents(slept_on, 1, 1, &ev, NULL) < 2)
		;
	return NULL;
}

static int uses_them_later(void *arg)
{
	static struct unread u[CONTEXTS];
	const struct how *how = arg;
	int fd = (int)syscall(SYS_memfd_create, "aio", 1u), later[2], ready[2];
	struct test_thread t = {0};
	struct io_event ev;
	struct iocb cb, more;
	aio_context_t ctx = 0;

	if (write(fd, "12345678", 8) != 8 || pipe(later) || pipe(ready) ||
	    write(ready[1], "x", 1) != 1)
		return 1;
	for (int i = 0; i < CONTEXTS; i++)
		if (!begin(&u[i], i, fd, later[0]))
			return 2;
	if (how->sleeper) {
		if (aio_setup_in_turn(4, &slept_on) == -1)
			return 3;
		thread_start(&t, sleeper_main, NULL);
		if (!thread_asleep(&t))
			return 3;
	}
	if (!confine(allowed, ALLOWED, how->otherwise,
		     how->by_seccomp ? CONFINE_ALL : CONFINE_BY_PRCTL))
		return 4;
	if (how->otherwise != SECCOMP_RET_KILL_PROCESS && syscall(SYS_getppid) != -1)
		return 5;
	for (int i = 0; i < CONTEXTS; i++)
		if (!goes_on(&u[i], fd, ready[0]))
			return 10 + i;
	if (aio_setup(4, &ctx) || aio_submit1(ctx, aio_pread(&cb, fd, buffer, 8, 0)) != 1 ||
	    aio_getevents(ctx, 1, 1, &ev, NULL) != 1 || ev.res != 8 || aio_destroy(ctx))
		return 6;
	if (how->sleeper) {
		if (aio_submit1(slept_on, aio_pread(&more, fd, buffer, 8, 0)) != 1)
			return 7;
		while (__atomic_load_n(&slept, __ATOMIC_ACQUIRE) == 0)
			;
		if (slept != 1)
			return 8;
	}
	return 0;
}

static void check(struct how how)
{
	if (SANITIZED)
		SKIP("the run-time makes calls of its own");
	assert_int_equal(child_status(uses_them_later, &how), 0);
}

static void FILTER_that_kills(void **state)
{
	(void)state;
	check((struct how){.otherwise = SECCOMP_RET_KILL_PROCESS});
}

static void FILTER_that_refuses(void **state)
{
	(void)state;
	check((struct how){.otherwise = SECCOMP_RET_ERRNO | ENOSYS});
}

static void FILTER_by_seccomp(void **state)
{
	(void)state;
	check((struct how){.otherwise = SECCOMP_RET_KILL_PROCESS, .by_seccomp = true});
}

static void FILTER_beside_a_sleeper(void **state)
{
	(void)state;
	check((struct how){
		.otherwise = SECCOMP_RET_KILL_PROCESS, .by_seccomp = true, .sleeper = true});
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(FILTER_that_kills),
		cmocka_unit_test(FILTER_that_refuses),
		cmocka_unit_test(FILTER_by_seccomp),
		cmocka_unit_test(FILTER_beside_a_sleeper),
	};

	return run_group(tests);
}
