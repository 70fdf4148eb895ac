/* SPDX-License-Identifier: MIT */
/*
 * What an event costs in the engine, path by path: atomic read-modify-writes, instructions and
 * nanoseconds, for docs/cost-model.md. A path is run for 64 files at once, in one thread; with
 * --remote, what the other side of it does (the consumer of a write, the producer of a
 * collection) is done by a thread on another CPU, so that the lines which the two share have to
 * come from there.
 *
 * The instructions are counted one by one: a child is single-stepped through the path by its
 * parent (ptrace), which looks at each for a lock prefix. That is done on x86-64 alone;
 * elsewhere there are only the nanoseconds. What a system call does in the kernel is not counted.
 */
#include "epoll/engine.h"

#include "histogram.h"

#include <fcntl.h>
#include <math.h>
#include <pollux/epoll.h>
#include <pollux/eventfd.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "base/atomic.h"

#define FILES 64
#define ROUNDS 2001

static const char *wanted;
static bool remote;
static unsigned int rounds = ROUNDS;

static struct pollux_ep *ep;
/* At random: the files of a program do not become ready in the order of memory. */
static struct pollux_efd *efds[FILES];

static void write_all(void)
{
	for (unsigned int i = 0; i < FILES; i++)
		if (pollux_efd_write(efds[i], 1, 0))
			bench_die("a counter is full");
}

static void read_all(void)
{
	uint64_t v;

	for (unsigned int i = 0; i < FILES; i++)
		if (pollux_efd_read(efds[i], &v, 0))
			bench_die("a counter is empty");
}

static void collect(void)
{
	struct epoll_event ev[FILES];

	if (pollux_ep_wait(ep, ev, FILES, 0) != FILES)
		bench_die("not all events were collected");
}

static void collect_nothing(void)
{
	struct epoll_event ev[FILES];

	if (pollux_ep_wait(ep, ev, FILES, 0))
		bench_die("there was an event");
}

static pthread_t sleeper_thread;
static pid_t sleeper_tid;

/* Nobody sleeps, nothing is counted, nothing is queued. */
static void drain(void)
{
	struct epoll_event ev[FILES];
	uint64_t v;

	/* The one that the last write has woken takes its event first. */
	if (sleeper_tid)
		pthread_join(sleeper_thread, NULL);
	sleeper_tid = 0;
	for (unsigned int i = 0; i < FILES; i++)
		(void)pollux_efd_read(efds[i], &v, 0);
	while (pollux_ep_wait(ep, ev, FILES, 0))
		;
}

static void *sleeper(void *arg)
{
	struct epoll_event ev;

	(void)arg;
	plx_store(&sleeper_tid, gettid());
	(void)pollux_ep_wait(ep, &ev, 1, POLLUX_FOREVER);
	return NULL;
}

static void until_asleep(void)
{
	char path[64], state = 0;

	sleeper_thread = bench_thread(sleeper, NULL);
	while (!plx_load_acq(&ep->sleepers))
		sched_yield();
	/* It has said so before it does. */
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)plx_load(&sleeper_tid));
	while (state != 'S') {
		FILE *f = fopen(path, "r");

		if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
			bench_die("%s: %s", path, strerror(errno));
		fclose(f);
	}
}

static void write_one(void)
{
	if (pollux_efd_write(efds[0], 1, 0))
		bench_die("a counter is full");
}

static void wait_often(void)
{
	for (unsigned int i = 0; i < FILES; i++)
		collect_nothing();
}

/* Beside those that are there: counters that come and go. */
static void storm(void)
{
	for (unsigned int i = 0; i < FILES; i++) {
		struct epoll_event ev = {.events = EPOLLIN};
		struct pollux_efd *e;

		if (pollux_efd_new(&e, 1, 0) ||
		    pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(e), 0, &ev))
			bench_die("out of memory");
		pollux_file_put(pollux_efd_file(e));
	}
}

static const struct step {
	char name;
	/* Of the two sides. */
	bool producer;
	void (*run)(void);
} steps[] = {
	{'w', true, write_all},	       {'W', true, write_one},	   {'d', false, drain},
	{'c', false, collect},	       {'r', false, read_all},	   {'n', false, wait_often},
	{'g', false, collect_nothing}, {'s', false, until_asleep}, {'t', true, storm},
};

