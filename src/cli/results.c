/* SPDX-License-Identifier: MIT */
#include "results.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void values_add(struct values *v, double d)
{
	v->v = realloc(v->v, (v->n + 1) * sizeof(*v->v));
	if (!v->v) {
		cli_error("out of memory");
		exit(CLI_FAILED);
	}
	v->v[v->n++] = d;
}

static void values_finish(struct values *v)
{
	v->median = stats_median(v->v, v->n);
	v->min = v->n ? v->v[0] : NAN;
	v->max = v->n ? v->v[v->n - 1] : NAN;
}

/* The value of a metric in the run that belongs to a pair; NAN if that failed. */
static double run_value(const struct json_value *runs, double pair, const char *metric)
{
	const struct json_value *run;

	for (run = runs ? runs->first : NULL; run; run = run->next) {
		double v = json_value_number(run, metric);

		if (json_value_number(run, "pair") == pair && json_truth(run, "ok"))
			return v;
	}
	return NAN;
}

static const struct json_value *side_runs(const struct json_value *result, const char *key)
{
	const struct json_value *runs = json_member(json_member(result, key), "runs");

	return runs && runs->type == JSON_ARRAY ? runs : NULL;
}

/* What the program says that it did; NAN if it does not say. */
static double read_events(const struct result *r, const struct json_value *result)
{
	const struct json_value *runs = side_runs(result, r->side_keys[0]);
	const char *found = NULL;

	if (runs && runs->first)
		found = strstr(json_text(runs->first, "output", ""), " events=");
	return found ? strtod(found + strlen(" events="), NULL) : NAN;
}

static void read_samples(struct result *r, struct result_metric *m, const struct json_value *result)
{
	const struct json_value *mine = side_runs(result, r->side_keys[r->n_sides - 1]);

	for (size_t s = 0; s < r->n_sides; s++) {
		const struct json_value *runs = side_runs(result, r->side_keys[s]), *run;

		for (run = runs ? runs->first : NULL; run; run = run->next) {
			double pair = json_value_number(run, "pair");
			double v = run_value(runs, pair, m->name);
			double u = run_value(mine, pair, m->name);

			if (!isfinite(v))
				continue;
			values_add(&m->sides[s], v);
			if (s < r->n_sides - 1 && v > 0 && u > 0)
				values_add(&m->ratios[s], m->more ? u / v : v / u);
		}
		values_finish(&m->sides[s]);
		if (s == r->n_sides - 1)
			continue;
		values_finish(&m->ratios[s]);
		m->intervals[s] =
			stats_median_interval(m->ratios[s].v, m->ratios[s].n, RESULTS_LEVEL);
	}
}

static char *read_command(const struct json_value *words)
{
	char *text = cli_strdup("");

	for (words = words ? words->first : NULL; words; words = words->next) {
		const char *w = words->type == JSON_STRING ? words->string : "";
		bool plain =
			*w && w[strspn(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
					  "0123456789_-+=:,./%@")] == '\0';
		char *longer = cli_format("%s%s%s%s%s", text, *text ? " " : "", plain ? "" : "'", w,
					  plain ? "" : "'");

		free(text);
		text = longer;
	}
	return text;
}

static char *copy_part(const char *from, const char *to)
{
	return cli_format("%.*s", (int)(to - from), from);
}

static bool ends_in(const char *word, size_t len, const char *end)
{
	size_t n = strlen(end);

	return len >= n && !memcmp(word + len - n, end, n);
}

/* Whether "es" makes more of what such a word names. */
static bool hisses(const char *word, size_t len)
{
	return ends_in(word, len, "s") || ends_in(word, len, "ch") || ends_in(word, len, "sh") ||
	       ends_in(word, len, "x");
}

/* "threads" of "thread" and of "threads"; "watches", "processes"; "queued" as it is. */
static char *plural_of(const char *word, const char *end)
{
	size_t len = (size_t)(end - word);

	if (ends_in(word, len, "ed"))
		return copy_part(word, end);
	if (ends_in(word, len, "es") && hisses(word, len - 2))
		len -= 2;
	else if (ends_in(word, len, "s") && !ends_in(word, len, "ss"))
		len--;
	return cli_format("%.*s%s", (int)len, word, hisses(word, len) ? "es" : "s");
}

