/* SPDX-License-Identifier: MIT */
/* The report as one page that needs no other file, no script and no network. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* So many columns find room with small type alone. */
#define WIDE_TABLE 11

static const char style[] =
	":root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--text:#1b1f24;--soft:#5b6570;"
	"--line:#dfe3e8;--below:#f6e9e6;--warn:#8a4b00;--warn-bg:#fff3df;--calm:#1d6b3f;"
	"--calm-bg:#e7f5ec;--c0:#66727f;--c1:#0b62d6;--c2:#c2570c;--c3:#0f8a6a;--c4:#a03cae;"
	"--c5:#8f7400;--c6:#b0264b;--c7:#4b6b00}\n"
	"@media(prefers-color-scheme:dark){:root{--bg:#15181c;--card:#1c2026;--text:#e6e9ed;"
	"--soft:#a3adb8;--line:#343b44;--below:#33221f;--warn:#ffcf8a;--warn-bg:#3a2a10;"
	"--calm:#8fdcae;--calm-bg:#16301f;--c0:#a7b3c0;--c1:#5aa9ff;--c2:#ff9d57;--c3:#4fd1a5;"
	"--c4:#d68be3;--c5:#e0c04c;--c6:#ff7a93;--c7:#b5d55a}}\n"
	"*{box-sizing:border-box}\n"
	"body{margin:0;background:var(--bg);color:var(--text);font:16px/1.5 system-ui,"
	"-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",sans-serif}\n"
	"main,header{max-width:1240px;margin:0 auto;padding:0 20px}\n"
	"header{padding-top:28px}\n"
	"h1{font-size:1.9rem;line-height:1.2;margin:0 0 .3em}\n"
	"h2{font-size:1.35rem;margin:2.2em 0 .3em;padding-top:.6em;border-top:1px solid "
	"var(--line)}\n"
	"h3{font-size:1.05rem;margin:1.6em 0 .3em}\n"
	"p{margin:.4em 0 .8em;max-width:78ch}\n"
	".soft,figcaption span,small{color:var(--soft)}\n"
	"nav{display:flex;flex-wrap:wrap;gap:4px 14px;margin:.8em 0;font-size:.92rem}\n"
	"a{color:var(--c1)}\n"
	".verdict{border-radius:8px;padding:10px 14px;margin:1em 0;max-width:none}\n"
	".verdict ul{margin:.3em 0 0;padding-left:1.2em}\n"
	".noisy{background:var(--warn-bg);color:var(--warn)}\n"
	".calm{background:var(--calm-bg);color:var(--calm)}\n"
	".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;"
	"margin:1em 0}\n"
	".tiles div{background:var(--card);border:1px solid var(--line);border-radius:8px;"
	"padding:10px 14px;font-size:.9rem;color:var(--soft)}\n"
	".tiles b{display:block;font-size:1.6rem;line-height:1.2;color:var(--text)}\n"
	".panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,350px),1fr));"
	"gap:14px;align-items:start}\n"
	".glance{columns:350px;column-gap:14px}"
	".glance>div{break-inside:avoid;padding-bottom:14px}\n"
	".panel{margin:0;background:var(--card);border:1px solid var(--line);border-radius:8px;"
	"padding:10px 12px}\n"
	".panel svg{display:block;width:100%;max-width:560px;height:auto;margin:0 auto}\n"
	"figcaption{font-weight:600;font-size:.92rem;margin-bottom:4px}\n"
	"figcaption span{font-weight:400;font-size:.82rem;float:right;margin-left:8px}\n"
	".legend{display:flex;flex-wrap:wrap;gap:2px 18px;font-size:.9rem;margin:.5em 0}\n"
	".legend span{display:inline-flex;align-items:center;gap:6px}\n"
	".key{flex:none}\n"
	"svg text{font:12.5px system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\","
	"sans-serif;fill:var(--text)}\n"
	"svg .tick{fill:var(--soft);font-size:11.5px}svg .value{font-weight:600}\n"
	"svg .right{text-anchor:end}svg .middle{text-anchor:middle}\n"
	".c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}"
	".c4{--c:var(--c4)}.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}\n"
	".mark{fill:var(--c);stroke:var(--c)}.line,.whisker,.likely{stroke:var(--c)}"
	"svg tspan{fill:var(--c)}\n"
	".grid{stroke:var(--line)}.axis{stroke:var(--soft)}\n"
	".one{stroke:var(--text);stroke-dasharray:2 3}.below{fill:var(--below)}\n"
	".line{fill:none;stroke-width:2}.whisker{fill:none;stroke-width:1.2;opacity:.75}\n"
	".likely{fill:none;stroke-width:5;opacity:.35}\n"
	".line.published{stroke-dasharray:5 4;stroke-width:1.6}\n"
	".mark.published *{fill:var(--card);stroke-width:1.6}\n"
	".scroll{overflow-x:auto;margin:.8em 0;border:1px solid var(--line);border-radius:8px;"
	"background:var(--card)}\n"
	"table{border-collapse:collapse;font-size:.86rem;width:100%;"
	"font-variant-numeric:tabular-nums}\n"
	"caption{text-align:left;padding:8px 12px 2px;font-weight:600}\n"
	"th,td{padding:4px 12px;text-align:left;vertical-align:baseline;border-bottom:1px solid "
	"var(--line)}\n"
	"th{font-weight:600;white-space:nowrap}tr:last-child td{border-bottom:0}\n"
	".n{text-align:right;white-space:nowrap}\n"
	"td small{display:block;font-size:.9em;white-space:pre}\n"
	".wide{font-size:.76rem}.wide th,.wide td{padding:4px 6px}.wide .key{width:16px}\n"
	".side{display:flex;flex-wrap:wrap;gap:0 14px;align-items:flex-start}"
	".side>*{flex:0 1 auto;max-width:100%}\n"
	"code{font:.86rem ui-monospace,Menlo,Consolas,monospace;background:var(--card);"
	"border:1px solid var(--line);border-radius:4px;padding:1px 5px;overflow-wrap:anywhere}\n"
	"pre{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px;"
	"padding:10px 12px;font:.8rem/1.5 ui-monospace,Menlo,Consolas,monospace}\n"
	"details{margin:.6em 0}summary{cursor:pointer;color:var(--soft)}\n"
	"footer{max-width:1240px;margin:3em auto 2em;padding:0 20px;color:var(--soft);"
	"font-size:.9rem}\n"
	"@media(max-width:520px){main,header,footer{padding-left:12px;padding-right:12px}"
	"th,td{padding:4px 8px}h1{font-size:1.5rem}}\n"
	"@media print{.panel,.scroll{break-inside:avoid}nav{display:none}}\n";

