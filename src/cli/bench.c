/* SPDX-License-Identifier: MIT */
/*
 * `pollux bench`: stock programs run alternately on the kernel and under
 * `pollux run`, compared pair by pair, so that what the machine does besides
 * falls on both sides alike.
 */
#include "bench.h"
#include "results.h"
#include "stats.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN_SECONDS 120
#define PROGRESS_SECONDS 2.0
#define MAX_PAIRS 1000
#define MAX_METRICS 5
#define MAX_LIST 32
/* The status by which a script says that what it needs is not installed. */
#define EXIT_SKIPPED 77

static const char help_head[] = "Usage: pollux bench WHAT... [OPTION]...\n"
				"       pollux bench compare FILE FILE [OPTION]...\n"
				"       pollux bench report FILE FOLDER\n"
				"Measure the kernel and Pollux in turn with unmodified programs.\n"
				"\n"
				"WHAT is one or more of\n";

static const char help_tail[] =
	"  all        all of them\n"
	"\n"
	"  --threads=LIST   numbers of threads, such as 1,8,64 (waiters: of waiting threads;\n"
	"                   pingpong: of pairs; teardown: of processes or threads; not for\n"
	"                   watches, startup, servers and aio)\n"
	"  --events=N       events of each thread or process (watches: size of the set;\n"
	"                   startup: children; aio: requests; aio-lookup: contexts)\n"
	"  --pairs=N        runs on each side (default 7, with --quick 3)\n"
	"  --warm-up=N      runs of each side before those that count (default 1; with --quick\n"
	"                   before the first configuration of each bench alone)\n"
	"  --quick          fewer and shorter runs, for a first impression\n"
	"  --native         storm: also the programs that call Pollux's own functions\n"
	"  --json=FILE      write the machine, all results and all raw samples to FILE\n"
	"  --report=FOLDER  write a page with charts, index.html, and report.md and report.json\n"
	"  --help           print this text\n"
	"\n"
	"Shown are the medians of both sides and the median of the ratios of all pairs, with\n"
	"the smallest and the largest ratio. Above 1 Pollux is better. '~' marks a result whose\n"
	"ratios differ by more than half of their median: repeat it on a calmer machine.\n"
	"Where there are more than two sides the last one is compared with each of the others,\n"
	"which are small implementations of what there was before.\n"
	"'compare' says what changed between two JSON files beyond noise, and 'report' writes\n"
	"the page of a JSON file: see their --help.\n"
	"\n"
	"Exit status: 0 if every run succeeded, 1 if one failed, took more than 120 s or was\n"
	"not served by Pollux, or if nothing could be measured, 2 usage error. What this machine\n"
	"or this user cannot measure is skipped, which is no failure.\n";

const struct sides bench_kernel_and_pollux = {2, {"kernel", "Pollux"}, {"kernel", "pollux"}};
static const struct sides lookups = {
	3, {"list", "radix tree", "table"}, {"list", "radix_tree", "table"}};
static const struct sides teardowns = {
	3, {"one mutex", "references", "Pollux"}, {"mutex", "refcount", "pollux"}};
static const struct sides ready_lists = {4,
					 {"spinlock", "rwlock", "lock-free", "Pollux"},
					 {"spinlock", "rwlock", "lockfree", "pollux"}};

struct sample {
	bool done;
	bool ok;
	bool served;
	double seconds;
	double value[MAX_METRICS];
	char *line;
	char *failure;
};

struct config {
	const char *suite;
	char *label;
	struct metric metrics[MAX_METRICS];
	size_t n_metrics;
	const struct sides *sides;
	char **argv[MAX_SIDES];
	/* Why it cannot be measured here; NULL if it can. */
	char *skipped;
	/* The Pollux side calls the library itself instead of being served by the drop-in. */
	bool native;
	/* CPU time of the machine while this was measured. */
	struct cpu_time cpu_time;
	struct sample *samples[MAX_SIDES];
};

struct summary {
	double median[MAX_SIDES];
	/* Of the last side to each of the others. */
	struct {
		double median, min, max;
		/* Of the median, by bootstrap. */
		struct interval in;
		bool noisy;
	} ratio[MAX_SIDES - 1];
};

static struct {
	unsigned int threads[MAX_LIST];
	size_t n_threads;
	unsigned long events;
	unsigned int pairs;
	bool quick;
	bool native;
	/* Less than 0: what is usual. */
	int warm_up;
	const char *json;
	const char *report;
} opt = {.warm_up = -1};

static struct config *configs;
static size_t n_configs;
static char self[PATH_MAX];

static const struct metric rate_metric = {"rate", "rate", UNIT_RATE};
static const struct metric run_time = {"seconds", "time", UNIT_SECONDS};
static const struct metric storm_cpu = {"cpu_ns_per_loop", "CPU", UNIT_NS};

/* Lists of arguments. */

struct args {
	char **v;
	size_t n;
};

static void args_add(struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void args_add(struct args *a, const char *fmt, ...)
{
	va_list ap;
	char *text;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap);
	va_end(ap);
	a->v = n < 0 ? NULL : realloc(a->v, (a->n + 2) * sizeof(*a->v));
	if (!a->v) {
		cli_error("out of memory");
		exit(CLI_FAILED);
	}
	a->v[a->n++] = text;
	a->v[a->n] = NULL;
}

static struct config *config_new(const char *suite, char *label)
{
	struct config *c;

	configs = realloc(configs, (n_configs + 1) * sizeof(*configs));
	if (!configs) {
		cli_error("out of memory");
		exit(CLI_FAILED);
	}
	c = &configs[n_configs++];
	memset(c, 0, sizeof(*c));
	c->suite = suite;
	c->label = label;
	c->metrics[0] = rate_metric;
	c->n_metrics = 1;
	c->sides = &bench_kernel_and_pollux;
	for (size_t s = 0; s < MAX_SIDES; s++)
		c->samples[s] = cli_alloc(opt.pairs * sizeof(*c->samples[s]));
	return c;
}

/* The side that is Pollux. */
static size_t ours(const struct config *c)
{
	return c->sides->n - 1;
}

static void config_add_metric(struct config *c, const struct metric *metric)
{
	c->metrics[c->n_metrics++] = *metric;
}

/* A configuration that runs one stock program plainly and under `pollux run`, with an option or
 * NULL. `words` are its arguments, separated by single blanks. */
static struct config *config_served(const char *suite, char *label, const char *program,
				    const char *option, char *words)
{
	struct config *c = config_new(suite, label);
	char path[PATH_MAX];
	struct args plain = {0}, served = {0};
	char *save = NULL;

	if (!locate_bench(program, path)) {
		c->skipped = cli_format("%s is not built or not installed", program);
		free(words);
		return c;
	}
	args_add(&plain, "%s", path);
	args_add(&served, "%s", self);
	args_add(&served, "run");
	if (option)
		args_add(&served, "%s", option);
	args_add(&served, "--");
	args_add(&served, "%s", path);
	for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		args_add(&plain, "%s", w);
		args_add(&served, "%s", w);
	}
	free(words);
	c->argv[SIDE_KERNEL] = plain.v;
	c->argv[SIDE_POLLUX] = served.v;
	return c;
}

static struct config *config_stock(const char *suite, char *label, const char *program, char *words)
{
	return config_served(suite, label, program, NULL, words);
}

static void words_add(struct args *a, const char *words)
{
	char *copy = cli_strdup(words), *save = NULL;

	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
		args_add(a, "%s", w);
	free(copy);
}

struct config *bench_row(const char *suite, char *label, const struct sides *sides, bool native,
			 const struct metric *metrics, size_t n)
{
	struct config *c = config_new(suite, label);

	c->sides = sides;
	c->native = native;
	memcpy(c->metrics, metrics, n * sizeof(*metrics));
	c->n_metrics = n;
	return c;
}

