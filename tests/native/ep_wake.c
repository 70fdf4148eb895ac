/* SPDX-License-Identifier: MIT */
/* Waiters: who is woken, time-outs, signals, and a host of our own. */
#include "native.h"

#include <limits.h>
#include <semaphore.h>

#define N 4

static void waiters_new(struct pollux_ep *ep, struct waiter **w, int n, int max)
{
	for (int i = 0; i < n; i++)
		w[i] = waiter_new(ep, max);
}

static int waiters_done(struct waiter **w, int n)
{
	int done = 0;

	for (int i = 0; i < n; i++)
		done += w[i] && thread_done(&w[i]->t);
	return done;
}

static void EP_WAKE_01_one_edge_wakes_one(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w[N];

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	waiters_new(ep, w, N, 8);
	for (int left = N; left > 0; left--) {
		int i;

		obj_fire(o, EPOLLIN, EPOLLIN);
		i = waiters_first(w, N);
		assert_int_equal(w[i]->n, 1);
		free(w[i]);
		w[i] = NULL;
		sleep_ms(QUIET_MS);
		assert_int_equal(waiters_done(w, N), 0);
	}
	ep_put(ep);
	obj_put(o);
}

static void EP_WAKE_03_n_edges_wake_n(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w[N];

	(void)state;
	for (int i = 0; i < N; i++)
		ep_add(ep, &o->file, i, EPOLLIN | EPOLLET, 'a' + i);
	waiters_new(ep, w, N, 1);
	/* One wake, N items of one epoll: none may wait for the next wake. */
	obj_fire(o, EPOLLIN, EPOLLIN);
	for (int i = 0; i < N; i++) {
		thread_join(&w[i]->t);
		assert_int_equal(w[i]->n, 1);
		free(w[i]);
	}
	assert_none(ep);
	ep_put(ep);
	obj_put(o);
}

static void EP_WAKE_05_a_level_wakes_all(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w[N];

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	waiters_new(ep, w, N, 8);
	obj_fire(o, EPOLLIN, EPOLLIN);
	for (int i = 0; i < N; i++)
		waiter_gets(w[i], 'a');
	ep_put(ep);
	obj_put(o);
}

static void EP_WAKE_05_what_is_left_goes_to_the_next(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o[N];
	struct waiter *w[N];
	int seen = 0;

	(void)state;
	for (int i = 0; i < N; i++) {
		o[i] = obj_new(0);
		ep_add(ep, &o[i]->file, 0, EPOLLIN | EPOLLET, i);
	}
	waiters_new(ep, w, N, 1);
	for (int i = 0; i < N; i++)
		obj_fire(o[i], EPOLLIN, EPOLLIN);
	for (int i = 0; i < N; i++) {
		thread_join(&w[i]->t);
		assert_int_equal(w[i]->n, 1);
		seen |= 1 << w[i]->ev[0].data.u64;
		free(w[i]);
	}
	assert_int_equal(seen, (1 << N) - 1);
	for (int i = 0; i < N; i++)
		obj_put(o[i]);
	ep_put(ep);
}

static void EP_WAKE_06_one_event_for_one_waiter(void **state)
{
	static const uint32_t mode[] = {EPOLLET, EPOLLONESHOT};

	(void)state;
	for (int m = 0; m < 2; m++) {
		struct pollux_ep *ep = ep_new();
		struct obj *o = obj_new(0);
		struct waiter *w[N];
		int i;

		ep_add(ep, &o->file, 0, EPOLLIN | mode[m], 'a');
		waiters_new(ep, w, N, 8);
		obj_fire(o, EPOLLIN, EPOLLIN);
		i = waiters_first(w, N);
		assert_int_equal(w[i]->n, 1);
		free(w[i]);
		w[i] = NULL;
		sleep_ms(QUIET_MS);
		assert_int_equal(waiters_done(w, N), 0);
		waiters_release(ep, w, N);
		ep_put(ep);
		obj_put(o);
	}
}