void html_text(FILE *f, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '&':
			fputs("&amp;", f);
			break;
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '"':
			fputs("&quot;", f);
			break;
		default:
			/* XML has no place for the other control characters. */
			if ((unsigned char)*text >= ' ' || *text == '\n' || *text == '\t')
				fputc(*text, f);
		}
	}
}

static void write_element(FILE *f, const char *name, const char *text)
{
	fprintf(f, "<%s>", name);
	html_text(f, text);
	fprintf(f, "</%s>\n", name);
}

static void write_cell(FILE *f, const struct cell *cell, const char *tag, bool number)
{
	fprintf(f, "<%s%s>", tag, number ? " class=\"n\"" : "");
	if (cell->colour >= 0) {
		chart_mark(f, cell->colour, false);
		fputc(' ', f);
	}
	html_text(f, cell->text);
	if (cell->small) {
		fputs("<small>", f);
		html_text(f, cell->small);
		fputs("</small>", f);
	}
	fprintf(f, "</%s>", tag);
}

static void write_table(FILE *f, const struct table *t)
{
	fprintf(f, "<div class=\"scroll\"><table%s>\n",
		t->columns >= WIDE_TABLE ? " class=\"wide\"" : "");
	if (t->caption)
		write_element(f, "caption", t->caption);
	for (size_t row = 0; row < table_rows(t); row++) {
		fputs(row ? "<tr>" : "<thead><tr>", f);
		for (size_t c = 0; c < t->columns; c++)
			write_cell(f, table_cell(t, row, c), row ? "td" : "th", c >= t->numbers);
		fputs(row ? "</tr>\n" : "</tr></thead><tbody>\n", f);
	}
	fputs("</tbody></table></div>\n", f);
}

static void write_legend(FILE *f, const struct panel *p)
{
	fputs("<div class=\"legend\">", f);
	for (size_t s = 0; s < p->n; s++) {
		fputs("<span>", f);
		chart_mark(f, p->series[s].colour, p->series[s].dashed);
		html_text(f, p->series[s].name);
		fputs(p->series[s].dashed ? ", published</span>\n" : "</span>\n", f);
	}
	fputs("</div>\n", f);
}

/* At a glance: the ratios of all configurations of a bench. */

