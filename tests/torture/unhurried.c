/* SPDX-License-Identifier: MIT */
/*
 * Who only removes, or forks, does not wait for readers, whatever they do, and what could not be
 * released is released later; who has to wait for them can be ended by a signal.
 */
#include "torture.h"

#include <sys/eventfd.h>
#include <sys/wait.h>

#include <pollux/posix.h>

#include "base/inside.h"
#include "rcu/rcu.h"

#define OBJECTS 200000

/* A reader that stays until it is told to leave. */
struct reader {
	struct thread t;
	uint32_t in, leave;
};

static void reader_main(struct thread *t)
{
	struct reader *r = t->arg;

	plx_rcu_read_lock();
	atomic_set(&r->in, 1);
	while (!atomic_get(&r->leave))
		sched_yield();
	plx_rcu_read_unlock();
}

static void reader_start(struct reader *r)
{
	*r = (struct reader){0};
	thread_start(&r->t, reader_main, r);
	assert_true(await(atomic_get(&r->in)));
}

static void reader_end(struct reader *r)
{
	atomic_set(&r->leave, 1);
	thread_join(&r->t);
}

static struct pollux_ep *ep_make(void)
{
	struct pollux_ep *ep;

	assert_int_equal(pollux_ep_new(&ep, NULL), 0);
	return ep;
}

static void make_and_close(struct pollux_ep *ep, int n)
{
	struct epoll_event ev = {.events = EPOLLIN};

	for (int i = 0; i < n; i++) {
		struct pollux_efd *e;

		assert_int_equal(pollux_efd_new(&e, 0, 0), 0);
		assert_int_equal(pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(e), 0, &ev), 0);
		pollux_file_put(pollux_efd_file(e));
	}
}

/* It would hang: the reader stays until the last is closed. */
static void closes_go_on_beside_a_reader_that_stays(void **state)
{
	struct pollux_ep *ep = ep_make();
	struct reader r;

	(void)state;
	torture_begin();
	points_delay(false);
	reader_start(&r);
	make_and_close(ep, OBJECTS);
	reader_end(&r);
	pollux_file_put(pollux_ep_file(ep));
	pollux_quiesce();
}

static void count_one(void *p)
{
	atomic_add((int *)p, 1);
}

/* What waited for it is released by the calls that come after, a bounded part by each. */
static void what_has_waited_is_released_by_later_calls(void **state)
{
	struct reader r;
	int released = 0;

	(void)state;
	torture_begin();
	points_delay(false);
	pollux_quiesce();
	reader_start(&r);
	for (int i = 0; i < OBJECTS; i++) {
		plx_retire(&released, count_one);
		plx_retire_flush_if_full();
	}
	assert_int_equal(released, 0);
	reader_end(&r);
	for (int i = 0; i < OBJECTS; i++) {
		int before = released;

		plx_retire(&released, count_one);
		plx_retire_flush_if_full();
		assert_true(released - before < OBJECTS / 4);
	}
	assert_true(released > OBJECTS);
	pollux_quiesce();
	assert_int_equal(released, 2 * OBJECTS);
}

/* Threads leave what they have retired to others. */
static void retirer_main(struct thread *t)
{
	plx_retire(t->arg, count_one);
}

static void ends_of_threads_go_on_beside_a_reader_that_stays(void **state)
{
	struct reader r;
	int released = 0;

	(void)state;
	torture_begin();
	points_delay(false);
	pollux_quiesce();
	reader_start(&r);
	for (int i = 0; i < 100; i++) {
		struct thread t;

		thread_start(&t, retirer_main, &released);
		thread_join(&t);
	}
	assert_int_equal(released, 0);
	reader_end(&r);
	pollux_quiesce();
	assert_int_equal(released, 100);
}

/* A child that does this beside a reader that stays, and then exits with 1: how it ends. */
static int beside_a_reader(void (*waits)(void), int sig)
{
	int pipe_fds[2], status = 0;
	int64_t end;
	pid_t pid, r = 0;
	char c;

	assert_int_equal(pipe(pipe_fds), 0);
	pid = fork();
	if (pid == 0) {
		struct reader *rd = malloc(sizeof(*rd));

		reader_start(rd);
		(void)!write(pipe_fds[1], "x", 1);
		waits();
		_exit(1);
	}
	assert_int_equal(read(pipe_fds[0], &c, 1), 1);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	if (sig) {
		usleep(50000);
		assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
		kill(pid, sig);
	}
	end = now_ns() + SOON_MS * 1000000ll;
	while ((r = waitpid(pid, &status, WNOHANG)) == 0 && now_ns() < end)
		usleep(1000);
	if (r == pid)
		return status;
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return status;
}

static void a_signal_ends_a_wait_for_readers(void **state)
{
	(void)state;
	torture_begin();
	points_delay(false);
	assert_int_equal(beside_a_reader(plx_rcu_synchronize, SIGTERM), SIGTERM);
}

/* A doorbell is closed before, and not under the eyes of who rings. */
static void fork_with_a_doorbell(void)
{
	int ep = pollux_epoll_create1(EPOLL_CLOEXEC), efd = pollux_eventfd(0, EFD_NONBLOCK);
	struct epoll_event ev = {.events = EPOLLIN};

	(void)pollux_epoll_ctl(ep, EPOLL_CTL_ADD, efd, &ev);
	(void)pollux_epoll_wait(ep, &ev, 1, 1);
	(void)pollux_fork();
}

/* A reader may be a look whose memory the thread that forks has to provide. */
static void a_fork_does_not_wait_for_readers(void **state)
{
	(void)state;
	torture_begin();
	points_delay(false);
	assert_int_equal(beside_a_reader(fork_with_a_doorbell, 0), W_EXITCODE(1, 0));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(closes_go_on_beside_a_reader_that_stays),
		cmocka_unit_test(what_has_waited_is_released_by_later_calls),
		cmocka_unit_test(ends_of_threads_go_on_beside_a_reader_that_stays),
		cmocka_unit_test(a_signal_ends_a_wait_for_readers),
		cmocka_unit_test(a_fork_does_not_wait_for_readers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
