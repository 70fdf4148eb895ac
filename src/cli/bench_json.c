/* SPDX-License-Identifier: MIT */
/*
 * The machine, the results and all samples of `pollux bench` as JSON.
 */
#include "bench_run.h"

#include <stdlib.h>
#include <string.h>

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
	for (unsigned int p = 0; p < bench_opt.pairs; p++) {
		const struct sample *s = &c->samples[side][p];

		if (!s->done)
			continue;
		json_open(j, NULL, '{');
		json_integer(j, "pair", p + 1);
		json_bool(j, "ok", s->ok);
		if (side == bench_ours(c))
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
	char *text = cli_format("pollux bench %s%s%s --pairs=%u", name,
				bench_opt.quick ? " --quick" : "",
				bench_opt.native ? " --native" : "", bench_opt.pairs),
	     *longer;

	for (size_t i = 0; i < bench_opt.n_threads; i++) {
		longer = cli_format("%s%s%u", text, i ? "," : " --threads=", bench_opt.threads[i]);
		free(text);
		text = longer;
	}
	if (bench_opt.events) {
		longer = cli_format("%s --events=%lu", text, bench_opt.events);
		free(text);
		text = longer;
	}
	if (bench_opt.warm_up >= 0) {
		longer = cli_format("%s --warm-up=%d", text, bench_opt.warm_up);
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
	for (size_t s = 0; s < bench_n_suites; s++) {
		char *command;
		bool used = false;

		for (size_t i = 0; i < bench_n_configs; i++)
			used |= !strcmp(bench_configs[i].suite, bench_suites[s].name);
		if (!used)
			continue;
		command = suite_command(bench_suites[s].name);
		json_open(j, NULL, '{');
		json_string(j, "name", bench_suites[s].name);
		json_string(j, "title", bench_about(&bench_suites[s]));
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

void bench_write_json(FILE *f, const char *command, const struct machine *before,
		      const struct machine *after)
{
	static const char *const units[] = {"per second", "s",	   "percent", "ns",
					    "us",	  "bytes", "count"};
	struct cpu_time all = {0};
	struct json j;

	json_start(&j, f);
	json_open(&j, NULL, '{');
	json_string(&j, "version", CLI_VERSION);
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
	for (size_t i = 0; i < bench_n_configs; i++)
		cpu_time_sum(&all, &bench_configs[i].cpu_time);
	write_json_shares(&j, &all);
	json_close(&j, '}');
	json_integer(&j, "pairs", bench_opt.pairs);
	json_bool(&j, "quick", bench_opt.quick);
	write_json_benches(&j);
	json_open(&j, "results", '[');
	for (size_t i = 0; i < bench_n_configs; i++) {
		const struct config *c = &bench_configs[i];
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
		remark = bench_describe_descriptors(c);
		if (remark)
			json_string(&j, "remark", remark);
		free(remark);
		json_integer(&j, "failed", (long long)bench_count_failed(c));
		json_integer(&j, "not_served", (long long)bench_count_unserved(c));
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
			struct summary r = bench_summarize(c, m);
			bool noisy = false;

			json_open(&j, NULL, '{');
			json_string(&j, "name", c->metrics[m].key);
			json_string(&j, "title", c->metrics[m].title);
			json_string(&j, "unit", units[c->metrics[m].unit]);
			json_bool(&j, "more_is_better", c->metrics[m].unit == UNIT_RATE);
			for (size_t s = 0; s < c->sides->n; s++)
				write_json_key(&j, "", c->sides->keys[s], "_median", r.median[s]);
			for (size_t s = 0; s < bench_ours(c); s++) {
				/* With two sides there is one ratio, which needs no name. */
				const char *name = bench_ours(c) == 1 ? "" : c->sides->keys[s];
				const char *bar = *name ? "_" : "";

				write_json_key(&j, name, bar, "ratio_median", r.ratio[s].median);
				write_json_key(&j, name, bar, "ratio_min", r.ratio[s].min);
				write_json_key(&j, name, bar, "ratio_max", r.ratio[s].max);
				write_json_key(&j, name, bar, "ratio_low", r.ratio[s].in.low);
				write_json_key(&j, name, bar, "ratio_high", r.ratio[s].in.high);
				if (c->metrics[m].unit == UNIT_SECONDS)
					write_json_key(&j, name, bar, "difference_percent",
						       bench_difference(r.ratio[s].median));
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
