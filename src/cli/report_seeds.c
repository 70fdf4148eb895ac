/* SPDX-License-Identifier: MIT */
/* The published figures that this project began with, and today's beside them. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_COLUMNS 2
#define MAX_ROWS 8
#define MAX_SOURCES 4

/* How the figures of an experiment are given. */
enum scale {
	EVENTS_PER_MS,
	/* For a million rounds of each of x threads. */
	SECONDS_A_MILLION,
	AS_MEASURED,
};

struct source {
	const char *bench;
	/* Of those the ones of a family, or whose labels begin so; NULL for all. */
	const char *family;
	const char *prefix;
	/*
	 * So many operations make a run of the experiment, whose milliseconds are computed from the
	 * rate; 0 where values are converted by the scale, if at all.
	 */
	double operations;
	/* The counts of the experiment are those of CPUs. */
	bool over_cpus;
};

struct experiment {
	struct seed seed;
	enum scale scale;
	/* What the first column counts or names. */
	const char *x_name;
	/* The older of the two first. */
	const char *columns[MAX_COLUMNS];
	const char *unit;
	const char *unit_in_words;
	bool more;
	struct {
		double x;
		/* Instead of x. */
		const char *name;
		double v[MAX_COLUMNS];
		/* Less is better, unlike in the others. */
		bool less;
	} rows[MAX_ROWS];
	struct source sources[MAX_SOURCES];
};

static const struct experiment experiments[] = {
	{
		.seed = {"Ready list: spinlock and reader/writer lock (Linux 5.1, 2019)",
			 "Threads write to eventfds of their own, 10 million times each, while "
			 "one thread waits and reads. Figures of the change that replaced the "
			 "spinlock of the ready list by a reader/writer lock and an exchange of "
			 "its tail; the machine is not named. Each figure has the run time of 10 "
			 "million events of each thread below it. Today's small programs (ready) "
			 "have the lists alone, without the kernel around them."},
		.scale = EVENTS_PER_MS,
		.x_name = "threads",
		.columns = {"spinlock", "rwlock"},
		.unit = "per ms",
		.unit_in_words = "events/ms",
		.more = true,
		.rows = {{.x = 8, .v = {6402, 10038}},
			 {.x = 16, .v = {7045, 12178}},
			 {.x = 32, .v = {7395, 13223}}},
		.sources = {{.bench = "ready"}, {.bench = "events", .family = "coalescing"}},
	},
	{
		.seed = {"Teardown: one mutex over all removals (2017, 2019)",
			 "Processes make a TCP socket, add it to an epoll and close it, a million "
			 "times each. Seconds, fewer are better, on a machine with 128 ARM64 cores "
			 "in 2 sockets, Linux 5.3-rc2 and the proposed change: a lock for each "
			 "epoll, reference counts and RCU. Today's seconds are computed from the "
			 "rate."},
		.scale = SECONDS_A_MILLION,
		.x_name = "concurrency",
		.columns = {"global mutex", "per-epoll lock"},
		.unit = "s",
		.unit_in_words = "seconds",
		.rows = {{.x = 10, .v = {6.983, 4.658}},
			 {.x = 20, .v = {14.479, 6.8}},
			 {.x = 40, .v = {47.689, 15.303}},
			 {.x = 80, .v = {103.336, 22.402}}},
		.sources = {{.bench = "teardown"},
			    {.bench = "storm", .family = "TCP socket"},
			    {.bench = "storm", .family = "eventfd"},
			    {.bench = "storm", .family = "eventfd, native"}},
	},
	{
		.seed = {"nginx, one request per connection (2017, 2019)",
			 "nginx with 64 workers on 64 ARM64 cores, keepalive_requests 1; wrk with "
			 "16 threads of 64 connections on 48 other cores. Before and after the "
			 "same "
			 "change; in removal: the share of the servers' CPU time. Today each CPU "
			 "has a worker, and wrk runs on the same ones. Sockets are the kernel's "
			 "also under Pollux, so the two should be equal."},
		.scale = AS_MEASURED,
		.x_name = "",
		.columns = {"before", "after"},
		.unit = "per second",
		.more = true,
		.rows = {{.name = "requests/s", .v = {220000, 240000}},
			 {.name = "in removal, %", .v = {29, 2}, .less = true}},
		.sources = {{.bench = "nginx"}, {.bench = "servers", .prefix = "nginx"}},
	},
	{
		.seed = {"AIO: the list of contexts and a radix tree (2013)",
			 "fio with libaio, random reads and writes of 1 KiB on a RAM disk, one at "
			 "a time, 100 loops: 512 threads with a file of 256 KiB each on 1 to 32 "
			 "cores, and one thread with a file of 100 MiB. Milliseconds of the whole "
			 "run, fewer are better. The kernel took neither, but a table that an id "
			 "in the ring points into. Today's fio is on tmpfs; its milliseconds are "
			 "those of 100 loops, computed from the rate of fewer."},
		.scale = AS_MEASURED,
		.x_name = "cores",
		.columns = {"list", "radix tree"},
		.unit = "ms",
		.unit_in_words = "milliseconds",
		.rows = {{.x = 1, .v = {109376, 73651}},
			 {.x = 2, .v = {69119, 41748}},
			 {.x = 4, .v = {35682, 23028}},
			 {.x = 8, .v = {22671, 16766}},
			 {.x = 16, .v = {19724, 15232}},
			 {.x = 32, .v = {16408, 13787}},
			 {.name = "one thread", .v = {58892, 59404}}},
		.sources = {{.bench = "aio",
			     .prefix = "fio, 512 threads",
			     .operations = 512 * 256 * 100.0,
			     .over_cpus = true},
			    {.bench = "aio",
			     .prefix = "fio, one thread",
			     .operations = 100 * 1024 * 100.0,
			     .over_cpus = false},
			    {.bench = "aio-lookup"}},
	},
};

