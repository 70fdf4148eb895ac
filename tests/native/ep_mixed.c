/* SPDX-License-Identifier: MIT */
/* Own objects and descriptors of the kernel in one wait. */
#include "native.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct pipe {
	int r, w;
};

static struct pipe pipe_new(void)
{
	int fd[2];

	assert_int_equal(pipe2(fd, O_NONBLOCK | O_CLOEXEC), 0);
	return (struct pipe){fd[0], fd[1]};
}

static void pipe_put(struct pipe p)
{
	close(p.r);
	close(p.w);
}

static void pipe_fill(struct pipe p)
{
	assert_int_equal(write(p.w, "x", 1), 1);
}

static void pipe_drain(struct pipe p)
{
	char c;

	assert_int_equal(read(p.r, &c, 1), 1);
}

static int ctl_fd(struct pollux_ep *ep, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event ev = {.events = events, .data.u64 = data};

	return pollux_ep_ctl_fd(ep, op, fd, &ev);
}

static void add_fd(struct pollux_ep *ep, int fd, uint32_t events, uint64_t data)
{
	assert_int_equal(ctl_fd(ep, EPOLL_CTL_ADD, fd, events, data), 0);
}

static int del_fd(struct pollux_ep *ep, int fd)
{
	return pollux_ep_ctl_fd(ep, EPOLL_CTL_DEL, fd, NULL);
}

static int descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* --- both sides ---------------------------------------------------------------------- */

static void a_wait_has_events_of_both_sides(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct pipe p = pipe_new();

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'o');
	add_fd(ep, p.r, EPOLLIN, 'p');
	assert_none(ep);
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_order(ep, 8, "o");
	pipe_fill(p);
	assert_order(ep, 8, "po");
	assert_order(ep, 2, "po");
	obj_set(o, 0);
	assert_order(ep, 8, "p");
	pipe_drain(p);
	assert_none(ep);
	assert_int_equal(del_fd(ep, p.r), 0);
	pipe_fill(p);
	assert_none(ep);
	ep_put(ep);
	obj_put(o);
	pipe_put(p);
}

/* The kernel's own epoll is asked the same, and has to say the same. */
static void a_call_on_a_descriptor_says_what_the_kernel_says(void **state)
{
	struct pollux_ep *ep = ep_new();
	int epfd = epoll_create1(EPOLL_CLOEXEC), file = open("/proc/self/stat", O_RDONLY);
	struct pipe p = pipe_new();
	const struct {
		int op, fd;
		uint32_t events;
	} call[] = {
		{EPOLL_CTL_MOD, p.r, EPOLLIN},
		{EPOLL_CTL_DEL, p.r, 0},
		{99, p.r, EPOLLIN},
		{EPOLL_CTL_ADD, p.r, EPOLLIN},
		{EPOLL_CTL_ADD, p.r, EPOLLIN},
		{EPOLL_CTL_MOD, p.r, EPOLLIN | EPOLLEXCLUSIVE},
		{EPOLL_CTL_ADD, p.w, EPOLLOUT | EPOLLONESHOT | EPOLLEXCLUSIVE},
		{EPOLL_CTL_ADD, p.w, EPOLLOUT | EPOLLEXCLUSIVE},
		{EPOLL_CTL_MOD, p.w, EPOLLOUT},
		{EPOLL_CTL_ADD, -1, EPOLLIN},
		{EPOLL_CTL_ADD, 100000, EPOLLIN},
		{EPOLL_CTL_DEL, 100000, EPOLLIN},
		{EPOLL_CTL_ADD, file, EPOLLIN},
		{EPOLL_CTL_DEL, p.r, 0},
		{EPOLL_CTL_DEL, p.r, 0},
		{EPOLL_CTL_ADD, p.r, EPOLLIN | EPOLLET},
	};

	(void)state;
	assert_true(file >= 0);
	for (size_t i = 0; i < sizeof(call) / sizeof(*call); i++) {
		struct epoll_event ev = {.events = call[i].events, .data.u64 = i};
		int want = epoll_ctl(epfd, call[i].op, call[i].fd, &ev) == 0 ? 0 : -errno;

		assert_int_equal(pollux_ep_ctl_fd(ep, call[i].op, call[i].fd, &ev), want);
	}
	assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, p.r, NULL), -EFAULT);
	assert_int_equal(pollux_ep_ctl_fd(ep, EPOLL_CTL_MOD, p.r, NULL), -EFAULT);
	close(epfd);
	close(file);
	pipe_put(p);
	ep_put(ep);
}

