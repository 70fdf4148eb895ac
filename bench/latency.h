/* SPDX-License-Identifier: MIT */
/*
 * The time from just before a producer's write to just after the consumer's wait has returned,
 * one event under way at a time. What is measured includes about one reading of the clock, whose
 * cost is printed as clock_ns. Producer and consumer have a CPU each if there are two.
 *
 * Between two events the producer computes, for half to one and a half times the gap at random,
 * so that the consumer is at no fixed place of its loop when the event comes.
 */
#ifndef POLLUX_BENCH_LATENCY_H
#define POLLUX_BENCH_LATENCY_H

#include "histogram.h"

#define LATENCY_WARM_UP_MOST 500
#define LATENCY_SPINS_BEFORE_YIELD 2000

static struct {
	uint64_t events;
	uint64_t gap_ns;
	bool sleep;
} opt = {.events = 20000, .gap_ns = 20000};

static _Atomic uint64_t latency_sent_at __attribute__((aligned(64)));
static _Atomic uint64_t latency_taken __attribute__((aligned(64)));
static struct samples latency_samples;
static struct bench_gate latency_gate;
static int latency_cpus[2];

/* What the program measures. */
static void latency_write(void);
/* Returns when there is an event: sleeping, or asking again and again. */
static void latency_wait(bool sleep);
static void latency_read(void);

static uint64_t latency_warm_up(void)
{
	uint64_t n = opt.events / 10;

	return n < LATENCY_WARM_UP_MOST ? n : LATENCY_WARM_UP_MOST;
}

static void latency_pin(unsigned int which)
{
	if (latency_cpus[0] != latency_cpus[1])
		bench_pin(latency_cpus[which]);
}

static void *latency_producer(void *arg)
{
	uint64_t random = BENCH_SEED;

	(void)arg;
	latency_pin(0);
	bench_gate_enter(&latency_gate);
	for (uint64_t i = 1; i <= opt.events + latency_warm_up(); i++) {
		unsigned int spins = 0;
		uint64_t until;

		until = bench_now() + opt.gap_ns / 2 + bench_random(&random) % (opt.gap_ns + 1);
		while (bench_now() < until)
			bench_relax();
		atomic_store_explicit(&latency_sent_at, bench_now(), memory_order_release);
		latency_write();
		while (atomic_load_explicit(&latency_taken, memory_order_acquire) < i) {
			if (++spins < LATENCY_SPINS_BEFORE_YIELD)
				bench_relax();
			else
				sched_yield();
		}
	}
	return NULL;
}

static void latency_consume(void)
{
	latency_pin(1);
	for (uint64_t i = 1; i <= opt.events + latency_warm_up(); i++) {
		uint64_t now, sent;

		latency_wait(opt.sleep);
		now = bench_now();
		sent = atomic_load_explicit(&latency_sent_at, memory_order_acquire);
		latency_read();
		if (now < sent)
			bench_die("an event came before it was sent");
		if (i > latency_warm_up())
			samples_add(&latency_samples, now - sent);
		atomic_store_explicit(&latency_taken, i, memory_order_release);
	}
}

/* The median of the shortest distances of two readings. */
static uint64_t latency_clock_ns(void)
{
	struct samples s;
	uint64_t ns;

	samples_init(&s, 1001);
	for (size_t i = 0; i < s.room; i++) {
		uint64_t start = bench_now();

		for (int k = 0; k < 15; k++)
			(void)bench_now();
		samples_add(&s, (bench_now() - start) / 16);
	}
	samples_sort(&s);
	ns = samples_quantile(&s, 0.5);
	free(s.v);
	return ns;
}

static void latency_options(int argc, char **argv)
{
	static const struct bench_option options[] = {
		{"events", "events that are measured", .number = &opt.events, .min = 1,
		 .max = 100000000},
		{"gap", "nanoseconds between two events", .number = &opt.gap_ns, .max = 1000000000},
		{"sleep", "the consumer sleeps, instead of asking again and again",
		 .flag = &opt.sleep},
		{.name = NULL},
	};

	bench_options(argc, argv, "How long an event takes from a writing thread to a waiting one.",
		      options);
}

static void latency_run(void)
{
	pthread_t t;

	if (bench_cpus(latency_cpus, 2) < 2)
		latency_cpus[1] = latency_cpus[0];
	samples_init(&latency_samples, opt.events);
	bench_gate_init(&latency_gate, 1);
	t = bench_thread(latency_producer, NULL);
	bench_gate_open(&latency_gate);
	latency_consume();
	pthread_join(t, NULL);
}

static void latency_print(void)
{
	struct samples *s = &latency_samples;

	samples_sort(s);
	printf("mode=%s pinned=%d events=%" PRIu64 " gap_ns=%" PRIu64 " clock_ns=%" PRIu64 " ",
	       opt.sleep ? "sleep" : "spin", latency_cpus[0] != latency_cpus[1], opt.events,
	       opt.gap_ns, latency_clock_ns());
	samples_print(s);
	printf("p50_ns=%" PRIu64 " p99_ns=%" PRIu64 " p999_ns=%" PRIu64 " max_ns=%" PRIu64
	       " ok=1\n",
	       samples_quantile(s, 0.5), samples_quantile(s, 0.99), samples_quantile(s, 0.999),
	       s->v[s->n - 1]);
}

#endif
