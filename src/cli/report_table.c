/* SPDX-License-Identifier: MIT */
/* Results as tables, for the page and for the Markdown file. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void table_add(struct table *t, char *text, char *small)
{
	t->cells = realloc(t->cells, (t->n + 1) * sizeof(*t->cells));
	if (!t->cells) {
		cli_error("out of memory");
		exit(CLI_FAILED);
	}
	t->cells[t->n++] = (struct cell){text, small, -1};
}

size_t table_rows(const struct table *t)
{
	return t->columns ? t->n / t->columns : 0;
}

struct cell *table_cell(const struct table *t, size_t row, size_t column)
{
	return &t->cells[row * t->columns + column];
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->cells[i].text);
		free(t->cells[i].small);
	}
	free(t->cells);
	free(t->caption);
	memset(t, 0, sizeof(*t));
}

int side_colour(const struct result *r, size_t side)
{
	static const struct {
		const char *key;
		int colour;
	} known[] = {
		{"kernel", COLOUR_KERNEL},	 {"machine", COLOUR_KERNEL},
		{"spinlock", COLOUR_OTHERS},	 {"mutex", COLOUR_OTHERS},
		{"list", COLOUR_OTHERS},	 {"rwlock", COLOUR_OTHERS + 1},
		{"refcount", COLOUR_OTHERS + 1}, {"radix_tree", COLOUR_OTHERS + 1},
		{"lockfree", COLOUR_OTHERS + 2}, {"pi", COLOUR_OTHERS + 3},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(r->side_keys[side], known[i].key))
			return known[i].colour;
	if (side == r->n_sides - 1)
		return COLOUR_OURS;
	/* The kernel's colour stays free, also where it is not among the sides. */
	for (size_t s = 0, n = 0; s < r->n_sides; s++) {
		if (s == side)
			return COLOUR_OTHERS + (int)(n % (N_COLOURS - COLOUR_OTHERS));
		n += strcmp(r->side_keys[s], "kernel") != 0;
	}
	return COLOUR_OTHERS;
}

static bool same_sides(const struct result *a, const struct result *b)
{
	if (a->skipped || b->skipped)
		return true;
	if (a->n_sides != b->n_sides)
		return false;
	for (size_t s = 0; s < a->n_sides; s++)
		if (strcmp(a->side_keys[s], b->side_keys[s]))
			return false;
	return true;
}

static const struct result *first_measured(const struct results *r, size_t from, size_t to)
{
	for (; from < to; from++)
		if (!r->list[from].skipped)
			return &r->list[from];
	return NULL;
}

size_t table_run(const struct results *r, size_t from, size_t to)
{
	const struct result *first = first_measured(r, from, to);
	size_t i = from + 1;

	while (i < to && (!first || same_sides(first, &r->list[i])))
		i++;
	return i;
}

static char *format(double v, const char *unit)
{
	char text[64];

	results_format(text, sizeof(text), v, unit);
	return cli_strdup(text);
}

static char *format_range(const struct values *v, const char *unit)
{
	char text[64];

	results_format_range(text, sizeof(text), v, unit);
	return cli_strdup(text);
}

static int ratio_digits(double v)
{
	return v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
}

static char *format_ratio(double v)
{
	return isfinite(v) ? cli_format("%.*f\u00d7", ratio_digits(v), v) : cli_strdup("-");
}

static char *format_span(double low, double high)
{
	return isfinite(low)
		       ? cli_format("%.*f..%.*f", ratio_digits(low), low, ratio_digits(high), high)
		       : cli_strdup("-");
}

static void add_head(struct table *t, const struct result *r)
{
	table_add(t, cli_strdup("Configuration"), NULL);
	table_add(t, cli_strdup("Metric"), NULL);
	for (size_t s = 0; s < r->n_sides; s++)
		table_add(t, cli_strdup(r->side_names[s]), NULL);
	for (size_t s = 0; s + 1 < r->n_sides; s++)
		table_add(t,
			  r->n_sides == 2 ? cli_strdup("Ratio")
					  : cli_format("to %s", r->side_names[s]),
			  NULL);
	table_add(t, cli_strdup("Noise"), NULL);
}

/* "~" for ratios that spread, "k" for a side that varies by itself, and who disturbed. */
static char *describe_noise(const struct result *r, const struct result_metric *m)
{
	bool ratio = false, side = false;
	char *text, *longer;

	for (size_t s = 0; s + 1 < r->n_sides; s++) {
		ratio |= results_ratio_noisy(&m->ratios[s]);
		side |= results_side_noisy(&m->sides[s]);
	}
	text = cli_format("%s%s", ratio ? "~" : "", side ? "k" : "");
	if (r->others > NOISY_OTHERS) {
		longer = cli_format("%s%sothers %.0f %%", text, *text ? " " : "", 100 * r->others);
		free(text);
		text = longer;
	}
	if (r->steal > NOISY_STEAL) {
		longer = cli_format("%s%sstolen %.0f %%", text, *text ? " " : "", 100 * r->steal);
		free(text);
		text = longer;
	}
	return text;
}