static const struct path {
	const char *name;
	/* Steps. */
	const char *prepare;
	char run;
	/* Done by one run. */
	unsigned int events;
	bool edge;
	/* Too much else happens in that time. */
	bool untimed;
} paths[] = {
	{"write-coalesced", "dww", 'w', FILES, false, false},
	{"write-queued", "dw", 'w', FILES, false, false},
	{"write-push", "d", 'w', FILES, false, false},
	{"write-wake", "ds", 'W', 1, false, true},
	{"collect-lt", "dw", 'c', FILES, false, false},
	{"collect-lt-again", "dwc", 'c', FILES, false, false},
	{"collect-lt-gone", "dwcr", 'g', FILES, false, false},
	{"collect-et", "dw", 'c', FILES, true, false},
	{"read", "dwc", 'r', FILES, false, false},
	{"wait-nothing", "d", 'n', FILES, false, false},
	{"make-add-close", "dttttttttt", 't', FILES, false, false},
};
#define N_PATHS (sizeof(paths) / sizeof(paths[0]))

static const struct step *step_named(char name)
{
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (steps[i].name == name)
			return &steps[i];
	bench_die("there is no step '%c'", name);
}

/* What the thread on the other CPU is to do; NULL: it has done it. */
static const struct step *for_other;
static int cpus[2];

static void *other_side(void *arg)
{
	(void)arg;
	bench_pin(cpus[1]);
	for (unsigned int spins = 1;; spins++) {
		const struct step *step = plx_load_acq(&for_other);

		if (step) {
			step->run();
			plx_store_rel(&for_other, NULL);
		} else if (spins % 10000 == 0) {
			sched_yield();
		}
	}
	return NULL;
}

/* In the process that uses them: a child has nothing to do with the epolls of its parent. */
static void make_objects(const struct path *path)
{
	unsigned int order[FILES];

	if (pollux_ep_new(&ep, NULL))
		bench_die("out of memory");
	bench_shuffle(order, FILES);
	for (unsigned int i = 0; i < FILES; i++) {
		struct epoll_event ev = {.events = EPOLLIN | (path->edge ? (uint32_t)EPOLLET : 0)};
		struct pollux_efd **efd = &efds[order[i]];

		if (pollux_efd_new(efd, 0, 0) ||
		    pollux_ep_ctl(ep, EPOLL_CTL_ADD, pollux_efd_file(*efd), 0, &ev))
			bench_die("out of memory");
	}
}

static void start_other_side(void)
{
	if (bench_cpus(cpus, 2) < 2)
		bench_skip("there is one CPU");
	bench_pin(cpus[0]);
	pthread_detach(bench_thread(other_side, NULL));
}

static void prepare(const struct path *path)
{
	bool producer = step_named(path->run)->producer;

	for (const char *p = path->prepare; *p; p++) {
		const struct step *step = step_named(*p);

		if (!remote || step->producer == producer) {
			step->run();
			continue;
		}
		plx_store_rel(&for_other, step);
		for (unsigned int spins = 1; plx_load_acq(&for_other); spins++)
			if (spins % 10000 == 0)
				sched_yield();
	}
}

struct counted {
	unsigned long locked;
	unsigned long instructions;
	unsigned long syscalls;
};

#if defined(__x86_64__)

#define MARK() __asm__ __volatile__("int3" ::: "memory")

/* Whether the instruction is a read-modify-write that locks, or a full fence. */
static void look_at(const unsigned char *p, struct counted *c)
{
	bool lock = false;

	c->instructions++;
	for (;; p++) {
		if (*p == 0xf0)
			lock = true;
		else if (*p != 0x66 && *p != 0xf2 && *p != 0xf3 && *p != 0x2e && *p != 0x3e &&
			 *p != 0x26 && *p != 0x36 && *p != 0x64 && *p != 0x65 &&
			 (*p & 0xf0) != 0x40)
			break;
	}
	/* xchg with memory locks by itself; 0f ae f0 is mfence, 0f 05 syscall. */
	lock |= (p[0] == 0x86 || p[0] == 0x87) && p[1] < 0xc0;
	lock |= p[0] == 0x0f && p[1] == 0xae && p[2] == 0xf0;
	c->locked += lock;
	c->syscalls += p[0] == 0x0f && p[1] == 0x05;
}

static pid_t stopped_child(pid_t pid, int *sig)
{
	int status;

	if (waitpid(pid, &status, __WALL) != pid)
		bench_die("waitpid: %s", strerror(errno));
	if (!WIFSTOPPED(status))
		return 0;
	*sig = WSTOPSIG(status);
	return pid;
}

