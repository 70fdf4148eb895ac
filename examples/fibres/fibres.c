/* SPDX-License-Identifier: MIT */
/*
 * Fibres that wait in epolls: how they answer one another, and how others wake them.
 *
 *	fibres [ROUNDS [EVENTS]]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pollux/eventfd.h>

#include "scheduler.h"

#define TURNS 9
#define SLEEPERS 1000
#define THREADS 2

static uint64_t rounds = 20000, events = 20000;
static struct scheduler *s;

static void need(int true_now, const char *what)
{
	if (true_now)
		return;
	fprintf(stderr, "fibres: %s\n", what);
	exit(1);
}

static int64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

/* An eventfd, and the epoll in which a fibre waits for it. */
struct inbox {
	struct pollux_efd *efd;
	struct pollux_ep *ep;
};

static void inbox_new(struct inbox *in)
{
	struct epoll_event ev = {.events = EPOLLIN};

	need(!pollux_efd_new(&in->efd, 0, 0), "no eventfd");
	need(!scheduler_ep_new(s, &in->ep), "no epoll");
	need(!pollux_ep_ctl(in->ep, EPOLL_CTL_ADD, pollux_efd_file(in->efd), 0, &ev), "ADD");
}

static void inbox_free(struct inbox *in)
{
	pollux_ep_put(in->ep);
	pollux_file_put(pollux_efd_file(in->efd));
}

static uint64_t inbox_take(struct inbox *in, int64_t timeout_ns)
{
	struct epoll_event ev;
	uint64_t v = 0;

	if (pollux_ep_wait(in->ep, &ev, 1, timeout_ns) == 1)
		need(!pollux_efd_read(in->efd, &v, 0), "an event without a count");
	return v;
}

/* --- Two fibres that answer one another. ----------------------------------------------------- */

static struct inbox side[2];

static void first(void *arg)
{
	(void)arg;
	for (uint64_t i = 0; i < rounds; i++) {
		need(!pollux_efd_write(side[1].efd, 1, 0), "write");
		need(inbox_take(&side[0], POLLUX_FOREVER) == 1, "the answer");
	}
}

static void second(void *arg)
{
	(void)arg;
	for (uint64_t i = 0; i < rounds; i++) {
		need(inbox_take(&side[1], POLLUX_FOREVER) == 1, "the question");
		need(!pollux_efd_write(side[0].efd, 1, 0), "write");
	}
}

/* The same number of switches, with nothing else. */
static void yielder(void *arg)
{
	(void)arg;
	for (uint64_t i = 0; i < rounds; i++)
		fibre_yield();
}

/*
 * Nanoseconds of the CPU for each round of two fibres, which never sleep; hops: how often it was
 * switched.
 */
static double turn(void (*a)(void *), void (*b)(void *), uint64_t *hops)
{
	int64_t t;

	s = scheduler_new(CLOCK_REAL);
	need(s != NULL, "no scheduler");
	inbox_new(&side[0]);
	inbox_new(&side[1]);
	need(!scheduler_spawn(s, a, NULL) && !scheduler_spawn(s, b, NULL), "no fibre");
	t = now(CLOCK_THREAD_CPUTIME_ID);
	scheduler_run(s);
	t = now(CLOCK_THREAD_CPUTIME_ID) - t;
	*hops = scheduler_hops(s);
	inbox_free(&side[0]);
	inbox_free(&side[1]);
	scheduler_free(s);
	return (double)t / (double)rounds;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void answers(void)
{
	double round[TURNS], plain[TURNS], rest[TURNS];
	uint64_t hops = 0, plain_hops = 0;

	for (int i = 0; i < TURNS; i++) {
		round[i] = turn(first, second, &hops);
		plain[i] = turn(yielder, yielder, &plain_hops);
		rest[i] = round[i] - plain[i];
	}
	qsort(round, TURNS, sizeof(double), by_size);
	qsort(plain, TURNS, sizeof(double), by_size);
	qsort(rest, TURNS, sizeof(double), by_size);
	printf("two fibres answer one another %llu times: a round trip %.0f ns with %.2f hops; two "
	       "yields %.0f ns with %.2f hops; the rest %.0f ns [%.0f-%.0f]\n",
	       (unsigned long long)rounds, round[TURNS / 2], (double)hops / (double)rounds,
	       plain[TURNS / 2], (double)plain_hops / (double)rounds, rest[TURNS / 2], rest[0],
	       rest[TURNS - 1]);
}

/* --- Many fibres that threads of the system wake. -------------------------------------------- */

static struct inbox sleeper[SLEEPERS];
static uint64_t got, ticks, timeouts;

static void sleep_and_count(void *arg)
{
	struct inbox *in = arg;

	while (got < events * THREADS) {
		uint64_t v = inbox_take(in, 20000000);

		got += v;
		timeouts += !v;
	}
}

static void tick(void *arg)
{
	(void)arg;
	for (; got < events * THREADS; ticks++)
		fibre_sleep(1000000);
}

static void *outsider(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;

	for (uint64_t i = 0; i < events; i++)
		need(!pollux_efd_write(sleeper[rand_r(&seed) % SLEEPERS].efd, 1, 0), "write");
	return NULL;
}

static void woken_from_outside(void)
{
	pthread_t t[THREADS];
	int64_t from;

	s = scheduler_new(CLOCK_REAL);
	need(s != NULL, "no scheduler");
	for (int i = 0; i < SLEEPERS; i++) {
		inbox_new(&sleeper[i]);
		need(!scheduler_spawn(s, sleep_and_count, &sleeper[i]), "no fibre");
	}
	need(!scheduler_spawn(s, tick, NULL), "no fibre");
	from = now(CLOCK_MONOTONIC);
	for (uintptr_t i = 0; i < THREADS; i++)
		need(!pthread_create(&t[i], NULL, outsider, (void *)(i + 1)), "no thread");
	scheduler_run(s);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	printf("%d fibres took %llu events of %d threads in %.1f ms, with %llu hops, %llu "
	       "time-outs "
	       "and %llu ticks of a millisecond\n",
	       SLEEPERS, (unsigned long long)got, THREADS,
	       (double)(now(CLOCK_MONOTONIC) - from) / 1e6, (unsigned long long)scheduler_hops(s),
	       (unsigned long long)timeouts, (unsigned long long)ticks);
	for (int i = 0; i < SLEEPERS; i++)
		inbox_free(&sleeper[i]);
	scheduler_free(s);
	need(got == events * THREADS, "events are missing");
}

int main(int argc, char **argv)
{
	if (argc > 1)
		rounds = strtoull(argv[1], NULL, 0);
	if (argc > 2)
		events = strtoull(argv[2], NULL, 0);
	answers();
	woken_from_outside();
	return 0;
}