size_t seed_count(void)
{
	return sizeof(experiments) / sizeof(experiments[0]);
}

const struct seed *seed_get(size_t i)
{
	return &experiments[i].seed;
}

static bool rate(const struct result_metric *m)
{
	return !strcmp(m->unit, "per second");
}

/* A measured value as the experiment has its own. */
static double convert(const struct experiment *e, const struct source *s, const struct result *r,
		      double v)
{
	const struct result_metric *m = &r->metrics[0];

	if (s->operations > 0)
		return s->operations / v * 1000;
	if (e->scale == EVENTS_PER_MS && rate(m))
		return v / 1000;
	if (e->scale == SECONDS_A_MILLION && rate(m))
		return r->x * 1e6 / v;
	if (e->scale == SECONDS_A_MILLION && !strcmp(m->unit, "s"))
		return v * r->x * 1e6 / r->events;
	return v;
}

static bool converts(const struct experiment *e, const struct source *s, const struct result *r)
{
	const struct result_metric *m = &r->metrics[0];

	if (s->operations > 0)
		return rate(m);
	if (e->scale == AS_MEASURED || !isfinite(r->x))
		return false;
	return rate(m) ||
	       (e->scale == SECONDS_A_MILLION && !strcmp(m->unit, "s") && isfinite(r->events));
}

static char *format_factor(double v)
{
	return cli_format("%.*f\u00d7", v < 99.95 ? 2 : v < 999.5 ? 1 : 0, v);
}

/*
 * Below a figure: how much better it is than the first one (NULL: it is that one), and the run
 * time where the experiment gave it. Takes `factor`.
 */
static char *describe_figure(const struct experiment *e, double x, double v, char *factor)
{
	char seconds[64];
	char *text;

	if (e->scale != EVENTS_PER_MS || !isfinite(x))
		return factor;
	results_format(seconds, sizeof(seconds), x * 1e7 / v / 1000, "s");
	text = factor ? cli_format("%s\n%s", factor, seconds) : cli_strdup(seconds);
	free(factor);
	return text;
}

/* As many digits as mean something. */
static char *format_today(double v)
{
	return cli_format("%.*f", v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2, v);
}

static void table_of_published(struct table *t, const struct experiment *e)
{
	memset(t, 0, sizeof(*t));
	t->columns = 1 + MAX_COLUMNS;
	t->numbers = 1;
	t->caption = e->unit_in_words ? cli_format("Published, %s", e->unit_in_words)
				      : cli_strdup("Published");
	table_add(t, cli_strdup(e->x_name), NULL);
	for (size_t c = 0; c < MAX_COLUMNS; c++)
		table_add(t, cli_strdup(e->columns[c]), NULL);
	for (size_t i = 0; i < MAX_ROWS && e->rows[i].v[0] > 0; i++) {
		table_add(t,
			  e->rows[i].name ? cli_strdup(e->rows[i].name)
					  : cli_format("%.0f", e->rows[i].x),
			  NULL);
		for (size_t c = 0; c < MAX_COLUMNS; c++) {
			const double *v = e->rows[i].v;
			bool more = e->more && !e->rows[i].less;
			char *factor = c ? format_factor(more ? v[c] / v[0] : v[0] / v[c]) : NULL;

			table_add(t, cli_format("%.10g", v[c]),
				  describe_figure(e, e->rows[i].x, v[c], factor));
		}
	}
}