static void masks_and_data_are_the_kernels(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pipe p = pipe_new();
	int dup_r;

	(void)state;
	add_fd(ep, p.r, EPOLLIN | EPOLLET, 'e');
	pipe_fill(p);
	assert_one(ep, EPOLLIN, 'e');
	assert_none(ep);
	assert_int_equal(ctl_fd(ep, EPOLL_CTL_MOD, p.r, EPOLLIN | EPOLLONESHOT, 'o'), 0);
	assert_one(ep, EPOLLIN, 'o');
	assert_none(ep);
	assert_int_equal(ctl_fd(ep, EPOLL_CTL_MOD, p.r, EPOLLIN, ~0ull), 0);
	assert_one(ep, EPOLLIN, ~0ull);
	/* A registration whose number has gone lives on with its file, and tells its own data. */
	dup_r = dup(p.r);
	close(p.r);
	assert_one(ep, EPOLLIN, ~0ull);
	p.r = dup_r;
	add_fd(ep, p.r, EPOLLIN, 'd');
	assert_order(ep, 1, "\377");
	pipe_put(p);
	assert_none(ep);
	ep_put(ep);
}

static void an_epoll_without_descriptors_has_none(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[64];
	struct pipe p = pipe_new();
	int before = descriptors();

	(void)state;
	for (int i = 0; i < 64; i++) {
		o[i] = obj_new(EPOLLIN);
		ep_add(ep, &o[i]->file, 0, EPOLLIN, 'o');
	}
	assert_int_equal(descriptors(), before);
	add_fd(ep, p.r, EPOLLIN, 'p');
	add_fd(ep, p.w, EPOLLIN, 'p');
	assert_int_equal(descriptors(), before + 2);
	for (int i = 0; i < 64; i++)
		obj_put(o[i]);
	ep_put(ep);
	pollux_quiesce();
	assert_int_equal(descriptors(), before);
	/* Many that come and go do not keep theirs. */
	for (int i = 0; i < 200; i++) {
		ep = ep_new();
		add_fd(ep, p.r, EPOLLIN, 'p');
		ep_put(ep);
		assert_true(descriptors() < before + 32);
	}
	pollux_quiesce();
	assert_int_equal(descriptors(), before);
	pipe_put(p);
}

static void its_own_descriptors_are_close_on_exec_and_nobodys(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pipe p = pipe_new();
	bool was[1024];
	int mine = 0;

	(void)state;
	for (int fd = 0; fd < 1024; fd++)
		was[fd] = fcntl(fd, F_GETFD) >= 0;
	add_fd(ep, p.r, EPOLLIN, 'p');
	for (int fd = 0; fd < 1024; fd++) {
		if (was[fd] || fcntl(fd, F_GETFD) < 0)
			continue;
		mine++;
		assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
		assert_int_equal(ctl_fd(ep, EPOLL_CTL_ADD, fd, EPOLLIN, 'x'), -EBADF);
		assert_int_equal(ctl_fd(ep, EPOLL_CTL_MOD, fd, EPOLLIN, 'x'), -EBADF);
		assert_int_equal(del_fd(ep, fd), -EBADF);
	}
	assert_int_equal(mine, 2);
	ep_put(ep);
	pipe_put(p);
}

/* Two descriptors, or nothing. */
static void without_descriptors_there_is_no_side(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pipe p = pipe_new();
	struct rlimit old, few;
	int before = descriptors(), next = dup(p.r);

	(void)state;
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	for (int left = 0; left < 2; left++) {
		few = (struct rlimit){next + left, old.rlim_max};
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		assert_int_equal(ctl_fd(ep, EPOLL_CTL_ADD, p.r, EPOLLIN, 'p'), -EMFILE);
		assert_int_equal(pollux_ep_fd(ep), -EMFILE);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		assert_int_equal(descriptors(), before);
	}
	add_fd(ep, p.r, EPOLLIN, 'p');
	pipe_fill(p);
	assert_order(ep, 8, "p");
	ep_put(ep);
	pipe_put(p);
}

