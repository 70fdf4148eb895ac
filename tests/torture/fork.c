/* SPDX-License-Identifier: MIT */
/*
 * A child of a fork that closes, waits and ends changes nothing in the parent's sets but
 * what Linux says it does (R28): the descriptors are its own, the sets and counters shared.
 */
#include "torture.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/single_threaded.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <pollux/posix.h>

#include "base/spin.h"

#define FILES 6
#define WRITERS 2

struct world {
	int ep, efd[FILES], copy, p[2];
	/* Items that the child has taken out of the shared set (EP-KEY-09). */
	bool deleted[FILES];
};

struct traffic {
	int fd;
	int stop;
	unsigned long written;
};

static int add(int ep, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return pollux_epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

static void world_make(struct world *w, uint32_t *r)
{
	memset(w, 0, sizeof(*w));
	w->ep = pollux_epoll_create1(EPOLL_CLOEXEC);
	assert_true(w->ep >= 0);
	assert_int_equal(pipe2(w->p, O_CLOEXEC | O_NONBLOCK), 0);
	for (int i = 0; i < FILES; i++) {
		w->efd[i] = pollux_eventfd(i, EFD_NONBLOCK | EFD_CLOEXEC);
		assert_true(w->efd[i] >= 0);
		assert_int_equal(add(w->ep, w->efd[i], EPOLLIN, i), 0);
	}
	assert_int_equal(add(w->ep, w->p[0], EPOLLIN, 'p'), 0);
	w->copy = pollux_dup(w->efd[rnd(r) % FILES]);
	assert_true(w->copy >= 0);
}

/* In the child. What it does is told by the bits of how, so that the parent knows. */
static void child(struct world *w, uint32_t how)
{
	struct epoll_event ev[2 * FILES];

	if (how & 1)
		for (int i = 0; i < FILES; i++)
			pollux_close(w->efd[i]);
	if (how & 2)
		/* Level-triggered: what it sees stays to be seen. */
		for (int i = 0; i < 3; i++)
			if (pollux_epoll_wait(w->ep, ev, 2 * FILES, 0) < 0)
				_exit(1);
	if ((how & 4) && !(how & 1))
		if (pollux_epoll_ctl(w->ep, EPOLL_CTL_DEL, w->efd[3], NULL) != 0)
			_exit(2);
	if (how & 8) {
		/* A set of its own, which is nobody else's. */
		int own = pollux_epoll_create1(EPOLL_CLOEXEC);
		int e = pollux_eventfd(1, EFD_NONBLOCK);

		if (own < 0 || add(own, e, EPOLLIN, 'c') != 0 || add(w->ep, e, EPOLLIN, 'c') != 0 ||
		    pollux_epoll_wait(own, ev, 2, 0) != 1)
			_exit(3);
		pollux_close(e);
		pollux_close(own);
	}
	if (how & 16)
		pollux_close(w->ep);
	_exit(0);
}

static void assert_sees(struct world *w)
{
	struct epoll_event ev[2 * FILES];
	uint32_t seen = 0, want = 0;
	int n = pollux_epoll_wait(w->ep, ev, 2 * FILES, 0);

	for (int i = 0; i < n; i++) {
		assert_true(ev[i].data.u64 < FILES);
		assert_int_equal(ev[i].events, EPOLLIN);
		seen |= 1u << ev[i].data.u64;
	}
	for (int i = 1; i < FILES; i++)
		want |= w->deleted[i] ? 0 : 1u << i;
	assert_int_equal(seen, want);
	assert_int_equal(n, __builtin_popcount(want));
}

static void writer(struct thread *t)
{
	struct traffic *tr = t->arg;
	uint64_t one = 1;

	while (!atomic_get(&tr->stop)) {
		if (pollux_write(tr->fd, &one, sizeof(one)) != sizeof(one))
			broken("a write failed");
		atomic_add(&tr->written, 1);
		sched_yield();
	}
}

static void parent_beside_children(void **state)
{
	struct traffic tr = {.fd = pollux_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
	unsigned long forks = 0, deleted = 0;
	struct thread t[WRITERS];
	int64_t start = now_ns();
	uint32_t r = 28;
	uint64_t v = 0;

	(void)state;
	torture_begin();
	assert_true(tr.fd >= 0);
	for (int i = 0; i < WRITERS; i++)
		thread_start(&t[i], writer, &tr);
	for (; torture_until(start, forks >= 64); forks++) {
		uint32_t how = rnd(&r);
		struct world w;
		pid_t pid;

		world_make(&w, &r);
		/* Some of it collected, so that it is on the lists in several ways. */
		if (how & 32)
			assert_sees(&w);
		pid = pollux_fork();
		if (pid == 0)
			child(&w, how);
		child_passes(pid);
		w.deleted[3] = (how & 4) && !(how & 1);
		deleted += w.deleted[3];
		assert_sees(&w);
		assert_sees(&w);
		/* The counters are whole, and the parent's writes are told. */
		for (int i = 1; i < FILES; i++) {
			assert_int_equal(pollux_read(w.efd[i], &v, sizeof(v)), sizeof(v));
			assert_int_equal(v, i);
			v = i;
			assert_int_equal(pollux_write(w.efd[i], &v, sizeof(v)), sizeof(v));
		}
		assert_sees(&w);
		for (int i = 0; i < FILES; i++)
			pollux_close(w.efd[i]);
		pollux_close(w.copy);
		assert_int_equal(pollux_epoll_wait(w.ep, &(struct epoll_event){0}, 1, 0), 0);
		pollux_close(w.ep);
		close(w.p[0]);
		close(w.p[1]);
	}
	atomic_set(&tr.stop, 1);
	torture_end(t, WRITERS);
	assert_int_equal(pollux_read(tr.fd, &v, sizeof(v)), sizeof(v));
	assert_int_equal(v, tr.written);
	print_message("%lu forks, %lu DELs by children, %lu writes beside them\n", forks, deleted,
		      tr.written);
	assert_true(deleted > 0);
	pollux_close(tr.fd);
}

struct first {
	struct meet m;
	int fd;
	/* How long each of the two waits. */
	uint32_t spins[2];
};

static void spin_for(uint32_t n)
{
	/* On one CPU it is only so that the other one goes on. */
	if (n % 2)
		sched_yield();
	while (n--)
		__asm__ __volatile__("");
}

static void *first_object(void *arg)
{
	struct first *f = arg;

	meet(&f->m);
	spin_for(f->spins[0]);
	f->fd = pollux_eventfd(3, EFD_NONBLOCK);
	meet(&f->m);
	return NULL;
}

static bool first_usable(int fd)
{
	struct epoll_event ev;
	int ep = pollux_epoll_create1(0);
	uint64_t v = 0;

	return ep >= 0 && add(ep, fd, EPOLLIN, 1) == 0 &&
	       pollux_epoll_wait(ep, &ev, 1, SOON_MS) == 1 &&
	       pollux_read(fd, &v, sizeof(v)) == sizeof(v) && v == 3 && pollux_close(ep) == 0;
}

/* In a process that has nothing of ours yet: exit status 0 or 1 if all is well, 1 if the fork won.
 */
static void first_beside_fork(struct first *f)
{
	pthread_t t;
	int status, won, e;
	pid_t pid;

	alarm(SOON_MS / 1000);
	/* Nobody joins it, or ThreadSanitizer would say that the child of the fork does not. */
	if (pthread_create(&t, NULL, first_object, f) || pthread_detach(t))
		_exit(10);
	meet(&f->m);
	spin_for(f->spins[1]);
	pid = pollux_fork();
	if (pid == 0) {
		alarm(SOON_MS / 1000);
		e = pollux_eventfd(3, EFD_NONBLOCK);
		_exit(pollux_fd_served(e) != 1 ? 11 : !first_usable(e) ? 12 : 0);
	}
	meet(&f->m);
	won = pollux_fd_served(f->fd) != 1;
	e = pollux_eventfd(3, EFD_NONBLOCK);
	if (pollux_fd_served(e) != 1)
		_exit(13);
	if (!first_usable(e) || !first_usable(f->fd))
		_exit(14);
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		_exit(15);
	_exit(WEXITSTATUS(status) ? WEXITSTATUS(status) : won);
}

/*
 * A fork that finds nothing does nothing. If the first object is made beside it the two
 * agree on which came first, and neither is stuck on either side of the fork.
 */
static void first_object_beside_a_fork(void **state)
{
	unsigned long rounds = 0, won = 0;
	int64_t start = now_ns();
	uint32_t r = 29;

	(void)state;
	torture_begin();
	for (; torture_until(start, rounds >= 100 && won && won < rounds); rounds++) {
		struct first f = {.m.n = 2};
		int status;
		pid_t pid;

		f.spins[rounds % 2] = rnd(&r) % 50000;
		pid = fork();
		if (pid == 0)
			first_beside_fork(&f);
		assert_true(pid > 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_uint_in_range(WEXITSTATUS(status), 0, 1);
		won += WEXITSTATUS(status);
	}
	print_message("%lu rounds, in %lu the fork came first\n", rounds, won);
	assert_true(won > 0 && won < rounds);
}

struct spinners {
	int begun, stop;
};

static bool until_stopped(void *arg)
{
	struct spinners *s = arg;

	/* Not before it may spin: who looks whether it does may be in its place until then. */
	atomic_add(&s->begun, 1);
	while (!atomic_get(&s->stop))
		sched_yield();
	return true;
}

/* Not one who yields: it has no waker. */
static bool spins(bool (*done)(void *arg), void *arg)
{
	struct plx_spin_state s = {0};
	struct plx_yields y = {0};

	return plx_spin(&y, &s, done, arg);
}

static void spinner(struct thread *t)
{
	struct spinners *s = t->arg;

	check(spins(until_stopped, s));
}

/* All who may spin do so in the parent. */
static void nobody_spins_in_the_child(void **state)
{
	int cpus = plx_spin_cpus(), efd = pollux_eventfd(0, EFD_NONBLOCK), status;
	struct thread t[MAX_THREADS];
	struct spinners s = {0}, done = {.stop = 1};
	pid_t pid;

	(void)state;
	if (cpus < 2 || cpus > MAX_THREADS)
		skip();
	torture_begin();
	for (int i = 0; i < cpus; i++)
		thread_start(&t[i], spinner, &s);
	assert_true(await(atomic_get(&s.begun) == cpus && !spins(until_stopped, &done)));
	pid = pollux_fork();
	if (pid == 0) {
		/* As if it had made a thread, which ThreadSanitizer would confuse with its like. */
		__libc_single_threaded = 0;
		_exit(spins(until_stopped, &done) ? 0 : 1);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	atomic_set(&s.stop, 1);
	torture_end(t, cpus);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	pollux_close(efd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* While this process has had no object. */
		TEST(first_object_beside_a_fork),
		TEST(parent_beside_children),
		TEST(nobody_spins_in_the_child),
	};

	return RUN(tests);
}
