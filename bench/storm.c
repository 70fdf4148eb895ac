/* SPDX-License-Identifier: MIT */
/*
 * Registration storm. Each thread makes an object, adds it to its own epoll and
 * closes it, over and over; the close alone must take the watch away.
 */
#include "bench.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define CHECK_EVERY 1024

static struct {
	unsigned int threads;
	uint64_t events;
	bool tcp;
} opt = {.threads = 1, .events = 200000};

static struct bench_gate gate;

static int make_object(void)
{
	int fd;

	/* Both are ready at once: the eventfd to read, the unconnected socket with a hang-up. */
	fd = opt.tcp ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)
		     : eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
	if (fd < 0)
		bench_die("%s: %s", opt.tcp ? "socket" : "eventfd", strerror(errno));
	return fd;
}

static void *storm(void *arg)
{
	struct epoll_event ev[4];
	int ep = bench_epoll();

	(void)arg;
	bench_gate_enter(&gate);
	for (uint64_t i = 0; i < opt.events; i++) {
		int fd = make_object();

		bench_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, i);
		if (i % CHECK_EVERY == 0 && (bench_wait(ep, ev, 4, 0) != 1 || ev[0].data.u64 != i))
			bench_die("the watch just added did not report its object");
		if (close(fd))
			bench_die("close: %s", strerror(errno));
	}
	if (bench_wait(ep, ev, 4, 0) != 0)
		bench_die("a closed object is still being watched");
	close(ep);
	return NULL;
}

static void usage(void)
{
	printf("Usage: storm [OPTION]...\n"
	       "Each thread loops: make an object, add it to its own epoll, close it.\n\n"
	       "  --threads N           threads (default 1)\n"
	       "  --events N            loops of each thread (default 200000)\n"
	       "  --kind eventfd|tcp    what is made (default eventfd)\n"
	       "  --help                this text\n");
}

static void parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{"threads", required_argument, NULL, 't'},
		{"events", required_argument, NULL, 'n'},
		{"kind", required_argument, NULL, 'k'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 't':
			opt.threads = (unsigned int)bench_number(optarg, "--threads", 1, 4096);
			break;
		case 'n':
			opt.events = bench_number(optarg, "--events", 1, UINT32_MAX);
			break;
		case 'k':
			if (strcmp(optarg, "eventfd") && strcmp(optarg, "tcp")) {
				fprintf(stderr, "storm: --kind is eventfd or tcp, not '%s'\n",
					optarg);
				bench_usage_error();
			}
			opt.tcp = !strcmp(optarg, "tcp");
			break;
		case 'h':
			usage();
			exit(0);
		default:
			bench_usage_error();
		}
	}
	if (optind != argc) {
		fprintf(stderr, "storm: unexpected argument '%s'\n", argv[optind]);
		bench_usage_error();
	}
}

int main(int argc, char **argv)
{
	pthread_t *threads;
	uint64_t start, end, cpu, loops;
	double seconds;
	int probe;

	parse(argc, argv);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	bench_raise_nofile(2 * (uint64_t)opt.threads + 64);
	threads = calloc(opt.threads, sizeof(*threads));
	if (!threads)
		bench_die("out of memory");
	bench_gate_init(&gate, opt.threads);
	for (unsigned int i = 0; i < opt.threads; i++)
		threads[i] = bench_thread(storm, NULL);
	cpu = bench_cpu();
	start = bench_gate_open(&gate);
	for (unsigned int i = 0; i < opt.threads; i++)
		pthread_join(threads[i], NULL);
	end = bench_now();
	cpu = bench_cpu() - cpu;

	seconds = bench_seconds(start, end);
	loops = opt.threads * opt.events;
	probe = bench_eventfd(0, EFD_CLOEXEC);
	printf("program=storm ");
	bench_print_served(probe);
	printf("threads=%u kind=%s events=%" PRIu64 " seconds=%.6f rate=%.1f ns_per_loop=%.1f "
	       "cpu_ns_per_loop=%.1f "
	       "ok=1\n",
	       opt.threads, opt.tcp ? "tcp" : "eventfd", loops, seconds, (double)loops / seconds,
	       seconds * 1e9 / (double)loops, (double)cpu / (double)loops);
	free(threads);
	return 0;
}