/* --- shares ------------------------------------------------------------------------------ */

/* Objects and pipes that are always ready: how many waits of each window of two lack a side. */
static void shares(int files, int pipes, int max)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[16];
	struct pipe p[16];
	int missed_o = 0, missed_p = 0;

	for (int i = 0; i < files; i++) {
		o[i] = obj_new(EPOLLIN);
		ep_add(ep, &o[i]->file, 0, EPOLLIN, 'o');
	}
	for (int i = 0; i < pipes; i++) {
		p[i] = pipe_new();
		pipe_fill(p[i]);
		add_fd(ep, p[i].r, EPOLLIN, 'p');
	}
	for (int i = 0; i < 1000; i++) {
		struct epoll_event ev[32];
		int n = pollux_ep_wait(ep, ev, max, i & 1 ? POLLUX_FOREVER : 0);
		bool has_o = false, has_p = false;

		assert_true(n > 0 && n <= max);
		/* No place is left while there is something for it. */
		assert_int_equal(n, files + pipes < max ? files + pipes : max);
		for (int k = 0; k < n; k++) {
			has_o |= ev[k].data.u64 == 'o';
			has_p |= ev[k].data.u64 == 'p';
		}
		missed_o = has_o ? 0 : missed_o + 1;
		missed_p = has_p ? 0 : missed_p + 1;
		assert_true(missed_o < 2 && missed_p < 2);
		if (max > 1)
			assert_true(has_o && has_p);
	}
	for (int i = 0; i < files; i++)
		obj_put(o[i]);
	for (int i = 0; i < pipes; i++)
		pipe_put(p[i]);
	ep_put(ep);
}

static void a_busy_side_does_not_starve_the_other(void **state)
{
	(void)state;
	for (int max = 1; max <= 20; max++) {
		shares(1, 1, max);
		shares(16, 1, max);
		shares(1, 16, max);
		shares(16, 16, max);
	}
}

/* A file that becomes ready again each time it has been reported, by a thread of its own. */
struct busy {
	struct obj *o;
	int stop;
};

static void busy_main(struct thread *t)
{
	struct busy *b = t->arg;

	while (!__atomic_load_n(&b->stop, __ATOMIC_SEQ_CST)) {
		obj_fire(b->o, EPOLLIN, EPOLLIN);
		sched_yield();
	}
}

static void edges_of_another_thread_do_not_starve_a_pipe(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct busy b = {.o = obj_new(EPOLLIN)};
	struct pipe p = pipe_new();
	struct thread t;

	(void)state;
	ep_add(ep, &b.o->file, 0, EPOLLIN | EPOLLET, 'o');
	add_fd(ep, p.r, EPOLLIN, 'p');
	thread_start(&t, busy_main, &b);
	for (int max = 1; max <= 2; max++) {
		for (int i = 0; i < 300; i++) {
			struct epoll_event ev[2];
			int seen = 0;

			pipe_fill(p);
			for (int k = 0; k < 2 && !seen; k++) {
				int n = pollux_ep_wait(ep, ev, max, POLLUX_FOREVER);

				for (int j = 0; j < n; j++)
					seen |= ev[j].data.u64 == 'p';
			}
			assert_true(seen);
			pipe_drain(p);
		}
	}
	__atomic_store_n(&b.stop, 1, __ATOMIC_SEQ_CST);
	thread_join(&t);
	ep_put(ep);
	obj_put(b.o);
	pipe_put(p);
}

/* --- sleeps ---------------------------------------------------------------------------- */

static void each_side_ends_a_sleep(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct pipe p = pipe_new();

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'o');
	add_fd(ep, p.r, EPOLLIN, 'p');
	for (int i = 0; i < 20; i++) {
		struct waiter *w = waiter_new(ep, 1 + i % 3);

		if (i % 2)
			obj_fire(o, EPOLLIN, EPOLLIN);
		else
			pipe_fill(p);
		waiter_gets(w, i % 2 ? 'o' : 'p');
		if (i % 2)
			obj_set(o, 0);
		else
			pipe_drain(p);
		assert_none(ep);
	}
	ep_put(ep);
	obj_put(o);
	pipe_put(p);
}