static void split_label(struct result *r)
{
	const char *label = r->label, *number = label, *end, *word, *word_end;
	char *stem, *before;
	size_t len;

	/* A number that stands by itself and counts something. */
	for (;; number = end) {
		number += strcspn(number, "0123456789");
		if (!*number) {
			r->x = NAN;
			r->family = cli_strdup(label);
			r->x_name = cli_strdup("");
			return;
		}
		r->x = 0;
		for (end = number; isdigit((unsigned char)*end) ||
				   (*end == ',' && isdigit((unsigned char)end[1]));
		     end++)
			if (*end != ',')
				r->x = r->x * 10 + (*end - '0');
		if ((number == label || number[-1] == ' ') && end[0] == ' ' &&
		    isalpha((unsigned char)end[1]))
			break;
	}
	word = end + 1;
	for (word_end = word; isalpha((unsigned char)*word_end);)
		word_end++;
	stem = plural_of(word, word_end);
	before = copy_part(label, number);
	word_end += strspn(word_end, ", ");
	r->family = cli_format("%s%s", before, word_end);
	len = strlen(r->family);
	while (len && strchr(", ", r->family[len - 1]))
		r->family[--len] = '\0';
	r->x_name = stem;
	free(before);
}

static bool read_sides(struct result *r, const struct json_value *result)
{
	const struct json_value *sides = json_member(result, "sides"), *s;

	/* Files of before there were others. */
	if (!sides) {
		r->n_sides = 2;
		r->side_names[0] = r->side_keys[0] = "kernel";
		r->side_names[1] = "Pollux";
		r->side_keys[1] = "pollux";
		return json_member(result, "kernel") && json_member(result, "pollux");
	}
	for (s = sides->first; s && r->n_sides < RESULTS_SIDES; s = s->next) {
		r->side_keys[r->n_sides] = json_text(s, "key", "");
		r->side_names[r->n_sides] = json_text(s, "name", r->side_keys[r->n_sides]);
		r->n_sides++;
	}
	return r->n_sides > 0 && !s;
}

static bool read_result(struct result *r, const struct json_value *v)
{
	const struct json_value *metrics = json_member(v, "metrics"), *m;
	struct result_metric *to;
	double n;

	r->bench = json_text(v, "bench", NULL);
	r->label = json_text(v, "configuration", NULL);
	if (!r->bench || !r->label)
		return false;
	split_label(r);
	r->skipped = json_text(v, "skipped", NULL);
	if (r->skipped)
		return true;
	if (!read_sides(r, v) || !metrics || metrics->type != JSON_ARRAY)
		return false;
	r->remark = json_text(v, "remark", NULL);
	n = json_value_number(v, "failed");
	r->failed = n > 0 ? (size_t)n : 0;
	n = json_value_number(v, "not_served");
	r->not_served = n > 0 ? (size_t)n : 0;
	r->others = json_value_number(v, "others_share");
	r->steal = json_value_number(v, "steal_share");
	for (size_t s = 0; s < r->n_sides; s++)
		r->commands[s] =
			read_command(json_member(json_member(v, r->side_keys[s]), "command"));
	r->events = read_events(r, v);
	r->metrics = to = cli_alloc((json_count(metrics) + 1) * sizeof(*to));
	for (m = metrics->first; m; m = m->next, to++) {
		to->name = json_text(m, "name", NULL);
		to->unit = json_text(m, "unit", "");
		if (!to->name)
			return false;
		to->title = json_text(m, "title", to->name);
		to->more = json_member(m, "more_is_better") ? json_truth(m, "more_is_better")
							    : !strcmp(to->unit, "per second");
		r->n_metrics++;
		read_samples(r, to, v);
	}
	return true;
}

