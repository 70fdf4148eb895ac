/* SPDX-License-Identifier: MIT */
/*
 * `pollux bench compare`: what changed between two files of results beyond noise. Compared are
 * the ratios of the pairs, not the rates: what the machine did besides has fallen on both sides
 * of a pair alike, and even two machines may be compared.
 */
#include "results.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* With fewer pairs than this the bootstrap has too little to draw from. */
#define BOOTSTRAP_PAIRS 5
/* And with fewer than this nothing can be said. */
#define MIN_PAIRS 3
#define LEVEL 0.999
#define THRESHOLD 0.05

static const char help_text[] =
	"Usage: pollux bench compare OLD NEW [OPTION]...\n"
	"Say what changed from one file of 'pollux bench --json' to another beyond noise.\n"
	"\n"
	"  --threshold=PERCENT   medians that differ by less are the same (default 5)\n"
	"  --all                 show what is the same, too\n"
	"  --help                print this text\n"
	"\n"
	"The ratios of the pairs are compared, metric by metric, and the values where there is "
	"but\n"
	"one side. A result is better or worse if\n"
	"the medians of its ratios differ by the threshold, and if that is no noise:\n"
	"with 5 or more pairs on both sides, the 99.9 % bootstrap interval of the quotient of the\n"
	"two medians leaves out 1; with 3 or 4, the ranges of the ratios lie further apart than\n"
	"the wider of them is wide. Samples of the same distribution pass for different ones in\n"
	"less than one of a hundred results. It is unclear if the medians differ by the "
	"threshold,\n"
	"but not beyond noise, or if there are fewer than 3 pairs; then more pairs help. What\n"
	"failed, or was not served, in one file alone counts as better or worse.\n"
	"\n"
	"Exit status: 0 nothing changed, 1 something did, 2 usage error, a file that cannot be\n"
	"read, or no result in common.\n";

enum verdict {
	SAME,
	BETTER,
	WORSE,
	UNCLEAR,
	N_VERDICTS,
};

static const char *const verdict_names[] = {"same", "better", "worse", "unclear"};

struct comparison {
	const struct results *old, *new;
	double threshold;
	bool all;
	size_t count[N_VERDICTS];
	size_t old_only, new_only;
	const char *bench;
};

/* As if all values were logarithms, since a half and a double are equally far from 1. */
static bool far_apart(const struct values *a, const struct values *b)
{
	double wide_a = log(a->max / a->min), wide_b = log(b->max / b->min);
	double up = log(b->min / a->max), down = log(a->min / b->max);

	return fmax(up, down) > fmax(wide_a, wide_b);
}

static enum verdict judge(const struct values *a, const struct values *b, double threshold,
			  struct interval *in)
{
	double q = b->median / a->median;
	bool beyond;

	*in = stats_quotient_interval(a->v, a->n, b->v, b->n, LEVEL);
	if (q <= 1 + threshold && q >= 1 / (1 + threshold))
		return SAME;
	if (a->n < MIN_PAIRS || b->n < MIN_PAIRS)
		return UNCLEAR;
	if (a->n < BOOTSTRAP_PAIRS || b->n < BOOTSTRAP_PAIRS)
		beyond = far_apart(a, b);
	else
		beyond = in->low > 1 || in->high < 1;
	return !beyond ? UNCLEAR : q > 1 ? BETTER : WORSE;
}

static const struct result *find_result(const struct results *r, const struct result *like)
{
	for (size_t i = 0; i < r->n; i++)
		if (!strcmp(r->list[i].bench, like->bench) &&
		    !strcmp(r->list[i].label, like->label))
			return &r->list[i];
	return NULL;
}

static const struct result_metric *find_metric(const struct result *r, const char *name)
{
	for (size_t m = 0; m < r->n_metrics; m++)
		if (!strcmp(r->metrics[m].name, name))
			return &r->metrics[m];
	return NULL;
}

static size_t find_side(const struct result *r, const char *key)
{
	size_t s = 0;

	while (s < r->n_sides && strcmp(r->side_keys[s], key))
		s++;
	return s;
}

