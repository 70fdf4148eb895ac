/* SPDX-License-Identifier: MIT */
/*
 * A process is forked while other threads are anywhere in the engine, with any of its locks: its
 * child can do all that a process can.
 */
#include "torture.h"

#include <sys/wait.h>

#include <pollux/fork.h>
#include <pollux/level.h>
#include <pollux/read.h>

#include "base/mem.h"

#define CHURNERS 3
#define CHILD_FILES 600
#define HELD 300

#if PLX_MEM_OF_LIBC
#define MEM_OF_LIBC true
#else
#define MEM_OF_LIBC false
#endif

static unsigned long done;

static void call(void *arg)
{
	atomic_add((unsigned long *)arg, 1);
}

/* All kinds of things, for a moment. */
static void churn_once(uint32_t *r)
{
	struct pollux_ep_attr attr = {.size = sizeof(attr), .flags = POLLUX_EP_BATCHES};
	struct epoll_event ev = {.events = EPOLLIN}, got[8];
	uint32_t n = rnd(r) % 8 + 1;
	struct pollux_ep *ep, *outer;
	struct pollux_efd *e[8];

	check(pollux_ep_new(&ep, rnd(r) % 2 ? &attr : NULL) == 0);
	check(pollux_ep_new(&outer, NULL) == 0);
	for (uint32_t i = 0; i < n; i++) {
		check(pollux_efd_new(&e[i], i % 2, 0) == 0);
		check(pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(e[i]), 0, &ev) == 0);
	}
	check(pollux_ep_ctl(outer, EPOLL_CTL_ADD, pollux_ep_file(ep), 0, &ev) == 0);
	check(pollux_ep_wait(ep, got, 8, 0) == (int)n / 2);
	check(pollux_call(call, &done) == 0);
	if (rnd(r) % 16 == 0)
		(void)pollux_ep_watches();
	pollux_read_lock();
	pollux_efd_write(e[0], 1, 0);
	pollux_read_unlock();
	for (uint32_t i = 0; i < n; i++)
		efd_put(e[i]);
	ep_put(outer);
	ep_put(ep);
	if (rnd(r) % 8 == 0)
		(void)pollux_reclaim(0);
	if (rnd(r) % 32 == 0)
		pollux_barrier();
}

static void *churns_shortly(void *arg)
{
	uint32_t r = (uint32_t)(uintptr_t)arg;

	churn_once(&r);
	return NULL;
}

static void churner(struct thread *t)
{
	uint32_t r = (uint32_t)t->tid;

	while (!stopping()) {
		pthread_t shortly;

		churn_once(&r);
		if (rnd(&r) % 8)
			continue;
		check(pthread_create(&shortly, NULL, churns_shortly, (void *)(uintptr_t)r) == 0);
		pthread_join(shortly, NULL);
	}
}

static uint32_t ready(struct pollux_file *f, uint32_t wanted)
{
	(void)f;
	return wanted & EPOLLIN;
}

static unsigned long child_freed;

static void child_free(struct pollux_file *f)
{
	(void)f;
	child_freed++;
}

static const struct pollux_file_ops child_ops = {
	.size = sizeof(child_ops),
	.poll = ready,
	.free = child_free,
};

static void *wakes(void *arg)
{
	usleep(2000);
	pollux_level_set(arg, EPOLLIN);
	return NULL;
}

static pid_t fork_by(bool libcs)
{
	pid_t pid = libcs ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		pollux_after_fork_child();
	return pid;
}

