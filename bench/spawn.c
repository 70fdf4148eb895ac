/* SPDX-License-Identifier: MIT */
/*
 * Children: a program that has an epoll with an eventfd makes one child after the other
 * and waits for its end. Under the drop-in /bin/true starts without it, as it has no use for it;
 * exec-loaded asks for it all the same, as if it had. env, which only starts others, gets the small
 * library; here it starts nothing, and has nothing to say.
 */
#include "bench.h"

#include <spawn.h>
#include <sys/wait.h>

static const char child[] = "/bin/true";
static const char starter[] = "/usr/bin/env";

enum how {
	/* fork and _exit */
	FORK,
	/* fork and execve */
	EXEC,
	/* The same with an empty environment. */
	EXEC_BARE,
	/* The same with the drop-in, if this program has it. */
	EXEC_LOADED,
	/* Of a program that only starts others. */
	EXEC_STARTER,
	SPAWN,
	HOWS,
};

static const char *const how_names[HOWS] = {"fork",	   "exec",	   "exec-bare",
					    "exec-loaded", "exec-starter", "spawn"};

static struct {
	/* An enum how. */
	unsigned int how;
	uint64_t events;
} opt = {.how = EXEC, .events = 500};

extern char **environ;

/* The environment, and what asks for the drop-in. */
static char **loaded;

static void make_loaded(void)
{
	size_t n = 0;

	while (environ[n])
		n++;
	loaded = calloc(n + 2, sizeof(*loaded));
	if (!loaded)
		bench_die("no memory");
	memcpy(loaded, environ, n * sizeof(*loaded));
	loaded[n] = (char *)"POLLUX_LOAD=all";
}

static pid_t make_child(void)
{
	static char *const argv[] = {(char *)child, NULL};
	static char *const starter_argv[] = {(char *)starter, (char *)"-i", NULL};
	static char *const empty[] = {NULL};
	char *const *env = opt.how == EXEC_BARE ? empty : opt.how == EXEC_LOADED ? loaded : environ;
	pid_t pid;

	if (opt.how == SPAWN) {
		if (posix_spawn(&pid, child, NULL, NULL, argv, environ))
			bench_die("posix_spawn: %s", strerror(errno));
		return pid;
	}
	pid = fork();
	if (pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (pid > 0)
		return pid;
	if (opt.how == EXEC_STARTER)
		execve(starter, starter_argv, env);
	else if (opt.how != FORK)
		execve(child, argv, env);
	_exit(opt.how == FORK ? 0 : 127);
}

/* Of this program and of the children it has waited for: CPU time, and pages that came by a fault.
 */
struct used {
	double cpu_us, faults;
};

static struct used used(void)
{
	struct used sum = {0};

	for (int who = 0; who < 2; who++) {
		struct rusage ru;

		getrusage(who ? RUSAGE_CHILDREN : RUSAGE_SELF, &ru);
		sum.cpu_us += (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1e6 +
			      (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec);
		sum.faults += (double)ru.ru_minflt;
	}
	return sum;
}

static const char about[] = "Makes children, one after the other, and waits for each.";

static const struct bench_option options[] = {
	{"how",
	 "fork alone; fork and execve of /bin/true; the same with an\n"
	 "empty environment, or with POLLUX_LOAD=all; of /usr/bin/env;\n"
	 "posix_spawn",
	 .choice = &opt.how, .value = "fork|exec|exec-bare|exec-loaded|exec-starter|spawn"},
	{"events", "children", .number = &opt.events, .min = 1, .max = UINT32_MAX},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	struct epoll_event ev;
	uint64_t start, end;
	struct used before, after;
	double seconds;
	int ep, efd;

	bench_options(argc, argv, about, options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	make_loaded();
	ep = bench_epoll();
	efd = bench_eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
	bench_ctl(ep, EPOLL_CTL_ADD, efd, EPOLLIN, 1);
	before = used();
	start = bench_now();
	for (uint64_t i = 0; i < opt.events; i++) {
		pid_t pid = make_child();
		int status;

		if (waitpid(pid, &status, 0) != pid || status)
			bench_die("a child failed");
	}
	end = bench_now();
	after = used();
	/* A fork has made kernel objects of the two; they go on, and new ones are served. */
	if (bench_wait(ep, &ev, 1, 0) != 1 || ev.data.u64 != 1)
		bench_die("the eventfd is not ready any more");

	seconds = bench_seconds(start, end);
	printf("program=spawn ");
	bench_print_served(bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	printf("how=%s events=%" PRIu64 " seconds=%.6f us=%.2f cpu_us=%.2f faults=%.1f ok=1\n",
	       how_names[opt.how], opt.events, seconds, seconds * 1e6 / (double)opt.events,
	       (after.cpu_us - before.cpu_us) / (double)opt.events,
	       (after.faults - before.faults) / (double)opt.events);
	return 0;
}