static void the_first_descriptor_comes_while_threads_sleep(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		struct pollux_ep *ep = ep_new();
		struct obj *o = obj_new(0);
		struct pipe p = pipe_new();
		struct waiter *w[3];
		int first;

		ep_add(ep, &o->file, 0, EPOLLIN, 'o');
		for (int k = 0; k < 3; k++)
			w[k] = waiter_new(ep, 1);
		if (i % 2)
			pipe_fill(p);
		add_fd(ep, p.r, EPOLLIN | EPOLLET, 'p');
		if (!(i % 2))
			pipe_fill(p);
		first = waiters_first(w, 3);
		assert_int_equal(w[first]->n, 1);
		assert_int_equal(w[first]->ev[0].data.u64, 'p');
		free(w[first]);
		w[first] = NULL;
		obj_fire(o, EPOLLIN, EPOLLIN);
		for (int k = 0; k < 3; k++)
			if (w[k])
				waiter_gets(w[k], 'o');
		ep_put(ep);
		obj_put(o);
		pipe_put(p);
	}
}

static void one_event_wakes_one_sleeper(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct pipe p = pipe_new();
	struct waiter *w[2];
	int first;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'o');
	add_fd(ep, p.r, EPOLLIN | EPOLLET, 'p');
	w[0] = waiter_new(ep, 1);
	w[1] = waiter_new(ep, 1);
	obj_fire(o, EPOLLIN, EPOLLIN);
	first = waiters_first(w, 2);
	assert_int_equal(w[first]->ev[0].data.u64, 'o');
	free(w[first]);
	waiter_stays(w[!first]);
	pipe_fill(p);
	waiter_gets(w[!first], 'p');
	ep_put(ep);
	obj_put(o);
	pipe_put(p);
}

static void time_outs_are_kept(void **state)
{
	static const int64_t ns[] = {1, 1500000, 20000000, 33333333};
	struct pollux_ep *ep = ep_new();
	struct pipe p = pipe_new();
	struct epoll_event ev;
	int64_t start;

	(void)state;
	add_fd(ep, p.r, EPOLLIN, 'p');
	for (int i = 0; i < 4; i++) {
		start = now_ns();
		assert_int_equal(pollux_ep_wait(ep, &ev, 1, ns[i]), 0);
		assert_true(now_ns() - start >= ns[i]);
	}
	assert_int_equal(pollux_ep_wait(ep, &ev, 0, 0), -EINVAL);
	assert_int_equal(pollux_ep_wait(ep, &ev, -1, -1), -EINVAL);
	pipe_fill(p);
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, INT64_MAX), 1);
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, 1), 1);
	pipe_drain(p);
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, 1), 0);
	start = now_ns();
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, start + 20000000), 0);
	assert_true(now_ns() >= start + 20000000);
	ep_put(ep);
	pipe_put(p);
}

static int handled;
static struct obj *fires;

static void on_signal(int sig)
{
	struct obj *o = __atomic_load_n(&fires, __ATOMIC_ACQUIRE);

	(void)sig;
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
	if (o)
		pollux_file_wake(&o->file, EPOLLIN);
}

static void signals_end_a_sleep(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct pipe p = pipe_new();
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	(void)state;
	sigaction(SIGUSR1, &sa, NULL);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'o');
	add_fd(ep, p.r, EPOLLIN, 'p');
	for (int i = 0; i < 2; i++) {
		struct waiter *w = waiter_new(ep, 1);

		/* What the handler has made is there for the next wait. */
		if (i) {
			obj_set(o, EPOLLIN);
			__atomic_store_n(&fires, o, __ATOMIC_RELEASE);
		}
		pthread_kill(w->t.id, SIGUSR1);
		thread_join(&w->t);
		if (i && w->n == 1)
			assert_int_equal(w->ev[0].data.u64, 'o');
		else
			assert_int_equal(w->n, -EINTR);
		if (i && w->n < 0)
			assert_one(ep, EPOLLIN, 'o');
		free(w);
	}
	assert_int_equal(handled, 2);
	__atomic_store_n(&fires, NULL, __ATOMIC_RELEASE);
	signal(SIGUSR1, SIG_DFL);
	ep_put(ep);
	obj_put(o);
	pipe_put(p);
}

