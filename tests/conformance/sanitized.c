/* SPDX-License-Identifier: MIT */
/*
 * Programs that are built with a sanitizer: its run-time finds nothing under the drop-in that it
 * does not find on the kernel. The programs of this folder that are listed for it in meson.build
 * are built so as well, and run with a drop-in that is not.
 */
#include "waiting.h"

#include <sched.h>
#include <spawn.h>

#ifndef PLAIN_DROP_IN
#define PLAIN_DROP_IN 0
#endif

#define DEPTH 24

static char self[4096];

/* ---- the run-time starts ---- */

static void ESCAPE_a_sanitized_program_starts_without_options(void **state)
{
	char *argv[] = {self, "--nothing", NULL};
	char *env[64], *const *from = environ;
	int n = 0;
	pid_t pid;

	(void)state;
	for (; *from && n < 63; from++)
		if (!strstr(*from, "SAN_OPTIONS="))
			env[n++] = *from;
	env[n] = NULL;
	assert_null(*from);
	assert_int_equal(posix_spawn(&pid, self, NULL, NULL, argv, env), 0);
	child_passes(pid);
}

/* ---- threads that are cancelled, with much of their stack marked ---- */

struct victim {
	struct test_thread t;
	int fd;
	int ep;
	int how;
	int room;
};

#define ROOMS 48

enum { IN_PAUSE, IN_SLEEP, IN_POLL, IN_EPOLL, IN_READ, VICTIMS };

static void victim_sleep(struct victim *v)
{
	struct pollfd p = {.fd = v->fd, .events = POLLIN};
	struct epoll_event ev;
	uint64_t n;

	switch (v->how) {
	case IN_PAUSE:
		pause();
		break;
	case IN_SLEEP:
		sleep(1000);
		break;
	case IN_POLL:
		poll(&p, 1, -1);
		break;
	case IN_EPOLL:
		epoll_wait(v->ep, &ev, 1, -1);
		break;
	default:
		if (read(v->fd, &n, sizeof(n)) < 0)
			return;
	}
}

/* The room around small variables is marked, so there is little that is not. */
static __attribute__((noinline)) int victim_deep(struct victim *v, int depth)
{
	volatile char a[8], b[8], c[8], d[8];

	a[depth % 8] = b[depth % 8] = c[depth % 8] = d[depth % 8] = 1;
	if (depth)
		return victim_deep(v, depth - 1) + a[0] + b[0] + c[0] + d[0];
	victim_sleep(v);
	return a[0];
}

static void *victim_main(void *arg)
{
	struct victim *v = arg;

	/* It has used what is served. */
	efd_add(v->fd, 1);
	efd_take(v->fd);
	victim_deep(v, DEPTH);
	return NULL;
}

static void ESCAPE_cancelled_threads_end_whatever_they_sleep_in(void **state)
{
	(void)state;
	for (int how = 0; how < VICTIMS; how++) {
		struct victim *v = calloc(1, sizeof(*v));

		v->how = how;
		v->fd = efd_new(0, how == IN_READ ? 0 : EFD_NONBLOCK);
		v->ep = ep_new();
		assert_ok(ep_ctl(v->ep, EPOLL_CTL_ADD, v->fd, EPOLLIN, 5));
		thread_start(&v->t, victim_main, v);
		assert_true(thread_asleep(&v->t));
		assert_int_equal(pthread_cancel(v->t.id), 0);
		assert_true(thread_join(&v->t, SOON_MS));
		assert_false(thread_done(&v->t));
		efd_add(v->fd, 3);
		assert_true(ep_one(v->ep, EPOLLIN, 5));
		assert_int_equal(efd_take(v->fd), 3);
		close(v->fd);
		close(v->ep);
		free(v);
	}
}

/* What the call marks lies so much further down. */
static __attribute__((noinline, no_sanitize("address"))) void victim_below(struct victim *v)
{
	volatile char *room = __builtin_alloca((size_t)v->room + 1);

	room[v->room] = 0;
	victim_sleep(v);
	room[v->room] = 1;
}

/* Has its own room unmarked when it is left, by functions whose frames lie where the call's were.
 */
static void *victim_asked(void *arg)
{
	struct epoll_event seen[4] = {{.events = 0}};
	struct victim *v = arg;

	efd_add(v->fd, 1);
	efd_take(v->fd);
	pthread_cancel(pthread_self());
	victim_below(v);
	memcpy(&v->t.tid, seen, sizeof(v->t.tid));
	return NULL;
}

static void ESCAPE_threads_cancelled_before_their_call_end_in_it(void **state)
{
	(void)state;
	for (int i = 0; i < VICTIMS * ROOMS; i++) {
		struct victim v = {.how = i % VICTIMS, .room = i / VICTIMS * 16};

		v.fd = efd_new(0, v.how == IN_READ ? 0 : EFD_NONBLOCK);
		v.ep = ep_new();
		assert_ok(ep_ctl(v.ep, EPOLL_CTL_ADD, v.fd, EPOLLIN, 5));
		thread_start(&v.t, victim_asked, &v);
		assert_true(thread_join(&v.t, SOON_MS));
		assert_false(thread_done(&v.t));
		close(v.fd);
		close(v.ep);
	}
}

static void *ends_main(void *arg)
{
	struct victim *v = arg;

	efd_add(v->fd, 1);
	if (v->how)
		pthread_exit(v);
	return v;
}