static void row_command(struct config *c, size_t side, bool served, const char *program,
			const char *words)
{
	char path[PATH_MAX];
	struct args a = {0};

	if (c->skipped)
		return;
	if (!locate_bench(program, path)) {
		c->skipped = cli_format("%s is not built or not installed", program);
		return;
	}
	if (served) {
		args_add(&a, "%s", self);
		args_add(&a, "run");
		args_add(&a, "--");
	}
	args_add(&a, "%s", path);
	words_add(&a, words);
	c->argv[side] = a.v;
}

void bench_row_command(struct config *c, size_t side, const char *program, const char *words)
{
	row_command(c, side, false, program, words);
}

void bench_row_served(struct config *c, size_t side, const char *program, const char *words)
{
	row_command(c, side, true, program, words);
}

bool bench_quick(void)
{
	return opt.quick;
}

unsigned long bench_events(void)
{
	return opt.events;
}

const unsigned int *bench_threads(void)
{
	return opt.n_threads ? opt.threads : NULL;
}

static const char *plural(unsigned long n)
{
	return n == 1 ? "" : "s";
}

/* The thread counts asked for, or the ones given here (ended by 0). */
static const unsigned int *thread_list(const unsigned int *usual, const unsigned int *quick)
{
	if (opt.n_threads)
		return opt.threads;
	return opt.quick ? quick : usual;
}

/* Events of each of n threads, so that the total stays near `total`. */
static unsigned long share(unsigned long total, unsigned int n)
{
	if (opt.events)
		return opt.events;
	if (opt.quick)
		total /= 5;
	return total / n ? total / n : 1;
}

static void add_events(void)
{
	static const unsigned int usual[] = {8, 16, 32, 64, 128, 0}, quick[] = {8, 16, 32, 0};
	static const unsigned int usual_apart[] = {1, 2, 8, 32, 0}, quick_apart[] = {2, 8, 32, 0};
	static const char *const triggers[] = {"LT", "ET"};

	for (const unsigned int *n = thread_list(usual, quick); *n; n++) {
		unsigned long e = opt.events ? opt.events : opt.quick ? 100000 : 1000000;

		config_add_metric(
			config_stock(
				"events", cli_format("%u thread%s, coalescing", *n, plural(*n)),
				"stress-epoll", cli_format("--threads %u --events %lu", *n, e)),
			&run_time);
	}
	for (int t = 0; t < 2; t++)
		for (const unsigned int *n = thread_list(usual_apart, quick_apart); *n; n++)
			config_stock("events",
				     cli_format("%u thread%s, not coalescing, %s", *n, plural(*n),
						triggers[t]),
				     "stress-epoll",
				     cli_format("--threads %u --events %lu --nocoalesce%s", *n,
						share(800000, *n), t ? " --et" : ""));
}

static void add_pipes(void)
{
	static const unsigned int usual[] = {1, 8, 32, 0}, quick[] = {8, 0};

	for (int apart = 0; apart < 2; apart++)
		for (const unsigned int *n = thread_list(usual, quick); *n; n++)
			config_served("pipes",
				      cli_format("%u thread%s, %scoalescing", *n, plural(*n),
						 apart ? "not " : ""),
				      "stress-epoll", "--adopt=pipe",
				      cli_format("--pipe --threads %u --events %lu%s", *n,
						 share(apart ? 800000 : 4000000, *n),
						 apart ? " --nocoalesce" : ""));
}

static void add_waiters(void)
{
	static const unsigned int usual[] = {2, 8, 0};
	static const unsigned int producers[] = {2, 8};

	for (int p = 0; p < 2; p++)
		for (const unsigned int *n = thread_list(usual, usual); *n; n++)
			config_stock("waiters",
				     cli_format("%u waiter%s, %u producers", *n, plural(*n),
						producers[p]),
				     "stress-epoll",
				     cli_format("--threads %u --events %lu --nocoalesce --et "
						"--waiters %u",
						producers[p], share(800000, producers[p]), *n));
}

static void add_pingpong(void)
{
	static const unsigned int usual[] = {1, 8, 0};
	static const struct {
		const char *ack, *label;
	} ways[] = {
		{"epoll", "epoll_wait"},
		{"read", "epoll_wait and read"},
		{"mixed", "epoll_wait with a pipe"},
		{"poll", "poll with a pipe"},
	};
	struct machine m;

	machine_describe(&m);
	for (const unsigned int *n = thread_list(usual, usual); *n; n++) {
		for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
			for (int pin = 0; pin < 2; pin++) {
				if (pin && (*n != 1 || m.cpus < 2))
					continue;
				config_stock("pingpong",
					     cli_format("%u pair%s, %s%s", *n, plural(*n),
							ways[w].label, pin ? ", pinned" : ""),
					     "pingpong",
					     cli_format("--threads %u --events %lu --ack %s%s", *n,
							share(40000, *n), ways[w].ack,
							pin ? " --pin" : ""));
			}
		}
	}
}

static void add_native_storm(unsigned int n, unsigned long events)
{
	struct config *c =
		config_new("storm", cli_format("%u thread%s, eventfd, native", n, plural(n)));
	char stock[PATH_MAX], native[PATH_MAX];
	struct args kernel = {0}, pollux = {0};

	c->native = true;
	config_add_metric(c, &storm_cpu);
	if (!locate_bench("storm", stock) || !locate_bench("native_storm", native)) {
		c->skipped = cli_strdup("native_storm is not built or not installed");
		return;
	}
	args_add(&kernel, "%s", stock);
	args_add(&pollux, "%s", native);
	for (int s = 0; s < 2; s++) {
		struct args *a = s == SIDE_KERNEL ? &kernel : &pollux;

		args_add(a, "--threads");
		args_add(a, "%u", n);
		args_add(a, "--events");
		args_add(a, "%lu", events);
	}
	c->argv[SIDE_KERNEL] = kernel.v;
	c->argv[SIDE_POLLUX] = pollux.v;
}

static void add_storm(void)
{
	static const unsigned int usual[] = {1, 10, 20, 40, 80, 0}, quick[] = {1, 10, 20, 80, 0};
	static const char *const kinds[] = {"eventfd", "tcp"};
	static const char *const names[] = {"eventfd", "TCP socket"};
	const unsigned int *list = thread_list(usual, quick);

	for (int k = 0; k < 2; k++)
		for (const unsigned int *n = list; *n; n++)
			config_add_metric(
				config_stock(
					"storm",
					cli_format("%u thread%s, %s", *n, plural(*n), names[k]),
					"storm",
					cli_format("--threads %u --kind %s --events %lu", *n,
						   kinds[k], share(k ? 200000 : 400000, *n))),
				&storm_cpu);
	if (opt.native)
		for (const unsigned int *n = list; *n; n++)
			add_native_storm(*n, share(400000, *n));
}

static void add_inner_teardown(unsigned int n, unsigned long events)
{
	struct config *c =
		config_new("teardown", cli_format("%u thread%s in process", n, plural(n)));
	char path[PATH_MAX];

	c->metrics[0] = run_time;
	config_add_metric(c, &storm_cpu);
	c->sides = &teardowns;
	c->native = true;
	if (!locate_bench("inner_teardown", path)) {
		c->skipped = cli_strdup("inner_teardown is not built or not installed");
		return;
	}
	for (size_t s = 0; s < teardowns.n; s++) {
		struct args a = {0};

		args_add(&a, "%s", path);
		args_add(&a, "--algorithm");
		args_add(&a, "%s", teardowns.keys[s]);
		args_add(&a, "--threads");
		args_add(&a, "%u", n);
		args_add(&a, "--events");
		args_add(&a, "%lu", events);
		c->argv[s] = a.v;
	}
}