/* Without libc's fork other threads may have libc's locks, of which its memory has some. */
static void child(bool libcs, bool grandchild)
{
	static struct pollux_file files[CHILD_FILES];
	static struct pollux_efd *e[CHILD_FILES];
	struct epoll_event ev = {.events = EPOLLIN}, got[8];
	struct pollux_ep *ep = NULL;
	unsigned long called = 0;
	struct pollux_level l;
	pthread_t t;
	int status;
	pid_t pid;

	alarm(SOON_MS / 1000);
	must(pollux_ep_watches() == 0);
	must(pollux_ep_new(&ep, NULL) == 0);
	for (int i = 0; i < CHILD_FILES; i++) {
		pollux_file_init(&files[i], &child_ops);
		ev.data.u64 = (uint64_t)i;
		must(pollux_ep_ctl(ep, EPOLL_CTL_ADD, &files[i], i, &ev) == 0);
		must(pollux_efd_new(&e[i], (uint64_t)i, 0) == 0);
	}
	must(pollux_ep_watches() == CHILD_FILES);
	for (int i = 0; i < CHILD_FILES; i++) {
		uint64_t v = 0;

		must(pollux_ep_wait(ep, got, 1, 0) == 1 && got[0].data.u64 == (uint64_t)i);
		must(pollux_efd_read(e[i], &v, 0) == (i ? 0 : -EAGAIN) && v == (uint64_t)i);
	}
	if (grandchild) {
		pid = fork_by(libcs);
		must(pid >= 0);
		if (!pid) {
			child(libcs, false);
			_exit(0);
		}
		must(waitpid(pid, &status, 0) == pid && status == 0);
	}
	for (int i = 0; i < CHILD_FILES; i++) {
		pollux_file_put(&files[i]);
		efd_put(e[i]);
	}
	must(pollux_call(call, &called) == 0);
	pollux_barrier();
	must(child_freed == CHILD_FILES && called == 1);
	must(pollux_ep_watches() == 0);
	must(pollux_ep_wait(ep, got, 8, 0) == 0);
	if (libcs && !MEM_OF_LIBC) {
		pollux_level_init(&l, 0, NULL);
		must(pollux_ep_ctl(ep, EPOLL_CTL_ADD, &l.file, 0, &ev) == 0);
		must(pthread_create(&t, NULL, wakes, &l) == 0);
		must(pollux_ep_wait(ep, got, 8, POLLUX_FOREVER) == 1);
		must(pthread_join(t, NULL) == 0);
		pollux_synchronize();
		pollux_file_put(&l.file);
	}
	ep_put(ep);
	pollux_quiesce();
}

static void fork_once(uint32_t how)
{
	/* A sanitizer's memory is made safe for libc's fork alone. */
	bool libcs = MEM_OF_LIBC || how % 2;
	pid_t pid = fork_by(libcs);

	if (pid == 0) {
		child(libcs, how % 3 == 0);
		_exit(0);
	}
	child_passes(pid);
}

static void forks_beside_all_that(void **state)
{
	struct thread t[CHURNERS];
	unsigned long forks = 0;
	int64_t start;

	(void)state;
#if defined(__SANITIZE_THREAD__)
	/* gcc 12: those of its DenseSlabAlloc are not taken for a fork. */
	print_message("with ThreadSanitizer a child may find locks of its run-time taken\n");
	skip();
#endif
	torture_begin();
	for (int i = 0; i < CHURNERS; i++)
		thread_start(&t[i], churner, NULL);
	start = now_ns();
	for (; torture_until(start, forks >= 32); forks++)
		fork_once((uint32_t)forks);
	torture_end(t, CHURNERS);
	pollux_barrier();
	print_message("%lu forks, %lu calls beside them\n", forks, done);
}

struct held {
	struct gate g;
	const char *point;
};

/* Comes by all points, sooner or later. */
static void holds(struct thread *t)
{
	struct held *h = t->arg;
	struct pollux_efd *e[HELD];
	struct pollux_ep *ep[HELD];
	uint32_t r = 1;

	gate_arm(&h->g, h->point);
	for (int n = 0; n < 20 && !atomic_get(&h->g.reached); n++) {
		for (int i = 0; i < HELD; i++) {
			ep[i] = ep_new();
			e[i] = efd_new(0, 0);
			ep_add(ep[i], pollux_efd_file(e[i]), 0, EPOLLIN, 0);
		}
		for (int i = 0; i < HELD; i++) {
			churn_once(&r);
			efd_put(e[i]);
			ep_put(ep[i]);
		}
		pollux_barrier();
	}
}

static void forks_beside_one_who_holds(void **state)
{
	static const char *const points[] = {"born_number",   "mem_block",   "slab_fresh",
					     "reclaim_taken", "reclaim_run", "file_last_put",
					     "batch_opened"};

	(void)state;
	points_delay(false);
	for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		struct held h = {.point = points[i]};
		struct thread t;

		/* A sanitizer's memory has no blocks. */
		if (MEM_OF_LIBC && i >= 1 && i <= 2)
			continue;
		start_to_gate(&t, holds, &h, &h.g);
		for (uint32_t how = 0; how < 6; how++)
			fork_once(how);
		gate_open(&h.g);
		thread_join(&t);
	}
	assert_false(torture_failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* While this process has no number. */
		TEST(forks_beside_one_who_holds),
		TEST(forks_beside_all_that),
	};

	return RUN(tests);
}
