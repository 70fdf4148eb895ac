/* SPDX-License-Identifier: MIT */
/* Charts as SVG within the page: colours are classes, so that the page may be light or dark. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Narrow, so that the text stays readable when the page is. */
#define WIDTH 380.0
#define LEFT 64.0
#define RIGHT 16.0
#define TOP 10.0
#define PLOT_HEIGHT 200.0
#define AXIS_HEIGHT 40.0
/* Of a row: its name, then a lane for each series. */
#define NAME_HEIGHT 17.0
#define LANE_HEIGHT 11.0
#define ROW_GAP 12.0
/* The width of a letter, on average and rather too wide. */
#define LETTER 6.8
/* Values further apart than this need a logarithmic axis. */
#define LOG_FROM 5.0
/* Further than this and the ticks are 1, 2, 5, 10 and so on. */
#define TICKS_FROM 4.0
#define MAX_TICKS 12

struct axis {
	double low, high;
	bool log;
	/* Where `low` and `high` are in the drawing. */
	double from, to;
	size_t n;
	double ticks[MAX_TICKS];
};

struct range {
	double low, high;
};

static void widen(struct range *r, double v)
{
	if (!isfinite(v))
		return;
	r->low = fmin(r->low, v);
	r->high = fmax(r->high, v);
}

static struct range values_of(const struct panel *p)
{
	struct range r = {INFINITY, -INFINITY};

	for (size_t s = 0; s < p->n; s++) {
		for (size_t i = 0; i < p->series[s].n; i++) {
			widen(&r, p->series[s].points[i].mid);
			widen(&r, p->series[s].points[i].low);
			widen(&r, p->series[s].points[i].high);
		}
	}
	return r;
}

static double place(const struct axis *a, double v)
{
	double t = a->log ? log(v / a->low) / log(a->high / a->low)
			  : (v - a->low) / (a->high - a->low);

	return a->from + t * (a->to - a->from);
}

static void add_tick(struct axis *a, double v)
{
	if (a->n < MAX_TICKS && v >= a->low * (1 - 1e-9) && v <= a->high * (1 + 1e-9))
		a->ticks[a->n++] = v;
}

/* 1, 2 or 5 times a power of ten, not less than v, and not more. */
static double round_step(double v)
{
	double ten = pow(10, floor(log10(v))), part = v / ten - 1e-9;

	return part <= 1 ? ten : part <= 2 ? 2 * ten : part <= 5 ? 5 * ten : 10 * ten;
}

static double round_down(double v)
{
	double ten = pow(10, floor(log10(v))), part = v / ten + 1e-9;

	return part < 2 ? ten : part < 5 ? 2 * ten : part < 10 ? 5 * ten : 10 * ten;
}

/* Ticks; an axis whose ends lie far apart grows to end with one, so that no value is beyond. */
static void make_ticks(struct axis *a, bool grow_down)
{
	double decades = a->log ? log10(a->high / a->low) : 0, step;

	if (decades > 2) {
		int every = decades > 12 ? 3 : decades > 6 ? 2 : 1;
		int first = (int)floor(log10(a->low) + 1e-9);
		int last = (int)ceil(log10(a->high) - 1e-9);

		last += (every - (last - first) % every) % every;
		a->low = grow_down ? pow(10, first) : a->low;
		a->high = pow(10, last);
		for (int e = first; e <= last; e += every)
			add_tick(a, pow(10, e));
	} else if (decades >= log10(TICKS_FROM)) {
		static const double parts[] = {1, 2, 5};
		int first = (int)floor(log10(a->low)), last = (int)ceil(log10(a->high));

		a->low = grow_down ? round_down(a->low) : a->low;
		a->high = round_step(a->high);
		for (int e = first; e <= last; e++)
			for (size_t i = 0; i < 3; i++)
				add_tick(a, parts[i] * pow(10, e));
	} else {
		step = round_step((a->high - a->low) / 5);
		if (!a->log)
			a->high = ceil(a->high / step - 1e-9) * step;
		for (double v = ceil(a->low / step) * step; v <= a->high * (1 + 1e-9); v += step)
			add_tick(a, v);
	}
}