/* As in the table of 2019 each process does the same work, so that more of them take longer. */
static void add_teardown(void)
{
	static const unsigned int usual[] = {10, 20, 40, 80, 0}, quick[] = {10, 20, 40, 80, 0};
	static const char *const kinds[] = {"eventfd", "tcp"};
	static const char *const names[] = {"eventfd", "TCP socket"};
	const unsigned int *list = thread_list(usual, quick);
	unsigned long events = opt.events ? opt.events : opt.quick ? 2000 : 20000;

	for (int k = 0; k < 2; k++) {
		for (const unsigned int *n = list; *n; n++) {
			struct config *c = config_stock(
				"teardown",
				cli_format("%u process%s, %s", *n, *n == 1 ? "" : "es", names[k]),
				"teardown",
				cli_format("--processes %u --kind %s --events %lu", *n, kinds[k],
					   events));

			c->metrics[0] = run_time;
			config_add_metric(c, &storm_cpu);
		}
	}
	/* Without system calls a loop takes so much less that it has to be done more often. */
	for (const unsigned int *n = list; *n; n++)
		add_inner_teardown(*n, opt.events ? opt.events : 10 * events);
}

static void add_watches(void)
{
	static const unsigned long usual[] = {1000, 10000, 100000, 1000000, 0};
	static const unsigned long quick[] = {1000, 100000, 0};
	static const struct metric metrics[] = {
		{"add_ns", "ADD", UNIT_NS},
		{"del_ns", "DEL", UNIT_NS},
		{"watch_bytes", "a watch", UNIT_BYTES},
	};
	const unsigned long one[] = {opt.events, 0};

	for (const unsigned long *n = opt.events ? one : opt.quick ? quick : usual; *n; n++) {
		struct config *c = config_stock("watches", cli_format("%lu watches", *n), "watches",
						cli_format("--watches %lu", *n));

		memcpy(c->metrics, metrics, sizeof(metrics));
		/* The program leaves the memory out where it is too little to be seen. */
		c->n_metrics = *n < 50000 ? 2 : sizeof(metrics) / sizeof(metrics[0]);
	}
}

static void add_kernelfds(void)
{
	static const unsigned int usual[] = {1, 4, 0};
	static const struct metric cpu = {"cpu_ns_per_request", "CPU", UNIT_NS};

	for (const unsigned int *n = thread_list(usual, usual); *n; n++)
		config_add_metric(
			config_stock("kernelfds",
				     cli_format("%u server%s, 32 connections", *n, plural(*n)),
				     "kernelfds",
				     cli_format("--threads %u --connections 32 --events %lu", *n,
						share(8000, *n))),
			&cpu);
}

/* A configuration that servers.sh runs. */
static struct config *config_server(const char *suite, const char *label, const char *workload)
{
	static const struct metric cpu = {"cpu_us_per_request", "server CPU", UNIT_US};
	struct config *c = config_new(suite, cli_strdup(label));
	char script[PATH_MAX];

	config_add_metric(c, &cpu);
	if (!locate_bench("servers.sh", script)) {
		c->skipped = cli_strdup("servers.sh is not installed");
		return c;
	}
	for (int s = 0; s < 2; s++) {
		struct args a = {0};

		args_add(&a, "/bin/sh");
		args_add(&a, "%s", script);
		args_add(&a, "--workload");
		args_add(&a, "%s", workload);
		args_add(&a, "--seconds");
		args_add(&a, "%d", opt.quick ? 2 : 5);
		if (s == SIDE_POLLUX) {
			args_add(&a, "--pollux");
			args_add(&a, "%s", self);
		}
		c->argv[s] = a.v;
	}
	return c;
}

static void add_libuv(void)
{
	static const unsigned int usual[] = {1, 4, 0}, quick[] = {4, 0};
	static const struct metric cpu = {"cpu_ns_per_message", "CPU", UNIT_NS};

	for (int heard = 0; heard < 2; heard++) {
		for (const unsigned int *n = thread_list(usual, quick); *n; n++) {
			unsigned long e = share(heard ? 40000 : 80000000, *n);

			config_add_metric(
				config_stock("libuv",
					     cli_format("%u thread%s, %s", *n, plural(*n),
							heard ? "each message heard" : "full rate"),
					     "uv_async",
					     cli_format("--threads %u --events %lu%s", *n, e,
							heard ? " --heard" : "")),
				&cpu);
		}
	}
}

static void add_timers(void)
{
	static const unsigned int usual[] = {1, 4, 0}, quick[] = {1, 0};
	static const char *const whats[] = {"move", "disarm", "loop"};
	static const char *const labels[] = {"later and later", "set and disarmed in turn",
					     "later, after an event"};

	for (size_t i = 0; i < sizeof(whats) / sizeof(whats[0]); i++)
		for (const unsigned int *n = thread_list(usual, quick); *n; n++)
			config_stock("timers",
				     cli_format("%u thread%s, %s", *n, plural(*n), labels[i]),
				     "timers",
				     cli_format("--threads %u --events %lu --what %s", *n,
						share(1000000, *n), whats[i]));
}

static void add_startup(void)
{
	static const struct {
		const char *how;
		const char *label;
		unsigned long events;
	} list[] = {
		{"fork", "fork", 1000},
		{"exec-bare", "fork and exec, empty environment", 500},
		{"exec", "fork and exec", 500},
		{"exec-loaded", "fork and exec, with the drop-in", 500},
		{"spawn", "posix_spawn", 500},
	};
	static const struct metric metrics[] = {
		{"us", "a child", UNIT_US},
		{"cpu_us", "CPU", UNIT_US},
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		struct config *c = config_stock(
			"startup", cli_strdup(list[i].label), "spawn",
			cli_format("--how %s --events %lu", list[i].how, share(list[i].events, 1)));

		memcpy(c->metrics, metrics, sizeof(metrics));
		c->n_metrics = sizeof(metrics) / sizeof(metrics[0]);
	}
}

static void add_servers(void)
{
	config_server("servers", "nginx, keep-alive", "nginx-keepalive");
	config_server("servers", "nginx, a connection per request", "nginx-close");
	config_server("servers", "redis GET", "redis-get");
	config_server("servers", "redis SET", "redis-set");
}

static void add_nginx(void)
{
	static const struct metric removal = {"removal_percent", "in removal", UNIT_PERCENT};

	config_add_metric(config_server("nginx", "one request each", "nginx-once"), &removal);
}

static const struct metric scale_metrics[] = {
	{"add_ns", "ADD", UNIT_NS},
	{"del_ns", "DEL", UNIT_NS},
	{"event_ns", "an event", UNIT_NS},
	{"watch_bytes", "a watch", UNIT_BYTES},
};

/* The program leaves the memory out where it is too little to be seen. */
static void use_scale_metrics(struct config *c, unsigned long watches)
{
	memcpy(c->metrics, scale_metrics, sizeof(scale_metrics));
	c->n_metrics = sizeof(scale_metrics) / sizeof(scale_metrics[0]) - (watches < 50000);
}

/* What a descriptor limit keeps from the kernel it does not keep from Pollux's own functions. */
static void add_scale_native(unsigned long n)
{
	struct config *c =
		config_new("scale", cli_format("%lu watch%s, native", n, n == 1 ? "" : "es"));
	char stock[PATH_MAX], native[PATH_MAX];

	c->native = true;
	use_scale_metrics(c, n);
	if (!locate_bench("watches", stock) || !locate_bench("native_watches", native)) {
		c->skipped = cli_strdup("native_watches is not built or not installed");
		return;
	}
	for (int s = 0; s < 2; s++) {
		struct args a = {0};

		args_add(&a, "%s", s == SIDE_KERNEL ? stock : native);
		args_add(&a, "--watches");
		args_add(&a, "%lu", n);
		c->argv[s] = a.v;
	}
}

