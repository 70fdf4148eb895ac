/* SPDX-License-Identifier: MIT */
/*
 * What goes on after a fork, in a program from which nothing else has left: a library may serve it
 * again once the child has none of it any more, and nobody can tell.
 */
#include "waiting.h"

#include <pthread.h>
#include <spawn.h>

static ssize_t put(int fd, uint64_t v)
{
	return write(fd, &v, sizeof(v));
}

/* What a read yields; UINT64_MAX when it fails. */
static uint64_t get(int fd)
{
	uint64_t v;

	return read(fd, &v, sizeof(v)) == sizeof(v) ? v : UINT64_MAX;
}

/*
 * A loop that is woken by eventfds starts programs, and goes on: before they have ended and after
 * that, with what was ready at the fork and what has come since, in one order.
 */
static void rounds(int first, int end, bool uses)
{
	for (int round = first; round < end; round++) {
		int ep = (int)assert_ok(epoll_create1(EPOLL_CLOEXEC)), e[4];
		struct epoll_event ev[8];
		pid_t pid;

		for (int i = 0; i < 4; i++) {
			e[i] = (int)assert_ok(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
			assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e[i], EPOLLIN, i));
		}
		assert_int_equal(put(e[2], 1), 8);
		assert_int_equal(put(e[0], 2), 8);
		pid = (pid_t)assert_ok(fork_bounded());
		if (pid == 0) {
			if (uses)
				put(e[1], 5);
			if (round % 2)
				_exit(0);
			execl("/bin/true", "true", NULL);
			_exit(127);
		}
		/* While it may still live. */
		if (round % 3)
			assert_int_equal(put(e[3], 3), 8);
		assert_int_equal(child_end(pid), 0);
		if (round % 3 == 0)
			assert_int_equal(put(e[3], 3), 8);
		for (int k = 0; k < 3; k++) {
			int n = (int)assert_ok(epoll_wait(ep, ev, 8, 0)), at = 0;

			assert_int_equal(n, uses ? 4 : 3);
			assert_int_equal(ev[at++].data.u64, 2);
			assert_int_equal(ev[at++].data.u64, 0);
			/* The child's comes before or behind. */
			if (uses) {
				assert_int_equal(ev[2].data.u64 + ev[3].data.u64, 4);
				assert_int_not_equal(ev[2].data.u64, ev[3].data.u64);
			} else {
				assert_int_equal(ev[at].data.u64, 3);
			}
		}
		assert_int_equal(get(e[2]), 1);
		assert_int_equal(get(e[0]), 2);
		assert_int_equal(get(e[3]), 3);
		assert_int_equal(get(e[1]), uses ? 5 : UINT64_MAX);
		assert_int_equal(epoll_wait(ep, ev, 8, 0), 0);
		for (int i = 3; i >= 0; i--)
			assert_int_equal(put(e[i], 1), 8);
		assert_int_equal(epoll_wait(ep, ev, 8, -1), 4);
		for (int i = 0; i < 4; i++)
			assert_int_equal(ev[i].data.u64, 3 - i);
		close(ep);
		for (int i = 0; i < 4; i++)
			close(e[i]);
	}
}

static void ESCAPE_fork_and_exec_beside_a_loop(void **state)
{
	(void)state;
	rounds(0, 30, false);
}

/* The same with children that write. */
static void ESCAPE_fork_beside_a_loop_that_the_child_wakes(void **state)
{
	(void)state;
	rounds(0, 6, true);
}

