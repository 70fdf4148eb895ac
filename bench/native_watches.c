/* SPDX-License-Identifier: MIT */
/*
 * What a watch costs as the set grows, as watches.c measures it, through Pollux's own functions:
 * no descriptor limit stands in the way, so one epoll holds all and each counter has one watch.
 */
#include "picks.h"

#include <pollux/epoll.h>
#include <pollux/eventfd.h>

/* Below this many watches the machine's own noise outweighs their memory. */
#define MIN_FOR_BYTES 50000

static struct {
	uint64_t watches;
	uint64_t samples;
	bool random;
} opt = {.watches = 1000, .samples = 100000};

static struct pollux_ep *ep;
static struct pollux_efd **counters;

static void ctl(int op, uint64_t w)
{
	struct epoll_event ev = {.events = EPOLLIN, .data = {.u64 = w}};
	int rc = pollux_ep_ctl(ep, op, pollux_efd_file(counters[w]), 0, &ev);

	if (rc)
		bench_die("pollux_ep_ctl: %s", strerror(-rc));
}

/* Counts up, waits, and takes: the one event that there is must be that of w. */
static void event(uint64_t w)
{
	struct epoll_event got[2];
	uint64_t value;

	if (pollux_efd_write(counters[w], 1, 0))
		bench_die("a counter is full");
	if (pollux_ep_wait(ep, got, 2, 0) != 1 || got[0].data.u64 != w)
		bench_die("another watch reported than the one whose counter was written");
	if (pollux_efd_read(counters[w], &value, 0) || value != 1)
		bench_die("a counter does not hold what was written");
}

static uint64_t rss(void)
{
	unsigned long long kb = 0;
	char line[256];
	FILE *f = fopen("/proc/self/smaps_rollup", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Rss: %llu", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb * 1024;
}

static const char about[] =
	"Builds a set of watches in one epoll, then measures ADD, DEL and events in it, and its\n"
	"memory, through Pollux's own functions.";

static const struct bench_option options[] = {
	{"watches", "size of the set", .number = &opt.watches, .min = 1, .max = 100000000},
	{"samples", "ADDs, DELs and events measured in the full set", .number = &opt.samples,
	 .min = 1, .max = 100000000},
	{"random", "at random, instead of in equal steps", .flag = &opt.random},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	struct bench_groups in_add = {0}, in_del = {0}, in_event = {0};
	struct picks picks;
	uint64_t t0, done = 0, batch, bare, objects, full, clock;

	bench_options(argc, argv, about, options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	counters = malloc(opt.watches * sizeof(struct pollux_efd *));
	if (!counters || pollux_ep_new(&ep, NULL))
		bench_die("out of memory");
	/* Touched beforehand, so that the array does not count as memory of the objects. */
	memset(counters, 0xff, opt.watches * sizeof(struct pollux_efd *));
	bare = rss();
	for (uint64_t w = 0; w < opt.watches; w++)
		if (pollux_efd_new(&counters[w], 0, 0))
			bench_die("out of memory");
	objects = rss();
	for (uint64_t w = 0; w < opt.watches; w++)
		ctl(EPOLL_CTL_ADD, w);
	full = rss();

	picks_init(&picks, opt.watches, opt.random);
	batch = picks.batch;
	clock = bench_clock_cost();
	while (done < opt.samples) {
		uint64_t offset = done / batch;

		picks_next(&picks, offset);
		t0 = bench_now();
		for (uint64_t i = 0; i < batch; i++)
			ctl(EPOLL_CTL_DEL, picks.w[i]);
		bench_groups_add(&in_del, bench_since(t0, clock), batch);
		t0 = bench_now();
		for (uint64_t i = 0; i < batch; i++)
			ctl(EPOLL_CTL_ADD, picks.w[i]);
		bench_groups_add(&in_add, bench_since(t0, clock), batch);
		/* Others than those that were just added. */
		picks_next(&picks, offset + picks.stride / 2);
		t0 = bench_now();
		for (uint64_t i = 0; i < batch; i++)
			event(picks.w[i]);
		bench_groups_add(&in_event, bench_since(t0, clock), batch);
		done += batch;
	}
	if (pollux_ep_watches() != (long)opt.watches)
		bench_die("%ld watches are there", pollux_ep_watches());
	printf("program=native_watches preload=0 native=1 watches=%" PRIu64
	       " add_ns=%.1f del_ns=%.1f event_ns=%.1f ",
	       opt.watches, bench_groups_median(&in_add), bench_groups_median(&in_del),
	       bench_groups_median(&in_event));
	if (opt.watches >= MIN_FOR_BYTES)
		printf("watch_bytes=%.1f object_bytes=%.1f ",
		       (double)(full - objects) / (double)opt.watches,
		       (double)(objects - bare) / (double)opt.watches);
	printf("ok=1\n");
	return 0;
}