static void add_scale(void)
{
	static const unsigned long watches[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 0};
	static const unsigned long quick_watches[] = {1, 1000, 100000, 0};
	static const unsigned int waiters[] = {1, 2, 4, 8, 16, 32, 64, 0};
	static const unsigned int quick_waiters[] = {1, 8, 64, 0};
	static const unsigned int threads[] = {1, 2, 4, 8, 16, 32, 64, 128, 0};
	static const unsigned int quick_threads[] = {1, 16, 128, 0};
	static const struct metric event = {"ns_per_event", "an event", UNIT_NS};
	const unsigned long one[] = {opt.events, 0};
	const unsigned long *sizes = opt.events ? one : opt.quick ? quick_watches : watches;

	for (const unsigned long *n = sizes; *n; n++)
		use_scale_metrics(config_stock("scale",
					       cli_format("%lu watch%s", *n, *n == 1 ? "" : "es"),
					       "watches", cli_format("--watches %lu", *n)),
				  *n);
	for (const unsigned long *n = sizes; *n; n++)
		add_scale_native(*n);
	for (const unsigned int *n = thread_list(waiters, quick_waiters); *n; n++)
		config_stock("scale", cli_format("%u waiter%s, 8 producers", *n, plural(*n)),
			     "stress-epoll",
			     cli_format("--threads 8 --waiters %u --nocoalesce --et --events %lu",
					*n, share(400000, 8)))
			->metrics[0] = event;
	for (const unsigned int *n = thread_list(threads, quick_threads); *n; n++)
		config_stock(
			"scale", cli_format("%u thread%s, 1 waiter", *n, plural(*n)),
			"stress-epoll",
			cli_format("--threads %u --nocoalesce --events %lu", *n, share(400000, *n)))
			->metrics[0] = event;
}

static void add_aio(void)
{
	static const struct {
		const char *mode;
		const char *label;
		unsigned long events;
	} micro[] = {
		{"pread", "1 KiB reads, one at a time", 500000},
		{"pwrite", "1 KiB writes, one at a time", 500000},
		{"depth", "1 KiB, 32 in flight, 16 at a time", 1000000},
		{"direct", "4 KiB O_DIRECT on disk, 32 in flight", 20000},
		{"setup", "io_setup and io_destroy", 100000},
	};
	static const struct {
		const char *workload;
		const char *label;
	} fio[] = {
		{"jobs512", "fio, 512 threads, randrw 256k bs=1k"},
		{"jobs1", "fio, one thread, randrw 100m bs=1k"},
	};
	static const struct metric cpu = {"cpu_ns_per_op", "CPU", UNIT_NS};
	char script[PATH_MAX];
	bool found = locate_bench("fio.sh", script);

	for (size_t i = 0; i < sizeof(micro) / sizeof(micro[0]); i++) {
		struct config *c = config_stock("aio", cli_strdup(micro[i].label), "aio_micro",
						cli_format("--mode %s --events %lu", micro[i].mode,
							   share(micro[i].events, 1)));

		config_add_metric(c, &cpu);
	}
	for (size_t i = 0; i < sizeof(fio) / sizeof(fio[0]); i++) {
		struct config *c = config_new("aio", cli_strdup(fio[i].label));

		config_add_metric(c, &cpu);
		if (!found) {
			c->skipped = cli_strdup("fio.sh is not installed");
			continue;
		}
		for (int s = 0; s < 2; s++) {
			struct args a = {0};

			args_add(&a, "/bin/sh");
			args_add(&a, "%s", script);
			args_add(&a, "--workload");
			args_add(&a, "%s", fio[i].workload);
			if (opt.quick)
				args_add(&a, "--quick");
			if (s == SIDE_POLLUX) {
				args_add(&a, "--pollux");
				args_add(&a, "%s", self);
			}
			c->argv[s] = a.v;
		}
	}
}

static void add_aio_lookup(void)
{
	static const unsigned long usual[] = {1, 64, 512, 1024, 100000, 0};
	static const char *const algorithms[] = {"list", "radix", "table"};
	static const struct metric metrics[] = {
		{"ns", "the same again", UNIT_NS},
		{"any_ns", "any of them", UNIT_NS},
	};
	const unsigned long one[] = {opt.events, 0};
	char path[PATH_MAX];
	bool found = locate_bench("inner_aio_lookup", path);

	for (const unsigned long *n = opt.events ? one : usual; *n; n++) {
		struct config *c =
			config_new("aio-lookup", cli_format("%lu context%s", *n, plural(*n)));

		c->sides = &lookups;
		c->native = true;
		memcpy(c->metrics, metrics, sizeof(metrics));
		c->n_metrics = *n == 1 ? 1 : 2;
		if (!found) {
			c->skipped = cli_strdup("inner_aio_lookup is not built or not installed");
			continue;
		}
		for (size_t s = 0; s < lookups.n; s++) {
			struct args a = {0};

			args_add(&a, "%s", path);
			args_add(&a, "--algorithm");
			args_add(&a, "%s", algorithms[s]);
			args_add(&a, "--contexts");
			args_add(&a, "%lu", *n);
			args_add(&a, "--milliseconds");
			args_add(&a, "%d", opt.quick ? 20 : 100);
			c->argv[s] = a.v;
		}
	}
}

static void add_ready(void)
{
	static const unsigned int usual[] = {8, 16, 32, 64, 128, 0}, quick[] = {8, 16, 32, 0};
	char path[PATH_MAX];
	bool found = locate_bench("inner_ready", path);

	for (const unsigned int *n = thread_list(usual, quick); *n; n++) {
		struct config *c = config_new("ready", cli_format("%u threads", *n));

		c->sides = &ready_lists;
		c->native = true;
		config_add_metric(c, &run_time);
		if (!found) {
			c->skipped = cli_strdup("inner_ready is not built or not installed");
			continue;
		}
		for (size_t s = 0; s < ready_lists.n; s++) {
			struct args a = {0};

			args_add(&a, "%s", path);
			args_add(&a, "--algorithm");
			args_add(&a, "%s", ready_lists.keys[s]);
			args_add(&a, "--threads");
			args_add(&a, "%u", *n);
			args_add(&a, "--events");
			args_add(&a, "%lu", opt.events ? opt.events : opt.quick ? 50000 : 500000);
			c->argv[s] = a.v;
		}
	}
}

static const struct suite {
	const char *name;
	void (*add)(void);
	const char *title;
} suites[] = {
	{"events", add_events,
	 "events: threads write to their eventfds, one thread waits and reads"},
	{"pipes", add_pipes, "pipes: threads write a byte to their pipes, one waits and reads"},
	{"waiters", add_waiters, "waiters: several threads wait on one epoll (ET, not coalescing)"},
	{"pingpong", add_pingpong, "pingpong: round trips between two threads"},
	{"storm", add_storm, "storm: make, ADD, close, in a loop"},
	{"teardown", add_teardown,
	 "teardown: make, ADD, close; each process or thread the same number of times"},
	{"watches", add_watches, "watches: cost of a watch as the set grows"},
	{"kernelfds", add_kernelfds, "kernelfds: TCP echo, kernel descriptors alone"},
	{"libuv", add_libuv, "libuv: uv_async_send from threads to a loop"},
	{"timers", add_timers, "timers: a timerfd is set again before it expires"},
	{"startup", add_startup, "startup: children of a program, one after the other"},
	{"servers", add_servers, "servers: requests over loopback"},
	{"nginx", add_nginx, "nginx: one request per connection, a worker for each CPU"},
	{"scale", add_scale, "scale: cost of one operation as watches, waiters and threads grow"},
	{"aio", add_aio, "aio: Linux AIO, on tmpfs unless it says otherwise"},
	{"aio-lookup", add_aio_lookup, "aio-lookup: from a pointer to the context, and back"},
	{"ready", add_ready, "ready: lists of ready items without the kernel around them"},
	{"removal", bench_add_removal, "removal: an item is taken off the list of ready items"},
	{"inversion", bench_add_inversion,
	 "inversion: who has priority waits for one who was stopped while telling"},
	{"latency", bench_add_latency, "latency: from one thread's write to another's wait"},
	{"primitives", bench_add_primitives, "primitives: what the machine takes for a step"},
	{"cost", bench_add_cost,
	 "cost: paths through the engine; remote: the other side is on another CPU"},
	{"calls", bench_add_calls, "calls: single calls of libc, one by one"},
};
#define N_SUITES (sizeof(suites) / sizeof(suites[0]))

