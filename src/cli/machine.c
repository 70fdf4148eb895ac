/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

bool machine_read_line(const char *path, char *line, size_t size)
{
	FILE *f = fopen(path, "re");
	bool ok;

	if (!f)
		return false;
	ok = fgets(line, (int)size, f) != NULL;
	fclose(f);
	if (ok)
		line[strcspn(line, "\n")] = '\0';
	return ok;
}

/* The value of "name : value" in a file such as /proc/cpuinfo. */
static bool read_field(const char *path, const char *name, char *value, size_t size)
{
	char line[512];
	size_t len = strlen(name);
	bool found = false;
	FILE *f = fopen(path, "re");

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		char *colon = strchr(line, ':');

		if (!colon || strncmp(line, name, len))
			continue;
		colon++;
		colon += strspn(colon, " \t");
		colon[strcspn(colon, "\n")] = '\0';
		snprintf(value, size, "%s", colon);
		found = true;
	}
	fclose(f);
	return found;
}

void machine_describe(struct machine *m)
{
	struct utsname u;
	cpu_set_t set;
	char text[64];
	time_t now = time(NULL);
	struct tm tm;

	memset(m, 0, sizeof(*m));
	if (!read_field("/proc/cpuinfo", "model name", m->cpu, sizeof(m->cpu)) &&
	    !read_field("/proc/cpuinfo", "CPU part", m->cpu, sizeof(m->cpu)))
		snprintf(m->cpu, sizeof(m->cpu), "unknown");
	if (!uname(&u)) {
		snprintf(m->kernel, sizeof(m->kernel), "Linux %s", u.release);
		snprintf(m->arch, sizeof(m->arch), "%s", u.machine);
	}
	if (gmtime_r(&now, &tm))
		strftime(m->date, sizeof(m->date), "%Y-%m-%dT%H:%M:%SZ", &tm);
	m->cpus = sched_getaffinity(0, sizeof(set), &set) ? 0 : CPU_COUNT(&set);
	if (getloadavg(m->load, 3) != 3)
		m->load[0] = m->load[1] = m->load[2] = -1;
	if (read_field("/proc/meminfo", "MemTotal", text, sizeof(text)))
		m->memory_kb = strtoull(text, NULL, 10);
}

static double seconds(const struct timeval *t)
{
	return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

void machine_cpu_time(struct cpu_time *t)
{
	/* User, nice, system, idle, waiting for a disk, interrupts, soft interrupts, stolen. */
	unsigned long long v[8];
	static const int who[] = {RUSAGE_SELF, RUSAGE_CHILDREN};
	double hz = (double)sysconf(_SC_CLK_TCK);
	char line[512];
	struct rusage u;

	memset(t, 0, sizeof(*t));
	if (!machine_read_line("/proc/stat", line, sizeof(line)) || hz <= 0 ||
	    sscanf(line, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3],
		   &v[4], &v[5], &v[6], &v[7]) != 8)
		return;
	for (size_t i = 0; i < 8; i++)
		t->total += (double)v[i] / hz;
	t->stolen = (double)v[7] / hz;
	t->busy = t->total - t->stolen - (double)(v[3] + v[4]) / hz;
	for (size_t i = 0; i < sizeof(who) / sizeof(who[0]); i++)
		if (!getrusage(who[i], &u))
			t->ours += seconds(&u.ru_utime) + seconds(&u.ru_stime);
}

void cpu_time_add(struct cpu_time *sum, const struct cpu_time *from, const struct cpu_time *to)
{
	sum->total += to->total - from->total;
	sum->busy += to->busy - from->busy;
	sum->stolen += to->stolen - from->stolen;
	sum->ours += to->ours - from->ours;
}

void cpu_time_sum(struct cpu_time *sum, const struct cpu_time *t)
{
	static const struct cpu_time nothing;

	cpu_time_add(sum, &nothing, t);
}

double cpu_time_others(const struct cpu_time *t)
{
	if (!(t->total > 0))
		return NAN;
	return t->busy > t->ours ? (t->busy - t->ours) / t->total : 0;
}

double cpu_time_stolen(const struct cpu_time *t)
{
	return t->total > 0 ? t->stolen / t->total : NAN;
}
