/* SPDX-License-Identifier: MIT */
/*
 * Waits with a signal mask beside wakes, of files alone and of files and a descriptor: no wake is
 * lost with a thread that a signal meets, and a handler has run, under the mask of the call, if and
 * only if the wait returns -EINTR.
 */
#include "torture.h"

#include <sys/eventfd.h>

#define OBJECTS 3
#define WAITERS 3

struct shared {
	struct pollux_ep *ep;
	struct obj *o[OBJECTS];
	/* A descriptor, or -1. */
	int fd;
	unsigned long taken, interrupted, slept_out, sent;
	struct thread t[WAITERS];
};

static __thread volatile sig_atomic_t handled, within;
static unsigned long handlers;

static void on_signal(int sig)
{
	sigset_t now;

	(void)sig;
	pthread_sigmask(SIG_BLOCK, NULL, &now);
#ifndef __SANITIZE_THREAD__
	check(within && sigismember(&now, SIGUSR2) == 1);
#endif
	handled++;
	atomic_add(&handlers, 1);
}

static sigset_t mask_of(int sig)
{
	sigset_t m;

	sigemptyset(&m);
	sigaddset(&m, sig);
	return m;
}

/* One thing is ready at a time, so that the next wake does not make up for one that is lost. */
static bool ready(struct shared *s, uint32_t which)
{
	return which == OBJECTS ? atomic_get(&s->sent) != atomic_get(&s->taken)
				: atomic_get(&s->o[which]->mask) != 0;
}

static void produces(struct thread *t)
{
	struct shared *s = t->arg;
	uint32_t seed = (uint32_t)t->tid, one_of = OBJECTS + (s->fd >= 0);
	uint64_t one = 1;

	while (!stopping()) {
		uint32_t which = rnd(&seed) % one_of;
		int64_t start = now_ns();

		atomic_add(&s->sent, 1);
		if (which == OBJECTS)
			check(write(s->fd, &one, sizeof(one)) == sizeof(one));
		else
			obj_fire(s->o[which], EPOLLIN, EPOLLIN);
		while (ready(s, which) && !stopping()) {
			if (now_ns() - start > SOON_MS * 1000000ll)
				broken("nobody has come for %u", which);
			sched_yield();
		}
		for (uint32_t k = rnd(&seed) % 3000; k; k--)
			__asm__ __volatile__("");
	}
}

static void take(struct shared *s, uint64_t which)
{
	uint64_t v;
	bool had;

	if (which == OBJECTS)
		had = read(s->fd, &v, sizeof(v)) == sizeof(v);
	else
		had = __atomic_exchange_n(&s->o[which]->mask, 0, __ATOMIC_SEQ_CST) != 0;
	if (had)
		atomic_add(&s->taken, 1);
}

static void waits(struct thread *t)
{
	struct shared *s = t->arg;
	sigset_t usr1 = mask_of(SIGUSR1), usr2 = mask_of(SIGUSR2);
	uint32_t seed = (uint32_t)t->tid;
	struct epoll_event ev[2];
	int n;

	pthread_sigmask(SIG_BLOCK, &usr1, NULL);
	do {
		sig_atomic_t before = handled;
		int64_t ns = rnd(&seed) % 4 ? POLLUX_FOREVER : (int64_t)(rnd(&seed) % 50000);

		within = 1;
		n = pollux_ep_pwait(s->ep, ev, 1 + rnd(&seed) % 2, ns, &usr2);
		within = 0;
#ifndef __SANITIZE_THREAD__
		check((n == -EINTR) == (handled != before));
#else
		(void)before;
#endif
		check(n >= 0 || n == -EINTR || n == -ESHUTDOWN);
		check(n != 0 || ns >= 0);
		for (int i = 0; i < n; i++)
			take(s, ev[i].data.u64);
		if (n == -EINTR)
			atomic_add(&s->interrupted, 1);
		if (n == 0)
			atomic_add(&s->slept_out, 1);
	} while (n != -ESHUTDOWN);
	/* What is left is handled now. */
	within = 1;
	pthread_sigmask(SIG_BLOCK, &usr2, NULL);
	pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
}

static void signals(struct shared *s, uint32_t *seed)
{
	pthread_kill(s->t[rnd(seed) % WAITERS].id, SIGUSR1);
	for (uint32_t k = rnd(seed) % 20000; k; k--)
		__asm__ __volatile__("");
	if (rnd(seed) % 8 == 0)
		sched_yield();
}

static void beside_wakes(bool fds)
{
	struct shared s = {.ep = ep_new(), .fd = fds ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1};
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = OBJECTS};
	int64_t start = now_ns();
	struct thread producer;
	uint32_t seed = 7;

	assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
	for (uint64_t i = 0; i < OBJECTS; i++) {
		s.o[i] = obj_new(0);
		ep_add(s.ep, &s.o[i]->file, 0, i ? EPOLLIN : EPOLLIN | EPOLLET, i);
	}
	if (fds)
		assert_int_equal(pollux_ep_ctl_fd(s.ep, EPOLL_CTL_ADD, s.fd, &ev), 0);
	torture_begin();
	for (int i = 0; i < WAITERS; i++)
		thread_start(&s.t[i], waits, &s);
	thread_start(&producer, produces, &s);
	while (torture_part_until(start, 2,
				  atomic_get(&s.taken) > 200 && atomic_get(&s.interrupted) > 200 &&
					  atomic_get(&s.slept_out) > 10))
		signals(&s, &seed);
	torture_end(&producer, 1);
	pollux_ep_shutdown(s.ep);
	torture_end(s.t, WAITERS);
	assert_true(s.sent == s.taken || s.sent == s.taken + 1);
	printf("%lu events, %lu waits interrupted, %lu timed out, %lu handlers\n", s.taken,
	       s.interrupted, s.slept_out, handlers);
	for (int i = 0; i < OBJECTS; i++)
		obj_put(s.o[i]);
	ep_put(s.ep);
	if (fds)
		close(s.fd);
	signal(SIGUSR1, SIG_DFL);
}

static void of_files(void **state)
{
	(void)state;
	beside_wakes(false);
}

static void of_files_and_a_descriptor(void **state)
{
	(void)state;
	beside_wakes(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(of_files),
		TEST(of_files_and_a_descriptor),
	};

	return RUN(tests);
}