/* What the file says of a bench, if it does. */
static void describe_bench(struct bench_results *b, const struct json_value *benches)
{
	for (benches = benches ? benches->first : NULL; benches; benches = benches->next) {
		if (strcmp(json_text(benches, "name", ""), b->name))
			continue;
		b->title = json_text(benches, "title", b->title);
		b->command = json_text(benches, "command", b->command);
	}
}

static void find_benches(struct results *r)
{
	const struct json_value *described = json_member(r->root, "benches");

	r->benches = cli_alloc((r->n + 1) * sizeof(*r->benches));
	for (size_t i = 0; i < r->n; i++) {
		struct bench_results *b = &r->benches[r->n_benches];

		if (!i || strcmp(r->list[i].bench, r->list[i - 1].bench)) {
			b->name = b->title = r->list[i].bench;
			b->command = "";
			b->first = i;
			describe_bench(b, described);
			r->n_benches++;
		}
		r->benches[r->n_benches - 1].n++;
	}
}

static bool read_results(struct results *r)
{
	const struct json_value *m = json_member(r->root, "machine");
	const struct json_value *list = json_member(r->root, "results"), *load;

	if (!m || !list || list->type != JSON_ARRAY)
		return false;
	r->version = json_text(r->root, "version", "");
	r->command = json_text(r->root, "command", "");
	r->cpu = json_text(m, "cpu", "unknown");
	r->arch = json_text(m, "arch", "");
	r->kernel = json_text(m, "kernel", "");
	r->start = json_text(m, "start", "");
	r->end = json_text(m, "end", "");
	r->cpus = json_value_number(m, "cpus");
	r->memory_kb = json_value_number(m, "memory_kb");
	load = json_member(m, "load_average_start");
	r->load_start = load && load->first ? load->first->number : NAN;
	load = json_member(m, "load_average_end");
	r->load_end = load && load->first ? load->first->number : NAN;
	r->others = json_value_number(m, "others_share");
	r->steal = json_value_number(m, "steal_share");
	r->pairs = json_value_number(r->root, "pairs");
	r->quick = json_truth(r->root, "quick");
	r->list = cli_alloc((json_count(list) + 1) * sizeof(*r->list));
	for (list = list->first; list; list = list->next) {
		r->n++;
		if (!read_result(&r->list[r->n - 1], list))
			return false;
	}
	find_benches(r);
	return true;
}

struct results *results_read(const char *path)
{
	struct results *r = cli_alloc(sizeof(*r));
	char why[160];

	r->root = json_read_file(path, why, sizeof(why));
	if (!r->root) {
		cli_error("%s: %s", path, why);
		free(r);
		return NULL;
	}
	if (!read_results(r)) {
		cli_error("%s: these are no results of 'pollux bench --json'", path);
		results_free(r);
		return NULL;
	}
	return r;
}

void results_free(struct results *r)
{
	for (size_t i = 0; i < r->n; i++) {
		struct result *t = &r->list[i];

		for (size_t m = 0; m < t->n_metrics; m++) {
			for (size_t s = 0; s < RESULTS_SIDES; s++)
				free(t->metrics[m].sides[s].v);
			for (size_t s = 0; s < RESULTS_SIDES - 1; s++)
				free(t->metrics[m].ratios[s].v);
		}
		for (size_t s = 0; s < RESULTS_SIDES; s++)
			free(t->commands[s]);
		free(t->metrics);
		free(t->family);
		free(t->x_name);
	}
	free(r->list);
	free(r->benches);
	json_free(r->root);
	free(r);
}

bool results_ratio_noisy(const struct values *ratio)
{
	return ratio->n && ratio->max - ratio->min > NOISY_RATIO_SPREAD * ratio->median;
}

bool results_side_noisy(const struct values *side)
{
	return side->n && side->max - side->min > NOISY_SIDE_SPREAD * side->median;
}

bool results_noisy(const struct result *r)
{
	for (size_t m = 0; m < r->n_metrics; m++)
		for (size_t s = 0; s + 1 < r->n_sides; s++)
			if (results_ratio_noisy(&r->metrics[m].ratios[s]) ||
			    results_side_noisy(&r->metrics[m].sides[s]))
				return true;
	return false;
}

