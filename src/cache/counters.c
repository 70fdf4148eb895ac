/* SPDX-License-Identifier: MIT */
/*
 * What this process has served and what has left it, and how --stats says so.
 */
#include "cache/evict.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/stats.h"
#include "base/sys.h"

/* No pointers: each would be relocated at the start of each program. */
static const struct {
	char name[16];
	char what[112];
} ways_out[] = {
#define ROW(id, name, what) {name, what},
	PLX_WAYS_OUT(ROW)
#undef ROW
};
static PLX_FORK_PAGE uint64_t evicted_by[PLX_OUT_COUNT];

void plx_px_evicted(enum plx_way_out why, int n)
{
	__atomic_fetch_add(&evicted_by[why], n, __ATOMIC_RELAXED);
	plx_stat_add(PLX_COUNT_EVICTED, n);
}

PLX_CHILD_CODE void plx_counters_after_fork_child(void)
{
	if (!plx_load(&plx_stats_wanted))
		return;
	memset(evicted_by, 0, sizeof(evicted_by));
	plx_stat_after_fork_child();
}

/* What each kind of call came to; n characters are in buf already. */
static int print_traffic(char *buf, size_t size, int n)
{
	unsigned long long calls = 0, made = plx_stat_own(PLX_STAT_MADE);

	for (int i = PLX_STAT_READS; i <= PLX_STAT_POLLS; i++)
		calls += plx_stat_own(i);
	n += snprintf(buf + n, size - n,
		      "pollux: in process: %llu reads, %llu writes, %llu ctl, %llu waits, "
		      "%llu polls; left to the kernel: %llu ctl, %llu waits\n",
		      plx_stat_own(PLX_STAT_READS), plx_stat_own(PLX_STAT_WRITES),
		      plx_stat_own(PLX_STAT_CTLS), plx_stat_own(PLX_STAT_WAITS),
		      plx_stat_own(PLX_STAT_POLLS), plx_stat_own(PLX_STAT_KERNEL_CTLS),
		      plx_stat_own(PLX_STAT_KERNEL_WAITS));
	n += snprintf(
		buf + n, size - n,
		"pollux: eventfds: %llu times cached, %llu times not any more; writes: %llu "
		"while not cached, %llu through the kernel; %llu counts flushed; %llu made to "
		"block\n",
		plx_stat_own(PLX_COUNT_CACHED), plx_stat_own(PLX_COUNT_COOLED),
		plx_stat_own(PLX_STAT_COLD), plx_stat_own(PLX_STAT_THROUGH),
		plx_stat_own(PLX_STAT_FLUSHED), plx_stat_own(PLX_COUNT_BLOCKING));
	n += snprintf(buf + n, size - n,
		      "pollux: system calls: %lld saved, as %llu were made for these %llu\n",
		      (long long)(calls - made), made, calls);
	n += snprintf(buf + n, size - n,
		      "pollux: ready lists: %llu queued, %llu queued already, %llu given out in "
		      "%llu turns, at most %llu\n",
		      plx_stat_own(PLX_STAT_QUEUED), plx_stat_own(PLX_STAT_STAYED),
		      plx_stat_own(PLX_STAT_COLLECTED), plx_stat_own(PLX_STAT_TURNS),
		      (unsigned long long)plx_stat_longest());
	n += snprintf(buf + n, size - n,
		      "pollux: wakes: %llu rings, %llu sleeps without an event\n",
		      plx_stat_own(PLX_STAT_RINGS), plx_stat_own(PLX_STAT_IDLE));
	return n;
}

static int print_aio(char *buf, size_t size, int n)
{
	n += snprintf(buf + n, size - n,
		      "pollux: AIO contexts %llu, of which %llu became the kernel's\n",
		      plx_stat_own(PLX_COUNT_AIO), plx_stat_own(PLX_COUNT_AIO_GIVEN));
	return n + snprintf(buf + n, size - n,
			    "pollux: AIO requests: %llu done at once, %llu by the kernel's AIO\n",
			    plx_stat_own(PLX_STAT_AIO_INLINE), plx_stat_own(PLX_STAT_AIO_KERNEL));
}

/*
 * Standard error as it was at the start. A program that has put another file at its number, data of
 * its own perhaps, finds nothing of ours in it.
 */
static struct {
	bool open;
	/* 1: still the same, -1: not; 0: to be looked at. */
	int8_t same;
	dev_t dev, rdev;
	ino_t ino;
} start;

void plx_px_stats_begin(void)
{
	struct stat st;

	if (plx_sys2(SYS_fstat, 2, &st))
		return;
	start.open = true;
	start.dev = st.st_dev;
	start.rdev = st.st_rdev;
	start.ino = st.st_ino;
}

static bool same_stderr(void)
{
	struct stat st;

	if (start.same || !start.open)
		return start.same > 0;
	return plx_sys2(SYS_fstat, 2, &st) == 0 && st.st_dev == start.dev &&
	       st.st_rdev == start.rdev && st.st_ino == start.ino;
}

void plx_px_stats_sandbox(void)
{
	if (plx_load(&plx_stats_wanted))
		start.same = same_stderr() ? 1 : -1;
}

void plx_px_stats_print(bool nothing_too)
{
	bool descriptors = plx_stat_own(PLX_COUNT_EPOLLS) || plx_stat_own(PLX_COUNT_EVENTFDS);
	char buf[4096];
	int n;

	if ((!nothing_too && !descriptors && !plx_stat_own(PLX_COUNT_AIO)) || !same_stderr())
		return;
	n = snprintf(buf, sizeof(buf),
		     "pollux: adopted: %llu epolls, %llu eventfds; sleeps %llu; evicted %llu; "
		     "process %ld (%.64s)\n",
		     plx_stat_own(PLX_COUNT_EPOLLS), plx_stat_own(PLX_COUNT_EVENTFDS),
		     plx_stat_own(PLX_COUNT_SLEEPS), plx_stat_own(PLX_COUNT_EVICTED),
		     plx_sys0(SYS_getpid), program_invocation_short_name);
	if (descriptors)
		n = print_traffic(buf, sizeof(buf), n);
	if (plx_stat_own(PLX_COUNT_TIMERS))
		n += snprintf(buf + n, sizeof(buf) - n,
			      "pollux: timers %llu: %llu settings that the kernel was not told, "
			      "%llu expiries too early\n",
			      plx_stat_own(PLX_COUNT_TIMERS), plx_stat_own(PLX_STAT_TIMER_KEPT),
			      plx_stat_own(PLX_STAT_TIMER_EARLY));
	if (plx_stat_own(PLX_COUNT_AIO))
		n = print_aio(buf, sizeof(buf), n);
	for (int i = 0; i < PLX_OUT_COUNT; i++) {
		unsigned long long evicted = plx_load(&evicted_by[i]);

		if (evicted)
			n += snprintf(buf + n, sizeof(buf) - n,
				      "pollux: evicted by %s: %llu (%s)\n", ways_out[i].name,
				      evicted, ways_out[i].what);
	}
	plx_sys3(SYS_write, 2, buf, n);
}