static char *ratio_tip(const struct result *r, const struct result_metric *m, size_t s)
{
	const struct values *v = &m->ratios[s];

	return cli_format("%s, %s, to %s: median %.3g, %.3g to %.3g, %zu pairs", r->label, m->title,
			  r->side_names[s], v->median, v->min, v->max, v->n);
}

static void write_ratios(FILE *f, const struct results *r, const struct bench_results *b)
{
	struct panel p = {.title = cli_strdup(b->name), .ratios = true};

	p.rows = cli_alloc((b->n + 1) * sizeof(*p.rows));
	for (size_t i = b->first; i < b->first + b->n; i++) {
		const struct result *c = &r->list[i];
		const struct result_metric *m = c->metrics;

		if (!c->n_metrics || !m->ratios[0].n)
			continue;
		p.rows[p.n_rows] = c->label;
		for (size_t s = 0; s + 1 < c->n_sides; s++) {
			bool single = c->n_sides == 2;
			struct series *to = panel_series(&p, c->side_names[s],
							 single ? COLOUR_OURS : side_colour(c, s));

			series_add(to, (struct point){(double)p.n_rows, m->ratios[s].median,
						      m->ratios[s].min, m->ratios[s].max,
						      m->intervals[s], ratio_tip(c, m, s)});
		}
		p.n_rows++;
	}
	fputs("<div>\n", f);
	chart_panel(f, &p);
	if (p.n > 1) {
		fputs("<div class=\"legend\">Pollux compared with</div>\n", f);
		write_legend(f, &p);
	}
	fputs("</div>\n", f);
	panel_free(&p);
}

/* The values of a bench: lines where something is counted, rows for the rest. */

static char *value_tip(const struct result *r, const struct result_metric *m, size_t s)
{
	const struct values *v = &m->sides[s];
	char mid[64], range[64];

	results_format(mid, sizeof(mid), v->median, m->unit);
	results_format_range(range, sizeof(range), v, m->unit);
	return cli_format("%s, %s: median %s, %s, %zu runs", r->label, r->side_names[s], mid, range,
			  v->n);
}

static void add_values(struct panel *p, const struct result *r, const struct result_metric *m,
		       double x)
{
	for (size_t s = 0; s < r->n_sides; s++) {
		const struct values *v = &m->sides[s];

		series_add(panel_series(p, r->side_names[s], side_colour(r, s)),
			   (struct point){
				   x, v->median, v->min, v->max, {NAN, NAN}, value_tip(r, m, s)});
	}
}

static const struct result_metric *metric_like(const struct result *r,
					       const struct result_metric *m)
{
	for (size_t i = 0; i < r->n_metrics; i++)
		if (!strcmp(r->metrics[i].name, m->name) && !strcmp(r->metrics[i].unit, m->unit))
			return &r->metrics[i];
	return NULL;
}

static bool in_family(const struct result *r, const struct result *like)
{
	return isfinite(r->x) && isfinite(like->x) && !strcmp(r->family, like->family) &&
	       !strcmp(r->x_name, like->x_name) && r->n_sides == like->n_sides;
}

static size_t family_size(const struct results *r, const struct bench_results *b,
			  const struct result *like, const struct result_metric *m)
{
	size_t n = 0;

	for (size_t i = b->first; i < b->first + b->n; i++)
		n += in_family(&r->list[i], like) && metric_like(&r->list[i], m);
	return n;
}

static void write_family(FILE *f, const struct results *r, const struct bench_results *b,
			 const struct result *first, const struct result_metric *m)
{
	char *title = cli_format("%s%s%s", first->family, *first->family ? ": " : "", m->title);
	struct panel p = {.title = title, .x_name = first->x_name, .unit = m->unit};

	for (size_t i = b->first; i < b->first + b->n; i++) {
		const struct result *c = &r->list[i];
		const struct result_metric *own = metric_like(c, m);

		if (own && in_family(c, first))
			add_values(&p, c, own, c->x);
	}
	chart_panel(f, &p);
	panel_free(&p);
}

static void write_rest(FILE *f, const struct results *r, const struct bench_results *b,
		       const struct result_metric *m)
{
	struct panel p = {.title = cli_strdup(m->title), .unit = m->unit};

	p.rows = cli_alloc((b->n + 1) * sizeof(*p.rows));
	for (size_t i = b->first; i < b->first + b->n; i++) {
		const struct result *c = &r->list[i];
		const struct result_metric *own = metric_like(c, m);

		if (!own || family_size(r, b, c, m) > 1)
			continue;
		p.rows[p.n_rows] = c->label;
		add_values(&p, c, own, (double)p.n_rows++);
	}
	chart_panel(f, &p);
	panel_free(&p);
}