/* It is killed, or ends long after its own child. */
static void ESCAPE_fork_of_children_that_live_on(void **state)
{
	int ep = (int)assert_ok(epoll_create1(EPOLL_CLOEXEC));
	int e = (int)assert_ok(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	struct epoll_event ev[2];

	(void)state;
	assert_ok(ep_ctl(ep, EPOLL_CTL_ADD, e, EPOLLIN, 1));
	for (int i = 0; i < 4; i++) {
		pid_t pid = (pid_t)assert_ok(fork_bounded());

		if (pid == 0) {
			if (i % 2 && fork() != 0)
				_exit(0);
			if (i % 2) {
				sleep_ms(20);
				_exit(0);
			}
			for (;;)
				pause();
		}
		for (int k = 0; k < 40; k++) {
			assert_int_equal(put(e, 1), 8);
			assert_int_equal(epoll_wait(ep, ev, 2, -1), 1);
			assert_int_equal(get(e), 1);
			assert_int_equal(epoll_wait(ep, ev, 2, 0), 0);
			if (k == 20 && i % 2 == 0)
				assert_ok(kill(pid, SIGKILL));
			if (k == 25)
				assert_int_equal(child_end(pid), i % 2 ? 0 : 128 + SIGKILL);
		}
	}
	close(e);
	close(ep);
}

/* --- children of all kinds, in turn, while loops talk to each other -------------------------- */

/* Each says one byte into a pipe; the last two by a shell. */
enum how { FORK_AND_EXEC, FORK, SPAWN, VFORK, POPEN, SYSTEM, HOWS };

#define MESSAGES 30
/* A message goes from one to the other so often; then both of them sleep for a moment. */
#define HOPS 7
#define ROUNDS 36

struct loop {
	pthread_t t;
	int ep, mine, theirs, idle[2];
	/* Of both. */
	unsigned long *hops;
	int *stop;
};

static void *loop_main(void *arg)
{
	struct loop *l = arg;

	for (;;) {
		struct epoll_event ev[3];
		int n;

		/* Ignored signals that come while another thread has them blocked, as in system().
		 */
		do {
			n = epoll_wait(l->ep, ev, 3, SOON_MS);
		} while (n == -1 && errno == EINTR);
		if (__atomic_load_n(l->stop, __ATOMIC_ACQUIRE))
			return NULL;
		child_check(n == 1 && ev->data.u64 == (uint64_t)l->mine && ev->events == EPOLLIN);
		child_check(get(l->mine) == 1);
		child_check(get(l->mine) == UINT64_MAX);
		if (__atomic_add_fetch(l->hops, 1, __ATOMIC_SEQ_CST) % HOPS)
			child_check(put(l->theirs, 1) == 8);
	}
}

static void loops_start(struct loop *l, unsigned long *hops, int *stop)
{
	for (int i = 0; i < 2; i++) {
		l[i] = (struct loop){.ep = ep_new(), .hops = hops, .stop = stop};
		l[i].mine = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC);
		child_check(pipe2(l[i].idle, O_NONBLOCK | O_CLOEXEC) == 0);
		ep_add(l[i].ep, l[i].mine, EPOLLIN, (uint64_t)l[i].mine);
		/* Nothing comes of it. */
		ep_add(l[i].ep, l[i].idle[0], EPOLLIN, 0);
	}
	l[0].theirs = l[1].mine;
	l[1].theirs = l[0].mine;
	for (int i = 0; i < 2; i++)
		child_check(pthread_create(&l[i].t, NULL, loop_main, &l[i]) == 0);
}

static void loops_message(struct loop *l)
{
	unsigned long end = __atomic_load_n(l->hops, __ATOMIC_SEQ_CST) + HOPS;
	int64_t late = now_ms() + SOON_MS;

	child_check(put(l->mine, 1) == 8);
	while (__atomic_load_n(l->hops, __ATOMIC_SEQ_CST) < end) {
		child_check(now_ms() < late);
		sched_yield();
	}
}

static void loops_end(struct loop *l, int *stop)
{
	__atomic_store_n(stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++)
		child_check(put(l[i].mine, 1) == 8);
	for (int i = 0; i < 2; i++)
		pthread_join(l[i].t, NULL);
}

static char *says[] = {"/proc/self/exe", "--say", NULL};

