/* SPDX-License-Identifier: MIT */
/*
 * The report: results (results.h) become tables (report_table.c) and charts (report_chart.c),
 * of which report_page.c makes the HTML page and report_markdown.c the text.
 */
#ifndef POLLUX_REPORT_H
#define POLLUX_REPORT_H

#include "results.h"

/* Tables. */

struct cell {
	char *text;
	/* Less important: a range after a median. */
	char *small;
	/* Of the colour of a side, or -1. */
	int colour;
};

struct table {
	size_t columns;
	/* Row after row; the first is the head. */
	size_t n;
	struct cell *cells;
	/* NULL if the text around it says it. */
	char *caption;
	/* The columns from this one on hold numbers. */
	size_t numbers;
};

/* The next cell of the table; both texts are freed with it. */
void table_add(struct table *t, char *text, char *small);
size_t table_rows(const struct table *t);
struct cell *table_cell(const struct table *t, size_t row, size_t column);
void table_free(struct table *t);

/* What identifies a side in charts and tables: the same everywhere. */
enum { COLOUR_KERNEL, COLOUR_OURS, COLOUR_OTHERS, N_COLOURS = 8 };
int side_colour(const struct result *r, size_t side);

/* Results from..to (not included) have the same sides. */
size_t table_run(const struct results *r, size_t from, size_t to);
void table_of_results(struct table *t, const struct results *r, size_t from, size_t to);
void table_of_machine(struct table *t, const struct results *r);

/* Charts. */

struct point {
	double x, mid, low, high;
	/* Where the median would lie if it were measured again; NAN if that is not shown. */
	struct interval in;
	char *tip;
};

struct series {
	const char *name;
	int colour;
	/* Somebody else's figures, from another machine. */
	bool dashed;
	size_t n;
	struct point *points;
};

/* The points of some series over a count, or one row for each name with a point of each series. */
struct panel {
	/* Freed with it. */
	char *title;
	const char *x_name;
	const char *unit;
	size_t n;
	struct series *series;
	/* For rows: their names; `x` of a point is the index. NULL for lines. */
	size_t n_rows;
	const char **rows;
	/* Ratios: a line at 1, and `low` and `high` are the outer range. */
	bool ratios;
};

struct series *panel_series(struct panel *p, const char *name, int colour);
void series_add(struct series *s, struct point point);
void panel_free(struct panel *p);
void chart_panel(FILE *f, const struct panel *p);
/* The mark of a colour alone, for a legend. */
void chart_mark(FILE *f, int colour, bool dashed);

/* Published figures. */

struct seed {
	const char *title;
	/* Who measured what, where and when. */
	const char *text;
};

#define SEED_PARTS 16

size_t seed_count(void);
const struct seed *seed_get(size_t i);
/* What was published, and then what this run has beside it; at most SEED_PARTS. */
size_t seed_tables(struct table *list, size_t i, const struct results *r);
size_t seed_panels(struct panel *list, size_t i, const struct results *r);
/* Whether it shows results of a bench. */
bool seed_uses(size_t i, const char *bench);
/* Whether there is anything to put beside it. */
bool seed_repeated(size_t i, const struct results *r);

/* Escapes what HTML would read. */
void html_text(FILE *f, const char *text);

void page_write(FILE *f, const struct results *r);
void markdown_write(FILE *f, const struct results *r);

/* The two of them and what they say in common. */
extern const char *const report_method[];
/* About the tables with published figures. */
extern const char report_factors[];
struct tally {
	size_t comparisons, better, worse, noisy;
};
struct tally report_tally(const struct results *r);

#endif
