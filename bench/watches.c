/* SPDX-License-Identifier: MIT */
/*
 * What a watch costs as the set grows: time of ADD, DEL and an event, and memory. One
 * epoll holds all watches where the descriptor limit allows it; otherwise every
 * descriptor is watched by several epolls.
 */
#include "picks.h"

/* Below this many watches the machine's own noise outweighs their memory. */
#define MIN_FOR_BYTES 50000
#define SPARE_FDS 256

static struct {
	uint64_t watches;
	uint64_t samples;
	bool dup;
	bool random;
} opt = {.watches = 1000, .samples = 100000};

static int *fds;
static int *epolls;
static uint64_t n_fds;
static uint64_t n_epolls;

static int watch_epoll(uint64_t w)
{
	return epolls[w / n_fds];
}

static int watch_fd(uint64_t w)
{
	return fds[w % n_fds];
}

static void add(uint64_t w)
{
	bench_ctl(watch_epoll(w), EPOLL_CTL_ADD, watch_fd(w), EPOLLIN, w);
}

static void del(uint64_t w)
{
	bench_ctl(watch_epoll(w), EPOLL_CTL_DEL, watch_fd(w), 0, 0);
}

/* A figure in kB from a file of "Name:   123 kB" lines. */
static uint64_t read_kb(const char *path, const char *name)
{
	char line[256];
	size_t len = strlen(name);
	unsigned long long kb = 0;
	FILE *f = fopen(path, "re");

	if (!f)
		return 0;
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) && line[len] == ':' &&
		    sscanf(line + len + 1, "%llu", &kb) == 1)
			break;
	fclose(f);
	return kb;
}

struct memory {
	int64_t rss;
	int64_t slab;
};

static struct memory memory_now(void)
{
	struct memory m;
	uint64_t kb = read_kb("/proc/self/smaps_rollup", "Rss");

	if (!kb)
		kb = read_kb("/proc/self/status", "VmRSS");
	m.rss = (int64_t)kb * 1024;
	m.slab = (int64_t)read_kb("/proc/meminfo", "Slab") * 1024;
	return m;
}

/*
 * The kernel frees the descriptors of a process that just ended a little later,
 * and their memory must not be counted as gained here: waits until it shrinks no
 * more, for two seconds at most.
 */
static void memory_settle(void)
{
	const struct timespec pause = {.tv_nsec = 50 * 1000000};
	int64_t last = memory_now().slab;
	int steady = 0;

	for (int i = 0; i < 40 && steady < 4; i++) {
		int64_t now;

		nanosleep(&pause, NULL);
		now = memory_now().slab;
		/* A quarter of a megabyte is what an idle machine moves. */
		steady = now > last - 262144 ? steady + 1 : 0;
		last = now;
	}
}

/* Checks that watch w, and it alone, reports when its descriptor gets a count. */
static void check_watch(uint64_t w, bool expected)
{
	struct epoll_event ev[2];
	uint64_t value = 1;
	int n;

	if (write(watch_fd(w), &value, sizeof(value)) != sizeof(value))
		bench_die("write to an eventfd: %s", strerror(errno));
	n = bench_wait(watch_epoll(w), ev, 2, 0);
	if (opt.dup ? (n > 0) != expected : n != expected)
		bench_die("%d events where %s expected", n, expected ? "one was" : "none was");
	if (!opt.dup && expected && ev[0].data.u64 != w)
		bench_die("another watch reported than the one whose descriptor was written");
	if (read(watch_fd(w), &value, sizeof(value)) != sizeof(value))
		bench_die("read from an eventfd: %s", strerror(errno));
}

/* Writes to the descriptor of watch w, waits, and reads: what an event costs in the full set. */
static void event(uint64_t w)
{
	struct epoll_event ev[2];
	uint64_t value = 1;

	if (write(watch_fd(w), &value, sizeof(value)) != sizeof(value))
		bench_die("write to an eventfd: %s", strerror(errno));
	if (bench_wait(watch_epoll(w), ev, 2, 0) < 1)
		bench_die("no event where one was expected");
	if (read(watch_fd(w), &value, sizeof(value)) != sizeof(value))
		bench_die("read from an eventfd: %s", strerror(errno));
}

static void make_fds(uint64_t limit)
{
	n_fds = opt.watches;
	if (n_fds > limit - SPARE_FDS)
		n_fds = limit - SPARE_FDS;
	for (;;) {
		n_epolls = (opt.watches + n_fds - 1) / n_fds;
		if (n_fds + n_epolls + SPARE_FDS / 2 <= limit)
			break;
		n_fds -= n_epolls;
	}
	fds = calloc(n_fds, sizeof(*fds));
	epolls = calloc(n_epolls, sizeof(*epolls));
	if (!fds || !epolls)
		bench_die("out of memory");
	/* Touched beforehand, so that the arrays do not count as memory of the objects. */
	memset(fds, 0xff, n_fds * sizeof(*fds));
	for (uint64_t i = 0; i < n_epolls; i++)
		epolls[i] = bench_epoll();
}

