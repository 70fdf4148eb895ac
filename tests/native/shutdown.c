/* SPDX-License-Identifier: MIT */
/* pollux_ep_shutdown ends every wait, whoever sleeps and whatever there is. */
#include "native.h"

#include <sched.h>

static void those_who_sleep_leave(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct waiter *w[5];

	(void)state;
	for (int i = 0; i < 5; i++)
		w[i] = waiter_new(ep, 1);
	pollux_ep_shutdown(ep);
	for (int i = 0; i < 5; i++) {
		thread_join(&w[i]->t);
		assert_int_equal(w[i]->n, -ESHUTDOWN);
		free(w[i]);
	}
	ep_put(ep);
}

static void later_waits_find_it_shut(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct obj *o = obj_new(EPOLLIN);
	struct epoll_event ev;

	(void)state;
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	assert_one(ep, EPOLLIN, 'a');
	pollux_ep_shutdown(ep);
	/* Also with events, and whether they may sleep or not. */
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, 0), -ESHUTDOWN);
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), -ESHUTDOWN);
	assert_int_equal(pollux_ep_wait_until(ep, &ev, 1, POLLUX_FOREVER), -ESHUTDOWN);
	assert_int_equal(pollux_ep_wait(ep, &ev, 0, 0), -EINVAL);
	obj_set(o, 0);
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), -ESHUTDOWN);
	pollux_ep_shutdown(ep);
	assert_int_equal(pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER), -ESHUTDOWN);
	obj_put(o);
	ep_put(ep);
}

static void registrations_and_the_file_go_on(void **state)
{
	struct pollux_ep *ep = ep_new(), *up = ep_new();
	struct obj *o = obj_new(0);

	(void)state;
	ep_add(up, pollux_ep_file(ep), 0, EPOLLIN, 'u');
	pollux_ep_shutdown(ep);
	ep_add(ep, &o->file, 0, EPOLLIN, 'a');
	obj_fire(o, EPOLLIN, EPOLLIN);
	assert_one(up, EPOLLIN, 'u');
	assert_int_equal(ep_del(ep, &o->file, 0), 0);
	assert_none(up);
	obj_put(o);
	ep_put(ep);
	ep_put(up);
}

/* The waits have references of their own. */
static void shutdown_then_the_last_put(void **state)
{
	struct pollux_ep *ep = ep_new();
	struct waiter *w = waiter_new(ep, 1);

	(void)state;
	pollux_ep_shutdown(ep);
	pollux_ep_put(ep);
	thread_join(&w->t);
	assert_int_equal(w->n, -ESHUTDOWN);
	free(w);
}

/* One that has been woken leaves by the shutdown, with what it was woken for. */
static void an_exclusive_wake_goes_on_to_another(void **state)
{
	struct obj *o = obj_new(0);
	cpu_set_t one, all;

	(void)state;
	/* Who is woken does not run before the shutdown. */
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	for (int i = 0; i < 20; i++) {
		struct pollux_ep *ep[2] = {ep_new(), ep_new()};
		struct waiter *w[2];

		for (int k = 0; k < 2; k++) {
			ep_add(ep[k], &o->file, 0, EPOLLIN | EPOLLEXCLUSIVE, 'a' + k);
			w[k] = waiter_new(ep[k], 1);
		}
		obj_fire(o, EPOLLIN, EPOLLIN);
		pollux_ep_shutdown(ep[0]);
		thread_join(&w[0]->t);
		/* Otherwise it was quicker than the shutdown. */
		if (w[0]->n == 1)
			obj_fire(o, EPOLLIN, EPOLLIN);
		else
			assert_int_equal(w[0]->n, -ESHUTDOWN);
		free(w[0]);
		waiter_gets(w[1], 'b');
		obj_set(o, 0);
		ep_put(ep[0]);
		ep_put(ep[1]);
	}
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	obj_put(o);
}

/* A loop that polls the epoll's own descriptor sleeps for good, and finds it shut. */
static void so_does_that_of_a_foreign_loop(void **state)
{
	struct pollux_ep *ep[2] = {ep_new(), ep_new()};
	struct obj *o = obj_new(0);
	struct epoll_event ev;
	struct waiter *w;

	(void)state;
	for (int k = 0; k < 2; k++)
		ep_add(ep[k], &o->file, 0, EPOLLIN | EPOLLEXCLUSIVE, 'a' + k);
	assert_true(pollux_ep_fd(ep[0]) >= 0);
	w = waiter_new(ep[1], 1);
	obj_fire(o, EPOLLIN, EPOLLIN);
	waiter_stays(w);
	pollux_ep_shutdown(ep[0]);
	assert_int_equal(pollux_ep_wait(ep[0], &ev, 1, 0), -ESHUTDOWN);
	waiter_gets(w, 'b');
	obj_put(o);
	ep_put(ep[0]);
	ep_put(ep[1]);
}

static struct pollux_ep *handled;

static void shuts_down(int sig)
{
	(void)sig;
	pollux_ep_shutdown(handled);
}

static void a_handler_may_shut_down(void **state)
{
	struct sigaction sa = {.sa_handler = shuts_down}, old;
	struct waiter *w;

	(void)state;
	handled = ep_new();
	sigaction(SIGUSR1, &sa, &old);
	w = waiter_new(handled, 1);
	pthread_kill(w->t.id, SIGUSR1);
	thread_join(&w->t);
	assert_int_equal(w->n, -ESHUTDOWN);
	free(w);
	sigaction(SIGUSR1, &old, NULL);
	ep_put(handled);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(those_who_sleep_leave),
		TEST(later_waits_find_it_shut),
		TEST(registrations_and_the_file_go_on),
		TEST(shutdown_then_the_last_put),
		TEST(an_exclusive_wake_goes_on_to_another),
		TEST(so_does_that_of_a_foreign_loop),
		TEST(a_handler_may_shut_down),
	};

	return RUN(tests);
}