static void print_bench(struct comparison *c, const struct result *r)
{
	if (!c->bench || strcmp(c->bench, r->bench)) {
		printf("\n%s\n  %-46s %9s %9s %9s\n", r->bench, "", "old", "new", "new/old");
		c->bench = r->bench;
	}
}

static void print_medians(const struct result_metric *m, const struct values *old,
			  const struct values *new, bool ratios)
{
	char text[2][64];

	if (ratios) {
		printf(" %8.2fx %8.2fx", old->median, new->median);
		return;
	}
	results_format(text[0], sizeof(text[0]), m->more ? old->median : 1 / old->median, m->unit);
	results_format(text[1], sizeof(text[1]), m->more ? new->median : 1 / new->median, m->unit);
	printf(" %9s %9s", text[0], text[1]);
}

/* More is better. `against` is the side that `ratios` are ratios to; NULL if there is but one. */
static void compare_values(struct comparison *c, const struct result *r,
			   const struct result_metric *m, const struct values *old,
			   const struct values *new, bool ratios, const char *against)
{
	struct interval in;
	enum verdict v = judge(old, new, c->threshold, &in);
	char *label;

	c->count[v]++;
	if (v == SAME && !c->all)
		return;
	print_bench(c, r);
	label = cli_format("%s: %s%s%s", r->label, m->title, against ? " to " : "",
			   against ? against : "");
	printf("  %-46s", label);
	print_medians(m, old, new, ratios);
	printf(" %8.2fx  [%.2f..%.2f] %s", new->median / old->median, in.low, in.high,
	       verdict_names[v]);
	if (old->n < MIN_PAIRS || new->n < MIN_PAIRS)
		printf(", fewer than %d pairs", MIN_PAIRS);
	putchar('\n');
	free(label);
}

/* Values of which more is better. */
static struct values upward(const struct result_metric *m, const struct values *v)
{
	struct values up = {.v = cli_alloc((v->n + 1) * sizeof(*up.v))};

	for (size_t i = 0; i < v->n; i++)
		if (v->v[i] > 0)
			up.v[up.n++] = m->more ? v->v[i] : 1 / v->v[i];
	up.median = stats_median(up.v, up.n);
	up.min = up.n ? up.v[0] : NAN;
	up.max = up.n ? up.v[up.n - 1] : NAN;
	return up;
}

/* With one side alone there are no ratios; the values themselves are compared then. */
static void compare_single(struct comparison *c, const struct result *r,
			   const struct result_metric *a, const struct result_metric *b)
{
	struct values old = upward(a, &a->sides[0]), new = upward(a, &b->sides[0]);

	if (old.n && new.n)
		compare_values(c, r, a, &old, &new, false, NULL);
	free(old.v);
	free(new.v);
}

static void compare_metrics(struct comparison *c, const struct result *a, const struct result *b)
{
	for (size_t m = 0; m < a->n_metrics; m++) {
		const struct result_metric *old = &a->metrics[m];
		const struct result_metric *new = find_metric(b, old->name);

		if (!new)
			continue;
		if (a->n_sides == 1 && b->n_sides == 1)
			compare_single(c, a, old, new);
		for (size_t s = 0; s + 1 < a->n_sides; s++) {
			size_t t = find_side(b, a->side_keys[s]);

			if (t + 1 < b->n_sides && old->ratios[s].n && new->ratios[t].n)
				compare_values(c, a, old, &old->ratios[s], &new->ratios[t], true,
					       a->n_sides > 2 ? a->side_names[s] : NULL);
		}
	}
}

static bool broken(const struct result *r)
{
	return r->failed || r->not_served;
}

static void compare_result(struct comparison *c, const struct result *a)
{
	const struct result *b = find_result(c->new, a);

	if (!b || (b->skipped && !a->skipped)) {
		c->old_only++;
		print_bench(c, a);
		printf("  %-46s in the old file only%s%s\n", a->label, b ? ": " : "",
		       b ? b->skipped : "");
		return;
	}
	if (a->skipped) {
		if (!b->skipped) {
			c->new_only++;
			print_bench(c, a);
			printf("  %-46s in the new file only\n", a->label);
		}
		return;
	}
	if (broken(a) != broken(b)) {
		c->count[broken(b) ? WORSE : BETTER]++;
		print_bench(c, a);
		printf("  %-46s %s runs failed or were not served: %s\n", a->label,
		       broken(b) ? "now" : "before", broken(b) ? "worse" : "better");
	}
	compare_metrics(c, a, b);
}

