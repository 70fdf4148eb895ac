/* SPDX-License-Identifier: MIT */
/*
 * `pollux bench`: stock programs run alternately on the kernel and under
 * `pollux run`, compared pair by pair, so that what the machine does besides
 * falls on both sides alike.
 */
#include "bench_run.h"

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN_SECONDS 120
#define PROGRESS_SECONDS 2.0
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

struct bench_options bench_opt = {.warm_up = -1};

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
		 bench_opt.pairs, p->side);
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
	if (bench_line_value(s->line, "ok") != 1 ||
	    !isfinite(bench_line_value(s->line, c->metrics[0].key))) {
		sample_fail(c, s, side, cli_format("printed no result: '%.80s'", s->line));
		return;
	}
	if (side != bench_ours(c) && bench_line_value(s->line, "preload") != 0) {
		sample_fail(c, s, side,
			    cli_strdup("the plain run had the drop-in loaded (see LD_PRELOAD and "
				       "/etc/ld.so.preload)"));
		return;
	}
	for (size_t m = 0; m < c->n_metrics; m++)
		s->value[m] = bench_line_value(s->line, c->metrics[m].key);
	s->served = bench_line_value(s->line, c->native ? "native" : "served") == 1;
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
	warm_up(c, bench_opt.warm_up >= 0 ? bench_opt.warm_up : !bench_opt.quick || first_of_suite);
	for (unsigned int pair = 0; pair < bench_opt.pairs && !c->skipped; pair++) {
		/* Who begins changes, so that a slow drift of the machine cancels out. */
		for (size_t i = 0; i < c->sides->n && !c->skipped; i++) {
			size_t side = (pair + i) % c->sides->n;

			run_one(c, side, pair, &c->samples[side][pair]);
			progress.done++;
		}
		/* What fails three times on each side fails; time is better spent elsewhere. */
		if (pair == 2 && bench_count_failed(c) == 3 * c->sides->n)
			break;
	}
	progress_clear();
	bench_print_config(c);
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
		bench_write_json(f, command, before, after);
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
	if (bench_opt.json) {
		json = fopen(bench_opt.json, "we");
		if (!json || fclose(json)) {
			cli_error("bench: cannot write %s: %s", bench_opt.json, strerror(errno));
			return CLI_FAILED;
		}
	}
	if (bench_opt.report &&
	    (!make_folder(bench_opt.report) || access(bench_opt.report, W_OK))) {
		cli_error("bench: cannot write into %s: %s", bench_opt.report, strerror(errno));
		return CLI_FAILED;
	}
	machine_describe(&before);
	printf("%s, %d CPU%s, %s, load average %.2f, %s, %u pair%s\n", before.cpu, before.cpus,
	       plural((unsigned long)before.cpus), before.kernel, before.load[0], before.date,
	       bench_opt.pairs, plural(bench_opt.pairs));
	fflush(stdout);
	for (size_t i = 0; i < bench_n_configs; i++)
		progress.total += bench_opt.pairs * bench_configs[i].sides->n;
	progress.tty = isatty(STDERR_FILENO);
	progress.start = cli_now();
	for (size_t i = 0; i < bench_n_configs; i++) {
		bool first = strcmp(suite, bench_configs[i].suite) != 0;

		if (first) {
			if (!strcmp(suite, "watches"))
				bench_print_growth();
			suite = bench_configs[i].suite;
			for (size_t s = 0; s < bench_n_suites; s++)
				if (!strcmp(suite, bench_suites[s].name))
					printf("\n%s\n", bench_suites[s].title);
			bench_print_heads(bench_configs[i].sides);
		} else if (bench_configs[i].sides != bench_configs[i - 1].sides) {
			bench_print_heads(bench_configs[i].sides);
		}
		if (bench_configs[i].skipped)
			bench_print_config(&bench_configs[i]);
		else
			run_config(&bench_configs[i], first);
		failed += bench_count_failed(&bench_configs[i]);
		unserved += bench_count_unserved(&bench_configs[i]);
		measured += !bench_configs[i].skipped;
	}
	if (!strcmp(suite, "watches"))
		bench_print_growth();
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
	if (bench_opt.json && save(bench_opt.json, command, &before, &after))
		status = CLI_FAILED;
	if (bench_opt.report) {
		char *path = cli_format("%s/report.json", bench_opt.report);

		if (save(path, command, &before, &after) || report_write(bench_opt.report))
			status = CLI_FAILED;
		else
			printf("\nThe report is %s/index.html\n", bench_opt.report);
		free(path);
	}
	return status;
}

/* Options. */

static void print_help(void)
{
	fputs(help_head, stdout);
	for (size_t s = 0; s < bench_n_suites; s++)
		printf("  %-10s %s\n", bench_suites[s].name, bench_about(&bench_suites[s]));
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

	bench_opt.n_threads = 0;
	for (char *w = strtok_r(copy, ",", &save); w && ok; w = strtok_r(NULL, ",", &save)) {
		unsigned long v;

		ok = parse_number(w, "--threads", 1, 1024, &v);
		if (ok && bench_opt.n_threads == MAX_LIST - 1) {
			cli_error("bench: --threads takes at most %d numbers", MAX_LIST - 1);
			ok = false;
		}
		if (ok)
			bench_opt.threads[bench_opt.n_threads++] = (unsigned int)v;
	}
	/* The list ends with 0. */
	bench_opt.threads[bench_opt.n_threads] = 0;
	if (ok && !bench_opt.n_threads) {
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
			if (!parse_number(optarg, "--events", 1, 100000000, &bench_opt.events))
				return CLI_USAGE;
			break;
		case OPT_PAIRS:
			if (!parse_number(optarg, "--pairs", 1, MAX_PAIRS, &v))
				return CLI_USAGE;
			bench_opt.pairs = (unsigned int)v;
			break;
		case OPT_QUICK:
			bench_opt.quick = true;
			break;
		case OPT_NATIVE:
			bench_opt.native = true;
			break;
		case OPT_WARM_UP:
			if (!parse_number(optarg, "--warm-up", 0, MAX_PAIRS, &v))
				return CLI_USAGE;
			bench_opt.warm_up = (int)v;
			break;
		case OPT_JSON:
			bench_opt.json = optarg;
			break;
		case OPT_REPORT:
			bench_opt.report = optarg;
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
	if (!bench_opt.pairs)
		bench_opt.pairs = bench_opt.quick ? 3 : 7;
	return -1;
}

/* `command` is how this was asked for. */
static int measure(int argc, char **argv, const char *command)
{
	int status = parse(argc, argv);
	char self[PATH_MAX];
	bool wanted[MAX_SUITES] = {false};

	if (status >= 0)
		return status;
	if (optind >= argc) {
		cli_error(
			"bench: which one? Any of those that 'pollux bench --help' lists, or all");
		return cli_try_help("bench", CLI_USAGE);
	}
	for (int i = optind; i < argc; i++) {
		bool known = false;

		for (size_t s = 0; s < bench_n_suites; s++) {
			if (!strcmp(argv[i], bench_suites[s].name) || !strcmp(argv[i], "all")) {
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
	bench_add(wanted, self);
	status = run_all(command);
	bench_free();
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
