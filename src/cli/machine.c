/* SPDX-License-Identifier: MIT */
#include "cli.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

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