static void next_instruction(pid_t pid, unsigned char text[16])
{
	struct user_regs_struct regs;

	if (ptrace(PTRACE_GETREGS, pid, NULL, &regs))
		bench_die("PTRACE_GETREGS: %s", strerror(errno));
	for (size_t i = 0; i < 2; i++) {
		long word = ptrace(PTRACE_PEEKTEXT, pid, (void *)(regs.rip + 8 * i), NULL);

		memcpy(text + 8 * i, &word, 8);
	}
}

/* False: this process may not trace. */
static bool count_once(const struct path *path, struct counted *c)
{
	void (*run)(void) = step_named(path->run)->run;
	pid_t pid = fork();
	int sig = 0;

	if (pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(0);
		make_objects(path);
		/* Once before, so that what happens at first use is over. */
		for (int i = 0; i < 2; i++) {
			prepare(path);
			if (i)
				MARK();
			run();
		}
		MARK();
		_exit(0);
	}
	while (stopped_child(pid, &sig) && sig != SIGTRAP)
		ptrace(PTRACE_CONT, pid, NULL, (void *)(long)sig);
	if (sig != SIGTRAP)
		return false;
	for (;;) {
		unsigned char text[16];

		next_instruction(pid, text);
		if (text[0] == 0xcc)
			break;
		look_at(text, c);
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || !stopped_child(pid, &sig))
			bench_die("the child that was stepped through is gone");
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, __WALL);
	return true;
}

/*
 * A thread that is woken may be slow to come, on a busy machine more often, and whoever wakes it
 * has more to do then. The least of some runs is what the path itself takes.
 */
static bool count(const struct path *path, struct counted *least)
{
	for (int i = 0; i < (strchr(path->prepare, 's') ? 64 : 1); i++) {
		struct counted c = {0};

		if (!count_once(path, &c))
			return false;
		if (!i || c.locked < least->locked)
			*least = c;
	}
	return true;
}

#else

static bool count(const struct path *path, struct counted *c)
{
	(void)path;
	(void)c;
	return false;
}

#endif

/* The median, less the reading of the clock. */
static double time_path(const struct path *path)
{
	void (*run)(void) = step_named(path->run)->run;
	struct samples s, clock;
	uint64_t ns;

	samples_init(&s, rounds);
	samples_init(&clock, rounds);
	for (unsigned int i = 0; i < rounds; i++) {
		uint64_t start;

		prepare(path);
		start = bench_now();
		samples_add(&clock, bench_now() - start);
		start = bench_now();
		run();
		samples_add(&s, bench_now() - start);
	}
	samples_sort(&s);
	samples_sort(&clock);
	ns = samples_quantile(&s, 0.5);
	return ((double)ns - (double)samples_quantile(&clock, 0.5)) / path->events;
}

static void list_paths(void)
{
	for (size_t i = 0; i < N_PATHS; i++)
		printf("                %s\n", paths[i].name);
}

static const char about[] =
	"Atomic operations, instructions and time of a path through the engine.";

static const struct bench_option options[] = {
	{"path", "one of", .text = &wanted, .value = "NAME", .list = list_paths},
	{"remote", "the other side of it is on another CPU", .flag = &remote},
	{"rounds", "that are timed", .count = &rounds, .min = 1, .max = 1000000},
	{.name = NULL},
};

static const struct path *path_wanted(void)
{
	for (size_t i = 0; i < N_PATHS; i++)
		if (wanted && !strcmp(wanted, paths[i].name))
			return &paths[i];
	bench_usage_error("there is no path '%s'", wanted ? wanted : "");
}

int main(int argc, char **argv)
{
	const struct path *path;
	struct counted c = {0};
	bool counted;

	bench_options(argc, argv, about, options);
	path = path_wanted();
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	/* Before there is a second thread, which the child would not have. */
	counted = !remote && count(path, &c);
	make_objects(path);
	if (path->untimed && !counted)
		bench_skip("instructions can be counted on x86-64 alone, and where ptrace is "
			   "permitted");
	if (remote)
		start_other_side();
	printf("program=inner_cost preload=0 native=1 path=%s side=%s events=%u ", path->name,
	       remote ? "remote" : "local", path->events);
	if (counted)
		printf("locked=%.2f instructions=%.1f syscalls=%.2f ",
		       (double)c.locked / path->events, (double)c.instructions / path->events,
		       (double)c.syscalls / path->events);
	if (!path->untimed)
		printf("ns=%.2f ", time_path(path));
	printf("ok=1\n");
	return 0;
}