/* Logarithmic where a linear axis would flatten what is small; a linear one starts at 0. */
static void make_axis(struct axis *a, struct range r, bool ratios)
{
	if (ratios) {
		r.low = fmin(r.low, 0.9);
		r.high = fmax(r.high, 1.1);
	}
	a->log = ratios || (r.low > 0 && r.high / r.low > LOG_FROM);
	if (a->log) {
		/* Ratios that lie close together have no tick of their own at the ends. */
		double pad = r.high / r.low < TICKS_FROM ? pow(r.high / r.low, 0.06) : 1;

		a->low = r.low / pad;
		a->high = r.high * pad;
	} else {
		a->low = fmin(0, r.low);
		a->high = r.high > 0 ? r.high : 1;
	}
	make_ticks(a, !ratios);
}

static void draw_text(FILE *f, double x, double y, const char *class, const char *text)
{
	fprintf(f, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
	html_text(f, text);
	fputs("</text>\n", f);
}

static void draw_line(FILE *f, const char *class, double x1, double y1, double x2, double y2)
{
	fprintf(f, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class,
		x1, y1, x2, y2);
}

/* The shape tells what the colour tells, for eyes and printers that see no colours. */
static void draw_mark(FILE *f, double x, double y, int colour, bool dashed, const char *tip)
{
	const double r = 4.2;

	fprintf(f, "<g class=\"mark c%d%s\">", colour, dashed ? " published" : "");
	if (tip) {
		fputs("<title>", f);
		html_text(f, tip);
		fputs("</title>", f);
	}
	switch (colour % 5) {
	case COLOUR_KERNEL:
		fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
			x - r + 0.5, y - r + 0.5, 2 * r - 1, 2 * r - 1);
		break;
	case COLOUR_OURS:
		fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", x, y, r);
		break;
	case COLOUR_OTHERS:
		fprintf(f, "<path d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"/>", x, y - r - 0.5, r + 0.6,
			2 * r - 0.2, -2 * r - 1.2);
		break;
	case COLOUR_OTHERS + 1:
		fprintf(f, "<path d=\"M%.1f %.1fl%.1f %.1fl%.1f %.1fl%.1f %.1fz\"/>", x, y - r - 1,
			r + 1, r + 1, -r - 1, r + 1, -r - 1, -r - 1);
		break;
	default:
		fprintf(f, "<path d=\"M%.1f %.1fl%.1f %.1fh%.1fz\"/>", x, y + r + 0.5, r + 0.6,
			-2 * r + 0.2, -2 * r - 1.2);
	}
	fputs("</g>\n", f);
}

void chart_mark(FILE *f, int colour, bool dashed)
{
	fputs("<svg class=\"key\" viewBox=\"0 0 28 14\" width=\"28\" height=\"14\" "
	      "aria-hidden=\"true\">",
	      f);
	fprintf(f, "<line class=\"line c%d%s\" x1=\"1\" y1=\"7\" x2=\"27\" y2=\"7\"/>", colour,
		dashed ? " published" : "");
	draw_mark(f, 14, 7, colour, dashed, NULL);
	fputs("</svg>", f);
}

static void format_count(char *text, size_t size, double v)
{
	if (v >= 1e6)
		snprintf(text, size, "%.4gM", v / 1e6);
	else if (v >= 1e4)
		snprintf(text, size, "%.4gk", v / 1e3);
	else
		snprintf(text, size, "%.10g", v);
}

static void format_tick(char *text, size_t size, double v, const struct panel *p)
{
	if (p->ratios)
		snprintf(text, size, "%.10g\u00d7", v);
	else if (v == 0)
		snprintf(text, size, "0");
	else if (!strcmp(p->unit, "ns") && v >= 1000)
		results_format(text, size, v / 1000, "us");
	else
		results_format(text, size, v, p->unit);
}

