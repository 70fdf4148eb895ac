/* SPDX-License-Identifier: MIT */
/*
 * The rows of `pollux bench`: which programs are run on which sides, with what.
 */
#include "bench_run.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const struct sides bench_kernel_and_pollux = {2, {"kernel", "Pollux"}, {"kernel", "pollux"}};
static const struct sides lookups = {
	3, {"list", "radix tree", "table"}, {"list", "radix_tree", "table"}};
static const struct sides teardowns = {
	3, {"one mutex", "references", "Pollux"}, {"mutex", "refcount", "pollux"}};
static const struct sides ready_lists = {4,
					 {"spinlock", "rwlock", "lock-free", "Pollux"},
					 {"spinlock", "rwlock", "lockfree", "pollux"}};

struct config *bench_configs;
size_t bench_n_configs;
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

	bench_configs = realloc(bench_configs, (bench_n_configs + 1) * sizeof(*bench_configs));
	if (!bench_configs) {
		cli_error("out of memory");
		exit(CLI_FAILED);
	}
	c = &bench_configs[bench_n_configs++];
	memset(c, 0, sizeof(*c));
	c->suite = suite;
	c->label = label;
	c->metrics[0] = rate_metric;
	c->n_metrics = 1;
	c->sides = &bench_kernel_and_pollux;
	for (size_t s = 0; s < MAX_SIDES; s++)
		c->samples[s] = cli_alloc(bench_opt.pairs * sizeof(*c->samples[s]));
	return c;
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
		c->skipped = cli_format(
			"%s is not built, or not installed (make install BENCHMARKS=1)", program);
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
		c->skipped = cli_format(
			"%s is not built, or not installed (make install BENCHMARKS=1)", program);
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
	return bench_opt.quick;
}

unsigned long bench_events(void)
{
	return bench_opt.events;
}

const unsigned int *bench_threads(void)
{
	return bench_opt.n_threads ? bench_opt.threads : NULL;
}

/* The thread counts asked for, or the ones given here (ended by 0). */
static const unsigned int *thread_list(const unsigned int *usual, const unsigned int *quick)
{
	if (bench_opt.n_threads)
		return bench_opt.threads;
	return bench_opt.quick ? quick : usual;
}

/* Events of each of n threads, so that the total stays near `total`. */
static unsigned long share(unsigned long total, unsigned int n)
{
	if (bench_opt.events)
		return bench_opt.events;
	if (bench_opt.quick)
		total /= 5;
	return total / n ? total / n : 1;
}

static void add_events(void)
{
	static const unsigned int usual[] = {8, 16, 32, 64, 128, 0}, quick[] = {8, 16, 32, 0};
	static const unsigned int usual_apart[] = {1, 2, 8, 32, 0}, quick_apart[] = {2, 8, 32, 0};
	static const char *const triggers[] = {"LT", "ET"};

	for (const unsigned int *n = thread_list(usual, quick); *n; n++) {
		unsigned long e = bench_opt.events  ? bench_opt.events
				  : bench_opt.quick ? 100000
						    : 1000000;

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
							pin ? " --pin=apart" : ""));
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
		c->skipped = cli_strdup(
			"native_storm is not built, or not installed (make install BENCHMARKS=1)");
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
	if (bench_opt.native)
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
		c->skipped = cli_strdup("inner_teardown is not built, or not installed (make "
					"install BENCHMARKS=1)");
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
	unsigned long events = bench_opt.events ? bench_opt.events : bench_opt.quick ? 2000 : 20000;

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
		add_inner_teardown(*n, bench_opt.events ? bench_opt.events : 10 * events);
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
	const unsigned long one[] = {bench_opt.events, 0};

	for (const unsigned long *n = bench_opt.events	? one
				      : bench_opt.quick ? quick
							: usual;
	     *n; n++) {
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
		c->skipped = cli_strdup("servers.sh is not installed (make install BENCHMARKS=1)");
		return c;
	}
	for (int s = 0; s < 2; s++) {
		struct args a = {0};

		args_add(&a, "/bin/sh");
		args_add(&a, "%s", script);
		args_add(&a, "--workload");
		args_add(&a, "%s", workload);
		args_add(&a, "--seconds");
		args_add(&a, "%d", bench_opt.quick ? 2 : 5);
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
		{"exec-starter", "fork and exec of what only starts others", 500},
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
		c->skipped = cli_strdup("native_watches is not built, or not installed (make "
					"install BENCHMARKS=1)");
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
	const unsigned long one[] = {bench_opt.events, 0};
	const unsigned long *sizes = bench_opt.events  ? one
				     : bench_opt.quick ? quick_watches
						       : watches;

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
			c->skipped =
				cli_strdup("fio.sh is not installed (make install BENCHMARKS=1)");
			continue;
		}
		for (int s = 0; s < 2; s++) {
			struct args a = {0};

			args_add(&a, "/bin/sh");
			args_add(&a, "%s", script);
			args_add(&a, "--workload");
			args_add(&a, "%s", fio[i].workload);
			if (bench_opt.quick)
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
	const unsigned long one[] = {bench_opt.events, 0};
	char path[PATH_MAX];
	bool found = locate_bench("inner_aio_lookup", path);

	for (const unsigned long *n = bench_opt.events ? one : usual; *n; n++) {
		struct config *c =
			config_new("aio-lookup", cli_format("%lu context%s", *n, plural(*n)));

		c->sides = &lookups;
		c->native = true;
		memcpy(c->metrics, metrics, sizeof(metrics));
		c->n_metrics = *n == 1 ? 1 : 2;
		if (!found) {
			c->skipped = cli_strdup("inner_aio_lookup is not built, or not installed "
						"(make install BENCHMARKS=1)");
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
			args_add(&a, "%d", bench_opt.quick ? 20 : 100);
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
			c->skipped = cli_strdup("inner_ready is not built, or not installed (make "
						"install BENCHMARKS=1)");
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
			args_add(&a, "%lu",
				 bench_opt.events  ? bench_opt.events
				 : bench_opt.quick ? 50000
						   : 500000);
			c->argv[s] = a.v;
		}
	}
}

const struct suite bench_suites[] = {
	{"events", add_events,
	 "events: threads write to their eventfds, one thread waits and reads"},
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
const size_t bench_n_suites = sizeof(bench_suites) / sizeof(bench_suites[0]);
_Static_assert(sizeof(bench_suites) / sizeof(bench_suites[0]) <= MAX_SUITES, "each can be wanted");

const char *bench_about(const struct suite *suite)
{
	return suite->title + strlen(suite->name) + strlen(": ");
}

static bool is_wanted(const bool *wanted, void (*add)(void))
{
	for (size_t s = 0; s < bench_n_suites; s++)
		if (wanted[s] && bench_suites[s].add == add)
			return true;
	return false;
}

void bench_add(const bool *wanted, const char *command)
{
	/* The table of 2019 has the kernel's older lists beside the one that runs. */
	bool older = is_wanted(wanted, add_events);

	snprintf(self, sizeof(self), "%s", command);
	for (size_t s = 0; s < bench_n_suites; s++)
		if (wanted[s] || (older && bench_suites[s].add == add_ready))
			bench_suites[s].add();
}

void bench_free(void)
{
	for (size_t i = 0; i < bench_n_configs; i++) {
		struct config *c = &bench_configs[i];

		for (size_t s = 0; s < MAX_SIDES; s++) {
			for (unsigned int p = 0; p < bench_opt.pairs; p++) {
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
	free(bench_configs);
}