/* The range of the ratios, where their median may lie, and what the difference in time is. */
static char *describe_ratio(const struct result_metric *m, size_t side)
{
	const struct values *v = &m->ratios[side];
	char *range = format_span(v->min, v->max);
	char *likely = format_span(m->intervals[side].low, m->intervals[side].high);
	char *text = strcmp(range, likely) ? cli_format("%s\n95 %%: %s", range, likely)
					   : cli_strdup(range);

	if (!strcmp(m->unit, "s")) {
		char *longer = cli_format("%s\n%+.1f %% time", text, 100 / v->median - 100);

		free(text);
		text = longer;
	}
	free(range);
	free(likely);
	return text;
}

static void add_metric(struct table *t, const struct result *r, size_t index)
{
	const struct result_metric *m = &r->metrics[index];

	table_add(t, cli_strdup(index ? "" : r->label), NULL);
	table_add(t, cli_strdup(m->title), NULL);
	for (size_t s = 0; s < r->n_sides; s++)
		table_add(t, format(m->sides[s].median, m->unit),
			  m->sides[s].n ? format_range(&m->sides[s], m->unit) : NULL);
	for (size_t s = 0; s + 1 < r->n_sides; s++)
		table_add(t, format_ratio(m->ratios[s].median),
			  m->ratios[s].n ? describe_ratio(m, s) : NULL);
	table_add(t, describe_noise(r, m), NULL);
}

static void add_remark(struct table *t, const char *label, char *remark)
{
	table_add(t, cli_strdup(label), NULL);
	table_add(t, remark, NULL);
	while (t->n % t->columns)
		table_add(t, cli_strdup(""), NULL);
}

void table_of_results(struct table *t, const struct results *r, size_t from, size_t to)
{
	const struct result *first = first_measured(r, from, to);

	memset(t, 0, sizeof(*t));
	if (!first) {
		t->columns = t->numbers = 2;
		table_add(t, cli_strdup("Configuration"), NULL);
		table_add(t, cli_strdup("Not measured"), NULL);
	} else {
		t->columns = 2 * first->n_sides + 2;
		t->numbers = 2;
		add_head(t, first);
		for (size_t s = 0; s < first->n_sides; s++)
			table_cell(t, 0, 2 + s)->colour = side_colour(first, s);
	}
	for (; from < to; from++) {
		const struct result *c = &r->list[from];

		if (c->skipped) {
			add_remark(t, c->label,
				   first ? cli_format("not measured: %s", c->skipped)
					 : cli_strdup(c->skipped));
			continue;
		}
		for (size_t m = 0; m < c->n_metrics; m++)
			add_metric(t, c, m);
		if (c->remark)
			add_remark(t, "", cli_strdup(c->remark));
		if (c->failed)
			add_remark(t, "",
				   cli_format("%zu run%s failed: left out", c->failed,
					      c->failed == 1 ? "" : "s"));
		if (c->not_served)
			add_remark(t, "",
				   cli_format("in %zu run%s Pollux did not serve the program: "
					      "this is no measurement of it",
					      c->not_served, c->not_served == 1 ? "" : "s"));
	}
}

static void add_fact(struct table *t, const char *name, char *value)
{
	table_add(t, cli_strdup(name), NULL);
	table_add(t, value, NULL);
}

static char *share(double v)
{
	return isfinite(v) ? cli_format("%.1f %%", 100 * v) : cli_strdup("not recorded");
}

void table_of_machine(struct table *t, const struct results *r)
{
	memset(t, 0, sizeof(*t));
	t->columns = t->numbers = 2;
	add_fact(t, "Machine", cli_strdup(""));
	add_fact(t, "Processor", cli_format("%s, %s", r->cpu, r->arch));
	add_fact(t, "CPUs that this run could use", cli_format("%.0f", r->cpus));
	add_fact(t, "Memory", cli_format("%.1f GiB", r->memory_kb / 1048576));
	add_fact(t, "Kernel", cli_strdup(r->kernel));
	add_fact(t, "Pollux", cli_strdup(r->version));
	add_fact(t, "Start and end", cli_format("%s, %s", r->start, r->end));
	add_fact(t, "Load average at start and end",
		 cli_format("%.2f, %.2f", r->load_start, r->load_end));
	add_fact(t, "CPU time of other programs meanwhile", share(r->others));
	add_fact(t, "CPU time taken by the host meanwhile", share(r->steal));
	add_fact(t, "Pairs of runs", cli_format("%.0f%s", r->pairs, r->quick ? ", quick" : ""));
	if (*r->command)
		add_fact(t, "Command", cli_strdup(r->command));
}
