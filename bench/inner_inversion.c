/* SPDX-License-Identifier: MIT */
/*
 * Priority inversion at the ready list. On one CPU, a thread of low priority is preempted while
 * it tells of a file, by one of middle priority that computes for a while; a thread of high
 * priority tells of a file and collects it. How long does that take it?
 *
 * "Middle": the low thread is stopped where it has begun to queue and not ended, by a hook in
 * the algorithm (for Pollux the race point between the mark and the push). "Anywhere": a timer
 * starts the middle thread while the low one tells without pause.
 *
 * Where SCHED_FIFO is not permitted, the low thread sleeps at that place as long as it would not
 * have run. No thread computes for longer than --hog, and as long as that nobody does anything
 * after each round, so that neither the machine nor the limit of real-time CPU time is hit.
 */
#include "histogram.h"

#include <pollux/epoll.h>
#include <pollux/eventfd.h>
#include <semaphore.h>

#include "base/atomic.h"
#include "base/delay.h"
#include "history/ready.h"

#define WARM_UP 3
#define BATCH 4
#define RETRY_NS 20000

/* Their numbers are bits of what a collection returns. */
enum { FILE_OF_LOW = 1, FILE_OF_HIGH = 2 };

static struct {
	const char *algorithm;
	unsigned int rounds;
	unsigned int hog_us;
	/* Choices: in the middle or anywhere, another file or the same. */
	unsigned int anywhere;
	unsigned int same;
	bool simulate;
} opt = {.algorithm = "pollux", .rounds = 100, .hog_us = 5000};

static const struct ready_algorithm *algorithm;
static struct ready_list *list;
static struct ready_item items[3];
static struct pollux_ep *ep;
static struct pollux_efd *efds[3];

static struct samples samples;
static sem_t go_low, go_middle, go_high, done;
static int cpu;
static bool over;
static __thread bool armed;

static void nap(uint64_t ns)
{
	struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000u),
			      .tv_nsec = (long)(ns % 1000000000u)};

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static void await(sem_t *s)
{
	while (sem_wait(s))
		;
}

static void tell(unsigned int file)
{
	if (algorithm) {
		(void)plx_xadd(&items[file].count, 1);
		algorithm->event(list, &items[file]);
	} else if (pollux_efd_write(efds[file], 1, 0)) {
		bench_die("a counter is full");
	}
}

static unsigned int collect(void)
{
	unsigned int found = 0;

	if (algorithm) {
		struct ready_item *got[BATCH];
		unsigned int n = algorithm->collect(list, got, BATCH);

		for (unsigned int i = 0; i < n; i++)
			if (plx_xchg(&got[i]->count, 0))
				found |= (unsigned int)(got[i] - items);
	} else {
		struct epoll_event got[BATCH];
		int n = pollux_ep_wait(ep, got, BATCH, 0);
		uint64_t v;

		for (int i = 0; i < n; i++)
			if (!pollux_efd_read(efds[got[i].data.u32], &v, 0))
				found |= got[i].data.u32;
	}
	return found;
}

/* The low thread stands in the middle of queueing. */
static void stopped(void)
{
	if (!armed)
		return;
	armed = false;
	if (opt.simulate) {
		sem_post(&go_high);
		nap(opt.hog_us * 1000ull);
	} else {
		sem_post(&go_middle);
	}
}

static void history_stop(enum ready_place place)
{
	if (place == READY_IN_EVENT)
		stopped();
}

/* In the place of the engine's own, which makes random delays. */
void plx_delay(const char *point)
{
	if (!strcmp(point, "push_before_link"))
		stopped();
}

static void become(int priority)
{
	struct sched_param p = {.sched_priority = priority};

	if (opt.simulate)
		return;
	bench_pin(cpu);
	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &p))
		bench_die("cannot get a real-time priority");
}

static void *low(void *arg)
{
	(void)arg;
	become(1);
	for (unsigned int i = 0; i < opt.rounds + WARM_UP; i++) {
		await(&go_low);
		armed = !opt.anywhere;
		do
			tell(FILE_OF_LOW);
		while (opt.anywhere && !plx_load(&over));
		sem_post(&done);
	}
	return NULL;
}

static void *middle(void *arg)
{
	uint64_t random = BENCH_SEED;

	(void)arg;
	become(2);
	for (unsigned int i = 0; i < opt.rounds + WARM_UP; i++) {
		uint64_t start;

		await(&go_middle);
		if (opt.anywhere)
			nap(100000 + bench_random(&random) % 500000);
		start = bench_now();
		sem_post(&go_high);
		while (bench_now() - start < opt.hog_us * 1000ull)
			;
		plx_store(&over, true);
		sem_post(&done);
	}
	return NULL;
}