static void a_wait_outlives_the_last_put(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pipe p = pipe_new();
	struct waiter *w;

	(void)state;
	add_fd(ep, p.r, EPOLLIN, 'p');
	w = waiter_new(ep, 1);
	ep_put(ep);
	pipe_fill(p);
	waiter_gets(w, 'p');
	pipe_put(p);
}

/* --- shutdown ----------------------------------------------------------------------------- */

static void a_shutdown_ends_all_waits(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++) {
		struct pollux_ep *ep = ep_new();
		struct obj *o = obj_new(0);
		struct pipe p = pipe_new();
		struct waiter *w[5];
		struct epoll_event ev;

		ep_add(ep, &o->file, 0, EPOLLIN, 'o');
		add_fd(ep, p.r, EPOLLIN, 'p');
		for (int k = 0; k < 5; k++)
			w[k] = waiter_new(ep, 1 + k % 2);
		pollux_ep_shutdown(ep);
		/* What comes after it is nobody's, on either side. */
		if (i % 2)
			pipe_fill(p);
		else
			obj_fire(o, EPOLLIN, EPOLLIN);
		for (int k = 0; k < 5; k++) {
			thread_join(&w[k]->t);
			assert_int_equal(w[k]->n, -ESHUTDOWN);
			free(w[k]);
		}
		assert_int_equal(pollux_ep_wait(ep, &ev, 1, 0), -ESHUTDOWN);
		assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), -ESHUTDOWN);
		assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, POLLUX_FOREVER), -ESHUTDOWN);
		assert_int_equal(pollux_ep_wait(ep, &ev, 0, 0), -EINVAL);
		/* Nothing else changes. */
		assert_int_equal(ctl_fd(ep, EPOLL_CTL_MOD, p.r, EPOLLIN, 'q'), 0);
		assert_int_equal(del_fd(ep, p.r), 0);
		assert_int_equal(ep_del(ep, &o->file, 0), 0);
		ep_put(ep);
		obj_put(o);
		pipe_put(p);
	}
}

/* One that was shut down before it got a side. */
static void a_shutdown_before_the_first_descriptor(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct pipe p = pipe_new();
	struct epoll_event ev;

	(void)state;
	pollux_ep_shutdown(ep);
	pipe_fill(p);
	add_fd(ep, p.r, EPOLLIN, 'p');
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, 0), -ESHUTDOWN);
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), -ESHUTDOWN);
	ep_put(ep);
	pipe_put(p);
}

static struct pollux_ep *to_shut;

static void shuts_down(int sig)
{
	(void)sig;
	pollux_ep_shutdown(to_shut);
}

static void a_handler_may_shut_down(void **state)
{
	struct sigaction sa = {.sa_handler = shuts_down}, old;
	struct pipe p = pipe_new();
	struct waiter *w[2];

	(void)state;
	to_shut = ep_new();
	sigaction(SIGUSR1, &sa, &old);
	add_fd(to_shut, p.r, EPOLLIN, 'p');
	w[0] = waiter_new(to_shut, 1);
	w[1] = waiter_new(to_shut, 1);
	pthread_kill(w[0]->t.id, SIGUSR1);
	for (int i = 0; i < 2; i++) {
		thread_join(&w[i]->t);
		assert_int_equal(w[i]->n, -ESHUTDOWN);
		free(w[i]);
	}
	sigaction(SIGUSR1, &old, NULL);
	ep_put(to_shut);
	pipe_put(p);
}

/* --- nesting ------------------------------------------------------------------------------ */