/* The title without the name in front. */
static const char *about(const struct suite *suite)
{
	return suite->title + strlen(suite->name) + strlen(": ");
}

/* Results. */

/* The number after "key=" in a line of such pairs; NAN if there is none. */
static double line_value(const char *line, const char *key)
{
	size_t len = strlen(key);

	for (const char *p = line; (p = strstr(p, key)); p += len)
		if ((p == line || p[-1] == ' ') && p[len] == '=')
			return strtod(p + len + 1, NULL);
	return NAN;
}

static struct summary summarize(const struct config *c, size_t metric)
{
	double values[MAX_PAIRS];
	struct summary r;
	size_t n;

	for (size_t s = 0; s < c->sides->n; s++) {
		n = 0;
		for (unsigned int p = 0; p < opt.pairs; p++)
			if (c->samples[s][p].ok && isfinite(c->samples[s][p].value[metric]))
				values[n++] = c->samples[s][p].value[metric];
		r.median[s] = stats_median(values, n);
	}
	for (size_t s = 0; s < ours(c); s++) {
		n = 0;
		for (unsigned int p = 0; p < opt.pairs; p++) {
			const struct sample *k = &c->samples[s][p];
			const struct sample *u = &c->samples[ours(c)][p];
			double kv = k->value[metric], uv = u->value[metric];

			if (!k->ok || !u->ok || !(kv > 0) || !(uv > 0))
				continue;
			values[n++] = c->metrics[metric].unit == UNIT_RATE ? uv / kv : kv / uv;
		}
		r.ratio[s].median = stats_median(values, n);
		r.ratio[s].min = n ? values[0] : NAN;
		r.ratio[s].max = n ? values[n - 1] : NAN;
		r.ratio[s].in = stats_median_interval(values, n, RESULTS_LEVEL);
		r.ratio[s].noisy = n && r.ratio[s].max - r.ratio[s].min >
						NOISY_RATIO_SPREAD * r.ratio[s].median;
	}
	return r;
}

/* Of seconds: what the last side takes more or less than the other, in percent. */
static double difference(double ratio)
{
	return 100 / ratio - 100;
}

static void format_value(char *text, size_t size, double v, enum unit unit)
{
	if (!isfinite(v)) {
		snprintf(text, size, "-");
		return;
	}
	switch (unit) {
	case UNIT_RATE:
		if (v >= 1e6)
			snprintf(text, size, "%.*f M/s", v >= 1e8 ? 0 : v >= 1e7 ? 1 : 2, v / 1e6);
		else if (v < 1e3)
			snprintf(text, size, "%.1f /s", v);
		else
			snprintf(text, size, "%.*f k/s", v >= 1e5 ? 0 : 1, v / 1e3);
		break;
	case UNIT_SECONDS:
		snprintf(text, size, "%.3f s", v);
		break;
	case UNIT_PERCENT:
		snprintf(text, size, "%.2f %%", v);
		break;
	case UNIT_NS:
		snprintf(text, size, "%.*f ns", v < 100 ? 1 : 0, v);
		break;
	case UNIT_US:
		snprintf(text, size, "%.2f us", v);
		break;
	case UNIT_BYTES:
		snprintf(text, size, "%.0f B", v);
		break;
	case UNIT_COUNT:
		snprintf(text, size, "%.*f", v < 10 ? 2 : 0, v);
		break;
	}
}

static size_t count_failed(const struct config *c)
{
	size_t n = 0;

	for (size_t s = 0; s < c->sides->n; s++)
		for (unsigned int p = 0; p < opt.pairs; p++)
			n += c->samples[s][p].done && !c->samples[s][p].ok;
	return n;
}

static size_t count_unserved(const struct config *c)
{
	size_t n = 0;

	for (unsigned int p = 0; p < opt.pairs; p++)
		n += c->samples[ours(c)][p].ok && !c->samples[ours(c)][p].served;
	return n;
}

/*
 * Where fewer descriptors are permitted than there are watches, each of them has several, which
 * costs more than one. NULL if that was not so.
 */
static char *describe_descriptors(const struct config *c)
{
	for (unsigned int p = 0; p < opt.pairs; p++) {
		const struct sample *s = &c->samples[SIDE_KERNEL][p];
		double epolls = s->ok ? line_value(s->line, "epolls") : NAN;

		if (epolls > 1)
			return cli_format("no more than %.0f descriptors are permitted (ulimit "
					  "-Hn), so each is watched by %.0f epolls%s",
					  line_value(s->line, "descriptors"), epolls,
					  c->native ? "; not so with Pollux's own functions" : "");
	}
	return NULL;
}

static void print_config(const struct config *c)
{
	size_t failed = count_failed(c), unserved = count_unserved(c);
	char *remark;

	if (c->skipped) {
		printf("  %-38s not measured: %s\n", c->label, c->skipped);
		return;
	}
	remark = describe_descriptors(c);
	for (size_t m = 0; m < c->n_metrics; m++) {
		struct summary r = summarize(c, m);
		char value[32];
		char *label = c->n_metrics == 1 ? cli_strdup(c->label)
						: cli_format("%s%s%s", m ? "  " : c->label,
							     m ? "" : ": ", c->metrics[m].title);

		printf("  %-38s", label);
		for (size_t i = 0; i < c->sides->n; i++) {
			format_value(value, sizeof(value), r.median[i], c->metrics[m].unit);
			printf(" %11s", value);
		}
		for (size_t i = 0; i < ours(c); i++) {
			if (!isfinite(r.ratio[i].median)) {
				printf(" %7s", "-");
				continue;
			}
			printf(" %7.2fx  [%.2f..%.2f]%s", r.ratio[i].median, r.ratio[i].min,
			       r.ratio[i].max, r.ratio[i].noisy ? " ~" : "");
			if (c->metrics[m].unit == UNIT_SECONDS)
				printf(" %+.1f %%", difference(r.ratio[i].median));
		}
		putchar('\n');
		free(label);
	}
	for (size_t m = 0; m < c->n_metrics; m++)
		if (c->metrics[m].unit == UNIT_PERCENT &&
		    !isfinite(summarize(c, m).median[ours(c)]))
			printf("    the CPU's time could not be looked into: perf is not installed "
			       "or "
			       "not permitted\n");
	if (remark)
		printf("    %s\n", remark);
	free(remark);
	if (failed)
		printf("    FAILED: %zu of %zu runs; they are left out\n", failed,
		       c->sides->n * opt.pairs);
	if (unserved)
		printf("    NOT SERVED: in %zu of %u runs Pollux did not serve the program; "
		       "this is no measurement of it\n",
		       unserved, opt.pairs);
	fflush(stdout);
}

/* How the cost of ADD and DEL grew from the smallest to the largest set. */
static void print_growth(void)
{
	const struct config *first = NULL, *last = NULL;

	for (size_t i = 0; i < n_configs; i++) {
		if (strcmp(configs[i].suite, "watches") || configs[i].skipped)
			continue;
		if (!first)
			first = &configs[i];
		last = &configs[i];
	}
	if (!first || first == last)
		return;
	for (size_t m = 0; m < 2; m++) {
		struct summary a = summarize(first, m), b = summarize(last, m);

		if (!(a.median[SIDE_KERNEL] > 0) || !(a.median[SIDE_POLLUX] > 0) ||
		    !(b.median[SIDE_KERNEL] > 0) || !(b.median[SIDE_POLLUX] > 0))
			continue;
		printf("  %s, %s against %s: kernel %.2f times as long, Pollux %.2f times\n",
		       first->metrics[m].title, last->label, first->label,
		       b.median[SIDE_KERNEL] / a.median[SIDE_KERNEL],
		       b.median[SIDE_POLLUX] / a.median[SIDE_POLLUX]);
	}
}

/* Running. */

struct progress {
	const struct config *config;
	const char *side;
	unsigned int pair;
	size_t done;
	size_t total;
	double start;
	double drawn;
	bool tty;
	bool shown;
};