bool seed_uses(size_t i, const char *bench)
{
	for (size_t k = 0; k < MAX_SOURCES; k++)
		if (experiments[i].sources[k].bench &&
		    !strcmp(experiments[i].sources[k].bench, bench))
			return true;
	return false;
}

bool seed_repeated(size_t i, const struct results *r)
{
	for (size_t k = 0; k < r->n_benches; k++)
		if (seed_uses(i, r->benches[k].name))
			return true;
	return false;
}

static bool from_source(const struct result *r, const struct source *s)
{
	if (!s->bench || r->skipped || strcmp(r->bench, s->bench))
		return false;
	if (s->family && strcmp(r->family, s->family))
		return false;
	return !s->prefix || !strncmp(r->label, s->prefix, strlen(s->prefix));
}

/* How much better than the first side; of the last one as everywhere, the median of the pairs. */
static char *describe_better(const struct result *r, const struct result_metric *m, size_t side)
{
	const struct values *pairs = &m->ratios[0];
	double v = m->sides[side].median, first = m->sides[0].median;
	char *low, *high, *middle, *text;

	if (!side || !isfinite(v) || !isfinite(first))
		return NULL;
	if (side < r->n_sides - 1 || !pairs->n)
		return format_factor(m->more ? v / first : first / v);
	middle = format_factor(pairs->median);
	low = format_factor(pairs->min);
	high = format_factor(pairs->max);
	text = cli_format("%s%s\n%s..%s", middle, results_ratio_noisy(pairs) ? " ~" : "", low,
			  high);
	free(middle);
	free(low);
	free(high);
	return text;
}

static void add_today(struct table *t, const struct experiment *e, const struct source *source,
		      const struct result *r)
{
	for (size_t m = 0; m < r->n_metrics; m++) {
		const struct result_metric *metric = &r->metrics[m];
		bool converted = !m && converts(e, source, r);

		/* The time of the CPUs has no counterpart in a table of rates. */
		if (m && e->scale != AS_MEASURED)
			break;
		if (r->n_metrics > 1 && e->scale == AS_MEASURED)
			table_add(t,
				  cli_format("%s: %s", r->label,
					     converted ? "milliseconds" : metric->title),
				  NULL);
		else if (converted && source->family)
			table_add(t, cli_format("%.0f", r->x), NULL);
		else
			table_add(t, cli_strdup(r->label), NULL);
		for (size_t s = 0; s < r->n_sides; s++) {
			double v = metric->sides[s].median;
			char text[64];

			results_format(text, sizeof(text), v, metric->unit);
			if (converted && isfinite(v))
				table_add(t, format_today(convert(e, source, r, v)),
					  describe_figure(e, r->x, convert(e, source, r, v),
							  describe_better(r, metric, s)));
			else
				table_add(t, cli_strdup(text), describe_better(r, metric, s));
		}
	}
}

static bool same_table(const struct result *a, const struct result *b)
{
	if (a->n_sides != b->n_sides)
		return false;
	for (size_t s = 0; s < a->n_sides; s++)
		if (strcmp(a->side_keys[s], b->side_keys[s]))
			return false;
	return true;
}

static void begin_today(struct table *t, const struct experiment *e, const struct source *source,
			const struct result *r)
{
	memset(t, 0, sizeof(*t));
	t->columns = 1 + r->n_sides;
	t->numbers = 1;
	t->caption = cli_format("Today, %s%s%s%s", source->bench, source->family ? ", " : "",
				source->family ? source->family : "",
				!converts(e, source, r) || source->operations > 0 ? ""
				: e->scale == EVENTS_PER_MS			  ? ": events/ms"
										  : ": seconds");
	table_add(t, cli_strdup(converts(e, source, r) && source->family ? e->x_name : ""), NULL);
	for (size_t s = 0; s < r->n_sides; s++) {
		table_add(t, cli_strdup(r->side_names[s]), NULL);
		table_cell(t, 0, 1 + s)->colour = side_colour(r, s);
	}
}

