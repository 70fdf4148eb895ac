/* SPDX-License-Identifier: MIT */
/*
 * The child of a fork has the files of before, without what watched them, and epolls of its own,
 * whatever made it. The parent notices nothing.
 */
#include "native.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include <pollux/fork.h>
#include <pollux/level.h>
#include <pollux/poll.h>
#include <pollux/read.h>
#include <pollux/watch.h>

enum how { LIBC, HANDLER, TOLD, UNTOLD, HOWS };

/* What is there before the fork. */
struct world {
	struct pollux_ep *ep, *outer;
	struct obj *o;
	struct pollux_efd *e;
	struct pollux_level l;
	struct pollux_watch w;
	int released, freed;
};

static int watch_calls;

static void watch_call(struct pollux_watch *w, struct pollux_file *f, uint32_t key)
{
	(void)w;
	(void)f;
	(void)key;
	watch_calls++;
}

static struct world *world_new(void)
{
	struct world *x = calloc(1, sizeof(*x));

	assert_non_null(x);
	x->ep = ep_new();
	x->outer = ep_new();
	x->o = obj_new(EPOLLIN);
	x->o->released = &x->released;
	x->o->freed = &x->freed;
	x->e = efd_new(0, 0);
	pollux_level_init(&x->l, 0, NULL);
	ep_add(x->ep, &x->o->file, 0, EPOLLIN, 'o');
	ep_add(x->ep, pollux_efd_file(x->e), 0, EPOLLIN, 'e');
	ep_add(x->ep, &x->l.file, 0, EPOLLIN, 'l');
	ep_add(x->outer, pollux_ep_file(x->ep), 0, EPOLLIN, 'i');
	/* Told, and on the list. */
	for (int i = 0; i < 3; i++)
		efd_add(x->e, 1);
	assert_int_equal(pollux_watch_add(&x->w, &x->o->file, EPOLLIN, watch_call), EPOLLIN);
	watch_calls = 0;
	return x;
}

static void world_put(struct world *x)
{
	pollux_watch_del_sync(&x->w);
	obj_put(x->o);
	efd_put(x->e);
	pollux_file_put(&x->l.file);
	ep_put(x->outer);
	ep_put(x->ep);
	pollux_synchronize();
	pollux_quiesce();
	free(x);
}

static bool kernel_wipes(void)
{
	static char page[4096] __attribute__((aligned(4096)));

	/* Some emulators agree with everything. */
	return !madvise(page, sizeof(page), MADV_WIPEONFORK) &&
	       madvise(page, sizeof(page), 0x10000);
}

static pid_t forked;

static void forks(int sig)
{
	(void)sig;
	forked = fork();
}

static pid_t fork_how(enum how how)
{
#if defined(__SANITIZE_THREAD__)
	/* Its run-time makes a thread of its own in the child, which is nothing for a handler. */
	how = how == HANDLER ? LIBC : how;
#endif
	if (how == LIBC)
		return fork();
	if (how == HANDLER) {
		assert_true(signal(SIGUSR1, forks) != SIG_ERR);
		raise(SIGUSR1);
		return forked;
	}
	forked = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (forked == 0 && (how == TOLD || !kernel_wipes()))
		pollux_after_fork_child();
	return forked;
}

static void in_child(enum how how, void (*run)(struct world *x))
{
	struct world *x = world_new();
	pid_t pid = fork_how(how);

	if (pid == 0) {
		alarm(SOON_MS / 1000);
		run(x);
		_exit(0);
	}
	child_passes(pid);
	/* Here all is as it was. */
	assert_int_equal(pollux_ep_watches(), 4);
	assert_order(x->ep, 8, "oe");
	assert_one(x->outer, EPOLLIN, 'i');
	obj_fire(x->o, EPOLLIN, EPOLLIN);
	assert_int_equal(watch_calls, 1);
	assert_int_equal(efd_take(x->e), 3);
	world_put(x);
}

static int none(void *arg, uint32_t events, uint64_t data)
{
	(void)arg;
	(void)events;
	(void)data;
	return 0;
}

static int item(void *arg, struct pollux_file *f, int key, const struct epoll_event *ev)
{
	(void)arg;
	(void)f;
	(void)key;
	(void)ev;
	return 7;
}

