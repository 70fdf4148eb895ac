/* SPDX-License-Identifier: MIT */
/*
 * A signal handler may write to any counter and wake any file, whatever engine call
 * it has interrupted: nothing hangs, nothing is lost.
 */
#include "torture.h"

/* glibc got this name late. */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define FILES 3
#define CALLS 7

enum call { WRITE, READ, WAKE, WAIT, MOD, ADD_DEL, SLEEP };

static const char *const call_name[CALLS] = {"write", "read",	 "wake",	 "wait",
					     "MOD",   "ADD+DEL", "sleeping wait"};

static struct pollux_efd *e[FILES];
static struct pollux_ep *ep, *own;
static struct obj *o;
static unsigned long written, taken, events;
static unsigned long inside[CALLS];
static volatile sig_atomic_t in_call = -1;
static pthread_t victim_id;

static void handler(int sig)
{
	int call = in_call;

	(void)sig;
	if (!pthread_equal(pthread_self(), victim_id))
		return;
	if (call >= 0)
		atomic_add(&inside[call], 1);
	for (int i = 0; i < FILES; i++) {
		/* Bounded, as a handler that never sleeps has to be: the counts stay small. */
		if (pollux_efd_count(e[i]) > 1u << 30)
			continue;
		atomic_add(&written, 1);
		if (i == 1)
			pollux_efd_signal(e[i]);
		else if (pollux_efd_write(e[i], 1, 0) != 0)
			broken("a write in a handler failed");
	}
	pollux_file_wake(&o->file, EPOLLIN);
}

/* Every call of the engine in turn, under fire. */
static void victim(struct thread *t)
{
	uint32_t r = (uint32_t)t->tid;
	struct sigevent sev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR2};
	timer_t timer;

	victim_id = pthread_self();
	sev.sigev_notify_thread_id = t->tid;
	if (timer_create(CLOCK_MONOTONIC, &sev, &timer) != 0)
		broken("no timer");
	while (!stopping()) {
		int call = rnd(&r) % CALLS;
		int i = rnd(&r) % FILES;
		struct epoll_event ev[FILES];
		uint64_t v;

		in_call = call;
		for (int k = 0; k < 8; k++) {
			/* One shot each, so that a slow handler does not eat all the time. */
			struct itimerspec its = {.it_value.tv_nsec = 1 + rnd(&r) % 20000};

			timer_settime(timer, 0, &its, NULL);
			switch (call) {
			case WRITE:
				atomic_add(&written, 1);
				if (pollux_efd_write(e[i], 1, 0) != 0)
					broken("a write failed");
				break;
			case READ:
				if (pollux_efd_read(e[i], &v, 0) == 0)
					atomic_add(&taken, v);
				break;
			case WAKE:
				pollux_file_wake(&o->file, EPOLLIN);
				break;
			case WAIT:
				if (pollux_ep_wait(own, ev, FILES, 0) < 0)
					broken("a wait of no time was interrupted");
				break;
			case MOD:
				if (ep_ctl(own, EPOLL_CTL_MOD, pollux_efd_file(e[i]), 0,
					   EPOLLIN | (rnd(&r) & 1 ? EPOLLET : 0), i) != 0)
					broken("MOD failed");
				break;
			case ADD_DEL:
				if (ep_ctl(own, EPOLL_CTL_ADD, pollux_efd_file(e[i]), 1,
					   EPOLLIN | EPOLLET, i) != 0 ||
				    ep_del(own, pollux_efd_file(e[i]), 1) != 0)
					broken("ADD and DEL failed");
				break;
			default:
				if (pollux_ep_wait(own, ev, 1, 50000) == -EINVAL)
					broken("a sleep failed");
			}
		}
		in_call = -1;
	}
	timer_delete(timer);
}

/* Another thread, asleep most of the time, gets all that was written. */
static void reader(struct thread *t)
{
	struct epoll_event ev[FILES];

	(void)t;
	for (;;) {
		int n = pollux_ep_wait(ep, ev, FILES, POLLUX_FOREVER);

		if (n < 1)
			broken("a wait without limit returned %d", n);
		for (int i = 0; i < n; i++) {
			uint64_t v;

			if (ev[i].data.u64 == 'z')
				return;
			events++;
			if (pollux_efd_read(e[ev[i].data.u64], &v, 0) == 0)
				atomic_add(&taken, v);
		}
	}
}

