/* SPDX-License-Identifier: MIT */
/*
 * What may be called in a signal handler (pollux-embedding(7)) works there, whatever it has
 * interrupted.
 */
#include "native.h"

#include <pollux/level.h>
#include <pollux/poll.h>
#include <pollux/read.h>

#define SIGNALS 400

static struct pollux_ep *ep, *shut;
static struct obj *o;
static struct pollux_efd *e;
static struct pollux_level level;
static int handled, wrong, over;

static void on_signal(int sig)
{
	int before = errno;

	(void)sig;
	errno = 99;
	pollux_file_get(&o->file);
	pollux_read_lock();
	if (!pollux_file_tryget(&o->file))
		wrong = 1;
	if (pollux_file_poll(&o->file, EPOLLIN) != EPOLLIN)
		wrong = 1;
	pollux_read_unlock();
	pollux_file_put(&o->file);
	pollux_file_wake(&o->file, EPOLLIN);
	pollux_file_put(&o->file);
	pollux_ep_get(ep);
	pollux_ep_put(ep);
	if (pollux_efd_write(e, 1, 0))
		wrong = 1;
	pollux_efd_signal(e);
	pollux_level_set(&level, EPOLLIN);
	pollux_level_clear(&level, EPOLLOUT);
	pollux_ep_shutdown(shut);
	if (errno != 99)
		wrong = 2;
	errno = before;
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELEASE);
}

/* All that is not for handlers; a thread's first calls as well. */
static void calls(struct thread *t)
{
	struct pollux_pollfile v = {.file = &o->file, .events = EPOLLIN};
	struct epoll_event ev[4];

	(void)t;
	for (int i = 0; i < 20; i++) {
		struct pollux_ep *own = ep_new();
		struct obj *mine = obj_new(EPOLLIN);
		int later, n;

		ep_add(own, &mine->file, 0, EPOLLIN, 'm');
		ep_add(own, &o->file, 0, EPOLLIN | EPOLLET, 'o');
		assert_int_equal(pollux_ep_wait(own, ev, 4, POLLUX_FOREVER), 2);
		ep_mod(own, &o->file, 0, EPOLLIN, 'o');
		pollux_file_wake(&mine->file, EPOLLIN);
		assert_int_equal(pollux_ep_wait(own, ev, 4, 0), 2);
		later = __atomic_load_n(&handled, __ATOMIC_ACQUIRE);
		n = pollux_ep_wait(shut, ev, 4, 0);
		assert_true(n == -ESHUTDOWN || (n == 0 && !later));
		assert_int_equal(pollux_files_poll(&v, 1, 0, NULL, NULL), 1);
		assert_true(pollux_ep_wait(ep, ev, 4, 0) >= 1);
		obj_put(mine);
		ep_put(own);
	}
}

static void rounds(struct thread *t)
{
	pollux_synchronize();
	do
		calls(t);
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE));
	pollux_quiesce();
}

/* Each is sent when the one before has been handled. */
static void signals(struct thread *t, int n)
{
	int64_t end = now_ns() + SOON_MS * 1000000ll;
	int before = __atomic_load_n(&handled, __ATOMIC_ACQUIRE);

	for (int i = 1; i <= n && now_ns() < end; i++) {
		pthread_kill(t->id, SIGUSR1);
		while (__atomic_load_n(&handled, __ATOMIC_ACQUIRE) < before + i && now_ns() < end)
			sched_yield();
	}
	assert_true(__atomic_load_n(&handled, __ATOMIC_ACQUIRE) >= before + n);
}

static void it_works_whatever_it_has_interrupted(void **state)
{
	struct sigaction sa = {.sa_handler = on_signal};
	struct epoll_event ev[8];
	struct thread t;

	(void)state;
	ep = ep_new();
	shut = ep_new();
	o = obj_new(EPOLLIN);
	e = efd_new(0, 0);
	pollux_level_init(&level, 0, NULL);
	ep_add(ep, &o->file, 0, EPOLLIN, 'o');
	ep_add(ep, pollux_efd_file(e), 0, EPOLLIN, 'e');
	ep_add(ep, &level.file, 0, EPOLLIN, 'l');
	assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
	/* The first of these may be the first call of its thread. */
	for (int i = 0; i < 10; i++) {
		over = 0;
		thread_start(&t, rounds, NULL);
		signals(&t, SIGNALS / 10);
		__atomic_store_n(&over, 1, __ATOMIC_RELEASE);
		thread_join(&t);
	}
	signal(SIGUSR1, SIG_DFL);
	assert_int_equal(wrong, 0);
	assert_int_equal(efd_take(e), 2 * handled);
	/* In any order: a wake beside a collection puts its item behind the others. */
	assert_int_equal(pollux_ep_wait(ep, ev, 8, 0), 2);
	assert_int_equal(ev[0].data.u64 + ev[1].data.u64, 'o' + 'l');
	pollux_file_put(&level.file);
	efd_put(e);
	obj_put(o);
	ep_put(ep);
	ep_put(shut);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(it_works_whatever_it_has_interrupted),
	};

	return RUN(tests);
}
