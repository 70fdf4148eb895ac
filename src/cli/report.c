/* SPDX-License-Identifier: MIT */
#include "report.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char help_text[] =
	"Usage: pollux bench report FILE FOLDER\n"
	"Write the page of a file of 'pollux bench --json', index.html, and the same as a text,\n"
	"report.md, into FOLDER. The page needs nothing but itself.\n"
	"\n"
	"  --help   print this text\n"
	"\n"
	"Exit status: 0 success, 1 the folder cannot be written, 2 usage error, or the file is\n"
	"none of 'pollux bench'.\n";

const char *const report_method[] = {
	"The sides run in turn, one run of each next to the other: a pair. Which side begins "
	"changes from pair to pair. What else the machine does falls on both alike.",
	"Before the pairs that count each side runs once (with --quick once for each bench).",
	"Shown are medians of the runs, with the smallest and the largest; and the median of the "
	"ratios of the pairs (\"to\" a side where there are several), with the smallest and the "
	"largest. A ratio above 1 says that Pollux is better, for rates as well as for times and "
	"sizes.",
	"\"95 %\" is the percentile bootstrap interval of the median ratio: the medians of 10000 "
	"sets drawn from the ratios with replacement. With three pairs that is little more than "
	"the range.",
	"\"~\" marks a result whose ratios spread by more than half of their median, \"k\" one "
	"where a side that is compared with, such as the kernel, spreads so by itself; "
	"\"others\" is the share of the CPU time that went to other programs meanwhile if that "
	"is above 10 %, \"stolen\" what the host took if that is above 2 %. The kernel's own "
	"threads count as others.",
	"A run is called noisy if more than a quarter of its results carry \"~\" or \"k\", if "
	"other programs or the host took more than those shares of the whole, or if the load "
	"average at its start was above half of the number of CPUs.",
	"Programs check their own bookkeeping, and whether Pollux served them. Runs that failed "
	"are left out; runs that were not served are reported as such.",
	NULL,
};

const char report_factors[] = "Below each figure stands how much better it is than the first one "
			      "of its row; of Pollux it is "
			      "the median of the pairs, with the smallest and the largest, and '~' "
			      "where they lie far apart.";

struct tally report_tally(const struct results *r)
{
	struct tally t = {0};

	for (size_t i = 0; i < r->n; i++) {
		const struct result *c = &r->list[i];

		for (size_t m = 0; m < c->n_metrics; m++) {
			for (size_t s = 0; s + 1 < c->n_sides; s++) {
				const struct values *v = &c->metrics[m].ratios[s];

				if (!v->n)
					continue;
				t.comparisons++;
				t.better += v->min > 1;
				t.worse += v->max < 1;
				t.noisy += results_ratio_noisy(v) ||
					   results_side_noisy(&c->metrics[m].sides[s]);
			}
		}
	}
	return t;
}

static bool write_file(const char *folder, const char *name, const struct results *r,
		       void (*write)(FILE *f, const struct results *r))
{
	char *path = cli_format("%s/%s", folder, name);
	FILE *f = fopen(path, "we");
	bool ok = f != NULL;

	if (f) {
		write(f, r);
		ok = !(ferror(f) | fclose(f));
	}
	if (!ok)
		cli_error("bench: cannot write %s: %s", path, strerror(errno));
	free(path);
	return ok;
}

static int write_both(const char *folder, const struct results *r)
{
	return write_file(folder, "index.html", r, page_write) &&
			       write_file(folder, "report.md", r, markdown_write)
		       ? CLI_OK
		       : CLI_FAILED;
}

int report_write(const char *folder)
{
	char *path = cli_format("%s/report.json", folder);
	struct results *r = results_read(path);
	int status = r ? write_both(folder, r) : CLI_FAILED;

	if (r)
		results_free(r);
	free(path);
	return status;
}

int cmd_bench_report(int argc, char **argv)
{
	static const struct option longs[] = {{"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
	struct results *r;
	int c, status;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'h') {
			fputs(help_text, stdout);
			return CLI_OK;
		}
		cli_error("bench report: unknown option '%s'", argv[optind - 1]);
		return cli_try_help("bench report", CLI_USAGE);
	}
	if (argc - optind != 2) {
		cli_error("bench report: a file and a folder are needed");
		return cli_try_help("bench report", CLI_USAGE);
	}
	r = results_read(argv[optind]);
	if (!r)
		return CLI_USAGE;
	if (mkdir(argv[optind + 1], 0777) && errno != EEXIST) {
		cli_error("bench report: cannot make %s: %s", argv[optind + 1], strerror(errno));
		results_free(r);
		return CLI_FAILED;
	}
	status = write_both(argv[optind + 1], r);
	results_free(r);
	return status;
}