/* Whether this is the first result of the bench that has the metric, and of its family. */
static bool first_of(const struct results *r, const struct bench_results *b, size_t index,
		     const struct result_metric *m, bool of_family)
{
	for (size_t i = b->first; i < index; i++)
		if (metric_like(&r->list[i], m) &&
		    (!of_family || in_family(&r->list[i], &r->list[index])))
			return false;
	return true;
}

static void write_values(FILE *f, const struct results *r, const struct bench_results *b)
{
	fputs("<div class=\"panels\">\n", f);
	for (size_t i = b->first; i < b->first + b->n; i++) {
		const struct result *c = &r->list[i];

		for (size_t m = 0; m < c->n_metrics; m++)
			if (family_size(r, b, c, &c->metrics[m]) > 1 &&
			    first_of(r, b, i, &c->metrics[m], true))
				write_family(f, r, b, c, &c->metrics[m]);
	}
	for (size_t i = b->first; i < b->first + b->n; i++) {
		const struct result *c = &r->list[i];

		for (size_t m = 0; m < c->n_metrics; m++)
			if (first_of(r, b, i, &c->metrics[m], false))
				write_rest(f, r, b, &c->metrics[m]);
	}
	fputs("</div>\n", f);
}

static void write_bench_legend(FILE *f, const struct results *r, const struct bench_results *b)
{
	struct panel all = {0};

	for (size_t i = b->first; i < b->first + b->n; i++)
		for (size_t s = 0; s < r->list[i].n_sides; s++)
			panel_series(&all, r->list[i].side_names[s], side_colour(&r->list[i], s));
	if (all.n)
		write_legend(f, &all);
	panel_free(&all);
}

static void write_again(FILE *f, const char *command)
{
	if (!*command)
		return;
	fputs("<p>Measured again by ", f);
	write_element(f, "code", command);
	fputs("</p>\n", f);
}

static void write_commands(FILE *f, const struct results *r, const struct bench_results *b)
{
	bool measured = false;

	for (size_t i = b->first; i < b->first + b->n; i++)
		measured |= !r->list[i].skipped;
	write_again(f, b->command);
	if (!measured)
		return;
	fputs("<details><summary>The program of each side</summary><pre>", f);
	for (size_t i = b->first; i < b->first + b->n; i++) {
		const struct result *c = &r->list[i];

		if (c->skipped)
			continue;
		html_text(f, c->label);
		fputc('\n', f);
		for (size_t s = 0; s < c->n_sides; s++) {
			fputs("  ", f);
			html_text(f, c->commands[s] ? c->commands[s] : "");
			fputc('\n', f);
		}
	}
	fputs("</pre></details>\n", f);
}

static void write_bench(FILE *f, const struct results *r, const struct bench_results *b)
{
	struct table t;

	fputs("<section><h2 id=\"", f);
	html_text(f, b->name);
	fputs("\">", f);
	html_text(f, b->name);
	fputs("</h2>\n", f);
	write_element(f, "p", b->title);
	write_bench_legend(f, r, b);
	write_values(f, r, b);
	for (size_t from = b->first, to; from < b->first + b->n; from = to) {
		to = table_run(r, from, b->first + b->n);
		table_of_results(&t, r, from, to);
		write_table(f, &t);
		table_free(&t);
	}
	write_commands(f, r, b);
	fputs("</section>\n", f);
}

static void write_seed(FILE *f, const struct results *r, size_t i)
{
	struct table tables[SEED_PARTS];
	struct panel panels[SEED_PARTS];
	size_t n;

	write_element(f, "h3", seed_get(i)->title);
	write_element(f, "p", seed_get(i)->text);
	n = seed_panels(panels, i, r);
	if (n)
		fputs("<div class=\"panels\">\n", f);
	for (size_t k = 0; k < n; k++) {
		fputs("<div>\n", f);
		chart_panel(f, &panels[k]);
		write_legend(f, &panels[k]);
		fputs("</div>\n", f);
		panel_free(&panels[k]);
	}
	if (n)
		fputs("</div>\n", f);
	fputs("<div class=\"side\">\n", f);
	n = seed_tables(tables, i, r);
	for (size_t k = 0; k < n; k++) {
		write_table(f, &tables[k]);
		table_free(&tables[k]);
	}
	fputs("</div>\n", f);
	for (size_t k = 0; k < r->n_benches; k++)
		if (seed_uses(i, r->benches[k].name))
			write_again(f, r->benches[k].command);
}