static void EP_WAKE_08_add_and_mod_wake(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);
	struct waiter *w = waiter_new(ep, 1);

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	waiter_gets(w, 'a');
	w = waiter_new(ep, 1);
	ep_mod(ep, &o->file, 0, EPOLLIN | EPOLLET, 'b');
	waiter_gets(w, 'b');
	w = waiter_new(ep, 1);
	ep_mod(ep, &o->file, 0, EPOLLOUT | EPOLLET, 'c');
	waiter_stays(w);
	ep_mod(ep, &o->file, 0, EPOLLIN | EPOLLOUT | EPOLLONESHOT, 'd');
	waiter_gets(w, 'd');
	ep_put(ep);
	obj_put(o);
}

static void EP_WAKE_10_waiter_and_watcher_are_both_told(void **state)
{
	struct pollux_ep *ep = ep_new(), *up = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w, *v;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	ep_add(up, pollux_ep_file(ep), 0, EPOLLIN, 'e');
	w = waiter_new(ep, 1);
	v = waiter_new(up, 1);
	obj_fire(o, EPOLLIN, EPOLLIN);
	waiter_gets(w, 'a');
	waiter_gets(v, 'e');
	ep_put(up);
	ep_put(ep);
	obj_put(o);
}

static void EP_WAKE_11_an_empty_epoll_can_be_waited_for(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct waiter *w = waiter_new(ep, 1);

	(void)state;
	waiters_release(ep, &w, 1);
	ep_put(ep);
}

/* --- time-outs ----------------------------------------------------------------------- */

static void EP_TMO_03_never_before_the_deadline(void **state)
{
	struct pollux_ep *ep = ep_new();
	static const int64_t t[] = {1, 1000, 100000, 1000000, 20000000};
	struct epoll_event ev;

	(void)state;
	for (int i = 0; i < 5; i++) {
		int64_t start = now_ns();

		assert_int_equal(pollux_ep_wait(ep, &ev, 1, t[i]), 0);
		assert_true(now_ns() - start >= t[i]);
	}
	ep_put(ep);
}

static void EP_TMO_05_huge_time_outs_saturate(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	static const int64_t t[] = {INT64_MAX, INT64_MAX - 1, INT_MAX * 1000000ll, -5, INT64_MIN};

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	for (int i = 0; i < 5; i++) {
		struct waiter *w = waiter_begin(ep, 1, t[i]);

		assert_true(thread_asleep(&w->t));
		obj_fire(o, EPOLLIN, EPOLLIN);
		waiter_gets(w, 'a');
	}
	ep_put(ep);
	obj_put(o);
}

static void EP_TMO_07_woken_in_vain_it_sleeps_on(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	w = waiter_begin(ep, 1, 300 * 1000000ll);
	for (int i = 0; i < 20; i++) {
		pollux_file_wake(&o->file, EPOLLIN);
		sleep_ms(1);
	}
	thread_join(&w->t);
	assert_int_equal(w->n, 0);
	assert_true(w->ns >= 300 * 1000000ll);
	free(w);
	ep_put(ep);
	obj_put(o);
}

/* --- signals --------------------------------------------------------------------------- */

static int handled;

static void handler(int sig)
{
	(void)sig;
	__atomic_fetch_add(&handled, 1, __ATOMIC_SEQ_CST);
}

static void signal_to(struct waiter *w)
{
	int before = __atomic_load_n(&handled, __ATOMIC_SEQ_CST);

	assert_int_equal(pthread_kill(w->t.id, SIGUSR1), 0);
	while (__atomic_load_n(&handled, __ATOMIC_SEQ_CST) == before)
		sleep_ms(1);
}