/* "1.00 M/s" is an odd thing to read on an axis. */
static void shorten(char *text)
{
	char *dot = strchr(text, '.'), *end;

	if (!dot)
		return;
	end = dot + 1 + strspn(dot + 1, "0123456789");
	for (char *last = end; last > dot && (last[-1] == '0' || last[-1] == '.');) {
		last--;
		memmove(last, last + 1, strlen(last));
		if (last == dot)
			break;
	}
}

static void begin(FILE *f, const struct panel *p, double height, const char *scales)
{
	fputs("<figure class=\"panel\"><figcaption>", f);
	html_text(f, p->title);
	fprintf(f, " <span>%s</span></figcaption>\n", scales);
	fprintf(f, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", WIDTH, height);
	html_text(f, p->title);
	fputs("\">\n", f);
}

static void end(FILE *f)
{
	fputs("</svg></figure>\n", f);
}

/* The counts that there are, as ticks. */
static void count_ticks(struct axis *a, const struct panel *p)
{
	a->n = 0;
	for (size_t s = 0; s < p->n; s++) {
		for (size_t i = 0; i < p->series[s].n; i++) {
			double x = p->series[s].points[i].x;
			bool known = false;

			for (size_t k = 0; k < a->n; k++)
				known |= a->ticks[k] == x;
			if (!known && a->n < MAX_TICKS)
				a->ticks[a->n++] = x;
		}
	}
}

static void make_count_axis(struct axis *a, const struct panel *p)
{
	struct range r = {INFINITY, -INFINITY};
	double pad;

	for (size_t s = 0; s < p->n; s++)
		for (size_t i = 0; i < p->series[s].n; i++)
			widen(&r, p->series[s].points[i].x);
	/* Numbers of threads and of watches double and multiply. */
	a->log = true;
	pad = r.high > r.low ? pow(r.high / r.low, 0.06) : 2;
	a->low = r.low / pad;
	a->high = r.high * pad;
	count_ticks(a, p);
}

static void draw_series(FILE *f, const struct series *s, const struct axis *ax,
			const struct axis *ay, double shift)
{
	const char *published = s->dashed ? " published" : "";

	fprintf(f, "<polyline class=\"line c%d%s\" points=\"", s->colour, published);
	for (size_t i = 0; i < s->n; i++)
		fprintf(f, "%.1f,%.1f ", place(ax, s->points[i].x) + shift,
			place(ay, s->points[i].mid));
	fputs("\"/>\n", f);
	for (size_t i = 0; i < s->n; i++) {
		const struct point *pt = &s->points[i];
		double x = place(ax, pt->x) + shift;

		if (pt->high > pt->low) {
			double y1 = place(ay, pt->low), y2 = place(ay, pt->high);

			fprintf(f,
				"<path class=\"whisker c%d\" d=\"M%.1f %.1fV%.1fM%.1f %.1fh6M%.1f "
				"%.1fh6\"/>\n",
				s->colour, x, y1, y2, x - 3, y1, x - 3, y2);
		}
		draw_mark(f, x, place(ay, pt->mid), s->colour, s->dashed, pt->tip);
	}
}

static void chart_lines(FILE *f, const struct panel *p)
{
	struct axis ax = {.from = LEFT, .to = WIDTH - RIGHT};
	struct axis ay = {.from = TOP + PLOT_HEIGHT, .to = TOP};
	double last = -100;
	char text[64];

	make_count_axis(&ax, p);
	make_axis(&ay, values_of(p), p->ratios);
	begin(f, p, TOP + PLOT_HEIGHT + AXIS_HEIGHT,
	      ay.log ? "log scales" : "from 0; log scale across");
	for (size_t i = 0; i < ay.n; i++) {
		double y = place(&ay, ay.ticks[i]);

		draw_line(f, "grid", LEFT, y, WIDTH - RIGHT, y);
		format_tick(text, sizeof(text), ay.ticks[i], p);
		shorten(text);
		draw_text(f, LEFT - 7, y + 4, "tick right", text);
	}
	draw_line(f, "axis", LEFT, ay.from, WIDTH - RIGHT, ay.from);
	for (size_t i = 0; i < ax.n; i++) {
		double x = place(&ax, ax.ticks[i]);

		draw_line(f, "axis", x, ay.from, x, ay.from + 4);
		format_count(text, sizeof(text), ax.ticks[i]);
		/* Counts that lie close together share a label. */
		if (fabs(x - last) < 6.5 * (double)strlen(text) + 4)
			continue;
		last = x;
		draw_text(f, x, ay.from + 17, "tick middle", text);
	}
	draw_text(f, (LEFT + WIDTH - RIGHT) / 2, ay.from + 34, "tick middle", p->x_name);
	for (size_t s = 0; s < p->n; s++)
		draw_series(f, &p->series[s], &ax, &ay, 3.0 * ((double)s - (double)(p->n - 1) / 2));
	end(f);
}

static const struct point *point_of_row(const struct series *s, size_t row)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->points[i].x == (double)row)
			return &s->points[i];
	return NULL;
}