static void epolls_are_dead_child(struct world *x)
{
	struct pollux_pollfile v = {.file = pollux_ep_file(x->ep), .events = EPOLLIN};
	struct pollux_ep *own = NULL;
	struct pollux_ep_stat st;
	struct epoll_event ev = {.events = EPOLLIN};
	struct pollux_watch w;

	must(pollux_ep_wait(x->ep, &ev, 1, 0) == -EOWNERDEAD);
	must(pollux_ep_wait(x->ep, &ev, 1, POLLUX_FOREVER) == -EOWNERDEAD);
	must(pollux_ep_pwait(x->ep, &ev, 1, POLLUX_FOREVER, &(sigset_t){0}) == -EOWNERDEAD);
	must(pollux_ep_collect(x->ep, none, NULL, 1, POLLUX_FOREVER, NULL) == -EOWNERDEAD);
	must(pollux_ep_collect(x->ep, none, NULL, 1, POLLUX_FOREVER, &(sigset_t){0}) ==
	     -EOWNERDEAD);
	must(pollux_files_poll(&v, 1, 0, NULL, NULL) == -EOWNERDEAD);
	must(pollux_ep_ctl(x->ep, EPOLL_CTL_ADD, &x->o->file, 1, &ev) == -EOWNERDEAD);
	must(pollux_ep_ctl(x->ep, EPOLL_CTL_DEL, &x->o->file, 0, NULL) == -EOWNERDEAD);
	must(pollux_ep_del(x->ep, &x->o->file, 0) == -EOWNERDEAD);
	must(pollux_ep_ctl_fd(x->ep, EPOLL_CTL_ADD, 0, &ev) == -EOWNERDEAD);
	must(pollux_ep_fd(x->ep) == -EOWNERDEAD);
	must(pollux_ep_stat(x->ep, &st, sizeof(st)) == -EOWNERDEAD);
	must(pollux_ep_for_each(x->ep, item, NULL) == -EOWNERDEAD);
	must(pollux_file_poll(pollux_ep_file(x->ep), EPOLLIN) == 0);
	must(pollux_files_poll(&v, 1, POLLUX_FOREVER, NULL, NULL) == -EOWNERDEAD);
	must(pollux_watch_add(&w, v.file, EPOLLIN, watch_call) == -EOWNERDEAD);
	must(pollux_ep_of(v.file) == x->ep);
	must(pollux_ep_watches() == 0);
	must(pollux_ep_new(&own, NULL) == 0);
	must(pollux_ep_ctl(own, EPOLL_CTL_ADD, v.file, 0, &ev) == -EOWNERDEAD);
	pollux_ep_shutdown(x->ep);
	pollux_ep_put(x->ep);
	pollux_ep_put(x->outer);
	pollux_ep_put(own);
}

/* That they are lost is what is tested: LeakSanitizer does not run before _exit. */
static void epolls_are_dead(void **state)
{
	(void)state;
	for (enum how how = LIBC; how < HOWS; how++)
		in_child(how, epolls_are_dead_child);
}

static char got_one(struct pollux_ep *ep)
{
	struct epoll_event ev = {0};

	must(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER) == 1);
	must(ev.events == EPOLLIN);
	return (char)ev.data.u64;
}

