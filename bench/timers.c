/* SPDX-License-Identifier: MIT */
/*
 * What event loops do with a timerfd: with every event its time-out moves, so that it is set again
 * long before it expires.
 */
#include "bench.h"

#include <sys/timerfd.h>

static struct {
	unsigned int threads;
	uint64_t settings;
	unsigned int what;
} opt = {.threads = 1, .settings = 1000000};

enum what { MOVE, DISARM, LOOP };

static struct bench_gate gate;

static void set(int fd, unsigned int ms)
{
	struct itimerspec spec = {
		.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}};

	if (timerfd_settime(fd, 0, &spec, NULL) < 0)
		bench_die("timerfd_settime: %s", strerror(errno));
}

/* An event that has been taken, and then the time-out. */
static void turn(int ep, int efd)
{
	uint64_t value = 1;
	struct epoll_event ev[2];

	if (write(efd, &value, sizeof(value)) != sizeof(value) || bench_wait(ep, ev, 2, -1) != 1 ||
	    ev[0].data.u64 != 1 || read(efd, &value, sizeof(value)) != sizeof(value))
		bench_die("another event than the one of the eventfd");
}

static void *work(void *arg)
{
	int *ep = arg, efd = bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	struct itimerspec left;

	if (fd < 0)
		bench_die("timerfd_create: %s", strerror(errno));
	bench_ctl(*ep, EPOLL_CTL_ADD, fd, EPOLLIN, 0);
	if (opt.what == LOOP)
		bench_ctl(*ep, EPOLL_CTL_ADD, efd, EPOLLIN, 1);
	bench_gate_enter(&gate);
	for (uint64_t i = 0; i < opt.settings; i++) {
		if (opt.what == LOOP)
			turn(*ep, efd);
		set(fd, opt.what == DISARM && i % 2 ? 0 : 60000);
	}
	set(fd, 60000);
	if (timerfd_gettime(fd, &left) < 0 || left.it_value.tv_sec < 30)
		bench_die("the timer is not set as it should be");
	return NULL;
}

static const char about[] = "Threads that set a timerfd again and again before it expires.";

static const struct bench_option options[] = {
	{"threads", "threads, each with an epoll and a timer of its own", .count = &opt.threads,
	 .min = 1, .max = 1024},
	{"events", "settings by each", .number = &opt.settings, .min = 1, .max = UINT32_MAX},
	{"what",
	 "later and later; set and disarmed in turn; or later, after\nan event of an "
	 "eventfd has been waited for",
	 .choice = &opt.what, .value = "move|disarm|loop"},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	pthread_t *threads;
	uint64_t start, end, settings;
	double seconds;
	int *eps;

	bench_options(argc, argv, about, options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	bench_raise_nofile(3 * (uint64_t)opt.threads + 64);
	threads = calloc(opt.threads, sizeof(*threads));
	eps = calloc(opt.threads, sizeof(*eps));
	if (!threads || !eps)
		bench_die("out of memory");
	bench_gate_init(&gate, opt.threads);
	for (unsigned int i = 0; i < opt.threads; i++) {
		eps[i] = bench_epoll();
		threads[i] = bench_thread(work, &eps[i]);
	}
	start = bench_gate_open(&gate);
	for (unsigned int i = 0; i < opt.threads; i++)
		pthread_join(threads[i], NULL);
	end = bench_now();

	seconds = bench_seconds(start, end);
	settings = opt.threads * opt.settings;
	printf("program=timers ");
	bench_print_served(eps[0]);
	printf("threads=%u events=%" PRIu64 " seconds=%.6f rate=%.1f ns_per_setting=%.1f ok=1\n",
	       opt.threads, settings, seconds, (double)settings / seconds,
	       seconds * 1e9 / (double)opt.settings);
	free(eps);
	free(threads);
	return 0;
}