static void format_value(char *text, size_t size, const struct panel *p, double v)
{
	if (p->ratios)
		snprintf(text, size, "%.*f\u00d7", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v);
	else
		results_format(text, size, v, p->unit);
}

/* Whether the name and the values of some row are too long for one line. */
static bool two_lines(const struct panel *p)
{
	char text[64];

	for (size_t row = 0; row < p->n_rows; row++) {
		size_t length = strlen(p->rows[row]);

		for (size_t s = 0; s < p->n; s++) {
			const struct point *pt = point_of_row(&p->series[s], row);

			if (!pt)
				continue;
			format_value(text, sizeof(text), p, pt->mid);
			length += strlen(text) + 1;
		}
		if ((double)length * LETTER > WIDTH)
			return true;
	}
	return false;
}

static void draw_row_values(FILE *f, const struct panel *p, size_t row, double y)
{
	const char *gap = "";
	char text[64];

	fprintf(f, "<text class=\"value right\" x=\"%.1f\" y=\"%.1f\">", WIDTH - 4, y);
	for (size_t s = 0; s < p->n; s++) {
		const struct point *pt = point_of_row(&p->series[s], row);

		if (!pt)
			continue;
		format_value(text, sizeof(text), p, pt->mid);
		/* A gap, since an offset would count for where the text ends. */
		fprintf(f, "%s<tspan class=\"c%d\">", gap, p->series[s].colour);
		gap = "\u2002";
		html_text(f, text);
		fputs("</tspan>", f);
	}
	fputs("</text>\n", f);
}

static void draw_lane(FILE *f, const struct series *s, const struct point *pt, const struct axis *a,
		      double y)
{
	if (pt->high > pt->low) {
		double x1 = place(a, pt->low), x2 = place(a, pt->high);

		fprintf(f,
			"<path class=\"whisker c%d\" d=\"M%.1f %.1fH%.1fM%.1f %.1fv6M%.1f "
			"%.1fv6\"/>\n",
			s->colour, x1, y, x2, x1, y - 3, x2, y - 3);
	}
	if (isfinite(pt->in.low) && pt->in.high > pt->in.low)
		fprintf(f, "<path class=\"likely c%d\" d=\"M%.1f %.1fH%.1f\"/>\n", s->colour,
			place(a, pt->in.low), y, place(a, pt->in.high));
	draw_mark(f, place(a, pt->mid), y, s->colour, s->dashed, pt->tip);
}

static double row_height(const struct panel *p, size_t row, double head)
{
	double height = head + ROW_GAP;

	for (size_t s = 0; s < p->n; s++)
		if (point_of_row(&p->series[s], row))
			height += LANE_HEIGHT;
	return height;
}

