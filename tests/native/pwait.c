/* SPDX-License-Identifier: MIT */
/*
 * The signal mask of a wait is that of epoll_pwait. Each case is tried with the kernel's own epoll,
 * with files alone, with files and a descriptor, and for pollux_ep_collect.
 */
#include "native.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

enum side { KERNEL, FILES, BOTH, COLLECT, SIDES };

struct set {
	enum side side;
	int epfd, efd;
	struct pollux_ep *ep;
	struct obj *o;
};

static int handled;
static int saw_usr2;

static void on_signal(int sig)
{
	sigset_t now;

	(void)sig;
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	__atomic_store_n(&saw_usr2, sigismember(&now, SIGUSR2), __ATOMIC_RELAXED);
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

/* ThreadSanitizer runs a handler at the next call of libc that it knows. */
static int handlers_run(void)
{
	sleep_ms(1);
	return __atomic_load_n(&handled, __ATOMIC_RELAXED);
}

static struct set set_new(enum side side)
{
	struct set s = {.side = side, .efd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .epfd = -1};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 'd'};
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	assert_true(s.efd >= 0);
	if (side == KERNEL) {
		s.epfd = epoll_create1(EPOLL_CLOEXEC);
		assert_int_equal(epoll_ctl(s.epfd, EPOLL_CTL_ADD, s.efd, &ev), 0);
	} else {
		s.ep = ep_new();
		s.o = obj_new(0);
		ep_add(s.ep, &s.o->file, 0, EPOLLIN, 'd');
		if (side == BOTH)
			assert_int_equal(pollux_ep_ctl_fd(s.ep, EPOLL_CTL_ADD, s.efd, &ev), 0);
	}
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGUSR2, &sa, NULL);
	handled = 0;
	saw_usr2 = -1;
	return s;
}

static void set_put(struct set *s)
{
	if (s->side == KERNEL) {
		close(s->epfd);
	} else {
		ep_put(s->ep);
		obj_put(s->o);
	}
	close(s->efd);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGUSR2, SIG_DFL);
}

static void set_ready(struct set *s)
{
	uint64_t one = 1;

	if (s->side == FILES || s->side == COLLECT)
		obj_fire(s->o, EPOLLIN, EPOLLIN);
	else
		assert_int_equal(write(s->efd, &one, sizeof(one)), sizeof(one));
}

static int takes_d(void *arg, uint32_t events, uint64_t data)
{
	(void)arg;
	return events == EPOLLIN && data == 'd' ? 0 : -EIO;
}

static int set_wait(struct set *s, int64_t ns, const sigset_t *mask)
{
	struct epoll_event ev[4];

	if (s->side == KERNEL) {
		int n = epoll_pwait(s->epfd, ev, 4, ns < 0 ? -1 : (int)(ns / 1000000), mask);

		return n < 0 ? -errno : n;
	}
	if (s->side == COLLECT)
		return pollux_ep_collect(s->ep, takes_d, NULL, 4, ns > 0 ? now_ns() + ns : ns,
					 mask);
	return pollux_ep_pwait(s->ep, ev, 4, ns, mask);
}

static sigset_t mask_of(int sig)
{
	sigset_t m;

	sigemptyset(&m);
	if (sig)
		sigaddset(&m, sig);
	return m;
}

static bool pending(int sig)
{
	sigset_t m;

	sigpending(&m);
	return sigismember(&m, sig);
}

/* SIGUSR1 is blocked and pending from here to unblock. */
static void block_and_raise(void)
{
	sigset_t usr1 = mask_of(SIGUSR1);

	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	pthread_kill(pthread_self(), SIGUSR1);
	assert_true(pending(SIGUSR1));
}

static void unblock(void)
{
	sigset_t usr1 = mask_of(SIGUSR1);

	pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
}

static bool blocked(int sig)
{
	sigset_t now;

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	return sigismember(&now, sig);
}

/* --- cases ------------------------------------------------------------------------- */

/* EP-SIG-06: and the handler runs under the mask of the call. */
static void a_pending_signal_ends_the_sleep(void **state)
{
	sigset_t usr2 = mask_of(SIGUSR2);

	(void)state;
	for (enum side side = KERNEL; side < SIDES; side++) {
		struct set s = set_new(side);

		block_and_raise();
		assert_int_equal(set_wait(&s, POLLUX_FOREVER, &usr2), -EINTR);
		assert_int_equal(handlers_run(), 1);
#ifndef __SANITIZE_THREAD__
		assert_int_equal(saw_usr2, 1);
#endif
		assert_true(blocked(SIGUSR1) && !blocked(SIGUSR2));
		unblock();
		assert_int_equal(handlers_run(), 1);
		set_put(&s);
	}
}