static void *high(void *arg)
{
	unsigned int want = opt.same ? FILE_OF_LOW : FILE_OF_HIGH;

	(void)arg;
	become(3);
	for (unsigned int i = 0; i < opt.rounds + WARM_UP; i++) {
		uint64_t start;

		await(&go_high);
		start = bench_now();
		tell(want);
		while (!(collect() & want))
			nap(RETRY_NS);
		if (i >= WARM_UP)
			samples_add(&samples, bench_now() - start);
		sem_post(&done);
	}
	return NULL;
}

static void make_files(void)
{
	if (algorithm) {
		list = algorithm->make();
		if (!list)
			bench_die("out of memory");
		ready_stop_hook = history_stop;
		return;
	}
	if (pollux_ep_new(&ep, NULL))
		bench_die("out of memory");
	for (unsigned int i = 1; i < 3; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data = {.u64 = i}};

		if (pollux_efd_new(&efds[i], 0, 0) ||
		    pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(efds[i]), 0, &ev))
			bench_die("out of memory");
	}
}

static void *try_fifo(void *permitted)
{
	struct sched_param p = {.sched_priority = 1};

	*(bool *)permitted = !pthread_setschedparam(pthread_self(), SCHED_FIFO, &p);
	return NULL;
}

static void choose_scheduler(void)
{
	bool permitted = false;

	pthread_join(bench_thread(try_fifo, &permitted), NULL);
	opt.simulate |= !permitted;
	bench_cpus(&cpu, 1);
}

static const char about[] =
	"A thread is preempted while it tells of a file; how long does one of higher priority "
	"wait?";

static const struct bench_option options[] = {
	{"algorithm", "the ready list", .text = &opt.algorithm, .value = READY_NAMES "|pollux"},
	{"where", "middle of queueing, or anywhere", .choice = &opt.anywhere,
	 .value = "middle|anywhere"},
	{"file", "of which the other tells", .choice = &opt.same, .value = "other|same"},
	{"rounds", "measurements", .count = &opt.rounds, .min = 1, .max = 100000},
	{"hog", "microseconds that the preempted thread does not run", .count = &opt.hog_us,
	 .min = 100, .max = 50000},
	{"simulate", "without real-time priorities", .flag = &opt.simulate},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	pthread_t t[3];
	unsigned int threads, late = 0;

	bench_options(argc, argv, about, options);
	algorithm = ready_algorithm_named(opt.algorithm);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	choose_scheduler();
	if (opt.simulate && opt.anywhere)
		bench_skip("it takes the right to use SCHED_FIFO");
	make_files();
	samples_init(&samples, opt.rounds);
	sem_init(&go_low, 0, 0);
	sem_init(&go_middle, 0, 0);
	sem_init(&go_high, 0, 0);
	sem_init(&done, 0, 0);
	t[0] = bench_thread(low, NULL);
	t[1] = bench_thread(high, NULL);
	threads = 2;
	if (!opt.simulate)
		t[threads++] = bench_thread(middle, NULL);
	for (unsigned int i = 0; i < opt.rounds + WARM_UP; i++) {
		plx_store(&over, false);
		sem_post(&go_low);
		if (opt.anywhere)
			sem_post(&go_middle);
		for (unsigned int k = 0; k < threads; k++)
			await(&done);
		while (collect())
			;
		nap(opt.hog_us * 1000ull);
	}
	for (unsigned int k = 0; k < threads; k++)
		pthread_join(t[k], NULL);
	if (samples.n != opt.rounds)
		bench_die("%zu of %u rounds were measured", samples.n, opt.rounds);
	samples_sort(&samples);
	for (size_t i = 0; i < samples.n; i++)
		late += samples.v[i] > opt.hog_us * 500ull;
	printf("program=inner_inversion preload=0 native=%d algorithm=%s scheduler=%s where=%s "
	       "file=%s rounds=%u hog_us=%u late=%u ",
	       !algorithm, opt.algorithm, opt.simulate ? "simulated" : "fifo",
	       opt.anywhere ? "anywhere" : "middle", opt.same ? "same" : "other", opt.rounds,
	       opt.hog_us, late);
	samples_print(&samples);
	printf("p50_us=%.2f p99_us=%.2f max_us=%.2f ok=1\n",
	       (double)samples_quantile(&samples, 0.5) / 1e3,
	       (double)samples_quantile(&samples, 0.99) / 1e3,
	       (double)samples.v[samples.n - 1] / 1e3);
	return 0;
}