static void ESCAPE_threads_give_back_what_they_return(void **state)
{
	struct victim v = {.fd = efd_new(0, 0)};
	pthread_attr_t attr;
	pthread_t id;
	void *r;

	(void)state;
	for (v.how = 0; v.how < 2; v.how++) {
		assert_int_equal(pthread_create(&id, NULL, ends_main, &v), 0);
		assert_int_equal(pthread_join(id, &r), 0);
		assert_ptr_equal(r, &v);
	}
	assert_int_equal(efd_take(v.fd), 2);
	/* What it refuses, it refuses. */
	assert_int_equal(pthread_attr_init(&attr), 0);
	assert_int_equal(pthread_attr_setstacksize(&attr, (size_t)1 << 46), 0);
	assert_int_not_equal(pthread_create(&id, &attr, ends_main, &v), 0);
	pthread_attr_destroy(&attr);
	close(v.fd);
}

/* ---- what is ordered by a call ---- */

enum { BY_READ, BY_WAIT_AND_READ, BY_READV, BY_CTL, WAYS };

struct passing {
	struct test_thread t;
	int how;
	int fd;
	int ep;
	/* Plain, and written by one thread before the call that the other's call follows. */
	int value;
	int got;
};

static void *passing_main(void *arg)
{
	struct passing *p = arg;
	uint64_t n = 1;
	struct iovec v = {.iov_base = &n, .iov_len = sizeof(n)};
	struct epoll_event ev;

	if (p->how == BY_WAIT_AND_READ || p->how == BY_CTL)
		assert_int_equal(epoll_wait(p->ep, &ev, 1, -1), 1);
	if (p->how == BY_READV)
		assert_int_equal(readv(p->fd, &v, 1), sizeof(n));
	else if (p->how != BY_CTL)
		assert_int_equal(read(p->fd, &n, sizeof(n)), sizeof(n));
	p->got = p->value;
	p->value = 0;
	return NULL;
}

static void ESCAPE_what_is_written_before_is_seen_after(void **state)
{
	(void)state;
	for (int how = 0; how < WAYS; how++) {
		struct passing *p = calloc(1, sizeof(*p));
		uint64_t n = 1;

		p->how = how;
		p->ep = ep_new();
		p->fd = efd_new(how == BY_CTL, 0);
		if (how != BY_CTL)
			assert_ok(ep_ctl(p->ep, EPOLL_CTL_ADD, p->fd, EPOLLIN, 5));
		thread_start(&p->t, passing_main, p);
		assert_true(thread_asleep(&p->t));
		p->value = 7;
		if (how == BY_CTL)
			assert_ok(ep_ctl(p->ep, EPOLL_CTL_ADD, p->fd, EPOLLIN, 5));
		else
			assert_int_equal(write(p->fd, &n, sizeof(n)), sizeof(n));
		assert_true(thread_join(&p->t, SOON_MS));
		assert_int_equal(p->got, 7);
		close(p->ep);
		close(p->fd);
		free(p);
	}
}

/* ---- numbers that are used again ---- */

struct number {
	int ep;
	/* Neither orders anything. */
	int closed, taken;
};

static void *number_wait(void *arg)
{
	struct number *n = arg;
	struct epoll_event ev;

	assert_int_equal(epoll_wait(n->ep, &ev, 1, -1), 1);
	return NULL;
}

static void *number_main(void *arg)
{
	struct number *n = arg;
	struct test_thread t;
	int fds[2];

	/* The kernel's, so that the kernel's wait is made on the very number. */
	assert_ok(pipe(fds));
	n->ep = ep_new();
	assert_ok(ep_ctl(n->ep, EPOLL_CTL_ADD, fds[0], EPOLLIN, 5));
	thread_start(&t, number_wait, n);
	assert_true(thread_asleep(&t));
	assert_int_equal(write(fds[1], "", 1), 1);
	assert_true(thread_join(&t, SOON_MS));
	close(n->ep);
	__atomic_store_n(&n->closed, n->ep, __ATOMIC_RELAXED);
	while (!__atomic_load_n(&n->taken, __ATOMIC_RELAXED))
		sched_yield();
	close(fds[0]);
	close(fds[1]);
	return NULL;
}

static void ESCAPE_a_number_means_something_new_after_its_close(void **state)
{
	struct number n = {.ep = -1};
	pthread_t id;
	int fd, number;

	(void)state;
	if (SANITIZED == 2 && !PLAIN_DROP_IN)
		SKIP("a drop-in built for ThreadSanitizer closes numbers unseen");
	assert_int_equal(pthread_create(&id, NULL, number_main, &n), 0);
	while (!(number = __atomic_load_n(&n.closed, __ATOMIC_RELAXED)))
		sched_yield();
	fd = dup(STDERR_FILENO);
	assert_int_equal(fd, number);
	__atomic_store_n(&n.taken, 1, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(id, NULL), 0);
	close(fd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest sanitized[] = {
		cmocka_unit_test(ESCAPE_a_sanitized_program_starts_without_options),
		cmocka_unit_test(ESCAPE_cancelled_threads_end_whatever_they_sleep_in),
		cmocka_unit_test(ESCAPE_threads_cancelled_before_their_call_end_in_it),
		cmocka_unit_test(ESCAPE_threads_give_back_what_they_return),
		cmocka_unit_test(ESCAPE_what_is_written_before_is_seen_after),
		cmocka_unit_test(ESCAPE_a_number_means_something_new_after_its_close),
	};
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (argc > 1 && strcmp(argv[1], "--nothing") == 0)
		return getenv("POLLUX_EXPECT") && !under_pollux();
	if (n <= 0)
		return 1;
	self[n] = '\0';
	return run_group(sanitized);
}