static void write_missing_seed(FILE *f, size_t i)
{
	write_element(f, "h3", seed_get(i)->title);
	write_element(f, "p", "Not among what was measured.");
}

static void write_reason(void *arg, const char *text)
{
	write_element(arg, "li", text);
}

static void write_verdict(FILE *f, const struct results *r)
{
	if (!results_disturbances(r, NULL, NULL)) {
		fputs("<p class=\"verdict calm\">By the criteria below this run was not "
		      "noisy.</p>\n",
		      f);
		return;
	}
	fputs("<div class=\"verdict noisy\"><b>This run was noisy.</b> Repeat it on a calmer "
	      "machine before you rely on a figure.<ul>\n",
	      f);
	results_disturbances(r, write_reason, f);
	fputs("</ul></div>\n", f);
}

static void write_tile(FILE *f, size_t n, const char *text)
{
	fprintf(f, "<div><b>%zu</b>%s</div>\n", n, text);
}

static void write_head(FILE *f, const struct results *r)
{
	struct tally t = report_tally(r);

	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>"
	      "Pollux beside the kernel, ",
	      f);
	html_text(f, r->start);
	fprintf(f, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<header>\n", style);
	fputs("<h1>Pollux beside the kernel</h1>\n<p class=\"soft\">", f);
	html_text(f, r->start);
	fputs("; ", f);
	html_text(f, r->cpu);
	fprintf(f, ", %.0f CPUs; ", r->cpus);
	html_text(f, r->kernel);
	fprintf(f, "; %.0f pairs of runs%s</p>\n<nav>", r->pairs, r->quick ? ", quick" : "");
	fputs("<a href=\"#glance\">at a glance</a>\n<a href=\"#published\">published figures</a>\n",
	      f);
	for (size_t i = 0; i < r->n_benches; i++) {
		fputs("<a href=\"#", f);
		html_text(f, r->benches[i].name);
		fputs("\">", f);
		html_text(f, r->benches[i].name);
		fputs("</a>\n", f);
	}
	fputs("<a href=\"#method\">method</a>\n"
	      "<a href=\"#machine\">machine</a></nav>\n",
	      f);
	write_verdict(f, r);
	fputs("<div class=\"tiles\">\n", f);
	write_tile(f, t.comparisons, "comparisons");
	write_tile(f, t.better, "better in every pair");
	write_tile(f, t.worse, "worse in every pair");
	write_tile(f, t.comparisons - t.better - t.worse, "sometimes better, sometimes worse");
	write_tile(f, t.noisy, "noisy");
	fputs("</div>\n</header>\n<main>\n", f);
}

void page_write(FILE *f, const struct results *r)
{
	struct table t;

	write_head(f, r);
	fputs("<section><h2 id=\"glance\">At a glance</h2>\n<p>How much better Pollux is: the "
	      "median "
	      "of the ratios of all pairs, its 95 % interval as a broad line, the smallest and the "
	      "largest ratio as a thin one. To the right of the line at 1 Pollux is better, on the "
	      "shaded side worse. The axes differ from panel to panel.</p>\n<div "
	      "class=\"glance\">\n",
	      f);
	for (size_t i = 0; i < r->n_benches; i++)
		write_ratios(f, r, &r->benches[i]);
	fputs("</div>\n", f);
	write_again(f, r->command);
	fputs("</section>\n", f);
	fputs("<section><h2 id=\"published\">The published experiments again</h2>\n"
	      "<p>What the discussions that this project began with reported, beside today's "
	      "figures on this machine. Other machines, other kernels: compare the factors, not "
	      "the rates. ",
	      f);
	html_text(f, report_factors);
	fputs("</p>\n", f);
	for (size_t i = 0; i < seed_count(); i++) {
		if (seed_repeated(i, r))
			write_seed(f, r, i);
		else
			write_missing_seed(f, i);
	}
	fputs("</section>\n", f);
	for (size_t i = 0; i < r->n_benches; i++)
		write_bench(f, r, &r->benches[i]);
	fputs("<section><h2 id=\"method\">How it was measured</h2>\n<ul>\n", f);
	for (size_t i = 0; report_method[i]; i++)
		write_element(f, "li", report_method[i]);
	fputs("</ul></section>\n<section><h2 id=\"machine\">Machine</h2>\n", f);
	table_of_machine(&t, r);
	write_table(f, &t);
	table_free(&t);
	fputs("</section>\n</main>\n<footer>Written by pollux ", f);
	html_text(f, r->version);
	fputs("; the raw samples are in report.json beside this page.</footer>\n</body>\n</html>\n",
	      f);
}