static struct progress progress;

static void progress_tick(void *arg)
{
	struct progress *p = arg;
	double now = cli_now();
	/* Cut to one line of the usual terminal, since a wrapped line cannot be wiped. */
	char line[80];

	if (!p->tty || now - p->start < PROGRESS_SECONDS || now - p->drawn < 0.25)
		return;
	p->drawn = now;
	p->shown = true;
	snprintf(line, sizeof(line), "[%zu/%zu, %.0f s] %s: %s, pair %u of %u, %s", p->done + 1,
		 p->total, now - p->start, p->config->suite, p->config->label, p->pair + 1,
		 opt.pairs, p->side);
	fprintf(stderr, "\r\033[K%s", line);
}

static void progress_clear(void)
{
	if (progress.shown)
		fputs("\r\033[K", stderr);
	progress.shown = false;
}

/* The last line of the output, where the result stands. */
static char *last_line(const char *text)
{
	size_t end = strlen(text), start;

	while (end && text[end - 1] == '\n')
		end--;
	for (start = end; start && text[start - 1] != '\n'; start--)
		;
	return cli_format("%.*s", (int)(end - start), text + start);
}

static void sample_fail(struct config *c, struct sample *s, size_t side, char *why)
{
	s->ok = false;
	s->failure = why;
	progress_clear();
	fflush(stdout);
	fprintf(stderr, "pollux: %s, %s, %s: %s\n", c->suite, c->label, c->sides->names[side], why);
}

static void run_one(struct config *c, size_t side, unsigned int pair, struct sample *s)
{
	struct cpu_time before, after;
	struct child child = {
		.argv = c->argv[side],
		.limit = RUN_SECONDS,
		.tick = progress_tick,
		.tick_arg = &progress,
	};
	char text[160];
	int rc;

	progress.config = c;
	progress.side = c->sides->names[side];
	progress.pair = pair;
	machine_cpu_time(&before);
	rc = child_run(&child);
	machine_cpu_time(&after);
	cpu_time_add(&c->cpu_time, &before, &after);
	s->done = true;
	if (rc) {
		sample_fail(c, s, side, cli_format("cannot be started: %s", strerror(-rc)));
		return;
	}
	s->seconds = child.seconds;
	s->line = last_line(child.out);
	if (!child.timed_out && WIFEXITED(child.status) &&
	    WEXITSTATUS(child.status) == EXIT_SKIPPED && !strncmp(s->line, "skip=", 5)) {
		c->skipped = cli_strdup(s->line + 5);
		/* Nothing has been tried that could have failed. */
		s->done = false;
		return;
	}
	if (child.timed_out || child.status) {
		child.err[strcspn(child.err, "\n")] = '\0';
		child_describe(&child, text, sizeof(text));
		sample_fail(c, s, side,
			    cli_format("%s%s%s", text, *child.err ? ": " : "", child.err));
		return;
	}
	if (line_value(s->line, "ok") != 1 || !isfinite(line_value(s->line, c->metrics[0].key))) {
		sample_fail(c, s, side, cli_format("printed no result: '%.80s'", s->line));
		return;
	}
	if (side != ours(c) && line_value(s->line, "preload") != 0) {
		sample_fail(c, s, side,
			    cli_strdup("the plain run had the drop-in loaded (see LD_PRELOAD and "
				       "/etc/ld.so.preload)"));
		return;
	}
	for (size_t m = 0; m < c->n_metrics; m++)
		s->value[m] = line_value(s->line, c->metrics[m].key);
	s->served = line_value(s->line, c->native ? "native" : "served") == 1;
	s->ok = true;
}

/* What the first run of a program pays for all: its pages, and the clock of a CPU that slept. */
static void warm_up(struct config *c, int runs)
{
	for (int i = 0; i < runs; i++) {
		for (size_t side = 0; side < c->sides->n && !c->skipped; side++) {
			struct sample s = {0};

			run_one(c, side, 0, &s);
			free(s.line);
			free(s.failure);
		}
	}
	memset(&c->cpu_time, 0, sizeof(c->cpu_time));
}

static void run_config(struct config *c, bool first_of_suite)
{
	warm_up(c, opt.warm_up >= 0 ? opt.warm_up : !opt.quick || first_of_suite);
	for (unsigned int pair = 0; pair < opt.pairs && !c->skipped; pair++) {
		/* Who begins changes, so that a slow drift of the machine cancels out. */
		for (size_t i = 0; i < c->sides->n && !c->skipped; i++) {
			size_t side = (pair + i) % c->sides->n;

			run_one(c, side, pair, &c->samples[side][pair]);
			progress.done++;
		}
		/* What fails three times on each side fails; time is better spent elsewhere. */
		if (pair == 2 && count_failed(c) == 3 * c->sides->n)
			break;
	}
	progress_clear();
	print_config(c);
}

/* FROM:COUNT,FROM:COUNT,... of the result line. */
static void write_json_histogram(struct json *j, const char *line)
{
	const char *p = strstr(line, " histogram=");

	if (!p)
		return;
	p += strlen(" histogram=");
	json_open(j, "histogram", '[');
	while (*p && *p != ' ') {
		char *end;

		json_open(j, NULL, '{');
		json_integer(j, "from_ns", strtoll(p, &end, 10));
		json_integer(j, "count", *end == ':' ? strtoll(end + 1, &end, 10) : 0);
		json_close(j, '}');
		p = end + (*end == ',');
	}
	json_close(j, ']');
}

static void write_json_side(struct json *j, const struct config *c, size_t side)
{
	json_open(j, c->sides->keys[side], '{');
	json_open(j, "command", '[');
	for (size_t i = 0; c->argv[side] && c->argv[side][i]; i++)
		json_string(j, NULL, c->argv[side][i]);
	json_close(j, ']');
	json_open(j, "runs", '[');
	for (unsigned int p = 0; p < opt.pairs; p++) {
		const struct sample *s = &c->samples[side][p];

		if (!s->done)
			continue;
		json_open(j, NULL, '{');
		json_integer(j, "pair", p + 1);
		json_bool(j, "ok", s->ok);
		if (side == ours(c))
			json_bool(j, "served", s->served);
		json_number(j, "wall_seconds", s->seconds);
		if (s->failure)
			json_string(j, "failure", s->failure);
		if (s->ok)
			for (size_t m = 0; m < c->n_metrics; m++)
				json_number(j, c->metrics[m].key, s->value[m]);
		if (s->ok)
			write_json_histogram(j, s->line);
		if (s->line)
			json_string(j, "output", s->line);
		json_close(j, '}');
	}
	json_close(j, ']');
	json_close(j, '}');
}

/* The key is put together of three parts. */
static void write_json_key(struct json *j, const char *a, const char *b, const char *c, double v)
{
	char *key = cli_format("%s%s%s", a, b, c);

	json_number(j, key, v);
	free(key);
}

/* How this bench alone is measured again, as it was now. */
static char *suite_command(const char *name)
{
	char *text = cli_format("pollux bench %s%s%s --pairs=%u", name, opt.quick ? " --quick" : "",
				opt.native ? " --native" : "", opt.pairs),
	     *longer;

	for (size_t i = 0; i < opt.n_threads; i++) {
		longer = cli_format("%s%s%u", text, i ? "," : " --threads=", opt.threads[i]);
		free(text);
		text = longer;
	}
	if (opt.events) {
		longer = cli_format("%s --events=%lu", text, opt.events);
		free(text);
		text = longer;
	}
	if (opt.warm_up >= 0) {
		longer = cli_format("%s --warm-up=%d", text, opt.warm_up);
		free(text);
		text = longer;
	}
	longer = cli_format("%s --report=%s-report", text, name);
	free(text);
	return longer;
}