static void no_file_hears_of_descriptors_so_none_watches_them(void **state)
{
	struct pollux_ep *outer = ep_new(), *inner = ep_new(), *plain = ep_new();
	struct obj *o = obj_new(0);
	struct pipe p = pipe_new();

	(void)state;
	add_fd(inner, p.r, EPOLLIN, 'p');
	assert_int_equal(ep_ctl(outer, EPOLL_CTL_ADD, pollux_ep_file(inner), 0, EPOLLIN, 'i'),
			 -EOPNOTSUPP);
	ep_add(outer, pollux_ep_file(plain), 0, EPOLLIN, 'n');
	assert_int_equal(ctl_fd(plain, EPOLL_CTL_ADD, p.r, EPOLLIN, 'p'), -EOPNOTSUPP);
	assert_int_equal(pollux_ep_fd(plain), -EOPNOTSUPP);
	/* The outer one may have descriptors; and what is not watched any more. */
	add_fd(outer, p.r, EPOLLIN, 'p');
	/* That it would be a circle goes before. */
	assert_int_equal(ep_ctl(plain, EPOLL_CTL_ADD, pollux_ep_file(outer), 0, EPOLLIN, 'c'),
			 -ELOOP);
	ep_add(plain, &o->file, 0, EPOLLIN, 'o');
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_order(outer, 8, "n");
	assert_int_equal(ep_del(outer, pollux_ep_file(plain), 0), 0);
	add_fd(plain, p.r, EPOLLIN, 'p');
	ep_put(outer);
	ep_put(inner);
	ep_put(plain);
	obj_put(o);
	pipe_put(p);
}

static void epolls_nest_by_their_descriptors(void **state)
{
	struct pollux_ep *outer = ep_new(), *inner = ep_new();
	struct obj *o = obj_new(0);
	struct pipe p = pipe_new();
	struct waiter *w;

	(void)state;
	ep_add(inner, &o->file, 0, EPOLLIN, 'o');
	add_fd(inner, p.r, EPOLLIN, 'p');
	add_fd(outer, pollux_ep_fd(inner), EPOLLIN, 'i');
	assert_int_equal(ctl_fd(inner, EPOLL_CTL_ADD, pollux_ep_fd(outer), EPOLLIN, 'x'), -ELOOP);
	w = waiter_new(outer, 1);
	obj_fire(o, EPOLLIN, EPOLLIN);
	waiter_gets(w, 'i');
	assert_order(inner, 8, "o");
	obj_set(o, 0);
	assert_none(inner);
	w = waiter_new(outer, 1);
	pipe_fill(p);
	waiter_gets(w, 'i');
	assert_order(inner, 8, "p");
	ep_put(outer);
	ep_put(inner);
	obj_put(o);
	pipe_put(p);
}

static void a_host_that_parks_by_itself_has_no_descriptors(void **state)
{
	const struct pollux_host host = host_of_no_time();
	const struct pollux_ep_attr attr = {.size = sizeof(attr), .host = &host};
	struct pollux_ep *ep;

	(void)state;
	assert_int_equal(pollux_ep_new(&ep, &attr), 0);
	assert_int_equal(ctl_fd(ep, EPOLL_CTL_ADD, 0, EPOLLIN, 0), -EOPNOTSUPP);
	assert_int_equal(pollux_ep_fd(ep), -EOPNOTSUPP);
	ep_put(ep);
}

/* --- a descriptor for foreign loops ---------------------------------------------------------- */

static void the_descriptor_is_readable_while_an_event_waits(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN), *q = obj_new(0);
	struct pipe p = pipe_new();
	int fd;

	(void)state;
	/* An event is there before the descriptor is. */
	ep_add(ep, &o->file, 0, EPOLLIN, 'o');
	ep_add(ep, &q->file, 0, EPOLLIN | EPOLLET, 'q');
	fd = pollux_ep_fd(ep);
	assert_true(fd >= 0);
	assert_int_equal(pollux_ep_fd(ep), fd);
	for (int i = 0; i < 5; i++) {
		assert_true(readable_within(fd, 0));
		assert_order(ep, 8, "o");
	}
	obj_set(o, 0);
	assert_none(ep);
	assert_false(readable_within(fd, 0));
	for (int i = 0; i < 5; i++) {
		obj_fire(q, EPOLLIN, EPOLLIN);
		assert_true(readable_within(fd, 0));
		pollux_file_wake(&q->file, EPOLLIN);
		assert_true(readable_within(fd, 0));
		assert_order(ep, 8, "q");
		assert_false(readable_within(fd, 0));
	}
	/* What does not fit keeps it readable. */
	obj_fire(o, EPOLLIN, EPOLLIN);
	obj_fire(q, EPOLLIN, EPOLLIN);
	assert_order(ep, 1, "o");
	assert_true(readable_within(fd, 0));
	assert_order(ep, 1, "q");
	assert_true(readable_within(fd, 0));
	obj_set(o, 0);
	assert_none(ep);
	assert_false(readable_within(fd, 0));
	/* A descriptor's event. */
	add_fd(ep, p.r, EPOLLIN, 'p');
	assert_false(readable_within(fd, 0));
	pipe_fill(p);
	assert_true(readable_within(fd, 0));
	assert_order(ep, 8, "p");
	assert_true(readable_within(fd, 0));
	pipe_drain(p);
	assert_false(readable_within(fd, 0));
	ep_put(ep);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	obj_put(o);
	obj_put(q);
	pipe_put(p);
}

