/* SPDX-License-Identifier: MIT */
/*
 * The table of 2019 about the removal of watches: N processes at once, each in a loop that makes
 * an object, adds it to its epoll and closes it; the seconds until the last one has done its
 * loops. What the processes met in was the kernel's mutex over all removals.
 */
#include "storm.h"

#include <sys/mman.h>
#include <sys/wait.h>

#define MAX_PROCESSES 1024

static struct {
	unsigned int processes;
	uint64_t events;
	/* Or else eventfds. */
	unsigned int tcp;
} opt = {.processes = 10, .events = 20000};

/* In memory that all processes have in common. */
static struct {
	struct bench_gate gate;
	_Atomic unsigned int served;
} * common;

static void storm(void)
{
	int ep = bench_epoll(), probe = bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	if (bench_served(probe) == 1)
		atomic_fetch_add(&common->served, 1);
	close(probe);
	bench_gate_enter(&common->gate);
	storm_loops(ep, opt.events, opt.tcp);
}

static void share_gate(void)
{
	pthread_barrierattr_t shared;

	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (common == MAP_FAILED)
		bench_die("mmap: %s", strerror(errno));
	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	if (pthread_barrier_init(&common->gate.arrived, &shared, opt.processes + 1) ||
	    pthread_barrier_init(&common->gate.go, &shared, opt.processes + 1))
		bench_die("cannot make a barrier for %u processes", opt.processes);
}

static const char about[] =
	"Each process loops: make an object, add it to its own epoll, close it.";

static const struct bench_option options[] = {
	{"processes", "processes", .count = &opt.processes, .min = 1, .max = MAX_PROCESSES},
	{"events", "loops of each process", .number = &opt.events, .min = 1, .max = UINT32_MAX},
	{"kind", "what is made", .choice = &opt.tcp, .value = "eventfd|tcp"},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	struct storm s = {0};
	struct rusage used;
	uint64_t start;

	bench_options(argc, argv, about, options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	share_gate();
	for (unsigned int i = 0; i < opt.processes; i++) {
		pid_t pid = fork();

		if (pid < 0)
			bench_die("fork: %s", strerror(errno));
		if (pid == 0) {
			/* An alarm is not inherited; nobody may outlive the program. */
			bench_watchdog(BENCH_WATCHDOG_SECONDS);
			storm();
			exit(0);
		}
	}
	start = bench_gate_open(&common->gate);
	for (unsigned int i = 0; i < opt.processes; i++) {
		int status;

		if (wait(&status) < 0)
			bench_die("wait: %s", strerror(errno));
		if (status)
			bench_die("a process failed");
	}
	s.seconds = bench_seconds(start, bench_now());
	if (getrusage(RUSAGE_CHILDREN, &used))
		bench_die("getrusage: %s", strerror(errno));
	s.cpu = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000u +
		(uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000u;

	s.loops = opt.processes * opt.events;
	printf("program=teardown preload=%d served=%d processes=%u kind=%s ", bench_served(-1) >= 0,
	       atomic_load(&common->served) == opt.processes, opt.processes,
	       opt.tcp ? "tcp" : "eventfd");
	storm_print(&s);
	return 0;
}