/* EP-SIG-01, EP-SIG-06. */
static void events_go_before_it(void **state)
{
	sigset_t none = mask_of(0);

	(void)state;
	for (enum side side = KERNEL; side < SIDES; side++) {
		struct set s = set_new(side);

		block_and_raise();
		set_ready(&s);
		assert_int_equal(set_wait(&s, POLLUX_FOREVER, &none), 1);
		assert_int_equal(handlers_run(), 0);
		assert_true(pending(SIGUSR1));
		unblock();
		assert_int_equal(handlers_run(), 1);
		set_put(&s);
	}
}

/* EP-SIG-05. */
static void a_call_that_does_not_sleep_leaves_it(void **state)
{
	sigset_t none = mask_of(0);

	(void)state;
	for (enum side side = KERNEL; side < SIDES; side++) {
		struct set s = set_new(side);

		block_and_raise();
		assert_int_equal(set_wait(&s, 0, &none), 0);
		assert_int_equal(handlers_run(), 0);
		unblock();
		assert_int_equal(handlers_run(), 1);
		set_put(&s);
	}
}

static void what_it_blocks_does_not_end_the_sleep(void **state)
{
	sigset_t usr1 = mask_of(SIGUSR1);

	(void)state;
	for (enum side side = KERNEL; side < SIDES; side++) {
		struct set s = set_new(side);

		block_and_raise();
		assert_int_equal(set_wait(&s, 2000000, &usr1), 0);
		assert_int_equal(handlers_run(), 0);
		assert_true(pending(SIGUSR1));
		unblock();
		assert_int_equal(handlers_run(), 1);
		set_put(&s);
	}
}

struct sleeper {
	struct thread t;
	struct set *s;
	sigset_t mask;
	int n;
};

static void sleeper_main(struct thread *t)
{
	struct sleeper *p = t->arg;
	sigset_t usr1 = mask_of(SIGUSR1);

	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	p->n = set_wait(p->s, POLLUX_FOREVER, &p->mask);
}

static struct sleeper *sleeper_new(struct set *s, int sig)
{
	struct sleeper *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->s = s;
	p->mask = mask_of(sig);
	thread_start(&p->t, sleeper_main, p);
	assert_true(thread_asleep(&p->t));
	return p;
}

static void a_signal_meets_a_sleep(void **state)
{
	(void)state;
	for (enum side side = KERNEL; side < SIDES; side++) {
		struct set s = set_new(side);
		struct sleeper *p = sleeper_new(&s, 0);

		pthread_kill(p->t.id, SIGUSR1);
		thread_join(&p->t);
		assert_int_equal(p->n, -EINTR);
		assert_int_equal(handlers_run(), 1);
		free(p);
		/* One that the mask blocks meets the next, which an event ends. */
		p = sleeper_new(&s, SIGUSR2);
		pthread_kill(p->t.id, SIGUSR2);
		sleep_ms(QUIET_MS);
		assert_false(thread_done(&p->t));
		assert_int_equal(handlers_run(), 1);
		set_ready(&s);
		thread_join(&p->t);
		assert_int_equal(p->n, 1);
		assert_int_equal(handlers_run(), 2);
		free(p);
		set_put(&s);
	}
}

static void sleeper_until(struct thread *t)
{
	struct sleeper *p = t->arg;
	struct epoll_event ev;

	p->n = pollux_ep_pwait_until(p->s->ep, &ev, 1, POLLUX_FOREVER, &p->mask);
}

/* Those who sleep on the futex when the first comes with a mask are woken as before. */
static void with_and_without_it_they_sleep_side_by_side(void **state)
{
	struct set s = set_new(FILES);
	struct waiter *w = waiter_new(s.ep, 1);
	struct sleeper *p = calloc(1, sizeof(*p));

	(void)state;
	assert_non_null(p);
	p->s = &s;
	p->mask = mask_of(SIGUSR2);
	thread_start(&p->t, sleeper_until, p);
	assert_true(thread_asleep(&p->t));
	assert_true(thread_asleep(&w->t));
	set_ready(&s);
	waiter_gets(w, 'd');
	thread_join(&p->t);
	assert_int_equal(p->n, 1);
	free(p);
	set_put(&s);
}

