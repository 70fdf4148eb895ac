/* SPDX-License-Identifier: MIT */
/*
 * What the runs of `pollux bench` come to, and how the terminal says it.
 */
#include "bench_run.h"
#include "stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double bench_line_value(const char *line, const char *key)
{
	size_t len = strlen(key);

	for (const char *p = line; (p = strstr(p, key)); p += len)
		if ((p == line || p[-1] == ' ') && p[len] == '=')
			return strtod(p + len + 1, NULL);
	return NAN;
}

struct summary bench_summarize(const struct config *c, size_t metric)
{
	double values[MAX_PAIRS];
	struct summary r;
	size_t n;

	for (size_t s = 0; s < c->sides->n; s++) {
		n = 0;
		for (unsigned int p = 0; p < bench_opt.pairs; p++)
			if (c->samples[s][p].ok && isfinite(c->samples[s][p].value[metric]))
				values[n++] = c->samples[s][p].value[metric];
		r.median[s] = stats_median(values, n);
	}
	for (size_t s = 0; s < bench_ours(c); s++) {
		n = 0;
		for (unsigned int p = 0; p < bench_opt.pairs; p++) {
			const struct sample *k = &c->samples[s][p];
			const struct sample *u = &c->samples[bench_ours(c)][p];
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

double bench_difference(double ratio)
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

size_t bench_count_failed(const struct config *c)
{
	size_t n = 0;

	for (size_t s = 0; s < c->sides->n; s++)
		for (unsigned int p = 0; p < bench_opt.pairs; p++)
			n += c->samples[s][p].done && !c->samples[s][p].ok;
	return n;
}

size_t bench_count_unserved(const struct config *c)
{
	size_t n = 0;

	for (unsigned int p = 0; p < bench_opt.pairs; p++)
		n += c->samples[bench_ours(c)][p].ok && !c->samples[bench_ours(c)][p].served;
	return n;
}

char *bench_describe_descriptors(const struct config *c)
{
	for (unsigned int p = 0; p < bench_opt.pairs; p++) {
		const struct sample *s = &c->samples[SIDE_KERNEL][p];
		double epolls = s->ok ? bench_line_value(s->line, "epolls") : NAN;

		if (epolls > 1)
			return cli_format("no more than %.0f descriptors are permitted (ulimit "
					  "-Hn), so each is watched by %.0f epolls%s",
					  bench_line_value(s->line, "descriptors"), epolls,
					  c->native ? "; not so with Pollux's own functions" : "");
	}
	return NULL;
}

void bench_print_config(const struct config *c)
{
	size_t failed = bench_count_failed(c), unserved = bench_count_unserved(c);
	char *remark;

	if (c->skipped) {
		printf("  %-38s not measured: %s\n", c->label, c->skipped);
		return;
	}
	remark = bench_describe_descriptors(c);
	for (size_t m = 0; m < c->n_metrics; m++) {
		struct summary r = bench_summarize(c, m);
		char value[32];
		char *label = c->n_metrics == 1 ? cli_strdup(c->label)
						: cli_format("%s%s%s", m ? "  " : c->label,
							     m ? "" : ": ", c->metrics[m].title);

		printf("  %-38s", label);
		for (size_t i = 0; i < c->sides->n; i++) {
			format_value(value, sizeof(value), r.median[i], c->metrics[m].unit);
			printf(" %11s", value);
		}
		for (size_t i = 0; i < bench_ours(c); i++) {
			if (!isfinite(r.ratio[i].median)) {
				printf(" %7s", "-");
				continue;
			}
			printf(" %7.2fx  [%.2f..%.2f]%s", r.ratio[i].median, r.ratio[i].min,
			       r.ratio[i].max, r.ratio[i].noisy ? " ~" : "");
			if (c->metrics[m].unit == UNIT_SECONDS)
				printf(" %+.1f %%", bench_difference(r.ratio[i].median));
		}
		putchar('\n');
		free(label);
	}
	for (size_t m = 0; m < c->n_metrics; m++)
		if (c->metrics[m].unit == UNIT_PERCENT &&
		    !isfinite(bench_summarize(c, m).median[bench_ours(c)]))
			printf("    the CPU's time could not be looked into: perf is not installed "
			       "or "
			       "not permitted\n");
	if (remark)
		printf("    %s\n", remark);
	free(remark);
	if (failed)
		printf("    FAILED: %zu of %zu runs; they are left out\n", failed,
		       c->sides->n * bench_opt.pairs);
	if (unserved)
		printf("    NOT SERVED: in %zu of %u runs Pollux did not serve the program; "
		       "this is no measurement of it\n",
		       unserved, bench_opt.pairs);
	fflush(stdout);
}

void bench_print_growth(void)
{
	const struct config *first = NULL, *last = NULL;

	for (size_t i = 0; i < bench_n_configs; i++) {
		if (strcmp(bench_configs[i].suite, "watches") || bench_configs[i].skipped)
			continue;
		if (!first)
			first = &bench_configs[i];
		last = &bench_configs[i];
	}
	if (!first || first == last)
		return;
	for (size_t m = 0; m < 2; m++) {
		struct summary a = bench_summarize(first, m), b = bench_summarize(last, m);

		if (!(a.median[SIDE_KERNEL] > 0) || !(a.median[SIDE_POLLUX] > 0) ||
		    !(b.median[SIDE_KERNEL] > 0) || !(b.median[SIDE_POLLUX] > 0))
			continue;
		printf("  %s, %s against %s: kernel %.2f times as long, Pollux %.2f times\n",
		       first->metrics[m].title, last->label, first->label,
		       b.median[SIDE_KERNEL] / a.median[SIDE_KERNEL],
		       b.median[SIDE_POLLUX] / a.median[SIDE_POLLUX]);
	}
}

void bench_print_heads(const struct sides *sides)
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