/* A wait that takes the ring, and whose one place a pipe has. */
static void what_a_full_wait_leaves_keeps_it_readable(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct pipe p = pipe_new();
	int fd = pollux_ep_fd(ep);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'o');
	add_fd(ep, p.r, EPOLLIN | EPOLLET, 'p');
	obj_fire(o, EPOLLIN, EPOLLIN);
	pipe_fill(p);
	assert_order(ep, 1, "p");
	assert_true(readable_within(fd, 0));
	assert_order(ep, 1, "o");
	assert_none(ep);
	assert_false(readable_within(fd, 0));
	ep_put(ep);
	obj_put(o);
	pipe_put(p);
}

struct poller {
	struct thread t;
	int fd;
	int n;
};

static void poller_main(struct thread *t)
{
	struct poller *me = t->arg;
	struct pollfd p = {.fd = me->fd, .events = POLLIN};

	me->n = poll(&p, 1, -1);
}

static void a_wake_ends_a_foreign_sleep(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'o');
	for (int i = 0; i < 10; i++) {
		struct poller p = {.fd = pollux_ep_fd(ep)};

		thread_start(&p.t, poller_main, &p);
		assert_true(thread_asleep(&p.t));
		obj_fire(o, EPOLLIN, EPOLLIN);
		thread_join(&p.t);
		assert_int_equal(p.n, 1);
		assert_order(ep, 8, "o");
		assert_false(readable_within(p.fd, 0));
	}
	ep_put(ep);
	obj_put(o);
}

static void a_shutdown_reaches_the_foreign_loop(void **state)
{
	(void)state;
	/* Beside one who sleeps as well, alone, and when it asks late. */
	for (int i = 0; i < 3; i++) {
		struct pollux_ep *ep = ep_new();
		struct epoll_event ev;
		struct waiter *w = NULL;
		int fd = -1;

		if (i < 2)
			fd = pollux_ep_fd(ep);
		if (!i)
			w = waiter_new(ep, 1);
		pollux_ep_shutdown(ep);
		if (w) {
			thread_join(&w->t);
			assert_int_equal(w->n, -ESHUTDOWN);
			free(w);
		}
		if (i == 2)
			fd = pollux_ep_fd(ep);
		assert_true(fd >= 0);
		assert_true(readable_within(fd, 0));
		assert_int_equal(pollux_ep_wait(ep, &ev, 1, 0), -ESHUTDOWN);
		assert_true(readable_within(fd, 0));
		ep_put(ep);
	}
}

/* --- fork ---------------------------------------------------------------------------------- */

static int child(struct pollux_ep *ep, struct obj *o, struct pipe p)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 'c'};
	struct pollux_ep *own;
	struct obj *mine = calloc(1, sizeof(*mine));

	/* Nothing of this reaches the parent's set, or its sleeper. */
	if (pollux_ep_wait(ep, &ev, 1, 0) != -EOWNERDEAD ||
	    pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER) != -EOWNERDEAD ||
	    pollux_ep_ctl_fd(ep, EPOLL_CTL_DEL, p.r, NULL) != -EOWNERDEAD ||
	    pollux_ep_fd(ep) != -EOWNERDEAD)
		return 1;
	pollux_file_wake(&o->file, EPOLLIN);
	/* The child's own. */
	ev.data.u64 = 'c';
	pollux_file_init(&mine->file, &obj_ops);
	if (pollux_ep_new(&own, NULL) || pollux_ep_ctl(own, EPOLL_CTL_ADD, &mine->file, 0, &ev) ||
	    pollux_ep_ctl_fd(own, EPOLL_CTL_ADD, p.r, &ev) || pollux_ep_wait(own, &ev, 1, 0) != 0)
		return 2;
	if (write(p.w, "x", 1) != 1 || pollux_ep_wait(own, &ev, 1, POLLUX_FOREVER) != 1 ||
	    ev.data.u64 != 'c' || read(p.r, &ev, 1) != 1)
		return 3;
	obj_fire(mine, EPOLLIN, EPOLLIN);
	if (pollux_ep_wait(own, &ev, 1, POLLUX_FOREVER) != 1 || pollux_ep_fd(own) < 0 ||
	    !readable_within(pollux_ep_fd(own), 0))
		return 4;
	pollux_file_put(pollux_ep_file(own));
	pollux_file_put(pollux_ep_file(ep));
	return 0;
}