static void write_json_benches(struct json *j)
{
	json_open(j, "benches", '[');
	for (size_t s = 0; s < N_SUITES; s++) {
		char *command;
		bool used = false;

		for (size_t i = 0; i < n_configs; i++)
			used |= !strcmp(configs[i].suite, suites[s].name);
		if (!used)
			continue;
		command = suite_command(suites[s].name);
		json_open(j, NULL, '{');
		json_string(j, "name", suites[s].name);
		json_string(j, "title", about(&suites[s]));
		json_string(j, "command", command);
		json_close(j, '}');
		free(command);
	}
	json_close(j, ']');
}

static void write_json_shares(struct json *j, const struct cpu_time *t)
{
	json_number(j, "others_share", cpu_time_others(t));
	json_number(j, "steal_share", cpu_time_stolen(t));
}

static void write_json(FILE *f, const char *command, const struct machine *before,
		       const struct machine *after)
{
	static const char *const units[] = {"per second", "s",	   "percent", "ns",
					    "us",	  "bytes", "count"};
	struct cpu_time all = {0};
	struct json j;

	json_start(&j, f);
	json_open(&j, NULL, '{');
	json_string(&j, "version", POLLUX_VERSION);
	json_string(&j, "command", command);
	json_open(&j, "machine", '{');
	json_string(&j, "cpu", before->cpu);
	json_integer(&j, "cpus", before->cpus);
	json_string(&j, "arch", before->arch);
	json_string(&j, "kernel", before->kernel);
	json_integer(&j, "memory_kb", (long long)before->memory_kb);
	json_string(&j, "start", before->date);
	json_string(&j, "end", after->date);
	json_open(&j, "load_average_start", '[');
	for (int i = 0; i < 3; i++)
		json_number(&j, NULL, before->load[i]);
	json_close(&j, ']');
	json_open(&j, "load_average_end", '[');
	for (int i = 0; i < 3; i++)
		json_number(&j, NULL, after->load[i]);
	json_close(&j, ']');
	for (size_t i = 0; i < n_configs; i++)
		cpu_time_sum(&all, &configs[i].cpu_time);
	write_json_shares(&j, &all);
	json_close(&j, '}');
	json_integer(&j, "pairs", opt.pairs);
	json_bool(&j, "quick", opt.quick);
	write_json_benches(&j);
	json_open(&j, "results", '[');
	for (size_t i = 0; i < n_configs; i++) {
		const struct config *c = &configs[i];
		char *remark;

		json_open(&j, NULL, '{');
		json_string(&j, "bench", c->suite);
		json_string(&j, "configuration", c->label);
		json_bool(&j, "native", c->native);
		if (c->skipped) {
			json_string(&j, "skipped", c->skipped);
			json_close(&j, '}');
			continue;
		}
		remark = describe_descriptors(c);
		if (remark)
			json_string(&j, "remark", remark);
		free(remark);
		json_integer(&j, "failed", (long long)count_failed(c));
		json_integer(&j, "not_served", (long long)count_unserved(c));
		write_json_shares(&j, &c->cpu_time);
		json_open(&j, "sides", '[');
		for (size_t s = 0; s < c->sides->n; s++) {
			json_open(&j, NULL, '{');
			json_string(&j, "key", c->sides->keys[s]);
			json_string(&j, "name", c->sides->names[s]);
			json_close(&j, '}');
		}
		json_close(&j, ']');
		json_open(&j, "metrics", '[');
		for (size_t m = 0; m < c->n_metrics; m++) {
			struct summary r = summarize(c, m);
			bool noisy = false;

			json_open(&j, NULL, '{');
			json_string(&j, "name", c->metrics[m].key);
			json_string(&j, "title", c->metrics[m].title);
			json_string(&j, "unit", units[c->metrics[m].unit]);
			json_bool(&j, "more_is_better", c->metrics[m].unit == UNIT_RATE);
			for (size_t s = 0; s < c->sides->n; s++)
				write_json_key(&j, "", c->sides->keys[s], "_median", r.median[s]);
			for (size_t s = 0; s < ours(c); s++) {
				/* With two sides there is one ratio, which needs no name. */
				const char *name = ours(c) == 1 ? "" : c->sides->keys[s];
				const char *bar = *name ? "_" : "";

				write_json_key(&j, name, bar, "ratio_median", r.ratio[s].median);
				write_json_key(&j, name, bar, "ratio_min", r.ratio[s].min);
				write_json_key(&j, name, bar, "ratio_max", r.ratio[s].max);
				write_json_key(&j, name, bar, "ratio_low", r.ratio[s].in.low);
				write_json_key(&j, name, bar, "ratio_high", r.ratio[s].in.high);
				if (c->metrics[m].unit == UNIT_SECONDS)
					write_json_key(&j, name, bar, "difference_percent",
						       difference(r.ratio[s].median));
				noisy |= r.ratio[s].noisy;
			}
			json_bool(&j, "noisy", noisy);
			json_close(&j, '}');
		}
		json_close(&j, ']');
		for (size_t s = 0; s < c->sides->n; s++)
			write_json_side(&j, c, s);
		json_close(&j, '}');
	}
	json_close(&j, ']');
	json_close(&j, '}');
}

static void print_heads(const struct sides *sides)
{
	printf("  %-38s", "");
	for (size_t s = 0; s < sides->n; s++)
		printf(" %11s", sides->names[s]);
	if (sides->n == 2)
		printf(" %8s", "ratio");
	else if (sides->n > 2)
		printf("   ratio to each");
	putchar('\n');
}

/* Folders of a path, as far as they are missing. */
static bool make_folder(const char *path)
{
	char *copy = cli_strdup(path);
	struct stat st;
	bool ok;

	for (char *p = copy + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		mkdir(copy, 0777);
		*p = '/';
	}
	ok = !mkdir(copy, 0777) || (errno == EEXIST && !stat(copy, &st) && S_ISDIR(st.st_mode));
	free(copy);
	return ok;
}

static int save(const char *path, const char *command, const struct machine *before,
		const struct machine *after)
{
	FILE *f = fopen(path, "we");

	if (f)
		write_json(f, command, before, after);
	if (!f || ferror(f) | fclose(f)) {
		cli_error("bench: cannot write %s: %s", path, strerror(errno));
		return CLI_FAILED;
	}
	return CLI_OK;
}

static int run_all(const char *command)
{
	struct machine before, after;
	const char *suite = "";
	size_t failed = 0, unserved = 0, measured = 0;
	FILE *json;
	int status = CLI_OK;

	/* Better now than after minutes of measuring. */
	if (opt.json) {
		json = fopen(opt.json, "we");
		if (!json || fclose(json)) {
			cli_error("bench: cannot write %s: %s", opt.json, strerror(errno));
			return CLI_FAILED;
		}
	}
	if (opt.report && (!make_folder(opt.report) || access(opt.report, W_OK))) {
		cli_error("bench: cannot write into %s: %s", opt.report, strerror(errno));
		return CLI_FAILED;
	}
	machine_describe(&before);
	printf("%s, %d CPU%s, %s, load average %.2f, %s, %u pair%s\n", before.cpu, before.cpus,
	       plural((unsigned long)before.cpus), before.kernel, before.load[0], before.date,
	       opt.pairs, plural(opt.pairs));
	fflush(stdout);
	for (size_t i = 0; i < n_configs; i++)
		progress.total += opt.pairs * configs[i].sides->n;
	progress.tty = isatty(STDERR_FILENO);
	progress.start = cli_now();
	for (size_t i = 0; i < n_configs; i++) {
		bool first = strcmp(suite, configs[i].suite) != 0;

		if (first) {
			if (!strcmp(suite, "watches"))
				print_growth();
			suite = configs[i].suite;
			for (size_t s = 0; s < N_SUITES; s++)
				if (!strcmp(suite, suites[s].name))
					printf("\n%s\n", suites[s].title);
			print_heads(configs[i].sides);
		} else if (configs[i].sides != configs[i - 1].sides) {
			print_heads(configs[i].sides);
		}
		if (configs[i].skipped)
			print_config(&configs[i]);
		else
			run_config(&configs[i], first);
		failed += count_failed(&configs[i]);
		unserved += count_unserved(&configs[i]);
		measured += !configs[i].skipped;
	}
	if (!strcmp(suite, "watches"))
		print_growth();
	machine_describe(&after);
	if (failed) {
		printf("\n%zu run%s failed.\n", failed, plural(failed));
		status = CLI_FAILED;
	}
	if (unserved) {
		printf("\nWARNING: %zu run%s under 'pollux run' %s NOT served by Pollux. Those "
		       "results "
		       "say nothing about it.\n'pollux doctor' may tell why.\n",
		       unserved, plural(unserved), unserved == 1 ? "was" : "were");
		status = CLI_FAILED;
	}
	if (!measured) {
		printf("\nNothing was measured.\n");
		status = CLI_FAILED;
	}
	if (opt.json && save(opt.json, command, &before, &after))
		status = CLI_FAILED;
	if (opt.report) {
		char *path = cli_format("%s/report.json", opt.report);

		if (save(path, command, &before, &after) || report_write(opt.report))
			status = CLI_FAILED;
		else
			printf("\nThe report is %s/index.html\n", opt.report);
		free(path);
	}
	return status;
}

