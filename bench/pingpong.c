/* SPDX-License-Identifier: MIT */
/*
 * Strict ping-pong. In each pair thread A writes to eventfd a and waits for
 * eventfd b; thread B waits in epoll_wait for a, reads it and writes to b.
 */
#include "bench.h"

#include <poll.h>

/* MIXED and POLL: both sides, beside a pipe that stays empty, as loops have sockets. */
enum ack { EPOLL, READ, MIXED, POLL };

/* Where the two threads of a pair run: anywhere, on different CPUs, or on the same. */
enum pin { NOT_PINNED, APART, TOGETHER };

static struct {
	unsigned int pairs;
	uint64_t rounds;
	unsigned int ack;
	unsigned int pin;
} opt = {.pairs = 1, .rounds = 100000};

static int idle[2];

struct pair {
	int a;
	int b;
	int cpu_a;
	int cpu_b;
};

static struct bench_gate gate;

static void write_one(int fd)
{
	static const uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		bench_die("write to an eventfd: %s", strerror(errno));
}

static void read_one(int fd)
{
	uint64_t value;

	if (read(fd, &value, sizeof(value)) != sizeof(value))
		bench_die("read from an eventfd: %s", strerror(errno));
	if (value != 1)
		bench_die("one write, but the eventfd held %" PRIu64, value);
}

static int watch(int fd)
{
	int ep = bench_epoll();

	bench_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, (uint64_t)fd);
	if (opt.ack == MIXED)
		bench_ctl(ep, EPOLL_CTL_ADD, idle[0], EPOLLIN, (uint64_t)idle[0]);
	return ep;
}

static void await_by_poll(int fd)
{
	struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = idle[0], .events = POLLIN}};

	if (poll(p, 2, -1) != 1 || p[0].revents != POLLIN)
		bench_die("poll returned something else than the one event");
}

static void await(int ep, int fd)
{
	struct epoll_event ev[2];

	if (opt.ack == POLL) {
		await_by_poll(fd);
		return;
	}
	if (bench_wait(ep, ev, 2, -1) != 1 || ev[0].data.u64 != (uint64_t)fd ||
	    ev[0].events != EPOLLIN)
		bench_die("epoll_wait returned something else than the one event");
}

static void *side_a(void *arg)
{
	struct pair *p = arg;
	int ep = opt.ack == READ || opt.ack == POLL ? -1 : watch(p->b);

	if (opt.pin)
		bench_pin(p->cpu_a);
	bench_gate_enter(&gate);
	for (uint64_t i = 0; i < opt.rounds; i++) {
		write_one(p->a);
		if (opt.ack != READ)
			await(ep, p->b);
		read_one(p->b);
	}
	return NULL;
}

static void *side_b(void *arg)
{
	struct pair *p = arg;
	int ep = opt.ack == POLL ? -1 : watch(p->a);

	if (opt.pin)
		bench_pin(p->cpu_b);
	bench_gate_enter(&gate);
	for (uint64_t i = 0; i < opt.rounds; i++) {
		await(ep, p->a);
		read_one(p->a);
		write_one(p->b);
	}
	return NULL;
}

static const char about[] = "Pairs of threads that answer each other through two eventfds.";

static const struct bench_option options[] = {
	{"threads", "pairs of threads", .count = &opt.pairs, .min = 1, .max = 2048},
	{"events", "round trips of each pair", .number = &opt.rounds, .min = 1, .max = UINT32_MAX},
	{"ack",
	 "how the answer is awaited: epoll_wait, then read; a blocking\nread; or, on both sides, "
	 "epoll_wait or poll beside a pipe",
	 .choice = &opt.ack, .value = "epoll|read|mixed|poll"},
	{"pin", "where the two threads of a pair run: anywhere, on different\nCPUs, or on the same",
	 .choice = &opt.pin, .value = "no|apart|together"},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	static const char *const ack[] = {"epoll", "read", "mixed", "poll"};
	static const char *const pin[] = {"no", "apart", "together"};
	static int cpus[CPU_SETSIZE];
	unsigned int n_cpus;
	struct pair *pairs;
	pthread_t *threads;
	uint64_t start, end, trips;
	double seconds;

	bench_options(argc, argv, about, options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	bench_raise_nofile(4 * (uint64_t)opt.pairs + 64);
	n_cpus = bench_cpus(cpus, CPU_SETSIZE);
	if (opt.pin == APART && n_cpus < 2)
		bench_die("--pin=apart needs two CPUs and this process may use one");
	pairs = calloc(opt.pairs, sizeof(*pairs));
	threads = calloc(2 * (size_t)opt.pairs, sizeof(*threads));
	if (!pairs || !threads)
		bench_die("out of memory");
	if (pipe(idle))
		bench_die("pipe: %s", strerror(errno));
	bench_gate_init(&gate, 2 * opt.pairs);
	for (unsigned int i = 0; i < opt.pairs; i++) {
		struct pair *p = &pairs[i];

		p->a = bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		p->b = bench_eventfd(0, (opt.ack == READ ? 0 : EFD_NONBLOCK) | EFD_CLOEXEC);
		p->cpu_a = cpus[(opt.pin == TOGETHER ? i : 2 * i) % n_cpus];
		p->cpu_b = opt.pin == TOGETHER ? p->cpu_a : cpus[(2 * i + 1) % n_cpus];
		threads[2 * i] = bench_thread(side_a, p);
		threads[2 * i + 1] = bench_thread(side_b, p);
	}
	start = bench_gate_open(&gate);
	for (unsigned int i = 0; i < 2 * opt.pairs; i++)
		pthread_join(threads[i], NULL);
	end = bench_now();

	seconds = bench_seconds(start, end);
	trips = opt.pairs * opt.rounds;
	printf("program=pingpong ");
	bench_print_served(pairs[0].a);
	printf("threads=%u ack=%s pinned=%s events=%" PRIu64 " seconds=%.6f rate=%.1f "
	       "ns_per_trip=%.1f ok=1\n",
	       opt.pairs, ack[opt.ack], pin[opt.pin], trips, seconds, (double)trips / seconds,
	       seconds * 1e9 / (double)trips);
	free(threads);
	free(pairs);
	return 0;
}