/* A handler has come in each of the calls. */
static bool met(void)
{
	for (int i = 0; i < CALLS; i++)
		if (!atomic_get(&inside[i]))
			return false;
	return true;
}

static void run(bool alone)
{
	struct pollux_efd *end = efd_new(0, 0);
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
	struct thread t[2];
	unsigned long helps = points_passed("help_before_slot");

	torture_begin();
	written = taken = events = 0;
	memset(inside, 0, sizeof(inside));
	ep = ep_new();
	own = ep_new();
	o = obj_new(EPOLLIN);
	sigaction(SIGUSR2, &sa, NULL);
	for (int i = 0; i < FILES; i++) {
		e[i] = efd_new(0, 0);
		/* Alone, an item holds the file's own mark and the fast ways are taken. */
		if (!alone || i)
			ep_add(ep, pollux_efd_file(e[i]), 0, EPOLLIN | EPOLLET, i);
		ep_add(own, pollux_efd_file(e[i]), 0, EPOLLIN | EPOLLET, i);
	}
	ep_add(own, &o->file, 0, EPOLLIN | EPOLLET, FILES);
	ep_add(ep, pollux_efd_file(end), 0, EPOLLIN, 'z');
	thread_start(&t[0], victim, NULL);
	thread_start(&t[1], reader, NULL);
	torture_sleep_until(met());
	assert_true(met());
	atomic_set(&torture_stop, 1);
	thread_join(&t[0]);
	if (alone) {
		uint64_t v;

		if (pollux_efd_read(e[0], &v, 0) == 0)
			atomic_add(&taken, v);
	}
	assert_true(await(atomic_get(&taken) == atomic_get(&written)));
	efd_add(end, 1);
	thread_join(&t[1]);
	assert_false(torture_failed);
	helps = points_passed("help_before_slot") - helps;
	print_message("%lu written, %lu events, %lu helped; handlers in", written, events, helps);
	for (int i = 0; i < CALLS; i++)
		print_message(" %s %lu", call_name[i], inside[i]);
	print_message("\n");
	ep_put(ep);
	ep_put(own);
	efd_put(end);
	obj_put(o);
	for (int i = 0; i < FILES; i++)
		efd_put(e[i]);
}

static void handlers_on_shared_files(void **state)
{
	(void)state;
	run(false);
}

static void handlers_on_files_of_one_epoll(void **state)
{
	(void)state;
	run(true);
}

/* The handler finds the very item that its own thread is about to push. */
static struct pollux_efd *mine;

static void own_handler(int sig)
{
	(void)sig;
	if (pollux_efd_write(mine, 1, 0) != 0)
		broken("a write in a handler failed");
}

static void a_handler_between_mark_and_push(void **state)
{
	static const char *const point[] = {"push_before_link", "push_before_pushed",
					    "add_before_cas"};
	struct sigaction sa = {.sa_handler = own_handler};

	(void)state;
#if defined(__SANITIZE_THREAD__)
	print_message("skipped: ThreadSanitizer keeps a handler back while its thread naps here\n");
	skip();
#endif
	torture_begin();
	points_delay(false);
	sigaction(SIGUSR1, &sa, NULL);
	for (int p = 0; p < 3; p++) {
		struct pollux_ep *one = ep_new();
		struct stopped s;

		mine = efd_new(0, 0);
		ep_add(one, pollux_efd_file(mine), 0, EPOLLIN | EPOLLET, 'a');
		stopped_start(&s, point[p], mine, NULL);
		pthread_kill(s.t.id, SIGUSR1);
		assert_true(await(pollux_efd_count(mine) == (p == 2 ? 1 : 2)));
		/* The handler may have yet to tell what it has written. */
		assert_true(await(pollux_file_poll(pollux_ep_file(one), UINT32_MAX)));
		assert_one(one, EPOLLIN, 'a');
		stopped_go(&s);
		assert_int_equal(pollux_efd_count(mine), 2);
		/* Two edges: at most one event more, and nothing stays behind. */
		(void)pollux_ep_wait(one, &(struct epoll_event){0}, 1, 0);
		assert_none(one);
		efd_add(mine, 1);
		assert_one(one, EPOLLIN, 'a');
		ep_put(one);
		efd_put(mine);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_handler_between_mark_and_push),
		TEST(handlers_on_shared_files),
		TEST(handlers_on_files_of_one_epoll),
	};

	return RUN(tests);
}