size_t seed_tables(struct table *list, size_t i, const struct results *r)
{
	const struct experiment *e = &experiments[i];
	const struct result *last = NULL;
	size_t n = 1;

	table_of_published(&list[0], e);
	for (size_t k = 0; k < MAX_SOURCES; k++) {
		/* Sources that are told apart by the beginning of the label share a table. */
		if (!e->sources[k].prefix || (last && strcmp(last->bench, e->sources[k].bench)))
			last = NULL;
		for (size_t c = 0; c < r->n; c++) {
			const struct result *now = &r->list[c];

			if (!from_source(now, &e->sources[k]) || !now->n_metrics)
				continue;
			if (!last || !same_table(last, now)) {
				if (n == SEED_PARTS)
					return n;
				begin_today(&list[n++], e, &e->sources[k], now);
			}
			add_today(&list[n - 1], e, &e->sources[k], now);
			last = now;
		}
	}
	return n;
}

static void draw_published(struct panel *p, const struct experiment *e)
{
	for (size_t c = 0; c < MAX_COLUMNS; c++) {
		struct series *s = panel_series(p, e->columns[c], COLOUR_OTHERS + (int)c);

		s->dashed = true;
		for (size_t i = 0; i < MAX_ROWS && e->rows[i].v[0] > 0; i++) {
			double v = e->rows[i].v[c];

			if (e->rows[i].name)
				continue;
			series_add(s, (struct point){e->rows[i].x,
						     v,
						     v,
						     v,
						     {NAN, NAN},
						     cli_format("published: %s, %.0f %s: %.10g %s",
								e->columns[c], e->rows[i].x,
								e->x_name, v, e->unit)});
		}
	}
}

/* Today's points of a result, which go to the panel of its bench and family. */
static void draw_today(struct panel *p, const struct experiment *e, const struct source *source,
		       const struct result *r, double x)
{
	const struct result_metric *m = &r->metrics[0];

	for (size_t k = 0; k < r->n_sides; k++) {
		const struct values *v = &m->sides[k];
		double a = convert(e, source, r, v->min), b = convert(e, source, r, v->max);
		struct series *s = NULL;
		char text[64];

		/* Beside the published series of that name. */
		for (size_t i = 0; i < p->n; i++)
			if (!p->series[i].dashed && !strcmp(p->series[i].name, r->side_names[k]))
				s = &p->series[i];
		if (!s) {
			p->series = realloc(p->series, (p->n + 1) * sizeof(*p->series));
			if (!p->series) {
				cli_error("out of memory");
				exit(CLI_FAILED);
			}
			s = &p->series[p->n++];
			*s = (struct series){.name = r->side_names[k], .colour = side_colour(r, k)};
		}
		results_format(text, sizeof(text), convert(e, source, r, v->median), e->unit);
		series_add(s, (struct point){x,
					     convert(e, source, r, v->median),
					     fmin(a, b),
					     fmax(a, b),
					     {NAN, NAN},
					     cli_format("today: %s, %s: %s", r->side_names[k],
							r->label, text)});
	}
}

/* Where the experiment has counts, the one of a result; otherwise NAN. */
static double count_of(const struct results *r, const struct source *source,
		       const struct result *result)
{
	if (source->operations > 0)
		return source->over_cpus ? r->cpus : NAN;
	return result->x;
}

size_t seed_panels(struct panel *list, size_t i, const struct results *r)
{
	const struct experiment *e = &experiments[i];
	const struct result *first[SEED_PARTS];
	size_t n = 0;

	for (size_t k = 0; k < MAX_SOURCES; k++) {
		const struct source *source = &e->sources[k];

		for (size_t c = 0; c < r->n; c++) {
			const struct result *now = &r->list[c];
			double x = count_of(r, source, now);
			size_t at = 0;

			if (!from_source(now, source) || !now->n_metrics || !isfinite(x) ||
			    !converts(e, source, now))
				continue;
			while (at < n && (strcmp(first[at]->bench, now->bench) ||
					  strcmp(first[at]->family, now->family)))
				at++;
			if (at == SEED_PARTS)
				continue;
			if (at == n) {
				const char *part = source->over_cpus ? source->prefix : now->family;

				memset(&list[n], 0, sizeof(list[n]));
				list[n].x_name = e->x_name;
				list[n].unit = e->unit;
				list[n].title =
					cli_format("%s%s%s", now->bench, *part ? ", " : "", part);
				draw_published(&list[n], e);
				first[n++] = now;
			}
			draw_today(&list[at], e, source, now, x);
		}
	}
	return n;
}