/* --- what is ours ------------------------------------------------------------------ */

static void a_deadline_and_a_mask(void **state)
{
	struct set s = set_new(FILES);
	sigset_t none = mask_of(0);
	struct epoll_event ev;
	int64_t end = now_ns() + 3000000;

	(void)state;
	assert_int_equal(pollux_ep_pwait_until(s.ep, &ev, 1, 1, &none), 0);
	assert_int_equal(pollux_ep_pwait_until(s.ep, &ev, 1, end, &none), 0);
	assert_true(now_ns() >= end);
	assert_int_equal(pollux_ep_pwait_until(s.ep, &ev, 0, end, &none), -EINVAL);
	assert_int_equal(pollux_ep_pwait(s.ep, &ev, -1, POLLUX_FOREVER, &none), -EINVAL);
	assert_int_equal(pollux_ep_pwait(s.ep, &ev, 1, 0, NULL), 0);
	assert_int_equal(pollux_ep_pwait_until(s.ep, &ev, 1, now_ns() + 100000, NULL), 0);
	set_ready(&s);
	assert_int_equal(pollux_ep_pwait_until(s.ep, &ev, 1, POLLUX_FOREVER, &none), 1);
	pollux_ep_shutdown(s.ep);
	assert_int_equal(pollux_ep_pwait(s.ep, &ev, 1, POLLUX_FOREVER, &none), -ESHUTDOWN);
	set_put(&s);
}

static void a_watched_epoll_may_be_waited_for_with_it(void **state)
{
	struct pollux_ep *outer = ep_new();
	struct set s = set_new(FILES);
	sigset_t none = mask_of(0);

	(void)state;
	ep_add(outer, pollux_ep_file(s.ep), 0, EPOLLIN, 'i');
	block_and_raise();
	assert_int_equal(set_wait(&s, POLLUX_FOREVER, &none), -EINTR);
	unblock();
	set_ready(&s);
	assert_one(outer, EPOLLIN, 'i');
	assert_int_equal(ep_del(outer, pollux_ep_file(s.ep), 0), 0);
	ep_add(outer, pollux_ep_file(s.ep), 0, EPOLLIN, 'i');
	/* But then it takes no descriptors; and one that has taken some is not watched. */
	assert_int_equal(pollux_ep_ctl_fd(s.ep, EPOLL_CTL_DEL, s.efd, NULL), -EOPNOTSUPP);
	assert_int_equal(pollux_ep_fd(s.ep), -EOPNOTSUPP);
	assert_int_equal(ep_del(outer, pollux_ep_file(s.ep), 0), 0);
	assert_int_equal(pollux_ep_ctl_fd(s.ep, EPOLL_CTL_DEL, s.efd, NULL), -ENOENT);
	assert_int_equal(ep_ctl(outer, EPOLL_CTL_ADD, pollux_ep_file(s.ep), 0, EPOLLIN, 'i'),
			 -EOPNOTSUPP);
	set_put(&s);
	ep_put(outer);
}

static void it_fails_where_it_cannot_be(void **state)
{
	const struct pollux_host host = host_of_no_time();
	const struct pollux_ep_attr attr = {.size = sizeof(attr), .host = &host};
	struct rlimit old, low;
	struct set s = set_new(FILES);
	sigset_t none = mask_of(0);
	struct pollux_ep *ep;
	struct epoll_event ev;

	(void)state;
	assert_int_equal(pollux_ep_new(&ep, &attr), 0);
	assert_int_equal(pollux_ep_pwait(ep, &ev, 1, POLLUX_FOREVER, &none), -EOPNOTSUPP);
	assert_int_equal(pollux_ep_pwait(ep, &ev, 1, 0, &none), 0);
	ep_put(ep);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(set_wait(&s, POLLUX_FOREVER, &none), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	set_put(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_pending_signal_ends_the_sleep),
		TEST(events_go_before_it),
		TEST(a_call_that_does_not_sleep_leaves_it),
		TEST(what_it_blocks_does_not_end_the_sleep),
		TEST(a_signal_meets_a_sleep),
		TEST(with_and_without_it_they_sleep_side_by_side),
		TEST(a_deadline_and_a_mask),
		TEST(a_watched_epoll_may_be_waited_for_with_it),
		TEST(it_fails_where_it_cannot_be),
	};

	return RUN(tests);
}
