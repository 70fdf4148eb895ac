/* SPDX-License-Identifier: MIT */
/*
 * `pollux bench`: stock programs run alternately on the kernel and under
 * `pollux run`, compared pair by pair, so that what the machine does besides
 * falls on both sides alike.
 */
#include "cli.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN_SECONDS 120
#define PROGRESS_SECONDS 2.0
#define MAX_PAIRS 1000
#define MAX_METRICS 5
#define MAX_LIST 32
/* The status by which a script says that what it needs is not installed. */
#define EXIT_SKIPPED 77

static const char help_text[] =
	"Usage: pollux bench WHAT... [OPTION]...\n"
	"Measure the kernel and Pollux in turn with unmodified programs.\n"
	"\n"
	"WHAT is one or more of\n"
	"  events     threads write to eventfds, one thread waits and reads; coalescing and not\n"
	"  waiters    several threads wait on one epoll\n"
	"  pingpong   pairs of threads that answer each other\n"
	"  storm      make an eventfd or a TCP socket, ADD it, close it, in a loop\n"
	"  watches    ADD, DEL and memory as the set grows from 1,000 to 1,000,000\n"
	"  kernelfds  TCP echo over loopback: descriptors that Pollux leaves to the kernel\n"
	"  servers    nginx with wrk, redis with redis-benchmark, if installed\n"
	"  aio        Linux AIO: single requests, batches, disk, contexts; fio, if installed\n"
	"  aio-lookup from a pointer to the AIO context: list, radix tree, Pollux's table\n"
	"  ready      lists of ready items: the kernel's of 2018, before and since, and ours\n"
	"  all        all of them\n"
	"\n"
	"  --threads=LIST   numbers of threads, such as 1,8,64 (waiters: of waiting threads;\n"
	"                   pingpong: of pairs; not for watches, servers and aio)\n"
	"  --events=N       events of each thread (watches: size of the set; aio: requests;\n"
	"                   aio-lookup: contexts)\n"
	"  --pairs=N        runs on each side (default 7, with --quick 3)\n"
	"  --quick          fewer and shorter runs, for a first impression\n"
	"  --native         storm: also the programs that call Pollux's own functions\n"
	"  --json=FILE      write the machine, all results and all raw samples to FILE\n"
	"  --help           print this text\n"
	"\n"
	"Shown are the medians of both sides and the median of the ratios of all pairs, with\n"
	"the smallest and the largest ratio. Above 1 Pollux is better. '~' marks a result whose\n"
	"ratios differ by more than half of their median: repeat it on a calmer machine.\n"
	"aio-lookup and ready compare the last side with each of the others, which are small\n"
	"implementations of what there was before.\n"
	"\n"
	"Exit status: 0 if every run succeeded, 1 if one failed, took more than 120 s or was\n"
	"not served by Pollux, 2 usage error.\n";

enum unit {
	UNIT_RATE,
	UNIT_NS,
	UNIT_US,
	UNIT_BYTES,
};

struct metric {
	/* In the result line of the program. */
	const char *key;
	const char *title;
	enum unit unit;
};

/* Most benches have two sides. The last one of a bench is what the others are compared with. */
enum side {
	SIDE_KERNEL,
	SIDE_POLLUX,
	MAX_SIDES = 4,
};

/* What is run in turn. */
struct sides {
	size_t n;
	/* As shown, and as in the JSON file. */
	const char *names[MAX_SIDES];
	const char *keys[MAX_SIDES];
};

static const struct sides kernel_and_pollux = {2, {"kernel", "Pollux"}, {"kernel", "pollux"}};
static const struct sides lookups = {
	3, {"list", "radix tree", "table"}, {"list", "radix_tree", "table"}};
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
	struct sample *samples[MAX_SIDES];
};

struct summary {
	double median[MAX_SIDES];
	/* Of the last side to each of the others. */
	struct {
		double median, min, max;
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
	const char *json;
} opt;

static struct config *configs;
static size_t n_configs;
static char self[PATH_MAX];

static const struct metric rate_metric = {"rate", "rate", UNIT_RATE};
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
	c->sides = &kernel_and_pollux;
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

/* A configuration that runs one stock program plainly and under `pollux run`. `words` are its
 * arguments, separated by single blanks. */
static struct config *config_stock(const char *suite, char *label, const char *program, char *words)
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
	static const unsigned int usual[] = {8, 16, 32, 64, 128, 0}, quick[] = {8, 32, 0};
	static const unsigned int usual_apart[] = {1, 2, 8, 32, 0}, quick_apart[] = {2, 8, 0};
	static const char *const triggers[] = {"LT", "ET"};