static void the_child_of_a_fork_has_no_side_but_its_own(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct pipe p = pipe_new(), q = pipe_new();
	struct waiter *w;
	sigset_t chld, old;
	pid_t pid;

	(void)state;
	/* It is blocked in this thread within fork, and may then interrupt the other. */
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &chld, &old);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'o');
	add_fd(ep, q.r, EPOLLIN, 'q');
	w = waiter_new(ep, 1);
	pid = fork();
	if (pid == 0)
		_exit(child(ep, o, p));
	child_passes(pid);
	/* Its put has not closed anything here. */
	waiter_stays(w);
	obj_fire(o, EPOLLIN, EPOLLIN);
	waiter_gets(w, 'o');
	pipe_fill(q);
	assert_order(ep, 8, "q");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	ep_put(ep);
	obj_put(o);
	pipe_put(p);
	pipe_put(q);
}

/* What epoll_pwait2 does from now on. */
static void answer(uint32_t action)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0);
}

static void a_call_that_the_kernel_does_not_know_is_made_once(void **state)
{
	pid_t pid = fork();

	(void)state;
	if (pid == 0) {
		struct epoll_event ev = {.events = EPOLLIN};
		struct pollux_ep *ep;
		int fd = eventfd(0, EFD_CLOEXEC);

		must(pollux_ep_new(&ep, NULL) == 0);
		must(pollux_ep_ctl_fd(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
		answer(SECCOMP_RET_ERRNO | ENOSYS);
		must(pollux_ep_wait(ep, &ev, 1, 1000000) == 0);
		answer(SECCOMP_RET_KILL_PROCESS);
		must(pollux_ep_wait(ep, &ev, 1, 1000000) == 0);
		_exit(0);
	}
	child_passes(pid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_wait_has_events_of_both_sides),
		TEST(a_call_on_a_descriptor_says_what_the_kernel_says),
		TEST(masks_and_data_are_the_kernels),
		TEST(an_epoll_without_descriptors_has_none),
		TEST(its_own_descriptors_are_close_on_exec_and_nobodys),
		TEST(without_descriptors_there_is_no_side),
		TEST(a_busy_side_does_not_starve_the_other),
		TEST(edges_of_another_thread_do_not_starve_a_pipe),
		TEST(each_side_ends_a_sleep),
		TEST(the_first_descriptor_comes_while_threads_sleep),
		TEST(one_event_wakes_one_sleeper),
		TEST(time_outs_are_kept),
		TEST(signals_end_a_sleep),
		TEST(a_wait_outlives_the_last_put),
		TEST(a_shutdown_ends_all_waits),
		TEST(a_shutdown_before_the_first_descriptor),
		TEST(a_handler_may_shut_down),
		TEST(no_file_hears_of_descriptors_so_none_watches_them),
		TEST(epolls_nest_by_their_descriptors),
		TEST(a_host_that_parks_by_itself_has_no_descriptors),
		TEST(the_descriptor_is_readable_while_an_event_waits),
		TEST(what_a_full_wait_leaves_keeps_it_readable),
		TEST(a_wake_ends_a_foreign_sleep),
		TEST(a_shutdown_reaches_the_foreign_loop),
		TEST(the_child_of_a_fork_has_no_side_but_its_own),
		TEST(a_call_that_the_kernel_does_not_know_is_made_once),
	};

	return RUN(tests);
}