static void print_file(const char *name, const char *path, const struct results *r)
{
	printf("%s: %s, %s, %s, %.0f CPUs, %s, %.0f pairs%s\n", name, path, r->start, r->cpu,
	       r->cpus, r->kernel, r->pairs, r->quick ? ", quick" : "");
}

static void say_noise(void *arg, const char *text)
{
	printf("  the %s run was noisy: %s\n", (const char *)arg, text);
}

static int compare_files(struct comparison *c, const char *const paths[2])
{
	static char old[] = "old", new[] = "new";
	size_t compared = 0;

	print_file("old", paths[0], c->old);
	results_disturbances(c->old, say_noise, old);
	print_file("new", paths[1], c->new);
	results_disturbances(c->new, say_noise, new);
	if (strcmp(c->old->cpu, c->new->cpu) || c->old->cpus != c->new->cpus ||
	    strcmp(c->old->kernel, c->new->kernel))
		printf("NOTE: the machines or their kernels differ.\n");
	for (size_t i = 0; i < c->old->n; i++)
		compare_result(c, &c->old->list[i]);
	for (size_t i = 0; i < c->new->n; i++) {
		const struct result *b = &c->new->list[i];

		if (b->skipped || find_result(c->old, b))
			continue;
		c->new_only++;
		print_bench(c, b);
		printf("  %-46s in the new file only\n", b->label);
	}
	for (size_t v = 0; v < N_VERDICTS; v++)
		compared += c->count[v];
	printf("\n%zu compared: %zu better, %zu worse, %zu the same, %zu unclear; "
	       "%zu in the old file only, %zu in the new one only\n",
	       compared, c->count[BETTER], c->count[WORSE], c->count[SAME], c->count[UNCLEAR],
	       c->old_only, c->new_only);
	if (!compared) {
		cli_error("bench compare: the files have no result in common");
		return CLI_USAGE;
	}
	return c->count[BETTER] || c->count[WORSE] ? CLI_FAILED : CLI_OK;
}

static int usage_error(void)
{
	return cli_try_help("bench compare", CLI_USAGE);
}

int cmd_bench_compare(int argc, char **argv)
{
	static const struct option longs[] = {
		{"threshold", required_argument, NULL, 't'},
		{"all", no_argument, NULL, 'a'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct comparison c = {.threshold = THRESHOLD};
	struct results *old, *new;
	int option, status = CLI_USAGE;
	char *end;

	opterr = 0;
	while ((option = getopt_long(argc, argv, ":", longs, NULL)) != -1) {
		switch (option) {
		case 't':
			c.threshold = strtod(optarg, &end) / 100;
			if (end == optarg || *end || !(c.threshold >= 0) || c.threshold > 100) {
				cli_error("bench compare: --threshold takes a percentage, not '%s'",
					  optarg);
				return usage_error();
			}
			break;
		case 'a':
			c.all = true;
			break;
		case 'h':
			fputs(help_text, stdout);
			return CLI_OK;
		case ':':
			cli_error("bench compare: %s needs a value", argv[optind - 1]);
			return usage_error();
		default:
			cli_error("bench compare: unknown option '%s'", argv[optind - 1]);
			return usage_error();
		}
	}
	if (argc - optind != 2) {
		cli_error("bench compare: two files are needed, not %d", argc - optind);
		return usage_error();
	}
	old = results_read(argv[optind]);
	new = results_read(argv[optind + 1]);
	if (old && new) {
		const char *const paths[] = {argv[optind], argv[optind + 1]};

		c.old = old;
		c.new = new;
		status = compare_files(&c, paths);
	}
	if (old)
		results_free(old);
	if (new)
		results_free(new);
	return status;
}