static pid_t child_by(enum how how, int wr)
{
	posix_spawn_file_actions_t actions;
	pid_t pid;

	switch (how) {
	case SPAWN:
		child_check(posix_spawn_file_actions_init(&actions) == 0);
		child_check(posix_spawn_file_actions_adddup2(&actions, wr, 1) == 0);
		child_check(posix_spawn(&pid, says[0], &actions, NULL, says, environ) == 0);
		posix_spawn_file_actions_destroy(&actions);
		return pid;
	case VFORK:
		pid = vfork();
		break;
	default:
		pid = fork_bounded();
		if (pid == 0 && how == FORK)
			_exit(write(wr, "x", 1) != 1);
	}
	if (pid == 0) {
		dup2(wr, 1);
		execv(says[0], says);
		_exit(127);
	}
	return pid;
}

static void child_says(enum how how)
{
	struct epoll_event ev[4];
	int ep = ep_new(), mine = efd_new(0, EFD_NONBLOCK | EFD_CLOEXEC), pipes[2], heard = 0;
	FILE *shell = NULL;
	pid_t pid = 0;
	char c = 0;

	child_check(pipe2(pipes, O_NONBLOCK | O_CLOEXEC) == 0);
	if (how == POPEN)
		child_check((shell = popen("echo x", "r")) != NULL);
	ep_add(ep, how == POPEN ? fileno(shell) : pipes[0], EPOLLIN, 1);
	ep_add(ep, mine, EPOLLIN, 2);
	if (how == SYSTEM)
		child_check(system("true") == 0 && write(pipes[1], "x", 1) == 1);
	else if (how != POPEN)
		child_check((pid = child_by(how, pipes[1])) > 0);
	child_check(put(mine, 7) == 8);
	while (heard != 3) {
		int n = epoll_wait(ep, ev, 4, SOON_MS);

		child_check(n == 1 || n == 2);
		for (int i = 0; i < n; i++) {
			child_check(!(heard & 1 << (ev[i].data.u64 - 1)));
			heard |= 1 << (ev[i].data.u64 - 1);
			if (ev[i].data.u64 == 2)
				child_check(get(mine) == 7);
			else
				child_check(read(shell ? fileno(shell) : pipes[0], &c, 1) == 1);
		}
	}
	child_check(c == 'x');
	child_check(!pid || child_end(pid) == 0);
	child_check(!shell || pclose(shell) == 0);
	close(ep);
	close(mine);
	close(pipes[0]);
	close(pipes[1]);
}

static int says_beside_loops(void *arg)
{
	int kinds = *(int *)arg, stop = 0;
	unsigned long hops = 0;
	struct loop l[2];

	loops_start(l, &hops, &stop);
	for (int i = 0; i < ROUNDS; i++) {
		enum how how = (enum how)(i % HOWS);

		if (kinds & 1 << how)
			child_says(how);
		for (int k = 0; k < MESSAGES; k++)
			loops_message(&l[k % 2]);
	}
	loops_end(l, &stop);
	return 0;
}

static void ESCAPE_children_of_all_kinds_beside_loops(void **state)
{
	int kinds = *(int *)*state;

	/* A shell is not built with a sanitizer, and the drop-in would be. */
	if (SANITIZED && under_pollux())
		kinds &= ~(1 << POPEN | 1 << SYSTEM);
	assert_int_equal(child_status(says_beside_loops, &kinds), 0);
}

int main(int argc, char **argv)
{
	static const int forks = 1 << FORK | 1 << FORK_AND_EXEC;
	static const int most = (1 << HOWS) - 1 - (1 << VFORK), all = (1 << HOWS) - 1;
#define KINDS(suffix, kinds) VARIANT(ESCAPE_children_of_all_kinds_beside_loops, suffix, &kinds)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ESCAPE_fork_of_children_that_live_on),
		cmocka_unit_test(ESCAPE_fork_and_exec_beside_a_loop),
		cmocka_unit_test(ESCAPE_fork_beside_a_loop_that_the_child_wakes),
		KINDS("_forks", forks),
		KINDS("_most", most),
		KINDS("_all", all),
	};

	if (argc == 2 && strcmp(argv[1], "--say") == 0)
		return write(1, "x", 1) != 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