	for (const unsigned int *n = thread_list(usual, quick); *n; n++) {
		unsigned long e = opt.events ? opt.events : opt.quick ? 100000 : 1000000;

		config_stock("events", cli_format("%u thread%s, coalescing", *n, plural(*n)),
			     "stress-epoll", cli_format("--threads %u --events %lu", *n, e));
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
	struct machine m;

	machine_describe(&m);
	for (const unsigned int *n = thread_list(usual, usual); *n; n++) {
		for (int read = 0; read < 2; read++) {
			for (int pin = 0; pin < 2; pin++) {
				if (pin && (*n != 1 || m.cpus < 2))
					continue;
				config_stock("pingpong",
					     cli_format("%u pair%s, %s%s", *n, plural(*n),
							read ? "epoll_wait and read" : "epoll_wait",
							pin ? ", pinned" : ""),
					     "pingpong",
					     cli_format("--threads %u --events %lu --ack %s%s", *n,
							share(40000, *n), read ? "read" : "epoll",
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
	static const unsigned int usual[] = {1, 10, 20, 40, 80, 0}, quick[] = {1, 20, 0};
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

static void add_watches(void)
{
	static const unsigned long usual[] = {1000, 10000, 100000, 1000000, 0};
	static const unsigned long quick[] = {1000, 100000};
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

static void add_servers(void)
{
	static const struct {
		const char *workload;
		const char *label;
	} list[] = {
		{"nginx-keepalive", "nginx, keep-alive"},
		{"nginx-close", "nginx, a connection per request"},
		{"redis-get", "redis GET"},
		{"redis-set", "redis SET"},
	};
	static const struct metric cpu = {"cpu_us_per_request", "server CPU", UNIT_US};
	char script[PATH_MAX];
	bool found = locate_bench("servers.sh", script);

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		struct config *c = config_new("servers", cli_strdup(list[i].label));

		config_add_metric(c, &cpu);
		if (!found) {
			c->skipped = cli_strdup("servers.sh is not installed");
			continue;
		}
		for (int s = 0; s < 2; s++) {
			struct args a = {0};

			args_add(&a, "/bin/sh");
			args_add(&a, "%s", script);
			args_add(&a, "--workload");
			args_add(&a, "%s", list[i].workload);
			args_add(&a, "--seconds");
			args_add(&a, "%d", opt.quick ? 2 : 5);
			if (s == SIDE_POLLUX) {
				args_add(&a, "--pollux");
				args_add(&a, "%s", self);
			}
			c->argv[s] = a.v;
		}
	}
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
	static const unsigned int usual[] = {8, 16, 32, 64, 128, 0}, quick[] = {8, 0};
	char path[PATH_MAX];
	bool found = locate_bench("inner_ready", path);

	for (const unsigned int *n = thread_list(usual, quick); *n; n++) {
		struct config *c = config_new("ready", cli_format("%u threads", *n));

		c->sides = &ready_lists;
		c->native = true;
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
	{"waiters", add_waiters, "waiters: several threads wait on one epoll (ET, not coalescing)"},
	{"pingpong", add_pingpong, "pingpong: round trips between two threads"},
	{"storm", add_storm, "storm: make, ADD, close, in a loop"},
	{"watches", add_watches, "watches: cost of a watch as the set grows"},
	{"kernelfds", add_kernelfds, "kernelfds: TCP echo, kernel descriptors alone"},
	{"servers", add_servers, "servers: requests over loopback"},
	{"aio", add_aio, "aio: Linux AIO, on tmpfs unless it says otherwise"},
	{"aio-lookup", add_aio_lookup, "aio-lookup: from a pointer to the context, and back"},
	{"ready", add_ready, "ready: lists of ready items without the kernel around them"},
};
#define N_SUITES (sizeof(suites) / sizeof(suites[0]))

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

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
	if (!n)
		return NAN;
	qsort(v, n, sizeof(*v), compare);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
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
		r.median[s] = median(values, n);
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
		r.ratio[s].median = median(values, n);
		r.ratio[s].min = n ? values[0] : NAN;
		r.ratio[s].max = n ? values[n - 1] : NAN;
		r.ratio[s].noisy = n && r.ratio[s].max - r.ratio[s].min > r.ratio[s].median / 2;
	}
	return r;
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
	case UNIT_NS:
		snprintf(text, size, "%.*f ns", v < 100 ? 1 : 0, v);
		break;
	case UNIT_US:
		snprintf(text, size, "%.2f us", v);
		break;
	case UNIT_BYTES:
		snprintf(text, size, "%.0f B", v);
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

static void print_config(const struct config *c)
{
	size_t failed = count_failed(c), unserved = count_unserved(c);

	if (c->skipped) {
		printf("  %-38s not measured: %s\n", c->label, c->skipped);
		return;
	}
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
			if (isfinite(r.ratio[i].median))
				printf(" %7.2fx  [%.2f..%.2f]%s", r.ratio[i].median, r.ratio[i].min,
				       r.ratio[i].max, r.ratio[i].noisy ? " ~" : "");
			else
				printf(" %7s", "-");
		}
		putchar('\n');
		free(label);
	}
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

static void run_one(struct config *c, size_t side, unsigned int pair)
{
	struct sample *s = &c->samples[side][pair];
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
	rc = child_run(&child);
	progress.done++;
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

static void run_config(struct config *c)
{
	for (unsigned int pair = 0; pair < opt.pairs && !c->skipped; pair++) {
		/* Who begins changes, so that a slow drift of the machine cancels out. */
		for (size_t i = 0; i < c->sides->n && !c->skipped; i++)
			run_one(c, (pair + i) % c->sides->n, pair);
		/* What fails three times on each side fails; time is better spent elsewhere. */
		if (pair == 2 && count_failed(c) == 3 * c->sides->n)
			break;
	}
	progress_clear();
	print_config(c);
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

static void write_json(FILE *f, const struct machine *before, const struct machine *after)
{
	static const char *const units[] = {"per second", "ns", "us", "bytes"};
	struct json j;

	json_start(&j, f);
	json_open(&j, NULL, '{');
	json_string(&j, "version", POLLUX_VERSION);
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
	json_close(&j, '}');
	json_integer(&j, "pairs", opt.pairs);
	json_bool(&j, "quick", opt.quick);
	json_open(&j, "results", '[');
	for (size_t i = 0; i < n_configs; i++) {
		const struct config *c = &configs[i];

		json_open(&j, NULL, '{');
		json_string(&j, "bench", c->suite);
		json_string(&j, "configuration", c->label);
		json_bool(&j, "native", c->native);
		if (c->skipped) {
			json_string(&j, "skipped", c->skipped);
			json_close(&j, '}');
			continue;
		}
		json_integer(&j, "failed", (long long)count_failed(c));
		json_integer(&j, "not_served", (long long)count_unserved(c));
		json_open(&j, "metrics", '[');
		for (size_t m = 0; m < c->n_metrics; m++) {
			struct summary r = summarize(c, m);
			bool noisy = false;

			json_open(&j, NULL, '{');
			json_string(&j, "name", c->metrics[m].key);
			json_string(&j, "unit", units[c->metrics[m].unit]);
			for (size_t s = 0; s < c->sides->n; s++)
				write_json_key(&j, "", c->sides->keys[s], "_median", r.median[s]);
			for (size_t s = 0; s < ours(c); s++) {
				/* With two sides there is one ratio, which needs no name. */
				const char *name = ours(c) == 1 ? "" : c->sides->keys[s];
				const char *bar = *name ? "_" : "";

				write_json_key(&j, name, bar, "ratio_median", r.ratio[s].median);
				write_json_key(&j, name, bar, "ratio_min", r.ratio[s].min);
				write_json_key(&j, name, bar, "ratio_max", r.ratio[s].max);
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
	else
		printf("   ratio to each");
	putchar('\n');
}

static int run_all(void)
{
	struct machine before, after;
	const char *suite = "";
	size_t failed = 0, unserved = 0, measured = 0;
	FILE *json = NULL;
	int status = CLI_OK;

	if (opt.json) {
		json = fopen(opt.json, "we");
		if (!json) {
			cli_error("bench: cannot write %s: %s", opt.json, strerror(errno));
			return CLI_FAILED;
		}
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
		if (strcmp(suite, configs[i].suite)) {
			if (!strcmp(suite, "watches"))
				print_growth();
			suite = configs[i].suite;
			for (size_t s = 0; s < N_SUITES; s++)
				if (!strcmp(suite, suites[s].name))
					printf("\n%s\n", suites[s].title);
			print_heads(configs[i].sides);
		}
		if (configs[i].skipped)
			print_config(&configs[i]);
		else
			run_config(&configs[i]);
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
	if (json) {
		write_json(json, &before, &after);
		if (ferror(json) | fclose(json)) {
			cli_error("bench: cannot write %s: %s", opt.json, strerror(errno));
			status = CLI_FAILED;
		}
	}
	return status;
}

/* Options. */

static bool parse_number(const char *text, const char *what, unsigned long max, unsigned long *v)
{
	char *end;

	errno = 0;
	*v = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || *v < 1 || *v > max) {
		cli_error("bench: %s takes a number from 1 to %lu, not '%s'", what, max, text);
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

		ok = parse_number(w, "--threads", 1024, &v);
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
		OPT_JSON,
		OPT_HELP,
	};
	static const struct option longs[] = {
		{"threads", required_argument, NULL, OPT_THREADS},
		{"events", required_argument, NULL, OPT_EVENTS},
		{"pairs", required_argument, NULL, OPT_PAIRS},
		{"quick", no_argument, NULL, OPT_QUICK},
		{"native", no_argument, NULL, OPT_NATIVE},
		{"json", required_argument, NULL, OPT_JSON},
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
			if (!parse_number(optarg, "--events", 100000000, &opt.events))
				return CLI_USAGE;
			break;
		case OPT_PAIRS:
			if (!parse_number(optarg, "--pairs", MAX_PAIRS, &v))
				return CLI_USAGE;
			opt.pairs = (unsigned int)v;
			break;
		case OPT_QUICK:
			opt.quick = true;
			break;
		case OPT_NATIVE:
			opt.native = true;
			break;
		case OPT_JSON:
			opt.json = optarg;
			break;
		case OPT_HELP:
			fputs(help_text, stdout);
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

int cmd_bench(int argc, char **argv)
{
	bool wanted[N_SUITES] = {false};
	int status = parse(argc, argv);

	if (status >= 0)
		return status;
	if (optind >= argc) {
		cli_error("bench: which one? events, waiters, pingpong, storm, watches, kernelfds, "
			  "servers, aio, aio-lookup, ready or all");
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
	status = run_all();
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