struct reasons {
	void (*say)(void *arg, const char *text);
	void *arg;
	size_t n;
};

static void give_reason(struct reasons *to, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void give_reason(struct reasons *to, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (to->say)
		to->say(to->arg, text);
	to->n++;
}

size_t results_disturbances(const struct results *r, void (*say)(void *arg, const char *text),
			    void *arg)
{
	struct reasons to = {say, arg, 0};
	size_t measured = 0, noisy = 0;

	for (size_t i = 0; i < r->n; i++) {
		measured += !r->list[i].skipped;
		noisy += results_noisy(&r->list[i]);
	}
	if ((double)noisy > NOISY_RESULTS * (double)measured)
		give_reason(&to, "%zu of %zu results are noisy (the limit is %.0f %% of them)",
			    noisy, measured, 100 * NOISY_RESULTS);
	if (r->others > NOISY_OTHERS)
		give_reason(&to,
			    "other programs used %.0f %% of the machine's CPU time (the limit is "
			    "%.0f %%)",
			    100 * r->others, 100 * NOISY_OTHERS);
	if (r->steal > NOISY_STEAL)
		give_reason(&to,
			    "the host took %.0f %% of the CPU time away (the limit is %.0f %%)",
			    100 * r->steal, 100 * NOISY_STEAL);
	if (r->load_start > NOISY_LOAD_PER_CPU * r->cpus)
		give_reason(&to,
			    "the load average at the start was %.2f (the limit is %.1f for each of "
			    "the %.0f CPUs)",
			    r->load_start, NOISY_LOAD_PER_CPU, r->cpus);
	return to.n;
}

/* What a number is divided by to be shown, and the unit that it then has. */
static double pick_scale(double v, const char *unit, const char **name)
{
	static const char *const times[] = {"ns", "us", "ms", "s"};
	double by = 1;

	*name = unit;
	if (!strcmp(unit, "bytes"))
		*name = "B";
	if (!strcmp(unit, "percent"))
		*name = "%";
	if (!strcmp(unit, "count"))
		*name = "";
	if (!strcmp(unit, "per second")) {
		*name = v >= 999500 ? "M/s" : v >= 999.5 ? "k/s" : "/s";
		return v >= 999500 ? 1e6 : v >= 999.5 ? 1e3 : 1;
	}
	if (!strcmp(unit, "per ms")) {
		*name = v >= 9999.5 ? "k/ms" : "/ms";
		return v >= 9999.5 ? 1e3 : 1;
	}
	for (size_t i = 0; i < 4; i++) {
		if (strcmp(unit, times[i]))
			continue;
		/* Four digits of nanoseconds beside three are easier to compare than two units. */
		for (; i < 3 && fabs(v) / by >= (i ? 999.5 : 9999.5); i++)
			by *= 1000;
		/* Not below what was measured in: a tenth of a nanosecond is none. */
		for (; i > 0 && v != 0 && fabs(v) / by < 0.9995 && !strcmp(unit, "s"); i--)
			by /= 1000;
		*name = times[i];
		break;
	}
	return by;
}

/* Three digits or so. */
static int decimals(double v)
{
	int n = fabs(v) >= 99.95 || v == 0 ? 0 : fabs(v) >= 9.995 ? 1 : 2;

	/* Nor 0.00 for what is not. */
	for (double a = fabs(v); n >= 2 && n < 6 && a < 0.0995; a *= 10)
		n++;
	return n;
}

void results_format(char *text, size_t size, double v, const char *unit)
{
	const char *name;
	double by = pick_scale(v, unit, &name);

	if (!isfinite(v))
		snprintf(text, size, "-");
	else
		snprintf(text, size, "%.*f%s%s", decimals(v / by), v / by, *name ? " " : "", name);
}

void results_format_range(char *text, size_t size, const struct values *v, const char *unit)
{
	const char *name;
	double by = pick_scale(v->median, unit, &name);

	if (!v->n)
		snprintf(text, size, "-");
	else
		snprintf(text, size, "%.*f..%.*f", decimals(v->min / by), v->min / by,
			 decimals(v->max / by), v->max / by);
}