static const char about[] =
	"Builds a set of watches, then measures ADD, DEL and events in it, and its memory.";

static const struct bench_option options[] = {
	{"watches", "size of the set", .number = &opt.watches, .min = 1, .max = 100000000},
	{"samples", "ADDs, DELs and events measured in the full set", .number = &opt.samples,
	 .min = 1, .max = 100000000},
	{"random", "at random, instead of in equal steps", .flag = &opt.random},
	{"dup", "all descriptors are duplicates of one eventfd", .flag = &opt.dup},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	struct memory bare, objects, full;
	struct bench_groups in_add = {0}, in_del = {0}, in_event = {0};
	uint64_t t0, t1, done = 0, batch, limit, clock;
	double grow_ns, shrink_ns;
	struct picks picks;

	bench_options(argc, argv, about, options);
	bench_watchdog(BENCH_WATCHDOG_SECONDS);
	limit = bench_raise_nofile(opt.watches + SPARE_FDS + 1);
	if (limit < 2 * SPARE_FDS)
		bench_die("the descriptor limit of %" PRIu64 " is too low (ulimit -n)", limit);
	make_fds(limit);

	if (opt.watches >= MIN_FOR_BYTES)
		memory_settle();
	bare = memory_now();
	for (uint64_t i = 0; i < n_fds; i++) {
		if (opt.dup && i) {
			fds[i] = dup(fds[0]);
			if (fds[i] < 0)
				bench_die("dup: %s", strerror(errno));
		} else {
			fds[i] = bench_eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		}
	}
	objects = memory_now();

	t0 = bench_now();
	for (uint64_t w = 0; w < opt.watches; w++)
		add(w);
	t1 = bench_now();
	grow_ns = (double)(t1 - t0) / (double)opt.watches;
	full = memory_now();

	/*
	 * ADD and DEL inside the full set: batches of watches spread over all of it are
	 * taken out and put back, so that the size stays what it is.
	 */
	picks_init(&picks, opt.watches, opt.random);
	batch = picks.batch;
	clock = bench_clock_cost();
	while (done < opt.samples) {
		/* Another offset each time, so that the watches of one batch are not cached. */
		uint64_t offset = done / batch, took;

		picks_next(&picks, offset);
		t0 = bench_now();
		for (uint64_t i = 0; i < batch; i++)
			del(picks.w[i]);
		took = bench_since(t0, clock);
		if (done == 0)
			check_watch(picks.w[0], opt.dup && batch < opt.watches);
		bench_groups_add(&in_del, took, batch);
		t0 = bench_now();
		for (uint64_t i = 0; i < batch; i++)
			add(picks.w[i]);
		bench_groups_add(&in_add, bench_since(t0, clock), batch);
		/* Other watches than those that were just added. */
		picks_next(&picks, offset + picks.stride / 2);
		t0 = bench_now();
		for (uint64_t i = 0; i < batch && !opt.dup; i++)
			event(picks.w[i]);
		bench_groups_add(&in_event, bench_since(t0, clock), batch);
		done += batch;
	}
	for (uint64_t w = 0; w < opt.watches; w += picks.stride)
		check_watch(w, true);

	t0 = bench_now();
	for (uint64_t w = 0; w < opt.watches; w++)
		del(w);
	t1 = bench_now();
	shrink_ns = (double)(t1 - t0) / (double)opt.watches;
	check_watch(0, false);
	check_watch(opt.watches - 1, false);

	printf("program=watches ");
	bench_print_served(fds[0]);
	printf("watches=%" PRIu64 " descriptors=%" PRIu64 " epolls=%" PRIu64 " dup=%d "
	       "add_ns=%.1f del_ns=%.1f event_ns=%.1f grow_add_ns=%.1f shrink_del_ns=%.1f ",
	       opt.watches, n_fds, n_epolls, opt.dup, bench_groups_median(&in_add),
	       bench_groups_median(&in_del), bench_groups_median(&in_event), grow_ns, shrink_ns);
	if (opt.watches >= MIN_FOR_BYTES) {
		int64_t rss = full.rss - objects.rss, slab = full.slab - objects.slab;

		if (slab < 0)
			slab = 0;
		printf("watch_rss_bytes=%.1f watch_kernel_bytes=%.1f watch_bytes=%.1f "
		       "object_rss_bytes=%.1f object_kernel_bytes=%.1f ",
		       (double)rss / (double)opt.watches, (double)slab / (double)opt.watches,
		       (double)(rss + slab) / (double)opt.watches,
		       (double)(objects.rss - bare.rss) / (double)n_fds,
		       (double)(objects.slab - bare.slab) / (double)n_fds);
	}
	printf("ok=1\n");
	free(fds);
	free(epolls);
	free(picks.w);
	return 0;
}