/* Options. */

static void print_help(void)
{
	fputs(help_head, stdout);
	for (size_t s = 0; s < N_SUITES; s++)
		printf("  %-10s %s\n", suites[s].name, about(&suites[s]));
	fputs(help_tail, stdout);
}

static bool parse_number(const char *text, const char *what, unsigned long min, unsigned long max,
			 unsigned long *v)
{
	char *end;

	errno = 0;
	*v = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || *v < min || *v > max) {
		cli_error("bench: %s takes a number from %lu to %lu, not '%s'", what, min, max,
			  text);
		return false;
	}
	return true;
}

static bool parse_threads(const char *text)
{
	char *copy = cli_strdup(text), *save = NULL;
	bool ok = true;

	opt.n_threads = 0;
	for (char *w = strtok_r(copy, ",", &save); w && ok; w = strtok_r(NULL, ",", &save)) {
		unsigned long v;

		ok = parse_number(w, "--threads", 1, 1024, &v);
		if (ok && opt.n_threads == MAX_LIST - 1) {
			cli_error("bench: --threads takes at most %d numbers", MAX_LIST - 1);
			ok = false;
		}
		if (ok)
			opt.threads[opt.n_threads++] = (unsigned int)v;
	}
	/* The list ends with 0. */
	opt.threads[opt.n_threads] = 0;
	if (ok && !opt.n_threads) {
		cli_error("bench: --threads takes a list of numbers, such as 1,8,64");
		ok = false;
	}
	free(copy);
	return ok;
}

/* Returns -1 to go on, or the status to exit with. */
static int parse(int argc, char **argv)
{
	enum {
		OPT_THREADS = 256,
		OPT_EVENTS,
		OPT_PAIRS,
		OPT_QUICK,
		OPT_NATIVE,
		OPT_WARM_UP,
		OPT_JSON,
		OPT_REPORT,
		OPT_HELP,
	};
	static const struct option longs[] = {
		{"threads", required_argument, NULL, OPT_THREADS},
		{"events", required_argument, NULL, OPT_EVENTS},
		{"pairs", required_argument, NULL, OPT_PAIRS},
		{"quick", no_argument, NULL, OPT_QUICK},
		{"native", no_argument, NULL, OPT_NATIVE},
		{"warm-up", required_argument, NULL, OPT_WARM_UP},
		{"json", required_argument, NULL, OPT_JSON},
		{"report", required_argument, NULL, OPT_REPORT},
		{"help", no_argument, NULL, OPT_HELP},
		{NULL, 0, NULL, 0},
	};
	unsigned long v;
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		switch (c) {
		case OPT_THREADS:
			if (!parse_threads(optarg))
				return CLI_USAGE;
			break;
		case OPT_EVENTS:
			if (!parse_number(optarg, "--events", 1, 100000000, &opt.events))
				return CLI_USAGE;
			break;
		case OPT_PAIRS:
			if (!parse_number(optarg, "--pairs", 1, MAX_PAIRS, &v))
				return CLI_USAGE;
			opt.pairs = (unsigned int)v;
			break;
		case OPT_QUICK:
			opt.quick = true;
			break;
		case OPT_NATIVE:
			opt.native = true;
			break;
		case OPT_WARM_UP:
			if (!parse_number(optarg, "--warm-up", 0, MAX_PAIRS, &v))
				return CLI_USAGE;
			opt.warm_up = (int)v;
			break;
		case OPT_JSON:
			opt.json = optarg;
			break;
		case OPT_REPORT:
			opt.report = optarg;
			break;
		case OPT_HELP:
			print_help();
			return CLI_OK;
		case ':':
			cli_error("bench: %s needs a value", argv[optind - 1]);
			return cli_try_help("bench", CLI_USAGE);
		default:
			cli_error("bench: unknown option '%s'", argv[optind - 1]);
			return cli_try_help("bench", CLI_USAGE);
		}
	}
	if (!opt.pairs)
		opt.pairs = opt.quick ? 3 : 7;
	return -1;
}

static bool is_wanted(const bool *wanted, void (*add)(void))
{
	for (size_t s = 0; s < N_SUITES; s++)
		if (wanted[s] && suites[s].add == add)
			return true;
	return false;
}

/* `command` is how this was asked for. */
static int measure(int argc, char **argv, const char *command)
{
	bool wanted[N_SUITES] = {false};
	int status = parse(argc, argv);

	if (status >= 0)
		return status;
	if (optind >= argc) {
		cli_error(
			"bench: which one? Any of those that 'pollux bench --help' lists, or all");
		return cli_try_help("bench", CLI_USAGE);
	}
	for (int i = optind; i < argc; i++) {
		bool known = false;

		for (size_t s = 0; s < N_SUITES; s++) {
			if (!strcmp(argv[i], suites[s].name) || !strcmp(argv[i], "all")) {
				wanted[s] = true;
				known = true;
			}
		}
		if (!known) {
			cli_error("bench: there is no bench '%s'", argv[i]);
			return cli_try_help("bench", CLI_USAGE);
		}
	}
	/* The table of 2019 has the kernel's older lists beside the one that runs. */
	if (is_wanted(wanted, add_events))
		for (size_t s = 0; s < N_SUITES; s++)
			wanted[s] |= suites[s].add == add_ready;
	if (dlsym(RTLD_DEFAULT, "pollux_fd_served")) {
		cli_error("bench: this command itself runs on Pollux, so the kernel cannot be "
			  "measured; start it without 'pollux run'");
		return CLI_FAILED;
	}
	if (!locate_self(self)) {
		cli_error("bench: /proc/self/exe cannot be read");
		return CLI_FAILED;
	}
	for (size_t s = 0; s < N_SUITES; s++)
		if (wanted[s])
			suites[s].add();
	status = run_all(command);
	for (size_t i = 0; i < n_configs; i++) {
		struct config *c = &configs[i];

		for (size_t s = 0; s < MAX_SIDES; s++) {
			for (unsigned int p = 0; p < opt.pairs; p++) {
				free(c->samples[s][p].line);
				free(c->samples[s][p].failure);
			}
			free(c->samples[s]);
			for (size_t k = 0; c->argv[s] && c->argv[s][k]; k++)
				free(c->argv[s][k]);
			free(c->argv[s]);
		}
		free(c->label);
		free(c->skipped);
	}
	free(configs);
	return status;
}

int cmd_bench(int argc, char **argv)
{
	char *command;
	int status;

	if (argc > 1 && !strcmp(argv[1], "compare"))
		return cmd_bench_compare(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "report"))
		return cmd_bench_report(argc - 1, argv + 1);
	command = cli_strdup("pollux");
	/* Now, since getopt changes the order. */
	for (int i = 0; i < argc; i++) {
		char *longer = cli_format("%s %s", command, argv[i]);

		free(command);
		command = longer;
	}
	status = measure(argc, argv, command);
	free(command);
	return status;
}