static void EP_SIG_02_a_handler_ends_the_wait(void **state)
{
	static const int64_t t[] = {POLLUX_FOREVER, 3600 * 1000000000ll};

	(void)state;
	for (int flags = 0; flags < 2; flags++) {
		struct sigaction sa = {.sa_handler = handler, .sa_flags = flags ? SA_RESTART : 0};

		sigaction(SIGUSR1, &sa, NULL);
		for (int i = 0; i < 2; i++) {
			struct pollux_ep *ep = ep_new();
			struct waiter *w = waiter_begin(ep, 1, t[i]);

			assert_true(thread_asleep(&w->t));
			signal_to(w);
			thread_join(&w->t);
			assert_int_equal(w->n, -EINTR);
			free(w);
			ep_put(ep);
		}
	}
}

static struct pollux_efd *handler_efd;

static void writing_handler(int sig)
{
	(void)sig;
	(void)pollux_efd_write(handler_efd, 1, 0);
	__atomic_fetch_add(&handled, 1, __ATOMIC_SEQ_CST);
}

static void EP_SIG_08_what_the_handler_makes_stays(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct sigaction sa = {.sa_handler = writing_handler};
	struct waiter *w;

	(void)state;
	handler_efd = efd_new(0, 0);
	ep_add(ep, pollux_efd_file(handler_efd), 0, EPOLLIN, 'a');
	sigaction(SIGUSR1, &sa, NULL);
	w = waiter_new(ep, 1);
	signal_to(w);
	/* As in the kernel, where the handler runs after the wait has ended. */
	thread_join(&w->t);
	assert_int_equal(w->n, -EINTR);
	free(w);
	assert_one(ep, EPOLLIN, 'a');
	ep_put(ep);
	efd_put(handler_efd);
}

static void EP_SIG_08_nothing_is_consumed(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct sigaction sa = {.sa_handler = handler};
	struct waiter *w;

	(void)state;
	sigaction(SIGUSR1, &sa, NULL);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	for (int i = 0; i < 50; i++) {
		w = waiter_new(ep, 1);
		pthread_kill(w->t.id, SIGUSR1);
		obj_fire(o, EPOLLIN, EPOLLIN);
		thread_join(&w->t);
		if (w->n == -EINTR)
			assert_one(ep, EPOLLIN, 'a');
		else
			assert_int_equal(w->n, 1);
		assert_none(ep);
		free(w);
	}
	ep_put(ep);
	obj_put(o);
}

/* --- concurrency ------------------------------------------------------------------------- */

static void EP_WAIT_01_ctl_takes_effect_on_a_sleeping_wait(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLOUT, 'a');
	w = waiter_new(ep, 1);
	obj_fire(o, EPOLLIN, EPOLLIN);
	waiter_stays(w);
	ep_mod(ep, &o->file, 0, EPOLLIN, 'b');
	waiter_gets(w, 'b');
	obj_set(o, 0);
	w = waiter_new(ep, 1);
	assert_int_equal(ep_del(ep, &o->file, 0), 0);
	obj_fire(o, EPOLLIN, EPOLLIN);
	waiter_stays(w);
	waiters_release(ep, &w, 1);
	ep_put(ep);
	obj_put(o);
}

static void EP_WAIT_06_last_close_of_a_file_during_a_wait(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(0);
	struct waiter *w;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	w = waiter_new(ep, 1);
	obj_set(o, EPOLLIN);
	obj_put(o);
	waiter_stays(w);
	waiters_release(ep, &w, 1);
	ep_put(ep);
}

/* --- a host of our own --------------------------------------------------------------------- */

/* Sleeps on a semaphore; with a deadline it lets its own clock jump instead. */
struct own_host {
	sem_t sem;
	int parked, rung;
	int64_t clock;
};

static int own_park(void *host, uint32_t *bell, int64_t deadline)
{
	struct own_host *h = host;

	__atomic_fetch_add(&h->parked, 1, __ATOMIC_SEQ_CST);
	if (deadline >= 0) {
		__atomic_store_n(&h->clock, deadline, __ATOMIC_SEQ_CST);
		return -ETIMEDOUT;
	}
	while (!pollux_bell_rung(bell))
		while (sem_wait(&h->sem) != 0)
			;
	return 0;
}

