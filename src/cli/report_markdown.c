/* SPDX-License-Identifier: MIT */
/* The report as a text, for a mail or a repository. */
#include "report.h"

#include <string.h>

/*
 * Text of the results, which stays text: no mark-up, no HTML, no other line. A vertical bar would
 * end a cell.
 */
static void plain_text(FILE *f, const char *text, const char *for_newline)
{
	for (; *text; text++) {
		if (strchr("\\`*_~[]<>&|", *text))
			fputc('\\', f);
		if (*text == '\n')
			fputs(for_newline, f);
		else
			fputc((unsigned char)*text < ' ' ? ' ' : *text, f);
	}
}

static void cell_text(FILE *f, const char *text)
{
	plain_text(f, text, "; ");
}

/* Between marks of which the text has none as long; nothing in it means anything then. */
static void code_text(FILE *f, const char *text)
{
	size_t longest = 0, n = 0;

	for (const char *p = text; *p; p++) {
		n = *p == '`' ? n + 1 : 0;
		if (n > longest)
			longest = n;
	}
	for (n = 0; n <= longest; n++)
		fputc('`', f);
	if (longest)
		fputc(' ', f);
	for (const char *p = text; *p; p++)
		fputc((unsigned char)*p < ' ' ? ' ' : *p, f);
	if (longest)
		fputc(' ', f);
	for (n = 0; n <= longest; n++)
		fputc('`', f);
}

/* A line of one's own. */
static void line_text(FILE *f, const char *before, const char *text)
{
	fputs(before, f);
	plain_text(f, text, " ");
	fputs("\n\n", f);
}

static void write_table(FILE *f, const struct table *t)
{
	if (t->caption) {
		plain_text(f, t->caption, " ");
		fputs(":\n\n", f);
	}
	for (size_t row = 0; row < table_rows(t); row++) {
		for (size_t c = 0; c < t->columns; c++) {
			const struct cell *cell = table_cell(t, row, c);

			fputs("| ", f);
			cell_text(f, cell->text);
			if (cell->small) {
				fputs(" (", f);
				cell_text(f, cell->small);
				fputc(')', f);
			}
			fputc(' ', f);
		}
		fputs("|\n", f);
		for (size_t c = 0; !row && c < t->columns; c++)
			fputs(c < t->numbers ? "|---" : "|---:", f);
		if (!row)
			fputs("|\n", f);
	}
	fputc('\n', f);
}

static void write_reason(void *arg, const char *text)
{
	FILE *f = arg;

	fputs("- ", f);
	plain_text(f, text, " ");
	fputc('\n', f);
}

void markdown_write(FILE *f, const struct results *r)
{
	struct tally tally = report_tally(r);
	struct table t, parts[SEED_PARTS];

	line_text(f, "# Pollux beside the kernel, ", r->start);
	if (results_disturbances(r, NULL, NULL)) {
		fputs("**This run was noisy.** Repeat it on a calmer machine:\n\n", f);
		results_disturbances(r, write_reason, f);
		fputc('\n', f);
	}
	fprintf(f,
		"Of %zu comparisons Pollux was better in every pair in %zu, worse in every pair in "
		"%zu; %zu are noisy.\n\n",
		tally.comparisons, tally.better, tally.worse, tally.noisy);
	table_of_machine(&t, r);
	write_table(f, &t);
	table_free(&t);
	fprintf(f, "## The published experiments again\n\n%s\n\n", report_factors);
	for (size_t i = 0; i < seed_count(); i++) {
		size_t n;

		if (!seed_repeated(i, r)) {
			fprintf(f, "### %s\n\nNot among what was measured.\n\n",
				seed_get(i)->title);
			continue;
		}
		n = seed_tables(parts, i, r);
		fprintf(f, "### %s\n\n%s\n\n", seed_get(i)->title, seed_get(i)->text);
		for (size_t k = 0; k < n; k++) {
			write_table(f, &parts[k]);
			table_free(&parts[k]);
		}
	}
	for (size_t i = 0; i < r->n_benches; i++) {
		const struct bench_results *b = &r->benches[i];

		line_text(f, "## ", b->name);
		line_text(f, "", b->title);
		for (size_t from = b->first, to; from < b->first + b->n; from = to) {
			to = table_run(r, from, b->first + b->n);
			table_of_results(&t, r, from, to);
			write_table(f, &t);
			table_free(&t);
		}
		if (*b->command) {
			fputs("Measured again by ", f);
			code_text(f, b->command);
			fputs(".\n\n", f);
		}
	}
	fputs("## How it was measured\n\n", f);
	for (size_t i = 0; report_method[i]; i++)
		fprintf(f, "- %s\n", report_method[i]);
}