static void files_go_on_child(struct world *x)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = 'E'};
	struct pollux_ep *own = NULL;
	uint64_t v = 0;

	/* Before they are touched otherwise. */
	pollux_file_wake(&x->o->file, EPOLLIN);
	must(pollux_efd_write(x->e, 1, 0) == 0);
	must(watch_calls == 0);
	must(pollux_ep_new(&own, NULL) == 0);
	must(pollux_ep_ctl(own, EPOLL_CTL_ADD, pollux_efd_file(x->e), 0, &ev) == 0);
	must(got_one(own) == 'E');
	must(pollux_efd_read(x->e, &v, 0) == 0 && v == 4);
	must(pollux_efd_write(x->e, 1, 0) == 0);
	must(got_one(own) == 'E');
	ev.data.u64 = 'O';
	must(pollux_ep_ctl(own, EPOLL_CTL_MOD, &x->o->file, 0, &ev) == -ENOENT);
	must(pollux_ep_ctl(own, EPOLL_CTL_ADD, &x->o->file, 0, &ev) == 0);
	must(pollux_ep_ctl(own, EPOLL_CTL_ADD, &x->o->file, 0, &ev) == -EEXIST);
	must(got_one(own) == 'O');
	pollux_file_wake(&x->o->file, EPOLLIN);
	must(got_one(own) == 'O');
	ev.data.u64 = 'L';
	must(pollux_ep_ctl(own, EPOLL_CTL_ADD, &x->l.file, 0, &ev) == 0);
	pollux_level_set(&x->l, EPOLLIN);
	must(got_one(own) == 'L');
	must(pollux_ep_watches() == 3);
	must(pollux_ep_wait(own, &ev, 1, 0) == 0);
	must(pollux_ep_del(own, &x->l.file, 0) == 1);
	/* A sleep for one has a watch of its own. */
	must(pollux_efd_read(x->e, &v, 1) == 0 && v == 1);
	must(watch_calls == 0);
	/* The reference of the watch is there still. */
	obj_put(x->o);
	must(x->released == 0);
	must(pollux_watch_del(&x->w) == 0 && pollux_watch_del(&x->w) == 0);
	pollux_watch_del_sync(&x->w);
	must(x->released == 1);
	pollux_quiesce();
	must(x->freed == 1);
	pollux_file_put(pollux_efd_file(x->e));
	pollux_ep_put(own);
	pollux_quiesce();
	must(pollux_ep_watches() == 0);
}

static void files_go_on(void **state)
{
	(void)state;
	for (enum how how = LIBC; how < HOWS; how++)
		in_child(how, files_go_on_child);
}

/* Nothing was done with the file but that. */
static void the_last_put_comes_first_child(struct world *x)
{
	must(pollux_watch_del(&x->w) == 0);
	must(x->released == 0);
	obj_put(x->o);
	must(x->released == 1);
	pollux_quiesce();
	must(x->freed == 1);
	pollux_ep_put(x->ep);
}

static void the_last_put_comes_first(void **state)
{
	(void)state;
	for (enum how how = LIBC; how < HOWS; how++)
		in_child(how, the_last_put_comes_first_child);
}

/* A watch of before, and one of after, on one file. */
static void watches_are_added_anew_child(struct world *x)
{
	struct pollux_watch w;

	must(pollux_watch_add(&w, &x->o->file, EPOLLIN, watch_call) == EPOLLIN);
	pollux_file_wake(&x->o->file, EPOLLIN);
	must(watch_calls == 1);
	pollux_watch_del_sync(&x->w);
	pollux_file_wake(&x->o->file, EPOLLIN);
	must(watch_calls == 2);
	must(pollux_watch_del(&w) == 0);
	pollux_file_wake(&x->o->file, EPOLLIN);
	must(watch_calls == 2);
}

static void watches_are_added_anew(void **state)
{
	(void)state;
	for (enum how how = LIBC; how < HOWS; how++)
		in_child(how, watches_are_added_anew_child);
}

/* So it is in the child of the child. */
static void grandchild(struct world *x)
{
	struct epoll_event ev = {.events = EPOLLIN};
	struct pollux_ep *own = NULL;
	int status;
	pid_t pid;

	must(pollux_ep_new(&own, NULL) == 0);
	must(pollux_ep_ctl(own, EPOLL_CTL_ADD, &x->o->file, 0, &ev) == 0);
	pid = fork();
	must(pid >= 0);
	if (pid == 0) {
		must(pollux_ep_wait(own, &ev, 1, 0) == -EOWNERDEAD);
		files_go_on_child(x);
		_exit(0);
	}
	must(waitpid(pid, &status, 0) == pid && status == 0);
	must(pollux_ep_wait(own, &ev, 1, 0) == 1);
}

static void so_it_is_in_the_child_of_the_child(void **state)
{
	(void)state;
	in_child(LIBC, grandchild);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(epolls_are_dead),
		TEST(files_go_on),
		TEST(the_last_put_comes_first),
		TEST(watches_are_added_anew),
		TEST(so_it_is_in_the_child_of_the_child),
	};

	return RUN(tests);
}