static void own_unpark(void *host, uint32_t *bell)
{
	struct own_host *h = host;

	assert_true(pollux_bell_rung(bell));
	__atomic_fetch_add(&h->rung, 1, __ATOMIC_SEQ_CST);
	sem_post(&h->sem);
}

static int64_t own_now(void *host)
{
	return ((struct own_host *)host)->clock;
}

static void EP_WAKE_01_a_host_of_our_own_sleeps_and_wakes(void **state)
{
	struct own_host h = {.clock = 1000};
	const struct pollux_host host = {
		.size = sizeof(host),
		.park = own_park,
		.unpark_one = own_unpark,
		.now = own_now,
		.arg = &h,
	};
	const struct pollux_ep_attr attr = {.size = sizeof(attr), .host = &host};
	struct obj *o = obj_new(0);
	struct pollux_ep *ep;
	struct epoll_event ev;
	struct waiter *w;

	(void)state;
	sem_init(&h.sem, 0, 0);
	assert_int_equal(pollux_ep_new(&ep, &attr), 0);
	ep_add(ep, &o->file, 0, EPOLLIN | EPOLLET, 'a');
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_int_equal(h.rung, 0);
	assert_one(ep, EPOLLIN, 'a');
	assert_int_equal(h.parked, 0);
	/* Its clock is the one that counts. */
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, 3600 * 1000000000ll), 0);
	assert_int_equal(h.clock, 1000 + 3600 * 1000000000ll);
	w = waiter_new(ep, 1);
	obj_fire(o, EPOLLIN, EPOLLIN);
	waiter_gets(w, 'a');
	assert_int_equal(h.rung, 1);
	ep_put(ep);
	obj_put(o);
	sem_destroy(&h.sem);
}

/* As a descriptor may be closed in the kernel while somebody waits by it. */
static void EP_WAIT_06_the_last_reference_goes_during_a_wait(void **state)
{
	struct obj *o = obj_new(0);
	struct pollux_ep *ep = ep_new();
	long watches = pollux_ep_watches();
	struct waiter *w;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	w = waiter_new(ep, 1);
	ep_put(ep);
	pollux_quiesce();
	assert_int_equal(pollux_ep_watches(), watches + 1);
	sleep_ms(QUIET_MS);
	assert_false(thread_done(&w->t));
	obj_fire(o, EPOLLIN, EPOLLIN);
	waiter_gets(w, 'a');
	/* With it the epoll has gone. */
	assert_int_equal(pollux_ep_watches(), watches);
	obj_put(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(EP_WAKE_01_one_edge_wakes_one),
		TEST(EP_WAKE_03_n_edges_wake_n),
		TEST(EP_WAKE_05_a_level_wakes_all),
		TEST(EP_WAKE_05_what_is_left_goes_to_the_next),
		TEST(EP_WAKE_06_one_event_for_one_waiter),
		TEST(EP_WAKE_08_add_and_mod_wake),
		TEST(EP_WAKE_10_waiter_and_watcher_are_both_told),
		TEST(EP_WAKE_11_an_empty_epoll_can_be_waited_for),
		TEST(EP_TMO_03_never_before_the_deadline),
		TEST(EP_TMO_05_huge_time_outs_saturate),
		TEST(EP_TMO_07_woken_in_vain_it_sleeps_on),
		TEST(EP_SIG_08_what_the_handler_makes_stays),
		TEST(EP_SIG_02_a_handler_ends_the_wait),
		TEST(EP_SIG_08_nothing_is_consumed),
		TEST(EP_WAIT_01_ctl_takes_effect_on_a_sleeping_wait),
		TEST(EP_WAIT_06_last_close_of_a_file_during_a_wait),
		TEST(EP_WAIT_06_the_last_reference_goes_during_a_wait),
		TEST(EP_WAKE_01_a_host_of_our_own_sleeps_and_wakes),
	};

	return RUN(tests);
}