/* Beside the lanes alone, so that it runs through no name and no value. */
static void draw_row_lines(FILE *f, const struct panel *p, double x, double head, const char *class)
{
	double y = TOP;

	for (size_t row = 0; row < p->n_rows; row++) {
		double next = y + row_height(p, row, head);

		draw_line(f, class, x, y + head - 2, x, next - 1);
		y = next;
	}
}

static void chart_rows(FILE *f, const struct panel *p)
{
	struct axis a = {.from = 12, .to = WIDTH - 12};
	double last = -100, bottom = TOP, y = TOP;
	double head = two_lines(p) ? 2 * NAME_HEIGHT - 2 : NAME_HEIGHT;
	char text[64];

	for (size_t row = 0; row < p->n_rows; row++)
		bottom += row_height(p, row, head);
	make_axis(&a, values_of(p), p->ratios);
	begin(f, p, bottom + 24, a.log ? "log scale" : "from 0");
	if (p->ratios && place(&a, 1) > a.from)
		fprintf(f,
			"<rect class=\"below\" x=\"0\" y=\"%.1f\" width=\"%.1f\" "
			"height=\"%.1f\"/>\n",
			TOP, place(&a, 1), bottom - TOP);
	for (size_t i = 0; i < a.n; i++) {
		double x = place(&a, a.ticks[i]);

		draw_row_lines(f, p, x, head, p->ratios && a.ticks[i] == 1 ? "one" : "grid");
		format_tick(text, sizeof(text), a.ticks[i], p);
		shorten(text);
		x = fmin(fmax(x, 3.4 * (double)strlen(text)), WIDTH - 3.4 * (double)strlen(text));
		if (x - last < 6.5 * (double)strlen(text) + 4)
			continue;
		last = x;
		draw_text(f, x, bottom + 15, "tick middle", text);
	}
	for (size_t row = 0; row < p->n_rows; row++) {
		double lane = y + head - LANE_HEIGHT * 0.55;

		draw_text(f, 4, y + 12, "name", p->rows[row]);
		draw_row_values(f, p, row, y + head - 5);
		for (size_t s = 0; s < p->n; s++) {
			const struct point *pt = point_of_row(&p->series[s], row);

			if (pt)
				draw_lane(f, &p->series[s], pt, &a, lane += LANE_HEIGHT);
		}
		y += row_height(p, row, head);
	}
	end(f);
}

void chart_panel(FILE *f, const struct panel *p)
{
	struct range r = values_of(p);

	if (!(r.high >= r.low))
		return;
	if (p->rows)
		chart_rows(f, p);
	else
		chart_lines(f, p);
}

struct series *panel_series(struct panel *p, const char *name, int colour)
{
	struct series *s;

	for (size_t i = 0; i < p->n; i++)
		if (!strcmp(p->series[i].name, name) && p->series[i].colour == colour)
			return &p->series[i];
	p->series = realloc(p->series, (p->n + 1) * sizeof(*p->series));
	if (!p->series) {
		cli_error("out of memory");
		exit(CLI_FAILED);
	}
	s = &p->series[p->n++];
	memset(s, 0, sizeof(*s));
	s->name = name;
	s->colour = colour;
	return s;
}

/* In the order of x, in which the line goes. */
void series_add(struct series *s, struct point point)
{
	size_t at;

	if (!isfinite(point.mid)) {
		free(point.tip);
		return;
	}
	s->points = realloc(s->points, (s->n + 1) * sizeof(*s->points));
	if (!s->points) {
		cli_error("out of memory");
		exit(CLI_FAILED);
	}
	for (at = s->n; at && s->points[at - 1].x > point.x; at--)
		s->points[at] = s->points[at - 1];
	s->points[at] = point;
	s->n++;
}

void panel_free(struct panel *p)
{
	for (size_t s = 0; s < p->n; s++) {
		for (size_t i = 0; i < p->series[s].n; i++)
			free(p->series[s].points[i].tip);
		free(p->series[s].points);
	}
	free(p->title);
	free(p->series);
	free(p->rows);
}
