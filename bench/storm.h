/* SPDX-License-Identifier: MIT */
/*
 * A storm: threads, or processes, that each make an object, add it to their own epoll and close
 * it, over and over.
 */
#ifndef POLLUX_BENCH_STORM_H
#define POLLUX_BENCH_STORM_H

#include "bench.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* How often the watch is looked at that a close has to take away. */
#define STORM_CHECK_EVERY 1024

static struct bench_gate storm_gate;

struct storm {
	uint64_t loops;
	double seconds;
	/* Nanoseconds of CPU time. */
	uint64_t cpu;
};

/* Each thread passes the gate and makes so many loops. */
static inline struct storm storm_run(void *(*fn)(void *), unsigned int n, uint64_t loops)
{
	struct storm s = {.loops = n * loops};
	pthread_t *threads = calloc(n, sizeof(*threads));
	uint64_t start;

	if (!threads)
		bench_die("out of memory");
	bench_gate_init(&storm_gate, n);
	for (unsigned int i = 0; i < n; i++)
		threads[i] = bench_thread(fn, NULL);
	s.cpu = bench_cpu();
	start = bench_gate_open(&storm_gate);
	for (unsigned int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	s.seconds = bench_seconds(start, bench_now());
	s.cpu = bench_cpu() - s.cpu;
	free(threads);
	return s;
}

/* The end of the result line. */
static inline void storm_print(const struct storm *s)
{
	double loops = (double)s->loops;

	printf("events=%" PRIu64 " seconds=%.6f rate=%.1f ns_per_loop=%.1f cpu_ns_per_loop=%.1f "
	       "ok=1\n",
	       s->loops, s->seconds, loops / s->seconds, s->seconds * 1e9 / loops,
	       (double)s->cpu / loops);
}

/* An object with a descriptor, ready at once: an eventfd to read, a socket with a hang-up. */
static inline int storm_object(bool tcp)
{
	int fd = tcp ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)
		     : eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);

	if (fd < 0)
		bench_die("%s: %s", tcp ? "socket" : "eventfd", strerror(errno));
	return fd;
}

/* The loops of one thread, or process, with descriptors. */
static inline void storm_loops(int ep, uint64_t loops, bool tcp)
{
	struct epoll_event ev[4];

	for (uint64_t i = 0; i < loops; i++) {
		int fd = storm_object(tcp);

		bench_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN, i);
		if (i % STORM_CHECK_EVERY == 0 &&
		    (bench_wait(ep, ev, 4, 0) != 1 || ev[0].data.u64 != i))
			bench_die("the watch just added did not report its object");
		if (close(fd))
			bench_die("close: %s", strerror(errno));
	}
	if (bench_wait(ep, ev, 4, 0) != 0)
		bench_die("a closed object is still being watched");
}

#endif
